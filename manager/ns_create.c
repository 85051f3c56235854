/* MSG_MKNOD: new files, directories, symbolic links, devices, and files without a name (O_TMPFILE).
 *
 * The kernel has checked permissions and applied the umask; what it leaves to the file system is done here:
 * setgid directories hand down their group (and the bit, to directories), as on ext4. Chunk size, stripe
 * and strictness are fixed now, from the directory. */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "manager/drain.h"
#include "manager/sets.h"

static int check(const Fp__MkNod *m)
{
    uint32_t type = m->mode & S_IFMT;

    switch (type) {
    case 0:
    case S_IFREG:
        break;
    case S_IFLNK:
        if (m->target.len >= PATH_MAX)
            return -ENAMETOOLONG;
        if (m->target.len == 0)
            return -ENOENT;
        break;
    case S_IFDIR:
    case S_IFCHR:
    case S_IFBLK:
    case S_IFIFO:
    case S_IFSOCK:
        break;
    default:
        return -EINVAL;
    }
    if (m->ino && (!m->open || !m->excl || m->tmpfile))
        return -EINVAL;
    if (m->tmpfile || m->open)
        return type == 0 || type == S_IFREG ? 0 : -EINVAL;
    return 0;
}

static void fill(struct mgr_inode *in, const Fp__MkNod *m, const struct mgr_inode *dir)
{
    memset(in, 0, sizeof *in);
    in->ino = m->ino;
    in->ctime = m->ino ? m->time_ns : 0;
    in->mode = m->mode & (S_IFMT | 07777);
    if (!(in->mode & S_IFMT))
        in->mode |= S_IFREG;
    in->uid = m->uid;
    in->gid = m->gid;
    if (dir->mode & S_ISGID) {
        in->gid = dir->gid;
        if (mgr_is(in, S_IFDIR))
            in->mode |= S_ISGID;
    }
    if (mgr_is(in, S_IFCHR) || mgr_is(in, S_IFBLK))
        in->rdev = m->rdev;
    if (mgr_is(in, S_IFLNK))
        in->size = m->target.len;
    in->nlink = m->tmpfile ? 0 : mgr_is(in, S_IFDIR) ? 2 : 1;
    in->chunk_size = dir->chunk_size;
    in->stripe = dir->stripe;
    in->flags = (dir->flags & MGR_STRICT) | (m->tmpfile ? MGR_LINKABLE : 0);
    in->data_version = 1;
    in->parent = dir->ino;
}

/* There is an entry of this name already. */
static int existing(struct mgr_core *c, struct mgr_req *rq, const Fp__MkNod *m, const struct mgr_dirent *d)
{
    struct mgr_inode in;
    int rc;

    if (m->excl || !m->open || d->type != S_IFREG >> 12)
        return -EEXIST;
    rc = mgr_inode_get(c, d->ino, &in);
    return rc ? rc : mgr_reply_open(c, rq, &in, &(struct mgr_open){.write = true, .behind = m->behind});
}

static int add_to_dir(struct mgr_core *c, const Fp__MkNod *m, struct mgr_inode *dir,
                      const struct mgr_inode *in)
{
    int rc = mgr_dirent_add(c, dir->ino, &m->name, in);

    dir->size++;
    dir->mtime = dir->ctime = in->ctime;
    if (mgr_is(in, S_IFDIR))
        dir->nlink++;
    return rc ? rc : mgr_inode_put(c, dir);
}

/* A number that the client has chosen: of those that were given out, and of no file. */
static int check_number(struct mgr_core *c, uint64_t ino)
{
    struct mgr_inode in;
    int rc = ino < c->n.next_ino ? mgr_inode_get(c, ino, &in) : -EINVAL;

    return rc == -ENOENT ? 0 : rc ? rc : -EINVAL;
}

MGR_HANDLER(mknod)
{
    const Fp__MkNod *m = msg;
    struct mgr_inode dir, in;
    struct mgr_dirent d;
    int rc = check(m);

    rc = rc ? rc : mgr_dir_get(c, m->parent, &dir);
    if (!rc && !m->tmpfile) {
        rc = mgr_dirent_get(c, m->parent, &m->name, &d);
        if (!rc)
            return existing(c, rq, m, &d);
        rc = rc == -ENOENT ? mgr_name_check(&m->name) : rc;
    }
    if (rc)
        return rc;
    if ((m->open || m->tmpfile) && !rq->sess)
        return -EPERM;
    if (m->ino && (rc = check_number(c, m->ino)))
        return rc;
    fill(&in, m, &dir);
    rc = mgr_sets_made(c, &in, &dir, &m->name);
    rc = rc ? rc : mgr_inode_new(c, &in, m->target.data, mgr_is(&in, S_IFLNK) ? m->target.len : 0);
    if (!rc)
        rc = m->tmpfile ? mgr_orphan_keep(c, in.ino) : add_to_dir(c, m, &dir, &in);
    rc = rc ? rc : mgr_auto_touched(c, &in);
    if (!rc && (m->open || m->tmpfile))
        rc = mgr_hold(c, rq->sess, in.ino, true);
    if (!rc && m->open)
        rc = mgr_sets_opened(c, &in);
    rc = rc ? rc : mgr_reply_attr(c, rq, &in, true);
    if (!rc && m->open)
        ((Fp__AttrReply *)rq->reply)->behind = mgr_lease_open(c, rq->sess, in.ino, m->behind);
    if (!rc && !m->tmpfile) /* what the kernel of the client asks next */
        ((Fp__AttrReply *)rq->reply)->parent = mgr_attr(c, &dir);
    return rc;
}
