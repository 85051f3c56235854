/*
 * The application of fp-job run (see app.h): what it is told, and when.
 *
 * SIGTERM for us is passed on as the end of the job's time is (endtime.c): to the steps of the job where the command is srun, else to the command; at the end of the
 * time the steps are told in both cases, since a shell that ends leaves what it has started behind.
 */
#include "jobscripts/app.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "fp/clock.h"
#include "jobscripts/endtime.h"

static volatile sig_atomic_t passed, term_came;
static volatile pid_t application;
static bool is_srun;

static void pass_on(int sig)
{
    passed = sig;
    if (sig == SIGTERM)
        term_came = 1;
    else if (application > 0)
        kill(application, sig);
}

void job_app_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGQUIT};
    struct sigaction sa = {.sa_handler = pass_on};

    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        sigaction(signals[i], &sa, NULL);
}

static void signal_it(int sig, bool sruns, void *arg)
{
    if (sruns == is_srun)
        kill(*(const pid_t *)arg, sig);
}

static void do_what_is_due(struct job_endtime *t, pid_t pid)
{
    uint64_t now = fp_now_ms();

    if (term_came) {
        term_came = 0;
        if (is_srun)
            t->tell_ms = now;
        else
            kill(pid, SIGTERM);
    }
    job_endtime_tick(t, now);
}

int job_app_wait(const struct job_run_of *r, pid_t pid, const char *program)
{
    static const struct timespec pause = {0, 20000000};
    struct job_endtime t = {
        .job = r->record.job, .step = r->record.step, .in_slurm = r->alloc.in_slurm, .want_ms = r->declared.store.reserve_ms, .signal = signal_it, .arg = &pid};
    const char *slash = strrchr(program, '/');
    int status;

    job_endtime_init(&t);
    is_srun = strcmp(slash ? slash + 1 : program, "srun") == 0;
    if (job_steps_needed(&r->declared) && r->declared.store.reserve_ms)
        job_endtime_look(&t, fp_now_ms());
    application = pid;
    if (passed && passed != SIGTERM) /* before we knew whom to tell */
        kill(pid, passed);
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
    application = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
