/* Hexadecimal digits, for keys and UUIDs. Pure; any thread. */
#ifndef FP_HEX_H
#define FP_HEX_H

#include <stdint.h>

/* 0 to 15, or -1 for anything but a digit. */
static inline int fp_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* The byte that the two digits at text say, or -1. The second is not looked at when the first is none. */
static inline int fp_hex_byte(const char *text)
{
    int hi = fp_hex_digit(text[0]), lo = hi < 0 ? -1 : fp_hex_digit(text[1]);
    return lo < 0 ? -1 : hi << 4 | lo;
}

/* Writes two digits, in small letters; no NUL. */
static inline void fp_hex_put(char *text, uint8_t byte)
{
    static const char digits[] = "0123456789abcdef";
    text[0] = digits[byte >> 4];
    text[1] = digits[byte & 15];
}

#endif
