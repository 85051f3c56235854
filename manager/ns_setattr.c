/* MSG_SETATTR: chmod, chown, truncate, utimes.
 *
 * chown drops setuid and setgid of what is not a directory, whoever calls it, as Linux file systems do; where
 * the kernel has worked out the mode itself it is in the same request and wins.
 *
 * What another session has closed and not published yet brings its own mtime, and clears set-id bits: a time or such bits set after that close come after it,
 * so it is recalled first, as for a change of size. Rejected: to remember that a time was set by hand, and let commits of before leave it. Which commits these
 * are is known to their session only. */
#include <errno.h>
#include <stdint.h>
#include <sys/stat.h>

#include "fp/bug.h"
#include "fp/err.h"
#include "manager/core_int.h"
#include "manager/version.h"
#include "manager/sets.h"

static int check(const Fp__SetAttr *m, const struct mgr_inode *in)
{
    if (!(m->valid & FP__SET_ATTR_VALID__SET_SIZE))
        return 0;
    if (mgr_is(in, S_IFDIR))
        return -EISDIR;
    if (!mgr_is(in, S_IFREG))
        return -EINVAL;
    return m->size_bytes > INT64_MAX ? -EFBIG : 0;
}

/* Would a commit of what was closed before undo it? */
static bool comes_after_data(const Fp__SetAttr *m, const struct mgr_inode *in)
{
    const uint32_t undone = FP__SET_ATTR_VALID__SET_SIZE | FP__SET_ATTR_VALID__SET_MTIME | FP__SET_ATTR_VALID__SET_MTIME_NOW;

    return mgr_is(in, S_IFREG) && (m->valid & undone || (m->valid & FP__SET_ATTR_VALID__SET_MODE && m->mode & (S_ISUID | S_ISGID)));
}

static int set_size(struct mgr_core *c, const struct mgr_session *s, struct mgr_inode *in, uint64_t size)
{
    int rc = size < in->size ? mgr_data_cut(c, s, in, size) : size > in->size ? mgr_data_changes(c, s, in, in->size, in->size) : 0;

    if (!rc && size < in->size && !FP_BUG("mgr-truncates-the-size-alone"))
        rc = mgr_slices_cut(c, in, size, UINT64_MAX);
    if (size != in->size)
        in->data_version++;
    rc = rc ? rc : mgr_sets_changed(c, in, (int64_t)(size - in->size));
    if (size == 0)
        in->flags &= ~(MGR_TORN_FILE | MGR_LOST_CLOSE | MGR_UNSURE);
    in->size = size;
    in->mtime = c->now.ns;
    return rc ? rc : mgr_lost_written(c, in, NULL, 0);
}

static void set_times(struct mgr_core *c, const Fp__SetAttr *m, struct mgr_inode *in)
{
    if (m->valid & FP__SET_ATTR_VALID__SET_ATIME_NOW)
        in->atime = c->now.ns;
    else if (m->valid & FP__SET_ATTR_VALID__SET_ATIME)
        in->atime = m->atime_ns;
    if (m->valid & FP__SET_ATTR_VALID__SET_MTIME_NOW)
        in->mtime = c->now.ns;
    else if (m->valid & FP__SET_ATTR_VALID__SET_MTIME)
        in->mtime = m->mtime_ns;
    /* without a time: only "it has changed" */
    in->ctime = m->valid & FP__SET_ATTR_VALID__SET_CTIME && m->ctime_ns ? m->ctime_ns : c->now.ns;
}

MGR_HANDLER(setattr)
{
    const uint32_t owner = FP__SET_ATTR_VALID__SET_UID | FP__SET_ATTR_VALID__SET_GID, size = FP__SET_ATTR_VALID__SET_SIZE;
    const uint32_t times = FP__SET_ATTR_VALID__SET_MTIME | FP__SET_ATTR_VALID__SET_MTIME_NOW;
    const Fp__SetAttr *m = msg;
    struct mgr_inode in;
    int rc = mgr_inode_get(c, m->ino, &in);

    rc = rc ? rc : mgr_inode_usable(c, &in);
    rc = rc ? rc : check(m, &in);
    if (!rc && comes_after_data(m, &in))
        rc = mgr_lease_check(c, rq->sess, m->ino);
    if (!rc && mgr_is(&in, S_IFREG))
        rc = m->valid & FP__SET_ATTR_VALID__SET_SIZE ? mgr_change_check(c, rq->sess, m->ino) : mgr_is_returning(c, m->ino) ? FP_EPUBLISHING : 0;
    if (!rc && m->valid & FP__SET_ATTR_VALID__SET_SIZE && m->takes_turns && mgr_others_append(c, rq->sess, m->ino))
        rc = FP_EAPPENDING;
    if (rc)
        return rc;
    if (m->valid & FP__SET_ATTR_VALID__SET_SIZE)
        rc = set_size(c, rq->sess, &in, m->size_bytes);
    if (m->valid & FP__SET_ATTR_VALID__SET_UID)
        in.uid = m->uid;
    if (m->valid & FP__SET_ATTR_VALID__SET_GID)
        in.gid = m->gid;
    if (!rc && m->valid & (owner | FP__SET_ATTR_VALID__SET_KILL_SUIDGID))
        rc = mgr_kill_suidgid(c, &in);
    if (m->valid & FP__SET_ATTR_VALID__SET_MODE)
        in.mode = (in.mode & S_IFMT) | (m->mode & 07777);
    if (m->valid)
        set_times(c, m, &in);
    if (!rc && m->valid)
        rc = mgr_inode_put(c, &in);
    if (!rc && m->valid & (size | times))
        mgr_lease_was_set(c, m->ino, m->valid & size);
    return rc ? rc : mgr_reply_attr(c, rq, &in, false);
}
