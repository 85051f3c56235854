/*
 * Services about files and stored chunks: fp_aux_read_chunk, fp_aux_file_read, _write, _find.
 *
 * Service threads. They use the data path as the operations do, with handles of their own: what is written on this node is seen, checksums
 * are checked. A file that is read in parts stays open for a moment, so that a MiB is not eight opens at the manager.
 *
 * fp_aux_file_write is atomic: the parts are put together in memory (at most a MiB), written under a name that nobody looks for in the same directory,
 * published and renamed. Its data passes no aux-app (CL_AUX_SERIAL_OWN), or a summary would be summed up again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/aux/earlier.h"
#include "client/aux/holds.h"
#include "client/aux/services.h"
#include "client/aux/svc_file.h"
#include "client/core.h"
#include "client/data/internal.h"
#include "client/data/peek.h"
#include "client/inode.h"

#define ASK_MS        4000u
#define PART_MAX      (128u << 10)
#define WRITE_MAX     (1u << 20)
#define READ_IOV      64
#define OPEN_FILES    8u
#define OPEN_FOR_MS   500u
#define WRITES        16u

struct aux_open { uint64_t ino; struct cl_handle *handle; uint64_t used_ms; };
struct aux_write { uint64_t id; struct aux_host *host; uint8_t *bytes; uint32_t len_bytes; };

struct aux_own_files {
    pthread_mutex_t lock;          /* a leaf */
    struct aux_open open[OPEN_FILES];  /* not in use now */
    struct aux_write write[WRITES];
    uint64_t temp;                 /* number of the last temporary name */
};

/* -------------------------------------------------------------- open and close */

static int open_own(struct cl_aux *a, const Fp__Attr *attr, int flags, struct cl_handle **out)
{
    struct cl_handle *h = calloc(1, sizeof(*h));
    int rc = -ENOMEM;

    if (h)
        h->inode = cl_inode_intern(a->m, attr);
    if (!h || !h->inode) {
        free(h);
        return rc;
    }
    h->flags = flags;
    h->writes = (flags & O_ACCMODE) != O_RDONLY;
    cl_inode_hold(a->m, h->inode, h->writes);
    rc = cl_data_open(a->m, h, attr);
    if (rc < 0) {
        cl_mgr_release(a->m, h->inode, h->writes, false);
        cl_inode_put(a->m, h->inode);
        free(h);
        return rc;
    }
    cl_open_add(a->m, &h->open);
    *out = h;
    return 0;
}

static void own_released(struct cl_mount *m, struct cl_handle *h)
{
    struct cl_inode *inode = h->inode;

    cl_open_remove(m, &h->open);
    cl_mgr_release(m, inode, h->writes, false);
    cl_inode_put(m, inode);
    free(h);
}

static void close_own(struct cl_aux *a, struct cl_handle *h)
{
    cl_data_release(a->m, h, own_released);
}

static int open_ino(struct cl_aux *a, uint64_t ino, struct cl_handle **out)
{
    Fp__Open msg = FP__OPEN__INIT;
    ProtobufCMessage *reply = NULL;
    const Fp__AttrReply *r;
    int rc;

    msg.ino = ino;
    rc = cl_mgr_call_sync(a->m, FP__MSG_TYPE__MSG_OPEN, &msg.base, &reply);
    if (rc < 0)
        return rc;
    r = (const Fp__AttrReply *)reply;
    rc = r->attr ? open_own(a, r->attr, O_RDONLY, out) : -EPROTO;
    protobuf_c_message_free_unpacked(reply, NULL);
    return rc;
}

/* -------------------------------------------------------------- files kept open for a moment */

int cl_aux_own_files_new(struct cl_aux *a)
{
    a->own_files = calloc(1, sizeof(*a->own_files));
    if (!a->own_files)
        return -ENOMEM;
    pthread_mutex_init(&a->own_files->lock, NULL);
    return 0;
}

static void drop_open(struct cl_aux *a, uint64_t older_than_ms)
{
    struct aux_own_files *t = a->own_files;

    for (uint32_t i = 0; i < OPEN_FILES; i++) {
        struct cl_handle *h = NULL;

        pthread_mutex_lock(&t->lock);
        if (t->open[i].handle && t->open[i].used_ms <= older_than_ms) {
            h = t->open[i].handle;
            t->open[i].handle = NULL;
        }
        pthread_mutex_unlock(&t->lock);
        if (h)
            close_own(a, h);
    }
}

struct expiry { struct aux_task task; };

static void expire(struct cl_aux *a, struct aux_task *t)
{
    drop_open(a, fp_now_ms() - OPEN_FOR_MS);
    free(t);
}

void cl_aux_own_files_tick(struct cl_aux *a, uint64_t now_ms)
{
    struct expiry *e;
    bool any = false;

    pthread_mutex_lock(&a->own_files->lock);
    for (uint32_t i = 0; i < OPEN_FILES; i++)
        any |= a->own_files->open[i].handle && a->own_files->open[i].used_ms + OPEN_FOR_MS <= now_ms;
    pthread_mutex_unlock(&a->own_files->lock);
    e = any ? malloc(sizeof(*e)) : NULL;
    if (!e)
        return;
    e->task.run = expire;
    cl_aux_task_post(a, &e->task);
}

void cl_aux_own_files_drop(struct cl_aux *a)
{
    drop_open(a, UINT64_MAX);
}

void cl_aux_own_files_free(struct cl_aux *a)
{
    if (!a->own_files)
        return;
    for (uint32_t i = 0; i < WRITES; i++) {
        free(a->own_files->write[i].bytes);
        cl_aux_host_put(a->own_files->write[i].host);
    }
    pthread_mutex_destroy(&a->own_files->lock);
    free(a->own_files);
    a->own_files = NULL;
}

static int handle_get(struct cl_aux *a, uint64_t ino, struct cl_handle **out)
{
    struct aux_own_files *t = a->own_files;

    *out = NULL;
    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < OPEN_FILES && !*out; i++) {
        if (t->open[i].handle && t->open[i].ino == ino) {
            *out = t->open[i].handle;
            t->open[i].handle = NULL;
        }
    }
    pthread_mutex_unlock(&t->lock);
    return *out ? 0 : open_ino(a, ino, out);
}

static void handle_put(struct cl_aux *a, uint64_t ino, struct cl_handle *h)
{
    struct aux_own_files *t = a->own_files;

    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < OPEN_FILES && h; i++) {
        if (!t->open[i].handle) {
            t->open[i] = (struct aux_open){ .ino = ino, .handle = h, .used_ms = fp_now_ms() };
            h = NULL;
        }
    }
    pthread_mutex_unlock(&t->lock);
    if (h)
        close_own(a, h);
}

/* -------------------------------------------------------------- read */

static ssize_t read_file(struct cl_aux *a, struct cl_handle *h, uint64_t off, uint8_t *buf, uint32_t len)
{
    uint32_t done = 0;

    while (done < len) {
        struct iovec iov[READ_IOV];
        struct cl_read_pin *pin = NULL;
        int niov = READ_IOV;
        ssize_t n = cl_data_read(a->m, h, len - done, off + done, iov, &niov, &pin);

        for (int i = 0; n > 0 && i < niov; i++) {
            memcpy(buf + done, iov[i].iov_base, iov[i].iov_len);
            done += (uint32_t)iov[i].iov_len;
        }
        if (pin)
            cl_data_read_done(a->m, pin);
        if (n < 0 && done == 0)
            return n;
        if (n <= 0)
            break;
    }
    return done;
}

void cl_aux_svc_file_read(struct cl_aux *a, struct aux_request *r)
{
    Fp__AuxRead *msg = cl_aux_request_unpack(r, &fp__aux_read__descriptor);
    struct cl_handle *h;
    uint8_t *buf;
    ssize_t n;

    if (!msg)
        return;
    buf = msg->len <= PART_MAX ? malloc(msg->len + 1) : NULL;
    n = buf ? handle_get(a, msg->ino, &h) : -EINVAL;
    if (n == 0) {
        n = read_file(a, h, msg->off, buf, msg->len);
        handle_put(a, msg->ino, h);
    }
    cl_aux_reply(r, n < 0 ? (int)n : 0, buf, n > 0 ? (size_t)n : 0, true);
    free(buf);
    fp__aux_read__free_unpacked(msg, NULL);
}

void cl_aux_svc_read_chunk(struct cl_aux *a, struct aux_request *r)
{
    Fp__AuxRead *msg = cl_aux_request_unpack(r, &fp__aux_read__descriptor);
    struct cl_chunk_ref ref;
    uint8_t *buf;
    int rc;

    if (!msg)
        return;
    buf = msg->len <= PART_MAX ? malloc(msg->len + 1) : NULL;
    rc = buf ? 0 : -EINVAL;
    if (rc == 0)
        rc = cl_aux_holds_ref(a, msg->chunk, &ref) ? cl_peek(a->m->data, &ref, msg->off, buf, msg->len, fp_now_ms() + ASK_MS) : -ENOENT;
    cl_aux_reply(r, rc, buf, rc == 0 ? msg->len : 0, true);
    free(buf);
    fp__aux_read__free_unpacked(msg, NULL);
}

/* -------------------------------------------------------------- find */

int cl_aux_walk(struct cl_aux *a, const char *path, Fp__AttrReply **out)
{
    uint64_t ino = 1;
    int rc = 0;

    *out = NULL;
    while (rc == 0) {
        Fp__Lookup msg = FP__LOOKUP__INIT;
        uint8_t *packed;
        size_t len = strcspn(path, "/");

        if (len == 0 && *path == '/') {
            path++;
            continue;
        }
        if (len == 0)
            break;
        if (*out)
            fp__attr_reply__free_unpacked(*out, NULL);
        *out = NULL;
        msg.parent = ino;
        msg.name = (ProtobufCBinaryData){ .len = len, .data = (uint8_t *)path };
        path += len;
        rc = cl_aux_ask(a, FP__MSG_TYPE__MSG_LOOKUP, &msg.base, ASK_MS, &packed, &len);
        if (rc == 0 && (!(*out = fp__attr_reply__unpack(NULL, len, packed)) || !(*out)->attr))
            rc = -EPROTO;
        free(packed);
        ino = rc == 0 ? (*out)->attr->ino : 0;
    }
    if (rc < 0 && *out) {
        fp__attr_reply__free_unpacked(*out, NULL);
        *out = NULL;
    }
    return rc < 0 ? rc : *out ? 0 : -ENOENT;
}

static char *text_of(ProtobufCBinaryData b)
{
    char *s = malloc(b.len + 1);

    if (s) {
        if (b.len > 0)
            memcpy(s, b.data, b.len);
        s[b.len] = '\0';
    }
    return s;
}

void cl_aux_svc_file_find(struct cl_aux *a, struct aux_request *r)
{
    Fp__Lookup *msg = cl_aux_request_unpack(r, &fp__lookup__descriptor);
    Fp__AttrReply *reply = NULL;
    uint8_t *packed = NULL;
    char *path;
    int rc;

    if (!msg)
        return;
    path = text_of(msg->name);
    rc = path ? cl_aux_walk(a, path, &reply) : -ENOMEM;
    if (rc == 0 && !(packed = malloc(fp__attr_reply__get_packed_size(reply) + 1)))
        rc = -ENOMEM;
    cl_aux_reply(r, rc, packed, rc == 0 ? fp__attr_reply__pack(reply, packed) : 0, true);
    if (reply)
        fp__attr_reply__free_unpacked(reply, NULL);
    free(packed);
    free(path);
    fp__lookup__free_unpacked(msg, NULL);
}

/* -------------------------------------------------------------- write */

static int make_temp(struct cl_aux *a, uint64_t parent, char *name, size_t size, uint32_t mode, struct cl_handle **out)
{
    Fp__MkNod msg = FP__MK_NOD__INIT;
    ProtobufCMessage *reply = NULL;
    const Fp__AttrReply *r;
    uint64_t number;
    int rc;

    pthread_mutex_lock(&a->own_files->lock);
    number = ++a->own_files->temp;
    pthread_mutex_unlock(&a->own_files->lock);
    snprintf(name, size, ".fp-aux.%u.%llu", (unsigned)cl_core_session(a->m), (unsigned long long)number);
    msg.parent = parent;
    msg.name = (ProtobufCBinaryData){ .len = strlen(name), .data = (uint8_t *)name };
    msg.mode = S_IFREG | (mode & 0777);
    msg.uid = (uint32_t)getuid();
    msg.gid = (uint32_t)getgid();
    msg.open = msg.excl = true;
    rc = cl_mgr_call_sync(a->m, FP__MSG_TYPE__MSG_MKNOD, &msg.base, &reply);
    if (rc < 0)
        return rc;
    r = (const Fp__AttrReply *)reply;
    rc = r->attr ? open_own(a, r->attr, O_WRONLY, out) : -EPROTO;
    protobuf_c_message_free_unpacked(reply, NULL);
    return rc;
}

static int rename_temp(struct cl_aux *a, uint64_t parent, const char *temp, const char *name)
{
    Fp__Rename msg = FP__RENAME__INIT;

    msg.parent = msg.new_parent = parent;
    msg.name = (ProtobufCBinaryData){ .len = strlen(temp), .data = (uint8_t *)temp };
    msg.new_name = (ProtobufCBinaryData){ .len = strlen(name), .data = (uint8_t *)name };
    return cl_mgr_call_sync(a->m, FP__MSG_TYPE__MSG_RENAME, &msg.base, NULL);
}

static void remove_temp(struct cl_aux *a, uint64_t parent, const char *temp)
{
    Fp__Unlink msg = FP__UNLINK__INIT;

    msg.parent = parent;
    msg.name = (ProtobufCBinaryData){ .len = strlen(temp), .data = (uint8_t *)temp };
    (void)cl_mgr_call_sync(a->m, FP__MSG_TYPE__MSG_UNLINK, &msg.base, NULL);
}

static int write_all(struct cl_aux *a, struct cl_handle *h, const uint8_t *bytes, uint32_t len)
{
    uint32_t done = 0;

    pthread_mutex_lock(&h->inode->lock);
    h->inode->aux_serial = CL_AUX_SERIAL_OWN;
    pthread_mutex_unlock(&h->inode->lock);
    while (done < len) {
        ssize_t n = cl_data_write(a->m, h, (const char *)bytes + done, len - done, done, false);

        if (n <= 0)
            return n < 0 ? (int)n : -EIO;
        done += (uint32_t)n;
    }
    return cl_data_flush(a->m, h->inode);
}

static int put_file(struct cl_aux *a, char *path, uint32_t mode, const uint8_t *bytes, uint32_t len)
{
    char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, temp[64];
    struct cl_handle *h;
    uint64_t parent = 1;
    int rc = 0;

    if (*name == '\0' || strlen(name) > 255)
        return -EINVAL;
    if (slash) {
        Fp__AttrReply *dir = NULL;

        *slash = '\0';
        if (*path)
            rc = cl_aux_walk(a, path, &dir);
        if (dir) {
            parent = dir->attr->ino;
            fp__attr_reply__free_unpacked(dir, NULL);
        }
    }
    if (rc == 0)
        rc = make_temp(a, parent, temp, sizeof(temp), mode, &h);
    if (rc < 0)
        return rc;
    rc = write_all(a, h, bytes, len);
    if (rc == 0)
        rc = rename_temp(a, parent, temp, name);
    if (rc < 0)
        remove_temp(a, parent, temp);
    close_own(a, h);
    return rc;
}

/* The place where this host's write of this id is put together; a new one takes the place of one whose host has ended. */
static struct aux_write *write_of(struct cl_aux *a, const struct aux_request *r)
{
    struct aux_own_files *t = a->own_files;
    struct aux_write *unused = NULL;

    for (uint32_t i = 0; i < WRITES; i++) {
        struct aux_write *w = &t->write[i];

        if (w->host == r->host && w->id == r->id)
            return w;
        if (w->host && w->host->pid == 0) { /* has ended */
            free(w->bytes);
            cl_aux_host_put(w->host);
            *w = (struct aux_write){ 0 };
        }
        if (!w->host && !unused)
            unused = w;
    }
    if (unused) {
        *unused = (struct aux_write){ .id = r->id, .host = r->host };
        atomic_fetch_add(&r->host->refs, 1);
    }
    return unused;
}

static int add_part(struct aux_write *w, const Fp__AuxWrite *msg)
{
    uint64_t end = msg->off + msg->data.len;
    uint8_t *more;

    if (msg->off > WRITE_MAX || end > WRITE_MAX || msg->off != w->len_bytes)
        return -EINVAL;
    more = realloc(w->bytes, end + 1);
    if (!more)
        return -ENOMEM;
    if (msg->data.len > 0)
        memcpy(more + msg->off, msg->data.data, msg->data.len);
    w->bytes = more;
    w->len_bytes = (uint32_t)end;
    return 0;
}

void cl_aux_svc_file_write(struct cl_aux *a, struct aux_request *r)
{
    Fp__AuxWrite *msg = cl_aux_request_unpack(r, &fp__aux_write__descriptor);
    struct aux_write *w, whole = { 0 };
    char *path;
    int rc;

    if (!msg)
        return;
    path = text_of(msg->path);
    pthread_mutex_lock(&a->own_files->lock);
    w = path ? write_of(a, r) : NULL;
    rc = w ? add_part(w, msg) : -ENOMEM;
    if (w && (rc < 0 || msg->last)) {
        whole = *w;
        *w = (struct aux_write){ 0 };
    }
    pthread_mutex_unlock(&a->own_files->lock);
    if (rc == 0 && msg->last)
        rc = put_file(a, path, msg->mode, whole.bytes, whole.len_bytes);
    cl_aux_reply(r, rc, NULL, 0, true);
    free(whole.bytes);
    cl_aux_host_put(whole.host);
    free(path);
    fp__aux_write__free_unpacked(msg, NULL);
}
