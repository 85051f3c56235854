/* DIR/fp-store.json: what up has started, for down and status.
 *
 * Written anew, whole or not at all also when the power fails, after each step of up, so that whatever kills fp-store in the middle,
 * down finds what there is to stop. It names processes by pid and start time and carries the kernel's boot id: after a reboot
 * the same numbers mean something else. The arguments of each are there, too, so that one that has died is started again as it was
 * (revive.c), whatever the options of the day are.
 *
 * The file is ours, but people edit things: what does not look right is refused as a whole. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/store/store.h"
#include "fp/err.h"
#include "fp/wholefile.h"

static const char *const roles[] = {"manager", "benefactor", "mount"};

static void read_boot_id(char out[40])
{
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    out[0] = '\0';
    if (!f)
        return;
    if (fgets(out, 40, f))
        out[strcspn(out, "\n")] = '\0';
    fclose(f);
}

static bool are_args(const json_t *args)
{
    const json_t *j;
    size_t i;
    if (!json_is_array(args) || json_array_size(args) > STORE_ARGS_MAX)
        return false;
    json_array_foreach((json_t *)args, i, j)
    {
        if (!json_is_string(j))
            return false;
    }
    return true;
}

static int parse_proc(json_t *j, struct store_proc *p)
{
    const char *role = NULL, *mountpoint = "";
    json_int_t pid = 0, start = 0;
    int index = 0, made = 0;
    json_t *args = NULL;
    if (json_unpack(j, "{s:s, s:i, s:I, s:I, s?s, s?b, s?o}", "role", &role, "index", &index, "pid", &pid, "start_ticks",
                    &start, "mountpoint", &mountpoint, "made_mountpoint", &made, "args", &args) < 0)
        return -EINVAL;
    for (p->role = STORE_MANAGER; strcmp(role, roles[p->role]) != 0; p->role++) {
        if (p->role == STORE_MOUNT)
            return -EINVAL;
    }
    if (pid <= 1 || pid > INT_MAX || index < 1 || strlen(mountpoint) >= PATH_MAX)
        return -EINVAL;
    p->index = (unsigned)index;
    p->pid = (pid_t)pid;
    p->start_ticks = (uint64_t)start;
    p->made_mountpoint = made;
    p->ready_fd = -1;
    if (args && !are_args(args))
        return -EINVAL;
    p->args = json_incref(args);
    snprintf(p->mountpoint, sizeof p->mountpoint, "%s", mountpoint);
    return 0;
}

static int parse(json_t *root, struct store_state *s)
{
    json_t *procs = NULL, *j;
    const char *boot = "", *manager = "", *key = "";
    size_t i;
    if (json_unpack(root, "{s:s, s:s, s:s, s:o}", "boot_id", &boot, "manager", &manager, "key", &key, "processes",
                    &procs) < 0 ||
        !json_is_array(procs) || json_array_size(procs) > STORE_PROCS_MAX)
        return -EINVAL;
    snprintf(s->manager, sizeof s->manager, "%s", manager);
    snprintf(s->key, sizeof s->key, "%s", key);
    json_array_foreach(procs, i, j)
    {
        if (parse_proc(j, &s->procs[s->count]) < 0)
            return -EINVAL;
        s->count++;
    }
    char now[40];
    read_boot_id(now);
    snprintf(s->boot_id, sizeof s->boot_id, "%s", boot);
    if (strcmp(now, boot) != 0) {
        for (i = 0; i < s->count; i++)
            s->procs[i].pid = 0; /* of another life of this machine */
    }
    return 0;
}

int store_state_load(const struct store_options *o, struct store_state *s)
{
    char path[PATH_MAX];
    json_error_t err;
    memset(s, 0, sizeof *s);
    read_boot_id(s->boot_id);
    int rc = store_path(o, path, "fp-store.json");
    if (rc < 0)
        return rc;
    if (access(path, F_OK) < 0)
        return -ENOENT;
    json_t *root = json_load_file(path, 0, &err);
    rc = root ? parse(root, s) : -EINVAL;
    json_decref(root);
    if (rc < 0)
        FP_ERROR("%s cannot be read%s%s: stop what runs by hand, and remove it", path, root ? "" : ": ",
                 root ? "" : err.text);
    return rc;
}

int store_save_json(const struct store_options *o, const char *name, const json_t *j)
{
    char path[PATH_MAX], *text = j ? json_dumps(j, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
    int rc = store_path(o, path, "%s", name);

    if (rc < 0) {
        free(text);
        return rc;
    }
    rc = text ? fp_write_whole(path, text, 0666, true) : -ENOMEM;
    free(text);
    if (rc < 0)
        FP_ERROR("cannot write %s: %s", path, fp_strerror(rc));
    return rc;
}

int store_state_save(const struct store_options *o, const struct store_state *s)
{
    json_t *procs = json_array();
    for (unsigned i = 0; i < s->count; i++) {
        const struct store_proc *p = &s->procs[i];
        json_t *j = json_pack("{s:s, s:i, s:I, s:I}", "role", roles[p->role], "index", (int)p->index, "pid",
                              (json_int_t)p->pid, "start_ticks", (json_int_t)p->start_ticks);
        if (p->role == STORE_MOUNT) {
            json_object_set_new(j, "mountpoint", json_string(p->mountpoint));
            json_object_set_new(j, "made_mountpoint", json_boolean(p->made_mountpoint));
        }
        if (p->args)
            json_object_set(j, "args", p->args);
        json_array_append_new(procs, j);
    }
    json_t *root = json_pack("{s:s, s:s, s:s, s:o}", "boot_id", s->boot_id, "manager", s->manager, "key", s->key,
                             "processes", procs);
    int rc = store_save_json(o, "fp-store.json", root);
    json_decref(root);
    return rc;
}

void store_state_remove(const struct store_options *o)
{
    char path[PATH_MAX];
    if (store_path(o, path, "fp-store.json") == 0)
        unlink(path);
}
