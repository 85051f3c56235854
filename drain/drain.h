/* fp-drain inside: one target, a queue of tasks, threads that do them (fp/drainwire.h). */
#ifndef DRAIN_DRAIN_H
#define DRAIN_DRAIN_H

#include <limits.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "fp/drainwire.h"
#include "fp/limiter.h"
#include "fp/record.h"

#define DR_WHY_MAX     256u
#define DR_RUN_BYTES   (8u << 20) /* of one write to the target, where the data lies together */
#define DR_KNOWN_DIRS  1024u

#define DR_STREAMS_MAX 256u

struct dr_worker;
struct dr_coder;

/* A descriptor of a segment; closed with the last reference. */
struct dr_seg {
    uint64_t segment, salt;
    int fd;
    unsigned refs; /* the worker's lock */
    bool o_direct;
};

struct dr_task {
    struct dr_task *next;
    bool urgent;
    _Atomic bool cancelled;
    struct dr_seg **seg; /* WRITE: referenced, in the message's order; NULL where the message names one that is not known */
    uint32_t nsegs;
    uint32_t msg_bytes;
    _Alignas(16) uint8_t msg[]; /* whole, checked by dr_check */
};

/* What a task came to; filled by dr_<kind>. */
struct dr_result {
    int status;
    enum fp_dw_scope scope;
    uint64_t chunk, bytes;
    uint64_t dev, tino, size;
    int64_t mtime_ns;
    uint8_t unmarked[16];
    uint32_t nsums, note;
    uint64_t *sums; /* FP_DW_WINDOWS_MAX of them, the thread's */
    char why[DR_WHY_MAX];
};

struct dr_thread {
    struct dr_worker *w;
    pthread_t id;
    struct fp_dw_op *op;
    struct dr_task *task;
    struct dr_result r;
    /* Memory for data: made when it is needed, given back when there is nothing to do. */
    uint8_t *run, *bounce, *stored, *plain, *head;
    size_t run_bytes, bounce_bytes, stored_bytes, plain_bytes, head_bytes;
    uint64_t plain_chunk; /* the coded chunk of which plain has the data; 0: none */
    /* The header that was read last: small pieces of one chunk come one after the other. */
    uint64_t header_segment, header_off;
    struct fp_record_header header;
    bool reads; /* it is one of the readers */
    /* The file that was read last: the next piece of it is not opened again. Closed when there is nothing to do. */
    int file;
    bool file_direct;
    uint64_t file_ino;
    char *file_path;
    uint32_t file_path_bytes;
};

struct dr_worker {
    int socket;
    struct fp_dw_status *status;
    char *root; /* set by CONFIG, then constant */
    uint8_t store[16], target[16];
    struct dr_coder *coder; /* NULL until CONFIG */
    unsigned nthreads;
    struct fp_limiter *limiter; /* of the device with the segments, set by CONFIG; NULL: none is emulated */
    struct dr_thread thread[FP_DW_OPS_MAX]; /* nthreads, and FP_DW_READERS from FP_DW_THREADS_MAX on */
    uint8_t *memory; /* set by MEMORY, then constant */
    size_t memory_bytes;

    pthread_mutex_t lock; /* all below */
    pthread_cond_t work;  /* tasks, or the end */
    pthread_cond_t read_work; /* the same for readers */
    pthread_cond_t pace_changed;
    struct dr_task *urgent, *normal, *bulk, *reads; /* first to last; reads are the readers' */
    struct dr_seg **segs;
    size_t nsegs, segs_cap;
    bool stopping;
    enum fp_dw_pace_mode pace;
    uint64_t rate, next_ns; /* when the next bytes may go */
    uint64_t root_dev, root_ino; /* of the directory whose marker was seen last */
    struct {
        uint64_t dev, ino;
    } known[DR_KNOWN_DIRS]; /* directories whose own entries are durable */
    struct dr_stream {
        uint64_t tino, name, end;
    } stream[DR_STREAMS_MAX]; /* ours in logs: inode of the log, a random number, where the next record goes */
    unsigned nstreams;
    struct dr_index *index; /* of the log that was merged last; NULL: none */
    char needs[FP_DW_TMP_MAX + 8]; /* the entry that was synced last (needed.c) */
};

/* engine.c */
struct dr_worker *dr_new(int socket, struct fp_dw_status *status); /* both borrowed; NULL: no memory */
int dr_start(struct dr_worker *w, unsigned threads);               /* after CONFIG */
/* Waits for the threads, which may hang for ever in the target: the program does not call it, it exits. */
void dr_free(struct dr_worker *w);
void dr_take(struct dr_worker *w, struct dr_task *t); /* queues it; transferred */
void dr_cancel(struct dr_worker *w, uint64_t id, uint64_t gen);
/* Before `bytes` go to or come from the target: waits for the pace. False: the task is cancelled, or the end. */
bool dr_gate(struct dr_thread *th, uint64_t bytes);
/* Around each call that the target's file system could hang in. */
void dr_enter(struct dr_thread *th);
void dr_leave(struct dr_thread *th, uint64_t bytes);
int dr_memory(uint8_t **p, size_t *have, size_t bytes); /* at least that much, aligned to 4 KiB */

/* link.c */
/* Serves one benefactor until the socket ends (0) or says nonsense (-EPROTO). */
int dr_link_run(struct dr_worker *w);
void dr_answer(struct dr_thread *th);
void dr_send_names(struct dr_worker *w, const struct fp_dw_head *task, const char *names, size_t len_bytes);
void dr_send_entries(struct dr_worker *w, const struct fp_dw_head *task, const uint8_t *entries, size_t len_bytes);

/* check.c: is the message as its kind must be? 0 or -EPROTO. */
int dr_check(const uint8_t *msg, size_t len_bytes);

/* io.c: all of these on a thread's behalf; they set th->r (status, scope, why) when they fail, and return the status. */
int dr_fail(struct dr_thread *th, enum fp_dw_scope scope, int status, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
/* As _fail for a call on the target that gave this errno: its scope, by what it says. */
int dr_failed_call(struct dr_thread *th, int status, const char *what, const char *path);
int dr_root(struct dr_thread *th, bool make_marker, int *fd);
/* Its marker can't be made: what identity it has without (fp/targetid.h). -EEXIST, th->r as it was: it has a marker of this store. */
int dr_root_unmarked(struct dr_thread *th, uint8_t id[16]);
/* Path without NUL. flags of openat2; never a symlink in it, never out of the root. */
int dr_open(struct dr_thread *th, int root, const char *path, uint32_t path_bytes, int flags, unsigned mode, int *fd);
/* The directory that path's last name lies in, made if it is not there; entries durable. *name: that last name, NUL at its end, free() */
int dr_parent(struct dr_thread *th, int root, const char *path, uint32_t path_bytes, uint32_t uid, uint32_t gid, int *fd, char **name);
int dr_temps(struct dr_thread *th, int root, bool make, int *fd); /* FP_DW_TEMP_DIR */
bool dr_path_is_good(const char *path, uint32_t len);
int dr_fsync(struct dr_thread *th, int fd);
#define DR_PARTS_MAX 2u
/* All of the parts, one behind the other, at off: by *direct_fd (of O_DIRECT), which is closed and -1 when the file system does not take them so; where it is -1 by fd, of which they begin to go to the device. */
int dr_write_all(struct dr_thread *th, int fd, int *direct_fd, const struct iovec *parts, unsigned n, uint64_t off);
void dr_seen(struct dr_result *r, const struct stat *st);

#define DR_ASIDE_MAX (FP_DW_TMP_MAX + 6)
/* needed.c: may what has this name be replaced? 1: a file that no other store needs now; 0: there is none, or it is our own, of this inode (0: we have none
 * there), or force; -EPERM, with why: another store needs it. th->r.note: another store has drained it. */
int dr_may_replace(struct dr_thread *th, int temps, int dir, const char *name, uint64_t own, bool force);
/* Before it is replaced: a link to it beside the temporary file, by which dr_settle gives it its name back if somebody has begun to need it meanwhile (-EPERM).
 * 0, also when there is none; else the link can't be made, which is no reason not to replace it. */
int dr_keep_aside(struct dr_thread *th, int temps, const char *tmp, int dir, const char *name);
int dr_settle(struct dr_thread *th, int temps, const char *tmp, int dir, const char *name);
void dr_drop_aside(struct dr_thread *th, int temps, const char *tmp, uint32_t tmp_bytes);
/* The entry itself is a file like others. */
int dr_need_no_more(struct dr_thread *th, int temps, const char *entry, uint32_t entry_bytes);
/* Our store is about to rely on this file: said in the target, and synced. entry: a name, STORE8-needs-N. */
int dr_need(struct dr_thread *th, int root, const char *path, uint32_t path_bytes, const char *entry, uint32_t entry_bytes);
/* marker.c: 0; -ENOENT with what is wrong in th->r.why */
int dr_marker(struct dr_thread *th, int root, const uint8_t target[16], bool make);
/* The identity of a directory without a marker of this store. -EEXIST, th->r as it was: it has one. */
int dr_unmarked(struct dr_thread *th, int root, uint8_t id[16]);
/* Is it the one without a marker that the worker is for? */
int dr_unmarked_is(struct dr_thread *th, int root);
/* Would a store drain into a store, or to where nothing is kept? */
int dr_refuse_useless(struct dr_thread *th, int root);

/* 0; -ENODATA: the file ends before */
int dr_read_all(struct dr_thread *th, int fd, void *buf, uint64_t len, uint64_t off);

/* write.c: a temporary file that PREPARE has made, with inode tino, to be written from many nodes. Closed by _tmp_close also after a failure. */
struct dr_tmp {
    int fd, direct_fd; /* direct_fd: -1 where there is none */
};
int dr_tmp_open(struct dr_thread *th, struct dr_tmp *t, int root, const char *tmp, uint32_t tmp_bytes, uint64_t tino);
/* Waits for the pace. */
int dr_tmp_write(struct dr_thread *th, struct dr_tmp *t, const uint8_t *data, uint64_t len, uint64_t off);
int dr_tmp_sync(struct dr_thread *th, struct dr_tmp *t);
void dr_tmp_close(struct dr_thread *th, struct dr_tmp *t);

/* fstab.c: is path (absolute, resolved) at or below a mount point of fstab that is none of mounts (both as of fstab(5))? where: which */
bool dr_lacks_mount(const char *fstab, const char *mounts, const char *path, char where[PATH_MAX]);

/* dlog.c: the stream of this worker in a log that is being written (fp/dlog.h). A thread's, for one task. */
struct dr_dlog {
    struct dr_thread *th;
    int dir, fd, direct_fd; /* direct_fd: -1 where there is none */
    uint64_t tino, stream;
};
struct dr_dlog_run {
    uint64_t off; /* in the file */
    uint32_t at, len; /* in th->run */
};
uint64_t dr_dlog_id(const struct dr_thread *th); /* of the attempt */
int dr_dlog_open(struct dr_dlog *l, struct dr_thread *th, int temps, const char *tmp, uint32_t tmp_bytes, uint64_t tino);
/* One record of data in th->run, which is packed: it is not to be used afterwards. runs: ascending; n > 0. Has room for a page behind the data. */
int dr_dlog_append(struct dr_dlog *l, const struct dr_dlog_run *runs, uint32_t n);
int dr_dlog_sync(struct dr_dlog *l);
void dr_dlog_close(struct dr_dlog *l);

/* dlogindex.c: makes the index of the log in this directory, of what its streams have; *fd: it, for reading and writing. want_bytes: what there must be. */
int dr_dlog_index(struct dr_thread *th, int dir, uint64_t size, uint64_t want_bytes, int *fd);
/* Owner and mode of streams and directory, synced. What can't be had is left. */
int dr_dlog_attributes(struct dr_thread *th, int dir, const struct fp_dw_file *m);
/* May a log get this name? 1: there is a log already, which it may take the place of; 0: there is nothing. */
int dr_dlog_may_replace(struct dr_thread *th, int dir, const char *name);
/* FINISH, where two names can't be exchanged: the log of this name becomes TMP-old, and TMP-to says what its name was. The errno: who calls has entered. */
int dr_dlog_aside(struct dr_thread *th, int temps, int dir, const char *name);
void dr_dlog_forget(struct dr_thread *th, int temps, const char *tmp, uint32_t tmp_bytes);
/* CLEAN: the attempt ended between the two renames, so nothing has the name. 0; else th->r says what it is. */
int dr_dlog_put_back(struct dr_thread *th, int root, int temps, const char *tmp, uint32_t tmp_bytes);

/* prepare.c: a temporary file or directory, with what is in it; 0 also if it is not there. */
int dr_remove(struct dr_thread *th, int temps, const char *tmp, uint32_t tmp_bytes);

/* seg.c */
struct dr_seg *dr_seg_new(uint64_t segment, uint64_t salt, int fd); /* fd transferred; NULL: no memory, fd closed */
void dr_seg_add(struct dr_worker *w, struct dr_seg *s);
void dr_seg_drop(struct dr_worker *w, uint64_t segment);
int dr_segs_get(struct dr_worker *w, struct dr_task *t);
void dr_segs_put(struct dr_worker *w, struct dr_task *t);
/* The piece's bytes to dst, verified. dst has room for the record's padding behind it (4 KiB), which may be changed. */
int dr_seg_read(struct dr_thread *th, const struct fp_dw_slice *s, uint8_t *dst);

/* decode.c */
struct dr_coder *dr_coder_new(const char *plugin_dir, const char *declared, unsigned ndeclared); /* both copied; "": beside the program. NULL: no memory */
void dr_coder_free(struct dr_coder *d); /* NULL is fine */
/* The data of a coded chunk of which these are the stored bytes. */
int dr_decode(struct dr_thread *th, const struct fp_dw_slice *s, const uint8_t *stored, uint8_t *data);

/* One per kind of task, on a thread. */
int dr_prepare(struct dr_thread *th);
int dr_prepare_file(struct dr_thread *th, const struct fp_dw_file *m); /* m: as in a message */
int dr_finish_file(struct dr_thread *th, const struct fp_dw_file *m);
/* Has the temporary file of m the name? 0, and what is there as FINISH says it; else -ENOENT, or another failure. For who can't FINISH it again, to hear it a second time. */
int dr_was_finished(struct dr_thread *th, const struct fp_dw_file *m);
int dr_merge(struct dr_thread *th);
void dr_index_put(struct dr_worker *w, struct dr_index *x); /* merge.c's; NULL is fine */
int dr_write(struct dr_thread *th);
int dr_finish(struct dr_thread *th);
int dr_verify(struct dr_thread *th);
int dr_stat(struct dr_thread *th);
int dr_sweep(struct dr_thread *th);
int dr_clean(struct dr_thread *th);
int dr_probe(struct dr_thread *th);
int dr_read(struct dr_thread *th);
void dr_read_close(struct dr_thread *th); /* the file that was kept open */
int dr_list(struct dr_thread *th);

#endif
