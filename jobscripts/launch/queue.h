/* What Slurm says of any job of a site, for who asks how its store is. Blocks for some seconds when its controller does not answer. */
#ifndef JOB_QUEUE_H
#define JOB_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum job_phase { JOB_WAITS, JOB_RUNS, JOB_OVER };

struct job_queued {
    char name[64];    /* as squeue has it: 12, 12_3 of an array */
    char job[24];     /* its own number, SLURM_JOB_ID in it */
    char user[64];
    uid_t uid;
    char state[64];   /* PENDING, RUNNING, TIMEOUT ... */
    enum job_phase phase;
    char first[256];  /* of jobs that run: where the batch script does, or who has called salloc */
    bool outside;     /* first is none of its nodes */
    char begin[64];   /* of jobs that wait: when Slurm thinks that it begins; "": it does not know */
    char reason[128]; /* of jobs that wait: why */
};

#define JOB_QUEUE_WHY_BYTES 512u

/*
 * 0; -ENOENT: Slurm does not know it, or not any more; -ENOSYS: there is no Slurm; -EINVAL: it is an array, and of which task is not said; others: Slurm does not
 * answer. why then has a line.
 */
int job_queue_find(const char *asked, struct job_queued *out, char why[JOB_QUEUE_WHY_BYTES]);

/* What of it reads lines of squeue. 0, -ENOENT or -EINVAL as above. Pure. */
int job_queue_choose(char *text, const char *asked, struct job_queued *out, char why[JOB_QUEUE_WHY_BYTES]);

#endif
