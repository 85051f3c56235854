/* MSG_COMMIT: new chunks of a session become part of a file.
 *
 * Everything is checked before anything is written. The references of each chunk are counted first, over all
 * slices of the message, so that a slice which is covered by a later one of the same message can be put and
 * cut like any other without its chunk falling to zero in between. Offsets of slices in a chunk count in bytes
 * of data, whatever form the chunk is stored in.
 *
 * An older chunk that a slice names may have become bad since the mount was told that it is held: then the bytes that the mount had of it are
 * gone. A slice whose chunk is damaged is put, so that the range reads as an error and not
 * as what was there before. One whose chunk is gone, or too short, is put for the same reason, with a lost chunk in its place: one of no
 * benefactor, that is damaged from the beginning and goes with its last slice. Rejected: to leave it out, since only the writer's close tells, and other nodes
 * would read old data or zeros. One whose benefactor is away is not put at first (FP_EAWAY): it may be back in a moment, and only then
 * is it known that the chunk is there. Each of these chunks is named in the answer, and the others of the commit do not suffer.
 *
 * A commit that appends is first made into one that names places, by the size that the file has now: so it goes to the end whoever else extends
 * the file, without a mount having to know where that is. Its slices may lie across the bounds of windows then, and become two.
 *
 * If the file is gone the chunks are nobody's: they become garbage at once and the answer is -ENOENT. A chunk
 * that is known already (a commit that was executed, whose answer and replay slot are both lost) is taken as
 * what it is.
 *
 * A fold (fold.c) takes the same way: if it is lost, its chunks become garbage here, and nothing else happens. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "fp/auxwire.h"
#include "fp/bug.h"
#include "fp/err.h"
#include "fp/log.h"
#include "manager/core_int.h"
#include "manager/drain.h"
#include "manager/version.h"
#include "manager/sets.h"

/* A chunk that the message is about: a new one, or an older one that a slice names once more. */
struct named {
    const Fp__Chunk *m; /* NULL: older */
    uint64_t id;
    uint32_t refs; /* by slices of the message */
    uint32_t data; /* bytes that slices may name */
    bool known;    /* in the chunk table already */
    bool bad;      /* older: its slices don't read as the mount thinks */
    uint64_t lost; /* older: the chunk that stands for it where it is gone; 0: none */
    uint32_t lost_refs;
};

/* Both by id, ascending. */
struct commit {
    struct named *fresh, *older;
    size_t n_fresh, n_older;
    Fp__Slice **slices; /* those to be put */
    size_t n_slices;
    uint64_t next_lost; /* 0: not known */
    bool fold_lost;
};

static int by_id(const void *a, const void *b)
{
    uint64_t x = ((const struct named *)a)->id, y = ((const struct named *)b)->id;

    return x < y ? -1 : x > y;
}

static struct named *find(struct named *list, size_t n, uint64_t id)
{
    struct named key = {.id = id};

    return n ? bsearch(&key, list, n, sizeof *list, by_id) : NULL;
}

/* The data of a chunk is at most that of a window; what is stored of a coded one may be a little longer. */
static bool fits(const Fp__Chunk *m, const struct mgr_inode *in)
{
    uint32_t more = m->data_len ? FP_AUX_EXPAND_MAX_BYTES + FP_ENVELOPE_MAX_BYTES : 0;

    return m->len && m->len <= in->chunk_size + more && m->data_len <= in->chunk_size && mgr_note_fits(m);
}

static bool is_noted(const Fp__Chunk *m)
{
    return m->note.len || m->n_note_keys;
}

static int check_chunk(struct mgr_core *c, const struct mgr_req *rq, const struct mgr_inode *in,
                       struct named *nc)
{
    const Fp__Chunk *m = nc->m;
    struct mgr_chunk have;
    int rc;

    if (m->id >> 32 != rq->sess->id || !fits(m, in) || !mgr_bnf_find(c, m->bnf))
        return -EINVAL;
    nc->data = m->data_len ? m->data_len : m->len;
    rc = mgr_chunk_get(c, m->id, &have);
    if (rc == 0) {
        nc->known = true;
        return have.len == m->len && have.sum == m->sum && have.bnf == m->bnf && have.data == m->data_len
                   ? 0
                   : -EINVAL;
    }
    if (rc != -ENOENT)
        return rc;
    rc = mgr_db_one(&c->db, GARBAGE_HAS, DBI(m->bnf), DBI(m->id));
    if (rc > 0) {
        mgr_db_reset(&c->db, MGR_ST_GARBAGE_HAS);
        return -EIO; /* committed once and overwritten since: it is being deleted */
    }
    return rc;
}

/* A chunk that no benefactor has. Its number is below those of all sessions. */
static int new_lost(struct mgr_core *c, struct commit *k, uint64_t *id)
{
    int rc = k->next_lost ? 0 : mgr_db_one(&c->db, CHUNK_LOST, DBI(MGR_LOST_END));

    if (rc < 0)
        return rc;
    if (!k->next_lost) {
        k->next_lost = (uint64_t)mgr_col(&c->db, MGR_ST_CHUNK_LOST, 0) + 1;
        mgr_db_reset(&c->db, MGR_ST_CHUNK_LOST);
    }
    *id = k->next_lost++;
    return *id < MGR_LOST_END ? 0 : -ENOSPC;
}

static int put_lost(struct mgr_core *c, struct commit *k, struct named *n, Fp__Slice **at)
{
    Fp__Slice *s = MGR_NEW(c, Fp__Slice, fp__slice__init);
    int rc = n->lost ? 0 : new_lost(c, k, &n->lost);

    if (rc || !s)
        return rc ? rc : mgr_doom(c, -ENOMEM);
    s->win = (*at)->win;
    s->off = s->chunk_off = (*at)->off;
    s->len = (*at)->len;
    s->chunk = n->lost;
    n->bad = true;
    n->lost_refs++;
    *at = s;
    return 0;
}

static int check_slice(struct mgr_core *c, const struct mgr_inode *in, struct commit *k, Fp__Slice **at)
{
    const Fp__Slice *s = *at;
    struct named *n;

    if (s->len == 0 || (uint64_t)s->off + s->len > in->chunk_size ||
        s->win > (uint64_t)INT64_MAX / in->chunk_size - 1)
        return -EINVAL;
    if (!s->chunk) /* a hole */
        return 0;
    n = find(k->fresh, k->n_fresh, s->chunk);
    n = n ? n : find(k->older, k->n_older, s->chunk);
    if ((uint64_t)s->chunk_off + s->len <= n->data) {
        n->refs++;
        return 0;
    }
    return n->m ? -EINVAL : put_lost(c, k, n, at);
}

static int take_fresh(struct mgr_core *c, const struct mgr_req *rq, const Fp__Commit *m,
                      const struct mgr_inode *in, struct commit *k)
{
    int rc = 0;

    k->n_fresh = m->n_chunks;
    for (size_t i = 0; i < k->n_fresh; i++)
        k->fresh[i] = (struct named){.m = m->chunks[i], .id = m->chunks[i]->id};
    if (k->n_fresh)
        qsort(k->fresh, k->n_fresh, sizeof *k->fresh, by_id);
    for (size_t i = 0; i < k->n_fresh && !rc; i++)
        rc = i && k->fresh[i].id == k->fresh[i - 1].id ? -EINVAL : check_chunk(c, rq, in, &k->fresh[i]);
    return rc;
}

/* Data 0: it is gone. */
static int check_older(struct mgr_core *c, const Fp__Commit *m, struct named *n)
{
    const struct mgr_bnf *b;
    struct mgr_chunk have;
    int rc = mgr_chunk_get(c, n->id, &have);

    if (rc) {
        n->bad = true;
        return rc == -ENOENT ? 0 : rc;
    }
    n->known = true;
    n->data = mgr_chunk_data(&have);
    b = mgr_bnf_find(c, have.bnf);
    rc = mgr_damage_has(c, n->id, NULL);
    n->bad = rc || !b || mgr_bnf_away(b);
    if (rc == 0 && n->bad && !m->anyway)
        return FP_EAWAY;
    return rc < 0 ? rc : 0;
}

/* De-duplicated windows name the same few chunks many times: each is looked up once. */
static int take_older(struct mgr_core *c, const Fp__Commit *m, struct commit *k)
{
    size_t n = 0;
    int rc = 0;

    k->older = k->fresh + k->n_fresh;
    for (size_t i = 0; i < m->n_slices; i++) {
        uint64_t id = m->slices[i]->chunk;

        if (id && (!n || k->older[n - 1].id != id) && !find(k->fresh, k->n_fresh, id))
            k->older[n++] = (struct named){.id = id};
    }
    if (n)
        qsort(k->older, n, sizeof *k->older, by_id);
    for (size_t i = 0; i < n && !rc; i++) {
        if (i && k->older[i].id == k->older[k->n_older - 1].id)
            continue;
        k->older[k->n_older] = k->older[i];
        rc = check_older(c, m, &k->older[k->n_older++]);
    }
    return rc;
}

/* A fold of a window that was changed meanwhile: its chunks are like any that no slice names. */
static int check_fold(struct mgr_core *c, const Fp__Commit *m, struct commit *k)
{
    bool same = false;
    int rc = k->n_older ? -EINVAL : mgr_fold_check(c, m, &same);

    if (rc || same || FP_BUG("mgr-folds-what-was-written"))
        return rc;
    k->fold_lost = true;
    k->n_slices = 0;
    for (size_t i = 0; i < k->n_fresh; i++)
        k->fresh[i].refs = 0;
    return 0;
}

static int check(struct mgr_core *c, struct mgr_req *rq, const Fp__Commit *m, const struct mgr_inode *in,
                 struct commit *k)
{
    int rc;

    if (!mgr_is(in, S_IFREG) || m->size_bytes > INT64_MAX || (m->fold && (m->size_bytes || m->mtime_ns || m->kill_suidgid)))
        return -EINVAL;
    rc = take_fresh(c, rq, m, in, k);
    rc = rc ? rc : take_older(c, m, k);
    for (size_t i = 0; i < m->n_slices && !rc; i++) {
        k->slices[i] = m->slices[i];
        rc = check_slice(c, in, k, &k->slices[i]);
    }
    k->n_slices = m->n_slices;
    rc = rc ? rc : mgr_slices_fit(c, in, k->slices, k->n_slices);
    return rc || !m->fold ? rc : check_fold(c, m, k);
}

static int put_chunk(struct mgr_core *c, const struct named *n, uint64_t ino)
{
    const Fp__Chunk *m = n->m;
    struct mgr_chunk ch = {.id = m->id,
                           .len = m->len,
                           .stored = m->stored_bytes,
                           .sum = m->sum,
                           .refs = n->refs,
                           .bnf = m->bnf,
                           .data = m->data_len,
                           .noted = is_noted(m)};
    int rc;

    if (n->known)
        return n->refs ? mgr_chunk_ref(c, ch.id, ch.refs) : 0;
    if (!n->refs)
        return mgr_garbage_put(c, ch.id, ch.bnf, ch.stored);
    ch.round = mgr_round_of(c, mgr_bnf_find(c, ch.bnf), ch.id, ino);
    rc = mgr_chunk_insert(c, &ch);
    return rc || !ch.noted ? rc : mgr_note_put(c, m);
}

static int put_keys(struct mgr_core *c, const struct commit *k)
{
    struct mgr_note_key *list;
    size_t n = 0;

    for (size_t i = 0; i < k->n_fresh; i++)
        n += k->fresh[i].m->n_note_keys;
    if (!n)
        return 0;
    list = mgr_arena_alloc(&c->arena, n * sizeof *list);
    if (!list)
        return mgr_doom(c, -ENOMEM);
    n = 0;
    for (size_t i = 0; i < k->n_fresh; i++) {
        const struct named *f = &k->fresh[i];

        for (size_t j = 0; j < f->m->n_note_keys && !f->known && f->refs; j++)
            list[n++] = (struct mgr_note_key){f->m->note_keys[j], f->id};
    }
    return mgr_notes_put_keys(c, list, n);
}

static int insert_lost(struct mgr_core *c, const struct named *n, const struct mgr_inode *in)
{
    struct mgr_chunk ch = {.id = n->lost, .len = in->chunk_size, .refs = n->lost_refs};

    return n->lost ? mgr_chunk_insert(c, &ch) : 0;
}

/* After the slices were put: a later one of the same commit may have covered them. */
static int note_lost(struct mgr_core *c, const struct commit *k, uint64_t ino)
{
    int rc = 0;

    for (size_t i = 0; i < k->n_older && !rc; i++) {
        const struct named *n = &k->older[i];
        struct mgr_chunk ch;

        if (!n->lost)
            continue;
        FP_LOG_EVERY(1000, FP_LOG_ERROR, "inode %llu: chunk %llx, which new data was to share, is gone: that data is lost, see fpctl status", (unsigned long long)ino,
                 (unsigned long long)n->id);
        rc = mgr_chunk_get(c, n->lost, &ch);
        rc = rc == -ENOENT ? 0 : rc ? rc : mgr_damage_chunk(c, n->lost, 0, false, "the chunk that it was to share is gone");
    }
    return rc;
}

static int put_chunks(struct mgr_core *c, const struct commit *k, const struct mgr_inode *in)
{
    int rc = 0;

    for (size_t i = 0; i < k->n_fresh && !rc; i++)
        rc = put_chunk(c, &k->fresh[i], in->ino);
    for (size_t i = 0; i < k->n_older && !rc; i++)
        rc = !k->older[i].refs ? 0 : mgr_chunk_ref(c, k->older[i].id, k->older[i].refs);
    for (size_t i = 0; i < k->n_older && !rc; i++)
        rc = insert_lost(c, &k->older[i], in);
    return rc ? rc : put_keys(c, k);
}

static void extend(const Fp__Commit *m, struct mgr_inode *in)
{
    for (size_t i = 0; i < m->n_slices; i++) {
        const Fp__Slice *s = m->slices[i];
        uint64_t end = s->win * in->chunk_size + s->off + s->len;

        if (end > in->size)
            in->size = end;
    }
    if (m->size_bytes > in->size)
        in->size = m->size_bytes;
}

/* The file is gone. */
static int drop_chunks(struct mgr_core *c, struct mgr_req *rq, const Fp__Commit *m)
{
    int rc = 0;

    for (size_t i = 0; i < m->n_chunks && !rc; i++) {
        const Fp__Chunk *ch = m->chunks[i];
        struct mgr_chunk have;

        if (ch->id >> 32 == rq->sess->id && mgr_bnf_find(c, ch->bnf) &&
            mgr_chunk_get(c, ch->id, &have) == -ENOENT)
            rc = mgr_garbage_put(c, ch->id, ch->bnf, ch->stored_bytes);
    }
    return rc ? rc : -ENOENT;
}

/* It was closed under a lease, or appended with the right to, that the session has lost since; and the file is not any more what it was then, or will not be: who has the
 * right to append now has been told where the end is. */
static bool is_overtaken(const struct mgr_core *c, const struct mgr_req *rq, const Fp__Commit *m, const struct mgr_inode *in)
{
    if (!m->based_on || m->lease_time == rq->sess->lease_time)
        return false;
    return m->based_on != in->data_version || mgr_others_append(c, rq->sess, m->ino);
}

static int refuse_overtaken(struct mgr_core *c, struct mgr_req *rq, const Fp__Commit *m)
{
    const struct mgr_session *s = rq->sess;
    int rc = drop_chunks(c, rq, m);

    FP_LOG_EVERY(1000, FP_LOG_WARN, "inode %llu: what %s:%s had closed or appended before it was cut off is refused: the file was opened or written by others since, or put back to what it was before",
                 (unsigned long long)m->ino, s->node, s->mountpoint);
    return rc == -ENOENT ? FP_EOVERTAKEN : rc;
}

static int reply(struct mgr_core *c, struct mgr_req *rq, const struct mgr_inode *in, uint64_t before)
{
    Fp__CommitReply *r = MGR_NEW(c, Fp__CommitReply, fp__commit_reply__init);

    if (!r || !(r->attr = mgr_attr(c, in)))
        return mgr_doom(c, -ENOMEM);
    r->version_before = before;
    rq->reply = &r->base;
    return 0;
}

static int name_bad(struct mgr_core *c, const struct mgr_req *rq, const struct commit *k)
{
    Fp__CommitReply *r = (Fp__CommitReply *)rq->reply;

    if (!(r->bad_chunks = mgr_arena_alloc(&c->arena, (k->n_older + 1) * sizeof *r->bad_chunks)))
        return mgr_doom(c, -ENOMEM);
    for (size_t i = 0; i < k->n_older; i++)
        if (k->older[i].bad)
            r->bad_chunks[r->n_bad_chunks++] = k->older[i].id;
    return 0;
}

/* Slice s, which counts from the end of the file, at its place. */
static int place_one(struct mgr_core *c, const Fp__Slice *s, const struct mgr_inode *in, Fp__Commit *to)
{
    uint64_t size = in->chunk_size, pos;
    uint32_t done = 0;

    if (s->len == 0 || (uint64_t)s->off + s->len > size || s->win > (uint64_t)INT64_MAX / size - 1)
        return -EINVAL;
    pos = s->win * size + s->off;
    if (pos > (uint64_t)INT64_MAX - in->size - s->len)
        return -EFBIG;
    for (pos += in->size; done < s->len; to->n_slices++) {
        Fp__Slice *p = MGR_NEW(c, Fp__Slice, fp__slice__init);

        if (!p)
            return mgr_doom(c, -ENOMEM);
        p->win = (pos + done) / size;
        p->off = (uint32_t)((pos + done) % size);
        p->len = s->len - done < size - p->off ? s->len - done : (uint32_t)(size - p->off);
        p->chunk = s->chunk;
        p->chunk_off = s->chunk ? s->chunk_off + done : 0;
        done += p->len;
        to->slices[to->n_slices] = p;
    }
    return 0;
}

static int place_at_end(struct mgr_core *c, const Fp__Commit *m, const struct mgr_inode *in, Fp__Commit *to)
{
    int rc = 0;

    *to = *m;
    to->n_slices = 0;
    to->slices = mgr_arena_alloc(&c->arena, (2 * m->n_slices + 1) * sizeof *to->slices);
    if (!to->slices)
        return mgr_doom(c, -ENOMEM);
    if (m->size_bytes > (uint64_t)INT64_MAX - in->size)
        return -EFBIG;
    to->size_bytes = m->size_bytes ? in->size + m->size_bytes : 0;
    for (size_t i = 0; i < m->n_slices && !rc; i++)
        rc = place_one(c, m->slices[i], in, to);
    return rc;
}

/* What else the answer has. */
static int tell(struct mgr_core *c, const struct mgr_req *rq, const Fp__Commit *m, const struct mgr_inode *in,
                const struct commit *k)
{
    Fp__CommitReply *r = (Fp__CommitReply *)rq->reply;
    int rc = name_bad(c, rq, k);

    r->fold_lost = k->fold_lost;
    return rc || m->fold || !m->tell_folds ? rc : mgr_fold_hints(c, in, k->slices, k->n_slices, r);
}

static bool all_behind(const struct mgr_inode *in, const struct commit *k)
{
    for (size_t i = 0; i < k->n_slices; i++)
        if (k->slices[i]->win * in->chunk_size + k->slices[i]->off < in->size)
            return false;
    return true;
}

MGR_HANDLER(commit)
{
    const Fp__Commit *m = msg;
    struct commit k = {0};
    Fp__Commit placed;
    struct mgr_inode in;
    uint64_t before, size;
    int rc = mgr_inode_get(c, m->ino, &in);

    if (rc == -ENOENT || (!rc && mgr_inode_usable(c, &in)))
        return drop_chunks(c, rq, m);
    rc = rc ? rc : mgr_change_check(c, rq->sess, m->ino);
    if (rc == FP_EOVERTAKEN || (!rc && is_overtaken(c, rq, m, &in)))
        return refuse_overtaken(c, rq, m);
    if (!rc && m->append) {
        rc = mgr_is(&in, S_IFREG) ? place_at_end(c, m, &in, &placed) : -EINVAL;
        m = &placed;
    }
    if (rc)
        return rc;
    k.fresh = mgr_arena_alloc(&c->arena, (m->n_chunks + m->n_slices + 1) * sizeof *k.fresh);
    k.slices = mgr_arena_alloc(&c->arena, (m->n_slices + 1) * sizeof(*k.slices));
    if (!k.fresh || !k.slices)
        return mgr_doom(c, -ENOMEM);
    rc = check(c, rq, m, &in, &k);
    if (rc)
        return rc;
    before = in.data_version;
    size = in.size;
    rc = put_chunks(c, &k, &in);
    if (!rc && !m->fold && (k.n_slices || m->size_bytes > in.size))
        rc = mgr_data_commits(c, rq->sess, &in, k.slices, k.n_slices, m->append || (m->appended && all_behind(&in, &k)));
    rc = rc ? rc : mgr_slices_put(c, &in, k.slices, k.n_slices);
    rc = rc ? rc : note_lost(c, &k, in.ino);
    if (!m->fold)
        extend(m, &in);
    if (k.n_slices || in.size != size)
        in.data_version += !FP_BUG("mgr-version-stays");
    if (m->mtime_ns) {
        in.mtime = m->mtime_ns;
        if (m->mtime_ns > in.ctime)
            in.ctime = m->mtime_ns;
    }
    if (!rc && m->kill_suidgid)
        rc = mgr_kill_suidgid(c, &in);
    if (!rc && !m->fold && k.n_slices)
        rc = mgr_lost_written(c, &in, k.slices, k.n_slices);
    if (!rc && !m->fold && in.data_version != before)
        rc = mgr_sets_changed(c, &in, (int64_t)(in.size - size));
    if (!rc && m->fold && in.data_version != before && in.flags & MGR_DRAINS)
        rc = mgr_drained_folded(c, &in, before);
    if (m->based_on && m->closes && m->lease_time != rq->sess->lease_time) /* its mount is back with what it had closed */
        in.flags &= ~(MGR_LOST_CLOSE | MGR_UNSURE);
    if (!rc && m->closes)
        rc = mgr_lease_published(c, rq->sess, in.ino, m->closed_upto);
    rc = rc ? rc : mgr_inode_put(c, &in);
    if (!rc && m->closes && !m->fold)
        rc = mgr_epoch_published(c, rq->sess, in.ino);
    rq->durable = m->durable;
    rc = rc ? rc : reply(c, rq, &in, before);
    return rc ? rc : tell(c, rq, m, &in, &k);
}

/* Lives here because its answer is the same: fallocate's punch, zero and grow. */
MGR_HANDLER(punch)
{
    const Fp__Punch *m = msg;
    struct mgr_inode in;
    uint64_t before, size;
    int rc = mgr_inode_get(c, m->ino, &in);

    rc = rc ? rc : mgr_inode_usable(c, &in);
    rc = rc ? rc : mgr_change_check(c, rq->sess, m->ino);
    if (!rc && (!mgr_is(&in, S_IFREG) || m->off > INT64_MAX))
        rc = -EINVAL;
    if (!rc && (m->size_bytes > INT64_MAX || m->len > (uint64_t)INT64_MAX - m->off))
        rc = -EFBIG;
    if (!rc && m->len) /* its ends may cut a slice in two */
        rc = mgr_window_fits(c, &in, m->off / in.chunk_size, 1);
    if (rc)
        return rc;
    before = in.data_version;
    size = in.size;
    rc = mgr_data_changes(c, rq->sess, &in, m->off, m->off + m->len);
    rc = rc ? rc : mgr_slices_cut(c, &in, m->off, m->off + m->len);
    if (m->size_bytes > in.size)
        in.size = m->size_bytes;
    in.data_version++;
    in.mtime = in.ctime = c->now.ns;
    rc = rc ? rc : mgr_sets_changed(c, &in, (int64_t)(in.size - size));
    rc = rc ? rc : mgr_inode_put(c, &in);
    return rc ? rc : reply(c, rq, &in, before);
}
