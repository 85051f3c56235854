/*
 * What the service cores of a node are to be near (see coremap.h): the device that the store's part is on, else the card of the fast network. Called by
 * agents, and by fp-job explain; one thread.
 *
 * From sysfs and not by hwloc's I/O devices alone: those have no name for what a RAID or a logical volume lies on, and burst SSDs are mostly one of these.
 */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "jobscripts/cores/coremap.h"

#define LAYERS_MAX 8 /* a logical volume on encryption on a RAID of partitions is four */

/* The first that a RAID or a device mapper's device lies on, appended to its path. false: it is none. */
static bool go_below(char *path, size_t size)
{
    char below[512] = "";
    DIR *d;

    if (snprintf(below, sizeof below, "%s/slaves", path) >= (int)sizeof below || !(d = opendir(below)))
        return false;
    below[0] = '\0';
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.' && (!below[0] || strcmp(e->d_name, below) < 0))
            snprintf(below, sizeof below, "%s", e->d_name);
    closedir(d);
    if (!below[0] || strlen(path) + strlen(below) + sizeof "/slaves/" > size)
        return false;
    strcat(strcat(path, "/slaves/"), below);
    return true;
}

static int numa_at(const char *path)
{
    static const char *const tails[] = {"/device/numa_node", "/device/device/numa_node", "/../device/numa_node", "/../device/device/numa_node"};
    int numa = -1;

    for (size_t i = 0; i < sizeof tails / sizeof tails[0] && numa < 0; i++) {
        char file[600], line[32];
        FILE *f;

        snprintf(file, sizeof file, "%s%s", path, tails[i]);
        f = fopen(file, "re");
        if (f && fgets(line, sizeof line, f))
            numa = atoi(line);
        if (f)
            fclose(f);
    }
    return numa;
}

int job_near_device(const char *sys, dev_t dev, char *name, size_t size)
{
    char path[512], at[PATH_MAX];

    if (snprintf(path, sizeof path, "%s/dev/block/%u:%u", sys, major(dev), minor(dev)) >= (int)sizeof path)
        return -1;
    for (int i = 0; i < LAYERS_MAX && go_below(path, sizeof path); i++)
        ;
    if (!realpath(path, at))
        return -1;
    snprintf(name, size, "%.40s", strrchr(at, '/') + 1);
    return numa_at(path);
}

/* The card of a fast network (InfiniBand, Omni-Path, Slingshot) tells more than an Ethernet one, of which there are several for other purposes. */
static int numa_of_network(hwloc_topology_t t, char *name, size_t size)
{
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_osdev(t, o));) {
        hwloc_obj_t above = hwloc_get_non_io_ancestor_obj(t, o);

        if (o->attr->osdev.type != HWLOC_OBJ_OSDEV_OPENFABRICS || !above || !above->nodeset || hwloc_bitmap_weight(above->nodeset) != 1)
            continue;
        snprintf(name, size, "%.40s", o->name ? o->name : "the network");
        return hwloc_bitmap_first(above->nodeset);
    }
    return -1;
}

void job_near_find(hwloc_topology_t topology, const char *dir, struct job_near *out)
{
    struct stat st;

    memset(out, 0, sizeof *out);
    out->numa = -1;
    if (dir && stat(dir, &st) == 0)
        out->numa = job_near_device("/sys", st.st_dev, out->what, sizeof out->what);
    if (out->numa < 0)
        out->numa = numa_of_network(topology, out->what, sizeof out->what);
}
