/*
 * The simulator's kernel: one process, in which the real programs run as simulated processes on simulated nodes. See docs/SIMULATOR.md.
 *
 * Every thread of a program is a real thread, but only one runs at a time: who blocks hands the baton to a thread that the seed chooses. Time is
 * virtual: it jumps to the next timer when all wait. The functions of the C library that programs call (threads, clocks, sockets, files) and all of libuv
 * and libfuse that they use are defined in this program, which the dynamic linker finds first.
 */
#ifndef TESTS_SIM_H
#define TESTS_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define SIM_MS        UINT64_C(1000000)
#define SIM_S         UINT64_C(1000000000)
#define SIM_NEVER     UINT64_MAX
#define SIM_WATCH_MAX 64
#define SIM_NODES_MAX 20
#define SIM_PROCS_MAX 40
#define SIM_ARGS_MAX  24

struct sim_sock;
struct sim_fuse;

enum sim_kind { SIM_MANAGER, SIM_BENEFACTOR, SIM_MOUNT, SIM_DRAIN, SIM_CTL }; /* SIM_DRAIN: started by a benefactor (child.c); SIM_CTL: what fpctl asks the manager (ctl.c) */

/* ------------------------------------------------------------------ random numbers: one stream each, so that one part's use does not change another's */

enum sim_stream { SIM_RNG_SCHED, SIM_RNG_NET, SIM_RNG_DISK, SIM_RNG_FAULT, SIM_RNG_WORK, SIM_RNG_PRODUCT, SIM_RNG_DRAIN, SIM_RNG_N };

uint64_t sim_random(enum sim_stream s);
uint64_t sim_below(enum sim_stream s, uint64_t n);         /* 0 .. n-1; 0 for n == 0 */
bool sim_chance(enum sim_stream s, unsigned per_million);

/* ------------------------------------------------------------------ nodes and processes (proc.c) */

struct sim_node {
    int id;
    bool up;
    bool broken_disk;      /* reads, writes and syncs may fail now */
    bool full_disk;
    uint64_t slow_disk_ns; /* each operation may take so long */
    unsigned boots;
    int64_t wall_ns, mono_ns; /* what its clocks are ahead of virtual time */
    int64_t drift_ppm;
    char dir[128];
};

struct sim_proc {
    int id;
    enum sim_kind kind;
    char name[16];
    struct sim_node *node;
    bool up;
    bool dying;    /* killed inside of SQLite: its writes are lost, and it ends when that returns */
    bool ready;    /* has said so by its ready line */
    uint64_t ready_ns; /* when it did so last */
    bool told_end; /* SIGTERM was sent */
    bool behind;   /* --close behind */
    bool syncs;  /* of a mount: --close sync: each close is an fsync */
    bool strict;   /* --strict */
    unsigned starts;
    int exit_code;
    uint64_t paused_until;
    void *module;
    struct sim_fuse *fuse;
    struct sim_proc *parent; /* of a SIM_DRAIN; its end is the child's, too */
    int child_socket;
    void *child_page;
    int argc;
    char *argv[SIM_ARGS_MAX + 1];
    char text[SIM_ARGS_MAX][160];
};

struct sim_task {
    struct sim_task *next;
    struct sim_proc *proc; /* NULL: an application, or the simulator's own */
    struct sim_node *node;
    char name[20];
    uint32_t id;
    int turn;              /* futex */
    void *sp;              /* where its registers lie while another one runs; its thread pointer */
    unsigned long pointer;
    enum { SIM_READY, SIM_BLOCKED, SIM_DONE, SIM_DEAD } state;
    const void *on; /* what it waits for */
    uint64_t until_ns;
    bool timed_out;
    struct sim_sock *watch[SIM_WATCH_MAX];
    unsigned nwatch;
    void *(*fn)(void *);
    void *arg, *ret;
    unsigned long handle; /* its pthread_t */
};

struct sim_world {
    uint64_t seed;
    uint64_t now_ns;
    uint64_t steps, messages, disk_ops;
    uint64_t hash;      /* of all that happened */
    bool trace;
    bool healed;        /* no faults from here on */
    bool quiet;         /* there are none at all */
    bool striped;       /* files lie on all nodes */
    bool drains;        /* there is a target, and programs use it (work_life.c) */
    bool versions;      /* what a file was is kept while it is rewritten */
    unsigned preempt_ppm;
    struct sim_node nodes[SIM_NODES_MAX];
    unsigned nnodes;
    struct sim_proc procs[SIM_PROCS_MAX];
    unsigned nprocs;
    char dir[96];
};

extern struct sim_world sim;
extern __thread struct sim_task *sim_self;

void sim_proc_add(enum sim_kind kind, struct sim_node *n, const char *name);
void sim_proc_arg(struct sim_proc *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sim_proc_start(struct sim_proc *p);
void sim_proc_kill(struct sim_proc *p, const char *why);     /* returns, unless it is the caller's own */
void sim_proc_term(struct sim_proc *p);
void sim_node_power_loss(struct sim_node *n);
void sim_proc_check_dying(void);
_Noreturn void sim_proc_exit(int code);
bool sim_modules_load(const char *dir, const unsigned counts[]); /* of each kind, so many copies at once */

/* ------------------------------------------------------------------ children of programs (child.c) */

struct sim_child { /* which start of which process */
    int proc;
    unsigned start;
};

int sim_child_start(const char *name, void *page, struct sim_child *out, int *socket); /* by a benefactor: fp-drain */
bool sim_child_gone(const struct sim_child *c, int *status);
void sim_child_kill(const struct sim_child *c);
int sim_child_socket(void **page); /* by the child */
void sim_children_kill(const struct sim_proc *parent);

/* ------------------------------------------------------------------ the target of drains (target.c) */

#define SIM_TARGET "%s/target" /* in sim.dir: a file system of others. It never loses what it has taken */

/* A call of its file system by this thread, if it is an fp-drain's: takes a while, or fails. 0 or an errno. */
int sim_target_call(bool may_fail);
void sim_target_plan(unsigned level);

/* ------------------------------------------------------------------ what fpctl does (ctl.c) */

enum sim_ctl_op { SIM_CTL_DRAIN, SIM_CTL_EVICT, SIM_CTL_STAGE_IN, SIM_CTL_SHOW, SIM_CTL_CANCEL, SIM_CTL_POLICY, SIM_CTL_VERSIONS };

struct sim_ctl { /* a question and its answer */
    struct sim_ctl *next;
    enum sim_ctl_op op;
    char path[64]; /* in the store */
    char dest[192]; /* or the policy's text */
    bool verify;
    uint64_t job; /* asked for, or made; 0: none was */
    bool done;
    int rc;    /* 0, or the manager could not be asked */
    int state; /* DrainState of SHOW; -1: it knows no such job. VERSIONS: how many there are */
    uint64_t files_failed;
    char why[200];
};
void sim_ctl_ask(struct sim_ctl *q);
void sim_ctl_gone(void); /* the process has died */
struct sim_ctl *sim_ctl_next(void); /* by the process: waits for one */
void sim_ctl_answer(struct sim_ctl *q, int rc);

/* ------------------------------------------------------------------ scheduler (sched.c) */

void sim_sched_init(uint64_t seed);
void sim_wait_first_turn(struct sim_task *t); /* switch.c: by a thread that was made, on itself */
void sim_switch(struct sim_task *from, struct sim_task *to);
struct sim_task *sim_task_new(struct sim_proc *p, struct sim_node *n, const char *name, void *(*fn)(void *), void *arg);
/* Waits until it is woken (true) or until_ns (false). */
bool sim_block(const void *on, uint64_t until_ns);
void sim_yield(void);
void sim_maybe_yield(void);
void sim_wake_all(const void *on);
void sim_wake_one(const void *on);
void sim_wake_task(struct sim_task *t);
void sim_sleep_ns(uint64_t ns);
bool sim_join(struct sim_task *t, uint64_t until_ns);
struct sim_task *sim_tasks(void);
struct sim_task *sim_task_of(unsigned long handle);
void sim_tasks_kill(struct sim_proc *p);
_Noreturn void sim_leave(void); /* the caller is dead */
void sim_at(uint64_t when_ns, void (*fn)(void *), void *arg);
_Noreturn void sim_run(void); /* from main(): gives the baton away; ends with the process */
uint64_t sim_clock(const struct sim_task *t, bool wall);
uint64_t sim_clock_back(const struct sim_task *t, bool wall, uint64_t ns); /* to virtual time */

/* ------------------------------------------------------------------ network (net.c) */

bool sim_sock_readable(const struct sim_sock *s);
bool sim_sock_writable(const struct sim_sock *s);
struct sim_sock *sim_sock_of(int fd);
int sim_fd_new(struct sim_sock *s);
void sim_fds_close_all(struct sim_proc *p, bool silent);
void sim_net_cut(struct sim_node *a, struct sim_node *b);               /* connections between them are reset */
void sim_net_block(struct sim_node *from, struct sim_node *to, bool on); /* this direction alone */
void sim_net_heal(void);
void sim_net_go_on(void);
void sim_net_node_down(struct sim_node *n);
int sim_net_pair(struct sim_proc *other, int *theirs); /* socketpair(2) of packets that are no frames: our descriptor, and one of the other process */
struct sim_sock *sim_eventlike_new(void); /* readable while its counter is not 0 */
void sim_eventlike_set(struct sim_sock *s, uint64_t count);
extern uint64_t sim_net_slow_ns;

/* ------------------------------------------------------------------ disks (disk.c) */

void sim_disk_init(void);
void sim_disk_opened(int fd, const char *path, bool created);
void sim_disk_power_loss(struct sim_node *n);
bool sim_disk_rot(struct sim_node *n);
void sim_disk_lose_segments(struct sim_node *n); /* all records of its benefactor, which is not up */
bool sim_in_sqlite(const void *address);
void sim_disk_wipe(void);

/* ------------------------------------------------------------------ libuv (uv.c): for a process that is told to end */

void sim_uv_signal(struct sim_proc *p, int signum);
void sim_uv_gone(const struct sim_proc *p);
/* s is what stands for a whole loop: its sockets, and whether a turn of it would find something. */
unsigned sim_uv_watch(const struct sim_sock *s, struct sim_sock **out, unsigned max, bool *ready);

/* ------------------------------------------------------------------ libfuse (fuse.c) */

void sim_fuse_gone(struct sim_proc *p);

/* ------------------------------------------------------------------ faults (fault.c) */

void sim_fault_plan(unsigned level);
void sim_fault_message(struct sim_proc *from, struct sim_proc *to); /* at each message */
void sim_fault_disk(void);                                           /* at each write and sync */
enum sim_strike { SIM_AFTER_FSYNC, SIM_AFTER_CHANGE, SIM_AFTER_CREATION, SIM_AFTER_BEHIND, SIM_AFTER_RENAME, SIM_AFTER_STRICT, SIM_BEFORE_REPLACING, SIM_AFTER_REPLACING, SIM_AFTER_MAKING, SIM_AFTER_TOUCH, SIM_BEFORE_DELETION, SIM_AT_DELETION, SIM_AFTER_SYNC_OF_OTHERS, SIM_AFTER_CLOSING, SIM_AFTER_REWRITING, SIM_WHILE_REWRITING, SIM_STRIKES };
bool sim_fault_strike(enum sim_strike s, struct sim_proc *m); /* an application of m was just told that this is done, or begins it; or m, the manager, does it. It strikes? */
void sim_fault_heal(void);
bool sim_bug(const char *name);

/* ------------------------------------------------------------------ results (sim_store.c) */

void sim_trace(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void sim_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void sim_note(uint64_t what); /* into the hash */
void sim_program_said(const char *text, size_t len);

#endif
