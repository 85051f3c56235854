/*
 * What a job's store has left in the environment, for whoever must not take it for its own: sbatch gives all variables of a job to those that it submits.
 *
 * Needs nothing else of ours, since the SPANK plugin links it, too.
 */
#ifndef JOB_INHERITED_H
#define JOB_INHERITED_H

#include <limits.h>

#define JOB_CORES_FILE "cores.xml" /* in a job's directory: what is left of the node for its application (coremap.h) */

/*
 * Open MPI from 5 on starts nothing where it would have to bind more ranks than it sees cores, and Slurm's slots count the service cores, too: then ranks share cores,
 * as earlier ones let them. What the user says of binding counts.
 */
#define JOB_BINDING_VARIABLE "PRTE_MCA_hwloc_default_binding_policy"
#define JOB_BINDING_OURS     ":overload-allowed"

#define JOB_INHERITED_MAX 11u

struct job_inherited {
    unsigned n;
    struct {
        const char *name;
        char value[PATH_MAX]; /* as it was before the store; "": not set */
    } of[JOB_INHERITED_MAX];
};

/* Which of them are set, and by a store: what the user or the site has given by these names stays, and comes back where the store has put its own before it. */
void job_inherited_find(struct job_inherited *out);

/* Takes them out of our environment. */
void job_inherited_forget(const struct job_inherited *i);

/* The description of the node alone (HWLOC_XMLFILE): this machine is to be looked at as it is. */
void job_inherited_forget_cores(void);

/* What mpirun would start: as the user has set it. NULL: what it does by itself. */
const char *job_inherited_agent(const char *variable);

#endif
