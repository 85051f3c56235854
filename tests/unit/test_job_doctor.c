/* fp-job doctor: what is made of facts that no one machine has, and what nodes say to who asks. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <linux/magic.h>

#include "fp/units.h"
#include "jobscripts/doctor/doctor.h"

#define GOOD                                                                                                                                                  \
    "Configuration data as of 1795448672\nJobAcctGatherType       = jobacct_gather/cgroup\nJobAcctGatherParams     = (null)\nKillWait                = 30 sec\n" \
    "LaunchParameters        = use_interactive_step,enable_nss_slurm\nMpiDefault              = pmix\nProctrackType           = proctrack/cgroup\n"               \
    "PrologFlags             = Alloc,Contain\nSelectType              = select/cons_tres\nSelectTypeParameters    = CR_CORE_MEMORY\nSLURM_VERSION           = 24.11.5\n" \
    "TaskPlugin              = task/cgroup,task/affinity\n\nCgroup Support Configuration:\nConstrainCores          = yes\n"

/* The answer about one parameter, with this line in place of the one of GOOD that sets the same. */
static struct doctor_answer slurm(const char *check, const char *line, const char *plugstack)
{
    char text[4096] = "";
    size_t key = strcspn(line, " =");
    struct doctor_slurm s = {.config = text, .plugstack = plugstack};
    struct doctor_answer a = {.status = DOCTOR_OK};

    for (const char *l = GOOD; *l; l += strcspn(l, "\n") + 1)
        if (!*line || strncmp(l, line, key) != 0 || l[key] != ' ')
            strncat(text, l, strcspn(l, "\n") + 1);
    strcat(text, line);
    for (const struct doctor_slurm_check *c = doctor_slurm_checks; c->name; c++)
        if (strcmp(c->name, check) == 0) {
            c->judge(&s, &a);
            assert_true(a.found[0]);
            assert_int_equal(a.status == DOCTOR_OK, a.change[0] == '\0');
            return a;
        }
    fail_msg("there is no check %s", check);
    return a;
}

static void slurm_is(const char *check, const char *line, enum doctor_status want, const char *change)
{
    struct doctor_answer a = slurm(check, line, NULL);

    if (a.status != want || (change && !strstr(a.change, change)))
        fail_msg("%s with '%s': %d, change '%s'", check, line, a.status, a.change);
}

static void test_a_good_slurm_has_nothing_to_change(void **state)
{
    (void)state;
    for (const struct doctor_slurm_check *c = doctor_slurm_checks; c->name; c++)
        slurm_is(c->name, "", DOCTOR_OK, NULL);
}

static void test_what_slurm_conf_lacks(void **state)
{
    (void)state;
    slurm_is("Slurm", "SLURM_VERSION = 20.02.7", DOCTOR_WRONG, "20.11");
    slurm_is("Slurm", "SLURM_VERSION = 20.11.0", DOCTOR_OK, NULL);
    slurm_is("Slurm", "SLURM_VERSION = unknown", DOCTOR_WRONG, NULL);
    slurm_is("SelectType", "SelectTypeParameters = CR_CPU_Memory,CR_LLN", DOCTOR_WARNING, "CR_Core");
    slurm_is("TaskPlugin", "ConstrainCores = no", DOCTOR_WARNING, "cgroup.conf");
    slurm_is("TaskPlugin", "TaskPlugin = task/affinity", DOCTOR_WARNING, "task/cgroup");
    slurm_is("TaskPlugin", "TaskPlugin = task/none", DOCTOR_WRONG, "slurm.conf: TaskPlugin=");
    slurm_is("TaskPlugin", "TaskPlugin = (null)", DOCTOR_WRONG, "slurm.conf: TaskPlugin=");
    slurm_is("ProctrackType", "ProctrackType = proctrack/linuxproc", DOCTOR_WARNING, "proctrack/cgroup");
    slurm_is("KillWait", "KillWait = 2 sec", DOCTOR_WARNING, "KillWait=30");
    slurm_is("KillWait", "KillWait = 19 sec", DOCTOR_WARNING, "KillWait=30");
    slurm_is("KillWait", "KillWait = 20 sec", DOCTOR_OK, NULL);
    slurm_is("JobAcctGather", "JobAcctGatherParams = OverMemoryKill", DOCTOR_WARNING, "UsePss");
    slurm_is("JobAcctGather", "JobAcctGatherParams = UsePss,OverMemoryKill", DOCTOR_OK, NULL);
    slurm_is("MpiDefault", "MpiDefault = none", DOCTOR_WARNING, "pmix");
    slurm_is("LaunchParameters", "LaunchParameters = (null)", DOCTOR_WARNING, "use_interactive_step");
}

static void test_a_prolog_runs_before_the_first_step(void **state)
{
    (void)state;
    slurm_is("PrologFlags", "PrologFlags = (null)", DOCTOR_OK, NULL);
    slurm_is("PrologFlags", "PrologFlags = (null)\nProlog = /etc/slurm/prolog", DOCTOR_WARNING, "PrologFlags=Alloc");
    slurm_is("PrologFlags", "PrologFlags = NoHold\nProlog[0] = /etc/slurm/prolog.d/a", DOCTOR_WARNING, "PrologFlags=Alloc");
    slurm_is("PrologFlags", "PrologFlags = Contain\nProlog = /etc/slurm/prolog", DOCTOR_OK, NULL);
}

static void test_cores_outside_of_a_job_need_an_early_prolog(void **state)
{
    static const char plugin[] = "optional /usr/lib/spank_fp.so\n";
    struct doctor_answer a;

    (void)state;
    slurm_is("CoreSpec", "PrologFlags = (null)\nAllowSpecResourcesUsage = Yes", DOCTOR_OK, NULL);
    a = slurm("CoreSpec", "PrologFlags = NoHold\nAllowSpecResourcesUsage = Yes", plugin);
    assert_int_equal(a.status, DOCTOR_WARNING);
    assert_non_null(strstr(a.change, "PrologFlags=Alloc, beside"));
    a = slurm("CoreSpec", "PrologFlags = Contain,NoHold\nAllowSpecResourcesUsage = Yes", plugin);
    assert_int_equal(a.status, DOCTOR_OK);
    a = slurm("CoreSpec", "PrologFlags = NoHold\nAllowSpecResourcesUsage = No", plugin);
    assert_int_equal(a.status, DOCTOR_OK);
}

static void test_the_plugin_is_found_where_it_counts(void **state)
{
    (void)state;
    assert_non_null(strstr(slurm("PlugStackConfig", "PlugStackConfig = /p", NULL).found, "can't be read"));
    assert_non_null(strstr(slurm("PlugStackConfig", "PlugStackConfig = /p", "# required spank_fp.so\nrequired other.so\n").found, "without"));
    assert_non_null(strstr(slurm("PlugStackConfig", "PlugStackConfig = /p", "required other.so\noptional /usr/lib/spank_fp.so # ours\n").found, "with spank_fp.so"));
}

static void test_a_slurm_that_is_not_there(void **state)
{
    (void)state;
    for (const int *rc = (const int[]){-ENOENT, -ETIMEDOUT, 1, 0}; *rc; rc++) {
        struct doctor_slurm s = {.rc = *rc, .config = ""};
        struct doctor_answer a = {.status = DOCTOR_OK};

        doctor_slurm_checks[0].judge(&s, &a);
        assert_int_equal(a.status, *rc == -ENOENT ? DOCTOR_WARNING : DOCTOR_WRONG);
        assert_true(strstr(a.found, *rc == -ENOENT ? "not in PATH" : *rc == 1 ? "fails" : "does not answer") && a.change[0]);
    }
}

static void test_words_of_lists(void **state)
{
    (void)state;
    assert_true(doctor_listed("Alloc,Contain", "contain"));
    assert_true(doctor_listed("a, b=3", "b"));
    assert_false(doctor_listed("Allocate", "Alloc"));
    assert_false(doctor_listed("NoAlloc", "Alloc"));
    assert_false(doctor_listed("", "Alloc"));
}

/* ---------------------------------------------------------------- nodes */

static struct doctor_node good(void)
{
    return (struct doctor_node){.kernel = "6.12.38-amd64", .helper = "/usr/bin/fusermount3", .helper_root = true, .fuse_minor = 41, .mountpoint = "/AggregateSSDstore",
                                .ssd = "/ssd", .ssd_magic = XFS_SUPER_MAGIC, .ssd_free_bytes = FP_GIB(900), .cgroup_v2 = true, .cores = 64, .cpus = 128, .cpus_machine = 128,
                                .service = "63,127", .nofile = 131072, .memlock = UINT64_MAX, .nproc = 4096, .first = "n1", .version = "0.1.0", .clock_known = true, .asked_version = "0.1.0"};
}

static struct doctor_answer node(const struct doctor_node_check *table, const char *check, const struct doctor_node *n)
{
    struct doctor_answer a = {.status = DOCTOR_OK};

    for (const struct doctor_node_check *c = table; c->name; c++)
        if (strcmp(c->name, check) == 0) {
            c->judge(n, &a);
            assert_true(a.found[0]);
            assert_int_equal(a.status == DOCTOR_OK, a.change[0] == '\0');
            return a;
        }
    fail_msg("there is no check %s", check);
    return a;
}

static void test_a_good_node_has_nothing_to_change(void **state)
{
    struct doctor_node n = good();

    (void)state;
    for (const struct doctor_node_check *c = doctor_node_checks; c->name; c++)
        assert_int_equal(node(doctor_node_checks, c->name, &n).status, DOCTOR_OK);
    for (const struct doctor_node_check *c = doctor_peer_checks; c->name; c++)
        assert_int_equal(node(doctor_peer_checks, c->name, &n).status, DOCTOR_OK);
}

/* One thing is other than good; this one check says so, as bad as this, and with this word of what to change. Others that say it too are in also. */
#define ONE_IS(what, check, want, word, also)                                                       \
    do {                                                                                            \
        struct doctor_node n_ = good();                                                             \
        what;                                                                                       \
        node_is(&n_, check, want, word, also);                                                      \
    } while (0)

static void node_is(const struct doctor_node *n, const char *check, enum doctor_status want, const char *word, const char *also)
{
    for (const struct doctor_node_check *c = doctor_node_checks; c->name; c++) {
        struct doctor_answer a = node(doctor_node_checks, c->name, n);

        if (strcmp(c->name, check) == 0) {
            if (a.status != want || !strstr(a.change, word))
                fail_msg("%s: %d, change '%s'", check, a.status, a.change);
        } else if (a.status != DOCTOR_OK && !strstr(also, c->name))
            fail_msg("%s, and not %s: %s", c->name, check, a.change);
    }
}

static void test_what_nodes_lack(void **state)
{
    (void)state;
    ONE_IS(strcpy(n_.kernel, "4.18.0-553.el8"), "kernel", DOCTOR_WARNING, "5.4", "");
    ONE_IS(strcpy(n_.kernel, "6.1.0-28-amd64"), "kernel", DOCTOR_WARNING, "wait for each other", "");
    ONE_IS(strcpy(n_.kernel, "6.5.1"), "kernel", DOCTOR_WARNING, "mapped", "");
    ONE_IS((n_.device_rc = -ENOENT, n_.namespace_rc = n_.mount_rc = -EPERM), "fuse", DOCTOR_WRONG, "modules-load.d", "mount");
    ONE_IS((n_.device_rc = -EACCES, n_.namespace_rc = n_.mount_rc = -EPERM), "fuse", DOCTOR_WRONG, "chmod 666", "mount");
    ONE_IS((n_.helper[0] = '\0', n_.namespace_rc = n_.mount_rc = -ENOENT), "fusermount3", DOCTOR_WRONG, "package fuse3", "mount");
    ONE_IS((n_.helper_root = false, n_.namespace_rc = n_.mount_rc = -EPERM), "fusermount3", DOCTOR_WRONG, "chmod u+s", "mount");
    ONE_IS(n_.namespace_rc = n_.mount_rc = -EPERM, "mount", DOCTOR_WRONG, "mount_max", "");
    ONE_IS(n_.namespace_rc = n_.mount_rc = -ETIMEDOUT, "mount", DOCTOR_WRONG, "hangs", "");
    ONE_IS((n_.helper[0] = '\0', n_.mount_rc = -ENOENT), "fusermount3", DOCTOR_WARNING, "fp-enter", "mount");
    ONE_IS((n_.helper_root = false, n_.mount_rc = -EPERM), "fusermount3", DOCTOR_WARNING, "chmod u+s", "mount");
    ONE_IS(n_.mount_rc = -EPERM, "mount", DOCTOR_WARNING, "fp-enter", "");
    ONE_IS(n_.mount_rc = -ETIMEDOUT, "mount", DOCTOR_WARNING, "hangs", "");
    ONE_IS((n_.namespace_rc = -EPERM, strcpy(n_.namespace_why, "no user namespace")), "mount", DOCTOR_OK, "", "");
    ONE_IS(n_.mountpoint_rc = -ENOENT, "mountpoint", DOCTOR_WARNING, "mkdir -p /AggregateSSDstore", "");
    ONE_IS((n_.mountpoint_taken = true, n_.mountpoint_rc = -EACCES), "mountpoint", DOCTOR_OK, "", "");
    ONE_IS((n_.mountpoint_taken = true, n_.mountpoint_rc = -ENOTCONN), "mountpoint", DOCTOR_WRONG, "fusermount3 -u /AggregateSSDstore", "");
    ONE_IS(n_.mountpoint_rc = -EACCES, "mountpoint", DOCTOR_WARNING, "chmod 777", "");
    ONE_IS((strcpy(n_.ssd, "TMPDIR"), n_.ssd_unset = true, n_.ssd_rc = -ENOENT), "ssd", DOCTOR_WRONG, "export TMPDIR=", "");
    ONE_IS(n_.ssd_rc = -EACCES, "ssd", DOCTOR_WRONG, "chmod 1777", "");
    ONE_IS(n_.ssd_rc = -ENOSPC, "ssd", DOCTOR_WRONG, "remove", "");
    ONE_IS(n_.ssd_free_bytes = FP_MIB(63), "ssd", DOCTOR_WRONG, "64 MiB", "");
    ONE_IS(n_.ssd_magic = NFS_SUPER_MAGIC, "ssd", DOCTOR_WRONG, "--ssd=", "");
    ONE_IS((n_.ssd_magic = TMPFS_MAGIC, n_.direct_rc = -EINVAL), "ssd", DOCTOR_WARNING, "restarts or loses power", "");
    ONE_IS(n_.direct_rc = -EINVAL, "direct-io", DOCTOR_WARNING, "ext4 or xfs", "");
    ONE_IS(n_.cgroup_v2 = false, "cgroups", DOCTOR_WARNING, "/sys/fs/cgroup", "");
    ONE_IS((n_.cores = 1, n_.cpus = 2), "cores", DOCTOR_WARNING, "two cores", "");
    ONE_IS(n_.cpus = 0, "cores", DOCTOR_WRONG, "/sys/devices", "");
    ONE_IS(n_.nofile = 1024, "nofile", DOCTOR_WARNING, "LimitNOFILE", "");
    ONE_IS(n_.memlock = 0, "memlock", DOCTOR_WARNING, "LimitMEMLOCK", "");
    ONE_IS(n_.nproc = 500, "nproc", DOCTOR_WARNING, "limits.conf", "");
    ONE_IS(n_.first_rc = 2, "names", DOCTOR_WRONG, "/etc/hosts", "");
}

static void test_what_only_who_asks_can_see(void **state)
{
    struct doctor_node n = good();

    (void)state;
    n.clock_off_ms = -999;
    assert_int_equal(node(doctor_peer_checks, "clock", &n).status, DOCTOR_OK);
    n.clock_off_ms = -61000;
    assert_string_equal(node(doctor_peer_checks, "clock", &n).found, "1 min 1 s behind at least");
    n.clock_off_ms = 1000;
    assert_string_equal(node(doctor_peer_checks, "clock", &n).found, "1 s ahead at least");
    assert_int_equal(node(doctor_peer_checks, "clock", &n).status, DOCTOR_WARNING);
    strcpy(n.version, "0.0.9");
    assert_int_equal(node(doctor_peer_checks, "version", &n).status, DOCTOR_WRONG);
}

static void test_free_space_of_like_nodes_is_the_same_text(void **state)
{
    struct doctor_node n = good();
    struct doctor_answer a, b;

    (void)state;
    a = node(doctor_node_checks, "ssd", &n);
    n.ssd_free_bytes -= FP_MIB(777);
    b = node(doctor_node_checks, "ssd", &n);
    assert_string_equal(a.found, "/ssd: xfs, more than 512 GiB free");
    assert_string_equal(a.found, b.found);
}

/* ---------------------------------------------------------------- report */

static void test_nodes_that_say_the_same_are_one_line(void **state)
{
    struct doctor_report r = {0};
    struct doctor_answer ok = {.found = "fine"}, bad = {.status = DOCTOR_WRONG, .found = "gone", .change = "bring it back"};
    char name[16];

    (void)state;
    doctor_report_add(&r, "Slurm", &ok, NULL);
    for (int i = 12; i > 0; i--) {
        snprintf(name, sizeof name, "n%d", i);
        doctor_report_add(&r, "fuse", i == 3 || i == 7 ? &bad : &ok, name);
        doctor_report_add(&r, "mount", &ok, name);
    }
    doctor_report_sort(&r);
    assert_int_equal(r.n, 4);
    assert_int_equal(r.wrong, 1);
    assert_int_equal(r.warnings, 0);
    assert_int_equal(r.lines[0].nnodes, 0);
    assert_string_equal(r.lines[1].check, "fuse");
    assert_int_equal(r.lines[1].nnodes, 10);
    assert_string_equal(r.lines[1].nodes[1], "n2");
    assert_string_equal(r.lines[1].nodes[9], "n12");
    assert_string_equal(r.lines[2].check, "fuse");
    assert_int_equal(r.lines[2].nnodes, 2);
    assert_string_equal(r.lines[2].nodes[0], "n3");
    assert_string_equal(r.lines[3].check, "mount");
    doctor_report_fini(&r);
}

/* What is printed, in a file: the functions that say it write to standard output. */
static char *printed(void (*say)(void))
{
    static char text[8192];
    FILE *f = tmpfile();
    int before = dup(STDOUT_FILENO);
    size_t n;

    assert_non_null(f);
    fflush(stdout);
    assert_true(dup2(fileno(f), STDOUT_FILENO) >= 0);
    say();
    fflush(stdout);
    assert_true(dup2(before, STDOUT_FILENO) >= 0);
    close(before);
    rewind(f);
    n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    fclose(f);
    return text;
}

static void say_some(void)
{
    struct doctor_answer a = {.status = DOCTOR_OK};

    doctor_found(&a, "%s", "a \"name\" with \\ and \x01 and \xc3\xa4");
    doctor_warn(&a, "%0300d", 7);
    doctor_say("n1", "ssd", &a);
    doctor_say_end("n1", "0.1.0", 1795448672123, 1);
}

static void test_a_node_is_heard_as_it_has_spoken(void **state)
{
    char *text = printed(say_some);
    struct doctor_said s;

    (void)state;
    assert_true(strcspn(text, "\n") < 1000);
    assert_true(doctor_hear(text, &s));
    assert_string_equal(s.node, "n1");
    assert_string_equal(s.check, "ssd");
    assert_int_equal(s.answer.status, DOCTOR_WARNING);
    assert_string_equal(s.answer.found, "a \"name\" with \\ and ? and ??");
    assert_int_equal(strlen(s.answer.change), DOCTOR_TEXT_BYTES - 1);
    assert_true(doctor_hear(strchr(text, '\n') + 1, &s));
    assert_null(s.check);
    assert_string_equal(s.version, "0.1.0");
    assert_int_equal(s.clock_ms, 1795448672123);
    assert_int_equal(s.lines, 1);
}

static void test_what_is_no_answer_is_not_heard(void **state)
{
    struct doctor_said s;

    (void)state;
    for (const char *const *t = (const char *const[]){"", "\n", "srun: error", "{", "{}", "[]", "3", "{\"node\":\"n1\"}", "{\"node\":3,\"version\":\"1\",\"clock\":1}", "{\"node\":\"n1\",\"version\":\"1\"}",
                                                    "{\"node\":\"n1\",\"check\":\"none\",\"status\":\"ok\",\"found\":\"\",\"change\":\"\"}",
                                                    "{\"node\":\"n1\",\"check\":\"ssd\",\"status\":\"fine\",\"found\":\"\",\"change\":\"\"}", "{\"node\":\"n1\",\"check\":\"ssd\",\"status\":\"ok\"}", NULL};
         *t; t++)
        if (doctor_hear(*t, &s))
            fail_msg("'%s' was taken for an answer", *t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_good_slurm_has_nothing_to_change),
        cmocka_unit_test(test_what_slurm_conf_lacks),
        cmocka_unit_test(test_a_prolog_runs_before_the_first_step),
        cmocka_unit_test(test_cores_outside_of_a_job_need_an_early_prolog),
        cmocka_unit_test(test_the_plugin_is_found_where_it_counts),
        cmocka_unit_test(test_a_slurm_that_is_not_there),
        cmocka_unit_test(test_words_of_lists),
        cmocka_unit_test(test_a_good_node_has_nothing_to_change),
        cmocka_unit_test(test_what_nodes_lack),
        cmocka_unit_test(test_what_only_who_asks_can_see),
        cmocka_unit_test(test_free_space_of_like_nodes_is_the_same_text),
        cmocka_unit_test(test_nodes_that_say_the_same_are_one_line),
        cmocka_unit_test(test_a_node_is_heard_as_it_has_spoken),
        cmocka_unit_test(test_what_is_no_answer_is_not_heard),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
