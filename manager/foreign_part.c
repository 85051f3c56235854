/* Staging in what others have put into a target: the data of files.
 *
 * A file that was listed has an inode without a name (foreign.c). Its windows are given out in parts to all benefactors that reach the target and have room, each
 * a few at a time, the next one to whoever has least to do: so one large file is read by many, and a slow benefactor delays nobody. A part is a TASK_STAGE; its result
 * makes rows of chunks and slices in one transaction. When there is no window left the file gets its name.
 *
 * Chunks are stored under numbers that we give out here, above those of all sessions, each once. A part that is open keeps its own (drain_part.ids), so that an inventory
 * does not take what it finds of it for garbage; of one that is over, or was given to somebody else, it does. A part that is given out again has another attempt
 * and other numbers: what comes of the one before is garbage.
 *
 * A benefactor compares inode, size and time of the file before and after each read. If they are not those of the listing the attempt at the file is over.
 *
 * Rejected: numbers of a session (who asks is none); to plan all parts at once (a million rows for what may change meanwhile). */
#include "manager/ext.h"
#include "manager/foreign.h"

#include <errno.h>
#include <string.h>

#include "fp/err.h"
#include "fp/log.h"
#include "manager/rounds.h"

#define IDS_FIRST   ((uint64_t)(MGR_SESSION_MAX + 1) << 32)
#define IDS_BLOCK   (UINT64_C(1) << 20) /* reserved with one row of meta */
#define OPEN_BYTES  (64u << 20) /* that a benefactor has to do */
#define OPEN_PARTS  32u
#define AWAY_MS     10000u
#define FULL_MS     60000u /* no room, and nothing gives way */
#define LOOK_MS     500u   /* whether there is room by now */

/* ---------------------------------------------------------------- numbers of chunks */

static int ids_load(struct mgr_core *c)
{
    struct mgr_drain *d = c->drain;
    int rc;

    if (d->ids_end)
        return 0;
    rc = mgr_db_one(&c->db, META_GET, DBT("stage_ids"));
    d->ids_next = d->ids_end = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_META_GET, 0) : IDS_FIRST;
    mgr_db_reset(&c->db, MGR_ST_META_GET);
    return rc < 0 ? rc : 0;
}

int mgr_stage_ids(struct mgr_core *c, uint64_t n, uint64_t *first)
{
    struct mgr_drain *d = c->drain;
    int rc = ids_load(c);

    if (!rc && d->ids_end - d->ids_next < n) {
        if (d->ids_end > INT64_MAX - IDS_BLOCK)
            return mgr_doom(c, -EOVERFLOW);
        d->ids_end += IDS_BLOCK;
        rc = mgr_db_exec(&c->db, META_PUT, DBT("stage_ids"), DBI(d->ids_end));
        c->new_number = true; /* never a second time: benefactors have chunks of these numbers before any row of them is synced */
    }
    *first = d->ids_next;
    d->ids_next += n;
    return rc;
}

/* Does an open part keep it? 1, 0, or a failure. */
static int is_kept(struct mgr_core *c, uint64_t chunk)
{
    int rc = mgr_db_one(&c->db, FPART_KEPT, DBI(chunk));

    mgr_db_reset(&c->db, MGR_ST_FPART_KEPT);
    return rc;
}

int mgr_foreign_stray(struct mgr_core *c, struct mgr_bnf *b, uint64_t chunk)
{
    int rc = ids_load(c);

    if (rc)
        return rc;
    if (chunk >= c->drain->ids_end) {
        FP_LOG_EVERY(60000, FP_LOG_ERROR, "benefactor %u has chunks of numbers that this manager never gave out: they are left alone; is the database an old copy?", b->id);
        return 0;
    }
    rc = is_kept(c, chunk);
    if (rc)
        return rc < 0 ? rc : 0;
    b->inv_orphans++;
    return mgr_garbage_put(c, chunk, b->id, 0);
}

/* Nobody waits for these. */
static int drop_chunks(struct mgr_core *c, const struct mgr_bnf *b, const Fp__TaskResult *r)
{
    struct mgr_chunk have;
    int rc = ids_load(c);

    for (size_t i = 0; i < r->n_chunks && !rc; i++) {
        const Fp__Chunk *ch = r->chunks[i];

        if (ch->id < IDS_FIRST || ch->id >= c->drain->ids_end || (rc = is_kept(c, ch->id)) != 0) {
            rc = rc < 0 ? rc : 0;
            continue;
        }
        rc = mgr_chunk_get(c, ch->id, &have);
        rc = rc == -ENOENT ? mgr_garbage_put(c, ch->id, b->id, ch->stored_bytes) : rc;
    }
    return rc;
}

/* ---------------------------------------------------------------- who gets the next part */

/* What each has to do, by its number. */
static int loads(struct mgr_core *c, struct mgr_part_load **out)
{
    const enum mgr_stmt st = MGR_ST_FPART_OPEN;
    struct mgr_part_load *l = mgr_arena_zalloc(&c->arena, (c->bnf_count + 1) * sizeof *l);
    int rc;

    *out = l;
    if (!l)
        return mgr_doom(c, -ENOMEM);
    for (rc = mgr_db_one(&c->db, FPART_OPEN); rc > 0; rc = mgr_db_step(&c->db, st)) {
        uint64_t bnf = (uint64_t)mgr_col(&c->db, st, 2);

        if (bnf <= c->bnf_count) {
            l[bnf].bytes += (uint64_t)mgr_col(&c->db, st, 3);
            l[bnf].parts++;
        }
    }
    return rc;
}

static bool has_room(const struct mgr_bnf *b, const struct mgr_part_load *l, uint64_t bytes)
{
    uint64_t keep = b->capacity / 16 + l[b->id].bytes + bytes; /* the last sixteenth it does not fill for us */

    return b->free > keep + keep / 64;
}

uint32_t mgr_part_choose(struct mgr_core *c, const struct mgr_dfile *f, const struct mgr_part_load *l, uint64_t bytes, bool *full)
{
    const struct mgr_bnf *best = NULL;
    bool reached = false, room = false, stores = mgr_dfile_foreign(c, f);

    for (size_t i = 0; i < c->bnf_count; i++) {
        const struct mgr_bnf *b = c->bnfs[(f->id + i) % c->bnf_count];

        if (!mgr_task_can(c, b, f->target))
            continue;
        reached = true;
        if (stores && !has_room(b, l, bytes))
            continue;
        room = true;
        if (l[b->id].parts >= OPEN_PARTS || l[b->id].bytes >= OPEN_BYTES || (best && l[best->id].bytes <= l[b->id].bytes))
            continue;
        best = b;
    }
    *full = reached && !room;
    return best ? best->id : 0;
}

/* As a program that writes, it waits as long as what is drained gives way, if there is a policy. 1: f has failed; 0: it waits; or a failure. */
static int no_space(struct mgr_core *c, struct mgr_dfile *f, const char *why)
{
    uint64_t way = mgr_giving_way(c);
    int rc;

    if (way != f->way || !f->full_ms)
        f->full_ms = c->now.ms;
    f->way = way;
    if (way && c->now.ms - f->full_ms < FULL_MS) {
        f->at_ms = c->now.ms + LOOK_MS;
        return 0;
    }
    rc = mgr_drain_fail(c, f, -ENOSPC, why);
    return rc ? rc : 1;
}

/* ---------------------------------------------------------------- parts */

static uint64_t windows(const struct mgr_dfile *f, const struct mgr_inode *in)
{
    return (f->size + in->chunk_size - 1) / in->chunk_size;
}

static uint64_t part_bytes(const struct mgr_dfile *f, const struct mgr_inode *in, uint64_t first, uint64_t count)
{
    uint64_t from = first * in->chunk_size, to = (first + count) * in->chunk_size;

    return (to < f->size ? to : f->size) - from;
}

int mgr_part_next(struct mgr_core *c, const struct mgr_dfile *f, uint64_t *next)
{
    int rc = mgr_db_one(&c->db, DPART_END, DBI(f->id));

    *next = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_DPART_END, 0) : 0;
    mgr_db_reset(&c->db, MGR_ST_DPART_END);
    return rc < 0 ? rc : 0;
}

int mgr_part_put(struct mgr_core *c, const struct mgr_dfile *f, uint64_t first, uint64_t count, uint32_t bnf, uint64_t bytes, struct mgr_part_load *l)
{
    uint64_t gen, ids;
    int rc = mgr_drain_gen(c, &gen);

    rc = rc ? rc : mgr_stage_ids(c, count, &ids);
    mgr_tasker(c, bnf)->look = true;
    l[bnf].bytes += bytes;
    l[bnf].parts++;
    return rc ? rc : mgr_db_exec(&c->db, FPART_PUT, DBI(f->id), DBI(first), DBI(bnf), DBI(count), DBI(gen), DBI(bytes), DBI(ids));
}

/* *made: parts of this group. 1: f has failed; 0; or a failure. */
static int plan(struct mgr_core *c, struct mgr_dfile *f, const struct mgr_inode *in, struct mgr_part_load *l, uint32_t *made)
{
    uint64_t count = MGR_SHARE_BYTES / in->chunk_size, all = windows(f, in), next;
    int rc = mgr_part_next(c, f, &next);

    count = count < 1 ? 1 : count > MGR_SHARE_WINDOWS ? MGR_SHARE_WINDOWS : count;
    while (!rc && next < all && *made < MGR_PARTS_STEP && c->now.ms >= f->at_ms) {
        uint64_t n = all - next < count ? all - next : count, bytes = part_bytes(f, in, next, n);
        bool full;
        uint32_t bnf = mgr_part_choose(c, f, l, bytes, &full);

        if (!bnf)
            return full ? no_space(c, f, "no benefactor that reaches the target has room for it") : 0;
        f->full_ms = 0;
        rc = mgr_part_put(c, f, next, n, bnf, bytes, l);
        next += n;
        ++*made;
    }
    return rc;
}

int mgr_parts_done(struct mgr_core *c, struct mgr_dfile *f)
{
    int rc = mgr_db_one(&c->db, DPART_LOW, DBI(f->id), DBI(f->low), DBI(MGR_P_DONE));
    if (rc > 0)
        f->low = (uint64_t)mgr_col(&c->db, MGR_ST_DPART_LOW, 0);
    mgr_db_reset(&c->db, MGR_ST_DPART_LOW);
    return rc < 0 ? rc : !rc;
}

/* Its data is all here? 1, 0, or a failure. */
static int is_whole(struct mgr_core *c, struct mgr_dfile *f, const struct mgr_inode *in)
{
    uint64_t next;
    int rc = mgr_part_next(c, f, &next);

    return rc || next < windows(f, in) ? rc : mgr_parts_done(c, f);
}

struct open_part {
    uint64_t file, first, bytes, count;
    uint32_t bnf;
};

/* Given to somebody else, or to the same anew. */
static int give_again(struct mgr_core *c, const struct open_part *p, uint32_t bnf)
{
    uint64_t gen, ids;
    int rc = mgr_drain_gen(c, &gen);

    rc = rc ? rc : mgr_stage_ids(c, p->count, &ids);
    mgr_tasker(c, bnf)->look = mgr_tasker(c, p->bnf)->look = true;
    return rc ? rc : mgr_db_exec(&c->db, FPART_AGAIN, DBI(p->file), DBI(p->first), DBI(p->bnf), DBI(bnf), DBI(gen), DBI(ids));
}

/* Whoever has said hello since may have lost what he had stored, or not: it is all asked for anew. Who is away for long, or can't read the target, loses his parts to others. */
static int give_away(struct mgr_core *c, struct mgr_part_load *l)
{
    const enum mgr_stmt st = MGR_ST_FPART_OPEN;
    struct open_part *list = mgr_arena_alloc(&c->arena, MGR_PARTS_STEP * sizeof *list);
    size_t n = 0;
    int rc;

    if (!list)
        return mgr_doom(c, -ENOMEM);
    for (rc = mgr_db_one(&c->db, FPART_OPEN); rc > 0; rc = mgr_db_step(&c->db, st)) {
        uint32_t bnf = (uint32_t)mgr_col(&c->db, st, 2);
        const struct mgr_bnf *b = mgr_bnf_find(c, bnf);
        const struct mgr_dfile *f = mgr_dfile_find(c, (uint64_t)mgr_col(&c->db, st, 0));
        const struct mgr_tasker *t = mgr_tasker(c, bnf);

        if (!b || !t || !f || n == MGR_PARTS_STEP || (!t->fresh && (mgr_task_can(c, b, f->target) || (!b->conn && c->now.ms - b->seen_ms < AWAY_MS))))
            continue;
        list[n++] = (struct open_part){.file = f->id, .first = (uint64_t)mgr_col(&c->db, st, 1), .bytes = (uint64_t)mgr_col(&c->db, st, 3),
                                       .count = (uint64_t)mgr_col(&c->db, st, 4), .bnf = bnf};
    }
    for (size_t i = 0; i < n && rc >= 0; i++) {
        const struct mgr_dfile *f = mgr_dfile_find(c, list[i].file);
        bool full, fresh = mgr_tasker(c, list[i].bnf)->fresh;
        uint32_t to = fresh ? list[i].bnf : mgr_part_choose(c, f, l, list[i].bytes, &full);

        if (to && (fresh || to != list[i].bnf))
            rc = give_again(c, &list[i], to);
        l[to].bytes += to ? list[i].bytes : 0;
        l[to].parts += to != 0;
    }
    if (n == MGR_PARTS_STEP) {
        c->busy = c->drain->dirty = true;
        return rc;
    }
    for (size_t i = 0; i < c->drain->nof && rc >= 0; i++)
        c->drain->of[i].fresh = false;
    return rc < 0 ? rc : 0;
}

static bool is_any(const struct mgr_core *c)
{
    for (size_t i = 0; i < c->drain->njobs; i++)
        if (mgr_djob_foreign(&c->drain->jobs[i]) || mgr_djob_merges(&c->drain->jobs[i]))
            return true;
    return false;
}

/* A file is shared out, and gets its name when nothing is left of it. It may not be valid any more afterwards. */
static int share(struct mgr_core *c, struct mgr_dfile *f, struct mgr_part_load *l, uint32_t *made)
{
    struct mgr_inode in;
    int rc;

    if (mgr_dfile_merges(c, f))
        return mgr_merge_step(c, f, l, made);
    rc = mgr_inode_get(c, f->ino, &in);
    rc = rc ? rc : plan(c, f, &in, l, made);
    if (rc)
        return rc > 0 ? 0 : rc;
    rc = is_whole(c, f, &in);
    return rc > 0 ? mgr_foreign_publish(c, f) : rc;
}

int mgr_foreign_step(struct mgr_core *c)
{
    struct mgr_drain *d = c->drain;
    struct mgr_part_load *l = NULL;
    uint32_t made = 0;
    int rc;

    if (!is_any(c))
        return 0;
    rc = loads(c, &l);
    rc = rc ? rc : give_away(c, l);
    for (size_t i = d->nfiles; i-- > 0 && !rc;) { /* from the end: one that goes leaves its place to the last */
        struct mgr_dfile *f = &d->files[i];

        if (f->state == MGR_D_PARTS && mgr_dfile_shared(c, f))
            rc = share(c, f, l, &made);
    }
    if (made >= MGR_PARTS_STEP)
        c->busy = d->dirty = true;
    return rc;
}

/* ---------------------------------------------------------------- tasks */

static uint64_t window_of(uint64_t id)
{
    return id >> 1 & ((UINT64_C(1) << 29) - 1);
}

struct part {
    uint64_t count, bytes, gen, ids;
    uint32_t state;
};

/* 1: there is such a part; 0; or a failure. */
static int part_get(struct mgr_core *c, uint64_t file, uint64_t first, uint32_t bnf, struct part *p)
{
    const enum mgr_stmt st = MGR_ST_FPART_GET;
    int rc = mgr_db_one(&c->db, FPART_GET, DBI(file), DBI(first), DBI(bnf));

    if (rc <= 0)
        return rc;
    p->count = (uint64_t)mgr_col(&c->db, st, 0);
    p->state = (uint32_t)mgr_col(&c->db, st, 1);
    p->bytes = (uint64_t)mgr_col(&c->db, st, 2);
    p->gen = (uint64_t)mgr_col(&c->db, st, 3);
    p->ids = (uint64_t)mgr_col(&c->db, st, 4);
    mgr_db_reset(&c->db, st);
    return 1;
}

bool mgr_foreign_is_on(struct mgr_core *c, uint32_t bnf, const struct mgr_dfile *f, uint64_t id, uint64_t gen)
{
    struct part p;

    if (window_of(id) == MGR_TASK_FINISH)
        return f->gen == gen && f->lead == bnf && f->state == MGR_D_FINISH;
    if (window_of(id) >= MGR_TASK_WINDOWS)
        return f->gen == gen && f->lead == bnf && f->state == MGR_D_PREPARE;
    return f->state == MGR_D_PARTS && part_get(c, f->id, window_of(id), bnf, &p) > 0 && p.gen == gen && p.state == MGR_P_TODO;
}

static Fp__Task *part_task(struct mgr_core *c, const struct mgr_dfile *f, uint64_t id, uint64_t first, const struct part *p)
{
    const struct mgr_target *t = mgr_target_find(c, f->target);
    Fp__Task *k = t ? mgr_task_new(c, FP__TASK_KIND__TASK_STAGE, id, p->gen, t) : NULL;
    struct mgr_inode in;

    if (!k || mgr_inode_get(c, f->ino, &in) || mgr_dfile_path(c, f->id, &k->dest->path) || !(k->slices = mgr_arena_alloc(&c->arena, p->count * sizeof *k->slices)))
        return NULL;
    k->dest->ino = f->tino;
    k->dest->size_bytes = k->size_bytes = f->size;
    k->dest->mtime_ns = in.mtime;
    k->urgent = f->urgent;
    for (uint64_t i = 0; i < p->count; i++) {
        Fp__Slice *s = MGR_NEW(c, Fp__Slice, fp__slice__init);

        if (!s)
            return NULL;
        s->win = first + i;
        s->chunk = p->ids + i;
        s->ext_off = s->win * in.chunk_size;
        s->len = (uint32_t)part_bytes(f, &in, s->win, 1);
        k->slices[k->n_slices++] = s;
    }
    return k;
}

static struct mgr_merge_part of_log(uint64_t first, const struct part *p)
{
    return (struct mgr_merge_part){.first = first, .count = p->count, .gen = p->gen, .bytes = p->bytes};
}

static Fp__Task *merge_task(struct mgr_core *c, uint32_t bnf, const struct mgr_dfile *f, uint64_t id)
{
    struct mgr_merge_part m;
    struct part p;

    if (window_of(id) >= MGR_TASK_WINDOWS)
        return mgr_merge_task(c, f, id, NULL);
    if (part_get(c, f->id, window_of(id), bnf, &p) <= 0)
        return NULL;
    m = of_log(window_of(id), &p);
    return mgr_merge_task(c, f, id, &m);
}

Fp__Task *mgr_foreign_task(struct mgr_core *c, uint32_t bnf, const struct mgr_dfile *f, uint64_t id, uint64_t gen)
{
    struct part p;

    if (!mgr_foreign_is_on(c, bnf, f, id, gen))
        return NULL;
    if (mgr_dfile_merges(c, f))
        return merge_task(c, bnf, f, id);
    if (window_of(id) == MGR_TASK_LIST)
        return mgr_foreign_list_task(c, f);
    return part_get(c, f->id, window_of(id), bnf, &p) > 0 ? part_task(c, f, id, window_of(id), &p) : NULL;
}

/* ---------------------------------------------------------------- results */

/* Rows of what has come; a window that is not among it is nothing but zeros. */
static int put_chunks(struct mgr_core *c, struct mgr_bnf *b, struct mgr_inode *in, uint64_t first, const struct part *p, const Fp__TaskResult *r)
{
    Fp__Slice **slices = mgr_arena_alloc(&c->arena, (r->n_chunks + 1) * sizeof *slices);
    int rc = 0;

    if (!slices)
        return mgr_doom(c, -ENOMEM);
    for (size_t i = 0; i < r->n_chunks && !rc; i++) {
        const Fp__Chunk *m = r->chunks[i];
        Fp__Slice *s = MGR_NEW(c, Fp__Slice, fp__slice__init);
        struct mgr_chunk ch = {.id = m->id, .len = m->len, .stored = m->stored_bytes, .sum = m->sum, .refs = 1, .bnf = b->id};

        if (!s)
            return mgr_doom(c, -ENOMEM);
        s->win = first + (m->id - p->ids);
        s->chunk = m->id;
        s->len = s->chunk_len = m->len;
        slices[i] = s;
        ch.round = mgr_round_of(c, b, 0, in->ino); /* stored after the file was listed: that is known */
        rc = mgr_chunk_insert(c, &ch);
    }
    rc = rc ? rc : mgr_slices_put(c, in, slices, r->n_chunks);
    return rc ? rc : mgr_inode_put(c, in);
}

static bool is_sound(const struct mgr_bnf *b, const struct mgr_dfile *f, const struct mgr_inode *in, uint64_t first, const struct part *p, const Fp__TaskResult *r)
{
    for (size_t i = 0; i < r->n_chunks; i++) {
        const Fp__Chunk *m = r->chunks[i];

        if (m->id < p->ids || m->id >= p->ids + p->count || (i && m->id <= r->chunks[i - 1]->id) || m->bnf != b->id ||
            m->len != part_bytes(f, in, first + (m->id - p->ids), 1))
            return false;
    }
    return true;
}

static int part_done(struct mgr_core *c, struct mgr_bnf *b, struct mgr_dfile *f, uint64_t first, const struct part *p, const Fp__TaskResult *r)
{
    struct mgr_djob *j = mgr_djob_find(c, f->job);
    struct mgr_inode in;
    int rc = mgr_inode_get(c, f->ino, &in);

    if (rc)
        return rc;
    if (!is_sound(b, f, &in, first, p, r))
        return mgr_drain_fail(c, f, -EPROTO, "a benefactor has told chunks that it was not asked for");
    rc = put_chunks(c, b, &in, first, p, r);
    rc = rc ? rc : mgr_db_exec(&c->db, DPART_STATE, DBI(f->id), DBI(first), DBI(b->id), DBI(MGR_P_DONE));
    j->bytes_done += p->bytes;
    c->drain->dirty = true;
    return rc ? rc : mgr_djob_put(c, j);
}

/* To somebody else, if there is one; so often as there are others, and some more. */
static int no_room(struct mgr_core *c, const struct mgr_bnf *b, struct mgr_dfile *f, uint64_t first, const struct part *p, const char *why)
{
    const struct open_part o = {.file = f->id, .first = first, .bytes = p->bytes, .count = p->count, .bnf = b->id};
    struct mgr_part_load *l;
    bool full;
    uint32_t to;
    int rc = loads(c, &l);

    if (rc)
        return rc;
    l[b->id].parts = OPEN_PARTS;
    to = mgr_part_choose(c, f, l, p->bytes, &full);
    if (!to || ++f->tries >= MGR_FOREIGN_TRIES) {
        rc = no_space(c, f, why);
        return rc ? (rc < 0 ? rc : 0) : give_again(c, &o, to ? to : b->id);
    }
    return give_again(c, &o, to);
}

static int part_failed(struct mgr_core *c, const struct mgr_bnf *b, struct mgr_dfile *f, uint64_t first, const struct part *p, const Fp__TaskResult *r)
{
    switch (r->status) {
    case FP_ECANCELLED:
        return 0; /* it is told again, if it is still to be done */
    case -ENOSPC:
        return no_room(c, b, f, first, p, r->why);
    case -ENOENT:
    case -ESTALE: /* the next look says what it is now */
        if (++f->tries >= MGR_FOREIGN_TRIES)
            return mgr_drain_fail(c, f, -EBUSY, "somebody changes it again and again");
        return mgr_drain_again(c, f);
    default:
        return mgr_drain_fail(c, f, r->status, r->why);
    }
}

int mgr_foreign_result(struct mgr_core *c, const struct mgr_bnf *b, struct mgr_dfile *f, const Fp__TaskResult *r)
{
    uint64_t first = window_of(r->id);
    struct mgr_merge_part m;
    struct part p;
    int rc;

    f = f && mgr_dfile_shared(c, f) ? f : NULL;
    if (first == MGR_TASK_LIST)
        return f && f->gen == r->gen && f->lead == b->id ? mgr_foreign_listed(c, f, r) : 0;
    rc = f && f->state == MGR_D_PARTS ? part_get(c, f->id, first, b->id, &p) : 0;
    if (rc < 0)
        return rc;
    if (!rc || p.gen != r->gen || p.state != MGR_P_TODO)
        return drop_chunks(c, b, r);
    if (r->tainted)
        return mgr_drain_again(c, f);
    m = of_log(first, &p);
    if (mgr_dfile_merges(c, f))
        return mgr_merge_part_result(c, b, f, &m, r);
    return r->status ? part_failed(c, b, f, first, &p, r) : part_done(c, mgr_bnf_find(c, b->id), f, first, &p, r);
}
