/* What is on benefactors that are away, for who asks for a map; and files that are to be here, of which all that is lost, damaged or away is to be had from a target.
 *
 * A file that is to be brought here is looked through from its first window to its last, so many slices in each group (STEP), however large it is: what was looked at is not looked at
 * again. Where that is, is known for some files at a time (c->drain->seeks); others wait until one of these is done, or nobody has come for it for a while.
 *
 * Called by the core's thread, in a group. */
#include "manager/rescue.h"

#include <errno.h>
#include <string.h>

#define STEP     4096u  /* slices that one group looks at */
#define STALE_MS 10000u /* after which nobody is expected to go on with it */

/* ---------------------------------------------------------------- benefactors that are away */

bool mgr_rescue_is_away(const struct mgr_core *c, const struct mgr_bnf *b, uint64_t ms)
{
    uint64_t since = b && b->seen_ms > c->start.ms ? b->seen_ms : c->start.ms;

    return b && mgr_bnf_state(b) == FP__BNF_STATE__BNF_DOWN && c->now.ms - since >= ms;
}

bool mgr_rescue_any_away(const struct mgr_core *c)
{
    for (size_t i = 0; i < c->bnf_count; i++)
        if (mgr_rescue_is_away(c, c->bnfs[i], MGR_RESCUE_AWAY_MS))
            return true;
    return false;
}

/* One slice of what is asked for. */
static int map_slice(struct mgr_core *c, const struct mgr_inode *in, const struct mgr_copy *p, Fp__Slice *s)
{
    const struct mgr_bnf *b = s->bnf ? mgr_bnf_find(c, s->bnf) : NULL;
    struct mgr_chunk ch;
    int rc;

    if (!mgr_rescue_is_away(c, b, MGR_RESCUE_AWAY_MS))
        return 0;
    if (s->data_len || s->chunk_off || s->len != s->chunk_len) {
        rc = mgr_rescue_is_away(c, b, MGR_RESCUE_AWAY_WIN_MS) ? mgr_rescue_win(c, in, s->win, p) : 0;
        return rc < 0 ? rc : 0;
    }
    rc = mgr_chunk_get(c, s->chunk, &ch);
    rc = rc ? rc : mgr_rescue_turn(c, &ch, p, s->win * in->chunk_size + s->off, MGR_BAD_LOOK, "its benefactor is away");
    s->bnf = 0;
    return rc;
}

int mgr_rescue_map(struct mgr_core *c, const struct mgr_inode *in, uint64_t win, Fp__SliceMapReply *r)
{
    struct mgr_copy p = {0};
    int rc = in->flags & MGR_DRAINS && mgr_rescue_any_away(c) ? mgr_rescue_copy(c, in, 0, &p) : 0;

    for (size_t i = 0; p.tfile && i < r->n_slices && !rc; i++)
        rc = map_slice(c, in, &p, r->slices[i]);
    rc = rc ? rc : mgr_rescue_win_waits(c, in->ino, win, r->win_end);
    r->rescuing = rc > 0;
    return rc < 0 ? rc : 0;
}

/* ---------------------------------------------------------------- a file that is to be here */

/* The place where it goes on in a file. NULL: so many are looked through, others wait. */
static struct mgr_seek *seek_of(struct mgr_core *c, uint64_t ino)
{
    struct mgr_seek *unused = NULL;

    for (size_t i = 0; i < sizeof c->drain->seeks / sizeof c->drain->seeks[0]; i++) {
        struct mgr_seek *s = &c->drain->seeks[i];

        if (s->ino && c->now.ms - s->ms >= STALE_MS) /* the file may be another since */
            s->ino = 0;
        if (s->ino == ino)
            return s;
        if (!s->ino)
            unused = s;
    }
    if (unused)
        *unused = (struct mgr_seek){.ino = ino};
    return unused;
}

struct row {
    uint64_t win, chunk;
    enum mgr_bad why; /* LOOK: its benefactor is away */
};

/* What can't be read where it is, and is not said to be in a target, of up to STEP slices from s on. *end: these were the last ones. */
static int collect(struct mgr_core *c, struct mgr_seek *s, struct row *list, size_t *n, bool *end)
{
    const enum mgr_stmt st = MGR_ST_RESCUE_FILE;
    size_t seen = 0;
    int rc;

    *n = 0;
    for (rc = mgr_db_one(&c->db, RESCUE_FILE, DBI(s->ino), DBI(s->win), DBI(s->off), DBI(STEP)); rc > 0; rc = mgr_db_step(&c->db, st), seen++) {
        const struct mgr_bnf *b = mgr_bnf_find(c, (uint32_t)mgr_col(&c->db, st, 3));
        bool is_bad = mgr_col(&c->db, st, 4) >= 0 && mgr_col(&c->db, st, 4) != MGR_BAD_LOOK, is_ext = mgr_col(&c->db, st, 5) != 0;

        s->win = (uint64_t)mgr_col(&c->db, st, 0);
        s->off = (uint64_t)mgr_col(&c->db, st, 1) + 1;
        if (!is_ext && (is_bad || mgr_rescue_is_away(c, b, MGR_RESCUE_AWAY_MS)))
            list[(*n)++] = (struct row){s->win, (uint64_t)mgr_col(&c->db, st, 2), is_bad ? (enum mgr_bad)mgr_col(&c->db, st, 4) : MGR_BAD_LOOK};
    }
    mgr_db_reset(&c->db, st);
    *end = seen < STEP;
    return rc < 0 ? rc : 0;
}

static int slice(struct mgr_core *c, struct mgr_seek *s, const struct mgr_inode *in, const struct mgr_copy *p, const struct row *w)
{
    bool is_bad = w->why != MGR_BAD_LOOK;
    struct mgr_chunk ch;
    int rc = mgr_chunk_get(c, w->chunk, &ch);

    if (rc || (!ch.bnf && !is_bad)) /* it was in the list before */
        return rc == -ENOENT ? 0 : rc;
    rc = mgr_rescue_chunk(c, &ch, w->why, is_bad ? "it was lost or damaged" : "its benefactor is away");
    if (!rc && p->tfile)
        rc = mgr_rescue_win(c, in, w->win, p);
    if (!rc)
        s->why = is_bad ? "some of it is lost or damaged, and no target has a copy of it: see fpctl status"
                           : "some of it is on a benefactor that is away, and no target has a copy of it";
    return rc < 0 ? rc : 0;
}

int mgr_rescue_file(struct mgr_core *c, uint64_t ino, const char **why)
{
    struct row *list = mgr_arena_alloc(&c->arena, STEP * sizeof *list);
    struct mgr_inode in;
    struct mgr_copy p;
    struct mgr_seek *s;
    bool end = true;
    size_t n = 0;
    int rc;

    *why = NULL;
    if (!list)
        return mgr_doom(c, -ENOMEM);
    if (!c->bad_chunks && !mgr_rescue_any_away(c))
        return 0;
    rc = mgr_rescue_win_waits(c, ino, 0, INT64_MAX);
    if (rc)
        return rc < 0 ? rc : MGR_RESCUE_LOOKS;
    if (!(s = seek_of(c, ino)))
        return MGR_RESCUE_MORE;
    s->ms = c->now.ms;
    rc = mgr_inode_get(c, ino, &in);
    rc = rc ? rc : mgr_rescue_copy(c, &in, 0, &p);
    rc = rc ? rc : collect(c, s, list, &n, &end);
    for (size_t i = 0; i < n && !rc; i++)
        rc = slice(c, s, &in, &p, &list[i]);
    if (rc)
        return rc;
    if (!end)
        return MGR_RESCUE_MORE;
    *why = s->why;
    s->ino = 0;
    rc = *why ? 0 : mgr_rescue_win_waits(c, ino, 0, INT64_MAX);
    return rc > 0 ? MGR_RESCUE_LOOKS : rc;
}
