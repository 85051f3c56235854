/* The inode table of fp-mount: who keeps an inode alive, what is told to a manager that comes back
 * (client/inode.h). The data path and the manager link are replaced by the few functions below. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/append.h"
#include "client/client.h"
#include "client/core.h"
#include "client/data.h"
#include "client/inode.h"
#include "fp/fault.h"

static unsigned forgotten;
static char file_mark; /* stands for a struct cl_file */

void cl_data_forget(struct cl_mount *m, struct cl_inode *inode)
{
    (void)m;
    inode->file = NULL;
    forgotten++;
}

void cl_append_free(struct cl_inode *inode)
{
    (void)inode;
}

void cl_data_news(struct cl_inode *inode, uint64_t data_version)
{
    (void)inode;
    (void)data_version;
}

void cl_data_overlay(struct cl_inode *inode, struct stat *st)
{
    (void)inode;
    st->st_size = 4711;
}

int cl_mgr_call_sync(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, ProtobufCMessage **reply)
{
    const Fp__InodeReq *req = (const Fp__InodeReq *)msg;
    (void)m;
    assert_int_equal(type, FP__MSG_TYPE__MSG_GETATTR);
    *reply = NULL;
    if (req->ino >= 100)
        return -ENOENT;
    Fp__AttrReply *r = malloc(sizeof *r);
    fp__attr_reply__init(r);
    r->attr = malloc(sizeof *r->attr);
    fp__attr__init(r->attr);
    r->attr->ino = req->ino;
    *reply = &r->base;
    return 0;
}

static Fp__Attr attr(uint64_t ino)
{
    Fp__Attr a = FP__ATTR__INIT;
    a.ino = ino;
    a.mode = S_IFREG | 0644;
    a.nlink = 1;
    return a;
}

static int setup(void **state)
{
    static struct cl_mount m;
    memset(&m, 0, sizeof m);
    forgotten = 0;
    *state = &m;
    return cl_itable_new(&m.inodes);
}

static int teardown(void **state)
{
    cl_itable_free(*state);
    return 0;
}

static void nothing(void *arg)
{
    (void)arg;
}

static void test_inode_lives_while_referenced(void **state)
{
    struct cl_mount *m = *state;
    Fp__Attr a = attr(7);
    struct cl_inode *inode = cl_inode_intern(m, &a);
    assert_non_null(inode);
    assert_ptr_equal(cl_inode_intern(m, &a), inode);
    cl_inode_put(m, inode);
    assert_ptr_equal(cl_inode_get(m, 7), inode);
    cl_inode_put(m, inode);
    cl_inode_put(m, inode);
    assert_null(cl_inode_get(m, 7));
}

static void test_inode_closed_with_data_stays_until_forgotten(void **state)
{
    struct cl_mount *m = *state;
    Fp__Attr a = attr(7);
    struct cl_inode *inode = cl_inode_intern(m, &a);
    inode->file = (struct cl_file *)&file_mark;
    cl_inode_put(m, inode);
    assert_ptr_equal(cl_inode_get(m, 7), inode);
    cl_inode_forget(m, 7); /* in use: stays */
    cl_inode_put(m, inode);
    assert_int_equal(forgotten, 0);
    cl_inode_forget(m, 7);
    assert_int_equal(forgotten, 1);
    assert_null(cl_inode_get(m, 7));
}

static void test_inode_closed_ones_are_bounded(void **state)
{
    struct cl_mount *m = *state;
    for (uint64_t ino = 2; ino < 5002; ino++) {
        Fp__Attr a = attr(ino);
        struct cl_inode *inode = cl_inode_intern(m, &a);
        inode->file = (struct cl_file *)&file_mark;
        cl_inode_put(m, inode);
    }
    assert_in_range(forgotten, 3000, 4999);
    assert_null(cl_inode_get(m, 2)); /* the oldest went first */
    struct cl_inode *last = cl_inode_get(m, 5001);
    assert_non_null(last);
    cl_inode_put(m, last);
}

static void test_inode_table_grows(void **state)
{
    enum { N = 20000 };
    struct cl_mount *m = *state;
    static struct cl_inode *inodes[N];
    for (uint64_t i = 0; i < N; i++) {
        Fp__Attr a = attr(i * 3 + 1);
        inodes[i] = cl_inode_intern(m, &a);
    }
    for (uint64_t i = 0; i < N; i++) {
        struct cl_inode *inode = cl_inode_get(m, i * 3 + 1);
        assert_ptr_equal(inode, inodes[i]);
        cl_inode_put(m, inode);
        cl_inode_put(m, inode);
    }
    assert_null(cl_inode_get(m, 1));
}

/* A hello that left something out would give it away. */
static void test_inode_lists_for_hello_are_whole_or_none(void **state)
{
    struct cl_mount *m = *state;
    Fp__Attr a = attr(7);
    struct cl_inode *one = cl_inode_intern(m, &a);
    struct cl_held held;
    uint64_t *list;
    size_t n;
    cl_inode_hold(m, one, true);
    one->lease = true;
    assert_int_equal(fp_fault_set("cl.hello_held=ENOMEM:count=1,cl.hello_leased=ENOMEM:count=1"), 0);
    assert_int_equal(cl_inode_held_list(m, &held, nothing, NULL), -ENOMEM);
    assert_int_equal(cl_inode_leased_list(m, &list, &n), -ENOMEM);
    assert_int_equal(cl_inode_held_list(m, &held, nothing, NULL), 0);
    assert_true(held.n == 1 && held.ino[0] == 7 && held.nwrite == 1 && held.write_ino[0] == 7);
    free(held.ino);
    free(held.write_ino);
    assert_int_equal(cl_inode_leased_list(m, &list, &n), 0);
    assert_true(n == 1 && list[0] == 7);
    free(list);
    assert_int_equal(fp_fault_set(NULL), 0);
    one->lease = false;
    cl_inode_unhold(m, one, true, nothing, NULL);
    cl_inode_put(m, one);
}

static void test_inode_held_ones_are_listed_as_often_as_held(void **state)
{
    struct cl_mount *m = *state;
    Fp__Attr a = attr(7), b = attr(9);
    struct cl_inode *one = cl_inode_intern(m, &a), *two = cl_inode_intern(m, &b);
    struct cl_held held;
    size_t sevens = 0;
    cl_inode_hold(m, one, false);
    cl_inode_hold(m, one, true);
    cl_inode_hold(m, two, false);
    assert_int_equal(cl_inode_held_count(m), 3);
    assert_int_equal(cl_inode_held_list(m, &held, nothing, NULL), 0);
    assert_int_equal(held.n, 3);
    for (size_t i = 0; i < held.n; i++)
        sevens += held.ino[i] == 7;
    assert_int_equal(sevens, 2);
    assert_true(held.nwrite == 1 && held.write_ino[0] == 7);
    free(held.ino);
    free(held.write_ino);
    cl_inode_unhold(m, one, false, nothing, NULL);
    cl_inode_unhold(m, one, true, nothing, NULL);
    cl_inode_unhold(m, two, false, nothing, NULL);
    assert_int_equal(cl_inode_held_list(m, &held, nothing, NULL), 0);
    assert_true(!held.ino && !held.write_ino && held.n == 0 && held.nwrite == 0);
    cl_inode_put(m, one);
    cl_inode_put(m, two);
}

static void test_inode_gone_leaves_with_its_last_handle(void **state)
{
    struct cl_mount *m = *state;
    Fp__Attr a = attr(7);
    struct cl_inode *inode = cl_inode_intern(m, &a);
    inode->file = (struct cl_file *)&file_mark;
    cl_inode_mark_gone(m, 7);
    cl_inode_mark_gone(m, 8);
    assert_true(cl_inode_is_gone(inode));
    cl_inode_put(m, inode);
    assert_int_equal(forgotten, 1);
    assert_null(cl_inode_get(m, 7));
}

static void left_are(struct cl_mount *m, ssize_t n, const struct cl_open *last)
{
    struct cl_open **left;
    assert_int_equal(cl_open_left(m, &left), n);
    assert_ptr_equal(n ? left[n - 1] : NULL, last);
    free(left);
}

static void test_open_files_that_were_closed_and_not_released(void **state)
{
    struct cl_mount *m = *state;
    struct cl_open file = {.closed = true}, open = {.closed = false}, another = {.closed = true};
    left_are(m, 0, NULL);
    cl_open_add(m, &file);
    cl_open_add(m, &open); /* or a directory, or one that was released and of which something is still to be published */
    left_are(m, 1, &file);
    cl_open_add(m, &another);
    left_are(m, 2, &file);
    cl_open_remove(m, &file);
    left_are(m, 1, &another);
    cl_open_remove(m, &another);
    left_are(m, 0, NULL);
    cl_open_remove(m, &open);
}

static void test_inode_fetch_asks_the_manager_once(void **state)
{
    struct cl_mount *m = *state;
    struct cl_inode *inode, *again;
    assert_int_equal(cl_inode_fetch(m, 5, &inode), 0);
    assert_int_equal(cl_inode_fetch(m, 5, &again), 0);
    assert_ptr_equal(inode, again);
    cl_inode_put(m, inode);
    cl_inode_put(m, inode);
    assert_int_equal(cl_inode_fetch(m, 100, &inode), -ENOENT);
}

static void test_inode_older_news_do_not_shrink_a_file(void **state)
{
    struct cl_mount *m = *state;
    Fp__Attr a = attr(7);
    a.data_version = 5;
    a.size_bytes = 1000;
    a.mtime_ns = 50;
    struct cl_inode *inode = cl_inode_intern(m, &a);
    a.data_version = 4;
    a.size_bytes = 10;
    a.mtime_ns = 40;
    a.mode = S_IFREG | 0600;
    cl_inode_attr_update(inode, &a);
    assert_int_equal(inode->attr.size_bytes, 1000);
    assert_int_equal(inode->attr.mtime_ns, 50);
    assert_int_equal(inode->attr.data_version, 5);
    assert_int_equal(inode->attr.mode, S_IFREG | 0600);
    cl_inode_put(m, inode);
}

static void test_inode_stat_rounds_times_down(void **state)
{
    struct cl_mount *m = *state;
    Fp__Attr a = attr(7);
    struct stat st;
    a.mtime_ns = -1;
    a.size_bytes = 12;
    a.ctime_ns = 3000000007;
    cl_attr_stat(m, &a, &st);
    assert_int_equal(st.st_mtim.tv_sec, -1);
    assert_int_equal(st.st_mtim.tv_nsec, 999999999);
    assert_int_equal(st.st_ctim.tv_sec, 3);
    assert_int_equal(st.st_ctim.tv_nsec, 7);
    assert_int_equal(st.st_size, 12);
    assert_int_equal(st.st_blksize, CL_BLKSIZE_BYTES);
}

static void test_inode_stat_shows_what_is_not_published(void **state)
{
    struct cl_mount *m = *state;
    Fp__Attr a = attr(7);
    struct stat st;
    struct cl_inode *inode = cl_inode_intern(m, &a);
    inode->file = (struct cl_file *)&file_mark;
    cl_attr_stat(m, &a, &st);
    assert_int_equal(st.st_size, 4711);
    inode->file = NULL;
    cl_inode_put(m, inode);
}

static void *churn(void *arg)
{
    struct cl_mount *m = arg;
    for (unsigned i = 0; i < 20000; i++) {
        Fp__Attr a = attr(1 + i % 13);
        struct cl_inode *inode = cl_inode_intern(m, &a);
        cl_inode_hold(m, inode, true);
        cl_inode_unhold(m, inode, true, nothing, NULL);
        cl_inode_put(m, inode);
        cl_inode_forget(m, 1 + (i + 5) % 13);
    }
    return NULL;
}

static void test_inode_table_is_thread_safe(void **state)
{
    struct cl_mount *m = *state;
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, churn, m), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (uint64_t ino = 1; ino <= 13; ino++)
        assert_null(cl_inode_get(m, ino));
    assert_int_equal(cl_inode_held_count(m), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_inode_lives_while_referenced),
        T(test_inode_closed_with_data_stays_until_forgotten),
        T(test_inode_closed_ones_are_bounded),
        T(test_inode_table_grows),
        T(test_inode_lists_for_hello_are_whole_or_none),
        T(test_inode_held_ones_are_listed_as_often_as_held),
        T(test_inode_gone_leaves_with_its_last_handle),
        T(test_open_files_that_were_closed_and_not_released),
        T(test_inode_fetch_asks_the_manager_once),
        T(test_inode_older_news_do_not_shrink_a_file),
        T(test_inode_stat_rounds_times_down),
        T(test_inode_stat_shows_what_is_not_published),
        T(test_inode_table_is_thread_safe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
