/*
 * The link thread: starts the host, hears what it says, watches it, starts it again.
 *
 * One thread with poll(2) on both sockets and an eventfd; the only one that receives and that starts and ends the host. Others send by themselves
 * (aux_tx, non-blocking, under the lock): a thread switch less for each chunk. libuv's loop was not used: the core loop must not block, and
 * to end a host means to wait for it, because memory that it may still write must not be given to others.
 *
 * DOWN -> (needed, and restart_ms has come) -> STARTING: process, CONFIG for each aux-app that is not bypassed, START -> READY -> UP. From there and from
 * STARTING, every end (socket closed, deadline, memory, nonsense) leads to DOWN through host_over, which says whose fault it was. A first
 * start that fails is final: the user is there to read why.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/aux/events.h"
#include "client/aux/internal.h"
#include "client/aux/svc_file.h"
#include "client/data/pool.h"

#define QUICK_MS       1000u  /* a host that lived for less has failed to live */
#define PAUSE_MIN_MS   20u
#define PAUSE_MAX_MS   500u   /* with the start of a host less than a second */
#define ORPHANS_MS     1000
#define MESSAGES_A_TURN 256

void cl_aux_wake(struct cl_aux *a)
{
    uint64_t one = 1;

    if (write(a->wake_fd, &one, sizeof(one)) != sizeof(one))
        return; /* it is awake already */
}

int cl_aux_tx(struct cl_aux *a, const struct iovec *iov, int n)
{
    struct msghdr msg = { .msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n };
    ssize_t k;

    do {
        k = sendmsg(a->host->jobs_fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (k < 0 && errno == EINTR);
    if (k >= 0)
        return 0;
    if (errno == EMSGSIZE) {
        FP_ERROR("a message for fp-auxhost is too long for a socket of this system: raise net.core.wmem_max");
        return -EMSGSIZE;
    }
    a->tx_full = true; /* or broken: the link thread finds out */
    cl_aux_wake(a);
    return -EAGAIN;
}

bool cl_aux_needs_host(const struct cl_aux *a)
{
    for (uint32_t i = 0; i < a->napps; i++)
        if (!a->app[i].bypassed && !a->app[i].failed)
            return true;
    return a->nwaiting[AUX_IN] + a->nsent[AUX_IN] > 0;
}

static uint32_t wishes_of(uint8_t io_flags)
{
    if (!(io_flags & 0x80))
        return 0;
    return (io_flags & FP_AUX_WAIT ? AUX_WANTS_BEFORE : AUX_WANTS_AFTER) | (io_flags & FP_AUX_WANT_DATA ? AUX_WANTS_DATA : 0);
}

void cl_aux_refresh_wishes(struct cl_aux *a)
{
    uint32_t flags[FP_AUX_OP_COUNT] = { 0 };
    bool chunks = false, files = false, sets = false;

    a->anything_failed = false;
    for (uint32_t i = 0; i < a->napps; i++) {
        const struct aux_app *p = &a->app[i];

        if (p->failed)
            a->anything_failed = chunks = true; /* writes must come here to fail */
        for (uint32_t op = 0; p->failed && op < FP_AUX_OP_COUNT; op++)
            flags[op] |= wishes_of(p->info.io_flags[op]) & AUX_WANTS_BEFORE; /* and so must calls that it would be asked about */
        if (p->failed || p->bypassed)
            continue;
        chunks |= p->takes_chunks;
        files |= (p->info.has & FP_AUXW_HAS_FILE) != 0;
        sets |= (p->info.has & FP_AUXW_HAS_SET) != 0;
        for (uint32_t op = 0; op < FP_AUX_OP_COUNT; op++)
            flags[op] |= wishes_of(p->info.io_flags[op]);
    }
    atomic_store(&a->chunks, chunks);
    atomic_store(&a->wants_files, files);
    atomic_store(&a->wants_sets, sets);
    for (uint32_t op = 0; op < FP_AUX_OP_COUNT; op++)
        atomic_store(&a->io_flags[op], flags[op]);
}

/* -------------------------------------------------------------- start */

static void first_start_is_over(struct cl_aux *a, int err, const char *why)
{
    pthread_mutex_lock(&a->lock);
    if (!a->started) {
        a->started = true;
        a->start_error = err;
        snprintf(a->start_why, sizeof(a->start_why), "%s", why);
    }
    pthread_cond_broadcast(&a->cond);
    pthread_mutex_unlock(&a->lock);
}

static int send_config(struct cl_aux *a, uint32_t index)
{
    const struct aux_app *p = &a->app[index];
    uint32_t len = (uint32_t)strlen(p->decl.text);
    struct fp_auxw_config msg = { .h = { .type = FP_AUXW_CONFIG, .len_bytes = (uint32_t)sizeof(msg) + len }, .index = index };
    struct iovec iov[2] = { { &msg, sizeof(msg) }, { (void *)p->decl.text, len } };

    msg.required = p->decl.required ? FP_AUXW_CONFIG_REQUIRED : 0;
    if (p->bypassed || p->failed)
        msg.required |= FP_AUXW_CONFIG_BYPASSED; /* there to decode what it has coded */
    return cl_aux_tx(a, iov, 2);
}

static int send_start(struct cl_aux *a, uint32_t napps)
{
    const struct cl_options *opt = &a->m->opt;
    struct fp_auxw_start msg = { .h = { .type = FP_AUXW_START, .len_bytes = sizeof(msg) } };
    struct iovec iov = { &msg, sizeof(msg) };

    msg.pool_bytes = cl_pool_mapped_bytes(a->pool);
    msg.region_bytes = a->region_bytes;
    msg.memory_bytes = opt->aux_memory_bytes;
    msg.napps = napps;
    msg.decode_only = napps == 0;
    if (opt->cores_text)
        snprintf(msg.cores, sizeof(msg.cores), "%s", opt->cores_text);
    snprintf(msg.node, sizeof(msg.node), "%s", opt->node);
    snprintf(msg.plugin_dir, sizeof(msg.plugin_dir), "%s", a->plugin_dir);
    snprintf(msg.mountpoint, sizeof(msg.mountpoint), "%s", opt->mountpoint);
    return cl_aux_tx(a, &iov, 1);
}

/* lock held. */
static int introduce(struct cl_aux *a)
{
    int rc = 0;

    a->chain_sent = a->chain_wanted;
    for (uint32_t i = 0; i < a->napps && rc == 0; i++)
        rc = send_config(a, i);
    return rc == 0 ? send_start(a, a->napps) : rc;
}

static void fail_readers(struct cl_aux *a, int status)
{
    struct aux_call_list dead = TAILQ_HEAD_INITIALIZER(dead);

    pthread_mutex_lock(&a->lock);
    cl_aux_calls_drop(a, AUX_IN, &dead);
    pthread_mutex_unlock(&a->lock);
    cl_aux_calls_finish(a, &dead, status);
}

static void start_host(struct cl_aux *a)
{
    struct aux_host *h = NULL;
    char why[1200];
    int rc = cl_aux_spawn(a, &h, why, sizeof(why));

    if (rc < 0) {
        first_start_is_over(a, rc, why);
        FP_LOG_EVERY(10000, FP_LOG_ERROR, "%s", why);
        cl_aux_failed(a, -1, why);
        if (a->napps == 0)
            fail_readers(a, -EIO);
        pthread_mutex_lock(&a->lock);
        a->restart_ms = fp_now_ms() + PAUSE_MAX_MS;
        pthread_mutex_unlock(&a->lock);
        return;
    }
    pthread_mutex_lock(&a->lock);
    a->host = h;
    a->state = AUX_STARTING;
    a->tx_full = false;
    a->starting_until_ms = fp_now_ms() + AUX_START_MS;
    a->beat_ms = 0;
    (void)introduce(a); /* a host that is gone already is seen by poll */
    pthread_mutex_unlock(&a->lock);
}

/* -------------------------------------------------------------- end */

static uint32_t pause_ms(struct cl_aux *a, uint64_t lived_ms)
{
    uint32_t ms;

    if (lived_ms >= QUICK_MS) {
        a->quick_deaths = 0;
        return 0;
    }
    ms = a->quick_deaths < 6 ? PAUSE_MIN_MS << a->quick_deaths : PAUSE_MAX_MS;
    a->quick_deaths++;
    return ms < PAUSE_MAX_MS ? ms : PAUSE_MAX_MS;
}

/* The process has ended; what it had in hand waits for the next one, if there will be one. of_it: one of these may be what it died of. */
static void host_gone(struct cl_aux *a, bool of_it)
{
    struct aux_call_list dead = TAILQ_HEAD_INITIALIZER(dead);
    struct aux_host *h = a->host;

    pthread_mutex_lock(&a->lock);
    cl_aux_stats_fold(a, h->status);
    cl_aux_skip_end(a);
    a->state = AUX_DOWN;
    a->host = NULL;
    cl_aux_calls_lost(a, of_it);
    cl_aux_calls_drop_hopeless(a, &dead);
    if (!cl_aux_needs_host(a))
        cl_aux_chain_is_there(a);
    pthread_mutex_unlock(&a->lock);
    cl_aux_host_put(h);
    cl_aux_calls_finish(a, &dead, 0);
}

/* From here on nobody does its work. */
static void host_away(struct cl_aux *a)
{
    if (a->away_ms == 0)
        a->away_ms = fp_now_ms();
}

static void end_gently(struct cl_aux *a)
{
    host_away(a);
    (void)cl_aux_host_end(a, a->host, true);
    host_gone(a, false);
}

/* The host has ended or has to. why: NULL, then it is found out; app: whose fault, with why. */
static void host_over(struct cl_aux *a, const char *why, int app, bool gently)
{
    bool starting = a->state == AUX_STARTING;
    uint64_t started_ms = a->host->started_ms;
    char found[400], line[1100];
    bool killed = false; /* from outside */
    int status;

    host_away(a);
    status = cl_aux_host_end(a, a->host, gently);
    if (!why) {
        app = cl_aux_blame(a, status, found, sizeof(found));
        why = found;
        killed = app < 0 && WIFSIGNALED(status) && (WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGTERM);
    }
    host_gone(a, !killed);
    pthread_mutex_lock(&a->lock);
    for (uint32_t i = 0; i < a->napps; i++)
        a->app[i].restarts++;
    a->restart_ms = fp_now_ms() + pause_ms(a, fp_now_ms() - started_ms);
    pthread_mutex_unlock(&a->lock);
    if (!a->started) {
        if (app >= 0)
            snprintf(line, sizeof(line), "aux-app %s did not start: %s", a->app[app].decl.name, why);
        else
            snprintf(line, sizeof(line), "fp-auxhost did not start: %s", why);
        first_start_is_over(a, -EIO, line);
        a->culprit[0] = '\0';
        return;
    }
    if (starting && a->napps == 0)
        fail_readers(a, -EIO);
    cl_aux_failed(a, app, why);
}

/* -------------------------------------------------------------- what the host says */

static bool on_ready(struct cl_aux *a, const struct fp_auxw_ready *r)
{
    bool first;

    if (r->h.len_bytes != sizeof(*r) || r->abi != FP_AUX_ABI || a->state != AUX_STARTING)
        return false;
    pthread_mutex_lock(&a->lock);
    first = !a->started;
    for (uint32_t i = 0; i < a->napps && !cl_aux_chain_changes(a); i++)
        if (!a->app[i].bypassed && !a->app[i].failed)
            cl_aux_learn(&a->app[i], &r->app[i]);
    if (!cl_aux_chain_changes(a))
        cl_aux_chain_is_there(a);
    a->state = AUX_UP;
    a->progress_ms = fp_now_ms();
    cl_aux_refresh_wishes(a);
    cl_aux_changes_untold(a);
    pthread_mutex_unlock(&a->lock);
    first_start_is_over(a, 0, "");
    if (!first)
        FP_INFO("fp-auxhost runs again, %llu ms after the one before ended", (unsigned long long)(a->away_ms ? fp_now_ms() - a->away_ms : 0));
    a->away_ms = 0;
    cl_aux_calls_kick(a);
    return true;
}

/* The text of FAILED or LOG, printable. */
static void text_of(const uint8_t *buf, size_t head, uint32_t len, char *out, size_t size)
{
    size_t n = len > head ? len - head : 0;

    if (n > size - 1)
        n = size - 1;
    memcpy(out, buf + head, n);
    out[n] = '\0';
}

static void on_failed(struct cl_aux *a, const struct fp_auxw_failed *f)
{
    char text[1000];
    int app = f->app < a->napps ? (int)f->app : -1;

    text_of((const uint8_t *)f, sizeof(*f), f->h.len_bytes, text, sizeof(text));
    if (a->started) {
        host_over(a, text, app, true);
    } else {
        first_start_is_over(a, -EINVAL, text);
        end_gently(a);
    }
}

static void on_log(struct cl_aux *a, const struct fp_auxw_log *l)
{
    enum fp_log_level level = l->level <= FP_LOG_DEBUG ? (enum fp_log_level)l->level : FP_LOG_INFO;
    char text[1500];

    text_of((const uint8_t *)l, sizeof(*l), l->h.len_bytes, text, sizeof(text));
    if (l->app < a->napps)
        FP_LOG_AT(level, "aux-app %s: %s", cl_aux_app_name(&a->app[l->app]), text);
    else
        FP_LOG_AT(level, "fp-auxhost: %s", text);
}

/* False: nonsense. May end the host (a->host is NULL then). */
static bool on_job_message(struct cl_aux *a, const struct fp_auxw_head *h)
{
    struct aux_call *c;

    switch (h->type) {
    case FP_AUXW_READY:
        return on_ready(a, (const struct fp_auxw_ready *)h);
    case FP_AUXW_FAILED:
        if (h->len_bytes < sizeof(struct fp_auxw_failed))
            return false;
        on_failed(a, (const struct fp_auxw_failed *)h);
        return true;
    case FP_AUXW_LOG:
        if (h->len_bytes < sizeof(struct fp_auxw_log))
            return false;
        on_log(a, (const struct fp_auxw_log *)h);
        return true;
    case FP_AUXW_SKIP:
        if (h->len_bytes != sizeof(struct fp_auxw_skip))
            return false;
        cl_aux_skip_said(a, (const struct fp_auxw_skip *)h);
        return true;
    case FP_AUXW_DONE:
        if (h->len_bytes < sizeof(struct fp_auxw_done))
            return false;
        /* fallthrough */
    case FP_AUXW_CHUNK_OUT_DONE:
        c = cl_aux_call_take(a, h->id);
        if (c)
            c->done(a, c, h, 0);
        return true;
    default:
        return false;
    }
}

/* Takes what has come. 1: go on, 0: the socket has ended. */
static int drain(struct cl_aux *a, int fd, uint8_t *buf, bool services)
{
    for (int i = 0; i < MESSAGES_A_TURN && a->host; i++) {
        const struct fp_auxw_head *h = (const struct fp_auxw_head *)buf;
        ssize_t n = recv(fd, buf, FP_AUXW_MESSAGE_MAX_BYTES, MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 1;
        if (n <= 0)
            return 0;
        if ((size_t)n < sizeof(*h) || h->len_bytes != (size_t)n) {
            host_over(a, "it said what makes no sense", -1, false);
            return 1;
        }
        if (services)
            cl_aux_service(a, a->host, h);
        else if (!on_job_message(a, h))
            host_over(a, "it said what makes no sense", -1, false);
        if (a->nonsense && a->host) /* an answer that no good aux-app gives */
            host_over(a, "it gave up at its deadline, or gave an answer that makes no sense", a->nonsense_app, false);
        a->nonsense = false;
    }
    return 1;
}

/* -------------------------------------------------------------- the loop */

static bool is_stopping(struct cl_aux *a)
{
    bool s;

    pthread_mutex_lock(&a->lock);
    s = a->stopping;
    pthread_mutex_unlock(&a->lock);
    return s;
}

/* How long to sleep while there is no host; starts one when it is time. */
static int while_down(struct cl_aux *a)
{
    uint64_t now_ms = fp_now_ms(), at_ms;
    bool needed;

    pthread_mutex_lock(&a->lock);
    needed = !a->stopping && cl_aux_needs_host(a) && !(a->started && a->start_error);
    at_ms = a->restart_ms;
    pthread_mutex_unlock(&a->lock);
    if (!needed) {
        a->away_ms = 0;
        return a->norphans > 0 ? ORPHANS_MS : -1;
    }
    host_away(a);
    if (now_ms < at_ms)
        return (int)(at_ms - now_ms);
    start_host(a);
    return 0;
}

/* The chain has changed by hand: the host ends, which is not a failure of anybody. */
static bool chain_changes(struct cl_aux *a)
{
    bool changes;

    pthread_mutex_lock(&a->lock);
    changes = cl_aux_chain_changes(a);
    pthread_mutex_unlock(&a->lock);
    return changes;
}

static void look_after(struct cl_aux *a)
{
    uint64_t now_ms = fp_now_ms();
    char why[300];
    int app;

    cl_aux_own_files_tick(a, now_ms);
    if (cl_aux_watch(a, now_ms, &app, why, sizeof(why))) {
        host_over(a, why, app, false);
        return;
    }
    if (a->state == AUX_STARTING && now_ms >= a->starting_until_ms) {
        snprintf(why, sizeof(why), "it did not start within %u s", AUX_START_MS / 1000);
        host_over(a, why, cl_aux_blame(a, 0, (char[1]){ "" }, 1), false);
    }
}

/* The process is gone, all that it said has been read, and somebody holds its sockets open: a child. */
static bool has_ended(const struct cl_aux *a, const struct pollfd p[4])
{
    return p[3].revents && a->host && a->host->pid_fd == p[3].fd && !(p[1].revents & ~POLLOUT) && !p[2].revents;
}

static void one_turn(struct cl_aux *a, uint8_t *buf, uint64_t *looked_ms)
{
    struct pollfd p[4] = { { .fd = a->wake_fd, .events = POLLIN }, { .fd = -1, .events = POLLIN }, { .fd = -1, .events = POLLIN },
                   { .fd = -1, .events = POLLIN } };
    int timeout_ms = a->host ? cl_aux_watch_interval_ms(a) : while_down(a);
    uint64_t count;

    if (a->norphans > 0)
        cl_aux_orphans_reap(a);
    if (a->host) {
        p[1].fd = a->host->jobs_fd;
        p[2].fd = a->host->services_fd;
        p[3].fd = a->host->pid_fd;
        pthread_mutex_lock(&a->lock);
        if (a->tx_full)
            p[1].events |= POLLOUT;
        pthread_mutex_unlock(&a->lock);
    }
    (void)poll(p, 4, timeout_ms);
    if (p[0].revents && read(a->wake_fd, &count, sizeof(count)) < 0)
        return;
    if (p[1].revents & POLLOUT) {
        pthread_mutex_lock(&a->lock);
        a->tx_full = false;
        pthread_mutex_unlock(&a->lock);
        cl_aux_calls_kick(a);
    }
    if (a->host && chain_changes(a))
        end_gently(a);
    if (p[2].revents && a->host)
        (void)drain(a, p[2].fd, buf, true);
    if ((p[1].revents & ~POLLOUT) && a->host && drain(a, p[1].fd, buf, false) == 0 && a->host)
        host_over(a, NULL, -1, false);
    if (has_ended(a, p))
        host_over(a, NULL, -1, false);
    if (a->host && fp_now_ms() - *looked_ms >= (uint64_t)(timeout_ms > 0 ? timeout_ms : 0)) {
        *looked_ms = fp_now_ms();
        look_after(a);
    }
}

/* To the service cores: each chunk wakes this thread, which elsewhere takes 5 % of a core from the application, and is woken there at twice the cost. */
static void leave_application_alone(const struct cl_aux *a)
{
    const struct cl_options *opt = &a->m->opt;
    int rc = opt->ncores > 0 ? pthread_setaffinity_np(pthread_self(), sizeof(opt->cores), &opt->cores) : 0;

    if (rc != 0)
        FP_WARN("the thread that serves fp-auxhost can't be pinned to --cores: %s", strerror(rc));
}

static void *link_thread(void *arg)
{
    struct cl_aux *a = arg;
    uint8_t *buf = malloc(FP_AUXW_MESSAGE_MAX_BYTES);
    uint64_t looked_ms = 0;

    pthread_setname_np(pthread_self(), "aux-link");
    leave_application_alone(a);
    if (!buf)
        first_start_is_over(a, -ENOMEM, "out of memory");
    while (buf && !is_stopping(a))
        one_turn(a, buf, &looked_ms);
    if (a->host)
        end_gently(a);
    free(buf);
    return NULL;
}

int cl_aux_link_start(struct cl_aux *a)
{
    int rc;

    a->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (a->wake_fd < 0)
        return -errno;
    rc = -pthread_create(&a->link_thread, NULL, link_thread, a);
    a->link_runs = rc == 0;
    return rc;
}

void cl_aux_link_stop(struct cl_aux *a)
{
    struct aux_call_list dead = TAILQ_HEAD_INITIALIZER(dead);

    pthread_mutex_lock(&a->lock);
    a->stopping = true;
    pthread_mutex_unlock(&a->lock);
    if (a->link_runs) {
        cl_aux_wake(a);
        pthread_join(a->link_thread, NULL);
    }
    pthread_mutex_lock(&a->lock);
    for (int k = 0; k < AUX_KINDS; k++)
        cl_aux_calls_drop(a, (enum aux_kind)k, &dead);
    pthread_mutex_unlock(&a->lock);
    cl_aux_calls_finish(a, &dead, FP_ESTOPPING);
}
