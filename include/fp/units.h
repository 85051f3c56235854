/* Sizes, durations and rates as people write them: strict parsing, human printing.
 *
 * Sizes: a decimal number and one of  B kB MB GB TB PB EB (powers of 1000)  KiB MiB GiB TiB PiB EiB
 * (powers of 1024); no suffix = bytes. Case matters. K, M, G, KB, mb … are refused, because people
 * disagree on what they mean. A fraction is fine while the result is a whole number of bytes: 3.5TB is
 * exactly 3500000000000; 0.3B is an error. Between number and unit one space is allowed.
 * Durations: ms s min h d, whole milliseconds; a bare number is refused (2 what?), except 0.
 * Rates: a size followed by "/s"; except 0.
 *
 * Parsers return 0, -EINVAL (not understood) or -ERANGE (does not fit 64 bits); on error *out is left
 * alone and, if why is not NULL, *why is static text for the user. Any thread, never block. */
#ifndef FP_UNITS_H
#define FP_UNITS_H

#include <stddef.h>
#include <stdint.h>

#define FP_KIB(n)     ((uint64_t)(n) << 10)
#define FP_MIB(n)     ((uint64_t)(n) << 20)
#define FP_GIB(n)     ((uint64_t)(n) << 30)
#define FP_TIB(n)     ((uint64_t)(n) << 40)

#define FP_SEC_MS(n)  ((uint64_t)(n)*1000u)
#define FP_MIN_MS(n)  ((uint64_t)(n)*60000u)
#define FP_HOUR_MS(n) ((uint64_t)(n)*3600000u)

int fp_parse_size(const char *text, uint64_t *bytes, const char **why);
int fp_parse_duration(const char *text, uint64_t *ms, const char **why);
int fp_parse_rate(const char *text, uint64_t *bytes_per_s, const char **why);

/* Strict decimal integer, optional leading '-'; no other character. */
int fp_parse_int(const char *text, int64_t *value, const char **why);

#define FP_UNITS_BUF 40

/* For people, about 3 digits: "1.5 GiB", "340 ms", "2.4 s", "3 min 20 s", "200 MB/s". Each returns buf. */
char *fp_format_size(char buf[FP_UNITS_BUF], uint64_t bytes);
char *fp_format_duration(char buf[FP_UNITS_BUF], uint64_t ms);
char *fp_format_rate(char buf[FP_UNITS_BUF], uint64_t bytes_per_s);

/* Exact and parseable by the functions above: "512MiB", "3500GB", "4097", "90s", "200MB/s". */
char *fp_format_size_exact(char buf[FP_UNITS_BUF], uint64_t bytes);
char *fp_format_duration_exact(char buf[FP_UNITS_BUF], uint64_t ms);
char *fp_format_rate_exact(char buf[FP_UNITS_BUF], uint64_t bytes_per_s);

#endif
