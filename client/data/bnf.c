/*
 * The table of benefactors and the links of the same node (see bnf.h; TCP is in bnf_remote.c). Called on the core loop (table), FUSE threads
 * (leases, reading) and store threads (writing).
 *
 * Entries are made when the manager names a benefactor and live until unmount: others may hold pointers without counting, and a store
 * has a bounded number of them. A local link is counted, because a thread may be inside a call when another one notices that
 * it broke.
 */
#include "client/data/bnf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/data/device.h"
#include "client/data/internal.h"
#include "fp/bug.h"
#include "fp/fault.h"

#define LOCAL_CALL_MS 2500u
#define LOCAL_OPEN_MS 1000u
#define LOCAL_RETRY_MS 1000u
#define LIVES (sizeof(((struct cl_bnf *)NULL)->life_past) / sizeof(uint64_t))
#define IDS_MAX (1u << 20) /* numbers of benefactors, far more than a manager gives */
#define TELL_MAX 64u /* segments told of at a time */

struct cl_bnf *cl_bnf_find(struct cl_data *d, uint32_t id)
{
    struct cl_bnf *b;

    pthread_mutex_lock(&d->bnf_lock);
    b = id < d->bnf_ids_cap ? d->bnf_ids[id] : NULL;
    pthread_mutex_unlock(&d->bnf_lock);
    return b;
}

/* bnf_lock held. The manager gives numbers from 1 on, without holes; false: out of memory, or a number that it would not give. */
static bool reserve_id(struct cl_data *d, uint32_t id)
{
    size_t cap = d->bnf_ids_cap ? d->bnf_ids_cap : 64;
    struct cl_bnf **ids;

    if (id < d->bnf_ids_cap)
        return true;
    if (id >= IDS_MAX)
        return false;
    while (cap <= id)
        cap *= 2;
    ids = realloc(d->bnf_ids, cap * sizeof(*ids));
    if (!ids)
        return false;
    memset(ids + d->bnf_ids_cap, 0, (cap - d->bnf_ids_cap) * sizeof(*ids));
    d->bnf_ids = ids;
    d->bnf_ids_cap = cap;
    return true;
}

static struct cl_bnf *find_or_make(struct cl_data *d, uint32_t id)
{
    struct cl_bnf *b = cl_bnf_find(d, id);

    if (b)
        return b;
    b = calloc(1, sizeof(*b));
    pthread_mutex_lock(&d->bnf_lock);
    if (b && !reserve_id(d, id)) {
        free(b);
        b = NULL;
    }
    pthread_mutex_unlock(&d->bnf_lock);
    if (!b)
        return NULL;
    b->id = id;
    b->data = d;
    b->waiting_tail = &b->waiting;
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->opened, NULL);
    pthread_mutex_init(&b->sync_lock, NULL);
    pthread_mutex_init(&b->remote_lock, NULL);
    pthread_mutex_init(&b->life_lock, NULL);
    pthread_mutex_lock(&d->bnf_lock);
    b->next = d->bnfs;
    d->bnfs = b;
    d->bnf_ids[id] = b;
    d->nbnfs++;
    pthread_mutex_unlock(&d->bnf_lock);
    return b;
}

static void copy_text(char *dst, size_t cap, const char *src)
{
    size_t n = strnlen(src ? src : "", cap - 1);

    memcpy(dst, src ? src : "", n);
    dst[n] = 0;
}

static void llink_put(struct cl_llink *l)
{
    if (l && atomic_fetch_sub(&l->refs, 1) == 1) {
        fp_fdlink_close(l->link);
        free(l);
    }
}

/* b->lock held. Leases that came by the link are void from here on. */
static struct cl_llink *detach_link(struct cl_bnf *b)
{
    struct cl_llink *l = b->llink;

    b->llink = NULL;
    if (l) {
        b->local_generation++;
        fp_fdlink_shutdown(l->link);
    }
    return l;
}

static void drop_segs(struct cl_bnf *b)
{
    struct cl_seg *s, *next;

    pthread_mutex_lock(&b->lock);
    s = b->segs;
    b->segs = NULL;
    pthread_mutex_unlock(&b->lock);
    for (; s; s = next) {
        next = s->next;
        cl_seg_put(s);
    }
}

static void update_one(struct cl_data *d, const Fp__BnfInfo *i)
{
    struct cl_bnf *b = find_or_make(d, i->id);

    if (!b)
        return;
    pthread_mutex_lock(&b->lock);
    copy_text(b->node, sizeof(b->node), i->node);
    copy_text(b->addr, sizeof(b->addr), i->addr);
    copy_text(b->local_path, sizeof(b->local_path), i->local_path);
    copy_text(b->backend, sizeof(b->backend), i->backend);
    b->state = (int)i->state;
    b->free_bytes = i->free_bytes;
    b->capacity_bytes = i->capacity_bytes;
    b->prefers_local = b->local_path[0] && strcmp(b->node, d->m->opt.node) == 0;
    if (b->state != FP__BNF_STATE__BNF_DOWN)
        b->retry_local_ms = 0;
    pthread_mutex_unlock(&b->lock);
    cl_bnf_life(b, i->unsynced_life);
}

void cl_bnfs_update(struct cl_data *d, const Fp__BnfTable *t)
{
    for (size_t i = 0; i < t->n_benefactors; i++)
        update_one(d, t->benefactors[i]);
    pthread_mutex_lock(&d->space_lock);
    for (struct cl_bnf *b = d->bnfs; b; b = b->next)
        b->full_until_ms = b->avoid_until_ms = 0;
    pthread_cond_broadcast(&d->space_cond);
    pthread_mutex_unlock(&d->space_lock);
}

void cl_bnfs_free(struct cl_data *d)
{
    struct cl_bnf *b = d->bnfs, *next;

    for (; b; b = next) {
        next = b->next;
        pthread_mutex_lock(&b->lock);
        struct cl_llink *l = detach_link(b);
        pthread_mutex_unlock(&b->lock);
        llink_put(l);
        drop_segs(b);
        cl_device_set(b, NULL);
        pthread_cond_destroy(&b->opened);
        pthread_mutex_destroy(&b->lock);
        pthread_mutex_destroy(&b->sync_lock);
        pthread_mutex_destroy(&b->remote_lock);
        pthread_mutex_destroy(&b->life_lock);
        free(b);
    }
    free(d->bnf_ids);
    d->bnfs = NULL;
    d->bnf_ids = NULL;
    d->bnf_ids_cap = 0;
}

/* Files with data that was not synced before this will be told by fsync. First lost_at: who sees the new count must see this. */
static void count_loss(struct cl_bnf *b)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER; /* leaf */

    pthread_mutex_lock(&one_at_a_time);
    atomic_store(&b->lost_at, atomic_load(&b->data->losses) + 1);
    atomic_fetch_add(&b->data->losses, 1);
    pthread_mutex_unlock(&one_at_a_time);
}

static bool was_life(const struct cl_bnf *b, uint64_t life)
{
    for (unsigned i = 0; i < LIVES; i++)
        if (b->life_past[i] == life)
            return true;
    return false;
}

/* The manager's word and the benefactor's own may come in any order, but no life comes back. */
bool cl_bnf_life(struct cl_bnf *b, uint64_t life)
{
    uint64_t before;
    bool lost;

    pthread_mutex_lock(&b->life_lock);
    before = b->life;
    lost = life != 0 && before != 0 && life != before && !was_life(b, life);
    if (lost) {
        b->life_past[b->nlives++ % LIVES] = before;
        count_loss(b);
    }
    if (lost || before == 0)
        b->life = life;
    pthread_mutex_unlock(&b->life_lock);
    if (lost)
        FP_WARN("benefactor %u lost what was not synced (its node was started again, its device failed, or it keeps data in memory): fsync will tell the files",
            b->id);
    return lost;
}

static Fp__BnfHello hello_of(struct cl_bnf *b)
{
    Fp__BnfHello h = FP__BNF_HELLO__INIT;

    h.store_uuid.data = b->data->m->store_uuid;
    h.store_uuid.len = 16;
    h.session = cl_core_session(b->data->m);
    h.node = (char *)(uintptr_t)b->data->m->opt.node;
    h.keeps_limit = true;
    return h;
}

static int take_hello(struct cl_bnf *b, struct fp_fdlink_reply_buf *r, struct fp_limiter **limiter)
{
    Fp__BnfHelloReply *reply = fp__bnf_hello_reply__unpack(NULL, r->in.msg_len_bytes, r->in.msg);
    int rc = cl_device_hello(reply && reply->limited, r, limiter);

    if (!reply)
        return FP_EBADFRAME;
    if (rc == 0)
        (void)cl_bnf_life(b, reply->unsynced_life);
    fp__bnf_hello_reply__free_unpacked(reply, NULL);
    return rc;
}

/* Say hello on a fresh link; 0 or why the link is of no use. */
static int local_hello(struct cl_bnf *b, struct fp_fdlink *link, struct fp_limiter **limiter)
{
    uint8_t buf[4096];
    struct fp_fdlink_reply_buf r = { .buf = buf, .buf_cap_bytes = sizeof(buf) };
    Fp__BnfHello h = hello_of(b);
    int rc = fp_fdlink_call(link, FP__MSG_TYPE__MSG_BNF_HELLO, &h.base, LOCAL_OPEN_MS, &r);

    return rc < 0 ? rc : take_hello(b, &r, limiter);
}

/* A new link to path, greeted; NULL: *rc says why. */
static struct cl_llink *link_new(struct cl_bnf *b, const char *path, int *rc)
{
    struct cl_llink *l = calloc(1, sizeof(*l));

    *rc = l ? fp_fdlink_open(path, LOCAL_OPEN_MS, &l->link) : -ENOMEM;
    if (*rc == 0) {
        *rc = local_hello(b, l->link, &l->limiter);
        if (*rc < 0)
            fp_fdlink_close(l->link);
    }
    if (*rc < 0) {
        free(l);
        return NULL;
    }
    atomic_store(&l->refs, 1);
    return l;
}

/* b->lock held; let go while the link is opened, which takes up to LOCAL_OPEN_MS twice when the benefactor hangs. Others who want the link wait. */
static void open_link(struct cl_bnf *b)
{
    char path[sizeof(b->local_path)];
    struct cl_llink *l;
    int rc;

    memcpy(path, b->local_path, sizeof(path));
    b->opening = true;
    pthread_mutex_unlock(&b->lock);
    l = link_new(b, path, &rc);
    pthread_mutex_lock(&b->lock);
    b->opening = false;
    pthread_cond_broadcast(&b->opened);
    b->llink = l;
    if (l) {
        l->generation = b->local_generation;
        cl_device_set(b, l->limiter);
        l->limiter = NULL;
    } else {
        b->retry_local_ms = fp_now_ms() + LOCAL_RETRY_MS;
        if (!b->local_failed && b->state != FP__BNF_STATE__BNF_DOWN)
            FP_INFO("benefactor %u is of this node, but its socket %s can't be used (%s): going over TCP", b->id, path,
                fp_strerror(rc));
    }
    b->local_failed = l == NULL;
}

/* A counted link, opened if need be; NULL: not to be had. */
static struct cl_llink *link_get(struct cl_bnf *b)
{
    struct cl_llink *l, *old = NULL;

    pthread_mutex_lock(&b->lock);
    if (b->llink && !fp_fdlink_is_up(b->llink->link))
        old = detach_link(b);
    while (!b->llink && b->opening)
        pthread_cond_wait(&b->opened, &b->lock);
    if (!b->llink && b->prefers_local && fp_now_ms() >= b->retry_local_ms)
        open_link(b);
    l = b->llink;
    if (l)
        atomic_fetch_add(&l->refs, 1);
    pthread_mutex_unlock(&b->lock);
    llink_put(old);
    return l;
}

bool cl_bnf_is_local(struct cl_bnf *b)
{
    struct cl_llink *l;

    if (!b->prefers_local)
        return false;
    l = link_get(b);
    llink_put(l);
    return l != NULL;
}

/* generation: of the link, may be NULL. */
static int local_call(struct cl_bnf *b, uint32_t type, const ProtobufCMessage *msg, uint32_t timeout_ms, struct fp_fdlink_reply_buf *r,
              uint64_t *generation)
{
    struct cl_llink *l = link_get(b), *old = NULL;
    int rc;

    if (r)
        r->nfds = 0;
    if (!l)
        return -ENOTCONN;
    if (generation)
        *generation = l->generation;
    rc = fp_fdlink_call(l->link, (uint16_t)type, msg, timeout_ms, r);
    if (!fp_fdlink_is_up(l->link) || rc == FP_EDEADLINE) {
        pthread_mutex_lock(&b->lock);
        if (b->llink == l)
            old = detach_link(b);
        pthread_mutex_unlock(&b->lock);
    }
    llink_put(old);
    llink_put(l);
    return rc;
}

int cl_bnf_local_call(struct cl_bnf *b, uint32_t type, const ProtobufCMessage *msg, struct fp_fdlink_reply_buf *r)
{
    return local_call(b, type, msg, LOCAL_CALL_MS, r, NULL);
}

int cl_bnf_local_lease(struct cl_bnf *b, const Fp__Lease *msg, struct fp_fdlink_reply_buf *r, uint64_t *generation)
{
    return local_call(b, FP__MSG_TYPE__MSG_LEASE, &msg->base, LOCAL_CALL_MS, r, generation);
}

/* failed: segments that it shall know of. *told (may be NULL): its answer has made files be told of a loss. */
static int local_sync(struct cl_bnf *b, uint64_t *failed, size_t n, uint32_t timeout_ms, bool *told)
{
    Fp__BnfSync q = FP__BNF_SYNC__INIT;
    uint8_t buf[256];
    struct fp_fdlink_reply_buf r = { .buf = buf, .buf_cap_bytes = sizeof(buf) };
    Fp__BnfSyncReply *reply;
    bool lost;
    int rc;

    q.failed = failed;
    q.n_failed = n;
    rc = local_call(b, FP__MSG_TYPE__MSG_BNF_SYNC, &q.base, timeout_ms, &r, NULL);
    if (rc < 0)
        return rc;
    reply = fp__bnf_sync_reply__unpack(NULL, r.in.msg_len_bytes, r.in.msg);
    if (!reply)
        return FP_EBADFRAME;
    lost = cl_bnf_life(b, reply->unsynced_life);
    fp__bnf_sync_reply__free_unpacked(reply, NULL);
    if (told)
        *told = lost;
    return 0;
}

int cl_bnf_local_sync(struct cl_bnf *b, uint32_t timeout_ms)
{
    return local_sync(b, NULL, 0, timeout_ms, NULL);
}

/* -------------------------------------------------------------- segments */

/* By number and salt: a benefactor that was started again may give an old number to a new file. */
static struct cl_seg *seg_find_locked(struct cl_bnf *b, uint64_t id, uint64_t salt)
{
    struct cl_seg *s = b->segs;

    while (s && (s->id != id || s->salt != salt))
        s = s->next;
    if (s)
        atomic_fetch_add(&s->refs, 1);
    return s;
}

struct cl_seg *cl_seg_add(struct cl_bnf *b, uint64_t id, uint64_t salt, int fd, bool o_direct)
{
    struct cl_seg *s;

    pthread_mutex_lock(&b->lock);
    s = seg_find_locked(b, id, salt);
    if (!s) {
        s = calloc(1, sizeof(*s));
        if (s) {
            s->bnf = b;
            s->id = id;
            s->salt = salt;
            s->fd = fd;
            s->o_direct = o_direct;
            atomic_store(&s->refs, 2);
            s->next = b->segs;
            b->segs = s;
            fd = -1;
        }
    }
    pthread_mutex_unlock(&b->lock);
    if (fd >= 0)
        close(fd);
    return s;
}

void cl_seg_put(struct cl_seg *s)
{
    if (s && atomic_fetch_sub(&s->refs, 1) == 1) {
        close(s->fd);
        free(s);
    }
}

/* sync_lock held. The next one of the list, which is walked by position: it only grows at its head while the lock is free. s NULL: the first. */
static struct cl_seg *seg_next(struct cl_bnf *b, struct cl_seg *s)
{
    struct cl_seg *next;

    pthread_mutex_lock(&b->lock);
    next = s ? s->next : b->segs;
    if (next)
        atomic_fetch_add(&next->refs, 1);
    pthread_mutex_unlock(&b->lock);
    cl_seg_put(s);
    return next;
}

/* sync_lock held. The benefactor tells all who wrote to these segments by another unsynced_life. True: this mount's files are told by it. */
static bool tell_failed(struct cl_bnf *b, uint32_t timeout_ms)
{
    uint64_t ids[TELL_MAX];
    size_t n = 0;
    bool more = false, told = false;
    int rc;

    for (struct cl_seg *s = seg_next(b, NULL); s; s = seg_next(b, s))
        if (s->untold && n < TELL_MAX)
            ids[n++] = s->id;
        else
            more |= s->untold;
    rc = n > 0 ? local_sync(b, ids, n, timeout_ms, &told) : 0;
    if (rc < 0) {
        FP_LOG_EVERY(10000, FP_LOG_WARN, "benefactor %u can't be told yet that data on its device is lost: %s", b->id, fp_strerror(rc));
        return false;
    }
    for (struct cl_seg *s = seg_next(b, NULL); s; s = seg_next(b, s))
        for (size_t i = 0; i < n; i++)
            s->untold &= s->id != ids[i];
    b->untold = more;
    return told;
}

/*
 * sync_lock held; its segments were synced here. Another mount, or itself, may have failed at that before: what the device then forgot of its own cache, our
 * fdatasync does not tell. One that does not answer tells it with its next hello.
 */
static void ask_life(struct cl_bnf *b)
{
    uint8_t buf[4096];
    struct fp_fdlink_reply_buf r = { .buf = buf, .buf_cap_bytes = sizeof(buf) };
    Fp__BnfHello h = hello_of(b);
    struct fp_limiter *known = NULL;

    if (local_call(b, FP__MSG_TYPE__MSG_BNF_HELLO, &h.base, LOCAL_OPEN_MS, &r, NULL) == 0)
        (void)take_hello(b, &r, &known);
    fp_limiter_unmap(known); /* the link's, which is in use */
}

static int seg_sync(struct cl_seg *s)
{
    int rc = FP_FAULT_POINT("cl.fdatasync");

    while (rc == 0 && !FP_BUG("mount-no-fdatasync") && fdatasync(s->fd) < 0)
        if (errno != EINTR)
            rc = -errno;
    return rc;
}

/*
 * sync_lock held. fdatasync of one benefactor's segments. The kernel says once that it failed, and counts the pages as clean from then on, written or not: a
 * second try would succeed. So nothing is tried again: whatever had not been synced counts as lost, of all files and of all mounts.
 */
static void sync_segs(struct cl_bnf *b)
{
    bool lost = false, synced = false;

    for (struct cl_seg *s = seg_next(b, NULL); s; s = seg_next(b, s)) {
        int rc;

        if (!atomic_exchange(&s->unsynced, false))
            continue;
        synced = true;
        rc = seg_sync(s);
        if (rc == 0)
            continue;
        atomic_store(&s->lost, true);
        s->untold = b->untold = lost = true;
        cl_data_note_error(b->data, "benefactor %u: a segment could not be synced: %s; what was written there since the last fsync counts as lost",
                   b->id, fp_strerror(rc));
    }
    if (!b->untold && synced)
        ask_life(b);
    else if (b->untold && tell_failed(b, b->data->m->opt.io_timeout_ms))
        lost = false;
    if (lost)
        count_loss(b);
}

/* Who removes a segment cuts it to nothing first (benefactor/backend_dir.c). */
static bool seg_is_dead(const struct cl_seg *s)
{
    struct stat st;

    return atomic_load(&s->refs) == 1 && !atomic_load(&s->unsynced) && fstat(s->fd, &st) == 0 && st.st_size == 0;
}

/* With sync_lock, because sync_segs relies on the list. */
static void drop_dead_segs(struct cl_bnf *b)
{
    struct cl_seg *dead = NULL;

    pthread_mutex_lock(&b->lock);
    for (struct cl_seg **p = &b->segs; *p;) {
        struct cl_seg *s = *p;

        if (!seg_is_dead(s)) {
            p = &s->next;
            continue;
        }
        *p = s->next;
        s->next = dead;
        dead = s;
    }
    pthread_mutex_unlock(&b->lock);
    for (struct cl_seg *next; dead; dead = next) {
        next = dead->next;
        cl_seg_put(dead);
    }
}

void cl_segs_tick(struct cl_data *d)
{
    struct cl_bnf *b;

    pthread_mutex_lock(&d->bnf_lock);
    b = d->bnfs;
    pthread_mutex_unlock(&d->bnf_lock);
    for (; b; b = b->next) {
        if (pthread_mutex_trylock(&b->sync_lock) != 0)
            continue;
        if (b->untold)
            (void)tell_failed(b, LOCAL_CALL_MS);
        drop_dead_segs(b);
        pthread_mutex_unlock(&b->sync_lock);
    }
}

/* remote_lock held. */
static int sync_remote_now(struct cl_bnf *b)
{
    Fp__BnfSync q = FP__BNF_SYNC__INIT;
    struct cl_rcall c = { .bnf = b, .type = FP__MSG_TYPE__MSG_BNF_SYNC, .msg = &q.base, .timeout_ms = b->data->m->opt.io_timeout_ms };
    uint64_t upto = atomic_load(&b->remote_written);
    int rc = cl_bnf_remote_call_sync(&c, NULL);

    if (rc < 0) {
        b->remote_failed = rc;
        b->remote_failed_ms = fp_now_ms();
    } else {
        atomic_store(&b->remote_synced, upto);
    }
    return rc;
}

static bool is_away(const struct cl_bnf *b)
{
    return b->state == FP__BNF_STATE__BNF_DOWN && !b->conn_hello_done;
}

/* Who had to wait takes the answer that another thread got meanwhile, good or bad: a queue before a benefactor that cannot be reached would take as many
   time-outs as it has threads. */
static int sync_remote(struct cl_bnf *b, bool away, bool *untried)
{
    uint64_t begun_ms = fp_now_ms(), want = atomic_load(&b->remote_written);
    int rc;

    if (atomic_load(&b->remote_synced) >= want)
        return 0;
    if (!away && is_away(b)) {
        *untried = true;
        return -ENOTCONN;
    }
    pthread_mutex_lock(&b->remote_lock);
    if (atomic_load(&b->remote_synced) >= want)
        rc = 0;
    else if (b->remote_failed < 0 && b->remote_failed_ms > begun_ms)
        rc = b->remote_failed;
    else
        rc = sync_remote_now(b);
    pthread_mutex_unlock(&b->remote_lock);
    return rc;
}

bool cl_unsynced_has(const struct cl_unsynced *failed, uint32_t id)
{
    for (unsigned i = 0; i < failed->n; i++)
        if (failed->id[i] == id)
            return true;
    return failed->more;
}

void cl_unsynced_add(struct cl_unsynced *failed, uint32_t id)
{
    if (failed->n == sizeof(failed->id) / sizeof(failed->id[0]))
        failed->more = true;
    else
        failed->id[failed->n++] = id;
}

static int sync_all(struct cl_data *d, bool away, struct cl_unsynced *failed)
{
    uint64_t closed = cl_forgotten_serial(d->forgotten);
    struct cl_bnf *b;
    bool untried = false;
    int rc = 0;

    if (failed)
        memset(failed, 0, sizeof(*failed));
    pthread_mutex_lock(&d->bnf_lock);
    b = d->bnfs;
    pthread_mutex_unlock(&d->bnf_lock);
    for (; b; b = b->next) { /* entries stay, next is constant once set */
        bool passed_over = false;
        int r;

        pthread_mutex_lock(&b->sync_lock);
        sync_segs(b);
        pthread_mutex_unlock(&b->sync_lock);
        r = sync_remote(b, away, &passed_over);
        untried |= passed_over;
        if (r < 0 && !passed_over)
            cl_data_note_error(d, "benefactor %u: data could not be made durable: %s", b->id, fp_strerror(r));
        if (r < 0 && failed)
            cl_unsynced_add(failed, b->id);
        if (r < 0)
            rc = r;
    }
    if (failed)
        failed->untried = untried;
    if (rc == 0)
        cl_forgotten_synced(d->forgotten, closed, atomic_load(&d->losses), atomic_load(&d->changes_synced));
    return rc;
}

int cl_bnfs_sync(struct cl_data *d, struct cl_unsynced *failed)
{
    return sync_all(d, true, failed);
}

int cl_bnfs_sync_present(struct cl_data *d, struct cl_unsynced *failed)
{
    return sync_all(d, false, failed);
}
