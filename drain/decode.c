/*
 * Coded chunks: what aux-apps made of data (compress, encrypt) is undone before it is written, so that the target has the files of the application.
 *
 * On a thread of the target. The plugins run in a host of their own, fp-auxhost, as for fp-mount (fp/auxwire.h), which is started when the first coded chunk
 * is met and ends with us: a plugin that crashes or hangs costs that host, and the file of which it should have decoded a chunk, and nothing else. One chunk
 * at a time: the host's two buffers are ours under the lock. Nothing is answered to what a plugin asks of a mount while it decodes, but that it can't be had.
 *
 * What an aux-app needs to undo what it did, as encrypt its key, is in its declaration (fp-benefactor --auxapp). Without it the file fails, and says so: its
 * coded bytes would be of no use to anybody in the target.
 *
 * The data is compared with the sum of the envelope. Not where a stage hides the data: that sum is made with the store's key, which this process does not
 * have, and such a stage knows bytes that were changed by itself.
 *
 * Rejected: to load plugins into this process, which a crash would end with all that it has under way; to read such files through a mount, which not every
 * node of a benefactor has.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "drain/drain.h"
#include "fp/beside.h"
#include "fp/child.h"
#include "fp/clock.h"
#include "fp/envelope.h"
#include "fp/err.h"
#include "fp/memfd.h"
#include "fp/xxh3.h"

#define POOL_BYTES 65536u /* of no use here, but a host wants one */
#define CAP_BYTES  ((FP_STORED_MAX_BYTES + 65535u) / 65536u * 65536u)
#define START_MS   30000u
#define CALL_MS    30000u
#define SAID_MAX   160u

struct dr_coder {
    pthread_mutex_t lock; /* all below but what is constant */
    char plugin_dir[FP_DW_PLUGIN_DIR_MAX], *declared; /* constant */
    unsigned ndeclared;
    struct fp_child *host; /* NULL: there is none */
    int services;
    uint8_t *region; /* two buffers of CAP_BYTES */
    uint64_t id;     /* of the last call */
    char said[SAID_MAX]; /* its last complaint */
};

/* ---------------------------------------------------------------- messages */

static int tell(struct dr_coder *d, void *head, size_t len, const char *text)
{
    struct fp_auxw_head *h = head;
    struct iovec iov[2] = { { head, len }, { (void *)(uintptr_t)text, text ? strlen(text) : 0 } };
    struct msghdr m = { .msg_iov = iov, .msg_iovlen = 2 };

    h->len_bytes = (uint32_t)(len + iov[1].iov_len);
    return sendmsg(fp_child_socket(d->host), &m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

static void refuse_service(struct dr_coder *d)
{
    static const size_t max = FP_AUXW_MESSAGE_MAX_BYTES;
    uint8_t *buf = malloc(max);
    struct fp_auxw_svc a;

    if (buf && recv(d->services, buf, max, MSG_DONTWAIT) >= (ssize_t)sizeof(a)) {
        memcpy(&a, buf, sizeof(a));
        a = (struct fp_auxw_svc){ .h = { .type = a.h.type, .id = a.h.id, .len_bytes = sizeof(a) }, .status = -ENOTSUP, .eof = 1 };
        (void)send(d->services, &a, sizeof(a), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    free(buf);
}

static void keep_said(struct dr_coder *d, const uint8_t *text, size_t len)
{
    snprintf(d->said, sizeof(d->said), "%.*s", (int)len, (const char *)text);
    for (char *p = d->said; *p; p++)
        *p = *p == '\n' ? ' ' : *p;
}

/* The next message of this type to buf; what the host logs meanwhile is heard. -EPIPE: it has ended; -ETIMEDOUT. */
static ssize_t hear(struct dr_coder *d, uint32_t type, uint8_t *buf, size_t size, uint64_t until_ms)
{
    int services = d->services;

    for (;;) {
        uint64_t now = fp_now_ms();
        struct pollfd p[2] = { { .fd = fp_child_socket(d->host), .events = POLLIN }, { .fd = services, .events = POLLIN } };
        struct fp_auxw_head h;
        ssize_t n;

        if (now >= until_ms)
            return -ETIMEDOUT;
        if (poll(p, 2, (int)(until_ms - now)) < 0 && errno != EINTR)
            return -errno;
        if (p[1].revents & POLLIN)
            refuse_service(d);
        else if (p[1].revents)
            services = -1; /* hung up: nobody asks any more, and poll would return at once */
        n = recv(fp_child_socket(d->host), buf, size, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n < (ssize_t)sizeof(h))
            return -EPIPE;
        memcpy(&h, buf, sizeof(h));
        if (h.type == type)
            return n;
        if (h.type == FP_AUXW_FAILED)
            return keep_said(d, buf + sizeof(struct fp_auxw_failed), (size_t)n - sizeof(struct fp_auxw_failed)), -ELIBACC;
        if (h.type == FP_AUXW_LOG && n > (ssize_t)sizeof(struct fp_auxw_log) && ((struct fp_auxw_log *)(void *)buf)->level == FP_AUX_ERROR)
            keep_said(d, buf + sizeof(struct fp_auxw_log), (size_t)n - sizeof(struct fp_auxw_log));
    }
}

/* ---------------------------------------------------------------- the host */

static void host_end(struct dr_coder *d)
{
    uint64_t until = fp_now_ms() + 1000;

    if (!d->host)
        return;
    fp_child_kill(d->host);
    while (!fp_child_gone(d->host, NULL) && fp_now_ms() < until)
        usleep(1000);
    fp_child_free(d->host);
    d->host = NULL;
    close(d->services);
    munmap(d->region, 2ul * CAP_BYTES);
}

/* Its memory and sockets, and then the process. */
static int host_spawn(struct dr_coder *d)
{
    static const char *const hosts[] = { "fp-auxhost", "../libexec/fpstore/fp-auxhost", "../lib/fpstore/fp-auxhost", NULL };
    char path[4096];
    struct fp_child_opts o = { .path = path, .name = "fp-auxhost", .page_bytes = sizeof(struct fp_auxw_status), .page_at = FP_AUXW_FD_STATUS, .nmore = 3 };
    int services[2] = { -1, -1 }, pool = fp_memfd_new("fpstore-drain-pool", POOL_BYTES), region = fp_memfd_new("fpstore-drain-region", 2ul * CAP_BYTES);
    struct fp_child_fd more[3] = { { -1, FP_AUXW_FD_SERVICES }, { pool, FP_AUXW_FD_POOL }, { region, FP_AUXW_FD_REGION } };
    void *at = region < 0 ? MAP_FAILED : mmap(NULL, 2ul * CAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, region, 0);
    int rc = pool < 0 ? pool : region < 0 ? region : at == MAP_FAILED ? -errno : 0;

    if (!fp_beside(path, sizeof(path), hosts))
        path[0] = '\0';
    if (rc == 0 && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, services))
        rc = -errno;
    more[0].fd = services[1];
    o.more = more;
    rc = rc ? rc : path[0] ? fp_child_start(&o, &d->host) : -ENOENT;
    for (int i = 0; i < 3; i++)
        if (more[i].fd >= 0)
            close(more[i].fd);
    d->services = services[0];
    d->region = at;
    if (rc == 0)
        return 0;
    if (services[0] >= 0)
        close(services[0]);
    if (at != MAP_FAILED)
        munmap(at, 2ul * CAP_BYTES);
    return rc;
}

static int introduce(struct dr_coder *d)
{
    struct fp_auxw_start start = { .h = { .type = FP_AUXW_START }, .pool_bytes = POOL_BYTES, .region_bytes = 2ul * CAP_BYTES, .napps = d->ndeclared,
                                   .decode_only = d->ndeclared == 0 };
    const char *text = d->declared;
    char dir[4096];
    int rc = 0;

    for (unsigned i = 0; rc == 0 && i < d->ndeclared; i++, text += strlen(text) + 1) {
        struct fp_auxw_config config = { .h = { .type = FP_AUXW_CONFIG }, .index = i, .required = FP_AUXW_CONFIG_BYPASSED };

        rc = tell(d, &config, sizeof(config), text);
    }
    snprintf(dir, sizeof(dir), "%s", d->plugin_dir);
    if (!dir[0])
        fp_beside_plugins(dir, sizeof(dir));
    if (strlen(dir) >= sizeof(start.plugin_dir))
        return -ENAMETOOLONG;
    snprintf(start.plugin_dir, sizeof(start.plugin_dir), "%.255s", dir);
    return rc ? rc : tell(d, &start, sizeof(start), NULL);
}

static int host_start(struct dr_coder *d)
{
    struct fp_auxw_ready *ready;
    uint8_t *buf = aligned_alloc(16, FP_AUXW_MESSAGE_MAX_BYTES);
    ssize_t n;
    int rc = buf ? host_spawn(d) : -ENOMEM;

    if (rc) {
        free(buf);
        return rc;
    }
    rc = introduce(d);
    n = rc ? rc : hear(d, FP_AUXW_READY, buf, FP_AUXW_MESSAGE_MAX_BYTES, fp_now_ms() + START_MS);
    ready = (struct fp_auxw_ready *)(void *)buf;
    rc = n < 0 ? (int)n : n < (ssize_t)sizeof(*ready) || ready->abi != FP_AUX_ABI ? -EPROTO : 0;
    free(buf);
    if (rc)
        host_end(d);
    return rc;
}

/* ---------------------------------------------------------------- one chunk */

/* With the lock, and a host. *where: of its buffers. -EPIPE, -ETIMEDOUT: it is of no use any more. */
static int ask(struct dr_coder *d, const struct fp_envelope *e, const uint8_t *coded, uint32_t *where)
{
    struct fp_auxw_chunk_in m = { .h = { .type = FP_AUXW_CHUNK_IN, .id = ++d->id }, .b = CAP_BYTES, .cap_bytes = CAP_BYTES, .coded_bytes = e->coded_bytes,
                                  .nstages = e->nstages };
    uint8_t *buf = aligned_alloc(16, FP_AUXW_MESSAGE_MAX_BYTES);
    struct fp_auxw_done done = { 0 };
    uint64_t until = fp_now_ms() + CALL_MS;
    ssize_t n;

    if (!buf)
        return -ENOMEM;
    memcpy(d->region, coded, e->coded_bytes);
    memcpy(m.stage, e->stage, sizeof(m.stage));
    n = tell(d, &m, sizeof(m), NULL) ? -EPIPE : 0;
    while (n >= 0 && done.h.id != d->id) {
        n = hear(d, FP_AUXW_DONE, buf, FP_AUXW_MESSAGE_MAX_BYTES, until);
        if (n >= (ssize_t)sizeof(done))
            memcpy(&done, buf, sizeof(done));
    }
    free(buf);
    *where = done.where;
    if (n >= 0 && done.status == 0 && done.where != 1 && done.where != 2)
        return -EPIPE;
    return n < 0 ? (int)n : done.status;
}

static int explain(struct dr_thread *th, const struct dr_coder *d, const struct fp_envelope *e, int rc)
{
    char names[FP_AUXW_STAGES_MAX * 26] = "";

    for (uint32_t i = 0; i < e->nstages; i++) {
        strcat(names, i ? ", " : "");
        strcat(names, e->stage[i].name); /* ends with a NUL: fp_envelope_decode */
    }
    if (rc == -ENOPKG || rc == -ENOENT)
        return dr_fail(th, FP_DW_SCOPE_FILE, FP_EAUXAPP, "it was made by aux-app %s, which is not installed here: see fp-benefactor --auxapp-dir", names);
    if (rc == -ELIBACC || rc == -ENOKEY)
        return dr_fail(th, FP_DW_SCOPE_FILE, FP_EAUXAPP, "it was made by aux-app %s, which does not start here: fp-benefactor --auxapp with its options (%s)", names,
                       d->said);
    if (rc == -EPIPE)
        return dr_fail(th, FP_DW_SCOPE_FILE, FP_EAUXAPP, "aux-app %s has crashed when it should undo what it did", names);
    if (rc == -ETIMEDOUT)
        return dr_fail(th, FP_DW_SCOPE_FILE, FP_EAUXAPP, "aux-app %s has not come back when it should undo what it did", names);
    return dr_fail(th, FP_DW_SCOPE_FILE, FP_EAUXAPP, "it was made by aux-app %s, which can't be undone here: %s", names, fp_strerror(rc));
}

static int damaged(struct dr_thread *th, const struct fp_dw_slice *s)
{
    th->r.chunk = s->chunk;
    return dr_fail(th, FP_DW_SCOPE_CHUNK, FP_ECHECKSUM, "chunk %016llx: what it decodes to is not what was coded", (unsigned long long)s->chunk);
}

int dr_decode(struct dr_thread *th, const struct fp_dw_slice *s, const uint8_t *stored, uint8_t *data)
{
    struct dr_coder *d = th->w->coder;
    struct fp_envelope e;
    uint32_t where = 0;
    int rc = fp_envelope_decode(stored, s->chunk_len, s->chunk_len, &e);

    if (rc || e.data_bytes != s->data_len)
        return damaged(th, s);
    pthread_mutex_lock(&d->lock);
    rc = -EPIPE;
    for (int i = 0; i < 2 && rc == -EPIPE; i++) { /* a host that has died of something else gets a successor */
        d->said[0] = '\0';
        rc = d->host ? 0 : host_start(d);
        rc = rc ? rc : ask(d, &e, stored + FP_ENVELOPE_BYTES(e.nstages), &where);
        if (rc == -EPIPE || rc == -ETIMEDOUT)
            host_end(d);
    }
    if (rc == 0)
        memcpy(data, d->region + (where == 2 ? CAP_BYTES : 0), s->data_len);
    else if (rc != -EILSEQ)
        rc = explain(th, d, &e, rc);
    pthread_mutex_unlock(&d->lock);
    if (rc == -EILSEQ || (rc == 0 && !e.keyed && fp_xxh3_64(data, s->data_len) != e.data_sum))
        return damaged(th, s);
    return rc;
}

/* ---------------------------------------------------------------- life */

struct dr_coder *dr_coder_new(const char *plugin_dir, const char *declared, unsigned ndeclared)
{
    struct dr_coder *d = calloc(1, sizeof(*d));
    size_t len = 0;

    for (unsigned i = 0; i < ndeclared; i++)
        len += strlen(declared + len) + 1;
    if (d && len && !(d->declared = malloc(len))) {
        free(d);
        d = NULL;
    }
    if (!d)
        return NULL;
    if (len)
        memcpy(d->declared, declared, len);
    pthread_mutex_init(&d->lock, NULL);
    d->ndeclared = ndeclared;
    snprintf(d->plugin_dir, sizeof(d->plugin_dir), "%s", plugin_dir);
    return d;
}

void dr_coder_free(struct dr_coder *d)
{
    if (!d)
        return;
    host_end(d);
    pthread_mutex_destroy(&d->lock);
    free(d->declared);
    free(d);
}
