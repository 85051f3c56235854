/*
 * What keeps a plugin's failure inside this process, and tells fp-mount whose it was.
 *
 * A fatal signal is noted in the status page, then the process dies of it as it would have; fp-mount starts another. Nothing is tried to go on: what a
 * plugin has spoilt is not known. Whose fault it was: the aux-app whose callback the thread is in; for a thread that a plugin made itself, the one whose
 * code it was running. The handler runs on a stack of its own, since a stack that is full is one of the cases; it only reads and writes memory.
 * Also noted: a plugin that calls exit().
 *
 * The process keeps no privilege and no descriptor but those it needs, makes no core files (the pool has the application's data), and is the first to
 * go when memory is short: that costs a restart, killing fp-mount would cost the mount.
 */
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "auxapps/host/host.h"
#include "fp/clock.h"

#define STACK_BYTES (64u << 10)
#define SHORT_NS 100000u               /* the least slice that Linux gives */

_Thread_local struct aux_thread *aux_self;
static struct aux_host *the_host;      /* set once, before any plugin runs */

/* -------------------------------------------------------------- fatal signals */

static uintptr_t program_counter(const void *context)
{
    const ucontext_t *u = context;

#if defined(__x86_64__)
    return (uintptr_t)u->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uintptr_t)u->uc_mcontext.pc;
#else
    (void)u;
    return 0;
#endif
}

/* Place + 1 of the aux-app whose code is at pc; 0: none's. */
static uint32_t owner_of(uintptr_t pc)
{
    uint32_t n = atomic_load(&the_host->nall);

    for (uint32_t i = 0; i < n; i++) {
        const struct aux_app *a = the_host->app[i];

        for (uint32_t k = 0; a && a->plugin && k < a->plugin->nranges; k++) {
            if (pc >= a->plugin->range[k].from && pc < a->plugin->range[k].to)
                return i + 1;
        }
    }
    return 0;
}

static void note_crash(uint32_t sig, uintptr_t pc)
{
    uint32_t app = 0, none = 0;

    if (!the_host || !the_host->status)
        return;
    if (aux_self && aux_self->slot)
        app = atomic_load(&aux_self->slot->in_call);
    if (app == 0 && pc != 0)
        app = owner_of(pc);
    /* The first one counts: what follows may be its consequence. */
    if (atomic_compare_exchange_strong(&the_host->status->crashed_app, &none, app))
        atomic_store(&the_host->status->crashed_signal, sig);
}

static void on_fatal(int sig, siginfo_t *info, void *context)
{
    (void)info;
    note_crash((uint32_t)sig, program_counter(context));
    signal(sig, SIG_DFL);
    raise(sig);    /* comes when this handler returns */
}

/* The host itself ends by _exit. */
static void on_exit_called(int code, void *arg)
{
    (void)arg;
    note_crash(FP_AUXW_EXITED + ((uint32_t)code & 0xff), 0);
}

void aux_guard_status(struct aux_host *h)
{
    static const int sigs[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGSYS};
    struct sigaction sa = {.sa_sigaction = on_fatal, .sa_flags = SA_SIGINFO | SA_ONSTACK};

    the_host = h;
    sigemptyset(&sa.sa_mask);
    for (size_t i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++)
        sigaction(sigs[i], &sa, NULL);
    on_exit(on_exit_called, NULL);
}

/* -------------------------------------------------------------- the process */

/* Until the declared aux-apps have started, and for the loader: what fp-mount could read can be read. */
#define READ_ALL (1u << CAP_DAC_READ_SEARCH)

static uint32_t permitted(void)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct now[2];

    memset(now, 0, sizeof(now));
    return syscall(SYS_capget, &head, now) == 0 ? now[0].permitted : 0;
}

/* The calling thread keeps no others than `keep`, and uses `use` of them. */
static void set_capabilities(uint32_t keep, uint32_t use)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct want[2];

    memset(want, 0, sizeof(want));
    keep &= keep ? permitted() : 0;
    want[0].permitted = keep;
    want[0].effective = keep & use;
    syscall(SYS_capset, &head, want);
}

void aux_guard_drop(void)
{
    set_capabilities(0, 0);
}

bool aux_guard_has_reserve(void)
{
    return (permitted() & READ_ALL) != 0;
}

void aux_guard_reserve(bool use)
{
    set_capabilities(READ_ALL, use ? READ_ALL : 0);
}

static void offer_to_oom_killer(void)
{
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    if (write(fd, "300", 3) < 0) {
        /* Not permitted here: then it stands as any other process. */
    }
    close(fd);
}

void aux_guard_init(void)
{
    static const int ignored[] = {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM};
    struct rlimit no_core = {0, 0};
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    if (null >= 0) {
        dup2(null, 0);
        close(null);
    }
    close_range(FP_AUXW_FD_STATUS + 1, ~0u, 0);
    for (int fd = FP_AUXW_FD_JOBS; fd <= FP_AUXW_FD_STATUS; fd++)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    setrlimit(RLIMIT_CORE, &no_core);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    offer_to_oom_killer();
    for (int cap = 0; cap < 64 && prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
        prctl(PR_CAPBSET_DROP, cap, 0, 0, 0);
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    /* root's aux-apps may be kept in a user's home, and so may their keys. */
    set_capabilities(READ_ALL, READ_ALL);
    /* Ctrl-C at a mount in the foreground is fp-mount's affair: it needs its aux-apps until it has written all out. So are marks of a batch system for its job. The end of the socket is our end. */
    for (size_t i = 0; i < sizeof(ignored) / sizeof(ignored[0]); i++)
        signal(ignored[i], SIG_IGN);
}

/* -------------------------------------------------------------- threads */

void aux_thread_mark(uint32_t app, uint32_t deadline_ms)
{
    struct fp_auxw_thread *slot = aux_self ? aux_self->slot : NULL;

    if (!slot)
        return;
    atomic_store_explicit(&slot->deadline_ms, deadline_ms, memory_order_relaxed);
    atomic_store_explicit(&slot->since_ns, fp_now_ns(), memory_order_relaxed);
    atomic_store_explicit(&slot->in_call, app == FP_AUXW_NO_APP ? 0 : app + 1, memory_order_release);
}

/* As the kernel has it; glibc has no name for it before 2.41. */
struct attr { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority; uint64_t runtime_ns, deadline_ns, period_ns; };

void aux_thread_short(void)
{
    struct attr a = {.size = sizeof(a)};

    if (syscall(SYS_sched_getattr, 0, &a, sizeof(a), 0) < 0 || a.policy != 0)
        return;
    a.size = sizeof(a);
    a.flags = 0;
    a.runtime_ns = SHORT_NS;
    /* Kernels before 6.12 have no slice of a thread's own: then it waits its turn. */
    syscall(SYS_sched_setattr, 0, &a, 0);
}

_Static_assert(FP_AUXW_THREADS_MAX == 64, "slots_taken has a bit for each slot");
static _Atomic uint64_t slots_taken;

/* A slot counts for fp-mount once it has a tid: that is written last, and wiped first. */
static struct fp_auxw_thread *take_slot(struct fp_auxw_status *st, uint32_t app, int cpu)
{
    uint64_t taken = atomic_load(&slots_taken);
    int i;

    do {
        if (taken == UINT64_MAX)
            return NULL;
        i = __builtin_ctzll(~taken);
    } while (!atomic_compare_exchange_weak(&slots_taken, &taken, taken | 1ull << i));
    struct fp_auxw_thread *slot = &st->thread[i];

    atomic_store(&slot->in_call, 0);
    atomic_store(&slot->busy_ns, 0);
    atomic_store(&slot->core, cpu);
    atomic_store(&slot->app, app);
    atomic_store(&slot->tid, (uint32_t)syscall(SYS_gettid));
    return slot;
}

static void give_slot(struct fp_auxw_status *st, struct fp_auxw_thread *slot)
{
    atomic_store(&slot->tid, 0);
    atomic_fetch_and(&slots_taken, ~(1ull << (slot - st->thread)));
}

void aux_thread_begin(struct aux_thread *t, struct aux_host *h, uint32_t app, int cpu)
{
    memset(t, 0, sizeof(*t));
    t->h = h;
    t->cpu = h->cores ? aux_cores_pin(h->cores, cpu) : -1;
    t->alt_stack = malloc(STACK_BYTES);
    if (t->alt_stack) {
        stack_t ss = {.ss_sp = t->alt_stack, .ss_size = STACK_BYTES};

        sigaltstack(&ss, NULL);
    }
    t->slot = take_slot(h->status, app, t->cpu);
    aux_self = t;
}

void aux_thread_end(struct aux_thread *t)
{
    stack_t off = {.ss_flags = SS_DISABLE};

    aux_self = NULL;
    if (t->slot)
        give_slot(t->h->status, t->slot);
    sigaltstack(&off, NULL);
    free(t->alt_stack);
    free(t->scratch);
    aux_fence_fini(&t->fence);
    free(t->pieces);
    free(t->spare);
}
