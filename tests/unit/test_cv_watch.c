/* The coordinator's decisions: when a group is converted, by whom, in parts or as a whole, when again; names of results; the words and lists of a conversion. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "convert/watch/argv.h"
#include "convert/watch/names.h"

char *__real_strdup(const char *text);
char *__wrap_strdup(const char *text);

static unsigned fails_in; /* with which strdup from now on memory is out; 0: with none */
static struct cw_groups all;
static char there[256]; /* nodes whose part is there, each with a comma behind it */
static unsigned asked;  /* how often it was asked for one */
static uint64_t now;

char *__wrap_strdup(const char *text)
{
    return fails_in && --fails_in == 0 ? NULL : __real_strdup(text);
}

static bool has_part(void *arg, const struct cw_part *p)
{
    char word[64];

    (void)arg;
    asked++;
    snprintf(word, sizeof word, "%s,", p->node);
    return strstr(there, word) != NULL;
}

static int setup(void **state)
{
    (void)state;
    all = (struct cw_groups){0};
    there[0] = '\0';
    now = 1000000;
    fails_in = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    cw_groups_free(&all);
    return 0;
}

static struct cw_group *add(const char *path, const char *node)
{
    struct cw_group *g = cw_groups_add(&all, "run/dump_# 7", path, node, 5);

    assert_non_null(g);
    g->state = CW_SET_COMPLETE;
    return g;
}

static struct cw_group *of_two_nodes(void)
{
    add("run/dump_7/rank_2", "b");
    add("run/dump_7/rank_0", "a");
    add("run/dump_7/rank_3", "b");
    return add("run/dump_7/rank_1", "a");
}

static enum cw_do decide(struct cw_group *g, const char *me, bool splits, const char *node)
{
    static const struct cw_splits parts = {.has_part = has_part};
    struct cw_action a = cw_group_decide(g, me, now, splits ? &parts : NULL);

    if (node)
        assert_string_equal(a.part.node, node);
    return a.what;
}

static void test_files_of_a_group_are_kept_once_and_in_order(void **state)
{
    struct cw_group *g = of_two_nodes();
    (void)state;

    for (size_t i = 0; i < 4; i++)
        assert_int_equal(g->files[i].path[strlen("run/dump_7/rank_")], '0' + (int)i);
    assert_ptr_equal(cw_groups_add(&all, g->key, "run/dump_7/rank_1", NULL, 5), g);
    assert_string_equal(g->files[1].node, "a"); /* NULL: as it was known */
    assert_ptr_equal(cw_groups_add(&all, g->key, "run/dump_7/rank_1", NULL, 9), g);
    assert_int_equal(g->nfiles, 4);
    assert_int_equal(all.nfiles, 4);
    assert_string_equal(g->files[1].node, ""); /* of the file as it was before */
    assert_int_equal(g->files[1].mtime_ns, 9);
    assert_ptr_equal(cw_group_file(g, "run/dump_7/rank_1"), &g->files[1]);
    assert_null(cw_group_file(g, "run/dump_7/rank_11"));
    assert_null(cw_groups_find(&all, "run/dump_# 8"));
    cw_groups_drop(&all, g);
    assert_int_equal(all.nfiles, 0);
}

static void test_nothing_is_done_before_the_set_is_complete(void **state)
{
    static const enum cw_set_state not_yet[] = {CW_SET_OPEN, CW_SET_TORN, CW_SET_FORGOTTEN};
    struct cw_group *g = add("run/dump_7/rank_0", "a");
    (void)state;

    for (size_t i = 0; i < sizeof not_yet / sizeof *not_yet; i++) {
        g->state = not_yet[i];
        assert_int_equal(decide(g, "a", true, NULL), CW_NOTHING);
        assert_true(g->next_ms > now);
        assert_int_equal(g->complete_ms, 0);
    }
    g->state = CW_SET_COMPLETE;
    assert_int_equal(decide(g, "a", true, NULL), CW_CONVERT);
    g->state = CW_SET_NONE; /* a file that is of no set waits for nothing */
    assert_int_equal(decide(g, "a", true, NULL), CW_CONVERT);
}

static void test_another_node_takes_over_what_is_not_done_in_time(void **state)
{
    struct cw_group *g = add("run/dump_7/rank_0", "a");
    (void)state;

    assert_int_equal(decide(g, "b", true, NULL), CW_NOTHING);
    now += CW_TAKE_MS - 1;
    assert_int_equal(decide(g, "b", true, NULL), CW_NOTHING);
    now += 1;
    assert_int_equal(decide(g, "b", true, NULL), CW_CONVERT);
    g->state = CW_SET_OPEN; /* written anew: its time begins again */
    assert_int_equal(decide(g, "b", true, NULL), CW_NOTHING);
    g->state = CW_SET_COMPLETE;
    assert_int_equal(decide(g, "b", true, NULL), CW_NOTHING);
}

static void test_whoever_comes_names_what_nobody_has_said_in_time_to_be_his(void **state)
{
    struct cw_group *g = add("run/dump_7/rank_0", NULL);
    (void)state;

    assert_int_equal(decide(g, "b", true, NULL), CW_NOTHING);
    now += CW_NAMED_MS - 1;
    assert_int_equal(decide(g, "b", true, NULL), CW_NOTHING);
    assert_true(g->next_ms <= now + CW_NAME_MS);
    now += 1;
    assert_int_equal(decide(g, "b", true, NULL), CW_NAME);
    assert_int_equal(decide(g, "b", false, NULL), CW_NAME);
}

/* Parts of which nodes think otherwise are made twice. */
static void test_nothing_is_begun_before_it_is_known_whose_all_files_are(void **state)
{
    struct cw_group *g = of_two_nodes();
    (void)state;

    add("run/dump_7/rank_99", NULL);
    assert_int_equal(decide(g, "b", true, NULL), CW_NOTHING);
    assert_int_equal(decide(g, "a", true, NULL), CW_NOTHING);
    now += CW_NAMED_MS;
    assert_int_equal(decide(g, "b", true, NULL), CW_NOTHING);
    assert_int_equal(decide(g, "a", true, NULL), CW_NAME); /* it leads */
    assert_int_equal(decide(g, "a", false, NULL), CW_CONVERT); /* in one piece: the first file alone matters */
    now += CW_TAKE_MS;
    assert_int_equal(decide(g, "b", true, NULL), CW_NAME);
}

static void test_a_file_that_is_another_is_nobodys_and_not_marked(void **state)
{
    struct cw_group *g = add("run/dump_7/rank_0", "a");
    (void)state;

    g->told = true;
    g->files[0].version = 5;
    g->complete_ms = now;
    assert_ptr_equal(cw_groups_add(&all, g->key, g->files[0].path, NULL, g->files[0].mtime_ns), g);
    assert_true(g->told && g->complete_ms && g->files[0].version == 5);
    assert_ptr_equal(cw_groups_add(&all, g->key, g->files[0].path, NULL, g->files[0].mtime_ns + 1), g);
    assert_false(g->told || g->complete_ms || g->files[0].version);
    assert_string_equal(g->files[0].node, "");
}

static void test_each_node_makes_its_part_and_the_first_joins_them(void **state)
{
    struct cw_group *g = of_two_nodes();
    (void)state;

    assert_int_equal(decide(g, "b", true, "b"), CW_PART);
    assert_int_equal(decide(g, "a", true, "a"), CW_PART);
    assert_int_equal(decide(g, "c", true, NULL), CW_NOTHING);
    strcpy(there, "a,");
    assert_int_equal(decide(g, "a", true, NULL), CW_NOTHING); /* waits for b */
    strcpy(there, "a,b,");
    assert_int_equal(decide(g, "b", true, NULL), CW_NOTHING);
    assert_int_equal(decide(g, "a", true, NULL), CW_JOIN);
    now += CW_TAKE_MS;
    assert_int_equal(decide(g, "b", true, NULL), CW_JOIN); /* a is late */
    there[0] = '\0';
    strcpy(there, "a,");
    assert_int_equal(decide(g, "a", true, "b"), CW_PART); /* b is */
    assert_int_equal(decide(g, "c", true, "b"), CW_PART);
}

/* There may be thousands of nodes, and each asks again and again. */
static void test_who_does_not_lead_asks_for_its_own_part_alone(void **state)
{
    struct cw_group *g = NULL;
    char path[64], node[16];
    (void)state;

    for (int i = 0; i < 5000; i++) {
        snprintf(path, sizeof path, "run/dump_7/rank_%04d", i);
        snprintf(node, sizeof node, "n%d", i);
        g = add(path, node);
    }
    strcpy(there, "n4999,");
    asked = 0;
    assert_int_equal(decide(g, "n4999", true, NULL), CW_NOTHING);
    assert_int_equal(asked, 1);
    assert_int_equal(decide(g, "n4998", true, "n4998"), CW_PART);
    assert_int_equal(decide(g, "n0", true, "n0"), CW_PART);
}

static void test_parts_are_of_nodes_in_the_order_of_their_first_files(void **state)
{
    struct cw_group *g = of_two_nodes();
    uint64_t a, b;
    struct cw_part *p;
    size_t n;
    (void)state;

    add("run/dump_7/rank", NULL); /* before all: of nobody, so that it is the first node's */
    p = cw_group_parts(g, 0, &n);
    assert_int_equal(n, 2);
    assert_string_equal(p[0].node, "a");
    assert_string_equal(p[1].node, "b");
    assert_int_equal(p[0].first, 0);
    assert_int_equal(p[1].first, 3);
    a = p[0].stamp;
    b = p[1].stamp;
    free(p);
    g->files[0].mtime_ns++;
    p = cw_group_parts(g, 0, &n);
    assert_true(p[0].stamp != a);
    assert_int_equal(p[1].stamp, b);
    free(p);
    p = cw_group_parts(g, 5, &n); /* made by another declaration */
    assert_true(p[1].stamp != b);
    free(p);
}

static void test_without_parts_the_node_of_the_first_file_converts_all(void **state)
{
    struct cw_group *g = of_two_nodes();
    (void)state;

    assert_int_equal(decide(g, "b", false, NULL), CW_NOTHING);
    assert_int_equal(decide(g, "a", false, NULL), CW_CONVERT);
}

static void test_what_passes_is_tried_again_later_and_later(void **state)
{
    struct cw_group *g = add("run/dump_7/rank_0", "a");
    uint64_t last = 0;
    (void)state;

    for (int i = 0; i < 20; i++) {
        g->phase = CW_RUNNING;
        cw_group_ended(g, CW_END_PASSING, now);
        assert_int_equal(g->phase, CW_WAITING);
        assert_true(g->next_ms - now >= last && g->next_ms - now <= CW_AGAIN_MAX_MS);
        last = g->next_ms - now;
    }
    assert_int_equal(last, CW_AGAIN_MAX_MS);
    cw_group_touched(g, now);
    assert_int_equal(g->next_ms, now);
    g->phase = CW_RUNNING;
    cw_group_ended(g, CW_END_PASSING, now);
    assert_true(g->next_ms - now < CW_AGAIN_MAX_MS);
}

static void test_a_crash_is_tried_again_a_few_times(void **state)
{
    struct cw_group *g = add("run/dump_7/rank_0", "a");
    (void)state;

    for (unsigned i = 1; i <= CW_CRASHES; i++) {
        g->phase = CW_RUNNING;
        cw_group_ended(g, CW_END_CRASH, now);
        assert_int_equal(g->phase, i < CW_CRASHES ? CW_WAITING : CW_FAILED);
    }
    cw_group_touched(g, now); /* other data */
    assert_int_equal(g->phase, CW_WAITING);
    assert_int_equal(g->crashes, 0);
}

static void test_bad_data_is_not_tried_again(void **state)
{
    struct cw_group *g = add("run/dump_7/rank_0", "a");
    (void)state;

    g->phase = CW_RUNNING;
    cw_group_ended(g, CW_END_BAD, now);
    assert_int_equal(g->phase, CW_FAILED);
}

static void test_what_is_written_while_it_is_converted_is_converted_again(void **state)
{
    static const enum cw_end ends[] = {CW_END_DONE, CW_END_PART, CW_END_BAD, CW_END_PASSING, CW_END_CRASH};
    struct cw_group *g = add("run/dump_7/rank_0", "a");
    (void)state;

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        g->phase = CW_RUNNING;
        cw_group_touched(g, now);
        assert_int_equal(g->phase, CW_RUNNING);
        cw_group_ended(g, ends[i], now);
        assert_int_equal(g->phase, CW_WAITING);
        assert_false(g->again);
        assert_int_equal(g->next_ms, now);
    }
    g->phase = CW_RUNNING;
    cw_group_ended(g, CW_END_DONE, now);
    assert_int_equal(g->phase, CW_DONE);
}

static void test_a_stamp_tells_files_that_were_changed_added_or_removed(void **state)
{
    struct cw_group *g = add("run/dump_7/rank_0", "a");
    uint64_t one = cw_group_stamp(g), changed, two;
    (void)state;

    assert_int_equal(cw_group_stamp(g), one);
    g->files[0].mtime_ns++;
    changed = cw_group_stamp(g);
    assert_true(changed != one);
    g->files[0].mtime_ns--;
    add("run/dump_7/rank_1", "b");
    two = cw_group_stamp(g);
    assert_true(two != one && two != changed);
    cw_groups_add(&all, g->key, "run/dump_7/rank_1", "c", 5); /* who wrote it is not what is in it */
    assert_int_equal(cw_group_stamp(g), two);
}

static struct cw_group *ranks(const char *key, int from, int to)
{
    struct cw_group *g = NULL;
    char path[64];

    for (int i = from; i < to; i++) {
        snprintf(path, sizeof path, "run/dump_1/rank_%d", i);
        g = cw_groups_add(&all, key, path, "a", 1);
        assert_non_null(g);
    }
    return g;
}

static void test_a_sample_tells_whether_the_files_that_there_were_are_there(void **state)
{
    char sample[CW_SAMPLE_BYTES];
    (void)state;

    cw_group_sample(ranks("a", 0, 4), sample);
    assert_int_equal(strlen(sample), 4 * 8);
    assert_true(cw_group_has_sample(cw_groups_find(&all, "a"), sample));
    assert_true(cw_group_has_sample(ranks("b", 0, 9), sample));
    assert_false(cw_group_has_sample(ranks("c", 1, 9), sample));
    assert_false(cw_group_has_sample(ranks("d", 3, 4), sample));
    assert_false(cw_group_has_sample(ranks("e", 4, 8), sample));
    cw_group_sample(ranks("f", 0, 5000), sample);
    assert_int_equal(strlen(sample), CW_SAMPLE_BYTES - 1);
    assert_true(cw_group_has_sample(cw_groups_find(&all, "f"), sample));
    assert_true(cw_group_has_sample(ranks("g", 0, 5001), sample));
    assert_false(cw_group_has_sample(ranks("h", 2500, 7500), sample));
    assert_false(cw_group_has_sample(cw_groups_find(&all, "a"), sample));
    assert_true(cw_group_has_sample(cw_groups_find(&all, "a"), ""));
}

static void test_groups_are_found_by_their_keys_whichever_were_dropped(void **state)
{
    char key[32];
    (void)state;

    for (int i = 0; i < 3000; i++) {
        snprintf(key, sizeof key, "/f%d", i);
        assert_non_null(cw_groups_add(&all, key, key + 1, NULL, i));
    }
    for (int i = 0; i < 3000; i += 3) {
        snprintf(key, sizeof key, "/f%d", i);
        cw_groups_drop(&all, cw_groups_find(&all, key));
    }
    assert_int_equal(all.count, 2000);
    for (int i = 0; i < 3000; i++) {
        struct cw_group *g;

        snprintf(key, sizeof key, "/f%d", i);
        g = cw_groups_find(&all, key);
        assert_true((g != NULL) == (i % 3 != 0));
        if (g)
            assert_int_equal(g->files[0].mtime_ns, i);
    }
}

/* Nobody could say what a group without files is. */
static void test_no_group_is_made_for_a_file_that_finds_no_room(void **state)
{
    unsigned times = 0;
    (void)state;

    all.nfiles = CV_FILES_MAX;
    assert_null(cw_groups_add(&all, "/one", "one", NULL, 5));
    assert_int_equal(all.count, 0);
    all.nfiles = 0;
    for (fails_in = ++times; !cw_groups_add(&all, "/one", "one", "a", 5); fails_in = ++times) {
        assert_null(cw_groups_find(&all, "/one"));
        assert_int_equal(all.count + all.nfiles, 0);
    }
    assert_true(times > 4); /* key, path, two names of nodes */
    for (fails_in = times = 1; !cw_groups_add(&all, "/one", "two", "a", 5); fails_in = ++times)
        assert_int_equal(cw_groups_find(&all, "/one")->nfiles, all.nfiles); /* one that was there stays */
    assert_int_equal(all.nfiles, 2);
}

/* ---------------------------------------------------------------- words */

static const char *const run_words[] = {"--from=raw", "--to=hdf5", NULL};
static const struct cw_options options = {.mount = "/mnt", .node = "a", .run_words = run_words, .program = "fp-convert"};

static bool has_word(const struct cw_argv *l, const char *word)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->items[i], word) == 0)
            return true;
    return false;
}

#define ASSERT_LIST(list, names) do { assert_int_equal((list).len, sizeof(names)); assert_memory_equal((list).text, names, sizeof(names)); } while (0)

static void test_files_are_lists_and_no_words(void **state)
{
    struct cw_action whole = {.what = CW_CONVERT}, part = {.what = CW_PART, .part = {.node = "b"}}, join = {.what = CW_JOIN};
    struct cw_group *g = of_two_nodes();
    struct cw_argv l = {0};
    (void)state;

    cw_argv_fill(&l, &options, g, &whole, "run/dump_7.h5", "stamp");
    assert_false(l.bad);
    ASSERT_LIST(l.inputs, "/mnt/run/dump_7/rank_0\0/mnt/run/dump_7/rank_1\0/mnt/run/dump_7/rank_2\0/mnt/run/dump_7/rank_3");
    assert_int_equal(l.only.len, 0);
    assert_true(has_word(&l, "run") && has_word(&l, "--files0-from=/proc/self/fd/5") && has_word(&l, "--out=/mnt/run/dump_7.h5") && has_word(&l, "--from=raw") && has_word(&l, "--of=stamp"));
    assert_false(has_word(&l, "--only0-from=/proc/self/fd/6"));
    cw_argv_free(&l);
    l = (struct cw_argv){0};
    cw_argv_fill(&l, &options, g, &part, "run/dump_7.h5", "stamp");
    ASSERT_LIST(l.only, "/mnt/run/dump_7/rank_2\0/mnt/run/dump_7/rank_3");
    assert_true(l.inputs.len > l.only.len && has_word(&l, "--only0-from=/proc/self/fd/6") && has_word(&l, "--out=/mnt/run/dump_7.h5.b.piece"));
    cw_argv_free(&l);
    l = (struct cw_argv){0};
    cw_argv_fill(&l, &options, g, &join, "run/dump_7.h5", "stamp");
    ASSERT_LIST(l.inputs, "/mnt/run/dump_7.h5.a.piece\0/mnt/run/dump_7.h5.b.piece");
    assert_true(has_word(&l, "join") && has_word(&l, "--out=/mnt/run/dump_7.h5"));
    assert_false(has_word(&l, "--from=raw"));
    cw_argv_free(&l);
}

/* 100,000 files of 20,000 nodes: as many words as of two files. */
static void test_words_do_not_grow_with_the_files(void **state)
{
    struct cw_action part = {.what = CW_PART, .part = {.node = "n7"}}, join = {.what = CW_JOIN};
    struct cw_group *g = NULL;
    char path[64], node[16];
    struct cw_argv l = {0};
    (void)state;

    for (int i = 0; i < 100000; i++) {
        snprintf(path, sizeof path, "run/dump_7/rank_%06d", i);
        snprintf(node, sizeof node, "n%d", i / 5);
        g = add(path, node);
    }
    cw_argv_fill(&l, &options, g, &part, "run/dump_7.h5", "stamp");
    assert_false(l.bad);
    assert_true(l.n < 16);
    assert_int_equal(l.inputs.len, 100000 * sizeof "/mnt/run/dump_7/rank_000000");
    assert_int_equal(l.only.len, 5 * sizeof "/mnt/run/dump_7/rank_000000");
    cw_argv_free(&l);
    l = (struct cw_argv){0};
    cw_argv_fill(&l, &options, g, &join, "run/dump_7.h5", "stamp");
    assert_true(!l.bad && l.n < 16 && l.inputs.len > 20000 * sizeof "/mnt/run/dump_7.h5.n0.piece");
    cw_argv_free(&l);
}

/* ---------------------------------------------------------------- names */

static void test_patterns_name_paths_and_stop_at_slashes(void **state)
{
    (void)state;
    assert_true(cw_name_matches("run/dump_*/rank_*.raw", "run/dump_0007/rank_12.raw"));
    assert_false(cw_name_matches("run/dump_*/rank_*.raw", "run/dump_0007/sub/rank_12.raw"));
    assert_false(cw_name_matches("run/dump_*", "run/dump_0007/rank_12.raw"));
    assert_false(cw_name_matches("run/*", "run/.fp-convert-abc"));
    assert_true(cw_name_matches("dump_?.raw", "dump_7.raw"));
}

static void expect_result(const char *dir, const char *into, const char *want, size_t n, const char *const *files)
{
    char out[PATH_MAX];
    struct cw_group *g = NULL;

    for (size_t i = 0; i < n; i++)
        g = cw_groups_add(&all, want, files[i], NULL, 0);
    assert_true(cw_name_result(g, dir, into, ".h5", out));
    assert_string_equal(out, want);
}
#define RESULT(dir, into, want, ...) expect_result(dir, into, want, sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), (const char *[]){__VA_ARGS__})

static void test_results_lie_beside_the_directory_or_files_that_they_are_made_of(void **state)
{
    (void)state;
    RESULT("run/dump_0040", NULL, "run/dump_0040.h5", "run/dump_0040/rank_0.raw", "run/dump_0040/rank_1.raw");
    RESULT("run/dump_0040", "made", "made/dump_0040.h5", "run/dump_0040/rank_0.raw");
    RESULT("dump_9", NULL, "dump_9.h5", "dump_9/a");
    RESULT("", NULL, "run/restart.5000.h5", "run/restart.5000.0", "run/restart.5000.1");
    RESULT("", NULL, "out/dump_0007.h5", "out/dump_0007_rank_10.raw", "out/dump_0007.raw");
    RESULT("", NULL, "final.h5", "final.raw");
    RESULT("", NULL, "chk_0007.h5", "chk_0007");
    RESULT("", NULL, "step.5000.h5", "step.5000"); /* a number is no ending */
    RESULT("", "", "x/.hidden.h5", "x/.hidden");
}

static void test_digits_are_not_cut_in_the_midst_of_a_number(void **state)
{
    (void)state;
    RESULT("", NULL, "out/t_7_rank.h5", "out/t_7_rank_10.raw", "out/t_7_rank_11.raw");
}

static void test_names_that_are_too_long_are_refused(void **state)
{
    char name[NAME_MAX + 1], out[PATH_MAX];
    struct cw_group *g;
    (void)state;

    memset(name, 'x', NAME_MAX);
    name[NAME_MAX] = '\0';
    g = cw_groups_add(&all, "/long", name, NULL, 0);
    assert_false(cw_name_result(g, "", NULL, ".h5", out));
}

static void test_a_part_has_the_name_of_its_node(void **state)
{
    char out[PATH_MAX];
    (void)state;

    assert_true(cw_name_part("run/dump_7.h5", "node3", out));
    assert_string_equal(out, "run/dump_7.h5.node3.piece");
    assert_true(cw_name_part("run/dump_7.h5", "rack/1", out));
    assert_string_equal(out, "run/dump_7.h5.rack_1.piece");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(files_of_a_group_are_kept_once_and_in_order),
        T(nothing_is_done_before_the_set_is_complete),
        T(another_node_takes_over_what_is_not_done_in_time),
        T(whoever_comes_names_what_nobody_has_said_in_time_to_be_his),
        T(nothing_is_begun_before_it_is_known_whose_all_files_are),
        T(a_file_that_is_another_is_nobodys_and_not_marked),
        T(each_node_makes_its_part_and_the_first_joins_them),
        T(who_does_not_lead_asks_for_its_own_part_alone),
        T(parts_are_of_nodes_in_the_order_of_their_first_files),
        T(without_parts_the_node_of_the_first_file_converts_all),
        T(what_passes_is_tried_again_later_and_later),
        T(a_crash_is_tried_again_a_few_times),
        T(bad_data_is_not_tried_again),
        T(what_is_written_while_it_is_converted_is_converted_again),
        T(a_stamp_tells_files_that_were_changed_added_or_removed),
        T(a_sample_tells_whether_the_files_that_there_were_are_there),
        T(groups_are_found_by_their_keys_whichever_were_dropped),
        T(no_group_is_made_for_a_file_that_finds_no_room),
        T(files_are_lists_and_no_words),
        T(words_do_not_grow_with_the_files),
        T(patterns_name_paths_and_stop_at_slashes),
        T(results_lie_beside_the_directory_or_files_that_they_are_made_of),
        T(digits_are_not_cut_in_the_midst_of_a_number),
        T(names_that_are_too_long_are_refused),
        T(a_part_has_the_name_of_its_node),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
