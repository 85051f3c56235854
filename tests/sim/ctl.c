/* What applications ask of fpctl: one question at a time, by the process "ctl" (module/ctl.c). One that dies with a question has not answered it: nobody knows what came of it. */
#include <errno.h>

#include "tests/sim/sim.h"

static struct sim_ctl *first, *asked; /* asked: what the process has taken */

void sim_ctl_ask(struct sim_ctl *q)
{
    struct sim_ctl **at = &first;

    q->done = false;
    q->next = NULL;
    q->why[0] = '\0';
    while (*at)
        at = &(*at)->next;
    *at = q;
    sim_wake_all(&first);
    while (!q->done)
        sim_block(q, SIM_NEVER);
}

struct sim_ctl *sim_ctl_next(void)
{
    while (!first)
        sim_block(&first, SIM_NEVER);
    asked = first;
    first = asked->next;
    return asked;
}

void sim_ctl_answer(struct sim_ctl *q, int rc)
{
    asked = NULL;
    q->rc = rc;
    q->done = true;
    sim_wake_all(q);
}

void sim_ctl_gone(void)
{
    if (asked)
        sim_ctl_answer(asked, -EINTR);
}
