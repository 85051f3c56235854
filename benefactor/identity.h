/* The contributed directory: whose it is, and that nobody else uses it. Start-up only; blocks. */
#ifndef BNF_IDENTITY_H
#define BNF_IDENTITY_H

#include <stdbool.h>

#include "fp/uuid.h"

struct bnf_dir {
    const char *path; /* borrowed */
    int fd;           /* DIR */
    int lock_fd;
    int segments_fd; /* DIR/segments */
    bool known;      /* DIR/benefactor.json or the segments say who it is: both UUIDs are set */
    bool made, made_segments, made_lock; /* by bnf_dir_open */
    struct fp_uuid store;
    struct fp_uuid bnf;
};

/* Makes DIR and DIR/segments if missing (mode 0700), locks DIR, reads DIR/benefactor.json; a new benefactor
 * UUID is made if there is none. If that file is damaged or lost, what the segments say, and it is written anew. Errors are logged, one line that says what to do; then nothing is held, and nothing new is
 * left. */
int bnf_dir_open(const char *path, struct bnf_dir *d);

/* Writes DIR/benefactor.json for this store: whole or not at all, durable. Logged. */
int bnf_dir_claim(struct bnf_dir *d, const uint8_t store_uuid[16]);

void bnf_dir_close(struct bnf_dir *d);

/* The start was refused before the directory was claimed: takes away what bnf_dir_open made. Before bnf_dir_close. */
void bnf_dir_undo(const struct bnf_dir *d);

#endif
