/* Which batch scripts name a directory as text, and where. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "jobscripts/script/naming.h"

#define DIR "/AggregateSSDstore"

static void is_at(const char *text, const char *dir, unsigned line, unsigned column)
{
    struct job_place at = {0};

    if (!job_naming_find(text, dir, &at))
        fail_msg("not found: %s", text);
    if (at.line != line || at.column != column)
        fail_msg("%u:%u, not %u:%u: %s", at.line, at.column, line, column, text);
}

static void is_nowhere(const char *text, const char *dir)
{
    struct job_place at = {0};

    if (job_naming_find(text, dir, &at))
        fail_msg("found at %u:%u: %s", at.line, at.column, text);
}

static void test_where_it_is_named(void **state)
{
    (void)state;
    is_at("srun ./app " DIR "/run\n", DIR, 1, 12);
    is_at("#!/bin/bash\n#FP store\n\nsrun ./app --out=" DIR, DIR, 4, 18);
    is_at("#FP+ cores 1\n#FP+ store\nls " DIR "\n", DIR, 1, 4); /* lines of options are none of the script */
    is_at("PATH=$PATH:" DIR "/bin\n", DIR, 1, 12);
    is_at("echo x>" DIR "/f\n", DIR, 1, 8);
    is_at("tar -C" DIR " -xf a\n", DIR, 1, 7);
    is_at("OUT=${OUT:-" DIR "/run}\n", DIR, 1, 12);
    is_at("ls //AggregateSSDstore//run\n", DIR, 1, 4);
    is_at("ls file:///a//b/c\n", "/a/b", 1, 9);
    is_at("echo \xc3\xa4 " DIR "\xc3\xa4 " DIR "\n", DIR, 1, 30);
}

static void test_quotes_are_none_of_it(void **state)
{
    (void)state;
    is_at("ls '" DIR "'/run\n", DIR, 1, 5);
    is_at("ls \"" DIR "\"\n", DIR, 1, 5);
    is_at("ls \"$X\" \"/Aggregate\"SSDstore\n", DIR, 1, 10);
    is_at("ls $'it\\'s' $'" DIR "'\n", DIR, 1, 15);
    is_at("ls \\\n  /Aggregate\\\nSSDstore\n", DIR, 2, 3);
    is_at("ls '/a b'\n", "/a b", 1, 5);
    is_at("ls /a\\ b/c\n", "/a b", 1, 4);
    is_at("sh -c 'cd x # ; cat " DIR "/f'\n", DIR, 1, 21); /* the shell that reads this may be another one */
    is_nowhere("ls \"$HOME\"" DIR "\n", DIR);
    is_at("echo don\\'t # it's\nls " DIR "\n", DIR, 2, 4);
}

static void test_comments_and_other_paths_do_not_count(void **state)
{
    (void)state;
    is_nowhere("#!/bin/bash\n# writes to " DIR "\n#FP store mount=" DIR "\n#SBATCH -o " DIR "/o\n", DIR);
    is_nowhere("srun ./app $FP_MOUNT # not " DIR "\nx;# " DIR "\n", DIR);
    is_at("echo ${#a} a#b " DIR "\n", DIR, 1, 16);
    is_nowhere("ls " DIR "2 " DIR "-old " DIR ".tar /mnt" DIR " $HOME" DIR " ${HOME}" DIR " ." DIR " ~" DIR " $(pwd)" DIR " */AggregateSSDstore\n", DIR);
    is_nowhere("", DIR);
    is_nowhere("ls /\n", "/");
}

static void test_what_is_taken_without_a_store_does_not_count(void **state)
{
    (void)state;
    is_nowhere("OUT=${FP_MOUNT:-" DIR "}/run\nB=\"${FP_MOUNT-" DIR "/run}\"; : ${FP_MOUNT:=" DIR "} ${FP_MOUNT:-\"" DIR "\"} ${FP_MOUNT:-/" DIR "}\n", DIR);
    is_at("OUT=${FP_MOUNT:-" DIR "}/run:" DIR "\n", DIR, 1, 41);
    is_at("ls ${FP_MOUNT:+" DIR "}\n", DIR, 1, 16);
    is_at("ls ${MY_FP_MOUNT:-" DIR "}\n", DIR, 1, 19);
}

static void test_here_documents_count(void **state)
{
    (void)state;
    is_at("cat > in <<EOF\n# don't\ndir = " DIR "\nEOF\n", DIR, 3, 7);
    is_at("cat > in <<-'E O'; cat <<\"B\"\n\tx\n\tE O\n# " DIR "\nB\n", DIR, 4, 3);
    is_nowhere("cat <<EOF\n'\nEOF\n# " DIR "\n", DIR); /* a quote in it opens nothing */
    is_nowhere("x=$((1<<3))\n# " DIR "\ncat <<<x\n# " DIR "\n", DIR);
    is_at("cat <<EOF\n" DIR, DIR, 2, 1);
}

static void test_variables_are_found_as_they_are_written(void **state)
{
    (void)state;
    is_at("cd ${HOME}/store/run\n", "$HOME/store", 1, 4);
    is_at("cd \"$HOME/store\"\n", "${HOME}/store", 1, 5);
    is_nowhere("cd $HOMES/store ${HOME:-x}/store $HOME/stores\n", "$HOME/store");
}

static void test_words_of_a_command(void **state)
{
    (void)state;
    assert_true(job_naming_word(DIR "/run", DIR));
    assert_true(job_naming_word("--out=" DIR, DIR));
    assert_true(job_naming_word("cat > " DIR "/f # x", DIR));
    assert_false(job_naming_word(DIR "2", DIR));
    assert_false(job_naming_word("cat ${FP_MOUNT:-" DIR "}", DIR));
    assert_false(job_naming_word("", DIR));
}

static void early(const char *text, unsigned line, unsigned column)
{
    struct job_place at = {0};

    if (job_naming_early(text, &at) != (line > 0))
        fail_msg("%s: %s", line ? "not found" : "found", text);
    if (at.line != line || at.column != column)
        fail_msg("%u:%u, not %u:%u: %s", at.line, at.column, line, column, text);
}

static void test_what_the_shell_puts_in_before_run_has_set_it(void **state)
{
    (void)state;
    early("#!/bin/sh\nfp-job run -- srun ./app $FP_MOUNT/run\n", 2, 26);
    early("exec /opt/bin/fp-job run job.sh -- srun ./app \"${FP_MOUNT}/a b\"\n", 1, 48);
    early("fp-job run -- \\\n  sh -c \"srun ./app $FP_MOUNT\"\n", 2, 21);
    early("fp-job run -- sh -c 'srun ./app \"$FP_MOUNT\"'\n", 0, 0);
    early("fp-job run -- sh -c \"srun ./app \\$FP_MOUNT\"\n", 0, 0);
    early("fp-job run -- ./app\necho $FP_MOUNT\n", 0, 0);
    early("fp-job run -- ./app; echo $FP_MOUNT\n", 0, 0);
    early("fp-job run -- ./app ${FP_MOUNT:-/AggregateSSDstore} $FP_MOUNTS\n", 0, 0);
    early("FP_MOUNT=/AggregateSSDstore\nfp-job run -- ./app $FP_MOUNT\n", 0, 0);
    early("eval \"$(fp-job start || echo false)\" || exit 1\nfp-job run -- ./app $FP_MOUNT\n", 0, 0);
    early("# fp-job run -- ./app $FP_MOUNT\n", 0, 0);
    early("", 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_where_it_is_named),
        cmocka_unit_test(test_what_the_shell_puts_in_before_run_has_set_it),
        cmocka_unit_test(test_quotes_are_none_of_it),
        cmocka_unit_test(test_comments_and_other_paths_do_not_count),
        cmocka_unit_test(test_what_is_taken_without_a_store_does_not_count),
        cmocka_unit_test(test_here_documents_count),
        cmocka_unit_test(test_variables_are_found_as_they_are_written),
        cmocka_unit_test(test_words_of_a_command),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
