/*
 * The kernel is told things by threads that know nothing of the FUSE session's beginning and end (client/notify.c). libfuse's part of it, and the session, which is
 * freed memory after its end, are this program's.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/notify.h"

#define SESSIONS 200u
#define TELLERS  3u
#define PAGES    77u /* the inode of which a program reads pages */

struct fuse_session {
    unsigned told; /* for the sanitizers: read by all, written at both ends */
};

static atomic_uint names_told, inodes_told;
static atomic_bool end, pages_wait, pages_go;

int __wrap_fuse_lowlevel_notify_increment_epoch(struct fuse_session *se);
int __wrap_fuse_lowlevel_notify_increment_epoch(struct fuse_session *se)
{
    assert_int_equal(se->told, 1);
    atomic_fetch_add(&names_told, 1);
    return 0;
}

int __wrap_fuse_lowlevel_notify_inval_inode(struct fuse_session *se, uint64_t ino, off_t off, off_t len);
int __wrap_fuse_lowlevel_notify_inval_inode(struct fuse_session *se, uint64_t ino, off_t off, off_t len)
{
    assert_int_equal(se->told, 1);
    assert_int_equal(len, 0);
    atomic_fetch_add(&inodes_told, 1);
    if (ino != PAGES)
        return off < 0 ? 0 : -ENOENT;
    atomic_store(&pages_wait, true);
    while (!atomic_load(&pages_go))
        usleep(100);
    return 0;
}

static struct fuse_session *session_new(void)
{
    struct fuse_session *se = malloc(sizeof *se);
    assert_non_null(se);
    se->told = 1;
    return se;
}

static void session_free(struct fuse_session *se)
{
    cl_notify_stop();
    se->told = 0;
    free(se);
}

static void *teller(void *arg)
{
    (void)arg;
    while (!atomic_load(&end)) {
        (void)cl_notify_names();
        (void)cl_notify_inode(1, -1, 0);
    }
    return NULL;
}

static void test_nothing_is_told_before_the_session_and_after_it(void **state)
{
    (void)state;
    assert_int_equal(cl_notify_inode(5, -1, 0), -ENOTCONN);
    assert_int_equal(cl_notify_names(), -ENOTCONN);
    cl_notify_stop(); /* as where the mount was never there */
    struct fuse_session *se = session_new();
    cl_notify_start(se);
    assert_int_equal(cl_notify_inode(5, -1, 0), 0);
    assert_int_equal(cl_notify_inode(5, 0, 0), -ENOENT);
    assert_int_equal(atomic_load(&inodes_told), 2);
    session_free(se);
    assert_int_equal(cl_notify_inode(5, -1, 0), -ENOTCONN);
    assert_int_equal(cl_notify_names(), -ENOTCONN);
    assert_int_equal(atomic_load(&inodes_told), 2);
}

static void test_a_session_that_ends_is_not_used_any_more(void **state)
{
    (void)state;
    pthread_t t[TELLERS];
    for (unsigned i = 0; i < TELLERS; i++)
        assert_int_equal(pthread_create(&t[i], NULL, teller, NULL), 0);
    for (unsigned n = 0; n < SESSIONS; n++) {
        struct fuse_session *se = session_new();
        unsigned before = atomic_load(&inodes_told);
        cl_notify_start(se);
        while (atomic_load(&inodes_told) == before)
            sched_yield();
        session_free(se);
    }
    atomic_store(&end, true);
    for (unsigned i = 0; i < TELLERS; i++)
        pthread_join(t[i], NULL);
}

static void *drop_pages(void *arg)
{
    (void)arg;
    (void)cl_notify_inode(PAGES, 0, 0);
    return NULL;
}

static void *stop_main(void *arg)
{
    session_free(arg);
    atomic_store(&end, true);
    return NULL;
}

static void test_who_waits_for_pages_holds_up_nobody_but_the_end(void **state)
{
    (void)state;
    pthread_t pages, stop;
    struct fuse_session *se = session_new();
    atomic_store(&end, false);
    cl_notify_start(se);
    assert_int_equal(pthread_create(&pages, NULL, drop_pages, NULL), 0);
    while (!atomic_load(&pages_wait))
        usleep(100);
    assert_int_equal(cl_notify_inode(1, -1, 0), 0);
    assert_int_equal(pthread_create(&stop, NULL, stop_main, se), 0);
    usleep(50000); /* it waits by now, or the next lines try less */
    assert_int_equal(cl_notify_inode(1, -1, 0), 0);
    assert_int_equal(cl_notify_names(), atomic_load(&names_told) ? 0 : -ENOSYS);
    assert_false(atomic_load(&end));
    atomic_store(&pages_go, true);
    pthread_join(pages, NULL);
    pthread_join(stop, NULL);
    assert_true(atomic_load(&end));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_told_before_the_session_and_after_it),
        cmocka_unit_test(test_a_session_that_ends_is_not_used_any_more),
        cmocka_unit_test(test_who_waits_for_pages_holds_up_nobody_but_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
