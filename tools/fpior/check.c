/* Which options go together. Apart from options.c, which knows each option alone. Every rank comes to the same answer; one prints. */
#include <string.h>
#include <strings.h>

#include "fpior.h"

const struct api *api_find(const char *name)
{
    static const struct api *const all[] = { &io_posix, &io_mpiio, &io_hdf5, &io_ncmpi, &io_netcdf4 };

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcasecmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
}

/* Of another API: nothing of it is done, as in IOR, whose users go through the APIs with one command line. */
static const char *idle(const struct params *p)
{
    const struct api *api = api_find(p->api);

    if ((p->preallocate || p->file_view) && api != &io_mpiio)
        return "-p and -V are of MPIIO alone";
    if ((p->single_attempt || p->odirect || p->range_locks) && api != &io_posix)
        return "-x, --posix.odirect and --posix.rangelocks are of POSIX alone";
    if ((p->alignment != 1 || p->no_fill || p->chunk_size || p->collective_metadata) && api != &io_hdf5)
        return "-J, -n, --hdf5.chunkSize and --hdf5.collectiveMetadata are of HDF5 alone";
    if ((p->show_hints || p->hints_file) && api == &io_posix)
        return "-H and -U: POSIX has no hints";
    return NULL;
}

static const char *wrong_api(const struct params *p)
{
    const struct api *api = api_find(p->api);

    if (!api)
        return "-a is one of POSIX, MPIIO, HDF5, NCMPI and NETCDF4";
    if (p->fsync_per_write && api != &io_posix && !p->collective && !p->file_per_proc)
        return "-Y: a sync of all tasks' file needs -c, but for POSIX";
    return NULL;
}

static const char *wrong_data(const struct params *p)
{
    static const char *const packets[] = { "timestamp", "t", "offset", "o", "incompressible", "i", "random", "r" };
    bool known = false;

    for (size_t i = 0; i < sizeof packets / sizeof packets[0]; i++)
        known |= strcasecmp(packets[i], p->packet) == 0;
    if (!known)
        return "-l is timestamp, offset, incompressible or random";
    if ((p->check_write || p->check_read) && !p->write && !p->signature) {
        if (strncasecmp(p->packet, "i", 1) == 0 || strncasecmp(p->packet, "r", 1) == 0)
            return "to verify incompressible or random data of an earlier run, give both the same -G N";
        if (strncasecmp(p->packet, "t", 1) == 0 && p->transfer_size < 32)
            return "to verify data of an earlier run by transfers below 32 bytes, give both the same -G N";
    }
    return NULL;
}

static const char *wrong_end(const struct params *p)
{
    int64_t memory;

    if (p->memory_per_node && !params_memory(p->memory_per_node, &memory))
        return "-M takes a size, or a share such as 75%";
    if (p->wear_out && !p->deadline_s)
        return "stoneWallingWearOut is for -D";
    if (p->status_file && p->write && !p->wear_out)
        return "stoneWallingStatusFile: what is written is counted with stoneWallingWearOut=1";
    if (p->random_offset > 1 && (p->check_write || p->check_read))
        return "-z -z: blocks that nobody has written cannot be verified";
    if (strcasecmp(p->summary_format, "default") != 0 && strcasecmp(p->summary_format, "JSON") != 0 && strcasecmp(p->summary_format, "CSV") != 0)
        return "summaryFormat is default, JSON or CSV";
    return NULL;
}

static const char *wrong(const struct params *p, int tasks)
{
    int64_t n = p->num_tasks ? p->num_tasks : tasks;

    if (p->block_size % p->transfer_size)
        return "blockSize (-b) is a multiple of transferSize (-t)";
    if (p->block_size > INT64_MAX / p->segment_count / n)
        return "the file is too large for its offsets";
    if (p->reorder && p->reorder_random)
        return "-C or -Z, not both";
    if (p->random_offset && p->file_view && api_find(p->api) == &io_mpiio)
        return "-z: a file view (-V) is read and written in order";
    if (p->unique_dir && !p->file_per_proc)
        return "-u is for -F";
    return wrong_end(p);
}

bool params_check(struct params *p, int tasks, bool print)
{
    const char *what = wrong_api(p);

    if (p->num_tasks > tasks) {
        if (print)
            fprintf(stderr, "fpior: -N: there are only %d tasks\n", tasks);
        p->num_tasks = tasks;
    }
    what = what ? what : wrong_data(p);
    what = what ? what : wrong(p, tasks);
    if (what && print)
        fprintf(stderr, "fpior: %s\n", what);
    else if (print && idle(p))
        fprintf(stderr, "fpior: passed over with %s: %s\n", p->api, idle(p));
    return !what;
}
