/*
 * What a schema holds once its text has been read: struct cv_schema, and how its values are read. For the files of this folder alone; schema.h is for all others.
 *
 * Dimensions, blocks, ghosts and grids are kept as the text gives them (order: fortran: the first varies fastest); place.c turns them round for the model.
 */
#ifndef CV_SCHEMA_PARTS_H
#define CV_SCHEMA_PARTS_H

#include "convert/schema/schema.h"
#include "convert/schema/tree.h"

#define CV_SCHEMA_DIMS_MAX  7u        /* of an array, time steps apart */
#define CV_SCHEMA_RANKS_MAX CV_BLOCKS_MAX
#define CV_SCHEMA_GHOST_MAX 1048576u

enum cv_layout { CV_LAYOUT_FILES = 0, CV_LAYOUT_SHARED, CV_LAYOUT_SEGMENTS, CV_LAYOUT_GLOBAL };
enum cv_blocks { CV_BLOCKS_DEFAULT = 0, CV_BLOCKS_GRID, CV_BLOCKS_WHOLE, CV_BLOCKS_LIST };

struct cv_grid {
    unsigned rank;                    /* 0: none */
    uint64_t dims[CV_SCHEMA_DIMS_MAX];
    bool spread;                      /* part i of p begins at i * n / p: remainders lie anywhere; else the first have one more each */
};

struct cv_extent {
    uint64_t start[CV_SCHEMA_DIMS_MAX], count[CV_SCHEMA_DIMS_MAX], stride[CV_SCHEMA_DIMS_MAX];
};

struct cv_schema_dataset {
    char *name;
    struct cv_type type;
    unsigned rank;
    struct cv_dim dims[CV_SCHEMA_DIMS_MAX];
    enum cv_blocks blocks;            /* never DEFAULT but where the number of ranks is not known from the text */
    struct cv_grid grid;
    struct cv_extent *list;
    size_t nlist;
    uint32_t ghost_lo[CV_SCHEMA_DIMS_MAX], ghost_hi[CV_SCHEMA_DIMS_MAX];
    uint64_t skip_bytes, offset_bytes;
    bool has_skip, has_offset;
    uint64_t record;                  /* 0: the next one */
    enum cv_gaps gaps;
    enum cv_overlap overlap;
    enum cv_nan nan;
    bool has_fill;
    double fill;
    struct cv_attrs attrs;
    unsigned line, column;
};

struct cv_schema {
    char *name;                       /* of the text, for messages */
    bool fortran, big_endian;
    uint64_t header_bytes, step_header_bytes;
    enum cv_layout layout;
    uint64_t ranks;                   /* 0: not given */
    uint64_t first_rank;              /* the number that the first one has in names */
    struct cv_grid grid;
    bool grid_fortran;                /* the first number of the grid varies fastest with the rank */
    char *rank_name;                  /* template of names; NULL: none */
    uint64_t steps;                   /* 0: all that are there */
    struct cv_dim *dims;
    size_t ndims;
    struct cv_schema_dataset *datasets;
    size_t ndatasets;
    struct cv_attrs attrs;
};

/* ---------------------------------------------------------------- values.c */

struct cv_reading {
    struct cv_schema *s;
    struct cv_fail *why;
};

struct cv_key {
    const char *name;
    int (*take)(struct cv_reading *r, const struct cv_node *n, void *into);
    bool needed;
};

/* At a node, "line L, column C: …". -EINVAL. */
int cv_mistake(const struct cv_reading *r, const struct cv_node *at, const char *format, ...) __attribute__((format(printf, 3, 4)));
int cv_no_memory(const struct cv_reading *r);
/* The keys of a map, in the order of the table (which ends with a NULL name); others are mistakes. what: "a dataset", for messages. */
int cv_take_keys(struct cv_reading *r, const struct cv_node *map, const char *what, const struct cv_key *keys, void *into);
/* A whole number of at least min and at most max; what: its name in messages. */
int cv_take_number(const struct cv_reading *r, const struct cv_node *n, const char *what, uint64_t min, uint64_t max, uint64_t *out);
/* Bytes: 512, 4KiB. */
int cv_take_size(const struct cv_reading *r, const struct cv_node *n, const char *what, uint64_t *out);
/* One of words (ends with NULL): its index. */
int cv_take_word(const struct cv_reading *r, const struct cv_node *n, const char *what, const char *const *words, unsigned *out);
/* A list of just n whole numbers. */
int cv_take_numbers(const struct cv_reading *r, const struct cv_node *list, const char *what, unsigned n, uint64_t min, uint64_t max, uint64_t *out);
/* A number with or without a fraction, .nan, .inf; false: it is none. */
bool cv_is_float(const char *text, double *out);
/* Text; it is borrowed from the node. */
int cv_take_text(const struct cv_reading *r, const struct cv_node *n, const char *what, const char **out);
int cv_take_attributes(struct cv_reading *r, const struct cv_node *map, struct cv_attrs *a);
/* What a dimension, an attribute or a part of a path may be called: not empty, no slash, no control character, not too long. */
int cv_check_name(const struct cv_reading *r, unsigned line, unsigned column, const char *what, const char *name);

/* ---------------------------------------------------------------- datakeys.c, ranks.c */

int cv_take_grid(struct cv_reading *r, const struct cv_node *list, struct cv_grid *g, uint64_t *ranks);
int cv_take_dataset(struct cv_reading *r, const struct cv_node *n, struct cv_schema_dataset *d);
void cv_schema_dataset_fini(struct cv_schema_dataset *d);

/* The block of rank r in dims[] split by g: remainders go to the first. All in the order of g. */
void cv_grid_block(const struct cv_grid *g, bool fortran, const uint64_t *dims, uint64_t r, uint64_t *start, uint64_t *count);
/* "" or what is wrong with a template of names. */
const char *cv_rank_template_check(const char *template);
/* The number in a file's name: as template says, or (NULL) the last one. False: there is none. */
bool cv_rank_of_name(const char *template, const char *path, uint64_t *number);
/* Which rank each file has, by its name: file_of[0 … nranks - 1]. */
int cv_rank_files(const struct cv_schema *s, const struct cv_schema_file *files, size_t nfiles, uint64_t nranks, uint32_t *file_of, struct cv_fail *why);

#endif
