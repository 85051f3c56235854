/* Windows that have lost some of their data here, and are to be had as a whole from a target.
 *
 * What is coded, or of which a file has a part, can't be had by itself from the file's copy; the window can (extwin.c). But a window that has become external stays so, also if the
 * benefactor comes back with what it had: its chunks have gone. So that is not done before somebody has looked at the copy, and has found it as it was and marked it as needed:
 *
 *     lost                      bad_chunk, as if there were no copy; a row of rescue_win says from which file of a target the window is to be had
 *     … the file is well        the window is one external chunk; a chunk that nobody else names goes, and so does its row of bad_chunk
 *     … it is not               the row is for the next copy, or goes: it is lost
 *     … the chunk is back       the row goes
 *
 * Who reads it meanwhile is told in the map that it is looked for (SliceMapReply.rescuing), and asks again. A row is there only if the window can be had: all of it is written, and its
 * sum was told; nothing is renamed over what has the name of its copy (mgr_ext_only_at). Rows outlast a restart of the manager, so what waits for a target that is away is looked at when that comes back.
 *
 * Of versions that are kept (guards, and what waits for a level) the copy is that of the file, of the data_version that they were.
 *
 * Rejected: to make the window external at once, as a chunk (what only looked lost would be given up for a copy that may not be there); an answer to the reader with an external
 * chunk that is in no table (who writes to it, clones or folds it would name it).
 *
 * Called by the core's thread, in a group. */
#include "manager/rescue.h"

#include <errno.h>
#include <string.h>

#include "manager/version.h"

#define WINS_MAX  1024u  /* of one chunk that very many share: who reads another one finds it */
#define WINS_STEP 128u   /* that one group replaces … */
#define ROWS_STEP 16384u /* … or looks at so many slices of */

int mgr_rescue_win_load(struct mgr_core *c)
{
    const enum mgr_stmt st = MGR_ST_RESCUE_WIN_FILES;
    int rc;

    c->drain->rescue_wins = false;
    for (rc = mgr_db_one(&c->db, RESCUE_WIN_FILES); rc > 0; rc = mgr_db_step(&c->db, st)) {
        c->drain->rescue_wins = true;
        if (mgr_idmap_put(&c->drain->rescues, (uint64_t)mgr_col(&c->db, st, 0), 0)) {
            mgr_db_reset(&c->db, st);
            return -ENOMEM;
        }
    }
    return rc;
}

static int is_any(struct mgr_core *c, enum mgr_stmt st, int rc)
{
    mgr_db_reset(&c->db, st);
    return rc;
}

int mgr_rescue_win_any(struct mgr_core *c, uint64_t tfile)
{
    return c->drain->rescue_wins ? is_any(c, MGR_ST_RESCUE_WIN_OF, mgr_db_one(&c->db, RESCUE_WIN_OF, DBI(tfile), DBI(1))) : 0;
}

int mgr_rescue_win_waits(struct mgr_core *c, uint64_t ino, uint64_t win, uint64_t end)
{
    return c->drain->rescue_wins ? is_any(c, MGR_ST_RESCUE_WIN_AT, mgr_db_one(&c->db, RESCUE_WIN_AT, DBI(ino), DBI(win), DBI(end))) : 0;
}

int mgr_rescue_win_only_at(struct mgr_core *c, uint32_t target, ProtobufCBinaryData path, uint64_t ino)
{
    return c->drain->rescue_wins ? is_any(c, MGR_ST_RESCUE_WIN_ONLY_AT, mgr_db_one(&c->db, RESCUE_WIN_ONLY_AT, DBI(target), DBB(path.data, path.len), DBI(ino))) : 0;
}

int mgr_rescue_win_forget(struct mgr_core *c, uint64_t ino)
{
    return mgr_db_exec(&c->db, RESCUE_WIN_FORGET, DBI(ino));
}

/* ---------------------------------------------------------------- what a window has */

struct bad {
    uint64_t chunk;
    enum mgr_bad why;
};

struct facts {
    uint64_t covered;
    uint32_t rows;
    bool away;       /* some of it is */
    struct bad *bad; /* chunks that are lost, in memory of the group; some more than once */
    size_t nbad;
};

static int look_at(struct mgr_core *c, uint64_t ino, uint64_t win, struct facts *f)
{
    const enum mgr_stmt st = MGR_ST_RESCUE_WIN_HAS;
    size_t cap = 0;
    int rc;

    *f = (struct facts){0};
    for (rc = mgr_db_one(&c->db, RESCUE_WIN_HAS, DBI(ino), DBI(win)); rc > 0; rc = mgr_db_step(&c->db, st), f->rows++) {
        f->covered += (uint64_t)mgr_col(&c->db, st, 0);
        f->away |= mgr_rescue_is_away(c, mgr_bnf_find(c, (uint32_t)mgr_col(&c->db, st, 2)), MGR_RESCUE_AWAY_WIN_MS);
        if (mgr_col(&c->db, st, 3) < 0 || mgr_col(&c->db, st, 3) == MGR_BAD_LOOK)
            continue;
        f->bad = mgr_arena_grow(&c->arena, f->bad, f->nbad, &cap, sizeof *f->bad);
        if (!f->bad) {
            mgr_db_reset(&c->db, st);
            return mgr_doom(c, -ENOMEM);
        }
        f->bad[f->nbad++] = (struct bad){(uint64_t)mgr_col(&c->db, st, 1), (enum mgr_bad)mgr_col(&c->db, st, 3)};
    }
    mgr_db_reset(&c->db, st);
    return rc < 0 ? rc : 0;
}

/* Of what the copy has of it; 0: it can't be had. */
static int sum_of(struct mgr_core *c, const struct mgr_inode *in, uint64_t win, const struct mgr_copy *p, uint64_t covered, uint64_t *sum)
{
    uint32_t len = mgr_extwin_len(in, win);

    *sum = 0;
    return len && covered == len ? mgr_extwin_sum(c, p->of, p->tfile, win, &c->drain->rescue_sums, sum) : 0;
}

/* ---------------------------------------------------------------- noting */

int mgr_rescue_win(struct mgr_core *c, const struct mgr_inode *in, uint64_t win, const struct mgr_copy *p)
{
    struct facts f;
    uint64_t sum;
    int rc = mgr_rescue_win_waits(c, in->ino, win, win + 1);

    if (rc)
        return rc;
    rc = look_at(c, in->ino, win, &f);
    rc = rc ? rc : sum_of(c, in, win, p, f.covered, &sum);
    if (rc || !sum)
        return rc;
    c->drain->rescue_wins = true;
    rc = mgr_db_exec(&c->db, RESCUE_WIN_PUT, DBI(in->ino), DBI(win), DBI(p->tfile));
    rc = rc ? rc : mgr_rescue_look(c, p->tfile);
    return rc ? rc : 1;
}

int mgr_rescue_wins(struct mgr_core *c, const struct mgr_chunk *ch, const char **root)
{
    const enum mgr_stmt st = MGR_ST_RESCUE_WINS;
    struct {
        uint64_t ino, win;
    } *at = mgr_arena_alloc(&c->arena, WINS_MAX * sizeof *at);
    struct mgr_inode in = {0};
    struct mgr_copy p = {0};
    size_t n = 0;
    int rc;

    *root = NULL;
    if (!at)
        return mgr_doom(c, -ENOMEM);
    for (rc = mgr_db_one(&c->db, RESCUE_WINS, DBI(ch->id), DBI(WINS_MAX)); rc > 0 && n < WINS_MAX; rc = mgr_db_step(&c->db, st), n++) {
        at[n].ino = (uint64_t)mgr_col(&c->db, st, 0);
        at[n].win = (uint64_t)mgr_col(&c->db, st, 1);
    }
    mgr_db_reset(&c->db, st);
    rc = rc < 0 ? rc : 0;
    for (size_t i = 0; i < n && rc >= 0; i++) {
        rc = 0;
        if (at[i].ino != in.ino) {
            rc = mgr_inode_get(c, at[i].ino, &in);
            rc = rc ? rc : mgr_rescue_copy(c, &in, 0, &p);
            p.tfile = rc ? 0 : p.tfile;
            rc = rc == -ENOENT ? 0 : rc;
        }
        rc = rc || !p.tfile ? rc : mgr_rescue_win(c, &in, at[i].win, &p);
        *root = rc > 0 ? p.file->root : *root;
    }
    return rc < 0 ? rc : 0;
}

/* ---------------------------------------------------------------- from a copy that was looked at */

static int drop(struct mgr_core *c, uint64_t ino, uint64_t win)
{
    return mgr_db_exec(&c->db, RESCUE_WIN_DROP, DBI(ino), DBI(win));
}

/* What is still bad of it says where, and why, anew; and is looked for where else it is named. */
static int say_again(struct mgr_core *c, const struct facts *f, const char *reason)
{
    struct mgr_chunk ch;
    int rc = 0;

    for (size_t i = 0; i < f->nbad && rc >= 0; i++) {
        if (i && f->bad[i].chunk == f->bad[i - 1].chunk)
            continue;
        rc = mgr_chunk_get(c, f->bad[i].chunk, &ch);
        rc = rc == -ENOENT ? 0 : rc ? rc : mgr_rescue(c, &ch, f->bad[i].why, reason);
    }
    return rc < 0 ? rc : 0;
}

/* It can't be had from where it should be. */
static int elsewhere(struct mgr_core *c, const struct mgr_inode *in, uint64_t win, const struct mgr_copy *p, const struct facts *f)
{
    int rc = drop(c, in->ino, win);

    rc = rc || !p->tfile ? rc : mgr_rescue_win(c, in, win, p);
    return rc ? (rc < 0 ? rc : 0) : say_again(c, f, "it was lost or damaged, and no target has a copy of it any more");
}

static int settle(struct mgr_core *c, uint64_t tfile, bool well, uint64_t ino, uint64_t win, struct facts *f, bool *again)
{
    struct mgr_inode in;
    struct mgr_copy p;
    uint64_t sum;
    int rc = mgr_inode_get(c, ino, &in);

    *f = (struct facts){0};
    if (rc)
        return rc == -ENOENT ? drop(c, ino, win) : rc;
    rc = look_at(c, ino, win, f);
    if (rc || (!f->nbad && !f->away))
        return rc ? rc : drop(c, ino, win); /* it is back, or overwritten */
    rc = mgr_rescue_copy(c, &in, tfile, &p);
    rc = rc ? rc : sum_of(c, &in, win, &p, f->covered, &sum);
    if (rc)
        return rc;
    if (p.tfile != tfile || !sum)
        return elsewhere(c, &in, win, &p, f);
    *again = !well || mgr_is_returning(c, in.flags & MGR_SHADOW ? in.parent : ino);
    if (*again)
        return 0;
    in.mapped += f->covered; /* the row of a version may not say all that it has yet */
    rc = mgr_extwin_put(c, &in, win, sum, tfile);
    rc = rc ? rc : drop(c, ino, win);
    return rc ? rc : say_again(c, f, "it was lost or damaged");
}

int mgr_rescue_win_settle(struct mgr_core *c, uint64_t tfile, bool well, bool *more, bool *again)
{
    const enum mgr_stmt st = MGR_ST_RESCUE_WIN_OF;
    struct {
        uint64_t ino, win;
    } at[WINS_STEP];
    struct facts f;
    uint64_t rows = 0;
    size_t n = 0, i = 0;
    int rc;

    *more = *again = false;
    for (rc = c->drain->rescue_wins ? mgr_db_one(&c->db, RESCUE_WIN_OF, DBI(tfile), DBI(WINS_STEP)) : 0; rc > 0 && n < WINS_STEP; rc = mgr_db_step(&c->db, st), n++) {
        at[n].ino = (uint64_t)mgr_col(&c->db, st, 0);
        at[n].win = (uint64_t)mgr_col(&c->db, st, 1);
    }
    mgr_db_reset(&c->db, st);
    rc = rc < 0 ? rc : 0;
    for (; i < n && !rc && !*again && rows < ROWS_STEP; i++) {
        rc = settle(c, tfile, well, at[i].ino, at[i].win, &f, again);
        rows += 1 + f.rows;
    }
    *more = i < n || n == WINS_STEP;
    return rc;
}
