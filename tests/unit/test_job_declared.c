/* What #FP lines declare: each word within its limits, each mistake at its place. */
#include "tests/unit/job_fixture.h"

static struct jf x;

static void test_one_line_is_a_store_with_defaults(void **state)
{
    (void)state;
    jf_good(&x, "#FP store\n");
    assert_non_null(x.d.store_line);
    assert_string_equal(x.d.store.ssd, "$TMPDIR");
    assert_string_equal(x.d.store.mount, "/AggregateSSDstore");
    assert_string_equal(x.d.store.backend, "dir");
    assert_int_equal(x.d.store.size_bytes, 0);
    assert_int_equal(x.d.cores.kind, JOB_CORES_NONE);
    jf_end(&x);
}

static void test_a_script_without_lines_declares_nothing(void **state)
{
    (void)state;
    jf_good(&x, "#!/bin/sh\nsrun ./app\n");
    assert_null(x.d.store_line);
    assert_int_equal(x.d.nauxapps + x.d.nin + x.d.nout, 0);
    jf_end(&x);
}

static void test_words_of_a_store(void **state)
{
    (void)state;
    jf_good(&x, "#FP store ssd=\"/ssd/$USER\" size=1.5GiB mount=$HOME/m backend=memory pool=1GiB chunk-size=4MiB stripe=3 close=behind persistent=run-42 on-failure=keep ready=90s reserve=1h\n");
    assert_string_equal(x.d.store.ssd, "/ssd/$USER");
    assert_int_equal(x.d.store.size_bytes, 1610612736);
    assert_string_equal(x.d.store.mount, "$HOME/m");
    assert_string_equal(x.d.store.backend, "memory");
    assert_int_equal(x.d.store.pool_bytes, 1 << 30);
    assert_int_equal(x.d.store.chunk_size_bytes, 4 << 20);
    assert_int_equal(x.d.store.stripe, 3);
    assert_string_equal(fp_close_names[x.d.store.close], "behind");
    assert_string_equal(x.d.store.persistent, "run-42");
    assert_int_equal(x.d.store.on_failure, JOB_FAILURE_KEEP);
    assert_int_equal(x.d.store.ready_ms, 90000);
    assert_int_equal(x.d.store.reserve_ms, 3600000);
    jf_end(&x);
}

static void test_mistakes_in_a_store(void **state)
{
    (void)state;
    jf_bad("#FP store size=32G\n", 1, 11, "size '32G': unknown unit");
    jf_bad("#FP store  size=1MiB\n", 1, 12, "too small: allowed is 64MiB to");
    jf_bad("#FP store ssd=tmp\n", 1, 11, "from / on");
    jf_bad("#FP store sise=1GiB\n", 1, 11, "did you mean 'size'?");
    jf_bad("#FP store close=behnd\n", 1, 11, "close 'behnd': must be publish, sync or behind: did you mean 'behind'?");
    jf_bad("#FP store size=1GiB close=\n", 1, 21, "must be publish, sync or behind");
    jf_bad("#FP store clsoe=sync\n", 1, 11, "did you mean 'close'?");
    jf_bad("#FP store zzzzzz=1\n", 1, 11, "there are ssd, size, mount");
    jf_bad("#FP store =1GiB\n", 1, 11, "no name before '='");
    jf_bad("#FP store \"mount=/a b\"\n", 1, 11, "only what stands behind the = may be in quotes");
}

static void test_blanks_around_the_equals_sign_are_told(void **state)
{
    (void)state;
    jf_bad("#FP store size 32GiB\n", 1, 11, "write size=VALUE, without blanks");
    jf_bad("#FP store size = 32GiB pool=1GiB\n", 1, 11, "write size=VALUE, without blanks");
    jf_bad("#FP store size =32GiB pool=1GiB\n", 1, 11, "write size=VALUE, without blanks");
    jf_bad("#FP store sizes\n", 1, 11, "write size=VALUE, without blanks");
    jf_bad("#FP store now\n", 1, 11, "not understood here");
}

static void test_each_mistake_is_told(void **state)
{
    (void)state;
    jf_read(&x, "#FP store ssd=x size=y\n#FP cores z\n#FP stor\n");
    assert_int_equal(x.f.errors, 4);
    assert_string_equal(x.d.store.ssd, "$TMPDIR"); /* as if it was not there */
    jf_end(&x);
}

static void test_what_a_job_has_once(void **state)
{
    (void)state;
    jf_bad("#FP store\n#FP store\n", 2, 5, "in line 1 already");
    jf_bad("#FP cores 1\n#FP cores 2\n", 2, 5, "in line 1 already");
    jf_bad("#FP store ssd=/a ssd=/b\n", 1, 18, "given twice");
    jf_bad("#FP auxapp dedup\n#FP auxapp dedup hash=sha1\n", 2, 12, "declared in line 1 already");
}

static void test_unknown_directives(void **state)
{
    (void)state;
    jf_bad("#FP auxap dedup\n", 1, 5, "did you mean 'auxapp'?");
    jf_bad("#FP stagein /x\n", 1, 5, "did you mean 'stage-in'?");
    jf_bad("#FP qqqqqqqqqq\n", 1, 5, "there are store, cores, auxapp, stage-in and stage-out");
}

static void cores(const char *text, enum job_cores_kind kind, uint32_t min, uint32_t max, uint32_t percent, uint32_t highest)
{
    char line[100];

    snprintf(line, sizeof line, "#FP cores %s\n", text);
    jf_good(&x, line);
    assert_int_equal(x.d.cores.kind, kind);
    assert_int_equal(x.d.cores.min, min);
    assert_int_equal(x.d.cores.max, max);
    assert_int_equal(x.d.cores.percent, percent);
    assert_int_equal(x.d.cores.highest, highest);
    jf_end(&x);
}

static void test_forms_of_cores(void **state)
{
    (void)state;
    cores("1", JOB_CORES_COUNT, 1, 1, 0, 0);
    cores("1-3", JOB_CORES_COUNT, 1, 3, 0, 0);
    cores("1024", JOB_CORES_COUNT, 1024, 1024, 0, 0);
    cores("share=5%", JOB_CORES_SHARE, 0, 0, 5, 0);
    cores("share=50%", JOB_CORES_SHARE, 0, 0, 50, 0);
    cores("list=7", JOB_CORES_LIST, 0, 0, 0, 7);
    cores("list=7,64-127,3", JOB_CORES_LIST, 0, 0, 0, 127);
}

static void test_what_is_no_number_of_cores(void **state)
{
    static const char *const none[] = {"0", "-1", "1-", "3-1", "1.5", "1025", "one", "1-3-5", "99999999999", "list=", "list=1,", "list=3-1", "list=a", "share=0%", "share=51%", "share=5", "share=%", "=", "many=1"};
    char line[100];

    (void)state;
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        snprintf(line, sizeof line, "#FP cores %s\n", none[i]);
        jf_read(&x, line);
        if (x.f.errors != 1 || x.d.cores.kind != JOB_CORES_NONE)
            fail_msg("%s: %s", none[i], x.text);
        jf_end(&x);
    }
    jf_bad("#FP cores 7,15\n", 1, 11, "list=7,15");
    jf_bad("#FP cores 5%\n", 1, 11, "share=5%");
    jf_bad("#FP cores\n", 1, 5, "how many");
    jf_bad("#FP cores 1 2\n", 1, 13, "one word is enough");
    jf_bad("#FP cores lst=1\n", 1, 11, "did you mean 'list'?");
}

static void test_auxapps_are_handed_on_as_they_are(void **state)
{
    (void)state;
    jf_good(&x, "#FP auxapp drain to=\"/my project\" every=4\n#FP auxapp ./my.so level=3 nodes=1 required\n#FP auxapp x empty=\"\"\n");
    assert_int_equal(x.d.nauxapps, 3);
    assert_string_equal(x.d.auxapps[0].text, "drain to=\"/my project\" every=4");
    assert_string_equal(x.d.auxapps[0].name, "drain");
    assert_string_equal(x.d.auxapps[1].text, "./my.so level=3 nodes=1 required");
    assert_string_equal(x.d.auxapps[2].text, "x empty=\"\"");
    jf_end(&x);
}

static void test_auxapps_that_cannot_be_handed_on(void **state)
{
    char line[JOB_AUXAPP_BYTES + 100];
    size_t n = 0;

    (void)state;
    jf_bad("#FP auxapp\n", 1, 5, "which");
    jf_bad("#FP auxapp x a='\"'\n", 1, 14, "double quote");
    snprintf(line, sizeof line, "#FP auxapp x a=%0*d\n", (int)JOB_AUXAPP_BYTES, 0);
    jf_bad(line, 1, 12, "more than 1023 bytes");
    for (unsigned i = 0; i <= JOB_AUXAPPS_MAX; i++)
        n += (size_t)snprintf(line + n, sizeof line - n, "#FP auxapp a%u\n", i);
    jf_bad(line, JOB_AUXAPPS_MAX + 1, 5, "more than 16 aux-apps");
}

static void test_stage_lines(void **state)
{
    (void)state;
    jf_good(&x, "#FP stage-in /in/*.h5 /a=b/c to=inputs\n#FP stage-out result/*.h5 on=success\n#FP stage-out log to=/x on=failure timeout=90s\n");
    assert_int_equal(x.d.nin, 1);
    assert_int_equal(x.d.in[0].paths.count, 2);
    assert_string_equal(x.d.in[0].paths.items[1], "/a=b/c");
    assert_string_equal(x.d.in[0].to, "inputs");
    assert_int_equal(x.d.nout, 2);
    assert_int_equal(x.d.out[0].when, JOB_ON_SUCCESS);
    assert_null(x.d.out[0].to);
    assert_int_equal(x.d.out[1].when, JOB_ON_FAILURE);
    assert_int_equal(x.d.out[0].timeout_ms, 3600000);
    assert_int_equal(x.d.out[1].timeout_ms, 90000);
    assert_int_equal(x.d.in[0].timeout_ms, 3600000);
    jf_end(&x);
}

static void test_mistakes_in_stage_lines(void **state)
{
    (void)state;
    jf_bad("#FP stage-in to=x\n", 1, 5, "what");
    jf_bad("#FP stage-in /x on=success\n", 1, 17, "'on' is not understood");
    jf_bad("#FP stage-out x on=sucess\n", 1, 17, "did you mean 'success'?");
    jf_bad("#FP stage-out x to=here\n", 1, 17, "from / on");
    jf_bad("#FP stage-out x timeout=5\n", 1, 17, "unit");
    jf_bad("#FP stage-out x \"\"\n", 1, 17, "empty");
}

static void test_paths_that_no_shell_has_read(void **state)
{
    (void)state;
    jf_good(&x, "#FP store ssd=/a/../b/${USER} mount=$HOME/.m\n#FP stage-in $A/..b/* /x/.y to=a/b\n#FP stage-out ./r/*.h5 /AggregateSSDstore/x ...\n");
    jf_end(&x);
    jf_bad("#FP store ssd=/x/${USER\n", 1, 11, "${ begins no variable");
    jf_bad("#FP store ssd=$\n", 1, 11, "$NAME or ${NAME}");
    jf_bad("#FP store mount=~/m\n", 1, 11, "write $HOME");
    jf_bad("#FP store mount=/a/../m\n", 1, 11, "without . and ..");
    jf_bad("#FP store mount=//\n", 1, 11, "a directory below /");
    for (const char *const *t = (const char *const[]){"/proc", "/sys/fs", "/dev", "/usr", "//usr//local/", "/etc", "/lib64", "/tmp/", "/var/tmp", "/home", "$HOME", "${HOME}/", NULL}; *t; t++) {
        char line[64];

        snprintf(line, sizeof line, "#FP store mount=%s\n", *t);
        jf_bad(line, 1, 11, "which the store would hide" + (strchr(*t, '$') ? 6 : 0));
    }
    jf_good(&x, "#FP store mount=/tmp/mine\n");
    jf_end(&x);
    jf_good(&x, "#FP store mount=/dev/shm/mine\n");
    jf_end(&x);
    jf_good(&x, "#FP store mount=/usrs\n");
    jf_end(&x);
    jf_bad("#FP stage-in ~/in\n", 1, 14, "write $HOME");
    jf_bad("#FP stage-in /a/../in\n", 1, 14, "without . and ..");
    jf_bad("#FP stage-in /a $1/x\n", 1, 17, "begins no variable");
    jf_bad("#FP stage-in /a to=../x\n", 1, 17, "relative to its top");
    jf_bad("#FP stage-in /a to=~\n", 1, 17, "write $HOME");
    jf_bad("#FP stage-out ../x\n", 1, 15, "relative to its top");
    jf_bad("#FP stage-out a/..\n", 1, 15, "relative to its top");
    jf_bad("#FP stage-out r ~/x\n", 1, 17, "write $HOME");
    jf_bad("#FP stage-out r to=/x/..\n", 1, 17, "without . and ..");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_line_is_a_store_with_defaults),
        cmocka_unit_test(test_a_script_without_lines_declares_nothing),
        cmocka_unit_test(test_words_of_a_store),
        cmocka_unit_test(test_mistakes_in_a_store),
        cmocka_unit_test(test_blanks_around_the_equals_sign_are_told),
        cmocka_unit_test(test_each_mistake_is_told),
        cmocka_unit_test(test_what_a_job_has_once),
        cmocka_unit_test(test_unknown_directives),
        cmocka_unit_test(test_forms_of_cores),
        cmocka_unit_test(test_what_is_no_number_of_cores),
        cmocka_unit_test(test_auxapps_are_handed_on_as_they_are),
        cmocka_unit_test(test_auxapps_that_cannot_be_handed_on),
        cmocka_unit_test(test_stage_lines),
        cmocka_unit_test(test_mistakes_in_stage_lines),
        cmocka_unit_test(test_paths_that_no_shell_has_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
