/* What agents are told: written and read again, and what is none. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "jobscripts/launch/plan.h"

#define KEY "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void test_what_is_written_is_read(void **state)
{
    char *names[] = {(char *)"n1", (char *)"n2.cluster"}, *variables[] = {(char *)"A=b=c", (char *)"E="};
    struct job_plan p = {.job = (char *)"12_3", .starter = (char *)"n1:4000", .auxapp_dir = (char *)"/usr/lib", .nodes = names, .nnodes = 2, .fanout = 32, .port = 20008,
                         .key = KEY, .guarded = true, .cwd = (char *)"/home/a b", .naming = (char *)"job.sh:4:11", .shared = (char *)"/lustre/run/.fp-job-7-0", .entered = true, .variables = variables, .nvariables = 2, .lines = (char *)"#FP store size=1GiB\n\n#FP cores 1\n"};
    struct job_plan q;
    char *text = job_plan_write(&p);

    (void)state;
    assert_int_equal(job_plan_read(text, &q), 0);
    assert_string_equal(q.job, "12_3");
    assert_string_equal(q.starter, "n1:4000");
    assert_string_equal(q.auxapp_dir, "/usr/lib");
    assert_int_equal(q.nnodes, 2);
    assert_string_equal(q.nodes[1], "n2.cluster");
    assert_int_equal(q.fanout, 32);
    assert_int_equal(q.port, 20008);
    assert_string_equal(q.key, KEY);
    assert_string_equal(q.lines, p.lines);
    assert_true(q.guarded && !q.tree);
    assert_string_equal(q.cwd, "/home/a b");
    assert_string_equal(q.naming, "job.sh:4:11");
    assert_string_equal(q.shared, "/lustre/run/.fp-job-7-0");
    assert_true(q.entered);
    assert_int_equal(q.nvariables, 2);
    assert_string_equal(q.variables[0], "A=b=c");
    job_plan_fini(&q);
    free(text);
}

/* Where the batch system names the nodes, what each of 10,000 agents is told is as much as of 4. */
static void test_nodes_that_the_batch_system_names(void **state)
{
    struct job_plan p = {.job = (char *)"12", .starter = (char *)"n1:4000", .auxapp_dir = (char *)"/usr/lib", .nnodes = 10000, .fanout = 32, .port = 20008,
                         .key = KEY, .cwd = (char *)"/", .naming = (char *)"", .shared = (char *)"", .lines = (char *)"#FP store\n"};
    struct job_plan q;
    char *text = job_plan_write(&p);

    (void)state;
    assert_true(strlen(text) < 400);
    assert_int_equal(job_plan_read(text, &q), 0);
    assert_int_equal(q.nnodes, 10000);
    assert_null(q.nodes);
    job_plan_fini(&q);
    free(text);
}

static void test_a_path_that_is_no_utf8_is_named(void **state)
{
    struct job_plan p = {.auxapp_dir = (char *)"/usr/lib", .cwd = (char *)"/caf\xc3\xa9", .naming = (char *)"", .shared = (char *)""};

    (void)state;
    assert_null(job_plan_strange(&p));
    p.cwd = (char *)"/caf\xe9";
    assert_string_equal(job_plan_strange(&p), p.cwd);
    p.cwd = (char *)"/";
    p.shared = (char *)"/lustre/\xff";
    assert_string_equal(job_plan_strange(&p), p.shared);
}

static void is_none(const char *text)
{
    struct job_plan q;

    if (job_plan_read(text, &q) != -EBADMSG)
        fail_msg("taken: %s", text);
}

static void test_what_is_none(void **state)
{
#define REST "\"guarded\":false,\"tree\":true,\"cwd\":\"/\",\"naming\":\"\",\"shared\":\"\",\"entered\":true,\"variables\":[]"
#define HEAD(job, nodes, fanout, port, key) \
    "{\"job\":\"" job "\",\"starter\":\"a:1\",\"auxapp_dir\":\"/\",\"nodes\":" nodes ",\"fanout\":" fanout ",\"port\":" port ",\"key\":\"" key "\"," REST "}\n"
    struct job_plan q;

    (void)state;
    assert_int_equal(job_plan_read(HEAD("1", "[\"a\"]", "2", "20000", KEY), &q), 0);
    job_plan_fini(&q);
    is_none("");
    is_none("{}\n");
    is_none("{");
    is_none("[]\n");
    is_none("{\"job\":\"1\",\"starter\":\"a:1\",\"auxapp_dir\":\"/\",\"nodes\":[\"a\"],\"fanout\":2,\"port\":20000,\"key\":\"" KEY
            "\",\"guarded\":false,\"tree\":true,\"cwd\":\"/\",\"naming\":\"\",\"shared\":\"\",\"entered\":true,\"variables\":[\"=x\"]}\n");
    is_none("{\"job\":\"1\",\"starter\":\"a:1\",\"auxapp_dir\":\"/\",\"nodes\":[\"a\"],\"fanout\":2,\"port\":20000,\"key\":\"" KEY "\"}\n");
    is_none("{\"job\":\"1\",\"starter\":\"a:1\",\"auxapp_dir\":\"/\",\"nodes\":[\"a\"],\"fanout\":2,\"port\":20000,\"key\":\"" KEY
            "\",\"guarded\":false,\"tree\":true,\"cwd\":\"/\",\"naming\":\"\",\"shared\":\"x\",\"entered\":true,\"variables\":[]}\n");
    is_none(HEAD("../x", "[\"a\"]", "2", "20000", KEY));
    is_none(HEAD("", "[\"a\"]", "2", "20000", KEY));
    is_none(HEAD("..", "[\"a\"]", "2", "20000", KEY));
    is_none(HEAD("1", "[]", "2", "20000", KEY));
    is_none(HEAD("1", "{}", "2", "20000", KEY));
    is_none(HEAD("1", "0", "2", "20000", KEY));
    is_none(HEAD("1", "-4", "2", "20000", KEY));
    is_none(HEAD("1", "100001", "2", "20000", KEY));
    is_none(HEAD("1", "4294967297", "2", "20000", KEY));
    is_none(HEAD("1", "2.0", "2", "20000", KEY));
    is_none(HEAD("1", "[\"a\",7]", "2", "20000", KEY));
    is_none(HEAD("1", "[\"-x\"]", "2", "20000", KEY));
    is_none(HEAD("1", "[\"a b\"]", "2", "20000", KEY));
    is_none(HEAD("1", "[\"a\"]", "0", "20000", KEY));
    is_none(HEAD("1", "[\"a\"]", "2", "65535", KEY));
    is_none(HEAD("1", "[\"a\"]", "2", "20000", "0123"));
    is_none(HEAD("1", "[\"a\"]", "2", "20000", "x123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"));
}

/* Of 1,500 bases; that 5,000 choices leave out more than a third of them is as good as impossible. */
static void test_ports_cannot_be_guessed(void **state)
{
    static bool seen[65536];
    unsigned different = 0;

    (void)state;
    for (unsigned i = 0; i < 5000; i++) {
        uint16_t port = job_plan_port();

        assert_true(port >= 20000 && port + JOB_PORTS <= 32000);
        assert_int_equal(port % JOB_PORTS, 0);
        different += !seen[port];
        seen[port] = true;
    }
    assert_in_range(different, 1000, 1500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_a_path_that_is_no_utf8_is_named),
        cmocka_unit_test(test_nodes_that_the_batch_system_names),
        cmocka_unit_test(test_what_is_none),
        cmocka_unit_test(test_ports_cannot_be_guessed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
