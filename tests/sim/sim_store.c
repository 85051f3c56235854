/*
 * sim_store: a store of a few nodes in one process, driven by a seed. See docs/SIMULATOR.md.
 *
 * Each seed runs in a child process of its own, so that it begins with fresh memory, and a hang or an abort is a result like others. A seed that fails is run once more with its trace in a file.
 */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <getopt.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/sim.h"
#include "tests/sim/model.h"
#include "tests/sim/work.h"

#define LIMIT_S  240 /* of real time, for one seed */
#define JOBS_MAX 64

struct result { /* what a child reports */
    uint64_t hash, steps, messages, disk_ops, now_ns;
    struct work_counts work;
    char why[400];
};

struct options {
    uint64_t seed, runs;
    unsigned jobs, seconds, level;
    bool trace, twice, keep_going, drains;
    const char *out;
    const char *bug;
    struct checkpoint checkpoint; /* nodes 0: seeds */
};

struct job {
    pid_t pid;
    uint64_t seed;
    double began;
    int fd;
};

static struct options opt = {.seed = 1, .runs = 1, .jobs = 1, .level = 3, .out = NULL};
static int report_fd = -1;
static bool hasty; /* windows are folded as soon as they can be: no bug, but it makes them collide with writes */
static bool behind; /* --close behind */
static bool strict; /* --strict: all mounts of a seed, or none */
static char self[512], here[512];

/* ------------------------------------------------------------------ in the child */

void sim_trace(const char *fmt, ...)
{
    char line[1024];
    va_list ap;
    int n;

    if (!sim.trace)
        return;
    n = snprintf(line, sizeof line, "%10.6f %-14s ", (double)(sim.now_ns - SIM_S) / 1e9,
                 !sim_self ? "" : sim_self->proc ? sim_self->proc->name : sim_self->name);
    va_start(ap, fmt);
    n += vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
    va_end(ap);
    if (n > (int)sizeof line - 2)
        n = (int)sizeof line - 2;
    line[n++] = '\n';
    syscall(SYS_write, STDOUT_FILENO, line, n);
}

void sim_program_said(const char *text, size_t len)
{
    static const char back[] = "who rewrote it did not come to an end: it is again what it was before"; /* manager/return.c */
    const char *ino = memmem(text, len, "(inode ", 7);

    if (ino && memmem(text, len, back, sizeof back - 1))
        model_returned(strtoull(ino + 7, NULL, 10));
    sim_trace("says: %.*s", (int)(len && text[len - 1] == '\n' ? len - 1 : len), text);
}

static _Noreturn void report(const char *why)
{
    struct result r = {.hash = sim.hash, .steps = sim.steps, .messages = sim.messages, .disk_ops = sim.disk_ops, .now_ns = sim.now_ns, .work = work_counts};

    snprintf(r.why, sizeof r.why, "%s", why);
    syscall(SYS_write, report_fd, &r, sizeof r);
    syscall(SYS_exit_group, why[0] ? 1 : 0);
    __builtin_unreachable();
}

_Noreturn void sim_fail(const char *fmt, ...)
{
    char why[400];
    va_list ap;
    int n = snprintf(why, sizeof why, "at %.6f s, message %llu: ", (double)(sim.now_ns - SIM_S) / 1e9, (unsigned long long)sim.messages);

    va_start(ap, fmt);
    vsnprintf(why + n, sizeof why - (size_t)n, fmt, ap);
    va_end(ap);
    sim_trace("FAILED: %s", why);
    report(why);
}

bool sim_bug(const char *name)
{
    return (opt.bug && strcmp(name, opt.bug) == 0) || (hasty && strcmp(name, "mount-folds-at-once") == 0);
}

_Noreturn void sim_end(void)
{
    sim_trace("the end: all is as it should be");
    report("");
}

static void on_abort(int sig)
{
    const char *what = strsignal(sig);

    signal(sig, SIG_DFL);
    sim_fail("%s in %s", what, !sim_self ? "the simulator" : sim_self->proc ? sim_self->proc->name : sim_self->name);
}

static void make_store(void)
{
    unsigned bnfs = sim.nnodes - 1;
    int fd;
    char path[256];

    for (unsigned i = 0; i < sim.nnodes; i++) {
        struct sim_node *n = &sim.nodes[i];

        *n = (struct sim_node){.id = (int)i, .up = true, .boots = 1};
        snprintf(n->dir, sizeof n->dir, "%s/n%u", sim.dir, i);
        mkdir(n->dir, 0700);
        n->wall_ns = INT64_C(1700000000) * INT64_C(1000000000) + (int64_t)sim_below(SIM_RNG_FAULT, SIM_S);
        n->mono_ns = (int64_t)sim_below(SIM_RNG_FAULT, 1000 * SIM_S);
        n->drift_ppm = opt.level ? (int64_t)sim_below(SIM_RNG_FAULT, 400) - 200 : 0;
    }
    snprintf(path, sizeof path, "%s/key", sim.dir);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    dprintf(fd, "%064d\n", 7);
    close(fd);
    snprintf(path, sizeof path, "%s/fp.conf", sim.dir);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    sim_proc_add(SIM_MANAGER, &sim.nodes[0], "mgr");
    for (unsigned i = 0; i < bnfs; i++) {
        char name[20];

        snprintf(name, sizeof name, "bnf%u", i + 1);
        sim_proc_add(SIM_BENEFACTOR, &sim.nodes[i + 1], name);
    }
    for (unsigned i = 0; i < bnfs; i++) {
        char name[20];

        snprintf(name, sizeof name, "mnt%u", i + 1);
        sim_proc_add(SIM_MOUNT, &sim.nodes[i + 1], name);
    }
    if (sim.drains) {
        snprintf(path, sizeof path, SIM_TARGET, sim.dir);
        mkdir(path, 0755);
        sim_proc_add(SIM_CTL, &sim.nodes[1], "ctl");
    }
}

/* A third of the seeds close behind, most of their mounts. */
static void how_to_close(struct sim_proc *p)
{
    bool sync = sim_chance(SIM_RNG_WORK, 100000) && !opt.checkpoint.nodes;

    p->behind = behind && !sync && sim_chance(SIM_RNG_WORK, 800000);
    p->syncs = sync;
    sim_proc_arg(p, "--close=%s", sync ? "sync" : p->behind ? "behind" : "publish");
}

static void arguments(struct sim_proc *p)
{
    sim_proc_arg(p, "%s", p->name);
    if (p->kind == SIM_CTL) {
        sim_proc_arg(p, "%s/key", sim.dir);
        return;
    }
    sim_proc_arg(p, "--key=%s/key", sim.dir);
    sim_proc_arg(p, "--config=%s/fp.conf", sim.dir);
    sim_proc_arg(p, "--ready-fd=2");
    sim_proc_arg(p, "--log-level=info"); /* the same with and without a trace: a line takes time */
    if (p->kind == SIM_MANAGER) {
        sim_proc_arg(p, "--dir=%s/mgr", p->node->dir);
        sim_proc_arg(p, "--listen=10.0.0.1:7420");
        sim_proc_arg(p, "--chunk-size=64KiB");
        sim.striped = sim_chance(SIM_RNG_WORK, 500000);
        sim_proc_arg(p, "--stripe=%d", sim.striped ? 3 : 1); /* 3: over all nodes */
        sim.versions = sim.seed / 2 % 4 != 0;
        sim_proc_arg(p, "--versions=%s", sim.versions ? "on" : "off");
        sim_proc_arg(p, "--session-timeout=20s");
        sim_proc_arg(p, "--orphan-grace=5s");
        sim_proc_arg(p, "--cache=1MiB");
        return;
    }
    sim_proc_arg(p, "--manager=10.0.0.1:7420");
    sim_proc_arg(p, "--node=n%d", p->node->id);
    if (p->kind == SIM_BENEFACTOR) {
        sim_proc_arg(p, "--dir=%s/bnf", p->node->dir);
        sim_proc_arg(p, "--size=256MiB");
        sim_proc_arg(p, "--segment-size=32MiB");
        sim_proc_arg(p, "--listen=10.0.0.%d:7500", p->node->id + 1);
        sim_proc_arg(p, "--buffers=20MiB");
        sim_proc_arg(p, "--threads=2");
        sim_proc_arg(p, "--start-timeout=1h");
        sim_proc_arg(p, "--data-encryption=off");
        if (sim.drains)
            sim_proc_arg(p, "--target-timeout=5s");
    } else {
        p->strict = strict;
        if (strict)
            sim_proc_arg(p, "--strict");
        sim_proc_arg(p, "--pool=16MiB");
        sim_proc_arg(p, "--fold=%s", hasty ? "on" : "off");
        sim_proc_arg(p, "--foreground");
        sim_proc_arg(p, "--store-threads=2");
        sim_proc_arg(p, "--start-timeout=1h");
        sim_proc_arg(p, "--read-ahead=%s", sim_chance(SIM_RNG_WORK, 500000) ? "256KiB" : "0");
        how_to_close(p);
        sim_proc_arg(p, "/mnt/%s", p->name);
    }
}


static void start_late(void *arg)
{
    sim_proc_start(arg);
}

/* To one processor: the baton goes from thread to thread much faster there. */
static void pin(uint64_t seed)
{
    cpu_set_t may, set;
    int skip;

    CPU_ZERO(&may);
    if (syscall(SYS_sched_getaffinity, 0, sizeof may, &may) <= 0)
        return;
    skip = (int)(seed % (unsigned)CPU_COUNT(&may));
    for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &may) && skip-- == 0) {
            CPU_ZERO(&set);
            CPU_SET(cpu, &set);
            syscall(SYS_sched_setaffinity, 0, sizeof set, &set);
        }
}

static _Noreturn void run_seed(uint64_t seed)
{
    bool alone;
    static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], on_abort);
    pin(seed);
    sim_sched_init(seed);
    sim.trace = opt.trace;
    hasty = seed % 2 && !opt.checkpoint.nodes;
    behind = seed % 3 == 0 && !opt.checkpoint.nodes;
    strict = seed % 5 == 1 && !opt.checkpoint.nodes;
    sim.drains = (opt.drains || seed % 7 == 3) && !opt.checkpoint.nodes;
    sim.nnodes = opt.checkpoint.nodes ? opt.checkpoint.nodes + 1 : 3 + (unsigned)sim_below(SIM_RNG_FAULT, 2);
    sim.preempt_ppm = sim_chance(SIM_RNG_FAULT, 500000) ? 0 : (unsigned)sim_below(SIM_RNG_FAULT, 30000);
    sim_disk_init();
    make_store();
    for (unsigned i = 0; i < sim.nprocs; i++)
        arguments(&sim.procs[i]);
    alone = opt.level > 1 && sim_chance(SIM_RNG_FAULT, 100000);
    for (unsigned i = 0; i < sim.nprocs; i++) { /* in some runs the first mount is alone for a while */
        if (opt.level > 1 && i > sim.nnodes && (alone || sim_chance(SIM_RNG_FAULT, 200000)))
            sim_at(sim.now_ns + sim_below(SIM_RNG_FAULT, 8 * SIM_S), start_late, &sim.procs[i]);
        else
            sim_proc_start(&sim.procs[i]);
    }
    if (opt.checkpoint.nodes)
        checkpoint_start(&opt.checkpoint);
    else
        work_start(opt.level);
    sim_run();
}

/* ------------------------------------------------------------------ in the parent */

static double now_s(void)
{
    struct timespec ts;

    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void start_job(struct job *j, uint64_t seed, bool trace, int out)
{
    int fds[2];

    if (pipe2(fds, O_CLOEXEC))
        abort();
    fflush(NULL);
    j->seed = seed;
    j->began = now_s();
    j->fd = fds[0];
    snprintf(sim.dir, sizeof sim.dir, "/dev/shm/fpsim-%08d-%020llu", (int)getpid(), (unsigned long long)seed);
    mkdir(sim.dir, 0700);
    j->pid = fork();
    if (j->pid == 0) {
        report_fd = fds[1];
        opt.trace = trace;
        if (out >= 0)
            dup2(out, STDOUT_FILENO);
        run_seed(seed);
    }
    close(fds[1]);
}

/* True when it is over. */
static bool end_job(struct job *j, struct result *r, bool trace)
{
    char dir[96];
    int status = 0;
    bool late = now_s() - j->began > LIMIT_S * (trace ? 4 : 1);

    if (late)
        kill(j->pid, SIGKILL);
    if (waitpid(j->pid, &status, late ? 0 : WNOHANG) != j->pid)
        return false;
    memset(r, 0, sizeof *r);
    if (syscall(SYS_read, j->fd, r, sizeof *r) != sizeof *r)
        snprintf(r->why, sizeof r->why, late ? "no end within %d s" : "ended by signal %d", late ? LIMIT_S : WTERMSIG(status));
    close(j->fd);
    snprintf(dir, sizeof dir, "/dev/shm/fpsim-%08d-%020llu", (int)getpid(), (unsigned long long)j->seed);
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    j->pid = 0;
    return true;
}

static struct result run_alone(uint64_t seed, bool trace, int out)
{
    struct job j;
    struct result r;

    start_job(&j, seed, trace, out);
    while (!end_job(&j, &r, trace))
        usleep(2000);
    return r;
}

static void tell_failure(uint64_t seed, const struct result *r)
{
    char path[640], level[32] = "", bug[64] = "";
    const char *drains = opt.drains ? " --drains" : "";
    struct result again;
    int fd;

    snprintf(path, sizeof path, "%s/seed-%llu.trace", opt.out ? opt.out : here, (unsigned long long)seed);
    fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    again = run_alone(seed, true, fd);
    close(fd);
    if (opt.level != 3)
        snprintf(level, sizeof level, " --level %u", opt.level);
    if (opt.bug)
        snprintf(bug, sizeof bug, " --bug %s", opt.bug);
    printf("seed %llu FAILED %s\n  trace:  %s\n  replay: %s --seed %llu%s%s%s --trace\n", (unsigned long long)seed, r->why, path, self, (unsigned long long)seed, level, bug, drains);
    if (strcmp(again.why, r->why))
        printf("  it did not fail in the same way when it was run again: %s\n", again.why[0] ? again.why : "it passed");
    fflush(stdout);
}

static void add(struct result *sum, const struct result *r)
{
    uint64_t *a = (uint64_t *)(void *)&sum->work;
    const uint64_t *b = (const uint64_t *)(const void *)&r->work;

    sum->steps += r->steps;
    sum->messages += r->messages;
    sum->disk_ops += r->disk_ops;
    sum->now_ns += r->now_ns;
    for (size_t i = 0; i < sizeof sum->work / sizeof *a; i++)
        a[i] += b[i];
}

static int run_many(void)
{
    struct job jobs[JOBS_MAX] = {{0}};
    struct result sum = {0}, r;
    uint64_t next = 0, done = 0, failed = 0;
    double began = now_s();
    unsigned running = 0;

    while (running || (next < opt.runs && (!failed || opt.keep_going) && !(opt.seconds && now_s() - began > opt.seconds))) {
        bool more = next < opt.runs && (!failed || opt.keep_going) && !(opt.seconds && now_s() - began > opt.seconds);

        for (unsigned i = 0; i < opt.jobs; i++) {
            if (!jobs[i].pid && more && next < opt.runs) {
                start_job(&jobs[i], opt.seed + next++, false, -1);
                running++;
            } else if (jobs[i].pid && end_job(&jobs[i], &r, false)) {
                running--;
                done++;
                add(&sum, &r);
                if (!r.why[0])
                    continue;
                failed++;
                if (failed <= 10)
                    tell_failure(jobs[i].seed, &r);
            }
        }
        usleep(2000);
    }
    printf("%llu seeds from %llu on, %llu failed; %.0f s, %.1f seeds a second, %.0f s of virtual time, %llu steps, %llu messages, %llu disk operations\n",
           (unsigned long long)done, (unsigned long long)opt.seed, (unsigned long long)failed, now_s() - began, (double)done / (now_s() - began),
           (double)sum.now_ns / 1e9, (unsigned long long)sum.steps, (unsigned long long)sum.messages, (unsigned long long)sum.disk_ops);
    work_counts_print(&sum.work);
    return failed ? 1 : 0;
}

static int run_one(void)
{
    struct result r = run_alone(opt.seed, opt.trace, -1), again;

    printf("seed %llu: %s; hash %016llx, %.3f s of virtual time, %llu steps, %llu messages, %llu disk operations\n", (unsigned long long)opt.seed,
           r.why[0] ? r.why : "passed", (unsigned long long)r.hash, (double)r.now_ns / 1e9, (unsigned long long)r.steps, (unsigned long long)r.messages, (unsigned long long)r.disk_ops);
    if (!opt.twice)
        return r.why[0] ? 1 : 0;
    again = run_alone(opt.seed, false, -1);
    if (again.hash != r.hash || again.messages != r.messages || strcmp(again.why, r.why)) {
        printf("run again it differs: hash %016llx, %llu messages\n", (unsigned long long)again.hash, (unsigned long long)again.messages);
        return 1;
    }
    return r.why[0] ? 1 : 0;
}

static _Noreturn void usage(int code)
{
    printf("Usage: sim_store [--seed N] [--runs N] [--jobs N] [--seconds N] [--level 0-3] [--trace] [--twice] [--keep-going] [--out DIR] [--bug NAME] [--drains] [--checkpoint NODES:RANKS:WINDOWS[:shared]]\n");
    exit(code);
}

static void parse(int argc, char **argv)
{
    static const struct option longs[] = {{"seed", 1, 0, 's'},  {"runs", 1, 0, 'r'},  {"jobs", 1, 0, 'j'},       {"seconds", 1, 0, 't'}, {"level", 1, 0, 'l'}, {"trace", 0, 0, 'x'},
                                          {"twice", 0, 0, '2'}, {"keep-going", 0, 0, 'k'}, {"out", 1, 0, 'o'}, {"bug", 1, 0, 'b'},   {"help", 0, 0, 'h'},  {"checkpoint", 1, 0, 'c'}, {"drains", 0, 0, 'd'}, {0, 0, 0, 0}};
    int c;

    while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        if (c == 's')
            opt.seed = strtoull(optarg, NULL, 0);
        else if (c == 'r')
            opt.runs = strtoull(optarg, NULL, 0);
        else if (c == 'j')
            opt.jobs = (unsigned)strtoul(optarg, NULL, 0);
        else if (c == 't')
            opt.seconds = (unsigned)strtoul(optarg, NULL, 0);
        else if (c == 'l')
            opt.level = (unsigned)strtoul(optarg, NULL, 0);
        else if (c == 'o')
            opt.out = optarg;
        else if (c == 'b')
            opt.bug = optarg;
        else if (c == 'c' && checkpoint_parse(optarg, &opt.checkpoint))
            opt.level = 0;
        else if (c == 'd')
            opt.drains = true;
        else if (c == 'x')
            opt.trace = true;
        else if (c == '2')
            opt.twice = true;
        else if (c == 'k')
            opt.keep_going = true;
        else
            usage(c == 'h' ? 0 : 2);
    }
    if (optind < argc || opt.jobs < 1 || opt.jobs > JOBS_MAX)
        usage(2);
    if (opt.seconds && opt.runs == 1)
        opt.runs = UINT64_MAX;
}

/* Addresses of memory must not differ from run to run. */
static void without_aslr(char **argv)
{
    int now = personality(0xffffffff);

    if (now < 0 || (now & ADDR_NO_RANDOMIZE) || getenv("SIM_AGAIN"))
        return;
    setenv("SIM_AGAIN", "1", 1);
    if (personality((unsigned)now | ADDR_NO_RANDOMIZE) >= 0)
        execv("/proc/self/exe", argv);
}

int main(int argc, char **argv)
{
    ssize_t n;

    without_aslr(argv);
    mallopt(M_ARENA_MAX, 1); /* one thread runs at a time: arenas of their own would only have to grow, each by itself */
    mallopt(M_TOP_PAD, 4 << 20);
    parse(argc, argv);
    n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    snprintf(here, sizeof here, "%s", self);
    *strrchr(here, '/') = '\0';
    if (!sim_modules_load(here, (const unsigned[]){6, 14, 14, 8, 3}))
        return 2;
    return opt.runs == 1 ? run_one() : run_many();
}
