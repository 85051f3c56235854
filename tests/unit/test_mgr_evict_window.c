/* Eviction by whole windows: what is coded, in pieces, or shared by files that may all go. */
#include <errno.h>
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
#include "fp/err.h"

static void test_a_window_of_many_pieces_goes_as_a_whole(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    assert_true(fix_write(&w.f, ino, 100, 1000) > 0);
    e_drain("a");
    assert_int_equal(e_sql("SELECT count(*) FROM slice WHERE win=0"), 3);
    assert_int_equal(e_evict("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_external(ino), 3);
    assert_int_equal(e_sql("SELECT count(*) FROM slice WHERE win=0"), 1);
    assert_int_equal(e_sql("SELECT c.len FROM slice s JOIN chunk c ON c.id=s.chunk WHERE s.win=0"), MIB);
    assert_int_equal(e_sql("SELECT c.sum<>0 AND c.refs=1 AND c.data=0 FROM slice s JOIN chunk c ON c.id=s.chunk WHERE s.win=0"), 1);
    assert_int_equal(e_sql("SELECT count(*) FROM chunk WHERE bnf<>0"), 0);
    assert_int_equal(e_level(ino), FP__LEVEL__LEVEL_DRAINED);
    w_close(&w);
}

static void test_what_an_aux_app_has_coded_goes(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    assert_int_equal(sqlite3_exec(w.f.core->db.sq, "UPDATE chunk SET data=len,len=len/2", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(e_evict("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_external(ino), 3);
    assert_int_equal(e_sql("SELECT count(*) FROM chunk WHERE data<>0"), 0);
    assert_int_equal(e_sql("SELECT sum(len) FROM chunk"), 2 * MIB + 1000);
    w_close(&w);
}

/* What is told of the windows when they are drained by two is not the sum of all of it. */
static void test_a_window_of_pieces_without_a_sum_stays(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    assert_true(fix_write(&w.f, ino, 100, 1000) > 0);
    e_drain("a");
    assert_int_equal(sqlite3_exec(w.f.core->db.sq, "UPDATE drained SET sums=zeroblob(24)", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(e_evict("a", "of which the file has a part only"), FP__DRAIN_STATE__DRAIN_DONE);
    assert_true(e_external(ino) >= 2);
    assert_true(e_sql("SELECT count(*) FROM chunk WHERE bnf<>0") > 0);
    w_close(&w);
}

static void test_what_a_file_that_stays_shares_stays(void **state)
{
    uint64_t ino, other;

    (void)state;
    e_open_world(&ino);
    other = fix_mk(&w.f, MGR_ROOT_INO, "b", S_IFREG | 0644);
    assert_int_equal(fix_clone(&w.f, ino, other, 0, 3 * MIB), 0);
    e_drain("b");
    /* open: it may not go */
    assert_int_equal(mgr_hold(w.f.core, mgr_session_find(w.f.core, w.f.session), other, false), 0);
    assert_int_equal(e_evict("a", "that other files or versions share (3)"), FP__DRAIN_STATE__DRAIN_FAILED);
    mgr_unhold(w.f.core, mgr_session_find(w.f.core, w.f.session), other, false);
    assert_int_equal(e_evict("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_external(ino), 3);
    assert_int_equal(e_external(other), 0); /* what they shared is its own now */
    assert_int_equal(e_evict("b", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_sql("SELECT count(*) FROM chunk WHERE bnf<>0"), 0);
    w_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_window_of_many_pieces_goes_as_a_whole),
        cmocka_unit_test(test_what_an_aux_app_has_coded_goes),
        cmocka_unit_test(test_a_window_of_pieces_without_a_sum_stays),
        cmocka_unit_test(test_what_a_file_that_stays_shares_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
