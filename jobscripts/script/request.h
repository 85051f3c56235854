/* A script, and the nodes that it would get: what every command of fp-job begins with. */
#ifndef JOB_REQUEST_H
#define JOB_REQUEST_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "jobscripts/script/declared.h"
#include "jobscripts/job.h"
#include "jobscripts/script/sbatch.h"

#define JOB_NODETYPES_MAX 32u

/* Nodes of one shape. */
struct job_nodetype {
    uint32_t sockets, cores, threads; /* cores of a socket, hardware threads of a core */
    uint32_t nodes;
    char first[64];                   /* name of one of them */
};

struct job_request {
    struct job_declared declared;
    struct job_findings findings;
    struct job_sbatch sbatch;
    uint32_t nodes;                   /* 0: not known */
    struct job_nodetype types[JOB_NODETYPES_MAX];
    size_t ntypes, more_types;        /* more_types: not in the list */
    uint32_t least_cores;             /* of the smallest node; 0: not known */
    uint32_t least_cpus;              /* hardware threads of the node that has the fewest, as Linux counts them; 0: not known */
    uint32_t most_cpus;               /* ... that has the most */
    bool nodes_are_here;              /* nobody says what nodes there are, so this machine was looked at, and there are no types */
    char plugin_dir[PATH_MAX];
    char name[PATH_MAX];              /* of the script, for findings */
};

/* The script of the options, or that of the Slurm job that this is called in. Blocks for some seconds when Slurm's controller does not answer. 0, or negative and logged: the script can't be read. */
int job_request_read(const struct job_options *o, struct job_request *out);
void job_request_fini(struct job_request *r);

/* "name|sockets|cores|threads" a line, as sinfo prints it; for tests. */
void job_request_types(const char *text, struct job_request *r);

#endif
