/*
 * Starting the agents of a job on all nodes, asking them, and ending them: what fp-job start, run, status and stop have in common.
 *
 * Functions block, each with a limit, and log what fails.
 */
#ifndef JOB_LAUNCH_H
#define JOB_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include "jobscripts/launch/alloc.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/agent/tree.h"

struct job_launch {
    const struct job_alloc *alloc;
    bool stays;             /* the caller stays until the end of the store, and when it is gone, the store ends */
    int starting;           /* the caller's lock while it starts a store, which nobody else is to keep */
    const char *dir;        /* job_dir_path; the key is in it */
    const char *lines;      /* text of the script */
    const char *auxapp_dir;
    const char *naming;     /* struct job_plan */
    const char *shared;     /* the same */
    bool entered;           /* the same */
    const char *ssd;        /* ssd=, as it is written */
    uint64_t ready_ms;
};

/* Returns when all nodes are ready; *out says how to find them. Negative: one is not, which is logged for each, and what was started has been ended. */
int job_launch(const struct job_launch *l, struct job_record *out);

/* What the user has set for steps of his own is not for ours: it is forgotten. (stays.h: for one program alone) */
void job_launch_environment(void);

/* What the root knows of all nodes; *out: job_states_fini. */
int job_launch_ask(const char *dir, const struct job_record *r, struct job_states *out);

/* Tells all agents that nothing of a store is to be kept (on-failure=keep), and waits until they know. Negative: some may keep it, which is logged. */
int job_launch_discard(const char *dir, const struct job_record *r);

/* Tells all agents to end, and waits until they have. -ETIMEDOUT: they were killed. soon: they are about to end by themselves, as their programs have. */
int job_launch_end(const char *dir, const struct job_record *r, bool soon);

#endif
