/* Which lines of a batch script are directives, and the words of them, each with its place. */
#include "tests/unit/job_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static struct job_script s;
static struct job_findings f;

static void parse(const char *text)
{
    job_findings_init(&f);
    job_script_parse(text, &s, &f);
}

static void done(void)
{
    job_script_fini(&s);
    job_findings_fini(&f);
}

static void test_words_have_their_places(void **state)
{
    (void)state;
    parse("#!/bin/sh\n#FP store  ssd=/x\tsize=1GiB\n");
    assert_int_equal(s.nlines, 1);
    assert_int_equal(s.lines[0].line, 2);
    assert_int_equal(s.lines[0].nwords, 3);
    assert_string_equal(s.lines[0].words[0].text, "store");
    assert_int_equal(s.lines[0].words[0].at.column, 5);
    assert_string_equal(s.lines[0].words[1].text, "ssd=/x");
    assert_int_equal(s.lines[0].words[1].at.column, 12);
    assert_int_equal(s.lines[0].words[1].value_column, 16);
    assert_int_equal(s.lines[0].words[2].at.column, 19);
    assert_string_equal(s.lines[0].words[2].text + s.lines[0].words[2].value, "1GiB");
    done();
}

/* What goes to each node of a job is what they need of it. */
static void test_of_a_long_script_its_directives_are_left(void **state)
{
    char *all = malloc(1u << 20), *lines;
    size_t n = 0;

    (void)state;
    n += (size_t)sprintf(all, "#FP+ cores 1\n#!/bin/bash\n# what it is\n#FP store size=1GiB\n\n#SBATCH -N 4\n#FP auxapp dedup\n#FPS\n./app\n#FP store\n");
    while (n < 900000)
        n += (size_t)sprintf(all + n, "echo a line of many\n");
    lines = job_script_lines(all);
    assert_string_equal(lines, "#FP+ cores 1\n\n\n#FP store size=1GiB\n\n\n#FP auxapp dedup\n");
    parse(lines);
    assert_int_equal(s.nlines, 3);
    assert_int_equal(s.lines[1].line, 3);
    assert_int_equal(s.lines[2].line, 6);
    assert_int_equal(f.errors, 0);
    done();
    free(lines);
    lines = job_script_lines("./app\n");
    assert_string_equal(lines, "");
    free(lines);
    lines = job_script_lines("#FP store");
    assert_string_equal(lines, "#FP store\n");
    free(lines);
    free(all);
}

static void test_quotes_keep_blanks_and_hashes(void **state)
{
    (void)state;
    parse("#FP auxapp drain to=\"/a b#c\" 'x y'=\"it's\" a\"b\"c\n");
    assert_int_equal(f.n, 0);
    assert_int_equal(s.lines[0].nwords, 5);
    assert_string_equal(s.lines[0].words[2].text, "to=/a b#c");
    assert_int_equal(s.lines[0].words[2].value, 3);
    assert_string_equal(s.lines[0].words[3].text, "x y=it's");
    assert_int_equal(s.lines[0].words[3].value, 4);
    assert_string_equal(s.lines[0].words[4].text, "abc");
    done();
}

static void test_an_equals_sign_in_quotes_begins_no_value(void **state)
{
    (void)state;
    parse("#FP stage-in \"/a=b\"\n");
    assert_int_equal(s.lines[0].words[1].value, 0);
    done();
}

static void test_a_hash_that_begins_a_word_begins_a_comment(void **state)
{
    (void)state;
    parse("#FP cores 1 # FP(1,Y)\n#FP store ssd=/a#b\n#FP store #x\n");
    assert_int_equal(f.n, 0);
    assert_int_equal(s.lines[0].nwords, 2);
    assert_string_equal(s.lines[1].words[1].text, "ssd=/a#b");
    assert_int_equal(s.lines[2].nwords, 1);
    done();
}

static void test_lines_of_other_systems_and_prose_are_no_directives(void **state)
{
    (void)state;
    parse("#FPX a\n##FP store\n#SBATCH -N 1\n# the #FP store of this job\n# fp-job runs it\necho '#FP' >/dev/null\n");
    assert_int_equal(s.nlines, 0);
    assert_int_equal(f.n, 0);
    done();
}

static void test_what_was_meant_as_one_is_told(void **state)
{
    static const char *const lines[] = {"# FP store size=1GiB\n", "#fp cores 1\n", " #FP auxapp dedup\n", "#FP: stage-in /x\n", "#Fp stage-out x\n", "#FPstore\n"};

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        parse(lines[i]);
        assert_int_equal(s.nlines, 0);
        assert_int_equal(f.n, 1);
        assert_int_equal(f.errors, 0);
        done();
    }
}

static void test_behind_the_first_command_nothing_is_read(void **state)
{
    (void)state;
    parse("#!/bin/sh\n\n  # x\n#FP cores 1\nset -e\n#FP store\n# FP store\n");
    assert_int_equal(s.nlines, 1);
    assert_int_equal(f.n, 1);
    assert_int_equal(f.list[0].at.line, 6);
    assert_int_equal(f.list[0].severity, JOB_ERROR);
    done();
}

static void test_a_quote_that_is_not_closed_costs_its_line_alone(void **state)
{
    (void)state;
    parse("#FP auxapp drain to=\"/a b\n#FP cores 1\n");
    assert_int_equal(s.nlines, 1);
    assert_string_equal(s.lines[0].words[0].text, "cores");
    assert_int_equal(f.n, 1);
    assert_int_equal(f.list[0].at.column, 21);
    done();
}

static void test_an_empty_line_declares_nothing_and_says_so(void **state)
{
    (void)state;
    parse("#FP\n#FP \n#FP # x\n");
    assert_int_equal(s.nlines, 0);
    assert_int_equal(f.n, 3);
    done();
}

static void test_lines_end_as_on_other_systems(void **state)
{
    (void)state;
    parse("#FP cores 1\r\n#FP store");
    assert_int_equal(s.nlines, 2);
    assert_string_equal(s.lines[0].words[1].text, "1");
    done();
}

static void test_control_characters_and_long_lines_are_refused(void **state)
{
    char *text = malloc(JOB_LINE_BYTES_MAX + 100);

    (void)state;
    parse("#FP store ssd=/a\033[31m\n");
    assert_int_equal(s.nlines, 0);
    assert_int_equal(f.list[0].at.column, 17);
    done();
    memset(text, 'x', JOB_LINE_BYTES_MAX + 50);
    memcpy(text, "#FP store ", 10);
    text[JOB_LINE_BYTES_MAX + 50] = '\0';
    parse(text);
    assert_int_equal(s.nlines, 0);
    assert_int_equal(f.errors, 1);
    done();
    free(text);
}

static void test_findings_are_counted_beyond_what_is_kept(void **state)
{
    char text[5 * (JOB_FINDINGS_MAX + 7) + 1];
    size_t n = 0;

    (void)state;
    for (unsigned i = 0; i < JOB_FINDINGS_MAX + 7; i++)
        n += (size_t)sprintf(text + n, "#FP\n");
    parse(text);
    assert_int_equal(f.n, JOB_FINDINGS_MAX);
    assert_int_equal(f.beyond, 7);
    assert_int_equal(f.errors, JOB_FINDINGS_MAX + 7);
    done();
}

static int read_bytes(const void *bytes, size_t n)
{
    char path[] = "/tmp/test_job_script.XXXXXX";
    struct job_sbatch sb;
    int fd = mkstemp(path), rc;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
    job_findings_init(&f);
    rc = job_script_read(path, NULL, &s, &sb, &f);
    unlink(path);
    return rc;
}

static void test_what_is_no_text_or_too_large_is_refused(void **state)
{
    char *big = calloc(1, JOB_SCRIPT_BYTES_MAX + 1);
    struct job_sbatch sb;

    (void)state;
    assert_int_equal(read_bytes("#FP store\n\0\n", 12), -EINVAL);
    memset(big, '\n', JOB_SCRIPT_BYTES_MAX + 1);
    assert_int_equal(read_bytes(big, JOB_SCRIPT_BYTES_MAX + 1), -EFBIG);
    free(big);
    assert_int_equal(job_script_read("/tmp/no/such/script", NULL, &s, &sb, &f), -ENOENT);
    assert_int_equal(job_script_read("/tmp", NULL, &s, &sb, &f), -EISDIR);
    assert_int_equal(read_bytes("#FP store\n", 10), 0);
    assert_int_equal(s.nlines, 1);
    done();
}

static uint32_t nodes(const char *text)
{
    struct job_sbatch sb;

    job_sbatch_read(text, &sb, NULL);
    return sb.nodes;
}

static void test_nodes_are_those_of_the_last_sbatch_line(void **state)
{
    struct job_sbatch sb;

    (void)state;
    assert_int_equal(nodes("#SBATCH -N 4\n"), 4);
    assert_int_equal(nodes("#SBATCH -N4-8 # -N 3\n"), 4);
    assert_int_equal(nodes("#SBATCH --nodes=5 -J x\n#SBATCH --nodes 6\n"), 6);
    assert_int_equal(nodes("#SBATCH --nodelist=n7\n#SBATCH --nodes-x=3\n"), 0);
    assert_int_equal(nodes("echo\n#SBATCH -N 4\n"), 0);
    assert_int_equal(nodes("#SBATCH -N\n#SBATCH --nodes=\n#SBATCH -N x\n"), 0);
    job_sbatch_read("#SBATCH -p small,large -N 2\n", &sb, NULL);
    assert_string_equal(sb.partition, "small,large"); /* Slurm takes the one that it likes */
    assert_int_equal(sb.nodes, 2);
}

static void test_what_a_script_writes_into_another_is_none_of_its_lines(void **state)
{
    (void)state;
    parse("#FP store\nsbatch <<EOF\n#!/bin/sh\n#FP store size=1GiB\nEOF\ncat > x <<-'A B'\n#FP cores 1\n\tA B\necho \"\n#FP cores 1\n\"\n");
    assert_int_equal(s.nlines, 1);
    assert_int_equal(f.n, 0);
    done();
    parse("cat <<EOF\n#FP cores 1\nEOF\n#FP cores 2\n: $((1<<2))\n#FP cores 3\n");
    assert_int_equal(f.n, 2);
    assert_int_equal(f.list[0].at.line, 4);
    assert_int_equal(f.list[1].at.line, 6);
    done();
}

static void sbatch_time(const char *value, uint64_t want_s)
{
    char text[64];
    struct job_sbatch got;

    snprintf(text, sizeof text, "#SBATCH --time=%s\n", value);
    job_sbatch_read(text, &got, NULL);
    assert_int_equal(got.time_s, want_s);
}

static void sbatch_bad(const char *text, unsigned line, unsigned column, const char *part)
{
    struct job_sbatch sb;

    job_findings_init(&f);
    job_sbatch_read(text, &sb, &f);
    if (f.n != 1 || f.list[0].at.line != line || f.list[0].at.column != column || !strstr(f.list[0].text, part))
        fail_msg("%s: %zu, first %u:%u %s", text, f.n, f.n ? f.list[0].at.line : 0, f.n ? f.list[0].at.column : 0, f.n ? f.list[0].text : "");
    job_findings_fini(&f);
}

static void test_what_sbatch_would_refuse_has_its_place(void **state)
{
    static const char good[] = "#SBATCH --time=10 -t 1:2 -t 1:2:3 -t 1-2 -t 1-2:3 -t 1-2:3:4 -t UNLIMITED -t -1\n  # indented\n#SBATCH -N 1k -N 2-4 --nodes=1,3 --nodes=1-7:2 -c 2 --ntasks-per-node=3 # -N x\n"
                               "#SBATCH --job-name=\"-N x # y\" --comment='-c z'\nsrun ./app\ncat <<EOF\n#SBATCH -N 2\nEOF\n#SBATCHES\n##SBATCH -N 2\n";
    struct job_sbatch sb;

    (void)state;
    job_findings_init(&f);
    job_sbatch_read(good, &sb, &f);
    if (f.n)
        fail_msg("%u:%u %s", f.list[0].at.line, f.list[0].at.column, f.list[0].text);
    assert_int_equal(sb.nodes, 1);
    assert_int_equal(sb.task_cpus, 2);
    assert_int_equal(sb.node_tasks, 3);
    assert_int_equal(sb.node_tasks_at.column, 71);
    job_findings_fini(&f);
    sbatch_bad("#!/bin/sh\n#SBATCH --nodes=0\n", 2, 17, "from 1 on");
    sbatch_bad("#SBATCH -N x\n", 1, 12, "'x'");
    sbatch_bad("#SBATCH -N2x\n", 1, 11, "'2x'");
    sbatch_bad("#SBATCH -N 2-\n", 1, 12, "'2-'");
    sbatch_bad("#SBATCH -N 4-2\n", 1, 12, "'4-2'");
    sbatch_bad("#SBATCH -J x -N\n", 1, 14, "--nodes has no value");
    sbatch_time("10", 600);
    sbatch_time("1:2", 62);
    sbatch_time("1:2:3", 3723);
    sbatch_time("1-2", 93600);
    sbatch_time("1-2:3", 93780);
    sbatch_time("1-2:3:4", 93784);
    sbatch_time("10 -t UNLIMITED", 0);
    sbatch_bad("#SBATCH --time=abc\n", 1, 16, "hours:minutes:seconds");
    sbatch_bad("#SBATCH --time=1h\n", 1, 16, "'1h'");
    sbatch_bad("#SBATCH --time=1:2:3:4\n", 1, 16, "'1:2:3:4'");
    sbatch_bad("#SBATCH -c 0\n", 1, 12, "from 1 on");
    sbatch_bad("#SBATCH --ntasks-per-node=-1\n", 1, 27, "'-1'");
    sbatch_bad("#SBATCH\t--core-spec=x\n", 1, 21, "'x'");
    sbatch_bad("srun ./app\n#SBATCH -N 2\n", 2, 1, "behind the first command");
}

static void test_what_sbatch_is_called_with_counts_more_than_its_lines(void **state)
{
    struct job_sbatch sb;

    (void)state;
    job_sbatch_read("#SBATCH -p small -N 2\n", &sb, NULL);
    job_sbatch_call("-J\nx\n-N\n8\n--fp\n", &sb);
    assert_int_equal(sb.nodes, 8);
    assert_string_equal(sb.partition, "small");
    job_sbatch_call("--partition=large\n-N3-4", &sb);
    assert_int_equal(sb.nodes, 3);
    assert_string_equal(sb.partition, "large");
}

static void test_directives_of_options_are_no_lines_of_the_script(void **state)
{
    char *text = strdup("#!/bin/sh\n#FP store\n#FP+ cores 2\n"), where[64];

    (void)state;
    job_script_add(&text, "cores 1\nauxapp dedup\n");
    assert_string_equal(text, "#FP+ cores 1\n#FP+ auxapp dedup\n#!/bin/sh\n#FP store\n#FP+ cores 2\n");
    parse(text);
    free(text);
    assert_int_equal(f.n, 0);
    assert_int_equal(s.nlines, 3);
    assert_string_equal(s.lines[1].words[1].text, "dedup");
    assert_int_equal(s.lines[2].line, 2);
    job_place_write(s.lines[0].words[1].at, "job.sh", where, sizeof where);
    assert_string_equal(where, "--fp-cores");
    job_place_write(s.lines[1].words[0].at, "job.sh", where, sizeof where);
    assert_string_equal(where, "--fp-auxapps");
    job_place_write(s.lines[2].words[0].at, "job.sh", where, sizeof where);
    assert_string_equal(where, "job.sh:2:5");
    done();
}

static void test_nothing_is_put_before_a_script_without_options(void **state)
{
    char *text = strdup("#FP store\n");

    (void)state;
    job_script_add(&text, NULL);
    job_script_add(&text, "");
    assert_string_equal(text, "#FP store\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_script_writes_into_another_is_none_of_its_lines),
        cmocka_unit_test(test_what_sbatch_would_refuse_has_its_place),
        cmocka_unit_test(test_what_sbatch_is_called_with_counts_more_than_its_lines),
        cmocka_unit_test(test_directives_of_options_are_no_lines_of_the_script),
        cmocka_unit_test(test_nothing_is_put_before_a_script_without_options),
        cmocka_unit_test(test_words_have_their_places),
        cmocka_unit_test(test_of_a_long_script_its_directives_are_left),
        cmocka_unit_test(test_quotes_keep_blanks_and_hashes),
        cmocka_unit_test(test_an_equals_sign_in_quotes_begins_no_value),
        cmocka_unit_test(test_a_hash_that_begins_a_word_begins_a_comment),
        cmocka_unit_test(test_lines_of_other_systems_and_prose_are_no_directives),
        cmocka_unit_test(test_what_was_meant_as_one_is_told),
        cmocka_unit_test(test_behind_the_first_command_nothing_is_read),
        cmocka_unit_test(test_a_quote_that_is_not_closed_costs_its_line_alone),
        cmocka_unit_test(test_an_empty_line_declares_nothing_and_says_so),
        cmocka_unit_test(test_lines_end_as_on_other_systems),
        cmocka_unit_test(test_control_characters_and_long_lines_are_refused),
        cmocka_unit_test(test_findings_are_counted_beyond_what_is_kept),
        cmocka_unit_test(test_what_is_no_text_or_too_large_is_refused),
        cmocka_unit_test(test_nodes_are_those_of_the_last_sbatch_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
