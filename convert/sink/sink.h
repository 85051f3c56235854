/*
 * Where a conversion writes to: a format. One thread. The sink makes the file at `path` (a temporary name: the caller syncs, names and removes it), takes boxes of datasets in any order, each element once, and ends it.
 */
#ifndef CV_SINK_H
#define CV_SINK_H

#include "convert/fail.h"
#include "convert/model.h"

struct cv_sink;

enum cv_codec { CV_CODEC_NONE = 0, CV_CODEC_DEFLATE, CV_CODEC_ZSTD };

struct cv_sink_options {
    enum cv_codec codec;
    int level;                    /* of the codec */
    bool shuffle;                 /* bytes of elements sorted by significance before the codec */
    bool fletcher32;              /* a checksum for each chunk */
    size_t memory_bytes;          /* that the sink may take for caches and buffers */
    size_t align_bytes;           /* where chunks of the output had best begin, if they are as they are in memory: a power of two, of its file system; 0: not known */
    bool parallel;                /* all ranks of MPI_COMM_WORLD write the same file together (HDF5 and PnetCDF) */
    bool sparse;                  /* boxes that are not written have no space (parts of a virtual dataset) */
    const char *name;             /* that the file will have, for files that name it (XDMF) */
    /* to=raw: */
    const char *schema;           /* of the files that are written */
};

struct cv_sink_ops {
    const char *name;             /* the word of to= */
    const char *summary;
    const char *ending;           /* ".h5" */
    bool any_box;                 /* not chunked, and boxes may have any shape all the same: they follow the blocks of the input where it has them from a library */
    bool chunked;                 /* arrays are stored in chunks (plan.c chooses their shape); else as a whole, in C order */
    /* chunk: for each dataset CV_RANK_MAX numbers, the shape of its chunks; all 0: not chunked. Both are borrowed until close. */
    int (*create)(const char *path, const struct cv_model *m, const uint64_t (*chunk)[CV_RANK_MAX], const struct cv_sink_options *o, struct cv_sink **out,
                  struct cv_fail *why);
    /* A box of dataset i, elements packed in C order in the machine's byte order. Chunked: the box is made of whole chunks, cut at the array's edges. With parallel: every rank calls it
     * equally often; count 0 in any dimension (of a scalar: count[0]): this rank has nothing this time. */
    int (*write)(struct cv_sink *s, size_t i, const uint64_t *lo, const uint64_t *count, const void *buf, struct cv_fail *why);
    /* All is written: the file is whole behind this, not synced. Frees s in any case. */
    int (*close)(struct cv_sink *s, struct cv_fail *why);
    /* It is given up: frees s; the file is left for the caller to remove. */
    void (*abandon)(struct cv_sink *s);
};

struct cv_sink { const struct cv_sink_ops *ops; };

extern const struct cv_sink_ops cv_sink_hdf5, cv_sink_netcdf4, cv_sink_pnetcdf, cv_sink_raw;
const struct cv_sink_ops *cv_sink_find(const char *name);
extern const struct cv_sink_ops *const cv_sinks[];

/*
 * Before anything is read: attributes of the model become such as the format has. _FillValue, if it is one value of its dataset's type, is the fill value. What has a name that the format keeps for itself
 * gets another one, original_NAME, and so does a _FillValue that netCDF can't have: say (NULL: nobody) hears a line for each, which holds during the call. 0 or -ENOMEM.
 */
int cv_sink_settle(const struct cv_sink_ops *ops, struct cv_model *m, void (*say)(void *arg, const char *what), void *arg);
/* Before anything is written: names that the format refuses, types that it lacks, more dimensions than it has. */
int cv_sink_check(const struct cv_sink_ops *ops, const struct cv_model *m, struct cv_fail *why);

/* NAME.xmf beside an HDF5 file, for ParaView and VisIt: text at path (temporary); h5_name as the .xmf is to call it. */
int cv_xdmf_write(const char *path, const char *h5_name, const struct cv_model *m, struct cv_fail *why);
/*
 * A virtual dataset over part files of one model: path is made; part i lies at part_names[i] as seen from path's directory, and has the boxes that its datasets' attribute fp_boxes says.
 */
int cv_vds_write(const char *path, const char *const *part_paths, const char *const *part_names, size_t nparts, struct cv_fail *why);

#endif
