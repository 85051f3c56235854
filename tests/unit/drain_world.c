/* The world of the tests of fp-drain: see drain_world.h. */
#include "tests/unit/drain_world.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fp/checksum.h"
#include "fp/fault.h"

#define SEGMENT_BYTES (64u << 20)

static void *worker_main(void *arg)
{
    struct dw *d = arg;

    d->end = dr_link_run(d->worker);
    return NULL;
}

void dw_start_raw(struct dw *d)
{
    int pair[2], size = 1 << 20;

    memset(d, 0, sizeof(*d));
    bnf_scratch_init(&d->segments);
    snprintf(d->root, sizeof(d->root), "%s-target", d->segments.path);
    assert_int_equal(mkdir(d->root, 0755), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    d->socket = pair[0];
    d->worker = dr_new(pair[1], &d->status);
    d->gen = 1;
    assert_non_null(d->worker);
    assert_int_equal(bnf_backend_dir_new(d->segments.dir_fd, &d->backend), 0);
    d->seg = bnf_new_segment(&d->segments, d->backend, DW_SEGMENT, SEGMENT_BYTES);
    d->seg_end = 4096;
    assert_int_equal(pthread_create(&d->thread, NULL, worker_main, d), 0);
}

void dw_config(struct dw *d, unsigned threads)
{
    uint8_t target[16];

    memset(target, 0x11, sizeof(target));
    dw_config_as(d, threads, target);
}

void dw_config_as(struct dw *d, unsigned threads, const uint8_t target[16])
{
    struct fp_dw_config m = { .h = { .type = FP_DW_CONFIG }, .threads = threads, .root_bytes = (uint32_t)strlen(d->root) };

    memset(m.store, 0xa5, 16);
    memcpy(m.target, target, 16);
    dw_send(d, &m, sizeof(m), d->root, strlen(d->root), -1);
}

void dw_start(struct dw *d)
{
    struct fp_dw_seg seg = { .h = { .type = FP_DW_SEG_ADD }, .segment = DW_SEGMENT };
    int fd;

    dw_start_raw(d);
    dw_config(d, 2);
    seg.salt = d->seg->salt;
    fd = bnf_file_reopen(d->seg);
    assert_true(fd >= 0);
    dw_send(d, &seg, sizeof(seg), NULL, 0, fd);
    close(fd);
    assert_int_equal(dw_probe(d, true), 0);
}

int dw_end(struct dw *d)
{
    if (d->socket >= 0) {
        shutdown(d->socket, SHUT_RDWR);
        pthread_join(d->thread, NULL);
        close(d->socket);
        d->socket = -1;
    }
    return d->end;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void dw_stop(struct dw *d)
{
    int socket = d->worker->socket;

    dw_end(d);
    dr_free(d->worker);
    close(socket);
    bnf_file_put(d->seg);
    bnf_backend_free(d->backend);
    nftw(d->root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    bnf_scratch_fini(&d->segments);
}

int dw_setup(struct dw *d)
{
    fp_fault_set(NULL);
    dw_start(d);
    return 0;
}

int dw_teardown(struct dw *d)
{
    dw_stop(d);
    fp_fault_set(NULL); /* no thread looks any more */
    return 0;
}

/* ---------------------------------------------------------------- messages */

void dw_send(struct dw *d, const void *msg, size_t len, const void *more, size_t more_len, int fd)
{
    union {
        struct cmsghdr h;
        char room[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    uint8_t *all = malloc(len + more_len);
    struct iovec iov = { all, len + more_len };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };

    memcpy(all, msg, len);
    if (more_len)
        memcpy(all + len, more, more_len);
    if (len >= sizeof(struct fp_dw_head))
        ((struct fp_dw_head *)(void *)all)->len_bytes = (uint32_t)(len + more_len);
    if (fd >= 0) {
        m.msg_control = &control;
        m.msg_controllen = sizeof(control);
        control.h = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
        memcpy(CMSG_DATA(&control.h), &fd, sizeof(fd));
    }
    for (size_t at = 0; at < len + more_len; at += iov.iov_len) {
        iov.iov_base = all + at;
        iov.iov_len = len + more_len - at < FP_DW_MESSAGE_MAX_BYTES ? len + more_len - at : FP_DW_MESSAGE_MAX_BYTES;
        assert_int_equal(sendmsg(d->socket, &m, MSG_NOSIGNAL), iov.iov_len);
    }
    free(all);
}

bool dw_answers(struct dw *d, int ms)
{
    struct pollfd p = { .fd = d->socket, .events = POLLIN };

    return poll(&p, 1, ms) == 1;
}

static void take_names(struct dw *d, const uint8_t *p, size_t len)
{
    size_t at = strlen(d->names);

    assert_true(at + len < sizeof(d->names));
    for (size_t i = 0; i < len; i++)
        d->names[at + i] = p[i] ? (char)p[i] : '\n';
    d->names[at + len] = '\0';
}

void dw_wait(struct dw *d)
{
    static uint8_t buf[FP_DW_MESSAGE_MAX_BYTES];
    const struct fp_dw_head *h = (const struct fp_dw_head *)(void *)buf;

    d->names[0] = '\0';
    do {
        ssize_t n;

        assert_true(dw_answers(d, 120000));
        n = recv(d->socket, buf, sizeof(buf), 0);
        assert_true(n >= (ssize_t)sizeof(*h) && (size_t)n == h->len_bytes);
        if (h->type == FP_DW_NAMES)
            take_names(d, buf + sizeof(*h), (size_t)n - sizeof(*h));
    } while (h->type != FP_DW_DONE);
    memcpy(&d->done, buf, sizeof(d->done));
    memcpy(d->why, buf + sizeof(d->done), d->done.why_bytes);
    d->why[d->done.why_bytes] = '\0';
    memcpy(d->sums, buf + sizeof(d->done) + d->done.why_bytes, d->done.nsums * sizeof(d->sums[0]));
}

int dw_file(struct dw *d, enum fp_dw_type type, const struct fp_dw_file *m, const char *path, const char *tmp)
{
    struct fp_dw_file copy = *m;
    char text[4096];

    copy.h = (struct fp_dw_head){ .type = type, .id = ++d->next_id, .gen = d->gen };
    copy.path_bytes = (uint32_t)strlen(path);
    copy.tmp_bytes = (uint32_t)strlen(tmp);
    snprintf(text, sizeof(text), "%s%s", path, tmp);
    dw_send(d, &copy, sizeof(copy), text, strlen(text), -1);
    dw_wait(d);
    assert_int_equal(d->done.h.id, d->next_id);
    assert_int_equal(d->done.kind, type);
    return d->done.status;
}

int dw_prepare(struct dw *d, const char *path, const char *tmp, uint64_t size)
{
    struct fp_dw_file m = { .size = size, .uid = geteuid(), .gid = getegid() };

    return dw_file(d, FP_DW_PREPARE, &m, path, tmp);
}

int dw_finish(struct dw *d, const char *path, const char *tmp, uint64_t tino, uint64_t size)
{
    struct fp_dw_file m = { .tino = tino, .size = size, .uid = geteuid(), .gid = getegid(), .mode = 0640, .flags = FP_DW_OVERWRITE,
                            .atime_ns = 1000000000123456789, .mtime_ns = 1234567890987654321 };

    return dw_file(d, FP_DW_FINISH, &m, path, tmp);
}

int dw_probe(struct dw *d, bool make_marker)
{
    struct fp_dw_file m = { .flags = make_marker ? FP_DW_MAKE_MARKER : 0 };

    return dw_file(d, FP_DW_PROBE, &m, "", "a5a5a5a5-probe");
}

void dw_tell_write(struct dw *d, const char *tmp, uint64_t tino, uint64_t size, uint64_t first, const struct fp_dw_slice *s, uint32_t n)
{
    struct fp_dw_write m = { .h = { .type = FP_DW_WRITE, .id = ++d->next_id, .gen = d->gen }, .tino = tino, .size = size, .first = first,
                             .flags = d->write_flags, .window_bytes = DW_WINDOW, .nslices = n, .nsegments = 1, .tmp_bytes = (uint32_t)strlen(tmp) };
    uint64_t segment = DW_SEGMENT;
    size_t len = m.tmp_bytes + 8 + n * sizeof(*s);
    uint8_t *rest = malloc(len);

    memcpy(rest, tmp, m.tmp_bytes);
    memcpy(rest + m.tmp_bytes, &segment, 8);
    memcpy(rest + m.tmp_bytes + 8, s, n * sizeof(*s));
    dw_send(d, &m, sizeof(m), rest, len, -1);
    free(rest);
}

int dw_write(struct dw *d, const char *tmp, uint64_t tino, uint64_t size, uint64_t first, const struct fp_dw_slice *s, uint32_t n)
{
    dw_tell_write(d, tmp, tino, size, first, s, n);
    dw_wait(d);
    assert_int_equal(d->done.h.id, d->next_id);
    return d->done.status;
}

uint64_t dw_written(struct dw *d, const char *path, const char *tmp, uint64_t size, const struct fp_dw_slice *s)
{
    uint64_t ino;

    assert_int_equal(dw_prepare(d, path, tmp, size), 0);
    ino = d->done.tino;
    assert_int_equal(dw_write(d, tmp, ino, size, 0, s, 1), 0);
    return ino;
}

int dw_verify_own(struct dw *d, const char *tmp, uint64_t tino, uint64_t size, const uint64_t *sums, uint32_t n, const struct fp_dw_range *others, uint32_t nothers)
{
    struct fp_dw_verify m = { .h = { .type = FP_DW_VERIFY, .id = ++d->next_id, .gen = d->gen }, .tino = tino, .size = size, .window_bytes = DW_WINDOW,
                              .count = n, .tmp_bytes = (uint32_t)strlen(tmp), .nothers = nothers };
    size_t len = m.tmp_bytes + n * 8 + nothers * sizeof(*others);
    uint8_t *rest = malloc(len);

    memcpy(rest, tmp, m.tmp_bytes);
    memcpy(rest + m.tmp_bytes, sums, n * 8);
    memcpy(rest + m.tmp_bytes + n * 8, others, nothers * sizeof(*others));
    dw_send(d, &m, sizeof(m), rest, len, -1);
    free(rest);
    dw_wait(d);
    return d->done.status;
}

int dw_verify(struct dw *d, const char *path, const char *tmp, uint64_t tino, uint64_t size, uint64_t first, const uint64_t *sums, uint32_t n)
{
    struct fp_dw_verify m = { .h = { .type = FP_DW_VERIFY, .id = ++d->next_id, .gen = d->gen }, .tino = tino, .size = size, .first = first,
                              .window_bytes = DW_WINDOW, .count = n, .path_bytes = path ? (uint32_t)strlen(path) : 0,
                              .tmp_bytes = tmp ? (uint32_t)strlen(tmp) : 0 };
    const char *name = path ? path : tmp;
    size_t len = strlen(name) + n * 8;
    uint8_t *rest = malloc(len);

    memcpy(rest, name, strlen(name));
    memcpy(rest + strlen(name), sums, n * 8);
    dw_send(d, &m, sizeof(m), rest, len, -1);
    free(rest);
    dw_wait(d);
    return d->done.status;
}

/* ---------------------------------------------------------------- data */

struct fp_dw_slice dw_chunk(struct dw *d, uint64_t chunk, uint32_t len, uint32_t at)
{
    struct fp_dw_slice s = { .chunk = chunk, .page = (uint32_t)(d->seg_end / 4096), .at = at, .len = len, .chunk_len = len };
    uint32_t stored;
    uint8_t *rec = bnf_make_record(chunk, DW_SEGMENT, d->seg->salt, d->seg_end, len, &stored, &s.sum);
    struct iovec iov = { rec, stored };

    assert_int_equal(bnf_file_write(d->seg, &iov, 1, d->seg_end), 0);
    free(rec);
    d->seg_end += stored;
    return s;
}

struct fp_dw_slice dw_piece(struct fp_dw_slice whole, uint32_t from, uint32_t len, uint32_t at)
{
    whole.chunk_off = from;
    whole.len = len;
    whole.at = at;
    return whole;
}

static void put_slices(uint8_t *out, const struct fp_dw_slice *s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *chunk = malloc(s[i].chunk_len);

        bnf_fill(s[i].chunk, chunk, s[i].chunk_len);
        memcpy(out + s[i].at, chunk + s[i].chunk_off, s[i].len);
        free(chunk);
    }
}

int64_t dw_compare(struct dw *d, const char *path, uint64_t size, uint64_t first, const struct fp_dw_slice *s, uint32_t n)
{
    uint8_t *want = calloc(1, size + 1), *have = calloc(1, size + 2);
    int fd = open(dw_path(d, path), O_RDONLY | O_CLOEXEC);
    int64_t rc = fd < 0 ? -errno : 0;
    ssize_t got = fd < 0 ? 0 : read(fd, have, size + 1);

    put_slices(want + first * DW_WINDOW, s, n);
    if (rc == 0 && got != (ssize_t)size)
        rc = got + 1;
    for (uint64_t i = 0; rc == 0 && i < size; i++)
        if (want[i] != have[i])
            rc = (int64_t)i + 1;
    if (fd >= 0)
        close(fd);
    free(want);
    free(have);
    return rc;
}

uint64_t dw_sum_of(const struct fp_dw_slice *s, uint32_t n, uint64_t size, uint64_t window)
{
    uint8_t *bytes = calloc(1, size);
    uint64_t from = window * DW_WINDOW, len = size - from < DW_WINDOW ? size - from : DW_WINDOW, sums[FP_BLOCKS_MAX], sum;

    put_slices(bytes, s, n);
    fp_sum_blocks(bytes + from, len, sums);
    sum = fp_sum_chunk(sums, fp_sum_nblocks(len), len);
    free(bytes);
    return sum;
}

const char *dw_path(struct dw *d, const char *below)
{
    static char path[2][8192];
    static unsigned turn;
    char *out = path[turn++ % 2];

    snprintf(out, sizeof(path[0]), "%s/%s", d->root, below);
    return out;
}

bool dw_exists(struct dw *d, const char *below)
{
    struct stat st;

    return lstat(dw_path(d, below), &st) == 0;
}

void dw_make(struct dw *d, const char *below, const char *text)
{
    int fd = open(dw_path(d, below), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}
