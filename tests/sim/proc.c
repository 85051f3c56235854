/*
 * Simulated processes: a program is a shared object with a main(), loaded once more for each start, so that its statics are fresh and are its
 * own. Copies are loaded from memory files, since the dynamic linker loads a file only once; those that a run is likely to need, before the runs fork.
 *
 * A process that is killed leaves its memory behind. Its threads are never run again, its descriptors are closed as the kernel would.
 * One that is killed while SQLite (shared by all, with locks of its own) is at work becomes "dying": nothing that it does from then on reaches a disk or a
 * socket, and it ends at the next point where it would wait.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/sim/sim.h"
#include "tests/sim/disk.h"
#include "tests/sim/model.h"
#include "tests/sim/work.h"

#define SPARE_MAX     48
#define KINDS         5
#define RESTART_MS    300
#define RESTART_RANGE 4000

static struct {
    void *image;
    size_t len;
    void *spare[SPARE_MAX];
    unsigned n;
} modules[KINDS];

static const char *const module_names[KINDS] = {"manager", "benefactor", "mount", "drain", "ctl"};

/* ------------------------------------------------------------------ modules */

static void *load_copy(enum sim_kind kind)
{
    int fd = memfd_create(module_names[kind], 0);
    char path[32];
    void *handle;

    if (fd < 0 || ftruncate(fd, (off_t)modules[kind].len) || syscall(SYS_pwrite64, fd, modules[kind].image, modules[kind].len, 0) != (long)modules[kind].len)
        return NULL;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd); /* the number is never used again: the linker knows what is loaded by this name */
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        fprintf(stderr, "sim: %s\n", dlerror());
    return handle;
}

static bool load_kind(const char *dir, enum sim_kind kind, unsigned count)
{
    char path[512];
    struct stat st;
    int fd;

    snprintf(path, sizeof path, "%s/%s.so", dir, module_names[kind]);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st)) {
        fprintf(stderr, "sim: %s: %s\n", path, strerror(errno));
        return false;
    }
    modules[kind].len = (size_t)st.st_size;
    modules[kind].image = mmap(NULL, modules[kind].len, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    for (unsigned i = 0; i < count && i < SPARE_MAX; i++)
        if ((modules[kind].spare[modules[kind].n++] = load_copy(kind)) == NULL)
            return false;
    return true;
}

bool sim_modules_load(const char *dir, const unsigned counts[])
{
    for (int k = 0; k < KINDS; k++)
        if (!load_kind(dir, (enum sim_kind)k, counts[k]))
            return false;
    return true;
}

static void *module_take(enum sim_kind kind)
{
    void *m = modules[kind].n ? modules[kind].spare[--modules[kind].n] : load_copy(kind);

    if (!m)
        sim_fail("no more copies of a program can be loaded");
    return m;
}

/* ------------------------------------------------------------------ processes */

void sim_proc_add(enum sim_kind kind, struct sim_node *n, const char *name)
{
    struct sim_proc *p = &sim.procs[sim.nprocs];

    p->id = (int)sim.nprocs++;
    p->kind = kind;
    p->node = n;
    snprintf(p->name, sizeof p->name, "%s", name);
}

void sim_proc_arg(struct sim_proc *p, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(p->text[p->argc], sizeof p->text[0], fmt, ap);
    va_end(ap);
    p->argv[p->argc] = p->text[p->argc];
    p->argv[++p->argc] = NULL;
}

static void start_event(void *arg)
{
    sim_proc_start(arg);
}

/* A supervisor starts it again, as systemd would. What a benefactor has started is the benefactor's. */
static void restart_later(struct sim_proc *p)
{
    if (p->kind == SIM_DRAIN)
        return;
    sim_at(sim.now_ns + SIM_MS * (RESTART_MS + sim_below(SIM_RNG_FAULT, RESTART_RANGE)), start_event, p);
}

static void *proc_main(void *arg)
{
    struct sim_proc *p = arg;
    int (*program)(int, char **) = (int (*)(int, char **))(uintptr_t)dlsym(p->module, "main");

    sim_proc_exit(program(p->argc, p->argv));
}

void sim_proc_start(struct sim_proc *p)
{
    if (p->up || !p->node->up)
        return;
    p->up = true;
    p->ready = p->dying = p->told_end = false;
    p->paused_until = 0;
    p->fuse = NULL;
    p->starts++;
    p->module = module_take(p->kind);
    if (p->kind == SIM_MANAGER)
        sim_disk_renew_database(p->node);
    sim_trace("start %s (%u)", p->name, p->starts);
    sim_task_new(p, p->node, "main", proc_main, p);
}

static void gone(struct sim_proc *p, bool silent)
{
    if (p->kind == SIM_MOUNT) {
        model_mount_died(p);
        names_mount_died(p);
    }
    if (p->kind == SIM_CTL)
        sim_ctl_gone();
    p->up = p->ready = p->dying = false;
    sim_tasks_kill(p);
    sim_fds_close_all(p, silent);
    sim_uv_gone(p);
    sim_fuse_gone(p);
}

void sim_proc_kill(struct sim_proc *p, const char *why)
{
    bool own = sim_self && sim_self->proc == p;

    if (!p->up)
        return;
    sim_trace("KILL %s: %s", p->name, why);
    sim_note((uint64_t)p->id + 0x4b00);
    work_counts.kills++;
    p->exit_code = 0x100 + SIGKILL;
    gone(p, false);
    restart_later(p);
    sim_children_kill(p); /* may be the caller */
    if (own)
        sim_leave();
}

void sim_proc_check_dying(void)
{
    if (sim_self && sim_self->proc && sim_self->proc->dying)
        sim_proc_kill(sim_self->proc, "in the middle of a disk operation");
}

_Noreturn void sim_proc_exit(int code)
{
    struct sim_proc *p = sim_self->proc;

    sim_trace("%s ends with %d", p->name, code);
    p->exit_code = code;
    gone(p, false);
    restart_later(p);
    sim_children_kill(p);
    sim_leave();
}

void sim_proc_term(struct sim_proc *p)
{
    if (!p->up)
        return;
    sim_trace("SIGTERM to %s", p->name);
    model_asked(0);
    p->told_end = true;
    sim_wake_all(&p->told_end);
    sim_uv_signal(p, SIGTERM);
}

static void node_up(void *arg)
{
    struct sim_node *n = arg;

    if (n->up)
        return;
    n->up = true;
    n->boots++;
    n->mono_ns = (int64_t)sim_below(SIM_RNG_FAULT, 100 * SIM_S) - (int64_t)sim.now_ns + (int64_t)SIM_S;
    if (n->mono_ns + (int64_t)sim.now_ns < (int64_t)SIM_S)
        n->mono_ns = (int64_t)SIM_S - (int64_t)sim.now_ns;
    sim_trace("node %d is up again (boot %u)", n->id, n->boots);
    sim_net_go_on();
    for (unsigned i = 0; i < sim.nprocs; i++)
        if (sim.procs[i].node == n)
            restart_later(&sim.procs[i]);
}

void sim_node_power_loss(struct sim_node *n)
{
    bool own = sim_self && sim_self->node == n && sim_self->proc;

    if (!n->up)
        return;
    sim_trace("POWER LOSS of node %d", n->id);
    n->up = false;
    work_counts.powers++;
    for (unsigned i = 0; i < sim.nprocs; i++)
        if (sim.procs[i].node == n && sim.procs[i].up)
            gone(&sim.procs[i], true);
    model_power_lost(n);
    if (n == sim.procs[0].node)
        names_power_lost();
    sim_net_node_down(n);
    sim_disk_power_loss(n);
    sim_at(sim.now_ns + SIM_MS * (500 + sim_below(SIM_RNG_FAULT, 10000)), node_up, n);
    if (own)
        sim_leave();
}
