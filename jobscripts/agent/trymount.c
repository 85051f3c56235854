/*
 * Mounts an empty file system by fusermount3, as fp-mount does, reads the kernel's first request, and unmounts it (see trymount.h). Called by agents and by fp-job doctor; one thread.
 *
 * Looking at modes and modules alone was rejected: what forbids a mount is mostly something else (a security module, a container, a nosuid mount). Nobody serves
 * the file system: the device is closed before it is unmounted, so that whoever comes upon it meanwhile gets an error and does not wait. Signals that would
 * end us wait until it is gone.
 */
#include "jobscripts/agent/trymount.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "fp/command.h"
#include "fp/err.h"
#include "fp/fusehelper.h"

#define HELPER_MS     5000u
#define FIRST_MS      2000
#define REQUEST_BYTES (132u << 10) /* the kernel gives none to who has less room than its greatest */
#define OPCODE_INIT   26u
#define INIT_BYTES    56u          /* header 40, major, minor, read-ahead, flags; flags2 behind it in newer ones */
#define HAS_FLAGS2    (1u << 30)
#define PASSTHROUGH   (1u << (37 - 32)) /* of flags2 */

/* The device comes by this socket, whose number the helper is told in its environment. */
static int device_from(int socket)
{
    char byte, room[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {.iov_base = &byte, .iov_len = 1};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *c;
    int fd;

    if (recvmsg(socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1)
        return -EIO;
    c = CMSG_FIRSTHDR(&m);
    if (!c || c->cmsg_type != SCM_RIGHTS || c->cmsg_len != CMSG_LEN(sizeof fd))
        return -EIO;
    memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

static void keep_reason(struct job_mount_tried *t, const char *said)
{
    const char *text = strncmp(said, "fusermount3: ", 13) == 0 ? said + 13 : said;

    snprintf(t->why, sizeof t->why, "%.*s", (int)strcspn(text, "\n"), text);
}

/* fusermount3 with these words, and what it says. */
static int helper(char *const words[], struct job_mount_tried *t)
{
    char *argv[12] = {(char *)"sh", (char *)"-c", (char *)"exec fusermount3 \"$@\" 2>&1", (char *)"sh"}, said[1024];
    size_t at = 4;
    int rc;

    for (; *words && at + 1 < sizeof argv / sizeof argv[0]; words++)
        argv[at++] = *words;
    rc = fp_command(argv, HELPER_MS, said, sizeof said);
    if (rc)
        keep_reason(t, said);
    return rc > 0 ? -EPERM : rc;
}

static int mount_on(char *dir, struct job_mount_tried *t)
{
    char *const words[] = {(char *)"-o", (char *)"rw,nosuid,nodev,fsname=fp-job,subtype=fp-job-doctor", (char *)"--", dir, NULL};
    char number[16];
    int fds[2], rc;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return -errno;
    snprintf(number, sizeof number, "%d", fds[1]);
    rc = fcntl(fds[1], F_SETFD, 0) < 0 || setenv("_FUSE_COMMFD", number, 1) < 0 ? -errno : helper(words, t);
    unsetenv("_FUSE_COMMFD");
    if (rc == 0)
        rc = device_from(fds[0]);
    close(fds[0]);
    close(fds[1]);
    return rc;
}

/* The kernel speaks in the byte order of the machine. */
static uint32_t number_at(const uint8_t *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

/* What this kernel's FUSE can do stands in its first request. */
static int read_first(int device, struct job_mount_tried *t)
{
    struct pollfd p = {.fd = device, .events = POLLIN};
    uint8_t *request = malloc(REQUEST_BYTES);
    ssize_t len = -1;
    int rc = 0;

    if (!request)
        return -ENOMEM;
    if (poll(&p, 1, FIRST_MS) != 1)
        rc = -ETIMEDOUT;
    else if ((len = read(device, request, REQUEST_BYTES)) < (ssize_t)INIT_BYTES || number_at(request + 4) != OPCODE_INIT)
        rc = -EPROTO;
    if (rc == 0) {
        t->fuse_minor = number_at(request + 44);
        t->passthrough = number_at(request + 52) & HAS_FLAGS2 && len >= (ssize_t)INIT_BYTES + 4 && number_at(request + INIT_BYTES) & PASSTHROUGH;
    }
    free(request);
    return rc;
}

static int mount_and_unmount(char *dir, struct job_mount_tried *t)
{
    char *const words[] = {(char *)"-u", (char *)"-z", (char *)"--", dir, NULL};
    int device = mount_on(dir, t), rc, end;

    if (device < 0)
        return device;
    rc = read_first(device, t);
    if (rc)
        snprintf(t->why, sizeof t->why, "it was mounted, but the kernel's first request: %s", fp_strerror(rc));
    close(device);
    end = helper(words, t);
    return rc ? rc : end;
}

bool job_mount_helper(char *out, size_t size)
{
    struct statvfs v;
    struct stat st;

    if (!fp_fuse_helper(out, size))
        return false;
    return geteuid() == 0 || (stat(out, &st) == 0 && st.st_uid == 0 && st.st_mode & S_ISUID && statvfs(out, &v) == 0 && !(v.f_flag & ST_NOSUID));
}

int job_try_mount(const char *dir, struct job_mount_tried *out)
{
    char path[PATH_MAX];
    sigset_t later, before;
    int rc;

    memset(out, 0, sizeof *out);
    snprintf(path, sizeof path, "%s", dir);
    sigemptyset(&later);
    for (const int *sig = (const int[]){SIGINT, SIGTERM, SIGHUP, SIGALRM, 0}; *sig; sig++)
        sigaddset(&later, *sig);
    sigprocmask(SIG_BLOCK, &later, &before);
    rc = mount_and_unmount(path, out);
    sigprocmask(SIG_SETMASK, &before, NULL);
    return rc;
}
