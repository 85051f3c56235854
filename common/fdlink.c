/* What both ends of the local link have in common: one packet = one frame, with descriptors beside it.
 *
 * Called by fdlink_server.c (loop of the benefactor) and fdlink_client.c (threads of the mount).
 *
 * SOCK_SEQPACKET keeps packets whole, so that descriptors belong to one message without any framing of ours
 * and a send is atomic between threads. A packet that was cut off (MSG_TRUNC), or whose descriptors were
 * (MSG_CTRUNC), is an error and never half used.
 *
 * Paths may be longer than the 107 bytes of sockaddr_un (--dir decides): the directory is opened and the
 * socket is named through /proc/self/fd/N, which needs no chdir and so no care for other threads. */
#include "fdlink_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fp/err.h"

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * FP_FDLINK_FDS_MAX)];
};

int fdlink_path(const char *path, int *dirfd, const char **name)
{
    const char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    if (**name == 0)
        return -EINVAL;
    if (strlen(*name) > FDLINK_NAME_MAX)
        return -ENAMETOOLONG;
    char *dir = slash == path ? strdup("/") : slash ? strndup(path, (size_t)(slash - path)) : strdup(".");
    if (!dir)
        return -ENOMEM;
    int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 ? -errno : 0;
    free(dir);
    *dirfd = fd;
    return rc;
}

void fdlink_addr(int dirfd, const char *name, struct sockaddr_un *out)
{
    memset(out, 0, sizeof *out);
    out->sun_family = AF_UNIX;
    /* "/proc/self/fd/" + at most 10 digits + "/" + name fits: FDLINK_NAME_MAX sees to it */
    int n = snprintf(out->sun_path, sizeof out->sun_path, "/proc/self/fd/%d/", dirfd);
    snprintf(out->sun_path + n, sizeof out->sun_path - (size_t)n, "%s", name);
}

int fdlink_send(int fd, const void *packet, size_t len_bytes, const int *fds, size_t nfds)
{
    union control control;
    struct iovec iov = {(void *)packet, len_bytes};
    struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};
    if (nfds > 0) {
        memset(&control, 0, sizeof control);
        mh.msg_control = control.bytes;
        mh.msg_controllen = CMSG_SPACE(sizeof(int) * nfds);
        struct cmsghdr *cm = CMSG_FIRSTHDR(&mh);
        cm->cmsg_level = SOL_SOCKET;
        cm->cmsg_type = SCM_RIGHTS;
        cm->cmsg_len = CMSG_LEN(sizeof(int) * nfds);
        memcpy(CMSG_DATA(cm), fds, sizeof(int) * nfds);
    }
    ssize_t n;
    do {
        n = sendmsg(fd, &mh, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    return 0;
}

static void take_fds(struct msghdr *mh, struct fdlink_fds *fds)
{
    for (struct cmsghdr *cm = CMSG_FIRSTHDR(mh); cm; cm = CMSG_NXTHDR(mh, cm)) {
        if (cm->cmsg_level != SOL_SOCKET || cm->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (cm->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(cm) + i * sizeof(int), sizeof fd);
            if (fds->n < FP_FDLINK_FDS_MAX)
                fds->fd[fds->n++] = fd;
            else
                close(fd);
        }
    }
}

ssize_t fdlink_recv(int fd, void *buf, size_t cap_bytes, struct fdlink_fds *fds)
{
    union control control;
    struct iovec iov = {buf, cap_bytes};
    struct msghdr mh = {.msg_iov = &iov,
                        .msg_iovlen = 1,
                        .msg_control = control.bytes,
                        .msg_controllen = sizeof control.bytes};
    ssize_t n;
    fds->n = 0;
    do {
        n = recvmsg(fd, &mh, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    take_fds(&mh, fds);
    if (mh.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        fdlink_fds_close(fds);
        return -EMSGSIZE;
    }
    return n;
}

void fdlink_fds_close(struct fdlink_fds *fds)
{
    for (size_t i = 0; i < fds->n; i++)
        close(fds->fd[i]);
    fds->n = 0;
}

int fdlink_parse(const uint8_t *packet, size_t len_bytes, struct fp_frame *f)
{
    if (len_bytes < FP_FRAME_HEADER_BYTES)
        return FP_EBADFRAME;
    int rc = fp_frame_decode(packet, f);
    if (rc < 0)
        return rc == FP_EPROTO_VERSION ? rc : FP_EBADFRAME;
    if (f->payload_len_bytes != 0 || len_bytes != FP_FRAME_HEADER_BYTES + f->msg_len_bytes)
        return FP_EBADFRAME;
    return fp_frame_verify(packet, packet + FP_FRAME_HEADER_BYTES, f->msg_len_bytes) < 0 ? FP_EBADFRAME : 0;
}

int fdlink_pack(struct fp_frame *f, const ProtobufCMessage *msg, uint8_t **out, size_t *len_bytes)
{
    size_t msg_len = msg ? protobuf_c_message_get_packed_size(msg) : 0;
    if (msg_len > FP_FDLINK_MSG_MAX_BYTES)
        return -EMSGSIZE;
    uint8_t *p = malloc(FP_FRAME_HEADER_BYTES + msg_len);
    if (!p)
        return -ENOMEM;
    if (msg)
        protobuf_c_message_pack(msg, p + FP_FRAME_HEADER_BYTES);
    f->msg_len_bytes = (uint32_t)msg_len;
    f->payload_len_bytes = 0;
    fp_frame_encode(f, p + FP_FRAME_HEADER_BYTES, p);
    *out = p;
    *len_bytes = FP_FRAME_HEADER_BYTES + msg_len;
    return 0;
}

int fdlink_check_peer(int fd, pid_t *pid, uid_t *uid)
{
    struct ucred cred;
    socklen_t len = sizeof cred;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
        return -errno;
    *pid = cred.pid;
    *uid = cred.uid;
    return cred.uid == 0 || cred.uid == geteuid() ? 0 : -EPERM;
}
