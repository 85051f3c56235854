/*
 * fp-job explain [SCRIPT]: what the job would do, where, on which cores.
 *
 * For a user who wants to see FP(X,Y) before he waits for it. Node types are what Slurm says of the partition; where a device or the network's card is on
 * them is not known here, so cores that a node may choose near these are not shown: "the last ones, or near ..." is said instead.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/log.h"
#include "fp/units.h"
#include "jobscripts/cores/coremap.h"
#include "jobscripts/job.h"
#include "jobscripts/script/request.h"

/* Each package in a line: S for a service core, a for one of the application, . for one that the job does not have. */
static void print_cores(hwloc_topology_t t, const struct job_coremap *m)
{
    hwloc_bitmap_t service = hwloc_bitmap_alloc(), application = hwloc_bitmap_alloc();
    hwloc_obj_t above = NULL;

    if (!service || !application || hwloc_bitmap_list_sscanf(service, m->service) || hwloc_bitmap_list_sscanf(application, m->application))
        abort();
    for (hwloc_obj_t core = NULL; (core = hwloc_get_next_obj_by_type(t, HWLOC_OBJ_CORE, core));) {
        hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(t, HWLOC_OBJ_PACKAGE, core);

        if (core->logical_index == 0 || package != above)
            printf("%s  socket %-3u   ", core->logical_index ? "\n" : "", package ? package->logical_index : 0);
        above = package;
        putchar(hwloc_bitmap_intersects(core->cpuset, service) ? 'S' : hwloc_bitmap_intersects(core->cpuset, application) ? 'a' : '.');
    }
    putchar('\n');
    hwloc_bitmap_free(application);
    hwloc_bitmap_free(service);
}

static int print_map(hwloc_topology_t t, const struct job_cores *cores, const struct job_near *near)
{
    struct job_coremap m;
    char why[JOB_COREMAP_WHY_BYTES];

    if (job_coremap_choose(t, cores, near, &m, why)) {
        printf("  error        %s\n", why);
        return -EINVAL;
    }
    printf("  FP(%u,%u)\n", m.service_cores, m.cores);
    printf("  service      %s%s%s\n", m.service_cores ? m.service : "none: the services share the cores of the application", m.near[0] ? ": " : "", m.near);
    printf("  application  %s\n", m.application);
    print_cores(t, &m);
    return 0;
}

static hwloc_topology_t shape(const struct job_nodetype *n)
{
    hwloc_topology_t t;
    char text[96];

    snprintf(text, sizeof text, "pack:%u core:%u pu:%u", n->sockets, n->cores, n->threads);
    if (hwloc_topology_init(&t))
        return NULL;
    if (hwloc_topology_set_synthetic(t, text) == 0 && hwloc_topology_load(t) == 0)
        return t;
    hwloc_topology_destroy(t);
    return NULL;
}

static int explain_cores(const struct job_request *r)
{
    const struct job_near nowhere = {.numa = -1};
    int rc = 0;

    for (size_t i = 0; i < r->ntypes; i++) {
        const struct job_nodetype *n = &r->types[i];
        hwloc_topology_t t = shape(n);

        printf("node type      %u socket%s of %u cores, %u thread%s each: ", n->sockets, n->sockets == 1 ? "" : "s", n->cores, n->threads, n->threads == 1 ? "" : "s");
        printf(n->first[0] ? "%s, %u in all\n" : "as --node-cores says\n", n->first, n->nodes);
        rc = t && print_map(t, &r->declared.cores, &nowhere) == 0 ? rc : -EINVAL;
        if (t)
            hwloc_topology_destroy(t);
    }
    if (r->more_types)
        printf("               and %zu nodes of other types\n", r->more_types);
    if (r->nodes_are_here) {
        hwloc_topology_t t = job_topology_here();
        struct job_near near;

        printf("node type      not known: no Slurm says; this machine, as an example:\n");
        if (!t)
            return -EIO;
        job_near_find(t, r->declared.store.ssd[0] == '/' ? r->declared.store.ssd : NULL, &near);
        rc = print_map(t, &r->declared.cores, &near);
        hwloc_topology_destroy(t);
    }
    return rc;
}

static void explain_close(const struct job_request *r)
{
    static const char *const waits[] = {"until other nodes can see the data", "until the data is on the SSD", "for nothing: what was closed is lost with its node, until it is stored"};
    const struct job_line *l = r->declared.store_line;

    if (l && job_line_word(l, "close"))
        printf("  close waits  %s\n", waits[r->declared.store.close]);
}

static void explain_store(const struct job_request *r)
{
    const struct job_store *s = &r->declared.store;
    char each[FP_UNITS_BUF], all[FP_UNITS_BUF];

    if (s->size_bytes && r->nodes)
        printf("store          %s in all: %s on each of %u nodes", fp_format_size(all, s->size_bytes * r->nodes), fp_format_size(each, s->size_bytes), r->nodes);
    else if (s->size_bytes)
        printf("store          %s on each node", fp_format_size(each, s->size_bytes));
    else
        printf("store          nine tenths of what is free on each node");
    printf(", in %s\n", s->ssd);
    printf("  mounted at   %s\n", s->mount);
    explain_close(r);
    if (s->persistent)
        printf("  outlives the job, as %s\n", s->persistent);
    else if (s->on_failure == JOB_FAILURE_KEEP)
        printf("  outlives the job if not all data is brought out of it, or the job is killed before\n");
}

static void explain_auxapps(const struct job_request *r)
{
    const struct job_declared *d = &r->declared;

    for (size_t i = 0; i < d->nauxapps; i++) {
        const struct job_word *word = job_line_word(d->auxapps[i].line, "nodes");
        const char *on = word ? word->text + word->value : NULL;

        printf("%-14s %zu. %s: ", i ? "" : "aux-apps", i + 1, d->auxapps[i].text);
        if (strcmp(d->auxapps[i].name, "drain") == 0)
            printf("by the benefactors of all nodes\n");
        else if (on && r->nodes && strtoul(on, NULL, 10) > r->nodes)
            printf("on %s nodes, and the job has %u: see fp-job check\n", on, r->nodes);
        else if (on && r->nodes)
            printf("on the last %s of %u nodes\n", on, r->nodes);
        else if (on)
            printf("on the last %s of the nodes\n", on);
        else
            printf("on all nodes\n");
    }
}

/* drain_to: where results go of which it is not said; NULL: nowhere. */
static void explain_stage(const struct job_stage *list, size_t n, const char *title, const char *when, const char *drain_to)
{
    static const char *const after[] = {"if the application ends with 0", "if the application fails", "however the application ends"};

    for (size_t i = 0; i < n; i++) {
        const char *to = list[i].to ? list[i].to : drain_to;

        printf("%-14s", i ? "" : title);
        for (size_t k = 0; k < list[i].paths.count; k++)
            printf(" %s", list[i].paths.items[k]);
        printf("%s%s, %s\n", to ? " to " : "", to ? to : "", when ? when : after[list[i].when]);
    }
}

static const char *drain_target(const struct job_declared *d)
{
    const struct job_auxapp *drain = job_declared_drain(d);
    const struct job_word *to = drain ? job_line_word(drain->line, "to") : NULL;

    return to ? to->text + to->value : NULL;
}

int job_cmd_explain(const struct job_options *o)
{
    struct job_request r;
    int rc = job_request_read(o, &r);

    if (rc)
        return rc;
    job_findings_sort(&r.findings);
    job_findings_print(&r.findings, r.name);
    rc = r.findings.errors ? -EINVAL : 0;
    if (rc)
        FP_ERROR("%s has mistakes: fp-job check says all of them", r.name);
    else {
        explain_store(&r);
        rc = explain_cores(&r);
        explain_auxapps(&r);
        explain_stage(r.declared.in, r.declared.nin, "stage-in", "before the application begins", NULL);
        explain_stage(r.declared.out, r.declared.nout, "stage-out", NULL, drain_target(&r.declared));
    }
    job_request_fini(&r);
    return rc;
}
