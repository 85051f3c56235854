/* What is lost or damaged here, and is whole in a target.
 *
 * A chunk that an inventory lacks, or that a reader could not read, is looked for in the copies of the files that name it (drained.c). If one of them has the present data,
 * the chunk is external from then on, as if it had been evicted in favour of that file: maps say where it is, who reads it gets the bytes of the target, compared with its sum.
 * That is one step of rows and no I/O, so whoever has just been told that a chunk is bad asks for the map again and can read.
 *
 *     lost, no copy             bad_chunk: missing (1), or read wrong (0)
 *     lost, there is a copy     external, and bad_chunk: 2, until a benefactor has looked at the copy, and has marked it as needed (needs.c)
 *     … found as it was         external, as what was evicted is
 *     … not found               another copy, or lost
 *
 * Until the copy has been looked at, the file's level is none and its set is not the latest: nobody knows that the copy is still there. A look is had for each file of a target,
 * not for each chunk, and the rows of many chunks go in steps.
 *
 * What a reader found wrong stays on its benefactor until then, and is deleted there when the copy has been found: an inventory has its name, and can't tell it from a good one.
 *
 * What is on a benefactor that is away goes the same way when somebody asks for the map AWAY_MS later, and not before: if it comes back with what it had that is taken again
 * (ext.c: mgr_ext_found).
 *
 * Chunks that are coded, or of which the file has a part, can't be had from a copy: their bytes are not to be found together there. Rejected: to wait for the look before the chunk
 * is external (each reader would have to wait for a target that may hang, and what it reads is compared anyway).
 *
 * Called by the core's thread, in a group. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fp/bug.h"
#include "fp/log.h"
#include "manager/ext.h"
#include "manager/level.h"

#define FILES_MAX 16u    /* that are asked for a copy, of a chunk that many have */
#define STEP      1024u  /* rows that one group changes */
#define SLOTS     4096u  /* of c->drain->rescues that one group looks through */
#define LOOKS     16u    /* that one group begins; others are to get theirs, too */
#define AGAIN_MS  5000u  /* after a look of which nothing has come */
#define AWAY_MS   5000u
#define WELL      UINT64_MAX /* in c->drain->rescues: it was found; else when it is to be looked at */

/* ---------------------------------------------------------------- where a chunk is */

struct place {
    uint64_t tfile, off;
    Fp__ExtFile *file;
};

/* The best copy of the file's present data that nobody is about to replace; tfile 0: there is none. */
static int copy_of(struct mgr_core *c, const struct mgr_inode *in, struct place *p)
{
    uint64_t avoid = 0;
    bool gone;
    int rc = 0;

    p->tfile = 0;
    for (unsigned i = 0; i < 2 && !rc && (in->flags & MGR_DRAINS); i++) {
        rc = mgr_drained_copy(c, in, 0, avoid, &p->tfile);
        if (rc || !p->tfile || p->tfile == avoid)
            break;
        rc = mgr_tfile_get(c, p->tfile, &p->file, &gone);
        if (!rc && !gone && !mgr_drain_renames_over(c, p->file))
            return 0;
        avoid = p->tfile;
    }
    p->tfile = 0;
    return rc == -ENOENT ? 0 : rc;
}

static int find(struct mgr_core *c, const struct mgr_chunk *ch, struct place *p)
{
    const enum mgr_stmt st = MGR_ST_RESCUE_SLICES;
    struct {
        uint64_t ino, win, off;
    } at[FILES_MAX];
    struct mgr_inode in;
    size_t n = 0;
    int rc;

    p->tfile = 0;
    for (rc = mgr_db_one(&c->db, RESCUE_SLICES, DBI(ch->id), DBI(ch->len), DBI(FILES_MAX)); rc > 0 && n < FILES_MAX; rc = mgr_db_step(&c->db, st), n++) {
        at[n].ino = (uint64_t)mgr_col(&c->db, st, 0);
        at[n].win = (uint64_t)mgr_col(&c->db, st, 1);
        at[n].off = (uint64_t)mgr_col(&c->db, st, 2);
    }
    mgr_db_reset(&c->db, st);
    rc = rc < 0 ? rc : 0;
    for (size_t i = 0; i < n && !rc && !p->tfile; i++) {
        rc = mgr_inode_get(c, at[i].ino, &in);
        rc = rc ? rc : copy_of(c, &in, p);
        p->off = at[i].win * in.chunk_size + at[i].off;
        rc = rc == -ENOENT ? 0 : rc;
    }
    return rc;
}

/* It is external from now on, and its copy is to be looked at. how: LOOK or WRONG. */
static int turn(struct mgr_core *c, const struct mgr_chunk *ch, const struct place *p, enum mgr_bad how, const char *reason)
{
    char line[400];
    int rc = mgr_ext_put(c, ch->id, p->tfile, p->off);

    if (!rc && ch->bnf)
        rc = mgr_chunk_place(c, ch, 0, 0);
    snprintf(line, sizeof line, "%s; its copy in the target %s is looked at", reason, p->file->root);
    rc = rc ? rc : mgr_damage_chunk(c, ch->id, ch->bnf, how, line);
    if (!rc && mgr_idmap_put(&c->drain->rescues, p->tfile, 0))
        return mgr_doom(c, -ENOMEM);
    c->drain->dirty = true;
    return rc;
}

int mgr_rescue(struct mgr_core *c, const struct mgr_chunk *ch, enum mgr_bad bad, const char *reason)
{
    struct place p = {0};
    int rc = ch->data || FP_BUG("mgr-forgets-what-a-target-has") ? 0 : find(c, ch, &p);

    if (rc || !p.tfile)
        return rc ? rc : mgr_damage_chunk(c, ch->id, ch->bnf, bad, reason);
    rc = turn(c, ch, &p, bad == MGR_BAD_READ && ch->bnf ? MGR_BAD_WRONG : MGR_BAD_LOOK, reason);
    return rc ? rc : 1;
}

int mgr_rescue_in(struct mgr_core *c, const struct mgr_chunk *ch, uint64_t tfile, uint64_t off, Fp__ExtFile *file, const char *reason)
{
    const struct place p = {tfile, off, file};

    return turn(c, ch, &p, MGR_BAD_WRONG, reason);
}

/* ---------------------------------------------------------------- looking at copies */

int mgr_rescue_load(struct mgr_core *c)
{
    const enum mgr_stmt st = MGR_ST_RESCUE_LOOKS;
    int rc;

    mgr_idmap_fini(&c->drain->rescues);
    c->drain->rescue_pos = 0;
    for (rc = c->bad_chunks ? mgr_db_one(&c->db, RESCUE_LOOKS) : 0; rc > 0; rc = mgr_db_step(&c->db, st))
        if (mgr_idmap_put(&c->drain->rescues, (uint64_t)mgr_col(&c->db, st, 0), 0)) {
            mgr_db_reset(&c->db, st);
            return -ENOMEM;
        }
    return rc;
}

bool mgr_rescue_wants(const struct mgr_core *c, uint64_t tfile)
{
    uint64_t val;

    return mgr_idmap_get(&c->drain->rescues, tfile, &val) && val != WELL;
}

int mgr_rescue_found(struct mgr_core *c, uint64_t tfile)
{
    const struct mgr_target *t;
    Fp__ExtFile *x;
    bool gone;
    int rc = mgr_rescue_wants(c, tfile) ? mgr_tfile_get(c, tfile, &x, &gone) : -ENOENT;

    t = rc ? NULL : mgr_target_find(c, x->target);
    if (!t || !mgr_task_may_rename(c, t))
        return rc == -ENOENT ? 0 : rc; /* it is looked at again when nobody can rename late */
    c->drain->dirty = true;
    return mgr_idmap_put(&c->drain->rescues, tfile, WELL) ? mgr_doom(c, -ENOMEM) : 0;
}

void mgr_rescue_over(struct mgr_core *c, uint64_t tfile)
{
    mgr_idmap_del(&c->drain->rescues, tfile);
}

/* Rows of chunks that have a well copy in it go, and what was read wrong of them. *more: not all of them yet. */
static int settle(struct mgr_core *c, uint64_t tfile, bool *more)
{
    const enum mgr_stmt st = MGR_ST_RESCUE_OF;
    struct {
        uint64_t chunk;
        uint32_t bnf;
    } *list = mgr_arena_alloc(&c->arena, STEP * sizeof *list);
    size_t n = 0;
    int rc;

    if (!list)
        return mgr_doom(c, -ENOMEM);
    for (rc = mgr_db_one(&c->db, RESCUE_OF, DBI(tfile), DBI(STEP)); rc > 0 && n < STEP; rc = mgr_db_step(&c->db, st)) {
        list[n].chunk = (uint64_t)mgr_col(&c->db, st, 0);
        list[n++].bnf = (uint32_t)mgr_col(&c->db, st, 1);
    }
    mgr_db_reset(&c->db, st);
    rc = rc < 0 ? rc : 0;
    for (size_t i = 0; i < n && !rc; i++) {
        rc = list[i].bnf ? mgr_garbage_put(c, list[i].chunk, list[i].bnf, 0) : 0; /* else an inventory would take it for well */
        rc = rc ? rc : mgr_damage_drop(c, list[i].chunk);
    }
    *more = n == STEP;
    return rc;
}

/* Somebody is to look at it. *over: it is known no more. */
static int look_at(struct mgr_core *c, uint64_t tfile, bool *over)
{
    Fp__ExtFile *x;
    bool gone;
    int rc = mgr_tfile_get(c, tfile, &x, &gone);

    *over = rc == -ENOENT;
    rc = rc ? rc : mgr_needs(c, x->target);
    rc = rc ? rc : mgr_look(c, tfile, 0);
    if (rc > 0)
        rc = mgr_idmap_put(&c->drain->rescues, tfile, c->now.ms + AGAIN_MS) ? mgr_doom(c, -ENOMEM) : 0;
    return *over ? 0 : rc;
}

bool mgr_rescue_due(const struct mgr_core *c)
{
    return c->drain->rescues.used > 0;
}

int mgr_rescue_step(struct mgr_core *c)
{
    struct {
        uint64_t tfile, val;
    } due[LOOKS];
    size_t n = 0, end = c->drain->rescue_pos + SLOTS;
    uint64_t tfile, val;
    int rc = 0;

    while (n < LOOKS && c->drain->rescue_pos < end) {
        if (!mgr_idmap_next(&c->drain->rescues, &c->drain->rescue_pos, &tfile, &val)) {
            c->drain->rescue_pos = 0; /* round again in the next group; what an entry that went has moved is found then */
            break;
        }
        if (val == WELL || val <= c->now.ms) {
            due[n].tfile = tfile;
            due[n++].val = val;
        }
    }
    for (size_t i = 0; i < n && !rc; i++) {
        bool over = false, more = false;

        if (due[i].val != WELL && c->drain->nlooks >= 2 * LOOKS)
            continue;
        if (due[i].val != WELL) {
            rc = look_at(c, due[i].tfile, &over);
        } else {
            rc = settle(c, due[i].tfile, &more);
            over = !more;
            c->busy |= more;
            c->drain->dirty |= more;
        }
        if (over)
            mgr_rescue_over(c, due[i].tfile);
    }
    return rc;
}

/* ---------------------------------------------------------------- benefactors that are away */

static bool is_away(const struct mgr_core *c, const struct mgr_bnf *b)
{
    uint64_t since = b && b->seen_ms > c->start.ms ? b->seen_ms : c->start.ms;

    return b && mgr_bnf_state(b) == FP__BNF_STATE__BNF_DOWN && c->now.ms - since >= AWAY_MS;
}

static bool any_away(const struct mgr_core *c)
{
    for (size_t i = 0; i < c->bnf_count; i++)
        if (is_away(c, c->bnfs[i]))
            return true;
    return false;
}

int mgr_rescue_map(struct mgr_core *c, const struct mgr_inode *in, Fp__SliceMapReply *r)
{
    struct place p = {0};
    struct mgr_chunk ch;
    int rc = in->flags & MGR_DRAINS && any_away(c) ? copy_of(c, in, &p) : 0;

    for (size_t i = 0; p.tfile && i < r->n_slices && !rc; i++) {
        Fp__Slice *s = r->slices[i];

        if (!s->bnf || s->data_len || s->chunk_off || s->len != s->chunk_len || !is_away(c, mgr_bnf_find(c, s->bnf)))
            continue;
        rc = mgr_chunk_get(c, s->chunk, &ch);
        p.off = s->win * in->chunk_size + s->off;
        rc = rc ? rc : turn(c, &ch, &p, MGR_BAD_LOOK, "its benefactor is away");
        s->bnf = 0;
    }
    return rc;
}

/* ---------------------------------------------------------------- a file that is to be here */

struct bad {
    uint64_t chunk;
    enum mgr_bad why; /* MGR_BAD_LOOK: its benefactor is away */
};

/* Up to STEP chunks of it that can't be read where they are, and are not said to be in a target. */
static int find_bad(struct mgr_core *c, uint64_t ino, struct bad *list, size_t *n)
{
    const enum mgr_stmt st = MGR_ST_RESCUE_FILE;
    int rc;

    *n = 0;
    for (rc = mgr_db_one(&c->db, RESCUE_FILE, DBI(ino)); rc > 0 && *n < STEP; rc = mgr_db_step(&c->db, st)) {
        bool is_bad = mgr_col(&c->db, st, 2) >= 0;

        if (!is_bad && !is_away(c, mgr_bnf_find(c, (uint64_t)mgr_col(&c->db, st, 1))))
            continue;
        list[*n].chunk = (uint64_t)mgr_col(&c->db, st, 0);
        list[(*n)++].why = is_bad ? (enum mgr_bad)mgr_col(&c->db, st, 2) : MGR_BAD_LOOK;
    }
    mgr_db_reset(&c->db, st);
    return rc < 0 ? rc : 0;
}

int mgr_rescue_file(struct mgr_core *c, uint64_t ino, const char **why)
{
    struct bad *list = mgr_arena_alloc(&c->arena, STEP * sizeof *list);
    struct mgr_chunk ch;
    struct place p;
    size_t n = 0;
    int rc = !list ? mgr_doom(c, -ENOMEM) : c->bad_chunks || any_away(c) ? find_bad(c, ino, list, &n) : 0;

    *why = NULL;
    for (size_t i = 0; i < n && !rc; i++) {
        rc = mgr_chunk_get(c, list[i].chunk, &ch);
        if (rc == -ENOENT || (!rc && !ch.bnf && list[i].why == MGR_BAD_LOOK)) { /* twice in the list */
            rc = 0;
            continue;
        }
        p.tfile = 0;
        rc = rc || ch.data ? rc : find(c, &ch, &p);
        if (rc)
            break;
        if (p.tfile)
            rc = turn(c, &ch, &p, list[i].why == MGR_BAD_READ && ch.bnf ? MGR_BAD_WRONG : MGR_BAD_LOOK, list[i].why == MGR_BAD_LOOK ? "its benefactor is away" : "it was lost or damaged");
        else
            *why = list[i].why == MGR_BAD_LOOK
                       ? "some of it is on a benefactor that is away, and no target has a copy of it"
                       : "some of it is lost or damaged, and no target has a copy of it: see fpctl status";
    }
    return rc ? rc : n == STEP && !*why;
}
