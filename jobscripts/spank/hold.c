/*
 * The hold of a job's processes outside of the job (see hold.h). Called by prologs, by slurmstepd when a step begins, and by epilogs; one thread each.
 *
 * Not below the job's own control group: Slurm makes that when the first step begins, after the prolog, and could not remove it with ours in it. Ours is beside
 * slurmd's processes, or above them where groups have limits of memory: a group with processes in it gives none to those below.
 * Where version 2 has no limit of memory, as on machines that have both versions, the limit is that of a group of version 1.
 *
 * What was made is noted below /run, in a directory of root's that nobody else can write to, since what is noted is killed and removed.
 */
#include "jobscripts/spank/hold.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <slurm/spank.h>

#define NOTES     "/run/fpstore"
#define NOTE_BYTES 320
#define TRIES     100
#define PAUSE_NS  10000000
#define LINE_BYTES 8192

static int put(const char *dir, const char *file, const char *text)
{
    char path[PATH_MAX + 64];
    int fd, rc = 0;

    snprintf(path, sizeof path, "%s/%s", dir, file);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (write(fd, text, strlen(text)) < 0)
        rc = -errno;
    close(fd);
    return rc;
}

static bool has_file(const char *dir, const char *file)
{
    char path[PATH_MAX + 64];

    snprintf(path, sizeof path, "%s/%s", dir, file);
    return access(path, F_OK) == 0;
}

/* ---------------------------------------------------------------- where groups are */

/* Is this word among those of a list with commas or blanks between? */
static bool listed(const char *list, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = list; (at = strstr(at, word)); at += n)
        if ((at == list || strchr(", ", at[-1])) && (!at[n] || strchr(", \n", at[n])))
            return true;
    return false;
}

/* Where the hierarchy of version 2 (controller NULL), or the one of version 1 with this controller, is mounted. Not below a part of it. */
static bool mounted(const char *controller, char out[PATH_MAX])
{
    FILE *f = fopen("/proc/self/mountinfo", "re");
    char line[LINE_BYTES], root[LINE_BYTES], at[LINE_BYTES];
    bool found = false;

    while (f && !found && fgets(line, sizeof line, f)) {
        char type[32] = "", super[1024] = "", *rest = strstr(line, " - ");

        if (!rest || sscanf(rest, " - %31s %*s %1023s", type, super) != 2 || sscanf(line, "%*s %*s %*s %8191s %8191s", root, at) != 2 || strcmp(root, "/") != 0)
            continue;
        found = controller ? strcmp(type, "cgroup") == 0 && listed(super, controller) : strcmp(type, "cgroup2") == 0;
    }
    if (f)
        fclose(f);
    return found && (size_t)snprintf(out, PATH_MAX, "%s", at) < PATH_MAX;
}

/* The group that we are in: "/..." of the same hierarchy. */
static bool own(const char *controller, char out[PATH_MAX])
{
    FILE *f = fopen("/proc/self/cgroup", "re");
    char line[LINE_BYTES];
    bool found = false;

    while (f && !found && fgets(line, sizeof line, f)) {
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;

        if (!path)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        found = (controller ? listed(names + 1, controller) : !names[1]) && (size_t)snprintf(out, PATH_MAX, "%s", path) < PATH_MAX;
    }
    if (f)
        fclose(f);
    return found;
}

static bool gives_limits(const char *dir)
{
    char path[PATH_MAX + 64], line[1024] = "";
    FILE *f;

    snprintf(path, sizeof path, "%s/cgroup.subtree_control", dir);
    f = fopen(path, "re");
    if (f) {
        if (!fgets(line, sizeof line, f))
            line[0] = '\0';
        fclose(f);
    }
    return listed(line, "memory");
}

/* The nearest above us that gives limits of memory to those below; ours, if none does. */
static void place(const char *mount, char *base)
{
    char up[PATH_MAX];

    snprintf(up, sizeof up, "%s", base);
    while (!gives_limits(up)) {
        char *slash = strrchr(up, '/');

        if (strlen(up) <= strlen(mount) || !slash)
            return;
        *slash = '\0';
    }
    strcpy(base, up);
}

/* Of one hierarchy. out: its path; "" if there is no such hierarchy. */
static int make_group(const char *controller, uint32_t job, char out[PATH_MAX])
{
    char mount[PATH_MAX], path[PATH_MAX], base[PATH_MAX], host[256] = "";

    out[0] = '\0';
    if (!mounted(controller, mount) || !own(controller, path))
        return 0;
    (void)gethostname(host, sizeof host - 1); /* several nodes may be on one machine */
    if (snprintf(base, sizeof base, "%s%s", mount, strcmp(path, "/") == 0 ? "" : path) >= PATH_MAX)
        return -ENAMETOOLONG;
    if (!controller)
        place(mount, base);
    if (snprintf(path, sizeof path, "%s/fpstore.%s.%u", base, host, (unsigned)job) >= PATH_MAX)
        return -ENAMETOOLONG;
    if (mkdir(path, 0755) < 0 && errno != EEXIST)
        return errno == EROFS ? 0 : -errno; /* as in containers */
    strcpy(out, path);
    return 0;
}

int spank_hold_make(uint32_t job, struct spank_hold *h)
{
    int rc;

    memset(h, 0, sizeof *h);
    rc = make_group(NULL, job, h->group);
    if (rc == 0 && h->group[0] && has_file(h->group, "memory.max"))
        strcpy(h->memory, h->group);
    else if (rc == 0)
        rc = make_group("memory", job, h->memory);
    if (rc && h->group[0])
        (void)rmdir(h->group);
    return rc;
}

int spank_hold_enter(const struct spank_hold *h)
{
    int rc = h->group[0] ? put(h->group, "cgroup.procs", "0") : 0;

    if (rc == 0 && h->memory[0] && strcmp(h->memory, h->group) != 0)
        rc = put(h->memory, "cgroup.procs", "0");
    return rc;
}

/* ---------------------------------------------------------------- the note */

static bool is_roots(const char *dir)
{
    struct stat st;

    return lstat(dir, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 022);
}

/* As groups are: several nodes may have one /run. */
static void name_note(uint32_t job, char out[NOTE_BYTES])
{
    char host[256] = "";

    (void)gethostname(host, sizeof host - 1);
    snprintf(out, NOTE_BYTES, NOTES "/%s.%u", host, (unsigned)job);
}

/* Another job's epilog removes the directory if it is empty, also between what is done here. */
static int new_note(const char *path)
{
    int fd = -1;

    for (int i = 0; i < TRIES && fd < 0; i++) {
        if (mkdir(NOTES, 0755) < 0 && errno != EEXIST)
            return -errno;
        if (!is_roots(NOTES)) {
            if (access(NOTES, F_OK) == 0)
                return -EPERM;
            continue;
        }
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0 && errno != ENOENT)
            return -errno;
    }
    return fd < 0 ? -ENOENT : fd;
}

int spank_hold_note(uint32_t job, const struct spank_hold *h)
{
    char path[NOTE_BYTES], temp[NOTE_BYTES + 8];
    FILE *f;
    int fd, rc;

    name_note(job, path);
    snprintf(temp, sizeof temp, "%s.new", path);
    (void)unlink(temp);
    fd = new_note(temp);
    if (fd < 0)
        return fd;
    f = fdopen(fd, "w");
    if (!f) {
        close(fd);
        (void)unlink(temp);
        return -ENOMEM;
    }
    fprintf(f, "group %s\nmemory %s\nreaper %d %llu\n", h->group, h->memory, (int)h->reaper, h->ticks);
    rc = ferror(f) ? -EIO : 0;
    if (fclose(f) || (rc == 0 && rename(temp, path) < 0))
        rc = -errno;
    if (rc)
        (void)unlink(temp);
    return rc;
}

static bool read_note(uint32_t job, struct spank_hold *h)
{
    char path[NOTE_BYTES], line[PATH_MAX + 16];
    FILE *f;

    memset(h, 0, sizeof *h);
    name_note(job, path);
    f = is_roots(NOTES) ? fopen(path, "re") : NULL;
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "group ", 6) == 0)
            snprintf(h->group, sizeof h->group, "%.4095s", line + 6);
        else if (strncmp(line, "memory ", 7) == 0)
            snprintf(h->memory, sizeof h->memory, "%.4095s", line + 7);
        else if (sscanf(line, "reaper %d %llu", &h->reaper, &h->ticks) != 2)
            h->reaper = 0;
    }
    if (f)
        fclose(f);
    return f != NULL;
}

/* ---------------------------------------------------------------- while the job runs, and after it */

/* Without swap: a limit that is passed by going there is none, and slows down whoever is on the node. Kernels without swap have no such files. */
static int limit_v2(const char *group, const char *bytes)
{
    int rc = put(group, "memory.max", bytes);

    return rc || !has_file(group, "memory.swap.max") ? rc : put(group, "memory.swap.max", "0");
}

/* Memory and swap together can't be less than memory, in whatever order a second step says the same again. */
static int limit_v1(const char *group, const char *bytes)
{
    int rc = put(group, "memory.limit_in_bytes", bytes);

    return rc || !has_file(group, "memory.memsw.limit_in_bytes") ? rc : put(group, "memory.memsw.limit_in_bytes", bytes);
}

void spank_hold_limit(uint32_t job, uint64_t bytes)
{
    struct spank_hold h;
    char text[32];
    int rc;

    if (!bytes || !read_note(job, &h) || !h.memory[0])
        return;
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)bytes);
    rc = has_file(h.memory, "memory.max") ? limit_v2(h.memory, text) : limit_v1(h.memory, text);
    if (rc)
        slurm_error("fpstore: %s: memory of what the prolog of job %u has started is not limited: %s", h.memory, (unsigned)job, strerror(-rc));
}

/* Of kernels before 5.14, which have no file for it: one by one, and again while they make others. */
static void kill_listed(const char *group)
{
    char path[PATH_MAX + 64];
    FILE *f;
    int pid;

    snprintf(path, sizeof path, "%s/cgroup.procs", group);
    f = fopen(path, "re");
    while (f && fscanf(f, "%d", &pid) == 1)
        if (pid > 1) /* 0: of another namespace */
            (void)kill(pid, SIGKILL);
    if (f)
        fclose(f);
}

static bool removed(const char *group)
{
    return !group[0] || rmdir(group) == 0 || errno == ENOENT;
}

/* True: nothing of it is there any more. */
static bool end_once(const struct spank_hold *h)
{
    if (h->group[0] && put(h->group, "cgroup.kill", "1"))
        kill_listed(h->group);
    if (h->reaper > 1 && h->ticks && spank_process_ticks(h->reaper) == h->ticks) {
        spank_reaper_end(h->reaper);
        return false;
    }
    return removed(h->group) && removed(h->memory);
}

bool spank_hold_end(uint32_t job, uint64_t limit_ms)
{
    struct spank_hold h;

    return !read_note(job, &h) || spank_hold_drop(job, &h, limit_ms);
}

bool spank_hold_drop(uint32_t job, const struct spank_hold *h, uint64_t limit_ms)
{
    static const struct timespec pause = {0, PAUSE_NS};
    char path[NOTE_BYTES];

    for (uint64_t i = 0; !end_once(h); i++, nanosleep(&pause, NULL))
        if (i >= limit_ms * 1000000u / PAUSE_NS) {
            slurm_error("fpstore: job %u: processes in %s do not end by SIGKILL: the kernel waits for something in their name", (unsigned)job, h->group[0] ? h->group : "the hold");
            return false;
        }
    name_note(job, path);
    (void)unlink(path);
    (void)rmdir(NOTES); /* if it was the last one's */
    return true;
}
