/*
 * A cpuset for fp-auxhost (see cpuset.h). Called on the link thread when a host has been started, before it loads any plugin, and when it has ended.
 *
 * The host's own threads are pinned one by one (auxapps/host/cores.c). A plugin's are not: OpenMP and libraries that pin themselves ask
 * sched_setaffinity for what cores they like, and get it. A cpuset is a bound that they can't leave. It holds only the host: it
 * is not exclusive and takes no core from anybody; who else runs on the service cores is up to who starts the job (client/cores.c).
 *
 * cgroup v1: a child of our own cpuset, with its memory nodes. cgroup v2: a child of our own cgroup if cpuset is given to children there (or it is the root,
 * which may have processes and give it); else a sibling, if our parent gives cpuset to its children and our own cgroup has no limits that the host would
 * get rid of so. Where cpuset is not given to children it is not turned on: a cgroup with processes would become a threaded domain by that, in which a
 * batch system can make no cgroups with memory limits any more. Nor is anything asked of systemd, which is not everywhere.
 *
 * libcgroup was not used: all it would do is write these four files.
 *
 * The mount holds a lock on the directory. One that is there and not locked was left by a mount that was killed; the next one removes it, which the
 * kernel refuses while anybody is in it. A process number in the name would say less: it is another one in another container.
 */
#include "client/aux/cpuset.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/options.h"
#include "fp/err.h"

#define PREFIX     "fpstore-aux-"
#define NAMES_MAX  8       /* tried, if there are mounts of the same process number in other containers */
#define TEXT_MAX   6144
#define REMOVE_MS  100     /* a process that was killed leaves its cgroup a moment after it was waited for */

static int make_cgroup(const char *dir)
{
    return mkdir(dir, 0755);
}

const struct cl_cpuset_sys cl_cpuset_kernel = { "/proc/self/cgroup", "/proc/self/mountinfo", make_cgroup, rmdir };

struct place { char dir[1024]; bool v2; };

/* -------------------------------------------------------------- files */

static int read_text(const char *dir, const char *name, char *out, size_t size)
{
    char path[4096];
    ssize_t n;
    int fd;

    out[0] = '\0';
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    n = read(fd, out, size - 1);
    close(fd);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return n < 0 ? -EIO : 0;
}

static int write_text(const char *dir, const char *name, const char *text, char *why, size_t why_size)
{
    size_t len = strlen(text);
    char path[4096];
    ssize_t n;
    int fd, rc = 0;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CLOEXEC);
    n = fd < 0 ? -1 : write(fd, text, len);
    if (n != (ssize_t)len)
        rc = n < 0 ? -errno : -EIO;
    if (fd >= 0)
        close(fd);
    if (rc < 0)
        snprintf(why, why_size, "%s: %s", path, fp_strerror(rc));
    return rc;
}

/* Is `word` one of those in text? */
static bool has_word(const char *text, const char *word, const char *separators)
{
    size_t len = strlen(word);

    while (*text) {
        size_t n = strcspn(text, separators);

        if (n == len && memcmp(text, word, n) == 0)
            return true;
        text += n;
        text += strspn(text, separators);
    }
    return false;
}

/* -------------------------------------------------------------- which cgroup we are in */

/* The path of this process in the hierarchy with the controller "cpuset", or in that of version 2 (""). */
static bool own_path(const struct cl_cpuset_sys *sys, const char *controller, char *out, size_t size)
{
    FILE *f = fopen(sys->self_cgroup, "re");
    char line[2048];
    bool found = false;

    while (f && !found && fgets(line, sizeof(line), f)) {
        char *names = strchr(line, ':'), *path = names ? strchr(names + 1, ':') : NULL;

        if (!path)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        found = *controller ? has_word(names + 1, controller, ",") : names[1] == '\0';
        if (found)
            snprintf(out, size, "%s", path);
    }
    if (f)
        fclose(f);
    return found;
}

/* mountinfo has blanks, tabs, line ends and backslashes as \ and three octal digits. */
static void decode(char *s)
{
    char *out = s;

    while (*s) {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' && s[3] <= '7') {
            *out++ = (char)((s[1] - '0') << 6 | (s[2] - '0') << 3 | (s[3] - '0'));
            s += 4;
        } else {
            *out++ = *s++;
        }
    }
    *out = '\0';
}

/* Where that is in the file system: out->dir. False: that part of the hierarchy is mounted nowhere here. */
static bool mounted_at(const struct cl_cpuset_sys *sys, const char *path, struct place *out)
{
    FILE *f = fopen(sys->self_mountinfo, "re");
    char line[4096], root[1024], point[1024], type[32], options[1024];
    bool found = false;

    while (f && !found && fgets(line, sizeof(line), f)) {
        const char *dash = strstr(line, " - ");
        size_t len;

        if (!dash || sscanf(line, "%*s %*s %*s %1023s %1023s", root, point) != 2 ||
            sscanf(dash, " - %31s %*s %1023s", type, options) != 2)
            continue;
        if (out->v2 ? strcmp(type, "cgroup2") != 0 : strcmp(type, "cgroup") != 0 || !has_word(options, "cpuset", ","))
            continue;
        decode(root);
        decode(point);
        len = strcmp(root, "/") == 0 ? 0 : strlen(root);
        if (strncmp(path, root, len) != 0 || (path[len] != '/' && path[len] != '\0') || strstr(path, "/.."))
            continue;
        path += len;
        found = snprintf(out->dir, sizeof(out->dir), "%s%s", point, strcmp(path, "/") == 0 ? "" : path) < (int)sizeof(out->dir);
    }
    if (f)
        fclose(f);
    return found;
}

static int own_cgroup(const struct cl_cpuset_sys *sys, struct place *out, char *why, size_t why_size)
{
    char path[1024];

    out->v2 = false;
    if (!own_path(sys, "cpuset", path, sizeof(path))) {
        out->v2 = true;
        if (!own_path(sys, "", path, sizeof(path))) {
            snprintf(why, why_size, "there are no cgroups here");
            return -ENOTSUP;
        }
    }
    if (mounted_at(sys, path, out))
        return 0;
    snprintf(why, why_size, "the cgroup of this mount (%s) is not to be seen from here", path);
    return -ENOENT;
}

/* -------------------------------------------------------------- version 2: where may it be? */

static bool gives_to_children(const struct place *p, char *why, size_t why_size)
{
    char text[1024], type[64];

    if (read_text(p->dir, "cgroup.subtree_control", text, sizeof(text)) == 0 && has_word(text, "cpuset", " "))
        return true;
    if (read_text(p->dir, "cgroup.controllers", text, sizeof(text)) < 0 || !has_word(text, "cpuset", " ")) {
        snprintf(why, why_size, "%s has no controller cpuset", p->dir);
        return false;
    }
    /* The root alone has no type. Its children are not bound by this before somebody writes into their cpuset.cpus. */
    if (read_text(p->dir, "cgroup.type", type, sizeof(type)) == -ENOENT)
        return write_text(p->dir, "cgroup.subtree_control", "+cpuset", why, why_size) == 0;
    snprintf(why, why_size, "%s does not give the controller cpuset to its children", p->dir);
    return false;
}

static bool is_limit(const struct place *own, const char *name, bool empty_is_none)
{
    char text[64];

    return read_text(own->dir, name, text, sizeof(text)) == 0 && (empty_is_none ? text[0] != '\0' : strncmp(text, "max", 3) != 0);
}

/* One file for each size of page. */
static bool limits_huge_pages(const struct place *own)
{
    DIR *d = opendir(own->dir);
    struct dirent *e;
    bool found = false;

    while (d && !found && (e = readdir(d))) {
        const char *dot = strrchr(e->d_name, '.');

        found = dot && strncmp(e->d_name, "hugetlb.", 8) == 0 && strcmp(dot, ".max") == 0 && is_limit(own, e->d_name, false);
    }
    if (d)
        closedir(d);
    return found;
}

static bool has_limits(const struct place *own)
{
    static const char *const max[] = { "memory.max", "memory.high", "memory.swap.max", "pids.max", "cpu.max", NULL };
    static const char *const lists[] = { "cpuset.mems", "io.max", NULL }; /* the memory nodes of a NUMA job; one line for each device */

    for (const char *const *f = max; *f; f++)
        if (is_limit(own, *f, false))
            return true;
    for (const char *const *f = lists; *f; f++)
        if (is_limit(own, *f, true))
            return true;
    return limits_huge_pages(own);
}

/* own becomes the cgroup in which to make it. */
static int place_for_v2(struct place *own, char *why, size_t why_size)
{
    struct place parent = *own;
    char type[64], *slash = strrchr(parent.dir, '/'), not[256];

    if (gives_to_children(own, why, why_size))
        return 0;
    if (read_text(own->dir, "cgroup.type", type, sizeof(type)) < 0 || !slash || slash == parent.dir)
        return -ENOTSUP;
    *slash = '\0';
    if (!gives_to_children(&parent, not, sizeof(not)))
        return -ENOTSUP; /* what our own lacks says more */
    if (has_limits(own)) {
        snprintf(why, why_size, "%s has limits, which would not hold for aux-apps beside it", own->dir);
        return -EPERM;
    }
    *own = parent;
    return 0;
}

/* -------------------------------------------------------------- the directory */

/* A lock on a directory that is still there under its name; negative: there is none, or it is another's. */
static int lock_dir(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat ours, there;

    if (fd < 0)
        return -errno;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &ours) == 0 && stat(dir, &there) == 0 && ours.st_ino == there.st_ino)
        return fd;
    close(fd);
    return -EBUSY;
}

static void remove_left(const struct cl_cpuset_sys *sys, const struct place *p)
{
    DIR *d = opendir(p->dir);
    struct dirent *e;

    while (d && (e = readdir(d))) {
        char dir[2048];
        int fd;

        if (strncmp(e->d_name, PREFIX, strlen(PREFIX)) != 0)
            continue;
        snprintf(dir, sizeof(dir), "%s/%s", p->dir, e->d_name);
        fd = lock_dir(dir);
        if (fd < 0)
            continue;
        (void)sys->remove(dir);
        close(fd);
    }
    if (d)
        closedir(d);
}

static int make_dir(struct cl_cpuset *c, const struct cl_cpuset_sys *sys, const struct place *p, char *why, size_t why_size)
{
    int rc = -EEXIST;

    for (int i = 0; i < NAMES_MAX; i++) {
        snprintf(c->dir, sizeof(c->dir), "%s/" PREFIX "%d-%d", p->dir, (int)getpid(), i);
        rc = sys->make(c->dir) == 0 || errno == EEXIST ? 0 : -errno;
        if (rc < 0)
            break;
        c->lock_fd = lock_dir(c->dir);
        if (c->lock_fd >= 0)
            return 0;
        rc = c->lock_fd;
    }
    snprintf(why, why_size, "%s: %s", c->dir, fp_strerror(rc));
    c->dir[0] = '\0';
    return rc;
}

/* -------------------------------------------------------------- what it holds */

/* Those of cores that the cgroup p may use. */
static int cores_of(const struct place *p, const cpu_set_t *cores, char *out, size_t size, char *why, size_t why_size)
{
    char text[TEXT_MAX];
    cpu_set_t may, use;
    size_t n = 0;
    int rc = read_text(p->dir, p->v2 ? "cpuset.cpus.effective" : "cpuset.effective_cpus", text, sizeof(text));

    if (rc < 0 && !p->v2)
        rc = read_text(p->dir, "cpuset.cpus", text, sizeof(text));
    if (rc < 0 || cl_cores_parse(text, &may)) {
        snprintf(why, why_size, "%s does not say which cores it has", p->dir);
        return rc < 0 ? rc : -EPROTO;
    }
    CPU_AND(&use, &may, cores);
    if (CPU_COUNT(&use) == 0) {
        snprintf(why, why_size, "%s has none of the service cores, but %.100s", p->dir, text);
        return -EINVAL;
    }
    for (int i = 0; i < CPU_SETSIZE && n + 8 < size; i++)
        if (CPU_ISSET(i, &use))
            n += (size_t)snprintf(out + n, size - n, "%s%d", n ? "," : "", i);
    return 0;
}

static int fill(struct cl_cpuset *c, const struct place *p, const char *cores, pid_t pid, char *why, size_t why_size)
{
    char text[TEXT_MAX];
    int rc = 0;

    if (!p->v2) {
        rc = read_text(p->dir, "cpuset.effective_mems", text, sizeof(text));
        if (rc < 0)
            (void)read_text(p->dir, "cpuset.mems", text, sizeof(text));
        rc = write_text(c->dir, "cpuset.mems", text, why, why_size);
    } else if (read_text(c->dir, "cgroup.type", text, sizeof(text)) == 0 && strcmp(text, "domain invalid") == 0) {
        rc = write_text(c->dir, "cgroup.type", "threaded", why, why_size); /* as its parent is */
    }
    if (rc == 0)
        rc = write_text(c->dir, "cpuset.cpus", cores, why, why_size);
    snprintf(text, sizeof(text), "%d", (int)pid);
    return rc < 0 ? rc : write_text(c->dir, "cgroup.procs", text, why, why_size);
}

int cl_cpuset_enter(struct cl_cpuset *c, const struct cl_cpuset_sys *sys, pid_t pid, const cpu_set_t *cores, char *why, size_t why_size)
{
    char text[TEXT_MAX] = "";
    struct place p;
    int rc = own_cgroup(sys, &p, why, why_size);

    c->dir[0] = '\0';
    if (rc == 0 && p.v2)
        rc = place_for_v2(&p, why, why_size);
    if (rc < 0)
        return rc;
    remove_left(sys, &p);
    rc = cores_of(&p, cores, text, sizeof(text), why, why_size);
    if (rc == 0)
        rc = make_dir(c, sys, &p, why, why_size);
    if (rc < 0)
        return rc;
    rc = fill(c, &p, text, pid, why, why_size);
    if (rc < 0)
        cl_cpuset_leave(c, sys);
    return rc;
}

void cl_cpuset_leave(struct cl_cpuset *c, const struct cl_cpuset_sys *sys)
{
    if (!c->dir[0])
        return;
    for (int ms = 0; sys->remove(c->dir) < 0 && errno == EBUSY && ms < REMOVE_MS; ms += 5)
        usleep(5000);
    close(c->lock_fd);
    c->dir[0] = '\0';
}
