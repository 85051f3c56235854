/*
 * Checkpoint sets: files whose writer is gone.
 *
 * A mount that ends while it has a file open for writing may have written half of it. The file keeps a mark of that in its row (MGR_TORN_FILE), which outlives
 * restarts of the manager, until it is cut to nothing, or until somebody who opens it for writing when nobody else has it open writes to it: a restarted
 * job. A set is torn as long as one of its files is. A rank that goes on writing the same file does not take the mark away: what the dead one had to
 * write is not its business. Files of no set have the mark, too, since they may be found to be of one later (setgrowth.c). A group that fails does not take it away (lostclose.c).
 * With MGR_LOST_CLOSE (lostclose.c) it is the same, but that only who writes all of the file again, from its beginning to the end that it had when it was closed and in this order, takes it away: sets->anew
 * has, plus one, up to where that is. A log to which a restarted job appends, or a file that is made longer, still lacks what was lost.
 *
 * Who says that a set is complete takes its marks away, but those of MGR_LOST_CLOSE and MGR_UNSURE: a program whose close(2) has succeeded, and that writes a marker then, does not
 * know what was lost behind it. Only fpctl checkpoint commit --force says that it does.
 *
 * Called by sets.c, in the core's thread. Rejected: a mark of the set alone, which can't tell when the last of its torn files has been written again.
 */
#include <errno.h>

#include "fp/err.h"
#include "manager/sets_int.h"
#include "manager/version.h"

_Static_assert(MGR_TORN_MARKS == 1568u, "stmt_sets.h and the index inode_torn of schema.sql have it as a number");

#define LOST_MARKS (MGR_LOST_CLOSE | MGR_UNSURE)

/* Of no set, too: it may become one by growth. */
int mgr_sets_hurt(struct mgr_core *c, uint64_t ino)
{
    uint64_t id;
    struct mgr_set *set = mgr_idmap_get(&c->sets->writing, ino, &id) ? mgr_set_in_memory(c, id) : NULL;

    if (set)
        set->died = true;
    mgr_idmap_del(&c->sets->anew, ino);
    return mgr_lost_torn(c, ino, MGR_TORN_FILE);
}

/* A release that was heard has marked it, and so has the end of the session, if that has expired since. A manager that was started anew can't tell. */
int mgr_torn_told(struct mgr_core *c, const struct mgr_session *s, const uint64_t *ino, size_t n)
{
    int rc = 0;

    for (size_t i = 0; i < n && !rc; i++) {
        if (!ino[i] || (!mgr_map_get(&s->writes, ino[i]) && s->settled_ms != UINT64_MAX))
            continue;
        rc = mgr_is_overtaken(c, s, ino[i]);
        if (!rc)
            rc = mgr_sets_hurt(c, ino[i]);
        rc = rc == FP_EOVERTAKEN ? 0 : rc ? rc : mgr_epoch_hurt(c, s, ino[i]); /* overtaken: nothing of what it wrote is in the file any more */
    }
    return rc;
}

/* It has never said what it had open. */
static int died_unknown(struct mgr_core *c)
{
    uint64_t id, val;
    size_t pos = 0;
    int rc = 0;

    c->sets->lost_ns = c->now.ns;
    while (!rc && mgr_idmap_next(&c->sets->open, &pos, &id, &val)) {
        struct mgr_set *set = (struct mgr_set *)(uintptr_t)val;

        set->died |= set->doubt;
        rc = set->doubt ? mgr_lost_torn_set(c, id) : 0;
    }
    return rc;
}

int mgr_sets_died(struct mgr_core *c, const struct mgr_session *s)
{
    size_t pos = 0;
    uint64_t ino;
    uint32_t n;
    int rc = 0;

    while (!rc && mgr_map_next(&s->writes, &pos, &ino, &n))
        rc = mgr_sets_hurt(c, ino);
    return rc || s->settled_ms != UINT64_MAX ? rc : died_unknown(c);
}

void mgr_torn_joined(const struct mgr_core *c, const struct mgr_inode *in)
{
    struct mgr_set *s = in->flags & MGR_TORN_MARKS ? mgr_set_in_memory(c, in->ckpt) : NULL;

    if (s)
        s->torn = true;
}

/* What has to be written again: to where it went for who closed it, not to where it goes now. */
static int note_size(struct mgr_core *c, const struct mgr_inode *in, uint64_t size)
{
    uint64_t before;

    if (in->flags & MGR_LOST_CLOSE && (!mgr_idmap_get(&c->sets->lost_size, in->ino, &before) || before > size))
        return 0;
    return mgr_idmap_put(&c->sets->lost_size, in->ino, size) ? mgr_doom(c, -ENOMEM) : 0;
}

int mgr_torn_lost(struct mgr_core *c, const struct mgr_inode *in, uint64_t size)
{
    struct mgr_set *s = NULL;
    int rc = note_size(c, in, size);

    rc = rc ? rc : mgr_db_exec(&c->db, FILE_TEAR, DBI(in->ino), DBI(MGR_TORN_FILE | MGR_LOST_CLOSE));

    mgr_idmap_del(&c->sets->anew, in->ino);
    rc = rc || !in->ckpt ? rc : mgr_set_touch(c, in->ckpt, &s);
    if (!rc && s)
        s->torn = true; /* as long as this file is */
    return rc == -ENOENT ? 0 : rc;
}

int mgr_torn_opened(struct mgr_core *c, const struct mgr_inode *in)
{
    if (!(in->flags & (MGR_TORN_FILE | MGR_LOST_CLOSE)))
        return 0;
    return mgr_idmap_put(&c->sets->anew, in->ino, 1) ? mgr_doom(c, -ENOMEM) : 0;
}

void mgr_torn_written(struct mgr_core *c, struct mgr_inode *in)
{
    if (in->flags & MGR_TORN_FILE && mgr_idmap_get(&c->sets->anew, in->ino, NULL))
        in->flags &= ~(MGR_TORN_FILE | MGR_UNSURE);
}

void mgr_lost_reopened(struct mgr_core *c, uint64_t ino)
{
    mgr_idmap_del(&c->sets->anew, ino);
}

int mgr_lost_written(struct mgr_core *c, struct mgr_inode *in, Fp__Slice *const *s, size_t n)
{
    uint64_t upto, size;

    if (!(in->flags & MGR_LOST_CLOSE) || !mgr_idmap_get(&c->sets->anew, in->ino, &upto) || !mgr_idmap_get(&c->sets->lost_size, in->ino, &size))
        return 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t off = s[i]->win * in->chunk_size + s[i]->off;

        if (off < upto && off + s[i]->len >= upto)
            upto = off + s[i]->len + 1;
    }
    if (n == 0 && upto > in->size + 1)
        upto = in->size + 1; /* what it may get behind its new end is a hole */
    if (upto > in->size && upto > size)
        in->flags &= ~MGR_LOST_CLOSE;
    return mgr_idmap_put(&c->sets->anew, in->ino, upto) ? mgr_doom(c, -ENOMEM) : 0;
}

/* The first file of the set behind that one that has one of these marks; 0: none has. */
static int next_marked(struct mgr_core *c, uint64_t set, uint32_t marks, uint64_t after, uint64_t *ino)
{
    int rc = mgr_db_one(&c->db, MEMBER_TORN, DBI(set), DBI(marks), DBI(after));

    *ino = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_MEMBER_TORN, 0) : 0;
    mgr_db_reset(&c->db, MGR_ST_MEMBER_TORN);
    return rc < 0 ? rc : 0;
}

int mgr_torn_any(struct mgr_core *c, uint64_t set, bool *yes)
{
    uint64_t ino;
    int rc = next_marked(c, set, MGR_TORN_MARKS, 0, &ino);

    *yes = ino != 0;
    return rc;
}

int mgr_torn_lost_left(struct mgr_core *c, uint64_t set, bool *yes)
{
    uint64_t ino = 0;
    int rc;

    do
        rc = next_marked(c, set, LOST_MARKS, ino, &ino);
    while (!rc && ino && mgr_map_get(&c->writers, ino));
    *yes = ino != 0;
    return rc;
}

int mgr_torn_files(struct mgr_core *c, uint64_t set, uint64_t max, uint64_t *first, bool *lost, uint64_t *n)
{
    int rc = next_marked(c, set, LOST_MARKS, 0, first);

    *lost = *first != 0;
    rc = rc || *lost ? rc : next_marked(c, set, MGR_TORN_MARKS, 0, first);
    if (rc)
        return rc;
    rc = mgr_db_one(&c->db, MEMBER_TORN_COUNT, DBI(set), DBI(max));
    *n = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_MEMBER_TORN_COUNT, 0) : 0;
    mgr_db_reset(&c->db, MGR_ST_MEMBER_TORN_COUNT);
    return rc < 0 ? rc : 0;
}

int mgr_torn_set(struct mgr_core *c, uint64_t set)
{
    uint64_t ino;
    int rc = next_marked(c, set, MGR_TORN_FILE, 0, &ino);

    return rc || ino ? rc : mgr_db_exec(&c->db, MEMBER_TEAR, DBI(set), DBI(MGR_TORN_FILE));
}

int mgr_torn_mend(struct mgr_core *c, uint64_t set, bool lost_too)
{
    bool yes;
    int rc = mgr_torn_any(c, set, &yes);

    return rc || !yes ? rc : mgr_db_exec(&c->db, MEMBER_MEND, DBI(set), DBI(MGR_TORN_MARKS), DBI(lost_too ? 0 : LOST_MARKS));
}
