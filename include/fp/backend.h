/* Where a benefactor keeps chunks, as a user says it: --backend of fp-benefactor and fp-store.
 *
 *     dir                                            files of --dir
 *     memory                                         memory of the process
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
};

/* A record of the largest size takes less than a second on such a device: who waits for an operation gives a device up that takes five. */
#define FP_BACKEND_BPS_MIN  20000000u
#define FP_BACKEND_IOPS_MIN 100u

#define FP_BACKEND_WHY_BUF 320

/* 0, or -EINVAL with what is wrong, and what is meant, in why. *out is set on success only. */
int fp_backend_parse(const char *text, struct fp_backend_spec *out, char why[FP_BACKEND_WHY_BUF]);

#endif
