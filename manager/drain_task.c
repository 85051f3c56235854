/* Draining: tasks to benefactors. What they say of them: drain_result.c.
 *
 * What is to be done follows from rows; what a benefactor has been told is in memory (mgr_tasker), at most MGR_OPEN_MAX tasks of a target, so that one
 * that stalls takes nothing from the others. After the COMMIT the pump fills up, one MSG_TASKS under way to each benefactor. What was not taken is sent
 * again, after a hello everything is, and what has had no result for a minute is, too: a benefactor knows a task by its number and attempt and does not do
 * it twice. So nothing here has to outlive a crash, of either.
 *
 * A target that fails is the benefactor's to deal with: it keeps the task, tries again with growing pauses, and says in its keep-alives how it is.
 * Results are of the file, good or bad.
 *
 * A rename that comes late is what must not happen: who has been told to finish an attempt and is not heard of any more might put an old version over a
 * newer one. He can't once the temporary file is gone. So before anything of a target is renamed, the temporary files of attempts that have come so far
 * are removed, by anybody; and after a start, when it is not known who has been told what, all that belong to no attempt that is alive.
 *
 * Rejected: rows for what was told (a transaction for each task, to save what can be asked again). */
#include "manager/ext.h"
#include "manager/foreign.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/err.h"
#include "fp/grown.h"
#include "fp/log.h"

#define TASKS_MAX   64u
#define BYTES_MAX   (1u << 20) /* of one MSG_TASKS, about */
#define RESEND_MS   2000u
#define REMIND_MS   60000u
#define SLICE_BYTES 64u /* in a message */
#define TODO_PAGE   64u
#define CLEAN_MS    10000u /* then another one is told to remove it, too */

/* ---------------------------------------------------------------- what it has been told */

struct mgr_open_task *mgr_open_find(struct mgr_tasker *t, uint64_t id, uint64_t gen)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->open[i].id == id && t->open[i].gen == gen)
            return &t->open[i];
    return NULL;
}

void mgr_open_remove(struct mgr_tasker *t, struct mgr_open_task *o)
{
    *o = t->open[--t->count];
}

static size_t open_of(const struct mgr_tasker *t, uint32_t target)
{
    size_t n = 0;

    for (size_t i = 0; i < t->count; i++)
        n += t->open[i].target == target;
    return n;
}

static struct mgr_open_task *open_add(struct mgr_tasker *t)
{
    struct mgr_open_task *p = fp_grown(t->open, t->count, &t->cap, sizeof *p);

    if (!p)
        return NULL;
    t->open = p;
    return &p[t->count++];
}

/* ---------------------------------------------------------------- what it says of itself */

static const struct mgr_target_seen *seen_of(const struct mgr_tasker *t, uint32_t target)
{
    for (size_t i = 0; i < t->nseen; i++)
        if (t->seen[i].target == target)
            return &t->seen[i];
    return NULL;
}

void mgr_task_info(struct mgr_core *c, const struct mgr_bnf *b, const Fp__BnfInfo *i)
{
    struct mgr_tasker *t = mgr_tasker(c, b->id);
    size_t n = i->n_targets < 64 ? i->n_targets : 64;
    bool drains = i->prefs && i->prefs->drain;

    if (!t)
        return;
    t->look |= drains != t->drains;
    mgr_pace_heard(t, i->prefs);
    if (n > t->nseen) {
        struct mgr_target_seen *p = realloc(t->seen, n * sizeof *p);

        if (!p)
            return;
        t->seen = p;
    }
    t->nseen = n;
    for (size_t k = 0; k < n; k++) {
        const Fp__TargetState *s = i->targets[k];

        t->seen[k] = (struct mgr_target_seen){.target = s->target, .code = s->code, .rate = s->rate, .queued = s->queued_bytes, .left_behind = s->left_behind, .slow = s->slow, .holds = s->holds,
                                                .again_ms = s->again_ms ? c->now.ms + s->again_ms : 0};
        snprintf(t->seen[k].why, sizeof t->seen[k].why, "%s", s->why ? s->why : "");
    }
}

bool mgr_task_heard(struct mgr_core *c, const struct mgr_bnf *b, uint32_t target, uint32_t code, const char *why)
{
    struct mgr_tasker *t = mgr_tasker(c, b->id);
    struct mgr_target_seen *s = NULL, *p;

    if (!t || code <= FP__TARGET_CODE__TARGET_OK)
        return false;
    for (size_t i = 0; i < t->nseen; i++)
        s = t->seen[i].target == target ? &t->seen[i] : s;
    if (!s) {
        p = realloc(t->seen, (t->nseen + 1) * sizeof *p);
        if (!p)
            return false;
        t->seen = p;
        s = &p[t->nseen++];
        *s = (struct mgr_target_seen){.target = target};
    }
    s->code = code;
    snprintf(s->why, sizeof s->why, "%s", why);
    return true;
}

const struct mgr_target_seen *mgr_task_seen(struct mgr_core *c, const struct mgr_bnf *b, uint32_t target)
{
    struct mgr_tasker *t = mgr_tasker(c, b->id);

    return t ? seen_of(t, target) : NULL;
}

bool mgr_task_reaches(struct mgr_core *c, const struct mgr_bnf *b)
{
    struct mgr_tasker *t = mgr_tasker(c, b->id);

    return t && t->drains && b->conn && !b->conn->closing && !b->silent;
}

bool mgr_task_can(struct mgr_core *c, const struct mgr_bnf *b, uint32_t target)
{
    const struct mgr_target_seen *s;

    if (!mgr_task_reaches(c, b))
        return false;
    s = seen_of(mgr_tasker(c, b->id), target);
    return !s || s->code == FP__TARGET_CODE__TARGET_OK || s->code == FP__TARGET_CODE__TARGET_UNKNOWN;
}

void mgr_task_hello(struct mgr_core *c, const struct mgr_bnf *b)
{
    struct mgr_tasker *t = mgr_tasker(c, b->id);

    if (!t)
        return;
    t->count = t->npaced = 0;
    t->calling = false;
    t->at_ms = 0;
    t->look = t->fresh = c->drain->dirty = true;
    for (size_t i = 0; i < c->drain->nclean; i++)
        if (c->drain->clean[i].by == b->id)
            c->drain->clean[i].by = 0;
    mgr_look_hello(c, b->id);
}

void mgr_tasks_look(struct mgr_core *c)
{
    for (size_t i = 0; i < c->drain->nof; i++)
        c->drain->of[i].look = true;
}

void mgr_tasks_taken(struct mgr_core *c, const struct mgr_bnf *b, int status)
{
    struct mgr_tasker *t = mgr_tasker(c, b->id);

    if (!t || !t->calling)
        return;
    t->calling = false;
    t->look = true;
    for (size_t i = t->count; i-- > 0;) {
        if (!status)
            t->open[i].taken = true;
        else if (!t->open[i].taken)
            mgr_open_remove(t, &t->open[i]);
    }
    if (!status)
        return;
    t->at_ms = c->now.ms + RESEND_MS;
    FP_LOG_EVERY(10000, FP_LOG_WARN, "benefactor %u: tasks of draining: %s: tried again", b->id, fp_strerror(status));
}

/* ---------------------------------------------------------------- tasks */

void mgr_task_tmp(const struct mgr_core *c, uint64_t file, uint64_t gen, char name[MGR_TMP_NAME])
{
    int n = snprintf(name, MGR_TMP_NAME, "%02x%02x%02x%02x-%s%llx", c->uuid[0], c->uuid[1], c->uuid[2], c->uuid[3], gen ? "" : "needs-", (unsigned long long)file);

    if (gen)
        snprintf(name + n, MGR_TMP_NAME - (size_t)n, "-%llx", (unsigned long long)gen);
}

static ProtobufCBinaryData text(struct mgr_core *c, const char *s)
{
    return (ProtobufCBinaryData){strlen(s), (uint8_t *)mgr_arena_text(&c->arena, s)};
}

Fp__Task *mgr_task_new(struct mgr_core *c, Fp__TaskKind kind, uint64_t id, uint64_t gen, const struct mgr_target *t)
{
    Fp__Task *k = MGR_NEW(c, Fp__Task, fp__task__init);
    Fp__ExtFile *dest = MGR_NEW(c, Fp__ExtFile, fp__ext_file__init);

    if (!k || !dest)
        return NULL;
    dest->target = t->id;
    dest->root = mgr_arena_text(&c->arena, t->root);
    dest->uuid.data = mgr_arena_copy(&c->arena, t->uuid, sizeof t->uuid);
    dest->uuid.len = dest->uuid.data ? sizeof t->uuid : 0;
    k->id = id;
    k->gen = gen;
    k->kind = kind;
    k->dest = dest;
    return k;
}

static Fp__Task *task_of_file(struct mgr_core *c, Fp__TaskKind kind, uint64_t window, bool verify, const struct mgr_dfile *f, const struct mgr_inode *in)
{
    const struct mgr_target *t = mgr_target_find(c, f->target);
    char name[64];
    Fp__Task *k = t ? mgr_task_new(c, kind, mgr_task_id(f->id, window, verify), f->gen, t) : NULL;

    if (!k || mgr_drained_path(c, f, &k->dest->path))
        return NULL;
    mgr_task_tmp(c, f->id, f->gen, name);
    k->tmp = text(c, name);
    k->tmp_ino = f->tino;
    k->size_bytes = f->size;
    k->window_bytes = in->chunk_size;
    k->urgent = f->urgent;
    k->overwrite = true;
    k->dlog = mgr_drained_is_log(c, f);
    return mgr_needs_fill(c, k, f) ? NULL : k;
}

/* The slices of a part: those of its windows that this benefactor has; or, to compare what it has written, those that others have. */
static int add_slices(struct mgr_core *c, Fp__Task *k, const struct mgr_dfile *f, uint32_t bnf, bool others)
{
    const enum mgr_stmt st = MGR_ST_SLICE_MAP;
    size_t cap = 0;
    bool any = false;
    int rc;

    for (rc = mgr_db_one(&c->db, SLICE_MAP, DBI(f->ino), DBI(k->first), DBI(k->first + k->count)); rc > 0; rc = mgr_db_step(&c->db, st)) {
        Fp__Slice *s;

        if (((uint32_t)mgr_col(&c->db, st, 7) != bnf) != others)
            continue;
        any = true;
        s = mgr_slice_row(c);
        if (k->n_slices == cap) {
            Fp__Slice **more = mgr_arena_alloc(&c->arena, (cap = cap ? cap * 2 : 64) * sizeof *more);

            if (more && k->n_slices)
                memcpy(more, k->slices, k->n_slices * sizeof *more);
            k->slices = more;
        }
        if (!s || !k->slices) {
            k->n_slices = 0;
            break;
        }
        k->slices[k->n_slices++] = s;
    }
    mgr_db_reset(&c->db, st);
    return rc < 0 || (!k->n_slices && (any || !others)) ? -EIO : 0;
}

static Fp__Task *part_task(struct mgr_core *c, const struct mgr_dfile *f, const struct mgr_inode *in, uint32_t bnf, uint64_t first, uint64_t count, bool verify)
{
    Fp__Task *k = task_of_file(c, verify ? FP__TASK_KIND__TASK_VERIFY : FP__TASK_KIND__TASK_WRITE, first, verify, f, in);

    if (!k)
        return NULL;
    k->first = first;
    k->count = (uint32_t)count;
    return add_slices(c, k, f, bnf, verify) ? NULL : k;
}

static Fp__Task *fetch_task(struct mgr_core *c, struct mgr_dfile *f, const struct mgr_inode *in)
{
    Fp__Task *k = task_of_file(c, FP__TASK_KIND__TASK_FETCH, MGR_TASK_FETCH, false, f, in);
    int rc = k ? mgr_stage_fill(c, f, k) : -ENOMEM;

    if (rc == -ENOENT) /* who reads has brought back the rest of what was to be fetched: it is looked at anew, as nobody will answer */
        f->stale = c->drain->dirty = c->busy = true;
    return rc ? NULL : k;
}

/* The sums that the writing has told: of a window of which others have some, with zeros in place of that. All bits set: not known. */
static void add_sums(struct mgr_core *c, Fp__Task *k, const uint8_t *sums, size_t len)
{
    k->sums = mgr_arena_alloc(&c->arena, k->count * sizeof *k->sums);
    for (; k->sums && k->n_sums < k->count; k->n_sums++) {
        uint64_t sum = 0;

        for (size_t i = 0; i < 8 && k->n_sums * 8 + i < len; i++)
            sum |= (uint64_t)sums[k->n_sums * 8 + i] << 8 * i;
        k->sums[k->n_sums] = sum == UINT64_MAX ? 0 : sum;
    }
}

/* Others' slices matter in windows of which this benefactor has a sum. */
static void drop_slices(Fp__Task *k)
{
    size_t n = 0;

    for (size_t i = 0; i < k->n_slices; i++)
        if (k->slices[i]->win - k->first < k->n_sums && k->sums[k->slices[i]->win - k->first])
            k->slices[n++] = k->slices[i];
    k->n_slices = n;
}

static Fp__Task *finish_task(struct mgr_core *c, const struct mgr_dfile *f, const struct mgr_inode *in)
{
    Fp__Task *k = task_of_file(c, FP__TASK_KIND__TASK_FINISH, MGR_TASK_FINISH, false, f, in);
    char mark[80];

    if (!k || !mgr_drain_attr(c, k, f, in))
        return NULL;
    snprintf(mark, sizeof mark, "%02x%02x%02x%02x:%llu:%llu", c->uuid[0], c->uuid[1], c->uuid[2], c->uuid[3], (unsigned long long)f->ino,
             (unsigned long long)f->version);
    k->mark = text(c, mark);
    k->dlog_bytes = k->dlog ? mgr_drained_log_bytes(c, f) : 0;
    return k;
}

static Fp__Task *prepare_task(struct mgr_core *c, const struct mgr_dfile *f, const struct mgr_inode *in)
{
    Fp__Task *k = task_of_file(c, FP__TASK_KIND__TASK_PREPARE, MGR_TASK_PREPARE, false, f, in);

    return k && (f->kind == MGR_K_FILE || mgr_drain_attr(c, k, f, in)) ? k : NULL;
}

/* ---------------------------------------------------------------- one MSG_TASKS */

struct batch {
    struct mgr_core *c;
    const struct mgr_bnf *b;
    struct mgr_tasker *t;
    Fp__Tasks *m;
    size_t bytes;
};

static bool is_full(const struct batch *q)
{
    return q->m->n_tasks >= TASKS_MAX || q->bytes >= BYTES_MAX;
}

/* Has it room for a new one? */
static bool has_room(const struct batch *q, uint32_t target)
{
    const struct mgr_target *t = mgr_target_find(q->c, target);

    return !is_full(q) && t && open_of(q->t, target) < MGR_OPEN_MAX;
}

/* o: it was told before; NULL: it is new. */
static void put(struct batch *q, Fp__Task *k, struct mgr_open_task *o)
{
    if (!k)
        return;
    o = o ? o : open_add(q->t);
    if (!o)
        return;
    *o = (struct mgr_open_task){.id = k->id, .gen = k->gen, .target = k->dest->target, .sent_ms = q->c->now.ms};
    q->bytes += 256 + k->dest->path.len + k->n_slices * SLICE_BYTES + k->n_sums * 8;
    for (size_t i = 0; i < k->n_xattrs; i++)
        q->bytes += k->xattrs[i]->value.len + 64;
    q->m->tasks[q->m->n_tasks++] = k;
}

/* The file's data as it is; false: it has changed since the attempt began, which the next group looks at. */
static bool present(struct batch *q, struct mgr_dfile *f, struct mgr_inode *in)
{
    int rc = mgr_inode_get_live(q->c, f->ino, in);

    if (!rc && in->data_version == f->version)
        return true;
    if (!rc || rc == -ENOENT)
        f->stale = q->c->drain->dirty = q->c->busy = true;
    return false;
}

/* The task of this number as it is now; NULL: it is not to be done (any more). */
static Fp__Task *task_by_id(struct batch *q, uint64_t id, uint64_t gen)
{
    struct mgr_dfile *f = mgr_dfile_find(q->c, id >> 30);
    uint64_t window = id >> 1 & ((UINT64_C(1) << 29) - 1);
    uint64_t count;
    struct mgr_inode in;
    uint32_t state;

    if (f && mgr_dfile_shared(q->c, f))
        return f->stale ? NULL : mgr_foreign_task(q->c, q->b->id, f, id, gen);
    if (!f || f->gen != gen || f->stale || !present(q, f, &in))
        return NULL;
    if (window == MGR_TASK_STAT)
        return f->state == MGR_D_PREPARE && f->tfile && f->lead == q->b->id ? task_of_file(q->c, FP__TASK_KIND__TASK_STAT, window, false, f, &in) : NULL;
    if (window == MGR_TASK_FETCH)
        return f->state == MGR_D_PREPARE && f->tfile && f->lead == q->b->id ? fetch_task(q->c, f, &in) : NULL;
    if (window == MGR_TASK_PREPARE)
        return f->state == MGR_D_PREPARE && !f->tino && !f->tfile && f->lead == q->b->id ? prepare_task(q->c, f, &in) : NULL;
    if (window == MGR_TASK_FINISH)
        return f->state == MGR_D_FINISH && f->lead == q->b->id ? finish_task(q->c, f, &in) : NULL;
    if (mgr_db_one(&q->c->db, DPART_GET, DBI(f->id), DBI(window), DBI(q->b->id)) <= 0)
        return NULL;
    count = (uint64_t)mgr_col(&q->c->db, MGR_ST_DPART_GET, 0);
    state = (uint32_t)mgr_col(&q->c->db, MGR_ST_DPART_GET, 1);
    mgr_db_reset(&q->c->db, MGR_ST_DPART_GET);
    if (id & 1 ? state != MGR_P_DONE || f->state != MGR_D_VERIFY : state != MGR_P_TODO)
        return NULL;
    if (!(id & 1))
        return part_task(q->c, f, &in, q->b->id, window, count, false);
    return NULL; /* verify_parts does it */
}

/* What it was told is over, or was not heard. Tasks of targets and cleaning have no attempt that could be over. */
static void look_at_open(struct batch *q)
{
    uint64_t now = q->c->now.ms;

    for (size_t i = q->t->count; i-- > 0;) {
        struct mgr_open_task *o = &q->t->open[i];
        const struct mgr_dfile *f = mgr_dfile_find(q->c, o->id >> 30);
        uint64_t window = o->id >> 1 & ((UINT64_C(1) << 29) - 1);
        bool of_file = o->id >> 30 && window != MGR_TASK_CLEAN && window != MGR_TASK_LOOK;

        if (of_file && (!f || (mgr_dfile_shared(q->c, f) ? !mgr_foreign_is_on(q->c, q->b->id, f, o->id, o->gen) : f->gen != o->gen))) {
            if (q->m->n_cancel < MGR_OPEN_MAX)
                q->m->cancel[q->m->n_cancel++] = o->id;
            mgr_open_remove(q->t, o);
        } else if (now - o->sent_ms >= (o->taken ? REMIND_MS : RESEND_MS)) {
            Fp__Task *k = of_file && !is_full(q) ? task_by_id(q, o->id, o->gen) : NULL;

            if (k) {
                put(q, k, o);
                continue;
            }
            mgr_open_remove(q->t, o); /* if it is still to be done it is found again */
        }
    }
}

static void put_new(struct batch *q, uint64_t id, uint64_t gen, uint32_t target)
{
    if (has_room(q, target) && !mgr_open_find(q->t, id, gen))
        put(q, task_by_id(q, id, gen), NULL);
}

/* Is somebody at it? */
static bool is_told(const struct mgr_core *c, uint64_t id)
{
    for (size_t i = 0; i < c->drain->nof; i++)
        if (mgr_open_find(&c->drain->of[i], id, 0))
            return true;
    return false;
}

/* What a marker is to say where there was none. */
static ProtobufCBinaryData mark_of(struct mgr_core *c, const struct mgr_target *t)
{
    uint8_t uuid[sizeof t->uuid];
    ProtobufCBinaryData mark;

    mgr_target_mark(c, t, uuid);
    mark.data = mgr_arena_copy(&c->arena, uuid, sizeof uuid);
    mark.len = mark.data ? sizeof uuid : 0;
    return mark;
}

/* Before anything is written to it, a target has its marker; and once an hour somebody looks for temporary files that were left. */
static void targets(struct batch *q)
{
    struct mgr_drain *d = q->c->drain;

    for (size_t i = 0; i < d->ntargets && !is_full(q); i++) {
        struct mgr_target *t = &d->targets[i];
        uint64_t probe = mgr_task_id(0, t->id, false), sweep = mgr_task_id(0, t->id, true);
        char prefix[64];
        Fp__Task *k;

        if (mgr_target_unknown(q->c, t) && q->c->now.ms >= t->probe_ms && mgr_target_tries(q->c, t, q->b) && !is_told(q->c, probe)) {
            t->prober = q->b->id;
            k = mgr_task_new(q->c, FP__TASK_KIND__TASK_PROBE, probe, 0, t);
            if (k) {
                k->overwrite = true; /* makes it */
                if (t->unmarked)
                    k->mark = mark_of(q->c, t);
                snprintf(prefix, sizeof prefix, "%02x%02x%02x%02x-probe", q->c->uuid[0], q->c->uuid[1], q->c->uuid[2], q->c->uuid[3]);
                k->tmp = text(q->c, prefix);
            }
            put(q, k, NULL);
        }
        if (!t->made || t->unmarked || q->c->now.ms < t->sweep_ms || is_told(q->c, sweep))
            continue;
        snprintf(prefix, sizeof prefix, "%02x%02x%02x%02x-", q->c->uuid[0], q->c->uuid[1], q->c->uuid[2], q->c->uuid[3]);
        k = mgr_task_new(q->c, FP__TASK_KIND__TASK_SWEEP, sweep, 0, t);
        if (k)
            k->tmp = text(q->c, prefix);
        put(q, k, NULL);
    }
}

static void cleaning(struct batch *q)
{
    struct mgr_drain *d = q->c->drain;

    for (size_t i = d->nclean; i-- > 0 && !is_full(q);) {
        struct mgr_cleaning *n = &d->clean[i];
        const struct mgr_dfile *f = mgr_dfile_find(q->c, n->file);
        const struct mgr_target *t = mgr_target_find(q->c, n->target);
        char name[64];
        Fp__Task *k;

        if (!t || (f && n->gen && f->gen == n->gen)) { /* what ended it was taken back */
            *n = d->clean[--d->nclean];
            continue;
        }
        if (mgr_drain_cleans(q->c, n->file, CLEAN_MS) || !t->made || t->unmarked || !has_room(q, n->target))
            continue;
        mgr_task_tmp(q->c, n->file, n->gen, name);
        k = mgr_task_new(q->c, FP__TASK_KIND__TASK_CLEAN, mgr_task_id(n->file, MGR_TASK_CLEAN, false), n->gen, t);
        if (k)
            k->tmp = text(q->c, name);
        n->by = k ? q->b->id : 0;
        n->at_ms = q->c->now.ms;
        put(q, k, NULL);
    }
}

bool mgr_task_may_rename(const struct mgr_core *c, const struct mgr_target *t)
{
    for (size_t i = 0; i < c->drain->nclean; i++)
        if (c->drain->clean[i].fence && c->drain->clean[i].target == t->id)
            return false;
    return t->swept;
}

static void files(struct batch *q)
{
    for (size_t i = 0; i < q->c->drain->nfiles && !is_full(q); i++) {
        struct mgr_dfile *f = &q->c->drain->files[i];
        const struct mgr_target *t = mgr_target_find(q->c, f->target);

        if (f->lead != q->b->id || !t || !mgr_target_takes(q->c, t, f)) {
            if (f->state == MGR_D_PREPARE && !f->target) /* what it was to be looked at in a target went before this manager was started: nobody would answer */
                f->stale = q->c->drain->dirty = q->c->busy = true;
            continue;
        }
        if (mgr_dfile_foreign(q->c, f)) {
            if (mgr_foreign_lists(q->c, f))
                put_new(q, mgr_task_id(f->id, MGR_TASK_LIST, false), f->gen, f->target);
        } else if (f->state == MGR_D_PREPARE && !f->tino && !f->looked_ms && q->c->now.ms >= f->at_ms) {
            if (f->tfile && mgr_djob_stages(mgr_djob_find(q->c, f->job)) && mgr_stage_window(q->c, f) == MGR_TASK_STAT && !mgr_task_may_rename(q->c, t))
                continue;
            put_new(q, mgr_task_id(f->id, f->tfile ? mgr_stage_window(q->c, f) : MGR_TASK_PREPARE, false), f->gen, f->target);
        } else if (f->state == MGR_D_FINISH && mgr_task_may_rename(q->c, t)) {
            put_new(q, mgr_task_id(f->id, MGR_TASK_FINISH, false), f->gen, f->target);
        }
    }
}

/* Parts to be written, in the order of files and windows. */
static void parts(struct batch *q)
{
    const enum mgr_stmt st = MGR_ST_DPART_TODO;
    struct {
        uint64_t file, first, gen;
    } list[TODO_PAGE];
    uint64_t file = 0, first = 0;
    size_t n = TODO_PAGE;

    while (n == TODO_PAGE && !is_full(q)) {
        int rc = mgr_db_one(&q->c->db, DPART_TODO, DBI(q->b->id), DBI(file), DBI((int64_t)first), DBI(TODO_PAGE));

        for (n = 0; rc > 0; rc = mgr_db_step(&q->c->db, st), n++) {
            list[n].file = (uint64_t)mgr_col(&q->c->db, st, 0);
            list[n].first = (uint64_t)mgr_col(&q->c->db, st, 1);
            list[n].gen = (uint64_t)mgr_col(&q->c->db, st, 3);
        }
        for (size_t i = 0; i < n && !is_full(q); i++) {
            const struct mgr_dfile *f = mgr_dfile_find(q->c, list[i].file);

            file = list[i].file;
            first = list[i].first;
            if (f && has_room(q, f->target) && !(mgr_dfile_foreign(q->c, f) && q->c->now.ms < f->at_ms)) {
                put_new(q, mgr_task_id(file, first, false), mgr_dfile_shared(q->c, f) ? list[i].gen : f->gen, f->target);
                continue;
            }
            first = INT64_MAX; /* nothing more of this file */
            n = TODO_PAGE;
            break;
        }
    }
}

static void verify_parts_of(struct batch *q, struct mgr_dfile *f, const struct mgr_inode *in)
{
    const enum mgr_stmt st = MGR_ST_DPART_NEXT;
    int rc = mgr_db_one(&q->c->db, DPART_NEXT, DBI(f->id), DBI(f->low), DBI(16 * TODO_PAGE));

    for (; rc > 0 && has_room(q, f->target); rc = mgr_db_step(&q->c->db, st)) {
        uint64_t first = (uint64_t)mgr_col(&q->c->db, st, 0);
        const uint8_t *sums;
        Fp__Task *k;
        size_t len;

        if ((uint32_t)mgr_col(&q->c->db, st, 1) != q->b->id || mgr_col(&q->c->db, st, 3) != MGR_P_DONE ||
            mgr_open_find(q->t, mgr_task_id(f->id, first, true), f->gen))
            continue;
        k = part_task(q->c, f, in, q->b->id, first, (uint64_t)mgr_col(&q->c->db, st, 2), true);
        if (!k)
            break;
        sums = mgr_col_blob(&q->c->db, st, 4, &len);
        add_sums(q->c, k, sums, len);
        drop_slices(k);
        put(q, k, NULL);
    }
    mgr_db_reset(&q->c->db, st);
}

static void verify_parts(struct batch *q)
{
    struct mgr_drain *d = q->c->drain;
    struct mgr_inode in;

    for (size_t i = 0; i < d->nfiles && !is_full(q); i++)
        if (d->files[i].state == MGR_D_VERIFY && !d->files[i].stale && has_room(q, d->files[i].target) && present(q, &d->files[i], &in))
            verify_parts_of(q, &d->files[i], &in);
}

static void looks(struct batch *q)
{
    for (size_t i = 0; i < q->c->drain->nlooks; i++)
        if (has_room(q, q->c->drain->looks[i].target))
            put(q, mgr_look_task(q->c, q->b, &q->c->drain->looks[i]), NULL);
}

static void pump_one(struct mgr_core *c, struct mgr_bnf *b, struct mgr_tasker *t)
{
    struct batch q = {.c = c, .b = b, .t = t, .m = MGR_NEW(c, Fp__Tasks, fp__tasks__init)};

    if (!q.m)
        return;
    q.m->tasks = mgr_arena_alloc(&c->arena, TASKS_MAX * sizeof *q.m->tasks);
    q.m->cancel = mgr_arena_alloc(&c->arena, MGR_OPEN_MAX * sizeof *q.m->cancel);
    if (!q.m->tasks || !q.m->cancel)
        return;
    t->look = false;
    look_at_open(&q);
    targets(&q);
    cleaning(&q);
    looks(&q);
    files(&q);
    verify_parts(&q);
    parts(&q);
    if (!q.m->n_tasks && !q.m->n_cancel)
        return;
    t->calling = true;
    mgr_out(c, MGR_OUT_CALL, b->conn, FP__MSG_TYPE__MSG_TASKS, &q.m->base);
    mgr_pace_new(c, b);
}

void mgr_task_pump(struct mgr_core *c)
{
    struct mgr_drain *d = c->drain;

    for (size_t i = 0; i < d->nof; i++) {
        struct mgr_bnf *b = mgr_bnf_find(c, i + 1);
        struct mgr_tasker *t = &d->of[i];

        if (!t->look || !b || t->calling || c->now.ms < t->at_ms || !mgr_task_reaches(c, b))
            continue;
        if (d->njobs || d->ntargets || t->count)
            pump_one(c, b, t);
    }
}

bool mgr_task_clean_has_room(const struct mgr_core *c)
{
    return c->drain->nclean < sizeof c->drain->clean / sizeof c->drain->clean[0];
}

void mgr_task_clean(struct mgr_core *c, const struct mgr_dfile *f, bool fence)
{
    struct mgr_drain *d = c->drain;
    struct mgr_target *t = mgr_target_find(c, f->target);

    for (size_t i = 0; i < d->nclean; i++)
        if (d->clean[i].file == f->id && d->clean[i].gen == f->gen)
            return;
    mgr_tasks_look(c);
    if (mgr_task_clean_has_room(c)) {
        d->clean[d->nclean++] = (struct mgr_cleaning){.file = f->id, .gen = f->gen, .target = f->target, .fence = fence};
    } else if (t) { /* the next sweep finds it */
        t->swept &= !fence;
        t->sweep_ms = 0;
    }
}
