/*
 * What is converted, and when (group.h). Called by watch.c. Pure.
 *
 * Every mount that declares convert decides for itself, by what all can see: the state of the set, and who has closed which file. The node of the first file leads. Who leads, or owns a part, is not
 * asked by others whether it lives: after CW_TAKE_MS they try to do its work, and a lock on the group's first file, which a dead mount loses, says whether they may (watch.c). Rejected: a leader chosen by
 * the manager, which would have to know what a conversion is.
 *
 * So that all see the same parts, nothing is begun while it is not known who has closed a file: a node that has much to do says it late. Who leads waits for that, and then says that it is his.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/watch/group.h"

#define HASH_BEGIN UINT64_C(0xcbf29ce484222325)

static uint64_t mixed(uint64_t h, const void *data, size_t len)
{
    for (size_t i = 0; i < len; i++)
        h = (h ^ ((const unsigned char *)data)[i]) * UINT64_C(0x100000001b3); /* FNV-1a */
    return h;
}

uint64_t cw_hash(uint64_t seed, const void *data, size_t len)
{
    return mixed(seed ? seed : HASH_BEGIN, data, len);
}

const char *cw_group_first_node(const struct cw_group *g)
{
    for (size_t i = 0; i < g->nfiles; i++)
        if (g->files[i].node[0])
            return g->files[i].node;
    return "";
}

bool cw_file_lacks_name(const struct cw_group *g, size_t file, bool parts)
{
    return (parts || file == 0) && !g->files[file].node[0];
}

static bool lacks_names(const struct cw_group *g, bool parts)
{
    for (size_t i = 0; i < g->nfiles; i++)
        if (cw_file_lacks_name(g, i, parts))
            return true;
    return false;
}

bool cw_file_is_of(const struct cw_file *f, const char *first, const char *node)
{
    return strcmp(f->node[0] ? f->node : first, node) == 0;
}

static uint64_t stamp_file(uint64_t h, const struct cw_file *f)
{
    h = mixed(h, f->path, strlen(f->path) + 1);
    return mixed(h, &f->mtime_ns, sizeof f->mtime_ns);
}

uint64_t cw_group_stamp(const struct cw_group *g)
{
    uint64_t h = HASH_BEGIN;

    for (size_t i = 0; i < g->nfiles; i++)
        h = stamp_file(h, &g->files[i]);
    return h;
}

/* ---------------------------------------------------------------- which files there were */

static uint32_t hash_name(const struct cw_file *f)
{
    uint64_t h = mixed(HASH_BEGIN, f->path, strlen(f->path));

    h ^= h >> 29; /* the last letters, which names differ by, have not got far */
    h *= UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(h >> 32);
}

/* The smallest hashes, in their order: of which files they are, is by chance. */
void cw_group_sample(const struct cw_group *g, char sample[CW_SAMPLE_BYTES])
{
    uint32_t least[CW_SAMPLE_MAX];
    size_t n = 0;

    for (size_t i = 0; i < g->nfiles; i++) {
        uint32_t h = hash_name(&g->files[i]);
        size_t at = n;

        if (n == CW_SAMPLE_MAX && h >= least[n - 1])
            continue;
        n += n < CW_SAMPLE_MAX;
        for (at = at < n ? at : n - 1; at > 0 && least[at - 1] > h; at--)
            least[at] = least[at - 1];
        least[at] = h;
    }
    sample[0] = '\0';
    for (size_t i = 0; i < n; i++)
        snprintf(sample + 8 * i, 9, "%08" PRIx32, least[i]);
}

bool cw_group_has_sample(const struct cw_group *g, const char *sample)
{
    uint32_t wanted[CW_SAMPLE_MAX];
    size_t n = 0, left = 0;

    while (n < CW_SAMPLE_MAX && strlen(sample) >= 8 * (n + 1) && sscanf(sample + 8 * n, "%8" SCNx32, &wanted[n]) == 1)
        n++;
    for (size_t i = 0; i < g->nfiles && n; i++, n = left) {
        uint32_t h = hash_name(&g->files[i]);

        left = 0;
        for (size_t k = 0; k < n; k++)
            if (wanted[k] != h)
                wanted[left++] = wanted[k];
    }
    return n == 0;
}

/* ---------------------------------------------------------------- parts */

static int by_node(const void *a, const void *b)
{
    const struct cw_part *x = a, *y = b;
    int order = strcmp(x->node, y->node);

    return order ? order : (x->first > y->first) - (x->first < y->first);
}

static int by_first(const void *a, const void *b)
{
    const struct cw_part *x = a, *y = b;

    return (x->first > y->first) - (x->first < y->first);
}

struct cw_part *cw_group_parts(const struct cw_group *g, uint64_t seed, size_t *n)
{
    struct cw_part *p = malloc((g->nfiles + 1) * sizeof *p);
    const char *first = cw_group_first_node(g);

    *n = 0;
    if (!p)
        return NULL;
    for (size_t i = 0; i < g->nfiles; i++)
        p[i] = (struct cw_part){g->files[i].node[0] ? g->files[i].node : first, i, seed ? seed : HASH_BEGIN};
    qsort(p, g->nfiles, sizeof *p, by_node);
    for (size_t i = 0; i < g->nfiles; i++) {
        size_t file = p[i].first;

        if (*n == 0 || strcmp(p[*n - 1].node, p[i].node) != 0)
            p[(*n)++] = p[i];
        p[*n - 1].stamp = stamp_file(p[*n - 1].stamp, &g->files[file]);
    }
    qsort(p, *n, sizeof *p, by_first);
    return p;
}

/* ---------------------------------------------------------------- decisions */

void cw_group_touched(struct cw_group *g, uint64_t now_ms)
{
    if (g->phase == CW_RUNNING) {
        g->again = true;
        return;
    }
    g->phase = CW_WAITING;
    g->tries = g->crashes = 0;
    g->complete_ms = 0;
    g->next_ms = now_ms;
}

void cw_file_changed(struct cw_group *g, struct cw_file *f, int64_t mtime_ns)
{
    f->mtime_ns = mtime_ns;
    f->version = 0;
    f->node[0] = '\0';
    g->told = false;
    if (g->phase == CW_WAITING)
        g->complete_ms = 0; /* its files are looked at once more */
}

/* The node of the first file, or whoever comes if nobody knows whose it is, or if that node has not done it. */
static bool leads(const struct cw_group *g, const char *me, bool late)
{
    const char *leader = g->files[0].node;

    return !leader[0] || strcmp(leader, me) == 0 || late;
}

/* In parts: first one's own; then the leader puts them together, and does what is missing when it is late. A file of which nobody knows who wrote it is the leader's: no other part has it. Who does not lead asks
 * for its own part alone: there may be thousands. */
static struct cw_action in_parts(const char *me, bool late, const struct cw_part *p, size_t n, const struct cw_splits *s)
{
    size_t mine = 0;

    while (mine < n && strcmp(p[mine].node, me) != 0)
        mine++;
    if (mine < n && !s->has_part(s->arg, &p[mine]))
        return (struct cw_action){CW_PART, p[mine]};
    if (mine != 0 && !late) /* parts come in the order of the files */
        return (struct cw_action){.what = CW_NOTHING};
    for (size_t i = 0; i < n; i++)
        if (i != mine && !s->has_part(s->arg, &p[i]))
            return late ? (struct cw_action){CW_PART, p[i]} : (struct cw_action){.what = CW_NOTHING};
    return (struct cw_action){.what = CW_JOIN};
}

struct cw_action cw_group_decide(struct cw_group *g, const char *me, uint64_t now_ms, const struct cw_splits *splits)
{
    struct cw_action a = {.what = CW_NOTHING};
    struct cw_part *p = NULL;
    size_t n = 0;
    bool late;

    if (g->nfiles == 0 || g->state == CW_SET_OPEN || g->state == CW_SET_TORN || g->state == CW_SET_FORGOTTEN) {
        g->complete_ms = 0;
        g->next_ms = now_ms + (g->state == CW_SET_OPEN ? CW_LOOK_MS : CW_REST_MS);
        return a;
    }
    g->next_ms = now_ms + CW_LOOK_MS;
    g->complete_ms = g->complete_ms ? g->complete_ms : now_ms;
    late = now_ms - g->complete_ms >= CW_TAKE_MS;
    if (lacks_names(g, splits != NULL)) {
        g->next_ms = now_ms + CW_NAME_MS;
        if (now_ms - g->complete_ms >= CW_NAMED_MS && leads(g, me, late))
            a.what = CW_NAME;
        return a;
    }
    if (splits && !(p = cw_group_parts(g, splits->seed, &n)))
        return a; /* out of memory: with the next look */
    a = n > 1 ? in_parts(me, late, p, n, splits) : (struct cw_action){.what = leads(g, me, late) ? CW_CONVERT : CW_NOTHING};
    free(p);
    return a;
}

void cw_group_ended(struct cw_group *g, enum cw_end end, uint64_t now_ms)
{
    uint64_t pause = CW_LOOK_MS;

    g->phase = CW_WAITING;
    g->next_ms = now_ms;
    if (g->again) { /* what was made is of data that is not there any more */
        g->again = false;
        cw_group_touched(g, now_ms);
        return;
    }
    if (end == CW_END_DONE)
        g->phase = CW_DONE;
    else if (end == CW_END_BAD || (end == CW_END_CRASH && ++g->crashes >= CW_CRASHES))
        g->phase = CW_FAILED;
    else if (end == CW_END_PART)
        g->tries = 0;
    if (end != CW_END_PASSING && end != CW_END_CRASH)
        return;
    for (unsigned i = 0; i < g->tries && pause < CW_AGAIN_MAX_MS; i++)
        pause *= 2;
    g->tries++;
    g->next_ms = now_ms + (pause < CW_AGAIN_MAX_MS ? pause : CW_AGAIN_MAX_MS);
}
