/*
 * The end of a job's time (see endtime.h). Called by fp-job run for its application (app.c), and by the agent of the first node for a script with start and stop
 * (node_time.c).
 *
 * srun takes SIGTERM for a word to kill its tasks at once, without one to them; so it is not told itself, but each step of the job except ours, by scancel. Any other
 * command is, as whoever wrote it expects.
 *
 * A controller that does not answer (it restarts, it has much to do) says nothing of the job's time or steps: what was known of the time stays, and it is asked again.
 */
#include "jobscripts/endtime.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "fp/clock.h"
#include "fp/command.h"
#include "fp/log.h"
#include "jobscripts/launch/slurm.h"

#define ASK_MS    5000u
#define LOOK_MS   30000u /* at least, from one look at the job's time to the next: somebody may have given it more */
#define FAR_MS    300000u /* at most: somebody may have taken some of it away */
#define AGAIN_MS  5000u  /* after steps could not be asked for */
#define STEPS_MAX 64u    /* that are told */

void job_endtime_init(struct job_endtime *t)
{
    t->reserve_ms = 0;
    t->end_ms = t->tell_ms = t->kill_ms = t->look_ms = UINT64_MAX;
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
static int tell_steps(const struct job_endtime *t, const char *signal)
{
    char text[16384], *save = NULL, *words[STEPS_MAX + 4] = {(char *)"scancel", (char *)"-s", (char *)(uintptr_t)signal}, out[64];
    char job[JOB_SLURM_NAME_MAX], *const list[] = {(char *)"squeue", (char *)"-h", (char *)"-s", (char *)"-o", (char *)"%i", (char *)"-j", job, NULL};
    unsigned n = 0;
    int rc;

    if (!t->in_slurm) /* steps of an srun are those of another job, which it ends itself */
        return 0;
    job_slurm_name(t->job, job);
    rc = fp_command(list, ASK_MS, text, sizeof text);
    if (rc)
        return rc > 0 ? -EIO : rc;
    for (char *w = strtok_r(text, " \n", &save); w && n < STEPS_MAX; w = strtok_r(NULL, " \n", &save))
        if (is_theirs(w, t->step))
            words[3 + n++] = w;
    words[3 + n] = NULL;
    if (n && fp_command(words, ASK_MS, out, sizeof out))
        FP_WARN("scancel did not answer: the tasks may not know that they are to end");
    return (int)n;
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
