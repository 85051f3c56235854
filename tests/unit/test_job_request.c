/* What is read of Slurm's answer about the nodes of a partition. */
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

#include "fp/log.h"
#include "jobscripts/script/request.h"

static struct job_request r;

static void read_types(const char *text)
{
    memset(&r, 0, sizeof r);
    job_request_types(text, &r);
}

static void is_type(size_t i, uint32_t sockets, uint32_t cores, uint32_t threads, uint32_t nodes, const char *first)
{
    assert_true(i < r.ntypes);
    assert_int_equal(r.types[i].sockets, sockets);
    assert_int_equal(r.types[i].cores, cores);
    assert_int_equal(r.types[i].threads, threads);
    assert_int_equal(r.types[i].nodes, nodes);
    assert_string_equal(r.types[i].first, first);
}

static void test_nodes_of_one_shape_are_a_type(void **state)
{
    (void)state;
    read_types("n1|2|32|2\nn2|2|32|2\nfat1|4|48|1\nn3|2|32|2\n");
    assert_int_equal(r.ntypes, 2);
    is_type(0, 2, 32, 2, 3, "n1");
    is_type(1, 4, 48, 1, 1, "fat1");
    assert_int_equal(r.least_cores, 64);
}

static void test_the_smallest_node_counts_wherever_it_stands(void **state)
{
    (void)state;
    read_types("a|2|8|1\nb|1|6|2\nc|1|7|1\n");
    assert_int_equal(r.least_cores, 6);
    assert_int_equal(r.least_cpus, 7);
}

static void test_what_is_no_node_is_passed_over(void **state)
{
    (void)state;
    read_types("");
    assert_int_equal(r.ntypes + r.least_cores, 0);
    read_types("sinfo: error: something\n\nn1|0|4|1\nn2|1|0|1\nn3|1|4|0\nn4|1|4\n|1|4|1\nn5|70000|4|1\nn6|1|70000|1\nn7|1|4|2000\nn8|-1|4|1\nn9|1|4|2");
    assert_int_equal(r.ntypes, 1);
    is_type(0, 1, 4, 2, 1, "n9");
    assert_int_equal(r.least_cores, 4);
}

static void test_a_name_that_is_too_long_does_not_take_the_next_line(void **state)
{
    char text[256];

    (void)state;
    snprintf(text, sizeof text, "%0100d|1|4|1\nn2|1|8|1\n", 7);
    read_types(text);
    assert_int_equal(r.ntypes, 1);
    is_type(0, 1, 8, 1, 1, "n2");
}

static void test_more_types_than_fit_are_counted(void **state)
{
    char text[8192];
    size_t n = 0;

    (void)state;
    for (unsigned i = 0; i < JOB_NODETYPES_MAX + 3; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "n%u|1|%u|1\n", i, 40 - i);
    read_types(text);
    assert_int_equal(r.ntypes, JOB_NODETYPES_MAX);
    assert_int_equal(r.more_types, 3);
    assert_int_equal(r.least_cores, 40 - (JOB_NODETYPES_MAX + 2));
}

static void read_script(struct job_options *o, const char *text)
{
    char path[] = "/tmp/test_job_request.XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    o->script = path;
    assert_int_equal(job_request_read(o, &r), 0);
    unlink(path);
}

static void test_what_the_command_says_is_before_what_the_script_says(void **state)
{
    struct job_options o = {.nodes = 7, .node_cores = 12, .auxapp_dir = "/some/where"};

    (void)state;
    read_script(&o, "#SBATCH -N 3\n#FP cores 1\n");
    assert_int_equal(r.nodes, 7);
    assert_int_equal(r.least_cores, 12);
    assert_false(r.nodes_are_here);
    assert_int_equal(r.ntypes, 1);
    assert_int_equal(r.types[0].cores, 12);
    assert_string_equal(r.plugin_dir, "/some/where");
    job_request_fini(&r);
}

/* PATH has no sinfo. */
static void test_without_slurm_this_machine_is_looked_at(void **state)
{
    struct job_options o = {0};
    char *path = strdup(getenv("PATH"));

    (void)state;
    setenv("PATH", "/nonexistent", 1);
    read_script(&o, "#SBATCH --nodes=3\n#FP cores 1\n");
    setenv("PATH", path, 1);
    free(path);
    assert_int_equal(r.nodes, 3);
    assert_true(r.nodes_are_here);
    assert_int_equal(r.least_cores, sysconf(_SC_NPROCESSORS_ONLN));
    assert_int_equal(r.ntypes, 0);
    job_request_fini(&r);
}

static void test_a_script_that_is_not_there_is_said(void **state)
{
    struct job_options o = {.script = "/no/such/script", .node_cores = 1};

    (void)state;
    fp_log_set_level(FP_LOG_ERROR);
    assert_int_equal(job_request_read(&o, &r), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_of_one_shape_are_a_type),
        cmocka_unit_test(test_the_smallest_node_counts_wherever_it_stands),
        cmocka_unit_test(test_what_is_no_node_is_passed_over),
        cmocka_unit_test(test_a_name_that_is_too_long_does_not_take_the_next_line),
        cmocka_unit_test(test_more_types_than_fit_are_counted),
        cmocka_unit_test(test_what_the_command_says_is_before_what_the_script_says),
        cmocka_unit_test(test_without_slurm_this_machine_is_looked_at),
        cmocka_unit_test(test_a_script_that_is_not_there_is_said),
    };
    fp_log_init("test_job_request", FP_LOG_INFO);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
