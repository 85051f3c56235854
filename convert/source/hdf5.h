/* The HDF5 source's own: what it has open, and how its model is made. One thread. */
#ifndef CV_SOURCE_HDF5_H
#define CV_SOURCE_HDF5_H

#include "convert/sink/h5util.h"
#include "convert/source/source.h"

#define CV_H5_FILES 32u /* open at a time */
#define CV_H5_SETS  4u

/* Where a block lies in the dataset of its file. */
enum cv_h5_way {
    CV_H5_WHOLE = 0, /* the block is the dataset */
    CV_H5_CHUNKS,    /* the same, and the blocks are its chunks, which filters make: each is to be read once, and gives the result's chunks their shape */
    CV_H5_BOXES,     /* at its own place: the dataset has the whole shape, and its attribute fp_boxes says what is in it */
    CV_H5_PIECE,     /* the dataset is the block, and its attributes global_shape and offset say where it belongs */
    CV_H5_SCHEMA,    /* the dataset is the block and its ghosts, of all steps perhaps, and a schema says where it belongs */
};

struct cv_h5_about {
    enum cv_h5_way way;
    bool no_steps; /* the model's first dimension is not in the file */
};

struct cv_h5_file { hid_t id; uint32_t input; uint64_t used; };
struct cv_h5_set { hid_t id; uint32_t input; uint64_t dataset, used; };

struct cv_h5_source {
    struct cv_source base;
    struct cv_h5_about *about; /* by id of a dataset */
    size_t memory_bytes;
    size_t nblocks;            /* of all datasets */
    struct cv_h5_file files[CV_H5_FILES];
    struct cv_h5_set sets[CV_H5_SETS];
    uint64_t clock;
    hid_t transfer;             /* how elements are read: a filter that fails says which one it is */
    H5Z_filter_t failed_filter; /* H5Z_FILTER_NONE: none in this read */
};

/* An input, open: valid until another one is asked for. */
int cv_h5_source_file(struct cv_h5_source *s, uint32_t input, hid_t *out, struct cv_fail *why);
/* s->base.model and s->about, of what the files say; or of a schema whose datasets have the names of those in the files. (hdf5model.c) */
int cv_h5_model(struct cv_h5_source *s, struct cv_fail *why);
int cv_h5_model_schema(struct cv_h5_source *s, const char *schema, struct cv_fail *why);

#endif
