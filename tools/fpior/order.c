/*
 * Whose data each rank reads back: -C, -Z. With -C, always that of another node, as far as the placement of the ranks allows it: the shift is
 * looked for, since ranks may be dealt out to the nodes in any way. Every rank comes to the same answer.
 */
#include <stdlib.h>

#include "fpior.h"

static bool leaves_nodes(const struct job *j, int shift)
{
    for (int r = 0; r < j->tasks; r++)
        if (j->node_of[r] == j->node_of[(r + shift) % j->tasks])
            return false;
    return true;
}

void order_init(struct job *j)
{
    int nodes_on = (int)(j->p.task_offset % j->tasks);
    int first = (int)((int64_t)nodes_on * j->tasks_per_node % j->tasks);

    if (!j->p.reorder || !nodes_on || j->tasks == 1)
        return;
    for (int i = 0; i < j->tasks && !j->shift; i++)
        if (leaves_nodes(j, (first + i) % j->tasks))
            j->shift = (first + i) % j->tasks;
    if (j->shift)
        return;
    j->shift = first ? first : 1;
    if (j->rank == 0 && j->nodes > 1)
        fprintf(stderr, "fpior: -C: ranks are placed so that some read what their own node wrote\n");
}

static void draw(struct job *j, uint64_t seed)
{
    for (int r = 0; r < j->tasks; r++)
        j->turn[r] = r;
    for (int i = j->tasks; i > 1; i--) {
        int k = (int)(pattern_mix(seed ^ pattern_mix((uint64_t)i)) % (uint64_t)i), swap = j->turn[i - 1];

        j->turn[i - 1] = j->turn[k];
        j->turn[k] = swap;
    }
}

static bool far_enough(const struct job *j)
{
    int least = (int)(j->p.task_offset % j->tasks);

    for (int r = 0; r < j->tasks; r++)
        if ((j->turn[r] + j->tasks - r) % j->tasks < least)
            return false;
    return true;
}

void order_draw(struct job *j, int repetition)
{
    uint64_t seed = (uint64_t)j->p.order_seed;

    if (!j->p.reorder_random)
        return;
    if (j->p.order_seed < 0)
        seed += (uint64_t)repetition;
    for (uint64_t i = 0; i < 10000; i++) {
        draw(j, pattern_mix(seed) + i);
        if (j->tasks == 1 || far_enough(j))
            return;
    }
    if (j->rank == 0)
        fprintf(stderr, "fpior: -Z: no order in which everyone reads %lld tasks away or more; some read nearer\n", (long long)j->p.task_offset);
}

int job_reads_of(const struct job *j, int rank)
{
    if (j->p.reorder_random)
        return j->turn[rank];
    return (rank + j->shift) % j->tasks;
}
