/* A store with one benefactor and a target (mgr_drain_world.h) of its own for each test. cmocka.h before it. */
#ifndef TESTS_MGR_ONE_WORLD_H
#define TESTS_MGR_ONE_WORLD_H

#include "mgr_drain_world.h"

static struct world w;

static inline int setup(void **state)
{
    (void)state;
    w_open(&w, ":memory:", 1);
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    w_close(&w);
    return 0;
}

#endif
