/*
 * Targets: which of them take data, the worker of each, which tasks it has (drain_impl.h).
 *
 * Loop's thread. Whatever a target does stalls what goes to it, and nothing else: its tasks wait, and go on when a probe says so (a small file, written, synced, removed),
 * after 1 s, then twice as long, up to a minute. The pause shrinks again only when a task was done, since a full file system has room for a probe long before it
 * has room for a checkpoint. The manager sees the state in the keep-alive; no task fails for it.
 *
 * A call that does not come back for some seconds is told of, since somebody may wait for it. One that does not for --target-timeout: the target hangs. Nothing more is given to its worker, which is kept, and goes on when the call comes back. After some
 * minutes it is given up (left behind) and another is tried; of what it had under way in that very call the manager is told "tainted", since the call may still
 * come to its end, much later, and that file gets another temporary name. Two are left behind at most.
 *
 * A worker that dies is started again after a second; the task that it was doing is blamed when that happens three times.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benefactor/drain_impl.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/log.h"
#include "fp/targetid.h"

#define GATHER_MS 1000u /* over which a rate is measured */
#define MEMORY_IDLE_MS 1000u

/* ---------------------------------------------------------------- states */

static Fp__TargetCode code_of(int status)
{
    switch (status) {
    case -ENOSPC:
        return FP__TARGET_CODE__TARGET_FULL;
    case -EDQUOT:
        return FP__TARGET_CODE__TARGET_QUOTA;
    case -ESTALE:
        return FP__TARGET_CODE__TARGET_STALE;
    case -EROFS:
        return FP__TARGET_CODE__TARGET_READONLY;
    case -EMEDIUMTYPE:
    case -ENOTDIR:
        return FP__TARGET_CODE__TARGET_REFUSED;
    case -ENOMEDIUM:
    case -ENOENT:
    case -ENODEV:
    case -ENOTCONN:
    case -EHOSTDOWN:
    case -EHOSTUNREACH:
    case -ENETUNREACH:
    case -ETIMEDOUT:
    case -EACCES:
    case -EPERM:
        return FP__TARGET_CODE__TARGET_UNREACHABLE;
    default:
        return FP__TARGET_CODE__TARGET_IO;
    }
}

static bool is_well(const struct dtarget *t)
{
    return t->code == FP__TARGET_CODE__TARGET_OK || t->code == FP__TARGET_CODE__TARGET_UNKNOWN;
}

static void set_state(struct dtarget *t, Fp__TargetCode code, const char *why)
{
    bool was_well = is_well(t);

    if (t->code == code && strcmp(t->why, why) == 0)
        return;
    if (t->code != code)
        t->since_ns = fp_wall_ns();
    t->code = code;
    snprintf(t->why, sizeof(t->why), "%s", why);
    if (is_well(t) && !was_well)
        FP_INFO("target %s takes data again", t->root);
    else if (!is_well(t))
        FP_LOG_EVERY(10000, FP_LOG_WARN, "target %s: %s: draining to it waits, and is tried again", t->root, why);
    t->drain->config.changed(t->drain->config.arg);
}

bool dtarget_hangs(const struct dtarget *t)
{
    return t->code == FP__TARGET_CODE__TARGET_HANGS;
}

/* One that takes nothing can be read for all that. */
bool dtarget_may_read(const struct dtarget *t)
{
    return is_well(t) || t->code == FP__TARGET_CODE__TARGET_FULL || t->code == FP__TARGET_CODE__TARGET_QUOTA || t->code == FP__TARGET_CODE__TARGET_READONLY;
}

/* It is there again; whether it takes data, only writing tells. */
void dtarget_reads(struct dtarget *t)
{
    if (t->code == FP__TARGET_CODE__TARGET_UNREACHABLE || t->code == FP__TARGET_CODE__TARGET_STALE || t->code == FP__TARGET_CODE__TARGET_REFUSED ||
        t->code == FP__TARGET_CODE__TARGET_UNKNOWN)
        set_state(t, FP__TARGET_CODE__TARGET_OK, "");
}

void dtarget_look(struct dtarget *t)
{
    if (!t->probe_ms)
        return;
    t->backoff_ms = PROBE_MIN_MS;
    t->probe_ms = fp_now_ms();
}

void dtarget_asked(struct dtarget *t)
{
    if (t->code == FP__TARGET_CODE__TARGET_REFUSED)
        dtarget_look(t);
}

static void stall(struct dtarget *t, Fp__TargetCode code, const char *why)
{
    if (is_well(t) || t->probe_ms == 0) {
        t->probe_ms = fp_now_ms() + t->backoff_ms;
        t->backoff_ms = t->backoff_ms * 2 < PROBE_MAX_MS ? t->backoff_ms * 2 : PROBE_MAX_MS;
    }
    set_state(t, code, why);
}

void dtarget_stall(struct dtarget *t, int status, const char *why)
{
    stall(t, code_of(status), why);
}

/* ---------------------------------------------------------------- giving tasks */

/* Whose answer is it? One to an earlier sending is nobody's. */
static struct dtask *task_of(struct dtarget *t, const struct fp_dw_head *h)
{
    struct dtask *x = t->drain->tasks;

    while (x && (x->target != t || x->id != h->id || x->gen != h->gen || x->state != DTASK_GIVEN))
        x = x->next;
    return x && x->sending == h->sending ? x : NULL;
}

/* Every task waits again but those that nobody wants. */
static void take_back(struct dtarget *t)
{
    struct dtask *next;

    for (struct dtask *x = t->drain->tasks; x; x = next) {
        next = x->next;
        if (x->target != t || x->state != DTASK_GIVEN)
            continue;
        dtask_wait(x);
        if (x->dropped)
            dtask_forget(x);
    }
}

/* Somebody waits for what only looks, whatever is held back. */
static bool only_looks(const struct dtask *x)
{
    return x->m->kind == FP__TASK_KIND__TASK_LIST || x->m->kind == FP__TASK_KIND__TASK_STAT;
}

static bool may_go(const struct dtarget *t, const struct dtask *x)
{
    if (dstage_is_one(x->m))
        return false; /* stage.c */
    if (only_looks(x))
        return dtarget_may_read(t);
    return is_well(t) || (x->m->kind == FP__TASK_KIND__TASK_PROBE && t->code != FP__TARGET_CODE__TARGET_HANGS);
}

static struct dtask *next_task(struct dtarget *t, bool looks)
{
    struct dtask *x = t->drain->tasks;

    while (x && (x->target != t || x->state != DTASK_WAITS || !may_go(t, x) || (looks && !only_looks(x))))
        x = x->next;
    return x;
}

static void give(struct dtarget *t, struct dtask *x)
{
    int rc;

    x->state = DTASK_GIVEN;
    t->given++;
    rc = dtask_send(x, t->worker);
    if (rc)
        dtask_finish(x, rc, fp_strerror(rc));
}

bool dtarget_have_worker(struct dtarget *t)
{
    char why[200];
    int rc;

    if (t->worker)
        return true;
    if (fp_now_ms() < t->start_ms)
        return false;
    rc = dworker_start(t, &t->worker);
    t->sent_mode = 0;
    t->seen_written = 0;
    if (rc == 0) {
        dtarget_pace(t);
        return true;
    }
    snprintf(why, sizeof(why), "fp-drain can't be started: %s", fp_strerror(rc));
    t->start_ms = fp_now_ms() + RESTART_MS;
    stall(t, FP__TARGET_CODE__TARGET_IO, why);
    return false;
}

void dtarget_pump(struct dtarget *t)
{
    struct dtask *x;

    if (t->drain->stopping)
        return;
    dstage_pump(t);
    dfetch_pump(t);
    while ((x = next_task(t, true)) && dtarget_have_worker(t))
        give(t, x);
    while (t->drain->config.on && t->given < GIVEN_MAX && (x = next_task(t, false)) && dtarget_have_worker(t))
        give(t, x);
}

void dtarget_pace(struct dtarget *t)
{
    struct bnf_drain *d = t->drain;
    struct fp_dw_pace m = { .h = { .type = FP_DW_PACE, .len_bytes = sizeof(m) }, .mode = FP_DW_RUN };

    if (d->hold || !d->config.on || t->mode == FP__PACE_MODE__PACE_HOLD || (d->local_hold && t->mode != FP__PACE_MODE__PACE_HURRY))
        m.mode = FP_DW_HOLD;
    m.rate = d->config.max_rate;
    if (t->rate && (!m.rate || t->rate < m.rate)) /* it stays: a manager that is away lifts no limit */
        m.rate = t->rate;
    if (!t->worker || (t->sent_mode == m.mode && t->sent_rate == m.rate))
        return;
    t->sent_mode = m.mode;
    t->sent_rate = m.rate;
    (void)dworker_send(t->worker, &m, sizeof(m), -1);
}

/* ---------------------------------------------------------------- answers */

static void on_probe(struct dtarget *t, const struct fp_dw_done *m, const char *why)
{
    if (m->h.gen != t->probe_gen)
        return;
    t->probe_gen = 0;
    if (m->status == 0) {
        t->probe_ms = 0;
        set_state(t, FP__TARGET_CODE__TARGET_OK, "");
    } else {
        t->probe_ms = 0; /* the next one later than the last */
        stall(t, code_of(m->status), why);
    }
}

static void keep_sums(struct dtask *x, const struct fp_dw_done *m, const uint8_t *sums)
{
    free(x->sums);
    x->sums = NULL;
    x->nsums = 0;
    if (m->nsums == 0 || !(x->sums = calloc(m->nsums, sizeof(*x->sums))))
        return;
    x->nsums = m->nsums;
    memcpy(x->sums, sums, 8ull * m->nsums);
}

static bool keep_identity(struct dtask *x, const uint8_t id[FP_TARGETID_BYTES])
{
    x->seen.uuid.data = malloc(FP_TARGETID_BYTES);
    if (!x->seen.uuid.data)
        return false;
    memcpy(x->seen.uuid.data, id, FP_TARGETID_BYTES);
    x->seen.uuid.len = FP_TARGETID_BYTES;
    x->has_seen = true;
    return true;
}

static void on_done(struct dtarget *t, struct dtask *x, const struct fp_dw_done *m, const char *why, const uint8_t *sums)
{
    if (!only_looks(x))
        t->backoff_ms = PROBE_MIN_MS;
    x->more = x->m->kind == FP__TASK_KIND__TASK_LIST && m->note;
    x->replaced = (x->m->kind == FP__TASK_KIND__TASK_FINISH || x->m->kind == FP__TASK_KIND__TASK_MERGE) && m->note;
    if (x->m->kind == FP__TASK_KIND__TASK_WRITE || x->m->kind == FP__TASK_KIND__TASK_VERIFY)
        x->bytes += m->bytes;
    x->has_seen = m->tino != 0;
    x->seen.dev = m->dev;
    x->seen.ino = m->tino;
    x->seen.size_bytes = m->size;
    x->seen.mtime_ns = m->mtime_ns;
    if (fp_target_is_unmarked(m->unmarked) && !keep_identity(x, m->unmarked)) {
        dtask_finish(x, -ENOMEM, "out of memory on this node"); /* without it, it would be taken for one with a marker */
        return;
    }
    keep_sums(x, m, sums);
    if (only_looks(x))
        dtarget_reads(t);
    else
        set_state(t, FP__TARGET_CODE__TARGET_OK, "");
    dtask_finish(x, 0, why);
}

/* Our own data: it may have been deleted since; else it is looked at once more before it is called bad. */
static void on_bad_chunk(struct dtask *x, const struct fp_dw_done *m, const char *why)
{
    struct bnf_place at;
    int status = m->status;

    if (bnf_store_find(bnf_service_store(x->target->drain->config.service), m->chunk, &at))
        status = FP_ECHUNK_MISSING;
    else if (++x->tries < 3) {
        dtask_wait(x);
        return;
    }
    x->missing = m->chunk;
    dtask_finish(x, status == -EIO ? FP_ECORRUPT : status, why);
}

static bool takes_nothing(int status)
{
    return status == -ENOSPC || status == -EDQUOT || status == -EROFS;
}

static void on_failed(struct dtarget *t, struct dtask *x, const struct fp_dw_done *m, const char *why)
{
    bool probe = x->m->kind == FP__TASK_KIND__TASK_PROBE;

    if (x->dropped) {
        dtask_finish(x, m->status, why);
    } else if (m->scope == FP_DW_SCOPE_CHUNK) {
        on_bad_chunk(x, m, why);
    } else if (m->scope == FP_DW_SCOPE_TARGET && x->m->kind == FP__TASK_KIND__TASK_STAT && x->m->mark.len && dtarget_may_read(t) && takes_nothing(m->status)) {
        stall(t, code_of(m->status), why);
        dtask_finish(x, m->status, why); /* who wants to evict hears that this one stays: others may go */
    } else if (m->scope == FP_DW_SCOPE_TARGET) {
        stall(t, code_of(m->status), why);
        x->stalled = probe;
        if (probe) /* whoever asks for it wants to know */
            dtask_finish(x, m->status, why);
        else
            dtask_wait(x);
    } else {
        dtask_finish(x, m->status, why);
    }
}

void dtarget_answer(struct dtarget *t, const struct fp_dw_done *m, const char *why, const uint8_t *sums)
{
    struct dtask *x;

    if (m->kind == FP_DW_WRITE)
        t->done_bytes += m->status ? 0 : m->bytes;
    if (m->h.id == PROBE_ID) {
        on_probe(t, m, why);
    } else if (m->h.id == READ_ID) {
        dfetch_answer(t, m, why, sums);
    } else if ((x = task_of(t, &m->h))) {
        if (m->status)
            on_failed(t, x, m, why);
        else
            on_done(t, x, m, why, sums);
    }
    dtarget_pump(t);
}

void dtarget_names(struct dtarget *t, const struct fp_dw_head *h, const char *names, size_t len_bytes)
{
    struct dtask *x = task_of(t, h);

    for (size_t at = 0; x && at < len_bytes; at += strlen(names + at) + 1) {
        char **more = realloc(x->names, (x->nnames + 1) * sizeof(*more));

        if (!more)
            return; /* what is not told is swept the next time */
        x->names = more;
        x->names[x->nnames] = strdup(names + at);
        if (x->names[x->nnames])
            x->nnames++;
    }
}

static int xattr_add(Fp__ListEntry *m, const uint8_t *name, size_t name_bytes, const uint8_t *value, size_t value_bytes)
{
    Fp__XattrEntry *a = calloc(1, sizeof(*a)), **more = realloc(m->xattrs, (m->n_xattrs + 1) * sizeof(*more));

    if (more)
        m->xattrs = more;
    if (!a || !more) {
        free(a);
        return -ENOMEM;
    }
    fp__xattr_entry__init(a);
    m->xattrs[m->n_xattrs++] = a;
    a->name.data = malloc(name_bytes + 1);
    a->value.data = malloc(value_bytes + 1);
    if (!a->name.data || !a->value.data)
        return -ENOMEM;
    a->name.len = name_bytes;
    a->value.len = value_bytes;
    memcpy(a->name.data, name, name_bytes);
    memcpy(a->value.data, value, value_bytes);
    return 0;
}

static int xattrs_add(Fp__ListEntry *m, const uint8_t *p, size_t left)
{
    uint32_t len[2];
    int rc = 0;

    for (; left && !rc; p += sizeof(len) + len[0] + len[1], left -= sizeof(len) + len[0] + len[1]) {
        if (left < sizeof(len))
            return -EPROTO;
        memcpy(len, p, sizeof(len));
        if (len[0] > left - sizeof(len) || len[1] > left - sizeof(len) - len[0])
            return -EPROTO;
        rc = xattr_add(m, p + sizeof(len), len[0], p + sizeof(len) + len[0], len[1]);
    }
    return rc;
}

static int entry_add(struct dtask *x, const struct fp_dw_entry *e, const uint8_t *text)
{
    Fp__ListEntry *m = calloc(1, sizeof(*m)), **more = realloc(x->list, (x->nlist + 1) * sizeof(*more));

    if (more)
        x->list = more;
    if (!m || !more) {
        free(m);
        return -ENOMEM;
    }
    fp__list_entry__init(m);
    x->list[x->nlist++] = m;
    m->attr = calloc(1, sizeof(*m->attr));
    m->path.data = malloc(e->name_bytes + 1);
    m->link.data = malloc(e->link_bytes + 1);
    if (m->attr)
        fp__attr__init(m->attr);
    if (!m->attr || !m->path.data || !m->link.data)
        return -ENOMEM;
    m->path.len = e->name_bytes;
    m->link.len = e->link_bytes;
    memcpy(m->path.data, text, e->name_bytes);
    memcpy(m->link.data, text + e->name_bytes, e->link_bytes);
    m->attr->ino = e->tino;
    m->attr->mode = e->mode;
    m->attr->nlink = e->nlink;
    m->attr->uid = e->uid;
    m->attr->gid = e->gid;
    m->attr->rdev = e->rdev;
    m->attr->size_bytes = e->size;
    m->attr->atime_ns = e->atime_ns;
    m->attr->mtime_ns = e->mtime_ns;
    m->attr->ctime_ns = e->ctime_ns;
    m->xattrs_left = e->xattrs_left != 0;
    return xattrs_add(m, text + e->name_bytes + e->link_bytes, e->xattr_bytes);
}

int dtarget_entries(struct dtarget *t, const struct fp_dw_head *h, const uint8_t *p, size_t len)
{
    struct dtask *x = task_of(t, h);
    int rc;

    for (size_t n; len; p += n, len -= n) {
        struct fp_dw_entry e;

        if (len < sizeof(e))
            return -EPROTO;
        memcpy(&e, p, sizeof(e));
        if (e.name_bytes > len - sizeof(e) || e.link_bytes > len - sizeof(e) - e.name_bytes || e.xattr_bytes > len - sizeof(e) - e.name_bytes - e.link_bytes)
            return -EPROTO;
        n = sizeof(e) + e.name_bytes + e.link_bytes + e.xattr_bytes;
        rc = x ? entry_add(x, &e, p + sizeof(e)) : 0;
        if (rc == -EPROTO)
            return rc;
        if (rc) {
            dtask_finish(x, -ENOMEM, "out of memory on this node"); /* a page with a gap would be taken for a whole one */
            return 0;
        }
    }
    return 0;
}

/* ---------------------------------------------------------------- workers that die or hang */

static const struct fp_dw_op *op_of(const struct dworker *w, const struct dtask *x)
{
    for (unsigned i = 0; i < FP_DW_OPS_MAX; i++) {
        const struct fp_dw_op *op = &w->page->op[i];

        if (atomic_load(&op->kind) && atomic_load(&op->id) == x->id && atomic_load(&op->gen) == x->gen)
            return op;
    }
    return NULL;
}

static void blame(struct dtarget *t)
{
    struct dtask *next;

    for (struct dtask *x = t->drain->tasks; x; x = next) {
        next = x->next;
        if (x->target == t && x->state == DTASK_GIVEN && op_of(t->worker, x) && ++x->crashes >= CRASHES_MAX)
            dtask_finish(x, FP_EAUXAPP, "fp-drain has crashed three times while it did this");
    }
}

static void no_worker(struct dtarget *t)
{
    struct dworker *w = t->worker;

    t->worker = NULL;
    dworker_end(w, true);
    take_back(t);
    dfetch_take_back(t, NULL);
    t->probe_gen = 0;
    t->hang_ms = 0;
    t->slow = false;
    t->start_ms = fp_now_ms() + RESTART_MS;
    if (!is_well(t) && t->probe_ms == 0)
        t->probe_ms = t->start_ms;
}

void dtarget_worker_gone(struct dtarget *t)
{
    FP_LOG_EVERY(1000, FP_LOG_WARN, "fp-drain of %s has ended: it is started anew", t->root);
    blame(t);
    dfetch_take_back(t, t->worker->page);
    no_worker(t);
}

void dtarget_not_started(struct dtarget *t, int status)
{
    char why[400];

    snprintf(why, sizeof(why), "%.200s could not be executed: %s: install it beside fp-benefactor", t->drain->config.program, fp_strerror(status));
    stall(t, FP__TARGET_CODE__TARGET_IO, why);
}

static unsigned left_behind(const struct dtarget *t)
{
    unsigned n = 0;

    for (const struct dworker *w = t->drain->ending; w; w = w->next)
        n += w->target_id == t->id;
    return n;
}

/* Writes that may still come to their end: their files get another temporary name. */
static void give_up(struct dtarget *t)
{
    struct dtask *next;

    if (left_behind(t) >= LEFT_MAX)
        return;
    FP_WARN("target %s has not answered for %llu s: fp-drain is given up, another is tried", t->root,
            (unsigned long long)(fp_now_ms() - t->hang_ms) / 1000);
    for (struct dtask *x = t->drain->tasks; x; x = next) {
        const struct fp_dw_op *op = x->target == t && x->state == DTASK_GIVEN ? op_of(t->worker, x) : NULL;

        next = x->next;
        if (!op || !atomic_load(&op->in_target) || only_looks(x) || x->m->kind == FP__TASK_KIND__TASK_VERIFY)
            continue;
        x->tainted = x->stalled = true;
        dtask_finish(x, -ETIMEDOUT, "the target does not answer: what was under way may still be written");
    }
    no_worker(t);
}

/* For how long the oldest call of the target has been under way; 0: none. */
static uint64_t oldest_call_ms(const struct dworker *w)
{
    uint64_t now = fp_now_ns(), oldest = 0;

    for (unsigned i = 0; i < FP_DW_OPS_MAX; i++) {
        const struct fp_dw_op *op = &w->page->op[i];
        uint64_t since = atomic_load(&op->since_ns);

        if (atomic_load(&op->kind) && atomic_load(&op->in_target) && now > since && now - since > oldest)
            oldest = now - since;
    }
    return oldest / 1000000;
}

static void look_for_hangs(struct dtarget *t, uint64_t now_ms)
{
    const struct bnf_drain_config *c = &t->drain->config;
    uint64_t ms = oldest_call_ms(t->worker);

    t->slow = ms > SLOW_MS;
    if (ms > c->target_timeout_ms) {
        if (!t->hang_ms)
            t->hang_ms = now_ms - ms;
        t->probe_ms = 0;
        t->probe_gen = 0;
        set_state(t, FP__TARGET_CODE__TARGET_HANGS, "a call of its file system does not come back");
        if (ms > c->give_up_ms)
            give_up(t);
    } else if (t->code == FP__TARGET_CODE__TARGET_HANGS && t->probe_ms == 0 && !t->probe_gen) {
        t->hang_ms = 0;
        t->probe_ms = now_ms;
    }
}

/* ---------------------------------------------------------------- time */

static void probe(struct dtarget *t)
{
    if (!dtarget_have_worker(t))
        return;
    t->probe_gen = ++t->drain->next_probe;
    if (dprobe_send(t, t->worker, t->probe_gen))
        t->probe_gen = 0;
}

static void measure(struct dtarget *t, uint64_t now_ms)
{
    uint64_t written = atomic_load(&t->worker->page->written_bytes), rate;

    if (now_ms < t->seen_ms + GATHER_MS)
        return;
    if (written > t->seen_written && t->seen_ms && t->seen_written) {
        rate = (written - t->seen_written) * 1000 / (now_ms - t->seen_ms);
        t->measured_rate = t->measured_rate ? (3 * t->measured_rate + rate) / 4 : rate;
    }
    t->seen_written = written;
    t->seen_ms = now_ms;
}

static bool has_tasks(const struct dtarget *t)
{
    const struct dtask *x = t->drain->tasks;

    while (x && (x->target != t || x->state == DTASK_DONE))
        x = x->next;
    return x;
}

bool dtarget_tick(struct dtarget *t, uint64_t now_ms)
{
    bool busy = has_tasks(t) || dfetch_has_work(t);

    if (busy || !t->idle_ms)
        t->idle_ms = now_ms;
    if (t->worker) {
        measure(t, now_ms);
        look_for_hangs(t, now_ms);
    }
    dtarget_pace(t);
    if (!is_well(t) && t->probe_ms && now_ms >= t->probe_ms && !t->probe_gen && busy)
        probe(t);
    if (t->worker && now_ms > t->idle_ms + IDLE_MS && t->code != FP__TARGET_CODE__TARGET_HANGS) {
        struct dworker *w = t->worker;

        t->worker = NULL;
        t->slow = false;
        dworker_end(w, false);
    }
    if (t->worker && t->worker->memory && now_ms > t->idle_ms + MEMORY_IDLE_MS)
        dmemory_rest(t->worker->memory);
    dtarget_pump(t);
    return busy || t->worker;
}

/* ---------------------------------------------------------------- life */

struct dtarget *dtarget_get(struct bnf_drain *d, const Fp__ExtFile *dest, int *rc)
{
    struct dtarget *t;
    size_t n = 0;

    /* All three: mounts name targets too, and what one of them has got wrong must not be another's target. */
    for (t = d->targets; t; t = t->next, n++)
        if (t->id == dest->target && dest->uuid.len == 16 && memcmp(t->uuid, dest->uuid.data, 16) == 0 && strcmp(t->root, dest->root) == 0)
            return t;
    *rc = -EINVAL;
    if (dest->root[0] != '/' || strlen(dest->root) >= 4096 || dest->uuid.len != 16)
        return NULL;
    *rc = n >= TARGETS_MAX ? -EBUSY : -ENOMEM;
    t = n < TARGETS_MAX ? calloc(1, sizeof(*t)) : NULL;
    if (!t || !(t->root = strdup(dest->root))) {
        free(t);
        return NULL;
    }
    t->drain = d;
    t->id = dest->target;
    memcpy(t->uuid, dest->uuid.data, 16);
    t->backoff_ms = PROBE_MIN_MS;
    t->mode = FP__PACE_MODE__PACE_RUN;
    t->since_ns = fp_wall_ns();
    t->next = d->targets;
    d->targets = t;
    *rc = 0;
    return t;
}

void dtarget_free(struct dtarget *t)
{
    free(t->root);
    free(t);
}
