/*
 * fpdump: arrays of a parallel program into a process-group stream, which fp-convert makes HDF5 or netCDF of (docs/PROTOCOL.md, "Process-group streams").
 *
 * Each rank writes a file of its own, or one rank writes groups of several ranks into one file. A group is what a rank has at a time step: variables, each with its place in a global array, and
 * attributes. Nothing is collected from other ranks and nothing is written twice: a put costs a memcpy into a buffer of set size, and large writes one after another. At the end comes an index; a
 * stream that was cut off before it is read by its groups.
 *
 *     struct fpdump *f;
 *     struct fpdump_options o = {.rank = rank, .ranks = ranks};
 *     uint64_t global[3] = {nz, ny, nx}, offset[3] = {z0, 0, 0}, local[3] = {z1 - z0, ny, nx};
 *
 *     fpdump_open("out.0001.fpd", &o, &f);
 *     fpdump_begin(f, step);
 *     fpdump_put(f, "/temperature", FPDUMP_FLOAT64, 3, global, offset, local, t);
 *     fpdump_attr_text(f, "/temperature", "units", "K");
 *     fpdump_attr_text(f, "/temperature", "dims", "z y x");
 *     fpdump_end(f);
 *     rc = fpdump_close(f);
 *
 * All functions return 0 or a negative errno. The first error stays: later calls return it and write nothing, so that it is enough to look at what fpdump_close returns. One thread at a time for each
 * stream; all calls but those of attributes may block for the disk. Needs libc alone.
 */
#ifndef FPDUMP_H
#define FPDUMP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fpdump; /* opaque */

#define FPDUMP_DIMS_MAX     7u
#define FPDUMP_NAME_MAX     255u                /* bytes of a name */
#define FPDUMP_BUFFER_BYTES (size_t)(4u << 20)  /* what buffer_bytes = 0 says */

/* Kind * 256 + bytes of an element. */
enum fpdump_type {
    FPDUMP_INT8 = 0x101,
    FPDUMP_INT16 = 0x102,
    FPDUMP_INT32 = 0x104,
    FPDUMP_INT64 = 0x108,
    FPDUMP_UINT8 = 0x201,
    FPDUMP_UINT16 = 0x202,
    FPDUMP_UINT32 = 0x204,
    FPDUMP_UINT64 = 0x208,
    FPDUMP_FLOAT32 = 0x304,
    FPDUMP_FLOAT64 = 0x308,
    FPDUMP_COMPLEX64 = 0x408,  /* two floats */
    FPDUMP_COMPLEX128 = 0x410, /* two doubles */
};

struct fpdump_options {
    uint32_t rank, ranks;    /* of this writer; ranks 0: not said */
    size_t buffer_bytes;     /* a multiple of 4096; all writes but the last begin at multiples of it. 0: 4 MiB */
    int no_checksum;         /* 1: payloads have no checksum (headers and index always have one) */
    int sync;                /* 1: fpdump_close calls fsync */
};

/* Makes path, or empties it. o NULL: rank 0, all else 0. -EINVAL: an option; -ENOMEM; what open(2) says. *out is there on success only. */
int fpdump_open(const char *path, const struct fpdump_options *o, struct fpdump **out);
/* A group begins: what this rank, or another for which it writes, has at a step. -EBUSY: one is open. */
int fpdump_begin(struct fpdump *f, uint64_t step);
int fpdump_begin_rank(struct fpdump *f, uint64_t step, uint32_t rank);
/*
 * A block of a global array of ndims (0 .. 7) dimensions in C order (the last varies fastest): local[i] elements from offset[i] on, contiguous at data. The bytes are taken before it returns. name is
 * a path ("/fields/t"; without a slash at its beginning it is put there). Type and global dimensions are the same in all groups of all ranks. -EINVAL: outside of a group, or arguments that do not fit.
 */
int fpdump_put(struct fpdump *f, const char *name, enum fpdump_type type, unsigned ndims, const uint64_t *global, const uint64_t *offset, const uint64_t *local, const void *data);
/*
 * An attribute of a variable, or of the whole (variable NULL or ""), in a group; of two of one name the later one counts. text is UTF-8. Attribute "dims" of a variable names its dimensions:
 * "z y x". -EMSGSIZE: more than 60000 bytes.
 */
int fpdump_attr_text(struct fpdump *f, const char *variable, const char *name, const char *text);
int fpdump_attr_ints(struct fpdump *f, const char *variable, const char *name, const int64_t *values, size_t count);
int fpdump_attr_floats(struct fpdump *f, const char *variable, const char *name, const double *values, size_t count);
/* The group is complete. -EINVAL: none is open. */
int fpdump_end(struct fpdump *f);
/* Writes the index (an open group is ended before), closes, frees. The result is that of the whole stream: the first error of any call. */
int fpdump_close(struct fpdump *f);

#ifdef __cplusplus
}
#endif

#endif
