/*
 * Whose result has a name (results.h). Called by watch.c before a conversion begins.
 *
 * A result says in an attribute what it was made of, so the result of another dump, which into= may give the same name, is told from an earlier one of this dump, and nothing that is none is replaced.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "convert/watch/marks.h"
#include "convert/watch/names.h"
#include "convert/watch/results.h"

const char *cw_result_source(const struct cw_group *g, const char *dir)
{
    return dir[0] ? dir : g->files[0].path;
}

void cw_result_of(const struct cw_group *g, uint64_t stamp, const char *dir, char of[CV_OF_MAX])
{
    char sample[CW_SAMPLE_BYTES];

    cw_group_sample(g, sample);
    snprintf(of, CV_OF_MAX, "%016" PRIx64 ":%zu:%s %s", stamp, g->nfiles, sample, cw_result_source(g, dir));
}

/* Of these files all are in the group. */
static bool has_all(const struct cw_group *g, const char *of)
{
    char sample[CW_SAMPLE_BYTES] = "";
    size_t files = 0;

    return sscanf(of, "%*[0-9a-f]:%zu:%128[0-9a-f]", &files, sample) < 1 || (files <= g->nfiles && cw_group_has_sample(g, sample));
}

static int is_others(const struct cw_store *s, const struct cw_options *o, const struct cw_group *g, const char *dir, const char *path, char *why, size_t size)
{
    char of[CV_OF_MAX];
    const char *source;
    int64_t mtime;
    uint64_t bytes;
    int rc;

    for (size_t i = 0; i < g->nfiles; i++)
        if (strcmp(g->files[i].path, path) == 0) {
            snprintf(why, size, "the result would have the name of the dump: say into=DIRECTORY");
            return 1;
        }
    rc = cw_store_stat(s, path, &mtime, &bytes);
    if (rc == -ENOENT || cw_err_passes(-rc))
        return rc == -ENOENT ? 0 : rc;
    if (rc == -ENOTDIR) {
        snprintf(why, size, "%.400s can't be made: something that is no directory has the name of a directory of it", path);
        return 1;
    }
    rc = cw_store_get(s, path, CW_OF, of, sizeof of);
    if (cw_err_passes(-rc))
        return rc;
    source = cv_of_source(of);
    if (source && strcmp(source, cw_result_source(g, dir)) == 0) {
        if (!o->keep_none || has_all(g, of))
            return 0;
        snprintf(why, size, "%.400s holds files of this dump that were removed (keep=none), and would be lost: its dump was removed, and %zu file%s came later. Remove it if it is of no use any more", path, g->nfiles,
                 g->nfiles == 1 ? "" : "s");
        return 1;
    }
    snprintf(why, size, "%.400s is there already, and is %s%.400s: say into=DIRECTORY, or remove it; the next mount, or who writes the dump anew, has it converted", path, source ? "the result of " : "no result of this dump", source ? source : "");
    return 1;
}

int cw_result_is_taken(const struct cw_store *s, const struct cw_options *o, const struct cw_group *g, const char *dir, const char *result, char *why, size_t size)
{
    char xdmf[PATH_MAX];
    int rc = is_others(s, o, g, dir, result, why, size);

    return rc || !o->xdmf || !cw_name_xdmf(result, o->ending, xdmf) ? rc : is_others(s, o, g, dir, xdmf, why, size);
}

int cw_result_remove(const struct cw_store *s, const char *result, const char *of)
{
    char name[PATH_MAX];
    int lock, rc;

    if (!cw_store_path(s, result, name))
        return -ENAMETOOLONG;
    lock = cv_result_lock(name, false);
    if (lock < 0)
        return lock;
    rc = cv_result_is_of(name, of, NULL);
    if (rc == 0 && unlink(name) < 0)
        rc = -errno;
    cv_result_unlock(name, lock);
    return rc == -ENOENT ? 0 : rc;
}

bool cw_result_holds(const struct cw_store *s, const char *result, uint64_t stamp)
{
    char value[CV_OF_MAX], its[CW_STAMP_BYTES];
    int64_t mtime;
    uint64_t size;

    if (cw_store_stat(s, result, &mtime, &size) < 0 || size == 0)
        return false;
    cw_store_get(s, result, CV_CONVERTED, value, sizeof value);
    if (!value[0])
        return false;
    cw_store_get(s, result, CW_OF, value, sizeof value);
    snprintf(its, sizeof its, "%016" PRIx64, stamp);
    return strncmp(value, its, CW_STAMP_BYTES - 1) == 0;
}
