/* Inodes without a name: kept while a session holds them open, removed step by step afterwards.
 *
 * Who holds what is known from MSG_OPEN and MSG_RELEASE, in memory. A restarted manager does not know it
 * until each session has come back and told (Hello.open_ino) or is gone: until then nothing without a name is
 * removed (mgr_unsettled). A file with many slices is removed over several groups, MGR_RECLAIM_STEP slices in
 * each, so that other requests are not kept waiting; from the first step on it can't be had back
 * (orphan.gone). */
#include <errno.h>
#include <sys/stat.h>

#include "manager/core_int.h"
#include "manager/drain.h"
#include "manager/version.h"

#define WINS_STEP 8192

static int orphan_set(struct mgr_core *c, uint64_t ino, uint32_t state)
{
    uint32_t now = mgr_map_get(&c->orphans, ino);

    if (now >= state)
        return 0;
    if (mgr_map_reserve(&c->orphans))
        return mgr_doom(c, -ENOMEM);
    while (now < state)
        now = mgr_map_add(&c->orphans, ino);
    return mgr_db_exec(&c->db, ORPHAN_PUT, DBI(ino), DBI(state == 2));
}

int mgr_orphan_keep(struct mgr_core *c, uint64_t ino)
{
    return orphan_set(c, ino, 1);
}

int mgr_orphan_forget(struct mgr_core *c, uint64_t ino)
{
    if (!mgr_map_get(&c->orphans, ino))
        return 0;
    while (mgr_map_sub(&c->orphans, ino))
        ;
    return mgr_db_exec(&c->db, ORPHAN_DELETE, DBI(ino));
}

static int drop_wins(struct mgr_core *c, uint64_t shadow, bool *left)
{
    int rc = mgr_db_exec(&c->db, VERSION_WIN_DROP, DBI(shadow), DBI(WINS_STEP));

    *left = !rc && sqlite3_changes(c->db.sq) == WINS_STEP;
    return rc;
}

/* Removes an inode that nobody holds, or as much of it as fits into this group. */
static int inode_remove(struct mgr_core *c, struct mgr_inode *in)
{
    bool left = false;
    int rc = 0;

    if (in->mapped)
        rc = mgr_slices_drop(c, in, MGR_RECLAIM_STEP, &left);
    if (!rc && !left && in->flags & MGR_SHADOW)
        rc = drop_wins(c, in->ino, &left);
    if (!rc && left) {
        c->busy = true;
        c->sweep_at_ms = 0;
        rc = mgr_inode_put(c, in);
        return rc ? rc : orphan_set(c, in->ino, 2);
    }
    if (!rc && in->flags & MGR_DRAINS)
        rc = mgr_drained_drop(c, in->ino);
    if (!rc)
        rc = mgr_db_exec(&c->db, XATTR_DELETE_ALL, DBI(in->ino));
    if (!rc)
        rc = mgr_db_exec(&c->db, INODE_DELETE, DBI(in->ino));
    if (!rc)
        rc = mgr_orphan_forget(c, in->ino);
    c->n.inodes--;
    c->n.dirty = true;
    return rc;
}

int mgr_shadow_remove(struct mgr_core *c, uint64_t ino)
{
    struct mgr_inode in;
    int rc = mgr_inode_get(c, ino, &in);

    return rc ? rc : inode_remove(c, &in);
}

int mgr_inode_unlinked(struct mgr_core *c, struct mgr_inode *in)
{
    int rc = mgr_versions_gone(c, in->ino);

    if (rc)
        return rc;
    if (!mgr_map_get(&c->holders, in->ino) && !mgr_unsettled(c))
        return inode_remove(c, in);
    rc = mgr_inode_put(c, in);
    return rc ? rc : mgr_orphan_keep(c, in->ino);
}

static int reclaim(struct mgr_core *c, uint64_t ino)
{
    struct mgr_inode in;
    int rc = mgr_inode_get(c, ino, &in);

    if (rc == -ENOENT || (!rc && in.nlink))
        return mgr_orphan_forget(c, ino);
    return rc ? rc : inode_remove(c, &in);
}

int mgr_orphan_released(struct mgr_core *c, uint64_t ino)
{
    if (!mgr_map_get(&c->orphans, ino) || mgr_unsettled(c))
        return 0;
    return reclaim(c, ino);
}

int mgr_orphan_sweep(struct mgr_core *c)
{
    enum { BATCH = 256 };
    uint64_t list[BATCH], ino;
    uint32_t val;
    size_t pos = 0, n = 0;
    int rc = 0;

    if (mgr_unsettled(c) || !c->orphans.used)
        return 0;
    while (n < BATCH && mgr_map_next(&c->orphans, &pos, &ino, &val))
        if (!mgr_map_get(&c->holders, ino))
            list[n++] = ino;
    if (n == BATCH) {
        c->busy = true;
        c->sweep_at_ms = 0;
    }
    for (size_t i = 0; i < n && !rc; i++) {
        rc = reclaim(c, list[i]);
        if (c->busy && mgr_map_get(&c->orphans, list[i]))
            break; /* a big one: the rest in the next group */
    }
    return rc;
}

int mgr_orphan_load(struct mgr_core *c)
{
    int rc;

    mgr_map_fini(&c->orphans);
    for (rc = mgr_db_one(&c->db, ORPHAN_LIST); rc > 0; rc = mgr_db_step(&c->db, MGR_ST_ORPHAN_LIST)) {
        uint64_t ino = (uint64_t)mgr_col(&c->db, MGR_ST_ORPHAN_LIST, 0);

        if (mgr_map_reserve(&c->orphans)) {
            mgr_db_reset(&c->db, MGR_ST_ORPHAN_LIST);
            return -ENOMEM;
        }
        mgr_map_add(&c->orphans, ino);
        if (mgr_col(&c->db, MGR_ST_ORPHAN_LIST, 1))
            mgr_map_add(&c->orphans, ino);
    }
    return rc;
}
