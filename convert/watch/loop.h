/* What the parts of a coordinator share (watch.h): its state, and how it looks for dumps. One thread. */
#ifndef CW_LOOP_H
#define CW_LOOP_H

#include <limits.h>

#include "convert/watch/store.h"
#include "convert/watch/watch.h"
#include "convert/watch/worker.h"

#define LOOK_MS     30000u
#define REST_TIMES  4u     /* so much longer than it took, it rests */
#define REST_MAX_MS 60000u
#define LINE_BYTES  4600u
#define WORKERS_MAX 64u

struct watch {
    const struct cw_options *o;
    struct cw_store store;
    struct cw_breath breath;
    struct cw_groups groups;
    struct cw_worker workers[WORKERS_MAX];
    bool there, look, ended;   /* the mount is there; look at all files; standard input is over */
    bool missed;               /* and files were closed of which it was not told: there is work for it */
    bool owed;                 /* that look is for something of which nothing is marked yet */
    uint64_t heard, said;      /* lines, and the look at the start; as many as were said last */
    uint64_t looked_ms, look_by_ms; /* look_by_ms: then once more, whatever waits; 0: no need */
    uint64_t look_rest_ms, mark_rest_ms;
    uint64_t look_again_ms;    /* after a look that could not tell all; 0: it could */
    char seen_key[PATH_MAX + 1]; /* of the file that was seen last; "": none in this look */
    bool untold;               /* what a file in this look is could not be told */
    char line[LINE_BYTES];
    size_t line_bytes;
    int waiting, running;      /* as they were said last */
    char swept[PATH_MAX];      /* directory in which no temporary file was left then; "": none is known */
    uint64_t swept_ms;
    size_t turn;               /* which group is attended to next */
    bool cut;                  /* the last pass has ended before all had their turn */
    uint64_t group_us;         /* what a group takes, on average of the last ones */
};

/* How long to rest after what began then (cw_breath_ms), with so many files. */
uint64_t cw_rest_ms(const struct watch *w, uint64_t began_ms, size_t files);

/* The key of a file's group, and the state of its set. Negative: it is not known now. */
int cw_look_key(struct watch *w, const char *path, char *key, size_t size);
/* What a conversion has made: a pattern may match it, but it is no dump. 1, 0; negative: it can't be told now. */
int cw_look_is_result(struct watch *w, const char *path);
/* A file that was closed, with its data in this version: it is this node's. */
void cw_look_sealed(struct watch *w, const char *path, uint64_t version);
/* At all files that the pattern names. What it could not tell is looked for again, later and later. */
void cw_look_at_all(struct watch *w);
/* Other nodes may have files of a set that this one knows by its own: they lie beside these, or in the directory that is the set. False: there may be more of them. The group may move. */
bool cw_look_near(struct watch *w, const struct cw_group *g);
/* Whose files are of which it was not known before, as far as that matters. */
void cw_look_for_names(struct watch *w, struct cw_group *g);
/* Nobody can convert it now. */
bool cw_is_not_complete(const struct cw_group *g);

#endif
