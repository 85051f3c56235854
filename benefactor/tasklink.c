/*
 * Tasks and their results on the connection to the manager (manager_link.c has the connection).
 *
 * Loop's thread. MSG_TASKS is answered when the tasks are taken; what came of them goes back in MSG_TASK_DONE, one request at a time, again after each hello until it was
 * answered: then the manager has it in its database, and it is forgotten here.
 */
#include "benefactor/tasklink.h"

#include <errno.h>
#include <string.h>

#include "fp/err.h"
#include "fp/log.h"

#define RESULTS_MAX    64u
#define STAGED_MAX     1024u
#define DONE_TIMEOUT_MS 30000u

static void on_told(void *arg, int status, const struct fp_rpc_in *in)
{
    struct bnf_tasklink *k = arg;

    if (in)
        fp_rpc_payload_free(in->payload);
    k->asking = false;
    bnf_drain_told(k->drain, status == 0);
    if (status == 0)
        bnf_tasklink_tell(k);
    else if (status != FP_EPEER_GONE && status != FP_ECANCELLED)
        FP_LOG_EVERY(10000, FP_LOG_WARN, "the manager does not take results of draining: %s", fp_strerror(status));
}

void bnf_tasklink_tell(struct bnf_tasklink *k)
{
    Fp__TaskDone m = FP__TASK_DONE__INIT;
    Fp__TaskResult *list[RESULTS_MAX];
    Fp__Staged *staged[STAGED_MAX];
    struct fp_rpc_req req = { .type = FP__MSG_TYPE__MSG_TASK_DONE, .msg = &m.base, .timeout_ms = DONE_TIMEOUT_MS, .cb = on_told, .arg = k };

    if (!k->drain || !k->conn || k->asking)
        return;
    m.results = list;
    m.staged = staged;
    m.n_staged = bnf_drain_staged(k->drain, staged, STAGED_MAX);
    if (m.n_staged < STAGED_MAX) /* a task is done when all that it has brought here is told */
        m.n_results = bnf_drain_results(k->drain, list, RESULTS_MAX);
    if (m.n_results == 0 && m.n_staged == 0)
        return;
    k->asking = true;
    if (fp_rpc_call(k->conn, &req, NULL)) {
        k->asking = false;
        bnf_drain_told(k->drain, false);
    }
}

void bnf_tasklink_up(struct bnf_tasklink *k, struct fp_rpc_conn *conn)
{
    k->conn = conn;
    bnf_tasklink_tell(k);
}

void bnf_tasklink_down(struct bnf_tasklink *k)
{
    k->conn = NULL;
}

/* ---------------------------------------------------------------- requests */

static int on_tasks(struct bnf_tasklink *k, struct fp_rpc_conn *conn, const struct fp_rpc_in *in)
{
    Fp__Tasks *m = fp__tasks__unpack(NULL, in->msg_len_bytes, in->msg);
    int rc;

    if (!m)
        return -EBADMSG;
    rc = bnf_drain_tasks(k->drain, m);
    fp__tasks__free_unpacked(m, NULL);
    if (rc == 0)
        fp_rpc_reply_msg(conn, in, 0, NULL);
    return rc;
}

static int on_set(struct bnf_tasklink *k, struct fp_rpc_conn *conn, const struct fp_rpc_in *in)
{
    Fp__BnfSetReply reply = FP__BNF_SET_REPLY__INIT;
    Fp__BnfSet *m = fp__bnf_set__unpack(NULL, in->msg_len_bytes, in->msg);
    const char *why = "";

    if (!m)
        return -EBADMSG;
    if (bnf_drain_set(k->drain, m->name, m->value, &why) == 0)
        FP_INFO("told by the manager: %s=%s", m->name, m->value);
    fp__bnf_set__free_unpacked(m, NULL);
    reply.why = (char *)(uintptr_t)why;
    fp_rpc_reply_msg(conn, in, 0, &reply.base);
    return 0;
}

static int on_pace(struct bnf_tasklink *k, const struct fp_rpc_in *in)
{
    Fp__Pace *m = fp__pace__unpack(NULL, in->msg_len_bytes, in->msg);

    if (!m)
        return -EBADMSG;
    bnf_drain_pace(k->drain, m);
    fp__pace__free_unpacked(m, NULL);
    return 0;
}

int bnf_tasklink_request(struct bnf_tasklink *k, struct fp_rpc_conn *conn, const struct fp_rpc_in *in)
{
    bool oneway = in->flags & FP_FRAME_ONEWAY;

    if (!k->drain)
        return FP_EBADMSG_TYPE;
    switch (in->type) {
    case FP__MSG_TYPE__MSG_TASKS:
        return oneway ? 0 : on_tasks(k, conn, in);
    case FP__MSG_TYPE__MSG_BNF_SET:
        return oneway ? 0 : on_set(k, conn, in);
    case FP__MSG_TYPE__MSG_PACE:
        return on_pace(k, in);
    default:
        return FP_EBADMSG_TYPE;
    }
}
