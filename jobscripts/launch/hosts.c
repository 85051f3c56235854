/*
 * Lists of nodes (see hosts.h). Called by fp-job for what --hosts and $PBS_NODEFILE say, and by agents, of which each finds itself.
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
#include "jobscripts/launch/address.h"
#include "jobscripts/launch/plan.h"

#define BLANKS " \t\r"
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
    if (text && f && strlen(text) < n) { /* the names behind would be left out without a word */
        free(text);
        text = NULL;
        errno = EINVAL;
    }
    if (!f) {
        free(text);
        text = NULL;
    }
    if (f)
        fclose(f);
    return text;
}

/* Memory for the addresses of IPv6 in a text, which may be longer as we write them. Each has two colons at least. */
static char *room_for_six(const char *text)
{
    size_t colons = 0;

    for (; *text; text++)
        colons += *text == ':';
    return malloc(colons / 2 * JOB_ADDRESS_BYTES + 1);
}

/* w, as it stands there, is no name of a node. */
static char *bad(const char *w, const char *what, char *why)
{
    snprintf(why, JOB_HOSTS_WHY_BYTES, "'%.150s' %.150s", w, what);
    return NULL;
}

/*
 * ":4" behind a name, as mpirun --host and the hostfiles of MPICH have it, or nothing. Whatever else is there is not passed over, as it may mean something else than
 * what we make of it. Ports of ssh can't be told from slots: they are not taken.
 */
static bool is_slots(const char *colon)
{
    size_t digits = *colon == ':' ? strspn(colon + 1, "0123456789") : 0;

    return !*colon || (digits && !colon[1 + digits] && colon[1 + strspn(colon + 1, "0")]);
}

#define NO_SLOTS "has no number of slots behind its colon: it is n1, or n1:4 as for mpirun --host (a port belongs into ~/.ssh/config)"

/* "[fd00::7]", "[fd00::7]:SLOTS". What begins with a bracket is this and nothing else: ranges have a name before theirs. */
static char *in_brackets(char *w, char *six, char *why)
{
    char *close = strchr(w, ']');
    const char *what = NULL;

    if (!close || (close[1] && close[1] != ':'))
        return bad(w, close ? "is no name of a node" : "has no ] behind it: each address of IPv6 has brackets of its own", why);
    if (!is_slots(close + 1))
        return bad(w, NO_SLOTS, why);
    *close = '\0';
    if (job_address_read(w + 1, six, &what)) {
        *close = ']';
        return bad(w, what, why);
    }
    return six;
}

/* "fd00::7", of a file alone: hostfiles of mpirun have them so. Between commas its end could be a number of slots. */
static char *without_brackets(char *w, bool file, char *six, char *why)
{
    char text[JOB_ADDRESS_BYTES + 64];
    const char *what = NULL;

    if (job_address_read(w, six, &what))
        return bad(w, what, why);
    snprintf(text, sizeof text, "is an address of IPv6, which has brackets: %s", six);
    return file ? six : bad(w, text, why);
}

/* The name that a word has, in the word or in six. NULL: none. */
static char *name_of(char *w, bool file, char *six, char *why)
{
    if (*w == '[')
        return in_brackets(w, six, why);
    if (strchr(w, '['))
        return bad(w, "is a range, as Slurm writes it, and here each node is named: scontrol show hostnames tells their names", why);
    if (strchr(w, ':') != strrchr(w, ':'))
        return without_brackets(w, file, six, why);
    if (!is_slots(w + strcspn(w, ":")))
        return bad(w, NO_SLOTS, why);
    w[strcspn(w, ":")] = '\0';
    return job_plan_is_node(w) ? w : bad(w, "is no name of a node", why);
}

/* What is behind the first blank of a line is slots; between commas it would be a node that is left out without a word. */
static bool has_two(const char *w)
{
    w += strcspn(w, BLANKS);
    return w[strspn(w, BLANKS)];
}

/* Ends each name in place. How many, or -EINVAL. file: a name begins a line; else names are between commas. six: room_for_six. */
static int64_t split(char *text, bool file, char *six, struct entry **out, char *why)
{
    const char *between = file ? "\n" : ",";
    size_t n = 0, room = 0;

    for (char *w; (w = strsep(&text, between));) {
        w += strspn(w, BLANKS);
        if (!file && has_two(w)) {
            (void)bad(w, "is more than one: names are between commas", why);
            return -EINVAL;
        }
        w[strcspn(w, BLANKS)] = '\0';
        if (file && (*w == '#' || !*w))
            continue;
        if (!*w) { /* of a variable that has no value, maybe: what was meant is not ours to say */
            snprintf(why, JOB_HOSTS_WHY_BYTES, "there is no name %s comma: a,b,c", text ? "before a" : "behind the last");
            return -EINVAL;
        }
        w = name_of(w, file, six, why);
        if (!w)
            return -EINVAL;
        six += w == six ? JOB_ADDRESS_BYTES : 0;
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

static void say_unread(const char *text, int rc, char *why)
{
    if (strcmp(text, "@") == 0)
        snprintf(why, JOB_HOSTS_WHY_BYTES, "there is no file behind the @");
    else
        snprintf(why, JOB_HOSTS_WHY_BYTES, "%.200s: %s", *text == '@' ? text + 1 : text, rc == -EINVAL ? "it is no text" : fp_strerror(rc));
}

int job_hosts_read(const char *text, char ***nodes, uint32_t *n, char why[JOB_HOSTS_WHY_BYTES])
{
    bool file = text[0] == '@';
    char *all = file ? read_file(text + 1) : strdup(text), *six = all ? room_for_six(all) : NULL;
    struct entry *list = NULL;
    int64_t found;
    int rc;

    *nodes = NULL;
    *n = 0;
    if (!six) {
        rc = !all && errno ? -errno : -ENOMEM;
        free(all);
        say_unread(text, rc, why);
        return rc;
    }
    found = *all ? split(all, file, six, &list, why) : 0;
    rc = found < 0 ? (int)found : found == 0 ? -ENOENT : 0;
    if (rc == -ENOENT)
        snprintf(why, JOB_HOSTS_WHY_BYTES, "%.200s%sthere is no name of a node", text, *text ? ": " : "");
    found = rc ? 0 : (int64_t)once(list, (size_t)found);
    rc = rc ? rc : different(list, (size_t)found, why);
    if (found > JOB_NODES_MAX) {
        snprintf(why, JOB_HOSTS_WHY_BYTES, "%lld nodes are more than fp-job can have (%u)", (long long)found, JOB_NODES_MAX);
        rc = -E2BIG;
    }
    rc = rc ? rc : copy(list, (size_t)found, nodes, n);
    free(list);
    free(six);
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

int job_hosts_copy(char *const *from, uint32_t n, char ***nodes)
{
    *nodes = calloc(n, sizeof **nodes);
    for (uint32_t i = 0; *nodes && i < n; i++)
        if (!((*nodes)[i] = strdup(from[i]))) {
            job_hosts_free(*nodes, i);
            *nodes = NULL;
        }
    return *nodes ? 0 : -ENOMEM;
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
    return name[0] == '[' || !name[strspn(name, "0123456789.")];
}

int job_hosts_same(const char *a, const char *b)
{
    size_t x = strcspn(a, "."), y = strcspn(b, ".");

    if (strcasecmp(a, b) == 0)
        return 1;
    return !is_address(a) && !is_address(b) && (!a[x] || !b[y]) && x == y && strncasecmp(a, b, x) == 0;
}

static bool has_address(const struct sockaddr *of, const char *node)
{
    const void *v4 = &((const struct sockaddr_in *)(const void *)of)->sin_addr, *v6 = &((const struct sockaddr_in6 *)(const void *)of)->sin6_addr;
    char text[INET6_ADDRSTRLEN], bare[JOB_ADDRESS_BYTES];
    bool can = of->sa_family == AF_INET || of->sa_family == AF_INET6;

    return can && inet_ntop(of->sa_family, of->sa_family == AF_INET ? v4 : v6, text, sizeof text) && strcmp(text, job_address_bare(node, bare)) == 0;
}

static int64_t by_address(char *const *nodes, uint32_t n)
{
    struct ifaddrs *all = NULL;
    int64_t found = -ENOENT;

    if (getifaddrs(&all) < 0)
        return -ENOENT;
    for (uint32_t i = 0; i < n && found < 0; i++)
        for (const struct ifaddrs *a = is_address(nodes[i]) ? all : NULL; a && found < 0; a = a->ifa_next)
            if (a->ifa_addr && has_address(a->ifa_addr, nodes[i]))
                found = i;
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
