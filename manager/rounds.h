/* Rounds of syncs: which chunks of a benefactor are on its device (rounds.c). Loop thread; all but the pump in a group. */
#ifndef MGR_ROUNDS_H
#define MGR_ROUNDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mgr_bnf;
struct mgr_core;

/* A row of bnf_sync, and what is under way. */
struct mgr_rounds {
    uint64_t life;
    int64_t round, synced, last;
    uint64_t session, ino;
    struct mgr_lost_rounds {
        int64_t first, last;
    } *lost; /* malloc'd */
    size_t nlost;
    bool dirty;         /* the row is to be written */
    bool wanted;        /* somebody waits for it */
    bool out;           /* MSG_BNF_SYNC_ALL is under way */
    int64_t begun;      /* to be sent when the group is committed; 0: none */
    int64_t out_round;  /* rounds below are synced when it is answered */
    uint64_t at_ms;     /* not before */
    uint64_t changed_ms; /* last new chunk */
};

enum mgr_kept {
    MGR_KEPT_SYNCED,  /* on the device */
    MGR_KEPT_NOT_YET, /* a round would do it */
    MGR_KEPT_MEMORY,  /* this benefactor has no device */
    MGR_KEPT_DOUBT,   /* it was not synced when the benefactor lost what it had not synced: it may be damaged */
};

/* At start, and after a group that failed. 0 or a failure. */
int mgr_rounds_load(struct mgr_core *c);
/* Rows that changed, before the COMMIT; b is touched. */
int mgr_rounds_store(struct mgr_core *c, struct mgr_bnf *b);
/* The number of the round for a chunk that comes to be on b now: of this id, and for this file (0: not known). */
int64_t mgr_round_of(struct mgr_core *c, struct mgr_bnf *b, uint64_t chunk, uint64_t ino);
/* Likewise of what an inventory has again: it may have been stored before a loss, also if its number, which is of no session, does not say so. */
int64_t mgr_round_found(struct mgr_core *c, struct mgr_bnf *b, uint64_t chunk);
/* b says which unsynced life it has. 0 or a failure. */
int mgr_rounds_heard(struct mgr_core *c, struct mgr_bnf *b, uint64_t life);
/* Connected anew, or not any more: no answer will come. */
void mgr_rounds_lost(struct mgr_bnf *b);
/* Chunks of this round. */
enum mgr_kept mgr_round_kept(const struct mgr_bnf *b, int64_t round);
/* Syncs it as soon as it can be done, if anything on it is not. */
void mgr_round_want(struct mgr_core *c, struct mgr_bnf *b);
void mgr_rounds_tick(struct mgr_core *c, struct mgr_bnf *b);
/* After the COMMIT. */
void mgr_rounds_pump(struct mgr_core *c, struct mgr_bnf *b);
/* Its answer to MSG_BNF_SYNC_ALL. 0 or a failure. */
int mgr_round_answered(struct mgr_core *c, struct mgr_bnf *b, int status, uint64_t life);

#endif
