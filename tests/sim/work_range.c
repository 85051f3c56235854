/*
 * The workload's calls about ranges: fallocate in its modes, copy_file_range, SEEK_DATA and SEEK_HOLE, stores through a mapping. What a copy may have is in model.c.
 *
 * Of mappings there is the way of their data to the mount: whole pages, written back as the kernel does it. Pages that are read and kept are not there, nor parts of pages, of which the
 * kernel writes back what it had read around them.
 */
#include <errno.h>
#include <linux/falloc.h>
#include <string.h>
#include <unistd.h>

#include "tests/sim/app.h"

#define WINDOW (64u << 10)
#define PAGE   4096u

static void range(uint64_t *off, uint64_t *len)
{
    *off = app_pick(3) ? app_pick(FILE_MAX) : app_pick(5) * WINDOW;
    *len = app_pick(3) ? 1 + app_pick(3000) : app_pick(2) ? WINDOW : 1 + app_pick(WRITE_MAX);
}

void app_allocate(struct app *a)
{
    static const int modes[] = {0, FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, FALLOC_FL_ZERO_RANGE,
                                FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE};
    struct handle *h = app_handle(a);
    int mode = modes[app_pick(sizeof modes / sizeof *modes)], rc;
    bool keeps = mode & FALLOC_FL_KEEP_SIZE;
    struct model_write *w = NULL;
    uint64_t off, len;

    if (!h || !h->writable)
        return;
    range(&off, &len);
    if (mode != FALLOC_FL_KEEP_SIZE)
        w = model_change_begin(h->model, a->mount, mode ? MODEL_ZEROS : MODEL_GROWTH, off, len, keeps);
    rc = vfs_fallocate(h->f, mode, (off_t)off, (off_t)len);
    sim_trace("fallocate inode %llu mode %#x %llu+%llu: %d", (unsigned long long)h->model->ino, (unsigned)mode, (unsigned long long)off, (unsigned long long)len, rc);
    if (w)
        model_write_end(h->model, w, rc);
    work_counts.ranges++;
    app_error(a, "fallocate", "", rc);
}

static struct handle *readable(struct app *a)
{
    struct handle *h = &a->h[app_pick(HANDLES)];

    return h->f && h->start == a->mount->starts && (h->f->flags & O_ACCMODE) != O_WRONLY ? h : NULL;
}

void app_copy(struct app *a)
{
    struct handle *in = readable(a), *out = app_handle(a);
    uint64_t from, off, len;
    struct model_write *w;
    ssize_t rc;

    if (!in || !out || !out->writable)
        return;
    range(&from, &len);
    off = app_pick(2) ? from : app_pick(FILE_MAX);
    if (in->model == out->model && from < off + len && off < from + len)
        return;
    w = model_change_begin(out->model, a->mount, MODEL_COPY, off, len, false);
    rc = vfs_copy(in->f, (off_t)from, out->f, (off_t)off, len);
    sim_trace("copy inode %llu %llu+%llu to inode %llu %llu: %zd", (unsigned long long)in->model->ino, (unsigned long long)from, (unsigned long long)len, (unsigned long long)out->model->ino,
              (unsigned long long)off, rc);
    if (rc > (ssize_t)len)
        sim_fail("%s: a copy of %llu bytes takes %zd", a->mount->name, (unsigned long long)len, rc);
    model_copied(out->model, w, in->model, from, in->opened_ns, in->given_ns, rc);
    work_counts.ranges++;
    app_error(a, "copy_file_range", "", rc < 0 ? (int)rc : 0);
}

void app_seek(struct app *a)
{
    struct handle *h = app_handle(a);
    uint64_t off = app_pick(FILE_MAX), from = sim.now_ns;
    bool data = app_pick(2);
    off_t found;

    if (!h)
        return;
    found = vfs_lseek(h->f, (off_t)off, data ? SEEK_DATA : SEEK_HOLE);
    sim_trace("seek inode %llu %s from %llu: %lld", (unsigned long long)h->model->ino, data ? "data" : "a hole", (unsigned long long)off, (long long)found);
    if (found >= 0 && (uint64_t)found < off)
        sim_fail("%s: seeking from %llu gives %lld", a->mount->name, (unsigned long long)off, (long long)found);
    if (found == -ENXIO || (data && found >= 0))
        model_no_data(h->model, a->mount, h->opened_ns, h->given_ns, from, off, found < 0 ? UINT64_MAX : (uint64_t)found);
    else if (found >= 0)
        model_no_data(h->model, a->mount, h->opened_ns, h->given_ns, from, (uint64_t)found, (uint64_t)found + 1);
    work_counts.ranges++;
    app_error(a, "seek", "", found < 0 && found != -ENXIO ? (int)found : 0);
}

void app_store(struct app *a)
{
    struct handle *h = app_handle(a);
    uint64_t off = app_pick(FILE_MAX) / PAGE * PAGE, len = PAGE * (1 + app_pick(4));
    struct model_write *w;
    ssize_t rc;

    if (!h || (h->f->flags & O_ACCMODE) != O_RDWR || a->mount->strict)
        return;
    w = model_write_begin(h->model, a->mount, off, len, a->buf);
    rc = vfs_store(h->f, a->buf, len, (off_t)off);
    sim_trace("store inode %llu %llu+%llu: %zd", (unsigned long long)h->model->ino, (unsigned long long)off, (unsigned long long)len, rc);
    model_write_end(h->model, w, rc);
    work_counts.ranges++;
    app_error(a, "msync", "", rc < 0 ? (int)rc : 0);
}
