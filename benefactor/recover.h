/* Recovery: what is in DIR/segments goes into the store, at start. */
#ifndef BNF_RECOVER_H
#define BNF_RECOVER_H

#include <stdbool.h>
#include <stdint.h>

#include "benefactor/backend.h"
#include "benefactor/store.h"

struct bnf_recover_config {
    struct bnf_backend *backend; /* of kind "dir" */
    int dir_fd;                  /* DIR/segments */
    const uint8_t *store_uuid;   /* 16 bytes each */
    const uint8_t *bnf_uuid;
    unsigned threads;
    /* A segment is in the store under this slot; takes the reference. Calls never overlap. */
    void (*found)(void *arg, uint32_t slot, struct bnf_file *f);
    void *arg;
};

struct bnf_recover_result {
    uint64_t segments;
    uint64_t set_aside; /* damaged or foreign: not touched, one line each */
    uint64_t records;
    uint64_t bytes;      /* of records */
    uint64_t duplicates; /* second copies, punched */
    uint64_t torn;       /* places where the next valid header had to be looked for */
    bool read_only;      /* the file system can't be written */
};

/* Before anything else is done with s (bnf_store_start comes after). Blocks; starts `threads` threads and
 * joins them. -ENOMEM, or the errno of a directory that can't be read. What is wrong with one segment is
 * logged and no failure. */
int bnf_recover(const struct bnf_recover_config *c, struct bnf_store *s, struct bnf_recover_result *out);

#endif
