/* The job that we are in, as Slurm's variables and commands say. Blocks for some seconds when its controller does not answer. */
#ifndef JOB_SLURM_H
#define JOB_SLURM_H

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#include "jobscripts/launch/alloc.h"

/* Number, nodes and this machine, of a job that SLURM_JOB_ID and SLURM_JOB_NODELIST name. 0, or negative and logged: its nodes can't be told. */
int job_slurm_look(struct job_alloc *out);

#define JOB_SLURM_NAME_MAX 96u
#define JOB_SLURM_STEP_MAX 32u

/*
 * The name of a job for Slurm's commands. To them the number of the last task of an array, which is that of the array itself, means all tasks of it; 12_3 is one
 * alone. By the variables of the job that we are in.
 */
void job_slurm_name(const char *job, char out[JOB_SLURM_NAME_MAX]);

/* Milliseconds to the job's end; UINT64_MAX: it has none. 0, or negative: Slurm does not say, and *out is UINT64_MAX. */
int job_slurm_left_ms(const char *job, uint64_t *out);

/* "1-02:03:04", "02:03:04", "3:04", "UNLIMITED" in milliseconds; UINT64_MAX: no such time. Pure. */
uint64_t job_slurm_time(const char *text);
/* What squeue prints for "%L %M %l" (left, used, limit), as job_slurm_left_ms says it. Past its limit a job has a time left that squeue calls INVALID. Pure. */
int job_slurm_left_of(const char *text, uint64_t *out);

/* The batch script of the job, the caller's: as the controller says, or, if it does not answer, as it is on this node, where it runs. 0, or negative and logged. */
int job_slurm_script(const char *job, char **out);

/* fp-job clean of this job on nodes of it, by names with commas between; 0, or it did not run on all. */
int job_slurm_clean(const char *job, const char *nodes, uint32_t count);

/* The step whose task has called us, by the processes above: "3"; "" in a batch script, and outside of jobs. *tasks: how many it has; of srun, or of mpirun within it. */
void job_slurm_task(char step[JOB_SLURM_STEP_MAX], unsigned *tasks);
/* The step that this process of this node is in; "" as above. */
void job_slurm_step_of(pid_t pid, char step[JOB_SLURM_STEP_MAX]);

/* How many steps of the job run, but that of the agents and that of the caller ("": it is in none); *steps: their names, each with a newline, to be freed; NULL: none. One that has just ended may be among them.
 * Negative: Slurm does not say. Blocks, 5 s at most. */
int job_slurm_steps(const char *job, const char *ours, const char *callers, char **steps);

/* A signal to the step of the agents; nothing is waited for. */
void job_slurm_signal(const char *job, const char *step, const char *signal);

#endif
