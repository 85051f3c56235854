/*
 * What is asked and told about checkpoint sets: MSG_CTL_SETS, MSG_CTL_SET_SAY. Loop thread.
 *
 * A list is paged by the last set's number: its series and step say where to go on, and a set that is gone meanwhile ends the list early, which who asks sees as its end.
 *
 * A set of files side by side is shown by the path of a file of it, which ends at the step if there are several: it is what a restart is given.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "fp/ctlwire.h"
#include "life.pb-c.h"
#include "manager/drain.h"
#include "manager/level.h"
#include "manager/sets_int.h"

#define SETS_MAX  1024u /* of one answer */
#define FILES_MAX 4096u
#define ROWS_MAX  65536u /* looked at for one answer */
#define DEPTH_MAX 4096u
#define TEXT_MAX  (1u << 20) /* what is said of conversions in one answer: about so much */

int mgr_set_is_below(struct mgr_core *c, uint64_t dir, uint64_t top, bool *yes)
{
    struct mgr_inode in;
    int rc = 0;

    *yes = top == MGR_ROOT_INO || dir == top;
    for (unsigned depth = 0; !*yes && !rc && dir != MGR_ROOT_INO && depth < DEPTH_MAX; depth++) {
        rc = mgr_inode_get(c, dir, &in);
        dir = rc ? 0 : in.parent;
        *yes = dir == top;
    }
    return rc == -ENOENT ? 0 : rc;
}

int mgr_set_member(struct mgr_core *c, uint64_t set, uint64_t after, struct mgr_inode *in)
{
    int rc = mgr_db_one(&c->db, MEMBER_LIST, DBI(set), DBI(after), DBI(1));

    if (rc > 0)
        mgr_inode_row(c, MGR_ST_MEMBER_LIST, 0, in);
    mgr_db_reset(&c->db, MGR_ST_MEMBER_LIST);
    return rc < 0 ? rc : rc ? 0 : -ENOENT;
}

/* Up to and with the step: as a pattern says, if one has made the set, and is there still; or as its series does. */
static int cut_at_step(struct mgr_core *c, const struct mgr_set *s, uint64_t dir, ProtobufCBinaryData *path)
{
    uint8_t *slash = path->len ? memrchr(path->data, '/', path->len) : NULL;
    ProtobufCBinaryData name = {.data = slash ? slash + 1 : path->data};
    struct mgr_step step;
    bool yes = false;
    int rc = 0;

    name.len = path->len - (size_t)(name.data - path->data);
    if (s->how == MGR_STEP_PATTERN)
        rc = mgr_pattern_of(c, dir, &name, &step, &yes);
    else if (s->how == MGR_STEP_GROWTH)
        rc = mgr_growth_step(c, dir, &name, s->series, &step, &yes);
    if (!rc && ((yes && step.above == 0) || mgr_step_word((const char *)name.data, name.len, false, &step)))
        path->len = (size_t)(name.data - path->data) + step.off + step.len;
    return rc;
}

int mgr_set_path(struct mgr_core *c, const struct mgr_set *s, ProtobufCBinaryData *path)
{
    struct mgr_inode in;
    int rc;

    if (s->top) {
        *path = mgr_path(c, s->top);
        return 0;
    }
    rc = mgr_set_member(c, s->id, 0, &in);
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    if (s->how == MGR_STEP_CONVERTED && s->files > 1)
        return mgr_result_path(c, &in, path);
    *path = mgr_path(c, in.ino);
    return s->files > 1 && path->len ? cut_at_step(c, s, in.parent, path) : 0;
}

static int series_path(struct mgr_core *c, uint64_t parent, const ProtobufCBinaryData *template, ProtobufCBinaryData *out)
{
    ProtobufCBinaryData dir = mgr_path(c, parent);
    size_t slash = dir.len > 0 && dir.data[dir.len - 1] != '/';

    out->len = dir.len + slash + template->len;
    out->data = mgr_arena_alloc(&c->arena, out->len + 1);
    if (!out->data)
        return mgr_doom(c, -ENOMEM);
    if (dir.len)
        memcpy(out->data, dir.data, dir.len);
    if (slash)
        out->data[dir.len] = '/';
    memcpy(out->data + dir.len + slash, template->data, template->len);
    return 0;
}

static int damaged(struct mgr_core *c, uint64_t set, bool *yes)
{
    int rc = c->damages ? mgr_db_one(&c->db, SET_DAMAGED, DBI(set)) : 0;

    *yes = rc > 0;
    if (c->damages)
        mgr_db_reset(&c->db, MGR_ST_SET_DAMAGED);
    return rc < 0 ? rc : 0;
}

static int put_level(struct mgr_core *c, const struct mgr_set *s, uint32_t *look, bool *bad, Fp__CkptSet *m)
{
    struct mgr_level l;
    int rc = mgr_level_set(c, s, false, look, &l);

    rc = rc ? rc : damaged(c, s->id, bad); /* of an open one too */
    m->level = *bad ? FP__LEVEL__LEVEL_NONE : l.level;
    m->drained_files = l.drained;
    m->verified_files = l.verified;
    return rc;
}

static int say_half(struct mgr_core *c, Fp__CkptSet *m)
{
    char line[120];

    snprintf(line, sizeof line, "half of one? those before have %llu files, and nobody said that it is complete", (unsigned long long)m->files_before);
    m->why = mgr_arena_text(&c->arena, line);
    return m->why ? 0 : mgr_doom(c, -ENOMEM);
}

/* What keeps it from being complete is a name, and whoever waits wants to know which. */
static int say_temporary(struct mgr_core *c, const struct mgr_set *s, Fp__CkptSet *m)
{
    char line[120];

    if (s->temps)
        snprintf(line, sizeof line, "%u of its files ha%s a temporary name still, as x.tmp or x.part: rename or remove %s", s->temps, s->temps == 1 ? "s" : "ve", s->temps == 1 ? "it" : "them");
    else
        snprintf(line, sizeof line, "its directory has a temporary name still: rename it");
    m->why = mgr_arena_text(&c->arena, line);
    return m->why ? 0 : mgr_doom(c, -ENOMEM);
}

/* Which of its files it is, that who has to write it again need not look for it. */
static int say_torn(struct mgr_core *c, const struct mgr_set *s, bool damaged_too, Fp__CkptSet *m)
{
    char line[320];
    uint64_t first = 0;
    bool lost = false;
    int rc = mgr_torn_files(c, s->id, FP_TORN_COUNTED_MAX, &first, &lost, &m->torn_files);

    m->why = lost ? (char *)"what was closed of it is lost, or may be (--close behind): write it again, or say that the set is whole (fpctl checkpoint commit --force)"
                  : (char *)"a mount or a program that was writing a file of it is gone, or could not store it: write it again, or say that it is whole (fpctl checkpoint commit)";
    if (!rc && first)
        m->torn_path = mgr_path(c, first);
    if (rc || !damaged_too)
        return rc;
    snprintf(line, sizeof line, "%s; data of a file of it is lost or damaged, too: see fpctl status", m->why);
    m->why = mgr_arena_text(&c->arena, line);
    return m->why ? 0 : mgr_doom(c, -ENOMEM);
}

static int describe(struct mgr_core *c, const struct mgr_set *s, uint32_t *look, Fp__CkptSet *m)
{
    bool known = false, bad = false;
    int rc = mgr_set_path(c, s, &m->path);

    rc = rc ? rc : put_level(c, s, look, &bad, m);
    rc = rc ? rc : mgr_progress_set(c, s, look, m);
    rc = rc ? rc : mgr_set_convert(c, s, &m->convert);
    rc = rc ? rc : mgr_set_unique(c, s, look, &m->unique_bytes, &known);
    m->unique_known = known;
    m->id = s->id;
    m->step = s->step;
    m->top = s->top;
    m->gen = s->gen;
    m->state = (Fp__CkptState)s->state;
    m->how = (Fp__CkptHow)s->how;
    m->told = s->told;
    m->began_ns = s->began_ns;
    m->complete_ns = s->complete_ns;
    m->files = s->files;
    m->bytes = s->bytes;
    m->writers = s->writers;
    m->seq = s->seq;
    m->files_before = s->state == MGR_SET_COMPLETE ? s->files_before : 0;
    if (s->state == MGR_SET_TORN)
        rc = rc ? rc : say_torn(c, s, bad, m);
    else if (m->level == FP__LEVEL__LEVEL_NONE)
        m->why = (char *)"data of a file of it is lost or damaged: see fpctl status";
    else if (s->state == MGR_SET_OPEN && (s->temps || s->top_temporary))
        rc = rc ? rc : say_temporary(c, s, m);
    else if (s->state == MGR_SET_OPEN && mgr_unsettled(c))
        m->why = (char *)"a mount that may write it is not back since the manager was started";
    else if (s->state == MGR_SET_OPEN && !s->writers && !s->told && s->words.told)
        m->why = (char *)"nobody has said that it is complete: a policy has complete=told";
    else if (m->files_before)
        rc = rc ? rc : say_half(c, m);
    return rc;
}

/* -------------------------------------------------------------- lists */

struct row {
    struct mgr_set s;
    uint64_t parent;
    ProtobufCBinaryData template;
};

static int read_rows(struct mgr_core *c, uint64_t series, uint64_t step, struct row *rows, size_t max, size_t *n)
{
    const enum mgr_stmt st = MGR_ST_SET_LIST;
    int rc;

    for (rc = mgr_db_one(&c->db, SET_LIST, DBI(series), DBI(step), DBI(max)), *n = 0; rc > 0; rc = mgr_db_step(&c->db, st)) {
        struct row *r = &rows[(*n)++];
        const void *p;

        mgr_set_row(c, st, &r->s);
        r->parent = (uint64_t)mgr_col(&c->db, st, 14);
        p = mgr_col_blob(&c->db, st, 15, &r->template.len);
        r->template.data = mgr_arena_copy(&c->arena, p, r->template.len);
        if (!r->template.data) {
            mgr_db_reset(&c->db, st);
            return mgr_doom(c, -ENOMEM);
        }
    }
    return rc;
}

struct list {
    uint64_t below, max, newest;
    uint64_t series, in_series; /* at work: how many of it are in the answer */
    bool wanted;                /* that series lies below */
    uint32_t look;              /* slices that may be looked at */
    size_t text;                /* what is said of conversions so far */
};

/* The directory that is the set may be what was asked for, or lie above it. */
static int is_wanted(struct mgr_core *c, struct list *l, const struct row *r, bool *yes)
{
    int rc = 0;

    if (r->s.series != l->series) {
        l->series = r->s.series;
        l->in_series = 0;
        rc = mgr_set_is_below(c, r->parent, l->below, &l->wanted);
    }
    *yes = l->wanted;
    if (!rc && !*yes && r->s.top)
        rc = mgr_set_is_below(c, l->below, r->s.top, yes);
    *yes = *yes && r->s.state != MGR_SET_FORGOTTEN && (!l->newest || l->in_series < l->newest);
    return rc;
}

static int add_row(struct mgr_core *c, struct list *l, const struct row *r, Fp__CtlSetsReply *reply)
{
    Fp__CkptSet *m = MGR_NEW(c, Fp__CkptSet, fp__ckpt_set__init);
    struct mgr_set now;
    int rc = mgr_set_get(c, r->s.id, &now);

    if (!m)
        return mgr_doom(c, -ENOMEM);
    rc = rc ? rc : describe(c, &now, &l->look, m);
    l->text += strlen(m->convert);
    rc = rc ? rc : series_path(c, r->parent, &r->template, &m->series);
    if (!rc && m->path.len && now.files > 0) /* an empty one goes with the next tick */
        reply->sets[reply->n_sets++] = m;
    return rc;
}

static int list_sets(struct mgr_core *c, struct list *l, uint64_t after, Fp__CtlSetsReply *reply)
{
    enum { PAGE = 256 };
    struct row *rows = mgr_arena_alloc(&c->arena, PAGE * sizeof *rows);
    struct mgr_set at = {.step = INT64_MAX};
    size_t n = PAGE, seen = 0;
    int rc = after ? mgr_set_get(c, after, &at) : 0;

    reply->sets = mgr_arena_alloc(&c->arena, l->max * sizeof(*reply->sets));
    if (!rows || !reply->sets)
        return mgr_doom(c, -ENOMEM);
    while (!rc && n == PAGE && reply->n_sets < l->max && seen < ROWS_MAX && l->text < TEXT_MAX) {
        rc = read_rows(c, at.series, at.step, rows, PAGE, &n);
        for (size_t i = 0; i < n && !rc && reply->n_sets < l->max && l->text < TEXT_MAX; i++) {
            bool yes = false;

            rc = is_wanted(c, l, &rows[i], &yes);
            rc = rc || !yes ? rc : add_row(c, l, &rows[i], reply);
            l->in_series += yes;
            at = rows[i].s;
        }
        seen += n;
    }
    reply->more = !rc && (reply->n_sets == l->max || seen >= ROWS_MAX || l->text >= TEXT_MAX);
    return rc == -ENOENT ? 0 : rc;
}

static Fp__CkptFile *file_row(struct mgr_core *c, struct mgr_inode *in)
{
    Fp__CkptFile *m = MGR_NEW(c, Fp__CkptFile, fp__ckpt_file__init);

    if (!m)
        return NULL;
    mgr_inode_row(c, MGR_ST_MEMBER_LIST, 0, in);
    m->ino = in->ino;
    m->size_bytes = in->size;
    m->writing = mgr_map_get(&c->writers, in->ino) > 0;
    m->torn = in->flags & MGR_TORN_MARKS;
    return m;
}

/* Where the first that has it open for writing is. */
static char *writer_of(struct mgr_core *c, uint64_t ino)
{
    for (size_t i = 0; i < c->session_count; i++)
        if (mgr_map_get(&c->sessions[i]->writes, ino))
            return mgr_arena_text(&c->arena, c->sessions[i]->node);
    return (char *)"";
}

static int list_files(struct mgr_core *c, struct mgr_req *rq, const Fp__CtlSets *m, uint64_t max, Fp__CtlSetsReply *reply)
{
    struct mgr_inode *in = mgr_arena_alloc(&c->arena, (max + 1) * sizeof *in);
    uint32_t look = MGR_LEVEL_LOOK;
    struct mgr_level level;
    int rc;

    reply->files = mgr_arena_alloc(&c->arena, (max + 1) * sizeof(*reply->files));
    if (!reply->files || !in)
        return mgr_doom(c, -ENOMEM);
    for (rc = mgr_db_one(&c->db, MEMBER_LIST, DBI(m->files_of), DBI(m->after), DBI(max)); rc > 0; rc = mgr_db_step(&c->db, MGR_ST_MEMBER_LIST)) {
        if (!(reply->files[reply->n_files] = file_row(c, &in[reply->n_files]))) {
            mgr_db_reset(&c->db, MGR_ST_MEMBER_LIST);
            return mgr_doom(c, -ENOMEM);
        }
        reply->n_files++;
    }
    for (size_t i = 0; i < reply->n_files && !rc; i++) {
        Fp__CkptFile *f = reply->files[i];

        f->path = mgr_path(c, f->ino);
        f->node = f->writing ? writer_of(c, f->ino) : (char *)"";
        rc = mgr_level_file(c, &in[i], false, &look, &level);
        f->level = level.level;
        rq->durable |= level.level > FP__LEVEL__LEVEL_POOL;
    }
    reply->more = reply->n_files == max;
    return rc;
}

MGR_HANDLER(ctl_sets)
{
    const Fp__CtlSets *m = msg;
    Fp__CtlSetsReply *r = MGR_NEW(c, Fp__CtlSetsReply, fp__ctl_sets_reply__init);
    uint64_t max = m->files_of ? FILES_MAX : SETS_MAX;
    struct list l = {.newest = m->newest, .look = MGR_LEVEL_LOOK};
    int rc;

    if (!r)
        return mgr_doom(c, -ENOMEM);
    if (m->max && m->max < max)
        max = m->max;
    rq->reply = &r->base;
    if (m->files_of)
        return list_files(c, rq, m, max, r);
    l.max = max;
    rc = mgr_resolve(c, m->path, &l.below);
    rc = rc ? rc : list_sets(c, &l, m->after, r);
    for (size_t i = 0; i < r->n_sets && !rc; i++)
        rq->durable |= r->sets[i]->level > FP__LEVEL__LEVEL_POOL;
    return rc;
}

/* -------------------------------------------------------------- saying */

/* The set that this path is, belongs to, or has beside others with this step. */
static int find_set(struct mgr_core *c, const Fp__CtlSetSay *m, uint64_t ino, uint64_t *id)
{
    struct mgr_inode in;
    int rc = mgr_inode_get(c, ino, &in);

    *id = 0;
    if (rc)
        return rc;
    if (m->has_step) {
        rc = mgr_db_one(&c->db, SET_OF_PARENT, DBI(ino), DBI(m->step));
        *id = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_SET_OF_PARENT, 0) : 0;
        if (rc > 0 && mgr_db_step(&c->db, MGR_ST_SET_OF_PARENT) > 0)
            rc = -ENOTUNIQ; /* of several series */
        mgr_db_reset(&c->db, MGR_ST_SET_OF_PARENT);
        return rc < 0 ? rc : *id ? 0 : -ENODATA;
    }
    if (!mgr_is(&in, S_IFDIR)) {
        *id = in.ckpt;
        return 0;
    }
    rc = mgr_db_one(&c->db, SET_TOP, DBI(ino));
    *id = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_SET_TOP, 0) : 0;
    mgr_db_reset(&c->db, MGR_ST_SET_TOP);
    if (rc < 0 || *id || m->what == FP__SET_SAY__SET_SAY_FORGET)
        return rc < 0 ? rc : 0;
    return mgr_set_of_dir(c, ino, id); /* a directory in a set; not to forget all of it by one */
}

static int commit(struct mgr_core *c, const Fp__CtlSetSay *m, uint64_t ino, uint64_t *id)
{
    bool known = *id != 0;
    int rc = m->has_step ? mgr_sets_told_of(c, *id, m->force) : mgr_sets_told(c, ino, m->force);

    rc = rc == -ESTALE ? 0 : rc; /* as its state says */
    rc = rc || known ? rc : find_set(c, m, ino, id);
    return rc ? rc : *id ? 0 : -ENODATA;
}

static int put_series(struct mgr_core *c, const struct mgr_set *s, Fp__CkptSet *m)
{
    ProtobufCBinaryData template = {0};
    uint64_t parent;
    const void *p;
    int rc = mgr_db_one(&c->db, SERIES_NAME, DBI(s->series));

    if (rc <= 0)
        return rc;
    parent = (uint64_t)mgr_col(&c->db, MGR_ST_SERIES_NAME, 0);
    p = mgr_col_blob(&c->db, MGR_ST_SERIES_NAME, 1, &template.len);
    template.data = mgr_arena_copy(&c->arena, p, template.len);
    mgr_db_reset(&c->db, MGR_ST_SERIES_NAME);
    return template.data ? series_path(c, parent, &template, &m->series) : mgr_doom(c, -ENOMEM);
}

MGR_HANDLER(ctl_set_say)
{
    const Fp__CtlSetSay *m = msg;
    Fp__CkptSet *r = MGR_NEW(c, Fp__CkptSet, fp__ckpt_set__init);
    uint32_t look = MGR_LEVEL_LOOK;
    struct mgr_set s;
    uint64_t ino, id = 0;
    int rc = mgr_resolve(c, m->path, &ino);

    if (!r)
        return mgr_doom(c, -ENOMEM);
    rc = rc ? rc : find_set(c, m, ino, &id);
    if (!rc && m->what == FP__SET_SAY__SET_SAY_COMMIT)
        rc = commit(c, m, ino, &id);
    else if (!rc && !id)
        rc = -ENODATA;
    if (!rc && m->what == FP__SET_SAY__SET_SAY_FORGET)
        rc = mgr_sets_forget(c, id);
    rc = rc ? rc : mgr_set_get(c, id, &s);
    rc = rc ? rc : describe(c, &s, &look, r);
    rc = rc ? rc : put_series(c, &s, r);
    rq->durable = r->level > FP__LEVEL__LEVEL_POOL;
    rq->reply = &r->base;
    return rc;
}
