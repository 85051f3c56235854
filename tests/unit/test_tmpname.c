/* Temporary names, and names that only look like them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "fp/tmpname.h"

struct row { const char *name, *body; };

static void check(const struct row *rows)
{
    for (const struct row *r = rows; r->name; r++) {
        size_t off, len = fp_tmpname_body(r->name, strlen(r->name), &off);

        if (len != strlen(r->body) || memcmp(r->name + off, r->body, len) != 0)
            fail_msg("%s: '%.*s', not '%s'", r->name, (int)len, r->name + off, r->body);
    }
}

static void test_what_is_left_of_temporary_names(void **state)
{
    static const struct row rows[] = {
        {"chk_0007.tmp", "chk_0007"}, {"chk_0007.part", "chk_0007"}, {"chk_0007.partial", "chk_0007"}, {"chk_0007.new", "chk_0007"}, {"chk_0007~", "chk_0007"},
        {"chk_0007-tmp", "chk_0007"}, {"chk_0007_tmp", "chk_0007"}, {"tmp-checkpoint-500", "checkpoint-500"}, {".tmp_chk_0007", "chk_0007"},
        {"tmp.restart.5000", "restart.5000"}, {"state.tmp.k3J9x", "state"}, {"state.tmp4711", "state"}, {"state-tmp-4711", "state"},
        {"1000.orbax-checkpoint-tmp-1699912345", "1000"}, {"1000.orbax-checkpoint.tmp", "1000.orbax-checkpoint"}, {"chk_0007.tmp~", "chk_0007"}, {"tmp-chk_0007.tmp.12", "chk_0007"}, {NULL, NULL}};

    (void)state;
    check(rows);
}

static void test_other_names_are_left_alone(void **state)
{
    static const struct row rows[] = {
        {"", ""}, {"a", "a"}, {"~", "~"}, {".tmp", ".tmp"}, {"tmp", "tmp"}, {"tmp-", "tmp-"}, {".metadata", ".metadata"}, {"tmpfile", "tmpfile"}, {"tmp0", "tmp0"},
        {"atmp", "atmp"}, {"a.tmpl", "a.tmpl"}, {"x.newer", "x.newer"}, {"department.party", "department.party"}, {"chk_0007.h5", "chk_0007.h5"},
        {"1000.orbax-checkpoint", "1000.orbax-checkpoint"}, {NULL, NULL}};

    (void)state;
    check(rows);
}

/* Each prefix of a name, in memory of its own: nothing behind its end is looked at. */
static void test_bytes_behind_the_name_do_not_count(void **state)
{
    char name[] = "chk_0007.tmp.partial";
    size_t off;

    (void)state;
    assert_int_equal(fp_tmpname_body(name, 8, &off), 8);
    assert_int_equal(fp_tmpname_body(name, 11, &off), 11);
    assert_int_equal(fp_tmpname_body(name, 12, &off), 8);
    assert_int_equal(fp_tmpname_body(name, 0, &off), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_left_of_temporary_names),
        cmocka_unit_test(test_other_names_are_left_alone),
        cmocka_unit_test(test_bytes_behind_the_name_do_not_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
