/* For how long a disk thread has been at its task, in looks of somebody who looks at regular times. */
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "benefactor/disk.h"

struct held {
    struct bnf_task task;
    sem_t begun, go;
    bool done;
};

static uv_loop_t loop;
static struct bnf_disk *disk;

static void run(struct bnf_task *task)
{
    struct held *h = (struct held *)task;

    sem_post(&h->begun);
    sem_wait(&h->go);
}

static void done(struct bnf_task *task)
{
    ((struct held *)task)->done = true;
}

static void begin(struct held *h)
{
    *h = (struct held){.task = {.run = run, .done = done}};
    sem_init(&h->begun, 0, 0);
    sem_init(&h->go, 0, 0);
    bnf_disk_submit(disk, &h->task);
    sem_wait(&h->begun);
}

static void end(struct held *h)
{
    sem_post(&h->go);
    while (!h->done)
        uv_run(&loop, UV_RUN_ONCE);
    sem_destroy(&h->begun);
    sem_destroy(&h->go);
}

static int setup(void **state)
{
    (void)state;
    return uv_loop_init(&loop) ? -1 : bnf_disk_new(&loop, 2, &disk);
}

static int teardown(void **state)
{
    (void)state;
    bnf_disk_free(disk);
    uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop);
}

static void test_looks_count_while_one_task_runs(void **state)
{
    struct held a, b;

    (void)state;
    assert_int_equal(bnf_disk_look(disk), 0);
    begin(&a);
    assert_int_equal(bnf_disk_look(disk), 1); /* however long ago it began: nobody has looked */
    assert_int_equal(bnf_disk_look(disk), 2);
    begin(&b);
    assert_int_equal(bnf_disk_look(disk), 3); /* of the older one */
    end(&a);
    assert_int_equal(bnf_disk_look(disk), 2);
    end(&b);
    assert_int_equal(bnf_disk_look(disk), 0);
}

static void test_many_tasks_one_after_the_other_are_none_that_hangs(void **state)
{
    struct held h;

    (void)state;
    for (int i = 0; i < 50; i++) {
        begin(&h);
        assert_int_equal(bnf_disk_look(disk), 1);
        end(&h);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_looks_count_while_one_task_runs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_tasks_one_after_the_other_are_none_that_hangs, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
