/*
 * The application of fp-job run is told to end in time, whatever Slurm answers (jobscripts/app.c). The clock is the test's, a second for each look, and so is
 * Slurm: squeue and scancel are functions here, and at the end of the job's time the application is killed.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "fp/command.h"
#include "jobscripts/app.h"
#include "jobscripts/app_left.h"
#include "jobscripts/launch/slurm.h"

#define LIMIT_S 400

int __real_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);
int __real_nanosleep(const struct timespec *want, struct timespec *left);
int __wrap_nanosleep(const struct timespec *want, struct timespec *left);
int __real_kill(pid_t pid, int sig);
int __wrap_kill(pid_t pid, int sig);
int __wrap_fp_command(char *const argv[], uint64_t limit_ms, char *out, size_t size);
void __wrap_job_slurm_step_of(pid_t pid, char step[JOB_SLURM_STEP_MAX]);

/* What Slurm says, and what it was told. */
static struct {
    pid_t application;
    int now_s, told_s;         /* since the start; -1: not told */
    unsigned looks, lists, tells;
    unsigned told_steps;       /* of all calls together */
    int first_s, more_s, more_from_s; /* another limit at the first look; more of it, from then on */
    int reserve_s;
    unsigned no_look, no_list; /* bit i: it does not answer then */
    const char *left, *steps;  /* left: NULL: until LIMIT_S */
    const char *callers;       /* the step that fp-job was called in; NULL: none */
    const char *asked;         /* for which job */
    bool limit;                /* it has killed the application */
    bool ends;                 /* the application, by any signal */
    bool stands;               /* the clock: who is waited for has all the time that he needs */
    pid_t (*begin)(void);      /* the application; NULL: begin() */
    char told[256];
} slurm;

static int limit_s(void)
{
    return LIMIT_S + (slurm.now_s >= slurm.more_from_s ? slurm.more_s : 0);
}

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
    if (id != CLOCK_MONOTONIC)
        return __real_clock_gettime(id, ts);
    *ts = (struct timespec){.tv_sec = 1000 + slurm.now_s};
    return 0;
}

int __wrap_nanosleep(const struct timespec *want, struct timespec *left)
{
    static const struct timespec pause = {0, 1000000};

    (void)want;
    if (slurm.stands)
        return __real_nanosleep(&pause, left);
    if (++slurm.now_s >= limit_s()) {
        slurm.limit = true;
        kill(slurm.application, SIGKILL);
    }
    return __real_nanosleep(&pause, left);
}

/* A second of the test is a millisecond, in which a process may not get to run: the clock stands still until it has ended. */
int __wrap_kill(pid_t pid, int sig)
{
    int rc = __real_kill(pid, sig);
    siginfo_t info;

    if (rc == 0 && slurm.ends && pid == slurm.application)
        assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    return rc;
}

static int left(char *out, size_t size)
{
    int s = limit_s() - slurm.now_s;

    if (slurm.no_look >> slurm.looks++ & 1)
        return -ETIMEDOUT;
    if (slurm.first_s && slurm.looks == 1)
        s = slurm.first_s;
    if (slurm.left)
        snprintf(out, size, "%s\n", slurm.left);
    else
        snprintf(out, size, "%d:%02d:%02d\n", s / 3600, s / 60 % 60, s % 60);
    return 0;
}

static int steps(char *out, size_t size)
{
    if (slurm.no_list >> slurm.lists++ & 1)
        return 1;
    snprintf(out, size, "%s", slurm.steps);
    return 0;
}

/* Whose tasks have ended ends, too. */
static int scancel(char *const argv[])
{
    slurm.tells++;
    slurm.told_s = slurm.now_s;
    slurm.told[0] = '\0';
    for (char *const *word = argv + 1; *word; word++) {
        slurm.told_steps += strchr(*word, '.') != NULL;
        strncat(slurm.told, " ", sizeof slurm.told - strlen(slurm.told) - 1);
        strncat(slurm.told, *word, sizeof slurm.told - strlen(slurm.told) - 1);
    }
    kill(slurm.application, SIGUSR1);
    return 0;
}

int __wrap_fp_command(char *const argv[], uint64_t limit_ms, char *out, size_t size)
{
    bool of_steps = false;

    assert_in_range(limit_ms, 1, 5000);
    out[0] = '\0';
    if (strcmp(argv[0], "scancel") == 0)
        return scancel(argv);
    assert_string_equal(argv[0], "squeue");
    for (char *const *word = argv + 1; *word; word++) {
        if (strcmp(*word, "-s") == 0)
            of_steps = true;
        if (strcmp(*word, "-j") == 0)
            assert_string_equal(word[1], slurm.asked);
    }
    return of_steps ? steps(out, size) : left(out, size);
}

void __wrap_job_slurm_step_of(pid_t pid, char step[JOB_SLURM_STEP_MAX])
{
    assert_int_equal(pid, getppid());
    snprintf(step, JOB_SLURM_STEP_MAX, "%s", slurm.callers ? slurm.callers : "");
}

static void on_signal(int sig)
{
    _exit(sig == SIGUSR1 ? 7 : 9);
}

/* It ends with 7 when its tasks have been told, with 9 by SIGTERM; or after a while, if it is not killed. */
static pid_t begin(void)
{
    sigset_t both, old;
    pid_t pid;

    sigemptyset(&both);
    sigaddset(&both, SIGTERM);
    sigaddset(&both, SIGUSR1);
    sigprocmask(SIG_BLOCK, &both, &old);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGTERM, on_signal);
        signal(SIGUSR1, on_signal);
        sigprocmask(SIG_SETMASK, &old, NULL);
        sleep(60);
        _exit(0);
    }
    sigprocmask(SIG_SETMASK, &old, NULL);
    return pid;
}

/* In a job of LIMIT_S, of which 100 s are kept, unless it has none. Its exit code. */
static int waited(const char *program)
{
    static struct job_run_of r;
    struct job_stage out = {.timeout_ms = 1000};

    memset(&r, 0, sizeof r);
    r.alloc.in_slurm = true;
    snprintf(r.alloc.job, sizeof r.alloc.job, "77");
    snprintf(r.record.job, sizeof r.record.job, "77");
    snprintf(r.record.step, sizeof r.record.step, "0");
    r.declared.store.reserve_ms = (uint64_t)slurm.reserve_s * 1000;
    r.declared.out = &out;
    r.declared.nout = 1;
    slurm.told_s = -1;
    slurm.application = slurm.begin ? slurm.begin() : begin();
    slurm.ends = true;
    return job_app_wait(&r, slurm.application, program);
}

static int setup(void **state)
{
    (void)state;
    memset(&slurm, 0, sizeof slurm);
    slurm.steps = "77.0\n77.3\n77.batch\n";
    slurm.asked = "77";
    slurm.reserve_s = 100;
    unsetenv("SLURM_ARRAY_JOB_ID");
    unsetenv("SLURM_ARRAY_TASK_ID");
    return 0;
}

static void test_told_when_the_reserve_begins(void **state)
{
    (void)state;
    assert_int_equal(waited("/usr/bin/srun"), 7);
    assert_in_range(slurm.told_s, LIMIT_S - 101, LIMIT_S - 99);
    assert_string_equal(slurm.told, " -s TERM 77.3");
    assert_int_equal(slurm.tells, 1);
}

/* srun -n1 bash script, with fp-job in it: scancel would tell the script, which has the data to bring out. */
static void test_the_step_that_fp_job_was_called_in_is_not_told(void **state)
{
    (void)state;
    slurm.steps = "77.0\n77.2\n77.3\n77.batch\n";
    slurm.callers = "2";
    assert_int_equal(waited("srun"), 7);
    assert_string_equal(slurm.told, " -s TERM 77.3");
    slurm.steps = "77.0\n77.2\n";
    slurm.now_s = 0;
    assert_int_equal(waited("./solver.sh"), 9);
    assert_int_equal(slurm.tells, 1);
}

/* As of a script that starts many with "srun &". */
static void test_all_of_many_steps_are_told(void **state)
{
    static char list[65536];
    size_t n = 0;

    (void)state;
    for (unsigned i = 0; i <= 3000; i++) /* the first is of the agents */
        n += (size_t)snprintf(list + n, sizeof list - n, "1234567.%u\n", i);
    slurm.steps = list;
    assert_int_equal(waited("srun"), 7);
    assert_int_equal(slurm.told_steps, 3000);
    assert_in_range(slurm.tells, 2, 300);
}

static void test_told_though_slurm_did_not_answer_at_the_start(void **state)
{
    (void)state;
    slurm.no_look = 1 | 2;
    assert_int_equal(waited("srun"), 7);
    assert_true(slurm.looks > 3);
    assert_in_range(slurm.told_s, LIMIT_S - 101, LIMIT_S - 80); /* a quarter of what it had when it was known */
}

static void test_told_though_slurm_does_not_answer_any_more(void **state)
{
    (void)state;
    slurm.no_look = ~1u;
    assert_int_equal(waited("srun"), 7);
    assert_true(slurm.looks > 3);
    assert_in_range(slurm.told_s, LIMIT_S - 101, LIMIT_S - 99);
}

static void test_a_limit_that_is_cut_is_noticed(void **state)
{
    (void)state;
    slurm.first_s = 100000;
    assert_int_equal(waited("srun"), 7);
    assert_in_range(slurm.told_s, LIMIT_S - 101, LIMIT_S - 90);
}

static void test_more_time_is_noticed_in_the_last_moment(void **state)
{
    (void)state;
    slurm.reserve_s = 85;
    slurm.more_from_s = LIMIT_S - 85 - 5; /* the last look but one is 10 s earlier */
    slurm.more_s = 50;
    assert_int_equal(waited("srun"), 7);
    assert_in_range(slurm.told_s, LIMIT_S + 50 - 86, LIMIT_S + 50 - 83);
}

static void test_an_answer_that_is_no_time_is_none(void **state)
{
    (void)state;
    slurm.left = "INVALID";
    assert_int_equal(waited("srun"), 128 + SIGKILL);
    assert_true(slurm.limit && slurm.looks > 10); /* it goes on asking */
}

static void test_a_job_without_a_limit_is_not_asked_again(void **state)
{
    (void)state;
    slurm.left = "UNLIMITED";
    assert_int_equal(waited("srun"), 128 + SIGKILL);
    assert_true(slurm.limit && slurm.looks == 1 && slurm.tells == 0);
}

/* srun would kill its tasks without a word to them. */
static void test_srun_is_left_alone_while_its_steps_are_not_known(void **state)
{
    (void)state;
    slurm.no_list = 1 | 2;
    assert_int_equal(waited("srun"), 7);
    assert_int_equal(slurm.lists, 3);
    assert_in_range(slurm.told_s, LIMIT_S - 95, LIMIT_S - 85);
    assert_string_equal(slurm.told, " -s TERM 77.3");
}

static void test_srun_without_steps_is_told_itself(void **state)
{
    (void)state;
    slurm.steps = "77.0\n77.batch\n77.extern\n";
    assert_int_equal(waited("srun"), 9);
    assert_int_equal(slurm.tells, 0);
}

static void test_another_program_is_told_itself(void **state)
{
    (void)state;
    slurm.no_list = ~0u;
    assert_int_equal(waited("./solver.sh"), 9);
    assert_in_range(slurm.now_s, LIMIT_S - 101, LIMIT_S - 95);
}

/* It has the number of the array, by which Slurm means all tasks. */
static void test_the_last_task_of_an_array_asks_for_itself(void **state)
{
    (void)state;
    setenv("SLURM_ARRAY_JOB_ID", "77", 1);
    setenv("SLURM_ARRAY_TASK_ID", "2", 1);
    slurm.asked = "77_2";
    slurm.steps = "77_2.0\n77_2.3\n77_2.batch\n";
    assert_int_equal(waited("srun"), 7);
    assert_in_range(slurm.told_s, LIMIT_S - 101, LIMIT_S - 99);
    assert_string_equal(slurm.told, " -s TERM 77_2.3");
}

static void test_sigterm_waits_for_an_answer_too(void **state)
{
    (void)state;
    slurm.no_list = 1;
    job_app_signals();
    raise(SIGTERM);
    assert_int_equal(waited("srun"), 7);
    assert_in_range(slurm.told_s, 4, 8);
}

static int heard[2];
static bool deaf; /* what a shell leaves */

/* What a shell has started: says that it is there, and then that it was told to end; or does not hear that. */
static _Noreturn void be_left(void)
{
    sigset_t term;
    int sig;

    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    (void)!write(heard[1], "b", 1);
    while (sigwait(&term, &sig) || deaf)
        ;
    (void)!write(heard[1], "t", 1);
    _exit(0);
}

static char next_word(void)
{
    char c = 0;

    alarm(60);
    assert_int_equal(read(heard[0], &c, 1), 1);
    alarm(0);
    return c;
}

/* One that does not wait for what it has started: it ends by itself, or by SIGTERM. */
static pid_t shell(bool stays)
{
    pid_t pid;

    assert_int_equal(pipe(heard), 0);
    job_app_left_begin();
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)signal(SIGTERM, SIG_DFL);
        if (fork() == 0)
            be_left();
        while (stays)
            pause();
        _exit(3);
    }
    assert_int_equal(next_word(), 'b');
    return pid;
}

static pid_t begin_shell(void)
{
    return shell(true);
}

static pid_t begin_careless_shell(void)
{
    return shell(false);
}

static void end_hearing(void)
{
    close(heard[0]);
    close(heard[1]);
}

/* In the time that the test takes no second goes by: it is over when nothing is left. */
static void test_what_a_shell_leaves_is_told_at_once_and_waited_for(void **state)
{
    char name[32];

    (void)state;
    slurm.begin = begin_shell;
    slurm.stands = true;
    job_app_signals();
    raise(SIGTERM);
    assert_int_equal(waited("bash"), 128 + SIGTERM);
    assert_int_equal(job_app_left(name), 0);
    assert_int_equal(next_word(), 't');
    assert_string_equal(slurm.told, " -s TERM 77.3"); /* its srun would kill the tasks */
    end_hearing();
}

static void test_what_a_shell_leaves_that_was_not_told_has_some_time(void **state)
{
    (void)state;
    slurm.begin = begin_careless_shell;
    assert_int_equal(waited("bash"), 3);
    assert_int_equal(next_word(), 't');
    assert_in_range(slurm.told_s, 9, 20);
    end_hearing();
}

static void test_what_does_not_end_is_not_waited_for_for_ever(void **state)
{
    char name[32];

    (void)state;
    deaf = true;
    slurm.begin = begin_shell;
    job_app_signals();
    raise(SIGTERM);
    assert_int_equal(waited("bash"), 128 + SIGTERM);
    assert_in_range(slurm.now_s, 20, 60);
    assert_int_equal(job_app_left(name), 1);
    job_app_left_signal(SIGKILL, true); /* it is no srun */
    assert_int_equal(job_app_left(name), 1);
    job_app_left_signal(SIGKILL, false);
    alarm(60);
    while (job_app_left(name))
        ;
    alarm(0);
    deaf = false;
    end_hearing();
}

static const int asked_for[] = {SIGHUP, SIGINT, SIGQUIT, SIGABRT, SIGALRM, SIGUSR1, SIGUSR2, SIGURG, SIGCONT, SIGXCPU, 40, 64, SIGTERM};

/* Of them these come before there is an application. */
static bool is_early(int sig)
{
    return sig == SIGQUIT || sig == SIGALRM || sig == 40;
}

static void next_is(int sig)
{
    char c = 0;

    alarm(60);
    assert_int_equal(read(heard[0], &c, 1), 1);
    alarm(0);
    assert_int_equal(c, sig);
}

/* Says what it hears, and ends with 5 when that was SIGTERM, and all that came before it has begun: which of these is first is the kernel's choice. */
static _Noreturn void hear(void)
{
    int left = 4, sig;
    sigset_t all;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    (void)!write(heard[1], "", 1);
    while (left && sigwait(&all, &sig) == 0) {
        char c = (char)sig;

        (void)!write(heard[1], &c, 1);
        left -= sig == SIGTERM || is_early(sig);
    }
    _exit(left ? 1 : 5);
}

/* When the application has begun. */
static pid_t begin_hearing(void)
{
    pid_t pid = job_app_fork();

    if (pid == 0)
        hear();
    next_is(0);
    return pid;
}

/* Whatever a user may ask a batch system for, in a process of its own: what it does with signals stays. */
static int pass_on_all(void)
{
    struct sigaction was;

    signal(SIGHUP, SIG_DFL);
    job_app_signals_begin();
    for (size_t i = 0; i < sizeof asked_for / sizeof asked_for[0]; i++)
        if (is_early(asked_for[i]))
            raise(asked_for[i]);
    job_app_signals();
    slurm.application = begin_hearing();
    for (size_t i = 0; i < sizeof asked_for / sizeof asked_for[0]; i++)
        if (!is_early(asked_for[i]) && asked_for[i] != SIGTERM) {
            raise(asked_for[i]);
            next_is(asked_for[i]);
        }
    assert_int_equal(sigaction(SIGTSTP, NULL, &was), 0);
    assert_true(was.sa_handler == SIG_DFL);
    raise(SIGTERM);
    return 0;
}

static void test_all_that_users_ask_for_is_passed_on(void **state)
{
    static struct job_run_of r;
    int early = 0;
    char c;

    (void)state;
    assert_int_equal(pipe(heard), 0);
    pass_on_all();
    assert_int_equal(job_app_wait(&r, slurm.application, "./app"), 5);
    close(heard[1]);
    while (read(heard[0], &c, 1) == 1)
        early += is_early(c);
    assert_int_equal(early, 3);
    close(heard[0]);
    assert_int_equal(raise(SIGUSR1), 0); /* nobody is there any more, and it ends nothing */
}

/* As nohup has it; and what is ours alone is not the application's. */
static void test_what_was_ignored_stays_so(void **state)
{
    struct sigaction was;

    (void)state;
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_DFL);
    job_app_signals_begin();
    signal(SIGPIPE, SIG_IGN);
    job_catch_signals();
    job_app_signals();
    sigaction(SIGHUP, NULL, &was);
    assert_true(was.sa_handler == SIG_IGN);
    job_app_signals_reset();
    sigaction(SIGHUP, NULL, &was);
    assert_true(was.sa_handler == SIG_IGN);
    sigaction(SIGPIPE, NULL, &was);
    assert_true(was.sa_handler == SIG_DFL);
    sigaction(SIGUSR1, NULL, &was);
    assert_true(was.sa_handler == SIG_DFL);
    signal(SIGHUP, SIG_DFL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_told_when_the_reserve_begins, setup),
        cmocka_unit_test_setup(test_the_step_that_fp_job_was_called_in_is_not_told, setup),
        cmocka_unit_test_setup(test_all_of_many_steps_are_told, setup),
        cmocka_unit_test_setup(test_told_though_slurm_did_not_answer_at_the_start, setup),
        cmocka_unit_test_setup(test_told_though_slurm_does_not_answer_any_more, setup),
        cmocka_unit_test_setup(test_a_limit_that_is_cut_is_noticed, setup),
        cmocka_unit_test_setup(test_more_time_is_noticed_in_the_last_moment, setup),
        cmocka_unit_test_setup(test_an_answer_that_is_no_time_is_none, setup),
        cmocka_unit_test_setup(test_a_job_without_a_limit_is_not_asked_again, setup),
        cmocka_unit_test_setup(test_srun_is_left_alone_while_its_steps_are_not_known, setup),
        cmocka_unit_test_setup(test_srun_without_steps_is_told_itself, setup),
        cmocka_unit_test_setup(test_another_program_is_told_itself, setup),
        cmocka_unit_test_setup(test_the_last_task_of_an_array_asks_for_itself, setup),
        cmocka_unit_test_setup(test_sigterm_waits_for_an_answer_too, setup),
        cmocka_unit_test_setup(test_what_a_shell_leaves_is_told_at_once_and_waited_for, setup),
        cmocka_unit_test_setup(test_what_a_shell_leaves_that_was_not_told_has_some_time, setup),
        cmocka_unit_test_setup(test_what_does_not_end_is_not_waited_for_for_ever, setup),
        cmocka_unit_test_setup(test_what_was_ignored_stays_so, setup),
        cmocka_unit_test_setup(test_all_that_users_ask_for_is_passed_on, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
