/* A benefactor's service and draining over a real fp-drain, and a target with one file whose chunks are to come back: for test_bnf_fetch and test_bnf_stage. */
#ifndef TESTS_FETCH_WORLD_H
#define TESTS_FETCH_WORLD_H

#include <sys/stat.h>
#include <uv.h>

#include "benefactor/drain.h"
#include "tests/unit/bnf_util.h"

#define MIB      ((uint64_t)1 << 20)
#define BNF_ID   3u
#define CHUNKS   24u
#define SIZE     (CHUNKS * MIB - 4321)
#define CAPACITY (64 * MIB)
#define FIRST    100u /* id of the chunk that is MiB 0 of the file */

struct fetch_world {
    unsigned timeout_ms; /* after which a target counts as hanging; fw_setup makes it long: a test of one that hangs makes it BNF_TARGET_TIMEOUT_MS */
    struct bnf_scratch t;
    char root[300], program[4200];
    uv_loop_t loop;
    uv_timer_t timer;
    struct bnf_backend *backend;
    struct bnf_service *service;
    struct bnf_drain *drain;
    uint64_t owner;
    bool done;
    int status;
    uint64_t lease;
    uint8_t *data; /* of the file */
    struct stat st;
    Fp__ExtFile file;
    /* the last result */
    int32_t result;
    uint64_t bytes;
    size_t nmissing, nchunks, nlist;
    uint64_t missing[CHUNKS];
    Fp__Chunk chunks[CHUNKS];
    char why[256], name[256];
    bool eof;
};
extern struct fetch_world x;

/* What somebody who asked was told. */
struct told {
    bool done, stored, right;
    int status;
    uint32_t nblocks;
    void *handle;
};

int fw_setup(void **state);
int fw_teardown(void **state);
void fw_restart(const char *faults, uint64_t give_up_ms); /* with faults in each fp-drain that is started from here on */
void fw_turn(void);
const char *fw_path_of(const char *name); /* below the target's root; valid until the next */
void fw_make_file(void);                  /* from x.data, anew */
uint32_t fw_len_of(uint32_t i);
uint64_t fw_sum_of(uint32_t i);
void fw_on_fetched(void *arg, int status, const struct bnf_fetched *f);
int fw_fetch(uint32_t i, bool payload, struct told *t); /* MiB i of the file, as a mount asks for it */
int fw_wait_told(struct told *t);
int fw_fetched(uint32_t i, struct told *t); /* both, without payload */
bool fw_is_here(uint32_t i);                /* as a record like any other */
size_t fw_staged(uint64_t *ids, bool taken); /* what the manager is told of */
void fw_delete(uint32_t i);
void fw_damage(uint32_t i);                 /* its record, behind the header */
void fw_fill_up(uint64_t leave);

#endif
