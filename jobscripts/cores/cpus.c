/*
 * Keeping processes to CPUs (see cpus.h). Called by the agent for itself, whose children inherit it, by fp-job confine for tasks of the application, and by what
 * else of fp-job stays on a node beside these.
 *
 * sched_setaffinity and not cpusets: a user's job may not make these on most machines. A task could change its mask again; programs that do, bind threads
 * one to a core within what they were given.
 */
#include "jobscripts/cores/cpus.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#define PASSES 16u /* over the threads of a process that makes new ones all the time */

static hwloc_bitmap_t parse(const char *list)
{
    hwloc_bitmap_t b = hwloc_bitmap_alloc();

    if (b && list[0] && hwloc_bitmap_list_sscanf(b, list) == 0 && !hwloc_bitmap_iszero(b) && hwloc_bitmap_last(b) >= 0 && hwloc_bitmap_last(b) < (int)JOB_CPUS_MAX)
        return b;
    hwloc_bitmap_free(b);
    return NULL;
}

/* 1: it may run where it could not before, or no more where it could; 0: it is as it was. */
static int confine(pid_t tid, hwloc_const_bitmap_t b)
{
    size_t size = CPU_ALLOC_SIZE(JOB_CPUS_MAX);
    cpu_set_t *before = CPU_ALLOC(JOB_CPUS_MAX), *now = CPU_ALLOC(JOB_CPUS_MAX), *want = CPU_ALLOC(JOB_CPUS_MAX);
    int rc = before && now && want ? 0 : -ENOMEM;

    if (rc == 0) {
        CPU_ZERO_S(size, want);
        for (int i = hwloc_bitmap_first(b); i >= 0; i = hwloc_bitmap_next(b, i))
            CPU_SET_S((size_t)i, size, want);
        if (sched_getaffinity(tid, size, before) < 0)
            rc = -errno;
    }
    if (rc == 0) {
        CPU_AND_S(size, now, before, want);
        if (sched_setaffinity(tid, size, CPU_COUNT_S(size, now) ? now : want) < 0)
            rc = -errno;
        else
            rc = !CPU_EQUAL_S(size, now, before);
    }
    CPU_FREE(before);
    CPU_FREE(now);
    CPU_FREE(want);
    return rc;
}

int job_cpus_confine(pid_t pid, const char *list)
{
    hwloc_bitmap_t b = parse(list);
    int rc = b ? confine(pid, b) : -EINVAL;

    hwloc_bitmap_free(b);
    return rc < 0 ? rc : 0;
}

/* Once each. More than 0: some were not confined yet, and may have made others since. */
static int confine_threads(pid_t pid, hwloc_const_bitmap_t b)
{
    char path[64];
    int news = 0, rc = 0;
    DIR *d;

    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    d = opendir(path);
    if (!d)
        return errno == ENOENT ? -ESRCH : -errno;
    for (struct dirent *e; rc >= 0 && (e = readdir(d));) {
        rc = isdigit((unsigned char)e->d_name[0]) ? confine((pid_t)atoi(e->d_name), b) : 0;
        if (rc == -ESRCH) /* that thread has ended */
            rc = 0;
        news += rc > 0;
    }
    closedir(d);
    return rc < 0 ? rc : news;
}

int job_cpus_confine_all(pid_t pid, const char *list)
{
    hwloc_bitmap_t b = parse(list);
    int rc = b ? 1 : -EINVAL;

    for (unsigned i = 0; rc > 0 && i < PASSES; i++)
        rc = confine_threads(pid, b);
    hwloc_bitmap_free(b);
    return rc < 0 ? rc : 0;
}

/* Without `but`; NULL: all. */
static int list_here(hwloc_const_bitmap_t but, char *out, size_t size)
{
    cpu_set_t *now = CPU_ALLOC(JOB_CPUS_MAX);
    hwloc_bitmap_t b = hwloc_bitmap_alloc();
    int rc = !now || !b ? -ENOMEM : sched_getaffinity(0, CPU_ALLOC_SIZE(JOB_CPUS_MAX), now) < 0 ? -errno : 0;

    for (unsigned i = 0; rc == 0 && i < JOB_CPUS_MAX; i++)
        if (CPU_ISSET_S(i, CPU_ALLOC_SIZE(JOB_CPUS_MAX), now))
            hwloc_bitmap_set(b, i);
    if (rc == 0 && but)
        hwloc_bitmap_andnot(b, b, but);
    if (rc == 0 && hwloc_bitmap_iszero(b))
        rc = -ENOENT;
    if (rc == 0 && hwloc_bitmap_list_snprintf(out, size, b) >= (int)size)
        rc = -ENOBUFS;
    hwloc_bitmap_free(b);
    CPU_FREE(now);
    return rc;
}

int job_cpus_here(char *out, size_t size)
{
    return list_here(NULL, out, size);
}

int job_cpus_others(const char *theirs, char *out, size_t size)
{
    hwloc_bitmap_t b = parse(theirs);
    int rc = b ? list_here(b, out, size) : -EINVAL;

    hwloc_bitmap_free(b);
    return rc;
}
