/*
 * The scheduler: who runs next, and what time it is. Everything else of the simulator calls it; it is called with the baton, which is the only lock.
 *
 * Threads are real, so that thread-local variables and stacks are as usual; but a switch of the kernel's threads costs 5 us, which was half of a run. So there is one that runs: it
 * takes over the stack, the registers and the thread pointer of whose turn it is (switch.c), and what was made by pthread_create sleeps for ever. A thread of a killed process
 * is never run again; it is left lying.
 * Time stands still while anybody can run, but for a little at each look at a clock, so that who polls a clock gets on.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <dlfcn.h>

#include "tests/sim/sim.h"

#define STEPS_MAX UINT64_C(20000000)
#define TASKS_MAX 4096
#define TIME_MAX  (SIM_S * 4000)

struct event {
    uint64_t at, order;
    void (*fn)(void *);
    void *arg;
};

struct sim_world sim;
__thread struct sim_task *sim_self;

static uint64_t rng[SIM_RNG_N];
static struct sim_task *tasks;
static uint32_t ntasks;
static struct event *events; /* a heap */
static size_t nevents, events_cap;
static uint64_t event_order;
static unsigned waiters[1024]; /* how many wait for anything of this hash: most that wake wake nobody, and need not look at all tasks */

/* ------------------------------------------------------------------ random numbers: splitmix64 */

static uint64_t mix(uint64_t *s)
{
    uint64_t z = (*s += UINT64_C(0x9E3779B97F4A7C15));

    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

uint64_t sim_random(enum sim_stream s)
{
    return mix(&rng[s]);
}

uint64_t sim_below(enum sim_stream s, uint64_t n)
{
    return n ? sim_random(s) % n : 0;
}

bool sim_chance(enum sim_stream s, unsigned per_million)
{
    return per_million && sim_below(s, 1000000) < per_million;
}

void sim_sched_init(uint64_t seed)
{
    uint64_t s = seed * UINT64_C(0xD1342543DE82EF95) + 1;

    sim.seed = seed;
    sim.now_ns = SIM_S;
    sim.hash = UINT64_C(14695981039346656037);
    for (int i = 0; i < SIM_RNG_N; i++)
        rng[i] = mix(&s);
}

void sim_note(uint64_t what)
{
    for (int i = 0; i < 8; i++, what >>= 8)
        sim.hash = (sim.hash ^ (what & 0xff)) * UINT64_C(1099511628211);
}

/* ------------------------------------------------------------------ events */

static bool before(const struct event *a, const struct event *b)
{
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void swap(size_t a, size_t b)
{
    struct event e = events[a];

    events[a] = events[b];
    events[b] = e;
}

void sim_at(uint64_t when_ns, void (*fn)(void *), void *arg)
{
    size_t i = nevents++;

    if (nevents > events_cap) {
        events_cap = events_cap ? 2 * events_cap : 256;
        events = realloc(events, events_cap * sizeof *events);
    }
    events[i] = (struct event){when_ns, ++event_order, fn, arg};
    for (; i && before(&events[i], &events[(i - 1) / 2]); i = (i - 1) / 2)
        swap(i, (i - 1) / 2);
}

static struct event event_take(void)
{
    struct event e = events[0];
    size_t i = 0;

    events[0] = events[--nevents];
    for (;;) {
        size_t k = i, l = 2 * i + 1;

        if (l < nevents && before(&events[l], &events[k]))
            k = l;
        if (l + 1 < nevents && before(&events[l + 1], &events[k]))
            k = l + 1;
        if (k == i)
            return e;
        swap(i, k);
        i = k;
    }
}

/* ------------------------------------------------------------------ the baton */


static bool can_run(const struct sim_task *t)
{
    return t->state == SIM_READY && !(t->proc && t->proc->paused_until > sim.now_ns);
}

/* One look at all of them: those whose time has come are ready. How many can run, and if none, when one will. */
static unsigned look_at_tasks(struct sim_task **can, uint64_t *next)
{
    unsigned n = 0;

    *next = nevents ? events[0].at : SIM_NEVER;
    for (struct sim_task *t = tasks; t; t = t->next) {
        if (t->state == SIM_BLOCKED && t->until_ns <= sim.now_ns) {
            t->state = SIM_READY;
            t->timed_out = true;
        }
        if (t->state == SIM_BLOCKED) {
            *next = t->until_ns < *next ? t->until_ns : *next;
        } else if (can_run(t)) {
            if (n == TASKS_MAX)
                sim_fail("more threads can run than there should be");
            can[n++] = t;
        } else if (t->state == SIM_READY && t->proc->paused_until < *next) {
            *next = t->proc->paused_until;
        }
    }
    return n;
}

static void forget_dead(void)
{
    for (struct sim_task **p = &tasks; *p;)
        if ((*p)->state == SIM_DEAD)
            *p = (*p)->next; /* its thread sleeps on it for ever */
        else
            p = &(*p)->next;
}

static struct sim_task *choose(void)
{
    static struct sim_task *can[TASKS_MAX];

    for (;;) {
        unsigned n;
        uint64_t at;

        while (nevents && events[0].at <= sim.now_ns) {
            struct event e = event_take();

            e.fn(e.arg);
        }
        n = look_at_tasks(can, &at);
        if (n)
            return can[sim_below(SIM_RNG_SCHED, n)];
        if (at == SIM_NEVER)
            sim_fail("everybody waits, and nothing will happen");
        if (at > sim.now_ns)
            sim.now_ns = at;
        if (sim.now_ns > TIME_MAX)
            sim_fail("the run does not end: more than %d s of virtual time", (int)(TIME_MAX / SIM_S));
    }
}

/* Hands the baton on; returns when the caller has it again. */
static void switch_away(struct sim_task *me)
{
    struct sim_task *t = choose();

    if (++sim.steps > STEPS_MAX)
        sim_fail("the run does not end: more than %llu steps", (unsigned long long)STEPS_MAX);
    sim_note(t->id);
    if (t != me)
        sim_switch(me, t);
}

_Noreturn void sim_leave(void)
{
    struct sim_task *me = sim_self;

    me->state = SIM_DEAD;
    forget_dead();
    switch_away(me);
    abort(); /* nobody gives a dead one the baton */
}

static void *task_main(void *arg)
{
    struct sim_task *t = arg;

    sim_self = t;
    sim_wait_first_turn(t);
    t->ret = t->fn(t->arg);
    t->state = SIM_DONE;
    sim_wake_all(t);
    switch_away(t);
    abort(); /* nobody gives one that is through the baton */
}

struct sim_task *sim_task_new(struct sim_proc *p, struct sim_node *n, const char *name, void *(*fn)(void *), void *arg)
{
    static int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    struct sim_task *t = calloc(1, sizeof *t), **last = &tasks;
    pthread_attr_t attr;
    pthread_t handle;

    if (!create)
        create = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))(uintptr_t)dlsym(RTLD_NEXT, "pthread_create");
    t->proc = p;
    t->node = n;
    t->id = ++ntasks;
    t->fn = fn;
    t->arg = arg;
    t->until_ns = SIM_NEVER;
    snprintf(t->name, sizeof t->name, "%s", name);
    while (*last)
        last = &(*last)->next;
    *last = t;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, 1u << 20);
    if (create(&handle, &attr, task_main, t))
        sim_fail("no more threads");
    pthread_attr_destroy(&attr);
    t->handle = handle;
    return t;
}

_Noreturn void sim_run(void)
{
    switch_away(NULL);
    for (;;)
        syscall(SYS_pause);
}

/* ------------------------------------------------------------------ waiting */

static unsigned *waiters_for(const void *on)
{
    return &waiters[((uintptr_t)on >> 3) * UINT64_C(0x9E3779B97F4A7C15) >> 54];
}

bool sim_block(const void *on, uint64_t until_ns)
{
    struct sim_task *me = sim_self;

    sim_proc_check_dying();
    me->state = SIM_BLOCKED;
    me->on = on;
    ++*waiters_for(on); /* of a task that is killed it stays */
    me->until_ns = until_ns;
    me->timed_out = false;
    switch_away(me);
    --*waiters_for(on);
    me->on = NULL;
    me->until_ns = SIM_NEVER;
    return !me->timed_out;
}

void sim_yield(void)
{
    sim_proc_check_dying();
    switch_away(sim_self);
}

/* Where another thread might come between. */
void sim_maybe_yield(void)
{
    if (sim_self && sim_chance(SIM_RNG_SCHED, sim.preempt_ppm) && !(sim_self->proc && sim_self->proc->dying)) /* it would end here, with SQLite's locks */
        sim_yield();
}

void sim_sleep_ns(uint64_t ns)
{
    sim_block(NULL, sim.now_ns + ns);
}

void sim_wake_task(struct sim_task *t)
{
    if (t->state == SIM_BLOCKED)
        t->state = SIM_READY;
}

void sim_wake_all(const void *on)
{
    if (!*waiters_for(on))
        return;
    for (struct sim_task *t = tasks; t; t = t->next)
        if (t->state == SIM_BLOCKED && t->on == on)
            t->state = SIM_READY;
}

void sim_wake_one(const void *on)
{
    unsigned n = 0;

    for (struct sim_task *t = *waiters_for(on) ? tasks : NULL; t; t = t->next)
        n += t->state == SIM_BLOCKED && t->on == on;
    uint64_t k = sim_below(SIM_RNG_SCHED, n);

    for (struct sim_task *t = tasks; n && t; t = t->next)
        if (t->state == SIM_BLOCKED && t->on == on && k-- == 0) {
            t->state = SIM_READY;
            return;
        }
}

bool sim_join(struct sim_task *t, uint64_t until_ns)
{
    while (t->state != SIM_DONE)
        if (!sim_block(t, until_ns) && t->state != SIM_DONE)
            return false;
    return true;
}

struct sim_task *sim_tasks(void)
{
    return tasks;
}

struct sim_task *sim_task_of(unsigned long handle)
{
    for (struct sim_task *t = tasks; t; t = t->next)
        if (t->handle == handle && t->state != SIM_DEAD && t->proc == sim_self->proc)
            return t;
    return NULL;
}

void sim_tasks_kill(struct sim_proc *p)
{
    for (struct sim_task *t = tasks; t; t = t->next)
        if (t->proc == p)
            t->state = SIM_DEAD;
    forget_dead();
}

/* ------------------------------------------------------------------ clocks of nodes */

uint64_t sim_clock(const struct sim_task *t, bool wall)
{
    const struct sim_node *n = t ? t->node : NULL;

    sim.now_ns += 20;
    if (!n)
        return sim.now_ns;
    return sim.now_ns + (uint64_t)((int64_t)(sim.now_ns / 1000000) * n->drift_ppm + (wall ? n->wall_ns : n->mono_ns));
}

uint64_t sim_clock_back(const struct sim_task *t, bool wall, uint64_t ns)
{
    const struct sim_node *n = t ? t->node : NULL;
    int64_t x;

    if (!n)
        return ns;
    x = (int64_t)ns - (wall ? n->wall_ns : n->mono_ns);
    if (x <= 0)
        return 0;
    return (uint64_t)(x - (x / (1000000 + n->drift_ppm)) * n->drift_ppm) + 1000;
}
