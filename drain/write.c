/*
 * WRITE: what this benefactor has of some windows, into the temporary file.
 *
 * On a thread. Windows are put together in memory, a few MiB of neighbours at a time: pieces are read to where they belong in their window, verified,
 * summed, and written in runs as long as the data lies together, so that small pieces become large aligned writes. Holes are neither written nor read;
 * in sums they count as zeros. The answer comes after fsync of this file: what it says is on the target's stable storage.
 *
 * The temporary file is opened and never made here: PREPARE makes it, and says its inode; another file under that name is none of ours. So a worker that wakes up
 * late, after the file was renamed or given up, finds nothing to write to.
 *
 * Of a file that becomes a log (FP_DW_DLOG) each group of windows is a record in the stream of this worker (dlog.c).
 *
 * Written past the page cache where the target can, else write-back is begun after each run and the pages are dropped at the end: the memory of the node is the
 * application's. Rejected: copy_file_range or splice from the segment. Both skip the look at the sums, and pieces of chunks are rarely whole pages.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drain/drain.h"
#include "fp/bug.h"
#include "fp/checksum.h"

#define PAGE 4096u

struct part {
    struct dr_thread *th;
    const struct fp_dw_write *m;
    const uint8_t *slices;
    struct dr_tmp tmp;
    uint64_t at;       /* of th->run, from the beginning of window m->first */
    struct dr_dlog log; /* m->flags & FP_DW_DLOG: instead of both */
};

static struct fp_dw_slice slice(const struct part *p, uint32_t i)
{
    struct fp_dw_slice s;

    memcpy(&s, p->slices + (size_t)i * sizeof(s), sizeof(s));
    return s;
}

static uint64_t window_of(const struct part *p, uint32_t i)
{
    return slice(p, i).at / p->m->window_bytes;
}

/* Bytes of the file in this window (counted from m->first). */
static uint32_t window_len(const struct part *p, uint64_t window)
{
    uint64_t left = p->m->size - (p->m->first + window) * p->m->window_bytes;

    return left < p->m->window_bytes ? (uint32_t)left : p->m->window_bytes;
}

/* ---------------------------------------------------------------- opening */

int dr_tmp_open(struct dr_thread *th, struct dr_tmp *t, int root, const char *tmp, uint32_t tmp_bytes, uint64_t tino)
{
    struct stat st;
    int temps, rc = dr_temps(th, root, false, &temps);

    t->fd = t->direct_fd = -1;
    if (rc && rc != -ENOENT)
        return rc;
    if (rc == 0) {
        rc = dr_open(th, temps, tmp, tmp_bytes, O_RDWR, 0, &t->fd);
        if (rc == 0 && dr_open(th, temps, tmp, tmp_bytes, O_WRONLY | O_DIRECT, 0, &t->direct_fd))
            t->direct_fd = -1;
        close(temps);
    }
    if (rc == 0) {
        dr_enter(th);
        rc = fstat(t->fd, &st) ? -errno : 0;
        dr_leave(th, 0);
    }
    if (rc == 0 && st.st_ino != tino && !FP_BUG("drain-uses-a-temp-again"))
        rc = -ENOENT;
    if (rc == -ENOENT)
        return dr_fail(th, FP_DW_SCOPE_FILE, rc, "its temporary file %.*s is gone", (int)tmp_bytes, tmp);
    return rc ? dr_failed_call(th, rc, "open", "the temporary file") : 0;
}

int dr_tmp_sync(struct dr_thread *th, struct dr_tmp *t)
{
    int rc = FP_BUG("drain-answers-before-fsync") ? 0 : dr_fsync(th, t->fd);

    return rc ? dr_failed_call(th, rc, "fsync", "the temporary file") : 0;
}

void dr_tmp_close(struct dr_thread *th, struct dr_tmp *t)
{
    dr_enter(th);
    if (t->fd >= 0) {
        (void)posix_fadvise(t->fd, 0, 0, POSIX_FADV_DONTNEED);
        close(t->fd);
    }
    if (t->direct_fd >= 0)
        close(t->direct_fd);
    dr_leave(th, 0);
}

/* ---------------------------------------------------------------- writing */

int dr_tmp_write(struct dr_thread *th, struct dr_tmp *t, const uint8_t *data, uint64_t len, uint64_t off)
{
    bool aligned = (uintptr_t)data % PAGE == 0 && off % PAGE == 0 && len % PAGE == 0;
    int rc, none = -1;

    if (!dr_gate(th, len))
        return dr_fail(th, FP_DW_SCOPE_FILE, -ECANCELED, "cancelled");
    rc = dr_write_all(th, t->fd, aligned ? &t->direct_fd : &none, (struct iovec[]){ { (uint8_t *)(uintptr_t)data, len } }, 1, off);
    if (rc)
        return dr_failed_call(th, rc, "write", "the temporary file");
    th->r.bytes += len;
    atomic_fetch_add(&th->w->status->written_bytes, len);
    return 0;
}

/* [from, to) of the buffer, which lies together in the file. */
static int write_run(struct part *p, uint64_t from, uint64_t to)
{
    return dr_tmp_write(p->th, &p->tmp, p->th->run + from, to - from, p->m->first * p->m->window_bytes + p->at + from);
}

/* ---------------------------------------------------------------- windows */

/* Reads the pieces [from, to) into the buffer, with zeros between them, and makes the sums of their windows. */
static int gather(struct part *p, uint32_t from, uint32_t to)
{
    struct dr_thread *th = p->th;
    uint64_t window = window_of(p, from);
    uint8_t *begin = th->run;
    uint32_t filled = 0, len;
    int rc;

    for (uint32_t i = from; i < to; window++) {
        uint32_t blocks;
        uint64_t sums[FP_DW_WINDOW_MAX_BYTES / FP_BLOCK_SIZE_BYTES];

        filled = 0;
        len = window_len(p, window);
        for (; i < to && window_of(p, i) == window; i++) {
            struct fp_dw_slice s = slice(p, i);
            uint32_t off = s.at % p->m->window_bytes;

            memset(begin + filled, 0, off - filled);
            rc = dr_seg_read(th, &s, begin + off);
            if (rc)
                return rc;
            filled = off + s.len;
        }
        memset(begin + filled, 0, len - filled);
        blocks = fp_sum_nblocks(len);
        fp_sum_blocks(begin, len, sums);
        th->r.sums[th->r.nsums++] = fp_sum_chunk(sums, blocks, len);
        begin += p->m->window_bytes;
    }
    return 0;
}

/* The same as one record of the log. */
static int write_record(struct part *p, uint32_t from, uint32_t to)
{
    struct dr_thread *th = p->th;
    uint64_t begin = p->m->first * p->m->window_bytes + p->at, bytes = 0;
    struct dr_dlog_run *runs = calloc(to - from, sizeof(*runs));
    uint32_t n = 0;
    int rc;

    if (!runs)
        return dr_fail(th, FP_DW_SCOPE_TARGET, -ENOMEM, "out of memory on this node");
    for (uint32_t i = from; i < to; i++) {
        struct fp_dw_slice s = slice(p, i);
        uint32_t at = (uint32_t)(s.at - p->at);

        if (n && runs[n - 1].at + runs[n - 1].len == at)
            runs[n - 1].len += s.len;
        else
            runs[n++] = (struct dr_dlog_run){ .off = begin + at, .at = at, .len = s.len };
        bytes += s.len;
    }
    rc = dr_gate(th, bytes) ? dr_dlog_append(&p->log, runs, n) : dr_fail(th, FP_DW_SCOPE_FILE, -ECANCELED, "cancelled");
    free(runs);
    if (rc == 0)
        th->r.bytes += bytes;
    return rc;
}

static int write_runs(struct part *p, uint32_t from, uint32_t to)
{
    struct fp_dw_slice s = slice(p, from);
    uint64_t begin = s.at, end = (uint64_t)s.at + s.len;
    int rc = 0;

    if (p->m->flags & FP_DW_DLOG)
        return write_record(p, from, to);
    for (uint32_t i = from + 1; rc == 0 && i < to; i++) {
        s = slice(p, i);
        if (s.at != end) {
            rc = write_run(p, begin - p->at, end - p->at);
            begin = s.at;
        }
        end = (uint64_t)s.at + s.len;
    }
    return rc ? rc : write_run(p, begin - p->at, end - p->at);
}

/* Pieces from `from` on whose windows follow each other and fit into the buffer: one more than the last. */
static uint32_t group_end(const struct part *p, uint32_t from, uint64_t room)
{
    uint64_t first = window_of(p, from), last = first;
    uint32_t i;

    for (i = from + 1; i < p->m->nslices; i++) {
        uint64_t w = window_of(p, i);

        if (w > last + 1 || (w + 1 - first) * p->m->window_bytes > room)
            break;
        last = w;
    }
    return i;
}

static int write_part(struct part *p)
{
    struct dr_thread *th = p->th;
    uint64_t room = p->m->window_bytes > DR_RUN_BYTES ? p->m->window_bytes : DR_RUN_BYTES / p->m->window_bytes * p->m->window_bytes;
    int rc = dr_memory(&th->run, &th->run_bytes, room + PAGE);

    if (rc)
        return dr_fail(th, FP_DW_SCOPE_TARGET, rc, "out of memory on this node");
    for (uint32_t i = 0, end; rc == 0 && i < p->m->nslices; i = end) {
        end = group_end(p, i, room);
        p->at = window_of(p, i) * p->m->window_bytes;
        rc = gather(p, i, end);
        if (rc == 0)
            rc = write_runs(p, i, end);
    }
    return rc;
}

static int write_log(struct part *p, int root, const char *tmp)
{
    struct dr_thread *th = p->th;
    int temps, rc = dr_temps(th, root, false, &temps);

    if (rc == -ENOENT)
        return dr_fail(th, FP_DW_SCOPE_FILE, rc, "its temporary directory %.*s is gone", (int)p->m->tmp_bytes, tmp);
    if (rc)
        return rc;
    rc = dr_dlog_open(&p->log, th, temps, tmp, p->m->tmp_bytes, p->m->tino);
    close(temps);
    rc = rc ? rc : write_part(p);
    rc = rc ? rc : dr_dlog_sync(&p->log);
    dr_dlog_close(&p->log);
    return rc;
}

static int write_file(struct part *p, int root, const char *tmp)
{
    int rc = dr_tmp_open(p->th, &p->tmp, root, tmp, p->m->tmp_bytes, p->m->tino);

    rc = rc ? rc : write_part(p);
    rc = rc ? rc : dr_tmp_sync(p->th, &p->tmp);
    dr_tmp_close(p->th, &p->tmp);
    return rc;
}

int dr_write(struct dr_thread *th)
{
    const struct fp_dw_write *m = (const struct fp_dw_write *)th->task->msg;
    const char *tmp = (const char *)(m + 1);
    struct part p = { .th = th, .m = m, .slices = (const uint8_t *)tmp + m->tmp_bytes + 8ull * m->nsegments, .tmp = { -1, -1 } };
    int root, rc = dr_root(th, false, &root);

    if (rc)
        return rc;
    rc = m->flags & FP_DW_DLOG ? write_log(&p, root, tmp) : write_file(&p, root, tmp);
    dr_enter(th);
    close(root);
    dr_leave(th, 0);
    return rc;
}
