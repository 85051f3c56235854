/* XXH3 of much data at the speed of the processor that it runs on.
 *
 * Programs are built for any processor of their architecture, which is SSE2 on x86. libxxhash has functions
 * that look for AVX2 and AVX-512 (x86, when it was built with them, as it is in Debian); they are called
 * here where it has them. Measured, for 64 KiB that lie in the cache: 25 us for a MiB in place of 80. For
 * small things the plain functions are as good. Values are the same. Under a sanitizer the plain ones do
 * all: what the library reads nobody watches, and common/checksum.c has them inline.
 *
 * All functions: any thread, never block, no allocation. data needs no alignment. */
#ifndef FP_XXH3_H
#define FP_XXH3_H

#include <stdbool.h>
#include <stddef.h>
#include <xxhash.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define FP_XXH3_PLAIN true
#endif
#endif
#if !defined(FP_XXH3_PLAIN)
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FP_XXH3_PLAIN true
#else
#define FP_XXH3_PLAIN false
#endif
#endif

/* As xxh_x86dispatch.h declares them, which is not installed with every libxxhash. NULL: it has none. */
extern XXH64_hash_t XXH3_64bits_dispatch(const void *data, size_t len_bytes) __attribute__((weak));
extern XXH_errorcode XXH3_64bits_update_dispatch(XXH3_state_t *state, const void *data, size_t len_bytes) __attribute__((weak));
extern XXH_errorcode XXH3_128bits_update_dispatch(XXH3_state_t *state, const void *data, size_t len_bytes) __attribute__((weak));

static inline XXH64_hash_t fp_xxh3_64(const void *data, size_t len_bytes)
{
    return !FP_XXH3_PLAIN && XXH3_64bits_dispatch ? XXH3_64bits_dispatch(data, len_bytes) : XXH3_64bits(data, len_bytes);
}

/* The state is one of libxxhash: not where xxHash was included with XXH_INLINE_ALL. */
#ifndef XXH_INLINE_ALL
static inline XXH_errorcode fp_xxh3_64_update(XXH3_state_t *state, const void *data, size_t len_bytes)
{
    return !FP_XXH3_PLAIN && XXH3_64bits_update_dispatch ? XXH3_64bits_update_dispatch(state, data, len_bytes)
                                                         : XXH3_64bits_update(state, data, len_bytes);
}

static inline XXH_errorcode fp_xxh3_128_update(XXH3_state_t *state, const void *data, size_t len_bytes)
{
    return !FP_XXH3_PLAIN && XXH3_128bits_update_dispatch ? XXH3_128bits_update_dispatch(state, data, len_bytes)
                                                          : XXH3_128bits_update(state, data, len_bytes);
}
#endif

#endif
