/*
 * Starting the agents of a job (see launch.h).
 *
 * The batch system starts them, in a step that lasts as long as the job; its program (srun) stays behind in a session of its own when we end, and is ended by
 * the batch system with the job, whatever happens to us. The root connects to us as if we were above it, so what it knows of the nodes comes by the
 * way that it has everywhere in the tree. Once all are ready it is told that we go; if we are gone without that, it ends what was started.
 *
 * Where no batch system keeps agents (launcher.c), and for fp-job run, all of this is done by a process that stays with them (guard.c): the root is not told
 * that we go, and ends the store when it loses us.
 *
 * Waiting for output of srun was rejected: its order is anybody's, and a node's message would have to be told from what a site's prolog prints.
 */
#include "jobscripts/launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fp/addr.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/key.h"
#include "fp/log.h"
#include "fp/procs.h"
#include "fp/rpc.h"
#include "job.pb-c.h"
#include "jobscripts/agent/kept.h"
#include "jobscripts/cores/coremap.h"
#include "jobscripts/cores/cpus.h"
#include "jobscripts/launch/guard.h"
#include "jobscripts/launch/hosts.h"
#include "jobscripts/launch/launcher.h"
#include "jobscripts/launch/plan.h"
#include "jobscripts/launch/refused.h"
#include "jobscripts/script/script.h"
#include "jobscripts/start.h"
#include "jobscripts/launch/stays.h"
#include "jobscripts/launch/variables.h"

#define MORE_MS    300u   /* after the first failure: others that have failed for the same reason */
#define TICK_MS    20u
#define END_MS     20000u /* in which agents end by themselves */
#define ALONE_MS   8000u  /* in which the root comes, if it ever does */
#define LOOK_MS    200u
#define KNOW_MS    5000u
#define SHEPHERDS  8u     /* children of an srun: it has one */
#define LINES_MAX  12u
#define SAID_BYTES 4096u  /* of a launcher that has ended, in which it says why */
#define AGAIN_MS   500u   /* between two of them */
#define SHOWN_MAX  8u     /* reasons why nodes are not ready */

struct starter {
    const struct job_launch *l;
    uv_loop_t loop;
    struct fp_key *key;
    struct fp_rpc *rpc;
    struct fp_rpc_listener *listener;
    struct fp_rpc_conn *root; /* a reference */
    struct job_states states;
    struct job_record *record;
    uv_timer_t tick;
    uv_process_t launcher;
    uv_pipe_t input;
    uv_write_t write;
    char *plan;
    const struct job_stay *stay; /* NULL: we go when all are ready */
    bool launched, gone, over, left;
    bool heard;          /* the root has come, if only once */
    bool writing;        /* the plan to the launcher: input and write are in use */
    bool refused;        /* the launcher has ended, and another one may have more luck */
    bool recorded;
    bool telling, told; /* the root that we go; it knows */
    int gone_code;
    uint64_t until_ms, failed_ms, look_ms, gone_ms;
    struct job_ran ran;
};

/* ---------------------------------------------------------------- the root */

static bool runs_the_same(pid_t a, pid_t b)
{
    char of_a[64], of_b[64];
    struct stat x, y;

    snprintf(of_a, sizeof of_a, "/proc/%d/exe", (int)a);
    snprintf(of_b, sizeof of_b, "/proc/%d/exe", (int)b);
    return stat(of_a, &x) == 0 && stat(of_b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/*
 * srun has a child that does nothing but kill the whole step, at once, when srun is gone without a word (_shepherd_spawn of Slurm's srun_job.c). When a batch
 * script has ended, Slurm kills what it has left in the order of their numbers, so that one is often quick enough, and the agents would be killed before they
 * have cleared up anything. They live by the tree, and hear of the job's end from Slurm itself. What a site's plugin has started in srun is not ours to end.
 */
static void kill_shepherd(const struct starter *s)
{
    pid_t child[SHEPHERDS];
    size_t n = s->l->alloc->launcher->kept && s->launched && !s->gone ? fp_proc_children(s->launcher.pid, child, SHEPHERDS) : 0;

    for (size_t i = 0; i < n; i++)
        if (runs_the_same(child[i], s->launcher.pid))
            (void)kill(child[i], SIGKILL);
}

static void leave_root(struct starter *s)
{
    struct fp_rpc_conn *old = s->root;

    s->root = NULL;
    if (old) {
        fp_rpc_conn_close(old, 0);
        fp_rpc_conn_put(old);
    }
}

static void root_hello(struct starter *s, struct fp_rpc_conn *conn, const struct fp_rpc_in *in)
{
    Fp__JobHello *h = fp__job_hello__unpack(NULL, in->msg_len_bytes, in->msg);
    Fp__JobHelloReply reply = FP__JOB_HELLO_REPLY__INIT;
    int rc = !h || s->root == conn || h->rank != 0 || h->asks || strcmp(h->job, s->l->alloc->job) != 0 ? -EINVAL : 0;

    if (rc == 0) {
        leave_root(s); /* it has lost an older connection, and we don't know yet */
        s->root = fp_rpc_conn_get(conn);
        s->heard = true;
        job_states_back(&s->states, 0);
        kill_shepherd(s);
        snprintf(s->record->root, sizeof s->record->root, "%.255s:%u", s->l->alloc->nodes[0], h->port);
        snprintf(s->record->step, sizeof s->record->step, "%s", s->l->alloc->launcher->kept ? h->step : "");
    }
    reply.nodes = s->l->alloc->nnodes;
    (void)fp_rpc_reply_msg(conn, in, rc, rc ? NULL : &reply.base);
    if (h)
        fp__job_hello__free_unpacked(h, NULL);
}

static void root_says(struct fp_rpc_conn *conn, const struct fp_rpc_in *in, void *arg)
{
    struct starter *s = arg;
    Fp__JobStates *m;

    fp_rpc_payload_free(in->payload);
    if (in->type == FP__JOB_MSG__JOB_HELLO) {
        root_hello(s, conn, in);
        return;
    }
    m = in->type == FP__JOB_MSG__JOB_STATES && conn == s->root ? fp__job_states__unpack(NULL, in->msg_len_bytes, in->msg) : NULL;
    for (size_t i = 0; m && i < m->n_runs; i++)
        (void)job_states_set(&s->states, m->runs[i]->first, m->runs[i]->count, (int)m->runs[i]->state, m->runs[i]->text);
    if (m) {
        snprintf(s->record->manager, sizeof s->record->manager, "%s", m->manager);
        snprintf(s->record->mount, sizeof s->record->mount, "%s", m->mount);
        if (snprintf(s->record->application, sizeof s->record->application, "%s", m->application) >= (int)sizeof s->record->application)
            s->record->application[0] = '\0'; /* a part of it would be other CPUs */
        s->record->inside = m->inside;
        snprintf(s->record->elsewhere, sizeof s->record->elsewhere, "%s", m->elsewhere);
        fp__job_states__free_unpacked(m, NULL);
    }
}

static void root_closed(struct fp_rpc_conn *conn, int err, const char *why, void *arg)
{
    struct starter *s = arg;

    (void)err;
    (void)why;
    if (s->root == conn) {
        fp_rpc_conn_put(conn);
        s->root = NULL;
        job_states_miss(&s->states, 0, s->ran.ms);
    }
}

static const struct fp_rpc_handler of_root = {.on_request = root_says, .on_closed = root_closed};

/* ---------------------------------------------------------------- starting */

/* It has ended, since Slurm does not have a step for it at this moment. */
static bool refused_for_now(const struct starter *s)
{
    char path[PATH_MAX], said[SAID_BYTES];
    int fd = s->l->alloc->launcher->kept && !s->heard && job_dir_file(path, s->l->dir, "agents.log") == 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t n = fd < 0 ? 0 : read(fd, said, sizeof said - 1);

    if (fd >= 0)
        close(fd);
    said[n > 0 ? n : 0] = '\0';
    return job_refused_for_now(said);
}

static void launcher_closed(uv_handle_t *h)
{
    struct starter *s = h->data;

    s->gone = true;
    s->gone_ms = fp_now_ms();
    s->refused = refused_for_now(s);
}

static void launcher_ended(uv_process_t *p, int64_t status, int sig)
{
    struct starter *s = p->data;

    s->gone_code = sig ? 128 + sig : (int)status;
    uv_close((uv_handle_t *)p, launcher_closed);
}

static void input_closed(uv_handle_t *h)
{
    ((struct starter *)h->data)->writing = false;
}

static void written(uv_write_t *w, int status)
{
    struct starter *s = w->data;

    (void)status; /* who does not get it says so */
    explicit_bzero(s->plan, strlen(s->plan));
    if (!uv_is_closing((uv_handle_t *)&s->input)) /* else it is of done(): the launcher is gone, and has left somebody who does not read */
        uv_close((uv_handle_t *)&s->input, input_closed);
}

/* Those that a batch system starts are in the right directory without us. */
static void find_cwd(const struct starter *s, char cwd[PATH_MAX])
{
    if (s->l->alloc->launcher->kept || !getcwd(cwd, PATH_MAX))
        strcpy(cwd, "/");
}

/* 0, or negative and logged. */
static int make_plan(struct starter *s)
{
    char cwd[PATH_MAX] = "/";
    struct job_plan p = {.job = (char *)(uintptr_t)s->l->alloc->job, .auxapp_dir = (char *)(uintptr_t)s->l->auxapp_dir, .nodes = s->l->alloc->launcher->named ? NULL : s->l->alloc->nodes,
                         .nnodes = s->l->alloc->nnodes, .fanout = s->l->alloc->fanout, .port = job_plan_port(), .lines = job_script_lines(s->l->lines),
                         .guarded = !s->l->alloc->launcher->kept, .tree = s->l->alloc->launcher->tree, .cwd = cwd, .naming = (char *)(uintptr_t)s->l->naming, .shared = (char *)(uintptr_t)s->l->shared, .entered = s->l->entered};
    const uint8_t *key = fp_key_bytes(s->key);
    const char *strange;
    char starter[300];

    for (int i = 0; i < FP_KEY_BYTES; i++)
        snprintf(p.key + 2 * i, 3, "%02x", key[i]);
    snprintf(starter, sizeof starter, "%s:%u", s->l->alloc->here, fp_rpc_listener_port(s->listener));
    p.starter = starter;
    find_cwd(s, cwd);
    job_variables_of(s->l->lines, &p.variables, &p.nvariables);
    strange = job_plan_strange(&p);
    s->plan = strange ? NULL : job_plan_write(&p);
    explicit_bzero(p.key, sizeof p.key);
    free(p.lines);
    for (uint32_t i = 0; i < p.nvariables; i++)
        free(p.variables[i]);
    free(p.variables);
    if (strange)
        FP_ERROR("the name of %s is no UTF-8, and the agents of other nodes can't be told: call fp-job from a directory, and with paths, whose names are", strange);
    else if (!s->plan)
        FP_ERROR("%s: %s", s->l->dir, fp_strerror(-ENOMEM));
    return s->plan ? 0 : strange ? -EILSEQ : -ENOMEM;
}

static bool may_stay(const char *name, size_t len)
{
    static const char *const beginnings[] = {"SLURM_JOB", "SLURM_ARRAY", "SLURM_HET", "SLURM_CLUSTER", "SLURM_CONF", "SLURM_SUBMIT", "SLURM_NODE", "SLURM_TASKS_PER_NODE", "SLURM_TMPDIR",
                                             "SLURM_TOPOLOGY", "SLURM_WORKING", "SLURM_RESTART", "SLURM_JWT", "SLURM_SACK", "SLURM_TIME_FORMAT", NULL};

    for (const char *const *b = beginnings; *b; b++)
        if (len >= strlen(*b) && memcmp(name, *b, strlen(*b)) == 0)
            return true;
    return false;
}

/* All but what says which job it is: each release of srun has some more that change what it does. */
void job_launch_environment(void)
{
    char name[128];

    for (char **e = environ; *e;) {
        size_t len = strcspn(*e, "=");

        if (len < sizeof name && (strncmp(*e, "SLURM_", 6) == 0 || strncmp(*e, "SLURMD_DEBUG=", 13) == 0) && !may_stay(*e, len)) {
            snprintf(name, sizeof name, "%.*s", (int)len, *e);
            (void)unsetenv(name);
            e = environ; /* others have moved */
        } else {
            e++;
        }
    }
}

static int open_log(const struct starter *s)
{
    char path[PATH_MAX];
    int rc = job_dir_file(path, s->l->dir, "agents.log"), fd = rc ? -1 : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);

    return rc ? rc : fd < 0 ? -errno : fd;
}

/* Our environment and what others have open are not for the one that stays. */
static int spawn_launcher(struct starter *s, const uv_process_options_t *o)
{
    static struct job_stays stays;
    int rc;

    job_stays_begin(&stays);
    job_launch_environment();
    rc = uv_spawn(&s->loop, &s->launcher, o);
    job_stays_end(&stays);
    return rc;
}

/* A text that has the key. */
static void forget(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

static int run_launcher(struct starter *s)
{
    static struct job_words words;
    char self[PATH_MAX];
    ssize_t k = readlink("/proc/self/exe", self, sizeof self - 1);
    int log, rc;

    self[k > 0 ? k : 0] = '\0';
    if (k > 0 && s->l->alloc->launcher->variables && (rc = job_plan_to_environment(s->plan))) {
        FP_ERROR("%u nodes are too many for --launcher=%s (%s): take ssh", s->l->alloc->nnodes, s->l->alloc->launcher->name, fp_strerror(rc));
        return rc;
    }
    rc = k > 0 ? s->l->alloc->launcher->launch(s->l->alloc, s->l->dir, self, &words) : -errno;
    if (rc)
        return rc;
    log = open_log(s);
    if (log < 0) {
        FP_ERROR("%s: %s", s->l->dir, fp_strerror(log));
        return log;
    }
    uv_stdio_container_t io[3] = {{.flags = UV_CREATE_PIPE | UV_READABLE_PIPE, .data.stream = (uv_stream_t *)&s->input},
                                  {.flags = UV_INHERIT_FD, .data.fd = log},
                                  {.flags = UV_INHERIT_FD, .data.fd = log}};
    uv_process_options_t o = {
        .exit_cb = launcher_ended, .file = words.argv[0], .args = (char **)(uintptr_t)words.argv, .stdio = io, .stdio_count = 3, .flags = UV_PROCESS_DETACHED};

    uv_pipe_init(&s->loop, &s->input, 0);
    s->input.data = s->write.data = s->launcher.data = s;
    rc = spawn_launcher(s, &o);
    close(log);
    s->launched = true;
    if (rc) {
        uv_close((uv_handle_t *)&s->launcher, NULL);
        uv_close((uv_handle_t *)&s->input, NULL);
        FP_ERROR("%s can't be started: %s", words.argv[0], fp_strerror(rc));
        return rc;
    }
    s->record->launcher = s->stay ? getpid() : s->launcher.pid;
    s->record->launcher_ticks = fp_proc_ticks(s->record->launcher);
    (void)job_guard_launcher(s->l->dir, s->record->launcher); /* for the next start, if this one is killed before there is a record */
    uv_buf_t buf = uv_buf_init(s->plan, s->l->alloc->launcher->variables ? 0 : (unsigned)strlen(s->plan));

    if (s->l->alloc->launcher->variables)
        forget(job_plan_from_environment()); /* it has its own copy */

    s->writing = true;
    return uv_write(&s->write, (uv_stream_t *)&s->input, &buf, 1, written);
}

/* Slurm had no step for the one before. */
static bool run_launcher_again(struct starter *s)
{
    free(s->plan);
    s->gone = s->launched = false;
    s->gone = make_plan(s) || run_launcher(s) != 0;
    return !s->gone;
}

/* ---------------------------------------------------------------- waiting */

/* The root, too, since it is to be told that we go. */
static bool all_ready(const struct starter *s)
{
    return s->states.of[FP__JOB_NODE_STATE__JOB_NODE_READY] == s->states.n && s->root;
}

static void on_tick(uv_timer_t *t)
{
    struct starter *s = t->data;
    uint64_t now = fp_now_ms();
    uint32_t failed;

    (void)job_states_give_up(&s->states, job_ran_tick(&s->ran, now), JOB_GONE);
    failed = s->states.of[FP__JOB_NODE_STATE__JOB_NODE_FAILED];
    s->failed_ms = !failed ? 0 : s->failed_ms ? s->failed_ms : now; /* one that was missed may come again */
    if (s->stay && now >= s->look_ms) {
        s->look_ms = now + LOOK_MS;
        s->left = s->left || s->stay->over(s->stay->arg);
    }
    s->over = s->over || (failed && now - s->failed_ms >= MORE_MS) || now >= s->until_ms || (s->gone && !s->refused) || s->left || job_interrupted();
    if (!s->over && s->gone && !s->writing && now - s->gone_ms >= AGAIN_MS)
        s->over = !run_launcher_again(s);
}

static const char *not_yet(int state)
{
    static const char *const texts[] = {"no word from its agent", "its services are not ready", "", "", "its agent has ended", "it waits for the other nodes", "it waits for the other nodes", "it waits for the other nodes"};

    return texts[state];
}

/* What the launcher and agents have said, which is lost with the job's directory: the first lines, since what comes later follows from them. */
static void tell_log(const struct starter *s, const char *head, bool always)
{
    char path[PATH_MAX], line[400];
    FILE *f = job_dir_file(path, s->l->dir, "agents.log") == 0 ? fopen(path, "re") : NULL;
    bool any = f && fgets(line, sizeof line, f);

    if (always || any)
        FP_ERROR("%s%s", head, any ? ":" : "");
    for (unsigned i = 0; any && i < LINES_MAX; i++) {
        fprintf(stderr, "%s%s", line, strchr(line, '\n') ? "" : "\n");
        any = fgets(line, sizeof line, f);
    }
    if (f)
        fclose(f);
}

static void tell_launcher(const struct starter *s)
{
    char text[128];

    snprintf(text, sizeof text, "%s has ended with exit code %d", s->l->alloc->launcher->name, s->gone_code);
    tell_log(s, text, true);
}

/* Nodes whose services run. */
static uint32_t up(const struct starter *s)
{
    return s->states.of[FP__JOB_NODE_STATE__JOB_NODE_READY] + s->states.of[FP__JOB_NODE_STATE__JOB_NODE_UP];
}

/* Is it to be said of this node why not all are ready? Not of those that only wait for others. */
static bool to_tell(const struct starter *s, const struct job_node *n)
{
    if (n->state == FP__JOB_NODE_STATE__JOB_NODE_READY || (n->state == FP__JOB_NODE_STATE__JOB_NODE_UP && up(s) != s->states.n))
        return false;
    return n->state == FP__JOB_NODE_STATE__JOB_NODE_FAILED || !s->states.of[FP__JOB_NODE_STATE__JOB_NODE_FAILED];
}

/* Each reason once, however many nodes have it. */
static void tell_nodes(const struct starter *s)
{
    uint32_t *ranks = calloc(s->states.n, sizeof *ranks), n, more = 0;
    bool *told = calloc(s->states.n, sizeof *told);
    char names[JOB_HOSTLIST_BYTES];
    const struct job_node *of;

    for (uint32_t i = 0; told && i < s->states.n; i++)
        told[i] = !to_tell(s, &s->states.nodes[i]);
    for (unsigned shown = 0; told && ranks && shown < SHOWN_MAX && (n = job_states_alike(&s->states, told, ranks, &of)); shown++)
        FP_ERROR("%s %s not ready: %s", job_hostlist_write(s->l->alloc->nodes, ranks, n, names, sizeof names), n == 1 ? "is" : "are",
                 of->state == FP__JOB_NODE_STATE__JOB_NODE_FAILED ? of->text : not_yet(of->state));
    for (uint32_t i = 0; told && i < s->states.n; i++)
        more += !told[i];
    if (more)
        FP_ERROR("and %u other node%s, for other reasons", more, more == 1 ? "" : "s");
    free(told);
    free(ranks);
}

/* What nodes that are ready have found, each once. */
static void tell_hints(const struct starter *s)
{
    uint32_t *ranks = calloc(s->states.n, sizeof *ranks), n;
    bool *told = calloc(s->states.n, sizeof *told);
    char names[JOB_HOSTLIST_BYTES];
    const struct job_node *of;

    for (uint32_t i = 0; told && i < s->states.n; i++)
        told[i] = !job_kept_hint(s->states.nodes[i].text)[0];
    for (unsigned shown = 0; told && ranks && shown < SHOWN_MAX && (n = job_states_alike(&s->states, told, ranks, &of)); shown++)
        FP_WARN("%s: %s", job_hostlist_write(s->l->alloc->nodes, ranks, n, names, sizeof names), job_kept_hint(of->text));
    free(told);
    free(ranks);
}

static void tell_why(struct starter *s)
{
    if (s->gone)
        tell_launcher(s);
    if (job_interrupted())
        FP_ERROR("interrupted: ending what was started");
    tell_nodes(s);
    if (!s->gone && s->states.of[FP__JOB_NODE_STATE__JOB_NODE_NONE])
        tell_log(s, "what agents and their launcher have said", false);
    if (!s->gone && !s->states.of[FP__JOB_NODE_STATE__JOB_NODE_FAILED] && !job_interrupted())
        FP_ERROR("%u of %u nodes were ready within %llu s (ready= of #FP store)", up(s), s->states.n, (unsigned long long)(s->l->ready_ms / 1000));
}

/*
 * Ends what was started. By the tree, once the root has come: SIGTERM makes srun kill the agents at once, with all that they have begun left behind, so
 * that is for agents that never come. What nobody has written to is not kept (on-failure=keep); of what an application had, only its own end may say so.
 */
static void end_all(struct starter *s, bool unused)
{
    uint64_t now = fp_now_ms(), until = now + END_MS, alone = now + ALONE_MS;
    bool told = false, termed = false;

    while ((!s->gone || s->root) && fp_now_ms() < until) {
        if (s->root && !told)
            told = (!unused || fp_rpc_send(s->root, FP__JOB_MSG__JOB_DISCARD, NULL) == 0) && fp_rpc_send(s->root, FP__JOB_MSG__JOB_STOP, NULL) == 0;
        if (!told && !termed && !s->gone && fp_now_ms() >= alone)
            termed = uv_process_kill(&s->launcher, SIGTERM) == 0;
        uv_run(&s->loop, UV_RUN_ONCE);
    }
    if (!s->gone)
        (void)uv_process_kill(&s->launcher, SIGKILL);
}

static void root_knows(void *arg, int status, const struct fp_rpc_in *in)
{
    struct starter *s = arg;

    if (in)
        fp_rpc_payload_free(in->payload);
    s->telling = false;
    s->told = status == 0;
}

/* All are ready, and the root knows that we go: without that word it would end the store. Its connection may just be broken, and it comes again. */
static bool settled(struct starter *s)
{
    struct fp_rpc_req req = {.type = FP__JOB_MSG__JOB_KEEP, .timeout_ms = KNOW_MS, .cb = root_knows, .arg = s};

    if (!all_ready(s) || s->stay || s->told)
        return all_ready(s);
    if (!s->recorded) { /* first: killed behind that word, we would leave a store that nobody finds; whether it can be written our caller looks, who adds to it */
        s->recorded = true;
        (void)job_record_save(s->l->dir, s->record);
    }
    if (!s->telling)
        s->telling = fp_rpc_call(s->root, &req, NULL) == 0;
    return false;
}

static int wait_all(struct starter *s)
{
    int rc = 0;

    s->until_ms = fp_now_ms() + s->l->ready_ms;
    while (!s->over && !settled(s))
        uv_run(&s->loop, UV_RUN_ONCE);
    if (!settled(s))
        rc = s->gone ? -ECHILD : s->left || job_interrupted() ? -EINTR : -ETIMEDOUT;
    if (rc)
        tell_why(s);
    else {
        job_kept_tell(&s->states, s->l->ssd);
        tell_hints(s);
    }
    if (rc && s->launched)
        end_all(s, true);
    return rc;
}

/* The application is to have its cores for itself: we, if we stay, and the launcher run beside the services, if those have cores of their own. */
static void leave_cores(const struct starter *s)
{
    char others[JOB_CPULIST_BYTES];

    if (!s->l->alloc->first || !s->record->application[0] || job_cpus_others(s->record->application, others, sizeof others))
        return;
    if (s->launched && !s->gone)
        (void)job_cpus_confine_all(s->launcher.pid, others);
    if (s->stay)
        (void)job_cpus_confine_all(getpid(), others);
}

/* Until all have ended, or are to. A launcher that is gone alone is no reason: agents live by the tree; nor is a root that is missed. */
static int stay(struct starter *s)
{
    bool unheard = s->stay->begun(s->record, s->stay->arg) != 0; /* nobody is there to start anything */

    s->left = unheard;
    while (!s->left && (s->root || !s->gone || s->states.missed))
        uv_run(&s->loop, UV_RUN_ONCE);
    if (s->left)
        end_all(s, unheard);
    return s->left ? -EINTR : 0;
}

static int prepare(struct starter *s)
{
    char path[PATH_MAX], why[FP_KEY_WHY_MAX], addr[FP_ADDR_BUF];
    struct fp_rpc_opts o = {0};
    int rc = job_dir_file(path, s->l->dir, "key");

    snprintf(addr, sizeof addr, "%s:0", fp_addr_any());
    (void)unlink(path);
    rc = rc ? rc : fp_key_generate(&s->key);
    rc = rc ? rc : fp_key_write(s->key, path, why);
    o.key = s->key;
    rc = rc ? rc : fp_rpc_new(&s->loop, &o, &s->rpc);
    rc = rc ? rc : fp_rpc_listen(s->rpc, addr, &of_root, s, &s->listener);
    rc = rc ? rc : job_states_init(&s->states, s->l->alloc->nnodes);
    if (rc)
        FP_ERROR("%s: %s", s->l->dir, fp_strerror(rc));
    return rc ? rc : make_plan(s);
}

static void done(struct starter *s)
{
    if (s->listener)
        fp_rpc_listener_close(s->listener);
    if (s->root)
        fp_rpc_conn_finish(s->root);
    uv_close((uv_handle_t *)&s->tick, NULL);
    if (s->launched && !s->gone && !uv_is_closing((uv_handle_t *)&s->launcher))
        uv_close((uv_handle_t *)&s->launcher, NULL); /* it stays, and nobody waits for it any more */
    if (s->launched && !uv_is_closing((uv_handle_t *)&s->input))
        uv_close((uv_handle_t *)&s->input, NULL);
    for (uint64_t until = fp_now_ms() + 1500; s->root && fp_now_ms() < until;)
        uv_run(&s->loop, UV_RUN_ONCE);
    if (s->rpc)
        fp_rpc_close(s->rpc, NULL, NULL);
    uv_run(&s->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&s->loop);
    job_states_fini(&s->states);
    fp_key_free(s->key);
    free(s->plan);
}

int job_launch_and_stay(const struct job_launch *l, const struct job_stay *how, struct job_record *out)
{
    static struct starter s;
    int rc;

    (void)signal(SIGPIPE, SIG_IGN); /* a launcher that ends before it has read everything */
    memset(out, 0, sizeof *out);
    memset(&s, 0, sizeof s);
    s.l = l;
    s.stay = how;
    s.record = out;
    snprintf(out->job, sizeof out->job, "%s", l->alloc->job);
    out->nodes = l->alloc->nnodes;
    uv_loop_init(&s.loop);
    uv_timer_init(&s.loop, &s.tick);
    s.tick.data = &s;
    uv_timer_start(&s.tick, on_tick, TICK_MS, TICK_MS);
    rc = prepare(&s);
    rc = rc ? rc : run_launcher(&s);
    rc = rc ? rc : wait_all(&s);
    if (rc == 0)
        leave_cores(&s);
    rc = rc || !how ? rc : stay(&s);
    done(&s);
    return rc;
}

int job_launch(const struct job_launch *l, struct job_record *out)
{
    return l->alloc->launcher->kept && !l->stays ? job_launch_and_stay(l, NULL, out) : job_guard_launch(l, out);
}
