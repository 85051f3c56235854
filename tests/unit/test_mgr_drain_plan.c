/* Files are cut into parts: each window once for each benefactor that has some of it, within bounds, and a big one over several groups. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "manager/drain.h"
#include "mgr_fixture.h"

static struct fix f;

/* A file of a job, with slices put there by SQL: win, off, len, and benefactor. */
static struct mgr_dfile file_with(const char *slices)
{
    struct mgr_dfile d = {.id = 9, .gen = 3, .state = MGR_D_PREPARE, .tino = 1};
    struct mgr_inode in;

    d.ino = fix_mk(&f, MGR_ROOT_INO, "a", S_IFREG | 0644);
    assert_int_equal(fix_sql(&f, "CREATE TEMP TABLE s (win, off, len, bnf)"), -1);
    assert_int_equal(fix_sql(&f, "INSERT INTO s %s", slices), -1);
    fix_sql(&f, "INSERT INTO slice SELECT %llu,win,off,len,rowid,0 FROM s", (unsigned long long)d.ino);
    fix_sql(&f, "INSERT INTO chunk(id,len,stored,sum,refs,bnf) SELECT rowid,len,len,0,1,bnf FROM s");
    assert_int_equal(mgr_inode_get(f.core, d.ino, &in), 0);
    d.version = in.data_version;
    return d;
}

static int plan_once(struct mgr_dfile *d, bool *done)
{
    bool durable;
    int rc;

    mgr_core_begin(f.core, f.now);
    rc = mgr_drain_plan(f.core, d, done);
    assert_int_equal(mgr_core_end(f.core, &durable), 0);
    mgr_core_reset(f.core);
    return rc;
}

static unsigned plan_all(struct mgr_dfile *d)
{
    unsigned groups = 0;
    bool done = false;

    for (; !done; groups++)
        assert_int_equal(plan_once(d, &done), 0);
    return groups;
}

/* Each slice is in exactly one part: that of its benefactor. Within the bounds, but for a single window. */
static void is_covered(void)
{
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM s WHERE 1!=(SELECT count(*) FROM drain_part p WHERE s.win>=p.first AND s.win<p.first+p.count AND p.bnf=s.bnf)"), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM drain_part p WHERE bytes!=(SELECT ifnull(sum(len),0) FROM s WHERE s.win>=p.first AND "
                                 "s.win<p.first+p.count AND p.bnf=s.bnf)"), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM drain_part p WHERE count>1 AND (count>64 OR bytes>67108864 OR 4096<(SELECT count(*) FROM s WHERE "
                                 "s.win>=p.first AND s.win<p.first+p.count))"), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM drain_part WHERE state!=1 OR gen!=3 OR file!=9"), 0);
    /* all parts that begin together end together: it is where the next group goes on */
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM drain_part p JOIN drain_part q ON p.first=q.first WHERE p.count!=q.count"), 0);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM drain_part p JOIN drain_part q ON p.first<q.first WHERE p.first+p.count>q.first"), 0);
}

static int64_t parts(void)
{
    return fix_sql(&f, "SELECT count(*) FROM drain_part");
}

#define FILLED(text)                                                                                         \
    fix_open(&f, ":memory:", false);                                                                         \
    struct mgr_dfile d = file_with(text);

static void done_with(void)
{
    for (struct mgr_conn *c = f.core->conns; c; c = c->next)
        free(c->user);
    mgr_core_free(f.core); /* its tables do not agree: slices were made by hand */
    fix_clear_outs(&f);
}

static void test_one_benefactor_has_parts_of_64_windows(void **state)
{
    (void)state;
    FILLED("WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<199) SELECT i,0,1048576,1 FROM n");
    assert_int_equal(plan_all(&d), 1);
    assert_int_equal(parts(), 4);
    is_covered();
    assert_int_equal(fix_sql(&f, "SELECT count FROM drain_part WHERE first=192"), 8);
    done_with();
}

static void test_strided_windows_make_a_part_for_each(void **state)
{
    (void)state;
    FILLED("WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<127) SELECT i,0,1048576,1+i%4 FROM n");
    plan_all(&d);
    assert_int_equal(parts(), 8);
    is_covered();
    done_with();
}

static void test_pieces_of_one_window_go_to_who_has_them(void **state)
{
    (void)state;
    FILLED("WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<639) SELECT i/64,i%64*4096,4096,1+i*7%3 FROM n");
    plan_all(&d);
    assert_int_equal(parts(), 3);
    is_covered();
    done_with();
}

static void test_holes_are_in_no_part(void **state)
{
    (void)state;
    FILLED("VALUES (5,0,10,1),(1000000,5,10,2),(1000063,0,10,2),(1000064,0,10,2)");
    plan_all(&d);
    assert_int_equal(parts(), 3);
    is_covered();
    assert_int_equal(fix_sql(&f, "SELECT count FROM drain_part WHERE first=5"), 1);
    assert_int_equal(fix_sql(&f, "SELECT count FROM drain_part WHERE first=1000000"), 64);
    done_with();
}

static void test_nothing_has_no_parts(void **state)
{
    (void)state;
    FILLED("SELECT 1,1,1,1 WHERE 0");
    assert_int_equal(plan_all(&d), 1);
    assert_int_equal(parts(), 0);
    done_with();
}

static void test_many_slices_make_parts_smaller(void **state)
{
    (void)state;
    FILLED("WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<11999) SELECT i/1000,i%1000,1,1 FROM n");
    plan_all(&d);
    assert_int_equal(parts(), 3);
    is_covered();
    done_with();
}

static void test_a_window_of_very_many_slices_is_a_part(void **state)
{
    (void)state;
    FILLED("WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<5001) SELECT min(i,5000)-min(i,4999),i,1,1 FROM n");
    plan_all(&d);
    assert_int_equal(parts(), 2);
    is_covered();
    done_with();
}

static void test_a_big_one_takes_several_groups(void **state)
{
    (void)state;
    FILLED("WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i+1 FROM n WHERE i<19999) SELECT i,0,100,1 FROM n");
    assert_true(plan_all(&d) > 1);
    is_covered();
    assert_int_equal(fix_sql(&f, "SELECT sum(bytes) FROM drain_part"), 2000000);
    done_with();
}

static void test_what_is_lost_or_has_changed_is_not_planned(void **state)
{
    bool done;

    (void)state;
    FILLED("VALUES (0,0,10,1),(3,0,10,0)");
    assert_int_equal(plan_once(&d, &done), -EIO);
    assert_false(done);
    d.version++;
    assert_int_equal(plan_once(&d, &done), -ESTALE);
    d.ino = 4711;
    assert_int_equal(plan_once(&d, &done), -ENOENT);
    done_with();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_benefactor_has_parts_of_64_windows),
        cmocka_unit_test(test_strided_windows_make_a_part_for_each),
        cmocka_unit_test(test_pieces_of_one_window_go_to_who_has_them),
        cmocka_unit_test(test_holes_are_in_no_part),
        cmocka_unit_test(test_nothing_has_no_parts),
        cmocka_unit_test(test_many_slices_make_parts_smaller),
        cmocka_unit_test(test_a_window_of_very_many_slices_is_a_part),
        cmocka_unit_test(test_a_big_one_takes_several_groups),
        cmocka_unit_test(test_what_is_lost_or_has_changed_is_not_planned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
