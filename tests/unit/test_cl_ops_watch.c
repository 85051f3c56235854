/*
 * "Every FUSE I/O call" (client/ops/watch.c): the table of operations that the mount gives to libfuse, against the operations that aux-apps can ask for.
 */
#define FUSE_USE_VERSION 317
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "client/aux/events.h"
#include "client/ops/ops.h"

#define ENTRIES (sizeof(struct fuse_lowlevel_ops) / sizeof(void (*)(void)))

union table {
    struct fuse_lowlevel_ops ops;
    void (*entry[ENTRIES])(void);
};

static uint64_t wanted; /* bit: enum fp_aux_op */

unsigned __wrap_cl_aux_events_wanted(const struct cl_aux *a, enum fp_aux_op op);

unsigned __wrap_cl_aux_events_wanted(const struct cl_aux *a, enum fp_aux_op op)
{
    (void)a;
    return wanted >> op & 1 ? AUX_WANTS_AFTER : 0;
}

/* How many entries aux-apps are told of when they want this. */
static unsigned watched(uint64_t ops, union table *t)
{
    struct cl_mount m;
    union table plain;
    unsigned n = 0;

    memset(&m, 0, sizeof m);
    memset(t, 0, sizeof *t);
    memset(&plain, 0, sizeof plain);
    m.aux = (struct cl_aux *)(void *)&m; /* not looked into */
    wanted = ops;
    cl_ops_fill(&plain.ops);
    cl_ops_fill(&t->ops);
    cl_ops_watch(&m, &t->ops);
    for (size_t i = 0; i < ENTRIES; i++) {
        assert_int_equal(t->entry[i] == NULL, plain.entry[i] == NULL); /* what the mount does not have is not invented */
        n += t->entry[i] != plain.entry[i];
    }
    return n;
}

/* Each that the mount has, but for the kernel's forgetting, which no program asks for, and locks, which are no I/O and no event (auxapp.h). */
static void test_watch_has_every_operation_of_the_mount(void **state)
{
    union table all, plain;

    (void)state;
    memset(&plain, 0, sizeof plain);
    cl_ops_fill(&plain.ops);
    assert_true(watched(UINT64_MAX, &all) > 25);
    plain.ops.forget = NULL;
    plain.ops.forget_multi = NULL;
    plain.ops.getlk = NULL;
    plain.ops.setlk = NULL;
    plain.ops.flock = NULL;
    for (size_t i = 0; i < ENTRIES; i++) {
        if (plain.entry[i] && all.entry[i] == plain.entry[i])
            fail_msg("aux-apps are not told of the operation at byte %zu of struct fuse_lowlevel_ops", i * sizeof plain.entry[0]);
    }
}

/* And nothing can be asked for that no operation tells of. create is watched for its name in any case. */
static void test_watch_has_an_operation_for_every_event(void **state)
{
    union table t;
    unsigned none = watched(0, &t);

    (void)state;
    assert_int_equal(none, 1);
    for (int op = 0; op < FP_AUX_OP_COUNT; op++) {
        if (watched(1ull << op, &t) == none && op != FP_AUX_OP_CREATE)
            fail_msg("no operation of the mount tells of enum fp_aux_op %d", op);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_watch_has_every_operation_of_the_mount),
        cmocka_unit_test(test_watch_has_an_operation_for_every_event),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
