/* Small things that fp-job start and stop know by themselves: times of Slurm, variables in paths, a job's own directory, processes kept to CPUs. */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "fp/log.h"
#include "fp/rmtree.h"
#include "jobscripts/cores/cpus.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/launch/launch.h"
#include "jobscripts/launch/queue.h"
#include "jobscripts/launch/slurm.h"

static void test_times_as_squeue_prints_them(void **state)
{
    (void)state;
    assert_int_equal(job_slurm_time("0:00\n"), 0);
    assert_int_equal(job_slurm_time("0:59"), 59000);
    assert_int_equal(job_slurm_time("12:34\n"), (12 * 60 + 34) * 1000);
    assert_int_equal(job_slurm_time("1:02:03\n"), 3723000);
    assert_int_equal(job_slurm_time("2-00:00:00"), 2 * 86400000);
    assert_int_equal(job_slurm_time("1-02:03:04\n"), (86400 + 7384) * 1000);
    for (const char *const *t = (const char *const[]){"UNLIMITED\n", "INVALID", "NOT_SET", "", "\n", "12", "a:00", "1:-2", "1:2:3:4", "1:", "-1:00", "9999999999:00", "1-", "x-1:00:00", NULL}; *t; t++)
        if (job_slurm_time(*t) != UINT64_MAX)
            fail_msg("'%s' was taken for a time", *t);
}

static void leaves(const char *text, int rc, uint64_t want_ms)
{
    uint64_t ms = 1;

    assert_int_equal(job_slurm_left_of(text, &ms), rc);
    assert_int_equal(ms, want_ms);
}

/* As squeue prints "%L %M %l". */
static void test_a_job_past_its_limit_has_no_time_left(void **state)
{
    (void)state;
    leaves("0:42 0:18 1:00\n", 0, 42000);
    leaves("UNLIMITED 3:00 UNLIMITED\n", 0, UINT64_MAX);
    leaves("INVALID 1:07 1:00\n", 0, 0);
    leaves("INVALID 1-00:00:00 500-00:00:00\n", 0, 499ull * 86400000); /* more than a year is INVALID, too */
    leaves("INVALID INVALID 1:00\n", -ENODATA, UINT64_MAX);
    leaves("INVALID\n", -ENODATA, UINT64_MAX);
    leaves("NOT_SET 0:00 NOT_SET\n", -ENODATA, UINT64_MAX);
    leaves("", -ENODATA, UINT64_MAX);
}

/* A process that is called as slurmstepd calls itself, and a child of it. */
static void test_the_step_that_a_process_is_in(void **state)
{
    char step[JOB_SLURM_STEP_MAX], path[64], text[64] = "";
    int fds[2], child, status;
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        dup2(fds[1], 1);
        execl("/bin/sh", "slurmstepd: [12.5]", "-c", "sleep 60 & echo $!; wait", (char *)NULL);
        _exit(1);
    }
    close(fds[1]);
    assert_true(read(fds[0], text, sizeof text - 1) > 0);
    close(fds[0]);
    child = atoi(text);
    snprintf(path, sizeof path, "/proc/%d", child);
    assert_int_equal(access(path, F_OK), 0);
    job_slurm_step_of(child, step);
    assert_string_equal(step, "5");
    job_slurm_step_of(pid, step);
    assert_string_equal(step, "5");
    job_slurm_step_of(getpid(), step);
    assert_string_equal(step, "");
    kill(child, SIGKILL);
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

static void is_named(const char *job, const char *want)
{
    char out[JOB_SLURM_NAME_MAX];

    job_slurm_name(job, out);
    assert_string_equal(out, want);
}

static void test_a_task_of_an_array_is_named_alone(void **state)
{
    (void)state;
    unsetenv("SLURM_ARRAY_JOB_ID");
    unsetenv("SLURM_ARRAY_TASK_ID");
    is_named("12", "12");
    setenv("SLURM_ARRAY_JOB_ID", "12", 1);
    is_named("12", "12");
    setenv("SLURM_ARRAY_TASK_ID", "3", 1);
    is_named("12", "12_3");
    is_named("13", "13"); /* another task, or a job that was submitted by one */
    unsetenv("SLURM_ARRAY_JOB_ID");
    unsetenv("SLURM_ARRAY_TASK_ID");
}

static int chosen(const char *lines, const char *asked, struct job_queued *out)
{
    char text[1024], why[JOB_QUEUE_WHY_BYTES] = "";
    int rc;

    snprintf(text, sizeof text, "%s", lines);
    rc = job_queue_choose(text, asked, out, why);
    assert_true(!rc == !why[0]);
    return rc;
}

static void test_a_job_is_found_in_what_squeue_prints(void **state)
{
    static const char *const array = "12_3|14|5001|ada|RUNNING|n2|T|n2|None\n12_1|12|5001|ada|COMPLETED|n1|T|n1|None\n12_4|12|5001|ada|PENDING|n/a|N/A||Resources\n";
    struct job_queued q;

    (void)state;
    assert_int_equal(chosen("squeue: warning: be patient\n7|7|5001|ada|RUNNING|n003|2026|n[003-010]|None\n", "7", &q), 0);
    assert_true(q.phase == JOB_RUNS && !q.outside && q.uid == 5001);
    assert_string_equal(q.first, "n003");
    assert_int_equal(chosen("7|7|5001|ada|RUNNING|login|2026|n[003-010]|None\n", "7", &q), 0);
    assert_true(q.phase == JOB_RUNS && q.outside);
    assert_int_equal(chosen("7|7|5001|ada|PENDING|n/a|2026|(null)|Nodes required | are DOWN\n", "7", &q), 0);
    assert_true(q.phase == JOB_WAITS && !q.first[0]);
    assert_string_equal(q.reason, "Nodes required | are DOWN");
    assert_string_equal(q.begin, "2026");
    assert_int_equal(chosen("7|7|5001|ada|NODE_FAIL|n003|2026||None\n", "7", &q), 0);
    assert_true(q.phase == JOB_OVER);
    assert_int_equal(chosen(array, "12", &q), -EINVAL); /* its first task has its number, and is over */
    assert_int_equal(chosen(array, "14", &q), 0);
    assert_string_equal(q.name, "12_3");
    assert_int_equal(chosen(array, "12_4", &q), 0);
    assert_true(q.phase == JOB_WAITS);
    assert_int_equal(chosen("12_1|12|5001|ada|RUNNING|n1|T|n1|None\n12_2|12|5001|ada|PENDING|n/a|N/A||Resources\n", "12", &q), 0); /* $SLURM_JOB_ID of a task */
    assert_string_equal(q.name, "12_1");
    assert_int_equal(chosen("", "7", &q), -ENOENT);
    assert_int_equal(chosen("7|7|5001|ada\n", "7", &q), -ENOENT);
}

/* How the user wants his own steps is nothing to ours, and what says which job this is stays. */
static void test_our_steps_are_not_as_the_user_wants_his(void **state)
{
    static const char *const gone[] = {"SLURM_EXPORT_ENV", "SLURM_THREADS_PER_CORE", "SLURM_MULTI_PROG", "SLURM_GPUS_PER_TASK", "SLURM_CPU_FREQ_REQ", "SLURM_PROLOG", "SLURM_EPILOG", "SLURM_LABELIO",
                                       "SLURM_TASK_PROLOG", "SLURM_CPU_BIND", "SLURM_MEM_PER_NODE", "SLURM_NNODES", "SLURM_WHATEVER_COMES", "SLURMD_DEBUG", NULL};
    static const char *const stay[] = {"SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NODELIST", "SLURM_CONF", "SLURM_ARRAY_TASK_ID", "SLURMD_NODENAME", "SLURM_TMPDIR", "SLURMX", "OMP_PROC_BIND", NULL};

    (void)state;
    for (const char *const *v = gone; *v; v++)
        setenv(*v, "1", 1);
    for (const char *const *v = stay; *v; v++)
        setenv(*v, "1", 1);
    job_launch_environment();
    for (const char *const *v = gone; *v; v++)
        if (getenv(*v))
            fail_msg("%s is there still", *v);
    for (const char *const *v = stay; *v; v++) {
        if (!getenv(*v))
            fail_msg("%s is not there any more", *v);
        unsetenv(*v);
    }
}

static void expands(const char *text, int rc, const char *want)
{
    char out[PATH_MAX];

    assert_int_equal(job_expand(out, text), rc);
    if (want)
        assert_string_equal(out, want);
}

static void test_variables_in_paths(void **state)
{
    char longer[PATH_MAX + 10];

    (void)state;
    setenv("FP_T1", "/ssd", 1);
    setenv("FP_T2", "", 1);
    unsetenv("FP_T3");
    expands("/a/b", 0, "/a/b");
    expands("$FP_T1", 0, "/ssd");
    expands("$FP_T1/x", 0, "/ssd/x");
    expands("${FP_T1}x$FP_T1", 0, "/ssdx/ssd");
    expands("/a$", 0, "/a$");
    expands("/a$/b", 0, "/a$/b");
    expands("/a$1", 0, "/a$1");
    expands("/a${FP_T1", 0, "/a${FP_T1");
    expands("$FP_T3/x", -ENOENT, "FP_T3");
    expands("/x/${FP_T2}", -ENOENT, "FP_T2");
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    expands(longer, -ENAMETOOLONG, NULL);
    setenv("FP_T1", longer, 1);
    expands("$FP_T1", -ENAMETOOLONG, NULL);
}

static void test_a_directory_that_is_not_ours_alone_is_refused(void **state)
{
    char dir[] = "/tmp/test_job_slurm.XXXXXX", path[PATH_MAX], link[PATH_MAX];

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/job", dir);
    snprintf(link, sizeof link, "%s/link", dir);
    assert_int_equal(job_dir_make(path), 0);
    assert_int_equal(job_dir_make(path), 0); /* the agent of the node where it was started */
    assert_int_equal(chmod(path, 0755), 0);
    assert_int_equal(job_dir_make(path), -EPERM);
    assert_int_equal(chmod(path, 0700), 0);
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(job_dir_make(link), -EPERM);
    fp_remove_tree(dir);
    assert_int_equal(access(dir, F_OK), -1);
}

/* Numbers of jobs are known to all: the name of the directory may be taken, and another one is, which is found again. */
static void test_a_name_that_is_taken(void **state)
{
    char first[PATH_MAX], dir[PATH_MAX], again[PATH_MAX], job[40];

    (void)state;
    fp_log_set_level(FP_LOG_ERROR);
    snprintf(job, sizeof job, "test-%d", (int)getpid());
    job_dir_path(first, job);
    assert_int_equal(symlink("/tmp", first), 0);
    assert_int_equal(job_dir_begin(dir, job), 0);
    assert_memory_equal(dir, first, strlen(first));
    assert_int_equal(dir[strlen(first)], '+');
    job_dir_path(again, job);
    assert_string_equal(again, dir);
    assert_int_equal(job_dir_begin(again, job), 0);
    assert_string_equal(again, dir);
    assert_int_equal(unlink(first), 0);
    job_dir_path(again, job); /* whatever becomes of the other */
    assert_string_equal(again, dir);
    assert_int_equal(chmod(dir, 0755), 0);
    job_dir_path(again, job);
    assert_string_equal(again, first);
    assert_int_equal(job_dir_remove(dir), 0);
}

static void test_what_start_leaves_is_found_by_stop(void **state)
{
    struct job_record r = {.job = "17", .root = "n1:20008", .step = "0", .manager = "n1:4000", .mount = "/AggregateSSDstore", .application = "0-6", .nodes = 4, .launcher = 4711,
                           .launcher_ticks = 123456789012};
    char dir[] = "/tmp/test_job_slurm.XXXXXX";
    struct job_record q;
    struct stat st;
    char path[PATH_MAX];

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(job_record_load(dir, &q), -ENOENT);
    assert_int_equal(job_record_save(dir, &r), 0);
    assert_int_equal(job_record_load(dir, &q), 0);
    assert_memory_equal(&q, &r, sizeof r);
    assert_int_equal(job_dir_file(path, dir, "job.json"), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(job_dir_write(dir, "job.json", "{\"job\": 17}", 0600), 0);
    assert_int_equal(job_record_load(dir, &q), -EBADMSG);
    assert_int_equal(job_dir_write(dir, "job.json", "", 0600), 0);
    assert_int_equal(job_record_load(dir, &q), -EBADMSG);
    fp_remove_tree(dir);
}

/* Names of jobs' directories are known beforehand: another user may have made one, with a record of what to end and where to write. */
static void test_a_record_that_others_may_have_written_is_not_read(void **state)
{
    struct job_record r = {.job = "17", .nodes = 4}, q;
    char dir[] = "/tmp/test_job_slurm.XXXXXX", path[PATH_MAX], link[PATH_MAX];

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/job.json", dir);
    snprintf(link, sizeof link, "%s/link", dir);
    assert_int_equal(job_record_save(dir, &r), 0);
    assert_int_equal(chmod(dir, 0755), 0);
    assert_int_equal(job_record_load(dir, &q), -EPERM);
    assert_int_equal(chmod(dir, 0700), 0);
    assert_int_equal(symlink(dir, link), 0);
    assert_int_equal(job_record_load(link, &q), -EPERM);
    assert_int_equal(unlink(link), 0);
    assert_int_equal(rename(path, link), 0);
    assert_int_equal(symlink(link, path), 0);
    assert_int_equal(job_record_load(dir, &q), -EPERM);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    alarm(20);
    assert_int_equal(job_record_load(dir, &q), -EPERM);
    alarm(0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rename(link, path), 0);
    assert_int_equal(job_record_load(dir, &q), 0);
    if (geteuid() == 0) { /* the only one who may give a directory away */
        assert_int_equal(chown(path, 65534, (gid_t)-1), 0);
        assert_int_equal(job_record_load(dir, &q), -EPERM);
        assert_int_equal(chown(path, 0, (gid_t)-1), 0);
        assert_int_equal(chown(dir, 65534, (gid_t)-1), 0);
        assert_int_equal(job_record_load(dir, &q), -EPERM);
    }
    fp_remove_tree(dir);
}

/* In a process of its own. Its exit code: 0, or the error. */
static int confined(const char *list, int *first)
{
    int fds[2], status = 0;
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        cpu_set_t set;
        int rc = job_cpus_confine(0, list), cpu = -1;

        if (rc == 0 && sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) == 1)
            for (cpu = 0; !CPU_ISSET(cpu, &set);)
                cpu++;
        (void)!write(fds[1], &cpu, sizeof cpu);
        _exit(-rc);
    }
    close(fds[1]);
    assert_int_equal(read(fds[0], first, sizeof *first), sizeof *first);
    close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status);
}

static void test_a_process_is_kept_to_cpus(void **state)
{
    cpu_set_t ours;
    char list[64];
    int cpu = 0, at;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof ours, &ours), 0);
    while (!CPU_ISSET(cpu, &ours))
        cpu++;
    snprintf(list, sizeof list, "%d,8000", cpu); /* what is not there is no hindrance */
    assert_int_equal(confined(list, &at), 0);
    assert_int_equal(at, cpu);
    assert_int_equal(confined("", &at), EINVAL);
    assert_int_equal(confined("x", &at), EINVAL);
    assert_int_equal(confined("9000", &at), EINVAL);
    assert_int_equal(confined("8000", &at), EINVAL); /* the kernel's word: no such CPU */
    assert_int_equal(job_cpus_confine(INT32_MAX, "0"), -ESRCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times_as_squeue_prints_them),
        cmocka_unit_test(test_a_job_past_its_limit_has_no_time_left),
        cmocka_unit_test(test_the_step_that_a_process_is_in),
        cmocka_unit_test(test_a_task_of_an_array_is_named_alone),
        cmocka_unit_test(test_a_job_is_found_in_what_squeue_prints),
        cmocka_unit_test(test_our_steps_are_not_as_the_user_wants_his),
        cmocka_unit_test(test_variables_in_paths),
        cmocka_unit_test(test_a_directory_that_is_not_ours_alone_is_refused),
        cmocka_unit_test(test_a_name_that_is_taken),
        cmocka_unit_test(test_what_start_leaves_is_found_by_stop),
        cmocka_unit_test(test_a_record_that_others_may_have_written_is_not_read),
        cmocka_unit_test(test_a_process_is_kept_to_cpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
