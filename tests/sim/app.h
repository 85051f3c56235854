/* Applications of the workload: what work.c, and the parts of it in files of their own (work_*.c), share. */
#ifndef TESTS_SIM_APP_H
#define TESTS_SIM_APP_H

#include "tests/sim/fuse.h"
#include "tests/sim/locks.h"
#include "tests/sim/model.h"
#include "tests/sim/work.h"

#define HANDLES   3
#define FILE_MAX  (300u << 10)
#define WRITE_MAX (100u << 10)
#define READ_ROOM (400u << 10)

struct handle {
    struct sim_open *f;
    struct model_file *model;
    uint64_t opened_ns;
    uint64_t given_ns; /* of a lock that it has: when the ones before were given back */
    unsigned start;
    bool writable;
    struct name *name; /* by which it was opened */
    struct name *made; /* by this open; NULL: not, or it was told that it is there */
    uint64_t version;  /* of that name then */
};

struct app {
    struct sim_proc *mount;
    uint64_t id;
    struct handle h[HANDLES];
    unsigned ops;
    bool done;
    uint8_t *buf;
    struct sim_open *log;          /* work_append.c */
    unsigned log_at, log_start;
    const struct lock_want *waits; /* for a lock by fcntl */
};

uint64_t app_pick(uint64_t n);
struct name *app_name(enum name_kind kind);
/* An error that no fault explains ends the run. */
void app_error(const struct app *a, const char *what, const char *path, int rc);
struct handle *app_handle(struct app *a); /* any that is open; NULL */
unsigned apps_waiting(const struct app *but, struct lock_want *out, unsigned max);

void app_open(struct app *a, struct handle *h, struct name *n, int flags);
void app_close(struct app *a, struct handle *h);
void app_write(struct app *a, struct handle *h); /* anything anywhere */
void app_read(struct app *a, struct handle *h, uint64_t off, size_t len);
void app_truncate(struct app *a, struct handle *h, uint64_t size);
void app_sync(struct app *a, struct handle *h);
void app_rename(struct app *a, struct name *n, struct name *to, unsigned flags);

void app_strike(struct app *a); /* work_strikes.c */
void app_lock(struct app *a);   /* work_locks.c */
void app_allocate(struct app *a); /* work_range.c */
void app_copy(struct app *a);
void app_seek(struct app *a);
void app_store(struct app *a);
void app_link(struct app *a); /* work_links.c */
void link_look(struct app *a, struct name *n);
void app_xattr(struct app *a);  /* work_xattr.c */
void xattrs_durable(uint64_t from_ns);

/* ------------------------------------------------------------------ the life of files: drained, evicted, read back (work_life.c) */

void app_life(struct app *a);
void lives_verify(struct app *a); /* when all is well */
void lives_lose_a_disk(struct app *a, struct app *reader);
void lives_remove(struct sim_proc *m);

/* ------------------------------------------------------------------ logs (work_append.c) */

void appends_start(struct sim_proc *m); /* makes them */
void app_append(struct app *a);
void app_append_end(struct app *a);
void appends_verify(struct sim_proc *m);
void appends_remove(struct sim_proc *m);

#endif
