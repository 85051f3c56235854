/*
 * Functions of the C library that work on any descriptor: sockets and counters go to net.c, files of simulated disks to disk.c, all else to the kernel.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fp.pb-c.h"
#include "tests/sim/net.h"

const char *sim_message_name(uint16_t type)
{
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value(&fp__msg_type__descriptor, type);

    return v ? v->name : "?";
}

static bool simulated(int fd)
{
    return fd >= 0 && fd < SIM_FDS_MAX && (sim_fds[fd].sock || sim_fds[fd].file);
}

int close(int fd)
{
    struct sim_fd f;

    if (!simulated(fd))
        return (int)syscall(SYS_close, fd);
    f = sim_fds[fd];
    sim_fds[fd] = (struct sim_fd){0};
    sim_close_raw(fd);
    if (f.sock)
        sim_sock_close(f.sock, false);
    return 0;
}

int fcntl(int fd, int cmd, ...)
{
    va_list ap;
    long arg;
    int to;

    va_start(ap, cmd);
    arg = va_arg(ap, long);
    va_end(ap);
    if ((cmd == F_SETLK || cmd == F_SETLKW || cmd == F_GETLK) && simulated(fd)) {
        if (cmd == F_GETLK)
            ((struct flock *)(uintptr_t)arg)->l_type = F_UNLCK; /* locks of one process with itself */
        return 0;
    }
    to = (int)syscall(SYS_fcntl, fd, cmd, arg);
    if (to >= 0 && to < SIM_FDS_MAX && (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC) && simulated(fd)) {
        sim_fds[to] = sim_fds[fd];
        sim_fds[to].proc = sim_self ? sim_self->proc : NULL;
        if (sim_fds[fd].sock)
            sim_fail("a socket is duplicated, which the simulator can't");
    }
    return to;
}

ssize_t read(int fd, void *buf, size_t len)
{
    struct sim_sock *s = sim_sock_of(fd);

    if (s && len == 8)
        return sim_eventfd_read(s, buf);
    return syscall(SYS_read, fd, buf, len);
}

ssize_t writev(int fd, const struct iovec *iov, int count)
{
    struct sim_sock *s = sim_sock_of(fd);
    uint64_t add;

    if (s && count == 1 && iov->iov_len == sizeof add) {
        memcpy(&add, iov->iov_base, sizeof add);
        return sim_eventfd_write(s, add);
    }
    if (sim_self && sim_self->proc && fd == STDERR_FILENO) {
        ssize_t sum = 0;

        if (count == 2) { /* the ready line: --ready-fd 2 */
            sim_trace("%s is ready", sim_self->proc->name);
            sim_self->proc->ready = true;
            sim_self->proc->ready_ns = sim.now_ns;
            return (ssize_t)(iov[0].iov_len + iov[1].iov_len);
        }
        for (int i = 0; i < count; i++) {
            sim_program_said(iov[i].iov_base, iov[i].iov_len);
            sum += (ssize_t)iov[i].iov_len;
        }
        return sum;
    }
    if (simulated(fd) && sim_fds[fd].file)
        return sim_disk_append(fd, iov, count);
    return syscall(SYS_writev, fd, iov, count);
}

ssize_t write(int fd, const void *buf, size_t len)
{
    struct iovec iov = {(void *)(uintptr_t)buf, len};

    return writev(fd, &iov, 1);
}

ssize_t send(int fd, const void *buf, size_t len, int flags)
{
    struct iovec iov = {(void *)(uintptr_t)buf, len};
    struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};

    return sendmsg(fd, &mh, flags);
}

ssize_t recv(int fd, void *buf, size_t len, int flags)
{
    struct iovec iov = {buf, len};
    struct msghdr mh = {.msg_iov = &iov, .msg_iovlen = 1};

    return recvmsg(fd, &mh, flags);
}

static int ready(struct pollfd *p, nfds_t n)
{
    int count = 0;

    for (nfds_t i = 0; i < n; i++) {
        const struct sim_sock *s = sim_sock_of(p[i].fd);

        bool loop = false;

        p[i].revents = 0;
        if (!s)
            continue;
        sim_uv_watch(s, NULL, 0, &loop);
        if ((p[i].events & POLLIN) && (loop || sim_sock_readable(s)))
            p[i].revents |= POLLIN;
        if ((p[i].events & POLLOUT) && sim_sock_writable(s))
            p[i].revents |= POLLOUT;
        count += p[i].revents != 0;
    }
    return count;
}

int poll(struct pollfd *p, nfds_t n, int timeout_ms)
{
    uint64_t until;
    int count;

    if (!sim_self)
        return (int)syscall(SYS_poll, p, n, timeout_ms);
    until = timeout_ms < 0 ? SIM_NEVER : sim.now_ns + (uint64_t)timeout_ms * SIM_MS;
    for (;;) {
        struct sim_task *me = sim_self;
        bool woken;

        count = ready(p, n);
        if (count || sim.now_ns >= until)
            return count;
        if (n > 8)
            sim_fail("poll of %d descriptors", (int)n);
        me->nwatch = 0;
        for (nfds_t i = 0; i < n; i++) {
            struct sim_sock *s = sim_sock_of(p[i].fd);
            bool loop;

            me->watch[me->nwatch++] = s;
            me->nwatch += sim_uv_watch(s, me->watch + me->nwatch, SIM_WATCH_MAX - me->nwatch, &loop);
        }
        woken = sim_block(me, until);
        me->nwatch = 0;
        if (!woken)
            return ready(p, n);
    }
}
