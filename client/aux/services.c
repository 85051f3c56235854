/*
 * Services: what the host asks for on behalf of its aux-apps (fp_aux_* of auxapp.h).
 *
 * The link thread takes requests in (cl_aux_service) and never waits for them; service threads answer. Most are questions to the manager and are passed on as
 * they are. A manager that does not answer within ASK_MS gives -EAGAIN, although its answer may come later: an aux-app shall be able to do without,
 * before its own deadline makes it a failure. What an answer holds is taken into holds.c on the core loop, before the host sees it, so that no result
 * that refers to it comes first; of one that comes too late, too, so that it is released and not held until the mount ends: such a request
 * is never given up once it was sent (cl_mgr_call_answered).
 *
 * A request that came from a host that has ended meanwhile is answered to nobody.
 */
#include "client/aux/services.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "client/aux/holds.h"
#include "client/core.h"
#include "life.pb-c.h"

#define ASK_MS        4000u
#define REPLY_MS      5000
#define PART_BYTES    (128u << 10) /* of notes in one message */

/* -------------------------------------------------------------- asking the manager */

struct asking {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    unsigned users;
    bool done;
    int status;
    uint8_t *reply;
    size_t len_bytes;
    struct cl_aux *holder;         /* NULL: it holds nothing */
    struct aux_hold_request holds;
    uint32_t type;                 /* with holder, these three: the request */
    uint8_t *msg;                  /* NULL: no memory */
    size_t msg_bytes;
};

static void asking_put(struct asking *q)
{
    bool last = --q->users == 0;

    pthread_mutex_unlock(&q->lock);
    if (!last)
        return;
    pthread_cond_destroy(&q->cond);
    pthread_mutex_destroy(&q->lock);
    free(q->reply);
    free(q->msg);
    free(q);
}

/* Core loop. */
static void on_answer(void *arg, int status, const ProtobufCMessage *reply)
{
    struct asking *q = arg;
    bool wanted;

    pthread_mutex_lock(&q->lock);
    wanted = q->users > 1;
    pthread_mutex_unlock(&q->lock);
    if (q->holder)
        cl_aux_holds_answered(q->holder, &q->holds, status == 0 ? reply : NULL, wanted);
    if (q->holder && status == -EPROTO && q->msg)
        cl_aux_holds_unread(q->holder, q->type, q->msg, q->msg_bytes);
    pthread_mutex_lock(&q->lock);
    q->status = status;
    if (status == 0 && reply) {
        q->len_bytes = protobuf_c_message_get_packed_size(reply);
        q->reply = malloc(q->len_bytes + 1);
        if (q->reply)
            protobuf_c_message_pack(reply, q->reply);
        else
            q->status = -ENOMEM;
    }
    q->done = true;
    pthread_cond_signal(&q->cond);
    asking_put(q);
}

static struct asking *asking_new(void)
{
    struct asking *q = calloc(1, sizeof(*q));
    pthread_condattr_t attr;

    if (!q)
        return NULL;
    pthread_mutex_init(&q->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&q->cond, &attr);
    pthread_condattr_destroy(&attr);
    q->users = 2;
    return q;
}

static int ask(struct cl_aux *a, struct asking *q, uint32_t type, ProtobufCMessage *msg, uint32_t timeout_ms, uint8_t **reply, size_t *reply_bytes)
{
    uint64_t until_ms = fp_now_ms() + timeout_ms;
    struct timespec ts = { .tv_sec = (time_t)(until_ms / 1000), .tv_nsec = (long)(until_ms % 1000) * 1000000 };
    int rc = 0;

    *reply = NULL;
    *reply_bytes = 0;
    if (!q)
        return -ENOMEM;
    if (q->holder)
        cl_mgr_call_answered(a->m, type, msg, on_answer, q);
    else
        cl_mgr_call(a->m, type, msg, on_answer, q);
    pthread_mutex_lock(&q->lock);
    while (!q->done && rc == 0)
        rc = pthread_cond_timedwait(&q->cond, &q->lock, &ts);
    if (q->done) {
        rc = q->status;
        *reply = q->reply;
        *reply_bytes = q->len_bytes;
        q->reply = NULL;
    } else {
        rc = -EAGAIN;
    }
    asking_put(q);
    return rc == -ETIMEDOUT ? -EAGAIN : rc;
}

int cl_aux_ask(struct cl_aux *a, uint32_t type, ProtobufCMessage *msg, uint32_t timeout_ms, uint8_t **reply, size_t *reply_bytes)
{
    return ask(a, asking_new(), type, msg, timeout_ms, reply, reply_bytes);
}

int cl_aux_ask_holding(struct cl_aux *a, uint32_t type, ProtobufCMessage *msg, uint64_t file_serial, uint32_t timeout_ms, uint8_t **reply,
               size_t *reply_bytes)
{
    struct asking *q = asking_new();

    if (q) {
        q->holder = a;
        q->type = type;
        q->msg_bytes = protobuf_c_message_get_packed_size(msg);
        q->msg = malloc(q->msg_bytes + 1);
        if (q->msg)
            protobuf_c_message_pack(msg, q->msg);
        q->holds.file_serial = file_serial;
        cl_aux_holds_begin(a, &q->holds);
    }
    return ask(a, q, type, msg, timeout_ms, reply, reply_bytes);
}

/* -------------------------------------------------------------- answering the host */

void cl_aux_reply(struct aux_request *r, int status, const void *body, size_t len, bool eof)
{
    struct fp_auxw_svc svc = { .h = { .type = r->type, .len_bytes = (uint32_t)(sizeof(svc) + len), .id = r->id },
                   .status = fp_err_to_errno(status) > 0 ? -fp_err_to_errno(status) : 0, .app = r->app, .eof = eof };
    struct iovec iov[2] = { { &svc, sizeof(svc) }, { (void *)body, len } };
    struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };
    struct pollfd p = { .fd = r->host->services_fd, .events = POLLOUT };

    for (;;) {
        if (sendmsg(p.fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
            return;
        if (errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
            return; /* the host has ended */
        if (poll(&p, 1, REPLY_MS) == 0)
            return; /* it does not listen: its own deadline will tell */
    }
}

void *cl_aux_request_unpack(struct aux_request *r, const ProtobufCMessageDescriptor *type)
{
    ProtobufCMessage *msg = protobuf_c_message_unpack(type, NULL, r->len_bytes, r->body);

    if (!msg) {
        cl_aux_reply(r, -EINVAL, NULL, 0, true);
        return NULL;
    }
    /* Slots are the core loop's to give. */
    if (type->n_fields >= 2 && strcmp(type->fields[0].name, "slot") == 0) {
        *(uint32_t *)(void *)((char *)msg + type->fields[0].offset) = 0;
        *(uint64_t *)(void *)((char *)msg + type->fields[1].offset) = 0;
    }
    return msg;
}

/* -------------------------------------------------------------- passed on */

static void pass_on(struct cl_aux *a, struct aux_request *r, uint32_t type, const ProtobufCMessageDescriptor *descriptor)
{
    ProtobufCMessage *msg = cl_aux_request_unpack(r, descriptor);
    uint8_t *reply;
    size_t len;
    int rc;

    if (!msg)
        return;
    rc = cl_aux_ask(a, type, msg, ASK_MS, &reply, &len);
    cl_aux_reply(r, rc, reply, len, true);
    free(reply);
    protobuf_c_message_free_unpacked(msg, NULL);
}

static void hold(struct cl_aux *a, struct aux_request *r)
{
    Fp__Hold *msg = cl_aux_request_unpack(r, &fp__hold__descriptor);
    uint8_t *packed;
    size_t len;
    int rc;

    if (!msg)
        return;
    msg->release = msg->recall = false; /* to release is ours: others may refer to it */
    rc = cl_aux_ask_holding(a, FP__MSG_TYPE__MSG_HOLD, &msg->base, r->file_serial, ASK_MS, &packed, &len);
    cl_aux_reply(r, rc, packed, len, true);
    fp__hold__free_unpacked(msg, NULL);
    free(packed);
}

/* -------------------------------------------------------------- notes */

/* Some of the notes as a message of their own. */
static void reply_part(struct aux_request *r, const Fp__NotesReply *all, size_t from, size_t to, bool eof)
{
    Fp__NotesReply part = FP__NOTES_REPLY__INIT;
    uint8_t *packed;
    size_t len;

    part.free_bytes = all->free_bytes;
    part.notes = from < to ? all->notes + from : NULL;
    part.n_notes = to - from;
    len = fp__notes_reply__get_packed_size(&part);
    packed = malloc(len + 1);
    if (packed)
        fp__notes_reply__pack(&part, packed);
    cl_aux_reply(r, packed ? 0 : -ENOMEM, packed, packed ? len : 0, eof);
    free(packed);
}

int cl_aux_reply_notes(struct aux_request *r, const uint8_t *packed, size_t len, bool eof)
{
    Fp__NotesReply *n = fp__notes_reply__unpack(NULL, len, packed);
    size_t from = 0, bytes = 0;
    int found;

    if (!n)
        return -EPROTO;
    for (size_t i = 0; i < n->n_notes; i++) {
        if (i > from && bytes + n->notes[i]->note.len > PART_BYTES) {
            reply_part(r, n, from, i, false);
            from = i;
            bytes = 0;
        }
        bytes += n->notes[i]->note.len + 64;
    }
    if (from < n->n_notes || eof)
        reply_part(r, n, from, n->n_notes, eof);
    found = (int)n->n_notes;
    fp__notes_reply__free_unpacked(n, NULL);
    return found;
}

static void find(struct cl_aux *a, struct aux_request *r)
{
    Fp__NoteFind *msg = cl_aux_request_unpack(r, &fp__note_find__descriptor);
    uint8_t *packed;
    size_t len;
    int rc;

    if (!msg)
        return;
    msg->hold = true;
    rc = cl_aux_ask_holding(a, FP__MSG_TYPE__MSG_NOTE_FIND, &msg->base, r->file_serial, ASK_MS, &packed, &len);
    if (rc == 0)
        rc = cl_aux_reply_notes(r, packed, len, true);
    if (rc < 0)
        cl_aux_reply(r, rc, NULL, 0, true);
    fp__note_find__free_unpacked(msg, NULL);
    free(packed);
}

static void policy(struct cl_aux *a, struct aux_request *r)
{
    Fp__Policy *msg = cl_aux_request_unpack(r, &fp__policy__descriptor);
    uint8_t *reply;
    size_t len;
    int rc;

    if (!msg)
        return;
    msg->remove = 0; /* a plugin may not take away what others want to have drained */
    rc = cl_aux_ask(a, FP__MSG_TYPE__MSG_POLICY, &msg->base, ASK_MS, &reply, &len);
    cl_aux_reply(r, rc, reply, len, true);
    free(reply);
    fp__policy__free_unpacked(msg, NULL);
}

/* -------------------------------------------------------------- which is which */

static void serve(struct cl_aux *a, struct aux_request *r)
{
    switch (r->type) {
    case FP_AUXW_SVC_EARLIER:
        cl_aux_svc_earlier(a, r);
        break;
    case FP_AUXW_SVC_FIND:
        find(a, r);
        break;
    case FP_AUXW_SVC_HOLD:
        hold(a, r);
        break;
    case FP_AUXW_SVC_READ_CHUNK:
        cl_aux_svc_read_chunk(a, r);
        break;
    case FP_AUXW_SVC_TABLE:
        pass_on(a, r, FP__MSG_TYPE__MSG_TABLE, &fp__table__descriptor);
        break;
    case FP_AUXW_SVC_FILE_READ:
        cl_aux_svc_file_read(a, r);
        break;
    case FP_AUXW_SVC_FILE_WRITE:
        cl_aux_svc_file_write(a, r);
        break;
    case FP_AUXW_SVC_FILE_FIND:
        cl_aux_svc_file_find(a, r);
        break;
    case FP_AUXW_SVC_XATTR_GET:
        pass_on(a, r, FP__MSG_TYPE__MSG_GETXATTR, &fp__get_xattr__descriptor);
        break;
    case FP_AUXW_SVC_XATTR_SET:
        pass_on(a, r, FP__MSG_TYPE__MSG_SETXATTR, &fp__set_xattr__descriptor);
        break;
    case FP_AUXW_SVC_SEND:
        pass_on(a, r, FP__MSG_TYPE__MSG_AUX_MSG, &fp__aux_msg__descriptor);
        break;
    case FP_AUXW_SVC_POLICY:
        policy(a, r);
        break;
    default:
        cl_aux_reply(r, -ENOTSUP, NULL, 0, true);
        break;
    }
}

static void run_request(struct cl_aux *a, struct aux_task *t)
{
    struct aux_request *r = (struct aux_request *)t;

    serve(a, r);
    cl_aux_host_put(r->host);
    free(r);
}

void cl_aux_service(struct cl_aux *a, struct aux_host *h, const struct fp_auxw_head *head)
{
    const struct fp_auxw_svc *svc = (const struct fp_auxw_svc *)head;
    struct aux_request *r;
    size_t len;

    if (head->len_bytes < sizeof(*svc))
        return;
    len = head->len_bytes - sizeof(*svc);
    r = malloc(sizeof(*r) + len);
    if (!r)
        return; /* it gives up by itself */
    *r = (struct aux_request){ .task = { .run = run_request }, .host = h, .type = head->type, .app = svc->app, .id = head->id,
                   .file_serial = svc->file_serial, .len_bytes = len };
    memcpy(r->body, svc + 1, len);
    atomic_fetch_add(&h->refs, 1);
    cl_aux_task_post(a, &r->task);
}
