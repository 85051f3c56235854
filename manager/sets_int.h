/* What sets.c and setdirs.c share. */
#ifndef MGR_SETS_INT_H
#define MGR_SETS_INT_H

#include "manager/idmap.h"
#include "manager/sets.h"
#include "manager/stepname.h"

#define MGR_SETS_MAX 1000000u

struct mgr_sets {
    struct mgr_idmap open;      /* id -> struct mgr_set * */
    struct mgr_idmap writing;   /* file -> id of its set: open for writing, or was it until just now */
    struct mgr_idmap anew;      /* files with MGR_TORN that were opened for writing while nobody else wrote */
    struct mgr_idmap lost_size; /* files with MGR_LOST_CLOSE: the size in bytes that they had for who closed them, UINT64_MAX: not known. None: likewise, lost before a restart */
    struct mgr_idmap dirs, dirs_before; /* directory -> id of the set that a file in it belongs to, whatever its name; 0: none. Two generations */
    struct mgr_setname *names;  /* sets of files side by side that were asked for last */
    struct mgr_uniques *uniques; /* setunique.c */
    struct mgr_growth *growth;  /* setgrowth.c */
    int64_t lost_ns;            /* when a session ended of which nobody knows what it had open */
    struct mgr_dirpath *paths;  /* of directories of files that were made last; NULL: none */
    uint64_t *closed;           /* files that may have no writer any more */
    size_t nclosed, closed_cap;
    bool look_at_all;           /* all in `writing`: the list of them is not complete */
    uint64_t count;             /* rows of ckpt_set */
    uint64_t tick_ms;
};

/* -------------------------------------------------------------- setdirs.c: which set a name belongs to */

struct mgr_setname *mgr_setnames_new(void);
/* What a regular file of this name in dir, made at began_ns, is a member of, with a row made for it; 0: of none. *temporary: the name is. */
int mgr_set_of(struct mgr_core *c, uint64_t dir, const ProtobufCBinaryData *name, int64_t began_ns, uint64_t *id, bool *temporary);
/* A directory of this name is being made. */
int mgr_set_dir_made(struct mgr_core *c, uint64_t parent, const ProtobufCBinaryData *name, int64_t began_ns);
/* The set that this directory is. 0: none. */
int mgr_set_with_top(struct mgr_core *c, uint64_t top, uint64_t *id);
/* The set that this directory belongs to or is. 0: none. */
int mgr_set_of_dir(struct mgr_core *c, uint64_t dir, uint64_t *id);
/* A directory has got this name in another. */
int mgr_set_dir_renamed(struct mgr_core *c, const struct mgr_inode *dir, uint64_t parent, const ProtobufCBinaryData *name);
/* Everything below this directory becomes a member. */
int mgr_set_adopt(struct mgr_core *c, uint64_t dir, uint64_t to);
/* The same of what is of no set yet, and was not staged in. Adds their number to *taken; *last_ns: their last change. */
int mgr_set_adopt_free(struct mgr_core *c, uint64_t dir, uint64_t to, uint32_t *taken, int64_t *last_ns);
/* A set that nothing but somebody's word makes one. */
int mgr_set_by_telling(struct mgr_core *c, const struct mgr_inode *in, uint64_t *id);
/* With patterns of policies too: when these are others. */
void mgr_set_caches_drop(struct mgr_sets *t);
void mgr_set_names_drop(struct mgr_sets *t); /* all but what growth has seen */
bool mgr_set_is_temporary(const void *name, size_t len);

/* -------------------------------------------------------------- sets.c */

/* The set of this series, made if it is not there. *out is in memory, and open, unless it is forgotten (NULL). */
int mgr_set_make(struct mgr_core *c, uint64_t parent, const struct mgr_step *step, uint64_t top, uint64_t *id);
/* In memory, and open: a complete one is open again. NULL in *out: forgotten. -ENOENT: there is no such set. */
int mgr_set_touch(struct mgr_core *c, uint64_t id, struct mgr_set **out);
int mgr_set_put(struct mgr_core *c, const struct mgr_set *s);
struct mgr_set *mgr_set_in_memory(const struct mgr_core *c, uint64_t id); /* NULL: it is not open */
/* The file comes from one set to another (0: none); temporary: whether its name was, and is. */
int mgr_set_move(struct mgr_core *c, struct mgr_inode *in, uint64_t to, bool was_temporary, bool is_temporary);

/* It is the result of a conversion, and was never part of the set that its name has put it into: that has lost nothing, and goes on. Sets in->ckpt to 0. */
int mgr_set_yield(struct mgr_core *c, struct mgr_inode *in, bool temporary);

/* It was made of files that have been there, which were changed last at that time: it is complete at once, if it would have been. */
int mgr_set_settle(struct mgr_core *c, uint64_t id, int64_t last_ns);

/* -------------------------------------------------------------- setgrowth.c */

struct mgr_growth *mgr_growth_new(void); /* NULL: out of memory */
void mgr_growth_free(struct mgr_growth *g);
void mgr_growth_forget(struct mgr_growth *g);
void mgr_growth_doubt(struct mgr_growth *g); /* series may have come or gone */
void mgr_growth_renamed(struct mgr_growth *g, uint64_t dir);
/* An entry that was made at began_ns gets this name; it is of no set by anything else. *yes: it is a step, and those of its series before are sets, too. */
int mgr_growth_made(struct mgr_core *c, uint64_t dir, const ProtobufCBinaryData *name, bool directory, int64_t began_ns, struct mgr_step *out, bool *yes);
/* Is a directory, or file, of this name in parent one of a series that is known? */
int mgr_growth_known(struct mgr_core *c, uint64_t parent, const char *name, size_t len, bool directory, struct mgr_step *out, bool *yes);
/* Where in the name of a file the step of that series is. */
int mgr_growth_step(struct mgr_core *c, uint64_t dir, const ProtobufCBinaryData *name, uint64_t series, struct mgr_step *out, bool *yes);

/* -------------------------------------------------------------- setpattern.c */

void mgr_dirpaths_drop(struct mgr_sets *t);
void mgr_dirpaths_free(struct mgr_sets *t);
/* What the first pattern of a policy that it matches says of a regular file; *yes false: none does. */
int mgr_pattern_of(struct mgr_core *c, uint64_t dir, const ProtobufCBinaryData *name, struct mgr_step *out, bool *yes);
/* The same of the result of a conversion: *out is for its own set, of which the series is in the directory so many above. */
int mgr_pattern_of_result(struct mgr_core *c, uint64_t dir, const ProtobufCBinaryData *name, struct mgr_step *out, bool *yes);
/* The same of a directory: it is the set of what is in it. */
int mgr_pattern_of_dir(struct mgr_core *c, uint64_t parent, const ProtobufCBinaryData *name, struct mgr_step *out, bool *yes);

/* -------------------------------------------------------------- setwords.c */

/* s->words, of now. */
int mgr_set_words(struct mgr_core *c, struct mgr_set *s);
/* Does a file of this name in it say that it is complete? */
int mgr_set_marks(struct mgr_core *c, uint64_t set, const ProtobufCBinaryData *name, bool *yes);
/* The same of a file of it that has been closed. False also if no policy has marker= or complete=told: then its name was heard when it was made. */
int mgr_set_is_marked(struct mgr_core *c, uint64_t set, uint64_t ino, bool *yes);

/* -------------------------------------------------------------- sethalf.c */

/* It is about to be complete: has it fewer files than it should have? s->files_before. */
int mgr_set_half(struct mgr_core *c, struct mgr_set *s);

/* -------------------------------------------------------------- convert.c: results of conversions, in->flags & MGR_CONVERTED */

/* The set of its own of such a file that has, or gets, this name in dir; 0: of none. */
int mgr_result_set(struct mgr_core *c, const struct mgr_inode *in, uint64_t dir, const ProtobufCBinaryData *name, uint64_t *id);
/* Somebody says that it is complete, and it is of no set: it becomes a member of its own. */
int mgr_result_told(struct mgr_core *c, const struct mgr_inode *in, uint64_t *id);
/* The path of the main file of the result that it is part of. */
int mgr_result_path(struct mgr_core *c, const struct mgr_inode *in, ProtobufCBinaryData *path);

/* -------------------------------------------------------------- setunique.c */

struct mgr_uniques *mgr_uniques_new(void); /* NULL: out of memory */
void mgr_uniques_free(struct mgr_uniques *t);
void mgr_uniques_forget(struct mgr_uniques *t);
void mgr_unique_set_gone(struct mgr_core *c, uint64_t set);

/* -------------------------------------------------------------- settorn.c */

int mgr_torn_lost(struct mgr_core *c, const struct mgr_inode *in, uint64_t size); /* something that was closed of it, with this size, is: the same, and its set is torn, though it was complete */
int mgr_torn_opened(struct mgr_core *c, const struct mgr_inode *in); /* by the first writer */
/* Changes in->flags; the caller writes the inode. */
void mgr_torn_written(struct mgr_core *c, struct mgr_inode *in);
int mgr_torn_any(struct mgr_core *c, uint64_t set, bool *yes);
int mgr_torn_set(struct mgr_core *c, uint64_t set); /* if it is not known which files are: all */
int mgr_torn_lost_left(struct mgr_core *c, uint64_t set, bool *yes); /* what was closed of files of it is lost, or may be, and nobody is writing these again just now */
/* Which file of it tears it: *first, 0: none does; of several one of which something was closed and is lost, or may be (*lost); *n of them, counted to max. */
int mgr_torn_files(struct mgr_core *c, uint64_t set, uint64_t max, uint64_t *first, bool *lost, uint64_t *n);
int mgr_torn_mend(struct mgr_core *c, uint64_t set, bool lost_too); /* somebody says that it is complete; lost_too: and knows of what was lost after close */

#endif
