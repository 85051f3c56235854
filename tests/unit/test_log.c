/* Log lines: one line per event, whatever is in the text, from any number of threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fp/log.h"

/* stderr goes to a temporary file while a test logs. */
static int saved_stderr = -1;
static FILE *captured;

static void capture_begin(void)
{
    captured = tmpfile();
    assert_non_null(captured);
    saved_stderr = dup(STDERR_FILENO);
    dup2(fileno(captured), STDERR_FILENO);
}

static char *capture_end(void)
{
    static char text[1 << 20];
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    ssize_t n = pread(fileno(captured), text, sizeof text - 1, 0);
    assert_true(n >= 0);
    text[n] = '\0';
    fclose(captured);
    return text;
}

static void test_a_line_has_program_level_and_text(void **state)
{
    (void)state;
    fp_log_init("fp-test", FP_LOG_INFO);
    capture_begin();
    FP_ERROR("disk %s is full", "sda");
    FP_WARN("w");
    FP_INFO("i %d", 7);
    assert_string_equal(capture_end(),
                        "fp-test: ERROR: disk sda is full\nfp-test: WARN: w\nfp-test: INFO: i 7\n");
    assert_string_equal(fp_log_progname(), "fp-test");
}

static int evaluated;
static int count_evaluation(void)
{
    return ++evaluated;
}

static void test_lines_below_the_level_are_dropped_and_cost_nothing(void **state)
{
    (void)state;
    fp_log_init("fp-test", FP_LOG_WARN);
    capture_begin();
    FP_INFO("hidden %d", count_evaluation());
    fp_log(FP_LOG_DEBUG, "hidden");
    FP_WARN("shown");
    assert_string_equal(capture_end(), "fp-test: WARN: shown\n");
    assert_int_equal(evaluated, 0);
    fp_log_set_level(FP_LOG_DEBUG);
    assert_true(fp_log_enabled(FP_LOG_DEBUG));
}

static void test_control_characters_cannot_fake_a_line(void **state)
{
    (void)state;
    fp_log_init("fp-test", FP_LOG_INFO);
    capture_begin();
    FP_INFO("file 'a\nfp-test: ERROR: b\r\033[2J\x7f' caf\xc3\xa9");
    assert_string_equal(capture_end(),
                        "fp-test: INFO: file 'a\\x0afp-test: ERROR: b\\x0d\\x1b[2J\\x7f' caf\xc3\xa9\n");
}

static void test_long_text_is_cut_and_says_so(void **state)
{
    static char big[10000];
    (void)state;
    for (int control = 0; control < 2; control++) {
        memset(big, control ? '\n' : 'x', sizeof big - 1);
        capture_begin();
        FP_INFO("%s", big);
        char *line = capture_end();
        size_t len = strlen(line);
        assert_in_range(len, 1900, 2048);
        assert_string_equal(line + len - 4, "...\n");
        assert_ptr_equal(strchr(line, '\n'), line + len - 1);
    }
}

static void test_errno_survives(void **state)
{
    (void)state;
    capture_begin();
    errno = ENOSPC;
    FP_INFO("%m");
    int after = errno;
    assert_string_equal(capture_end(), "fp-test: INFO: No space left on device\n");
    assert_int_equal(after, ENOSPC);
}

#define THREADS 8
#define LINES   200

static void *chatter(void *arg)
{
    char text[300];
    memset(text, 'a' + (int)(intptr_t)arg, sizeof text - 1);
    text[sizeof text - 1] = '\0';
    for (int i = 0; i < LINES; i++)
        FP_INFO("%s", text);
    return NULL;
}

static void test_lines_of_threads_never_mix(void **state)
{
    pthread_t threads[THREADS];
    int lines = 0;
    char *save = NULL;
    (void)state;
    fp_log_init("t", FP_LOG_INFO);
    capture_begin();
    for (intptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, chatter, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (char *l = strtok_r(capture_end(), "\n", &save); l; l = strtok_r(NULL, "\n", &save), lines++) {
        assert_int_equal(strlen(l), strlen("t: INFO: ") + 299);
        assert_int_equal(strspn(l + 9, (char[]){l[9], 0}), 299);
    }
    assert_int_equal(lines, THREADS * LINES);
}

static void test_limit_lets_one_line_pass_per_interval_and_counts_the_rest(void **state)
{
    struct fp_log_limit limit = {0};
    uint64_t suppressed = 99;
    (void)state;
    assert_true(fp_log_limit_pass(&limit, 0, 1000, &suppressed));
    assert_int_equal(suppressed, 0);
    assert_false(fp_log_limit_pass(&limit, 1, 1000, &suppressed));
    assert_false(fp_log_limit_pass(&limit, 999, 1000, &suppressed));
    assert_true(fp_log_limit_pass(&limit, 1000, 1000, &suppressed));
    assert_int_equal(suppressed, 2);
    assert_true(fp_log_limit_pass(&limit, 5000, 1000, &suppressed));
    assert_int_equal(suppressed, 0);
}

static void test_limited_line_says_how_many_were_swallowed(void **state)
{
    struct fp_log_limit limit = {0};
    (void)state;
    fp_log_init("t", FP_LOG_INFO);
    capture_begin();
    for (int i = 0; i < 5; i++)
        fp_log_limited(&limit, 3600000, FP_LOG_WARN, "no answer from %s", "n1");
    limit.next_ms = 0;
    fp_log_limited(&limit, 3600000, FP_LOG_WARN, "no answer from %s", "n1");
    for (int i = 0; i < 3; i++)
        FP_LOG_EVERY(3600000, FP_LOG_WARN, "again %d", i);
    assert_string_equal(capture_end(), "t: WARN: no answer from n1\n"
                                       "t: WARN: no answer from n1 (4 similar lines suppressed)\n"
                                       "t: WARN: again 0\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line_has_program_level_and_text),
        cmocka_unit_test(test_lines_below_the_level_are_dropped_and_cost_nothing),
        cmocka_unit_test(test_control_characters_cannot_fake_a_line),
        cmocka_unit_test(test_long_text_is_cut_and_says_so),
        cmocka_unit_test(test_errno_survives),
        cmocka_unit_test(test_lines_of_threads_never_mix),
        cmocka_unit_test(test_limit_lets_one_line_pass_per_interval_and_counts_the_rest),
        cmocka_unit_test(test_limited_line_says_how_many_were_swallowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
