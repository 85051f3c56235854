/*
 * MERGE: a file is made of its log (fp/dlog.h), by the workers of many nodes. fpctl merge does the same by itself where there is no store (common/dlogmerge.c).
 *
 * On a thread. PREPARE reads the index and the headers of all records: they must be those that the index names, and no byte of the file may be in two of them; then
 * it makes the temporary file. WRITE takes some records, compares their data with its sums and writes it at its places; COMPARE reads that back. FINISH gives the file
 * the attributes of the index, and its name. As for files that are drained, the answer to WRITE comes after fsync, and nothing is written but to the temporary file that
 * has the inode of PREPARE: so any of these can be done twice, or by somebody else.
 *
 * Each step says by the sum of its head which index is meant. An index never changes: a log that is drained again becomes another directory. Then the
 * attempt is over (-ESTALE), whatever else went wrong; but a FINISH that was done, of which the answer was lost, is done, also if the log is gone by now: the temporary
 * file is, and the name has its inode. The index that was read last is kept, since parts of one log come one after the other.
 *
 * Rejected: ranges of the merged file as parts. They would have records read by several, or by none whole, so that their sums say nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "drain/drain.h"
#include "fp/dlog.h"
#include "fp/err.h"

#define EXTENTS_MAX ((size_t)1 << 26)
#define XATTR_BYTES 65536u

struct dr_index {
    unsigned refs; /* the worker's lock */
    uint64_t sum;
    struct fp_dlog_index x;
};

struct log {
    struct dr_thread *th;
    const struct fp_dw_merge *m;
    const char *path, *tmp, *name; /* name: the log's path */
    int root, dir, fd;             /* fd: of a stream; -1: none */
    uint32_t stream;
    struct dr_index *k;
    struct fp_dlog_extent *e; /* of the record that was read last */
    uint32_t n;
};

static int no_memory(struct dr_thread *th)
{
    return dr_fail(th, FP_DW_SCOPE_FILE, -ENOMEM, "not enough memory on this node for its index: fpctl merge --offline elsewhere");
}

static int damaged(struct log *l, int status, const char *what, uint64_t at)
{
    return dr_fail(l->th, FP_DW_SCOPE_FILE, status, "%s/%s: %s the record at byte %llu is damaged", l->name, l->k->x.stream[l->stream], what, (unsigned long long)at);
}

/* A call that failed: what is not there, or is no log, is so for good. */
static int failed(struct log *l, int rc, const char *what)
{
    if (rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP || rc == -EISDIR)
        return dr_fail(l->th, FP_DW_SCOPE_FILE, rc, "%s of %s: %s: it is no log of a drained file, or not whole", what, l->name, fp_strerror(rc));
    return dr_failed_call(l->th, rc, "read", what);
}

static void close_in(struct log *l, int *fd)
{
    if (*fd < 0)
        return;
    dr_enter(l->th);
    close(*fd);
    dr_leave(l->th, 0);
    *fd = -1;
}

/* ---------------------------------------------------------------- the index */

void dr_index_put(struct dr_worker *w, struct dr_index *k)
{
    bool last;

    if (!k)
        return;
    pthread_mutex_lock(&w->lock);
    last = --k->refs == 0;
    pthread_mutex_unlock(&w->lock);
    if (!last)
        return;
    fp_dlog_index_fini(&k->x);
    free(k);
}

static struct dr_index *index_kept(struct dr_worker *w, uint64_t sum)
{
    struct dr_index *k;

    pthread_mutex_lock(&w->lock);
    k = w->index && w->index->sum == sum ? w->index : NULL;
    if (k)
        k->refs++;
    pthread_mutex_unlock(&w->lock);
    return k;
}

static void index_keep(struct dr_worker *w, struct dr_index *k)
{
    struct dr_index *old;

    pthread_mutex_lock(&w->lock);
    old = w->index;
    w->index = k;
    k->refs++;
    pthread_mutex_unlock(&w->lock);
    dr_index_put(w, old);
}

/* *st, and its descriptor. */
static int index_open(struct log *l, int *fd, struct stat *st)
{
    int rc = dr_open(l->th, l->dir, FP_DLOG_INDEX, sizeof(FP_DLOG_INDEX) - 1, O_RDONLY, 0, fd);

    if (rc == 0) {
        dr_enter(l->th);
        rc = fstat(*fd, st) ? -errno : 0;
        dr_leave(l->th, 0);
    }
    if (rc == 0 && (!S_ISREG(st->st_mode) || st->st_size < FP_DLOG_HEAD_BYTES || (uint64_t)st->st_size > FP_DLOG_INDEX_MAX))
        return dr_fail(l->th, FP_DW_SCOPE_FILE, FP_ECORRUPT, "%s/" FP_DLOG_INDEX " is no index, or is cut", l->name);
    return rc ? failed(l, rc, "the index") : 0;
}

static int is_meant(struct log *l, uint64_t sum)
{
    if (!l->m->sum || sum == l->m->sum)
        return 0;
    return dr_fail(l->th, FP_DW_SCOPE_FILE, -ESTALE, "%s has been replaced by another log", l->name);
}

static int index_read(struct log *l, int fd, size_t len)
{
    struct dr_index *k = calloc(1, sizeof(*k));
    uint8_t *bytes = malloc(len);
    int rc = k && bytes ? dr_read_all(l->th, fd, bytes, len, 0) : -ENOMEM;

    if (rc == 0 && (rc = is_meant(l, fp_dlog_index_sum(bytes))) == 0) {
        k->sum = fp_dlog_index_sum(bytes);
        k->refs = 1;
        rc = fp_dlog_index_decode(bytes, len, &k->x);
        if (rc == 0) {
            index_keep(l->th->w, k);
            l->k = k;
            k = NULL;
        }
        rc = rc == FP_ECORRUPT || rc == -ENODATA ? dr_fail(l->th, FP_DW_SCOPE_FILE, FP_ECORRUPT, "%s/" FP_DLOG_INDEX " is damaged", l->name) : rc ? no_memory(l->th) : 0;
    } else if (rc == -ENOMEM) {
        rc = no_memory(l->th);
    } else if (rc != -ESTALE && rc) {
        rc = rc == -ENODATA ? dr_fail(l->th, FP_DW_SCOPE_FILE, FP_ECORRUPT, "%s/" FP_DLOG_INDEX " is cut", l->name) : failed(l, rc, "the index");
    }
    free(k);
    free(bytes);
    return rc;
}

static int index_get(struct log *l)
{
    struct stat st;
    int fd = -1, rc;

    l->k = l->m->sum ? index_kept(l->th->w, l->m->sum) : NULL;
    if (l->k)
        return 0;
    rc = index_open(l, &fd, &st);
    rc = rc ? rc : index_read(l, fd, (size_t)st.st_size);
    close_in(l, &fd);
    return rc;
}

/* What went wrong with a part may be that the log is another one now. */
static int look_again(struct log *l, int status)
{
    char why[DR_WHY_MAX];
    uint8_t head[FP_DLOG_HEAD_BYTES];
    struct stat st;
    int fd = -1, rc;

    memcpy(why, l->th->r.why, sizeof(why));
    rc = index_open(l, &fd, &st);
    rc = rc ? rc : dr_read_all(l->th, fd, head, sizeof(head), 0);
    rc = rc ? rc : is_meant(l, fp_dlog_index_sum(head));
    close_in(l, &fd);
    if (rc == -ESTALE)
        return rc;
    memcpy(l->th->r.why, why, sizeof(why));
    l->th->r.scope = FP_DW_SCOPE_FILE;
    return status;
}

/* ---------------------------------------------------------------- records */

static int use_stream(struct log *l, uint32_t stream)
{
    const char *name = l->k->x.stream[stream];
    int rc;

    if (l->fd >= 0 && l->stream == stream)
        return 0;
    close_in(l, &l->fd);
    l->stream = stream;
    rc = dr_open(l->th, l->dir, name, (uint32_t)strlen(name), O_RDONLY, 0, &l->fd);
    return rc ? failed(l, rc, "a stream") : 0;
}

/* The header, and with data all of it, into th->run; its extents to l->e. */
static int read_record(struct log *l, const struct fp_dlog_place *p, bool data)
{
    struct dr_thread *th = l->th;
    uint64_t len = p->header_bytes + (data ? p->data_bytes : 0);
    int rc = use_stream(l, p->stream);

    if (rc == 0 && dr_memory(&th->run, &th->run_bytes, len))
        rc = dr_fail(th, FP_DW_SCOPE_TARGET, -ENOMEM, "out of memory on this node");
    if (rc)
        return rc;
    rc = dr_read_all(th, l->fd, th->run, len, p->at);
    if (rc == -ENODATA)
        return dr_fail(th, FP_DW_SCOPE_FILE, FP_ECORRUPT, "%s/%s ends before byte %llu: a part of it is missing", l->name, l->k->x.stream[p->stream],
                       (unsigned long long)(p->at + len));
    if (rc)
        return dr_failed_call(th, rc, "read", "a stream of the log");
    return fp_dlog_record_is(th->run, &l->k->x, p, l->e, &l->n) ? damaged(l, FP_ECORRUPT, "", p->at) : 0;
}

struct extents {
    struct fp_dlog_extent *e;
    size_t n, cap;
};

/* Neighbours become one: of most files a record is one extent. */
static int collect(struct log *l, struct extents *all)
{
    for (uint32_t i = 0; i < l->n; i++) {
        struct fp_dlog_extent *last = all->n ? &all->e[all->n - 1] : NULL;

        if (last && last->off + last->len == l->e[i].off && last->len <= UINT32_MAX - l->e[i].len) {
            last->len += l->e[i].len;
            continue;
        }
        if (all->n == all->cap) {
            size_t cap = all->cap ? all->cap * 2 : 1024;
            struct fp_dlog_extent *more = cap <= EXTENTS_MAX ? realloc(all->e, cap * sizeof(*more)) : NULL;

            if (!more)
                return no_memory(l->th);
            all->e = more;
            all->cap = cap;
        }
        all->e[all->n++] = l->e[i];
    }
    return 0;
}

static int check_records(struct log *l)
{
    struct extents all = { 0 };
    uint64_t at;
    int rc = 0;

    for (uint32_t i = 0; i < l->k->x.nrecords && rc == 0; i++) {
        rc = l->th->task->cancelled ? dr_fail(l->th, FP_DW_SCOPE_FILE, -ECANCELED, "cancelled") : read_record(l, &l->k->x.record[i], false);
        rc = rc ? rc : collect(l, &all);
    }
    if (rc == 0 && !fp_dlog_extents_apart(all.e, all.n, &at))
        rc = dr_fail(l->th, FP_DW_SCOPE_FILE, FP_ECORRUPT, "%s: byte %llu of the file is in two records", l->name, (unsigned long long)at);
    free(all.e);
    return rc;
}

/* ---------------------------------------------------------------- the file as PREPARE and FINISH of drain/ have it */

static void put_xattrs(int fd, FILE *out, uint32_t *n)
{
    char *names = malloc(XATTR_BYTES), *value = malloc(XATTR_BYTES);
    ssize_t len = names && value ? flistxattr(fd, names, XATTR_BYTES) : -1;

    for (ssize_t i = 0; i < len; i += (ssize_t)strlen(names + i) + 1) {
        ssize_t got = strncmp(names + i, "user.", 5) == 0 ? fgetxattr(fd, names + i, value, XATTR_BYTES) : -1;
        uint32_t lens[2] = { (uint32_t)strlen(names + i), (uint32_t)got };

        if (got < 0)
            continue;
        fwrite(lens, sizeof(lens), 1, out);
        fwrite(names + i, lens[0], 1, out);
        fwrite(value, lens[1], 1, out);
        ++*n;
    }
    free(names);
    free(value);
}

/* malloc'd. What belongs to the file is that of its index. */
static struct fp_dw_file *as_file(struct log *l, const struct stat *st, int index)
{
    const struct fp_dw_merge *m = l->m;
    struct fp_dw_file f = { .h = m->h, .tino = m->tino, .size = l->k->x.size, .flags = m->flags, .mode = st->st_mode & (S_IFMT | 07777), .uid = st->st_uid,
                            .gid = st->st_gid, .atime_ns = (int64_t)st->st_atim.tv_sec * 1000000000 + st->st_atim.tv_nsec,
                            .mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec, .path_bytes = m->path_bytes, .tmp_bytes = m->tmp_bytes };
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    if (!out)
        return NULL;
    fwrite(&f, sizeof(f), 1, out);
    fwrite(l->path, m->path_bytes, 1, out);
    fwrite(l->tmp, m->tmp_bytes, 1, out);
    dr_enter(l->th);
    put_xattrs(index, out, &f.nxattrs);
    dr_leave(l->th, 0);
    if (fclose(out) || !text) {
        free(text);
        return NULL;
    }
    memcpy(text, &f, sizeof(f));
    return (struct fp_dw_file *)(void *)text;
}

/* Is there something that may not be replaced? Said before it is written. */
static int is_there(struct log *l)
{
    int fd = -1, rc = l->m->flags & FP_DW_OVERWRITE ? -ENOENT : dr_open(l->th, l->root, l->path, l->m->path_bytes, O_PATH | O_NOFOLLOW, 0, &fd);

    close_in(l, &fd);
    if (rc == 0 || rc == -ELOOP)
        return dr_fail(l->th, FP_DW_SCOPE_FILE, -EEXIST, "%.*s is there already: --force replaces it", (int)l->m->path_bytes, l->path);
    return 0; /* what else is wrong with it is seen when it is made */
}

static int of_file(struct log *l, int (*what)(struct dr_thread *, const struct fp_dw_file *))
{
    struct fp_dw_file *m = NULL;
    uint8_t head[FP_DLOG_HEAD_BYTES];
    struct stat st;
    int fd = -1, rc = index_open(l, &fd, &st);

    rc = rc ? rc : dr_read_all(l->th, fd, head, sizeof(head), 0);
    rc = rc ? rc : is_meant(l, fp_dlog_index_sum(head));
    if (rc == 0 && !(m = as_file(l, &st, fd)))
        rc = no_memory(l->th);
    close_in(l, &fd);
    rc = rc ? rc : what(l->th, m);
    free(m);
    return rc;
}

/* ---------------------------------------------------------------- the steps */

static int prepare(struct log *l)
{
    struct dr_result *r = &l->th->r;
    int rc = is_there(l);

    rc = rc ? rc : check_records(l);
    rc = rc ? rc : of_file(l, dr_prepare_file);
    r->sums[0] = l->k->sum;
    r->sums[1] = l->k->x.nrecords;
    r->sums[2] = l->k->x.data_bytes;
    r->nsums = 3;
    return rc;
}

static int write_one(struct log *l, struct dr_tmp *t, const struct fp_dlog_place *p)
{
    const uint8_t *data;
    uint32_t bad;
    int rc = read_record(l, p, true);

    if (rc)
        return rc;
    data = l->th->run + p->header_bytes;
    bad = fp_dlog_data_differs(data, l->e, l->n);
    if (bad < l->n)
        return damaged(l, FP_ECHECKSUM, "data of", p->at);
    for (uint32_t i = 0; i < l->n && rc == 0; data += l->e[i++].len)
        rc = dr_tmp_write(l->th, t, data, l->e[i].len, l->e[i].off);
    (void)posix_fadvise(l->fd, (off_t)p->at, (off_t)(p->header_bytes + p->data_bytes), POSIX_FADV_DONTNEED);
    return rc;
}

static int compare_extent(struct log *l, const struct dr_tmp *t, const struct fp_dlog_extent *e)
{
    struct dr_thread *th = l->th;
    int rc;

    if (!dr_gate(th, e->len))
        return dr_fail(th, FP_DW_SCOPE_FILE, -ECANCELED, "cancelled");
    if (dr_memory(&th->bounce, &th->bounce_bytes, e->len))
        return dr_fail(th, FP_DW_SCOPE_TARGET, -ENOMEM, "out of memory on this node");
    rc = dr_read_all(th, t->fd, th->bounce, e->len, e->off);
    if (rc && rc != -ENODATA)
        return dr_failed_call(th, rc, "read back", "the temporary file");
    if (rc || fp_dlog_sum(th->bounce, e->len) != e->sum)
        return dr_fail(th, FP_DW_SCOPE_FILE, FP_ECHECKSUM, "bytes %llu to %llu of the file are read back as others than were written", (unsigned long long)e->off,
                       (unsigned long long)(e->off + e->len));
    th->r.bytes += e->len;
    atomic_fetch_add(&th->w->status->read_bytes, e->len);
    return 0;
}

static int compare_one(struct log *l, const struct dr_tmp *t, const struct fp_dlog_place *p)
{
    int rc = read_record(l, p, false);

    for (uint32_t i = 0; i < l->n && rc == 0; i++)
        rc = compare_extent(l, t, &l->e[i]);
    return rc;
}

static int part(struct log *l)
{
    const struct fp_dw_merge *m = l->m;
    struct dr_tmp t = { -1, -1 };
    int rc;

    if (m->first > l->k->x.nrecords || m->count > l->k->x.nrecords - m->first)
        return dr_fail(l->th, FP_DW_SCOPE_FILE, -EINVAL, "%s has not so many records", l->name);
    rc = dr_tmp_open(l->th, &t, l->root, l->tmp, m->tmp_bytes, m->tino);
    if (rc == 0 && m->step == FP_DW_MERGE_COMPARE) {
        dr_enter(l->th);
        (void)posix_fadvise(t.fd, 0, 0, POSIX_FADV_DONTNEED);
        dr_leave(l->th, 0);
    }
    for (uint64_t i = m->first; i < m->first + m->count && rc == 0; i++)
        rc = m->step == FP_DW_MERGE_COMPARE ? compare_one(l, &t, &l->k->x.record[i]) : write_one(l, &t, &l->k->x.record[i]);
    if (rc == 0 && m->step == FP_DW_MERGE_WRITE)
        rc = dr_tmp_sync(l->th, &t);
    dr_tmp_close(l->th, &t);
    if (rc && l->th->r.scope == FP_DW_SCOPE_FILE && rc != -ECANCELED && rc != -ENOENT)
        rc = look_again(l, rc);
    return rc;
}

static int do_step(struct log *l)
{
    int rc = index_get(l);

    if (rc)
        return rc;
    switch (l->m->step) {
    case FP_DW_MERGE_PREPARE:
        return prepare(l);
    case FP_DW_MERGE_FINISH:
        return of_file(l, dr_finish_file);
    default:
        return part(l);
    }
}

/* FINISH is asked again, when its answer was lost, and the log is no more what it was made of: 0 if it was done. */
static int was_finished(struct log *l, int status)
{
    const struct fp_dw_merge *m = l->m;
    struct dr_result kept = l->th->r;
    struct fp_dw_file *f;

    if (m->step != FP_DW_MERGE_FINISH || !m->tino || (status != -ESTALE && status != -ENOENT))
        return status;
    f = malloc(sizeof(*f) + m->path_bytes + m->tmp_bytes);
    if (!f)
        return status;
    *f = (struct fp_dw_file){ .h = m->h, .tino = m->tino, .flags = m->flags, .path_bytes = m->path_bytes, .tmp_bytes = m->tmp_bytes };
    memcpy(f + 1, l->path, (size_t)m->path_bytes + m->tmp_bytes);
    l->th->r.why[0] = '\0';
    if (dr_was_finished(l->th, f) == 0)
        status = 0;
    else
        l->th->r = kept;
    free(f);
    return status;
}

int dr_merge(struct dr_thread *th)
{
    const struct fp_dw_merge *m = (const struct fp_dw_merge *)th->task->msg;
    struct log l = { .th = th, .m = m, .path = (const char *)(m + 1), .dir = -1, .fd = -1 };
    int rc = dr_root(th, false, &l.root);

    if (rc)
        return rc;
    l.tmp = l.path + m->path_bytes;
    l.name = strndup(l.tmp + m->tmp_bytes, m->log_bytes);
    l.e = calloc(FP_DLOG_EXTENTS_MAX, sizeof(*l.e));
    rc = l.name && l.e ? dr_open(th, l.root, l.name, m->log_bytes, O_RDONLY | O_DIRECTORY, 0, &l.dir) : no_memory(th);
    if (rc && l.name && l.e)
        rc = failed(&l, rc, "the directory");
    rc = rc ? rc : do_step(&l);
    rc = l.name ? was_finished(&l, rc) : rc;
    close_in(&l, &l.fd);
    close_in(&l, &l.dir);
    close_in(&l, &l.root);
    dr_index_put(th->w, l.k);
    free(l.e);
    free((char *)(uintptr_t)l.name);
    return rc;
}
