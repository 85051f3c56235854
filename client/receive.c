/*
 * What FUSE threads read from the device, in place of libfuse's read(2).
 *
 * The kernel copies a request to where it is read to. libfuse gives one flat buffer for all of it, from which a write's bytes would have to be
 * copied once more into the chunk pool: 15 to 30 % of the processor time that this process takes for it. Here the header goes to libfuse's
 * buffer and the bytes to pages that the pool has lent to the thread, and client/data/write.c makes them part of the file, against others.
 * What is no write is put together in libfuse's buffer.
 *
 * A page can become one of the file only if the bytes lie in it where they lie in the file's. Where that is has to be known before the request is read, so it is
 * guessed: as it was in the last two large writes that agreed. Most programs write from memory that malloc gave, 16 bytes behind the beginning of a page; the kernel
 * cuts such a write at its own pages, and all requests but the first begin 16 bytes before one of ours. A wrong guess costs the copy.
 *
 * A thread gets its pages when its first large write has come, by read(2), and then gives the memory of libfuse's buffer back to the kernel: so
 * that a mount takes no more memory than without, and one that gets small writes only is as it was. They go back when the thread ends.
 *
 * libfuse may end a thread by pthread_cancel while it is in receive(): nothing there may be cancelled but the waiting itself.
 *
 * Rejected: splice(2), which copies as often; FUSE over io_uring, off in most kernels and without interrupts in libfuse; a loop of our own in
 * place of libfuse's: replies have to go to the descriptor that a request came from, and only libfuse's loop can have one per thread. Without
 * libfuse's custom I/O (an option since 3.18) nothing of this is in use, and `fpctl status` says so.
 */
#include "client/receive.h"

#define FUSE_USE_VERSION 317
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "client/client.h"
#include "client/data.h"
#include "client/data/pool.h"

#define HEAD_BYTES  (sizeof(struct fuse_in_header) + sizeof(struct fuse_write_in))
#define LARGE_BYTES CL_PAGE_BYTES /* of a write, for which it is worth having pages */
#define FUSE_DEVICE "/dev/fuse"

struct received { /* of one thread */
    struct cl_pool *pool;
    bool large;       /* a large write has come */
    bool tried;       /* … and pages were asked for */
    uint32_t npages;  /* 0: none */
    uint8_t *page[CL_RECEIVE_PAGES_MAX];
    uint8_t *data;    /* of a write: where libfuse takes its bytes to be, which are in the pages; NULL: they are there */
    size_t data_bytes;
    uint32_t at;      /* in the first page, where they begin */
};

/* Where in a page large writes begin: of the last one; and guessed of the next. Of all threads, which take requests of one program by turns. */
static _Atomic uint32_t last_at, likely_at;

static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static bool have_key;

static void thread_ends(void *arg)
{
    struct received *r = arg;
    cl_pool_take_back(r->pool, r->page, r->npages);
    free(r);
}

static void make_key(void)
{
    have_key = pthread_key_create(&key, thread_ends) == 0;
}

static struct received *mine(void)
{
    return have_key ? pthread_getspecific(key) : NULL;
}

static struct received *mine_or_new(struct cl_mount *m)
{
    struct received *r = mine();
    if (r)
        return r;
    r = calloc(1, sizeof *r);
    if (r && pthread_setspecific(key, r) != 0) {
        free(r);
        r = NULL;
    }
    if (r)
        r->pool = cl_data_pool(m);
    return r;
}

/* Memory of libfuse's buffer, which holds nothing now: it is used for its beginning only from here on, and for what is no write. */
static void let_go(uint8_t *buf, size_t len)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = ((uintptr_t)buf + HEAD_BYTES + page - 1) & ~(page - 1),
              to = ((uintptr_t)buf + len) & ~(page - 1);
    if (to > from)
        (void)madvise((void *)from, to - from, MADV_DONTNEED);
}

static void get_pages(struct cl_mount *m, struct received *r, uint8_t *buf, size_t len)
{
    uint32_t n = (m->max_write_bytes + CL_PAGE_BYTES - 1) / CL_PAGE_BYTES + 1;
    r->tried = true;
    if (n > CL_RECEIVE_PAGES_MAX || cl_pool_lend(r->pool, r->page, n) < 0)
        return;
    r->npages = n;
    let_go(buf, len);
}

static uint32_t opcode(const uint8_t *buf)
{
    struct fuse_in_header in;
    memcpy(&in, buf, sizeof in);
    return in.opcode;
}

static ssize_t receive_flat(int fd, uint8_t *buf, size_t len, struct received *r)
{
    ssize_t n = read(fd, buf, len);
    if (r && n >= (ssize_t)(HEAD_BYTES + LARGE_BYTES) && opcode(buf) == FUSE_WRITE)
        r->large = true;
    return n;
}

/* Of bytes that begin in the first page and go on for len: how many are in page i, and *from which byte of it on. */
static size_t part_of_page(const struct received *r, uint32_t i, size_t left, uint32_t *from)
{
    *from = i == 0 ? r->at : 0;
    return left < CL_PAGE_BYTES - *from ? left : CL_PAGE_BYTES - *from;
}

static void guess(const uint8_t *buf)
{
    struct fuse_write_in in;
    memcpy(&in, buf + sizeof(struct fuse_in_header), sizeof in);
    uint32_t at = (uint32_t)(in.offset % CL_PAGE_BYTES);
    if (in.size >= LARGE_BYTES && atomic_exchange(&last_at, at) == at)
        atomic_store(&likely_at, at);
}

/* What follows the header goes to the pages, and if they are not enough to where it would be without them. */
static ssize_t receive_in_pages(int fd, uint8_t *buf, size_t len, struct received *r)
{
    struct iovec iov[CL_RECEIVE_PAGES_MAX + 2];
    size_t at = HEAD_BYTES;
    uint32_t from;
    int niov = 0;
    r->at = atomic_load(&likely_at);
    iov[niov++] = (struct iovec){buf, HEAD_BYTES};
    for (uint32_t i = 0; i < r->npages && at < len; i++, niov++) {
        size_t n = part_of_page(r, i, len - at, &from);
        iov[niov] = (struct iovec){r->page[i] + from, n};
        at += n;
    }
    if (at < len)
        iov[niov++] = (struct iovec){buf + at, len - at};
    ssize_t n = readv(fd, iov, niov);
    if (n <= (ssize_t)HEAD_BYTES)
        return n;
    r->data = buf + HEAD_BYTES;
    r->data_bytes = ((size_t)n < at ? (size_t)n : at) - HEAD_BYTES;
    if ((size_t)n > at || opcode(buf) != FUSE_WRITE)
        cl_received_flat((const char *)r->data);
    if (r->data)
        guess(buf);
    return n;
}

static ssize_t receive(int fd, void *buf, size_t len, void *userdata)
{
    struct cl_mount *m = userdata;
    struct received *r = mine_or_new(m);
    if (r)
        r->data = NULL;
    if (r && r->large && !r->tried)
        get_pages(m, r, buf, len);
    if (!r || r->npages == 0 || len <= HEAD_BYTES)
        return receive_flat(fd, buf, len, r);
    return receive_in_pages(fd, buf, len, r);
}

static struct received *in_pages(const char *buf)
{
    struct received *r = mine();
    return r && r->data && (const char *)r->data == buf ? r : NULL;
}

uint8_t **cl_received_pages(const char *buf, uint32_t *at)
{
    struct received *r = in_pages(buf);
    if (r)
        *at = r->at;
    return r ? r->page : NULL;
}

void cl_received_flat(const char *buf)
{
    struct received *r = in_pages(buf);
    uint32_t i = 0, from;
    if (!r)
        return;
    for (size_t done = 0, n; done < r->data_bytes; done += n, i++) {
        n = part_of_page(r, i, r->data_bytes - done, &from);
        memcpy(r->data + done, r->page[i] + from, n);
    }
    r->data = NULL;
}

static ssize_t reply(int fd, struct iovec *iov, int count, void *userdata)
{
    (void)userdata;
    return writev(fd, iov, count);
}

/* As libfuse does it, which leaves it to who has custom I/O. */
static int clone_device(int master)
{
    uint32_t from = (uint32_t)master;
    int fd = open(FUSE_DEVICE, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && ioctl(fd, FUSE_DEV_IOC_CLONE, &from) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

int cl_receive_setup(struct fuse_session *se)
{
    const struct fuse_custom_io io = {.writev = reply, .read = receive, .clone_fd = clone_device};
    pthread_once(&key_once, make_key);
    return have_key ? fuse_session_custom_io(se, &io, sizeof io, fuse_session_fd(se)) : -EAGAIN;
}
