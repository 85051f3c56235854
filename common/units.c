/* Units: strict parsing and human printing of sizes, durations and rates.
 *
 * Called by the option table at start-up and by everything that prints for people. Pure functions.
 *
 * Parsing is integer arithmetic throughout: "3.5TB" is the digits 35 with one decimal place, times 10^12,
 * divided by 10^1, exact or refused. strtod() was rejected because it turns 3.5TB into a double, rounds
 * silently above 2^53, accepts "1e3", "0x10", "inf" and depends on the locale. 128-bit intermediates
 * make the overflow check one comparison.
 *
 * Refusing K, M, G is deliberate: a pool of 512M that is 4.9 % smaller than meant fails at 3 in the
 * morning, a refusal fails at once. */
#include "fp/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

__extension__ typedef unsigned __int128 u128;

struct unit {
    const char *suffix;
    uint64_t factor;
};

static const struct unit size_units[] = {
    {"", 1},
    {"B", 1},
    {"kB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
    {"TB", 1000000000000},
    {"PB", 1000000000000000},
    {"EB", 1000000000000000000},
    {"KiB", 1ull << 10},
    {"MiB", 1ull << 20},
    {"GiB", 1ull << 30},
    {"TiB", 1ull << 40},
    {"PiB", 1ull << 50},
    {"EiB", 1ull << 60},
    {NULL, 0},
};

static const struct unit duration_units[] = {
    {"ms", 1}, {"s", 1000}, {"min", 60000}, {"h", 3600000}, {"d", 86400000}, {NULL, 0},
};

static const char why_size[] = "not a size: write a number and a unit such as 512MiB, 3.5TB, or plain bytes";
static const char why_size_unit[] =
    "unknown unit: sizes take B, kB, MB, GB, TB, PB, EB (1000) or KiB, MiB, GiB, TiB, PiB, EiB (1024)";
static const char why_size_fraction[] = "is not a whole number of bytes: write it in a smaller unit";
static const char why_duration[] = "not a duration: write a number and a unit such as 500ms, 2s, 1h";
static const char why_duration_unit[] =
    "unknown unit: durations take ms, s, min, h or d, such as 500ms or 2s";
static const char why_duration_fraction[] = "is not a whole number of milliseconds";
static const char why_rate[] = "not a rate: write a size per second such as 200MB/s or 1.5GiB/s";
static const char why_overflow[] = "too large: does not fit in 64 bits";
static const char why_int[] = "not a whole number: write digits only";

struct whys {
    const char *syntax, *unit, *fraction;
};

static int fail(int err, const char *text, const char **why)
{
    if (why)
        *why = text;
    return err;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A decimal number: mantissa / 10^places. */
struct decimal {
    u128 mantissa;
    u128 divisor;
};

/* Reads digits[.digits] at *p and moves *p behind it. */
static int read_decimal(const char **p, struct decimal *d)
{
    const u128 limit = (u128)1 << 90;
    const char *s = *p;
    bool seen_dot = false;
    d->mantissa = 0;
    d->divisor = 1;
    if (!is_digit(*s))
        return -EINVAL;
    for (; is_digit(*s) || (*s == '.' && !seen_dot); s++) {
        if (*s == '.') {
            seen_dot = true;
            if (!is_digit(s[1]))
                return -EINVAL;
            continue;
        }
        if (d->mantissa >= limit / 10 || d->divisor >= limit / 10)
            return -ERANGE;
        d->mantissa = d->mantissa * 10 + (unsigned)(*s - '0');
        if (seen_dot)
            d->divisor *= 10;
    }
    while (d->divisor > 1 && d->mantissa % 10 == 0) {
        d->mantissa /= 10;
        d->divisor /= 10;
    }
    *p = s;
    return 0;
}

/* mantissa < 2^90 and factor < 2^60 + … could pass 2^128, so the product is bounded by division first. */
static int scale(const struct decimal *d, uint64_t factor, uint64_t *out, const struct whys *whys,
                 const char **why)
{
    u128 max = ~(u128)0;
    if (d->mantissa > max / factor)
        return fail(-ERANGE, why_overflow, why);
    u128 product = d->mantissa * factor;
    if (product / d->divisor > UINT64_MAX)
        return fail(-ERANGE, why_overflow, why);
    if (product % d->divisor != 0)
        return fail(-EINVAL, whys->fraction, why);
    *out = (uint64_t)(product / d->divisor);
    return 0;
}

static int parse_quantity(const char *text, const struct unit *units, const struct whys *whys, uint64_t *out,
                          const char **why)
{
    struct decimal d;
    const char *p = text;
    int rc = read_decimal(&p, &d);
    if (rc < 0)
        return fail(rc, rc == -ERANGE ? why_overflow : whys->syntax, why);
    if (*p == ' ' && p[1] != '\0')
        p++;
    for (const struct unit *u = units; u->suffix; u++) {
        if (strcmp(u->suffix, p) == 0)
            return scale(&d, u->factor, out, whys, why);
    }
    if (strcmp(p, "") == 0 && d.mantissa == 0) {
        *out = 0;
        return 0;
    }
    return fail(-EINVAL, *p == '.' || *p == ' ' || *p == '\0' ? whys->syntax : whys->unit, why);
}

int fp_parse_size(const char *text, uint64_t *bytes, const char **why)
{
    static const struct whys whys = {why_size, why_size_unit, why_size_fraction};
    return parse_quantity(text, size_units, &whys, bytes, why);
}

int fp_parse_duration(const char *text, uint64_t *ms, const char **why)
{
    static const struct whys whys = {why_duration, why_duration_unit, why_duration_fraction};
    return parse_quantity(text, duration_units, &whys, ms, why);
}

int fp_parse_rate(const char *text, uint64_t *bytes_per_s, const char **why)
{
    char size[64];
    size_t len = strlen(text);
    if (strcmp(text, "0") == 0) {
        *bytes_per_s = 0;
        return 0;
    }
    if (len < 3 || len - 2 >= sizeof size || strcmp(text + len - 2, "/s") != 0)
        return fail(-EINVAL, why_rate, why);
    memcpy(size, text, len - 2);
    size[len - 2] = '\0';
    static const struct whys whys = {why_rate, why_size_unit, why_size_fraction};
    return parse_quantity(size, size_units, &whys, bytes_per_s, why);
}

int fp_parse_int(const char *text, int64_t *value, const char **why)
{
    bool negative = *text == '-';
    const char *p = text + negative;
    uint64_t limit = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    uint64_t v = 0;
    if (*p == '\0')
        return fail(-EINVAL, why_int, why);
    for (; *p; p++) {
        if (!is_digit(*p))
            return fail(-EINVAL, why_int, why);
        unsigned digit = (unsigned)(*p - '0');
        if (v > (limit - digit) / 10)
            return fail(-ERANGE, why_overflow, why);
        v = v * 10 + digit;
    }
    *value = negative ? (int64_t)(0 - v) : (int64_t)v;
    return 0;
}

/* "12.3", "123", "1.5", "2": three digits, no trailing ".0". tenths avoids 10.0 for 9.96. */
static void print_scaled(char *buf, uint64_t value, uint64_t factor, const char *suffix)
{
    uint64_t whole = value / factor, rest = value % factor;
    uint64_t tenths = (uint64_t)(((u128)rest * 10 + factor / 2) / factor);
    if (tenths == 10) {
        whole++;
        tenths = 0;
    }
    if (whole >= 100 || tenths == 0)
        snprintf(buf, FP_UNITS_BUF, "%" PRIu64 " %s", whole + (whole >= 100 && tenths >= 5), suffix);
    else
        snprintf(buf, FP_UNITS_BUF, "%" PRIu64 ".%" PRIu64 " %s", whole, tenths, suffix);
}

static char *format_steps(char *buf, uint64_t value, const char *const *suffixes, uint64_t step, int n)
{
    uint64_t factor = 1;
    int i = 0;
    /* The next unit is taken as soon as rounding would print "1024 MiB" or "1000 MB". */
    while (i + 1 < n && (u128)value * 2 >= (u128)factor * (2 * step - 1)) {
        factor *= step;
        i++;
    }
    print_scaled(buf, value, factor, suffixes[i]);
    return buf;
}

char *fp_format_size(char buf[FP_UNITS_BUF], uint64_t bytes)
{
    static const char *const suffixes[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    return format_steps(buf, bytes, suffixes, 1024, 7);
}

char *fp_format_rate(char buf[FP_UNITS_BUF], uint64_t bytes_per_s)
{
    static const char *const suffixes[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s", "EB/s"};
    return format_steps(buf, bytes_per_s, suffixes, 1000, 7);
}

char *fp_format_duration(char buf[FP_UNITS_BUF], uint64_t ms)
{
    uint64_t s = ms / 1000;
    if (ms < 1000)
        snprintf(buf, FP_UNITS_BUF, "%" PRIu64 " ms", ms);
    else if (ms < 60000 - 50)
        print_scaled(buf, ms, 1000, "s");
    else if ((s = (ms + 500) / 1000) < 3600)
        snprintf(buf, FP_UNITS_BUF, "%" PRIu64 " min %" PRIu64 " s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(buf, FP_UNITS_BUF, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s % 3600 / 60);
    else
        snprintf(buf, FP_UNITS_BUF, "%" PRIu64 " d %" PRIu64 " h", s / 86400, s % 86400 / 3600);
    return buf;
}

/* The largest unit that divides the value; binary units win only with a smaller number in front. */
static const struct unit *exact_unit(const struct unit *units, uint64_t value)
{
    const struct unit *best = &units[0];
    for (const struct unit *u = units; u->suffix; u++) {
        if (value % u->factor == 0 && u->factor > best->factor)
            best = u;
    }
    return best;
}

char *fp_format_size_exact(char buf[FP_UNITS_BUF], uint64_t bytes)
{
    const struct unit *u = bytes ? exact_unit(size_units, bytes) : &size_units[0];
    snprintf(buf, FP_UNITS_BUF, "%" PRIu64 "%s", bytes / u->factor, u->suffix);
    return buf;
}

char *fp_format_duration_exact(char buf[FP_UNITS_BUF], uint64_t ms)
{
    const struct unit *u = ms ? exact_unit(duration_units, ms) : NULL;
    snprintf(buf, FP_UNITS_BUF, "%" PRIu64 "%s", u ? ms / u->factor : 0, u ? u->suffix : "");
    return buf;
}

char *fp_format_rate_exact(char buf[FP_UNITS_BUF], uint64_t bytes_per_s)
{
    const struct unit *u = exact_unit(size_units, bytes_per_s);
    if (bytes_per_s == 0)
        snprintf(buf, FP_UNITS_BUF, "0");
    else
        snprintf(buf, FP_UNITS_BUF, "%" PRIu64 "%s/s", bytes_per_s / u->factor, u->suffix);
    return buf;
}
