/* Draining: rows, and what of them is kept in memory.
 *
 * In memory are active jobs, the files that are worked on (a few thousand at most; of 640,000 that wait, none) and all targets. They are read
 * at the start, and again when a group has failed (mgr_reload), so whoever changes them here changes the row in the same group. */
#include "manager/ext.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "fp/grown.h"
#include "fp/targetid.h"

#define GEN_BLOCK 65536u /* numbers reserved with one row, which is synced */

struct mgr_drain *mgr_drain_new(void)
{
    return calloc(1, sizeof(struct mgr_drain));
}

void mgr_djob_fini(struct mgr_djob *j)
{
    free(j->dest);
    free(j->why);
}

static void forget(struct mgr_drain *d)
{
    for (size_t i = 0; i < d->njobs; i++)
        mgr_djob_fini(&d->jobs[i]);
    d->njobs = d->nfiles = 0;
}

void mgr_drain_free(struct mgr_drain *d)
{
    if (!d)
        return;
    forget(d);
    mgr_policies_forget(d);
    mgr_idmap_fini(&d->due);
    mgr_idmap_fini(&d->rescues);
    mgr_idmap_fini(&d->blocked);
    mgr_surveys_free(&d->surveys);
    mgr_map_fini(&d->dry);
    for (size_t i = 0; i < d->ntargets; i++)
        free(d->targets[i].root);
    for (size_t i = 0; i < d->nof; i++) {
        free(d->of[i].open);
        free(d->of[i].seen);
        free(d->of[i].paced);
    }
    free(d->of);
    free(d->targets);
    free(d->jobs);
    mgr_map_fini(&d->dry);
    free(d->files);
    free(d);
}

/* ---------------------------------------------------------------- found in memory */

struct mgr_djob *mgr_djob_find(struct mgr_core *c, uint64_t id)
{
    for (size_t i = 0; i < c->drain->njobs; i++)
        if (c->drain->jobs[i].id == id)
            return &c->drain->jobs[i];
    return NULL;
}

struct mgr_dfile *mgr_dfile_find(struct mgr_core *c, uint64_t id)
{
    for (size_t i = 0; i < c->drain->nfiles; i++)
        if (c->drain->files[i].id == id)
            return &c->drain->files[i];
    return NULL;
}

bool mgr_drain_cleans(const struct mgr_core *c, uint64_t file, uint64_t within_ms)
{
    for (size_t i = 0; i < c->drain->nclean; i++) {
        const struct mgr_cleaning *n = &c->drain->clean[i];

        if (n->file == file && n->by && c->now.ms - n->at_ms < within_ms)
            return true;
    }
    return false;
}

struct mgr_target *mgr_target_find(struct mgr_core *c, uint32_t id)
{
    for (size_t i = 0; i < c->drain->ntargets; i++)
        if (c->drain->targets[i].id == id)
            return &c->drain->targets[i];
    return NULL;
}

struct mgr_tasker *mgr_tasker(struct mgr_core *c, uint32_t bnf)
{
    struct mgr_drain *d = c->drain;

    if (!bnf || bnf > MGR_BNF_MAX)
        return NULL;
    if (bnf > d->nof) {
        size_t n = bnf + 15;
        struct mgr_tasker *p = realloc(d->of, n * sizeof *p);

        if (!p)
            return NULL;
        memset(p + d->nof, 0, (n - d->nof) * sizeof *p);
        d->of = p;
        d->nof = n;
    }
    return &d->of[bnf - 1];
}

/* ---------------------------------------------------------------- targets */

static struct mgr_target *target_add(struct mgr_core *c, uint32_t id, const char *root)
{
    struct mgr_drain *d = c->drain;
    struct mgr_target *list = fp_grown(d->targets, d->ntargets, &d->targets_cap, sizeof *list), *t;
    char *copy = strdup(root);

    if (list)
        d->targets = list;
    if (!list || !copy) {
        free(copy);
        return NULL;
    }
    t = &d->targets[d->ntargets++];
    *t = (struct mgr_target){.id = id, .root = copy};
    return t;
}

/* The same each time that it is asked for. */
void mgr_target_mark(const struct mgr_core *c, const struct mgr_target *t, uint8_t uuid[16])
{
    XXH3_state_t *x = XXH3_createState();
    XXH128_canonical_t k;

    if (!x)
        return;
    XXH3_128bits_reset(x);
    XXH3_128bits_update(x, c->uuid, sizeof c->uuid);
    XXH3_128bits_update(x, t->root, strlen(t->root));
    XXH128_canonicalFromHash(&k, XXH3_128bits_digest(x));
    memcpy(uuid, k.digest, 16);
    XXH3_freeState(x);
}

static int targets_load(struct mgr_core *c)
{
    const enum mgr_stmt st = MGR_ST_TARGET_LIST;
    size_t have = 0;
    int rc;

    for (rc = mgr_db_one(&c->db, TARGET_LIST); rc > 0; rc = mgr_db_step(&c->db, st)) {
        uint32_t id = (uint32_t)mgr_col(&c->db, st, 0);
        struct mgr_target *t = mgr_target_find(c, id);
        const void *uuid;
        size_t len;

        t = t ? t : target_add(c, id, mgr_col_text(&c->db, st, 1));
        if (!t) {
            mgr_db_reset(&c->db, st);
            return -ENOMEM;
        }
        uuid = mgr_col_blob(&c->db, st, 2, &len);
        t->made = len == sizeof t->uuid;
        if (t->made)
            memcpy(t->uuid, uuid, len);
        else
            mgr_target_mark(c, t, t->uuid);
        t->unmarked = t->made && fp_target_is_unmarked(t->uuid);
        t->swept |= t->unmarked;
        t->needs = (uint64_t)mgr_col(&c->db, st, 3);
        have++;
    }
    while (rc == 0 && c->drain->ntargets > have) /* made in a group that failed: the newest */
        free(c->drain->targets[--c->drain->ntargets].root);
    return rc;
}

/* a is b, or lies below it. */
static bool is_below(const char *a, const char *b)
{
    size_t len = strlen(b);

    return strncmp(a, b, len) == 0 && (a[len] == '\0' || a[len] == '/');
}

const char *mgr_target_clash(const struct mgr_core *c, const char *root)
{
    for (size_t i = 0; i < c->drain->ntargets; i++) {
        const char *other = c->drain->targets[i].root;

        if (strcmp(other, root) != 0 && !c->drain->targets[i].unmarked && mgr_target_used(c, &c->drain->targets[i]) && (is_below(root, other) || is_below(other, root)))
            return other;
    }
    return NULL;
}

int mgr_target_get(struct mgr_core *c, const char *root, uint32_t *id)
{
    struct mgr_drain *d = c->drain;
    struct mgr_target *t;

    for (size_t i = 0; i < d->ntargets; i++) {
        *id = d->targets[i].id;
        if (strcmp(d->targets[i].root, root) == 0)
            return 0;
    }
    *id = d->ntargets ? d->targets[d->ntargets - 1].id + 1 : 1;
    t = target_add(c, *id, root);
    if (!t)
        return mgr_doom(c, -ENOMEM);
    mgr_target_mark(c, t, t->uuid);
    return mgr_db_exec(&c->db, TARGET_PUT, DBI(*id), DBT(root), DBB("", 0));
}

int mgr_target_made(struct mgr_core *c, struct mgr_target *t, const uint8_t uuid[16])
{
    memcpy(t->uuid, uuid, sizeof t->uuid);
    t->made = true;
    t->unmarked = fp_target_is_unmarked(uuid);
    t->swept = t->unmarked; /* there is nothing of ours */
    t->sweep_ms = 0;
    return mgr_db_exec(&c->db, TARGET_PUT, DBI(t->id), DBT(t->root), DBB(t->uuid, sizeof t->uuid));
}

/* ---------------------------------------------------------------- attempts */

static int gen_load(struct mgr_core *c)
{
    int rc = mgr_db_one(&c->db, META_GET, DBT("drain_gen"));

    c->drain->gen_next = rc > 0 ? (uint64_t)mgr_col(&c->db, MGR_ST_META_GET, 0) : 1;
    c->drain->gen_end = c->drain->gen_next;
    mgr_db_reset(&c->db, MGR_ST_META_GET);
    return rc < 0 ? rc : 0;
}

int mgr_drain_gen(struct mgr_core *c, uint64_t *gen)
{
    struct mgr_drain *d = c->drain;
    int rc = 0;

    if (d->gen_next == d->gen_end) {
        rc = mgr_db_exec(&c->db, META_PUT, DBT("drain_gen"), DBI(d->gen_end + GEN_BLOCK));
        d->gen_end += GEN_BLOCK;
        c->new_number = true; /* never a second time: by it benefactors know what they have done */
    }
    *gen = d->gen_next++;
    return rc;
}

/* ---------------------------------------------------------------- jobs */

static char *text_of(struct mgr_core *c, enum mgr_stmt st, int col)
{
    size_t len;
    const char *p = mgr_col_blob(&c->db, st, col, &len);

    return strndup(len ? p : "", len);
}

int mgr_djob_row(struct mgr_core *c, enum mgr_stmt st, struct mgr_djob *j)
{
    const struct mgr_db *db = &c->db;

    *j = (struct mgr_djob){.id = (uint64_t)mgr_col(db, st, 0),
                           .kind = (uint32_t)mgr_col(db, st, 1),
                           .policy = (uint64_t)mgr_col(db, st, 2),
                           .target = (uint32_t)mgr_col(db, st, 3),
                           .ckpt = (uint64_t)mgr_col(db, st, 4),
                           .gen = (uint64_t)mgr_col(db, st, 5),
                           .dest = text_of(c, st, 6),
                           .urgent = mgr_col(db, st, 7) != 0,
                           .verify = mgr_col(db, st, 8) != 0,
                           .state = (uint32_t)mgr_col(db, st, 9),
                           .files = (uint64_t)mgr_col(db, st, 10),
                           .bytes = (uint64_t)mgr_col(db, st, 11),
                           .files_done = (uint64_t)mgr_col(db, st, 12),
                           .bytes_done = (uint64_t)mgr_col(db, st, 13),
                           .made_ns = mgr_col(db, st, 14),
                           .done_ns = mgr_col(db, st, 15),
                           .error = (int)mgr_col(db, st, 16),
                           .why = text_of(c, st, 17),
                           .first = (uint64_t)mgr_col(db, st, 18),
                           .layout = (uint32_t)mgr_col(db, st, 19),
                           .overwrite = mgr_col(db, st, 20) != 0,
                           .again = mgr_col(db, st, 21) != 0,
                           .replaced = (uint64_t)mgr_col(db, st, 22)};
    if (j->dest && j->why)
        return 0;
    mgr_djob_fini(j);
    return -ENOMEM;
}

static int job_add(struct mgr_core *c, struct mgr_djob *j)
{
    struct mgr_drain *d = c->drain;
    struct mgr_djob *list = fp_grown(d->jobs, d->njobs, &d->jobs_cap, sizeof *list);

    if (!list) {
        mgr_djob_fini(j);
        return -ENOMEM;
    }
    d->jobs = list;
    d->jobs[d->njobs++] = *j;
    return 0;
}

int mgr_djob_put(struct mgr_core *c, const struct mgr_djob *j)
{
    return mgr_db_exec(&c->db, DJOB_PUT, DBI(j->id), DBI(j->kind), DBI(j->policy), DBI(j->target), DBI(j->ckpt), DBI(j->gen),
                       DBB(j->dest, strlen(j->dest)), DBI(j->urgent), DBI(j->verify), DBI(j->state), DBI(j->files), DBI(j->bytes), DBI(j->files_done),
                       DBI(j->bytes_done), DBI(j->made_ns), DBI(j->done_ns), DBI(j->error), DBT(j->why), DBI(j->first), DBI(j->layout), DBI(j->overwrite),
                       DBI(j->again), DBI(j->replaced));
}

int mgr_djob_new(struct mgr_core *c, struct mgr_djob *j)
{
    int rc = mgr_db_one(&c->db, DJOB_LAST);

    if (rc > 0)
        j->id = (uint64_t)mgr_col(&c->db, MGR_ST_DJOB_LAST, 0) + 1;
    mgr_db_reset(&c->db, MGR_ST_DJOB_LAST);
    if (rc < 0 || !j->dest || !j->why) {
        mgr_djob_fini(j);
        return rc < 0 ? rc : mgr_doom(c, -ENOMEM);
    }
    j->made_ns = c->now.ns;
    c->drain->dirty = true;
    if (job_add(c, j))
        return mgr_doom(c, -ENOMEM);
    return mgr_djob_put(c, j);
}

void mgr_djob_remove(struct mgr_core *c, struct mgr_djob *j)
{
    struct mgr_drain *d = c->drain;
    size_t i = (size_t)(j - d->jobs);

    mgr_djob_fini(j);
    memmove(j, j + 1, (--d->njobs - i) * sizeof *j); /* their order counts */
}

/* ---------------------------------------------------------------- files */

int mgr_dfile_new(struct mgr_core *c, struct mgr_djob *j, uint64_t ino, uint64_t size, enum mgr_dkind kind, const void *path, size_t len)
{
    int rc = mgr_db_exec(&c->db, DFILE_NEW, DBI(j->id), DBI(ino), DBB(len ? path : "", len), DBI(size), DBI(kind),
                         DBI(kind == MGR_K_DIR)); /* the root has an empty path */

    if (!rc && (uint64_t)sqlite3_last_insert_rowid(c->db.sq) > MGR_TASK_FILE_MAX)
        rc = mgr_doom(c, -EOVERFLOW);
    c->drain->dirty = true;
    return rc;
}

int mgr_dfile_put(struct mgr_core *c, const struct mgr_dfile *f, int error, const char *why)
{
    return mgr_db_exec(&c->db, DFILE_SET, DBI(f->id), DBI(f->gen), DBI(f->state), DBI(f->version), DBI(f->size), DBI(f->lead), DBI(f->tfile), DBI(f->dev),
                       DBI(f->tino), DBI(f->tries), DBI(error), DBT(why ? why : ""));
}

int mgr_dfile_path(struct mgr_core *c, uint64_t id, ProtobufCBinaryData *path)
{
    const void *p;
    int rc = mgr_db_one(&c->db, DFILE_PATH, DBI(id));

    if (rc <= 0)
        return rc ? rc : -ENOENT;
    p = mgr_col_blob(&c->db, MGR_ST_DFILE_PATH, 0, &path->len);
    path->data = mgr_arena_copy(&c->arena, path->len ? p : "", path->len ? path->len : 1);
    mgr_db_reset(&c->db, MGR_ST_DFILE_PATH);
    return path->data ? 0 : mgr_doom(c, -ENOMEM);
}

void mgr_dfile_row(struct mgr_core *c, enum mgr_stmt st, const struct mgr_djob *j, struct mgr_dfile *f)
{
    const struct mgr_db *db = &c->db;

    *f = (struct mgr_dfile){.id = (uint64_t)mgr_col(db, st, 0),
                            .job = (uint64_t)mgr_col(db, st, 1),
                            .ino = (uint64_t)mgr_col(db, st, 2),
                            .gen = (uint64_t)mgr_col(db, st, 3),
                            .state = (uint32_t)mgr_col(db, st, 4),
                            .version = (uint64_t)mgr_col(db, st, 5),
                            .size = (uint64_t)mgr_col(db, st, 6),
                            .lead = (uint32_t)mgr_col(db, st, 7),
                            .tfile = (uint64_t)mgr_col(db, st, 8),
                            .dev = (uint64_t)mgr_col(db, st, 9),
                            .tino = (uint64_t)mgr_col(db, st, 10),
                            .tries = (uint32_t)mgr_col(db, st, 11),
                            .kind = (uint32_t)mgr_col(db, st, 12),
                            .parent = (uint64_t)mgr_col(db, st, 13),
                            .target = j->target,
                            .verify = j->verify,
                            .urgent = j->urgent};
}

struct mgr_dfile *mgr_dfile_add(struct mgr_core *c, const struct mgr_dfile *f)
{
    struct mgr_drain *d = c->drain;
    struct mgr_dfile *list = fp_grown(d->files, d->nfiles, &d->files_cap, sizeof *list);

    if (!list) {
        mgr_doom(c, -ENOMEM);
        return NULL;
    }
    d->files = list;
    d->files[d->nfiles] = *f;
    return &d->files[d->nfiles++];
}

void mgr_dfile_remove(struct mgr_core *c, struct mgr_dfile *f)
{
    struct mgr_drain *d = c->drain;

    *f = d->files[--d->nfiles];
}

int mgr_dparts_drop(struct mgr_core *c, uint64_t file, uint32_t max, bool *left)
{
    int rc = mgr_db_exec(&c->db, DPART_DROP, DBI(file), DBI(max));

    *left = !rc && sqlite3_changes(c->db.sq) >= (int)max;
    return rc;
}

/* ---------------------------------------------------------------- at the start */

static int jobs_load(struct mgr_core *c)
{
    const enum mgr_stmt st = MGR_ST_DJOB_ACTIVE;
    struct mgr_djob j;
    int rc;

    for (rc = mgr_db_one(&c->db, DJOB_ACTIVE); rc > 0; rc = mgr_db_step(&c->db, st)) {
        if (!mgr_djob_row(c, st, &j) && !job_add(c, &j))
            continue;
        mgr_db_reset(&c->db, st);
        return -ENOMEM;
    }
    return rc;
}

static int files_load(struct mgr_core *c, const struct mgr_djob *j)
{
    const enum mgr_stmt st = MGR_ST_DFILE_ACTIVE;
    struct mgr_dfile f;
    Fp__ExtFile *x;
    bool gone;
    int rc;

    for (rc = mgr_db_one(&c->db, DFILE_ACTIVE, DBI(j->id)); rc > 0; rc = mgr_db_step(&c->db, st)) {
        mgr_dfile_row(c, st, j, &f);
        if (!f.target && f.tfile && mgr_tfile_get(c, f.tfile, &x, &gone) == 0)
            f.target = x->target; /* each has its own */
        if (f.state == MGR_D_PARTS || f.state == MGR_D_VERIFY)
            f.ready_ms = c->now.ms ? c->now.ms : 1; /* perhaps: it is looked at */
        if (mgr_dfile_add(c, &f))
            continue;
        mgr_db_reset(&c->db, st);
        return -ENOMEM;
    }
    return rc;
}

int mgr_drain_load(struct mgr_core *c)
{
    struct mgr_drain *d = c->drain;
    int rc;

    forget(d);
    mgr_surveys_free(&d->surveys);
    d->ids_next = d->ids_end = 0;
    rc = targets_load(c);
    rc = rc ? rc : gen_load(c);
    rc = rc ? rc : mgr_policies_load(c);
    rc = rc ? rc : jobs_load(c);
    for (size_t i = 0; i < d->njobs && !rc; i++)
        rc = files_load(c, &d->jobs[i]);
    for (size_t i = 0; i < d->nof; i++)
        d->of[i].look = true;
    d->dirty = d->leftover = d->prune = true;
    d->leftover_file = 0;
    return rc;
}
