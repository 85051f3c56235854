/*
 * Lists of nodes (see hosts.h). Called by fp-job start and run for what --hosts and $PBS_NODEFILE say, and by agents, of which each finds itself.
 *
 * Nothing is looked up: 10,000 agents that ask a name server for 10,000 names each were rejected. A node that is given by its address finds that among
 * its own.
 */
#include "jobscripts/launch/hosts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "fp/err.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/launch/plan.h"

#define FILE_BYTES_MAX (256u << 20) /* a line for each rank */

struct entry {
    const char *name;
    size_t at;
};

/* ---------------------------------------------------------------- reading */

static int by_name(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int c = strcmp(x->name, y->name);

    return c ? c : x->at < y->at ? -1 : 1;
}

static int by_place(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    return x->at < y->at ? -1 : x->at > y->at;
}

static char *read_file(const char *path)
{
    size_t room = 1u << 16, n = 0, got;
    char *text = malloc(room);
    FILE *f = fopen(path, "re");

    while (f && text && (got = fread(text + n, 1, room - n - 1, f)) > 0) {
        n += got;
        if (room - n < 4096) {
            char *more = room < FILE_BYTES_MAX ? realloc(text, room *= 2) : NULL;

            if (!more) {
                free(text);
                errno = room < FILE_BYTES_MAX ? ENOMEM : EFBIG;
            }
            text = more;
        }
    }
    if (f && text && ferror(f)) {
        free(text);
        text = NULL;
    }
    if (text && f)
        text[n] = '\0';
    if (!f) {
        free(text);
        text = NULL;
    }
    if (f)
        fclose(f);
    return text;
}

/* Ends each name in place. How many, or -EINVAL. file: a name begins a line; else names are between commas. */
static int64_t split(char *text, bool file, struct entry **out, char *why)
{
    const char *between = file ? "\n" : ",";
    size_t n = 0, room = 0;
    char *save = NULL;

    for (char *w = strtok_r(text, between, &save); w; w = strtok_r(NULL, between, &save)) {
        w += strspn(w, " \t\r");
        w[strcspn(w, " \t\r")] = '\0';
        if (*w == '#' || !*w)
            continue;
        if (*w == '[' || strchr(w, ':') != strrchr(w, ':')) {
            snprintf(why, JOB_HOSTS_WHY_BYTES, "'%.200s' is an address of IPv6: nodes are called by their names, or by addresses of IPv4", w);
            return -EINVAL;
        }
        w[strcspn(w, ":")] = '\0';
        if (!job_plan_is_node(w)) {
            snprintf(why, JOB_HOSTS_WHY_BYTES, "'%.200s' is no name of a node", w);
            return -EINVAL;
        }
        if (n && strcmp((*out)[n - 1].name, w) == 0)
            continue; /* the next slot of the same node */
        if (n == room) {
            struct entry *more = reallocarray(*out, room = room ? 2 * room : 64, sizeof *more);

            if (!more) {
                snprintf(why, JOB_HOSTS_WHY_BYTES, "%s", fp_strerror(-ENOMEM));
                return -ENOMEM;
            }
            *out = more;
        }
        (*out)[n] = (struct entry){.name = w, .at = n};
        n++;
    }
    return (int64_t)n;
}

/* Without those that were there before, in the order in which they were given. */
static size_t once(struct entry *list, size_t n)
{
    size_t kept = 0;

    qsort(list, n, sizeof *list, by_name);
    for (size_t i = 0; i < n; i++)
        if (!kept || strcmp(list[kept - 1].name, list[i].name) != 0)
            list[kept++] = list[i];
    qsort(list, kept, sizeof *list, by_place);
    return kept;
}

/* Names that are another one's with its domain are beside that one. */
static int by_host(const void *a, const void *b)
{
    const char *x = ((const struct entry *)a)->name, *y = ((const struct entry *)b)->name;
    size_t m = strcspn(x, "."), n = strcspn(y, "."), least = m < n ? m : n;
    int c = strncasecmp(x, y, least);

    return c ? c : m != n ? (m < n ? -1 : 1) : strcasecmp(x, y);
}

/* Two agents on one node would be in each other's way; which of the names is meant is not ours to say. Leaves the list in order. */
static int different(struct entry *list, size_t n, char *why)
{
    int rc = 0;

    qsort(list, n, sizeof *list, by_host);
    for (size_t i = 1; i < n && rc == 0; i++)
        if (job_hosts_same(list[i - 1].name, list[i].name)) {
            snprintf(why, JOB_HOSTS_WHY_BYTES, "%.130s and %.130s are one node: it is to be called by one name", list[i - 1].name, list[i].name);
            rc = -EINVAL;
        }
    qsort(list, n, sizeof *list, by_place);
    return rc;
}

static int copy(const struct entry *list, size_t n, char ***nodes, uint32_t *count)
{
    *nodes = calloc(n, sizeof **nodes);
    for (*count = 0; *nodes && *count < n; (*count)++)
        if (!((*nodes)[*count] = strdup(list[*count].name)))
            return -ENOMEM;
    return *nodes ? 0 : -ENOMEM;
}

int job_hosts_read(const char *text, char ***nodes, uint32_t *n, char why[JOB_HOSTS_WHY_BYTES])
{
    bool file = text[0] == '@';
    char *all = file ? read_file(text + 1) : strdup(text);
    struct entry *list = NULL;
    int64_t found;
    int rc;

    *nodes = NULL;
    *n = 0;
    if (!all) {
        rc = errno ? -errno : -ENOMEM;
        snprintf(why, JOB_HOSTS_WHY_BYTES, "%.200s: %s", file ? text + 1 : text, fp_strerror(rc));
        return rc;
    }
    found = split(all, file, &list, why);
    rc = found < 0 ? (int)found : found == 0 ? -ENOENT : 0;
    if (rc == -ENOENT)
        snprintf(why, JOB_HOSTS_WHY_BYTES, "%.200s: there is no name of a node", text);
    found = rc ? 0 : (int64_t)once(list, (size_t)found);
    rc = rc ? rc : different(list, (size_t)found, why);
    if (found > JOB_NODES_MAX) {
        snprintf(why, JOB_HOSTS_WHY_BYTES, "%lld nodes are more than fp-job can have (%u)", (long long)found, JOB_NODES_MAX);
        rc = -E2BIG;
    }
    rc = rc ? rc : copy(list, (size_t)found, nodes, n);
    free(list);
    free(all);
    return rc;
}

int job_hosts_write(const char *dir, char *const *nodes, uint32_t n)
{
    size_t size = 1;
    char *text, *end;
    int rc;

    for (uint32_t i = 0; i < n; i++)
        size += strlen(nodes[i]) + sizeof " slots=1\n";
    end = text = malloc(size);
    if (!text)
        return -ENOMEM;
    *text = '\0';
    for (uint32_t i = 0; i < n; i++)
        end += sprintf(end, "%s slots=1\n", nodes[i]); /* each has one agent, also by mpirun */
    rc = job_dir_write(dir, JOB_DIR_NODES, text, 0600);
    free(text);
    return rc;
}

char **job_hosts_load(const char *dir, uint32_t n)
{
    char file[PATH_MAX + 1] = "@", why[JOB_HOSTS_WHY_BYTES], **nodes = NULL;
    uint32_t found = 0;
    int rc = job_dir_file(file + 1, dir, JOB_DIR_NODES);

    rc = rc ? rc : job_hosts_read(file, &nodes, &found, why);
    if (rc == 0 && found == n)
        return nodes;
    job_hosts_free(nodes, found);
    return NULL;
}

void job_hosts_free(char **nodes, uint32_t n)
{
    for (uint32_t i = 0; nodes && i < n; i++)
        free(nodes[i]);
    free(nodes);
}

/* ---------------------------------------------------------------- this machine */

static bool is_address(const char *name)
{
    return !name[strspn(name, "0123456789.")];
}

int job_hosts_same(const char *a, const char *b)
{
    size_t x = strcspn(a, "."), y = strcspn(b, ".");

    if (strcasecmp(a, b) == 0)
        return 1;
    return !is_address(a) && !is_address(b) && (!a[x] || !b[y]) && x == y && strncasecmp(a, b, x) == 0;
}

static int64_t by_address(char *const *nodes, uint32_t n)
{
    struct ifaddrs *all = NULL;
    int64_t found = -ENOENT;

    if (getifaddrs(&all) < 0)
        return -ENOENT;
    for (uint32_t i = 0; i < n && found < 0; i++)
        for (const struct ifaddrs *a = is_address(nodes[i]) ? all : NULL; a && found < 0; a = a->ifa_next) {
            char text[INET_ADDRSTRLEN];

            if (a->ifa_addr && a->ifa_addr->sa_family == AF_INET &&
                inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)a->ifa_addr)->sin_addr, text, sizeof text) && strcmp(text, nodes[i]) == 0)
                found = i;
        }
    freeifaddrs(all);
    return found;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(**(char *const *const *)a, **(char *const *const *)b);
}

char ***job_hosts_sort(char **nodes, uint32_t n)
{
    char ***sorted = calloc((size_t)n + 1, sizeof *sorted);

    for (uint32_t i = 0; sorted && i < n; i++)
        sorted[i] = &nodes[i];
    if (sorted)
        qsort(sorted, n, sizeof *sorted, by_text);
    return sorted;
}

int64_t job_hosts_find(char **nodes, char ***sorted, uint32_t n, const char *name)
{
    char *text = (char *)(uintptr_t)name, **key = &text, ***at = bsearch(&key, sorted, n, sizeof *sorted, by_text);

    return at ? *at - nodes : -ENOENT;
}

int64_t job_hosts_self(char *const *nodes, uint32_t n)
{
    char host[JOB_NODE_NAME_MAX + 1] = "";

    (void)gethostname(host, sizeof host - 1);
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(nodes[i], host) == 0)
            return i;
    for (uint32_t i = 0; i < n; i++)
        if (job_hosts_same(nodes[i], host))
            return i;
    return by_address(nodes, n);
}
