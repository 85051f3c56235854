/* What the plugin of an aux-app says about a declaration: asked before the job is queued. */
#ifndef JOB_AUXCHECK_H
#define JOB_AUXCHECK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define JOB_AUX_WHY_BYTES 768u

struct job_auxanswer {
    char name[32];             /* the plugin's own, which need not be that of its file */
    uint32_t flags;            /* FP_AUX_CODES, FP_AUX_HIDES, ... */
    uint32_t cores_min, nodes; /* cores=, nodes= of the declaration; 0: not given */
    bool sees_chunks;
    bool required;             /* as declared, or by itself (FP_AUX_REQUIRED) */
    bool by_path;              /* not by its name in the plugin directory, where everybody finds it */
};

/*
 * Loads it in a process of its own, which may crash or hang: 0, or negative and a line in why (-ENOENT: no such plugin, -EINVAL: an option, -ETIMEDOUT,
 * -ELIBBAD: it crashed or is none, others of starting a process). Blocks for limit_ms
 * at most.
 */
int job_auxcheck(const char *declaration, const char *plugin_dir, uint64_t limit_ms, struct job_auxanswer *out, char why[JOB_AUX_WHY_BYTES]);

/* The same without waiting for it: a question that was begun. */
struct job_auxask {
    pid_t pid;
    int fd;
    uint64_t limit_ms, until_ms;
};

/* 0, or negative and a line in why. */
int job_auxask_begin(const char *declaration, const char *plugin_dir, uint64_t limit_ms, struct job_auxask *out, char why[JOB_AUX_WHY_BYTES]);
/* Waits for wait_ms at most, 0: not at all. True: *rc is what job_auxcheck would return, and the question is over. */
bool job_auxask_hear(struct job_auxask *a, uint64_t wait_ms, int *rc, struct job_auxanswer *out, char why[JOB_AUX_WHY_BYTES]);

/*
 * nodes=: it runs on the last so many of the job's nodes, as service cores are the last ones of a node: the first has the manager. Where it does not run,
 * data does not pass it. True: this node is one of them.
 */
bool job_aux_runs_on(const struct job_auxanswer *a, uint32_t rank, uint32_t nnodes);
/* NULL, or why it may not run on some of the nodes alone, as it is declared for a job of so many: static text. */
const char *job_aux_partial_why(const struct job_auxanswer *a, uint32_t nnodes);

#endif
