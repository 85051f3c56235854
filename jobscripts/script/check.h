/* What can be known of a batch script before it is queued, beyond its words: plugins, their order, the nodes, directories. */
#ifndef JOB_CHECK_H
#define JOB_CHECK_H

#include <stdint.h>

#include "jobscripts/script/declared.h"

struct job_site {
    const char *plugin_dir;
    uint32_t nodes;     /* of the job; 0: not known */
    uint32_t cores;     /* of its smallest node; 0: not known */
    uint32_t cpus;      /* hardware threads, likewise */
    uint32_t most_cpus; /* ... of its largest one */
    const struct job_sbatch *sbatch; /* what the script says to Slurm; NULL: not looked at */
    bool words;         /* neither directories nor plugins given by their paths are looked at: this is not their user, or not a machine that has them */
    uint32_t core_spec; /* cores of each node that Slurm leaves out for services; 0: none */
    bool unseen;        /* the script can't be read, and what is declared comes from options alone */
    bool cores_are_here; /* ... since nobody says what nodes the job gets, this machine was looked at */
};

void job_check(const struct job_declared *d, const struct job_site *site, struct job_findings *f);

#define JOB_ANSWER_MS 10000u /* of a file system, for one directory */
/* Is what a pattern names looked at within limit_ms? -ETIMEDOUT: its file system hangs; other errors of fork. Whether there is such a file is not said. */
int job_answers(const char *pattern, uint64_t limit_ms);

#endif
