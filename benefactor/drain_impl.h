/* Inside of draining: shared by tasks.c, targets.c, worker.c and taskwire.c, and nobody else. Thread of the loop. */
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
#define PROBE_MIN_MS   1000u
#define PROBE_MAX_MS   60000u
#define RESTART_MS     1000u
#define PROBE_ID       UINT64_MAX /* our own probes; the manager's tasks have others */

enum dtask_state { DTASK_WAITS, DTASK_GIVEN, DTASK_DONE };

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
    uint64_t idle_ms;      /* since when there is nothing to do */
    uint64_t start_ms;     /* no worker is started before */
    uint64_t backoff_ms, probe_ms; /* pause; when the next probe is due (0: none) */
    uint64_t probe_gen;    /* our probe under way; 0: none */
    Fp__PaceMode mode;
    uint64_t rate, pace_until_ms;
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
    bool local_hold;       /* mounts are at work here */
    struct bnf_pace pace;
    uint64_t next_probe;
    char prefix[9];        /* of temporary files of this store */
    Fp__BnfPrefs prefs;
    Fp__TargetState *info_list[TARGETS_MAX];
};

/* tasks.c */
void dtask_finish(struct dtask *t, int status, const char *why); /* WAITS or GIVEN -> DONE, told to the manager */
void dtask_forget(struct dtask *t);
void dtask_wait(struct dtask *t);   /* GIVEN -> WAITS */

/* taskwire.c */
/* Messages of the task to the worker. 0, or what its result is: FP_ECHUNK_MISSING with t->missing, -EINVAL … */
int dtask_send(struct dtask *t, struct dworker *w);
int dprobe_send(struct dtarget *t, struct dworker *w, uint64_t gen);

/* worker.c */
int dworker_start(struct dtarget *t, struct dworker **out);
int dworker_send(struct dworker *w, const void *msg, size_t len_bytes, int fd); /* fd is taken. -ENOMEM */
int dworker_segment_use(struct dworker *w, uint64_t segment, struct bnf_file *f);
bool dworker_segment_is_used(const struct dworker *w, uint64_t segment);
void dworker_segment_unuse(struct dworker *w, uint64_t segment);
/* Closes its socket; with kill, does not wait for what it is doing. It is freed when it has ended. */
void dworker_end(struct dworker *w, bool kill);
bool dworker_reap(struct bnf_drain *d, struct dworker *w); /* has it ended? then it is gone */

/* targets.c */
struct dtarget *dtarget_get(struct bnf_drain *d, const Fp__ExtFile *dest, int *rc);
void dtarget_pump(struct dtarget *t);
void dtarget_answer(struct dtarget *t, const struct fp_dw_done *m, const char *why, const uint8_t *sums);
void dtarget_names(struct dtarget *t, const struct fp_dw_head *h, const char *names, size_t len_bytes);
void dtarget_worker_gone(struct dtarget *t);
void dtarget_not_started(struct dtarget *t, int status); /* the program could not be executed */
void dtarget_pace(struct dtarget *t); /* tells the worker, if it has changed */
bool dtarget_tick(struct dtarget *t, uint64_t now_ms); /* has it something to do? */
void dtarget_free(struct dtarget *t);

#endif
