/*
 * Faults: what goes wrong in a run, and when, chosen by the seed before it begins. Each seed has some kinds of faults and not others, so that a rare
 * combination is not drowned by a frequent one. Some come at a time, others at a message or at an operation of a disk, where they do most harm.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/model.h"
#include "tests/sim/sim.h"

#define PLAN_MAX 24

enum kind { KILL, KILL_AT_MESSAGE, KILL_AT_DISK, POWER, CUT, BLOCK_ONE_WAY, BLOCK, ISOLATE, SLOW_NET, BROKEN_DISK, FULL_DISK, SLOW_DISK, ROT, CLOCK, PAUSE, TERM, KINDS };

struct fault {
    enum kind kind;
    uint64_t at; /* time, message or operation */
    struct sim_node *a, *b;
    bool done;
};

static const char *const names[KINDS] = {"kill", "kill at a message", "kill at a disk operation", "power loss", "cut", "one-way block", "block", "isolate", "slow network",
                                         "broken disk", "full disk", "slow disk", "bit rot", "clock", "pause", "SIGTERM"};
static const unsigned least_level[KINDS] = {2, 2, 2, 3, 1, 1, 1, 1, 1, 3, 3, 2, 3, 2, 2, 2};

static struct fault plan[PLAN_MAX];
static unsigned nplan;
static unsigned strikes[SIM_STRIKES]; /* so many of each are left */
static unsigned strike_ppm[SIM_STRIKES];

static struct sim_proc *any_proc(void)
{
    return &sim.procs[sim_below(SIM_RNG_FAULT, sim.nprocs)];
}

static struct sim_node *any_node(void)
{
    return &sim.nodes[sim_below(SIM_RNG_FAULT, sim.nnodes)];
}

static uint64_t some_seconds(uint64_t most_ms)
{
    return sim.now_ns + SIM_MS * (50 + sim_below(SIM_RNG_FAULT, most_ms));
}

/* ------------------------------------------------------------------ ends of faults that last */

static void end_block(void *arg)
{
    struct fault *f = arg;

    sim_trace("network between node %d and %d is well again", f->a->id, f->b->id);
    sim_net_block(f->a, f->b, false);
    sim_net_block(f->b, f->a, false);
}

static void end_isolate(void *arg)
{
    struct fault *f = arg;

    sim_trace("network of node %d is well again", f->a->id);
    for (unsigned i = 0; i < sim.nnodes; i++) {
        sim_net_block(f->a, &sim.nodes[i], false);
        sim_net_block(&sim.nodes[i], f->a, false);
    }
}

static void end_disk(void *arg)
{
    struct fault *f = arg;

    sim_trace("disk of node %d is well again", f->a->id);
    f->a->broken_disk = f->a->full_disk = false;
    f->a->slow_disk_ns = 0;
}

static void end_slow(void *arg)
{
    (void)arg;
    sim_net_slow_ns = 0;
}

/* ------------------------------------------------------------------ what happens */

static void disk_fault(struct fault *f)
{
    if (f->kind == BROKEN_DISK) {
        f->a->broken_disk = true;
        model_damaged();
    }
    if (f->kind == FULL_DISK)
        f->a->full_disk = true;
    if (f->kind == SLOW_DISK)
        f->a->slow_disk_ns = SIM_MS * (1 + sim_below(SIM_RNG_FAULT, 3000));
    sim_at(some_seconds(8000), end_disk, f);
}

static void net_fault(struct fault *f)
{
    if (f->kind == CUT) {
        sim_net_cut(f->a, f->b);
    } else if (f->kind == SLOW_NET) {
        sim_net_slow_ns = SIM_MS * (1 + sim_below(SIM_RNG_FAULT, 400));
        sim_at(some_seconds(5000), end_slow, NULL);
    } else if (f->kind == ISOLATE) {
        for (unsigned i = 0; i < sim.nnodes; i++)
            if (&sim.nodes[i] != f->a) {
                sim_net_block(f->a, &sim.nodes[i], true);
                sim_net_block(&sim.nodes[i], f->a, true);
            }
        sim_at(some_seconds(20000), end_isolate, f);
    } else if (f->a != f->b) {
        sim_net_block(f->a, f->b, true);
        if (f->kind == BLOCK)
            sim_net_block(f->b, f->a, true);
        sim_at(some_seconds(20000), end_block, f);
    }
}

static void happen(void *arg)
{
    struct fault *f = arg;
    struct sim_proc *p = any_proc();

    if (sim.healed || f->done)
        return;
    f->done = true;
    sim_trace("FAULT %s: node %d, node %d, %s", names[f->kind], f->a->id, f->b->id, p->name);
    switch (f->kind) {
    case KILL:
        sim_proc_kill(p, "killed");
        break;
    case POWER:
        sim_node_power_loss(f->a);
        break;
    case ROT:
        if (sim_disk_rot(f->a))
            model_damaged();
        break;
    case CLOCK:
        f->a->wall_ns += (int64_t)sim_below(SIM_RNG_FAULT, 7200 * SIM_S) - (int64_t)(3600 * SIM_S);
        break;
    case PAUSE:
        p->paused_until = some_seconds(9000);
        break;
    case TERM:
        sim_proc_term(p);
        break;
    case BROKEN_DISK:
    case FULL_DISK:
    case SLOW_DISK:
        disk_fault(f);
        break;
    default:
        net_fault(f);
    }
}

void sim_fault_message(struct sim_proc *from, struct sim_proc *to)
{
    for (unsigned i = 0; i < nplan; i++) {
        struct fault *f = &plan[i];

        if (f->done || f->kind != KILL_AT_MESSAGE || sim.healed || f->at > sim.messages)
            continue;
        f->done = true;
        switch (sim_below(SIM_RNG_FAULT, 3)) {
        case 0:
            sim_proc_kill(any_proc(), "at a message");
            break;
        case 1:
            if (to)
                sim_proc_kill(to, "before a message comes");
            break;
        default:
            if (from)
                sim_proc_kill(from, "after it has sent a message");
        }
    }
}

void sim_fault_disk(void)
{
    for (unsigned i = 0; i < nplan; i++) {
        struct fault *f = &plan[i];

        if (f->done || f->kind != KILL_AT_DISK || sim.healed || f->at > sim.disk_ops || !sim_self || !sim_self->proc)
            continue;
        f->done = true;
        sim_trace("%s dies in the middle of an operation of its disk", sim_self->proc->name);
        sim_self->proc->dying = true;
    }
}

/* ------------------------------------------------------------------ where it does harm */

static void lose_power(void *arg)
{
    if (!sim.healed)
        sim_node_power_loss(arg);
}

static void kill_it(void *arg)
{
    if (!sim.healed)
        sim_proc_kill(arg, "after an answer");
}

/* With what it has sent and the manager has not had yet. */
static void kill_cut_off(void *arg)
{
    struct sim_proc *m = arg;

    if (sim.healed)
        return;
    sim_net_cut(m->node, sim.procs[0].node);
    sim_proc_kill(m, "cut off, after an answer");
}

static void end_slow_disk(void *arg)
{
    ((struct sim_node *)arg)->slow_disk_ns = 0;
}

static void slow_for_a_while(struct sim_node *n)
{
    sim_trace("FAULT slow disk of node %d for a while", n->id);
    n->slow_disk_ns = SIM_MS * (20 + sim_below(SIM_RNG_FAULT, 500));
    sim_at(sim.now_ns + SIM_S, end_slow_disk, n);
}

static void hear_again(void *arg)
{
    if (!sim.healed)
        sim_net_block(sim.procs[0].node, arg, false);
}

/* What the manager tells other nodes comes late. */
static void deafen_others(const struct sim_proc *m)
{
    for (unsigned i = 1; i < sim.nnodes; i++)
        if (&sim.nodes[i] != m->node) {
            sim_trace("FAULT node %d hears nothing of the manager for a moment", (int)i);
            sim_net_block(sim.procs[0].node, &sim.nodes[i], true);
            sim_at(sim.now_ns + sim_below(SIM_RNG_FAULT, 400 * SIM_MS), hear_again, &sim.nodes[i]);
        }
}

/* What this node tells the manager comes late. */
static void speak_again(void *arg)
{
    if (!sim.healed)
        sim_net_block(arg, sim.procs[0].node, false);
}

static void silence(struct sim_node *n)
{
    sim_trace("FAULT the manager hears nothing of node %d for a moment", n->id);
    sim_net_block(n, sim.procs[0].node, true);
    sim_at(sim.now_ns + SIM_MS * (50 + sim_below(SIM_RNG_FAULT, 400)), speak_again, n);
}

/* For so long that the sessions of its mounts expire. */
static void part(struct sim_node *n)
{
    sim_trace("FAULT node %d and the manager do not hear of each other for long", n->id);
    sim_net_block(n, sim.procs[0].node, true);
    sim_net_block(sim.procs[0].node, n, true);
    sim_at(sim.now_ns + 26 * SIM_S + sim_below(SIM_RNG_FAULT, 4 * SIM_S), speak_again, n);
    sim_at(sim.now_ns + 26 * SIM_S + sim_below(SIM_RNG_FAULT, 4 * SIM_S), hear_again, n);
}

/* Of a benefactor, but not this one. */
static struct sim_node *other_node(const struct sim_node *n)
{
    unsigned i = 1 + (unsigned)sim_below(SIM_RNG_FAULT, sim.nnodes - 1);

    return &sim.nodes[&sim.nodes[i] == n ? 1 + i % (sim.nnodes - 1) : i];
}

/* Nothing can be stored for a while. */
static void pause_benefactors(void)
{
    uint64_t until = sim.now_ns + SIM_MS * (50 + sim_below(SIM_RNG_FAULT, 300));

    sim_trace("FAULT all benefactors stand still for a while");
    for (unsigned i = 0; i < sim.nprocs; i++)
        if (sim.procs[i].kind == SIM_BENEFACTOR && sim.procs[i].paused_until < until)
            sim.procs[i].paused_until = until;
}

/* The disk of the manager is slow when it sends what its transaction has to precede, and then its node loses power. */
static void lose_a_transaction(struct sim_node *n)
{
    slow_for_a_while(n);
    sim_at(sim.now_ns + 2 * SIM_MS + sim_below(SIM_RNG_FAULT, 10 * SIM_MS), lose_power, n);
}

/* A random time hits the moment between an answer and what should have come before it once in a thousand runs. So some runs have faults that follow an answer. */
bool sim_fault_strike(enum sim_strike s, struct sim_proc *m)
{
    if (!strikes[s] || sim.healed || !sim_chance(SIM_RNG_FAULT, strike_ppm[s]))
        return false;
    strikes[s]--;
    if (s == SIM_AFTER_FSYNC)
        sim_at(sim.now_ns + sim_below(SIM_RNG_FAULT, 20 * SIM_MS), lose_power, &sim.nodes[1 + sim_below(SIM_RNG_FAULT, sim.nnodes - 1)]);
    else if (s == SIM_AFTER_CHANGE)
        sim_at(sim.now_ns + sim_below(SIM_RNG_FAULT, 200 * SIM_MS), lose_power, &sim.nodes[0]);
    else if (s == SIM_AFTER_STRICT)
        deafen_others(m);
    else if (s == SIM_BEFORE_REPLACING)
        pause_benefactors();
    else if (s == SIM_AFTER_MAKING)
        silence(m->node);
    else if (s == SIM_BEFORE_DELETION)
        strikes[SIM_AT_DELETION] = 1;
    else if (s == SIM_AFTER_SYNC_OF_OTHERS)
        sim_at(sim.now_ns + sim_below(SIM_RNG_FAULT, 2 * SIM_MS), lose_power, m->node);
    else if (s == SIM_AFTER_CLOSING)
        sim_at(sim.now_ns + sim_below(SIM_RNG_FAULT, 2 * SIM_MS), lose_power, other_node(m->node));
    else if (s == SIM_AT_DELETION)
        lose_a_transaction(m->node);
    else if (s == SIM_AFTER_TOUCH)
        sim_at(sim.now_ns, kill_cut_off, m);
    else if (s == SIM_AFTER_BEHIND)
        slow_for_a_while(m->node);
    else if (s == SIM_WHILE_REWRITING)
        part(m->node);
    else
        sim_at(sim.now_ns + sim_below(SIM_RNG_FAULT, SIM_MS), kill_it, m);
    return true;
}

static void plan_strikes(unsigned level)
{
    unsigned ppm = (unsigned)sim_below(SIM_RNG_FAULT, 300000);

    for (int s = 0; s < SIM_STRIKES; s++)
        strike_ppm[s] = s >= SIM_BEFORE_REPLACING ? 500000 : ppm;
    for (int s = 0; s < SIM_AFTER_BEHIND; s++)
        if (level >= (s == SIM_AFTER_CREATION ? 2 : 3) && sim_chance(SIM_RNG_FAULT, 300000))
            strikes[s] = 1 + (unsigned)sim_below(SIM_RNG_FAULT, 3);
    for (unsigned i = 0; i < sim.nprocs && level; i++)
        if (sim.procs[i].strict)
            strikes[SIM_AFTER_STRICT] = 8;
    for (unsigned i = 0; i < sim.nprocs && level; i++)
        if (sim.procs[i].behind) {
            strikes[SIM_AFTER_BEHIND] = 6;
            strikes[SIM_AFTER_RENAME] = level >= 2 && sim.seed % 2;
            strikes[SIM_BEFORE_REPLACING] = strikes[SIM_AFTER_REPLACING] = level >= 2 ? 2 : 0;
        }
    if (level >= 2)
        strikes[SIM_AFTER_MAKING] = strikes[SIM_AFTER_TOUCH] = 3;
    if (level >= 2 && sim.versions)
        strikes[SIM_AFTER_REWRITING] = strikes[SIM_WHILE_REWRITING] = 1;
    strike_ppm[SIM_AT_DELETION] = 1000000;
    if (level >= 3 && sim_chance(SIM_RNG_FAULT, 400000))
        strikes[SIM_BEFORE_DELETION] = 2;
    if (level >= 3 && sim_chance(SIM_RNG_FAULT, 400000))
        strikes[SIM_AFTER_SYNC_OF_OTHERS] = 2;
    if (level >= 3 && sim.striped && sim_chance(SIM_RNG_FAULT, 600000))
        strikes[SIM_AFTER_CLOSING] = 2;
}

void sim_fault_plan(unsigned level)
{
    bool on[KINDS];
    unsigned n = level ? (unsigned)sim_below(SIM_RNG_FAULT, PLAN_MAX + 1) : 0;

    for (int k = 0; k < KINDS; k++)
        on[k] = level >= least_level[k] && sim_chance(SIM_RNG_FAULT, 500000);
    plan_strikes(level);
    for (unsigned i = 0; i < n; i++) {
        struct fault *f = &plan[nplan];

        f->kind = (enum kind)sim_below(SIM_RNG_FAULT, KINDS);
        f->a = any_node();
        f->b = any_node();
        if (!on[f->kind])
            continue;
        nplan++;
        if (f->kind == KILL_AT_MESSAGE) {
            f->at = 50 + sim_below(SIM_RNG_FAULT, 1500);
        } else if (f->kind == KILL_AT_DISK) {
            f->at = 50 + sim_below(SIM_RNG_FAULT, 600);
        } else {
            f->at = sim.now_ns + sim_below(SIM_RNG_FAULT, 14 * SIM_S);
            sim_at(f->at, happen, f);
        }
    }
    sim.quiet = nplan == 0;
    for (int s = 0; s < SIM_STRIKES; s++)
        sim.quiet &= strikes[s] == 0;
}

void sim_fault_heal(void)
{
    sim_trace("everything is healed");
    sim.healed = true;
    sim_net_slow_ns = 0;
    sim_net_heal();
    for (unsigned i = 0; i < sim.nnodes; i++) {
        sim.nodes[i].broken_disk = sim.nodes[i].full_disk = false;
        sim.nodes[i].slow_disk_ns = 0;
    }
    for (unsigned i = 0; i < sim.nprocs; i++)
        sim.procs[i].paused_until = 0;
}
