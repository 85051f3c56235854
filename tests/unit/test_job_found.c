/*
 * What a pattern names, and a store that goes away meanwhile (jobscripts/found.c). The store is a FUSE mount of this program, in a mount namespace of its own: what the kernel says
 * below one that has ended, has been detached or does not answer can't be had otherwise. That needs root and /dev/fuse.
 */
#define FUSE_USE_VERSION 317
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <glob.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "fp/clock.h"
#include "fp/log.h"
#include "jobscripts/found.h"
#include "jobscripts/start.h"

#define SOON_MS 20000u /* of an answer that comes by itself, on a machine that has other things to do */
#define SHORT_MS 400u  /* of one that does not */

static char top[] = "/tmp/test_job_found.XXXXXX", store[64]; /* a directory, and in it the mountpoint */
static bool may_mount;

static const char *at_top(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", top, name);
    return path;
}

/* ---------------------------------------------------------------- a store of few files */

static int s_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
    static const char *const dirs[] = {"/", "/d", "/gone", "/dies", "/sick", "/shut", NULL}, *const files[] = {"/a.1", "/a.2", "/d/x", "/gone/x", "/dies/x", "/sick/x", NULL};

    (void)fi;
    if (strcmp(path, "/d/sick") == 0)
        return -EIO;
    if (strcmp(path, "/d/locked") == 0)
        return -EACCES;
    *st = (struct stat){.st_nlink = 1};
    for (const char *const *p = dirs; *p; p++)
        if (strcmp(path, *p) == 0)
            st->st_mode = S_IFDIR | 0755;
    for (const char *const *p = files; *p; p++)
        if (strcmp(path, *p) == 0)
            st->st_mode = S_IFREG | 0644;
    return st->st_mode ? 0 : -ENOENT;
}

static int s_readdir(const char *path, void *buf, fuse_fill_dir_t fill, off_t at, struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
    static const char *const names[] = {"a.1", "a.2", "d", NULL};

    (void)at, (void)fi, (void)flags;
    if (strcmp(path, "/sick") == 0) {
        fill(buf, "x", NULL, 1, 0);
        return at ? -EIO : 0; /* the second time, as of a long directory */
    }
    if (strcmp(path, "/dies") == 0 && unlink(at_top("dies")) == 0)
        _exit(1);
    if (strcmp(path, "/gone") == 0 && unlink(at_top("gone")) == 0)
        (void)umount2(store, MNT_DETACH);
    if (path[1])
        return fill(buf, "x", NULL, 0, 0), 0;
    for (const char *const *n = names; *n; n++)
        fill(buf, *n, NULL, 0, 0);
    if (access(at_top("shut"), F_OK) == 0)
        fill(buf, "shut", NULL, 0, 0);
    return 0;
}

static int s_opendir(const char *path, struct fuse_file_info *fi)
{
    (void)fi;
    return strcmp(path, "/shut") == 0 ? -EIO : 0;
}

/* The next one that lists this directory of the store sees it die, or go away from where it is mounted. */
static void once(const char *dir)
{
    assert_int_equal(mknod(at_top(dir), S_IFREG | 0600, 0), 0);
}

static void pause_ms(unsigned ms)
{
    const struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};

    nanosleep(&t, NULL);
}

static _Noreturn void serve(int ready)
{
    static const struct fuse_operations ops = {.getattr = s_getattr, .readdir = s_readdir, .opendir = s_opendir};
    char name[] = "test_job_found", *argv[] = {name, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(1, argv);
    struct fuse *f;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    f = fuse_new(&args, &ops, sizeof ops, NULL);
    if (!f || fuse_mount(f, store) || write(ready, "", 1) != 1)
        _exit(2);
    (void)fuse_loop(f);
    _exit(0);
}

/* Mounts the store; in the place of the one before, if that is dead. after_ms: not at once, and nobody waits for it. */
static pid_t begin(unsigned after_ms)
{
    int fds[2];
    pid_t pid;
    char c;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(fds[0]);
        pause_ms(after_ms);
        (void)umount2(store, MNT_DETACH);
        serve(after_ms ? open("/dev/zero", O_WRONLY | O_CLOEXEC) : fds[1]);
    }
    close(fds[1]);
    if (!after_ms)
        assert_int_equal(read(fds[0], &c, 1), 1);
    close(fds[0]);
    return pid;
}

/* As of a mount that crashes: what is mounted stays, and is dead. */
static void kill_it(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void end(pid_t pid)
{
    kill_it(pid);
    (void)umount2(store, MNT_DETACH);
}

static const char *in_store(const char *name)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", store, name);
    return path;
}

/* What the pattern names in the store, by their names there; "": nothing is found. */
static int finds(const char *pattern, uint64_t limit_ms, bool *away, const char *want)
{
    struct job_found f = {0};
    char got[256] = "";
    int rc = job_found_in_store(&f, store, in_store(pattern), 0, limit_ms, away);

    for (size_t i = 0; i < f.n; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", i ? "," : "", f.paths[i] + strlen(store) + 1);
    job_found_fini(&f);
    assert_string_equal(got, want);
    return rc;
}

#define NEEDS_MOUNTS()  \
    do {                \
        (void)state;    \
        if (!may_mount) \
            skip();     \
    } while (0)

/* ---------------------------------------------------------------- any directory */

static void test_what_patterns_name_is_added(void **state)
{
    struct job_found f = {0};

    (void)state;
    assert_int_equal(job_found_add(&f, at_top("b.*"), 0, SOON_MS), 0);
    assert_int_equal(f.n, 2);
    assert_string_equal(f.paths[0], at_top("b.1"));
    assert_string_equal(f.paths[1], at_top("b.2"));
    assert_int_equal(job_found_add(&f, at_top("none*"), 0, SOON_MS), -ENOENT);
    assert_int_equal(f.n, 2);
    assert_int_equal(job_found_add(&f, at_top("e"), GLOB_MARK, SOON_MS), 0); /* as glob(3) has it */
    assert_int_equal(job_found_add(&f, at_top("*y"), GLOB_PERIOD, SOON_MS), 0);
    assert_int_equal(f.n, 4);
    assert_string_equal(f.paths[2], at_top("e/"));
    assert_string_equal(f.paths[3], at_top(".y"));
    assert_int_equal(job_found_add(&f, at_top("*y"), 0, SOON_MS), -ENOENT);
    job_found_fini(&f);
    assert_true(!f.paths && f.n == 0);
    job_found_fini(&f);
}

/* 5,000 of them: more than a pipe has room for while nobody reads. */
static void test_many_files_are_found(void **state)
{
    struct job_found f = {0};
    char name[32];
    int dir;

    (void)state;
    assert_int_equal(mkdir(at_top("many"), 0700), 0);
    dir = open(at_top("many"), O_PATH | O_DIRECTORY);
    for (unsigned i = 0; i < 5000; i++) {
        snprintf(name, sizeof name, "f%05u", i);
        assert_int_equal(mknodat(dir, name, S_IFREG | 0600, 0), 0);
    }
    assert_int_equal(job_found_add(&f, at_top("many/f*"), 0, 3 * SOON_MS), 0);
    assert_int_equal(f.n, 5000);
    assert_string_equal(f.paths[4999], at_top("many/f04999"));
    for (unsigned i = 0; i < 5000; i++)
        (void)unlinkat(dir, strrchr(f.paths[i], '/') + 1, 0);
    close(dir);
    assert_int_equal(rmdir(at_top("many")), 0);
    job_found_fini(&f);
}

/* There may be what is looked for: it is not said that it is not there. */
static void test_a_directory_that_can_not_be_read_is_no_answer(void **state)
{
    struct job_found f = {0};

    (void)state;
    assert_int_equal(job_found_add(&f, at_top("loop/*"), 0, SOON_MS), -EIO);
    assert_int_equal(job_found_add(&f, at_top("b.1/*"), 0, SOON_MS), -ENOENT);
    assert_true(!f.paths && f.n == 0);
}

/* ---------------------------------------------------------------- in a store */

static void test_the_store_says_what_is_in_it(void **state)
{
    bool away = true; /* as the last call has left it */
    pid_t pid;

    NEEDS_MOUNTS();
    pid = begin(0);
    assert_int_equal(finds("a.*", SOON_MS, &away, "a.1,a.2"), 0);
    assert_false(away);
    assert_int_equal(finds("*/x", SOON_MS, &away, "d/x"), 0);
    assert_int_equal(finds("none*", SOON_MS, &away, ""), -ENOENT);
    assert_false(away);
    for (const char *const *there = (const char *const[]){"a.1", "d", "d/x", "", NULL}; *there; there++)
        assert_int_equal(job_found_is_there(store, in_store(*there), SOON_MS, &away), 0);
    for (const char *const *not = (const char *const[]){"a.*", "d/y", "a.1/x", "no/such", NULL}; *not; not++) /* a name, no pattern */
        assert_int_equal(job_found_is_there(store, in_store(*not), SOON_MS, &away), -ENOENT);
    assert_false(away);
    end(pid);
}

/* The manager does not answer, maybe, and the mount says so: in a directory there may be more, and a name may be there. */
static void test_what_the_store_can_not_say_is_not_nothing_there(void **state)
{
    bool away = false;
    pid_t pid;

    NEEDS_MOUNTS();
    pid = begin(0);
    assert_int_equal(finds("sick/*", SOON_MS, &away, "sick/x"), -EIO); /* which can be brought out */
    assert_int_equal(finds("sick/none*", SOON_MS, &away, ""), -EIO);
    assert_int_equal(finds("d/sick", SOON_MS, &away, ""), -EIO);
    assert_int_equal(finds("*/sick", SOON_MS, &away, ""), -EIO);
    assert_int_equal(job_found_is_there(store, in_store("d/sick"), SOON_MS, &away), -EIO);
    once("shut"); /* beside one that has something */
    assert_int_equal(finds("*/x*", SOON_MS, &away, "d/x"), -EIO);
    assert_int_equal(unlink(at_top("shut")), 0);
    assert_int_equal(finds("*/x*", SOON_MS, &away, "d/x"), 0);
    assert_int_equal(finds("*/locked", SOON_MS, &away, ""), -ENOENT); /* what may not be looked at is not there for who asks */
    assert_false(away);
    assert_int_equal(finds("a.*", SOON_MS, &away, "a.1,a.2"), 0); /* one that is not looked at is no matter */
    end(pid);
}

/* What lies below the mountpoint is not the store's, and its directory may be removed. */
static void without_store(const char *mountpoint)
{
    char pattern[128];
    bool away = false;
    uint64_t t = fp_now_ms();
    struct job_found f = {0};

    snprintf(pattern, sizeof pattern, "%s/b.*", mountpoint);
    assert_int_equal(job_found_in_store(&f, mountpoint, pattern, 0, SHORT_MS, &away), -ENOTCONN);
    assert_true(away && fp_now_ms() - t >= SHORT_MS); /* it was waited for */
    t = fp_now_ms();
    assert_int_equal(job_found_in_store(&f, mountpoint, pattern, 0, 3 * SOON_MS, &away), -ENOTCONN);
    assert_int_equal(job_found_is_there(mountpoint, pattern, 3 * SOON_MS, &away), -ENOTCONN);
    assert_true(away && fp_now_ms() - t < SOON_MS); /* once */
    assert_true(!f.paths && f.n == 0);
}

static void test_nothing_mounted_is_not_nothing_there(void **state)
{
    (void)state;
    without_store(top);
    without_store("/no/such/mountpoint");
}

static void test_a_dead_mount_is_not_nothing_there(void **state)
{
    bool away = false;
    pid_t pid;

    NEEDS_MOUNTS();
    pid = begin(0);
    assert_int_equal(finds("a.1", SOON_MS, &away, "a.1"), 0);
    kill_it(pid);
    without_store(store);
    (void)umount2(store, MNT_DETACH);
}

/* glob(3) finds nothing below it then. */
static void test_a_mount_that_dies_meanwhile_is_not_nothing_there(void **state)
{
    bool away = true;
    pid_t pid;

    NEEDS_MOUNTS();
    pid = begin(0);
    once("dies");
    assert_int_equal(finds("dies/*", SOON_MS, &away, ""), -ENOTCONN);
    assert_true(away);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)umount2(store, MNT_DETACH);
}

/* It answers those who are in it, whatever the path leads to by then: what it says is not the store's word any more. */
static void test_a_mount_that_is_detached_meanwhile_is_not_the_store(void **state)
{
    bool away = true;
    pid_t pid;

    NEEDS_MOUNTS();
    pid = begin(0);
    once("gone");
    assert_int_equal(finds("gone/*", SOON_MS, &away, ""), -ENOTCONN);
    assert_true(away);
    end(pid);
}

static void test_a_mount_that_comes_back_is_waited_for(void **state)
{
    bool away = false;
    pid_t pid, next;

    NEEDS_MOUNTS();
    pid = begin(0);
    kill_it(pid);
    next = begin(500);
    assert_int_equal(finds("a.*", 3 * SOON_MS, &away, "a.1,a.2"), 0);
    assert_false(away);
    kill_it(next);
    next = begin(500); /* what the store says then counts, also that it is not there */
    assert_int_equal(job_found_is_there(store, in_store("none"), 3 * SOON_MS, &away), -ENOENT);
    assert_false(away);
    kill_it(next);
    assert_int_equal(finds("a.*", SHORT_MS, &away, ""), -ENOTCONN);
    assert_true(away);
    next = begin(0); /* whoever has waited in vain sees it all the same */
    assert_int_equal(finds("a.*", SOON_MS, &away, "a.1,a.2"), 0);
    assert_false(away);
    end(next);
}

/* It dies, or is detached, while it is looked into, and is mounted again. */
static void test_what_was_interrupted_is_looked_for_again(void **state)
{
    static const char *const how[] = {"dies", "gone"};

    NEEDS_MOUNTS();
    for (unsigned i = 0; i < 2; i++) {
        char pattern[16], want[16];
        bool away = false;
        pid_t pid = begin(0), next;

        snprintf(pattern, sizeof pattern, "%s/*", how[i]);
        snprintf(want, sizeof want, "%s/x", how[i]);
        once(how[i]);
        next = begin(1000);
        assert_int_equal(finds(pattern, 3 * SOON_MS, &away, want), 0);
        assert_false(away);
        assert_int_not_equal(access(at_top(how[i]), F_OK), 0); /* so it was interrupted */
        kill_it(pid);
        end(next);
    }
}

static void test_a_store_that_does_not_answer_holds_nobody(void **state)
{
    struct job_found f = {0};
    bool away = true;
    uint64_t t;
    pid_t pid;

    NEEDS_MOUNTS();
    pid = begin(0);
    assert_int_equal(finds("a.1", SOON_MS, &away, "a.1"), 0);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    t = fp_now_ms();
    assert_int_equal(finds("a.*", SHORT_MS, &away, ""), -ETIMEDOUT);
    assert_false(away); /* it is there */
    assert_int_equal(job_found_is_there(store, in_store("none"), SHORT_MS, &away), -ETIMEDOUT);
    assert_int_equal(job_found_add(&f, in_store("a.*"), 0, SHORT_MS), -ETIMEDOUT);
    assert_true(fp_now_ms() - t < SOON_MS);
    assert_true(!f.paths && f.n == 0);
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(finds("a.*", SOON_MS, &away, "a.1,a.2"), 0);
    end(pid);
}

static void test_whoever_gives_up_does_not_wait(void **state)
{
    uint64_t t = fp_now_ms();
    bool away = false;

    (void)state;
    job_catch_signals();
    (void)raise(SIGINT);
    (void)raise(SIGINT);
    assert_true(job_given_up());
    assert_int_equal(job_found_is_there(top, at_top("b.1"), 3 * SOON_MS, &away), -ENOTCONN);
    assert_true(away && fp_now_ms() - t < SOON_MS);
    job_catch_signals(); /* begins anew */
    assert_false(job_given_up());
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
}

/* ---------------------------------------------------------------- */

static int make(void **state)
{
    (void)state;
    fp_log_set_level(FP_LOG_ERROR);
    if (!mkdtemp(top))
        return -1;
    snprintf(store, sizeof store, "%s/store", top);
    if (mkdir(store, 0700) || mkdir(at_top("e"), 0700) || symlink("loop", at_top("loop")))
        return -1;
    for (const char *const *n = (const char *const[]){"b.1", "b.2", ".y", NULL}; *n; n++)
        if (mknod(at_top(*n), S_IFREG | 0600, 0))
            return -1;
    may_mount = access("/dev/fuse", R_OK | W_OK) == 0 && unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
    return 0;
}

static int remove_all(void **state)
{
    (void)state;
    if (may_mount)
        while (umount2(store, MNT_DETACH) == 0)
            ;
    for (const char *const *n = (const char *const[]){"b.1", "b.2", ".y", "loop", NULL}; *n; n++)
        (void)unlink(at_top(*n));
    return rmdir(at_top("e")) || rmdir(store) || rmdir(top);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_patterns_name_is_added),
        cmocka_unit_test(test_many_files_are_found),
        cmocka_unit_test(test_a_directory_that_can_not_be_read_is_no_answer),
        cmocka_unit_test(test_the_store_says_what_is_in_it),
        cmocka_unit_test(test_what_the_store_can_not_say_is_not_nothing_there),
        cmocka_unit_test(test_nothing_mounted_is_not_nothing_there),
        cmocka_unit_test(test_a_dead_mount_is_not_nothing_there),
        cmocka_unit_test(test_a_mount_that_dies_meanwhile_is_not_nothing_there),
        cmocka_unit_test(test_a_mount_that_is_detached_meanwhile_is_not_the_store),
        cmocka_unit_test(test_a_mount_that_comes_back_is_waited_for),
        cmocka_unit_test(test_what_was_interrupted_is_looked_for_again),
        cmocka_unit_test(test_a_store_that_does_not_answer_holds_nobody),
        cmocka_unit_test(test_whoever_gives_up_does_not_wait),
    };

    return cmocka_run_group_tests(tests, make, remove_all);
}
