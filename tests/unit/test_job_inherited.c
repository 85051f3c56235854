/* Variables that a store has left in the environment of a job: what is taken out, what comes back, and whose they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "jobscripts/launch/alloc.h"
#include "jobscripts/launch/inherited.h"

static void clear(void)
{
    static const char *const names[] = {"FP_MOUNT", "FP_JOB", "FP_ENTER", "FP_NO_STORE", "SLURM_TASK_PROLOG", "FP_TASK_PROLOG", "HWLOC_XMLFILE", "HWLOC_THISSYSTEM",
                                        "OMPI_MCA_orte_launch_agent", "PRTE_MCA_prte_launch_agent", JOB_BINDING_VARIABLE, "SLURM_JOB_ID", "PBS_JOBID", NULL};

    for (const char *const *n = names; *n; n++)
        unsetenv(*n);
}

static void forget(void)
{
    static struct job_inherited i;

    job_inherited_find(&i);
    assert_true(i.n <= JOB_INHERITED_MAX);
    job_inherited_forget(&i);
}

static void is(const char *name, const char *want)
{
    const char *got = getenv(name);

    if (want ? !got || strcmp(got, want) != 0 : got != NULL)
        fail_msg("%s is %s, not %s", name, got ? got : "not set", want ? want : "unset");
}

static void test_all_that_a_store_has_set_goes(void **state)
{
    (void)state;
    clear();
    setenv("FP_MOUNT", "/AggregateSSDstore", 1);
    setenv("FP_JOB", "12", 1);
    setenv("FP_ENTER", "/opt/bin/fp-enter", 1);
    setenv("FP_NO_STORE", "12", 1);
    setenv("SLURM_TASK_PROLOG", "/opt/bin/fp-task-prolog", 1);
    setenv("HWLOC_XMLFILE", "/tmp/fpstore-5001-12/cores.xml", 1);
    setenv("HWLOC_THISSYSTEM", "1", 1);
    setenv(JOB_BINDING_VARIABLE, JOB_BINDING_OURS, 1);
    setenv("OMPI_MCA_orte_launch_agent", "/opt/bin/fp-job daemon 12 -- orted", 1);
    setenv("PRTE_MCA_prte_launch_agent", "/opt/bin/fp-job daemon 12 -- prted", 1);
    setenv("FP_TASK_PROLOG", "", 1);
    forget();
    for (const char *const *n = (const char *const[]){"FP_MOUNT", "FP_JOB", "FP_ENTER", "FP_NO_STORE", "SLURM_TASK_PROLOG", "FP_TASK_PROLOG", "HWLOC_XMLFILE", "HWLOC_THISSYSTEM",
                                                       "OMPI_MCA_orte_launch_agent", "PRTE_MCA_prte_launch_agent", JOB_BINDING_VARIABLE, NULL}; *n; n++)
        is(*n, NULL);
}

static void test_what_the_user_had_set_comes_back(void **state)
{
    (void)state;
    clear();
    setenv("SLURM_TASK_PROLOG", "/opt/bin/fp-task-prolog", 1);
    setenv("FP_TASK_PROLOG", "/home/ada/prolog", 1);
    setenv("OMPI_MCA_orte_launch_agent", "/opt/bin/fp-job daemon 12 -- /opt/ompi/bin/orted -x", 1);
    forget();
    is("SLURM_TASK_PROLOG", "/home/ada/prolog");
    is("FP_TASK_PROLOG", NULL);
    is("OMPI_MCA_orte_launch_agent", "/opt/ompi/bin/orted -x");
    setenv("SLURM_TASK_PROLOG", "/new/bin/fp-task-prolog", 1);
    setenv("FP_TASK_PROLOG", "/old/bin/fp-task-prolog", 1); /* they would call each other for ever */
    forget();
    is("SLURM_TASK_PROLOG", NULL);
    is("FP_TASK_PROLOG", NULL);
}

static void test_what_is_the_user_s_or_the_site_s_stays(void **state)
{
    (void)state;
    clear();
    setenv("SLURM_TASK_PROLOG", "/home/ada/prolog", 1);
    setenv("HWLOC_XMLFILE", "/etc/site/cores.xml", 1);
    setenv("HWLOC_THISSYSTEM", "1", 1);
    setenv("OMPI_MCA_orte_launch_agent", "orted", 1);
    setenv(JOB_BINDING_VARIABLE, "none", 1);
    forget();
    job_inherited_forget_cores();
    is("SLURM_TASK_PROLOG", "/home/ada/prolog");
    is("HWLOC_XMLFILE", "/etc/site/cores.xml");
    is("HWLOC_THISSYSTEM", "1");
    is("OMPI_MCA_orte_launch_agent", "orted");
    is(JOB_BINDING_VARIABLE, "none");
}

static void test_whose_job_it_is(void **state)
{
    (void)state;
    clear();
    assert_false(job_alloc_is_other("12")); /* nothing says which job this is: ssh brings no variables */
    setenv("SLURM_JOB_ID", "13", 1);
    assert_true(job_alloc_is_other("12"));
    assert_false(job_alloc_is_other("13"));
    assert_false(job_alloc_is_other("node1-1700000000-77")); /* of a shell with --hosts, whose srun makes a job */
    assert_false(job_alloc_is_other("4-1700000000-77"));
    assert_false(job_alloc_is_other("12.server"));
    setenv("PBS_JOBID", "12[3].server", 1);
    assert_false(job_alloc_is_other("12_3_.server"));
    assert_true(job_alloc_is_other("12_4_.server"));
    clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_that_a_store_has_set_goes),
        cmocka_unit_test(test_what_the_user_had_set_comes_back),
        cmocka_unit_test(test_what_is_the_user_s_or_the_site_s_stays),
        cmocka_unit_test(test_whose_job_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
