/* A store of two benefactors with files that are drained, evicted and fetched again: one for each program of tests. */
#ifndef MGR_EVICT_WORLD_H
#define MGR_EVICT_WORLD_H

#include "mgr_drain_world.h"

#define MIB (1u << 20)

extern struct world w;

#define e_sql(...) fix_sql(&w.f, __VA_ARGS__)

/* Written and closed: three windows, of which the last is short. */
uint64_t e_file_of(uint64_t parent, const char *name);
int64_t e_external(uint64_t ino);
void e_drain(const char *path);
/* What m says, of this path; the answer is durable. fix_free */
Fp__CtlStageReply *e_stage_ask(Fp__CtlStage *m, const char *path);
uint64_t e_stage_begin(const char *path, Fp__StageOp op);
uint64_t e_evict_begin(const char *path);
/* Its state now; why: a word of the reason. */
Fp__DrainState e_state_of(uint64_t job, const char *why);
/* … and when nothing is left to do. */
Fp__DrainState e_run_job(uint64_t job, const char *why);
/* The state that its job comes to; why: a word of the reason. */
Fp__DrainState e_evict(const char *path, const char *why);
Fp__DrainState e_stage_in(const char *path, const char *why);
Fp__SliceMapReply *e_map_of(uint64_t ino);
/* The k-th chunk of the file is told to be on benefactor i. True: taken. */
bool e_staged(size_t i, uint64_t chunk);
uint64_t e_chunk_of(uint64_t ino, unsigned win);
void e_bad(uint64_t chunk, uint32_t bnf, const char *reason);
Fp__Level e_level(uint64_t ino);
/* The benefactors confirm what they were told to delete. */
void e_deleted(void);
/* With a file "a" that was drained; and evicted, deleted here. */
void e_open_world(uint64_t *ino);
void e_open_evicted(uint64_t *ino);

/* Rows of bad_chunk. */
int64_t e_lost(enum mgr_bad how);
/* As it is shown. */
Fp__Level e_level_of(uint64_t ino);
/* The benefactor comes back, and has these chunks; has nothing. */
void e_comes_back_with(unsigned bnf, uint64_t *ids, size_t n);
void e_loses_all(unsigned bnf);
/* The copy of a, in /pfs or the other target, is not there any more. */
void e_remove_from(bool other);
void e_drain_to(const char *to, bool verify);
/* Chunks that are in this target only. */
int64_t e_external_in(const char *root);
/* All that is on benefactors is on their devices. */
void e_synced(void);
/* What is done has come to this task of a benefactor; it is taken out, as of one that is slow: e_late, owned. It goes on with that. */
void e_come_to(Fp__TaskKind kind);
void e_go_on(void);
extern Fp__Task *e_late;
extern struct w_bnf *e_late_of;
/* Each file of a target is referred to as often as it says. Ends the world. */
void e_check(void);

#endif
