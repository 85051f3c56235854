/*
 * Chooses service cores (see coremap.h). Called on each node when its services start, and by fp-job explain.
 *
 * Whole cores: a hardware thread beside a rank's would take half of that rank's core, which is what functional partitioning is to prevent. From the last
 * core on, since operating systems and Slurm (CoreSpecCount) put what is theirs on the first, and ranks are counted from there. Cores of different kinds
 * (performance and efficiency) count as cores alike: which of them the application wants is not known.
 */
#include "jobscripts/cores/coremap.h"

#include <errno.h>
#include <hwloc/glibc-sched.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jobscripts/cores/cpus.h"
#include "jobscripts/launch/inherited.h"

/*
 * Plugins of hwloc that no core map needs. They start the libraries of GPUs, and ask every X server of the node: seconds, or for ever where one does not answer.
 * What is on the PCI bus, and what disks and networks these are, is in /sys for hwloc itself; libpciaccess adds names, and does not free what it has read.
 */
static void without_plugins(hwloc_topology_t t)
{
    static const char *const names[] = {"pci", "opencl", "gl", "cuda", "nvml", "rsmi", "levelzero"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        (void)hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, names[i]); /* fails if it is not installed */
}

hwloc_topology_t job_topology_here(void)
{
    hwloc_topology_t t;

    job_inherited_forget_cores();
    if (hwloc_topology_init(&t))
        return NULL;
    (void)hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    without_plugins(t);
    if (hwloc_topology_load(t) == 0)
        return t;
    hwloc_topology_destroy(t);
    return NULL;
}

int job_topology_keep_own(hwloc_topology_t t)
{
    size_t size = CPU_ALLOC_SIZE(JOB_CPUS_MAX);
    cpu_set_t *mine = CPU_ALLOC(JOB_CPUS_MAX);
    hwloc_bitmap_t own = hwloc_bitmap_alloc();
    int rc = mine && own ? 0 : -ENOMEM;

    if (rc == 0 && sched_getaffinity(0, size, mine) < 0)
        rc = -errno;
    if (rc == 0 && (hwloc_cpuset_from_glibc_sched_affinity(t, own, mine, size) < 0 || hwloc_topology_restrict(t, own, 0) < 0))
        rc = errno ? -errno : -EINVAL;
    hwloc_bitmap_free(own);
    CPU_FREE(mine);
    return rc;
}

/* ---------------------------------------------------------------- the choice */

struct choice {
    hwloc_topology_t t;
    hwloc_const_bitmap_t allowed;
    hwloc_bitmap_t service;
    uint32_t n;
};

/* The CPUs of a core that may be used; they are in `set`. False: none. */
static bool usable(const struct choice *c, hwloc_obj_t core, hwloc_bitmap_t set)
{
    hwloc_bitmap_and(set, core->cpuset, c->allowed);
    return !hwloc_bitmap_iszero(set);
}

static uint32_t count_cores(const struct choice *c, hwloc_bitmap_t set)
{
    uint32_t n = 0;

    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(c->t, HWLOC_OBJ_CORE, o));)
        n += usable(c, o, set);
    return n;
}

/* From the last one on, up to `want` in all; numa >= 0: of that node alone. */
static void take_cores(struct choice *c, uint32_t want, int numa, hwloc_bitmap_t set)
{
    int n = hwloc_get_nbobjs_by_type(c->t, HWLOC_OBJ_CORE);

    for (int i = n - 1; i >= 0 && c->n < want; i--) {
        hwloc_obj_t core = hwloc_get_obj_by_type(c->t, HWLOC_OBJ_CORE, (unsigned)i);

        if (!usable(c, core, set) || hwloc_bitmap_intersects(set, c->service) || (numa >= 0 && !hwloc_bitmap_isset(core->nodeset, (unsigned)numa)))
            continue;
        hwloc_bitmap_or(c->service, c->service, set);
        c->n++;
    }
}

/* list=: the cores that these CPUs are of, whole. */
static int take_list(struct choice *c, const char *list, hwloc_bitmap_t set, char *why)
{
    hwloc_bitmap_t asked = hwloc_bitmap_alloc();
    int rc = asked && hwloc_bitmap_list_sscanf(asked, list) == 0 ? 0 : -EINVAL;

    if (rc == 0 && !hwloc_bitmap_isincluded(asked, c->allowed)) {
        snprintf(why, JOB_COREMAP_WHY_BYTES, "not all of CPUs %.80s are there, or the job does not have them", list);
        rc = -EINVAL;
    }
    for (hwloc_obj_t o = NULL; rc == 0 && (o = hwloc_get_next_obj_by_type(c->t, HWLOC_OBJ_CORE, o));)
        if (usable(c, o, set) && hwloc_bitmap_intersects(set, asked)) {
            hwloc_bitmap_or(c->service, c->service, set);
            c->n++;
        }
    hwloc_bitmap_free(asked);
    return rc;
}

/* How many, of `cores`: a range takes what leaves the application three of four. */
static uint32_t how_many(const struct job_cores *w, uint32_t cores)
{
    uint32_t spare = cores / 4, part = (uint32_t)((uint64_t)cores * w->percent / 100);

    if (w->kind == JOB_CORES_SHARE)
        return part ? part : 1;
    if (w->kind != JOB_CORES_COUNT)
        return 0;
    return spare < w->min ? w->min : spare > w->max ? w->max : spare;
}

static int choose(struct choice *c, const struct job_cores *want, const struct job_near *near, hwloc_bitmap_t set, struct job_coremap *out, char *why)
{
    uint32_t n = how_many(want, out->cores);

    if (want->kind == JOB_CORES_LIST) {
        int rc = take_list(c, want->list, set, why);

        if (rc)
            return rc;
    } else if (n) {
        if (near->numa >= 0)
            take_cores(c, n, near->numa, set);
        if (c->n)
            snprintf(out->near, sizeof out->near, "NUMA node %d, of %s", near->numa, near->what);
        take_cores(c, n, -1, set);
    }
    if (c->n >= out->cores || c->n < n) {
        snprintf(why, JOB_COREMAP_WHY_BYTES, "%u service cores leave none for the application: the job has %u cores on this node", want->kind == JOB_CORES_LIST ? c->n : n, out->cores);
        return -ENOSPC;
    }
    return 0;
}

/* False: it does not fit, and is empty: the numbers that did, or a part of one, would be other CPUs. */
static bool list(char out[JOB_CPULIST_BYTES], hwloc_const_bitmap_t set)
{
    int n = hwloc_bitmap_list_snprintf(out, JOB_CPULIST_BYTES, set);

    if (n >= 0 && n < (int)JOB_CPULIST_BYTES)
        return true;
    out[0] = '\0';
    return false;
}

int job_coremap_choose(hwloc_topology_t topology, const struct job_cores *want, const struct job_near *near, struct job_coremap *out, char why[JOB_COREMAP_WHY_BYTES])
{
    struct choice c = {.t = topology, .allowed = hwloc_topology_get_allowed_cpuset(topology), .service = hwloc_bitmap_alloc()};
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    int rc;

    memset(out, 0, sizeof *out);
    why[0] = '\0';
    if (!c.service || !set)
        abort();
    out->cpus = (uint32_t)hwloc_bitmap_weight(c.allowed);
    out->cores = count_cores(&c, set);
    rc = choose(&c, want, near, set, out, why);
    if (rc == 0) {
        out->service_cores = c.n;
        hwloc_bitmap_andnot(set, c.allowed, c.service);
        if (!list(out->service, c.service) || !list(out->application, set)) {
            snprintf(why, JOB_COREMAP_WHY_BYTES, "the list of this node's CPUs has more than %u bytes", JOB_CPULIST_BYTES - 1);
            rc = -ENOBUFS;
        }
    }
    hwloc_bitmap_free(set);
    hwloc_bitmap_free(c.service);
    return rc;
}

int job_coremap_outside(hwloc_topology_t topology, const struct job_cores *want, const char *job_cpus, uint32_t left_out, struct job_coremap *out, char why[JOB_COREMAP_WHY_BYTES])
{
    char list[JOB_CPULIST_BYTES] = "";
    struct job_cores all = {.at = want->at, .kind = JOB_CORES_LIST, .list = list};
    struct job_near nowhere = {.numa = -1};
    hwloc_bitmap_t b = hwloc_bitmap_alloc();
    int rc = b && hwloc_bitmap_list_sscanf(b, job_cpus) == 0 ? 0 : -EINVAL;

    if (rc == 0)
        hwloc_bitmap_andnot(b, hwloc_topology_get_allowed_cpuset(topology), b);
    rc = rc ? rc : hwloc_bitmap_iszero(b) ? -ENOENT : hwloc_bitmap_list_snprintf(list, sizeof list, b) >= (int)sizeof list ? -ENOBUFS : 0;
    hwloc_bitmap_free(b);
    rc = rc ? rc : job_coremap_choose(topology, &all, &nowhere, out, why);
    if (rc == 0 && out->service_cores > left_out) {
        snprintf(why, JOB_COREMAP_WHY_BYTES, "%u cores of this node are not the job's (CPUs %.80s), and --core-spec leaves out %u: submit it without --core-spec", out->service_cores, out->service, left_out);
        rc = -EPERM;
    }
    if (rc == 0 && want->kind == JOB_CORES_COUNT && want->min > out->service_cores) {
        snprintf(why, JOB_COREMAP_WHY_BYTES, "%u service cores are declared, and --core-spec leaves out %u: CPUs %.80s", want->min, out->service_cores, out->service);
        rc = -ENOSPC;
    }
    if (rc == 0)
        snprintf(out->near, sizeof out->near, "--core-spec");
    return rc;
}

int job_coremap_write(hwloc_topology_t topology, const struct job_coremap *m, const char *path)
{
    hwloc_bitmap_t left = hwloc_bitmap_alloc();
    hwloc_topology_t t = NULL;
    int rc = left && hwloc_bitmap_list_sscanf(left, m->application) == 0 ? 0 : -EINVAL;

    if (rc == 0 && (hwloc_topology_dup(&t, topology) < 0 || hwloc_topology_restrict(t, left, 0) < 0 || hwloc_topology_export_xml(t, path, 0) < 0))
        rc = errno ? -errno : -EIO;
    if (t)
        hwloc_topology_destroy(t);
    hwloc_bitmap_free(left);
    return rc;
}
