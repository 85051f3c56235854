/*
 * How far the conversion of a dump is, in attributes that all nodes and people see (marks.h). Called by watch.c.
 *
 * A mark is of the directory that is the set, so that one call says it of thousands of files; of files that lie in no such directory each has it.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "convert/watch/marks.h"

/* Where no mark can be, now or later (the file is gone, or has no room for one), it is as good as written: nobody comes back for it. */
static int put_one(const struct cw_store *s, const char *path, const char *name, const char *text)
{
    int rc = cw_store_put(s, path, name, text);

    return rc == -ENOSPC || rc == -EDQUOT || !cw_err_passes(-rc) ? 0 : rc;
}

int cw_mark_put(const struct cw_store *s, const struct cw_group *g, const char *name, const char *text)
{
    char dir[PATH_MAX], cut[CW_MARK_MAX];
    int rc = cw_store_set_dir(s, g->files[0].path, g->key, dir, sizeof dir);

    snprintf(cut, sizeof cut, "%s", text);
    if (rc < 0 || dir[0])
        return rc < 0 ? rc : put_one(s, dir, name, cut);
    for (size_t i = 0; i < g->nfiles && rc == 0; i++)
        rc = put_one(s, g->files[i].path, name, cut);
    return rc;
}

int cw_mark(const struct cw_store *s, struct cw_group *g, const char *text)
{
    int rc = cw_mark_put(s, g, CW_MARK, text);

    g->told = rc == 0;
    g->waits = g->told && strncmp(text, "waiting", 7) == 0;
    return rc;
}

void cw_mark_get(const struct cw_store *s, const struct cw_group *g, const char *name, char *text, size_t size)
{
    char dir[PATH_MAX];

    text[0] = '\0';
    if (cw_store_set_dir(s, g->files[0].path, g->key, dir, sizeof dir) == 0)
        cw_store_get(s, dir[0] ? dir : g->files[0].path, name, text, size);
}

bool cw_mark_begins(const char *text, const char *word)
{
    size_t n = strlen(word);

    return strncmp(text, word, n) == 0 && (text[n] == ' ' || text[n] == '\0');
}

int cw_mark_put_of(const struct cw_store *s, const struct cw_group *g, uint64_t stamp, uint64_t declared)
{
    char of[2 * CW_STAMP_BYTES];

    snprintf(of, sizeof of, "%016" PRIx64 " %016" PRIx64, stamp, declared);
    return cw_mark_put(s, g, CW_OF, of);
}

bool cw_mark_is_by(const struct cw_store *s, const struct cw_group *g, uint64_t declared)
{
    char of[2 * CW_STAMP_BYTES], so[CW_STAMP_BYTES];
    const char *its;

    cw_mark_get(s, g, CW_OF, of, sizeof of);
    its = strchr(of, ' ');
    snprintf(so, sizeof so, "%016" PRIx64, declared);
    return !its || strcmp(its + 1, so) == 0;
}

bool cw_mark_says(const struct cw_store *s, const struct cw_group *g, const char *word)
{
    char text[CW_MARK_MAX], of[2 * CW_STAMP_BYTES], now[CW_STAMP_BYTES];

    cw_mark_get(s, g, CW_MARK, text, sizeof text);
    if (!cw_mark_begins(text, word))
        return false;
    cw_mark_get(s, g, CW_OF, of, sizeof of);
    snprintf(now, sizeof now, "%016" PRIx64, cw_group_stamp(g));
    return strncmp(of, now, CW_STAMP_BYTES - 1) == 0;
}

/* As when they came before they were known to be of a set: to ask for each of thousands would take as many requests. */
static bool have_marks_of_their_own(const struct cw_store *s, const struct cw_groups *groups, const struct cw_group *g)
{
    char its[PATH_MAX + 1], text[CW_MARK_MAX] = "";

    for (size_t i = 0; i < g->nfiles; i++) {
        snprintf(its, sizeof its, "/%s", g->files[i].path);
        if (cw_groups_find(groups, its))
            return true;
    }
    return cw_store_get(s, g->files[0].path, CW_MARK, text, sizeof text) == 0 && text[0];
}

struct cw_group *cw_marks_of_files_end(const struct cw_store *s, struct cw_groups *groups, struct cw_group *g)
{
    char key[PATH_MAX + 1], its[PATH_MAX + 1];

    if (!have_marks_of_their_own(s, groups, g))
        return g;
    snprintf(key, sizeof key, "%s", g->key);
    for (size_t i = 0; i < g->nfiles; i++) {
        struct cw_group *one;

        cw_store_take_off(s, g->files[i].path, CW_MARK);
        snprintf(its, sizeof its, "/%s", g->files[i].path);
        one = cw_groups_find(groups, its);
        if (!one || one->phase == CW_RUNNING)
            continue;
        cw_groups_drop(groups, one);
        g = cw_groups_find(groups, key);
    }
    return g;
}
