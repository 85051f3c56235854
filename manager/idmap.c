/* What map.c is for counters, for values of any kind: open addressing with linear probing, no tombstones, half full at most. Used by the checkpoint sets (sets.c).
 * Apart from map.c, since there a key whose counter is 0 is not in the map. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "manager/idmap.h"

static size_t home(const struct mgr_idmap *m, uint64_t key)
{
    return (size_t)((key * 0x9E3779B97F4A7C15u) >> 20) & (m->cap - 1);
}

static size_t find(const struct mgr_idmap *m, uint64_t key)
{
    size_t i = home(m, key);

    while (m->slot[i].key && m->slot[i].key != key)
        i = (i + 1) & (m->cap - 1);
    return i;
}

void mgr_idmap_fini(struct mgr_idmap *m)
{
    free(m->slot);
    memset(m, 0, sizeof *m);
}

bool mgr_idmap_get(const struct mgr_idmap *m, uint64_t key, uint64_t *val)
{
    size_t i;

    if (!m->used)
        return false;
    i = find(m, key);
    if (m->slot[i].key && val)
        *val = m->slot[i].val;
    return m->slot[i].key != 0;
}

static int grow(struct mgr_idmap *m)
{
    struct mgr_idmap bigger = {.cap = m->cap ? m->cap * 2 : 64, .used = m->used};

    bigger.slot = calloc(bigger.cap, sizeof *bigger.slot);
    if (!bigger.slot)
        return -ENOMEM;
    for (size_t i = 0; i < m->cap; i++)
        if (m->slot[i].key)
            bigger.slot[find(&bigger, m->slot[i].key)] = m->slot[i];
    free(m->slot);
    *m = bigger;
    return 0;
}

int mgr_idmap_put(struct mgr_idmap *m, uint64_t key, uint64_t val)
{
    size_t i;

    assert(key);
    if (m->used * 2 >= m->cap && grow(m))
        return -ENOMEM;
    i = find(m, key);
    m->used += m->slot[i].key == 0;
    m->slot[i] = (struct mgr_idmap_slot){key, val};
    return 0;
}

void mgr_idmap_del(struct mgr_idmap *m, uint64_t key)
{
    size_t mask = m->cap - 1, i, j;

    if (!m->used)
        return;
    i = j = find(m, key);
    if (!m->slot[i].key)
        return;
    for (;;) {
        j = (j + 1) & mask;
        if (!m->slot[j].key)
            break;
        if (((j - home(m, m->slot[j].key)) & mask) >= ((j - i) & mask)) { /* its home is not in (i, j] */
            m->slot[i] = m->slot[j];
            i = j;
        }
    }
    m->slot[i] = (struct mgr_idmap_slot){0};
    m->used--;
}

bool mgr_idmap_next(const struct mgr_idmap *m, size_t *pos, uint64_t *key, uint64_t *val)
{
    while (*pos < m->cap) {
        const struct mgr_idmap_slot *s = &m->slot[(*pos)++];

        if (!s->key)
            continue;
        *key = s->key;
        *val = s->val;
        return true;
    }
    return false;
}
