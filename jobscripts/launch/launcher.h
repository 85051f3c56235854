/* What starts the agents of a job on its nodes: one row for each way. */
#ifndef JOB_LAUNCHER_H
#define JOB_LAUNCHER_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jobscripts/launch/alloc.h"

#define JOB_LAUNCHER_WORDS 72u

/* A command line; its words are borrowed from text, or constant. */
struct job_words {
    const char *argv[JOB_LAUNCHER_WORDS];
    unsigned n;
    char text[4 * PATH_MAX]; /* of words that are made */
    size_t used;
};

struct job_launcher {
    const char *name;
    bool kept; /* a batch system ends what it has started with the job, so nobody has to stay and look after it */
    bool tree; /* it starts the root alone; each agent starts those below it */
    bool named; /* agents are told the nodes of the job by the batch system, which has its own way to tell many: not by us */
    bool variables; /* agents are told by variables of the environment, not by standard input */
    /* The command that starts agents; what they must know is in the environment already, if it is to be. self: this program. 0, or negative and logged. */
    int (*launch)(const struct job_alloc *a, const char *dir, const char *self, struct job_words *out);
};

/* The row of this name; NULL: none. */
const struct job_launcher *job_launcher_named(const char *name);

/* --launcher, else srun in a job of Slurm with its own nodes, else what is installed: ssh, then mpirun. 0, or negative and logged. */
int job_launcher_choose(const struct job_options *o, struct job_alloc *a);

/* srun with its options for a task on each node of a job of Slurm, without what it is to run. 0; -ENAMETOOLONG. */
int job_launcher_srun(const struct job_alloc *a, struct job_words *out);

/* The agent of rank on host, by ssh; what an agent does for those below it. 0; -ENAMETOOLONG. */
int job_launcher_ssh(const char *host, uint32_t rank, const char *self, struct job_words *out);

#endif
