/*
 * The data path with aux-apps in the way, against byte arrays: test_cl_data.c again, where windows become pieces of all kinds, coded and not, at random
 * (cl_fake_aux.h). Whatever they make of the data, every read and every other mount's view is as if they were not there.
 */
#define WITH_AUX
#include "tests/unit/test_cl_data.c"

/* What is to be shown has happened. */
static void check_counts(bool pieces, bool codes)
{
    fprintf(stderr, "jobs %u, coded %u, decoded %u, nothing %u; pieces: zero %u, same %u, stored %u\n", fake_aux.jobs, fake_aux.coded,
            fake_aux.decoded, fake_aux.nothing, fake_aux.zero_pieces, fake_aux.same_pieces, fake_aux.stored_pieces);
    assert_true(fake_aux.jobs > 20);
    if (pieces) {
        assert_true(fake_aux.zero_pieces > 5 && fake_aux.same_pieces > 5);
        assert_true(fake_aux.nothing > 0 || fake_aux.jobs < 600); /* one in some 60, at random */
        assert_true(fake_aux.stored_pieces > 0);
    }
    if (codes)
        assert_true(fake_aux.coded > 5 && fake_aux.decoded > 5);
}

static void test_aux_one_thread_pieces(void **state)
{
    (void)state;
    run((struct how){.threads = 1, .ops = 2 * OPS, .mounts = 1, .local = true, .pieces = true});
    check_counts(true, false);
}

static void test_aux_one_thread_coded(void **state)
{
    (void)state;
    run((struct how){.threads = 1, .ops = 2 * OPS, .mounts = 1, .local = true, .codes = true});
    check_counts(false, true);
}

static void test_aux_threads_own_node(void **state)
{
    (void)state;
    run((struct how){.threads = THREADS, .ops = OPS, .mounts = 1, .local = true, .delay_us = 300, .pieces = true, .codes = true});
    check_counts(true, true);
}

static void test_aux_threads_other_nodes(void **state)
{
    (void)state;
    run((struct how){.threads = THREADS, .ops = OPS, .mounts = 1, .delay_us = 300, .pieces = true, .codes = true});
    check_counts(true, true);
}

static void test_aux_two_mounts(void **state)
{
    (void)state;
    run((struct how){.threads = THREADS, .ops = OPS, .mounts = 2, .local = true, .delay_us = 300, .pieces = true, .codes = true});
    check_counts(true, true);
}

static void test_aux_small_pool(void **state)
{
    (void)state;
    run((struct how){.threads = THREADS, .ops = OPS, .mounts = 1, .local = true, .delay_us = 300, .pool_pages = 150, .pieces = true, .codes = true});
    check_counts(true, true);
}

static void test_aux_full_store(void **state)
{
    (void)state;
    run((struct how){.threads = THREADS, .ops = OPS / 4, .mounts = 2, .local = true, .delay_us = 300, .capacity = 2u << 20, .pieces = true, .codes = true});
    check_counts(true, true);
}

static atomic_bool doubting;

/* Now the manager vouches for what is pinned, now it does not. */
static void *doubt_thread(void *arg)
{
    while (doubting) {
        fake_aux.distrust = !fake_aux.distrust;
        atomic_fetch_add(&fake_aux.doubt, 1);
        usleep(500);
    }
    return arg;
}

static void test_aux_doubt(void **state)
{
    pthread_t t;

    (void)state;
    doubting = true;
    assert_int_equal(pthread_create(&t, NULL, doubt_thread, NULL), 0);
    run((struct how){.threads = THREADS, .ops = OPS, .mounts = 2, .local = true, .delay_us = 300, .pieces = true, .codes = true});
    doubting = false;
    pthread_join(t, NULL);
    check_counts(true, true);
    assert_true(fake_aux.again > 0);
}

static void test_aux_chaos(void **state)
{
    (void)state;
    run((struct how){.threads = THREADS, .ops = OPS / 2, .mounts = 2, .local = true, .delay_us = 300, .chaos = true, .pieces = true, .codes = true});
    check_counts(true, true);
}

/* Some windows are passed over, some come after all since they have zeros, others always. */
static void test_aux_that_have_nothing_to_do(void **state)
{
    (void)state;
    run((struct how){.threads = THREADS, .ops = OPS, .mounts = 2, .local = true, .delay_us = 300, .chaos = true, .pieces = true, .codes = true, .rest = true});
    check_counts(false, false);
    fprintf(stderr, "passed over %u, asked about zeros %u\n", fake_aux.passed, fake_aux.asked_zeros);
    assert_true(fake_aux.passed > 20 && fake_aux.asked_zeros >= fake_aux.passed); /* few windows have zeros */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_aux_one_thread_pieces),
        cmocka_unit_test(test_aux_one_thread_coded),
        cmocka_unit_test(test_aux_threads_own_node),
        cmocka_unit_test(test_aux_threads_other_nodes),
        cmocka_unit_test(test_aux_two_mounts),
        cmocka_unit_test(test_aux_small_pool),
        cmocka_unit_test(test_aux_full_store),
        cmocka_unit_test(test_aux_doubt),
        cmocka_unit_test(test_aux_chaos),
        cmocka_unit_test(test_aux_that_have_nothing_to_do),
    };

    setenv("CMOCKA_TEST_ABORT", "1", 0); /* a failed check leaves threads behind */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
