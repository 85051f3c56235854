/*
 * Where a conversion reads from: a format. One thread. A source opens its inputs, makes the model of them, and gives bytes or boxes of blocks.
 *
 * Two ways. A format whose blocks are plain arrays in a file (raw, records of Fortran, .npy, process groups) has read_bytes, and the engine cuts boxes, ghosts and byte order out of
 * them. A format of a library (HDF5, ADIOS2) has read_box, and gives elements in the byte order of its dataset's type (native: big_endian as the machine is).
 */
#ifndef CV_SOURCE_H
#define CV_SOURCE_H

#include <sys/types.h>

#include "convert/fail.h"
#include "convert/model.h"

struct cv_source;

struct cv_input {
    const char *path;
    int fd;                /* -1: not open */
    uint64_t size_bytes;
};

/* What the user said; borrowed until close. */
struct cv_source_options {
    const char *const *paths;   /* inputs: those of one set, in the order of their names */
    size_t npaths;
    const char *schema;         /* path; NULL: none (formats that describe themselves need none) */
    size_t memory_bytes;        /* that the source may take for indexes and buffers */
    const char *spool;          /* directory for temporary files of a format that can't be read at any place (compressed .npz); unlinked at once */
};

struct cv_source_ops {
    const char *name;           /* the word of from= */
    const char *summary;
    bool needs_schema;
    /* NULL: each input is one file. Else: is this one a directory, or in one that is read as a whole? Called before open. */
    bool (*directory)(const char *path, char dir[PATH_MAX]);
    /* Opens and checks all inputs and makes the model, blocks and all; nothing of the arrays is read. */
    int (*open)(const struct cv_source_options *o, struct cv_source **out, struct cv_fail *why);
    /* len bytes of input i from off on, all of them: a short file is -ENODATA. NULL: read_box is there. */
    int (*read_bytes)(struct cv_source *s, uint32_t input, uint64_t off, void *buf, size_t len, struct cv_fail *why);
    /* The box lo[], count[] of a block (in its own elements, without ghosts) packed in C order into buf. NULL: read_bytes is there. */
    int (*read_box)(struct cv_source *s, const struct cv_dataset *d, const struct cv_block *b, const uint64_t *lo, const uint64_t *count, void *buf,
                    struct cv_fail *why);
    void (*close)(struct cv_source *s);
};

/* First member of each source's own struct. */
struct cv_source {
    const struct cv_source_ops *ops;
    struct cv_model *model;
    struct cv_input *inputs;
    size_t ninputs;
};

extern const struct cv_source_ops cv_source_raw, cv_source_fortran, cv_source_npy, cv_source_npz, cv_source_group, cv_source_hdf5, cv_source_adios;
/* By the word of from=; NULL: none of that name. The list ends with NULL. */
const struct cv_source_ops *cv_source_find(const char *name);
extern const struct cv_source_ops *const cv_sources[];

/* For sources of plain files (source/files.c): opens all paths read-only into s->inputs; closes them and frees the table; pread of all or -ENODATA with a reason. */
int cv_inputs_open(struct cv_source *s, const struct cv_source_options *o, struct cv_fail *why);
void cv_inputs_close(struct cv_source *s);
int cv_inputs_read(struct cv_source *s, uint32_t input, uint64_t off, void *buf, size_t len, struct cv_fail *why);
/* How many files a process that wants to have `count` open may keep open; it may be more. The soft limit is raised for it. */
size_t cv_files_allowed(size_t count);

#endif
