/* MSG_READDIR: entries after a cookie, in the order in which they were made. "." and ".." are the client's.
 */
#include <errno.h>
#include <sys/stat.h>

#include "manager/core_int.h"

#define ENTRIES_MAX      4096u
#define ENTRIES_PLUS_MAX 2048u

static Fp__DirEntry *entry(struct mgr_core *c, const void *name, size_t len)
{
    Fp__DirEntry *e = MGR_NEW(c, Fp__DirEntry, fp__dir_entry__init);

    if (!e)
        return NULL;
    e->name.data = mgr_arena_copy(&c->arena, name, len);
    e->name.len = len;
    return e->name.data ? e : NULL;
}

static Fp__DirEntry *plain_row(struct mgr_core *c)
{
    const enum mgr_stmt st = MGR_ST_DIRENT_LIST;
    size_t len;
    const void *name = mgr_col_blob(&c->db, st, 3, &len);
    Fp__DirEntry *e = entry(c, name, len);

    if (!e)
        return NULL;
    e->cookie = (uint64_t)mgr_col(&c->db, st, 0);
    e->ino = (uint64_t)mgr_col(&c->db, st, 1);
    e->mode = (uint32_t)mgr_col(&c->db, st, 2) << 12;
    return e;
}

static Fp__DirEntry *plus_row(struct mgr_core *c, const struct mgr_session *s)
{
    const enum mgr_stmt st = MGR_ST_DIRENT_LIST_PLUS;
    struct mgr_inode in;
    size_t len;
    const void *name = mgr_col_blob(&c->db, st, 1, &len);
    Fp__DirEntry *e = entry(c, name, len);

    if (!e)
        return NULL;
    mgr_inode_row(c, st, 2, &in);
    e->cookie = (uint64_t)mgr_col(&c->db, st, 0);
    e->ino = in.ino;
    e->mode = in.mode;
    e->attr = mgr_attr(c, &in);
    if (!e->attr)
        return NULL;
    mgr_lease_attr(c, s, e->attr);
    return e;
}

MGR_HANDLER(readdir)
{
    const Fp__ReadDir *m = msg;
    const enum mgr_stmt st = m->plus ? MGR_ST_DIRENT_LIST_PLUS : MGR_ST_DIRENT_LIST;
    uint32_t max = m->plus ? ENTRIES_PLUS_MAX : ENTRIES_MAX;
    Fp__ReadDirReply *r = MGR_NEW(c, Fp__ReadDirReply, fp__read_dir_reply__init);
    struct mgr_inode dir;
    int rc = mgr_inode_get(c, m->ino, &dir);

    if (!rc && !mgr_is(&dir, S_IFDIR))
        rc = -ENOTDIR;
    if (rc)
        return rc;
    if (m->max_entries && m->max_entries < max)
        max = m->max_entries;
    if (!r || !(r->entries = mgr_arena_alloc(&c->arena, max * sizeof *r->entries)))
        return mgr_doom(c, -ENOMEM);
    r->parent = dir.parent;
    r->next_cookie = c->n.next_cookie;
    rc = m->plus ? mgr_db_one(&c->db, DIRENT_LIST_PLUS, DBI(m->ino), DBI(m->cookie), DBI(max))
                 : mgr_db_one(&c->db, DIRENT_LIST, DBI(m->ino), DBI(m->cookie), DBI(max));
    for (; rc > 0; rc = mgr_db_step(&c->db, st)) {
        Fp__DirEntry *e = m->plus ? plus_row(c, rq->sess) : plain_row(c);

        if (!e) {
            mgr_db_reset(&c->db, st);
            return mgr_doom(c, -ENOMEM);
        }
        r->entries[r->n_entries++] = e;
    }
    r->eof = r->n_entries < max;
    rq->reply = &r->base;
    return rc;
}
