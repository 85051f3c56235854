/* The service: the store (store.h), its back end and the disk threads put together, for the servers (local.c,
 * remote.c) and the manager link to call.
 *
 * All functions: thread of the loop, never block. Completions come later, from the loop, exactly once per
 * call that returned 0; a call that failed gives none. */
#ifndef BNF_SERVICE_H
#define BNF_SERVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "benefactor/backend.h"
#include "benefactor/bufpool.h"
#include "benefactor/disk.h"
#include "benefactor/health.h"
#include "benefactor/store.h"
#include "fp.pb-c.h"

struct bnf_service_config {
    uv_loop_t *loop;
    struct bnf_backend *backend; /* borrowed */
    uint8_t store_uuid[16];
    uint8_t bnf_uuid[16];
    unsigned threads;
    uint64_t device_timeout_ms; /* an operation that takes longer: the device does not answer */
    size_t buffer_bytes;
    uint64_t capacity_bytes;
    uint64_t segment_bytes;
    unsigned buffers; /* segments are that many buffers, of which users want to know; 0: not */
    uint64_t random; /* salts and the incarnation */
    /* State, or free space in a way that others should hear of, has changed. */
    void (*changed)(void *arg);
    /* Buffers are short (true), or there is room again (false): stop and go on reading connections. */
    void (*pressed)(void *arg, bool pressed);
    void *arg;
};

struct bnf_service;

/* The store is empty: recovery, if any, fills bnf_service_store() and calls bnf_service_found() before
 * _start. */
int bnf_service_new(const struct bnf_service_config *c, struct bnf_service **out);
struct bnf_store *bnf_service_store(struct bnf_service *v);
void bnf_service_found(void *service, uint32_t slot, struct bnf_file *f); /* for bnf_recover_config */
int bnf_service_start(struct bnf_service *v);

/* Learnt from the manager after _new. */
void bnf_service_set_store_uuid(struct bnf_service *v, const uint8_t uuid[16]);
const uint8_t *bnf_service_store_uuid(const struct bnf_service *v);
const uint8_t *bnf_service_uuid(const struct bnf_service *v);
uint64_t bnf_service_incarnation(const struct bnf_service *v);
/* Another number when data acknowledged and not synced may be gone: see BnfHelloReply. */
uint64_t bnf_service_unsynced_life(const struct bnf_service *v);

/* Stop taking new work. done when everything under way is finished and synced (status: of the sync), or
 * -ETIMEDOUT after timeout_ms. May be called again after that. */
void bnf_service_drain(struct bnf_service *v, uint64_t timeout_ms, void (*done)(void *arg, int status),
                       void *arg);
void bnf_service_free(struct bnf_service *v); /* the loop must run once more */

/* A number for a connection; leases belong to it. */
uint64_t bnf_service_owner_new(struct bnf_service *v);
void bnf_service_owner_gone(struct bnf_service *v, uint64_t owner);

typedef void (*bnf_done_cb)(void *arg, int status);
typedef void (*bnf_lease_cb)(void *arg, int status, uint64_t lease);

/* As bnf_store_lease. -ENOSPC also while the device takes no data. If the caller's connection ends before the
 * callback: -ECANCELED comes. */
int bnf_service_lease(struct bnf_service *v, uint64_t owner, bool local, uint64_t want_bytes,
                      uint64_t min_bytes, bnf_lease_cb cb, void *arg);
int bnf_service_lease_return(struct bnf_service *v, uint64_t owner, uint64_t lease, uint64_t bytes);
int bnf_service_stored(struct bnf_service *v, uint64_t owner, uint64_t lease,
                       const struct bnf_stored *records, size_t count);

/* The open segment of a slot, borrowed until control goes back to the loop. */
struct bnf_file *bnf_service_file(const struct bnf_service *v, uint32_t slot);

/* A chunk that came over the network. buf: from bnf_service_buffer(v, len, …), data behind the first 4 KiB;
 * goes back to the pool in any case. 0 and cb, or what bnf_store_write_begin says (-EEXIST: stored already,
 * which is success). cb gets FP_ECHECKSUM when the data does not have these sums. */
int bnf_service_write(struct bnf_service *v, uint64_t owner, uint64_t lease, uint64_t chunk,
                      uint32_t len_bytes, const uint64_t *block_sums, uint32_t nblocks, void *buf,
                      bnf_done_cb cb, void *arg);
/* The same of a buffer that stays the caller's, who leaves it alone until cb: a multiple of 4 KiB in memory, with room for the record. */
int bnf_service_store_chunk(struct bnf_service *v, uint64_t owner, uint64_t lease, uint64_t chunk, uint32_t len_bytes, const uint64_t *block_sums,
                            uint32_t nblocks, void *buf, bnf_done_cb cb, void *arg);
/* Room for a record of len bytes of data. force as in bufpool.h. */
void *bnf_service_buffer(struct bnf_service *v, uint32_t len_bytes, bool force);
void bnf_service_buffer_put(struct bnf_service *v, void *buf, uint32_t len_bytes);
bool bnf_service_is_pressed(const struct bnf_service *v);

struct bnf_read {
    uint32_t off_bytes; /* widened to whole blocks */
    uint32_t len_bytes;
    uint32_t chunk_len_bytes;
    uint32_t nblocks;
    const uint64_t *block_sums; /* of the whole chunk */
    const void *data;
    void *handle; /* for _read_end */
};
/* r (NULL unless status is 0) belongs to the callee until bnf_service_read_end(v, r->handle).
 * FP_ECHUNK_MISSING; FP_ECHECKSUM and FP_ECORRUPT: logged here; -EIO. Waits for a buffer if there is none. */
typedef void (*bnf_read_cb)(void *arg, int status, const struct bnf_read *r);
int bnf_service_read(struct bnf_service *v, uint64_t chunk, uint32_t off_bytes, uint32_t len_bytes,
                     bnf_read_cb cb, void *arg);
void bnf_service_read_end(struct bnf_service *v, void *handle);

/* cb when everything stored before this call is on the device. -EIO: it could not be synced, and the unsynced life has
 * changed: what had not been synced before counts as lost. */
int bnf_service_sync(struct bnf_service *v, bnf_done_cb cb, void *arg);
/* The same; a mount could not sync these segments through its descriptors. cb gets 0 if the sync itself was well. */
int bnf_service_sync_failed(struct bnf_service *v, const uint64_t *segments, size_t count, bnf_done_cb cb,
                            void *arg);
/* cb when the space of all is free. chunks: borrowed until return. */
int bnf_service_delete(struct bnf_service *v, const uint64_t *chunks, size_t count, bnf_done_cb cb,
                       void *arg);

struct bnf_status {
    struct bnf_space space;
    uint64_t free_bytes; /* what may be leased: 0 unless the state is OK */
    enum bnf_state state;
    const char *error; /* "" if OK */
};
void bnf_service_status(const struct bnf_service *v, struct bnf_status *out);
/* What its buffers are used for, all of them or none (0): valid until the next call. is_draining: is this segment being read for a target just now? */
size_t bnf_service_buffers(struct bnf_service *v, bool (*is_draining)(void *arg, uint64_t segment), void *arg, Fp__BufferState ***out);
/* Stored by mounts, and read by those of other nodes, since the start. */
uint64_t bnf_service_mount_bytes(const struct bnf_service *v);
/* The descriptor of the limiter that whoever reads segments must keep to (borrowed); -1: none. */
int bnf_service_limiter(const struct bnf_service *v);

#endif
