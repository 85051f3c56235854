/* Staging in what others have put into a target (docs/PROTOCOL.md, "Foreign files"): jobs of kind JOB_FOREIGN.
 *
 * All functions are of the core's thread and of a group, but the two that say so. */
#ifndef MGR_FOREIGN_H
#define MGR_FOREIGN_H

#include "manager/drain.h"

static inline bool mgr_djob_foreign(const struct mgr_djob *j)
{
    return j && j->kind == FP__JOB_KIND__JOB_FOREIGN;
}
static inline bool mgr_dfile_foreign(struct mgr_core *c, const struct mgr_dfile *f)
{
    return mgr_djob_foreign(mgr_djob_find(c, f->job));
}

/* Logs of a target that become files in it (merge.c). */
static inline bool mgr_djob_merges(const struct mgr_djob *j)
{
    return j && j->kind == FP__JOB_KIND__JOB_MERGE;
}
static inline bool mgr_dfile_merges(struct mgr_core *c, const struct mgr_dfile *f)
{
    return mgr_djob_merges(mgr_djob_find(c, f->job));
}
/* Either: each part is given to whoever has least to do, and has an attempt of its own. */
static inline bool mgr_dfile_shared(struct mgr_core *c, const struct mgr_dfile *f)
{
    return mgr_dfile_foreign(c, f) || mgr_dfile_merges(c, f);
}

/* ---------------------------------------------------------------- foreign.c: jobs, listing, names */

/* Is there such a job? Then it makes names in the store. */
bool mgr_foreign_any(const struct mgr_core *c);
/* What fpctl asks; r says why not. */
int mgr_foreign_start(struct mgr_core *c, const Fp__CtlStage *m, Fp__CtlStageReply *r);
/* From / on, without doubled slashes and one at its end, in memory of the group; false: r says what is wrong with it. */
int mgr_stage_path(struct mgr_core *c, Fp__CtlStageReply *r, ProtobufCBinaryData in, ProtobufCBinaryData *out);
/* The target that has the path, which is then told from its root on; NULL: none. */
const struct mgr_target *mgr_target_of(const struct mgr_core *c, ProtobufCBinaryData *path);
/* drain_file.after, in memory of the group: the last name of a directory that has become a row; of a log, the file that it becomes, from the target's root on. */
int mgr_dfile_after(struct mgr_core *c, const struct mgr_dfile *f, ProtobufCBinaryData *after);
/* A row that waits is taken up. 1; 0: not yet; or a failure. */
int mgr_foreign_begin(struct mgr_core *c, struct mgr_dfile *f);
/* A mount has ended what kept names from being made. */
void mgr_foreign_may_name(struct mgr_core *c);
/* Is it to be listed now? After the COMMIT. */
bool mgr_foreign_lists(const struct mgr_core *c, const struct mgr_dfile *f);
/* The LIST of a row. NULL: it can't be said. After the COMMIT. */
Fp__Task *mgr_foreign_list_task(struct mgr_core *c, const struct mgr_dfile *f);
/* What came of it. f may not be valid any more afterwards. */
int mgr_foreign_listed(struct mgr_core *c, struct mgr_dfile *f, const Fp__TaskResult *r);
/* All of its data is here: it gets its name, unless names can't be made in this moment. f may not be valid any more afterwards. */
int mgr_foreign_publish(struct mgr_core *c, struct mgr_dfile *f);
/* Its attempt is over: what was made for it goes. */
int mgr_foreign_over(struct mgr_core *c, struct mgr_dfile *f);

/* ---------------------------------------------------------------- foreign_left.c: attributes, and what is left out */

/* drain_file.error of a row in MGR_D_LEFT; in that of a job that evicts it is -EBUSY. */
enum mgr_left { MGR_LEFT_SPECIAL = 1, MGR_LEFT_NAMES, MGR_LEFT_ATTRS };

/* This path of the job does not come, or not as it is. */
int mgr_foreign_left(struct mgr_core *c, uint64_t job, ProtobufCBinaryData path, enum mgr_left what);
/* Attributes of what has just got this inode; those that can't come count as left out. */
int mgr_foreign_attrs(struct mgr_core *c, const struct mgr_dfile *f, uint64_t ino, const Fp__ListEntry *e, ProtobufCBinaryData path);
/* What was left out of the job, for people; empty: nothing. */
int mgr_foreign_left_text(struct mgr_core *c, uint64_t job, char line[MGR_LEFT_LINE]);

/* ---------------------------------------------------------------- foreign_part.c: data */

#define MGR_FOREIGN_TRIES 10u

/* What has become possible: parts, names. */
int mgr_foreign_step(struct mgr_core *c);
/* The task of this number and attempt; NULL: it is not to be done (any more). After the COMMIT. */
Fp__Task *mgr_foreign_task(struct mgr_core *c, uint32_t bnf, const struct mgr_dfile *f, uint64_t id, uint64_t gen);
/* Is this one, which the benefactor was told, still to be done? After the COMMIT. */
bool mgr_foreign_is_on(struct mgr_core *c, uint32_t bnf, const struct mgr_dfile *f, uint64_t id, uint64_t gen);
/* f: NULL if there is no such file any more. */
int mgr_foreign_result(struct mgr_core *c, const struct mgr_bnf *b, struct mgr_dfile *f, const Fp__TaskResult *r);
/* Numbers of chunks that no session gives: *first and the n - 1 after it, never given again. */
int mgr_stage_ids(struct mgr_core *c, uint64_t n, uint64_t *first);
/* A benefactor has a chunk of a number that we have given out, and the table does not have it. */
int mgr_foreign_stray(struct mgr_core *c, struct mgr_bnf *b, uint64_t chunk);

/* What benefactors have to do of parts that are shared out. */
struct mgr_part_load {
    uint64_t bytes;
    uint32_t parts;
};
#define MGR_PARTS_STEP 256u /* parts that one group makes */
#define MGR_SHARE_BYTES (16u << 20) /* of one, about */
#define MGR_SHARE_WINDOWS 1024u
/* *full: somebody would do it, but none of them has room. 0: nobody now. */
uint32_t mgr_part_choose(struct mgr_core *c, const struct mgr_dfile *f, const struct mgr_part_load *l, uint64_t bytes, bool *full);
/* It is this benefactor's, and counted in l. */
int mgr_part_put(struct mgr_core *c, const struct mgr_dfile *f, uint64_t first, uint64_t count, uint32_t bnf, uint64_t bytes, struct mgr_part_load *l);
/* Windows below are given out. */
int mgr_part_next(struct mgr_core *c, const struct mgr_dfile *f, uint64_t *next);
/* Are all that were given out done? 1, 0, or a failure. */
int mgr_parts_done(struct mgr_core *c, struct mgr_dfile *f);

/* ---------------------------------------------------------------- merge.c */

struct mgr_merge_part {
    uint64_t first, count, gen, bytes;
};
/* As their namesakes of foreign.c. */
int mgr_merge_start(struct mgr_core *c, const Fp__CtlStage *m, Fp__CtlStageReply *r);
int mgr_merge_begin(struct mgr_core *c, struct mgr_dfile *f);
/* More of it is given out, or it is finished. *made: parts of this group. f may not be valid any more afterwards. */
int mgr_merge_step(struct mgr_core *c, struct mgr_dfile *f, struct mgr_part_load *l, uint32_t *made);
/* p: NULL is PREPARE or FINISH. After the COMMIT. */
Fp__Task *mgr_merge_task(struct mgr_core *c, const struct mgr_dfile *f, uint64_t id, const struct mgr_merge_part *p);
int mgr_merge_part_result(struct mgr_core *c, const struct mgr_bnf *b, struct mgr_dfile *f, const struct mgr_merge_part *p, const Fp__TaskResult *r);
int mgr_merge_whole_result(struct mgr_core *c, struct mgr_dfile *f, const Fp__TaskResult *r);

#endif
