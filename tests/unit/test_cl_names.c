/* What fp-mount knows of directories without asking: names and files of directories that it has made, attributes of a
 * moment ago (client/names.h, client/dircache.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/dircache.h"
#include "client/inode.h"
#include "client/names.h"

void cl_attr_stat(struct cl_mount *m, const Fp__Attr *a, struct stat *st)
{
    (void)m;
    memset(st, 0, sizeof *st);
    st->st_ino = a->ino;
    st->st_mode = a->mode;
}

static int clear(void **state)
{
    (void)state;
    cl_names_clear();
    cl_dircache_clear();
    return 0;
}

static Fp__Attr attr(uint64_t ino, uint32_t mode)
{
    Fp__Attr a = FP__ATTR__INIT;
    a.ino = ino;
    a.mode = mode;
    return a;
}

#define D 20u /* a directory that is known */

static Fp__Attr made(uint64_t dir, uint32_t mode)
{
    Fp__Attr a = attr(dir, S_IFDIR | mode);
    a.nlink = 2;
    a.gid = 77;
    a.chunk_size_bytes = 65536;
    a.stripe = 3;
    a.mtime_ns = a.ctime_ns = 1000;
    cl_names_made(&a);
    return a;
}

static bool absent(uint64_t dir, const char *name)
{
    Fp__Attr a;
    return cl_names_find(dir, name, &a) == CL_NAME_ABSENT;
}

static bool unknown(uint64_t dir, const char *name)
{
    Fp__Attr a;
    return cl_names_find(dir, name, &a) == CL_NAME_UNKNOWN;
}

static bool create(uint64_t dir, const char *name, uint64_t ino, Fp__Attr *a)
{
    struct cl_name_new n = {.ino = ino, .mode = S_IFREG | 0640, .uid = 5, .gid = 6, .now_ns = 2000};
    int64_t time_ns = 0;
    bool ok = cl_names_create(dir, name, &n, a, &time_ns);
    assert_true(!ok || time_ns == a->ctime_ns);
    if (ok)
        cl_names_queued(dir);
    return ok;
}

static bool removed(uint64_t dir, const char *name)
{
    uint64_t ino;
    int64_t time_ns;
    bool ok = cl_names_remove(dir, name, 3000, &ino, &time_ns);
    if (ok)
        cl_names_queued(dir);
    return ok;
}

static ProtobufCBinaryData bytes(const char *s)
{
    return (ProtobufCBinaryData){.len = strlen(s), .data = (uint8_t *)s};
}

static struct cl_names_mark send_mknod(uint64_t dir, const char *name)
{
    struct cl_names_mark mark;
    Fp__MkNod m = FP__MK_NOD__INIT;
    m.parent = dir;
    m.name = bytes(name);
    cl_names_sent(FP__MSG_TYPE__MSG_MKNOD, &m.base, &mark);
    return mark;
}

static struct cl_names_mark send_setattr(uint64_t ino)
{
    struct cl_names_mark mark;
    Fp__SetAttr m = FP__SET_ATTR__INIT;
    m.ino = ino;
    cl_names_sent(FP__MSG_TYPE__MSG_SETATTR, &m.base, &mark);
    return mark;
}

static void test_names_other_directories_are_not_known(void **state)
{
    Fp__Attr a;
    (void)state;
    assert_true(cl_names_none());
    assert_true(unknown(D, "a"));
    assert_false(create(D, "a", 100, &a));
    made(21, 0755);
    assert_true(unknown(D, "a"));
    assert_false(create(D, "a", 100, &a));
    assert_false(removed(D, "a"));
    assert_false(cl_names_attr(D, &a));
}

static void test_names_new_directory_is_empty_but_for_our_names(void **state)
{
    (void)state;
    made(D, 0755);
    assert_true(absent(D, "a"));
    send_mknod(D, "a");
    assert_true(unknown(D, "a"));
    assert_true(absent(D, "b"));
    assert_true(unknown(D, ".") && unknown(D, ".."));
}

static void test_names_file_is_as_the_manager_makes_it(void **state)
{
    Fp__Attr a, b;
    (void)state;
    made(D, 0755);
    assert_true(create(D, "a", 100, &a));
    assert_int_equal(a.ino, 100);
    assert_int_equal(a.mode, S_IFREG | 0640);
    assert_true(a.uid == 5 && a.gid == 6 && a.nlink == 1 && a.size_bytes == 0 && a.data_version == 1);
    assert_true(a.chunk_size_bytes == 65536 && a.stripe == 3 && a.mtime_ns == 2000 && a.btime_ns == 2000);
    assert_int_equal(cl_names_find(D, "a", &b), CL_NAME_FILE);
    assert_memory_equal(&a, &b, sizeof a);
    assert_true(cl_names_attr(100, &b));
    assert_memory_equal(&a, &b, sizeof a);
    assert_true(cl_names_attr(D, &b) && b.mtime_ns == 2000 && b.ctime_ns == 2000);
    assert_false(create(D, "a", 101, &a)); /* O_EXCL is the kernel's, and the manager's */
}

static void test_names_setgid_directory_hands_down_its_group(void **state)
{
    Fp__Attr a;
    (void)state;
    made(D, 02775);
    assert_true(create(D, "a", 100, &a));
    assert_int_equal(a.gid, 77);
    assert_int_equal(a.mode, S_IFREG | 0640);
}

static void test_names_time_of_a_directory_does_not_go_back(void **state)
{
    Fp__Attr a;
    uint64_t ino;
    int64_t t;
    (void)state;
    made(D, 0755);
    assert_true(create(D, "a", 100, &a));
    assert_true(cl_names_remove(D, "a", 10, &ino, &t));
    assert_int_equal(t, 2000);
}

static void test_names_removed_one_can_be_made_again(void **state)
{
    Fp__Attr a;
    uint64_t ino;
    int64_t t;
    (void)state;
    made(D, 0755);
    assert_true(create(D, "a", 100, &a));
    assert_true(cl_names_remove(D, "a", 3000, &ino, &t));
    assert_true(ino == 100 && t == 3000);
    assert_true(absent(D, "a"));
    assert_false(cl_names_attr(100, &a));
    assert_true(cl_names_attr(D, &a) && a.mtime_ns == 3000);
    assert_false(removed(D, "a"));
    assert_true(create(D, "a", 101, &a));
    assert_int_equal(a.ino, 101);
}

static void test_names_touched_file_is_asked_of_the_manager(void **state)
{
    static const uint32_t types[] = {FP__MSG_TYPE__MSG_SETATTR, FP__MSG_TYPE__MSG_SETXATTR,
                                     FP__MSG_TYPE__MSG_REMOVEXATTR, FP__MSG_TYPE__MSG_COMMIT, FP__MSG_TYPE__MSG_PUNCH};
    Fp__Attr a;
    (void)state;
    made(D, 0755);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct cl_names_mark mark;
        Fp__SetAttr set = FP__SET_ATTR__INIT;
        Fp__SetXattr x = FP__SET_XATTR__INIT;
        Fp__RemoveXattr rx = FP__REMOVE_XATTR__INIT;
        Fp__Commit c = FP__COMMIT__INIT;
        Fp__Punch p = FP__PUNCH__INIT;
        const ProtobufCMessage *m[] = {&set.base, &x.base, &rx.base, &c.base, &p.base};
        set.ino = x.ino = rx.ino = c.ino = p.ino = 100;
        assert_true(create(D, "a", 100, &a));
        cl_names_sent(types[i], m[i], &mark);
        assert_true(unknown(D, "a"));
        assert_false(cl_names_attr(100, &a));
        cl_names_answered(&mark, true, NULL);
        assert_true(unknown(D, "a"));
        assert_true(removed(D, "a")); /* that it is there, and has one name, is known */
    }
}

static void test_names_linked_file_is_not_removed_here(void **state)
{
    struct cl_names_mark mark;
    Fp__Link m = FP__LINK__INIT;
    Fp__Attr a;
    (void)state;
    made(D, 0755);
    assert_true(create(D, "a", 100, &a));
    m.ino = 100;
    m.parent = 99; /* not known */
    m.name = bytes("b");
    cl_names_sent(FP__MSG_TYPE__MSG_LINK, &m.base, &mark);
    assert_true(unknown(D, "a"));
    assert_false(removed(D, "a"));
}

static void test_names_renamed_ones_are_not_known(void **state)
{
    struct cl_names_mark mark;
    Fp__Rename m = FP__RENAME__INIT;
    Fp__Attr a;
    (void)state;
    made(D, 0755);
    made(22, 0755);
    assert_true(create(D, "a", 100, &a));
    assert_true(create(22, "b", 101, &a));
    m.parent = D;
    m.name = bytes("a");
    m.new_parent = 22;
    m.new_name = bytes("b");
    cl_names_sent(FP__MSG_TYPE__MSG_RENAME, &m.base, &mark);
    assert_true(unknown(D, "a") && unknown(22, "b"));
    assert_false(removed(D, "a") || removed(22, "b"));
    assert_false(cl_names_attr(100, &a) || cl_names_attr(101, &a));
    assert_false(cl_names_attr(D, &a) || cl_names_attr(22, &a));
    cl_names_answered(&mark, true, NULL);
    assert_true(unknown(D, "a") && absent(D, "c"));
}

static void test_names_directory_that_changes_is_learnt_again(void **state)
{
    Fp__Attr dir = made(D, 0755), a;
    struct cl_names_mark mark = send_setattr(D);
    (void)state;
    assert_false(cl_names_attr(D, &a));
    assert_false(create(D, "a", 100, &a));
    assert_int_equal(cl_names_stamp(D), 0); /* under way */
    cl_names_answered(&mark, true, NULL);
    uint64_t stamp = cl_names_stamp(D);
    assert_int_not_equal(stamp, 0);
    dir.mode = S_IFDIR | 02770;
    cl_names_learn(stamp, &dir);
    assert_true(create(D, "a", 100, &a));
    assert_int_equal(a.gid, 77);
    assert_int_equal(cl_names_stamp(D), 0); /* nothing to learn */
}

/* One process after the other, as the kernel lets them have a directory. */
static void test_names_answer_of_the_only_change_tells_the_directory(void **state)
{
    Fp__Attr dir = made(D, 0755), a;
    struct cl_names_mark first = send_mknod(D, "x"), second;
    (void)state;
    dir.mtime_ns = dir.ctime_ns = 5000;
    cl_names_answered(&first, true, &dir);
    assert_true(cl_names_attr(D, &a) && a.mtime_ns == 5000);
    assert_true(create(D, "a", 100, &a));
    first = send_mknod(D, "y");
    second = send_mknod(D, "z"); /* is executed later, which says nothing of when it is answered */
    cl_names_answered(&second, true, &dir);
    cl_names_answered(&first, true, &dir);
    assert_false(cl_names_attr(D, &a));
    first = send_mknod(D, "y");
    cl_names_answered(&first, true, &dir);
    assert_true(cl_names_attr(D, &a));
}

static void test_names_answer_that_does_not_know_of_an_early_change_tells_nothing(void **state)
{
    Fp__Attr dir = made(D, 0755), a;
    struct cl_names_mark mark;
    uint64_t ino;
    int64_t time_ns;
    (void)state;
    assert_true(create(D, "a", 100, &a) && create(D, "b", 101, &a));
    mark = send_mknod(D, "x");
    assert_true(removed(D, "a")); /* while it is under way */
    cl_names_answered(&mark, true, &dir);
    assert_false(cl_names_attr(D, &a));
    assert_true(cl_names_remove(D, "b", 3000, &ino, &time_ns)); /* before, and goes behind it */
    mark = send_mknod(D, "y");
    cl_names_queued(D);
    cl_names_answered(&mark, true, &dir);
    assert_false(cl_names_attr(D, &a));
    mark = send_mknod(D, "z");
    dir.ino = 21; /* of another directory */
    cl_names_answered(&mark, true, &dir);
    assert_false(cl_names_attr(D, &a));
}

static void test_names_kernel_keeps_no_attributes_from_before_an_early_change(void **state)
{
    Fp__Attr a;
    (void)state;
    assert_true(cl_names_show(D, 1) && !cl_names_hide(D)); /* not known: nothing is changed early in it */
    made(D, 0755);
    assert_false(cl_names_hide(D));
    assert_true(cl_names_show(D, 1000));
    assert_true(create(D, "a", 100, &a)); /* at 2000 */
    assert_true(cl_names_hide(D));
    assert_false(cl_names_hide(D)); /* once */
    assert_false(cl_names_show(D, 1000)); /* the answer was made before, and comes after */
    assert_false(cl_names_hide(D));
    assert_true(cl_names_show(D, 2000));
    send_setattr(D); /* its attributes are not known any more */
    assert_true(removed(D, "a")); /* at 3000 */
    assert_true(cl_names_hide(D));
    assert_false(cl_names_show(D, 2999));
    assert_true(cl_names_show(D, 3000) && cl_names_show(21, 1));
}

static void test_names_old_attributes_are_not_learnt(void **state)
{
    Fp__Attr dir = made(D, 0755), a;
    struct cl_names_mark first = send_setattr(D), second;
    (void)state;
    cl_names_answered(&first, true, NULL);
    uint64_t stamp = cl_names_stamp(D);
    second = send_mknod(D, "x"); /* after the question, before its answer */
    cl_names_learn(stamp, &dir);
    assert_false(cl_names_attr(D, &a));
    cl_names_answered(&second, true, NULL);
    cl_names_learn(stamp, &dir);
    assert_false(cl_names_attr(D, &a));
}

static void test_names_nothing_is_learnt_before_the_request_is_queued(void **state)
{
    Fp__Attr dir = made(D, 0755), a;
    struct cl_names_mark mark;
    uint64_t stamp, ino;
    int64_t time_ns;
    (void)state;
    assert_true(create(D, "a", 100, &a));
    mark = send_setattr(D);
    cl_names_answered(&mark, true, NULL);
    assert_true(cl_names_remove(D, "a", 3000, &ino, &time_ns));
    stamp = cl_names_stamp(D); /* the manager may be asked now, and not know of the removal */
    assert_int_equal(stamp, 0);
    cl_names_queued(D);
    stamp = cl_names_stamp(D);
    assert_int_not_equal(stamp, 0);
    cl_names_learn(stamp, &dir);
    assert_true(cl_names_attr(D, &a));
}

static void test_names_outcome_that_nobody_knows_forgets_the_directory(void **state)
{
    struct cl_names_mark mark;
    (void)state;
    made(D, 0755);
    mark = send_mknod(D, "a");
    cl_names_answered(&mark, false, NULL);
    assert_true(unknown(D, "b"));
    assert_true(cl_names_none());
}

static void test_names_request_of_an_early_change_changes_nothing(void **state)
{
    struct cl_names_mark mark;
    Fp__MkNod m = FP__MK_NOD__INIT;
    Fp__Unlink u = FP__UNLINK__INIT;
    Fp__Attr a;
    (void)state;
    made(D, 0755);
    assert_true(create(D, "a", 100, &a));
    m.parent = u.parent = D;
    m.name = u.name = bytes("a");
    m.ino = u.ino = 100;
    cl_names_sent(FP__MSG_TYPE__MSG_MKNOD, &m.base, &mark);
    assert_int_equal(cl_names_find(D, "a", &a), CL_NAME_FILE);
    assert_true(removed(D, "a"));
    cl_names_sent(FP__MSG_TYPE__MSG_UNLINK, &u.base, &mark);
    assert_true(absent(D, "a"));
    assert_true(cl_names_attr(D, &a));
}

static void test_names_many_stay_known(void **state)
{
    char name[32];
    Fp__Attr a;
    (void)state;
    made(D, 0755);
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "f%d", i);
        assert_true(absent(D, name));
        assert_true(create(D, name, 1000 + (uint64_t)i, &a));
    }
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "f%d", i);
        assert_true(cl_names_find(D, name, &a) == CL_NAME_FILE && a.ino == 1000 + (uint64_t)i);
        assert_true(i % 2 == 0 || removed(D, name));
    }
    for (int i = 0; i < 20000; i++)
        assert_true(cl_names_attr(1000 + (uint64_t)i, &a) == (i % 2 == 0));
    assert_true(absent(D, "g"));
}

static void test_names_too_large_ones_are_forgotten(void **state)
{
    char name[32];
    Fp__Attr a;
    bool all = true;
    (void)state;
    made(D, 0755);
    for (int i = 0; i < 200000 && all; i++) {
        snprintf(name, sizeof name, "f%d", i);
        all = create(D, name, 1000 + (uint64_t)i, &a);
    }
    assert_false(all);
    assert_true(unknown(D, "g"));
    assert_true(unknown(D, "f0"));
    assert_false(cl_names_attr(1000, &a));
    made(D, 0755); /* room again */
    assert_true(create(D, "f0", 1000, &a));
}

static void test_names_colliding_directory_takes_the_place(void **state)
{
    uint64_t known = 0;
    (void)state;
    for (uint64_t ino = 100; ino < 1100; ino++)
        made(ino, 0755);
    for (uint64_t ino = 100; ino < 1100; ino++)
        known += absent(ino, "a");
    assert_in_range(known, 1, 64);
    assert_true(absent(1099, "a"));
}

static void test_names_clear_forgets_all(void **state)
{
    Fp__Attr a;
    (void)state;
    made(D, 0755);
    assert_true(create(D, "a", 100, &a));
    cl_names_clear();
    assert_true(cl_names_none());
    assert_true(unknown(D, "a") && unknown(D, "b"));
    assert_false(cl_names_attr(100, &a));
}

static void test_dircache_answers_for_a_moment(void **state)
{
    Fp__Attr a = attr(20, 0755);
    struct stat st;
    (void)state;
    for (int attempt = 0; attempt < 50; attempt++) { /* the machine may pause longer than that */
        cl_dircache_put(NULL, &a);
        if (cl_dircache_get(20, &st))
            break;
    }
    assert_int_equal(st.st_mode, 0755);
    usleep((CL_DIRCACHE_MS + 1) * 1000);
    assert_false(cl_dircache_get(20, &st));
}

static void test_dircache_drops_what_changes(void **state)
{
    Fp__Attr a = attr(20, 0755);
    struct stat st;
    (void)state;
    cl_dircache_put(NULL, NULL);
    cl_dircache_put(NULL, &a);
    cl_dircache_drop(20);
    assert_false(cl_dircache_get(20, &st));
    cl_dircache_put(NULL, &a);
    cl_dircache_clear();
    assert_false(cl_dircache_get(20, &st));
    assert_false(cl_dircache_get(0, &st));
}

#define T(name) cmocka_unit_test_setup_teardown(name, clear, clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_names_other_directories_are_not_known),
        T(test_names_new_directory_is_empty_but_for_our_names),
        T(test_names_file_is_as_the_manager_makes_it),
        T(test_names_setgid_directory_hands_down_its_group),
        T(test_names_time_of_a_directory_does_not_go_back),
        T(test_names_removed_one_can_be_made_again),
        T(test_names_touched_file_is_asked_of_the_manager),
        T(test_names_linked_file_is_not_removed_here),
        T(test_names_renamed_ones_are_not_known),
        T(test_names_directory_that_changes_is_learnt_again),
        T(test_names_answer_of_the_only_change_tells_the_directory),
        T(test_names_answer_that_does_not_know_of_an_early_change_tells_nothing),
        T(test_names_kernel_keeps_no_attributes_from_before_an_early_change),
        T(test_names_old_attributes_are_not_learnt),
        T(test_names_nothing_is_learnt_before_the_request_is_queued),
        T(test_names_outcome_that_nobody_knows_forgets_the_directory),
        T(test_names_request_of_an_early_change_changes_nothing),
        T(test_names_many_stay_known),
        T(test_names_too_large_ones_are_forgotten),
        T(test_names_colliding_directory_takes_the_place),
        T(test_names_clear_forgets_all),
        T(test_dircache_answers_for_a_moment),
        T(test_dircache_drops_what_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
