/*
 * to=raw: an array back into the files of ranks that a schema describes (sink.h), of as many ranks as it says. Called by the engine on its one thread; blocks for the disk.
 *
 * The result is a directory. All files are made at once, with the length that they will have: headers, and ghost cells that lie outside of the array, are the zeros of what was never written. A box goes
 * to each file whose block, ghosts included, meets it; what one pwrite can take is put together in a buffer, in the order and byte order of the file. In dimensions in which a box has all that the block
 * stores of the array, the cells outside are written with it, so that whole planes go at once instead of row by row. Rejected: each file from its beginning to its end, which reads what several
 * ranks have as ghosts again and again, and which a box in the order of the array can't be.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convert/buffer.h"
#include "convert/engine/box.h"
#include "convert/engine/cover.h"
#include "convert/engine/numbers.h"
#include "convert/schema/schema.h"
#include "convert/sink/sink.h"
#include "fp/err.h"
#include "fp/fault.h"

#define OPEN_MAX_FILES 256u
#define BUFFER_MAX     (16u << 20)
#define BUFFER_MIN     4096u

struct target {
    const struct cv_dataset *to; /* of the files */
    uint32_t *order;             /* of its blocks, by the first element that they store in dimension 0 */
    uint64_t longest;            /* from there to the last */
    bool may_miss;               /* blocks overlap, and may leave elements out: each box is looked at */
};

struct raw {
    struct cv_sink base;
    const struct cv_model *m;
    struct cv_schema *schema;
    struct cv_model *files;
    struct target *targets;      /* of each dataset of m */
    char path[PATH_MAX];
    const char *schema_name;
    uint64_t nfiles;
    uint64_t *sizes;
    int *fds;                    /* of each file; -1: not open */
    uint64_t open[OPEN_MAX_FILES];
    unsigned nopen, max_open, next;
    uint8_t *buffer, *seen;
    size_t buffer_bytes, seen_bytes;
};

static int no_memory(struct cv_fail *why)
{
    return cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory");
}

/* ---------------------------------------------------------------- files */

static int name_of(const struct raw *w, uint64_t file, char path[PATH_MAX], struct cv_fail *why)
{
    char name[PATH_MAX];
    int rc = cv_schema_file_name(w->schema, file, name, sizeof name, why);

    if (rc)
        return rc;
    if (snprintf(path, PATH_MAX, "%.*s/%s", PATH_MAX - 2, w->path, name) >= PATH_MAX)
        return cv_fail(why, -ENAMETOOLONG, w->path, NULL, CV_NO_OFFSET, "no room for the names of its files");
    return 0;
}

static int failed(const struct raw *w, uint64_t file, const char *dataset, uint64_t off, int rc, const char *what, struct cv_fail *why)
{
    char path[PATH_MAX];

    if (name_of(w, file, path, why))
        return rc;
    return cv_fail(why, rc, path, dataset, off, "%s: %s", what, fp_strerror(rc));
}

/* Directories between that of the result and a file. */
static int make_between(const struct raw *w, char *path)
{
    for (char *slash = strchr(path + strlen(w->path) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        int rc;

        *slash = '\0';
        rc = mkdir(path, 0777) < 0 && errno != EEXIST ? -errno : 0;
        *slash = '/';
        if (rc)
            return rc;
    }
    return 0;
}

/* A descriptor of it; with as many open as may be, the one that was opened first is closed: boxes come in the order of the array, and go through the files round and round. */
static int open_file(struct raw *w, uint64_t file, int flags, struct cv_fail *why)
{
    char path[PATH_MAX];
    int rc = 0, fd;

    if (w->fds[file] >= 0)
        return w->fds[file];
    if (name_of(w, file, path, why))
        return -ENAMETOOLONG;
    if (w->nopen == w->max_open) {
        rc = close(w->fds[w->open[w->next]]) < 0 ? -errno : 0;
        w->fds[w->open[w->next]] = -1;
        if (rc)
            return failed(w, w->open[w->next], NULL, CV_NO_OFFSET, rc, "it can't be closed", why);
    } else {
        w->next = w->nopen++;
    }
    do
        fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0666);
    while (fd < 0 && errno == EINTR);
    if (fd < 0) {
        rc = -errno;
        w->open[w->next] = w->open[--w->nopen];
        w->next = 0;
        return failed(w, file, NULL, CV_NO_OFFSET, rc, "it can't be opened", why);
    }
    w->open[w->next] = file;
    w->next = (w->next + 1) % w->max_open;
    w->fds[file] = fd;
    return fd;
}

static int make_file(struct raw *w, uint64_t file, struct cv_fail *why)
{
    char path[PATH_MAX];
    int rc = name_of(w, file, path, why), fd;

    rc = rc ? rc : make_between(w, path);
    if (rc)
        return failed(w, file, NULL, CV_NO_OFFSET, rc, "its directory can't be made", why);
    fd = open_file(w, file, O_CREAT | O_EXCL, why);
    if (fd < 0)
        return fd;
    if (ftruncate(fd, (off_t)w->sizes[file]) < 0) {
        rc = -errno;
        return failed(w, file, NULL, w->sizes[file], rc, "it can't get its length", why);
    }
    return 0;
}

static unsigned files_allowed(void)
{
    struct rlimit limit;
    uint64_t n = OPEN_MAX_FILES;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 2 < n)
        n = limit.rlim_cur / 2;
    return n ? (unsigned)n : 1;
}

static int make_files(struct raw *w, struct cv_fail *why)
{
    int rc = 0;

    if (mkdir(w->path, 0777) < 0) {
        rc = -errno;
        return cv_fail(why, rc, w->path, NULL, CV_NO_OFFSET, "it can't be made: %s", fp_strerror(rc));
    }
    w->max_open = files_allowed();
    for (uint64_t f = 0; f < w->nfiles && rc == 0; f++)
        rc = make_file(w, f, why);
    return rc;
}

/* ---------------------------------------------------------------- what goes where */

/* Element j of a block as it is stored is element first + j * stride of the array; first may lie before it. */
static int64_t first_stored(const struct cv_block *b, unsigned i)
{
    return (int64_t)b->start[i] - (int64_t)(b->ghost_lo[i] * b->stride[i]);
}

/* Its stored elements that lie in [lo, lo + count) of the array: *from, and how many. */
static uint64_t stored_in(const struct cv_block *b, unsigned i, uint64_t lo, uint64_t count, uint64_t *from)
{
    int64_t first = first_stored(b, i), stride = (int64_t)b->stride[i], low = (int64_t)lo - first, high = (int64_t)(lo + count) - first, stored = (int64_t)cv_block_stored(b, i);
    int64_t a = low <= 0 ? 0 : (low + stride - 1) / stride, z = high <= 0 ? 0 : (high + stride - 1) / stride;

    z = z < stored ? z : stored;
    *from = (uint64_t)a;
    return a < z ? (uint64_t)(z - a) : 0;
}

static int by_first(const void *pa, const void *pb, void *arg)
{
    const struct cv_block *blocks = arg;
    uint32_t ia = *(const uint32_t *)pa, ib = *(const uint32_t *)pb;
    int64_t a = first_stored(&blocks[ia], 0), b = first_stored(&blocks[ib], 0);

    return a != b ? (a > b) - (a < b) : (ia > ib) - (ia < ib);
}

/* The first in the order that can reach dimension 0 at `lo`. */
static size_t first_that_reaches(const struct target *t, uint64_t lo)
{
    size_t low = 0, high = t->to->nblocks;
    int64_t from = (int64_t)lo - (int64_t)t->longest;

    while (low < high && t->to->rank) {
        size_t mid = low + (high - low) / 2;

        if (first_stored(&t->to->blocks[t->order[mid]], 0) < from)
            low = mid + 1;
        else
            high = mid;
    }
    return t->to->rank ? low : 0;
}

static bool has_all(const struct cv_dataset *d, const struct cv_block *b)
{
    for (unsigned i = 0; i < d->rank; i++)
        if (b->start[i] || b->count[i] != d->dims[i].size)
            return false;
    return true;
}

static int sort_blocks(struct raw *w, struct target *t, struct cv_fail *why)
{
    const struct cv_dataset *d = t->to;
    struct cv_input *inputs = calloc(w->nfiles, sizeof *inputs);
    const struct cv_source files = {.inputs = inputs, .ninputs = inputs ? w->nfiles : 0};
    bool whole = false;
    int rc;

    t->order = calloc(d->nblocks + 1, sizeof *t->order);
    rc = inputs && t->order ? 0 : no_memory(why);
    for (uint64_t f = 0; rc == 0 && f < w->nfiles; f++)
        inputs[f].path = w->schema_name;
    rc = rc ? rc : cv_cover_check(&files, d, &whole, why);
    free(inputs);
    t->may_miss = !whole && d->gaps == CV_GAPS_REFUSE;
    for (size_t k = 0; rc == 0 && k < d->nblocks; k++) {
        const struct cv_block *b = &d->blocks[k];
        uint64_t stored, long0 = 0;

        for (unsigned i = 0; i < d->rank && rc == 0; i++) {
            if (__builtin_mul_overflow(cv_block_stored(b, i) + 1, b->stride[i], &stored) || stored > INT64_MAX / 2)
                rc = cv_fail(why, -EOVERFLOW, NULL, d->name, CV_NO_OFFSET, "the schema's ghost cells reach too far out of the array");
            long0 = i ? long0 : stored;
        }
        t->order[k] = (uint32_t)k;
        t->longest = long0 > t->longest ? long0 : t->longest;
        t->may_miss &= !has_all(d, b);
    }
    if (rc == 0 && d->rank)
        qsort_r(t->order, d->nblocks, sizeof *t->order, by_first, d->blocks);
    return rc;
}

/* ---------------------------------------------------------------- what does not fit */

static const char *type_word(struct cv_type t, char word[24])
{
    snprintf(word, 24, "%s", cv_type_name(t));
    return word;
}

static int compare(const struct cv_dataset *d, const struct cv_dataset *to, const char *schema, struct cv_fail *why)
{
    char is[24], wants[24];

    if (d->type.kind != to->type.kind || d->type.size_bytes != to->type.size_bytes)
        return cv_fail(why, -EINVAL, schema, d->name, CV_NO_OFFSET, "its type is %s, and the schema's %s: elements are written as they are", type_word(d->type, is), type_word(to->type, wants));
    if (d->rank != to->rank)
        return cv_fail(why, -EINVAL, schema, d->name, CV_NO_OFFSET, "it has %u dimensions, and %u by the schema (time steps are one: steps:)", d->rank, to->rank);
    for (unsigned i = 0; i < d->rank; i++)
        if (d->dims[i].size != to->dims[i].size)
            return cv_fail(why, -EINVAL, schema, d->name, CV_NO_OFFSET, "its dimension %u has %" PRIu64 " elements, and %" PRIu64 " by the schema%s", i, d->dims[i].size, to->dims[i].size,
                           i == 0 && to->dims[0].steps ? " (steps:, or another dataset's, for all have the same)" : "");
    return 0;
}

static int match(struct raw *w, const char *schema, struct cv_fail *why)
{
    int rc = 0;

    for (size_t i = 0; i < w->files->ndatasets; i++)
        if (!cv_model_find(w->m, w->files->datasets[i].name))
            return cv_fail(why, -EINVAL, schema, w->files->datasets[i].name, CV_NO_OFFSET, "the schema wants it in the files, and the input has no dataset of this name");
    for (size_t k = 0; k < w->m->ndatasets && rc == 0; k++) {
        const struct cv_dataset *d = &w->m->datasets[k];

        w->targets[k].to = cv_model_find(w->files, d->name);
        if (!w->targets[k].to)
            return cv_fail(why, -EINVAL, schema, d->name, CV_NO_OFFSET, "the input has it, and the schema does not say where in the files it belongs");
        rc = compare(d, w->targets[k].to, schema, why);
        rc = rc ? rc : sort_blocks(w, &w->targets[k], why);
    }
    return rc;
}

/* With steps: all there are as many as the input has. */
static uint64_t steps_of(const struct cv_model *m)
{
    for (size_t k = 0; k < m->ndatasets; k++)
        if (m->datasets[k].rank && m->datasets[k].dims[0].steps)
            return m->datasets[k].dims[0].size;
    return m->ndatasets && m->datasets[0].rank ? m->datasets[0].dims[0].size : 1;
}

/* ---------------------------------------------------------------- begin and end */

static void forget(struct raw *w)
{
    for (uint64_t f = 0; w->fds && f < w->nfiles; f++)
        if (w->fds[f] >= 0)
            close(w->fds[f]);
    for (size_t k = 0; w->targets && k < w->m->ndatasets; k++)
        free(w->targets[k].order);
    cv_model_free(w->files);
    cv_schema_free(w->schema);
    free(w->targets);
    free(w->sizes);
    free(w->fds);
    free(w->buffer);
    free(w->seen);
    free(w);
}

static void abandon(struct cv_sink *s)
{
    forget((struct raw *)s);
}

static int lay_out(struct raw *w, const struct cv_sink_options *o, struct cv_fail *why)
{
    int rc = cv_schema_read(o->schema, &w->schema, why);

    if (rc)
        return rc;
    w->nfiles = cv_schema_files(w->schema);
    w->buffer_bytes = o->memory_bytes < BUFFER_MIN ? BUFFER_MIN : o->memory_bytes < BUFFER_MAX ? o->memory_bytes : BUFFER_MAX;
    w->sizes = calloc(w->nfiles + 1, sizeof *w->sizes);
    w->fds = malloc((w->nfiles + 1) * sizeof *w->fds);
    w->targets = calloc(w->m->ndatasets + 1, sizeof *w->targets);
    w->buffer = cv_buffer(w->buffer_bytes);
    for (uint64_t f = 0; w->fds && f < w->nfiles; f++)
        w->fds[f] = -1;
    if (!w->sizes || !w->fds || !w->targets || !w->buffer)
        return no_memory(why);
    rc = cv_schema_lay_out(w->schema, steps_of(w->m), w->sizes, &w->files, why);
    rc = rc ? rc : match(w, o->schema, why);
    return rc ? rc : make_files(w, why);
}

static int create(const char *path, const struct cv_model *m, const uint64_t (*chunk)[CV_RANK_MAX], const struct cv_sink_options *o, struct cv_sink **out, struct cv_fail *why)
{
    struct raw *w;
    int rc;

    (void)chunk;
    if (!o->schema)
        return cv_fail(why, -EINVAL, NULL, NULL, CV_NO_OFFSET, "raw files are written as a schema says: how many ranks, and what their files hold");
    if (o->parallel || o->sparse)
        return cv_fail(why, -EINVAL, NULL, NULL, CV_NO_OFFSET, "raw files are written by one process, and all of them");
    w = calloc(1, sizeof *w);
    if (!w)
        return no_memory(why);
    w->base.ops = &cv_sink_raw;
    w->m = m;
    w->schema_name = o->schema;
    snprintf(w->path, sizeof w->path, "%s", path);
    rc = lay_out(w, o, why);
    if (rc)
        forget(w);
    else
        *out = &w->base;
    return rc;
}

static int sync_file(struct raw *w, uint64_t file, struct cv_fail *why)
{
    int fd = open_file(w, file, 0, why), rc;

    if (fd < 0)
        return fd;
    rc = FP_FAULT_POINT("convert-raw-sync");
    rc = rc ? rc : fsync(fd) < 0 ? -errno : 0;
    return rc ? failed(w, file, NULL, CV_NO_OFFSET, rc, "it can't be synced", why) : 0;
}

/* A file's name is only safe with its directory; that of the result itself is the caller's. */
static int sync_between(struct raw *w, uint64_t file, char last[PATH_MAX], struct cv_fail *why)
{
    char path[PATH_MAX];
    int rc = name_of(w, file, path, why);

    for (char *slash = rc ? NULL : strrchr(path, '/'); rc == 0 && slash && (size_t)(slash - path) > strlen(w->path); slash = strrchr(path, '/')) {
        int fd;

        *slash = '\0';
        if (strcmp(path, last) == 0)
            return 0;
        fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        rc = fd < 0 || (fsync(fd) < 0 && errno != EINVAL) ? -errno : 0;
        if (fd >= 0)
            close(fd);
        if (strlen(path) > strlen(last) || !*last)
            strcpy(last, path);
    }
    return rc ? failed(w, file, NULL, CV_NO_OFFSET, rc, "its directory can't be synced", why) : 0;
}

static int close_it(struct cv_sink *s, struct cv_fail *why)
{
    struct raw *w = (struct raw *)s;
    char last[PATH_MAX] = "";
    int rc = 0;

    for (uint64_t f = 0; f < w->nfiles && rc == 0; f++) {
        rc = sync_file(w, f, why);
        rc = rc ? rc : sync_between(w, f, last, why);
    }
    forget(w);
    return rc;
}

/* ---------------------------------------------------------------- writing */

/* One block's part of a box. */
struct part {
    const struct cv_dataset *to;
    const struct cv_block *block;
    const uint8_t *box;
    const uint64_t *lo;
    uint64_t box_step[CV_RANK_MAX];            /* distances in the box, bytes */
    uint64_t file_step[CV_RANK_MAX];           /* in the file */
    uint64_t from[CV_RANK_MAX], n[CV_RANK_MAX]; /* stored elements that the box has */
    uint64_t at[CV_RANK_MAX], of[CV_RANK_MAX]; /* that are written: these, and those outside of the array */
};

static int write_all(struct raw *w, const struct part *p, uint64_t off, const uint8_t *data, size_t len, struct cv_fail *why)
{
    int fd = open_file(w, p->block->input, 0, why);

    if (fd < 0)
        return fd;
    while (len) {
        int rc = FP_FAULT_POINT("convert-raw-write");
        ssize_t n = rc ? -1 : pwrite(fd, data, len, (off_t)off);

        if (n < 0 && rc == 0 && errno == EINTR)
            continue;
        if (n < 0)
            return failed(w, p->block->input, p->to->name, off, rc ? rc : -errno, "it can't be written", why);
        off += (uint64_t)n;
        data += n;
        len -= (size_t)n;
    }
    return 0;
}

/* at[], of[] of the stored elements, which lie in the file without a gap and in the buffer have room: zeros outside of the array, the box's elements inside. */
static int write_run(struct raw *w, const struct part *p, const uint64_t *at, const uint64_t *of, struct cv_fail *why)
{
    uint64_t from_step[CV_RANK_MAX], to_step[CV_RANK_MAX], count[CV_RANK_MAX], off = p->block->offset_bytes, elements = 1;
    unsigned rank = p->to->rank;
    size_t size = p->to->type.size_bytes;
    const uint8_t *from = p->box;
    uint8_t *to = w->buffer;
    bool all = true;

    cv_box_steps(of, rank, size, to_step);
    for (unsigned i = 0; i < rank; i++) {
        uint64_t lo = at[i] > p->from[i] ? at[i] : p->from[i], end = at[i] + of[i] < p->from[i] + p->n[i] ? at[i] + of[i] : p->from[i] + p->n[i];

        if (lo >= end)
            return 0;
        count[i] = end - lo;
        all &= count[i] == of[i];
        elements *= of[i];
        off += at[i] * p->file_step[i];
        from += (uint64_t)(first_stored(p->block, i) + (int64_t)(lo * p->block->stride[i]) - (int64_t)p->lo[i]) * p->box_step[i];
        from_step[i] = p->box_step[i] * p->block->stride[i];
        to += (lo - at[i]) * to_step[i];
    }
    if (!all)
        memset(w->buffer, 0, elements * size);
    cv_box_copy(from, from_step, to, to_step, count, rank, size);
    cv_numbers_turn(w->buffer, elements, p->to->type);
    return write_all(w, p, off, w->buffer, elements * size, why);
}

/* From dimension `level` on, at one place of those before it. As deep as the dimensions are many. */
static int write_from(struct raw *w, const struct part *p, unsigned level, uint64_t *at, uint64_t *of, struct cv_fail *why)
{
    uint64_t inner = p->to->type.size_bytes, end, run = 1;
    bool whole = true; /* rows behind this dimension follow one another */
    int rc = 0;

    if (level == p->to->rank)
        return write_run(w, p, at, of, why);
    for (unsigned i = level + 1; i < p->to->rank; i++) {
        inner *= p->of[i];
        whole &= p->of[i] == cv_block_stored(p->block, i);
    }
    end = p->at[level] + p->of[level];
    if (whole && inner <= w->buffer_bytes)
        run = w->buffer_bytes / inner;
    for (at[level] = p->at[level]; at[level] < end && rc == 0; at[level] += of[level]) {
        of[level] = end - at[level] < run ? end - at[level] : run;
        if (whole && inner <= w->buffer_bytes) {
            for (unsigned i = level + 1; i < p->to->rank; i++) {
                at[i] = p->at[i];
                of[i] = p->of[i];
            }
            rc = write_run(w, p, at, of, why);
        } else {
            rc = write_from(w, p, level + 1, at, of, why);
        }
    }
    return rc;
}

static int write_part(struct raw *w, size_t k, const struct cv_block *b, const uint64_t *lo, const uint64_t *count, const uint8_t *buf, struct cv_fail *why)
{
    const struct cv_dataset *d = w->targets[k].to;
    uint64_t stored[CV_RANK_MAX], at[CV_RANK_MAX] = {0}, of[CV_RANK_MAX] = {0};
    struct part p = {.to = d, .block = b, .box = buf, .lo = lo};

    for (unsigned i = 0; i < d->rank; i++) {
        uint64_t inside, first;

        p.n[i] = stored_in(b, i, lo[i], count[i], &p.from[i]);
        if (!p.n[i])
            return 0;
        stored[i] = cv_block_stored(b, i);
        inside = stored_in(b, i, 0, d->dims[i].size, &first);
        p.at[i] = inside == p.n[i] ? 0 : p.from[i];
        p.of[i] = inside == p.n[i] ? stored[i] : p.n[i];
    }
    cv_box_steps(stored, d->rank, d->type.size_bytes, p.file_step);
    cv_box_steps(count, d->rank, d->type.size_bytes, p.box_step);
    return write_from(w, &p, 0, at, of, why);
}

/* Blocks overlap, and the array may have elements that none of them has: what is not in the files would be lost. */
static int look_for_gaps(struct raw *w, size_t k, const uint64_t *lo, const uint64_t *count, struct cv_fail *why)
{
    const struct cv_dataset *d = w->targets[k].to;
    struct cv_box box, part;
    uint64_t n, step[CV_RANK_MAX], to_step[CV_RANK_MAX], zero[CV_RANK_MAX] = {0};
    static const uint8_t one = 1;

    memcpy(box.lo, lo, d->rank * sizeof *lo);
    memcpy(box.count, count, d->rank * sizeof *count);
    n = cv_box_elements(&box, d->rank);
    if (n > w->seen_bytes) {
        free(w->seen);
        w->seen = malloc(n);
        w->seen_bytes = w->seen ? n : 0;
        if (!w->seen)
            return no_memory(why);
    }
    memset(w->seen, 0, n);
    cv_box_steps(count, d->rank, 1, step);
    for (size_t i = 0; i < d->nblocks; i++) {
        const struct cv_block *b = &d->blocks[i];
        uint8_t *to = w->seen;

        if (!cv_box_of_block(b, &box, d->rank, &part))
            continue;
        for (unsigned j = 0; j < d->rank; j++) {
            to += (b->start[j] + part.lo[j] * b->stride[j] - lo[j]) * step[j];
            to_step[j] = step[j] * b->stride[j];
        }
        cv_box_copy(&one, zero, to, to_step, part.count, d->rank, 1);
    }
    return memchr(w->seen, 0, n) ? cv_fail(why, -EINVAL, w->path, d->name, CV_NO_OFFSET, "some of its elements belong in no file: the schema's blocks leave them out") : 0;
}

static int write_it(struct cv_sink *s, size_t k, const uint64_t *lo, const uint64_t *count, const void *buf, struct cv_fail *why)
{
    struct raw *w = (struct raw *)s;
    const struct target *t = &w->targets[k];
    int rc = t->may_miss ? look_for_gaps(w, k, lo, count, why) : 0;

    for (unsigned i = 0; i < t->to->rank; i++)
        if (!count[i])
            return 0;
    for (size_t n = first_that_reaches(t, t->to->rank ? lo[0] : 0); n < t->to->nblocks && rc == 0; n++) {
        const struct cv_block *b = &t->to->blocks[t->order[n]];

        if (t->to->rank && first_stored(b, 0) >= (int64_t)(lo[0] + count[0]))
            break;
        rc = write_part(w, k, b, lo, count, buf, why);
    }
    return rc;
}

const struct cv_sink_ops cv_sink_raw = {
    .name = "raw",
    .summary = "bare arrays, in files of as many ranks as a schema says",
    .ending = "",
    .chunked = false,
    .any_box = true,
    .create = create,
    .write = write_it,
    .close = close_it,
    .abandon = abandon,
};
