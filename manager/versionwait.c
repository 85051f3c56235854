/* Versions that wait: what a file was before its present data, which is published and has not the level of durability that was declared (level= of the policies, drain_auto.c).
 *
 *     rewritten, closed      P0 waits   P1 is the file                  P1 has the level: P0 goes
 *     and again              P0 waits   P1 was the file, P2 is it       P1 goes when P2 is published: it never had the level; P0 waits on
 *
 * So there is one at most, and it is the newest that has the level, or had nothing before it. It is a version as others (version.c), relative to the file, and what changes in the
 * file is kept for it as for a guard. The level is looked at when something was drained, and now and then; only that of data that no program has open for writing is known
 * (level.c), so a file that is open all the time keeps its version, too. One that is asked for and not on synced devices after ASK_MS has its benefactors asked to sync.
 *
 * A file that is renamed over another takes what that was as its version, unless somebody has it open: then it is read without a name, and must not change.
 *
 * What waits is not put back by itself when the present data is lost: its writers were told that it is there, and some of it may come back with its benefactor, or from a
 * target. Who reads it gets an error, and fpctl says what there is to put back. It gives way to whoever wants space (press.c), and to the drain that it waits for, if what it has is
 * nowhere but in that place of the target.
 *
 * Rejected: to keep a version for each that is published without the level (as many as a slow target is late); to ask for the level when a file is opened (each open would look
 * at its map).
 *
 * Called by the core's thread, in a group. */
#include <errno.h>
#include <stdio.h>

#include "fp/log.h"
#include "manager/drain.h"
#include "manager/ext.h"
#include "manager/level.h"
#include "manager/rescue.h"
#include "manager/version.h"

#define LOOK_MS     500u
#define LOOK_MAX_MS 4000u
#define ASK_MS      10000u

static const char *const names[] = {"lost", "in the pool", "local", "redundant", "drained", "verified"};

/* 1: there is nothing to wait for. 0: there is. Or a failure. */
static int is_reached(struct mgr_core *c, const struct mgr_inode *in, bool ask, struct mgr_level *l, Fp__Level *wanted)
{
    uint32_t look = MGR_LEVEL_LOOK;
    int rc = mgr_policies_level(c, in, wanted);

    *l = (struct mgr_level){.why = (char *)""};
    if (rc || *wanted == FP__LEVEL__LEVEL_NONE)
        return rc ? rc : 1;
    rc = mgr_level_data(c, in, ask, &look, l);
    return rc ? rc : l->level >= *wanted;
}

int mgr_waits_begin(struct mgr_core *c, struct mgr_vfile *v)
{
    if (!v->guard.shadow || v->waits.shadow || !c->drain->npolicies)
        return mgr_version_drop(c, v, &v->guard);
    v->waits = v->guard;
    v->guard = (struct mgr_version){0};
    v->waits.state = MGR_WAITS;
    v->waits.writer = v->waits.torn_session = v->waits.cursor = 0;
    v->waits_ms = v->look_ms = c->now.ms;
    v->pause_ms = 0;
    v->lost = false;
    return mgr_version_save(c, v, &v->waits);
}

int mgr_waits_rewritten(struct mgr_core *c, struct mgr_vfile *v, const struct mgr_inode *in)
{
    struct mgr_level l;
    Fp__Level wanted;
    int rc;

    if (v->waits.state != MGR_WAITS || v->guard.shadow)
        return 0;
    rc = is_reached(c, in, false, &l, &wanted);
    return rc > 0 ? mgr_version_drop(c, v, &v->waits) : rc;
}

static void say_lost(struct mgr_core *c, struct mgr_vfile *v)
{
    ProtobufCBinaryData path = mgr_path(c, v->ino);

    if (!v->lost)
        FP_WARN("%.*s (inode %llu): some of it is lost or damaged; version %llu, which it was before, is kept: fpctl restore puts it back", (int)path.len,
                path.len ? (const char *)path.data : "", (unsigned long long)v->ino, (unsigned long long)v->waits.n);
    v->lost = true;
}

int mgr_waits_look(struct mgr_core *c, struct mgr_vfile *v)
{
    struct mgr_inode in;
    struct mgr_level l;
    Fp__Level wanted;
    int rc;

    if (v->waits.state != MGR_WAITS || v->guard.shadow || v->open || c->now.ms < v->look_ms)
        return 0;
    v->pause_ms = v->pause_ms ? 2 * v->pause_ms : LOOK_MS;
    v->pause_ms = v->pause_ms < LOOK_MAX_MS ? v->pause_ms : LOOK_MAX_MS;
    v->look_ms = c->now.ms + v->pause_ms;
    rc = mgr_inode_get(c, v->ino, &in);
    rc = rc ? rc : is_reached(c, &in, c->now.ms - v->waits_ms >= ASK_MS, &l, &wanted);
    if (rc)
        return rc > 0 ? mgr_version_drop(c, v, &v->waits) : rc;
    if (l.level == FP__LEVEL__LEVEL_NONE)
        say_lost(c, v);
    else
        v->lost = false;
    return 0;
}

void mgr_waits_drained(struct mgr_core *c, uint64_t ino)
{
    struct mgr_vfile *v = mgr_vfile_find(c, ino);

    if (!v || !v->waits.shadow)
        return;
    v->look_ms = v->pause_ms = 0;
    c->versions->look = true;
}

/* ---------------------------------------------------------------- renamed over */

/* `ver`, of `of` and made full, is from now what waits for `in`. stays: `old` is a version itself. */
static int hand_over(struct mgr_core *c, struct mgr_vfile *of, struct mgr_version *ver, const struct mgr_inode *in, struct mgr_inode *old, bool stays)
{
    struct mgr_vfile *v = mgr_vfile_get(c, in->ino);
    struct mgr_inode shadow;
    int rc;

    stays |= mgr_map_get(&c->holders, old->ino) || mgr_unsettled(c);
    rc = v ? mgr_version_fill(c, of, ver, old, !stays) : -ENOMEM;

    rc = rc ? rc : mgr_version_detach(c, of, ver, &shadow);
    rc = rc ? rc : mgr_version_drop(c, v, &v->waits);
    rc = rc ? rc : mgr_version_adopt(c, v, &v->waits, in, &shadow, 0);
    if (!rc)
        v->waits_ms = v->look_ms = c->now.ms;
    return rc;
}

int mgr_waits_inherit(struct mgr_core *c, const struct mgr_inode *in, struct mgr_inode *old, bool kept)
{
    struct mgr_vfile *of = mgr_vfile_find(c, old->ino);

    return of && of->waits.state == MGR_WAITS && c->drain->npolicies ? hand_over(c, of, &of->waits, in, old, kept) : 0;
}

/* Is its present data a version that was whole? */
static bool is_good(const struct mgr_core *c, const struct mgr_vfile *of, const struct mgr_inode *old)
{
    return old->size && !mgr_map_get(&c->holders, old->ino) && !mgr_unsettled(c) && (!of || (!of->guard.shadow && !of->open));
}

int mgr_waits_replaced(struct mgr_core *c, const struct mgr_inode *in, struct mgr_inode *old, bool *kept)
{
    struct mgr_vfile *of = mgr_vfile_find(c, old->ino), *v;
    int rc;

    if (!c->drain->npolicies || !in->nlink)
        return 0;
    if (of && of->waits.state == MGR_WAITS)
        return hand_over(c, of, &of->waits, in, old, false);
    if (of && of->guard.shadow && of->guard.state != MGR_RETURNING)
        return hand_over(c, of, &of->guard, in, old, false);
    if (!is_good(c, of, old))
        return 0;
    v = mgr_vfile_get(c, in->ino);
    if (!v)
        return -ENOMEM;
    *kept = true;
    rc = mgr_versions_gone(c, old->ino);
    rc = rc ? rc : mgr_version_drop(c, v, &v->waits);
    rc = rc ? rc : mgr_version_adopt(c, v, &v->waits, in, old, 0);
    v->waits_ms = v->look_ms = c->now.ms;
    v->pause_ms = 0;
    return rc;
}

/* ---------------------------------------------------------------- put back, or given up */

int mgr_waits_return(struct mgr_core *c, struct mgr_vfile *v)
{
    bool guarded = v->guard.shadow != 0;

    v->open = false;
    v->asked = true;
    if (guarded) {
        v->waits.state = MGR_NEXT;
        c->versions->returning++;
        return mgr_version_save(c, v, &v->waits) ? c->db.err : mgr_return_begin(c, v);
    }
    v->guard = v->waits;
    v->waits = (struct mgr_version){0};
    return mgr_return_begin(c, v);
}

int mgr_waits_next(struct mgr_core *c, struct mgr_vfile *v)
{
    c->versions->returning--;
    v->guard = v->waits;
    v->waits = (struct mgr_version){0};
    v->asked = true;
    return mgr_return_begin(c, v);
}

int mgr_waits_going(struct mgr_core *c, uint64_t ino)
{
    int rc = c->orphans.used ? mgr_db_one(&c->db, VERSION_GOING, DBI(ino), DBI(MGR_SHADOW)) : 0;

    mgr_db_reset(&c->db, MGR_ST_VERSION_GOING);
    return rc;
}

int mgr_waits_yields(struct mgr_core *c, uint64_t ino, bool *gone)
{
    struct mgr_vfile *v = mgr_vfile_find(c, ino);
    ProtobufCBinaryData path;
    bool waits = v && v->waits.state == MGR_WAITS;
    int rc = waits ? mgr_ext_names(c, v->waits.shadow) : 0;

    rc = rc || !waits ? rc : mgr_rescue_win_waits(c, v->waits.shadow, 0, INT64_MAX);
    *gone = rc > 0;
    if (rc <= 0)
        return rc;
    path = mgr_path(c, ino);
    FP_INFO("%.*s (inode %llu): the version before is in the target, where the present one is drained to now: it is given up", (int)path.len,
            path.len ? (const char *)path.data : "", (unsigned long long)ino);
    rc = mgr_rescue_win_forget(c, v->waits.shadow);
    rc = rc ? rc : mgr_version_drop(c, v, &v->waits);
    if (!rc)
        mgr_vfile_done(c, v);
    return rc;
}

char *mgr_waits_why(struct mgr_core *c, uint64_t ino)
{
    char line[600];
    struct mgr_inode in;
    struct mgr_level l;
    Fp__Level wanted;
    int rc = mgr_inode_get(c, ino, &in);

    rc = rc ? rc : is_reached(c, &in, false, &l, &wanted);
    if (rc < 0)
        return NULL;
    if (rc || mgr_map_get(&c->writers, ino))
        snprintf(line, sizeof line, "%s", rc ? "it goes: the file has the level that was asked for" : "kept until the file, which is open for writing, has the level that was asked for");
    else if (l.level == FP__LEVEL__LEVEL_NONE)
        snprintf(line, sizeof line, "some of the file is lost or damaged: fpctl restore puts this back");
    else
        snprintf(line, sizeof line, "kept until the file is %s: it is %s%s%s", names[wanted], names[l.level], l.why[0] ? "; " : "", l.why);
    return mgr_arena_text(&c->arena, line);
}
