/*
 * A mount as fp-auxhost sees one, for tests: starts the real program with the descriptors of fp/auxwire.h, sends it jobs and events, takes its answers and
 * log lines, and answers its services. One thread. Whatever does not come within ten seconds fails the test.
 */
#ifndef AUX_MOUNT_H
#define AUX_MOUNT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "fp/auxwire.h"

#define AM_PAGE 65536u
#define AM_POOL_PAGES 512u
#define AM_SLOT ((1u << 20) + 2 * AM_PAGE)     /* a buffer of the region */
#define AM_SLOTS 32u
#define AM_WAIT_MS 10000

struct am_answer {
    struct am_answer *next;
    uint32_t len;
    _Alignas(16) uint8_t buf[];
};

struct am {
    pid_t pid;
    int fd_jobs, fd_services, wait_status;
    bool reaped;
    uint8_t *pool, *region;
    struct fp_auxw_status *status;
    struct fp_auxw_ready ready;
    char failed[1024];             /* the line of FAILED */
    uint32_t failed_app;
    char log[65536];               /* all lines, each "app level text" */
    struct am_answer *answers;
    uint64_t next_id;
    /* Answers a service: fills status and reply, returns its length. May be called several times (call counts from 0) until eof is set. */
    uint32_t (*service)(struct am *, const struct fp_auxw_svc *m, const uint8_t *body, uint32_t len, unsigned call, struct fp_auxw_svc *answer,
                uint8_t *reply);
    uint32_t bypassed;             /* bit i: declare the i-th one so */
    uint64_t memory_bytes;         /* START's */
    uint32_t out_flags;            /* of each chunk on its way out, these three */
    uint32_t skip;
    uint64_t passed_bytes;         /* of all aux-apps */
    struct fp_auxw_skip said;      /* the last one */
};

/* Directory of the variant's programs: made of this program's own path. */
const char *am_dir(void);
/* Declarations ended by NULL; NULL: decode_only. Waits for READY (0) or FAILED (-1). plugin_dir NULL: that of the test plugins. */
int am_start(struct am *m, const char *plugin_dir, const char *cores, const char *const *declared);
/* Ends the host by STOP and returns its wait status; frees all. */
int am_stop(struct am *m);
/* am_stop of a host that is to end with 0. */
void am_stop_clean(struct am *m);
/* Waits for the host to die by itself. */
int am_wait_death(struct am *m);

/* A line of /proc/PID/task/TID/status: what comes after "Name:" and blanks, "" if there is no such line. */
void am_thread_says(pid_t pid, const char *tid, const char *name, char *out, size_t n);
/* Over all threads of a process: the sum of what fn says. */
uint32_t am_sum_threads(pid_t pid, uint32_t (*fn)(pid_t pid, const char *tid, void *arg), void *arg);

/* Submit a window whose data is in pages [first, first + n) of the pool; step: distance of pages (1: in one piece). Buffers are slots 2 * slot and one behind. */
uint64_t am_chunk_out(struct am *m, uint32_t first, uint32_t step, uint32_t len, uint32_t slot);
/* The answer; valid until the next one is taken. */
const struct fp_auxw_out_done *am_out_done(struct am *m, uint64_t id);
const struct fp_auxw_piece *am_pieces(const struct fp_auxw_out_done *d);
const struct fp_auxw_stage *am_stages(const struct fp_auxw_out_done *d);
const uint64_t *am_keys(const struct fp_auxw_out_done *d);
const uint8_t *am_note(const struct fp_auxw_out_done *d);
uint8_t *am_slot(struct am *m, uint32_t i);

uint64_t am_chunk_in(struct am *m, uint32_t slot, const struct fp_auxw_stage *stages, uint32_t nstages, uint32_t coded_bytes);
/* status of a DONE; *where may be NULL */
int am_done(struct am *m, uint64_t id, uint32_t *where);
/* A message with its own struct and up to three parts behind it. */
void am_send(struct am *m, void *head, uint32_t type, uint64_t id, uint32_t len, const void *a, uint32_t alen, const void *b, uint32_t blen);
uint64_t am_change(struct am *m, uint32_t app, const char *text);
/* Serve and collect for so long. */
void am_run(struct am *m, int ms);
/* Until this text is in the log; fails the test if it does not come. */
void am_wait_log(struct am *m, const char *text);
int64_t am_counter(struct am *m, uint32_t app, const char *name);
/* The answer of a message with this id, NULL after ms. Freed by the caller. */
struct am_answer *am_take(struct am *m, uint64_t id, int ms);

#endif
