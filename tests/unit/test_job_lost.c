/* Cleaning after agents of very many nodes (jobscripts/launch/lost.c): by an srun that notes what it is called with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "fp/rmtree.h"
#include "jobscripts/launch/hosts.h"
#include "jobscripts/launch/lost.h"

static char dir[] = "/tmp/fp-test-lost-XXXXXX";

/* An srun that notes its nodes, and ends with this code. */
static void use_srun(int code)
{
    char path[600], text[600];
    FILE *f;

    if (!strstr(dir, "XXXXXX"))
        snprintf(dir + strlen(dir) - 6, 7, "XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/srun", dir);
    f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "#!/bin/sh\nfor w; do case $w in --nodelist=*) echo \"${w#*=}\" >> %s/nodes;; esac; done\nexit %d\n", dir, code);
    fclose(f);
    assert_int_equal(chmod(path, 0755), 0);
    snprintf(text, sizeof text, "%s:/usr/bin:/bin", dir);
    setenv("PATH", text, 1);
}

/* What it has noted; the caller's. */
static char *noted(void)
{
    char path[600], *text = NULL;
    size_t size = 0;
    FILE *f;

    snprintf(path, sizeof path, "%s/nodes", dir);
    f = fopen(path, "r");
    assert_non_null(f);
    assert_true(getdelim(&text, &size, '\0', f) > 0);
    fclose(f);
    fp_remove_tree(dir);
    return text;
}

static void lose(const char *list)
{
    struct job_run_of r;
    struct job_lost l;

    memset(&r, 0, sizeof r);
    memset(&l, 0, sizeof l);
    snprintf(r.alloc.job, sizeof r.alloc.job, "12");
    r.alloc.in_slurm = true;
    assert_int_equal(job_hostlist(list, &r.alloc.nodes, &r.alloc.nnodes), 0);
    job_lost_all(&r, &l);
    assert_int_equal(l.n, r.alloc.nnodes);
    job_lost_clean(&r, &l);
    assert_null(l.names);
    job_alloc_fini(&r.alloc);
}

/* All are in one of a few steps, once: more than the words of a command line may have. */
static void test_many_nodes_are_cleaned_by_a_few_steps(void **state)
{
    char *text, *save = NULL;
    unsigned steps = 0, n = 0;

    (void)state;
    use_srun(0);
    lose("cluster-node-[00001-30000]");
    text = noted();
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *inner = NULL;

        steps++;
        assert_true(strlen(line) < 110000);
        for (char *w = strtok_r(line, ",", &inner); w; w = strtok_r(NULL, ",", &inner)) {
            char want[40];

            snprintf(want, sizeof want, "cluster-node-%05u", ++n);
            assert_string_equal(w, want);
        }
    }
    assert_int_equal(n, 30000);
    assert_in_range(steps, 5, 7);
    free(text);
}

/* A step that does not begin, as one of its nodes is down: some are tried alone, and the end of the job does not wait for a thousand. */
static void test_of_many_that_are_down_a_few_are_tried(void **state)
{
    char *text;
    unsigned lines = 0;

    (void)state;
    use_srun(1);
    lose("n[1-1000]");
    text = noted();
    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    assert_int_equal(lines, 1 + 4);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_nodes_are_cleaned_by_a_few_steps),
        cmocka_unit_test(test_of_many_that_are_down_a_few_are_tried),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
