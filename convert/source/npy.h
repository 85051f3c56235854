/* Headers of NumPy's arrays, and the model of arrays that describe themselves: what from=npy and from=npz share. No I/O. */
#ifndef CV_SOURCE_NPY_H
#define CV_SOURCE_NPY_H

#include "convert/source/source.h"

#define CV_NPY_HEAD_MAX 10240u /* of a header, magic and all; NumPy itself reads no more than 10000 bytes */

struct cv_npy_head {
    struct cv_type type;
    bool boolean;                /* stored as uint8 */
    bool fortran_order;          /* dims[] are those of the bytes as they lie: reversed */
    unsigned rank;
    uint64_t dims[CV_RANK_MAX];  /* the last varies fastest */
    uint64_t head_bytes;         /* from the magic to the first element */
    uint64_t data_bytes;
};

/* Of the first len bytes of an array's file (CV_NPY_HEAD_MAX or all of it). at: their place in file, for reasons. 0, -EINVAL, -ENODATA (ends in the header), -ENOTSUP (a type). */
int cv_npy_head_parse(const uint8_t *bytes, size_t len, const char *file, const char *dataset, uint64_t at, struct cv_npy_head *out, struct cv_fail *why);

/* One array of an input: a file, or a member of an archive. */
struct cv_array {
    char *name;                  /* dataset's path */
    uint32_t input;
    uint64_t base;               /* of its first element, as read_bytes counts */
    struct cv_npy_head head;
};

/*
 * s->model of these: a dataset each, or, with a schema, the datasets and blocks that it says, compared with the headers. by_name: arrays are found by their names (members of archives); else an
 * input is one array, and the schema has one dataset. s->inputs is there; arrays are in the order of their inputs.
 */
int cv_arrays_model(struct cv_source *s, const struct cv_array *arrays, size_t narrays, const char *schema, bool by_name, struct cv_fail *why);

/* "/stem", or "/stem/member" of a path (suffix, ".npy", is cut off; member NULL: none) into name[CV_NAME_MAX + 1]. -EINVAL, and what for: no name of a dataset. */
int cv_name_of_file(const char *path, const char *suffix, const char *member, char *name, struct cv_fail *why);
/* NULL: name is a path of a dataset. Else what is wrong with it. */
const char *cv_name_wrong(const char *name);

#endif
