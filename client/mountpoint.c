/*
 * Checks of the mountpoint and of what FUSE needs, before anything is started.
 *
 * libfuse would find most of these mistakes too, but late, in its own words and several lines. Here each has
 * one line that says what to do. /proc/self/mounts is read first, because looking at a directory that a live
 * fpstore with a dead manager is mounted on may take long, and one that a dead fpstore is mounted on fails
 * with ENOTCONN; fp_mount_probe tells these two apart within 3 s.
 *
 * What a dead fpstore has left stays until the moment of mounting: without it programs would find an ordinary directory, into which they write what
 * the next mount hides. A directory that nobody may write to below a mount has no rights at all, and is given them for that moment, since fusermount3 asks for them.
 */
#include "client/mountpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fp/fusehelper.h"
#include "fp/log.h"
#include "fp/mountprobe.h"

#define FS_TYPE   "fuse.fpstore"
#define PROBE_MS  3000
#define STALE_MAX 8 /* mounts on top of each other */

extern char **environ;

/* -------------------------------------------------------------- unmounting */

static int run_fusermount(const char *path, bool lazy)
{
    const char *argv[] = {"fusermount3",      "-u", "-q", lazy ? "-z" : "--", lazy ? "--" : path,
                          lazy ? path : NULL, NULL};
    pid_t pid;
    int status, rc = posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)argv, environ);
    if (rc != 0)
        return -rc;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EBUSY;
}

int cl_mountpoint_unmount(const char *path, bool lazy)
{
    if (umount2(path, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0)
        return 0;
    if (errno != EPERM || geteuid() == 0)
        return -errno;
    return run_fusermount(path, lazy);
}

/* -------------------------------------------------------------- what is mounted there */

struct mounted {
    bool any;
    char type[64];
    char source[FP_ADDR_TEXT_BUF];
};

/* The topmost mount on exactly this path. */
static void find_mount(const char *path, struct mounted *out)
{
    FILE *f = setmntent("/proc/self/mounts", "r");
    struct mntent *e;
    memset(out, 0, sizeof *out);
    while (f && (e = getmntent(f))) {
        if (strcmp(e->mnt_dir, path) != 0)
            continue;
        out->any = true;
        snprintf(out->type, sizeof out->type, "%s", e->mnt_type);
        snprintf(out->source, sizeof out->source, "%s", e->mnt_fsname);
    }
    if (f)
        endmntent(f);
}

/* The topmost mount on path. 0: it is none of fpstore; 1: of one that is dead; negative, after a line in the log: nothing can be mounted there. */
static int look_at_mount(const char *path, struct mounted *mnt)
{
    find_mount(path, mnt);
    if (!mnt->any || strncmp(mnt->type, "fuse", 4) != 0)
        return 0;
    int rc = fp_mount_probe(path, PROBE_MS);
    bool ours = strcmp(mnt->type, FS_TYPE) == 0;
    if (ours && rc != -ENOTCONN) {
        FP_ERROR("an fpstore (manager %s) is mounted on %s already: unmount it first with fusermount3 -u %s",
                 mnt->source, path, path);
        return -EBUSY;
    }
    if (rc != -ENOTCONN)
        return 0; /* another file system, in use: mounting on top of it is what was asked for */
    if (!ours) {
        FP_ERROR("a dead mount of another program (%s) is on %s: remove it with fusermount3 -uz %s",
                 mnt->type, path, path);
        return -ENOTCONN;
    }
    return 1;
}

/* Mounts that dead fpstores have left on path. */
static int clean_stale(const char *path)
{
    struct mounted mnt;
    for (int i = 0; i < STALE_MAX; i++) {
        int rc = look_at_mount(path, &mnt);
        if (rc <= 0)
            return rc;
        rc = cl_mountpoint_unmount(path, true);
        if (rc < 0) {
            FP_ERROR("a mount left by a crash is on %s and cannot be removed (%s): run fusermount3 -uz %s as "
                     "root or its owner",
                     path, strerror(-rc), path);
            return rc;
        }
        FP_WARN("removed a mount of manager %s that a crash had left on %s", mnt.source, path);
    }
    return 0;
}

/* -------------------------------------------------------------- the path */

/* Absolute, without symbolic links but the last component, which is not looked at. NULL: the parent is not
 * there (errno). */
static char *real_path(const char *path)
{
    char *copy = strdup(path), *out = NULL;
    if (!copy)
        return NULL;
    for (size_t n = strlen(copy); n > 1 && copy[n - 1] == '/'; n--)
        copy[n - 1] = '\0';
    char *slash = strrchr(copy, '/');
    const char *base = slash + 1;
    if (*base == '\0' || strcmp(base, ".") == 0 || strcmp(base, "..") == 0) {
        free(copy);
        return realpath(path, NULL);
    }
    *slash = '\0';
    char *parent = realpath(*copy ? copy : "/", NULL);
    if (parent && asprintf(&out, "%s/%s", strcmp(parent, "/") == 0 ? "" : parent, base) < 0)
        out = NULL;
    free(parent);
    free(copy);
    return out;
}

/* Of the caller's own, and without any rights: see the top. */
static bool is_closed(const struct stat *st)
{
    return geteuid() != 0 && st->st_uid == geteuid() && (st->st_mode & 0777) == 0;
}

/* inside: of a user namespace, where nothing but its being there counts. */
static int check_dir(const char *path, bool inside)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        int err = errno;
        if (err == ENOENT)
            FP_ERROR("mountpoint %s does not exist: create it with mkdir -p %s", path, path);
        else
            FP_ERROR("cannot use mountpoint %s: %s", path, strerror(err));
        return -err;
    }
    if (!S_ISDIR(st.st_mode)) {
        FP_ERROR("mountpoint %s is not a directory: name one", path);
        return -ENOTDIR;
    }
    if (geteuid() != 0 && !inside && !is_closed(&st) && access(path, W_OK) < 0) {
        FP_ERROR("mountpoint %s is not writable for you: choose a directory of your own, or mount as root",
                 path);
        return -EACCES;
    }
    return 0;
}

/* -------------------------------------------------------------- what FUSE needs */

static int check_device(void)
{
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        close(fd);
        return 0;
    }
    int err = errno;
    if (err == EACCES || err == EPERM)
        FP_ERROR("/dev/fuse: %s: make it readable and writable for you (in a container: --device /dev/fuse)",
                 strerror(err));
    else
        FP_ERROR("/dev/fuse is not there: load the kernel's module with modprobe fuse (in a container: "
                 "--device /dev/fuse)");
    return -err;
}

static int check_user(const struct cl_options *opt)
{
    if (geteuid() == 0 || opt->namespace_dir)
        return 0;
    char helper[PATH_MAX];
    if (!fp_fuse_helper(helper, sizeof helper)) {
        FP_ERROR("fusermount3 is not in PATH, and only root can mount without it: install the package fuse3");
        return -ENOENT;
    }
    if (opt->allow_other && !fp_fuse_user_allow_other()) {
        FP_ERROR("allow-other is not permitted to you: put the line user_allow_other into %s, or leave the "
                 "option out",
                 FP_FUSE_CONF);
        return -EPERM;
    }
    return 0;
}

int cl_mountpoint_check(struct cl_options *opt)
{
    bool inside = opt->namespace_dir != NULL;
    struct mounted mnt;
    int rc = check_device();
    if (rc == 0)
        rc = check_user(opt);
    if (rc < 0)
        return rc;
    char *path = real_path(opt->mountpoint);
    if (!path)
        return check_dir(opt->mountpoint, inside); /* says what is wrong with its parent */
    rc = look_at_mount(path, &mnt);
    char *real = NULL;
    if (rc == 0 && (rc = check_dir(path, inside)) == 0)
        real = realpath(path, NULL); /* the last component may be a symbolic link */
    if (real && strcmp(real, path) != 0)
        rc = look_at_mount(real, &mnt);
    if (rc >= 0)
        opt->mountpoint = real ? real : path;
    if (rc < 0 || real)
        free(path);
    return rc < 0 ? rc : 0;
}

/* ---------------------------------------------------------------- the moment of mounting */

int cl_mountpoint_open(const struct cl_options *opt, int *below)
{
    struct stat st;
    int rc = clean_stale(opt->mountpoint);
    *below = -1;
    if (rc == 0)
        rc = check_dir(opt->mountpoint, opt->namespace_dir != NULL);
    if (rc < 0 || opt->namespace_dir || lstat(opt->mountpoint, &st) < 0 || !is_closed(&st))
        return rc;
    if (chmod(opt->mountpoint, 0700) == 0)
        *below = open(opt->mountpoint, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return 0; /* if it could not be, fusermount3 says so */
}

void cl_mountpoint_close(int below)
{
    if (below < 0)
        return;
    if (fchmod(below, 0) < 0)
        FP_WARN("the directory below the mount can be written to: %s", strerror(errno));
    close(below);
}
