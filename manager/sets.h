/* Checkpoint sets: which files belong to one time step, and whether all of them are there. Loop thread, in a group; 0 or a failure, unless said otherwise. */
#ifndef MGR_SETS_H
#define MGR_SETS_H

#include "manager/core_int.h"

enum mgr_set_state { MGR_SET_OPEN = 1, MGR_SET_COMPLETE, MGR_SET_TORN, MGR_SET_FORGOTTEN };

/* A row of ckpt_set. Of an open one in memory, counts are of this moment; else they are as it was when it was complete, or torn. */
struct mgr_set {
    uint64_t id, series, step, top, gen;
    enum mgr_set_state state;
    uint32_t how; /* enum mgr_step_how */
    bool told;
    int64_t began_ns, complete_ns;
    uint64_t seq, files, bytes; /* seq: its number in its series since it was complete first; 0: not yet, or it is another checkpoint now */
    uint64_t files_before; /* it seems to be half of one: so many files had those before; 0: not so */
    /* of an open one alone */
    uint32_t writers;    /* files of it that are open for writing */
    uint32_t temps;      /* that have a temporary name */
    bool top_temporary;  /* its directory has one */
    bool died;           /* a writer has */
    bool torn;           /* it was torn: files of it may be still */
    bool shrunk;         /* the last change was that a file went */
    bool doubt;          /* it was open when the manager was started: writers may be those of a session that is not back */
    uint64_t changed_ms; /* last change */
    struct {             /* what policies say of it (setwords.c), as of that change and their generation; gen 0: not asked yet */
        uint64_t at_ms, gen, quiet_ms, late_ms;
        bool told;
    } words;
};

struct mgr_sets *mgr_sets_new(void); /* NULL: out of memory */
void mgr_sets_free(struct mgr_sets *t);
/* At start, and after a group that failed: open sets and writers as the database and c->writers have them. */
int mgr_sets_load(struct mgr_core *c);

/* A file or directory is being made in dir: sets in->ckpt. Before it has a row. */
int mgr_sets_made(struct mgr_core *c, struct mgr_inode *in, const struct mgr_inode *dir, const ProtobufCBinaryData *name);
/* It has got another name there, from one in another directory or the same; or its first (from NULL). Changes in->ckpt; the caller writes the inode. */
int mgr_sets_renamed(struct mgr_core *c, struct mgr_inode *in, const ProtobufCBinaryData *from, const struct mgr_inode *dir, const ProtobufCBinaryData *to);
/* It is said to be the result of a conversion. Changes in->ckpt and in->flags; the caller writes the inode. (convert.c) */
int mgr_sets_converted(struct mgr_core *c, struct mgr_inode *in);
/* Its last name, this one, is gone. Changes in->ckpt. */
int mgr_sets_gone(struct mgr_core *c, struct mgr_inode *in, const ProtobufCBinaryData *name);
/* Its data or its size has changed, by so many bytes of size. May change in->flags; the caller writes the inode. */
int mgr_sets_changed(struct mgr_core *c, struct mgr_inode *in, int64_t bytes);
/* A session has opened it for writing; the last has closed it; it may have been the last. The last two can't fail, and may be called outside of a group. */
int mgr_sets_opened(struct mgr_core *c, const struct mgr_inode *in);
void mgr_sets_closed(struct mgr_core *c, uint64_t ino);
void mgr_sets_look_at_all(struct mgr_core *c); /* of which files that is, is not said */
void mgr_torn_joined(const struct mgr_core *c, const struct mgr_inode *in); /* it has come into in->ckpt, with its marks, which its row says later */
int mgr_sets_died(struct mgr_core *c, const struct mgr_session *s); /* -ENOMEM: its writes are not to be forgotten, so that its death is seen again */
int mgr_sets_hurt(struct mgr_core *c, uint64_t ino); /* a program that had it open for writing was killed, or was told an error; before it is closed */
/* The mount says that of these, in its release, or in a hello since it has no answer for that: before what it had open is forgotten. */
int mgr_torn_told(struct mgr_core *c, const struct mgr_session *s, const uint64_t *ino, size_t n);
/* Somebody says that the set that this directory is, or this file belongs to, is complete (settold.c). One that is not known becomes a set by it, which may change
   the inode. -EUCLEAN, and nothing was said: something that was closed of a file of it is lost, or may be, and that file is not being written again just now;
   lost_too: it is said of these, too. -ENXIO: there is no file in it. -ESTALE: it was forgotten. -ENODATA: nothing can tell it apart from others (the root). */
int mgr_sets_told(struct mgr_core *c, uint64_t ino, bool lost_too);
int mgr_sets_told_of(struct mgr_core *c, uint64_t set, bool lost_too); /* the same of a set */
/* An open one in which there is no file goes now, with what was said of it; else with a later tick. */
int mgr_set_drop_empty(struct mgr_core *c, uint64_t id, bool *gone);
int mgr_sets_say(struct mgr_core *c, uint64_t id, bool lost_too);
int mgr_sets_forget(struct mgr_core *c, uint64_t id);
int mgr_sets_tick(struct mgr_core *c);

/* What it takes of the store that nothing else shares; *known false: that is being counted, or is not of one that is open. Looks at most at *look references, and
 * takes from it what it has looked at. (setunique.c) */
int mgr_set_unique(struct mgr_core *c, const struct mgr_set *s, uint32_t *look, uint64_t *bytes, bool *known);
/* References to chunks that are there, or where these are, have changed. */
void mgr_chunks_shared(struct mgr_core *c);
/* In each group: some more of it is counted. */
int mgr_uniques_step(struct mgr_core *c);

/* A copy, of memory or of the table: 0, -ENOENT. */
int mgr_set_get(struct mgr_core *c, uint64_t id, struct mgr_set *out);
/* The path by which it is shown: of its directory, else of a file of it up to the step; empty: it has none any more. (setmsg.c) */
int mgr_set_path(struct mgr_core *c, const struct mgr_set *s, ProtobufCBinaryData *path);
/* What user.fp.convert of its directory says, else of the first of its files that has one, in memory of the group; "": nothing. (convertmsg.c) */
int mgr_set_convert(struct mgr_core *c, const struct mgr_set *s, char **text);
/* Is this directory that one, or below it? (setmsg.c) */
int mgr_set_is_below(struct mgr_core *c, uint64_t dir, uint64_t top, bool *yes);
/* The first file of it with a number above this one: 0, -ENOENT (*in as it was). (setmsg.c) */
int mgr_set_member(struct mgr_core *c, uint64_t set, uint64_t after, struct mgr_inode *in);
/* From a row made with MGR_SET_COLS. */
void mgr_set_row(const struct mgr_core *c, enum mgr_stmt st, struct mgr_set *s);

#endif
