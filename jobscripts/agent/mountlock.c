/*
 * Who may mount on a directory of this node (see mountlock.h). Called by the agent of a node (node_mount.c); one thread.
 *
 * Jobs of one user have locks in their own directories, where nobody else can make or hold anything: each writes down what it wants, then looks at what all have written down, and
 * locks what is the same, its own too. Of two that begin at the same moment the later one to look sees both, and one lock of the two is not to be had for it, or for the
 * other. All take them by the order of their names, so that one of two gets both. The kernel gives them up with the process, and the files go with the job's directory.
 *
 * Jobs of different users have the name of a socket that nobody connects to, with the number of the mount namespace in it. Anybody can take such a name, store or not: so it may
 * send a store to another place, but never keeps one from starting. If two users mount at the same moment all the same, the second is refused by the kernel.
 *
 * A lock on the directory itself was rejected: others can have it, too, and to open one that a dead store is mounted on takes long.
 */
#include "jobscripts/agent/mountlock.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "jobscripts/jobdir.h"

#define NAME_BYTES  60u /* of the path, its last ones: others that end so are kept apart, too, which costs little */
#define CLAIM_BYTES (PATH_MAX + 300u)

static unsigned long long namespace_number(void)
{
    struct stat ns = {0};

    (void)stat("/proc/self/ns/mnt", &ns);
    return (unsigned long long)ns.st_ino;
}

/* ---------------------------------------------------------------- jobs of this user */

static int is_job(const struct dirent *e)
{
    return strncmp(e->d_name, "fpstore-", 8) == 0;
}

static bool says(int fd, const char *text)
{
    char there[CLAIM_BYTES];
    ssize_t n = pread(fd, there, sizeof there, 0);

    return n == (ssize_t)strlen(text) && memcmp(there, text, (size_t)n) == 0;
}

/* What the job of this directory wants, if it is this. 0 or -EADDRINUSE. */
static int lock_of(struct job_mount_lock *l, const char *dir, const char *text)
{
    int fd = job_dir_read(dir, JOB_CLAIM);
    bool held;

    if (fd < 0)
        return 0;
    held = says(fd, text) && (l->nclaims == JOB_CLAIMS_MAX || (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK));
    if (!held && says(fd, text))
        l->claim[l->nclaims++] = fd;
    else
        close(fd);
    return held ? -EADDRINUSE : 0;
}

int job_mount_lock_own(struct job_mount_lock *l, const char *dir, const char *path)
{
    char text[CLAIM_BYTES], host[256] = "", where[PATH_MAX], other[PATH_MAX];
    struct dirent **all;
    int n, rc = 0;

    (void)gethostname(host, sizeof host - 1);
    snprintf(text, sizeof text, "%s %llx %s\n", host, namespace_number(), path);
    snprintf(where, sizeof where, "%s", dir);
    *strrchr(where, '/') = '\0';
    if (job_dir_write(dir, JOB_CLAIM, text, 0600))
        return 0;
    n = scandir(where, &all, is_job, alphasort);
    for (int i = 0; i < n; i++) {
        if (!rc && job_dir_file(other, where, all[i]->d_name) == 0)
            rc = lock_of(l, other, text);
        free(all[i]);
    }
    if (n >= 0)
        free(all);
    if (rc)
        job_mount_unlock(l, dir);
    return rc;
}

/* ---------------------------------------------------------------- jobs of all */

bool job_mount_lock_all(struct job_mount_lock *l, const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t len = strlen(path), skip = len > NAME_BYTES ? len - NAME_BYTES : 0;
    int n = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "fpstore-%llx-%s", namespace_number(), path + skip);

    l->name = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (l->name < 0)
        l->name = 0;
    return !l->name || bind(l->name, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) == 0 || errno != EADDRINUSE;
}

void job_mount_unlock(struct job_mount_lock *l, const char *dir)
{
    char path[PATH_MAX];

    if (l->nclaims && job_dir_file(path, dir, JOB_CLAIM) == 0)
        (void)unlink(path); /* jobs that live on do not have to look at it */
    while (l->nclaims)
        close(l->claim[--l->nclaims]);
    if (l->name)
        close(l->name);
    l->name = 0;
}
