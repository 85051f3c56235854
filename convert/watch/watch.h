/* The coordinator of a mount: which dumps are to be converted, and who does it. */
#ifndef CW_WATCH_H
#define CW_WATCH_H

#include "convert/watch/group.h"

struct cw_options {
    const char *mount, *node, *pattern, *into, *to, *ending; /* ending: of results */
    const char *const *run_words;   /* of fp-convert run, those that are the same for all: ended by NULL */
    const char *program;            /* the first word of a conversion */
    int (*convert)(int argc, char **argv); /* fp-convert with these words, in a process of its own: its exit code */
    bool keep_none, splits, xdmf;
    unsigned workers;               /* conversions at a time */
    uint64_t digest;                /* of the words and the schema: what parts are made by */
};

/* Until standard input ends, or SIGTERM. Exit code. */
int cw_watch(const struct cw_options *o);

#endif
