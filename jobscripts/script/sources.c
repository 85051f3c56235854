/*
 * Names in the store of what is staged in (see sources.h). Called by fp-job check, and by fp-job start before there is a store.
 *
 * The store takes a file that it has with the same size and time for the one that is asked for, so of two sources with one name the second would be missing, and nothing said so. Each is
 * one name below the directory to=: what lies in directories is not looked at, which may be millions of files on a file system that is slow to list them.
 */
#include "jobscripts/script/sources.h"

#include <errno.h>
#include <limits.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/log.h"
#include "jobscripts/found.h"
#include "jobscripts/jobdir.h"

struct source {
    char *name; /* in the store, from its top */
    char *path;
};

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct source *)a)->name, ((const struct source *)b)->name);
}

static void free_source(void *one)
{
    struct source *s = one;

    free(s->name);
    free(s->path);
    free(s);
}

/* "./in/", "/in" and "in" are one. */
static const char *plain_to(const char *to)
{
    if (!to)
        return "";
    if (strncmp(to, "./", 2) == 0)
        to += 2;
    return strcmp(to, ".") == 0 ? "" : to;
}

/* `whole`: its name is all of the path. */
static struct source *make_source(const char *to, const char *path, bool whole)
{
    struct source *s = calloc(1, sizeof *s);
    char plain[PATH_MAX], name[2 * PATH_MAX + 2];
    const char *last;

    snprintf(plain, sizeof plain, "%s", path);
    job_path_plain(plain);
    last = whole ? NULL : strrchr(plain, '/');
    snprintf(name, sizeof name, "/%s/%s", plain_to(to), last ? last + 1 : plain);
    job_path_plain(name);
    if (!s || !(s->name = strdup(name)) || !(s->path = strdup(plain)))
        abort();
    return s;
}

/* The path that has this name already, which may be the same one, until they are freed; NULL: none, and this one has it. */
static const char *add(void **all, struct source *one)
{
    struct source **found = tsearch(one, all, compare);

    if (!found)
        abort();
    if (*found == one)
        return NULL;
    free_source(one);
    return (*found)->path;
}

/* ---------------------------------------------------------------- as text */

/* What its last part is called is known. */
static bool is_text(const char *path)
{
    const char *last = strrchr(path, '/');

    return !strpbrk(last ? last : path, "$*?[");
}

static bool is_same(const char *a, const char *plain_b)
{
    char plain[PATH_MAX];

    snprintf(plain, sizeof plain, "%s", a);
    job_path_plain(plain);
    return strcmp(plain, plain_b) == 0;
}

/* Of patterns only the same text is the same for sure. */
static void check_word(const struct job_stage *s, const struct job_word *w, void **all, struct job_findings *f)
{
    const char *other = add(all, make_source(s->to, w->text, !is_text(w->text)));

    if (other && is_same(w->text, other))
        job_error(f, w->at, "%s is named twice for the same place", w->text);
    else if (other)
        job_error(f, w->at, "%s and %s would have the same name in the store: give one of them a #FP stage-in line with another to=", other, w->text);
}

void job_sources_check(const struct job_declared *d, struct job_findings *f)
{
    void *all = NULL;

    for (size_t i = 0; i < d->nin; i++)
        for (size_t k = 1; k < d->in[i].line->nwords; k++)
            if (strchr("/$", d->in[i].line->words[k].text[0])) /* others are to=, or mistakes */
                check_word(&d->in[i], &d->in[i].line->words[k], &all, f);
    tdestroy(all, free_source);
}

/* ---------------------------------------------------------------- as files */

/* What one file is twice by patterns that overlap is no mistake. */
static int look_at_one(const char *to, const char *path, void **all)
{
    const char *other = add(all, make_source(to, path, false));

    if (!other || is_same(path, other))
        return 0;
    FP_ERROR("#FP stage-in: %s and %s would have the same name in the store: give one of them a line with another to=", other, path);
    return -EEXIST;
}

static int look_at_pattern(const struct job_stage *s, const char *pattern, void **all)
{
    char path[PATH_MAX], to[PATH_MAX] = "";
    struct job_found g = {0};
    int rc = job_expand(path, pattern) || path[0] != '/' || (s->to && job_expand(to, s->to)) ? -EINVAL : job_found_add(&g, path, 0, JOB_ANSWER_MS);

    for (size_t i = 0; rc == 0 && i < g.n; i++)
        rc = look_at_one(to, g.paths[i], all);
    job_found_fini(&g);
    return rc;
}

int job_sources_look(const struct job_declared *d)
{
    void *all = NULL;
    int rc = 0;

    for (size_t i = 0; rc != -EEXIST && rc != -ETIMEDOUT && i < d->nin; i++)
        for (size_t k = 0; rc != -EEXIST && rc != -ETIMEDOUT && k < d->in[i].paths.count; k++)
            rc = look_at_pattern(&d->in[i], d->in[i].paths.items[k], &all);
    tdestroy(all, free_source);
    return rc == -EEXIST ? rc : 0;
}
