/*
 * Checkpoint sets: files whose writer is gone.
 *
 * A mount that ends while it has a file open for writing may have written half of it. The file keeps a mark of that in its row (MGR_TORN_FILE), which outlives
 * restarts of the manager, until it is cut to nothing, or until somebody who opens it for writing when nobody else has it open writes to it: a restarted
 * job. A set is torn as long as one of its files is. A rank that goes on writing the same file does not take the mark away: what the dead one had to
 * write is not its business. Files of no set have the mark, too, since they may be found to be of one later (setgrowth.c).
 *
 * Called by sets.c, in the core's thread. Rejected: a mark of the set alone, which can't tell when the last of its torn files has been written again.
 */
#include <errno.h>

#include "manager/sets_int.h"

static void died(struct mgr_core *c, uint64_t ino)
{
    mgr_idmap_del(&c->sets->anew, ino);
    if (c->db.in_tx) /* else the core comes to its end */
        mgr_db_exec(&c->db, FILE_TEAR, DBI(ino), DBI(MGR_TORN_FILE));
}

void mgr_sets_died(struct mgr_core *c, const struct mgr_session *s)
{
    struct mgr_sets *t = c->sets;
    uint64_t ino, id, val;
    size_t pos = 0;
    uint32_t n;

    if (!t)
        return;
    while (mgr_map_next(&s->writes, &pos, &ino, &n)) {
        struct mgr_set *set = mgr_idmap_get(&t->writing, ino, &id) ? mgr_set_in_memory(c, id) : NULL;

        if (set)
            set->died = true;
        died(c, ino); /* of no set, too: it may become one by growth */
    }
    if (s->settled_ms != UINT64_MAX)
        return;
    t->lost_ns = c->now.ns;
    for (pos = 0; mgr_idmap_next(&t->open, &pos, &id, &val);) { /* it has never said what it had open */
        struct mgr_set *set = (struct mgr_set *)(uintptr_t)val;

        set->died |= set->doubt;
    }
}

void mgr_sets_hurt(struct mgr_core *c, uint64_t ino)
{
    uint64_t id;
    struct mgr_set *set = c->sets && mgr_idmap_get(&c->sets->writing, ino, &id) ? mgr_set_in_memory(c, id) : NULL;

    if (set)
        set->died = true;
    if (c->sets)
        died(c, ino);
}

int mgr_torn_opened(struct mgr_core *c, const struct mgr_inode *in)
{
    if (!(in->flags & MGR_TORN_FILE))
        return 0;
    return mgr_idmap_put(&c->sets->anew, in->ino, 1) ? mgr_doom(c, -ENOMEM) : 0;
}

void mgr_torn_written(struct mgr_core *c, struct mgr_inode *in)
{
    if (in->flags & MGR_TORN_FILE && mgr_idmap_get(&c->sets->anew, in->ino, NULL))
        in->flags &= ~MGR_TORN_FILE;
}

int mgr_torn_any(struct mgr_core *c, uint64_t set, bool *yes)
{
    int rc = mgr_db_one(&c->db, MEMBER_TORN, DBI(set), DBI(MGR_TORN_FILE));

    *yes = rc > 0;
    mgr_db_reset(&c->db, MGR_ST_MEMBER_TORN);
    return rc < 0 ? rc : 0;
}

int mgr_torn_set(struct mgr_core *c, uint64_t set)
{
    bool yes;
    int rc = mgr_torn_any(c, set, &yes);

    return rc || yes ? rc : mgr_db_exec(&c->db, MEMBER_TEAR, DBI(set), DBI(MGR_TORN_FILE));
}

int mgr_torn_mend(struct mgr_core *c, uint64_t set)
{
    bool yes;
    int rc = mgr_torn_any(c, set, &yes);

    return rc || !yes ? rc : mgr_db_exec(&c->db, MEMBER_MEND, DBI(set), DBI(MGR_TORN_FILE));
}
