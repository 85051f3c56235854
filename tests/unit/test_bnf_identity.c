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
        T(test_identity_parent_must_exist),
    };

    fp_log_init("test", (enum fp_log_level) - 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
