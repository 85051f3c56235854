/* What tests of sources share: inputs in memory, opened by the names that the kernel has for them, and datasets read as the engine would, row by row. */
#ifndef TESTS_CV_SOURCE_H
#define TESTS_CV_SOURCE_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "convert/source/source.h"

/* A file of these bytes, without a place on a disk; its path. */
struct memory_file {
    int fd;
    char path[64];
};

static inline void memory_file_set(struct memory_file *f, const void *bytes, size_t len)
{
    assert_int_equal(ftruncate(f->fd, 0), 0);
    assert_int_equal(ftruncate(f->fd, (off_t)len), 0);
    assert_int_equal(pwrite(f->fd, bytes, len, 0), (ssize_t)len);
}

static inline struct memory_file memory_file_new(const void *bytes, size_t len)
{
    struct memory_file f = {.fd = memfd_create("input", MFD_CLOEXEC)};

    assert_true(f.fd >= 0);
    snprintf(f.path, sizeof f.path, "/proc/self/fd/%d", f.fd);
    memory_file_set(&f, bytes, len);
    return f;
}

static inline int source_try(const struct cv_source_ops *ops, const char *path, struct cv_source **s, struct cv_fail *why)
{
    struct cv_source_options o = {.paths = &path, .npaths = 1, .memory_bytes = 1u << 20, .spool = "/tmp"};

    memset(why, 0, sizeof *why);
    *s = NULL;
    return ops->open(&o, s, why);
}

/* All stored bytes of a block. */
static inline int block_bytes(struct cv_source *s, const struct cv_dataset *d, const struct cv_block *b, void *out, size_t cap, struct cv_fail *why)
{
    size_t bytes = d->type.size_bytes;

    for (unsigned i = 0; i < d->rank; i++)
        bytes *= cv_block_stored(b, i);
    assert_true(bytes <= cap);
    return s->ops->read_bytes(s, b->input, b->offset_bytes, out, bytes, why);
}

/* Opens bytes cut off after each of them, and reads what can be opened: always an end with a reason, but for `whole`, which is good. */
static inline void every_cut_is_said(const struct cv_source_ops *ops, const void *bytes, size_t whole)
{
    struct memory_file f = memory_file_new(bytes, 0);

    for (size_t len = 0; len < whole; len++) {
        struct cv_source *s;
        struct cv_fail why;

        memory_file_set(&f, bytes, len);
        if (source_try(ops, f.path, &s, &why) == 0)
            fail_msg("%zu of %zu bytes are taken for a whole file", len, whole);
        assert_true(why.text[0]);
        assert_string_equal(why.file, f.path);
    }
    close(f.fd);
}

/* Changes each byte in turn to something else: it may go well, it may not crash, and what fails says why. */
static inline void no_byte_does_harm(const struct cv_source_ops *ops, const void *bytes, size_t len)
{
    struct memory_file f = memory_file_new(bytes, len);
    static const unsigned char changes[] = {0x01, 0x80, 0xff};
    unsigned char *changed = malloc(len), buf[4096];

    assert_non_null(changed);
    for (size_t i = 0; i < len * sizeof changes; i++) {
        struct cv_source *s;
        struct cv_fail why;

        memcpy(changed, bytes, len);
        changed[i / sizeof changes] ^= changes[i % sizeof changes];
        memory_file_set(&f, changed, len);
        if (source_try(ops, f.path, &s, &why) != 0) {
            assert_true(why.text[0]);
            continue;
        }
        for (size_t d = 0; d < s->model->ndatasets; d++)
            for (size_t b = 0; b < s->model->datasets[d].nblocks; b++)
                if (ops->read_bytes(s, s->model->datasets[d].blocks[b].input, s->model->datasets[d].blocks[b].offset_bytes, buf, 8, &why) != 0)
                    assert_true(why.text[0]);
        ops->close(s);
    }
    free(changed);
    close(f.fd);
}

#endif
