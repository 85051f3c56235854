/* The server for mounts of this node: DIR/local.sock. Thread of the loop. */
#ifndef BNF_LOCAL_H
#define BNF_LOCAL_H

#include <uv.h>

#include "benefactor/service.h"

struct bnf_local;

/* Errors of fp_fdlink_listen. v is borrowed. */
int bnf_local_new(uv_loop_t *loop, const char *path, struct bnf_service *v, uint32_t (*bnf_id)(void *arg),
                  void *arg, struct bnf_local **out);
/* Closes socket and connections (their leases end); closed(arg) when the loop has let go. NULL is not
 * allowed. */
void bnf_local_free(struct bnf_local *l, void (*closed)(void *arg), void *arg);

#endif
