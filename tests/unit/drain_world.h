/* fp-drain in a thread of the test, over a directory: the benefactor's side of its socket. */
#ifndef TESTS_DRAIN_WORLD_H
#define TESTS_DRAIN_WORLD_H

#include <pthread.h>
#include <stdint.h>

#include "benefactor/backend.h"
#include "drain/drain.h"
#include "tests/unit/bnf_util.h"

#define DW_WINDOW 65536u
#define DW_SEGMENT 5u

struct dw {
    struct bnf_scratch segments;
    char root[256];
    int socket;
    struct dr_worker *worker;
    struct fp_dw_status status;
    pthread_t thread;
    int end; /* of dr_link_run */
    struct bnf_backend *backend;
    struct bnf_file *seg;
    uint64_t seg_end; /* where the next record goes */
    uint64_t next_id;
    uint64_t gen;
    uint32_t write_flags; /* of WRITE */
    /* the last answer */
    struct fp_dw_done done;
    char why[DR_WHY_MAX];
    uint64_t sums[FP_DW_WINDOWS_MAX];
    char names[4096]; /* of a SWEEP, each with a newline */
};

void dw_start(struct dw *d); /* root with a marker, one segment that is told */
void dw_start_raw(struct dw *d); /* nothing was told yet, and no marker made */
void dw_stop(struct dw *d);
int dw_setup(struct dw *d);    /* dw_start, and dw_stop, for setup and teardown of tests that set faults: 0 */
int dw_teardown(struct dw *d);
int dw_end(struct dw *d); /* closes the socket; what dr_link_run said */
void dw_config(struct dw *d, unsigned threads);
void dw_config_as(struct dw *d, unsigned threads, const uint8_t target[16]);
void dw_send(struct dw *d, const void *msg, size_t len, const void *more, size_t more_len, int fd);
void dw_wait(struct dw *d); /* for an answer */
bool dw_answers(struct dw *d, int ms);

/* Tasks: sent and waited for; the status. id, gen, and for files path and TMP's name are the world's. */
int dw_file(struct dw *d, enum fp_dw_type type, const struct fp_dw_file *m, const char *path, const char *tmp);
int dw_prepare(struct dw *d, const char *path, const char *tmp, uint64_t size);
int dw_finish(struct dw *d, const char *path, const char *tmp, uint64_t tino, uint64_t size);
int dw_probe(struct dw *d, bool make_marker);
void dw_tell_write(struct dw *d, const char *tmp, uint64_t tino, uint64_t size, uint64_t first, const struct fp_dw_slice *s, uint32_t n);
int dw_write(struct dw *d, const char *tmp, uint64_t tino, uint64_t size, uint64_t first, const struct fp_dw_slice *s, uint32_t n);
/* PREPARE and WRITE of a file of one window: the inode. */
uint64_t dw_written(struct dw *d, const char *path, const char *tmp, uint64_t size, const struct fp_dw_slice *s);
int dw_verify(struct dw *d, const char *path, const char *tmp, uint64_t tino, uint64_t size, uint64_t first, const uint64_t *sums, uint32_t n);
/* From window 0 on, where others have written ranges. */
int dw_verify_own(struct dw *d, const char *tmp, uint64_t tino, uint64_t size, const uint64_t *sums, uint32_t n, const struct fp_dw_range *others, uint32_t nothers);

/* A chunk of this length, with bnf_fill's bytes, and the slice that is all of it at `at`. */
struct fp_dw_slice dw_chunk(struct dw *d, uint64_t chunk, uint32_t len, uint32_t at);
/* Bytes [from, from + len) of a chunk, at `at`. */
struct fp_dw_slice dw_piece(struct fp_dw_slice whole, uint32_t from, uint32_t len, uint32_t at);

/* What must be there: the file's bytes by its slices. 0 when path below the root has them, -ENOENT, or the first byte that differs + 1. */
int64_t dw_compare(struct dw *d, const char *path, uint64_t size, uint64_t first, const struct fp_dw_slice *s, uint32_t n);
uint64_t dw_sum_of(const struct fp_dw_slice *s, uint32_t n, uint64_t size, uint64_t window); /* slices from window 0 */
const char *dw_path(struct dw *d, const char *below); /* valid until the next but one */
bool dw_exists(struct dw *d, const char *below);
void dw_make(struct dw *d, const char *below, const char *text); /* a file of somebody else */

#endif
