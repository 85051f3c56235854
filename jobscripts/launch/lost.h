/* Nodes of a job whose agents are gone, and which are cleaned by a step of their own when the others have ended. Functions block, each with a limit. */
#ifndef JOB_LOST_H
#define JOB_LOST_H

#include "jobscripts/start.h"

struct job_lost {
    char *names;   /* with commas between; NULL: none */
    size_t len, room;
    uint32_t n;
};

/* Asks the root of the agents, which is still there. all: it is not, or did not end in time, and it is not known which they are. */
void job_lost_find(const struct job_run_of *r, struct job_lost *out);
void job_lost_all(const struct job_run_of *r, struct job_lost *out);
/* Frees it. Says on which nodes something may be left. */
void job_lost_clean(const struct job_run_of *r, struct job_lost *l);

#endif
