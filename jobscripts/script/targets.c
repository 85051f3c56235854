/*
 * Targets that lie one in the other (see targets.h). Called by fp-job check, and before a job's store is started.
 *
 * The manager notes of each file in which target it is, and by which path: two targets that have the same files in them it does not take (drain_rows.c). The second is
 * named when it is needed first: results that are to go below the directory of drain= would stay in a store that is removed then. A directory that is staged in
 * is no such target if the user can't write to it.
 */
#include "jobscripts/script/targets.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "jobscripts/jobdir.h"
#include "jobscripts/script/paths.h"

struct target {
    char path[PATH_MAX];
    struct job_place at;
    bool is_in; /* of stage-in */
};

struct targets {
    struct target *list; /* in the order in which the store hears of them */
    size_t n;
};

static void add(struct targets *t, const char *path, struct job_place at, bool is_in)
{
    struct target *one;

    t->list = reallocarray(t->list, t->n + 1, sizeof *t->list);
    if (!t->list)
        abort();
    one = &t->list[t->n++];
    *one = (struct target){.at = at, .is_in = is_in};
    if (is_in)
        job_path_of_pattern(path, one->path);
    else
        snprintf(one->path, sizeof one->path, "%s", path);
    job_path_plain(one->path);
}

static struct job_place value_place(const struct job_line *l, const struct job_word *w)
{
    return (struct job_place){.line = l->line, .column = w->value_column};
}

static void collect(const struct job_declared *d, struct targets *t)
{
    const struct job_auxapp *drain = job_declared_drain(d);
    const struct job_word *to = drain ? job_line_word(drain->line, "to") : NULL;

    if (to)
        add(t, to->text + to->value, value_place(drain->line, to), false);
    for (size_t i = 0; i < d->nin; i++)
        for (size_t k = 1; k < d->in[i].line->nwords; k++)
            if (strchr("/$", d->in[i].line->words[k].text[0])) /* others are to=, or mistakes */
                add(t, d->in[i].line->words[k].text, d->in[i].line->words[k].at, true);
    for (size_t i = 0; i < d->nout; i++)
        if (d->out[i].to && (to = job_line_word(d->out[i].line, "to")))
            add(t, d->out[i].to, value_place(d->out[i].line, to), false);
}

/* a lies in b, which is another one. */
static bool is_in(const char *a, const char *b)
{
    size_t n = strlen(b);

    return strncmp(a, b, n) == 0 && (a[n] == '/' || strcmp(b, "/") == 0) && a[n];
}

/* Would the store make it a target? */
static bool is_used(const struct target *t, const struct job_site *site)
{
    return !t->is_in || (!site->words && !strchr(t->path, '$') && job_answers(t->path, JOB_ANSWER_MS) == 0 && access(t->path, W_OK | X_OK) == 0);
}

void job_targets_check(const struct job_declared *d, const struct job_site *site, struct job_findings *f)
{
    struct targets t = {0};
    char buf[JOB_LINE_NAME_BYTES];

    collect(d, &t);
    for (size_t i = 1; i < t.n; i++)
        for (size_t k = 0; k < i; k++) {
            const char *a = t.list[i].path, *b = t.list[k].path;

            if ((!is_in(a, b) && !is_in(b, a)) || !is_used(&t.list[k], site))
                continue;
            job_error(f, t.list[i].at, "%s and %s (%s) lie one in the other, and the store takes only one of them: name one of them twice, or one beside the other", a, b,
                      job_line_name(t.list[k].at.line, buf));
            break;
        }
    free(t.list);
}
