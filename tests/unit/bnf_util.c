/*
 * Helpers of the benefactor's unit tests. Linked into every unit test program; used by those named
 * test_bnf_*.
 */
#include "tests/unit/bnf_util.h"

#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "fp/record.h"

void bnf_scratch_init(struct bnf_scratch *t)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(t->path, sizeof(t->path), "%s/fp-test-bnf-XXXXXX", tmp && *tmp ? tmp : "/var/tmp");
    assert_non_null(mkdtemp(t->path));
    t->dir_fd = open(t->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(t->dir_fd >= 0);
    memset(t->store_uuid, 0xa5, 16);
    memset(t->bnf_uuid, 0x5a, 16);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void bnf_scratch_fini(struct bnf_scratch *t)
{
    close(t->dir_fd);
    nftw(t->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

void bnf_fill(uint64_t chunk, uint8_t *data, uint32_t len_bytes)
{
    uint64_t x = chunk * 0x9e3779b97f4a7c15ull + 1;

    for (uint32_t i = 0; i < len_bytes; i++) {
        if (i % 8 == 0)
            x = x * 6364136223846793005ull + 1442695040888963407ull;
        data[i] = (uint8_t)(x >> 8 * (i % 8));
    }
}

uint8_t *bnf_make_record(uint64_t chunk, uint64_t segment, uint64_t salt, uint64_t off_bytes,
                         uint32_t len_bytes, uint32_t *stored_bytes, uint64_t *sum)
{
    struct fp_record_header h = {.chunk = chunk, .segment = segment, .offset = off_bytes, .salt = salt};
    uint8_t *rec;

    *stored_bytes = fp_record_size_bytes(len_bytes);
    rec = aligned_alloc(4096, *stored_bytes);
    assert_non_null(rec);
    memset(rec, 0, *stored_bytes);
    bnf_fill(chunk, rec + FP_RECORD_HEADER_BYTES, len_bytes);
    h.len_bytes = h.stored_len_bytes = len_bytes;
    fp_record_header_sum(&h, rec + FP_RECORD_HEADER_BYTES);
    fp_record_header_encode(&h, rec);
    *sum = h.sum;
    return rec;
}

uint64_t bnf_put_record(struct bnf_file *f, uint64_t chunk, uint64_t off_bytes, uint32_t len_bytes)
{
    uint32_t stored;
    uint64_t sum;
    uint8_t *rec = bnf_make_record(chunk, f->segment, f->salt, off_bytes, len_bytes, &stored, &sum);
    struct iovec iov = {.iov_base = rec, .iov_len = stored};

    assert_int_equal(bnf_file_write(f, &iov, 1, off_bytes), 0);
    free(rec);
    return off_bytes + stored;
}

struct bnf_file *bnf_new_segment(struct bnf_scratch *t, struct bnf_backend *b, uint64_t id,
                                 uint64_t limit_bytes)
{
    struct fp_segment_header h = {.id = id, .salt = id * 77 + 1, .limit_bytes = limit_bytes};
    struct bnf_file *f;

    memcpy(h.store_uuid, t->store_uuid, 16);
    memcpy(h.bnf_uuid, t->bnf_uuid, 16);
    assert_int_equal(bnf_backend_create(b, &h, &f), 0);
    return f;
}

uint64_t bnf_file_space(struct bnf_file *f)
{
    struct stat st;

    assert_int_equal(fstat(f->fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}
