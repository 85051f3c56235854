/*
 * Sockets, eventfds and memfds without the kernel (memsock.h). Called by the harness and the program under test, on their only thread.
 *
 * Real ones were half of the time of an input. A message is a block of its own, so that AddressSanitizer sees what is read beyond it. A memfd has no
 * bytes but where it is mapped: a mapping is kept, and its pages are given back, from one input to the next.
 */
#include "tests/fuzz/memsock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fp/memfd.h"
#include "tests/fuzz/fds.h"

#define FDS_MAX    512
#define QUEUE_MAX  64 /* messages */
#define REGION_MAX ((size_t)128 << 20)
#define REGIONS    3

static struct end {
    enum { NOTHING, SOCKET, EVENT, MEMORY } is;
    int peer; /* SOCKET: -1: has gone */
    struct {
        uint8_t *bytes;
        size_t n;
    } in[QUEUE_MAX];
    unsigned first, n;
    uint64_t count; /* EVENT */
} ends[FDS_MAX];
static int nends;
static unsigned nopen;
static struct {
    void *at;
    bool used, touched;
} region[REGIONS];

ssize_t __real_read(int fd, void *buf, size_t n);
ssize_t __wrap_read(int fd, void *buf, size_t n);
ssize_t __real_write(int fd, const void *buf, size_t n);
ssize_t __wrap_write(int fd, const void *buf, size_t n);
ssize_t __wrap_recv(int fd, void *buf, size_t n, int flags);
ssize_t __wrap_send(int fd, const void *buf, size_t n, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags);
int __wrap_eventfd(unsigned count, int flags);
int __real_fp_memfd_new(const char *name, uint64_t bytes);
int __wrap_fp_memfd_new(const char *name, uint64_t bytes);
int __real_fp_memfd_seal(int fd);
int __wrap_fp_memfd_seal(int fd);
void *__real_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t off);
void *__wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t off);
int __real_munmap(void *at, size_t n);
int __wrap_munmap(void *at, size_t n);

static struct end *end_of(int fd)
{
    struct end *e = &ends[fd - FUZZ_FIRST_FD];

    FUZZ_CHECK(fd < FUZZ_FIRST_FD + nends && e->is != NOTHING); /* closed already */
    return e;
}

static int end_new(int is)
{
    FUZZ_CHECK(nends < FDS_MAX);
    memset(&ends[nends], 0, sizeof ends[0]);
    ends[nends].is = is;
    nopen++;
    return FUZZ_FIRST_FD + nends++;
}

static int end_close(int fd)
{
    struct end *e = end_of(fd);

    for (; e->n > 0; e->n--)
        free(e->in[e->first++ % QUEUE_MAX].bytes);
    if (e->is == SOCKET && e->peer >= 0)
        ends[e->peer].peer = -1;
    e->is = NOTHING;
    nopen--;
    return 0;
}

void memsock_reset(void)
{
    FUZZ_CHECK(nopen == 0);
    fuzz_close = end_close;
    nends = 0;
    for (int i = 0; i < REGIONS; i++) {
        FUZZ_CHECK(!region[i].used);
        if (region[i].touched)
            FUZZ_CHECK(madvise(region[i].at, REGION_MAX, MADV_DONTNEED) == 0);
        region[i].touched = false;
    }
}

unsigned memsock_open(void)
{
    return nopen;
}

void memsock_pair(int fd[2])
{
    fd[0] = end_new(SOCKET);
    fd[1] = end_new(SOCKET);
    ends[fd[0] - FUZZ_FIRST_FD].peer = fd[1] - FUZZ_FIRST_FD;
    ends[fd[1] - FUZZ_FIRST_FD].peer = fd[0] - FUZZ_FIRST_FD;
}

int memsock_poll(struct pollfd *p, nfds_t n)
{
    int ready = 0;

    for (nfds_t i = 0; i < n; i++) {
        const struct end *e;

        p[i].revents = 0;
        if (p[i].fd < 0)
            continue;
        e = end_of(p[i].fd);
        if (e->is == EVENT ? e->count > 0 : e->n > 0)
            p[i].revents |= POLLIN & p[i].events;
        if (e->is == SOCKET && e->peer < 0)
            p[i].revents |= (short)(POLLHUP | (POLLIN & p[i].events));
        if (e->is == SOCKET && e->peer >= 0 && ends[e->peer].n < QUEUE_MAX)
            p[i].revents |= POLLOUT & p[i].events;
        ready += p[i].revents != 0;
    }
    return ready;
}

/* -------------------------------------------------------------- what the program calls */

ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
    struct end *e = end_of(fd), *to = e->peer >= 0 ? &ends[e->peer] : NULL;
    size_t n = 0, at = 0;
    uint8_t *bytes;

    FUZZ_CHECK(e->is == SOCKET && flags & MSG_DONTWAIT);
    errno = !to ? EPIPE : EAGAIN;
    if (!to || to->n == QUEUE_MAX)
        return -1;
    for (size_t i = 0; i < m->msg_iovlen; i++)
        n += m->msg_iov[i].iov_len;
    FUZZ_CHECK((bytes = malloc(n + 1)));
    for (size_t i = 0; i < m->msg_iovlen; at += m->msg_iov[i++].iov_len)
        if (m->msg_iov[i].iov_len > 0)
            memcpy(bytes + at, m->msg_iov[i].iov_base, m->msg_iov[i].iov_len);
    to->in[(to->first + to->n) % QUEUE_MAX].bytes = bytes;
    to->in[(to->first + to->n++) % QUEUE_MAX].n = n;
    return (ssize_t)n;
}

ssize_t __wrap_send(int fd, const void *buf, size_t n, int flags)
{
    struct iovec iov = {(void *)(uintptr_t)buf, n};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};

    return __wrap_sendmsg(fd, &m, flags);
}

ssize_t __wrap_recv(int fd, void *buf, size_t n, int flags)
{
    struct end *e = end_of(fd);
    uint8_t *bytes;
    size_t len;

    FUZZ_CHECK(e->is == SOCKET && flags & MSG_DONTWAIT);
    if (e->n == 0) {
        errno = EAGAIN;
        return e->peer < 0 ? 0 : -1;
    }
    bytes = e->in[e->first % QUEUE_MAX].bytes;
    len = e->in[e->first++ % QUEUE_MAX].n;
    e->n--;
    len = len < n ? len : n;
    memcpy(buf, bytes, len);
    free(bytes);
    return (ssize_t)len;
}

int __wrap_eventfd(unsigned count, int flags)
{
    int fd = end_new(EVENT);

    (void)flags;
    ends[fd - FUZZ_FIRST_FD].count = count;
    return fd;
}

ssize_t __wrap_read(int fd, void *buf, size_t n)
{
    struct end *e;

    if (fd < FUZZ_FIRST_FD)
        return __real_read(fd, buf, n);
    e = end_of(fd);
    FUZZ_CHECK(e->is == EVENT && n == sizeof e->count);
    if (e->count == 0) {
        errno = EAGAIN;
        return -1;
    }
    memcpy(buf, &e->count, n);
    e->count = 0;
    return (ssize_t)n;
}

ssize_t __wrap_write(int fd, const void *buf, size_t n)
{
    uint64_t more;

    if (fd < FUZZ_FIRST_FD)
        return __real_write(fd, buf, n);
    FUZZ_CHECK(end_of(fd)->is == EVENT && n == sizeof more);
    memcpy(&more, buf, n);
    end_of(fd)->count += more;
    return (ssize_t)n;
}

int __wrap_fp_memfd_new(const char *name, uint64_t bytes)
{
    if (strcmp(name, "fpstore-aux-region") != 0)
        return __real_fp_memfd_new(name, bytes); /* the pool, which is kept */
    FUZZ_CHECK(bytes <= REGION_MAX);
    return end_new(MEMORY);
}

int __wrap_fp_memfd_seal(int fd)
{
    return fd < FUZZ_FIRST_FD ? __real_fp_memfd_seal(fd) : 0;
}

void *__wrap_mmap64(void *at, size_t n, int prot, int flags, int fd, off_t off)
{
    if (fd < FUZZ_FIRST_FD)
        return __real_mmap64(at, n, prot, flags, fd, off);
    FUZZ_CHECK(end_of(fd)->is == MEMORY && n <= REGION_MAX);
    if (flags & MAP_FIXED) /* over one of these */
        return __real_mmap64(at, n, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    for (int i = 0; i < REGIONS; i++)
        if (!region[i].used) {
            if (!region[i].at)
                region[i].at = __real_mmap64(NULL, REGION_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            FUZZ_CHECK(region[i].at != MAP_FAILED);
            region[i].used = region[i].touched = true;
            return region[i].at;
        }
    errno = ENOMEM;
    return MAP_FAILED;
}

int __wrap_munmap(void *at, size_t n)
{
    for (int i = 0; i < REGIONS; i++)
        if (region[i].used && region[i].at == at) {
            region[i].used = false;
            return 0;
        }
    return __real_munmap(at, n);
}
