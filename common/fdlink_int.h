/* Shared by both ends of the local link: packets, addresses of any length, credentials. Any thread; only what
 * says so blocks. */
#ifndef FP_COMMON_FDLINK_INT_H
#define FP_COMMON_FDLINK_INT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#include "fp/fdlink.h"

#define FDLINK_NAME_MAX 90u

struct fdlink_fds {
    int fd[FP_FDLINK_FDS_MAX];
    size_t n;
};

/* Opens the directory of path (*dirfd, O_PATH; the caller closes it) and finds the name in it. */
int fdlink_path(const char *path, int *dirfd, const char **name);

/* The address of name in dirfd: short enough for a sockaddr whatever the length of the path. */
void fdlink_addr(int dirfd, const char *name, struct sockaddr_un *out);

/* One packet with descriptors. 0, -EAGAIN, -errno. Does not block on a non-blocking socket. */
int fdlink_send(int fd, const void *packet, size_t len_bytes, const int *fds, size_t nfds);

/* One packet into buf; its length, 0 at the end, -EAGAIN, -EMSGSIZE (cut off), -errno. Descriptors that came
 * are close-on-exec and the caller's, also when the packet is refused later. */
ssize_t fdlink_recv(int fd, void *buf, size_t cap_bytes, struct fdlink_fds *fds);
void fdlink_fds_close(struct fdlink_fds *fds);

/* Checks a whole packet: *f and 0, or FP_EBADFRAME / FP_EPROTO_VERSION. */
int fdlink_parse(const uint8_t *packet, size_t len_bytes, struct fp_frame *f);

/* Packs header and message into *out (malloc). f's message length is filled in. -EMSGSIZE, -ENOMEM. */
int fdlink_pack(struct fp_frame *f, const ProtobufCMessage *msg, uint8_t **out, size_t *len_bytes);

/* 0 if the other end of fd is our own user or root, else -EPERM; *pid of the other end. */
int fdlink_check_peer(int fd, pid_t *pid, uid_t *uid);

#endif
