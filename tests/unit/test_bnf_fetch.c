/*
 * Chunks that are in a target come back when mounts ask for them, against the real fp-drain over a real directory. Targets that lie, hang, or are not there; workers that
 * die; no room. Faults in fp-drain come by FP_FAULTS, which it inherits.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fp/checksum.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "tests/unit/fetch_world.h"

/* -------------------------------------------------------------- what mounts ask for */

static void test_a_chunk_comes_back(void **state)
{
    struct told t;
    uint64_t id;

    (void)state;
    for (uint32_t i = 0; i < CHUNKS; i += CHUNKS - 1) {
        assert_int_equal(fw_fetched(i, &t), 0);
        assert_true(t.stored && t.right);
        assert_true(fw_is_here(i));
    }
    assert_int_equal(fw_staged(NULL, false), 2); /* again, until it was taken */
    assert_int_equal(fw_staged(NULL, true), 2);
    assert_int_equal(fw_staged(NULL, true), 0);
    assert_int_equal(fw_fetched(0, &t), 0); /* it is here: at once, and told once more */
    assert_true(t.stored && t.right);
    assert_int_equal(fw_staged(&id, false), 1);
    assert_int_equal(id, FIRST);
    fw_delete(0); /* what is not here any more is not told */
    assert_int_equal(fw_staged(NULL, false), 0);
    assert_false(fw_is_here(0));
    assert_int_equal(fw_fetched(0, &t), 0);
    assert_true(fw_is_here(0));
}

static void test_many_asks_are_one_read(void **state)
{
    struct told t[40];

    (void)state;
    fw_restart("drain.target_pread=delay:ms=100", 600000);
    for (int i = 0; i < 40; i++)
        assert_int_equal(fw_fetch(i % 2, false, &t[i]), 0);
    for (int i = 0; i < 40; i++) {
        assert_int_equal(fw_wait_told(&t[i]), 0);
        assert_true(t[i].stored && t[i].right);
    }
    assert_int_equal(fw_staged(NULL, true), 2);
}

static void test_without_room_the_bytes_are_passed_on(void **state)
{
    struct told t[3];

    (void)state;
    fw_fill_up(CAPACITY / 16 + MIB / 2); /* the last sixteenth is for programs that write */
    assert_int_equal(fw_fetch(3, true, &t[0]), 0);
    assert_int_equal(fw_fetch(3, true, &t[1]), 0);
    assert_int_equal(fw_fetch(3, false, &t[2]), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fw_wait_told(&t[i]), i < 2 ? 0 : -ENOSPC);
    for (int i = 0; i < 2; i++) {
        assert_true(!t[i].stored && t[i].right);
        bnf_drain_fetch_end(t[i].handle);
    }
    assert_false(fw_is_here(3));
    assert_int_equal(fw_staged(NULL, true), 0);
    bnf_service_owner_gone(x.service, x.owner);
    while (bnf_store_leasable(bnf_service_store(x.service)) < CAPACITY / 2)
        fw_turn();
    assert_int_equal(fw_fetched(3, &t[0]), 0);
    assert_true(fw_is_here(3));
}

static void test_wrong_bytes_are_not_passed_on(void **state)
{
    struct timespec times[2] = { x.st.st_atim, x.st.st_mtim };
    struct told t;
    int fd = open(fw_path_of("dir/file"), O_WRONLY | O_CLOEXEC);

    (void)state;
    assert_int_equal(pwrite(fd, "x", 1, 2 * MIB + 99999), 1);
    assert_int_equal(futimens(fd, times), 0);
    close(fd);
    assert_int_equal(fw_fetched(1, &t), 0);
    assert_int_equal(fw_fetch(2, true, &t), 0);
    assert_int_equal(fw_wait_told(&t), FP_ECHECKSUM);
    assert_false(fw_is_here(2));
    assert_int_equal(truncate(fw_path_of("dir/file"), SIZE - 1), 0);
    assert_int_equal(fw_fetched(3, &t), -ESTALE);
    assert_int_equal(unlink(fw_path_of("dir/file")), 0);
    assert_int_equal(fw_fetched(3, &t), -ENOENT);
    assert_int_equal(fw_staged(NULL, true), 1);
}

static void test_a_record_that_is_damaged_is_replaced(void **state)
{
    struct told t;

    (void)state;
    assert_int_equal(fw_fetched(5, &t), 0);
    fw_damage(5);
    assert_int_equal(fw_fetched(5, &t), 0);
    assert_true(t.stored && t.right);
    assert_true(fw_is_here(5));
}

static void test_asks_that_make_no_sense(void **state)
{
    Fp__Fetch good = FP__FETCH__INIT, m;
    Fp__ExtFile file = x.file;
    struct told t = { 0 };

    (void)state;
    good.chunk = FIRST;
    good.len = (uint32_t)MIB;
    good.sum = 1;
    good.file = &file;
    for (int i = 0; i < 7; i++) {
        m = good;
        file = x.file;
        switch (i) {
        case 0: m.file = NULL; break;
        case 1: m.len = 0; break;
        case 2: m.sum = 0; break;
        case 3: m.off = SIZE - MIB + 1; break;
        case 4: file.path = (ProtobufCBinaryData){ 7, (uint8_t *)(uintptr_t) "../file" }; break;
        case 5: file.uuid.len = 15; break;
        case 6: file.root = (char *)(uintptr_t) "relative"; break;
        }
        assert_int_equal(bnf_drain_fetch(x.drain, &m, fw_on_fetched, &t), -EINVAL);
    }
    assert_false(t.done);
}

/* What a mount calls target 1, and is not, is no trouble for those who mean the real one. */
static void test_a_target_that_is_another(void **state)
{
    char root[400];
    struct told t;

    (void)state;
    snprintf(root, sizeof(root), "%s/dir", x.root);
    x.file.root = root;
    assert_int_not_equal(fw_fetched(0, &t), 0);
    assert_true(t.status != -ENOENT && t.status != -ESTALE);
    x.file.root = x.root;
    assert_int_equal(fw_fetched(0, &t), 0);
}

/* -------------------------------------------------------------- targets and workers that fail */

static void test_a_target_that_is_not_there_says_nothing_of_the_file(void **state)
{
    struct told t;
    char away[400];

    (void)state;
    snprintf(away, sizeof(away), "%s-away", x.root);
    assert_int_equal(rename(x.root, away), 0);
    assert_int_equal(fw_fetched(0, &t), -EIO);
    assert_int_equal(rename(away, x.root), 0);
    assert_int_equal(fw_fetched(0, &t), 0); /* at once: a program waits */
}

static void test_a_target_that_hangs_is_told_in_time(void **state)
{
    uint64_t began = fp_now_ms();
    struct told t[12];

    (void)state;
    x.timeout_ms = BNF_TARGET_TIMEOUT_MS;
    fw_restart("drain.target_pread=delay:ms=2500:count=4", 600000);
    for (uint32_t i = 0; i < 12; i++)
        assert_int_equal(fw_fetch(i, true, &t[i]), 0);
    for (uint32_t i = 0; i < 12; i++)
        assert_int_equal(fw_wait_told(&t[i]), -ETIMEDOUT);
    assert_true(fp_now_ms() - began < x.timeout_ms + 2000);
    while (fp_now_ms() < began + 4000 && fw_staged(NULL, true) == 0) /* what was under way comes all the same, late */
        fw_turn();
    while (fw_fetched(0, &t[0]) == -ETIMEDOUT) /* on a slow machine some of the four still hang; fw_wait_told has a limit */
        ;
    assert_true(t[0].status == 0 && t[0].right);
}

static void test_a_worker_that_hangs_is_left_behind(void **state)
{
    struct told t;

    (void)state;
    x.timeout_ms = BNF_TARGET_TIMEOUT_MS;
    fw_restart("drain.target_pread=hang:count=1", 900);
    for (int i = 0; i < 50; i++) { /* the next worker hangs too, once */
        assert_int_equal(fw_fetch(0, true, &t), 0);
        if (fw_wait_told(&t) == 0)
            break;
        assert_int_equal(t.status, -ETIMEDOUT);
        setenv("FP_FAULTS", "", 1);
    }
    assert_int_equal(t.status, 0);
    assert_true(t.right && fw_is_here(0));
}

static void test_a_worker_that_is_killed_reads_again(void **state)
{
    struct told t[4];

    (void)state;
    x.timeout_ms = BNF_TARGET_TIMEOUT_MS; /* each worker dies at its third read: who asks again does so before the third crash of one read */
    fw_restart("drain.target_pread=kill:after=2:count=1", 600000);
    for (uint32_t round = 0; round < 3; round++)
        for (uint32_t i = 0; i < 4; i++) {
            assert_int_equal(fw_fetch(round * 4 + i, true, &t[i]), 0);
            if (i < 3)
                continue;
            for (uint32_t k = 0; k < 4; k++)
                while (fw_wait_told(&t[k]) == -ETIMEDOUT) /* it is started again after a second, which is longer than this target may take */
                    assert_int_equal(fw_fetch(round * 4 + k, true, &t[k]), 0);
            for (uint32_t k = 0; k < 4; k++)
                assert_true(t[k].status == 0 && t[k].stored && t[k].right && fw_is_here(round * 4 + k));
        }
}

static void test_who_waits_is_told_at_the_end(void **state)
{
    struct told t[10];

    (void)state;
    fw_restart("drain.target_pread=delay:ms=200", 600000);
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(fw_fetch(i, true, &t[i]), 0);
    for (int i = 0; i < 50; i++)
        fw_turn();
    bnf_drain_stop(x.drain);
    for (uint32_t i = 0; i < 10; i++)
        assert_true(t[i].done && (t[i].status == FP_ESTOPPING || t[i].status == 0));
    assert_int_equal(fw_fetch(11, true, &t[0]), FP_ESTOPPING);
}

static void test_a_device_that_takes_nothing(void **state)
{
    struct told t;

    (void)state;
    assert_int_equal(fp_fault_set("bnf.pwrite=EIO"), 0);
    assert_int_equal(fw_fetch(0, true, &t), 0);
    assert_int_equal(fw_wait_told(&t), 0);
    assert_true(!t.stored && t.right);
    bnf_drain_fetch_end(t.handle);
    assert_true(fp_fault_fired("bnf.pwrite") > 0);
    assert_int_equal(fw_staged(NULL, true), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, fw_setup, fw_teardown)
        T(test_a_chunk_comes_back),
        T(test_many_asks_are_one_read),
        T(test_without_room_the_bytes_are_passed_on),
        T(test_wrong_bytes_are_not_passed_on),
        T(test_a_record_that_is_damaged_is_replaced),
        T(test_asks_that_make_no_sense),
        T(test_a_target_that_is_another),
        T(test_a_target_that_is_not_there_says_nothing_of_the_file),
        T(test_a_target_that_hangs_is_told_in_time),
        T(test_a_worker_that_hangs_is_left_behind),
        T(test_a_worker_that_is_killed_reads_again),
        T(test_who_waits_is_told_at_the_end),
        T(test_a_device_that_takes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
