/*
 * Whether Slurm itself leaves cores of this job's nodes to it, out of its cpuset (see spank_fp.h). Called by the prolog, as root.
 *
 * What sbatch was called with proves nothing: it is the user's word, and where AllowSpecResourcesUsage is off, Slurm drops --core-spec, and the CPUs outside of the
 * job's cpuset are another job's. So root asks the controller for the job's record. Not by scontrol or squeue: what those print has words of the user's in it,
 * such as the job's name, or is of all tasks of an array.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <slurm/slurm.h>

#include "jobscripts/spank/spank_fp.h"

struct job_of {
    uint32_t job;
    uid_t uid;
};

/* Nobody else may be on the nodes: Slurm sees to that with --core-spec, and this is what all that runs outside of the cpuset depends on. */
static bool is_left_out(const slurm_job_info_t *j)
{
    return j->core_spec != 0 && j->core_spec != NO_VAL16 && !(j->core_spec & CORE_SPEC_THREAD) && j->shared == JOB_SHARED_NONE;
}

/* In a child: what it needs of Slurm's libraries is set up there, and may end the process. */
static int look(const void *arg, uint32_t *out)
{
    const struct job_of *o = arg;
    job_info_msg_t *all = NULL;

    *out = 0;
    slurm_init(NULL);
    if (slurm_load_job(&all, o->job, 0) != SLURM_SUCCESS || !all)
        return -EIO;
    for (uint32_t i = 0; i < all->record_count; i++)
        if (all->job_array[i].job_id == o->job && all->job_array[i].user_id == o->uid && is_left_out(&all->job_array[i]))
            *out = all->job_array[i].core_spec;
    return 0;
}

int spank_fp_cores_left_out(uint32_t job, uid_t uid, uint64_t limit_ms, uint32_t *out)
{
    const struct job_of of = {.job = job, .uid = uid};

    return spank_fp_ask(look, &of, limit_ms, out);
}
