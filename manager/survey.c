/* Surveys: before somebody who waits is told that a file or a checkpoint set is drained or verified, the copies that this rests on are looked at in their targets.
 *
 * Rows say what was so when a copy got its name. Since then somebody may have removed it, and another store may have put its own in its place: only who looks there knows
 * (look.c: inode, size, time, by one benefactor, and by another one before a copy is given up). A survey goes through the files of a set, in the order of
 * their inodes, SURVEY_OPEN at a time: of each file one copy that is enough has to be found as it was; the best of them is looked at, and another one if that can't be
 * had any more, or its target is not well. Whatever was found less than FRESH_MS before the survey began is not looked at again. A copy that is gone takes its level with it
 * (mgr_tfile_gone), and the survey goes on, so that all is known that has to be drained anew.
 *
 *     asked --> looks at files, some at a time --> done: all found --> told as it is
 *                                                        some missing --> the level has fallen by that
 *
 * Who asks says the number of his survey again, and joins another one's that has just begun, so many that wait for one set have it looked at once. What nobody asks about
 * any more is forgotten. In memory: after a restart whoever asks begins another one.
 *
 * What is only shown rests on the last look. So that this is not long ago for what was drained last, its copies are looked at by themselves, too, some each second, in
 * rounds; a target that is not well is left alone, and what a look finds to be gone is said in the log.
 *
 * Rejected: a column of tfile for when it was found (a row written for each stat); to look at the set anew each time that somebody asks, which a large one would never pass.
 *
 * Core's thread, in a group. */
#include "manager/survey.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/grown.h"
#include "manager/ext.h"

#define SURVEYS_MAX   256u
#define FRESH_MS      5000u  /* that something was found so long before is good enough */
#define UNASKED_MS    30000u /* nobody has asked: it is forgotten */
#define AGAIN_MS      1000u  /* before a copy that could not be looked at is tried again */
#define TARGET_LOOKS  32u    /* of one target at once: the rest of look.c's are for others */
#define STEP          256u   /* files that one group looks up */
#define SEEN_MAX      65536u
#define FIRST_MS      60000u  /* after the start: the first round of looks by themselves */
#define ROUND_MS      600000u /* from the beginning of one to that of the next */
#define ROUND_MAX     4096u   /* copies of one: those that were made last */
#define ROUND_STEP    16u     /* copies, each second */
#define ROUND_LOOKS   8u      /* of one target at once */

/* ---------------------------------------------------------------- what was found, and when */

void mgr_survey_found(struct mgr_core *c, uint64_t tfile)
{
    struct mgr_surveys *v = &c->drain->surveys;

    if (v->found.used >= SEEN_MAX)
        mgr_idmap_fini(&v->found); /* what is forgotten is looked at again */
    if (mgr_idmap_put(&v->found, tfile, c->now.ms + 1))
        mgr_idmap_fini(&v->found);
    v->due = true;
}

static bool is_found(const struct mgr_core *c, uint64_t tfile, uint64_t since_ms)
{
    uint64_t at;

    return mgr_idmap_get(&c->drain->surveys.found, tfile, &at) && at > since_ms;
}

void mgr_survey_failed(struct mgr_core *c, uint32_t target, const char *why)
{
    struct mgr_surveys *v = &c->drain->surveys;

    v->failed = target;
    v->failed_ms = c->now.ms;
    snprintf(v->why, sizeof v->why, "%s", why);
    v->due = true;
}

void mgr_surveys_free(struct mgr_surveys *v)
{
    free(v->of);
    mgr_idmap_fini(&v->found);
    *v = (struct mgr_surveys){0};
}

/* ---------------------------------------------------------------- one file */

/* The copies of a file that would be enough. */
struct copies {
    uint64_t best; /* tfile; 0: there is none */
    uint32_t target;
    bool found;    /* one of them was found */
};

static int copies_of(struct mgr_core *c, const struct mgr_survey *s, const struct mgr_inode *in, struct copies *out)
{
    const enum mgr_stmt st = MGR_ST_DRAINED_COPIES;
    uint64_t since = s->begun_ms > FRESH_MS ? s->begun_ms - FRESH_MS : 0;
    unsigned most = 0;
    int rc;

    *out = (struct copies){0};
    for (rc = mgr_db_one(&c->db, DRAINED_COPIES, DBI(in->ino), DBI(in->data_version)); rc > 0; rc = mgr_db_step(&c->db, st)) {
        uint64_t tfile = (uint64_t)mgr_col(&c->db, st, 0);
        uint32_t target = (uint32_t)mgr_col(&c->db, st, 1);
        bool verified = mgr_col(&c->db, st, 2) != 0;
        unsigned rank = 1 + 2u * mgr_drain_is_well(c, target) + verified;

        if ((s->target && target != s->target) || (s->verified && !verified))
            continue;
        out->found |= is_found(c, tfile, since);
        if (rank <= most)
            continue;
        most = rank;
        out->best = tfile;
        out->target = target;
    }
    mgr_db_reset(&c->db, st);
    return rc < 0 ? rc : 0;
}

/* 1: nothing more is to be done about it; 0: it is being looked at; or a failure. */
static int check(struct mgr_core *c, struct mgr_survey *s, struct mgr_survey_file *f)
{
    struct copies k;
    struct mgr_inode in;
    int rc = mgr_inode_get(c, f->ino, &in);

    rc = rc ? rc : copies_of(c, s, &in, &k);
    if (rc == -ENOENT || (!rc && !k.best)) {
        s->missing++;
        return 1;
    }
    if (rc || k.found)
        return rc ? rc : 1;
    f->target = k.target;
    if ((k.best == f->tfile && c->now.ms - f->at_ms < AGAIN_MS) || !mgr_look_has_room(c, k.target, TARGET_LOOKS))
        return 0;
    f->tfile = k.best;
    f->at_ms = c->now.ms;
    rc = mgr_look(c, k.best, 0);
    return rc < 0 ? rc : 0;
}

/* ---------------------------------------------------------------- all of them */

/* The next members of the set are taken up. */
static int take_more(struct mgr_core *c, struct mgr_survey *s)
{
    const enum mgr_stmt st = MGR_ST_MEMBER_LIST;
    size_t room = SURVEY_OPEN - s->nopen, n = 0;
    int rc = 0;

    if (!s->set) {
        s->open[s->nopen++] = (struct mgr_survey_file){.ino = s->id};
        s->all = true;
        return 0;
    }
    for (rc = mgr_db_one(&c->db, MEMBER_LIST, DBI(s->id), DBI(s->ino), DBI(room)); rc > 0; rc = mgr_db_step(&c->db, st), n++) {
        s->ino = (uint64_t)mgr_col(&c->db, st, 0);
        s->open[s->nopen++] = (struct mgr_survey_file){.ino = s->ino};
    }
    mgr_db_reset(&c->db, st);
    s->all = n < room;
    return rc < 0 ? rc : 0;
}

/* *left: files that may still be looked up in this group. */
static int go_on(struct mgr_core *c, struct mgr_survey *s, uint32_t *left)
{
    size_t at = 0;
    int rc = 0;

    while (!s->done && *left && rc >= 0) {
        if (at == s->nopen) { /* all that are open were looked up */
            if (s->all || s->nopen == SURVEY_OPEN)
                break;
            rc = take_more(c, s);
            continue;
        }
        --*left;
        rc = check(c, s, &s->open[at]);
        if (rc > 0)
            s->open[at] = s->open[--s->nopen];
        else
            at++;
    }
    if (rc >= 0 && s->all && !s->nopen && !s->done) {
        s->done = true;
        s->done_ms = c->now.ms;
    }
    return rc < 0 ? rc : 0;
}

/* ---------------------------------------------------------------- by themselves */

struct copy {
    int64_t at_ns;
    uint64_t ino, tfile;
    uint32_t target;
};

static void end_round(struct mgr_core *c, struct mgr_surveys *v)
{
    uint64_t next = v->round_began_ms + ROUND_MS;

    v->round_ms = next > c->now.ms + 1000 ? next : c->now.ms + 1000;
    v->round_n = 0;
}

/* 1: dealt with; 0: not now; or a failure. */
static int look_by_itself(struct mgr_core *c, const struct copy *k)
{
    uint64_t since = c->now.ms > ROUND_MS / 2 ? c->now.ms - ROUND_MS / 2 : 0;
    int rc;

    if (is_found(c, k->tfile, since) || !mgr_drain_is_well(c, k->target))
        return 1;
    if (!mgr_look_has_room(c, k->target, ROUND_LOOKS))
        return 0;
    rc = mgr_look(c, k->tfile, 0);
    return rc < 0 ? rc : 1;
}

/* The next ones of the round, from those that were made last to older ones. */
static int round_step(struct mgr_core *c)
{
    const enum mgr_stmt st = MGR_ST_DRAINED_LAST;
    struct mgr_surveys *v = &c->drain->surveys;
    struct copy list[ROUND_STEP];
    size_t n = 0;
    int rc;

    v->round_ms = c->now.ms + 1000;
    if (!v->round_n) {
        v->round_began_ms = c->now.ms;
        v->round_ns = INT64_MAX;
        v->round_ino = 0;
    }
    for (rc = mgr_db_one(&c->db, DRAINED_LAST, DBI(v->round_ns), DBI(v->round_ino), DBI(ROUND_STEP)); rc > 0; rc = mgr_db_step(&c->db, st))
        list[n++] = (struct copy){mgr_col(&c->db, st, 0), (uint64_t)mgr_col(&c->db, st, 1), (uint64_t)mgr_col(&c->db, st, 2), (uint32_t)mgr_col(&c->db, st, 3)};
    mgr_db_reset(&c->db, st);
    for (size_t i = 0; i < n && rc >= 0; i++) {
        rc = look_by_itself(c, &list[i]);
        if (rc <= 0)
            return rc; /* the rest in a second */
        v->round_ns = list[i].at_ns;
        v->round_ino = list[i].ino;
        v->round_n++;
    }
    if (rc >= 0 && (n < ROUND_STEP || v->round_n >= ROUND_MAX))
        end_round(c, v);
    return rc < 0 ? rc : 0;
}

int mgr_surveys_step(struct mgr_core *c)
{
    struct mgr_surveys *v = &c->drain->surveys;
    uint32_t left = STEP;
    int rc = 0;

    if (!v->due)
        return 0;
    v->due = false;
    if (c->now.ms >= v->round_ms && v->round_ms && (rc = round_step(c)) != 0)
        return rc;
    for (size_t i = 0; i < v->count && left && !rc; i++)
        rc = go_on(c, &v->of[(v->turn + i) % v->count], &left);
    v->turn += left == 0;
    if (!left)
        v->due = c->busy = true;
    return rc;
}

void mgr_surveys_tick(struct mgr_core *c)
{
    struct mgr_surveys *v = &c->drain->surveys;

    for (size_t i = v->count; i-- > 0;)
        if (c->now.ms - v->of[i].asked_ms > UNASKED_MS)
            v->of[i] = v->of[--v->count];
    if (!v->round_ms && c->drain->ntargets)
        v->round_ms = c->now.ms + FIRST_MS;
    v->due |= v->count > 0 || (v->round_ms && c->now.ms >= v->round_ms);
}

/* ---------------------------------------------------------------- who asks */

static bool is_same(const struct mgr_survey *s, const struct mgr_survey *as)
{
    return s->set == as->set && s->id == as->id && s->version == as->version && s->target == as->target && s->verified == as->verified;
}

/* What he was told of before, as long as that is not over for long; else another one's that has just begun. */
static struct mgr_survey *find(struct mgr_core *c, const struct mgr_survey *as)
{
    struct mgr_surveys *v = &c->drain->surveys;

    for (size_t i = 0; i < v->count; i++) {
        struct mgr_survey *s = &v->of[i];

        if (!is_same(s, as) || (s->done && (s->missing || c->now.ms - s->done_ms > FRESH_MS)))
            continue;
        if (s->n == as->n || c->now.ms - s->begun_ms <= FRESH_MS)
            return s;
    }
    return NULL;
}

static struct mgr_survey *add(struct mgr_core *c, const struct mgr_survey *as)
{
    struct mgr_surveys *v = &c->drain->surveys;
    struct mgr_survey *s = NULL;

    for (size_t i = 0; i < v->count && v->count >= SURVEYS_MAX && !s; i++)
        s = v->of[i].done ? &v->of[i] : NULL;
    if (!s && v->count >= SURVEYS_MAX)
        return NULL;
    if (!s) {
        struct mgr_survey *p = fp_grown(v->of, v->count, &v->cap, sizeof *p);

        if (!p)
            return NULL;
        v->of = p;
        s = &p[v->count++];
    }
    *s = *as;
    s->n = c->now.ms << 12 | (++v->last & 4095); /* not one of before a restart, most likely: and if, it is begun anew when it is of something else */
    s->begun_ms = c->now.ms;
    return s;
}

/* What it waits for. */
static int explain(struct mgr_core *c, const struct mgr_survey *s, const char **why)
{
    const struct mgr_surveys *v = &c->drain->surveys;
    const struct mgr_target *t = s->nopen ? mgr_target_find(c, s->open[0].target) : NULL;
    struct mgr_waits waits;
    char line[MGR_WAITS_MAX + 300];
    bool any = false;

    for (size_t i = 0; i < c->bnf_count; i++)
        any |= mgr_task_reaches(c, c->bnfs[i]);
    if (!t)
        snprintf(line, sizeof line, "its copies are being looked at in the target");
    else if (!any)
        snprintf(line, sizeof line, "its copy in %.200s has to be looked at, and no benefactor that drains is there", t->root);
    else if (mgr_target_stalls(c, t->id, &waits))
        snprintf(line, sizeof line, "its copy in %.200s is being looked at: %s", t->root, waits.line);
    else if (v->failed == t->id && c->now.ms - v->failed_ms < 2 * AGAIN_MS)
        snprintf(line, sizeof line, "its copy in %.200s can't be looked at: %s", t->root, v->why);
    else
        snprintf(line, sizeof line, "its copy in %.200s is being looked at", t->root);
    *why = mgr_arena_text(&c->arena, line);
    return *why ? 0 : mgr_doom(c, -ENOMEM);
}

int mgr_survey(struct mgr_core *c, const struct mgr_survey *as, uint64_t *n, const char **why)
{
    struct mgr_survey *s = find(c, as);
    uint32_t left = STEP;
    int rc;

    s = s ? s : add(c, as);
    if (!s) {
        *why = mgr_arena_text(&c->arena, "its copies have to be looked at in the target, and too many others are being looked at");
        return *why ? 0 : mgr_doom(c, -ENOMEM);
    }
    s->asked_ms = c->now.ms;
    *n = s->n;
    rc = go_on(c, s, &left);
    c->drain->surveys.due |= left == 0;
    c->busy |= left == 0;
    if (rc)
        return rc;
    if (s->done)
        return s->missing ? -ESTALE : 1;
    return explain(c, s, why);
}
