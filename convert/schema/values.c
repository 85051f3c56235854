/*
 * Values of a schema's text: numbers, sizes, words, names, attributes (parts.h). Called by keys.c and datakeys.c. One thread; no I/O.
 *
 * Each mistake is said with its line and column, what was expected there, and the word that was probably meant. Keys are taken in the order of the reader's table, not of the text, so that a dataset
 * may stand before the dimensions that it names.
 */
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/schema/parts.h"
#include "fp/opt.h"
#include "fp/units.h"

#define ATTR_TEXT_MAX   32768u
#define ATTR_VALUES_MAX 4096u
#define WORDS_MAX       32u

int cv_mistake(const struct cv_reading *r, const struct cv_node *at, const char *format, ...)
{
    char text[400];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return cv_tree_mistake(r->why, r->s->name, at->line, at->column, "%s", text);
}

int cv_no_memory(const struct cv_reading *r)
{
    return cv_fail(r->why, -ENOMEM, r->s->name, NULL, CV_NO_OFFSET, "no memory is left for the schema");
}

/* What stands there, for a message: short, and without control characters. */
static const char *shown(const struct cv_node *n, char buf[72])
{
    size_t len = 0;

    if (n->kind != CV_NODE_SCALAR)
        return n->kind == CV_NODE_MAP ? "a map" : "a list";
    if (!n->text[0])
        return "nothing";
    buf[len++] = '"';
    for (const char *p = n->text; *p && len < 64; p++)
        buf[len++] = (unsigned char)*p < ' ' || *p == 0x7f ? '?' : *p;
    buf[len++] = '"';
    buf[len] = '\0';
    return buf;
}

/* ", did you mean WORD?" or the list of words. */
static void meant(const char *word, const char *const *words, char *out, size_t cap)
{
    const char *near = fp_nearest_name(word, words);
    size_t len = 0;

    if (near) {
        snprintf(out, cap, "did you mean %s?", near);
        return;
    }
    for (size_t i = 0; words[i] && len < cap; i++)
        len += (size_t)snprintf(out + len, cap - len, "%s%s", i ? ", " : "one of ", words[i]);
}

/* ---------------------------------------------------------------- keys */

static int unknown_key(struct cv_reading *r, const struct cv_node *n, const char *what, const struct cv_key *keys)
{
    const char *names[WORDS_MAX + 1];
    char help[300], key[72];
    struct cv_node as_text = {.kind = CV_NODE_SCALAR, .text = n->key};
    size_t count = 0;

    for (; keys[count].name && count < WORDS_MAX; count++)
        names[count] = keys[count].name;
    names[count] = NULL;
    meant(n->key, names, help, sizeof help);
    return cv_tree_mistake(r->why, r->s->name, n->key_line, n->key_column, "%s has no key %s: %s", what, shown(&as_text, key), help);
}

int cv_take_keys(struct cv_reading *r, const struct cv_node *map, const char *what, const struct cv_key *keys, void *into)
{
    char there[72];
    int rc = 0;

    if (map->kind != CV_NODE_MAP)
        return cv_mistake(r, map, "%s is a map of keys, not %s", what, shown(map, there));
    for (const struct cv_node *n = map->first; n; n = n->next) {
        const struct cv_key *k = keys;

        while (k->name && strcmp(k->name, n->key) != 0)
            k++;
        if (!k->name)
            return unknown_key(r, n, what, keys);
    }
    for (const struct cv_key *k = keys; rc == 0 && k->name; k++) {
        const struct cv_node *n = cv_node_find(map, k->name);

        if (n)
            rc = k->take(r, n, into);
        else if (k->needed)
            return cv_mistake(r, map, "%s needs the key %s", what, k->name);
    }
    return rc;
}

/* ---------------------------------------------------------------- scalars */

int cv_take_text(const struct cv_reading *r, const struct cv_node *n, const char *what, const char **out)
{
    char there[72];

    if (n->kind != CV_NODE_SCALAR)
        return cv_mistake(r, n, "%s is one value, not %s", what, shown(n, there));
    if (!n->text[0])
        return cv_mistake(r, n, "%s has no value", what);
    *out = n->text;
    return 0;
}

/* Decimal digits alone. */
static bool is_whole(const char *text, uint64_t *out)
{
    uint64_t v = 0;

    if (!*text)
        return false;
    for (; *text; text++)
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, (uint64_t)(*text - '0'), &v))
            return false;
    *out = v;
    return true;
}

int cv_take_number(const struct cv_reading *r, const struct cv_node *n, const char *what, uint64_t min, uint64_t max, uint64_t *out)
{
    char there[72];
    uint64_t v;

    if (n->kind == CV_NODE_SCALAR && *n->text && !n->text[strspn(n->text, "0123456789")] && !is_whole(n->text, &v))
        return cv_mistake(r, n, "%s is from %llu to %llu, not %s", what, (unsigned long long)min, (unsigned long long)max, shown(n, there));
    if (n->kind != CV_NODE_SCALAR || !is_whole(n->text, &v))
        return cv_mistake(r, n, "%s is a whole number, not %s", what, shown(n, there));
    if (v < min || v > max)
        return cv_mistake(r, n, "%s is from %llu to %llu, not %llu", what, (unsigned long long)min, (unsigned long long)max, (unsigned long long)v);
    *out = v;
    return 0;
}

int cv_take_numbers(const struct cv_reading *r, const struct cv_node *list, const char *what, unsigned n, uint64_t min, uint64_t max, uint64_t *out)
{
    char there[72];
    unsigned i = 0;
    int rc = 0;

    if (list->kind != CV_NODE_LIST)
        return cv_mistake(r, list, "%s is a list of %u numbers, not %s", what, n, shown(list, there));
    if (list->count != n)
        return cv_mistake(r, list, "%s has %zu numbers, and %u are needed: one for each dimension", what, list->count, n);
    for (const struct cv_node *c = list->first; c && rc == 0; c = c->next)
        rc = cv_take_number(r, c, what, min, max, &out[i++]);
    return rc;
}

int cv_take_size(const struct cv_reading *r, const struct cv_node *n, const char *what, uint64_t *out)
{
    const char *text = "", *why = "";
    char there[72];
    int rc = cv_take_text(r, n, what, &text);

    if (rc)
        return rc;
    if (fp_parse_size(text, out, &why))
        return cv_mistake(r, n, "%s is a number of bytes (512, 4KiB), not %s: %s", what, shown(n, there), why);
    if (*out > INT64_MAX)
        return cv_mistake(r, n, "%s is more than a file can have", what);
    return 0;
}

int cv_take_word(const struct cv_reading *r, const struct cv_node *n, const char *what, const char *const *words, unsigned *out)
{
    char there[72], help[300];
    const char *text = "";
    int rc = cv_take_text(r, n, what, &text);

    if (rc)
        return rc;
    for (unsigned i = 0; words[i]; i++)
        if (strcmp(words[i], text) == 0) {
            *out = i;
            return 0;
        }
    meant(text, words, help, sizeof help);
    return cv_mistake(r, n, "%s is not %s: %s", what, shown(n, there), help);
}

/* Decimal, as YAML and JSON write it: what strtod takes beside (0x1p3, infinity) is text to a schema. */
bool cv_is_float(const char *text, double *out)
{
    const char *p = text + (*text == '-' || *text == '+');
    char *end;

    if (strcmp(p, ".inf") == 0 || strcmp(p, ".Inf") == 0 || strcmp(p, ".INF") == 0) {
        *out = *text == '-' ? -INFINITY : INFINITY;
        return true;
    }
    if (strcmp(text, ".nan") == 0 || strcmp(text, ".NaN") == 0 || strcmp(text, ".NAN") == 0) {
        *out = NAN;
        return true;
    }
    if (!strpbrk(p, "0123456789") || strspn(p, "0123456789.eE+-") != strlen(p))
        return false;
    *out = strtod(text, &end);
    return !*end && isfinite(*out);
}

/* ---------------------------------------------------------------- names and attributes */

int cv_check_name(const struct cv_reading *r, unsigned line, unsigned column, const char *what, const char *name)
{
    if (!*name)
        return cv_tree_mistake(r->why, r->s->name, line, column, "the name of %s is empty", what);
    if (strlen(name) > CV_NAME_MAX)
        return cv_tree_mistake(r->why, r->s->name, line, column, "the name of %s has %zu bytes, and %u are the most", what, strlen(name), CV_NAME_MAX);
    if (strchr(name, '/'))
        return cv_tree_mistake(r->why, r->s->name, line, column, "the name of %s has a slash in it", what);
    for (const char *p = name; *p; p++)
        if ((unsigned char)*p < ' ' || *p == 0x7f)
            return cv_tree_mistake(r->why, r->s->name, line, column, "the name of %s has a control character in it", what);
    return 0;
}

static int put_done(const struct cv_reading *r, int rc)
{
    return rc == -ENOMEM ? cv_no_memory(r) : rc;
}

/* One value: a whole number, a number, or text. */
static int put_scalar(const struct cv_reading *r, const struct cv_node *n, struct cv_attrs *a)
{
    const char *why;
    int64_t whole;
    double real;

    if (n->plain && fp_parse_int(n->text, &whole, &why) == 0)
        return put_done(r, cv_attrs_ints(a, n->key, &whole, 1));
    if (n->plain && cv_is_float(n->text, &real))
        return put_done(r, cv_attrs_floats(a, n->key, &real, 1));
    if (strlen(n->text) > ATTR_TEXT_MAX)
        return cv_mistake(r, n, "the text of an attribute has at most %u bytes", ATTR_TEXT_MAX);
    return put_done(r, cv_attrs_text(a, n->key, n->text));
}

/* Numbers: all whole, or floats. */
static int put_list(const struct cv_reading *r, const struct cv_node *n, struct cv_attrs *a)
{
    int64_t *ints = calloc(n->count ? n->count : 1, sizeof *ints);
    double *floats = calloc(n->count ? n->count : 1, sizeof *floats);
    bool whole = true;
    size_t i = 0;
    int rc = 0;

    if (!ints || !floats)
        rc = cv_no_memory(r);
    else if (!n->count || n->count > ATTR_VALUES_MAX)
        rc = cv_mistake(r, n, "a list as an attribute has from 1 to %u numbers, not %zu", ATTR_VALUES_MAX, n->count);
    for (const struct cv_node *c = n->first; rc == 0 && c; c = c->next, i++) {
        const char *why;
        bool is_int = c->kind == CV_NODE_SCALAR && c->plain && fp_parse_int(c->text, &ints[i], &why) == 0;

        whole = whole && is_int;
        if (c->kind != CV_NODE_SCALAR || !c->plain || (!cv_is_float(c->text, &floats[i]) && !is_int))
            rc = cv_mistake(r, c, "a list as an attribute has numbers alone");
    }
    if (rc == 0)
        rc = put_done(r, whole ? cv_attrs_ints(a, n->key, ints, n->count) : cv_attrs_floats(a, n->key, floats, n->count));
    free(ints);
    free(floats);
    return rc;
}

int cv_take_attributes(struct cv_reading *r, const struct cv_node *map, struct cv_attrs *a)
{
    char there[72];
    int rc = 0;

    if (map->kind != CV_NODE_MAP)
        return cv_mistake(r, map, "attributes is a map of names and values, not %s", shown(map, there));
    for (const struct cv_node *n = map->first; n && rc == 0; n = n->next) {
        rc = cv_check_name(r, n->key_line, n->key_column, "an attribute", n->key);
        if (rc == 0 && cv_attrs_find(a, n->key))
            rc = cv_tree_mistake(r->why, r->s->name, n->key_line, n->key_column, "the attribute %.60s is there already (units: is one)", n->key);
        if (rc == 0 && n->kind == CV_NODE_MAP)
            rc = cv_mistake(r, n, "an attribute is a value or a list of numbers, not a map");
        if (rc == 0)
            rc = n->kind == CV_NODE_LIST ? put_list(r, n, a) : put_scalar(r, n, a);
    }
    return rc;
}
