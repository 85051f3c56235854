/*
 * Declarations of aux-apps: the host's own words are understood, all else is the aux-app's, and mistakes are told with the nearest word.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/aux/declare.h"
#include "client/options.h"

static void assert_refused(const char *text, const char *part)
{
    struct cl_aux_decl d;
    const char *why = cl_aux_decl_parse(text, &d);

    assert_non_null(why);
    if (!strstr(why, part))
        fail_msg("'%s' gave '%s', without '%s'", text, why, part);
}

static void test_declare_takes_the_words_of_the_host(void **state)
{
    struct cl_aux_decl d;

    (void)state;
    assert_null(cl_aux_decl_parse("dedup hash=sha1 cores=1-3 required queue=8 deadline=5s failures=7 idle=2s nodes=4 verify=on", &d));
    assert_string_equal(d.name, "dedup");
    assert_int_equal(d.cores_min, 1);
    assert_int_equal(d.cores_max, 3);
    assert_true(d.required);
    assert_int_equal(d.queue, 8);
    assert_int_equal(d.deadline_ms, 5000);
    assert_int_equal(d.failures, 7);
    assert_int_equal(d.idle_ms, 2000);
    assert_int_equal(d.nodes, 4);
    assert_true(d.verify_given && d.verify);
}

static void test_declare_leaves_the_rest_to_the_aux_app(void **state)
{
    struct cl_aux_decl d;

    (void)state;
    assert_null(cl_aux_decl_parse("./my.so level=3 pattern=a=b,c", &d));
    assert_string_equal(d.name, "./my.so");
    assert_string_equal(d.text, "./my.so level=3 pattern=a=b,c");
    assert_int_equal(d.failures, CL_AUX_FAILURES);
    assert_int_equal(d.deadline_ms, 0);
    assert_false(d.required);
    assert_null(cl_aux_decl_parse("encrypt key=\"/my keys/required 1\" \"required\"", &d));
    assert_true(d.required);
}

static void test_declare_names_what_is_wrong(void **state)
{
    (void)state;
    assert_refused("", "must begin with the name");
    assert_refused("   ", "must begin with the name");
    assert_refused("Dedup", "not the name");
    assert_refused("a-name-that-is-too-long-for-it", "not the name");
    assert_refused("dedup requird", "did you mean 'required'");
    assert_refused("dedup cores", "cores=VALUE");
    assert_refused("dedup required=yes", "takes no value");
    assert_refused("dedup cores=3-1", "ends before it begins");
    assert_refused("dedup cores=0", "1 to 64");
    assert_refused("dedup cores=-2", "how many");
    assert_refused("dedup queue=many", "not a number");
    assert_refused("dedup deadline=5", "deadline");
    assert_refused("dedup deadline=1ms", "not from 10 ms");
    assert_refused("dedup verify=maybe", "on or off");
    assert_refused("dedup =5", "no name before it");
    assert_refused("dedup pattern=\"a b", "does not end");
    assert_refused("dedup\nhash=sha1", "control character");
}

static void test_declare_wants_different_names(void **state)
{
    const char *texts[] = { "dedup hash=sha1", "compress", "dedup hash=sha256" };
    struct fp_strlist l = { .count = 2, .items = texts };
    static struct cl_aux_decl d[FP_AUXW_APPS_MAX];
    const char *why = NULL;

    (void)state;
    assert_int_equal(cl_aux_decl_all(&l, d, &why), 2);
    l.count = 3;
    assert_true(cl_aux_decl_all(&l, d, &why) < 0);
    assert_non_null(strstr(why, "twice"));
}

static void test_declare_comes_from_the_command_line_in_order(void **state)
{
    char *argv[] = { "fp-mount", "--config", "", "--manager", "127.0.0.1:7420", "--auxapp", "dedup pattern=a,b", "--auxapp=compress level=3", NULL };
    static struct cl_options opt;

    (void)state;
    cl_options_parse(&opt, 8, argv);
    assert_int_equal(opt.auxapps.count, 2);
    assert_string_equal(opt.auxapps.items[0], "dedup pattern=a,b");
    assert_string_equal(opt.auxapps.items[1], "compress level=3");
    assert_int_equal(opt.aux_region_bytes, 64u << 20);
}

static void test_declare_convert_goes_with_locks_of_the_store_alone(void **state)
{
    const char *texts[] = { "dedup hash=sha1", "convert pattern=run/*" };
    struct cl_options opt = { .locks = CL_LOCKS_STORE, .auxapps = { .count = 2, .items = texts } };

    (void)state;
    assert_null(cl_options_contradiction(&opt));
    opt.locks = CL_LOCKS_LOCAL;
    assert_non_null(strstr(cl_options_contradiction(&opt), "--locks=local"));
    texts[1] = "/opt/apps/convert.so pattern=run/*";
    assert_non_null(cl_options_contradiction(&opt));
    texts[1] = "/opt/apps/converted.so pattern=run/*";
    assert_null(cl_options_contradiction(&opt));
    opt.auxapps.count = 1;
    assert_null(cl_options_contradiction(&opt));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_declare_takes_the_words_of_the_host),
        cmocka_unit_test(test_declare_leaves_the_rest_to_the_aux_app),
        cmocka_unit_test(test_declare_names_what_is_wrong),
        cmocka_unit_test(test_declare_wants_different_names),
        cmocka_unit_test(test_declare_comes_from_the_command_line_in_order),
        cmocka_unit_test(test_declare_convert_goes_with_locks_of_the_store_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
