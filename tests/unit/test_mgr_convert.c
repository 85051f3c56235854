/* Results of conversions: of which set they are, and what is told of conversions. */
#include <errno.h>
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

#include "mgr_drain_world.h"

#define OPEN     1
#define COMPLETE 2
#define QUIET_MS 2500u
#define PAUSE_MS 5000u
#define TEMP     ".fp-convert-aBcZ"

static struct world w;

static int setup(void **state)
{
    (void)state;
    w_open(&w, fix_path(), 1);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    w_close(&w);
    return 0;
}

static uint64_t dir(uint64_t parent, const char *name)
{
    return fix_mk(&w.f, parent, name, S_IFDIR | 0755);
}

/* Written and closed. */
static uint64_t file(uint64_t parent, const char *name)
{
    uint64_t ino = fix_creat(&w.f, w.f.conn, parent, name);

    assert_true(ino > 0);
    assert_true(fix_write(&w.f, ino, 0, 1000) > 0);
    fix_release(&w.f, w.f.conn, ino);
    return ino;
}

static void mark(uint64_t ino, const char *main)
{
    assert_int_equal(fix_set_xattr(&w.f, ino, "user.fp.converted", main, 0), 0);
}

/* As a converter makes it. */
static uint64_t result(uint64_t parent, const char *name, const char *main)
{
    uint64_t ino = file(parent, TEMP);

    mark(ino, main);
    assert_int_equal(fix_rename(&w.f, parent, TEMP, parent, name, 0), 0);
    return ino;
}

static int64_t set_of(uint64_t ino)
{
    return fix_sql(&w.f, "SELECT ckpt FROM inode WHERE ino=%llu", (unsigned long long)ino);
}

static int64_t of_set(const char *what, int64_t set)
{
    return fix_sql(&w.f, "SELECT s.%s FROM ckpt_set s WHERE id=%lld", what, (long long)set);
}

/* Its series and step, with the set in the table. */
static void is_of(uint64_t ino, uint64_t parent, const char *template, uint64_t step)
{
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM inode i JOIN ckpt_set s ON s.id=i.ckpt JOIN ckpt_series r ON r.id=s.series WHERE i.ino=%llu AND r.parent=%llu AND "
                                   "r.template=CAST('%s' AS BLOB) AND s.step=%llu AND s.how=5 AND s.top=0", (unsigned long long)ino, (unsigned long long)parent, template,
                             (unsigned long long)step), 1);
}

static void is(int64_t set, int64_t state, int64_t gen, int64_t files)
{
    assert_int_equal(of_set("state", set), state);
    assert_int_equal(of_set("gen", set), gen);
    if (state == COMPLETE)
        assert_int_equal(of_set("files", set), files);
}

static Fp__CtlSetsReply *list(void)
{
    Fp__CtlSets m = FP__CTL_SETS__INIT;

    return fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_SETS, &m, &fp__ctl_sets_reply__descriptor);
}

static void has_path(int64_t set, const char *want)
{
    Fp__CtlSetsReply *r = list();
    size_t at = 0;

    while (at < r->n_sets && (int64_t)r->sets[at]->id != set)
        at++;
    assert_true(at < r->n_sets);
    assert_int_equal(r->sets[at]->path.len, strlen(want));
    assert_memory_equal(r->sets[at]->path.data, want, strlen(want));
    fix_free(r);
}

static void test_a_result_is_a_set_of_its_own(void **state)
{
    uint64_t run = dir(MGR_ROOT_INO, "run"), raw = file(run, "dump_0007.0"), main, xmf, part;
    int64_t set = set_of(raw), own;

    (void)state;
    file(run, "dump_0007.1");
    w_tick(&w, QUIET_MS);
    is(set, COMPLETE, 1, 2);
    main = result(run, "dump_0007.h5", "dump_0007.h5");
    own = set_of(main);
    assert_true(own != 0 && own != set);
    is_of(main, run, "dump_#.h5", 7);
    has_path(own, "/run/dump_0007.h5");
    xmf = result(run, "dump_0007.xmf", "dump_0007.h5");
    part = result(run, "dump_0007.1.of.2.h5", "dump_0007.h5");
    assert_int_equal(set_of(xmf), own);
    assert_int_equal(set_of(part), own);
    has_path(own, "/run/dump_0007.h5"); /* of all of them the main one */
    is(own, OPEN, 1, 3);
    w_tick(&w, QUIET_MS);
    is(own, COMPLETE, 1, 3);
    is(set, COMPLETE, 1, 2);
    is_of(result(run, "chk_0040.h5", "chk_0040.h5"), run, "chk_#.h5", 40);
    is_of(result(run, "dump_0009", "dump_0009"), run, "dump_#.", 9); /* not that of the dumps, whatever it is called */
}

static void test_the_temporary_name_is_of_no_set_anywhere(void **state)
{
    uint64_t top = dir(MGR_ROOT_INO, "dump_0007"), sub = dir(top, "sub"), tmp, other;
    int64_t set = set_of(file(top, "rank_0"));

    (void)state;
    w_tick(&w, QUIET_MS);
    is(set, COMPLETE, 1, 1);
    tmp = file(sub, TEMP);
    other = file(top, TEMP);
    assert_int_equal(set_of(tmp) | set_of(other), 0);
    mark(tmp, "dump_0007.h5");
    assert_true(fix_write(&w.f, tmp, 5000, 1000) > 0);
    is(set, COMPLETE, 1, 1);
    assert_int_equal(fix_rename(&w.f, sub, TEMP, sub, "dump_0007.h5", 0), 0);
    is_of(tmp, sub, "dump_#.h5", 7);
    is(set, COMPLETE, 1, 1);
    /* none of it comes with its directory */
    assert_int_equal(fix_rename(&w.f, MGR_ROOT_INO, "dump_0007", MGR_ROOT_INO, "chk_9", 0), 0);
    w_tick(&w, QUIET_MS);
    assert_int_equal(set_of(other), 0);
    is_of(tmp, sub, "dump_#.h5", 7);
    assert_int_equal(fix_sql(&w.f, "SELECT files FROM ckpt_set WHERE step=9"), 1);
    assert_int_equal(fix_set_xattr(&w.f, top, "user.fp.checkpoint", "complete", 0), 0);
    assert_int_equal(set_of(other), 0);
    is_of(tmp, sub, "dump_#.h5", 7);
    assert_int_equal(fix_unlink(&w.f, top, TEMP, false), 0);
    assert_true(set_of(file(top, ".fp-convert-1")) != 0); /* letters alone */
    assert_true(set_of(file(top, ".fp-convert-")) != 0);
}

static void test_it_may_be_said_after_the_rename(void **state)
{
    uint64_t run = dir(MGR_ROOT_INO, "run"), raw = file(run, "dump_0007.0"), main;
    int64_t set = set_of(raw), seq;

    (void)state;
    w_tick(&w, QUIET_MS);
    seq = of_set("seq", set);
    main = file(run, "dump_0007.h5");
    assert_int_equal(set_of(main), set);
    mark(main, "dump_0007.h5");
    is_of(main, run, "dump_#.h5", 7);
    w_tick(&w, QUIET_MS); /* the dump has lost nothing, and waits for no word */
    is(set, COMPLETE, 2, 1);
    assert_int_equal(of_set("seq", set), seq);
    is(set_of(main), COMPLETE, 1, 1);
    mark(main, "other_8.h5"); /* of none: nothing in it says what the number is */
    assert_int_equal(set_of(main), 0);
    mark(main, "chk_8.h5");
    is_of(main, run, "chk_#.h5", 8);
}

static void test_one_that_is_made_anew_opens_its_own_set(void **state)
{
    uint64_t run = dir(MGR_ROOT_INO, "run"), raw = file(run, "dump_0007.0"), first = result(run, "dump_0007.h5", "dump_0007.h5"), second;
    int64_t own = set_of(first);

    (void)state;
    w_tick(&w, QUIET_MS);
    is(own, COMPLETE, 1, 1);
    second = result(run, "dump_0007.h5", "dump_0007.h5");
    assert_int_equal(set_of(second), own);
    is(own, OPEN, 2, 1);
    w_tick(&w, QUIET_MS);
    is(own, COMPLETE, 2, 1);
    is(set_of(raw), COMPLETE, 1, 1);
    assert_int_equal(fix_rename(&w.f, run, "dump_0007.h5", MGR_ROOT_INO, "x", 0), 0); /* its series is in its directory */
    is_of(second, MGR_ROOT_INO, "dump_#.h5", 7);
    assert_int_equal(fix_unlink(&w.f, MGR_ROOT_INO, "x", false), 0);
    w_tick(&w, QUIET_MS);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM ckpt_set"), 1);
}

static void test_it_outlasts_a_restart(void **state)
{
    uint64_t run = dir(MGR_ROOT_INO, "run"), raw = file(run, "dump_0007.0"), main = result(run, "dump_0007.h5", "dump_0007.h5"), tmp = file(run, TEMP);
    int64_t set = set_of(raw);

    (void)state;
    mark(tmp, "dump_0007.h5");
    w_tick(&w, QUIET_MS);
    w_restart(&w);
    w_tick(&w, QUIET_MS);
    is(set, COMPLETE, 1, 1);
    is_of(main, run, "dump_#.h5", 7);
    assert_int_equal(fix_rename(&w.f, run, TEMP, run, "dump_0007.xmf", 0), 0);
    assert_int_equal(set_of(tmp), set_of(main));
    is(set, COMPLETE, 1, 1);
    assert_int_equal(fix_rename(&w.f, run, "dump_0007.h5", run, "dump_0007.hdf", 0), 0);
    assert_int_equal(set_of(tmp), set_of(main));
    is(set, COMPLETE, 1, 1);
}

static void test_patterns_of_policies_say_the_step_and_who_drains_it(void **state)
{
    uint64_t run = dir(MGR_ROOT_INO, "run"), out = dir(MGR_ROOT_INO, "out"), d, main, deep;
    int64_t set;

    (void)state;
    w_policy(&w, "to=/pfs every=1 pattern=run/dump_{step}.h5");
    set = set_of(file(run, "dump_0007.0"));
    w_tick(&w, QUIET_MS);
    main = result(run, "dump_0007.h5", "dump_0007.h5");
    is_of(main, run, "dump_#.h5", 7);
    assert_int_equal(set_of(result(run, "dump_0007.xmf", "dump_0007.h5")), set_of(main));
    w_tick(&w, QUIET_MS);
    w_run(&w);
    is(set, COMPLETE, 1, 1);
    assert_non_null(w_find(&w, "run/dump_0007.h5"));
    assert_null(w_find(&w, "run/dump_0007.0"));
    assert_int_equal(fix_sql(&w.f, "SELECT seen*10+taken FROM policy"), 11);
    /* a pattern in which a directory has the step makes the result no member of what that directory is */
    w_policy(&w, "to=/pfs every=100 pattern=out/{step}/**");
    d = dir(out, "00300");
    set = set_of(file(d, "raw.bin"));
    assert_int_equal(of_set("step", set), 300);
    w_tick(&w, QUIET_MS);
    main = result(d, "all_1.h5", "all_1.h5");
    is_of(main, out, "#/all_*.h5", 300);
    deep = result(dir(d, "sub"), "all.h5", "all.h5");
    is_of(deep, out, "#/sub/all.h5", 300);
    is(set, COMPLETE, 1, 1);
    has_path(set_of(deep), "/out/00300/sub/all.h5");
}

static void test_numbers_that_grow_are_steps_of_results_too(void **state)
{
    uint64_t run = dir(MGR_ROOT_INO, "run"), deep = dir(MGR_ROOT_INO, "deep"), main;
    char name[32];

    (void)state;
    main = result(run, "out_100.h5", "out_100.h5");
    assert_int_equal(set_of(main), 0); /* nobody knows what the number is */
    for (unsigned i = 1; i <= 4; i++) {
        snprintf(name, sizeof name, "out_%u.bin", i * 100);
        file(run, name);
        snprintf(name, sizeof name, "%05u", i * 100);
        file(dir(deep, name), "rank_0");
        w_tick(&w, PAUSE_MS);
    }
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM ckpt_set WHERE state=2 AND how=3 AND files=1"), 8);
    assert_int_equal(set_of(main), 0);
    main = result(run, "out_300.h5", "out_300.h5");
    is_of(main, run, "out_#.h5", 300);
    main = result(deep, "00400.h5", "00400.h5");
    is_of(main, deep, "#.h5", 400);
    assert_int_equal(fix_sql(&w.f, "SELECT count(*) FROM ckpt_set WHERE state=2 AND how=3 AND gen=1"), 8);
}

static void test_a_name_without_a_step_is_of_no_set_until_somebody_says_so(void **state)
{
    uint64_t top = dir(MGR_ROOT_INO, "chk_7"), main;
    int64_t set = set_of(file(top, "rank_0"));

    (void)state;
    w_tick(&w, QUIET_MS);
    main = result(top, "all.h5", "all.h5");
    assert_int_equal(set_of(main), 0);
    is(set, COMPLETE, 1, 1);
    assert_int_equal(fix_set_xattr(&w.f, main, "user.fp.checkpoint", "complete", 0), 0);
    is_of(main, top, "all.h5", 0);
    w_tick(&w, 1000);
    is(set_of(main), COMPLETE, 1, 1);
    is(set, COMPLETE, 1, 1);
    main = result(top, "v12.h5", "v12.h5");
    assert_int_equal(fix_set_xattr(&w.f, main, "user.fp.checkpoint", "complete", 0), 0);
    assert_true(set_of(main) != set && set_of(main) != 0);
}

static void test_without_the_attribute_it_is_no_member_of_others(void **state)
{
    uint64_t run = dir(MGR_ROOT_INO, "run"), raw = file(run, "dump_0007.0"), main = result(run, "dump_0007.h5", "dump_0007.h5");
    int64_t set = set_of(raw), own = set_of(main);
    Fp__RemoveXattr m = FP__REMOVE_XATTR__INIT;

    (void)state;
    w_tick(&w, QUIET_MS);
    m.ino = main;
    m.name = fix_bin("user.fp.converted");
    fix_call(&w.f, w.f.conn, FP__MSG_TYPE__MSG_REMOVEXATTR, &m, NULL);
    assert_int_equal(w.f.status, 0);
    assert_int_equal(set_of(main), own);
    is(own, COMPLETE, 1, 1);
    assert_int_equal(fix_rename(&w.f, run, "dump_0007.h5", run, "dump_0007.hdf", 0), 0);
    assert_int_equal(set_of(main), 0);
    is(set, COMPLETE, 1, 1);
    mark(main, "dump_0007.hdf");
    is_of(main, run, "dump_#.hdf", 7);
    is(set, COMPLETE, 1, 1);
}

static void test_a_word_completes_its_set(void **state)
{
    uint64_t main = result(MGR_ROOT_INO, "dump_1.h5", "dump_1.h5");

    (void)state;
    assert_int_equal(fix_set_xattr(&w.f, main, "user.fp.checkpoint", "complete", 0), 0);
    w_tick(&w, 300);
    is(set_of(main), COMPLETE, 1, 1);
}

static void test_what_the_attributes_may_be(void **state)
{
    static const char *const wrong[] = {"", "a/b", "/"};
    uint64_t d = dir(MGR_ROOT_INO, "chk_1"), a = file(d, "a");
    char name[258];
    int64_t set = set_of(a), version = fix_sql(&w.f, "SELECT data_version FROM inode WHERE ino=%llu", (unsigned long long)a);

    (void)state;
    w_tick(&w, QUIET_MS);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(fix_set_xattr(&w.f, a, "user.fp.converted", wrong[i], 0), -EINVAL);
    memset(name, 'n', 256);
    name[256] = '\0';
    assert_int_equal(fix_set_xattr(&w.f, a, "user.fp.converted", name, 0), -EINVAL);
    assert_int_equal(fix_set_xattr(&w.f, d, "user.fp.converted", "dump_1.h5", 0), -EINVAL);
    assert_int_equal(fix_set_xattr(&w.f, a, "user.fp.conversion", "x", 0), -EINVAL);
    is(set, COMPLETE, 1, 1);
    assert_int_equal(fix_set_xattr(&w.f, a, "user.fp.convert", "waiting", 0), 0);
    assert_int_equal(fix_set_xattr(&w.f, d, "user.fp.convert", "running 10 %", 0), 0);
    fix_get_xattr(&w.f, d, "user.fp.convert", "running 10 %");
    is(set, COMPLETE, 1, 1);
    assert_int_equal(fix_sql(&w.f, "SELECT data_version FROM inode WHERE ino=%llu", (unsigned long long)a), version);
    name[255] = '\0';
    memcpy(name, "dump_5.", 7);
    mark(a, name);
    assert_int_equal(of_set("step", set_of(a)), 5);
}

static void says_set(uint64_t ino, Fp__CkptState state, int64_t set)
{
    Fp__LevelAsk q = FP__LEVEL_ASK__INIT;
    Fp__LevelReply *r;
    char want[64] = "";

    q.ino = ino;
    q.only_set = true;
    r = fix_call(&w.f, w.f.conn, FP__MSG_TYPE__MSG_LEVEL, &q, &fp__level_reply__descriptor);
    assert_int_equal(w.f.status, 0);
    if (set)
        snprintf(want, sizeof want, "%lld %lld", (long long)of_set("series", set), (long long)of_set("step", set));
    assert_string_equal(r->set, want);
    assert_int_equal(r->state, state);
    fix_free(r);
}

static void test_which_set_a_file_or_directory_is_of(void **state)
{
    uint64_t d = dir(MGR_ROOT_INO, "chk_1"), a = file(d, "a"), none = file(MGR_ROOT_INO, "none"), main = result(d, "dump_5.h5", "dump_5.h5");
    Fp__CtlSetSay say = FP__CTL_SET_SAY__INIT;
    Fp__LevelAsk q = FP__LEVEL_ASK__INIT;

    (void)state;
    says_set(a, FP__CKPT_STATE__CKPT_OPEN, set_of(a));
    says_set(d, FP__CKPT_STATE__CKPT_OPEN, set_of(a));
    says_set(none, FP__CKPT_STATE__CKPT_NONE, 0);
    w_tick(&w, QUIET_MS);
    says_set(a, FP__CKPT_STATE__CKPT_COMPLETE, set_of(a));
    says_set(main, FP__CKPT_STATE__CKPT_COMPLETE, set_of(main));
    say.path = fix_bin("chk_1");
    say.what = FP__SET_SAY__SET_SAY_FORGET;
    fix_free(fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_SET_SAY, &say, &fp__ckpt_set__descriptor));
    says_set(a, FP__CKPT_STATE__CKPT_FORGOTTEN, set_of(a));
    says_set(d, FP__CKPT_STATE__CKPT_FORGOTTEN, set_of(a));
    says_set(main, FP__CKPT_STATE__CKPT_COMPLETE, set_of(main));
    q.ino = MGR_ROOT_INO;
    q.only_set = true;
    fix_call(&w.f, w.f.conn, FP__MSG_TYPE__MSG_LEVEL, &q, &fp__level_reply__descriptor);
    assert_int_equal(w.f.status, -ENODATA);
}

static void say(uint64_t ino, const char *text)
{
    assert_int_equal(fix_set_xattr(&w.f, ino, "user.fp.convert", text, 0), 0);
}

static void set_says(int64_t set, const char *text)
{
    Fp__CtlSetsReply *r = list();
    size_t at = 0;

    while (at < r->n_sets && (int64_t)r->sets[at]->id != set)
        at++;
    assert_true(at < r->n_sets);
    assert_string_equal(r->sets[at]->convert, text);
    fix_free(r);
}

static void test_a_set_says_how_its_conversion_is(void **state)
{
    uint64_t d = dir(MGR_ROOT_INO, "chk_1"), a = file(d, "a"), side[20];
    char name[32], *text = malloc(9001);

    (void)state;
    for (unsigned i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "restart.7.%u", i);
        side[i] = file(MGR_ROOT_INO, name);
    }
    set_says(set_of(a), "");
    say(a, "waiting");
    set_says(set_of(a), "waiting");
    say(d, "failed rank_0: dataset u: byte 8: it is cut off"); /* the directory goes before what is in it */
    set_says(set_of(a), "failed rank_0: dataset u: byte 8: it is cut off");
    say(side[16], "done");
    set_says(set_of(side[0]), ""); /* of the first sixteen */
    say(side[15], "done x.h5");
    say(side[3], "running");
    set_says(set_of(side[0]), "running");
    memset(text, 'r', 9000);
    memcpy(text + 4095, "\303\244", 2);
    text[9000] = '\0';
    say(side[3], text);
    text[4095] = '\0'; /* no half of a letter */
    set_says(set_of(side[0]), text);
    free(text);
}

static Fp__CtlConversionsReply *conversions(const char *path, uint64_t after, uint32_t max)
{
    Fp__CtlConversions m = FP__CTL_CONVERSIONS__INIT;

    m.path = fix_bin(path);
    m.after = after;
    m.max = max;
    return fix_call(&w.f, w.ctl, FP__MSG_TYPE__MSG_CTL_CONVERSIONS, &m, &fp__ctl_conversions_reply__descriptor);
}

static void is_conversion(const Fp__Conversion *m, const char *path, const char *text, Fp__CkptState set)
{
    assert_int_equal(m->path.len, strlen(path));
    assert_memory_equal(m->path.data, path, strlen(path));
    assert_string_equal(m->text, text);
    assert_int_equal(m->set, set);
}

static void test_conversions_below_a_directory(void **state)
{
    uint64_t run = dir(MGR_ROOT_INO, "run"), d = dir(run, "chk_1"), a = file(d, "a"), lone = file(run, "lone"), other = file(MGR_ROOT_INO, "restart.5"), gone;
    Fp__CtlConversionsReply *r;

    (void)state;
    r = conversions("", 0, 0);
    assert_true(r->n_conversions == 0 && !r->more);
    fix_free(r);
    say(d, "waiting");
    say(other, "done restart.5.h5");
    say(lone, "failed lone: byte 7: no");
    w_tick(&w, QUIET_MS);
    r = conversions("", 0, 0);
    assert_int_equal(r->n_conversions, 3);
    assert_false(r->more);
    is_conversion(r->conversions[0], "/run/chk_1", "waiting", FP__CKPT_STATE__CKPT_COMPLETE);
    is_conversion(r->conversions[1], "/run/lone", "failed lone: byte 7: no", FP__CKPT_STATE__CKPT_NONE);
    is_conversion(r->conversions[2], "/restart.5", "done restart.5.h5", FP__CKPT_STATE__CKPT_COMPLETE);
    fix_free(r);
    r = conversions("run", 0, 0);
    assert_int_equal(r->n_conversions, 2);
    fix_free(r);
    r = conversions("run/lone", 0, 0);
    assert_int_equal(r->n_conversions, 1);
    is_conversion(r->conversions[0], "/run/lone", "failed lone: byte 7: no", FP__CKPT_STATE__CKPT_NONE);
    fix_free(r);
    assert_null(conversions("nothing", 0, 0));
    assert_int_equal(w.f.status, -ENOENT);
    assert_null(conversions("", UINT64_MAX, 0));
    assert_int_equal(w.f.status, -EINVAL);
    gone = fix_creat(&w.f, w.f.conn, run, "gone"); /* has no name, and is open */
    say(gone, "running");
    assert_int_equal(fix_unlink(&w.f, run, "gone", false), 0);
    assert_int_equal(fix_unlink(&w.f, run, "lone", false), 0);
    assert_int_equal(set_of(a) != 0, 1);
    r = conversions("run", 0, 0);
    assert_int_equal(r->n_conversions, 1);
    fix_free(r);
    fix_release(&w.f, w.f.conn, gone);
}

/* So many that an answer ends before it has come to one that is wanted. */
static void test_conversions_come_in_pages(void **state)
{
    enum { MANY = 1500 };
    uint64_t here = dir(MGR_ROOT_INO, "here"), there = dir(MGR_ROOT_INO, "there"), after = 0;
    Fp__CtlConversionsReply *r;
    size_t seen = 0, answers = 0;
    char name[32];
    bool more = true;

    (void)state;
    for (unsigned i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "f%c%c%c", 'a' + i / 676, 'a' + i / 26 % 26, 'a' + i % 26);
        say(fix_mk(&w.f, i < MANY - 10 ? there : here, name, S_IFREG | 0644), "waiting");
    }
    for (; more; answers++) {
        r = conversions("here", after, 4);
        assert_true(r->n_conversions <= 4);
        assert_true(!r->more || r->next > after);
        seen += r->n_conversions;
        after = r->next;
        more = r->more;
        fix_free(r);
    }
    assert_int_equal(seen, 10);
    assert_in_range(answers, 4, 5);
    for (more = true, after = seen = answers = 0; more; answers++) {
        r = conversions("", after, 0);
        seen += r->n_conversions;
        after = r->next;
        more = r->more;
        fix_free(r);
    }
    assert_int_equal(seen, MANY);
    assert_int_equal(answers, 6);
}

/* Of all attributes those alone that it is about are looked at. */
static void test_conversions_are_found_by_their_index(void **state)
{
    const char *sql = sqlite3_sql(w.f.core->db.st[MGR_ST_CONVERT_LIST]);
    char explain[512];
    sqlite3_stmt *st;

    (void)state;
    snprintf(explain, sizeof explain, "EXPLAIN QUERY PLAN %s", sql);
    assert_int_equal(sqlite3_prepare_v2(w.f.core->db.sq, explain, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    assert_non_null(strstr((const char *)sqlite3_column_text(st, 3), "xattr_convert"));
    assert_int_equal(sqlite3_step(st), SQLITE_DONE); /* and nothing is sorted */
    sqlite3_finalize(st);
}

static void test_without_sets_it_is_an_attribute(void **state)
{
    struct world *v = &w;

    (void)state;
    v->f.core->o.checkpoints_off = true;
    assert_int_equal(set_of(result(MGR_ROOT_INO, "dump_1.h5", "dump_1.h5")), 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_result_is_a_set_of_its_own),
        T(the_temporary_name_is_of_no_set_anywhere),
        T(it_may_be_said_after_the_rename),
        T(one_that_is_made_anew_opens_its_own_set),
        T(it_outlasts_a_restart),
        T(patterns_of_policies_say_the_step_and_who_drains_it),
        T(numbers_that_grow_are_steps_of_results_too),
        T(a_name_without_a_step_is_of_no_set_until_somebody_says_so),
        T(without_the_attribute_it_is_no_member_of_others),
        T(a_word_completes_its_set),
        T(what_the_attributes_may_be),
        T(which_set_a_file_or_directory_is_of),
        T(a_set_says_how_its_conversion_is),
        T(conversions_below_a_directory),
        T(conversions_come_in_pages),
        T(conversions_are_found_by_their_index),
        T(without_sets_it_is_an_attribute),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
