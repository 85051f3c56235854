/*
 * Checkpoint sets: somebody says that one is complete.
 *
 * fpctl checkpoint commit says so (setmsg.c), the attribute user.fp.checkpoint of its directory or of a file of it (ns_xattr.c), and the name of a marker file (sets.c). What nothing else
 * makes a set becomes one by it. It is complete as soon as nobody has a file of it open for writing; who says so does not wait for that, but for commit, which asks again.
 *
 * The first two have an answer: -EUCLEAN, and nothing was said, where something that was closed of a file of it is lost, or may be (settorn.c), and nobody is writing that file again. Else a
 * script that says so would take for a checkpoint what never becomes one. The name of a file has no answer: that set stays torn without a word. What is lost later is not known here;
 * nor, until all mounts are back after a restart, who is writing: then it is refused, which is to be said again, rather than accepted.
 *
 * Nor is anything said of no files (-ENXIO), of a set that was forgotten (-ESTALE), or of what nothing can tell apart from others (-ENODATA): what is written there later has not been said to be complete.
 *
 * Called in the core's thread, in a group. A request that fails is not undone: it is looked at first, and said then. What became a set for it stays one.
 */
#include <errno.h>
#include <sys/stat.h>

#include "manager/sets_int.h"

/* Files in its directory that are of no set: they were staged in (foreign.c), or made while sets were not recognised. */
static int adopt_strays(struct mgr_core *c, uint64_t dir, uint64_t id)
{
    struct mgr_set s;
    int rc = mgr_set_get(c, id, &s);

    if (rc || s.state == MGR_SET_FORGOTTEN)
        return rc == -ENOENT ? 0 : rc;
    return mgr_set_adopt(c, s.top ? s.top : dir, id);
}

/* The set that this directory is, or this file belongs to, with all that lies in it; what is none becomes one. 0: there is nothing to tell it by. */
static int find(struct mgr_core *c, uint64_t ino, uint64_t *id)
{
    struct mgr_inode in;
    int rc = mgr_inode_get(c, ino, &in);

    *id = 0;
    if (rc)
        return rc;
    if (mgr_is(&in, S_IFDIR))
        rc = mgr_set_of_dir(c, ino, id);
    else
        *id = in.ckpt;
    if (!rc && !*id)
        return mgr_set_by_telling(c, &in, id);
    return rc || !mgr_is(&in, S_IFDIR) ? rc : adopt_strays(c, ino, *id);
}

static int may_be_told(struct mgr_core *c, uint64_t id, bool lost_too)
{
    bool lost = false;
    struct mgr_set s;
    int rc = mgr_set_get(c, id, &s);

    if (rc)
        return rc == -ENOENT ? 0 : rc;
    if (s.state == MGR_SET_FORGOTTEN)
        return -ESTALE;
    rc = lost_too ? 0 : mgr_torn_lost_left(c, id, &lost);
    return rc ? rc : lost ? -EUCLEAN : 0;
}

int mgr_sets_told_of(struct mgr_core *c, uint64_t id, bool lost_too)
{
    bool gone = false;
    int rc = may_be_told(c, id, lost_too);

    rc = rc ? rc : mgr_sets_say(c, id, lost_too);
    rc = rc ? rc : mgr_set_drop_empty(c, id, &gone);
    return rc ? rc : gone ? -ENXIO : 0;
}

int mgr_sets_told(struct mgr_core *c, uint64_t ino, bool lost_too)
{
    uint64_t id = 0;
    int rc = c->o.checkpoints_off ? -ENOENT : find(c, ino, &id);

    if (rc)
        return rc == -ENOENT ? 0 : rc;
    return id ? mgr_sets_told_of(c, id, lost_too) : -ENODATA;
}
