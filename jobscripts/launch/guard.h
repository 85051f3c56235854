/* Who looks after the agents of a job that no batch system keeps, or that are to end with fp-job run. */
#ifndef JOB_GUARD_H
#define JOB_GUARD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "jobscripts/jobdir.h"
#include "jobscripts/launch/launch.h"

/* How a process that has launched the agents stays with them. Called on its loop. */
struct job_stay {
    int (*begun)(const struct job_record *r, void *arg); /* all nodes are ready; negative: nobody wants them any more */
    bool (*over)(void *arg);                             /* is it time to end them? Each fifth of a second */
    void *arg;
};

/* As job_launch, by a process of its own that stays until the store has ended. */
int job_guard_launch(const struct job_launch *l, struct job_record *out);

/* launch.c: launches, and stays until all agents have ended. stay: NULL: returns when all are ready. */
int job_launch_and_stay(const struct job_launch *l, const struct job_stay *stay, struct job_record *out);

/* What keeps the agents, from its start on: srun, or the guard. With its end they have ended. 0 or negative errno; false: it is not said. */
int job_guard_launcher(const char *dir, pid_t pid);
bool job_guard_launcher_of(const char *dir, pid_t *pid, uint64_t *ticks);

/* The process with whose end the store of dir ends, from now on. 0 or negative errno. */
int job_guard_owner(const char *dir, pid_t pid);

/* Who that is; false: nobody has said so. It may have ended. */
bool job_guard_owner_of(const char *dir, pid_t *pid, uint64_t *ticks);

#endif
