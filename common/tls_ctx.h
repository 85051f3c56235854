/* Between tls_ctx.c and transport_tls.c: nobody else includes this. Thread of the loop; never blocks. */
#ifndef FP_COMMON_TLS_CTX_H
#define FP_COMMON_TLS_CTX_H

#include <stdbool.h>
#include <stdint.h>

#include <openssl/ssl.h>

#include "fp/transport.h"

#define FP_TLS_IDENTITY_PREFIX "fpstore:"
#define FP_TLS_IDENTITY_ANY    "fpstore:any"
#define FP_TLS_IDENTITY_BUF    48

struct fp_tls_ctx {
    const struct fp_key *key; /* borrowed */
    SSL_CTX *client;
    SSL_CTX *server;
    bool uuid_known;
    char identity[FP_TLS_IDENTITY_BUF];
};

/* App data of an SSL: what the PSK callbacks need of, and tell, the connection. */
struct fp_tls_peer {
    char identity[FP_TLS_IDENTITY_BUF]; /* client: what is offered */
    bool other_store;                   /* server: the client asked for a store of another UUID */
};

#endif
