/*
 * Signals to an agent (see node.h).
 *
 * Slurm sends SIGTERM to all processes of a job when it is cancelled or its time is over, and SIGKILL some seconds later; and it sends SIGTERM when the user
 * has asked for that some time before the end (--signal=TERM@300), so that the application writes its last checkpoint, for which the store is needed more than
 * ever. The signal does not say which, and SIGINT and SIGHUP may be asked for as well. So the root asks Slurm whether the job still runs, and tells the
 * others; an agent that is connected waits for that word, and one that has nobody above ends. Of 10,000 agents one asks.
 *
 * A controller that does not answer (it restarts just now) has not said that the job is over: it is asked again, and then the store stays up. What SIGKILL would
 * leave of it the next job or fp-job clean removes; what an application has written to a store that ends under it nobody brings back.
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "fp/clock.h"
#include "fp/jobsignals.h"
#include "fp/log.h"
#include "jobscripts/agent/node.h"
#include "jobscripts/launch/slurm.h"

#define AGAIN_MS 1000u
#define ASK_MS  20000u /* in all */
#define WORD_MS 8000u /* for squeue, and for the root's word: a controller that is slow has not ended the job; what else is to be done fits the rest of KillWait (fp-job doctor) */

static void asked_closed(uv_handle_t *h)
{
    ((struct node *)h->data)->asked.runs = false;
}

/* What squeue says of the job. A job that has been over for some minutes is none that Slurm knows. */
static enum { RUNS, OVER, UNKNOWN } meaning(const char *said, int64_t status, int sig)
{
    if (sig || status == 127) /* killed, as it did not answer; there is no squeue, so nobody has asked for an early signal */
        return sig ? UNKNOWN : OVER;
    if (status)
        return strstr(said, "Invalid job id") ? OVER : UNKNOWN;
    return strncmp(said, "RUNNING", 7) == 0 || strstr(said, "\nRUNNING") ? RUNS : OVER;
}

static void asked_ended(uv_process_t *p, int64_t status, int sig)
{
    struct node *n = p->data;

    n->asked.text[n->asked.len] = '\0';
    uv_close((uv_handle_t *)&n->asked.pipe, NULL);
    uv_close((uv_handle_t *)p, asked_closed);
    if (n->phase >= NODE_STOPPING || !n->term_at_ms)
        return;
    switch (meaning(n->asked.text, status, sig)) {
    case OVER:
        node_stop(n);
        break;
    case RUNS:
        FP_INFO("a signal to end, and the job still runs: the store stays up");
        n->term_at_ms = 0;
        break;
    case UNKNOWN:
        n->asked.next_ms = fp_now_ms() + AGAIN_MS;
    }
}

static void room(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    struct node *n = h->data;

    (void)suggested;
    *buf = uv_buf_init(n->asked.text + n->asked.len, (unsigned)(sizeof n->asked.text - 1 - n->asked.len));
}

static void on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *buf)
{
    struct node *n = stream->data;

    (void)buf;
    if (got < 0)
        uv_read_stop(stream);
    else
        n->asked.len += (size_t)got;
}

static void ask_slurm(struct node *n)
{
    char job[JOB_SLURM_NAME_MAX], *argv[] = {(char *)"sh", (char *)"-c", (char *)"exec squeue -h -o %T -j \"$0\" 2>&1", job, NULL};
    uv_stdio_container_t io[3] = {{.flags = UV_IGNORE}, {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&n->asked.pipe}, {.flags = UV_IGNORE}};
    uv_process_options_t o = {.exit_cb = asked_ended, .file = argv[0], .args = argv, .stdio = io, .stdio_count = 3};

    if (n->asked.runs)
        return;
    job_slurm_name(n->plan.job, job);
    n->asked.runs = true;
    n->asked.since_ms = fp_now_ms();
    n->asked.next_ms = 0;
    n->asked.len = 0;
    uv_pipe_init(&n->loop, &n->asked.pipe, 0);
    n->asked.process.data = n->asked.pipe.data = n;
    if (uv_spawn(&n->loop, &n->asked.process, &o)) {
        uv_close((uv_handle_t *)&n->asked.pipe, NULL);
        uv_close((uv_handle_t *)&n->asked.process, asked_closed);
        node_stop(n);
        return;
    }
    (void)uv_read_start((uv_stream_t *)&n->asked.pipe, room, on_read);
}

static void on_signal(uv_signal_t *h, int sig)
{
    struct node *n = h->data;

    if (n->phase >= NODE_STOPPING) {
        n->hurry = true;
        for (int i = 0; i < NODE_ROLES; i++)
            n->service[i].hurry = true;
        return;
    }
    n->term_at_ms = n->last_term_ms = fp_now_ms();
    if (sig == FP_SIGNAL_END)
        node_stop(n);
    else if (n->rank == 0)
        ask_slurm(n);
}

static void root_tick(struct node *n, uint64_t now_ms)
{
    if (n->asked.runs) {
        if (now_ms - n->asked.since_ms >= WORD_MS)
            (void)uv_process_kill(&n->asked.process, SIGKILL);
    } else if (now_ms - n->term_at_ms >= ASK_MS) {
        FP_WARN("a signal to end, and Slurm does not say whether the job is over (%.60s): the store stays up", n->asked.text);
        n->term_at_ms = 0;
    } else if (n->asked.next_ms && now_ms >= n->asked.next_ms) {
        ask_slurm(n);
    }
}

void node_signal_tick(struct node *n, uint64_t now_ms)
{
    if (!n->term_at_ms || n->phase >= NODE_STOPPING)
        return;
    if (n->rank == 0)
        root_tick(n, now_ms);
    else if (now_ms - n->term_at_ms < WORD_MS)
        return;
    else if (n->up_is_up) /* the root goes on, or its word is still on the way */
        n->term_at_ms = 0;
    else
        node_stop(n);
}

void node_signals(struct node *n)
{
    static const int signals[NODE_SIGNALS] = {SIGTERM, SIGINT, SIGHUP, FP_SIGNAL_END};

    for (size_t i = 0; i < NODE_SIGNALS; i++) {
        uv_signal_init(&n->loop, &n->sigs[i]);
        n->sigs[i].data = n;
        uv_signal_start(&n->sigs[i], on_signal, signals[i]);
    }
}

void node_signals_end(struct node *n)
{
    if (n->asked.runs)
        (void)uv_process_kill(&n->asked.process, SIGKILL); /* one that never answers would keep us */
    for (size_t i = 0; i < NODE_SIGNALS; i++)
        uv_close((uv_handle_t *)&n->sigs[i], NULL);
}
