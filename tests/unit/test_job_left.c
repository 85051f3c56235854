/* What stays on a node when a job ends: what is left by one that was killed, and is taken away; what a store that outlives its jobs has, and is kept. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fp/procs.h"
#include "fp/rmtree.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/agent/kept.h"
#include "jobscripts/agent/left.h"
#include "jobscripts/agent/mountlock.h"
#include "jobscripts/agent/named.h"

static char top[64];
static bool slow_disk; /* in every process */
static unsigned removed; /* by others, so many times: what could not be made since it was there */

int __real_fp_remove_tree(const char *path);
int __wrap_fp_remove_tree(const char *path);
int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __real_clock_gettime(clockid_t id, struct timespec *ts);
int __wrap_clock_gettime(clockid_t id, struct timespec *ts);

int __wrap_fp_remove_tree(const char *path)
{
    while (slow_disk)
        pause();
    return __real_fp_remove_tree(path);
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    int rc = __real_mkdir(path, mode);

    if (rc < 0 && errno == EEXIST && removed) {
        removed--;
        (void)rmdir(path);
        errno = EEXIST;
    }
    return rc;
}

/* Then a minute of it is over in a second. */
int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
    static time_t more_s;
    int rc = __real_clock_gettime(id, ts);

    more_s += slow_disk ? 59 : 0;
    ts->tv_sec += id == CLOCK_MONOTONIC ? more_s : 0;
    return rc;
}

static int setup(void **state)
{
    (void)state;
    strcpy(top, "/tmp/test_job_left.XXXXXX");
    assert_non_null(mkdtemp(top));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    fp_remove_tree(top);
    return 0;
}

static const char *in_top(const char *name)
{
    static char path[4][PATH_MAX];
    static unsigned i;

    assert_int_equal(job_dir_file(path[++i % 4], top, name), 0);
    return path[i % 4];
}

static bool is_there(const char *name)
{
    return access(in_top(name), F_OK) == 0;
}

/* A process that holds the directory, until it is killed. */
static pid_t holder(const char *dir)
{
    int ready[2];
    char c;
    pid_t pid;

    assert_int_equal(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        if (job_dir_hold(dir) == 0)
            (void)!write(ready[1], "x", 1);
        close(ready[1]);
        for (;;)
            pause();
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &c, 1), 1);
    close(ready[0]);
    return pid;
}

static void end(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* A process that has locked what a job of this directory wants. */
static pid_t locker(const char *dir, const char *path)
{
    struct job_mount_lock l = {0};
    int ready[2];
    pid_t pid;
    char c;

    assert_int_equal(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        c = job_mount_lock_own(&l, dir, path) == 0 ? 'y' : 'n';
        (void)!write(ready[1], &c, 1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &c, 1), 1);
    assert_int_equal(c, 'y');
    close(ready[0]);
    close(ready[1]);
    return pid;
}

/* Whichever of them looks first, and whatever their names are. */
static void test_one_job_of_a_user_has_a_mountpoint(void **state)
{
    struct job_mount_lock l = {0};
    const char *const names[] = {"fpstore-1", "fpstore-2", "fpstore-3"};
    pid_t pid;

    (void)state;
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(job_dir_make(in_top(names[i])), 0);
    for (size_t i = 0; i < 3; i += 2) {
        pid = locker(in_top(names[i]), "/x");
        assert_int_equal(job_mount_lock_own(&l, in_top("fpstore-2"), "/x"), -EADDRINUSE);
        assert_int_equal(l.nclaims, 0);
        assert_int_equal(job_mount_lock_own(&l, in_top("fpstore-2"), "/x/y"), 0);
        job_mount_unlock(&l, in_top("fpstore-2"));
        end(pid);
        assert_int_equal(job_mount_lock_own(&l, in_top("fpstore-2"), "/x"), 0);
        job_mount_unlock(&l, in_top("fpstore-2"));
    }
}

/* Of others it counts only where not anybody could have put it. */
static void test_what_a_mountpoint_may_hide(void **state)
{
    struct job_stray s;

    (void)state;
    assert_int_equal(mkdir(in_top("here"), 0755), 0);
    assert_int_equal(job_dir_mountable(in_top("here"), &s), 0);
    assert_string_equal(s.name, "");
    assert_int_equal(mkdir(in_top("here/a\nb\xc3\xa4"), 0755), 0);
    assert_int_equal(job_dir_mountable(in_top("here"), &s), -ENOTEMPTY);
    assert_string_equal(s.name, "a?b??");
    assert_int_equal(s.uid, geteuid());
    assert_int_equal(job_dir_mountable(in_top("there"), NULL), -ENOENT);
    if (chown(in_top("here/a\nb\xc3\xa4"), geteuid() + 1, getegid()))
        return; /* as root alone */
    assert_int_equal(job_dir_mountable(in_top("here"), &s), -ENOTEMPTY);
    assert_int_equal(s.uid, geteuid() + 1);
    assert_int_equal(chmod(in_top("here"), 0777), 0);
    assert_int_equal(job_dir_mountable(in_top("here"), &s), 0);
    assert_string_equal(s.name, "a?b??");
    assert_int_equal(chmod(in_top("here"), 01777), 0);
    assert_int_equal(job_dir_mountable(in_top("here"), NULL), -ENOTEMPTY);
    assert_int_equal(chmod(in_top("here"), 0777), 0);
    assert_int_equal(mkdir(in_top("here/mine"), 0755), 0);
    assert_int_equal(job_dir_mountable(in_top("here"), &s), -ENOTEMPTY);
    assert_string_equal(s.name, "mine");
}

/* What is cleared by age where the file for systemd-tmpfiles says that everything is old enough: what is not locked (tmpfiles.d(5)). */
static void clear_by_age(void)
{
    char command[300];
    FILE *f = fopen(in_top("clear.conf"), "w");

    assert_non_null(f);
    fprintf(f, "e %s/tmp - - - 0\n", top);
    assert_int_equal(fclose(f), 0);
    snprintf(command, sizeof command, "systemd-tmpfiles --clean %s/clear.conf", top);
    assert_int_equal(system(command), 0); /* NOLINT(cert-env33-c): the path is ours */
}

static bool may_be_cleared(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool may = flock(fd, LOCK_EX | LOCK_NB) == 0;

    close(fd);
    return may;
}

/* A job of weeks: what it needs at its end is as old as the job. */
static void test_what_is_held_is_not_cleared_by_age(void **state)
{
    pid_t first, second;

    (void)state;
    assert_int_equal(mkdir(in_top("tmp"), 0700), 0);
    first = holder(in_top("tmp/fpstore-1"));
    second = holder(in_top("tmp/fpstore-1")); /* fp-job start and the agent of its node */
    assert_int_equal(job_dir_write(in_top("tmp/fpstore-1"), "job.json", "{}", 0600), 0);
    assert_int_equal(mkdir(in_top("tmp/fpstore-1/mnt"), 0700), 0);
    assert_int_equal(job_dir_make(in_top("tmp/fpstore-2")), 0);
    assert_int_equal(job_dir_write(in_top("tmp/fpstore-2"), "job.json", "{}", 0600), 0);
    end(first);
    assert_false(may_be_cleared(in_top("tmp/fpstore-1")));
    assert_true(may_be_cleared(in_top("tmp/fpstore-2")));
    if (access("/usr/bin/systemd-tmpfiles", X_OK) == 0) {
        clear_by_age();
        assert_true(is_there("tmp/fpstore-1/job.json"));
        assert_true(is_there("tmp/fpstore-1/mnt"));
        assert_false(is_there("tmp/fpstore-2"));
    }
    end(second);
    assert_true(may_be_cleared(in_top("tmp/fpstore-1")));
    assert_int_equal(job_left_sweep(in_top("tmp")), 1);
}

static void test_only_what_a_killed_process_held_is_taken_away(void **state)
{
    pid_t dead = holder(in_top("fpstore-1")), alive = holder(in_top("fpstore-2")), other = holder(in_top("elsewhere-3")), far = holder(in_top("fpstore-5"));

    (void)state;
    assert_int_equal(job_dir_make(in_top("fpstore-results")), 0); /* the user's own */
    assert_int_equal(job_dir_write(in_top("fpstore-5"), JOB_DIR_LOCK, "another.machine", 0600), 0);
    end(dead);
    end(other);
    end(far);
    assert_int_equal(job_left_sweep(top), 1);
    assert_false(is_there("fpstore-1"));
    assert_true(is_there("fpstore-2"));
    assert_true(is_there("elsewhere-3"));
    assert_true(is_there("fpstore-5"));
    assert_true(is_there("fpstore-results"));
    end(alive);
    assert_int_equal(job_left_sweep(top), 1);
    assert_false(is_there("fpstore-2"));
}

/* A process that can write nothing, as where no space is left, tries to hold it. */
static void hold_without_room(const char *dir)
{
    struct rlimit none = {0, 0};
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        signal(SIGXFSZ, SIG_IGN);
        _exit(setrlimit(RLIMIT_FSIZE, &none) < 0 || job_dir_hold(dir) != -EFBIG);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* Another process of the job has just made it, and writes its node's name next. */
static void test_who_has_no_room_takes_no_lock_away_from_others(void **state)
{
    const char *dir = in_top("fpstore-1");
    int fd;

    (void)state;
    assert_int_equal(job_dir_make(dir), 0);
    fd = open(in_top("fpstore-1/" JOB_DIR_LOCK), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(flock(fd, LOCK_SH), 0);
    hold_without_room(dir);
    assert_true(is_there("fpstore-1/" JOB_DIR_LOCK));
    close(fd);
    hold_without_room(dir);
    assert_false(is_there("fpstore-1"));
}

static void test_a_lock_that_nobody_has_written_is_taken_away_some_time_later(void **state)
{
    const struct timespec old[2] = {{.tv_sec = time(NULL) - 7200}, {.tv_sec = time(NULL) - 7200}};

    (void)state;
    for (int i = 1; i <= 2; i++) {
        assert_int_equal(job_dir_make(in_top(i == 1 ? "fpstore-1" : "fpstore-2")), 0);
        close(open(in_top(i == 1 ? "fpstore-1/" JOB_DIR_LOCK : "fpstore-2/" JOB_DIR_LOCK), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    }
    assert_int_equal(utimensat(AT_FDCWD, in_top("fpstore-1/" JOB_DIR_LOCK), old, 0), 0);
    assert_int_equal(job_left_sweep(top), 1);
    assert_false(is_there("fpstore-1"));
    assert_true(is_there("fpstore-2"));
}

static void test_a_link_is_removed_if_it_is_still_the_jobs(void **state)
{
    struct job_note note = {.made_mount = false};

    (void)state;
    for (int mine = 0; mine < 2; mine++) {
        assert_int_equal(job_dir_make(in_top("job")), 0);
        assert_int_equal(symlink(mine ? in_top("job/" JOB_DIR_MOUNT) : "/elsewhere", in_top("link")), 0);
        snprintf(note.link, sizeof note.link, "%s", in_top("link"));
        assert_int_equal(job_left_note(in_top("job"), &note), 0);
        job_left_clean(in_top("job"));
        assert_false(is_there("job"));
        assert_int_equal(unlink(in_top("link")), mine ? -1 : 0);
    }
}

static void plain(const char *path, const char *want)
{
    char text[64];

    snprintf(text, sizeof text, "%s", path);
    job_path_plain(text);
    assert_string_equal(text, want);
}

static void test_slashes_that_say_nothing(void **state)
{
    (void)state;
    plain("/AggregateSSDstore/", "/AggregateSSDstore");
    plain("//a///b//", "/a/b");
    plain("/a/b", "/a/b");
    plain("/", "/");
    plain("///", "/");
    plain("", "");
}

/* Everybody may make one in /tmp, and whoever opened it for reading would wait for ever. */
static void test_what_others_have_put_there_is_not_waited_for(void **state)
{
    pid_t dead;

    (void)state;
    assert_int_equal(mkdir(in_top("fpstore-1"), 0755), 0);
    assert_int_equal(mkfifo(in_top("fpstore-1/job.json"), 0666), 0);
    assert_int_equal(mkfifo(in_top("fpstore-2"), 0666), 0);
    assert_int_equal(symlink("fpstore-1", in_top("fpstore-3")), 0);
    dead = holder(in_top("fpstore-4"));
    assert_int_equal(mkfifo(in_top("fpstore-4/job.json"), 0600), 0);
    end(dead);
    alarm(20);
    assert_int_equal(job_left_sweep(top), 1);
    alarm(0);
    assert_true(is_there("fpstore-1/job.json"));
    assert_true(is_there("fpstore-2"));
    assert_true(is_there("fpstore-3"));
    assert_false(is_there("fpstore-4"));
}

static void test_what_others_may_read_is_not_held(void **state)
{
    (void)state;
    assert_int_equal(mkdir(in_top("fpstore-1"), 0755), 0);
    assert_int_equal(job_dir_hold(in_top("fpstore-1")), -EPERM);
    assert_int_equal(symlink(in_top("else"), in_top("fpstore-2")), 0);
    assert_int_equal(job_dir_hold(in_top("fpstore-2")), -EPERM);
}

static void test_processes_of_the_note_are_ended_and_no_others(void **state)
{
    const char *dir = in_top("job");
    struct job_note note = {.made_mount = false};
    pid_t ours = fork(), later;

    (void)state;
    if (ours == 0)
        for (;;)
            pause();
    later = fork();
    if (later == 0)
        for (;;)
            pause();
    snprintf(note.data, sizeof note.data, "%s", in_top("fpstore-9"));
    note.process[2].pid = ours;
    note.process[2].ticks = fp_proc_ticks(ours);
    note.process[3].pid = later; /* of which the number was another's when the note was written */
    note.process[3].ticks = fp_proc_ticks(later) - 1;
    assert_int_equal(job_dir_make(dir), 0);
    assert_int_equal(job_dir_make(note.data), 0);
    assert_int_equal(job_left_note(dir, &note), 0);
    job_left_clean(dir);
    assert_false(is_there("job"));
    assert_false(is_there("fpstore-9"));
    assert_int_equal(waitpid(ours, NULL, 0), ours);
    assert_int_equal(waitpid(later, NULL, WNOHANG), 0);
    end(later);
}

static void test_a_note_never_removes_what_is_no_store(void **state)
{
    struct job_note note = {.made_mount = false};

    (void)state;
    snprintf(note.data, sizeof note.data, "%s", in_top("results"));
    assert_int_equal(job_dir_make(in_top("results")), 0);
    assert_int_equal(job_dir_make(in_top("job")), 0);
    assert_int_equal(job_left_note(in_top("job"), &note), 0);
    job_left_clean(in_top("job"));
    assert_true(is_there("results"));
}

/* Whoever has begun to remove it was killed, and what is left has no lock in it any more; a name like it is somebody else's. */
static void test_what_was_just_being_removed_is_taken_away(void **state)
{
    pid_t alive;

    (void)state;
    assert_int_equal(job_dir_make(in_top("fpstore-1.removed-77")), 0);
    assert_int_equal(job_dir_make(in_top("fpstore-1.removed-77/benefactor")), 0);
    assert_int_equal(job_dir_make(in_top("fpstore-1.removed-x")), 0);
    assert_int_equal(job_dir_make(in_top("fpstore-1.removed-7.tar")), 0);
    assert_int_equal(mkdir(in_top("fpstore-2.removed-7"), 0755), 0);
    alive = holder(in_top("fpstore-1"));
    assert_int_equal(job_left_sweep(top), 0);
    assert_false(is_there("fpstore-1.removed-77"));
    assert_true(is_there("fpstore-1.removed-x"));
    assert_true(is_there("fpstore-1.removed-7.tar"));
    assert_true(is_there("fpstore-2.removed-7"));
    assert_true(is_there("fpstore-1"));
    end(alive);
}

/* The directory is held again at once, by who comes with the same name, and what it puts there stays. */
static void test_what_takes_too_long_to_remove_is_left_to_who_comes_next(void **state)
{
    char gone[64];

    (void)state;
    snprintf(gone, sizeof gone, "fpstore-1.removed-%d", (int)getpid());
    assert_int_equal(job_dir_make(in_top("fpstore-1")), 0);
    slow_disk = true;
    alarm(60);
    assert_int_equal(job_dir_remove(in_top("fpstore-1")), -ETIMEDOUT);
    alarm(0);
    slow_disk = false;
    assert_false(is_there("fpstore-1"));
    assert_true(is_there(gone));
    (void)job_left_sweep(top);
    assert_false(is_there(gone));
}

/* It was there when it was to be made, and is not when it is looked at: nobody else's is in the way. */
static void test_what_is_removed_in_that_moment_is_made_anew(void **state)
{
    (void)state;
    assert_int_equal(job_dir_make(in_top("fpstore-1")), 0);
    removed = 1;
    assert_int_equal(job_dir_make(in_top("fpstore-1")), 0);
    assert_int_equal(removed, 0);
    assert_true(is_there("fpstore-1"));
    removed = 1;
    assert_int_equal(job_dir_hold(in_top("fpstore-1")), 0);
    assert_int_equal(removed, 0);
    assert_true(is_there("fpstore-1/.fp-job"));
}

static void test_who_comes_while_it_is_removed_loses_nothing(void **state)
{
    int fd;

    (void)state;
    for (unsigned i = 0; i < 200; i++) {
        pid_t dead = holder(in_top("fpstore-1")), next;

        end(dead);
        fd = open(in_top("fpstore-1/.fp-job"), O_RDWR | O_CLOEXEC);
        assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
        next = fork();
        if (next == 0)
            _exit(job_dir_hold(in_top("fpstore-1")) || job_dir_write(in_top("fpstore-1"), "key", "x", 0600));
        assert_int_equal(job_dir_remove(in_top("fpstore-1")), 0);
        close(fd);
        assert_int_equal(waitpid(next, &fd, 0), next);
        assert_int_equal(fd, 0);
        assert_true(is_there("fpstore-1/key"));
        assert_true(is_there("fpstore-1/.fp-job"));
        assert_int_equal(job_dir_remove(in_top("fpstore-1")), 0);
    }
}

/* ---------------------------------------------------------------- stores with names */

static int take(const char *first, const char *second, bool *known, uint64_t *bytes, char why[600])
{
    char *nodes[] = {(char *)(uintptr_t)first, (char *)(uintptr_t)second};
    struct job_plan p = {.nodes = nodes, .nnodes = second ? 2 : 1};
    int status, rc, pair[2];
    struct {
        int rc;
        bool known;
        uint64_t bytes;
        char why[600];
    } a = {.rc = 0};
    pid_t pid;

    assert_int_equal(pipe(pair), 0);
    pid = fork(); /* the lock ends with the process */
    if (pid == 0) {
        a.rc = job_named_take(in_top("named"), "run", &p, &a.known, &a.bytes, a.why, sizeof a.why);
        if (a.rc == 0 && !a.known)
            a.rc = job_named_keep(in_top("named"), &p, 4096);
        rc = write(pair[1], &a, sizeof a) == (ssize_t)sizeof a ? 0 : 1;
        _exit(rc);
    }
    close(pair[1]);
    assert_int_equal(read(pair[0], &a, sizeof a), sizeof a);
    close(pair[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    *known = a.known;
    *bytes = a.bytes;
    memcpy(why, a.why, sizeof a.why);
    return a.rc;
}

static void test_a_store_with_a_name_is_of_its_nodes(void **state)
{
    char why[600];
    uint64_t bytes;
    bool known;

    (void)state;
    assert_int_equal(take("n1", "n2", &known, &bytes, why), 0);
    assert_false(known);
    assert_int_equal(take("n1", "n2", &known, &bytes, why), 0);
    assert_true(known);
    assert_int_equal(bytes, 4096);
    assert_int_equal(take("n1", "n3", &known, &bytes, why), -ENXIO);
    assert_non_null(strstr(why, "does not have: n2; ask for them"));
    assert_int_equal(take("n1", NULL, &known, &bytes, why), -ENXIO);
    assert_int_equal(take("n2", "n1", &known, &bytes, why), -ENXIO);
    assert_non_null(strstr(why, "lie on n1, and the first node of this job is n2"));
    assert_int_equal(job_left_sweep(top), 0);
    assert_true(is_there("named"));
}

static void test_a_first_start_that_was_killed_leaves_no_half_of_a_store(void **state)
{
    char why[600];
    uint64_t bytes;
    bool known;

    (void)state;
    assert_int_equal(job_dir_make(in_top("named")), 0);
    assert_int_equal(job_dir_make(in_top("named/manager")), 0);
    assert_int_equal(take("n1", NULL, &known, &bytes, why), 0);
    assert_false(is_there("named/manager"));
    assert_int_equal(job_dir_make(in_top("named/manager")), 0);
    assert_int_equal(take("n1", NULL, &known, &bytes, why), 0);
    assert_true(is_there("named/manager"));
    assert_int_equal(job_dir_write(in_top("named"), "store.json", "{\"nodes\": 7}", 0600), 0);
    assert_int_equal(take("n1", NULL, &known, &bytes, why), -EBADMSG);
    assert_non_null(strstr(why, "is damaged"));
    assert_true(is_there("named/manager"));
}

static const char *named(void)
{
    static char name[64];

    snprintf(name, sizeof name, "fpstore-%u-named-run", (unsigned)geteuid());
    return name;
}

/* Its note says that the killed job's store is to be removed; meanwhile another job has the store, or has even written into it. */
static void clean_killed(void)
{
    struct job_note note = {.made_mount = false};

    snprintf(note.data, sizeof note.data, "%s", in_top(named()));
    assert_int_equal(job_dir_make(in_top("job")), 0);
    assert_int_equal(job_left_note(in_top("job"), &note), 0);
    job_left_clean(in_top("job"));
    assert_false(is_there("job"));
}

static void test_a_store_that_another_job_has_is_not_removed(void **state)
{
    char *nodes[] = {(char *)(uintptr_t)"n1"}, why[600], path[PATH_MAX];
    struct job_plan p = {.nodes = nodes, .nnodes = 1};
    uint64_t bytes;
    bool known;
    int pair[2], status;
    pid_t pid;
    char c;

    (void)state;
    strcpy(path, in_top(named()));
    assert_true(job_named_is(path));
    assert_int_equal(pipe(pair), 0);
    pid = fork();
    if (pid == 0) {
        int rc = job_named_take(path, "run", &p, &known, &bytes, why, sizeof why);

        (void)!write(pair[1], rc ? "-" : "+", 1);
        for (;;)
            pause();
    }
    assert_int_equal(read(pair[0], &c, 1), 1);
    assert_int_equal(c, '+');
    clean_killed();
    assert_true(is_there(named()));
    end(pid);
    assert_int_equal(job_named_keep(path, &p, 4096), 0);
    clean_killed();
    assert_true(is_there(named()));
    assert_int_equal(job_named_discard(path), 0);
    assert_int_equal(job_named_discard(path), 0);
    clean_killed();
    assert_false(is_there(named()));
    pid = fork(); /* it is begun anew */
    if (pid == 0)
        _exit(job_named_take(path, "run", &p, &known, &bytes, why, sizeof why) || known);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    close(pair[0]);
    close(pair[1]);
}

static void test_a_store_that_is_kept_has_the_name_of_its_job(void **state)
{
    struct job_store s = {.on_failure = JOB_FAILURE_KEEP};
    char name[JOB_NAME_BYTES];

    (void)state;
    unsetenv("SLURM_RESTART_COUNT");
    job_named_name(&s, "77.server", name);
    assert_string_equal(name, "job-77_server");
    setenv("SLURM_RESTART_COUNT", "2", 1);
    job_named_name(&s, "77", name);
    assert_string_equal(name, "job-77-run3");
    s.persistent = "mine";
    job_named_name(&s, "77", name);
    assert_string_equal(name, "mine");
    unsetenv("SLURM_RESTART_COUNT");
}

/* Of a disk that has errors, say. Begun anew, it would lose everything. */
static void test_a_store_of_which_nothing_can_be_read_is_not_begun_anew(void **state)
{
    char why[600];
    uint64_t bytes;
    bool known;

    (void)state;
    assert_int_equal(take("n1", NULL, &known, &bytes, why), 0);
    assert_int_equal(job_dir_make(in_top("named/manager")), 0);
    assert_int_equal(rename(in_top("named/store.json"), in_top("named/was")), 0);
    assert_int_equal(symlink("store.json", in_top("named/store.json")), 0);
    assert_int_equal(take("n1", NULL, &known, &bytes, why), -EPERM);
    assert_non_null(strstr(why, "nothing of the store was touched"));
    assert_true(is_there("named/manager"));
    assert_int_equal(unlink(in_top("named/store.json")), 0);
    assert_int_equal(mkfifo(in_top("named/store.json"), 0600), 0);
    assert_int_equal(take("n1", NULL, &known, &bytes, why), -EPERM);
    assert_true(is_there("named/manager"));
}

/* A directory of a store with a name. */
static const char *make_named(const char *name, const char *record)
{
    static char path[PATH_MAX];

    assert_int_equal(job_named_path(path, top, name), 0);
    assert_int_equal(job_dir_make(path), 0);
    assert_int_equal(job_dir_write(path, ".fp-store", "", 0600), 0);
    if (record)
        assert_int_equal(job_dir_write(path, "store.json", record, 0600), 0);
    return path;
}

static int lock_of(const char *dir, int how)
{
    char path[PATH_MAX];
    int fd;

    assert_int_equal(job_dir_file(path, dir, ".fp-store"), 0);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(flock(fd, how), 0);
    return fd;
}

static void test_what_earlier_jobs_have_kept_is_found(void **state)
{
    struct job_kept k[JOB_KEPT_MAX];
    char path[PATH_MAX];
    struct stat st;
    int fd;

    (void)state;
    make_named("b", NULL);
    assert_int_equal(job_dir_write(make_named("a", "{\"nodes\": [\"n1\", \"n2\"], \"size\": 1000}"), "data", "0123456789", 0600), 0);
    assert_int_equal(stat(make_named("a", NULL), &st), 0);
    assert_int_equal(mkdir(in_top("fpstore-77"), 0700), 0); /* of a job, without a name */
    (void)make_named("c.removed-12", NULL); /* on its way out */
    assert_int_equal(job_kept_look(top, NULL, k), 2);
    assert_string_equal(k[0].name, "a");
    assert_string_equal(k[0].first, "n1");
    assert_int_equal(k[0].nodes, 2);
    assert_true(k[0].bytes >= 10 && k[0].when_s >= st.st_mtim.tv_sec - 60 && k[0].when_s <= st.st_mtim.tv_sec + 60);
    assert_string_equal(k[1].name, "b");
    assert_int_equal(k[1].nodes, 0);
    assert_int_equal(job_kept_look(top, "a", k), 1); /* the job's own */
    assert_int_equal(job_named_path(path, top, "b"), 0);
    fd = lock_of(path, LOCK_EX);
    assert_int_equal(job_kept_look(top, NULL, k), 1); /* another job has it */
    assert_string_equal(k[0].name, "a");
    assert_int_equal(job_named_drop(path), -EBUSY);
    close(fd);
    fd = lock_of(path, LOCK_SH); /* somebody else looks */
    assert_int_equal(job_kept_look(top, NULL, k), 2);
    close(fd);
    assert_int_equal(chmod(path, 0755), 0);
    assert_int_equal(job_named_drop(path), -EPERM); /* others may read it */
    assert_int_equal(job_named_drop(in_top("fpstore-none")), -ENOENT);
    assert_int_equal(job_named_path(path, top, "a"), 0);
    assert_int_equal(job_named_drop(path), 0);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(job_kept_look(in_top("none"), NULL, k), 0);
}

static void test_what_does_not_fit_is_left_out(void **state)
{
    struct job_kept k[3] = {{.name = "one", .bytes = 1, .when_s = 2}, {.name = "two", .bytes = 3, .when_s = 4}, {.name = "three", .bytes = 5, .when_s = 6}};
    char text[16];

    (void)state;
    job_kept_write(k, 3, text, sizeof text);
    assert_string_equal(text, "one:1:2,two:3:4");
    job_kept_write(k, 3, text, sizeof text - 1);
    assert_string_equal(text, "one:1:2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_job_of_a_user_has_a_mountpoint, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_a_mountpoint_may_hide, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_held_is_not_cleared_by_age, setup, teardown),
        cmocka_unit_test_setup_teardown(test_only_what_a_killed_process_held_is_taken_away, setup, teardown),
        cmocka_unit_test_setup_teardown(test_who_has_no_room_takes_no_lock_away_from_others, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_lock_that_nobody_has_written_is_taken_away_some_time_later, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_others_have_put_there_is_not_waited_for, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_link_is_removed_if_it_is_still_the_jobs, setup, teardown),
        cmocka_unit_test(test_slashes_that_say_nothing),
        cmocka_unit_test_setup_teardown(test_what_others_may_read_is_not_held, setup, teardown),
        cmocka_unit_test_setup_teardown(test_processes_of_the_note_are_ended_and_no_others, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_note_never_removes_what_is_no_store, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_was_just_being_removed_is_taken_away, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_takes_too_long_to_remove_is_left_to_who_comes_next, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_removed_in_that_moment_is_made_anew, setup, teardown),
        cmocka_unit_test_setup_teardown(test_who_comes_while_it_is_removed_loses_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_store_with_a_name_is_of_its_nodes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_first_start_that_was_killed_leaves_no_half_of_a_store, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_store_that_another_job_has_is_not_removed, setup, teardown),
        cmocka_unit_test(test_a_store_that_is_kept_has_the_name_of_its_job),
        cmocka_unit_test_setup_teardown(test_what_earlier_jobs_have_kept_is_found, setup, teardown),
        cmocka_unit_test(test_what_does_not_fit_is_left_out),
        cmocka_unit_test_setup_teardown(test_a_store_of_which_nothing_can_be_read_is_not_begun_anew, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
