/*
 * The contributed directory: made, locked, claimed for one store, and refused when it is not what it should
 * be.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "benefactor/identity.h"
#include "fp/err.h"
#include "fp/log.h"
#include "tests/unit/bnf_util.h"

static struct bnf_scratch scratch;
static char path[300];

static int setup(void **state)
{
    (void)state;
    bnf_scratch_init(&scratch);
    snprintf(path, sizeof(path), "%s/dir", scratch.path);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    bnf_scratch_fini(&scratch);
    return 0;
}

static void write_identity(const char *text)
{
    char file[400];
    FILE *f;

    snprintf(file, sizeof(file), "%s/benefactor.json", path);
    f = fopen(file, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void test_identity_is_kept(void **state)
{
    struct bnf_dir d, again;
    struct stat st;

    (void)state;
    assert_int_equal(bnf_dir_open(path, &d), 0);
    assert_false(d.known);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(bnf_dir_claim(&d, scratch.store_uuid), 0);
    bnf_dir_close(&d);
    assert_int_equal(bnf_dir_open(path, &again), 0);
    assert_true(again.known);
    assert_memory_equal(again.store.b, scratch.store_uuid, 16);
    assert_true(fp_uuid_equal(&d.bnf, &again.bnf));
    bnf_dir_close(&again);
}

static void test_identity_second_user_is_refused(void **state)
{
    struct bnf_dir a, b;

    (void)state;
    assert_int_equal(bnf_dir_open(path, &a), 0);
    assert_int_equal(bnf_dir_open(path, &b), -EWOULDBLOCK);
    bnf_dir_close(&a);
    assert_int_equal(bnf_dir_open(path, &b), 0);
    bnf_dir_close(&b);
}

static void test_identity_damaged_or_newer_is_refused(void **state)
{
    struct bnf_dir d;

    (void)state;
    assert_int_equal(bnf_dir_open(path, &d), 0);
    bnf_dir_close(&d);
    write_identity("{\"format\": 1, \"store\": \"x\"");
    assert_int_equal(bnf_dir_open(path, &d), -EINVAL);
    write_identity("{\"format\": 1}");
    assert_int_equal(bnf_dir_open(path, &d), -EINVAL);
    write_identity("{\"format\": 2}");
    assert_int_equal(bnf_dir_open(path, &d), FP_EVERSION_DISK);
}

static void test_identity_missing_beside_segments_is_refused(void **state)
{
    struct bnf_dir d;
    int fd;

    (void)state;
    assert_int_equal(bnf_dir_open(path, &d), 0);
    fd = openat(d.segments_fd, "seg-0000000000000001", O_CREAT | O_WRONLY, 0600);
    close(fd);
    bnf_dir_close(&d);
    assert_int_equal(bnf_dir_open(path, &d), -EINVAL);
}

/* ---------------------------------------------------------------- what the segments say */

static void put_segment(uint64_t id, const uint8_t store_uuid[16])
{
    struct bnf_scratch owner = scratch;
    struct bnf_backend *b;
    char segments[320];
    int fd;

    snprintf(segments, sizeof(segments), "%s/segments", path);
    fd = open(segments, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    memcpy(owner.store_uuid, store_uuid, 16);
    assert_int_equal(bnf_backend_dir_new(fd, &b), 0);
    bnf_file_put(bnf_new_segment(&owner, b, id, 1 << 20));
    bnf_backend_free(b);
    close(fd);
}

/* A directory of the scratch store and its benefactor; text: what was written into benefactor.json. */
static void make_claimed(char text[512])
{
    struct bnf_dir d;
    char file[400];
    FILE *f;
    size_t n;

    assert_int_equal(bnf_dir_open(path, &d), 0);
    if (!d.known) {
        memcpy(d.bnf.b, scratch.bnf_uuid, 16);
        assert_int_equal(bnf_dir_claim(&d, scratch.store_uuid), 0);
    }
    bnf_dir_close(&d);
    snprintf(file, sizeof(file), "%s/benefactor.json", path);
    f = fopen(file, "r");
    assert_non_null(f);
    n = fread(text, 1, 511, f);
    text[n] = '\0';
    fclose(f);
}

static void assert_ours(void)
{
    struct bnf_dir d;

    assert_int_equal(bnf_dir_open(path, &d), 0);
    assert_true(d.known);
    assert_memory_equal(d.store.b, scratch.store_uuid, 16);
    assert_memory_equal(d.bnf.b, scratch.bnf_uuid, 16);
    bnf_dir_close(&d);
}

static void test_identity_with_any_bit_changed(void **state)
{
    char good[512], bad[512];
    int refused = 0;
    struct bnf_dir d;

    (void)state;
    make_claimed(good);
    for (size_t i = 0; i < 8 * strlen(good); i++) { /* alone: never somebody else's */
        memcpy(bad, good, sizeof(bad));
        bad[i / 8] = (char)(bad[i / 8] ^ 1 << i % 8);
        write_identity(bad);
        int rc = bnf_dir_open(path, &d);

        refused += rc != 0;
        if (rc == 0) {
            assert_memory_equal(d.store.b, scratch.store_uuid, 16);
            assert_memory_equal(d.bnf.b, scratch.bnf_uuid, 16);
            bnf_dir_close(&d);
        } else {
            assert_int_equal(rc, -EINVAL);
        }
    }
    assert_true(refused > 100);
    write_identity(good);
    put_segment(1, scratch.store_uuid);
    for (size_t i = 0; i < 8 * strlen(good); i += 5) { /* beside a segment: found again, and written as it was */
        memcpy(bad, good, sizeof(bad));
        bad[i / 8] = (char)(bad[i / 8] ^ 1 << i % 8);
        write_identity(bad);
        assert_ours();
    }
    write_identity("x");
    make_claimed(bad);
    assert_string_equal(bad, good);
}

static void test_identity_lost_is_found_in_segments(void **state)
{
    char good[512], again[512], file[400];

    (void)state;
    make_claimed(good);
    put_segment(1, scratch.store_uuid);
    put_segment(0xabcdef, scratch.store_uuid);
    snprintf(file, sizeof(file), "%s/benefactor.json", path);
    assert_int_equal(unlink(file), 0);
    assert_ours();
    make_claimed(again);
    assert_string_equal(again, good);
}

static void test_identity_of_segments_that_disagree_is_refused(void **state)
{
    char good[512];
    struct bnf_dir d;
    uint8_t other[16];

    (void)state;
    make_claimed(good);
    memcpy(other, scratch.store_uuid, 16);
    other[3] ^= 1;
    put_segment(1, scratch.store_uuid);
    put_segment(2, other);
    assert_ours(); /* the file is whole: that counts */
    write_identity("{}");
    assert_int_equal(bnf_dir_open(path, &d), -EINVAL);
}

static void test_identity_without_sum_gets_one(void **state)
{
    char good[512], old[512], again[512];
    uint8_t other[16];
    char *sum;

    (void)state;
    make_claimed(good);
    memcpy(old, good, sizeof(old));
    sum = strstr(old, ", \"sum\"");
    assert_non_null(sum);
    strcpy(sum, "}\n");
    write_identity(old);
    make_claimed(again);
    assert_string_equal(again, good);
    write_identity(old);
    memcpy(other, scratch.store_uuid, 16);
    other[3] ^= 1;
    put_segment(1, other);
    memcpy(scratch.store_uuid, other, 16);
    assert_ours(); /* nothing says that the file is whole, and all data says something else */
    make_claimed(again);
    assert_string_not_equal(again, good);
    assert_ours();
}

static void test_identity_parent_must_exist(void **state)
{
    struct bnf_dir d;

    (void)state;
    assert_int_equal(bnf_dir_open("/nonexistent/dir", &d), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(test_identity_is_kept),
        T(test_identity_second_user_is_refused),
        T(test_identity_damaged_or_newer_is_refused),
        T(test_identity_missing_beside_segments_is_refused),
        T(test_identity_with_any_bit_changed),
        T(test_identity_lost_is_found_in_segments),
        T(test_identity_of_segments_that_disagree_is_refused),
        T(test_identity_without_sum_gets_one),
        T(test_identity_parent_must_exist),
    };

    fp_log_init("test", (enum fp_log_level) - 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
