/*
 * Who starts a job, and the agent of its first node, whose connection breaks or comes twice (jobscripts/launch/launch.c). The launcher is this program again,
 * called as that agent: it reads its plan and says over a real connection what the test wants.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "fp/clock.h"
#include "fp/key.h"
#include "fp/rmtree.h"
#include "fp/rpc.h"
#include "job.pb-c.h"
#include "jobscripts/launch/guard.h"
#include "jobscripts/launch/launch.h"
#include "jobscripts/launch/launcher.h"
#include "jobscripts/launch/plan.h"
#include "jobscripts/launch/refused.h"

#define AWAY_MS  500u   /* longer than who waits looks between two ticks */
#define LIMIT_MS 60000u

/* ---------------------------------------------------------------- the agent */

static struct {
    uv_loop_t loop;
    uv_timer_t away;
    struct fp_rpc *rpc;
    struct fp_rpc_conn *conn;
    struct job_plan plan;
    const char *dir, *what;
    unsigned hellos, come;
    bool kept;
} a;

static void connect_up(uv_timer_t *t);

static void note(const char *word)
{
    char path[PATH_MAX];

    (void)job_dir_file(path, a.dir, word);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

static bool was(const char *dir, const char *word)
{
    char path[PATH_MAX];

    assert_int_equal(job_dir_file(path, dir, word), 0);
    return access(path, F_OK) == 0;
}

static void say_ready(struct fp_rpc_conn *conn)
{
    Fp__JobRun run = FP__JOB_RUN__INIT, *list[] = {&run};
    Fp__JobStates m = FP__JOB_STATES__INIT;

    run.count = 1;
    run.state = FP__JOB_NODE_STATE__JOB_NODE_READY;
    run.text = (char *)(uintptr_t)"";
    m.n_runs = 1;
    m.runs = list;
    (void)fp_rpc_send(conn, FP__JOB_MSG__JOB_STATES, &m.base);
}

static void said_hello(void *arg, int status, const struct fp_rpc_in *in)
{
    (void)arg;
    if (in)
        fp_rpc_payload_free(in->payload);
    if (status < 0) {
        note("refused");
        return;
    }
    a.hellos++;
    if (strcmp(a.what, "twice") == 0 && a.hellos == 1) { /* the other one stays open, and nobody reads it */
        connect_up(NULL);
        return;
    }
    say_ready(a.conn);
    fp_rpc_flush(a.rpc);
    if (strcmp(a.what, "silent") == 0)
        _exit(0);
    if (strcmp(a.what, "breaks") == 0 && a.hellos == 1)
        fp_rpc_conn_close(a.conn, 0);
}

static void up(struct fp_rpc_conn *conn, void *arg)
{
    Fp__JobHello h = FP__JOB_HELLO__INIT;
    struct fp_rpc_req req = {.type = FP__JOB_MSG__JOB_HELLO, .msg = &h.base, .timeout_ms = LIMIT_MS, .cb = said_hello};

    (void)arg;
    h.job = a.plan.job;
    h.step = (char *)(uintptr_t)"";
    h.port = 1;
    (void)fp_rpc_call(conn, &req, NULL);
}

static void above_says(struct fp_rpc_conn *conn, const struct fp_rpc_in *in, void *arg)
{
    (void)arg;
    if (in->type == FP__JOB_MSG__JOB_STOP)
        _exit(0);
    if (in->type != FP__JOB_MSG__JOB_KEEP)
        return;
    if (strcmp(a.what, "unanswered") == 0 && a.hellos == 1) {
        fp_rpc_conn_close(conn, 0);
        return;
    }
    note(was(a.dir, "job.json") ? "kept" : "kept without a record");
    a.kept = true;
    (void)fp_rpc_reply_msg(conn, in, 0, NULL);
}

static void closed(struct fp_rpc_conn *conn, int err, const char *why, void *arg)
{
    (void)err, (void)why, (void)arg;
    if (a.kept)
        _exit(0);
    if (conn == a.conn)
        uv_timer_start(&a.away, connect_up, AWAY_MS, 0);
}

static void connect_up(uv_timer_t *t)
{
    static const struct fp_rpc_handler h = {.on_up = up, .on_request = above_says, .on_closed = closed};
    struct fp_rpc_connect_opts o = {.fresh_uuid = true};

    (void)t;
    if (a.come++ > 20 || fp_rpc_connect(a.rpc, a.plan.starter, &o, &h, NULL, &a.conn))
        _exit(1);
}

/* What srun does for which the controller has no step. */
static int refuse(const char *why)
{
    note(was(a.dir, "tried") ? "tried again" : "tried");
    fprintf(stderr, "srun: error: Unable to create step for job 7: %s\n", why);
    return 1;
}

static int be_agent(void)
{
    static char text[65536];
    char path[PATH_MAX], why[FP_KEY_WHY_MAX];
    struct fp_rpc_opts o = {0};
    struct fp_key *key;
    size_t n = 0;

    a.dir = getenv("FP_TEST_DIR");
    a.what = getenv("FP_TEST_WHAT");
    if (strcmp(a.what, "busy") == 0 && !was(a.dir, "tried again"))
        return refuse("Requested nodes are busy");
    if (strcmp(a.what, "wrong") == 0)
        return refuse("Invalid job id specified");
    for (ssize_t k; n + 1 < sizeof text && (k = read(STDIN_FILENO, text + n, sizeof text - 1 - n)) > 0;)
        n += (size_t)k;
    if (job_plan_read(text, &a.plan) || job_dir_file(path, a.dir, "key") || fp_key_load(path, &key, why))
        return 1;
    uv_loop_init(&a.loop);
    uv_timer_init(&a.loop, &a.away);
    o.key = key;
    if (fp_rpc_new(&a.loop, &o, &a.rpc))
        return 1;
    alarm(LIMIT_MS / 1000);
    connect_up(NULL);
    uv_run(&a.loop, UV_RUN_DEFAULT);
    return 0;
}

/* ---------------------------------------------------------------- who starts it */

static int launch(const struct job_alloc *alloc, const char *dir, const char *self, struct job_words *out)
{
    (void)alloc, (void)dir;
    snprintf(out->text, sizeof out->text, "%s", self);
    out->argv[0] = out->text;
    out->argv[1] = "agent";
    out->argv[2] = NULL;
    return 0;
}

static int begin(const char *what, char *dir, uint64_t *took_ms)
{
    static const struct job_launcher l = {.name = "this program", .kept = true, .launch = launch};
    char *nodes[] = {(char *)(uintptr_t)"localhost"};
    const struct job_alloc alloc = {.job = "7", .nodes = nodes, .nnodes = 1, .here = "127.0.0.1", .first = true, .launcher = &l, .fanout = 2};
    const struct job_launch j = {.alloc = &alloc, .dir = dir, .lines = "", .auxapp_dir = "/", .naming = "", .shared = "", .ssd = "/tmp", .ready_ms = LIMIT_MS};
    static struct job_record r;
    uint64_t began = fp_now_ms();
    int rc;

    assert_non_null(mkdtemp(dir));
    setenv("FP_TEST_DIR", dir, 1);
    setenv("FP_TEST_WHAT", what, 1);
    rc = job_launch(&j, &r);
    *took_ms = fp_now_ms() - began;
    return rc;
}

/* All have said that they are ready, and the root is on its way to us again: it is told that the store stays up without us. */
static void test_a_root_whose_connection_breaks_is_waited_for(void **state)
{
    char dir[] = "/tmp/fp-test-launch-XXXXXX";
    uint64_t took_ms;

    (void)state;
    assert_int_equal(begin("breaks", dir, &took_ms), 0);
    assert_true(was(dir, "kept"));
    fp_remove_tree(dir);
}

static void test_a_root_that_did_not_answer_is_told_again(void **state)
{
    char dir[] = "/tmp/fp-test-launch-XXXXXX";
    uint64_t took_ms;

    (void)state;
    assert_int_equal(begin("unanswered", dir, &took_ms), 0);
    assert_true(was(dir, "kept"));
    fp_remove_tree(dir);
}

/* It has lost a connection of which we don't know yet that it is gone. */
static void test_a_root_that_comes_again_is_taken(void **state)
{
    char dir[] = "/tmp/fp-test-launch-XXXXXX";
    uint64_t took_ms;

    (void)state;
    assert_int_equal(begin("twice", dir, &took_ms), 0);
    assert_true(was(dir, "kept"));
    assert_false(was(dir, "refused"));
    fp_remove_tree(dir);
}

static void test_a_root_that_is_gone_is_no_start(void **state)
{
    char dir[] = "/tmp/fp-test-launch-XXXXXX";
    uint64_t took_ms;

    (void)state;
    assert_true(begin("silent", dir, &took_ms) < 0); /* its launcher has ended, too */
    assert_true(took_ms < LIMIT_MS / 2);
    fp_remove_tree(dir);
}

/* As while a node of the job is on its way back to service. */
static void test_a_step_that_is_refused_for_now_is_asked_for_again(void **state)
{
    char dir[] = "/tmp/fp-test-launch-XXXXXX";
    uint64_t took_ms;

    (void)state;
    assert_int_equal(begin("busy", dir, &took_ms), 0);
    assert_true(was(dir, "tried again") && was(dir, "kept"));
    fp_remove_tree(dir);
}

static void test_a_step_that_is_refused_for_good_is_no_start(void **state)
{
    char dir[] = "/tmp/fp-test-launch-XXXXXX";
    uint64_t took_ms;

    (void)state;
    assert_int_equal(begin("wrong", dir, &took_ms), -ECHILD);
    assert_true(took_ms < LIMIT_MS / 2);
    assert_true(was(dir, "tried"));
    assert_false(was(dir, "tried again"));
    fp_remove_tree(dir);
}

static void test_words_of_srun(void **state)
{
    (void)state;
    assert_true(job_refused_for_now("srun: error: Unable to create step for job 12: Requested nodes are busy\n"));
    assert_true(job_refused_for_now("a prolog's own word\nsrun: error: Unable to create step for job 12: Required node not available (down, drained or reserved)"));
    assert_true(job_refused_for_now("srun: error: Unable to create step for job 12: Unable to contact slurm controller (connect failure)\nsrun: x\n"));
    assert_false(job_refused_for_now(""));
    assert_false(job_refused_for_now("Requested nodes are busy\n"));
    assert_false(job_refused_for_now("srun: error: Unable to create step for job 12: Memory required by task is not available\nRequested nodes are busy\n"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_root_whose_connection_breaks_is_waited_for),
        cmocka_unit_test(test_a_root_that_did_not_answer_is_told_again),
        cmocka_unit_test(test_a_root_that_comes_again_is_taken),
        cmocka_unit_test(test_a_root_that_is_gone_is_no_start),
        cmocka_unit_test(test_a_step_that_is_refused_for_now_is_asked_for_again),
        cmocka_unit_test(test_a_step_that_is_refused_for_good_is_no_start),
        cmocka_unit_test(test_words_of_srun),
    };

    if (argc > 1 && strcmp(argv[1], "agent") == 0)
        return be_agent();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
