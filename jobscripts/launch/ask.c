/* Asking the root agent of a job, and telling it to end (see launch.h). Called by fp-job status and stop; one thread. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "fp/clock.h"
#include "fp/err.h"
#include "fp/key.h"
#include "fp/log.h"
#include "fp/procs.h"
#include "fp/rpc.h"
#include "job.pb-c.h"
#include "jobscripts/launch/launch.h"
#include "jobscripts/launch/slurm.h"

#define ANSWER_MS 5000u
#define KNOW_MS   5000u /* in which all agents know that nothing is to be kept */
#define END_MS    40000u /* the agents', who end one program after the other */
#define SOON_MS   5000u
#define KILL_MS   10000u

struct ask {
    uv_loop_t loop;
    struct fp_key *key;
    struct fp_rpc *rpc;
    struct fp_rpc_conn *conn; /* NULL: closed */
    const char *job;
    uint16_t what;
    bool done;
    int rc;
    uint32_t next; /* it is asked from here on; 0: from the first, or all has come */
    struct job_states *states;
};

static void take(struct ask *a, const struct fp_rpc_in *in)
{
    Fp__JobStates *m = fp__job_states__unpack(NULL, in->msg_len_bytes, in->msg);

    a->rc = m ? 0 : FP_EBADFRAME;
    a->next = m && m->next > a->next ? m->next : 0;
    for (size_t i = 0; a->rc == 0 && i < m->n_runs; i++)
        (void)job_states_set(a->states, m->runs[i]->first, m->runs[i]->count, (int)m->runs[i]->state, m->runs[i]->text);
    if (m)
        fp__job_states__free_unpacked(m, NULL);
}

static void ask_for_states(struct ask *a);

static void answered(void *arg, int status, const struct fp_rpc_in *in)
{
    struct ask *a = arg;

    a->rc = status;
    if (status == 0)
        take(a, in);
    if (in)
        fp_rpc_payload_free(in->payload);
    a->done = status < 0 || !a->next || !a->conn;
    if (!a->done)
        ask_for_states(a);
}

/* From a->next on. */
static void ask_for_states(struct ask *a)
{
    Fp__JobAsk ask = FP__JOB_ASK__INIT;
    struct fp_rpc_req req = {.type = a->what, .msg = &ask.base, .timeout_ms = ANSWER_MS, .cb = answered, .arg = a};

    ask.first = a->next;
    a->rc = fp_rpc_call(a->conn, &req, NULL);
    a->done = a->rc != 0;
}

static void said_hello(void *arg, int status, const struct fp_rpc_in *in)
{
    struct ask *a = arg;

    if (in)
        fp_rpc_payload_free(in->payload);
    a->rc = status;
    a->done = status < 0;
    if (a->done || !a->conn)
        return;
    if (a->what != FP__JOB_MSG__JOB_ASK) {
        a->rc = fp_rpc_send(a->conn, a->what, NULL);
        a->done = true;
        fp_rpc_flush(a->rpc);
    } else {
        ask_for_states(a);
    }
}

static void up(struct fp_rpc_conn *conn, void *arg)
{
    struct ask *a = arg;
    Fp__JobHello h = FP__JOB_HELLO__INIT;
    struct fp_rpc_req req = {.type = FP__JOB_MSG__JOB_HELLO, .msg = &h.base, .timeout_ms = ANSWER_MS, .cb = said_hello, .arg = a};

    h.job = (char *)(uintptr_t)a->job;
    h.asks = true;
    if (fp_rpc_call(conn, &req, NULL))
        fp_rpc_conn_close(conn, -ENOTCONN);
}

static void closed(struct fp_rpc_conn *conn, int err, const char *why, void *arg)
{
    struct ask *a = arg;

    (void)conn;
    (void)why;
    if (!a->done)
        a->rc = err ? err : FP_EPEER_GONE;
    a->done = true;
    a->conn = NULL;
}

static const struct fp_rpc_handler handler = {.on_up = up, .on_closed = closed};

static int ask(const char *dir, const struct job_record *r, uint16_t what, struct job_states *states)
{
    struct ask a = {.job = r->job, .what = what, .states = states};
    struct fp_rpc_connect_opts how = {.timeout_ms = ANSWER_MS, .fresh_uuid = true};
    char path[PATH_MAX], why[FP_KEY_WHY_MAX];
    struct fp_rpc_opts o = {0};
    int rc = job_dir_file(path, dir, "key");

    rc = rc ? rc : fp_key_load(path, &a.key, why);
    if (rc)
        return rc;
    uv_loop_init(&a.loop);
    o.key = a.key;
    rc = fp_rpc_new(&a.loop, &o, &a.rpc);
    rc = rc ? rc : fp_rpc_connect(a.rpc, r->root, &how, &handler, &a, &a.conn);
    while (rc == 0 && !a.done)
        uv_run(&a.loop, UV_RUN_ONCE);
    rc = rc ? rc : a.rc;
    if (a.conn)
        fp_rpc_conn_finish(a.conn);
    for (uint64_t until = fp_now_ms() + 1500; a.conn && fp_now_ms() < until;)
        uv_run(&a.loop, UV_RUN_ONCE);
    if (a.rpc)
        fp_rpc_close(a.rpc, NULL, NULL);
    uv_run(&a.loop, UV_RUN_DEFAULT);
    uv_loop_close(&a.loop);
    fp_key_free(a.key);
    return rc;
}

int job_launch_ask(const char *dir, const struct job_record *r, struct job_states *out)
{
    int rc = job_states_init(out, r->nodes);

    rc = rc ? rc : ask(dir, r, FP__JOB_MSG__JOB_ASK, out);
    if (rc)
        job_states_fini(out);
    if (rc)
        FP_ERROR("the agent of the job's first node (%s) does not answer: %s", r->root, fp_strerror(rc));
    return rc;
}

/* Those that are ready have noted that they keep it. */
int job_launch_discard(const char *dir, const struct job_record *r)
{
    static const struct timespec pause = {0, 20000000};
    uint64_t until = fp_now_ms() + KNOW_MS;
    int rc = ask(dir, r, FP__JOB_MSG__JOB_DISCARD, NULL);
    unsigned left = 1;

    while (rc == 0 && left) {
        struct job_states s;

        rc = job_launch_ask(dir, r, &s);
        if (rc)
            break;
        left = s.of[FP__JOB_NODE_STATE__JOB_NODE_READY];
        job_states_fini(&s);
        if (left && fp_now_ms() >= until)
            rc = -ETIMEDOUT;
        else if (left)
            nanosleep(&pause, NULL);
    }
    if (rc)
        FP_WARN("not all nodes know that nothing of the store is needed any more (%s): on some it may stay", fp_strerror(rc));
    return rc;
}

/* The root ends when all below it have. 0; -ETIMEDOUT. */
static int wait_root(const char *dir, const struct job_record *r)
{
    static const struct timespec pause = {0, 200000000};
    uint64_t until = fp_now_ms() + END_MS;

    while (ask(dir, r, FP__JOB_MSG__JOB_STOP, NULL) == 0) {
        if (fp_now_ms() >= until)
            return -ETIMEDOUT;
        nanosleep(&pause, NULL);
    }
    return 0;
}

static void kill_all(const struct job_record *r)
{
    FP_WARN("not all agents have ended within %u s: they are killed", END_MS / 1000);
    if (r->step[0])
        job_slurm_signal(r->job, r->step, "KILL");
    if (!fp_proc_wait_gone(r->launcher, r->launcher_ticks, KILL_MS))
        (void)kill(r->launcher, SIGKILL);
}

/* The launcher ends when all agents have. One that was killed alone has not ended them: then the root still answers. */
int job_launch_end(const char *dir, const struct job_record *r, bool soon)
{
    bool gone = fp_proc_wait_gone(r->launcher, r->launcher_ticks, soon ? SOON_MS : 0), ended;
    int rc = ask(dir, r, FP__JOB_MSG__JOB_STOP, NULL);

    if (!gone && rc && fp_proc_runs(r->launcher, r->launcher_ticks)) {
        FP_WARN("the agent of the job's first node (%s) does not answer (%s): they are ended without it", r->root, fp_strerror(rc));
        if (r->step[0])
            job_slurm_signal(r->job, r->step, "TERM");
        else
            (void)kill(r->launcher, SIGTERM); /* the guard */
    }
    ended = gone || fp_proc_wait_gone(r->launcher, r->launcher_ticks, END_MS);
    if (ended && (rc || wait_root(dir, r) == 0))
        return 0;
    kill_all(r);
    return -ETIMEDOUT;
}
