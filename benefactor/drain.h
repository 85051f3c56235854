/* Draining on the benefactor's side: tasks of the manager, the fp-drain processes that do them, results until the manager has them.
 *
 * All functions: thread of the loop, none blocks. */
#ifndef BNF_DRAIN_H
#define BNF_DRAIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "benefactor/service.h"
#include "fp.pb-c.h"
#include "life.pb-c.h"

struct bnf_drain;

struct bnf_drain_config {
    uv_loop_t *loop;
    struct bnf_service *service;
    const char *program; /* fp-drain; borrowed, as all strings */
    uint64_t target_timeout_ms; /* a call of a target that takes longer hangs */
    uint64_t give_up_ms; /* a worker that hangs as long is left behind */
    uint64_t max_rate;   /* bytes a second for each target; 0: no limit */
    uint32_t threads;
    const char *plugin_dir;      /* of aux-apps that undo what they did to chunks; NULL: beside us */
    const char *const *auxapps;  /* their declarations, for those that need options */
    size_t nauxapps;
    bool on;
    uint32_t (*bnf_id)(void *arg);
    void (*results)(void *arg); /* there is something for bnf_drain_results */
    void (*changed)(void *arg); /* states of targets */
    void *arg;
};

int bnf_drain_new(const struct bnf_drain_config *c, struct bnf_drain **out);
/* Kills the workers; nothing is started any more. Tasks are the manager's, which tells them to the next process. */
void bnf_drain_stop(struct bnf_drain *d);
void bnf_drain_free(struct bnf_drain *d); /* after _stop; the loop must run once more. NULL is fine */

/* Tasks that are known already (id and gen) are not taken twice; one with a greater gen replaces the one before. m is changed: tasks that are taken are
 * not in it any more. -ENOMEM, -EBUSY (too many), -EINVAL: what could be taken was. */
int bnf_drain_tasks(struct bnf_drain *d, Fp__Tasks *m);
void bnf_drain_pace(struct bnf_drain *d, const Fp__Pace *m);
/* A preference: drain=on|off, max=RATE, threads=N, hold=on|off. 0, or -EINVAL with why (static text). */
int bnf_drain_set(struct bnf_drain *d, const char *name, const char *value, const char **why);

/* ---- chunks of which the bytes are in a target */

struct bnf_fetched {
    bool stored; /* it is here now, and data is NULL */
    const uint64_t *block_sums;
    uint32_t nblocks, len_bytes;
    const void *data;
    void *handle; /* with data: for bnf_drain_fetch_end */
};
/* f is NULL unless status is 0. -ENOENT, -ESTALE: the file in the target is gone, or is another; FP_ECHECKSUM: its bytes are. -ENOSPC: no room, and no payload
 * wanted. All else: not now, for the target's fault or ours. Comes at the latest when a call of the target counts as hanging. */
typedef void (*bnf_fetch_cb)(void *arg, int status, const struct bnf_fetched *f);
/* Many asks for one chunk are one read. 0 and cb, or -EINVAL, -EBUSY, -ENOMEM, FP_ESTOPPING. m is borrowed. */
int bnf_drain_fetch(struct bnf_drain *d, const Fp__Fetch *m, bnf_fetch_cb cb, void *arg);
void bnf_drain_fetch_end(void *handle);
/* As bnf_drain_results: chunks that came from a target and are here. bnf_drain_told counts for both. */
size_t bnf_drain_staged(struct bnf_drain *d, Fp__Staged **out, size_t max);

/* Results that the manager has not been told, at most max; valid until the next call of anything here. They count as being told from now on. */
size_t bnf_drain_results(struct bnf_drain *d, Fp__TaskResult **out, size_t max);
/* What was being told: the manager has it (its tasks are forgotten), or not (they will be told again). */
void bnf_drain_told(struct bnf_drain *d, bool taken);

/* Has an fp-drain been given this segment, for a task that is not over? */
bool bnf_drain_reads(const struct bnf_drain *d, uint64_t segment);

/* Into a keep-alive: preferences and states of targets; valid until the next call of anything here. */
void bnf_drain_info(struct bnf_drain *d, Fp__BnfInfo *i);

#endif
