/* Which command of fpctl is meant, and what its words are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "client/ctl/cmd.h"

static const struct ctl_cmd status = {.words = "status", .args = "[PATH]", .options = ""};
static const struct ctl_cmd stat_one = {.words = "stat", .args = "PATH", .options = "all"};
static const struct ctl_cmd drain = {.words = "drain", .args = "[PATH...]", .options = "all last wait-more"};
static const struct ctl_cmd drain_set = {.words = "drain set", .args = "TEXT [PATH]", .options = "wait"};
static const struct ctl_cmd app_set = {.words = "auxapps set", .args = "NAME OPTION=VALUE [PATH]", .options = ""};
static const struct ctl_cmd latest = {.words = "checkpoint latest", .args = "[PATH]", .options = ""};
static const struct ctl_cmd commit = {.words = "checkpoint commit", .args = "PATH", .options = ""};
static const struct ctl_cmd restore = {.words = "restore", .args = "PATH[@N]", .options = ""};
static const struct ctl_cmd waits = {.words = "wait", .args = "PATH|SET...", .options = ""};
static const struct ctl_cmd *const list[] = {&status, &stat_one, &drain, &drain_set, &app_set, &latest, &commit, &restore, &waits, NULL};

static struct ctl_options o;
static char why[512];

/* The words of a line, split at blanks. */
static struct fp_strlist split(char *line)
{
    static const char *items[400];
    struct fp_strlist l = {.items = items};

    for (char *p = strtok(line, " "); p; p = strtok(NULL, " "))
        items[l.count++] = p;
    return l;
}

static const struct ctl_cmd *find(const char *text, size_t *used)
{
    static char line[4096];
    struct fp_strlist words;

    snprintf(line, sizeof line, "%s", text);
    words = split(line);
    why[0] = '\0';
    return ctl_cmd_find(list, &words, used, why, sizeof why);
}

static int args(const struct ctl_cmd *c, const char *text)
{
    static char line[4096];
    struct fp_strlist words;

    for (size_t i = 0; i < o.npaths; i++)
        free((void *)(uintptr_t)o.paths[i]);
    memset(&o, 0, sizeof o);
    snprintf(line, sizeof line, "%s", text);
    words = split(line);
    why[0] = '\0';
    return ctl_cmd_args(c, words.items, words.count, &o, why, sizeof why);
}

static void test_the_longest_name_is_meant(void **state)
{
    size_t used;

    (void)state;
    assert_ptr_equal(find("drain", &used), &drain);
    assert_int_equal(used, 1);
    assert_ptr_equal(find("drain /set", &used), &drain);
    assert_int_equal(used, 1);
    assert_ptr_equal(find("drain set x", &used), &drain_set);
    assert_int_equal(used, 2);
    assert_ptr_equal(find("checkpoint latest", &used), &latest);
    assert_null(find("checkpoint latests", &used));
    assert_null(find("stats", &used));
}

static void test_what_is_no_command_is_told(void **state)
{
    size_t used;

    (void)state;
    assert_null(find("", &used));
    assert_non_null(strstr(why, "--help"));
    assert_null(find("statsu", &used));
    assert_non_null(strstr(why, "did you mean 'status'?"));
    assert_null(find("xyzzyplugh", &used));
    assert_non_null(strstr(why, "--help"));
    assert_null(find("checkpoint", &used));
    assert_non_null(strstr(why, "fpctl checkpoint latest [PATH], fpctl checkpoint commit PATH"));
    assert_null(find("checkpiont latest", &used));
    assert_non_null(strstr(why, "did you mean 'checkpoint latest'?"));
}

static void test_paths_are_absolute_and_names_are_left_alone(void **state)
{
    char cwd[PATH_MAX], want[PATH_MAX + 16];

    (void)state;
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(want, sizeof want, "%s/a/b", cwd);
    assert_int_equal(args(&status, ""), 0);
    assert_null(o.path);
    assert_int_equal(args(&status, "./a/b"), 0);
    assert_string_equal(o.path, want);
    assert_int_equal(args(&status, "."), 0);
    assert_string_equal(o.path, cwd);
    assert_int_equal(args(&app_set, "dedup cores=2 /m"), 0);
    assert_string_equal(o.names[0], "dedup");
    assert_string_equal(o.names[1], "cores=2");
    assert_null(o.names[2]);
    assert_string_equal(o.path, "/m");
    assert_int_equal(args(&drain, "/a /b /c"), 0);
    assert_int_equal(o.npaths, 3);
    assert_string_equal(o.paths[2], "/c");
    assert_int_equal(args(&waits, "/a /b"), 0);
    assert_int_equal(o.npaths, 2);
}

static void test_missing_and_superfluous_words_are_mistakes(void **state)
{
    (void)state;
    assert_int_not_equal(args(&stat_one, ""), 0);
    assert_string_equal(why, "PATH is missing: fpctl stat PATH");
    assert_int_not_equal(args(&stat_one, "/a /b"), 0);
    assert_non_null(strstr(why, "'/b'"));
    assert_int_not_equal(args(&app_set, "dedup"), 0);
    assert_non_null(strstr(why, "OPTION=VALUE is missing"));
    assert_int_not_equal(args(&app_set, "dedup cores"), 0);
    assert_string_equal(why, "'cores' is not OPTION=VALUE");
    assert_int_not_equal(args(&app_set, "dedup =2"), 0);
    assert_int_not_equal(args(&waits, ""), 0);
}

static void test_more_paths_than_one_call_takes(void **state)
{
    static char line[4096];

    (void)state;
    for (unsigned i = 0; i < CTL_PATHS_MAX; i++)
        strcat(line, "/a ");
    assert_int_equal(args(&drain, line), 0);
    assert_int_equal(o.npaths, CTL_PATHS_MAX);
    strcat(line, "/a");
    assert_int_not_equal(args(&drain, line), 0);
}

static void test_a_version_behind_the_path(void **state)
{
    char name[] = "/tmp/test_ctl_cmd.XXXXXX", text[64];
    int fd = mkstemp(name);

    (void)state;
    assert_int_equal(args(&restore, "/m/a@3"), 0);
    assert_string_equal(o.path, "/m/a");
    assert_int_equal(o.version, 3);
    assert_int_equal(args(&restore, "/m/a"), 0);
    assert_int_equal(o.version, 0);
    assert_int_equal(args(&restore, "/m/a@b"), 0);
    assert_string_equal(o.path, "/m/a@b");
    assert_int_equal(args(&restore, "/m/a@0"), 0);
    assert_string_equal(o.path, "/m/a@0");
    assert_int_equal(args(&restore, "/m/a@99999999999999999999"), 0);
    assert_int_equal(o.version, 0);
    snprintf(text, sizeof text, "%s@2", name);
    assert_int_equal(rename(name, text), 0); /* a file that is called so */
    assert_int_equal(args(&restore, text), 0);
    assert_string_equal(o.path, text);
    assert_int_equal(o.version, 0);
    assert_int_equal(args(&stat_one, "/m/a@3"), 0);
    assert_string_equal(o.path, "/m/a@3"); /* this command knows of no versions */
    unlink(text);
    close(fd);
}

static void test_options_that_a_command_knows(void **state)
{
    (void)state;
    assert_true(ctl_cmd_knows(&drain, "all"));
    assert_true(ctl_cmd_knows(&drain, "wait-more"));
    assert_false(ctl_cmd_knows(&drain, "wait"));
    assert_false(ctl_cmd_knows(&drain, "al"));
    assert_false(ctl_cmd_knows(&status, "all"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_longest_name_is_meant),
        cmocka_unit_test(test_what_is_no_command_is_told),
        cmocka_unit_test(test_paths_are_absolute_and_names_are_left_alone),
        cmocka_unit_test(test_missing_and_superfluous_words_are_mistakes),
        cmocka_unit_test(test_more_paths_than_one_call_takes),
        cmocka_unit_test(test_a_version_behind_the_path),
        cmocka_unit_test(test_options_that_a_command_knows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
