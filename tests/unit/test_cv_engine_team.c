/* A rank of several that make one result (engine/run.c), without MPI: what the others say is the test's, and a sink that only makes its file. */
#include "tests/unit/cv_fake.h"

#include <sys/stat.h>
#include <unistd.h>

#include "convert/engine/engine.h"
#include "convert/engine/result.h"
#include "convert/engine/team.h"

static char dir[] = "/tmp/cv-team-XXXXXX", path[64];
static bool differ;           /* another rank has another model */
static unsigned created, closed, synced; /* synced: since it was closed */
static int no_sync;           /* errno of fsync; 0: it does */
static struct cv_result of_first; /* what rank 0 has begun */

int __wrap_cv_team_join(struct cv_team *t, bool parallel, struct cv_fail *why);
int __wrap_cv_team_agree(const struct cv_team *t, int rc, struct cv_fail *why);
bool __wrap_cv_team_same(const struct cv_team *t, uint64_t number);
void __wrap_cv_team_share(const struct cv_team *t, void *data, size_t bytes);
int __wrap_fsync(int fd);

int __wrap_cv_team_join(struct cv_team *t, bool parallel, struct cv_fail *why)
{
    (void)why;
    assert_true(parallel);
    *t = (struct cv_team){.rank = 1, .size = 2};
    return 0;
}

int __wrap_cv_team_agree(const struct cv_team *t, int rc, struct cv_fail *why)
{
    (void)t, (void)why;
    return rc;
}

bool __wrap_cv_team_same(const struct cv_team *t, uint64_t number)
{
    (void)t, (void)number;
    return !differ;
}

void __wrap_cv_team_share(const struct cv_team *t, void *data, size_t bytes)
{
    (void)t;
    if (bytes == sizeof of_first)
        memcpy(data, &of_first, bytes);
}

int __wrap_fsync(int fd)
{
    struct stat is, wanted;

    assert_int_equal(fstat(fd, &is), 0);
    assert_int_equal(stat(of_first.temporary, &wanted), 0);
    synced += closed && is.st_ino == wanted.st_ino;
    errno = no_sync;
    return no_sync ? -1 : 0;
}

/* ---------------------------------------------------------------- the sink */

static struct cv_sink the_sink;

static int sink_create(const char *at, const struct cv_model *m, const uint64_t (*chunk)[CV_RANK_MAX], const struct cv_sink_options *o, struct cv_sink **out, struct cv_fail *why)
{
    FILE *f = fopen(at, "w");
    (void)m, (void)chunk, (void)why;

    assert_non_null(f);
    fclose(f);
    assert_true(o->parallel);
    created++;
    *out = &the_sink;
    return 0;
}

static int sink_write(struct cv_sink *s, size_t k, const uint64_t *lo, const uint64_t *count, const void *buf, struct cv_fail *why)
{
    (void)s, (void)k, (void)lo, (void)count, (void)buf, (void)why;
    return 0;
}

static int sink_close(struct cv_sink *s, struct cv_fail *why)
{
    (void)s, (void)why;
    closed++;
    return 0;
}

static void sink_abandon(struct cv_sink *s)
{
    (void)s;
}

static const struct cv_sink_ops ops = {.name = "fake", .summary = "", .ending = ".fake", .chunked = true, .create = sink_create, .write = sink_write, .close = sink_close, .abandon = sink_abandon};

/* ---------------------------------------------------------------- tests */

static int run(struct cv_fail *why)
{
    struct fake *f = fake_new(60, &(struct fake_options){.datasets = 2, .rank = 2});
    struct cv_job j = {.from = f->s.ops, .to = &ops, .path = path, .memory_bytes = 1u << 20, .out.parallel = true};
    int rc;

    fake_given = f;
    created = closed = synced = 0;
    the_sink.ops = &ops;
    rc = cv_job_run(&j, why);
    fake_free(f);
    return rc;
}

static void test_ranks_that_would_create_other_arrays_create_none(void **state)
{
    struct cv_fail why = {0};
    (void)state;

    differ = true;
    assert_int_equal(run(&why), -EINVAL);
    assert_non_null(strstr(why.text, "do not agree"));
    assert_int_equal(created, 0);
    differ = false;
    why = (struct cv_fail){0};
    assert_int_equal(run(&why), 0);
    assert_int_equal(created, 1);
    assert_int_equal(unlink(of_first.temporary), 0);
}

/* What it wrote may be in the caches of its node alone when rank 0 gives the result its name. */
static void test_each_rank_syncs_what_it_wrote(void **state)
{
    struct cv_fail why = {0};
    (void)state;

    assert_int_equal(run(&why), 0);
    assert_int_equal(closed, 1);
    assert_int_equal(synced, 1);
    no_sync = EIO;
    assert_int_equal(run(&why), -EIO);
    assert_non_null(strstr(why.text, "can't be synced"));
    assert_string_equal(why.file, path);
    no_sync = 0;
    assert_int_equal(unlink(of_first.temporary), 0);
}

static int set_up(void **state)
{
    struct cv_fail why = {0};
    (void)state;

    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/out.fake", dir);
    return cv_result_begin(&of_first, path, &why);
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_that_would_create_other_arrays_create_none),
        cmocka_unit_test(test_each_rank_syncs_what_it_wrote),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
