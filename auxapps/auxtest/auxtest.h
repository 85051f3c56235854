/*
 * fp-auxtest inside: a host and a store that exist only in memory, and checks that run a plugin against them.
 *
 * Each check runs in a process of its own, so that a plugin that crashes or hangs fails one check and the report goes on. A check calls
 * auxtest_fail at most once, which ends the process; what it prints is for the author of the plugin.
 */
#ifndef AUXTEST_H
#define AUXTEST_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "auxapps/host/load.h"
#include "fp/auxapp.h"

#define CHUNKS_MAX 512u
#define TABLE_MAX 256u

/* Ends the check: the plugin did something that it must not. */
void auxtest_fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

/* ---- random.c */
struct random { uint64_t x; };
uint64_t random_next(struct random *r);
uint64_t random_below(struct random *r, uint64_t n); /* 0 .. n - 1; n > 0 */

/* ---- memory with guards: buffer.c */

/* Bytes that end exactly at a page that can't be touched, with another one before. */
struct buffer { uint8_t *map, *data; size_t map_bytes, len_bytes; };
void buffer_new(struct buffer *b, size_t len_bytes);
void buffer_read_only(struct buffer *b, bool on);
/* The bytes between the guard and the data are as they were. */
bool buffer_is_clean(const struct buffer *b);
void buffer_free(struct buffer *b);

/* ---- the host in memory: model.c, services.c */

struct stored { uint8_t *data; uint32_t len_bytes, note_bytes, nkeys; uint8_t *note; uint64_t *keys; };
struct entry { uint8_t key[FP_AUX_KEY_MAX_BYTES], value[FP_AUX_VALUE_MAX_BYTES]; uint32_t key_bytes, value_bytes; bool used; };

struct fp_aux_host {
    struct fp_aux_handle handle;
    struct aux_options *options;
    pthread_mutex_t lock;          /* all below */
    struct stored chunk[CHUNKS_MAX];
    uint32_t nchunks;
    struct entry table[TABLE_MAX];
    struct random random;
    unsigned fail_percent;         /* of services that answer with an error */
    bool verbose;
    uint64_t counted, sent;
    const uint8_t *file;           /* what file_read gives */
    uint64_t file_bytes;
};

struct fp_aux_call {
    struct fp_aux_handle handle;
    struct fp_aux_host *host;
    _Atomic bool cancelled;
    const struct fp_aux_chunk *chunk;
    struct buffer out;             /* made when it is asked for */
    uint32_t replaced_bytes;
    uint8_t *flat;
    uint8_t *rebuilt;              /* what the pieces say, to be compared */
    uint8_t *fresh;                /* new data */
    uint32_t told, npieces, fresh_bytes, runs;
    int last_kind;
    uint32_t last_end;
    struct stored note;
    uint32_t at;                   /* write: how far get_chunk has come */
    uint32_t piece_len;            /* write: of the piece in hand */
    bool written;
    uint64_t ticket;
};

extern const struct fp_aux_services auxtest_services;

/* The plugin, loaded, with the options of the command line. */
struct subject {
    const char *path;
    char declaration[2048];
    struct aux_plugin *plugin;
    const struct fp_aux_app *app;
    uint64_t seed;
    unsigned rounds, seconds;      /* seconds: that a check may take */
    bool verbose;
};

void host_new(struct fp_aux_host *h, const struct subject *s);
void host_free(struct fp_aux_host *h);
/* Declared with these options, started. Fails the check if it does not start. */
void *subject_start(const struct subject *s, struct fp_aux_host *h);
void subject_stop(const struct subject *s, void *state);

void call_begin(struct fp_aux_call *c, struct fp_aux_host *h, const struct fp_aux_chunk *k);
void call_end(struct fp_aux_call *c);

/* ---- checks: each ends by returning, or with auxtest_fail */

typedef void check_fn(const struct subject *s);
struct check { const char *name, *what; check_fn *fn; bool (*applies)(const struct fp_aux_app *app); };
extern const struct check auxtest_checks[]; /* name NULL ends it */

/* checks_chunk.c: one chunk through the plugin, result judged; the verdict, or a negative errno that is allowed. */
int chunk_round_trip(const struct subject *s, void *state, struct fp_aux_host *h, struct random *r, bool keep);
check_fn check_chunks, check_damage, check_errors, check_cancel, check_threads;
/* checks_calls.c */
check_fn check_start, check_calls, check_leaks, check_change;

#endif
