/* A small hash map from numbers to numbers (or pointers). Key 0 is never used. One thread. */
#ifndef MGR_IDMAP_H
#define MGR_IDMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mgr_idmap {
    struct mgr_idmap_slot {
        uint64_t key, val;
    } * slot;
    size_t cap;  /* power of two, or 0 */
    size_t used;
};

void mgr_idmap_fini(struct mgr_idmap *m);
/* False: the key is not there. val may be NULL. */
bool mgr_idmap_get(const struct mgr_idmap *m, uint64_t key, uint64_t *val);
/* 0 or -ENOMEM. */
int mgr_idmap_put(struct mgr_idmap *m, uint64_t key, uint64_t val);
void mgr_idmap_del(struct mgr_idmap *m, uint64_t key);
/* Walks: start with *pos = 0; false at the end. The map must not change meanwhile. */
bool mgr_idmap_next(const struct mgr_idmap *m, size_t *pos, uint64_t *key, uint64_t *val);

#endif
