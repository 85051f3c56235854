/*
 * Content-defined chunking alone, on one core: `cdcbench [PATH]` with PATH 0 the best of this processor, 1 scalar, 2 AVX2, 3 AVX-512.
 *
 * Called by tools/bench/cases_pipeline.py; prints one JSON object. Does to random data what dedup does to a chunk before it digests it: 1 MiB in parts of
 * 64 KiB is scanned and cut. The data is 256 MiB, more than any cache holds, as what comes from an application is.
 * Time is that of the thread: what the code takes, whoever else is on the core.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "auxapps/dedup/cdc.h"

#define CHUNK_BYTES (1u << 20)
#define PART_BYTES  (64u << 10)
#define CHUNKS      256u
#define AVG_BYTES   (16u << 10) /* dedup's default */

static double thread_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static unsigned chunk(const struct cdc *c, struct cdc_map *m, const uint8_t *data)
{
    unsigned pieces = 0;
    for (uint32_t at = 0; at < CHUNK_BYTES; at += PART_BYTES)
        cdc_scan(c, m, at, data + at, PART_BYTES, at ? data + at - CDC_WINDOW_BYTES : NULL);
    for (uint32_t from = 0; from < CHUNK_BYTES; pieces++)
        from = cdc_cut(c, m, from, CHUNK_BYTES);
    return pieces;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"", "scalar", "avx2", "avx512"};
    static uint64_t strict[CHUNK_BYTES / 64], loose[CHUNK_BYTES / 64];
    struct cdc_map map = {.strict = strict, .loose = loose, .len_bytes = CHUNK_BYTES};
    int wanted = argc > 1 ? atoi(argv[1]) : 0, path = cdc_use(wanted);
    uint8_t *data = malloc((size_t)CHUNKS * CHUNK_BYTES);
    unsigned long long pieces = 0, x = 88172645463325252u;
    struct cdc cdc;

    if (!data || path < 1 || path > 3) {
        fprintf(stderr, "cdcbench: no memory\n");
        return 1;
    }
    for (size_t i = 0; i < (size_t)CHUNKS * CHUNK_BYTES; i += sizeof x) {
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        memcpy(data + i, &x, sizeof x);
    }
    cdc_init(&cdc, AVG_BYTES);
    double start = thread_s();
    for (unsigned i = 0; i < CHUNKS; i++)
        pieces += chunk(&cdc, &map, data + (size_t)i * CHUNK_BYTES);
    printf("{\"path\":\"%s\",\"bytes\":%llu,\"seconds\":%.6f,\"pieces\":%llu}\n", wanted == 0 || wanted == path ? names[path] : "none",
           (unsigned long long)CHUNKS * CHUNK_BYTES, thread_s() - start, pieces);
    free(data);
    return 0;
}
