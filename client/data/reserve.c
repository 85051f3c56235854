/*
 * What a write buffer has reserved. Called by writers (FUSE threads), before they lock the inode, and under its lock by whoever writes to or seals a buffer.
 *
 * As long as there is plenty, a new buffer reserves a whole window, once: who writes a file from one end to the other needs no more. When a whole one is not to
 * be had, space is short for a while (SHORT_MS), and reservations are for what is written: those of open buffers are cut to that, a new one gets what its write needs, and
 * grows with the buffer. A sealed buffer keeps what its record takes, in any case. So a thousand files open for writing, or small writes all over a file, take
 * what they bring, and not a window each.
 *
 * Before a write is told ENOSPC, in this order: what nothing but a hold keeps is released; what this mount has written and not published is written out and
 * published, so that what it replaces is free; windows whose chunks take more than they need are folded (fold.c); what is being deleted is waited for; when nothing more
 * is to come, what is drained gives way, if there is a policy of draining: that is waited for as long as it goes forward. At last the manager gives up versions of files that are being rewritten (manager/press.c), and that is waited for. The last window's
 * worth of space is kept for folding as long as there is something to fold, since that takes space before it gives any.
 *
 * To publish before close gives up what rewriting in place has else: that a program which dies leaves the version before. A store that is full, with a third of
 * it overwritten and not to be had, was the worse choice.
 */
#include "client/data/reserve.h"

#include <errno.h>
#include <unistd.h>

#include "client/aux/aux.h"
#include "client/data/fold.h"
#include "client/data/internal.h"
#include "fp/auxwire.h"

#define SHORT_MS 2000u
/* How long a write into a full store waits for what is being deleted, since something was gained last. */
#define DELETED_IS_FREE_MS 5000u
#define FOLD_WAIT_MS 500u
/* How long it waits in all while something is drained or evicted; since that has last gone forward, --io-timeout. */
#define GIVING_WAY_MS 600000u

/* Of so many bytes of data, in whatever form aux-apps leave them. */
static uint32_t record_bytes(const struct cl_data *d, uint32_t len)
{
    return fp_record_size_bytes(len + (cl_aux_chunks(d->m) ? FP_AUX_EXPAND_MAX_BYTES + FP_ENVELOPE_MAX_BYTES : 0));
}

/* Of a buffer with so many bytes in it: it may be laid out with gaps. */
static uint32_t exact_bytes(const struct cl_data *d, uint32_t data, uint32_t window_bytes)
{
    return record_bytes(d, data < window_bytes - CL_WBUF_WASTE_MAX_BYTES ? data + CL_WBUF_WASTE_MAX_BYTES : window_bytes);
}

bool cl_reserve_more(struct cl_data *d, struct cl_wbuf *b, uint32_t data, uint32_t window_bytes)
{
    if (data <= b->paid)
        return true;
    if (!cl_space_grow(d, &b->resv, exact_bytes(d, data, window_bytes), cl_fold_spare_bytes(d)))
        return false;
    b->paid = data;
    return true;
}

void cl_reserve_trim(struct cl_data *d, struct cl_wbuf *b, uint32_t window_bytes)
{
    uint32_t data = (uint32_t)cl_wbuf_bytes(b) + b->copying;

    if (data >= b->paid)
        return;
    cl_space_shrink(d, &b->resv, exact_bytes(d, data, window_bytes));
    b->paid = data;
}

void cl_reserve_sealed(struct cl_data *d, struct cl_wbuf *b)
{
    cl_space_shrink(d, &b->resv, record_bytes(d, b->chunk_len));
}

static bool is_short(struct cl_data *d)
{
    return fp_now_ms() < atomic_load(&d->short_until_ms);
}

/* For a new buffer that begins with so many bytes. */
static int reserve(struct cl_data *d, struct cl_inode *inode, const struct cl_reserve_for *r, uint32_t data, struct cl_wbuf *b)
{
    uint32_t exact = exact_bytes(d, data, r->window_bytes), whole = record_bytes(d, r->window_bytes), spare = cl_fold_spare_bytes(d);
    uint64_t deadline_ms = cl_deadline(d);
    int rc;

    if (!is_short(d)) {
        b->paid = r->window_bytes;
        rc = cl_space_reserve(d, inode->ino, r->win, r->stripe, whole + spare, 0, deadline_ms, &b->resv);
        if (rc == 0)
            cl_space_shrink(d, &b->resv, whole);
        if (rc != -ENOSPC)
            return rc;
        atomic_store(&d->short_until_ms, fp_now_ms() + SHORT_MS);
        cl_age_trim(d);
        cl_fold_hurry(d);
    }
    spare = cl_fold_spare_bytes(d);
    b->paid = data;
    rc = cl_space_reserve(d, inode->ino, r->win, r->stripe, exact + spare, 0, deadline_ms, &b->resv);
    if (rc == 0)
        cl_space_shrink(d, &b->resv, exact);
    return rc;
}

enum press { PRESS_SOFT = 1, PRESS_HARD = 2 }; /* StatFs.press */

/* Deleted chunks that benefactors have not freed yet, or mounts that have been asked for their holds, as the manager knows. *giving_way: StatFsReply's. */
static bool space_is_coming(struct cl_data *d, enum press press, uint64_t *giving_way)
{
    Fp__StatFs q = FP__STAT_FS__INIT;
    ProtobufCMessage *m = NULL;
    bool coming = false;

    q.press = press;
    if (cl_mgr_call_sync(d->m, FP__MSG_TYPE__MSG_STATFS, &q.base, &m) == 0) {
        coming = ((const Fp__StatFsReply *)m)->deleting_bytes > 0 || ((const Fp__StatFsReply *)m)->recalling;
        *giving_way = ((const Fp__StatFsReply *)m)->giving_way;
    }
    if (m)
        protobuf_c_message_free_unpacked(m, NULL);
    return coming;
}

/* Chunks that nothing but a hold keeps, of this mount or any other, are deleted now. */
static void have_holds_released(struct cl_data *d)
{
    Fp__Hold h = FP__HOLD__INIT;

    h.recall = true;
    (void)cl_aux_release_holds(d->m);
    (void)cl_mgr_call_sync(d->m, FP__MSG_TYPE__MSG_HOLD, &h.base, NULL);
}

struct publishing {
    struct cl_data *d;
    uint64_t until_ms;             /* one time for all files: what is kept for want of a benefactor would take its own, each */
};

static void publish_one(struct cl_inode *inode, void *arg)
{
    const struct publishing *p = arg;
    bool dirty;

    if (fp_now_ms() >= p->until_ms)
        return;

    pthread_mutex_lock(&inode->lock);
    dirty = cl_file_is_dirty(inode->file) && inode->attr.nlink > 0;
    pthread_mutex_unlock(&inode->lock);
    if (dirty)
        (void)cl_publish_for_others(p->d, inode, p->until_ms); /* an error stays the file's */
}

/*
 * "Delete the oldest checkpoint, write the next": what was deleted is free within 2 s, so a store is not full before that is over. The first 300 ms are
 * waited in any case: the manager takes a large file to pieces in steps, and counts only those done.
 */
static int reserve_patiently(struct cl_data *d, struct cl_inode *inode, const struct cl_reserve_for *r, uint32_t data, struct cl_wbuf *b)
{
    uint64_t begun_ms = fp_now_ms(), now_ms = begun_ms, gained_ms = begun_ms, moved_ms = begun_ms, way = 0, seen = 0;
    bool coming = true, moving, deleting;
    int rc = -ENOSPC;

    while (rc == -ENOSPC && coming && !atomic_load(&d->stopping)) {
        cl_space_tick(d, now_ms, true); /* ends of leases too short for this record are space as well */
        if (cl_fold_now(d, FOLD_WAIT_MS))
            gained_ms = fp_now_ms();
        deleting = space_is_coming(d, PRESS_SOFT, &way); /* in each turn: the manager counts on it, whatever is folded here */
        now_ms = fp_now_ms();
        coming = (gained_ms + FOLD_WAIT_MS > now_ms || cl_fold_spare_bytes(d) > 0 || deleting || now_ms - begun_ms < 300) &&
                 now_ms - gained_ms < DELETED_IS_FREE_MS && now_ms - begun_ms < d->m->opt.io_timeout_ms;
        moved_ms = way != seen ? now_ms : moved_ms;
        seen = way;
        moving = way && now_ms - moved_ms < d->m->opt.io_timeout_ms && now_ms - begun_ms < GIVING_WAY_MS;
        if (!coming && !moving && now_ms - begun_ms < d->m->opt.io_timeout_ms && space_is_coming(d, PRESS_HARD, &way)) {
            gained_ms = now_ms;
            coming = true;
        }
        coming |= moving;
        cl_space_tick(d, now_ms, true);
        usleep(coming ? 50000 : 0);
        rc = reserve(d, inode, r, data, b);
    }
    return rc;
}

int cl_reserve(struct cl_data *d, struct cl_inode *inode, const struct cl_reserve_for *r, uint32_t data, struct cl_wbuf *b)
{
    struct publishing p = { .d = d };
    int rc = reserve(d, inode, r, data, b);

    if (rc != -ENOSPC)
        return rc;
    have_holds_released(d);
    p.until_ms = cl_deadline(d);
    if (inode->aux_serial != CL_AUX_SERIAL_OWN) /* an aux-app that writes would wait for chunks that wait for it */
        cl_inode_each(d->m, publish_one, &p);
    return reserve_patiently(d, inode, r, data, b);
}
