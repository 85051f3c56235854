/* What the script's own #SBATCH lines say of nodes: read here since fp-job check is called before Slurm has seen them. Pure. */
#ifndef JOB_SBATCH_H
#define JOB_SBATCH_H

#include <stdint.h>

struct job_sbatch {
    uint32_t core_spec;  /* --core-spec; 0: none */
    uint32_t nodes;      /* -N 4, --nodes=4-8: the least; 0: they don't say */
    char partition[256]; /* ""; of several the first */
};

/* text: the whole script. */
void job_sbatch_read(const char *text, struct job_sbatch *out);
/* What sbatch was called with, a line for each word: it counts more than what *out has. */
void job_sbatch_call(const char *words, struct job_sbatch *out);

#endif
