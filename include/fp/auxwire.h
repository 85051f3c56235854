/*
 * What fp-mount and fp-auxhost say to each other: two SOCK_SEQPACKET pairs and three shared memories, all inherited at fork+exec.
 *
 * Sockets, not rings in shared memory: an aux-app that writes where it should not can spoil neither the queue nor, since it has
 * the pool read-only, the application's data; the end of the process is the end of the socket; and a message per MiB costs 5 us.
 * fp-mount owns every job, page and region buffer: the host holds nothing that is lost with it.
 *
 * Descriptors of the host: see enum fp_auxw_fd. The pool is opened read-only (mprotect can't change that). The region is memory for
 * outputs, mapped writable by both; fp-mount allocates buffers in it and says where. The status page is written by the host and read by
 * fp-mount, which believes nothing in it but numbers: counters, and which thread is in which aux-app since when.
 *
 * Both ends are of the same build; there is no version to negotiate but `abi` in FP_AUXW_READY. Structs are in the byte order and layout of
 * the node. A message is one struct below, followed by what its comment says. Messages are at most FP_AUXW_MESSAGE_MAX_BYTES.
 */
#ifndef FP_AUXWIRE_H
#define FP_AUXWIRE_H

#include <stdatomic.h>
#include <stdint.h>

#include "fp/auxapp.h"

#define FP_AUXW_MESSAGE_MAX_BYTES (192u << 10)
#define FP_AUXW_APPS_MAX 16u
#define FP_AUXW_THREADS_MAX 64u
#define FP_AUXW_COUNTERS_MAX 16u
#define FP_AUXW_STAGES_MAX 8u          /* that may replace data, in one chain */
#define FP_AUXW_PIECES_MAX 1024u
#define FP_AUXW_INLINE_BYTES 65536u    /* data of an event that come in its message */
#define FP_AUXW_KEYS_MAX 1024u         /* of a note */
#define FP_AUXW_NO_APP 0xffffffffu     /* the host itself */

enum fp_auxw_fd {
    FP_AUXW_FD_JOBS = 3,           /* fp-mount -> host: jobs, events; host -> fp-mount: results, log lines */
    FP_AUXW_FD_SERVICES = 4,       /* host -> fp-mount: requests; answers back */
    FP_AUXW_FD_POOL = 5,           /* memfd, read-only */
    FP_AUXW_FD_REGION = 6,         /* memfd */
    FP_AUXW_FD_STATUS = 7,         /* memfd of struct fp_auxw_status */
};

enum fp_auxw_type {
    FP_AUXW_NONE,
    /* fp-mount -> host */
    FP_AUXW_CONFIG,                /* struct fp_auxw_config + text; first; once per aux-app, in order */
    FP_AUXW_START,                 /* struct fp_auxw_start; answered by READY or FAILED */
    FP_AUXW_CHUNK_OUT,             /* struct fp_auxw_chunk_out + uint32_t page[npages] (number of the 64 KiB page in the pool) */
    FP_AUXW_CHUNK_IN,              /* struct fp_auxw_chunk_in */
    FP_AUXW_STORED,                /* struct fp_auxw_stored: for chunk_stored */
    FP_AUXW_EVENT,                 /* struct fp_auxw_event + name + new_name + data, each without NUL */
    FP_AUXW_FILE,                  /* struct fp_auxw_file + path: file_sealed */
    FP_AUXW_SET,                   /* struct fp_auxw_set + name NUL path NUL ...: set_complete */
    FP_AUXW_MESSAGE,               /* struct fp_auxw_message + node + data: message */
    FP_AUXW_CHANGE,                /* struct fp_auxw_change + "name=value": option of an aux-app, or `cores=N` */
    FP_AUXW_CANCEL,                /* struct fp_auxw_done: nobody waits for this job any more; it is answered all the same */
    FP_AUXW_STOP,                  /* struct fp_auxw_head: end cleanly; the socket's end does the same */
    /* host -> fp-mount */
    FP_AUXW_READY,                 /* struct fp_auxw_ready */
    FP_AUXW_FAILED,                /* struct fp_auxw_failed + text: a line for the user; the host ends */
    FP_AUXW_CHUNK_OUT_DONE,        /* struct fp_auxw_out_done + pieces + stages + keys + note */
    FP_AUXW_DONE,                  /* struct fp_auxw_done: of CHUNK_IN, CHANGE, and of EVENT, FILE, SET, MESSAGE with an id other than 0. app FP_AUXW_NO_APP:
                                    * of an EVENT: the aux-app was not asked. CHANGE that is refused: + text, why */
    FP_AUXW_LOG,                   /* struct fp_auxw_log + text */
    FP_AUXW_SKIP,                  /* struct fp_auxw_skip: an aux-app wants to be passed over for a while */
    /* services: requests of the host, answered with the same type and id. Bodies are messages of fp.proto as said. */
    FP_AUXW_SVC_EARLIER = 100,     /* AuxEarlier -> NotesReply (several answers, the last with eof) */
    FP_AUXW_SVC_FIND,              /* NoteFind -> NotesReply */
    FP_AUXW_SVC_HOLD,              /* Hold -> HoldReply */
    FP_AUXW_SVC_READ_CHUNK,        /* AuxRead -> raw bytes */
    FP_AUXW_SVC_TABLE,             /* Table -> TableReply */
    FP_AUXW_SVC_FILE_READ,         /* AuxRead -> raw bytes; at most 128 KiB at a time */
    FP_AUXW_SVC_FILE_WRITE,        /* AuxWrite (parts of 128 KiB with one id, the last with `last`) -> Empty to each */
    FP_AUXW_SVC_FILE_FIND,         /* Lookup (name = whole path) -> AttrReply */
    FP_AUXW_SVC_XATTR_GET,         /* GetXattr -> XattrReply */
    FP_AUXW_SVC_XATTR_SET,         /* SetXattr -> Empty */
    FP_AUXW_SVC_SEND,              /* AuxMsg -> AuxMsgReply */
    FP_AUXW_SVC_POLICY,            /* Policy (text) -> PolicyReply */
};

struct fp_auxw_head {
    uint32_t type;                 /* enum fp_auxw_type */
    uint32_t len_bytes;            /* of the whole message */
    uint64_t id;                   /* of the job, event or request; 0: no answer is expected */
};

/* text: the declaration, "dedup hash=sha1 cores=1-2". required: bit 0: so declared; bit 1: bypassed, there only to decode what it has coded. One that is
 * bypassed gets no chunk on its way out and no event, and does not keep the others from starting if it can't. */
struct fp_auxw_config { struct fp_auxw_head h; uint32_t index, required; };
#define FP_AUXW_CONFIG_REQUIRED 1u
#define FP_AUXW_CONFIG_BYPASSED 2u
struct fp_auxw_start {
    struct fp_auxw_head h;
    uint64_t pool_bytes, region_bytes;
    uint32_t napps, decode_only;   /* decode_only: nothing is declared, but a coded chunk was met */
    char cores[256];               /* service cores, "7" or "1,3-5"; "": none set aside */
    char node[128], plugin_dir[256];
    uint64_t memory_bytes;         /* a host that has more is ended; 0: not known */
    char mountpoint[4096];         /* where the store is, or will be, mounted */
};

struct fp_auxw_chunk_out {
    struct fp_auxw_head h;
    uint64_t ino, file_off, file_serial;
    uint32_t len_bytes, npages, whole;
    uint32_t skip;                 /* bit i: aux-app i is passed over (FP_AUXW_SKIP) */
    /* two buffers in the region, each of out_cap_bytes (>= len_bytes + 64 KiB): stages write into them by turns */
    uint64_t out_a, out_b;
    uint32_t out_cap_bytes, flags; /* FP_AUXW_OUT_* */
    uint64_t passed_bytes[FP_AUXW_APPS_MAX]; /* by aux-app, since the mount began */
};
#define FP_AUXW_OUT_NO_STORED 1u       /* pieces that refer to stored chunks are left out: what they referred to the last time is gone */
#define FP_AUXW_OUT_NO_PIECES 2u       /* whatever pieces are said, all data is new: they were not true the last time */

enum fp_auxw_piece_kind { FP_AUXW_PIECE_NEW, FP_AUXW_PIECE_ZERO, FP_AUXW_PIECE_SAME, FP_AUXW_PIECE_STORED };
struct fp_auxw_piece {
    uint16_t kind;
    uint8_t app;                   /* whose piece it is: index */
    uint8_t doubted;               /* 1: if it is STORED, what is stored is to be compared with before it is believed (option `verify`) */
    uint32_t off, len_bytes;
    uint32_t at;                   /* NEW: offset in the new data. SAME: offset there, too. STORED: offset in `chunk` */
    uint64_t chunk;
};

/* What was done to the new data, first stage first. */
struct fp_auxw_stage { char name[24]; uint32_t in_bytes, out_bytes; };

struct fp_auxw_out_done {
    struct fp_auxw_head h;
    int32_t status;                /* 0 or the errno of an aux-app that refused the chunk (app says which) */
    uint32_t app;
    uint32_t npieces;              /* 0: all of it is new */
    uint32_t new_bytes;            /* of new data, before coding; 0: nothing is to be stored */
    uint32_t nstages, coded_bytes; /* 0 stages: not coded. coded_bytes <= new_bytes + FP_AUX_EXPAND_MAX_BYTES */
    uint32_t where;                /* the coded bytes: 1 in out_a, 2 in out_b. 0: not coded; fp-mount takes what is new from its own pages */
    uint32_t nkeys, note_bytes;
    uint32_t ran;                  /* bit i: aux-app i has had this chunk, and what it said was carried out */
    uint32_t stored_app;           /* 1 + index of the aux-app that referred to stored chunks; 0: none did */
    uint32_t failed;               /* bit i: aux-app i gave a verdict that can't be carried out; bit 16 + i: its chunk_in does not undo its chunk_out */
    uint64_t ticket[4];            /* by aux-apps that asked for one; 0: none */
    uint32_t ticket_app[4];
};

/* Undo stages, last one first. Input and output are buffers in the region, which the stages between use by turns (both of cap_bytes). */
struct fp_auxw_chunk_in {
    struct fp_auxw_head h;
    uint64_t a, b;                 /* coded bytes are in a */
    uint32_t cap_bytes, coded_bytes, nstages, zero;
    struct fp_auxw_stage stage[FP_AUXW_STAGES_MAX];
};                                     /* DONE.where: 1 the result is in a, 2 in b */

struct fp_auxw_done { struct fp_auxw_head h; int32_t status; uint32_t where, app, zero; };
struct fp_auxw_stored { struct fp_auxw_head h; uint64_t ticket, chunk; uint32_t app, off, len_bytes, zero; };
struct fp_auxw_event {
    struct fp_auxw_head h;
    struct fp_aux_io io;           /* pointers are 0 here */
    uint32_t app, wait;
    uint32_t name_bytes, new_name_bytes, data_bytes, zero;
    uint64_t data_region;          /* data_bytes > FP_AUXW_INLINE_BYTES: where in the region they are; freed when the event is done */
};
struct fp_auxw_file { struct fp_auxw_head h; struct fp_aux_file file; uint32_t path_bytes, zero; };
struct fp_auxw_set { struct fp_auxw_head h; uint64_t step; uint32_t nfiles, zero; };
struct fp_auxw_message { struct fp_auxw_head h; uint64_t mount; uint32_t app, node_bytes, data_bytes, zero; };
struct fp_auxw_change { struct fp_auxw_head h; uint32_t app, text_bytes; };
struct fp_auxw_log { struct fp_auxw_head h; uint32_t app, level; };
struct fp_auxw_failed { struct fp_auxw_head h; uint32_t app, zero; };
struct fp_auxw_skip { struct fp_auxw_head h; uint32_t app, flags, of, come; uint64_t bytes, step_bytes; }; /* as in struct fp_aux_skip */

#define FP_AUXW_HAS_OUT 1u             /* chunk_out or write */
#define FP_AUXW_HAS_IN 2u
#define FP_AUXW_HAS_FILE 4u
#define FP_AUXW_HAS_SET 8u
#define FP_AUXW_HAS_STORED 16u
#define FP_AUXW_HAS_HIDES 32u          /* FP_AUX_HIDES */
#define FP_AUXW_REQUIRED 1u            /* data must not be stored without it */
#define FP_AUXW_REQUIRED_SELF 2u       /* by its own word (FP_AUX_REQUIRED): nobody takes that back */
#define FP_AUXW_REQUIRED_CODES 4u      /* and it replaces every chunk: a stage of its name must be among those of what is stored */
struct fp_auxw_app_info {              /* what fp-mount must know of a loaded aux-app */
    char name[24], version[24], path[256];
    uint32_t has;                  /* FP_AUXW_HAS_* */
    uint32_t deadline_ms, failures_max;
    uint32_t required;             /* FP_AUXW_REQUIRED_* */
    uint8_t io_flags[64];          /* by enum fp_aux_op: 0x80 | FP_AUX_WAIT | FP_AUX_WANT_DATA, 0: no callback */
};
struct fp_auxw_ready { struct fp_auxw_head h; uint32_t abi, napps; struct fp_auxw_app_info app[FP_AUXW_APPS_MAX]; };

/* Requests of services and their answers begin with it. file_serial: of the chunk that the asking call is about (0: none): a hold made for it lasts as long. */
struct fp_auxw_svc { struct fp_auxw_head h; int32_t status; uint32_t app; uint32_t eof, zero; uint64_t file_serial; };

/* -------------------------------------------------------------- the status page */

struct fp_auxw_thread {                /* written by that thread only */
    _Atomic uint32_t tid;          /* 0: slot is free */
    _Atomic uint32_t app;          /* aux-app it belongs to, or FP_AUXW_NO_APP */
    _Atomic int32_t core;          /* pinned to; -1: not pinned */
    _Atomic uint32_t in_call;      /* 1 + index of the aux-app whose callback it is in (stages on one core run on one thread); 0: none */
    _Atomic uint64_t since_ns;     /* CLOCK_MONOTONIC: that call began, or, where the deadline is for standing still, asked for its last service */
    _Atomic uint64_t busy_ns;      /* in callbacks, since the start of the host */
    _Atomic uint32_t deadline_ms, zero; /* of that call, from since_ns on */
};
struct fp_auxw_stats {                 /* since the start of the host */
    _Atomic uint64_t chunks, bytes_in, bytes_out, chunks_in, events, waits, wait_ns, busy_ns, errors;
    _Atomic uint32_t queue, queue_max, threads, cores;
    char why[96];                  /* last move of cores, or that the aux-app turned itself off: for people */
    struct { char name[24]; _Atomic int64_t value; _Atomic uint32_t is_gauge, zero; } counter[FP_AUXW_COUNTERS_MAX];
};
#define FP_AUXW_EXITED 0x100u          /* beyond all signals */
struct fp_auxw_status {
    _Atomic uint64_t beat;         /* grows while the host's main thread runs */
    _Atomic uint32_t crashed_app;  /* index + 1, set by the handler of a fatal signal */
    _Atomic uint32_t crashed_signal; /* or FP_AUXW_EXITED + N: a plugin has called exit(N) */
    struct fp_auxw_thread thread[FP_AUXW_THREADS_MAX];
    struct fp_auxw_stats stats[FP_AUXW_APPS_MAX];
    char undeclared[FP_AUXW_APPS_MAX][24]; /* name of what is loaded for decoding alone, by place; before it is loaded */
};

/*
 * A coded chunk as it is stored: this envelope, then the coded bytes. To the benefactor it is a chunk like any other. Little-endian.
 *   0 u32 magic 'FPE1'   4 u8 version (1)   5 u8 flags (1: keyed)   6 u16 stages (1..8)
 *   8 u32 data bytes (what comes out)       12 u32 coded bytes (what follows the envelope)
 *  16 u64 sum of the data                   24 u64 XXH3 of this envelope with this field 0
 *  32 stages: 32 bytes each: char name[24], u32 bytes before the stage, u32 bytes after it
 * Sum of the data: XXH3-64. Keyed (a stage hides the data, FP_AUX_HIDES): bits 48..63 the number of the secret, bits 0..47 of HMAC-SHA256(secret, u64 low
 * and u64 high half of the data's XXH3-128, u64 XXH3-64 of the coded bytes); secret = HMAC-SHA256(key of the store, "fpstore sums of hidden data"), its
 * number the first two bytes of HMAC-SHA256(secret, "number").
 */
#define FP_ENVELOPE_MAGIC 0x31455046u
#define FP_ENVELOPE_BYTES(stages) (32u + 32u * (stages))
#define FP_ENVELOPE_MAX_BYTES FP_ENVELOPE_BYTES(FP_AUXW_STAGES_MAX)

#endif
