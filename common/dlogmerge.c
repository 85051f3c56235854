/*
 * A log of a drained file becomes a file again where fpctl merge was called (fp/dlog.h). In a store the benefactors do it (drain/merge.c).
 *
 * Called by fpctl, blocks. Threads take one record after the other, in the order of the index, which is that of the streams: they are read from front to
 * end. The header is compared with the index, the data with the sums of its extents, before a byte of it is written. When all are written it is looked
 * whether extents overlap, which would mean that it is not known what the bytes are; so a file gets its name only if each of its bytes has one source.
 *
 * The temporary file has one name for each file that is made, and a lock: a merge that was killed leaves it, the next one takes it over, two at once are
 * told apart. Rejected: O_TMPFILE, which parallel file systems do not have; and to write in the order of the file, which reads streams back and forth.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fp/dlog.h"
#include "fp/err.h"
#include "fp/needed.h"

#define TEMP_SUFFIX     ".fpmerge"
#define KEPT_SUFFIX     ".fpkept" /* no longer than that */
#define RENAME_NOREPLACE_FLAG 1u
#define NAME_LEN_MAX    255u

struct run {
    struct fp_dlog_merge *m;
    struct fp_dlog_index x;
    int log_fd, index_fd, dir_fd, fd;
    char name[NAME_LEN_MAX + 1], temp[NAME_LEN_MAX + 1], kept[NAME_LEN_MAX + 1];
    _Atomic uint64_t next; /* record, or extent */
    pthread_mutex_t lock;  /* all below */
    struct fp_dlog_extent *extents;
    size_t nextents, cap;
    uint64_t done; /* bytes */
    int rc;
};

struct thread {
    struct run *r;
    pthread_t id;
    uint8_t *buf; /* header and data */
    struct fp_dlog_extent *e;
    uint32_t stream;
    int fd; /* of stream; -1: none */
};

#define BUF_BYTES ((size_t)FP_DLOG_DATA_MAX_BYTES + FP_DLOG_HEAD_BYTES + 24u * FP_DLOG_EXTENTS_MAX + FP_DLOG_ALIGN)

/* The first failure is the one that is told. */
static int fail(struct run *r, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int fail(struct run *r, int rc, const char *fmt, ...)
{
    va_list ap;

    pthread_mutex_lock(&r->lock);
    if (r->rc == 0) {
        r->rc = rc;
        va_start(ap, fmt);
        vsnprintf(r->m->why, sizeof r->m->why, fmt, ap);
        va_end(ap);
    }
    pthread_mutex_unlock(&r->lock);
    return rc;
}

static bool has_failed(struct run *r)
{
    bool failed;

    pthread_mutex_lock(&r->lock);
    failed = r->rc != 0;
    pthread_mutex_unlock(&r->lock);
    return failed;
}

/* 0; -ENODATA: the file ends before. */
static int read_all(int fd, void *buf, uint64_t len, uint64_t off)
{
    for (uint64_t done = 0; done < len;) {
        ssize_t n = pread(fd, (uint8_t *)buf + done, len - done, (off_t)(off + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ENODATA;
        done += (uint64_t)n;
    }
    return 0;
}

static int write_all(int fd, const uint8_t *data, uint64_t len, uint64_t off)
{
    for (uint64_t done = 0; done < len;) {
        ssize_t n = pwrite(fd, data + done, len - done, (off_t)(off + done));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        done += (uint64_t)n;
    }
    (void)sync_file_range(fd, (off_t)off, (off_t)len, SYNC_FILE_RANGE_WRITE); /* fsync has less to do then */
    return 0;
}

/* ---------------------------------------------------------------- records */

static int use_stream(struct thread *t, uint32_t stream)
{
    struct run *r = t->r;

    if (t->fd >= 0 && t->stream == stream)
        return 0;
    if (t->fd >= 0)
        close(t->fd);
    t->stream = stream;
    t->fd = openat(r->log_fd, r->x.stream[stream], O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    return t->fd < 0 ? fail(r, -errno, "%s/%s: %s", r->m->log, r->x.stream[stream], strerror(errno)) : 0;
}

static int keep_extents(struct run *r, const struct fp_dlog_extent *e, uint32_t n)
{
    int rc = 0;

    pthread_mutex_lock(&r->lock);
    if (r->nextents + n > r->cap) {
        size_t cap = (r->nextents + n) * 2;
        struct fp_dlog_extent *more = realloc(r->extents, cap * sizeof *more);

        rc = more ? 0 : -ENOMEM;
        r->extents = more ? more : r->extents;
        r->cap = more ? cap : r->cap;
    }
    if (rc == 0) {
        memcpy(r->extents + r->nextents, e, n * sizeof *e);
        r->nextents += n;
    }
    pthread_mutex_unlock(&r->lock);
    return rc ? fail(r, rc, "out of memory") : 0;
}

static void went(struct run *r, uint64_t bytes)
{
    pthread_mutex_lock(&r->lock);
    r->done += bytes;
    if (r->m->progress)
        r->m->progress(r->m->arg, r->done, r->x.data_bytes * (r->m->verify ? 2 : 1));
    pthread_mutex_unlock(&r->lock);
}

static int take_record(struct thread *t, const struct fp_dlog_place *p)
{
    struct run *r = t->r;
    const char *name = r->x.stream[p->stream];
    uint32_t n = 0, bad, at = p->header_bytes;
    int rc = use_stream(t, p->stream);

    if (rc)
        return rc;
    rc = read_all(t->fd, t->buf, p->header_bytes + p->data_bytes, p->at);
    if (rc == -ENODATA)
        return fail(r, FP_ECORRUPT, "%s/%s ends before byte %llu: a part of it is missing", r->m->log, name,
                    (unsigned long long)(p->at + p->header_bytes + p->data_bytes));
    if (rc)
        return fail(r, rc, "%s/%s: %s", r->m->log, name, fp_strerror(rc));
    if (fp_dlog_record_is(t->buf, &r->x, p, t->e, &n))
        return fail(r, FP_ECORRUPT, "%s/%s: the record at byte %llu is damaged", r->m->log, name, (unsigned long long)p->at);
    bad = fp_dlog_data_differs(t->buf + at, t->e, n);
    if (bad < n) {
        for (uint32_t i = 0; i < bad; i++)
            at += t->e[i].len;
        return fail(r, FP_ECHECKSUM, "%s/%s: data at byte %llu, of bytes %llu to %llu of the file, is damaged", r->m->log, name,
                    (unsigned long long)(p->at + at), (unsigned long long)t->e[bad].off, (unsigned long long)(t->e[bad].off + t->e[bad].len));
    }
    for (uint32_t i = 0; i < n && rc == 0; at += t->e[i++].len)
        rc = write_all(r->fd, t->buf + at, t->e[i].len, t->e[i].off);
    if (rc)
        return fail(r, rc, "writing %s: %s", r->m->to, fp_strerror(rc));
    (void)posix_fadvise(t->fd, (off_t)p->at, (off_t)(p->header_bytes + p->data_bytes), POSIX_FADV_DONTNEED);
    went(r, p->data_bytes);
    return keep_extents(r, t->e, n);
}

static void *write_thread(void *arg)
{
    struct thread *t = arg;
    uint64_t i;

    while ((i = atomic_fetch_add(&t->r->next, 1)) < t->r->x.nrecords && !has_failed(t->r))
        if (take_record(t, &t->r->x.record[i]))
            break;
    return NULL;
}

/* By another descriptor, so that no error of the one that wrote hides; extents do not change any more. */
static void *verify_thread(void *arg)
{
    struct thread *t = arg;
    struct run *r = t->r;
    uint64_t i;

    t->fd = openat(r->dir_fd, r->temp, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (t->fd < 0)
        fail(r, -errno, "reading back: %s", strerror(errno));
    while (t->fd >= 0 && (i = atomic_fetch_add(&r->next, 1)) < r->nextents && !has_failed(r)) {
        const struct fp_dlog_extent *e = &r->extents[i];
        int rc = read_all(t->fd, t->buf, e->len, e->off);

        if (rc == 0 && fp_dlog_sum(t->buf, e->len) != e->sum)
            rc = FP_ECHECKSUM;
        if (rc)
            fail(r, rc, "reading bytes %llu to %llu back: %s", (unsigned long long)e->off, (unsigned long long)(e->off + e->len), fp_strerror(rc));
        went(r, e->len);
    }
    return NULL;
}

static int run_threads(struct run *r, void *(*fn)(void *))
{
    struct thread all[FP_DLOG_THREADS_MAX];
    unsigned n = r->m->threads, started = 0;
    bool enough = true;

    n = n < 1 ? 1 : n > FP_DLOG_THREADS_MAX ? FP_DLOG_THREADS_MAX : n;
    atomic_store(&r->next, 0);
    for (; started < n && enough; started += enough) {
        struct thread *t = &all[started];

        *t = (struct thread){ .r = r, .fd = -1, .buf = malloc(BUF_BYTES), .e = calloc(FP_DLOG_EXTENTS_MAX, sizeof *t->e) };
        enough = t->buf && t->e && pthread_create(&t->id, NULL, fn, t) == 0;
        if (!enough) {
            free(t->buf);
            free(t->e);
        }
    }
    for (unsigned i = 0; i < started; i++) {
        pthread_join(all[i].id, NULL);
        if (all[i].fd >= 0)
            close(all[i].fd);
        free(all[i].buf);
        free(all[i].e);
    }
    if (!started)
        return fail(r, -ENOMEM, "out of memory"); /* with fewer than it may have it goes on */
    return r->rc;
}

static int check_extents(struct run *r)
{
    uint64_t at;

    if (!fp_dlog_extents_apart(r->extents, r->nextents, &at))
        return fail(r, FP_ECORRUPT, "%s: byte %llu of the file is in two records", r->m->log, (unsigned long long)at);
    return 0;
}

/* ---------------------------------------------------------------- the index, and where it goes */

static int read_index(struct run *r)
{
    struct stat st;
    uint8_t *bytes;
    int rc;

    r->log_fd = open(r->m->log, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r->log_fd < 0)
        return fail(r, -errno, "%s: %s", r->m->log, strerror(errno));
    r->index_fd = openat(r->log_fd, FP_DLOG_INDEX, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (r->index_fd < 0 && errno == ENOENT)
        return fail(r, -ENOENT, "%s has no index: it is not a log of a drained file", r->m->log);
    if (r->index_fd < 0 || fstat(r->index_fd, &st))
        return fail(r, -errno, "%s/%s: %s", r->m->log, FP_DLOG_INDEX, strerror(errno));
    if (!S_ISREG(st.st_mode) || st.st_size < FP_DLOG_HEAD_BYTES || (uint64_t)st.st_size > FP_DLOG_INDEX_MAX)
        return fail(r, FP_ECORRUPT, "%s/%s is no index, or is cut", r->m->log, FP_DLOG_INDEX);
    bytes = malloc((size_t)st.st_size);
    rc = bytes ? read_all(r->index_fd, bytes, (uint64_t)st.st_size, 0) : -ENOMEM;
    rc = rc ? rc : fp_dlog_index_decode(bytes, (size_t)st.st_size, &r->x);
    free(bytes);
    r->m->size = rc ? 0 : r->x.size;
    if (rc == -ENODATA || rc == FP_ECORRUPT)
        return fail(r, FP_ECORRUPT, "%s/%s is damaged", r->m->log, FP_DLOG_INDEX);
    return rc ? fail(r, rc, "%s/%s: %s", r->m->log, FP_DLOG_INDEX, fp_strerror(rc)) : 0;
}

static int open_dir(struct run *r)
{
    const char *slash = strrchr(r->m->to, '/'), *name = slash ? slash + 1 : r->m->to;
    char *dir = slash ? strndup(r->m->to, slash == r->m->to ? 1 : (size_t)(slash - r->m->to)) : strdup(".");

    if (!dir)
        return fail(r, -ENOMEM, "out of memory");
    if (!*name || strlen(name) + sizeof TEMP_SUFFIX > NAME_LEN_MAX) {
        free(dir);
        return fail(r, -ENAMETOOLONG, "%s: not a name that a file can be made under", r->m->to);
    }
    snprintf(r->name, sizeof r->name, "%s", name);
    snprintf(r->temp, sizeof r->temp, ".%s" TEMP_SUFFIX, name);
    snprintf(r->kept, sizeof r->kept, ".%s" KEPT_SUFFIX, name);
    r->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (r->dir_fd < 0)
        fail(r, -errno, "%s: %s", dir, strerror(errno));
    free(dir);
    if (r->dir_fd < 0)
        return r->rc;
    return 0;
}

/* -------------------------------------------------------------- what has the name */

static int refuse(struct run *r)
{
    return fail(r, -EPERM, "%s: a store has evicted data that is only in the file of that name: make another one with --to, or, if that store needs it no more, with --overwrite", r->m->to);
}

/* A link to what was replaced: is it needed (by now), it gets its name back. Of a merge that was killed, too. */
static int settle(struct run *r)
{
    int needed = r->m->replace_needed ? 0 : fp_needed_by_any(r->dir_fd, r->kept), rc = 0;

    if (needed > 0)
        rc = renameat(r->dir_fd, r->kept, r->dir_fd, r->name) || fsync(r->dir_fd) ? -errno : 0;
    else if (needed == 0 && unlinkat(r->dir_fd, r->kept, 0) && errno != ENOENT)
        rc = -errno;
    rc = needed < 0 ? needed : rc;
    if (rc)
        return fail(r, rc, "%s, which had the name of %s: %s", r->kept, r->m->to, fp_strerror(rc));
    return needed > 0 ? refuse(r) : 0;
}

/* The temporary file is ours: nobody else makes the file now. */
static int may_make(struct run *r)
{
    struct stat st;
    int rc = settle(r);

    if (rc == 0 && fstatat(r->dir_fd, r->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && (S_ISDIR(st.st_mode) || !r->m->replace))
        return fail(r, -EEXIST, "%s is there already", r->m->to);
    if (rc || !r->m->replace || r->m->replace_needed)
        return rc;
    rc = fp_needed_by_any(r->dir_fd, r->name);
    return rc < 0 ? fail(r, rc, "whether a store needs %s: %s", r->m->to, fp_strerror(rc)) : rc ? refuse(r) : 0;
}

/* As fp-drain does it (drain/needed.c): who begins to need it in between is seen, where there are hard links. */
static int replace(struct run *r)
{
    int rc = may_make(r);
    bool kept = rc == 0 && !r->m->replace_needed && linkat(r->dir_fd, r->name, r->dir_fd, r->kept, 0) == 0;

    if (rc)
        return rc;
    if (renameat(r->dir_fd, r->temp, r->dir_fd, r->name)) {
        rc = fail(r, -errno, "%s: %s", r->m->to, strerror(errno));
        (void)unlinkat(r->dir_fd, r->kept, 0);
        return rc;
    }
    return kept ? settle(r) : 0;
}

/* The name may be that of another file by the time that the lock is had: whoever had it has renamed it. */
static int open_temp(struct run *r)
{
    struct stat mine, there;

    for (int i = 0; i < 100; i++) {
        r->fd = openat(r->dir_fd, r->temp, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (r->fd < 0)
            return fail(r, -errno, "making a file beside %s: %s", r->m->to, strerror(errno));
        if (flock(r->fd, LOCK_EX | LOCK_NB) && (errno == EWOULDBLOCK || errno == EINTR)) {
            close(r->fd);
            r->fd = -1;
            return fail(r, -EBUSY, "another merge is making %s", r->m->to);
        }
        if (fstat(r->fd, &mine) == 0 && fstatat(r->dir_fd, r->temp, &there, AT_SYMLINK_NOFOLLOW) == 0 && mine.st_ino == there.st_ino &&
            mine.st_dev == there.st_dev && S_ISREG(mine.st_mode) && mine.st_nlink == 1) {
            if (ftruncate(r->fd, 0) || ftruncate(r->fd, (off_t)r->x.size))
                return fail(r, -errno, "making a file beside %s: %s", r->m->to, strerror(errno));
            return 0;
        }
        close(r->fd);
        r->fd = -1;
    }
    return fail(r, -EBUSY, "somebody else makes and removes files named %s", r->temp);
}

/* ---------------------------------------------------------------- the end */

static void copy_xattrs(struct run *r)
{
    char names[65536], value[65536];
    ssize_t n = flistxattr(r->index_fd, names, sizeof names);

    for (ssize_t i = 0; i < n; i += (ssize_t)strlen(names + i) + 1) {
        ssize_t len = strncmp(names + i, "user.", 5) == 0 ? fgetxattr(r->index_fd, names + i, value, sizeof value) : -1;

        if (len >= 0 && fsetxattr(r->fd, names + i, value, (size_t)len, 0))
            snprintf(r->m->why, sizeof r->m->why, "attribute %.200s was not kept: %s", names + i, strerror(errno));
    }
}

/* What a file system, or who may not, does not do is no reason to have no file. */
static int attributes(struct run *r)
{
    struct stat st;
    struct timespec times[2];
    unsigned mode;

    if (fstat(r->index_fd, &st))
        return fail(r, -errno, "%s/%s: %s", r->m->log, FP_DLOG_INDEX, strerror(errno));
    mode = st.st_mode & 07777;
    if (fchown(r->fd, st.st_uid, st.st_gid)) {
        snprintf(r->m->why, sizeof r->m->why, "the owner was not kept: %s", strerror(errno));
        mode &= 01777;
    }
    if (fchmod(r->fd, mode))
        snprintf(r->m->why, sizeof r->m->why, "the mode was not kept: %s", strerror(errno));
    copy_xattrs(r);
    times[0] = st.st_atim;
    times[1] = st.st_mtim;
    if (futimens(r->fd, times))
        snprintf(r->m->why, sizeof r->m->why, "the times were not kept: %s", strerror(errno));
    return 0;
}

static int give_name(struct run *r)
{
    struct stat st;
    int rc;

    if (fsync(r->fd))
        return fail(r, -errno, "fsync of %s: %s", r->m->to, strerror(errno));
    if (r->m->replace && (rc = replace(r)) != 0)
        return rc;
    rc = r->m->replace ? 0 : (int)syscall(SYS_renameat2, r->dir_fd, r->temp, r->dir_fd, r->name, RENAME_NOREPLACE_FLAG) ? -errno : 0;
    if ((rc == -EINVAL || rc == -ENOSYS) && !r->m->replace) /* the file system does not know the flag */
        rc = fstatat(r->dir_fd, r->name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? -EEXIST : renameat(r->dir_fd, r->temp, r->dir_fd, r->name) ? -errno : 0;
    if (rc == 0 && fsync(r->dir_fd))
        return fail(r, -errno, "%s has its name, but its directory was not synced: %s", r->m->to, strerror(errno));
    return rc ? fail(r, rc, "%s: %s", r->m->to, fp_strerror(rc)) : 0;
}

static int verify(struct run *r)
{
    int rc;

    if (fsync(r->fd))
        return fail(r, -errno, "fsync of %s: %s", r->m->to, strerror(errno));
    (void)posix_fadvise(r->fd, 0, 0, POSIX_FADV_DONTNEED);
    rc = run_threads(r, verify_thread);
    r->m->verified = rc ? 0 : r->x.data_bytes;
    return rc;
}

int fp_dlog_merge(struct fp_dlog_merge *m)
{
    struct run r = { .m = m, .log_fd = -1, .index_fd = -1, .dir_fd = -1, .fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER };
    bool made = false;
    int rc;

    m->why[0] = '\0';
    m->size = m->written = m->verified = 0;
    rc = read_index(&r);
    rc = rc ? rc : open_dir(&r);
    rc = rc ? rc : open_temp(&r);
    made = r.fd >= 0;
    rc = rc ? rc : may_make(&r);
    rc = rc ? rc : run_threads(&r, write_thread);
    rc = rc ? rc : check_extents(&r);
    m->written = rc ? 0 : r.x.data_bytes;
    if (rc == 0 && m->verify)
        rc = verify(&r);
    rc = rc ? rc : attributes(&r);
    rc = rc ? rc : give_name(&r);
    if (rc && made)
        (void)unlinkat(r.dir_fd, r.temp, 0);
    for (int *fd = (int[]){ r.log_fd, r.index_fd, r.dir_fd, r.fd, -2 }; *fd != -2; fd++)
        if (*fd >= 0)
            close(*fd);
    fp_dlog_index_fini(&r.x);
    free(r.extents);
    pthread_mutex_destroy(&r.lock);
    return rc;
}
