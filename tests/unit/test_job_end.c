/* What a job ends with: the application's exit code, unless data was not brought out (jobscripts/start.c). What is done at the end is replaced by the linker. */
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

#include "jobscripts/jobdir.h"
#include "jobscripts/launch/hosts.h"
#include "jobscripts/launch/launch.h"
#include "jobscripts/launch/lost.h"
#include "jobscripts/start.h"

int __wrap_job_steps_after(const struct job_run_of *r, int code, uint64_t limit_ms);
int __wrap_job_steps_stop(const struct job_run_of *r);
int __wrap_job_launch_discard(const char *dir, const struct job_record *r);
int __wrap_job_launch_end(const char *dir, const struct job_record *r, bool soon);
void __wrap_job_lost_find(const struct job_run_of *r, struct job_lost *out);
void __wrap_job_lost_all(const struct job_run_of *r, struct job_lost *out);
void __wrap_job_lost_clean(const struct job_run_of *r, struct job_lost *l);

static struct {
    int after, stop, end; /* what they return */
    bool soon, released;
    unsigned discarded;
    int on_failure;
    const char *persistent;
    unsigned all, cleaned; /* nodes that are taken for lost, and cleaned */
} at;

int __wrap_job_steps_after(const struct job_run_of *r, int code, uint64_t limit_ms)
{
    (void)r;
    (void)code;
    assert_int_equal(limit_ms, 1234);
    return at.after;
}

int __wrap_job_steps_stop(const struct job_run_of *r)
{
    at.released = !r->kept;
    return at.stop;
}

int __wrap_job_launch_discard(const char *dir, const struct job_record *r)
{
    (void)dir;
    (void)r;
    at.discarded++;
    return -ETIMEDOUT; /* no matter: its data is out */
}

int __wrap_job_launch_end(const char *dir, const struct job_record *r, bool soon)
{
    (void)r;
    assert_int_equal(access(dir, F_OK), 0);
    at.soon = soon;
    return at.end;
}

void __wrap_job_lost_find(const struct job_run_of *r, struct job_lost *out)
{
    (void)r;
    memset(out, 0, sizeof *out);
}

void __wrap_job_lost_all(const struct job_run_of *r, struct job_lost *out)
{
    (void)r;
    out->n = 4;
    at.all++;
}

void __wrap_job_lost_clean(const struct job_run_of *r, struct job_lost *l)
{
    (void)r;
    at.cleaned = l->n;
}

/* The job's exit code; its directory is gone whatever has failed. */
static int ended(int code, int after, int stop, int end)
{
    static struct job_run_of r;
    int got;

    memset(&r, 0, sizeof r);
    snprintf(r.dir, sizeof r.dir, "/tmp/test_job_end.XXXXXX");
    assert_non_null(mkdtemp(r.dir));
    at.discarded = at.all = at.cleaned = 0;
    at.soon = false;
    r.declared.store.on_failure = at.on_failure;
    r.declared.store.persistent = at.persistent;
    r.declared.store.ssd = "/ssd";
    strcpy(r.alloc.job, "77");
    at.after = after;
    at.stop = stop;
    at.end = end;
    got = job_end(&r, code, 1234);
    assert_int_equal(access(r.dir, F_OK), -1);
    return got;
}

static void test_all_well(void **state)
{
    (void)state;
    assert_int_equal(ended(0, 0, 0, 0), 0);
    assert_true(at.soon && !at.all && !at.cleaned);
    assert_int_equal(ended(3, 0, 0, 0), 3);
}

static void test_data_that_is_not_out(void **state)
{
    (void)state;
    assert_int_equal(ended(0, -EIO, 0, 0), 1);
    assert_int_equal(ended(7, -EIO, 0, 0), 7);
}

/* Its data is out before anything is stopped. */
static void test_agents_that_hang_are_no_failure_of_the_job(void **state)
{
    (void)state;
    assert_int_equal(ended(0, 0, 0, -ETIMEDOUT), 0);
    assert_int_equal(at.all, 1);
    assert_int_equal(at.cleaned, 4);
    assert_int_equal(ended(3, 0, -EIO, -ETIMEDOUT), 3);
    assert_false(at.soon);
    assert_int_equal(ended(0, -EIO, -EIO, -ETIMEDOUT), 1);
}

static void test_a_store_that_does_not_stop_is_ended_by_its_agents(void **state)
{
    (void)state;
    assert_int_equal(ended(0, 0, -EIO, 0), 0);
    assert_true(!at.soon && !at.all);
}

/* Until its data is out it is kept, whatever happens: so what is said is that it need not be any more. */
static void test_a_store_that_is_kept_on_failure(void **state)
{
    (void)state;
    at.on_failure = JOB_FAILURE_KEEP;
    assert_int_equal(ended(0, 0, 0, 0), 0);
    assert_int_equal(at.discarded, 1);
    assert_true(at.released);
    assert_int_equal(ended(3, 0, 0, 0), 3); /* what is declared for an application that fails is out, too */
    assert_int_equal(at.discarded, 1);
    assert_int_equal(ended(0, -EIO, 0, 0), 1);
    assert_int_equal(at.discarded, 0);
    assert_false(at.released);
    at.persistent = "mine";
    assert_int_equal(ended(0, 0, 0, 0), 0);
    assert_int_equal(at.discarded, 0);
    at.persistent = NULL;
    at.on_failure = JOB_FAILURE_REMOVE;
    assert_int_equal(ended(0, -EIO, 0, 0), 1);
    assert_int_equal(at.discarded, 0);
}

/* fp-job start --hosts=n3,n4 in a job of other nodes, or of none: whose agents are gone is counted by the store's nodes. */
static void test_the_nodes_of_a_store_are_those_it_was_started_on(void **state)
{
    char *const names[] = {(char *)"n3", (char *)"n4"};
    struct job_record record = {.job = "test-end-1", .root = "n3:20008", .step = "0", .manager = "n3:4000", .mount = "/AggregateSSDstore", .application = "0", .nodes = 2};
    struct job_run_of r;
    char dir[PATH_MAX];

    (void)state;
    setenv("SLURM_JOB_ID", record.job, 1);
    setenv("SLURM_JOB_NODELIST", "n[1-4]", 1);
    assert_int_equal(job_dir_begin(dir, record.job), 0);
    assert_int_equal(job_record_save(dir, &record), 0);
    assert_int_equal(job_dir_write(dir, "script", "#!/bin/sh\n", 0600), 0);
    assert_int_equal(job_hosts_write(dir, names, 2), 0);
    assert_int_equal(job_find(&r), 0);
    assert_int_equal(r.alloc.nnodes, 2);
    assert_string_equal(r.alloc.nodes[1], "n4");
    job_run_fini(&r);
    assert_int_equal(job_dir_remove(dir), 0);
    unsetenv("SLURM_JOB_ID");
    unsetenv("SLURM_JOB_NODELIST");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_well),
        cmocka_unit_test(test_data_that_is_not_out),
        cmocka_unit_test(test_agents_that_hang_are_no_failure_of_the_job),
        cmocka_unit_test(test_a_store_that_does_not_stop_is_ended_by_its_agents),
        cmocka_unit_test(test_a_store_that_is_kept_on_failure),
        cmocka_unit_test(test_the_nodes_of_a_store_are_those_it_was_started_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
