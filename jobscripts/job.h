/* The commands of fp-job, and their options. */
#ifndef JOB_JOB_H
#define JOB_JOB_H

#include <stdint.h>

#include "fp/opt.h"

struct job_options {
    int command;
    const char *script;
    int64_t nodes, node_cores; /* 0: not given */
    const char *auxapp_dir;    /* NULL: not given */
    int log_level;
};

/* 0, or it failed and has said so. */
int job_cmd_check(const struct job_options *o);

#endif
