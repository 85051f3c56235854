/* MSG_UNLINK: unlink and rmdir. */
#include <errno.h>
#include <sys/stat.h>

#include "manager/core_int.h"
#include "manager/sets.h"

static int check(const Fp__Unlink *m, const struct mgr_inode *in)
{
    if (!m->dir)
        return mgr_is(in, S_IFDIR) ? -EISDIR : 0;
    if (!mgr_is(in, S_IFDIR))
        return -ENOTDIR;
    return in->size ? -ENOTEMPTY : 0;
}

MGR_HANDLER(unlink)
{
    const Fp__Unlink *m = msg;
    Fp__UnlinkReply *r = MGR_NEW(c, Fp__UnlinkReply, fp__unlink_reply__init);
    struct mgr_inode dir, in;
    struct mgr_dirent d;
    int64_t now = m->ino && m->time_ns ? m->time_ns : c->now.ns;
    int rc = mgr_dir_get(c, m->parent, &dir);

    if (!r)
        return mgr_doom(c, -ENOMEM);
    rc = rc ? rc : mgr_dirent_get(c, m->parent, &m->name, &d);
    if (!rc && m->ino && m->ino != d.ino)
        rc = -ENOENT;
    rc = rc ? rc : mgr_inode_get(c, d.ino, &in);
    rc = rc ? rc : check(m, &in);
    rc = rc ? rc : mgr_check_found(c, &dir, m->found, in.ino);
    if (rc)
        return rc;

    rc = mgr_db_exec(&c->db, DIRENT_DELETE, DBI(m->parent), DBB(m->name.data, m->name.len));
    dir.size--;
    dir.mtime = dir.ctime = in.ctime = now;
    if (m->dir) {
        dir.nlink--;
        in.nlink = 0;
    } else {
        in.nlink--;
    }
    rc = rc ? rc : mgr_inode_put(c, &dir);
    if (!rc && in.nlink == 0)
        rc = mgr_sets_gone(c, &in, &m->name);
    if (!rc)
        rc = in.nlink ? mgr_inode_put(c, &in) : mgr_inode_unlinked(c, &in);
    r->ino = in.ino;
    r->nlink = in.nlink;
    r->parent = mgr_attr(c, &dir);
    rq->reply = &r->base;
    return rc;
}
