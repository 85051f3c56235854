/*
 * The groups that a coordinator knows, and their files (group.h). Called by watch.c. Pure.
 *
 * A group is found by its key through a table of chains; its files are sorted by their paths. A scan of a store of 100,000 files looks each of them up, whether they are one set or 100,000 files of none.
 */
#include <stdlib.h>
#include <string.h>

#include "convert/watch/group.h"

static void file_clear(struct cw_file *f)
{
    free(f->path);
    free(f->node);
}

static void group_clear(struct cw_group *g)
{
    for (size_t i = 0; i < g->nfiles; i++)
        file_clear(&g->files[i]);
    free(g->files);
    free(g->key);
}

void cw_groups_free(struct cw_groups *g)
{
    for (size_t i = 0; i < g->count; i++)
        group_clear(&g->items[i]);
    free(g->items);
    free(g->chains);
    *g = (struct cw_groups){0};
}

/* ---------------------------------------------------------------- the table */

/* A chain is numbers of groups from 1 on; 0 ends it. */
static size_t *chain_of(const struct cw_groups *g, const char *key)
{
    return &g->chains[cw_hash(0, key, strlen(key)) % g->nchains];
}

static size_t *link_to(const struct cw_groups *g, size_t number)
{
    size_t *at = chain_of(g, g->items[number - 1].key);

    while (*at != number)
        at = &g->items[*at - 1].next;
    return at;
}

struct cw_group *cw_groups_find(const struct cw_groups *g, const char *key)
{
    size_t at = g->nchains ? *chain_of(g, key) : 0;

    while (at && strcmp(g->items[at - 1].key, key) != 0)
        at = g->items[at - 1].next;
    return at ? &g->items[at - 1] : NULL;
}

void cw_groups_drop(struct cw_groups *g, struct cw_group *one)
{
    size_t number = (size_t)(one - g->items) + 1;

    *link_to(g, number) = one->next;
    if (number < g->count) /* the last one takes its place */
        *link_to(g, g->count) = number;
    g->nfiles -= one->nfiles;
    group_clear(one);
    *one = g->items[--g->count];
}

/* Room for one more, and as many chains as groups. */
static bool grow(struct cw_groups *g)
{
    size_t cap = g->cap ? 2 * g->cap : 64;
    struct cw_group *items;
    size_t *chains;

    if (g->count < g->cap)
        return true;
    chains = calloc(cap, sizeof *chains);
    items = chains ? realloc(g->items, cap * sizeof *items) : NULL;
    if (!items) {
        free(chains);
        return false;
    }
    free(g->chains);
    *g = (struct cw_groups){.items = items, .count = g->count, .cap = cap, .nfiles = g->nfiles, .chains = chains, .nchains = cap};
    for (size_t i = 0; i < g->count; i++) {
        size_t *at = chain_of(g, items[i].key);

        items[i].next = *at;
        *at = i + 1;
    }
    return true;
}

static struct cw_group *new_group(struct cw_groups *g, const char *key)
{
    struct cw_group *one;
    size_t *at;

    if (!grow(g))
        return NULL;
    one = &g->items[g->count];
    *one = (struct cw_group){.key = strdup(key)};
    if (!one->key)
        return NULL;
    at = chain_of(g, key);
    one->next = *at;
    *at = ++g->count;
    return one;
}

/* ---------------------------------------------------------------- files */

/* Where it is, or would be. */
static size_t place_of(const struct cw_group *g, const char *path, bool *there)
{
    size_t low = 0, high = g->nfiles;

    *there = false;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = strcmp(g->files[mid].path, path);

        if (order == 0) {
            *there = true;
            return mid;
        }
        if (order < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static bool set_text(char **to, const char *text)
{
    char *copy = strdup(text);

    if (!copy)
        return false;
    free(*to);
    *to = copy;
    return true;
}

static bool one_more(struct cw_group *g)
{
    size_t cap = g->cap ? 2 * g->cap : 4;
    struct cw_file *files;

    if (g->nfiles < g->cap)
        return true;
    files = realloc(g->files, cap * sizeof *files);
    if (!files)
        return false;
    g->files = files;
    g->cap = cap;
    return true;
}

/* Room for new ones: those that are done, or failed, are found again in the store when they are asked for. *keep stays, and may move. */
static void forget_ended(struct cw_groups *g, struct cw_group **keep, const char *key)
{
    for (size_t i = g->count; i-- > 0;)
        if (g->items[i].phase != CW_WAITING && g->items[i].phase != CW_RUNNING && strcmp(g->items[i].key, key) != 0)
            cw_groups_drop(g, &g->items[i]);
    *keep = cw_groups_find(g, key);
}

/* At this place, with nothing known of it yet. */
static bool insert(struct cw_groups *g, struct cw_group *one, size_t at, const char *path, int64_t mtime_ns)
{
    struct cw_file new = {.path = strdup(path), .node = strdup(""), .mtime_ns = mtime_ns};

    if (!new.path || !new.node || !one_more(one)) {
        file_clear(&new);
        return false;
    }
    memmove(one->files + at + 1, one->files + at, (one->nfiles - at) * sizeof *one->files);
    one->files[at] = new;
    one->nfiles++;
    g->nfiles++;
    return true;
}

static bool put_file(struct cw_groups *g, struct cw_group **one, const char *path, const char *node, int64_t mtime_ns)
{
    bool there;
    size_t at = place_of(*one, path, &there);

    if (!there && g->nfiles >= CV_FILES_MAX)
        forget_ended(g, one, (*one)->key);
    if (!there && (g->nfiles >= CV_FILES_MAX || !insert(g, *one, at, path, mtime_ns)))
        return false;
    if ((*one)->files[at].mtime_ns != mtime_ns)
        cw_file_changed(*one, &(*one)->files[at], mtime_ns);
    return !node || cw_file_name(&(*one)->files[at], node);
}

struct cw_group *cw_groups_add(struct cw_groups *g, const char *key, const char *path, const char *node, int64_t mtime_ns)
{
    struct cw_group *one = cw_groups_find(g, key);
    bool is_new = !one;

    if (is_new && !(one = new_group(g, key)))
        return NULL;
    if (put_file(g, &one, path, node, mtime_ns))
        return one;
    if (is_new)
        cw_groups_drop(g, one);
    return NULL;
}

void cw_groups_take_out(struct cw_groups *g, struct cw_group *one, size_t i)
{
    file_clear(&one->files[i]);
    memmove(one->files + i, one->files + i + 1, (--one->nfiles - i) * sizeof *one->files);
    g->nfiles--;
}

bool cw_file_name(struct cw_file *f, const char *node)
{
    return strcmp(f->node, node) == 0 || set_text(&f->node, node);
}

struct cw_file *cw_group_file(const struct cw_group *g, const char *path)
{
    bool there;
    size_t at = place_of(g, path, &there);

    return there ? &g->files[at] : NULL;
}
