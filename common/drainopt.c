/* Words of a policy of draining (see fp/drainopt.h).
 *
 * Called by the manager for each policy that it is given or finds in its database, by fpctl and by the check of job scripts before one
 * is given. The aux-app `drain` (auxapps/drain) has the same words in its own table, since plugins link nothing of ours; tests/unit/test_drainopt.c
 * compares the two. The option table of programs (fp/opt.h) was not used: it stands for one command line with files and environment
 * behind it, and owns its strings; a policy is a value that is copied, kept in rows and written out again.
 *
 * Defaults are left out of the canonical text: what a user reads in `fpctl drain show` is what was written. So a default can't be
 * changed in a later release without changing policies that are there. */
#include "fp/drainopt.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "fp/opt.h"
#include "fp/units.h"

#define RATE_MIN UINT64_C(100000) /* a part of 64 MiB in eleven minutes: what is slower than that looks like a target that hangs */

enum kind { PATH, EVERY, NUMBER, PATTERNS, GLOBS, NAMES, BOOL, CHOICE, RATE, TIME, PERCENT };

struct word {
    struct fp_drain_word w;
    enum kind kind;
    size_t at;                /* offset in struct fp_drain_policy */
    uint64_t min, max;        /* TIME in ms, PERCENT */
};

static const char *const on_off[] = {"off", "on", NULL};
static const char *const no_yes[] = {"no", "yes", NULL};
static const char *const layouts[] = {"file", "log", NULL};
static const char *const levels[] = {"local", "drained", "verified", NULL};
static const char *const completes[] = {"auto", "told", NULL};

#define AT(field) .at = offsetof(struct fp_drain_policy, field)

static const struct word words[] = {
    {{.name = "to", .help = "Directory of another file system, the same on all nodes: the target."}, PATH, AT(to)},
    {{.name = "every", .fallback = "1", .help = "Each so many-th complete checkpoint set is drained; auto: as many as space and the target's speed allow; none."},
     EVERY, AT(every)},
    {{.name = "keep", .fallback = "2", .min = 1, .max = 1000, .help = "So many of the newest complete sets are never evicted."}, NUMBER, AT(keep)},
    {{.name = "pattern", .help = "Which files are checkpoints, with {step} where the step stands: run/chk_{step}/*. By default, names tell."}, PATTERNS, AT(pattern)},
    {{.name = "results", .help = "Single files that are drained when they are closed: out/*.h5,summary.txt."}, GLOBS, AT(results)},
    {{.name = "all", .fallback = "no", .choices = no_yes, .help = "Drain every file that is closed."}, BOOL, AT(all)},
    {{.name = "verify", .fallback = "off", .choices = on_off, .help = "Read back from the target and compare digests."}, BOOL, AT(verify)},
    {{.name = "layout", .fallback = "file", .choices = layouts, .help = "log: one stream for each benefactor, which fpctl merge turns into files."}, CHOICE, AT(layout)},
    {{.name = "max", .fallback = "0", .help = "Bytes per second to the target, of each node: 200MB/s. 0: no limit."}, RATE, AT(max)},
    {{.name = "max-job", .fallback = "0", .help = "The same of all nodes together."}, RATE, AT(max_job)},
    {{.name = "level", .fallback = "local", .choices = levels, .help = "What a new version must have reached until the one before it is given up."}, CHOICE, AT(level)},
    {{.name = "quiet", .help = "A set in which nothing has changed for so long is complete. By default what fp-manager has: --ckpt-quiet."}, TIME, AT(quiet_ms), 100, FP_HOUR_MS(1)},
    {{.name = "late", .help = "The same, if it has fewer files than the one before. By default --ckpt-late of fp-manager."}, TIME, AT(late_ms), 100, FP_HOUR_MS(24)},
    {{.name = "complete", .fallback = "auto", .choices = completes, .help = "told: a set is complete only when a marker, an xattr or fpctl says so."}, BOOL, AT(told)},
    {{.name = "marker", .help = "Names of files whose close says that their set is complete. By default COMPLETE,.complete,_SUCCESS,DONE."}, NAMES, AT(marker)},
    {{.name = "low", .fallback = "30%", .help = "When less of the store is free than this, draining goes first."}, PERCENT, AT(low), 0, 90},
    {{.name = "overwrite", .fallback = "no", .choices = no_yes, .help = "Replace also files in the target that another store relies on, since it has evicted data of them."}, BOOL, AT(overwrite)},
};
#define NWORDS (sizeof words / sizeof words[0])

const struct fp_drain_word *fp_drain_words(size_t *n)
{
    static struct fp_drain_word list[NWORDS];

    /* the same values each time, so that two threads may do it at once */
    for (size_t i = 0; i < NWORDS; i++)
        list[i] = words[i].w;
    *n = NWORDS;
    return list;
}

static int fail(char *why, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int fail(char *why, int rc, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, FP_DRAIN_WHY_MAX, fmt, ap);
    va_end(ap);
    return rc;
}

/* ---------------------------------------------------------------- values */

/* Without doubled slashes and one at the end. */
static int take_path(const struct word *w, const char *value, char *out, char *why)
{
    size_t n = 0;

    if (value[0] != '/')
        return fail(why, -EINVAL, "%s=%.200s: write the whole path, from / on", w->w.name, value);
    for (const char *s = value; *s;) {
        size_t len;

        s += strspn(s, "/");
        len = strcspn(s, "/");
        if (!len)
            break;
        if ((len == 1 && s[0] == '.') || (len == 2 && s[0] == '.' && s[1] == '.'))
            return fail(why, -EINVAL, "%s=%.200s: write it without . and ..", w->w.name, value);
        if (n + 1 + len >= FP_DRAIN_PATH_MAX)
            return fail(why, -ENAMETOOLONG, "%s: the path is longer than %u bytes", w->w.name, FP_DRAIN_PATH_MAX - 1);
        out[n++] = '/';
        memcpy(out + n, s, len);
        n += len;
        s += len;
    }
    out[n] = '\0';
    return n ? 0 : fail(why, -EINVAL, "%s=/: a directory below / is needed", w->w.name);
}

bool fp_drain_next(const char **list, const char **item, size_t *len)
{
    if (!**list)
        return false;
    *item = *list;
    *len = strcspn(*list, ",");
    *list += *len + ((*list)[*len] == ',');
    return true;
}

/* What would never match anything, or is meant as something else, is told. */
static int check_pattern(const struct word *w, const char *item, size_t len, char *why)
{
    static const char step[] = "{step}";
    const size_t n = sizeof step - 1;
    const char *at = memmem(item, len, step, n), *end = item + len;

    if (!at)
        return fail(why, -EINVAL, "%s=%.*s: write {step} where the number of the step stands, as in run/chk_{step}/*", w->w.name, (int)len, item);
    if (memmem(at + n, (size_t)(end - at) - n, step, n))
        return fail(why, -EINVAL, "%s=%.*s: {step} stands in it twice", w->w.name, (int)len, item);
    for (const char *s = item; s < end; s++)
        if (strchr("[]{}", *s) && (s < at || s >= at + n))
            return fail(why, -EINVAL, "%s=%.*s: '%c': there are {step}, *, ** (over slashes, too) and ?", w->w.name, (int)len, item, *s);
    if ((at > item && isdigit((unsigned char)at[-1])) || (at + n < end && isdigit((unsigned char)at[n])))
        return fail(why, -EINVAL, "%s=%.*s: {step} is all digits of a number: none can be beside it", w->w.name, (int)len, item);
    for (const char *s = item; s < end; s++) {
        size_t part = strcspn(s, "/,");

        if ((!part && s > item && *s == '/') || (part && part <= 2 && s[0] == '.' && (part == 1 || s[1] == '.')))
            return fail(why, -EINVAL, "%s=%.*s: write it without //, . and ..", w->w.name, (int)len, item);
        s += part;
    }
    return 0;
}

/* Of a pattern one stays if it has no other but at its end: without it the pattern is a name anywhere. */
static void skip_slashes(const struct word *w, const char **item, size_t *len)
{
    bool any = false;

    while (w->kind != NAMES && *len && **item == '/')
        ++*item, --*len, any = true;
    if (w->kind != PATTERNS || !any || !*len || memchr(*item, '/', *len - 1))
        return;
    --*item;
    ++*len;
}

/* Globs count from the store's root, without a slash before them. A name has none at all. */
static int take_list(const struct word *w, const char *value, char *out, char *why)
{
    const char *item, *rest = value;
    size_t len, n = 0;

    if (strlen(value) >= FP_DRAIN_LIST_MAX)
        return fail(why, -ENAMETOOLONG, "%s: longer than %u bytes", w->w.name, FP_DRAIN_LIST_MAX - 1);
    if (value[0] && value[strlen(value) - 1] == ',')
        return fail(why, -EINVAL, "%s=%.200s: there is nothing behind the last comma", w->w.name, value);
    if (!*value)
        return fail(why, -EINVAL, "%s=: there is nothing behind it", w->w.name);
    while (fp_drain_next(&rest, &item, &len)) {
        skip_slashes(w, &item, &len);
        if (!len)
            return fail(why, -EINVAL, "%s=%.200s: there is nothing between two commas", w->w.name, value);
        if (w->kind == NAMES && memchr(item, '/', len))
            return fail(why, -EINVAL, "%s=%.200s: names, without a slash", w->w.name, value);
        if (w->kind == PATTERNS && check_pattern(w, item, len, why))
            return -EINVAL;
        if (n)
            out[n++] = ',';
        memcpy(out + n, item, len);
        n += len;
    }
    out[n] = '\0';
    return 0;
}

static int take_number(const struct word *w, const char *value, uint32_t *out, char *why)
{
    int64_t n;

    if (fp_parse_int(value, &n, NULL) || n < w->w.min || n > w->w.max)
        return fail(why, -EINVAL, "%s=%.60s: give a number from %lld to %lld", w->w.name, value, (long long)w->w.min, (long long)w->w.max);
    *out = (uint32_t)n;
    return 0;
}

static int take_every(const struct word *w, const char *value, uint32_t *out, char *why)
{
    int64_t n;

    if (strcmp(value, "auto") == 0)
        *out = FP_DRAIN_EVERY_AUTO;
    else if (strcmp(value, "none") == 0)
        *out = FP_DRAIN_EVERY_NONE;
    else if (fp_parse_int(value, &n, NULL) || n < 1 || n > FP_DRAIN_EVERY_MAX)
        return fail(why, -EINVAL, "%s=%.60s: give a number from 1 to %u, auto or none", w->w.name, value, FP_DRAIN_EVERY_MAX);
    else
        *out = (uint32_t)n;
    return 0;
}

/* Which of the choices; -EINVAL: none. */
static int which(const struct word *w, const char *value, char *why)
{
    static const char *const same[][2] = {{"true", "yes"}, {"1", "yes"}, {"false", "no"}, {"0", "no"}};
    const char *near;

    for (size_t i = 0; w->w.choices == on_off || w->w.choices == no_yes ? i < 4 : false; i++)
        value = strcmp(value, same[i][0]) == 0 ? same[i][1] : value;
    for (int i = 0; w->w.choices[i]; i++) {
        if (strcmp(w->w.choices[i], value) == 0)
            return i;
        if (w->w.choices == on_off && strcmp(no_yes[i], value) == 0)
            return i;
        if (w->w.choices == no_yes && strcmp(on_off[i], value) == 0)
            return i;
    }
    near = fp_nearest_name(value, w->w.choices);
    return fail(why, -EINVAL, "%s=%.60s: give %s%s%s or %s%s%s%s", w->w.name, value, w->w.choices[0], w->w.choices[2] ? ", " : "",
                w->w.choices[2] ? w->w.choices[1] : "", w->w.choices[2] ? w->w.choices[2] : w->w.choices[1], near ? " (did you mean '" : "", near ? near : "",
                near ? "'?)" : "");
}

static int take_rate(const struct word *w, const char *value, uint64_t *out, char *why)
{
    const char *text = NULL;

    if (fp_parse_rate(value, out, &text))
        return fail(why, -EINVAL, "%s=%.60s: %s", w->w.name, value, text);
    if (*out && *out < RATE_MIN)
        return fail(why, -EINVAL, "%s=%.60s: the least is 100kB/s; 0 is no limit", w->w.name, value);
    return 0;
}

static int take_time(const struct word *w, const char *value, uint64_t *out, char *why)
{
    const char *text = NULL;
    char a[FP_UNITS_BUF], b[FP_UNITS_BUF];

    if (fp_parse_duration(value, out, &text))
        return fail(why, -EINVAL, "%s=%.60s: %s", w->w.name, value, text);
    if (*out < w->min || *out > w->max)
        return fail(why, -EINVAL, "%s=%.60s: give a time from %s to %s", w->w.name, value, fp_format_duration_exact(a, w->min), fp_format_duration_exact(b, w->max));
    return 0;
}

static int take_percent(const struct word *w, const char *value, uint32_t *out, char *why)
{
    char digits[8];
    size_t len = strlen(value);
    int64_t n = -1;

    if (len > 1 && len < sizeof digits && value[len - 1] == '%') {
        memcpy(digits, value, len - 1);
        digits[len - 1] = '\0';
        if (fp_parse_int(digits, &n, NULL))
            n = -1;
    }
    if (n < (int64_t)w->min || n > (int64_t)w->max)
        return fail(why, -EINVAL, "%s=%.60s: give a part of the store, from %u%% to %u%%", w->w.name, value, (unsigned)w->min, (unsigned)w->max);
    *out = (uint32_t)n;
    return 0;
}

static int take(const struct word *w, const char *value, struct fp_drain_policy *p, char *why)
{
    void *at = (char *)p + w->at;
    int n;

    switch (w->kind) {
    case PATH:
        return take_path(w, value, at, why);
    case EVERY:
        return take_every(w, value, at, why);
    case NUMBER:
        return take_number(w, value, at, why);
    case PATTERNS:
    case GLOBS:
    case NAMES:
        return take_list(w, value, at, why);
    case RATE:
        return take_rate(w, value, at, why);
    case TIME:
        return take_time(w, value, at, why);
    case PERCENT:
        return take_percent(w, value, at, why);
    case BOOL:
        n = which(w, value, why);
        *(bool *)at = n > 0;
        return n < 0 ? n : 0;
    case CHOICE:
    default:
        n = which(w, value, why);
        *(uint32_t *)at = (uint32_t)(n < 0 ? 0 : n);
        return n < 0 ? n : 0;
    }
}

/* ---------------------------------------------------------------- the whole text */

/* The next word of *text, without its quotes. 1: there is one; 0: no more; or a failure. */
static int next_word(const char **text, char word[FP_DRAIN_TEXT_MAX], char *why)
{
    const char *s = *text;
    size_t n = 0;
    bool quoted = false;

    s += strspn(s, " \t\n\r\v\f");
    if (!*s)
        return 0;
    for (; *s && (quoted || !isspace((unsigned char)*s)); s++) {
        if (*s == '"')
            quoted = !quoted;
        else if ((unsigned char)*s < 0x20 || *s == 0x7f)
            return fail(why, -EINVAL, "there is a control character in it");
        else
            word[n++] = *s;
    }
    word[n] = '\0';
    *text = s;
    return quoted ? fail(why, -EINVAL, "a double quote is not closed") : 1;
}

static const struct word *find(const char *name)
{
    for (size_t i = 0; i < NWORDS; i++)
        if (strcmp(words[i].w.name, name) == 0)
            return &words[i];
    return NULL;
}

static int unknown(const char *name, char *why)
{
    const char *names[NWORDS + 1] = {NULL}, *near;
    char all[300];
    size_t n = 0;

    for (size_t i = 0; i < NWORDS; i++)
        names[i] = words[i].w.name;
    near = fp_nearest_name(name, names);
    if (near)
        return fail(why, -EINVAL, "drain has no word '%.60s': did you mean '%s'?", name, near);
    for (size_t i = 0; i < NWORDS; i++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", names[i]);
    return fail(why, -EINVAL, "drain has no word '%.60s': there are %s", name, all);
}

static int take_word(char *word, struct fp_drain_policy *p, uint32_t *seen, char *why)
{
    char *value = strchr(word, '=');
    const struct word *w;

    if (value)
        *value++ = '\0';
    w = find(word);
    if (!w)
        return unknown(word, why);
    if (!value)
        return fail(why, -EINVAL, "'%s' has no value: write %s=VALUE", word, word);
    if (*seen & 1u << (w - words))
        return fail(why, -EINVAL, "'%s' is given twice", word);
    *seen |= 1u << (w - words);
    return take(w, value, p, why);
}

/* A log is no level, and nothing gives way for it. */
static int check_log(const struct fp_drain_policy *p, char *why)
{
    struct fp_drain_policy usual;
    char none[FP_DRAIN_WHY_MAX];

    if (p->layout != FP_DRAIN_LOG || fp_drain_parse("to=/x", &usual, none))
        return 0;
    if (p->verify)
        return fail(why, -EINVAL, "verify=on is not for layout=log: fpctl merge compares every byte");
    if (p->level != usual.level)
        return fail(why, -EINVAL, "this level is never reached with layout=log: a log is none until fpctl merge has made files of it");
    if (p->keep != usual.keep || p->low != usual.low)
        return fail(why, -EINVAL, "%s= is not for layout=log: nothing is evicted for a log, so it never frees space", p->keep != usual.keep ? "keep" : "low");
    if (p->overwrite)
        return fail(why, -EINVAL, "overwrite=yes is not for layout=log: a log replaces nothing but a log");
    return 0;
}

static int check(const struct fp_drain_policy *p, char *why)
{
    if (!p->to[0])
        return fail(why, -EINVAL, "it does not say where to: write to=DIRECTORY");
    if (p->level == FP_DRAIN_VERIFIED && !p->verify)
        return fail(why, -EINVAL, "level=verified is never reached without verify=on");
    if (p->every == FP_DRAIN_EVERY_NONE && !p->results[0] && !p->all)
        return fail(why, -EINVAL, "every=none drains nothing without results= or all=yes");
    return check_log(p, why);
}

int fp_drain_parse(const char *text, struct fp_drain_policy *out, char why[FP_DRAIN_WHY_MAX])
{
    struct fp_drain_policy p;
    char word[FP_DRAIN_TEXT_MAX];
    uint32_t seen = 0;
    int rc = 0;

    memset(&p, 0, sizeof p);
    why[0] = '\0';
    if (strlen(text) >= FP_DRAIN_TEXT_MAX)
        return fail(why, -ENAMETOOLONG, "longer than %u bytes", FP_DRAIN_TEXT_MAX - 1);
    for (size_t i = 0; i < NWORDS && !rc; i++)
        rc = words[i].w.fallback ? take(&words[i], words[i].w.fallback, &p, why) : 0;
    while (!rc && (rc = next_word(&text, word, why)) == 1)
        rc = take_word(word, &p, &seen, why);
    rc = rc ? rc : check(&p, why);
    if (!rc)
        *out = p;
    return rc;
}

/* A value as it is written. */
static const char *value_of(const struct word *w, const struct fp_drain_policy *p, char buf[FP_UNITS_BUF])
{
    const void *at = (const char *)p + w->at;

    switch (w->kind) {
    case PATH:
    case PATTERNS:
    case GLOBS:
    case NAMES:
        return at;
    case RATE:
        return fp_format_rate_exact(buf, *(const uint64_t *)at);
    case TIME:
        return *(const uint64_t *)at ? fp_format_duration_exact(buf, *(const uint64_t *)at) : "";
    case BOOL:
        return w->w.choices[*(const bool *)at];
    case CHOICE:
        return w->w.choices[*(const uint32_t *)at];
    default:
        if (w->kind == EVERY && *(const uint32_t *)at == FP_DRAIN_EVERY_AUTO)
            return "auto";
        if (w->kind == EVERY && *(const uint32_t *)at == FP_DRAIN_EVERY_NONE)
            return "none";
        snprintf(buf, FP_UNITS_BUF, "%u%s", *(const uint32_t *)at, w->kind == PERCENT ? "%" : "");
        return buf;
    }
}

/* The defaults as they are written: 60s is 1min. */
static bool is_default(const struct word *w, const char *value)
{
    struct fp_drain_policy p;
    char why[FP_DRAIN_WHY_MAX], buf[FP_UNITS_BUF];

    if (!w->w.fallback)
        return !value[0];
    memset(&p, 0, sizeof p);
    return take(w, w->w.fallback, &p, why) == 0 && strcmp(value_of(w, &p, buf), value) == 0;
}

void fp_drain_text(const struct fp_drain_policy *p, char text[FP_DRAIN_TEXT_MAX])
{
    size_t n = 0;

    text[0] = '\0';
    for (size_t i = 0; i < NWORDS; i++) {
        char buf[FP_UNITS_BUF];
        const char *value = value_of(&words[i], p, buf), *quote = strpbrk(value, " \t") || !value[0] ? "\"" : "";

        if (!is_default(&words[i], value) && n < FP_DRAIN_TEXT_MAX)
            n += (size_t)snprintf(text + n, FP_DRAIN_TEXT_MAX - n, "%s%s=%s%s%s", n ? " " : "", words[i].w.name, quote, value, quote);
    }
}
