/*
 * The inode table: open inodes of this mount, by number.
 *
 * Called by FUSE threads (open, release, setattr, forget), the core loop (answers of the manager) and the
 * data path. One mutex protects the hash, the reference counts and the list of closed inodes; it is held for
 * a few loads and stores, never over a call into the data path, which takes inode->lock. Lock order: table,
 * then inode.
 *
 * Lookup counts of the kernel are not kept: node ids are the manager's numbers, valid for ever, so a request
 * for a number that is not in the table is simply asked of the manager. The alternative, an entry for each
 * inode that the kernel knows, costs 200 bytes for each of a million files and a lock for each LOOKUP.
 *
 * Closed inodes with a cl_file stay for a while (CLOSED_MAX, oldest out first), because a file that is
 * written, closed and opened again wants its map of slices.
 */
#include "client/append.h"
#include "client/inode.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "client/core.h"
#include "client/data.h"
#include "fp/fault.h"

#define BUCKETS_MIN 1024u
#define CLOSED_MAX  1024u

struct cl_itable {
    pthread_mutex_t lock;
    struct cl_inode **buckets; /* lock */
    size_t nbuckets;           /* lock; a power of two */
    size_t count;              /* lock */
    uint64_t held, held_write; /* lock: sums over all inodes */
    struct cl_inode *newest, *oldest;
    size_t nclosed;                /* lock */
    LIST_HEAD(, cl_open) handles; /* lock: those that the kernel has */
};

static size_t bucket_of(const struct cl_itable *t, uint64_t ino)
{
    return (size_t)((ino * 0x9e3779b97f4a7c15u) >> 20) & (t->nbuckets - 1);
}

int cl_itable_new(struct cl_itable **out)
{
    struct cl_itable *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    t->nbuckets = BUCKETS_MIN;
    t->buckets = calloc(t->nbuckets, sizeof(struct cl_inode *));
    if (!t->buckets) {
        free(t);
        return -ENOMEM;
    }
    pthread_mutex_init(&t->lock, NULL);
    *out = t;
    return 0;
}

static void inode_free(struct cl_mount *m, struct cl_inode *inode)
{
    if (inode->file)
        cl_data_forget(m, inode);
    pthread_mutex_destroy(&inode->lock);
    cl_append_free(inode);
    free(inode);
}

void cl_itable_free(struct cl_mount *m)
{
    struct cl_itable *t = m->inodes;
    if (!t)
        return;
    for (size_t b = 0; b < t->nbuckets; b++) {
        while (t->buckets[b]) {
            struct cl_inode *inode = t->buckets[b];
            t->buckets[b] = inode->next;
            inode_free(m, inode);
        }
    }
    while (!LIST_EMPTY(&t->handles)) {
        struct cl_open *o = LIST_FIRST(&t->handles);
        LIST_REMOVE(o, link);
        free(o);
    }
    pthread_mutex_destroy(&t->lock);
    free(t->buckets);
    free(t);
    m->inodes = NULL;
}

/* A table that cannot grow only gets slower. */
static void grow(struct cl_itable *t)
{
    struct cl_itable bigger = {.nbuckets = t->nbuckets * 2};
    bigger.buckets = calloc(bigger.nbuckets, sizeof(struct cl_inode *));
    if (!bigger.buckets)
        return;
    for (size_t b = 0; b < t->nbuckets; b++) {
        while (t->buckets[b]) {
            struct cl_inode *inode = t->buckets[b];
            struct cl_inode **to = &bigger.buckets[bucket_of(&bigger, inode->ino)];
            t->buckets[b] = inode->next;
            inode->next = *to;
            *to = inode;
        }
    }
    free(t->buckets);
    t->buckets = bigger.buckets;
    t->nbuckets = bigger.nbuckets;
}

static struct cl_inode *find(struct cl_itable *t, uint64_t ino)
{
    struct cl_inode *inode = t->buckets[bucket_of(t, ino)];
    while (inode && inode->ino != ino)
        inode = inode->next;
    return inode;
}

static void closed_add(struct cl_itable *t, struct cl_inode *inode)
{
    inode->closed = true;
    inode->newer = NULL;
    inode->older = t->newest;
    if (t->newest)
        t->newest->newer = inode;
    else
        t->oldest = inode;
    t->newest = inode;
    t->nclosed++;
}

static void closed_remove(struct cl_itable *t, struct cl_inode *inode)
{
    if (!inode->closed)
        return;
    if (inode->newer)
        inode->newer->older = inode->older;
    else
        t->newest = inode->older;
    if (inode->older)
        inode->older->newer = inode->newer;
    else
        t->oldest = inode->newer;
    inode->closed = false;
    t->nclosed--;
}

static void unhash(struct cl_itable *t, struct cl_inode *inode)
{
    struct cl_inode **p = &t->buckets[bucket_of(t, inode->ino)];
    while (*p != inode)
        p = &(*p)->next;
    *p = inode->next;
    closed_remove(t, inode);
    t->count--;
}

static void ref_locked(struct cl_itable *t, struct cl_inode *inode)
{
    if (inode->refs++ == 0)
        closed_remove(t, inode);
}

static struct cl_inode *make(uint64_t ino)
{
    struct cl_inode *inode = calloc(1, sizeof *inode);
    if (!inode)
        return NULL;
    inode->ino = ino;
    pthread_mutex_init(&inode->lock, NULL);
    return inode;
}

struct cl_inode *cl_inode_intern(struct cl_mount *m, const Fp__Attr *a)
{
    struct cl_itable *t = m->inodes;
    pthread_mutex_lock(&t->lock);
    struct cl_inode *inode = find(t, a->ino);
    if (!inode && (inode = make(a->ino)) != NULL) {
        if (t->count >= t->nbuckets)
            grow(t);
        struct cl_inode **b = &t->buckets[bucket_of(t, a->ino)];
        inode->next = *b;
        *b = inode;
        t->count++;
    }
    if (inode)
        ref_locked(t, inode);
    pthread_mutex_unlock(&t->lock);
    if (!inode)
        return NULL;
    pthread_mutex_lock(&inode->lock);
    cl_inode_attr_update(inode, a);
    pthread_mutex_unlock(&inode->lock);
    return inode;
}

struct cl_inode *cl_inode_get(struct cl_mount *m, uint64_t ino)
{
    struct cl_itable *t = m->inodes;
    pthread_mutex_lock(&t->lock);
    struct cl_inode *inode = find(t, ino);
    if (inode)
        ref_locked(t, inode);
    pthread_mutex_unlock(&t->lock);
    return inode;
}

int cl_inode_fetch(struct cl_mount *m, uint64_t ino, struct cl_inode **out)
{
    Fp__InodeReq req = FP__INODE_REQ__INIT;
    ProtobufCMessage *reply;
    *out = cl_inode_get(m, ino);
    if (*out)
        return 0;
    req.ino = ino;
    int rc = cl_mgr_call_sync(m, FP__MSG_TYPE__MSG_GETATTR, &req.base, &reply);
    if (rc < 0)
        return rc;
    const Fp__Attr *a = ((Fp__AttrReply *)reply)->attr;
    *out = a ? cl_inode_intern(m, a) : NULL;
    rc = *out ? 0 : a ? -ENOMEM : -EPROTO;
    protobuf_c_message_free_unpacked(reply, NULL);
    return rc;
}

void cl_inode_ref(struct cl_mount *m, struct cl_inode *inode)
{
    struct cl_itable *t = m->inodes;
    pthread_mutex_lock(&t->lock);
    ref_locked(t, inode);
    pthread_mutex_unlock(&t->lock);
}

void cl_inode_put(struct cl_mount *m, struct cl_inode *inode)
{
    struct cl_itable *t = m->inodes;
    struct cl_inode *out = NULL;
    pthread_mutex_lock(&t->lock);
    assert(inode->refs > 0);
    if (--inode->refs == 0) {
        /* Nobody else has it: file needs no inode->lock. */
        if (inode->file && !inode->gone) {
            closed_add(t, inode);
            out = t->nclosed > CLOSED_MAX ? t->oldest : NULL;
        } else {
            out = inode;
        }
        if (out)
            unhash(t, out);
    }
    pthread_mutex_unlock(&t->lock);
    if (out)
        inode_free(m, out);
}

void cl_inode_forget(struct cl_mount *m, uint64_t ino)
{
    struct cl_itable *t = m->inodes;
    pthread_mutex_lock(&t->lock);
    struct cl_inode *inode = find(t, ino);
    if (inode && inode->refs == 0)
        unhash(t, inode);
    else
        inode = NULL;
    pthread_mutex_unlock(&t->lock);
    if (inode)
        inode_free(m, inode);
}

void cl_open_add(struct cl_mount *m, struct cl_open *o)
{
    pthread_mutex_lock(&m->inodes->lock);
    LIST_INSERT_HEAD(&m->inodes->handles, o, link);
    pthread_mutex_unlock(&m->inodes->lock);
}

void cl_open_remove(struct cl_mount *m, struct cl_open *o)
{
    pthread_mutex_lock(&m->inodes->lock);
    LIST_REMOVE(o, link);
    pthread_mutex_unlock(&m->inodes->lock);
}

ssize_t cl_open_left(struct cl_mount *m, struct cl_open ***out)
{
    struct cl_open *o;
    size_t all = 0;
    ssize_t n = 0;
    pthread_mutex_lock(&m->inodes->lock);
    LIST_FOREACH(o, &m->inodes->handles, link)
        all++;
    *out = calloc(all + 1, sizeof(struct cl_open *));
    LIST_FOREACH(o, &m->inodes->handles, link) {
        if (*out && atomic_load(&o->closed))
            (*out)[n++] = o;
    }
    pthread_mutex_unlock(&m->inodes->lock);
    return *out ? n : -ENOMEM;
}

void cl_inode_hold(struct cl_mount *m, struct cl_inode *inode, bool write)
{
    struct cl_itable *t = m->inodes;
    pthread_mutex_lock(&t->lock);
    inode->held++;
    t->held++;
    inode->held_write += write;
    t->held_write += write;
    pthread_mutex_unlock(&t->lock);
}

void cl_inode_unhold(struct cl_mount *m, struct cl_inode *inode, bool write, void (*under_lock)(void *arg), void *arg)
{
    struct cl_itable *t = m->inodes;
    pthread_mutex_lock(&t->lock);
    assert(inode->held > 0 && (!write || inode->held_write > 0));
    inode->held--;
    t->held--;
    inode->held_write -= write;
    t->held_write -= write;
    under_lock(arg);
    pthread_mutex_unlock(&t->lock);
}

/* Room for n, which may be none. fault: of the call's fault point. */
static int list_new(uint64_t **list, size_t n, int fault)
{
    *list = n == 0 || fault < 0 ? NULL : malloc(n * sizeof **list);
    return n == 0 || *list ? 0 : -ENOMEM;
}

int cl_inode_held_list(struct cl_mount *m, struct cl_held *out, void (*under_lock)(void *arg), void *arg)
{
    struct cl_itable *t = m->inodes;
    *out = (struct cl_held){NULL, NULL, 0, 0};
    pthread_mutex_lock(&t->lock);
    int rc = list_new(&out->ino, t->held, FP_FAULT_POINT("cl.hello_held"));
    rc = rc < 0 ? rc : list_new(&out->write_ino, t->held_write, 0);
    for (size_t b = 0; rc == 0 && b < t->nbuckets; b++) {
        for (struct cl_inode *inode = t->buckets[b]; inode; inode = inode->next) {
            for (uint32_t i = 0; i < inode->held; i++)
                out->ino[out->n++] = inode->ino;
            for (uint32_t i = 0; i < inode->held_write; i++)
                out->write_ino[out->nwrite++] = inode->ino;
        }
    }
    under_lock(arg);
    pthread_mutex_unlock(&t->lock);
    return rc;
}

int cl_inode_leased_list(struct cl_mount *m, uint64_t **out, size_t *n)
{
    struct cl_itable *t = m->inodes;
    uint64_t *list;
    pthread_mutex_lock(&t->lock);
    int rc = list_new(out, t->count, FP_FAULT_POINT("cl.hello_leased"));
    list = *out;
    *n = 0;
    for (size_t b = 0; list && b < t->nbuckets; b++) {
        for (struct cl_inode *inode = t->buckets[b]; inode; inode = inode->next) {
            pthread_mutex_lock(&inode->lock);
            if (inode->held > 0 && (inode->lease || inode->behind) && !inode->taken)
                list[(*n)++] = inode->ino;
            pthread_mutex_unlock(&inode->lock);
        }
    }
    pthread_mutex_unlock(&t->lock);
    return rc;
}

uint64_t cl_inode_held_count(struct cl_mount *m)
{
    struct cl_itable *t = m->inodes;
    pthread_mutex_lock(&t->lock);
    uint64_t n = t->held;
    pthread_mutex_unlock(&t->lock);
    return n;
}

void cl_inode_set_nlink(struct cl_mount *m, uint64_t ino, uint32_t nlink)
{
    struct cl_inode *inode = cl_inode_get(m, ino);
    if (!inode)
        return;
    pthread_mutex_lock(&inode->lock);
    inode->attr.nlink = nlink;
    pthread_mutex_unlock(&inode->lock);
    cl_inode_put(m, inode);
}

void cl_inode_mark_gone(struct cl_mount *m, uint64_t ino)
{
    struct cl_itable *t = m->inodes;
    pthread_mutex_lock(&t->lock);
    struct cl_inode *inode = find(t, ino);
    if (inode)
        __atomic_store_n(&inode->gone, true, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&t->lock);
}

void cl_inode_each(struct cl_mount *m, void (*fn)(struct cl_inode *inode, void *arg), void *arg)
{
    struct cl_itable *t = m->inodes;
    pthread_mutex_lock(&t->lock);
    struct cl_inode **all = malloc((t->count ? t->count : 1) * sizeof(struct cl_inode *));
    size_t n = 0;
    for (size_t b = 0; all && b < t->nbuckets; b++) {
        for (struct cl_inode *inode = t->buckets[b]; inode; inode = inode->next) {
            ref_locked(t, inode);
            all[n++] = inode;
        }
    }
    pthread_mutex_unlock(&t->lock);
    for (size_t i = 0; i < n; i++) {
        fn(all[i], arg);
        cl_inode_put(m, all[i]);
    }
    free(all);
}

/* -------------------------------------------------------------- attributes */

static void attr_from_msg(struct cl_attr *to, const Fp__Attr *a)
{
    *to = (struct cl_attr){
        .ino = a->ino,
        .size_bytes = a->size_bytes,
        .blocks = a->blocks,
        .rdev = a->rdev,
        .data_version = a->data_version,
        .generation = a->generation,
        .mode = a->mode,
        .nlink = a->nlink,
        .uid = a->uid,
        .gid = a->gid,
        .chunk_size_bytes = a->chunk_size_bytes,
        .stripe = a->stripe,
        .strict = a->strict,
        .atime_ns = a->atime_ns,
        .mtime_ns = a->mtime_ns,
        .ctime_ns = a->ctime_ns,
        .btime_ns = a->btime_ns,
    };
}

void cl_inode_attr_update(struct cl_inode *inode, const Fp__Attr *a)
{
    struct cl_attr old = inode->attr;
    attr_from_msg(&inode->attr, a);
    if (old.ino == a->ino && a->data_version < old.data_version) {
        inode->attr.data_version = old.data_version;
        inode->attr.size_bytes = old.size_bytes;
        inode->attr.blocks = old.blocks;
        inode->attr.mtime_ns = old.mtime_ns;
    }
    if (inode->lease && a->data_version > inode->based_on) /* nobody else can have changed it */
        inode->based_on = a->data_version;
    /* A size that programs are told has the data that belongs to it. */
    cl_data_news(inode, a->data_version);
}

/* Seconds are rounded down, so that times before 1970 keep 0 <= nanoseconds. */
static struct timespec time_from_ns(int64_t ns)
{
    int64_t s = ns / 1000000000, rest = ns % 1000000000;
    if (rest < 0) {
        rest += 1000000000;
        s--;
    }
    return (struct timespec){.tv_sec = s, .tv_nsec = rest};
}

static void stat_from_attr(const struct cl_attr *a, struct stat *st)
{
    memset(st, 0, sizeof *st);
    st->st_ino = a->ino;
    st->st_mode = a->mode;
    st->st_nlink = a->nlink;
    st->st_uid = a->uid;
    st->st_gid = a->gid;
    st->st_rdev = a->rdev;
    st->st_size = (off_t)a->size_bytes;
    st->st_blocks = (blkcnt_t)a->blocks;
    st->st_blksize = S_ISREG(a->mode) ? CL_BLKSIZE_BYTES : 4096;
    st->st_atim = time_from_ns(a->atime_ns);
    st->st_mtim = time_from_ns(a->mtime_ns);
    st->st_ctim = time_from_ns(a->ctime_ns);
}

void cl_inode_stat(struct cl_mount *m, struct cl_inode *inode, struct stat *st)
{
    (void)m;
    pthread_mutex_lock(&inode->lock);
    stat_from_attr(&inode->attr, st);
    if (inode->file)
        cl_data_overlay(inode, st);
    pthread_mutex_unlock(&inode->lock);
}

void cl_attr_stat(struct cl_mount *m, const Fp__Attr *a, struct stat *st)
{
    struct cl_inode *inode = S_ISREG(a->mode) ? cl_inode_get(m, a->ino) : NULL;
    if (!inode) {
        struct cl_attr attr;
        attr_from_msg(&attr, a);
        stat_from_attr(&attr, st);
        return;
    }
    pthread_mutex_lock(&inode->lock);
    cl_inode_attr_update(inode, a);
    pthread_mutex_unlock(&inode->lock);
    cl_inode_stat(m, inode, st);
    cl_inode_put(m, inode);
}
