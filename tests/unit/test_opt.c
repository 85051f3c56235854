/* Options: each type strictly, precedence, and error lines that say what to do. fp.conf: test_conf.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fp/opt.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif
#define KEY_TEXT "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

struct options {
    const char *dir, *key, *node, *mountpoint;
    uint64_t pool_bytes, timeout_ms, rate;
    struct fp_addr manager, listen;
    struct fp_strlist cores;
    int64_t stripe, ready_fd;
    int backend, log_level, mode;
    bool encryption, quick;
    int untouched;
};

static const char *const backends[] = {"dir", "memory", "ssd", NULL};

static const char *no_spaces(const char *text)
{
    return strchr(text, ' ') ? "must not hold spaces" : NULL;
}

#define T struct options
static const struct fp_opt opts[] = {
    FP_OPT_PATH(T, dir, "dir", NULL, "Directory.", .flags = FP_OPT_REQUIRED, .arg = "DIR"),
    FP_OPT_SIZE(T, pool_bytes, "pool", "512MiB", FP_MIB(64), FP_TIB(1), "Pool."),
    FP_OPT_DURATION(T, timeout_ms, "timeout", "10s", 1, FP_HOUR_MS(1), "Patience."),
    FP_OPT_RATE(T, rate, "drain-rate", "0", 0, 0, "Drain rate, 0 = no limit."),
    FP_OPT_INT(T, stripe, "stripe", "1", 1, 64, "Stripe."),
    FP_OPT_ENUM(T, backend, "backend", "dir", backends, "Back end."),
    FP_OPT_ENUM(T, mode, "mode", NULL, backends, "No default."),
    FP_OPT_BOOL(T, quick, "quick", "off", "Quick."),
    FP_OPT_ADDR(T, listen, "listen", "0.0.0.0:0", 0, "Listen."),
    FP_OPT_LIST(T, cores, "cores", "0,1", 4, "Cores."),
    FP_OPT_STRING(T, node, "node", NULL, "Node.", .check = no_spaces),
    FP_OPT_MANAGER(T, manager, 0),
    FP_OPT_KEY(T, key),
    FP_OPT_DATA_ENCRYPTION(T, encryption),
    FP_OPT_LOG_LEVEL(T, log_level),
    FP_OPT_READY_FD(T, ready_fd),
    FP_OPT_PATH(T, mountpoint, "mountpoint", "/AggregateSSDstore", "Where.", .flags = FP_OPT_POSITIONAL,
                .arg = "MOUNTPOINT"),
    FP_OPT_END,
};
#undef T

static const struct fp_opt_table table = {
    .prog = "fp-test", .section = "mount", .summary = "Tests.", .opts = opts, .mount_helper = true};

static struct options got;
static struct fp_opts *handle;

static int clean(void **state)
{
    (void)state;
    fp_opts_free(handle);
    handle = NULL;
    unsetenv("FP_POOL");
    unsetenv("FP_CORES");
    unsetenv("FP_READY_FD");
    unsetenv("FP_DATA_ENCRYPTION");
    return setenv("FP_CONFIG", "", 1);
}

/* Parses a command line of up to 8 words. */
#define parse(...) parse_words((const char *[]){"fp-test", __VA_ARGS__, NULL})
static int parse_words(const char **words)
{
    int argc = 0;
    while (words[argc])
        argc++;
    fp_opts_free(handle);
    memset(&got, 0x5a, sizeof got);
    handle = fp_opts_new(&table, &got);
    int rc = fp_opts_args(handle, argc, (char **)(size_t)words);
    return rc == 0 ? fp_opts_finish(handle) : rc;
}

#define fails(want, ...) fails_words(want, parse(__VA_ARGS__))
static void fails_words(const char *want, int rc)
{
    if (rc >= 0)
        fail_msg("accepted, instead of: %s", want);
    assert_string_equal(fp_opts_error(handle), want);
    assert_null(strchr(fp_opts_error(handle), '\n'));
}

static void test_defaults_fill_every_field_of_the_table_and_no_other(void **state)
{
    (void)state;
    assert_int_equal(parse("--dir=/d"), 0);
    assert_string_equal(got.dir, "/d");
    assert_string_equal(got.mountpoint, "/AggregateSSDstore");
    assert_string_equal(got.key, FP_SYSCONFDIR "/fpstore/key");
    assert_null(got.node);
    assert_true(got.pool_bytes == FP_MIB(512) && got.timeout_ms == 10000 && got.rate == 0);
    assert_true(got.stripe == 1 && got.ready_fd == -1);
    assert_true(got.backend == 0 && got.mode == -1 && got.log_level == FP_LOG_INFO);
    assert_true(got.encryption && !got.quick);
    assert_string_equal(got.listen.host, "0.0.0.0");
    assert_string_equal(got.manager.text, "");
    assert_int_equal(got.cores.count, 2);
    assert_int_equal(got.untouched, 0x5a5a5a5a);
}

static void test_values_come_behind_equals_or_in_the_next_word(void **state)
{
    (void)state;
    assert_int_equal(parse("--dir", "/a", "--pool=1GiB", "/m", "--stripe", "8", "--quick"), 0);
    assert_true(got.pool_bytes == FP_GIB(1) && got.stripe == 8 && got.quick);
    assert_string_equal(got.mountpoint, "/m");
    assert_int_equal(parse("--dir=/a=b", "--data-encryption=off", "--ready-fd", "-1", "--", "--m"), 0);
    assert_string_equal(got.dir, "/a=b");
    assert_false(got.encryption);
    assert_non_null(strstr(got.mountpoint, "/--m"));
    assert_int_equal(parse("--dir=/a", "--pool=64MiB", "--pool=128MiB"), 0);
    assert_true(got.pool_bytes == FP_MIB(128));
}

static void test_every_type_reads_its_values(void **state)
{
    (void)state;
    assert_int_equal(parse("--dir=/d", "--backend=memory", "--mode=ssd", "--drain-rate=200MB/s",
                           "--manager=[fe80::1]:7420", "--log-level=debug"),
                     0);
    assert_true(got.backend == 1 && got.mode == 2 && got.rate == 200000000 && got.log_level == FP_LOG_DEBUG);
    assert_string_equal(got.manager.host, "fe80::1");
    assert_string_equal(got.manager.text, "[fe80::1]:7420");
    assert_int_equal(got.manager.port, 7420);
    assert_int_equal(parse("--dir=/d", "--listen=:7420", "--manager=node-1.example:1"), 0);
    assert_string_equal(got.manager.host, "node-1.example");
}

static void test_relative_paths_become_absolute(void **state)
{
    char cwd[4096], want[4200];
    (void)state;
    assert_non_null(getcwd(cwd, sizeof cwd));
    assert_int_equal(parse("--dir", "././x/y", "."), 0);
    snprintf(want, sizeof want, "%s/x/y", cwd);
    assert_string_equal(got.dir, want);
    assert_string_equal(got.mountpoint, cwd);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(parse("--dir", "x", "."), 0);
    assert_string_equal(got.dir, "/x");
    assert_string_equal(got.mountpoint, "/");
    assert_int_equal(chdir(cwd), 0);
}

static void test_lists_split_and_repeat_and_replace_weaker_sources(void **state)
{
    (void)state;
    setenv("FP_CORES", "7", 1);
    assert_int_equal(parse("--dir=/d"), 0);
    assert_int_equal(got.cores.count, 1);
    assert_int_equal(parse("--dir=/d", "--cores=2, 3", "--cores", "4-5"), 0);
    assert_int_equal(got.cores.count, 3);
    assert_string_equal(got.cores.items[1], "3");
    assert_string_equal(got.cores.items[2], "4-5");
    fails("--cores '1,,2': empty item: write a,b,c", "--cores=1,,2");
    fails("--cores '1,2,3,4,5': too many: at most 4 allowed", "--cores=1,2,3,4,5");
}

static void test_environment_is_weaker_than_the_command_line(void **state)
{
    (void)state;
    setenv("FP_POOL", "64MiB", 1);
    setenv("FP_DATA_ENCRYPTION", "off", 1);
    setenv("FP_READY_FD", "rubbish", 1);
    assert_int_equal(parse("--dir=/d"), 0);
    assert_true(got.pool_bytes == FP_MIB(64) && !got.encryption);
    assert_string_equal(fp_opts_source(handle, "pool"), "environment");
    assert_int_equal(parse("--dir=/d", "--pool=1GiB"), 0);
    assert_true(got.pool_bytes == FP_GIB(1));
    assert_string_equal(fp_opts_source(handle, "pool"), "command line");
    assert_string_equal(fp_opts_source(handle, "timeout"), "default");
    setenv("FP_POOL", "", 1); /* as good as unset */
    assert_int_equal(parse("--dir=/d"), 0);
    assert_true(got.pool_bytes == FP_MIB(512));
}

static void test_a_bad_value_is_an_error_even_where_a_stronger_one_hides_it(void **state)
{
    (void)state;
    setenv("FP_POOL", "lots", 1);
    fails("FP_POOL 'lots': not a size: write a number and a unit such as 512MiB, 3.5TB, or plain bytes",
          "--dir=/d", "--pool=1GiB");
}

static void test_values_out_of_range_say_the_range(void **state)
{
    (void)state;
    fails("--pool '1KiB': too small: allowed is 64MiB to 1TiB", "--dir=/d", "--pool=1KiB");
    fails("--pool '2TiB': too large: allowed is 64MiB to 1TiB", "--dir=/d", "--pool", "2TiB");
    fails("--timeout '2h': too large: allowed is 1ms to 1h", "--timeout=2h");
    fails("--stripe '0': too small: allowed is 1 to 64", "--stripe=0");
    fails("--stripe '99999999999999999999': too large: does not fit in 64 bits",
          "--stripe=99999999999999999999");
}

static void test_bad_values_say_what_to_write(void **state)
{
    (void)state;
    fails("--backend 'memry': must be dir, memory or ssd: did you mean 'memory'?", "--backend=memry");
    fails("--backend 'zzz': must be dir, memory or ssd", "--backend=zzz");
    fails("--quick 'maybe': must be on or off", "--quick=maybe");
    fails("--timeout '5': not a duration: write a number and a unit such as 500ms, 2s, 1h", "--timeout=5");
    fails("--manager 'host': not an address: write HOST:PORT or [IPV6]:PORT, such as 192.0.2.1:7420",
          "--manager=host");
    fails("--manager 'host:0': the port must be 1 to 65535", "--manager=host:0");
    fails("--dir '': must not be empty", "--dir=");
    fails("--node 'a b': must not hold spaces", "--node=a b");
}

static void test_addresses_that_are_none_are_refused(void **state)
{
    static const char *const bad[] = {"",         ":",          ":1",         "a:",     "a:b",
                                      "a:65536",  "a:-1",       "a:1 ",       "a:+1",   "a b:1",
                                      "::1:7420", "[::1]",      "[::1]7420",  "[::1:1", "a:1:2",
                                      "[]:1",     "a:01234567", "http://a:1", "a/b:1",  "a:1\n"};
    struct fp_addr addr = {.text = "before"};
    const char *why;
    char big[600];
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        why = NULL;
        if (fp_parse_addr(bad[i], 1, &addr, &why) != -EINVAL || !why)
            fail_msg("'%s' was accepted", bad[i]);
    }
    memset(big, 'a', sizeof big);
    memcpy(big + sizeof big - 3, ":1", 3);
    assert_int_equal(fp_parse_addr(big, 1, &addr, &why), -EINVAL);
    assert_string_equal(addr.text, "before");
}

static void test_mistyped_options_name_the_nearest(void **state)
{
    (void)state;
    fails("unknown option '--poool': did you mean '--pool'?", "--poool=3");
    fails("unknown option '--opol': did you mean '--pool'?", "--opol");
    fails("unknown option '--man': did you mean '--manager'?", "--man", "a:1");
    fails("unknown option '--xyzzy': see --help", "--xyzzy");
    fails("unknown option '-x': see --help", "-x");
    fails("unknown option '--': see --help", "--=3");
    fails("unexpected argument '/b': see --help", "/a", "/b");
}

static void test_missing_values_and_options_are_named(void **state)
{
    (void)state;
    fails("--dir is missing: give --dir DIR, or set FP_DIR, or 'dir' in fp.conf", "/m");
    fails("--dir needs a value: --dir DIR", "--dir", "--pool=1GiB");
    fails("--backend needs a value: --backend dir|memory|ssd", "--backend");
    fails("--config needs a value: --config FILE", "--config");
}

static void test_a_key_given_instead_of_its_file_is_never_printed(void **state)
{
    (void)state;
    fails("--key: this looks like the key itself: give the name of a file that holds it", "--key", KEY_TEXT);
    fails("--key: this looks like the key itself: give the name of a file that holds it",
          "--key=./" KEY_TEXT "x");
    assert_int_equal(parse("--dir=/d", "--key=/etc/key"), 0);
}

static void test_mount_strings_set_options_and_keep_mounts_own(void **state)
{
    (void)state;
    assert_int_equal(parse("-n", "-o", "rw,nosuid,pool=1GiB,quick,node=a\\,b", "-t", "fuse.fpstore", "/m",
                           "-ox-systemd.automount,_netdev,dir=/d"),
                     0);
    assert_true(got.pool_bytes == FP_GIB(1) && got.quick);
    assert_string_equal(got.node, "a,b");
    assert_string_equal(got.mountpoint, "/m");
    const struct fp_strlist *flags = fp_opts_mount_flags(handle);
    assert_int_equal(flags->count, 4);
    assert_string_equal(flags->items[0], "rw");
    assert_string_equal(flags->items[3], "_netdev");
    fails("unknown option '-o poool': did you mean '-o pool'?", "-o", "poool=1GiB");
    fails("-o pool needs a value: pool=SIZE", "-o", "pool");
    fails("--pool '': not a size: write a number and a unit such as 512MiB, 3.5TB, or plain bytes", "-o",
          "pool=");
    fails("-o needs a value: see --help", "-o");
    assert_int_equal(parse("--dir=/d", "-o", ",,rw,,"), 0);
}

static void test_programs_can_set_options_themselves(void **state)
{
    (void)state;
    memset(&got, 0, sizeof got);
    handle = fp_opts_new(&table, &got);
    assert_int_equal(fp_opts_set(handle, "manager", "n1:7420"), 0);
    assert_int_equal(fp_opts_set(handle, "dir", "/d"), 0);
    assert_true(fp_opts_set(handle, "manger", "n1:7420") < 0);
    assert_int_equal(fp_opts_finish(handle), 0);
    assert_string_equal(got.manager.text, "n1:7420");
}

/* Runs the program part in a child: exit status and its first words on both streams. */
static int run_table(const struct fp_opt_table *of, char **argv, char *text, size_t size)
{
    int fds[2], status;
    size_t used = 0;
    ssize_t n;
    assert_int_equal(pipe(fds), 0);
    fflush(stdout);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int argc = 0;
        while (argv[argc])
            argc++;
        dup2(fds[1], STDOUT_FILENO);
        dup2(fds[1], STDERR_FILENO);
        fp_opts_free(fp_opt_parse_or_exit(of, &got, argc, argv));
        _exit(77);
    }
    close(fds[1]);
    while (used < size - 1 && (n = read(fds[0], text + used, size - 1 - used)) > 0)
        used += (size_t)n;
    text[used] = '\0';
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

#define RUN(text, ...) run_table(&table, (char *[]){(char[]){"fp-test"}, __VA_ARGS__, NULL}, text, sizeof text)

static void test_exit_codes_are_0_for_help_and_2_for_mistakes(void **state)
{
    static char text[16384];
    (void)state;
    assert_int_equal(RUN(text, (char[]){"--help"}), 0);
    assert_non_null(strstr(text, "Usage: fp-test [OPTION]... --dir=DIR [MOUNTPOINT]\n"));
    assert_non_null(strstr(text, "Default: 512MiB. Range: 64MiB to 1TiB."));
    assert_int_equal(RUN(text, (char[]){"--version"}), 0);
    assert_memory_equal(text, "fp-test (fpstore) ", 18);
    assert_int_equal(RUN(text, (char[]){"--pool=x"}), 2);
    assert_memory_equal(text, "fp-test: ERROR: --pool 'x': ", 28);
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    assert_int_equal(RUN(text, (char[]){"--dir=/d"}), 77);
}

static void test_help_fits_80_columns(void **state)
{
    static char text[16384];
    char *save = NULL;
    (void)state;
    RUN(text, (char[]){"--help"});
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (strlen(line) > 80)
            fail_msg("too long: %s", line);
    }
}

/* No file, no option that names one, no word of it. */
static void test_a_program_without_a_section_reads_no_file(void **state)
{
    static const struct fp_opt_table alone = {.prog = "fp-test", .summary = "Tests.", .opts = opts};
    static char text[16384];
    char *help[] = {(char[]){"fp-test"}, (char[]){"--help"}, NULL}, *config[] = {(char[]){"fp-test"}, (char[]){"--config=/x"}, NULL};
    (void)state;
    run_table(&alone, help, text, sizeof text);
    assert_non_null(strstr(text, "--help, --version"));
    assert_null(strstr(text, "fp.conf"));
    assert_null(strstr(text, "--config"));
    assert_int_equal(run_table(&alone, config, text, sizeof text), 2);
    assert_non_null(strstr(text, "unknown option '--config'"));
    setenv("FP_CONFIG", "/nowhere/fp.conf", 1);
    handle = fp_opts_new(&alone, &got);
    assert_int_equal(fp_opts_set(handle, "dir", "/d"), 0);
    assert_int_equal(fp_opts_finish(handle), 0);
}

/* What a shell makes of DUMP/rank_*: the memory grows with them, not with their square. */
static void test_a_list_of_many_words_takes_little_memory(void **state)
{
    enum { N = 30000 };
    static char *argv[N + 1];
    static char words[N][16];
    struct fp_strlist list;
    const struct fp_opt files[] = {{.name = "file", .type = FP_OPT_TYPE_LIST, .max = N, .flags = FP_OPT_POSITIONAL | FP_OPT_WHOLE | FP_OPT_NO_FILE, .help = "Files."}, FP_OPT_END};
    const struct fp_opt_table words_table = {.prog = "test", .summary = "Words.", .opts = files};
    struct fp_opts *o = fp_opts_new(&words_table, &list);
    struct mallinfo2 before = mallinfo2(), after;
    (void)state;

    argv[0] = (char[]){"test"};
    for (int i = 0; i < N; i++) {
        snprintf(words[i], sizeof words[i], "rank_%d", i);
        argv[i + 1] = words[i];
    }
    assert_int_equal(fp_opts_args(o, N + 1, argv), 0);
    after = mallinfo2();
    assert_int_equal(list.count, N);
    for (int i = 0; i < N; i++)
        assert_string_equal(list.items[i], words[i]);
    if (SANITIZED)
        print_message("memory is not measured: this allocator has no mallinfo2\n");
    else
        assert_true(after.uordblks > before.uordblks && after.uordblks + after.hblkhd - before.uordblks - before.hblkhd < 32 << 20);
    fp_opts_free(o);
}

static void test_man_page_lists_every_visible_option(void **state)
{
    static char text[32768];
    (void)state;
    assert_int_equal(RUN(text, (char[]){"--print-man-options"}), 0);
    assert_non_null(strstr(text, ".TP\n\\fB\\-\\-pool\\fR=\\fISIZE\\fR\n"));
    assert_non_null(strstr(text, "\\fB\\-\\-data\\-encryption\\fR"));
    assert_non_null(strstr(text, "Default: 10s. Range: 1ms to 1h. Environment: FP_TIMEOUT."));
    assert_int_equal(RUN(text, (char[]){"--print-man-conf"}), 0);
    assert_non_null(strstr(text, "\\fBlog\\-level\\fR = "));
    assert_null(strstr(text, "ready"));
}

static void test_nearest_name_is_near_or_none(void **state)
{
    static const char *const names[] = {"manager", "mount", "pool", "log-level", NULL};
    char longest[200];
    (void)state;
    assert_string_equal(fp_nearest_name("mangaer", names), "manager");
    assert_string_equal(fp_nearest_name("mout", names), "mount");
    assert_string_equal(fp_nearest_name("loglevel", names), "log-level");
    assert_null(fp_nearest_name("benefactor", names));
    assert_null(fp_nearest_name("", names));
    assert_null(fp_nearest_name("x", names));
    memset(longest, 'p', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_null(fp_nearest_name(longest, names));
}

/* What names things: the last one alone is never meant. A variable, or a file, says something else. */
static void test_what_may_be_given_once(void **state)
{
    struct hosts { const char *hosts; } given;
    static const struct fp_opt once[] = {FP_OPT_STRING(struct hosts, hosts, "hosts", NULL, "Hosts.", .flags = FP_OPT_ONCE), FP_OPT_END};
    const struct fp_opt_table of = {.prog = "t", .section = "t", .summary = "T.", .opts = once};
    const char *const one[] = {"t", "--hosts=a", NULL}, *const two[] = {"t", "--hosts=a", "--hosts", "b", NULL};
    struct fp_opts *o = fp_opts_new(&of, &given);

    (void)state;
    setenv("FP_HOSTS", "c", 1);
    assert_int_equal(fp_opts_args(o, 2, (char **)(uintptr_t)one), 0);
    assert_int_equal(fp_opts_finish(o), 0);
    assert_string_equal(given.hosts, "a");
    fp_opts_free(o);
    unsetenv("FP_HOSTS");
    o = fp_opts_new(&of, &given);
    assert_int_equal(fp_opts_args(o, 4, (char **)(uintptr_t)two), -EINVAL);
    assert_string_equal(fp_opts_error(o), "--hosts is given twice");
    fp_opts_free(o);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, clean, clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_defaults_fill_every_field_of_the_table_and_no_other),
        TEST(test_values_come_behind_equals_or_in_the_next_word),
        TEST(test_every_type_reads_its_values),
        TEST(test_relative_paths_become_absolute),
        TEST(test_lists_split_and_repeat_and_replace_weaker_sources),
        TEST(test_environment_is_weaker_than_the_command_line),
        TEST(test_a_bad_value_is_an_error_even_where_a_stronger_one_hides_it),
        TEST(test_values_out_of_range_say_the_range),
        TEST(test_bad_values_say_what_to_write),
        TEST(test_addresses_that_are_none_are_refused),
        TEST(test_mistyped_options_name_the_nearest),
        TEST(test_missing_values_and_options_are_named),
        TEST(test_a_key_given_instead_of_its_file_is_never_printed),
        TEST(test_mount_strings_set_options_and_keep_mounts_own),
        TEST(test_programs_can_set_options_themselves),
        TEST(test_exit_codes_are_0_for_help_and_2_for_mistakes),
        TEST(test_help_fits_80_columns),
        TEST(test_a_program_without_a_section_reads_no_file),
        TEST(test_a_list_of_many_words_takes_little_memory),
        TEST(test_man_page_lists_every_visible_option),
        TEST(test_nearest_name_is_near_or_none),
        TEST(test_what_may_be_given_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
