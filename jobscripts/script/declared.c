/*
 * What #FP lines mean (see declared.h). Pure but for memory; called by every command of fp-job before anything else.
 *
 * Values are checked by the same functions as those of the programs that get them in the end (fp/opt.h), so that a size which fp-benefactor would refuse
 * on 400 nodes is refused on the login node. Each word is set by itself: a mistake in one does not hide those behind it.
 */
#include "jobscripts/script/declared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/backend.h"
#include "jobscripts/script/paths.h"

static const char *check_backend(const char *text)
{
    static char why[FP_BACKEND_WHY_BUF];
    struct fp_backend_spec spec;

    return fp_backend_parse(text, &spec, why) ? why : NULL;
}

/* As fp-manager takes it. */
static const char *check_chunk_size(const char *text)
{
    uint64_t n;

    return fp_parse_size(text, &n, NULL) == 0 && n & (n - 1) ? "must be a power of two, from 64KiB to 16MiB" : NULL;
}

const char *job_store_name_why(const char *text)
{
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");

    return n && n < 64 && !text[n] ? NULL : "a name has letters, digits, - and _, at most 63 of them";
}

static const char *const failures[] = {"remove", "keep", NULL};
static const struct fp_opt store_words[] = {
    FP_OPT_STRING(struct job_store, ssd, "ssd", "$TMPDIR", "Directory on the SSD of each node, in which the node's part of the store lies, as fpstore-JOB, which is made and removed at the end. It is there, and the user can write to it.",
                  .check = job_path_place_why, .arg = "DIR"),
    FP_OPT_SIZE(struct job_store, size_bytes, "size", NULL, FP_MIB(64), FP_TIB(1024), "What each node contributes. By default, nine tenths of what is free there."),
    FP_OPT_STRING(struct job_store, mount, "mount", "/AggregateSSDstore", "Where the store is mounted on each node: an empty directory, or one that can be made.", .check = job_path_mount_why, .arg = "DIR"),
    FP_OPT_STRING(struct job_store, backend, "backend", "dir", "Where chunks lie: dir, in files below ssd=; memory; or on an emulated device, such as emulated:x25e.",
                  .check = check_backend, .arg = "KIND"),
    FP_OPT_SIZE(struct job_store, pool_bytes, "pool", "512MiB", FP_MIB(16), FP_TIB(4), "Memory for chunks on each node."),
    FP_OPT_CLOSE(struct job_store, close),
    FP_OPT_SIZE(struct job_store, chunk_size_bytes, "chunk-size", NULL, FP_KIB(64), FP_MIB(16), "Chunk size of new files, a power of two.", .check = check_chunk_size),
    FP_OPT_INT(struct job_store, stripe, "stripe", "0", 0, 64, "Over how many nodes the chunks of a new file are spread. 0: the manager's default."),
    FP_OPT_STRING(struct job_store, persistent, "persistent", NULL, "What is in the store outlives the job, and your next job that gives this name finds it, on the same nodes (more may be added). No program runs between jobs.",
                  .check = job_store_name_why, .arg = "NAME"),
    FP_OPT_ENUM(struct job_store, on_failure, "on-failure", "remove", failures,
                "What becomes of the store if not all data was brought out of it (stage-out, drain), or the job was killed before. keep: it stays on the SSDs, and the job's output says how to get at it."),
    FP_OPT_BOOL(struct job_store, required, "required", "on", "Without the store the job does not run. off: if it can't be started, that is said, and the application runs without."),
    FP_OPT_DURATION(struct job_store, ready_ms, "ready", "60s", FP_SEC_MS(1), FP_HOUR_MS(1), "Within this time all nodes are up, or the start fails and says which is not."),
    FP_OPT_DURATION(struct job_store, reserve_ms, "reserve", "5min", FP_SEC_MS(5), FP_HOUR_MS(24),
                    "So much of the job's time is kept at its end for what is still to be drained or staged out."),
    FP_OPT_END,
};
const struct fp_opt_table job_store_table = {.prog = "#FP store", .opts = store_words, .words = true};

static const struct fp_opt in_words[] = {
    FP_OPT_STRING(struct job_stage, to, "to", NULL, "Directory of the store that the files come to, relative to the mount. By default, the top.", .check = job_path_inner_why, .arg = "DIR"),
    FP_OPT_BOOL(struct job_stage, optional, "optional", "off", "What is not there is no mistake: in the first run of a job that goes on with what the run before has left."),
    FP_OPT_DURATION(struct job_stage, timeout_ms, "timeout", "1h", FP_SEC_MS(1), FP_HOUR_MS(720), "What is not in the store after this time has failed, and so has the start."),
    FP_OPT_END,
};
const struct fp_opt_table job_stage_in_table = {.prog = "#FP stage-in", .opts = in_words, .words = true};

static const char *const whens[] = {"success", "failure", "always", NULL};
static const struct fp_opt out_words[] = {
    FP_OPT_STRING(struct job_stage, to, "to", NULL, "Directory that the files are copied to. By default, the target of #FP auxapp drain.", .check = job_path_whole_why, .arg = "DIR"),
    FP_OPT_ENUM(struct job_stage, when, "on", "always", whens, "When the application has ended with 0, with something else, or however it has ended."),
    FP_OPT_DURATION(struct job_stage, timeout_ms, "timeout", "1h", FP_SEC_MS(1), FP_HOUR_MS(720),
                    "What is not copied after this time has failed; less if the job, or fp-job's own --timeout, ends before."),
    FP_OPT_END,
};
const struct fp_opt_table job_stage_out_table = {.prog = "#FP stage-out", .opts = out_words, .words = true};

/* ---------------------------------------------------------------- words */

static void *must(void *p)
{
    if (!p)
        abort();
    return p;
}

static struct fp_opts *handle(struct job_declared *d, const struct fp_opt_table *t, void *out)
{
    d->handles = must(reallocarray(d->handles, d->nhandles + 1, sizeof *d->handles));
    return d->handles[d->nhandles++] = fp_opts_new(t, out);
}

/* The word's name, in buf. False: it is longer than any. */
static bool name_of(const struct job_word *w, char buf[64])
{
    if (w->value - 1 >= 64)
        return false;
    memcpy(buf, w->text, w->value - 1);
    buf[w->value - 1] = '\0';
    return true;
}

static bool is_repeated(const struct job_line *l, const struct job_word *w)
{
    for (const struct job_word *before = l->words + 1; before < w; before++)
        if (w->value && before->value == w->value && memcmp(before->text, w->text, w->value) == 0)
            return true;
    return false;
}

static void set_word(struct fp_opts *o, const struct job_line *l, const struct job_word *w, struct job_findings *f)
{
    char name[64];

    if (w->value == 1) {
        job_error(f, w->at, "there is no name before '='");
        return;
    }
    if (!name_of(w, name)) {
        job_error(f, w->at, "'%.60s...' is not understood", w->text);
        return;
    }
    if (is_repeated(l, w)) {
        job_error(f, w->at, "'%s' is given twice", name);
        return;
    }
    if (fp_opts_set(o, name, w->text + w->value) < 0)
        job_error(f, w->at, "%s", fp_opts_error(o));
}

/* A word without = where only NAME=VALUE makes sense: "size 32GiB", "ssd = /x". Returns how many words that is about. */
static size_t no_value(const struct fp_opt_table *t, const struct job_line *l, size_t i, struct job_findings *f)
{
    const struct job_word *w = &l->words[i];
    const char *names[32] = {NULL}, *near;
    size_t n = 0, used = 1;

    for (const struct fp_opt *o = t->opts; o->name && n < 31; o++)
        names[n++] = o->name;
    near = fp_nearest_name(w->text, names);
    if (strchr(w->text, '=')) {
        job_error(f, w->at, "'%s': only what stands behind the = may be in quotes: NAME=\"VALUE\"", w->text);
        return 1;
    }
    if (!near) {
        job_error(f, w->at, "'%s' is not understood here: write NAME=VALUE, without blanks", w->text);
        return 1;
    }
    if (i + used < l->nwords && strcmp(l->words[i + used].text, "=") == 0)
        used++;
    if (i + used < l->nwords && l->words[i + used].value <= 1)
        used++;
    job_error(f, w->at, "'%s' has no value: write %s=VALUE, without blanks", w->text, near);
    return used;
}

static bool looks_like_option(const struct fp_opt_table *t, const struct job_word *w)
{
    char name[64];
    const char *names[32] = {NULL};
    size_t n = 0;

    if (!w->value || w->value == 1 || !name_of(w, name) || strpbrk(name, "/*?["))
        return false;
    for (const struct fp_opt *o = t->opts; o->name && n < 31; o++)
        names[n++] = o->name;
    return fp_nearest_name(name, names) || w->value < 12;
}

/* ---------------------------------------------------------------- directives */

static void take_store(struct job_declared *d, const struct job_line *l, struct job_findings *f)
{
    char buf[JOB_LINE_NAME_BYTES];
    struct fp_opts *o;

    if (d->store_line) {
        job_error(f, l->words[0].at, "there is a #FP store in %s already: a job has one", job_line_name(d->store_line->line, buf));
        return;
    }
    d->store_line = l;
    o = d->handles[0];
    for (size_t i = 1, used; i < l->nwords; i += used) {
        used = 1;
        if (l->words[i].value)
            set_word(o, l, &l->words[i], f);
        else
            used = no_value(&job_store_table, l, i, f);
    }
}

static void take_cores(struct job_declared *d, const struct job_line *l, struct job_findings *f)
{
    char buf[JOB_LINE_NAME_BYTES];
    struct job_cores c;

    if (d->cores.kind != JOB_CORES_NONE)
        job_error(f, l->words[0].at, "there is a #FP cores in %s already: a job has one", job_line_name(d->cores.at.line, buf));
    else if (l->nwords == 1)
        job_error(f, l->words[0].at, "it does not say how many: write #FP cores 1");
    else if (l->nwords > 2)
        job_error(f, l->words[2].at, "one word is enough: 1, 1-3, list=7,15 or share=5%%");
    else if (job_cores_parse(l->words[1].text, l->words[1].at, &c, f))
        d->cores = c;
}

/* A blank or a quote in a value needs quotes there, too. */
static void add_word(char text[JOB_AUXAPP_BYTES], size_t *n, const struct job_word *w)
{
    bool blank = strpbrk(w->text, " \t\r\v\f") != NULL || !w->text[w->value];
    int k;

    if (blank && w->value)
        k = snprintf(text + *n, JOB_AUXAPP_BYTES - *n, "%s%.*s\"%s\"", *n ? " " : "", (int)w->value, w->text, w->text + w->value);
    else
        k = snprintf(text + *n, JOB_AUXAPP_BYTES - *n, "%s%s%s%s", *n ? " " : "", blank ? "\"" : "", w->text, blank ? "\"" : "");
    *n += (size_t)k;
}

static void take_auxapp(struct job_declared *d, const struct job_line *l, struct job_findings *f)
{
    char buf[JOB_LINE_NAME_BYTES];
    struct job_auxapp *a = &d->auxapps[d->nauxapps];
    char text[JOB_AUXAPP_BYTES] = "";
    size_t n = 0;

    if (l->nwords == 1) {
        job_error(f, l->words[0].at, "it does not say which: write #FP auxapp dedup, or the path of a plugin with a slash in it");
        return;
    }
    if (d->nauxapps == JOB_AUXAPPS_MAX) {
        job_error(f, l->words[0].at, "more than %u aux-apps", JOB_AUXAPPS_MAX);
        return;
    }
    for (size_t i = 1; i < l->nwords && n < sizeof text; i++) {
        if (strchr(l->words[i].text, '"')) {
            job_error(f, l->words[i].at, "a value can't have a double quote in it");
            return;
        }
        if (is_repeated(l, &l->words[i])) {
            job_error(f, l->words[i].at, "'%.*s' is given twice", (int)l->words[i].value - 1, l->words[i].text);
            return;
        }
        add_word(text, &n, &l->words[i]);
    }
    if (n >= sizeof text) {
        job_error(f, l->words[1].at, "this aux-app has more than %u bytes of words", JOB_AUXAPP_BYTES - 1);
        return;
    }
    for (size_t i = 0; i < d->nauxapps; i++)
        if (strcmp(d->auxapps[i].name, l->words[1].text) == 0) {
            job_error(f, l->words[1].at, "'%s' is declared in %s already", l->words[1].text, job_line_name(d->auxapps[i].line->line, buf));
            return;
        }
    *a = (struct job_auxapp){.text = must(strdup(text)), .name = l->words[1].text, .line = l};
    d->nauxapps++;
}

static void take_path(struct job_stage *s, const struct job_word *w, const char *(*path_why)(const char *text), struct job_findings *f)
{
    const char *why = w->text[0] ? path_why(w->text) : "this path is empty";

    if (why)
        job_error(f, w->at, "'%s': %s", w->text, why);
    else
        s->paths.items[s->paths.count++] = w->text;
}

static void take_stage(struct job_declared *d, const struct fp_opt_table *t, const char *(*path_why)(const char *text), struct job_stage **list, size_t *n, const struct job_line *l, struct job_findings *f)
{
    size_t errors = f->errors;
    struct job_stage *s;
    struct fp_opts *o;

    *list = must(reallocarray(*list, *n + 1, sizeof **list));
    s = &(*list)[*n];
    memset(s, 0, sizeof *s);
    s->line = l;
    o = handle(d, t, s);
    s->paths.items = must(calloc(l->nwords, sizeof *s->paths.items));
    for (size_t i = 1; i < l->nwords; i++) {
        if (looks_like_option(t, &l->words[i]))
            set_word(o, l, &l->words[i], f);
        else
            take_path(s, &l->words[i], path_why, f);
    }
    if (!s->paths.count && f->errors == errors)
        job_error(f, l->words[0].at, "it does not say what: write the paths of files or directories behind it");
    ++*n;
}

static const char *source_why(const char *text)
{
    return text[0] == '/' || text[0] == '$' || text[0] == '~' ? job_path_whole_why(text) : "write the whole path, from / on: the job may start in another directory";
}

static void take_stage_in(struct job_declared *d, const struct job_line *l, struct job_findings *f)
{
    take_stage(d, &job_stage_in_table, source_why, &d->in, &d->nin, l, f);
}

static void take_stage_out(struct job_declared *d, const struct job_line *l, struct job_findings *f)
{
    take_stage(d, &job_stage_out_table, job_path_inner_why, &d->out, &d->nout, l, f);
}

static void (*const takes[JOB_DIRECTIVES])(struct job_declared *d, const struct job_line *l, struct job_findings *f) = {take_store, take_cores, take_auxapp, take_stage_in,
                                                                                                                       take_stage_out};

static void take(struct job_declared *d, const struct job_line *l, struct job_findings *f)
{
    const struct job_word *w = &l->words[0];
    const char *near;

    for (size_t i = 0; i < JOB_DIRECTIVES; i++)
        if (strcmp(w->text, job_directive_names[i]) == 0) {
            takes[i](d, l, f);
            return;
        }
    near = fp_nearest_name(w->text, job_directive_names);
    if (near && w->value)
        job_error(f, w->at, "there is no #FP %s: write #FP %s, and a blank behind it", w->text, near);
    else if (near)
        job_error(f, w->at, "there is no #FP %s: did you mean '%s'?", w->text, near);
    else
        job_error(f, w->at, "there is no #FP %s: there are store, cores, auxapp, stage-in and stage-out", w->text);
}

void job_declared_make(struct job_script *script, struct job_declared *out, struct job_findings *f)
{
    memset(out, 0, sizeof *out);
    out->script = *script;
    memset(script, 0, sizeof *script);
    handle(out, &job_store_table, &out->store); /* the defaults, and the first handle */
    for (size_t i = 0; i < out->script.nlines; i++)
        take(out, &out->script.lines[i], f);
}

const struct job_auxapp *job_declared_auxapp(const struct job_declared *d, const char *name)
{
    for (size_t i = 0; i < d->nauxapps; i++)
        if (strcmp(d->auxapps[i].name, name) == 0)
            return &d->auxapps[i];
    return NULL;
}

const struct job_auxapp *job_declared_drain(const struct job_declared *d)
{
    return job_declared_auxapp(d, "drain");
}

static void stages_free(struct job_stage *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(list[i].paths.items);
    free(list);
}

void job_declared_fini(struct job_declared *d)
{
    for (size_t i = 0; i < d->nauxapps; i++)
        free((char *)(uintptr_t)d->auxapps[i].text);
    stages_free(d->in, d->nin);
    stages_free(d->out, d->nout);
    for (size_t i = 0; i < d->nhandles; i++)
        fp_opts_free(d->handles[i]);
    free(d->handles);
    job_script_fini(&d->script);
    memset(d, 0, sizeof *d);
}
