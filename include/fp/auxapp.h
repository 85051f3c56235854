/*
 * Aux-apps: all that a plugin of fpstore includes. ABI 1.
 *
 * An aux-app is a shared object that works on an application's data as it passes: on service cores of the same node, while the
 * application goes on (functional partitioning, SC10, sections III.A, IV.B, V). It includes this header, links nothing of
 * fpstore, and exports one function, `fp_aux_app`, which the macro FP_AUX_APP defines. docs/AUXAPPS.md takes you from nothing to
 * a running aux-app; auxapps/examples/ has six of under 100 lines; `fp-auxtest PLUGIN.so` tries it out without a store.
 *
 * Where it runs. fp-auxhost loads it, a process of each mount, whose threads are pinned to the service cores. Aux-apps
 * form a chain in the order of their declaration. Each is a stage with its own thread or threads and a bounded queue. If it
 * crashes, hangs or leaks, the host is started again and the chunks it had in hand are taken again from the mount's pool: nothing is
 * lost, but a callback can be called again for a chunk that it has seen.
 *
 * Threads. start, stop and configure: one thread, nothing else runs. message, idle, file_sealed, set_complete and io ops: the
 * stage's event thread, one call at a time; io ops with FP_AUX_WAIT: a thread of their own, one call at a time, so that no application waits for
 * the others. chunk_out, write and chunk_in: the stage's worker threads; one call at a time unless
 * flags has FP_AUX_PARALLEL; chunk_in may run beside chunk_out always, for it decodes with what its arguments say. Callbacks may block (in
 * services, in files of their own), but the deadline runs.
 *
 * Processes. A plugin may start programs (posix_spawn, system); they end with the host at the latest. A child that goes on without exec has nothing
 * of what callbacks get, and may call no service.
 *
 * Memory. What a callback gets is valid until it returns. Input is mapped read-only: to write there ends the host.
 *
 * Errors. Callbacks return 0 (or a verdict) or a negative errno. Services likewise; -ECANCELED: the call is over (deadline, end of
 * the mount), return soon; -EAGAIN: not now (the manager is away); -ENOTSUP: this host has no such service.
 *
 * Growing. Structs that begin with `size_bytes` may grow at their end in later versions of the same ABI: the host fills it with the
 * size it knows, a plugin with its sizeof. Fields beyond the other side's size read as 0 or NULL.
 */
#ifndef FP_AUXAPP_H
#define FP_AUXAPP_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FP_AUX_ABI 1u

#define FP_AUX_NAME_MAX 23u            /* bytes of an aux-app's name: [a-z][a-z0-9_-]* */
#define FP_AUX_CHUNK_MAX_BYTES (16u << 20)
#define FP_AUX_EXPAND_MAX_BYTES 4096u  /* a replacement may be longer than its input by so much */
#define FP_AUX_NOTE_MAX_BYTES 65536u
#define FP_AUX_KEY_MAX_BYTES 64u
#define FP_AUX_VALUE_MAX_BYTES 1024u
#define FP_AUX_MESSAGE_MAX_BYTES 65536u
#define FP_AUX_PIECE_MIN_BYTES 4096u   /* shorter duplicates are not worth a slice */
#define FP_AUX_NOTE_KEYS_MAX 1024u
/* Pieces that a chunk may be made of, neighbours that continue each other counted as one: 64 per MiB, so that maps stay small. */
#define FP_AUX_PIECES_MAX(chunk_bytes) (64u * ((uint32_t)((chunk_bytes) + (1u << 20) - 1) >> 20))

struct fp_aux_host;                    /* services of the host for one aux-app; constant from start to stop */
struct fp_aux_call;                    /* one callback in progress; valid until it returns */

/* -------------------------------------------------------------- options */

/* One option of the aux-app: `name=value` in its declaration. Values are checked before start is called, by the host, `fp-job check` and
 * fp-auxtest. */
struct fp_aux_option {
    /* NULL ends the table. The host's own words (docs/AUXAPPS.md) can't be used: cores, required, queue, deadline, ... But `verify` can be, by what
     * takes no chunks (no chunk_out, no write): there the host's says nothing. */
    const char *name;
    const char *fallback;          /* value when it is not given; NULL: none (get returns NULL) */
    const char *help;              /* one line */
    const char *const *choices;    /* NULL, or the words allowed, ended by NULL */
    int64_t min, max;              /* for numbers; both 0: not a number */
    /* number of bytes: 64KiB, 1MiB, ... One named `memory` is what the aux-app may take in all: the user is warned if it is too much */
    bool is_size;
    bool can_change;               /* `fpctl auxapps set NAME option=value` may change it while running: configure is called */
};

/* -------------------------------------------------------------- data */

struct fp_aux_part { const uint8_t *data; uint32_t len_bytes; };

/*
 * Data of one window of a file, on its way to the store or back. In declared order of aux-apps each sees what the one before left: the
 * application's bytes, or the unique rest after a de-duplication, or a coded form (`coded`).
 */
struct fp_aux_chunk {
    uint32_t size_bytes;
    uint32_t len_bytes;            /* 1 .. FP_AUX_CHUNK_MAX_BYTES (+ FP_AUX_EXPAND_MAX_BYTES when coded) */
    uint32_t nparts;
    bool coded;                    /* an earlier stage has replaced it: not the application's bytes any more */
    bool whole;                    /* all bytes of [file_off, file_off + len_bytes) of the file, in order. false: packed ranges */
    const struct fp_aux_part *parts; /* in order; all but the last are of multiples of 64 KiB */
    uint64_t ino;                  /* the file */
    uint64_t file_off;             /* of the window, bytes */
    /* of this version of it: until the last close, a cut to 0, or an open for writing when only readers have it open; a mount uses none twice */
    uint64_t file_serial;
    uint64_t passed_bytes;         /* that were never given to this aux-app because of fp_aux_skip, in all since the mount began */
};

/* passed_bytes, if the host is new enough. */
static inline uint64_t fp_aux_passed_bytes(const struct fp_aux_chunk *k)
{
    return k->size_bytes > offsetof(struct fp_aux_chunk, passed_bytes) ? k->passed_bytes : 0;
}

/* A place in a stored chunk, as the services give it. */
struct fp_aux_place { uint64_t chunk; uint32_t off, len_bytes; };

/* What becomes of a chunk. */
enum fp_aux_verdict {
    FP_AUX_PASS = 0,               /* as it is to the next stage */
    FP_AUX_REPLACED = 1,           /* fp_aux_replace was called: its output goes on. chunk_in must be there to undo it */
    FP_AUX_PIECES = 2,             /* fp_aux_piece_* were called: what is new goes on, the rest refers to what is stored */
};

/* -------------------------------------------------------------- FUSE calls */

enum fp_aux_op {
    FP_AUX_OP_LOOKUP, FP_AUX_OP_GETATTR, FP_AUX_OP_SETATTR, FP_AUX_OP_TRUNCATE, FP_AUX_OP_READLINK, FP_AUX_OP_MKNOD,
    FP_AUX_OP_MKDIR, FP_AUX_OP_UNLINK, FP_AUX_OP_RMDIR, FP_AUX_OP_SYMLINK, FP_AUX_OP_RENAME, FP_AUX_OP_LINK, FP_AUX_OP_OPEN,
    FP_AUX_OP_CREATE, FP_AUX_OP_READ, FP_AUX_OP_WRITE, FP_AUX_OP_FLUSH, FP_AUX_OP_RELEASE, FP_AUX_OP_FSYNC, FP_AUX_OP_OPENDIR,
    FP_AUX_OP_READDIR, FP_AUX_OP_RELEASEDIR, FP_AUX_OP_FSYNCDIR, FP_AUX_OP_STATFS, FP_AUX_OP_SETXATTR, FP_AUX_OP_GETXATTR,
    FP_AUX_OP_LISTXATTR, FP_AUX_OP_REMOVEXATTR, FP_AUX_OP_FALLOCATE, FP_AUX_OP_LSEEK, FP_AUX_OP_COPY_FILE_RANGE,
    FP_AUX_OP_IOCTL,               /* flags: the command. The mount has none: result is -ENOTTY */
    FP_AUX_OP_COUNT
};

/* One call of an application on the mount. Fields that a call has not are 0 or NULL. */
struct fp_aux_io {
    uint32_t size_bytes;
    uint32_t op;                   /* enum fp_aux_op */
    int32_t result;                /* 0 or negative errno, what the application gets; with FP_AUX_WAIT: 0, not done yet */
    uint32_t uid, gid, pid;        /* of the caller */
    uint32_t mode, flags;          /* open flags, rename flags, fallocate mode, ... as in the system call */
    uint64_t ino, parent, new_parent; /* ino: of the file; 0 when it is not known yet (create) */
    const char *name, *new_name;   /* one component each; name of the xattr for xattr calls; target of a symlink in new_name */
    uint64_t off, len_bytes;       /* read, write, truncate (off = new size), fallocate, lseek, copy */
    uint64_t src_ino, src_off;     /* copy_file_range */
    const uint8_t *data;           /* write with FP_AUX_WANT_DATA: the len_bytes written; setxattr: the value */
    int64_t time_ns;               /* CLOCK_REALTIME when the call came */
};

/*
 * One callback for one kind of call.
 * flags: FP_AUX_WAIT: called before the call is carried out, and the application waits for it (deadline: option `deadline`, FP_AUX_WAIT_MS if it is
 * not given); a negative errno refuses the call with it. But -ECANCELED and -ETIMEDOUT, which say that it gave up, refuse nothing: they are no
 * answer, like a crash or a call beyond its deadline. Without an answer the call is carried out, or fails with EIO if the aux-app is required.
 * release and releasedir can't be refused; where flush is, close fails, and what was written is published with the release. The events of calls
 * before, for ops without FP_AUX_WAIT, may still be on their way. A signal ends the application's wait after a second (EINTR; not that of flush,
 * release, releasedir): fp_aux_cancelled.
 * Without FP_AUX_WAIT: called afterwards, in order for each file, and the application does not wait, unless the queue is
 * full; the result of the callback is counted and logged, no more. FP_AUX_WANT_DATA: give the bytes of a write (costs a copy).
 */
struct fp_aux_io_op {
    int (*fn)(void *state, struct fp_aux_call *call, const struct fp_aux_io *io);
    uint32_t flags;
};
#define FP_AUX_WAIT 1u
#define FP_AUX_WAIT_MS 2000u
#define FP_AUX_WANT_DATA 2u

/* -------------------------------------------------------------- files, sets, messages */

/* A file that was written and whose last descriptor on this mount is closed; its data is published. */
struct fp_aux_file {
    uint32_t size_bytes;
    uint32_t uid, gid, mode;
    uint64_t ino, file_serial;
    uint64_t len_bytes;
    const char *path;              /* relative to the mount, without a leading slash; one of its names, "" if it has none */
    int64_t mtime_ns;
    uint64_t data_version;         /* grows with every change of the data */
};

/* A complete checkpoint set: the files of one time step. Somebody has said so: the xattr user.fp.checkpoint of their directory, or of the one file,
 * was set to "complete" on this mount. */
struct fp_aux_set {
    uint32_t size_bytes;
    uint32_t nfiles;
    uint64_t step;                 /* the last number in name; 0: none */
    const char *name;              /* of the directory, relative to the mount, e.g. "run/chk_0007" */
    const char *const *paths;      /* nfiles: the regular files in it and below it */
};

struct fp_aux_message {
    uint32_t size_bytes;
    uint32_t len_bytes;
    const char *node;              /* of the sender */
    uint64_t mount;                /* of the sender: number to answer to */
    const uint8_t *data;
};

/* -------------------------------------------------------------- the aux-app */

#define FP_AUX_PARALLEL 1u             /* chunk_out/write/chunk_in may be called by several threads at once */
#define FP_AUX_CODES 2u                /* may answer FP_AUX_REPLACED; chunk_in is there */
/*
 * Data must not be stored without it: it is `required` whether or not the user says so, and can't be bypassed, not even by hand. When it has failed
 * too often, or a verdict of its can't be carried out, writes fail with EIO; fp-mount checks of each chunk that it has passed. Together with
 * FP_AUX_CODES: every chunk must be replaced (FP_AUX_PASS and FP_AUX_PIECES are failures), and is stored only if it was. For what encrypts, or what
 * checks.
 */
#define FP_AUX_REQUIRED 4u
/* Its replacements are to tell nothing of the data without a key: each is of other bytes, and chunk_in knows one that was changed. */
#define FP_AUX_HIDES 8u

struct fp_aux_app {
    uint32_t abi;                  /* FP_AUX_ABI */
    uint32_t size_bytes;           /* sizeof(struct fp_aux_app) */
    const char *name;              /* for people, logs and stored chunks: a later version must decode what this one wrote */
    const char *version;
    const char *summary;           /* one line */
    uint32_t flags;
    uint32_t reserved;             /* 0 */
    const struct fp_aux_option *options; /* NULL: none */

    /* *state is given to all other callbacks. A negative errno (log why, fp_aux_log) fails the start of the mount. */
    int (*start)(struct fp_aux_host *host, void **state);
    void (*stop)(void *state);
    /* An option with can_change has a new value (fp_aux_option_text). Negative errno: refused, the old value is back. */
    int (*configure)(void *state, const char *name);

    /* A sealed chunk on its way to the store. A verdict, or a negative errno: the write is refused with it (seen by write, fsync or close;
     * -EINTR, -EAGAIN and what is no errno of applications as EIO). */
    int (*chunk_out)(void *state, struct fp_aux_call *call, const struct fp_aux_chunk *chunk);
    /* The same in the words of the paper's Figure 2 (instead of chunk_out): look at data with fp_aux_get_chunk, fp_aux_data_write,
     * fp_aux_hashtable_*. What was not written by fp_aux_data_write must have been found in the hash table. 0 or negative errno. */
    int (*write)(void *state, struct fp_aux_call *call, void *output_buffer, uint32_t size_bytes);
    /* Undo fp_aux_replace: in[in_bytes] is what it was given, out gets exactly out_bytes. Must not depend on options but those it
     * needs as a key: another mount may have other options, or none. -EILSEQ: damaged; -ENOKEY: the key is missing. */
    int (*chunk_in)(void *state, struct fp_aux_call *call, const uint8_t *in, uint32_t in_bytes, uint8_t *out, uint32_t out_bytes);
    /* The chunk whose chunk_out had `ticket` (fp_aux_ticket) is stored, and from `place` on lies what that callback let pass as new data. May be
     * NULL. */
    void (*chunk_stored)(void *state, uint64_t ticket, struct fp_aux_place place);

    int (*file_sealed)(void *state, struct fp_aux_call *call, const struct fp_aux_file *file);
    /* After all else that was told of these files before, but for file_sealed, which may come later. Again when it is said again. */
    int (*set_complete)(void *state, struct fp_aux_call *call, const struct fp_aux_set *set);
    /* For 100 ms no chunk and no event has come to any aux-app of the mount; again every `idle` (option of the host, 1 s) while that lasts. */
    int (*idle)(void *state, struct fp_aux_call *call);
    int (*message)(void *state, struct fp_aux_call *call, const struct fp_aux_message *msg);

    struct fp_aux_io_op io[FP_AUX_OP_COUNT]; /* by enum fp_aux_op; grows only at the end of the enum */
};

/* The exported function: NULL if the plugin can't serve this ABI. */
typedef const struct fp_aux_app *fp_aux_app_fn(uint32_t abi);
#define FP_AUX_ENTRY "fp_aux_app"
#define FP_AUX_APP(app) \
    __attribute__((visibility("default"))) const struct fp_aux_app *fp_aux_app(uint32_t abi); \
    const struct fp_aux_app *fp_aux_app(uint32_t abi) { return abi == FP_AUX_ABI ? &(app) : NULL; }

/* -------------------------------------------------------------- services of the host */

enum fp_aux_level { FP_AUX_ERROR, FP_AUX_WARN, FP_AUX_INFO, FP_AUX_DEBUG };

/*
 * Chunks that need not come: all, or those of which file_off / step_bytes % of is not below `come`, until `bytes` of them have been passed over.
 */
struct fp_aux_skip {
    uint32_t size_bytes;
    uint32_t flags;                /* FP_AUX_SKIP_* */
    uint64_t bytes;                /* 0: none, all chunks come */
    uint64_t step_bytes;           /* any number but 0 if `of` is not 0 */
    uint32_t of, come;             /* of 0: no place comes. come <= of */
};
#define FP_AUX_SKIP_BUT_ZEROS 1u       /* but chunks that have 4 KiB of zeros, at a multiple of 4 KiB in them, come all the same */

/* A stored chunk with its note, as fp_aux_earlier and fp_aux_find tell of it. */
struct fp_aux_noted {
    uint32_t size_bytes;
    uint64_t chunk;
    uint32_t data_bytes, note_bytes;
    const uint8_t *note;
    uint32_t unused_bytes;         /* of its data_bytes: no file of the store refers to them. They stay for as long as one does to any of the others */
    uint64_t free_bytes;           /* in the store, when it was asked, the part of this mount; 0: none, or not known */
};

/* Table of functions, behind the inline functions below. Not called by name: a NULL one is -ENOTSUP. */
struct fp_aux_services {
    uint32_t size_bytes, abi;
    const char *(*option_text)(struct fp_aux_host *, const char *name);
    int64_t (*option_number)(struct fp_aux_host *, const char *name);
    void (*log)(struct fp_aux_host *, int level, const char *text);
    void (*count)(struct fp_aux_host *, const char *counter, int64_t add);
    void (*gauge)(struct fp_aux_host *, const char *counter, int64_t value);
    bool (*cancelled)(struct fp_aux_call *);
    int64_t (*left_ms)(struct fp_aux_call *);
    const uint8_t *(*flat)(struct fp_aux_call *, const struct fp_aux_chunk *);
    uint8_t *(*out_buffer)(struct fp_aux_call *, uint32_t *cap_bytes);
    int (*replace)(struct fp_aux_call *, uint32_t len_bytes);
    int (*piece_new)(struct fp_aux_call *, uint32_t off, uint32_t len);
    int (*piece_zero)(struct fp_aux_call *, uint32_t off, uint32_t len);
    int (*piece_same)(struct fp_aux_call *, uint32_t off, uint32_t len, uint32_t earlier_off);
    int (*piece_stored)(struct fp_aux_call *, uint32_t off, uint32_t len, struct fp_aux_place);
    int (*note)(struct fp_aux_call *, const void *note, uint32_t len, const uint64_t *keys, uint32_t nkeys);
    uint64_t (*ticket)(struct fp_aux_call *);
    int (*hold)(struct fp_aux_call *, uint64_t chunk);
    int (*earlier)(struct fp_aux_host *, uint64_t file_serial, const char *pattern,
               int (*each)(void *arg, const struct fp_aux_noted *), void *arg);
    int (*find)(struct fp_aux_host *, const uint64_t *keys, uint32_t nkeys,
            int (*each)(void *arg, const struct fp_aux_noted *), void *arg);
    int (*read_chunk)(struct fp_aux_host *, struct fp_aux_place, void *buf);
    void *(*get_chunk)(struct fp_aux_call *, void **output_buffer, uint32_t want_bytes, uint32_t *len_bytes);
    int (*data_write)(struct fp_aux_call *, const void *chunk);
    int (*hashtable_get)(struct fp_aux_call *, const void *hash, uint32_t hash_bytes);
    int (*hashtable_update)(struct fp_aux_call *, int *result, const void *chunk, const void *hash, uint32_t hash_bytes);
    int (*table_get)(struct fp_aux_host *, const void *key, uint32_t key_bytes, void *value, uint32_t *value_bytes);
    int (*table_put)(struct fp_aux_host *, const void *key, uint32_t key_bytes, const void *value, uint32_t value_bytes, bool only_new);
    int (*table_remove)(struct fp_aux_host *, const void *key, uint32_t key_bytes);
    ssize_t (*file_read)(struct fp_aux_host *, uint64_t ino, uint64_t off, void *buf, uint32_t len);
    int (*file_write)(struct fp_aux_host *, const char *path, const void *data, uint32_t len, uint32_t mode);
    int (*file_find)(struct fp_aux_host *, const char *path, struct fp_aux_file *out);
    ssize_t (*xattr_get)(struct fp_aux_host *, uint64_t ino, const char *name, void *value, uint32_t cap_bytes);
    int (*xattr_set)(struct fp_aux_host *, uint64_t ino, const char *name, const void *value, uint32_t len);
    int (*send)(struct fp_aux_host *, const char *node, uint64_t mount, const void *data, uint32_t len);
    const char *(*node)(struct fp_aux_host *);
    int (*skip)(struct fp_aux_host *, const struct fp_aux_skip *);
    int (*policy)(struct fp_aux_host *, const char *text, char *why, uint32_t why_bytes);
    const char *(*mountpoint)(struct fp_aux_host *);
    const char *(*cores)(struct fp_aux_host *);
};

/* First member of struct fp_aux_host and struct fp_aux_call; the rest is the host's. */
struct fp_aux_handle { const struct fp_aux_services *services; };
#define FP_AUX_SERVICE(handle, fn) \
    (((const struct fp_aux_handle *)(const void *)(handle))->services->size_bytes > offsetof(struct fp_aux_services, fn) \
         ? ((const struct fp_aux_handle *)(const void *)(handle))->services->fn : NULL)
#define FP_AUX_CALL(handle, fn, none, ...) \
    (FP_AUX_SERVICE(handle, fn) ? FP_AUX_SERVICE(handle, fn)((handle), ##__VA_ARGS__) : (none))

/* --- options, log, counters: any thread */

/* Value of an option as text: valid until it is changed. NULL: not given and without a fallback. */
static inline const char *fp_aux_option_text(struct fp_aux_host *h, const char *name) { return FP_AUX_CALL(h, option_text, NULL, name); }
/* As a number: sizes in bytes, yes/on = 1. 0 if there is none. */
static inline int64_t fp_aux_option_number(struct fp_aux_host *h, const char *name) { return FP_AUX_CALL(h, option_number, 0, name); }
/* One line for the log of the mount, without newline. Rate-limited by the host. */
static inline void fp_aux_log(struct fp_aux_host *h, enum fp_aux_level level, const char *text)
{
    if (FP_AUX_SERVICE(h, log))
        FP_AUX_SERVICE(h, log)(h, level, text);
}
/* Counters and gauges show in `fpctl auxapps` under this name (at most 16 of an aux-app). Counters survive a restart of the host. */
static inline void fp_aux_count(struct fp_aux_host *h, const char *counter, int64_t add)
{
    if (FP_AUX_SERVICE(h, count))
        FP_AUX_SERVICE(h, count)(h, counter, add);
}
static inline void fp_aux_gauge(struct fp_aux_host *h, const char *counter, int64_t value)
{
    if (FP_AUX_SERVICE(h, gauge))
        FP_AUX_SERVICE(h, gauge)(h, counter, value);
}
/* True once nobody waits for this call any more: return -ECANCELED. Long loops ask every millisecond or so. */
static inline bool fp_aux_cancelled(struct fp_aux_call *c) { return FP_AUX_CALL(c, cancelled, false); }
/* Milliseconds to the deadline; INT64_MAX: there is none, but for standing still (file_sealed, set_complete, message, idle: `deadline` runs from the
 * last service asked for). Past it the host is ended and the aux-app counts a failure. */
static inline int64_t fp_aux_left_ms(struct fp_aux_call *c) { return FP_AUX_CALL(c, left_ms, INT64_MAX); }

/* --- chunk_out */

/* The chunk's bytes in one piece: in place if they lie so, else copied (about 0.1 ms per MiB). NULL: out of memory. */
static inline const uint8_t *fp_aux_flat(struct fp_aux_call *c, const struct fp_aux_chunk *k) { return FP_AUX_CALL(c, flat, NULL, k); }
/* Where a replacement is written: *cap_bytes (may be NULL) >= len_bytes of the chunk + FP_AUX_EXPAND_MAX_BYTES. Does not overlap the input. */
static inline uint8_t *fp_aux_out_buffer(struct fp_aux_call *c, uint32_t *cap_bytes) { return FP_AUX_CALL(c, out_buffer, NULL, cap_bytes); }
/* The first len_bytes of the out buffer replace the chunk: return FP_AUX_REPLACED. Once per call. -EINVAL: 0, or longer than allowed (all stages
 * of a chain together may add FP_AUX_EXPAND_MAX_BYTES). */
static inline int fp_aux_replace(struct fp_aux_call *c, uint32_t len_bytes) { return FP_AUX_CALL(c, replace, -ENOTSUP, len_bytes); }

/*
 * Say of which pieces the chunk is made, in order and without gaps from 0 to len_bytes; then return FP_AUX_PIECES. New data goes on to the next stage
 * and the store. Zeros take no space. `same`: equal to the bytes at earlier_off of this chunk, which must be in a new piece. `stored`: equal to a
 * place in a stored chunk, which this call must have held (fp_aux_hold), or got from fp_aux_earlier or fp_aux_find, whose chunks are held while the
 * file is open for writing and nobody needs their space. fp-mount compares zeros and `same` with the data, and `stored` with what is stored if the
 * aux-app has `verify` (the default for those that did not come with fpstore; all of it is read for that): what is not so is not used, and counts as
 * a failure. So does a place that is not there although it was held, or is beyond the end of its chunk. A stored chunk that turns out to be damaged
 * or away is not: the callback has the data again, and what it says is stored is taken as new. -EINVAL: not in order, or out of bounds; -ENOTSUP:
 * after a stage that replaced the data; -ENOSPC: more than FP_AUX_PIECES_MAX (say of short duplicates beforehand that they are new).
 */
static inline int fp_aux_piece_new(struct fp_aux_call *c, uint32_t off, uint32_t len) { return FP_AUX_CALL(c, piece_new, -ENOTSUP, off, len); }
static inline int fp_aux_piece_zero(struct fp_aux_call *c, uint32_t off, uint32_t len) { return FP_AUX_CALL(c, piece_zero, -ENOTSUP, off, len); }
static inline int fp_aux_piece_same(struct fp_aux_call *c, uint32_t off, uint32_t len, uint32_t earlier_off)
{
    return FP_AUX_CALL(c, piece_same, -ENOTSUP, off, len, earlier_off);
}

static inline int fp_aux_piece_stored(struct fp_aux_call *c, uint32_t off, uint32_t len, struct fp_aux_place p)
{
    return FP_AUX_CALL(c, piece_stored, -ENOTSUP, off, len, p);
}

/*
 * Bytes of the aux-app's own about the new data of this chunk, e.g. its digests: kept by the manager with the stored chunk, gone with it. Up to
 * FP_AUX_NOTE_MAX_BYTES. Offsets in it should count in the new data (the first new piece begins at 0). keys: numbers by which fp_aux_find of any node
 * finds the chunk (each costs the manager about 30 bytes, at most FP_AUX_NOTE_KEYS_MAX; nkeys 0: only fp_aux_earlier finds it). One aux-app of a
 * chain may make notes: -EBUSY for a second.
 */
static inline int fp_aux_note(struct fp_aux_call *c, const void *note, uint32_t len, const uint64_t *keys, uint32_t nkeys)
{
    return FP_AUX_CALL(c, note, -ENOTSUP, note, len, keys, nkeys);
}

/* Number of this call for chunk_stored. */
static inline uint64_t fp_aux_ticket(struct fp_aux_call *c) { return FP_AUX_CALL(c, ticket, 0); }
/* Keep a stored chunk from being deleted until the file of this call is closed by its last writer, or space is short and no result has named it yet:
 * then the result is stored as it came. Without a file: for a minute. -ENOENT: it is gone already, is known to be damaged, or lies on a benefactor
 * that is away. */
static inline int fp_aux_hold(struct fp_aux_call *c, uint64_t chunk) { return FP_AUX_CALL(c, hold, -ENOTSUP, chunk); }

/*
 * Nothing to do at present: chunks on their way out that `skip` says need not come, and cost nothing, if all stages of the chain say so of them: fp-mount stores them
 * as without aux-apps; else this stage alone is passed over. What is under way comes still. The last word counts. It ends by itself after so many bytes, and
 * with any change of an option or of the chain, and with the host; then all chunks come, and it has to be said again. passed_bytes of the next chunk
 * says how much it was. All other callbacks are called as ever (but what is passed over keeps `idle` from nobody). Any thread; does not block. -ENOTSUP: not for what has
 * FP_AUX_CODES, a chunk_in or FP_AUX_REQUIRED, or was declared `required`: each chunk passes it. -EINVAL: step_bytes or come makes no sense.
 */
static inline int fp_aux_skip(struct fp_aux_host *h, const struct fp_aux_skip *skip) { return FP_AUX_CALL(h, skip, -ENOTSUP, skip); }

/* --- what is stored: worker or event thread; blocks for a message to the manager */

/*
 * The chunks with notes of the earlier version of a file being written: of what it held when it was opened or truncated, else of the newest file in
 * the same directory whose name differs only in the step number, else by `pattern` (docs/AUXAPPS.md; NULL: none). The chunks are held until the
 * file's last writer closes it. each: nonzero ends it. 0, or -ENOENT: there is no earlier version.
 */
static inline int fp_aux_earlier(struct fp_aux_host *h, uint64_t file_serial, const char *pattern,
                 int (*each)(void *arg, const struct fp_aux_noted *), void *arg)
{
    return FP_AUX_CALL(h, earlier, -ENOTSUP, file_serial, pattern, each, arg);
}

/* The chunks of the whole store whose notes have one of these keys (at most 1024), held for the chunk of the callback as by fp_aux_hold. */
static inline int fp_aux_find(struct fp_aux_host *h, const uint64_t *keys, uint32_t nkeys,
                  int (*each)(void *arg, const struct fp_aux_noted *), void *arg)
{
    return FP_AUX_CALL(h, find, -ENOTSUP, keys, nkeys, each, arg);
}

/* The bytes of a held place, verified. For who trusts no digest. */
static inline int fp_aux_read_chunk(struct fp_aux_host *h, struct fp_aux_place p, void *buf) { return FP_AUX_CALL(h, read_chunk, -ENOTSUP, p, buf); }

/* --- `write`, in the words of Figure 2 */

/* The next piece of the output, at most want_bytes (a multiple of FP_AUX_PIECE_MIN_BYTES), *len_bytes long; NULL: that was all. */
static inline void *fp_aux_get_chunk(struct fp_aux_call *c, void **output_buffer, uint32_t want_bytes, uint32_t *len_bytes)
{
    return FP_AUX_CALL(c, get_chunk, NULL, output_buffer, want_bytes, len_bytes);
}

/* This piece is new: it is to be stored. */
static inline int fp_aux_data_write(struct fp_aux_call *c, const void *chunk) { return FP_AUX_CALL(c, data_write, -ENOTSUP, chunk); }
/* 1: the table of this aux-app, shared by all files and nodes, knows a stored piece of this hash, which is held from here on. 0: no. */
static inline int fp_aux_hashtable_get(struct fp_aux_call *c, const void *hash, uint32_t hash_bytes)
{
    return FP_AUX_CALL(c, hashtable_get, -ENOTSUP, hash, hash_bytes);
}

/* Note the piece under its hash: a new one enters the table when it is stored, a known one refers to what is there. *result: as in Figure 2,
 * negative if the piece could not be written; then nothing is done. */
static inline int fp_aux_hashtable_update(struct fp_aux_call *c, int *result, const void *chunk, const void *hash, uint32_t hash_bytes)
{
    return FP_AUX_CALL(c, hashtable_update, -ENOTSUP, result, chunk, hash, hash_bytes);
}

/* --- the aux-app's table: shared by all nodes of the store, kept by the manager, durable with the next fsync. Any thread; blocks. */

/* *value_bytes: room, then length. -ENOENT; -ERANGE: it is longer (length in *value_bytes). */
static inline int fp_aux_table_get(struct fp_aux_host *h, const void *key, uint32_t key_bytes, void *value, uint32_t *value_bytes)
{
    return FP_AUX_CALL(h, table_get, -ENOTSUP, key, key_bytes, value, value_bytes);
}

/* only_new: -EEXIST if the key is there: exactly one of all nodes succeeds. */
static inline int fp_aux_table_put(struct fp_aux_host *h, const void *key, uint32_t key_bytes, const void *value, uint32_t value_bytes, bool only_new)
{
    return FP_AUX_CALL(h, table_put, -ENOTSUP, key, key_bytes, value, value_bytes, only_new);
}

static inline int fp_aux_table_remove(struct fp_aux_host *h, const void *key, uint32_t key_bytes)
{
    return FP_AUX_CALL(h, table_remove, -ENOTSUP, key, key_bytes);
}

/* --- files of the store: any thread; blocks. Calls made here are not seen by io ops and pass no aux-app. */

/* Bytes read, 0 at the end. Sees what this node has written. len <= 1 MiB. */
static inline ssize_t fp_aux_file_read(struct fp_aux_host *h, uint64_t ino, uint64_t off, void *buf, uint32_t len)
{
    return FP_AUX_CALL(h, file_read, -ENOTSUP, ino, off, buf, len);
}

/* Make or replace a whole file (len <= 1 MiB) beside others; path relative to the mount; owner as the mount's user. Atomic: readers see the old or
 * the new one. */
static inline int fp_aux_file_write(struct fp_aux_host *h, const char *path, const void *data, uint32_t len, uint32_t mode)
{
    return FP_AUX_CALL(h, file_write, -ENOTSUP, path, data, len, mode);
}

/* out->path is the argument. out->size_bytes must be set. */
static inline int fp_aux_file_find(struct fp_aux_host *h, const char *path, struct fp_aux_file *out)
{
    return FP_AUX_CALL(h, file_find, -ENOTSUP, path, out);
}

static inline ssize_t fp_aux_xattr_get(struct fp_aux_host *h, uint64_t ino, const char *name, void *value, uint32_t cap_bytes)
{
    return FP_AUX_CALL(h, xattr_get, -ENOTSUP, ino, name, value, cap_bytes);
}

static inline int fp_aux_xattr_set(struct fp_aux_host *h, uint64_t ino, const char *name, const void *value, uint32_t len)
{
    return FP_AUX_CALL(h, xattr_set, -ENOTSUP, ino, name, value, len);
}

/* --- other nodes */

/* To the same aux-app on a node (NULL: on all others), or on one mount (number, 0: by node). 0 or more: how many mounts it went to; delivered at most
 * once, in order from one sender. */
static inline int fp_aux_send(struct fp_aux_host *h, const char *node, uint64_t mount, const void *data, uint32_t len)
{
    return FP_AUX_CALL(h, send, -ENOTSUP, node, mount, data, len);
}

/* --- what is to be drained */

/*
 * Make a policy of draining (docs/CHECKPOINTS.md), as `fpctl drain set` does: text is its words. It belongs to the store and outlives the mount; of those that mounts
 * have made for one target the last one counts. Also from start. Any thread; blocks. 0; -EINVAL: it is refused, and why (may be NULL) has a line that says so.
 */
static inline int fp_aux_policy(struct fp_aux_host *h, const char *text, char *why, uint32_t why_bytes)
{
    return FP_AUX_CALL(h, policy, -ENOTSUP, text, why, why_bytes);
}

static inline const char *fp_aux_node(struct fp_aux_host *h) { return FP_AUX_CALL(h, node, ""); }

/* --- where it runs: any thread; valid from start to stop */

/* Directory where the store is mounted on this node, absolute; "": not known. It is mounted only when start has returned. For programs that an aux-app starts, and for files larger than the
 * services above take: what is done there is seen by io ops and passes all aux-apps, so nothing that waits for it may be waited for in a callback. */
static inline const char *fp_aux_mountpoint(struct fp_aux_host *h) { return FP_AUX_CALL(h, mountpoint, ""); }
/* Service cores of the mount, "7" or "1,3-5"; "": none were set aside. */
static inline const char *fp_aux_cores(struct fp_aux_host *h) { return FP_AUX_CALL(h, cores, ""); }

#ifdef __cplusplus
}
#endif
#endif
