/* Checkpoint sets by a number that grows: bare names become steps when they have come one after the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "mgr_drain_world.h"

#define COMPLETE FP__CKPT_STATE__CKPT_COMPLETE
#define PAUSE_MS 5000u
#define STORM    100000u

static struct world w;

static int setup(void **state)
{
    (void)state;
    w_open(&w, fix_path(), 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    w_close(&w);
    return 0;
}

/* Without benefactors that work, and without the checks at the end, which look at each name for each file. */
static int setup_alone(void **state)
{
    (void)state;
    memset(&w, 0, sizeof w);
    fix_open(&w.f, fix_path(), false);
    return 0;
}

static int teardown_alone(void **state)
{
    (void)state;
    fix_close_and_remove(&w.f);
    return 0;
}

static uint64_t dir(uint64_t parent, const char *name)
{
    return fix_mk(&w.f, parent, name, S_IFDIR | 0755);
}

/* Written and closed. */
static uint64_t file(uint64_t parent, const char *name)
{
    uint64_t ino = fix_creat(&w.f, w.f.conn, parent, name);

    assert_int_not_equal(fix_write(&w.f, ino, 0, 100), 0);
    fix_release(&w.f, w.f.conn, ino);
    return ino;
}

static const char *name_of(const char *format, unsigned n)
{
    static char name[64];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(name, sizeof name, format, n);
#pragma GCC diagnostic pop
    return name;
}

static uint64_t numbered(uint64_t parent, const char *format, unsigned n, bool directory)
{
    return directory ? dir(parent, name_of(format, n)) : file(parent, name_of(format, n));
}

/* Steps of so much, with a pause behind each. */
static void run_of_files(uint64_t parent, const char *format, unsigned from, unsigned by, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        numbered(parent, format, from + by * i, false);
        w_tick(&w, PAUSE_MS);
    }
}

static void run_of_dirs(uint64_t parent, const char *format, unsigned from, unsigned by, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        uint64_t d = numbered(parent, format, from + by * i, true);

        file(d, "rank_0");
        file(d, "rank_1");
        w_tick(&w, PAUSE_MS);
    }
}

static int64_t sets(void)
{
    return fix_sql(&w.f, "SELECT count(*) FROM ckpt_set WHERE state<>4");
}

static int64_t files_of(unsigned step)
{
    return fix_sql(&w.f, "SELECT count(*) FROM inode i JOIN ckpt_set s ON s.id=i.ckpt WHERE s.step=%u", step);
}

static int64_t state_of(unsigned step)
{
    return fix_sql(&w.f, "SELECT state FROM ckpt_set WHERE step=%u", step);
}

/* Path of the newest, as fpctl checkpoints has it. */
static void newest_is(const char *want, uint64_t step)
{
    Fp__CtlSets m = FP__CTL_SETS__INIT;
    Fp__CtlSetsReply *r = fix_call(&w.f, w.f.conn, FP__MSG_TYPE__MSG_CTL_SETS, &m, &fp__ctl_sets_reply__descriptor);
    size_t at = 0;

    assert_non_null(r);
    assert_true(r->n_sets > 0);
    for (size_t i = 1; i < r->n_sets; i++)
        at = r->sets[i]->step > r->sets[at]->step ? i : at;
    assert_int_equal(r->sets[at]->step, step);
    assert_int_equal(r->sets[at]->how, FP__CKPT_HOW__CKPT_BY_GROWTH);
    assert_int_equal(r->sets[at]->path.len, strlen(want));
    assert_memory_equal(r->sets[at]->path.data, want, strlen(want));
    fix_free(r);
}

static void test_directories_of_numbers_become_sets_with_those_before(void **state)
{
    uint64_t run = dir(MGR_ROOT_INO, "run");

    (void)state;
    run_of_dirs(run, "%05u", 100, 100, 2);
    assert_int_equal(sets(), 0);
    run_of_dirs(run, "%05u", 300, 100, 1);
    assert_int_equal(sets(), 3);
    for (unsigned step = 100; step <= 300; step += 100) {
        assert_int_equal(files_of(step), 2);
        assert_int_equal(state_of(step), COMPLETE);
    }
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM ckpt_set a JOIN ckpt_set b WHERE a.step<b.step AND a.seq>=b.seq"), 0); /* in the order in which they came */
    newest_is("/run/00300", 300);
    run_of_dirs(run, "%05u", 400, 300, 2); /* known by now, whatever the interval */
    assert_int_equal(sets(), 5);
    newest_is("/run/00700", 700);
}

static void test_times_with_decimals(void **state)
{
    static const char *const times[] = {"0.8", "0.9", "1", "1.1", "1.25", "2", "10"};
    uint64_t run = dir(MGR_ROOT_INO, "run");

    (void)state;
    dir(run, "constant");
    file(dir(run, "0"), "U"); /* the initial state: a time like others, when the others are known */
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        w_tick(&w, PAUSE_MS);
        file(dir(run, times[i]), "U");
        assert_int_equal(sets(), i < 3 ? 0 : i + 2);
    }
    newest_is("/run/10", 10000000);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM ckpt_series"), 1);
    w_restart(&w);
    file(dir(run, "10.5"), "U");
    newest_is("/run/10.5", 10500000);
}

static void test_files_beside_each_other(void **state)
{
    uint64_t run = dir(MGR_ROOT_INO, "run");

    (void)state;
    run_of_files(run, "%u.dat", 5000, 5000, 2);
    file(run, "15000.dat");
    file(run, "15000.idx"); /* a second file of that step */
    w_tick(&w, PAUSE_MS);
    assert_int_equal(sets(), 3);
    assert_int_equal(files_of(15000), 2);
    newest_is("/run/15000", 15000);
}

static void test_several_files_of_a_step_and_of_ranks(void **state)
{
    uint64_t run = dir(MGR_ROOT_INO, "run");

    (void)state;
    for (unsigned step = 100; step <= 300; step += 100) {
        for (unsigned rank = 0; rank < 4; rank++) {
            char name[32];

            snprintf(name, sizeof name, "out_%u_%u.dat", step, rank);
            file(run, name);
        }
        w_tick(&w, PAUSE_MS);
    }
    assert_int_equal(sets(), 3);
    for (unsigned step = 100; step <= 300; step += 100)
        assert_int_equal(files_of(step), 4);
}

static void test_ranks_side_by_side_are_no_steps(void **state)
{
    uint64_t run = dir(MGR_ROOT_INO, "run"), ino[6], d[6];

    (void)state;
    for (unsigned i = 0; i < 6; i++) { /* they begin one after the other, and end together */
        char name[16];

        snprintf(name, sizeof name, "out%u", i);
        ino[i] = fix_creat(&w.f, w.f.conn, run, name);
        w_tick(&w, PAUSE_MS);
    }
    for (unsigned i = 0; i < 6; i++)
        fix_release(&w.f, w.f.conn, ino[i]);
    for (unsigned i = 0; i < 6; i++)
        d[i] = numbered(run, "%u", i, true); /* all are made at once, and used one after the other */
    for (unsigned i = 0; i < 6; i++) {
        file(d[i], "data");
        w_tick(&w, PAUSE_MS);
    }
    run_of_files(run, "rank_%u", 0, 1, 6);
    w_tick(&w, PAUSE_MS);
    for (unsigned i = 0; i < 50; i++)
        numbered(run, "img_%u", i, false); /* one behind the other: a copy */
    w_tick(&w, PAUSE_MS);
    assert_int_equal(sets(), 0);
}

/* A directory is being written as long as a file in it is, and one deeper. */
static void test_what_is_still_written_is_not_followed_by_a_step(void **state)
{
    uint64_t run = dir(MGR_ROOT_INO, "run"), deep = dir(dir(run, "1"), "a"), open = fix_creat(&w.f, w.f.conn, deep, "x");

    (void)state;
    w_tick(&w, PAUSE_MS);
    run_of_dirs(run, "%u", 2, 1, 2); /* 2 begins while 1 is open, so 2 and 3 alone have grown */
    assert_int_equal(sets(), 0);
    fix_release(&w.f, w.f.conn, open);
    run_of_dirs(run, "%u", 4, 1, 1);
    assert_int_equal(sets(), 4);
}

static void test_what_lies_in_a_number_is_part_of_it(void **state)
{
    uint64_t year = dir(MGR_ROOT_INO, "2019"), day = dir(MGR_ROOT_INO, "12-01-30");

    (void)state;
    run_of_dirs(year, "%02u", 1, 1, 6); /* months */
    run_of_files(day, "%u", 0, 1, 6);   /* the jobs of a sweep */
    assert_int_equal(sets(), 0);
}

static void test_dates_and_names_by_chance_are_no_steps(void **state)
{
    static const unsigned random[] = {4711, 815, 9999, 10001, 37, 555};
    time_t now = 1700000000;
    struct tm tm;

    (void)state;
    for (unsigned day = 0; day < 6; day++) { /* what a clock says, a day later each time */
        char name[32];

        gmtime_r(&now, &tm);
        strftime(name, sizeof name, "log-%Y%m%d", &tm);
        w.f.now.ns = (int64_t)now * 1000000000;
        file(MGR_ROOT_INO, name);
        snprintf(name, sizeof name, "run.%lld", (long long)now);
        file(MGR_ROOT_INO, name);
        w_tick(&w, PAUSE_MS);
        now += 86400;
    }
    for (size_t i = 0; i < sizeof random / sizeof *random; i++) {
        numbered(MGR_ROOT_INO, "x%u", random[i], false);
        w_tick(&w, PAUSE_MS);
    }
    run_of_files(MGR_ROOT_INO, "countdown%u", 10, (unsigned)-1, 6);
    run_of_files(MGR_ROOT_INO, "tmp%u", 1, 1, 6);
    assert_int_equal(sets(), 0);
}

/* out.0 is the newest: the others are renamed before it is written. */
static void test_rotated_names_are_no_steps(void **state)
{
    (void)state;
    for (unsigned n = 0; n < 6; n++) {
        for (unsigned i = n; i-- > 0;) {
            char from[16], to[16];

            snprintf(from, sizeof from, "out.%u", i);
            snprintf(to, sizeof to, "out.%u", i + 1);
            assert_int_equal(fix_rename(&w.f, MGR_ROOT_INO, from, MGR_ROOT_INO, to, 0), 0);
        }
        file(MGR_ROOT_INO, "out.0");
        w_tick(&w, PAUSE_MS);
    }
    assert_int_equal(sets(), 0);
}

/* Written under another name, of which nothing is known, or a temporary one. */
static void test_names_that_are_renamed_when_they_are_whole(void **state)
{
    uint64_t run = dir(MGR_ROOT_INO, "run");

    (void)state;
    for (unsigned step = 1; step <= 4; step++) {
        char name[24], from[32];
        uint64_t d = dir(run, "next");

        file(d, "data");
        snprintf(name, sizeof name, "%u", step);
        assert_int_equal(fix_rename(&w.f, run, "next", run, name, 0), 0);
        snprintf(name, sizeof name, "state%u.bin", step);
        snprintf(from, sizeof from, "%s.tmp", name);
        file(run, from);
        assert_int_equal(fix_rename(&w.f, run, from, run, name, 0), 0);
        w_tick(&w, PAUSE_MS);
    }
    assert_int_equal(sets(), 8);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM ckpt_set WHERE state<>%d OR files<>1", COMPLETE), 0);
}

static void test_words_and_patterns_go_before_it(void **state)
{
    uint64_t run = dir(MGR_ROOT_INO, "run");

    (void)state;
    w_policy(&w, "to=/pfs pattern=data{step}.h5");
    w_tick(&w, 1000);
    for (unsigned n = 1; n <= 4; n++) {
        uint64_t d = numbered(run, "%u", n, true);

        numbered(d, "chk_%u", 70 + n, false);
        numbered(run, "data%u.h5", 80 + n, false);
        file(d, "log");
        w_tick(&w, PAUSE_MS);
    }
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM ckpt_set WHERE how=2 AND files=1"), 4);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM ckpt_set WHERE how=1 AND files=1"), 4);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM ckpt_set WHERE how=3 AND files=1"), 4); /* the logs */
}

static void test_what_was_forgotten_does_not_come_back(void **state)
{
    (void)state;
    run_of_files(MGR_ROOT_INO, "report%u", 1, 1, 3);
    assert_int_equal(sets(), 3);
    for (unsigned n = 1; n <= 3; n++) {
        Fp__CtlSetSay m = FP__CTL_SET_SAY__INIT;
        char name[32];

        snprintf(name, sizeof name, "/report%u", n);
        m.path = fix_bin(name);
        m.what = FP__SET_SAY__SET_SAY_FORGET;
        fix_free(fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_SET_SAY, &m, &fp__ckpt_set__descriptor));
        assert_int_equal(w.f.status, 0);
    }
    run_of_files(MGR_ROOT_INO, "report%u", 4, 1, 4);
    assert_int_equal(sets(), 0);
}

static void test_a_restart_of_the_manager_between(void **state)
{
    uint64_t run = dir(MGR_ROOT_INO, "run");

    (void)state;
    for (unsigned n = 1; n <= 5; n++) {
        run_of_dirs(run, "%u", n, 1, 1);
        run_of_files(run, "out%u", n, 1, 1);
        w_restart(&w);
        w_tick(&w, 1000);
        assert_int_equal(sets(), n < 3 ? 0 : 2 * n);
    }
}

static void test_a_writer_that_died_has_torn_one_before(void **state)
{
    struct mgr_conn *other = fix_conn(&w.f);
    uint64_t run = dir(MGR_ROOT_INO, "run");

    (void)state;
    fix_hello_client(&w.f, other, 0, NULL);
    run_of_files(run, "out%u", 1, 1, 1);
    fix_creat(&w.f, other, run, "out2");
    fix_lost(&w.f, other);
    for (unsigned i = 0; i < 400; i++) { /* until its session ends */
        w_tick(&w, 1000);
        fix_free(fix_call(&w.f, w.f.conn, FP__MSG_TYPE__MSG_STATFS, &(Fp__Empty)FP__EMPTY__INIT, &fp__stat_fs_reply__descriptor));
    }
    run_of_files(run, "out%u", 3, 1, 3);
    assert_int_equal(sets(), 5);
    assert_int_equal(state_of(2), FP__CKPT_STATE__CKPT_TORN);
    for (unsigned n = 1; n <= 5; n += n == 1 ? 2 : 1)
        assert_int_equal(state_of(n), COMPLETE);
}

/* Steps of SQLite's machine in reading names of a directory, since it was asked last: some for each. */
static int64_t looked(void)
{
    return sqlite3_stmt_status(w.f.core->db.st[MGR_ST_DIR_NEWEST], SQLITE_STMTSTATUS_VM_STEP, 1) + sqlite3_stmt_status(w.f.core->db.st[MGR_ST_DIR_LIST], SQLITE_STMTSTATUS_VM_STEP, 1);
}

/* A name costs the same among 100,000 others, known or not: nothing looks at all of a directory. */
static void test_a_directory_of_many_names(void **state)
{
    uint64_t run = dir(MGR_ROOT_INO, "run");
    struct timespec a, b;
    struct mgr_now now;
    double half[2];

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
        for (unsigned n = 0; n < STORM / 2; n++)
            fix_mk(&w.f, run, name_of(n % 2 ? "img_%06u.png" : "%06u", i * STORM / 2 + n), S_IFREG | 0644);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
        half[i] = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
    }
    assert_int_equal(sets(), 0);
    assert_in_range(looked(), 0, 1000);
    print_message("          %u names: %.1f us each for the first half, %.1f us for the second\n", STORM, half[0] * 2e6 / STORM, half[1] * 2e6 / STORM);
    now = w.f.now;
    fix_close(&w.f);
    fix_open(&w.f, fix_path(), false);
    w.f.now = now;
    run_of_files(run, "out%u", 1, 1, 2);
    assert_in_range(looked(), 64, 2000); /* the newest ones, once */
    run_of_files(run, "out%u", 3, 1, 1);
    assert_int_equal(sets(), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_directories_of_numbers_become_sets_with_those_before, setup, teardown),
        cmocka_unit_test_setup_teardown(test_times_with_decimals, setup, teardown),
        cmocka_unit_test_setup_teardown(test_files_beside_each_other, setup, teardown),
        cmocka_unit_test_setup_teardown(test_several_files_of_a_step_and_of_ranks, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ranks_side_by_side_are_no_steps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_still_written_is_not_followed_by_a_step, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_lies_in_a_number_is_part_of_it, setup, teardown),
        cmocka_unit_test_setup_teardown(test_dates_and_names_by_chance_are_no_steps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_rotated_names_are_no_steps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names_that_are_renamed_when_they_are_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(test_words_and_patterns_go_before_it, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_was_forgotten_does_not_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_restart_of_the_manager_between, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_writer_that_died_has_torn_one_before, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_directory_of_many_names, setup_alone, teardown_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
