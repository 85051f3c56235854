/*
 * Whether a job could do what its script declares (see check.h). Called by fp-job check, and by fp-job start before anything runs.
 *
 * What is looked at here is the machine where it is called, a login node: a directory of the parallel file system is the same there as on the nodes, the
 * nodes' own disks are not, so ssd= is left to the start. What a mistake costs decides between error and warning: with an error the job would not run,
 * or would not keep what it is said to keep.
 */
#include "jobscripts/script/check.h"

#include <errno.h>
#include <glob.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fp/auxapp.h"
#include "fp/limited.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/script/auxcheck.h"
#include "jobscripts/script/convertcheck.h"
#include "jobscripts/script/drainwords.h"
#include "jobscripts/script/paths.h"
#include "jobscripts/script/sources.h"
#include "jobscripts/script/targets.h"

#define PLUGIN_MS 10000u /* one that takes longer to load hangs */

/* ---------------------------------------------------------------- aux-apps */

/* Where the word is named in what the plugin says; NULL: nowhere. */
static const char *named(const struct job_word *w, const char *why)
{
    char name[80];
    const char *with_value, *alone;

    snprintf(name, sizeof name, "%.*s", w->value ? (int)w->value : 60, w->text); /* "hash=" of "dedup: hash=sha9: ..." */
    with_value = w->value ? strstr(why, name) : NULL;
    name[strcspn(name, "=")] = '\0';
    snprintf(name + strlen(name), sizeof name - strlen(name), "'"); /* "has no option 'hsah'" */
    alone = strstr(why, name);
    return !with_value || (alone && alone < with_value) ? alone : with_value;
}

/* The word of the line that the complaint is about: the first that it names ("did you mean" names another), or the name of the aux-app. */
static size_t word_of(const struct job_line *l, const char *why)
{
    const char *first = NULL;
    size_t found = 1;

    for (size_t i = 2; i < l->nwords; i++) {
        const char *here = named(&l->words[i], why);

        if (here && (!first || here < first)) {
            first = here;
            found = i;
        }
    }
    return found;
}

static struct job_place place_of(const struct job_line *l, const char *why)
{
    return l->words[word_of(l, why)].at;
}

/* What hides data leaves nothing to be found, or made smaller, by those behind it. */
static void check_order(const struct job_auxapp *a, const struct job_auxanswer *one, const struct job_auxapp *before, struct job_findings *f)
{
    char buf[JOB_LINE_NAME_BYTES];

    if (strcmp(one->name, "dedup") == 0)
        job_error(f, a->line->words[1].at, "%s comes behind %s (%s), after which no two chunks are the same: declare it before", a->name, before->name, job_line_name(before->line->line, buf));
    else if ((one->flags & FP_AUX_CODES) && !(one->flags & FP_AUX_HIDES))
        job_error(f, a->line->words[1].at, "%s comes behind %s (%s), which leaves it nothing to do: declare it before", a->name, before->name, job_line_name(before->line->line, buf));
}

static void check_needs(const struct job_declared *d, const struct job_site *site, const struct job_auxapp *a, const struct job_auxanswer *one, struct job_findings *f)
{
    char buf[JOB_LINE_NAME_BYTES];
    const char *partial;

    if (site->nodes && one->nodes > site->nodes)
        job_error(f, place_of(a->line, "nodes="), "%s is to run on %u nodes, and the job has %u", a->name, one->nodes, site->nodes);
    if (site->nodes && (partial = job_aux_partial_why(one, site->nodes)))
        job_error(f, place_of(a->line, "nodes="), "%s is to run on %u of %u nodes, but %s", a->name, one->nodes, site->nodes, partial);
    if (d->cores.kind == JOB_CORES_COUNT && one->cores_min > d->cores.max)
        job_error(f, place_of(a->line, "cores="), "%s needs %u service cores, and #FP cores (%s) gives %u", a->name, one->cores_min, job_line_name(d->cores.at.line, buf), d->cores.max);
}

static void check_auxapps(const struct job_declared *d, const struct job_site *site, struct job_findings *f)
{
    struct job_auxanswer all[JOB_AUXAPPS_MAX];
    size_t hides = SIZE_MAX;

    for (size_t i = 0; i < d->nauxapps; i++) {
        const struct job_auxapp *a = &d->auxapps[i];
        char why[JOB_AUX_WHY_BYTES] = "";

        if (a == job_declared_drain(d))
            continue; /* check_drain */
        if (job_path_variables_why(a->name)) {
            job_error(f, a->line->words[1].at, "'%s': %s", a->name, job_path_variables_why(a->name));
            continue;
        }
        if (strchr(a->name, '$') || (site->words && strchr(a->name, '/')))
            continue; /* which plugin that is shows on the nodes; one of the user's is not run by anybody else */
        if (job_auxcheck(a->text, site->plugin_dir, PLUGIN_MS, &all[i], why)) {
            job_error(f, place_of(a->line, why), "%s", why);
            continue;
        }
        if (hides != SIZE_MAX)
            check_order(a, &all[i], &d->auxapps[hides], f);
        else if (all[i].flags & FP_AUX_HIDES)
            hides = i;
        check_needs(d, site, a, &all[i], f);
    }
}

/* ---------------------------------------------------------------- nodes */

static uint32_t listed(const char *list)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    int n;

    if (!set || hwloc_bitmap_list_sscanf(set, list))
        abort();
    n = hwloc_bitmap_weight(set);
    hwloc_bitmap_free(set);
    return n > 0 ? (uint32_t)n : 0;
}

static void check_cores(const struct job_declared *d, const struct job_site *site, struct job_findings *f)
{
    void (*tell)(struct job_findings *, struct job_place, const char *, ...) = site->cores_are_here ? job_warning : job_error;
    const char *whose = site->cores_are_here ? "this machine" : "a node of the job";

    if (site->core_spec && d->cores.kind == JOB_CORES_COUNT && d->cores.min > site->core_spec)
        job_error(f, d->cores.at, "%u service cores, and --core-spec=%u leaves out fewer of each node: both say how many there are", d->cores.min, site->core_spec);
    if (d->cores.kind == JOB_CORES_COUNT && site->cores && d->cores.min >= site->cores)
        tell(f, d->cores.at, "%u service cores leave none for the application: %s has %u", d->cores.min, whose, site->cores);
    if (d->cores.kind == JOB_CORES_LIST && site->cpus && d->cores.highest >= site->cpus)
        tell(f, d->cores.at, "there is no CPU %u: %s has 0 to %u", d->cores.highest, whose, site->cpus - 1);
    else if (d->cores.kind == JOB_CORES_LIST && site->cpus && listed(d->cores.list) >= site->cpus)
        tell(f, d->cores.at, "these CPUs leave none for the application: %s has %u", whose, site->cpus);
}

/* CPUs that tasks have on the smallest node beside the service cores; 0: not known. */
static uint32_t cpus_left(const struct job_declared *d, const struct job_site *site)
{
    uint32_t threads = site->cores ? site->cpus / site->cores : 0, service = 0;

    if (d->cores.kind == JOB_CORES_COUNT)
        service = d->cores.min * threads;
    else if (d->cores.kind == JOB_CORES_SHARE)
        service = (site->cores * d->cores.percent > 100 ? site->cores * d->cores.percent / 100 : 1) * threads;
    return service < site->cpus ? site->cpus - service : 0;
}

/* Slurm counts service cores as the job's, and lets tasks have all of them. */
static void check_tasks(const struct job_declared *d, const struct job_site *site, struct job_findings *f)
{
    void (*tell)(struct job_findings *, struct job_place, const char *, ...) = site->cores_are_here ? job_warning : job_error;
    const struct job_sbatch *s = site->sbatch;
    uint32_t tasks = s && s->node_tasks ? s->node_tasks : 1, each = s && s->task_cpus ? s->task_cpus : 1, left = cpus_left(d, site);
    struct job_place at = s && s->node_tasks_at.line ? s->node_tasks_at : s ? s->task_cpus_at : (struct job_place){0};
    uint64_t all = (uint64_t)tasks * each;

    if (!at.line || s->overcommit || !site->cpus)
        return;
    if (each > site->most_cpus)
        tell(f, s->task_cpus_at.line ? s->task_cpus_at : at, "%u CPUs for a task: %s %u", each, site->cores_are_here ? "this machine has" : "no node of the job has more than", site->most_cpus);
    else if (all > site->most_cpus)
        tell(f, at, "%u tasks with %u CPU%s each on a node: %s %u", tasks, each, each == 1 ? "" : "s", site->cores_are_here ? "this machine has" : "no node of the job has more than", site->most_cpus);
    else if (left && all > left && d->cores.kind != JOB_CORES_NONE)
        job_warning(f, at, "%u task%s with %u CPU%s each on a node: beside the service cores it has %u CPUs for them, which they share", tasks, tasks == 1 ? "" : "s", each, each == 1 ? "" : "s", left);
}

/* ---------------------------------------------------------------- directories */

static struct job_place value_place(const struct job_line *l, const char *name)
{
    const struct job_word *w = job_line_word(l, name);

    return w ? (struct job_place){.line = l->line, .column = w->value_column} : l->words[0].at;
}

static int look_at(const void *pattern)
{
    glob_t g;

    (void)glob(pattern, GLOB_NOSORT, NULL, &g);
    return 0;
}

int job_answers(const char *pattern, uint64_t limit_ms)
{
    return fp_limited(look_at, pattern, limit_ms);
}

/* The directory, or the one that it would be made in, is here and can be written. */
static void check_target(const char *path, struct job_place at, struct job_findings *f)
{
    struct stat st;
    char above[4096];
    char *slash;

    if (strchr(path, '$'))
        return;
    if (job_answers(path, JOB_ANSWER_MS) == -ETIMEDOUT) {
        job_error(f, at, "%s: its file system has not answered for %u s", path, JOB_ANSWER_MS / 1000);
        return;
    }
    if (stat(path, &st) == 0) {
        if (!S_ISDIR(st.st_mode))
            job_error(f, at, "%s is no directory", path);
        else if (access(path, W_OK | X_OK))
            job_error(f, at, "%s: you can't write there: %s", path, strerror(errno));
        return;
    }
    if (errno != ENOENT) {
        job_error(f, at, "%s: %s", path, strerror(errno));
        return;
    }
    snprintf(above, sizeof above, "%s", path);
    for (size_t n = strlen(above); n > 1 && above[n - 1] == '/'; n--)
        above[n - 1] = '\0';
    slash = strrchr(above, '/');
    slash[slash == above] = '\0';
    if (stat(above, &st) || !S_ISDIR(st.st_mode))
        job_error(f, at, "%s: there is no such directory, nor the one above it", path);
    else if (access(above, W_OK | X_OK))
        job_error(f, at, "%s is not there, and you can't make it: %s: %s", path, above, strerror(errno));
    else
        job_warning(f, at, "%s is not there yet: fp-job start makes it", path);
}

/* As fpctl drain set takes it at the start, from the same parser; that tells one mistake, so it is asked again without each word that was one. */
static void check_policy(const struct job_line *line, struct job_findings *f)
{
    struct job_line l = {.words = calloc(line->nwords, sizeof *l.words), .nwords = line->nwords, .line = line->line};
    char text[FP_DRAIN_TEXT_MAX], why[FP_DRAIN_WHY_MAX] = "its words are too long";
    struct fp_drain_policy p;
    size_t from = 1;

    for (size_t i = 2; i < line->nwords; i++)
        if (job_path_variables_why(line->words[i].text))
            job_error(f, line->words[i].at, "'%s': %s", line->words[i].text, job_path_variables_why(line->words[i].text));
    if (!l.words)
        abort();
    memcpy(l.words, line->words, l.nwords * sizeof *l.words);
    while (job_drain_words(&l, job_drain_stand_in, text) || fp_drain_parse(text, &p, why)) {
        size_t i = word_of(&l, why);

        if (i < from)
            break; /* what it misses is what was wrong */
        job_error(f, l.words[i].at, "%s", why);
        if (i == 1)
            break;
        memmove(l.words + i, l.words + i + 1, (--l.nwords - i) * sizeof *l.words);
        from = i;
    }
    free(l.words);
}

static void check_drain(const struct job_declared *d, const struct job_site *site, struct job_findings *f)
{
    const struct job_auxapp *drain = job_declared_drain(d);
    const struct job_word *to = drain ? job_line_word(drain->line, "to") : NULL;

    if (drain)
        check_policy(drain->line, f);
    if (to && to->text[to->value] == '/' && !site->words)
        check_target(to->text + to->value, value_place(drain->line, "to"), f);
}

static void check_stage_out(const struct job_declared *d, const struct job_site *site, struct job_findings *f)
{
    for (size_t i = 0; i < d->nout; i++) {
        const struct job_stage *s = &d->out[i];

        if (s->to && !site->words)
            check_target(s->to, value_place(s->line, "to"), f);
        else if (!s->to && !job_declared_drain(d))
            job_error(f, s->line->words[0].at, "it does not say where to: write to=DIRECTORY, or declare #FP auxapp drain to=DIRECTORY");
    }
}

static struct job_place path_place(const struct job_line *l, const char *path)
{
    for (size_t i = 1; i < l->nwords; i++)
        if (l->words[i].text == path)
            return l->words[i].at;
    return l->words[0].at;
}

/* What can't be read is not brought in; what it lies in need not be writable. */
static void check_readable(const glob_t *g, struct job_place at, struct job_findings *f)
{
    for (size_t i = 0; i < g->gl_pathc; i++) {
        struct stat st;
        bool is_dir = stat(g->gl_pathv[i], &st) == 0 && S_ISDIR(st.st_mode);

        if (access(g->gl_pathv[i], is_dir ? R_OK | X_OK : R_OK) == 0)
            continue;
        job_error(f, at, "%s: you can't read it: %s", g->gl_pathv[i], strerror(errno));
        return;
    }
}

static void check_stage_in(const struct job_declared *d, const struct job_site *site, struct job_findings *f)
{
    for (size_t i = 0; i < d->nin; i++)
        for (size_t k = 0; k < d->in[i].paths.count; k++) {
            const char *path = d->in[i].paths.items[k];
            struct job_place at = path_place(d->in[i].line, path);
            glob_t g;

            if (strchr(path, '$'))
                continue;
            if (site->words)
                continue;
            if (job_answers(path, JOB_ANSWER_MS) == -ETIMEDOUT) {
                job_error(f, at, "%s: its file system has not answered for %u s", path, JOB_ANSWER_MS / 1000);
                continue;
            }
            int rc = glob(path, GLOB_NOSORT, NULL, &g);

            if (rc == GLOB_NOMATCH && !d->in[i].optional)
                job_error(f, at, "there is no %s", path);
            else if (rc && rc != GLOB_NOMATCH)
                job_error(f, at, "%s can't be looked at: %s", path, strerror(rc == GLOB_NOSPACE ? ENOMEM : errno));
            if (rc == 0) {
                check_readable(&g, at, f);
                globfree(&g);
            }
        }
}

/* A store that is to be found again needs a place that stays. */
static void check_persistent(const struct job_declared *d, struct job_findings *f)
{
    const struct job_store *s = &d->store;
    const char *word = s->persistent ? "persistent" : s->on_failure == JOB_FAILURE_KEEP ? "on-failure" : NULL;

    if (!word)
        return;
    if (strncmp(s->backend, "memory", 6) == 0)
        job_error(f, value_place(d->store_line, "backend"), "what is in memory does not outlive the job: %s= needs backend=dir", word);
    if (strcmp(s->ssd, "$TMPDIR") == 0)
        job_warning(f, value_place(d->store_line, word), "many sites remove $TMPDIR when a job ends: name a directory that stays, such as ssd=/local/$USER");
}

/* What variables stand for shows here, too, mostly. */
static void check_mount(const struct job_declared *d, struct job_findings *f)
{
    const char *home = getenv("HOME"), *why;
    char mount[PATH_MAX], own[PATH_MAX];

    if (!d->store_line || job_path_mount_why(d->store.mount) || job_expand(mount, d->store.mount))
        return;
    job_path_plain(mount);
    snprintf(own, sizeof own, "%s", home ? home : "");
    job_path_plain(own);
    why = strcmp(mount, own) == 0 ? job_path_mount_why("$HOME") : job_path_mount_why(mount);
    if (why)
        job_error(f, value_place(d->store_line, "mount"), "%s: %s", mount, why);
}

/* All of the job's time would be kept for its end. */
static void check_reserve(const struct job_declared *d, const struct job_site *site, struct job_findings *f)
{
    uint64_t limit_s = site->sbatch ? site->sbatch->time_s : 0;

    if (limit_s && d->store_line && job_line_word(d->store_line, "reserve") && d->store.reserve_ms / 1000 >= limit_s)
        job_error(f, value_place(d->store_line, "reserve"), "the job has %llu min in all (--time), which leaves none for the application: give less", (unsigned long long)(limit_s / 60));
}

void job_check(const struct job_declared *d, const struct job_site *site, struct job_findings *f)
{
    if (!d->script.nlines && !f->errors && !site->unseen)
        job_warning(f, (struct job_place){.line = 1}, "there is no #FP line in this script: it declares nothing");
    check_persistent(d, f);
    check_mount(d, f);
    check_reserve(d, site, f);
    check_auxapps(d, site, f);
    check_cores(d, site, f);
    check_tasks(d, site, f);
    check_drain(d, site, f);
    job_check_convert(d, site, f);
    check_stage_in(d, site, f);
    check_stage_out(d, site, f);
    job_targets_check(d, site, f);
    job_sources_check(d, f);
    job_findings_sort(f);
}
