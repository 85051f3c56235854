/* What the files of this folder and source/hdf5.c share of HDF5. One thread, as the library. */
#ifndef CV_H5UTIL_H
#define CV_H5UTIL_H

#include <hdf5.h>

#include "convert/fail.h"
#include "convert/model.h"
#include "convert/sink/sink.h"

/* Once, before anything else: HDF5 prints no errors of its own, and knows the zstd filter. */
void cv_h5_begin(void);
/*
 * What HDF5 has said last, as a reason: its innermost words, and -ENOSPC, -EDQUOT, -EIO, … where a system call failed, else -EBADMSG: it will not pass by itself. `what` is put before it.
 */
int cv_h5_fail(struct cv_fail *why, const char *file, const char *dataset, const char *what);
/* Closes an identifier of any kind, if it is one. Reasons are taken before: each call clears HDF5's words of the one that failed. */
void cv_h5_put(hid_t id);
/* The type of an element in memory and in files that we write: the machine's own. To be closed. Negative: HDF5 failed. */
hid_t cv_h5_type(struct cv_type t);
/*
 * Where chunks of CV_LARGE_BYTES and more begin, for H5Pset_alignment: at multiples of o->align_bytes if that wastes nothing (all are whole multiples of it, and none is coded: so a store finds in the result the chunks that the dump
 * has), else of a page.
 */
hsize_t cv_h5_alignment(const struct cv_model *m, const uint64_t (*chunk)[CV_RANK_MAX], const struct cv_sink_options *o);
/* Numbers of a type that we know: false: it is none (text, references, …). Opaque byte orders are taken for the machine's. */
bool cv_h5_known(hid_t type, struct cv_type *out);

/* Attributes that HDF5's dimension scales and netCDF-4 keep for themselves. */
bool cv_h5_reserved(const char *name);
/* Attributes of a model onto an object. Reserved names are left out. 0 or negative. */
int cv_h5_put_attrs(hid_t object, const struct cv_attrs *a);
/* Attributes that were left out: how many, and the first one's name. */
struct cv_h5_left { unsigned count; char first[64]; };
/* And back: text, integers and floats, scalar or one-dimensional, of at most 64 KiB; others but reserved ones are left out, as *left says (NULL: nobody asks). 0 or -ENOMEM. */
int cv_h5_get_attrs(hid_t object, struct cv_attrs *a, struct cv_h5_left *left);
/* Integers of an attribute, at most so many: *values to be freed. 0, -ENOENT, -EINVAL (no integers, or too many), -ENOMEM, -EIO. */
int cv_h5_get_ints(hid_t object, const char *name, size_t most, int64_t **values, size_t *n);

/* Dimension scales for all named dimensions; datasets are open, in the order of the model. (h5dims.c) */
int cv_h5_dims(hid_t file, const struct cv_model *m, const hid_t *datasets);
/* And back: the names of d's dimensions, by the first scale of each in the file, or by its label. 0 or -ENOMEM. */
int cv_h5_get_dims(hid_t dataset, const char *path, unsigned rank, struct cv_dataset *d);
/* A dimension's scale without values, that is none of the arrays. */
bool cv_h5_is_only_scale(hid_t dataset);

#define CV_H5_ZSTD 32015 /* registered with The HDF Group */
/* The pipeline of a chunked dataset. */
herr_t cv_h5_filters(hid_t dcpl, const struct cv_sink_options *o, size_t element_bytes);
/*
 * What the pipeline (without a checksum) makes of a chunk, for H5Dwrite_chunk: *out is in or one of the two buffers, each of cv_h5_room(bytes). *mask: filters that were passed over since they gain nothing.
 */
size_t cv_h5_room(size_t bytes);
int cv_h5_encode(const struct cv_sink_options *o, const uint8_t *in, size_t bytes, size_t element_bytes, uint8_t *shuffled, uint8_t *packed, const uint8_t **out, size_t *out_bytes, uint32_t *mask);
/* A chunk's checksum, as the filter fletcher32 puts it behind len bytes: there is room for CV_H5_SUM_BYTES more. */
#define CV_H5_SUM_BYTES 4u
void cv_h5_sum(uint8_t *data, size_t len);

#endif
