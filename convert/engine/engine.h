/*
 * From a source to a sink, in memory of a set size. One thread, but for MPI ranks that share the work.
 *
 * Output-driven: the engine goes through the output tile by tile (chunks of the output, or slabs of an array that is stored as a whole), gathers each from the blocks that meet it, and gives it to the
 * sink. Rejected: input-driven (block by block, as they lie), which has to keep, or read and write again, every compressed chunk that a block does not fill.
 */
#ifndef CV_ENGINE_H
#define CV_ENGINE_H

#include "convert/sink/sink.h"
#include "convert/source/source.h"

struct cv_job {
    const struct cv_source_ops *from;
    const struct cv_sink_ops *to;
    struct cv_source_options in;
    struct cv_sink_options out;
    const char *path;                 /* of the result; it appears whole, or not at all */
    const char *converted;            /* NULL, or the value of the result's attribute user.fp.converted (set before it has its name) */
    const char *of;                   /* NULL, or the value of its attribute user.fp.convert_of: what it was made of, in the words of who asked */
    size_t memory_bytes;              /* for buffers of all kinds, source and sink included */
    uint64_t chunk[CV_RANK_MAX];      /* what the user wants for arrays of that many dimensions, zeros behind them; all 0: chosen (plan.c) */
    const char *const *only;          /* blocks of these inputs alone; NULL: all. Then the sink is sparse, and the attribute fp_boxes of each dataset says which boxes there are */
    size_t nonly;
    const char *lists[2];             /* NULL, or files in which the names of inputs were: the result takes the place of none */
    bool xdmf;                        /* NAME.xmf beside */
    bool replace;                     /* path may be there already */
    /* Called now and then, from cv_job_run; nonzero (negative errno) ends it. */
    int (*progress)(void *arg, uint64_t done_bytes, uint64_t of_bytes);
    /* NULL, or called if the source has left something out that it could not read, before anything is written. */
    void (*left_out)(void *arg, const char *what);
    /* NULL, or called with what people should know of the result: attributes that got another name. */
    void (*note)(void *arg, const char *what);
    void *arg;
};

/* 0, or negative with why. Nothing is left at path or beside it if it fails. */
int cv_job_run(const struct cv_job *j, struct cv_fail *why);

#endif
