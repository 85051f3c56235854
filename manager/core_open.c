/* Opening a store: tables, identity, and the state in memory that is read from them. Nothing here grows with
 * the number of files, so a manager with a million of them starts like an empty one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fp/record.h"
#include "manager/core_int.h"
#include "manager/ext.h"
#include "manager/drain.h"
#include "manager/level.h"
#include "manager/locks.h"
#include "manager/sets.h"
#include "manager/version.h"

#define DEFAULT_CHUNK_BYTES (1u << 20)
#define INO_SKIP            (1u << 20) /* more than are made in the seconds until the kernel writes the WAL out */

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Numbers that are never used twice only grow, also when a transaction was taken back. */
static int load_counters(struct mgr_core *c)
{
    const enum mgr_stmt st = MGR_ST_COUNTERS_GET;
    struct mgr_counters *n = &c->n;
    int rc = mgr_db_one(&c->db, COUNTERS_GET);

    if (rc <= 0)
        return rc ? rc : -EIO;
    n->next_ino = larger(n->next_ino, (uint64_t)mgr_col(&c->db, st, 0));
    n->next_cookie = larger(n->next_cookie, (uint64_t)mgr_col(&c->db, st, 1));
    n->next_session = larger(n->next_session, (uint64_t)mgr_col(&c->db, st, 2));
    n->next_bnf = larger(n->next_bnf, (uint64_t)mgr_col(&c->db, st, 3));
    n->inodes = (uint64_t)mgr_col(&c->db, st, 4);
    n->chunks = (uint64_t)mgr_col(&c->db, st, 5);
    n->slices = (uint64_t)mgr_col(&c->db, st, 6);
    n->dirty = false;
    mgr_db_reset(&c->db, st);
    return 0;
}

int mgr_reload(struct mgr_core *c)
{
    int rc;

    c->db.err = 0;
    c->holds_dead = true;
    rc = load_counters(c);
    rc = rc ? rc : mgr_bnf_load(c);
    rc = rc ? rc : mgr_orphan_load(c);
    rc = rc ? rc : mgr_versions_load(c);
    rc = rc ? rc : mgr_damage_load(c);
    rc = rc ? rc : mgr_early_load(c);
    rc = rc ? rc : mgr_locks_read(c);
    rc = rc ? rc : mgr_ext_load(c);
    rc = rc ? rc : mgr_drain_load(c);
    rc = rc ? rc : mgr_rescue_load(c);
    rc = rc ? rc : mgr_sets_load(c);
    rc = rc ? rc : mgr_levels_load(c);
    if (rc)
        return mgr_doom(c, rc);
    c->reload = false;
    return 0;
}

static int meta_u32(struct mgr_core *c, const char *key, uint32_t *out)
{
    int rc = mgr_db_one(&c->db, META_GET, DBT(key));

    if (rc <= 0)
        return rc ? rc : -EIO;
    *out = (uint32_t)mgr_col(&c->db, MGR_ST_META_GET, 0);
    mgr_db_reset(&c->db, MGR_ST_META_GET);
    return 0;
}

static int load_meta(struct mgr_core *c)
{
    const void *uuid;
    size_t len;
    int rc = mgr_db_one(&c->db, META_GET, DBT("store_uuid"));

    if (rc <= 0)
        return rc ? rc : -EIO;
    uuid = mgr_col_blob(&c->db, MGR_ST_META_GET, 0, &len);
    if (len == 16)
        memcpy(c->uuid, uuid, 16);
    mgr_db_reset(&c->db, MGR_ST_META_GET);
    rc = len == 16 ? 0 : -EIO;
    rc = rc ? rc : meta_u32(c, "chunk_size", &c->chunk_size);
    return rc ? rc : meta_u32(c, "stripe", &c->stripe);
}

/* Defaults given on the command line hold from now on: the root directory hands them down. */
static int set_defaults(struct mgr_core *c)
{
    struct mgr_inode root;
    int rc = 0;

    if ((!c->o.chunk_size_bytes || c->o.chunk_size_bytes == c->chunk_size) &&
        (!c->o.stripe || c->o.stripe == c->stripe))
        return 0;
    c->chunk_size = c->o.chunk_size_bytes ? c->o.chunk_size_bytes : c->chunk_size;
    c->stripe = c->o.stripe ? c->o.stripe : c->stripe;
    rc = mgr_db_exec(&c->db, META_PUT, DBT("chunk_size"), DBI(c->chunk_size));
    rc = rc ? rc : mgr_db_exec(&c->db, META_PUT, DBT("stripe"), DBI(c->stripe));
    rc = rc ? rc : mgr_inode_get(c, MGR_ROOT_INO, &root);
    root.chunk_size = c->chunk_size;
    root.stripe = c->stripe;
    return rc ? rc : mgr_inode_put(c, &root);
}

static int create_store(struct mgr_core *c)
{
    struct mgr_inode root = {.mode = S_IFDIR | 0755,
                             .nlink = 2,
                             .uid = c->o.root_uid,
                             .gid = c->o.root_gid,
                             .data_version = 1,
                             .parent = MGR_ROOT_INO};
    int rc = mgr_db_exec(&c->db, META_PUT, DBT("store_uuid"), DBB(c->o.store_uuid, 16));

    root.chunk_size = c->o.chunk_size_bytes ? c->o.chunk_size_bytes : DEFAULT_CHUNK_BYTES;
    root.stripe = c->o.stripe ? c->o.stripe : 1;
    c->n.next_ino = MGR_ROOT_INO;
    rc = rc ? rc : mgr_db_exec(&c->db, META_PUT, DBT("created_ns"), DBI(c->now.ns));
    rc = rc ? rc : mgr_db_exec(&c->db, META_PUT, DBT("chunk_size"), DBI(root.chunk_size));
    rc = rc ? rc : mgr_db_exec(&c->db, META_PUT, DBT("stripe"), DBI(root.stripe));
    rc = rc ? rc : mgr_inode_new(c, &root, NULL, 0);
    c->n.next_ino = larger(c->n.next_ino, 16);
    return rc ? rc
              : mgr_db_exec(&c->db, COUNTERS_PUT, DBI(c->n.next_ino), DBI(c->n.next_cookie),
                            DBI(c->n.next_session), DBI(c->n.next_bnf), DBI(c->n.inodes), DBI(c->n.chunks),
                            DBI(c->n.slices));
}

static bool has_store(struct mgr_core *c)
{
    bool have = mgr_db_one(&c->db, META_GET, DBT("store_uuid")) > 0;

    mgr_db_reset(&c->db, MGR_ST_META_GET);
    return have;
}

/* A crash of the machine may take back what the last seconds made, but not from the clients: one that still
 * writes to an inode number that nobody knows any more must not meet another file under it. So numbers that
 * may have been given out are skipped. (Sessions and benefactors are synced before they are told theirs.) */
static void skip_numbers(struct mgr_core *c)
{
    c->n.next_ino += INO_SKIP;
    c->n.dirty = true;
}

static int load_all(struct mgr_core *c, bool created)
{
    int rc, end;

    mgr_db_begin(&c->db);
    c->holds_dead = true; /* the first tick looks */
    rc = load_counters(c);
    if (!rc && !has_store(c)) /* also after a crash between making the tables and this */
        rc = create_store(c);
    rc = rc ? rc : load_meta(c);
    rc = rc ? rc : set_defaults(c);
    rc = rc ? rc : mgr_bnf_load(c);
    rc = rc ? rc : mgr_session_load(c);
    rc = rc ? rc : mgr_orphan_load(c);
    rc = rc ? rc : mgr_versions_load(c);
    rc = rc ? rc : mgr_damage_load(c);
    rc = rc ? rc : mgr_early_load(c);
    rc = rc ? rc : mgr_locks_read(c);
    rc = rc ? rc : mgr_life_load(c);
    rc = rc ? rc : mgr_ext_load(c);
    rc = rc ? rc : mgr_drain_load(c);
    rc = rc ? rc : mgr_rescue_load(c);
    rc = rc ? rc : mgr_sets_load(c);
    rc = rc ? rc : mgr_levels_load(c);
    if (!rc && !created) {
        skip_numbers(c);
        rc = mgr_counters_store(c);
    }
    if (rc)
        mgr_doom(c, rc);
    end = mgr_db_commit(&c->db);
    rc = rc ? rc : end;
    return rc ? rc : mgr_db_sync(&c->db);
}

static void defaults(struct mgr_core_opts *o)
{
    o->session_timeout_ms = o->session_timeout_ms ? o->session_timeout_ms : 60000;
    o->orphan_grace_ms = o->orphan_grace_ms ? o->orphan_grace_ms : 60000;
    o->bnf_timeout_ms = o->bnf_timeout_ms ? o->bnf_timeout_ms : 3000;
    o->settle_ms = o->settle_ms ? o->settle_ms : 2000;
    o->inodes_max = o->inodes_max ? o->inodes_max : UINT64_C(1) << 32;
    o->ckpt_quiet_ms = o->ckpt_quiet_ms ? o->ckpt_quiet_ms : 2000;
    o->ckpt_late_ms = o->ckpt_late_ms ? o->ckpt_late_ms : 60000;
    o->aux_table_bytes = o->aux_table_bytes ? o->aux_table_bytes : UINT64_C(1) << 30;
    o->cache_bytes = o->cache_bytes ? o->cache_bytes : 64u << 20;
    o->software = o->software ? o->software : "";
}

int mgr_core_new(struct mgr_core **out, const char *db_path, const struct mgr_core_opts *opts,
                 struct mgr_now now, char why[MGR_DB_WHY_MAX])
{
    struct mgr_core *c = calloc(1, sizeof *c);
    bool created = false;
    int rc;

    snprintf(why, MGR_DB_WHY_MAX, "out of memory");
    if (!c || mgr_arena_init(&c->arena)) {
        free(c);
        return -ENOMEM;
    }
    c->locks = mgr_locks_new();
    c->o = *opts;
    defaults(&c->o);
    c->now = c->start = now;
    c->leases = mgr_leases_new();
    c->deaths = mgr_deaths_new();
    c->grace = mgr_grace_new();
    c->versions = mgr_versions_new();
    c->drain = mgr_drain_new();
    c->sets = mgr_sets_new();
    c->levels = mgr_levels_new();
    rc = c->locks && c->leases && c->deaths && c->grace && c->versions && c->drain && c->sets && c->levels ? mgr_db_open(&c->db, db_path, c->o.cache_bytes, &created, why) : -ENOMEM;
    if (rc) {
        mgr_levels_free(c->levels);
        mgr_sets_free(c->sets);
        mgr_drain_free(c->drain);
        mgr_versions_free(c->versions);
        mgr_grace_free(c->grace);
        mgr_leases_free(c->leases);
        mgr_deaths_free(c->deaths);
        mgr_locks_free(c->locks);
        mgr_arena_fini(&c->arena);
        free(c);
        return rc;
    }
    rc = load_all(c, created);
    if (rc) {
        snprintf(why, MGR_DB_WHY_MAX, "cannot read the database %.300s: %s", db_path, mgr_db_errmsg(&c->db));
        mgr_core_free(c);
        return rc;
    }
    mgr_core_reset(c);
    *out = c;
    return 0;
}

void mgr_core_free(struct mgr_core *c)
{
    while (c->session_count)
        mgr_session_free(c, c->sessions[c->session_count - 1]);
    while (c->conns) {
        struct mgr_conn *next = c->conns->next;

        free(c->conns);
        c->conns = next;
    }
    for (size_t i = 0; i < c->bnf_count; i++)
        mgr_bnf_free(c->bnfs[i]);
    mgr_db_close(&c->db);
    mgr_map_fini(&c->holders);
    mgr_map_fini(&c->writers);
    mgr_map_fini(&c->orphans);
    mgr_versions_free(c->versions);
    mgr_drain_free(c->drain);
    mgr_levels_free(c->levels);
    mgr_sets_free(c->sets);
    mgr_grace_free(c->grace);
    mgr_leases_free(c->leases);
    mgr_deaths_free(c->deaths);
    mgr_locks_free(c->locks);
    mgr_arena_fini(&c->arena);
    free(c->sessions);
    free(c->bnfs);
    free(c->undo);
    free(c->posts);
    free(c->outs);
    free(c);
}
