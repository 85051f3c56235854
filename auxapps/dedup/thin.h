/*
 * Which stored chunks are kept for little: what the next version would refer to in them is stored anew instead, so that they go with the older versions.
 *
 * A stored chunk stays as long as anything refers to any part of it. If each version changes some of every chunk, and what is unchanged is referred to for ever,
 * ever smaller shares keep all chunks of all versions, and the store grows to a multiple of the file. Log-structured file systems clean for this
 * reason (Rosenblum and Ousterhout, 1992); here no data is moved, it only is not referred to any more.
 *
 * Pure. Filled by one thread, then read by many.
 */
#ifndef DEDUP_THIN_H
#define DEDUP_THIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct thin_chunk { uint64_t chunk; uint32_t data_bytes, used_bytes; };

struct thin {
    double share;                  /* less than this of a chunk in use is too little; 0: nothing is */
    struct thin_chunk *list;
    uint32_t n, cap;
    bool decided;                  /* list: those that are not referred to, by chunk */
    uint64_t used_bytes;           /* of all chunks told */
    uint64_t free_bytes;           /* the least that was told */
};

/* Files that are being written beside this one: what they have in use of earlier versions, and what of it they may store anew. */
struct thin_others { uint64_t used_bytes, anew_bytes; };

void thin_init(struct thin *t, double share);
/* A chunk of the earlier version. Where there is no memory, it is no thin one. */
void thin_tell(struct thin *t, uint64_t chunk, uint32_t data_bytes, uint32_t unused_bytes, uint64_t free_bytes);
/* True: it may turn out to be thin. Before thin_decide. */
bool thin_may_be(const struct thin *t, uint32_t data_bytes, uint32_t unused_bytes);
/* So much may be stored anew by one file. */
uint64_t thin_most(uint64_t free_bytes, const struct thin_others *others);
/* All were told: which of them are thin? Not more than `most` bytes; returns how many. */
uint64_t thin_decide(struct thin *t, uint64_t most, const struct thin_others *others);
/* After that. */
bool thin_is(const struct thin *t, uint64_t chunk);
void thin_clear(struct thin *t);

#endif
