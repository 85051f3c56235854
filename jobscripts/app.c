/*
 * The application of fp-job run (see app.h): what it is told, and when.
 *
 * SIGTERM for us is passed on as the end of the job's time is (endtime.c): to the steps of the job where the command is srun, else to the command; at the end of the
 * time the steps are told in both cases, since a shell that ends leaves what it has started behind. What it leaves (app_left.c) is told to end, too, and waited for,
 * before the store ends: at once when the application was told or ended by a signal, else some seconds later.
 *
 * Passed on is what users ask a batch system for (--signal, scancel -s): all that has no meaning for us. Not TSTP, by which a terminal stops us and the application
 * together: who passed it on would have to stop as well. What was ignored when we were called, as by nohup, stays so, for the application, too.
 */
#include "jobscripts/app.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "fp/clock.h"
#include "fp/jobsignals.h"
#include "fp/log.h"
#include "jobscripts/app_left.h"
#include "jobscripts/endtime.h"

#define GRACE_MS 10000u /* for what is left when the application has ended by itself: untold */
#define LEFT_MS  30000u /* told */

static volatile sig_atomic_t early[NSIG], term_came; /* early: before we knew whom to tell */
static volatile pid_t application;
static sigset_t ignored;
static bool is_srun, was_told;

static void pass_on(int sig)
{
    if (sig == SIGTERM)
        term_came = 1;
    else if (application > 0)
        kill(application, sig);
    else if (application == 0)
        early[sig] = 1;
}

static bool is_passed_on(int sig, bool ends)
{
    return fp_job_signal_is_mark(sig) || sig == SIGCONT || sig == SIGURG || sig == SIGABRT || (ends && fp_job_signal_asks_end(sig));
}

static void take(bool ends)
{
    struct sigaction sa = {.sa_handler = pass_on, .sa_flags = SA_RESTART};

    for (int sig = 1; sig < NSIG; sig++)
        if (is_passed_on(sig, ends) && sigismember(&ignored, sig) != 1)
            sigaction(sig, &sa, NULL);
}

void job_app_signals_begin(void)
{
    struct sigaction was;

    application = 0;
    sigemptyset(&ignored);
    for (int sig = 1; sig < NSIG; sig++)
        if (sigaction(sig, NULL, &was) == 0 && was.sa_handler == SIG_IGN)
            sigaddset(&ignored, sig);
    take(false);
}

void job_app_signals(void)
{
    take(true);
}

void job_app_signals_reset(void)
{
    for (int sig = 1; sig < NSIG; sig++)
        (void)signal(sig, sigismember(&ignored, sig) == 1 ? SIG_IGN : SIG_DFL);
}

pid_t job_app_fork(void)
{
    sigset_t all, before;
    pid_t pid;

    job_app_left_begin();
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid = fork();
    if (pid == 0)
        job_app_signals_reset();
    else if (pid > 0)
        application = pid;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return pid;
}

static void pass_on_early(pid_t pid)
{
    for (int sig = 1; sig < NSIG; sig++)
        if (early[sig])
            kill(pid, sig);
}

/* Once it has ended (0): what it has left. */
static void signal_it(int sig, bool sruns, void *arg)
{
    pid_t pid = *(const pid_t *)arg;

    if (pid == 0)
        job_app_left_signal(sig, sruns);
    else if (sruns == is_srun)
        kill(pid, sig);
}

static void do_what_is_due(struct job_endtime *t, pid_t pid)
{
    uint64_t now = fp_now_ms();

    if (term_came) {
        term_came = 0;
        was_told = true;
        if (is_srun)
            t->tell_ms = now;
        else
            kill(pid, SIGTERM);
    }
    job_endtime_tick(t, now);
}

/* Until nothing is left of the application, within a limit. told: it was, or a signal has ended it. */
static void wait_for_left(struct job_endtime *t, bool told)
{
    static const struct timespec pause = {0, 100000000};
    uint64_t now = fp_now_ms(), tell_ms = told ? now : now + GRACE_MS;
    uint64_t left_ms = t->reserve_ms && t->reserve_ms / 4 < LEFT_MS ? t->reserve_ms / 4 : LEFT_MS, until = tell_ms + left_ms;
    char name[32];
    size_t n = job_app_left(name);

    if (n)
        FP_INFO("the application has ended, and %zu process%s that it has started %s not (%s%s): waiting for %s", n, n == 1 ? "" : "es", n == 1 ? "has" : "have", name,
                n == 1 ? "" : " and others", n == 1 ? "it" : "them");
    for (; n && now < until; n = job_app_left(name), now = fp_now_ms()) {
        if (now >= tell_ms || (term_came && tell_ms != UINT64_MAX)) {
            tell_ms = UINT64_MAX;
            until = now + left_ms;
            t->tell_ms = now;
            t->signal(SIGTERM, false, t->arg);
        }
        job_endtime_tick(t, now);
        nanosleep(&pause, NULL);
    }
    if (n)
        FP_WARN("%zu process%s of the application still run%s (%s%s): what %s from now on is not in the store, which ends", n, n == 1 ? "" : "es", n == 1 ? "s" : "", name, n == 1 ? "" : " and others",
                n == 1 ? "it writes" : "they write");
}

int job_app_wait(const struct job_run_of *r, pid_t pid, const char *program)
{
    static const struct timespec pause = {0, 20000000};
    struct job_endtime t = {
        .job = r->record.job, .step = r->record.step, .in_slurm = r->alloc.in_slurm, .want_ms = r->declared.store.reserve_ms, .signal = signal_it, .arg = &pid};
    const char *slash = strrchr(program, '/');
    int status, code;

    was_told = false;
    job_endtime_init(&t);
    if (t.in_slurm)
        job_slurm_step_of(getppid(), t.callers);
    is_srun = strcmp(slash ? slash + 1 : program, "srun") == 0;
    if (job_steps_needed(&r->declared) && r->declared.store.reserve_ms)
        job_endtime_look(&t, fp_now_ms());
    application = pid;
    pass_on_early(pid);
    for (;;) {
        pid_t got = waitpid(pid, &status, WNOHANG);

        if (got == pid)
            break;
        if (got < 0 && errno != EINTR)
            return 1;
        if (got == 0) {
            do_what_is_due(&t, pid);
            nanosleep(&pause, NULL);
        }
    }
    application = -1; /* what comes now is for nobody */
    code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    pid = 0;
    wait_for_left(&t, was_told || WIFSIGNALED(status) || t.kill_ms != UINT64_MAX);
    return code;
}
