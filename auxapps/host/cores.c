/*
 * Service cores: see cores.h. Called by the control thread, and by each thread of the host for itself when it begins.
 *
 * hwloc says which of the cores exist, may be used, and share a physical core: two stages of a pipeline get two physical cores before
 * they get the two hardware threads of one. Here each thread is bound by itself, and threads that a plugin makes inherit it; what keeps those from going
 * elsewhere is the cpuset of the process, if there is one (client/aux/cpuset.c).
 *
 * The decision looks at what waits, not at how busy a thread is: an aux-app that keeps up needs no more, however busy. It gives back what it got
 * after two seconds in which fewer cores would have done, so that the rhythm of checkpoints (seconds) does not make cores go to and fro.
 */
#include "auxapps/host/cores.h"

#include <errno.h>
#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct aux_cores {
    hwloc_topology_t topo;
    hwloc_cpuset_t all;
    uint32_t n, width;
    struct { int cpu; unsigned rank; hwloc_obj_t pu; } v[AUX_CORES_MAX];
};

static int add_cpu(struct aux_cores *c, unsigned cpu, bool *missing)
{
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->v[i].cpu == (int)cpu)
            return 0;
    }
    hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(c->topo, cpu);

    if (!pu) {
        *missing = true;
        return 0;
    }
    if (c->n >= AUX_CORES_MAX)
        return -EINVAL;
    c->v[c->n].cpu = (int)cpu;
    c->v[c->n].pu = pu;
    c->v[c->n].rank = pu->sibling_rank;
    c->n++;
    hwloc_bitmap_or(c->all, c->all, pu->cpuset);
    return 0;
}

static int parse(struct aux_cores *c, const char *list, bool *missing)
{
    const char *s = list;

    while (*s) {
        char *end;
        unsigned long a = strtoul(s, &end, 10), b = a;

        if (end == s || *s < '0' || *s > '9')
            return -EINVAL;
        s = end;
        if (*s == '-') {
            b = strtoul(s + 1, &end, 10);
            if (end == s + 1)
                return -EINVAL;
            s = end;
        }
        if (b < a || b > 65535)
            return -EINVAL;
        for (; a <= b; a++) {
            int rc = add_cpu(c, (unsigned)a, missing);

            if (rc < 0)
                return rc;
        }
        if (*s == ',')
            s++;
        else if (*s)
            return -EINVAL;
    }
    return 0;
}

/* First hardware threads of physical cores first; else as they were given. */
static void order(struct aux_cores *c)
{
    for (uint32_t i = 1; i < c->n; i++) {
        for (uint32_t k = i; k > 0 && c->v[k - 1].rank > c->v[k].rank; k--) {
            __typeof__(c->v[0]) t = c->v[k];

            c->v[k] = c->v[k - 1];
            c->v[k - 1] = t;
        }
    }
}

int aux_cores_new(const char *list, struct aux_cores **out, char why[96])
{
    struct aux_cores *c = calloc(1, sizeof(*c));
    bool missing = false;
    cpu_set_t mine;
    int rc = -ENOMEM;

    why[0] = '\0';
    if (!c)
        return -ENOMEM;
    c->all = hwloc_bitmap_alloc();
    if (!c->all || hwloc_topology_init(&c->topo) < 0)
        goto fail;
    /* Caches, devices and memory are not asked for: loading is then a few milliseconds. */
    hwloc_topology_set_all_types_filter(c->topo, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(c->topo, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (hwloc_topology_load(c->topo) < 0)
        goto fail;
    rc = parse(c, list, &missing);
    if (rc < 0)
        goto fail;
    order(c);
    c->width = c->n > 0 ? c->n : 1;
    if (c->n == 0 && sched_getaffinity(0, sizeof(mine), &mine) == 0)
        c->width = (uint32_t)CPU_COUNT(&mine);
    if (c->n == 0 && list[0])
        snprintf(why, 96, "none of service cores %.32s may be used: threads are not pinned", list);
    else if (missing)
        snprintf(why, 96, "not all of the service cores %.40s may be used", list);
    *out = c;
    return 0;
fail:
    aux_cores_free(c);
    return rc;
}

void aux_cores_free(struct aux_cores *c)
{
    if (!c)
        return;
    if (c->topo)
        hwloc_topology_destroy(c->topo);
    if (c->all)
        hwloc_bitmap_free(c->all);
    free(c);
}

uint32_t aux_cores_count(const struct aux_cores *c)
{
    return c->n;
}

uint32_t aux_cores_width(const struct aux_cores *c)
{
    return c->width;
}

int aux_cores_cpu(const struct aux_cores *c, uint32_t i)
{
    return i < c->n ? c->v[i].cpu : -1;
}

int aux_cores_pin(const struct aux_cores *c, int cpu)
{
    hwloc_const_cpuset_t set = c->all;

    if (c->n == 0)
        return -1;
    if (c->n == 1)
        cpu = c->v[0].cpu;
    for (uint32_t i = 0; cpu >= 0 && i < c->n; i++) {
        if (c->v[i].cpu == cpu)
            set = c->v[i].pu->cpuset;
    }
    return hwloc_set_cpubind(c->topo, set, HWLOC_CPUBIND_THREAD) < 0 ? -1 : cpu;
}

int aux_cores_choose(const struct aux_cores *c, const uint32_t *mine, const uint32_t *load)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < c->n; i++) {
        if (mine[i] < mine[best] || (mine[i] == mine[best] && load[i] < load[best]))
            best = i;
    }
    return c->n > 0 ? c->v[best].cpu : -1;
}

int aux_cores_decide(struct aux_demand *d, uint64_t now_ms, uint32_t queue, uint32_t limit, uint32_t busy_permille, bool spare,
             char why[96])
{
    uint32_t full = limit / 2 > 2 ? limit / 2 : 2;

    d->full_ticks = queue >= full ? d->full_ticks + 1 : 0;
    if (queue > 0 || busy_permille > (d->active - 1) * 700)
        d->calm_since_ms = 0;
    else if (d->calm_since_ms == 0)
        d->calm_since_ms = now_ms;
    if (d->active < d->min || (d->full_ticks >= 2 && d->active < d->max && spare)) {
        snprintf(why, 96, "%u cores, was %u: %u chunks waited for %u ms", d->active + 1, d->active, queue, d->full_ticks * AUX_TICK_MS);
        if (d->active < d->min)
            snprintf(why, 96, "%u cores, was %u: that is its least number", d->active + 1, d->active);
        d->full_ticks = 0;
        d->calm_since_ms = 0;
        d->moved_ms = now_ms;
        return 1;
    }
    if (d->active > d->max) {
        snprintf(why, 96, "%u %s, was %u: that is its greatest number", d->active - 1, d->active == 2 ? "core" : "cores", d->active);
        d->moved_ms = now_ms;
        return -1;
    }
    if (d->active > d->min && d->calm_since_ms && now_ms - d->calm_since_ms >= AUX_CALM_MS) {
        snprintf(why, 96, "%u %s, was %u: nothing waited for %llu ms", d->active - 1, d->active == 2 ? "core" : "cores", d->active,
             (unsigned long long)(now_ms - d->calm_since_ms));
        d->calm_since_ms = 0;
        d->moved_ms = now_ms;
        return -1;
    }
    return 0;
}
