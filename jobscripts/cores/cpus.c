/*
 * Keeping processes to CPUs (see cpus.h). Called by the agent for itself, whose children inherit it, and by fp-job confine for tasks of the application.
 *
 * sched_setaffinity and not cpusets: a user's job may not make these on most machines. A task could change its mask again; programs that do, bind threads
 * one to a core within what they were given.
 */
#include "jobscripts/cores/cpus.h"

#include <errno.h>
#include <hwloc.h>
#include <sched.h>
#include <stdlib.h>

static hwloc_bitmap_t parse(const char *list)
{
    hwloc_bitmap_t b = hwloc_bitmap_alloc();

    if (b && list[0] && hwloc_bitmap_list_sscanf(b, list) == 0 && !hwloc_bitmap_iszero(b) && hwloc_bitmap_last(b) >= 0 && hwloc_bitmap_last(b) < (int)JOB_CPUS_MAX)
        return b;
    hwloc_bitmap_free(b);
    return NULL;
}

int job_cpus_confine(pid_t pid, const char *list)
{
    size_t size = CPU_ALLOC_SIZE(JOB_CPUS_MAX);
    cpu_set_t *now = CPU_ALLOC(JOB_CPUS_MAX), *want = CPU_ALLOC(JOB_CPUS_MAX);
    hwloc_bitmap_t b = parse(list);
    int rc = now && want && b ? 0 : -EINVAL;

    if (rc == 0) {
        CPU_ZERO_S(size, want);
        for (int i = hwloc_bitmap_first(b); i >= 0; i = hwloc_bitmap_next(b, i))
            CPU_SET_S((size_t)i, size, want);
        if (sched_getaffinity(pid, size, now) < 0)
            rc = -errno;
    }
    if (rc == 0) {
        CPU_AND_S(size, now, now, want);
        if (sched_setaffinity(pid, size, CPU_COUNT_S(size, now) ? now : want) < 0)
            rc = -errno;
    }
    hwloc_bitmap_free(b);
    CPU_FREE(now);
    CPU_FREE(want);
    return rc;
}

int job_cpus_here(char *out, size_t size)
{
    cpu_set_t *now = CPU_ALLOC(JOB_CPUS_MAX);
    hwloc_bitmap_t b = hwloc_bitmap_alloc();
    int rc = !now || !b ? -ENOMEM : sched_getaffinity(0, CPU_ALLOC_SIZE(JOB_CPUS_MAX), now) < 0 ? -errno : 0;

    for (unsigned i = 0; rc == 0 && i < JOB_CPUS_MAX; i++)
        if (CPU_ISSET_S(i, CPU_ALLOC_SIZE(JOB_CPUS_MAX), now))
            hwloc_bitmap_set(b, i);
    if (rc == 0 && hwloc_bitmap_list_snprintf(out, size, b) >= (int)size)
        rc = -ENOBUFS;
    hwloc_bitmap_free(b);
    CPU_FREE(now);
    return rc;
}
