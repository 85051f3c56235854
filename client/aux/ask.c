/*
 * Calls of applications that aux-apps are asked about before they are carried out (FP_AUX_WAIT). On FUSE threads.
 *
 * Who declared an aux-app `required` wants no call to go past it: without an answer the call fails. Of all others no answer means that the call goes on, since
 * an aux-app that is broken must not break applications. No answer is all that is not one of its own: the deadline is over, it gave up, the host died of it
 * again and again, it is not running. So that a mistake there is never taken for a refusal, only DONE with the aux-app's number counts.
 *
 * The wait is by progress, as for chunks: an aux-app is asked one at a time, and with 32 threads in front, each within its deadline, nobody has failed.
 */
#include <errno.h>

#include "client/aux/event.h"
#include "client/aux/events.h"

#define LOOK_MS 100u                   /* for a signal */

static const char *const names[FP_AUX_OP_COUNT] = {
    "lookup", "getattr", "setattr", "truncate", "readlink", "mknod", "mkdir", "unlink", "rmdir", "symlink", "rename", "link", "open",
    "create", "read", "write", "flush", "release", "fsync", "opendir", "readdir", "releasedir", "fsyncdir", "statfs", "setxattr",
    "getxattr", "listxattr", "removexattr", "fallocate", "lseek", "copy_file_range", "ioctl",
};

void cl_aux_answered(struct cl_aux *a, struct aux_event *e, const struct fp_auxw_done *d)
{
    bool gave_up = d->status == -ECANCELED || d->status == -ETIMEDOUT;

    a->app[e->app].asked_ms = fp_now_ms();
    e->answered = d->status >= 0 || (d->app == e->app && !gave_up && d->status > -4096); /* the host names nobody where all is well */
    if (!gave_up || e->left || d->app != e->app)
        return;
    a->nonsense = true; /* as if it had not come back: it counts as a failure */
    a->nonsense_app = (int)e->app;
}

/* lock held: till when an answer may come, as things are now. */
static uint64_t until_ms(const struct aux_app *p, uint64_t from_ms)
{
    uint64_t deadline_ms = p->deadline_ms ? p->deadline_ms : p->decl.deadline_ms ? p->decl.deadline_ms : CL_AUX_IO_DEADLINE_MS;

    return (p->asked_ms > from_ms ? p->asked_ms : from_ms) + deadline_ms + AUX_ASK_MORE_MS;
}

/* lock held. Nobody waits any more: it is not sent again, and its callback is told. */
static void leave(struct cl_aux *a, struct aux_event *e)
{
    struct fp_auxw_done cancel = { .h = { .type = FP_AUXW_CANCEL, .len_bytes = sizeof(cancel), .id = e->call.id } };
    struct iovec iov = { &cancel, sizeof(cancel) };

    e->left = true;
    if (e->call.sent && a->state == AUX_UP)
        (void)cl_aux_tx(a, &iov, 1); /* else it ends by its deadline */
}

/* lock held; true: a signal has come for who waits. */
static bool await(struct cl_aux *a, struct aux_event *e, bool (*interrupted)(void *arg), void *arg)
{
    const struct aux_app *p = &a->app[e->app];
    uint64_t from_ms = fp_now_ms(), now_ms = from_ms;

    while (!e->finished && now_ms < until_ms(p, from_ms)) {
        uint64_t next_ms = interrupted ? now_ms + LOOK_MS : until_ms(p, from_ms);
        struct timespec ts = { .tv_sec = (time_t)(next_ms / 1000), .tv_nsec = (long)(next_ms % 1000) * 1000000 };

        (void)pthread_cond_timedwait(&a->cond, &a->lock, &ts);
        now_ms = fp_now_ms();
        if (!e->finished && interrupted && now_ms - from_ms >= AUX_ASK_INTR_MS && interrupted(arg))
            return true;
    }
    return false;
}

static int without_answer(const struct aux_app *p, bool required, uint32_t op)
{
    if (required)
        FP_LOG_EVERY(1000, FP_LOG_ERROR, "aux-app %s is required and gives no answer to %s: it fails with EIO", cl_aux_app_name(p), names[op]);
    else
        FP_LOG_EVERY(1000, FP_LOG_WARN, "aux-app %s gives no answer to %s, which goes on without", cl_aux_app_name(p), names[op]);
    return required ? -EIO : 0;
}

static int ask(struct cl_aux *a, struct aux_event *e, uint32_t op, bool (*interrupted)(void *arg), void *arg)
{
    const struct aux_app *p = &a->app[e->app];
    bool signal, answered, required;
    int rc;

    e->users = 2;
    cl_aux_call_submit(a, &e->call);
    pthread_mutex_lock(&a->lock);
    signal = await(a, e, interrupted, arg);
    if (!e->finished)
        leave(a, e);
    answered = e->answered;
    required = p->required && !p->bypassed;
    rc = e->status < 0 ? cl_aux_refusal(e->status) : 0;
    cl_aux_event_put(a, e);
    pthread_mutex_unlock(&a->lock);
    if (signal)
        return -EINTR;
    return answered ? rc : without_answer(p, required, op);
}

/* The flags of an aux-app that is asked before; 0: it is not. failed: it would be, and is required. */
static uint8_t flags_of(struct cl_aux *a, const struct aux_app *p, uint32_t op, bool *failed)
{
    uint8_t flags;

    pthread_mutex_lock(&a->lock);
    flags = p->bypassed ? 0 : p->info.io_flags[op];
    *failed = p->failed;
    pthread_mutex_unlock(&a->lock);
    return (flags & AUX_SUBSCRIBED) && (flags & FP_AUX_WAIT) ? flags : 0;
}

int cl_aux_events_before(struct cl_aux *a, const struct fp_aux_io *io, bool (*interrupted)(void *arg), void *arg)
{
    int rc = 0;

    for (uint32_t i = 0; i < a->napps && rc == 0; i++) {
        struct aux_event *e;
        bool failed;
        uint8_t flags = flags_of(a, &a->app[i], io->op, &failed);

        if (!flags)
            continue;
        e = failed ? NULL : cl_aux_io_event(io, i, flags);
        if (e)
            rc = ask(a, e, io->op, interrupted, arg);
        else
            rc = failed ? without_answer(&a->app[i], true, io->op) : -ENOMEM;
    }
    return rc;
}
