/* POSIX: open, pread, pwrite, fsync, close. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "fpior.h"

static void open_file(struct file *f)
{
    int direct = f->job->p.odirect ? O_DIRECT : 0;

    f->fd = f->writing ? open(f->path, O_RDWR | O_CREAT | O_CLOEXEC | direct, 0664) : open(f->path, O_RDONLY | O_CLOEXEC | direct);
    if (f->fd < 0)
        fatal(f, "open: %s", strerror(errno));
}

/* Waits for those who have the range; a task has one range at a time, so nobody waits in a circle. */
static void lock(struct file *f, short type, uint64_t off)
{
    struct flock l = { .l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)off, .l_len = (off_t)f->job->pattern.transfer };
    int rc;

    if (!f->job->p.range_locks)
        return;
    while ((rc = fcntl(f->fd, F_SETLKW, &l)) != 0 && errno == EINTR)
        ;
    if (rc != 0)
        fatal(f, "lock of %llu: %s", (unsigned long long)off, strerror(errno));
}

static void move(struct file *f, void *buf, uint64_t off)
{
    uint64_t size = f->job->pattern.transfer, done = 0;

    while (done < size) {
        ssize_t n = f->writing ? pwrite(f->fd, (char *)buf + done, size - done, (off_t)(off + done)) :
                     pread(f->fd, (char *)buf + done, size - done, (off_t)(off + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            fatal(f, "%s at %llu: %s", f->writing ? "write" : "read", (unsigned long long)(off + done), strerror(errno));
        if (n == 0)
            fatal(f, "the file ends at %llu", (unsigned long long)(off + done));
        done += (uint64_t)n;
        if (done < size && f->job->p.single_attempt)
            fatal(f, "%llu bytes of %llu at %llu (-x)", (unsigned long long)done, (unsigned long long)size, (unsigned long long)off);
    }
}

static void xfer(struct file *f, void *buf, uint64_t off)
{
    lock(f, f->writing ? F_WRLCK : F_RDLCK, off);
    move(f, buf, off);
    lock(f, F_UNLCK, off);
}

static void sync_file(struct file *f)
{
    if (fsync(f->fd) != 0)
        fatal(f, "fsync: %s", strerror(errno));
}

static void close_file(struct file *f)
{
    if (close(f->fd) != 0)
        fatal(f, "close: %s", strerror(errno));
}

static const char *version(void)
{
    return "";
}

const struct api io_posix = { "POSIX", open_file, xfer, sync_file, close_file, version };
