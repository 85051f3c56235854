/*
 * fp-auxhost inside. Who owns what:
 *
 * main thread (link.c)     reads the job socket, makes jobs and events of messages and queues them; never waits for anything else; beats
 * control thread           loads and starts aux-apps, changes options and cores, stops them (control.c)
 * worker threads           of a stage, one aux-app's chunk_out or write (stage.c). After its own stage a worker runs the next one too, if that stage's
 *                          core is its own, or its work is less than a wake-up costs
 * event thread             of an aux-app: FUSE calls, files, sets, messages, idle, chunk_stored (event.c); another one for FUSE calls that are waited for
 * loader thread            of root's host: dlopen, with the privilege that the others have given up (loader.c)
 * decode threads           chunk_in, backwards through all stages of a chunk (decode.c)
 *
 * Locks, all leaves but for stage.lock -> hostlog's: aux_stage.lock, aux_events.lock, aux_app.in_lock (held over chunk_in), aux_jobs.lock,
 * decode lock, control lock, services lock. None but in_lock is held over a callback, none over a message.
 */
#ifndef AUX_HOST_H
#define AUX_HOST_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "auxapps/host/cores.h"
#include "auxapps/host/fence.h"
#include "auxapps/host/load.h"
#include "auxapps/host/pieces.h"
#include "fp/auxwire.h"

#define AUX_WORKERS_MAX 16u
#define AUX_DECODERS_MAX 4u
#define AUX_JOBS_MAX 4096u             /* at work; more are refused */
#define AUX_EVENTS_MAX 1024u           /* waiting for one aux-app; more are refused */
#define AUX_PAGE_BYTES 65536u
#define AUX_PART_BYTES (128u << 10)    /* of large services */

struct aux_host;
struct aux_app;

/* A thread of the host, as fp-mount sees it in the status page. */
struct aux_thread {
    struct aux_host *h;
    struct fp_auxw_thread *slot;   /* NULL: no slot was left */
    struct aux_call *call;         /* the callback it is in: only read by itself */
    int cpu;                       /* -1: any of the service cores */
    void *alt_stack;
    uint8_t *scratch;              /* for `verify` */
    uint32_t scratch_bytes;
    struct aux_fence fence;        /* where foreign plugins write */
    struct aux_pieces *pieces, *spare; /* of the call, and to compose into */
};
extern _Thread_local struct aux_thread *aux_self;

/* -------------------------------------------------------------- jobs */

enum aux_where { AUX_IN_PAGES, AUX_IN_A, AUX_IN_B };

struct aux_ticket { uint64_t number; uint32_t app; };

/* A window on its way to the store. Owned by whoever has it in hand or by the queue it is in. */
struct aux_job {
    struct aux_job *next;                  /* queue of a stage */
    struct aux_job *live_prev, *live_next; /* aux_jobs.lock */
    uint64_t id, ino, file_off, file_serial;
    _Atomic bool cancelled;
    bool whole;
    uint32_t stored_app;                   /* 1 + index of the aux-app that referred to stored chunks; 0: none */
    bool no_pieces;                        /* pieces are not believed: all is new */
    uint32_t len_bytes;                    /* of the window */
    uint8_t *out[3];                       /* by enum aux_where; [0] is NULL */
    const uint8_t *in[3];                  /* the same memory, read-only */
    uint32_t out_cap_bytes;
    /* the data as the last stage left it */
    enum aux_where where;
    uint32_t cur_bytes, nparts, npage_parts;
    struct fp_aux_part *parts;             /* page_part, or &one */
    struct fp_aux_part one;
    uint32_t new_bytes, nstages;
    uint32_t ran, failed;                  /* as in struct fp_auxw_out_done */
    bool no_stored;                        /* pieces that refer to stored chunks are left out */
    uint32_t skip;                         /* bit i: aux-app i is passed over; settled when it is submitted */
    enum { AUX_ZEROS_UNKNOWN, AUX_ZEROS, AUX_NO_ZEROS } zeros; /* has it a block of them? */
    uint64_t passed_bytes[FP_AUXW_APPS_MAX];
    struct fp_auxw_stage stage[FP_AUXW_STAGES_MAX];
    struct aux_pieces *pieces;             /* NULL: all new */
    void *note;
    uint64_t *keys;
    uint32_t note_bytes, nkeys;
    struct aux_ticket ticket[4];
    int32_t status;
    uint32_t status_app;
    struct fp_aux_part page_part[];
};

/* -------------------------------------------------------------- stages */

struct aux_worker {
    pthread_t thread;
    pthread_cond_t wake;
    struct aux_app *app;
    uint32_t index;
    bool started, idle, gone;      /* stage.lock; gone: has ended, to be joined */
    int cpu;
};

struct aux_stage {
    pthread_mutex_t lock;
    pthread_cond_t space, quiet;
    struct aux_job *head, **tail;
    uint32_t queued, limit, waiting_for_space;
    uint64_t full_since_ns;        /* more wants in than `limit` since then; 0: it is not so */
    uint32_t running, running_max;
    bool paused, stop;
    uint32_t active;               /* workers that may run */
    struct aux_worker worker[AUX_WORKERS_MAX];
    _Atomic int cpu;               /* of its only worker; -1: none, or several */
    _Atomic uint64_t cost_ns, blocked_ns; /* of a call, running means */
};

/* -------------------------------------------------------------- events */

struct aux_done { _Atomic uint32_t refs; uint64_t id; _Atomic int32_t status; _Atomic uint32_t app; };

struct aux_event {
    struct aux_event *next;
    struct aux_done *done;         /* NULL: nobody wants an answer */
    _Atomic bool cancelled;
    uint32_t len_bytes;
    _Alignas(16) uint8_t msg[];    /* the message, and a NUL behind it */
};

struct aux_events {
    pthread_mutex_t lock;
    pthread_cond_t wake, quiet;
    struct aux_app *app;
    struct aux_event *head, **tail, *running;
    bool busy;                     /* in a callback */
    uint32_t queued;
    bool paused, stop, started;
    int cpu;
    pthread_t thread;
};

/* -------------------------------------------------------------- aux-apps */

struct fp_aux_host { struct fp_aux_handle handle; struct aux_app *app; };

struct aux_app {
    struct fp_aux_host host;       /* what the plugin gets */
    struct aux_host *h;
    uint32_t index;
    char *declaration;             /* owned */
    bool required;                 /* as declared, or as it says itself */
    bool bypassed;                 /* there only to decode */
    struct aux_plugin *plugin;     /* NULL: no aux-app in this place */
    struct aux_words words;        /* control thread; what others need of it is below */
    _Atomic uint32_t deadline_ms, ask_ms, idle_ms;
    _Atomic bool verify;
    _Atomic bool skip_but_zeros;   /* FP_AUX_SKIP_BUT_ZEROS was its last word */
    struct aux_options *options;
    void *state;
    bool started;
    struct fp_auxw_stats *stats;
    _Atomic uint32_t ncounters;
    struct aux_stage stage;
    struct aux_events events, asks; /* asks: FUSE calls that an application waits for */
    pthread_rwlock_t in_lock;      /* chunk_in: read by several, written where the plugin takes one call at a time, and to keep them out */
    _Atomic uint64_t next_ticket;
    struct aux_table *table;       /* of `write`: what enters the hash table when it is stored (figure2.c) */
    struct aux_loglimit { _Atomic uint64_t from_ms; _Atomic uint32_t lines, dropped; } loglimit;
};

/* One callback in progress. To plugins: an opaque struct fp_aux_call. */
struct aux_call {
    struct fp_aux_handle handle;   /* first: a struct fp_aux_call * points here */
    struct aux_app *app;
    struct aux_thread *thread;     /* that runs it */
    struct aux_job *job;           /* NULL: not about a chunk on its way out */
    _Atomic bool *cancelled;       /* of the job or event; NULL: none */
    bool by_progress;              /* the deadline runs from the last service asked for */
    uint64_t since_ns, begun_ns, deadline_ns, blocked_ns;
    uint64_t file_serial;
    /* chunk_out and write */
    const struct fp_aux_chunk *chunk;
    enum aux_where out;            /* AUX_IN_PAGES: not asked for yet */
    uint8_t *fenced;               /* the out buffer of a foreign plugin; NULL: it is in the region */
    uint32_t replaced_bytes;
    struct aux_pieces *pieces;     /* NULL: none said */
    const uint8_t *flat;
    void *note;
    uint64_t *keys;
    uint32_t note_bytes, nkeys;
    bool noted;
    uint64_t ticket;
    struct aux_figure2 *f2;
    char *said;                    /* AUX_WHY_BYTES: the last error or warning that the plugin has logged in it; NULL: nobody asks */
};

struct aux_host {
    int fd_jobs, fd_services;
    const uint8_t *pool;
    uint64_t pool_bytes, region_bytes, memory_bytes;
    uint8_t *region;               /* written by stages */
    const uint8_t *region_ro;      /* what stages read */
    struct fp_auxw_status *status;
    char plugin_dir[AUX_PATH_BYTES], node[128], mountpoint[4096], cores_text[257];
    struct aux_cores *cores;
    _Atomic bool ready, stopping;
    uint32_t napps;                /* declared: places 0 .. napps - 1; behind them those loaded for decoding */
    _Atomic uint32_t nall;
    struct aux_app *app[FP_AUXW_APPS_MAX];
    struct { pthread_mutex_t lock; struct aux_job *head; uint32_t n; } jobs;
    _Atomic uint64_t last_come_ns; /* a chunk or an event */
    struct aux_loader *loader;     /* NULL: who wants a plugin loads it */
    struct aux_control *control;
    struct aux_decode *decode;
    struct aux_svc *svc;
};

/* -------------------------------------------------------------- guard.c */

/* Limits, privileges, signals. First thing in main. */
void aux_guard_init(void);
/* The calling thread gives up the last privilege (to read any file, for loading and start) and so do all that it makes. */
void aux_guard_drop(void);
/* Or it keeps it in reserve, and uses it or not. Has it any? */
void aux_guard_reserve(bool use);
bool aux_guard_has_reserve(void);
/* From here on a fatal signal is noted in the status page. */
void aux_guard_status(struct aux_host *h);
/* A thread begins (app FP_AUXW_NO_APP: the host's own) and ends. `t` must live in between. Pins it to cpu, or to all service cores if -1. */
void aux_thread_begin(struct aux_thread *t, struct aux_host *h, uint32_t app, int cpu);
void aux_thread_end(struct aux_thread *t);
/* The calling thread runs code of this aux-app that is no callback: its constructors. FP_AUXW_NO_APP: no longer. */
void aux_thread_mark(uint32_t app, uint32_t deadline_ms);
/* The calling thread has short work to do: when it is woken, a stage that computes on the same core makes way at once, not at the end of its slice (3 ms). */
void aux_thread_short(void);

/* -------------------------------------------------------------- call.c */

void aux_call_fill(struct fp_aux_services *s);
/* Around every callback. deadline_ms 0: none. by_progress: see struct aux_call. */
void aux_call_begin(struct aux_call *c, struct aux_app *a, uint32_t deadline_ms, bool by_progress);
uint64_t aux_call_end(struct aux_call *c);     /* how long it took, ns */
bool aux_call_over(const struct aux_call *c);  /* nobody waits for it any more */
/* chunk_out or write of this aux-app for this job. Sets job->status. */
void aux_chunk_out(struct aux_app *a, struct aux_job *j);
/* chunk_in. The answer of the plugin, or -EILSEQ. */
int aux_chunk_in(struct aux_app *a, _Atomic bool *cancelled, const uint8_t *in, uint32_t in_bytes, uint8_t *out, uint32_t out_bytes);

/* -------------------------------------------------------------- services */

extern struct fp_aux_services aux_services;
void aux_services_init(void);          /* once, before the first aux-app is loaded */
/* svc.c: the ones that fp-mount answers. */
int aux_svc_new(struct aux_host *h);
void aux_svc_fill(struct fp_aux_services *s);      /* notes, chunks, the table */
void aux_svc_fill_files(struct fp_aux_services *s);
/* One request. body: a packed message, owned by the caller; 0 or a negative errno. */
struct aux_request {
    struct aux_host *h;
    uint32_t app, type;
    uint64_t id, file_serial;
    struct aux_call *call;         /* it is made in; NULL: on a thread of the plugin's own */
    uint64_t until_ns;
    void *waiter;
};
struct aux_answer { struct aux_answer *next; int32_t status; bool eof; uint32_t body_bytes; _Alignas(8) uint8_t body[]; };
/* Begin; then send and wait as often as needed; then end. Answers are freed by the caller. */
void aux_request_begin(struct aux_request *r, struct aux_app *a, uint32_t type);
int aux_request_send(struct aux_request *r, const void *body, size_t body_bytes);
int aux_request_wait(struct aux_request *r, struct aux_answer **out);
void aux_request_end(struct aux_request *r);
/* All of it, for one answer. */
int aux_request(struct aux_app *a, uint32_t type, const void *body, size_t body_bytes, struct aux_answer **out);
int aux_svc_hold(struct aux_call *c, uint64_t chunk);
int aux_svc_table_get(struct aux_app *a, const void *key, uint32_t key_bytes, void *value, uint32_t *value_bytes);
/* Several entries of the aux-app's table at once. Keys of key_bytes each, values of value_bytes each. 0 or the first error. */
int aux_svc_table_put(struct aux_app *a, const uint8_t *const *keys, const uint32_t *key_bytes, const void *values, uint32_t value_bytes, uint32_t n);

/* -------------------------------------------------------------- figure2.c */

/* The callback `write`. Verdict or negative errno. */
int aux_figure2_run(struct aux_app *a, struct aux_call *c);
void aux_figure2_fill(struct fp_aux_services *s);
struct aux_table *aux_figure2_table(void);     /* NULL: out of memory */
/* What a call with this ticket noted is stored at `place`: event thread. */
void aux_figure2_stored(struct aux_app *a, uint64_t ticket, struct fp_aux_place place);

/* -------------------------------------------------------------- stage.c */

void aux_stage_init(struct aux_app *a);
/* Make or end workers so that there are `active`. Control thread. */
int aux_stage_set_active(struct aux_app *a, uint32_t active);
/* May fp_aux_skip keep chunks from it? */
bool aux_may_skip(const struct aux_app *a);
/* Does it take chunks on their way out? */
bool aux_stage_is(const struct aux_app *a);
/* The first aux-app from place `index` on that takes this chunk on its way out, or NULL. */
struct aux_app *aux_next_out(struct aux_host *h, uint32_t index, struct aux_job *j);
void aux_stage_submit(struct aux_host *h, struct aux_job *j);  /* to the first stage; main thread, never waits */
void aux_stage_pause(struct aux_app *a, bool pause);           /* returns when no call of this stage is going on */
void aux_stage_stop(struct aux_app *a);

/* -------------------------------------------------------------- job.c */

/* What a message says of the region is not believed. */
static inline bool aux_in_region(const struct aux_host *h, uint64_t off, uint64_t len)
{
    return off <= h->region_bytes && len <= h->region_bytes - off;
}

/* NULL with *status: -EINVAL, -ENOMEM, -ENOBUFS. */
struct aux_job *aux_job_new(struct aux_host *h, const struct fp_auxw_chunk_out *m, int *status);
/* An answer to a job that was none. */
void aux_job_refuse(struct aux_host *h, uint64_t id, int status);
/* Sends the answer and frees it. */
void aux_job_finish(struct aux_host *h, struct aux_job *j);
void aux_jobs_cancel(struct aux_host *h, uint64_t id, bool all);

/* -------------------------------------------------------------- event.c */

void aux_events_init(struct aux_app *a);
/* The threads it needs. */
int aux_events_start(struct aux_app *a, int cpu);
/* Queue a message for one aux-app. Answers at once if that can't be. Main thread, never waits. */
void aux_event_submit(struct aux_app *a, const struct fp_auxw_head *m, struct aux_done *done);
/* For all of them that have `has`. */
void aux_event_broadcast(struct aux_host *h, const struct fp_auxw_head *m, uint32_t has);
void aux_event_cancel(struct aux_host *h, uint64_t id, bool all);
struct aux_done *aux_done_new(uint64_t id, uint32_t refs);
void aux_done_put(struct aux_host *h, struct aux_done *d, uint32_t app, int status);
void aux_events_pause(struct aux_app *a, bool pause);
void aux_events_stop(struct aux_app *a);

/* -------------------------------------------------------------- decode.c */

int aux_decode_new(struct aux_host *h);
void aux_decode_submit(struct aux_host *h, const struct fp_auxw_chunk_in *m);  /* main thread, never waits */
void aux_decode_cancel(struct aux_host *h, uint64_t id, bool all);
void aux_decode_stop(struct aux_host *h);
/* Waits until no chunk_in of this aux-app is going on and lets none begin, and the other way. */
void aux_decode_pause(struct aux_app *a, bool pause);

/* -------------------------------------------------------------- loader.c */

/* Before the last privilege is given up, and before anything of a plugin runs. Makes a thread where there is such a privilege. */
int aux_loader_new(struct aux_host *h);
/* aux_plugin_load, from wherever fp-mount could read it. Any thread; waits. The status page says meanwhile that it is in place `index`. */
int aux_loader_load(struct aux_host *h, uint32_t index, const char *word, struct aux_plugin **out, char why[AUX_WHY_BYTES]);

/* -------------------------------------------------------------- control.c */

/* Makes the control thread, which loads and starts all aux-apps, and says READY or FAILED. */
int aux_control_new(struct aux_host *h);
void aux_control_change(struct aux_host *h, const struct fp_auxw_change *m);
/* Ends all aux-apps; returns when they are stopped or 2 s are over. */
void aux_control_stop(struct aux_host *h);
/* Load and start the aux-app `word` in place `index`. 0, or a negative errno with `why`. */
int aux_app_load(struct aux_host *h, struct aux_app *a, const char *word, const char *declaration, char why[AUX_WHY_BYTES]);
struct aux_app *aux_app_new(struct aux_host *h, uint32_t index, const char *declaration, uint32_t declaration_bytes);
uint32_t aux_app_has(const struct aux_app *a);
uint32_t aux_app_required(const struct aux_app *a); /* FP_AUXW_REQUIRED_* */

/* -------------------------------------------------------------- link.c */

int aux_link_run(struct aux_host *h);
/* Any thread; waits while the socket is full. The parts of a message; the first begins with its head, whose len_bytes is filled in. */
struct iovec;
int aux_link_send(struct aux_host *h, struct iovec *iov, int n);
void aux_link_done(struct aux_host *h, uint64_t id, uint32_t app, int status, uint32_t where);
/* The same of a CHANGE that is refused, and why. */
void aux_link_refused(struct aux_host *h, uint64_t id, uint32_t app, int status, const char *why);
/* A line for the log of the mount. app FP_AUXW_NO_APP: from the host. */
void aux_log(struct aux_host *h, uint32_t app, int level, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void aux_log_text(struct aux_host *h, uint32_t app, int level, const char *text);

#endif
