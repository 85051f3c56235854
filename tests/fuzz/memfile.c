/*
 * Segment files without a file system (memfile.h). Called by the harnesses and the benefactor's code, on their only thread.
 *
 * Files of memfd_create or in /dev/shm were most of the time of an input: each page that is written is one that the kernel clears and takes back. A
 * file is a table of pages of 4 KiB; what was never written, or punched, is a hole, and lseek finds it as such.
 */
#include "tests/fuzz/memfile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "benefactor/backend.h"
#include "tests/fuzz/fds.h"

#define FDS_MAX   1024
#define FILES_MAX 64
#define PAGE      4096u
#define PAGES_MAX 8192u /* 32 MiB */

static struct file {
    uint64_t size;
    uint32_t end; /* behind the last page that was ever written */
    uint8_t *page[PAGES_MAX];
} *file[FILES_MAX];
static unsigned nfiles;
static struct {
    struct file *of;
} fds[FDS_MAX];
static int nfds;
static unsigned nopen;
static uint8_t **unused; /* pages: the first bytes are the next one */

int __wrap_bnf_file_write(struct bnf_file *f, struct iovec *iov, int iovcnt, uint64_t off_bytes);
int __wrap_bnf_file_read(struct bnf_file *f, void *buf, size_t len_bytes, uint64_t off_bytes);
int __wrap_bnf_file_reopen(const struct bnf_file *f);
off_t __real_lseek64(int fd, off_t off, int whence);
off_t __wrap_lseek64(int fd, off_t off, int whence);
int __real_fstat64(int fd, struct stat *st);
int __wrap_fstat64(int fd, struct stat *st);

static void page_put(struct file *f, uint32_t at)
{
    uint8_t **p = (uint8_t **)(void *)f->page[at];

    if (!p)
        return;
    *p = (uint8_t *)unused;
    unused = p;
    f->page[at] = NULL;
}

static uint8_t *page_get(void)
{
    uint8_t *p = (uint8_t *)unused;

    if (p)
        unused = (uint8_t **)(void *)*unused;
    else
        FUZZ_CHECK((p = malloc(PAGE)));
    memset(p, 0, PAGE);
    return p;
}

static int fd_close(int fd)
{
    FUZZ_CHECK(memfile_is(fd)); /* and not twice */
    fds[fd - FUZZ_FIRST_FD].of = NULL;
    nopen--;
    return 0;
}

void memfile_reset(void)
{
    FUZZ_CHECK(nopen == 0);
    fuzz_close = fd_close;
    while (nfiles > 0) {
        struct file *f = file[--nfiles];

        for (uint32_t i = 0; i < f->end; i++)
            page_put(f, i);
        f->end = 0;
        f->size = 0;
    }
    nfds = 0;
}

static int fd_new(struct file *f)
{
    FUZZ_CHECK(nfds < FDS_MAX);
    nopen++;
    fds[nfds].of = f;
    return FUZZ_FIRST_FD + nfds++;
}

static struct file *file_of(int fd)
{
    FUZZ_CHECK(memfile_is(fd));
    return fds[fd - FUZZ_FIRST_FD].of;
}

int memfile_new(void)
{
    FUZZ_CHECK(nfiles < FILES_MAX);
    if (!file[nfiles])
        FUZZ_CHECK((file[nfiles] = calloc(1, sizeof *file[0])));
    return fd_new(file[nfiles++]);
}

int memfile_dup(int fd)
{
    return fd_new(file_of(fd));
}

bool memfile_is(int fd)
{
    return fd >= FUZZ_FIRST_FD && fd < FUZZ_FIRST_FD + nfds && fds[fd - FUZZ_FIRST_FD].of;
}

unsigned memfile_open(void)
{
    return nopen;
}

void memfile_write(int fd, const void *p, size_t n, uint64_t off)
{
    struct file *f = file_of(fd);
    const uint8_t *from = p;

    FUZZ_CHECK(off <= (uint64_t)PAGES_MAX * PAGE && n <= (uint64_t)PAGES_MAX * PAGE - off);
    if (off + n > f->size)
        f->size = off + n;
    while (n > 0) {
        uint32_t at = (uint32_t)(off / PAGE), in = (uint32_t)(off % PAGE), k = PAGE - in < n ? PAGE - in : (uint32_t)n;

        if (!f->page[at])
            f->page[at] = page_get();
        if (at >= f->end)
            f->end = at + 1;
        memcpy(f->page[at] + in, from, k);
        from += k;
        off += k;
        n -= k;
    }
}

void memfile_punch(int fd, uint64_t off, uint64_t n)
{
    struct file *f = file_of(fd);
    uint64_t to = off + n < f->size ? off + n : f->size;

    FUZZ_CHECK(off % PAGE == 0 && n % PAGE == 0);
    for (uint64_t at = off / PAGE; at * PAGE < to && at < f->end; at++)
        page_put(f, (uint32_t)at);
}

void memfile_truncate(int fd, uint64_t size)
{
    struct file *f = file_of(fd);

    for (uint32_t at = (uint32_t)((size + PAGE - 1) / PAGE); at < f->end; at++)
        page_put(f, at);
    if (size % PAGE && size < f->size && f->page[size / PAGE])
        memset(f->page[size / PAGE] + size % PAGE, 0, PAGE - size % PAGE);
    f->size = size;
}

/* -------------------------------------------------------------- what the product calls */

int __wrap_bnf_file_write(struct bnf_file *f, struct iovec *iov, int iovcnt, uint64_t off_bytes)
{
    for (int i = 0; i < iovcnt; i++) {
        memfile_write(f->fd, iov[i].iov_base, iov[i].iov_len, off_bytes);
        off_bytes += iov[i].iov_len;
    }
    return 0;
}

int __wrap_bnf_file_read(struct bnf_file *f, void *buf, size_t len_bytes, uint64_t off_bytes)
{
    const struct file *of = file_of(f->fd);
    uint8_t *to = buf;

    if (off_bytes > of->size || len_bytes > of->size - off_bytes)
        return -EIO;
    while (len_bytes > 0) {
        uint32_t at = (uint32_t)(off_bytes / PAGE), in = (uint32_t)(off_bytes % PAGE), k = PAGE - in < len_bytes ? PAGE - in : (uint32_t)len_bytes;

        if (at < of->end && of->page[at])
            memcpy(to, of->page[at] + in, k);
        else
            memset(to, 0, k);
        to += k;
        off_bytes += k;
        len_bytes -= k;
    }
    return 0;
}

int __wrap_bnf_file_reopen(const struct bnf_file *f)
{
    return memfile_dup(f->fd);
}

off_t __wrap_lseek64(int fd, off_t off, int whence)
{
    const struct file *f;
    uint64_t at;

    if (fd < FUZZ_FIRST_FD)
        return __real_lseek64(fd, off, whence);
    f = file_of(fd);
    FUZZ_CHECK(whence == SEEK_DATA && off >= 0);
    for (at = (uint64_t)off / PAGE; at < f->end && at * PAGE < f->size; at++)
        if (f->page[at])
            return at * PAGE > (uint64_t)off ? (off_t)(at * PAGE) : off;
    errno = ENXIO;
    return -1;
}

int __wrap_fstat64(int fd, struct stat *st)
{
    if (fd < FUZZ_FIRST_FD)
        return __real_fstat64(fd, st);
    memset(st, 0, sizeof *st);
    st->st_size = (off_t)file_of(fd)->size;
    return 0;
}
