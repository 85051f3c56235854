/*
 * Content-defined chunking: where to cut data into pieces so that the same bytes are cut the same way wherever they have moved to.
 *
 * In the manner of FastCDC (Xia et al., USENIX ATC 2016): a gear hash of the last 32 bytes behind a cheaper test of the last 8, a stricter condition before the wanted
 * size and a looser one after it. Pure functions; the SIMD paths find exactly the cuts of the scalar one.
 */
#ifndef DEDUP_CDC_H
#define DEDUP_CDC_H

#include <stddef.h>
#include <stdint.h>

#define CDC_WINDOW_BYTES 32u           /* a cut depends on so many bytes before it */
#define CDC_MIN_BYTES 4096u            /* FP_AUX_PIECE_MIN_BYTES: smaller pieces can't be referred to */

struct cdc {                           /* sizes in bytes; see cdc_init */
    uint32_t min_bytes, normal_bytes, max_bytes;
    uint32_t first_end, strict_mask, loose_mask;
};

/* Places where data may be cut: bit i of a map: between byte i - 1 and byte i. */
struct cdc_map {
    uint64_t *strict, *loose;      /* (len_bytes + 63) / 64 words each */
    uint32_t len_bytes;
};

/* Pieces of about avg_bytes (4 KiB to 1 MiB, rounded down to a power of two; less of it on random data, more on what has periods): a quarter of it and CDC_MIN_BYTES
 * at least, four times at most. */
void cdc_init(struct cdc *c, uint32_t avg_bytes);

/*
 * Fill the map's words for part data[len_bytes], which begins at byte `at` (a multiple of 64) of the whole. before: the CDC_WINDOW_BYTES bytes that come
 * before it, NULL at the beginning: there the first 31 places are no cuts.
 */
void cdc_scan(const struct cdc *c, struct cdc_map *m, uint32_t at, const uint8_t *data, uint32_t len_bytes, const uint8_t *before);

/* End of the piece that begins at `from`, at most `to`. */
uint32_t cdc_cut(const struct cdc *c, const struct cdc_map *m, uint32_t from, uint32_t to);

/* For tests and the benchmark: 0 the best this processor has, 1 scalar, 2 AVX2, 3 AVX-512. Returns what is used now. Not while others scan. */
int cdc_use(int path);

#endif
