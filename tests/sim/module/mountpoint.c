/* The mountpoint of a simulated fp-mount: there is none. Part of its shared object in place of client/mountpoint.c. */
#include "client/mountpoint.h"

int cl_mountpoint_check(struct cl_options *opt)
{
    (void)opt;
    return 0;
}

int cl_mountpoint_unmount(const char *path, bool lazy)
{
    (void)path;
    (void)lazy;
    return 0;
}

int cl_mountpoint_open(const struct cl_options *opt, int *below)
{
    (void)opt;
    *below = -1;
    return 0;
}

void cl_mountpoint_close(int below)
{
    (void)below;
}
