/*
 * Requests that hold chunks, and whose answers can't be read: the manager has carried them out, and what it holds since, nobody here knows. Without a word it
 * would stay held until the mount ends, and no space of it could be had.
 *
 * MSG_HOLD names its chunks: they are released, but for those that are held for other reasons. MSG_NOTES and MSG_NOTE_FIND name none, so they are asked
 * again; the answer says what is held, and nobody waits for it, so it is released. (What has left the file between the two is not found by this.) After TRIES of them a line in the log says what is the matter: then the two
 * programs do not fit together, and more goes wrong than this. To end the session was rejected: what it has stored and not published is lost with it.
 *
 * cl_aux_holds_unread is called on the core loop, and so are the answers.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/aux/holds.h"
#include "client/aux/internal.h"
#include "client/core.h"
#include "fp/log.h"

#define TRIES 3u

struct again {
    struct cl_aux *a;
    struct aux_hold_request request;
    uint32_t type, tries;
    size_t len_bytes;
    uint8_t msg[];
};

static const ProtobufCMessageDescriptor *type_of(uint32_t type)
{
    return type == FP__MSG_TYPE__MSG_HOLD ? &fp__hold__descriptor :
           type == FP__MSG_TYPE__MSG_NOTES ? &fp__notes__descriptor : &fp__note_find__descriptor;
}

void cl_aux_holds_not_told(struct cl_aux *a, const uint64_t *ids, size_t n)
{
    Fp__HoldReply as_if = FP__HOLD_REPLY__INIT;
    struct aux_hold_request r = { 0 };

    as_if.ids = (uint64_t *)ids;
    as_if.n_ids = n;
    cl_aux_holds_begin(a, &r);
    r.doubt = UINT64_MAX; /* it vouches for nothing */
    cl_aux_holds_answered(a, &r, &as_if.base, false);
}

static void on_again(void *arg, int status, const ProtobufCMessage *reply);

static void send_again(struct again *g)
{
    ProtobufCMessage *msg = protobuf_c_message_unpack(type_of(g->type), NULL, g->len_bytes, g->msg);

    if (!msg) { /* no memory */
        free(g);
        return;
    }
    g->tries++;
    cl_aux_holds_begin(g->a, &g->request);
    cl_mgr_call_answered(g->a->m, g->type, msg, on_again, g);
    protobuf_c_message_free_unpacked(msg, NULL);
}

static void on_again(void *arg, int status, const ProtobufCMessage *reply)
{
    struct again *g = arg;

    cl_aux_holds_answered(g->a, &g->request, status == 0 ? reply : NULL, false);
    if (status == -EPROTO && g->tries < TRIES) {
        send_again(g);
        return;
    }
    if (status == -EPROTO)
        FP_LOG_EVERY(60000, FP_LOG_WARN, "the manager's answers about stored chunks can't be read: some are kept until this mount ends; "
                 "give manager and mount the same version");
    free(g);
}

void cl_aux_holds_unread(struct cl_aux *a, uint32_t type, const uint8_t *msg, size_t len)
{
    struct again *g;
    Fp__Hold *h;

    if (type == FP__MSG_TYPE__MSG_HOLD) {
        h = fp__hold__unpack(NULL, len, msg);
        if (h)
            cl_aux_holds_not_told(a, h->ids, h->n_ids);
        if (h)
            fp__hold__free_unpacked(h, NULL);
        return;
    }
    g = calloc(1, sizeof(*g) + len);
    if (!g)
        return;
    g->a = a;
    g->type = type;
    g->len_bytes = len;
    memcpy(g->msg, msg, len);
    send_again(g);
}
