/* Inside of draining: shared by tasks.c, targets.c, worker.c, taskwire.c, fetch.c and stage.c, and nobody else. Thread of the loop. */
#ifndef BNF_DRAIN_IMPL_H
#define BNF_DRAIN_IMPL_H

#include "benefactor/drain.h"
#include "benefactor/pace.h"
#include "fp/child.h"
#include "fp/drainwire.h"

#define TASKS_MAX      4096u
#define TARGETS_MAX    64u
#define GIVEN_MAX      8u  /* tasks that a worker has at a time: enough that its threads never wait for us */
#define CRASHES_MAX    3u  /* of workers that were doing a task, until it is blamed */
#define LEFT_MAX       2u  /* workers of a target that hang and were given up */
#define TICK_MS        100u
#define IDLE_MS        60000u
#define SLOW_MS        3000u /* a call of the target that takes longer is told of */
#define PROBE_MIN_MS   1000u
#define PROBE_MAX_MS   60000u
#define RESTART_MS     1000u
#define PROBE_ID       UINT64_MAX /* our own probes; the manager's tasks have others */
#define READ_ID        (UINT64_MAX - 1) /* our READs; gen tells which */
#define SLOTS_MAX      16u /* chunks of a worker on their way from the target to the device */

enum dtask_state { DTASK_WAITS, DTASK_GIVEN, DTASK_STAGES, DTASK_DONE };

struct dstage;
struct dfetcher;

struct dtask {
    struct dtask *next;
    struct dtarget *target;
    Fp__Task *m;          /* owned; not while DONE */
    uint64_t id, gen;
    enum dtask_state state;
    bool dropped;         /* cancelled while the worker has it: nobody wants the answer */
    bool telling;         /* its result is on its way */
    uint64_t sending;     /* number of the last sending: answers to an earlier one do not count */
    unsigned crashes, tries;
    uint64_t *segments;   /* in use by it while GIVEN */
    uint32_t nsegments;
    /* result */
    int32_t status;
    char *why;            /* NULL: none */
    bool stalled, tainted, has_seen;
    Fp__ExtFile seen;
    uint64_t bytes, missing;
    uint64_t *sums;
    size_t nsums;
    char **names;
    size_t nnames;
    struct dstage *stage; /* FETCH, STAGE: while STAGES */
    uint64_t *missing_list; /* FETCH that failed: owned */
    Fp__Chunk **chunks;     /* STAGE: of protobuf-c's, owned */
    Fp__ListEntry **list;   /* LIST: likewise */
    size_t nmissing, nchunks, nlist;
    bool more;              /* LIST */
    bool replaced;          /* FINISH, MERGE: a file that another store had drained */
    /* as messages, for bnf_drain_results */
    Fp__TaskResult out;
    Fp__ListEntry *entries, **entry_list;
};

struct dsegment {
    uint64_t id;
    unsigned users;
};

struct dout {
    struct dout *next;
    int fd; /* to be sent along, then closed; -1: none */
    uint32_t len_bytes;
    uint8_t bytes[];
};

/* Memory that is shared with one fp-drain: slots for a record each. What a worker that was given up may still write to is nobody's any more. */
struct dmemory {
    unsigned refs; /* its worker, and slots in use */
    int fd;
    uint8_t *base;
    bool used[SLOTS_MAX];
};

/* One fp-drain. */
struct dworker {
    struct dworker *next;  /* of those that end */
    struct dtarget *target; /* NULL: given up, it only has to end */
    uint32_t target_id;
    struct fp_child *child;
    struct fp_dw_status *page;
    uv_poll_t poll;
    bool polling, closing, closed;
    uint64_t ending_ms;    /* since when it should end */
    struct dout *out, **out_tail;
    struct dsegment *segs;
    uint32_t nsegs, segs_cap;
    struct dmemory *memory; /* NULL: it was not told of any */
};

struct dtarget {
    struct dtarget *next;
    struct bnf_drain *drain;
    uint32_t id;
    char *root;
    uint8_t uuid[16];
    struct dworker *worker;
    unsigned given;
    Fp__TargetCode code;
    char why[256];
    int64_t since_ns;      /* by the wall clock, for people */
    uint64_t hang_ms;      /* since when a call hangs; 0: none */
    bool slow;             /* a call has been under way for SLOW_MS: it may come to hang */
    uint64_t look;         /* the last number by which the manager asked for a probe */
    uint64_t idle_ms;      /* since when there is nothing to do */
    uint64_t start_ms;     /* no worker is started before */
    uint64_t backoff_ms, probe_ms; /* pause; when the next probe is due (0: none) */
    uint64_t probe_gen;    /* our probe under way; 0: none */
    Fp__PaceMode mode;
    uint64_t rate;
    uint32_t sent_mode;    /* what the worker was told; 0: nothing */
    uint64_t sent_rate;
    uint64_t seen_written, seen_ms, measured_rate; /* of the page */
    uint64_t done_bytes;   /* since the start */
    Fp__TargetState info;
};

struct bnf_drain {
    struct bnf_drain_config config;
    struct dtask *tasks, **tasks_tail; /* in the order in which they came */
    size_t ntasks;
    struct dtarget *targets;
    struct dworker *ending;
    uv_timer_t timer;
    bool ticking, stopping;
    bool hold;
    bool staging;          /* dstage_pump is at work */
    bool local_hold;       /* mounts are at work here */
    struct bnf_pace pace;
    uint64_t next_probe;
    struct dfetcher *fetcher;
    struct dstaged *staged; /* staged.c's */
    size_t nstaged, staged_cap;
    char prefix[9];        /* of temporary files of this store */
    Fp__BnfPrefs prefs;
    Fp__TargetState *info_list[TARGETS_MAX];
};

/* tasks.c */
void dtask_finish(struct dtask *t, int status, const char *why); /* WAITS or GIVEN -> DONE, told to the manager */
void dtask_forget(struct dtask *t);
void dtask_wait(struct dtask *t);   /* GIVEN -> WAITS */

void dtasks_tick(struct bnf_drain *d); /* the timer runs until there is nothing to do */

/* fetch.c */
struct dfetched {
    int status;
    bool stalled;          /* it is the target's fault: it may be tried again when that is well */
    bool stored;
    bool zeros;            /* nothing else in it, and not stored for that */
    uint64_t sum;
    uint32_t stored_bytes;
    const char *why;       /* valid during the call */
};
/* What is to be read, and as what to be stored. sum 0: not known, and zeros are not stored. All borrowed. */
struct dfetch_ask {
    struct dtarget *target;
    const Fp__ExtFile *file;
    uint64_t chunk, off, sum;
    uint32_t len;
    void (*cb)(void *arg, const struct dfetched *r); /* from the loop, once */
    void *arg;
};
int dfetcher_new(struct bnf_drain *d, struct dfetcher **out);
/* Everybody who waits is told. What disk threads still do comes to its end by itself. NULL is fine. */
void dfetcher_stop(struct dfetcher *e);
void dfetcher_free(struct dfetcher *e); /* after _stop */
int dfetch(struct dfetcher *e, const struct dfetch_ask *a); /* for a task. What is here already is read, too. -EBUSY, -ENOMEM */
void dfetch_pump(struct dtarget *t);
bool dfetcher_tick(struct dfetcher *e, uint64_t now_ms); /* has it something to do? */
bool dfetch_has_work(const struct dtarget *t);
void dfetch_answer(struct dtarget *t, const struct fp_dw_done *m, const char *why, const uint8_t *sums);
void dfetch_take_back(struct dtarget *t, const struct fp_dw_status *page); /* its worker is gone; page: it crashed */

/* staged.c */
void dstaged_add(struct bnf_drain *d, uint64_t chunk, uint32_t stored_bytes); /* d NULL: it ends, and nobody is told */
void dstaged_told(struct bnf_drain *d, bool taken);

/* stage.c: tasks that are many of these */
void dstage_pump(struct dtarget *t);
void dstage_drop(struct dtask *t); /* nobody wants it any more: forgotten, now or when nothing of it is under way */
bool dstage_is_one(const Fp__Task *m);
void dstage_free(struct dtask *t);

/* taskwire.c */
bool dpath_is_good(const ProtobufCBinaryData *path);
int dread_send(struct dworker *w, const struct dfetch_ask *a, uint64_t number, uint64_t to); /* 0 or negative */

/* Messages of the task to the worker. 0, or what its result is: FP_ECHUNK_MISSING with t->missing, -EINVAL … */
int dtask_send(struct dtask *t, struct dworker *w);
int dprobe_send(struct dtarget *t, struct dworker *w, uint64_t gen);

/* worker.c */
int dworker_start(struct dtarget *t, struct dworker **out);
int dworker_send(struct dworker *w, const void *msg, size_t len_bytes, int fd); /* fd is taken. -ENOMEM */
int dworker_segment_use(struct dworker *w, uint64_t segment, struct bnf_file *f);
bool dworker_segment_is_used(const struct dworker *w, uint64_t segment);
void dworker_segment_unuse(struct dworker *w, uint64_t segment);
int dworker_memory(struct dworker *w); /* made and told, if it is not there */
int dmemory_slot_get(struct dmemory *m); /* -EAGAIN: none */
void dmemory_slot_put(struct dmemory *m, int slot, uint32_t used_bytes);
uint64_t dmemory_slot_off(int slot); /* of the record's header; data is 4 KiB behind */
void dmemory_put(struct dmemory *m);
void dmemory_rest(struct dmemory *m); /* what nobody uses takes no memory */
/* Closes its socket; with kill, does not wait for what it is doing. It is freed when it has ended. */
void dworker_end(struct dworker *w, bool kill);
bool dworker_reap(struct bnf_drain *d, struct dworker *w); /* has it ended? then it is gone */

/* targets.c */
struct dtarget *dtarget_get(struct bnf_drain *d, const Fp__ExtFile *dest, int *rc);
bool dtarget_may_read(const struct dtarget *t);
bool dtarget_hangs(const struct dtarget *t);
bool dtarget_have_worker(struct dtarget *t);
void dtarget_stall(struct dtarget *t, int status, const char *why);
void dtarget_reads(struct dtarget *t); /* something was read from it */
void dtarget_look(struct dtarget *t); /* somebody waits for it: if it takes nothing it is tried at once */
void dtarget_asked(struct dtarget *t); /* somebody wants it anew: what was called refused is looked at at once */
int dtarget_entries(struct dtarget *t, const struct fp_dw_head *h, const uint8_t *entries, size_t len_bytes); /* -EPROTO */
void dtarget_pump(struct dtarget *t);
void dtarget_answer(struct dtarget *t, const struct fp_dw_done *m, const char *why, const uint8_t *sums);
void dtarget_names(struct dtarget *t, const struct fp_dw_head *h, const char *names, size_t len_bytes);
void dtarget_worker_gone(struct dtarget *t);
void dtarget_not_started(struct dtarget *t, int status); /* the program could not be executed */
void dtarget_pace(struct dtarget *t); /* tells the worker, if it has changed */
bool dtarget_tick(struct dtarget *t, uint64_t now_ms); /* has it something to do? */
void dtarget_free(struct dtarget *t);

#endif
