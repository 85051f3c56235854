/*
 * The stream of this worker in a log: WRITE of a file that becomes streams of records (layout in fp/dlog.h).
 *
 * On a thread. A log that is being written is a directory among the temporary files, and each worker has a file of its own in it, with a random name: nobody else
 * writes there, so a stream only grows, in large aligned writes, whichever parts come when. Where the next record goes is known to the worker alone; one that is
 * started anew, or has forgotten, begins another stream. A record that was half written, or twice because its answer was lost, stays where it is:
 * the index (dlogindex.c) names one of each.
 *
 * Rejected: places in streams that the manager gives out. They would have to be in its database, for no more than an index that the streams tell, too; and
 * O_APPEND, which NFS does not do for several descriptors.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drain/drain.h"
#include "fp/dlog.h"
#include "fp/le.h"

uint64_t dr_dlog_id(const struct dr_thread *th)
{
    return fp_get64(th->w->store) ^ ((const struct fp_dw_head *)th->task->msg)->gen;
}

int dr_dlog_open(struct dr_dlog *l, struct dr_thread *th, int temps, const char *tmp, uint32_t tmp_bytes, uint64_t tino)
{
    struct stat st;
    int rc;

    *l = (struct dr_dlog){ .th = th, .dir = -1, .fd = -1, .direct_fd = -1, .tino = tino };
    rc = dr_open(th, temps, tmp, tmp_bytes, O_RDONLY | O_DIRECTORY, 0, &l->dir);
    if (rc == 0) {
        dr_enter(th);
        rc = fstat(l->dir, &st) ? -errno : st.st_ino != tino ? -ENOENT : 0;
        dr_leave(th, 0);
    }
    if (rc == -ENOENT)
        return dr_fail(th, FP_DW_SCOPE_FILE, rc, "its temporary directory %.*s is gone", (int)tmp_bytes, tmp);
    return rc ? dr_failed_call(th, rc, "open", "the temporary directory") : 0;
}

/* ---------------------------------------------------------------- where */

/* Room for a record, in which stream and where. */
static int reserve(struct dr_worker *w, uint64_t tino, uint64_t bytes, uint64_t *stream, uint64_t *at)
{
    struct dr_stream *s = NULL;
    uint64_t name;

    if (getrandom(&name, sizeof(name), 0) != sizeof(name))
        return -EIO;
    pthread_mutex_lock(&w->lock);
    for (unsigned i = 0; i < DR_STREAMS_MAX && !s; i++)
        s = w->stream[i].name && w->stream[i].tino == tino ? &w->stream[i] : NULL;
    if (!s) { /* the one that was begun first is forgotten */
        s = &w->stream[w->nstreams++ % DR_STREAMS_MAX];
        *s = (struct dr_stream){ .tino = tino, .name = name | 1 };
    }
    *stream = s->name;
    *at = s->end;
    s->end += bytes;
    pthread_mutex_unlock(&w->lock);
    return 0;
}

static int open_stream(struct dr_dlog *l, uint64_t stream)
{
    char name[FP_DLOG_NAME_BUF];
    int len = snprintf(name, sizeof(name), "stream-%016llx", (unsigned long long)stream);
    int rc = l->fd >= 0 ? dr_dlog_sync(l) : 0; /* the one before was forgotten meanwhile */

    if (rc)
        return rc;
    if (l->fd >= 0)
        close(l->fd);
    if (l->direct_fd >= 0)
        close(l->direct_fd);
    l->fd = l->direct_fd = -1;
    l->stream = stream;
    rc = dr_open(l->th, l->dir, name, (uint32_t)len, O_RDWR | O_CREAT, 0600, &l->fd);
    if (rc)
        return dr_failed_call(l->th, rc, "open", "a stream of the log");
    if (dr_open(l->th, l->dir, name, (uint32_t)len, O_WRONLY | O_DIRECT, 0, &l->direct_fd))
        l->direct_fd = -1;
    return 0;
}

/* ---------------------------------------------------------------- records */

static int write_record(struct dr_dlog *l, uint32_t header, uint64_t data)
{
    struct dr_thread *th = l->th;
    uint64_t stream, at, pages = fp_dlog_pages(data);
    int rc = reserve(th->w, l->tino, header + pages, &stream, &at);

    if (rc)
        return dr_fail(th, FP_DW_SCOPE_TARGET, rc, "no random number on this node");
    if (l->fd < 0 || l->stream != stream)
        rc = open_stream(l, stream);
    if (rc)
        return rc;
    memset(th->run + data, 0, pages - data);
    rc = dr_write_all(th, l->fd, &l->direct_fd, (struct iovec[]){ { th->head, header }, { th->run, pages } }, 2, at);
    if (rc)
        return dr_failed_call(th, rc, "write", "a stream of the log");
    atomic_fetch_add(&th->w->status->written_bytes, data);
    return 0;
}

int dr_dlog_append(struct dr_dlog *l, const struct dr_dlog_run *runs, uint32_t n)
{
    struct dr_thread *th = l->th;
    uint32_t header = fp_dlog_header_bytes(n);
    uint64_t data = 0;
    struct fp_dlog_extent *e;

    if (dr_memory(&th->head, &th->head_bytes, header + n * sizeof(*e)))
        return dr_fail(th, FP_DW_SCOPE_TARGET, -ENOMEM, "out of memory on this node");
    e = (struct fp_dlog_extent *)(void *)(th->head + header);
    for (uint32_t i = 0; i < n; i++) {
        e[i] = (struct fp_dlog_extent){ .off = runs[i].off, .len = runs[i].len, .sum = fp_dlog_sum(th->run + runs[i].at, runs[i].len) };
        if (runs[i].at != data)
            memmove(th->run + data, th->run + runs[i].at, runs[i].len);
        data += runs[i].len;
    }
    fp_dlog_record_encode(th->head, dr_dlog_id(th), e, n);
    return write_record(l, header, data);
}

/* ---------------------------------------------------------------- the end */

int dr_dlog_sync(struct dr_dlog *l)
{
    int rc = l->fd < 0 ? 0 : dr_fsync(l->th, l->fd);

    rc = rc ? rc : dr_fsync(l->th, l->dir); /* the stream's name */
    return rc ? dr_failed_call(l->th, rc, "fsync", "a stream of the log") : 0;
}

void dr_dlog_close(struct dr_dlog *l)
{
    dr_enter(l->th);
    if (l->fd >= 0) {
        (void)posix_fadvise(l->fd, 0, 0, POSIX_FADV_DONTNEED);
        close(l->fd);
    }
    if (l->direct_fd >= 0)
        close(l->direct_fd);
    if (l->dir >= 0)
        close(l->dir);
    dr_leave(l->th, 0);
}
