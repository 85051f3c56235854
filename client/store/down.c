/* fp-store down and fp-store status.
 *
 * Down goes against the flow of data: mounts first, so that what they hold reaches the benefactors, then benefactors, then the
 * manager. Each gets SIGTERM and the grace, then SIGKILL, so the whole has a bound even when everything hangs; mounts get a
 * second SIGTERM before, after which they end within 3 s and say what is lost. What is still mounted afterwards is detached.
 * Then the data is removed, unless --keep; before all that the targets of drains are told that nothing in them is relied on any more.
 *
 * With --keep, what mounts hold is to be kept too. They need a manager for that, so one that has died is started again first;
 * when that does not work either, --force is asked for. Without --keep nobody waits for a manager that is gone. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/store/store.h"
#include "fp/beside.h"
#include "fp/command.h"
#include "fp/err.h"
#include "fp/procs.h"
#include "fp/table.h"

#define RELEASE_MS     6000u
#define HURRY_AFTER_MS 200u /* between two SIGTERMs, which would else be taken for one */

static bool role_alive(const struct store_state *s, enum store_role role)
{
    for (unsigned i = 0; i < s->count; i++) {
        if (s->procs[i].role == role && store_proc_alive(s, &s->procs[i]))
            return true;
    }
    return false;
}

/* Whose programs were cut off. */
static void relay_in_use(const struct store_options *o, const struct store_state *s)
{
    char text[1024];
    for (unsigned i = 0; i < s->count; i++) {
        const struct store_proc *p = &s->procs[i];
        if (p->role == STORE_MOUNT && store_log_last(o, p, FP_LOG_WARN, text, sizeof text) && strstr(text, " is in use"))
            FP_WARN("%s", text);
    }
}

/* What the mounts have said while they ended. True: something was lost. */
static bool relay_loss(const struct store_options *o, const struct store_state *s)
{
    char text[1024], name[32];
    bool lost = false;
    for (unsigned i = 0; i < s->count; i++) {
        const struct store_proc *p = &s->procs[i];
        if (p->role != STORE_MOUNT || !store_log_loss(o, p, text, sizeof text))
            continue;
        FP_WARN("%s: %s", store_proc_name(p, name), text);
        lost = true;
    }
    return lost;
}

int store_stop_all(const struct store_options *o, struct store_state *s)
{
    bool lost = false, was[STORE_PROCS_MAX];
    for (unsigned i = 0; i < s->count; i++) {
        was[i] = store_proc_alive(s, &s->procs[i]);
        store_log_mark(o, &s->procs[i]);
    }
    lost |= store_stop_role(s, STORE_MOUNT, role_alive(s, STORE_MANAGER) ? o->grace_ms : HURRY_AFTER_MS) > 0;
    relay_in_use(o, s);
    if (o->keep)
        lost |= relay_loss(o, s);
    for (unsigned i = 0; i < s->count; i++) {
        const struct store_proc *p = &s->procs[i];
        if (p->role != STORE_MOUNT)
            continue;
        enum store_mount_kind kind = store_mount_look(p->mountpoint);
        if (kind == STORE_DEAD || (kind == STORE_OURS && was[i])) /* else another store has come there since ours was gone */
            store_unmount(p->mountpoint);
        if (p->made_mountpoint)
            rmdir(p->mountpoint);
    }
    store_stop_role(s, STORE_BENEFACTOR, o->grace_ms);
    store_stop_role(s, STORE_MANAGER, o->grace_ms);
    store_state_remove(o);
    return lost ? -EIO : 0;
}

/* Other stores may replace what this one has evicted, since nobody will ask for it here. What a target that hangs costs is bounded, and fpctl says so. */
static void release_targets(const struct store_options *o, const struct store_state *s)
{
    static const char *const tails[] = {"fpctl", NULL};
    char program[PATH_MAX], manager[sizeof s->manager + 16], key[PATH_MAX + 8];

    if (o->keep || !role_alive(s, STORE_MANAGER) || !role_alive(s, STORE_BENEFACTOR) || !fp_beside(program, sizeof program, tails))
        return;
    snprintf(manager, sizeof manager, "--manager=%s", s->manager);
    snprintf(key, sizeof key, "--key=%s", s->key);
    char *argv[] = {program, "drain", "release", "--config=", manager, key, "--timeout=3s", "--log-level=warn", NULL};
    (void)fp_command_shown(argv, RELEASE_MS);
}

/* Mounts that are to write out what they hold need a manager. */
static int prepare_keeping(const struct store_options *o, struct store_state *s)
{
    if (!o->keep || o->force || role_alive(s, STORE_MANAGER) || !role_alive(s, STORE_MOUNT))
        return 0;
    FP_INFO("fp-manager has died: starting it again, so that mounts can write out what they hold");
    int rc = store_revive_manager(o, s);
    if (rc < 0)
        FP_ERROR("without a manager, what mounts hold and have not written out would be lost: mend it (the line before says "
                 "what is wrong) and try again, or add --force");
    return rc;
}

int store_down(const struct store_options *o)
{
    static struct store_state s;
    int rc = store_dir_open(o, false, NULL);
    if (rc == 0)
        rc = store_state_load(o, &s);
    if (rc < 0 && rc != -ENOENT)
        return rc;
    if (rc == -ENOENT && o->mount_given && store_mount_look(o->mount) == STORE_DEAD)
        store_unmount(o->mount);
    bool was_up = rc == 0;
    int lost = 0;
    if (was_up) {
        store_wait_ending(&s);
        rc = prepare_keeping(o, &s);
        if (rc < 0)
            return rc;
        release_targets(o, &s);
        lost = store_stop_all(o, &s);
    }
    bool data = store_count_benefactors(o) > 0;
    if (!o->keep && access(o->dir, W_OK) == 0)
        store_remove_all(o, true);
    if (was_up || data)
        printf("%s: %s%s\n", o->dir, was_up ? "stopped" : "was not up", o->keep ? ", data kept" : ", data removed");
    else
        printf("%s: no store\n", o->dir);
    return o->keep ? lost : 0;
}

/* ---------------------------------------------------------------- status */

static const char *state_word(const struct store_state *s, const struct store_proc *p)
{
    if (store_proc_up(s, p))
        return "running";
    if (!store_proc_alive(s, p))
        return "gone";
    return fp_proc_ending(p->pid) ? "ending" : "not mounted";
}

static void print_table(const struct store_options *o, const struct store_state *s)
{
    static const struct fp_table_col cols[] = {{"program", false}, {"pid", true}, {"state", false}, {"mountpoint", false},
                                               {"log", false}};
    char name[32], log[PATH_MAX];
    struct fp_table *t = fp_table_new(cols, 5);
    for (unsigned i = 0; i < s->count; i++) {
        const struct store_proc *p = &s->procs[i];
        const char *word = state_word(s, p);
        store_log_path(o, p, log);
        fp_table_cell(t, "%s", store_proc_name(p, name));
        fp_table_cell(t, "%d", (int)p->pid);
        fp_table_cell_styled(t, strcmp(word, "running") == 0 ? FP_STYLE_GOOD : FP_STYLE_BAD, "%s", word);
        fp_table_cell(t, "%s", p->mountpoint);
        fp_table_cell(t, "%s", log);
    }
    fp_table_print(t, stdout);
    fp_table_free(t);
}

/* What is dead, and what to do. */
static void print_advice(const struct store_options *o, const struct store_state *s)
{
    char name[32];
    unsigned unmounted = 0, ending = 0, gone = 0;
    for (unsigned i = 0; i < s->count; i++) {
        const struct store_proc *p = &s->procs[i];
        const char *word = state_word(s, p);
        unmounted += strcmp(word, "not mounted") == 0;
        ending += strcmp(word, "ending") == 0;
        if (strcmp(word, "gone") == 0)
            printf("%s%s", gone++ ? ", " : "gone: ", store_proc_name(p, name));
    }
    if (gone)
        printf(". fp-store up --dir=%s starts %s again.\n", o->dir, gone == s->count ? "them all" : gone > 1 ? "just these" : "just this one");
    if (ending)
        printf("What is ending was killed and waits in the kernel, as for a disk that does not answer; when it is gone, fp-store up starts it again.\n");
    if (unmounted)
        printf("A mount that is not mounted any more ends when programs have closed their files there; then fp-store up mounts it again.\n");
}

static void print_json(const struct store_options *o, const struct store_state *s, bool all)
{
    char log[PATH_MAX];
    json_t *list = json_array();
    for (unsigned i = 0; i < s->count; i++) {
        const struct store_proc *p = &s->procs[i];
        store_log_path(o, p, log);
        json_array_append_new(list, json_pack("{s:s, s:i, s:i, s:b, s:s, s:s}", "program", store_role_program(p->role),
                                              "index", (int)p->index, "pid", (int)p->pid, "running", store_proc_up(s, p), "log",
                                              log, "mountpoint", p->mountpoint));
    }
    json_t *root = json_pack("{s:s, s:b, s:s, s:s, s:o}", "dir", o->dir, "up", all, "manager", s->manager, "key", s->key,
                             "processes", list);
    if (root) {
        json_dumpf(root, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
        putchar('\n');
        json_decref(root);
    }
}

int store_status(const struct store_options *o)
{
    static struct store_state s;
    int rc = store_state_load(o, &s);
    if (rc < 0 && rc != -ENOENT)
        return rc;
    if (rc == 0)
        store_wait_ending(&s);
    bool all = rc == 0 && s.count > 0;
    for (unsigned i = 0; i < s.count; i++)
        all &= store_proc_up(&s, &s.procs[i]);
    if (o->json)
        print_json(o, &s, all);
    else if (rc < 0)
        printf("no store is up in %s\n", o->dir);
    else
        print_table(o, &s);
    if (!o->json && rc == 0 && !all)
        print_advice(o, &s);
    return all ? 0 : 1;
}
