/*
 * Programs are told of a file made or removed before the manager knows: see early.h.
 *
 * FUSE threads call cl_early_begin to _failure; answers come on the core loop, which also asks for the right to do all
 * this (MSG_INODES), and gives it back when nothing was changed with it for a while: a mount that dies with it makes
 * others wait until its session has expired, since the manager cannot know what its programs have been told. So look-ups
 * use it while it is there and do not keep it. To answer them without it was rejected: a mount that is cut off and has
 * not noticed would go on telling what another one has changed.
 *
 * Whoever is between begin and end has seen `on`; who switches it off waits until nobody is, and nothing is under way.
 *
 * At most LATE_FROM requests are under way without their programs waiting. Beyond that the program waits for the
 * answer, and everything else is the same: what is known of names stays exact, and the manager is not outrun.
 */
#include "client/early.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/core_int.h"
#include "client/data.h"
#include "client/inode.h"
#include "client/notify.h"
#include "client/ops/ops.h"
#include "fp/bug.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/log.h"

#define NUMBERS    4096u /* asked for at a time */
#define NUMBERS_LOW 2048u
#define LATE_FROM  128u /* half of the slots that a manager gives */
#define IDLE_TICKS 10u /* of 100 ms. Shorter, and each pause of a writer would cost the manager a sync */
#define ASK_AGAIN_MS 1000u

struct waiting_close {
    struct waiting_close *next;
    fuse_req_t req;
};

struct cl_creating {
    struct cl_mount *m;
    struct cl_inode *inode; /* with a reference */
    uint64_t parent;
    cl_early_late late; /* NULL: the program has its answer */
    struct cl_op *op;   /* with late */
    struct waiting_close *closes; /* created_lock */
};

struct removing {
    struct cl_mount *m;
    uint64_t parent, ino;
    bool told_late;
    cl_early_late late; /* NULL: the program has its answer */
    struct cl_op *op;
};

/* Of inode->creating and what it points to, for all inodes: it is held for some instructions. */
static pthread_mutex_t created_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t created_cond = PTHREAD_COND_INITIALIZER;

/* -------------------------------------------------------------- the right to it */

void cl_early_init(struct cl_core *c)
{
    pthread_mutex_init(&c->early.lock, NULL);
}

static void take_numbers(struct cl_early *e, uint64_t first, uint32_t count)
{
    pthread_mutex_lock(&e->lock);
    if (e->next == e->end) {
        e->next = e->next2;
        e->end = e->end2;
    }
    e->next2 = first;
    e->end2 = first + count;
    pthread_mutex_unlock(&e->lock);
}

struct asking {
    struct cl_core *c;
    uint32_t period; /* of being alone */
};

static void done_ask(void *arg, int status, const ProtobufCMessage *reply)
{
    struct asking *a = arg;
    struct cl_core *c = a->c;
    struct cl_early *e = &c->early;
    const Fp__InodesReply *r = (const Fp__InodesReply *)reply;
    /* Also without numbers to use, the manager may have noted that we may: what is not used is given back. */
    e->lent |= status != 0 || r->count > 0;
    if (status == 0 && r->count > 0 && a->period == atomic_load(&c->alone) && c->link == CL_LINK_UP) {
        take_numbers(e, r->first, r->count);
        e->idle_ticks = 0;
        atomic_store(&e->on, true);
    } else {
        atomic_store(&e->ask_after_ms, fp_now_ms() + ASK_AGAIN_MS);
    }
    atomic_store(&e->asked, false);
    free(a);
}

static void ask(struct cl_mount *m)
{
    struct cl_core *c = m->core;
    Fp__Inodes msg = FP__INODES__INIT;
    if (fp_now_ms() < atomic_load(&c->early.ask_after_ms) || atomic_exchange(&c->early.asked, true))
        return;
    struct asking *a = malloc(sizeof *a);
    if (!a) {
        atomic_store(&c->early.asked, false);
        return;
    }
    *a = (struct asking){.c = c, .period = cl_core_alone(m)};
    msg.count = NUMBERS;
    cl_mgr_call(m, FP__MSG_TYPE__MSG_INODES, &msg.base, done_ask, a);
}

void cl_early_want(struct cl_mount *m, uint64_t dir)
{
    struct cl_early *e = &m->core->early;
    if (!atomic_load(&e->on) && !atomic_load(&e->asked) && cl_core_alone(m) && cl_names_known(dir))
        ask(m);
}

bool cl_early_begin(struct cl_mount *m)
{
    struct cl_early *e = &m->core->early;
    if (!atomic_load(&e->on))
        return false;
    atomic_fetch_add(&e->users, 1);
    if (!atomic_load(&e->on)) {
        atomic_fetch_sub(&e->users, 1);
        return false;
    }
    return true;
}

void cl_early_end(struct cl_mount *m)
{
    atomic_fetch_sub(&m->core->early.users, 1);
}

void cl_early_off(struct cl_core *c)
{
    struct cl_early *e = &c->early;
    atomic_store(&e->on, false);
    e->lent = false; /* the answer to MSG_ALONE, or the next hello, says that it has ended */
    pthread_mutex_lock(&e->lock);
    e->next = e->end = e->next2 = e->end2 = 0;
    pthread_mutex_unlock(&e->lock);
}

bool cl_early_ended(struct cl_core *c)
{
    const struct cl_early *e = &c->early;
    return atomic_load(&e->users) == 0 && atomic_load(&e->inflight) == 0;
}

void cl_early_check(struct cl_core *c)
{
    struct cl_early *e = &c->early;
    Fp__Alone a = FP__ALONE__INIT;
    if (!e->recalled || !c->conn || (!atomic_load(&c->alone) && !cl_early_ended(c)))
        return;
    e->recalled = false;
    a.forgot = !atomic_load(&c->alone) && cl_notify_names() == 0;
    (void)fp_rpc_reply(c->conn, &(struct fp_rpc_reply){.id = e->recall_id, .type = FP__MSG_TYPE__MSG_ALONE, .msg = &a.base});
}

static void done_give_back(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_core *c = arg;
    atomic_store(&c->early.asked, false);
    (void)status; /* if it was not heard: the next hello, or the next time */
    (void)reply;
}

void cl_early_tick(struct cl_core *c)
{
    struct cl_early *e = &c->early;
    Fp__Inodes none = FP__INODES__INIT;
    if (atomic_load(&e->on)) {
        unsigned uses = atomic_load(&e->uses);
        e->idle_ticks = uses == e->idle_uses && cl_early_ended(c) ? e->idle_ticks + 1 : 0;
        e->idle_uses = uses;
        if (e->idle_ticks >= IDLE_TICKS)
            atomic_store(&e->on, false);
    }
    /* Nobody asks at the same time: were that executed first, we would have the right and the manager would not know. */
    if (!atomic_load(&e->on) && e->lent && cl_early_ended(c) && !atomic_exchange(&e->asked, true)) {
        e->lent = false;
        cl_mgr_call(c->m, FP__MSG_TYPE__MSG_INODES, &none.base, done_give_back, c);
    }
    cl_early_check(c);
}

uint64_t cl_early_ino(struct cl_mount *m)
{
    struct cl_early *e = &m->core->early;
    pthread_mutex_lock(&e->lock);
    if (e->next == e->end) {
        e->next = e->next2;
        e->end = e->end2;
        e->next2 = e->end2 = 0;
    }
    uint64_t ino = e->next < e->end ? e->next++ : 0;
    bool low = e->end - e->next + (e->end2 - e->next2) < NUMBERS_LOW;
    pthread_mutex_unlock(&e->lock);
    if (low && !atomic_load(&e->asked))
        ask(m);
    return ino;
}

/* -------------------------------------------------------------- requests */

/* Answered, or given up: one less is under way. */
static void one_less(struct cl_core *c)
{
    atomic_fetch_sub(&c->early.inflight, 1);
    cl_early_check(c);
}

/* What is known of the directory is wrong; the kernel forgets its part by itself, in half a second. told: what a program
 * takes for done; NULL: it hears of the failure. */
static void failed(struct cl_mount *m, uint64_t parent, uint64_t ino, int status, const char *told)
{
    char line[200];
    cl_names_forget(parent);
    if (!told)
        return;
    snprintf(line, sizeof line, "inode %llu in directory %llu: it was told to be %s, which failed: %s",
             (unsigned long long)ino, (unsigned long long)parent, told, fp_strerror(status));
    cl_data_tell_error(m, line);
}

static struct waiting_close *created(struct cl_creating *cr, int status)
{
    struct cl_inode *inode = cr->inode;
    if (status != 0)
        cl_inode_mark_gone(cr->m, inode->ino);
    pthread_mutex_lock(&created_lock);
    /* Codes that only mean that the picture was wrong would mislead who closes a file. */
    inode->create_error = status == 0 ? 0 : status == -ENOSPC ? -ENOSPC : -EIO;
    inode->creating = NULL;
    struct waiting_close *closes = cr->closes;
    pthread_cond_broadcast(&created_cond);
    pthread_mutex_unlock(&created_lock);
    return closes;
}

static void done_create(void *arg, int status, const ProtobufCMessage *reply)
{
    struct cl_creating *cr = arg;
    struct cl_mount *m = cr->m;
    struct cl_inode *inode = cr->inode;
    if (status == 0) {
        cl_inode_hold(m, inode, true); /* not before: a hello tells what was answered */
        const Fp__Attr *a = ((const Fp__AttrReply *)reply)->attr;
        cl_data_lease(inode, a && ((const Fp__AttrReply *)reply)->behind, a ? a->data_version : 0);
    } else
        failed(m, cr->parent, inode->ino, status, cr->late ? NULL : "made");
    struct waiting_close *w = created(cr, status);
    while (w) {
        struct waiting_close *next = w->next;
        cl_reply_err(w->req, fp_err_to_errno(inode->create_error));
        free(w);
        w = next;
    }
    if (cr->late)
        cr->late(cr->op, status == -EINTR ? status : inode->create_error, reply);
    cl_inode_put(m, inode);
    free(cr);
    one_less(m->core);
}

static bool too_many(struct cl_mount *m)
{
    atomic_fetch_add_explicit(&m->core->early.uses, 1, memory_order_relaxed);
    return atomic_fetch_add(&m->core->early.inflight, 1) >= LATE_FROM;
}

static bool create_interrupted(void *arg)
{
    return cl_op_interrupted(((const struct cl_creating *)arg)->op);
}

bool cl_early_create(struct cl_mount *m, struct cl_inode *inode, Fp__MkNod *msg, cl_early_late late, struct cl_op *op)
{
    struct cl_creating *cr = calloc(1, sizeof *cr);
    if (!cr) {
        FP_ERROR("out of memory: cannot send a request to the manager");
        abort(); /* as in mgr_call.c */
    }
    bool wait = too_many(m);
    *cr = (struct cl_creating){.m = m, .inode = inode, .parent = msg->parent};
    if (wait) {
        cr->late = late;
        cr->op = op;
    }
    cl_inode_ref(m, inode);
    inode->creating = cr; /* nobody has heard of this inode yet */
    cl_mgr_call_early(m, FP__MSG_TYPE__MSG_MKNOD, &msg->base, wait ? create_interrupted : NULL, done_create, cr);
    return !wait;
}

/* The program that was told of it has gone on: who syncs a directory next hears of it. */
static void removal_failed(const struct removing *r, int status)
{
    int none = 0;
    failed(r->m, r->parent, r->ino, status, "removed");
    atomic_compare_exchange_strong(&r->m->core->early.failed, &none, -EIO);
}

static void done_unlink(void *arg, int status, const ProtobufCMessage *reply)
{
    struct removing *r = arg;
    struct cl_mount *m = r->m;
    bool to_come = status == FP_EDEADLINE && !r->told_late && !r->late; /* see cl_mgr_call_lasting */
    /* ENOENT: making it has failed, which its close tells. */
    bool is_there = status != 0 && status != -ENOENT && !to_come;
    if (status != 0)
        cl_names_forget(r->parent);
    if (is_there)
        cl_inode_set_nlink(m, r->ino, 1);
    if (r->late)
        r->late(r->op, status, reply);
    else if (is_there || to_come)
        removal_failed(r, status);
    r->told_late = true;
    if (to_come)
        return;
    free(r);
    one_less(m->core);
}

static bool unlink_interrupted(void *arg)
{
    return cl_op_interrupted(((const struct removing *)arg)->op);
}

bool cl_early_unlink(struct cl_mount *m, Fp__Unlink *msg, cl_early_late late, struct cl_op *op)
{
    struct removing *r = calloc(1, sizeof *r);
    if (!r) {
        FP_ERROR("out of memory: cannot send a request to the manager");
        abort();
    }
    bool wait = too_many(m);
    *r = (struct removing){.m = m, .parent = msg->parent, .ino = msg->ino};
    if (wait) {
        r->late = late;
        r->op = op;
    }
    if (wait)
        cl_mgr_call_early(m, FP__MSG_TYPE__MSG_UNLINK, &msg->base, unlink_interrupted, done_unlink, r);
    else
        cl_mgr_call_early_lasting(m, FP__MSG_TYPE__MSG_UNLINK, &msg->base, done_unlink, r);
    return !wait;
}

/* -------------------------------------------------------------- waiting */

int cl_early_wait(struct cl_inode *inode)
{
    pthread_mutex_lock(&created_lock);
    while (inode->creating)
        pthread_cond_wait(&created_cond, &created_lock);
    int err = inode->create_error;
    pthread_mutex_unlock(&created_lock);
    return err;
}

bool cl_early_flush(struct cl_inode *inode, fuse_req_t req, int *status)
{
    pthread_mutex_lock(&created_lock);
    struct cl_creating *cr = FP_BUG("mount-closes-before-the-manager-knows") ? NULL : inode->creating;
    struct waiting_close *w = cr ? malloc(sizeof *w) : NULL;
    if (w) {
        *w = (struct waiting_close){.next = cr->closes, .req = req};
        cr->closes = w;
    }
    *status = inode->create_error;
    pthread_mutex_unlock(&created_lock);
    if (cr && !w)
        *status = cl_early_wait(inode);
    return w != NULL;
}

int cl_early_failure(struct cl_mount *m)
{
    return atomic_exchange(&m->core->early.failed, 0);
}

void cl_early_drain(struct cl_mount *m, uint32_t limit_ms)
{
    uint64_t until_ms = fp_now_ms() + limit_ms;
    while (atomic_load(&m->core->early.inflight) > 0) {
        if (fp_now_ms() >= until_ms)
            cl_mgr_fail_lasting(m, FP_ESTOPPING);
        usleep(1000);
    }
}
