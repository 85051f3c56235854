/* fp-manager: options, key, directory, database, loop; in this order, so that each mistake is found before
 * the next thing is touched; a start that is refused leaves nothing behind that was not there before. Exit: 0 ended as asked, 1 could not start (one line says why), 2 wrong usage. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fp/boot.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "fp/key.h"
#include "fp/jobsignals.h"
#include "fp/log.h"
#include "fp/readyfd.h"
#include "fp/uuid.h"
#include "manager/core.h"
#include "manager/options.h"
#include "manager/server.h"
#include "manager/storedir.h"

/* *made: the file was not there before. */
static int get_key(const struct mgr_options *o, struct fp_key **key, bool *made)
{
    char why[FP_KEY_WHY_MAX];
    int rc;

    if (o->create_key && access(o->key, F_OK) != 0 && errno == ENOENT) {
        struct fp_key *fresh;

        rc = fp_key_generate(&fresh);
        if (rc) {
            FP_ERROR("cannot make a key: %s", fp_strerror(rc));
            return rc;
        }
        rc = fp_key_write(fresh, o->key, why);
        fp_key_free(fresh);
        if (rc && rc != -EEXIST) {
            FP_ERROR("%s", why);
            return rc;
        }
        *made = rc == 0;
    }
    rc = fp_key_load(o->key, key, why);
    if (rc)
        FP_ERROR("%s%s", why, rc == -ENOENT ? "; --create-key makes one" : "");
    return rc;
}

static int open_core(const struct mgr_options *o, const char *db_path, struct mgr_core **core)
{
    struct mgr_core_opts co = {
        .session_timeout_ms = o->session_timeout_ms,
        .orphan_grace_ms = o->orphan_grace_ms,
        .bnf_timeout_ms = o->bnf_timeout_ms,
        .inodes_max = (uint64_t)o->inodes_max,
        .checkpoints_off = !o->checkpoints,
        .ckpt_quiet_ms = o->ckpt_quiet_ms,
        .ckpt_late_ms = o->ckpt_late_ms,
        .cache_bytes = o->cache_bytes,
        .aux_table_bytes = o->aux_table_bytes,
        .chunk_size_bytes = (uint32_t)o->chunk_size_bytes,
        .stripe = (uint32_t)o->stripe,
        .versions = o->versions,
        .root_uid = geteuid(),
        .root_gid = getegid(),
        .software = FP_VERSION,
        .boot = fp_boot_number(),
    };
    struct mgr_now now = {.ms = fp_now_ms(), .ns = fp_wall_ns()};
    struct fp_uuid uuid;
    char why[MGR_DB_WHY_MAX];
    int rc;

    fp_uuid_generate(&uuid);
    memcpy(co.store_uuid, uuid.b, sizeof co.store_uuid);
    fp_uuid_generate(&uuid);
    memcpy(&co.new_life, uuid.b, sizeof co.new_life);
    rc = mgr_core_new(core, db_path, &co, now, why);
    if (rc)
        FP_ERROR("%s", why);
    return rc;
}

static void raise_limits(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        setrlimit(RLIMIT_NOFILE, &r);
    }
}

static int serve(const struct mgr_options *o, const struct fp_key *key, struct mgr_core *core,
                 const char *db_path)
{
    const char *host = o->listen.host;
    char addr[sizeof o->listen.host + 16];
    struct mgr_server_opts so = {
        .listen = addr, .key = key, .ready_fd = (int)o->ready_fd, .db_path = db_path, .ignore_term = o->ignore_term};

    snprintf(addr, sizeof addr, strchr(host, ':') ? "[%s]:%u" : "%s:%u", host, o->listen.port);
    return mgr_server_run(core, &so);
}

int main(int argc, char **argv)
{
    static struct mgr_options o;
    struct fp_key *key = NULL;
    struct mgr_core *core = NULL;
    char db_path[4096] = "";
    bool made_key = false;
    int rc;

    fp_log_init("fp-manager", FP_LOG_INFO);
    mgr_options_parse(&o, argc, argv);
    if (o.ignore_term)
        fp_job_signals_ignore(true);
    fp_log_set_level((enum fp_log_level)o.log_level);
    fp_fault_init();
    if (o.ready_fd >= 0 && fp_ready_check((int)o.ready_fd)) {
        FP_ERROR("--ready-fd %d is not open for writing", (int)o.ready_fd);
        return 1;
    }
    raise_limits();
    umask(077);
    rc = get_key(&o, &key, &made_key);
    rc = rc ? rc : mgr_storedir_take(o.dir, db_path, sizeof db_path);
    rc = rc ? rc : open_core(&o, db_path, &core);
    rc = rc ? rc : serve(&o, key, core, db_path);
    if (core) {
        int err = mgr_core_ended(core);

        err = err ? err : mgr_db_checkpoint(mgr_core_db(core), true);

        if (err)
            FP_WARN("the WAL could not be written back (%s): it is kept and read at the next start",
                    fp_strerror(err));
        mgr_core_free(core);
    }
    if (rc) { /* it has not served anybody */
        mgr_storedir_undo(o.dir, db_path);
        if (made_key)
            unlink(o.key);
    }
    fp_key_free(key);
    if (!rc)
        FP_INFO("stopped");
    return rc ? 1 : 0;
}
