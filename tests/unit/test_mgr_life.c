/*
 * Which life of what the manager has not synced this is, as clients hear it: the same over restarts, another after a power failure.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "fp/log.h"
#include "tests/unit/mgr_fixture.h"

static struct fix f;
static char path[64];

static uint64_t life(void)
{
    Fp__Hello h = FP__HELLO__INIT;
    Fp__HelloReply *r;
    uint64_t n;

    h.protocol = 1;
    h.role = FP__ROLE__ROLE_CLIENT;
    r = fix_call(&f, fix_conn(&f), FP__MSG_TYPE__MSG_HELLO, &h, &fp__hello_reply__descriptor);
    assert_non_null(r);
    n = r->unsynced_life;
    fix_free(r);
    return n;
}

/* The manager starts on this boot of its machine, tells which life it is, and ends, in good order or not. */
static uint64_t start(uint64_t boot, uint64_t new_life, bool end)
{
    struct mgr_core_opts o = {.store_uuid = {1}, .boot = boot, .new_life = new_life};
    char why[MGR_DB_WHY_MAX];
    uint64_t n;

    fp_log_set_level(FP_LOG_ERROR);
    memset(&f, 0, sizeof f);
    f.now = (struct mgr_now){.ms = 1000, .ns = 1700000000 * INT64_C(1000000000)};
    assert_int_equal(mgr_core_new(&f.core, path, &o, f.now, why), 0);
    n = life();
    if (end)
        assert_int_equal(mgr_core_ended(f.core), 0);
    fix_close(&f);
    return n;
}

static int remove_db(void **state)
{
    static const char *const ends[] = {"", "-wal", "-shm"};
    char name[80];

    (void)state;
    snprintf(path, sizeof path, "/tmp/test-mgr-life-%d.db", (int)getpid());
    for (size_t i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        unlink(name);
    }
    return 0;
}

static void test_life_stays_over_a_restart(void **state)
{
    (void)state;
    assert_int_equal(start(1, 71, false), 71);
    assert_int_equal(start(1, 72, true), 71);
    assert_int_equal(start(1, 73, false), 71);
}

static void test_life_is_another_after_a_power_failure(void **state)
{
    (void)state;
    assert_int_equal(start(1, 71, false), 71);
    assert_int_equal(start(2, 72, false), 72);
    assert_int_equal(start(2, 73, false), 72);
}

static void test_life_stays_over_a_boot_after_a_good_end(void **state)
{
    (void)state;
    assert_int_equal(start(1, 71, true), 71);
    assert_int_equal(start(2, 72, false), 71);
    assert_int_equal(start(3, 73, false), 73); /* that end was before */
}

static void test_life_without_a_known_boot_ends_with_the_process(void **state)
{
    (void)state;
    assert_int_equal(start(0, 71, false), 71);
    assert_int_equal(start(0, 72, true), 72);
    assert_int_equal(start(0, 73, true), 72);
}

#define T(name) cmocka_unit_test_setup_teardown(name, remove_db, remove_db)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_life_stays_over_a_restart),
        T(test_life_is_another_after_a_power_failure),
        T(test_life_stays_over_a_boot_after_a_good_end),
        T(test_life_without_a_known_boot_ends_with_the_process),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
