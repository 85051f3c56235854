/* What the coordinator looks for in a mounted store, in a directory that stands for one: files that the pattern names, all or those of one set; parts that are nobody's. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "convert/engine/result.h"
#include "convert/watch/results.h"
#include "convert/watch/store.h"
#include "fp/rmtree.h"

ssize_t __wrap_getxattr(const char *path, const char *name, void *value, size_t size);
ssize_t __real_lgetxattr(const char *path, const char *name, void *value, size_t size);
ssize_t __wrap_lgetxattr(const char *path, const char *name, void *value, size_t size);

static char top[64];
static struct cw_store store = {.mount = top};
static char seen[1024]; /* each with a blank behind it */

/* Parts say what they are of; all that are called so were made of run/dump_1, but for somebody's own. */
ssize_t __wrap_getxattr(const char *path, const char *name, void *value, size_t size)
{
    const char *text = strstr(path, ".own.") ? "" : strcmp(name, CW_OF) == 0 ? "0123456789abcdef run/dump_1" : strstr(path, ".x.h5") ? "dump_1.h5.x.h5" : "dump_1.h5";
    size_t len = strlen(text);

    if (!len) {
        errno = ENODATA;
        return -1;
    }
    assert_true(len <= size);
    memcpy(value, text, len);
    return (ssize_t)len;
}

ssize_t __wrap_lgetxattr(const char *path, const char *name, void *value, size_t size)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISREG(st.st_mode) ? __wrap_getxattr(path, name, value, size) : __real_lgetxattr(path, name, value, size);
}

static int setup(void **state)
{
    (void)state;
    strcpy(top, "/tmp/cv-store-[1]-XXXXXX"); /* signs of patterns in the path of a mount mean themselves */
    return mkdtemp(top) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return fp_remove_tree(top);
}

static void put(const char *path)
{
    char name[PATH_MAX], *slash;
    FILE *f;

    snprintf(name, sizeof name, "%s/%s", top, path);
    for (slash = name + strlen(top) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        (void)mkdir(name, 0777);
    }
    f = fopen(name, "w");
    assert_non_null(f);
    fclose(f);
}

static bool is_there(const char *path)
{
    char name[PATH_MAX];

    snprintf(name, sizeof name, "%s/%s", top, path);
    return access(name, F_OK) == 0;
}

static int note(void *arg, const char *path, int64_t mtime_ns)
{
    (void)arg;
    assert_true(mtime_ns > 0);
    strcat(strcat(seen, path), " ");
    return 0;
}

static void expect(const char *pattern, const char *near, const char *want)
{
    seen[0] = '\0';
    assert_int_equal(cw_store_scan(&store, pattern, near, note, NULL), 0);
    assert_string_equal(seen, want);
}

static void test_files_of_one_set_are_looked_for_in_its_directory(void **state)
{
    (void)state;
    put("run/dump_1/rank_0");
    put("run/dump_1/log");
    put("run/dump_10/rank_0");
    put("run/dump_[2]/rank_0");
    put("run/dump_2/rank_0");
    put("run/dump_3/sub/rank_0");
    put("restart.5.0");
    expect("run/dump_*/rank_*", NULL, "run/dump_1/rank_0 run/dump_10/rank_0 run/dump_2/rank_0 run/dump_[2]/rank_0 ");
    expect("run/dump_*/rank_*", "run/dump_1", "run/dump_1/rank_0 ");
    expect("run/dump_*/rank_*", "run/dump_[2]", "run/dump_[2]/rank_0 ");
    expect("run/dump_*/rank_*", "run", "run/dump_1/rank_0 run/dump_10/rank_0 run/dump_2/rank_0 run/dump_[2]/rank_0 ");
    expect("run/dump_*/*/rank_*", "run/dump_3", "run/dump_3/sub/rank_0 ");
    expect("run/dump_*/rank_*", "run/dump_3/sub", ""); /* the pattern names nothing so deep */
    expect("restart.*", NULL, "restart.5.0 ");
}

static void test_parts_of_nodes_that_have_written_nothing_are_removed(void **state)
{
    struct cw_groups all = {0};
    struct cw_group *g = NULL;
    char path[64], node[16], part[64];
    (void)state;

    for (int i = 0; i < 300; i++) {
        snprintf(path, sizeof path, "run/dump_1/rank_%d", i);
        snprintf(node, sizeof node, "n%d", i);
        snprintf(part, sizeof part, "run/dump_1.h5.n%d.piece", i);
        g = cw_groups_add(&all, "run/dump_# 1", path, node, 1);
        put(part);
    }
    put("run/dump_1.h5.gone.piece");
    put("run/dump_1.h5.gone");
    put("run/dump_10.h5.gone.piece");
    cw_store_sweep_parts(&store, g, "run/dump_1.h5", "run/dump_1", false);
    assert_false(is_there("run/dump_1.h5.gone.piece"));
    assert_true(is_there("run/dump_1.h5.gone") && is_there("run/dump_10.h5.gone.piece"));
    for (int i = 0; i < 300; i++) {
        snprintf(part, sizeof part, "run/dump_1.h5.n%d.piece", i);
        assert_true(is_there(part));
    }
    cw_groups_free(&all);
}

static void test_all_parts_of_a_result_that_is_whole_are_removed_and_nobody_elses(void **state)
{
    struct cw_groups all = {0};
    struct cw_group *g = cw_groups_add(&all, "run/dump_# 1", "run/dump_1/rank_0", "n0", 1);
    (void)state;

    put("run/dump_1.h5.n0.piece");
    put("run/dump_1.h5.n1.piece");
    put("run/dump_1.h5.x.h5.n1.piece"); /* of dump_1.h5.x.h5 */
    put("run/dump_1.h5.own.piece");     /* somebody's */
    cw_store_sweep_parts(&store, g, "run/dump_1.h5", "again/dump_1", true);
    assert_true(is_there("run/dump_1.h5.n0.piece") && is_there("run/dump_1.h5.n1.piece"));
    cw_store_sweep_parts(&store, g, "run/dump_1.h5", "run/dump_1", true);
    assert_false(is_there("run/dump_1.h5.n0.piece") || is_there("run/dump_1.h5.n1.piece"));
    assert_true(is_there("run/dump_1.h5.x.h5.n1.piece") && is_there("run/dump_1.h5.own.piece"));
    cw_groups_free(&all);
}

static int64_t time_of(const char *path)
{
    int64_t mtime = 0;
    uint64_t size;

    assert_int_equal(cw_store_stat(&store, path, &mtime, &size), 0);
    return mtime;
}

static void test_a_file_that_was_written_since_stays_with_those_before_it(void **state)
{
    static const char *const files[] = {"run/dump_1/rank_0", "run/dump_1/rank_1", "run/dump_1/rank_2"};
    struct cw_groups all = {0};
    struct cw_group *g = NULL;

    (void)state;
    for (int i = 0; i < 3; i++) {
        put(files[i]);
        g = cw_groups_add(&all, "run/dump 1", files[i], "n0", time_of(files[i]) - (i == 1));
        assert_non_null(g);
    }
    assert_int_equal(cw_store_remove(&store, g, "run/dump_1"), -ESTALE);
    assert_true(is_there(files[0]) && is_there(files[1]) && !is_there(files[2])); /* the lock is on the first */
    g->files[1].mtime_ns = time_of(files[1]);
    assert_int_equal(cw_store_remove(&store, g, "run/dump_1"), 0); /* what is gone already is no error */
    assert_false(is_there(files[0]) || is_there(files[1]) || is_there("run/dump_1"));
    cw_groups_free(&all);
}

/* A solver may write an XDMF file of its own beside its dump. */
static void test_an_xdmf_file_that_is_not_of_this_dump_is_in_the_way(void **state)
{
    static const struct cw_options with = {.ending = ".h5", .xdmf = true}, without = {.ending = ".h5"};
    struct cw_groups all = {0};
    struct cw_group *g = cw_groups_add(&all, "run/dump_# 1", "run/dump_1/rank_0", "n0", 1);
    char why[512] = "";
    (void)state;

    put("run/dump_1.xmf");
    assert_false(cw_result_is_taken(&store, &without, g, "run/dump_1", "run/dump_1.h5", why, sizeof why));
    assert_false(cw_result_is_taken(&store, &with, g, "run/dump_1", "run/dump_1.h5", why, sizeof why)); /* its own, of an earlier result */
    assert_true(cw_result_is_taken(&store, &with, g, "again/dump_1", "run/dump_1.h5", why, sizeof why));
    assert_non_null(strstr(why, "run/dump_1.xmf is there already, and is the result of run/dump_1"));
    put("run/dump_1.own.xmf");
    assert_true(cw_result_is_taken(&store, &with, g, "run/dump_1", "run/dump_1.own.h5", why, sizeof why));
    assert_non_null(strstr(why, "no result of this dump"));
    cw_groups_free(&all);
}

/* Before the first part of a new one is made. */
static void test_a_result_is_removed_by_who_makes_it_of_the_same_dump(void **state)
{
    char name[PATH_MAX];
    struct stat st;
    int lock;
    (void)state;

    put("run/dump_1.h5");
    snprintf(name, sizeof name, "%s/run/dump_1.h5", top);
    assert_int_equal(cw_result_remove(&store, "run/dump_1.h5", "0 again/dump_1"), -EEXIST);
    lock = cv_result_lock(name, false); /* somebody is about to replace it */
    assert_true(lock >= 0);
    assert_int_equal(cw_result_remove(&store, "run/dump_1.h5", "0 run/dump_1"), -EWOULDBLOCK);
    assert_true(is_there("run/dump_1.h5"));
    assert_int_equal(fstat(lock, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0666); /* other users of the directory, too */
    cv_result_unlock(name, lock);
    assert_int_equal(cw_result_remove(&store, "run/dump_1.h5", "0 run/dump_1"), 0);
    assert_false(is_there("run/dump_1.h5") || is_there("run/.fp-convert-lock"));
}

/* It was made while the dump was converted, and leads nowhere: what is no file is nobody's result. */
static void test_a_link_is_no_result_of_a_dump(void **state)
{
    struct cv_result r = {0};
    struct cv_fail why = {0};
    char name[PATH_MAX];
    FILE *f;
    (void)state;

    put("run/rank_0");
    snprintf(name, sizeof name, "%s/run/dump_3.h5", top);
    assert_int_equal(cv_result_begin(&r, name, &why), 0);
    f = fopen(r.temporary, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(symlink("nowhere.h5", name), 0);
    alarm(20);
    assert_int_equal(cv_result_name(&r, NULL, "0 run/dump_3", true, &why), -EEXIST);
    alarm(0);
    assert_non_null(strstr(why.text, "no result of this dump"));
    assert_int_equal(unlink(name), 0);
    assert_int_equal(unlink(r.temporary), 0);
}

/* As by somebody who tidies up: another try makes it anew. */
static void test_a_temporary_file_that_is_removed_meanwhile_is_made_again(void **state)
{
    struct cv_result r = {0};
    struct cv_fail why = {0};
    char name[PATH_MAX];
    (void)state;

    put("run/rank_0");
    snprintf(name, sizeof name, "%s/run/dump_4.h5", top);
    assert_int_equal(cv_result_begin(&r, name, &why), 0);
    assert_int_equal(cv_result_name(&r, "dump_4.h5", "0 run/dump_4", true, &why), -EAGAIN);
    assert_true(cw_err_passes(EAGAIN));
}

/* The temporary name that a result of this name has; of the directory run. */
static void put_temporary(const char *base, char path[64])
{
    char letters[CV_LETTERS + 1];

    cv_result_letters(base, letters);
    snprintf(path, 64, "run/" CV_TEMPORARY "%sabcdefgh", letters);
    put(path);
}

/* Whenever he was killed: between the file and whatever could be said of it there is always a moment. */
static void test_what_who_was_killed_has_left_is_removed_at_once_and_nobody_elses(void **state)
{
    char mine[64], beside[64], others[64], name[PATH_MAX];
    int fd;
    (void)state;

    put_temporary("dump_1.h5", mine);
    put_temporary("dump_2.h5", others);
    assert_false(cw_store_sweep(&store, "run/dump_1.h5"));
    assert_true(!is_there(mine) && is_there(others));
    put_temporary("dump_1.xmf", beside);
    assert_string_equal(beside, mine);
    assert_int_equal(snprintf(name, sizeof name, "%s/%s", top, mine) < (int)sizeof name, 1);
    fd = open(name, O_RDONLY | O_CLOEXEC);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0); /* he lives */
    assert_false(cw_store_sweep(&store, "run/dump_1.h5"));
    assert_true(is_there(mine));
    close(fd);
    assert_false(cw_store_sweep(&store, "run/dump_1.h5"));
    assert_false(is_there(mine));
    assert_true(cw_store_sweep(&store, "run/dump_2.h5"));
    assert_false(is_there(others));
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(files_of_one_set_are_looked_for_in_its_directory),
        T(parts_of_nodes_that_have_written_nothing_are_removed),
        T(all_parts_of_a_result_that_is_whole_are_removed_and_nobody_elses),
        T(a_file_that_was_written_since_stays_with_those_before_it),
        T(an_xdmf_file_that_is_not_of_this_dump_is_in_the_way),
        T(a_result_is_removed_by_who_makes_it_of_the_same_dump),
        T(a_link_is_no_result_of_a_dump),
        T(a_temporary_file_that_is_removed_meanwhile_is_made_again),
        T(what_who_was_killed_has_left_is_removed_at_once_and_nobody_elses),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
