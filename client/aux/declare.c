/*
 * What a user may say about an aux-app (see declare.h).
 *
 * Called when options are parsed, so that a mistake ends fp-mount with a line before anything is started, and again by cl_aux_start. The words that
 * are the aux-app's own are left to fp-auxhost, which has the plugin's table of options: to load plugins into fp-mount for the sake of
 * an earlier message would let them into the process that must survive them.
 */
#include "client/aux/declare.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/units.h"

static char complaint[400];

static const char *complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static const char *complain(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(complaint, sizeof(complaint), fmt, ap);
    va_end(ap);
    return complaint;
}

static const char *number(const char *word, const char *value, int64_t min, int64_t max, uint32_t *out)
{
    int64_t n = 0;

    if (fp_parse_int(value, &n, NULL) < 0 || n < min || n > max)
        return complain("%s: '%.60s' is not a number from %lld to %lld", word, value, (long long)min, (long long)max);
    *out = (uint32_t)n;
    return NULL;
}

static const char *duration(const char *word, const char *value, uint64_t min_ms, uint64_t max_ms, uint64_t *out)
{
    const char *why = NULL;
    uint64_t ms = 0;

    if (fp_parse_duration(value, &ms, &why) < 0)
        return complain("%s: '%.60s': %s", word, value, why);
    if (ms < min_ms || ms > max_ms)
        return complain("%s: '%.60s' is not from %llu ms to %llu ms", word, value, (unsigned long long)min_ms, (unsigned long long)max_ms);
    *out = ms;
    return NULL;
}

/* N, or A-B: so many service cores, at least A and at most B. */
static const char *take_cores(const char *value, struct cl_aux_decl *d)
{
    const char *dash = strchr(value, '-');
    char from[16];
    const char *why;

    if (!dash) {
        why = number("cores", value, 1, FP_AUXW_THREADS_MAX, &d->cores_min);
        d->cores_max = d->cores_min;
        return why;
    }
    if (dash == value || dash - value >= (ptrdiff_t)sizeof(from))
        return complain("cores: '%.60s': write how many, such as 2 or 1-3", value);
    memcpy(from, value, (size_t)(dash - value));
    from[dash - value] = '\0';
    why = number("cores", from, 1, FP_AUXW_THREADS_MAX, &d->cores_min);
    if (!why)
        why = number("cores", dash + 1, 1, FP_AUXW_THREADS_MAX, &d->cores_max);
    if (!why && d->cores_min > d->cores_max)
        why = complain("cores: '%.60s': the range ends before it begins", value);
    return why;
}

static const char *take_failures(const char *value, struct cl_aux_decl *d)
{
    return number("failures", value, 1, 100, &d->failures);
}

static const char *take_queue(const char *value, struct cl_aux_decl *d)
{
    return number("queue", value, 1, 256, &d->queue);
}

static const char *take_nodes(const char *value, struct cl_aux_decl *d)
{
    return number("nodes", value, 1, 1 << 20, &d->nodes);
}

static const char *take_deadline(const char *value, struct cl_aux_decl *d)
{
    return duration("deadline", value, 10, FP_HOUR_MS(1), &d->deadline_ms);
}

bool cl_aux_decl_deadline(const char *value, uint64_t *out_ms)
{
    return !duration("deadline", value, 10, FP_HOUR_MS(1), out_ms);
}

static const char *take_idle(const char *value, struct cl_aux_decl *d)
{
    return duration("idle", value, 100, FP_HOUR_MS(24), &d->idle_ms);
}

static const char *take_verify(const char *value, struct cl_aux_decl *d)
{
    d->verify_given = true;
    d->verify = strcmp(value, "on") == 0;
    return d->verify || strcmp(value, "off") == 0 ? NULL : complain("verify: '%.60s': write on or off", value);
}

static const struct {
    const char *name;
    const char *(*take)(const char *value, struct cl_aux_decl *d); /* NULL: without a value */
} words[] = {
    { "cores", take_cores }, { "required", NULL }, { "queue", take_queue }, { "deadline", take_deadline }, { "failures", take_failures },
    { "idle", take_idle }, { "nodes", take_nodes }, { "verify", take_verify },
};
#define NWORDS (sizeof(words) / sizeof(words[0]))

static const char *nearest(const char *name)
{
    const char *names[NWORDS + 1] = { NULL };

    for (size_t i = 0; i < NWORDS; i++)
        names[i] = words[i].name;
    return fp_nearest_name(name, names);
}

static const char *take_word(char *word, struct cl_aux_decl *d)
{
    char *eq = strchr(word, '=');
    const char *near;

    if (eq)
        *eq = '\0';
    for (size_t i = 0; i < NWORDS; i++) {
        if (strcmp(words[i].name, word) != 0)
            continue;
        if (!words[i].take) {
            d->required = true;
            return eq ? complain("%s takes no value", word) : NULL;
        }
        return eq ? words[i].take(eq + 1, d) : complain("%s has no value: write %s=VALUE", word, word);
    }
    if (eq)
        return eq == word ? complain("'=%.60s' has no name before it", eq + 1) : NULL; /* an option of the aux-app */
    near = nearest(word);
    if (near)
        return complain("'%.60s' is not understood, did you mean '%s'?", word, near);
    return complain("'%.60s' is not understood: after the name come option=value words and `required`", word);
}

static const char *take_name(const char *word, struct cl_aux_decl *d)
{
    if (strlen(word) >= sizeof(d->name))
        return complain("the name of the aux-app is too long");
    strcpy(d->name, word);
    if (strchr(word, '/'))
        return NULL;
    if (strlen(word) > FP_AUX_NAME_MAX || !islower((unsigned char)word[0]))
        return complain("'%.60s' is not the name of an aux-app: write NAME, or the path of a plugin with a slash in it, first", word);
    for (const char *p = word; *p; p++)
        if (!islower((unsigned char)*p) && !isdigit((unsigned char)*p) && *p != '-' && *p != '_')
            return complain("'%.60s' is not the name of an aux-app: write NAME, or the path of a plugin with a slash in it, first", word);
    return NULL;
}

/* The next word of *at, in place: up to a blank that is not between double quotes, which are taken out. NULL: there is none. */
static char *next_word(char **at)
{
    char *from = *at + strspn(*at, " \t"), *to = from, *p = from;
    bool quoted = false;

    if (*from == '\0')
        return NULL;
    for (; *p && (quoted || (*p != ' ' && *p != '\t')); p++) {
        if (*p == '"')
            quoted = !quoted;
        else
            *to++ = *p;
    }
    *at = *p ? p + 1 : p;
    *to = '\0';
    return from;
}

static bool quotes_end(const char *text)
{
    unsigned n = 0;

    for (; *text; text++)
        n += *text == '"';
    return n % 2 == 0;
}

const char *cl_aux_decl_parse(const char *text, struct cl_aux_decl *out)
{
    char copy[sizeof(out->text)], *at = copy, *word;
    const char *why;

    memset(out, 0, sizeof(*out));
    out->failures = CL_AUX_FAILURES;
    if (strlen(text) >= sizeof(copy))
        return "is too long";
    for (const char *p = text; *p; p++)
        if (iscntrl((unsigned char)*p) && *p != '\t')
            return "has a control character in it";
    if (!quotes_end(text))
        return "has a quote that does not end";
    strcpy(out->text, text);
    strcpy(copy, text);
    word = next_word(&at);
    if (!word)
        return "must begin with the name of an aux-app";
    why = take_name(word, out);
    while (!why && (word = next_word(&at)))
        why = take_word(word, out);
    return why;
}

bool cl_aux_decl_is(const char *text, const char *name)
{
    struct cl_aux_decl d;
    const char *slash;

    if (cl_aux_decl_parse(text, &d))
        return false;
    slash = strrchr(d.name, '/');
    if (!slash)
        return strcmp(d.name, name) == 0;
    return strncmp(slash + 1, name, strlen(name)) == 0 && strcmp(slash + 1 + strlen(name), ".so") == 0;
}

const char *cl_aux_decl_check(const char *text)
{
    struct cl_aux_decl d;

    return cl_aux_decl_parse(text, &d);
}

int cl_aux_decl_all(const struct fp_strlist *texts, struct cl_aux_decl *out, const char **why)
{
    for (size_t i = 0; i < texts->count; i++) {
        if (i == FP_AUXW_APPS_MAX) {
            *why = "too many aux-apps";
            return -EINVAL;
        }
        *why = cl_aux_decl_parse(texts->items[i], &out[i]);
        for (size_t k = 0; k < i && !*why; k++)
            if (strcmp(out[k].name, out[i].name) == 0)
                *why = complain("'%.60s' is declared twice", out[i].name);
        if (*why)
            return -EINVAL;
    }
    return (int)texts->count;
}
