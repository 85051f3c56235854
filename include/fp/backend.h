/* Where a benefactor keeps chunks, as a user says it: --backend of fp-benefactor and fp-store.
 *
 *     dir                                            files of --dir
 *     memory                                         memory of the process
 *     memory:buffers=3                               as that many equal buffers, which are filled one after the other (the paper's triple buffering)
 *     memory:buffers=3,buffer=256MiB                 of that size each; without buffers=, as many as --size has room for
 *     emulated                                       files of --dir, as slow as an Intel X25-E (the paper's SSD)
 *     emulated:write=500MB/s,read=1GB/s,over=memory  memory, as slow as that (words of fp/limiter.h)
 *
 * Pure functions, any thread, nothing blocks. */
#ifndef FP_BACKEND_H
#define FP_BACKEND_H

#include <stdbool.h>
#include <stdint.h>

#include "fp/limiter.h"

enum fp_backend_kind { FP_BACKEND_DIR, FP_BACKEND_MEMORY };

struct fp_backend_spec {
    enum fp_backend_kind kind;     /* where the bytes really are */
    bool emulated;
    struct fp_limiter_spec speed;  /* if emulated */
    unsigned buffers;              /* 0: not said */
    uint64_t buffer_bytes;         /* 0: not said; both 0: it is not in buffers */
};

#define FP_BACKEND_BUFFERS_MIN 2u
#define FP_BACKEND_BUFFERS_MAX 64u
#define FP_BACKEND_BUFFER_MIN_BYTES ((uint64_t)32 << 20) /* the largest records go into one */

/* A record of the largest size takes less than a second on such a device: who waits for an operation gives a device up that takes five. */
#define FP_BACKEND_BPS_MIN  20000000u
#define FP_BACKEND_IOPS_MIN 100u

#define FP_BACKEND_WHY_BUF 320

/* 0, or -EINVAL with what is wrong, and what is meant, in why. *out is set on success only. */
int fp_backend_parse(const char *text, struct fp_backend_spec *out, char why[FP_BACKEND_WHY_BUF]);

/* What buffers of this back end come to in a --size: sets spec->buffers and buffer_bytes, if it is in buffers. -EINVAL with why: they do not fit. */
int fp_backend_divide(struct fp_backend_spec *spec, uint64_t size_bytes, char why[FP_BACKEND_WHY_BUF]);

#endif
