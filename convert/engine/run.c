/*
 * One conversion (engine.h). Called by the command run; one thread, or one for each MPI rank.
 *
 * All that can be known before a byte is written is: the source has its model, blocks are compared with their arrays, names and types with what the output has. Then tile by tile, and only when all
 * is written, closed and synced does the result get its name. Memory is given out once: a quarter each for a tile, for reading what is not to lie in it as it is, for the source, and for the sink.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "convert/buffer.h"
#include "convert/engine/changes.h"
#include "convert/engine/cover.h"
#include "convert/engine/engine.h"
#include "convert/engine/gather.h"
#include "convert/engine/only.h"
#include "convert/engine/plan.h"
#include "convert/engine/result.h"
#include "convert/engine/team.h"
#include "convert/source/npy.h"
#include "fp/err.h"
#include "fp/fault.h"

#define SHARE       4u
#define SLAB_BYTES  (16u << 20) /* of an output that is stored as a whole: more makes it no faster */
#define MEMORY_MIN  (1u << 20)
#define OPEN_TRIES  3u
#define ALIGN_MAX_BYTES (16 << 20)

struct run {
    const struct cv_job *job;
    struct cv_team team;
    struct cv_source *source;
    struct cv_sink *sink;
    uint64_t (*chunk)[CV_RANK_MAX];
    bool *asked;                  /* of each input: it is asked for; NULL: all are */
    bool **wanted;                /* of each dataset: blocks of the inputs that are asked for; NULL: all */
    bool *whole;                  /* of each dataset: no element is missing */
    uint8_t *tile, *scratch;
    size_t tile_bytes, scratch_bytes;
    uint64_t done_bytes, of_bytes;
    struct cv_result result, xdmf;
    bool cut_said;                /* that chunks are not of the shape that the user wants */
    bool had_xdmf;                /* one was there before */
    struct cv_changes changes;    /* of the inputs, since before anything was opened */
};

static struct cv_model *model_of(const struct run *r)
{
    return r->source->model;
}

static int no_memory(struct cv_fail *why)
{
    return cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory");
}

/* ---------------------------------------------------------------- before */

/* File systems over a network may know only since it was opened that a file has been written, which is no change while it is read: then all are opened anew. */
static int open_source(struct run *r, struct cv_fail *why)
{
    struct cv_source_options o = r->job->in;

    o.memory_bytes = r->job->memory_bytes / SHARE;
    for (unsigned n = 1;; n++) {
        int rc = cv_changes_begin(&r->changes, r->job->from, o.paths, o.npaths, why);

        rc = rc ? rc : r->job->from->open(&o, &r->source, why);
        if (rc)
            return rc;
        rc = cv_changes_look(&r->changes, n < OPEN_TRIES ? NULL : why);
        if (rc == 0 || n == OPEN_TRIES)
            return rc;
        r->source->ops->close(r->source);
        r->source = NULL;
        cv_changes_fini(&r->changes);
    }
}

static int choose_blocks(struct run *r, size_t k, struct cv_fail *why)
{
    struct cv_dataset *d = &model_of(r)->datasets[k];

    r->wanted[k] = calloc(d->nblocks + 1, sizeof **r->wanted);
    if (!r->wanted[k])
        return no_memory(why);
    for (size_t b = 0; b < d->nblocks; b++)
        r->wanted[k][b] = r->asked[d->blocks[b].input];
    return cv_only_say_boxes(d, r->wanted[k]) ? no_memory(why) : 0;
}

/* How many dimensions the shape of chunks has that the user wants. */
static unsigned shape_dims(const struct cv_job *j)
{
    unsigned n = 0;

    while (n < CV_RANK_MAX && j->chunk[n])
        n++;
    return n;
}

/* A shape is for arrays that have its dimensions, others have chunks of their own. One that is for none is said: a dump that differs from others of its job is converted all the same. */
static void look_at_shape(const struct run *r)
{
    const struct cv_dataset *d = model_of(r)->datasets;
    unsigned n = r->job->to->chunked ? shape_dims(r->job) : 0;
    char line[CV_NAME_MAX + 200];

    for (size_t k = 0; k < model_of(r)->ndatasets && n; k++)
        n = d[k].rank == n ? 0 : n;
    snprintf(line, sizeof line, "%s: the shape of chunks has %u dimension%s, and no dataset has as many; this one has %u: chunks are chosen as without it", d->name, n, n == 1 ? "" : "s", d->rank);
    if (n && r->job->note && r->team.rank == 0)
        r->job->note(r->job->arg, line);
}

/* Sinks that code chunks have one as it was and one of each step in their share of the memory. */
static size_t most_of_chunk(const struct run *r)
{
    return r->tile_bytes / (1 + r->job->out.shuffle + (r->job->out.codec != CV_CODEC_NONE));
}

static void plan_chunks(struct run *r, size_t k)
{
    const struct cv_dataset *d = &model_of(r)->datasets[k];
    const uint64_t *wanted = shape_dims(r->job) == d->rank ? r->job->chunk : NULL;
    char line[CV_NAME_MAX + 400];
    int n;

    cv_plan_chunk(d, wanted, wanted ? most_of_chunk(r) : r->tile_bytes, r->chunk[k]);
    if (!wanted || !cv_plan_is_cut(d, wanted, r->chunk[k]) || !r->job->note || r->team.rank || r->cut_said)
        return;
    r->cut_said = true;
    n = snprintf(line, sizeof line, "%s: chunks are cut to ", d->name);
    for (unsigned i = 0; i < d->rank; i++)
        n += snprintf(line + n, sizeof line - (size_t)n, "%s%llu", i ? "x" : "", (unsigned long long)r->chunk[k][i]);
    snprintf(line + n, sizeof line - (size_t)n, ": there is memory for chunks of %zu bytes, and those of the shape that is wanted are larger: give more (--memory)", most_of_chunk(r));
    r->job->note(r->job->arg, line);
}

static int look_at(struct run *r, size_t k, struct cv_fail *why)
{
    const struct cv_dataset *d = &model_of(r)->datasets[k];
    uint64_t elements;
    int rc = cv_cover_check(r->source, d, &r->whole[k], why);

    if (rc)
        return rc;
    if (r->job->nonly)
        rc = choose_blocks(r, k, why);
    if (rc == 0 && cv_dataset_elements(d, &elements))
        r->of_bytes += elements * d->type.size_bytes;
    if (rc == 0 && r->job->to->chunked && d->rank)
        plan_chunks(r, k);
    return rc;
}

/* A stream that was cut off, or damaged, is read as far as it goes: who removes dumps must know. */
static void say_left_out(const struct run *r)
{
    const struct cv_attr *a = cv_attrs_find(&model_of(r)->attrs, "fpdump_recovered");

    if (a && a->kind == CV_ATTR_TEXT && r->job->left_out && r->team.rank == 0)
        r->job->left_out(r->job->arg, a->text);
}

static int prepare(struct run *r, struct cv_fail *why)
{
    size_t n;
    int rc;

    r->tile_bytes = r->scratch_bytes = r->job->memory_bytes / SHARE;
    if (r->job->memory_bytes < MEMORY_MIN)
        return cv_fail(why, -EINVAL, NULL, NULL, CV_NO_OFFSET, "%zu bytes of memory are too few: 1MiB at least", r->job->memory_bytes);
    rc = open_source(r, why);
    if (rc == 0 && r->job->nonly)
        rc = cv_only_choose(r->source, r->job->only, r->job->nonly, &r->asked, why);
    if (rc)
        return rc;
    if (cv_sink_settle(r->job->to, model_of(r), r->team.rank == 0 ? r->job->note : NULL, r->job->arg))
        return no_memory(why);
    n = model_of(r)->ndatasets;
    if (n == 0)
        return cv_fail(why, -EINVAL, r->source->ninputs ? r->source->inputs[0].path : NULL, NULL, CV_NO_OFFSET, "there is nothing in it that could be converted");
    look_at_shape(r);
    r->chunk = calloc(n, sizeof *r->chunk);
    r->wanted = calloc(n, sizeof *r->wanted);
    r->whole = calloc(n, sizeof *r->whole);
    r->tile = cv_buffer(r->tile_bytes);
    r->scratch = cv_buffer(r->scratch_bytes);
    if (!r->chunk || !r->wanted || !r->whole || !r->tile || !r->scratch)
        return no_memory(why);
    for (size_t k = 0; k < n && rc == 0; k++)
        rc = look_at(r, k, why);
    say_left_out(r);
    return rc ? rc : cv_sink_check(r->job->to, model_of(r), why);
}

/* Ranks that create other arrays than each other wait for each other for ever, or damage the file: nodes may have the schema in two versions, and see a file that grows at two lengths. */
static int compare_ranks(const struct run *r, struct cv_fail *why)
{
    if (cv_team_same(&r->team, cv_plan_sum(model_of(r), (const uint64_t(*)[CV_RANK_MAX])r->chunk)))
        return 0;
    return cv_fail(why, -EINVAL, NULL, NULL, CV_NO_OFFSET, "the ranks do not agree on what is to be written: the schema and the inputs must be the same for all of them, and not change");
}

/* Ranks that write one file through a library may wait for each other for ever when the disk is full in the midst of a collective call, so what can be known of that is known before: it is not compressed,
 * and there is no room for it. */
static int look_at_room(const struct run *r, struct cv_fail *why)
{
    struct statvfs st;
    char dir[PATH_MAX];

    cv_result_directory(&r->result, dir);
    if (r->team.size == 1 || r->job->out.codec != CV_CODEC_NONE || r->job->nonly || statvfs(dir, &st) < 0 || r->of_bytes / st.f_frsize < st.f_bavail)
        return 0;
    return cv_fail(why, -ENOSPC, r->job->path, NULL, CV_NO_OFFSET, "there is no room for it: %llu bytes, and %llu are free", (unsigned long long)r->of_bytes,
                   (unsigned long long)st.f_bavail * st.f_frsize);
}

/* NAME.xmf for NAME.h5 */
static int xdmf_path(const struct run *r, char path[PATH_MAX], struct cv_fail *why)
{
    size_t n = strlen(r->job->path), end = strlen(r->job->to->ending);

    n -= n > end && strcmp(r->job->path + n - end, r->job->to->ending) == 0 ? end : 0;
    if (snprintf(path, PATH_MAX, "%.*s.xmf", (int)n, r->job->path) >= PATH_MAX)
        return cv_fail(why, -ENAMETOOLONG, r->job->path, NULL, CV_NO_OFFSET, "no room for the name of an XDMF file beside it");
    return 0;
}

static int look_at_name(const struct run *r, const char *path, bool directory, struct cv_fail *why)
{
    const char *const read[] = {r->job->in.schema, r->job->out.schema, r->job->lists[0], r->job->lists[1]};
    struct stat out;
    int rc = r->job->replace ? cv_result_can_replace(path, directory, why) : cv_result_free(path, why);

    if (rc || stat(path, &out) < 0)
        return rc;
    for (size_t i = 0; i < r->source->ninputs && rc == 0; i++)
        rc = cv_result_spares(path, r->source->inputs[i].path, why);
    for (size_t i = 0; i < sizeof read / sizeof *read && rc == 0; i++)
        rc = cv_result_spares(path, read[i], why);
    return rc;
}

/* An XDMF file is a text that names the result. */
static int look_at_text(const struct run *r, struct cv_fail *why)
{
    const char *slash = strrchr(r->job->path, '/'), *wrong;
    char name[NAME_MAX + 2];

    snprintf(name, sizeof name, "/%s", slash ? slash + 1 : r->job->path);
    wrong = cv_name_wrong(name);
    return wrong ? cv_fail(why, -EINVAL, r->job->path, NULL, CV_NO_OFFSET, "an XDMF file can't name it: %s", wrong) : 0;
}

/* Names that are taken are said before the work, and nothing that is read is written over. */
static int look_at_names(const struct run *r, struct cv_fail *why)
{
    char xdmf[PATH_MAX];
    int rc = look_at_name(r, r->job->path, !r->job->to->ending[0], why);

    if (rc || !r->job->xdmf)
        return rc;
    rc = xdmf_path(r, xdmf, why);
    rc = rc ? rc : look_at_text(r, why);
    return rc ? rc : look_at_name(r, xdmf, false, why);
}

/* The result lies beside the dump, so the files of the dump tell what its file system likes; elsewhere it does no harm. */
static size_t align_of(const struct run *r)
{
    size_t like = r->changes.block_bytes;

    return (like & (like - 1)) == 0 && like <= ALIGN_MAX_BYTES ? like : 0;
}

static int create(struct run *r, struct cv_fail *why)
{
    struct cv_sink_options o = r->job->out;
    const char *slash = strrchr(r->job->path, '/');
    int rc = r->team.rank ? 0 : look_at_names(r, why);

    rc = r->team.rank || rc ? rc : cv_result_begin(&r->result, r->job->path, why);
    rc = r->team.rank || rc ? rc : look_at_room(r, why);
    rc = cv_team_agree(&r->team, rc, why);
    if (rc)
        return rc;
    cv_team_share(&r->team, &r->result, sizeof r->result);
    o.memory_bytes = r->job->memory_bytes / SHARE;
    o.align_bytes = align_of(r);
    cv_team_share(&r->team, &o.align_bytes, sizeof o.align_bytes); /* libraries want the same of all ranks, and mounts of nodes may differ */
    o.sparse = r->job->nonly > 0;
    o.parallel = r->team.size > 1;
    o.name = slash ? slash + 1 : r->job->path;
    rc = r->job->to->create(r->result.temporary, model_of(r), (const uint64_t(*)[CV_RANK_MAX])r->chunk, &o, &r->sink, why);
    if (rc == 0 && r->team.rank == 0)
        cv_result_made(&r->result);
    return rc;
}

/* ---------------------------------------------------------------- tiles */

struct tiles {
    uint64_t shape[CV_RANK_MAX], number[CV_RANK_MAX], total;
};

static void count_tiles(const struct run *r, size_t k, struct tiles *t)
{
    const struct cv_dataset *d = &model_of(r)->datasets[k];

    if (r->chunk[k][0])
        memcpy(t->shape, r->chunk[k], sizeof t->shape);
    else if (r->job->to->any_box && r->source->ops->read_box && d->nblocks > 1)
        cv_plan_blocks(d, r->tile_bytes < SLAB_BYTES ? r->tile_bytes : SLAB_BYTES, t->shape);
    else
        cv_plan_slab(d, r->tile_bytes < SLAB_BYTES ? r->tile_bytes : SLAB_BYTES, t->shape);
    t->total = 1;
    for (unsigned i = 0; i < d->rank; i++) {
        t->number[i] = (d->dims[i].size + t->shape[i] - 1) / t->shape[i];
        t->total *= t->number[i];
    }
}

/* Tile n, in the order of the array. */
static void place_tile(const struct cv_dataset *d, const struct tiles *t, uint64_t n, struct cv_box *box)
{
    box->lo[0] = 0; /* of a scalar, which is one element */
    box->count[0] = 1;
    for (unsigned i = d->rank; i-- > 0;) {
        uint64_t at = n % t->number[i];

        n /= t->number[i];
        box->lo[i] = at * t->shape[i];
        box->count[i] = d->dims[i].size - box->lo[i] < t->shape[i] ? d->dims[i].size - box->lo[i] : t->shape[i];
    }
}

static int tell(struct run *r, uint64_t bytes)
{
    r->done_bytes += bytes;
    return r->job->progress ? r->job->progress(r->job->arg, r->done_bytes, r->of_bytes) : 0;
}

/* One tile of this rank (box NULL: it has none this time). */
static int convert_tile(struct run *r, size_t k, struct cv_gather *g, const struct cv_box *box, struct cv_fail *why)
{
    static const uint64_t none[CV_RANK_MAX];
    const struct cv_dataset *d = &model_of(r)->datasets[k];
    uint64_t elements = 0, total = box ? cv_box_elements(box, d->rank) : 0;
    int rc = box ? cv_gather_tile(g, box, r->tile, &elements, why) : 0;
    bool empty = !box || (elements == 0 && (r->chunk[k][0] || (r->job->nonly && d->rank == 0)) && r->team.size == 1); /* what no block has is not written where that reads as the fill value */

    if (rc == 0 && box && elements < total && d->gaps == CV_GAPS_REFUSE && !r->job->nonly && !r->whole[k])
        rc = cv_fail(why, -EINVAL, NULL, d->name, CV_NO_OFFSET, "some of its elements are in no block: a file is missing, or the schema is wrong (gaps: fill in it lets that pass)");
    if (rc == 0 && FP_FAULT_POINT("convert-tile"))
        rc = cv_fail(why, -EIO, NULL, d->name, CV_NO_OFFSET, "a fault, for a test");
    rc = cv_team_agree(&r->team, rc, why);
    if (rc == 0 && (!empty || r->team.size > 1))
        rc = r->job->to->write(r->sink, k, empty ? none : box->lo, empty ? none : box->count, r->tile, why);
    if (rc == 0)
        rc = tell(r, total * d->type.size_bytes);
    return cv_team_agree(&r->team, rc, why); /* a disk may be full for one rank: all leave at the same tile, or some would wait for ever */
}

static int convert_dataset(struct run *r, size_t k, struct cv_fail *why)
{
    const struct cv_dataset *d = &model_of(r)->datasets[k];
    uint64_t each = (uint64_t)r->team.size;
    struct cv_gather *g;
    struct tiles t;
    int rc;

    count_tiles(r, k, &t);
    g = cv_gather_new(r->source, d, r->wanted[k], r->scratch, r->scratch_bytes);
    rc = cv_team_agree(&r->team, g ? 0 : no_memory(why), why);
    for (uint64_t n = 0; n < t.total && rc == 0; n += each) {
        uint64_t mine = n + (uint64_t)r->team.rank;
        struct cv_box box;

        place_tile(d, &t, mine, &box);
        rc = convert_tile(r, k, g, mine < t.total || d->rank == 0 ? &box : NULL, why); /* no count says that a rank has nothing of a scalar: all have it */
    }
    cv_gather_free(g);
    return rc;
}

/* ---------------------------------------------------------------- after */

static int write_xdmf(struct run *r, struct cv_fail *why)
{
    const char *slash = strrchr(r->job->path, '/'), *name = slash ? slash + 1 : r->job->path;
    char path[PATH_MAX];
    int rc = xdmf_path(r, path, why);

    r->had_xdmf = rc == 0 && access(path, F_OK) == 0;
    rc = rc ? rc : cv_result_begin(&r->xdmf, path, why);
    rc = rc ? rc : cv_xdmf_write(r->xdmf.temporary, name, model_of(r), why);
    if (rc == 0)
        cv_result_made(&r->xdmf);
    return rc ? rc : cv_result_name(&r->xdmf, r->job->converted, r->job->of, r->job->replace, why);
}

/* The XDMF file has its name first: whoever waits for the result finds both. If the result gets none, one that is new, or without an old result, goes again. */
static int name_all(struct run *r, struct cv_fail *why)
{
    int rc = 0;

    if (r->team.rank)
        return 0;
    if (r->job->xdmf)
        rc = write_xdmf(r, why);
    if (rc)
        return rc;
    rc = cv_result_name(&r->result, r->job->converted ? r->job->converted : r->job->to->ending[0] ? NULL : "files of ranks", r->job->of, r->job->replace, why);
    if (rc && r->job->xdmf && (!r->had_xdmf || access(r->job->path, F_OK) < 0))
        (void)unlink(r->xdmf.path);
    return rc;
}

static void release(struct run *r)
{
    size_t n = r->source && r->source->model ? model_of(r)->ndatasets : 0;

    for (size_t k = 0; r->wanted && k < n; k++)
        free(r->wanted[k]);
    free(r->wanted);
    free(r->asked);
    cv_changes_fini(&r->changes);
    free(r->whole);
    free(r->chunk);
    free(r->tile);
    free(r->scratch);
    if (r->source)
        r->source->ops->close(r->source);
}

int cv_job_run(const struct cv_job *j, struct cv_fail *why)
{
    struct run r = {.job = j};
    int rc = cv_team_join(&r.team, j->out.parallel, why);

    if (rc)
        return rc;
    rc = cv_team_agree(&r.team, prepare(&r, why), why);
    rc = rc ? rc : compare_ranks(&r, why);
    rc = rc ? rc : cv_team_agree(&r.team, create(&r, why), why);
    for (size_t k = 0; rc == 0 && k < model_of(&r)->ndatasets; k++)
        rc = cv_team_agree(&r.team, convert_dataset(&r, k, why), why);
    if (r.sink && rc == 0) {
        rc = j->to->close(r.sink, why);
        r.sink = NULL;
        if (rc == 0 && r.team.size > 1) /* libraries do not sync what they close, and rank 0 only what its own node has */
            rc = cv_result_sync(&r.result, why);
        rc = rc ? rc : cv_changes_look(&r.changes, why);
    }
    rc = cv_team_agree(&r.team, rc, why);
    if (r.sink)
        j->to->abandon(r.sink);
    rc = rc ? rc : cv_team_agree(&r.team, name_all(&r, why), why);
    if (rc && r.team.rank == 0) {
        cv_result_remove(&r.result);
        cv_result_remove(&r.xdmf);
    }
    cv_result_fini(&r.result);
    cv_result_fini(&r.xdmf);
    release(&r);
    return rc;
}
