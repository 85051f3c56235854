/* MSG_CLONE: copy_file_range by sharing chunks. The range may lie anywhere in either file, and the files may
 * have different chunk sizes: a slice of the source is cut at the windows of the destination, and its chunk
 * counted once more for each piece. No byte is moved. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "fp/err.h"
#include "fp/grown.h"
#include "manager/core_int.h"
#include "manager/version.h"
#include "manager/sets.h"

#define PIECES_MAX (1u << 20) /* more than that: the client copies */

struct piece {
    uint64_t pos; /* in the source file */
    uint64_t chunk;
    uint32_t len, chunk_off;
};

struct pieces {
    struct piece *list;
    size_t count, cap;
};

static int append(struct pieces *ps, const struct piece *p)
{
    struct piece *list;

    if (ps->count == PIECES_MAX)
        return -EOPNOTSUPP;
    list = fp_grown(ps->list, ps->count, &ps->cap, sizeof *list);
    if (!list)
        return -ENOMEM;
    ps->list = list;
    ps->list[ps->count++] = *p;
    return 0;
}

/* What is mapped of [from, to), cut to it. */
static int collect(struct mgr_core *c, const struct mgr_inode *in, uint64_t from, uint64_t to,
                   struct pieces *ps)
{
    const enum mgr_stmt st = MGR_ST_SLICE_FROM;
    int rc = mgr_db_one(&c->db, SLICE_FROM, DBI(in->ino), DBI(from / in->chunk_size), DBI(0),
                        DBI((to - 1) / in->chunk_size + 1), DBI(-1));

    for (; rc > 0; rc = mgr_db_step(&c->db, st)) {
        uint64_t pos = (uint64_t)mgr_col(&c->db, st, 0) * in->chunk_size + (uint64_t)mgr_col(&c->db, st, 1);
        uint64_t end = pos + (uint64_t)mgr_col(&c->db, st, 2), skip = pos < from ? from - pos : 0;
        struct piece p = {.pos = pos + skip, .chunk = (uint64_t)mgr_col(&c->db, st, 3)};

        end = end < to ? end : to;
        if (p.pos >= end)
            continue;
        p.len = (uint32_t)(end - p.pos);
        p.chunk_off = (uint32_t)(mgr_col(&c->db, st, 4) + (int64_t)skip);
        rc = append(ps, &p);
        if (rc)
            break;
    }
    mgr_db_reset(&c->db, st);
    return rc;
}

/* Puts one piece at pos of the destination, in as many slices as it touches windows. */
static int put(struct mgr_core *c, struct mgr_inode *dst, uint64_t pos, struct piece p)
{
    int rc = 0;

    while (p.len && !rc) {
        uint32_t off = (uint32_t)(pos % dst->chunk_size), room = dst->chunk_size - off;
        uint32_t len = p.len < room ? p.len : room;
        Fp__Slice s = FP__SLICE__INIT, *ss = &s;

        s.win = pos / dst->chunk_size;
        s.off = off;
        s.len = len;
        s.chunk = p.chunk;
        s.chunk_off = p.chunk_off;
        rc = mgr_chunk_ref(c, p.chunk, 1);
        rc = rc ? rc : mgr_slices_put(c, dst, &ss, 1);
        pos += len;
        p.chunk_off += len;
        p.len -= len;
    }
    return rc;
}

static int check(const Fp__Clone *m, const struct mgr_inode *src, const struct mgr_inode *dst, uint64_t *len)
{
    if (!mgr_is(src, S_IFREG) || !mgr_is(dst, S_IFREG))
        return mgr_is(src, S_IFDIR) || mgr_is(dst, S_IFDIR) ? -EISDIR : -EINVAL;
    if (m->src_off > INT64_MAX || m->dst_off > INT64_MAX || m->len > (uint64_t)INT64_MAX - m->dst_off)
        return -EFBIG;
    *len = m->src_off >= src->size ? 0 : m->len < src->size - m->src_off ? m->len : src->size - m->src_off;
    if (src->ino == dst->ino && m->src_off < m->dst_off + *len && m->dst_off < m->src_off + *len)
        return -EINVAL;
    return 0;
}

/* Before anything is changed: where they would go, window by window. A window that one piece covers alone can't have too many. */
static int check_room(struct mgr_core *c, const Fp__Clone *m, const struct mgr_inode *dst,
                      const struct pieces *ps)
{
    uint64_t n = 0, win = 0;
    int rc = 0;

    for (size_t i = 0; i < ps->count && !rc; i++) {
        uint64_t pos = ps->list[i].pos - m->src_off + m->dst_off;
        uint64_t first = pos / dst->chunk_size, last = (pos + ps->list[i].len - 1) / dst->chunk_size;

        if (n && first != win)
            rc = mgr_window_fits(c, dst, win, n + 1);
        n = first == win ? n + 1 : 1;
        if (last != first && !rc)
            rc = mgr_window_fits(c, dst, first, n + 1);
        n = last == first ? n : 1;
        win = last;
    }
    if (n && !rc)
        rc = mgr_window_fits(c, dst, win, n + 1);
    return rc == -EFBIG ? -EOPNOTSUPP : rc; /* the client copies */
}

static int copy(struct mgr_core *c, const struct mgr_session *s, const Fp__Clone *m, const struct mgr_inode *src, struct mgr_inode *dst, uint64_t len)
{
    struct pieces ps = {0};
    int rc = collect(c, src, m->src_off, m->src_off + len, &ps);

    rc = rc ? rc : check_room(c, m, dst, &ps);
    /* the references first: cutting the destination may be what frees a chunk */
    for (size_t i = 0; i < ps.count && !rc; i++)
        rc = mgr_chunk_ref(c, ps.list[i].chunk, 1);
    rc = rc ? rc : mgr_data_changes(c, s, dst, m->dst_off, m->dst_off + len);
    rc = rc ? rc : mgr_slices_cut(c, dst, m->dst_off, m->dst_off + len);
    for (size_t i = 0; i < ps.count && !rc; i++)
        rc = put(c, dst, ps.list[i].pos - m->src_off + m->dst_off, ps.list[i]);
    for (size_t i = 0; i < ps.count && !rc; i++)
        rc = mgr_chunk_unref(c, ps.list[i].chunk);
    free(ps.list);
    if (m->dst_off + len > dst->size)
        dst->size = m->dst_off + len;
    return rc;
}

MGR_HANDLER(clone)
{
    const Fp__Clone *m = msg;
    Fp__CommitReply *r = MGR_NEW(c, Fp__CommitReply, fp__commit_reply__init);
    struct mgr_inode src, dst;
    uint64_t len = 0;
    int rc = mgr_inode_get(c, m->src_ino, &src);

    rc = rc ? rc : mgr_inode_get(c, m->dst_ino, &dst);
    rc = rc ? rc : mgr_inode_usable(c, &src);
    rc = rc ? rc : mgr_inode_usable(c, &dst);
    rc = rc ? rc : mgr_is_returning(c, src.ino) ? FP_EPUBLISHING : mgr_change_check(c, rq->sess, dst.ino);
    rc = rc ? rc : check(m, &src, &dst, &len);
    if (rc)
        return rc;
    if (!r)
        return mgr_doom(c, -ENOMEM);
    r->version_before = dst.data_version;
    if (len) {
        uint64_t size = dst.size;

        rc = copy(c, rq->sess, m, &src, &dst, len);
        dst.data_version++;
        dst.mtime = dst.ctime = c->now.ns;
        rc = rc ? rc : mgr_sets_changed(c, &dst, (int64_t)(dst.size - size));
        rc = rc ? rc : mgr_inode_put(c, &dst);
    }
    r->copied_bytes = len;
    r->copied_nothing = len == 0;
    if (!rc && !(r->attr = mgr_attr(c, &dst)))
        return mgr_doom(c, -ENOMEM);
    rq->reply = &r->base;
    return rc;
}
