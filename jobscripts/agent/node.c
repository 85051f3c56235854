/*
 * fp-job node: the agent of one node, from its start to the end of the job (see node.h).
 *
 * Started by fp-job start on every node of the job, by srun or what else starts processes there, and told by its standard input what to do. The root starts the
 * manager, and tells those below where it is; each starts its benefactor and its mount at the same time, says that they are ready, and starts again what
 * crashes. It ends when it is told to, by the tree, by a signal, or by the store: fpctl stop ends mounts, benefactors and the manager in this order on all
 * nodes, and an agent all of whose programs have ended so has nothing left to do.
 *
 * A failure is told upwards and does not end the agent: who started the job decides, and others are not disturbed by one node.
 */
#include "jobscripts/agent/node.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fp/addr.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/jobsignals.h"
#include "fp/key.h"
#include "fp/log.h"
#include "jobscripts/launch/hosts.h"
#include "jobscripts/job.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/agent/left.h"
#include "jobscripts/launch/outside.h"
#include "jobscripts/launch/shared.h"
#include "jobscripts/launch/slurm.h"

#define TICK_MS     20u
#define BELOW_MS    15000u /* how long the root waits for the others before it ends the manager */
#define HURRY_MS    2500u
#define TERM_RECENT_MS 10000u /* ago, and SIGKILL may come next */
#define TERM_MS     5000u
#define MOUNT_MS    6000u
#define PLAN_MS     60000u

static void fail(struct node *n, const char *why)
{
    char text[JOB_TEXT_BYTES_MAX];

    snprintf(text, sizeof text, "%.590s", why);
    FP_ERROR("%s: %s", n->plan.nodes[n->rank], text);
    n->failed = true;
    node_tree_say(n, FP__JOB_NODE_STATE__JOB_NODE_FAILED, text);
}

static bool any_runs(const struct node *n)
{
    return n->service[NODE_MANAGER].running || n->service[NODE_BENEFACTOR].running || n->service[NODE_MOUNT].running;
}

/* ---------------------------------------------------------------- starting */

static void start_service(struct node *n, enum node_role role)
{
    char why[JOB_TEXT_BYTES_MAX] = "";

    if (!n->failed && node_store_start(n, role, why, sizeof why))
        fail(n, why);
}

static void start_services(struct node *n)
{
    if (!n->to_start || !n->plugins_known || n->failed || n->phase != NODE_STARTING)
        return;
    n->to_start = false;
    start_service(n, NODE_MOUNT); /* first: some of its aux-apps must be known to the benefactor */
    start_service(n, NODE_BENEFACTOR);
}

static void hear_plugins(struct node *n)
{
    char why[JOB_TEXT_BYTES_MAX] = "";
    int rc = n->plugins_known || n->failed || n->phase >= NODE_STOPPING ? -EALREADY : node_ask_hear(n, why, sizeof why);

    if (rc == -EAGAIN || rc == -EALREADY)
        return;
    n->plugins_known = rc == 0;
    if (rc)
        fail(n, why);
    start_services(n);
}

void node_go(struct node *n, const char *manager, const char *mount)
{
    char why[JOB_TEXT_BYTES_MAX] = "";

    if (n->phase != NODE_WAITING)
        return;
    n->phase = NODE_STARTING;
    snprintf(n->manager, sizeof n->manager, "%s", manager);
    snprintf(n->mount, sizeof n->mount, "%s", mount);
    node_tree_go(n);
    if (!n->failed && node_mount_take(n, why, sizeof why))
        fail(n, why);
    if (n->failed)
        return;
    node_tree_say(n, FP__JOB_NODE_STATE__JOB_NODE_STARTING, "");
    n->to_start = true;
    start_services(n);
}

/* The root, when its manager is there and all know where they can mount. */
static void try_to_go(struct node *n)
{
    char mount[PATH_MAX];

    if (n->phase == NODE_WAITING && n->listens[0] && node_mount_decide(n, mount))
        node_go(n, n->listens, mount);
}

static void say_up(struct node *n)
{
    bool noted = !n->named || (n->noted && !n->discarded);
    char text[JOB_TEXT_BYTES_MAX];

    job_kept_with_hint(text, sizeof text, n->others, n->hint);
    node_tree_say(n, noted ? FP__JOB_NODE_STATE__JOB_NODE_READY : FP__JOB_NODE_STATE__JOB_NODE_UP, noted ? text : "");
}

static void on_ready(struct job_service *s, const char *line, void *arg)
{
    struct node *n = arg;
    const char *colon = strrchr(line, ':');

    if (n->phase >= NODE_STOPPING)
        return;
    if (s == &n->service[NODE_MANAGER] && n->phase == NODE_WAITING && colon) {
        free(n->args[NODE_MANAGER][NODE_LISTEN_AT]); /* --listen: started again, it is where it was */
        if (asprintf(&n->args[NODE_MANAGER][NODE_LISTEN_AT], "--listen=%s%s", fp_addr_any(), colon) < 0)
            abort();
        s->argv[NODE_LISTEN_AT] = n->args[NODE_MANAGER][NODE_LISTEN_AT];
        snprintf(n->listens, sizeof n->listens, "%s%s", n->plan.nodes[0], colon);
        try_to_go(n);
    }
    if (n->failed || !n->service[NODE_BENEFACTOR].is_ready || !n->service[NODE_MOUNT].is_ready)
        return;
    n->phase = NODE_UP;
    say_up(n);
}

/* ---------------------------------------------------------------- a store that outlives the job */

/*
 * Noted when all are up, and not by each node when it is: a job of more nodes than the store has, one of which can't be started, would leave a store that is on
 * that node, too, and that no job without it gets. By the root first, which has the names: what others keep without it is of no use. Nobody is ready before
 * it has noted that, since what is written then would be removed at the end.
 */
void node_note(struct node *n)
{
    char why[JOB_TEXT_BYTES_MAX];
    int rc;

    if (!n->named || n->all_up || n->phase >= NODE_STOPPING)
        return;
    n->all_up = true;
    rc = n->failed ? -EIO : node_store_keep(n);
    if (n->rank || rc == 0)
        node_tree_tell(n, FP__JOB_MSG__JOB_NOTE);
    if (rc && !n->failed) {
        snprintf(why, sizeof why, "%.400s: that this store outlives the job can't be noted: %s", n->data, fp_strerror(rc));
        fail(n, why);
    } else if (n->phase == NODE_UP)
        say_up(n);
}

void node_discard(struct node *n)
{
    if (!n->named || n->declared.store.persistent || n->discarded)
        return;
    n->discarded = true;
    node_store_discard(n);
    node_tree_tell(n, FP__JOB_MSG__JOB_DISCARD);
    if (n->phase == NODE_UP && !n->failed)
        say_up(n);
}

/* The root, of whose nodes some may have failed since they were up: then the start fails, or has ended long ago. */
static void try_to_note(struct node *n)
{
    if (n->rank == 0 && n->named && !n->all_up && n->states.of[FP__JOB_NODE_STATE__JOB_NODE_UP] == n->states.n)
        node_note(n);
}

/* ---------------------------------------------------------------- ending */

static void over(struct node *n)
{
    n->phase = NODE_OVER;
    node_tree_say(n, FP__JOB_NODE_STATE__JOB_NODE_ENDED, "");
    node_tree_end(n);
    uv_timer_stop(&n->tick);
    uv_close((uv_handle_t *)&n->tick, NULL);
    node_signals_end(n);
    node_store_clean(n);
    node_spawn_end(n);
    if (n->rpc)
        fp_rpc_close(n->rpc, NULL, NULL);
}

/* One after the other: the mount writes to benefactors, both talk to the manager. The root's manager ends when no agent is below it any more. */
static void stop_step(struct node *n, uint64_t now_ms)
{
    uint64_t below_ms = n->hurry ? HURRY_MS : BELOW_MS;
    bool gone = node_spawn_settled(n, now_ms) && node_tree_all_ended(n);
    bool others = n->rank == 0 && !gone && now_ms - n->stop_at_ms < below_ms;

    if (n->service[NODE_MOUNT].running)
        job_service_stop(&n->service[NODE_MOUNT], now_ms);
    else if (n->service[NODE_BENEFACTOR].running)
        job_service_stop(&n->service[NODE_BENEFACTOR], now_ms);
    else if (n->service[NODE_MANAGER].running && !others)
        job_service_stop(&n->service[NODE_MANAGER], now_ms);
    else if (!any_runs(n) && (gone || now_ms - n->stop_at_ms >= below_ms))
        over(n);
}

void node_stop(struct node *n)
{
    if (n->phase >= NODE_STOPPING)
        return;
    n->phase = NODE_STOPPING;
    n->stop_at_ms = fp_now_ms();
    n->hurry = n->last_term_ms && n->stop_at_ms - n->last_term_ms < TERM_RECENT_MS;
    for (int i = 0; i < NODE_ROLES; i++)
        n->service[i].hurry = n->hurry;
    node_tree_stop(n);
}

/* ---------------------------------------------------------------- services that end by themselves */

static void on_ended(struct job_service *s, int code, const char *why, void *arg)
{
    struct node *n = arg;
    bool was_up = n->phase == NODE_UP;

    if (n->phase >= NODE_STOPPING)
        return;
    if (code == 0 && was_up) { /* by fpctl stop; a mount that somebody takes away is not 0, and is mounted again */
        if (!any_runs(n) || s == &n->service[NODE_MANAGER])
            node_stop(n);
        return;
    }
    if (was_up && s->starts <= NODE_RESTARTS) {
        FP_WARN("%s: %s: it is started again", n->plan.nodes[n->rank], why);
        node_tree_say(n, FP__JOB_NODE_STATE__JOB_NODE_STARTING, why);
        if (job_service_start(s) == 0) {
            node_store_note(n);
            return;
        }
    }
    fail(n, why);
}

static void on_tick(uv_timer_t *t)
{
    struct node *n = t->data;
    uint64_t now_ms = fp_now_ms();

    node_tree_tick(n, now_ms);
    hear_plugins(n);
    try_to_go(n);
    try_to_note(n);
    node_signal_tick(n, now_ms);
    for (int i = 0; i < NODE_ROLES; i++)
        job_service_tick(&n->service[i], now_ms);
    if (n->phase == NODE_STOPPING)
        stop_step(n, now_ms);
}

/* ---------------------------------------------------------------- start-up */

/* Standard input to its end, which comes soon or never. */
static char *read_plan(void)
{
    uint64_t until = fp_now_ms() + PLAN_MS;
    size_t n = 0, room = 1u << 16;
    char *text = malloc(room);

    while (text) {
        uint64_t now = fp_now_ms();
        struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
        ssize_t got = 0;

        if (now >= until || n >= JOB_PLAN_BYTES_MAX)
            break;
        if (poll(&p, 1, (int)(until - now)) <= 0)
            continue;
        if (room - n < 4096) {
            char *more = realloc(text, room *= 2); /* what it leaves behind of the key is in our memory alone */

            if (!more)
                break;
            text = more;
        }
        got = read(STDIN_FILENO, text + n, room - n - 1);
        if (got == 0) {
            text[n] = '\0';
            return text;
        }
        n += got > 0 ? (size_t)got : 0;
    }
    free(text);
    return NULL;
}

/* A plan for many nodes does not name them. */
static int name_nodes(struct job_plan *p)
{
    struct job_alloc a;
    int rc;

    if (p->nodes)
        return 0;
    memset(&a, 0, sizeof a);
    rc = job_slurm_look(&a);
    if (rc)
        return rc;
    p->nodes = a.nodes;
    if (a.nnodes == p->nnodes)
        return 0;
    FP_ERROR("the store is for %u nodes, and on this one Slurm says that the job has %u", p->nnodes, a.nnodes);
    p->nnodes = a.nnodes; /* to be freed */
    return -ENOENT;
}

/* Which of the nodes this is: as the launcher says. */
static int find_rank(const struct job_options *o, struct node *n)
{
    static const char *const variables[] = {"SLURMD_NODENAME", "FP_JOB_NODE", NULL};
    char host[256] = "";
    int64_t self = o->rank >= 0 && o->rank < n->plan.nnodes ? o->rank : -ENOENT;

    for (size_t v = 0; self < 0 && variables[v]; v++) {
        const char *name = getenv(variables[v]);

        for (uint32_t i = 0; name && self < 0 && i < n->plan.nnodes; i++)
            if (strcmp(name, n->plan.nodes[i]) == 0)
                self = i;
    }
    if (self < 0)
        self = job_hosts_self(n->plan.nodes, n->plan.nnodes);
    if (self >= 0) {
        n->rank = (uint32_t)self;
        return 0;
    }
    (void)gethostname(host, sizeof host - 1);
    FP_ERROR("%s is none of the job's nodes, as they were told", host);
    return -ENOENT;
}

/* Of a launcher that brings no environment along: where we are, and variables that have no value here. */
static void take_environment(const struct job_plan *p)
{
    if (!p->guarded)
        return;
    if (chdir(p->cwd) < 0)
        FP_WARN("%s: %s: relative paths are those of %s", p->cwd, fp_strerror(-errno), getenv("HOME") ? getenv("HOME") : "/");
    for (uint32_t i = 0; i < p->nvariables; i++) {
        char *name = p->variables[i], *eq = strchr(name, '=');

        *eq = '\0';
        (void)setenv(name, eq + 1, 0);
        *eq = '=';
    }
}

/* Whoever starts the job hears of it when the node is ready. */
static void look_at_others(struct node *n, const char *ssd)
{
    struct job_kept *list = calloc(JOB_KEPT_MAX, sizeof *list);
    char own[JOB_NAME_BYTES];

    job_named_name(&n->declared.store, n->plan.job, own);
    if (list)
        job_kept_write(list, job_kept_look(ssd, own, list), n->others, sizeof n->others);
    free(list);
}

/* What the key is read from where it can't be written: the plan's text is wiped. */
static int key_in_memory(struct node *n, const char *text)
{
    char path[64], why[FP_KEY_WHY_MAX];
    int fd = memfd_create("key", MFD_CLOEXEC), rc = fd < 0 ? -errno : 0;

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (rc == 0 && (fchmod(fd, 0600) < 0 || write(fd, text, strlen(text)) < 0))
        rc = -errno;
    rc = rc ? rc : fp_key_load(path, &n->key, why);
    if (fd >= 0)
        close(fd);
    return rc;
}

/*
 * The job's directory here. Without it nothing can be started, and that is told by the tree as all failures are: who waits for this node would else wait as long
 * as for one that is slow, since a launcher that has lost one of its agents does not end.
 */
static int take_dir(struct node *n)
{
    char key[66];
    int rc = job_dir_begin(n->dir, n->plan.job);

    snprintf(key, sizeof key, "%s\n", n->plan.key);
    if (rc == 0 && (rc = job_dir_write(n->dir, "key", key, 0600)))
        (void)job_dir_remove(n->dir);
    if (rc) {
        snprintf(n->unable, sizeof n->unable, "%.400s: %s", n->dir, fp_strerror(rc));
        rc = key_in_memory(n, key);
    }
    explicit_bzero(key, sizeof key);
    explicit_bzero(n->plan.key, sizeof n->plan.key);
    if (rc)
        FP_ERROR("%s: %s (%s)", n->plan.nodes[n->rank], n->unable, fp_strerror(rc));
    return rc;
}

static int read_all(const struct job_options *o, struct node *n)
{
    struct job_script script;
    char ssd[PATH_MAX], *text = o->front ? job_plan_from_environment() : read_plan();
    int rc = text ? job_plan_read(text, &n->plan) : -EBADMSG;

    if (text && rc == 0 && n->plan.tree)
        n->plan_text = text;
    else if (text) {
        explicit_bzero(text, strlen(text));
        free(text);
    }
    if (rc) {
        FP_ERROR("what it was told is no plan of a job: fp-job node is started by fp-job start");
        return rc;
    }
    rc = name_nodes(&n->plan);
    rc = rc ? rc : find_rank(o, n);
    if (rc)
        return rc;
    if (o->front)
        n->front_pid = node_front();
    take_environment(&n->plan);
    job_findings_init(&n->findings);
    job_script_parse(n->plan.lines, &script, &n->findings);
    job_declared_make(&script, &n->declared, &n->findings);
    job_dir_path(n->dir, n->plan.job);
    rc = node_store_ssd(n, ssd);
    (void)job_left_sweep(rc == 0 ? ssd : NULL);
    (void)job_left_unmount_dead();
    if (rc == 0)
        look_at_others(n, ssd);
    return take_dir(n);
}

static void init_loop(struct node *n)
{
    static const struct job_service_calls calls = {.ready = on_ready, .ended = on_ended};

    uv_loop_init(&n->loop);
    uv_timer_init(&n->loop, &n->tick);
    n->tick.data = n;
    uv_timer_start(&n->tick, on_tick, 0, TICK_MS);
    node_signals(n);
    for (int i = 0; i < NODE_ROLES; i++)
        n->service[i] = (struct job_service){.loop = &n->loop, .calls = &calls, .arg = n, .term_ms = i == NODE_MOUNT ? MOUNT_MS : TERM_MS, .twice = i == NODE_MOUNT};
}

/* What is on the SSD of a node without it could never be drained. */
static int look_at_target(const struct node *n, char *why, size_t size)
{
    const char *path = n->plan.shared;
    int rc = path[0] ? job_shared_look(path) : 0, len = rc ? (int)(strrchr(path, '/') - path) : 0;

    if (rc == -ENOENT || rc == -ENOTDIR)
        snprintf(why, size, "%.*s is not the directory that it is on the first node: #FP auxapp drain needs one on a file system that all nodes share", len, path);
    else if (rc)
        snprintf(why, size, "%.*s, which #FP auxapp drain is to drain to: %s", len, path, rc == -ETIMEDOUT ? "its file system does not answer" : fp_strerror(rc));
    return rc;
}

static void begin(struct node *n)
{
    char why[JOB_TEXT_BYTES_MAX] = "";

    if (n->unable[0]) {
        fail(n, n->unable);
        return;
    }
    node_store_note(n);
    node_tree_say(n, FP__JOB_NODE_STATE__JOB_NODE_STARTING, "");
    if (n->findings.errors)
        fail(n, "the #FP lines have mistakes: see fp-job check");
    else if (node_ask_begin(n, why, sizeof why))
        fail(n, why);
    else if (node_store_prepare(n, why, sizeof why))
        fail(n, why);
    else if (n->rank == 0)
        start_service(n, NODE_MANAGER);
    if (!n->failed && (look_at_target(n, why, sizeof why) || node_mount_look(n, why, sizeof why)))
        fail(n, why);
}

int job_cmd_node(const struct job_options *o)
{
    const char *job = getenv("SLURM_JOB_ID");
    static struct node n;
    bool is_agent = true;
    int rc;

    (void)signal(SIGPIPE, SIG_IGN); /* who reads our errors may be gone */
    fp_job_signals_ignore(false);    /* so does the process above the agent */
    if (job && job_outside_waits(job))
        return job_outside_run(job);
    rc = read_all(o, &n);
    rc = rc || n.unable[0] ? rc : node_watch(&n, &is_agent);
    if (rc || !is_agent)
        return rc;
    n.time_fd = -1;
    if (!n.unable[0])
        node_time_fork(&n);
    init_loop(&n);
    rc = node_tree_start(&n);
    if (rc)
        return rc; /* the process ends, and with it its step's task: srun says so */
    node_spawn_below(&n); /* first: they have the longer way */
    begin(&n);
    uv_run(&n.loop, UV_RUN_DEFAULT);
    uv_loop_close(&n.loop);
    fp_key_free(n.key);
    job_states_fini(&n.states);
    free(n.children);
    free(n.asks);
    node_spawn_fini(&n);
    if (n.plan_text)
        explicit_bzero(n.plan_text, strlen(n.plan_text));
    free(n.plan_text);
    job_declared_fini(&n.declared);
    job_findings_fini(&n.findings);
    job_plan_fini(&n.plan);
    return 0;
}
