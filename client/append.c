/*
 * O_APPEND of several mounts: see append.h.
 *
 *   NONE --first write--> ASKED --granted--> HELD --recalled, no write under way, published--> NONE
 *
 * The grant says how long the file is, published is all that others have appended, and from then on nobody else appends: so the end is where this
 * mount sees it. The kernel's idea of the end may be old, and is not used. It is also where the kernel leaves the file's position, so that
 * lseek(SEEK_CUR) after a write may be wrong while several mounts append; a FUSE server can't tell it.
 *
 * A write(2) of more than the kernel puts into one request comes in pieces, of which all but the last are as long as can be. After such a piece
 * the right is kept for MORE_MS, for the next one of the same handle, so that other mounts do not come in between. Nothing tells such a piece from
 * a whole write of that size. So that a program which makes these does not keep others out, that is over TURN_MS after the recall.
 *
 * Looked at: the manager hands out room at the end for each write. That is a round trip for every write of every mount, or holes where a
 * mount dies; and a write would have to be published before the next one of another mount is answered, or it is not known where the end is.
 *
 * A mount that was cut off for too long has lost the right, and others have appended where it did. So its commits say on which version of the file they are based, and are
 * refused if it is another one by then, or the right is another mount's (data/batch.c): what it had appended and not published is lost, and told. To put it behind the
 * new end was rejected: a record of which the first part is published already, or that its program has read back at its place, would be torn or move.
 *
 * Each turn lasts KEEP_MS at least. So two mounts that append small records write some at each turn, not one.
 *
 * FUSE threads write; the core loop brings grants and recalls; the thread of lockwork.h publishes, by steps, and gives back. All of it is under inode->lock.
 */
#include "client/append.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

#include "client/client.h"
#include "client/core.h"
#include "client/data.h"
#include "client/inode.h"
#include "client/locks.h"
#include "client/lockwork.h"
#include "fp/bug.h"
#include "fp/clock.h"
#include "fp/log.h"

#define MORE_MS 1000u
#define TURN_MS 5000u
#define KEEP_MS 5u  /* at least, so that a turn is worth its round trips */
#define PAGE    4096u
#define LOOK_MS 100u /* between looks whether a writer that waits was interrupted */
#define STEP_MS 128u /* the longest pause between steps of publishing; the first is 1 ms */

struct cl_append {
    pthread_cond_t cond; /* something has changed */
    enum { NONE, ASKED, HELD } state;
    bool busy;     /* a write is under way */
    bool recalled; /* another mount waits */
    bool giving;   /* it is being published; no write begins */
    bool queued;   /* give will run; with a reference to the inode */
    unsigned begins; /* calls of begin under way: somebody wants it */
    int error;     /* why the last asking failed */
    uint64_t asked;               /* how often */
    unsigned losses;              /* how often it was lost while it was had */
    const struct cl_handle *more; /* whose next piece may come, */
    uint64_t more_until_ms;       /* … until then */
    uint64_t keep_until_ms;       /* of this turn */
    uint64_t recalled_ms;
    struct cl_mount *m; /* these are give's */
    struct cl_inode *inode;
    struct cl_work work;
    struct cl_publishing publishing;
    uint64_t pause_ms;
};

/* inode->lock held. NULL: no memory. */
static struct cl_append *append_of(struct cl_inode *inode)
{
    pthread_condattr_t a;

    if (inode->append)
        return inode->append;
    inode->append = calloc(1, sizeof *inode->append);
    if (!inode->append)
        return NULL;
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&inode->append->cond, &a);
    pthread_condattr_destroy(&a);
    return inode->append;
}

void cl_append_free(struct cl_inode *inode)
{
    if (!inode->append)
        return;
    pthread_cond_destroy(&inode->append->cond);
    free(inode->append);
    inode->append = NULL;
}

/* -------------------------------------------------------------- giving back */

/* Before any request for it that is sent later. */
static void send_unset(struct cl_mount *m, uint64_t ino)
{
    Fp__Lock msg = FP__LOCK__INIT;

    msg.ino = ino;
    msg.kind = FP__LOCK_KIND__LOCK_APPEND;
    msg.op = FP__LOCK_OP__LOCK_UNSET;
    msg.end = INT64_MAX;
    cl_locks_forget(m, ino, msg.kind, 0);
    cl_locks_unlock(m, &msg);
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* inode->lock held, so that nobody asks for it before this. Its last writer has closed the file, or was killed while it waited, or it was had for a truncate: the inode
 * may be forgotten from here on, and then nobody would be there to hear a recall. */
static void give_back_unused(struct cl_mount *m, struct cl_inode *inode)
{
    struct cl_append *a = inode->append;

    if (!a || inode->handles > 0 || a->begins > 0 || a->busy || a->state != HELD || a->giving)
        return;
    a->state = NONE;
    a->recalled = false;
    send_unset(m, inode->ino);
}

/* inode->lock held: until when it is not given back, for this handle (NULL: for any). */
static uint64_t stays_until_ms(const struct cl_append *a, const struct cl_handle *h)
{
    uint64_t turn_ms = a->recalled_ms + TURN_MS;

    if (!a->more || (h && a->more != h))
        return a->keep_until_ms;
    return later(a->keep_until_ms, a->more_until_ms < turn_ms ? a->more_until_ms : turn_ms);
}

/* inode->lock held. True: publishing may go on; else *at_ms says when it may begin (0: there is nothing to do). */
static bool may_give(struct cl_append *a, uint64_t *at_ms)
{
    *at_ms = 0;
    if (a->giving)
        return true;
    if (a->state != HELD || !a->recalled || a->busy)
        return false;
    *at_ms = stays_until_ms(a, NULL);
    if (*at_ms > fp_now_ms())
        return false;
    a->publishing = (struct cl_publishing){0};
    a->pause_ms = 1;
    return a->giving = true;
}

static void give(struct cl_work *w);

/* Pauses get longer, and end at the same time for all files, so that many that wait for long are looked at in one go. */
static bool give_after_pause(struct cl_append *a)
{
    uint64_t at_ms = (fp_now_ms() / a->pause_ms + 1) * a->pause_ms;

    a->pause_ms *= a->pause_ms < STEP_MS ? 2 : 1;
    return cl_lockwork_at(a->m->lockwork, at_ms, &a->work, give);
}

/* What can't be published is not left to be written over: then it is not given back, and who wants it fails in its own time. */
static void give(struct cl_work *w)
{
    struct cl_append *a = (struct cl_append *)(void *)((char *)w - offsetof(struct cl_append, work));
    struct cl_inode *inode = a->inode;
    struct cl_mount *m = a->m;
    uint64_t at_ms;
    bool now, again;
    int rc = -EAGAIN;

    pthread_mutex_lock(&inode->lock);
    now = may_give(a, &at_ms);
    again = !now && at_ms && cl_lockwork_at(m->lockwork, at_ms, w, give);
    a->queued = now || again;
    pthread_mutex_unlock(&inode->lock);
    if (again)
        return;
    if (now) {
        rc = cl_data_publish_step(m, inode, &a->publishing);
        if (rc == 1 && give_after_pause(a))
            return;
        if (rc == 0)
            send_unset(m, inode->ino);
        pthread_mutex_lock(&inode->lock);
        a->queued = a->giving = a->recalled = false;
        a->more = NULL;
        if (rc == 0)
            a->state = NONE;
        give_back_unused(m, inode); /* nobody could tell an error any more */
        pthread_cond_broadcast(&a->cond);
        pthread_mutex_unlock(&inode->lock);
    }
    cl_inode_put(m, inode);
}

static void give_soon(struct cl_mount *m, struct cl_inode *inode)
{
    struct cl_append *a = inode->append;
    bool taken;

    pthread_mutex_lock(&inode->lock);
    taken = !a->queued;
    a->queued = true;
    if (taken) { /* else give() may be reading them */
        a->m = m;
        a->inode = inode;
    }
    pthread_mutex_unlock(&inode->lock);
    if (!taken)
        return;
    cl_inode_ref(m, inode);
    if (!cl_lockwork_at(m->lockwork, 0, &a->work, give)) /* the mount ends, and its locks with it */
        cl_inode_put(m, inode);
}

/* One that comes while it is not held is old: it was given back meanwhile. To answer it would give back what may be granted next. */
void cl_append_recalled(struct cl_mount *m, uint64_t ino)
{
    struct cl_inode *inode = m->locks ? cl_inode_get(m, ino) : NULL;
    bool now = false;

    if (!inode)
        return;
    pthread_mutex_lock(&inode->lock);
    if (inode->append && inode->append->state == HELD) {
        inode->append->recalled_ms = inode->append->recalled ? inode->append->recalled_ms : fp_now_ms();
        inode->append->recalled = true;
        now = !inode->append->busy; /* else when that write ends */
    }
    pthread_mutex_unlock(&inode->lock);
    if (now)
        give_soon(m, inode);
    cl_inode_put(m, inode);
}

bool cl_append_has_right(const struct cl_inode *inode)
{
    return inode->append && inode->append->state == HELD;
}

/* A version that is not known is no one's. */
uint64_t cl_append_base(const struct cl_inode *inode)
{
    return inode->attr.data_version ? inode->attr.data_version : UINT64_MAX;
}

void cl_append_lost(struct cl_mount *m, uint64_t ino)
{
    struct cl_inode *inode = cl_inode_get(m, ino);

    if (!inode)
        return;
    pthread_mutex_lock(&inode->lock);
    if (inode->append && inode->append->state == HELD) {
        inode->append->state = NONE;
        inode->append->recalled = false;
        inode->append->losses++;
        cl_data_append_lost(inode, cl_append_base(inode));
        pthread_cond_broadcast(&inode->append->cond);
    }
    pthread_mutex_unlock(&inode->lock);
    cl_inode_put(m, inode);
}

void cl_append_closed(struct cl_mount *m, struct cl_inode *inode)
{
    pthread_mutex_lock(&inode->lock);
    give_back_unused(m, inode);
    pthread_mutex_unlock(&inode->lock);
}

/* -------------------------------------------------------------- writing */

/* Core loop. */
static void on_asked(struct cl_lock_op *op, int status, const Fp__Attr *a)
{
    struct cl_inode *inode = op->arg;

    if (status == 0)
        (void)cl_data_locked(op->m, inode, a);
    pthread_mutex_lock(&inode->lock);
    inode->append->state = status == 0 ? HELD : NONE;
    inode->append->error = status;
    inode->append->keep_until_ms = fp_now_ms() + KEEP_MS;
    inode->append->asked++;
    give_back_unused(op->m, inode);
    pthread_cond_broadcast(&inode->append->cond);
    pthread_mutex_unlock(&inode->lock);
    cl_inode_put(op->m, inode);
}

/* inode->lock held; let go to send. */
static int ask(struct cl_mount *m, struct cl_inode *inode)
{
    struct cl_lock_op *op = calloc(1, sizeof *op);

    if (!op)
        return -ENOMEM;
    inode->append->state = ASKED;
    inode->append->recalled = false;
    pthread_mutex_unlock(&inode->lock);
    cl_inode_ref(m, inode);
    op->m = m;
    fp__lock__init(&op->msg);
    op->msg.ino = inode->ino;
    op->msg.kind = FP__LOCK_KIND__LOCK_APPEND;
    op->msg.exclusive = true;
    op->msg.wait = true;
    op->msg.end = INT64_MAX;
    op->done = on_asked;
    op->arg = inode;
    cl_locks_ask(op);
    pthread_mutex_lock(&inode->lock);
    return 0;
}

static void wait_a_moment(struct cl_inode *inode)
{
    uint64_t at_ms = fp_now_ms() + LOOK_MS;
    struct timespec ts = {.tv_sec = (time_t)(at_ms / 1000), .tv_nsec = (long)(at_ms % 1000) * 1000000};

    pthread_cond_timedwait(&inode->append->cond, &inode->lock, &ts);
}

/* inode->lock held: until this mount has the right, and nothing else of it uses it. */
static int wait_for_turn(struct cl_mount *m, struct cl_inode *inode, const struct cl_handle *h, bool (*interrupted)(void *arg), void *arg)
{
    struct cl_append *a = inode->append;
    uint64_t until_ms = fp_now_ms() + m->opt.io_timeout_ms, asked = a->asked;
    bool mine = false;
    int rc = 0;

    while (rc == 0) {
        if (a->state == HELD && !a->busy && !a->giving && (!a->recalled || fp_now_ms() < stays_until_ms(a, h)))
            return 0;
        if (mine && a->asked != asked && a->error)
            rc = a->error;
        else if (a->state == NONE && !a->giving) {
            asked = a->asked;
            mine = true;
            rc = ask(m, inode);
        } else if (interrupted(arg))
            rc = -EINTR;
        else if (fp_now_ms() >= until_ms) {
            FP_LOG_EVERY(10000, FP_LOG_ERROR, "inode %llu: another mount has the right to append, and does not give it back: EIO",
                         (unsigned long long)inode->ino);
            rc = -EIO;
        } else
            wait_a_moment(inode);
    }
    return rc;
}

/* inode->lock held, let go meanwhile: what was appended with a right that is lost is published or given up before anything is appended with a new one, or a record of now
 * would stand behind one that is given up. */
static int settle(struct cl_mount *m, struct cl_inode *inode)
{
    int rc;

    if (!cl_data_append_is_lost(inode))
        return 0;
    pthread_mutex_unlock(&inode->lock);
    rc = cl_data_publish_written(m, inode);
    pthread_mutex_lock(&inode->lock);
    return rc;
}

/* inode->lock held: until this write, or a truncate (h: NULL), may have the end for itself. */
static int begin(struct cl_mount *m, struct cl_inode *inode, const struct cl_handle *h, bool (*interrupted)(void *arg), void *arg)
{
    struct cl_append *a = append_of(inode);
    int rc = 0;

    if (!a)
        return -ENOMEM;
    if (!FP_BUG("mount-appends-at-the-end-that-it-knows")) {
        a->begins++;
        rc = settle(m, inode);
        if (rc == 0)
            rc = wait_for_turn(m, inode, h, interrupted, arg);
        a->begins--;
    }
    a->busy |= rc == 0;
    give_back_unused(m, inode);
    return rc;
}

/* inode->lock held. True: it is to be given back. */
static bool end(struct cl_mount *m, struct cl_inode *inode, const struct cl_handle *h, size_t done)
{
    struct cl_append *a = inode->append;

    a->busy = false;
    a->more = done + PAGE > m->max_write_bytes ? h : NULL; /* the program's memory may begin within a page */
    a->more_until_ms = fp_now_ms() + MORE_MS;
    give_back_unused(m, inode);
    pthread_cond_broadcast(&a->cond);
    return a->recalled && a->state == HELD;
}

ssize_t cl_append_write(struct cl_mount *m, struct cl_handle *h, const char *buf, size_t len, bool kill_suidgid,
                        bool (*interrupted)(void *arg), void *arg)
{
    struct cl_inode *inode = h->inode;
    uint64_t off = 0, base = 0;
    unsigned losses = 0;
    ssize_t n;
    bool recalled;
    int rc;

    pthread_mutex_lock(&inode->lock);
    rc = begin(m, inode, h, interrupted, arg);
    if (rc == 0) {
        off = cl_data_size_bytes(inode);
        base = cl_append_base(inode);
        losses = inode->append->losses;
    }
    pthread_mutex_unlock(&inode->lock);
    if (rc < 0)
        return rc;
    n = h->strict ? cl_data_append(m, h, buf, len, kill_suidgid) : cl_data_write(m, h, buf, len, off, kill_suidgid);
    pthread_mutex_lock(&inode->lock);
    if (inode->append->losses != losses)
        cl_data_append_lost(inode, base);
    recalled = end(m, inode, h, n < 0 ? 0 : (size_t)n);
    pthread_mutex_unlock(&inode->lock);
    if (recalled)
        give_soon(m, inode);
    return n;
}

int cl_append_begin(struct cl_mount *m, struct cl_inode *inode, bool (*interrupted)(void *arg), void *arg)
{
    int rc;

    pthread_mutex_lock(&inode->lock);
    rc = begin(m, inode, NULL, interrupted, arg);
    pthread_mutex_unlock(&inode->lock);
    return rc;
}

void cl_append_end(struct cl_mount *m, struct cl_inode *inode)
{
    bool recalled;

    pthread_mutex_lock(&inode->lock);
    recalled = end(m, inode, NULL, 0);
    pthread_mutex_unlock(&inode->lock);
    if (recalled)
        give_soon(m, inode);
}
