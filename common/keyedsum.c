/* Sums under the store's key (see fp/keyedsum.h).
 *
 * Called by fp-mount for chunks that an aux-app hides: fp_keyedsum_init once at its start, fp_keyedsum on store and FUSE threads, once for each
 * chunk of a MiB: 1 us, since what is summed is not the data but XXH3s of it.
 *
 * XXH3 with a secret was rejected: it is no MAC, and its 64 bits tell more of the data than its author means them to. A secret of the aux-app
 * that hides was rejected: it would come from the host, whose memory a plugin can spoil, and with a wrong one everything stored would be
 * unreadable. The number of the secret is there for a store that gets another key: its old chunks can't be checked by this sum any more, which
 * must not make them unreadable. */
#include "fp/keyedsum.h"

#include <errno.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

#include "fp/le.h"

#define SUM_MASK ((UINT64_C(1) << 48) - 1)

static int hmac(const uint8_t *key, size_t key_bytes, const void *msg, size_t len, uint8_t out[32])
{
    unsigned n = 0;

    return HMAC(EVP_sha256(), key, (int)key_bytes, msg, len, out, &n) && n == 32 ? 0 : -EIO;
}

int fp_keyedsum_init(struct fp_keyedsum *k, const struct fp_key *key)
{
    static const char for_sums[] = "fpstore sums of hidden data", for_number[] = "number";
    uint8_t digest[32];
    int rc = hmac(fp_key_bytes(key), FP_KEY_BYTES, for_sums, sizeof for_sums - 1, k->secret);

    if (rc == 0)
        rc = hmac(k->secret, sizeof k->secret, for_number, sizeof for_number - 1, digest);
    k->number = rc == 0 ? fp_get16(digest) : 0;
    return rc;
}

int fp_keyedsum(const struct fp_keyedsum *k, const void *msg, size_t len_bytes, uint64_t *out)
{
    uint8_t digest[32];
    int rc = hmac(k->secret, sizeof k->secret, msg, len_bytes, digest);

    if (rc == 0)
        *out = (uint64_t)k->number << 48 | (fp_get64(digest) & SUM_MASK);
    return rc;
}

bool fp_keyedsum_is_ours(const struct fp_keyedsum *k, uint64_t sum)
{
    return sum >> 48 == k->number;
}
