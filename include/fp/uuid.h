/* UUIDs (RFC 9562, version 4): of stores and benefactors. Any thread, never block. */
#ifndef FP_UUID_H
#define FP_UUID_H

#include <stdbool.h>
#include <stdint.h>

#define FP_UUID_BYTES 16
#define FP_UUID_BUF   37 /* 8-4-4-4-12 and NUL */

struct fp_uuid {
    uint8_t b[FP_UUID_BYTES]; /* as on the wire and on disk */
};

/* Random, from getrandom(2); aborts where the kernel has none. Not for state machines. */
void fp_uuid_generate(struct fp_uuid *out);

/* Lower case, 8-4-4-4-12. Returns buf. */
char *fp_uuid_format(char buf[FP_UUID_BUF], const struct fp_uuid *uuid);

/* Exactly 8-4-4-4-12, any case. 0 or -EINVAL. */
int fp_uuid_parse(const char *text, struct fp_uuid *out);

bool fp_uuid_equal(const struct fp_uuid *a, const struct fp_uuid *b);
bool fp_uuid_is_nil(const struct fp_uuid *uuid);

#endif
