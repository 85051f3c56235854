/* Benefactors: soft state from hello and keep-alive, one row each with the totals of what we keep on them.
 *
 * States as clients see them (BnfTable): what the benefactor reports about itself (ok, full, read-only,
 * failing) while it is connected and was heard within bnf_timeout_ms, else down. bnftable.c tells it.
 *
 * Vouching: nobody shall refer anew to a chunk that may not be there. A benefactor is vouched for while it is connected, well, and an inventory has
 * shown since its hello that it has what it had. When that ends, or damage is found, a new number of doubt goes out with the table, and
 * mounts ask again about what they hold (hold.c). After a restart of ours the number is new, too: it begins with the time.
 *
 * Deletes: rows of garbage are sent in batches, one batch per benefactor under way at a time, in the order of
 * chunk ids; a row goes only when the benefactor says that the chunk takes no space any more. So it does not
 * matter which of the two dies when. What a benefactor does not confirm is tried again a second later, after
 * the rest. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fp/err.h"
#include "fp/grown.h"
#include "fp/log.h"
#include "manager/core_int.h"
#include "manager/drain.h"

#define BUFFERS_MAX 128u /* of one benefactor, of which fpctl is told */
#define RECENTLY_SEEN_NS (600 * INT64_C(1000000000))

struct mgr_bnf *mgr_bnf_find(struct mgr_core *c, uint64_t id)
{
    return id && id <= c->bnf_count ? c->bnfs[id - 1] : NULL;
}

static const char *state_name(Fp__BnfState s)
{
    switch (s) {
    case FP__BNF_STATE__BNF_OK:
        return "ok";
    case FP__BNF_STATE__BNF_FULL:
        return "full";
    case FP__BNF_STATE__BNF_READONLY:
        return "read-only";
    case FP__BNF_STATE__BNF_FAILING:
        return "failing";
    default:
        return "down";
    }
}

Fp__BnfState mgr_bnf_state(const struct mgr_bnf *b)
{
    return b->conn && !b->silent ? b->reported : FP__BNF_STATE__BNF_DOWN;
}

static bool is_well(Fp__BnfState s)
{
    return s == FP__BNF_STATE__BNF_OK || s == FP__BNF_STATE__BNF_FULL || s == FP__BNF_STATE__BNF_READONLY;
}

bool mgr_bnf_away(const struct mgr_bnf *b)
{
    return mgr_bnf_state(b) == FP__BNF_STATE__BNF_DOWN || b->unchecked;
}

bool mgr_bnf_vouched(const struct mgr_bnf *b)
{
    return is_well(mgr_bnf_state(b)) && !b->unchecked;
}

void mgr_doubt(struct mgr_core *c)
{
    c->doubt = (uint64_t)c->now.ns > c->doubt ? (uint64_t)c->now.ns : c->doubt + 1;
    c->table_dirty = true;
}

/* Whoever changes what the end of a group looks at says so: to look at thousands of benefactors in each group costs more than the group. */
void mgr_bnf_touch(struct mgr_core *c, struct mgr_bnf *b)
{
    if (b->touched)
        return;
    b->touched = true;
    b->next_touched = c->touched;
    c->touched = b;
}

void mgr_bnf_dirty(struct mgr_core *c, struct mgr_bnf *b)
{
    b->dirty = true;
    mgr_bnf_touch(c, b);
}

void mgr_bnf_free(struct mgr_bnf *b)
{
    if (!b)
        return;
    free(b->node);
    free(b->addr);
    free(b->local_path);
    free(b->backend);
    free(b->error);
    free(b->buffers);
    free(b->inv_new);
    free(b->rounds.lost);
    free(b);
}

/* Copies a text if it differs; false: out of memory, the old one stays. */
static bool set_text(char **at, const char *text)
{
    char *copy;

    if (*at && strcmp(*at, text) == 0)
        return true;
    copy = strdup(text);
    if (!copy)
        return false;
    free(*at);
    *at = copy;
    return true;
}

static struct mgr_bnf *bnf_new(struct mgr_core *c, const uint8_t uuid[16])
{
    struct mgr_bnf *b = calloc(1, sizeof *b), **list = fp_grown(c->bnfs, c->bnf_count, &c->bnf_cap, sizeof *list);

    if (list)
        c->bnfs = list;
    if (!b || !list) {
        free(b);
        return NULL;
    }
    memcpy(b->uuid, uuid, 16);
    if (!set_text(&b->node, "") || !set_text(&b->addr, "") || !set_text(&b->local_path, "") ||
        !set_text(&b->backend, "") || !set_text(&b->error, "")) {
        mgr_bnf_free(b);
        return NULL;
    }
    c->bnfs[c->bnf_count++] = b;
    b->id = (uint32_t)c->bnf_count;
    return b;
}

static struct mgr_bnf *by_uuid(struct mgr_core *c, const uint8_t uuid[16])
{
    for (size_t i = 0; i < c->bnf_count; i++)
        if (memcmp(c->bnfs[i]->uuid, uuid, 16) == 0)
            return c->bnfs[i];
    return NULL;
}

/* Makes structs for new rows and sets the totals of all; also after a rollback. */
int mgr_bnf_load(struct mgr_core *c)
{
    const enum mgr_stmt st = MGR_ST_BNF_LIST;
    struct mgr_db *db = &c->db;
    int rc;

    for (rc = mgr_db_one(db, BNF_LIST); rc > 0; rc = mgr_db_step(db, st)) {
        size_t len;
        const uint8_t *uuid = mgr_col_blob(db, st, 1, &len);
        struct mgr_bnf *b = mgr_bnf_find(c, (uint64_t)mgr_col(db, st, 0));

        if (!b) {
            b = len == 16 ? bnf_new(c, uuid) : NULL;
            if (!b || !set_text(&b->node, mgr_col_text(db, st, 2)) ||
                !set_text(&b->addr, mgr_col_text(db, st, 3)) ||
                !set_text(&b->local_path, mgr_col_text(db, st, 4)) ||
                !set_text(&b->backend, mgr_col_text(db, st, 5))) {
                mgr_db_reset(db, st);
                return b ? -ENOMEM : -EIO;
            }
            b->capacity = (uint64_t)mgr_col(db, st, 6);
        }
        b->seen_ns = mgr_col(db, st, 7);
        b->chunks = (uint64_t)mgr_col(db, st, 8);
        b->stored = (uint64_t)mgr_col(db, st, 9);
        b->garbage = (uint64_t)mgr_col(db, st, 10);
        b->garbage_bytes = (uint64_t)mgr_col(db, st, 11);
        b->dirty = false;
    }
    return rc ? rc : mgr_rounds_load(c);
}

int mgr_bnf_store(struct mgr_core *c)
{
    int rc = 0;

    for (struct mgr_bnf *b = c->touched; b && !rc; b = b->next_touched) {
        if (b->dirty)
            rc = mgr_db_exec(&c->db, BNF_TOTALS, DBI(b->id), DBI(b->chunks), DBI(b->stored), DBI(b->garbage),
                             DBI(b->garbage_bytes));
        b->dirty = false;
        rc = rc ? rc : mgr_rounds_store(c, b);
    }
    return rc;
}

/* ---------------------------------------------------------------- what it says of itself */

static int take_buffers(struct mgr_bnf *b, const Fp__BnfInfo *i)
{
    size_t n = i->n_buffers < BUFFERS_MAX ? i->n_buffers : BUFFERS_MAX;

    if (n != b->nbuffers) {
        Fp__BufferState *list = n ? malloc(n * sizeof(*list)) : NULL;

        if (n && !list)
            return -ENOMEM;
        free(b->buffers);
        b->buffers = list;
        b->nbuffers = n;
    }
    for (size_t k = 0; k < n; k++) { /* numbers alone */
        fp__buffer_state__init(&b->buffers[k]);
        b->buffers[k].use = i->buffers[k]->use;
        b->buffers[k].bytes = i->buffers[k]->bytes;
        b->buffers[k].segment_from = i->buffers[k]->segment_from;
        b->buffers[k].segment_to = i->buffers[k]->segment_to;
        b->buffers[k].size_bytes = i->buffers[k]->size_bytes;
    }
    return 0;
}

static int take_info(struct mgr_core *c, struct mgr_bnf *b, const Fp__BnfInfo *i)
{
    Fp__BnfState before = mgr_bnf_state(b);

    if (!set_text(&b->node, i->node) || !set_text(&b->addr, i->addr) ||
        !set_text(&b->local_path, i->local_path) || !set_text(&b->backend, i->backend) ||
        !set_text(&b->error, i->error) || take_buffers(b, i))
        return -ENOMEM;
    if (b->capacity != i->capacity_bytes || b->used != i->used_bytes || b->free != i->free_bytes)
        mgr_table_space(c, b);
    b->capacity = i->capacity_bytes;
    b->used = i->used_bytes;
    b->free = i->free_bytes;
    b->reported_chunks = i->chunks;
    if (b->life != i->unsynced_life)
        mgr_table_changed(c, b); /* mounts have to hear of it */
    b->life = i->unsynced_life;
    b->reported = i->state == FP__BNF_STATE__BNF_DOWN ? FP__BNF_STATE__BNF_OK : i->state;
    b->seen_ms = c->now.ms;
    b->silent = false;
    mgr_task_info(c, b, i);
    if (mgr_bnf_state(b) != before) {
        if (!is_well(mgr_bnf_state(b)))
            mgr_doubt(c);
        mgr_table_changed(c, b);
        mgr_bnf_touch(c, b);
        FP_INFO("benefactor %u (%s, %s): %s%s%s", b->id, b->node, b->addr, state_name(b->reported),
                b->error[0] ? ": " : "", b->error);
    }
    return mgr_rounds_heard(c, b, i->unsynced_life);
}

/* Two benefactors of one identity would each write chunks that the other does not have: the one that is connected and well
 * stays. A process that connects anew, since it lost its connection before we did, is known by its numbers; one that was
 * started anew before we saw the end of the last has to try again. */
static bool is_twin(const struct mgr_core *c, const struct mgr_bnf *b, const struct mgr_req *rq, const Fp__Hello *h)
{
    if (!b->conn || b->conn == rq->conn || b->silent || c->now.ms - b->seen_ms > c->o.bnf_timeout_ms)
        return false;
    return b->pid != h->pid || strcmp(b->node, h->benefactor->node) != 0 ||
           strcmp(b->addr, h->benefactor->addr) != 0;
}

int mgr_bnf_hello(struct mgr_core *c, struct mgr_req *rq, const Fp__Hello *h, Fp__HelloReply *r)
{
    const Fp__BnfInfo *i = h->benefactor;
    struct mgr_bnf *b;

    if (!i || i->uuid.len != 16 || i->capacity_bytes > INT64_MAX)
        return -EINVAL;
    b = by_uuid(c, i->uuid.data);
    if (b && is_twin(c, b, rq, h)) {
        FP_WARN("benefactor %u (%s, %s) is connected: refused another one of the same identity (%s, %s): was its directory "
                "copied?",
                b->id, b->node, b->addr, i->node, i->addr);
        return FP_ETWIN;
    }
    if (!b) {
        if (c->bnf_count == MGR_BNF_MAX)
            return -ENOSPC;
        b = bnf_new(c, i->uuid.data);
        if (!b)
            return mgr_doom(c, -ENOMEM);
        c->n.next_bnf = c->bnf_count + 1;
        c->n.dirty = true;
        c->new_number = true;
    }
    if (b->conn && b->conn != rq->conn) {
        b->conn->bnf = NULL;
        mgr_conn_close(c, b->conn);
    }
    b->conn = rq->conn;
    b->pid = h->pid;
    b->silent = true; /* so that take_info sees a change */
    rq->conn->bnf = b;
    if (take_info(c, b, i))
        return mgr_doom(c, -ENOMEM);
    mgr_task_hello(c, b);
    b->seen_ns = c->now.ns;
    b->del_out = b->inv_out = b->inv_again = false;
    mgr_rounds_lost(b);
    b->del_at_ms = b->inv_at_ms = c->now.ms;
    b->del_after = b->inv_after = b->inv_orphans = b->inv_missing = 0;
    b->inv_wanted = true;
    b->unchecked = b->chunks > 0;
    mgr_bnf_touch(c, b);
    mgr_table_changed(c, b);
    mgr_doubt(c);
    r->bnf_id = b->id;
    return mgr_db_exec(&c->db, BNF_PUT, DBI(b->id), DBB(b->uuid, 16), DBT(b->node), DBT(b->addr),
                       DBT(b->local_path), DBT(b->backend), DBI(b->capacity), DBI(b->seen_ns), DBI(b->chunks),
                       DBI(b->stored), DBI(b->garbage), DBI(b->garbage_bytes));
}

MGR_HANDLER(keepalive)
{
    const Fp__KeepAlive *m = msg;

    if (!rq->conn->bnf || !m->info)
        return 0;
    return take_info(c, rq->conn->bnf, m->info);
}

void mgr_bnf_lost(struct mgr_core *c, struct mgr_bnf *b)
{
    b->conn = NULL;
    b->del_out = b->inv_out = false;
    mgr_rounds_lost(b);
    mgr_task_hello(c, b);
    mgr_table_changed(c, b);
    mgr_doubt(c);
    FP_WARN("benefactor %u (%s, %s): connection lost", b->id, b->node, b->addr);
}

void mgr_bnf_tick(struct mgr_core *c)
{
    c->touch_all = true; /* for what is due by time */
    for (size_t i = 0; i < c->bnf_count; i++) {
        struct mgr_bnf *b = c->bnfs[i];

        mgr_rounds_tick(c, b);
        if (!b->conn || b->silent || c->now.ms - b->seen_ms <= c->o.bnf_timeout_ms)
            continue;
        b->silent = true;
        mgr_table_changed(c, b);
        mgr_doubt(c);
        FP_WARN("benefactor %u (%s, %s): no keep-alive for %llu ms, taken for down", b->id, b->node, b->addr,
                (unsigned long long)(c->now.ms - b->seen_ms));
    }
}

/* ---------------------------------------------------------------- totals */

void mgr_space(const struct mgr_core *c, struct mgr_space *sp)
{
    memset(sp, 0, sizeof *sp);
    for (size_t i = 0; i < c->bnf_count; i++) {
        const struct mgr_bnf *b = c->bnfs[i];
        uint64_t used = b->stored + b->garbage_bytes;

        sp->garbage += b->garbage;
        sp->garbage_bytes += b->garbage_bytes;
        sp->stored += b->stored;
        if (!b->conn && !b->chunks && c->now.ns - b->seen_ns > RECENTLY_SEEN_NS)
            continue; /* left, and nothing of ours is on it */
        sp->total += b->capacity;
        sp->used += used;
        sp->free += b->capacity > used ? b->capacity - used : 0;
    }
}

/* ---------------------------------------------------------------- after the COMMIT: frames to send */

static void pump_deletes(struct mgr_core *c, struct mgr_bnf *b)
{
    const enum mgr_stmt st = MGR_ST_GARBAGE_LIST;
    Fp__ChunkList *l;
    uint64_t last = 0;
    bool grace;
    int rc;

    if (!b->garbage || b->del_out || c->now.ms < b->del_at_ms)
        return;
    l = MGR_NEW(c, Fp__ChunkList, fp__chunk_list__init);
    if (!l || !(l->ids = mgr_arena_alloc(&c->arena, MGR_DELETE_BATCH * sizeof *l->ids)))
        return;
    grace = mgr_grace_any(c, b);
    for (rc = mgr_db_one(&c->db, GARBAGE_LIST, DBI(b->id), DBI(b->del_after), DBI(MGR_DELETE_BATCH)); rc > 0;
         rc = mgr_db_step(&c->db, st)) {
        last = (uint64_t)mgr_col(&c->db, st, 0);
        if (!grace || !mgr_grace_has(c, last))
            l->ids[l->n_ids++] = last;
    }
    if (last && !l->n_ids) { /* the next ones at the next tick */
        b->del_after = last;
        return;
    }
    if (!l->n_ids) { /* through: those that were not confirmed once more, in a second */
        b->del_at_ms = c->now.ms + 1000;
        b->del_after = 0;
        return;
    }
    b->del_out = true;
    mgr_out(c, MGR_OUT_CALL, b->conn, FP__MSG_TYPE__MSG_DELETE, &l->base);
    b->del_after = last;
    b->del_sent = l->n_ids;
}

int mgr_bnf_deleted(struct mgr_core *c, struct mgr_bnf *b, int status, const Fp__ChunkList *l)
{
    size_t n = 0;
    int rc = 0;

    b->del_out = false;
    mgr_bnf_touch(c, b);
    if (status || !l) {
        b->del_after = 0;
        b->del_at_ms = c->now.ms + 1000;
        return 0;
    }
    for (size_t i = 0; i < l->n_ids && !rc; i++) {
        uint64_t stored;

        rc = mgr_db_one(&c->db, GARBAGE_HAS, DBI(b->id), DBI(l->ids[i]));
        if (rc <= 0)
            continue;
        stored = (uint64_t)mgr_col(&c->db, MGR_ST_GARBAGE_HAS, 0);
        mgr_db_reset(&c->db, MGR_ST_GARBAGE_HAS);
        rc = mgr_db_exec(&c->db, GARBAGE_DELETE, DBI(b->id), DBI(l->ids[i]));
        b->garbage--;
        b->garbage_bytes -= stored;
        mgr_bnf_dirty(c, b);
        n++;
    }
    if (n == b->del_sent)
        b->del_after = 0; /* all confirmed: nothing to skip */
    return rc;
}

static void pump_one(struct mgr_core *c, struct mgr_bnf *b)
{
    if (!b->conn || b->conn->closing || b->silent)
        return;
    pump_deletes(c, b);
    mgr_inventory_pump(c, b);
    mgr_rounds_pump(c, b);
}

void mgr_bnf_pump(struct mgr_core *c)
{
    mgr_table_pump(c);
    while (c->touched) {
        struct mgr_bnf *b = c->touched;

        c->touched = b->next_touched;
        b->touched = false;
        pump_one(c, b);
    }
    for (size_t i = 0; i < c->bnf_count && c->touch_all; i++)
        pump_one(c, c->bnfs[i]);
    c->touch_all = false;
}
