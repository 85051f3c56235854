/* Lists of files, whose names a NUL byte ends: what is in them, and what is none. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "convert/filelist.h"

static char path[] = "/tmp/cv-filelist-XXXXXX";
static struct cv_filelist list;
static struct cv_fail why;

static int setup(void **state)
{
    (void)state;
    strcpy(path + strlen(path) - 6, "XXXXXX");
    close(mkstemp(path));
    memset(&why, 0, sizeof why);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cv_filelist_free(&list);
    list = (struct cv_filelist){0};
    return unlink(path);
}

static int fill(const char *text, size_t len, const char *const *words, size_t nwords)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
    cv_filelist_free(&list);
    return cv_filelist_fill(&list, &(struct fp_strlist){nwords, (const char **)(uintptr_t)words}, path, &why);
}

static void test_names_of_the_list_come_behind_the_words(void **state)
{
    static const char *const words[] = {"first", "second"};
    static const char text[] = "a b\0with\nline\0-\0--only=x"; /* the last one is ended by the string's own */
    static const char *const expect[] = {"first", "second", "a b", "with\nline", "-", "--only=x"};
    (void)state;

    assert_int_equal(fill(text, sizeof text, words, 2), 0);
    assert_int_equal(list.count, 6);
    for (size_t i = 0; i < 6; i++)
        assert_string_equal(list.items[i], expect[i]);
}

static void test_words_alone_need_no_list(void **state)
{
    const char *words[] = {"one"};
    (void)state;

    assert_int_equal(cv_filelist_fill(&list, &(struct fp_strlist){1, words}, NULL, &why), 0);
    assert_int_equal(list.count, 1);
    assert_string_equal(list.items[0], "one");
}

/* Longer than what is read at once, with names across its ends. */
static void test_a_list_may_be_long(void **state)
{
    enum { N = 50000, EACH = 37 };
    char *text = calloc(N, EACH + 1);
    (void)state;

    for (size_t i = 0; i < N; i++)
        snprintf(text + i * EACH, EACH, "/a/directory/of/a/dump/rank_%08zu", i);
    assert_int_equal(strlen(text), EACH - 1);
    assert_int_equal(fill(text, N * EACH, NULL, 0), 0);
    assert_int_equal(list.count, N);
    for (size_t i = 0; i < N; i++)
        assert_string_equal(list.items[i], text + i * EACH);
    free(text);
}

static void refused(const char *text, size_t len, uint64_t byte, const char *word)
{
    memset(&why, 0, sizeof why);
    assert_int_equal(fill(text, len, NULL, 0), -EINVAL);
    assert_string_equal(why.file, path);
    assert_int_equal(why.offset_bytes, byte);
    assert_non_null(strstr(why.text, word));
}

static void test_what_is_no_list_is_said_with_its_place(void **state)
{
    char *endless = malloc(100000);
    (void)state;

    refused("", 0, CV_NO_OFFSET, "no file is in the list");
    refused("", 1, 0, "the name here is empty");
    refused("a\0\0b", 5, 2, "the name here is empty");
    refused("a\0b", 3, 2, "no NUL byte ends the last name");
    refused("a\nb\n", 4, 0, "in lines");
    memset(endless, 'x', 100000);
    memcpy(endless, "a", 2);
    refused(endless, 100000, 2, "no NUL byte ends the name that begins here");
    free(endless);
}

static void test_a_list_that_can_not_be_read_is_said(void **state)
{
    const struct fp_strlist none = {0};
    (void)state;

    assert_int_equal(cv_filelist_fill(&list, &none, "/nowhere/at/all", &why), -EINVAL);
    assert_non_null(strstr(why.text, "can't be opened"));
    cv_filelist_free(&list);
    memset(&why, 0, sizeof why);
    assert_int_equal(cv_filelist_fill(&list, &none, "/tmp", &why), -EINVAL);
    assert_non_null(strstr(why.text, "can't be read"));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(names_of_the_list_come_behind_the_words),
        T(words_alone_need_no_list),
        T(a_list_may_be_long),
        T(what_is_no_list_is_said_with_its_place),
        T(a_list_that_can_not_be_read_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
