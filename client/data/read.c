/*
 * read(): what a byte range consists of, loaded, verified and handed to FUSE without another copy. Runs on FUSE threads.
 *
 * With the inode locked a plan is made: pieces in stored chunks, pieces still in write buffers (copied out at once, they may change), holes. Then,
 * without the lock, the chunks' blocks are brought into the read cache, and the reply is gathered from their pages.
 *
 * A chunk that is not where the map says means that the map is old (another mount rewrote the file and the chunk was deleted): the map is fetched again. If
 * it still names that chunk, the data is lost or damaged, or its benefactor away: the manager is told, and asked once more, since a target may have it (if it says that this is being
 * looked at, until that has been done). Of a benefactor that is away it is asked after a second, and at the end of the patience that is had with it. Else EIO for exactly
 * that range, and a log line.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "client/data/coded.h"
#include "client/data/ext.h"
#include "client/data/internal.h"
#include "client/data/load.h"
#include "fp/checksum.h"

#define PINS_MAX 64
/* A read is granted pages for its bytes, and so many for ends of pieces; in more pieces it is done in parts. */
#define SPARE_PAGES 4u
#define MAP_FETCH_WINDOWS 512u
/* How long a read waits for a benefactor that is away (the promise is EIO within 10 s), and after how long it asks whether a target has it. */
#define AWAY_MS     6000u
#define AWAY_ASK_MS 1000u
#define LOOK_MS     100u  /* while a target is looked at */

struct cl_read_pin {
    struct {
        struct cl_rchunk *e;
        uint32_t first, last;  /* blocks used */
    } entry[PINS_MAX];
    int nentries;
    size_t granted, held;          /* pages: may be held (admit.h), and are at most */
    uint8_t *bounce;               /* copies: of write buffers, and when there are many pieces */
    size_t len;                    /* of the read: size of bounce */
};

struct reader {                    /* one read under way */
    struct cl_data *d;
    struct cl_inode *inode;
    struct cl_read_pin *pin;
    struct iovec *iov;
    int niov, iov_max;
    uint64_t off;                  /* of the read */
    uint64_t deadline_ms;
    const struct cl_snapshot *snap; /* strict: of what is read; else NULL */
    bool may_begin_anew;           /* … if one of its chunks is gone */
    bool begin_anew;               /* it is */
    uint64_t told;                 /* chunk that the manager was told of last: it could not be read where it should be */
    uint64_t away_ms;              /* since when a benefactor is waited for; 0: none is */
    unsigned asked;                /* how often the manager was asked where else that is */
    uint32_t over_bnf;             /* has been waited for as long as one is; 0: none has */
    int over_rc;                   /* the error that it was given up with */
    uint64_t end;                  /* not strict: the smallest size that the file had when a plan was made */
};

static const uint8_t zeros[CL_PAGE_BYTES];

static int put_iov(struct reader *r, const void *p, size_t len)
{
    if (r->niov == r->iov_max)
        return -E2BIG;
    r->iov[r->niov++] = (struct iovec){ (void *)(uintptr_t)p, len };
    return 0;
}

static int put_zeros(struct reader *r, size_t len)
{
    int rc = 0;

    while (len > 0 && rc == 0) {
        size_t n = len < sizeof(zeros) ? len : sizeof(zeros);

        rc = put_iov(r, zeros, n);
        len -= n;
    }
    return rc;
}

static bool is_away(int rc)
{
    return rc != 0 && rc != FP_ECHECKSUM && rc != FP_ECHUNK_MISSING && rc != -EIO && rc != CL_ECODER && rc != CL_ETARGET;
}

/* Who would have to be asked for it; 0: another one than the benefactor of the map, or none. */
static uint32_t holder_of(struct cl_rchunk *e)
{
    uint32_t bnf;

    pthread_mutex_lock(&e->lock);
    bnf = e->fetched ? 0 : e->bnf;
    pthread_mutex_unlock(&e->lock);
    return bnf;
}

/*
 * Load with patience: a benefactor that is restarting is back within seconds. That is had once for a read: when the manager was asked again and knows of no other
 * place, there is no further try, which would take as long as a connection does that nobody answers.
 */
static int load_patiently(struct reader *r, struct cl_rchunk *e, uint32_t first, uint32_t last)
{
    if (r->over_bnf && holder_of(e) == r->over_bnf)
        return r->over_rc;
    for (;;) {
        uint64_t began_ms = fp_now_ms(), now_ms;
        int rc = cl_rcache_load(e, first, last, true, r->deadline_ms);

        now_ms = fp_now_ms();
        if (is_away(rc)) {
            r->away_ms = r->away_ms ? r->away_ms : began_ms;
            if (now_ms >= r->away_ms + AWAY_MS && r->asked && rc != -ENOMEM) {
                r->over_bnf = holder_of(e);
                r->over_rc = rc;
            }
            if (now_ms >= r->away_ms + (r->asked || rc == -ENOMEM ? AWAY_MS : AWAY_ASK_MS))
                return rc;
        } else if (rc != CL_ETARGET || now_ms >= r->deadline_ms) {
            return rc;
        }
        usleep(100000);
    }
}

/* So many pages more may be held. -E2BIG: not beside what is held already. */
static int admit(struct reader *r, size_t pages)
{
    struct cl_read_pin *pin = r->pin;
    size_t want = pin->len / CL_PAGE_BYTES + SPARE_PAGES;
    int rc = 0;

    if (pin->held + pages > pin->granted) {
        if (pin->held > 0)
            return -E2BIG;
        cl_admit_put(&r->d->readers, pin->granted);
        pin->granted = 0;
        if (want < pages)
            want = pages;
        rc = cl_admit_get(&r->d->readers, want, r->deadline_ms);
        if (rc < 0)
            return rc;
        pin->granted = want;
    }
    pin->held += pages;
    return 0;
}

/* Pages that p takes: of a coded chunk all, once. */
static size_t pages_for(const struct cl_read_pin *pin, const struct cl_piece *p, uint32_t blocks)
{
    if (!p->chunk.data_len_bytes)
        return blocks;
    for (int i = 0; i < pin->nentries; i++)
        if (pin->entry[i].e->ref.id == p->chunk.id)
            return 0;
    return fp_sum_nblocks(p->chunk.data_len_bytes);
}

/* Give back what was pinned since there were n entries with so many pages. */
static void unpin_to(struct cl_read_pin *pin, int n, size_t held)
{
    while (pin->nentries > n) {
        pin->nentries--;
        cl_rcache_unuse(pin->entry[pin->nentries].e, pin->entry[pin->nentries].first, pin->entry[pin->nentries].last);
        cl_rcache_put(pin->entry[pin->nentries].e);
    }
    pin->held = held;
}

static int read_chunk_piece(struct reader *r, const struct cl_piece *p)
{
    uint32_t at = p->src_off, left = p->len, first = at / CL_PAGE_BYTES, last = (at + left - 1) / CL_PAGE_BYTES;
    struct cl_rchunk *e;
    int rc;

    if (r->pin->nentries == PINS_MAX)
        return -E2BIG;
    rc = admit(r, pages_for(r->pin, p, last - first + 1));
    if (rc < 0)
        return rc;
    e = cl_rcache_get(r->d->rcache, &p->chunk);
    if (!e)
        return -errno;
    cl_rcache_use(e, first, last);
    r->pin->entry[r->pin->nentries].e = e;
    r->pin->entry[r->pin->nentries].first = first;
    r->pin->entry[r->pin->nentries++].last = last;
    rc = load_patiently(r, e, first, last);
    while (rc == 0 && left > 0) {
        uint32_t in_page = at % CL_PAGE_BYTES, n = CL_PAGE_BYTES - in_page;

        if (n > left)
            n = left;
        rc = put_iov(r, cl_rcache_block(e, at / CL_PAGE_BYTES) + in_page, n);
        at += n;
        left -= n;
    }
    return rc;
}

/* -------------------------------------------------------------- planning */

/* inode->lock held. */
static int plan(struct cl_win *w, struct cl_overlay *o)
{
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < w->nslices; i++) {
        const struct cl_slice *s = &w->slices[i];
        struct cl_piece p = { .off = s->off, .len = s->len, .src_off = s->chunk_off, .chunk = s->chunk };

        rc = cl_overlay_add(o, &p);
    }
    for (struct cl_wbuf *b = w->bufs; rc == 0 && b; b = b->next)
        rc = cl_wbuf_overlay(b, o);
    return rc;
}

/* inode->lock held: pieces in write buffers go to their place in the bounce buffer; base = file offset of the window. */
static int copy_buffered(struct reader *r, struct cl_overlay *o, uint64_t base)
{
    for (uint32_t i = 0; i < o->n; i++) {
        struct cl_piece *p = &o->piece[i];

        if (!p->buf)
            continue;
        if (!r->pin->bounce)
            r->pin->bounce = malloc(r->pin->len);
        if (!r->pin->bounce)
            return -ENOMEM;
        cl_wbuf_copy_out(p->buf, p->src_off, r->pin->bounce + (base + p->off - r->off), p->len);
    }
    return 0;
}

/* A buffer that is not published refers to chunks of which only the number is known here. */
static bool has_unknown(const struct cl_overlay *o)
{
    for (uint32_t i = 0; i < o->n; i++)
        if (!o->piece[i].buf && o->piece[i].chunk.id && !o->piece[i].chunk.len_bytes)
            return true;
    return false;
}

/* Published, it is in the manager's map, which has all about them. Without lock. */
static int learn_unknown(struct reader *r, struct cl_file *f, bool again)
{
    int rc = cl_publish_stored(r->d, r->inode, false, r->deadline_ms);

    if (rc == 0 && fp_now_ms() >= r->deadline_ms)
        rc = -EIO;
    if (rc == 0 && again) { /* it is behind one that is being stored */
        pthread_mutex_lock(&r->inode->lock);
        if (f->fl_head)
            (void)cl_file_wait(f, fp_now_ms() + 100);
        pthread_mutex_unlock(&r->inode->lock);
    }
    return rc;
}

struct planning {
    struct reader *r;
    struct cl_file *f;
    uint64_t win;
    uint32_t from, to;             /* of the window */
    struct cl_overlay *o;
};

enum { REFERS = 1 };                   /* to chunks of which only the number is known */

/* inode->lock held, w has its slices. */
static int plan_window(void *arg, struct cl_win *w)
{
    struct planning *p = arg;
    uint64_t base = p->win * p->f->window_bytes;
    int rc;

    if (cl_file_size_bytes(p->f) < p->r->end) /* cut since the size was looked up: what is not there any more is not zeros */
        p->r->end = cl_file_size_bytes(p->f);
    if (cl_gone_any(&p->f->gone, base + p->from, base + p->to)) /* no program shall take what was before for it */
        return -EIO;
    cl_overlay_init(p->o, p->from, p->to);
    rc = plan(w, p->o);
    if (rc == 0 && has_unknown(p->o))
        return REFERS;
    return rc == 0 ? copy_buffered(p->r, p->o, base) : rc;
}

/* Takes and releases inode->lock. -EAGAIN: look again. */
static int try_plan(struct planning *p)
{
    struct reader *r = p->r;
    struct cl_map_use use = { .fn = plan_window, .arg = p };
    struct cl_win *w;
    int rc = -EAGAIN;

    pthread_mutex_lock(&r->inode->lock);
    w = cl_file_win(p->f, p->win, true);
    if (w && w->known)
        rc = plan_window(p, w);
    pthread_mutex_unlock(&r->inode->lock);
    if (!w)
        return -ENOMEM;
    if (rc != -EAGAIN)
        return rc;
    rc = cl_map_fetch(r->d, r->inode, p->win, MAP_FETCH_WINDOWS, &use);
    if (use.used && use.size_bytes < r->end)
        r->end = use.size_bytes;
    return rc == 0 && !use.used ? -EAGAIN : rc;
}

/* The plan of [from, to) of a window, with the map known. A map that changes all the time is asked for again and again, but not for ever. */
static int make_plan(struct reader *r, struct cl_file *f, uint64_t win, uint32_t from, uint32_t to, struct cl_overlay *o)
{
    struct planning p = { .r = r, .f = f, .win = win, .from = from, .to = to, .o = o };
    unsigned nlearned = 0;
    int rc;

    if (r->snap) {
        cl_overlay_init(o, from, to);
        return cl_snapshot_plan(r->snap, win, o);
    }
    do {
        rc = try_plan(&p);
        if (rc == REFERS) {
            rc = learn_unknown(r, f, nlearned++ > 0);
            rc = rc == 0 ? -EAGAIN : rc;
        }
    } while (rc == -EAGAIN && fp_now_ms() < r->deadline_ms);
    return rc == -EAGAIN ? -EIO : rc;
}

/* -------------------------------------------------------------- one range of a window */

static const char *why_not_fetched(int err)
{
    switch (err) {
    case FP_ECHUNK_MISSING:
        return "the file in the target is not there any more, or is another";
    case FP_ECHECKSUM:
        return "the file in the target has other bytes than were drained";
    case CL_ETARGET:
        return "the target can't be read from any benefactor that was asked";
    default:
        return fp_strerror(err);
    }
}

static void tell_bad(struct reader *r, const struct cl_file *f, uint64_t win, const struct cl_piece *p, int err)
{
    Fp__BadChunk b = FP__BAD_CHUNK__INIT;

    if (err != FP_ECHECKSUM && err != FP_ECHUNK_MISSING && err != -EIO)
        return; /* its benefactor is away */
    b.chunk = p->chunk.id;
    b.bnf = p->chunk.bnf;
    b.ino = r->inode->ino;
    b.off = win * f->window_bytes + p->off;
    b.len = p->len;
    b.reason = (char *)(uintptr_t)(p->chunk.ext ? why_not_fetched(err) : fp_strerror(err));
    b.status = err;
    b.file = p->chunk.ext ? cl_ext_file(r->d, p->chunk.ext) : NULL;
    cl_mgr_send(r->d->m, FP__MSG_TYPE__MSG_BADCHUNK, &b.base);
    if (b.file)
        fp__ext_file__free_unpacked(b.file, NULL);
}

static void note_bad(struct reader *r, const struct cl_file *f, uint64_t win, const struct cl_piece *p, int err)
{
    unsigned long long ino = r->inode->ino, off = win * f->window_bytes + p->off;
    char name[512];

    if (p->chunk.ext)
        cl_data_note_error(r->d, "inode %llu, bytes %llu+%u, in %s: %s", ino, off, p->len, cl_ext_name(r->d, p->chunk.ext, name, sizeof name), why_not_fetched(err));
    else
        cl_data_note_error(r->d, "inode %llu, bytes %llu+%u: chunk %#llx on benefactor %u can't be read: %s", ino, off, p->len, (unsigned long long)p->chunk.id,
                           p->chunk.bnf, fp_strerror(err));
}

/* The manager is told; true: it may know where else it is, in a target above all, also of what is on a benefactor that is away. Once for a chunk, twice while somebody is away. */
static bool is_elsewhere(struct reader *r, const struct cl_file *f, uint64_t win, const struct cl_piece *bad, int rc)
{
    bool told = is_away(rc) ? r->asked == 2 : r->told == bad->chunk.id;

    if (!told || bad->chunk.ext)
        tell_bad(r, f, win, bad, rc);
    if (is_away(rc))
        r->asked += !told;
    else
        r->told = bad->chunk.id;
    return !told && !bad->chunk.ext && rc != CL_ECODER && rc != -ENOMEM && fp_now_ms() < r->deadline_ms;
}

/* As long as the manager has a target looked at that may have it. */
static void wait_for_look(struct reader *r, uint64_t win)
{
    Fp__SliceMap req = FP__SLICE_MAP__INIT;
    bool looks;

    req.ino = r->inode->ino;
    req.win_from = win;
    req.win_count = 1;
    do {
        ProtobufCMessage *m = NULL;
        int rc = cl_mgr_call_sync(r->d->m, FP__MSG_TYPE__MSG_SLICEMAP, &req.base, &m);

        looks = rc == 0 && ((const Fp__SliceMapReply *)m)->rescuing;
        if (rc == 0)
            protobuf_c_message_free_unpacked(m, NULL);
        if (looks)
            usleep(LOOK_MS * 1000);
    } while (looks && fp_now_ms() < r->deadline_ms);
}

static void forget_map(struct reader *r, struct cl_file *f)
{
    pthread_mutex_lock(&r->inode->lock);
    cl_file_forget_map(f);
    pthread_mutex_unlock(&r->inode->lock);
}

static int gather(struct reader *r, struct cl_file *f, uint64_t win, const struct cl_overlay *o, const struct cl_piece **bad)
{
    uint32_t at = o->from;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < o->n; i++) {
        const struct cl_piece *p = &o->piece[i];

        if (p->off > at)
            rc = put_zeros(r, p->off - at);
        if (rc == 0 && p->buf)
            rc = put_iov(r, r->pin->bounce + (win * f->window_bytes + p->off - r->off), p->len);
        else if (rc == 0 && p->chunk.id == 0)
            rc = put_zeros(r, p->len);
        else if (rc == 0)
            rc = read_chunk_piece(r, p);
        if (rc < 0)
            *bad = p;
        at = p->off + p->len;
    }
    if (rc == 0 && at < o->to)
        rc = put_zeros(r, o->to - at);
    return rc;
}

static int read_range(struct reader *r, struct cl_file *f, uint64_t win, uint32_t from, uint32_t to)
{
    static _Thread_local struct cl_overlay o;
    int niov = r->niov, npins = r->pin->nentries, rc = 0;
    size_t held = r->pin->held;

    for (int tries = 0;; tries++) {
        const struct cl_piece *bad = NULL;

        rc = make_plan(r, f, win, from, to, &o);
        if (rc == 0)
            rc = gather(r, f, win, &o, &bad);
        if (rc == 0 || rc == -E2BIG)
            return rc;
        r->niov = niov;
        unpin_to(r->pin, npins, held);
        /* A chunk that is being punched while it is read has a wrong checksum first. */
        r->begin_anew = (rc == FP_ECHUNK_MISSING || rc == FP_ECHECKSUM) && r->may_begin_anew;
        if (r->begin_anew)
            break;
        if ((rc == FP_ECHUNK_MISSING || rc == FP_ECHECKSUM) && tries < 2 && !r->snap) {
            forget_map(r, f);
            continue;
        }
        if (!bad || bad->buf)
            break;
        if (!is_elsewhere(r, f, win, bad, rc)) {
            note_bad(r, f, win, bad, rc);
            break;
        }
        wait_for_look(r, win);
        r->begin_anew = r->snap != NULL;
        if (r->begin_anew)
            break;
        forget_map(r, f);
    }
    return rc == CL_ECODER || rc == CL_ETARGET ? -EIO : rc;
}

/* -------------------------------------------------------------- the call */

static size_t iov_bytes(const struct iovec *iov, int n)
{
    size_t sum = 0;

    for (int i = 0; i < n; i++)
        sum += iov[i].iov_len;
    return sum;
}

/* Too many pieces for one reply: what is gathered so far goes into the bounce buffer, and the pins are free again. */
static int flatten(struct reader *r)
{
    uint8_t *p;
    int rc = 0;

    if (!r->pin->bounce)
        r->pin->bounce = malloc(r->pin->len);
    if (!r->pin->bounce)
        return -ENOMEM;
    p = r->pin->bounce;
    for (int i = 0; i < r->niov; i++) {
        if (p != r->iov[i].iov_base)
            memmove(p, r->iov[i].iov_base, r->iov[i].iov_len);
        p += r->iov[i].iov_len;
    }
    r->niov = 0;
    if (p > r->pin->bounce)
        rc = put_iov(r, r->pin->bounce, (size_t)(p - r->pin->bounce));
    unpin_to(r->pin, 0, 0);
    return rc;
}

/* [done, len) of the read, window by window, in smaller parts where a window is in many pieces. */
static ssize_t read_all(struct reader *r, struct cl_file *f, size_t len)
{
    size_t done = 0, part = f->window_bytes;
    int rc = 0;

    while (done < len) {
        uint64_t at = r->off + done;
        uint32_t in_win = (uint32_t)(at % f->window_bytes), n = f->window_bytes - in_win;
        int niov = r->niov;

        if (n > len - done)
            n = (uint32_t)(len - done);
        if (n > part)
            n = (uint32_t)part;
        rc = read_range(r, f, at / f->window_bytes, in_win, in_win + n);
        if (rc == -E2BIG) {
            r->niov = niov;
            if (niov <= 1 && part > 1)
                part /= 2; /* down to single bytes: each may be a slice of its own */
            rc = flatten(r);
            if (rc == 0)
                continue;
        }
        if (rc < 0)
            break;
        done += n;
        if (part < f->window_bytes)
            part *= 2;
    }
    if (done > 0)
        return (ssize_t)iov_bytes(r->iov, r->niov);
    return rc;
}

void cl_data_read_done(struct cl_mount *m, struct cl_read_pin *pin)
{
    if (!pin)
        return;
    unpin_to(pin, 0, 0);
    cl_admit_put(&m->data->readers, pin->granted);
    free(pin->bounce);
    free(pin);
}

/* len bytes that are there. The pin is r->pin afterwards; NULL: it has failed. */
static ssize_t read_pinned(struct reader *r, struct cl_handle *h, struct cl_file *f, size_t len)
{
    ssize_t got;

    r->niov = 0;
    r->pin = calloc(1, sizeof(*r->pin));
    if (!r->pin)
        return -ENOMEM;
    r->pin->len = len;
    cl_readahead(r->d, h, r->off, r->off + len);
    got = read_all(r, f, len);
    if (got < 0 || r->begin_anew) {
        cl_data_read_done(r->d->m, r->pin);
        r->pin = NULL;
    }
    return got;
}

/* Another program has truncated the file while it was read: only the first bytes of what is gathered are its. */
static ssize_t cut(struct reader *r, uint64_t len)
{
    uint64_t left = len;
    int n = 0;

    for (; left > 0; n++) {
        if (r->iov[n].iov_len > left)
            r->iov[n].iov_len = left;
        left -= r->iov[n].iov_len;
    }
    r->niov = n;
    if (len == 0) {
        cl_data_read_done(r->d->m, r->pin);
        r->pin = NULL;
    }
    return (ssize_t)len;
}

/* Up to which window the manager is asked: for a sequential reader, as far as is read ahead. */
static uint64_t last_window(struct reader *r, const struct cl_handle *h, const struct cl_file *f, size_t len)
{
    uint64_t end = r->off + len;

    pthread_mutex_lock(&r->inode->lock);
    if (h->sequential > 0 && r->off == h->next_off)
        end += r->d->m->opt.read_ahead_bytes;
    pthread_mutex_unlock(&r->inode->lock);
    return (end - 1) / f->window_bytes;
}

/* A snapshot's bytes. What is gone of it was overwritten since; if the file is still at the same version, it is lost. */
static ssize_t read_strict(struct reader *r, struct cl_handle *h, struct cl_file *f, size_t len)
{
    uint64_t version = 0;
    unsigned same = 0;

    if (r->off > INT64_MAX - len)
        return -EINVAL;
    for (;;) {
        struct cl_snapshot s;
        size_t n = len;
        ssize_t got = cl_snapshot_get(r->d, r->inode, r->off / f->window_bytes, last_window(r, h, f, len) + 1, &s);

        if (got < 0)
            return got;
        if (n > s.win_end * f->window_bytes - r->off) /* in very many pieces: a short read */
            n = s.win_end * f->window_bytes - r->off;
        if (r->off >= s.size_bytes)
            n = 0;
        else if (n > s.size_bytes - r->off)
            n = s.size_bytes - r->off;
        same = s.version == version ? same + 1 : 0;
        version = s.version;
        r->snap = &s;
        r->begin_anew = false;
        r->may_begin_anew = same < 2 && fp_now_ms() < r->deadline_ms;
        got = n == 0 ? 0 : read_pinned(r, h, f, n);
        cl_snapshot_free(&s);
        if (!r->begin_anew)
            return got;
        forget_map(r, f); /* also of a file at this version a chunk may be elsewhere by now: evicted, or brought back */
    }
}

ssize_t cl_data_read(struct cl_mount *m, struct cl_handle *h, size_t len, uint64_t off, struct iovec *iov, int *niov, struct cl_read_pin **pin)
{
    struct cl_data *d = m->data;
    struct reader r = { .d = d, .inode = h->inode, .iov = iov, .iov_max = *niov, .off = off, .deadline_ms = cl_deadline(d) };
    struct cl_file *f;
    uint64_t size;
    ssize_t got;

    *pin = NULL;
    *niov = 0;
    if (len == 0)
        return 0;
    pthread_mutex_lock(&h->inode->lock);
    f = cl_file_get(d, h->inode);
    size = f ? cl_file_size_bytes(f) : 0;
    pthread_mutex_unlock(&h->inode->lock);
    if (!f)
        return -ENOMEM;
    if (!h->strict && off >= size)
        return 0;
    if (!h->strict && len > size - off)
        len = size - off;
    r.end = size;
    got = h->strict ? read_strict(&r, h, f, len) : read_pinned(&r, h, f, len);
    if (got > 0 && !h->strict && r.end < off + (uint64_t)got)
        got = cut(&r, r.end > off ? r.end - off : 0);
    if (got <= 0)
        return got;
    *pin = r.pin;
    *niov = r.niov;
    atomic_fetch_add(&d->read_bytes, (unsigned long long)got);
    return got;
}
