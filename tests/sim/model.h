/*
 * The model: a plain file system in memory that knows the contract of docs/ARCHITECTURE.md, Consistency. It is told what applications did and what they
 * saw, and ends the run when they saw what the contract does not allow. See model.c (contents) and names.c.
 */
#ifndef TESTS_SIM_MODEL_H
#define TESTS_SIM_MODEL_H

#include "tests/sim/sim.h"

#define MODEL_OVER_MAX 64
#define MODEL_ABSENT 256 /* a byte beyond the end of the file */

struct model_write;

enum model_kind { MODEL_WRITE, MODEL_CUT, MODEL_ZEROS, MODEL_GROWTH, MODEL_COPY };

struct model_file {
    struct model_file *next;
    uint64_t ino;
    struct model_write *writes; /* newest first */
    struct model_file *over[MODEL_OVER_MAX]; /* it was given their name before it was whole: if it is doomed, it may be what one of them was */
    unsigned nover;
    uint64_t whole_ns; /* then all had closed it, and nothing of it was in question; 0: that can't be said */
    bool asked;    /* … and since then a close or fsync has begun: the manager may have taken what was written for the new version */
    bool over_empty; /* … and it may be so at any time: it was empty then, and nobody knows when it was closed */
    uint64_t overtaken; /* by mount: it may have lost its session while it had written, and no fsync has said since that all is there */
    uint32_t writers[SIM_PROCS_MAX]; /* by mount: how often it has it open for writing */
    bool doomed;   /* a mount may be taken for dead, or be dead, that had it open for writing, or a program was told an error: what was not closed by all, or synced, may be taken back */
    bool unsure;   /* that it was made: no close has said so */
    bool in_doubt; /* a node lost its power, or mounts heard of it, since it was made: a mount that does not know what others have synced says so in fsync, once */
};

/* A file by its inode number; made when it is not known. */
struct model_file *model_file(uint64_t ino);
bool model_knows(uint64_t ino);

/* A write of len bytes at off has begun; its bytes are filled in. */
struct model_write *model_write_begin(struct model_file *f, const struct sim_proc *m, uint64_t off, uint64_t len, uint8_t *buf);
/* The same of what is not written: from off on there is nothing (MODEL_CUT), zeros, the file has at least off + len bytes, a copy. keeps_size: zeros behind the end are none. */
struct model_write *model_change_begin(struct model_file *f, const struct sim_proc *m, enum model_kind kind, uint64_t off, uint64_t len, bool keeps_size);
void model_write_end(struct model_file *f, struct model_write *w, ssize_t rc); /* what the call returned */
/* The same of a copy; the source was open as model_read has it. */
void model_copied(struct model_file *f, struct model_write *w, struct model_file *from, uint64_t from_off, uint64_t opened_ns, uint64_t given_ns, ssize_t rc);

/* close or fsync of a file, begun at from_ns, said rc. */
void model_published(struct model_file *f, const struct sim_proc *m, uint64_t from_ns, int rc, bool durable);

/* m has opened it for writing; what it had opened is closed, which said rc. */
void model_opened(struct model_file *f, const struct sim_proc *m);
void model_closed(struct model_file *f, const struct sim_proc *m, int rc);

/* m has opened it, or given it another name, and began that at from_ns: what others had closed then has been published. NULL: of all mounts. */
void model_taken(struct model_file *f, const struct sim_proc *m, uint64_t from_ns);
bool model_is_cut_off(const struct sim_proc *m);
void model_heard(const struct sim_proc *m); /* the manager sends something to this mount: its session is alive */

/* f may have been given the name of `over`. */
void model_replaced(struct model_file *f, struct model_file *over);

/* An fsync of the file begins; 0: of all files. A close by m: it says nothing while m has the file open for writing otherwise. */
void model_asked(uint64_t ino);
void model_closes(uint64_t ino, const struct sim_proc *m);
/* The manager has put back what the file was before it was rewritten. */
void model_returned(uint64_t ino);

/* m has given back a lock of this file, which it began at from_ns: what it had written then is seen by who gets that lock next. */
void model_given_back(struct model_file *f, const struct sim_proc *m, uint64_t from_ns);

/* What was read at off, by a file that was opened at opened_ns, under a lock that others had given back at given_ns; the read began at from_ns. rc: bytes, or negative errno. */
void model_read(struct model_file *f, const struct sim_proc *m, uint64_t opened_ns, uint64_t given_ns, uint64_t from_ns, uint64_t off, size_t want, const uint8_t *buf, ssize_t rc);

/* SEEK_DATA has found nothing from off up to end. */
void model_no_data(struct model_file *f, const struct sim_proc *m, uint64_t opened_ns, uint64_t given_ns, uint64_t from_ns, uint64_t off, uint64_t end);

void model_mount_died(const struct sim_proc *m);
void model_power_lost(const struct sim_node *n);
void model_damaged(void);             /* a disk gave back or will give back errors: any read may fail */
bool model_may_have_lost(const struct model_file *f); /* close and fsync may say so */
bool model_has_unpublished(const struct model_file *f);
bool model_error_ok(int err, bool open); /* an operation, on a file that is open or on a name, may fail with this now */
uint64_t model_size(const struct model_file *f); /* at most this, with some room */

/* ------------------------------------------------------------------ names: see names.c */

struct name;

#define MODEL_DIR ((struct model_file *)(uintptr_t)1) /* a directory; others are files, NULL nothing */

void names_init(void);
unsigned names_count(void);
struct name *name_of(unsigned i);
const char *name_path(const struct name *n);
enum name_kind { NAME_FILE, NAME_DIR, NAME_LINK };

enum name_kind name_kind(const struct name *n); /* what it is used for */
void name_lock(struct name *n, struct name *n2); /* n2 may be NULL; one operation at a time on a name */
void name_unlock(struct name *n, struct name *n2, const struct sim_proc *m, bool changed);
bool name_may_be(const struct name *n, bool there);
bool name_is_surely(const struct name *n, bool there);
/* What an operation found; ends the run if that can't be. */
void name_is(struct name *n, struct model_file *f);
void name_is_new(struct name *n, struct model_file *f);   /* made by this operation */
struct model_file *name_file(const struct name *n); /* if it is surely this one, else NULL */
uint64_t name_version(const struct name *n);
/* The file that was made when the name had this version was closed: the manager knows of it. */
void name_confirmed(struct name *n, struct model_file *f, uint64_t version);
void name_exists(struct name *n);
void name_gone(struct name *n); /* removed by this operation */
void name_maybe(struct name *n, struct model_file *f);    /* or this, now */
void name_maybe_new(struct name *n);                       /* or something that nobody has seen */
void name_moved(struct name *from, struct name *to, bool sure);
void name_swapped(struct name *a, struct name *b);
void name_was_free(const struct name *n); /* an operation found so */
void name_linked(struct name *from, struct name *to, bool sure);
void names_durable(uint64_t from_ns);
void names_mount_died(const struct sim_proc *m);
void names_power_lost(void);
/* A directory was listed; list: names, each ended by NUL. versions: taken before. */
void names_snapshot(uint64_t *versions);
void names_listed(const char *dir, const char *list, int count, const uint64_t *versions);

#endif
