/*
 * fp-benefactor: contributes space of this node to a store.
 *
 * One loop thread owns everything but the blocking calls, which disk threads make. Order of the start:
 * directory and key, the listening sockets (so that a port taken is told at once), recovery, the manager;
 * nothing is served before the manager has said which store this is. SIGTERM and SIGINT, or the manager: no
 * new work, finish what runs, sync, goodbye, exit 0 within 5 s. Being killed at any moment loses nothing that
 * was acknowledged: everything is in the segments.
 *
 * Start-up mistakes are one line each and exit 1; mistakes in options exit 2.
 */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "benefactor/drain.h"
#include "benefactor/identity.h"
#include "benefactor/local.h"
#include "benefactor/manager_link.h"
#include "benefactor/options.h"
#include "benefactor/recover.h"
#include "benefactor/remote.h"
#include "benefactor/service.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "fp/jobsignals.h"
#include "fp/key.h"
#include "fp/log.h"
#include "fp/readyfd.h"
#include "fp/rpc.h"
#include "fp/units.h"

#define DRAIN_MS        3000u
#define CLOSE_MS        1000u
#define AHEAD_BYTES     FP_MIB(128)
#define RECOVER_THREADS 8u
#define DRAIN_GIVE_UP_MS 600000u /* a call of a target that takes longer: its fp-drain is left behind */

static struct {
    struct bnf_options opt;
    struct bnf_dir dir;
    struct fp_key *key;
    uv_loop_t loop;
    uv_signal_t signals[3];
    struct fp_rpc *rpc;
    struct bnf_backend *backend;
    struct bnf_service *service;
    struct bnf_drain *drain;
    char drain_program[4200];
    struct bnf_remote *remote;
    struct bnf_local *local;
    struct bnf_manager_link *manager;
    char local_path[4200];
    bool stopping;
    int exit_code;
} self;

static uint32_t bnf_id(void *arg)
{
    (void)arg;
    return self.manager ? bnf_manager_link_id(self.manager) : 0;
}

/* ---------------------------------------------------------------- the end */

static void on_rpc_closed(void *arg)
{
    (void)arg;
    bnf_remote_free(self.remote);
    bnf_manager_link_free(self.manager);
    bnf_drain_free(self.drain);
    bnf_service_free(self.service);
    self.service = NULL;
    for (int i = 0; i < 3; i++)
        uv_close((uv_handle_t *)&self.signals[i], NULL);
}

static void take_status(int status)
{
    if (status)
        self.exit_code = 1;
    if (status != -ETIMEDOUT)
        return;
    FP_ERROR(
        "a disk operation does not end: leaving without it; all that was acknowledged as synced is safe");
    _exit(1);
}

/* The rests of the leases are given back. */
static void on_closed_and_drained(void *arg, int status)
{
    (void)arg;
    take_status(status);
    bnf_manager_link_stop(self.manager);
    fp_rpc_close(self.rpc, on_rpc_closed, NULL);
}

static void on_local_closed(void *arg)
{
    (void)arg;
    bnf_service_drain(self.service, CLOSE_MS, on_closed_and_drained, NULL);
}

/* What was under way is done and answered: connections may go, and their leases with them. */
static void on_drained(void *arg, int status)
{
    (void)arg;
    take_status(status);
    bnf_remote_stop(self.remote);
    if (self.local)
        bnf_local_free(self.local, on_local_closed, NULL);
    else
        on_local_closed(NULL);
}

static void stop(void *arg)
{
    (void)arg;
    if (self.stopping)
        return;
    self.stopping = true;
    bnf_drain_stop(self.drain);
    bnf_service_drain(self.service, DRAIN_MS, on_drained, NULL);
}

static void on_signal(uv_signal_t *handle, int signum)
{
    (void)handle;
    if (!fp_job_signal_ends(signum, self.opt.ignore_term))
        return;
    if (!self.stopping)
        FP_INFO("ending: %s", signum == SIGTERM ? "SIGTERM" : signum == SIGINT ? "SIGINT" : "told by its agent");
    stop(NULL);
}

static void on_failed(void *arg)
{
    (void)arg;
    self.exit_code = 1;
    stop(NULL);
}

/* ---------------------------------------------------------------- the store */

static void on_changed(void *arg)
{
    (void)arg;
    if (self.manager && !self.stopping)
        bnf_manager_link_news(self.manager);
}

static void on_pressed(void *arg, bool pressed)
{
    (void)arg;
    bnf_remote_press(self.remote, pressed);
}

static int check_size(void)
{
    char want[FP_UNITS_BUF], have[FP_UNITS_BUF], held[FP_UNITS_BUF];
    struct bnf_space sp;
    uint64_t device = 0;
    int rc = self.backend->ops->device_free(self.backend, &device);

    bnf_store_space(bnf_service_store(self.service), &sp);
    if (rc || device + sp.used_bytes >= self.opt.size_bytes) {
        if (sp.used_bytes > self.opt.size_bytes)
            FP_WARN("%s are stored, more than --size %s: no new data is taken until some is deleted",
                    fp_format_size(held, sp.used_bytes), fp_format_size(want, self.opt.size_bytes));
        return 0;
    }
    FP_ERROR("--size %s is more than there is: %s %s are free and %s are stored already; give at most --size "
             "%" PRIu64 "MiB",
             fp_format_size(want, self.opt.size_bytes),
             self.opt.backend.kind == FP_BACKEND_MEMORY ? "in memory" : "in the file system of --dir",
             fp_format_size(have, device), fp_format_size(held, sp.used_bytes),
             (device + sp.used_bytes) >> 20);
    return -ENOSPC;
}

static int recover(void)
{
    struct bnf_recover_config c = {.backend = self.backend,
                                   .dir_fd = self.dir.segments_fd,
                                   .store_uuid = self.dir.store.b,
                                   .bnf_uuid = self.dir.bnf.b,
                                   .threads = RECOVER_THREADS,
                                   .found = bnf_service_found,
                                   .arg = self.service};
    struct bnf_recover_result r;
    uint64_t began_ms = fp_now_ms();
    char size[FP_UNITS_BUF];
    int rc;

    if (self.opt.backend.kind != FP_BACKEND_DIR || !self.dir.known)
        return 0;
    rc = bnf_recover(&c, bnf_service_store(self.service), &r);
    if (rc) {
        FP_ERROR("%s/segments can't be read: %s", self.opt.dir, fp_strerror(rc));
        return rc;
    }
    if (r.segments || r.set_aside)
        FP_INFO("recovered %" PRIu64 " chunks, %s, from %" PRIu64 " segments in %" PRIu64 " ms (%" PRIu64
                " torn places, %" PRIu64 " second copies, %" PRIu64 " segments set aside)",
                r.records, fp_format_size(size, r.bytes), r.segments, fp_now_ms() - began_ms, r.torn,
                r.duplicates, r.set_aside);
    return 0;
}

/* What waits for an emulated device is no more than it does in a second: reads come behind it, and have to be in time. */
static uint64_t buffer_bytes(void)
{
    uint64_t most = self.opt.backend.speed.write_bps > FP_MIB(20) ? self.opt.backend.speed.write_bps : FP_MIB(20);

    return self.opt.backend.speed.write_bps && most < self.opt.buffer_bytes ? most : self.opt.buffer_bytes;
}

static int make_service(void)
{
    struct bnf_service_config c = {.loop = &self.loop,
                                   .backend = self.backend,
                                   .threads = (unsigned)self.opt.threads,
                                   .device_timeout_ms = self.opt.device_timeout_ms,
                                   .buffer_bytes = buffer_bytes(),
                                   .capacity_bytes = self.opt.size_bytes,
                                   .segment_bytes = self.opt.segment_bytes,
                                   .buffers = self.opt.backend.buffers,
                                   .changed = on_changed,
                                   .pressed = on_pressed};
    int rc;

    memcpy(c.store_uuid, self.dir.store.b, 16);
    memcpy(c.bnf_uuid, self.dir.bnf.b, 16);
    if (getrandom(&c.random, sizeof(c.random), 0) != sizeof(c.random))
        return -EIO;
    rc = bnf_service_new(&c, &self.service);
    if (rc)
        FP_ERROR("the service can't be started: %s", fp_strerror(rc));
    return rc;
}

static int open_store(void)
{
    int rc = self.opt.backend.kind == FP_BACKEND_MEMORY
                 ? bnf_backend_memory_new(AHEAD_BYTES, &self.backend)
                 : bnf_backend_dir_new(self.dir.segments_fd, &self.backend);

    if (rc == 0 && self.opt.backend.emulated)
        rc = bnf_backend_emulate(self.backend, &self.opt.backend.speed);
    if (rc) {
        FP_ERROR("the back end can't be started: %s", fp_strerror(rc));
        return rc;
    }
    rc = make_service();
    if (rc == 0)
        rc = recover();
    return rc ? rc : check_size();
}

/* ---------------------------------------------------------------- draining */

static void on_results(void *arg)
{
    (void)arg;
    if (self.manager && !self.stopping)
        bnf_manager_link_results(self.manager);
}

/* Where it is installed, or was built: beside us. */
static const char *drain_program(void)
{
    ssize_t n = readlink("/proc/self/exe", self.drain_program, sizeof(self.drain_program) - 32);
    char *slash;

    self.drain_program[n > 0 ? n : 0] = '\0';
    slash = strrchr(self.drain_program, '/');
    strcpy(slash ? slash + 1 : self.drain_program, "fp-drain");
    return self.drain_program;
}

static int open_drain(void)
{
    struct bnf_drain_config c = {.loop = &self.loop,
                                 .service = self.service,
                                 .auxapps = (const char *const *)self.opt.auxapps.items,
                                 .nauxapps = self.opt.auxapps.count,
                                 .plugin_dir = self.opt.auxapp_dir,
                                 .program = self.opt.drain_program ? self.opt.drain_program : drain_program(),
                                 .target_timeout_ms = self.opt.target_timeout_ms,
                                 .give_up_ms = DRAIN_GIVE_UP_MS,
                                 .max_rate = self.opt.drain_max,
                                 .threads = (uint32_t)self.opt.drain_threads,
                                 .on = self.opt.drain,
                                 .bnf_id = bnf_id,
                                 .results = on_results,
                                 .changed = on_changed};

    return bnf_drain_new(&c, &self.drain);
}

/* ---------------------------------------------------------------- the network */

static int open_network(void)
{
    const char *listen = self.opt.listen.text;
    struct fp_rpc_opts opts = {.key = self.key,
                               .store_uuid = self.dir.known ? self.dir.store.b : NULL,
                               .plain = !self.opt.data_encryption,
                               .requests_max = 64};
    int rc = fp_rpc_new(&self.loop, &opts, &self.rpc);

    if (rc) {
        FP_ERROR("the network can't be set up: %s", fp_strerror(rc));
        return rc;
    }
    rc = bnf_remote_new(self.rpc, listen, bnf_id, NULL, &self.remote);
    if (rc == -EADDRINUSE)
        FP_ERROR("--listen %s: the port is taken; choose another, or 0 for any free one", listen);
    else if (rc == FP_ENOHOST)
        FP_ERROR("--listen %s: the host name %s cannot be resolved; give an address of this node", listen,
                 self.opt.listen.host);
    else if (rc == -EADDRNOTAVAIL)
        FP_ERROR("--listen %s: this node does not have that address", listen);
    else if (rc)
        FP_ERROR("--listen %s: %s", listen, fp_strerror(rc));
    return rc;
}

/* Serves mounts of this node and others; the store is known. */
static int serve(void)
{
    int rc = bnf_service_start(self.service);

    if (rc == 0)
        rc = bnf_local_new(&self.loop, self.local_path, self.service, bnf_id, NULL, &self.local);
    if (rc)
        FP_ERROR("%s: %s", self.local_path, fp_strerror(rc));
    else
        bnf_remote_serve(self.remote, self.service);
    bnf_remote_fetches(self.remote, self.drain);
    return rc;
}

static int on_registered(void *arg, const uint8_t store_uuid[16], uint32_t id)
{
    char text[FP_UUID_BUF], addr[FP_ADDR_TEXT_BUF], size[FP_UNITS_BUF];
    struct fp_uuid uuid;
    int rc = 0;

    (void)arg;
    if (self.stopping) /* told to end while the manager thought about it: the port is closed already, or about to be */
        return FP_ECANCELLED;
    memcpy(uuid.b, store_uuid, 16);
    if (self.dir.known && !fp_uuid_equal(&self.dir.store, &uuid)) {
        FP_ERROR("--dir %s belongs to another store (%s): check --manager, or give another directory",
                 self.opt.dir, fp_uuid_format(text, &self.dir.store));
        rc = FP_EUUID;
    } else if (!self.dir.known) {
        rc = bnf_dir_claim(&self.dir, store_uuid);
        bnf_service_set_store_uuid(self.service, store_uuid);
        fp_rpc_set_uuid(self.rpc, store_uuid);
    }
    if (rc == 0)
        rc = serve();
    if (rc) {
        on_failed(NULL);
        return rc;
    }
    const char *host = self.opt.advertise ? self.opt.advertise : self.opt.listen.host;

    snprintf(addr, sizeof(addr), strchr(host, ':') && host[0] != '[' ? "[%s]:%u" : "%s:%u", host, bnf_remote_port(self.remote));
    FP_INFO("benefactor %" PRIu32 " of store %s: %s in %s (%s), node %s, data port %s", id,
            fp_uuid_format(text, &uuid), fp_format_size(size, self.opt.size_bytes), self.opt.dir,
            bnf_backend_name(self.backend), self.opt.node, addr);
    if (fp_ready_write((int)self.opt.ready_fd, addr))
        FP_WARN("--ready-fd %" PRId64 " could not be written", self.opt.ready_fd);
    return 0;
}

static int connect_manager(void)
{
    struct bnf_manager_config c = {.loop = &self.loop,
                                   .rpc = self.rpc,
                                   .service = self.service,
                                   .drain = self.drain,
                                   .manager = self.opt.manager.text,
                                   .node = self.opt.node,
                                   .advertise = self.opt.advertise,
                                   .port = bnf_remote_port(self.remote),
                                   .local_path = self.local_path,
                                   .backend = bnf_backend_name(self.backend),
                                   .start_timeout_ms = self.opt.start_timeout_ms,
                                   .registered = on_registered,
                                   .failed = on_failed,
                                   .stop = stop};
    const char *host = self.opt.listen.host;

    if (!c.advertise && strcmp(host, "0.0.0.0") && strcmp(host, "::") && *host)
        c.advertise = host;
    return bnf_manager_link_new(&c, &self.manager);
}

/* ---------------------------------------------------------------- start */

static void prepare_process(void)
{
    struct rlimit files;

    if (self.opt.ncpus && sched_setaffinity(0, sizeof(self.opt.cpus), &self.opt.cpus))
        FP_WARN("--cores: %s", strerror(errno));
    signal(SIGPIPE, SIG_IGN);
    if (self.opt.ignore_term)
        fp_job_signals_ignore(true);
    umask(077);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max; /* one descriptor per segment */
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

static int start(void)
{
    char why[FP_KEY_WHY_MAX];
    int rc = fp_key_load(self.opt.key, &self.key, why);

    if (rc) {
        FP_ERROR("%s", why);
        return rc;
    }
    rc = bnf_dir_open(self.opt.dir, &self.dir);
    if (rc)
        return rc;
    snprintf(self.local_path, sizeof(self.local_path), "%s/local.sock", self.opt.dir);
    uv_loop_init(&self.loop);
    static const int signums[3] = {SIGTERM, SIGINT, FP_SIGNAL_END};
    for (int i = 0; i < 3; i++) {
        uv_signal_init(&self.loop, &self.signals[i]);
        uv_signal_start(&self.signals[i], on_signal, signums[i]);
    }
    rc = open_network();
    if (rc == 0)
        rc = open_store();
    if (rc == 0)
        rc = open_drain();
    return rc ? rc : connect_manager();
}

int main(int argc, char **argv)
{
    fp_log_init("fp-benefactor", FP_LOG_INFO);
    bnf_options_parse(&self.opt, argc, argv);
    fp_log_set_level((enum fp_log_level)self.opt.log_level);
    fp_fault_init();
    if (fp_ready_check((int)self.opt.ready_fd)) {
        FP_ERROR("--ready-fd %" PRId64 " is not open for writing", self.opt.ready_fd);
        return 2;
    }
    prepare_process();
    if (start()) {
        bnf_dir_undo(&self.dir);
        return 1; /* said above; nothing was served yet */
    }
    uv_run(&self.loop, UV_RUN_DEFAULT);
    uv_loop_close(&self.loop);
    bnf_backend_free(self.backend);
    bnf_dir_undo(&self.dir); /* never claimed: no manager was reached */
    bnf_dir_close(&self.dir);
    fp_key_free(self.key);
    return self.exit_code;
}
