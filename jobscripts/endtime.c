/*
 * The end of a job's time (see endtime.h). Called by fp-job run for its application (app.c), and by the agent of the first node for a script with start and stop
 * (node_time.c).
 *
 * srun takes SIGTERM for a word to kill its tasks at once, without one to them; so it is not told itself, but each step of the job, by scancel. Any other command is, as
 * whoever wrote it expects. Not the agents' step, nor, where fp-job was called in one (srun -n1 bash script), that one: scancel tells all in it, the script with its fp-job stop, too.
 *
 * A controller that does not answer (it restarts, it has much to do) says nothing of the job's time or steps: what was known of the time stays, and it is asked again.
 */
#include "jobscripts/endtime.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/clock.h"
#include "fp/command.h"
#include "fp/log.h"
#include "jobscripts/launch/slurm.h"

#define ASK_MS    5000u
#define LOOK_MS   30000u /* at least, from one look at the job's time to the next: somebody may have given it more */
#define FAR_MS    300000u /* at most: somebody may have taken some of it away */
#define AGAIN_MS  5000u  /* after steps could not be asked for */
#define STEPS_MAX 64u    /* that one scancel is told of */
#define TELL_MS   30000u /* for all of them: nothing else is done meanwhile */

void job_endtime_init(struct job_endtime *t)
{
    t->reserve_ms = 0;
    t->end_ms = t->tell_ms = t->kill_ms = t->look_ms = UINT64_MAX;
}

static void tell_some(char *const steps[], unsigned n, const char *signal)
{
    char *words[STEPS_MAX + 4] = {(char *)"scancel", (char *)"-s", (char *)(uintptr_t)signal}, out[64];

    memcpy(words + 3, steps, n * sizeof *steps);
    if (fp_command(words, ASK_MS, out, sizeof out))
        FP_WARN("scancel did not answer: the tasks may not know that they are to end");
}

/* Those of the list, which is cut into pieces. */
static void tell_list(char *list, const char *signal)
{
    char *some[STEPS_MAX], *save = NULL;
    uint64_t end = fp_now_ms() + TELL_MS;
    unsigned n = 0, all = 0, untold = 0;

    for (char *w = strtok_r(list, "\n", &save); w; w = strtok_r(NULL, "\n", &save)) {
        all++;
        if (fp_now_ms() >= end) {
            untold++;
            continue;
        }
        some[n++] = w;
        if (n == STEPS_MAX) {
            tell_some(some, n, signal);
            n = 0;
        }
    }
    if (n)
        tell_some(some, n, signal);
    if (untold)
        FP_WARN("Slurm is slow: %u steps of %u were not told that they are to end", untold, all);
}

/*
 * How many steps there are; negative: not known, and none was told. That scancel has told them is not sure when it fails or is late, and telling srun, too, would
 * kill the tasks: who has not heard is killed when its time is over.
 */
static int tell_steps(const struct job_endtime *t, const char *signal)
{
    char *list;
    int n;

    if (!t->in_slurm) /* steps of an srun are those of another job, which it ends itself */
        return 0;
    n = job_slurm_steps(t->job, t->step, t->callers, &list);
    if (n > 0)
        tell_list(list, signal);
    free(list);
    return n;
}

/* So that what is to be brought out has time: a part of the job's, at most a quarter of what it has now. */
static uint64_t reserve_ms(const struct job_endtime *t, uint64_t left_ms)
{
    return t->want_ms < left_ms / 4 ? t->want_ms : left_ms / 4;
}

void job_endtime_look(struct job_endtime *t, uint64_t now)
{
    uint64_t left = UINT64_MAX, far;

    t->look_ms = now + LOOK_MS;
    if (t->in_slurm && job_slurm_left_ms(t->job, &left))
        return;
    if (left == UINT64_MAX) {
        t->end_ms = t->look_ms = UINT64_MAX;
        return;
    }
    if (!t->reserve_ms && !(t->reserve_ms = reserve_ms(t, left)))
        return;
    t->end_ms = left > t->reserve_ms ? now + left - t->reserve_ms : now;
    far = (t->end_ms - now) / 10;
    far = far < FAR_MS ? far : FAR_MS;
    t->look_ms = now + (far > LOOK_MS ? far : LOOK_MS);
}

/* The steps; srun only if there are none, and not while that is not known. */
static void tell(struct job_endtime *t)
{
    int n = tell_steps(t, "TERM");

    t->tell_ms = n < 0 ? fp_now_ms() + AGAIN_MS : UINT64_MAX;
    if (n == 0)
        t->signal(SIGTERM, true, t->arg);
}

static void at_the_end(struct job_endtime *t, uint64_t now)
{
    FP_WARN("the job has %llu s left, which are kept for what is still to be drained or staged out (reserve= of #FP store): the application is told to end",
            (unsigned long long)(t->reserve_ms / 1000));
    t->signal(SIGTERM, false, t->arg);
    t->tell_ms = now;
    t->end_ms = t->look_ms = UINT64_MAX;
    t->kill_ms = now + t->reserve_ms / 2;
}

static void kill_all(struct job_endtime *t)
{
    FP_WARN("the application has not ended: it is killed");
    (void)tell_steps(t, "KILL");
    t->signal(SIGKILL, false, t->arg);
    t->signal(SIGKILL, true, t->arg);
    t->kill_ms = t->tell_ms = UINT64_MAX;
}

void job_endtime_tick(struct job_endtime *t, uint64_t now)
{
    if (now >= t->look_ms || now >= t->end_ms) { /* also in the last moment: it may have been given more. Without an answer it has not */
        job_endtime_look(t, now);
        now = fp_now_ms();
    }
    if (now >= t->end_ms)
        at_the_end(t, now);
    if (now >= t->tell_ms)
        tell(t);
    if (now >= t->kill_ms)
        kill_all(t);
}

uint64_t job_endtime_next(const struct job_endtime *t)
{
    const uint64_t all[] = {t->end_ms, t->tell_ms, t->kill_ms, t->look_ms};
    uint64_t next = UINT64_MAX;

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        next = all[i] < next ? all[i] : next;
    return next;
}
