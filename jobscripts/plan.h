/*
 * What an agent is told when it is started: by its standard input, since arguments and environment of a process can be read by others.
 *
 * One line of JSON, then the #FP lines of the script as they stand there: the agent reads them with the same functions as fp-job check.
 */
#ifndef JOB_PLAN_H
#define JOB_PLAN_H

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
    char **nodes;    /* by rank */
    uint32_t nnodes, fanout;
    uint16_t port;   /* the first of JOB_PORTS */
    char key[65];    /* 64 hexadecimal digits */
    char *lines;     /* of the script */
};

/* A new text, NUL-terminated; to be wiped by explicit_bzero, since the key is in it. NULL: no memory. */
char *job_plan_write(const struct job_plan *p);
/* 0; -EBADMSG: it is none; -ENOMEM. */
int job_plan_read(const char *text, struct job_plan *out);
void job_plan_fini(struct job_plan *p);

/* Where the agents of a job listen: apart from where systems give ports by themselves, and the same for all. */
uint16_t job_plan_port(const char *job);

#endif
