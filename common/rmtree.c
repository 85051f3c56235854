/* Removing a directory with all that is in it (see fp/rmtree.h): fp-store down, and the agents of a job at its end. */
#include "fp/rmtree.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

#include "fp/err.h"
#include "fp/log.h"

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    if (remove(path) < 0 && errno != ENOENT)
        FP_WARN("cannot remove %s: %s", path, fp_strerror(-errno));
    return 0;
}

void fp_remove_tree(const char *path)
{
    struct stat st;

    if (lstat(path, &st) == 0)
        nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}
