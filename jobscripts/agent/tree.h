/*
 * The agents of a job's nodes as a tree, and what is known of each node. No I/O, no clock; one thread.
 *
 * Rank 0 is the root; every other one has a parent, so that no agent talks to more than JOB_FANOUT others, whatever the size of the job.
 */
#ifndef JOB_TREE_H
#define JOB_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JOB_FANOUT         32u
#define JOB_STATES         8u   /* of enum Fp__JobNodeState */
#define JOB_TEXT_BYTES_MAX 600u /* of a node: longer ones are cut */

/* Of a rank > 0. */
uint32_t job_tree_parent(uint32_t rank, uint32_t fanout);
/* The one above `above` on the way from rank to the root, which is above itself. */
uint32_t job_tree_climb(uint32_t above, uint32_t fanout);
/* How many ranks lie between rank and the root. */
uint32_t job_tree_depth(uint32_t rank, uint32_t fanout);

struct job_node {
    uint8_t state; /* enum Fp__JobNodeState */
    bool fresh;    /* not told yet */
    char *text;    /* NULL: "" */
};

struct job_states {
    uint32_t n;
    uint32_t of[JOB_STATES]; /* nodes in each state */
    struct job_node *nodes;
};

/* Nodes of consecutive ranks, of which the same is to be said. text: borrowed, until the next job_states_set */
struct job_run {
    uint32_t first, count;
    int state;
    const char *text;
};

int job_states_init(struct job_states *s, uint32_t n); /* 0, -ENOMEM */
void job_states_fini(struct job_states *s);

/* What is known of `count` nodes from rank first on. What is beyond the job, or no state, is passed over; who has ended stays so. True: something is new. */
bool job_states_set(struct job_states *s, uint32_t first, uint32_t count, int state, const char *text);

/* The next run at or behind *at that is fresh (or, all: of which anything is known), which is not fresh then; *at goes behind it. False: none. */
bool job_states_next(struct job_states *s, uint32_t *at, bool all, struct job_run *out);

#endif
