/* fp-store: a whole store on this machine, for trying out and for tests.
 *
 * up starts a manager, some benefactors and a mount, all below one directory, and returns when the mount can be used; down
 * stops them and leaves nothing behind; status says what runs. It is a supervisor that does not stay: what it needs to know
 * later is in DIR/fp-store.json, and programs are named by pid and start time, so that a crash or a reboot in between can be
 * told from a store that is up. Several stores at once are several directories.
 *
 * Exit codes: 0, 1 when it failed (status: not everything is up), 2 for a mistake in the call. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/store/store.h"
#include "fp/backend.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "fp/log.h"

static const char *const commands[] = {"up", "down", "status", NULL};

static const char *check_backend(const char *text)
{
    static char why[FP_BACKEND_WHY_BUF];
    struct fp_backend_spec spec;

    return fp_backend_parse(text, &spec, why) ? why : NULL;
}

static const struct fp_opt options[] = {
    FP_OPT_ENUM(struct store_options, command, "command", NULL, commands,
                "Start the store; stop it and remove its data; or say what of it runs.",
                .flags = FP_OPT_POSITIONAL | FP_OPT_REQUIRED | FP_OPT_NO_FILE, .arg = "up|down|status"),
    FP_OPT_PATH(struct store_options, dir, "dir", NULL,
                "Directory of the store: data, key, logs. By default /var/tmp/fpstore-UID.", .arg = "DIR"),
    FP_OPT_PATH(struct store_options, mount, "mount", NULL,
                "Directory to mount it on; created if need be. By default /AggregateSSDstore for root, "
                "$HOME/AggregateSSDstore for others; of a store that was kept, where it was.",
                .arg = "MNT"),
    FP_OPT_INT(struct store_options, benefactors, "benefactors", "4", 1, STORE_BENEFACTORS_MAX,
               "How many benefactors to start. A store that was kept has as many as it had."),
    FP_OPT_SIZE(struct store_options, size_bytes, "size", "1GiB", FP_MIB(64), FP_TIB(1024),
                "What each benefactor contributes. By default, what it did when the store was kept."),
    FP_OPT_STRING(struct store_options, backend, "backend", "dir",
                  "Where benefactors keep chunks: dir, in files below DIR; memory; or on an emulated device each, such as emulated:x25e: see fp-benefactor(8).",
                  .arg = "KIND", .check = check_backend),
    FP_OPT_INT(struct store_options, mounts, "mounts", "1", 1, STORE_MOUNTS_MAX,
               "How many mounts of the store; those after the first are at MNT-2, MNT-3, and so on."),
    FP_OPT_SIZE(struct store_options, pool_bytes, "pool", "512MiB", FP_MIB(16), FP_TIB(4),
                "Memory for chunks of each mount. This and what follows, too: by default, what it was when the store was kept."),
    FP_OPT_CLOSE(struct store_options, close),
    FP_OPT_STRING(struct store_options, cores, "cores", NULL, "Service cores of each mount, such as 0,2-5.", .arg = "LIST"),
    FP_OPT_LIST(struct store_options, auxapps, "auxapp", NULL, STORE_AUXAPPS_MAX,
                "Run an aux-app on each mount, as fp-mount --auxapp does: \"dedup hash=sha1\". Given again for each.",
                .flags = FP_OPT_WHOLE, .arg = "TEXT"),
    FP_OPT_SIZE(struct store_options, chunk_size_bytes, "chunk-size", NULL, FP_KIB(64), FP_MIB(16),
                "Chunk size of new files. By default, the manager's."),
    FP_OPT_INT(struct store_options, stripe, "stripe", "0", 0, 64,
               "Over how many benefactors to spread the chunks of a new file. 0: the manager's default."),
    FP_OPT_DURATION(struct store_options, grace_ms, "grace", "10s", 100, FP_HOUR_MS(1),
                    "With down: how long a program may take to end before it is killed."),
    FP_OPT_BOOL(struct store_options, keep, "keep", "off",
                "With down: leave data and key in DIR, for the next up.", .flags = FP_OPT_NO_FILE),
    FP_OPT_BOOL(struct store_options, force, "force", "off",
                "With down --keep: stop also when that loses what mounts have not written out.", .flags = FP_OPT_NO_FILE),
    FP_OPT_BOOL(struct store_options, json, "json", "off", "With status: print one JSON object.",
                .flags = FP_OPT_NO_FILE),
    FP_OPT_DATA_ENCRYPTION(struct store_options, data_encryption),
    FP_OPT_LOG_LEVEL(struct store_options, log_level),
    FP_OPT_END,
};

static const struct fp_opt_table table = {
    .prog = "fp-store",
    .section = "store",
    .summary = "Start a whole fpstore on this machine (manager, benefactors, mount), and stop it.",
    .opts = options,
};

/* As the table of mounts has it: without symbolic links, // and a slash at the end. The mountpoint itself is not looked at
 * by stat(2), which would wait for the fp-mount of a store that hangs. What cannot be resolved stays as it is: up says why. */
static const char *canonical(const char *path)
{
    static char out[PATH_MAX];
    char parent[PATH_MAX], link[2];
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    size_t base = len;
    while (base > 0 && path[base - 1] != '/')
        base--;
    snprintf(out, sizeof out, "%.*s", (int)len, path);
    bool dots = (len - base == 1 && path[base] == '.') || (len - base == 2 && strncmp(path + base, "..", 2) == 0);
    if (len <= 1 || dots || readlink(out, link, sizeof link) > 0) {
        char *real = realpath(path, NULL);
        snprintf(out, sizeof out, "%s", real ? real : path);
        free(real);
        return out;
    }
    snprintf(parent, sizeof parent, "%.*s", (int)base, path);
    char *real = realpath(parent, NULL);
    if (real)
        snprintf(out, sizeof out, "%s%s%.*s", real, strcmp(real, "/") == 0 ? "" : "/", (int)(len - base), path + base);
    free(real);
    return out;
}

#define GIVEN(option, field) {option, offsetof(struct store_options, field)}

static void defaults(struct store_options *o, const struct fp_opts *opts)
{
    static const struct { const char *option; size_t at; } given[] = {
        GIVEN("benefactors", benefactors_given), GIVEN("size", size_given), GIVEN("backend", backend_given), GIVEN("mounts", mounts_given),
        GIVEN("pool", pool_given), GIVEN("cores", cores_given), GIVEN("auxapp", auxapps_given), GIVEN("chunk-size", chunk_size_given),
        GIVEN("stripe", stripe_given), GIVEN("data-encryption", data_encryption_given), GIVEN("close", close_given),
    };
    static char dir[64], mount[PATH_MAX];
    const char *home = getenv("HOME");
    o->dir_default = !o->dir;
    o->mount_given = o->mount != NULL;
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        const char *source = fp_opts_source(opts, given[i].option);
        *(bool *)((char *)o + given[i].at) = strcmp(source, "default") != 0 && strcmp(source, "unset") != 0;
    }
    if (!o->dir) {
        snprintf(dir, sizeof dir, "/var/tmp/fpstore-%u", (unsigned)geteuid());
        o->dir = dir;
    }
    if (!o->mount) {
        snprintf(mount, sizeof mount, "%s/AggregateSSDstore", geteuid() == 0 || !home ? "" : home);
        o->mount = mount;
    }
    o->mount = canonical(o->mount);
}

int main(int argc, char **argv)
{
    static int (*const functions[])(const struct store_options *) = {store_up, store_down, store_status};
    static struct store_options o;
    fp_log_init("fp-store", FP_LOG_INFO);
    struct fp_opts *opts = fp_opt_parse_or_exit(&table, &o, argc, argv);
    fp_log_set_level((enum fp_log_level)o.log_level);
    defaults(&o, opts);
    int rc = functions[o.command](&o);
    fp_opts_free(opts);
    return rc == 0 ? 0 : 1;
}
