/* Rounds of syncs: which chunks of a benefactor are on its device.
 *
 * Each chunk gets the number of the round of its benefactor that was at work when it was committed. A round begins by one more number for the chunks to come, and
 * then MSG_BNF_SYNC_ALL asks the benefactor to sync all that it has: what has a smaller number had been stored before it was committed, and committed before the
 * question, so it is on the device when the answer comes. It costs a small number in the row of the chunk and nothing per write, and what is known of a million chunks
 * is a number, which outlasts a restart.
 *
 * The answer counts only if the benefactor's unsynced life is the one that was known before. If that changes (its node was booted anew, a sync failed), what was committed
 * since the last round that succeeded may be damaged, and no later sync shows otherwise: its rounds are noted as lost for ever. What a mount had stored before the
 * change, and commits after it, is to be told from what it stores afterwards: a session that is newer than the change, or a file that is, can have
 * stored it only then; everything else gets the number -1, and is never taken for synced.
 *
 * A round begins when somebody asks for it (mgr_round_want), or when nothing new has come for QUIET_MS: never while programs go on writing. One is under way
 * at a time; all who ask meanwhile share the next one.
 *
 * Rejected: a table of synced files in memory, which is empty after a restart and can't know what happened before a file was asked for the first time; to have
 * mounts say what they have synced, which they would have to do for each file of each checkpoint. */
#include "manager/rounds.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fp/log.h"
#include "manager/core_int.h"

#define QUIET_MS 3000u
#define AGAIN_MS 1000u
#define LOST_MAX 256u
#define DOUBT    (-1)

static void changed(struct mgr_core *c, struct mgr_bnf *b)
{
    b->rounds.dirty = true;
    mgr_bnf_touch(c, b);
}

static bool is_memory(const struct mgr_bnf *b)
{
    return strstr(b->backend, "memory") != NULL; /* "emulated-memory", too */
}

/* Is there a chunk that no round has had? */
static bool has_new(const struct mgr_rounds *r)
{
    return r->last >= r->synced;
}

/* -------------------------------------------------------------- rows */

static int load_lost(struct mgr_core *c, struct mgr_bnf *b)
{
    const enum mgr_stmt st = MGR_ST_BNF_LOST_LIST;
    struct mgr_rounds *r = &b->rounds;
    int rc;

    r->nlost = 0;
    for (rc = mgr_db_one(&c->db, BNF_LOST_LIST, DBI(b->id)); rc > 0; rc = mgr_db_step(&c->db, st)) {
        if (!r->lost && !(r->lost = calloc(LOST_MAX, sizeof *r->lost))) {
            mgr_db_reset(&c->db, st);
            return -ENOMEM;
        }
        if (r->nlost < LOST_MAX)
            r->lost[r->nlost++] = (struct mgr_lost_rounds){mgr_col(&c->db, st, 0), mgr_col(&c->db, st, 1)};
    }
    return rc;
}

int mgr_rounds_load(struct mgr_core *c)
{
    const enum mgr_stmt st = MGR_ST_BNF_SYNC_LIST;
    int rc;

    for (size_t i = 0; i < c->bnf_count; i++) {
        struct mgr_rounds *r = &c->bnfs[i]->rounds;

        r->life = r->session = r->ino = 0;
        r->round = r->synced = r->last = r->begun = 0;
        r->dirty = false;
    }
    for (rc = mgr_db_one(&c->db, BNF_SYNC_LIST); rc > 0; rc = mgr_db_step(&c->db, st)) {
        struct mgr_bnf *b = mgr_bnf_find(c, (uint64_t)mgr_col(&c->db, st, 0));

        if (!b)
            continue;
        b->rounds.life = (uint64_t)mgr_col(&c->db, st, 1);
        b->rounds.round = mgr_col(&c->db, st, 2);
        b->rounds.synced = mgr_col(&c->db, st, 3);
        b->rounds.last = mgr_col(&c->db, st, 4);
        b->rounds.session = (uint64_t)mgr_col(&c->db, st, 5);
        b->rounds.ino = (uint64_t)mgr_col(&c->db, st, 6);
    }
    for (size_t i = 0; i < c->bnf_count && !rc; i++)
        rc = load_lost(c, c->bnfs[i]);
    return rc;
}

int mgr_rounds_store(struct mgr_core *c, struct mgr_bnf *b)
{
    struct mgr_rounds *r = &b->rounds;

    if (!r->dirty)
        return 0;
    r->dirty = false;
    return mgr_db_exec(&c->db, BNF_SYNC_PUT, DBI(b->id), DBI(r->life), DBI(r->round), DBI(r->synced), DBI(r->last), DBI(r->session), DBI(r->ino));
}

/* -------------------------------------------------------------- chunks */

int64_t mgr_round_of(struct mgr_core *c, struct mgr_bnf *b, uint64_t chunk, uint64_t ino)
{
    struct mgr_rounds *r = &b->rounds;

    if (r->session && chunk >> 32 < r->session && ino < r->ino)
        return DOUBT;
    r->changed_ms = c->now.ms;
    if (r->last < r->round) {
        r->last = r->round;
        changed(c, b);
    }
    return r->round;
}

int64_t mgr_round_found(struct mgr_core *c, struct mgr_bnf *b, uint64_t chunk)
{
    return b->rounds.session && chunk >> 32 > MGR_SESSION_MAX ? DOUBT : mgr_round_of(c, b, chunk, 0);
}

enum mgr_kept mgr_round_kept(const struct mgr_bnf *b, int64_t round)
{
    const struct mgr_rounds *r = &b->rounds;

    if (is_memory(b))
        return MGR_KEPT_MEMORY;
    if (round < 0)
        return MGR_KEPT_DOUBT;
    for (size_t i = 0; i < r->nlost; i++)
        if (round >= r->lost[i].first && round <= r->lost[i].last)
            return MGR_KEPT_DOUBT;
    return round < r->synced ? MGR_KEPT_SYNCED : MGR_KEPT_NOT_YET;
}

/* -------------------------------------------------------------- another life */

/* More than LOST_MAX: what lies between two of them counts as lost, too. */
static int add_lost(struct mgr_core *c, struct mgr_bnf *b, int64_t first, int64_t last)
{
    struct mgr_rounds *r = &b->rounds;
    int rc = 0;

    if (!r->lost && !(r->lost = calloc(LOST_MAX, sizeof *r->lost)))
        return mgr_doom(c, -ENOMEM);
    if (r->nlost == LOST_MAX) {
        r->lost[0].last = r->lost[1].last;
        memmove(&r->lost[1], &r->lost[2], (LOST_MAX - 2) * sizeof *r->lost);
        r->nlost--;
        rc = mgr_db_exec(&c->db, BNF_LOST_DROP, DBI(b->id));
        for (size_t i = 0; i < r->nlost && !rc; i++)
            rc = mgr_db_exec(&c->db, BNF_LOST_PUT, DBI(b->id), DBI(r->lost[i].first), DBI(r->lost[i].last));
    }
    r->lost[r->nlost++] = (struct mgr_lost_rounds){first, last};
    return rc ? rc : mgr_db_exec(&c->db, BNF_LOST_PUT, DBI(b->id), DBI(first), DBI(last));
}

int mgr_rounds_heard(struct mgr_core *c, struct mgr_bnf *b, uint64_t life)
{
    struct mgr_rounds *r = &b->rounds;
    bool had = r->life || b->chunks; /* else it is new */
    int rc = 0;

    if (r->life == life)
        return 0;
    if (had && has_new(r))
        rc = add_lost(c, b, r->synced, r->last);
    if (had) {
        r->session = c->n.next_session;
        r->ino = c->n.next_ino;
    }
    r->round = r->synced = r->last + 1;
    r->begun = 0;
    r->life = life;
    changed(c, b);
    return rc;
}

/* -------------------------------------------------------------- rounds */

static void begin(struct mgr_core *c, struct mgr_bnf *b)
{
    struct mgr_rounds *r = &b->rounds;

    r->wanted = false;
    r->begun = r->round = r->last + 1;
    changed(c, b);
}

static bool may_begin(const struct mgr_core *c, const struct mgr_bnf *b)
{
    const struct mgr_rounds *r = &b->rounds;

    return b->conn && !b->silent && !r->out && !r->begun && has_new(r) && b->chunks && !is_memory(b) && c->now.ms >= r->at_ms;
}

void mgr_round_want(struct mgr_core *c, struct mgr_bnf *b)
{
    if (!has_new(&b->rounds))
        return;
    b->rounds.wanted = true;
    if (may_begin(c, b))
        begin(c, b);
}

void mgr_rounds_tick(struct mgr_core *c, struct mgr_bnf *b)
{
    const struct mgr_rounds *r = &b->rounds;

    if (may_begin(c, b) && (r->wanted || c->now.ms - r->changed_ms >= QUIET_MS))
        begin(c, b);
}

void mgr_rounds_pump(struct mgr_core *c, struct mgr_bnf *b)
{
    struct mgr_rounds *r = &b->rounds;

    if (!r->begun || r->out)
        return;
    r->out = true;
    r->out_round = r->begun;
    r->begun = 0;
    mgr_out(c, MGR_OUT_CALL, b->conn, FP__MSG_TYPE__MSG_BNF_SYNC_ALL, NULL);
}

void mgr_rounds_lost(struct mgr_bnf *b)
{
    b->rounds.out = false;
    b->rounds.begun = 0;
}

int mgr_round_answered(struct mgr_core *c, struct mgr_bnf *b, int status, uint64_t life)
{
    struct mgr_rounds *r = &b->rounds;
    bool same = r->life == life;
    int rc;

    if (!r->out)
        return 0;
    r->out = false;
    if (status) { /* as when the device is slow: what it has done so far, the next one need not do */
        r->wanted = true;
        r->at_ms = c->now.ms + AGAIN_MS;
        return 0;
    }
    rc = mgr_rounds_heard(c, b, life);
    if (same && r->out_round > r->synced) {
        r->synced = r->out_round;
        changed(c, b);
    }
    return rc;
}
