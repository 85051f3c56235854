/*
 * fp-convert watch: the coordinator of one mount (watch.h). Aux-app convert starts it and tells it on standard input what was closed ("file VERSION PATH") and is complete ("set NAME"); "look" says
 * that it should look for itself. On standard output it says lines for the log, numbers for fpctl auxapps, and of how many lines the marks are in the store. One thread, one loop; it waits for the mount, and for nothing else.
 *
 * What is to be done survives it: a dump that is waiting has a mark in the store (user.fp.convert), and at its start, and each LOOK_MS while something waits, it looks at all files that the pattern
 * names (look.c). What costs as much as there are files is not done again before four times as long has gone by, a minute at most: a store may have 100,000. Groups get their turn in passes of a tenth of a second, between which it hears the plugin and its workers. Marks are for people, too: `fpctl conversions` and `fpctl checkpoints` show them. Decisions are those of group.c; here is what they cost.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convert/command.h"
#include "convert/watch/argv.h"
#include "convert/watch/loop.h"
#include "convert/watch/marks.h"
#include "convert/watch/names.h"
#include "convert/watch/results.h"
#include "convert/watch/tell.h"
#include "fp/auxapp.h"
#include "fp/clock.h"
#include "fp/err.h"

#define GROUP_MS   10u    /* nor does attending to a group of one file */
#define PASS_MS    100u   /* then standard input and workers are heard before it goes on */
#define TICK_MS    200
#define IDLE_MS    10000
#define SWEPT_MS   60000u
#define MARK_MS    2000u  /* how far it is, in the mark */
#define END_MS     3000u

/* ---------------------------------------------------------------- telling */

static int in_phase(const struct watch *w, enum cw_phase phase)
{
    int n = 0;

    for (size_t i = 0; i < w->groups.count; i++)
        n += w->groups.items[i].phase == phase;
    return n;
}

static void say_gauges(struct watch *w)
{
    int waiting = in_phase(w, CW_WAITING), running = in_phase(w, CW_RUNNING);

    if (waiting == w->waiting && running == w->running)
        return;
    w->waiting = waiting;
    w->running = running;
    cw_tell_gauge("waiting", waiting);
    cw_tell_gauge("running", running);
}

/* ---------------------------------------------------------------- conversions */

/* "run/chk_0007" is complete: its files are looked at, and at once. Files that are of no set wait for none. */
static void complete(struct watch *w, const char *name)
{
    if (cw_look_is_result(w, name) > 0)
        return; /* that it is complete we have said: one for each conversion */
    for (size_t i = 0; i < w->groups.count; i++)
        if (w->groups.items[i].phase == CW_WAITING && w->groups.items[i].key[0] != '/')
            w->groups.items[i].next_ms = 0;
    w->look = true; /* it may have got its name by renaming */
}

/* ---------------------------------------------------------------- conversions */

/* -ENAMETOOLONG; another errno: it can't be told now. */
static int result_of(struct watch *w, const struct cw_group *g, char dir[PATH_MAX], char result[PATH_MAX])
{
    int rc = cw_store_set_dir(&w->store, g->files[0].path, g->key, dir, PATH_MAX);

    return rc ? rc : cw_name_result(g, dir, w->o->into, w->o->ending, result) ? 0 : -ENAMETOOLONG;
}

struct asked {
    struct watch *w;
    const char *result;
};

/* The part of a node is there, and of these files: of others, or made by another declaration, it is of no use. */
static bool has_part(void *arg, const struct cw_part *p)
{
    const struct asked *a = arg;
    char part[PATH_MAX], of[CV_OF_MAX], now[CW_STAMP_BYTES];

    if (!cw_name_part(a->result, p->node, part))
        return false;
    cw_store_get(&a->w->store, part, CW_OF, of, sizeof of);
    snprintf(now, sizeof now, "%016" PRIx64, p->stamp);
    return strncmp(of, now, CW_STAMP_BYTES - 1) == 0;
}

static struct cw_worker *free_worker(struct watch *w)
{
    for (unsigned i = 0; i < w->o->workers; i++)
        if (!w->workers[i].key)
            return &w->workers[i];
    return NULL;
}

/* What the lock is taken on: the first file of those that are converted. */
static const char *lock_path(const struct cw_group *g, const struct cw_action *a)
{
    return g->files[a->what == CW_PART ? a->part.first : 0].path;
}

/* Temporary files of conversions that were killed. The directory may have thousands of results: it is not read for each of them, but if there may be one for this one, or nobody knows. */
static void sweep(struct watch *w, const struct cw_group *g, const char *result)
{
    char mark[CW_MARK_MAX], dir[PATH_MAX];
    size_t len = (size_t)(cw_name_base(result) - result);

    snprintf(dir, sizeof dir, "/%.*s", (int)len, result);
    cw_mark_get(&w->store, g, CW_MARK, mark, sizeof mark);
    if (strcmp(dir, w->swept) == 0 && fp_now_ms() - w->swept_ms < SWEPT_MS && !cw_mark_begins(mark, "running"))
        return;
    strcpy(w->swept, cw_store_sweep(&w->store, result) ? dir : "");
    w->swept_ms = fp_now_ms();
}

/* All that may make a conversion fail that would not fail by another declaration. */
static uint64_t declared(const struct cw_options *o)
{
    uint64_t h = cw_hash(o->digest, o->into ? o->into : "", o->into ? strlen(o->into) : 0);

    h = cw_hash(h, &o->keep_none, sizeof o->keep_none);
    return cw_hash(h, &o->xdmf, sizeof o->xdmf);
}

/* Its end, with the stamp of its files. False: it can't be said now, as when the manager is away: then it has not ended, or whoever waits for it would wait for ever. */
static bool mark_end(struct watch *w, struct cw_group *g, uint64_t stamp, const char *text)
{
    int rc = cw_mark_put_of(&w->store, g, stamp, declared(w->o));

    rc = rc ? rc : cw_mark(&w->store, g, text);
    if (rc == 0)
        return true;
    cw_tell_log(FP_AUX_WARN, "%s: how its conversion has ended can't be written into the store: %s: tried again", g->files[0].path, fp_strerror(rc));
    cw_group_ended(g, CW_END_PASSING, fp_now_ms());
    return false;
}

static void failed(struct watch *w, struct cw_group *g, const char *why)
{
    char text[CW_MARK_MAX];

    g->phase = CW_FAILED;
    snprintf(text, sizeof text, "failed %.1000s", why);
    if (!mark_end(w, g, cw_group_stamp(g), text))
        return;
    cw_tell_count("failed", 1);
    cw_tell_log(FP_AUX_WARN, "%s is not converted: %s", g->files[0].path, why);
}

/* Whose it is now, or whether somebody else is at it, the next look says. */
static void not_removed(struct watch *w, struct cw_group *g, const char *result, int rc)
{
    char why[CW_MARK_MAX];

    g->next_ms = fp_now_ms() + CW_LOOK_MS;
    if (rc == -EWOULDBLOCK || rc == -EEXIST || cw_err_passes(-rc))
        return;
    snprintf(why, sizeof why, "%.600s, which is of this dump as it was before, can't be removed: %s", result, fp_strerror(rc));
    failed(w, g, why);
}

static void begin(struct watch *w, struct cw_group *g, const struct cw_action *a, const char *dir, const char *result, int lock)
{
    struct cw_worker *worker = free_worker(w);
    struct cw_argv l = {0};
    char text[CW_NODE_MAX + 40], part[PATH_MAX], of[CV_OF_MAX];
    int64_t mtime;
    uint64_t size;
    int rc;

    if (w->o->into)
        cw_store_make_dir(&w->store, w->o->into);
    sweep(w, g, a->what == CW_PART && cw_name_part(result, a->part.node, part) ? part : result);
    g->stamp = cw_group_stamp(g);
    cw_result_of(g, a->what == CW_PART ? a->part.stamp : g->stamp, dir, of);
    worker->replaces = cw_store_stat(&w->store, result, &mtime, &size) != -ENOENT;
    if (a->what == CW_PART && worker->replaces && (rc = cw_result_remove(&w->store, result, of)) < 0) { /* it refers to parts by their names: it would have something of both */
        close(lock);
        not_removed(w, g, result, rc);
        return;
    }
    rc = -ENOMEM;
    worker->action = *a;
    worker->key = strdup(g->key);
    worker->node = strdup(a->part.node ? a->part.node : "");
    worker->result = strdup(result);
    worker->action.part.node = worker->node;
    cw_argv_fill(&l, w->o, g, a, result, of);
    g->phase = CW_RUNNING;
    snprintf(text, sizeof text, "running %s 0%%", w->o->node);
    cw_mark(&w->store, g, text); /* before it does anything: others see that it is taken */
    if (!l.bad && worker->key && worker->node && worker->result)
        rc = cw_worker_start(worker, &l, w->o->convert, lock);
    cw_argv_free(&l);
    if (rc) {
        cw_tell_log(FP_AUX_ERROR, "fp-convert can't be started: %s: tried again", fp_strerror(rc));
        close(lock);
        cw_worker_fini(worker);
        cw_group_ended(g, CW_END_PASSING, fp_now_ms());
        snprintf(text, sizeof text, "waiting %s", w->o->node);
        cw_mark(&w->store, g, text);
    }
}

/* Files that are gone leave the group; not those of which nobody can say it now. False: none is left. */
static bool still_there(struct watch *w, struct cw_group *g)
{
    size_t kept = 0;

    g->bytes = 0;
    for (size_t i = 0; i < g->nfiles; i++) {
        int64_t mtime;
        uint64_t size;
        int rc = cw_store_stat(&w->store, g->files[i].path, &mtime, &size);

        if (rc == 0 && mtime != g->files[i].mtime_ns)
            cw_file_changed(g, &g->files[i], mtime);
        g->bytes += rc == 0 ? size : 0;
        if (rc == 0 || cw_err_passes(-rc)) {
            g->files[kept++] = g->files[i];
            continue;
        }
        free(g->files[i].path);
        free(g->files[i].node);
        w->groups.nfiles--;
    }
    g->nfiles = kept;
    return kept > 0;
}

/* As its mark says. */
static void is_over(struct cw_group *g, enum cw_phase phase)
{
    g->phase = phase;
    g->told = true;
    g->waits = false;
}

/* By an earlier mount, or another node meanwhile. */
static bool is_done(struct watch *w, const struct cw_group *g)
{
    return cw_mark_says(&w->store, g, "done");
}

/* The state of the set, as it is now: 0; 1: its first file is in another set, or it was in none; negative: it is not there, or nobody can say. */
static int refresh(struct watch *w, struct cw_group *g)
{
    char key[PATH_MAX + 1];
    int state = cw_look_key(w, g->files[0].path, key, sizeof key), rc = state < 0 ? state : strcmp(key, g->key) != 0;

    g->state = rc == 0 ? (enum cw_set_state)state : CW_SET_OPEN;
    return rc;
}

/* The same, when files that are in another set now are out of the group: the next look finds them in theirs. */
static int refresh_first(struct watch *w, struct cw_group *g)
{
    int rc;

    while ((rc = refresh(w, g)) > 0) {
        w->look = true;
        cw_groups_take_out(&w->groups, g, 0);
        if (g->nfiles == 0)
            break;
    }
    return rc;
}

/* The same, of the files that are there. False: none is left. One look alone at a set that is not complete, which may have thousands of files and stay so for long. */
static bool refresh_all(struct watch *w, struct cw_group *g)
{
    bool known = refresh_first(w, g) == 0;

    if (g->nfiles == 0)
        return false;
    if (known && cw_is_not_complete(g))
        return true;
    w->breath.hurry |= g->state == CW_SET_COMPLETE; /* it is converted next: nobody waits for pauses between its files */
    if (known && g->state == CW_SET_COMPLETE && !g->complete_ms)
        return true; /* gather looks at all of them */
    if (!still_there(w, g))
        return false;
    if (!known && refresh_first(w, g))
        w->look = true;
    return g->nfiles > 0;
}

/* What is not this node's to convert first, and has failed elsewhere as it is now, declared as it is here, is not tried here, too. */
static bool another_has_failed(struct watch *w, struct cw_group *g)
{
    if (!g->files[0].node[0] || strcmp(g->files[0].node, w->o->node) == 0 || !cw_mark_says(&w->store, g, "failed") || !cw_mark_is_by(&w->store, g, declared(w->o)))
        return false;
    is_over(g, CW_FAILED);
    return true;
}

/* The first look at a set since it is complete: other nodes may have files of it. NULL: there is nothing to do now, all of it is gone, or there may be more, without which it is not to be converted. */
static struct cw_group *gather(struct watch *w, const struct cw_group *g, const char *key)
{
    bool all = cw_look_near(w, g);
    struct cw_group *now = cw_groups_find(&w->groups, key);

    if (!still_there(w, now)) {
        cw_groups_drop(&w->groups, now);
        return NULL;
    }
    if (!all)
        now->next_ms = fp_now_ms() + CW_LOOK_MS;
    return all ? now : NULL;
}

/* Nobody has said whose these files are: they are those of who leads, for all nodes. */
static void name_files(struct watch *w, struct cw_group *g)
{
    char first[CW_NODE_MAX + 1], node[CW_NODE_MAX + 1];

    snprintf(first, sizeof first, "%s", cw_group_first_node(g));
    for (size_t i = 0; i < g->nfiles; i++) {
        if (!cw_file_lacks_name(g, i, w->o->splits))
            continue;
        cw_store_own(&w->store, g->files[i].path, g->files[i].mtime_ns, first[0] ? first : w->o->node, node, sizeof node);
        (void)cw_file_name(&g->files[i], node);
    }
    g->next_ms = 0;
}

/* Its mark said that another node had it: now it does not, and nothing says that it waits. */
static void is_free_again(struct watch *w, struct cw_group *g)
{
    char text[CW_NODE_MAX + 16], mark[CW_MARK_MAX];

    if (g->waits)
        return;
    cw_mark_get(&w->store, g, CW_MARK, mark, sizeof mark);
    if (cw_mark_begins(mark, "running") || cw_mark_says(&w->store, g, "failed"))
        return;
    snprintf(text, sizeof text, "waiting %s", w->o->node);
    cw_mark(&w->store, g, text);
}

/* With the lock: nobody else has done it since it was decided on. */
static bool is_still_to_do(struct watch *w, struct cw_group *g, const struct cw_action *a, const struct cw_splits *splits)
{
    struct cw_action now;

    if (is_done(w, g)) {
        is_over(g, CW_DONE);
        return false;
    }
    if (a->what != CW_PART)
        return true;
    now = cw_group_decide(g, w->o->node, fp_now_ms(), splits);
    return now.what == CW_PART && strcmp(now.part.node, a->part.node) == 0 && now.part.stamp == a->part.stamp;
}

static void attend(struct watch *w, const char *key)
{
    char dir[PATH_MAX], result[PATH_MAX], why[CW_MARK_MAX];
    struct cw_group *g = cw_groups_find(&w->groups, key);
    struct asked asked = {w, result};
    const struct cw_splits splits = {w->o->digest, has_part, &asked};
    struct cw_action a;
    int lock, rc;

    if (g->nfiles == 0 || !refresh_all(w, g)) {
        cw_groups_drop(&w->groups, g);
        return;
    }
    if (g->state == CW_SET_COMPLETE && !g->complete_ms && !(g = gather(w, g, key)))
        return;
    rc = result_of(w, g, dir, result);
    if (rc == -ENAMETOOLONG)
        failed(w, g, "the name of the result would be too long");
    else if (rc)
        g->next_ms = fp_now_ms() + CW_LOOK_MS;
    if (rc)
        return;
    if (g->complete_ms)
        cw_look_for_names(w, g);
    a = cw_group_decide(g, w->o->node, fp_now_ms(), w->o->splits ? &splits : NULL);
    if (g->complete_ms && is_done(w, g))
        is_over(g, CW_DONE);
    if (g->phase == CW_DONE || (a.what != CW_NOTHING && another_has_failed(w, g)))
        return;
    if (g->complete_ms && g->told)
        is_free_again(w, g);
    if (a.what == CW_NOTHING)
        return;
    lock = cw_store_lock(&w->store, lock_path(g, &a));
    if (lock < 0)
        return; /* somebody is at it, or the store can't tell: with the next look */
    w->breath.hurry = true; /* the lock keeps the mount busy */
    if (!is_still_to_do(w, g, &a, w->o->splits ? &splits : NULL)) {
        close(lock);
        return;
    }
    if (a.what == CW_NAME) {
        name_files(w, g);
        close(lock);
        return;
    }
    rc = cw_result_is_taken(&w->store, w->o, g, dir, result, why, sizeof why);
    if (rc) {
        close(lock);
        if (rc > 0)
            failed(w, g, why);
        else
            g->next_ms = fp_now_ms() + CW_LOOK_MS;
        return;
    }
    begin(w, g, &a, dir, result, lock);
}

/* A group is not looked at all the time: one of many files rests for what it takes, and each for what all that wait take together, which may be thousands of one file. */
static void rest(struct watch *w, const char *key, uint64_t began_ms, int waiting)
{
    struct cw_group *g = cw_groups_find(&w->groups, key);
    uint64_t now = fp_now_ms(), took = cw_breath_ms(&w->breath) - began_ms, all, own;

    took = took < GROUP_MS ? took : GROUP_MS;
    w->group_us = (15 * w->group_us + 1000 * took) / 16;
    if (!g || g->phase != CW_WAITING)
        return;
    own = cw_rest_ms(w, began_ms, g->nfiles);
    all = REST_TIMES * w->group_us * (uint64_t)waiting / 1000;
    all = all < REST_MAX_MS ? all : REST_MAX_MS;
    if (g->next_ms < now + (own > all ? own : all))
        g->next_ms = now + (own > all ? own : all);
}

static bool any_runs(const struct watch *w)
{
    for (unsigned i = 0; i < w->o->workers; i++)
        if (w->workers[i].key)
            return true;
    return false;
}

/* By its key, not its pointer: looking adds groups. */
static void attend_due(struct watch *w, const struct cw_group *g, int waiting)
{
    uint64_t began = cw_breath_ms(&w->breath);
    char *key;

    if (g->phase != CW_WAITING || g->next_ms > fp_now_ms() || !(key = strdup(g->key)))
        return;
    attend(w, key);
    rest(w, key, began, waiting);
    w->breath.hurry = any_runs(w);
    free(key);
}

/* In turns: what a pass had no time for comes first in the next. */
static void attend_all(struct watch *w)
{
    uint64_t began = fp_now_ms();
    int waiting = in_phase(w, CW_WAITING);
    size_t left = w->groups.count;

    for (; left && w->groups.count && free_worker(w) && fp_now_ms() - began < PASS_MS; left--) {
        if (w->turn >= w->groups.count)
            w->turn = 0;
        attend_due(w, &w->groups.items[w->turn++], waiting);
    }
    w->cut = left && free_worker(w);
}

/* ---------------------------------------------------------------- ends */

/* Another node may have closed a file of it meanwhile, of which nobody has told this one. NULL: nobody can say now. */
static struct cw_group *look_once_more(struct watch *w, struct cw_group *g)
{
    char key[PATH_MAX + 1];

    snprintf(key, sizeof key, "%s", g->key);
    if (key[0] == '/')
        return g;
    if (cw_look_near(w, g))
        return cw_groups_find(&w->groups, key);
    cw_tell_log(FP_AUX_WARN, "%s: whether the dump is as it was can't be told now, so it is not removed (keep=none)", key);
    return NULL;
}

/* The dump is of no use any more, if somebody can read the result, which is of these files, and nobody writes it anew: then it stays, and is converted once more. */
static void remove_dump(struct watch *w, struct cw_group *g, const char *result)
{
    char dir[PATH_MAX];
    int rc;

    if (!cw_result_holds(&w->store, result, g->stamp) || !(g = look_once_more(w, g)) || !still_there(w, g))
        return;
    (void)refresh(w, g);
    if (cw_group_stamp(g) != g->stamp || cw_is_not_complete(g)) {
        cw_group_touched(g, fp_now_ms());
        return;
    }
    rc = cw_store_set_dir(&w->store, g->files[0].path, g->key, dir, sizeof dir);
    rc = rc ? rc : cw_store_remove(&w->store, g, dir);
    if (rc == -ESTALE)
        cw_group_touched(g, fp_now_ms());
    else if (rc)
        cw_tell_log(FP_AUX_WARN, "%s: the dump can't be removed (keep=none): %s", g->files[0].path, fp_strerror(rc));
}

/* Parts and marks of files go before the mark says that all is done: else nobody would come back for them. */
static void done(struct watch *w, struct cw_group *g, const struct cw_worker *worker)
{
    const char *result = worker->result, *left_out = worker->left_out;
    char text[CW_MARK_MAX], dir[PATH_MAX];
    uint64_t out = 0;
    int64_t mtime;
    bool told;

    (void)cw_store_stat(&w->store, result, &mtime, &out);
    (void)cw_store_put(&w->store, result, "user.fp.checkpoint", "complete");
    told = cw_store_set_dir(&w->store, g->files[0].path, g->key, dir, sizeof dir) == 0;
    if (told && dir[0])
        g = cw_marks_of_files_end(&w->store, &w->groups, g);
    if (told && (worker->replaces || g->nfiles > 1)) /* else there was never a result of parts */
        cw_store_sweep_parts(&w->store, g, result, cw_result_source(g, dir), worker->action.what == CW_CONVERT);
    snprintf(text, sizeof text, "done %.600s%s%.300s", result, left_out[0] ? " left out: " : "", left_out);
    if (!mark_end(w, g, g->stamp, text))
        return;
    cw_tell_count("converted", 1);
    cw_tell_count("bytes_in", (int64_t)g->bytes);
    cw_tell_count("bytes_out", (int64_t)out);
    cw_tell_log(FP_AUX_INFO, "%s: %zu file%s of %s", result, g->nfiles, g->nfiles == 1 ? "" : "s", g->files[0].path);
    if (left_out[0])
        cw_tell_log(FP_AUX_WARN, "%s: left out of %s, which therefore stays: %s", result, g->files[0].path, left_out);
    else if (w->o->keep_none)
        remove_dump(w, g, result);
}

static void ended(struct watch *w, struct cw_worker *worker, enum cw_end end)
{
    struct cw_group *g = cw_groups_find(&w->groups, worker->key);
    char text[CW_MARK_MAX];

    if (end == CW_END_PASSING || end == CW_END_CRASH)
        w->swept[0] = '\0'; /* it may have left something */
    if (g && !still_there(w, g)) {
        cw_groups_drop(&w->groups, g);
        g = NULL;
    }
    if (g) {
        int64_t mtime;
        uint64_t size;
        bool anew;

        if (end == CW_END_DONE && cw_store_stat(&w->store, worker->result, &mtime, &size) == -ENOENT) {
            end = CW_END_PASSING;
            snprintf(worker->said, sizeof worker->said, "its result was removed as soon as it was there");
        }

        g->again |= cw_group_stamp(g) != g->stamp; /* another node has written to it */
        anew = g->again;
        cw_group_ended(g, end, fp_now_ms());
        snprintf(text, sizeof text, "waiting %s%s%.900s", w->o->node, worker->said[0] ? " tried again: " : "", worker->said);
        if (g->phase == CW_WAITING && worker->said[0] && !anew)
            cw_tell_log(FP_AUX_WARN, "%s: %s: tried again", g->files[0].path, worker->said);
        if (g->phase == CW_DONE)
            done(w, g, worker); /* it may have moved then */
        else if (g->phase == CW_FAILED)
            failed(w, g, worker->said);
        else if (end != CW_END_PART || anew)
            cw_mark(&w->store, g, text);
    }
    cw_worker_fini(worker);
}

static void hear_workers(struct watch *w)
{
    uint64_t now = fp_now_ms();

    for (unsigned i = 0; i < w->o->workers; i++) {
        struct cw_worker *worker = &w->workers[i];
        struct cw_group *g = worker->key ? cw_groups_find(&w->groups, worker->key) : NULL;
        char text[CW_NODE_MAX + 40];
        enum cw_end end;

        if (!worker->key)
            continue;
        cw_worker_hear(worker);
        cw_worker_watch(worker, now);
        if (cw_worker_ended(worker, &end)) {
            ended(w, worker, end);
        } else if (g && worker->of_bytes && now - worker->told_ms >= (w->mark_rest_ms > MARK_MS ? w->mark_rest_ms : MARK_MS)) {
            uint64_t began = cw_breath_ms(&w->breath);

            snprintf(text, sizeof text, "running %s %u%%", w->o->node, (unsigned)(worker->done_bytes * 100 / worker->of_bytes));
            cw_mark(&w->store, g, text);
            w->mark_rest_ms = cw_rest_ms(w, began, g->nfiles);
            worker->told_ms = fp_now_ms();
        }
    }
}

/* ---------------------------------------------------------------- the loop */

/* Is the mount there? When it has come, all is looked at. */
static bool has_come(struct watch *w)
{
    if (!w->there && (w->there = cw_store_is_there(&w->store)))
        w->look = w->owed = true;
    return w->there;
}

static void hear_file(struct watch *w, const char *words)
{
    char *end;
    uint64_t version = strtoull(words, &end, 10);

    if (*end == ' ')
        cw_look_sealed(w, end + 1, version);
}

static void hear(struct watch *w, const char *line)
{
    w->heard++;
    if (!has_come(w))
        return;
    if (strncmp(line, "file ", 5) == 0)
        hear_file(w, line + 5);
    else if (strncmp(line, "set ", 4) == 0)
        complete(w, line + 4);
    else if (strcmp(line, "look") == 0)
        w->look = w->owed = w->missed = true;
}

static void read_input(struct watch *w)
{
    ssize_t n = read(0, w->line + w->line_bytes, sizeof w->line - 1 - w->line_bytes);
    char *start = w->line, *end;

    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN))
        w->ended = true;
    if (n <= 0)
        return;
    w->line_bytes += (size_t)n;
    w->line[w->line_bytes] = '\0';
    while ((end = strchr(start, '\n'))) {
        *end = '\0';
        hear(w, start);
        start = end + 1;
    }
    w->line_bytes -= (size_t)(start - w->line);
    memmove(w->line, start, w->line_bytes);
    if (w->line_bytes == sizeof w->line - 1)
        w->line_bytes = 0;
}

/* Temporary files go with SIGTERM; who takes too long leaves one, which another conversion sweeps away. */
static void end_workers(struct watch *w)
{
    uint64_t until = fp_now_ms() + END_MS;
    char text[CW_NODE_MAX + 16];
    bool any = true;

    for (unsigned i = 0; i < w->o->workers; i++)
        cw_worker_kill(&w->workers[i], SIGTERM);
    snprintf(text, sizeof text, "waiting %s", w->o->node);
    for (size_t i = 0; i < w->groups.count; i++)
        if (w->groups.items[i].phase == CW_RUNNING && w->groups.items[i].nfiles)
            cw_mark(&w->store, &w->groups.items[i], text);
    while (any) {
        any = false;
        for (unsigned i = 0; i < w->o->workers; i++) {
            enum cw_end end;

            if (w->workers[i].key && cw_worker_ended(&w->workers[i], &end))
                cw_worker_fini(&w->workers[i]);
            any |= w->workers[i].key != NULL;
            if (fp_now_ms() > until)
                cw_worker_kill(&w->workers[i], SIGKILL);
        }
        if (any)
            poll(NULL, 0, 10);
    }
}

static bool something_waits(const struct watch *w)
{
    for (size_t i = 0; i < w->groups.count; i++)
        if (w->groups.items[i].phase == CW_WAITING && w->groups.items[i].state != CW_SET_TORN && w->groups.items[i].state != CW_SET_FORGOTTEN)
            return true;
    return false;
}

/* Nobody is woken for nothing: what is closed comes by standard input. */
static int pause_ms(const struct watch *w)
{
    if (w->cut) /* the mount is busy while one runs; else it is left alone for a moment */
        return any_runs(w) ? 0 : (int)CW_PAUSE_MS;
    if (any_runs(w))
        return TICK_MS;
    return !w->there || something_waits(w) || w->look || w->look_by_ms ? TICK_MS : IDLE_MS;
}

static bool is_time_to_look(const struct watch *w)
{
    uint64_t now = fp_now_ms(), since = now - w->looked_ms;

    if (since < w->look_rest_ms)
        return false;
    return w->look || (since >= LOOK_MS && something_waits(w)) || (w->look_by_ms && now >= w->look_by_ms);
}

/* Whoever waits for conversions has seen the marks of all that was told until then. */
static void say_heard(struct watch *w)
{
    if (w->owed || w->heard == w->said)
        return;
    w->said = w->heard;
    cw_tell_heard(w->heard);
}

static void turn(struct watch *w)
{
    if (!has_come(w))
        return;
    hear_workers(w);
    if (is_time_to_look(w))
        cw_look_at_all(w);
    say_heard(w);
    attend_all(w);
    say_gauges(w);
}

int cw_watch(const struct cw_options *o)
{
    static struct watch w;
    struct pollfd p[1 + WORKERS_MAX];

    w = (struct watch){.o = o, .store = {o->mount, &w.breath}, .waiting = -1, .running = -1, .heard = 1};
    for (unsigned i = 0; i < WORKERS_MAX; i++)
        w.workers[i].status_fd = w.workers[i].lock_fd = -1;
    (void)fcntl(0, F_SETFL, O_NONBLOCK);
    while (!w.ended && !cv_command_interrupted()) {
        nfds_t n = 1;

        p[0] = (struct pollfd){.fd = 0, .events = POLLIN};
        for (unsigned i = 0; i < o->workers; i++)
            if (w.workers[i].key)
                p[n++] = (struct pollfd){.fd = w.workers[i].status_fd, .events = POLLIN};
        cw_breath_begin(&w.breath, true); /* what is said is heard at once: the plugin waits for nobody */
        if (poll(p, n, pause_ms(&w)) > 0 && p[0].revents)
            read_input(&w);
        cw_breath_begin(&w.breath, any_runs(&w));
        turn(&w);
    }
    w.breath.hurry = true;
    end_workers(&w);
    cw_groups_free(&w.groups);
    return 0;
}
