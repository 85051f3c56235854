/* The file in a target over which another one is to be renamed may have the only copy of something that was evicted: while a benefactor with another copy is away, or has
 * not said yet what it has, that is not known, and the drain waits (manager/ext.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "manager/ext.h"
#include "mgr_evict_world.h"

static void for_some_time(unsigned seconds)
{
    for (unsigned i = 0; i < 2 * seconds; i++) {
        for (unsigned b = 0; b < 2; b++) {
            w_answer(&w, b, 0);
            while (w.bnf[b].n)
                w_work(&w, b, 0);
        }
        w_tick(&w, 500);
    }
}

/* old was evicted and is on benefactor 1 again, synced, which goes away; a drain of another file takes its name: before (or after) that has begun. */
static uint64_t come_without(uint64_t ids[3], bool after, bool verify)
{
    uint64_t ino, job = 0;

    e_open_evicted(&ino);
    for (unsigned i = 0; i < 3; i++)
        assert_true(e_staged(1, ids[i] = e_chunk_of(ino, i)));
    e_synced();
    assert_int_equal(fix_rename(&w.f, MGR_ROOT_INO, "a", MGR_ROOT_INO, "old", 0), 0);
    e_file_of(MGR_ROOT_INO, "a");
    if (after) {
        job = w_start(&w, "a", verify, NULL);
        e_come_to(verify ? FP__TASK_KIND__TASK_VERIFY : FP__TASK_KIND__TASK_WRITE);
        assert_ptr_equal(e_late_of, &w.bnf[0]);
        e_go_on();
    }
    w_bnf_dies(&w, 1);
    for_some_time(2);
    job = after ? job : w_start(&w, "a", verify, NULL);
    for_some_time(8);
    assert_int_equal(e_state_of(job, "which is away"), FP__DRAIN_STATE__DRAIN_RUNS);
    return job;
}

static void test_nothing_takes_the_place_of_a_copy_while_the_other_one_is_away(void **state)
{
    uint64_t ids[3], job;

    (void)state;
    for (unsigned k = 0; k < 6; k++) {
        job = come_without(ids, k > 1, k > 3);
        for_some_time(30);
        assert_int_equal(e_state_of(job, "which is away"), FP__DRAIN_STATE__DRAIN_RUNS);
        assert_int_equal(e_sql("SELECT count(*) FROM drain_file WHERE state=%d", k > 3 ? MGR_D_VERIFY : k > 1 ? MGR_D_PARTS : MGR_D_WAIT), 1);
        w_bnf_comes(&w, 1);
        for_some_time(10);
        assert_int_equal(e_state_of(job, "has not said yet"), FP__DRAIN_STATE__DRAIN_RUNS);
        assert_int_equal(w.renamed, 1);
        e_comes_back_with(1, ids, k % 2 ? 0 : 3); /* or its disk is empty */
        assert_int_equal(e_run_job(job, k % 2 ? "only synced copy" : NULL), k % 2 ? FP__DRAIN_STATE__DRAIN_FAILED : FP__DRAIN_STATE__DRAIN_DONE);
        assert_int_equal(w.renamed, k % 2 ? 1 : 2);
        assert_int_equal(w.f.core->drain->blocked.used, 0);
        e_check();
    }
}

/* It gives its place to others, and is written anew. */
static void test_what_is_written_does_not_wait_for_ever_to_take_the_place_of_a_copy(void **state)
{
    uint64_t ids[3], job;

    (void)state;
    job = come_without(ids, true, false);
    for_some_time(70);
    assert_int_equal(e_state_of(job, "which is away"), FP__DRAIN_STATE__DRAIN_RUNS);
    assert_int_equal(e_sql("SELECT count(*) FROM drain_file WHERE state=%d", MGR_D_WAIT), 1);
    assert_int_equal(w.f.core->drain->nfiles, 0);
    assert_int_equal(w.cleaned, 1);
    e_comes_back_with(1, ids, 3);
    assert_int_equal(e_run_job(job, NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(w.renamed, 2);
    e_check();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_takes_the_place_of_a_copy_while_the_other_one_is_away),
        cmocka_unit_test(test_what_is_written_does_not_wait_for_ever_to_take_the_place_of_a_copy),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
