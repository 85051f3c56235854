/*
 * What agents that were killed have left (see left.h). Called by whoever comes next: the agent's own watcher (node_watch.c), the agent of the user's next job on
 * the node, fp-job clean.
 *
 * A directory is taken for left if nobody holds the lock in it, which the kernel gives up with the last process that had it: neither a number of a process,
 * which may be another's by now, nor an age says so as surely. A directory without such a lock in it is not ours, whatever its name is, and is not touched.
 *
 * A mount whose directory in /tmp is gone, too, nobody tells of but the kernel: it is taken for left if no program serves it any more and no job has a note of it. That of a job that lives,
 * whose fp-mount has crashed, is the job's own to mend. Who begins there between our look and our unmounting loses his mount for a moment: his agent mounts it again.
 */
#include "jobscripts/agent/left.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <mntent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fp/err.h"
#include "fp/jobsignals.h"
#include "fp/log.h"
#include "fp/mountprobe.h"
#include "fp/procs.h"
#include "fp/command.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/agent/named.h"

#define NOTE       "node.json"
#define AGENTS     2u    /* of the note's processes: killed at once, else they start again what is ended */
#define TERM_MS    3000u
#define KILL_MS    2000u
#define PROBE_MS   2000
#define UNMOUNT_MS 5000u
#define DEAD_MAX   64u   /* mounts that are looked at */
#define FORSAKEN_S 3600 /* also if the clocks of nodes differ a little */

/* ---------------------------------------------------------------- the note */

int job_left_note(const char *dir, const struct job_note *note)
{
    json_t *list = json_array(), *j;
    char *text;
    int rc;

    for (size_t i = 0; i < JOB_NOTE_PIDS; i++)
        json_array_append_new(list, json_pack("[I, I]", (json_int_t)note->process[i].pid, (json_int_t)note->process[i].ticks));
    j = json_pack("{s:s, s:s, s:s, s:b, s:o}", "data", note->data, "mount", note->mount, "link", note->link, "made_mount", (int)note->made_mount, "processes", list);
    text = j ? json_dumps(j, JSON_INDENT(1)) : NULL;
    rc = text ? job_dir_write(dir, NOTE, text, 0600) : -ENOMEM;
    free(text);
    json_decref(j);
    return rc;
}

static bool read_note(const char *dir, struct job_note *out)
{
    const char *data, *mount, *link;
    int fd = job_dir_read(dir, NOTE), made;
    json_t *j, *list;
    bool ok;

    memset(out, 0, sizeof *out);
    if (fd < 0)
        return false;
    j = json_loadfd(fd, 0, NULL);
    close(fd);
    ok = j && json_unpack(j, "{s:s, s:s, s:s, s:b, s:o}", "data", &data, "mount", &mount, "link", &link, "made_mount", &made, "processes", &list) == 0 && strlen(data) < PATH_MAX && strlen(mount) < PATH_MAX && strlen(link) < PATH_MAX;
    if (ok) {
        strcpy(out->data, data);
        strcpy(out->mount, mount);
        strcpy(out->link, link);
        out->made_mount = made;
    }
    for (size_t i = 0; ok && i < JOB_NOTE_PIDS; i++) {
        json_int_t pid = 0, ticks = 0;

        if (json_unpack(json_array_get(list, i), "[I, I]", &pid, &ticks) == 0) {
            out->process[i].pid = (pid_t)pid;
            out->process[i].ticks = (uint64_t)ticks;
        }
    }
    json_decref(j);
    return ok;
}

/* ---------------------------------------------------------------- removing */

static void end_process(pid_t pid, uint64_t ticks, uint64_t term_ms)
{
    if (pid == getpid() || !fp_proc_runs(pid, ticks))
        return;
    if (term_ms) {
        (void)kill(pid, FP_SIGNAL_END);
        if (fp_proc_wait_gone(pid, ticks, term_ms))
            return;
    }
    (void)kill(pid, SIGKILL);
    if (!fp_proc_wait_gone(pid, ticks, KILL_MS))
        FP_WARN("process %d does not end by SIGKILL", (int)pid);
}

void job_left_unmount(const char *path)
{
    char *const argv[] = {(char *)"fusermount3", (char *)"-u", (char *)"-z", (char *)"-q", (char *)(uintptr_t)path, NULL};
    char out[64];

    if (fp_mount_probe(path, PROBE_MS) != -ENOTCONN)
        return;
    if (fp_command(argv, UNMOUNT_MS, out, sizeof out))
        FP_WARN("the dead mount on %s can't be removed: fusermount3 -uz %s", path, path);
}

void job_left_unlink(const char *link, const char *dir)
{
    char mine[PATH_MAX], to[PATH_MAX];
    ssize_t n = readlink(link, to, sizeof to - 1);

    to[n > 0 ? n : 0] = '\0';
    if (n > 0 && job_dir_file(mine, dir, JOB_DIR_MOUNT) == 0 && strcmp(mine, to) == 0)
        (void)unlink(link);
}

static bool is_store(const char *path)
{
    const char *name = strrchr(path, '/');

    return name && strncmp(name + 1, "fpstore-", 8) == 0;
}

/* A store with a name may have been taken by another job since, which has no part in what holds the directory that dir is. */
static void remove_data(const char *data)
{
    int rc;

    if (!is_store(data))
        return;
    rc = job_named_is(data) ? job_named_remove(data) : job_dir_remove(data);
    if (rc && rc != -EBUSY && rc != -EEXIST)
        FP_WARN("%s: not all of it could be removed: %s", data, fp_strerror(rc));
}

void job_left_clean(const char *dir)
{
    struct job_note note;

    if (read_note(dir, &note)) {
        for (size_t i = 0; i < JOB_NOTE_PIDS; i++)
            end_process(note.process[i].pid, note.process[i].ticks, i < AGENTS ? 0 : TERM_MS);
        if (note.link[0])
            job_left_unlink(note.link, dir);
        if (note.mount[0]) {
            job_left_unmount(note.mount);
            if (note.made_mount)
                (void)rmdir(note.mount);
        }
        remove_data(note.data);
    }
    if (job_dir_remove(dir))
        FP_WARN("%s: not all of it could be removed", dir);
}

/* ---------------------------------------------------------------- finding */

/* It was made that long ago, and whoever did so was killed, or had no room, before it said on which node: nobody needs so long for that. */
static bool is_forsaken(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && st.st_size == 0 && time(NULL) - st.st_mtime > FORSAKEN_S;
}

/* Whoever held it was on this node: a directory that several nodes share may have locks that only their own node sees. */
static bool of_here(int fd)
{
    char host[256] = "", who[256] = "";

    return is_forsaken(fd) || (gethostname(host, sizeof host - 1) == 0 && pread(fd, who, sizeof who - 1, 0) > 0 && strcmp(host, who) == 0);
}

/* Its lock, which nobody else has then; -1: it is held, or none of ours. */
static int take(const char *dir)
{
    char path[PATH_MAX];
    int fd;

    if (!job_dir_is_ours(dir) || job_dir_file(path, dir, JOB_DIR_LOCK))
        return -1;
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && of_here(fd))
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Of a shell of salloc: no agent is on that machine, and the launcher stands for them. */
static bool launcher_runs(const char *dir)
{
    struct job_record r;

    return job_record_load(dir, &r) == 0 && fp_proc_runs(r.launcher, r.launcher_ticks);
}

/* What somebody was just removing who was killed, or could not remove: nobody looks for it under this name. */
static void remove_rest(const char *path)
{
    char mount[PATH_MAX];

    if (!job_dir_is_ours(path))
        return;
    if (job_dir_file(mount, path, JOB_DIR_MOUNT) == 0)
        job_left_unmount(mount);
    (void)job_dir_clear(path);
}

static void remove_part(const char *path)
{
    (void)job_dir_remove(path);
}

/* Of one directory; names begin with `start`. */
static unsigned sweep(const char *where, const char *start, void (*clean)(const char *))
{
    DIR *d = opendir(where);
    unsigned n = 0;

    for (struct dirent *e; d && (e = readdir(d));) {
        char path[PATH_MAX];
        int fd;

        if (strncmp(e->d_name, start, strlen(start)) != 0 || job_dir_file(path, where, e->d_name))
            continue;
        if (job_dir_is_removed(e->d_name)) {
            remove_rest(path);
            continue;
        }
        fd = take(path);
        if (fd < 0)
            continue;
        if (launcher_runs(path)) {
            close(fd);
            continue;
        }
        FP_INFO("%s is left by a job that was killed: removing it", path);
        clean(path);
        close(fd);
        n++;
    }
    if (d)
        closedir(d);
    return n;
}

unsigned job_left_sweep(const char *ssd)
{
    char path[PATH_MAX], *name;
    unsigned n;

    job_dir_path(path, "");
    name = strrchr(path, '/');
    *name = '\0';
    n = sweep(path, name + 1, job_left_clean);
    return n + (ssd ? sweep(ssd, "fpstore-", remove_part) : 0);
}

/* ---------------------------------------------------------------- mounts that nobody has a note of */

static bool is_noted(const char *mount)
{
    char where[PATH_MAX], path[PATH_MAX], *start;
    struct job_note note;
    bool is = false;
    DIR *d;

    job_dir_path(where, "");
    start = strrchr(where, '/');
    *start++ = '\0';
    d = opendir(where);
    for (struct dirent *e; d && !is && (e = readdir(d));)
        is = strncmp(e->d_name, start, strlen(start)) == 0 && !job_dir_is_removed(e->d_name) && job_dir_file(path, where, e->d_name) == 0 && job_dir_is_ours(path) && read_note(path, &note) && strcmp(note.mount, mount) == 0;
    if (d)
        closedir(d);
    return is;
}

/* Of stores of this user; by what the kernel says of them, which asks no program. Each is to be freed. */
static size_t mounts_of_us(char *paths[DEAD_MAX])
{
    FILE *f = setmntent("/proc/self/mounts", "re");
    char mine[32];
    size_t n = 0;

    snprintf(mine, sizeof mine, "user_id=%u", (unsigned)geteuid());
    for (struct mntent *e; f && n < DEAD_MAX && (e = getmntent(f));)
        if (strcmp(e->mnt_type, "fuse.fpstore") == 0 && hasmntopt(e, mine) && (paths[n] = strdup(e->mnt_dir)))
            n++;
    if (f)
        endmntent(f);
    return n;
}

unsigned job_left_unmount_dead(void)
{
    char *paths[DEAD_MAX];
    size_t all = mounts_of_us(paths);
    unsigned n = 0;

    for (size_t i = 0; i < all; i++) {
        if (!is_noted(paths[i]) && fp_mount_probe(paths[i], PROBE_MS) == -ENOTCONN) {
            FP_INFO("%s: a store is mounted there of which no program runs any more: unmounting it", paths[i]);
            job_left_unmount(paths[i]);
            n++;
        }
        free(paths[i]);
    }
    return n;
}
