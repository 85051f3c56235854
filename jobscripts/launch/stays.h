/* What a program that stays behind when fp-job ends must not get of ours. One thread. */
#ifndef JOB_STAYS_H
#define JOB_STAYS_H

#include <stddef.h>

#define JOB_STAYS_FDS 1024u

struct job_stays {
    char **environment, **copy; /* ours; the one that is changed meanwhile */
    int fd[JOB_STAYS_FDS];      /* ours alone meanwhile */
    size_t nfds;
};

/*
 * Until job_stays_end, programs that are started get none of the descriptors from 3 on, and what is changed of the environment is changed for them alone: the
 * user's lock on a descriptor would else be held, and his pipe be open, until the job ends, and what is unset for srun would be missing in the application.
 * Out of memory aborts: called at the start of a job alone.
 */
void job_stays_begin(struct job_stays *s);
void job_stays_end(struct job_stays *s);

#endif
