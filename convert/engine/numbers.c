/*
 * Byte order, fill values and NaN of elements (numbers.h). Called for each tile. Pure.
 *
 * The loops over whole tiles have one width each, which compilers turn into vector instructions. NaN is looked for in the bytes as they are stored: the exponent all ones and a fraction that is
 * not zero; no conversion to a floating point value, which a signalling NaN might not survive.
 */
#include <byteswap.h>
#include <math.h>
#include <string.h>

#include "convert/engine/numbers.h"

#define MACHINE_BIG (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__)

/* Of what is turned: a complex number is two. */
static unsigned half_bytes(struct cv_type t)
{
    return t.kind == CV_COMPLEX ? t.size_bytes / 2u : t.size_bytes;
}

#define TURN(bits)                                           \
    static void turn_##bits(uint8_t *data, uint64_t n)       \
    {                                                        \
        for (uint64_t i = 0; i < n; i++) {                   \
            uint##bits##_t v;                                \
            memcpy(&v, data + i * sizeof v, sizeof v);       \
            v = bswap_##bits(v);                             \
            memcpy(data + i * sizeof v, &v, sizeof v);       \
        }                                                    \
    }
TURN(16)
TURN(32)
TURN(64)

void cv_numbers_turn(uint8_t *data, uint64_t elements, struct cv_type type)
{
    unsigned half = half_bytes(type);
    uint64_t n = elements * (type.size_bytes / half);

    if (type.big_endian == MACHINE_BIG)
        return;
    if (half == 2)
        turn_16(data, n);
    else if (half == 4)
        turn_32(data, n);
    else if (half == 8)
        turn_64(data, n);
}

static void put_int(uint8_t *out, unsigned size, double v, const int64_t *exact)
{
    int64_t whole = exact ? *exact : v >= 9223372036854775808.0 ? (int64_t)(uint64_t)v : (int64_t)v;

    memcpy(out, MACHINE_BIG ? (uint8_t *)&whole + 8 - size : (uint8_t *)&whole, size);
}

static void put_float(uint8_t *out, unsigned size, double v)
{
    float small = (float)v;

    memcpy(out, size == 4 ? (void *)&small : (void *)&v, size);
}

void cv_numbers_fill_value(uint8_t *out, const struct cv_dataset *d)
{
    bool is_float = d->type.kind == CV_FLOAT || d->type.kind == CV_COMPLEX;
    double v = d->has_fill ? d->fill : is_float ? NAN : 0;
    unsigned half = half_bytes(d->type);

    memset(out, 0, 16);
    if (!is_float)
        put_int(out, half, v, d->has_fill && d->fill_is_whole ? &d->fill_whole : NULL);
    else
        put_float(out, half, v);
    if (d->type.kind == CV_COMPLEX && !d->has_fill)
        put_float(out + half, half, v);
}

void cv_numbers_fill(uint8_t *data, uint64_t elements, const struct cv_dataset *d)
{
    uint8_t one[16];

    cv_numbers_fill_value(one, d);
    cv_numbers_turn(one, 1, d->type); /* turned back with all else */
    for (uint64_t i = 0; i < elements; i++)
        memcpy(data + i * d->type.size_bytes, one, d->type.size_bytes);
}

static bool nan_at(const uint8_t *p, unsigned size, bool big)
{
    uint32_t narrow;
    uint64_t wide;

    if (size == 4) {
        memcpy(&narrow, p, sizeof narrow);
        narrow = big == MACHINE_BIG ? narrow : bswap_32(narrow);
        return (narrow & 0x7fffffffu) > 0x7f800000u;
    }
    memcpy(&wide, p, sizeof wide);
    wide = big == MACHINE_BIG ? wide : bswap_64(wide);
    return (wide & 0x7fffffffffffffffu) > 0x7ff0000000000000u;
}

static bool nan_in_row(const uint8_t *data, uint64_t step, uint64_t n, struct cv_type t, uint64_t *at)
{
    unsigned half = half_bytes(t);

    for (uint64_t i = 0; i < n; i++)
        for (unsigned k = 0; k < t.size_bytes; k += half)
            if (nan_at(data + i * step + k, half, t.big_endian)) {
                *at = i * step;
                return true;
            }
    return false;
}

bool cv_numbers_nan(const uint8_t *data, const uint64_t *step, const uint64_t *count, unsigned rank, struct cv_type type, uint64_t *at_bytes)
{
    if (type.kind != CV_FLOAT && type.kind != CV_COMPLEX)
        return false;
    if (rank == 0)
        return nan_in_row(data, 0, 1, type, at_bytes);
    if (rank == 1)
        return nan_in_row(data, step[0], count[0], type, at_bytes);
    for (uint64_t i = 0; i < count[0]; i++)
        if (cv_numbers_nan(data + i * step[0], step + 1, count + 1, rank - 1, type, at_bytes)) {
            *at_bytes += i * step[0];
            return true;
        }
    return false;
}
