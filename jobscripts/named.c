/*
 * Stores that outlive their jobs (see named.h). Called by the agent of a node, before it starts anything.
 *
 * No process outlives a job without an administrator's help, so what stays is what lies on the SSDs: the next job starts programs on it again, and its nodes are
 * checked by what each of them has noted, as no place that all nodes see is known. All nodes of the store must be in the job, since chunks of its files may
 * lie on any of them; more may be, and belong to it from then on. The first node must be the same: it has the names.
 */
#include "jobscripts/named.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "fp/err.h"
#include "fp/rmtree.h"
#include "jobscripts/jobdir.h"

#define RECORD    "store.json"
#define LOCK      ".fp-store"
#define TOLD_MAX  8u /* missing nodes */

int job_named_path(char out[PATH_MAX], const char *ssd, const char *name)
{
    return snprintf(out, PATH_MAX, "%s/fpstore-%u-named-%s", ssd, (unsigned)geteuid(), name) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static bool in_plan(const struct job_plan *plan, const char *node)
{
    for (uint32_t i = 0; i < plan->nnodes; i++)
        if (strcmp(plan->nodes[i], node) == 0)
            return true;
    return false;
}

static int check_nodes(const json_t *nodes, const char *dir, const char *name, const struct job_plan *plan, char *why, size_t size)
{
    const char *first = json_string_value(json_array_get(nodes, 0));
    size_t n = (size_t)snprintf(why, size, "the store %s (persistent=) lies on nodes that this job does not have:", name), missing = 0, i;
    json_t *one;

    json_array_foreach(nodes, i, one)
    {
        const char *node = json_string_value(one);

        if (!node || in_plan(plan, node))
            continue;
        if (missing++ < TOLD_MAX && n < size)
            n += (size_t)snprintf(why + n, size - n, " %s", node);
    }
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

static int read_record(const char *dir, const char *name, const struct job_plan *plan, bool *known, uint64_t *size_bytes, char *why, size_t size)
{
    char path[PATH_MAX];
    json_int_t bytes = 0;
    json_t *j, *nodes;
    int rc = job_dir_file(path, dir, RECORD);

    *known = rc == 0 && access(path, F_OK) == 0;
    if (rc || !*known)
        return rc;
    j = json_load_file(path, 0, NULL);
    if (!j || json_unpack(j, "{s:o, s:I}", "nodes", &nodes, "size", &bytes) || !json_array_size(nodes)) {
        snprintf(why, size, "%s can't be read: the store %s is damaged; remove %s on all of its nodes", path, name, dir);
        rc = -EBADMSG;
    } else
        rc = check_nodes(nodes, dir, name, plan, why, size);
    *size_bytes = (uint64_t)bytes;
    json_decref(j);
    return rc;
}

/* The lock ends with the process. */
static int lock(const char *dir, const char *name, char *why, size_t size)
{
    char path[PATH_MAX];
    int rc = job_dir_file(path, dir, LOCK), fd = rc ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0) {
        rc = rc ? rc : -errno;
        snprintf(why, size, "%s: %s", path, fp_strerror(rc));
        return rc;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
        snprintf(why, size, "the store %s (persistent=) is in use by another job of yours on this node", name);
        close(fd);
        return -EBUSY;
    }
    return 0;
}

int job_named_take(const char *dir, const char *name, const struct job_plan *plan, bool *known, uint64_t *size_bytes, char *why, size_t size)
{
    static const char *const parts[] = {"manager", "benefactor", NULL};
    char path[PATH_MAX];
    int rc = job_dir_make(dir);

    *known = false;
    if (rc) {
        snprintf(why, size, "%s: %s", dir, rc == -EPERM ? "it belongs to somebody else, or others may read it" : fp_strerror(rc));
        return rc;
    }
    rc = lock(dir, name, why, size);
    rc = rc ? rc : read_record(dir, name, plan, known, size_bytes, why, size);
    for (const char *const *p = parts; rc == 0 && !*known && *p; p++)
        if (job_dir_file(path, dir, *p) == 0)
            fp_remove_tree(path); /* of a first start that was killed */
    return rc;
}

int job_named_keep(const char *dir, const struct job_plan *plan, uint64_t size_bytes)
{
    json_t *nodes = json_array(), *j;
    char *text;
    int rc;

    for (uint32_t i = 0; i < plan->nnodes; i++)
        json_array_append_new(nodes, json_string(plan->nodes[i]));
    j = json_pack("{s:o, s:I}", "nodes", nodes, "size", (json_int_t)size_bytes);
    text = j ? json_dumps(j, JSON_INDENT(1)) : NULL;
    rc = text ? job_dir_write(dir, RECORD, text, 0600) : -ENOMEM;
    free(text);
    json_decref(j);
    return rc;
}
