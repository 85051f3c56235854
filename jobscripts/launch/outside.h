/*
 * The agent of a node outside of the job's CPUs: with --core-spec, Slurm leaves cores out of the cpuset of a job, and no process of the job can run there.
 *
 * So the prolog starts a helper on each node, as the user, and fp-job node, which is a task of the job and told what to do, hands over what it has: the helper
 * runs fp-job node in its place. For all others nothing is different: signals reach the task, and it ends when the agent does.
 */
#ifndef JOB_OUTSIDE_H
#define JOB_OUTSIDE_H

#include <stdbool.h>

/* CPUs of the job on this node, in the environment of an agent that runs outside of them. */
#define JOB_OUTSIDE_CPUS "FP_JOB_CPUS"
/* How many cores of the node Slurm leaves out of the job, in its environment and that of the helper: from the prolog (spank_fp.h). */
#define JOB_OUTSIDE_CORES "FPSTORE_CORE_SPEC"

/* Is there a helper for this job that nobody has called yet? */
bool job_outside_waits(const char *job);
/* Calls it, and returns what fp-job node ended with there. Negative and logged: it did not work, and nothing runs there. */
int job_outside_run(const char *job);
/* Ends the helper of a job at once, if there is one; what it has started ends, too, or is ended by its note (left.h). */
void job_outside_end(const char *dir);

#endif
