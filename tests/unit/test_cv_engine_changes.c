/* Inputs that are replaced, written or removed while a conversion opens or reads them (engine/changes.c): there is no result then. */
#include "tests/unit/cv_job.h"

static char inputs[2][80];
static const char *const two[] = {inputs[0], inputs[1]};
static unsigned opened, replace_until; /* as often as it is opened, a file is renamed over the first one meanwhile */

static void put_input(unsigned i, const char *text)
{
    FILE *f = fopen(inputs[i], "a");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void replace_input(void)
{
    char other[96];
    FILE *f;

    snprintf(other, sizeof other, "%s-new", inputs[0]);
    f = fopen(other, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(rename(other, inputs[0]), 0);
}

static int open_meanwhile(const struct cv_source_options *o, struct cv_source **out, struct cv_fail *why)
{
    if (++opened <= replace_until)
        replace_input();
    return fake_given->s.ops->open(o, out, why);
}

static enum { STAY, APPEND, REPLACE, GO } then; /* what the second input does in the midst */

static int change_it(void *arg, uint64_t done, uint64_t of)
{
    (void)arg, (void)done, (void)of;
    if (then == APPEND)
        put_input(1, "more");
    else if (then == REPLACE)
        assert_int_equal(rename(inputs[0], inputs[1]), 0);
    else if (then == GO)
        assert_int_equal(unlink(inputs[1]), 0);
    then = STAY;
    return 0;
}

static struct cv_source_ops meanwhile;

static struct cv_job job_of_files(struct fake *f)
{
    struct cv_job j = job_of(f, &chunked);

    meanwhile = *f->s.ops;
    meanwhile.open = open_meanwhile;
    j.from = &meanwhile;
    j.progress = change_it;
    j.in.paths = two;
    j.in.npaths = 2;
    for (unsigned i = 0; i < 2; i++) {
        snprintf(inputs[i], sizeof inputs[i], "%s/in-%u", dir, i);
        put_input(i, "input");
    }
    opened = 0;
    return j;
}

static void forget_files(void)
{
    (void)unlink(inputs[0]);
    (void)unlink(inputs[1]);
    (void)unlink(path);
    assert_int_equal(names(), 0);
}

static void test_job_of_inputs_that_are_replaced_while_they_are_opened(void **state)
{
    struct fake *f = fake_new(60, &(struct fake_options){.datasets = 1, .rank = 1});
    (void)state;

    for (replace_until = 0; replace_until < 5; replace_until++) {
        struct cv_job j = job_of_files(f);
        struct cv_fail why = {0};
        int rc = cv_job_run(&j, &why);

        assert_int_equal(rc, replace_until < 3 ? 0 : -EAGAIN);
        assert_int_equal(opened, replace_until < 3 ? replace_until + 1 : 3);
        assert_string_equal(why.file, rc ? inputs[0] : "");
        assert_int_equal(sink.calls > 0, rc == 0); /* said before the work */
        forget_files();
    }
    replace_until = 0;
    fake_free(f);
}

static void test_job_of_inputs_that_change_meanwhile_has_no_result(void **state)
{
    struct fake *f = fake_new(60, &(struct fake_options){.datasets = 1, .rank = 1});
    (void)state;

    for (unsigned how = STAY; how <= GO; how++) {
        struct cv_job j = job_of_files(f);
        struct cv_fail why = {0};

        then = how;
        assert_int_equal(cv_job_run(&j, &why), how == STAY ? 0 : -EAGAIN);
        assert_true(told == 0 && then == STAY);
        assert_string_equal(why.file, how == STAY ? "" : how == REPLACE ? inputs[0] : inputs[1]);
        forget_files();
    }
    fake_free(f);
}

static void test_job_of_inputs_that_are_not_there_opens_nothing(void **state)
{
    struct fake *f = fake_new(60, &(struct fake_options){.datasets = 1, .rank = 1});
    struct cv_job j = job_of_files(f);
    struct cv_fail why = {0};
    (void)state;

    assert_int_equal(unlink(inputs[1]), 0);
    assert_int_equal(cv_job_run(&j, &why), -ENOENT);
    assert_string_equal(why.file, inputs[1]);
    assert_int_equal(opened, 0);
    forget_files();
    fake_free(f);
}

/* A BP dump, by its own name or that of a file in it. What is written to another file has no effect on the time of the directory. */
static void test_job_sees_changes_in_an_input_that_is_a_directory(void **state)
{
    static const char *const as[] = {"dump.bp", "dump.bp/", "dump.bp/md.idx"};
    struct fake *f = fake_new(60, &(struct fake_options){.datasets = 1, .rank = 1});
    char bp[64], given[96];
    const char *one = given;
    (void)state;

    snprintf(bp, sizeof bp, "%s/dump.bp", dir);
    for (unsigned i = 0; i < 6; i++) {
        struct cv_job j = job_of_files(f);
        struct cv_fail why = {0};

        forget_files();
        assert_int_equal(mkdir(bp, 0777), 0);
        snprintf(inputs[0], sizeof inputs[0], "%s/md.idx", bp);
        snprintf(inputs[1], sizeof inputs[1], "%s/data.0", bp);
        put_input(0, "index");
        put_input(1, "data");
        snprintf(given, sizeof given, "%s/%s", dir, as[i / 2]);
        meanwhile.directory = cv_source_adios.directory;
        j.in.paths = &one;
        j.in.npaths = 1;
        then = i & 1 ? APPEND : STAY;
        assert_int_equal(cv_job_run(&j, &why), i & 1 ? -EAGAIN : 0);
        assert_string_equal(why.file, i & 1 ? given : "");
        assert_int_equal(unlink(inputs[0]), 0);
        assert_int_equal(unlink(inputs[1]), 0);
        assert_int_equal(rmdir(bp), 0);
        (void)unlink(path);
    }
    fake_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_job_of_inputs_that_are_replaced_while_they_are_opened),
        cmocka_unit_test(test_job_of_inputs_that_change_meanwhile_has_no_result),
        cmocka_unit_test(test_job_of_inputs_that_are_not_there_opens_nothing),
        cmocka_unit_test(test_job_sees_changes_in_an_input_that_is_a_directory),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
