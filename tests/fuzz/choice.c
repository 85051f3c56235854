/* The choices of an input (fuzz.h). Called by the harnesses, on their only thread. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/log.h"
#include "tests/fuzz/fuzz.h"

void __wrap_fp_log(enum fp_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void __wrap_fp_log_limited(struct fp_log_limit *limit, uint64_t interval_ms, enum fp_log_level level, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static uint64_t take(struct fuzz_in *in, unsigned bytes)
{
    uint64_t v = 0;

    for (unsigned i = 0; i < bytes && in->at < in->end; i++)
        v |= (uint64_t)*in->at++ << 8 * i;
    return v;
}

uint8_t fuzz_u8(struct fuzz_in *in)
{
    return (uint8_t)take(in, 1);
}

uint16_t fuzz_u16(struct fuzz_in *in)
{
    return (uint16_t)take(in, 2);
}

uint32_t fuzz_u32(struct fuzz_in *in)
{
    return (uint32_t)take(in, 4);
}

uint64_t fuzz_u64(struct fuzz_in *in)
{
    return take(in, 8);
}

uint32_t fuzz_below(struct fuzz_in *in, uint32_t n)
{
    return (n <= 256 ? fuzz_u8(in) : fuzz_u32(in)) % n;
}

uint64_t fuzz_number(struct fuzz_in *in)
{
    static const uint64_t at[] = {0,          1,          2,          3,         4,         7,          8,         255,
                                  256,        4095,       4096,       4097,      65535,     65536,      65537,     1u << 20,
                                  16u << 20,  INT32_MAX,  1u << 31,   UINT32_MAX, 1ull << 32, 1ull << 40, INT64_MAX, 1ull << 63,
                                  UINT64_MAX};
    uint8_t c = fuzz_u8(in);

    if (c < 4 * (sizeof at / sizeof *at))
        return at[c / 4] + (c % 4 == 3 ? 1 : 0) - (c % 4 == 2 ? 1 : 0);
    return take(in, c < 160 ? 1 : c < 200 ? 2 : c < 230 ? 4 : 8);
}

size_t fuzz_bytes(struct fuzz_in *in, uint8_t *out, size_t max)
{
    size_t n = fuzz_left(in) < max ? fuzz_left(in) : max;

    if (n > 0)
        memcpy(out, in->at, n);
    in->at += n;
    return n;
}

/* Thousands of lines a second are of no use, but they must be such as can be made. */
void __wrap_fp_log(enum fp_log_level level, const char *fmt, ...)
{
    char line[2048];
    va_list ap;

    (void)level;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
}

void __wrap_fp_log_limited(struct fp_log_limit *limit, uint64_t interval_ms, enum fp_log_level level, const char *fmt, ...)
{
    char line[2048];
    va_list ap;

    (void)limit, (void)interval_ms, (void)level;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
}

void fuzz_failed(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
    abort();
}
