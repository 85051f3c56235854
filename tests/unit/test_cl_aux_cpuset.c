/*
 * The cpuset of fp-auxhost, on a tree of files that stands for a cgroup hierarchy: version 1 and 2, what is refused and why, and what killed mounts have left.
 * The kernel's part is played by make and remove below: files appear with the directory, and who is in it keeps it.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/aux/cpuset.h"

#define HOST 4321

static char top[128], cgroup_file[160], mountinfo_file[160], why[400];
static int make_errno;         /* what making one fails with; 0: it does not */
static const char *missing;    /* a file that a new one does not have */
static bool v2, threaded;
static unsigned made, busy_for;

static void put(const char *dir, const char *name, const char *text)
{
    char path[600];

    snprintf(path, sizeof path, "%s%s%s", dir, name[0] ? "/" : "", name);
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static const char *get(const char *dir, const char *name)
{
    static char text[256];
    char path[600];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

static bool there(const char *dir)
{
    return access(dir, F_OK) == 0;
}

static int fake_make(const char *dir)
{
    static const char *const files[2][5] = {{"cgroup.procs", "cpuset.cpus", "cpuset.mems"},
                                            {"cgroup.procs", "cpuset.cpus", "cpuset.cpus.effective", "cgroup.type"}};

    errno = make_errno;
    if (make_errno || mkdir(dir, 0755) < 0)
        return -1;
    made++;
    for (const char *const *f = files[v2]; *f; f++)
        if (!missing || strcmp(missing, *f) != 0)
            put(dir, *f, strcmp(*f, "cgroup.type") == 0 ? threaded ? "domain invalid\n" : "domain\n" : "");
    return 0;
}

static int fake_remove(const char *dir)
{
    static const char *const files[] = {"cgroup.procs", "cpuset.cpus", "cpuset.mems", "cpuset.cpus.effective", "cgroup.type", NULL};
    char path[600];
    struct stat st;

    snprintf(path, sizeof path, "%s/cgroup.procs", dir);
    if ((stat(path, &st) == 0 && st.st_size > 0 && busy_for == 0) || (busy_for > 0 && --busy_for > 0)) {
        errno = EBUSY;
        return -1;
    }
    for (const char *const *f = files; *f; f++) {
        snprintf(path, sizeof path, "%s/%s", dir, *f);
        unlink(path);
    }
    return rmdir(dir);
}

static const struct cl_cpuset_sys sys = {cgroup_file, mountinfo_file, fake_make, fake_remove};

static void path_of(char out[300], const char *dir)
{
    snprintf(out, 300, "%s%s", top, dir);
}

/* A hierarchy of version 1, with this process in /job. */
static void make_v1(const char *root, const char *own)
{
    char dir[300], line[700];

    path_of(dir, "/v1");
    assert_int_equal(mkdir(dir, 0755), 0);
    snprintf(line, sizeof line, "30 20 0:1 / /other rw - cgroup cgroup rw,cpu\n31 20 0:2 %s %s rw,nosuid shared:9 - cgroup cgroup rw,cpuset\n", root, dir);
    put(mountinfo_file, "", line);
    snprintf(line, sizeof line, "9:name=systemd:/x\n3:cpuset:%s\n0::/unified\n", own);
    put(cgroup_file, "", line);
    path_of(dir, "/v1/job");
    assert_int_equal(mkdir(dir, 0755), 0);
    put(dir, "cpuset.effective_cpus", "0-3\n");
    put(dir, "cpuset.effective_mems", "0-1\n");
}

/* And of version 2, with this process in /job/leaf. `gives`: what /job gives to its children. */
static void make_v2(const char *gives, const char *leaf_gives)
{
    static const char *const dirs[] = {"/v2", "/v2/job", "/v2/job/leaf"};
    char dir[300], line[700];

    v2 = true;
    for (int i = 0; i < 3; i++) {
        path_of(dir, dirs[i]);
        assert_int_equal(mkdir(dir, 0755), 0);
        put(dir, "cgroup.controllers", "cpuset cpu memory\n");
        put(dir, "cgroup.subtree_control", i == 0 ? "cpuset memory\n" : i == 1 ? gives : leaf_gives);
        put(dir, "cpuset.cpus.effective", "0-3\n");
        if (i > 0)
            put(dir, "cgroup.type", "domain\n");
    }
    path_of(dir, "/v2");
    snprintf(line, sizeof line, "41 31 0:38 / %s rw,relatime - cgroup2 cgroup2 rw\n", dir);
    put(mountinfo_file, "", line);
    put(cgroup_file, "", "8:pids:/\n0::/job/leaf\n");
}

static int enter(struct cl_cpuset *c, const char *cores)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    for (; *cores; cores++)
        CPU_SET(*cores - '0', &set);
    why[0] = '\0';
    return cl_cpuset_enter(c, &sys, HOST, &set, why, sizeof why);
}

static void host_ends(const struct cl_cpuset *c)
{
    put(c->dir, "cgroup.procs", "");
}

static void assert_refused(const char *cores, const char *says)
{
    struct cl_cpuset c = {0};

    assert_true(enter(&c, cores) < 0);
    if (!strstr(why, says))
        fail_msg("'%s' is not in '%s'", says, why);
    assert_string_equal(c.dir, "");
    cl_cpuset_leave(&c, &sys); /* nothing to do, and it does nothing */
}

static int setup(void **state)
{
    (void)state;
    snprintf(top, sizeof top, "/tmp/fp-cpuset-XXXXXX");
    assert_non_null(mkdtemp(top));
    snprintf(cgroup_file, sizeof cgroup_file, "%s/cgroup", top);
    snprintf(mountinfo_file, sizeof mountinfo_file, "%s/mountinfo", top);
    make_errno = 0;
    missing = NULL;
    v2 = threaded = false;
    made = busy_for = 0;
    return 0;
}

static int teardown(void **state)
{
    char command[200];

    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", top);
    return system(command);
}

static void test_v1_holds_exactly_the_cores_and_goes_with_the_host(void **state)
{
    struct cl_cpuset c = {0};
    char dir[300];

    (void)state;
    make_v1("/", "/job");
    path_of(dir, "/v1/job/");
    for (int life = 0; life < 3; life++) {
        assert_int_equal(enter(&c, "13"), 0);
        assert_memory_equal(c.dir, dir, strlen(dir)); /* below our own, whose bounds are its own */
        assert_string_equal(get(c.dir, "cpuset.cpus"), "1,3");
        assert_string_equal(get(c.dir, "cpuset.mems"), "0-1");
        assert_string_equal(get(c.dir, "cgroup.procs"), "4321");
        char was[2048];

        strcpy(was, c.dir);
        host_ends(&c);
        cl_cpuset_leave(&c, &sys);
        assert_false(there(was));
    }
    assert_int_equal(made, 3);
}

static void test_v1_seen_from_inside_a_container(void **state)
{
    struct cl_cpuset c = {0};

    (void)state;
    make_v1("/docker/abc", "/docker/abc/job");
    assert_int_equal(enter(&c, "0"), 0);
    host_ends(&c);
    cl_cpuset_leave(&c, &sys);
    put(cgroup_file, "", "3:cpuset:/docker/abcd/job\n"); /* another one's, which is not mounted here */
    assert_refused("0", "the cgroup of this mount (/docker/abcd/job) is not to be seen from here");
    assert_int_equal(made, 1);
}

static void test_only_cores_that_may_be_used_there(void **state)
{
    struct cl_cpuset c = {0};

    (void)state;
    make_v1("/", "/job");
    assert_int_equal(enter(&c, "2389"), 0);
    assert_string_equal(get(c.dir, "cpuset.cpus"), "2,3");
    host_ends(&c);
    cl_cpuset_leave(&c, &sys);
    assert_refused("89", "has none of the service cores, but 0-3");
    assert_int_equal(made, 1);
}

static void test_refused_with_the_reason_and_nothing_left(void **state)
{
    char dir[300];

    (void)state;
    make_v1("/", "/job");
    make_errno = EROFS;
    assert_refused("1", "Read-only file system");
    make_errno = EACCES;
    assert_refused("1", "Permission denied");
    make_errno = 0;
    static const char *const files[] = {"cpuset.cpus", "cpuset.mems", "cgroup.procs"};

    for (int i = 0; i < 3; i++) {
        missing = files[i];
        assert_refused("1", missing);
    }
    assert_int_equal(made, 3);
    path_of(dir, "/v1/job/fpstore-aux-");
    snprintf(dir + strlen(dir), 100, "%d-0", (int)getpid());
    assert_false(there(dir));
    put(cgroup_file, "", "");
    assert_refused("1", "there are no cgroups here");
}

static void test_v2_beside_us_where_our_parent_gives_cpuset(void **state)
{
    struct cl_cpuset c = {0};
    char dir[300], leaf[300];

    (void)state;
    make_v2("cpuset memory\n", "\n");
    path_of(dir, "/v2/job/fpstore-aux-");
    path_of(leaf, "/v2/job/leaf");
    assert_int_equal(enter(&c, "3"), 0);
    assert_memory_equal(c.dir, dir, strlen(dir));
    assert_string_equal(get(c.dir, "cpuset.cpus"), "3");
    assert_string_equal(get(c.dir, "cgroup.procs"), "4321");
    assert_string_equal(get(c.dir, "cgroup.type"), "domain\n");
    host_ends(&c);
    cl_cpuset_leave(&c, &sys);
    put(leaf, "memory.max", "max\n");
    put(leaf, "cpu.max", "max 100000\n");
    assert_int_equal(enter(&c, "3"), 0);
    host_ends(&c);
    cl_cpuset_leave(&c, &sys);
    put(leaf, "memory.max", "1073741824\n"); /* aux-apps are not to get out of that */
    assert_refused("3", "/v2/job/leaf has limits, which would not hold for aux-apps beside it");
    assert_string_equal(get(leaf, "cgroup.subtree_control"), "\n");
    assert_int_equal(made, 2);
}

/* Beside us they would not hold for the host: the memory nodes of a NUMA job, a device's bandwidth, huge pages. */
static void test_v2_not_beside_us_where_we_have_limits(void **state)
{
    static const struct {
        const char *name, *none, *limit;
    } files[] = {{"cpuset.mems", "\n", "1\n"},
                 {"io.max", "", "8:0 rbps=max wbps=1048576 riops=max wiops=max\n"},
                 {"hugetlb.2MB.max", "max\n", "0\n"},
                 {"memory.high", "max\n", "4096\n"},
                 {"pids.max", "max\n", "10\n"}};
    struct cl_cpuset c = {0};
    char leaf[300];

    (void)state;
    make_v2("cpuset memory\n", "\n");
    path_of(leaf, "/v2/job/leaf");
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        put(leaf, files[i].name, files[i].limit);
        assert_refused("3", "/v2/job/leaf has limits");
        put(leaf, files[i].name, files[i].none);
        assert_int_equal(enter(&c, "3"), 0);
        host_ends(&c);
        cl_cpuset_leave(&c, &sys);
    }
}

static void test_mounted_at_a_path_with_blanks(void **state)
{
    struct cl_cpuset c = {0};
    char dir[300], line[700];

    (void)state;
    path_of(dir, "/a b\\");
    assert_int_equal(mkdir(dir, 0755), 0);
    snprintf(line, sizeof line, "31 20 0:2 / %s/a\\040b\\134 rw - cgroup cgroup rw,cpuset\n", top);
    put(mountinfo_file, "", line);
    put(cgroup_file, "", "3:cpuset:/\n");
    put(dir, "cpuset.effective_cpus", "0-3\n");
    put(dir, "cpuset.effective_mems", "0\n");
    assert_int_equal(enter(&c, "1"), 0);
    assert_memory_equal(c.dir, dir, strlen(dir));
    host_ends(&c);
    cl_cpuset_leave(&c, &sys);
}

static void test_v2_is_not_turned_on_where_there_are_processes(void **state)
{
    char leaf[300];

    (void)state;
    make_v2("memory\n", "\n");
    path_of(leaf, "/v2/job/leaf");
    assert_refused("3", "/v2/job/leaf does not give the controller cpuset to its children");
    put(leaf, "cgroup.controllers", "memory\n");
    assert_refused("3", "/v2/job/leaf has no controller cpuset");
    assert_string_equal(get(leaf, "cgroup.subtree_control"), "\n");
    assert_int_equal(made, 0);
}

static void test_v2_below_us_where_we_are_a_threaded_domain_or_the_root(void **state)
{
    struct cl_cpuset c = {0};
    char dir[300];

    (void)state;
    make_v2("memory\n", "cpu cpuset\n");
    threaded = true;
    path_of(dir, "/v2/job/leaf/fpstore-aux-");
    assert_int_equal(enter(&c, "12"), 0);
    assert_memory_equal(c.dir, dir, strlen(dir));
    assert_memory_equal(get(c.dir, "cgroup.type"), "threaded", 8); /* and the rest of what was there: it is a file */
    assert_string_equal(get(c.dir, "cpuset.cpus"), "1,2");
    host_ends(&c);
    cl_cpuset_leave(&c, &sys);
    threaded = false;
    put(cgroup_file, "", "0::/\n");
    path_of(dir, "/v2");
    put(dir, "cgroup.subtree_control", "");
    assert_int_equal(enter(&c, "1"), 0);
    assert_string_equal(get(dir, "cgroup.subtree_control"), "+cpuset");
    host_ends(&c);
    cl_cpuset_leave(&c, &sys);
}

static void test_what_killed_mounts_have_left_is_removed_and_nothing_else(void **state)
{
    struct cl_cpuset c = {0};
    char left[300], used[300], living[300], other[300];

    (void)state;
    make_v1("/", "/job");
    path_of(left, "/v1/job/fpstore-aux-77-0");
    path_of(used, "/v1/job/fpstore-aux-78-0");
    path_of(living, "/v1/job/fpstore-aux-79-0");
    path_of(other, "/v1/job/slurm-5");
    assert_int_equal(fake_make(left), 0);
    assert_int_equal(fake_make(used), 0);
    assert_int_equal(fake_make(living), 0);
    assert_int_equal(fake_make(other), 0);
    put(used, "cgroup.procs", "99\n"); /* a program that a plugin has started */
    int fd = open(living, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
    assert_int_equal(enter(&c, "1"), 0);
    assert_false(there(left));
    assert_true(there(used) && there(living) && there(other));
    host_ends(&c);
    cl_cpuset_leave(&c, &sys);
    put(used, "cgroup.procs", "");
    close(fd);
    assert_int_equal(enter(&c, "1"), 0);
    assert_false(there(used) || there(living));
    assert_true(there(other));
    host_ends(&c);
    cl_cpuset_leave(&c, &sys);
}

static void test_one_that_is_kept_by_a_process_is_used_again(void **state)
{
    struct cl_cpuset c = {0}, second = {0};
    char was[2048];

    (void)state;
    make_v1("/", "/job");
    assert_int_equal(enter(&c, "1"), 0);
    strcpy(was, c.dir);
    cl_cpuset_leave(&c, &sys); /* the host waits in the kernel, and is left behind */
    assert_true(there(was));
    assert_int_equal(enter(&c, "1"), 0);
    assert_string_equal(c.dir, was);
    assert_int_equal(made, 1);
    /* A mount of the same number in another container: it gets another name. */
    assert_int_equal(enter(&second, "2"), 0);
    assert_string_not_equal(second.dir, was);
    assert_string_equal(get(was, "cpuset.cpus"), "1");
    host_ends(&second);
    cl_cpuset_leave(&second, &sys);
    busy_for = 3; /* it ends a moment later */
    cl_cpuset_leave(&c, &sys);
    assert_false(there(was));
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_v1_holds_exactly_the_cores_and_goes_with_the_host),
        T(test_v1_seen_from_inside_a_container),
        T(test_only_cores_that_may_be_used_there),
        T(test_refused_with_the_reason_and_nothing_left),
        T(test_v2_beside_us_where_our_parent_gives_cpuset),
        T(test_v2_not_beside_us_where_we_have_limits),
        T(test_mounted_at_a_path_with_blanks),
        T(test_v2_is_not_turned_on_where_there_are_processes),
        T(test_v2_below_us_where_we_are_a_threaded_domain_or_the_root),
        T(test_what_killed_mounts_have_left_is_removed_and_nothing_else),
        T(test_one_that_is_kept_by_a_process_is_used_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
