/*
 * Which cores of a node are service cores: FP(X,Y) of the paper (section III.A), X of its Y cores. By topology (hwloc): whole cores with all their hardware
 * threads, near what the services work with. One thread.
 */
#ifndef JOB_COREMAP_H
#define JOB_COREMAP_H

#include <hwloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "jobscripts/script/declared.h"

#define JOB_COREMAP_WHY_BYTES 256u
#define JOB_CPULIST_BYTES     4096u

struct job_coremap {
    uint32_t cores, cpus;        /* that this process may use; a core of two hardware threads counts once */
    uint32_t service_cores;
    char service[JOB_CPULIST_BYTES];     /* CPUs as Linux numbers them: 0,2-5. "": none */
    char application[JOB_CPULIST_BYTES]; /* the others */
    char near[64];               /* why these: "NUMA node 1, of nvme0n1"; "": the last ones */
};

/* What the services work with, where it is known: they are put on cores of its NUMA node. -1: not known. */
struct job_near {
    int numa;
    char what[48];
};

/* The NUMA node of the device that dir is on; of the fast network's card if that is not known. */
void job_near_find(hwloc_topology_t topology, const char *dir, struct job_near *out);

/*
 * The NUMA node of a block device, as sysfs (mounted at sys) says; of a partition that of its disk, of a RAID or a logical volume that of the first that it lies
 * on. name: of the device that was found so. -1: not known.
 */
int job_near_device(const char *sys, dev_t dev, char *name, size_t size);

/*
 * Chooses from what the topology allows (hwloc_topology_get_allowed_cpuset). 0; -ENOSPC: nothing would be left for the application, or the share of the node
 * that the job has holds less; -EINVAL: a CPU of list= is not there; -ENOBUFS: lists of the CPUs are too long. why then has a line.
 */
int job_coremap_choose(hwloc_topology_t topology, const struct job_cores *want, const struct job_near *near, struct job_coremap *out, char why[JOB_COREMAP_WHY_BYTES]);

/* The same where Slurm has left this many cores out of the job (--core-spec): these. job_cpus: what the job has. -ENOENT: it has all; -EPERM: it lacks more, which may
 * be another job's. */
int job_coremap_outside(hwloc_topology_t topology, const struct job_cores *want, const char *job_cpus, uint32_t left_out, struct job_coremap *out, char why[JOB_COREMAP_WHY_BYTES]);

/* What is left of it for the application, as a file that hwloc reads (HWLOC_XMLFILE): programs that look for cores by themselves, as mpirun does, find no
 * others. 0, or negative errno. */
int job_coremap_write(hwloc_topology_t topology, const struct job_coremap *m, const char *path);

/* This machine, with I/O devices, whatever a job has told its application of it. NULL: hwloc can't say. The caller destroys it. */
hwloc_topology_t job_topology_here(void);

/*
 * Takes CPUs out of it that this process may not run on. Where Slurm confines jobs without control groups, the mask that it gives to the tasks of a step, also to
 * those with --cpu-bind=none, is all that says which of a shared node's CPUs are the job's. 0, or negative errno.
 */
int job_topology_keep_own(hwloc_topology_t t);

#endif
