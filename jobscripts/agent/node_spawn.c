/*
 * Agents that this agent starts, where the launcher is ssh (see node.h): those right below it in the tree, which start theirs in turn.
 *
 * An ssh that ends before a word of its agent came is the reason why that node is not ready; one that ends later changes nothing, since agents live by the
 * tree. At the end the agent waits for them: only then has everybody below cleaned up, and who waits for us may say so.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fp/err.h"
#include "fp/log.h"
#include "jobscripts/cores/cpus.h"
#include "jobscripts/launch/launcher.h"
#include "jobscripts/agent/node.h"

#define LAST_MS   15000u /* in which those below end after us */
#define COMING_MS 4000u  /* in which an agent comes that was started when the end began */

struct node_spawn {
    struct node *n;
    uint32_t rank;
    uv_process_t process;
    uv_pipe_t in, err;
    uv_write_t write;
    unsigned open; /* handles */
    size_t len;
    char line[400]; /* the last one that it printed */
};

struct node_spawns {
    struct node_spawn *list;
    uint32_t n, running;
    uv_timer_t last;
    bool ends;
};

/* ---------------------------------------------------------------- one */

static void is_closed(uv_handle_t *h)
{
    struct node_spawn *s = h->data;
    struct node_spawns *all = s->n->spawns;

    if (--s->open)
        return;
    all->running--;
    if (all->ends && !all->running && !uv_is_closing((uv_handle_t *)&all->last))
        uv_close((uv_handle_t *)&all->last, NULL);
}

static void shut(uv_handle_t *h)
{
    if (!uv_is_closing(h))
        uv_close(h, is_closed);
}

static void no_word(struct node_spawn *s, int code)
{
    char text[JOB_TEXT_BYTES_MAX];

    s->line[s->len] = '\0';
    s->line[strcspn(s->line, "\r\n")] = '\0';
    snprintf(text, sizeof text, "no agent could be started by ssh (exit code %d): %s", code, s->line[0] ? s->line : "it says no reason");
    FP_ERROR("%s: %s", s->n->plan.nodes[s->rank], text);
    node_tree_say_of(s->n, s->rank, FP__JOB_NODE_STATE__JOB_NODE_FAILED, text);
}

static void has_ended(uv_process_t *p, int64_t status, int sig)
{
    struct node_spawn *s = p->data;

    if (s->n->states.nodes && s->n->states.nodes[s->rank].state == FP__JOB_NODE_STATE__JOB_NODE_NONE && s->n->phase < NODE_STOPPING)
        no_word(s, sig ? 128 + sig : (int)status);
    shut((uv_handle_t *)p);
    shut((uv_handle_t *)&s->in);
}

static void room(uv_handle_t *h, size_t suggested, uv_buf_t *buf)
{
    struct node_spawn *s = h->data;

    (void)suggested;
    if (s->len + 1 >= sizeof s->line)
        s->len = 0;
    *buf = uv_buf_init(s->line + s->len, (unsigned)(sizeof s->line - 1 - s->len));
}

/* Passed on to our own, where all lines of all agents come together; of the last one the beginning is kept. */
static void on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *buf)
{
    struct node_spawn *s = stream->data;
    char *end, *next;

    if (got < 0) {
        shut((uv_handle_t *)stream);
        return;
    }
    (void)!write(STDERR_FILENO, buf->base, (size_t)got);
    s->len += (size_t)got;
    s->line[s->len] = '\0';
    while ((end = strchr(s->line, '\n')) && end[1]) { /* another line behind it */
        next = end + 1;
        s->len -= (size_t)(next - s->line);
        memmove(s->line, next, s->len + 1);
    }
}

static void written(uv_write_t *w, int status)
{
    struct node_spawn *s = w->data;

    (void)status; /* an agent that does not get it says so */
    shut((uv_handle_t *)&s->in);
}

static int start(struct node_spawn *s, const char *self)
{
    static struct job_words words;
    int rc = job_launcher_ssh(s->n->plan.nodes[s->rank], s->rank, self, &words);
    uv_stdio_container_t io[3] = {{.flags = UV_CREATE_PIPE | UV_READABLE_PIPE, .data.stream = (uv_stream_t *)&s->in},
                                  {.flags = UV_IGNORE},
                                  {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&s->err}};
    uv_process_options_t o = {.exit_cb = has_ended, .file = words.argv[0], .args = (char **)(uintptr_t)words.argv, .stdio = io, .stdio_count = 3};
    uv_buf_t buf = uv_buf_init(s->n->plan_text, (unsigned)strlen(s->n->plan_text));

    if (rc)
        return rc;
    uv_pipe_init(&s->n->loop, &s->in, 0);
    uv_pipe_init(&s->n->loop, &s->err, 0);
    s->process.data = s->in.data = s->err.data = s->write.data = s;
    s->open = 3;
    s->n->spawns->running++;
    rc = uv_spawn(&s->n->loop, &s->process, &o);
    if (rc) {
        shut((uv_handle_t *)&s->process);
        shut((uv_handle_t *)&s->in);
        shut((uv_handle_t *)&s->err);
        return rc;
    }
    (void)uv_read_start((uv_stream_t *)&s->err, room, on_read);
    return uv_write(&s->write, (uv_stream_t *)&s->in, &buf, 1, written);
}

/* ---------------------------------------------------------------- all */

void node_spawn_below(struct node *n)
{
    uint64_t first = (uint64_t)n->rank * n->plan.fanout + 1;
    struct node_spawns *all;
    char self[PATH_MAX];
    ssize_t k = readlink("/proc/self/exe", self, sizeof self - 1);

    if (!n->plan.tree || first >= n->plan.nnodes)
        return;
    self[k > 0 ? k : 0] = '\0';
    all = n->spawns = calloc(1, sizeof *all);
    if (all)
        all->list = calloc(n->plan.fanout, sizeof *all->list);
    if (!all || !all->list)
        abort(); /* at the start alone */
    for (; all->n < n->plan.fanout && first + all->n < n->plan.nnodes; all->n++) {
        struct node_spawn *s = &all->list[all->n];
        int rc;

        s->n = n;
        s->rank = (uint32_t)(first + all->n);
        rc = start(s, self);
        if (rc) {
            snprintf(s->line, sizeof s->line, "%s", fp_strerror(rc));
            s->len = strlen(s->line);
            no_word(s, 127);
        }
    }
}

void node_spawn_confine(const struct node *n)
{
    const struct node_spawns *all = n->spawns;

    for (uint32_t i = 0; all && i < all->n; i++)
        if (all->list[i].open && !uv_is_closing((const uv_handle_t *)&all->list[i].process))
            (void)job_cpus_confine_all(all->list[i].process.pid, n->map.service);
}

/* While the store ends: an agent that is still on its way is told so when it comes, which is soon or never. */
bool node_spawn_settled(struct node *n, uint64_t now_ms)
{
    struct node_spawns *all = n->spawns;
    bool settled = true;

    for (uint32_t i = 0; all && i < all->n; i++) {
        struct node_spawn *s = &all->list[i];

        if (!s->open || uv_is_closing((uv_handle_t *)&s->process) || n->states.nodes[s->rank].state != FP__JOB_NODE_STATE__JOB_NODE_NONE)
            continue;
        settled = false;
        if (now_ms - n->stop_at_ms >= COMING_MS)
            (void)uv_process_kill(&s->process, SIGTERM);
    }
    return settled;
}

static void too_late(uv_timer_t *t)
{
    struct node_spawns *all = t->data;

    for (uint32_t i = 0; i < all->n; i++)
        if (all->list[i].open && !uv_is_closing((uv_handle_t *)&all->list[i].process))
            (void)uv_process_kill(&all->list[i].process, SIGKILL);
    uv_close((uv_handle_t *)t, NULL);
}

void node_spawn_end(struct node *n)
{
    struct node_spawns *all = n->spawns;

    if (!all || !all->running)
        return;
    all->ends = true;
    uv_timer_init(&n->loop, &all->last);
    all->last.data = all;
    uv_timer_start(&all->last, too_late, LAST_MS, 0);
}

void node_spawn_fini(struct node *n)
{
    if (n->spawns)
        free(n->spawns->list);
    free(n->spawns);
    n->spawns = NULL;
}
