/*
 * The model of the manager (see cl_world.h): files as sorted lists of disjoint slices, chunks with reference counts, a version per file.
 * Simple on purpose: one lock, arrays, every change by cutting and inserting. A chunk that loses its last slice is deleted from its
 * benefactor at once, which is earlier than a real manager would and so the hardest case for readers.
 */
#include "tests/unit/cl_world_mgr.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fp/err.h"
#include "fp/record.h"

#define FILES_MAX 1024

struct mslice {
    uint64_t off, len, chunk;
    uint32_t chunk_off;
};

struct mfile {
    uint64_t ino, size, version;
    uint32_t window, stripe;
    int64_t mtime_ns;
    bool gone;
    struct mslice *s;
    size_t n, cap;
};

struct mchunk {
    struct mchunk *next;
    uint64_t id, sum;
    uint32_t len, data_len, stored_bytes, bnf, refs;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mfile files[FILES_MAX];
static size_t nfiles;
static struct mchunk *chunks[4096];
static uint64_t nchunks, nbad, ncalls;
int (*world_decode)(const uint8_t *stored, uint32_t len, uint8_t *out, uint32_t data_len);

void world_failed(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: the model was violated: %s\n", file, line, what);
    abort();
}

static struct mfile *file_of(uint64_t ino)
{
    WORLD_CHECK(ino >= 2 && ino < 2 + nfiles);
    return &files[ino - 2];
}

static struct mchunk *chunk_of(uint64_t id)
{
    for (struct mchunk *c = chunks[id % 4096]; c; c = c->next)
        if (c->id == id)
            return c;
    return NULL;
}

static void chunk_delete(struct mchunk *c)
{
    struct mchunk **p = &chunks[c->id % 4096];

    while (*p != c)
        p = &(*p)->next;
    *p = c->next;
    world_bnf_delete(c->bnf, c->id);
    free(c);
    nchunks--;
}

static void unref(uint64_t id)
{
    struct mchunk *c = chunk_of(id);

    WORLD_CHECK(c && c->refs > 0);
    if (--c->refs == 0)
        chunk_delete(c);
}

static void insert(struct mfile *f, struct mslice s)
{
    size_t i = f->n;

    if (f->n == f->cap) {
        f->cap = f->cap ? 2 * f->cap : 64;
        f->s = realloc(f->s, f->cap * sizeof *f->s);
    }
    while (i > 0 && f->s[i - 1].off > s.off)
        i--;
    memmove(&f->s[i + 1], &f->s[i], (f->n - i) * sizeof *f->s);
    f->s[i] = s;
    f->n++;
    chunk_of(s.chunk)->refs++;
}

/* Bytes [from, to) become a hole. */
static void cut(struct mfile *f, uint64_t from, uint64_t to)
{
    for (size_t i = 0; i < f->n;) {
        struct mslice s = f->s[i];

        if (s.off + s.len <= from || s.off >= to) {
            i++;
            continue;
        }
        if (s.off < from) { /* keep the front */
            f->s[i].len = from - s.off;
            if (s.off + s.len > to)
                insert(f, (struct mslice){to, s.off + s.len - to, s.chunk, s.chunk_off + (uint32_t)(to - s.off)});
            i++;
        } else if (s.off + s.len > to) {
            f->s[i].chunk_off += (uint32_t)(to - s.off);
            f->s[i].len -= to - s.off;
            f->s[i].off = to;
            i++;
        } else {
            memmove(&f->s[i], &f->s[i + 1], (f->n - i - 1) * sizeof *f->s);
            f->n--;
            unref(s.chunk);
        }
    }
}

static void insert_by_windows(struct mfile *f, struct mslice s)
{
    for (uint64_t k; s.len > 0; s.off += k, s.chunk_off += (uint32_t)k, s.len -= k) {
        k = s.len < f->window - s.off % f->window ? s.len : f->window - s.off % f->window;
        insert(f, (struct mslice){s.off, k, s.chunk, s.chunk_off});
    }
}

static void fill_attr(const struct mfile *f, Fp__Attr *a)
{
    fp__attr__init(a);
    a->ino = f->ino;
    a->mode = S_IFREG | 0644;
    a->nlink = f->gone ? 0 : 1;
    a->size_bytes = f->size;
    a->chunk_size_bytes = f->window;
    a->stripe = f->stripe;
    a->strict = world_faults.mgr_strict;
    a->data_version = f->version;
    a->mtime_ns = f->mtime_ns;
}

/* m: NULL, or what is answered. */
#include "tests/unit/cl_world_fold.h"

static int reply_commit(const struct mfile *f, uint64_t version_before, const Fp__Commit *m, ProtobufCMessage **out)
{
    Fp__CommitReply r = FP__COMMIT_REPLY__INIT;
    Fp__Fold fold[FOLDS_MAX], *list[FOLDS_MAX];
    uint64_t bad[8];
    Fp__Attr a;

    fill_attr(f, &a);
    r.attr = &a;
    r.version_before = version_before;
    r.bad_chunks = bad;
    r.folds = list;
    r.n_folds = m && world_faults.mgr_folds && !m->fold && m->tell_folds ? fold_hints(f, m, fold, list) : 0;
    for (size_t i = 0; m && i < m->n_slices && r.n_bad_chunks < 8; i++)
        if (m->slices[i]->win + 1 == world_faults.mgr_bad_win)
            bad[r.n_bad_chunks++] = m->slices[i]->chunk;
    *out = world_copy(&r.base);
    return 0;
}

/* -------------------------------------------------------------- requests; lock held */

static bool is_named(const Fp__Commit *r, uint64_t chunk)
{
    for (size_t i = 0; i < r->n_slices; i++)
        if (r->slices[i]->chunk == chunk)
            return true;
    return false;
}

/* Bytes that slices may refer to. */
static uint32_t data_bytes(const struct mchunk *c)
{
    return c->data_len ? c->data_len : c->len;
}

/* A chunk that no slice names is to be deleted. If the commit was executed before and its answer lost, and the file was truncated since, that
 * has happened already. */
static void add_chunk(const Fp__Commit *r, const Fp__Chunk *c)
{
    struct mchunk *n = chunk_of(c->id);

    if (n) { /* told again after a lost answer */
        WORLD_CHECK(n->len == c->len && n->sum == c->sum && n->bnf == c->bnf);
        return;
    }
    WORLD_CHECK(!is_named(r, c->id) || world_bnf_has(c->bnf, c->id, c->len, c->stored_bytes, c->sum));
    n = calloc(1, sizeof *n);
    n->id = c->id;
    n->sum = c->sum;
    n->len = c->len;
    n->data_len = c->data_len;
    n->stored_bytes = c->stored_bytes;
    n->bnf = c->bnf;
    if (c->note.len) { /* as cl_fake_aux.c makes them: of the data that is stored */
        uint32_t noted;

        WORLD_CHECK(c->note.len == sizeof noted && c->n_note_keys == 1);
        memcpy(&noted, c->note.data, sizeof noted);
        WORLD_CHECK(noted == data_bytes(n) && c->note_keys[0] == noted);
    }
    n->next = chunks[c->id % 4096];
    chunks[c->id % 4096] = n;
    nchunks++;
}

static bool window_fits(const struct mfile *f, const Fp__Commit *r, uint64_t win)
{
    size_t n = 0;

    for (size_t i = 0; i < f->n; i++)
        n += f->s[i].off / f->window == win;
    for (size_t i = 0; i < r->n_slices; i++)
        n += r->slices[i]->win == win;
    return !world_faults.mgr_window_max || n <= (size_t)world_faults.mgr_window_max;
}

static int commit(const Fp__Commit *r, ProtobufCMessage **out)
{
    struct mfile *f = file_of(r->ino);
    uint64_t before = f->version, base = r->append ? f->size : 0;

    if (f->gone || (r->based_on && r->based_on != f->version && r->lease_time != world_faults.mgr_lease_time)) {
        for (size_t i = 0; i < r->n_chunks; i++)
            world_bnf_delete(r->chunks[i]->bnf, r->chunks[i]->id);
        return f->gone ? -ENOENT : FP_EOVERTAKEN;
    }
    if (r->fold && fold_is_lost(f, r))
        return drop_fold(f, r, out);
    for (size_t i = 0; i < r->n_slices; i++) {
        if (!window_fits(f, r, r->slices[i]->win))
            return -EFBIG;
        if (r->slices[i]->win + 1 == world_faults.mgr_refuse_win)
            return -EINVAL;
    }
    if (world_faults.mgr_away && !r->anyway) {
        world_faults.mgr_away_asked++;
        return FP_EAWAY;
    }
    if (world_faults.mgr_commit_err)
        return world_faults.mgr_commit_err;
    world_faults.mgr_commits += r->n_slices > 0;
    world_faults.mgr_ends += r->closes;
    for (size_t i = 0; i < r->n_chunks; i++) {
        add_chunk(r, r->chunks[i]);
        chunk_of(r->chunks[i]->id)->refs++; /* not to be deleted while slices come */
    }
    for (size_t i = 0; i < r->n_slices; i++) {
        const Fp__Slice *s = r->slices[i];
        struct mchunk *c = chunk_of(s->chunk);
        uint64_t off = base + s->win * f->window + s->off;

        WORLD_CHECK(s->len > 0 && (uint64_t)s->off + s->len <= f->window);
        WORLD_CHECK(s->chunk == 0 || (c && (uint64_t)s->chunk_off + s->len <= data_bytes(c)));
        if (c)
            c->refs++; /* it may be the one that is cut away */
        cut(f, off, off + s->len);
        if (!c)
            continue;
        insert_by_windows(f, (struct mslice){off, s->len, s->chunk, s->chunk_off});
        c->refs--;
    }
    for (size_t i = 0; i < r->n_chunks; i++)
        unref(r->chunks[i]->id);
    if (r->size_bytes && base + r->size_bytes > f->size)
        f->size = base + r->size_bytes;
    if (r->mtime_ns)
        f->mtime_ns = r->mtime_ns;
    f->version++;
    return reply_commit(f, before, r, out);
}

static int slice_map(const Fp__SliceMap *r, ProtobufCMessage **out)
{
    struct mfile *f = file_of(r->ino);
    Fp__SliceMapReply a = FP__SLICE_MAP_REPLY__INIT;
    Fp__Fold fold;
    uint64_t count = r->win_count > 3 && !r->whole ? 1 + (r->win_from + f->version) % r->win_count : r->win_count;
    Fp__Slice *s = calloc(f->n + 1, sizeof *s), **list = calloc(f->n + 1, sizeof *list);

    WORLD_CHECK(count > 0);
    a.slices = list;
    a.data_version = f->version;
    a.size_bytes = f->size;
    a.win_end = r->win_from + count;
    a.same = r->known_version == f->version;
    for (size_t i = 0; i < f->n && !a.same; i++) {
        const struct mslice *p = &f->s[i];
        const struct mchunk *c = chunk_of(p->chunk);
        uint64_t win = p->off / f->window;

        if (win < r->win_from || win >= a.win_end)
            continue;
        Fp__Slice *q = &s[a.n_slices];

        fp__slice__init(q);
        q->win = win;
        q->off = (uint32_t)(p->off % f->window);
        q->len = (uint32_t)p->len;
        q->chunk = p->chunk;
        q->chunk_off = p->chunk_off;
        q->chunk_len = c->len;
        q->data_len = c->data_len;
        q->chunk_sum = c->sum;
        q->bnf = c->bnf;
        q->folds = r->fold && is_own(f, p);
        list[a.n_slices++] = q;
    }
    world_faults.mgr_slices_told += a.n_slices;
    a.fold = r->fold ? fold_at(f, r->win_from, &fold) : NULL;
    *out = world_copy(&a.base);
    free(s);
    free(list);
    return 0;
}

static int set_attr(const Fp__SetAttr *r, ProtobufCMessage **out)
{
    struct mfile *f = file_of(r->ino);
    Fp__AttrReply a = FP__ATTR_REPLY__INIT;
    Fp__Attr attr;

    if (f->gone || world_faults.mgr_setattr_err)
        return f->gone ? -ENOENT : world_faults.mgr_setattr_err;
    WORLD_CHECK(r->valid & FP__SET_ATTR_VALID__SET_SIZE);
    cut(f, r->size_bytes, UINT64_MAX);
    f->size = r->size_bytes;
    f->version++;
    fill_attr(f, &attr);
    a.attr = &attr;
    *out = world_copy(&a.base);
    return 0;
}

static int punch(const Fp__Punch *r, ProtobufCMessage **out)
{
    struct mfile *f = file_of(r->ino);
    uint64_t before = f->version;

    cut(f, r->off, r->off + r->len);
    if (r->size_bytes > f->size)
        f->size = r->size_bytes;
    f->version++;
    return reply_commit(f, before, NULL, out);
}

static int clone_range(const Fp__Clone *r, ProtobufCMessage **out)
{
    struct mfile *from = file_of(r->src_ino), *to = file_of(r->dst_ino);
    uint64_t before = to->version, end = r->src_off + r->len;
    struct mslice *take = calloc(from->n + 1, sizeof *take);
    size_t n = 0;

    WORLD_CHECK(end <= from->size);
    for (size_t i = 0; i < from->n; i++) {
        struct mslice s = from->s[i];
        uint64_t a = s.off > r->src_off ? s.off : r->src_off, b = s.off + s.len < end ? s.off + s.len : end;

        if (a >= b)
            continue;
        take[n++] = (struct mslice){a - r->src_off + r->dst_off, b - a, s.chunk, s.chunk_off + (uint32_t)(a - s.off)};
        chunk_of(s.chunk)->refs++;
    }
    cut(to, r->dst_off, r->dst_off + r->len);
    for (size_t i = 0; i < n; i++) {
        insert_by_windows(to, take[i]);
        unref(take[i].chunk);
    }
    free(take);
    if (r->dst_off + r->len > to->size)
        to->size = r->dst_off + r->len;
    to->version++;
    reply_commit(to, before, NULL, out);
    ((Fp__CommitReply *)*out)->copied_bytes = world_faults.mgr_old ? 0 : r->len;
    return 0;
}

static int seek(const Fp__Seek *r, ProtobufCMessage **out)
{
    struct mfile *f = file_of(r->ino);
    Fp__SeekReply a = FP__SEEK_REPLY__INIT;
    uint64_t at = r->off;

    if (at >= f->size)
        return -ENXIO;
    for (size_t i = 0; i < f->n; i++) {
        if (f->s[i].off + f->s[i].len <= at)
            continue;
        if (r->hole && f->s[i].off > at)
            break;
        if (!r->hole) {
            a.off = f->s[i].off > at ? f->s[i].off : at;
            *out = world_copy(&a.base);
            return 0;
        }
        at = f->s[i].off + f->s[i].len;
    }
    if (!r->hole)
        return -ENXIO;
    a.off = at < f->size ? at : f->size;
    *out = world_copy(&a.base);
    return 0;
}

/* As the real one: the benefactors with chunks of other sessions, unless nothing has changed since known_version. */
static int sync_file(uint32_t session, const Fp__Sync *r, ProtobufCMessage **out)
{
    Fp__SyncReply a = FP__SYNC_REPLY__INIT;
    uint32_t bnfs[WORLD_BNFS_MAX];
    struct mfile *f = r->ino ? file_of(r->ino) : NULL;

    a.bnfs = bnfs;
    a.data_version = f && !f->gone ? f->version : 0;
    for (size_t i = 0; f && f->version != r->known_version && i < f->n; i++) {
        uint32_t bnf = chunk_of(f->s[i].chunk)->bnf;
        size_t k = 0;

        while (k < a.n_bnfs && bnfs[k] != bnf)
            k++;
        if (f->s[i].chunk >> 32 != session && k == a.n_bnfs)
            bnfs[a.n_bnfs++] = bnf;
    }
    if (a.n_bnfs > 0 && world_faults.mgr_sync_all) {
        a.n_bnfs = 0;
        a.all = true;
    }
    *out = world_copy(&a.base);
    return 0;
}

static int get_attr(const Fp__InodeReq *r, ProtobufCMessage **out)
{
    Fp__AttrReply a = FP__ATTR_REPLY__INIT;
    Fp__Attr attr;

    fill_attr(file_of(r->ino), &attr);
    a.attr = &attr;
    *out = world_copy(&a.base);
    return 0;
}

static int stat_fs(ProtobufCMessage **out)
{
    static atomic_ullong moved;
    Fp__StatFsReply a = FP__STAT_FS_REPLY__INIT;

    if (!world_faults.mgr_way)
        return -EOPNOTSUPP;
    a.giving_way = world_faults.mgr_way == 2 ? ++moved : 1;
    *out = world_copy(&a.base);
    return 0;
}

static int execute(uint32_t session, uint32_t type, const ProtobufCMessage *msg, ProtobufCMessage **out)
{

    switch (type) {
    case FP__MSG_TYPE__MSG_COMMIT:
        return commit((const Fp__Commit *)msg, out);
    case FP__MSG_TYPE__MSG_SLICEMAP:
        return slice_map((const Fp__SliceMap *)msg, out);
    case FP__MSG_TYPE__MSG_SETATTR:
        return set_attr((const Fp__SetAttr *)msg, out);
    case FP__MSG_TYPE__MSG_PUNCH:
        return punch((const Fp__Punch *)msg, out);
    case FP__MSG_TYPE__MSG_CLONE:
        return clone_range((const Fp__Clone *)msg, out);
    case FP__MSG_TYPE__MSG_SEEK:
        return seek((const Fp__Seek *)msg, out);
    case FP__MSG_TYPE__MSG_GETATTR:
        return get_attr((const Fp__InodeReq *)msg, out);
    case FP__MSG_TYPE__MSG_SYNC:
        return sync_file(session, (const Fp__Sync *)msg, out);
    case FP__MSG_TYPE__MSG_STATFS:
        return stat_fs(out);
    default:
        return -EOPNOTSUPP;
    }
}

bool world_take_one(atomic_int *n)
{
    int v = atomic_load(n);

    while (v > 0)
        if (atomic_compare_exchange_weak(n, &v, v - 1))
            return true;
    return false;
}

int world_mgr_execute(uint32_t session, uint32_t type, const ProtobufCMessage *msg, ProtobufCMessage **reply)
{
    int rc;

    pthread_mutex_lock(&lock);
    ncalls++;
    rc = execute(session, type, msg, reply);
    pthread_mutex_unlock(&lock);
    return rc;
}

int world_mgr_call(uint32_t session, uint32_t type, const ProtobufCMessage *msg, ProtobufCMessage **reply)
{
    ProtobufCMessage *sent = world_copy(msg), *out = NULL;
    int rc;

    if (reply)
        *reply = NULL;
    world_sleep_up_to(world_faults.mgr_delay_us);
    if (world_take_one(&world_faults.mgr_lost_before)) {
        protobuf_c_message_free_unpacked(sent, NULL);
        return FP_EDEADLINE;
    }
    rc = world_mgr_execute(session, type, sent, &out);
    world_sleep_up_to(world_faults.mgr_delay_us);
    protobuf_c_message_free_unpacked(sent, NULL);
    if (rc == 0 && world_take_one(&world_faults.mgr_lost_after))
        rc = FP_EDEADLINE;
    if (rc == 0 && reply)
        *reply = out;
    else if (out)
        protobuf_c_message_free_unpacked(out, NULL);
    return rc;
}

void world_mgr_send(uint32_t type, const ProtobufCMessage *msg)
{
    (void)msg;
    WORLD_CHECK(type == FP__MSG_TYPE__MSG_BADCHUNK);
    pthread_mutex_lock(&lock);
    nbad++;
    pthread_mutex_unlock(&lock);
}

/* -------------------------------------------------------------- for the tests */

void world_mgr_go_back(uint64_t ino, uint64_t size)
{
    pthread_mutex_lock(&lock);
    cut(file_of(ino), 0, UINT64_MAX);
    file_of(ino)->size = size;
    file_of(ino)->version = 1;
    pthread_mutex_unlock(&lock);
}

void world_mgr_reset(void)
{
    for (size_t i = 0; i < nfiles; i++)
        free(files[i].s);
    memset(files, 0, sizeof files);
    nfiles = 0;
    for (size_t i = 0; i < 4096; i++)
        while (chunks[i]) {
            struct mchunk *c = chunks[i];

            chunks[i] = c->next;
            free(c);
        }
    nchunks = nbad = ncalls = nfolds = nfolds_lost = 0;
}

uint64_t world_file_new(uint32_t chunk_size_bytes, uint32_t stripe)
{
    WORLD_CHECK(nfiles < FILES_MAX);
    pthread_mutex_lock(&lock);
    struct mfile *f = &files[nfiles++];
    *f = (struct mfile){.ino = 1 + nfiles, .version = 1, .window = chunk_size_bytes, .stripe = stripe};
    pthread_mutex_unlock(&lock);
    return f->ino;
}

void world_attr(uint64_t ino, Fp__Attr *out)
{
    pthread_mutex_lock(&lock);
    fill_attr(file_of(ino), out);
    pthread_mutex_unlock(&lock);
}

void world_unlink(uint64_t ino)
{
    pthread_mutex_lock(&lock);
    struct mfile *f = file_of(ino);
    f->gone = true;
    cut(f, 0, UINT64_MAX);
    pthread_mutex_unlock(&lock);
}

uint64_t world_view(uint64_t ino, uint8_t *out, uint64_t cap)
{
    static uint8_t stored[FP_STORED_MAX_BYTES], decoded[FP_CHUNK_MAX_BYTES];
    uint64_t size, loaded = 0;

    pthread_mutex_lock(&lock);
    struct mfile *f = file_of(ino);
    size = f->size;
    WORLD_CHECK(size <= cap);
    memset(out, 0, size);
    for (size_t i = 0; i < f->n; i++) {
        const struct mslice *s = &f->s[i];
        const struct mchunk *c = chunk_of(s->chunk);

        WORLD_CHECK(i == 0 || f->s[i - 1].off + f->s[i - 1].len <= s->off);
        WORLD_CHECK(s->off + s->len <= size);
        if (c->id != loaded) {
            WORLD_CHECK(world_bnf_data(c->bnf, c->id, c->len, c->sum, stored) == 0);
            WORLD_CHECK(c->data_len == 0 || world_decode(stored, c->len, decoded, c->data_len) == 0);
        }
        loaded = c->id;
        memcpy(out + s->off, (c->data_len ? decoded : stored) + s->chunk_off, s->len);
    }
    pthread_mutex_unlock(&lock);
    return size;
}

uint64_t world_chunk_at(uint64_t ino, uint64_t off, uint32_t *bnf, uint32_t *chunk_off)
{
    uint64_t id = 0;

    pthread_mutex_lock(&lock);
    struct mfile *f = file_of(ino);
    for (size_t i = 0; i < f->n; i++)
        if (f->s[i].off <= off && off < f->s[i].off + f->s[i].len) {
            id = f->s[i].chunk;
            *chunk_off = f->s[i].chunk_off + (uint32_t)(off - f->s[i].off);
            *bnf = chunk_of(id)->bnf;
        }
    pthread_mutex_unlock(&lock);
    return id;
}

uint64_t world_bad_chunks(void)
{
    pthread_mutex_lock(&lock);
    uint64_t n = nbad;
    pthread_mutex_unlock(&lock);
    return n;
}

uint64_t world_chunk_count(void)
{
    pthread_mutex_lock(&lock);
    uint64_t n = nchunks;
    pthread_mutex_unlock(&lock);
    return n;
}

bool world_mgr_hold(uint64_t chunk)
{
    pthread_mutex_lock(&lock);
    struct mchunk *c = chunk_of(chunk);
    if (c)
        c->refs++;
    pthread_mutex_unlock(&lock);
    return c != NULL;
}

void world_mgr_release(uint64_t chunk)
{
    pthread_mutex_lock(&lock);
    unref(chunk);
    pthread_mutex_unlock(&lock);
}

uint64_t world_stored_bytes(void)
{
    uint64_t sum = 0;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < 4096; i++)
        for (const struct mchunk *c = chunks[i]; c; c = c->next)
            sum += c->stored_bytes;
    pthread_mutex_unlock(&lock);
    return sum;
}

uint64_t world_slice_count(uint64_t ino)
{
    pthread_mutex_lock(&lock);
    uint64_t n = file_of(ino)->n;
    pthread_mutex_unlock(&lock);
    return n;
}

uint64_t world_mgr_calls(void)
{
    pthread_mutex_lock(&lock);
    uint64_t n = ncalls;
    pthread_mutex_unlock(&lock);
    return n;
}
