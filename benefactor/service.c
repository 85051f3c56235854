/*
 * Glue between the store, which decides, and the disk threads, which do (service.h).
 *
 * Runs on the loop's thread. After each call of the store service_pump() starts the operations that the store
 * wants and hands completions to those who wait. A timer looks at the device twice a second, on a disk
 * thread: how much it can still take, and, while it is not well, whether writing works again; a look that
 * does not come back means that it hangs.
 *
 * Open segments are in a table by the store's slots; a task that uses one holds a reference, so an unlinked
 * segment is closed when the last reader is done. Reading, writing and syncing are in service_io.c.
 */
#include "benefactor/service.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "benefactor/service_impl.h"
#include "fp/boot.h"
#include "fp/bug.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "fp/log.h"
#include "fp/units.h"

#define OPS_MAX    16u /* disk operations under way at a time */
#define TICK_MS    500u
#define FULL_BYTES (FP_MIB(1) + FP_RECORD_HEADER_BYTES) /* less free than this: full */

/* ---------------------------------------------------------------- disk operations */

struct op_task {
    struct bnf_task task;
    struct bnf_service *service;
    struct bnf_op *op;
    struct bnf_file *file; /* referenced; CREATE: the new one */
    int rc;
};

static int set_file(struct bnf_service *v, uint32_t slot, struct bnf_file *f)
{
    if (slot >= v->nfiles) {
        struct bnf_file **more = realloc(v->files, (slot + 64) * sizeof(*more));

        if (!more)
            return -ENOMEM;
        memset(more + v->nfiles, 0, (slot + 64 - v->nfiles) * sizeof(*more));
        v->files = more;
        v->nfiles = slot + 64;
    }
    bnf_file_put(v->files[slot]);
    v->files[slot] = f;
    return 0;
}

struct bnf_file *bnf_service_file(const struct bnf_service *v, uint32_t slot)
{
    return slot < v->nfiles ? v->files[slot] : NULL;
}

static int create_segment(struct op_task *t)
{
    struct fp_segment_header h = {.id = t->op->segment, .salt = t->op->salt, .limit_bytes = t->op->len_bytes};

    memcpy(h.store_uuid, t->service->config.store_uuid, 16);
    memcpy(h.bnf_uuid, t->service->config.bnf_uuid, 16);
    return bnf_backend_create(t->service->config.backend, &h, &t->file);
}

static void op_run(struct bnf_task *task)
{
    struct op_task *t = (struct op_task *)task;
    struct bnf_backend *b = t->service->config.backend;
    const struct bnf_op *op = t->op;

    switch (op->kind) {
    case BNF_OP_CREATE:
        t->rc = create_segment(t);
        break;
    case BNF_OP_ALLOC:
        t->rc = bnf_backend_alloc(b, t->file, op->off_bytes, op->len_bytes);
        break;
    case BNF_OP_PUNCH:
        t->rc = bnf_backend_punch(b, t->file, op->off_bytes, op->len_bytes);
        break;
    case BNF_OP_UNLINK:
        t->rc = bnf_backend_unlink(b, t->file);
        break;
    }
}

static void op_done(struct bnf_task *task)
{
    static const char *const names[] = {"create segment", "allocate", "punch", "unlink"};
    struct op_task *t = (struct op_task *)task;
    struct bnf_service *v = t->service;
    uint32_t slot = t->op->slot;
    enum bnf_op_kind kind = t->op->kind;

    v->ops_running--;
    if (kind == BNF_OP_CREATE && t->rc == 0)
        t->rc = set_file(v, slot, bnf_file_get(t->file));
    if (t->rc)
        service_disk_failed(v, names[kind], t->rc);
    if (kind == BNF_OP_UNLINK)
        set_file(v, slot, NULL);
    bnf_file_put(t->file);
    bnf_store_op_done(v->store, t->op, t->rc);
    free(t);
    service_pump(v);
}

static void op_start(struct bnf_service *v, struct bnf_op *op)
{
    struct op_task *t = calloc(1, sizeof(*t));
    struct bnf_file *f = bnf_service_file(v, op->slot);

    if (!t) {
        bnf_store_op_done(v->store, op, -ENOMEM);
        return;
    }
    t->task.run = op_run;
    t->task.done = op_done;
    t->service = v;
    t->op = op;
    if (op->kind != BNF_OP_CREATE && f)
        t->file = bnf_file_get(f);
    v->ops_running++;
    bnf_disk_submit(v->disk, &t->task);
}

static void tell_when_full(struct bnf_service *v)
{
    struct bnf_space sp;
    bool full;
    char a[FP_UNITS_BUF];

    bnf_store_space(v->store, &sp);
    full = sp.free_bytes < FULL_BYTES;
    if (full == v->was_full)
        return;
    v->was_full = full;
    if (full)
        FP_INFO("full: %s contributed, all stored or leased; new chunks go to other benefactors",
                fp_format_size(a, sp.capacity_bytes));
    v->config.changed(v->config.arg);
}

static void complete(const struct bnf_event *ev)
{
    struct waiter *w = (struct waiter *)(uintptr_t)ev->tag;

    if (w->leased)
        w->leased(w->arg, ev->status, ev->lease);
    else
        w->done(w->arg, ev->status);
    free(w);
}

void service_pump(struct bnf_service *v)
{
    bool again;

    do { /* starting may fail, which makes events; completing may ask for more */
        struct bnf_event ev;
        struct bnf_op *op;

        while (v->ops_running < OPS_MAX && (op = bnf_store_pop_op(v->store)))
            op_start(v, op);
        for (again = false; bnf_store_pop_event(v->store, &ev); again = true)
            complete(&ev);
    } while (again);
    tell_when_full(v);
}

/* ---------------------------------------------------------------- health */

static void log_state(struct bnf_service *v)
{
    if (v->health.state == BNF_STATE_OK)
        FP_INFO("the device takes data again");
    else
        FP_ERROR("%s: no new data is taken, reading goes on; trying again every 2 s", v->health.text);
    v->config.changed(v->config.arg);
}

void service_disk_failed(struct bnf_service *v, const char *what, int rc)
{
    if (bnf_health_failed(&v->health, what, rc, fp_now_ms()))
        log_state(v);
}

struct tick_task {
    struct bnf_task task;
    struct bnf_service *service;
    bool probe;
    int probe_rc, free_rc;
    uint64_t free_bytes;
};

static void tick_run(struct bnf_task *task)
{
    struct tick_task *t = (struct tick_task *)task;
    struct bnf_backend *b = t->service->config.backend;

    t->free_rc = b->ops->device_free(b, &t->free_bytes);
    if (t->probe)
        t->probe_rc = bnf_backend_probe(b);
}

static void tick_done(struct bnf_task *task)
{
    struct tick_task *t = (struct tick_task *)task;
    struct bnf_service *v = t->service;

    v->tick_running = false;
    if (t->free_rc == 0)
        bnf_store_set_device_free(v->store, t->free_bytes);
    if (t->probe &&
        bnf_health_probed(&v->health, t->probe_rc, t->free_rc ? UINT64_MAX : t->free_bytes, fp_now_ms()))
        log_state(v);
    free(t);
}

static void drain_step(struct bnf_service *v);

static void on_tick(uv_timer_t *timer)
{
    struct bnf_service *v = timer->data;
    struct tick_task *t;
    bool hung;

    if (v->draining) {
        drain_step(v);
        return;
    }
    hung = (uint64_t)bnf_disk_look(v->disk) * TICK_MS > v->config.device_timeout_ms;
    if (hung)
        service_disk_failed(v, "longer than --device-timeout", -ETIMEDOUT);
    if (v->tick_running)
        return;
    t = calloc(1, sizeof(*t));
    if (!t)
        return;
    t->task.run = tick_run;
    t->task.done = tick_done;
    t->service = v;
    t->probe = !hung && bnf_health_probe_due(&v->health, fp_now_ms());
    v->tick_running = true;
    bnf_disk_submit(v->disk, &t->task);
}

void bnf_service_status(const struct bnf_service *v, struct bnf_status *out)
{
    bnf_store_space(v->store, &out->space);
    out->state = v->health.state;
    out->error = v->health.text;
    out->free_bytes = 0;
    if (v->health.state != BNF_STATE_OK)
        return;
    out->free_bytes = bnf_store_leasable(v->store);
    if (out->free_bytes < FULL_BYTES) {
        out->state = BNF_STATE_FULL;
        out->error = out->space.free_bytes < FULL_BYTES ? "all of --size is stored or leased"
                                                        : "the file system under --dir is nearly full";
    }
}

uint64_t bnf_service_mount_bytes(const struct bnf_service *v)
{
    return v->mount_bytes;
}

int bnf_service_limiter(const struct bnf_service *v)
{
    return v->config.backend->limiter ? v->config.backend->limiter_fd : -1;
}

/* ---------------------------------------------------------------- leases and records */

uint64_t bnf_service_owner_new(struct bnf_service *v)
{
    return ++v->next_owner;
}

void bnf_service_owner_gone(struct bnf_service *v, uint64_t owner)
{
    bnf_store_owner_gone(v->store, owner);
    service_pump(v);
}

static struct waiter *waiter_new(bnf_done_cb done, bnf_lease_cb leased, void *arg)
{
    struct waiter *w = calloc(1, sizeof(*w));

    if (w)
        *w = (struct waiter){.done = done, .leased = leased, .arg = arg};
    return w;
}

int bnf_service_lease(struct bnf_service *v, uint64_t owner, bool local, uint64_t want_bytes,
                      uint64_t min_bytes, bnf_lease_cb cb, void *arg)
{
    struct waiter *w;
    int rc;

    if (v->draining)
        return FP_ESTOPPING;
    if (!bnf_health_takes_data(&v->health))
        return -ENOSPC;
    w = waiter_new(NULL, cb, arg);
    if (!w)
        return -ENOMEM;
    rc = bnf_store_lease(v->store, owner, local, want_bytes, min_bytes, (uintptr_t)w);
    if (rc)
        free(w);
    else
        service_pump(v);
    return rc;
}

int bnf_service_lease_return(struct bnf_service *v, uint64_t owner, uint64_t lease, uint64_t bytes)
{
    int rc = bnf_store_lease_return(v->store, owner, lease, bytes);

    service_pump(v);
    return rc;
}

int bnf_service_stored(struct bnf_service *v, uint64_t owner, uint64_t lease,
                       const struct bnf_stored *records, size_t count)
{
    int rc = FP_FAULT_POINT("bnf.stored");

    if (rc < 0)
        return rc;
    rc = bnf_store_stored(v->store, owner, lease, records, count);
    for (size_t i = 0; rc == 0 && i < count; i++)
        v->mount_bytes += records[i].len_bytes;
    service_pump(v);
    return rc;
}

struct delete_waiter {
    struct bnf_service *service;
    bnf_done_cb cb;
    void *arg;
};

static void on_deleted(void *arg, int status)
{
    struct delete_waiter *d = arg;
    struct bnf_service *v = d->service;

    d->cb(d->arg, status);
    free(d);
    v->config.changed(v->config.arg);
}

int bnf_service_delete(struct bnf_service *v, const uint64_t *chunks, size_t count, bnf_done_cb cb, void *arg)
{
    struct delete_waiter *d = malloc(sizeof(*d));
    struct waiter *w = waiter_new(on_deleted, NULL, d);
    int rc = -ENOMEM;

    if (d && w) {
        *d = (struct delete_waiter){.service = v, .cb = cb, .arg = arg};
        rc = bnf_store_delete(v->store, chunks, count, (uintptr_t)w);
    }
    if (rc) {
        free(d);
        free(w);
    } else {
        service_pump(v);
    }
    return rc;
}

/* ---------------------------------------------------------------- life */

/* The page cache and a device's own cache live as long as the kernel; memory segments as long as we. */
static uint64_t unsynced_life(const struct bnf_service *v)
{
    uint64_t kept[2];
    struct bnf_backend *b = v->config.backend;

    if (FP_BUG("bnf-hides-a-boot"))
        return 1;
    if (b->ops->volatile_data)
        return v->incarnation;
    /* A sync that failed in a process before this one: mounts that have not heard of it yet must still do. */
    return b->ops->kept && b->ops->kept(b, kept) == 0 && kept[0] == v->boot ? kept[1] : v->boot;
}

int bnf_service_new(const struct bnf_service_config *c, struct bnf_service **out)
{
    struct bnf_store_config sc = {
        .capacity_bytes = c->capacity_bytes, .segment_bytes = c->segment_bytes, .salt_seed = c->random};
    struct bnf_service *v = calloc(1, sizeof(*v));
    int rc;

    if (!v)
        return -ENOMEM;
    v->config = *c;
    v->incarnation = c->random * 0x9e3779b97f4a7c15ull | 1;
    v->boot = fp_boot_number();
    v->boot = v->boot ? v->boot : v->incarnation;
    v->unsynced_life = unsynced_life(v);
    v->reads_tail = &v->reads_waiting;
    bnf_health_init(&v->health);
    rc = bnf_store_new(&sc, &v->store);
    if (rc == 0)
        rc = bnf_bufpool_init(&v->buffers, c->buffer_bytes);
    if (rc == 0)
        rc = bnf_disk_new(c->loop, c->threads, &v->disk);
    if (rc) {
        bnf_bufpool_fini(&v->buffers);
        bnf_store_free(v->store);
        free(v);
        return rc;
    }
    uv_timer_init(c->loop, &v->timer);
    v->timer.data = v;
    *out = v;
    return 0;
}

struct bnf_store *bnf_service_store(struct bnf_service *v)
{
    return v->store;
}

void bnf_service_found(void *service, uint32_t slot, struct bnf_file *f)
{
    if (set_file(service, slot, f)) {
        FP_ERROR("out of memory at start");
        abort();
    }
}

int bnf_service_start(struct bnf_service *v)
{
    int rc = bnf_store_start(v->store);

    if (rc)
        return rc;
    service_pump(v);
    on_tick(&v->timer);
    return uv_timer_start(&v->timer, on_tick, TICK_MS, TICK_MS);
}

void bnf_service_set_store_uuid(struct bnf_service *v, const uint8_t uuid[16])
{
    memcpy(v->config.store_uuid, uuid, 16);
}

const uint8_t *bnf_service_store_uuid(const struct bnf_service *v)
{
    return v->config.store_uuid;
}

const uint8_t *bnf_service_uuid(const struct bnf_service *v)
{
    return v->config.bnf_uuid;
}

uint64_t bnf_service_incarnation(const struct bnf_service *v)
{
    return v->incarnation;
}

uint64_t bnf_service_unsynced_life(const struct bnf_service *v)
{
    return v->unsynced_life;
}

static void drain_end(struct bnf_service *v, int status)
{
    uv_timer_stop(&v->timer);
    v->drained(v->drained_arg, status);
}

static void on_drain_synced(void *arg, int status)
{
    struct bnf_service *v = arg;

    if (status)
        FP_ERROR("data could not be synced at the end: %s", fp_strerror(status));
    v->drain_status = status;
    v->drain_synced = true;
}

static void drain_step(struct bnf_service *v)
{
    if (fp_now_ms() >= v->drain_until_ms) {
        drain_end(v, -ETIMEDOUT);
    } else if (bnf_disk_pending(v->disk) == 0 && v->drain_synced) {
        drain_end(v, v->drain_status);
    } else {
        service_pump(v);
    }
}

void bnf_service_drain(struct bnf_service *v, uint64_t timeout_ms, void (*done)(void *arg, int status),
                       void *arg)
{
    v->draining = true;
    v->drain_synced = false;
    v->drain_status = 0;
    v->drained = done;
    v->drained_arg = arg;
    v->drain_until_ms = fp_now_ms() + timeout_ms;
    if (bnf_service_sync(v, on_drain_synced, v))
        v->drain_synced = true;
    uv_timer_start(&v->timer, on_tick, 5, 5);
}

static void on_timer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void bnf_service_free(struct bnf_service *v)
{
    if (!v)
        return;
    bnf_disk_free(v->disk);
    bnf_store_free(v->store);
    bnf_bufpool_fini(&v->buffers);
    for (uint32_t i = 0; i < v->nfiles; i++)
        bnf_file_put(v->files[i]);
    free(v->files);
    uv_close((uv_handle_t *)&v->timer, on_timer_closed);
}
