/*
 * Processes that a program starts: fp-drain of a benefactor. The benefactor looks after it, no supervisor does; it ends when the benefactor does. A slot of the table of
 * processes is used again when nobody lives in it: which start is meant is told by its number.
 */
#include <errno.h>
#include <string.h>

#include "tests/sim/sim.h"

static struct sim_proc *slot(void)
{
    char name[16];

    for (unsigned i = 0; i < sim.nprocs; i++)
        if (sim.procs[i].kind == SIM_DRAIN && !sim.procs[i].up)
            return &sim.procs[i];
    if (sim.nprocs == SIM_PROCS_MAX)
        return NULL;
    snprintf(name, sizeof name, "drain%u", sim.nprocs);
    sim_proc_add(SIM_DRAIN, sim_self->node, name);
    return &sim.procs[sim.nprocs - 1];
}

int sim_child_start(const char *name, void *page, struct sim_child *out, int *socket)
{
    struct sim_proc *p = strcmp(name, "fp-drain") == 0 ? slot() : NULL;

    if (!p)
        return -EAGAIN;
    p->node = sim_self->node;
    p->parent = sim_self->proc;
    p->child_page = page;
    *socket = sim_net_pair(p, &p->child_socket);
    sim_trace("%s is a child of %s", p->name, p->parent->name);
    sim_proc_start(p);
    *out = (struct sim_child){p->id, p->starts};
    return 0;
}

bool sim_child_gone(const struct sim_child *c, int *status)
{
    const struct sim_proc *p = &sim.procs[c->proc];

    if (p->up && p->starts == c->start)
        return false;
    if (status)
        *status = p->exit_code;
    return true;
}

void sim_child_kill(const struct sim_child *c)
{
    if (!sim_child_gone(c, NULL))
        sim_proc_kill(&sim.procs[c->proc], "by its benefactor");
}

int sim_child_socket(void **page)
{
    *page = sim_self->proc->child_page;
    return sim_self->proc->child_socket;
}

void sim_children_kill(const struct sim_proc *parent)
{
    struct sim_proc *own = NULL;

    for (unsigned i = 0; i < sim.nprocs; i++) {
        struct sim_proc *p = &sim.procs[i];

        if (p->kind != SIM_DRAIN || !p->up || p->parent != parent)
            continue;
        if (sim_self && sim_self->proc == p)
            own = p; /* the last: it does not come back */
        else
            sim_proc_kill(p, "with its benefactor");
    }
    if (own)
        sim_proc_kill(own, "with its benefactor");
}
