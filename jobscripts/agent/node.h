/*
 * The agent of one node (fp-job node): what its files share.
 *
 * One thread, one loop, below a process that waits for its end (node_watch.c). node.c goes through the phases, node_tree.c talks to the agents above and below,
 * node_spawn.c starts those below where that is to be done, node_store.c knows what is started with which
 * arguments, and what is left of it.
 */
#ifndef JOB_NODE_H
#define JOB_NODE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "fp/namespace.h"
#include "fp/rpc.h"
#include "job.pb-c.h"
#include "jobscripts/cores/coremap.h"
#include "jobscripts/script/auxcheck.h"
#include "jobscripts/script/declared.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/launch/plan.h"
#include "jobscripts/agent/kept.h"
#include "jobscripts/agent/mountlock.h"
#include "jobscripts/agent/service.h"
#include "jobscripts/agent/tree.h"

#define NODE_LISTEN_AT  4u     /* --listen among the manager's arguments */
#define NODE_RESTARTS   3u     /* of one service, after it was ready */
#define NODE_ORPHAN_MS  30000u /* without any agent above: the job has lost its first node */
#define NODE_GUARD_MS  10000u /* the root without the guard that is to stay (guard.c) */
#define NODE_SIGNALS   4u     /* that mean something */
#define NODE_CHILDREN   4096u  /* also those whose parents are gone */

enum node_phase { NODE_WAITING, NODE_STARTING, NODE_UP, NODE_STOPPING, NODE_OVER };
enum node_role { NODE_MANAGER, NODE_BENEFACTOR, NODE_MOUNT, NODE_ROLES };

/* squeue, asked by the root without waiting for it. */
struct job_asked {
    uv_process_t process;
    uv_pipe_t pipe;
    bool runs;
    size_t len;
    uint64_t since_ms;   /* this question */
    uint64_t next_ms;    /* the next one; 0: none */
    char text[256];
};

/* Of one aux-app. */
struct node_ask {
    char text[JOB_AUXAPP_BYTES]; /* as it is declared, with the variables of this node */
    struct job_auxask ask;
    bool open; /* no answer yet */
    struct job_auxanswer answer;
};

struct node_child {
    struct fp_rpc_conn *conn; /* a reference */
    uint32_t rank;
    bool asks;
};

struct node {
    uv_loop_t loop;
    uv_timer_t tick;
    uv_signal_t sigs[NODE_SIGNALS];
    struct job_plan plan;
    char *plan_text;          /* as it came, for those below; has the key; NULL: there are none to be started */
    struct node_spawns *spawns; /* node_spawn.c; NULL: none */
    struct job_findings findings;
    struct job_declared declared;
    struct node_ask *asks;    /* for each declared aux-app */
    bool plugins_known, to_start; /* all have answered; the word to start services has come */
    uint32_t rank;
    enum node_phase phase;
    bool failed;
    char unable[JOB_TEXT_BYTES_MAX]; /* why there is no directory of the job here: nothing is started, and nothing of anybody is removed; "": there is one */
    char dir[PATH_MAX];       /* job_dir_path */
    char data[PATH_MAX];      /* on the SSD */
    bool named, kept;         /* a store that outlives the job (persistent=), and has what a job has put there: it is not removed */
    bool all_up;              /* of such a store: the services of all nodes run or have run */
    bool noted, discarded;    /* that it outlives the job; and that it does not, as nothing in it is needed */
    char others[JOB_KEPT_TOLD]; /* what earlier jobs of the user have left here (job_kept_write) */
    uint64_t size_bytes;      /* contributed, of kept ones and once it is known */
    char listens[280];        /* the root: its manager, until all nodes have looked where they can mount */
    char manager[280], mount[PATH_MAX]; /* "": not decided */
    char wanted[PATH_MAX];    /* mount=, on this node */
    const char *refused;      /* why it can't be there on this node; NULL: it can */
    struct job_mount_lock mount_lock;
    struct job_stray stray;   /* what is in the directory */
    char stray_text[JOB_WHERE_BYTES]; /* for refused */
    char hint[JOB_WHERE_BYTES]; /* what the user is to hear of it when all is well; "": nothing */
    bool made_mount, made_link;
    bool is_inside, some_inside; /* it is mounted in a user namespace: here; on any node, as the root knows */
    char elsewhere[JOB_WHERE_BYTES]; /* the root: of one node why the store is not at mount=; "": it is */
    struct fp_namespace inside;
    struct job_coremap map;
    struct job_service service[NODE_ROLES];
    char *args[NODE_ROLES][JOB_SERVICE_ARGS];
    uint64_t stop_at_ms;      /* when it was told to end */
    uint64_t term_at_ms;      /* when SIGTERM came, of which it is not known whether the job ends; 0: it did not */
    uint64_t last_term_ms;
    bool hurry;               /* the job is cancelled: SIGKILL comes within seconds, whatever is still to be written out */
    struct job_asked asked;
    pid_t time_pid;           /* node_time.c; 0: none */
    int time_fd;
    pid_t front_pid;          /* node_front.c; 0: none */

    /* the tree */
    struct fp_key *key;
    struct fp_rpc *rpc;
    struct fp_rpc_listener *listener;
    uint16_t port;
    struct job_states states;
    bool states_fresh;
    struct fp_rpc_conn *up;   /* a reference; NULL: none */
    bool up_is_up, keep;      /* keep: the starter may go */
    uint32_t above, tries;    /* whom it is tried with */
    uint32_t silent;          /* the last ones of these, whose host did not answer */
    uint64_t up_next_ms;
    struct job_ran ran;
    uint64_t alone_since_ms; /* of our own time */
    struct node_child *children;
    uint32_t nchildren;
};

/* node_watch.c: forks. In the agent 0 at once, and *is_agent; in the process above it, when the agent has ended: 0, or negative and cleaned up. */
int node_watch(const struct node *n, bool *is_agent);

/* node_time.c: a process that tells the application of a script with start and stop when the job's time is nearly over, if that is to be done and ours to do;
 * before there are a loop and connections. Begins by the word of the second. */
void node_time_fork(struct node *n);
void node_time_begin(struct node *n);

/* node_signal.c */
void node_signals(struct node *n);       /* from now on */
void node_signals_end(struct node *n);
void node_signal_tick(struct node *n, uint64_t now_ms);

/* node.c */
void node_go(struct node *n, const char *manager, const char *mount);
void node_stop(struct node *n);
void node_note(struct node *n);    /* the services of all nodes run */
void node_discard(struct node *n);

/* node_tree.c. 0 or negative and logged */
int node_tree_start(struct node *n);
void node_tree_tick(struct node *n, uint64_t now_ms);
void node_tree_say(struct node *n, int state, const char *text); /* of this node */
void node_tree_say_of(struct node *n, uint32_t rank, int state, const char *text); /* of another one, which can't say it */
void node_tree_go(struct node *n);   /* to those below */
void node_tree_stop(struct node *n); /* to those below */
void node_tree_tell(struct node *n, unsigned what); /* to those below: a message without words */
bool node_tree_all_ended(const struct node *n); /* all that are known but this one */
void node_tree_end(struct node *n);

/* node_spawn.c */
void node_spawn_below(struct node *n); /* starts the agents below, if that is ours to do */
void node_spawn_confine(const struct node *n); /* what has started them, to the service cores */
bool node_spawn_settled(struct node *n, uint64_t now_ms); /* nobody is on the way any more */
void node_spawn_end(struct node *n);   /* the loop goes on until they have ended, for some seconds at most */
void node_spawn_fini(struct node *n);

/* node_front.c: the caller goes on in a process and session of its own, and the one that was started stays as its front. Its pid. */
pid_t node_front(void);

/* node_store.c */
int node_store_ssd(const struct node *n, char out[PATH_MAX]); /* ssd= of this node; -ENOENT: the variable in out is not set */
int node_store_prepare(struct node *n, char *why, size_t size); /* paths, cores, files of the job */
int node_store_start(struct node *n, enum node_role role, char *why, size_t size);
void node_store_note(const struct node *n);   /* what is to be removed if this process is killed */
int node_store_keep(struct node *n);    /* of one that outlives the job: it is not removed from now on. 0 or negative errno */
void node_store_discard(struct node *n); /* it is, at the end */
void node_store_clean(struct node *n);

/* node_ask.c: what plugins say. 0, or negative and why; hear: -EAGAIN: not all have answered. */
int node_ask_begin(struct node *n, char *why, size_t size);
int node_ask_hear(struct node *n, char *why, size_t size);
const struct node_ask *node_ask_of(const struct node *n, size_t auxapp); /* NULL: it is no plugin */

/* node_mount.c: where the store is mounted */
int node_mount_look(struct node *n, char *why, size_t size); /* says upwards whether it can be at mount= on this node; negative: it can be nowhere */
bool node_mount_decide(struct node *n, char out[PATH_MAX]); /* root: where it is on all nodes; false: not all have looked */
int node_mount_take(struct node *n, char *why, size_t size); /* what was decided: its directory, and a link */
void node_mount_clean(struct node *n);

#endif
