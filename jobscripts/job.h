/* The commands of fp-job, and their options. */
#ifndef JOB_JOB_H
#define JOB_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "fp/opt.h"

struct job_options {
    int command;
    const char *script;        /* NULL: not given; of status, the job */
    int64_t nodes, node_cores; /* 0: not given */
    const char *auxapp_dir;    /* NULL: not given */
    int64_t pid, exit_code;
    uint64_t timeout_ms;       /* of stop and run, for bringing data out */
    uint64_t stall_ms;         /* of stop and run: so long it may stand still */
    const char *cpus;
    bool words;                /* of check */
    bool here, json, lines;    /* of status, hidden, and doctor: this node alone */
    const char *ssd, *peer;    /* of doctor and clean; peer: of doctor, NULL: not given */
    bool kept;                 /* of clean */
    const char *named;         /* of clean; NULL: not given */
    const char *directives;    /* of options of sbatch (script.h); NULL: none */
    const char *sbatch;        /* what sbatch was called with, a line for each word; NULL: not said */
    bool plugin;               /* called by the SPANK plugin in the place of the batch script */
    bool front;                /* of node, hidden */
    const char *hosts;         /* NULL: not given */
    char **host_names;         /* what it says (nodes_given.h); NULL: not given, or not read */
    uint32_t nhosts;
    int launcher;              /* 0: by itself */
    int64_t rank;              /* -1: not given */
    int64_t fanout;
    char *const *argv;         /* of run and daemon: the command, NULL-terminated; NULL: not given */
    int log_level;
};

/* 0, or negative: it failed and has said so; of stop and run, an exit code of the application's. */
int job_cmd_check(const struct job_options *o);
int job_cmd_explain(const struct job_options *o);
int job_cmd_start(const struct job_options *o);
int job_cmd_stop(const struct job_options *o);
int job_cmd_run(const struct job_options *o);
int job_cmd_status(const struct job_options *o);
int job_cmd_doctor(const struct job_options *o);
int job_cmd_clean(const struct job_options *o);
/* Those that fp-job itself calls, or has others call: the agent of a node (node.h), keeping a process to CPUs, whose end is the store's, mpirun's daemons. */
int job_cmd_node(const struct job_options *o);
int job_cmd_wait(const struct job_options *o); /* outside.h */
int job_cmd_confine(const struct job_options *o);
int job_cmd_owner(const struct job_options *o);
int job_cmd_daemon(const struct job_options *o);
/* Under the name of fp-task-prolog, without options. */
int job_cmd_prolog(void);

#endif
