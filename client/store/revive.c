/* What has died of a store that is up is started again: by fp-store up all of it, by down --keep the manager alone.
 *
 * A process gets the arguments that it had, which are in fp-store.json, and the environment variables FP_* that it had (shape.c): what up is told today, or by
 * default, might not go with those that run. The manager comes back at its address, for that is where the others look for it; they keep trying, and so do
 * mounts for a benefactor, so what programs have open there goes on after a pause. What a mount had open ends with it: the kernel answers
 * ENOTCONN there, until the mountpoint is unmounted and mounted anew.
 *
 * Nothing that runs is stopped, also when something cannot be started again. A mount whose process runs and which is not mounted
 * any more is waited for, for a moment, not killed: programs may have files open in it, and it ends by itself when they are closed. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/store/store.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "fp/procs.h"

#define ENDS_MS 10000u

bool store_proc_up(const struct store_state *s, const struct store_proc *p)
{
    return store_proc_alive(s, p) && !fp_proc_ending(p->pid) && (p->role != STORE_MOUNT || store_is_mounted(p->mountpoint));
}

static bool starts_with(const char *text, const char *with)
{
    return text && strncmp(text, with, strlen(with)) == 0;
}

/* A manager listens where it did. */
static void set_listen(const struct store_state *s, struct store_proc *p)
{
    static const char option[] = "--listen=";
    char text[sizeof option + sizeof s->manager];
    for (size_t i = 0; i < json_array_size(p->args); i++) {
        if (starts_with(json_string_value(json_array_get(p->args, i)), option)) {
            snprintf(text, sizeof text, "%s%s", option, s->manager);
            json_array_set_new(p->args, i, json_string(text));
        }
    }
}

static bool in_memory(const struct store_proc *p)
{
    for (size_t i = 0; i < json_array_size(p->args); i++) {
        if (starts_with(json_string_value(json_array_get(p->args, i)), "--backend=memory"))
            return true;
    }
    return false;
}

/* It was unmounted, and mostly ends at once: when all is published. */
static void wait_until_ended(const struct store_state *s, const struct store_proc *p)
{
    static const struct timespec pause = {0, 20000000};
    uint64_t until_ms = fp_now_ms() + ENDS_MS;
    while (store_proc_alive(s, p) && fp_now_ms() < until_ms && !store_interrupted())
        nanosleep(&pause, NULL);
}

static int begin(const struct store_options *o, struct store_state *s, struct store_proc *p)
{
    char name[32];
    store_proc_name(p, name);
    if (!p->args) {
        FP_ERROR("%s is gone, and was started by an earlier fp-store, which kept no arguments: fp-store down --keep --dir=%s, then up", name,
                 o->dir);
        return -EBUSY;
    }
    if (p->role == STORE_MOUNT)
        wait_until_ended(s, p);
    if (store_proc_alive(s, p) && fp_proc_ending(p->pid)) {
        FP_ERROR("%s (pid %d) was killed and can't end yet: it waits in the kernel, as for a disk that does not answer; fp-store up again when it is gone", name,
                 (int)p->pid);
        return -EBUSY;
    }
    if (store_proc_alive(s, p)) {
        FP_ERROR("%s (pid %d) runs and is not mounted on %s any more: it ends when programs have closed what they have open there; wait "
                 "for that, or fp-store down --keep --dir=%s, then up",
                 name, (int)p->pid, p->mountpoint, o->dir);
        return -EBUSY;
    }
    if (p->role == STORE_MANAGER)
        set_listen(s, p);
    int rc = p->role == STORE_MOUNT ? store_clear_mountpoint(p->mountpoint) : 0;
    if (rc == 0 && p->role == STORE_MOUNT)
        rc = store_mkdir(p->mountpoint, NULL);
    if (rc == 0)
        rc = store_proc_start_again(o, p);
    return rc;
}

/* Ready, or gone again. */
static int finish(const struct store_options *o, struct store_proc *p, uint64_t until_ms)
{
    char line[PATH_MAX], name[32];
    int rc = store_proc_wait_ready(o, p, until_ms, line, sizeof line);
    if (rc < 0) {
        if (rc != -ECHILD)
            store_proc_kill(p);
        return rc;
    }
    FP_INFO("%s had died: started again, pid %d", store_proc_name(p, name), (int)p->pid);
    if (p->role == STORE_BENEFACTOR && in_memory(p))
        FP_WARN("%s keeps chunks in memory: what it had is lost, unless it is in a target, too; fpctl status says what", name);
    return 0;
}

/* All of a role that are gone, beside each other; all are tried. The first code. */
static int revive_role(const struct store_options *o, struct store_state *s, enum store_role role)
{
    uint64_t until_ms = fp_now_ms() + STORE_READY_MS;
    int first = 0;
    for (unsigned i = 0; i < s->count; i++) {
        struct store_proc *p = &s->procs[i];
        int rc = p->role == role && !store_proc_up(s, p) ? begin(o, s, p) : 0;
        first = first ? first : rc;
    }
    int rc = store_state_save(o, s); /* before anybody waits: what kills us here leaves nothing unknown */
    first = first ? first : rc;
    for (unsigned i = 0; i < s->count; i++) {
        struct store_proc *p = &s->procs[i];
        rc = p->role == role && p->ready_fd >= 0 ? finish(o, p, until_ms) : 0;
        first = first ? first : rc;
    }
    rc = store_state_save(o, s);
    return first ? first : rc;
}

int store_revive_manager(const struct store_options *o, struct store_state *s)
{
    int rc = store_shape_environment(o);

    return rc < 0 ? rc : revive_role(o, s, STORE_MANAGER);
}

int store_revive(const struct store_options *o, struct store_state *s)
{
    int rc = store_revive_manager(o, s);
    if (rc < 0)
        return rc; /* nobody gets ready without it */
    rc = revive_role(o, s, STORE_BENEFACTOR);
    int mounts = store_interrupted() ? -EINTR : revive_role(o, s, STORE_MOUNT);
    return rc < 0 ? rc : mounts;
}
