/* The server for mounts of other nodes: the data port. Thread of the loop. */
#ifndef BNF_REMOTE_H
#define BNF_REMOTE_H

#include <stdint.h>

#include "benefactor/drain.h"
#include "benefactor/service.h"
#include "fp/rpc.h"

struct bnf_remote;

/* Errors of fp_rpc_listen. rpc and v (may be set later, bnf_remote_serve) are borrowed. */
int bnf_remote_new(struct fp_rpc *rpc, const char *addr, uint32_t (*bnf_id)(void *arg), void *arg,
                   struct bnf_remote **out);
/* From now on requests are served; before, they are answered with -EAGAIN. */
void bnf_remote_serve(struct bnf_remote *r, struct bnf_service *v);
void bnf_remote_fetches(struct bnf_remote *r, struct bnf_drain *d); /* who fetches chunks from targets; never called: nobody does */
uint16_t bnf_remote_port(const struct bnf_remote *r);
/* Buffers are short: stop (or go on) reading all connections. */
void bnf_remote_press(struct bnf_remote *r, bool pressed);
/* Stops accepting, closes the connections; fp_rpc_close of the context must follow before the memory is
 * freed. */
void bnf_remote_stop(struct bnf_remote *r);
void bnf_remote_free(struct bnf_remote *r); /* after fp_rpc_close's callback */

#endif
