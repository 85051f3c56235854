/* Conversions from a source in memory to a sink that puts boxes where they belong, in a directory of their own. For one test program each. */
#ifndef CV_JOB_H
#define CV_JOB_H

#include "tests/unit/cv_fake.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "convert/engine/engine.h"
#include "convert/engine/result.h"
#include "fp/fault.h"

static char dir[] = "/tmp/cv-job-XXXXXX", path[64], xmf[64];

/* ---------------------------------------------------------------- the sink */

static struct {
    struct cv_sink s;
    const struct cv_model *m;
    uint64_t chunk[4][CV_RANK_MAX];
    uint8_t *data[4], *times[4]; /* times: how often each element was written */
    unsigned calls, fail_at, open;
    bool fill, sparse;
    char temporary[PATH_MAX];
} sink;

static int fails(struct cv_fail *why)
{
    return ++sink.calls == sink.fail_at ? cv_fail(why, -ENOSPC, sink.temporary, NULL, CV_NO_OFFSET, "call %u of the sink was to fail", sink.calls) : 0;
}

static void put_file_at(const char *at)
{
    FILE *f = fopen(at, "w");

    assert_non_null(f);
    fputs("result", f);
    fclose(f);
}

static void put_file(void)
{
    put_file_at(sink.temporary);
}

static void sink_forget(void)
{
    for (unsigned k = 0; k < 4; k++) {
        free(sink.data[k]);
        free(sink.times[k]);
        sink.data[k] = sink.times[k] = NULL;
    }
}

/* A call that fails has made its file all the same: half a one. */
static int sink_create(const char *at, const struct cv_model *m, const uint64_t (*chunk)[CV_RANK_MAX], const struct cv_sink_options *o, struct cv_sink **out, struct cv_fail *why)
{
    sink_forget();
    snprintf(sink.temporary, sizeof sink.temporary, "%s", at);
    put_file();
    if (fails(why))
        return -ENOSPC;
    sink.m = m;
    sink.sparse = o->sparse;
    for (size_t k = 0; k < m->ndatasets; k++) {
        uint64_t n = fake_elements(&m->datasets[k]);

        memcpy(sink.chunk[k], chunk[k], sizeof sink.chunk[k]);
        sink.data[k] = malloc(n * m->datasets[k].type.size_bytes + 1);
        sink.times[k] = calloc(n + 1, 1);
        assert_true(sink.data[k] && sink.times[k]);
    }
    sink.open++;
    *out = &sink.s;
    return 0;
}

/* Chunked: whole chunks. Else: contiguous in the array, and behind what was written before. */
static void check_box(const struct cv_dataset *d, size_t k, const uint64_t *lo, const uint64_t *count)
{
    bool behind = false;

    for (unsigned i = 0; i < d->rank; i++) {
        uint64_t c = sink.chunk[k][i];

        assert_true(count[i] > 0 && lo[i] + count[i] <= d->dims[i].size);
        if (c)
            assert_true(lo[i] % c == 0 && (count[i] % c == 0 || lo[i] + count[i] == d->dims[i].size));
        else
            assert_true(!behind || (lo[i] == 0 && count[i] == d->dims[i].size));
        behind |= count[i] > 1;
    }
}

static int sink_write(struct cv_sink *s, size_t k, const uint64_t *lo, const uint64_t *count, const void *buf, struct cv_fail *why)
{
    const struct cv_dataset *d = &sink.m->datasets[k];
    uint64_t at[CV_RANK_MAX] = {0}, global[CV_RANK_MAX] = {0};
    size_t size = d->type.size_bytes;
    const uint8_t *from = buf;

    assert_ptr_equal(s, &sink.s);
    if (fails(why))
        return -ENOSPC;
    check_box(d, k, lo, count);
    do {
        for (unsigned i = 0; i < d->rank; i++)
            global[i] = lo[i] + at[i];
        memcpy(sink.data[k] + fake_place(d, global) * size, from, size);
        sink.times[k][fake_place(d, global)]++;
        from += size;
    } while (fake_next(at, count, d->rank));
    return 0;
}

static int sink_close(struct cv_sink *s, struct cv_fail *why)
{
    assert_ptr_equal(s, &sink.s);
    sink.open--;
    return fails(why);
}

static void sink_abandon(struct cv_sink *s)
{
    assert_ptr_equal(s, &sink.s);
    sink.open--;
}

static const struct cv_sink_ops chunked = {.name = "fake", .summary = "", .ending = ".fake", .chunked = true, .create = sink_create, .write = sink_write, .close = sink_close, .abandon = sink_abandon};

/* ---------------------------------------------------------------- runs */

static uint64_t told_done, told_of;
static unsigned told, interrupt_at;

static int progress(void *arg, uint64_t done, uint64_t of)
{
    (void)arg;
    assert_true(done >= told_done && done <= of);
    told_done = done;
    told_of = of;
    return ++told == interrupt_at ? -EINTR : 0;
}

static struct cv_job job_of(struct fake *f, const struct cv_sink_ops *to)
{
    struct cv_job j = {.from = f->s.ops, .to = to, .path = path, .memory_bytes = 1u << 20, .progress = progress};

    sink.s.ops = to;
    sink.calls = sink.fail_at = f->calls = f->fail_at = told = interrupt_at = 0;
    told_done = told_of = 0;
    fake_given = f;
    return j;
}

/* Names in the directory, but for . and .. */
static unsigned names(void)
{
    DIR *d = opendir(dir);
    unsigned n = 0;

    assert_non_null(d);
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        n += e->d_name[0] != '.' || strlen(e->d_name) > 2;
    closedir(d);
    return n;
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/out.fake", dir);
    snprintf(xmf, sizeof xmf, "%s/out.xmf", dir);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sink_forget();
    return rmdir(dir);
}

#endif
