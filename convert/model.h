/*
 * What a conversion works on: datasets, the blocks of which each is made, and where the bytes of a block are. No I/O.
 *
 * A dataset is a global array in C order (the last dimension varies fastest), whatever the input's order was: arrays of Fortran have their dimensions
 * reversed when they come in. A block is a hyper-rectangle of it that one writer (a rank, a file, a process group) stored as an array of its own, perhaps with ghost
 * cells around it. Sources make a model (source/source.h), the engine assembles tiles of it (engine/engine.h), sinks write them (sink/sink.h).
 *
 * Memory: a model owns all that it points to; cv_model_free ends it. Names are of the model until then.
 */
#ifndef CV_MODEL_H
#define CV_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CV_RANK_MAX    8u        /* dimensions: 7 of an array, and time steps before them */
#define CV_DATASETS_MAX 4096u
#define CV_BLOCKS_MAX  1048576u  /* of one dataset */
#define CV_FILES_MAX   1048576u  /* of one set */
#define CV_NAME_MAX    255u      /* bytes of a dataset's path, "/fields/temperature", and of a dimension's or an attribute's name */

enum cv_kind { CV_INT = 1, CV_UINT, CV_FLOAT, CV_COMPLEX };

struct cv_type {
    enum cv_kind kind;
    uint8_t size_bytes;  /* 1, 2, 4, 8 (float: 4, 8; complex: 8, 16) of one element */
    bool big_endian;     /* as it is stored in the input */
};

struct cv_dim {
    char *name;          /* NULL: none. Datasets that name the same dimension share its scale */
    uint64_t size;       /* elements; 0 is allowed (nothing to convert) */
    bool steps;          /* the leading dimension of time steps: unlimited in the output */
};

enum cv_attr_kind { CV_ATTR_TEXT = 1, CV_ATTR_INTS, CV_ATTR_FLOATS };
struct cv_attr {
    char *name;
    enum cv_attr_kind kind;
    char *text;          /* UTF-8 */
    int64_t *ints;
    double *floats;
    size_t count;        /* of ints or floats; 1: a scalar */
};
struct cv_attrs { struct cv_attr *items; size_t count; };

/* count[d] elements, at global start[d], start[d] + stride[d], … of each dimension d of its dataset. */
struct cv_block {
    uint64_t start[CV_RANK_MAX], count[CV_RANK_MAX];
    uint64_t stride[CV_RANK_MAX];            /* 1: without gaps */
    uint32_t ghost_lo[CV_RANK_MAX], ghost_hi[CV_RANK_MAX]; /* stored around count[], and cut off */
    uint32_t input;                          /* which input file, index of cv_source.inputs */
    uint64_t offset_bytes;                   /* of the first stored element (a ghost, if there are any) in the input's bytes, as cv_source_ops.read_bytes counts them */
    uint64_t id;                             /* the source's own: e.g. number of a block in the library's terms */
};

enum cv_gaps { CV_GAPS_REFUSE = 0, CV_GAPS_FILL };
enum cv_overlap { CV_OVERLAP_REFUSE = 0, CV_OVERLAP_LAST };  /* LAST: of the block that comes later in blocks[] */
enum cv_nan { CV_NAN_KEEP = 0, CV_NAN_REFUSE };              /* infinities are kept in both */

struct cv_dataset {
    char *name;                    /* absolute path, without a slash at its end */
    struct cv_type type;
    unsigned rank;                 /* 0: a scalar */
    struct cv_dim dims[CV_RANK_MAX];
    struct cv_attrs attrs;         /* units, long_name, … */
    struct cv_block *blocks;
    size_t nblocks;
    enum cv_gaps gaps;
    enum cv_overlap overlap;
    enum cv_nan nan;
    bool has_fill;
    double fill;                   /* of elements that no block has (gaps = FILL); NaN for floats if !has_fill, else 0 */
    bool fill_is_whole;            /* then fill_whole is the same of an integer, exactly: a double rounds beyond 2^53 */
    int64_t fill_whole;            /* of uint64 beyond 2^63 its bits */
    uint64_t id;                   /* the source's own */
};

struct cv_model {
    struct cv_dataset *datasets;
    size_t ndatasets;
    struct cv_attrs attrs;         /* of the whole */
};

struct cv_model *cv_model_new(void);
void cv_model_free(struct cv_model *m); /* NULL is none */
/* A new dataset at the end, zeroed but for the name (copied); valid until the next one is added. NULL: out of memory or more than CV_DATASETS_MAX. */
struct cv_dataset *cv_model_add(struct cv_model *m, const char *name);
struct cv_dataset *cv_model_find(const struct cv_model *m, const char *name);
/* Blocks grow: a new one, zeroed but for stride 1. NULL as above. */
struct cv_block *cv_dataset_block(struct cv_dataset *d);
/* 0 or -ENOMEM. Names and values are copied; one of the same name is replaced. */
int cv_attrs_text(struct cv_attrs *a, const char *name, const char *text);
int cv_attrs_ints(struct cv_attrs *a, const char *name, const int64_t *values, size_t count);
int cv_attrs_floats(struct cv_attrs *a, const char *name, const double *values, size_t count);
const struct cv_attr *cv_attrs_find(const struct cv_attrs *a, const char *name);
/* Does it go into the file in the type of its dataset? CF and netCDF want that of missing_value, valid_range and the like; what the type does not hold would become another value. */
bool cv_attr_is_value(const struct cv_attr *a, struct cv_type of_dataset);
/* Elements of the whole array; false: more than 2^63 bytes. */
bool cv_dataset_elements(const struct cv_dataset *d, uint64_t *count);
/* Elements of a block with its ghosts, in dimension i. */
uint64_t cv_block_stored(const struct cv_block *b, unsigned i);
/* "float64", "int32", "complex128": for people and schemas. */
const char *cv_type_name(struct cv_type t);
/* Can an element have this value? Integers are compared exactly; of floats any number is taken that does not become infinite by it. Text is no value. */
bool cv_type_holds(struct cv_type t, double v);
bool cv_type_holds_whole(struct cv_type t, int64_t v);
bool cv_type_holds_all(struct cv_type t, const struct cv_attr *a);
#define CV_FILL_NAME "_FillValue"
/* The one number that an attribute has becomes the dataset's fill value. False, and nothing is changed: it is no value of its type. */
bool cv_dataset_take_fill(struct cv_dataset *d, const struct cv_attr *a);
/* From "float64", "double", "f8", "<f8", ">i4", …: 0 or -EINVAL. A word without an order has that of *t as it was. */
int cv_type_parse(const char *text, struct cv_type *t);

#endif
