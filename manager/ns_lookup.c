/* Looking: lookup, getattr, readlink, statfs; and open and release, which change no table. */
#include <errno.h>
#include <sys/stat.h>

#include "manager/core_int.h"
#include "manager/ext.h"
#include "manager/version.h"
#include "manager/sets.h"

MGR_HANDLER(lookup)
{
    const Fp__Lookup *m = msg;
    struct mgr_dirent d;
    struct mgr_inode in;
    int rc = m->name.len > MGR_NAME_MAX ? -ENAMETOOLONG : mgr_dirent_get(c, m->parent, &m->name, &d);

    if (rc == -ENOENT && m->name.len == 2 && m->name.data[0] == '.' && m->name.data[1] == '.') {
        /* for a mount that is exported: the parent of a directory */
        rc = mgr_inode_get(c, m->parent, &in);
        if (!rc && !mgr_is(&in, S_IFDIR))
            rc = -ENOTDIR;
        d.ino = in.parent;
    }
    rc = rc ? rc : mgr_inode_get(c, d.ino, &in);
    return rc ? rc : mgr_reply_attr(c, rq, &in, false);
}

MGR_HANDLER(getattr)
{
    const Fp__InodeReq *m = msg;
    struct mgr_inode in;
    int rc = mgr_inode_get(c, m->ino, &in);

    return rc ? rc : mgr_reply_attr(c, rq, &in, false);
}

MGR_HANDLER(readlink)
{
    const Fp__InodeReq *m = msg;
    Fp__ReadLinkReply *r = MGR_NEW(c, Fp__ReadLinkReply, fp__read_link_reply__init);
    const void *p;
    int rc;

    if (!r)
        return mgr_doom(c, -ENOMEM);
    rc = mgr_db_one(&c->db, INODE_TARGET, DBI(m->ino));
    if (rc <= 0)
        return rc ? rc : -ENOENT;
    rc = S_ISLNK(mgr_col(&c->db, MGR_ST_INODE_TARGET, 0)) ? 0 : -EINVAL;
    p = mgr_col_blob(&c->db, MGR_ST_INODE_TARGET, 1, &r->target.len);
    r->target.data = mgr_arena_copy(&c->arena, p, r->target.len);
    mgr_db_reset(&c->db, MGR_ST_INODE_TARGET);
    if (!rc && !r->target.data)
        rc = mgr_doom(c, -ENOMEM);
    rq->reply = &r->base;
    return rc;
}

MGR_HANDLER(open)
{
    const Fp__Open *m = msg;
    struct mgr_inode in;
    int rc = mgr_inode_get(c, m->ino, &in);

    if (!rc)
        rc = mgr_inode_usable(c, &in);
    return rc ? rc : mgr_reply_open(c, rq, &in, &(struct mgr_open){m->write, m->behind, m->based_on});
}

MGR_HANDLER(release)
{
    const Fp__Release *m = msg;
    int rc;

    for (size_t i = 0; i < m->n_wrote_ino && rq->sess; i++)
        if (m->wrote_ino[i] && mgr_session_wrote(c, rq->sess, m->wrote_ino[i]))
            return -ENOMEM;
    for (size_t i = 0; i < m->n_ino; i++)
        if (m->ino[i])
            mgr_unhold(c, rq->sess, m->ino[i], false);
    rq->durable = m->n_torn_ino > 0; /* no hello names them, once this is answered */
    rc = rq->sess ? mgr_torn_told(c, rq->sess, m->torn_ino, m->n_torn_ino) : 0;
    if (rc)
        return rc;
    for (size_t i = 0; i < m->n_write_ino; i++)
        if (m->write_ino[i])
            mgr_unhold(c, rq->sess, m->write_ino[i], true);
    return 0;
}

MGR_HANDLER(statfs)
{
    const Fp__StatFs *m = msg;
    Fp__StatFsReply *r = MGR_NEW(c, Fp__StatFsReply, fp__stat_fs_reply__init);
    struct mgr_space sp;
    uint64_t given_up = 0, files;
    int rc;

    if (!r)
        return mgr_doom(c, -ENOMEM);
    rc = m->press ? mgr_press(c, m->press, &given_up) : 0;
    if (rc)
        return rc;
    mgr_space(c, &sp);
    r->total_bytes = sp.total;
    r->free_bytes = sp.free;
    r->deleting_bytes = sp.garbage_bytes;
    if (c->holds_dead || (c->orphans.used && mgr_unsettled(c)))
        r->deleting_bytes++; /* what only dead sessions hold, or sessions that have to come back: size not known before */
    r->deleting_bytes += given_up != 0; /* in steps: not all of it may be counted yet */
    r->recalling = mgr_holds_recalling(c);
    r->giving_way = m->press ? mgr_giving_way(c) : 0;
    files = c->n.inodes - c->versions->shadows.used;
    r->files = c->o.inodes_max;
    r->free_files = c->o.inodes_max > files ? c->o.inodes_max - files : 0;
    rq->reply = &r->base;
    return 0;
}
