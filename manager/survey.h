/* What levels rest on is looked at in the targets before somebody is told that he has waited enough (survey.c). Core's thread, in a group. */
#ifndef MGR_SURVEY_H
#define MGR_SURVEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "manager/idmap.h"

struct mgr_core;

#define SURVEY_OPEN 32u /* files of one that are looked at at once */

struct mgr_survey {
    uint64_t n;            /* its number; as asked: what was told before, 0: nothing */
    bool set, verified;    /* verified: copies that were not compared don't count */
    uint64_t id, version;  /* inode and data_version; or set and gen */
    uint32_t target;       /* copies of others don't count; 0: any */
    /* the rest is its own */
    bool all, done;        /* all files are taken up; and all of these have been dealt with */
    uint64_t begun_ms, asked_ms, done_ms;
    uint64_t ino;          /* the file taken up last */
    uint64_t missing;      /* files without a copy that is enough */
    size_t nopen;
    struct mgr_survey_file {
        uint64_t ino, tfile; /* tfile: somebody was last told to look at; 0: at none */
        uint32_t target;
        uint64_t at_ms;
    } open[SURVEY_OPEN];
};

struct mgr_surveys {
    struct mgr_survey *of;
    size_t count, cap, turn;
    uint64_t last;
    struct mgr_idmap found; /* tfile -> ms + 1 when it was found as it was */
    bool due;               /* the end of the group looks */
    uint64_t round_ms;      /* looks by themselves: not before; 0: there is nothing to look at */
    uint64_t round_began_ms, round_n, round_ino; /* of the round that goes on: how many it has had, and which was the last */
    int64_t round_ns;
    uint32_t failed;        /* a target of which a file could not be looked at, when, and why */
    uint64_t failed_ms;
    char why[200];
};

void mgr_surveys_free(struct mgr_surveys *v);
/* Of what `as` says (its first fields): 1: all that it rests on was found as it was, after this was first asked or some seconds before; 0: not yet, and *why says what it waits
 * for; -ESTALE: a copy is not what it was, and the level has fallen by that; or a failure. *n: what is to be said with the next question. */
int mgr_survey(struct mgr_core *c, const struct mgr_survey *as, uint64_t *n, const char **why);
/* This file of a target was found as it was. */
void mgr_survey_found(struct mgr_core *c, uint64_t tfile);
/* A file there could not be looked at. */
void mgr_survey_failed(struct mgr_core *c, uint32_t target, const char *why);
/* At the end of a group. */
int mgr_surveys_step(struct mgr_core *c);
void mgr_surveys_tick(struct mgr_core *c);

#endif
