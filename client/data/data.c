/*
 * The data path as a whole: start and stop, open, the overlay for stat, statistics. See data.h for who calls what.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <unistd.h>

#include "client/aux/aux.h"
#include "client/data/ext.h"
#include "client/data/fold.h"
#include "client/data/internal.h"
#include "client/receive.h"
#include "fp/bug.h"

#define TICK_MS 500u
#define POOL_MIN_PAGES 512u            /* two windows of the largest chunk size */

static size_t reclaim(void *arg, size_t want)
{
    struct cl_data *d = arg;

    return cl_rcache_reclaim(d->rcache, want);
}

static void tick(void *arg)
{
    struct cl_data *d = arg;
    uint64_t now_ms = fp_now_ms();

    cl_age_tick(d, now_ms);
    cl_space_tick(d, now_ms, false);
    cl_segs_tick(d);
    cl_strict_tick(d, false);
    cl_scratch_tick(&d->scratch);
}

static unsigned thread_count(const struct cl_options *o)
{
    if (o->store_threads > 0)
        return (unsigned)o->store_threads;
    return o->ncores > 0 ? 2 * o->ncores : 4;
}

static void init_locks(struct cl_data *d)
{
    pthread_condattr_t a;

    pthread_mutex_init(&d->bnf_lock, NULL);
    pthread_mutex_init(&d->space_lock, NULL);
    pthread_mutex_init(&d->age_lock, NULL);
    pthread_mutex_init(&d->error_lock, NULL);
    pthread_mutex_init(&d->end_lock, NULL);
    pthread_mutex_init(&d->strict_lock, NULL);
    pthread_condattr_init(&a);
    pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
    pthread_cond_init(&d->space_cond, &a);
    cl_scratch_init(&d->scratch);
    pthread_mutex_init(&d->coded_lock, NULL);
    pthread_cond_init(&d->coded_cond, &a);
    pthread_condattr_destroy(&a);
    atomic_store(&d->chunk_counter, 1);
}

int cl_data_new(struct cl_mount *m)
{
    struct cl_data *d = calloc(1, sizeof(*d));

    if (d)
        d->forgotten = cl_forgotten_new();
    if (!d || !d->forgotten || cl_ext_new(&d->ext) < 0 || cl_behind_new(d) < 0 || cl_late_new(d) < 0 || cl_fold_new(d) < 0) {
        if (d) {
            cl_forgotten_free(d->forgotten);
            cl_ext_free(d->ext);
            cl_behind_free(d);
            cl_late_free(d);
        }
        free(d);
        return -ENOMEM;
    }
    d->m = m;
    init_locks(d);
    m->data = d;
    return 0;
}

int cl_data_start(struct cl_mount *m)
{
    const struct cl_options *o = &m->opt;
    struct cl_data *d = m->data;
    uint64_t bytes = o->pool_bytes;
    int rc;

    if (bytes < POOL_MIN_PAGES * CL_PAGE_BYTES)
        bytes = POOL_MIN_PAGES * CL_PAGE_BYTES;
    rc = cl_pool_new_lending(bytes, (size_t)o->threads * CL_RECEIVE_PAGES_MAX, reclaim, cl_age_pressure, d, &d->pool);
    if (rc < 0) {
        FP_ERROR("a pool of %llu bytes can't be had (%s): give a smaller --pool", (unsigned long long)bytes, fp_strerror(rc));
        return rc;
    }
    cl_admit_init(&d->readers, cl_pool_pages(d->pool) / 2);
    rc = cl_rcache_new(d, &d->rcache);
    if (rc == 0)
        rc = cl_jobs_new(thread_count(o), o->ncores > 0 ? &o->cores : NULL, TICK_MS, tick, d, &d->jobs);
    if (rc == 0)
        rc = cl_late_start(m);
    if (rc == 0)
        rc = cl_fold_start(m);
    return rc;
}

/* inode->lock taken here: what could not be written out by now is given up. */
static void give_up_one(struct cl_inode *inode, void *arg)
{
    struct cl_file *f;

    (void)arg;
    pthread_mutex_lock(&inode->lock);
    f = inode->file;
    if (f) {
        /* `stopping` ends what is on its way: soon, or with the call to a remote benefactor that is under way. Who waited for that may then have sent a commit, which has these buffers. */
        while (f->fl_head || f->committing) {
            if (f->committing) {
                pthread_mutex_unlock(&inode->lock);
                cl_mgr_fail_lasting(f->data->m, FP_ESTOPPING);
                pthread_mutex_lock(&inode->lock);
            }
            if (f->fl_head || f->committing)
                (void)cl_file_wait(f, fp_now_ms() + 1000);
        }
        for (uint32_t i = 0; i < f->nwins; i++)
            while (f->wins[i]->bufs)
                cl_file_drop_buf(f, f->wins[i], f->wins[i]->bufs);
    }
    pthread_mutex_unlock(&inode->lock);
}

/* Nothing runs any more but the threads of the data path: cl_data_sync_at_end has done what could be done. */
static void give_up(struct cl_data *d)
{
    pthread_mutex_lock(&d->space_lock);
    pthread_cond_broadcast(&d->space_cond);
    pthread_mutex_unlock(&d->space_lock);
    (void)cl_data_give_up(d->m);
    cl_inode_each(d->m, give_up_one, NULL);
}

void cl_data_stop(struct cl_mount *m)
{
    struct cl_data *d = m->data;

    if (!d)
        return;
    atomic_store(&d->stopping, true);
    cl_data_late_stop(m);
    if (d->jobs) {
        cl_mgr_fail_lasting(m, FP_ESTOPPING); /* commits without an answer */
        cl_fold_stop(d);
        give_up(d);
        cl_strict_tick(d, true);
        cl_jobs_free(d->jobs);
        d->jobs = NULL;
        cl_space_tick(d, fp_now_ms(), true);
    }
    cl_space_fini(d);
    cl_rcache_free(d->rcache);
    cl_pool_free(d->pool);
    cl_admit_fini(&d->readers);
    d->rcache = NULL;
    d->pool = NULL;
}

void cl_data_end_by(struct cl_mount *m, uint64_t deadline_ms)
{
    atomic_store(&m->data->end_ms, deadline_ms);
}

void cl_data_free(struct cl_mount *m)
{
    struct cl_data *d = m->data;

    if (!d)
        return;
    cl_bnfs_free(d);
    cl_ext_free(d->ext);
    cl_forgotten_free(d->forgotten);
    cl_late_free(d);
    cl_behind_free(d);
    cl_fold_free(d);
    pthread_cond_destroy(&d->space_cond);
    pthread_mutex_destroy(&d->bnf_lock);
    pthread_mutex_destroy(&d->space_lock);
    pthread_mutex_destroy(&d->age_lock);
    pthread_mutex_destroy(&d->error_lock);
    pthread_mutex_destroy(&d->end_lock);
    pthread_mutex_destroy(&d->strict_lock);
    cl_scratch_fini(&d->scratch);
    pthread_mutex_destroy(&d->coded_lock);
    pthread_cond_destroy(&d->coded_cond);
    free(d);
    m->data = NULL;
}

void cl_data_bnf_table(struct cl_mount *m, const Fp__BnfTable *t)
{
    cl_bnfs_update(m->data, t);
}

/* -------------------------------------------------------------- every file */

struct each {
    struct cl_data *d;
    bool end;
    uint64_t deadline_ms;
    int rc;
};

static void publish_one(struct cl_inode *inode, void *arg)
{
    struct each *e = arg;
    int rc = e->end ? cl_publish_at_end(e->d, inode, e->deadline_ms) : cl_publish_for_others(e->d, inode, e->deadline_ms);

    if (rc < 0)
        e->rc = rc;
}

struct lost {
    uint64_t losses;
    bool any;
};

static void look_for_loss(struct cl_inode *inode, void *arg)
{
    struct lost *l = arg;

    pthread_mutex_lock(&inode->lock);
    l->any |= inode->file && (inode->file->forgotten_by_manager || (inode->file->unsynced && inode->file->losses_seen != l->losses));
    pthread_mutex_unlock(&inode->lock);
}

/* Files that have lost data and were not told: told once here, and each of them all the same by its own fsync. */
static int tell_losses(struct cl_mount *m)
{
    struct cl_data *d = m->data;
    struct lost l = { .losses = atomic_load(&d->losses) };
    uint64_t all = l.losses + atomic_load(&d->lives); /* both only grow */

    if (atomic_exchange(&d->losses_told, all) == all)
        return 0;
    cl_inode_each(m, look_for_loss, &l);
    if (!l.any && !cl_forgotten_lost(d->forgotten, l.losses))
        return 0;
    atomic_store(&d->lost, true);
    cl_data_note_error(d, "a benefactor, or the manager, lost what had not been synced of files: the fsync of each file tells which");
    return -EIO;
}

static int sync_all(struct cl_mount *m, struct each *e, bool durable)
{
    Fp__Sync msg = FP__SYNC__INIT;
    uint64_t changes;
    int rc;

    cl_inode_each(m, publish_one, e);
    if (e->rc < 0 || !durable)
        return e->rc;
    rc = cl_bnfs_sync(m->data, NULL);
    changes = atomic_load(&m->data->changes);
    if (rc == 0)
        rc = cl_mgr_call_sync(m, FP__MSG_TYPE__MSG_SYNC, &msg.base, NULL);
    if (rc < 0)
        return rc;
    cl_changes_synced(m->data, changes);
    return tell_losses(m);
}

int cl_data_sync_all(struct cl_mount *m, bool durable, uint64_t deadline_ms)
{
    struct each e = { .d = m->data, .deadline_ms = deadline_ms };

    return sync_all(m, &e, durable);
}

int cl_data_sync_at_end(struct cl_mount *m, uint64_t deadline_ms)
{
    struct each e = { .d = m->data, .end = true, .deadline_ms = deadline_ms };

    return sync_all(m, &e, true);
}

/* inode->lock held: forget what was stored under a session that the manager does not know any more; returns its bytes. */
static uint64_t drop_stored(struct cl_file *f)
{
    uint64_t lost = 0;

    for (uint32_t i = 0; i < f->nwins; i++) {
        struct cl_wbuf *b, *next;

        for (b = f->wins[i]->bufs; b; b = next) {
            next = b->next;
            if (b->state == CL_WBUF_STORED && !b->committing) {
                lost += b->counted_bytes;
                cl_file_gone(f, b);
                cl_file_drop_buf(f, f->wins[i], b);
            }
        }
    }
    return lost;
}

static void manager_back_one(struct cl_inode *inode, void *arg)
{
    (void)arg;
    pthread_mutex_lock(&inode->lock);
    inode->attr.data_version = 0;
    if (inode->file) {
        cl_file_forget_map(inode->file);
        inode->file->map_version = inode->file->own_version = inode->file->others_version = 0;
    }
    pthread_mutex_unlock(&inode->lock);
}

void cl_data_manager_back(struct cl_mount *m)
{
    if (!FP_BUG("mount-compares-versions-of-two-managers"))
        cl_inode_each(m, manager_back_one, NULL);
    cl_behind_tell_again(m->data);
}

static void session_new_one(struct cl_inode *inode, void *arg)
{
    (void)arg;
    pthread_mutex_lock(&inode->lock);
    inode->lease = false;
    if (inode->file) {
        uint64_t lost = drop_stored(inode->file);

        if (lost > 0)
            cl_file_set_error(inode->file, -EIO, lost, "the manager forgot this mount for too long; unpublished data is lost");
        cl_file_forget_map(inode->file);
        inode->file->map_version = 0;
    }
    pthread_mutex_unlock(&inode->lock);
}

void cl_data_session_new(struct cl_mount *m)
{
    cl_inode_each(m, session_new_one, NULL);
    cl_aux_session_new(m);
}

/* -------------------------------------------------------------- one file */

int cl_data_open(struct cl_mount *m, struct cl_handle *h, const Fp__Attr *a)
{
    struct cl_inode *inode = h->inode;
    int rc = cl_behind_take_error(m->data, inode->ino);

    if (rc < 0)
        return rc; /* what was written and closed here, and could not be published: told once */
    h->strict = m->opt.strict || a->strict;
    pthread_mutex_lock(&inode->lock);
    inode->handles++;
    inode->unclosed += h->writes;
    cl_data_news(inode, a->data_version);
    pthread_mutex_unlock(&inode->lock);
    return 0;
}

void cl_data_wrote(struct cl_mount *m, struct cl_handle *h)
{
    struct cl_inode *inode = h->inode;
    bool tell = false;

    if (atomic_load(&h->closing) == CL_WRITTEN)
        return;
    pthread_mutex_lock(&inode->lock);
    if (atomic_load(&h->closing) != CL_WRITTEN) {
        tell = h->writes && (!h->fresh || atomic_load(&h->closing) == CL_CLOSED);
        inode->unclosed += h->writes && atomic_load(&h->closing) == CL_CLOSED;
        inode->unended = true;
        atomic_store(&h->closing, CL_WRITTEN);
    }
    pthread_mutex_unlock(&inode->lock);
    if (tell)
        cl_mgr_wrote(m, inode->ino);
}

void cl_data_changed(struct cl_mount *m, struct cl_handle *h)
{
    cl_data_wrote(m, h);
    atomic_store(&h->open.closed, false);
    pthread_mutex_lock(&h->inode->lock);
    h->inode->unended = true;
    pthread_mutex_unlock(&h->inode->lock);
}

void cl_data_closes(struct cl_handle *h)
{
    struct cl_inode *inode = h->inode;

    if (!h->writes)
        return;
    pthread_mutex_lock(&inode->lock);
    inode->unclosed -= atomic_load(&h->closing) != CL_CLOSED;
    atomic_store(&h->closing, CL_CLOSED);
    pthread_mutex_unlock(&inode->lock);
}

bool cl_data_locked(struct cl_mount *m, struct cl_inode *inode, const Fp__Attr *a)
{
    struct cl_file *f;
    bool changed;

    (void)m;
    pthread_mutex_lock(&inode->lock);
    f = inode->file;
    changed = a->data_version > inode->attr.data_version || (f && a->data_version > f->map_version);
    if (f && a->data_version > f->map_version) {
        cl_file_forget_map(f);
        f->map_version = a->data_version;
    }
    cl_inode_attr_update(inode, a);
    pthread_mutex_unlock(&inode->lock);
    return changed;
}

int cl_data_publish_written(struct cl_mount *m, struct cl_inode *inode)
{
    bool dirty;

    pthread_mutex_lock(&inode->lock);
    dirty = cl_file_is_dirty(inode->file);
    pthread_mutex_unlock(&inode->lock);
    return dirty ? cl_publish_for_others(m->data, inode, CL_BY_PROGRESS) : 0;
}

uint64_t cl_data_size_bytes(const struct cl_inode *inode)
{
    return inode->file ? cl_file_size_bytes(inode->file) : inode->attr.size_bytes;
}

struct run_job {
    struct cl_job job;             /* first */
    void (*fn)(void *arg);
    void *arg;
};

static void run_job(struct cl_job *job)
{
    struct run_job *r = (struct run_job *)job;

    r->fn(r->arg);
    free(r);
}

struct cl_pool *cl_data_pool(struct cl_mount *m)
{
    return m->data->pool;
}

int cl_data_run(struct cl_mount *m, void (*fn)(void *arg), void *arg)
{
    struct run_job *r = calloc(1, sizeof(*r));

    if (!r)
        return -ENOMEM;
    *r = (struct run_job){ .job.run = run_job, .fn = fn, .arg = arg };
    cl_jobs_post(m->data->jobs, &r->job, false);
    return 0;
}

void cl_data_forget(struct cl_mount *m, struct cl_inode *inode)
{
    const struct cl_file *f = m->data ? inode->file : NULL;

    if (f && inode->attr.nlink > 0 &&
        (f->unsynced || f->forgotten_by_manager || f->last_change > atomic_load(&m->data->changes_synced)))
        cl_forgotten_add(m->data->forgotten, inode->ino, &(struct cl_left){ f->unsynced, f->forgotten_by_manager, f->losses_seen, f->last_change });
    cl_file_free(inode->file);
    inode->file = NULL;
}

void cl_data_tell_error(struct cl_mount *m, const char *line)
{
    cl_data_note_error(m->data, "%s", line);
}

void cl_data_append_lost(struct cl_inode *inode, uint64_t version)
{
    if (cl_file_is_dirty(inode->file) && !inode->file->append_base)
        inode->file->append_base = version;
}

bool cl_data_append_is_lost(const struct cl_inode *inode)
{
    return inode->file && inode->file->append_base;
}

void cl_data_lock_lost(struct cl_mount *m, uint64_t ino)
{
    struct cl_inode *inode = cl_inode_get(m, ino);

    if (!inode)
        return;
    pthread_mutex_lock(&inode->lock);
    if (cl_file_is_dirty(inode->file) && !inode->file->error)
        inode->file->error = -EIO;
    pthread_mutex_unlock(&inode->lock);
    cl_inode_put(m, inode);
}

/* inode->lock held: what it will take, as far as is known. What is written in place of something else takes nothing more, and what was cut off takes nothing. */
static blkcnt_t blocks_of(const struct cl_file *f, const struct stat *st)
{
    blkcnt_t n = st->st_blocks + (blkcnt_t)((f->dirty_bytes + f->uncommitted_bytes + 511) / 512), most = (st->st_size + 511) / 512;

    if (most < st->st_blocks)
        most = st->st_blocks;
    return n < most ? n : most;
}

void cl_data_overlay(struct cl_inode *inode, struct stat *st)
{
    const struct cl_file *f = inode->file;

    if (!cl_file_is_dirty(f) && !(f && f->gone.n > 0))
        return;
    st->st_size = (off_t)cl_file_size_bytes(f);
    st->st_blocks = blocks_of(f, st);
    if (f->mtime_ns) {
        st->st_mtim.tv_sec = f->mtime_ns / 1000000000;
        st->st_mtim.tv_nsec = f->mtime_ns % 1000000000;
        if (st->st_ctim.tv_sec < st->st_mtim.tv_sec || (st->st_ctim.tv_sec == st->st_mtim.tv_sec && st->st_ctim.tv_nsec < st->st_mtim.tv_nsec))
            st->st_ctim = st->st_mtim; /* else something was changed since that the manager has been told of */
    }
    if (f->kill_suidgid)
        st->st_mode &= ~(mode_t)(S_ISUID | ((st->st_mode & S_IXGRP) ? S_ISGID : 0));
}

void cl_data_mtime_was_set(struct cl_inode *inode)
{
    if (inode->file)
        inode->file->mtime_ns = 0;
}

void cl_data_at_risk(struct cl_inode *inode, uint64_t *dirty_bytes, uint64_t *uncommitted_bytes)
{
    pthread_mutex_lock(&inode->lock);
    *dirty_bytes = inode->file ? inode->file->dirty_bytes : 0;
    *uncommitted_bytes = inode->file ? inode->file->uncommitted_bytes : 0;
    pthread_mutex_unlock(&inode->lock);
}

void cl_data_stats(struct cl_mount *m, Fp__ClientStats *out)
{
    struct cl_data *d = m->data;

    out->pool_bytes = (uint64_t)cl_pool_pages(d->pool) * CL_PAGE_BYTES;
    out->pool_used_bytes = out->pool_bytes - (uint64_t)cl_pool_free_pages(d->pool) * CL_PAGE_BYTES;
    out->dirty_bytes = atomic_load(&d->dirty_bytes);
    out->uncommitted_bytes = atomic_load(&d->uncommitted_bytes);
    out->read_bytes = atomic_load(&d->read_bytes);
    out->written_bytes = atomic_load(&d->written_bytes);
    out->errors = atomic_load(&d->errors);
    pthread_mutex_lock(&d->error_lock);
    memcpy(d->last_error_copy, d->last_error, sizeof(d->last_error));
    out->last_error_ns = d->last_error_ns;
    pthread_mutex_unlock(&d->error_lock);
    out->last_error = d->last_error_copy;
}
