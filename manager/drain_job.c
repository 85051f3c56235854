/* Draining: jobs and files, from one state to the next.
 *
 * mgr_drain_step runs at the end of each group in which something has changed, before its COMMIT: it takes files of jobs up, cuts them into parts and
 * sees what is done. Results of tasks (drain_task.c) change rows and leave the rest to it. A step does a bounded amount and asks for another
 * group if there is more. Jobs of one target are served in their order, so that a set is whole before the next one begins.
 *
 * A file is compared with its version each time that something is decided: when it is taken up, cut, written, and after it was renamed. If it has changed, the
 * attempt is over and the next one has another number; a copy that was renamed meanwhile is whole, of the version before, and is not taken
 * for one of the present data. What is being changed waits until it has been left alone for a moment.
 *
 * Rejected: to keep all files of a job in memory (640,000), and to begin all of them at once (as many temporary files, and parts by the million). */
#include "manager/ext.h"
#include "manager/foreign.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fp/err.h"
#include "fp/log.h"

#define TICK_MS      400u
#define FILES_STEP   64u   /* files that one step takes up */
#define DROP_STEP    4096u /* parts that one step removes */
#define ACTIVE_MIN   64u   /* files worked on at once, of each target: so many, or four for each benefactor */
#define ACTIVE_MAX   4096u
#define MISSES_MAX   3u
#define READY_MS     60000u /* for which what is written waits to take its name; then it is written anew when it may */

static void look_all(struct mgr_core *c)
{
    for (size_t i = 0; i < c->drain->nof; i++)
        c->drain->of[i].look = true;
}

static void look(struct mgr_core *c, uint32_t bnf)
{
    struct mgr_tasker *t = mgr_tasker(c, bnf);

    if (t)
        t->look = true;
}

/* ---------------------------------------------------------------- the end of an attempt */

/* What its parts have added to the job is taken back. */
static int take_back(struct mgr_core *c, const struct mgr_dfile *f)
{
    struct mgr_djob *j = mgr_djob_find(c, f->job);
    uint64_t bytes = 0;
    int rc = mgr_db_one(&c->db, DPART_DONE, DBI(f->id));

    if (rc > 0)
        bytes = (uint64_t)mgr_col(&c->db, MGR_ST_DPART_DONE, 0);
    mgr_db_reset(&c->db, MGR_ST_DPART_DONE);
    if (rc < 0 || !j || !bytes)
        return rc < 0 ? rc : 0;
    j->bytes_done -= bytes < j->bytes_done ? bytes : j->bytes_done;
    return mgr_djob_put(c, j);
}

static int over(struct mgr_core *c, struct mgr_dfile *f, enum mgr_dstate state, int error, const char *why)
{
    int rc = take_back(c, f);
    bool left;

    if (mgr_dfile_foreign(c, f))
        rc = rc ? rc : mgr_foreign_over(c, f);
    else if (!f->tfile) /* else nothing was made */
        mgr_task_clean(c, f, f->state == MGR_D_FINISH);
    f->state = state;
    f->tino = f->dev = 0;
    rc = rc ? rc : mgr_dfile_put(c, f, error, why);
    rc = rc ? rc : mgr_dparts_drop(c, f->id, DROP_STEP, &left);
    c->drain->leftover |= !rc && left;
    c->drain->leftover_file = 0;
    c->drain->dirty = true;
    mgr_dfile_remove(c, f);
    return rc;
}

int mgr_drain_again(struct mgr_core *c, struct mgr_dfile *f)
{
    return over(c, f, MGR_D_WAIT, 0, NULL);
}

int mgr_drain_fail(struct mgr_core *c, struct mgr_dfile *f, int error, const char *why)
{
    struct mgr_djob *j = mgr_djob_find(c, f->job);
    ProtobufCBinaryData path = {0, NULL};
    int rc = mgr_dfile_path(c, f->id, &path);

    why = why && *why ? why : fp_strerror(error);
    FP_WARN("drain job %llu: %.*s: %s", j ? (unsigned long long)j->id : 0, (int)path.len, path.data ? (char *)path.data : "", why);
    return rc ? rc : over(c, f, MGR_D_FAILED, error, why);
}

int mgr_drain_stays(struct mgr_core *c, struct mgr_dfile *f, const char *why)
{
    return over(c, f, MGR_D_LEFT, -EBUSY, why);
}

/* It ended by something that should not be, but may be over the next time. */
static int again_or_fail(struct mgr_core *c, struct mgr_dfile *f, uint32_t max, int error, const char *why)
{
    if (++f->tries >= max)
        return mgr_drain_fail(c, f, error, why);
    return mgr_drain_again(c, f);
}

/* ---------------------------------------------------------------- a file goes on */

/* 1: the file has still the data of the attempt; 0: not (the attempt is over, f is not valid any more); or a failure. */
static int same_data(struct mgr_core *c, struct mgr_dfile *f, struct mgr_inode *in)
{
    int rc = mgr_inode_get_live(c, f->ino, in);

    if (!rc && in->data_version == f->version)
        return 1;
    if (rc && rc != -ENOENT)
        return rc;
    return mgr_drain_again(c, f);
}

/* Is there a part that has not come to this state? */
static int is_below(struct mgr_core *c, struct mgr_dfile *f, enum mgr_pstate state)
{
    int rc = mgr_db_one(&c->db, DPART_LOW, DBI(f->id), DBI(f->low), DBI(state));

    if (rc > 0)
        f->low = (uint64_t)mgr_col(&c->db, MGR_ST_DPART_LOW, 0);
    mgr_db_reset(&c->db, MGR_ST_DPART_LOW);
    return rc;
}

/* All of it is written: it may take the name. What has that may be the only copy of something by now that was here, too, when the attempt began; from here on
 * nothing becomes so any more (mgr_drain_renames_over). */
static int may_finish(struct mgr_core *c, struct mgr_dfile *f)
{
    int rc = mgr_stage_blocks(c, f);

    if (rc == MGR_BLOCKS_WAIT && f->ready_ms && c->now.ms - f->ready_ms >= READY_MS)
        return mgr_drain_again(c, f); /* others may have its place meanwhile */
    if (rc == MGR_BLOCKS_WAIT && !f->ready_ms)
        f->ready_ms = c->now.ms ? c->now.ms : 1;
    if (rc)
        return rc < 0 ? rc : 0;
    f->ready_ms = 0;
    f->state = MGR_D_FINISH;
    look(c, f->lead);
    return mgr_dfile_put(c, f, 0, NULL);
}

/* All that it had to do in this state may be done. The attempt may be over afterwards. */
static int forward(struct mgr_core *c, struct mgr_dfile *f)
{
    int rc = 0;

    if (f->state == MGR_D_PARTS) {
        rc = is_below(c, f, MGR_P_DONE);
        if (rc)
            return rc < 0 ? rc : 0;
        f->low = 0;
        if (!f->verify)
            return may_finish(c, f);
        f->state = MGR_D_VERIFY;
        rc = mgr_dfile_put(c, f, 0, NULL);
        look_all(c);
    }
    if (!rc && f->state == MGR_D_VERIFY) {
        rc = is_below(c, f, MGR_P_VERIFIED);
        return rc ? (rc < 0 ? rc : 0) : may_finish(c, f);
    }
    look(c, f->lead);
    return rc;
}

/* It may be that it only waits to take its name. */
static int resume(struct mgr_core *c, struct mgr_dfile *f)
{
    struct mgr_inode in;
    int rc = is_below(c, f, f->state == MGR_D_PARTS ? MGR_P_DONE : MGR_P_VERIFIED);

    if (rc) {
        f->ready_ms = 0; /* not so: a manager that was started anew does not know */
        return rc < 0 ? rc : 0;
    }
    rc = same_data(c, f, &in);
    return rc > 0 ? forward(c, f) : rc;
}

/* More of a file that has its temporary file is cut into parts. */
static int plan(struct mgr_core *c, struct mgr_dfile *f)
{
    bool done;
    int rc = mgr_drain_plan(c, f, &done);

    if (rc == -ESTALE || rc == -ENOENT)
        return mgr_drain_again(c, f);
    if (rc == -ENODATA || (rc == -EIO && !c->db.err))
        return mgr_drain_fail(c, f, -EIO, rc == -EIO ? "a part of its data is lost: fpctl status says which" : "what was closed of it was lost before it was stored: replace it, or cut it to nothing and write it again (fpctl status)");
    if (rc == -EFBIG)
        return mgr_drain_fail(c, f, rc, "it has more windows than can be drained");
    if (rc)
        return rc;
    if (!done) {
        c->drain->dirty = c->busy = true;
        return 0;
    }
    f->state = MGR_D_PARTS;
    f->low = 0;
    rc = mgr_dfile_put(c, f, 0, NULL);
    return rc ? rc : forward(c, f);
}

int mgr_drain_prepared(struct mgr_core *c, struct mgr_dfile *f, const Fp__TaskResult *r)
{
    if (f->state != MGR_D_PREPARE || f->tino || !r->seen || !r->seen->ino)
        return 0;
    f->dev = r->seen->dev;
    f->tino = r->seen->ino;
    c->drain->dirty = true;
    if (f->kind == MGR_K_DIR) { /* it is there; the rest when nothing is made in it any more */
        int rc;

        f->state = MGR_D_DIR;
        rc = mgr_dfile_put(c, f, 0, NULL);
        mgr_dfile_remove(c, f);
        return rc;
    }
    return mgr_dfile_put(c, f, 0, NULL);
}

/* Sums of the windows of a part, 8 bytes each; 0 where there is nothing of it, all bits where none was told. Of a window that others have some of, too, it
 * is the sum of what this one has, with zeros in place of the rest. The task had slices of some windows, and has summed those. */
static int take_sums(struct mgr_core *c, const struct mgr_dfile *f, uint32_t bnf, uint64_t first, uint64_t count, const Fp__TaskResult *r, uint8_t *out)
{
    const enum mgr_stmt st = MGR_ST_DPART_SLICES;
    uint8_t *mine = mgr_arena_zalloc(&c->arena, count);
    size_t n = 0;
    int rc;

    if (!mine)
        return mgr_doom(c, -ENOMEM);
    for (rc = mgr_db_one(&c->db, DPART_SLICES, DBI(f->ino), DBI(first)); rc > 0; rc = mgr_db_step(&c->db, st)) {
        uint64_t win = (uint64_t)mgr_col(&c->db, st, 0);

        if (win >= first + count)
            break;
        mine[win - first] |= (uint32_t)mgr_col(&c->db, st, 2) == bnf;
    }
    mgr_db_reset(&c->db, st);
    memset(out, 0, count * 8);
    for (uint64_t w = 0; w < count && rc >= 0; w++) {
        uint64_t sum = mine[w] && n < r->n_sums ? r->sums[n++] : 0;

        if (mine[w] && sum == 0)
            sum = UINT64_MAX;
        for (size_t k = 0; k < 8; k++)
            out[w * 8 + k] = (uint8_t)(sum >> 8 * k);
    }
    return rc < 0 ? rc : 0;
}

int mgr_drain_part_done(struct mgr_core *c, struct mgr_dfile *f, uint32_t bnf, uint64_t first, bool verify, const Fp__TaskResult *r)
{
    struct mgr_djob *j = mgr_djob_find(c, f->job);
    struct mgr_inode in;
    uint64_t count, bytes;
    uint32_t state;
    uint8_t *sums;
    int rc = mgr_db_one(&c->db, DPART_GET, DBI(f->id), DBI(first), DBI(bnf));

    if (rc <= 0)
        return rc;
    count = (uint64_t)mgr_col(&c->db, MGR_ST_DPART_GET, 0);
    state = (uint32_t)mgr_col(&c->db, MGR_ST_DPART_GET, 1);
    bytes = (uint64_t)mgr_col(&c->db, MGR_ST_DPART_GET, 2);
    mgr_db_reset(&c->db, MGR_ST_DPART_GET);
    if (verify ? f->state != MGR_D_VERIFY || state != MGR_P_DONE : state != MGR_P_TODO)
        return 0; /* told again */
    rc = same_data(c, f, &in);
    if (rc <= 0)
        return rc;
    if (verify) {
        rc = mgr_db_exec(&c->db, DPART_STATE, DBI(f->id), DBI(first), DBI(bnf), DBI(MGR_P_VERIFIED));
        return rc ? rc : forward(c, f);
    }
    sums = mgr_arena_alloc(&c->arena, count * 8);
    rc = sums ? take_sums(c, f, bnf, first, count, r, sums) : mgr_doom(c, -ENOMEM);
    rc = rc ? rc : mgr_db_exec(&c->db, DPART_SET, DBI(f->id), DBI(first), DBI(bnf), DBI(MGR_P_DONE), DBB(sums, count * 8));
    if (!rc && j) {
        j->bytes_done += bytes;
        c->drain->moved += mgr_drained_is_log(c, f) ? 0 : bytes;
        if (mgr_target_find(c, f->target))
            mgr_target_find(c, f->target)->new_bytes += bytes;
        rc = mgr_djob_put(c, j);
    }
    return rc ? rc : forward(c, f);
}

static int set_why(struct mgr_core *c, struct mgr_djob *j, int error, const char *path, size_t len, const char *why)
{
    char *text = malloc(len + strlen(why) + 3);

    if (!text)
        return mgr_doom(c, -ENOMEM);
    sprintf(text, "%.*s%s%s", (int)len, path ? path : "", len ? ": " : "", why);
    free(j->why);
    j->why = text;
    j->error = error;
    return 0;
}

int mgr_drain_remark(struct mgr_core *c, const struct mgr_dfile *f, const char *why)
{
    struct mgr_djob *j = mgr_djob_find(c, f->job);
    ProtobufCBinaryData path;
    int rc = !j || j->why[0] ? 0 : mgr_dfile_path(c, f->id, &path);

    return rc || !j || j->why[0] ? rc : set_why(c, j, 0, (const char *)path.data, path.len, why);
}

/* It is in the target: the job counts it. Of one that was evicted, what is not here any more. */
int mgr_drain_done(struct mgr_core *c, struct mgr_dfile *f)
{
    struct mgr_djob *j = mgr_djob_find(c, f->job);
    bool left;
    int rc = take_back(c, f);

    f->state = MGR_D_DONE;
    rc = rc ? rc : mgr_dfile_put(c, f, 0, NULL);
    rc = rc ? rc : mgr_dparts_drop(c, f->id, DROP_STEP, &left);
    if (!rc && j && f->kind != MGR_K_DIR) {
        j->files_done++;
        j->bytes_done += f->size - (f->stay_bytes < f->size ? f->stay_bytes : f->size);
        c->drain->moved += mgr_djob_stages(j) || mgr_drained_is_log(c, f) ? 0 : f->size; /* in favour of a log nothing is evicted */
        rc = mgr_djob_put(c, j);
    }
    c->drain->leftover |= !rc && left;
    c->drain->leftover_file = 0;
    c->drain->dirty = true;
    return rc;
}

/* It is whole as it was published; but who writes it has not come to an end, and who asked for a copy must not take it for the file that it becomes. */
static int say_open(struct mgr_core *c, const struct mgr_dfile *f)
{
    struct mgr_djob *j = mgr_djob_find(c, f->job);
    ProtobufCBinaryData path;
    int rc;

    if (!j || f->kind != MGR_K_FILE || !mgr_map_get(&c->writers, f->ino))
        return 0;
    rc = mgr_dfile_path(c, f->id, &path);
    return rc ? rc : set_why(c, j, -EBUSY, (const char *)path.data, path.len, "copied as it was published, but it is open for writing: drain it again when it is closed");
}

/* It was copied before, and somebody has looked whether that copy is still there: else it is made anew. */
int mgr_drain_looked(struct mgr_core *c, struct mgr_dfile *f, const Fp__TaskResult *r)
{
    struct mgr_inode in;
    int rc;

    if (f->state != MGR_D_PREPARE || !f->tfile || r->status == FP_ECANCELLED)
        return 0;
    if (mgr_djob_stages(mgr_djob_find(c, f->job)))
        return mgr_stage_looked(c, f, r);
    rc = same_data(c, f, &in);
    if (rc <= 0)
        return rc;
    rc = r->status ? 0 : mgr_drained_is_seen(c, f, r->seen);
    if (rc > 0) {
        mgr_survey_found(c, f->tfile);
        rc = say_open(c, f);
        rc = rc ? rc : mgr_drain_done(c, f);
        mgr_dfile_remove(c, f);
        return rc;
    }
    if (!rc && (!r->status || r->status == -ENOENT))
        rc = mgr_look_denied(c, f->tfile, f->lead);
    f->tfile = 0;
    rc = rc ? rc : mgr_drained_drop_at(c, f->ino, f->target);
    rc = rc ? rc : mgr_stage_blocks(c, f);
    if (rc)
        return rc < 0 ? rc : rc == MGR_BLOCKS_WAIT ? mgr_drain_again(c, f) : 0;
    look(c, f->lead);
    return mgr_dfile_put(c, f, 0, NULL);
}

/* It has its name, but who asked for the comparison must not take it for compared. */
static int say_unverified(struct mgr_core *c, const struct mgr_dfile *f, const struct mgr_inode *in)
{
    struct mgr_djob *j = mgr_djob_find(c, f->job);
    ProtobufCBinaryData path;
    int rc;

    if (!j || !f->verify || mgr_drained_level_at(c, in, f->target) >= FP__LEVEL__LEVEL_VERIFIED)
        return 0;
    rc = mgr_drained_path(c, f, &path);
    return rc ? rc : set_why(c, j, -ENODATA, (const char *)path.data, path.len, "copied, but not compared: a benefactor did not tell digests of what it wrote");
}

int mgr_drain_finished(struct mgr_core *c, struct mgr_dfile *f, const Fp__TaskResult *r)
{
    struct mgr_inode in;
    int rc;

    if (f->state != MGR_D_FINISH || !r->seen)
        return 0;
    rc = mgr_inode_get_live(c, f->ino, &in);
    if (rc && rc != -ENOENT)
        return rc;
    if (!rc && in.data_version != f->version)
        return mgr_drain_again(c, f);
    if (!rc && f->kind == MGR_K_FILE && !mgr_drained_is_log(c, f)) {
        rc = mgr_drained_put(c, f, &in, r->seen);
        rc = rc ? rc : say_unverified(c, f, &in);
    } else {
        rc = 0; /* removed meanwhile: its copy is there. Or a log: no level is claimed for it, and nothing evicted */
    }
    rc = rc ? rc : say_open(c, f);
    rc = rc ? rc : mgr_drain_done(c, f);
    mgr_dfile_remove(c, f);
    return rc;
}

int mgr_drain_refused(struct mgr_core *c, struct mgr_dfile *f, const Fp__TaskResult *r)
{
    const char *why = r->why;
    struct mgr_inode in;
    int rc;

    switch (r->status) {
    case FP_ECANCELLED:
        return 0; /* it is told again, if it is still to be done */
    case -ENOENT:
    case -EEXIST:
        return again_or_fail(c, f, MGR_TRIES_MAX, r->status, "its temporary file is taken away again and again");
    case FP_ECHUNK_MISSING:
    case FP_ECHECKSUM:
    case FP_ECORRUPT:
        rc = same_data(c, f, &in);
        return rc <= 0 ? rc : again_or_fail(c, f, MISSES_MAX, r->status, why);
    default:
        return mgr_drain_fail(c, f, r->status, why);
    }
}

/* ---------------------------------------------------------------- a file is taken up */

static size_t active_of(const struct mgr_core *c, const struct mgr_djob *j)
{
    size_t n = 0;

    for (size_t i = 0; i < c->drain->nfiles; i++)
        n += c->drain->files[i].target == j->target || c->drain->files[i].job == j->id;
    return n;
}

static size_t active_max(const struct mgr_core *c)
{
    size_t n = 4 * c->bnf_count;

    return n < ACTIVE_MIN ? ACTIVE_MIN : n > ACTIVE_MAX ? ACTIVE_MAX : n;
}

/* The job has counted it with the size that it had. Its row is stored by the caller. */
int mgr_drain_set_size(struct mgr_core *c, struct mgr_dfile *f, uint64_t size)
{
    struct mgr_djob *j = mgr_djob_find(c, f->job);
    uint64_t old = f->size;

    f->size = size;
    if (!j || old == size)
        return 0;
    j->bytes = j->bytes - (old < j->bytes ? old : j->bytes) + size;
    return mgr_djob_put(c, j);
}

int mgr_drain_begin(struct mgr_core *c, struct mgr_dfile *f, uint64_t size, enum mgr_dstate state)
{
    struct mgr_dfile *at = mgr_dfile_add(c, f);
    bool dir = f->kind == MGR_K_DIR, lost;
    const char *why;
    int rc;

    if (!at)
        return -ENOMEM;
    rc = mgr_drained_log_name(c, at, &why);
    if (!rc && why)
        return (rc = mgr_drain_set_size(c, at, size)) || (rc = mgr_drain_fail(c, at, -ENAMETOOLONG, why)) ? rc : 1;
    rc = rc ? rc : mgr_drain_choose_lead(c, at, &at->lead, &lost);
    if (!rc && !dir && !at->tfile && (rc = mgr_stage_blocks(c, at)) != 0) {
        if (rc == MGR_BLOCKS_WAIT)
            mgr_dfile_remove(c, at);
        return rc == MGR_BLOCKS_WAIT ? 0 : rc;
    }
    if (!rc && lost && !at->tfile)
        return (rc = mgr_drain_set_size(c, at, size)) || (rc = mgr_drain_fail(c, at, -EIO, "a part of its data is lost: fpctl status says which")) ? rc : 1;
    at->lead = at->lead || rc ? at->lead : mgr_drain_any_lead(c, at);
    if (rc || !at->lead) {
        mgr_dfile_remove(c, at);
        return rc;
    }
    rc = dir ? 0 : mgr_drain_set_size(c, at, size);
    rc = rc ? rc : mgr_drain_gen(c, &at->gen);
    at->state = state;
    at->low = at->ready_ms = 0;
    if (state == MGR_D_PREPARE)
        at->tino = at->dev = 0;
    rc = rc ? rc : mgr_dfile_put(c, at, 0, NULL);
    look(c, at->lead);
    return rc ? rc : 1;
}

/* Perhaps: of a program that has closed it the manager hears a moment later. */
static bool is_just_closed(struct mgr_core *c, const struct mgr_dfile *f)
{
    const struct mgr_djob *j = mgr_djob_find(c, f->job);

    return j && f->kind == MGR_K_FILE && c->now.ns - j->made_ns < MGR_QUIET_NS && mgr_map_get(&c->writers, f->ino);
}

/* 1: it is taken up (or needs nothing); 0: not yet; or a failure. */
static int take_up(struct mgr_core *c, struct mgr_dfile *f, struct mgr_inode *in)
{
    const struct mgr_djob *j = mgr_djob_find(c, f->job);
    int64_t age = c->now.ns - in->mtime;
    bool wait = false;
    int rc;

    if (f->gen && age >= 0 && age < MGR_QUIET_NS)
        return 0; /* it has changed under an attempt, and may do so again */
    if (is_just_closed(c, f))
        return 0;
    rc = mgr_drain_is_free(c, f);
    if (rc <= 0)
        return rc;
    rc = 0;
    f->version = in->data_version;
    f->tfile = 0;
    if (f->kind == MGR_K_DIR)
        f->size = 0;
    if (f->kind != MGR_K_FILE)
        return mgr_drain_begin(c, f, 0, MGR_D_PREPARE);
    if ((in->flags & MGR_DRAINS) && !(j && j->again))
        rc = mgr_drained_is_at(c, f);
    if (!rc && !f->tfile)
        rc = mgr_drain_in(c, f, &wait);
    if (rc || wait)
        return rc;
    rc = mgr_drain_begin(c, f, in->size, MGR_D_PREPARE);
    if (rc > 0 && !(in->flags & MGR_DRAINS)) {
        in->flags |= MGR_DRAINS;
        rc = mgr_inode_put(c, in);
        rc = rc ? rc : 1;
    }
    return rc;
}

/* It is not there any more: the job is without it. */
static int drop(struct mgr_core *c, struct mgr_djob *j, struct mgr_dfile *f)
{
    int rc;

    f->state = MGR_D_CANCELLED;
    rc = mgr_dfile_put(c, f, -ENOENT, "it was deleted before it was drained");
    if (f->kind == MGR_K_DIR)
        return rc;
    j->files -= j->files > 0;
    j->bytes -= j->bytes < f->size ? j->bytes : f->size;
    return rc ? rc : mgr_djob_put(c, j);
}

/* ---------------------------------------------------------------- jobs */

/* One that waits. 1: something has become of it; 0: it goes on waiting; or a failure. */
static int begin_file(struct mgr_core *c, struct mgr_djob *j, struct mgr_dfile *f)
{
    struct mgr_inode in;
    int rc;

    if (mgr_djob_foreign(j))
        return mgr_foreign_begin(c, f);
    if (mgr_djob_merges(j))
        return mgr_merge_begin(c, f);
    rc = f->ino ? mgr_inode_get_live(c, f->ino, &in) : 0;
    if (!f->ino)
        return (rc = mgr_auto_members(c, j, f)) ? rc : 1;
    if (rc == -ENOENT || (!rc && !in.nlink)) {
        rc = drop(c, j, f);
        return rc ? rc : 1;
    }
    if (rc)
        return rc;
    if (f->kind == MGR_K_DIR && !f->gen && f->version == 1)
        return (rc = mgr_drain_expand(c, j, f)) ? rc : 1;
    if (mgr_djob_stages(j))
        return mgr_stage_begin(c, j, f, &in);
    return take_up(c, f, &in);
}

static int fill(struct mgr_core *c, struct mgr_djob *j)
{
    const enum mgr_stmt st = MGR_ST_DFILE_NEXT;
    struct mgr_dfile list[FILES_STEP];
    size_t n = 0, room = active_max(c), now = active_of(c, j);
    int rc;

    room = room > now ? room - now : 0;
    room = room > FILES_STEP ? FILES_STEP : room;
    if (!room)
        return 0;
    for (rc = mgr_db_one(&c->db, DFILE_NEXT, DBI(j->id), DBI(j->skipped), DBI(room)); rc > 0; rc = mgr_db_step(&c->db, st))
        mgr_dfile_row(c, st, j, &list[n++]);
    for (size_t i = 0; i < n && !rc; i++) {
        rc = begin_file(c, j, &list[i]);
        if (rc == 0)
            j->skipped = list[i].id; /* until the next tick */
        rc = rc > 0 ? 0 : rc;
    }
    if (n == room)
        c->drain->dirty = true;
    if (n == FILES_STEP)
        c->busy = true;
    return rc;
}

/* Ended, one way or the other. */
static int end_job(struct mgr_core *c, struct mgr_djob *j, enum _Fp__DrainState state)
{
    int rc;

    j->state = state;
    j->done_ns = c->now.ns;
    rc = mgr_djob_put(c, j);
    FP_INFO("drain job %llu: %s, %llu of %llu files%s%s", (unsigned long long)j->id,
            state == FP__DRAIN_STATE__DRAIN_DONE ? "done" : state == FP__DRAIN_STATE__DRAIN_FAILED ? "failed" : "cancelled",
            (unsigned long long)j->files_done, (unsigned long long)j->files, j->why[0] ? ": " : "", j->why);
    if (j->replaced)
        FP_WARN("drain job %llu: %llu files of the target that another store had drained there have given way: that store has no copy of them any more, and the target may have a mixture of both",
                (unsigned long long)j->id, (unsigned long long)j->replaced);
    mgr_djob_remove(c, j);
    c->stirred = true; /* of names made by a job: somebody may be alone again */
    c->drain->prune = true;
    return rc;
}

int mgr_drain_cancel(struct mgr_core *c, struct mgr_djob *j, int error, const char *why)
{
    int rc = set_why(c, j, error, NULL, 0, why);

    for (size_t i = c->drain->nfiles; i-- > 0 && !rc;)
        if (c->drain->files[i].job == j->id)
            rc = over(c, &c->drain->files[i], MGR_D_CANCELLED, error, why);
    look_all(c);
    return rc ? rc : end_job(c, j, FP__DRAIN_STATE__DRAIN_CANCELLED);
}

/* What was left out, or stays, behind what the job says else. */
static int add_left(struct mgr_core *c, struct mgr_djob *j)
{
    bool evicts = j->kind == FP__JOB_KIND__JOB_EVICT;
    char line[MGR_LEFT_LINE], both[2 * MGR_LEFT_LINE];
    int rc = evicts ? mgr_stage_left_text(c, j->id, line) : mgr_foreign_left_text(c, j->id, line);

    if (rc || !line[0])
        return rc;
    snprintf(both, sizeof both, "%.900s%s%s", j->why, j->why[0] ? "; " : "", line);
    return set_why(c, j, j->error ? j->error : evicts && !j->files_done ? -EBUSY : 0, NULL, 0, both); /* of none anything has gone */
}

/* Nothing of it is left to be done: what came of it? */
static int conclude(struct mgr_core *c, struct mgr_djob *j)
{
    const enum mgr_stmt st = MGR_ST_DFILE_FAILED;
    bool failed;
    int rc = mgr_db_one(&c->db, DFILE_LEFT, DBI(j->id));

    mgr_db_reset(&c->db, MGR_ST_DFILE_LEFT);
    rc = rc ? rc : mgr_drain_dirs(c, j);
    if (rc)
        return rc < 0 ? rc : 0;
    rc = mgr_db_one(&c->db, DFILE_FAILED, DBI(j->id));
    failed = rc > 0;
    if (failed) {
        size_t len;
        const void *path = mgr_col_blob(&c->db, st, 0, &len);

        rc = set_why(c, j, (int)mgr_col(&c->db, st, 1), path, len, mgr_col_text(&c->db, st, 2));
    }
    mgr_db_reset(&c->db, st);
    rc = rc < 0 ? rc : add_left(c, j);
    return rc ? rc : end_job(c, j, failed || j->error ? FP__DRAIN_STATE__DRAIN_FAILED : FP__DRAIN_STATE__DRAIN_DONE);
}

static bool has_active(const struct mgr_core *c, uint64_t job)
{
    for (size_t i = 0; i < c->drain->nfiles; i++)
        if (c->drain->files[i].job == job)
            return true;
    return false;
}

/* ---------------------------------------------------------------- the step */

/* Parts of files that are not worked on any more. */
static int sweep_parts(struct mgr_core *c)
{
    struct mgr_drain *d = c->drain;
    uint64_t file = 0;
    bool left = true;
    int rc = mgr_db_one(&c->db, DPART_FILE, DBI(d->leftover_file));

    if (rc > 0)
        file = (uint64_t)mgr_col(&c->db, MGR_ST_DPART_FILE, 0);
    mgr_db_reset(&c->db, MGR_ST_DPART_FILE);
    if (rc <= 0) {
        d->leftover = false;
        return rc;
    }
    if (!mgr_dfile_find(c, file))
        rc = mgr_dparts_drop(c, file, DROP_STEP, &left);
    else
        rc = left = false;
    d->leftover_file = left ? d->leftover_file : file;
    c->busy = d->dirty = true;
    return rc;
}

static int files_step(struct mgr_core *c)
{
    struct mgr_drain *d = c->drain;
    int rc = 0;

    for (size_t i = d->nfiles; i-- > 0 && !rc;) { /* from the end: one that goes leaves its place to the last */
        struct mgr_dfile *f = &d->files[i];

        if (f->stale)
            rc = mgr_drain_again(c, f);
        else if (f->state == MGR_D_PREPARE && f->tino)
            rc = plan(c, f);
        else if (f->ready_ms && !mgr_dfile_shared(c, f))
            rc = resume(c, f);
        else if (f->looked_ms)
            rc = mgr_stage_step(c, f);
    }
    return rc;
}

int mgr_drain_step(struct mgr_core *c)
{
    struct mgr_drain *d = c->drain;
    int rc = mgr_surveys_step(c);

    if (rc || !d->dirty)
        return rc;
    d->dirty = false;
    rc = files_step(c);
    rc = rc ? rc : mgr_foreign_step(c);
    for (size_t i = 0; i < d->njobs && !rc; i++)
        rc = fill(c, &d->jobs[i]);
    for (size_t i = d->njobs; i-- > 0 && !rc;)
        if (!has_active(c, d->jobs[i].id))
            rc = conclude(c, &d->jobs[i]);
    if (!rc && d->leftover)
        rc = sweep_parts(c);
    if (!rc)
        rc = mgr_drain_in_step(c);
    if (!rc)
        rc = mgr_evict_press(c);
    rc = rc ? rc : mgr_rescue_step(c);
    rc = rc ? rc : mgr_needs_step(c);
    if (!rc && d->prune)
        rc = mgr_auto_prune(c);
    return rc;
}

void mgr_drain_tick(struct mgr_core *c)
{
    struct mgr_drain *d = c->drain;

    d->dirty |= mgr_evict_presses(c) || mgr_needs_due(c) || mgr_rescue_due(c);
    mgr_look_tick(c);
    mgr_surveys_tick(c);
    if ((!d->njobs && !d->nclean) || c->now.ms < d->tick_ms) /* who was told to clean up may have died, also when all jobs are done */
        return;
    d->tick_ms = c->now.ms + TICK_MS;
    d->dirty = d->pace = true;
    mgr_progress_tick(c);
    mgr_every_tick(c);
    for (size_t i = 0; i < d->njobs; i++)
        d->jobs[i].skipped = 0;
    for (size_t i = 0; i < d->nfiles; i++)
        mgr_drain_check_lead(c, &d->files[i]);
    look_all(c); /* for what is due by time */
}
