/* --close behind (client/data/behind.c): close waits for nothing, a recall is answered when all that was closed is published, and errors that come after close. */
#include "tests/unit/cl_fixture.h"

#include <errno.h>

#include "client/data/internal.h"
#include "tests/unit/cl_fake_aux.h"

#define WINDOW     (64u << 10)
#define LEN        (3u * WINDOW + 1000)
#define TIMEOUT_MS 1500u
#define CUT        5000u

bool __wrap_cl_core_connected(struct cl_mount *m);

static struct fx_mount mnt;
static uint8_t bytes[LEN], got[LEN + 1];
static atomic_uint ended;
static bool connected;

bool __wrap_cl_core_connected(struct cl_mount *m)
{
    (void)m;
    return connected;
}

static int begin(bool local)
{
    fx_begin(&mnt, local, TIMEOUT_MS);
    mnt.m.opt.close_mode = CL_CLOSE_BEHIND;
    fx_fill(bytes, sizeof bytes, 5);
    world_recalled = 0;
    ended = 0;
    connected = true;
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return begin(true);
}

/* Its benefactor is another node's, and can be had to answer late: until then nothing is stored, and nothing has failed. */
static int setup_remote(void **state)
{
    (void)state;
    return begin(false);
}

static int teardown(void **state)
{
    (void)state;
    fx_over(&mnt);
    return 0;
}

static void on_end(struct cl_mount *m, struct cl_handle *h)
{
    fx_closed(m, h);
    atomic_fetch_add(&ended, 1);
}

/* Within 20 s. */
#define WAIT_UNTIL(is)                                             \
    do {                                                           \
        uint64_t until_ms = fp_now_ms() + 20000;                   \
        while (!(is) && fp_now_ms() < until_ms)                    \
            usleep(1000);                                          \
        assert_true(is);                                           \
    } while (0)

static void wait_for(atomic_uint *n, unsigned want)
{
    WAIT_UNTIL(*n == want);
}

static void wait_recalled(unsigned long serial)
{
    WAIT_UNTIL(world_recalled == serial);
}

static void wait_none(void)
{
    WAIT_UNTIL(!cl_data_any_behind(&mnt.m));
}

static uint64_t version_of(uint64_t ino)
{
    Fp__Attr a;

    world_attr(ino, &a);
    return a.data_version;
}

static void wait_for_no_item(void)
{
    WAIT_UNTIL(!cl_behind_any(mnt.m.data));
}

/* An open file with something written, of which this mount has the lease. */
static uint64_t written(struct cl_handle *h)
{
    uint64_t ino = world_file_new(WINDOW, 1);

    fx_open(&mnt, h, ino);
    cl_data_lease(h->inode, true, version_of(ino));
    assert_int_equal(fx_write(&mnt, h, bytes, LEN, 0), LEN);
    return ino;
}

/* The same, of which nothing is stored while answers are held (setup_remote). */
static uint64_t written_held(struct cl_handle *h)
{
    uint64_t ino = world_file_new(WINDOW, 1);

    fx_open(&mnt, h, ino);
    assert_int_equal(fx_write(&mnt, h, bytes, 1, 0), 1);
    assert_int_equal(cl_data_flush(&mnt.m, h->inode), 0); /* space is leased */
    cl_data_lease(h->inode, true, version_of(ino));
    world_bnf(1)->hold_answers = true;
    assert_int_equal(fx_write(&mnt, h, bytes, LEN, 0), LEN);
    return ino;
}

static void close_(struct cl_handle *h, bool behind)
{
    int rc = -1;

    assert_int_equal(cl_data_close_behind(&mnt.m, h, &rc), behind);
    assert_int_equal(rc, behind ? 0 : -1);
}

static void view_is(uint64_t ino, uint64_t len)
{
    assert_int_equal(world_view(ino, got, sizeof got), len);
    assert_memory_equal(got, bytes, len);
}

/* The manager does not answer: nothing can be published, and close does not care. */
static void test_behind_close_waits_for_nothing(void **state)
{
    struct cl_handle h;
    uint64_t ino;

    (void)state;
    ino = written(&h);
    world_faults.mgr_lost_before = 100000;
    close_(&h, true);
    assert_int_equal(world_view(ino, got, sizeof got), 0);
    assert_true(h.inode->behind);
    cl_data_release(&mnt.m, &h, on_end);
    usleep(100000);
    assert_int_equal(ended, 0);
    world_faults.mgr_lost_before = 0;
    world_mgr_back();
    wait_for(&ended, 1);
    view_is(ino, LEN);
}

static void store_fails(struct cl_inode *inode)
{
    pthread_mutex_lock(&inode->lock);
    cl_file_set_error(inode->file, -EIO, 0, "as if data could not be stored");
    pthread_mutex_unlock(&inode->lock);
}

/* Errors are told by it. */
static int open_again(uint64_t ino)
{
    struct cl_handle h;
    Fp__Attr a;
    int rc;

    world_attr(ino, &a);
    memset(&h, 0, sizeof h);
    h.inode = cl_inode_intern(&mnt.m, &a);
    rc = fp_err_to_errno(cl_data_open(&mnt.m, &h, &a));
    if (rc == 0)
        assert_int_equal(cl_release_step(mnt.m.data, &h, false), CL_RELEASE_DONE);
    cl_inode_put(&mnt.m, h.inode);
    return rc;
}

static void check_closed(unsigned n, uint64_t size, int64_t mtime_ns)
{
    assert_int_equal(world_closed, n);
    assert_int_equal(world_closed_size, size);
    assert_int_equal(world_closed_mtime, mtime_ns);
}

/* Who asks for its size elsewhere is told it; again, if the manager was started again; and that it is nothing, if it was lost. */
static void test_behind_tells_its_size(void **state)
{
    struct cl_handle h;
    int64_t mtime_ns;

    (void)state;
    (void)written(&h);
    world_closed = 0;
    mtime_ns = h.inode->file->mtime_ns;
    world_bnf(1)->store_err = -EIO;
    close_(&h, true);
    check_closed(1, LEN, mtime_ns);
    usleep(200000);
    check_closed(1, LEN, mtime_ns); /* once */
    cl_data_manager_back(&mnt.m);
    wait_for(&world_closed, 2);
    check_closed(2, LEN, mtime_ns);
    world_bnf(1)->store_err = 0;
    wait_for_no_item();
    check_closed(3, 0, 0); /* it was told again, perhaps after its commit */
    assert_int_equal(h.inode->closes_published, 1); /* as its commit says */
    assert_int_equal(fx_write(&mnt, &h, bytes, WINDOW, LEN), WINDOW);
    world_bnf(1)->store_err = -EIO;
    close_(&h, true);
    assert_int_equal(world_closed_size, LEN + WINDOW);
    store_fails(h.inode);
    world_bnf(1)->store_err = 0;
    wait_for(&world_closed, 5);
    check_closed(5, 0, 0);
    assert_true(world_closed_lost);
    cl_data_release(&mnt.m, &h, on_end);
    wait_for(&ended, 1);
}

/* The release of who closed last would say it; but another program has it open still. */
static void test_behind_tells_when_nothing_is_left(void **state)
{
    struct cl_handle h;
    uint64_t ino = written(&h);

    (void)state;
    world_closed = 0;
    pthread_mutex_lock(&h.inode->lock);
    h.inode->unclosed++;
    pthread_mutex_unlock(&h.inode->lock);
    close_(&h, true);
    wait_for(&world_closed, 2);
    check_closed(2, 0, 0);
    assert_false(world_closed_lost);
    view_is(ino, LEN);
    pthread_mutex_lock(&h.inode->lock);
    h.inode->unclosed--;
    pthread_mutex_unlock(&h.inode->lock);
    cl_data_release(&mnt.m, &h, on_end);
    wait_for(&ended, 1);
}

/* It is answered when that is there, not before; from then on close waits. */
static void test_behind_recall_publishes(void **state)
{
    struct cl_handle h;
    uint64_t ino;

    (void)state;
    ino = written(&h);
    world_faults.mgr_lost_before = 100000;
    close_(&h, true);
    cl_data_recalled(&mnt.m, ino, 9);
    usleep(200000);
    assert_int_equal(world_recalled, 0);
    world_faults.mgr_lost_before = 0;
    world_mgr_back();
    wait_recalled(9);
    view_is(ino, LEN);
    assert_false(h.inode->behind);
    close_(&h, false);
    cl_data_release(&mnt.m, &h, on_end);
    wait_for(&ended, 1);
}

/* It takes its time, and whoever waits hears of it: the file can't be published, but others of the mount are stored. */
static void test_behind_says_that_it_goes_forward(void **state)
{
    uint64_t until_ms = fp_now_ms() + 20000;
    struct cl_handle h, other;
    uint64_t ino;

    (void)state;
    ino = written(&h);
    world_faults.mgr_lost_before = 100000;
    close_(&h, true);
    cl_data_recalled(&mnt.m, ino, 9);
    world_forward = 0;
    fx_open(&mnt, &other, world_file_new(WINDOW, 1));
    for (uint64_t off = 0; world_forward < 3 && fp_now_ms() < until_ms; off += WINDOW) {
        assert_int_equal(fx_write(&mnt, &other, bytes, WINDOW, off % (64 * WINDOW)), WINDOW);
        usleep(100000);
    }
    assert_true(world_forward >= 3);
    usleep(1500000);
    world_forward = 0;
    usleep(1500000);
    assert_int_equal(world_forward, 0); /* nothing does */
    world_faults.mgr_lost_before = 0;
    world_mgr_back();
    wait_recalled(9);
    cl_data_release(&mnt.m, &h, on_end);
    cl_data_release(&mnt.m, &other, on_end);
    wait_for(&ended, 2);
}

static void test_behind_looks_less_often_while_nothing_moves(void **state)
{
    uint32_t ms = 0, sum = 0;

    (void)state;
    for (int i = 0; i < 20; i++) {
        ms = cl_late_next_ms(ms, false);
        sum += ms;
        assert_true(ms >= 1 && ms <= 50);
    }
    assert_true(sum > 600);
    assert_int_equal(cl_late_next_ms(ms, true), 1);
}

/* What is open and was not closed stays as it is: its last good version is the published one. */
static void test_behind_recall_of_what_was_not_closed(void **state)
{
    struct cl_handle h;
    uint64_t ino;

    (void)state;
    ino = written(&h);
    cl_data_recalled(&mnt.m, ino, 3);
    wait_recalled(3);
    assert_int_equal(world_view(ino, got, sizeof got), 0);
    cl_data_recalled(&mnt.m, ino + 1000, 4); /* of a file that is not known here */
    wait_recalled(4);
    cl_data_release(&mnt.m, &h, on_end);
    wait_for(&ended, 1);
    view_is(ino, LEN);
}

static void test_behind_needs_a_lease_and_a_connection(void **state)
{
    struct cl_handle h;

    (void)state;
    (void)written(&h);
    connected = false;
    close_(&h, false);
    connected = true;
    cl_data_lease(h.inode, false, 0);
    close_(&h, false);
    cl_data_release(&mnt.m, &h, on_end);
    wait_for(&ended, 1);
}

/* A second close while the first is being published: the answer comes after both. */
static void test_behind_closed_again_meanwhile(void **state)
{
    struct cl_handle h;
    uint64_t ino;

    (void)state;
    ino = written(&h);
    world_faults.mgr_delay_us = 20000;
    for (int i = 0; i < 20; i++) {
        fx_fill(bytes, sizeof bytes, (uint64_t)(i + 6));
        assert_int_equal(fx_write(&mnt, &h, bytes, LEN, 0), LEN);
        close_(&h, true);
        if (i % 3 == 2) {
            cl_data_recalled(&mnt.m, ino, (uint64_t)(i + 1));
            wait_recalled((unsigned long)(i + 1));
            view_is(ino, LEN);
            cl_data_lease(h.inode, true, version_of(ino));
        }
    }
    cl_data_release(&mnt.m, &h, on_end);
    wait_for(&ended, 1);
    view_is(ino, LEN);
}

/* A program that has begun to rewrite the file and dies leaves what it had closed: what it wrote since is not told with it. */
static void test_behind_what_was_written_after_the_close_stays_here(void **state)
{
    static uint8_t next[2 * WINDOW];
    uint64_t dirty, uncommitted;
    struct cl_handle h;
    uint64_t ino;

    (void)state;
    fx_fill(next, sizeof next, 9);
    ino = written_held(&h);
    close_(&h, true);
    assert_int_equal(fx_write(&mnt, &h, next, sizeof next, 0), sizeof next); /* whole windows: they are stored at once, too */
    world_bnf(1)->hold_answers = false;
    wait_for_no_item();
    view_is(ino, LEN);
    close_(&h, true);
    wait_for_no_item();
    memcpy(bytes, next, sizeof next);
    view_is(ino, LEN);
    cl_data_at_risk(h.inode, &dirty, &uncommitted);
    assert_int_equal(dirty + uncommitted, 0);
    cl_data_release(&mnt.m, &h, on_end);
    wait_for(&ended, 1);
}

/* Nor by who gives it, or a directory above it, another name. */
static void test_behind_a_name_leaves_what_was_written_after_the_close(void **state)
{
    static uint8_t next[2 * WINDOW];
    struct cl_handle h;
    uint64_t ino;

    (void)state;
    fx_fill(next, sizeof next, 9);
    ino = written_held(&h);
    for (int all = 0; all < 2; all++) {
        close_(&h, true);
        assert_int_equal(fx_write(&mnt, &h, next, sizeof next, 0), sizeof next);
        world_bnf(1)->hold_answers = false;
        assert_int_equal(all ? cl_data_publish_all_closed(&mnt.m) : cl_data_publish_closed(&mnt.m, ino), 0);
        view_is(ino, LEN);
        wait_for_no_item();
        view_is(ino, LEN);
        memcpy(bytes, next, sizeof next);
        fx_fill(next, sizeof next, 10);
        world_bnf(1)->hold_answers = true;
    }
    world_bnf(1)->hold_answers = false;
    cl_data_release(&mnt.m, &h, on_end);
    wait_for(&ended, 1);
}

/* What the manager does not take is no reason to wait for as long as other files of the mount are stored: that may be for ever. */
static void test_behind_what_fails_does_not_go_forward(void **state)
{
    uint64_t until_ms = fp_now_ms() + 20000;
    struct cl_handle h, other;
    uint64_t ino;
    unsigned long told = 0;

    (void)state;
    ino = written(&h);
    world_faults.mgr_commit_err = -ENOSPC;
    close_(&h, true);
    cl_data_recalled(&mnt.m, ino, 9);
    fx_open(&mnt, &other, world_file_new(WINDOW, 1));
    for (uint64_t off = 0, i = 0; i < 60 && fp_now_ms() < until_ms; off += WINDOW, i++) {
        assert_int_equal(fx_write(&mnt, &other, bytes, WINDOW, off % (64 * WINDOW)), WINDOW);
        usleep(50000);
        told = i == 30 ? world_forward : told;
    }
    assert_int_equal(world_forward, told);
    assert_int_equal(world_recalled, 0);
    world_faults.mgr_commit_err = 0;
    wait_recalled(9);
    cl_data_release(&mnt.m, &h, on_end);
    cl_data_release(&mnt.m, &other, on_end);
    wait_for(&ended, 2);
}

struct naming {
    uint64_t ino;
    atomic_uint done;
    int rc;
};

static void *name_it(void *arg)
{
    struct naming *n = arg;

    n->rc = n->ino ? cl_data_publish_closed(&mnt.m, n->ino) : cl_data_publish_all_closed(&mnt.m);
    atomic_store(&n->done, 1);
    return NULL;
}

/* What was closed of a file is published before it gets another name; of all files, before a directory does. */
static void test_behind_a_name_comes_after_what_was_closed(void **state)
{
    struct cl_handle h;
    pthread_t t;

    (void)state;
    for (int all = 0; all < 2; all++) {
        struct naming n = {0};
        uint64_t ino;

        assert_false(cl_data_any_behind(&mnt.m));
        ino = written(&h);
        world_bnf(1)->store_err = -EIO;
        assert_int_equal(cl_data_publish_closed(&mnt.m, ino), 0); /* it is open, and what was not closed is not waited for */
        assert_int_equal(world_view(ino, got, sizeof got), 0);
        close_(&h, true);
        assert_true(cl_data_any_behind(&mnt.m));
        n.ino = all ? 0 : ino;
        assert_int_equal(pthread_create(&t, NULL, name_it, &n), 0);
        usleep(200000);
        assert_int_equal(n.done, 0);
        world_bnf(1)->store_err = 0;
        pthread_join(t, NULL);
        assert_int_equal(n.rc, 0);
        view_is(ino, LEN);
        cl_data_release(&mnt.m, &h, on_end);
        wait_for(&ended, (unsigned)all + 1);
        wait_none();
    }
}

static void cut_elsewhere(uint64_t ino, uint64_t size)
{
    Fp__SetAttr m = FP__SET_ATTR__INIT;
    ProtobufCMessage *reply = NULL;

    m.ino = ino;
    m.valid = FP__SET_ATTR_VALID__SET_SIZE;
    m.size_bytes = size;
    assert_int_equal(world_mgr_call(99, FP__MSG_TYPE__MSG_SETATTR, &m.base, &reply), 0);
    protobuf_c_message_free_unpacked(reply, NULL);
}

/* The session expires with something behind; its file is published with the content 5 before. */
static uint64_t cut_off(struct cl_handle *h)
{
    uint64_t ino;

    world_faults.mgr_lease_time = mnt.m.lease_time = 7;
    ino = written(h);
    close_(h, true);
    wait_none(); /* published: the base moves with it */
    view_is(ino, LEN);
    fx_fill(bytes, CUT, 6);
    assert_int_equal(fx_write(&mnt, h, bytes, CUT, 0), CUT); /* part of a window: not sealed before the close */
    world_bnf(1)->store_err = -EIO;
    close_(h, true);
    cl_data_release(&mnt.m, h, on_end);
    world_faults.mgr_lease_time = 8;
    return ino;
}

static void back(void)
{
    cl_data_leases_lost(&mnt.m);
    mnt.m.lease_time = 8;
    world_bnf(1)->store_err = 0;
}

/* Others have changed the file: what had been closed before it must not go over that. */
static void test_behind_does_not_go_over_what_others_wrote_meanwhile(void **state)
{
    struct cl_handle h;
    uint64_t ino;

    (void)state;
    ino = cut_off(&h);
    cut_elsewhere(ino, 1000);
    back();
    wait_for(&ended, 1);
    wait_for_no_item();
    fx_fill(bytes, sizeof bytes, 5);
    view_is(ino, 1000);
    assert_true(cl_data_has_lost(&mnt.m));
    assert_int_equal(fp_err_to_errno(cl_data_publish_closed(&mnt.m, ino)), EIO); /* no rename before it was told */
    assert_int_equal(open_again(ino), EIO);
    assert_int_equal(open_again(ino), 0);
    assert_int_equal(cl_data_publish_closed(&mnt.m, ino), 0);
}

/* An error of a file that is not there any more is nobody's: renames need not look for it. */
static void test_behind_error_ends_with_the_file(void **state)
{
    struct cl_handle h;
    uint64_t ino;

    (void)state;
    ino = cut_off(&h);
    cut_elsewhere(ino, 1000);
    back();
    wait_for(&ended, 1);
    wait_for_no_item();
    assert_true(cl_data_any_behind(&mnt.m));
    cl_data_unlinked(&mnt.m, ino + 1);
    assert_true(cl_data_any_behind(&mnt.m));
    cl_data_unlinked(&mnt.m, ino);
    assert_false(cl_data_any_behind(&mnt.m));
}

/* Who opens the file again says so to the manager: its own data is no reason to take that of others for older (test_mgr_lease.c). */
static void test_behind_says_what_it_is_based_on(void **state)
{
    struct cl_handle h;
    uint64_t ino;

    (void)state;
    ino = written(&h);
    assert_int_equal(cl_data_behind_base(&mnt.m, ino), 0);
    world_bnf(1)->store_err = -EIO;
    close_(&h, true);
    assert_int_equal(cl_data_behind_base(&mnt.m, ino), version_of(ino));
    assert_int_equal(cl_data_behind_base(&mnt.m, ino + 1), 0);
    world_bnf(1)->store_err = 0;
    wait_for_no_item();
    assert_int_equal(cl_data_behind_base(&mnt.m, ino), 0);
    cl_data_release(&mnt.m, &h, on_end);
    wait_for(&ended, 1);
}

/* Nobody did: nothing is lost. */
static void test_behind_is_published_after_the_lease_was_lost(void **state)
{
    struct cl_handle h;
    uint64_t ino;

    (void)state;
    ino = cut_off(&h);
    back();
    wait_for(&ended, 1);
    wait_none();
    view_is(ino, LEN);
    assert_int_equal(open_again(ino), 0);
}

/* What had been closed is published; what is written to the same open file from then on is like what any mount writes, whoever else writes to the file. */
static void test_behind_what_is_written_after_that_is_not_refused(void **state)
{
    struct cl_handle h;
    uint64_t ino;

    (void)state;
    world_faults.mgr_lease_time = mnt.m.lease_time = 7;
    ino = written(&h);
    world_bnf(1)->store_err = -EIO;
    close_(&h, true);
    world_faults.mgr_lease_time = 8;
    back();
    wait_for_no_item();
    view_is(ino, LEN);
    cut_elsewhere(ino, LEN); /* another version */
    assert_int_equal(fx_write(&mnt, &h, bytes, CUT, 0), CUT);
    assert_int_equal(cl_data_fsync(&mnt.m, h.inode), 0);
    view_is(ino, LEN);
    cl_data_release(&mnt.m, &h, on_end);
    wait_for(&ended, 1);
}

static void close_says(struct cl_handle *h, int want)
{
    int rc = 1;

    assert_true(cl_data_close_behind(&mnt.m, h, &rc));
    assert_int_equal(rc, want);
}

/* The child of a program that writes closes what it has inherited by executing another program: nobody sees what that says. */
static void test_behind_close_of_an_inherited_descriptor_leaves_the_error_to_fsync(void **state)
{
    struct cl_handle h, second;
    uint64_t ino;

    (void)state;
    ino = written(&h);
    store_fails(h.inode);
    close_says(&h, -EIO);
    close_says(&h, -EIO);
    assert_int_equal(cl_data_fsync(&mnt.m, h.inode), -EIO);
    assert_int_equal(cl_data_fsync(&mnt.m, h.inode), 0);
    close_says(&h, 0);
    store_fails(h.inode); /* after the last close: the next open is told */
    fx_open(&mnt, &second, ino);
    cl_data_release(&mnt.m, &h, on_end);
    assert_int_equal(cl_data_fsync(&mnt.m, second.inode), -EIO);
    store_fails(second.inode);
    close_says(&second, -EIO);
    cl_data_release(&mnt.m, &second, on_end); /* that close was the last one, and has told it */
    wait_for(&ended, 2);
    wait_none();
    assert_int_equal(open_again(ino), 0);
}

/* For longer than --io-timeout: nobody can be told by a close that is over, so it is not given up. Who has the file recalled waits. */
static void test_behind_what_was_closed_is_not_given_up(void **state)
{
    uint64_t dirty, uncommitted;
    struct cl_handle h;
    uint64_t ino;

    (void)state;
    ino = written(&h);
    world_bnf(1)->store_err = -EIO;
    close_(&h, true);
    cl_data_release(&mnt.m, &h, on_end);
    cl_data_recalled(&mnt.m, ino, 3);
    usleep(3 * TIMEOUT_MS * 1000);
    assert_int_equal(ended, 0);
    assert_int_equal(world_recalled, 0);
    assert_false(cl_data_has_lost(&mnt.m));
    cl_data_at_risk(h.inode, &dirty, &uncommitted);
    assert_true(dirty > 0);
    world_bnf(1)->store_err = 0;
    wait_for(&ended, 1);
    wait_recalled(3);
    view_is(ino, LEN);
    assert_int_equal(open_again(ino), 0);
}

/* What the aux-apps can't have, for want of memory or since one fails, is not given up either: it goes to them until they take it. */
static void test_behind_what_aux_apps_did_not_take_is_not_given_up(void **state)
{
    struct cl_handle h;
    uint64_t ino;

    (void)state;
    fake_aux_start(3);
    fake_aux.on = fake_aux.codes = fake_aux.always = true;
    ino = written(&h);
    fake_aux.status = -ENOMEM;
    close_(&h, true);
    usleep(500 * 1000);
    assert_int_equal(world_view(ino, got, sizeof got), 0);
    assert_false(cl_data_has_lost(&mnt.m));
    fake_aux.status = 0;
    wait_for_no_item();
    view_is(ino, LEN);
    assert_true(fake_aux.coded > 0);
    cl_data_release(&mnt.m, &h, on_end);
    wait_for(&ended, 1);
    fake_aux_stop();
}

/* All that is left is full: to be tried again is not to be tried without a pause. */
static void test_behind_what_has_no_space_does_not_take_the_processor(void **state)
{
    struct world_bnf *b = world_bnf(1);
    struct cl_handle h;
    uint64_t ino;
    uint64_t errors;

    (void)state;
    ino = written_held(&h);
    close_(&h, true);
    b->lease_err = -ENOSPC;
    world_bnf_break(b); /* what was leased is not any more */
    b->hold_answers = false;
    usleep(200 * 1000);
    errors = mnt.m.data->errors;
    usleep(1000 * 1000);
    assert_in_range(mnt.m.data->errors - errors, 0, 200);
    b->lease_err = 0;
    wait_none();
    view_is(ino, LEN);
    cl_data_release(&mnt.m, &h, on_end);
    wait_for(&ended, 1);
}

/* Once its last name is gone nobody wants it. */
static void test_behind_what_was_unlinked_is_given_up(void **state)
{
    struct cl_handle h;
    uint64_t ino;

    (void)state;
    ino = written(&h);
    world_bnf(1)->store_err = -EIO;
    close_(&h, true);
    cl_data_release(&mnt.m, &h, on_end);
    usleep(TIMEOUT_MS * 1000 / 2);
    world_unlink(ino);
    pthread_mutex_lock(&h.inode->lock);
    h.inode->attr.nlink = 0;
    pthread_mutex_unlock(&h.inode->lock);
    wait_for(&ended, 1);
    wait_none();
}

int main(void)
{
#define R(name) cmocka_unit_test_setup_teardown(name, setup_remote, teardown)
    const struct CMUnitTest tests[] = {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        T(test_behind_close_waits_for_nothing),
        T(test_behind_tells_its_size),
        T(test_behind_tells_when_nothing_is_left),
        T(test_behind_recall_publishes),
        T(test_behind_says_that_it_goes_forward),
        T(test_behind_what_fails_does_not_go_forward),
        cmocka_unit_test(test_behind_looks_less_often_while_nothing_moves),
        T(test_behind_recall_of_what_was_not_closed),
        T(test_behind_needs_a_lease_and_a_connection),
        T(test_behind_closed_again_meanwhile),
        R(test_behind_what_was_written_after_the_close_stays_here),
        R(test_behind_a_name_leaves_what_was_written_after_the_close),
        T(test_behind_a_name_comes_after_what_was_closed),
        T(test_behind_does_not_go_over_what_others_wrote_meanwhile),
        T(test_behind_error_ends_with_the_file),
        T(test_behind_says_what_it_is_based_on),
        T(test_behind_is_published_after_the_lease_was_lost),
        T(test_behind_what_is_written_after_that_is_not_refused),
        T(test_behind_close_of_an_inherited_descriptor_leaves_the_error_to_fsync),
        T(test_behind_what_was_closed_is_not_given_up),
        T(test_behind_what_aux_apps_did_not_take_is_not_given_up),
        R(test_behind_what_has_no_space_does_not_take_the_processor),
        T(test_behind_what_was_unlinked_is_given_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
