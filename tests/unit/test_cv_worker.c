/* What a conversion says to its coordinator (cmd_run.c), and what that hears (watch/worker.c): a text that is lost there may cost the dump. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "convert/cmd_run.c"
#include "convert/watch/worker.h"

#include <fcntl.h>
#include <poll.h>

#include "fp/auxapp.h"

static struct cw_worker w;
static struct telling to;

static int setup(void **state)
{
    int fd[2];
    (void)state;

    if (pipe2(fd, O_CLOEXEC | O_NONBLOCK) < 0)
        return -1;
    w = (struct cw_worker){.status_fd = fd[0], .lock_fd = -1};
    to = (struct telling){.fd = fd[1]};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    close(to.fd);
    cw_worker_fini(&w);
    return 0;
}

/* Directories of other encodings, and what was cut inside of a character. */
static void test_what_is_left_out_is_heard_whatever_bytes_it_has(void **state)
{
    static const struct {
        const char *said, *heard;
    } texts[] = {{"/a/dump.fpd: cut off between groups", "/a/dump.fpd: cut off between groups"},
                 {"/d\xc3\xa9p\xc3\xb4t/\xe2\x82\xac/\xf0\x9f\x98\x80.fpd", "/d\xc3\xa9p\xc3\xb4t/\xe2\x82\xac/\xf0\x9f\x98\x80.fpd"},
                 {"/d\xe9p\xf4t/\xff.fpd", "/d?p?t/?.fpd"},
                 {"\x80\xbf: \xed\xa0\x80 \xc0\xaf \xf5\x80", "??: ??? ?? ??"},
                 {"cut off at \xc3", "cut off at ?"},
                 {"cut off at \xe2\x82", "cut off at ??"},
                 {"cut off at \xf0\x9f\x98", "cut off at ???"},
                 {"\"line\n", "\"line\n"}};
    (void)state;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        w.left_out[0] = '\0';
        left_out(&to, texts[i].said);
        cw_worker_hear(&w);
        assert_string_equal(w.left_out, texts[i].heard);
    }
}

static void test_why_it_failed_is_heard_whatever_bytes_it_has(void **state)
{
    struct cv_fail why = {.file = "/d\xe9p\xf4t/rank_\xe9.raw", .dataset = "/t\xe9", .offset_bytes = 7, .text = "the file ends here, \xc3"};
    (void)state;

    assert_int_equal(cv_command_failed(-ENODATA, &why, to.fd), 1);
    cw_worker_hear(&w);
    assert_string_equal(w.said, "rank_?.raw: dataset /t?: byte 7: the file ends here, ?");
    assert_true(w.bad);
}

/* The longest path, and each of its bytes written as \u0001. */
static void test_why_it_failed_is_heard_however_long_it_is(void **state)
{
    struct cv_fail why = {.dataset = "/t", .offset_bytes = CV_NO_OFFSET};
    (void)state;

    memset(why.file, 1, sizeof why.file - 1);
    memcpy(why.file + sizeof why.file - 7, "/a.raw", 6);
    memset(why.text, 2, sizeof why.text - 1);
    assert_int_equal(cv_command_failed(-ENODATA, &why, to.fd), 1);
    cw_worker_hear(&w);
    assert_int_equal(strncmp(w.said, "a.raw: dataset /t: \2\2", 21), 0);
    assert_true(w.bad);
}

static void *no_memory(size_t bytes)
{
    (void)bytes;
    return NULL;
}

static void test_that_something_is_wrong_is_heard_without_memory(void **state)
{
    struct cv_fail why = {.offset_bytes = CV_NO_OFFSET, .text = "why"};
    (void)state;

    json_set_alloc_funcs(no_memory, free);
    (void)progress(&to, 1, 2);
    left_out(&to, "what");
    assert_int_equal(cv_command_failed(-ENODATA, &why, to.fd), 1);
    json_set_alloc_funcs(malloc, free);
    cw_worker_hear(&w);
    assert_string_equal(w.left_out, "?");
    assert_string_equal(w.said, "?");
    assert_true(w.bad);
}

/* ---------------------------------------------------------------- its log */

static char told[40][400];
static unsigned ntold;

void __wrap_cw_tell_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

void __wrap_cw_tell_log(int level, const char *format, ...)
{
    va_list args;

    assert_int_equal(level, FP_AUX_WARN);
    assert_true(ntold < 40);
    va_start(args, format);
    vsnprintf(told[ntold++], sizeof told[0], format, args);
    va_end(args);
}

static int take_no_options(int argc, char **argv)
{
    struct telling t = {.fd = CW_STATUS_FD};

    assert_true(argc == 2 && strcmp(argv[1], "run") == 0);
    note(&t, "/t: the shape of chunks has 2 dimensions");
    FP_WARN("%s: dataset %s is passed over", "/in.h5", "/names");
    FP_WARN("%s: dataset %s is passed over", "/in.h5", "/names");
    left_out(&t, "a group");
    return cv_command_mistake("--chunk is for hdf5 and netcdf", "run");
}

static int say_much(int argc, char **argv)
{
    (void)argc, (void)argv;
    for (unsigned i = 0; i < 1000; i++)
        FP_WARN("/in.%u.h5: a link is passed over", i);
    return 0;
}

static enum cw_end run_to_its_end(int (*what)(int argc, char **argv))
{
    const char *words[] = {"fp-convert", "run", NULL};
    char list[] = "/in.h5";
    const struct cw_argv l = {.items = words, .n = 2, .inputs = {.text = list, .len = sizeof list}};
    enum cw_end end = CW_END_CRASH;

    w = (struct cw_worker){.status_fd = -1, .lock_fd = -1, .result = strdup("run/d.h5"), .action.what = CW_CONVERT};
    ntold = 0;
    assert_int_equal(cw_worker_start(&w, &l, what, -1), 0);
    while (!cw_worker_ended(&w, &end))
        poll(NULL, 0, 1);
    return end;
}

/* What it says on standard error nobody sees. */
static void test_its_log_is_told_and_no_line_twice(void **state)
{
    static const char why[] = "--chunk is for hdf5 and netcdf: fp-convert run --help";
    char text[200];
    (void)state;

    for (int i = 0; i < 2; i++) {
        assert_int_equal(run_to_its_end(take_no_options), CW_END_BAD);
        snprintf(text, sizeof text, "fp-convert does not take its options: %s", why);
        assert_string_equal(w.said, text);
        assert_string_equal(w.left_out, "a group");
        assert_int_equal(ntold, i ? 0 : 3);
        cw_worker_fini(&w);
    }
    assert_string_equal(told[0], "run/d.h5: /t: the shape of chunks has 2 dimensions");
    assert_string_equal(told[1], "run/d.h5: /in.h5: dataset /names is passed over");
    snprintf(text, sizeof text, "run/d.h5: %s", why);
    assert_string_equal(told[2], text);
}

static void test_one_conversion_does_not_fill_the_log(void **state)
{
    (void)state;
    assert_int_equal(run_to_its_end(say_much), CW_END_DONE);
    assert_int_equal(ntold, CW_NOTES + 1);
    assert_string_equal(told[CW_NOTES - 1], "run/d.h5: /in.15.h5: a link is passed over");
    assert_string_equal(told[CW_NOTES], "run/d.h5: its conversion says more of that kind");
    cw_worker_fini(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_left_out_is_heard_whatever_bytes_it_has, setup, teardown),
        cmocka_unit_test_setup_teardown(test_why_it_failed_is_heard_whatever_bytes_it_has, setup, teardown),
        cmocka_unit_test_setup_teardown(test_why_it_failed_is_heard_however_long_it_is, setup, teardown),
        cmocka_unit_test_setup_teardown(test_that_something_is_wrong_is_heard_without_memory, setup, teardown),
        cmocka_unit_test(test_its_log_is_told_and_no_line_twice),
        cmocka_unit_test(test_one_conversion_does_not_fill_the_log),
    };

    fp_log_init("fp-convert", FP_LOG_INFO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
