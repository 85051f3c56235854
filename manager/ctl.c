/* What fpctl asks: status, layout of a file, stop. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fp/log.h"
#include "manager/drain.h"
#include "manager/ext.h"
#include "manager/version.h"

#define DAMAGE_SHOWN    200
#define STATS_MAX_BYTES (2u << 20) /* what mounts report, in one status; a message has 4 MiB */
#define SUMS_MAX        131072u    /* slices that a layout counts */
#define LAYOUT_MAX      4096u
#define STOP_CLIENTS_MS 8000u
#define STOP_ALL_MS     10000u
#define STOP_REPLY_MS   50u /* for the answer to whoever asked */

/* ---------------------------------------------------------------- status */

static Fp__CtlClient *client(struct mgr_core *c, const struct mgr_session *s, size_t *room)
{
    Fp__CtlClient *k = MGR_NEW(c, Fp__CtlClient, fp__ctl_client__init);

    if (!k)
        return NULL;
    k->session = s->id;
    k->node = mgr_arena_text(&c->arena, s->node);
    k->mountpoint = mgr_arena_text(&c->arena, s->mountpoint);
    k->pid = s->pid;
    k->connected = s->conn != NULL;
    k->stats = mgr_stats_within(c, s->stats, room);
    k->software = mgr_arena_text(&c->arena, s->software);
    k->aux_dropped = s->aux_dropped;
    return k;
}

static int add_clients(struct mgr_core *c, Fp__CtlStatusReply *r)
{
    size_t room = STATS_MAX_BYTES;

    r->clients = mgr_arena_alloc(&c->arena, (c->session_count + 1) * sizeof *r->clients);
    if (!r->clients)
        return mgr_doom(c, -ENOMEM);
    for (size_t i = 0; i < c->session_count; i++) {
        if (c->sessions[i]->expired || c->sessions[i]->ended)
            continue;
        r->clients[r->n_clients] = client(c, c->sessions[i], &room);
        if (!r->clients[r->n_clients])
            return mgr_doom(c, -ENOMEM);
        r->n_clients++;
    }
    return 0;
}

static Fp__Damage *damage_row(struct mgr_core *c)
{
    const enum mgr_stmt st = MGR_ST_DAMAGE_LIST;
    const struct mgr_db *db = &c->db;
    Fp__Damage *d = MGR_NEW(c, Fp__Damage, fp__damage__init);
    const char *reason = mgr_col_text(&c->db, st, 5);

    if (!d)
        return NULL;
    d->chunk = (uint64_t)mgr_col(db, st, 0);
    d->ino = (uint64_t)mgr_col(db, st, 1);
    d->off = (uint64_t)mgr_col(db, st, 2);
    d->len = (uint64_t)mgr_col(db, st, 3);
    d->bnf = (uint32_t)mgr_col(db, st, 4);
    d->seen_ns = mgr_col(db, st, 6);
    d->reason = mgr_arena_copy(&c->arena, reason, strlen(reason) + 1);
    return d->reason ? d : NULL;
}

static int add_damage(struct mgr_core *c, Fp__CtlStatusReply *r)
{
    int rc;

    r->damaged = mgr_arena_alloc(&c->arena, DAMAGE_SHOWN * sizeof *r->damaged);
    if (!r->damaged)
        return mgr_doom(c, -ENOMEM);
    for (rc = mgr_db_one(&c->db, DAMAGE_LIST, DBI(DAMAGE_SHOWN)); rc > 0;
         rc = mgr_db_step(&c->db, MGR_ST_DAMAGE_LIST)) {
        r->damaged[r->n_damaged] = damage_row(c);
        if (!r->damaged[r->n_damaged]) {
            mgr_db_reset(&c->db, MGR_ST_DAMAGE_LIST);
            return mgr_doom(c, -ENOMEM);
        }
        r->n_damaged++;
    }
    for (size_t i = 0; i < r->n_damaged; i++) {
        const struct mgr_vfile *v = mgr_vfile_find(c, r->damaged[i]->ino);

        r->damaged[i]->path = mgr_path(c, r->damaged[i]->ino);
        r->damaged[i]->version = v ? v->waits.n : 0;
    }
    return rc;
}

MGR_HANDLER(ctl_status)
{
    Fp__CtlStatusReply *r = MGR_NEW(c, Fp__CtlStatusReply, fp__ctl_status_reply__init);
    struct mgr_space sp;
    int rc;

    (void)msg;
    if (!r)
        return mgr_doom(c, -ENOMEM);
    mgr_space(c, &sp);
    r->store_uuid.data = c->uuid;
    r->store_uuid.len = 16;
    r->addr = c->addr;
    r->uptime_ms = c->now.ms - c->start.ms;
    r->software = (char *)c->o.software;
    r->total_bytes = sp.total;
    r->used_bytes = sp.stored;
    r->free_bytes = sp.free;
    r->inodes = c->n.inodes;
    r->chunks = c->n.chunks;
    r->slices = c->n.slices;
    r->garbage_chunks = sp.garbage;
    r->garbage_bytes = sp.garbage_bytes;
    r->n_benefactors = mgr_bnf_infos(c, &r->benefactors);
    for (size_t i = 0; i < r->n_benefactors; i++)
        r->benefactors[i]->prefs = mgr_task_prefs(c, mgr_bnf_find(c, r->benefactors[i]->id));
    r->db_bytes = mgr_db_size_bytes(&c->db);
    r->pid = (uint64_t)getpid();
    rc = mgr_versions_sum(c, &r->versions, &r->version_bytes);
    r->given_up = c->versions->given_up;
    rc = rc ? rc : add_clients(c, r);
    rc = rc || !c->damages ? rc : add_damage(c, r);
    rc = rc ? rc : mgr_lost_list(c, r);
    rq->reply = &r->base;
    return rc;
}

/* ---------------------------------------------------------------- layout */

/* Symbolic links are not followed: what is asked for is an object of the store. */
int mgr_resolve(struct mgr_core *c, ProtobufCBinaryData path, uint64_t *ino)
{
    size_t at = 0;

    *ino = MGR_ROOT_INO;
    while (at < path.len) {
        ProtobufCBinaryData name = {0, path.data + at};
        struct mgr_dirent d;
        int rc;

        while (at < path.len && path.data[at] != '/') {
            at++;
            name.len++;
        }
        at++;
        if (name.len == 0 || (name.len == 1 && name.data[0] == '.'))
            continue;
        rc = mgr_dirent_get(c, *ino, &name, &d);
        if (rc)
            return rc;
        *ino = d.ino;
    }
    return 0;
}

static int add_slices(struct mgr_core *c, const Fp__CtlLayout *m, const struct mgr_inode *in,
                      Fp__CtlLayoutReply *r)
{
    const enum mgr_stmt st = MGR_ST_SLICE_MAP;
    uint32_t max = m->max_slices && m->max_slices < LAYOUT_MAX ? m->max_slices : LAYOUT_MAX;
    int rc;

    r->slices = mgr_arena_alloc(&c->arena, max * sizeof *r->slices);
    if (!r->slices)
        return mgr_doom(c, -ENOMEM);
    for (rc = mgr_db_one(&c->db, SLICE_MAP, DBI(in->ino), DBI(m->win_from), DBI(INT64_MAX)); rc > 0;
         rc = mgr_db_step(&c->db, st)) {
        Fp__Slice *s = MGR_NEW(c, Fp__Slice, fp__slice__init);

        if (r->n_slices == max || !s) {
            r->more = true;
            break;
        }
        s->win = (uint64_t)mgr_col(&c->db, st, 0);
        s->off = (uint32_t)mgr_col(&c->db, st, 1);
        s->len = (uint32_t)mgr_col(&c->db, st, 2);
        s->chunk = (uint64_t)mgr_col(&c->db, st, 3);
        s->chunk_off = (uint32_t)mgr_col(&c->db, st, 4);
        s->chunk_len = (uint32_t)mgr_col(&c->db, st, 5);
        s->chunk_sum = (uint64_t)mgr_col(&c->db, st, 6);
        s->bnf = (uint32_t)mgr_col(&c->db, st, 7);
        s->data_len = (uint32_t)mgr_col(&c->db, st, 8);
        r->slices[r->n_slices++] = s;
    }
    mgr_db_reset(&c->db, st);
    for (size_t i = 0; i < r->n_slices && rc >= 0; i++) {
        rc = r->slices[i]->bnf ? 0 : mgr_ext_has(c, r->slices[i]->chunk);
        r->slices[i]->ext = rc > 0;
    }
    return rc < 0 ? rc : 0;
}

/* What the file costs: of each chunk that it names, the share that its slices are of all slices that name it. So the
 * costs of all files together are what is stored, and what is saved is what the file would take more by itself; not
 * what of it is lost. */
static int add_counts(struct mgr_core *c, const struct mgr_inode *in, Fp__CtlLayoutReply *r)
{
    const enum mgr_stmt st = MGR_ST_SLICE_SUMS;
    const struct mgr_db *db = &c->db;
    int rc = mgr_db_one(&c->db, SLICE_SUMS, DBI(in->ino), DBI(SUMS_MAX));
    uint64_t bytes, cost;

    if (rc <= 0)
        return rc;
    r->slice_count = (uint64_t)mgr_col(db, st, 0);
    r->chunk_count = (uint64_t)mgr_col(db, st, 1);
    r->stored_bytes = (uint64_t)mgr_col(db, st, 2);
    r->shared_chunks = (uint64_t)mgr_col(db, st, 3);
    bytes = (uint64_t)mgr_col(db, st, 4);
    cost = (uint64_t)mgr_col(db, st, 5);
    r->saved_bytes = bytes > cost ? bytes - cost : 0;
    r->partial = bytes != in->mapped;
    mgr_db_reset(&c->db, st);
    return 0;
}

MGR_HANDLER(ctl_layout)
{
    const Fp__CtlLayout *m = msg;
    Fp__CtlLayoutReply *r = MGR_NEW(c, Fp__CtlLayoutReply, fp__ctl_layout_reply__init);
    struct mgr_inode in;
    uint64_t ino = m->ino;
    int rc = ino ? 0 : mgr_resolve(c, m->path, &ino);

    if (!r)
        return mgr_doom(c, -ENOMEM);
    rc = rc ? rc : mgr_inode_get(c, ino, &in);
    if (rc)
        return rc;
    r->attr = mgr_attr(c, &in);
    r->path = mgr_path(c, ino);
    r->n_benefactors = mgr_bnf_infos(c, &r->benefactors);
    if (mgr_is(&in, S_IFREG))
        rc = add_counts(c, &in, r);
    if (!rc && mgr_is(&in, S_IFREG))
        rc = add_slices(c, m, &in, r);
    rq->reply = &r->base;
    return rc;
}

/* ---------------------------------------------------------------- stop */

MGR_HANDLER(ctl_stop)
{
    (void)rq;
    (void)msg;
    mgr_core_stop(c);
    return 0;
}

void mgr_core_stop(struct mgr_core *c)
{
    if (!c->stop_ms)
        FP_INFO("stopping: clients first, then benefactors");
    c->stop_ms = c->stop_ms ? c->stop_ms : c->now.ms;
}

static bool any(const struct mgr_core *c, Fp__Role role)
{
    for (const struct mgr_conn *conn = c->conns; conn; conn = conn->next)
        if (conn->role == role)
            return true;
    return false;
}

void mgr_stop_pump(struct mgr_core *c)
{
    if (!c->stop_ms)
        return;
    if (!any(c, FP__ROLE__ROLE_CLIENT) || c->now.ms - c->stop_ms > STOP_CLIENTS_MS)
        c->stop_bnfs = true; /* clients needed them to write back what they held */
    for (struct mgr_conn *conn = c->conns; conn; conn = conn->next) {
        if (conn->stop_sent || conn->closing ||
            (conn->role != FP__ROLE__ROLE_CLIENT &&
             (conn->role != FP__ROLE__ROLE_BENEFACTOR || !c->stop_bnfs)))
            continue;
        conn->stop_sent = true;
        mgr_out(c, MGR_OUT_CALL, conn, FP__MSG_TYPE__MSG_STOP, NULL);
    }
}

bool mgr_core_stopped(const struct mgr_core *c)
{
    if (!c->stop_ms || c->now.ms - c->stop_ms < STOP_REPLY_MS)
        return false;
    return (!any(c, FP__ROLE__ROLE_CLIENT) && !any(c, FP__ROLE__ROLE_BENEFACTOR)) ||
           c->now.ms - c->stop_ms > STOP_ALL_MS;
}
