/* Back ends: where segments really are. One table of functions per kind (directory, memory).
 *
 * All functions block and are called on disk threads (or at start-up), several at a time, also for one
 * segment; the store's order of operations (store.h) is kept by the shell. 0 or negative errno. Fault points
 * of the wrappers: bnf.pwrite, bnf.pread, bnf.fallocate, bnf.punch, bnf.fdatasync. */
#ifndef BNF_BACKEND_H
#define BNF_BACKEND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "fp/limiter.h"
#include "fp/record.h"

/* An open segment. Reference-counted: its descriptor is closed with the last reference, so that a read under
 * way is not disturbed by the segment being unlinked. */
struct bnf_file {
    atomic_uint refs;
    int fd;
    bool o_direct; /* of fd: buffers, lengths and offsets must be multiples of 4 KiB */
    uint64_t segment;
    uint64_t salt;
    uint64_t limit_bytes;
    struct fp_limiter *limiter; /* the back end's, or NULL */
};

struct bnf_backend;

struct bnf_backend_ops {
    const char *name;
    bool volatile_data; /* gone with the process */
    int (*create)(struct bnf_backend *b, const struct fp_segment_header *h, struct bnf_file **out);
    int (*alloc)(struct bnf_backend *b, struct bnf_file *f, uint64_t off_bytes, uint64_t len_bytes);
    int (*punch)(struct bnf_backend *b, struct bnf_file *f, uint64_t off_bytes, uint64_t len_bytes);
    int (*unlink)(struct bnf_backend *b, struct bnf_file *f);
    int (*sync)(struct bnf_backend *b, struct bnf_file *f);
    int (*device_free)(struct bnf_backend *b, uint64_t *bytes); /* what the device can still take */
    int (*probe)(struct bnf_backend *b);                        /* 0: writing works (again) */
    /* 16 bytes that outlive the process, and need not outlive the node. NULL: nothing here does. */
    int (*keep)(struct bnf_backend *b, const uint64_t mark[2]);
    int (*kept)(struct bnf_backend *b, uint64_t mark[2]);
    void (*free)(struct bnf_backend *b);
};

/* An emulated device is a back end of either kind whose transfers wait as long as those of the device would take. */
struct bnf_backend {
    const struct bnf_backend_ops *ops;
    struct fp_limiter *limiter; /* NULL: as fast as it is */
    int limiter_fd;             /* of it, for other processes that read segments */
};

/* Segments in the directory that dir_fd (borrowed) is: DIR/segments. -ENOMEM. */
int bnf_backend_dir_new(int dir_fd, struct bnf_backend **out);
/* Is this the name of a segment in DIR/segments: "seg-" and 16 hex digits, its id? */
bool bnf_backend_dir_is_segment(const char *name);
/* Opens a segment that is there already, for recovery: name in the directory, header not looked at. read_only
 * is set when it can't be opened for writing. */
int bnf_backend_dir_open(struct bnf_backend *b, const char *name, bool *read_only, struct bnf_file **out);

/* Segments in memory (memfd); ahead_bytes of the segment being filled are made ready before they are leased.
 */
int bnf_backend_memory_new(uint64_t ahead_bytes, struct bnf_backend **out);

/* Before anything is opened. Whoever else may read or write segments has to be given the limiter, or no descriptor. 0 or negative errno. */
int bnf_backend_emulate(struct bnf_backend *b, const struct fp_limiter_spec *speed);
const char *bnf_backend_name(const struct bnf_backend *b); /* constant */

void bnf_backend_free(struct bnf_backend *b); /* NULL is fine; no call may be under way */

/* The wrappers that everybody uses. A file may be NULL in punch and unlink (its creation failed): nothing to
 * do. */
int bnf_backend_create(struct bnf_backend *b, const struct fp_segment_header *h, struct bnf_file **out);
int bnf_backend_alloc(struct bnf_backend *b, struct bnf_file *f, uint64_t off_bytes, uint64_t len_bytes);
int bnf_backend_punch(struct bnf_backend *b, struct bnf_file *f, uint64_t off_bytes, uint64_t len_bytes);
int bnf_backend_unlink(struct bnf_backend *b, struct bnf_file *f);
int bnf_backend_sync(struct bnf_backend *b, struct bnf_file *f);
int bnf_backend_probe(struct bnf_backend *b);

/* One operation each of the device that is emulated, if one is. Whole ranges or an error: short transfers go on; -EIO at the end of the file. iov is changed. Aligned if
 * f->o_direct. */
int bnf_file_write(struct bnf_file *f, struct iovec *iov, int iovcnt, uint64_t off_bytes);
int bnf_file_read(struct bnf_file *f, void *buf, size_t len_bytes, uint64_t off_bytes);

/* Takes the descriptor. NULL: out of memory (then fd is closed). One reference. */
struct bnf_file *bnf_file_new(int fd, bool o_direct, uint64_t segment, uint64_t salt, uint64_t limit_bytes);
struct bnf_file *bnf_file_get(struct bnf_file *f);
void bnf_file_put(struct bnf_file *f); /* NULL is fine */

/* A descriptor of f with an error state of its own, for another process: the kernel tells of a write-back that failed once
 * per open file, not once per holder. The caller's to close, or negative: then f->fd has to do. Does not block. */
int bnf_file_reopen(const struct bnf_file *f);

/* Header of a new segment at the beginning of its file. */
int bnf_file_write_header(struct bnf_file *f, const struct fp_segment_header *h);

#endif
