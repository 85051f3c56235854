/* Space for writers: what is drained goes by itself when little is free, or a program has no space; the oldest first, where a policy says so, and nothing else. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "manager/ext.h"
#include "mgr_evict_world.h"

#define FILES 40

static uint64_t ino[FILES];

static int64_t all_external(void)
{
    return e_sql("SELECT count(*) FROM chunk WHERE bnf=0");
}

static uint64_t statfs_press(uint32_t press)
{
    Fp__StatFs m = FP__STAT_FS__INIT;
    Fp__StatFsReply *r;
    uint64_t way;

    m.press = press;
    r = fix_call(&w.f, w.f.conn, FP__MSG_TYPE__MSG_STATFS, &m, &fp__stat_fs_reply__descriptor);
    assert_non_null(r);
    way = r->giving_way;
    fix_free(r);
    return way;
}

static void go_on(uint64_t ms)
{
    for (uint64_t t = 0; t < ms; t += 1000) {
        w_tick(&w, 1000);
        w_run(&w);
    }
}

/* Files of 3 MiB each, written and drained in this order to where w_start drains. */
static void open_world(unsigned n)
{
    w_open(&w, ":memory:", 1);
    for (unsigned i = 0; i < n; i++) {
        char name[16];

        snprintf(name, sizeof name, "%c", (char)('a' + i)); /* no number, which would be a step: the newest sets stay */
        ino[i] = fix_mk(&w.f, MGR_ROOT_INO, name, S_IFREG | 0644);
        for (unsigned k = 0; k < 3; k++)
            assert_true(fix_write(&w.f, ino[i], (uint64_t)k * MIB, MIB) > 0);
        assert_true(w_start(&w, name, false, NULL) > 0);
        go_on(1000);
    }
    assert_int_equal(e_sql("SELECT count(*) FROM drained"), n);
}

static void opens(uint64_t of)
{
    Fp__Open m = FP__OPEN__INIT;

    m.ino = of;
    fix_free(fix_call(&w.f, w.f.conn, FP__MSG_TYPE__MSG_OPEN, &m, &fp__attr_reply__descriptor));
}

static void closes(uint64_t of)
{
    Fp__Release m = FP__RELEASE__INIT;

    m.n_ino = 1;
    m.ino = &of;
    fix_notice(&w.f, w.f.conn, FP__MSG_TYPE__MSG_RELEASE, &m);
}

/* The benefactor confirms what it was told to delete. */
static void deleted(void)
{
    Fp__ChunkList l = FP__CHUNK_LIST__INIT;
    uint64_t ids[16];

    for (l.ids = ids; l.n_ids < 16; l.n_ids++) {
        int64_t id = e_sql("SELECT chunk FROM garbage WHERE bnf=%u ORDER BY chunk LIMIT 1 OFFSET %zu", w.bnf[0].id, l.n_ids);

        if (id < 0)
            break;
        ids[l.n_ids] = (uint64_t)id;
    }
    fix_answer(&w.f, w.bnf[0].conn, FP__MSG_TYPE__MSG_DELETE, 0, &l);
    assert_int_equal(e_sql("SELECT count(*) FROM garbage"), 0);
}

static void test_nothing_goes_while_there_is_room(void **state)
{
    (void)state;
    open_world(4);
    w_policy(&w, "to=/pfs");
    go_on(10000);
    assert_int_equal(all_external(), 0);
    w_close(&w);
}

static void test_the_oldest_go_when_little_is_free(void **state)
{
    (void)state;
    open_world(FILES);
    w_policy(&w, "to=/pfs");
    w.capacity = 160 * MIB; /* 120 are used, 48 should be free. A job is of 64 MiB at least */
    go_on(2000);
    for (unsigned i = 0; i < FILES && i < 22; i++)
        assert_int_equal(e_external(ino[i]), 3);
    assert_int_equal(e_external(ino[FILES - 1]), 0);
    w.capacity = 0;
    go_on(10000);
    assert_int_equal(e_external(ino[FILES - 1]), 0);
    w_close(&w);
}

static void test_nothing_goes_without_a_policy_for_its_target(void **state)
{
    (void)state;
    open_world(4);
    w.capacity = 14 * MIB;
    go_on(5000);
    assert_int_equal(statfs_press(1), 0);
    assert_int_equal(all_external(), 0);
    w_policy(&w, "to=/another/place");
    go_on(5000);
    assert_int_not_equal(statfs_press(1), 0);
    go_on(5000);
    assert_int_equal(all_external(), 0);
    w_close(&w);
}

static void test_a_writer_without_space_makes_room(void **state)
{
    uint64_t before, after;

    (void)state;
    open_world(4);
    w_policy(&w, "to=/pfs");
    /* There is enough for low=, and yet none where it is needed. */
    go_on(3000);
    assert_int_equal(all_external(), 0);
    assert_int_equal(statfs_press(0), 0);
    before = statfs_press(1);
    assert_true(before > 0);
    go_on(1000);
    assert_int_equal(all_external(), 12);
    after = statfs_press(1);
    assert_true(after > before);
    go_on(10000);
    assert_int_equal(statfs_press(1), after); /* there is nothing left to go: a writer sees that it stands still */
    w_close(&w);
}

static void test_what_is_open_stays_and_goes_later(void **state)
{
    (void)state;
    open_world(2);
    w_policy(&w, "to=/pfs");
    opens(ino[0]);
    w.capacity = 8 * MIB;
    go_on(3000);
    assert_int_equal(e_external(ino[0]), 0);
    assert_int_equal(e_external(ino[1]), 3);
    closes(ino[0]);
    deleted();
    w.capacity = 4 * MIB;
    go_on(8000);
    assert_int_equal(e_external(ino[0]), 3);
    w_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_goes_while_there_is_room),
        cmocka_unit_test(test_the_oldest_go_when_little_is_free),
        cmocka_unit_test(test_nothing_goes_without_a_policy_for_its_target),
        cmocka_unit_test(test_a_writer_without_space_makes_room),
        cmocka_unit_test(test_what_is_open_stays_and_goes_later),
    };

    return cmocka_run_group_tests_name("mgr_press", tests, NULL, NULL);
}
