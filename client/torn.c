/*
 * Files that a program has left half (killed, or told an error): their release is a request, and until the manager has answered that the mark is stored the file is kept here, and each
 * hello names it. A manager that is killed at the same moment would know nothing else of it: once it is released, no hello names the file as open.
 *
 * A manager whose disk takes nothing has it, too: it marks the file as soon as the disk does (manager/lostclose.c). To say it again later would be wrong: the file may be written anew by then, and is whole.
 *
 * Called by mgr_call.c and mgr_link.c, on the core loop. What is kept is under way in a request of this connection, or waits for the next hello; when a connection has ended, all of it does.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/core_int.h"
#include "fp/log.h"

struct cl_torn {
    struct cl_torn *next;
    struct cl_core *c;
    bool named; /* in the last hello */
    size_t n;
    uint64_t ino[];
};

static struct cl_torn *keep(struct cl_core *c, const uint64_t *ino, size_t n)
{
    struct cl_torn *t = malloc(sizeof *t + n * sizeof *ino);
    if (!t) {
        FP_ERROR("out of memory: cannot tell the manager of a program that was killed");
        abort();
    }
    *t = (struct cl_torn){.next = c->torn, .c = c, .n = n};
    memcpy(t->ino, ino, n * sizeof *ino);
    c->torn = t;
    return t;
}

static void forget(struct cl_core *c, const struct cl_torn *only)
{
    for (struct cl_torn **p = &c->torn; *p;) {
        struct cl_torn *t = *p;
        if (only ? t != only : !t->named) {
            p = &t->next;
            continue;
        }
        *p = t->next;
        free(t);
    }
}

bool cl_is_kept(int status)
{
    return status == 0 || status == -ENOSPC || status == -EIO;
}

static void on_answer(void *arg, int status, const struct fp_rpc_in *in)
{
    struct cl_torn *t = arg;
    if (in)
        fp_rpc_payload_free(in->payload);
    if (in && cl_is_kept(status))
        forget(t->c, t);
}

void cl_torn_release(struct cl_core *c, const Fp__Release *r)
{
    struct fp_rpc_req req = {
        .type = FP__MSG_TYPE__MSG_RELEASE, .msg = &r->base, .timeout_ms = CL_RPC_TIMEOUT_MS, .cb = on_answer, .arg = keep(c, r->torn_ino, r->n_torn_ino)};
    (void)fp_rpc_call(c->conn, &req, NULL);
}

void cl_torn_keep(struct cl_core *c, const struct cl_released *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (list[i].torn)
            (void)keep(c, &list[i].ino, 1);
}

int cl_torn_hello(struct cl_core *c, Fp__Hello *h)
{
    size_t n = 0;
    for (const struct cl_torn *t = c->torn; t; t = t->next)
        n += t->n;
    h->torn_ino = n ? malloc(n * sizeof *h->torn_ino) : NULL;
    if (n && !h->torn_ino)
        return -ENOMEM;
    for (struct cl_torn *t = c->torn; t; t = t->next) {
        t->named = true;
        memcpy(h->torn_ino + h->n_torn_ino, t->ino, t->n * sizeof *t->ino);
        h->n_torn_ino += t->n;
    }
    return 0;
}

void cl_torn_heard(struct cl_core *c)
{
    forget(c, NULL);
}

void cl_torn_fini(struct cl_core *c)
{
    for (struct cl_torn *t = c->torn; t; t = t->next)
        t->named = true;
    forget(c, NULL);
}
