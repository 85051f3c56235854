/* SHA-1 of sixteen pieces at once, on processors with AVX-512 (sha1x2.h says why there is a SHA-1 of our own). */
#ifndef DEDUP_SHA1X16_H
#define DEDUP_SHA1X16_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SHA1X16_LANES 16u

/* Has this processor the instructions? sha1x16 must not be called without. */
bool sha1x16_is_there(void);
/* Goes on with so many whole blocks of each message; h[i][lane] is word i of its state. */
void sha1x16(uint32_t h[5][SHA1X16_LANES], const uint8_t *const data[SHA1X16_LANES], size_t blocks);

#endif
