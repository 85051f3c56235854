/* Options of fp-manager. */
#ifndef MGR_OPTIONS_H
#define MGR_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "fp/opt.h"

struct mgr_options {
    const char *dir;
    struct fp_addr listen;
    const char *key;
    bool create_key;
    bool versions;
    int64_t ready_fd;
    uint64_t cache_bytes;
    uint64_t aux_table_bytes;
    uint64_t session_timeout_ms;
    uint64_t orphan_grace_ms;
    uint64_t bnf_timeout_ms;
    bool checkpoints;
    uint64_t ckpt_quiet_ms, ckpt_late_ms;
    uint64_t chunk_size_bytes; /* 0: as the store has it */
    int64_t stripe;            /* 0: likewise */
    int64_t inodes_max;
    bool ignore_term;
    int log_level;
};

/* Exits after --help and the like (0) and after a mistake (2). */
void mgr_options_parse(struct mgr_options *o, int argc, char **argv);

#endif
