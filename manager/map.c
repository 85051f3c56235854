/* Open addressing with linear probing; a removal moves the following keys back, so there are no tombstones
 * and a map that only churns (create, close, create, ...) never grows. Half full at most. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "manager/map.h"

static size_t home(const struct mgr_map *m, uint64_t key)
{
    return (size_t)((key * 0x9E3779B97F4A7C15u) >> 20) & (m->cap - 1);
}

static size_t find(const struct mgr_map *m, uint64_t key)
{
    size_t i = home(m, key);

    while (m->slot[i].key && m->slot[i].key != key)
        i = (i + 1) & (m->cap - 1);
    return i;
}

void mgr_map_fini(struct mgr_map *m)
{
    free(m->slot);
    memset(m, 0, sizeof *m);
}

uint32_t mgr_map_get(const struct mgr_map *m, uint64_t key)
{
    return m->used ? m->slot[find(m, key)].val : 0;
}

int mgr_map_reserve(struct mgr_map *m)
{
    struct mgr_map bigger = {.cap = m->cap ? m->cap * 2 : 64};

    if (m->used * 2 < m->cap)
        return 0;
    bigger.slot = calloc(bigger.cap, sizeof *bigger.slot);
    if (!bigger.slot)
        return -ENOMEM;
    for (size_t i = 0; i < m->cap; i++)
        if (m->slot[i].key)
            bigger.slot[find(&bigger, m->slot[i].key)] = m->slot[i];
    bigger.used = m->used;
    free(m->slot);
    *m = bigger;
    return 0;
}

uint32_t mgr_map_add(struct mgr_map *m, uint64_t key)
{
    size_t i;

    assert(key && m->cap);
    i = find(m, key);
    if (!m->slot[i].key) {
        m->slot[i].key = key;
        m->used++;
    }
    return ++m->slot[i].val;
}

static void remove_at(struct mgr_map *m, size_t i)
{
    size_t mask = m->cap - 1, j = i;

    for (;;) {
        j = (j + 1) & mask;
        if (!m->slot[j].key)
            break;
        /* may the key at j move to i? only if its home is not in (i, j] */
        if (((j - home(m, m->slot[j].key)) & mask) >= ((j - i) & mask)) {
            m->slot[i] = m->slot[j];
            i = j;
        }
    }
    m->slot[i] = (struct mgr_map_slot){0};
    m->used--;
}

uint32_t mgr_map_sub(struct mgr_map *m, uint64_t key)
{
    size_t i;

    if (!m->used)
        return 0;
    i = find(m, key);
    if (!m->slot[i].key)
        return 0;
    if (--m->slot[i].val)
        return m->slot[i].val;
    remove_at(m, i);
    return 0;
}

bool mgr_map_next(const struct mgr_map *m, size_t *pos, uint64_t *key, uint32_t *val)
{
    while (*pos < m->cap) {
        const struct mgr_map_slot *s = &m->slot[(*pos)++];

        if (s->key) {
            *key = s->key;
            *val = s->val;
            return true;
        }
    }
    return false;
}
