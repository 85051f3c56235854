/* A file as streams of records: what draining with layout=log leaves in a target, and what fpctl merge makes a file of.
 *
 * F.fplog is a directory. In it are streams, files that only ever grow, one for each benefactor (one that was started anew begins another), and
 * `index`, which says of what record each byte of the file is. Mode, owner, times and attributes of the index are those of the file. All numbers are
 * little-endian; records begin at multiples of 4 KiB, so that they are written past the page cache.
 *
 *     record              at  bytes                            index               at  bytes
 *     "FPDLOGR1"           0  8                                "FPDLOGI1"           0  8
 *     log                  8  8  of which it is                log                  8  8
 *     extents             16  4                                size of the file    16  8
 *     header bytes        20  4  a multiple of 4 KiB           bytes in records    24  8  the rest is holes
 *     data bytes          24  8                                streams             32  4
 *     sum                 32  8                                records             36  4
 *     0                   40 24                                bytes of the index  40  8
 *                                                              sum                 48  8
 *     extents             64  each 24: offset in the file      0                   56  8
 *                             (8), sum of the data (8),        streams             64  each 64: its name, zeros to the end
 *                             bytes (4), 0 (4)                 records                 each 32: stream (4), header bytes (4), where in
 *     0                       to the end of the header                                 it (8), data bytes (8), sum of the header (8)
 *     data                    of one extent after the other
 *     0                       to a multiple of 4 KiB
 *
 * A sum in a head is the XXH3-64 of all that follows it (of a record: of its header), seeded with the XXH3-64 of what is before it. Extents of a record are
 * in ascending order and do not overlap. Sums of data are as of chunks (fp_sum_chunk of its block sums).
 * Functions of dlog.c: any thread, no I/O. */
#ifndef FP_DLOG_H
#define FP_DLOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FP_DLOG_SUFFIX         ".fplog"
#define FP_DLOG_INDEX          "index"
#define FP_DLOG_ALIGN          4096u
#define FP_DLOG_HEAD_BYTES     64u
#define FP_DLOG_EXTENTS_MAX    65536u      /* of a record */
#define FP_DLOG_DATA_MAX_BYTES (16u << 20) /* of a record */
#define FP_DLOG_NAME_BUF       64u         /* of a stream, with its NUL */
#define FP_DLOG_STREAMS_MAX    65536u
#define FP_DLOG_RECORDS_MAX    (16u << 20)
#define FP_DLOG_INDEX_MAX      (1u << 30)  /* bytes */
#define FP_DLOG_WHY_BUF        512u

struct fp_dlog_extent {
    uint64_t off, sum;
    uint32_t len;
};

struct fp_dlog_place { /* a record */
    uint32_t stream, header_bytes;
    uint64_t at, data_bytes, sum; /* sum: of the header */
};

struct fp_dlog_index {
    uint64_t log, size, data_bytes;
    uint32_t nstreams, nrecords;
    char (*stream)[FP_DLOG_NAME_BUF]; /* malloc'd */
    struct fp_dlog_place *record;     /* malloc'd */
};

static inline uint64_t fp_dlog_pages(uint64_t bytes)
{
    return (bytes + FP_DLOG_ALIGN - 1) / FP_DLOG_ALIGN * FP_DLOG_ALIGN;
}
static inline uint32_t fp_dlog_header_bytes(uint32_t nextents)
{
    return (uint32_t)fp_dlog_pages(FP_DLOG_HEAD_BYTES + 24ull * nextents);
}
/* As fp_sum_chunk of the block sums of this. len <= FP_DLOG_DATA_MAX_BYTES. */
uint64_t fp_dlog_sum(const void *data, uint32_t len);

/* out: fp_dlog_header_bytes(n) of them. The extents must be as they must be. Returns the header's sum. */
uint64_t fp_dlog_record_encode(uint8_t *out, uint64_t log, const struct fp_dlog_extent *e, uint32_t n);
/* The first FP_DLOG_HEAD_BYTES of a header: how long it is, and the record's data. 0; -ENODATA: here no record of this log begins; FP_ECORRUPT. */
int fp_dlog_record_head(const uint8_t head[FP_DLOG_HEAD_BYTES], uint64_t log, uint32_t *header_bytes, uint64_t *data_bytes);
/* A whole header of len bytes. e: room for FP_DLOG_EXTENTS_MAX, or as many as fit into len. 0 and how many; else as _head. */
int fp_dlog_record_decode(const uint8_t *in, uint32_t len, uint64_t log, struct fp_dlog_extent *e, uint32_t *n, uint64_t *sum);

/* in[0, p->header_bytes) is that of the record which the index names, and its extents are in the file: 0 and these; else FP_ECORRUPT. */
int fp_dlog_record_is(const uint8_t *in, const struct fp_dlog_index *x, const struct fp_dlog_place *p, struct fp_dlog_extent *e, uint32_t *n);
/* The first of n extents whose data, one after the other, has not its sum; n: all have. */
uint32_t fp_dlog_data_differs(const uint8_t *data, const struct fp_dlog_extent *e, uint32_t n);
/* Sorts them. False: a byte of the file is in two of them, *at. */
bool fp_dlog_extents_apart(struct fp_dlog_extent *e, size_t n, uint64_t *at);

/* Of an index, by its first FP_DLOG_HEAD_BYTES: with another sum it is another one. */
uint64_t fp_dlog_index_sum(const uint8_t *head);
/* *out: malloc'd. 0 or -ENOMEM. */
int fp_dlog_index_encode(const struct fp_dlog_index *x, uint8_t **out, size_t *len);
/* 0 (fp_dlog_index_fini afterwards), FP_ECORRUPT, -ENODATA: it is no index; -ENOMEM. Names of streams are good as names. */
int fp_dlog_index_decode(const uint8_t *in, size_t len, struct fp_dlog_index *x);
void fp_dlog_index_fini(struct fp_dlog_index *x);

/* ---------------------------------------------------------------- dlogmerge.c: blocks on files */

struct fp_dlog_merge {
    const char *log, *to; /* directory F.fplog; the file that is made */
    bool replace;         /* a file that is there, unless a store relies on it (fp/needed.h); -EPERM then */
    bool replace_needed;  /* … also if one does */
    bool verify;          /* read back what was written */
    unsigned threads;     /* 1 .. FP_DLOG_THREADS_MAX */
    void (*progress)(void *arg, uint64_t done, uint64_t all); /* or NULL: so many bytes are written, or compared; by one thread at a time */
    void *arg;
    /* Afterwards: */
    uint64_t size, written, verified;
    char why[FP_DLOG_WHY_BUF]; /* of a failure */
};
#define FP_DLOG_THREADS_MAX 16u
/* The whole of it: a temporary file beside `to`, all bytes compared with their sums before they are written, fsync, the attributes of the index, rename, fsync
 * of the directory. A temporary file that a merge before has left is taken over. 0; or a negative code with why, and nothing is there that was not before. */
int fp_dlog_merge(struct fp_dlog_merge *m);

#endif
