/* Benefactors and a target that are this program, for tests of draining in the manager. */
#ifndef TEST_MGR_DRAIN_WORLD_H
#define TEST_MGR_DRAIN_WORLD_H

#include "manager/drain.h"
#include "mgr_fixture.h"

#define W_NAME 300
#define W_BNFS  3
#define W_TASKS 256
#define W_FILES 256
#define W_PIECES 64

struct w_piece {
    uint64_t win, chunk;
    uint32_t off, len, chunk_off;
};

/* A file in the target: temporary, or under its name. */
struct w_file {
    bool used, other; /* other: in the target /other */
    char name[W_NAME];
    uint64_t ino, size, version; /* version: as its mark says; 0: temporary */
    size_t n;
    struct w_piece piece[W_PIECES];
};

struct w_bnf {
    struct mgr_conn *conn;
    uint32_t id;
    bool down;
    size_t n;
    Fp__Task *task[W_TASKS]; /* taken, not done; owned */
    bool asked;              /* a MSG_TASKS is not answered */
    Fp__Tasks *call;         /* what it said; owned */
    struct {
        uint32_t mode;
        uint64_t rate, look;
    } pace;                  /* as told last, of whichever target */
    unsigned prefs_set;      /* how often it was told a preference */
    Fp__TargetState *says;   /* of a target, with each keep-alive; NULL: nothing */
};

struct world {
    struct fix f; /* first: what is sent to benefactors is found by it */
    const char *path;
    struct mgr_conn *ctl;
    struct w_bnf bnf[W_BNFS];
    size_t nbnf;
    struct w_file file[W_FILES];
    uint64_t next_ino;
    uint64_t capacity; /* of each benefactor, as its next keep-alive says; 0: 1 GiB */
    const char *to;    /* where w_start drains to: NULL is /pfs, the only other one is /other */
    uint32_t layout;   /* of what w_start begins: enum fp_drain_layout */
    bool again;        /* … and also what is there already */
    bool other;        /* the files of /other are meant */
    bool marker, other_marker;
    uint64_t written;  /* parts */
    uint64_t dirs_made, dirs_done, links;
    bool other_jobs; /* there may be more than one at a time: what has no name yet when a directory is done may be another's */
    uint64_t renamed, verified, probes, cleaned, others, fetched; /* others: slices of windows that were compared, which somebody else had written */
    bool wrong;        /* the target's data is not what was written */
    bool other_bytes;  /* … and is read so, too */
    uint64_t looks;
    size_t blind;      /* benefactor, from 1, that finds nothing in the target; 0: all do */
    bool unsummed;     /* benefactors do not see whole windows at once, and tell sums of 0 */
    uint64_t free_bytes; /* that each benefactor says it has; 0: all of its 1 GiB */
    int refuse;        /* PREPARE of this path fails with it */
    const char *refuse_path;
};

void w_open(struct world *w, const char *path, size_t nbnf);
void w_close(struct world *w);
/* The manager dies and is started anew; benefactors come back. */
void w_restart(struct world *w);
/* A benefactor dies: its tasks are forgotten; and comes back. */
void w_bnf_dies(struct world *w, size_t i);
void w_bnf_comes(struct world *w, size_t i);
void w_tick(struct world *w, uint64_t ms);
/* It answers MSG_TASKS: 0, it has taken them; else it has not. */
void w_answer(struct world *w, size_t i, int status);
/* What comes of the k-th task of benefactor i; done here, told to the manager by w_tell. */
void w_do(struct world *w, const Fp__Task *k, Fp__TaskResult *r);
/* Told; again: not forgotten. Returns the status. */
int w_tell(struct world *w, size_t i, Fp__TaskResult *r);
void w_result_fini(Fp__TaskResult *r);
/* Does the k-th task and tells it. */
void w_work(struct world *w, size_t i, size_t k);
/* Everything until nothing is left to do. */
void w_run(struct world *w);
struct w_file *w_find(struct world *w, const char *name);
size_t w_temps(const struct world *w);
/* fpctl drain set. */
void w_policy(struct world *w, const char *text);
/* START; the number of the job, 0: refused (the reason is in why). */
uint64_t w_start(struct world *w, const char *path, bool verify, char why[300]);
/* Makes a policy, or (text NULL) removes that one. Why it is refused; without room for that it must not be. */
void w_policy_change(struct world *w, const char *text, uint64_t remove, char why[FP_DRAIN_WHY_MAX]);
/* The job as it is shown; free with fix_free(reply). */
Fp__CtlDrainReply *w_show(struct world *w, uint64_t id);
/* Is the file in the target as it is in the store? */
void w_equal(struct world *w, const char *name, uint64_t ino);

#endif
