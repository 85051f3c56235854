/*
 * What fp-benefactor and fp-drain say to each other: one SOCK_SEQPACKET pair and a status page, inherited at fork+exec (fp/child.h).
 *
 * fp-drain is one process for one target (a directory of a file system that is not ours, mostly the parallel one). It does what the benefactor
 * tells it, task by task, and keeps nothing: a worker that dies loses no more than the time of its tasks, which the benefactor gives to the next one.
 * Whatever may hang for ever is done by its threads; its main thread reads the socket and nothing else, so that it hears of the end.
 *
 * Both ends are of the same build. Structs are in the byte order and layout of the node. A message is one struct below, followed by what its comment
 * says, without NULs. Paths are relative to the target's root: names in one another, none of them empty, "." or "..".
 */
#ifndef FP_DRAINWIRE_H
#define FP_DRAINWIRE_H

#include <stdatomic.h>
#include <stdint.h>

#define FP_DW_MESSAGE_MAX_BYTES (192u << 10)   /* of one packet */
#define FP_DW_WHOLE_MAX_BYTES (4u << 20)       /* of a message to fp-drain: what is longer than a packet goes on in the next ones, which have no head */
#define FP_DW_FD_SOCKET 3
#define FP_DW_FD_PAGE 4
#define FP_DW_THREADS_MAX 8u
#define FP_DW_READERS 4u               /* more threads, for READ, LIST and STAT alone: programs wait for these, and the others may be held back */
#define FP_DW_OPS_MAX (FP_DW_THREADS_MAX + FP_DW_READERS)
#define FP_DW_SLICES_MAX 65536u        /* of one message; a window has no more */
#define FP_DW_WINDOWS_MAX 4096u        /* sums of one message */
#define FP_DW_PLUGIN_DIR_MAX 256u
#define FP_DW_LINK_MAX 4095u
#define FP_DW_TMP_MAX 200u             /* bytes of a temporary name */
#define FP_DW_WINDOW_MAX_BYTES (16u << 20)

#define FP_DW_TEMP_DIR ".fp-drain"     /* temporary files, below the root */
#define FP_DW_MARKER ".fp-target"      /* a line "STORE TARGET" (UUIDs, 32 hexadecimal digits each) for each store that drains to here */
#define FP_DW_MARK_XATTR "user.fp.drain"   /* of a file that a store has drained: STORE8:INODE:VERSION */
#define FP_DW_NEED_XATTR "user.fp.needed"  /* of one that it relies on: drain/needed.c */

enum fp_dw_type {
    FP_DW_NONE,
    /* fp-benefactor -> fp-drain */
    FP_DW_CONFIG,                      /* struct fp_dw_config + root (absolute) + where aux-apps are + their declarations, a NUL after each; first, once. With a
                                          descriptor (SCM_RIGHTS): reading segments takes as long as on the device of that limiter (fp/limiter.h) */
    FP_DW_SEG_ADD,                     /* struct fp_dw_seg, with a descriptor (SCM_RIGHTS) */
    FP_DW_SEG_DROP,                    /* struct fp_dw_seg; tasks that were told before may still use it */
    FP_DW_PACE,                        /* struct fp_dw_pace */
    FP_DW_CANCEL,                      /* struct fp_dw_head: this task, also if it runs. It is answered all the same */
    FP_DW_PREPARE,                     /* struct fp_dw_file + path + tmp + mark: makes the temporary file; by its mode a symbolic link to mark, or the directory itself */
    FP_DW_WRITE,                       /* struct fp_dw_write + tmp + struct fp_dw_slice[nslices] */
    FP_DW_FINISH,                      /* struct fp_dw_file + path + tmp + mark + xattrs: attributes, fsync, rename */
    FP_DW_VERIFY,                      /* struct fp_dw_verify + path or tmp + uint64_t sum[count] (0: not looked at) + struct fp_dw_range[nothers] (both not aligned) */
    FP_DW_STAT,                        /* struct fp_dw_file + path */
    FP_DW_SWEEP,                       /* struct fp_dw_file + prefix: names in FP_DW_TEMP_DIR that begin with it, as NAMES */
    FP_DW_CLEAN,                       /* struct fp_dw_file + tmp: is removed */
    FP_DW_PROBE,                       /* struct fp_dw_file + tmp + mark: can the target be written to? FP_DW_MAKE_MARKER */
    FP_DW_MEMORY,                      /* struct fp_dw_head, with a descriptor: where READ puts what it reads; once, before the first */
    FP_DW_READ,                        /* struct fp_dw_read + path: bytes of a file; sum[]: of its blocks */
    FP_DW_MERGE,                       /* struct fp_dw_merge + path + tmp + log: a step of making a file of a log. PREPARE answers sum[]: of the index, records, bytes in them */
    FP_DW_LIST,                        /* struct fp_dw_list + path + after: a page of a directory, or what the path is */
    /* fp-drain -> fp-benefactor */
    FP_DW_DONE = 100,                  /* struct fp_dw_done + why + uint64_t sum[nsums] (not aligned): to each task, once */
    FP_DW_NAMES,                       /* struct fp_dw_head + names, a NUL after each: before the DONE of a SWEEP, perhaps several times */
    FP_DW_LOG,                         /* struct fp_dw_log + text */
    FP_DW_ENTRIES,                     /* struct fp_dw_head + entries, each struct fp_dw_entry + name + link + xattrs: before the DONE of a LIST, at most once */
};

struct fp_dw_head {
    uint32_t type;                     /* enum fp_dw_type */
    uint32_t len_bytes;                /* of the whole message */
    uint64_t id, gen;                  /* of the task; 0 else */
    uint64_t sending;                  /* a task may be sent again, and be several messages: answers say which sending they answer */
};

struct fp_dw_config {
    struct fp_dw_head h;
    uint8_t store[16], target[16];     /* UUIDs: the marker must say this target for this store. Or one without a marker (fp/targetid.h): it is only read */
    uint32_t threads;                  /* 1 .. FP_DW_THREADS_MAX */
    uint32_t root_bytes;
    uint32_t plugin_dir_bytes, declared_bytes; /* plugin_dir_bytes 0: beside the program */
    uint32_t ndeclared, zero;
};

struct fp_dw_seg {
    struct fp_dw_head h;
    uint64_t segment, salt;
};

enum fp_dw_pace_mode { FP_DW_HOLD = 1, FP_DW_RUN = 2 };
struct fp_dw_pace {
    struct fp_dw_head h;
    uint32_t mode, zero;               /* enum fp_dw_pace_mode. HOLD: nothing is read or written; metadata go on */
    uint64_t rate;                     /* bytes a second of all threads together; 0: no limit */
};

#define FP_DW_OVERWRITE 1u             /* FINISH: a file that has the name is replaced */
#define FP_DW_MAKE_MARKER 2u           /* PROBE: where the store has no line in the marker */
#define FP_DW_URGENT 8u                /* before others that are not */
#define FP_DW_FORCE 32u                /* PREPARE, FINISH: also what another store needs is replaced */
#define FP_DW_DLOG 16u                 /* PREPARE, WRITE, FINISH: of a file as streams of records (fp/dlog.h): tmp is a directory */

struct fp_dw_file {
    struct fp_dw_head h;
    uint64_t tino, size;               /* inode of the temporary file (FINISH); size of the file */
    uint64_t dlog_bytes;               /* FINISH of a DLOG: what its records must have */
    uint64_t own;                      /* PREPARE, FINISH: inode of what the store has drained to that name before; 0: nothing */
    uint32_t flags, mode, uid, gid;    /* PREPARE: owner of directories that are made */
    int64_t atime_ns, mtime_ns;
    uint32_t path_bytes, tmp_bytes;
    uint32_t mark_bytes;               /* FINISH: the mark. PREPARE: text of a link. PROBE of a target without a marker: the identity that one is to have. STAT: the entry of drain/needed.c to be made before; 0: none */
    uint32_t nxattrs;                  /* each: uint32_t name_bytes, value_bytes (not aligned), name, value */
};

/* A piece of the file and where it is. In ascending order of `at`, not overlapping, none across the end of a window. */
struct fp_dw_slice {
    uint64_t chunk, sum;               /* of the record */
    uint32_t page;                     /* of 4 KiB: where the record begins in its segment */
    uint32_t at;                       /* from the beginning of window `first` */
    uint32_t len, chunk_off;
    uint32_t chunk_len;                /* of the record's data */
    uint32_t data_len;                 /* of a coded chunk: what comes out, in which chunk_off and len count; 0: not coded */
    uint32_t seg;                      /* index into the segments of the message */
    uint32_t zero;
};

#define FP_DW_SEGMENTS_MAX 2048u
struct fp_dw_write {                   /* + tmp + uint64_t segment[nsegments] + struct fp_dw_slice[nslices] (not aligned) */
    struct fp_dw_head h;
    uint64_t tino, size, first;        /* window */
    uint32_t flags, window_bytes, nslices, nsegments, tmp_bytes, zero;
};

/* What others have written of these windows: it counts as zeros in the sums, as it did when they were made (WRITE). In ascending order of `at`, not
 * overlapping, none across the end of a window. */
struct fp_dw_range {
    uint32_t at, len;                  /* from the beginning of window `first` */
};
struct fp_dw_verify {                  /* of the temporary file, or of the file that has the name: one of path_bytes and tmp_bytes is 0 */
    struct fp_dw_head h;
    uint64_t tino, size, first;
    uint32_t flags, window_bytes, count, path_bytes, tmp_bytes, nothers;
};

/* The file must be the one that is meant: -ENOENT if there is none of that name, -ESTALE if it is another or was changed, also while it was read; FP_ECHECKSUM
 * if its bytes are others than the sum says. All three of SCOPE_FILE. */
struct fp_dw_read {
    struct fp_dw_head h;
    uint64_t tino, size;
    int64_t mtime_ns;
    uint64_t off, sum;                 /* sum: fp_sum_chunk() of the bytes; 0: not known */
    uint64_t to;                       /* in the memory of MEMORY, a multiple of 4096; room for the length, rounded up to that, is the reader's */
    uint32_t len, path_bytes;
};

/* The log (fp/dlog.h) has an index whose head has this sum, else -ESTALE, SCOPE_FILE. */
enum fp_dw_merge_step { FP_DW_MERGE_PREPARE = 1, FP_DW_MERGE_WRITE, FP_DW_MERGE_COMPARE, FP_DW_MERGE_FINISH };
struct fp_dw_merge {
    struct fp_dw_head h;
    uint64_t tino, sum;                /* PREPARE: both 0 */
    uint64_t first;                    /* WRITE, COMPARE: record of the index, and how many from it on */
    uint32_t count, step, flags;       /* flags: FP_DW_OVERWRITE, FP_DW_URGENT */
    uint32_t path_bytes, tmp_bytes, log_bytes;
};

#define FP_DW_LIST_MAX 1024u           /* entries of a page */
struct fp_dw_list {
    struct fp_dw_head h;
    uint32_t max, path_bytes, after_bytes, zero; /* path: empty is the root. after: only names that are greater, by their bytes */
};

struct fp_dw_entry {                   /* not aligned; an entry without a name is what the path itself is, if that is no directory */
    uint64_t tino, size, rdev;
    int64_t atime_ns, mtime_ns, ctime_ns;
    uint32_t mode, nlink, uid, gid;
    uint32_t name_bytes, link_bytes;
    uint32_t xattr_bytes;              /* behind the link, of one without a name: each uint32_t name_bytes, value_bytes (not aligned), name, value */
    uint32_t xattrs_left;              /* others that it has: ACLs, capabilities, or too many */
};

/* Whose fault: what a user has to look at, and who tries again. */
enum fp_dw_scope {
    FP_DW_SCOPE_FILE,                  /* this file cannot be had there, or its temporary file is another: told to the manager */
    FP_DW_SCOPE_TARGET,                /* the target takes or gives nothing now: tried again later */
    FP_DW_SCOPE_CHUNK,                 /* our own data: see chunk */
};

struct fp_dw_done {
    struct fp_dw_head h;
    int32_t status;
    uint32_t kind;                     /* enum fp_dw_type of the task */
    uint32_t scope;                    /* enum fp_dw_scope */
    uint32_t why_bytes, nsums;
    uint32_t note;                     /* READ: 1 if there is nothing but zeros. LIST: 1 if there are more entries. FINISH, MERGE: 1 if what had the name was drained by another store */
    uint64_t chunk;                    /* SCOPE_CHUNK */
    uint64_t bytes;                    /* written or read from the target */
    uint64_t dev, tino, size;          /* PREPARE, FINISH, STAT, the last SMALL: what is there */
    int64_t mtime_ns;
    uint8_t unmarked[16];              /* PROBE that has found no marker, and can't make one: the identity without (fp/targetid.h). Zeros: it has its marker */
};

struct fp_dw_log {
    struct fp_dw_head h;
    uint32_t level, zero;              /* enum fp_log_level */
};

/* The status page, written by fp-drain. The benefactor believes nothing in it but numbers. */
struct fp_dw_op {                      /* of a thread */
    _Atomic uint32_t kind;             /* enum fp_dw_type; 0: it does nothing */
    _Atomic uint32_t in_target;        /* it is in a call of the target's file system */
    _Atomic uint64_t id, gen;
    _Atomic uint64_t since_ns;         /* CLOCK_MONOTONIC: that call began */
    _Atomic uint64_t bytes;            /* of this task so far */
};
struct fp_dw_status {
    struct fp_dw_op op[FP_DW_OPS_MAX];
    _Atomic uint64_t written_bytes, read_bytes; /* to and from the target, since the start */
};

#endif
