/*
 * Digests of pieces (see digest.h). Called on the workers of dedup, each with its own context.
 *
 * Where OpenSSL refuses SHA-1 (FIPS), it is refused here too, also if lanes.h could do it.
 *
 * The digest is fetched once per context: asking OpenSSL by name for each piece costs as much as 3 KiB of SHA-1.
 */
#include "digest.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "lanes.h"

struct digest {
    enum digest_kind kind;
    enum sha1_lanes lanes;
    EVP_MD *md;
    EVP_MD_CTX *ctx;
    XXH3_state_t *xxh;
};

void digest_free(struct digest *d)
{
    if (!d)
        return;
    EVP_MD_CTX_free(d->ctx);
    EVP_MD_free(d->md);
    XXH3_freeState(d->xxh);
    free(d);
}

struct digest *digest_new(enum digest_kind kind)
{
    struct digest *d = calloc(1, sizeof(*d));

    if (!d)
        return NULL;
    d->kind = kind;
    if (kind == DIGEST_XXH3) {
        d->xxh = XXH3_createState();
    } else {
        d->md = EVP_MD_fetch(NULL, kind == DIGEST_SHA1 ? "SHA1" : "SHA256", NULL);
        d->ctx = d->md ? EVP_MD_CTX_new() : NULL;
    }
    d->lanes = kind == DIGEST_SHA1 ? lanes_here() : LANES_NONE;
    if (d->xxh || d->ctx)
        return d;
    digest_free(d);
    return NULL;
}

uint32_t digest_bytes(enum digest_kind kind)
{
    return kind == DIGEST_SHA1 ? 20 : kind == DIGEST_SHA256 ? 32 : 16;
}

bool digest_is_strong(enum digest_kind kind)
{
    return kind != DIGEST_XXH3;
}

enum sha1_lanes digest_lanes(const struct digest *d)
{
    return d->lanes;
}

bool digest_use_lanes(struct digest *d, enum sha1_lanes how)
{
    if (how != LANES_NONE && (d->kind != DIGEST_SHA1 || !lanes_can(how)))
        return false;
    d->lanes = how;
    return true;
}

bool digest_begin(struct digest *d)
{
    if (d->xxh)
        return XXH3_128bits_reset(d->xxh) == XXH_OK;
    return EVP_DigestInit_ex2(d->ctx, d->md, NULL) == 1;
}

bool digest_add(struct digest *d, const void *data, size_t len_bytes)
{
    if (d->xxh)
        return XXH3_128bits_update(d->xxh, data, len_bytes) == XXH_OK;
    return EVP_DigestUpdate(d->ctx, data, len_bytes) == 1;
}

bool digest_end(struct digest *d, uint8_t out[DIGEST_MAX_BYTES])
{
    XXH128_canonical_t c;
    unsigned n = 0;

    memset(out, 0, DIGEST_MAX_BYTES);
    if (!d->xxh)
        return EVP_DigestFinal_ex(d->ctx, out, &n) == 1;
    XXH128_canonicalFromHash(&c, XXH3_128bits_digest(d->xxh));
    memcpy(out, &c, sizeof(c));
    return true;
}
