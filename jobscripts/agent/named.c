/*
 * Stores that outlive their jobs (see named.h). Called by the agent of a node, before it starts anything.
 *
 * No process outlives a job without an administrator's help, so what stays is what lies on the SSDs: the next job starts programs on it again, and its nodes are
 * checked by what each of them has noted, as no place that all nodes see is known. All nodes of the store must be in the job, since chunks of its files may
 * lie on any of them; more may be, and belong to it from then on. The first node must be the same: it has the names.
 */
#include "jobscripts/agent/named.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fp/err.h"
#include "fp/rmtree.h"
#include "fp/wholefile.h"
#include "jobscripts/launch/hosts.h"
#include "jobscripts/jobdir.h"

#define RECORD    "store.json"
#define LOCK      ".fp-store"
#define TOLD_MAX  8u /* missing nodes */
#define TRIES     50u

void job_named_name(const struct job_store *s, const char *job, char out[JOB_NAME_BYTES])
{
    const char *run = getenv("SLURM_RESTART_COUNT"); /* of a job that was queued again, whose nodes may be others */
    unsigned n = run ? (unsigned)strtoul(run, NULL, 10) : 0;

    if (s->persistent)
        snprintf(out, JOB_NAME_BYTES, "%s", s->persistent);
    else if (n)
        snprintf(out, JOB_NAME_BYTES, "job-%.40s-run%u", job, n + 1);
    else
        snprintf(out, JOB_NAME_BYTES, "job-%.40s", job);
    for (char *c = out; *c; c++)
        if (*c == '.')
            *c = '_'; /* of PBS, say: the name is given to persistent= to get at it */
}

int job_named_path(char out[PATH_MAX], const char *ssd, const char *name)
{
    return snprintf(out, PATH_MAX, "%s/fpstore-%u-named-%s", ssd, (unsigned)geteuid(), name) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int check_nodes(const json_t *nodes, const char *dir, const char *name, const struct job_plan *plan, char *why, size_t size)
{
    const char *first = json_string_value(json_array_get(nodes, 0));
    size_t n = (size_t)snprintf(why, size, "the store %s (persistent=) lies on nodes that this job does not have:", name), missing = 0, i;
    char ***sorted = job_hosts_sort(plan->nodes, plan->nnodes);
    json_t *one;

    if (!sorted) {
        snprintf(why, size, "%s", fp_strerror(-ENOMEM));
        return -ENOMEM;
    }
    json_array_foreach(nodes, i, one)
    {
        const char *node = json_string_value(one);

        if (!node || job_hosts_find(plan->nodes, sorted, plan->nnodes, node) >= 0)
            continue;
        if (missing++ < TOLD_MAX && n < size)
            n += (size_t)snprintf(why + n, size - n, " %s", node);
    }
    free(sorted);
    if (missing > TOLD_MAX && n < size)
        n += (size_t)snprintf(why + n, size - n, " and %zu others", missing - TOLD_MAX);
    if (missing) {
        if (n < size)
            snprintf(why + n, size - n, "; ask for them (sbatch --nodelist), or remove %s on all of its nodes", dir);
        return -ENXIO;
    }
    if (first && strcmp(first, plan->nodes[0]) != 0) {
        snprintf(why, size, "the names of the store %s (persistent=) lie on %s, and the first node of this job is %s: ask for nodes of which %s is the first", name, first, plan->nodes[0], first);
        return -ENXIO;
    }
    return 0;
}

/* Only that there is none says that nothing is in the store: whoever is told so begins it anew, and what was in it is removed. */
static int read_record(const char *dir, const char *name, const struct job_plan *plan, bool *known, uint64_t *size_bytes, char *why, size_t size)
{
    int rc, fd = job_dir_read(dir, RECORD);
    json_int_t bytes = 0;
    json_t *j, *nodes;

    *known = fd != -ENOENT;
    if (fd == -ENOENT)
        return 0;
    if (fd < 0) {
        snprintf(why, size, "%s/" RECORD " of the store %s can't be read: %s; nothing of the store was touched", dir, name, fp_strerror(fd));
        return fd;
    }
    j = json_loadfd(fd, 0, NULL);
    close(fd);
    if (!j || json_unpack(j, "{s:o, s:I}", "nodes", &nodes, "size", &bytes) || !json_array_size(nodes)) {
        snprintf(why, size, "%s/" RECORD " can't be read: the store %s is damaged; remove %s on all of its nodes", dir, name, dir);
        rc = -EBADMSG;
    } else
        rc = check_nodes(nodes, dir, name, plan, why, size);
    *size_bytes = (uint64_t)bytes;
    json_decref(j);
    return rc;
}

/* Its descriptor, or -EWOULDBLOCK: somebody else has it; -EAGAIN: it was just removed. */
static int lock_once(const char *dir)
{
    struct stat mine, there;
    char path[PATH_MAX];
    int rc = job_dir_file(path, dir, LOCK), fd = rc ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return rc ? rc : errno == ENOENT ? -EAGAIN : -errno;
    rc = flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK ? -EWOULDBLOCK : fstat(fd, &mine) < 0 || stat(path, &there) < 0 || mine.st_ino != there.st_ino ? -EAGAIN : 0;
    rc = rc ? rc : job_dir_keep(dir);
    if (rc)
        close(fd);
    return rc ? rc : fd;
}
_Static_assert(EWOULDBLOCK == EAGAIN, "both are waited for");

/* The lock ends with the process. Who removes what a killed job has left has it for a moment alone, so somebody who has it for longer uses the store. */
static int lock(const char *dir, const char *name, char *why, size_t size)
{
    static const struct timespec pause = {0, 20000000};
    char whose[JOB_DIR_WHOSE_BYTES];
    int fd = job_dir_make(dir);

    fd = fd ? fd : lock_once(dir);
    for (unsigned i = 0; fd == -EAGAIN && i < TRIES; i++) {
        nanosleep(&pause, NULL);
        fd = job_dir_make(dir);
        fd = fd ? fd : lock_once(dir);
    }
    if (fd == -EAGAIN)
        snprintf(why, size, "the store %s (persistent=) is in use by another job of yours on this node", name);
    else if (fd < 0) {
        job_dir_whose(dir, whose, sizeof whose);
        snprintf(why, size, "%s: %s", dir, fd == -EPERM ? whose : fp_strerror(fd));
    }
    return fd == -EAGAIN ? -EBUSY : fd < 0 ? fd : 0;
}

int job_named_take(const char *dir, const char *name, const struct job_plan *plan, bool *known, uint64_t *size_bytes, char *why, size_t size)
{
    static const char *const parts[] = {"manager", "benefactor", NULL};
    char path[PATH_MAX];
    int rc;

    *known = false;
    rc = lock(dir, name, why, size);
    rc = rc ? rc : read_record(dir, name, plan, known, size_bytes, why, size);
    for (const char *const *p = parts; rc == 0 && !*known && *p; p++) {
        rc = job_dir_file(path, dir, *p);
        rc = rc ? rc : fp_remove_tree(path); /* of a first start that was killed */
        if (rc)
            snprintf(why, size, "what a first start of the store %s has left in %s can't be removed: %s", name, dir, fp_strerror(rc));
    }
    return rc;
}

int job_named_keep(const char *dir, const struct job_plan *plan, uint64_t size_bytes)
{
    json_t *nodes = json_array(), *j;
    char *text, path[PATH_MAX];
    int rc = job_dir_file(path, dir, RECORD);

    for (uint32_t i = 0; i < plan->nnodes; i++)
        json_array_append_new(nodes, json_string(plan->nodes[i]));
    j = json_pack("{s:o, s:I}", "nodes", nodes, "size", (json_int_t)size_bytes);
    text = j ? json_dumps(j, JSON_INDENT(1)) : NULL;
    rc = rc ? rc : text ? fp_write_whole(path, text, 0600, true) : -ENOMEM;
    free(text);
    json_decref(j);
    return rc;
}

int job_named_discard(const char *dir)
{
    char path[PATH_MAX];
    int rc = job_dir_file(path, dir, RECORD);

    return rc ? rc : unlink(path) < 0 && errno != ENOENT ? -errno : 0;
}

bool job_named_is(const char *dir)
{
    const char *name = strrchr(dir, '/');
    char start[40];

    snprintf(start, sizeof start, "/fpstore-%u-named-", (unsigned)geteuid());
    return name && strncmp(name, start, strlen(start)) == 0;
}

bool job_named_in_use(const char *dir)
{
    char path[PATH_MAX];
    int fd = job_dir_file(path, dir, LOCK) ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK; /* shared: two that look do not see each other */

    if (fd >= 0)
        close(fd);
    return held;
}

void job_named_tell(const char *dir, uint32_t *nodes, char *first, size_t size, int64_t *when_s)
{
    int fd = job_dir_read(dir, RECORD);
    struct stat st;
    json_t *j = fd >= 0 ? json_loadfd(fd, 0, NULL) : NULL, *list = json_object_get(j, "nodes");
    const char *name = json_string_value(json_array_get(list, 0));

    *nodes = (uint32_t)json_array_size(list);
    snprintf(first, size, "%s", name ? name : "");
    *when_s = (fd >= 0 ? fstat(fd, &st) : stat(dir, &st)) == 0 ? (int64_t)st.st_mtim.tv_sec : 0;
    json_decref(j);
    if (fd >= 0)
        close(fd);
}

static int lock_there(const char *dir)
{
    int fd;

    if (!job_dir_is_ours(dir))
        return access(dir, F_OK) < 0 && errno == ENOENT ? -ENOENT : -EPERM;
    fd = lock_once(dir);
    return fd == -EAGAIN ? -EBUSY : fd;
}

int job_named_drop(const char *dir)
{
    int fd = lock_there(dir), rc;

    if (fd < 0)
        return fd;
    rc = job_dir_remove(dir);
    close(fd);
    return rc;
}

int job_named_remove(const char *dir)
{
    int rc = 0, fd = lock_there(dir), record;

    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    record = job_dir_read(dir, RECORD);
    if (record >= 0)
        close(record);
    rc = record == -ENOENT ? job_dir_remove(dir) : record >= 0 ? -EEXIST : record;
    close(fd);
    return rc;
}
