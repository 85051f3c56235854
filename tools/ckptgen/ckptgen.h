/* ckptgen: parts of the checkpoint generator. An ordinary MPI program: it knows nothing of fpstore. */
#ifndef CKPTGEN_H
#define CKPTGEN_H

#include <stdbool.h>
#include <stdint.h>

struct options {
    const char *dir;
    uint64_t size_bytes;           /* of one rank's part of a checkpoint */
    uint64_t unit_bytes;           /* what is a duplicate or new as a whole */
    uint64_t transfer_bytes;       /* of one write or read */
    uint64_t seed;
    double ratio;                  /* of duplicates of the step before, 0 to 1 */
    int steps;
    int compute_ms;
    int keep;                      /* checkpoints; 0: all */
    bool shared, in_place, fsync, verify, verify_only;
};

/* argv into *o, or a line on stderr and false. Every rank gets the same answer; only rank 0 prints. */
bool options_parse(struct options *o, int argc, char **argv, bool print);

/* ---- content.c: what a rank's state is at each step. Pure. */

struct content {
    const struct options *o;
    uint64_t units;
    uint64_t new_units;            /* that change with each step: units - round(ratio * units) */
    uint64_t stride;               /* changed units are spread by this, which has no divisor in common with units */
};

void content_init(struct content *c, const struct options *o);
/* Bytes of a checkpoint that none of the steps before has. */
uint64_t content_new_bytes(const struct content *c, int step);
/* buf gets [off, off + len) of what `rank` has at `step`; off and len are multiples of 8 but at the end. */
void content_fill(const struct content *c, int rank, int step, uint64_t off, void *buf, uint64_t len);

#endif
