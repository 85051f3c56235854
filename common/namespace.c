/*
 * User namespaces for mounts without privileges (see fp/namespace.h). Called by fp-mount, by fp-job's agents, which keep one for each job, by what enters it, and by fp-job doctor. Entering is in nsenter.c.
 *
 * Two descriptors keep it, not a process: there is nobody to be killed by mistake, or to be left. A child makes it, since the caller itself is to stay where it is: in a
 * user namespace, groups of the user other than his first can't be given to files, and the rest of the store (draining) has to do that.
 *
 * Whether it is allowed is known by trying alone: limits, sysctls and security modules have a say, and some of them let a process have a namespace, but do
 * nothing in it.
 */
#include "fp/namespace.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fp/err.h"

#define MAKE_MS 5000

enum stage { MADE, UNSHARE, MAP, DEVICE, MOUNT };

struct told {
    int rc;
    enum stage at;
};

/* ---------------------------------------------------------------- making one */

static int write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC), rc;

    if (fd < 0)
        return -errno;
    rc = write(fd, text, strlen(text)) < 0 ? -errno : 0;
    close(fd);
    return rc;
}

static int map_ids(uid_t uid, gid_t gid)
{
    char text[64];
    int rc = write_text("/proc/self/setgroups", "deny"); /* without this no group may be mapped */

    if (rc && rc != -ENOENT)
        return rc;
    snprintf(text, sizeof text, "%u %u 1", (unsigned)uid, (unsigned)uid);
    rc = write_text("/proc/self/uid_map", text);
    snprintf(text, sizeof text, "%u %u 1", (unsigned)gid, (unsigned)gid);
    return rc ? rc : write_text("/proc/self/gid_map", text);
}

static struct told try_mount(const char *dir, uid_t uid, gid_t gid)
{
    char options[96];
    int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    struct told t = {.at = MADE};

    if (fd < 0)
        return (struct told){-errno, DEVICE};
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=%u,group_id=%u", fd, (unsigned)uid, (unsigned)gid);
    if (mount("fpstore", dir, "fuse", MS_NOSUID | MS_NODEV, options) < 0)
        t = (struct told){-errno, MOUNT};
    close(fd);
    if (!t.rc)
        (void)umount2(dir, MNT_DETACH);
    return t;
}

static struct told make_in_child(const char *trial)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();
    int rc;

    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
        return (struct told){-errno, UNSHARE};
    rc = map_ids(uid, gid);
    if (rc)
        return (struct told){rc, MAP};
    return trial ? try_mount(trial, uid, gid) : (struct told){0, MADE};
}

static void say_why(const struct told *t, char *why, size_t size)
{
    static const char *const hints[] = {"", "user.max_user_namespaces must not be 0, nor kernel.unprivileged_userns_clone", "kernel.apparmor_restrict_unprivileged_userns must be 0",
                                        "/dev/fuse must be readable and writable for all", "kernel.apparmor_restrict_unprivileged_userns must be 0, and Linux 4.18 or later"};
    static const char *const what[] = {"", "no user namespace", "a user namespace without rights", "no /dev/fuse", "no FUSE mount in a user namespace"};

    snprintf(why, size, "%s (%s: %s)", what[t->at], fp_strerror(t->rc), hints[t->at]);
}

static int open_of(pid_t pid, const char *name)
{
    char path[64];
    int fd;

    snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Of the child, while it lives. */
static int keep(pid_t pid, struct fp_namespace *out)
{
    int user = open_of(pid, "user"), mnt = user < 0 ? user : open_of(pid, "mnt");

    if (mnt >= 0) {
        *out = (struct fp_namespace){user, mnt};
        return 0;
    }
    if (user >= 0)
        close(user);
    return mnt;
}

int fp_namespace_make(struct fp_namespace *out, const char *trial, char *why, size_t size)
{
    struct told told = {-ETIMEDOUT, UNSHARE};
    struct pollfd p;
    int fds[2];
    pid_t pid;

    *out = (struct fp_namespace){-1, -1};
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    pid = fork();
    if (pid == 0) {
        p = (struct pollfd){.fd = fds[1]};
        close(fds[0]);
        told = make_in_child(trial);
        if (write(fds[1], &told, sizeof told) == sizeof told)
            (void)poll(&p, 1, -1); /* until it is killed, or who made it is gone */
        _exit(1);
    }
    close(fds[1]);
    p = (struct pollfd){.fd = fds[0], .events = POLLIN};
    if (pid < 0)
        told.rc = -EAGAIN;
    else if (poll(&p, 1, MAKE_MS) == 1 && read(fds[0], &told, sizeof told) != sizeof told)
        told.rc = -EIO;
    if (pid > 0 && told.rc == 0 && (told.rc = keep(pid, out)))
        told.at = UNSHARE;
    close(fds[0]); /* which ends it, too */
    if (pid > 0) {
        (void)kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    if (told.rc)
        say_why(&told, why, size);
    return told.rc;
}

void fp_namespace_close(struct fp_namespace *ns)
{
    if (ns->user >= 0)
        close(ns->user);
    if (ns->mnt >= 0)
        close(ns->mnt);
    *ns = (struct fp_namespace){-1, -1};
}

/* ---------------------------------------------------------------- its name */

static int path_in(char out[PATH_MAX], const char *dir, const char *name)
{
    return snprintf(out, PATH_MAX, "%s/%s", dir, name) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int link_one(int fd, const char *dir, const char *name)
{
    char path[PATH_MAX], to[64];

    if (path_in(path, dir, name))
        return -ENAMETOOLONG;
    snprintf(to, sizeof to, "/proc/%d/fd/%d", (int)getpid(), fd);
    return symlink(to, path) < 0 ? -errno : 0;
}

/* What its processes have as /proc/self/ns/mnt: they may not look at the descriptors of one that is outside. */
static int link_id(int mnt, const char *dir)
{
    char path[PATH_MAX], own[64], id[64];
    ssize_t n;

    snprintf(own, sizeof own, "/proc/self/fd/%d", mnt);
    n = readlink(own, id, sizeof id - 1);
    id[n > 0 ? n : 0] = '\0';
    if (n <= 0)
        return -errno;
    return path_in(path, dir, "id") ? -ENAMETOOLONG : symlink(id, path) < 0 ? -errno : 0;
}

int fp_namespace_link(const struct fp_namespace *ns, const char *dir)
{
    int rc = mkdir(dir, 0700) < 0 ? -errno : 0;

    rc = rc ? rc : link_one(ns->user, dir, "user");
    rc = rc ? rc : link_one(ns->mnt, dir, "mnt");
    return rc ? rc : link_id(ns->mnt, dir);
}
