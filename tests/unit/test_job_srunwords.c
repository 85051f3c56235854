/* Where the command stands in a call of srun, by what srun --help says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>

#include "jobscripts/launch/srunwords.h"

static const char help[] = "Usage: srun [OPTIONS(0)... [executable(0) [args(0)...]]] [ : [OPTIONS(N)...]] executable(N) [args(N)...]\n\nParallel run options:\n"
                           "  -A, --account=name          charge job to specified account\n"
                           "      --bcast=<dest_path>     Copy executable file to compute nodes\n"
                           "      --container             Path to OCI container bundle\n"
                           "  -H, --hold                  submit job in held state\n"
                           "  -I, --immediate[=secs]      exit if resources not available in \"secs\"\n"
                           "  -l, --label                 prepend task number to lines of stdout/err\n"
                           "      --multi-prog            if set the program name specified is the\n"
                           "                              --label of a text, and -q of one\n"
                           "  -n, --ntasks=ntasks         number of tasks to run\n"
                           "      --ntasks-per-node=n     number of tasks to invoke on each node\n"
                           "      --ntasks-per-core=n     number of tasks to invoke on each core\n"
                           "      --exclusive[=user]      for job allocation\n"
                           "      --exclusive[=mcs]       allocate nodes in exclusive mode when\n"
                           "  -B  --extra-node-info=S[:C[:T]]  combine request of sockets per node,\n"
                           "      --gpu-bind=...          task to gpu binding options\n"
                           "  -h, --help                  show this help message\n";

static size_t words_of(char *text, char *argv[32])
{
    size_t n = 0;

    for (char *save = NULL, *w = strtok_r(text, " ", &save); w && n < 31; w = strtok_r(NULL, " ", &save))
        argv[n++] = w;
    argv[n] = NULL;
    return n;
}

static void is_at(const char *line, const char *command)
{
    char text[200], *argv[32], why[JOB_SRUN_WHY_BYTES] = "";
    size_t at = 0;

    snprintf(text, sizeof text, "%s", line);
    words_of(text, argv);
    if (job_srun_words(help, argv, &at, why))
        fail_msg("%s: %s", line, why);
    assert_string_equal(argv[at], command);
}

static void is_unclear(const char *line, const char *because)
{
    char text[200], *argv[32], why[JOB_SRUN_WHY_BYTES] = "";
    size_t at = 0;

    snprintf(text, sizeof text, "%s", line);
    words_of(text, argv);
    assert_int_equal(job_srun_words(help, argv, &at, why), -EINVAL);
    if (!strstr(why, because))
        fail_msg("%s: %s", line, why);
}

static void test_options_and_their_values_are_passed_over(void **state)
{
    (void)state;
    is_at("srun app", "app");
    is_at("srun app -n 4", "app");
    is_at("srun -n 4 app", "app");
    is_at("srun -n4 app", "app");
    is_at("srun -ln 4 app", "app");
    is_at("srun -ln4 -l app", "app");
    is_at("srun -I app", "app");
    is_at("srun -I60 app", "app");
    is_at("srun --immediate app", "app");
    is_at("srun --immediate=60 app", "app");
    is_at("srun --account a --hold app", "app");
    is_at("srun --account=a app", "app");
    is_at("srun -A -n app", "app"); /* a value may look like an option */
    is_at("srun --acc a app", "app");
    is_at("srun --excl app", "app"); /* told of twice, and one option */
    is_at("srun --ntasks 4 app", "app");
    is_at("srun --ntasks-per-n 4 app", "app");
    is_at("srun -B 1:2 app", "app");
    is_at("srun --gpu-bind closest app", "app");
    is_at("srun --container dir app", "app");
    is_at("srun -l -- --app", "--app");
    is_at("srun - app", "-");
    is_at("srun --cpu-bind=none app", "app"); /* not told of, and nothing to guess */
}

static void test_what_is_not_certain_is_said(void **state)
{
    (void)state;
    is_unclear("srun --cpu-bind none app", "does not tell of --cpu-bind");
    is_unclear("srun -q x app", "does not tell of -q");
    is_unclear("srun -lq x app", "does not tell of -lq");
    is_unclear("srun --ntasks-per 4 app", "does not tell of --ntasks-per");
    is_unclear("srun -n 4", "no command");
    is_unclear("srun -n", "no command");
    is_unclear("srun", "no command");
    is_unclear("srun --", "no command");
    is_unclear("srun -n 1 app : -n 2 other", "more than one command");
    is_unclear("srun : app", "no command");
    is_unclear("srun --multi-prog file", "names its programs itself");
    is_unclear("srun --multi file", "names its programs itself");
    is_unclear("srun --bcast=/tmp/x app", "names its programs itself");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options_and_their_values_are_passed_over),
        cmocka_unit_test(test_what_is_not_certain_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
