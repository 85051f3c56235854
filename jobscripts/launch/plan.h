/*
 * What an agent is told when it is started: by its standard input, or by variables (plan_env.c), since the arguments of a process can be read by others.
 *
 * One line of JSON, then the #FP lines of the script as they stand there: the agent reads them with the same functions as fp-job check.
 */
#ifndef JOB_PLAN_H
#define JOB_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JOB_NODES_MAX      100000u
#define JOB_NODE_NAME_MAX  255u
#define JOB_PLAN_BYTES_MAX (32u << 20)
#define JOB_PORTS          8u /* an agent listens on the first free one of so many */

struct job_plan {
    char *job;       /* its number; letters, digits and _.- */
    char *starter;   /* HOST:PORT of who is above the root */
    char *auxapp_dir;
    char **nodes;    /* by rank; NULL: their number alone is told, and the batch system of the agent's node names them */
    uint32_t nnodes, fanout;
    uint16_t port;   /* the first of JOB_PORTS */
    char key[65];    /* 64 hexadecimal digits */
    bool guarded;    /* nobody keeps the agents but who has started them (guard.c), and nothing brings the environment along */
    bool tree;       /* each agent starts those below it, by ssh */
    char *cwd;       /* of who has called fp-job: of relative paths */
    char *naming;    /* where the directory of mount= is named as text, as "job.sh:4:11"; "": nowhere, and the store may be elsewhere */
    char *shared;    /* a file that is there if the node has the directory that is drained to (shared.h); "": none */
    bool entered;    /* all that the job runs sees the store where it is mounted in a user namespace (enter.h) */
    char **variables; /* NAME=VALUE, of where fp-job was called; for nodes on which NAME has no value */
    uint32_t nvariables;
    char *lines;     /* of the script */
};

/* The first of its paths that is no UTF-8, as all that agents are told has to be; NULL: none. */
const char *job_plan_strange(const struct job_plan *p);
/* A new text, NUL-terminated; to be wiped by explicit_bzero, since the key is in it. NULL: no memory. */
char *job_plan_write(const struct job_plan *p);
/* 0; -EBADMSG: it is none; -ENOMEM. */
int job_plan_read(const char *text, struct job_plan *out);
void job_plan_fini(struct job_plan *p);

/* plan_env.c: the text in variables of our environment, by their numbers from 0 on, at most JOB_PLAN_PIECES. -E2BIG: it is too long; -ENOMEM. */
#define JOB_PLAN_PIECES 20u
void job_plan_variable(unsigned i, char name[32]);
int job_plan_to_environment(const char *text);
/* The text that is in them, which are wiped. NULL: there is none, or no memory. */
char *job_plan_from_environment(void);

/* May it be the name of a node? An address of IPv6 as in address.h, too. */
bool job_plan_is_node(const char *name);

/* The first of JOB_PORTS where the agents of a job may listen, apart from where systems give ports by themselves: another one at each call, so agents have it from the plan. */
uint16_t job_plan_port(void);

#endif
