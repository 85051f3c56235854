/* Putting a version back: its windows and those of the file change places, a few in each group, and then size and time do. So nothing is copied, no reference counted, and
 * what is given up is itself a version afterwards (`remains`), which can be put back in the same way.
 *
 *     file   |a|x|c|y|   guard |b|  (window 1; it had three)    ->    file |a|b|c|   remains |x| |y|
 *
 * The cursor is in its row, so a manager that is started anew goes on. Until it is done the file is neither: who opens it, asks for its map or cuts it is told to ask again
 * (FP_EPUBLISHING, which mounts wait for), and commits are refused. The same as long as it will be put back, and only a session that was there before a restart of the manager
 * might have a word in it. Rejected: all in one group (seconds for a large file, in which nobody else is served).
 *
 * Called by the core's thread, in a group. */
#include <errno.h>

#include "fp/bug.h"
#include "fp/err.h"
#include "fp/log.h"
#include "manager/sets.h"
#include "manager/version.h"

struct swap {
    struct mgr_inode file, shadow;
    uint32_t rows;
};

static int move(struct mgr_core *c, uint64_t from, uint64_t to, uint64_t win, uint64_t *bytes, uint32_t *rows)
{
    const enum mgr_stmt st = MGR_ST_SLICE_MOVE;
    int rc;

    *bytes = 0;
    for (rc = mgr_db_one(&c->db, SLICE_MOVE, DBI(from), DBI(to), DBI(win)); rc > 0; rc = mgr_db_step(&c->db, st)) {
        *bytes += (uint64_t)mgr_col(&c->db, st, 0);
        ++*rows;
    }
    return rc;
}

/* By way of inode 0, which there is none of. */
static int swap_window(struct mgr_core *c, struct swap *w, uint64_t win)
{
    uint64_t given, taken, same;
    uint32_t more = 0;
    int rc = move(c, w->file.ino, 0, win, &given, &w->rows);

    rc = rc ? rc : move(c, w->shadow.ino, w->file.ino, win, &taken, &w->rows);
    rc = rc ? rc : move(c, 0, w->shadow.ino, win, &same, &more);
    if (rc)
        return rc;
    w->rows++;
    w->file.mapped += taken - given;
    w->shadow.mapped += given - taken;
    return 0;
}

/* 1: *win is the first window from `from` on in which version and file may differ; 0: there is none. */
static int next_window(struct mgr_core *c, const struct mgr_vfile *v, uint64_t from, uint64_t *win)
{
    enum mgr_stmt st = MGR_ST_VERSION_WIN_NEXT;
    bool delta = v->guard.kind == MGR_DELTA;
    int rc;

    if (delta) {
        rc = mgr_db_one(&c->db, VERSION_WIN_NEXT, DBI(v->guard.shadow), DBI(from));
        if (rc > 0 && mgr_col(&c->db, st, 0) < 0) { /* what the file has got beyond its old end */
            mgr_db_reset(&c->db, st);
            from = from > v->guard.wins ? from : v->guard.wins;
            st = MGR_ST_SLICE_WIN_NEXT;
            rc = mgr_db_one(&c->db, SLICE_WIN_NEXT, DBI(v->ino), DBI(v->ino), DBI(from));
        }
    } else {
        st = MGR_ST_SLICE_WIN_NEXT;
        rc = mgr_db_one(&c->db, SLICE_WIN_NEXT, DBI(v->ino), DBI(v->guard.shadow), DBI(from));
    }
    if (rc <= 0)
        return rc ? rc : 0;
    rc = mgr_col(&c->db, st, 0) >= 0;
    *win = (uint64_t)mgr_col(&c->db, st, 0);
    mgr_db_reset(&c->db, st);
    return rc;
}

static int step(struct mgr_core *c, struct mgr_vfile *v, struct swap *w, bool *done)
{
    uint64_t win;
    int rc = 1;

    while (rc > 0 && w->rows < MGR_RECLAIM_STEP) {
        rc = next_window(c, v, v->guard.cursor, &win);
        if (rc <= 0)
            break;
        rc = swap_window(c, w, win);
        if (!rc && v->guard.kind == MGR_DELTA)
            rc = mgr_db_exec(&c->db, VERSION_WIN_PUT, DBI(v->guard.shadow), DBI(win));
        v->guard.cursor = win + 1;
        rc = rc ? rc : 1;
    }
    *done = rc == 0;
    return rc < 0 ? rc : 0;
}

/* The version keeps the place in chunks of its own size, and the file takes that, too: after a cut to 0 it may have another one. */
/* asked: somebody wants the file as it was. What was lost of that, before it was rewritten, is lost still. */
static void swap_attrs(const struct mgr_core *c, struct swap *w, bool asked)
{
    struct mgr_inode was = w->file;

    w->file.flags = (was.flags & ~(asked ? MGR_LOST_CLOSE | MGR_UNSURE : 0u)) | (w->shadow.flags & MGR_TORN_MARKS);
    w->shadow.flags = MGR_SHADOW | (was.flags & MGR_TORN_MARKS);
    w->file.size = w->shadow.size;
    w->file.mtime = w->shadow.mtime;
    w->file.chunk_size = w->shadow.chunk_size;
    w->file.stripe = w->shadow.stripe;
    w->file.ctime = c->now.ns;
    w->file.data_version++;
    w->shadow.size = was.size;
    w->shadow.mtime = was.mtime;
    w->shadow.chunk_size = was.chunk_size;
    w->shadow.stripe = was.stripe;
}

/* What is given up is another version than what is put back: who asks for that again, because he was not answered, must not get this. */
static int renumber(struct mgr_core *c, struct mgr_vfile *v, const struct mgr_inode *file)
{
    uint64_t was = v->guard.n;

    v->guard.n = mgr_version_number(v, file);
    return mgr_db_exec(&c->db, VERSION_RENUMBER, DBI(v->ino), DBI(was), DBI(v->guard.n));
}

/* Not before the COMMIT: a group that fails has put nothing back, and it is tried again. */
static int note(struct mgr_core *c, const struct mgr_vfile *v)
{
    struct mgr_put_back *n = mgr_arena_zalloc(&c->arena, sizeof *n);

    if (!n)
        return mgr_doom(c, -ENOMEM);
    *n = (struct mgr_put_back){.next = c->versions->put_back, .path = mgr_path(c, v->ino), .ino = v->ino, .asked = v->asked};
    c->versions->put_back = n;
    return 0;
}

void mgr_returns_say(struct mgr_core *c, bool committed)
{
    for (const struct mgr_put_back *n = c->versions->put_back; n && committed; n = n->next) {
        int len = (int)n->path.len;
        const char *path = len ? (const char *)n->path.data : "";

        if (n->asked)
            FP_INFO("%.*s (inode %llu): put back, as asked for", len, path, (unsigned long long)n->ino);
        else
            FP_WARN("%.*s (inode %llu): who rewrote it did not come to an end: it is again what it was before", len, path, (unsigned long long)n->ino);
    }
    c->versions->put_back = NULL;
}

static int finish(struct mgr_core *c, struct mgr_vfile *v, struct swap *w)
{
    int rc = note(c, v);

    rc = rc ? rc : renumber(c, v, &w->file);
    swap_attrs(c, w, v->asked);
    c->versions->returning--;
    v->guard.state = MGR_REMAINS;
    v->guard.cursor = 0;
    v->remains = v->guard;
    v->guard = (struct mgr_version){0};
    v->asked = false;
    rc = rc ? rc : mgr_sets_changed(c, &w->file, (int64_t)(w->file.size - w->shadow.size));
    mgr_torn_joined(c, &w->file);
    return rc ? rc : mgr_version_save(c, v, &v->remains);
}

int mgr_return_step(struct mgr_core *c, struct mgr_vfile *v)
{
    struct swap w = {0};
    bool done = false;
    int rc = mgr_inode_get(c, v->ino, &w.file);

    rc = rc ? rc : mgr_inode_get(c, v->guard.shadow, &w.shadow);
    if (rc)
        return rc;
    rc = step(c, v, &w, &done);
    if (!rc)
        rc = done ? finish(c, v, &w) : mgr_version_save(c, v, &v->guard);
    rc = rc ? rc : mgr_inode_put(c, &w.file);
    return rc ? rc : mgr_inode_put(c, &w.shadow);
}

/* What was given up before goes: it was relative to what is given up now. */
int mgr_return_begin(struct mgr_core *c, struct mgr_vfile *v)
{
    int rc = mgr_version_drop(c, v, &v->remains);

    if (rc)
        return rc;
    v->guard.state = MGR_RETURNING;
    v->guard.cursor = 0;
    c->versions->returning++;
    rc = mgr_version_save(c, v, &v->guard);
    return rc ? rc : mgr_return_step(c, v);
}

bool mgr_is_returning(struct mgr_core *c, uint64_t ino)
{
    const struct mgr_vfile *v = mgr_vfile_find(c, ino);

    return v && (v->guard.state == MGR_RETURNING || v->waits.state == MGR_NEXT || mgr_epoch_is_over(c, v));
}

/* ---------------------------------------------------------------- who comes back with what was refused */

int mgr_overtake(struct mgr_core *c, uint64_t session, uint64_t ino)
{
    int rc = mgr_db_exec(&c->db, OVERTAKEN_PUT, DBI(session), DBI(ino));

    if (!rc)
        c->versions->overtaken += (uint64_t)sqlite3_changes(c->db.sq);
    return rc;
}

int mgr_is_overtaken(struct mgr_core *c, const struct mgr_session *s, uint64_t ino)
{
    int rc;

    if (!c->versions->overtaken || !s || FP_BUG("mgr-takes-what-was-overtaken"))
        return 0;
    rc = mgr_db_one(&c->db, OVERTAKEN_HAS, DBI(s->id), DBI(ino));
    if (rc > 0)
        mgr_db_reset(&c->db, MGR_ST_OVERTAKEN_HAS);
    return rc > 0 ? FP_EOVERTAKEN : rc;
}

int mgr_overtaken_opened(struct mgr_core *c, const struct mgr_session *s, uint64_t ino)
{
    int rc;

    if (!c->versions->overtaken || !s || mgr_map_get(&s->opens, ino))
        return 0; /* what another program of that mount wrote before may still be there */
    rc = mgr_db_exec(&c->db, OVERTAKEN_DROP, DBI(s->id), DBI(ino));
    if (!rc)
        c->versions->overtaken -= (uint64_t)sqlite3_changes(c->db.sq);
    return rc;
}

int mgr_overtaken_ends(struct mgr_core *c, uint64_t session)
{
    int rc = c->versions->overtaken ? mgr_db_exec(&c->db, OVERTAKEN_END, DBI(session)) : 0;

    if (!rc && c->versions->overtaken)
        c->versions->overtaken -= (uint64_t)sqlite3_changes(c->db.sq);
    return rc;
}

int mgr_change_check(struct mgr_core *c, const struct mgr_session *s, uint64_t ino)
{
    return mgr_is_returning(c, ino) ? FP_EPUBLISHING : mgr_is_overtaken(c, s, ino);
}
