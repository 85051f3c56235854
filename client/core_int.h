/*
 * What the files of the core loop share: core.c (thread, posting), mgr_link.c (connection, hello), mgr_call.c
 * (requests). Everything belongs to the core loop, but where a lock is named.
 */
#ifndef CL_CORE_INT_H
#define CL_CORE_INT_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "client/client.h"
#include "client/core.h"
#include "client/names.h"
#include "client/slots.h"
#include "fp.pb-c.h"
#include "fp/key.h"
#include "fp/keyedsum.h"
#include "fp/rpc.h"

#define CL_RELEASE_BATCH 65536u /* in one message */
#define CL_RPC_TIMEOUT_MS  (24u * 3600u * 1000u) /* requests have deadlines of their own; a connection that is dead is closed by its pings */
#define CL_SESSION_MORE_MS 6000u /* beyond a session's time-out: it begins when its connection is closed, up to 5 s after it hangs */

/* Work for the core loop: the caller's memory until fn has been called. */
struct cl_item {
    struct cl_item *next;
    void (*fn)(void *arg);
    void *arg;
};

/* A request to the manager, from cl_mgr_call to its answer. */
struct cl_request {
    struct cl_call call; /* first member */
    struct cl_item item;
    struct cl_mount *m;
    uint64_t born_ms;
    uint64_t wait_ms; /* refused: what it waits for has gone forward then, or it began to wait */
    uint32_t type;
    bool keeps_reply; /* cb takes the reply over */
    bool opens;       /* an answer of 0 means that the manager holds an inode for us */
    bool opens_write; /* ... for writing */
    bool lasting;     /* never given up for time */
    bool told_late;   /* … but its caller knows that the time is over */
    bool answered;    /* once sent, never given up for time */
    bool refused;     /* with FP_ERECALL, at least once */
    bool said;        /* by cl_mgr_say: told_late, too */
    struct cl_names_mark mark;
    cl_mgr_cb cb;
    bool (*interrupted)(void *arg);
    void *arg;
    size_t len_bytes;
    uint8_t packed[]; /* without slot and slot_seq */
};

/*
 * What early.c keeps. on may be switched on by the core loop only; who is inside (users) has seen it on, and whoever
 * waits for the end of it switches it off and waits until users and inflight are 0.
 */
struct cl_early {
    atomic_bool on;
    atomic_bool asked;     /* MSG_INODES is under way, whichever way */
    atomic_uint users;     /* threads that answer programs from here */
    atomic_uint inflight;  /* requests whose programs have been told already */
    atomic_uint uses;      /* only grows: changes made with it */
    atomic_ullong ask_after_ms; /* it was refused: not before */
    atomic_int failed;     /* first failure that no program has been told of */
    unsigned idle_uses, idle_ticks;
    bool lent;             /* the manager knows that we may */
    pthread_mutex_t lock;
    uint64_t next, end;    /* lock: numbers for new files */
    uint64_t next2, end2;  /* lock: the range after that */
    bool recalled;         /* MSG_ALONE is to be answered: */
    uint64_t recall_id;
};

enum cl_link_state {
    CL_LINK_DOWN,       /* waits for the next attempt */
    CL_LINK_CONNECTING, /* TCP and TLS */
    CL_LINK_HELLO,      /* MSG_HELLO is under way */
    CL_LINK_UP,
};

/*
 * Everything without a lock named is protected by loop_lock, which the core thread holds but while it waits
 * in poll(2). So another thread that gets it by trylock may send a request itself (mgr_call.c); it calls
 * nobody back and leaves the loop's handles to libuv and rpc. Nobody waits for loop_lock but the core thread.
 * Order: any lock of the mount -> (trylock) loop_lock -> inbox_lock.
 */
struct cl_core {
    struct cl_mount *m;
    pthread_mutex_t loop_lock;
    uv_loop_t loop;
    pthread_t thread;
    int wake_fd; /* eventfd: something is in the inbox */
    uv_poll_t wake;
    uv_timer_t tick;    /* 100 ms: deadlines, interrupts, age; every tenth: statistics */
    uv_timer_t retry;   /* next attempt to connect */
    uv_timer_t release; /* batch of MSG_RELEASE */
    unsigned ticks;

    pthread_mutex_t inbox_lock;
    struct cl_item *inbox_head, *inbox_tail; /* inbox_lock */

    struct fp_key *key;
    struct fp_keyedsum keyedsum; /* constant */
    struct fp_rpc *rpc;
    struct fp_rpc_conn *conn;
    enum cl_link_state link;
    uint32_t backoff_ms;
    uint64_t session;          /* 0: none yet */
    atomic_uint session_shown; /* the same, for other threads */
    atomic_bool up;            /* link is CL_LINK_UP: likewise */
    bool uuid_known;
    uint64_t mgr_life; /* HelloReply.unsynced_life; 0: none heard of */
    bool session_new;  /* the manager has forgotten the session before: for link_up */
    uint32_t slots;    /* of this session */
    atomic_uint alone; /* no other session exists: the number of this period; else 0 */
    uint32_t alone_periods;
    bool queue_full; /* on_writable will come */
    bool stopping;
    atomic_uint wait_limit_ms; /* 0: none; see cl_mgr_limit_wait */
    bool data_runs;            /* between cl_core_data_started and _stopping */
    struct cl_calls calls;
    struct cl_item *untaken; /* of cl_mgr_say: the manager could not take them over this connection */
    uint32_t session_timeout_ms; /* of the manager: from its last hello */
    bool was_refused; /* the request whose callback runs */
    struct cl_early early;

    pthread_mutex_t release_lock;
    struct cl_released {
        uint64_t ino;
        bool write, torn, wrote; /* wrote: is no release */
    } *releases;                    /* release_lock */
    size_t nreleases, releases_cap; /* release_lock */
    bool release_armed;             /* release_lock: the timer runs or will */
    struct cl_torn *torn;           /* torn.c */

    pthread_mutex_t start_lock;
    pthread_cond_t start_cond;
    bool start_done;     /* start_lock */
    int start_error;     /* start_lock */
    char start_why[400]; /* start_lock: the line for the user */
    uint64_t start_deadline_ms;
    bool started; /* the first session stands */
};

/* core.c */
void cl_core_post_item(struct cl_core *c, struct cl_item *item);
bool cl_core_inbox_empty(struct cl_core *c);
void cl_core_bye_done(struct cl_core *c);
void cl_core_start_result(struct cl_core *c, int err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* mgr_link.c */
void cl_link_connect(struct cl_core *c);
void cl_link_bye(struct cl_core *c);
void cl_link_stats(struct cl_core *c);

/* early.c; core loop */
void cl_early_init(struct cl_core *c);
void cl_early_off(struct cl_core *c);   /* from here on nothing is answered early */
bool cl_early_ended(struct cl_core *c); /* the manager knows all that programs have been told */
void cl_early_check(struct cl_core *c); /* has it ended? Then MSG_ALONE is answered */
void cl_early_tick(struct cl_core *c);

/* mgr_call.c */
void cl_requests_pump(struct cl_core *c); /* send what can be sent */
void cl_requests_again(struct cl_core *c); /* … and what was refused */
void cl_requests_up(struct cl_core *c, uint32_t nslots, bool new_session);
void cl_requests_down(struct cl_core *c);
void cl_requests_fini(struct cl_core *c); /* nothing runs any more: what nobody waits for */
void cl_requests_tick(struct cl_core *c, uint64_t now_ms);
void cl_requests_release_later(void *core); /* arms the timer; posted */
void cl_requests_release_now(struct cl_core *c);

/* torn.c; core loop */
/* Of what says that a file is not whole: the manager has the mark, on its disk or, where that is full or fails, until it takes it. Else it is to be said to the next one. */
bool cl_is_kept(int status);
void cl_torn_release(struct cl_core *c, const Fp__Release *r);                  /* sends it; it has torn_ino */
void cl_torn_keep(struct cl_core *c, const struct cl_released *list, size_t n); /* of what was not sent, and is not going to be */
int cl_torn_hello(struct cl_core *c, Fp__Hello *h);                             /* names all in it; the caller frees torn_ino */
void cl_torn_heard(struct cl_core *c);                                          /* that hello was taken */
void cl_torn_fini(struct cl_core *c);

#endif
