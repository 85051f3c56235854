/*
 * Write-behind over close(2): `--close behind`. A mount that has the lease of a file (manager/lease.c) answers close at once; what was closed is published in
 * the background, at once, and before the lease goes back to the manager, when another mount wants the file.
 *
 *   close --lease--> behind --published--> (nothing is left of it)
 *     |                 `-- MSG_RECALL: no lease from here on; published, then MSG_RECALL done
 *     `-- no lease, not connected, or an aux-app that may refuse the data: publishes before it returns
 *
 * The lease is for new closes only; what is behind when it is recalled stays behind until it is published. So all that has to be right is decided under
 * inode->lock: a close either sees the lease and is seen by the recall, or waits as without one. A hello names what is behind, too, so that the manager
 * keeps others waiting for it; a mount that is not connected makes nothing new to wait for, since its session may have expired.
 *
 * A session that expires has lost its leases, and others may have opened and written the file since. So each commit of what was closed behind says on what version of
 * the file it is based, and in which lease time; the manager refuses it where that is over and the file is another one (FP_EOVERTAKEN). It is
 * lost then, which is told as any error that no close could tell. What was behind stays apart from new leases of the file until it is gone.
 *
 * Published by steps (step.c), on the thread of late.c, which does the same for last handles: files wait side by side. The handle stays until its last
 * close is through (release.c), and with it what the manager knows to be open; this here is for closes of files that stay open, for the answer to a recall, and
 * for being quick about it. What can't be stored (store.c) or published is tried again as long as the mount lives, and the lease stays, so that an open elsewhere
 * fails (FP_ERECALL) and does not see what was before. It stays in the pool; a full pool is told to who writes more. Rejected: to give it up after
 * --io-timeout, as what close waits for is: close has said that all is well, and benefactors come back.
 *
 * A name that is given to a file (rename, link) may take the place of another one, whose data goes with that. So what was closed of the file is published before the
 * manager hears of the name, by who renames; of all files, where a directory gets a new name. Rejected: to let the manager do it later, with the commit; the name would be
 * seen by others before, or would have to wait there for a mount that may be dead.
 *
 * An error that no close could tell is told by the next close or fsync of the file, if it is open still, or else by the next open here; until then it also is the error
 * of whoever renames the file.
 */
#include <errno.h>
#include <stdlib.h>

#include "client/aux/aux.h"
#include "client/data/batch.h"
#include "client/data/internal.h"
#include "fp/bug.h"

#define AGAIN_MS   1000u /* until what can't be published is tried again */
#define TELL_MS    1000u /* how often others are told that what they wait for goes forward; below MOVED_MS of manager/lease.c */
#define LOOK_MS    20u   /* who waits for what is being published looks again after this */
#define FAILED_MAX 1024u /* files whose error is kept; of older ones it stands in the log and in fpctl status */

struct item {
    struct item *next;
    struct cl_inode *inode;        /* with a reference */
    struct cl_publishing p;
    uint64_t again_ms;
    uint64_t tell_ms, told_ms;     /* recalled: that it goes forward was told up to told_ms, and is again after tell_ms */
    uint32_t told_link;            /* its size was told to the manager over this connection */
    bool told_again;               /* … and once more, perhaps after the commit that covers it */
    bool failed;                   /* once: it is tried again, but nobody is to wait for that as long as anything else goes forward */
};

struct failed {
    uint64_t ino;
    int err;
};

struct cl_behind {
    pthread_mutex_t lock;          /* a leaf */
    struct item *items;            /* lock: new ones; all others are late.c's thread's */
    struct item *old;              /* that thread, and the end */
    atomic_uint n, recalled;       /* files; those that others wait for */
    atomic_ullong closes;          /* that were told; ever */
    atomic_uint links;             /* connections to the manager, until now */
    struct failed failed[FAILED_MAX]; /* lock: ring */
    uint32_t nfailed;              /* lock: ever */
};

int cl_behind_new(struct cl_data *d)
{
    d->behind = calloc(1, sizeof(*d->behind));
    if (!d->behind)
        return -ENOMEM;
    pthread_mutex_init(&d->behind->lock, NULL);
    return 0;
}

void cl_behind_free(struct cl_data *d)
{
    if (!d->behind)
        return;
    pthread_mutex_destroy(&d->behind->lock);
    free(d->behind);
    d->behind = NULL;
}

/* -------------------------------------------------------------- errors */

/* inode->lock held. */
void cl_behind_keep_error(struct cl_data *d, struct cl_inode *inode)
{
    struct cl_behind *b = d->behind;
    int err = inode->file ? cl_file_take_error(inode->file) : 0;

    if (err == 0 || err == -ENOENT || !inode->untold || inode->attr.nlink == 0)
        return;
    pthread_mutex_lock(&b->lock);
    b->failed[b->nfailed++ % FAILED_MAX] = (struct failed){ .ino = inode->ino, .err = err };
    pthread_mutex_unlock(&b->lock);
}

static int error_of(struct cl_data *d, uint64_t ino, bool take)
{
    struct cl_behind *b = d->behind;
    int err = 0;

    pthread_mutex_lock(&b->lock);
    for (uint32_t i = 0; i < b->nfailed && i < FAILED_MAX; i++)
        if (b->failed[i].ino == ino) {
            err = err ? err : b->failed[i].err;
            b->failed[i].ino = take ? 0 : ino;
        }
    pthread_mutex_unlock(&b->lock);
    return err;
}

int cl_behind_take_error(struct cl_data *d, uint64_t ino)
{
    return error_of(d, ino, true);
}

void cl_data_unlinked(struct cl_mount *m, uint64_t ino)
{
    (void)error_of(m->data, ino, true);
}

static bool has_failed(struct cl_behind *b)
{
    bool any = false;

    pthread_mutex_lock(&b->lock);
    for (uint32_t i = 0; i < b->nfailed && i < FAILED_MAX && !any; i++)
        any = b->failed[i].ino != 0;
    pthread_mutex_unlock(&b->lock);
    return any;
}

/* -------------------------------------------------------------- names */

bool cl_data_any_behind(struct cl_mount *m)
{
    return m->opt.close_mode == CL_CLOSE_BEHIND && (cl_behind_any(m->data) || has_failed(m->data->behind));
}

static void wait_a_look(struct cl_inode *inode)
{
    pthread_mutex_lock(&inode->lock);
    if (inode->file)
        cl_file_wait_a_while(inode->file, fp_now_ms() + LOOK_MS);
    pthread_mutex_unlock(&inode->lock);
}

/* Not what was written since: who renames one file, or the directory above it, does not mean that. */
static int publish_closed(struct cl_mount *m, struct cl_inode *inode)
{
    struct cl_publishing p = { .closed_only = true };
    bool closed;
    int rc;

    pthread_mutex_lock(&inode->lock);
    closed = inode->untold && (cl_file_is_dirty(inode->file) || cl_batch_says_end(inode->file));
    pthread_mutex_unlock(&inode->lock);
    if (!closed || FP_BUG("mount-renames-what-it-has-not-published"))
        return 0;
    while ((rc = cl_data_publish_step(m, inode, &p)) == 1)
        wait_a_look(inode);
    return rc;
}

int cl_data_publish_closed(struct cl_mount *m, uint64_t ino)
{
    int rc = error_of(m->data, ino, false);
    struct cl_inode *inode = rc == 0 ? cl_inode_get(m, ino) : NULL;

    if (inode) {
        rc = publish_closed(m, inode);
        cl_inode_put(m, inode);
    }
    return rc;
}

struct all {
    struct cl_mount *m;
    int rc;
};

static void publish_one(struct cl_inode *inode, void *arg)
{
    struct all *a = arg;
    int rc = publish_closed(a->m, inode);

    if (rc < 0)
        a->rc = rc;
}

int cl_data_publish_all_closed(struct cl_mount *m)
{
    struct all a = { .m = m };

    cl_inode_each(m, publish_one, &a);
    return a.rc;
}

/* -------------------------------------------------------------- closing */

static void add(struct cl_data *d, struct item *it)
{
    struct cl_behind *b = d->behind;

    cl_inode_ref(d->m, it->inode);
    atomic_fetch_add(&b->n, 1);
    pthread_mutex_lock(&b->lock);
    it->next = b->items;
    b->items = it;
    pthread_mutex_unlock(&b->lock);
    cl_late_look(d);
}

/* inode->lock held, all is to be sealed. Somebody may copy into what also has bytes of who closes: that is sealed when it is done, and comes along. */
static uint64_t sealed_upto(const struct cl_file *f)
{
    return f->nopen > 0 ? UINT64_MAX : f->seal_seq;
}

/* For who asks for its attributes elsewhere, and for who waits until nothing is behind. inode->lock held: what is told first is heard first. */
static void tell_closed(struct cl_data *d, const struct cl_inode *inode)
{
    Fp__Closed c = FP__CLOSED__INIT;

    c.ino = inode->ino;
    c.size_bytes = inode->closed_size;
    c.mtime_ns = inode->closed_mtime_ns;
    c.number = inode->closes;
    cl_mgr_send(d->m, FP__MSG_TYPE__MSG_CLOSED, &c.base);
}

static void tell_nothing_left(struct cl_data *d, uint64_t ino, bool lost)
{
    Fp__Closed c = FP__CLOSED__INIT;

    c.ino = ino;
    c.lost = lost;
    if (lost)
        cl_mgr_say(d->m, FP__MSG_TYPE__MSG_CLOSED, &c.base); /* no hello names it any more */
    else
        cl_mgr_send(d->m, FP__MSG_TYPE__MSG_CLOSED, &c.base);
}

void cl_behind_tell_lost(struct cl_data *d, const struct cl_inode *inode)
{
    if (inode->untold)
        tell_nothing_left(d, inode->ino, true);
}

/* inode->lock held. */
static void note_closed(struct cl_data *d, struct cl_inode *inode)
{
    struct cl_file *f = inode->file;

    cl_file_seal_all(f);
    inode->behind_again |= inode->behind;
    inode->behind = inode->untold = true;
    inode->closed_upto = sealed_upto(f);
    inode->closes = atomic_fetch_add(&d->behind->closes, 1) + 1;
    inode->closed_size = cl_file_size_bytes(f);
    inode->closed_mtime_ns = f->mtime_ns;
}

bool cl_data_close_behind(struct cl_mount *m, struct cl_handle *h, int *rc)
{
    struct cl_inode *inode = h->inode;
    struct cl_data *d = m->data;
    struct item *it;
    bool dirty, fresh;

    if (!cl_core_connected(m) || atomic_load(&d->end_ms) != 0 || cl_aux_may_refuse(m))
        return false;
    it = calloc(1, sizeof(*it));
    if (!it)
        return false;
    it->inode = inode;
    it->p.closed_only = true;
    it->told_link = atomic_load(&d->behind->links);
    pthread_mutex_lock(&inode->lock);
    if (!inode->lease || cl_batch_says_end(inode->file)) { /* published already, and no commit is left to say that it is closed: the close says it */
        pthread_mutex_unlock(&inode->lock);
        free(it);
        return false;
    }
    dirty = cl_file_is_dirty(inode->file);
    fresh = dirty && !inode->behind;
    if (dirty) {
        note_closed(d, inode);
        tell_closed(d, inode);
    }
    *rc = inode->file ? inode->file->error : 0;
    h->close_told = *rc < 0;
    pthread_mutex_unlock(&inode->lock);
    if (fresh)
        add(d, it);
    else
        free(it);
    return true;
}

uint64_t cl_data_behind_base(struct cl_mount *m, uint64_t ino)
{
    struct cl_inode *inode = m->opt.close_mode == CL_CLOSE_BEHIND ? cl_inode_get(m, ino) : NULL;
    uint64_t version = 0;

    if (!inode)
        return 0;
    pthread_mutex_lock(&inode->lock);
    if (inode->behind)
        version = inode->based_on;
    pthread_mutex_unlock(&inode->lock);
    cl_inode_put(m, inode);
    return version;
}

void cl_data_lease(struct cl_inode *inode, bool lease, uint64_t data_version)
{
    pthread_mutex_lock(&inode->lock);
    inode->taken = inode->taken && cl_file_is_dirty(inode->file);
    inode->lease = lease && !inode->taken; /* what is left of the time before is not to go out under a new one */
    if (inode->lease)
        inode->based_on = data_version;
    pthread_mutex_unlock(&inode->lock);
}

void cl_behind_tell_again(struct cl_data *d)
{
    atomic_fetch_add(&d->behind->links, 1);
    cl_late_look(d);
}

static void lost_one(struct cl_inode *inode, void *arg)
{
    (void)arg;
    pthread_mutex_lock(&inode->lock);
    inode->taken |= inode->behind;
    inode->lease = false;
    pthread_mutex_unlock(&inode->lock);
}

void cl_data_leases_lost(struct cl_mount *m)
{
    cl_inode_each(m, lost_one, NULL);
}

void cl_behind_base(const struct cl_file *f, Fp__Commit *msg)
{
    const struct cl_inode *inode = f->inode;

    if (f != inode->file || !inode->untold || !(inode->lease || inode->behind || inode->taken))
        return;
    msg->based_on = inode->based_on;
    msg->lease_time = inode->taken ? 0 : atomic_load(&f->data->m->lease_time);
}

/* -------------------------------------------------------------- recalls */

static void answer(struct cl_mount *m, uint64_t ino, uint64_t serial)
{
    Fp__Recall r = FP__RECALL__INIT;

    if (serial == 0)
        return;
    r.ino = ino;
    r.done = true;
    r.serial = serial;
    cl_mgr_send(m, FP__MSG_TYPE__MSG_RECALL, &r.base);
}

void cl_data_recalled(struct cl_mount *m, uint64_t ino, uint64_t serial)
{
    struct cl_inode *inode = cl_inode_get(m, ino);
    bool behind = false;

    if (inode) {
        pthread_mutex_lock(&inode->lock);
        inode->lease = false;
        behind = inode->behind && !FP_BUG("mount-answers-a-recall-early");
        if (behind && !inode->recalled)
            atomic_fetch_add(&m->data->behind->recalled, 1);
        if (behind) {
            inode->recalled = true;
            inode->recall_serial = serial;
        }
        pthread_mutex_unlock(&inode->lock);
        cl_inode_put(m, inode);
    }
    if (behind) {
        cl_jobs_hurry(m->data->jobs);
        cl_late_look(m->data);
    } else {
        answer(m, ino, serial);
    }
}

/* -------------------------------------------------------------- the thread of late.c */

/* All that was closed is published, or given up. False: more was closed meanwhile. */
static bool end(struct cl_data *d, struct item *it)
{
    struct cl_inode *inode = it->inode;
    uint64_t serial;
    bool failed, lost;

    pthread_mutex_lock(&inode->lock);
    if (inode->behind_again) {
        inode->behind_again = false;
        it->p = (struct cl_publishing){ .closed_only = true };
        it->failed = false;
        pthread_mutex_unlock(&inode->lock);
        return false;
    }
    inode->behind = false;
    inode->taken = false; /* what is written from now on is not of the time before */
    serial = inode->recall_serial;
    if (inode->recalled)
        atomic_fetch_sub(&d->behind->recalled, 1);
    inode->recalled = false;
    inode->recall_serial = 0;
    failed = inode->file && inode->file->error < 0;
    lost = cl_file_is_lost(inode->file);
    /* It has not become what was told; or no commit has said that it has, as while a program has it open for writing, or the manager may have heard of it later. What was refused is
     * neither: others have written the file. */
    if (lost || (!failed && (it->told_again || inode->closes_published < inode->closes)))
        tell_nothing_left(d, inode->ino, lost);
    if (inode->handles == 0)
        cl_behind_keep_error(d, inode);
    pthread_mutex_unlock(&inode->lock);
    answer(d->m, inode->ino, serial);
    return true;
}

/* Who waits for it elsewhere waits for as long as anything of this mount goes forward, as close would. */
static void tell_forward(struct cl_data *d, struct item *it, uint64_t now_ms)
{
    uint64_t moved_ms = atomic_load(&d->moved_ms);
    Fp__Recall r = FP__RECALL__INIT;

    if (it->failed || now_ms < it->tell_ms || moved_ms <= it->told_ms)
        return;
    pthread_mutex_lock(&it->inode->lock);
    r.serial = it->inode->recall_serial;
    pthread_mutex_unlock(&it->inode->lock);
    if (r.serial == 0)
        return;
    it->tell_ms = now_ms + TELL_MS;
    it->told_ms = moved_ms;
    r.ino = it->inode->ino;
    cl_mgr_send(d->m, FP__MSG_TYPE__MSG_RECALL, &r.base);
}

/* A manager that was started again does not know. */
static void tell_again(struct cl_data *d, struct item *it)
{
    uint32_t link = atomic_load(&d->behind->links);
    struct cl_inode *inode = it->inode;

    if (it->told_link == link)
        return;
    it->told_link = link;
    it->told_again = true;
    pthread_mutex_lock(&inode->lock);
    tell_closed(d, inode);
    pthread_mutex_unlock(&inode->lock);
}

/* True: it is through. */
static bool step(struct cl_data *d, struct item *it, uint64_t now_ms)
{
    struct cl_inode *inode = it->inode;
    bool unlinked;
    int rc;

    tell_forward(d, it, now_ms);
    tell_again(d, it);
    if (now_ms < it->again_ms)
        return false;
    pthread_mutex_lock(&inode->lock);
    unlinked = inode->attr.nlink == 0;
    pthread_mutex_unlock(&inode->lock);
    /* Nobody can open it any more: who has it open here does without, and the last handle drops what is left (release.c). */
    rc = unlinked ? 0 : cl_data_publish_step(d->m, inode, &it->p);
    if (rc == 1)
        return false;
    if (rc == 0)
        return end(d, it);
    it->p = (struct cl_publishing){ .closed_only = true };
    it->again_ms = now_ms + AGAIN_MS;
    it->failed |= rc != -ETIMEDOUT && rc != FP_EAWAY; /* who does not answer, or is away, comes back */
    return false;
}

void cl_behind_steps(struct cl_data *d)
{
    struct cl_behind *b = d->behind;
    uint64_t now_ms = fp_now_ms();
    struct item **p = &b->old;

    while (*p)
        p = &(*p)->next;
    pthread_mutex_lock(&b->lock);
    *p = b->items;
    b->items = NULL;
    pthread_mutex_unlock(&b->lock);
    for (p = &b->old; *p;) {
        struct item *it = *p;

        if (!step(d, it, now_ms)) {
            p = &it->next;
            continue;
        }
        *p = it->next;
        atomic_fetch_sub(&b->n, 1);
        cl_inode_put(d->m, it->inode);
        free(it);
    }
}

bool cl_behind_any(const struct cl_data *d)
{
    return atomic_load(&d->behind->n) > 0;
}

bool cl_behind_wanted(const struct cl_data *d)
{
    return atomic_load(&d->behind->recalled) > 0;
}

static void drop(struct cl_data *d, struct item *it)
{
    while (it) {
        struct item *next = it->next;

        cl_inode_put(d->m, it->inode);
        free(it);
        it = next;
    }
}

void cl_behind_stop(struct cl_data *d)
{
    struct cl_behind *b = d->behind;

    drop(d, b->old);
    drop(d, b->items);
    b->old = b->items = NULL;
}
