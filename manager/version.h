/* Versions of files: what a file was before the writing that is under way. Called by the core's thread, in a group; 0 or a failure. */
#ifndef MGR_VERSION_H
#define MGR_VERSION_H

#include "life.pb-c.h"
#include "manager/core_int.h"

enum mgr_version_kind { MGR_DELTA = 1, MGR_FULL = 2, MGR_REPLACED = 3 /* full: another file, which this one was renamed over */ };
enum mgr_version_state {
    MGR_GUARD = 1,     /* of the epoch that is under way */
    MGR_WAITS = 2,     /* until what came after it has the level that is declared (versionwait.c) */
    MGR_REMAINS = 4,   /* what was given up */
    MGR_RETURNING = 5, /* it is being put back */
    MGR_SYNCED = 7,    /* guard, but one of several writers has synced or closed: it does not go back by itself */
    MGR_TORN = 8,      /* guard of a file that stayed torn */
    MGR_HURT = 9,      /* guard, but a program that wrote was killed, or failed; others go on */
    MGR_KILLED = 10,   /* … and nobody writes any more: the file stays as it is until the mount of that program ends */
    MGR_NEXT = 11,     /* waits, and is put back when the guard is, which is being put back */
};

/* A row of version. */
struct mgr_version {
    uint64_t n, shadow; /* shadow 0: there is none */
    uint64_t wins;      /* windows that it has at most */
    uint64_t moved;     /* bytes that it got, and its row does not say yet */
    uint64_t writer;    /* session that began; 0: not one alone */
    uint64_t torn_session;
    uint64_t cursor; /* MGR_RETURNING: windows below are done. MGR_HURT, MGR_KILLED: session of the mount that its program was on; 0: it has ended */
    enum mgr_version_kind kind;
    enum mgr_version_state state;
};

/* A file that has versions, or was changed since somebody has it open for writing (an epoch). */
struct mgr_vfile {
    struct mgr_vfile *next;
    uint64_t ino;
    struct mgr_version guard, remains, waits;
    uint64_t look_ms, pause_ms, waits_ms; /* of `waits`: when to look at the level next, how long after that, since when it waits; of this manager */
    bool lost;       /* … and the log says that the present data is */
    bool open;       /* the epoch has begun */
    bool passed;     /* … and needs no guard: the file was empty, or is synced all the time */
    bool died;       /* … and one who wrote did not end well */
    bool ill;        /* … likewise, of one that has no guard */
    bool synced_once; /* … and somebody was told that what he had written is there, whatever came after it */
    bool asked;      /* the guard is put back because somebody asked for it */
    bool old;        /* … under the manager before: who else wrote is not known */
    struct mgr_ended {
        uint64_t session;
        bool closed; /* all of its programs have closed it: its end is no bad one */
    } *synced;       /* sessions that have synced or closed it, and not changed it since */
    size_t nsynced, synced_cap;
    uint32_t syncs; /* epochs that a sync has ended, since … */
    uint64_t syncs_ms, pass_until_ms;
};

/* What has become of a version in a group: to be said when that is committed. */
struct mgr_put_back {
    struct mgr_put_back *next;
    ProtobufCBinaryData path;
    uint64_t ino;
    bool asked;
};

struct mgr_versions {
    struct mgr_vfile **bucket;
    size_t buckets, count, next; /* next: bucket for the sweep to go on at */
    struct mgr_map shadows;      /* inodes of versions */
    uint64_t returning, overtaken;
    uint64_t given_up; /* rows of that table */
    bool look; /* at all of them, at the next sweep */
    struct mgr_put_back *put_back; /* of this group, in its memory */
};

/* ---------------------------------------------------------------- version.c */

struct mgr_versions *mgr_versions_new(void); /* NULL: out of memory */
void mgr_versions_free(struct mgr_versions *t);
/* As the database has them; epochs without a guard are forgotten. */
int mgr_versions_load(struct mgr_core *c);
struct mgr_vfile *mgr_vfile_find(const struct mgr_core *c, uint64_t ino); /* NULL: there is none */
struct mgr_vfile *mgr_vfile_get(struct mgr_core *c, uint64_t ino);        /* NULL: out of memory */
/* Forgets it, unless it still stands for something. */
void mgr_vfile_done(struct mgr_core *c, struct mgr_vfile *v);
/* Makes the guard: of size, and no windows yet. */
int mgr_version_make(struct mgr_core *c, struct mgr_vfile *v, const struct mgr_inode *in, uint64_t session);
/* Makes `old`, which lost its last name to the file, the guard, or what waits: `as`, a part of v that is empty. */
int mgr_version_adopt(struct mgr_core *c, struct mgr_vfile *v, struct mgr_version *as, const struct mgr_inode *in, struct mgr_inode *old, uint64_t session);
/* The other way: a full version leaves the file, and is told; to be adopted in the same group. */
int mgr_version_detach(struct mgr_core *c, struct mgr_vfile *v, struct mgr_version *ver, struct mgr_inode *old);
/* It gets all that it has not yet of the file, and is full then; move: the file is not wanted any more. */
int mgr_version_fill(struct mgr_core *c, struct mgr_vfile *v, struct mgr_version *ver, struct mgr_inode *in, bool move);
/* Bytes [from, to) are going to be changed: their windows are kept. Takes from in->mapped what it moves. */
int mgr_version_take(struct mgr_core *c, struct mgr_vfile *v, struct mgr_inode *in, uint64_t from, uint64_t to);
/* All from `size` on is going to be cut. */
int mgr_version_cut(struct mgr_core *c, struct mgr_vfile *v, struct mgr_inode *in, uint64_t size);
/* After these: what versions have got is said in their rows. */
int mgr_version_count(struct mgr_core *c, struct mgr_vfile *v);
/* Of a version that is going to be one of the file's. */
uint64_t mgr_version_number(const struct mgr_vfile *v, const struct mgr_inode *in);
int mgr_version_save(struct mgr_core *c, const struct mgr_vfile *v, const struct mgr_version *ver);
int mgr_version_drop(struct mgr_core *c, struct mgr_vfile *v, struct mgr_version *ver);
/* How many there are, and the data that they refer to: of 65536 of them at most. */
int mgr_versions_sum(struct mgr_core *c, uint64_t *count, uint64_t *bytes);
/* The file has no name any more: neither have its versions a use. */
int mgr_versions_gone(struct mgr_core *c, uint64_t ino);

/* ---------------------------------------------------------------- epoch.c */

/* A session changes the file. *v: what keeps what was there; NULL: nothing does. cut: by a truncate. */
int mgr_epoch_changed(struct mgr_core *c, const struct mgr_session *s, struct mgr_inode *in, bool cut, struct mgr_vfile **v);
/* `in` takes the last name of `old`, as this session wants it. *kept: it was never whole, so `old` is what it was before, until it ends well, and no inode of its own any more. */
int mgr_epoch_replaces(struct mgr_core *c, const struct mgr_session *s, const struct mgr_inode *in, struct mgr_inode *old, bool *kept);
/* The session is about to give it back, well. */
int mgr_epoch_closing(struct mgr_core *c, const struct mgr_session *s, uint64_t ino);
/* Who had it open for writing has it so no more. */
int mgr_epoch_closed(struct mgr_core *c, uint64_t ino);
/* All that the session has written of it is durable; or is published, and all of its programs have closed it. */
int mgr_epoch_synced(struct mgr_core *c, const struct mgr_session *s, uint64_t ino);
int mgr_epoch_published(struct mgr_core *c, struct mgr_session *s, uint64_t ino);
/* A program of that mount that had it open for writing was killed, or was told an error; the mount itself lives. Before its release. */
int mgr_epoch_hurt(struct mgr_core *c, const struct mgr_session *s, uint64_t ino);
/* Nothing of the file of before is left: who died before this did no harm. */
int mgr_epoch_afresh(struct mgr_core *c, struct mgr_vfile *v);
/* The session's mount has ended: what programs of it have left torn is put back. */
int mgr_epoch_gone(struct mgr_core *c, const struct mgr_session *s);
/* The session's process is dead, or has to be taken for it; before what it has open is forgotten. */
int mgr_epoch_died(struct mgr_core *c, const struct mgr_session *s);
/* The same for one file. */
int mgr_epoch_left(struct mgr_core *c, const struct mgr_session *s, uint64_t ino);
/* It has ended badly, or its torn file is to be put back: as soon as all sessions are back. */
bool mgr_epoch_is_over(struct mgr_core *c, const struct mgr_vfile *v);
/* Epochs of which nobody has said the end, and versions that are being put back. */
int mgr_versions_sweep(struct mgr_core *c);

/* ---------------------------------------------------------------- versionwait.c */

/* The epoch has ended well: its guard waits, or goes. */
int mgr_waits_begin(struct mgr_core *c, struct mgr_vfile *v);
/* Before an epoch begins: what the file is may have got the level. */
int mgr_waits_rewritten(struct mgr_core *c, struct mgr_vfile *v, const struct mgr_inode *in);
/* Nobody writes it: is there something to wait for, still? */
int mgr_waits_look(struct mgr_core *c, struct mgr_vfile *v);
/* The file was drained. */
void mgr_waits_drained(struct mgr_core *c, uint64_t ino);
/* `in` took the last name of `old` before it was whole: what waits for `old` waits for it. kept: `old` becomes its guard. */
int mgr_waits_inherit(struct mgr_core *c, const struct mgr_inode *in, struct mgr_inode *old, bool kept);
/* The same of one that is whole. *kept: `old` itself waits, and is no inode of its own any more. */
int mgr_waits_replaced(struct mgr_core *c, const struct mgr_inode *in, struct mgr_inode *old, bool *kept);
/* It is put back; when the guard is, if there is one. */
int mgr_waits_return(struct mgr_core *c, struct mgr_vfile *v);
/* That guard has been put back. */
int mgr_waits_next(struct mgr_core *c, struct mgr_vfile *v);
/* What is drained now would replace in the target what it has there alone: it goes. *gone: there was one. */
int mgr_waits_yields(struct mgr_core *c, uint64_t ino, bool *gone);
/* A version of it is being removed, which takes some groups if it is large. 1, 0, or a failure. */
int mgr_waits_going(struct mgr_core *c, uint64_t ino);
/* Why it waits, in memory of the group; NULL: out of memory. */
char *mgr_waits_why(struct mgr_core *c, uint64_t ino);

/* ---------------------------------------------------------------- return.c */

/* The guard is put back, and what the file is becomes `remains`. Over several groups, if it is large. */
int mgr_return_begin(struct mgr_core *c, struct mgr_vfile *v);
int mgr_return_step(struct mgr_core *c, struct mgr_vfile *v);
/* The group is over: what it has put back is logged, if it was committed. */
void mgr_returns_say(struct mgr_core *c, bool committed);
bool mgr_is_returning(struct mgr_core *c, uint64_t ino);
/* What this session has written of the file must not reach it, until it opens it anew when all of its programs have closed it. */
int mgr_overtake(struct mgr_core *c, uint64_t session, uint64_t ino);
int mgr_is_overtaken(struct mgr_core *c, const struct mgr_session *s, uint64_t ino); /* 0, FP_EOVERTAKEN */
int mgr_overtaken_opened(struct mgr_core *c, const struct mgr_session *s, uint64_t ino);
int mgr_overtaken_ends(struct mgr_core *c, uint64_t session);
/* May the session change the file now? 0, FP_EPUBLISHING, FP_EOVERTAKEN. */
int mgr_change_check(struct mgr_core *c, const struct mgr_session *s, uint64_t ino);

/* ---------------------------------------------------------------- press.c */

/* There is no space: level as in StatFs.press. Adds what versions had that were given up. */
int mgr_press(struct mgr_core *c, uint32_t level, uint64_t *bytes);
/* The guard that the file would have, if it had not been given up, in memory of the group: state GIVEN_UP. NULL: it was not. */
int mgr_given_up(struct mgr_core *c, uint64_t ino, Fp__VersionInfo **out);
/* Nobody misses it any more: the file was rewritten to the end, or is gone. */
int mgr_given_up_over(struct mgr_core *c, uint64_t ino);
/* How many there are, from the table. */
int mgr_given_up_load(struct mgr_core *c);

/* ---------------------------------------------------------------- change.c: before the data of a file changes */

/* Bytes [from, to); none, if only the size grows. */
int mgr_data_changes(struct mgr_core *c, const struct mgr_session *s, struct mgr_inode *in, uint64_t from, uint64_t to);
/* What slices of a commit cover. appends: nothing of what was there is replaced. */
int mgr_data_commits(struct mgr_core *c, const struct mgr_session *s, struct mgr_inode *in, Fp__Slice *const *slices, size_t n, bool appends);
/* To this size, which is smaller than it was. */
int mgr_data_cut(struct mgr_core *c, const struct mgr_session *s, struct mgr_inode *in, uint64_t size);

#endif
