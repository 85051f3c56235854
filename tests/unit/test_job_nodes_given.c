/* --nodes and --hosts of a call (jobscripts/nodes_given.c). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "jobscripts/nodes_given.h"

/* Their number; -1: why has `want`. */
static int given(struct job_options o, enum job_nodes_use use, const char *want)
{
    char why[JOB_NODES_GIVEN_WHY_BYTES] = "";
    int rc = job_nodes_given(&o, use, why);

    job_hosts_free(o.host_names, o.nhosts);
    assert_true(rc == 0 || (rc < 0 && why[0]));
    if (rc && !strstr(why, want ? want : "none is expected"))
        fail_msg("%s", why);
    return rc ? -1 : (int)o.nhosts;
}

static const enum job_nodes_use both[] = {JOB_NODES_COUNTED, JOB_NODES_USED};

static void test_a_number_that_is_not_that_of_the_hosts_is_a_mistake(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(given((struct job_options){.nodes = 4, .hosts = "a,b,c"}, both[i], "--nodes=4, but --hosts names 3 nodes"), -1);
        assert_int_equal(given((struct job_options){.nodes = 2, .hosts = "a"}, both[i], "--nodes=2, but --hosts names 1 node:"), -1);
        assert_int_equal(given((struct job_options){.nodes = 8, .hosts = "a:4,b:4"}, both[i], "names 2 nodes"), -1);
        assert_int_equal(given((struct job_options){.nodes = 2, .hosts = "a:4,b:4,a"}, both[i], NULL), 2);
        assert_int_equal(given((struct job_options){.hosts = "a,b,c"}, both[i], NULL), 3);
        assert_int_equal(given((struct job_options){0}, both[i], NULL), 0);
    }
}

static void test_a_list_that_names_no_nodes_is_a_mistake(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(given((struct job_options){.hosts = "a,,b"}, both[i], "--hosts: there is no name before a comma"), -1);
        assert_int_equal(given((struct job_options){.hosts = "a:x"}, both[i], "--hosts: 'a:x' has no number of slots"), -1);
        assert_int_equal(given((struct job_options){.hosts = ""}, both[i], "--hosts: there is no name of a node"), -1);
        assert_int_equal(given((struct job_options){.hosts = "@"}, both[i], "--hosts: there is no file behind the @"), -1);
        assert_int_equal(given((struct job_options){.hosts = "@/nowhere/at/all"}, both[i], "--hosts: /nowhere/at/all: "), -1);
        assert_int_equal(given((struct job_options){.nodes = 2, .hosts = "a,b,"}, both[i], "--hosts: there is no name behind"), -1);
    }
}

static void test_start_and_run_take_no_number_alone(void **state)
{
    (void)state;
    assert_int_equal(given((struct job_options){.nodes = 4}, JOB_NODES_USED, "--nodes is for check and explain"), -1);
    assert_int_equal(given((struct job_options){.nodes = 4}, JOB_NODES_COUNTED, NULL), 0);
}

/* fp-job run --hosts=@<(scontrol show hostnames): what was read is gone. */
static void test_a_pipe_is_read_once(void **state)
{
    struct job_options o = {.nodes = 2};
    char why[JOB_NODES_GIVEN_WHY_BYTES] = "", path[64];
    int fds[2];

    (void)state;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], "n1\nn2\n", 6), 6);
    close(fds[1]);
    snprintf(path, sizeof path, "@/proc/self/fd/%d", fds[0]);
    o.hosts = path;
    assert_int_equal(job_nodes_given(&o, JOB_NODES_USED, why), 0);
    close(fds[0]);
    assert_int_equal(o.nhosts, 2);
    assert_string_equal(o.host_names[1], "n2");
    job_hosts_free(o.host_names, o.nhosts);
}

static void test_check_of_words_alone_leaves_files_alone(void **state)
{
    (void)state;
    assert_int_equal(given((struct job_options){.words = true, .hosts = "@/nowhere/at/all"}, JOB_NODES_COUNTED, NULL), 0);
    assert_int_equal(given((struct job_options){.words = true, .hosts = "a,b"}, JOB_NODES_COUNTED, NULL), 2);
    assert_int_equal(given((struct job_options){.words = true, .hosts = "a,,b"}, JOB_NODES_COUNTED, "there is no name"), -1);
    assert_int_equal(given((struct job_options){.words = true, .hosts = "@/nowhere/at/all"}, JOB_NODES_USED, "/nowhere/at/all: "), -1);
}

static void test_what_looks_at_this_machine_takes_no_hosts(void **state)
{
    (void)state;
    assert_int_equal(given((struct job_options){.hosts = "a,b"}, JOB_NODES_HERE, "--hosts is for check, explain, start and run"), -1);
    assert_int_equal(given((struct job_options){.nodes = 4}, JOB_NODES_HERE, "--nodes is for check and explain"), -1);
    assert_int_equal(given((struct job_options){0}, JOB_NODES_HERE, NULL), 0);
    assert_int_equal(given((struct job_options){.hosts = "a,,b"}, JOB_NODES_KNOWN, NULL), 0); /* a stop ends the store, whatever else it is told */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_number_that_is_not_that_of_the_hosts_is_a_mistake),
        cmocka_unit_test(test_a_list_that_names_no_nodes_is_a_mistake),
        cmocka_unit_test(test_start_and_run_take_no_number_alone),
        cmocka_unit_test(test_a_pipe_is_read_once),
        cmocka_unit_test(test_check_of_words_alone_leaves_files_alone),
        cmocka_unit_test(test_what_looks_at_this_machine_takes_no_hosts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
