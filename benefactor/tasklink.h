/* Tasks and their results on the connection to the manager. Thread of the loop. */
#ifndef BNF_TASKLINK_H
#define BNF_TASKLINK_H

#include "benefactor/drain.h"
#include "fp/rpc.h"

struct bnf_tasklink {
    struct bnf_drain *drain;   /* NULL: tasks are not taken */
    struct fp_rpc_conn *conn;  /* on which hello was answered; NULL: none */
    bool asking;               /* a TASK_DONE has no answer yet */
};

void bnf_tasklink_up(struct bnf_tasklink *k, struct fp_rpc_conn *conn);
void bnf_tasklink_down(struct bnf_tasklink *k);
/* Tells results, if there are any and the manager has answered for those before. */
void bnf_tasklink_tell(struct bnf_tasklink *k);
/* A request or one-way message. FP_EBADMSG_TYPE: not one of these; 0: it was answered. */
int bnf_tasklink_request(struct bnf_tasklink *k, struct fp_rpc_conn *conn, const struct fp_rpc_in *in);

#endif
