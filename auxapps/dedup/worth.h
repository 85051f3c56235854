/*
 * Which chunks dedup wants to see: as payoff.h decides, and told to the host, so that the others do not come (fp_aux_skip), and to the user ("on", the log).
 */
#ifndef DEDUP_WORTH_H
#define DEDUP_WORTH_H

#include <pthread.h>

#include "fp/auxapp.h"
#include "payoff.h"

struct worth {
    struct fp_aux_host *host;
    pthread_mutex_t lock;          /* a leaf; for what follows */
    struct payoff payoff;
    uint64_t come_bytes, passed_bytes; /* of all chunks; that never came */
    unsigned unwanted;             /* chunks that came though they need not have */
    pthread_mutex_t telling;       /* one at a time tells the host what need not come; taken before lock */
    bool told;                     /* telling: something need not */
};

/* least: the share of duplicates that pays, 0 to 1. Once, before any of the others; worth_fini also for one that is all zeros. */
void worth_init(struct worth *w, struct fp_aux_host *host, double least);
void worth_fini(struct worth *w);
/* A chunk has come. Is it to be looked at? Any worker. */
bool worth_wants(struct worth *w, const struct fp_aux_chunk *k);
/* Of so many bytes of a chunk that was, so many had a duplicate; alone, could: as in payoff_note. Any worker. */
void worth_note(struct worth *w, uint64_t looked_bytes, uint64_t same_bytes, bool alone, bool could);

#endif
