/* UUIDs of stores and benefactors.
 *
 * Made once when a directory is initialised, compared at every connection, printed in messages. libuuid
 * was rejected: one more library for 40 lines, and its default mixes in the MAC address and the time. */
#include "fp/uuid.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "fp/hex.h"

void fp_uuid_generate(struct fp_uuid *out)
{
    /* Up to 256 bytes are never cut short or interrupted once the pool is initialised. */
    ssize_t n;
    do
        n = getrandom(out->b, sizeof out->b, 0);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)sizeof out->b)
        abort();
    out->b[6] = (uint8_t)((out->b[6] & 0x0f) | 0x40); /* version 4 */
    out->b[8] = (uint8_t)((out->b[8] & 0x3f) | 0x80); /* RFC variant */
}

static int is_dash_position(int i)
{
    return i == 8 || i == 13 || i == 18 || i == 23;
}

char *fp_uuid_format(char buf[FP_UUID_BUF], const struct fp_uuid *uuid)
{
    int i = 0;
    for (int n = 0; n < FP_UUID_BYTES; n++) {
        if (is_dash_position(i))
            buf[i++] = '-';
        fp_hex_put(buf + i, uuid->b[n]);
        i += 2;
    }
    buf[i] = '\0';
    return buf;
}

int fp_uuid_parse(const char *text, struct fp_uuid *out)
{
    struct fp_uuid uuid;
    int i = 0;
    if (strlen(text) != FP_UUID_BUF - 1)
        return -EINVAL;
    for (int n = 0; n < FP_UUID_BYTES; n++) {
        if (is_dash_position(i) && text[i++] != '-')
            return -EINVAL;
        int byte = fp_hex_byte(text + i);
        if (byte < 0)
            return -EINVAL;
        uuid.b[n] = (uint8_t)byte;
        i += 2;
    }
    *out = uuid;
    return 0;
}

bool fp_uuid_equal(const struct fp_uuid *a, const struct fp_uuid *b)
{
    return memcmp(a->b, b->b, sizeof a->b) == 0;
}

bool fp_uuid_is_nil(const struct fp_uuid *uuid)
{
    static const struct fp_uuid nil;
    return fp_uuid_equal(uuid, &nil);
}
