/*
 * How a coordinator knows what there is (loop.h): by files that are said to be closed, and by looking at what the pattern names. Called by watch.c.
 *
 * What costs as much as there are files (looking at all of them, at all of a set, or at all groups that wait, and marking them) is not done again before four times as long has gone by, a minute at most: a store may have 100,000.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "convert/watch/loop.h"
#include "convert/watch/marks.h"
#include "convert/watch/names.h"
#include "convert/watch/tell.h"
#include "fp/auxapp.h"
#include "fp/clock.h"

#define FILE_MS    1u /* a look at one file takes no longer, unless something is wrong */

/* A call may have waited for a manager that was away, which is no reason to rest. */
uint64_t cw_rest_ms(const struct watch *w, uint64_t began_ms, size_t files)
{
    uint64_t took = cw_breath_ms(&w->breath) - began_ms, most = files * FILE_MS, ms = REST_TIMES * (took < most ? took : most);

    return ms < REST_MAX_MS ? ms : REST_MAX_MS;
}

int cw_look_key(struct watch *w, const char *path, char *key, size_t size)
{
    int state = cw_store_set(&w->store, path, key, size);

    if (state == CW_SET_NONE)
        snprintf(key, size, "/%s", path);
    return state;
}

int cw_look_is_result(struct watch *w, const char *path)
{
    char value[CW_MARK_MAX];
    int rc = cw_store_get(&w->store, path, "user.fp.converted", value, sizeof value);

    return cw_err_passes(-rc) ? rc : value[0] != '\0';
}

/* What is said of this file is known: it was so when it was looked at, and the mark is of what was looked at. The plugin may say it long afterwards. */
static bool is_no_news(const struct cw_group *g, const struct cw_file *f, int64_t mtime, uint64_t version)
{
    return f->mtime_ns == mtime && (f->version ? version <= f->version : g->told);
}

/* Another node has been quicker: it converts these files as they are now, or has. What it says of that is not to be taken back. The group may move. */
static bool is_taken_up(struct watch *w, struct cw_group **g, const char *key)
{
    static const char *const over[] = {"done", "failed"};
    char text[CW_MARK_MAX];

    if ((*g)->waits || (*g)->phase == CW_RUNNING || cw_is_not_complete(*g))
        return false;
    cw_mark_get(&w->store, *g, CW_MARK, text, sizeof text);
    if (cw_mark_begins(text, "running"))
        return true; /* if it is of other files, who converts them sees that at the end */
    for (size_t i = 0; i < 2; i++) {
        if (!cw_mark_begins(text, over[i]))
            continue;
        if ((*g)->state == CW_SET_COMPLETE)
            (void)cw_look_near(w, *g);
        *g = cw_groups_find(&w->groups, key);
        return cw_mark_says(&w->store, *g, over[i]);
    }
    return false;
}

static void own(struct watch *w, struct cw_group *g, const char *path, int64_t mtime, uint64_t version)
{
    struct cw_file *f = cw_group_file(g, path);
    char node[CW_NODE_MAX + 1];

    if (!f)
        return;
    f->version = version;
    if (f->node[0])
        return;
    cw_store_own(&w->store, path, mtime, w->o->node, node, sizeof node);
    (void)cw_file_name(f, node);
}

void cw_look_sealed(struct watch *w, const char *path, uint64_t version)
{
    char key[PATH_MAX + 1], text[CW_NODE_MAX + 16];
    struct cw_group *g;
    const struct cw_file *f;
    int64_t mtime;
    uint64_t size;
    bool anew;
    int state, result;

    w->look_by_ms = fp_now_ms() + LOOK_MS; /* what is renamed is told by nothing */
    if (!cw_name_matches(w->o->pattern, path) || cw_store_stat(&w->store, path, &mtime, &size) < 0)
        return;
    result = cw_look_is_result(w, path);
    if (result < 0)
        w->look = w->owed = true;
    if (result)
        return;
    state = cw_look_key(w, path, key, sizeof key);
    g = state < 0 ? NULL : cw_groups_find(&w->groups, key);
    f = g ? cw_group_file(g, path) : NULL;
    anew = f && f->version && f->mtime_ns == mtime; /* written once more, and its time set back: no stamp tells that */
    if (f && is_no_news(g, f, mtime, version)) {
        own(w, g, path, mtime, version);
        return;
    }
    g = state < 0 ? NULL : cw_groups_add(&w->groups, key, path, NULL, mtime);
    if (!g) {
        w->look = w->owed = true;
        return;
    }
    g->state = (enum cw_set_state)state;
    own(w, g, path, mtime, version);
    g->told = !anew && is_taken_up(w, &g, key);
    cw_group_touched(g, fp_now_ms());
    if (g->told || g->waits) {
        g->told = true;
        return;
    }
    snprintf(text, sizeof text, "waiting %s", w->o->node);
    cw_mark(&w->store, g, text);
}

void cw_look_for_names(struct watch *w, struct cw_group *g)
{
    char node[CW_NODE_MAX + 1];

    for (size_t i = 0; i < g->nfiles; i++) {
        if (!cw_file_lacks_name(g, i, w->o->splits))
            continue;
        cw_store_owner(&w->store, g->files[i].path, g->files[i].mtime_ns, node, sizeof node);
        (void)cw_file_name(&g->files[i], node);
    }
}

bool cw_is_not_complete(const struct cw_group *g)
{
    return g->state != CW_SET_COMPLETE && g->state != CW_SET_NONE;
}

/* Known to be of the same set as the one before, of which the manager has just said the state, and not written since; and it does not matter now who has closed it, or that is known. */
static bool is_as_before(const struct watch *w, const char *path, int64_t mtime_ns)
{
    const struct cw_group *g = w->seen_key[0] ? cw_groups_find(&w->groups, w->seen_key) : NULL;
    const struct cw_file *file = g ? cw_group_file(g, path) : NULL;

    return file && file->mtime_ns == mtime_ns && (g->phase == CW_DONE || g->phase == CW_FAILED || (g->phase == CW_WAITING && (cw_is_not_complete(g) || file->node[0])));
}

/* One that the pattern names. It is to be converted, unless it turns out that it is done (attend). */
static int seen(void *arg, const char *path, int64_t mtime_ns)
{
    struct watch *w = arg;
    char key[PATH_MAX + 1], node[CW_NODE_MAX + 1];
    struct cw_file *file;
    struct cw_group *g;
    bool known, changed;
    int state, result;

    if (is_as_before(w, path, mtime_ns))
        return 0;
    state = cw_look_key(w, path, key, sizeof key);
    if (state < 0) {
        w->untold |= cw_err_passes(-state);
        return 0;
    }
    strcpy(w->seen_key, key);
    g = cw_groups_find(&w->groups, key);
    known = g != NULL;
    file = g ? cw_group_file(g, path) : NULL;
    result = file ? 0 : cw_look_is_result(w, path);
    w->untold |= result < 0;
    if (result)
        return 0;
    changed = known && (!file || file->mtime_ns != mtime_ns);
    cw_store_owner(&w->store, path, mtime_ns, node, sizeof node);
    g = cw_groups_add(&w->groups, key, path, node[0] ? node : NULL, mtime_ns);
    if (!g)
        return -ENOMEM;
    g->state = (enum cw_set_state)state;
    g->told &= !changed;
    if (!known && state == CW_SET_COMPLETE)
        g->complete_ms = fp_now_ms(); /* all its files come with this look */
    else if (changed && g->phase != CW_WAITING)
        cw_group_touched(g, fp_now_ms());
    return 0;
}

/* False: there may be more, which could not be told, as when the manager is away. */
static bool look_in(struct watch *w, const char *dir)
{
    int rc;

    w->seen_key[0] = '\0';
    w->untold = false;
    rc = cw_store_scan(&w->store, w->o->pattern, dir, seen, w);
    if (rc == -ENOMEM)
        cw_tell_log(FP_AUX_WARN, "out of memory for the names of dumps: only some are converted now");
    return rc != -EAGAIN && !w->untold;
}

bool cw_look_near(struct watch *w, const struct cw_group *g)
{
    char dir[PATH_MAX];

    if (cw_store_set_dir(&w->store, g->files[0].path, g->key, dir, sizeof dir) < 0)
        return false;
    if (!dir[0])
        snprintf(dir, sizeof dir, "%.*s", (int)(cw_name_base(g->files[0].path) - g->files[0].path), g->files[0].path);
    if (dir[0] && dir[strlen(dir) - 1] == '/')
        dir[strlen(dir) - 1] = '\0';
    return look_in(w, dir[0] ? dir : NULL);
}

void cw_look_at_all(struct watch *w)
{
    uint64_t began = cw_breath_ms(&w->breath);

    w->look_by_ms = 0;
    w->breath.hurry |= w->missed;
    w->missed = false;
    w->look = !look_in(w, NULL);
    w->owed &= w->look;
    w->look_again_ms = !w->look ? 0 : w->look_again_ms ? 2 * w->look_again_ms : CW_LOOK_MS;
    if (w->look_again_ms > REST_MAX_MS)
        w->look_again_ms = REST_MAX_MS;
    w->look_rest_ms = cw_rest_ms(w, began, w->groups.nfiles);
    if (w->look_rest_ms < w->look_again_ms)
        w->look_rest_ms = w->look_again_ms;
    w->looked_ms = fp_now_ms();
}
