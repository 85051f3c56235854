/*
 * TLS for simulated programs: none. Part of their shared objects in place of common/transport_tls.c and tls_ctx.c. Who holds which key is not what the simulator is about, a handshake
 * costs more than all else of a connection, and its bytes would differ from run to run. What is above (rpc.h) does not know the difference.
 */
#include <stdlib.h>

#include "fp/transport.h"

struct fp_tls_ctx {
    int unused;
};

int fp_tls_ctx_new(const struct fp_key *key, const uint8_t *uuid, struct fp_tls_ctx **out)
{
    (void)key;
    (void)uuid;
    *out = calloc(1, sizeof **out);
    return 0;
}

void fp_tls_ctx_free(struct fp_tls_ctx *ctx)
{
    free(ctx);
}

void fp_tls_ctx_set_uuid(struct fp_tls_ctx *ctx, const uint8_t uuid[16])
{
    (void)ctx;
    (void)uuid;
}

int fp_transport_tls_new(struct fp_tls_ctx *ctx, int fd, enum fp_tls_role role, struct fp_transport **out)
{
    (void)ctx;
    (void)role;
    return fp_transport_plain_new(fd, NULL, 0, out);
}

int fp_transport_tls_to_plain(struct fp_transport *t, struct fp_transport **out)
{
    *out = t;
    return 0;
}
