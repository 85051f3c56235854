/*
 * Segments as sparse files in a directory: DIR/segments/seg-<16 hex digits>.
 *
 * Called on disk threads. A segment has its full length from the beginning, as one hole: no write ever
 * changes the length of the file, so O_DIRECT writes of several threads and processes run in parallel (ext4
 * and xfs take the inode lock exclusively for writes that extend), fdatasync has no inode to write for them,
 * and punching works wherever fallocate has been (ext4 ignores holes punched behind the end of a file).
 *
 * A new segment gets its name when its header is on the device: ".new" files are left-overs of a crash.
 * Unlinking cuts the file to nothing first: mounts may still hold its descriptor, and would otherwise hold
 * its space. Before that it becomes a ".new" file again: a crash in between must not leave a segment without a
 * header, which could not be told from a damaged one.
 *
 * File systems that can't do O_DIRECT (tmpfs before Linux 6.6) are used buffered; those that can't punch
 * holes free space by whole segments only (said once); without fallocate a lease is a promise of this program
 * only.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "benefactor/backend.h"
#include "fp/bug.h"
#include "fp/fault.h"
#include "fp/log.h"

#define MARK_NAME "unsynced-life"

struct dir_backend {
    struct bnf_backend base;
    int dir_fd;
    atomic_bool no_punch;
};

static struct dir_backend *dir_of(struct bnf_backend *b)
{
    return (struct dir_backend *)b;
}

bool bnf_backend_dir_is_segment(const char *name)
{
    return strncmp(name, "seg-", 4) == 0 && strlen(name) == 20 && strspn(name + 4, "0123456789abcdef") == 16;
}

/* *o_direct tells what it became. */
static int open_direct(int dir_fd, const char *name, int flags, bool *o_direct)
{
    int fd = openat(dir_fd, name, flags | O_DIRECT | O_CLOEXEC | O_NOFOLLOW, 0600);

    *o_direct = true;
    if (fd >= 0 || errno != EINVAL)
        return fd >= 0 ? fd : -errno;
    *o_direct = false;
    /* open(2): with O_CREAT the file may have been made although EINVAL was returned */
    fd = openat(dir_fd, name, (flags & ~O_EXCL) | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd >= 0 ? fd : -errno;
}

static int segment_finish(struct dir_backend *d, struct bnf_file *f, const struct fp_segment_header *h,
                          const char *tmp, const char *name)
{
    int rc;

    if (ftruncate(f->fd, (off_t)h->limit_bytes))
        return -errno;
    rc = bnf_file_write_header(f, h);
    if (rc)
        return rc;
    if (fdatasync(f->fd) || renameat(d->dir_fd, tmp, d->dir_fd, name) || fsync(d->dir_fd))
        return -errno;
    return 0;
}

static int dir_create(struct bnf_backend *b, const struct fp_segment_header *h, struct bnf_file **out)
{
    struct dir_backend *d = dir_of(b);
    char tmp[64], name[64];
    struct bnf_file *f;
    bool o_direct;
    int fd, rc;

    snprintf(name, sizeof(name), "seg-%016" PRIx64, h->id);
    snprintf(tmp, sizeof(tmp), "seg-%016" PRIx64 ".new", h->id);
    unlinkat(d->dir_fd, tmp, 0);
    fd = open_direct(d->dir_fd, tmp, O_RDWR | O_CREAT | O_EXCL, &o_direct);
    if (fd < 0)
        return fd;
    f = bnf_file_new(fd, o_direct, h->id, h->salt, h->limit_bytes);
    if (!f)
        return -ENOMEM;
    f->limiter = b->limiter;
    rc = segment_finish(d, f, h, tmp, name);
    if (rc) {
        unlinkat(d->dir_fd, tmp, 0);
        unlinkat(d->dir_fd, name, 0);
        bnf_file_put(f);
        return rc;
    }
    *out = f;
    return 0;
}

static int dir_alloc(struct bnf_backend *b, struct bnf_file *f, uint64_t off_bytes, uint64_t len_bytes)
{
    (void)b;
    while (fallocate(f->fd, FALLOC_FL_KEEP_SIZE, (off_t)off_bytes, (off_t)len_bytes)) {
        if (errno == EOPNOTSUPP)
            return 0;
        if (errno != EINTR)
            return -errno;
    }
    return 0;
}

static int dir_punch(struct bnf_backend *b, struct bnf_file *f, uint64_t off_bytes, uint64_t len_bytes)
{
    struct dir_backend *d = dir_of(b);

    while (fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off_bytes, (off_t)len_bytes)) {
        if (errno == EINTR)
            continue;
        if (errno != EOPNOTSUPP)
            return -errno;
        if (!atomic_exchange(&d->no_punch, true))
            FP_WARN("the file system of --dir can't punch holes: deleted data is freed by whole segments "
                    "only; use "
                    "ext4, xfs, btrfs or tmpfs");
        return 0;
    }
    return 0;
}

static int dir_unlink(struct bnf_backend *b, struct bnf_file *f)
{
    struct dir_backend *d = dir_of(b);
    char tmp[64], name[64];
    int rc;

    snprintf(name, sizeof(name), "seg-%016" PRIx64, f->segment);
    snprintf(tmp, sizeof(tmp), "seg-%016" PRIx64 ".new", f->segment);
    if (renameat(d->dir_fd, name, d->dir_fd, tmp) && errno != ENOENT) /* ENOENT: a try before this one did it */
        return -errno;
    if (ftruncate(f->fd, 0))
        return -errno;
    rc = FP_FAULT_POINT("bnf.cut");
    if (rc)
        return rc;
    return unlinkat(d->dir_fd, tmp, 0) && errno != ENOENT ? -errno : 0;
}

static int dir_sync(struct bnf_backend *b, struct bnf_file *f)
{
    (void)b;
    return !FP_BUG("bnf-no-fdatasync") && fdatasync(f->fd) ? -errno : 0;
}

static int dir_device_free(struct bnf_backend *b, uint64_t *bytes)
{
    struct statvfs st;

    if (fstatvfs(dir_of(b)->dir_fd, &st))
        return -errno;
    *bytes = (uint64_t)st.f_bavail * st.f_frsize;
    return 0;
}

static int dir_probe(struct bnf_backend *b)
{
    struct dir_backend *d = dir_of(b);
    struct fp_segment_header h = {.limit_bytes = FP_SEGMENT_HEADER_BYTES};
    struct bnf_file *f;
    bool o_direct;
    int rc, fd = open_direct(d->dir_fd, "probe.new", O_RDWR | O_CREAT, &o_direct);

    if (fd < 0)
        return fd;
    f = bnf_file_new(fd, o_direct, 0, 0, 0);
    if (!f)
        return -ENOMEM;
    rc = bnf_file_write_header(f, &h);
    if (rc == 0)
        rc = bnf_backend_sync(b, f);
    unlinkat(d->dir_fd, "probe.new", 0);
    bnf_file_put(f);
    return rc;
}

/* A small file that is not synced: the page cache keeps it as long as the kernel runs. */
static int dir_keep(struct bnf_backend *b, const uint64_t mark[2])
{
    uint64_t raw[3] = {htole64(mark[0]), htole64(mark[1]), htole64(mark[0] ^ ~mark[1])};
    int rc = 0, fd = openat(dir_of(b)->dir_fd, MARK_NAME, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return -errno;
    if (pwrite(fd, raw, sizeof(raw), 0) != (ssize_t)sizeof(raw))
        rc = -EIO;
    close(fd);
    return rc;
}

static int dir_kept(struct bnf_backend *b, uint64_t mark[2])
{
    uint64_t raw[3];
    int fd = openat(dir_of(b)->dir_fd, MARK_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ssize_t n = fd >= 0 ? pread(fd, raw, sizeof(raw), 0) : -1;

    if (fd >= 0)
        close(fd);
    if (n != (ssize_t)sizeof(raw) || (raw[0] ^ ~raw[1]) != raw[2])
        return -ENOENT;
    mark[0] = le64toh(raw[0]);
    mark[1] = le64toh(raw[1]);
    return 0;
}

static void dir_free(struct bnf_backend *b)
{
    free(dir_of(b));
}

static const struct bnf_backend_ops dir_ops = {
    .name = "dir",
    .create = dir_create,
    .alloc = dir_alloc,
    .punch = dir_punch,
    .unlink = dir_unlink,
    .sync = dir_sync,
    .device_free = dir_device_free,
    .probe = dir_probe,
    .keep = dir_keep,
    .kept = dir_kept,
    .free = dir_free,
};

int bnf_backend_dir_new(int dir_fd, struct bnf_backend **out)
{
    struct dir_backend *d = calloc(1, sizeof(*d));

    if (!d)
        return -ENOMEM;
    d->base.ops = &dir_ops;
    d->dir_fd = dir_fd;
    *out = &d->base;
    return 0;
}

int bnf_backend_dir_open(struct bnf_backend *b, const char *name, bool *read_only, struct bnf_file **out)
{
    struct dir_backend *d = dir_of(b);
    bool o_direct;
    int fd = open_direct(d->dir_fd, name, O_RDWR, &o_direct);

    *read_only = false;
    if (fd == -EROFS || fd == -EACCES) {
        *read_only = true;
        fd = open_direct(d->dir_fd, name, O_RDONLY, &o_direct);
    }
    if (fd < 0)
        return fd;
    *out = bnf_file_new(fd, o_direct, 0, 0, 0);
    if (*out)
        (*out)->limiter = b->limiter;
    return *out ? 0 : -ENOMEM;
}
