/* Digests of pieces: SHA-1 and SHA-256 through OpenSSL (SHA-1 also by lanes.h; sha1x2.h says why), XXH3 of 128 bits. One struct per thread. */
#ifndef DEDUP_DIGEST_H
#define DEDUP_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIGEST_MAX_BYTES 32u

enum digest_kind { DIGEST_SHA1 = 1, DIGEST_SHA256 = 2, DIGEST_XXH3 = 3 }; /* numbers stand in notes: never reuse one */

struct digest;

/* NULL: no memory, or OpenSSL refuses the digest (FIPS). Freed with digest_free. */
struct digest *digest_new(enum digest_kind kind);
void digest_free(struct digest *d);

uint32_t digest_bytes(enum digest_kind kind);
/* Equal digests prove equal bytes; else they have to be compared. */
bool digest_is_strong(enum digest_kind kind);

/* How lanes.h digests several pieces at a time, which is faster than what follows and gives the same; NONE: not at all (another digest, another processor). */
enum sha1_lanes {
    LANES_NONE,
    LANES_2,                       /* SHA-NI */
    LANES_16_ALONE,                /* AVX-512 */
    LANES_16,                      /* AVX-512, and SHA-NI for the last ones */
};
enum sha1_lanes digest_lanes(const struct digest *d);
/* For tests: this way. False: this processor or this digest can't. */
bool digest_use_lanes(struct digest *d, enum sha1_lanes how);

/* Begin, add parts, end: out gets digest_bytes(). False: OpenSSL failed. */
bool digest_begin(struct digest *d);
bool digest_add(struct digest *d, const void *data, size_t len_bytes);
bool digest_end(struct digest *d, uint8_t out[DIGEST_MAX_BYTES]);

#endif
