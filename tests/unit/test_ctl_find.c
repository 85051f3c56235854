/* Which store fpctl means where no path says it. The table of mounts and what these say are the test's. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#include <cmocka.h>

#include "client/ctl/ctl.h"

#define ONE   "0c6d8d3e-0000-4000-8000-000000000001"
#define OTHER "0c6d8d3e-0000-4000-8000-000000000002"

static struct fake {
    const char *point, *manager, *store; /* store NULL: it does not say it */
    bool hangs;
} mount[8];
static size_t nmounts;
static const char *here;
static char table[4096];

static const struct fake *mount_at(const char *path)
{
    for (size_t i = 0; i < nmounts; i++)
        if (strcmp(mount[i].point, path) == 0)
            return &mount[i];
    return NULL;
}

FILE *__real_fopen64(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode)
{
    size_t n = 0;

    if (strcmp(path, "/proc/self/mountinfo") != 0)
        return __real_fopen64(path, mode);
    n += (size_t)snprintf(table, sizeof table, "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
    for (size_t i = 0; i < nmounts; i++)
        n += (size_t)snprintf(table + n, sizeof table - n, "%zu 22 0:%zu / %s rw shared:1 - fuse.fpstore %s rw\n", 30 + i, 30 + i, mount[i].point, mount[i].manager);
    return fmemopen(table, n, "r");
}

ssize_t __wrap_getxattr(const char *path, const char *name, void *value, size_t size);
ssize_t __wrap_getxattr(const char *path, const char *name, void *value, size_t size)
{
    const struct fake *m = mount_at(path);
    if (m && m->hangs)
        pause();
    const char *text = !m ? NULL : strcmp(name, "user.fp.store") == 0 ? m->store : strcmp(name, "user.fp.manager") == 0 ? m->manager : "/key";

    if (!text) {
        errno = ENODATA;
        return -1;
    }
    if (size < strlen(text)) {
        errno = ERANGE;
        return -1;
    }
    memcpy(value, text, strlen(text));
    return (ssize_t)strlen(text);
}

char *__wrap_getcwd(char *buf, size_t size);
char *__wrap_getcwd(char *buf, size_t size)
{
    snprintf(buf, size, "%s", here);
    return buf;
}

static void mounts_are(const struct fake *list, size_t n)
{
    memcpy(mount, list, n * sizeof *list);
    nmounts = n;
    here = "/";
}

/* The mount that is meant. NULL: none is. */
static const char *meant(void)
{
    static struct ctl_options o;
    static struct ctl_store s;
    bool there;

    memset(&s, 0, sizeof s);
    there = ctl_is_there(&o);
    if (ctl_find(&o, &s) < 0) {
        assert_false(there);
        return NULL;
    }
    assert_true(there);
    assert_string_equal(s.manager, mount_at(s.mountpoint)->manager);
    assert_string_equal(s.key, "/key");
    return s.mountpoint;
}

static void test_the_only_mount_is_meant(void **state)
{
    (void)state;
    mounts_are((struct fake[]){{"/a", "host:1", NULL, false}}, 1); /* of a release that does not say it */
    assert_string_equal(meant(), "/a");
    mounts_are(NULL, 0);
    assert_null(meant());
}

/* By the UUID: the manager may be given by several addresses. */
static void test_several_mounts_of_one_store_are_one_store(void **state)
{
    (void)state;
    mounts_are((struct fake[]){{"/a", "host:1", ONE, false}, {"/b", "10.0.0.1:1", ONE, false}, {"/c", "host:1", ONE, false}}, 3);
    assert_string_equal(meant(), "/a");
    here = "/b/run";
    assert_string_equal(meant(), "/b");
}

static void test_mounts_of_several_stores_are_not_chosen_from(void **state)
{
    (void)state;
    mounts_are((struct fake[]){{"/a", "host:1", ONE, false}, {"/b", "host:1", OTHER, false}, {"/c", "host:1", ONE, false}}, 3);
    assert_null(meant());
    here = "/b";
    assert_string_equal(meant(), "/b");
}

/* It is dead, or of another user. */
static void test_a_mount_that_does_not_say_its_store_may_be_of_any(void **state)
{
    (void)state;
    mounts_are((struct fake[]){{"/a", "host:1", ONE, false}, {"/b", "host:1", NULL, false}}, 2);
    assert_null(meant());
    mounts_are((struct fake[]){{"/a", "host:1", NULL, false}, {"/b", "host:1", NULL, false}}, 2);
    assert_null(meant());
}

/* It is not waited for longer than some seconds. */
static void test_a_mount_that_hangs_may_be_of_any(void **state)
{
    (void)state;
    mounts_are((struct fake[]){{"/a", "host:1", ONE, false}, {"/b", "host:1", ONE, true}}, 2);
    assert_null(meant());
}

static int find_at(const char *path, const char *manager, struct ctl_store *s)
{
    static struct ctl_options o;
    const char *why;

    memset(&o, 0, sizeof o);
    memset(s, 0, sizeof *s);
    assert_int_equal(fp_parse_addr(manager, 1, &o.manager, &why), 0);
    o.path = path;
    o.manager_given = o.key_given = true;
    o.key = "/mine";
    return ctl_find(&o, s);
}

/* There may be something of that name in both: nothing is asked of the one about the other. */
static void test_a_path_of_one_store_is_not_asked_of_another(void **state)
{
    struct ctl_store s;

    (void)state;
    mounts_are((struct fake[]){{"/dev", "10.0.0.1:7", ONE, false}, {"/tmp", "name:7", OTHER, false}}, 2); /* what realpath finds */
    assert_int_equal(find_at("/dev", "10.0.0.2:7", &s), -EXDEV);
    assert_int_equal(find_at("/dev", "10.0.0.1:8", &s), -EXDEV);
    assert_int_equal(find_at("/dev", "name:8", &s), -EXDEV);
    assert_int_equal(find_at("/dev", "10.0.0.1:7", &s), 0);
    assert_string_equal(s.mountpoint, "/dev");
    assert_int_equal(find_at("/dev", "name:7", &s), 0); /* it may be the name of that address */
    assert_int_equal(find_at("/tmp", "10.0.0.1:7", &s), 0);
    assert_int_equal(find_at("/proc", "10.0.0.2:7", &s), 0); /* in no mount: from the root of the store */
    assert_string_equal(s.inner, "proc");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_only_mount_is_meant),
        cmocka_unit_test(test_several_mounts_of_one_store_are_one_store),
        cmocka_unit_test(test_mounts_of_several_stores_are_not_chosen_from),
        cmocka_unit_test(test_a_mount_that_does_not_say_its_store_may_be_of_any),
        cmocka_unit_test(test_a_mount_that_hangs_may_be_of_any),
        cmocka_unit_test(test_a_path_of_one_store_is_not_asked_of_another),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
