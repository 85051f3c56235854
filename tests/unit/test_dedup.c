/*
 * The aux-app dedup against a model of a store: successive versions of a file go through it, are rebuilt from what it said, and
 * compared byte by byte; what is stored is counted.
 */
#include "tests/unit/dedup_model.h"

/* -------------------------------------------------------------- tests */

static void test_the_same_again_stores_nothing(void **state)
{
    static const char *const fixed[][2] = { { "chunking", "fixed" }, { "size", "4KiB" }, { NULL, NULL } };
    static const char *const sha256[][2] = { { "hash", "sha256" }, { NULL, NULL } };
    static const char *const xxh3[][2] = { { "hash", "xxh3" }, { NULL, NULL } };
    const char *const (*kinds[])[2] = { NULL, fixed, sha256, xxh3 };
    uint8_t *data = image(IMAGE_BYTES + 777);

    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        start(kinds[i]);
        assert_int_equal(write_version(data, IMAGE_BYTES + 777), IMAGE_BYTES + 777);
        assert_int_equal(m.compared, 0);
        assert_true(write_version(data, IMAGE_BYTES + 777) <= 777); /* a tail of under 4 KiB is stored */
        assert_int_equal(m.compared > 0, i == 3); /* XXH3 proves nothing: compared byte by byte */
        stop();
    }
    free(data);
}

static void test_a_changed_page_costs_little(void **state)
{
    static const char *const fixed[][2] = { { "chunking", "fixed" }, { "size", "4KiB" }, { NULL, NULL } };
    uint8_t *data = image(IMAGE_BYTES);

    (void)state;
    for (int f = 0; f < 2; f++) {
        uint64_t again;

        start(f ? fixed : NULL);
        write_version(data, IMAGE_BYTES);
        fill(data + 3 * WINDOW_BYTES + 8192, 4096);
        again = write_version(data, IMAGE_BYTES);
        assert_in_range(again, 4096, f ? 4096 : 3 * 131072);
        stop();
    }
    free(data);
}

static void test_moved_pages_are_found_by_content_only(void **state)
{
    static const char *const fixed[][2] = { { "chunking", "fixed" }, { "size", "64KiB" }, { NULL, NULL } };
    uint8_t *data = image(2 * IMAGE_BYTES), *moved = malloc(2 * IMAGE_BYTES);
    const uint32_t shift = 3 * 4096;
    uint64_t cdc, same_places;

    (void)state;
    memcpy(moved, data + IMAGE_BYTES, shift);
    memcpy(moved + shift, data, 2 * IMAGE_BYTES - shift);
    start(NULL);
    write_version(data, 2 * IMAGE_BYTES);
    cdc = write_version(moved, 2 * IMAGE_BYTES);
    stop();
    start(fixed);
    write_version(data, 2 * IMAGE_BYTES);
    same_places = write_version(moved, 2 * IMAGE_BYTES);
    stop();
    assert_true(cdc < 2 * IMAGE_BYTES / 8);
    assert_true(same_places > 2 * IMAGE_BYTES / 10 * 9);
    free(data);
    free(moved);
}

static void test_zeros_cost_nothing(void **state)
{
    uint8_t *data = calloc(1, IMAGE_BYTES);

    (void)state;
    start(NULL);
    assert_int_equal(write_version(data, IMAGE_BYTES), 0);
    fill(data + 5 * 4096, 4096);
    assert_int_equal(write_version(data, IMAGE_BYTES), 4096);
    stop();
    free(data);
}

static void test_scope_store_finds_other_files_by_few_keys(void **state)
{
    static const char *const store[][2] = { { "scope", "store" }, { "size", "8KiB" }, { NULL, NULL } };
    uint8_t *data = image(IMAGE_BYTES);

    (void)state;
    start(NULL);
    m.no_earlier = true;
    write_version(data, IMAGE_BYTES);
    assert_int_equal(write_version(data, IMAGE_BYTES), IMAGE_BYTES); /* scope=file */
    stop();
    start(store);
    m.no_earlier = true;
    write_version(data, IMAGE_BYTES);
    for (uint32_t i = 0; i < m.nchunks; i++)
        assert_in_range(m.chunk[i].nkeys, 1, 32);
    assert_int_equal(write_version(data, IMAGE_BYTES), 0);
    stop();
    free(data);
}

static void test_random_edits_are_rebuilt_exactly(void **state)
{
    static const char *const small[][2] = { { "size", "4KiB" }, { "scope", "store" }, { NULL, NULL } };
    static const char *const fixed[][2] = { { "chunking", "fixed" }, { "size", "8KiB" }, { "hash", "xxh3" }, { NULL, NULL } };
    uint8_t *data = image(IMAGE_BYTES);

    (void)state;
    for (int f = 0; f < 2; f++) {
        start(f ? fixed : small);
        for (unsigned v = 0; v < 20; v++) { /* write_window compares what is rebuilt */
            for (unsigned e = 0; e < 30; e++) {
                uint8_t r[12];
                uint32_t at, len, from;

                fill(r, sizeof(r));
                memcpy(&at, r, 4);
                memcpy(&len, r + 4, 4);
                memcpy(&from, r + 8, 4);
                at %= IMAGE_BYTES - 300000;
                from %= IMAGE_BYTES - 300000;
                len = 1 + len % (e % 3 ? 5000 : 300000);
                if (e % 3 == 0)
                    memmove(data + at, data + from, len);
                else if (e % 3 == 1)
                    fill(data + at, len);
                else
                    memset(data + at, 0, len);
            }
            write_version(data, IMAGE_BYTES - v * 1000);
        }
        if (m.stored_bytes >= 20ull * IMAGE_BYTES / 2)
            fail_msg("%llu bytes stored", (unsigned long long)m.stored_bytes);
        assert_true(m.note_total < m.stored_bytes / 100);
        stop();
    }
    free(data);
}

/* What the same data costs once more, and whether it is found the third time, in new chunks beside the old ones. */
static uint64_t again_with(const char *thin, const char *scope, uint64_t free_bytes)
{
    static const uint8_t used[8] = { 100, 60, 51, 49, 30, 10, 80, 100 };
    const char *const options[][2] = { { "thin", thin }, { "scope", scope }, { NULL, NULL } };
    uint8_t *data = image(IMAGE_BYTES);
    uint64_t again;

    start(options);
    write_version(data, IMAGE_BYTES);
    m.used_percent = used;
    m.free_bytes = free_bytes;
    m.no_earlier = strcmp(scope, "store") == 0;
    again = write_version(data, IMAGE_BYTES);
    if (!m.no_earlier)
        assert_int_equal(m.anew, again);
    assert_int_equal(write_version(data, IMAGE_BYTES), 0);
    stop();
    free(data);
    return again;
}

static void test_what_thin_chunks_have_is_stored_anew(void **state)
{
    const uint64_t plenty = (uint64_t)1 << 40;

    (void)state;
    assert_int_equal(again_with("50%", "file", plenty), 3 * WINDOW_BYTES); /* 49, 30 and 10 % */
    assert_int_equal(again_with("25%", "file", plenty), WINDOW_BYTES);
    assert_int_equal(again_with("100%", "file", plenty), 6 * WINDOW_BYTES);
    assert_int_equal(again_with("0%", "file", plenty), 0);
    assert_int_equal(again_with("50%", "store", plenty), 3 * WINDOW_BYTES);
}

/* 4.8 of the 8 MiB are in use. */
static void test_when_space_is_short_more_is_stored_anew_but_no_more_than_a_third_of_it(void **state)
{
    (void)state;
    assert_int_equal(again_with("50%", "file", 9 * WINDOW_BYTES / 2), 4 * WINDOW_BYTES); /* 10, 30, 49 and 51 %: 1.4 MiB; not 60 % */
    assert_int_equal(again_with("50%", "file", 5 * WINDOW_BYTES / 4), 2 * WINDOW_BYTES); /* 10 and 30 %: 0.4 MiB */
    assert_int_equal(again_with("50%", "file", WINDOW_BYTES / 4), 0);
    assert_int_equal(again_with("50%", "file", 0), 0);
}

/* As one at the seam of two answers of the manager is. 2, 2, 1: without 2 counting once, there is no room for 1. */
static void test_a_chunk_that_is_told_twice_counts_once(void **state)
{
    const struct thin_others nobody = { 0, 0 };
    struct thin t;

    (void)state;
    thin_init(&t, 0.5);
    thin_tell(&t, 2, 100, 70, 210);
    thin_tell(&t, 2, 100, 70, 210);
    thin_tell(&t, 1, 100, 60, 210);
    assert_int_equal(thin_decide(&t, thin_most(t.free_bytes, &nobody), &nobody), 70);
    assert_true(thin_is(&t, 1) && thin_is(&t, 2));
    assert_int_equal(t.used_bytes, 70);
    thin_clear(&t);
}

/* Eight ranks that write a step at the same moment, and are told the same of what is free. Of each 275 bytes are in chunks of 55 %, 100 in such of 20. */
static uint64_t eight_ranks(uint64_t free_bytes, uint64_t *anew)
{
    struct thin_others before = { 0, 0 };
    struct thin t;

    for (unsigned rank = 0; rank < 8; rank++) {
        thin_init(&t, 0.5);
        for (uint64_t chunk = 1; chunk <= 10; chunk++)
            thin_tell(&t, chunk, 100, chunk <= 5 ? 45 : 80, free_bytes);
        anew[rank] = thin_decide(&t, thin_most(t.free_bytes, &before), &before);
        before.anew_bytes += anew[rank];
        before.used_bytes += t.used_bytes;
        thin_clear(&t);
    }
    return before.anew_bytes;
}

static void test_files_that_are_written_together_share_what_is_free(void **state)
{
    uint64_t anew[8];

    (void)state;
    assert_true(eight_ranks(300, anew) <= 300); /* a third for each would be 800 */
    assert_true(anew[0] == 100 && anew[1] == 60);
    assert_true(eight_ranks(1500, anew) <= 1500);
    assert_true(anew[3] == 100 && anew[4] > 100); /* there is room for the next versions of four, and not of five */
}

static void test_pieces_stay_within_the_limit(void **state)
{
    static const char *const fixed[][2] = { { "chunking", "fixed" }, { "size", "4KiB" }, { NULL, NULL } };
    uint8_t *data = image(WINDOW_BYTES);

    (void)state;
    start(fixed);
    write_version(data, WINDOW_BYTES);
    for (uint32_t at = 0; at < WINDOW_BYTES / 2; at += 8192)
        fill(data + at, 4096); /* every second page of the first half changes: 128 runs and a long one */
    assert_int_equal(write_version(data, WINDOW_BYTES), WINDOW_BYTES / 2 - 4096); /* the last page before the half belongs to the long run */
    assert_in_range(m.runs, 2, FP_AUX_PIECES_MAX(WINDOW_BYTES));
    stop();
    free(data);
}

static size_t resident_bytes(void)
{
    unsigned long all, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");

    assert_non_null(f);
    assert_int_equal(fscanf(f, "%lu %lu", &all, &resident), 2);
    fclose(f);
    return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* As 64 ranks that rewrite 1 GiB each at 4 KiB: 46 bytes for each of 16 million pieces would be 770 MB. */
static void test_memory_bounds_all_files_together(void **state)
{
    static const char *const small[][2] = { { "memory", "16MiB" }, { "pays", "0%" }, { NULL, NULL } };
    size_t before, most = 0;
    uint8_t *data = image(WINDOW_BYTES);

    (void)state;
    start(small);
    write_version(data, WINDOW_BYTES);
    before = resident_bytes();
    m.synthetic = 262144;
    for (unsigned rank = 0; rank < 64; rank++) { /* opened, and written to by and by: all in use at once */
        m.version = 100 + rank;
        write_window(data, WINDOW_BYTES, 0);
        most = resident_bytes() > most ? resident_bytes() : most;
        data[rank * 4096]++;
    }
    assert_true(m.cut_short > 0);
    assert_in_range(m.index_most, 12 << 20, 16 << 20); /* it is made use of */
    if (!SANITIZED)
        assert_in_range(most - before, 12 << 20, (16 << 20) + 64 * (WINDOW_BYTES + 65536) + (4 << 20)); /* the model stores what is written */
    for (unsigned rank = 0; rank < 64; rank++) {
        struct fp_aux_file sealed = { .size_bytes = sizeof(sealed), .file_serial = 100 + rank };

        (void)fp_aux_app(FP_AUX_ABI)->file_sealed(state_of, NULL, &sealed);
    }
    assert_int_equal(m.index_bytes, 0);
    m.synthetic = 0; /* and what fits is found again */
    m.version = 200;
    write_version(data, WINDOW_BYTES);
    assert_int_equal(write_version(data, WINDOW_BYTES), 0);
    stop();
    free(data);
}

/* Those in which nothing was found for 16 MiB make room for one in which something is. */
static void test_useless_versions_make_room(void **state)
{
    static const char *const small[][2] = { { "memory", "2MiB" }, { "pays", "0%" }, { "size", "4KiB" }, { NULL, NULL } };
    uint8_t *data = image(WINDOW_BYTES), *other = image(WINDOW_BYTES);

    (void)state;
    start(small);
    write_version(data, WINDOW_BYTES);
    m.synthetic = 262144;
    m.version = 99;
    for (unsigned i = 0; i < 17; i++) {
        fill(other, WINDOW_BYTES);
        write_window(other, WINDOW_BYTES, i * (uint64_t)WINDOW_BYTES);
    }
    assert_int_equal(m.cut_short, 1);
    assert_int_equal(m.given_up, 0);
    m.synthetic = 0;
    assert_int_equal(write_version(data, WINDOW_BYTES), 0);
    assert_int_equal(m.given_up, 1);
    stop();
    free(data);
    free(other);
}

static void test_a_bad_option_is_refused(void **state)
{
    static const char *const bad[][2] = { { "size", "2KiB" }, { "size", "2MiB" }, { "size", "5000" }, { "pays", "2" }, { "pays", "200%" },
                         { "pays", "nan%" }, { "thin", "50" }, { "thin", "-1%" } };

    (void)state;
    for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        void *s;

        memset(&m, 0, sizeof(m));
        m.handle.services = &services;
        memcpy(m.options[0], bad[i], sizeof(bad[i]));
        assert_int_equal(fp_aux_app(FP_AUX_ABI)->start((struct fp_aux_host *)(void *)&m, &s), -EINVAL);
    }
    assert_null(fp_aux_app(FP_AUX_ABI + 1));
}

static void test_damaged_notes_end_early(void **state)
{
    uint8_t buf[200], digest[DIGEST_MAX_BYTES] = { 9 };
    struct note_writer w;
    uint64_t pieces = 0;

    (void)state;
    note_begin(&w, buf, sizeof(buf), DIGEST_SHA1, 0);
    while (note_add(&w, 5000, digest))
        pieces++;
    assert_int_equal(pieces, (200 - NOTE_HEADER_BYTES) / 23);
    for (unsigned i = 0; i < 20000; i++) {
        struct note_reader r;
        uint8_t bad[200], change[8];
        uint32_t off, len, end = 0;
        const uint8_t *d;

        memcpy(bad, buf, sizeof(bad));
        fill(change, sizeof(change));
        bad[change[0] % w.len_bytes] = change[1];
        bad[change[2] % w.len_bytes] = change[3];
        if (!note_open(&r, bad, change[4] % (w.len_bytes + 1), 20000))
            continue;
        while (note_next(&r, &off, &len, &d)) {
            assert_int_equal(off, end);
            assert_true(len > 0 && off + len <= 20000);
            assert_true(d >= bad && d + 16 <= bad + sizeof(bad));
            end = off + len;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_again_stores_nothing),
        cmocka_unit_test(test_a_changed_page_costs_little),
        cmocka_unit_test(test_moved_pages_are_found_by_content_only),
        cmocka_unit_test(test_zeros_cost_nothing),
        cmocka_unit_test(test_scope_store_finds_other_files_by_few_keys),
        cmocka_unit_test(test_random_edits_are_rebuilt_exactly),
        cmocka_unit_test(test_what_thin_chunks_have_is_stored_anew),
        cmocka_unit_test(test_a_chunk_that_is_told_twice_counts_once),
        cmocka_unit_test(test_files_that_are_written_together_share_what_is_free),
        cmocka_unit_test(test_when_space_is_short_more_is_stored_anew_but_no_more_than_a_third_of_it),
        cmocka_unit_test(test_pieces_stay_within_the_limit),
        cmocka_unit_test(test_memory_bounds_all_files_together),
        cmocka_unit_test(test_useless_versions_make_room),
        cmocka_unit_test(test_a_bad_option_is_refused),
        cmocka_unit_test(test_damaged_notes_end_early),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
