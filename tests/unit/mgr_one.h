/* A core of its own for each test, in memory if setup does not say else: what programs of test_mgr_*.c with one core share. cmocka.h before it. */
#ifndef TESTS_MGR_ONE_H
#define TESTS_MGR_ONE_H

#include "mgr_fixture.h"

static struct fix f;

static inline int setup_plain(void **state)
{
    (void)state;
    fix_open(&f, ":memory:", false);
    return 0;
}

/* With the files of a database that it has left. */
static inline int teardown(void **state)
{
    (void)state;
    fix_check(&f);
    fix_close_and_remove(&f);
    return 0;
}

#endif
