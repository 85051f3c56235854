/* fp-store up.
 *
 * In order: what a crash has left is cleared away, room is checked, key and directories are made; then the manager, whose
 * ready line is the address the others need; then all benefactors at once; then the mounts. Whatever fails, or a Ctrl-C, stops
 * what was started, and removes the files of a store that did not exist before; data of an earlier store is never removed here.
 *
 * A store that is up is left alone, and said so: scripts may call up without asking first. What of it has died is started again
 * (revive.c), as it was. Only what is asked for in so many words and is not so, such as another mountpoint, is an error. */
#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/store/store.h"
#include "fp/beside.h"
#include "fp/clock.h"
#include "fp/command.h"
#include "fp/err.h"

#define ARG_BUF      (PATH_MAX + 64)
#define STATUS_BYTES (256u << 10)
#define STATUS_MS    5000u
#define CLOSE_ARG    "--close="

/* Arguments under construction; text lives here. */
struct args {
    unsigned n;
    char text[16 + STORE_AUXAPPS_MAX][ARG_BUF];
    char *argv[17 + STORE_AUXAPPS_MAX];
};

static void arg(struct args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void arg(struct args *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(a->text[a->n], ARG_BUF, fmt, ap);
    va_end(ap);
    a->argv[a->n] = a->text[a->n];
    a->argv[++a->n] = NULL;
}

static void common_args(struct args *a, const struct store_options *o, const struct store_state *s, bool data)
{
    a->n = 0;
    arg(a, "--key=%s", s->key);
    arg(a, "--log-level=%s", fp_log_level_names[o->log_level]);
    if (data && !o->data_encryption) /* the manager has no data connections */
        arg(a, "--data-encryption=off");
}

static struct store_proc *add_proc(struct store_state *s, enum store_role role, unsigned index)
{
    struct store_proc *p = &s->procs[s->count++];
    memset(p, 0, sizeof *p);
    p->role = role;
    p->index = index;
    p->ready_fd = -1;
    return p;
}

static int start_manager(const struct store_options *o, struct store_state *s)
{
    static struct args a;
    char dir[PATH_MAX], size[FP_UNITS_BUF];
    struct store_proc *p = add_proc(s, STORE_MANAGER, 1);
    int rc = store_path(o, dir, "manager");
    if (rc == 0)
        rc = store_mkdir(dir, NULL);
    if (rc < 0)
        return rc;
    common_args(&a, o, s, false);
    arg(&a, "--dir=%s", dir);
    arg(&a, "--listen=127.0.0.1:0");
    if (o->chunk_size_bytes)
        arg(&a, "--chunk-size=%s", fp_format_size_exact(size, o->chunk_size_bytes));
    if (o->stripe)
        arg(&a, "--stripe=%lld", (long long)o->stripe);
    rc = store_proc_start(o, p, a.argv);
    if (rc == 0)
        rc = store_proc_wait_ready(o, p, fp_now_ms() + STORE_READY_MS, s->manager, sizeof s->manager);
    return rc < 0 ? rc : store_state_save(o, s);
}

static int start_benefactor(const struct store_options *o, struct store_state *s, unsigned i)
{
    static struct args a;
    char dir[PATH_MAX], size[FP_UNITS_BUF];
    int rc = store_path(o, dir, "benefactor-%u", i);
    if (rc == 0)
        rc = store_mkdir(dir, NULL);
    if (rc < 0)
        return rc;
    common_args(&a, o, s, true);
    arg(&a, "--manager=%s", s->manager);
    arg(&a, "--dir=%s", dir);
    arg(&a, "--size=%s", fp_format_size_exact(size, o->size_bytes));
    arg(&a, "--backend=%s", o->backend);
    arg(&a, "--listen=127.0.0.1:0");
    return store_proc_start(o, add_proc(s, STORE_BENEFACTOR, i), a.argv);
}

static int start_mount(const struct store_options *o, struct store_state *s, unsigned i)
{
    static struct args a;
    char size[FP_UNITS_BUF];
    struct store_proc *p = add_proc(s, STORE_MOUNT, i);
    if (i == 1)
        snprintf(p->mountpoint, sizeof p->mountpoint, "%s", o->mount);
    else if (snprintf(p->mountpoint, sizeof p->mountpoint, "%s-%u", o->mount, i) >= PATH_MAX)
        return -ENAMETOOLONG;
    int rc = store_mkdir(p->mountpoint, &p->made_mountpoint);
    if (rc < 0)
        return rc;
    if (p->made_mountpoint && chmod(p->mountpoint, 0755) < 0)
        FP_WARN("%s: %s", p->mountpoint, fp_strerror(-errno));
    common_args(&a, o, s, true);
    arg(&a, "--manager=%s", s->manager);
    arg(&a, "--pool=%s", fp_format_size_exact(size, o->pool_bytes));
    if (o->close_given) /* else fp.conf may say it to fp-mount */
        arg(&a, CLOSE_ARG "%s", fp_close_names[o->close]);
    if (o->cores)
        arg(&a, "--cores=%s", o->cores);
    for (size_t k = 0; k < o->auxapps.count; k++)
        arg(&a, "--auxapp=%s", o->auxapps.items[k]);
    arg(&a, "--foreground");
    arg(&a, "--mountpoint=%s", p->mountpoint);
    return store_proc_start(o, p, a.argv);
}

/* All of a role that were started: ready, or the first failure. */
static int wait_ready(const struct store_options *o, struct store_state *s, enum store_role role)
{
    char line[PATH_MAX];
    uint64_t until = fp_now_ms() + STORE_READY_MS;
    int rc = store_state_save(o, s);
    for (unsigned i = 0; i < s->count && rc == 0; i++) {
        if (s->procs[i].role == role)
            rc = store_proc_wait_ready(o, &s->procs[i], until, line, sizeof line);
    }
    return rc;
}

static int start_all(const struct store_options *o, struct store_state *s, unsigned benefactors)
{
    char log[PATH_MAX];
    int rc = store_path(o, log, "log");
    if (rc == 0)
        rc = store_mkdir(log, NULL);
    if (rc == 0)
        rc = store_make_key(o, s->key);
    if (rc == 0)
        rc = start_manager(o, s);
    for (unsigned i = 1; i <= benefactors && rc == 0; i++)
        rc = start_benefactor(o, s, i);
    if (rc == 0)
        rc = wait_ready(o, s, STORE_BENEFACTOR);
    for (unsigned i = 1; i <= o->mounts && rc == 0; i++)
        rc = start_mount(o, s, i);
    return rc < 0 ? rc : wait_ready(o, s, STORE_MOUNT);
}

static unsigned count_role(const struct store_state *s, enum store_role role)
{
    unsigned n = 0;
    for (unsigned i = 0; i < s->count; i++)
        n += s->procs[i].role == role;
    return n;
}

/* What a mount was told; NULL: nothing by us. Earlier versions of fp-store knew of the environment variable alone. */
static const char *close_told(const struct store_options *o, const struct store_proc *mount)
{
    for (size_t i = 0; i < json_array_size(mount->args); i++) {
        const char *text = json_string_value(json_array_get(mount->args, i));
        if (text && strncmp(text, CLOSE_ARG, strlen(CLOSE_ARG)) == 0)
            return text + strlen(CLOSE_ARG);
    }
    return store_shape_variable(o, "FP_CLOSE");
}

static json_t *status_of(const struct store_state *s)
{
    static const char *const tails[] = {"fpctl", NULL};
    static char out[STATUS_BYTES];
    char program[PATH_MAX], manager[sizeof s->manager + 16], key[PATH_MAX + 8];
    if (!fp_beside(program, sizeof program, tails))
        return NULL;
    snprintf(manager, sizeof manager, "--manager=%s", s->manager);
    snprintf(key, sizeof key, "--key=%s", s->key);
    char *argv[] = {program, "status", "--json", "--config=", manager, key, "--timeout=3s", NULL};
    return fp_command(argv, STATUS_MS, out, sizeof out) == 0 ? json_loads(out, 0, NULL) : NULL;
}

/* What a mount says itself, to which fp.conf may have said it; the default if it says nothing. Lasts as long as *status. */
static const char *close_said(const struct store_proc *mount, const json_t *status)
{
    const char *word = NULL;
    json_t *one;
    size_t i;
    json_array_foreach(json_object_get(status, "mounts"), i, one) {
        const char *at = json_string_value(json_object_get(one, "mountpoint")), *said = json_string_value(json_object_get(one, "close"));
        if (at && said && said[0] && json_is_true(json_object_get(one, "connected")) && strcmp(at, mount->mountpoint) == 0)
            word = said;
    }
    return word ? word : fp_close_names[0];
}

static bool closes_so(const struct store_options *o, const struct store_state *s, const struct store_proc *mount, const char *word)
{
    const char *told = close_told(o, mount);
    if (told)
        return strcmp(told, word) == 0;
    json_t *status = status_of(s);
    bool so = strcmp(close_said(mount, status), word) == 0;
    json_decref(status);
    return so;
}

/* Nobody is to rely on a close that waits where none does. */
static int same_close(const struct store_options *o, const struct store_state *s, const struct store_proc *mount, const char *at)
{
    if (!o->close_given || !mount || closes_so(o, s, mount, fp_close_names[o->close]))
        return 0;
    FP_ERROR("the store in %s is up already, at %s, and does not close as --close=%s says: stop it first (fp-store down --keep --dir=%s), leave --close and "
             "FP_CLOSE out, or mount it a second time (fp-mount --manager=%s --key=%s --close=%s DIRECTORY)",
             o->dir, at, fp_close_names[o->close], o->dir, s->manager, s->key, fp_close_names[o->close]);
    return -EBUSY;
}

/* The store of s is up, or most of it: is it the one that is asked for? 0, or a negative code after a line. *at: where it is mounted. */
static int same_store(const struct store_options *o, const struct store_state *s, const char **where)
{
    const struct store_proc *first = NULL;
    unsigned benefactors = count_role(s, STORE_BENEFACTOR), mounts = count_role(s, STORE_MOUNT);
    for (unsigned i = 0; i < s->count && !first; i++) {
        if (s->procs[i].role == STORE_MOUNT && s->procs[i].index == 1)
            first = &s->procs[i];
    }
    const char *at = *where = first ? first->mountpoint : o->dir;
    if (o->mount_given && strcmp(at, o->mount) != 0) {
        FP_ERROR("the store in %s is up already, at %s, and is not mounted on %s: use it there, stop it first (fp-store down "
                 "--keep --dir=%s), or mount it a second time (fp-mount --manager=%s --key=%s %s)",
                 o->dir, at, o->mount, o->dir, s->manager, s->key, o->mount);
        return -EBUSY;
    }
    if ((o->benefactors_given && o->benefactors != benefactors) || (o->mounts_given && o->mounts != mounts)) {
        FP_ERROR("the store in %s is up already, at %s, with %u benefactor%s and %u mount%s: stop it first (fp-store down "
                 "--keep --dir=%s), or leave --benefactors and --mounts out",
                 o->dir, at, benefactors, benefactors == 1 ? "" : "s", mounts, mounts == 1 ? "" : "s", o->dir);
        return -EBUSY;
    }
    return same_close(o, s, first, at);
}

/* 1: up, now or already; 0: nothing runs; negative: something does, but not all, or another store than is asked for. What has died
 * is started again; where nothing is left, what a crash has left is cleared away. */
static int look_at_old(const struct store_options *o)
{
    static struct store_state s;
    const char *at;
    unsigned alive = 0, up = 0;
    int rc = store_state_load(o, &s);
    if (rc == -ENOENT)
        return 0;
    if (rc < 0)
        return rc;
    store_wait_ending(&s);
    for (unsigned i = 0; i < s.count; i++) {
        alive += store_proc_alive(&s, &s.procs[i]);
        up += store_proc_up(&s, &s.procs[i]);
    }
    if (alive == 0) {
        store_stop_all(o, &s);
        return 0;
    }
    rc = same_store(o, &s, &at);
    if (rc == 0 && up < s.count)
        rc = store_revive(o, &s);
    if (rc < 0)
        return rc;
    printf("%s: %s\n", up < s.count ? "up again" : "already up", at);
    return 1;
}

static void say_up(const struct store_options *o, const struct store_state *s, unsigned benefactors, uint64_t took_ms)
{
    char size[FP_UNITS_BUF];
    printf("%s: %u benefactors of %s, manager at %s, up in %u ms\n", o->mount, benefactors,
           fp_format_size(size, o->size_bytes), s->manager, (unsigned)took_ms);
    printf("look: fpctl status %s    stop: fp-store down --dir=%s\n", o->mount, o->dir);
}

/* A store that was kept is what it was, unless something else is asked for. */
static int take_shape(struct store_options *o, unsigned have)
{
    if (have == 0)
        return 0;
    if (!o->benefactors_given)
        o->benefactors = have;
    return store_shape_load(o);
}

/* Nothing runs. have: benefactors that there are already. */
static int bring_up(const struct store_options *o, unsigned have, uint64_t start_ms)
{
    static struct store_state s;
    unsigned benefactors = have > o->benefactors ? have : (unsigned)o->benefactors;
    if (benefactors > o->benefactors)
        FP_INFO("%s holds a store of %u benefactors: starting all of them", o->dir, have);
    int rc = store_clear_mountpoint(o->mount);
    if (rc == 0)
        rc = store_check_space(o, have);
    if (rc < 0)
        return rc;
    store_state_load(o, &s); /* for the boot id */
    rc = start_all(o, &s, benefactors);
    if (rc == 0)
        rc = store_shape_save(o);
    if (rc < 0)
        store_stop_all(o, &s);
    else
        say_up(o, &s, benefactors, fp_now_ms() - start_ms);
    return rc;
}

int store_up(const struct store_options *given)
{
    struct store_options o = *given;
    uint64_t start_ms = fp_now_ms();
    bool made_dir = false;
    store_catch_signals();
    int rc = store_dir_open(&o, true, &made_dir);
    if (rc < 0)
        return rc;
    rc = look_at_old(&o);
    if (rc != 0)
        return rc < 0 ? rc : 0;
    unsigned have = store_count_benefactors(&o);
    rc = take_shape(&o, have);
    if (rc == 0)
        rc = bring_up(&o, have, start_ms);
    if (rc < 0 && have == 0)
        store_remove_all(&o, made_dir);
    return rc;
}
