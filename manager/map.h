/* A small hash map from inode numbers to counters (open files). Key 0 is never used. One thread. */
#ifndef MGR_MAP_H
#define MGR_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mgr_map {
    struct mgr_map_slot {
        uint64_t key;
        uint32_t val;
    } * slot;
    size_t cap;  /* power of two, or 0 */
    size_t used; /* keys with a value */
};

void mgr_map_fini(struct mgr_map *m);
/* 0 when the key is not there. */
uint32_t mgr_map_get(const struct mgr_map *m, uint64_t key);
/* Makes room, so that the next mgr_map_add cannot fail. -ENOMEM. */
int mgr_map_reserve(struct mgr_map *m);
/* Adds 1 (after mgr_map_reserve) or takes 1 away; a key at 0 leaves the map. Returns the new value. */
uint32_t mgr_map_add(struct mgr_map *m, uint64_t key);
uint32_t mgr_map_sub(struct mgr_map *m, uint64_t key);
/* Walks: start with *pos = 0; false at the end. The map must not change meanwhile. */
bool mgr_map_next(const struct mgr_map *m, size_t *pos, uint64_t *key, uint32_t *val);

#endif
