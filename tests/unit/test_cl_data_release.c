/* Last handles of files: one that nobody got (client/ops/open.c), and those of files without a name; over the models of cl_world.h. */
#include "tests/unit/cl_fixture.h"

#include <fcntl.h>

#include "client/ops/ops.h"
#include "client/walk.h"

#define LEN 300000u

void __wrap_cl_mgr_call_intr(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, bool (*interrupted)(void *arg), cl_mgr_cb cb,
                             void *arg);
void __wrap_cl_mgr_release(struct cl_mount *m, struct cl_inode *inode, bool write, bool torn);
void *__wrap_fuse_req_userdata(fuse_req_t req);
int __wrap_fuse_reply_open(fuse_req_t req, const struct fuse_file_info *fi);

static struct fx_mount mnt;
static struct cl_handle first;
static cl_mgr_cb answer;
static void *answer_arg;
static Fp__Attr attr;
static atomic_int released;
static bool keep_opened;
static struct cl_handle *opened;

void __wrap_cl_mgr_call_intr(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, bool (*interrupted)(void *arg), cl_mgr_cb cb,
                             void *arg)
{
    (void)m;
    (void)msg;
    (void)interrupted;
    assert_int_equal(type, FP__MSG_TYPE__MSG_OPEN);
    answer = cb;
    answer_arg = arg;
}

void __wrap_cl_mgr_release(struct cl_mount *m, struct cl_inode *inode, bool write, bool torn)
{
    (void)torn;
    (void)m;
    (void)write;
    (void)inode;
    atomic_fetch_add(&released, 1);
}

void *__wrap_fuse_req_userdata(fuse_req_t req)
{
    (void)req;
    return &mnt.m;
}

static void keep(struct cl_mount *m, struct cl_handle *h)
{
    assert_ptr_equal(m, &mnt.m);
    assert_ptr_equal(h, &first);
}

/* The kernel does not know the request any more; and the one who wrote has gone too, so that what he wrote is the last handle's to publish. */
int __wrap_fuse_reply_open(fuse_req_t req, const struct fuse_file_info *fi)
{
    (void)req;
    if (keep_opened) {
        opened = (struct cl_handle *)(uintptr_t)fi->fh;
        return 0;
    }
    cl_data_release(&mnt.m, &first, keep);
    return -ENOENT;
}

int __wrap_fuse_reply_err(fuse_req_t req, int err);
const struct fuse_ctx *__wrap_fuse_req_ctx(fuse_req_t req);
bool __wrap_cl_early_flush(struct cl_inode *inode, fuse_req_t req, int *status);
bool __wrap_cl_mgr_was_refused(struct cl_mount *m);

static bool was_refused;

bool __wrap_cl_mgr_was_refused(struct cl_mount *m)
{
    (void)m;
    return was_refused;
}

static unsigned nflushed, nreplied;
static int told;
static struct fuse_ctx caller;

int __wrap_fuse_reply_err(fuse_req_t req, int err)
{
    (void)req;
    nreplied += err == 0;
    told = err;
    return 0;
}

const struct fuse_ctx *__wrap_fuse_req_ctx(fuse_req_t req)
{
    (void)req;
    return &caller;
}

bool __wrap_cl_early_flush(struct cl_inode *inode, fuse_req_t req, int *status)
{
    (void)inode;
    (void)req;
    *status = 0;
    nflushed++;
    return false;
}

static void answer_open(void *arg)
{
    Fp__AttrReply reply = FP__ATTR_REPLY__INIT;

    (void)arg;
    reply.attr = &attr;
    answer(answer_arg, 0, &reply.base);
}

static void test_handle_that_nobody_got_is_released_off_the_core_loop(void **state)
{
    static uint8_t data[LEN], seen[LEN];
    struct fuse_file_info fi = {.flags = O_RDONLY};
    uint64_t ino, until_ms;

    (void)state;
    released = 0;
    world_core_start();
    world_bnf_add(1, true, 100u << 20);
    fx_start(&mnt, 7, 4000);
    ino = world_file_new(256u << 10, 1);
    fx_open(&mnt, &first, ino);
    fx_fill(data, LEN, 3);
    assert_int_equal(fx_write(&mnt, &first, data, LEN, 0), LEN);
    world_attr(ino, &attr);
    cl_op_open(NULL, ino, &fi);
    assert_non_null(answer);
    world_on_core(answer_open, NULL); /* publishing needs it: there it would wait for itself */
    until_ms = fp_now_ms() + 20000;
    while (!released && fp_now_ms() < until_ms)
        usleep(1000);
    assert_int_equal(released, 1);
    assert_int_equal(world_view(ino, seen, LEN), LEN);
    assert_memory_equal(seen, data, LEN);
    fx_check_file_quiet(&first);
    assert_int_equal(first.inode->handles, 0);
    cl_inode_put(&mnt.m, first.inode);
    fx_over(&mnt);
}

static int open_what_is_gone(int tid)
{
    struct fuse_file_info fi = {.flags = O_RDONLY};

    caller.pid = tid;
    told = 0;
    cl_op_open(NULL, 4711, &fi);
    answer(answer_arg, -ENOENT, NULL);
    return told;
}

/* What the kernel's lookup has found is gone, but the name may be another file by now: it looks again, once, and what it finds then is told. */
static void test_open_of_what_was_replaced_meanwhile_looks_again_once(void **state)
{
    (void)state;
    mnt.m.core = (struct cl_core *)(void *)&mnt.w;
    assert_int_equal(open_what_is_gone(10), ESTALE);
    assert_int_equal(open_what_is_gone(11), ESTALE);
    assert_int_equal(open_what_is_gone(10), ENOENT); /* no program sees ESTALE */
    assert_int_equal(open_what_is_gone(10), ESTALE);
    for (int i = 0; i < 3; i++) /* programs of a namespace that this mount does not see */
        assert_int_equal(open_what_is_gone(0), ESTALE);
    caller.pid = 11;
    cl_walk_ends(11); /* its name was not there: the next one is another open */
    assert_int_equal(open_what_is_gone(11), ESTALE);
}

static int call_on_what_is_gone(uint64_t ino)
{
    told = 0;
    cl_reply_node_status(NULL, ino, -ENOENT);
    return told;
}

/* fstat of it: as read and write. By its name it may be asked for as well, but then it is not there. */
static void test_call_on_what_is_open_and_gone_is_an_error_of_the_file(void **state)
{
    uint64_t ino;

    (void)state;
    world_core_start();
    world_bnf_add(1, true, 100u << 20);
    fx_start(&mnt, 7, 4000);
    ino = world_file_new(256u << 10, 1);
    fx_open(&mnt, &first, ino);
    caller.pid = 10;
    assert_int_equal(call_on_what_is_gone(ino), EIO);
    assert_int_equal(call_on_what_is_gone(ino + 1), ENOENT);
    assert_false(cl_walk_told(10, 1, "f", ino, false));
    assert_int_equal(call_on_what_is_gone(ino), ESTALE); /* it may be another file by now */
    assert_int_equal(call_on_what_is_gone(ino), EIO);
    fx_end(&mnt, &first);
}

static int open_told(int tid, uint64_t ino)
{
    struct fuse_file_info fi = {.flags = O_RDONLY};
    int had = released;

    caller.pid = tid;
    told = 0;
    world_attr(ino, &attr);
    cl_op_open(NULL, ino, &fi);
    opened = NULL;
    world_on_core(answer_open, NULL);
    assert_int_equal(released - had, told == ESTALE); /* given back then */
    assert_int_equal(!opened, told == ESTALE);
    if (opened)
        cl_op_release(NULL, ino, &(struct fuse_file_info){.fh = (uintptr_t)opened});
    return told;
}

/* It had to wait for another mount, so the kernel may know an old size: it looks again, once. */
static void test_open_that_waited_for_another_mount_looks_again_once(void **state)
{
    uint64_t ino;

    (void)state;
    world_core_start();
    world_bnf_add(1, true, 100u << 20);
    fx_start(&mnt, 7, 4000);
    ino = world_file_new(256u << 10, 1);
    fx_open(&mnt, &first, ino);
    was_refused = keep_opened = true;
    assert_int_equal(open_told(20, ino), ESTALE);
    was_refused = false;
    assert_int_equal(open_told(20, ino), 0);
    was_refused = true;
    assert_int_equal(open_told(20, ino), ESTALE);
    assert_int_equal(open_told(20, ino), 0); /* once more: no program sees ESTALE */
    assert_int_equal(open_told(0, ino), 0);
    was_refused = keep_opened = false;
    fx_end(&mnt, &first);
}

/* Locks want to hear of it; nothing else has to do with it. */
static void test_closing_what_was_only_read_waits_for_nothing(void **state)
{
    struct fuse_file_info fi = {.flags = O_RDONLY, .fh = (uintptr_t)&first};

    (void)state;
    world_core_start();
    world_bnf_add(1, true, 100u << 20);
    fx_start(&mnt, 7, 4000);
    fx_open(&mnt, &first, world_file_new(256u << 10, 1));
    for (int quiet = 0; quiet < 2; quiet++) {
        nflushed = nreplied = 0;
        first.quiet = quiet;
        cl_op_flush(NULL, first.inode->ino, &fi);
        assert_int_equal(nflushed, !quiet);
        assert_int_equal(nreplied, 1);
    }
    fx_end(&mnt, &first);
}

static void store_fails(struct cl_inode *inode)
{
    pthread_mutex_lock(&inode->lock);
    cl_file_set_error(inode->file, -EIO, 0, "as if data could not be stored");
    pthread_mutex_unlock(&inode->lock);
}

/* A child of a program that writes has inherited the descriptor, and closes it by executing another program: whatever that close says, nobody sees it. */
static void test_close_of_an_inherited_descriptor_leaves_the_error_to_fsync(void **state)
{
    static uint8_t data[LEN];
    struct cl_handle second;
    uint64_t ino;

    (void)state;
    world_core_start();
    world_bnf_add(1, true, 100u << 20);
    fx_start(&mnt, 7, 4000);
    ino = world_file_new(256u << 10, 1);
    fx_open(&mnt, &first, ino);
    assert_int_equal(fx_write(&mnt, &first, data, LEN, 0), LEN);
    store_fails(first.inode);
    assert_int_equal(cl_data_close(&mnt.m, &first), -EIO);
    assert_int_equal(cl_data_close(&mnt.m, &first), -EIO);
    assert_int_equal(cl_data_fsync(&mnt.m, first.inode), -EIO);
    assert_int_equal(cl_data_fsync(&mnt.m, first.inode), 0);
    store_fails(first.inode);
    assert_int_equal(cl_data_close(&mnt.m, &first), -EIO);
    fx_open(&mnt, &second, ino);
    cl_data_release(&mnt.m, &first, keep); /* that close was the last one, and has told it */
    cl_inode_put(&mnt.m, first.inode);
    assert_int_equal(cl_data_fsync(&mnt.m, second.inode), 0);
    fx_end(&mnt, &second);
}

/* -------------------------------------------------------------- without a name */

static void *flush_it(void *arg)
{
    assert_int_equal(cl_data_flush(&mnt.m, arg), 0);
    return NULL;
}

static atomic_bool manager_is_back;

static void *bring_manager_back(void *arg)
{
    usleep(300000);
    manager_is_back = true;
    world_mgr_back();
    return arg;
}

static void write_at(uint64_t off, uint32_t len)
{
    static uint8_t data[LEN];

    fx_fill(data, len, (uint32_t)off);
    assert_int_equal(fx_write(&mnt, &first, data, len, off), len);
}

/* fsync of the root, or many windows that wait, may be publishing it just then: what a commit names is not dropped under its hands. */
static void release_while_committed(bool more)
{
    struct cl_inode *inode;
    pthread_t flusher, healer;
    uint64_t ino;

    world_core_start();
    world_bnf_add(1, true, 100u << 20);
    fx_start(&mnt, 7, 20000);
    ino = world_file_new(256u << 10, 1);
    fx_open(&mnt, &first, ino);
    for (unsigned i = 0; i < 8; i++)
        write_at((uint64_t)i * LEN, LEN);
    inode = first.inode;
    cl_inode_ref(&mnt.m, inode);
    manager_is_back = false;
    world_faults.mgr_hangs = 1;
    pthread_create(&flusher, NULL, flush_it, inode);
    while (world_faults.mgr_hangs)
        usleep(1000);
    cl_inode_set_nlink(&mnt.m, ino, 0);
    if (more) /* what is not part of the commit goes */
        write_at(3u << 20, 5000);
    pthread_create(&healer, NULL, bring_manager_back, NULL);
    fx_close(&mnt, &first);
    assert_true(manager_is_back);
    pthread_join(healer, NULL);
    pthread_join(flusher, NULL);
    cl_inode_put(&mnt.m, inode);
    fx_over(&mnt);
}

static void test_unlinked_file_is_released_while_it_is_committed(void **state)
{
    (void)state;
    release_while_committed(false);
    release_while_committed(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unlinked_file_is_released_while_it_is_committed),
        cmocka_unit_test(test_closing_what_was_only_read_waits_for_nothing),
        cmocka_unit_test(test_close_of_an_inherited_descriptor_leaves_the_error_to_fsync),
        cmocka_unit_test(test_open_of_what_was_replaced_meanwhile_looks_again_once),
        cmocka_unit_test(test_call_on_what_is_open_and_gone_is_an_error_of_the_file),
        cmocka_unit_test(test_open_that_waited_for_another_mount_looks_again_once),
        cmocka_unit_test(test_handle_that_nobody_got_is_released_off_the_core_loop),
    };

    alarm(200); /* what waits for itself waits for ever */
    setenv("CMOCKA_TEST_ABORT", "1", 0); /* a failed check leaves threads behind */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
