/* Sums that only who has the store's key can make: of data that the store must not tell anything about (FP_AUX_HIDES), kept beside its hidden form.
 *
 * HMAC-SHA256 under a secret that is derived from the store's key, cut to 48 bits, and the number of that secret in the upper 16. It finds
 * what went wrong on the way; against who changes bytes on purpose stand what hides the data, and TLS. Any thread. */
#ifndef FP_KEYEDSUM_H
#define FP_KEYEDSUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fp/key.h"

#define FP_KEYEDSUM_SECRET_BYTES 32

struct fp_keyedsum {
    uint8_t secret[FP_KEYEDSUM_SECRET_BYTES];
    uint16_t number; /* tells one secret from another, and nothing else of it */
};

/* -EIO: OpenSSL can't. Wipe with OPENSSL_cleanse or explicit_bzero. */
int fp_keyedsum_init(struct fp_keyedsum *k, const struct fp_key *key);
/* -EIO: OpenSSL can't. */
int fp_keyedsum(const struct fp_keyedsum *k, const void *msg, size_t len_bytes, uint64_t *out);
/* Was this sum made with this secret? If not, nothing can be said of the data. (1 in 65536 others looks as if.) */
bool fp_keyedsum_is_ours(const struct fp_keyedsum *k, uint64_t sum);

#endif
