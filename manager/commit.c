/* MSG_COMMIT: new chunks of a session become part of a file.
 *
 * Everything is checked before anything is written. The references of each chunk are counted first, over all
 * slices of the message, so that a slice which is covered by a later one of the same message can be put and
 * cut like any other without its chunk falling to zero in between.
 *
 * If the file is gone the chunks are nobody's: they become garbage at once and the answer is -ENOENT. A chunk
 * that is known already (a commit that was executed, whose answer and replay slot are both lost) is taken as
 * what it is. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "manager/core_int.h"

struct new_chunk {
    const Fp__Chunk *m;
    uint64_t id;
    uint32_t refs;
    bool known; /* in the chunk table already */
};

static int by_id(const void *a, const void *b)
{
    uint64_t x = ((const struct new_chunk *)a)->id, y = ((const struct new_chunk *)b)->id;

    return x < y ? -1 : x > y;
}

static struct new_chunk *find(struct new_chunk *list, size_t n, uint64_t id)
{
    struct new_chunk key = {.id = id};

    return n ? bsearch(&key, list, n, sizeof *list, by_id) : NULL;
}

static int check_chunk(struct mgr_core *c, const struct mgr_req *rq, const struct mgr_inode *in,
                       struct new_chunk *nc)
{
    const Fp__Chunk *m = nc->m;
    struct mgr_chunk have;
    int rc;

    if (m->id >> 32 != rq->sess->id || m->len == 0 || m->len > in->chunk_size || !mgr_bnf_find(c, m->bnf))
        return -EINVAL;
    rc = mgr_chunk_get(c, m->id, &have);
    if (rc == 0) {
        nc->known = true;
        return have.len == m->len && have.sum == m->sum && have.bnf == m->bnf ? 0 : -EINVAL;
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

static int check_slice(struct mgr_core *c, const struct mgr_inode *in, struct new_chunk *list, size_t n,
                       const Fp__Slice *s)
{
    struct new_chunk *nc = find(list, n, s->chunk);
    struct mgr_chunk have;
    uint32_t len;

    if (s->len == 0 || (uint64_t)s->off + s->len > in->chunk_size ||
        s->win > (uint64_t)INT64_MAX / in->chunk_size - 1)
        return -EINVAL;
    if (nc) {
        nc->refs++;
        len = nc->m->len;
    } else {
        if (mgr_chunk_get(c, s->chunk, &have))
            return c->db.err ? c->db.err : -EINVAL;
        len = have.len;
    }
    return (uint64_t)s->chunk_off + s->len > len ? -EINVAL : 0;
}

static int check(struct mgr_core *c, struct mgr_req *rq, const Fp__Commit *m, const struct mgr_inode *in,
                 struct new_chunk *list)
{
    int rc = 0;

    if (!mgr_is(in, S_IFREG) || m->size_bytes > INT64_MAX)
        return -EINVAL;
    for (size_t i = 0; i < m->n_chunks; i++)
        list[i] = (struct new_chunk){.m = m->chunks[i], .id = m->chunks[i]->id};
    if (m->n_chunks)
        qsort(list, m->n_chunks, sizeof *list, by_id);
    for (size_t i = 0; i < m->n_chunks && !rc; i++)
        rc = i && list[i].id == list[i - 1].id ? -EINVAL : check_chunk(c, rq, in, &list[i]);
    for (size_t i = 0; i < m->n_slices && !rc; i++)
        rc = check_slice(c, in, list, m->n_chunks, m->slices[i]);
    return rc;
}

static int put_chunks(struct mgr_core *c, const struct new_chunk *list, size_t n)
{
    int rc = 0;

    for (size_t i = 0; i < n && !rc; i++) {
        const Fp__Chunk *m = list[i].m;
        struct mgr_chunk ch = {.id = m->id,
                               .len = m->len,
                               .stored = m->stored_bytes,
                               .sum = m->sum,
                               .refs = list[i].refs,
                               .bnf = m->bnf};

        if (list[i].known)
            rc = list[i].refs ? mgr_chunk_ref(c, ch.id, ch.refs) : 0;
        else
            rc = ch.refs ? mgr_chunk_insert(c, &ch) : mgr_garbage_put(c, ch.id, ch.bnf, ch.stored);
    }
    return rc;
}

static int put_slices(struct mgr_core *c, const Fp__Commit *m, struct mgr_inode *in, struct new_chunk *list)
{
    int rc = 0;

    for (size_t i = 0; i < m->n_slices && !rc; i++) /* older chunks named once more */
        if (!find(list, m->n_chunks, m->slices[i]->chunk))
            rc = mgr_chunk_ref(c, m->slices[i]->chunk, 1);
    for (size_t i = 0; i < m->n_slices && !rc; i++) {
        const Fp__Slice *s = m->slices[i];
        uint64_t end = s->win * in->chunk_size + s->off + s->len;

        rc = mgr_slice_put(c, in, s);
        if (end > in->size)
            in->size = end;
    }
    return rc;
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

static int reply(struct mgr_core *c, struct mgr_req *rq, const struct mgr_inode *in, uint64_t before)
{
    Fp__CommitReply *r = MGR_NEW(c, Fp__CommitReply, fp__commit_reply__init);

    if (!r || !(r->attr = mgr_attr(c, in)))
        return mgr_doom(c, -ENOMEM);
    r->version_before = before;
    rq->reply = &r->base;
    return 0;
}

MGR_HANDLER(commit)
{
    const Fp__Commit *m = msg;
    struct new_chunk *list = mgr_arena_alloc(&c->arena, (m->n_chunks + 1) * sizeof *list);
    struct mgr_inode in;
    uint64_t before, size;
    int rc = mgr_inode_get(c, m->ino, &in);

    if (!list)
        return mgr_doom(c, -ENOMEM);
    if (rc == -ENOENT || (!rc && mgr_inode_usable(c, &in)))
        return drop_chunks(c, rq, m);
    rc = rc ? rc : check(c, rq, m, &in, list);
    if (rc)
        return rc;
    before = in.data_version;
    size = in.size;
    rc = put_chunks(c, list, m->n_chunks);
    rc = rc ? rc : put_slices(c, m, &in, list);
    if (m->size_bytes > in.size)
        in.size = m->size_bytes;
    if (m->n_slices || in.size != size)
        in.data_version++;
    if (m->mtime_ns) {
        in.mtime = m->mtime_ns;
        if (m->mtime_ns > in.ctime)
            in.ctime = m->mtime_ns;
    }
    if (!rc && m->kill_suidgid)
        rc = mgr_kill_suidgid(c, &in);
    rc = rc ? rc : mgr_inode_put(c, &in);
    rq->durable = m->durable;
    return rc ? rc : reply(c, rq, &in, before);
}

/* Lives here because its answer is the same: fallocate's punch, zero and grow. */
MGR_HANDLER(punch)
{
    const Fp__Punch *m = msg;
    struct mgr_inode in;
    uint64_t before;
    int rc = mgr_inode_get(c, m->ino, &in);

    rc = rc ? rc : mgr_inode_usable(c, &in);
    if (!rc && (!mgr_is(&in, S_IFREG) || m->off > INT64_MAX))
        rc = -EINVAL;
    if (!rc && (m->size_bytes > INT64_MAX || m->len > (uint64_t)INT64_MAX - m->off))
        rc = -EFBIG;
    if (rc)
        return rc;
    before = in.data_version;
    rc = mgr_slices_cut(c, &in, m->off, m->off + m->len);
    if (m->size_bytes > in.size)
        in.size = m->size_bytes;
    in.data_version++;
    in.mtime = in.ctime = c->now.ns;
    rc = rc ? rc : mgr_inode_put(c, &in);
    return rc ? rc : reply(c, rq, &in, before);
}
