/* Rows of inode and dirent, and what every namespace handler needs: checks of names, attributes for replies.
 *
 * Handlers read a whole inode, change the struct and write it back: one statement to read and one to write,
 * whatever the change. Column order is MGR_INODE_COLS everywhere. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "fp/err.h"
#include "manager/core_int.h"
#include "manager/version.h"
#include "manager/sets.h"

void mgr_inode_row(const struct mgr_core *c, enum mgr_stmt st, int col, struct mgr_inode *in)
{
    const struct mgr_db *db = &c->db;

    in->ino = (uint64_t)mgr_col(db, st, col);
    in->mode = (uint32_t)mgr_col(db, st, col + 1);
    in->nlink = (uint32_t)mgr_col(db, st, col + 2);
    in->uid = (uint32_t)mgr_col(db, st, col + 3);
    in->gid = (uint32_t)mgr_col(db, st, col + 4);
    in->rdev = (uint64_t)mgr_col(db, st, col + 5);
    in->size = (uint64_t)mgr_col(db, st, col + 6);
    in->mapped = (uint64_t)mgr_col(db, st, col + 7);
    in->atime = mgr_col(db, st, col + 8);
    in->mtime = mgr_col(db, st, col + 9);
    in->ctime = mgr_col(db, st, col + 10);
    in->btime = mgr_col(db, st, col + 11);
    in->chunk_size = (uint32_t)mgr_col(db, st, col + 12);
    in->stripe = (uint32_t)mgr_col(db, st, col + 13);
    in->data_version = (uint64_t)mgr_col(db, st, col + 14);
    in->parent = (uint64_t)mgr_col(db, st, col + 15);
    in->flags = (uint32_t)mgr_col(db, st, col + 16);
    in->ckpt = (uint64_t)mgr_col(db, st, col + 17);
}

int mgr_inode_get(struct mgr_core *c, uint64_t ino, struct mgr_inode *in)
{
    int rc = mgr_db_one(&c->db, INODE_GET, DBI(ino));

    if (rc <= 0)
        return rc ? rc : -ENOENT;
    mgr_inode_row(c, MGR_ST_INODE_GET, 0, in);
    mgr_db_reset(&c->db, MGR_ST_INODE_GET);
    return 0;
}

int mgr_inode_get_live(struct mgr_core *c, uint64_t ino, struct mgr_inode *in)
{
    int rc = mgr_inode_get(c, ino, in);

    return !rc && in->flags & MGR_SHADOW ? -ENOENT : rc;
}

int mgr_inode_put(struct mgr_core *c, const struct mgr_inode *in)
{
    return mgr_db_exec(&c->db, INODE_UPDATE, DBI(in->ino), DBI(in->mode), DBI(in->nlink), DBI(in->uid),
                       DBI(in->gid), DBI(in->size), DBI(in->mapped), DBI(in->atime), DBI(in->mtime),
                       DBI(in->ctime), DBI(in->chunk_size), DBI(in->stripe), DBI(in->data_version),
                       DBI(in->parent), DBI(in->flags), DBI(in->ckpt));
}

int mgr_inode_new(struct mgr_core *c, struct mgr_inode *in, const void *target, size_t target_len)
{
    if (c->n.inodes - c->versions->shadows.used >= c->o.inodes_max)
        return -ENOSPC;
    if (!in->ctime)
        in->ctime = c->now.ns;
    in->atime = in->mtime = in->btime = in->ctime;
    return mgr_inode_insert(c, in, target, target_len);
}

int mgr_inode_insert(struct mgr_core *c, struct mgr_inode *in, const void *target, size_t target_len)
{
    if (!in->ino)
        in->ino = c->n.next_ino++;
    c->n.inodes++;
    c->n.dirty = true;
    return mgr_db_exec(&c->db, INODE_INSERT, DBI(in->ino), DBI(in->mode), DBI(in->nlink), DBI(in->uid),
                       DBI(in->gid), DBI(in->rdev), DBI(in->size), DBI(in->mapped), DBI(in->atime),
                       DBI(in->mtime), DBI(in->ctime), DBI(in->btime), DBI(in->chunk_size), DBI(in->stripe),
                       DBI(in->data_version), DBI(in->parent), DBB(target, target_len), DBI(in->flags), DBI(in->ckpt));
}

int mgr_dir_get(struct mgr_core *c, uint64_t ino, struct mgr_inode *in)
{
    int rc = mgr_inode_get(c, ino, in);

    if (rc)
        return rc;
    if (!mgr_is(in, S_IFDIR))
        return -ENOTDIR;
    return in->nlink ? 0 : -ENOENT; /* removed, but somebody is still in it */
}

int mgr_check_found(struct mgr_core *c, const struct mgr_inode *dir, uint64_t found, uint64_t ino)
{
    struct mgr_inode in;
    int rc;

    if (found == 0 || found == ino)
        return 0;
    if (dir->mode & S_ISVTX)
        return -ESTALE; /* it has looked at another owner */
    rc = mgr_inode_get(c, found, &in);
    if (rc == -ENOENT)
        return 0;
    return rc ? rc : mgr_is(&in, S_IFDIR) && in.nlink ? -ESTALE : 0; /* that directory lives on: the kernel would take it for removed */
}

int mgr_inode_usable(struct mgr_core *c, const struct mgr_inode *in)
{
    return in->nlink == 0 && mgr_map_get(&c->orphans, in->ino) == 2 ? -ENOENT : 0;
}

Fp__Attr *mgr_attr(struct mgr_core *c, const struct mgr_inode *in)
{
    Fp__Attr *a = MGR_NEW(c, Fp__Attr, fp__attr__init);

    if (!a)
        return NULL;
    a->ino = in->ino;
    a->mode = in->mode;
    a->nlink = in->nlink;
    a->uid = in->uid;
    a->gid = in->gid;
    a->rdev = in->rdev;
    a->size_bytes = in->size;
    a->blocks = (in->mapped + 511) / 512;
    a->atime_ns = in->atime;
    a->mtime_ns = in->mtime;
    a->ctime_ns = in->ctime;
    a->btime_ns = in->btime;
    a->chunk_size_bytes = in->chunk_size;
    a->stripe = in->stripe;
    a->data_version = in->data_version;
    a->strict = in->flags & MGR_STRICT;
    a->generation = 1; /* numbers are never used twice */
    if (mgr_is(in, S_IFDIR))
        a->size_bytes = 4096;
    return a;
}

int mgr_reply_attr(struct mgr_core *c, struct mgr_req *rq, const struct mgr_inode *in, bool created)
{
    Fp__AttrReply *r = MGR_NEW(c, Fp__AttrReply, fp__attr_reply__init);

    if (!r)
        return mgr_doom(c, -ENOMEM);
    r->attr = mgr_attr(c, in);
    if (!r->attr)
        return mgr_doom(c, -ENOMEM);
    mgr_lease_attr(c, rq->sess, r->attr);
    r->created = created;
    rq->reply = &r->base;
    return 0;
}

int mgr_reply_open(struct mgr_core *c, struct mgr_req *rq, const struct mgr_inode *in, const struct mgr_open *o)
{
    struct mgr_inode newer = *in;
    int rc = mgr_is_returning(c, in->ino) ? FP_EPUBLISHING : mgr_lease_check(c, rq->sess, in->ino);

    rc = rc ? rc : mgr_overtaken_opened(c, rq->sess, in->ino);
    if (!rc && o->write && (!o->based_on || o->based_on != in->data_version) && mgr_leases_may_return(c)) {
        newer.data_version++;
        rc = mgr_inode_put(c, &newer);
        in = &newer;
    }
    rc = rc ? rc : mgr_hold(c, rq->sess, in->ino, o->write);
    rc = rc || !o->write ? rc : mgr_sets_opened(c, in);
    rc = rc ? rc : mgr_reply_attr(c, rq, in, false);
    if (!rc)
        ((Fp__AttrReply *)rq->reply)->behind = mgr_lease_open(c, rq->sess, in->ino, o->behind);
    return rc;
}

int mgr_kill_suidgid(struct mgr_core *c, struct mgr_inode *in)
{
    static const char cap[] = "security.capability";

    if (mgr_is(in, S_IFDIR))
        return 0;
    in->mode &= ~(uint32_t)S_ISUID;
    if (in->mode & S_IXGRP)
        in->mode &= ~(uint32_t)S_ISGID;
    return mgr_db_exec(&c->db, XATTR_DELETE, DBI(in->ino), DBB(cap, sizeof cap - 1));
}

/* ---------------------------------------------------------------- names */

int mgr_name_check(const ProtobufCBinaryData *name)
{
    if (name->len == 0)
        return -ENOENT;
    if (name->len > MGR_NAME_MAX)
        return -ENAMETOOLONG;
    if (memchr(name->data, '/', name->len) || memchr(name->data, 0, name->len))
        return -EINVAL;
    if (name->data[0] == '.' && (name->len == 1 || (name->len == 2 && name->data[1] == '.')))
        return -EINVAL;
    return 0;
}

int mgr_dirent_get(struct mgr_core *c, uint64_t parent, const ProtobufCBinaryData *name, struct mgr_dirent *d)
{
    int rc = mgr_db_one(&c->db, DIRENT_GET, DBI(parent), DBB(name->data, name->len));

    if (rc <= 0)
        return rc ? rc : -ENOENT;
    d->ino = (uint64_t)mgr_col(&c->db, MGR_ST_DIRENT_GET, 0);
    d->type = (uint32_t)mgr_col(&c->db, MGR_ST_DIRENT_GET, 1);
    d->cookie = (uint64_t)mgr_col(&c->db, MGR_ST_DIRENT_GET, 2);
    mgr_db_reset(&c->db, MGR_ST_DIRENT_GET);
    return 0;
}

int mgr_dirent_add(struct mgr_core *c, uint64_t parent, const ProtobufCBinaryData *name,
                   const struct mgr_inode *in)
{
    uint64_t cookie = c->n.next_cookie++;

    c->n.dirty = true;
    return mgr_db_exec(&c->db, DIRENT_INSERT, DBI(parent), DBB(name->data, name->len), DBI(in->ino),
                       DBI(in->mode >> 12), DBI(cookie));
}

/* Where the inode is found by name; hint is its parent column. */
static int find_name(struct mgr_core *c, uint64_t ino, uint64_t hint, uint64_t *parent,
                     uint8_t name[MGR_NAME_MAX], size_t *len)
{
    struct mgr_db *db = &c->db;
    const void *p;
    int rc = mgr_db_one(db, DIRENT_NAME, DBI(hint), DBI(ino));

    *parent = hint;
    if (rc > 0) {
        p = mgr_col_blob(db, MGR_ST_DIRENT_NAME, 0, len);
        memcpy(name, p, *len);
        mgr_db_reset(db, MGR_ST_DIRENT_NAME);
        return 0;
    }
    rc =
        rc ? rc : mgr_db_one(db, DIRENT_FIND, DBI(ino)); /* a scan: only for a hard link that was left over */
    if (rc <= 0)
        return rc ? rc : -ENOENT;
    *parent = (uint64_t)mgr_col(db, MGR_ST_DIRENT_FIND, 0);
    p = mgr_col_blob(db, MGR_ST_DIRENT_FIND, 1, len);
    memcpy(name, p, *len);
    mgr_db_reset(db, MGR_ST_DIRENT_FIND);
    return 0;
}

ProtobufCBinaryData mgr_path(struct mgr_core *c, uint64_t ino)
{
    enum { PATH_BYTES = 4096 };
    uint8_t *buf = mgr_arena_alloc(&c->arena, PATH_BYTES), name[MGR_NAME_MAX];
    size_t pos = PATH_BYTES, len;
    struct mgr_inode in;

    if (!buf || mgr_inode_get(c, ino, &in) || in.nlink == 0)
        return (ProtobufCBinaryData){0, NULL};
    if (ino == MGR_ROOT_INO)
        buf[--pos] = '/';
    while (in.ino != MGR_ROOT_INO) {
        uint64_t parent;

        if (find_name(c, in.ino, in.parent, &parent, name, &len) || len + 1 > pos)
            return (ProtobufCBinaryData){0, NULL};
        pos -= len;
        memcpy(buf + pos, name, len);
        buf[--pos] = '/';
        if (mgr_inode_get(c, parent, &in))
            return (ProtobufCBinaryData){0, NULL};
    }
    return (ProtobufCBinaryData){PATH_BYTES - pos, buf + pos};
}
