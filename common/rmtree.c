/*
 * Removing a directory with all that is in it (see fp/rmtree.h): fp-store down, and the agents of a job at its end.
 *
 * By fts and not nftw, which ends in the middle of the tree at the first directory that it can't look at, and a mount whose program is gone is such a one.
 */
#include "fp/rmtree.h"

#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <sys/stat.h>

#include "fp/err.h"
#include "fp/log.h"

#define SHOWN_MAX 8u

struct removal {
    unsigned stays;
    int rc; /* of the first that stays */
};

static void stays(struct removal *r, const char *path, int error)
{
    if (error == ENOENT)
        return;
    if (r->stays++ < SHOWN_MAX)
        FP_WARN("cannot remove %s: %s", path, fp_strerror(-error));
    r->rc = r->rc ? r->rc : -error;
}

static void remove_one(struct removal *r, const FTSENT *e)
{
    if (remove(e->fts_accpath) < 0)
        stays(r, e->fts_path, errno);
}

int fp_remove_tree(const char *path)
{
    char *const paths[] = {(char *)(uintptr_t)path, NULL};
    struct removal r = {0};
    struct stat st;
    FTS *t;

    if (lstat(path, &st) < 0 && errno == ENOENT)
        return 0;
    t = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
    if (!t) {
        stays(&r, path, errno);
        return r.rc;
    }
    for (FTSENT *e; (errno = 0, e = fts_read(t));)
        if (e->fts_info != FTS_D)
            remove_one(&r, e);
    if (errno)
        stays(&r, path, errno);
    fts_close(t);
    if (r.stays > SHOWN_MAX)
        FP_WARN("cannot remove %s: so it is with %u others in it", path, r.stays - SHOWN_MAX);
    return r.rc;
}
