/*
 * The agents of a job's nodes as a tree, and what is known of each node. No I/O, no clock; one thread.
 *
 * Who is missed is told from who is only late by the time in which we run ourselves: a process that was stopped, or had no CPU, has heard nobody meanwhile.
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
#define JOB_AGAIN_MS       3000u /* in which an agent comes again whose connection broke, if it is alive */
#define JOB_GONE           "its agent is gone: it was killed, or the node is down"
#define JOB_STEP_MS        1000u /* between two ticks, and the rest was not ours */

/* How long we have run; begins with zeros. */
struct job_ran {
    uint64_t last_ms, ms;
};

/* At each tick. Returns the time, which is never 0. */
uint64_t job_ran_tick(struct job_ran *r, uint64_t now_ms);

/* Of a rank > 0. */
uint32_t job_tree_parent(uint32_t rank, uint32_t fanout);
/* The one above `above` on the way from rank to the root, which is above itself. */
uint32_t job_tree_climb(uint32_t above, uint32_t fanout);
/* How many ranks lie between rank and the root. */
uint32_t job_tree_depth(uint32_t rank, uint32_t fanout);

struct job_node {
    uint8_t state; /* enum Fp__JobNodeState */
    bool fresh;    /* not told yet */
    bool missed;   /* its connection broke at missed_ms of our own time (of 49 days) */
    uint32_t missed_ms;
    char *text;    /* NULL: "" */
};

struct job_states {
    uint32_t n;
    uint32_t of[JOB_STATES]; /* nodes in each state */
    uint32_t missed;
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

/* Its connection broke, and it is no failure unless it stays away; it talks to us again; those that have stayed away have failed, for this reason (true: something is new). */
void job_states_miss(struct job_states *s, uint32_t rank, uint64_t ran_ms);
void job_states_back(struct job_states *s, uint32_t rank);
bool job_states_give_up(struct job_states *s, uint64_t ran_ms, const char *text);

/* The next run at or behind *at that is fresh (or, all: of which anything is known), which is not fresh then; *at goes behind it. False: none. */
bool job_states_next(struct job_states *s, uint32_t *at, bool all, struct job_run *out);

/*
 * Of nodes that are not told yet, the first and all others of which the same is to be said, wherever they stand; they are told then. told: a flag for each node; ranks: room for all. How many;
 * 0: none. of: the first one, borrowed as a run's text.
 */
uint32_t job_states_alike(const struct job_states *s, bool *told, uint32_t *ranks, const struct job_node **of);

#endif
