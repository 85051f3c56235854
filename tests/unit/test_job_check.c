/* What is known of a job before it is queued: plugins (real ones, loaded), their order, the nodes, directories. */
#include "tests/unit/job_fixture.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fp/auxapp.h"
#include "fp/clock.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/script/auxcheck.h"
#include "jobscripts/script/drainwords.h"
#include "fp/command.h"

static char plugins[4096], probes[4096], dir[] = "/tmp/test_job_check.XXXXXX";
static struct job_site site;

/* The build folder is above the test program. */
static void find_plugins(void)
{
    char self[4000];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

    assert_true(n > 0);
    self[n] = '\0';
    for (int up = 0; up < 3; up++)
        *strrchr(self, '/') = '\0';
    snprintf(plugins, sizeof plugins, "%s/lib/auxapps", self);
    snprintf(probes, sizeof probes, "%s/tests/plugins", self);
    assert_int_equal(access(plugins, R_OK), 0);
    assert_int_equal(access(probes, R_OK), 0);
}

static int setup(void **state)
{
    (void)state;
    find_plugins();
    assert_non_null(mkdtemp(dir));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return rmdir(dir);
}

static void check(struct jf *x, const char *script)
{
    jf_read(x, script);
    site.plugin_dir = plugins;
    job_check(&x->d, &site, &x->f);
    jf_tell(x);
}

static void is_good(const char *script)
{
    struct jf x;

    check(&x, script);
    if (x.text[0])
        fail_msg("%s", x.text);
    jf_end(&x);
}

static void is_bad(const char *script, unsigned line, unsigned column, const char *part)
{
    struct jf x;

    check(&x, script);
    jf_one(&x, line, column, part);
    jf_end(&x);
}

/* By what variables stand for, too. */
static void test_a_mountpoint_that_is_needed(void **state)
{
    char *before = getenv("HOME") ? strdup(getenv("HOME")) : NULL;

    (void)state;
    setenv("HOME", "/h/me/", 1);
    setenv("FP_TEST_DIR", "/usr", 1);
    is_bad("#FP store mount=/h//me\n", 1, 17, "your home directory");
    is_good("#FP store mount=/h/me/store\n");
    is_bad("#FP store mount=$FP_TEST_DIR/lib\n", 1, 17, "/usr/lib: the system needs");
    unsetenv("FP_TEST_DIR");
    is_good("#FP store mount=$FP_TEST_DIR/lib\n");
    if (before)
        setenv("HOME", before, 1);
    free(before);
}

/* Neither the user's plugins nor his files are touched; mistakes in words are found all the same. */
static void test_words_alone(void **state)
{
    (void)state;
    site.words = true;
    is_good("#FP auxapp ./mine.so level=3\n#FP auxapp drain to=/no/such/place\n#FP stage-in /no/other/file\n#FP stage-out x to=/no/such/place\n");
    is_bad("#FP auxapp dedup hash=sha9\n", 1, 18, "did you mean 'sha1'?");
    is_bad("#FP stage-in in/*.h5\n", 1, 14, "write the whole path");
    is_bad("#FP stage-out x\n", 1, 5, "where to");
    site.words = false;
    is_bad("#FP auxapp drain to=/no/such/place\n", 1, 21, "no such directory");
}

static void test_plugins_say_what_is_wrong_with_their_words(void **state)
{
    (void)state;
    is_good("#FP auxapp dedup hash=sha1 cores=1\n#FP auxapp checksum\n");
    is_bad("#FP auxapp dedup cores=1 hash=sha9\n", 1, 26, "did you mean 'sha1'?");
    is_bad("#FP auxapp dedup hash=sha1 hsah=1\n", 1, 28, "did you mean 'hash'?");
    is_bad("#FP auxapp dedup requird\n", 1, 18, "requird");
    is_bad("#FP auxapp dedupe\n", 1, 12, "did you mean 'dedup'?");
    is_bad("#FP auxapp ./no/such.so\n", 1, 12, "No such file");
    is_bad("#FP auxapp /bin/true\n", 1, 12, "/bin/true");
}

static void test_what_hides_data_comes_last(void **state)
{
    (void)state;
    is_bad("#FP auxapp encrypt\n#FP auxapp dedup\n", 2, 12, "encrypt (line 1)");
    is_bad("#FP auxapp encrypt\n#FP auxapp checksum\n#FP auxapp compress\n", 3, 12, "nothing to do");
    is_good("#FP auxapp dedup\n#FP auxapp compress\n#FP auxapp encrypt\n#FP auxapp checksum\n");
}

static void test_what_a_plugin_does_while_it_is_loaded_harms_nobody(void **state)
{
    struct job_auxanswer a;
    char why[JOB_AUX_WHY_BYTES];
    uint64_t began;

    (void)state;
    assert_int_equal(job_auxcheck("stillborn", probes, 10000, &a, why), -ELIBBAD);
    assert_non_null(strstr(why, "crashed"));
    assert_int_equal(job_auxcheck("leaving", probes, 10000, &a, why), -ELIBBAD);
    assert_non_null(strstr(why, "exit code 0"));
    began = fp_now_ms();
    assert_int_equal(job_auxcheck("sleeping", probes, 300, &a, why), -ETIMEDOUT);
    assert_true(fp_now_ms() - began < 5000);
    assert_non_null(strstr(why, "hangs"));
}

static void test_what_a_plugin_says_of_itself(void **state)
{
    struct job_auxanswer a;
    char why[JOB_AUX_WHY_BYTES];

    (void)state;
    assert_int_equal(job_auxcheck("encrypt nodes=3 cores=2-4", plugins, 10000, &a, why), 0);
    assert_string_equal(a.name, "encrypt");
    assert_true(a.flags & FP_AUX_HIDES);
    assert_int_equal(a.nodes, 3);
    assert_int_equal(a.cores_min, 2);
    assert_true(a.sees_chunks);
}

static void test_an_auxapp_on_some_of_the_nodes(void **state)
{
    struct job_auxanswer a = {.nodes = 2};
    char line[5000];

    (void)state;
    for (uint32_t rank = 0; rank < 5; rank++)
        assert_int_equal(job_aux_runs_on(&a, rank, 5), rank >= 3);
    assert_true(job_aux_runs_on(&a, 0, 2));
    assert_true(job_aux_runs_on(&a, 0, 1));
    a.nodes = 0;
    assert_true(job_aux_runs_on(&a, 0, 5));
    site.nodes = 4;
    is_good("#FP auxapp compress nodes=1\n");
    is_bad("#FP auxapp compress nodes=1 required\n", 1, 21, "on 1 of 4 nodes, but it is required");
    is_good("#FP auxapp compress nodes=4 required\n");
    is_bad("#FP auxapp encrypt nodes=3\n", 1, 20, "it is required"); /* as it says itself */
    snprintf(line, sizeof line, "#FP auxapp %s/compress.so nodes=1\n", plugins);
    is_bad(line, 1, (unsigned)(strstr(line, "nodes=") - line) + 1, "it changes data");
    snprintf(line, sizeof line, "#FP auxapp %s/checksum.so nodes=1\n", plugins);
    is_good(line);
    memset(&site, 0, sizeof site);
}

static void test_more_than_the_job_has(void **state)
{
    (void)state;
    site.nodes = 2;
    site.cores = 8;
    site.cpus = 16;
    is_bad("#FP auxapp dedup nodes=3\n", 1, 18, "the job has 2");
    is_good("#FP auxapp dedup nodes=2\n");
    is_bad("#FP cores 1\n#FP auxapp dedup cores=2\n", 2, 18, "#FP cores (line 1) gives 1");
    is_good("#FP cores 1-2\n#FP auxapp dedup cores=2\n");
    is_bad("#FP cores 8\n", 1, 11, "leave none for the application: a node of the job has 8");
    is_good("#FP cores 7\n");
    is_good("#FP cores 1-8\n");
    is_bad("#FP cores list=15-16\n", 1, 11, "there is no CPU 16: a node of the job has 0 to 15");
    is_good("#FP cores list=0,15\n"); /* the second hardware thread of the last core */
    memset(&site, 0, sizeof site);
    is_good("#FP auxapp dedup nodes=3\n#FP cores 1000\n");
}

/* Slurm counts service cores as the job's, which has fewer for its tasks. */
static void test_tasks_of_a_node(void **state)
{
    struct job_sbatch s = {.node_tasks = 4, .task_cpus = 2, .node_tasks_at = {2, 27}, .task_cpus_at = {3, 25}};
    struct jf x;

    (void)state;
    site = (struct job_site){.nodes = 2, .cores = 8, .cpus = 16, .most_cpus = 16, .sbatch = &s};
    is_good("#FP cores 1\n");
    s.node_tasks = 8;
    is_bad("#FP cores 1\n", 2, 27, "8 tasks with 2 CPUs each on a node: beside the service cores it has 14 CPUs");
    is_good("#FP store\n");
    s.node_tasks = 9;
    is_bad("#FP store\n", 2, 27, "no node of the job has more than 16");
    s.overcommit = true;
    is_good("#FP store\n");
    s.overcommit = false;
    s.task_cpus = 17;
    is_bad("#FP store\n", 3, 25, "17 CPUs for a task: no node of the job has more than 16");
    site.cores_are_here = true;
    check(&x, "#FP store\n");
    jf_one(&x, 3, 25, "this machine has 16");
    assert_int_equal(x.f.errors, 0);
    jf_end(&x);
    memset(&site, 0, sizeof site);
}

static void test_cores_of_this_machine_are_a_warning_alone(void **state)
{
    struct jf x;

    (void)state;
    site.cores = 2;
    site.cores_are_here = true;
    check(&x, "#FP cores 2\n");
    jf_one(&x, 1, 11, "this machine has 2");
    assert_int_equal(x.f.errors, 0);
    jf_end(&x);
    memset(&site, 0, sizeof site);
}

static void test_targets_that_are_not_there(void **state)
{
    char line[500];

    (void)state;
    is_bad("#FP auxapp drain every=2\n", 1, 12, "does not say where to");
    is_bad("#FP auxapp drain to=/no/such/place every=2\n", 1, 21, "nor the one above it");
    is_bad("#FP auxapp drain to=/etc/passwd\n", 1, 21, "is no directory");
    is_bad("#FP auxapp drain to=/etc/passwd/x\n", 1, 21, "Not a directory");
    snprintf(line, sizeof line, "#FP auxapp drain to=%s\n", dir);
    is_good(line);
    snprintf(line, sizeof line, "#FP auxapp drain to=%s/new\n", dir);
    is_bad(line, 1, 21, "is not there yet");
    snprintf(line, sizeof line, "#FP auxapp drain to=%s/new//\n", dir);
    is_bad(line, 1, 21, "is not there yet");
    is_good("#FP auxapp drain to=\"$PROJECT/x\"\n");
    is_bad("#FP stage-out x to=/no/such/place\n", 1, 20, "nor the one above it");
    is_bad("#FP stage-out x\n", 1, 5, "where to");
    snprintf(line, sizeof line, "#FP auxapp drain to=%s\n#FP stage-out x\n", dir);
    is_good(line);
}

/* By the parser that reads them at the start: what other aux-apps may have, or the plugin would take, is none of a policy. */
static void test_words_of_a_policy(void **state)
{
    static const struct {
        const char *words;
        unsigned column;
        const char *part;
    } bad[] = {
        {"evry=4", 35, "did you mean 'every'?"},
        {"every=4 keep=0", 43, "from 1 to 1000"},
        {"keep=2 keep=3", 42, "'keep' is given twice"},
        {"every", 35, "every=VALUE"},
        {"every=$N", 35, "every=$N: give a number"},
        {"pattern=run/*", 35, "write {step}"},
        {"layout=log verify=on", 46, "not for layout=log"},
        {"level=verified", 35, "without verify=on"},
        {"every=none", 35, "without results= or all=yes"},
        {"nodes=2", 35, "no word 'nodes'"},
        {"required", 35, "no word 'required'"},
        {"max=1B/s", 35, "the least is 100kB/s"},
    };
    char line[600];
    struct jf x;

    (void)state;
    site.words = true;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(line, sizeof line, "#FP auxapp drain to=/lustre/proj1 %s\n", bad[i].words);
        is_bad(line, 1, bad[i].column, bad[i].part);
    }
    is_bad("#FP auxapp drain to=/ every=2\n", 1, 18, "a directory below / is needed");
    is_bad("#FP auxapp drain to=/a/../b\n", 1, 18, "without . and ..");
    check(&x, "#FP auxapp drain to=/x evry=4 keep=0 layout=fil\n"); /* all of them at once */
    assert_int_equal(x.f.n, 3);
    jf_end(&x);
    is_bad("#FP auxapp drain to=/x/${A\n", 1, 18, "${ begins no variable");
    is_bad("#FP auxapp ${HOME/x.so\n", 1, 12, "${ begins no variable");
    is_good("#FP auxapp drain to=${SCRATCH}/x pattern=$USER/chk_{step}/* results=$A,b marker=$M every=auto\n");
    site.words = false;
}

/* What a variable stands for may have blanks, also where none was written. */
static void test_what_the_store_is_told_to_drain(void **state)
{
    char text[FP_DRAIN_TEXT_MAX];
    struct jf x;

    (void)state;
    setenv("FP_TEST_DIR", "/my project", 1);
    jf_good(&x, "#FP auxapp drain to=$FP_TEST_DIR/x every=4 'results=out dir/*' marker=''\n");
    assert_int_equal(job_drain_words(job_declared_drain(&x.d)->line, job_expand, text), 0);
    assert_string_equal(text, "to=\"/my project/x\" every=4 \"results=out dir/*\" marker=\"\"");
    setenv("FP_TEST_DIR", "/a\"b", 1);
    assert_int_equal(job_drain_words(job_declared_drain(&x.d)->line, job_expand, text), -EINVAL);
    unsetenv("FP_TEST_DIR");
    assert_int_equal(job_drain_words(job_declared_drain(&x.d)->line, job_expand, text), -ENOENT);
    assert_string_equal(text, "FP_TEST_DIR");
    jf_end(&x);
}

/* The store takes no target that lies in another; it would hear of the second one of these when the application has ended. */
static void test_targets_that_lie_one_in_the_other(void **state)
{
    char line[900], in[600];

    (void)state;
    site.words = true;
    is_bad("#FP auxapp drain to=/lustre/run\n#FP stage-out r to=/lustre//run/res/\n", 2, 20, "/lustre/run/res and /lustre/run (line 1) lie one in the other");
    is_bad("#FP stage-out r to=/lustre/run/res\n#FP stage-out r to=/lustre/run\n", 2, 20, "(line 1)");
    is_bad("#FP auxapp drain to=$A\n#FP stage-out r to=$A/res\n", 2, 20, "(line 1)");
    is_good("#FP auxapp drain to=/lustre/run\n#FP stage-out r to=/lustre/run/\n#FP stage-out r to=/lustre/run2\n");
    is_bad("#FP stage-in /lustre/a\n#FP auxapp drain to=/lustre/run\n", 1, 14, "(line 2)"); /* of which the store hears first */
    is_good("#FP stage-in /lustre/a /lustre/b/c*\n"); /* whether the user could write there is not looked at */
    site.words = false;
    snprintf(in, sizeof in, "%s/in", dir);
    assert_int_equal(mkdir(in, 0700), 0);
    snprintf(line, sizeof line, "#FP stage-in %s/x* optional=on\n#FP stage-out r to=%s/in\n", dir, dir);
    is_bad(line, 2, 20, "(line 1) lie one in the other");
    snprintf(line, sizeof line, "#FP stage-in %s/in/x* optional=on\n#FP stage-out r to=%s/in\n", dir, dir);
    is_good(line);
    if (geteuid() != 0) { /* who may write everywhere */
        assert_int_equal(chmod(dir, 0500), 0);
        snprintf(line, sizeof line, "#FP stage-in %s/x* optional=on\n#FP stage-out r to=%s/in\n", dir, dir);
        is_good(line);
        assert_int_equal(chmod(dir, 0700), 0);
    }
    assert_int_equal(rmdir(in), 0);
}

static void test_what_is_to_be_staged_in(void **state)
{
    (void)state;
    is_good("#FP stage-in /etc/pass* $SCRATCH/x\n");
    is_bad("#FP stage-in /etc/passwd /etc/no-such-*\n", 1, 26, "there is no /etc/no-such-*");
    is_bad("#FP stage-in in.h5\n", 1, 14, "from / on");
}

/* The store would have the first alone, and nothing would say so. */
static void test_what_would_have_one_name_in_the_store(void **state)
{
    (void)state;
    site.words = true;
    is_bad("#FP stage-in /lustre/p/x /lustre/q/x\n", 1, 26, "/lustre/p/x and /lustre/q/x would have the same name");
    is_bad("#FP stage-in /lustre/p/x to=in\n#FP stage-in $A//x/ to=in/\n", 2, 14, "have the same name");
    is_bad("#FP stage-in /lustre/p/x to=in\n#FP stage-in /lustre/x to=./in\n", 2, 14, "have the same name");
    is_bad("#FP stage-in /lustre/in /lustre/q/x\n#FP stage-in /lustre/x\n", 2, 14, "have the same name");
    is_bad("#FP stage-in /lustre/x /lustre//x\n", 1, 24, "named twice");
    is_bad("#FP stage-in /lustre/a/* /lustre/b/* /lustre/b/*\n", 1, 38, "named twice");
    is_bad("#FP stage-in $A $B $A\n", 1, 20, "named twice");
    is_good("#FP stage-in /lustre/p/x to=p\n#FP stage-in /lustre/q/x to=q\n#FP stage-in /lustre/x /lustre/a/* /lustre/b/* $A $B/$C /lustre/$C\n");
    site.words = false;
}

static void test_a_script_that_declares_nothing_is_told(void **state)
{
    struct jf x;

    (void)state;
    check(&x, "#!/bin/sh\n");
    assert_int_equal(x.f.n, 1);
    assert_int_equal(x.f.errors, 0);
    jf_end(&x);
}

static void test_a_store_that_outlives_the_job_needs_a_place_that_does(void **state)
{
    struct jf x;

    (void)state;
    is_good("#FP store persistent=a ssd=/local/$USER\n");
    is_good("#FP store on-failure=keep ssd=/local/$USER\n");
    is_bad("#FP store on-failure=keep ssd=/local backend=memory\n", 1, 46, "on-failure= needs backend=dir");
    is_bad("#FP store persistent=a ssd=/local backend=memory\n", 1, 43, "persistent= needs backend=dir");
    check(&x, "#FP store persistent=a\n");
    jf_one(&x, 1, 22, "many sites remove $TMPDIR");
    assert_int_equal(x.f.errors, 0);
    jf_end(&x);
}

static void test_commands_end_in_time(void **state)
{
    char out[64];
    char *const hello[] = {"sh", "-c", "printf 'a\\nb'; exit 3", NULL}, *const sleeps[] = {"sh", "-c", "echo x; sleep 100 & sleep 100", NULL},
               *const none[] = {"no-such-program-of-ours", NULL}, *const much[] = {"sh", "-c", "seq 100000", NULL}, *const killed[] = {"sh", "-c", "kill -9 $$", NULL},
               *const silent[] = {"sh", "-c", "echo y; exec >&-; sleep 100", NULL};
    uint64_t began = fp_now_ms();

    (void)state;
    assert_int_equal(fp_command(hello, 10000, out, sizeof out), 3);
    assert_string_equal(out, "a\nb");
    assert_int_equal(fp_command(none, 10000, out, sizeof out), -ENOENT);
    assert_int_equal(fp_command(much, 10000, out, sizeof out), 0);
    assert_int_equal(strlen(out), sizeof out - 1);
    assert_int_equal(fp_command(killed, 10000, out, sizeof out), -EINTR);
    assert_int_equal(fp_command(sleeps, 300, out, sizeof out), -ETIMEDOUT);
    assert_string_equal(out, "x\n");
    assert_int_equal(fp_command(silent, 300, out, sizeof out), -ETIMEDOUT); /* it has closed its output, and goes on */
    assert_string_equal(out, "y\n");
    assert_int_equal(fp_command_shown(silent, 300), -ETIMEDOUT);
    assert_true(fp_now_ms() - began < 30000);
}

/* As of fpctl, which names each file of a checkpoint: what is cut would be read as something else. */
static void test_what_a_command_prints_is_had_whole_or_not_at_all(void **state)
{
    char *const much[] = {"sh", "-c", "seq 100000", NULL}, *const none[] = {"sh", "-c", "exit 4", NULL}, *text;

    (void)state;
    assert_int_equal(fp_command_long(much, 20000, 1 << 20, &text), 0);
    assert_int_equal(strlen(text), 588895);
    assert_string_equal(text + strlen(text) - 7, "100000\n");
    free(text);
    assert_int_equal(fp_command_long(much, 20000, 588895, &text), 0);
    free(text);
    assert_int_equal(fp_command_long(much, 20000, 588894, &text), -E2BIG);
    free(text);
    assert_int_equal(fp_command_long(much, 20000, 10, &text), -E2BIG);
    free(text);
    assert_int_equal(fp_command_long(none, 20000, 10, &text), 4);
    assert_string_equal(text, "");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_mountpoint_that_is_needed),
        cmocka_unit_test(test_words_alone),
        cmocka_unit_test(test_plugins_say_what_is_wrong_with_their_words),
        cmocka_unit_test(test_what_hides_data_comes_last),
        cmocka_unit_test(test_what_a_plugin_does_while_it_is_loaded_harms_nobody),
        cmocka_unit_test(test_what_a_plugin_says_of_itself),
        cmocka_unit_test(test_an_auxapp_on_some_of_the_nodes),
        cmocka_unit_test(test_more_than_the_job_has),
        cmocka_unit_test(test_tasks_of_a_node),
        cmocka_unit_test(test_cores_of_this_machine_are_a_warning_alone),
        cmocka_unit_test(test_targets_that_are_not_there),
        cmocka_unit_test(test_words_of_a_policy),
        cmocka_unit_test(test_what_the_store_is_told_to_drain),
        cmocka_unit_test(test_targets_that_lie_one_in_the_other),
        cmocka_unit_test(test_what_is_to_be_staged_in),
        cmocka_unit_test(test_what_would_have_one_name_in_the_store),
        cmocka_unit_test(test_a_script_that_declares_nothing_is_told),
        cmocka_unit_test(test_a_store_that_outlives_the_job_needs_a_place_that_does),
        cmocka_unit_test(test_commands_end_in_time),
        cmocka_unit_test(test_what_a_command_prints_is_had_whole_or_not_at_all),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
