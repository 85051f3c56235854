/* What is lost or damaged here and is whole in a target: it is read from there at once, counts when the target has been looked at, and whatever becomes of copies and
 * benefactors meanwhile, nothing is said to be well that is not (manager/rescue.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "fp/err.h"
#include "manager/ext.h"
#include "manager/level.h"
#include "manager/rounds.h"
#include "mgr_evict_world.h"

/* ---------------------------------------------------------------- lost, and read from the target */

static void test_what_a_benefactor_lost_is_in_the_target(void **state)
{
    Fp__SliceMapReply *r;
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    w.looks = 0;
    e_loses_all(0);
    /* at once */
    assert_int_equal(e_external(ino), 3);
    r = e_map_of(ino);
    assert_int_equal(r->n_ext_files, 1);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(r->slices[i]->bnf, 0);
        assert_int_equal(r->slices[i]->ext, 1);
        assert_int_equal(r->slices[i]->ext_off, i * MIB);
    }
    fix_free(r);
    /* but nobody knows yet that the copy is still there */
    assert_int_equal(e_lost(MGR_BAD_LOOK), 3);
    assert_int_equal(e_level_of(ino), FP__LEVEL__LEVEL_NONE);
    w_run(&w);
    assert_int_equal(w.looks, 1);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM damage"), 0);
    assert_int_equal(e_level_of(ino), FP__LEVEL__LEVEL_DRAINED);
    assert_int_equal(e_sql("SELECT chunks+stored FROM benefactor WHERE id=%u", w.bnf[0].id), 0);
    for (unsigned i = 0; i < 100; i++)
        w_tick(&w, 500);
    assert_int_equal(w.looks, 1);
    assert_int_equal(w.f.core->drain->rescues.used, 0);
    e_check();
}

static void test_a_damaged_chunk_is_read_from_the_target(void **state)
{
    uint64_t ino, c1;

    (void)state;
    e_open_world(&ino);
    c1 = e_chunk_of(ino, 1);
    e_bad(c1, w.bnf[0].id, "checksum");
    assert_int_equal(e_external(ino), 1);
    assert_int_equal(e_sql("SELECT bnf FROM chunk WHERE id=%llu", (unsigned long long)c1), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM garbage"), 0); /* what is here stays until it has been fetched */
    w_run(&w);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 0);
    assert_true(e_staged(1, c1));
    assert_int_equal(e_external(ino), 0);
    e_check();
}

/* An inventory has the name of a damaged chunk as it has that of a good one. */
static void what_was_read_wrong_stays_wrong(uint64_t ino, unsigned bnf)
{
    uint64_t ids[3], c1 = e_chunk_of(ino, 1);

    for (unsigned i = 0; i < 3; i++)
        ids[i] = e_chunk_of(ino, i);
    e_bad(c1, w.bnf[bnf].id, "checksum");
    assert_int_equal(e_lost(MGR_BAD_LOOK), 1);
    assert_int_equal(e_sql("SELECT bnf FROM bad_chunk"), w.bnf[bnf].id);
    assert_int_equal(e_sql("SELECT count(*) FROM garbage"), 0);
    for (unsigned i = 0; i < 2; i++) { /* before somebody has looked at the copy, and when it is about to be deleted */
        w_bnf_dies(&w, bnf);
        e_comes_back_with(bnf, ids, 3);
        assert_int_equal(e_external(ino), 1);
        assert_int_equal(e_sql("SELECT bnf FROM chunk WHERE id=%llu", (unsigned long long)c1), 0);
        w_run(&w);
        assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 0);
        assert_int_equal(e_sql("SELECT count(*) FROM garbage WHERE bnf=%u AND chunk=%llu", w.bnf[bnf].id, (unsigned long long)c1), 1);
    }
    assert_int_equal(e_level_of(ino), FP__LEVEL__LEVEL_DRAINED);
    assert_int_equal(fix_rename(&w.f, MGR_ROOT_INO, "a", MGR_ROOT_INO, "b", 0), 0);
    (void)e_file_of(MGR_ROOT_INO, "a");
    assert_int_equal(e_run_job(w_start(&w, "a", false, NULL), "only synced copy"), FP__DRAIN_STATE__DRAIN_FAILED);
    e_deleted();
    assert_int_equal(e_sql("SELECT count(*) FROM garbage"), 0);
    assert_true(e_staged(bnf, c1)); /* what has been fetched in its place is another record */
    assert_int_equal(e_external(ino), 0);
    e_check();
}

static void test_what_was_read_wrong_is_not_here_again(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    what_was_read_wrong_stays_wrong(ino, 0);
}

static void test_what_was_fetched_and_read_wrong_is_not_here_again(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_evicted(&ino);
    for (unsigned i = 0; i < 3; i++)
        assert_true(e_staged(1, e_chunk_of(ino, i)));
    what_was_read_wrong_stays_wrong(ino, 1);
}

/* What is wrong here stays so when its copy in the target goes and comes. */
static void test_what_was_read_wrong_is_not_well_by_a_copy_that_comes_back(void **state)
{
    uint64_t ino, ids[3], c1;
    struct w_file *copy;

    (void)state;
    e_open_world(&ino);
    for (unsigned i = 0; i < 3; i++)
        ids[i] = e_chunk_of(ino, i);
    c1 = ids[1];
    copy = w_find(&w, "a");
    strcpy(copy->name, "aside");
    e_bad(c1, w.bnf[0].id, "checksum");
    w_run(&w);
    assert_int_equal(e_lost(MGR_BAD_MISSING), 1);
    w_bnf_dies(&w, 0);
    e_comes_back_with(0, ids, 3);
    assert_int_equal(e_lost(MGR_BAD_MISSING), 1);
    assert_int_equal(e_level_of(ino), FP__LEVEL__LEVEL_NONE);
    strcpy(copy->name, "a");
    e_bad(c1, 0, "not there");
    w_run(&w);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM garbage WHERE bnf=%u AND chunk=%llu", w.bnf[0].id, (unsigned long long)c1), 1);
    assert_int_equal(e_external(ino), 1);
    e_check();
}

static void test_what_was_not_drained_or_has_changed_since_is_lost(void **state)
{
    uint64_t ino, other;

    (void)state;
    e_open_world(&ino);
    other = e_file_of(MGR_ROOT_INO, "b");
    assert_true(fix_write(&w.f, ino, 0, MIB) > 0); /* what is drained is not its data any more */
    e_loses_all(0);
    w_run(&w);
    assert_int_equal(e_lost(MGR_BAD_MISSING), 6);
    assert_int_equal(e_external(ino) + e_external(other), 0);
    assert_int_equal(e_level_of(ino), FP__LEVEL__LEVEL_NONE);
    e_check();
}

/* ---------------------------------------------------------------- the copy */

static void test_a_copy_that_is_not_there_any_more_does_not_count(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    e_remove_from(false);
    e_loses_all(0);
    assert_int_equal(e_level_of(ino), FP__LEVEL__LEVEL_NONE);
    w_run(&w);
    assert_int_equal(e_lost(MGR_BAD_MISSING), 3);
    assert_int_equal(e_level_of(ino), FP__LEVEL__LEVEL_NONE);
    assert_int_equal(w.f.core->drain->rescues.used, 0);
    /* the benefactor has found its disk again */
    w_bnf_dies(&w, 0);
    e_comes_back_with(0, (uint64_t[]){e_chunk_of(ino, 0), e_chunk_of(ino, 1), e_chunk_of(ino, 2)}, 3);
    assert_int_equal(e_external(ino), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 0);
    e_check();
}

static void test_of_two_copies_the_one_that_is_there(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    e_drain_to("/other", true); /* compared: the better one */
    e_remove_from(true);
    e_loses_all(0);
    assert_int_equal(e_external_in("/other"), 3);
    w_run(&w);
    assert_int_equal(e_external_in("/pfs"), 3);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 0);
    assert_int_equal(e_level_of(ino), FP__LEVEL__LEVEL_DRAINED);
    e_check();
}

/* Also what was evicted, as soon as it is known that it is gone there. */
static void test_what_was_evicted_is_had_from_another_copy(void **state)
{
    Fp__BadChunk m = FP__BAD_CHUNK__INIT;
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    e_drain_to("/other", true);
    assert_int_equal(e_evict("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    e_deleted();
    assert_int_equal(e_external_in("/other"), 3);
    e_remove_from(true);
    m.chunk = e_chunk_of(ino, 0);
    m.reason = (char *)"not there";
    m.status = FP_ECHUNK_MISSING;
    fix_notice(&w.f, w.f.conn, FP__MSG_TYPE__MSG_BADCHUNK, &m);
    w_run(&w);
    assert_int_equal(e_external_in("/pfs"), 3);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 0);
    e_check();
}

static void test_nothing_is_renamed_over_what_is_relied_on(void **state)
{
    uint64_t ino, other;

    (void)state;
    e_open_world(&ino);
    e_loses_all(0);
    w_run(&w);
    assert_int_equal(e_external(ino), 3);
    assert_true(e_sql("SELECT needs FROM target") > 0); /* marked, for other stores */
    assert_int_equal(fix_rename(&w.f, MGR_ROOT_INO, "a", MGR_ROOT_INO, "b", 0), 0);
    other = e_file_of(MGR_ROOT_INO, "a");
    assert_int_equal(e_run_job(w_start(&w, "a", false, NULL), "only synced copy"), FP__DRAIN_STATE__DRAIN_FAILED);
    w_equal(&w, "a", ino);
    (void)other;
    e_check();
}

static void test_a_restart_looks_again(void **state)
{
    uint64_t ino;

    (void)state;
    w_open(&w, fix_path(), 2);
    ino = e_file_of(MGR_ROOT_INO, "a");
    e_drain("a");
    e_loses_all(0);
    assert_int_equal(e_lost(MGR_BAD_LOOK), 3);
    w_restart(&w);
    assert_int_equal(e_lost(MGR_BAD_LOOK), 3);
    w_run(&w);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 0);
    assert_int_equal(e_external(ino), 3);
    e_check();
}

/* ---------------------------------------------------------------- away */

static void test_what_is_on_a_benefactor_that_is_away_is_read_from_the_target(void **state)
{
    Fp__SliceMapReply *r;
    uint64_t ino, ids[3];

    (void)state;
    e_open_world(&ino);
    for (unsigned i = 0; i < 3; i++)
        ids[i] = e_chunk_of(ino, i);
    w_bnf_dies(&w, 0);
    w_tick(&w, 500);
    r = e_map_of(ino);
    assert_int_equal(r->slices[0]->bnf, w.bnf[0].id); /* it may be back in a moment */
    fix_free(r);
    w_tick(&w, 500);
    assert_int_equal(e_external(ino), 0); /* nobody has asked */
    r = e_map_of(ino);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(r->slices[i]->bnf, 0);
        assert_int_equal(r->slices[i]->ext, 1);
        assert_int_equal(r->slices[i]->ext_off, i * MIB);
    }
    fix_free(r);
    w_run(&w);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 0);
    assert_int_equal(e_level_of(ino), FP__LEVEL__LEVEL_DRAINED);
    assert_true(e_staged(1, ids[1]));
    /* it is back with all that it had: it counts again, but for what has been fetched */
    e_comes_back_with(0, ids, 3);
    assert_int_equal(e_external(ino), 0);
    assert_int_equal(e_sql("SELECT bnf FROM chunk WHERE id=%llu", (unsigned long long)ids[0]), w.bnf[0].id);
    assert_int_equal(e_sql("SELECT bnf FROM chunk WHERE id=%llu", (unsigned long long)ids[1]), w.bnf[1].id);
    assert_int_equal(e_sql("SELECT count(*) FROM garbage WHERE bnf=%u AND chunk=%llu", w.bnf[0].id, (unsigned long long)ids[1]), 1);
    e_check();
}

/* It was fetched, not synced, and the node lost its power: that the record is there says nothing of what it has. */
static void test_what_turns_up_after_a_loss_is_not_taken_for_synced(void **state)
{
    uint64_t ino, id;

    (void)state;
    e_open_world(&ino);
    assert_true(fix_write(&w.f, ino, 100, 1000) > 0); /* goes as a whole window, which has a number of no session */
    e_drain("a");
    assert_int_equal(e_evict("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    e_deleted();
    id = e_chunk_of(ino, 0);
    for (int lost = 0; lost < 2; lost++) {
        assert_true(e_staged(1, id));
        e_loses_all(1);
        assert_int_equal(e_external(ino), 3);
        w_bnf_dies(&w, 1);
        if (lost)
            assert_int_equal(mgr_rounds_heard(w.f.core, mgr_bnf_find(w.f.core, w.bnf[1].id), 4711), 0);
        e_comes_back_with(1, &id, 1);
        assert_int_equal(e_external(ino), 2);
        assert_int_equal(e_sql("SELECT round<0 FROM chunk WHERE id=%llu", (unsigned long long)id), lost);
        e_loses_all(1);
    }
    assert_true(e_staged(1, id)); /* it has been read anew */
    assert_int_equal(e_sql("SELECT round<0 FROM chunk WHERE id=%llu", (unsigned long long)id), 0);
    e_check();
}

/* ---------------------------------------------------------------- fpctl stage-in */

static void test_staging_in_brings_back_what_was_lost(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    e_loses_all(0);
    assert_int_equal(e_stage_in("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_external(ino), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 0);
    e_check();
}

static void test_staging_in_brings_what_is_on_a_benefactor_that_is_away(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    w_bnf_dies(&w, 0);
    for (unsigned i = 0; i < 12; i++)
        w_tick(&w, 500);
    assert_int_equal(e_stage_in("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_sql("SELECT count(*) FROM slice s JOIN chunk c ON c.id=s.chunk WHERE s.ino=%llu AND c.bnf=%u", (unsigned long long)ino, w.bnf[1].id), 3);
    e_check();
}

static void test_staging_in_says_what_no_target_has(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    (void)e_file_of(MGR_ROOT_INO, "b");
    assert_int_equal(e_stage_in("b", NULL), FP__DRAIN_STATE__DRAIN_DONE); /* it is here */
    e_loses_all(0);
    assert_int_equal(e_stage_in("b", "lost or damaged, and no target has a copy"), FP__DRAIN_STATE__DRAIN_FAILED);
    e_remove_from(false);
    assert_int_equal(e_stage_in("a", "not there any more"), FP__DRAIN_STATE__DRAIN_FAILED);
    w_run(&w);
    assert_int_equal(e_lost(MGR_BAD_MISSING), 6);
    e_check();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_benefactor_lost_is_in_the_target),
        cmocka_unit_test(test_a_damaged_chunk_is_read_from_the_target),
        cmocka_unit_test(test_what_was_read_wrong_is_not_here_again),
        cmocka_unit_test(test_what_was_fetched_and_read_wrong_is_not_here_again),
        cmocka_unit_test(test_what_was_read_wrong_is_not_well_by_a_copy_that_comes_back),
        cmocka_unit_test(test_what_was_not_drained_or_has_changed_since_is_lost),
        cmocka_unit_test(test_a_copy_that_is_not_there_any_more_does_not_count),
        cmocka_unit_test(test_of_two_copies_the_one_that_is_there),
        cmocka_unit_test(test_what_was_evicted_is_had_from_another_copy),
        cmocka_unit_test(test_nothing_is_renamed_over_what_is_relied_on),
        cmocka_unit_test(test_a_restart_looks_again),
        cmocka_unit_test(test_what_is_on_a_benefactor_that_is_away_is_read_from_the_target),
        cmocka_unit_test(test_what_turns_up_after_a_loss_is_not_taken_for_synced),
        cmocka_unit_test(test_staging_in_brings_back_what_was_lost),
        cmocka_unit_test(test_staging_in_brings_what_is_on_a_benefactor_that_is_away),
        cmocka_unit_test(test_staging_in_says_what_no_target_has),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
