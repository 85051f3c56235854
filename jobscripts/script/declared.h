/*
 * What the #FP lines of a batch script declare. Made of a script alone: no node, no variable, no plugin is looked at (check.h does).
 *
 * One table for each directive gives its words, their limits, fp-jobscript(7) and the messages; the words of aux-apps are their own.
 */
#ifndef JOB_DECLARED_H
#define JOB_DECLARED_H

#include <stdbool.h>
#include <stdint.h>

#include "fp/opt.h"
#include "jobscripts/script/script.h"

#define JOB_AUXAPPS_MAX 16u   /* FP_AUXW_APPS_MAX */
#define JOB_AUXAPP_BYTES 1024u /* of one declaration, as fp-mount takes it */
#define JOB_CORES_MAX 1024u

/* What becomes of a store whose data was not brought out. */
enum job_failure { JOB_FAILURE_REMOVE, JOB_FAILURE_KEEP };

/* #FP store. Texts may hold variables ($TMPDIR), which have their values on the nodes. */
struct job_store {
    const char *ssd;      /* directory on each node's own SSD */
    const char *mount;
    const char *backend;  /* fp-benefactor --backend */
    const char *persistent; /* name of a store that outlives the job; NULL: it does not */
    uint64_t size_bytes;  /* of each node; 0: nine tenths of what is free */
    uint64_t pool_bytes;  /* memory for chunks of each mount */
    uint64_t chunk_size_bytes; /* 0: the manager's default */
    int64_t stripe;       /* 0: the manager's default */
    int close;            /* what close(2) waits for, of fp_close_names; fp-mount is told only if the script says it */
    int on_failure;       /* enum job_failure */
    bool required;        /* without it the application does not run */
    uint64_t ready_ms;    /* within which all nodes are up */
    uint64_t reserve_ms;  /* of the job's time, kept for draining and stopping */
};

enum job_cores_kind { JOB_CORES_NONE, JOB_CORES_COUNT, JOB_CORES_LIST, JOB_CORES_SHARE };

/* #FP cores: FP(X,Y) of the paper, X on each node. */
struct job_cores {
    enum job_cores_kind kind;
    struct job_place at;
    uint32_t min, max;  /* COUNT: as many as a node can spare, from min to max */
    uint32_t percent;   /* SHARE: of the node's cores, at least one */
    const char *list;   /* LIST: 7,15-17; of a node's CPUs as Linux numbers them */
    uint32_t highest;   /* LIST: greatest number in it */
};

/* #FP auxapp, as it is handed to fp-mount --auxapp. */
struct job_auxapp {
    const char *text;   /* the whole declaration, with values quoted where they need it */
    const char *name;   /* its first word */
    const struct job_line *line;
};

enum job_when { JOB_ON_SUCCESS, JOB_ON_FAILURE, JOB_ALWAYS };

/* #FP stage-in, #FP stage-out. */
struct job_stage {
    struct fp_strlist paths; /* patterns of the shell; of stage-out, relative to the mount unless they begin with / */
    const char *to;          /* NULL: not said */
    int when;                /* enum job_when; of stage-out */
    bool optional;           /* of stage-in: what is not there is no mistake */
    uint64_t timeout_ms;
    const struct job_line *line;
};

struct job_declared {
    struct job_script script; /* what the lines below point into */
    const struct job_line *store_line; /* NULL: none, and store has the defaults */
    struct job_store store;
    struct job_cores cores;
    struct job_auxapp auxapps[JOB_AUXAPPS_MAX];
    size_t nauxapps;
    struct job_stage *in, *out;
    size_t nin, nout;
    struct fp_opts **handles; /* own the texts */
    size_t nhandles;
};

/* Takes over *script. Mistakes are in f, and what they concern is as if it was not there. job_declared_fini frees all. */
void job_declared_make(struct job_script *script, struct job_declared *out, struct job_findings *f);
void job_declared_fini(struct job_declared *d);

/* What is wrong with the name of a store; NULL: nothing. */
const char *job_store_name_why(const char *text);
/* #FP auxapp of this name, the first; NULL: there is none. */
const struct job_auxapp *job_declared_auxapp(const struct job_declared *d, const char *name);
/* #FP auxapp drain; NULL: there is none. */
const struct job_auxapp *job_declared_drain(const struct job_declared *d);

/* The tables, for the man page: NULL-terminated; names[i] is the directive of tables[i]. */
extern const struct fp_opt_table job_store_table, job_stage_in_table, job_stage_out_table;

/* cores.c: the value of #FP cores. False: it is none, and f has it. */
bool job_cores_parse(const char *text, struct job_place at, struct job_cores *out, struct job_findings *f);

#endif
