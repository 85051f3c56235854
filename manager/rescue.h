/* Between the files of what is lost here and whole in a target: rescue.c, rescue_win.c, rescue_file.c. All functions are of the core's thread and of a group; 0 or a failure, if nothing
 * else is said. */
#ifndef MGR_RESCUE_H
#define MGR_RESCUE_H

#include "manager/ext.h"

/* Who asks for what is on a benefactor that has been away for so long gets it from the target. A window does not change back when the benefactor does come back. */
#define MGR_RESCUE_AWAY_MS     1000u
#define MGR_RESCUE_AWAY_WIN_MS 5000u

/* ---------------------------------------------------------------- rescue.c */

/* Where the data of an inode is in a target. */
struct mgr_copy {
    uint64_t tfile; /* 0: nowhere */
    uint64_t of;    /* inode that has the row of drained: of a version, that of its file */
    Fp__ExtFile *file;
};
/* The best copy of what it is, of a file or of a version that is kept, that nobody is about to replace. keep: rather that one, 0: none. */
int mgr_rescue_copy(struct mgr_core *c, const struct mgr_inode *in, uint64_t keep, struct mgr_copy *p);
/* It is external from now on, off in that copy, and that is looked at. how: LOOK or WRONG. */
int mgr_rescue_turn(struct mgr_core *c, const struct mgr_chunk *ch, const struct mgr_copy *p, uint64_t off, enum mgr_bad how, const char *reason);
/* Likewise, if some file has all of it side by side and a copy. 1: so it is; 0: no. */
int mgr_rescue_chunk(struct mgr_core *c, const struct mgr_chunk *ch, enum mgr_bad bad, const char *reason);
/* Somebody is to look at it, unless that has been done. */
int mgr_rescue_look(struct mgr_core *c, uint64_t tfile);
bool mgr_rescue_is_away(const struct mgr_core *c, const struct mgr_bnf *b, uint64_t ms);
/* Some benefactor is, at all. */
bool mgr_rescue_any_away(const struct mgr_core *c);

/* ---------------------------------------------------------------- rescue_win.c */

int mgr_rescue_win_load(struct mgr_core *c);
/* Files of which a window has this chunk, and can be had from a copy: they are noted, and those copies looked at. *root: in the target of one of them, in memory of the group; NULL: there
 * is none. */
int mgr_rescue_wins(struct mgr_core *c, const struct mgr_chunk *ch, const char **root);
/* The same for one window, of a copy that is known. 1: it is noted; 0: it can't be had from it. */
int mgr_rescue_win(struct mgr_core *c, const struct mgr_inode *in, uint64_t win, const struct mgr_copy *p);
/* Is a window of [win, end) waiting for that? 1, 0, or a failure. */
int mgr_rescue_win_waits(struct mgr_core *c, uint64_t ino, uint64_t win, uint64_t end);
/* Does a window of another inode than this wait for what has that name in the target? 1, 0, or a failure. */
int mgr_rescue_win_only_at(struct mgr_core *c, uint32_t target, ProtobufCBinaryData path, uint64_t ino);
/* It is given up: nothing of it is to be had any more. */
int mgr_rescue_win_forget(struct mgr_core *c, uint64_t ino);
/* Some windows that are to be had from it, which is well (or, !well, known no more: then from others). *more: not all of them yet; *again: it is to be looked at again. */
int mgr_rescue_win_settle(struct mgr_core *c, uint64_t tfile, bool well, bool *more, bool *again);
/* Is any to be had from it? 1, 0, or a failure. */
int mgr_rescue_win_any(struct mgr_core *c, uint64_t tfile);

#endif
