/*
 * What the files of client/aux/ share.
 *
 * Threads: the link thread (one; owns the host process, polls both sockets, watches), service threads (a few; answer the host's requests and may
 * block), and everybody who submits. Locks: `lock` (calls, region, state, apps), then the lock of holds.c, and leaves: those of files.c and tasks.c. `lock` may be
 * taken with an inode->lock held, never the other way round. Callbacks (`done`) run without a lock of ours.
 */
#ifndef CL_AUX_INTERNAL_H
#define CL_AUX_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "client/aux/aux.h"
#include "client/aux/cpuset.h"
#include "client/aux/declare.h"
#include "client/aux/region.h"
#include "client/client.h"
#include "fp.pb-c.h"
#include "fp/auxwire.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/log.h"

#define AUX_START_MS     15000u  /* for all aux-apps together to start */
#define AUX_STOP_MS      2000u   /* for them to stop */
#define AUX_ORPHANS_MAX  4u
#define AUX_EVENTS_MAX   512u    /* events that were sent and are not done */
#define AUX_EVENTS_QUEUE 2048u   /* and that wait to be sent; then applications wait */
#define AUX_HASH         1024u

/* One life of fp-auxhost. */
struct aux_host {
    atomic_uint refs;              /* link thread, service requests under way */
    _Atomic pid_t pid;             /* 0: it has ended */
    int jobs_fd, services_fd;
    int pid_fd;                    /* readable when the process has ended, also if a child of it holds the sockets; -1: none */
    struct fp_auxw_status *status; /* mapped; the host writes it */
    uint64_t started_ms;
};

/* What was sent to the host, or will be, and has an answer or none (oneway). Embedded in what it is about. */
enum aux_kind { AUX_OUT, AUX_IN, AUX_EVENT, AUX_ASK, AUX_STORED, AUX_KINDS }; /* AUX_ASK: an event that an application waits for */

struct aux_call {
    TAILQ_ENTRY(aux_call) link;    /* lock: waiting or sent */
    struct aux_call *hash_next;    /* lock: sent */
    enum aux_kind kind;
    uint64_t id;                   /* lock */
    bool sent;                     /* lock */
    bool oneway;                   /* over when it is sent */
    uint32_t tries;                /* lock: hosts that may have died of it */
    uint64_t sent_ms;              /* lock */
    /* lock held: build it and give it to aux_tx. 0, -EAGAIN: there is no room now, other errors: never. */
    int (*send)(struct cl_aux *a, struct aux_call *c);
    /* No lock held; the call is in no list. msg: the answer, NULL: there will be none, and status says why. */
    void (*done)(struct cl_aux *a, struct aux_call *c, const struct fp_auxw_head *msg, int status);
};
TAILQ_HEAD(aux_call_list, aux_call);

struct aux_counter { char name[24]; int64_t value; bool is_gauge; };
struct aux_totals {                    /* of hosts that ended */
    uint64_t chunks, bytes_in, bytes_out, chunks_in, events, waits, wait_ns, busy_ns, errors;
    struct aux_counter counter[FP_AUXW_COUNTERS_MAX];
    uint32_t ncounters;
};

/* What an aux-app has said last of chunks that need not come (skip.c). */
struct aux_skip { uint64_t left_bytes, step_bytes; uint32_t of, come; bool but_zeros; };

/* A declared aux-app. lock, but for decl. */
struct aux_app {
    struct cl_aux_decl decl;       /* constant */
    struct fp_auxw_app_info info;  /* as the last host told; name is "" before */
    uint32_t required;             /* FP_AUXW_REQUIRED_*: as declared, or as a host has said: never taken back */
    bool takes_chunks;             /* a host has said so: never taken back */
    bool bypassed;                 /* failed too often, or by hand: the chain goes on without */
    bool failed;                   /* the same, but it is required: writes fail */
    char why[200];                 /* the last failure */
    char changed[16][160];         /* "name=value" that `fpctl auxapps set` has changed: told to each new host */
    uint32_t nchanged, ntold;      /* ntold: how many of them this host knows */
    char change[420];              /* the last of them, and what came of it: for fpctl */
    bool changing;                 /* it is to be left out or taken in: done when a host has that chain */
    uint64_t failed_ms[100];       /* ring of the last `failures` */
    uint64_t failures, restarts;
    uint64_t counted_from;         /* failures before do not count: it was taken in again */
    uint64_t deadline_ms;          /* as `fpctl auxapps set` has changed it; 0: as declared */
    uint64_t asked_ms;             /* when it last answered a call that an application waits for */
    struct aux_totals totals;
    struct aux_skip skip;
    uint64_t passed_chunks, passed_bytes; /* for it, since the mount began */
};

/* One that hosts have died of when chunks were read that it had coded: nobody has declared it, or it is bypassed already. */
struct aux_coder {
    char name[24];                 /* "": free */
    uint64_t died_ms[CL_AUX_FAILURES]; /* ring */
    uint64_t deaths, counted_from;
    uint64_t refused_until_ms;     /* no host is asked for what needs it */
};

enum aux_state {
    AUX_DOWN,      /* no host: none is needed, or it is started at restart_ms */
    AUX_STARTING,  /* CONFIG and START are sent */
    AUX_UP,
};

struct cl_aux {
    struct cl_mount *m;
    struct cl_pool *pool;
    bool decode_only;              /* constant: nothing is declared */
    char host_path[4096], plugin_dir[256]; /* constant */
    uint64_t started_ms;

    pthread_mutex_t lock;
    pthread_cond_t cond;           /* state, a decoded chunk, an event that is done */
    pthread_cond_t room;           /* in the queue of events */
    uint32_t room_waiters;         /* lock */
    struct aux_app app[FP_AUXW_APPS_MAX];
    uint32_t napps;                /* constant */
    enum aux_state state;          /* lock */
    struct aux_host *host;         /* lock to change, link thread to use without */
    bool stopping;                 /* lock */
    bool started;                  /* lock: a first host was ready, or failed: start_why */
    int start_error;
    char start_why[1200];
    uint64_t restart_ms;           /* lock: DOWN: start then */
    uint64_t starting_until_ms;    /* link thread */
    uint64_t away_ms;              /* link thread: one is needed and there is none since then; 0: not so */
    uint32_t quick_deaths;         /* link thread: hosts in a row that lived for less than a second */
    bool nonsense;                 /* link thread: the answer just handed over was none */
    int nonsense_app;
    uint64_t beat, beat_ms;        /* link thread: of this host, and since when */
    pid_t orphan[AUX_ORPHANS_MAX]; /* link thread: hosts that were killed and have not ended */
    uint32_t norphans;             /* link thread */
    bool region_shared;            /* link thread: one of them can write to the region */
    struct cl_cpuset cpuset;       /* link thread: of the host */
    bool cpuset_told;              /* link thread: whether there is one, and why not */
    bool confined;                 /* lock: the host is in it */
    char culprit[24];              /* link thread: undeclared, and to blame for the end of this host; "": none */
    struct aux_coder coder[FP_AUXW_APPS_MAX]; /* lock */
    uint64_t unknown_ms[32];       /* link thread: ring of deaths that nobody is to blame for */
    uint64_t unknown_deaths;

    struct aux_call_list waiting[AUX_KINDS], sent; /* lock */
    struct aux_call *hash[AUX_HASH]; /* lock */
    uint32_t nsent[AUX_KINDS];     /* lock */
    uint32_t nwaiting[AUX_KINDS];  /* lock */
    uint32_t events_reserved;      /* lock: places in the queue */
    uint64_t last_id;              /* lock */
    bool tx_full;                  /* lock: the socket takes nothing now */
    uint64_t progress_ms;          /* lock: the last answer */
    bool anything_failed;          /* lock: a required aux-app has failed */
    uint32_t chain_wanted, chain_sent; /* lock: number of the chain that is to be, and of the one told to the last host. Unlike: the host is started again */
    bool changes_told;             /* lock: this host knows all that `fpctl auxapps set` has changed */

    int region_fd;                 /* link thread (end.c) */
    uint8_t *region;               /* constant: mapped; written with the lock */
    uint64_t region_bytes;
    struct aux_region out_room, in_room; /* lock */

    atomic_bool chunks;            /* cl_aux_chunks */
    atomic_bool skips;             /* some chunks need not go to some aux-app (skip.c) */
    uint32_t nchanging;            /* lock: changes of options on their way: until they are made, nobody is passed over */
    uint32_t nsealed;              /* lock: sealed files that somebody is still to be told of, or has not answered for */
    atomic_uint io_flags[FP_AUX_OP_COUNT]; /* of all aux-apps together, 0: nobody wants it (events.c) */
    atomic_bool wants_files;       /* somebody has file_sealed */
    atomic_bool wants_sets;        /* somebody has set_complete */

    int wake_fd;
    pthread_t link_thread;
    bool link_runs;

    pthread_mutex_t task_lock;     /* tasks.c */
    pthread_cond_t task_cond;
    struct aux_task *tasks, **tasks_end;
    bool tasks_stop;
    uint32_t ntask_threads;
    pthread_t task_thread[4];

    struct aux_files *files;       /* files.c */
    struct aux_holds *holds;       /* holds.c */
    struct aux_own_files *own_files; /* svc_file.c */
    struct aux_report *report;     /* stats.c: core loop */
};

/* -------------------------------------------------------------- spawn.c: the process */

/* Finds program and plugins: a->host_path, a->plugin_dir. */
void cl_aux_find_programs(struct cl_aux *a);
/* 0, or negative errno with a line in why. *out has one reference. */
int cl_aux_spawn(struct cl_aux *a, struct aux_host **out, char *why, size_t why_size);
void cl_aux_host_put(struct aux_host *h);

/* -------------------------------------------------------------- end.c: its end */

/* End it, at once or (gently) with time to stop. Waits for its end, at most 4 s: when this returns, it writes to our region no more. The status of waitpid. */
int cl_aux_host_end(struct cl_aux *a, struct aux_host *h, bool gently);
/* Those that did not end: are they gone? */
void cl_aux_orphans_reap(struct cl_aux *a);
/* Too many of them, or no region for another host: negative errno, with a line in why. */
int cl_aux_may_spawn(struct cl_aux *a, char *why, size_t why_size);

/* -------------------------------------------------------------- link.c: the thread */

int cl_aux_link_start(struct cl_aux *a);
void cl_aux_link_stop(struct cl_aux *a);
void cl_aux_wake(struct cl_aux *a);
/* lock held: one message to the host. 0, -EAGAIN: it takes nothing now; the link thread pumps when it does again. */
int cl_aux_tx(struct cl_aux *a, const struct iovec *iov, int n);
/* lock held: is there anything a host is to be started for? */
bool cl_aux_needs_host(const struct cl_aux *a);
/* lock held: apps have come or gone: which calls does anybody want? */
void cl_aux_refresh_wishes(struct cl_aux *a);

/* -------------------------------------------------------------- events.c: what `fpctl auxapps set` has changed */

/* lock held: a new host knows none of it. */
void cl_aux_changes_untold(struct cl_aux *a);
/* lock held: tell it. True: it knows all. */
bool cl_aux_tell_changes(struct cl_aux *a);

/* -------------------------------------------------------------- watch.c: deadlines, blame, bypass */

/* Link thread: what is wrong with the host (why), or NULL; *app: whose fault, -1: not known. */
const char *cl_aux_watch(struct cl_aux *a, uint64_t now_ms, int *app, char *why, size_t size);
/* Link thread, the host is dead: whose callback did it. */
int cl_aux_blame(struct cl_aux *a, int wait_status, char *why, size_t size);
/* Link thread, no lock: count a failure of app (-1: of nobody known), log it, bypass what fails too often. */
void cl_aux_failed(struct cl_aux *a, int app, const char *why);
/* Any thread, no lock: the same for what app did with a chunk, for which the host need not end. */
void cl_aux_misdeed(struct cl_aux *a, uint32_t app, const char *what);
/* lock held: too many hosts have died of one of these stages a short time ago. */
bool cl_aux_coder_refused(const struct cl_aux *a, const struct fp_auxw_stage *stages, uint32_t nstages);
/* lock held: it is to be tried again. */
void cl_aux_coder_forgive(struct cl_aux *a, const char *name);
/* When to look again, in ms. */
int cl_aux_watch_interval_ms(struct cl_aux *a);

/* -------------------------------------------------------------- calls.c: table of calls */

/* Any thread, no lock. Sends it now, if it can be. */
void cl_aux_call_submit(struct cl_aux *a, struct aux_call *c);
/* lock held: send what can be sent. What can never be goes to dead: aux_calls_finish without lock. */
void cl_aux_calls_pump(struct cl_aux *a, struct aux_call_list *dead);
void cl_aux_calls_finish(struct cl_aux *a, struct aux_call_list *dead, int status);
/* No lock: pump, and finish. */
void cl_aux_calls_kick(struct cl_aux *a);
/* The answer to id has come: out of the table; NULL: nobody waits for it. No lock. */
struct aux_call *cl_aux_call_take(struct cl_aux *a, uint64_t id);
/* lock held: put it in front of those waiting, to be sent to the next host: this one ends now. */
void cl_aux_call_again(struct cl_aux *a, struct aux_call *c);
/* Submit once more what was sent: in front of those waiting. Any thread, no lock. */
void cl_aux_call_resubmit(struct cl_aux *a, struct aux_call *c);
/* lock held: the host is gone: all that was sent waits again. of_it: it may have died of one of these. */
void cl_aux_calls_lost(struct cl_aux *a, bool of_it);
/* lock held: move waiting calls of a kind to dead. */
void cl_aux_calls_drop(struct cl_aux *a, enum aux_kind kind, struct aux_call_list *dead);
/* lock held: the same with all that no host will ever be asked: after apps, the chain or the host have changed. */
void cl_aux_calls_drop_hopeless(struct cl_aux *a, struct aux_call_list *dead);

/* -------------------------------------------------------------- result.c: answers of the host are checked */

/*
 * What an application gets where an aux-app refuses with this errno. Not EINTR and EAGAIN, with which programs try again for ever, nor a number that is no
 * errno of applications: the kernel takes those above 511 for a mistake of the mount, and its caller waits on.
 */
int cl_aux_refusal(int status);
/*
 * 0: well-formed and in bounds for this job; fills the result part of job, pointing into a copy (*copy, malloced) and the region. -EPROTO: it makes no
 * sense; -ENOMEM: not the host's fault.
 */
int cl_aux_result_parse(struct cl_aux_job *job, const struct fp_auxw_head *msg, uint32_t cap_bytes, const uint8_t *out_a, const uint8_t *out_b,
            void **copy);

/* -------------------------------------------------------------- required.c: what must not be left out. lock held for all */

/* A host is ready and says this of an aux-app. */
void cl_aux_learn(struct aux_app *p, const struct fp_auxw_app_info *info);
/* May data be stored as it came, past all aux-apps? */
bool cl_aux_all_may_pass(const struct cl_aux *a);
/* The first required aux-app whose stage this good result does not have, or -1. ran: as in struct fp_auxw_out_done. */
int cl_aux_left_out(const struct cl_aux *a, const struct cl_aux_job *job, uint32_t ran);
/* The host runs another chain than is wanted: it is started again, and until then gets no chunk and no event. */
bool cl_aux_chain_changes(const struct cl_aux *a);
/* The chain that is wanted is there, or none is needed: what was to change has changed. */
void cl_aux_chain_is_there(struct cl_aux *a);

/* -------------------------------------------------------------- skip.c: what need not be done. lock held for the first two */

/* Nobody is passed over any more, until he says so again. */
void cl_aux_skip_end(struct cl_aux *a);
/* A chunk that goes to the host: bit i: aux-app i is passed over. count: it is the first time that this is asked. */
uint32_t cl_aux_skips(struct cl_aux *a, const struct cl_aux_job *job, bool count);
/* Link thread: an aux-app says so. */
void cl_aux_skip_said(struct cl_aux *a, const struct fp_auxw_skip *m);

/* -------------------------------------------------------------- tasks.c: service threads */

struct aux_task { struct aux_task *next; void (*run)(struct cl_aux *a, struct aux_task *t); };
int cl_aux_tasks_start(struct cl_aux *a);
void cl_aux_tasks_stop(struct cl_aux *a);
void cl_aux_task_post(struct cl_aux *a, struct aux_task *t);

/* -------------------------------------------------------------- services.c */

/* Link thread: a request of the host; it is copied. */
void cl_aux_service(struct cl_aux *a, struct aux_host *h, const struct fp_auxw_head *req);
/* A request to the manager, waiting at most timeout_ms. Service threads. *reply: packed, malloced; NULL if status < 0. -EAGAIN: no answer in time. */
int cl_aux_ask(struct cl_aux *a, uint32_t type, ProtobufCMessage *msg, uint32_t timeout_ms, uint8_t **reply, size_t *reply_bytes);
/* The same for MSG_HOLD, and MSG_NOTES and MSG_NOTE_FIND with `hold`: what the answer holds, whenever it comes, is in the table of holds (holds.h). */
int cl_aux_ask_holding(struct cl_aux *a, uint32_t type, ProtobufCMessage *msg, uint64_t file_serial, uint32_t timeout_ms, uint8_t **reply,
               size_t *reply_bytes);

/* -------------------------------------------------------------- aux.c */

/* For cl_aux_decode: the host of this mount, or one that decodes only, which is made now. NULL: there is none to be had. */
struct cl_aux *cl_aux_for_decoding(struct cl_mount *m);

/* -------------------------------------------------------------- stats.c */

int cl_aux_stats_new(struct cl_aux *a);
void cl_aux_stats_free(struct cl_aux *a);
/* lock held: keep what this host has counted: it is gone. */
void cl_aux_stats_fold(struct cl_aux *a, const struct fp_auxw_status *s);

static inline const char *cl_aux_app_name(const struct aux_app *p)
{
    return p->info.name[0] ? p->info.name : p->decl.name;
}

#endif
