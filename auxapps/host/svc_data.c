/*
 * Services that fp-mount answers: notes and stored chunks, the aux-app's table, files and attributes, messages. Bodies are messages of fp.proto.
 *
 * Any thread of the host or of a plugin. Each function packs its message, asks (svc.c), and copies what the plugin wants out of the answer: no
 * pointer into an answer outlives the call, but for `each`, which says so.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auxapps/host/host.h"
#include "fp.pb-c.h"
#include "life.pb-c.h"

#define FILE_MAX (1u << 20)
#define FIND_KEYS_MAX 1024u

/* Pack and ask. */
static int ask(struct aux_app *a, uint32_t type, const ProtobufCMessage *m, struct aux_answer **out)
{
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *body = malloc(n + 1);

    if (!body)
        return -ENOMEM;
    protobuf_c_message_pack(m, body);
    int rc = aux_request(a, type, body, n, out);

    free(body);
    return rc;
}

static void *unpack(const ProtobufCMessageDescriptor *d, const struct aux_answer *a)
{
    return protobuf_c_message_unpack(d, NULL, a->body_bytes, a->body);
}

static void drop(void *m)
{
    if (m)
        protobuf_c_message_free_unpacked(m, NULL);
}

static ProtobufCBinaryData data_of(const void *p, size_t n)
{
    return (ProtobufCBinaryData){.len = n, .data = (uint8_t *)(uintptr_t)p};
}

/* -------------------------------------------------------------- notes and chunks */

typedef int each_fn(void *arg, const struct fp_aux_noted *n);

/* The notes of one answer, one by one. Nonzero: `each` has had enough. */
static int each_note(const struct aux_answer *a, each_fn *each, void *arg, uint32_t *found)
{
    Fp__NotesReply *r = unpack(&fp__notes_reply__descriptor, a);
    int rc = r ? 0 : -EPROTO;

    for (size_t i = 0; r && i < r->n_notes && rc == 0; i++) {
        const Fp__ChunkNote *n = r->notes[i];
        struct fp_aux_noted noted = {.size_bytes = sizeof(noted), .chunk = n->chunk, .data_bytes = n->data_len,
                         .note_bytes = (uint32_t)n->note.len, .note = n->note.data, .free_bytes = r->free_bytes};

        noted.unused_bytes = n->unused_len < n->data_len ? n->unused_len : n->data_len;
        ++*found;
        rc = each(arg, &noted) != 0 ? 1 : 0;
    }
    drop(r);
    return rc;
}

static int notes(struct aux_app *a, uint32_t type, const ProtobufCMessage *m, each_fn *each, void *arg, uint32_t *found)
{
    size_t n = protobuf_c_message_get_packed_size(m);
    uint8_t *body = malloc(n + 1);
    struct aux_request r;
    bool eof = false;

    if (!body)
        return -ENOMEM;
    protobuf_c_message_pack(m, body);
    aux_request_begin(&r, a, type);
    int rc = aux_request_send(&r, body, n);

    while (rc == 0 && !eof) {
        struct aux_answer *answer;

        rc = aux_request_wait(&r, &answer);
        if (rc == 0) {
            eof = answer->eof;
            rc = each_note(answer, each, arg, found);
            free(answer);
        }
    }
    aux_request_end(&r);
    free(body);
    return rc > 0 ? 0 : rc;
}

static int sv_earlier(struct fp_aux_host *host, uint64_t file_serial, const char *pattern, each_fn *each, void *arg)
{
    Fp__AuxEarlier m = FP__AUX_EARLIER__INIT;
    uint32_t found = 0;

    m.file_serial = file_serial;
    m.pattern = (char *)(uintptr_t)(pattern ? pattern : "");
    return notes(host->app, FP_AUXW_SVC_EARLIER, &m.base, each, arg, &found);
}

static int sv_find(struct fp_aux_host *host, const uint64_t *keys, uint32_t nkeys, each_fn *each, void *arg)
{
    Fp__NoteFind m = FP__NOTE_FIND__INIT;
    uint32_t found = 0;

    if (nkeys == 0 || nkeys > FIND_KEYS_MAX)
        return -EINVAL;
    m.n_keys = nkeys;
    m.keys = (uint64_t *)(uintptr_t)keys;
    m.hold = true;
    return notes(host->app, FP_AUXW_SVC_FIND, &m.base, each, arg, &found);
}

int aux_svc_hold(struct aux_call *c, uint64_t chunk)
{
    Fp__Hold m = FP__HOLD__INIT;
    struct aux_answer *answer;

    m.n_ids = 1;
    m.ids = &chunk;
    int rc = ask(c->app, FP_AUXW_SVC_HOLD, &m.base, &answer);

    if (rc < 0)
        return rc;
    Fp__HoldReply *r = unpack(&fp__hold_reply__descriptor, answer);

    rc = r ? -ENOENT : -EPROTO;
    for (size_t i = 0; r && i < r->n_ids; i++) {
        if (r->ids[i] == chunk)
            rc = 0;
    }
    drop(r);
    free(answer);
    return rc;
}

static int sv_hold(struct fp_aux_call *call, uint64_t chunk)
{
    return aux_svc_hold((struct aux_call *)(void *)call, chunk);
}

/* Bytes of a chunk or a file, a part at a time. The number read: less than len at the end of a file. */
static ssize_t read_parts(struct aux_app *a, uint32_t type, Fp__AuxRead *m, uint64_t off, uint8_t *buf, uint32_t len)
{
    uint32_t done = 0;

    while (done < len) {
        struct aux_answer *answer;

        m->off = off + done;
        m->len = len - done < AUX_PART_BYTES ? len - done : AUX_PART_BYTES;
        int rc = ask(a, type, &m->base, &answer);

        if (rc < 0)
            return rc;
        uint32_t n = answer->body_bytes < m->len ? answer->body_bytes : m->len;

        memcpy(buf + done, answer->body, n);
        free(answer);
        done += n;
        if (n < m->len)
            break;
    }
    return done;
}

static int sv_read_chunk(struct fp_aux_host *host, struct fp_aux_place place, void *buf)
{
    Fp__AuxRead m = FP__AUX_READ__INIT;

    if (place.chunk == 0 || place.len_bytes > FP_AUX_CHUNK_MAX_BYTES)
        return -EINVAL;
    m.chunk = place.chunk;
    ssize_t n = read_parts(host->app, FP_AUXW_SVC_READ_CHUNK, &m, place.off, buf, place.len_bytes);

    if (n < 0)
        return (int)n;
    return (uint32_t)n == place.len_bytes ? 0 : -EINVAL;
}

/* -------------------------------------------------------------- the table */

/* Sends the operations; the results must be as many. *out is freed by the caller with drop(); NULL after an error. */
static int table_ops(struct aux_app *a, Fp__TableOp **ops, size_t n, Fp__TableReply **out)
{
    Fp__Table m = FP__TABLE__INIT;
    struct aux_answer *answer;

    *out = NULL;
    m.app = (char *)(uintptr_t)a->plugin->app.name;
    m.n_ops = n;
    m.ops = ops;
    int rc = ask(a, FP_AUXW_SVC_TABLE, &m.base, &answer);

    if (rc < 0)
        return rc;
    *out = unpack(&fp__table_reply__descriptor, answer);
    free(answer);
    if (*out && (*out)->n_results == n)
        return 0;
    drop(*out);
    *out = NULL;
    return -EPROTO;
}

static int table_op(struct aux_app *a, Fp__TableOpKind kind, const void *key, uint32_t key_bytes, const void *in, uint32_t in_bytes,
            void *value, uint32_t *value_bytes)
{
    Fp__TableOp op = FP__TABLE_OP__INIT, *ops = &op;
    Fp__TableReply *r;

    if (!key || key_bytes < 1 || key_bytes > FP_AUX_KEY_MAX_BYTES || in_bytes > FP_AUX_VALUE_MAX_BYTES)
        return -EINVAL;
    op.kind = kind;
    op.key = data_of(key, key_bytes);
    op.value = data_of(in, in_bytes);
    int rc = table_ops(a, &ops, 1, &r);

    if (rc < 0)
        return rc;
    rc = r->results[0]->status;
    if (rc == 0 && value_bytes) {
        uint32_t room = *value_bytes;

        *value_bytes = (uint32_t)r->results[0]->value.len;
        if (*value_bytes > room)
            rc = -ERANGE;
        else if (*value_bytes > 0)
            memcpy(value, r->results[0]->value.data, *value_bytes);
    }
    drop(r);
    return rc;
}

int aux_svc_table_get(struct aux_app *a, const void *key, uint32_t key_bytes, void *value, uint32_t *value_bytes)
{
    return table_op(a, FP__TABLE_OP_KIND__TABLE_GET, key, key_bytes, NULL, 0, value, value_bytes);
}

int aux_svc_table_put(struct aux_app *a, const uint8_t *const *keys, const uint32_t *key_bytes, const void *values, uint32_t value_bytes, uint32_t n)
{
    Fp__TableOp *op = calloc(n, sizeof(*op));
    Fp__TableOp **ops = calloc(n, sizeof(Fp__TableOp *));
    Fp__TableReply *r = NULL;
    int rc = -ENOMEM;

    if (!op || !ops)
        goto out;
    for (uint32_t i = 0; i < n; i++) {
        fp__table_op__init(&op[i]);
        op[i].kind = FP__TABLE_OP_KIND__TABLE_PUT;
        op[i].key = data_of(keys[i], key_bytes[i]);
        op[i].value = data_of((const uint8_t *)values + (size_t)i * value_bytes, value_bytes);
        ops[i] = &op[i];
    }
    rc = table_ops(a, ops, n, &r);
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        rc = r->results[i]->status;
    drop(r);
out:
    free(op);
    free(ops);
    return rc;
}

static int sv_table_get(struct fp_aux_host *host, const void *key, uint32_t key_bytes, void *value, uint32_t *value_bytes)
{
    return value_bytes ? aux_svc_table_get(host->app, key, key_bytes, value, value_bytes) : -EINVAL;
}

static int sv_table_put(struct fp_aux_host *host, const void *key, uint32_t key_bytes, const void *value, uint32_t value_bytes, bool only_new)
{
    Fp__TableOpKind kind = only_new ? FP__TABLE_OP_KIND__TABLE_PUT_NEW : FP__TABLE_OP_KIND__TABLE_PUT;

    return table_op(host->app, kind, key, key_bytes, value, value_bytes, NULL, NULL);
}

static int sv_table_remove(struct fp_aux_host *host, const void *key, uint32_t key_bytes)
{
    return table_op(host->app, FP__TABLE_OP_KIND__TABLE_REMOVE, key, key_bytes, NULL, 0, NULL, NULL);
}

void aux_svc_fill(struct fp_aux_services *s)
{
    s->earlier = sv_earlier;
    s->find = sv_find;
    s->hold = sv_hold;
    s->read_chunk = sv_read_chunk;
    s->table_get = sv_table_get;
    s->table_put = sv_table_put;
    s->table_remove = sv_table_remove;
}

/* -------------------------------------------------------------- files, attributes, messages */

static ssize_t sv_file_read(struct fp_aux_host *host, uint64_t ino, uint64_t off, void *buf, uint32_t len)
{
    Fp__AuxRead m = FP__AUX_READ__INIT;

    if (len > FILE_MAX)
        return -EINVAL;
    m.ino = ino;
    return read_parts(host->app, FP_AUXW_SVC_FILE_READ, &m, off, buf, len);
}

static int sv_file_write(struct fp_aux_host *host, const char *path, const void *data, uint32_t len, uint32_t mode)
{
    Fp__AuxWrite m = FP__AUX_WRITE__INIT;
    uint8_t *body = malloc(AUX_PART_BYTES + strlen(path) + 64);
    struct aux_request r;
    uint32_t done = 0;
    int rc = 0;

    if (!body || len > FILE_MAX || path[0] == '\0' || strlen(path) >= 4096) {
        rc = body ? -EINVAL : -ENOMEM;
        free(body);
        return rc;
    }
    m.path = data_of(path, strlen(path));
    m.mode = mode;
    aux_request_begin(&r, host->app, FP_AUXW_SVC_FILE_WRITE);
    do {
        uint32_t n = len - done < AUX_PART_BYTES ? len - done : AUX_PART_BYTES;
        struct aux_answer *answer;

        m.off = done;
        m.data = data_of((const uint8_t *)data + done, n);
        m.last = done + n == len;
        rc = aux_request_send(&r, body, protobuf_c_message_pack(&m.base, body));
        if (rc == 0)
            rc = aux_request_wait(&r, &answer);
        if (rc == 0)
            free(answer);
        done += n;
    } while (rc == 0 && done < len);
    aux_request_end(&r);
    free(body);
    return rc;
}

static int sv_file_find(struct fp_aux_host *host, const char *path, struct fp_aux_file *out)
{
    Fp__Lookup m = FP__LOOKUP__INIT;
    struct fp_aux_file f = {.path = path};
    struct aux_answer *answer;

    if (!out || out->size_bytes < sizeof(out->size_bytes))
        return -EINVAL;
    m.name = data_of(path, strlen(path));
    int rc = ask(host->app, FP_AUXW_SVC_FILE_FIND, &m.base, &answer);

    if (rc < 0)
        return rc;
    Fp__AttrReply *r = unpack(&fp__attr_reply__descriptor, answer);

    rc = r && r->attr ? 0 : -EPROTO;
    if (rc == 0) {
        f.size_bytes = out->size_bytes < sizeof(f) ? out->size_bytes : (uint32_t)sizeof(f);
        f.uid = r->attr->uid;
        f.gid = r->attr->gid;
        f.mode = r->attr->mode;
        f.ino = r->attr->ino;
        f.len_bytes = r->attr->size_bytes;
        f.mtime_ns = r->attr->mtime_ns;
        f.data_version = r->attr->data_version;
        memcpy(out, &f, f.size_bytes);
    }
    drop(r);
    free(answer);
    return rc;
}

static ssize_t sv_xattr_get(struct fp_aux_host *host, uint64_t ino, const char *name, void *value, uint32_t cap_bytes)
{
    Fp__GetXattr m = FP__GET_XATTR__INIT;
    struct aux_answer *answer;
    ssize_t n;

    m.ino = ino;
    m.name = data_of(name, strlen(name));
    int rc = ask(host->app, FP_AUXW_SVC_XATTR_GET, &m.base, &answer);

    if (rc < 0)
        return rc;
    Fp__XattrReply *r = unpack(&fp__xattr_reply__descriptor, answer);

    n = r ? (ssize_t)r->value.len : -EPROTO;
    if (n > 0 && cap_bytes > 0) {
        if ((size_t)n > cap_bytes)
            n = -ERANGE;
        else
            memcpy(value, r->value.data, (size_t)n);
    }
    drop(r);
    free(answer);
    return n;
}

static int sv_xattr_set(struct fp_aux_host *host, uint64_t ino, const char *name, const void *value, uint32_t len)
{
    Fp__SetXattr m = FP__SET_XATTR__INIT;
    struct aux_answer *answer;

    if (len > 65536)
        return -E2BIG;
    m.ino = ino;
    m.name = data_of(name, strlen(name));
    m.value = data_of(value, len);
    int rc = ask(host->app, FP_AUXW_SVC_XATTR_SET, &m.base, &answer);

    if (rc == 0)
        free(answer);
    return rc;
}

static int sv_send(struct fp_aux_host *host, const char *node, uint64_t mount, const void *data, uint32_t len)
{
    Fp__AuxMsg m = FP__AUX_MSG__INIT;
    struct aux_answer *answer;

    if (len > FP_AUX_MESSAGE_MAX_BYTES)
        return -E2BIG;
    m.app = (char *)(uintptr_t)host->app->plugin->app.name;
    m.node = (char *)(uintptr_t)(node ? node : "");
    m.mount = mount;
    m.data = data_of(data, len);
    int rc = ask(host->app, FP_AUXW_SVC_SEND, &m.base, &answer);

    if (rc < 0)
        return rc;
    Fp__AuxMsgReply *r = unpack(&fp__aux_msg_reply__descriptor, answer);

    rc = r ? (int)r->mounts : -EPROTO;
    drop(r);
    free(answer);
    return rc;
}

static int sv_policy(struct fp_aux_host *host, const char *text, char *why, uint32_t why_bytes)
{
    Fp__Policy m = FP__POLICY__INIT;
    struct aux_answer *answer;

    if (!text || !*text)
        return -EINVAL;
    m.text = (char *)(uintptr_t)text;
    int rc = ask(host->app, FP_AUXW_SVC_POLICY, &m.base, &answer);

    if (rc < 0)
        return rc;
    Fp__PolicyReply *r = unpack(&fp__policy_reply__descriptor, answer);

    rc = !r ? -EPROTO : *r->why ? -EINVAL : 0;
    if (r && why && why_bytes > 0)
        snprintf(why, why_bytes, "%s", r->why);
    drop(r);
    free(answer);
    return rc;
}

void aux_svc_fill_files(struct fp_aux_services *s)
{
    s->file_read = sv_file_read;
    s->file_write = sv_file_write;
    s->file_find = sv_file_find;
    s->xattr_get = sv_xattr_get;
    s->xattr_set = sv_xattr_set;
    s->send = sv_send;
    s->policy = sv_policy;
}
