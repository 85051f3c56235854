/* How far something is, as fpctl shows it to people: never more than is true. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "client/ctl/ctl.h"

static void is(uint64_t done, uint64_t all, uint64_t rate, const char *text)
{
    char buf[CTL_PROGRESS_BUF];

    assert_string_equal(ctl_progress_text(buf, done, all, rate), text);
}

static void test_a_bar_with_per_cent_rate_and_what_is_left(void **state)
{
    (void)state;
    is(0, 1000, 0, "[................]   0 %");
    is(250, 1000, 0, "[####............]  25 %");
    is(500000000, 1000000000, 50000000, "[########........]  50 %  50 MB/s  10 s left");
    is(0, UINT64_C(1) << 60, 1, "[................]   0 %  1 B/s");
}

static void test_all_is_said_when_it_is_so(void **state)
{
    (void)state;
    is(999999, 1000000, 0, "[###############.]  99 %");
    is(1000000, 1000000, 77, "[################] 100 %");
    is(0, 0, 0, "[################] 100 %"); /* empty files */
    is(7, 3, 1, "[################] 100 %");
}

static void test_what_is_left_is_rounded_up(void **state)
{
    (void)state;
    assert_int_equal(ctl_left_s(0, 1001, 1000), 2);
    assert_int_equal(ctl_left_s(0, 1000, 1000), 1);
    assert_int_equal(ctl_left_s(1000, 1000, 1000), 0);
    assert_int_equal(ctl_left_s(0, 1000, 0), 0);
}

static void test_when_it_is_looked_at_again(void **state)
{
    char buf[CTL_AGAIN_BUF];

    (void)state;
    assert_string_equal(ctl_again_text(buf, 0), "");
    assert_string_equal(ctl_again_text(buf, 12), " (looked at again in 12 s)");
}

/* What is written to stderr by one line of so many bytes of text, where stderr is no terminal: 79 columns. */
static void test_a_line_is_cut_between_characters(void **state)
{
    char text[200], got[300];
    int keep = dup(2), p[2];
    ssize_t n;

    (void)state;
    memset(text, 'x', 78);
    strcpy(text + 78, "\xc3\xa4 and more");
    assert_int_equal(pipe(p), 0);
    assert_true(dup2(p[1], 2) == 2);
    ctl_progress_line("%s", text);
    fflush(stderr);
    dup2(keep, 2);
    close(p[1]);
    n = read(p[0], got, sizeof got);
    close(p[0]);
    close(keep);
    assert_int_equal(n, 1 + 78 + 3);
    assert_memory_equal(got + 1 + 78, "\033[K", 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_bar_with_per_cent_rate_and_what_is_left),
        cmocka_unit_test(test_all_is_said_when_it_is_so),
        cmocka_unit_test(test_what_is_left_is_rounded_up),
        cmocka_unit_test(test_when_it_is_looked_at_again),
        cmocka_unit_test(test_a_line_is_cut_between_characters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
