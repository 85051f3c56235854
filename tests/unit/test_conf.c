/* fp.conf: what is understood, who wins, and file:line for every mistake. */
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

#include "fp/opt.h"

struct options {
    const char *node, *key;
    uint64_t pool_bytes;
    struct fp_strlist cores;
    int64_t ready_fd;
    int log_level;
    bool encryption;
};

#define T struct options
static const struct fp_opt opts[] = {
    FP_OPT_SIZE(T, pool_bytes, "pool", "512MiB", FP_MIB(64), FP_TIB(1), "Pool."),
    FP_OPT_LIST(T, cores, "cores", NULL, 8, "Cores."),
    FP_OPT_NODE(T, node),
    FP_OPT_KEY(T, key),
    FP_OPT_DATA_ENCRYPTION(T, encryption),
    FP_OPT_LOG_LEVEL(T, log_level),
    FP_OPT_READY_FD(T, ready_fd),
    FP_OPT_END,
};
#undef T

static const struct fp_opt_table table = {
    .prog = "fp-test", .section = "mount", .summary = "Tests.", .opts = opts};

static char dir[] = "/tmp/fp-test-conf-XXXXXX";
static char path[sizeof dir + 16];
static struct options got;
static struct fp_opts *handle;

static int make_dir(void **state)
{
    (void)state;
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/fp.conf", dir);
    return setenv("FP_CONFIG", path, 1);
}

static int remove_dir(void **state)
{
    (void)state;
    fp_opts_free(handle);
    unlink(path);
    return rmdir(dir);
}

static void write_file(const char *text, size_t len)
{
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, len), (ssize_t)len);
    close(fd);
}

static int read_conf(const char *text)
{
    write_file(text, strlen(text));
    fp_opts_free(handle);
    handle = fp_opts_new(&table, &got);
    return fp_opts_finish(handle);
}

static void reads(const char *text)
{
    if (read_conf(text) != 0)
        fail_msg("%s", fp_opts_error(handle));
}

/* want begins behind "…/fp.conf:". */
static void fails(const char *text, const char *want)
{
    char full[1200];
    if (read_conf(text) >= 0)
        fail_msg("accepted: %s", text);
    snprintf(full, sizeof full, "%s:%s", path, want);
    assert_string_equal(fp_opts_error(handle), full);
}

static void test_common_keys_then_own_section(void **state)
{
    (void)state;
    reads("# a store\n"
          "\n"
          "log-level = warn\n"
          "  key=/k   # comment\n"
          "[manager]\n"
          "cache = 64MiB\n"
          "[mount]\t# ours\n"
          "pool = 1 GiB\n"
          "cores = 0-3, 7\n"
          "cores = 9\r\n"
          "node = \"a # \\\"b\\\\\"  # c\n"
          "data-encryption = off");
    assert_int_equal(got.log_level, FP_LOG_WARN);
    assert_string_equal(got.key, "/k");
    assert_true(got.pool_bytes == FP_GIB(1) && !got.encryption);
    assert_int_equal(got.cores.count, 3);
    assert_string_equal(got.node, "a # \"b\\");
    assert_string_equal(fp_opts_source(handle, "pool"), "fp.conf");
}

static void test_an_empty_file_changes_nothing(void **state)
{
    (void)state;
    reads("");
    reads("\n\n   \n# only comments");
    assert_true(got.pool_bytes == FP_MIB(512));
}

static void test_own_section_beats_the_top_and_command_line_beats_both(void **state)
{
    char *argv[] = {(char[]){"fp-test"}, (char[]){"--log-level=debug"}, NULL};
    (void)state;
    reads("log-level = warn\n[mount]\nlog-level = error\n");
    assert_int_equal(got.log_level, FP_LOG_ERROR);
    reads("[mount]\nlog-level = error\n[ctl]\n");
    assert_int_equal(got.log_level, FP_LOG_ERROR);
    fp_opts_free(handle);
    handle = fp_opts_new(&table, &got);
    assert_int_equal(fp_opts_args(handle, 2, argv), 0);
    assert_int_equal(fp_opts_finish(handle), 0);
    assert_int_equal(got.log_level, FP_LOG_DEBUG);
    setenv("FP_LOG_LEVEL", "info", 1);
    reads("[mount]\nlog-level = error\n");
    unsetenv("FP_LOG_LEVEL");
    assert_int_equal(got.log_level, FP_LOG_INFO);
}

static void test_common_keys_this_program_lacks_are_left_to_others(void **state)
{
    (void)state;
    reads("manager = 192.0.2.1:7420\n");
}

static void test_other_sections_are_read_for_form_only(void **state)
{
    (void)state;
    reads("[benefactor]\nsize = 3.5TB\nanything = goes\nanything = twice\n[store]\n");
    fails("[benefactor]\nsize\n", "2: not understood: write KEY = VALUE, [section] or # comment");
    fails("[benefactor]\nsize = \n", "2: 'size' has no value: write size = VALUE, or remove the line");
}

static void test_unknown_names_suggest_the_nearest(void **state)
{
    (void)state;
    fails("\n[mount]\npol = 1GiB\n", "3: unknown key 'pol' in [mount]: did you mean 'pool'?");
    fails("[mount]\nzzz = 1\n", "2: unknown key 'zzz' in [mount]: see fp.conf(5)");
    fails("loglevel = warn\n", "1: unknown common key 'loglevel': did you mean 'log-level'?");
    fails("zzz = warn\n", "1: unknown common key 'zzz': keys of one program go below its [section]");
    fails("[mont]\n", "1: unknown section [mont]: did you mean 'mount'?");
    fails("[]\n", "1: unknown section []: there are [manager], [benefactor], [mount], [ctl] and [store]");
    fails("pool = 1GiB\n", "1: 'pool' is not a common key: move it below [mount]");
}

static void test_bad_values_name_file_line_and_key(void **state)
{
    (void)state;
    fails("[mount]\n\npool = 1K\n",
          "3: pool '1K': unknown unit: sizes take B, kB, MB, GB, TB, PB, EB (1000) or KiB, "
          "MiB, GiB, TiB, PiB, EiB (1024)");
    fails("[mount]\npool = 1MiB # too small\n", "2: pool '1MiB': too small: allowed is 64MiB to 1TiB");
    fails("key = etc/key\n", "1: key 'etc/key': write an absolute path, beginning with /");
    fails("[mount]\nready-fd = 3\n",
          "2: 'ready-fd' cannot be set in a file: give --ready-fd on the command line");
}

static void test_things_given_twice_are_refused(void **state)
{
    (void)state;
    fails("[mount]\npool = 1GiB\npool = 1GiB\n", "3: 'pool' was given in line 2 already: remove one");
    fails("log-level = info\nlog-level = warn\n", "2: 'log-level' was given in line 1 already: remove one");
    fails("[mount]\n[ctl]\n[mount]\n", "3: section [mount] was there in line 1 already: merge the two");
}

static void test_malformed_lines_are_refused(void **state)
{
    (void)state;
    fails("[mount\n", "1: not a section: write [name] on a line of its own");
    fails("[mount] pool = 1GiB\n", "1: not a section: write [name] on a line of its own");
    fails("= 3\n", "1: no key before '=': write KEY = VALUE");
    fails("Log-Level = info\n", "1: bad key 'Log-Level': keys are lower-case letters, digits and '-'");
    fails("log level = info\n", "1: bad key 'log level': keys are lower-case letters, digits and '-'");
    fails("node = \"open\n", "1: 'node': a value in quotes must end with a quote, and the line with it");
    fails("node = \"a\" b\n", "1: 'node': a value in quotes must end with a quote, and the line with it");
    fails("node = # nothing\n", "1: 'node' has no value: write node = VALUE, or remove the line");
    fails("\xef\xbb\xbflog-level = info\n",
          "1: bad key '\xef\xbb\xbflog-level': keys are lower-case letters, digits and '-'");
}

static void test_files_that_are_no_text_are_refused(void **state)
{
    static char big[70000];
    (void)state;
    write_file("node = a\0b\n", 11);
    fp_opts_free(handle);
    handle = fp_opts_new(&table, &got);
    assert_int_equal(fp_opts_finish(handle), -EINVAL);
    assert_non_null(strstr(fp_opts_error(handle), "NUL bytes"));
    memset(big, '\n', sizeof big);
    write_file(big, sizeof big);
    assert_int_equal(fp_opts_file(handle, path), -EINVAL);
    assert_int_equal(fp_opts_file(handle, dir), -EINVAL);
    assert_non_null(strstr(fp_opts_error(handle), "not a regular file"));
    unlink(path);
    assert_int_equal(fp_opts_file(handle, path), -ENOENT);
    assert_non_null(strstr(fp_opts_error(handle), "No such file"));
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(fp_opts_file(handle, path), -EINVAL);
}

/* Whatever the bytes: no crash, and an error has a text. */
static void test_random_bytes_never_crash(void **state)
{
    static const char alphabet[] = "[]=#\"\\ \n\tmountpol-eiv0123GMB,\xff\x01";
    char text[200];
    uint32_t seed = 12345;
    (void)state;
    for (int round = 0; round < 2000; round++) {
        size_t len = 0;
        while (len < sizeof text - 1) {
            seed = seed * 1664525 + 1013904223;
            text[len++] = alphabet[(seed >> 16) % (sizeof alphabet - 1)];
            if ((seed >> 8) % 60 == 0)
                break;
        }
        text[len] = '\0';
        if (read_conf(text) < 0)
            assert_true(strlen(fp_opts_error(handle)) > 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common_keys_then_own_section),
        cmocka_unit_test(test_an_empty_file_changes_nothing),
        cmocka_unit_test(test_own_section_beats_the_top_and_command_line_beats_both),
        cmocka_unit_test(test_common_keys_this_program_lacks_are_left_to_others),
        cmocka_unit_test(test_other_sections_are_read_for_form_only),
        cmocka_unit_test(test_unknown_names_suggest_the_nearest),
        cmocka_unit_test(test_bad_values_name_file_line_and_key),
        cmocka_unit_test(test_things_given_twice_are_refused),
        cmocka_unit_test(test_malformed_lines_are_refused),
        cmocka_unit_test(test_files_that_are_no_text_are_refused),
        cmocka_unit_test(test_random_bytes_never_crash),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
