/*
 * Service cores: which thread runs where, and when an aux-app gets one more. The topology comes from hwloc; the decision is pure.
 */
#ifndef AUX_CORES_H
#define AUX_CORES_H

#include <stdbool.h>
#include <stdint.h>

#define AUX_CORES_MAX 256u

struct aux_cores;

/*
 * list: "7" or "1,3-5"; "": none set aside, threads run anywhere. Cores that are not there or not allowed are left out, and `why` (96 bytes) says so; if none
 * is left, nothing is pinned. 0, -EINVAL, -ENOMEM.
 */
int aux_cores_new(const char *list, struct aux_cores **out, char why[96]);
void aux_cores_free(struct aux_cores *c);
/* How many there are; 0: threads are not pinned. */
uint32_t aux_cores_count(const struct aux_cores *c);
/* How many threads can run at once: the service cores, or what this process may use. */
uint32_t aux_cores_width(const struct aux_cores *c);
/* Number of the i-th core, in the order they are given out: threads of one physical core last. */
int aux_cores_cpu(const struct aux_cores *c, uint32_t i);
/* Pin the calling thread to this core; -1: to all service cores. -1 is returned if it can't be, else cpu. */
int aux_cores_pin(const struct aux_cores *c, int cpu);
/* The core for one more thread of an aux-app: the one with the least load, and of these the first. mine[i], load[i]: threads of this aux-app, and of all, on the
 * i-th core. -1: not pinned. */
int aux_cores_choose(const struct aux_cores *c, const uint32_t *mine, const uint32_t *load);

/* -------------------------------------------------------------- dynamic provisioning (the paper's future work, III.A) */

#define AUX_TICK_MS 50u
#define AUX_CALM_MS 2000u

struct aux_demand {                    /* of one aux-app, kept by the caller from tick to tick */
    uint32_t min, max, active;
    uint32_t full_ticks;           /* chunks have waited for so many ticks */
    uint64_t calm_since_ms;        /* nothing has waited, and fewer cores would do; 0: not so */
    uint64_t moved_ms;
};

/*
 * queue: chunks that wait; limit: of its queue. busy_permille: of its threads together, 1000 for each that was busy all the time. spare: there is a service core
 * that none of its threads is on and that is not busy itself. +1: one core more, -1: one less, 0: as it is. why (96 bytes) says the reason.
 */
int aux_cores_decide(struct aux_demand *d, uint64_t now_ms, uint32_t queue, uint32_t limit, uint32_t busy_permille, bool spare,
             char why[96]);

#endif
