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

/* ---------------------------------------------------------------- foreign.c: jobs, listing, names */

/* Is there such a job? Then it makes names in the store. */
bool mgr_foreign_any(const struct mgr_core *c);
/* What fpctl asks; r says why not. */
int mgr_foreign_start(struct mgr_core *c, const Fp__CtlStage *m, Fp__CtlStageReply *r);
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

/* drain_file.error of a row in MGR_D_LEFT. */
enum mgr_left { MGR_LEFT_SPECIAL = 1, MGR_LEFT_NAMES, MGR_LEFT_ATTRS };

#define MGR_LEFT_LINE 1000u

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
/* A benefactor has a chunk of a number that we have given out, and the table does not have it. */
int mgr_foreign_stray(struct mgr_core *c, struct mgr_bnf *b, uint64_t chunk);

#endif
