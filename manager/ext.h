/* Chunks of which the bytes are in a target (table ext), and files that give theirs back to it (docs/CHECKPOINTS.md, "Evict").
 *
 * A chunk with a row in ext and no benefactor (chunk.bnf = 0) is external: it is read from a file of a target, as that was when the copy was made. One
 * with a row and a benefactor has been fetched, and may go again without a copy. All functions are of the core's thread and of a group. */
#ifndef MGR_EXT_H
#define MGR_EXT_H

#include "manager/drain.h"

/* ---------------------------------------------------------------- evict.c: what may go; no I/O */

struct mgr_evict_fact {
    /* of the chunk */
    uint32_t refs, bnf, len, data; /* as its row */
    uint32_t off, chunk_off, slice_len; /* of the slice that names it */
};
enum mgr_evict_no { MGR_EVICT_OK, MGR_EVICT_GONE, MGR_EVICT_SHARED, MGR_EVICT_CODED, MGR_EVICT_PART };
/* May this chunk be evicted, of a file that may? */
enum mgr_evict_no mgr_evict_chunk(const struct mgr_evict_fact *f);

struct mgr_evict_file {
    Fp__Level level;        /* of its drained copy: LEVEL_NONE, DRAINED, VERIFIED */
    uint32_t opens;         /* by sessions that are known */
    bool unsettled;         /* others may have it open */
    uint32_t set_state;     /* CkptState of its set; CKPT_NONE: of none */
    uint64_t newer;         /* complete sets of its series that are newer */
    uint64_t keep;          /* so many stay */
};
/* NULL: it may; else a line that says why not. *wait: that may be otherwise in a moment. */
const char *mgr_evict_file(const struct mgr_evict_file *f, bool *wait);

/* May this file be evicted now? Then f->tfile and f->target are its copy; else *why says why not, and *wait as above. */
int mgr_evict_may(struct mgr_core *c, const struct mgr_inode *in, struct mgr_dfile *f, const char **why, bool *wait);
/* Some of its chunks go. *done: that was all; *why not NULL: it may not any more; f->looked_ms 0: it is to be looked at in the target again. */
int mgr_evict_step(struct mgr_core *c, struct mgr_dfile *f, bool *done, const char **why);
/* Why f->stay_bytes of it have stayed here. */
#define MGR_EVICT_LINE 320
void mgr_evict_stays(const struct mgr_dfile *f, char line[MGR_EVICT_LINE]);
MGR_HANDLER(ctl_stage);

/* ---------------------------------------------------------------- evict_press.c */

/* Is it time for _press? Any time. */
bool mgr_evict_presses(struct mgr_core *c);
/* Makes a job that evicts, if less is free than should be, and something may go. */
int mgr_evict_press(struct mgr_core *c);
/* Something of this file has stayed, and can't go: it is passed over for a minute. */
void mgr_evict_dry(struct mgr_core *c, uint64_t ino);
/* A program has no space. 0: nothing gives way by itself; else another number whenever something was drained or evicted. */
uint64_t mgr_giving_way(struct mgr_core *c);

/* ---------------------------------------------------------------- ext.c */

int mgr_ext_load(struct mgr_core *c);
/* Target and path of a tfile, the path in memory of the group. -ENOENT. */
int mgr_tfile_get(struct mgr_core *c, uint64_t id, Fp__ExtFile **out, bool *gone);
/* The chunk's bytes are at off of that file, too. */
int mgr_ext_put(struct mgr_core *c, uint64_t chunk, uint64_t tfile, uint64_t off);
/* The chunk goes. */
int mgr_ext_drop(struct mgr_core *c, uint64_t chunk);
/* Is there such a row? 1, 0, or a failure. */
int mgr_ext_has(struct mgr_core *c, uint64_t chunk);
/* Its copy here can't be read, or is missing: it is external from now on; if it is known that its file in the target is gone, what mgr_rescue makes of it. */
int mgr_ext_revert(struct mgr_core *c, const struct mgr_chunk *ch, enum mgr_bad bad, const char *reason);
/* Says in a map where external chunks are. */
int mgr_ext_tell(struct mgr_core *c, Fp__SliceMapReply *r);
/* A benefactor has fetched chunks. */
int mgr_ext_staged(struct mgr_core *c, struct mgr_bnf *b, Fp__Staged *const *s, size_t n, Fp__TaskAck *ack);
/* Somebody could not read it, here or from its target: that is looked at. */
int mgr_ext_bad(struct mgr_core *c, const struct mgr_chunk *ch, const Fp__BadChunk *m);
/* Where in this file of a target it is. 1; 0: it is in none, or another one; or a failure. */
int mgr_ext_where(struct mgr_core *c, uint64_t chunk, uint64_t tfile, uint64_t *off);
/* Is a chunk nowhere but in the file of this name, or not synced where it is, over which a copy of ino is to be renamed? MGR_ONLY_THERE; MGR_ONLY_AWAY: perhaps,
 * *away is a benefactor that should have it, and is not there, or has not said since that it has; 0; or a failure. */
enum { MGR_ONLY_THERE = 1, MGR_ONLY_AWAY = 2 };
int mgr_ext_only_at(struct mgr_core *c, uint32_t target, ProtobufCBinaryData path, uint64_t ino, uint32_t *away);
/* Is a chunk of this file in a target only? */
int mgr_ext_any(struct mgr_core *c, uint64_t ino);
/* Is any of it in a target, whether it is here as well or not? */
int mgr_ext_names(struct mgr_core *c, uint64_t ino);
/* Another file has got this name: what was there before is there no more. */
int mgr_ext_replaced(struct mgr_core *c, uint32_t target, ProtobufCBinaryData path, uint64_t by, const struct mgr_inode *in);
/* It is not what it was: what is only there is damaged. */
int mgr_tfile_gone(struct mgr_core *c, uint64_t tfile);
/* It was found as it was. */
int mgr_tfile_back(struct mgr_core *c, uint64_t tfile);
/* An inventory has a chunk that the table has elsewhere, or external. */
int mgr_ext_found(struct mgr_core *c, struct mgr_bnf *b, const struct mgr_chunk *ch);

/* ---------------------------------------------------------------- extwin.c */

/* Bytes of the file in this window. */
uint32_t mgr_extwin_len(const struct mgr_inode *in, uint64_t win);
/* Of a window in the copy that ino has by its row of drained; 0: it is not known. */
int mgr_extwin_sum(struct mgr_core *c, uint64_t ino, uint64_t tfile, uint64_t win, struct mgr_extwin_sums *s, uint64_t *sum);
/* All of the window is in that file, and nowhere else, from now on. All of it is written, and sum is what was told. */
int mgr_extwin_put(struct mgr_core *c, struct mgr_inode *in, uint64_t win, uint64_t sum, uint64_t tfile);

/* ---------------------------------------------------------------- rescue.c, rescue_win.c, rescue_file.c */

int mgr_rescue_load(struct mgr_core *c);
/* It is lost or damaged where it is, as reason says. 1: it is external from now on, or windows with it are when their copy has been looked at; 0: it is damaged; or a failure. */
int mgr_rescue(struct mgr_core *c, const struct mgr_chunk *ch, enum mgr_bad bad, const char *reason);
/* Likewise of what has a row of ext already, and was read wrong here: it is there, when that has been looked at. */
int mgr_rescue_in(struct mgr_core *c, const struct mgr_chunk *ch, uint64_t tfile, uint64_t off, Fp__ExtFile *file, const char *reason);
/* What of a map, from window win on, is on benefactors that are away, and in a target, is external from now on, or is looked for there (r->rescuing). */
int mgr_rescue_map(struct mgr_core *c, const struct mgr_inode *in, uint64_t win, Fp__SliceMapReply *r);
/* A file is to be brought here: what of it is lost, damaged or away is external from now on, some of it at a time. 0: that was all of it, and *why says if something can't be had, else NULL; or
 * a failure; or one of these: */
#define MGR_RESCUE_MORE  1 /* there is more, in the next group */
#define MGR_RESCUE_LOOKS 2 /* a target has to be looked at before that is known */
int mgr_rescue_file(struct mgr_core *c, uint64_t ino, const char **why);
/* Is it relied on, and has nobody looked at it since? Then it is to be marked. */
bool mgr_rescue_wants(const struct mgr_core *c, uint64_t tfile);
/* It was found as it was, and marked. */
int mgr_rescue_found(struct mgr_core *c, uint64_t tfile);
/* It is known no more, or no copy. */
int mgr_rescue_over(struct mgr_core *c, uint64_t tfile);
/* Is there something for the step to do? */
bool mgr_rescue_due(const struct mgr_core *c);
int mgr_rescue_step(struct mgr_core *c);

/* ---------------------------------------------------------------- look.c */

/* Somebody is to look at it; chunk: that was said to have other bytes there, 0: none. 1; 0: there are too many to look at, or it is known no more; or a failure. */
int mgr_look(struct mgr_core *c, uint64_t tfile, uint64_t chunk);
/* Are fewer than max files of this target being looked at? */
bool mgr_look_has_room(const struct mgr_core *c, uint32_t target, size_t max);
/* This benefactor has not found it as it was. */
int mgr_look_denied(struct mgr_core *c, uint64_t tfile, uint32_t by);
int mgr_look_result(struct mgr_core *c, const struct mgr_bnf *b, uint64_t tfile, const Fp__TaskResult *r);
/* For this benefactor, in memory of the group; NULL: it is not for it, or not now. */
Fp__Task *mgr_look_task(struct mgr_core *c, const struct mgr_bnf *b, struct mgr_look *l);
void mgr_look_hello(struct mgr_core *c, uint32_t bnf);
void mgr_look_tick(struct mgr_core *c);

#endif
