/*
 * What goes wrong: the manager is started again, benefactors go and come back, with what they had or without.
 *
 * The shell's clock tells how long the manager is busy with it; what benefactors need to look into their own index is not in it.
 */
#include <stdlib.h>

#include "scale.h"

static uint32_t lost_count(const struct scale *w)
{
    uint32_t n = (uint32_t)((uint64_t)w->o.nodes * w->o.lost_ppm / 1000000);

    return n ? n : 1;
}

/* Spread over the nodes. */
static struct scale_node *lost_node(struct scale *w, uint32_t i)
{
    return &w->nodes[(uint64_t)i * w->o.nodes / lost_count(w)];
}

void loss_benefactors(struct scale *w)
{
    for (uint32_t i = 0; i < lost_count(w); i++)
        shell_lost(w, &lost_node(w, i)->bnf);
    shell_wait(w, 1000); /* until all mounts have been told */
}

void loss_return(struct scale *w, bool empty)
{
    for (uint32_t i = 0; i < lost_count(w); i++) {
        lost_node(w, i)->empty = empty;
        job_hello_bnf(w, lost_node(w, i));
    }
    shell_wait(w, 1000);
}

/* The manager's process ends, and all come back to the next one. */
void loss_restart(struct scale *w)
{
    uint64_t t0;

    shell_close(w);
    for (uint32_t k = 0; k < w->o.nodes; k++)
        w->nodes[k].mount.conn = w->nodes[k].bnf.conn = NULL;
    t0 = shell_cpu_ns();
    shell_open(w);
    w->phase->handle_ns += shell_cpu_ns() - t0;
    for (uint32_t k = 0; k < w->o.nodes; k++) {
        job_hello_bnf(w, &w->nodes[k]);
        job_hello_mount(w, &w->nodes[k]);
    }
    shell_wait(w, 4000);
}
