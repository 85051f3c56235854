/*
 * What is left of the application of fp-job run when it has ended (see app_left.h). Called by app.c.
 *
 * A shell that a signal has ended, or that does not wait, leaves behind what it has started, such as srun: that would write on while the store ends. We inherit such
 * processes, and find them there, with those below them. What is in a session of its own has left on purpose; so has our guard.
 *
 * Rejected: a process group for the application that gets each SIGTERM as a whole. srun takes that for a word to kill its tasks, a shell with a trap for it wants to tell
 * its programs itself (sbatch --signal=B:TERM), and of a terminal ^C and ^Z would be ours to pass on.
 */
#include "jobscripts/app_left.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fp/procs.h"

#define LEFT_MAX 256u

void job_app_left_begin(void)
{
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* One that has ended is there until its parent has looked, which we are of those that are inherited. */
static bool has_ended(pid_t pid)
{
    return waitpid(pid, NULL, WNOHANG) == pid || !fp_proc_ticks(pid);
}

static size_t find(pid_t list[LEFT_MAX])
{
    pid_t parent = getpid(), children[LEFT_MAX];
    size_t n = 0;

    for (size_t next = 0;; parent = list[next++]) {
        size_t k = fp_proc_children(parent, children, LEFT_MAX);

        for (size_t i = 0; i < k && n < LEFT_MAX; i++)
            if (getsid(children[i]) == getsid(0) && !has_ended(children[i]))
                list[n++] = children[i];
        if (next == n)
            return n;
    }
}

static void name_of(pid_t pid, char name[32])
{
    char path[64];
    FILE *f;

    name[0] = '\0';
    snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    f = fopen(path, "re");
    if (f && fgets(name, 32, f))
        name[strcspn(name, "\n")] = '\0';
    if (f)
        fclose(f);
}

size_t job_app_left(char name[32])
{
    pid_t list[LEFT_MAX];
    size_t n = find(list);

    if (n)
        name_of(list[0], name);
    return n;
}

void job_app_left_signal(int sig, bool sruns)
{
    pid_t list[LEFT_MAX];
    char name[32];

    for (size_t i = 0, n = find(list); i < n; i++) {
        name_of(list[i], name);
        if ((strcmp(name, "srun") == 0) == sruns)
            (void)kill(list[i], sig);
    }
}
