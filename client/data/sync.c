/*
 * What fsync needs beyond the segments that this mount has written itself: data of the same file that other sessions have stored. Other mounts are such
 * sessions, and this one before it was killed and mounted again. Runs on FUSE threads.
 *
 * The manager knows who keeps what: its answer to MSG_SYNC, which every fsync ends with, names the benefactors to be asked (MSG_BNF_SYNC). A file that only
 * this mount has written since it was empty, or since its last fsync, has none, which its data_version tells: then nothing more is sent. Asking the other
 * mounts instead was rejected: they may be dead, and the data is with the benefactors.
 */
#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/data/internal.h"
#include "fp/bug.h"

#define MAP_WINDOWS 65536u /* asked for at a time; the manager bounds its answer */
/* A benefactor that has just been started again, or whose link broke, is asked again for so long. */
#define AGAIN_MS 3000u

/* -------------------------------------------------------------- asking benefactors */

struct ask {
    struct cl_rcall call;          /* first: done gets this */
    sem_t *answered;
    struct cl_bnf *bnf;            /* NULL: not known here */
    uint32_t id;
    int status;                    /* 1: to be asked */
    bool posted;
};

static void on_answer(struct cl_rcall *call, int status, const ProtobufCMessage *reply)
{
    struct ask *a = (struct ask *)call;

    (void)reply;
    a->status = status;
    sem_post(a->answered);
}

/* Those of other nodes all at once, those of this node meanwhile. */
static void ask_all(struct cl_data *d, struct ask *a, size_t n)
{
    Fp__BnfSync q = FP__BNF_SYNC__INIT;
    uint32_t timeout_ms = d->m->opt.io_timeout_ms;
    sem_t answered;

    sem_init(&answered, 0, 0);
    for (size_t i = 0; i < n; i++) {
        a[i].posted = a[i].status == 1 && !cl_bnf_is_local(a[i].bnf);
        if (!a[i].posted)
            continue;
        a[i].answered = &answered;
        a[i].call = (struct cl_rcall){
            .bnf = a[i].bnf, .type = FP__MSG_TYPE__MSG_BNF_SYNC, .msg = &q.base, .timeout_ms = timeout_ms, .done = on_answer,
        };
        cl_bnf_remote_call(&a[i].call);
    }
    for (size_t i = 0; i < n; i++)
        if (!a[i].posted && a[i].status == 1)
            a[i].status = cl_bnf_local_sync(a[i].bnf, timeout_ms);
    for (size_t i = 0; i < n; i++)
        while (a[i].posted && sem_wait(&answered) < 0)
            ; /* EINTR */
    sem_destroy(&answered);
}

/* Not after an error of its own: a second sync might succeed although the first has lost data. */
static bool worth_asking_again(const struct ask *a)
{
    return a->bnf && a->bnf->state != FP__BNF_STATE__BNF_DOWN &&
           (a->status == -ENOTCONN || a->status == -ECONNRESET || a->status == -ECONNREFUSED || a->status == -EPIPE ||
        a->status == FP_EPEER_GONE);
}

static size_t asks_fill(struct cl_data *d, const uint32_t *ids, size_t n, struct ask *a, size_t cap)
{
    struct cl_bnf *b;
    size_t k = 0;

    if (ids) {
        for (; k < n; k++)
            a[k] = (struct ask){ .id = ids[k], .bnf = cl_bnf_find(d, ids[k]) };
    } else {
        pthread_mutex_lock(&d->bnf_lock);
        b = d->bnfs;
        pthread_mutex_unlock(&d->bnf_lock);
        for (; b && k < cap; b = b->next)
            a[k++] = (struct ask){ .id = b->id, .bnf = b };
    }
    for (size_t i = 0; i < k; i++)
        a[i].status = a[i].bnf ? 1 : FP_ENOBENEFACTOR;
    return k;
}

int cl_bnfs_sync_others(struct cl_data *d, const uint32_t *ids, size_t n, struct cl_unsynced *failed)
{
    uint64_t until_ms = fp_now_ms() + AGAIN_MS;
    struct ask *a;
    bool again;
    int rc = 0;

    memset(failed, 0, sizeof(*failed));
    if (!ids) {
        pthread_mutex_lock(&d->bnf_lock);
        n = d->nbnfs;
        pthread_mutex_unlock(&d->bnf_lock);
    }
    a = calloc(n + 1, sizeof(*a));
    if (!a)
        return -ENOMEM;
    n = asks_fill(d, ids, n, a, n);
    do {
        ask_all(d, a, n);
        again = false;
        for (size_t i = 0; i < n && fp_now_ms() < until_ms; i++)
            if (a[i].status < 0 && worth_asking_again(&a[i])) {
                a[i].status = 1;
                again = true;
            }
        usleep(again ? 100000 : 0);
    } while (again);
    for (size_t i = 0; i < n; i++)
        if (a[i].status < 0) {
            rc = a[i].status;
            cl_unsynced_add(failed, a[i].id);
        }
    free(a);
    return rc;
}

/* -------------------------------------------------------------- which benefactors concern a file */

bool cl_sync_concerns(struct cl_data *d, struct cl_inode *inode, const struct cl_unsynced *failed)
{
    Fp__SliceMap req = FP__SLICE_MAP__INIT;
    bool found = false, end = false;

    req.ino = inode->ino;
    req.win_count = MAP_WINDOWS;
    while (!found && !end) {
        ProtobufCMessage *m = NULL;
        const Fp__SliceMapReply *r;
        int rc = cl_mgr_call_sync(d->m, FP__MSG_TYPE__MSG_SLICEMAP, &req.base, &m);

        if (rc < 0)
            return rc != -ENOENT;
        r = (const Fp__SliceMapReply *)m;
        for (size_t i = 0; i < r->n_slices && !found; i++)
            found = cl_unsynced_has(failed, r->slices[i]->bnf);
        end = r->win_end <= req.win_from || r->win_end * inode->attr.chunk_size_bytes >= r->size_bytes;
        req.win_from = r->win_end;
        protobuf_c_message_free_unpacked(m, NULL);
    }
    return found;
}

/* Has one of those named lost, after `since`, what it had acknowledged and not synced? Which chunks that were, nobody knows. */
static bool lost_since(struct cl_data *d, const Fp__SyncReply *r, uint64_t since)
{
    if (r->all)
        return atomic_load(&d->losses) > since;
    for (size_t i = 0; i < r->n_bnfs; i++) {
        struct cl_bnf *b = cl_bnf_find(d, r->bnfs[i]);

        if (b && atomic_load(&b->lost_at) > since)
            return true;
    }
    return false;
}

static int sync_named(struct cl_data *d, struct cl_inode *inode, const Fp__SyncReply *r)
{
    struct cl_unsynced failed;
    int rc;

    if ((r->n_bnfs == 0 && !r->all) || FP_BUG("mount-syncs-only-its-own"))
        return 0;
    rc = cl_bnfs_sync_others(d, r->all ? NULL : r->bnfs, r->n_bnfs, &failed);
    if (rc < 0 && r->all && !cl_sync_concerns(d, inode, &failed))
        rc = 0;
    if (rc < 0)
        cl_data_note_error(d, "inode %llu: what other mounts wrote could not be made durable on benefactor %u: %s",
                   (unsigned long long)inode->ino, failed.n > 0 ? failed.id[0] : 0, fp_strerror(rc));
    return rc;
}

/* Others have published since: whoever syncs sees it from here on, with the file open. Such is MPI_File_sync. */
static int look_again(struct cl_data *d, struct cl_inode *inode)
{
    Fp__InodeReq req = FP__INODE_REQ__INIT;
    ProtobufCMessage *m = NULL;
    int rc;

    req.ino = inode->ino;
    rc = cl_mgr_call_sync(d->m, FP__MSG_TYPE__MSG_GETATTR, &req.base, &m);
    if (rc < 0)
        return rc == -ENOENT ? 0 : rc; /* removed, and nobody's but ours */
    pthread_mutex_lock(&inode->lock);
    if (((const Fp__AttrReply *)m)->attr)
        cl_inode_attr_update(inode, ((const Fp__AttrReply *)m)->attr);
    pthread_mutex_unlock(&inode->lock);
    protobuf_c_message_free_unpacked(m, NULL);
    return 0;
}

int cl_sync_others(struct cl_data *d, struct cl_inode *inode)
{
    bool older;
    Fp__Sync req = FP__SYNC__INIT;
    ProtobufCMessage *m = NULL;
    const Fp__SyncReply *r;
    uint64_t since, losses, changes = atomic_load(&d->changes);
    struct cl_file *f;
    int rc;

    req.ino = inode->ino;
    pthread_mutex_lock(&inode->lock);
    req.known_version = inode->file ? inode->file->others_version : 0;
    since = inode->file ? inode->file->others_losses : atomic_load(&d->losses);
    pthread_mutex_unlock(&inode->lock);
    rc = cl_mgr_call_sync(d->m, FP__MSG_TYPE__MSG_SYNC, &req.base, &m);
    if (rc < 0)
        return rc;
    cl_changes_synced(d, changes);
    r = (const Fp__SyncReply *)m;
    rc = sync_named(d, inode, r);
    losses = atomic_load(&d->losses);
    if (rc == 0 && lost_since(d, r, since)) {
        cl_data_note_error(d, "inode %llu: a benefactor lost data of other mounts that had not been synced", (unsigned long long)inode->ino);
        rc = -EIO;
        since = losses; /* told once */
    }
    pthread_mutex_lock(&inode->lock);
    f = r->n_bnfs > 0 || r->all ? cl_file_get(d, inode) : inode->file; /* to be remembered for the next time */
    if (f && rc == 0 && r->data_version > f->others_version)
        f->others_version = r->data_version;
    if (f && (rc == 0 || since == losses))
        f->others_losses = losses;
    older = f && r->data_version > f->map_version;
    pthread_mutex_unlock(&inode->lock);
    protobuf_c_message_free_unpacked(m, NULL);
    if (rc == 0 && older)
        rc = look_again(d, inode);
    return rc;
}
