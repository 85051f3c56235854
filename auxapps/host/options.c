/*
 * Declarations: `dedup hash=sha1 cores=1-2 required`. What is the host's own, what is the plugin's, and whether the values will do.
 *
 * Called at start-up and for `fpctl auxapps set`; by fp-auxtest and `fp-job check`. Pure but for memory. The option table of programs
 * (fp/opt.h) was not used: its types are fixed when a program is built, those of a plugin when it is loaded. Sizes, times and "did you
 * mean" are the same functions. Values may hold blanks when they are in double quotes. `required` stands alone, every other word has a value. What
 * fp-mount says of its part of the words before the host runs (client/aux/declare.c) has the same limits.
 */
#include "auxapps/host/load.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/opt.h"
#include "fp/units.h"

#define WORD_BYTES 1024
#define OWN_WORDS 8

static int fail(char *why, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static int fail(char *why, int rc, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, AUX_WHY_BYTES, fmt, ap);
    va_end(ap);
    return rc;
}

/* -------------------------------------------------------------- words */

/* The next word of *text, without its quotes. 1: there is one; 0: no more; -EINVAL: a quote is not closed; -ENAMETOOLONG. */
static int next_word(const char **text, char word[WORD_BYTES])
{
    const char *s = *text;
    size_t n = 0;
    bool quoted = false;

    while (isspace((unsigned char)*s))
        s++;
    if (!*s)
        return 0;
    for (; *s && (quoted || !isspace((unsigned char)*s)); s++) {
        if (*s == '"') {
            quoted = !quoted;
            continue;
        }
        if (n + 1 >= WORD_BYTES)
            return -ENAMETOOLONG;
        word[n++] = *s;
    }
    word[n] = '\0';
    *text = s;
    return quoted ? -EINVAL : 1;
}

int aux_declared_word(const char *declaration, char *word, uint32_t word_bytes)
{
    char buf[WORD_BYTES];

    if (next_word(&declaration, buf) != 1 || strlen(buf) >= word_bytes || buf[0] == '\0')
        return -EINVAL;
    memcpy(word, buf, strlen(buf) + 1);
    return 0;
}

static int parse_bool(const char *text)
{
    static const char *const yes[] = {"yes", "on", "true", "1"}, *const no[] = {"no", "off", "false", "0"};

    for (int i = 0; i < 4; i++) {
        if (strcmp(text, yes[i]) == 0)
            return 1;
        if (strcmp(text, no[i]) == 0)
            return 0;
    }
    return -EINVAL;
}

/* -------------------------------------------------------------- the host's own words */

static int set_cores(struct aux_words *w, const char *value)
{
    unsigned a = 0, b = 0;
    int end = 0;

    if (sscanf(value, "%3u-%3u%n", &a, &b, &end) != 2 || value[end] != '\0') {
        end = 0;
        if (sscanf(value, "%3u%n", &a, &end) != 1 || value[end] != '\0')
            return -EINVAL;
        b = a;
    }
    if (!isdigit((unsigned char)value[0]) || a < 1 || b < a || b > 64)
        return -EINVAL;
    w->cores_min = a;
    w->cores_max = b;
    return 0;
}

static int set_count(uint32_t *out, const char *value, int64_t min, int64_t max)
{
    int64_t n;

    if (fp_parse_int(value, &n, NULL) < 0 || n < min || n > max)
        return -EINVAL;
    *out = (uint32_t)n;
    return 0;
}

static int set_time(uint32_t *out_ms, const char *value, uint64_t min_ms, uint64_t max_ms)
{
    uint64_t ms;

    if (fp_parse_duration(value, &ms, NULL) < 0 || ms < min_ms || ms > max_ms)
        return -EINVAL;
    *out_ms = (uint32_t)ms;
    return 0;
}

static int set_bool(bool *out, const char *value)
{
    int b = parse_bool(value);

    if (b >= 0)
        *out = b == 1;
    return b < 0 ? b : 0;
}

static int set_deadline(struct aux_words *w, const char *value)
{
    int rc = set_time(&w->deadline_ms, value, 10, FP_HOUR_MS(1));

    if (rc == 0)
        w->ask_ms = w->deadline_ms;
    return rc;
}

static int own_set(struct aux_words *w, int which, const char *value)
{
    switch (which) {
    case 0: return set_cores(w, value);
    case 1: return set_count(&w->queue, value, 1, 256);
    case 2: return set_deadline(w, value);
    case 3: return set_time(&w->idle_ms, value, 100, FP_HOUR_MS(24));
    case 4: return set_bool(&w->verify, value);
    case 5: w->required = true; return value[0] == '\0' ? 0 : -EINVAL;
    case 6: return set_count(&w->failures_max, value, 1, 100);
    default: return set_count(&w->nodes, value, 1, 1 << 20);
    }
}

static const struct { const char *name, *what; bool can_change; } own[OWN_WORDS] = {
    {"cores", "a number of cores, 1 to 64, or a range such as 1-3", true},
    {"queue", "how many chunks may wait, 1 to 256", true},
    {"deadline", "a time from 10ms to 1h", true},
    {"idle", "a time from 100ms to 24h", true},
    {"verify", "on or off", true},
    {"required", "no value, the word alone", false},
    {"failures", "how many failures are borne, 1 to 100", false},
    {"nodes", "a number of nodes, 1 to 1048576", false},
};

static int own_find(const char *name)
{
    for (int i = 0; i < OWN_WORDS; i++) {
        if (strcmp(own[i].name, name) == 0)
            return i;
    }
    return -1;
}

bool aux_word_is_own(const char *name)
{
    return own_find(name) >= 0;
}

int aux_words_set(struct aux_words *w, const char *app, const char *name, const char *value, char why[AUX_WHY_BYTES])
{
    int i = own_find(name);

    if (i < 0)
        return -ENOENT;
    if (!own[i].can_change)
        return fail(why, -EPERM, "%s: '%s' can't be changed while running: declare it so and mount again", app, name);
    if (own_set(w, i, value) < 0)
        return fail(why, -EINVAL, "%s: %s=%s: give %s", app, name, value, own[i].what);
    return 0;
}

/* -------------------------------------------------------------- the plugin's options */

static bool is_number(const struct fp_aux_option *o)
{
    return o->min != 0 || o->max != 0 || o->is_size;
}

/* "a, b or c" */
static const char *list(const char *const *names, char *buf, size_t bytes)
{
    size_t n = 0;

    buf[0] = '\0';
    for (; *names && n < bytes; names++)
        n += (size_t)snprintf(buf + n, bytes - n, "%s%s", n == 0 ? "" : names[1] ? ", " : " or ", *names);
    return buf;
}

static int check_number(const struct aux_plugin *p, const struct fp_aux_option *o, const char *value, int64_t *number, char *why)
{
    const char *text = NULL;
    char a[FP_UNITS_BUF], b[FP_UNITS_BUF];
    uint64_t size = 0;
    int64_t max = o->max == 0 && o->min == 0 ? INT64_MAX : o->max;
    int rc = o->is_size ? fp_parse_size(value, &size, &text) : fp_parse_int(value, number, &text);

    if (rc < 0)
        return fail(why, -EINVAL, "%s: %s=%s: %s", p->app.name, o->name, value, text ? text : "not understood");
    if (o->is_size)
        *number = size > INT64_MAX ? INT64_MAX : (int64_t)size;
    if (*number >= o->min && *number <= max)
        return 0;
    if (o->is_size)
        return fail(why, -EINVAL, "%s: %s=%s: give a size from %s to %s", p->app.name, o->name, value,
                fp_format_size_exact(a, (uint64_t)o->min), fp_format_size_exact(b, (uint64_t)max));
    return fail(why, -EINVAL, "%s: %s=%s: give a number from %lld to %lld", p->app.name, o->name, value, (long long)o->min, (long long)max);
}

static int check_value(const struct aux_plugin *p, const struct fp_aux_option *o, const char *value, int64_t *number, char *why)
{
    char names[256];
    int b = parse_bool(value);

    *number = b > 0;
    if (is_number(o))
        return check_number(p, o, value, number, why);
    if (!o->choices) {
        int64_t n;

        if (fp_parse_int(value, &n, NULL) == 0)
            *number = n;
        return 0;
    }
    for (const char *const *c = o->choices; *c; c++) {
        if (strcmp(*c, value) == 0)
            return 0;
    }
    const char *near = fp_nearest_name(value, o->choices);

    if (near)
        return fail(why, -EINVAL, "%s: %s=%s: did you mean '%s'? It takes %s", p->app.name, o->name, value, near,
                list(o->choices, names, sizeof(names)));
    return fail(why, -EINVAL, "%s: %s=%s: it takes %s", p->app.name, o->name, value, list(o->choices, names, sizeof(names)));
}

static int option_find(const struct aux_plugin *p, const char *name)
{
    for (uint32_t i = 0; i < p->noptions; i++) {
        if (strcmp(p->app.options[i].name, name) == 0)
            return (int)i;
    }
    return -1;
}

static int unknown(const struct aux_plugin *p, const char *name, char *why)
{
    const char *names[64 + OWN_WORDS + 1] = {NULL};
    char text[512];
    uint32_t n = 0;

    for (; n < p->noptions; n++)
        names[n] = p->app.options[n].name;
    for (int i = 0; i < OWN_WORDS; i++)
        names[n++] = own[i].name;
    const char *near = fp_nearest_name(name, names);

    if (near)
        return fail(why, -EINVAL, "%s has no option '%.60s': did you mean '%s'?", p->app.name, name, near);
    return fail(why, -EINVAL, "%s has no option '%.60s': there are %s", p->app.name, name, list(names, text, sizeof(text)));
}

static int apply(struct aux_options *o, struct aux_words *w, char *word, uint64_t *seen_own, uint64_t *seen, char *why)
{
    const struct aux_plugin *p = o->plugin;
    char *value = strchr(word, '=');
    int64_t number;

    if (value)
        *value++ = '\0';
    int i = option_find(p, word) >= 0 ? -1 : own_find(word);

    if (i >= 0) {
        if (*seen_own & (1ull << i))
            return fail(why, -EINVAL, "%s: '%s' is given twice", p->app.name, word);
        *seen_own |= 1ull << i;
        if (own_set(w, i, value ? value : "") == 0)
            return 0;
        return fail(why, -EINVAL, "%s: %s%s%s: give %s", p->app.name, word, value ? "=" : "", value ? value : "", own[i].what);
    }
    i = option_find(p, word);
    if (i < 0)
        return unknown(p, word, why);
    if (*seen & (1ull << i))
        return fail(why, -EINVAL, "%s: '%s' is given twice", p->app.name, word);
    *seen |= 1ull << i;
    if (!value)
        return fail(why, -EINVAL, "%s: '%s' has no value: write %s=VALUE", p->app.name, word, word);
    int rc = check_value(p, &p->app.options[i], value, &number, why);

    if (rc < 0)
        return rc;
    char *copy = strdup(value);

    if (!copy)
        return fail(why, -ENOMEM, "out of memory");
    free(atomic_exchange(&o->value[i].text, copy));
    o->value[i].number = number;
    return 0;
}

static int fallbacks(struct aux_options *o, char *why)
{
    const struct aux_plugin *p = o->plugin;

    for (uint32_t i = 0; i < o->n; i++) {
        const char *f = p->app.options[i].fallback;
        int64_t number = 0;

        if (!f)
            continue;
        int rc = check_value(p, &p->app.options[i], f, &number, why);

        if (rc < 0)
            return rc;
        o->value[i].text = strdup(f);
        o->value[i].number = number;
        if (!o->value[i].text)
            return fail(why, -ENOMEM, "out of memory");
    }
    return 0;
}

int aux_options_parse(const struct aux_plugin *p, const char *declaration, struct aux_words *words, struct aux_options **out,
              char why[AUX_WHY_BYTES])
{
    struct aux_options *o = calloc(1, sizeof(*o) + p->noptions * sizeof(o->value[0]));
    uint64_t seen_own = 0, seen = 0;
    char word[WORD_BYTES];
    int rc;

    why[0] = '\0';
    if (!o)
        return fail(why, -ENOMEM, "out of memory");
    o->plugin = p;
    o->n = p->noptions;
    *words = (struct aux_words){.cores_min = 1, .cores_max = 1, .queue = 8, .deadline_ms = 10000, .ask_ms = FP_AUX_WAIT_MS, .idle_ms = 1000, .failures_max = 3,
                    .verify = !p->from_dir};
    rc = fallbacks(o, why);
    if (rc == 0)
        rc = next_word(&declaration, word);   /* its name */
    while (rc >= 0 && (rc = next_word(&declaration, word)) == 1)
        rc = apply(o, words, word, &seen_own, &seen, why);
    if (rc == -ENAMETOOLONG || (rc == -EINVAL && why[0] == '\0'))
        fail(why, rc, "%s: %s", p->app.name, rc == -EINVAL ? "a double quote is not closed" : "a word is too long");
    if (rc < 0)
        aux_options_free(o);
    else
        *out = o;
    return rc < 0 ? rc : 0;
}

void aux_options_free(struct aux_options *o)
{
    if (!o)
        return;
    for (uint32_t i = 0; i < o->n; i++)
        free(o->value[i].text);
    free(o);
}

bool aux_option_is(const struct aux_options *o, const char *name)
{
    return option_find(o->plugin, name) >= 0;
}

const char *aux_option_text(const struct aux_options *o, const char *name)
{
    int i = option_find(o->plugin, name);

    return i < 0 ? NULL : atomic_load(&o->value[i].text);
}

int64_t aux_option_number(const struct aux_options *o, const char *name)
{
    int i = option_find(o->plugin, name);

    return i < 0 ? 0 : atomic_load(&o->value[i].number);
}

int aux_option_set(struct aux_options *o, const char *name, const char *value, char **old, char why[AUX_WHY_BYTES])
{
    const struct aux_plugin *p = o->plugin;
    int i = option_find(p, name);
    int64_t number = 0;

    if (i < 0)
        return unknown(p, name, why);
    if (!p->app.options[i].can_change)
        return fail(why, -EPERM, "%s: '%s' can't be changed while running: declare it so and mount again", p->app.name, name);
    int rc = check_value(p, &p->app.options[i], value, &number, why);

    if (rc < 0)
        return rc;
    char *copy = strdup(value);

    if (!copy)
        return fail(why, -ENOMEM, "out of memory");
    *old = atomic_exchange(&o->value[i].text, copy);
    o->value[i].number = number;
    return 0;
}

void aux_option_restore(struct aux_options *o, const char *name, char *old)
{
    int i = option_find(o->plugin, name);
    char why[AUX_WHY_BYTES];
    int64_t number = 0;

    if (i < 0)
        return;
    if (old)
        check_value(o->plugin, &o->plugin->app.options[i], old, &number, why);
    free(atomic_exchange(&o->value[i].text, old));
    o->value[i].number = number;
}
