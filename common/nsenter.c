/*
 * Entering a user and a mount namespace (see fp/namespace.h). Called by fp-mount, by fp-enter and by Slurm's plugin in a task before it is the application.
 *
 * In a file of its own, which needs nothing else of ours, since the plugin links nothing else. Whether we are there already is told by a name that the maker has
 * left: a process inside may not look at the descriptors of one that is outside.
 */
#include "fp/namespace.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int path_in(char out[PATH_MAX], const char *dir, const char *name)
{
    return snprintf(out, PATH_MAX, "%s/%s", dir, name) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

bool fp_namespace_exists(const char *dir)
{
    char path[PATH_MAX];
    struct stat st;

    return path_in(path, dir, "mnt") == 0 && lstat(path, &st) == 0;
}

static int open_in(const char *dir, const char *name)
{
    char path[PATH_MAX];
    int rc = path_in(path, dir, name), fd = rc ? -1 : open(path, O_RDONLY | O_CLOEXEC);

    if (rc)
        return rc;
    return fd >= 0 ? fd : errno == ENOENT ? -ESRCH : errno == EACCES ? -EPERM : -errno;
}

static bool is_inside(const char *dir)
{
    char path[PATH_MAX], there[64], here[64];
    ssize_t n = path_in(path, dir, "id") ? -1 : readlink(path, there, sizeof there), k = readlink("/proc/self/ns/mnt", here, sizeof here);

    return n > 0 && n == k && memcmp(there, here, (size_t)n) == 0;
}

/* The namespace of this descriptor, unless it is that of the process already. */
static int go(int fd, const char *own, int kind)
{
    struct stat there, here;

    if (fstat(fd, &there) < 0 || stat(own, &here) < 0)
        return -errno;
    if (there.st_ino == here.st_ino && there.st_dev == here.st_dev)
        return 0;
    return setns(fd, kind) < 0 ? errno == EINVAL ? -EPERM : -errno : 0;
}

int fp_namespace_enter(const char *dir)
{
    char cwd[PATH_MAX];
    int user, mnt, rc;

    if (is_inside(dir))
        return 0;
    user = open_in(dir, "user");
    mnt = user < 0 ? user : open_in(dir, "mnt");
    rc = mnt < 0 ? mnt : 0;
    if (rc == 0 && !getcwd(cwd, sizeof cwd)) /* going to another mount namespace leaves it */
        rc = -errno;
    rc = rc ? rc : go(user, "/proc/self/ns/user", CLONE_NEWUSER);
    rc = rc ? rc : go(mnt, "/proc/self/ns/mnt", CLONE_NEWNS);
    if (rc == 0 && chdir(cwd) < 0)
        rc = -errno;
    if (user >= 0)
        close(user);
    if (mnt >= 0)
        close(mnt);
    return rc;
}
