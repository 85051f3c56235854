/* MSG_CTL_LOCKS: who holds which lock, the right to append or a lease of which file, and who waits. For `fpctl locks`, when a job hangs.
 *
 * Called by the core's thread, in a group, which it does not change. It walks the tables of locks and leases, so it takes time in proportion to all locks of the store, at
 * most as long as its answer may be. What waits is there as it was asked for; who of the holders is in its way is for who reads it.
 *
 * Rejected: pages of it. Locks come and go between two questions, so that parts of an answer would not fit together; who needs more asks for one file. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "manager/core_int.h"
#include "manager/locks.h"

#define LOCKS_MAX       4096u
#define LOOKS_MAX       65536u     /* at locks of files whose path is to be found */
#define BYTES_MAX       (2u << 20) /* of the answer, with names; a message has 4 MiB */
#define ENTRY_MAX_BYTES 128u       /* of an entry, without its names */

struct listing {
    struct mgr_core *c;
    Fp__CtlLocksReply *r;
    ProtobufCBinaryData below; /* a directory: of files in it alone; empty: of all */
    uint32_t max, looks;
    size_t bytes;
    uint64_t ino; /* whose path was found last */
    ProtobufCBinaryData path;
    bool no_memory;
};

static bool is_below(const struct listing *t)
{
    size_t len = t->below.len;

    if (len <= 1)
        return true; /* the root */
    return t->path.len > len && memcmp(t->path.data, t->below.data, len) == 0 && t->path.data[len] == '/';
}

/* False: no more. *out: NULL, this one is not asked for. */
static bool add(struct listing *t, const struct mgr_session *s, uint64_t ino, Fp__CtlLock **out)
{
    Fp__CtlLocksReply *r = t->r;

    *out = NULL;
    if (t->ino != ino)
        t->path = mgr_path(t->c, ino);
    t->ino = ino;
    r->more = ++t->looks > LOOKS_MAX;
    if (r->more || !is_below(t))
        return !r->more;
    t->bytes += ENTRY_MAX_BYTES + t->path.len + (s ? strlen(s->node) + strlen(s->mountpoint) : 0);
    r->more = r->n_locks == t->max || t->bytes > BYTES_MAX;
    if (r->more)
        return false;
    *out = MGR_NEW(t->c, Fp__CtlLock, fp__ctl_lock__init);
    t->no_memory |= !*out;
    if (!*out)
        return false;
    (*out)->ino = ino;
    (*out)->path = t->path;
    if (s) {
        (*out)->session = s->id;
        (*out)->node = mgr_arena_text(&t->c->arena, s->node);
        (*out)->mountpoint = mgr_arena_text(&t->c->arena, s->mountpoint);
        (*out)->connected = s->conn != NULL;
    }
    r->locks[r->n_locks++] = *out;
    return true;
}

static bool add_lock(void *arg, uint64_t ino, const struct mgr_lock *h, bool waits)
{
    struct listing *t = arg;
    Fp__CtlLock *l;
    bool on = add(t, mgr_session_find(t->c, h->session), ino, &l);

    if (!l)
        return on;
    l->session = h->session;
    l->kind = (Fp__CtlLockKind)h->kind;
    l->exclusive = h->exclusive;
    l->start = h->start;
    l->end = h->end;
    l->pid = h->pid;
    l->waits = waits;
    l->since_start = h->since_ms == 0;
    l->for_ms = h->since_ms ? t->c->now.ms - h->since_ms : 0;
    return true;
}

static bool add_lease(void *arg, const struct mgr_session *s, uint64_t ino, uint64_t since_ms, bool recalled)
{
    struct listing *t = arg;
    Fp__CtlLock *l;
    bool on = add(t, s, ino, &l);

    if (!l)
        return on;
    l->behind = mgr_lease_is_behind(t->c, ino);
    l->kind = FP__CTL_LOCK_KIND__CTL_LOCK_LEASE;
    l->exclusive = true;
    l->end = MGR_LOCK_EOF;
    l->recalled = recalled;
    l->for_ms = t->c->now.ms - since_ms;
    return true;
}

/* *ino: the file; 0: those in a directory, which t knows then. */
static int resolve(struct listing *t, const Fp__CtlLocks *m, uint64_t *ino)
{
    struct mgr_inode in;
    int rc = mgr_resolve(t->c, m->path, ino);

    rc = rc ? rc : mgr_inode_get(t->c, *ino, &in);
    if (rc || !mgr_is(&in, S_IFDIR))
        return rc;
    t->below = mgr_path(t->c, *ino);
    *ino = 0;
    return t->below.len ? 0 : -ENOENT;
}

MGR_HANDLER(ctl_locks)
{
    const Fp__CtlLocks *m = msg;
    struct listing t = {.c = c, .max = m->max && m->max < LOCKS_MAX ? m->max : LOCKS_MAX, .r = MGR_NEW(c, Fp__CtlLocksReply, fp__ctl_locks_reply__init)};
    uint64_t ino = 0;
    int rc = resolve(&t, m, &ino);

    if (rc)
        return rc;
    if (t.r)
        t.r->locks = mgr_arena_alloc(&c->arena, t.max * sizeof *t.r->locks);
    if (!t.r || !t.r->locks)
        return mgr_doom(c, -ENOMEM);
    mgr_locks_each(c->locks, ino, add_lock, &t);
    if (!t.r->more)
        mgr_leases_each(c, ino, add_lease, &t);
    if (t.no_memory)
        return mgr_doom(c, -ENOMEM);
    rq->reply = &t.r->base;
    return 0;
}
