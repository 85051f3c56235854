/* Who waits for a level that rests on copies in targets is told it when somebody has looked at them there. */
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
#include "manager/level.h"
#include "mgr_evict_world.h"

#define STEP_MS  500  /* that the world's clock moves at least */
#define FRESH_MS 6000 /* after which what was found is looked at again */

#define LOCAL    FP__LEVEL__LEVEL_LOCAL
#define DRAINED  FP__LEVEL__LEVEL_DRAINED
#define VERIFIED FP__LEVEL__LEVEL_VERIFIED

/* Somebody who waits, and asks again and again. */
struct asker {
    uint64_t ino, job, survey;
    Fp__Level level;
    const char *to;
    bool only_look, failed;
    char why[400];
};

/* One question: is the level reached? */
static bool ask(struct asker *a)
{
    Fp__LevelAsk m = FP__LEVEL_ASK__INIT;
    Fp__LevelReply *r;
    bool reached;

    m.ino = a->ino;
    m.wait = a->level;
    m.job = a->job;
    m.survey = a->survey;
    m.only_look = a->only_look;
    m.to = (char *)(uintptr_t)(a->to ? a->to : "");
    r = fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_LEVEL, &m, &fp__level_reply__descriptor);
    assert_non_null(r);
    a->job = r->job;
    a->survey = r->survey;
    a->failed = r->failed;
    snprintf(a->why, sizeof a->why, "%s", r->why);
    reached = r->level >= a->level;
    fix_free(r);
    return reached;
}

/* Benefactors do what they were told by now. */
static void work(void)
{
    for (size_t i = 0; i < w.nbnf; i++) {
        if (w.bnf[i].asked)
            w_answer(&w, i, 0);
        while (w.bnf[i].n)
            w_work(&w, i, 0);
    }
    w_tick(&w, STEP_MS);
}

static void work_for(unsigned ms)
{
    for (unsigned i = 0; i < ms; i += STEP_MS)
        work();
}

/* Until it is reached; false: it has failed. */
static bool wait_for(struct asker *a)
{
    for (unsigned i = 0; i < 1000; i++) {
        if (ask(a))
            return true;
        if (a->failed) {
            print_message("%s\n", a->why);
            return false;
        }
        work();
    }
    fail_msg("it is not reached: %s", a->why);
    return false;
}

static struct w_file *copy_of(const char *name)
{
    struct w_file *f = w_find(&w, name);

    assert_non_null(f);
    return f;
}

static uint64_t open_drained(void)
{
    uint64_t ino;

    e_open_world(&ino);
    w_tick(&w, FRESH_MS);
    w.looks = 0;
    return ino;
}

static uint64_t open_set(unsigned files)
{
    char name[32];
    uint64_t top;

    w_open(&w, ":memory:", 2);
    top = fix_mk(&w.f, MGR_ROOT_INO, "chk_1", S_IFDIR | 0755);
    for (unsigned i = 0; i < files; i++) {
        snprintf(name, sizeof name, "r%u", i);
        e_file_of(top, name);
    }
    w_tick(&w, 2500);
    e_drain("chk_1");
    w_tick(&w, FRESH_MS);
    w.looks = 0;
    return top;
}

static void test_a_copy_is_looked_at_before_the_wait_ends(void **state)
{
    struct asker a = {.ino = open_drained(), .level = DRAINED}, later = a;

    (void)state;
    assert_false(ask(&a));
    assert_non_null(strstr(a.why, "/pfs is being looked at"));
    assert_false(a.failed);
    assert_int_equal(e_level(a.ino), DRAINED); /* who only asks is told what is known */
    work_for(1000);
    assert_int_equal(w.looks, 1);
    assert_true(ask(&a));
    assert_int_equal(e_sql("SELECT count(*) FROM drain_job"), 1); /* nothing was begun */
    w_tick(&w, FRESH_MS);
    assert_true(wait_for(&later));
    assert_int_equal(w.looks, 2);
    w_close(&w);
}

static void test_what_was_found_a_moment_ago_is_not_looked_at_again(void **state)
{
    struct asker a = {.ino = open_drained(), .level = DRAINED}, other = a, verified = a;

    (void)state;
    assert_false(ask(&a));
    assert_false(ask(&other)); /* while it is being looked at */
    assert_int_equal(other.survey, a.survey);
    work_for(1000);
    assert_true(ask(&a));
    assert_true(ask(&other));
    other.survey = 0;
    assert_true(ask(&other));
    assert_int_equal(w.looks, 1);
    /* nobody has compared it: it is copied anew, which is as good as a look */
    verified.level = VERIFIED;
    verified.to = "/pfs";
    assert_true(wait_for(&verified));
    w_close(&w);
}

static void test_what_is_gone_is_drained_again(void **state)
{
    struct asker a = {.ino = open_drained(), .level = DRAINED, .to = "/pfs"};

    (void)state;
    copy_of("a")->used = false;
    assert_false(ask(&a));
    w_run(&w);
    assert_int_equal(w.looks, 2); /* by each of them */
    assert_int_equal(e_level(a.ino), 0);
    assert_true(wait_for(&a));
    w_equal(&w, "a", a.ino);
    assert_int_equal(e_level(a.ino), DRAINED);
    w_close(&w);
}

/* As another store does, that has the same names. */
static void test_what_another_has_replaced_is_drained_again(void **state)
{
    struct asker a = {.ino = open_drained(), .level = DRAINED, .to = "/pfs"};

    (void)state;
    copy_of("a")->ino += 1000;
    assert_true(wait_for(&a));
    assert_true(w.looks >= 2);
    w_equal(&w, "a", a.ino);
    assert_int_equal(e_sql("SELECT count(*) FROM drain_job"), 2);
    w_close(&w);
}

static void test_who_only_looks_begins_nothing(void **state)
{
    struct asker a = {.ino = open_drained(), .level = DRAINED, .only_look = true};

    (void)state;
    assert_true(wait_for(&a));
    copy_of("a")->used = false;
    w_tick(&w, FRESH_MS);
    a.survey = 0;
    assert_false(wait_for(&a));
    assert_true(a.failed);
    assert_int_equal(e_sql("SELECT count(*) FROM drain_job"), 1);
    w_close(&w);
}

static void test_all_files_of_a_set_are_looked_at(void **state)
{
    struct asker a = {.ino = open_set(SURVEY_OPEN * 2 + 7), .level = DRAINED, .to = "/pfs"}, other = a;
    uint64_t renamed;

    (void)state;
    assert_true(wait_for(&a));
    assert_int_equal(w.looks, SURVEY_OPEN * 2 + 7);
    assert_int_equal(e_sql("SELECT count(*) FROM drain_job"), 1);
    /* of two of them there is no copy any more: all is found before anything is begun, and no other file is written */
    copy_of("chk_1/r3")->used = false;
    copy_of("chk_1/r70")->ino += 1000;
    w_tick(&w, FRESH_MS);
    renamed = w.renamed;
    assert_true(wait_for(&other));
    assert_int_equal(w.renamed, renamed + 2);
    assert_int_equal(e_sql("SELECT count(*) FROM drain_job"), 2);
    w_equal(&w, "chk_1/r3", (uint64_t)e_sql("SELECT ino FROM dirent WHERE name=CAST('r3' AS BLOB)"));
    w_close(&w);
}

/* It is in two targets, and one is not there any more, or does not answer. */
static void test_one_copy_is_enough(void **state)
{
    struct asker a = {.ino = open_drained(), .level = DRAINED};
    struct w_file *f;

    (void)state;
    w.to = "/other";
    e_drain("a");
    w.to = NULL;
    copy_of("a")->used = false;
    w_tick(&w, FRESH_MS);
    assert_true(wait_for(&a));
    assert_int_equal(e_sql("SELECT count(*) FROM drain_job"), 2);
    a.survey = 0;
    a.to = "/pfs"; /* but not to who means that target */
    w_tick(&w, FRESH_MS);
    assert_true(wait_for(&a));
    assert_int_equal(e_sql("SELECT count(*) FROM drain_job"), 3);
    f = w_find(&w, "a");
    assert_true(f && f->used);
    w_close(&w);
}

/* Nobody answers: it is not reached, and not failed, and the reason is what is known of the target. */
static void test_a_target_that_does_not_answer_is_waited_for(void **state)
{
    Fp__TargetState hangs = FP__TARGET_STATE__INIT;
    struct asker a = {.ino = open_drained(), .level = DRAINED};

    (void)state;
    hangs.target = 1;
    hangs.code = FP__TARGET_CODE__TARGET_HANGS;
    hangs.why = (char *)"a call of its file system does not come back";
    assert_false(ask(&a));
    for (size_t i = 0; i < w.nbnf; i++)
        w.bnf[i].says = &hangs;
    for (unsigned i = 0; i < 600; i++) {
        w_tick(&w, 1000);
        for (size_t k = 0; k < w.nbnf; k++)
            if (w.bnf[k].asked)
                w_answer(&w, k, 0); /* taken, and no more */
        assert_false(ask(&a));
        assert_false(a.failed);
        assert_int_equal(e_level(a.ino), DRAINED);
    }
    assert_non_null(strstr(a.why, "does not come back"));
    assert_int_equal(w.looks, 0);
    hangs.code = FP__TARGET_CODE__TARGET_OK;
    assert_true(wait_for(&a));
    for (size_t i = 0; i < w.nbnf; i++)
        w.bnf[i].says = NULL;
    w_close(&w);
}

/* What is here was never synced: the copy alone makes it more than that. */
static void test_local_by_a_copy_is_looked_at_too(void **state)
{
    struct asker a = {.ino = open_drained(), .level = LOCAL, .only_look = true};

    (void)state;
    copy_of("a")->used = false;
    assert_false(wait_for(&a));
    assert_int_equal(w.looks, 2);
    w_close(&w);
}

/* More waits at once than are kept: who has none is told to wait, and each of them ends. */
static void test_many_files_are_waited_for_at_once(void **state)
{
    enum { FILES = 100 };
    struct asker a[FILES];
    uint64_t top = open_set(FILES);
    size_t left = FILES;

    (void)state;
    assert_true(top > 0);
    for (size_t i = 0; i < FILES; i++)
        a[i] = (struct asker){.ino = (uint64_t)e_sql("SELECT ino FROM dirent WHERE name=CAST('r%zu' AS BLOB)", i), .level = DRAINED};
    for (unsigned round = 0; left && round < 200; round++) {
        for (size_t i = 0; i < FILES; i++)
            if (a[i].ino && ask(&a[i])) {
                a[i].ino = 0;
                left--;
            }
        work();
    }
    assert_int_equal(left, 0);
    assert_int_equal(e_sql("SELECT count(*) FROM drain_job"), 1);
    w_close(&w);
}

/* Nobody asks: what was drained last is looked at all the same, each copy once in ten minutes. */
static void test_copies_are_looked_at_by_themselves(void **state)
{
    enum { FILES = 40, MINUTE = 60000 };
    uint64_t top = open_set(FILES), at;

    (void)state;
    assert_true(top > 0);
    at = w.looks;
    work_for(3 * MINUTE); /* they have just been made */
    assert_int_equal(w.looks, at);
    work_for(9 * MINUTE);
    assert_int_equal(w.looks, at + FILES);
    copy_of("chk_1/r7")->used = false;
    work_for(5 * MINUTE);
    assert_int_equal(w.looks, at + FILES);
    assert_int_equal(e_sql("SELECT count(*) FROM tfile WHERE gone=1"), 0);
    work_for(5 * MINUTE);
    assert_int_equal(w.looks, at + 2 * FILES + 1); /* what was not found has been looked for by both */
    assert_int_equal(e_sql("SELECT count(*) FROM tfile WHERE gone=1"), 1);
    work_for(10 * MINUTE);
    assert_int_equal(w.looks, at + 3 * FILES); /* and is no more */
    assert_int_equal(e_sql("SELECT count(*) FROM drain_job"), 1);
    w_close(&w);
}

static void test_a_target_that_is_not_well_is_left_alone(void **state)
{
    Fp__TargetState hangs = FP__TARGET_STATE__INIT;

    (void)state;
    open_drained();
    hangs.target = 1;
    hangs.code = FP__TARGET_CODE__TARGET_HANGS;
    hangs.why = (char *)"a call of its file system does not come back";
    for (size_t i = 0; i < w.nbnf; i++)
        w.bnf[i].says = &hangs;
    work_for(1200000);
    assert_int_equal(w.looks, 0);
    hangs.code = FP__TARGET_CODE__TARGET_OK;
    work_for(1200000);
    assert_int_equal(w.looks, 2);
    for (size_t i = 0; i < w.nbnf; i++)
        w.bnf[i].says = NULL;
    w_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_copy_is_looked_at_before_the_wait_ends),
        cmocka_unit_test(test_what_was_found_a_moment_ago_is_not_looked_at_again),
        cmocka_unit_test(test_what_is_gone_is_drained_again),
        cmocka_unit_test(test_what_another_has_replaced_is_drained_again),
        cmocka_unit_test(test_who_only_looks_begins_nothing),
        cmocka_unit_test(test_all_files_of_a_set_are_looked_at),
        cmocka_unit_test(test_one_copy_is_enough),
        cmocka_unit_test(test_a_target_that_does_not_answer_is_waited_for),
        cmocka_unit_test(test_local_by_a_copy_is_looked_at_too),
        cmocka_unit_test(test_many_files_are_waited_for_at_once),
        cmocka_unit_test(test_copies_are_looked_at_by_themselves),
        cmocka_unit_test(test_a_target_that_is_not_well_is_left_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
