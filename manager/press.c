/* A store that is full gives up versions, the least wanted first. A mount asks for it (StatFs.press) before a program is told that there is no space:
 *
 *     1   what was given up when a version was put back; and when nothing is being deleted, versions of which the next one is published and has not the level that is declared
 *         (versionwait.c), the oldest first: a program waits for no target because of them
 *     2   guards, too: those of files that are being rewritten, the oldest first, so much at a time as makes a difference
 *
 * Level 2 comes when there is nothing else to wait for: mounts have published, holds are released, windows folded. It leaves a file without its last good version, which
 * the log says, with its path; and a row of given_up, which fpctl versions and status show, until the file was rewritten to the end. Rejected: to tell ENOSPC instead; a program that rewrites its checkpoints in a store that holds one and a half of them would end, and
 * not only if something else fails too.
 *
 * Called by the core's thread, in a group. */
#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <time.h>

#include "fp/log.h"
#include "manager/version.h"

#define STEP_BYTES (UINT64_C(64) << 20)
#define GIVEN_MAX  1024u  /* of one kind, in one group: who needs more asks again */
#define LOOKS_MAX  65536u
#define SLICES_MAX 65536u /* one with more is taken to be here */

static uint64_t bytes_of(struct mgr_core *c, uint64_t shadow)
{
    struct mgr_inode in;

    return mgr_inode_get(c, shadow, &in) ? 0 : in.mapped;
}

/* *left: there may be more of them. */
static int give_up_remains(struct mgr_core *c, uint64_t *bytes, bool *left)
{
    struct mgr_versions *t = c->versions;
    size_t given = 0;
    int rc = 0;

    for (size_t i = 0; i < t->buckets && t->shadows.used && given < GIVEN_MAX && !rc; i++)
        for (struct mgr_vfile *v = t->bucket[i], *next; v && given < GIVEN_MAX && !rc; v = next) {
            next = v->next;
            if (!v->remains.shadow)
                continue;
            given++;
            *bytes += bytes_of(c, v->remains.shadow);
            rc = mgr_version_drop(c, v, &v->remains);
            if (!rc)
                mgr_vfile_done(c, v);
        }
    *left = given == GIVEN_MAX;
    return rc;
}

/* What may go, by its shadow: numbers of inodes only grow. Of one that is being put back, the file itself is on its way through it. 0: there is none. */
static uint64_t age(const struct mgr_vfile *v, bool waits)
{
    if (waits)
        return v->waits.state == MGR_WAITS ? v->waits.shadow : 0;
    return v->guard.state != MGR_RETURNING ? v->guard.shadow : 0;
}

static int give_up(struct mgr_core *c, struct mgr_vfile *v, struct mgr_version *its, const char *but, uint64_t *bytes)
{
    ProtobufCBinaryData path = mgr_path(c, v->ino);
    uint64_t n = bytes_of(c, its->shadow);
    int rc;

    FP_WARN("no space: the version before of %.*s (inode %llu) is given up, %llu MiB%s", (int)path.len, path.len ? (const char *)path.data : "",
            (unsigned long long)v->ino, (unsigned long long)(n >> 20), but);
    *bytes += n;
    rc = mgr_version_drop(c, v, its);
    if (!rc)
        mgr_vfile_done(c, v);
    return rc;
}

/* ---------------------------------------------------------------- what was given up is said */

int mgr_given_up_load(struct mgr_core *c)
{
    int rc = mgr_db_one(&c->db, GIVEN_UP_COUNT);

    c->versions->given_up = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_GIVEN_UP_COUNT, 0) : 0;
    mgr_db_reset(&c->db, MGR_ST_GIVEN_UP_COUNT);
    return rc < 0 ? rc : 0;
}

int mgr_given_up(struct mgr_core *c, uint64_t ino, Fp__VersionInfo **out)
{
    const enum mgr_stmt st = MGR_ST_GIVEN_UP_GET;
    int rc = c->versions->given_up ? mgr_db_one(&c->db, GIVEN_UP_GET, DBI(ino)) : 0;
    char line[160], when[32];
    time_t sec;
    struct tm tm;

    *out = NULL;
    if (rc <= 0)
        return rc;
    *out = MGR_NEW(c, Fp__VersionInfo, fp__version_info__init);
    if (*out) {
        (*out)->n = (uint64_t)mgr_col(&c->db, st, 0);
        (*out)->size_bytes = (uint64_t)mgr_col(&c->db, st, 1);
        (*out)->mtime_ns = mgr_col(&c->db, st, 2);
        (*out)->state = FP__VERSION_STATE__VERSION_GIVEN_UP;
        sec = (time_t)(mgr_col(&c->db, st, 3) / 1000000000);
        strftime(when, sizeof when, "%F %T", localtime_r(&sec, &tm));
        snprintf(line, sizeof line, "gone: the store had no space at %s; if the file is not rewritten to the end, there is nothing to put back", when);
        (*out)->why = mgr_arena_text(&c->arena, line);
    }
    mgr_db_reset(&c->db, st);
    return *out && (*out)->why ? 0 : mgr_doom(c, -ENOMEM);
}

int mgr_given_up_over(struct mgr_core *c, uint64_t ino)
{
    int rc = c->versions->given_up ? mgr_db_exec(&c->db, GIVEN_UP_DROP, DBI(ino)) : 0;

    if (!rc && c->versions->given_up)
        c->versions->given_up -= (uint64_t)sqlite3_changes(c->db.sq);
    return rc;
}

static int note_given_up(struct mgr_core *c, const struct mgr_vfile *v)
{
    struct mgr_inode in;
    int rc = mgr_inode_get(c, v->guard.shadow, &in);

    rc = rc ? rc : mgr_given_up_over(c, v->ino);
    rc = rc ? rc : mgr_db_exec(&c->db, GIVEN_UP_PUT, DBI(v->ino), DBI(v->guard.n), DBI(in.size), DBI(in.mtime), DBI(c->now.ns));
    c->versions->given_up += !rc;
    return rc;
}

static int give_up_guard(struct mgr_core *c, struct mgr_vfile *v, uint64_t *bytes)
{
    int rc = note_given_up(c, v);

    v->passed = true; /* for the rest of its epoch */
    return rc ? rc : give_up(c, v, &v->guard, ": if it is not rewritten to the end, it is torn", bytes);
}

static int give_up_waits(struct mgr_core *c, struct mgr_vfile *v, uint64_t *bytes)
{
    return give_up(c, v, &v->waits, ", though the present one has not the level that was asked for", bytes);
}

struct old {
    uint64_t shadow;
    struct mgr_vfile *v;
};

static int by_age(const void *a, const void *b)
{
    const struct old *x = a, *y = b;

    return x->shadow < y->shadow ? -1 : x->shadow > y->shadow;
}

/* All that may go, the oldest first, in memory of the group. */
static int find_old(struct mgr_core *c, bool waits, struct old **out, size_t *n)
{
    const struct mgr_versions *t = c->versions;
    size_t cap = 0;

    *out = NULL;
    *n = 0;
    for (size_t i = 0; i < t->buckets && t->shadows.used; i++)
        for (struct mgr_vfile *v = t->bucket[i]; v; v = v->next) {
            if (!age(v, waits))
                continue;
            *out = mgr_arena_grow(&c->arena, *out, *n, &cap, sizeof **out);
            if (!*out)
                return mgr_doom(c, -ENOMEM);
            (*out)[(*n)++] = (struct old){age(v, waits), v};
        }
    if (*n)
        qsort(*out, *n, sizeof **out, by_age);
    return 0;
}

/* What is in a target only, or has nothing yet that differs, takes none: nothing would be free without it. 1, 0, or a failure. */
static int takes_space(struct mgr_core *c, uint64_t shadow)
{
    int rc = mgr_db_one(&c->db, VERSION_HERE, DBI(shadow), DBI(SLICES_MAX)), here = rc > 0 ? mgr_col(&c->db, MGR_ST_VERSION_HERE, 0) != 0 : 0;

    mgr_db_reset(&c->db, MGR_ST_VERSION_HERE);
    return rc < 0 ? rc : here;
}

static int give_up_oldest(struct mgr_core *c, bool waits, uint64_t *bytes)
{
    struct old *list;
    size_t n;
    int rc = find_old(c, waits, &list, &n);

    for (size_t i = 0, given = 0, looks = 0; i < n && given < GIVEN_MAX && looks++ < LOOKS_MAX && !rc && *bytes < STEP_BYTES; i++) {
        rc = takes_space(c, list[i].shadow);
        if (rc > 0) {
            rc = waits ? give_up_waits(c, list[i].v, bytes) : give_up_guard(c, list[i].v, bytes);
            given++;
        }
    }
    return rc;
}

int mgr_press(struct mgr_core *c, uint32_t level, uint64_t *bytes)
{
    struct mgr_space sp;
    bool left = false;
    int rc = level ? give_up_remains(c, bytes, &left) : 0;

    if (rc || left) { /* they go before anything else does: who has no space asks again */
        *bytes += !*bytes;
        return rc;
    }
    mgr_space(c, &sp);
    if (!rc && level && !sp.garbage_bytes)
        rc = give_up_oldest(c, true, bytes);
    if (!rc && level > 1)
        rc = give_up_oldest(c, false, bytes);
    return rc;
}
