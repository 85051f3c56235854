/*
 * Children of simulated programs: fp-drain of a benefactor, as a process of the simulator's (tests/sim/child.c). Part of their shared objects in place of common/child.c.
 * Hosts of aux-apps are not simulated: nothing is coded, so none is asked for.
 *
 * The page is the parent's memory, which stays when that is gone, as all memory here: a child that ends a moment later has something to write to.
 */
#include "fp/child.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/sim/sim.h"

struct fp_child {
    struct sim_child of;
    int socket;
    void *page;
};

int fp_child_start(const struct fp_child_opts *o, struct fp_child **out)
{
    struct fp_child *c = calloc(1, sizeof *c);
    int rc;

    if (!c)
        return -ENOMEM;
    c->page = calloc(1, o->page_bytes);
    rc = c->page ? sim_child_start(o->name, c->page, &c->of, &c->socket) : -ENOMEM;
    if (rc)
        free(c);
    else
        *out = c;
    return rc;
}

int fp_child_socket(const struct fp_child *c)
{
    return c->socket;
}

void *fp_child_page(const struct fp_child *c)
{
    return c->page;
}

int fp_child_pid(const struct fp_child *c)
{
    return 1000 + c->of.proc;
}

void fp_child_kill(struct fp_child *c)
{
    sim_child_kill(&c->of);
}

bool fp_child_gone(struct fp_child *c, int *status)
{
    return sim_child_gone(&c->of, status);
}

void fp_child_free(struct fp_child *c)
{
    if (!c)
        return;
    sim_child_kill(&c->of);
    close(c->socket);
    free(c);
}
