/*
 * What the fuzzing harnesses share. Each fuzz_<name>.c is one program: with clang it is linked with libFuzzer (make fuzz), with gcc
 * with replay.c, which runs the stored inputs (make check-fuzz).
 *
 * An input is read as a list of choices, so that a mutation of bytes is a mutation of what is done, and what is done is mostly near
 * to something that makes sense. An input that ends early gives zeros: every byte string is a valid input.
 */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

/* The harness: one input. Always 0. Keeps nothing from one call to the next that could change what the next does. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

struct fuzz_in {
    const uint8_t *at, *end;
};

static inline size_t fuzz_left(const struct fuzz_in *in)
{
    return (size_t)(in->end - in->at);
}
uint8_t fuzz_u8(struct fuzz_in *in);
uint16_t fuzz_u16(struct fuzz_in *in);
uint32_t fuzz_u32(struct fuzz_in *in);
uint64_t fuzz_u64(struct fuzz_in *in);
/* 0 .. n - 1; n > 0. */
uint32_t fuzz_below(struct fuzz_in *in, uint32_t n);
/* A number at which things change: 0, 1, 4095, 4096, 2^31, 2^63 - 1, ... or any. */
uint64_t fuzz_number(struct fuzz_in *in);
/* At most max bytes of the input, into out. Returns how many. */
size_t fuzz_bytes(struct fuzz_in *in, uint8_t *out, size_t max);

/* What the fields of messages are filled with, so that messages are about the same few things. */
struct fuzz_pool {
    uint64_t session[4];
    uint64_t seq;        /* last number of a slot: counts up */
    uint64_t ino_max;    /* inodes 1 .. ino_max exist, perhaps */
    uint32_t chunk_max;  /* chunks session << 32 | 1 .. chunk_max */
    uint64_t lease[4];   /* as a benefactor has given them; all 0: none are known */
    uint64_t segment[4]; /* likewise */
};

/* A message of this type in wire format into out; fields by name from the pool, or any value. Sometimes damaged. Returns its bytes,
 * at most cap. */
size_t fuzz_message(struct fuzz_in *in, const ProtobufCMessageDescriptor *d, struct fuzz_pool *pool, uint8_t *out, size_t cap);

/* What is allocated from here on and not freed by fuzz_blocks_end() is freed there. Returns how many blocks there were. Harnesses on one thread. */
void fuzz_blocks_begin(void);
size_t fuzz_blocks_end(void);

/* A finding that no sanitizer sees. */
#define FUZZ_CHECK(cond)                                   \
    do {                                                   \
        if (!(cond))                                       \
            fuzz_failed(__FILE__, __LINE__, #cond);        \
    } while (0)
void fuzz_failed(const char *file, int line, const char *what) __attribute__((noreturn));

#endif
