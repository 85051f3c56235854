/* Versions that wait: what a file was is kept until what it is has the level that a policy asks for. */
#include "manager/level.h"
#include "mgr_rewrites.h"

static struct map was;
static uint64_t life;

/* What the benefactor says of itself each second. */
static void heard(void)
{
    Fp__BnfInfo i = fix_bnf_info();

    i.unsynced_life = life;
    i.backend = (char *)"dir";
    fix_heard(&f, i);
}

static void wait_ms(uint64_t ms)
{
    for (uint64_t t = 0; t < ms; t += 500) {
        heard();
        fix_tick(&f, 500);
    }
}

/* It has synced what it had. */
static void synced(void)
{
    Fp__BnfSyncReply r = FP__BNF_SYNC_REPLY__INIT;

    r.unsynced_life = life;
    fix_answer(&f, f.bnf_conn, FP__MSG_TYPE__MSG_BNF_SYNC_ALL, 0, &r);
}

static uint64_t policy(const char *text, uint64_t remove)
{
    return fix_policy(&f, fix_ctl(&f), text, remove, NULL);
}

/* As a drain that is done leaves it. */
static void drained(uint64_t ino, bool verified)
{
    unsigned long long n = ino, v = verified;

    fix_sql(&f, "DELETE FROM tfile WHERE id IN (SELECT tfile FROM drained WHERE ino=%llu)", n);
    fix_sql(&f, "DELETE FROM drained WHERE ino=%llu", n);
    fix_sql(&f, "INSERT INTO tfile(target,path,dev,tino,size,mtime,refs,gone) SELECT 1,'x'||(%llu+(SELECT count(*) FROM tfile)*100),1,1,1,1,1,0", n);
    fix_sql(&f, "INSERT INTO drained(ino,target,tfile,data_version,verified,at_ns,sums) SELECT %llu,1,(SELECT max(id) FROM tfile),data_version,%llu,1,x'' FROM inode WHERE ino=%llu", n, v, n);
    fix_sql(&f, "UPDATE inode SET flags=flags|%llu WHERE ino=%llu", (unsigned long long)MGR_DRAINS, n);
    mgr_level_drained(f.core);
    mgr_waits_drained(f.core, ino);
}

static void fill(uint64_t ino)
{
    open_by(f.conn, ino);
    for (uint64_t w = 0; w < 3; w++)
        assert_true(fix_write(&f, ino, w * CHUNK, CHUNK - 7));
    release(f.conn, ino, false);
    was = map_of(ino);
}

static int setup_of(const char *text, const char *path)
{
    life = 11;
    fix_versions = true;
    fix_open(&f, path, false);
    heard();
    file = fix_mk(&f, MGR_ROOT_INO, "a", S_IFREG | 0644);
    assert_int_equal(fix_set_xattr(&f, file, "user.fp.chunk_size", "64KiB", 0), 0);
    if (text)
        policy(text, 0);
    fill(file);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return setup_of("to=/t every=none results=a level=drained", ":memory:");
}

/* In place: one window, and what lies behind the end. */
static void rewrite(uint64_t ino, bool cut)
{
    open_by(f.conn, ino);
    if (cut)
        assert_int_equal(fix_truncate(&f, ino, 0), 0);
    assert_true(fix_write(&f, ino, CHUNK, CHUNK));
    assert_true(fix_write(&f, ino, 5 * CHUNK, 100));
    release(f.conn, ino, false);
    fix_check(&f);
}

static uint64_t waiting(void)
{
    int64_t n = fix_sql(&f, "SELECT n FROM version WHERE state=2");

    return n < 0 ? 0 : (uint64_t)n;
}

static void why_is(const char *text)
{
    Fp__CtlVersionsReply *r = ask("a", 0, false, false, false);

    assert_true(r->n_versions >= 2);
    assert_int_equal(r->versions[1]->state, FP__VERSION_STATE__VERSION_WAITS);
    if (!strstr(r->versions[1]->why, text))
        fail_msg("%s", r->versions[1]->why);
    fix_free(r);
}

static void restored(uint64_t n)
{
    Fp__CtlVersionsReply *r = ask("a", n, n == 0, false, false);

    assert_non_null(r);
    assert_int_equal(r->n_why, 0);
    assert_true(r->restored);
    fix_free(r);
    fix_tick(&f, 500);
    fix_check(&f);
}

static void test_it_waits_until_the_file_is_drained(void **state)
{
    (void)state;
    for (int cut = 0; cut < 2; cut++) {
        rewrite(file, cut);
        assert_true(waiting());
        why_is("kept until the file is drained: it is in the pool; benefactor 1 of node n1 has not synced it yet");
        wait_ms(20000);
        assert_int_equal(versions(), 1);
        drained(file, false);
        fix_tick(&f, 100);
        assert_int_equal(versions(), 0);
    }
    fix_tick(&f, 5000);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM inode"), 2);
}

static void test_verified_is_more_than_drained(void **state)
{
    (void)state;
    policy("to=/u every=none results=a level=verified verify=on", 0);
    rewrite(file, false);
    drained(file, false);
    fix_tick(&f, 10000);
    why_is("kept until the file is verified: it is drained");
    drained(file, true);
    fix_tick(&f, 100);
    assert_int_equal(versions(), 0);
}

/* Of files that no policy drains, local is enough. */
static void test_files_that_are_not_drained_wait_for_local(void **state)
{
    (void)state;
    teardown(NULL);
    setup_of("to=/t every=none results=other level=drained", ":memory:");
    rewrite(file, false);
    wait_ms(2000);
    why_is("kept until the file is local");
    wait_ms(4000); /* the benefactor is idle: it is asked to sync */
    synced();
    wait_ms(5000);
    assert_int_equal(versions(), 0);
}

/* Programs write all the time, so the benefactor is not idle: what waits for long asks. */
static void test_what_waits_for_long_has_devices_synced(void **state)
{
    uint64_t b = fix_mk(&f, MGR_ROOT_INO, "b", S_IFREG | 0644), t = 0;

    (void)state;
    teardown(NULL);
    setup_of("to=/t every=none results=other level=drained", ":memory:");
    b = fix_mk(&f, MGR_ROOT_INO, "b", S_IFREG | 0644);
    rewrite(file, false);
    for (; t < 40000 && versions(); t += 500) {
        assert_true(fix_write(&f, b, (t / 500) * 100, 100));
        heard();
        fix_tick(&f, 500);
        if (fix_out_find(&f, f.bnf_conn, FP__MSG_TYPE__MSG_BNF_SYNC_ALL))
            synced();
    }
    assert_true(t >= 10000);
    assert_int_equal(versions(), 0);
}

static void test_without_a_policy_nothing_waits(void **state)
{
    uint64_t id;

    (void)state;
    rewrite(file, false);
    assert_true(waiting());
    id = (uint64_t)fix_sql(&f, "SELECT id FROM policy");
    policy("", id);
    fix_tick(&f, 10000);
    assert_int_equal(versions(), 0);
    rewrite(file, false);
    assert_int_equal(versions(), 0);
}

static void test_it_is_put_back_when_asked_for(void **state)
{
    struct map is;

    (void)state;
    for (int cut = 0; cut < 2; cut++) {
        rewrite(file, cut);
        is = map_of(file);
        restored(cut ? 0 : waiting());
        assert_map(file, &was);
        assert_int_equal(fix_sql(&f, "SELECT state FROM version"), MGR_REMAINS);
        restored((uint64_t)fix_sql(&f, "SELECT n FROM version")); /* a mistake is taken back */
        assert_map(file, &is);
        restored((uint64_t)fix_sql(&f, "SELECT n FROM version"));
    }
}

/* The one before never had the level: what waits is what had it. */
static void test_rewritten_again_and_again_the_oldest_waits(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        rewrite(file, i == 3);
        if (i % 2) {
            open_by(f.conn, file);
            assert_int_equal(fix_truncate(&f, file, CHUNK + 100 * (uint64_t)i), 0);
            assert_true(fix_write(&f, file, 2 * CHUNK + 50, 1000));
            release(f.conn, file, false);
        }
        assert_int_equal(versions(), 1);
        assert_int_equal(fix_sql(&f, "SELECT count(*) FROM inode"), 3);
    }
    restored(0);
    assert_map(file, &was);
}

/* What had the level when its rewriting began is what waits from then on, even if nobody has looked since. */
static void test_the_newest_with_the_level_waits(void **state)
{
    struct map is;

    (void)state;
    rewrite(file, false);
    drained(file, false);
    is = map_of(file);
    open_by(f.conn, file);
    assert_true(fix_write(&f, file, 0, 100));
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM version WHERE state=2"), 0);
    release(f.conn, file, false);
    assert_int_equal(versions(), 1);
    restored(0);
    assert_map(file, &is);
}

/* The last published one comes back by itself, and the one with the level when somebody asks for it: also when both are asked for at once. */
static void test_a_writer_dies_while_one_waits(void **state)
{
    struct map second, third;
    uint64_t n;

    (void)state;
    rewrite(file, false);
    second = map_of(file);
    n = waiting();
    open_by(f.conn, file);
    assert_int_equal(fix_truncate(&f, file, CHUNK + 9), 0);
    assert_true(fix_write(&f, file, 0, 100));
    assert_true(fix_write(&f, file, 2 * CHUNK, 100));
    assert_int_equal(versions(), 2);
    fix_check(&f);
    dies(f.conn);
    new_mount();
    assert_map(file, &second);
    assert_int_equal(waiting(), n);
    open_by(f.conn, file);
    assert_true(fix_write(&f, file, 2 * CHUNK, CHUNK));
    third = map_of(file);
    release(f.conn, file, true);
    assert_int_equal(versions(), 3); /* what was given up before is still there */
    restored(n);
    assert_map(file, &was);
    assert_int_equal(versions(), 1);
    assert_string_not_equal(second.text, third.text);
    restored((uint64_t)fix_sql(&f, "SELECT n FROM version")); /* what was put back first */
    assert_map(file, &second);
}

static void test_what_is_appended_changes_no_version(void **state)
{
    (void)state;
    rewrite(file, false);
    open_by(f.conn, file);
    fix_appended = true;
    for (uint64_t i = 0; i < 4; i++)
        assert_true(fix_write(&f, file, 5 * CHUNK + 100 + i * CHUNK / 2, 100));
    fix_appended = false;
    release(f.conn, file, false);
    restored(0);
    assert_map(file, &was);
}

static void test_a_restart_of_the_manager(void **state)
{
    (void)state;
    teardown(NULL);
    setup_of("to=/t every=none results=a level=drained", fix_path());
    rewrite(file, false);
    fix_close(&f);
    fix_open(&f, fix_path(), false);
    fix_tick(&f, 61000); /* nobody is waited for any more */
    new_mount();
    fix_tick(&f, 10000);
    assert_true(waiting());
    rewrite(file, true);
    assert_int_equal(versions(), 1);
    restored(0);
    assert_map(file, &was);
    fix_close_and_remove(&f);
    setup(NULL);
}

/* ---------------------------------------------------------------- names */

/* b, made and closed well, takes the name a. */
static uint64_t another(bool whole)
{
    uint64_t b = fix_mk(&f, MGR_ROOT_INO, "b", S_IFREG | 0600);

    open_by(f.conn, b);
    assert_true(fix_write(&f, b, 0, 100));
    if (whole)
        release(f.conn, b, false);
    assert_int_equal(fix_rename(&f, MGR_ROOT_INO, "b", MGR_ROOT_INO, "a", 0), 0);
    fix_check(&f);
    return b;
}

static void test_what_is_renamed_over_waits(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) { /* 1, 2: the file was rewritten before, so what waits for it is what it was */
        if (how)
            rewrite(file, how == 2);
        file = another(true);
        assert_int_equal(versions(), 1);
        file = another(true);
        file = another(false);
        assert_int_equal(versions(), 2);
        release(f.conn, file, false);
        assert_int_equal(versions(), 1);
        restored(0);
        assert_map(file, &was);
        teardown(NULL);
        setup(NULL);
    }
    file = another(true);
    drained(file, false);
    fix_tick(&f, 500);
    assert_int_equal(versions(), 0);
    fix_tick(&f, 5000);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM inode"), 2);
}

/* Its writer dies: what it was comes back, which is not drained either. */
static void test_what_is_renamed_over_before_it_is_whole(void **state)
{
    struct map is;

    (void)state;
    rewrite(file, false);
    is = map_of(file);
    file = another(false);
    assert_int_equal(versions(), 2);
    dies(f.conn);
    new_mount();
    assert_map(file, &is);
    assert_true(waiting());
    restored(waiting());
    assert_map(file, &was);
}

/* It goes on being read, under no name. What waited for it waits for the new one all the same. */
static void test_a_file_that_is_open_is_no_version(void **state)
{
    struct map is;
    uint64_t old = file;
    Fp__Open m = FP__OPEN__INIT;

    (void)state;
    for (int again = 0; again < 2; again++) {
        if (again)
            rewrite(file, false);
        is = map_of(file);
        m.ino = old = file;
        fix_free(fix_call(&f, f.conn, FP__MSG_TYPE__MSG_OPEN, &m, &fp__attr_reply__descriptor));
        file = another(true);
        assert_int_equal(versions(), again);
        assert_map(old, &is);
        if (!again) {
            teardown(NULL);
            setup(NULL);
        }
    }
    restored(0);
    assert_map(file, &was);
}

static void test_a_file_that_is_removed_has_none(void **state)
{
    (void)state;
    rewrite(file, false);
    assert_int_equal(fix_unlink(&f, MGR_ROOT_INO, "a", false), 0);
    assert_int_equal(versions(), 0);
    fix_tick(&f, 5000);
    assert_int_equal(fix_sql(&f, "SELECT count(*) FROM inode"), 1);
}

/* ---------------------------------------------------------------- space, loss */

/* After what was given up, and before guards. */
static void test_space(void **state)
{
    uint64_t b = fix_mk(&f, MGR_ROOT_INO, "b", S_IFREG | 0644);
    struct map is;

    (void)state;
    rewrite(file, true);
    is = map_of(file);
    fill(b);
    open_by(f.conn, b);
    assert_int_equal(fix_truncate(&f, b, 0), 0);
    assert_int_equal(versions(), 2);
    the_guard_goes_last();
    assert_map(file, &is);
}

/* As long as something else is being deleted, it may stay. */
static void test_space_that_is_coming_is_waited_for(void **state)
{
    uint64_t b = fix_mk(&f, MGR_ROOT_INO, "b", S_IFREG | 0644);

    (void)state;
    rewrite(file, true);
    fill(b);
    assert_int_equal(fix_unlink(&f, MGR_ROOT_INO, "b", false), 0);
    assert_true(fix_sql(&f, "SELECT count(*) FROM garbage") > 0);
    press(1);
    assert_true(waiting());
}

static void bad(uint64_t ino, uint64_t win)
{
    Fp__BadChunk m = FP__BAD_CHUNK__INIT;

    m.chunk = (uint64_t)fix_sql(&f, "SELECT chunk FROM slice WHERE ino=%llu AND win=%llu", (unsigned long long)ino, (unsigned long long)win);
    m.ino = ino;
    m.bnf = f.bnf;
    m.reason = (char *)"checksum mismatch";
    fix_notice(&f, f.conn, FP__MSG_TYPE__MSG_BADCHUNK, &m);
}

/* It is not put back behind anybody's back; who looks is told what to do. */
static void test_data_that_is_lost(void **state)
{
    Fp__CtlStatusReply *r;

    (void)state;
    rewrite(file, true);
    bad(file, 1);
    fix_tick(&f, 20000);
    assert_true(waiting());
    why_is("lost or damaged: fpctl restore puts this back");
    r = fix_call(&f, fix_ctl(&f), FP__MSG_TYPE__MSG_CTL_STATUS, NULL, &fp__ctl_status_reply__descriptor);
    assert_non_null(r);
    assert_int_equal(r->n_damaged, 1);
    assert_int_equal(r->damaged[0]->version, waiting());
    fix_free(r);
    drained(file, true); /* nobody can have done so: what is damaged has no level */
    fix_tick(&f, 20000);
    assert_true(waiting());
    restored(0);
    assert_map(file, &was);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(it_waits_until_the_file_is_drained),
        T(verified_is_more_than_drained),
        T(files_that_are_not_drained_wait_for_local),
        T(what_waits_for_long_has_devices_synced),
        T(without_a_policy_nothing_waits),
        T(it_is_put_back_when_asked_for),
        T(rewritten_again_and_again_the_oldest_waits),
        T(the_newest_with_the_level_waits),
        T(a_writer_dies_while_one_waits),
        T(what_is_appended_changes_no_version),
        T(a_restart_of_the_manager),
        T(what_is_renamed_over_waits),
        T(what_is_renamed_over_before_it_is_whole),
        T(a_file_that_is_open_is_no_version),
        T(a_file_that_is_removed_has_none),
        T(space),
        T(space_that_is_coming_is_waited_for),
        T(data_that_is_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
