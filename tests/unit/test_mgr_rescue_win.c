/* Windows of which some is lost here and all is whole in a target: what is coded, in pieces, or named by many. Nothing is given up for a copy that nobody has looked at
 * (manager/rescue_win.c). */
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
#include "mgr_evict_world.h"

static void sql(const char *text)
{
    assert_int_equal(sqlite3_exec(w.f.core->db.sq, text, NULL, NULL, NULL), SQLITE_OK);
}

/* As an aux-app leaves them. */
static void code(void)
{
    sql("UPDATE chunk SET data=len,len=len/2");
}

static int64_t wins(void)
{
    return e_sql("SELECT count(*) FROM rescue_win");
}

static bool is_looked_for(uint64_t ino)
{
    Fp__SliceMapReply *r = e_map_of(ino);
    bool is = r->rescuing;

    fix_free(r);
    return is;
}

/* All of it is read from the target, by windows. */
static void is_there(uint64_t ino)
{
    Fp__SliceMapReply *r;

    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM damage"), 0);
    assert_int_equal(wins(), 0);
    assert_int_equal(w.f.core->drain->rescues.used, 0);
    assert_int_equal(e_external(ino), 3);
    assert_int_equal(e_level_of(ino), FP__LEVEL__LEVEL_DRAINED);
    r = e_map_of(ino);
    assert_false(r->rescuing);
    assert_int_equal(r->n_slices, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(r->slices[i]->bnf, 0);
        assert_int_equal(r->slices[i]->data_len, 0);
        assert_int_equal(r->slices[i]->ext, 1);
        assert_int_equal(r->slices[i]->ext_off, i * MIB);
        assert_int_equal(r->slices[i]->chunk_len, i == 2 ? 1000 : MIB);
    }
    fix_free(r);
}

/* ---------------------------------------------------------------- lost */

static void test_what_an_aux_app_has_coded_is_had_when_the_copy_was_looked_at(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    code();
    w.looks = 0;
    e_loses_all(0);
    assert_int_equal(e_external(ino), 0);
    assert_int_equal(e_lost(MGR_BAD_MISSING), 3);
    assert_int_equal(e_level_of(ino), FP__LEVEL__LEVEL_NONE);
    assert_true(is_looked_for(ino));
    w_run(&w);
    assert_int_equal(w.looks, 1);
    assert_true(e_sql("SELECT needs FROM target") > 0); /* marked, for other stores */
    is_there(ino);
    assert_int_equal(e_sql("SELECT chunks+stored FROM benefactor WHERE id=%u", w.bnf[0].id), 0);
    e_check();
}

static void test_a_window_in_pieces_of_which_one_is_lost(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    assert_true(fix_write(&w.f, ino, 100, 1000) > 0); /* in the middle of the first chunk, of which the file has two parts now */
    e_drain("a");
    assert_int_equal(e_sql("SELECT count(*) FROM slice WHERE win=0"), 3);
    e_bad(e_chunk_of(ino, 0), w.bnf[0].id, "checksum");
    assert_true(is_looked_for(ino));
    w_run(&w);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 0);
    assert_int_equal(e_external(ino), 1);
    assert_int_equal(e_sql("SELECT count(*) FROM slice WHERE win=0"), 1);
    assert_int_equal(e_sql("SELECT count(*) FROM garbage"), 2); /* also what was well of it */
    e_loses_all(0);
    w_run(&w);
    is_there(ino);
    e_check();
}

static void test_of_what_is_shared_each_file_is_had_from_its_own_copy(void **state)
{
    uint64_t ino, other, third;

    (void)state;
    e_open_world(&ino);
    code();
    other = fix_mk(&w.f, MGR_ROOT_INO, "b", S_IFREG | 0644);
    third = fix_mk(&w.f, MGR_ROOT_INO, "c", S_IFREG | 0644);
    assert_int_equal(fix_clone(&w.f, ino, other, 0, 3 * MIB), 0);
    assert_int_equal(fix_clone(&w.f, ino, third, 0, 3 * MIB), 0);
    e_drain("b");
    e_loses_all(0);
    w_run(&w);
    assert_int_equal(e_external(ino), 3);
    assert_int_equal(e_external(other), 3);
    assert_int_equal(e_external(third), 0); /* it has none */
    assert_int_equal(e_lost(MGR_BAD_MISSING), 3);
    assert_int_equal(e_sql("SELECT count(*) FROM damage WHERE ino=%llu", (unsigned long long)third), 3);
    assert_int_equal(e_sql("SELECT count(*) FROM damage"), 3); /* nothing of the others is said to be lost */
    assert_int_equal(e_level_of(ino), FP__LEVEL__LEVEL_DRAINED);
    assert_int_equal(e_level_of(third), FP__LEVEL__LEVEL_NONE);
    assert_int_equal(wins(), 0);
    e_check();
}

/* Windows of the same bytes, of one file and of two: what is still lost after the first of them is looked for again. */
static void test_windows_that_share_a_chunk(void **state)
{
    uint64_t ino, other;

    (void)state;
    w_open(&w, ":memory:", 2);
    ino = e_file_of(MGR_ROOT_INO, "a");
    other = e_file_of(MGR_ROOT_INO, "b");
    assert_int_equal(fix_clone(&w.f, ino, ino, MIB, MIB), 0);
    assert_int_equal(fix_clone(&w.f, ino, other, 0, MIB), 0);
    assert_int_equal(fix_clone(&w.f, ino, other, MIB, MIB), 0);
    assert_int_equal(e_sql("SELECT refs FROM chunk WHERE id=%llu", (unsigned long long)e_chunk_of(ino, 0)), 4);
    e_drain("a");
    e_drain("b");
    code();
    e_loses_all(0);
    assert_int_equal(wins(), 6);
    w_run(&w);
    is_there(ino);
    is_there(other);
    e_check();
}

/* Two benefactors drained parts of it: nobody has told what the sum of all of it is. */
static void test_a_window_of_which_the_sum_is_not_known_is_lost(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    code();
    sql("UPDATE drained SET sums=zeroblob(24)");
    w.looks = 0;
    e_loses_all(0);
    assert_false(is_looked_for(ino));
    w_run(&w);
    assert_int_equal(e_lost(MGR_BAD_MISSING), 3);
    assert_int_equal(w.looks, 0);
    assert_int_equal(e_level_of(ino), FP__LEVEL__LEVEL_NONE);
    e_check();
}

static void test_a_window_that_is_not_written_whole_is_lost(void **state)
{
    uint64_t ino;

    (void)state;
    w_open(&w, ":memory:", 2);
    ino = fix_mk(&w.f, MGR_ROOT_INO, "a", S_IFREG | 0644);
    assert_true(fix_write(&w.f, ino, 0, 1000) > 0);
    assert_true(fix_write(&w.f, ino, MIB - 1000, 1000) > 0);
    e_drain("a");
    code();
    e_loses_all(0);
    assert_false(is_looked_for(ino));
    w_run(&w);
    assert_int_equal(e_lost(MGR_BAD_MISSING), 2);
    assert_int_equal(e_external(ino), 0);
    e_check();
}

/* ---------------------------------------------------------------- the copy is another, or the chunks come back */

/* A drained file of three coded chunks. */
static uint64_t open_coded(uint64_t ids[3])
{
    uint64_t ino;

    e_open_world(&ino);
    code();
    for (unsigned i = 0; i < 3; i++)
        ids[i] = e_chunk_of(ino, i);
    return ino;
}

static void test_nothing_is_given_up_for_a_copy_that_is_not_there(void **state)
{
    uint64_t ino, ids[3];

    (void)state;
    ino = open_coded(ids);
    e_remove_from(false);
    e_loses_all(0);
    assert_true(is_looked_for(ino));
    w_run(&w);
    assert_false(is_looked_for(ino));
    assert_int_equal(wins(), 0);
    assert_int_equal(w.f.core->drain->rescues.used, 0);
    assert_int_equal(e_lost(MGR_BAD_MISSING), 3);
    assert_int_equal(e_sql("SELECT count(*) FROM damage WHERE reason LIKE '%%no target has a copy of it any more%%'"), 3);
    /* the benefactor has found its disk again */
    w_bnf_dies(&w, 0);
    e_comes_back_with(0, ids, 3);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM chunk WHERE bnf=%u AND data<>0", w.bnf[0].id), 3);
    e_check();
}

static void test_of_two_copies_the_one_that_is_there(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    e_drain_to("/other", true);
    code();
    e_remove_from(true);
    e_loses_all(0);
    w_run(&w);
    is_there(ino);
    assert_int_equal(e_external_in("/pfs"), 3);
    e_check();
}

static void test_what_comes_back_before_the_look_stays_as_it_was(void **state)
{
    uint64_t ino, ids[3];

    (void)state;
    ino = open_coded(ids);
    e_loses_all(0);
    assert_int_equal(wins(), 3);
    w_bnf_dies(&w, 0);
    e_comes_back_with(0, ids, 2); /* all but the last */
    w_run(&w);
    assert_int_equal(wins(), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM chunk WHERE bnf=%u AND data<>0", w.bnf[0].id), 2);
    assert_int_equal(e_external(ino), 1);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 0);
    e_check();
}

static void test_what_is_written_before_the_look_stays(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    code();
    e_loses_all(0);
    assert_int_equal(wins(), 3);
    assert_true(fix_write(&w.f, ino, MIB, MIB) > 0); /* the copy is not the file's data any more */
    w_run(&w);
    assert_int_equal(wins(), 0);
    assert_int_equal(e_external(ino), 0);
    assert_int_equal(e_lost(MGR_BAD_MISSING), 2);
    assert_int_equal(e_level_of(ino), FP__LEVEL__LEVEL_NONE);
    e_check();
}

static void test_a_file_that_goes_before_the_look(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    code();
    e_loses_all(0);
    assert_int_equal(wins(), 3);
    assert_int_equal(fix_unlink(&w.f, MGR_ROOT_INO, "a", false), 0);
    for (unsigned i = 0; i < 20; i++)
        w_tick(&w, 500);
    w_run(&w);
    assert_int_equal(wins(), 0);
    assert_int_equal(w.f.core->drain->rescues.used, 0);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 0);
    e_check();
}

static void test_a_restart_looks_again(void **state)
{
    char path[] = "/tmp/mgr_rescue_win_XXXXXX", file[64];
    uint64_t ino;

    (void)state;
    assert_non_null(mkdtemp(path));
    snprintf(file, sizeof file, "%s/store.db", path);
    w_open(&w, file, 2);
    ino = e_file_of(MGR_ROOT_INO, "a");
    e_drain("a");
    code();
    e_loses_all(0);
    w_restart(&w);
    assert_int_equal(wins(), 3);
    assert_true(is_looked_for(ino));
    w_run(&w);
    is_there(ino);
    e_check();
    rmdir(path);
}

/* All that is to be done but to look at what is in the target, which takes long. */
static void run_without_looks(void)
{
    for (unsigned i = 0; i < 50; i++, w_tick(&w, 100))
        for (unsigned b = 0; b < 2; b++) {
            w_answer(&w, b, 0);
            for (size_t k = 0; k < w.bnf[b].n;)
                if (w.bnf[b].task[k]->kind == FP__TASK_KIND__TASK_STAT)
                    k++;
                else
                    w_work(&w, b, k);
        }
}

/* The copy is all that there is of these windows, also before somebody has looked at it. */
static void test_a_copy_that_windows_wait_for_is_not_replaced(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    code();
    e_loses_all(0);
    assert_int_equal(wins(), 3);
    assert_int_equal(fix_rename(&w.f, MGR_ROOT_INO, "a", MGR_ROOT_INO, "old", 0), 0);
    (void)e_file_of(MGR_ROOT_INO, "a");
    assert_true(w_start(&w, "a", false, NULL) > 0);
    run_without_looks();
    assert_int_equal(w.renamed, 1);
    assert_int_equal(e_sql("SELECT count(*) FROM drain_job WHERE state=5 AND why LIKE '%%another file%%'"), 1);
    w_run(&w);
    assert_int_equal(e_lost(MGR_BAD_MISSING), 0);
    is_there(ino);
    e_check();
}

/* As many files of another target are looked at as surveys do at once, and it does not answer. */
static void test_a_target_that_hangs_keeps_nothing_of_another_from_being_had(void **state)
{
    struct mgr_drain *d;
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    e_drain_to("/other", true); /* the better one */
    code();
    d = w.f.core->drain;
    for (d->nlooks = 0; d->nlooks < 60; d->nlooks++)
        d->looks[d->nlooks] = (struct mgr_look){.tfile = 1000 + d->nlooks, .target = (uint32_t)e_sql("SELECT id FROM target WHERE root='/pfs'"), .until_ms = UINT64_MAX};
    e_loses_all(0);
    w_run(&w);
    assert_int_equal(d->nlooks, 60);
    assert_int_equal(wins(), 0);
    assert_int_equal(e_external_in("/other"), 3);
    d->nlooks = 0;
    e_check();
}

/* ---------------------------------------------------------------- away */

static void test_what_is_on_a_benefactor_that_is_away(void **state)
{
    uint64_t ino, ids[3];

    (void)state;
    ino = open_coded(ids);
    w_bnf_dies(&w, 0);
    w_tick(&w, 2000);
    assert_false(is_looked_for(ino)); /* a window does not change back: longer than for a chunk */
    for (unsigned i = 0; i < 8; i++)
        w_tick(&w, 500);
    assert_int_equal(wins(), 0); /* nobody has asked */
    assert_true(is_looked_for(ino));
    assert_int_equal(e_external(ino), 0);
    w_run(&w);
    is_there(ino);
    /* it is back: what it has is not needed any more */
    e_comes_back_with(0, ids, 3);
    is_there(ino);
    assert_int_equal(e_sql("SELECT count(*) FROM garbage WHERE bnf=%u", w.bnf[0].id), 3);
    e_check();
}

/* ---------------------------------------------------------------- versions */

static void begin_to_write(uint64_t ino)
{
    Fp__Open m = FP__OPEN__INIT;

    m.ino = ino;
    m.write = true;
    fix_free(fix_call(&w.f, w.f.conn, FP__MSG_TYPE__MSG_OPEN, &m, &fp__attr_reply__descriptor));
    assert_int_equal(w.f.status, 0);
}

static char *why_of_version(void)
{
    static char why[300];
    Fp__CtlVersions m = FP__CTL_VERSIONS__INIT;
    Fp__CtlVersionsReply *r;

    m.path = fix_bin("a");
    r = fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_VERSIONS, &m, &fp__ctl_versions_reply__descriptor);
    assert_non_null(r);
    assert_int_equal(r->n_versions, 2);
    snprintf(why, sizeof why, "%s", r->versions[1]->why);
    fix_free(r);
    return why;
}

/* A file that is drained, and being rewritten, and of which what it was is lost. */
static uint64_t lost_while_rewritten(bool coded, uint64_t *shadow)
{
    uint64_t ino;

    fix_versions = true;
    e_open_world(&ino);
    fix_versions = false;
    if (coded)
        code();
    begin_to_write(ino);
    for (unsigned i = 0; i < 3; i++)
        assert_true(fix_write(&w.f, ino, (uint64_t)i * MIB, i == 2 ? 1000 : MIB) > 0);
    *shadow = (uint64_t)e_sql("SELECT shadow FROM version");
    assert_int_equal(e_sql("SELECT count(*) FROM slice WHERE ino=%llu", (unsigned long long)*shadow), 3);
    e_loses_all(0);
    return ino;
}

static void test_what_a_file_was_is_had_from_its_copy(void **state)
{
    uint64_t shadow, ino;

    (void)state;
    ino = lost_while_rewritten(false, &shadow);
    assert_int_equal(e_external(shadow), 3);
    assert_non_null(strstr(why_of_version(), "being looked at"));
    w_run(&w);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk b JOIN slice s ON s.chunk=b.chunk WHERE s.ino=%llu", (unsigned long long)shadow), 0);
    assert_null(strstr(why_of_version(), "lost"));
    assert_int_equal(e_lost(MGR_BAD_MISSING), 3); /* what is written now has none */
    assert_int_equal(e_external(ino), 0);
    e_check();
}

static void test_what_a_file_was_and_was_coded_is_had_by_windows(void **state)
{
    uint64_t shadow;

    (void)state;
    (void)lost_while_rewritten(true, &shadow);
    assert_int_equal(e_external(shadow), 0);
    assert_non_null(strstr(why_of_version(), "lost or damaged"));
    w_run(&w);
    assert_int_equal(e_external(shadow), 3);
    assert_int_equal(e_sql("SELECT sum(c.len) FROM slice s JOIN chunk c ON c.id=s.chunk WHERE s.ino=%llu", (unsigned long long)shadow), 2 * MIB + 1000);
    assert_null(strstr(why_of_version(), "lost"));
    assert_int_equal(e_lost(MGR_BAD_MISSING), 3);
    e_check();
}

/* It waits for what the file is to be drained to where it is itself. */
static void test_what_waits_and_is_to_be_had_gives_way_to_the_next(void **state)
{
    Fp__Release r = FP__RELEASE__INIT;
    uint64_t ino;

    (void)state;
    fix_versions = true;
    e_open_world(&ino);
    w_policy(&w, "to=/pfs every=none results=a keep=1 level=drained");
    code();
    begin_to_write(ino);
    assert_int_equal(fix_truncate(&w.f, ino, 0), 0);
    e_loses_all(0);
    assert_int_equal(wins(), 3);
    assert_true(fix_write(&w.f, ino, 0, 1000) > 0);
    r.n_write_ino = 1;
    r.write_ino = &ino;
    fix_notice(&w.f, w.f.conn, FP__MSG_TYPE__MSG_RELEASE, &r);
    assert_int_equal(e_sql("SELECT count(*) FROM version WHERE state=2"), 1);
    w_tick(&w, 3000);
    run_without_looks();
    assert_int_equal(e_sql("SELECT count(*) FROM drain_job WHERE state=5"), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM version"), 0);
    assert_int_equal(w.renamed, 2);
    fix_versions = false;
    w_run(&w);
    assert_int_equal(wins(), 0);
    e_check();
}

static void test_what_a_file_was_is_said_to_be_lost(void **state)
{
    uint64_t shadow;

    (void)state;
    (void)lost_while_rewritten(true, &shadow);
    e_remove_from(false);
    w_run(&w);
    assert_int_equal(e_external(shadow), 0);
    assert_int_equal(e_lost(MGR_BAD_MISSING), 6);
    assert_non_null(strstr(why_of_version(), "lost or damaged"));
    e_check();
}

/* ---------------------------------------------------------------- fpctl stage-in */

static void test_staging_in_brings_back_what_was_coded(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    code();
    e_loses_all(0);
    assert_int_equal(e_stage_in("a", NULL), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_external(ino), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM chunk WHERE bnf<>0"), 3);
    assert_int_equal(e_sql("SELECT count(*) FROM bad_chunk"), 0);
    e_check();
}

static void test_of_a_file_that_can_not_be_had_whole_the_rest_is_brought(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    assert_true(fix_write(&w.f, ino, 100, 1000) > 0);
    e_drain("a");
    sql("UPDATE drained SET sums=zeroblob(24)");
    e_loses_all(0);
    assert_int_equal(e_stage_in("a", "lost or damaged, and no target has a copy"), FP__DRAIN_STATE__DRAIN_FAILED);
    assert_int_equal(e_external(ino), 0);
    assert_int_equal(e_lost(MGR_BAD_LOOK), 0);
    assert_int_equal(e_lost(MGR_BAD_MISSING), 1);
    e_check();
}

static void test_staging_in_says_that_the_copy_is_gone(void **state)
{
    uint64_t ino;

    (void)state;
    e_open_world(&ino);
    code();
    e_remove_from(false);
    e_loses_all(0);
    assert_int_equal(e_stage_in("a", "lost or damaged, and no target has a copy"), FP__DRAIN_STATE__DRAIN_FAILED);
    assert_int_equal(e_lost(MGR_BAD_MISSING), 3);
    e_check();
}

/* A file of very many chunks is looked through so many at a time, each once. */
static void test_a_large_file_is_looked_through_a_little_at_a_time(void **state)
{
    enum { SLICES = 20000 };
    const char *why;
    unsigned calls = 0;
    uint64_t ino;
    int rc;

    (void)state;
    e_open_world(&ino);
    e_loses_all(0);
    w_run(&w);
    assert_int_equal(fix_unlink(&w.f, MGR_ROOT_INO, "a", false), 0);
    ino = e_file_of(MGR_ROOT_INO, "b");
    sql("INSERT INTO slice(ino,win,off,len,chunk,chunk_off) WITH RECURSIVE n(i) AS (SELECT 3 UNION ALL SELECT i+1 FROM n WHERE i<20002) "
        "SELECT (SELECT max(ino) FROM inode),i,0,1000,(SELECT max(chunk) FROM slice),0 FROM n");
    e_bad(e_chunk_of(ino, 0), w.bnf[0].id, "checksum");
    while ((rc = mgr_rescue_file(w.f.core, ino, &why)) == MGR_RESCUE_MORE && calls < 100) {
        calls++;
        assert_null(why); /* what the first of them found is said at the end */
        mgr_core_reset(w.f.core);
        if (calls == 2) /* a group fails: what it has found is looked for again */
            assert_int_equal(mgr_rescue_load(w.f.core), 0);
    }
    assert_int_equal(rc, 0);
    assert_int_equal(calls, 2 + (SLICES + 3) / 4096);
    assert_non_null(why);
    assert_non_null(strstr(why, "lost or damaged"));
    sql("DELETE FROM slice WHERE win>2");
    w_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_an_aux_app_has_coded_is_had_when_the_copy_was_looked_at),
        cmocka_unit_test(test_a_window_in_pieces_of_which_one_is_lost),
        cmocka_unit_test(test_of_what_is_shared_each_file_is_had_from_its_own_copy),
        cmocka_unit_test(test_windows_that_share_a_chunk),
        cmocka_unit_test(test_a_window_of_which_the_sum_is_not_known_is_lost),
        cmocka_unit_test(test_a_window_that_is_not_written_whole_is_lost),
        cmocka_unit_test(test_nothing_is_given_up_for_a_copy_that_is_not_there),
        cmocka_unit_test(test_of_two_copies_the_one_that_is_there),
        cmocka_unit_test(test_what_comes_back_before_the_look_stays_as_it_was),
        cmocka_unit_test(test_what_is_written_before_the_look_stays),
        cmocka_unit_test(test_a_file_that_goes_before_the_look),
        cmocka_unit_test(test_a_restart_looks_again),
        cmocka_unit_test(test_a_copy_that_windows_wait_for_is_not_replaced),
        cmocka_unit_test(test_a_target_that_hangs_keeps_nothing_of_another_from_being_had),
        cmocka_unit_test(test_what_is_on_a_benefactor_that_is_away),
        cmocka_unit_test(test_what_a_file_was_is_had_from_its_copy),
        cmocka_unit_test(test_what_a_file_was_and_was_coded_is_had_by_windows),
        cmocka_unit_test(test_what_waits_and_is_to_be_had_gives_way_to_the_next),
        cmocka_unit_test(test_what_a_file_was_is_said_to_be_lost),
        cmocka_unit_test(test_staging_in_brings_back_what_was_coded),
        cmocka_unit_test(test_of_a_file_that_can_not_be_had_whole_the_rest_is_brought),
        cmocka_unit_test(test_staging_in_says_that_the_copy_is_gone),
        cmocka_unit_test(test_a_large_file_is_looked_through_a_little_at_a_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
