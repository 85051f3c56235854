/*
 * The index of a log, made by who gives it its name: FINISH of a file that becomes streams of records (layout in fp/dlog.h).
 *
 * On a thread. The streams say what is in them: their headers are read, the data between is passed over. What was half written ends in no header, or in one without
 * its data; what was written twice is there twice. So of two records that have the same bytes of the file, the one is taken of which the data has its sums; of others
 * the data was synced before WRITE was answered. That nothing is missing is seen by the number of bytes, which the manager knows from the parts.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drain/drain.h"
#include "fp/dlog.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "fp/grown.h"

#define SCAN_TRIES    3
#define SCAN_PAUSE_US 1000000 /* what other nodes have made may not be seen at once (NFS) */
#define STREAM_PREFIX "stream-"
#define GAP_BYTES     (1u << 20) /* read at once where no record is */

struct found {
    struct fp_dlog_place place;
    uint64_t first; /* byte of the file with which it begins */
    uint32_t len;   /* of that extent */
};

struct scan {
    struct dr_thread *th;
    int dir;
    uint64_t log, size;
    struct fp_dlog_index x;
    struct found *found;
    size_t nfound, cap;
    uint8_t *header; /* the longest that there may be */
    uint8_t *gap;    /* GAP_BYTES; NULL until there was one */
    struct fp_dlog_extent *e;
};

static int no_memory(struct dr_thread *th)
{
    return dr_fail(th, FP_DW_SCOPE_TARGET, -ENOMEM, "out of memory on this node");
}

/* ---------------------------------------------------------------- one stream */

static int add(struct scan *s, uint32_t stream, uint64_t at, uint32_t header, uint64_t data, uint64_t sum)
{
    struct found *more = fp_grown(s->found, s->nfound, &s->cap, sizeof(*more));

    if (!more)
        return no_memory(s->th);
    s->found = more;
    s->found[s->nfound++] = (struct found){ .place = { .stream = stream, .header_bytes = header, .at = at, .data_bytes = data, .sum = sum },
                                            .first = s->e[0].off, .len = s->e[0].len };
    return 0;
}

/* What was not written to its end, or not at all: *at becomes the next page behind it that looks like the beginning of a record, or the end. */
static int skip_gap(struct scan *s, int fd, uint64_t end, uint64_t *at)
{
    uint32_t header;
    uint64_t data;

    if (!s->gap && !(s->gap = malloc(GAP_BYTES)))
        return no_memory(s->th);
    for (*at += FP_DLOG_ALIGN; *at + FP_DLOG_ALIGN <= end;) {
        uint64_t len = end - *at < GAP_BYTES ? end - *at : GAP_BYTES;
        int rc = dr_read_all(s->th, fd, s->gap, len / FP_DLOG_ALIGN * FP_DLOG_ALIGN, *at);

        if (rc)
            return rc == -ENODATA ? 0 : dr_failed_call(s->th, rc, "read", "a stream of the log");
        for (uint64_t i = 0; i + FP_DLOG_ALIGN <= len; i += FP_DLOG_ALIGN, *at += FP_DLOG_ALIGN)
            if (fp_dlog_record_head(s->gap + i, s->log, &header, &data) != -ENODATA)
                return 0;
    }
    return 0;
}

/* A record at *at, or none: *at becomes where to look next. */
static int scan_at(struct scan *s, uint32_t stream, int fd, uint64_t end, uint64_t *at)
{
    uint32_t header = 0, n;
    uint64_t data, sum;
    int rc = dr_read_all(s->th, fd, s->header, FP_DLOG_ALIGN, *at);

    if (rc == 0)
        rc = fp_dlog_record_head(s->header, s->log, &header, &data);
    if (rc == 0 && header > FP_DLOG_ALIGN)
        rc = dr_read_all(s->th, fd, s->header + FP_DLOG_ALIGN, header - FP_DLOG_ALIGN, *at + FP_DLOG_ALIGN);
    if (rc == 0)
        rc = fp_dlog_record_decode(s->header, header, s->log, s->e, &n, &sum);
    if (rc == 0 && (*at + header + fp_dlog_pages(data) > end || s->e[n - 1].off + s->e[n - 1].len > s->size))
        rc = -ENODATA;
    if (rc == -ENODATA || rc == FP_ECORRUPT)
        return skip_gap(s, fd, end, at);
    if (rc)
        return dr_failed_call(s->th, rc, "read", "a stream of the log");
    rc = add(s, stream, *at, header, data, sum);
    *at += header + fp_dlog_pages(data);
    return rc;
}

static int open_stream(struct scan *s, const char *name, int *fd, uint64_t *end)
{
    struct stat st;
    int rc = dr_open(s->th, s->dir, name, (uint32_t)strlen(name), O_RDONLY, 0, fd);

    if (rc == 0) {
        dr_enter(s->th);
        rc = fstat(*fd, &st) ? -errno : S_ISREG(st.st_mode) ? 0 : -EISDIR;
        if (rc)
            close(*fd);
        dr_leave(s->th, 0);
    }
    *end = rc ? 0 : (uint64_t)st.st_size;
    return rc ? dr_failed_call(s->th, rc, "open", "a stream of the log") : 0;
}

static int scan_stream(struct scan *s, const char *name)
{
    uint32_t stream = s->x.nstreams;
    void *more = realloc(s->x.stream, (stream + 1) * sizeof(*s->x.stream));
    uint64_t end, at = 0;
    int fd, rc;

    if (!more)
        return no_memory(s->th);
    s->x.stream = more;
    snprintf(s->x.stream[s->x.nstreams++], FP_DLOG_NAME_BUF, "%.*s", (int)FP_DLOG_NAME_BUF - 1, name);
    rc = open_stream(s, name, &fd, &end);
    if (rc)
        return rc;
    while (rc == 0 && at + FP_DLOG_ALIGN <= end)
        rc = s->th->task->cancelled ? dr_fail(s->th, FP_DW_SCOPE_FILE, -ECANCELED, "cancelled") : scan_at(s, stream, fd, end, &at);
    dr_enter(s->th);
    close(fd);
    dr_leave(s->th, 0);
    return rc;
}

static bool is_stream(const char *name)
{
    return strncmp(name, STREAM_PREFIX, sizeof(STREAM_PREFIX) - 1) == 0 && strlen(name) < FP_DLOG_NAME_BUF;
}

static int scan_all(struct scan *s)
{
    struct dr_thread *th = s->th;
    struct dirent *e;
    DIR *dir;
    int fd, rc = 0;

    s->nfound = s->x.nstreams = 0;
    dr_enter(th);
    fd = openat(s->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dir = fd < 0 ? NULL : fdopendir(fd);
    rc = dir ? 0 : -errno;
    dr_leave(th, 0);
    if (!dir && fd >= 0)
        close(fd);
    if (rc)
        return dr_failed_call(th, rc, "read", "the temporary directory");
    while (rc == 0) {
        dr_enter(th);
        errno = 0;
        e = readdir(dir);
        rc = e ? 0 : errno ? -errno : 1;
        dr_leave(th, 0);
        if (rc < 0)
            rc = dr_failed_call(th, rc, "read", "the temporary directory");
        else if (rc == 0 && is_stream(e->d_name))
            rc = scan_stream(s, e->d_name);
    }
    closedir(dir);
    return rc == 1 ? 0 : rc;
}

/* ---------------------------------------------------------------- which of them */

/* Has its data the sums that its header says? 1 or 0, or a failure. */
static int is_whole(struct scan *s, const struct fp_dlog_place *p)
{
    struct dr_thread *th = s->th;
    uint64_t end, sum, at = 0;
    uint32_t n;
    int fd, rc = open_stream(s, s->x.stream[p->stream], &fd, &end);

    if (rc)
        return rc;
    rc = dr_memory(&th->run, &th->run_bytes, p->data_bytes + FP_DLOG_ALIGN) ? no_memory(th) : 0;
    if (rc == 0) {
        rc = dr_read_all(th, fd, s->header, p->header_bytes, p->at);
        rc = rc ? rc : dr_read_all(th, fd, th->run, p->data_bytes, p->at + p->header_bytes);
        if (rc && rc != -ENODATA)
            rc = dr_failed_call(th, rc, "read", "a stream of the log");
    }
    dr_enter(th);
    close(fd);
    dr_leave(th, 0);
    if (rc == 0 && fp_dlog_record_decode(s->header, p->header_bytes, s->log, s->e, &n, &sum) == 0) {
        for (uint32_t i = 0; i < n; at += s->e[i++].len)
            if (fp_dlog_sum(th->run + at, s->e[i].len) != s->e[i].sum)
                return 0;
        return 1;
    }
    return rc == -ENODATA ? 0 : rc;
}

static int by_first(const void *a, const void *b)
{
    const struct found *x = a, *y = b;

    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    if (x->place.stream != y->place.stream)
        return x->place.stream < y->place.stream ? -1 : 1;
    return x->place.at < y->place.at ? -1 : x->place.at > y->place.at;
}

static int by_place(const void *a, const void *b)
{
    const struct fp_dlog_place *x = a, *y = b;

    if (x->stream != y->stream)
        return x->stream < y->stream ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

/* Of those that begin with the same byte, the first that is whole. What was told twice has the same pieces; if it has not, the bytes do not add up. */
static int choose(struct scan *s)
{
    size_t n = 0, end;

    if (s->nfound)
        qsort(s->found, s->nfound, sizeof(*s->found), by_first);
    for (size_t i = 0; i < s->nfound; i = end) {
        int whole = 0;

        for (end = i + 1; end < s->nfound && s->found[end].first == s->found[i].first;)
            end++;
        if (end == i + 1) {
            s->found[n++] = s->found[i];
            continue;
        }
        for (size_t k = i; k < end && whole == 0; k++) {
            struct found one = s->found[k];

            whole = is_whole(s, &one.place);
            if (whole > 0)
                s->found[n++] = one;
        }
        if (whole < 0)
            return whole;
    }
    s->nfound = n;
    return 0;
}

/* ---------------------------------------------------------------- the index */

static int write_index(struct scan *s, int *fd)
{
    struct dr_thread *th = s->th;
    uint8_t *bytes = NULL;
    size_t len = 0, done = 0;
    int rc;

    s->x.record = calloc(s->nfound + 1, sizeof(*s->x.record));
    if (!s->x.record)
        return no_memory(th);
    for (size_t i = 0; i < s->nfound; i++)
        s->x.record[i] = s->found[i].place;
    s->x.nrecords = (uint32_t)s->nfound;
    s->x.log = s->log;
    s->x.size = s->size;
    if (s->nfound)
        qsort(s->x.record, s->nfound, sizeof(*s->x.record), by_place);
    if (fp_dlog_index_encode(&s->x, &bytes, &len))
        return no_memory(th);
    rc = dr_open(th, s->dir, FP_DLOG_INDEX, sizeof(FP_DLOG_INDEX) - 1, O_RDWR | O_CREAT | O_TRUNC, 0600, fd);
    while (rc == 0 && done < len) {
        ssize_t n;

        dr_enter(th);
        rc = FP_FAULT_POINT("drain.pwrite");
        n = rc ? 0 : pwrite(*fd, bytes + done, len - done, (off_t)done);
        if (rc == 0 && n <= 0 && !(n < 0 && errno == EINTR))
            rc = n < 0 ? -errno : -EIO;
        dr_leave(th, 0);
        done += n > 0 ? (size_t)n : 0;
    }
    free(bytes);
    return rc ? dr_failed_call(th, rc, "write", "the index") : 0;
}

int dr_dlog_index(struct dr_thread *th, int dir, uint64_t size, uint64_t want_bytes, int *fd)
{
    struct scan s = { .th = th, .dir = dir, .log = dr_dlog_id(th), .size = size };
    int rc = 0;

    s.header = malloc(fp_dlog_header_bytes(FP_DLOG_EXTENTS_MAX));
    s.e = calloc(FP_DLOG_EXTENTS_MAX, sizeof(*s.e));
    if (!s.header || !s.e)
        rc = no_memory(th);
    for (int i = 0; rc == 0; i++) {
        rc = scan_all(&s);
        rc = rc ? rc : choose(&s);
        s.x.data_bytes = 0;
        for (size_t k = 0; rc == 0 && k < s.nfound; k++)
            s.x.data_bytes += s.found[k].place.data_bytes;
        if (rc || s.x.data_bytes == want_bytes)
            break;
        if (i == SCAN_TRIES)
            rc = dr_fail(th, FP_DW_SCOPE_FILE, -ENOENT, "its streams have %llu bytes and not %llu: somebody else has changed them",
                         (unsigned long long)s.x.data_bytes, (unsigned long long)want_bytes);
        else
            usleep(SCAN_PAUSE_US);
    }
    if (rc == 0 && (s.nfound > FP_DLOG_RECORDS_MAX || s.x.nstreams > FP_DLOG_STREAMS_MAX))
        rc = dr_fail(th, FP_DW_SCOPE_FILE, -EFBIG, "it has more pieces than a log can have");
    rc = rc ? rc : write_index(&s, fd);
    fp_dlog_index_fini(&s.x);
    free(s.found);
    free(s.header);
    free(s.gap);
    free(s.e);
    return rc;
}

/* ---------------------------------------------------------------- as a directory */

int dr_dlog_attributes(struct dr_thread *th, int dir, const struct fp_dw_file *m)
{
    unsigned mode = m->mode & 0666, fd_dir = 0700 | (m->mode & 0444) | (m->mode & 0444) >> 2;
    struct dirent *e;
    int fd = -1, rc = 0;
    DIR *d;

    dr_enter(th);
    fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    d = fd < 0 ? NULL : fdopendir(fd);
    rc = d ? 0 : -errno;
    while (d && (e = readdir(d))) {
        int at = is_stream(e->d_name) ? openat(dir, e->d_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;

        if (at < 0)
            continue;
        (void)!fchown(at, m->uid, m->gid); /* as of the index, which says it in the answer */
        (void)fchmod(at, mode | 0400);
        if (fsync(at) && rc == 0)
            rc = -errno;
        close(at);
    }
    if (d)
        closedir(d);
    else if (fd >= 0)
        close(fd);
    (void)!fchown(dir, m->uid, m->gid);
    (void)fchmod(dir, fd_dir);
    dr_leave(th, 0);
    rc = rc ? rc : dr_fsync(th, dir);
    return rc ? dr_failed_call(th, rc, "fsync", "the log") : 0;
}

/* Is this directory a log, and nothing else? 0; -ENOENT: it is not there; -EEXIST: it is something else. */
static int is_log(int at, const char *name)
{
    int rc = 0, fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool index = false;
    struct dirent *e;
    DIR *d;

    if (fd < 0)
        return errno == ENOTDIR || errno == ELOOP ? -EEXIST : -errno;
    d = fdopendir(fd);
    if (!d) {
        close(fd);
        return -ENOMEM;
    }
    while (rc == 0 && (e = readdir(d))) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        index |= strcmp(e->d_name, FP_DLOG_INDEX) == 0;
        if (strcmp(e->d_name, FP_DLOG_INDEX) != 0 && !is_stream(e->d_name))
            rc = -EEXIST;
    }
    closedir(d);
    return rc ? rc : index ? 0 : -EEXIST;
}

int dr_dlog_may_replace(struct dr_thread *th, int dir, const char *name)
{
    int rc;

    dr_enter(th);
    rc = is_log(dir, name);
    dr_leave(th, 0);
    if (rc == -ENOENT)
        return 0;
    if (rc == -EEXIST)
        return dr_fail(th, FP_DW_SCOPE_FILE, -EISDIR, "%s is there already, and is no log of a drained file", name);
    if (rc)
        return dr_failed_call(th, rc, "look at what has its name,", name);
    return 1; /* whosoever it is: no store evicts anything for a log */
}

/* ---------------------------------------------------------------- what it takes the place of, where names can't be exchanged */

static const char *beside(char out[FP_DW_TMP_MAX + 8], const char *tmp, uint32_t tmp_bytes, const char *suffix)
{
    snprintf(out, FP_DW_TMP_MAX + 8, "%.*s%s", (int)tmp_bytes, tmp, suffix);
    return out;
}

int dr_dlog_aside(struct dr_thread *th, int temps, int dir, const char *name)
{
    const struct fp_dw_file *m = (const struct fp_dw_file *)th->task->msg;
    const char *path = (const char *)(m + 1), *tmp = path + m->path_bytes;
    char old[FP_DW_TMP_MAX + 8], to[FP_DW_TMP_MAX + 8], text[PATH_MAX];
    int rc;

    snprintf(text, sizeof(text), "%.*s", (int)m->path_bytes, path);
    rc = symlinkat(text, temps, beside(to, tmp, m->tmp_bytes, "-to")) && errno != EEXIST ? -errno : 0;
    if (rc == 0 && fsync(temps) && errno != EINVAL)
        rc = -errno;
    if (rc == 0)
        rc = renameat(dir, name, temps, beside(old, tmp, m->tmp_bytes, "-old")) ? -errno : 0;
    return rc;
}

void dr_dlog_forget(struct dr_thread *th, int temps, const char *tmp, uint32_t tmp_bytes)
{
    char name[FP_DW_TMP_MAX + 8];

    if (dr_remove(th, temps, beside(name, tmp, tmp_bytes, "-old"), tmp_bytes + 4) == 0)
        (void)dr_remove(th, temps, beside(name, tmp, tmp_bytes, "-to"), tmp_bytes + 3);
}

static int put_back(struct dr_thread *th, int root, int temps, const char *old, const char *path)
{
    char *name = NULL;
    struct stat st;
    int dir, rc = dr_parent(th, root, path, (uint32_t)strlen(path), geteuid(), getegid(), &dir, &name);

    if (rc)
        return rc;
    dr_enter(th);
    rc = fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno != ENOENT ? -errno : renameat(temps, old, dir, name) ? -errno : 0;
    dr_leave(th, 0);
    rc = rc ? rc : dr_fsync(th, dir);
    close(dir);
    free(name);
    return rc;
}

int dr_dlog_put_back(struct dr_thread *th, int root, int temps, const char *tmp, uint32_t tmp_bytes)
{
    char old[FP_DW_TMP_MAX + 8], to[FP_DW_TMP_MAX + 8], path[PATH_MAX];
    struct stat st;
    ssize_t n;
    int rc;

    dr_enter(th);
    n = readlinkat(temps, beside(to, tmp, tmp_bytes, "-to"), path, sizeof(path) - 1);
    rc = n < 0 ? -errno : fstatat(temps, beside(old, tmp, tmp_bytes, "-old"), &st, AT_SYMLINK_NOFOLLOW) ? -errno : 0;
    dr_leave(th, 0);
    if (n >= 0)
        path[n] = '\0';
    if (rc == 0 && dr_path_is_good(path, (uint32_t)n))
        rc = put_back(th, root, temps, old, path);
    if (rc && rc != -ENOENT && rc != -EINVAL)
        return dr_failed_call(th, rc, "put back", "the log that was to be replaced");
    dr_dlog_forget(th, temps, tmp, tmp_bytes);
    return 0;
}
