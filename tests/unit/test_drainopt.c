/* Policies of draining: each word within its bounds, one canonical text for what means the same, a line for what is wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dlfcn.h>
#include <unistd.h>

#include "fp/auxapp.h"
#include "fp/drainopt.h"

static struct fp_drain_policy good(const char *text)
{
    struct fp_drain_policy p;
    char why[FP_DRAIN_WHY_MAX];

    if (fp_drain_parse(text, &p, why))
        fail_msg("'%s': %s", text, why);
    return p;
}

static void is_text(const char *text, const char *want)
{
    struct fp_drain_policy p = good(text);
    char canon[FP_DRAIN_TEXT_MAX], again[FP_DRAIN_TEXT_MAX];

    fp_drain_text(&p, canon);
    assert_string_equal(canon, want);
    p = good(canon);
    fp_drain_text(&p, again);
    assert_string_equal(again, want);
}

/* Nothing is set, and the line has this in it. */
static void is_bad(const char *text, const char *part)
{
    struct fp_drain_policy p, before;
    char why[FP_DRAIN_WHY_MAX] = "";

    memset(&p, 0x5a, sizeof p);
    before = p;
    assert_true(fp_drain_parse(text, &p, why) < 0);
    if (!strstr(why, part))
        fail_msg("'%s': '%s' says nothing of '%s'", text, why, part);
    assert_memory_equal(&p, &before, sizeof p);
}

static void test_a_target_is_all_that_is_needed(void **state)
{
    struct fp_drain_policy p = good("to=/lustre/proj/run");

    (void)state;
    assert_string_equal(p.to, "/lustre/proj/run");
    assert_int_equal(p.every, 1);
    assert_int_equal(p.keep, 2);
    assert_int_equal(p.quiet_ms | p.late_ms, 0); /* it has not said so */
    assert_int_equal(p.low, 30);
    assert_false(p.verify || p.all || p.told || p.overwrite);
    assert_int_equal(p.layout, FP_DRAIN_FILE);
    assert_int_equal(p.level, FP_DRAIN_LOCAL);
    assert_string_equal(p.marker, "");
    assert_int_equal(p.max | p.max_job, 0);
}

static void test_each_word_is_taken(void **state)
{
    struct fp_drain_policy p = good("to=/p every=4 keep=3 pattern=run/chk_{step}/*,a{step} results=*.h5 all=yes verify=on max=200MB/s "
                                    "max-job=1.5GB/s level=verified quiet=500ms late=2min complete=told marker=OK low=40% overwrite=yes");

    (void)state;
    assert_int_equal(p.every, 4);
    assert_int_equal(p.keep, 3);
    assert_string_equal(p.pattern, "run/chk_{step}/*,a{step}");
    assert_string_equal(p.results, "*.h5");
    assert_true(p.all && p.verify && p.told && p.overwrite);
    assert_int_equal(good("to=/p layout=log").layout, FP_DRAIN_LOG);
    assert_true(p.max == 200000000 && p.max_job == 1500000000);
    assert_int_equal(p.level, FP_DRAIN_VERIFIED);
    assert_true(p.quiet_ms == 500 && p.late_ms == 120000);
    assert_string_equal(p.marker, "OK");
    assert_true(p.low == 40);
    assert_int_equal(good("to=/p every=auto").every, FP_DRAIN_EVERY_AUTO);
    assert_int_equal(good("to=/p every=none results=a").every, FP_DRAIN_EVERY_NONE);
}

static void test_what_means_the_same_has_one_text(void **state)
{
    (void)state;
    is_text("to=/p", "to=/p");
    is_text("  to=//p///q/  every=1 keep=2 verify=no overwrite=off max=0\t", "to=/p/q");
    is_text("verify=yes keep=4 to=/p", "to=/p keep=4 verify=on");
    is_text("to=/p verify=true all=1", "to=/p all=yes verify=on");
    is_text("to=/p pattern=//run/{step},/b{step} results=/b", "to=/p pattern=run/{step},/b{step} results=b"); /* b7 anywhere, or in the root */
    is_text("to=/p pattern=b{step}/,/c_{step}/,**/{step}/d/", "to=/p pattern=b{step}/,/c_{step}/,**/{step}/d/");
    is_text("to=\"/a b/c\" max=0.2GB/s", "to=\"/a b/c\" max=200MB/s");
    is_text("to=/p late=60s quiet=2000ms marker=DONE", "to=/p quiet=2s late=1min marker=DONE");
    is_text("to=/p every=auto late=90s", "to=/p every=auto late=90s");
    is_text("to=/p every=none results=*.h5", "to=/p every=none results=*.h5");
}

static void test_mistakes_are_named(void **state)
{
    (void)state;
    is_bad("", "to=DIRECTORY");
    is_bad("every=4", "to=DIRECTORY");
    is_bad("to=p", "from / on");
    is_bad("to=/", "below /");
    is_bad("to=/a/../b", "..");
    is_bad("to=/a/.", "..");
    is_bad("to", "write to=VALUE");
    is_bad("to=/p evry=4", "did you mean 'every'?");
    is_bad("to=/p colour=red", "there are to, every,");
    is_bad("to=/p every=4 every=4", "given twice");
    is_bad("to=/p every=0", "1 to 1000000");
    is_bad("to=/p every=1000001", "1 to 1000000");
    is_bad("to=/p every=4x", "every=4x");
    is_bad("to=/p keep=0", "1 to 1000");
    is_bad("to=/p keep=1001", "1 to 1000");
    is_bad("to=/p pattern=a{step},,b", "between two commas");
    is_bad("to=/p pattern=a{step},", "behind the last comma");
    is_bad("to=/p pattern=/,a{step}", "between two commas");
    is_bad("to=/p pattern=a{step},run/b", "pattern=run/b: write {step}");
    is_bad("to=/p pattern=*.h5", "as in run/chk_{step}/*");
    is_bad("to=/p pattern={step}/{step}", "twice");
    is_bad("to=/p pattern=a{rank}_{step}", "'{': there are {step}, *");
    is_bad("to=/p pattern=a[0-9]_{step}", "'['");
    is_bad("to=/p pattern=chk_00{step}", "all digits of a number");
    is_bad("to=/p pattern=chk_{step}0", "all digits of a number");
    is_bad("to=/p pattern=./{step}", "without //, . and ..");
    is_bad("to=/p pattern=a/../{step}", "without //, . and ..");
    is_bad("to=/p pattern=a//{step}", "without //, . and ..");
    is_bad("to=/p results=/", "between two commas");
    is_bad("to=/p marker=a/b", "without a slash");
    is_bad("to=/p marker=\"\"", "nothing behind it");
    is_bad("to=/p verify=maybe", "off or on");
    is_bad("to=/p layout=lo", "did you mean 'log'");
    is_bad("to=/p layout=log verify=on", "fpctl merge compares");
    is_bad("to=/p layout=log keep=3", "keep= is not for layout=log");
    is_bad("to=/p layout=log low=40%", "never frees space");
    is_bad("to=/p layout=log level=drained", "never reached");
    is_bad("to=/p layout=log overwrite=yes", "nothing but a log");
    is_bad("to=/p level=pool", "local, drained or verified");
    is_bad("to=/p level=verified", "verify=on");
    is_bad("to=/p max=200", "200MB/s");
    is_bad("to=/p max=1kB/s", "100kB/s");
    is_bad("to=/p quiet=10ms", "100ms to 1h");
    is_bad("to=/p late=25h", "late=25h");
    is_bad("to=/p low=30", "from 0% to 90%");
    is_bad("to=/p low=91%", "from 0% to 90%");
    is_bad("to=/p low=-1%", "low=-1%");
    is_bad("to=/p every=none", "results=");
    is_bad("to=\"/p", "not closed");
    is_bad("to=/p\1", "control");
}

static char *long_text(const char *begin, size_t len, const char *end)
{
    char *t = calloc(1, len + 100);

    strcpy(t, begin);
    memset(t + strlen(t), 'x', len);
    strcat(t, end);
    return t;
}

static void test_lengths_are_bounded(void **state)
{
    char *p = long_text("to=/", FP_DRAIN_PATH_MAX - 2, ""), *q = long_text("to=/", FP_DRAIN_PATH_MAX - 1, "");
    char *l = long_text("to=/p pattern={step}", FP_DRAIN_LIST_MAX - 7, ""), *m = long_text("to=/p pattern={step}", FP_DRAIN_LIST_MAX - 6, "");
    char *t = long_text("to=/", FP_DRAIN_TEXT_MAX, "");
    char most[FP_DRAIN_TEXT_MAX], text[FP_DRAIN_TEXT_MAX];
    struct fp_drain_policy policy;

    (void)state;
    assert_int_equal(strlen(good(p).to), FP_DRAIN_PATH_MAX - 1);
    is_bad(q, "longer than");
    assert_int_equal(strlen(good(l).pattern), FP_DRAIN_LIST_MAX - 1);
    is_bad(m, "longer than");
    is_bad(t, "longer than");
    /* all that is longest: its canonical text is whole */
    policy = good("to=/p every=1000000 keep=1000 all=yes verify=on max=18446744073709551615B/s max-job=18446744073709551615B/s level=verified "
                  "quiet=3599999ms late=86399999ms complete=told low=31% overwrite=yes");
    strcpy(policy.to, good(p).to);
    policy.to[5] = ' ';
    strcpy(policy.pattern, good(l).pattern);
    strcpy(policy.results, good(l).pattern);
    strcpy(policy.marker, good(l).pattern);
    policy.pattern[8] = policy.results[8] = policy.marker[8] = ' ';
    fp_drain_text(&policy, most);
    is_text(most, most);
    fp_drain_text(&policy, text);
    assert_true(strstr(text, " overwrite=yes") && strlen(text) < FP_DRAIN_TEXT_MAX - 20);
    free(p), free(q), free(l), free(m), free(t);
}

static void test_lists_are_gone_through(void **state)
{
    const char *list = "a,bc", *item;
    size_t len;

    (void)state;
    assert_true(fp_drain_next(&list, &item, &len) && len == 1 && *item == 'a');
    assert_true(fp_drain_next(&list, &item, &len) && len == 2 && strncmp(item, "bc", 2) == 0);
    assert_false(fp_drain_next(&list, &item, &len));
    list = "";
    assert_false(fp_drain_next(&list, &item, &len));
}

static void test_every_word_has_help_and_a_default_that_is_taken(void **state)
{
    size_t n;
    const struct fp_drain_word *w = fp_drain_words(&n);

    (void)state;
    assert_int_equal(n, 17);
    for (size_t i = 0; i < n; i++) {
        char text[200];

        assert_true(w[i].help && strlen(w[i].help) > 10);
        if (!w[i].fallback)
            continue;
        snprintf(text, sizeof text, "to=/p %s=%s", w[i].name, w[i].fallback);
        is_text(text, "to=/p");
    }
}

/* The plugin of this build: beside the folder of tests that this program is in. */
static const struct fp_aux_app *aux_app(void)
{
    fp_aux_app_fn *entry;
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 100);
    void *so, *fn;

    assert_true(n > 0);
    path[n] = '\0';
    assert_non_null(strstr(path, "/tests/"));
    strcpy(strstr(path, "/tests/"), "/lib/auxapps/drain.so");
    so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so)
        fail_msg("%s", dlerror());
    fn = dlsym(so, FP_AUX_ENTRY);
    assert_non_null(fn);
    memcpy(&entry, &fn, sizeof entry);
    return entry(FP_AUX_ABI);
}

static void test_the_aux_app_has_the_same_words(void **state)
{
    const struct fp_aux_app *app = aux_app();
    size_t n;
    const struct fp_drain_word *w = fp_drain_words(&n);

    (void)state;
    for (size_t i = 0; i < n; i++) {
        const struct fp_aux_option *o = &app->options[i];

        assert_non_null(o->name);
        assert_string_equal(o->name, w[i].name);
        assert_string_equal(o->help, w[i].help);
        assert_string_equal(o->fallback ? o->fallback : "none", w[i].fallback ? w[i].fallback : "none");
        assert_true(o->min == w[i].min && o->max == w[i].max && !o->is_size && !o->can_change);
        assert_int_equal(!o->choices, !w[i].choices);
        for (size_t k = 0; w[i].choices && w[i].choices[k]; k++)
            assert_string_equal(o->choices[k], w[i].choices[k]);
        for (size_t k = 0; o->choices && o->choices[k]; k++)
            assert_non_null(w[i].choices[k]);
    }
    assert_null(app->options[n].name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_target_is_all_that_is_needed),
        cmocka_unit_test(test_each_word_is_taken),
        cmocka_unit_test(test_what_means_the_same_has_one_text),
        cmocka_unit_test(test_mistakes_are_named),
        cmocka_unit_test(test_lengths_are_bounded),
        cmocka_unit_test(test_lists_are_gone_through),
        cmocka_unit_test(test_every_word_has_help_and_a_default_that_is_taken),
        cmocka_unit_test(test_the_aux_app_has_the_same_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
