/* Tables: aligned whatever is in the cells, plain when nobody looks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fp/table.h"

static const struct fp_table_col cols[] = {{"NODE", false}, {"USED", true}, {"STATE", false}};

static char *printed(struct fp_table *t)
{
    static char *text;
    size_t len;
    free(text);
    FILE *f = open_memstream(&text, &len);
    assert_non_null(f);
    assert_int_equal(fp_table_print(t, f), 0);
    fclose(f);
    fp_table_free(t);
    return text;
}

static void test_columns_are_as_wide_as_their_widest_cell(void **state)
{
    struct fp_table *t = fp_table_new(cols, 3);
    (void)state;
    fp_table_cell(t, "n%d", 1);
    fp_table_cell_size(t, 1610612736);
    fp_table_cell_styled(t, FP_STYLE_GOOD, "up");
    fp_table_cell(t, "node-with-long-name");
    fp_table_cell_size(t, 7);
    fp_table_cell_styled(t, FP_STYLE_BAD, "down");
    assert_string_equal(printed(t), "NODE                    USED  STATE\n"
                                    "n1                   1.5 GiB  up\n"
                                    "node-with-long-name      7 B  down\n");
}

static void test_titles_alone_when_there_are_no_rows(void **state)
{
    (void)state;
    assert_string_equal(printed(fp_table_new(cols, 3)), "NODE  USED  STATE\n");
}

static void test_cells_hold_counts_percentages_and_durations(void **state)
{
    static const struct fp_table_col two[] = {{"A", true}, {"B", true}};
    struct fp_table *t = fp_table_new(two, 2);
    (void)state;
    fp_table_cell_count(t, 0);
    fp_table_cell_count(t, 1234567);
    fp_table_cell_count(t, 999);
    fp_table_cell_count(t, UINT64_MAX);
    fp_table_cell_percent(t, 37, 100);
    fp_table_cell_percent(t, 1, 0);
    fp_table_cell_duration(t, 340);
    fp_table_cell(t, "x");
    assert_string_equal(printed(t), "     A                           B\n"
                                    "     0                   1,234,567\n"
                                    "   999  18,446,744,073,709,551,615\n"
                                    "  37 %                           -\n"
                                    "340 ms                           x\n");
}

static void test_names_cannot_control_the_terminal_and_utf8_is_aligned(void **state)
{
    struct fp_table *t = fp_table_new(cols, 3);
    (void)state;
    fp_table_cell(t, "a\033[2J\nb\t");
    fp_table_cell(t, "1");
    fp_table_cell(t, "x");
    fp_table_cell(t, "caf\xc3\xa9");
    fp_table_cell(t, "2");
    fp_table_cell(t, "y");
    assert_string_equal(printed(t), "NODE      USED  STATE\n"
                                    "a?[2J?b?     1  x\n"
                                    "caf\xc3\xa9         2  y\n");
}

static void test_colours_only_on_a_terminal(void **state)
{
    FILE *f = tmpfile();
    (void)state;
    assert_non_null(f);
    assert_false(fp_colour_wanted(f));
    assert_string_equal(fp_style_on(f, FP_STYLE_BAD), "");
    assert_string_equal(fp_style_off(f, FP_STYLE_BAD), "");
    fclose(f);
}

static void test_no_color_switches_colours_off_on_a_terminal(void **state)
{
    int fd = posix_openpt(2);
    (void)state;
    FILE *f = fd >= 0 ? fdopen(fd, "r+") : NULL;
    if (!f)
        skip();
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    assert_true(fp_colour_wanted(f));
    assert_string_equal(fp_style_on(f, FP_STYLE_BAD), "\033[31m");
    assert_string_equal(fp_style_on(f, FP_STYLE_NONE), "");
    setenv("NO_COLOR", "1", 1);
    assert_false(fp_colour_wanted(f));
    unsetenv("NO_COLOR");
    setenv("TERM", "dumb", 1);
    assert_false(fp_colour_wanted(f));
    fclose(f);
}

static void test_missing_table_reports_out_of_memory(void **state)
{
    (void)state;
    fp_table_cell(NULL, "x");
    assert_int_equal(fp_table_print(NULL, stdout), -ENOMEM);
    fp_table_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns_are_as_wide_as_their_widest_cell),
        cmocka_unit_test(test_titles_alone_when_there_are_no_rows),
        cmocka_unit_test(test_cells_hold_counts_percentages_and_durations),
        cmocka_unit_test(test_names_cannot_control_the_terminal_and_utf8_is_aligned),
        cmocka_unit_test(test_colours_only_on_a_terminal),
        cmocka_unit_test(test_no_color_switches_colours_off_on_a_terminal),
        cmocka_unit_test(test_missing_table_reports_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
