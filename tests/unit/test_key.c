/* The store's key: only a private, well-formed file is taken, and nothing of it shows in messages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fp/key.h"

#define HEX "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF"

static char dir[] = "/tmp/fp-test-key-XXXXXX";
static char path[sizeof dir + 8];
static char why[FP_KEY_WHY_MAX];

static int make_dir(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/key", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

static void write_file(const char *text, size_t len, mode_t mode)
{
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, len), (ssize_t)len);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void refused(const char *file, int err, const char *part)
{
    struct fp_key *key = NULL;
    memset(why, 0, sizeof why);
    assert_int_equal(fp_key_load(file, &key, why), err);
    assert_null(key);
    if (!strstr(why, part) || strchr(why, '\n'))
        fail_msg("message: %s", why);
    assert_null(strstr(why, "00112233"));
}

static void test_a_private_file_with_64_digits_is_taken(void **state)
{
    struct fp_key *key = NULL;
    (void)state;
    write_file(HEX "\n", 65, 0600);
    assert_int_equal(fp_key_load(path, &key, why), 0);
    assert_int_equal(fp_key_bytes(key)[1], 0x11);
    assert_int_equal(fp_key_bytes(key)[31], 0xff);
    fp_key_free(key);
    write_file(HEX, 64, 0400);
    assert_int_equal(fp_key_load(path, &key, why), 0);
    fp_key_free(key);
}

static void test_a_file_that_others_can_read_or_write_is_refused(void **state)
{
    static const mode_t modes[] = {0640, 0604, 0620, 0602, 0610, 0601, 0666, 0777};
    (void)state;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        write_file(HEX "\n", 65, modes[i]);
        refused(path, -EPERM, "chmod 600");
    }
}

static void test_a_file_of_another_user_is_refused(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    write_file(HEX "\n", 65, 0600);
    assert_int_equal(chown(path, 65534, 65534), 0);
    refused(path, -EPERM, "belongs to another user");
}

static void test_wrong_length_or_characters_are_refused_without_showing_them(void **state)
{
    static const char *const bad[] = {"",          "\n",           HEX "\n\n",   HEX "0",
                                      HEX "\r\n",  HEX " ",        " " HEX "\n", "0x" HEX,
                                      HEX HEX HEX, "0011223344\n", HEX "\nx\n"};
    char text[65];
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file(bad[i], strlen(bad[i]), 0600);
        refused(path, -EINVAL, "64 hexadecimal digits");
    }
    for (int at = 0; at < 64; at += 9) {
        static const char chars[] = "g -\n\0\xff";
        for (size_t c = 0; c < sizeof chars - 1; c++) {
            memcpy(text, HEX, 65);
            text[at] = chars[c];
            write_file(text, 64, 0600);
            refused(path, -EINVAL, "64 hexadecimal digits");
        }
    }
    memset(text, '0', 64);
    write_file(text, 64, 0600);
    refused(path, -EINVAL, "64 hexadecimal digits");
}

static void test_what_is_no_regular_file_is_refused_at_once(void **state)
{
    (void)state;
    unlink(path);
    refused(path, -ENOENT, "--key FILE");
    assert_int_equal(mkfifo(path, 0600), 0);
    refused(path, -EINVAL, "not a regular file");
    refused(dir, -EINVAL, "not a regular file");
    refused("/dev/zero", -EINVAL, "not a regular file");
}

static void test_a_generated_key_is_written_once_and_reads_back(void **state)
{
    struct fp_key *a = NULL, *b = NULL;
    struct stat st;
    (void)state;
    unlink(path);
    mode_t old = umask(0);
    assert_int_equal(fp_key_generate(&a), 0);
    assert_int_equal(fp_key_write(a, path, why), 0);
    umask(old);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(st.st_size, 65);
    assert_int_equal(fp_key_load(path, &b, why), 0);
    assert_memory_equal(fp_key_bytes(a), fp_key_bytes(b), FP_KEY_BYTES);
    assert_int_equal(fp_key_write(a, path, why), -EEXIST);
    assert_non_null(strstr(why, "there already"));
    assert_int_equal(fp_key_write(a, "/nonexistent/key", why), -ENOENT);
    fp_key_free(a);
    fp_key_free(b);
    fp_key_free(NULL);
}

/* The flags of the key's mapping in /proc/self/smaps: dd = do not dump, lo = locked. */
static void test_key_memory_is_kept_out_of_core_files(void **state)
{
    struct fp_key *key = NULL;
    char line[512];
    unsigned long from, to;
    int inside = 0, found = 0;
    (void)state;
    assert_int_equal(fp_key_generate(&key), 0);
    unsigned long at = (unsigned long)(uintptr_t)fp_key_bytes(key);
    FILE *f = fopen("/proc/self/smaps", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            inside = from <= at && at < to;
        if (inside && strncmp(line, "VmFlags:", 8) == 0) {
            found = 1;
            assert_non_null(strstr(line, " dd"));
        }
    }
    fclose(f);
    fp_key_free(key);
    if (!found)
        skip(); /* kernel without VmFlags */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_private_file_with_64_digits_is_taken),
        cmocka_unit_test(test_a_file_that_others_can_read_or_write_is_refused),
        cmocka_unit_test(test_a_file_of_another_user_is_refused),
        cmocka_unit_test(test_wrong_length_or_characters_are_refused_without_showing_them),
        cmocka_unit_test(test_what_is_no_regular_file_is_refused_at_once),
        cmocka_unit_test(test_a_generated_key_is_written_once_and_reads_back),
        cmocka_unit_test(test_key_memory_is_kept_out_of_core_files),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
