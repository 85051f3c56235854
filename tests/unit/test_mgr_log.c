/* Draining with layout=log in the manager: what its tasks say, that no level is claimed for a log, and what of it is left when an attempt ends. */
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

#include "mgr_evict_world.h"
#include "fp/err.h"
#include "manager/ext.h"

static void open_world(size_t nbnf)
{
    w_open(&w, ":memory:", nbnf);
    w.layout = FP_DRAIN_LOG;
}

/* Each task that comes is looked at, then done. */
static void run_and_look(unsigned kinds[16], uint64_t want_bytes)
{
    for (int idle = 0; idle < 20;) {
        bool any = false;

        for (size_t i = 0; i < w.nbnf; i++) {
            if (w.bnf[i].asked)
                w_answer(&w, i, 0);
            for (; w.bnf[i].n; any = true) {
                const Fp__Task *t = w.bnf[i].task[0];
                bool of_log = t->kind == FP__TASK_KIND__TASK_PREPARE || t->kind == FP__TASK_KIND__TASK_WRITE || t->kind == FP__TASK_KIND__TASK_FINISH;

                assert_true((unsigned)t->kind < 16);
                kinds[t->kind]++;
                assert_int_equal(t->dlog, of_log);
                if (of_log)
                    assert_true(t->dest->path.len == 7 && memcmp(t->dest->path.data, "a.fplog", 7) == 0);
                assert_int_equal(t->dlog_bytes, t->kind == FP__TASK_KIND__TASK_FINISH ? want_bytes : 0);
                w_work(&w, i, 0);
            }
        }
        idle = any ? 0 : idle + 1;
        if (!any)
            w_tick(&w, 500);
    }
}

static void test_a_log_has_its_own_name_and_no_level(void **state)
{
    unsigned kinds[16] = {0};
    uint64_t ino, job;

    (void)state;
    open_world(2);
    ino = e_file_of(MGR_ROOT_INO, "a");
    job = w_start(&w, "a", false, NULL);
    run_and_look(kinds, 2 * MIB + 1000);
    assert_int_equal(kinds[FP__TASK_KIND__TASK_PREPARE], 1);
    assert_int_equal(kinds[FP__TASK_KIND__TASK_WRITE], 1);
    assert_int_equal(kinds[FP__TASK_KIND__TASK_FINISH], 1);
    assert_int_equal(e_sql("SELECT state FROM drain_job WHERE id=%llu", (unsigned long long)job), FP__DRAIN_STATE__DRAIN_DONE);
    assert_int_equal(e_sql("SELECT bytes_done FROM drain_job"), 2 * MIB + 1000);
    w_equal(&w, "a.fplog", ino);
    assert_null(w_find(&w, "a"));
    assert_int_equal(e_level(ino), FP__LEVEL__LEVEL_NONE);
    assert_int_equal(e_sql("SELECT count(*) FROM drained"), 0);
    assert_int_equal(e_sql("SELECT count(*) FROM tfile"), 0);
    w_close(&w);
}

/* Writers without space wait as long as something gives way (E8): by a log nothing does. */
static void test_a_log_frees_no_space(void **state)
{
    (void)state;
    open_world(1);
    e_file_of(MGR_ROOT_INO, "a");
    w_start(&w, "a", false, NULL);
    w_run(&w);
    assert_non_null(w_find(&w, "a.fplog"));
    assert_int_equal(w.f.core->drain->moved, 0);
    w.layout = FP_DRAIN_FILE;
    w_start(&w, "a", false, NULL);
    w_run(&w);
    assert_non_null(w_find(&w, "a"));
    assert_true(w.f.core->drain->moved >= 2 * MIB + 1000);
    w_close(&w);
}

/* A set of a policy with layout=log becomes logs, and single files do. No writer waits for them, and nothing is evicted. */
static void test_a_policy_of_logs(void **state)
{
    uint64_t d, a;

    (void)state;
    open_world(1);
    w_policy(&w, "to=/pfs layout=log results=out.h5");
    d = fix_mk(&w.f, MGR_ROOT_INO, "chk_1", S_IFDIR | 0755);
    a = e_file_of(d, "rank_0");
    e_file_of(MGR_ROOT_INO, "out.h5");
    w_tick(&w, 3000);
    assert_int_equal(e_sql("SELECT count(*) FROM drain_job WHERE layout=1"), 2);
    w_run(&w);
    w_equal(&w, "chk_1/rank_0.fplog", a);
    assert_non_null(w_find(&w, "out.h5.fplog"));
    assert_null(w_find(&w, "chk_1/rank_0"));
    assert_int_equal(e_level(a), FP__LEVEL__LEVEL_NONE);
    assert_int_equal(mgr_giving_way(w.f.core), 0);
    w.free_bytes = 1 << 20;
    w_tick(&w, 5000);
    assert_false(mgr_evict_presses(w.f.core));
    assert_int_equal(e_sql("SELECT count(*) FROM drain_job WHERE kind=%d", (int)FP__JOB_KIND__JOB_EVICT), 0);
    assert_int_equal(w.bnf[0].pace.mode == FP__PACE_MODE__PACE_HURRY, 0);
    w_policy(&w, "to=/pfs keep=1"); /* one beside it whose files may go */
    w_tick(&w, 1000);
    assert_true(mgr_giving_way(w.f.core) > 0);
    w_close(&w);
}

static void test_it_is_not_compared(void **state)
{
    char why[300];

    (void)state;
    open_world(1);
    e_file_of(MGR_ROOT_INO, "a");
    assert_int_equal(w_start(&w, "a", true, why), 0);
    assert_non_null(strstr(why, "fpctl merge"));
    w_close(&w);
}

/* Each drain writes it anew: nothing says that the log that is there has the present data. */
static void test_a_log_is_written_again(void **state)
{
    uint64_t written;

    (void)state;
    open_world(1);
    e_file_of(MGR_ROOT_INO, "a");
    w_start(&w, "a", false, NULL);
    w_run(&w);
    written = w.written;
    assert_true(written > 0);
    w_start(&w, "a", false, NULL);
    w_run(&w);
    assert_int_equal(w.written, 2 * written);
    w_close(&w);
}

/* Of an attempt that nobody knows any more: its directory, the log that it was about to replace, and where that was. */
static void test_what_was_put_aside_is_swept(void **state)
{
    static const char *const left[] = {"01020300-77-5-old", "01020300-77-5-to", "01020300-78-6", "01020300-79-7-other"};

    (void)state;
    open_world(1);
    e_file_of(MGR_ROOT_INO, "a");
    for (size_t i = 0; i < 4; i++) {
        w.file[i].used = true;
        snprintf(w.file[i].name, sizeof w.file[i].name, "%s", left[i]);
    }
    w_start(&w, "a", false, NULL);
    w_run(&w);
    assert_int_equal(w.cleaned, 2); /* of one attempt once */
    w_close(&w);
}

/* As long as a name may be, it has none for a log; the rest of the directory goes on. */
static void test_a_name_that_is_too_long_for_a_log(void **state)
{
    char fits[256], longer[256];
    Fp__CtlDrainReply *r;
    uint64_t job;

    (void)state;
    open_world(1);
    memset(fits, 'f', 249);
    memset(longer, 'l', 250);
    fits[249] = longer[250] = '\0';
    e_file_of(MGR_ROOT_INO, fits);
    e_file_of(MGR_ROOT_INO, longer);
    job = w_start(&w, "", false, NULL);
    w_run(&w);
    r = w_show(&w, job);
    assert_int_equal(r->jobs[0]->state, FP__DRAIN_STATE__DRAIN_FAILED);
    assert_int_equal(r->jobs[0]->files_done, 1);
    assert_int_equal(r->jobs[0]->files_failed, 1);
    assert_int_equal(r->jobs[0]->error, -ENAMETOOLONG);
    assert_non_null(strstr(r->jobs[0]->why, "too long for a log: 256 bytes with .fplog behind it, and 255 is the most"));
    fix_free(r);
    w_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_log_has_its_own_name_and_no_level),
        cmocka_unit_test(test_a_log_frees_no_space),
        cmocka_unit_test(test_a_policy_of_logs),
        cmocka_unit_test(test_it_is_not_compared),
        cmocka_unit_test(test_a_log_is_written_again),
        cmocka_unit_test(test_what_was_put_aside_is_swept),
        cmocka_unit_test(test_a_name_that_is_too_long_for_a_log),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
