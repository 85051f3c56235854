/* fp-drain in a directory that takes no marker: known by what it is, read, and never written to; and the day that it takes one. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fp/fault.h"
#include "fp/targetid.h"
#include "tests/unit/drain_world.h"

#define TMP "a5a5a5a5-7-1"

static struct dw d;
static uint8_t id[FP_TARGETID_BYTES];

static int setup(void **state)
{
    (void)state;
    fp_fault_set(NULL);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    dw_stop(&d);
    fp_fault_set(NULL);
    return 0;
}

/* A worker of the directory as it is known without a marker. */
static void start_unmarked(void)
{
    static struct dw first; /* its threads know it by its address */

    dw_start_raw(&first);
    dw_config(&first, 1);
    fp_fault_set("drain.open=EROFS:count=1"); /* of making the marker */
    assert_int_equal(dw_probe(&first, true), 0);
    assert_true(fp_fault_fired("drain.open"));
    fp_fault_set(NULL);
    assert_true(fp_target_is_unmarked(first.done.unmarked));
    assert_int_equal(first.why[0], 0);
    memcpy(id, first.done.unmarked, sizeof(id));
    dw_start_raw(&d);
    assert_int_equal(rmdir(d.root), 0);
    assert_int_equal(rename(first.root, d.root), 0); /* the same directory */
    dw_config_as(&d, 2, id);
    dw_stop(&first);
}

static int probe_to_mark(const uint8_t *mark)
{
    struct fp_dw_file m = { .h = { .type = FP_DW_PROBE, .id = ++d.next_id, .gen = d.gen }, .flags = FP_DW_MAKE_MARKER, .tmp_bytes = 1,
                            .mark_bytes = FP_TARGETID_BYTES };
    uint8_t more[1 + FP_TARGETID_BYTES] = "p";

    memcpy(more + 1, mark, FP_TARGETID_BYTES);
    dw_send(&d, &m, sizeof(m), more, sizeof(more), -1);
    dw_wait(&d);
    return d.done.status;
}

static bool is_empty(void)
{
    return rmdir(d.root) == 0 && mkdir(d.root, 0755) == 0;
}

static void test_what_takes_no_marker_is_known_by_what_it_is(void **state)
{
    (void)state;
    start_unmarked();
    assert_int_equal(dw_probe(&d, false), 0); /* it is there */
    assert_true(is_empty());
}

static void test_nothing_is_written_there(void **state)
{
    struct fp_dw_file m = { 0 };

    (void)state;
    start_unmarked();
    assert_int_equal(dw_prepare(&d, "f", TMP, 10), -EROFS);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_TARGET);
    assert_int_equal(dw_finish(&d, "f", TMP, 1, 10), -EROFS);
    assert_int_equal(dw_file(&d, FP_DW_CLEAN, &m, "", TMP), -EROFS);
    assert_int_equal(dw_file(&d, FP_DW_STAT, &m, "f", ""), -ENOENT); /* looking is well */
    assert_true(is_empty());
}

static void test_another_directory_is_not_it(void **state)
{
    char away[512];
    uint8_t mark[FP_TARGETID_BYTES];

    (void)state;
    memset(mark, 0x11, sizeof(mark));
    start_unmarked();
    snprintf(away, sizeof(away), "%s-away", d.root);
    assert_int_equal(rename(d.root, away), 0);
    assert_int_equal(mkdir(d.root, 0755), 0);
    assert_int_equal(dw_probe(&d, false), -ENOMEDIUM);
    assert_non_null(strstr(d.why, "staged in from before"));
    assert_int_equal(probe_to_mark(mark), -ENOMEDIUM); /* nor does it get the marker */
    assert_int_equal(d.done.scope, FP_DW_SCOPE_TARGET);
    assert_int_equal(rmdir(d.root), 0);
    assert_int_equal(rename(away, d.root), 0);
    assert_int_equal(dw_probe(&d, false), 0);
}

static void test_it_gets_its_marker_when_it_can_be_written_to(void **state)
{
    uint8_t mark[FP_TARGETID_BYTES], none[FP_TARGETID_BYTES] = { 0 };
    char text[256] = "";
    int fd;

    (void)state;
    memset(mark, 0x11, sizeof(mark));
    start_unmarked();
    fp_fault_set("drain.open=EACCES:count=1");
    assert_int_equal(probe_to_mark(mark), 0);
    assert_true(fp_fault_fired("drain.open"));
    fp_fault_set(NULL);
    assert_memory_equal(d.done.unmarked, id, sizeof(id)); /* not yet */
    assert_true(is_empty() && !dw_exists(&d, FP_DW_MARKER));
    dw_stop(&d);
    start_unmarked();
    assert_int_equal(probe_to_mark(mark), 0);
    assert_memory_equal(d.done.unmarked, none, sizeof(none));
    fd = open(dw_path(&d, FP_DW_MARKER), O_RDONLY);
    assert_int_equal(read(fd, text, sizeof(text)), 66);
    close(fd);
    assert_string_equal(text, "a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5 11111111111111111111111111111111\n");
    assert_int_equal(dw_probe(&d, false), 0); /* who reads by what it was goes on */
    assert_int_equal(dw_prepare(&d, "f", TMP, 10), -EROFS);
}

/* The marker is there and the file system has become read-only since: that is a target that takes nothing, not one without a marker. */
static void test_a_target_that_turns_read_only_stays_one(void **state)
{
    (void)state;
    dw_start(&d);
    fp_fault_set("drain.open=EROFS:count=1");
    assert_int_equal(dw_probe(&d, true), -EROFS);
    assert_true(fp_fault_fired("drain.open"));
    assert_false(fp_target_is_unmarked(d.done.unmarked));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(test_what_takes_no_marker_is_known_by_what_it_is),
        T(test_nothing_is_written_there),
        T(test_another_directory_is_not_it),
        T(test_it_gets_its_marker_when_it_can_be_written_to),
        T(test_a_target_that_turns_read_only_stays_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
