/* Inside of the service: shared by service.c, service_io.c and nobody else. */
#ifndef BNF_SERVICE_IMPL_H
#define BNF_SERVICE_IMPL_H

#include "benefactor/service.h"

struct bnf_read_task;

#define BUFFERS_SHOWN 128u /* of a store with few chunks in each of many segments, those that are left of buffers are more than these */

struct bnf_service {
    struct bnf_service_config config;
    Fp__BufferState buffers_info[BUFFERS_SHOWN], *buffers_list[BUFFERS_SHOWN];
    struct bnf_store *store;
    struct bnf_disk *disk;
    struct bnf_bufpool buffers;
    struct bnf_health health;
    uint64_t next_owner;
    uint64_t incarnation;
    uint64_t unsynced_life;
    uint64_t boot;   /* the kernel that runs, as a number */
    uint64_t losses; /* by syncs that failed */
    uint64_t mount_bytes;

    struct bnf_file **files; /* by slot */
    uint32_t nfiles;
    unsigned ops_running;

    uv_timer_t timer;
    bool tick_running;
    bool was_full; /* our own size is used up: told once */
    bool draining;
    bool pressed;
    uint64_t drain_until_ms;
    bool drain_synced;
    int drain_status; /* of that sync */
    void (*drained)(void *arg, int status);
    void *drained_arg;

    struct waiter *sync_next; /* for the sync that comes after the one that runs */
    bool sync_running;
    bool loss_reported; /* by a mount: for the next sync to make it known */

    struct bnf_read_task *reads_waiting, **reads_tail; /* for a buffer */
};

struct waiter {
    struct waiter *next;
    bnf_done_cb done;
    bnf_lease_cb leased;
    void *arg;
};

/* Starts what the store wants done, completes what it says is complete. After every call of the store. */
void service_pump(struct bnf_service *v);
/* A disk operation failed or a probe succeeded: state, log line, news to the manager. */
void service_disk_failed(struct bnf_service *v, const char *what, int rc);
/* Buffers have come back. */
void service_reads_go_on(struct bnf_service *v);
void service_check_pressure(struct bnf_service *v);

#endif
