/* Draining: copies of files in a target, a directory of a file system that is not ours (docs/PROTOCOL.md, "Draining").
 *
 * A job has files, a file that is worked on has parts, and each part is the work of one benefactor. What has been decided and what is done is
 * in the database, each step one transaction; what has been told to benefactors is in memory, and told again when it is lost:
 *
 *     wait -> prepare -> parts (write) -> [verify] -> finish -> done
 *       prepare: one benefactor, the lead, makes the temporary file; then the file is cut into parts
 *       finish:  the lead sets what belongs to the file and renames it
 *
 * An attempt at a file has a number (gen) that is never used twice, and the temporary file's name has it: whatever somebody does late for an
 * attempt that is over, he does to a file that nobody will rename. All functions are of the core's thread and, but for the pump, of a group. */
#ifndef MGR_DRAIN_H
#define MGR_DRAIN_H

#include "fp/drainopt.h"
#include "life.pb-c.h"
#include "manager/core_int.h"
#include "manager/idmap.h"
#include "manager/survey.h"

struct mgr_set;

/* drain_file.state. One in PREPARE that has an inode is being cut into parts; one that has a tfile is looked for there first. */
enum mgr_dstate { MGR_D_WAIT = 1, MGR_D_PREPARE, MGR_D_PARTS, MGR_D_FINISH, MGR_D_VERIFY, MGR_D_DONE, MGR_D_FAILED, MGR_D_CANCELLED, MGR_D_DIR, MGR_D_LEFT };
/* drain_file.kind */
enum mgr_dkind { MGR_K_FILE, MGR_K_DIR, MGR_K_LINK };
/* drain_part.state */
enum mgr_pstate { MGR_P_TODO = 1, MGR_P_GIVEN, MGR_P_DONE, MGR_P_VERIFIED };

#define MGR_LEFT_LINE    1000u /* what is left out of a job, or stays, for people */
#define MGR_QUIET_NS     (2 * INT64_C(1000000000)) /* since the last change of a file */
#define MGR_PART_WINDOWS 64u
#define MGR_PART_BYTES   (64u << 20)
#define MGR_PART_SLICES  4096u
#define MGR_PLAN_STEP    16384u /* slices that one group plans */
#define MGR_OPEN_MAX     64u    /* tasks that a benefactor has for one target */
#define MGR_POLICIES_MAX 256u
#define MGR_PATTERNS_MAX 64u   /* of all policies */
#define MGR_JOBS_KEPT    256u   /* so many newest ones keep their rows when they are over; and those by which --failed finds a set */
#define MGR_TRIES_MAX    10u    /* attempts that end by a failure of ours */

/* A task's number: file << 30 | window << 1 | 1 if it verifies. Windows from MGR_TASK_WINDOWS on stand for the tasks of a whole file. */
#define MGR_TASK_WINDOWS  ((UINT64_C(1) << 29) - 16)
#define MGR_TASK_PREPARE  ((UINT64_C(1) << 29) - 1)
#define MGR_TASK_FINISH   ((UINT64_C(1) << 29) - 2)
#define MGR_TASK_CLEAN    ((UINT64_C(1) << 29) - 3)
#define MGR_TASK_STAT     ((UINT64_C(1) << 29) - 4)
#define MGR_TASK_FETCH    ((UINT64_C(1) << 29) - 5)
#define MGR_TASK_LOOK     ((UINT64_C(1) << 29) - 6) /* of a tfile, in place of a file: look.c */
#define MGR_TASK_LIST     ((UINT64_C(1) << 29) - 7)
#define MGR_TASK_FILE_MAX ((UINT64_C(1) << 34) - 1)
static inline uint64_t mgr_task_id(uint64_t file, uint64_t window, bool verify)
{
    return file << 30 | window << 1 | verify;
}

struct mgr_target {
    uint32_t id;
    char *root;
    uint8_t uuid[16];
    bool made;   /* the marker is there: its uuid has been heard */
    bool unmarked; /* … or nothing can be written there: what is in it may be staged in, and nothing else (fp/targetid.h) */
    uint64_t needs;    /* number by which it is said there that we rely on files (needs.c); 0: on none */
    uint64_t needs_ms; /* when to look whether that is still so */
    bool swept;        /* temporary files that nobody knows have been looked for, since our start: before, nothing is renamed */
    uint64_t sweep_ms; /* when to do so again */
    uint64_t probe_ms; /* not made: when to try again */
    uint32_t prober;   /* … and who has been told to last; 0: nobody */
    uint64_t tried_ms; /* … somebody asks whether it can be used: until then */
    uint32_t left;     /* … and so many have not said since he began to */
    uint64_t asked_ms; /* somebody waits for it since: if it takes nothing it is tried at once; 0: nobody */
    uint64_t busy_ms, busy_bytes; /* what it took while there was something to drain, of late */
    uint64_t new_bytes;           /* drained since the last look */
};

/* Of an active job. */
struct mgr_djob {
    uint64_t id;
    uint32_t kind, state, target;
    uint64_t policy, ckpt, gen;
    char *dest; /* malloc'd */
    bool urgent, verify;
    bool overwrite;  /* also what other stores need */
    bool again;      /* also what is there already */
    uint32_t layout; /* enum fp_drain_layout */
    uint64_t files, bytes, files_done, bytes_done;
    uint64_t replaced; /* files of the target that another store had drained */
    int64_t made_ns, done_ns;
    int error;
    char *why;        /* malloc'd */
    uint64_t first;   /* drain_file with which it began: its path says what it is */
    uint64_t skipped; /* of files that wait: those up to here were looked at, and had to wait longer */
    uint64_t rate;    /* bytes/s, as of a moment ago (progress.c) */
    uint64_t rate_ms, rate_bytes; /* when it was measured last, and bytes_done then; 0: never */
};

/* Why a chunk is not evicted: others share it, an aux-app has coded it, the file has a part of it only. */
enum mgr_stay { MGR_STAY_SHARED, MGR_STAY_CODED, MGR_STAY_PART, MGR_STAYS };

/* A file that is worked on. */
struct mgr_dfile {
    uint64_t id, job, ino, gen, version, size, tfile, dev, tino;
    uint32_t state, lead, tries, target, kind;
    bool verify, urgent;
    uint64_t low;         /* parts of windows below are done with the present state */
    uint64_t away_ms;     /* its lead is away since; 0: it is not */
    bool stale;           /* found after a group: the file has changed, so this attempt is over */
    uint64_t where;       /* a sum of its path in the target; 0: not made yet */
    uint64_t parent;      /* staged in from others: as in its row */
    uint64_t ready_ms;    /* all of it is written, and it waits since then to take the name (MGR_BLOCKS_WAIT); 0: not so */
    uint64_t at_ms;       /* of a job that stages: nothing new of it is told before */
    bool held;            /* staged in from others: it was listed, when no name could be made */
    uint64_t full_ms, way; /* likewise: since when there is no room for it, and what had given way by then; 0: there is */
    uint64_t stuck;       /* of a job that stages in: the chunk that was the next one when it was told last */
    uint32_t pauses;      /* likewise: and how often it has been told again */
    uint64_t looked_ms;   /* of a job that evicts: when its copy was last found in the target; 0: to be looked for */
    uint64_t gone_bytes, stay_bytes; /* likewise: what it has not here any more, and what it keeps, of windows below low */
    uint32_t stays[MGR_STAYS];       /* chunks that it keeps: enum mgr_stay */
};

struct mgr_open_task {
    uint64_t id, gen;
    uint32_t target;
    bool taken;
    uint64_t sent_ms;
};

/* What a benefactor has been told of how fast a target may be written to. */
struct mgr_paced {
    uint32_t target, mode; /* enum Fp__PaceMode */
    uint64_t rate;         /* bytes/s; 0: no limit */
    uint64_t look;         /* mgr_target.asked_ms */
};

/* What one benefactor has been told, and has told of itself. */
struct mgr_tasker {
    struct mgr_open_task *open;
    size_t count, cap;
    bool calling;    /* a MSG_TASKS is under way */
    uint64_t at_ms;  /* not before */
    bool drains;     /* BnfPrefs.drain */
    uint64_t max_rate; /* … and the rest of it */
    uint32_t threads;
    bool hold;
    bool look;       /* there may be something for it */
    bool fresh;      /* it has said hello: what it was to stage in is given out anew */
    struct mgr_target_seen {
        uint32_t target, code;
        uint64_t rate, queued;
        uint32_t left_behind;
        bool slow, holds;
        uint64_t again_ms; /* when it is looked at again; 0: not by time */
        char why[200];
    } *seen;
    size_t nseen;
    struct mgr_paced *paced; /* since its hello */
    size_t npaced;
};

/* How often sets come, and of how many bytes: sums in which what is older counts less. Zero: nothing is known. */
struct mgr_load {
    uint64_t ms, bytes, weight;
    int64_t last_ns; /* when the last one became complete; 0: there was none */
    uint64_t pause_ms; /* a gap that was left out, since the job had paused */
    uint32_t pause_age; /* … so many sets ago; 0: none was, of late */
};

struct mgr_dpolicy {
    uint32_t every;  /* what every=auto has chosen last; 0: nothing yet */
    bool filling;    /* … since space was short */
    struct mgr_load load;
    uint64_t id, seen, taken; /* sets that have become complete since it was made, and those of them that it has chosen */
    bool mount; /* mounts have made it */
    struct fp_drain_policy p;
};

struct mgr_pattern; /* setpattern.c */

struct mgr_cleaning { /* a temporary file to be removed */
    uint64_t file, gen; /* gen 0: what was said to be needed by the number `file` (needs.c) */
    uint32_t target;
    uint32_t by;     /* the benefactor that has been told; 0: none */
    uint64_t at_ms;  /* since when */
    bool fence;      /* somebody may still rename it: until it is gone nothing else of this target is renamed */
};

/* Sums of a copy's windows (extwin.c). {0} at first, and good for one group. */
struct mgr_extwin_sums {
    const uint8_t *of; /* 8 bytes each, in memory of the group */
    size_t bytes;
    uint64_t ino, tfile;
};

/* A file in a target that somebody is to look at (look.c). */
struct mgr_look {
    uint64_t tfile, gen;
    uint64_t chunk;    /* of which somebody said that it has other bytes there; 0: none */
    uint32_t target;
    uint32_t by;       /* benefactor that was told; 0: nobody */
    uint32_t said;     /* that has not found it as it was; 0: none */
    bool fetch;        /* it is what it was: now the chunk */
    bool marked, unmarked; /* who looks says there that we rely on it; that can't be said there */
    uint64_t at_ms, until_ms;
};

struct mgr_drain {
    struct mgr_djob *jobs; /* active ones, by id */
    size_t njobs, jobs_cap;
    struct mgr_dfile *files;
    size_t nfiles, files_cap;
    struct mgr_target *targets; /* by id */
    size_t ntargets, targets_cap;
    struct mgr_dpolicy *policies; /* by id */
    size_t npolicies;
    struct mgr_pattern *patterns; /* of all of them, in their order */
    size_t npatterns;
    uint64_t policies_gen; /* one more each time that they are loaded */
    bool marks;            /* one of them has marker= or complete=told */
    size_t nfrees;         /* of these: what they drain may be evicted; those with layout=log may not */
    bool catches;          /* one of them wants single files */
    struct mgr_idmap due;  /* rows of drain_due: file -> ms of its last change */
    uint64_t due_ms;
    bool pace;             /* limits, or who they are divided among, may be others than was said */
    uint64_t pace_ms;      /* not before */
    struct mgr_tasker *of; /* index: benefactor - 1 */
    size_t nof;
    struct mgr_cleaning clean[256];
    size_t nclean;
    struct mgr_idmap rescues;   /* files in which what was lost here is to be looked for (rescue.c), and when */
    size_t rescue_pos;
    bool rescue_wins;           /* there may be rows of rescue_win */
    struct mgr_extwin_sums rescue_sums;
    struct mgr_seek {           /* a file that is to be here, of which what is lost is looked for (rescue_file.c) */
        uint64_t ino, win, off; /* ino 0: none */
        uint64_t ms;            /* when somebody came for it */
        const char *why;        /* what was found that can't be had */
    } seeks[16];
    struct mgr_idmap blocked;   /* files of jobs -> benefactor that is away, and has what else is only in what they would replace; good until blocked_ms */
    uint64_t blocked_ms;
    struct mgr_look looks[256];
    size_t nlooks;
    struct mgr_surveys surveys;
    uint64_t gen_next, gen_end; /* reserved in meta up to gen_end */
    uint64_t ids_next, ids_end; /* numbers of chunks that are staged in, likewise; 0: not read yet */
    bool dirty;                 /* something has changed: the end of the group looks */
    bool prune;                 /* there may be rows of jobs that are long over */
    bool leftover;              /* there may be parts of files that are not worked on */
    uint64_t leftover_file;     /* looked at up to here */
    struct {
        uint64_t job, ino;
    } wanted[64];               /* evicted files that are to be drained (drain_in.c), until the end of the step */
    size_t nwanted;
    uint64_t tick_ms;
    uint64_t every_ms;          /* when what targets take was looked at last */
    uint64_t moved;             /* bytes that were drained to files or evicted, since our start: space that may become free by that */
    uint64_t asked_until_ms;    /* a writer has no space */
    uint64_t press_ms;          /* when to look again for what may give way */
    int64_t press_ns;           /* and from where: time and inode of the drained file looked at last */
    uint64_t press_ino;
    struct mgr_map dry;         /* evicted files of which something has stayed that can't go: passed over until dry_ms */
    uint64_t dry_ms;
};

/* ---------------------------------------------------------------- drain_rows.c */

struct mgr_drain *mgr_drain_new(void); /* NULL: out of memory */
void mgr_drain_free(struct mgr_drain *d);
/* Jobs, files that are worked on, targets, as the database has them. */
int mgr_drain_load(struct mgr_core *c);
/* A number that no attempt has had. */
int mgr_drain_gen(struct mgr_core *c, uint64_t *gen);
struct mgr_djob *mgr_djob_find(struct mgr_core *c, uint64_t id);
struct mgr_dfile *mgr_dfile_find(struct mgr_core *c, uint64_t id);
struct mgr_target *mgr_target_find(struct mgr_core *c, uint32_t id);
/* Has somebody been told, not longer ago, to remove a temporary file of this file? The tasks have one number, and the later would take the place of the earlier. */
bool mgr_drain_cleans(const struct mgr_core *c, uint64_t file, uint64_t within_ms);
/* The root of a target that lies in this directory, or above it: the same file would have two names, and a copy that is needed could be replaced. NULL: none. */
const char *mgr_target_clash(const struct mgr_core *c, const char *root);
/* The target of this root, made if need be. */
int mgr_target_get(struct mgr_core *c, const char *root, uint32_t *id);
/* A directory that somebody has named, as the target of a policy; false: why says what is wrong with its path. */
bool mgr_target_parse(const char *root, struct fp_drain_policy *p, char why[FP_DRAIN_WHY_MAX]);
/* What its marker says, or is to say. */
void mgr_target_mark(const struct mgr_core *c, const struct mgr_target *t, uint8_t uuid[16]);
/* uuid: by which it is known from now on. */
int mgr_target_made(struct mgr_core *c, struct mgr_target *t, const uint8_t uuid[16]);
/* Gives it a number and a row. dest, why: taken over, also when it fails. */
int mgr_djob_new(struct mgr_core *c, struct mgr_djob *j);
int mgr_djob_put(struct mgr_core *c, const struct mgr_djob *j);
/* From a row made with MGR_DJOB_COLS; mgr_djob_fini after 0. -ENOMEM. */
int mgr_djob_row(struct mgr_core *c, enum mgr_stmt st, struct mgr_djob *j);
void mgr_djob_fini(struct mgr_djob *j);
/* A row in WAIT. The caller counts it in the job, and stores that. Of a directory: its entries become files of the job; its row has version 1 until
 * they have, and in size how far that is. So does one of inode 0, for the files of the job's set. */
int mgr_dfile_new(struct mgr_core *c, struct mgr_djob *j, uint64_t ino, uint64_t size, enum mgr_dkind kind, const void *path, size_t len);
/* From a row made with MGR_DFILE_COLS. */
void mgr_dfile_row(struct mgr_core *c, enum mgr_stmt st, const struct mgr_djob *j, struct mgr_dfile *f);
/* why: NULL is "". */
int mgr_dfile_put(struct mgr_core *c, const struct mgr_dfile *f, int error, const char *why);
/* Path from the job's beginning, in memory of the group. */
int mgr_dfile_path(struct mgr_core *c, uint64_t id, ProtobufCBinaryData *path);
/* It is active no more: its row says why. j is not valid afterwards. */
void mgr_djob_remove(struct mgr_core *c, struct mgr_djob *j);
/* Is worked on from now, or not any more: f is not valid afterwards. */
struct mgr_dfile *mgr_dfile_add(struct mgr_core *c, const struct mgr_dfile *f);
void mgr_dfile_remove(struct mgr_core *c, struct mgr_dfile *f);
struct mgr_tasker *mgr_tasker(struct mgr_core *c, uint32_t bnf); /* NULL: out of memory */
/* Up to max parts of a file; *left: there are more. */
int mgr_dparts_drop(struct mgr_core *c, uint64_t file, uint32_t max, bool *left);

/* ---------------------------------------------------------------- drain_plan.c */

/* Cuts what is not cut yet, as much as a group may. *done: that was all. -EIO: a chunk of it is lost; -ESTALE: it is not the version of the attempt. */
int mgr_drain_plan(struct mgr_core *c, struct mgr_dfile *f, bool *done);

struct mgr_plan_bnf {
    uint32_t bnf;
    uint64_t bytes;
};
/* A run of windows being collected. Zero, but for the limits, at the beginning. */
struct mgr_plan {
    uint32_t windows_max; /* of a part */
    uint64_t first, end;  /* windows; first == end: nothing */
    uint32_t slices;
    struct mgr_plan_bnf *bnf;
    size_t count, cap;
};
static inline uint32_t mgr_plan_windows(uint32_t window_bytes)
{
    uint32_t n = MGR_PART_BYTES / (window_bytes ? window_bytes : 1);

    return n < 1 ? 1 : n > MGR_PART_WINDOWS ? MGR_PART_WINDOWS : n;
}
/* May the next window, of so many slices, be of the same run? */
bool mgr_plan_takes(const struct mgr_plan *p, uint64_t win, uint32_t slices);
/* -ENOMEM. */
int mgr_plan_add(struct mgr_plan *p, uint64_t win, uint32_t bnf, uint32_t bytes);

/* ---------------------------------------------------------------- drain_job.c */

/* Before the COMMIT: what has become possible. */
int mgr_drain_step(struct mgr_core *c);
void mgr_drain_tick(struct mgr_core *c);
/* A result for this attempt has come. All tolerate that it is not due. */
int mgr_drain_looked(struct mgr_core *c, struct mgr_dfile *f, const Fp__TaskResult *r);
int mgr_drain_prepared(struct mgr_core *c, struct mgr_dfile *f, const Fp__TaskResult *r);
int mgr_drain_part_done(struct mgr_core *c, struct mgr_dfile *f, uint32_t bnf, uint64_t first, bool verify, const Fp__TaskResult *r);
int mgr_drain_finished(struct mgr_core *c, struct mgr_dfile *f, const Fp__TaskResult *r);
int mgr_drain_refused(struct mgr_core *c, struct mgr_dfile *f, const Fp__TaskResult *r);
/* This attempt is over, another one follows. */
int mgr_drain_again(struct mgr_core *c, struct mgr_dfile *f);
/* It is taken up for an attempt: a number, a lead, a state. 1; 0: nobody can now; or a failure. */
int mgr_drain_begin(struct mgr_core *c, struct mgr_dfile *f, uint64_t size, enum mgr_dstate state);
int mgr_drain_cancel(struct mgr_core *c, struct mgr_djob *j, int error, const char *why);

/* ---------------------------------------------------------------- drain_auto.c */

void mgr_policies_forget(struct mgr_drain *d);
int mgr_policies_load(struct mgr_core *c);
/* What the policies want a new version of the file to have before the one before it may go; NONE: there is no policy. */
int mgr_policies_level(struct mgr_core *c, const struct mgr_inode *in, Fp__Level *level);
/* Has a policy this target, and what it drains there may be evicted? */
bool mgr_target_has_policy(const struct mgr_core *c, uint32_t target);
/* It has become complete, its row is written; again: with the number that it had. */
int mgr_auto_complete(struct mgr_core *c, const struct mgr_set *s, bool again);
/* Jobs of that set end, cancelled for that reason. */
int mgr_auto_over(struct mgr_core *c, uint64_t set, const char *why);
/* The row of a set without a directory: some more of its files become files of the job. */
int mgr_auto_members(struct mgr_core *c, struct mgr_djob *j, struct mgr_dfile *f);
/* The data or a name of a file has changed, or it was made: a policy may want it when it is closed. in has its number. */
int mgr_auto_touched(struct mgr_core *c, const struct mgr_inode *in);
/* Files that were closed a moment ago become files of jobs. Before mgr_drain_tick, always. */
int mgr_auto_tick(struct mgr_core *c);
/* START of the newest complete set of each series below a directory: numbers of the jobs. -E2BIG: there are more than max; those of so many have begun. */
struct mgr_auto_last {
    uint64_t below;
    uint32_t target;
    uint64_t policy;
    bool verify, urgent, overwrite, again;
    uint32_t layout;
};
int mgr_auto_last(struct mgr_core *c, const struct mgr_auto_last *l, uint64_t *ids, size_t max, size_t *n);
/* START anew of what policies have chosen and what could not be drained, as it is now: numbers of the jobs. -E2BIG: there are more than max, and none was begun. */
int mgr_auto_failed(struct mgr_core *c, uint64_t *ids, size_t max, size_t *n);
/* Removes rows of one job that is long over, or some of them. */
int mgr_auto_prune(struct mgr_core *c);

/* ---------------------------------------------------------------- setpattern.c */

/* Patterns of the policies as they are loaded. */
int mgr_patterns_load(struct mgr_core *c);
void mgr_patterns_forget(struct mgr_drain *d);
size_t mgr_patterns_in(const struct fp_drain_policy *p);
/* Does the set concern the policy: does it match its pattern, or has that none? */
int mgr_pattern_has(struct mgr_core *c, const struct mgr_set *s, const struct mgr_dpolicy *p, bool *yes);

/* ---------------------------------------------------------------- drain_stage.c, and what it shares with drain_job.c */

/* Jobs that do not copy to a target: what they are about is there already. */
static inline bool mgr_djob_stages(const struct mgr_djob *j)
{
    return j && (j->kind == FP__JOB_KIND__JOB_EVICT || j->kind == FP__JOB_KIND__JOB_STAGE_IN || j->kind == FP__JOB_KIND__JOB_FOREIGN ||
                 j->kind == FP__JOB_KIND__JOB_MERGE);
}
/* A chunk has left its benefactor: what is being drained of it is over, unless all of it is written. */
int mgr_drain_chunk_left(struct mgr_core *c, uint64_t chunk);
/* Is somebody told, or about to be told, to rename a file over this one? */
bool mgr_drain_renames_over(struct mgr_core *c, const Fp__ExtFile *x);
/* For some benefactor. */
bool mgr_drain_is_well(struct mgr_core *c, uint32_t target);
/* May nobody who was told to rename in this target do so late? Else nothing is renamed there, and no copy there counts as the only one. */
bool mgr_task_may_rename(const struct mgr_core *c, const struct mgr_target *t);
/* A file of such a job is taken up. 1: something has become of it; 0: not yet; or a failure. */
int mgr_stage_begin(struct mgr_core *c, struct mgr_djob *j, struct mgr_dfile *f, const struct mgr_inode *in);
/* Its copy was looked for in the target. */
int mgr_stage_looked(struct mgr_core *c, struct mgr_dfile *f, const Fp__TaskResult *r);
/* The window of the task that it needs next. */
uint64_t mgr_stage_window(struct mgr_core *c, const struct mgr_dfile *f);
/* Puts into a TASK_FETCH what is to be fetched next. -EIO: nothing. */
int mgr_stage_fill(struct mgr_core *c, const struct mgr_dfile *f, Fp__Task *k);
/* That was done, or not. f may not be valid any more afterwards. */
int mgr_stage_fetched(struct mgr_core *c, struct mgr_dfile *f, const Fp__TaskResult *r);
/* It goes on. f may not be valid any more afterwards. */
int mgr_stage_step(struct mgr_core *c, struct mgr_dfile *f);
/* A file of a job that copies is to be written to its name: are bytes of it, or of another, nowhere but in a target? 1: it has failed by that, and is not
 * valid any more; MGR_BLOCKS_WAIT: they may be, as long as a benefactor is away: f is as it was; 0; or a failure. */
enum { MGR_BLOCKS_WAIT = 2 };
int mgr_stage_blocks(struct mgr_core *c, struct mgr_dfile *f);
/* mgr_ext_only_at for a file of a job that is to get this name, by what was found a moment ago as long as that benefactor is away (mgr_drain.blocked). */
int mgr_drain_only_at(struct mgr_core *c, const struct mgr_dfile *f, ProtobufCBinaryData path, uint64_t ino);
int mgr_drain_fail(struct mgr_core *c, struct mgr_dfile *f, int error, const char *why);
/* A file of a job that evicts stays as it is, and that is no failure unless all do: f is not valid any more. */
int mgr_drain_stays(struct mgr_core *c, struct mgr_dfile *f, const char *why);
/* How many of the job have stayed, and why: "" if none has. */
int mgr_stage_left_text(struct mgr_core *c, uint64_t job, char line[MGR_LEFT_LINE]);
/* The job counts it; the caller removes it from the files that are worked on. */
int mgr_drain_done(struct mgr_core *c, struct mgr_dfile *f);
/* Something that who asked for the job should know, though it has not failed: the first one is kept. */
int mgr_drain_remark(struct mgr_core *c, const struct mgr_dfile *f, const char *why);
int mgr_drain_set_size(struct mgr_core *c, struct mgr_dfile *f, uint64_t size);
int mgr_djob_start(struct mgr_core *c, const Fp__CtlDrain *m, enum _Fp__JobKind kind, Fp__CtlDrainReply *r);

/* ---------------------------------------------------------------- drain_in.c */

/* A file of a job that copies is taken up: what was evicted of it has to be here. *wait: not yet, it is being seen to. 1: it has failed; 0; or a failure. */
int mgr_drain_in(struct mgr_core *c, struct mgr_dfile *f, bool *wait);
/* At the end of a step: jobs for what was asked for. */
int mgr_drain_in_step(struct mgr_core *c);
/* The active job that brings back what this one is to drain; NULL: none. */
struct mgr_djob *mgr_drain_in_job(struct mgr_core *c, uint64_t of);

/* ---------------------------------------------------------------- drain_lead.c */

/* Who has its beginning if the target is well there, else anybody of whom that is true; 0: nobody. *lost: its first chunk is on no benefactor. */
int mgr_drain_choose_lead(struct mgr_core *c, const struct mgr_dfile *f, uint32_t *lead, bool *lost);
/* Somebody whose target is well, else anybody; 0: nobody. */
uint32_t mgr_drain_any_lead(struct mgr_core *c, const struct mgr_dfile *f);
/* Its lead is away for long: another one. */
void mgr_drain_check_lead(struct mgr_core *c, struct mgr_dfile *f);
/* f is to be worked on: *at is it among those that are; NULL: nobody can, not yet. */
int mgr_drain_take(struct mgr_core *c, struct mgr_dfile *f, struct mgr_dfile **at);
/* Another attempt, which its lead begins: 1, or a failure. What an attempt has of its own beside that is the caller's to clear before. */
int mgr_drain_prepare(struct mgr_core *c, struct mgr_dfile *at);
/* Nobody works on it (below), and no part of an attempt before is left: 1; 0: not yet; or a failure. */
int mgr_drain_is_free(struct mgr_core *c, struct mgr_dfile *f);
/* Is this file worked on, or another one that gets the same name: one that has been replaced since? Whoever has been told to rename it may do so late. 1, 0, or a failure. */
int mgr_drain_is_worked_on(struct mgr_core *c, struct mgr_dfile *f);

/* ---------------------------------------------------------------- drain_tree.c */

/* A file, directory or symbolic link of the job, under this name; what is something else is left out. The job's totals grow; the caller stores it. */
int mgr_drain_entry(struct mgr_core *c, struct mgr_djob *j, const struct mgr_inode *in, const void *path, size_t len);
/* Some more entries of a directory become files of the job. */
int mgr_drain_expand(struct mgr_core *c, struct mgr_djob *j, struct mgr_dfile *f);
/* All else of the job is done: its directories get their attributes, some at a time. 1: there are such; 0: none is left; or a failure. */
int mgr_drain_dirs(struct mgr_core *c, struct mgr_djob *j);
/* What PREPARE has to know of a directory or link, FINISH of all: false if it can't be said. */
bool mgr_drain_attr(struct mgr_core *c, Fp__Task *k, const struct mgr_dfile *f, const struct mgr_inode *in);

/* ---------------------------------------------------------------- progress.c */

void mgr_progress_tick(struct mgr_core *c);
/* What is on its way of a set, and how fast: the drain_ fields and `to` of m, in memory of the group. *look: files that may be looked at, fewer afterwards. */
int mgr_progress_set(struct mgr_core *c, const struct mgr_set *s, uint32_t *look, Fp__CkptSet *m);

/* ---------------------------------------------------------------- drain_why.c */

#define MGR_WAITS_MAX 300u
/* Whom or what an active job waits for; "": nobody, or nothing is known of it. */
struct mgr_waits {
    char line[MGR_WAITS_MAX];
    bool goes_on;     /* it may go on for all that: what is counted of it is of now */
    bool other;       /* another job is waited for */
    uint32_t again_s; /* then it is looked at again; 0: not by time */
};
/* Does the target stall, or take long, on a node? Then w says which, and why. */
bool mgr_target_stalls(struct mgr_core *c, uint32_t target, struct mgr_waits *w);
void mgr_djob_waits(struct mgr_core *c, const struct mgr_djob *j, struct mgr_waits *w);

/* ---------------------------------------------------------------- drain_ctl.c, policy.c */

#define MGR_DRAIN_PATHS_MAX 256u /* of a request of fpctl */
/* One more line of why a request is refused. */
int mgr_drain_refuse(struct mgr_core *c, char ***why, size_t *n, const char *fmt, ...) __attribute__((format(printf, 4, 5)));


/* ---------------------------------------------------------------- drain_every.c */

#define MGR_EVERY_TEXT 400u

/* Pure: a set of so many bytes has become complete. */
void mgr_load_add(struct mgr_load *l, uint64_t bytes, int64_t now_ns);
/* Pure: each so many-th set is drained; now: as up to now, 0: nothing is chosen yet; rate: bytes/s that the target takes, 0: not known. */
uint32_t mgr_every_of(uint32_t now, const struct mgr_load *l, uint64_t rate, bool filling);
/* Pure: there was something to drain for so long, and so many bytes of it were. */
void mgr_taken_add(struct mgr_target *t, uint64_t ms, uint64_t bytes);
uint64_t mgr_taken_rate(const struct mgr_target *t); /* bytes/s; 0: not known */
void mgr_every_tick(struct mgr_core *c);
/* Does a policy with every=auto choose this set, which has just become complete (again: with the number that it had)? */
int mgr_every_chooses(struct mgr_core *c, struct mgr_dpolicy *p, const struct mgr_set *s, bool again, bool *yes);
/* What it has chosen, and why. */
const char *mgr_every_text(struct mgr_core *c, const struct mgr_dpolicy *p, char line[MGR_EVERY_TEXT]);

/* ---------------------------------------------------------------- drain_target.c */

/* Somebody uses it, or has; else it is nobody's but for its row. */
bool mgr_target_used(const struct mgr_core *c, const struct mgr_target *t);
/* That, or somebody asks whether it can be used. */
bool mgr_target_wanted(const struct mgr_core *c, const struct mgr_target *t);
/* Is it to be found out whether its marker is there, or can be made? */
bool mgr_target_unknown(const struct mgr_core *c, const struct mgr_target *t);
/* May it have tasks of this file? One that is only read has those of staging in. */
bool mgr_target_takes(struct mgr_core *c, const struct mgr_target *t, const struct mgr_dfile *f);
/* It is asked for, for some seconds. */
void mgr_target_try(struct mgr_core *c, struct mgr_target *t);
/* Do all benefactors that are there say that it is none? line: why. False also if there is none of them. */
bool mgr_target_refused(struct mgr_core *c, uint32_t target, char line[MGR_WAITS_MAX]);
/* Somebody waits for a job: targets of it that take nothing are tried at once, unless that was asked for less than within_ms ago. */
void mgr_djob_asked(struct mgr_core *c, const struct mgr_djob *j, uint64_t within_ms);
/* Is it this one's turn to try it? */
bool mgr_target_tries(struct mgr_core *c, const struct mgr_target *t, const struct mgr_bnf *b);

/* ---------------------------------------------------------------- drain_pace.c */

/* Is less than so many per cent of the store free, by what benefactors say? */
bool mgr_pace_is_filling(const struct mgr_core *c, uint32_t low);

/* What one of so many benefactors at work may write: bytes/s, 0: as much as it can. */
uint64_t mgr_pace_rate(uint64_t node_max, uint64_t on_node, uint64_t job_max, uint64_t in_job);
/* After the COMMIT: what has changed is said. */
void mgr_pace_pump(struct mgr_core *c);
/* It has just been told of tasks. */
void mgr_pace_new(struct mgr_core *c, const struct mgr_bnf *b);
/* What it offers, by its keep-alive; NULL: it says nothing. */
void mgr_pace_heard(struct mgr_tasker *t, const Fp__BnfPrefs *p);
/* Its answer to MSG_BNF_SET; r: NULL if status. */
void mgr_bnf_was_set(const struct mgr_bnf *b, int status, const Fp__BnfSetReply *r);
MGR_HANDLER(ctl_bnf_set);

/* ---------------------------------------------------------------- drained.c */

/* The level that the best of its copies gives a file's present data: LEVEL_NONE (none), LEVEL_DRAINED or LEVEL_VERIFIED. */
Fp__Level mgr_drained_level(struct mgr_core *c, const struct mgr_inode *in);
/* And the copy in this target. */
Fp__Level mgr_drained_level_at(struct mgr_core *c, const struct mgr_inode *in, uint32_t target);
/* Sums of the windows of this copy, 8 bytes each, little-endian, 0: not known; in memory of the group. *bytes 0: there is none of this copy. */
int mgr_drained_sums(struct mgr_core *c, uint64_t ino, uint64_t tfile, const uint8_t **sums, size_t *bytes);
/* *tfile: the copy of its present data that it is best evicted in favour of: the one to keep, if it is such a copy, and the one to avoid only if there is no other; 0: none. */
int mgr_drained_copy(struct mgr_core *c, const struct mgr_inode *in, uint64_t keep, uint64_t avoid, uint64_t *tfile);
/* The file under its name in the target is this data. */
int mgr_drained_put(struct mgr_core *c, struct mgr_dfile *f, const struct mgr_inode *in, const Fp__ExtFile *seen);
/* Was its present data copied to where this file of a job would go, and compared if it is to be? Then f->tfile. 0, or a failure. */
int mgr_drained_is_at(struct mgr_core *c, struct mgr_dfile *f);
/* And is what is there now that copy? 1, 0, or a failure. */
int mgr_drained_is_seen(struct mgr_core *c, const struct mgr_dfile *f, const Fp__ExtFile *seen);
/* dest of its job and its own path: from the target's root, in memory of the group. */
int mgr_drained_path(struct mgr_core *c, const struct mgr_dfile *f, ProtobufCBinaryData *path);
/* Does it become a log in the target (fp/dlog.h)? Then nothing is there that could be read in its place. */
bool mgr_drained_is_log(struct mgr_core *c, const struct mgr_dfile *f);
/* A log's name is longer than the file's: NULL, or why it can't have one, in memory of the group. */
int mgr_drained_log_name(struct mgr_core *c, const struct mgr_dfile *f, const char **why);
/* What its records must have when all parts are written. */
uint64_t mgr_drained_log_bytes(struct mgr_core *c, const struct mgr_dfile *f);
/* The inode goes, or its data is another: only with MGR_DRAINS. */
int mgr_drained_drop(struct mgr_core *c, uint64_t ino);
/* Its copy in one target is not known any more. */
int mgr_drained_drop_at(struct mgr_core *c, uint64_t ino, uint32_t target);
/* A window of it was folded: it has another data_version, and the bytes that it had before. */
int mgr_drained_folded(struct mgr_core *c, const struct mgr_inode *in, uint64_t before);

/* ---------------------------------------------------------------- needs.c */

/* Something is about to be evicted in favour of a file in this target: it has a number from now on. */
int mgr_needs(struct mgr_core *c, uint32_t target);
/* A name that the sweep has found: is it such a one? It goes if it is not that of now. */
bool mgr_needs_swept(struct mgr_core *c, const struct mgr_target *t, const char *name);
/* Who looks at a file there marks it as needed. -ESTALE: nothing is needed there. */
int mgr_needs_mark(struct mgr_core *c, Fp__Task *k, uint32_t target);
/* What a task of a file says of what is needed, by its kind. -ESTALE: it is not to be told now. */
int mgr_needs_fill(struct mgr_core *c, Fp__Task *k, const struct mgr_dfile *f);
/* May something be given up? Then the step does it. */
bool mgr_needs_due(const struct mgr_core *c);
int mgr_needs_step(struct mgr_core *c);
MGR_HANDLER(ctl_release);

/* ---------------------------------------------------------------- drain_task.c */

/* What a benefactor says of itself. */
void mgr_task_info(struct mgr_core *c, const struct mgr_bnf *b, const Fp__BnfInfo *i);
/* It is connected, anew or for the first time; or not any more: it is told everything again. */
void mgr_task_hello(struct mgr_core *c, const struct mgr_bnf *b);
/* Its answer to MSG_TASKS. */
void mgr_tasks_taken(struct mgr_core *c, const struct mgr_bnf *b, int status);
/* After the COMMIT. */
void mgr_task_pump(struct mgr_core *c);
/* The temporary file of an attempt is not needed any more; fence: somebody may have been told to rename it. */
void mgr_task_clean(struct mgr_core *c, const struct mgr_dfile *f, bool fence);
bool mgr_task_clean_has_room(const struct mgr_core *c); /* else the next sweep of the target finds it, if there is one */
/* What it offers, as it has said last: in memory of the group; NULL: nothing, or no memory. */
Fp__BnfPrefs *mgr_task_prefs(struct mgr_core *c, const struct mgr_bnf *b);
/* Is it connected, and does it drain at all? */
bool mgr_task_reaches(struct mgr_core *c, const struct mgr_bnf *b);
/* What it has said of a target; NULL: nothing. */
const struct mgr_target_seen *mgr_task_seen(struct mgr_core *c, const struct mgr_bnf *b, uint32_t target);
/* What it says of one beside its keep-alives. False: that tells nothing of the target. */
bool mgr_task_heard(struct mgr_core *c, const struct mgr_bnf *b, uint32_t target, uint32_t code, const char *why);
/* And the target is well, as far as it has said? */
bool mgr_task_can(struct mgr_core *c, const struct mgr_bnf *b, uint32_t target);
#define MGR_TMP_NAME 64u
#define MGR_TASK_XATTRS_MAX 128u
/* The name of the temporary file of an attempt; with gen 0 of what says that the target is needed, by the number `file` (needs.c). */
void mgr_task_tmp(const struct mgr_core *c, uint64_t file, uint64_t gen, char name[MGR_TMP_NAME]);
/* A task with its target, and no path. NULL: out of memory. */
Fp__Task *mgr_task_new(struct mgr_core *c, Fp__TaskKind kind, uint64_t id, uint64_t gen, const struct mgr_target *t);
/* A task that it has been told; NULL: it has not, or it is over. Valid until the next one is added or removed. */
struct mgr_open_task *mgr_open_find(struct mgr_tasker *t, uint64_t id, uint64_t gen);
void mgr_open_remove(struct mgr_tasker *t, struct mgr_open_task *o);
/* There may be something for any of them. */
void mgr_tasks_look(struct mgr_core *c);

/* ---------------------------------------------------------------- drain_result.c */

MGR_HANDLER(task_done);

/* ---------------------------------------------------------------- drain_ctl.c, policy.c */

MGR_HANDLER(ctl_drain);
MGR_HANDLER(policy);

#endif
