/*
 * The I/O of the benchmarks: an ordinary program that knows nothing of fpstore, so that what it does to a mount and to the
 * native file system is the same.
 *
 *     iobench write|read --path P --size BYTES [--block 1048576] [--jobs 1] [--shared] [--direct] [--fsync] [--verify] [--odd BYTES]
 *     iobench create|stat|unlink --path DIR --count N [--jobs 1] [--shift K]
 *
 * Called by tools/bench/bench.py; prints one JSON object. Processes, not threads, as MPI ranks are: each prepares what it
 * needs (aligned buffer, names), tells its parent by a pipe, and begins when the parent closes a second one. Time runs from
 * the first that begins to the last that has ended, and takes open and close in: for write-behind the close is where the
 * waiting is. Job j has the file P.j; with --shared all have P, and block i of job j is block i * jobs + j of the file.
 *
 * Each 4 KiB of data starts with a stamp made of its offset and the file; --verify looks at all of them. So a
 * wrong block is found at the price of one cache line per page, the same on both sides of a comparison. With --odd the memory begins so many
 * bytes behind a page, as what malloc gives does (16).
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE_BYTES 4096u
#define JOBS_MAX   64u

struct config {
    const char *path;
    uint64_t size_bytes; /* of each job */
    uint64_t block_bytes;
    uint64_t count; /* names of each job */
    unsigned jobs, shift, limit_s, odd_bytes;
    bool shared, direct, fsync, verify;
};

struct result { /* shared memory: written by one job, read by the parent when the job is gone */
    uint64_t start_ns, end_ns, ops, bytes;
    int err;
    char what[160];
};

struct job {
    const struct config *c;
    struct result *r;
    unsigned index;
    char path[4096];
    char *buf;
    uint32_t *order; /* stat: which name comes when */
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int failed(struct job *j, const char *what)
{
    j->r->err = errno ? errno : EIO;
    snprintf(j->r->what, sizeof j->r->what, "%s", what);
    return -1;
}

/* ---------------------------------------------------------------- data */

static uint64_t stamp(const struct job *j, uint64_t off)
{
    uint64_t x = off / PAGE_BYTES + 1 + ((uint64_t)(j->c->shared ? 0 : j->index + 1) << 40);
    x *= 0x9e3779b97f4a7c15u;
    return x ^ x >> 29;
}

static void stamp_block(const struct job *j, uint64_t off)
{
    for (uint64_t at = 0; at < j->c->block_bytes; at += PAGE_BYTES) {
        uint64_t s = stamp(j, off + at);
        memcpy(j->buf + at, &s, sizeof s);
    }
}

static bool stamps_right(const struct job *j, uint64_t off, size_t len)
{
    for (uint64_t at = 0; at + sizeof(uint64_t) <= len; at += PAGE_BYTES) {
        uint64_t s = stamp(j, off + at);
        if (memcmp(j->buf + at, &s, sizeof s) != 0)
            return false;
    }
    return true;
}

static uint64_t block_off(const struct job *j, uint64_t i)
{
    return j->c->block_bytes * (j->c->shared ? i * j->c->jobs + j->index : i);
}

static int run_write(struct job *j)
{
    const struct config *c = j->c;
    int flags = O_WRONLY | O_CREAT | (c->shared ? 0 : O_TRUNC) | (c->direct ? O_DIRECT : 0);
    int fd = open(j->path, flags, 0644);
    if (fd < 0)
        return failed(j, "open");
    for (uint64_t i = 0; i < c->size_bytes / c->block_bytes; i++) {
        uint64_t off = block_off(j, i);
        stamp_block(j, off);
        for (uint64_t done = 0; done < c->block_bytes;) {
            ssize_t n = pwrite(fd, j->buf + done, c->block_bytes - done, (off_t)(off + done));
            if (n <= 0)
                return failed(j, "pwrite");
            done += (uint64_t)n;
        }
        j->r->ops++;
        j->r->bytes += c->block_bytes;
    }
    if (c->fsync && fsync(fd) != 0)
        return failed(j, "fsync");
    return close(fd) == 0 ? 0 : failed(j, "close");
}

static int run_read(struct job *j)
{
    const struct config *c = j->c;
    int fd = open(j->path, O_RDONLY | (c->direct ? O_DIRECT : 0));
    if (fd < 0)
        return failed(j, "open");
    for (uint64_t i = 0; i < c->size_bytes / c->block_bytes; i++) {
        uint64_t off = block_off(j, i), done = 0;
        while (done < c->block_bytes) {
            ssize_t n = pread(fd, j->buf + done, c->block_bytes - done, (off_t)(off + done));
            errno = n == 0 ? ENODATA : errno;
            if (n <= 0)
                return failed(j, "pread");
            done += (uint64_t)n;
        }
        if (c->verify && !stamps_right(j, off, c->block_bytes)) {
            errno = EILSEQ;
            return failed(j, "what was read is not what was written");
        }
        j->r->ops++;
        j->r->bytes += c->block_bytes;
    }
    return close(fd) == 0 ? 0 : failed(j, "close");
}

/* ---------------------------------------------------------------- names */

static void name_of(const struct job *j, uint64_t i, char *name, size_t room)
{
    unsigned owner = (j->index + j->c->shift) % j->c->jobs;
    snprintf(name, room, "rank%02u.%06u", owner, (unsigned)i);
}

/* Names are taken relative to an open directory, as a program that has changed into it would. */
static int run_names(struct job *j, int (*one)(int dir, const char *name))
{
    char name[64];
    int dir = open(j->c->path, O_RDONLY | O_DIRECTORY);
    if (dir < 0)
        return failed(j, "open the directory");
    for (uint64_t i = 0; i < j->c->count; i++) {
        name_of(j, j->order ? j->order[i] : i, name, sizeof name);
        if (one(dir, name) != 0)
            return failed(j, name);
        j->r->ops++;
    }
    close(dir);
    return 0;
}

static int one_create(int dir, const char *name)
{
    int fd = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL, 0644);
    return fd < 0 ? -1 : close(fd);
}

static int one_stat(int dir, const char *name)
{
    struct stat st;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW);
}

static int one_unlink(int dir, const char *name) { return unlinkat(dir, name, 0); }

static int run_create(struct job *j) { return run_names(j, one_create); }
static int run_stat(struct job *j) { return run_names(j, one_stat); }
static int run_unlink(struct job *j) { return run_names(j, one_unlink); }

static const struct work {
    const char *name;
    int (*run)(struct job *j);
    bool data;
} works[] = {
    {"write", run_write, true},   {"read", run_read, true},      {"create", run_create, false},
    {"stat", run_stat, false},    {"unlink", run_unlink, false},
};

/* ---------------------------------------------------------------- jobs */

static int prepare(struct job *j, const struct work *w)
{
    const struct config *c = j->c;
    uint64_t x = 88172645463325252u + j->index;
    if (c->shared)
        snprintf(j->path, sizeof j->path, "%s", c->path);
    else
        snprintf(j->path, sizeof j->path, "%s.%u", c->path, j->index);
    if (w->data) {
        if (posix_memalign((void **)&j->buf, 2u << 20, c->block_bytes + c->odd_bytes) != 0)
            return failed(j, "memory");
        j->buf += c->odd_bytes; /* never freed */
        for (uint64_t i = 0; i < c->block_bytes / sizeof x; i++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            memcpy(j->buf + i * sizeof x, &x, sizeof x);
        }
    } else if (w->run == run_stat) {
        j->order = calloc(c->count, sizeof *j->order);
        if (!j->order)
            return failed(j, "memory");
        for (uint32_t i = 0; i < c->count; i++) {
            uint32_t k = (uint32_t)(rand_r(&(unsigned){i * 2654435761u + j->index}) % (i + 1));
            j->order[i] = j->order[k];
            j->order[k] = i;
        }
    }
    return 0;
}

static void child(struct job *j, const struct work *w, int ready_fd, int go_fd)
{
    char c = 'r';
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* Ctrl-C must leave nobody on the mount */
    alarm(j->c->limit_s);
    if (prepare(j, w) != 0)
        c = 'x';
    if (write(ready_fd, &c, 1) != 1 || c == 'x')
        _exit(1);
    if (read(go_fd, &c, 1) < 0)
        _exit(1);
    errno = 0;
    j->r->start_ns = now_ns();
    int rc = w->run(j);
    j->r->end_ns = now_ns();
    _exit(rc == 0 ? 0 : 1);
}

static bool run_all(const struct config *c, const struct work *w, struct result *results)
{
    int ready[2], go[2];
    unsigned up = 0;
    bool ok = true;
    char byte;
    if (pipe2(ready, O_CLOEXEC) != 0 || pipe2(go, O_CLOEXEC) != 0)
        return false;
    for (unsigned i = 0; i < c->jobs; i++) {
        static struct job j;
        j = (struct job){.c = c, .r = &results[i], .index = i};
        pid_t pid = fork();
        if (pid == 0) {
            close(go[1]);
            child(&j, w, ready[1], go[0]);
        }
        if (pid < 0)
            _exit(1);
    }
    close(ready[1]);
    while (up < c->jobs && read(ready[0], &byte, 1) == 1)
        up++;
    close(go[1]);
    for (unsigned i = 0; i < c->jobs; i++) {
        int status = 0;
        if (wait(&status) < 0 || status != 0)
            ok = false;
    }
    return ok;
}

static int report(const struct config *c, const struct work *w, const struct result *results, bool ok)
{
    uint64_t start_ns = UINT64_MAX, end_ns = 0, ops = 0, bytes = 0;
    for (unsigned i = 0; i < c->jobs; i++) {
        const struct result *r = &results[i];
        if (r->err) {
            fprintf(stderr, "iobench: %s %s: job %u: %s: %s\n", w->name, c->path, i, r->what, strerror(r->err));
            return 1;
        }
        start_ns = r->start_ns < start_ns ? r->start_ns : start_ns;
        end_ns = r->end_ns > end_ns ? r->end_ns : end_ns;
        ops += r->ops;
        bytes += r->bytes;
    }
    if (!ok) {
        fprintf(stderr, "iobench: %s %s: a job was killed: more than %u s, or a crash\n", w->name, c->path, c->limit_s);
        return 1;
    }
    printf("{\"work\":\"%s\",\"jobs\":%u,\"seconds\":%.6f,\"ops\":%llu,\"bytes\":%llu}\n", w->name, c->jobs,
           (double)(end_ns - start_ns) / 1e9, (unsigned long long)ops, (unsigned long long)bytes);
    return 0;
}

static uint64_t number(const char *text)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno || *end || end == text) {
        fprintf(stderr, "iobench: %s is not a number\n", text);
        exit(2);
    }
    return v;
}

static void parse(struct config *c, int argc, char **argv)
{
    static const struct option options[] = {
        {"path", 1, NULL, 'p'},   {"size", 1, NULL, 's'},   {"block", 1, NULL, 'b'},  {"jobs", 1, NULL, 'j'},
        {"count", 1, NULL, 'n'},  {"shift", 1, NULL, 'k'},  {"limit", 1, NULL, 'l'},  {"shared", 0, NULL, 'S'},
        {"direct", 0, NULL, 'D'}, {"fsync", 0, NULL, 'F'},  {"verify", 0, NULL, 'V'}, {"odd", 1, NULL, 'o'},
        {NULL, 0, NULL, 0},
    };
    int o;
    while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (o) {
        case 'p': c->path = optarg; break;
        case 's': c->size_bytes = number(optarg); break;
        case 'b': c->block_bytes = number(optarg); break;
        case 'j': c->jobs = (unsigned)number(optarg); break;
        case 'n': c->count = number(optarg); break;
        case 'k': c->shift = (unsigned)number(optarg); break;
        case 'l': c->limit_s = (unsigned)number(optarg); break;
        case 'o': c->odd_bytes = (unsigned)number(optarg); break;
        case 'S': c->shared = true; break;
        case 'D': c->direct = true; break;
        case 'F': c->fsync = true; break;
        case 'V': c->verify = true; break;
        default: exit(2);
        }
    }
}

int main(int argc, char **argv)
{
    struct config c = {.block_bytes = 1u << 20, .jobs = 1, .limit_s = 120};
    const struct work *w = NULL;
    for (size_t i = 0; argc > 1 && i < sizeof works / sizeof *works; i++) {
        if (strcmp(argv[1], works[i].name) == 0)
            w = &works[i];
    }
    if (w)
        parse(&c, argc - 1, argv + 1);
    if (!w || !c.path || c.jobs < 1 || c.jobs > JOBS_MAX || c.block_bytes < PAGE_BYTES || c.block_bytes % PAGE_BYTES ||
        (w->data ? c.size_bytes < c.block_bytes || c.size_bytes % c.block_bytes : c.count < 1)) {
        fprintf(stderr, "usage: iobench write|read|create|stat|unlink --path PATH ...: see the top of iobench.c\n");
        return 2;
    }
    struct result *results =
        mmap(NULL, sizeof *results * JOBS_MAX, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (results == MAP_FAILED) {
        perror("iobench: mmap");
        return 1;
    }
    bool ok = run_all(&c, w, results);
    return report(&c, w, results, ok);
}
