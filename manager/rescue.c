/* What is lost or damaged here, and is whole in a target.
 *
 * A chunk that an inventory lacks, or that a reader could not read, is looked for in the copies of the files that name it (drained.c), and of those that versions of files had. If one
 * of them has the present data, the chunk is external from then on, as if it had been evicted in favour of that file: maps say where it is, who reads it gets the bytes of the target, compared with its sum.
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
 * What is on a benefactor that is away goes the same way when somebody asks for the map a second later, and not before: if it comes back with what it had that is taken again
 * (ext.c: mgr_ext_found).
 *
 * Chunks that are coded, or of which a file has a part, can't be had from a copy by themselves: there the window is had, when the copy has been looked at (rescue_win.c). Rejected: to wait
 * for the look before a chunk is external, too (each reader would have to wait for a target that may hang, and what it reads is compared anyway).
 *
 * Called by the core's thread, in a group. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fp/bug.h"
#include "fp/log.h"
#include "manager/level.h"
#include "manager/rescue.h"
#include "manager/version.h"

#define FILES_MAX 16u    /* that are asked for a copy, of a chunk that many have */
#define STEP      1024u  /* rows that one group changes */
#define SLOTS     4096u  /* of c->drain->rescues that one group looks through */
#define LOOKS     16u    /* that one group begins, … */
#define OF_TARGET 48u    /* … while fewer of its target are looked at: more than surveys have, and one that hangs leaves room for others */
#define AGAIN_MS  5000u  /* after a look of which nothing has come */
#define LOOKED_MS 5000u  /* for which one is good */

/* Values of c->drain->rescues: when it is to be looked at; or when it was found (ms); or that it is known no more. */
#define WELL (UINT64_C(1) << 63)
#define GONE UINT64_MAX

/* ---------------------------------------------------------------- where the data of a file is */

/* Of a version: its file, as that was when it was made; its inode has that data_version. Not of what is put back or was given up, which change with the file, nor of another file that it was
 * renamed over. */
static int before(struct mgr_core *c, struct mgr_inode *in)
{
    const enum mgr_stmt st = MGR_ST_RESCUE_VERSION;
    uint64_t version = in->data_version;
    int rc = mgr_db_one(&c->db, RESCUE_VERSION, DBI(in->ino));
    bool was;

    if (rc <= 0)
        return rc ? rc : -ENOENT;
    was = mgr_col(&c->db, st, 0) != MGR_REPLACED && mgr_col(&c->db, st, 1) != MGR_REMAINS && mgr_col(&c->db, st, 1) != MGR_RETURNING && mgr_col(&c->db, st, 1) != MGR_NEXT;
    mgr_db_reset(&c->db, st);
    rc = was ? mgr_inode_get(c, in->parent, in) : -ENOENT;
    in->data_version = version;
    return rc;
}

int mgr_rescue_copy(struct mgr_core *c, const struct mgr_inode *in, uint64_t keep, struct mgr_copy *p)
{
    struct mgr_inode of = *in;
    uint64_t avoid = 0;
    bool gone;
    int rc = in->flags & MGR_SHADOW ? before(c, &of) : 0;

    p->tfile = 0;
    p->of = of.ino;
    for (unsigned i = 0; i < 2 && !rc && (of.flags & MGR_DRAINS); i++) {
        rc = mgr_drained_copy(c, &of, keep, avoid, &p->tfile);
        if (rc || !p->tfile || p->tfile == avoid)
            break;
        rc = mgr_tfile_get(c, p->tfile, &p->file, &gone);
        if (!rc && !gone && !mgr_drain_renames_over(c, p->file))
            return 0;
        avoid = p->tfile;
        keep = 0;
    }
    p->tfile = 0;
    return rc == -ENOENT ? 0 : rc;
}

/* Where the chunk is, off in a copy of a file that has all of it side by side. */
static int find(struct mgr_core *c, const struct mgr_chunk *ch, struct mgr_copy *p, uint64_t *off)
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
        rc = rc ? rc : mgr_rescue_copy(c, &in, 0, p);
        *off = at[i].win * in.chunk_size + at[i].off;
        rc = rc == -ENOENT ? 0 : rc;
    }
    return rc;
}

int mgr_rescue_turn(struct mgr_core *c, const struct mgr_chunk *ch, const struct mgr_copy *p, uint64_t off, enum mgr_bad how, const char *reason)
{
    char line[400];
    int rc = mgr_ext_put(c, ch->id, p->tfile, off);

    if (!rc && ch->bnf)
        rc = mgr_chunk_place(c, ch, 0, 0);
    snprintf(line, sizeof line, "%s; its copy in the target %s is looked at", reason, p->file->root);
    rc = rc ? rc : mgr_damage_chunk(c, ch->id, ch->bnf, how, line);
    if (!rc && mgr_idmap_put(&c->drain->rescues, p->tfile, 0))
        return mgr_doom(c, -ENOMEM);
    c->drain->dirty = true;
    return rc;
}

int mgr_rescue_chunk(struct mgr_core *c, const struct mgr_chunk *ch, enum mgr_bad bad, const char *reason)
{
    struct mgr_copy p = {0};
    uint64_t off = 0;
    int rc = ch->data ? 0 : find(c, ch, &p, &off);

    if (rc || !p.tfile)
        return rc;
    rc = mgr_rescue_turn(c, ch, &p, off, bad == MGR_BAD_READ && ch->bnf ? MGR_BAD_WRONG : MGR_BAD_LOOK, reason);
    return rc ? rc : 1;
}

int mgr_rescue(struct mgr_core *c, const struct mgr_chunk *ch, enum mgr_bad bad, const char *reason)
{
    const char *root = NULL;
    char line[400];
    int rc = 0;

    if (!FP_BUG("mgr-forgets-what-a-target-has")) {
        rc = mgr_rescue_chunk(c, ch, bad, reason);
        rc = rc ? rc : mgr_rescue_wins(c, ch, &root);
    }
    if (rc)
        return rc;
    if (root)
        snprintf(line, sizeof line, "%.200s; the copy in the target %.150s is looked at", reason, root);
    rc = mgr_damage_chunk(c, ch->id, ch->bnf, bad, root ? line : reason);
    return rc ? rc : root != NULL;
}

int mgr_rescue_in(struct mgr_core *c, const struct mgr_chunk *ch, uint64_t tfile, uint64_t off, Fp__ExtFile *file, const char *reason)
{
    const struct mgr_copy p = {.tfile = tfile, .file = file};

    return mgr_rescue_turn(c, ch, &p, off, MGR_BAD_WRONG, reason);
}

/* ---------------------------------------------------------------- looking at copies */

int mgr_rescue_look(struct mgr_core *c, uint64_t tfile)
{
    c->drain->dirty = true;
    return mgr_idmap_get(&c->drain->rescues, tfile, NULL) ? 0 : mgr_idmap_put(&c->drain->rescues, tfile, 0) ? mgr_doom(c, -ENOMEM) : 0;
}

int mgr_rescue_load(struct mgr_core *c)
{
    const enum mgr_stmt st = MGR_ST_RESCUE_LOOKS;
    int rc;

    mgr_idmap_fini(&c->drain->rescues);
    c->drain->rescue_pos = 0;
    memset(c->drain->seeks, 0, sizeof c->drain->seeks); /* what the group that failed had found of them is not known any more */
    for (rc = c->bad_chunks ? mgr_db_one(&c->db, RESCUE_LOOKS) : 0; rc > 0; rc = mgr_db_step(&c->db, st))
        if (mgr_idmap_put(&c->drain->rescues, (uint64_t)mgr_col(&c->db, st, 0), 0)) {
            mgr_db_reset(&c->db, st);
            return -ENOMEM;
        }
    return rc ? rc : mgr_rescue_win_load(c);
}

bool mgr_rescue_wants(const struct mgr_core *c, uint64_t tfile)
{
    uint64_t val;

    return mgr_idmap_get(&c->drain->rescues, tfile, &val) && val < WELL;
}

/* Can nobody take its place late? Else it is looked at again when that is so. */
static int stays(struct mgr_core *c, uint64_t tfile, bool *out)
{
    const struct mgr_target *t;
    Fp__ExtFile *x;
    bool gone;
    int rc = mgr_tfile_get(c, tfile, &x, &gone);

    t = rc ? NULL : mgr_target_find(c, x->target);
    *out = t && !gone && mgr_task_may_rename(c, t);
    return rc == -ENOENT ? 0 : rc;
}

int mgr_rescue_found(struct mgr_core *c, uint64_t tfile)
{
    bool is = false;
    int rc = mgr_rescue_wants(c, tfile) ? stays(c, tfile, &is) : 0;

    if (rc || !is)
        return rc;
    c->drain->dirty = true;
    return mgr_idmap_put(&c->drain->rescues, tfile, WELL | c->now.ms) ? mgr_doom(c, -ENOMEM) : 0;
}

int mgr_rescue_over(struct mgr_core *c, uint64_t tfile)
{
    int rc = mgr_rescue_win_any(c, tfile);

    if (rc <= 0) {
        mgr_idmap_del(&c->drain->rescues, tfile);
        return rc;
    }
    c->drain->dirty = true;
    return mgr_idmap_put(&c->drain->rescues, tfile, GONE) ? mgr_doom(c, -ENOMEM) : 0; /* windows are to be had from others */
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

/* Somebody is to look at it. */
static int look_at(struct mgr_core *c, uint64_t tfile)
{
    Fp__ExtFile *x;
    bool gone;
    int rc = mgr_tfile_get(c, tfile, &x, &gone);

    if (rc == -ENOENT)
        return mgr_rescue_over(c, tfile);
    if (!rc && !mgr_look_has_room(c, x->target, OF_TARGET))
        return 0;
    rc = rc ? rc : mgr_needs(c, x->target);
    rc = rc ? rc : mgr_look(c, tfile, 0);
    if (rc > 0)
        rc = mgr_idmap_put(&c->drain->rescues, tfile, c->now.ms + AGAIN_MS) ? mgr_doom(c, -ENOMEM) : 0;
    return rc;
}

/* It was found, or is known no more: some of what waits for that. */
static int go_on(struct mgr_core *c, uint64_t tfile, uint64_t val)
{
    bool well = val != GONE, is = true, more = false, again = false;
    int rc = well ? stays(c, tfile, &is) : 0;

    if (rc)
        return rc;
    if (!is || (well && c->now.ms - (val & ~WELL) > LOOKED_MS)) /* since then it may have become another */
        return mgr_idmap_put(&c->drain->rescues, tfile, 0) ? mgr_doom(c, -ENOMEM) : 0;
    rc = well ? settle(c, tfile, &more) : 0;
    if (!rc && !more)
        rc = mgr_rescue_win_settle(c, tfile, well, &more, &again);
    if (!rc && !more && !again) { /* some may have been noted meanwhile */
        rc = mgr_rescue_win_any(c, tfile);
        more = rc > 0;
    }
    if (rc < 0)
        return rc;
    if (again)
        return mgr_idmap_put(&c->drain->rescues, tfile, well ? c->now.ms + AGAIN_MS : 0) ? mgr_doom(c, -ENOMEM) : 0;
    if (!more)
        mgr_idmap_del(&c->drain->rescues, tfile);
    c->busy |= more;
    c->drain->dirty |= more;
    return 0;
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
        if (val >= WELL || val <= c->now.ms) {
            due[n].tfile = tfile;
            due[n++].val = val;
        }
    }
    for (size_t i = 0; i < n && !rc; i++)
        rc = due[i].val >= WELL ? go_on(c, due[i].tfile, due[i].val) : look_at(c, due[i].tfile);
    return rc;
}
