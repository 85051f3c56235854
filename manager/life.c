/* How long what is committed and not synced lasts: as long as the kernel whose page cache has it. A number says which life that is. Clients get it with each hello;
 * another one than before tells them that the manager may have forgotten what it has answered, and their next fsync of what they had changed says so.
 *
 * The number stays over restarts of the process, since what was committed does. It stays over a boot, too, if the manager had ended in good order, for then
 * all of it was synced: that it has is a row, put as the last thing, which is taken away durably before anybody is served. A row that is there proves all
 * that was written before it, since recovery of the WAL ends at the first thing missing.
 *
 * Called at the opening and at the end of the database. That clients compare versions of files instead was rejected: they grow again to what they were. */
#include "fp/bug.h"
#include "fp/log.h"
#include "manager/core_int.h"

static int get(struct mgr_core *c, const char *key, uint64_t *out)
{
    int rc = mgr_db_one(&c->db, META_GET, DBT(key));

    *out = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_META_GET, 0) : 0;
    mgr_db_reset(&c->db, MGR_ST_META_GET);
    return rc < 0 ? rc : 0;
}

static int put(struct mgr_core *c, const char *key, uint64_t value)
{
    return mgr_db_exec(&c->db, META_PUT, DBT(key), DBI(value));
}

int mgr_life_load(struct mgr_core *c)
{
    uint64_t boot, ended;
    int rc = get(c, "life", &c->life);

    rc = rc ? rc : get(c, "life_boot", &boot);
    rc = rc ? rc : get(c, "life_ended", &ended);
    if (rc)
        return rc;
    if (!c->life || (!FP_BUG("mgr-hides-a-boot") && !ended && (!c->o.boot || boot != c->o.boot))) {
        if (c->life)
            FP_WARN("this machine was started anew, and the manager had not ended: what it answered last and had not synced may be lost; fsync tells the programs concerned");
        c->life = c->o.new_life ? c->o.new_life : (uint64_t)c->now.ns | 1;
    }
    rc = put(c, "life", c->life);
    rc = rc ? rc : put(c, "life_boot", c->o.boot);
    return rc ? rc : put(c, "life_ended", 0);
}

int mgr_core_ended(struct mgr_core *c)
{
    int rc, end;

    mgr_db_begin(&c->db);
    rc = put(c, "life_ended", 1);
    end = mgr_db_commit(&c->db);
    rc = rc ? rc : end;
    return rc ? rc : mgr_db_sync(&c->db);
}
