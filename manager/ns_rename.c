/* MSG_RENAME with all the flags of Linux: NOREPLACE, EXCHANGE, WHITEOUT.
 *
 * Everything is read and checked first (struct move), then written; the directories are one struct when they
 * are the same, so that no change of one is lost by writing the other. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "manager/core_int.h"
#include "manager/sets.h"
#include "manager/version.h"

#ifndef RENAME_NOREPLACE
#define RENAME_NOREPLACE 1u
#define RENAME_EXCHANGE  2u
#define RENAME_WHITEOUT  4u
#endif

struct move {
    struct mgr_inode dir1, dir2; /* old and new directory */
    struct mgr_inode *od, *nd;   /* both &dir1 when it is one */
    struct mgr_inode src, dst;
    struct mgr_dirent s, d;
    bool have_dst;
};

/* Is `ino` the directory `dir`, or somewhere above it? */
static int is_above(struct mgr_core *c, uint64_t ino, const struct mgr_inode *dir, bool *above)
{
    struct mgr_inode at = *dir;

    *above = false;
    while (at.ino != MGR_ROOT_INO) {
        int rc;

        if (at.ino == ino) {
            *above = true;
            return 0;
        }
        rc = mgr_inode_get(c, at.parent, &at);
        if (rc)
            return rc;
    }
    *above = ino == MGR_ROOT_INO;
    return 0;
}

static int load(struct mgr_core *c, const Fp__Rename *m, struct move *v)
{
    int rc = mgr_dir_get(c, m->parent, &v->dir1);

    v->od = v->nd = &v->dir1;
    if (!rc && m->new_parent != m->parent) {
        v->nd = &v->dir2;
        rc = mgr_dir_get(c, m->new_parent, &v->dir2);
    }
    rc = rc ? rc : mgr_dirent_get(c, m->parent, &m->name, &v->s);
    rc = rc ? rc : mgr_inode_get(c, v->s.ino, &v->src);
    if (rc)
        return rc;
    rc = mgr_dirent_get(c, m->new_parent, &m->new_name, &v->d);
    if (rc == -ENOENT)
        return mgr_name_check(&m->new_name);
    v->have_dst = rc == 0;
    return rc ? rc : mgr_inode_get(c, v->d.ino, &v->dst);
}

static int check_loops(struct mgr_core *c, const Fp__Rename *m, const struct move *v)
{
    bool above = false;
    int rc = 0;

    if (m->parent == m->new_parent)
        return 0;
    if (mgr_is(&v->src, S_IFDIR))
        rc = is_above(c, v->src.ino, v->nd, &above);
    if (!rc && above)
        return -EINVAL;
    if (!rc && v->have_dst && mgr_is(&v->dst, S_IFDIR))
        rc = is_above(c, v->dst.ino, v->od, &above);
    if (!rc && above)
        return m->flags & RENAME_EXCHANGE ? -EINVAL : -ENOTEMPTY;
    return rc;
}

static int check(struct mgr_core *c, const Fp__Rename *m, const struct move *v)
{
    if (m->flags & RENAME_NOREPLACE && v->have_dst)
        return -EEXIST;
    if (m->flags & RENAME_EXCHANGE && !v->have_dst)
        return -ENOENT;
    if (v->have_dst && !(m->flags & RENAME_EXCHANGE)) {
        if (mgr_is(&v->dst, S_IFDIR) && !mgr_is(&v->src, S_IFDIR))
            return -EISDIR;
        if (!mgr_is(&v->dst, S_IFDIR) && mgr_is(&v->src, S_IFDIR))
            return -ENOTDIR;
        if (mgr_is(&v->dst, S_IFDIR) && v->dst.size) {
            int rc = check_loops(c, m, v);

            return rc ? rc : -ENOTEMPTY;
        }
    }
    if (m->flags & RENAME_WHITEOUT && c->n.inodes >= c->o.inodes_max)
        return -ENOSPC;
    return check_loops(c, m, v);
}

/* Is it what the kernel has allowed to be moved, or replaced? */
static int check_found(struct mgr_core *c, const Fp__Rename *m, const struct move *v)
{
    if (m->found && m->found != v->src.ino && (v->od->mode & S_ISVTX || (mgr_is(&v->src, S_IFDIR) && v->od != v->nd)))
        return -ESTALE;
    return mgr_check_found(c, v->nd, m->new_found, v->have_dst ? v->dst.ino : 0);
}

static int set_entry(struct mgr_core *c, uint64_t parent, const ProtobufCBinaryData *name,
                     const struct mgr_inode *in)
{
    return mgr_db_exec(&c->db, DIRENT_SET, DBI(parent), DBB(name->data, name->len), DBI(in->ino),
                       DBI(in->mode >> 12));
}

static int exchange(struct mgr_core *c, const Fp__Rename *m, struct move *v)
{
    int rc = set_entry(c, m->parent, &m->name, &v->dst);

    rc = rc ? rc : set_entry(c, m->new_parent, &m->new_name, &v->src);
    if (v->od != v->nd) {
        uint32_t s = mgr_is(&v->src, S_IFDIR), d = mgr_is(&v->dst, S_IFDIR);

        v->od->nlink += d - s;
        v->nd->nlink += s - d;
        v->src.parent = v->nd->ino;
        v->dst.parent = v->od->ino;
    }
    v->dst.ctime = c->now.ns;
    rc = rc ? rc : mgr_sets_renamed(c, &v->dst, &m->new_name, v->od, &m->name);
    return rc ? rc : mgr_inode_put(c, &v->dst);
}

/* The old name: gone, or a character device 0/0 in its place. */
static int leave(struct mgr_core *c, const Fp__Rename *m, struct move *v)
{
    struct mgr_inode w = {.mode = S_IFCHR,
                          .nlink = 1,
                          .uid = m->uid,
                          .gid = m->gid,
                          .parent = v->od->ino,
                          .chunk_size = v->od->chunk_size,
                          .stripe = v->od->stripe,
                          .data_version = 1};
    int rc;

    if (mgr_is(&v->src, S_IFDIR))
        v->od->nlink--;
    if (!(m->flags & RENAME_WHITEOUT)) {
        v->od->size--;
        return mgr_db_exec(&c->db, DIRENT_DELETE, DBI(m->parent), DBB(m->name.data, m->name.len));
    }
    if (v->od->mode & S_ISGID)
        w.gid = v->od->gid;
    rc = mgr_inode_new(c, &w, NULL, 0);
    return rc ? rc : set_entry(c, m->parent, &m->name, &w);
}

/* The file that was there has no name any more. */
static int replaced(struct mgr_core *c, const struct mgr_session *s, struct move *v)
{
    bool kept = false;
    int rc = mgr_is(&v->src, S_IFREG) && mgr_is(&v->dst, S_IFREG) ? mgr_epoch_replaces(c, s, &v->src, &v->dst, &kept) : 0;

    return rc || kept ? rc : mgr_inode_unlinked(c, &v->dst);
}

static int replace(struct mgr_core *c, const struct mgr_session *s, const Fp__Rename *m, struct move *v)
{
    int rc = leave(c, m, v);

    if (mgr_is(&v->src, S_IFDIR))
        v->nd->nlink++;
    if (!v->have_dst) {
        v->nd->size++;
        return rc ? rc : mgr_dirent_add(c, m->new_parent, &m->new_name, &v->src);
    }
    rc = rc ? rc : set_entry(c, m->new_parent, &m->new_name, &v->src);
    v->dst.ctime = c->now.ns;
    if (mgr_is(&v->dst, S_IFDIR)) {
        v->nd->nlink--;
        v->dst.nlink = 0;
    } else {
        v->dst.nlink--;
    }
    if (!rc && v->dst.nlink == 0)
        rc = mgr_sets_gone(c, &v->dst, &m->new_name);
    if (rc)
        return rc;
    return v->dst.nlink ? mgr_inode_put(c, &v->dst) : replaced(c, s, v);
}

/* What others have closed of it, or of what is in it, comes before its new name. */
static int check_leases(struct mgr_core *c, const struct mgr_session *s, const struct mgr_inode *in)
{
    return mgr_is(in, S_IFDIR) ? mgr_lease_check_below(c, s, in->ino) : mgr_lease_check_known(c, s, in->ino);
}

MGR_HANDLER(rename)
{
    const Fp__Rename *m = msg;
    struct move v;
    int rc;

    if (m->flags & ~(uint32_t)(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT) ||
        (m->flags & RENAME_EXCHANGE && m->flags & (RENAME_NOREPLACE | RENAME_WHITEOUT)))
        return -EINVAL;
    memset(&v, 0, sizeof v);
    rc = load(c, m, &v);
    rc = rc ? rc : check(c, m, &v);
    rc = rc ? rc : check_found(c, m, &v);
    if (rc)
        return rc;
    if (v.have_dst && v.src.ino == v.dst.ino)
        return 0; /* two names of one file: POSIX wants nothing done */
    rc = check_leases(c, rq->sess, &v.src);
    if (!rc && m->flags & RENAME_EXCHANGE)
        rc = check_leases(c, rq->sess, &v.dst);
    if (rc)
        return rc;
    v.od->mtime = v.od->ctime = v.nd->mtime = v.nd->ctime = v.src.ctime = c->now.ns;
    rc = m->flags & RENAME_EXCHANGE ? exchange(c, m, &v) : replace(c, rq->sess, m, &v);
    v.src.parent = v.nd->ino;
    rc = rc ? rc : mgr_sets_renamed(c, &v.src, &m->name, v.nd, &m->new_name);
    rc = rc ? rc : mgr_inode_put(c, &v.src);
    rc = rc ? rc : mgr_inode_put(c, v.od);
    return rc || v.od == v.nd ? rc : mgr_inode_put(c, v.nd);
}
