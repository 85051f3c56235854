/*
 * What FUSE threads read from the device (client/receive.c), which is a socket here that keeps requests apart as the device does: writes come into pages of the pool
 * once a large one has come, everything else comes as by read(2), and pages go back with their thread.
 */
#define FUSE_USE_VERSION 317
#include <errno.h>
#include <fuse_lowlevel.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/client.h"
#include "client/data.h"
#include "client/data/pool.h"
#include "client/receive.h"

#define MAX_WRITE (2 * CL_PAGE_BYTES)
#define HEAD      (sizeof(struct fuse_in_header) + sizeof(struct fuse_write_in))
#define BUF_BYTES (MAX_WRITE + 4096)

static struct cl_pool *pool;
static struct fuse_custom_io io;
static struct cl_mount m = {.max_write_bytes = MAX_WRITE};
static int device[2];

struct cl_pool *__wrap_cl_data_pool(struct cl_mount *of);
struct cl_pool *__wrap_cl_data_pool(struct cl_mount *of)
{
    assert_ptr_equal(of, &m);
    return pool;
}

int __wrap_fuse_session_fd(struct fuse_session *se);
int __wrap_fuse_session_fd(struct fuse_session *se)
{
    (void)se;
    return device[0];
}

int __wrap_fuse_session_custom_io_317(struct fuse_session *se, const struct fuse_custom_io *given, size_t size, int fd);
int __wrap_fuse_session_custom_io_317(struct fuse_session *se, const struct fuse_custom_io *given, size_t size, int fd)
{
    (void)se;
    assert_int_equal(size, sizeof io);
    assert_int_equal(fd, device[0]);
    io = *given;
    return 0;
}

static size_t no_reclaim(void *arg, size_t want)
{
    (void)arg;
    (void)want;
    return 0;
}

static void no_pressure(void *arg)
{
    (void)arg;
}

static int setup(void **state)
{
    int most = 4 << 20;
    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, device), 0);
    assert_int_equal(setsockopt(device[1], SOL_SOCKET, SO_SNDBUFFORCE, &most, sizeof most) == 0 ||
                         setsockopt(device[1], SOL_SOCKET, SO_SNDBUF, &most, sizeof most) == 0, 1);
    assert_int_equal(cl_pool_new_lending(8 * CL_PAGE_BYTES, 3, no_reclaim, no_pressure, NULL, &pool), 0);
    return cl_receive_setup(NULL);
}

static int teardown(void **state)
{
    (void)state;
    close(device[0]);
    close(device[1]);
    cl_pool_free(pool);
    return 0;
}

static uint8_t sent[HEAD + MAX_WRITE + 4096];

static void ask_at(uint32_t opcode, size_t bytes, unsigned seed, uint64_t off)
{
    struct fuse_in_header h = {.len = (uint32_t)bytes, .opcode = opcode, .unique = seed};
    struct fuse_write_in w = {.offset = off, .size = (uint32_t)(bytes - HEAD)};
    for (size_t i = 0; i < bytes; i++)
        sent[i] = (uint8_t)(seed + i * 7 + i / 253);
    memcpy(sent, &h, sizeof h);
    if (opcode == FUSE_WRITE)
        memcpy(sent + sizeof h, &w, sizeof w);
    assert_int_equal(send(device[1], sent, bytes, 0), bytes);
}

static void ask(uint32_t opcode, size_t bytes, unsigned seed)
{
    ask_at(opcode, bytes, seed, 0);
}

static uint8_t *buf;

static void get(size_t bytes)
{
    memset(buf, 0, BUF_BYTES);
    assert_int_equal(io.read(device[0], buf, BUF_BYTES, &m), bytes);
}

static void in_buf(size_t bytes)
{
    uint32_t at;
    assert_null(cl_received_pages((const char *)buf + HEAD, &at));
    assert_memory_equal(buf, sent, bytes);
}

static void in_pages_from(size_t bytes, uint32_t from)
{
    uint32_t place = CL_PAGE_BYTES;
    uint8_t **pages = cl_received_pages((const char *)buf + HEAD, &place);
    assert_non_null(pages);
    assert_int_equal(place, from);
    assert_null(cl_received_pages((const char *)buf, &place));
    assert_memory_equal(buf, sent, HEAD);
    for (size_t at = HEAD, n; at < bytes; at += n, place += (uint32_t)n) {
        n = CL_PAGE_BYTES - place % CL_PAGE_BYTES;
        if (n > bytes - at)
            n = bytes - at;
        assert_memory_equal(pages[place / CL_PAGE_BYTES] + place % CL_PAGE_BYTES, sent + at, n);
    }
}

static void in_pages(size_t bytes)
{
    in_pages_from(bytes, 0);
}

static void *small_then_large(void *arg)
{
    uint8_t *lent[3];
    (void)arg;
    ask(FUSE_LOOKUP, 48, 1);
    get(48);
    in_buf(48);
    ask(FUSE_WRITE, HEAD + 4096, 2);
    get(HEAD + 4096);
    in_buf(HEAD + 4096);
    ask(FUSE_SETXATTR, HEAD + CL_PAGE_BYTES, 3);
    get(HEAD + CL_PAGE_BYTES);
    in_buf(HEAD + CL_PAGE_BYTES);
    assert_int_equal(cl_pool_lend(pool, lent, 3), 0); /* none was taken for these */
    cl_pool_take_back(pool, lent, 3);
    ask(FUSE_WRITE, HEAD + MAX_WRITE, 4);
    get(HEAD + MAX_WRITE);
    in_buf(HEAD + MAX_WRITE); /* the first large one */
    ask(FUSE_WRITE, HEAD + MAX_WRITE, 5);
    get(HEAD + MAX_WRITE);
    in_pages(HEAD + MAX_WRITE);
    assert_int_equal(cl_pool_lend(pool, lent, 3), -EAGAIN);
    return NULL;
}

/* With pages: requests of any kind and length. */
static void *all_kinds(void *arg)
{
    static const size_t lens[] = {0, 1, 4096, CL_PAGE_BYTES - 1, CL_PAGE_BYTES, CL_PAGE_BYTES + 1, 100001, MAX_WRITE};
    (void)arg;
    small_then_large(NULL);
    for (unsigned i = 0; i < sizeof lens / sizeof *lens; i++) {
        ask(FUSE_WRITE, HEAD + lens[i], 10 + i);
        get(HEAD + lens[i]);
        if (lens[i] > 0)
            in_pages(HEAD + lens[i]);
        if (i % 2 == 1)
            cl_received_flat((const char *)buf + HEAD);
        if (i % 2 == 1 || lens[i] == 0)
            in_buf(HEAD + lens[i]);
        ask(FUSE_SETXATTR, HEAD + lens[i], 20 + i);
        get(HEAD + lens[i]);
        in_buf(HEAD + lens[i]);
    }
    ask(FUSE_BATCH_FORGET, HEAD + MAX_WRITE + 3000, 30); /* more than the pages hold */
    get(HEAD + MAX_WRITE + 3000);
    in_buf(HEAD + MAX_WRITE + 3000);
    ask(FUSE_FORGET, 48, 31);
    get(48);
    in_buf(48);
    return NULL;
}

static void write_at(uint64_t off, size_t bytes, uint32_t expected)
{
    static unsigned seed = 100;
    ask_at(FUSE_WRITE, HEAD + bytes, seed++, off);
    get(HEAD + bytes);
    in_pages_from(HEAD + bytes, expected);
}

/* Two large ones that agree say where the next begins, whatever small ones and the first and the last of a file are like. */
static void *places(void *arg)
{
    const uint32_t late = CL_PAGE_BYTES - 16;
    (void)arg;
    small_then_large(NULL);
    write_at(0, MAX_WRITE - 16, 0);
    write_at(late, MAX_WRITE, 0);
    write_at(late + MAX_WRITE, MAX_WRITE, 0);
    write_at(late + 2 * MAX_WRITE, MAX_WRITE, late);
    write_at(late + 3 * MAX_WRITE, 5000, late);
    write_at(0, MAX_WRITE - 16, late);
    write_at(late, MAX_WRITE, late);
    cl_received_flat((const char *)buf + HEAD);
    in_buf(HEAD + MAX_WRITE);
    ask(FUSE_BATCH_FORGET, HEAD + MAX_WRITE + 3000, 30);
    get(HEAD + MAX_WRITE + 3000);
    in_buf(HEAD + MAX_WRITE + 3000);
    for (unsigned i = 0; i < 3; i++)
        write_at(0, CL_PAGE_BYTES, i < 2 ? late : 0);
    return NULL;
}

/* The pages that it leaves are others than it got: they are to be lent again all the same. */
static void *exchanges(void *arg)
{
    uint8_t **pages, *own;
    uint32_t at;
    small_then_large(NULL);
    ask(FUSE_WRITE, HEAD + MAX_WRITE, 6);
    get(HEAD + MAX_WRITE);
    pages = cl_received_pages((const char *)buf + HEAD, &at);
    assert_int_equal(cl_pool_get(pool, &own, 1, 0), 0);
    *(uint8_t **)arg = pages[1];
    pages[1] = own;
    ask(FUSE_WRITE, HEAD + MAX_WRITE, 7);
    get(HEAD + MAX_WRITE);
    in_pages(HEAD + MAX_WRITE);
    return own;
}

static void *on_a_thread(void *(*run)(void *arg), void *arg)
{
    pthread_t t;
    void *out;
    assert_int_equal(posix_memalign((void **)&buf, 4096, BUF_BYTES), 0);
    assert_int_equal(pthread_create(&t, NULL, run, arg), 0);
    assert_int_equal(pthread_join(t, &out), 0);
    free(buf);
    return out;
}

static void test_receive_uses_pages_after_the_first_large_write(void **state)
{
    (void)state;
    on_a_thread(small_then_large, NULL);
}

static void test_receive_gives_every_request_whole(void **state)
{
    (void)state;
    on_a_thread(all_kinds, NULL);
}

static void test_receive_puts_bytes_where_they_lie_in_the_file(void **state)
{
    (void)state;
    on_a_thread(places, NULL);
}

static void test_receive_gives_back_what_it_has_at_the_end(void **state)
{
    uint8_t *lent[3], *kept = NULL, *own;
    (void)state;
    own = on_a_thread(exchanges, &kept);
    assert_int_equal(cl_pool_lend(pool, lent, 3), 0);
    assert_true(lent[0] == own || lent[1] == own || lent[2] == own);
    cl_pool_put(pool, &kept, 1);
    assert_int_equal(cl_pool_free_pages(pool), cl_pool_pages(pool));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_receive_uses_pages_after_the_first_large_write, setup, teardown),
        cmocka_unit_test_setup_teardown(test_receive_gives_every_request_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(test_receive_puts_bytes_where_they_lie_in_the_file, setup, teardown),
        cmocka_unit_test_setup_teardown(test_receive_gives_back_what_it_has_at_the_end, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
