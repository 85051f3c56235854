/*
 * Locks of this mount's programs: see locks.h.
 *
 * A request is answered at once or queued by the manager; then MSG_LOCK_GRANT is its end. Programs are answered from done(), on the core
 * loop. FUSE threads add requests and ask what is held; all else happens on the core loop, which knows the order of the manager's answers.
 *
 *   ASKED --queued--> QUEUED --granted--> end
 *     |                 | `--interrupted--> CANCELLED --the manager says so--> end
 *     |                 `--connection lost--> LOST --connected again--> ASKED
 *     `--answer--> end
 *
 * A program that is interrupted, or does not want to wait for a manager that is away, is told before the manager's answer comes (told). What that
 * answer gives is then given back, unless its owner holds something of the file anyway: to give back a range would take what it had before. It then
 * has more than it knows of until it unlocks or closes, which is the lesser evil.
 *
 * What is held is remembered by file, kind and owner, not by range: enough to know what a close gives back, and what to tell the manager
 * when it was away. An owner leaves the table before its last unlock is sent. So if that is never heard, the next hello does not name it, and
 * it is free. One that the manager refuses (its disk is full) is owed, and sent again each second: no program would do it any more. Who asks for that owner meanwhile
 * waits for that, and is told the same if it is refused again.
 */
#include "client/locks.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#include "client/append.h"
#include "client/client.h"
#include "client/core.h"
#include "client/data.h"
#include "client/lockwork.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "fp/log.h"

#define BUCKETS   256u
#define OWED_MS   1000u /* from one try to the next */
#define CANCEL_MS 1000u /* an answer to it that comes within this time is worth waiting for */

struct held {
    struct held *next;
    uint64_t ino, owner;
    Fp__LockKind kind;
    const struct cl_handle *h;
};

/* A last unlock that was refused. The manager's, until its owner is granted something that was asked for after it, or the next hello. */
struct owed {
    struct owed *next;
    struct cl_mount *m;
    uint64_t ino, owner;
    Fp__LockKind kind;
    bool sent; /* it waits for the answer, and who asks for that owner waits for this */
};

TAILQ_HEAD(ops, cl_lock_op);

struct cl_locks {
    pthread_mutex_t lock; /* a leaf: protects all of this */
    struct ops ops;
    struct held *bucket[BUCKETS];
    size_t nheld;
    uint64_t ticket;
    struct owed *owed;
    uint64_t owed_ms; /* core loop: of the last try */
    bool stopping, up; /* up: core loop */
    int stop_error;
};

/* -------------------------------------------------------------- what is held */

static struct held **bucket(struct cl_locks *t, uint64_t ino)
{
    return &t->bucket[(ino * 0x9e3779b97f4a7c15u >> 40) % BUCKETS];
}

static bool is(const struct held *e, uint64_t ino, Fp__LockKind kind, uint64_t owner)
{
    return e->ino == ino && e->kind == kind && e->owner == owner;
}

/* lock held. False: no memory. */
static bool remember(struct cl_locks *t, const struct cl_lock_op *op)
{
    struct held **b = bucket(t, op->msg.ino), *e;

    for (e = *b; e; e = e->next)
        if (is(e, op->msg.ino, op->msg.kind, op->msg.owner) && e->h == op->h)
            return true;
    e = malloc(sizeof *e);
    if (!e)
        return false;
    *e = (struct held){.next = *b, .ino = op->msg.ino, .owner = op->msg.owner, .kind = op->msg.kind, .h = op->h};
    *b = e;
    t->nheld++;
    return true;
}

/* Takes all entries of this owner out; false: there was none. */
static bool take(struct cl_locks *t, uint64_t ino, Fp__LockKind kind, uint64_t owner)
{
    bool any = false;

    pthread_mutex_lock(&t->lock);
    for (struct held **p = bucket(t, ino), *e; (e = *p);) {
        if (!is(e, ino, kind, owner)) {
            p = &e->next;
            continue;
        }
        *p = e->next;
        free(e);
        t->nheld--;
        any = true;
    }
    pthread_mutex_unlock(&t->lock);
    return any;
}

bool cl_locks_owns(struct cl_mount *m, uint64_t ino, Fp__LockKind kind, uint64_t owner)
{
    struct cl_locks *t = m->locks;
    struct held *e = NULL;

    if (!t)
        return false;
    pthread_mutex_lock(&t->lock);
    for (e = *bucket(t, ino); e && !is(e, ino, kind, owner); e = e->next)
        ;
    pthread_mutex_unlock(&t->lock);
    return e != NULL;
}

bool cl_locks_close_drops(struct cl_mount *m, const struct cl_handle *h, uint64_t owner)
{
    struct cl_locks *t = m->locks;
    uint64_t ino = h->inode->ino;
    const struct held *e = NULL;

    if (!t)
        return false;
    pthread_mutex_lock(&t->lock);
    for (e = *bucket(t, ino); e && e->h != h && !is(e, ino, FP__LOCK_KIND__LOCK_RECORD, owner); e = e->next)
        ;
    pthread_mutex_unlock(&t->lock);
    return e != NULL;
}

void cl_locks_forget(struct cl_mount *m, uint64_t ino, Fp__LockKind kind, uint64_t owner)
{
    if (m->locks)
        (void)take(m->locks, ino, kind, owner);
}

/* -------------------------------------------------------------- requests */

static void on_answer(void *arg, int status, const ProtobufCMessage *reply);

static void nobody(void *arg, int status, const ProtobufCMessage *reply)
{
    (void)arg;
    (void)status;
    (void)reply;
}

static Fp__Lock all_of(uint64_t ino, Fp__LockKind kind, uint64_t owner, Fp__LockOp what)
{
    Fp__Lock msg = FP__LOCK__INIT;

    msg.ino = ino;
    msg.kind = kind;
    msg.owner = owner;
    msg.op = what;
    msg.end = INT64_MAX;
    return msg;
}

/* lock held. */
static bool is_owed(const struct owed *o, uint64_t ino, Fp__LockKind kind, uint64_t owner)
{
    return o->ino == ino && o->kind == kind && o->owner == owner;
}

/* lock held: its owner holds something again. */
static bool has_again(struct cl_locks *t, const struct owed *o)
{
    const struct held *e = *bucket(t, o->ino);

    while (e && !is(e, o->ino, o->kind, o->owner))
        e = e->next;
    return e != NULL;
}

/* lock held: a request of its owner was sent, and not answered. */
static bool asks(struct cl_locks *t, const struct owed *o)
{
    const struct cl_lock_op *op;

    TAILQ_FOREACH(op, &t->ops, link)
        if (op->state != CL_LOCK_LOST && is_owed(o, op->msg.ino, op->msg.kind, op->msg.owner))
            return true;
    return false;
}

/* The unlock of all that this owner had has ended. What it has got since stays; the rest goes with that. */
static void unlocked(struct owed *o, int status)
{
    struct cl_locks *t = o->m->locks;

    pthread_mutex_lock(&t->lock);
    if (status < 0 && !has_again(t, o)) {
        o->next = t->owed;
        t->owed = o;
        o = NULL;
    }
    pthread_mutex_unlock(&t->lock);
    free(o);
}

static void on_unlocked(void *arg, int status, const ProtobufCMessage *reply)
{
    (void)reply;
    unlocked(arg, status);
}

/* NULL: no memory, and a refusal stays until the next hello. */
static struct owed *owed_new(struct cl_mount *m, const Fp__Lock *msg)
{
    struct owed *o = malloc(sizeof *o);

    if (o)
        *o = (struct owed){.m = m, .ino = msg->ino, .owner = msg->owner, .kind = msg->kind};
    return o;
}

void cl_locks_unlock(struct cl_mount *m, Fp__Lock *msg)
{
    struct owed *o = owed_new(m, msg);

    cl_mgr_call(m, FP__MSG_TYPE__MSG_LOCK, &msg->base, o ? on_unlocked : nobody, o);
}

static void unlock_and_wait(struct cl_mount *m, Fp__Lock *msg)
{
    struct owed *o = owed_new(m, msg);
    int rc = cl_mgr_call_sync(m, FP__MSG_TYPE__MSG_LOCK, &msg->base, NULL);

    if (o)
        unlocked(o, rc);
}

static void send_again(struct cl_lock_op *op)
{
    op->state = CL_LOCK_ASKED;
    cl_mgr_call_answered(op->m, FP__MSG_TYPE__MSG_LOCK, &op->msg.base, on_answer, op);
}

/* The program is told now, and does not see what comes later. */
static void tell(struct cl_lock_op *op, int status, const Fp__Attr *a)
{
    op->told = true;
    op->done(op, status, a);
}

/* It was granted to nobody. */
static void give_back(struct cl_lock_op *op)
{
    if (cl_locks_owns(op->m, op->msg.ino, op->msg.kind, op->msg.owner))
        return;
    op->msg.op = FP__LOCK_OP__LOCK_UNSET;
    cl_locks_unlock(op->m, &op->msg);
}

/* flock(2) from one type to the other: what its owner had went first. Known with the answer to the request: what another request of the same open
 * file is granted after that, stays. */
static void converted(const struct cl_lock_op *op)
{
    if (op->msg.kind == FP__LOCK_KIND__LOCK_FLOCK)
        (void)take(op->m->locks, op->msg.ino, op->msg.kind, op->msg.owner);
}

/* lock held. Its request was sent after the unlock that was refused: what it got is not to be unlocked again. */
static void owes_no_more(struct cl_locks *t, const struct cl_lock_op *op)
{
    for (struct owed **p = &t->owed, *o; (o = *p);)
        if (is_owed(o, op->msg.ino, op->msg.kind, op->msg.owner) && !o->sent) {
            *p = o->next;
            free(o);
        } else {
            p = &o->next;
        }
}

static void over(struct cl_lock_op *op, int status, const Fp__Attr *a)
{
    struct cl_locks *t = op->m->locks;
    bool kept = true;

    if (status > 0 || (status == 0 && !a)) /* what no manager says */
        status = -EPROTO;
    pthread_mutex_lock(&t->lock);
    TAILQ_REMOVE(&t->ops, op, link);
    if (status == 0 && !op->told)
        kept = remember(t, op);
    if (status == 0 && !op->told && kept)
        owes_no_more(t, op);
    pthread_mutex_unlock(&t->lock);
    if (status == 0 && (op->told || !kept))
        give_back(op);
    if (!op->told)
        tell(op, kept ? status : -ENOLCK, a);
    free(op);
}

struct cancelling {
    struct cl_mount *m;
    uint64_t ticket;
};

/* Core loop. Requests leave on the core loop only, so that one that was found stays while it runs. */
static struct cl_lock_op *find(struct cl_locks *t, uint64_t ticket)
{
    struct cl_lock_op *op;

    pthread_mutex_lock(&t->lock);
    TAILQ_FOREACH(op, &t->ops, link)
        if (op->msg.ticket == ticket)
            break;
    pthread_mutex_unlock(&t->lock);
    return op;
}

/* Core loop. One of these that waits for its owner's unlock, or for the manager. */
static struct cl_lock_op *find_lost(struct cl_locks *t, const struct owed *o)
{
    struct cl_lock_op *op;

    pthread_mutex_lock(&t->lock);
    TAILQ_FOREACH(op, &t->ops, link)
        if (op->state == CL_LOCK_LOST && is_owed(o, op->msg.ino, op->msg.kind, op->msg.owner))
            break;
    pthread_mutex_unlock(&t->lock);
    return op;
}

/* If it was granted before, that was told before this. */
static void on_cancelled(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cancelling *c = arg;
    struct cl_lock_op *op = find(c->m->locks, c->ticket);

    if (op && op->state == CL_LOCK_CANCELLED && (status < 0 || !((const Fp__LockReply *)reply)->held))
        over(op, -EINTR, NULL);
    free(c);
}

static void cancel(struct cl_lock_op *op, uint64_t now_ms)
{
    struct cancelling *c = malloc(sizeof *c);
    Fp__Lock msg = FP__LOCK__INIT;

    if (!c)
        return; /* at the next tick */
    *c = (struct cancelling){.m = op->m, .ticket = op->msg.ticket};
    op->state = CL_LOCK_CANCELLED;
    op->cancelled_ms = now_ms;
    msg.op = FP__LOCK_OP__LOCK_CANCEL;
    msg.ticket = op->msg.ticket;
    cl_mgr_call(op->m, FP__MSG_TYPE__MSG_LOCK, &msg.base, on_cancelled, c);
}

/* A wait has no end but the lock, or an interruption; all else has --manager-timeout. */
static void on_answer(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_lock_op *op = arg;
    const Fp__LockReply *r = (const Fp__LockReply *)reply;

    if ((status == 0 && r->queued) || status == -EAGAIN)
        converted(op);
    if (status == 0 && r->queued) {
        op->state = CL_LOCK_QUEUED;
        if (op->told)
            cancel(op, fp_now_ms());
    } else if (status == -ETIMEDOUT && op->msg.wait && !op->told) {
        send_again(op);
    } else {
        over(op, status, r ? r->attr : NULL);
    }
}

/* lock held: the unlock of what this owner had comes first. */
static bool owes(const struct cl_locks *t, const Fp__Lock *msg)
{
    const struct owed *o = t->owed;

    while (o && !is_owed(o, msg->ino, msg->kind, msg->owner))
        o = o->next;
    return o != NULL;
}

void cl_locks_ask(struct cl_lock_op *op)
{
    struct cl_mount *m = op->m;
    struct cl_locks *t = m->locks;
    bool stopping, waits;

    op->msg.op = FP__LOCK_OP__LOCK_SET;
    op->born_ms = fp_now_ms();
    op->state = CL_LOCK_ASKED;
    op->told = false;
    pthread_mutex_lock(&t->lock);
    stopping = t->stopping;
    op->msg.ticket = ++t->ticket;
    waits = !stopping && owes(t, &op->msg);
    if (waits)
        op->state = CL_LOCK_LOST;
    if (!stopping)
        TAILQ_INSERT_TAIL(&t->ops, op, link);
    pthread_mutex_unlock(&t->lock);
    if (waits)
        return;
    if (stopping) {
        op->done(op, FP_ESTOPPING, NULL);
        free(op);
        return;
    }
    cl_mgr_call_answered_soon(m, FP__MSG_TYPE__MSG_LOCK, &op->msg.base, on_answer, op);
}

void cl_locks_granted(struct cl_mount *m, const Fp__LockGrant *g)
{
    struct cl_lock_op *op = m->locks ? find(m->locks, g->ticket) : NULL;

    if (op && (op->state == CL_LOCK_QUEUED || op->state == CL_LOCK_CANCELLED))
        over(op, g->status, g->attr);
}

/* -------------------------------------------------------------- unlocks that were refused */

/* Core loop. Who has asked for this owner meanwhile goes on, or is told why it can't: with what others may not have, it would have what its program has given back. */
static void on_sent_again(void *arg, int status, const ProtobufCMessage *reply)
{
    struct owed *o = arg, **p;
    struct cl_locks *t = o->m->locks;
    struct owed of = *o;
    struct cl_lock_op *op;

    (void)reply;
    pthread_mutex_lock(&t->lock);
    o->sent = false;
    if (status == 0) {
        for (p = &t->owed; *p != o; p = &(*p)->next)
            ;
        *p = o->next;
    } else {
        o = NULL;
    }
    pthread_mutex_unlock(&t->lock);
    free(o);
    while ((status != 0 || t->up) && (op = find_lost(t, &of)))
        if (status == 0)
            send_again(op);
        else
            over(op, status, NULL);
}

/* Core loop. */
static struct owed *to_send(struct cl_locks *t)
{
    struct owed *o;

    pthread_mutex_lock(&t->lock);
    for (o = t->owed; o && (o->sent || asks(t, o)); o = o->next)
        ;
    if (o)
        o->sent = true;
    pthread_mutex_unlock(&t->lock);
    return o;
}

/* Core loop. */
static void send_owed(struct cl_mount *m, uint64_t now_ms)
{
    struct cl_locks *t = m->locks;
    struct owed *o;
    Fp__Lock msg;

    if (!t->up || now_ms - t->owed_ms < OWED_MS)
        return;
    t->owed_ms = now_ms;
    while ((o = to_send(t))) {
        msg = all_of(o->ino, o->kind, o->owner, FP__LOCK_OP__LOCK_UNSET);
        cl_mgr_call(m, FP__MSG_TYPE__MSG_LOCK, &msg.base, on_sent_again, o);
    }
}

/* lock held: a hello names what is held, and what it does not name goes. */
static void forget_owed(struct cl_locks *t, bool all)
{
    for (struct owed **p = &t->owed, *o; (o = *p);)
        if (o->sent && !all) {
            p = &o->next;
        } else {
            *p = o->next;
            free(o);
        }
}

/* -------------------------------------------------------------- closing */

void cl_locks_close(struct cl_mount *m, const struct cl_handle *h, uint64_t owner)
{
    enum { MOST = 8 };
    struct cl_locks *t = m->locks;
    uint64_t ino = h->inode->ino;
    Fp__Lock closing[MOST], msg;
    size_t n = 0;

    if (!t)
        return;
    if (take(t, ino, FP__LOCK_KIND__LOCK_RECORD, owner)) {
        msg = all_of(ino, FP__LOCK_KIND__LOCK_RECORD, owner, FP__LOCK_OP__LOCK_UNSET);
        unlock_and_wait(m, &msg);
    }
    /* The kernel says later whether this was the last descriptor; who tries to get these locks now waits for that. */
    pthread_mutex_lock(&t->lock);
    for (const struct held *e = *bucket(t, ino); e && n < MOST; e = e->next)
        if (e->h == h)
            closing[n++] = all_of(ino, e->kind, e->owner, FP__LOCK_OP__LOCK_CLOSING);
    pthread_mutex_unlock(&t->lock);
    for (size_t i = 0; i < n; i++)
        (void)cl_mgr_call_sync(m, FP__MSG_TYPE__MSG_LOCK, &closing[i].base, NULL);
}

void cl_locks_release(struct cl_mount *m, const struct cl_handle *h)
{
    struct cl_locks *t = m->locks;
    uint64_t ino = h->inode->ino;
    const struct held *e;
    Fp__Lock msg;

    while (t) {
        pthread_mutex_lock(&t->lock);
        for (e = *bucket(t, ino); e && e->h != h; e = e->next)
            ;
        if (e)
            msg = all_of(ino, e->kind, e->owner, FP__LOCK_OP__LOCK_UNSET);
        pthread_mutex_unlock(&t->lock);
        if (!e)
            return;
        (void)take(t, ino, msg.kind, msg.owner);
        cl_locks_unlock(m, &msg);
    }
}

/* -------------------------------------------------------------- the connection */

int cl_locks_hello(struct cl_mount *m, Fp__LockId ***out, size_t *n)
{
    struct cl_locks *t = m->locks;
    Fp__LockId **list = NULL, *id;
    int rc;

    *out = NULL;
    *n = 0;
    if (!t)
        return 0;
    pthread_mutex_lock(&t->lock);
    forget_owed(t, false);
    if (t->nheld && FP_FAULT_POINT("cl.hello_locks") == 0)
        list = malloc(t->nheld * (sizeof *list + sizeof *id));
    rc = t->nheld && !list ? -ENOMEM : 0;
    id = list ? (Fp__LockId *)(list + t->nheld) : NULL;
    for (size_t i = 0; id && i < BUCKETS; i++)
        for (const struct held *e = t->bucket[i]; e; e = e->next, id++) {
            fp__lock_id__init(id);
            id->ino = e->ino;
            id->kind = e->kind;
            id->owner = e->owner;
            list[(*n)++] = id;
        }
    pthread_mutex_unlock(&t->lock);
    *out = list;
    return rc;
}

void cl_locks_lost(struct cl_mount *m, Fp__LockId *const *ids, size_t n)
{
    char line[200];

    for (size_t i = 0; i < n && m->locks; i++) {
        if (!take(m->locks, ids[i]->ino, ids[i]->kind, ids[i]->owner))
            continue; /* of two handles */
        if (ids[i]->kind == FP__LOCK_KIND__LOCK_APPEND)
            cl_append_lost(m, ids[i]->ino);
        else
            cl_data_lock_lost(m, ids[i]->ino);
        snprintf(line, sizeof line,
                 "inode %llu: %s is lost, and others may have it: the manager did not hear of this mount for "
                 "its session's time-out, or has lost its last seconds",
                 (unsigned long long)ids[i]->ino,
                 ids[i]->kind == FP__LOCK_KIND__LOCK_APPEND ? "the right to append" : "a lock that a program here holds");
        cl_data_tell_error(m, line);
    }
}

/* Core loop: each request of now, one after the other; fn may end it. */
static void each(struct cl_mount *m, void (*fn)(struct cl_lock_op *op, uint64_t now_ms), uint64_t now_ms)
{
    struct cl_locks *t = m->locks;
    struct cl_lock_op *op, *next;

    pthread_mutex_lock(&t->lock);
    op = TAILQ_FIRST(&t->ops);
    pthread_mutex_unlock(&t->lock);
    for (; op; op = next) {
        pthread_mutex_lock(&t->lock);
        next = TAILQ_NEXT(op, link);
        pthread_mutex_unlock(&t->lock);
        fn(op, now_ms);
    }
}

static void down_one(struct cl_lock_op *op, uint64_t now_ms)
{
    (void)now_ms;
    if (op->state == CL_LOCK_CANCELLED || (op->state == CL_LOCK_QUEUED && op->told))
        over(op, -EINTR, NULL);
    else if (op->state == CL_LOCK_QUEUED)
        op->state = CL_LOCK_LOST;
}

void cl_locks_down(struct cl_mount *m)
{
    if (!m->locks)
        return;
    m->locks->up = false;
    each(m, down_one, 0);
}

static void up_one(struct cl_lock_op *op, uint64_t now_ms)
{
    (void)now_ms;
    if (op->state == CL_LOCK_LOST)
        send_again(op);
}

void cl_locks_up(struct cl_mount *m)
{
    if (!m->locks)
        return;
    m->locks->up = true;
    each(m, up_one, 0);
}

static void tick_one(struct cl_lock_op *op, uint64_t now_ms)
{
    bool intr = !op->told && op->interrupted && op->interrupted(op);

    if (op->told)
        return;
    if (op->state == CL_LOCK_CANCELLED) {
        if (now_ms - op->cancelled_ms >= CANCEL_MS)
            tell(op, -EINTR, NULL);
    } else if (intr && op->state == CL_LOCK_LOST) {
        over(op, -EINTR, NULL);
    } else if (intr && op->state == CL_LOCK_QUEUED) {
        cancel(op, now_ms);
    } else if (intr && now_ms - op->born_ms >= CANCEL_MS / 4) {
        tell(op, -EINTR, NULL);
    } else if (!op->msg.wait && now_ms - op->born_ms >= op->m->opt.manager_timeout_ms) {
        tell(op, -ETIMEDOUT, NULL);
    }
}

void cl_locks_tick(struct cl_mount *m, uint64_t now_ms)
{
    if (!m->locks)
        return;
    each(m, tick_one, now_ms);
    send_owed(m, now_ms);
}

/* -------------------------------------------------------------- begin and end */

int cl_locks_new(struct cl_mount *m)
{
    struct cl_locks *t;

    if (m->opt.locks == CL_LOCKS_LOCAL)
        return 0;
    t = calloc(1, sizeof *t);
    m->lockwork = t ? cl_lockwork_new() : NULL;
    if (!m->lockwork) {
        FP_ERROR("out of memory or threads: cannot keep locks");
        free(t);
        return -ENOMEM;
    }
    pthread_mutex_init(&t->lock, NULL);
    TAILQ_INIT(&t->ops);
    m->locks = t;
    return 0;
}

struct stop {
    struct cl_mount *m;
    sem_t done;
};

static void stop_one(struct cl_lock_op *op, uint64_t now_ms)
{
    (void)now_ms;
    if (!op->told)
        tell(op, op->m->locks->stop_error, NULL);
}

static void stop_all(void *arg)
{
    struct stop *s = arg;

    each(s->m, stop_one, 0);
    sem_post(&s->done);
}

void cl_locks_stop(struct cl_mount *m, int err)
{
    struct cl_locks *t = m->locks;
    struct stop s = {.m = m};

    if (!t)
        return;
    pthread_mutex_lock(&t->lock);
    t->stopping = true;
    t->stop_error = err;
    pthread_mutex_unlock(&t->lock);
    sem_init(&s.done, 0, 0);
    cl_core_post(m, stop_all, &s);
    while (sem_wait(&s.done) < 0)
        ; /* EINTR */
    sem_destroy(&s.done);
    cl_lockwork_stop(m->lockwork);
}

void cl_locks_free(struct cl_mount *m)
{
    struct cl_locks *t = m->locks;
    struct cl_lock_op *op;

    if (!t)
        return;
    while ((op = TAILQ_FIRST(&t->ops))) {
        TAILQ_REMOVE(&t->ops, op, link);
        free(op);
    }
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct held *e = t->bucket[i], *next; e; e = next) {
            next = e->next;
            free(e);
        }
    forget_owed(t, true);
    pthread_mutex_destroy(&t->lock);
    cl_lockwork_free(m->lockwork);
    free(t);
    m->locks = NULL;
    m->lockwork = NULL;
}
