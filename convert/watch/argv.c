/*
 * The words of a conversion's process (argv.h). Called by watch.c for each that it starts. Pure.
 *
 * Files are no words, for those have a limit (a quarter of the stack's), and a set may have hundreds of thousands: they are lists, which the process reads by --files0-from and --only0-from out of descriptors that it
 * inherits (worker.c). Rejected: patterns in their place, which would be looked up anew, and might find others.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/watch/argv.h"
#include "convert/watch/names.h"

static void add(struct cw_argv *l, const char *text)
{
    if (l->n + 2 > l->cap) {
        const char **items = realloc(l->items, (l->cap = 2 * l->cap + 64) * sizeof *items);

        if (!items) {
            l->bad = true;
            return;
        }
        l->items = items;
    }
    l->items[l->n++] = text;
    l->items[l->n] = NULL;
}

__attribute__((format(printf, 2, 3))) static void add_own(struct cw_argv *l, const char *format, ...)
{
    char **own = realloc(l->own, (l->nown + 1) * sizeof *own), *text = NULL;
    va_list args;

    if (own)
        l->own = own;
    va_start(args, format);
    if (!own || vasprintf(&text, format, args) < 0)
        l->bad = true;
    va_end(args);
    if (l->bad)
        return;
    l->own[l->nown++] = text;
    add(l, text);
}

/* A path in the store, as the mount has it. */
static void add_file(struct cw_argv *l, struct cw_list *list, const char *mount, const char *path)
{
    size_t m = strlen(mount), len = m + strlen(path) + 2;

    if (list->cap - list->len < len) {
        size_t cap = 2 * list->cap + len + 4096;
        char *text = realloc(list->text, cap);

        if (!text) {
            l->bad = true;
            return;
        }
        list->text = text;
        list->cap = cap;
    }
    memcpy(list->text + list->len, mount, m);
    list->text[list->len + m] = '/';
    strcpy(list->text + list->len + m + 1, path);
    list->len += len;
}

void cw_argv_free(struct cw_argv *l)
{
    for (size_t i = 0; i < l->nown; i++)
        free(l->own[i]);
    free(l->own);
    free(l->items);
    free(l->inputs.text);
    free(l->only.text);
}

static void add_parts(struct cw_argv *l, const char *mount, const struct cw_group *g, const char *result)
{
    char name[PATH_MAX];
    size_t n;
    struct cw_part *p = cw_group_parts(g, 0, &n);

    if (!p)
        l->bad = true;
    for (size_t i = 0; p && i < n; i++) {
        if (!cw_name_part(result, p[i].node, name))
            l->bad = true;
        add_file(l, &l->inputs, mount, name);
    }
    free(p);
}

static void add_only(struct cw_argv *l, const char *mount, const struct cw_group *g, const char *node)
{
    const char *first = cw_group_first_node(g);

    for (size_t i = 0; i < g->nfiles; i++)
        if (cw_file_is_of(&g->files[i], first, node))
            add_file(l, &l->only, mount, g->files[i].path);
    add_own(l, "--only0-from=/proc/self/fd/%d", CW_ONLY_FD);
}

void cw_argv_fill(struct cw_argv *l, const struct cw_options *o, const struct cw_group *g, const struct cw_action *a, const char *result, const char *of)
{
    const char *mount = o->mount;
    char part[PATH_MAX];

    add(l, o->program);
    add(l, a->what == CW_JOIN ? "join" : "run");
    add_own(l, "--status-fd=%d", CW_STATUS_FD);
    add(l, "--replace");
    add_own(l, "--converted=%s", cw_name_base(result));
    add_own(l, "--of=%s", of);
    for (const char *const *r = o->run_words; *r && a->what != CW_JOIN; r++)
        add(l, *r);
    if (o->xdmf && a->what == CW_CONVERT)
        add(l, "--xdmf");
    if (a->what == CW_PART) {
        if (!cw_name_part(result, a->part.node, part))
            l->bad = true;
        add_only(l, mount, g, a->part.node);
    }
    add_own(l, "--out=%s/%s", mount, a->what == CW_PART ? part : result);
    if (a->what == CW_JOIN)
        add_parts(l, mount, g, result);
    for (size_t i = 0; i < g->nfiles && a->what != CW_JOIN; i++)
        add_file(l, &l->inputs, mount, g->files[i].path);
    add_own(l, "--files0-from=/proc/self/fd/%d", CW_INPUTS_FD);
}
