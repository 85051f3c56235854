/*
 * What the script's own #SBATCH lines say of nodes, tasks and time: read here since fp-job check is called before Slurm has seen them. Pure.
 *
 * A handful of options, strictly: a value that sbatch would refuse is a mistake; other options are Slurm's to refuse.
 */
#ifndef JOB_SBATCH_H
#define JOB_SBATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "jobscripts/script/findings.h"

#define JOB_SCRIPT_BOM "\xef\xbb\xbf" /* as some editors put it before a text */

struct job_sbatch {
    uint32_t core_spec;  /* --core-spec; 0: none */
    uint32_t nodes;      /* -N 4, --nodes=4-8: the least; 0: they don't say */
    char partition[256]; /* "": not said, or too long; several have commas between */
    uint32_t node_tasks, task_cpus; /* --ntasks-per-node, --cpus-per-task; 0: they don't say */
    struct job_place node_tasks_at, task_cpus_at; /* of the values; line 0: not in the script */
    uint64_t time_s;     /* --time; 0: it does not say, or there is no limit */
    bool overcommit;     /* -O: more tasks than CPUs are meant */
};

/* text: the whole script. Mistakes are in f, if that is not NULL. */
void job_sbatch_read(const char *text, struct job_sbatch *out, struct job_findings *f);
/* What sbatch was called with, a line for each word: it counts more than what *out has, and sbatch has read it. */
void job_sbatch_call(const char *words, struct job_sbatch *out);

#endif
