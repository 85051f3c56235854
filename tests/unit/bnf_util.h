/* Helpers of the benefactor's unit tests: a scratch directory, records with known content. */
#ifndef TESTS_BNF_UTIL_H
#define TESTS_BNF_UTIL_H

#include <stdint.h>

#include "benefactor/backend.h"

/* After which a target counts as hanging, in these tests: longer than what takes its time, which sanitizers make slow. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BNF_TARGET_TIMEOUT_MS 900u /* less than the second after which a worker is started again */
#else
#define BNF_TARGET_TIMEOUT_MS 400u
#endif

struct bnf_scratch {
    char path[256];
    int dir_fd; /* the directory, standing for DIR/segments */
    uint8_t store_uuid[16], bnf_uuid[16];
};

void bnf_scratch_init(struct bnf_scratch *t);
void bnf_scratch_fini(struct bnf_scratch *t); /* with everything in it */

/* The bytes of chunk id, deterministic. */
void bnf_fill(uint64_t chunk, uint8_t *data, uint32_t len_bytes);

/* A whole record, malloc'ed and aligned; *stored_bytes its length. */
uint8_t *bnf_make_record(uint64_t chunk, uint64_t segment, uint64_t salt, uint64_t off_bytes,
                         uint32_t len_bytes, uint32_t *stored_bytes, uint64_t *sum);

/* Writes a record at off, returns the offset behind it. */
uint64_t bnf_put_record(struct bnf_file *f, uint64_t chunk, uint64_t off_bytes, uint32_t len_bytes);

/* A new segment of the scratch store. */
struct bnf_file *bnf_new_segment(struct bnf_scratch *t, struct bnf_backend *b, uint64_t id,
                                 uint64_t limit_bytes);

/* Space that the file takes, in bytes. */
uint64_t bnf_file_space(struct bnf_file *f);

#endif
