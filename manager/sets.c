/*
 * Checkpoint sets.
 *
 * A set is (series, step); a series is a directory and a template of names (stepname.c). Members are regular files with inode.ckpt = set. The manager recognises them,
 * since ranks of one step write through many mounts, and only it sees every name that is made, every commit and every close; it costs no message.
 *
 *   open --told, or quiet and no writer--> complete --a file is made, changed or removed--> open (gen + 1)
 *   open --a writer has died, and nobody writes--> torn --likewise--> open
 *
 * A set is complete only when no session has a file of it open for writing, and none of its files has a temporary name: so all that was closed is published, also with
 * --close behind, where the handle is released when it is. Without a word from anybody time completes it, ckpt_quiet_ms after its last change; or ckpt_late_ms, if it has fewer
 * files than the one before in its series: ranks may start late; policies may say other times, or that only a word does (setwords.c). It is a guess, so a change opens the set again, and what was done with it meanwhile (a drain) does not count.
 * One that has lost a file, and nothing was written in it since, is being removed: only a word completes it then. Which files make it torn is in their rows (settorn.c).
 * While a session that was there before a restart of the manager is not back, nothing becomes complete; if it never comes, sets that were open then are torn.
 *
 * Counts of open sets are in memory, by deltas, and made anew at start (open sets are few); rows are written when the state changes. A group that fails has all of it loaded anew.
 *
 * Rejected: to complete by names alone (the last rank); to keep counts in the row (an update of one row for every file of a set, by every mount).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fp/grown.h"
#include "fp/log.h"
#include "manager/drain.h"
#include "manager/level.h"
#include "manager/sets_int.h"

#define TICK_MS  200u
#define PAUSE_MS 100u /* the shortest that a policy may call quiet */

struct mgr_sets *mgr_sets_new(void)
{
    struct mgr_sets *t = calloc(1, sizeof *t);

    if (!t)
        return NULL;
    t->names = mgr_setnames_new();
    t->uniques = mgr_uniques_new();
    t->growth = mgr_growth_new();
    if (t->names && t->uniques && t->growth)
        return t;
    free(t->names);
    free(t->uniques);
    mgr_growth_free(t->growth);
    free(t);
    return NULL;
}

static void forget_all(struct mgr_sets *t)
{
    uint64_t id, val;
    size_t pos = 0;

    while (mgr_idmap_next(&t->open, &pos, &id, &val))
        free((struct mgr_set *)(uintptr_t)val);
    mgr_idmap_fini(&t->open);
    mgr_idmap_fini(&t->writing);
    mgr_idmap_fini(&t->anew);
    mgr_idmap_fini(&t->lost_size);
    mgr_set_caches_drop(t);
    mgr_growth_forget(t->growth);
    mgr_uniques_forget(t->uniques);
    t->nclosed = 0;
    t->look_at_all = false;
}

void mgr_sets_free(struct mgr_sets *t)
{
    if (!t)
        return;
    forget_all(t);
    mgr_dirpaths_free(t);
    mgr_uniques_free(t->uniques);
    mgr_growth_free(t->growth);
    free(t->closed);
    free(t->names);
    free(t);
}

/* -------------------------------------------------------------- rows */

void mgr_set_row(const struct mgr_core *c, enum mgr_stmt st, struct mgr_set *s)
{
    const struct mgr_db *db = &c->db;

    memset(s, 0, sizeof *s);
    s->id = (uint64_t)mgr_col(db, st, 0);
    s->series = (uint64_t)mgr_col(db, st, 1);
    s->step = (uint64_t)mgr_col(db, st, 2);
    s->top = (uint64_t)mgr_col(db, st, 3);
    s->gen = (uint64_t)mgr_col(db, st, 4);
    s->state = (enum mgr_set_state)mgr_col(db, st, 5);
    s->how = (uint32_t)mgr_col(db, st, 6);
    s->told = mgr_col(db, st, 7) != 0;
    s->began_ns = mgr_col(db, st, 8);
    s->complete_ns = mgr_col(db, st, 9);
    s->seq = (uint64_t)mgr_col(db, st, 10);
    s->files = (uint64_t)mgr_col(db, st, 11);
    s->bytes = (uint64_t)mgr_col(db, st, 12);
    s->files_before = (uint64_t)mgr_col(db, st, 13);
}

struct mgr_set *mgr_set_in_memory(const struct mgr_core *c, uint64_t id)
{
    uint64_t val;

    return mgr_idmap_get(&c->sets->open, id, &val) ? (struct mgr_set *)(uintptr_t)val : NULL;
}

int mgr_set_get(struct mgr_core *c, uint64_t id, struct mgr_set *out)
{
    const struct mgr_set *s = mgr_set_in_memory(c, id);
    int rc;

    if (s) {
        *out = *s;
        return 0;
    }
    rc = mgr_db_one(&c->db, SET_GET, DBI(id));
    if (rc <= 0)
        return rc ? rc : -ENOENT;
    mgr_set_row(c, MGR_ST_SET_GET, out);
    mgr_db_reset(&c->db, MGR_ST_SET_GET);
    return 0;
}

int mgr_set_put(struct mgr_core *c, const struct mgr_set *s)
{
    return mgr_db_exec(&c->db, SET_PUT, DBI(s->id), DBI(s->series), DBI(s->step), DBI(s->top), DBI(s->gen), DBI(s->state), DBI(s->told), DBI(s->complete_ns),
                       DBI(s->seq), DBI(s->files), DBI(s->bytes), DBI(s->files_before));
}

static int remember(struct mgr_core *c, const struct mgr_set *s, struct mgr_set **out)
{
    struct mgr_set *m = malloc(sizeof *m);

    if (!m || mgr_idmap_put(&c->sets->open, s->id, (uintptr_t)m)) {
        free(m);
        return mgr_doom(c, -ENOMEM);
    }
    *m = *s;
    m->changed_ms = c->now.ms;
    *out = m;
    return 0;
}

static void drop_from_memory(struct mgr_core *c, struct mgr_set *s)
{
    mgr_idmap_del(&c->sets->open, s->id);
    free(s);
}

int mgr_set_touch(struct mgr_core *c, uint64_t id, struct mgr_set **out)
{
    struct mgr_set s;
    bool torn;
    int rc;

    *out = mgr_set_in_memory(c, id);
    if (*out) {
        (*out)->changed_ms = c->now.ms;
        return 0;
    }
    rc = mgr_set_get(c, id, &s);
    if (rc || s.state == MGR_SET_FORGOTTEN)
        return rc;
    torn = s.state == MGR_SET_TORN;
    s.state = MGR_SET_OPEN;
    s.gen++;
    s.told = false;
    s.complete_ns = 0;
    rc = mgr_set_put(c, &s);
    rc = rc ? rc : remember(c, &s, out);
    if (!rc)
        (*out)->torn = torn;
    return rc;
}

static int series_of(struct mgr_core *c, uint64_t parent, const struct mgr_step *step, uint64_t *id)
{
    int rc = mgr_db_one(&c->db, SERIES_GET, DBI(parent), DBB(step->template, step->template_len));

    if (rc > 0) {
        *id = (uint64_t)mgr_col(&c->db, MGR_ST_SERIES_GET, 0);
        mgr_db_reset(&c->db, MGR_ST_SERIES_GET);
        return 0;
    }
    rc = rc ? rc : mgr_db_exec(&c->db, SERIES_NEW, DBI(parent), DBB(step->template, step->template_len));
    *id = (uint64_t)sqlite3_last_insert_rowid(c->db.sq);
    return rc;
}

static int find_set(struct mgr_core *c, uint64_t series, uint64_t step, uint64_t *id)
{
    int rc = mgr_db_one(&c->db, SET_FIND, DBI(series), DBI(step));

    *id = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_SET_FIND, 0) : 0;
    mgr_db_reset(&c->db, MGR_ST_SET_FIND);
    return rc < 0 ? rc : 0;
}

/* The directory of this name is another one than before (it was removed and made again), or has lost its temporary name. */
static int set_top(struct mgr_core *c, uint64_t id, uint64_t top, bool temporary)
{
    struct mgr_set *s, now;
    int rc = mgr_set_get(c, id, &now);

    if (rc || now.state == MGR_SET_FORGOTTEN || (now.top == top && now.state != MGR_SET_OPEN) || (now.files > 0 && temporary))
        return rc;
    rc = mgr_set_touch(c, id, &s);
    if (rc || !s)
        return rc;
    s->top_temporary = temporary;
    if (s->top == top)
        return 0;
    s->top = top;
    return mgr_set_put(c, s);
}

int mgr_set_make(struct mgr_core *c, uint64_t parent, const struct mgr_step *step, uint64_t top, uint64_t *id)
{
    struct mgr_set s = {.step = step->step, .top = top, .gen = 1, .state = MGR_SET_OPEN, .how = step->how, .began_ns = c->now.ns, .top_temporary = top && step->temporary};
    struct mgr_set *m;
    int rc = series_of(c, parent, step, &s.series);

    rc = rc ? rc : find_set(c, s.series, step->step, id);
    if (rc || *id)
        return rc || !top ? rc : set_top(c, *id, top, step->temporary);
    if (c->sets->count >= MGR_SETS_MAX)
        return 0;
    rc = mgr_db_exec(&c->db, SET_NEW, DBI(s.series), DBI(s.step), DBI(s.top), DBI(s.how), DBI(s.began_ns));
    *id = s.id = (uint64_t)sqlite3_last_insert_rowid(c->db.sq);
    c->sets->count++;
    return rc ? rc : remember(c, &s, &m);
}

/* -------------------------------------------------------------- members come and go */

/* Data of what was complete is replaced or goes: the next time it is another checkpoint, which is counted, and what was made of this one is void. Before,
 * only files and bytes were added: who was late. */
static int is_another(struct mgr_core *c, struct mgr_set *s)
{
    int rc;

    if (!s->seq)
        return 0;
    s->seq = 0;
    rc = mgr_set_put(c, s);
    return rc ? rc : mgr_auto_over(c, s->id, "its set is written anew");
}

static void take_out(struct mgr_core *c, struct mgr_set *s, const struct mgr_inode *in, bool temporary)
{
    s->files -= s->files > 0;
    s->bytes -= in->size < s->bytes ? in->size : s->bytes;
    s->temps -= temporary && s->temps > 0;
    if (mgr_idmap_get(&c->sets->writing, in->ino, NULL)) {
        mgr_idmap_del(&c->sets->writing, in->ino);
        s->writers -= s->writers > 0;
    }
}

static int leave(struct mgr_core *c, const struct mgr_inode *in, bool temporary)
{
    struct mgr_set *s;
    int rc = mgr_set_touch(c, in->ckpt, &s);

    if (rc == -ENOENT)
        return 0;
    if (rc || !s)
        return rc;
    rc = is_another(c, s);
    if (rc)
        return rc;
    take_out(c, s, in, temporary);
    s->shrunk = true;
    return 0;
}

int mgr_set_yield(struct mgr_core *c, struct mgr_inode *in, bool temporary)
{
    struct mgr_set *s;
    int rc = mgr_set_touch(c, in->ckpt, &s);

    if (!rc && s)
        take_out(c, s, in, temporary);
    in->ckpt = 0;
    return rc == -ENOENT ? 0 : rc;
}

static int join(struct mgr_core *c, const struct mgr_inode *in, bool temporary)
{
    struct mgr_set *s;
    int rc = mgr_set_touch(c, in->ckpt, &s);

    if (rc || !s)
        return rc;
    s->files++;
    s->shrunk = false;
    s->bytes += in->size;
    s->temps += temporary;
    mgr_torn_joined(c, in);
    return in->ino && mgr_map_get(&c->writers, in->ino) ? mgr_sets_opened(c, in) : 0;
}

int mgr_set_move(struct mgr_core *c, struct mgr_inode *in, uint64_t to, bool was_temporary, bool is_temporary)
{
    struct mgr_set *s;
    int rc = 0;

    if (in->ckpt == to && to) {
        rc = mgr_set_touch(c, to, &s);
        if (!rc && s) {
            s->temps = s->temps - (was_temporary && s->temps > 0) + is_temporary;
            s->shrunk = false;
        }
        return rc == -ENOENT ? 0 : rc;
    }
    if (in->ckpt)
        rc = leave(c, in, was_temporary);
    in->ckpt = to;
    return rc || !to ? rc : join(c, in, is_temporary);
}

int mgr_sets_say(struct mgr_core *c, uint64_t id, bool lost_too)
{
    struct mgr_set *s = NULL, now;
    int rc = mgr_set_get(c, id, &now);
    bool news = !rc && (now.state != MGR_SET_COMPLETE || !now.told);

    if (!rc && !news && lost_too)
        rc = mgr_torn_any(c, id, &news);
    rc = rc || !news ? rc : mgr_set_touch(c, id, &s);
    if (rc || !s)
        return rc;
    s->told = true;
    s->died = s->doubt = false; /* who says so knows */
    rc = mgr_torn_mend(c, id, lost_too);
    rc = rc ? rc : mgr_torn_any(c, id, &s->torn);
    return rc ? rc : mgr_set_put(c, s);
}

/* A marker that is written is complete when it is closed, as every file is, so the word of its name may be heard at once. */
static int hear_marker(struct mgr_core *c, uint64_t id, const ProtobufCBinaryData *name)
{
    bool yes;
    int rc = mgr_set_marks(c, id, name, &yes);

    return rc || !yes ? rc : mgr_sets_say(c, id, false);
}

int mgr_sets_made(struct mgr_core *c, struct mgr_inode *in, const struct mgr_inode *dir, const ProtobufCBinaryData *name)
{
    bool temporary = false;
    int rc;

    in->ckpt = 0;
    if (c->o.checkpoints_off || (!mgr_is(in, S_IFREG) && !mgr_is(in, S_IFDIR)) || in->nlink == 0)
        return 0;
    if (c->n.inodes >= c->o.inodes_max)
        return -ENOSPC; /* it will not be made */
    if (mgr_is(in, S_IFDIR))
        return mgr_set_dir_made(c, dir->ino, name, c->now.ns);
    rc = mgr_set_of(c, dir->ino, name, c->now.ns, &in->ckpt, &temporary);
    if (rc || !in->ckpt)
        return rc;
    rc = join(c, in, temporary);
    return rc ? rc : hear_marker(c, in->ckpt, name);
}

int mgr_sets_renamed(struct mgr_core *c, struct mgr_inode *in, const ProtobufCBinaryData *from, const struct mgr_inode *dir, const ProtobufCBinaryData *to)
{
    bool temporary = false;
    uint64_t id = 0;
    int rc = mgr_auto_touched(c, in);

    if (rc || c->o.checkpoints_off)
        return rc;
    if (mgr_is(in, S_IFDIR))
        return mgr_set_dir_renamed(c, in, dir->ino, to);
    if (!mgr_is(in, S_IFREG) || (!from && in->ckpt))
        return 0;
    rc = in->flags & MGR_CONVERTED ? mgr_result_set(c, in, dir->ino, to, &id) : mgr_set_of(c, dir->ino, to, in->btime, &id, &temporary);
    if (rc || (!id && !in->ckpt))
        return rc;
    temporary |= in->flags & MGR_CONVERTED && mgr_set_is_temporary(to->data, to->len);
    rc = mgr_set_move(c, in, id, from && mgr_set_is_temporary(from->data, from->len), temporary);
    rc = rc ? rc : hear_marker(c, id, to);
    mgr_torn_joined(c, in);
    return rc;
}

int mgr_sets_gone(struct mgr_core *c, struct mgr_inode *in, const ProtobufCBinaryData *name)
{
    return in->ckpt ? mgr_set_move(c, in, 0, mgr_set_is_temporary(name->data, name->len), false) : 0;
}

int mgr_sets_changed(struct mgr_core *c, struct mgr_inode *in, int64_t bytes)
{
    struct mgr_set *s;
    int rc = mgr_auto_touched(c, in);

    if (!rc && !in->ckpt)
        mgr_torn_written(c, in);
    rc = rc ? rc : in->ckpt ? mgr_set_touch(c, in->ckpt, &s) : -ENOENT;
    if (in->ckpt && (rc == -ENOENT || (!rc && !s))) /* forgotten */
        mgr_torn_written(c, in);
    if (rc == -ENOENT || (!rc && !s))
        return 0;
    if (rc)
        return rc;
    rc = bytes <= 0 ? is_another(c, s) : 0;
    if (rc)
        return rc;
    mgr_torn_written(c, in);
    s->shrunk = false;
    s->bytes = bytes < 0 && (uint64_t)-bytes > s->bytes ? 0 : s->bytes + (uint64_t)bytes;
    return 0;
}

/* -------------------------------------------------------------- writers */

int mgr_sets_opened(struct mgr_core *c, const struct mgr_inode *in)
{
    struct mgr_set *s;
    int rc;

    if (!in->ckpt)
        return mgr_map_get(&c->writers, in->ino) == 1 ? mgr_torn_opened(c, in) : 0;
    if (!mgr_map_get(&c->writers, in->ino) || mgr_idmap_get(&c->sets->writing, in->ino, NULL))
        return 0;
    rc = mgr_set_touch(c, in->ckpt, &s);
    if (rc == -ENOENT || (!rc && !s)) /* forgotten */
        return mgr_map_get(&c->writers, in->ino) == 1 ? mgr_torn_opened(c, in) : 0;
    if (rc)
        return rc;
    if (mgr_idmap_put(&c->sets->writing, in->ino, in->ckpt))
        return mgr_doom(c, -ENOMEM);
    s->writers++;
    return mgr_torn_opened(c, in);
}

void mgr_sets_closed(struct mgr_core *c, uint64_t ino)
{
    struct mgr_sets *t = c->sets;
    uint64_t *list;

    if (!t || !mgr_idmap_get(&t->writing, ino, NULL))
        return;
    list = fp_grown(t->closed, t->nclosed, &t->closed_cap, sizeof *list);
    if (!list) {
        t->look_at_all = true;
        return;
    }
    t->closed = list;
    t->closed[t->nclosed++] = ino;
}

void mgr_sets_look_at_all(struct mgr_core *c)
{
    if (c->sets)
        c->sets->look_at_all = true;
}

/* Is it still open for writing? */
static int look(struct mgr_core *c, uint64_t ino)
{
    struct mgr_set *s;
    uint64_t id;
    bool yes;
    int rc;

    if (mgr_map_get(&c->writers, ino) || !mgr_idmap_get(&c->sets->writing, ino, &id))
        return 0;
    mgr_idmap_del(&c->sets->writing, ino);
    mgr_idmap_del(&c->sets->anew, ino);
    s = mgr_set_in_memory(c, id);
    if (!s)
        return 0;
    s->writers -= s->writers > 0;
    s->changed_ms = c->now.ms;
    rc = s->told ? 0 : mgr_set_is_marked(c, id, ino, &yes);
    return rc || s->told || !yes ? rc : mgr_sets_say(c, id, false);
}

static int look_at_closed(struct mgr_core *c)
{
    struct mgr_sets *t = c->sets;
    bool all = t->look_at_all;
    uint64_t ino, id;
    size_t pos = 0;
    int rc = 0;

    t->look_at_all = false; /* set again where memory is short */
    while (all && !t->look_at_all && mgr_idmap_next(&t->writing, &pos, &ino, &id))
        if (!mgr_map_get(&c->writers, ino))
            mgr_sets_closed(c, ino);
    for (size_t i = 0; i < t->nclosed && !rc; i++)
        rc = look(c, t->closed[i]);
    t->nclosed = 0;
    return rc;
}

/* -------------------------------------------------------------- complete, or not */

int mgr_sets_forget(struct mgr_core *c, uint64_t id)
{
    struct mgr_set s;
    struct mgr_set *m = mgr_set_in_memory(c, id);
    int rc = mgr_set_get(c, id, &s);

    if (rc)
        return rc;
    s.state = MGR_SET_FORGOTTEN;
    if (m)
        drop_from_memory(c, m);
    mgr_growth_doubt(c->sets->growth);
    rc = mgr_set_put(c, &s);
    return rc ? rc : mgr_auto_over(c, id, "its set is none: fpctl checkpoint forget");
}

static int later_one(struct mgr_core *c, const struct mgr_set *s, bool *yes)
{
    int rc = mgr_db_one(&c->db, SET_LATER, DBI(s->series), DBI(s->step));

    *yes = rc > 0;
    mgr_db_reset(&c->db, MGR_ST_SET_LATER);
    return rc < 0 ? rc : 0;
}

static int last_of_series(struct mgr_core *c, uint64_t series, uint64_t *seq, uint64_t *files)
{
    int rc = mgr_db_one(&c->db, SERIES_LAST, DBI(series));

    *seq = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_SERIES_LAST, 0) : 0;
    *files = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_SERIES_LAST, 1) : 0;
    mgr_db_reset(&c->db, MGR_ST_SERIES_LAST);
    return rc < 0 ? rc : 0;
}

/* Time has something to say only if nobody is at work in it. */
static int is_complete(struct mgr_core *c, struct mgr_set *s, uint64_t files_before, bool *yes)
{
    uint64_t still_ms = c->now.ms - s->changed_ms;
    int rc;

    *yes = s->told;
    if (*yes || s->shrunk || still_ms < PAUSE_MS)
        return 0;
    rc = mgr_set_words(c, s);
    if (rc || s->words.told || still_ms < s->words.quiet_ms)
        return rc;
    *yes = s->files >= files_before || still_ms >= s->words.late_ms;
    return *yes ? 0 : later_one(c, s, yes);
}

static int complete(struct mgr_core *c, struct mgr_set *s, uint64_t seq)
{
    bool again = s->seq != 0;
    int rc = mgr_set_half(c, s);

    s->state = MGR_SET_COMPLETE;
    s->complete_ns = c->now.ns;
    s->seq = again ? s->seq : seq + 1;
    rc = rc ? rc : mgr_db_exec(&c->db, SERIES_DONE, DBI(s->series), DBI(again ? seq : s->seq), DBI(s->files));
    rc = rc ? rc : mgr_set_put(c, s);
    rc = rc ? rc : mgr_auto_complete(c, s, again);
    drop_from_memory(c, s);
    return rc;
}

static int drop(struct mgr_core *c, struct mgr_set *s)
{
    uint64_t series = s->series;
    int rc = mgr_db_exec(&c->db, SET_DROP, DBI(s->id));

    c->sets->count--;
    mgr_level_set_gone(c, s->id); /* its number may be used again */
    mgr_unique_set_gone(c, s->id);
    drop_from_memory(c, s);
    mgr_set_caches_drop(c->sets);
    rc = rc ? rc : mgr_db_exec(&c->db, SERIES_DROP, DBI(series));
    return rc ? rc : mgr_db_exec(&c->db, TAKEN_DROP, DBI(series));
}

int mgr_set_drop_empty(struct mgr_core *c, uint64_t id, bool *gone)
{
    struct mgr_set *s = mgr_set_in_memory(c, id);

    *gone = s && s->files == 0;
    return *gone ? drop(c, s) : 0;
}

static int tear(struct mgr_core *c, struct mgr_set *s)
{
    int rc;

    s->state = MGR_SET_TORN;
    rc = mgr_torn_set(c, s->id);
    rc = rc ? rc : mgr_set_put(c, s);
    rc = rc ? rc : mgr_auto_over(c, s->id, "its set is torn: a mount or a program that was writing a file of it is gone");
    FP_LOG_EVERY(1000, FP_LOG_WARN, "checkpoint set %llu (step %llu) is torn: a mount or a program that was writing a file of it is gone, or failed", (unsigned long long)s->id, (unsigned long long)s->step);
    drop_from_memory(c, s);
    return rc;
}

/* Of one that was torn, or may have been when the manager ended: *wait: until it is quiet, to know; *torn: files of it are. */
static int look_for_torn(struct mgr_core *c, struct mgr_set *s, bool *wait, bool *torn)
{
    int rc;

    *wait = c->now.ms - s->changed_ms < c->o.ckpt_quiet_ms;
    rc = *wait ? 0 : mgr_torn_any(c, s->id, torn);
    s->torn = *wait || *torn;
    return rc;
}

/* *gone: it is not in memory any more. */
static int decide(struct mgr_core *c, struct mgr_set *s, bool *gone)
{
    uint64_t seq, files_before;
    bool yes = false, wait = false, torn = s->died;
    int rc;

    *gone = false;
    if (s->writers || mgr_unsettled(c))
        return 0;
    if (s->files == 0) {
        *gone = c->now.ms - s->changed_ms >= c->o.ckpt_quiet_ms;
        return *gone ? drop(c, s) : 0;
    }
    rc = s->torn && !torn ? look_for_torn(c, s, &wait, &torn) : 0;
    *gone = !rc && torn;
    if (rc || wait || torn)
        return *gone ? tear(c, s) : rc;
    s->doubt = false; /* all who may have been writing are back or have ended */
    if (s->temps || s->top_temporary)
        return 0;
    rc = last_of_series(c, s->series, &seq, &files_before);
    rc = rc ? rc : is_complete(c, s, files_before, &yes);
    *gone = !rc && yes;
    return *gone ? complete(c, s, seq) : rc;
}

int mgr_set_settle(struct mgr_core *c, uint64_t id, int64_t last_ns)
{
    struct mgr_set *s = mgr_set_in_memory(c, id);
    int64_t ago_ms = (c->now.ns - last_ns) / 1000000;
    bool gone;

    if (!s)
        return 0;
    s->torn = true; /* perhaps */
    s->died |= last_ns < c->sets->lost_ns;
    s->changed_ms -= ago_ms < 0 ? 0 : (uint64_t)ago_ms < s->changed_ms ? (uint64_t)ago_ms : s->changed_ms;
    return decide(c, s, &gone);
}

int mgr_sets_tick(struct mgr_core *c)
{
    struct mgr_sets *t = c->sets;
    uint64_t id, val;
    size_t pos = 0;
    bool gone;
    int rc = 0;

    if (c->now.ms - t->tick_ms < TICK_MS)
        return 0;
    t->tick_ms = c->now.ms;
    rc = look_at_closed(c);
    while (!rc && mgr_idmap_next(&t->open, &pos, &id, &val)) {
        rc = decide(c, (struct mgr_set *)(uintptr_t)val, &gone);
        pos -= gone; /* another may have moved to its place */
    }
    return rc;
}

/* -------------------------------------------------------------- start */

static int count_temps(struct mgr_core *c, struct mgr_set *s)
{
    uint64_t dirs[256];
    size_t n = 0, len;
    int rc;

    for (rc = mgr_db_one(&c->db, MEMBER_DIRS, DBI(s->id)); rc > 0 && n < sizeof dirs / sizeof *dirs; rc = mgr_db_step(&c->db, MGR_ST_MEMBER_DIRS))
        dirs[n++] = (uint64_t)mgr_col(&c->db, MGR_ST_MEMBER_DIRS, 0);
    mgr_db_reset(&c->db, MGR_ST_MEMBER_DIRS);
    for (size_t i = 0; i < n && rc >= 0; i++) {
        for (rc = mgr_db_one(&c->db, MEMBER_NAMES, DBI(dirs[i]), DBI(s->id)); rc > 0; rc = mgr_db_step(&c->db, MGR_ST_MEMBER_NAMES)) {
            const void *name = mgr_col_blob(&c->db, MGR_ST_MEMBER_NAMES, 0, &len);

            s->temps += mgr_set_is_temporary(name, len);
        }
    }
    return rc < 0 ? rc : 0;
}

static int count_members(struct mgr_core *c, struct mgr_set *s)
{
    uint64_t as_complete = s->files; /* of a set that was, and is open again */
    struct mgr_inode top;
    size_t len;
    int rc = mgr_db_one(&c->db, MEMBER_SUMS, DBI(s->id));

    if (rc <= 0)
        return rc ? rc : -EIO;
    s->files = (uint64_t)mgr_col(&c->db, MGR_ST_MEMBER_SUMS, 0);
    s->bytes = (uint64_t)mgr_col(&c->db, MGR_ST_MEMBER_SUMS, 1);
    mgr_db_reset(&c->db, MGR_ST_MEMBER_SUMS);
    s->shrunk = s->files < as_complete;
    rc = count_temps(c, s);
    if (rc || !s->top)
        return rc;
    rc = mgr_inode_get(c, s->top, &top);
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    rc = mgr_db_one(&c->db, DIR_NAME, DBI(top.parent), DBI(s->top));
    if (rc > 0) {
        const void *name = mgr_col_blob(&c->db, MGR_ST_DIR_NAME, 0, &len);

        s->top_temporary = mgr_set_is_temporary(name, len);
    }
    mgr_db_reset(&c->db, MGR_ST_DIR_NAME);
    return rc < 0 ? rc : 0;
}

static int load_open(struct mgr_core *c)
{
    struct mgr_set s, *m;
    uint64_t id, val;
    size_t pos = 0;
    int rc;

    for (rc = mgr_db_one(&c->db, SET_OPEN_LIST); rc > 0; rc = mgr_db_step(&c->db, MGR_ST_SET_OPEN_LIST)) {
        mgr_set_row(c, MGR_ST_SET_OPEN_LIST, &s);
        s.doubt = mgr_unsettled(c);
        s.torn = true; /* perhaps */
        rc = remember(c, &s, &m);
        if (rc)
            break;
    }
    mgr_db_reset(&c->db, MGR_ST_SET_OPEN_LIST);
    while (!rc && mgr_idmap_next(&c->sets->open, &pos, &id, &val))
        rc = count_members(c, (struct mgr_set *)(uintptr_t)val);
    return rc;
}

int mgr_sets_load(struct mgr_core *c)
{
    struct mgr_inode in;
    uint64_t ino;
    size_t pos = 0;
    uint32_t n;
    int rc = mgr_db_one(&c->db, SET_COUNT);

    forget_all(c->sets);
    c->sets->count = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_SET_COUNT, 0) : 0;
    mgr_db_reset(&c->db, MGR_ST_SET_COUNT);
    rc = rc < 0 ? rc : load_open(c);
    while (!rc && mgr_map_next(&c->writers, &pos, &ino, &n)) {
        rc = mgr_inode_get(c, ino, &in);
        rc = rc == -ENOENT ? 0 : rc ? rc : mgr_sets_opened(c, &in);
    }
    mgr_idmap_fini(&c->sets->anew); /* who of them was there when it was torn is not known any more */
    return rc;
}
