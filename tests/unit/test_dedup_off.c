/* dedup that turns itself off where nothing repeats: what it wants to see then, that duplicates are found again, and how soon. */
#include "tests/unit/dedup_model.h"

static void test_it_turns_itself_off_and_on_again(void **state)
{
    uint8_t *data = image(IMAGE_BYTES);
    uint64_t before;
    unsigned v = 0;

    (void)state;
    start(NULL);
    for (; v < 12 && m.on; v++) {
        fill(data, IMAGE_BYTES);
        write_version(data, IMAGE_BYTES);
    }
    assert_int_equal(m.on, 0);
    before = m.come;
    assert_int_equal(m.skip.bytes, PAYOFF_PAUSE_MIN_BYTES);
    for (v = 0; v < PAYOFF_PAUSE_MIN_BYTES / IMAGE_BYTES + 6 && !m.on; v++)
        write_version(data, IMAGE_BYTES);
    assert_int_equal(m.on, 1);
    assert_true(m.passed >= PAYOFF_PAUSE_MIN_BYTES && m.come - before <= 5 * IMAGE_BYTES);
    assert_int_equal(m.skip.bytes, 0); /* all of it comes again */
    assert_true(write_version(data, IMAGE_BYTES) < IMAGE_BYTES / 2 + 1);
    stop();
    free(data);
}

/* Version after version of unique data, until it is off. */
static void turn_off(uint8_t *data)
{
    for (unsigned v = 0; v < 12 && m.on; v++) {
        fill(data, IMAGE_BYTES);
        write_version(data, IMAGE_BYTES);
    }
    assert_int_equal(m.on, 0);
}

#define MOVED_BYTES (WINDOW_BYTES + 17 * 4096u)

/* Of data that moves by whole pages, windows at fixed places show nothing: runs of windows do. */
static void test_it_turns_itself_on_again_for_what_moves(void **state)
{
    uint8_t *data = image(IMAGE_BYTES + 8 * MOVED_BYTES);
    unsigned v;

    (void)state;
    start(NULL);
    turn_off(data);
    fill(data, IMAGE_BYTES + 8 * MOVED_BYTES); /* the model tells of all that was ever stored */
    for (v = 0; v < PAYOFF_PAUSE_MIN_BYTES / IMAGE_BYTES + 6 && !m.on; v++)
        write_version(data + (v < PAYOFF_PAUSE_MIN_BYTES / IMAGE_BYTES ? 0 : v % 8 * MOVED_BYTES), IMAGE_BYTES);
    assert_int_equal(m.on, 1);
    stop();
    free(data);
}

/* Files of one window each: none of them comes in a pause, and duplicates of them are found by the same look. */
static void test_off_small_files_do_not_come_either(void **state)
{
    uint8_t *data = image(IMAGE_BYTES);
    uint64_t before;
    unsigned files = 0;

    (void)state;
    start(NULL);
    turn_off(data);
    before = m.come;
    for (; files < PAYOFF_PAUSE_MIN_BYTES / WINDOW_BYTES; files++)
        write_version(data + files % 8 * WINDOW_BYTES, WINDOW_BYTES);
    assert_true(m.come - before <= IMAGE_BYTES); /* what was left of the version that it turned itself off in */
    for (; files < PAYOFF_PAUSE_MIN_BYTES / WINDOW_BYTES + 40 && !m.on; files++)
        write_version(data + files % 8 * WINDOW_BYTES, WINDOW_BYTES);
    assert_int_equal(m.on, 1);
    stop();
    free(data);
}

/* Zeros take no space, on or off. */
static void test_off_zeros_come_and_cost_nothing(void **state)
{
    uint8_t *data = image(IMAGE_BYTES);

    (void)state;
    start(NULL);
    turn_off(data);
    write_version(data, IMAGE_BYTES);
    memset(data + 3 * WINDOW_BYTES + 8192, 0, 65536);
    m.said = 0;
    m.come = 0;
    m.stored_bytes = 0;
    assert_int_equal(write_version(data, IMAGE_BYTES), WINDOW_BYTES - 65536);
    assert_int_equal(m.come, WINDOW_BYTES);
    assert_int_equal(m.said, 0);
    stop();
    free(data);
}

/* What was said can be lost with a changed option: it is said again, and where it is not accepted, all comes and nothing is looked at. */
static void test_off_it_says_so_again(void **state)
{
    uint8_t *data = image(IMAGE_BYTES);

    (void)state;
    start(NULL);
    turn_off(data);
    memset(&m.skip, 0, sizeof(m.skip));
    for (unsigned i = 0; i < 12 && m.skip.bytes == 0; i++)
        write_version(data, IMAGE_BYTES);
    assert_true(m.skip.bytes > 0 && m.skip.bytes < PAYOFF_PAUSE_MIN_BYTES);
    stop();
    start(NULL);
    m.skip_rc = -ENOTSUP;
    turn_off(data);
    assert_int_equal(m.note_bytes > 0, 1);
    write_version(data, IMAGE_BYTES);
    assert_int_equal(m.note_bytes, 0);
    assert_int_equal(m.passed, 0);
    stop();
    free(data);
}

#define FILES_MAX 2000u
#define MIB ((uint64_t)1 << 20)

/*
 * Steps of `files` files of so many windows of 1 MiB each, all of them newly named, as fp-mount would give them to a plugin that is off: until it is on, or `most` bytes were
 * written. A file's earlier version is the newest of which something was looked at. Returns what was written.
 */
static uint64_t write_steps(struct payoff *p, unsigned files, unsigned windows, uint64_t most, bool duplicates, uint64_t *looked)
{
    static bool noted[FILES_MAX], has_earlier;
    uint64_t written = 0;

    memset(noted, 0, sizeof(noted));
    while (written < most && p->state != PAYOFF_ON)
        for (unsigned f = 0; f < files && p->state != PAYOFF_ON; f++) {
            has_earlier = noted[f];
            for (unsigned w = 0; w < windows && p->state != PAYOFF_ON; w++) {
                written += MIB;
                (void)payoff_goes_on(p, written);
                if (!payoff_wants(p, w * MIB))
                    continue;
                noted[f] = true;
                *looked += MIB;
                (void)payoff_note(p, MIB, duplicates && has_earlier ? MIB : 0, !has_earlier, false, written);
            }
        }
    return written;
}

/* Whatever the files are like: of what is written a 60th at most is looked at, and duplicates are found within the bounds that docs/AUXAPPS.md gives. */
static void test_off_what_is_looked_at_and_how_soon_it_is_found(void **state)
{
    static const struct { unsigned files, windows; } kinds[] = { { 1, 512 }, { 64, 16 }, { 200, 1 }, { 2000, 1 }, { 1, 2000 } };

    (void)state;
    for (unsigned i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        uint64_t looked = 0, step = kinds[i].files * kinds[i].windows * MIB, written;
        struct payoff p;

        payoff_init(&p, 0.02);
        assert_int_equal(payoff_note(&p, 64 * MIB, 0, false, false, 0), PAYOFF_TURNED_OFF);
        written = write_steps(&p, kinds[i].files, kinds[i].windows, 100 * step + PAYOFF_PAUSE_MIN_BYTES, true, &looked);
        assert_int_equal(p.state, PAYOFF_ON);
        assert_true(written <= PAYOFF_PAUSE_MIN_BYTES + 2 * step + 128 * MIB);
        assert_int_equal(payoff_note(&p, 64 * MIB, 0, false, false, 0), PAYOFF_TURNED_OFF);
        looked = 0;
        written = write_steps(&p, kinds[i].files, kinds[i].windows, PAYOFF_PAUSE_MIN_BYTES + 400 * step, false, &looked);
        assert_int_equal(p.state, PAYOFF_PAUSING);
        assert_true(looked > 0 && looked <= written / 60 + 2 * step);
        assert_true(p.until_bytes - written <= PAYOFF_PAUSE_MAX * 2 * (step + 64 * MIB));
    }
}

/* Data of which nothing is ever written twice: a look ends all the same, and later ones look at more, should a step be as large. */
static void test_a_look_ends_where_nothing_is_written_twice(void **state)
{
    uint64_t written = 0, from = 0, longest[3] = { 0 };
    unsigned looks = 0;
    struct payoff p;

    (void)state;
    payoff_init(&p, 0.02);
    assert_int_equal(payoff_note(&p, 64 << 20, 0, false, false, 0), PAYOFF_TURNED_OFF);
    while (looks < 3) {
        enum payoff_change change;

        written += 1 << 20;
        if (payoff_goes_on(&p, written) == PAYOFF_LOOKS)
            from = written;
        change = payoff_wants(&p, 0) ? payoff_note(&p, 1 << 20, 0, true, false, written) : PAYOFF_AS_IT_WAS;
        if (change == PAYOFF_PAUSES)
            longest[looks++] = written - from;
    }
    assert_in_range(longest[0] >> 20, 4000, 4096);
    assert_in_range(longest[1] >> 20, 8000, 8192);
    assert_in_range(longest[2] >> 20, 16000, 16384);
}

/* Ranks that take turns in a shared file: this mount has blocks of 4 MiB of it, and none of the places that looks begin with. */
static void test_off_places_that_looks_do_not_begin_with_are_found(void **state)
{
    const uint64_t step = 64 * PAYOFF_RUN_BYTES;
    uint64_t written = 0;
    unsigned told = 0;
    struct payoff p;

    (void)state;
    payoff_init(&p, 0.02);
    assert_int_equal(payoff_note(&p, 64 * MIB, 0, false, false, 0), PAYOFF_TURNED_OFF);
    while (p.state != PAYOFF_ON && written < PAYOFF_PAUSE_MIN_BYTES + PAYOFF_BLIND_BYTES + 2 * step)
        for (uint64_t off = 3 * PAYOFF_RUN_BYTES; off < step * PAYOFF_RUN_OF && p.state != PAYOFF_ON; off += PAYOFF_RUN_OF * PAYOFF_RUN_BYTES) {
            written += PAYOFF_RUN_BYTES;
            told += payoff_goes_on(&p, written) == PAYOFF_LOOKS;
            if (payoff_wants(&p, off))
                told += payoff_note(&p, PAYOFF_RUN_BYTES, PAYOFF_RUN_BYTES, false, false, written) == PAYOFF_LOOKS;
        }
    assert_int_equal(p.state, PAYOFF_ON);
    assert_int_equal(told, 3); /* it looks, everywhere, and the host need not ask any more whether it does */
}

/* Where no file ever has an earlier version it is of no use, either; but one step of a large node is not enough to know. */
static void test_it_turns_itself_off_where_nothing_is_written_twice(void **state)
{
    const uint64_t gib = 1024 * MIB;
    struct payoff p;

    (void)state;
    payoff_init(&p, 0.02);
    for (unsigned i = 0; i < 500; i++)
        assert_int_equal(payoff_note(&p, gib, 0, true, false, i * gib), PAYOFF_AS_IT_WAS);
    assert_int_equal(payoff_note(&p, MIB, MIB, false, false, 500 * gib), PAYOFF_AS_IT_WAS); /* one that has */
    for (unsigned i = 0; i < 511; i++)
        assert_int_equal(payoff_note(&p, gib, 0, true, false, (501 + i) * gib), PAYOFF_AS_IT_WAS);
    assert_int_equal(payoff_note(&p, gib, 0, true, false, 1012 * gib), PAYOFF_TURNED_OFF);
    payoff_init(&p, 0); /* always on */
    assert_int_equal(payoff_note(&p, 600 * gib, 0, true, false, 600 * gib), PAYOFF_AS_IT_WAS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_turns_itself_off_and_on_again),
        cmocka_unit_test(test_it_turns_itself_on_again_for_what_moves),
        cmocka_unit_test(test_off_small_files_do_not_come_either),
        cmocka_unit_test(test_off_zeros_come_and_cost_nothing),
        cmocka_unit_test(test_off_it_says_so_again),
        cmocka_unit_test(test_off_what_is_looked_at_and_how_soon_it_is_found),
        cmocka_unit_test(test_off_places_that_looks_do_not_begin_with_are_found),
        cmocka_unit_test(test_it_turns_itself_off_where_nothing_is_written_twice),
        cmocka_unit_test(test_a_look_ends_where_nothing_is_written_twice),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
