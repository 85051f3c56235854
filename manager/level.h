/* Levels of durability of files and checkpoint sets (level.c). Loop thread, in a group; 0 or a failure. */
#ifndef MGR_LEVEL_H
#define MGR_LEVEL_H

#include "life.pb-c.h"
#include "manager/sets.h"

struct mgr_level {
    Fp__Level level;
    Fp__Level here;  /* without regard of copies in targets */
    bool copies;     /* these count: nobody writes it, and nothing of it is lost */
    bool never;   /* it does not become local without somebody's help */
    bool syncing; /* a device is being synced, as was wanted */
    char *why;    /* not local: why; in memory of the group. "": it is */
    uint64_t drained, verified, drained_bytes; /* of a set: files that have these levels */
};

struct mgr_levels *mgr_levels_new(void); /* NULL: out of memory */
void mgr_levels_free(struct mgr_levels *t);
int mgr_levels_load(struct mgr_core *c);
/* How many slices of maps one request may look at: what is not known then is looked at afterwards. */
#define MGR_LEVEL_LOOK 16384u
/* The level of the present data. want: it is to become local, so what is not synced is asked to be. *look: as above, and less afterwards. */
int mgr_level_file(struct mgr_core *c, const struct mgr_inode *in, bool want, uint32_t *look, struct mgr_level *out);
/* The same of what is published of it, whoever has it open for writing. */
int mgr_level_data(struct mgr_core *c, const struct mgr_inode *in, bool want, uint32_t *look, struct mgr_level *out);
int mgr_level_set(struct mgr_core *c, const struct mgr_set *s, bool want, uint32_t *look, struct mgr_level *out);
/* Some chunk is damaged, or is not any more, or has come to be elsewhere; some row of `drained` is another. */
void mgr_level_chunks(struct mgr_core *c);
void mgr_level_drained(struct mgr_core *c);
/* What is to be looked at: a little of it. */
int mgr_levels_step(struct mgr_core *c);
/* Its row goes, and its number may become that of another set. */
void mgr_level_set_gone(struct mgr_core *c, uint64_t set);
MGR_HANDLER(level);

#endif
