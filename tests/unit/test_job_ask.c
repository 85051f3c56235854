/* Asking the first agent of a job how its nodes are, over a real connection: all of them are told, whatever their number and their words. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "fp/key.h"
#include "fp/rmtree.h"
#include "jobscripts/launch/launch.h"
#include "jobscripts/agent/node.h"

#define NODES 5003u

static void word_of(uint32_t rank, char text[64])
{
    snprintf(text, 64, "/srv of %u is full", rank / 2);
}

/* Every other pair of nodes is ready, the others have failed, each pair for its own reason; the last one was not heard of. */
static void set_states(struct job_states *s)
{
    char text[64];

    for (uint32_t i = 0; i < NODES - 1; i++) {
        word_of(i, text);
        (void)job_states_set(s, i, 1, i / 2 % 2 ? FP__JOB_NODE_STATE__JOB_NODE_READY : FP__JOB_NODE_STATE__JOB_NODE_FAILED, i / 2 % 2 ? "0-6" : text);
    }
}

static _Noreturn void be_root(const char *dir, int port)
{
    static struct node n;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(n.dir, sizeof n.dir, "%s", dir);
    n.plan.job = (char *)"7";
    n.plan.port = job_plan_port();
    n.plan.nodes = calloc(NODES, sizeof *n.plan.nodes);
    n.plan.nnodes = NODES;
    n.plan.fanout = JOB_FANOUT;
    n.plan.nodes[0] = (char *)"localhost";
    uv_loop_init(&n.loop);
    if (node_tree_start(&n))
        _exit(1);
    set_states(&n.states);
    (void)!write(port, &n.port, sizeof n.port);
    uv_run(&n.loop, UV_RUN_DEFAULT);
    _exit(0);
}

static void test_all_nodes_are_told_of(void **state)
{
    struct job_record r = {.job = "7", .nodes = NODES};
    char dir[] = "/tmp/fp-test-ask-XXXXXX", path[PATH_MAX], why[FP_KEY_WHY_MAX], text[64];
    struct job_states s;
    struct fp_key *key;
    uint16_t port = 0;
    int fds[2];
    pid_t pid;

    (void)state;
    assert_non_null(mkdtemp(dir));
    assert_int_equal(job_dir_file(path, dir, "key"), 0);
    assert_int_equal(fp_key_generate(&key), 0);
    assert_int_equal(fp_key_write(key, path, why), 0);
    fp_key_free(key);
    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0)
        be_root(dir, fds[1]);
    close(fds[1]);
    assert_int_equal(read(fds[0], &port, sizeof port), sizeof port);
    close(fds[0]);
    snprintf(r.root, sizeof r.root, "127.0.0.1:%u", port);
    assert_int_equal(job_launch_ask(dir, &r, &s), 0);
    kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    fp_remove_tree(dir);
    assert_int_equal(s.n, NODES);
    for (uint32_t i = 0; i < NODES - 1; i++) {
        word_of(i, text);
        assert_int_equal(s.nodes[i].state, i / 2 % 2 ? FP__JOB_NODE_STATE__JOB_NODE_READY : FP__JOB_NODE_STATE__JOB_NODE_FAILED);
        assert_string_equal(s.nodes[i].text, i / 2 % 2 ? "0-6" : text);
    }
    assert_int_equal(s.nodes[NODES - 1].state, FP__JOB_NODE_STATE__JOB_NODE_NONE);
    job_states_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_nodes_are_told_of),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
