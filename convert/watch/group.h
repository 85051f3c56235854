/*
 * The dumps that a coordinator knows, in groups that are converted together: the files of one checkpoint set, or a file that is of none. What to do with a group next. Pure: no I/O, no clock.
 */
#ifndef CW_GROUP_H
#define CW_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convert/model.h"

#define CW_NODE_MAX   255u
#define CW_LOOK_MS    1000u   /* what is open is looked at again */
#define CW_REST_MS    10000u  /* what is torn */
#define CW_NAMED_MS   3000u   /* so long it is waited for who has closed a file: a node that lags behind will say so */
#define CW_NAME_MS    250u    /* and it is looked for that so often */
#define CW_TAKE_MS    30000u  /* after so long others do what the node that wrote the files does not */
#define CW_AGAIN_MAX_MS 60000u
#define CW_CRASHES    3u

struct cw_file {
    char *path;       /* in the store, without a slash before it */
    char *node;       /* whose mount has closed it last; "": not known */
    int64_t mtime_ns;
    uint64_t version;  /* of its data, when it was last said to be closed; 0: it was not since it is as it is */
};

/* Of a checkpoint set, as user.fp.set says it; CW_SET_NONE: the file is of none. */
enum cw_set_state { CW_SET_NONE = 0, CW_SET_OPEN, CW_SET_COMPLETE, CW_SET_TORN, CW_SET_FORGOTTEN };
enum cw_phase { CW_WAITING = 0, CW_RUNNING, CW_DONE, CW_FAILED };

struct cw_group {
    char *key;             /* "SERIES STEP" of the set, or "/PATH" of a file that is of none */
    struct cw_file *files; /* in the order of their paths */
    size_t nfiles, cap;
    uint64_t bytes;        /* in all of them, when they were looked at last */
    enum cw_phase phase;
    bool again;            /* a file of it was closed while it ran */
    bool told;             /* its mark in the store is of the files as they are known here */
    bool waits;            /* and says that they wait */
    enum cw_set_state state;
    uint64_t next_ms;      /* not looked at before */
    uint64_t complete_ms;  /* since when it could be converted; 0: it can't */
    unsigned tries, crashes;
    uint64_t stamp;        /* of its files when the conversion that runs, or ran last, began */
    size_t next;           /* in the chain of the keys that have the same place in the table; from 1 on */
};

/* Found by their keys through a table, groups.c: a file that is of no set is a group of its own, and a store has as many as it has files. */
struct cw_groups {
    struct cw_group *items;
    size_t count, cap, nfiles;
    size_t *chains, nchains;
};

void cw_groups_free(struct cw_groups *g);
struct cw_group *cw_groups_find(const struct cw_groups *g, const char *key);
/* The group of this key, made if there is none, with this file in it (node NULL: as it was known, if the file is as it was, or not known). NULL: out of memory, or too many files. Pointers to groups are valid until the next call. */
struct cw_group *cw_groups_add(struct cw_groups *g, const char *key, const char *path, const char *node, int64_t mtime_ns);
void cw_groups_drop(struct cw_groups *g, struct cw_group *one);
/* Its i-th file is in it no more. The group stays, also without any. */
void cw_groups_take_out(struct cw_groups *g, struct cw_group *one, size_t i);
/* Tells the state of its files: another one when a file is written anew, is gone, or is new. */
uint64_t cw_group_stamp(const struct cw_group *g);
/* Says of files, by some of their names alone (all, of CW_SAMPLE_MAX and fewer), which there were: in digits, for a time when they may be gone. */
#define CW_SAMPLE_MAX   16u
#define CW_SAMPLE_BYTES (8 * CW_SAMPLE_MAX + 1)
void cw_group_sample(const struct cw_group *g, char sample[CW_SAMPLE_BYTES]);
/* Whether files of these names are in the group. Digits that are no sample's: true. */
bool cw_group_has_sample(const struct cw_group *g, const char *sample);
/* It is another one now: nobody has said yet that it is his. */
void cw_file_changed(struct cw_group *g, struct cw_file *f, int64_t mtime_ns);
/* It matters whose this one is, and nobody knows (parts: whether results may be made of them). */
bool cw_file_lacks_name(const struct cw_group *g, size_t file, bool parts);
/* Whose part a file is in: one that nobody is known to have written is the group's first node's, which is given ("": nobody is known to have written any). */
const char *cw_group_first_node(const struct cw_group *g);
bool cw_file_is_of(const struct cw_file *f, const char *first, const char *node);
/* Goes on from seed (0: begins). */
uint64_t cw_hash(uint64_t seed, const void *data, size_t len);
/* NULL: it is not in the group. */
struct cw_file *cw_group_file(const struct cw_group *g, const char *path);
/* It is this node's ("": nobody is known to have it). False: out of memory, it is as it was. */
bool cw_file_name(struct cw_file *f, const char *node);
/* A file of it has been closed: it is to be converted, again if it was already. */
void cw_group_touched(struct cw_group *g, uint64_t now_ms);

enum cw_join { CW_JOIN_AUTO = 0, CW_JOIN_ONE, CW_JOIN_VDS };

/* The files that one node has written. */
struct cw_part {
    const char *node;      /* of the group */
    size_t first;          /* its first file */
    uint64_t stamp;        /* as that of a group, of these files alone, and of what they are made by */
};

/* The parts, in the order of their first files, each stamp going on from the seed; one or none: it is converted as a whole. Freed by the caller; NULL: out of memory. */
struct cw_part *cw_group_parts(const struct cw_group *g, uint64_t seed, size_t *n);

enum cw_do { CW_NOTHING = 0, CW_NAME, CW_CONVERT, CW_PART, CW_JOIN }; /* CW_NAME: say whose those are that nobody says to be his, so that all nodes see the same parts */
struct cw_action {
    enum cw_do what;
    struct cw_part part;   /* CW_PART: of these files */
};

/* Where results may be made of parts (HDF5). */
struct cw_splits {
    uint64_t seed;         /* what parts are made by */
    bool (*has_part)(void *arg, const struct cw_part *p); /* is it there, and of these files as they are now? Called for CW_WAITING alone */
    void *arg;
};

/* What this node does now; sets next_ms and complete_ms. splits NULL: in one piece. */
struct cw_action cw_group_decide(struct cw_group *g, const char *me, uint64_t now_ms, const struct cw_splits *splits);

/* It has ended: how it goes on. */
enum cw_end { CW_END_DONE = 0, CW_END_PART, CW_END_BAD, CW_END_PASSING, CW_END_CRASH };
void cw_group_ended(struct cw_group *g, enum cw_end end, uint64_t now_ms);

#endif
