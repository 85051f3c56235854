/* MSG_LINK: another name for a file; the first one, for a file made with O_TMPFILE. */
#include <errno.h>
#include <sys/stat.h>

#include "manager/core_int.h"
#include "manager/sets.h"

MGR_HANDLER(link)
{
    const Fp__Link *m = msg;
    struct mgr_inode dir, in;
    struct mgr_dirent d;
    int rc = mgr_inode_get(c, m->ino, &in);

    rc = rc ? rc : mgr_inode_usable(c, &in);
    if (!rc && mgr_is(&in, S_IFDIR))
        rc = -EPERM;
    if (!rc && in.nlink == 0 && !(in.flags & MGR_LINKABLE))
        rc = -ENOENT; /* its last name went after the kernel of that node had looked; that somebody has it open does not bring it back */
    if (!rc && in.nlink >= MGR_LINK_MAX)
        rc = -EMLINK;
    rc = rc ? rc : mgr_dir_get(c, m->parent, &dir);
    if (!rc) {
        rc = mgr_dirent_get(c, m->parent, &m->name, &d);
        rc = rc == 0 ? -EEXIST : rc == -ENOENT ? mgr_name_check(&m->name) : rc;
    }
    rc = rc ? rc : mgr_lease_check_known(c, rq->sess, in.ino);
    if (rc)
        return rc;

    rc = mgr_dirent_add(c, m->parent, &m->name, &in);
    if (!rc && in.nlink == 0)
        rc = mgr_orphan_forget(c, in.ino);
    in.nlink++;
    in.flags &= ~MGR_LINKABLE;
    in.parent = dir.ino;
    rc = rc ? rc : mgr_sets_renamed(c, &in, NULL, &dir, &m->name);
    dir.size++;
    in.ctime = dir.mtime = dir.ctime = c->now.ns;
    rc = rc ? rc : mgr_inode_put(c, &in);
    rc = rc ? rc : mgr_inode_put(c, &dir);
    return rc ? rc : mgr_reply_attr(c, rq, &in, false);
}
