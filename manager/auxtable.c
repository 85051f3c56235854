/* MSG_TABLE: key-value tables that aux-apps share, one per name of an aux-app, for all mounts of the store.
 *
 * In the manager's database, hence as durable as names are: a change survives the death of the manager when it
 * is answered, that of its machine when a MSG_SYNC after it is answered. The operations of a message are
 * carried out in order, in one transaction; each has a status of its own, so one that fails stops no other.
 *
 * Bounded: keys, values, operations of a message, tables, and bytes of each table (aux_table keeps its totals, so
 * that nothing is counted by a scan). A table comes into being with its first entry, and stays.
 *
 * Called by the core's thread, in a group. */
#include <errno.h>
#include <string.h>

#include "fp/auxapp.h"
#include "manager/core_int.h"

#define OPS_MAX    256u /* of one message */
#define TABLES_MAX 64u

struct table {
    uint64_t id; /* 0: not there yet */
    uint64_t entries, bytes;
    bool dirty;
};

bool mgr_app_name_ok(const char *app)
{
    size_t len = strlen(app);

    if (len == 0 || len > FP_AUX_NAME_MAX || app[0] < 'a' || app[0] > 'z')
        return false;
    return strspn(app, "abcdefghijklmnopqrstuvwxyz0123456789_-") == len;
}

static int table_get(struct mgr_core *c, const char *app, struct table *t)
{
    const enum mgr_stmt st = MGR_ST_AUX_TABLE_GET;
    int rc = mgr_db_one(&c->db, AUX_TABLE_GET, DBT(app));

    *t = (struct table){.id = 0};
    if (rc > 0) {
        t->id = (uint64_t)mgr_col(&c->db, st, 0);
        t->entries = (uint64_t)mgr_col(&c->db, st, 1);
        t->bytes = (uint64_t)mgr_col(&c->db, st, 2);
        mgr_db_reset(&c->db, st);
    }
    return rc < 0 ? rc : 0;
}

static int table_new(struct mgr_core *c, const char *app, struct table *t)
{
    int rc = mgr_db_one(&c->db, AUX_TABLE_COUNT);
    bool full = rc > 0 && mgr_col(&c->db, MGR_ST_AUX_TABLE_COUNT, 0) >= TABLES_MAX;

    mgr_db_reset(&c->db, MGR_ST_AUX_TABLE_COUNT);
    if (rc < 0 || full)
        return rc < 0 ? rc : -ENOSPC;
    rc = mgr_db_exec(&c->db, AUX_TABLE_NEW, DBT(app));
    t->id = (uint64_t)sqlite3_last_insert_rowid(c->db.sq);
    return rc;
}

/* The value of a key in memory of the group: 1, 0: not there, or a failure. */
static int entry_get(struct mgr_core *c, const struct table *t, const ProtobufCBinaryData *key, ProtobufCBinaryData *value)
{
    const void *p;
    int rc = t->id ? mgr_db_one(&c->db, AUX_ENTRY_GET, DBI(t->id), DBB(key->data, key->len)) : 0;

    if (rc <= 0)
        return rc;
    p = mgr_col_blob(&c->db, MGR_ST_AUX_ENTRY_GET, 0, &value->len);
    value->data = mgr_arena_copy(&c->arena, p, value->len);
    mgr_db_reset(&c->db, MGR_ST_AUX_ENTRY_GET);
    return value->data ? 1 : mgr_doom(c, -ENOMEM);
}

static int put(struct mgr_core *c, const char *app, struct table *t, const Fp__TableOp *op, bool there, size_t old_len)
{
    uint64_t gone = there ? op->key.len + old_len : 0, bytes = t->bytes - gone + op->key.len + op->value.len;
    int rc = 0;

    if (op->value.len > FP_AUX_VALUE_MAX_BYTES)
        return -EINVAL;
    if (bytes > c->o.aux_table_bytes && bytes > t->bytes)
        return -ENOSPC;
    if (!t->id)
        rc = table_new(c, app, t);
    if (!rc)
        rc = mgr_db_exec(&c->db, AUX_ENTRY_PUT, DBI(t->id), DBB(op->key.data, op->key.len),
                         DBB(op->value.data, op->value.len));
    if (rc)
        return rc;
    t->entries += !there;
    t->bytes = bytes;
    t->dirty = true;
    return 0;
}

static int drop(struct mgr_core *c, struct table *t, const Fp__TableOp *op, size_t old_len)
{
    t->entries--;
    t->bytes -= op->key.len + old_len;
    t->dirty = true;
    return mgr_db_exec(&c->db, AUX_ENTRY_DELETE, DBI(t->id), DBB(op->key.data, op->key.len));
}

/* The status of one operation. Failures of the database are in c->db.err, too. */
static int run(struct mgr_core *c, const char *app, struct table *t, const Fp__TableOp *op, ProtobufCBinaryData *value)
{
    ProtobufCBinaryData old = {0, NULL};
    int rc;

    if (op->key.len == 0 || op->key.len > FP_AUX_KEY_MAX_BYTES)
        return -EINVAL;
    rc = entry_get(c, t, &op->key, &old);
    if (rc < 0)
        return rc;
    switch (op->kind) {
    case FP__TABLE_OP_KIND__TABLE_GET:
        *value = old;
        return rc ? 0 : -ENOENT;
    case FP__TABLE_OP_KIND__TABLE_PUT_NEW:
        *value = old; /* who comes second learns what the first has put */
        return rc ? -EEXIST : put(c, app, t, op, false, 0);
    case FP__TABLE_OP_KIND__TABLE_PUT:
        return put(c, app, t, op, rc > 0, old.len);
    case FP__TABLE_OP_KIND__TABLE_REMOVE:
        return rc ? drop(c, t, op, old.len) : -ENOENT;
    default:
        return -EINVAL;
    }
}

MGR_HANDLER(aux_table)
{
    const Fp__Table *m = msg;
    Fp__TableReply *r = MGR_NEW(c, Fp__TableReply, fp__table_reply__init);
    struct table t;
    bool changes = false;
    int rc;

    if (!mgr_app_name_ok(m->app) || m->n_ops > OPS_MAX)
        return m->n_ops > OPS_MAX ? -E2BIG : -EINVAL;
    if (!r || !(r->results = mgr_arena_alloc(&c->arena, (m->n_ops + 1) * sizeof *r->results)))
        return mgr_doom(c, -ENOMEM);
    rc = table_get(c, m->app, &t);
    for (size_t i = 0; i < m->n_ops && !rc; i++) {
        Fp__TableResult *res = MGR_NEW(c, Fp__TableResult, fp__table_result__init);

        if (!res)
            return mgr_doom(c, -ENOMEM);
        changes |= m->ops[i]->kind != FP__TABLE_OP_KIND__TABLE_GET;
        res->status = run(c, m->app, &t, m->ops[i], &res->value);
        r->results[r->n_results++] = res;
        rc = c->db.err;
    }
    if (!rc && t.dirty)
        rc = mgr_db_exec(&c->db, AUX_TABLE_SET, DBI(t.id), DBI(t.entries), DBI(t.bytes));
    rq->reply = &r->base;
    rq->forget = !changes; /* values need not be kept to be read once more */
    return rc;
}
