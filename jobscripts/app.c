/*
 * The application of fp-job run (see app.h): what it is told, and when.
 *
 * srun takes SIGTERM for a word to kill its tasks at once, without one to them; so it is not told itself, but each step of the job except ours, by scancel. Any other
 * command is, as whoever wrote it expects; at the end of the job's time its steps are, too, since a shell that ends leaves what it has started behind.
 *
 * A controller that does not answer (it restarts, it has much to do) says nothing of the job's time or steps: what was known of the time stays, and it is asked again.
 */
#include "jobscripts/app.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "fp/clock.h"
#include "fp/command.h"
#include "fp/log.h"
#include "jobscripts/slurm.h"

#define ASK_MS    5000u
#define LOOK_MS   30000u /* at least, from one look at the job's time to the next: somebody may have given it more */
#define AGAIN_MS  5000u  /* after steps could not be asked for */
#define STEPS_MAX 64u    /* that are told */

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

/* "77.3", or "12_3.0"; of the batch script or Slurm itself ("77.batch"), and ours, no. */
static bool is_theirs(const char *step, const char *ours)
{
    const char *dot = strrchr(step, '.');

    return dot && dot[1] && dot[1 + strspn(dot + 1, "0123456789")] == '\0' && strcmp(dot + 1, ours) != 0;
}

/*
 * How many steps there are; negative: not known, and none was told. That scancel has told them is not sure when it fails or is late, and telling srun, too, would
 * kill the tasks: who has not heard is killed when its time is over.
 */
static int tell_steps(const struct job_run_of *r, const char *signal)
{
    char text[16384], *save = NULL, *words[STEPS_MAX + 4] = {(char *)"scancel", (char *)"-s", (char *)(uintptr_t)signal}, out[64];
    char job[JOB_SLURM_NAME_MAX], *const list[] = {(char *)"squeue", (char *)"-h", (char *)"-s", (char *)"-o", (char *)"%i", (char *)"-j", job, NULL};
    unsigned n = 0;
    int rc;

    if (!r->alloc.in_slurm) /* steps of an srun are those of another job, which it ends itself */
        return 0;
    job_slurm_name(r->record.job, job);
    rc = fp_command(list, ASK_MS, text, sizeof text);
    if (rc)
        return rc > 0 ? -EIO : rc;
    for (char *w = strtok_r(text, " \n", &save); w && n < STEPS_MAX; w = strtok_r(NULL, " \n", &save))
        if (is_theirs(w, r->record.step))
            words[3 + n++] = w;
    words[3 + n] = NULL;
    if (n && fp_command(words, ASK_MS, out, sizeof out))
        FP_WARN("scancel did not answer: the tasks may not know that they are to end");
    return (int)n;
}

/* So that what is to be brought out has time: a part of the job's, at most a quarter of what it has now. */
static uint64_t reserve_ms(const struct job_run_of *r, uint64_t left_ms)
{
    uint64_t want = r->declared.store.reserve_ms;

    return want < left_ms / 4 ? want : left_ms / 4;
}

struct times {
    uint64_t reserve_ms;                        /* 0: not known yet */
    uint64_t end_ms, tell_ms, kill_ms, look_ms; /* UINT64_MAX: never */
};

static void look(const struct job_run_of *r, struct times *t, uint64_t now)
{
    uint64_t left, far;

    t->look_ms = now + LOOK_MS;
    if (job_alloc_left_ms(&r->alloc, &left))
        return;
    if (left == UINT64_MAX) {
        t->end_ms = t->look_ms = UINT64_MAX;
        return;
    }
    if (!t->reserve_ms && !(t->reserve_ms = reserve_ms(r, left)))
        return;
    t->end_ms = left > t->reserve_ms ? now + left - t->reserve_ms : now;
    far = (t->end_ms - now) / 10;
    t->look_ms = now + (far > LOOK_MS ? far : LOOK_MS);
}

/* The steps; srun only if there are none, and not while that is not known. */
static void tell(const struct job_run_of *r, pid_t pid, struct times *t)
{
    int n = tell_steps(r, "TERM");

    t->tell_ms = n < 0 ? fp_now_ms() + AGAIN_MS : UINT64_MAX;
    if (n == 0 && is_srun)
        kill(pid, SIGTERM);
}

static void at_the_end(pid_t pid, struct times *t, uint64_t now)
{
    FP_WARN("the job has %llu s left, which are kept for what is still to be drained or staged out (reserve= of #FP store): the application is told to end",
            (unsigned long long)(t->reserve_ms / 1000));
    if (!is_srun)
        kill(pid, SIGTERM);
    t->tell_ms = now;
    t->end_ms = t->look_ms = UINT64_MAX;
    t->kill_ms = now + t->reserve_ms / 2;
}

static void do_what_is_due(const struct job_run_of *r, pid_t pid, struct times *t)
{
    uint64_t now = fp_now_ms();

    if (term_came) {
        term_came = 0;
        if (is_srun)
            t->tell_ms = now;
        else
            kill(pid, SIGTERM);
    }
    if (now >= t->look_ms)
        look(r, t, now);
    if (now >= t->end_ms)
        at_the_end(pid, t, now);
    if (now >= t->tell_ms)
        tell(r, pid, t);
    if (now >= t->kill_ms) {
        FP_WARN("the application has not ended: it is killed");
        (void)tell_steps(r, "KILL");
        kill(pid, SIGKILL);
        t->kill_ms = t->tell_ms = UINT64_MAX;
    }
}

int job_app_wait(const struct job_run_of *r, pid_t pid, const char *program)
{
    static const struct timespec pause = {0, 20000000};
    struct times t = {.end_ms = UINT64_MAX, .tell_ms = UINT64_MAX, .kill_ms = UINT64_MAX, .look_ms = UINT64_MAX};
    const char *slash = strrchr(program, '/');
    int status;

    is_srun = strcmp(slash ? slash + 1 : program, "srun") == 0;
    if (job_steps_needed(&r->declared) && r->declared.store.reserve_ms)
        look(r, &t, fp_now_ms());
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
            do_what_is_due(r, pid, &t);
            nanosleep(&pause, NULL);
        }
    }
    application = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
