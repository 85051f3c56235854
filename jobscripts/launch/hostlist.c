/*
 * Slurm's short way of writing many names, n[001-120,130],login1 (see hosts.h), read and written. Pure but for memory. Called by fp-job start and status, and by each agent of a job of Slurm.
 *
 * scontrol show hostnames does the same, and did: but 10,000 agents that each start a program, which reads the site's configuration, for what is a loop over
 * a text, were too much for the start of a job. It is asked still if there is something here that is not understood.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jobscripts/launch/hosts.h"
#include "jobscripts/launch/plan.h"

#define BRACKETS_MAX 8u
#define DIGITS_MAX   9u

struct names {
    char **list;
    uint32_t n, room;
    char name[JOB_NODE_NAME_MAX + 1]; /* as far as it is known */
};

static int add(struct names *l)
{
    if (!job_plan_is_node(l->name))
        return -EINVAL;
    if (l->n == JOB_NODES_MAX)
        return -E2BIG;
    if (l->n == l->room) {
        char **more = reallocarray(l->list, l->room ? 2 * l->room : 64, sizeof *more);

        if (!more)
            return -ENOMEM;
        l->list = more;
        l->room = l->room ? 2 * l->room : 64;
    }
    l->list[l->n] = strdup(l->name);
    return l->list[l->n++] ? 0 : -ENOMEM;
}

/* Digits at *at; it goes behind them. The width counts: 001 is another name than 1. */
static bool number(const char **at, unsigned *value, unsigned *width)
{
    *width = (unsigned)strspn(*at, "0123456789");
    if (!*width || *width > DIGITS_MAX)
        return false;
    *value = (unsigned)strtoul(*at, NULL, 10);
    *at += *width;
    return true;
}

static int grow(struct names *l, size_t used, const char *rest, const char *end, unsigned depth);

/* What stands between brackets from at on; then what is behind them, once for each number. */
static int each(struct names *l, size_t used, const char *at, const char *close, const char *end, unsigned depth)
{
    int rc = 0;

    while (rc == 0) {
        unsigned first, last, width, none;

        if (!number(&at, &first, &width))
            return -EINVAL;
        last = first;
        if (*at == '-' && (at++, !number(&at, &last, &none) || last < first))
            return -EINVAL;
        for (unsigned v = first; rc == 0 && v <= last; v++) {
            int n = snprintf(l->name + used, sizeof l->name - used, "%0*u", (int)width, v);

            rc = (size_t)n >= sizeof l->name - used ? -EINVAL : grow(l, used + (size_t)n, close + 1, end, depth + 1);
        }
        if (at == close)
            return rc;
        if (*at++ != ',')
            return -EINVAL;
    }
    return rc;
}

static int grow(struct names *l, size_t used, const char *rest, const char *end, unsigned depth)
{
    const char *open = memchr(rest, '[', (size_t)(end - rest)), *close;
    size_t n = (size_t)((open ? open : end) - rest);

    if (n >= sizeof l->name - used || depth > BRACKETS_MAX)
        return -EINVAL;
    memcpy(l->name + used, rest, n);
    l->name[used + n] = '\0';
    if (!open)
        return add(l);
    close = memchr(open, ']', (size_t)(end - open));
    return close ? each(l, used + n, open + 1, close, end, depth) : -EINVAL;
}

/* Where the name, or the names, at text end: at a comma that is not between brackets. */
static const char *item_end(const char *text)
{
    bool inside = false;

    for (; *text && (inside || *text != ','); text++)
        inside = *text == '[' || (inside && *text != ']');
    return text;
}

int job_hostlist(const char *text, char ***nodes, uint32_t *n)
{
    struct names l = {0};
    int rc = *text ? 0 : -EINVAL;

    while (rc == 0 && *text) {
        const char *end = item_end(text);

        rc = grow(&l, 0, text, end, 0);
        text = end + (*end == ',');
        if (rc == 0 && *end && !*text)
            rc = -EINVAL;
    }
    if (rc) {
        for (uint32_t i = 0; i < l.n; i++)
            free(l.list[i]);
        free(l.list);
        return rc;
    }
    *nodes = l.list;
    *n = l.n;
    return 0;
}

/* ---------------------------------------------------------------- writing */

#define MORE_BYTES 24u /* "] and 10000 more" */

/* A name with a number at its end. */
struct numbered {
    size_t before; /* bytes of the name before the digits */
    unsigned value, width;
    bool is;
};

static struct numbered numbered(const char *name)
{
    size_t len = strlen(name);
    struct numbered x = {.before = len};
    const char *digits;

    while (x.before && strchr("0123456789", name[x.before - 1]))
        x.before--;
    digits = name + x.before;
    x.is = number(&digits, &x.value, &x.width);
    return x;
}

/* May b stand in the brackets behind which a stands? 9 and 10 may, 09 and 100 may not. */
static bool alike(const char *a, const struct numbered *x, const char *b, const struct numbered *y)
{
    return x->is && y->is && x->before == y->before && memcmp(a, b, x->before) == 0 && (x->width == y->width || (a[x->before] != '0' && b[y->before] != '0'));
}

/* How many of the k from i on are the first one's, numbered on without a gap. */
static uint32_t row(char *const *nodes, const uint32_t *which, uint32_t i, uint32_t k)
{
    struct numbered x = numbered(nodes[which[i]]), y;
    uint32_t n = 1;

    for (; i + n < k; n++) {
        y = numbered(nodes[which[i + n]]);
        if (!alike(nodes[which[i]], &x, nodes[which[i + n]], &y) || y.value != x.value + n)
            break;
    }
    return n;
}

char *job_hostlist_write(char *const *nodes, const uint32_t *which, uint32_t k, char *out, size_t size)
{
    bool open = false;
    size_t used = 0;

    out[0] = '\0';
    for (uint32_t i = 0, n; i < k; i += n) {
        const char *name = nodes[which[i]], *last;
        struct numbered x = numbered(name), y = {0};
        char piece[2 * JOB_NODE_NAME_MAX + 8];
        bool follows = open;
        int len;

        n = row(nodes, which, i, k);
        last = nodes[which[i + n - 1]] + x.before;
        if (i + n < k)
            y = numbered(nodes[which[i + n]]);
        open = i + n < k && alike(name, &x, nodes[which[i + n]], &y);
        len = snprintf(piece, sizeof piece, "%s%.*s%s%s%s%s%s", i ? "," : "", follows ? 0 : (int)x.before, name, !follows && (open || n > 1) ? "[" : "", name + x.before, n > 1 ? "-" : "",
                       n > 1 ? last : "", (follows || n > 1) && !open ? "]" : "");
        if (used + (size_t)len + (i + n < k ? MORE_BYTES : 1) > size) {
            snprintf(out + used, size - used, "%s and %u more", follows ? "]" : "", k - i);
            return out;
        }
        memcpy(out + used, piece, (size_t)len + 1);
        used += (size_t)len;
    }
    return out;
}
