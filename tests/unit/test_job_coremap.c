/* Which cores become service cores, on machines of many shapes (hwloc's synthetic ones). */
#include "tests/unit/job_fixture.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include "fp/rmtree.h"
#include "jobscripts/cores/coremap.h"

static const struct job_near nowhere = {.numa = -1};
static struct job_coremap map;
static char why[JOB_COREMAP_WHY_BYTES];

/* allowed NULL: all of it; job_cpus NULL: services are among the job's own. */
static uint32_t left_out = 2;

static int on_of(const char *machine, const char *allowed, const char *want, const struct job_near *near, const char *job_cpus)
{
    struct job_findings f;
    struct job_cores cores = {.kind = JOB_CORES_NONE};
    hwloc_topology_t t;
    int rc;

    job_findings_init(&f);
    if (want[0])
        assert_true(job_cores_parse(want, (struct job_place){1, 1}, &cores, &f));
    job_findings_fini(&f);
    assert_int_equal(hwloc_topology_init(&t), 0);
    assert_int_equal(hwloc_topology_set_synthetic(t, machine), 0);
    assert_int_equal(hwloc_topology_set_flags(t, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED), 0);
    assert_int_equal(hwloc_topology_load(t), 0);
    if (allowed) {
        hwloc_bitmap_t set = hwloc_bitmap_alloc();

        assert_int_equal(hwloc_bitmap_list_sscanf(set, allowed), 0);
        assert_int_equal(hwloc_topology_allow(t, set, NULL, HWLOC_ALLOW_FLAG_CUSTOM), 0);
        hwloc_bitmap_free(set);
    }
    rc = job_cpus ? job_coremap_outside(t, &cores, job_cpus, left_out, &map, why) : job_coremap_choose(t, &cores, near, &map, why);
    hwloc_topology_destroy(t);
    return rc;
}

static int on(const char *machine, const char *allowed, const char *want, const struct job_near *near)
{
    return on_of(machine, allowed, want, near, NULL);
}

static void gives(const char *machine, const char *allowed, const char *want, const char *service, const char *application)
{
    if (on(machine, allowed, want, &nowhere))
        fail_msg("%s on %s: %s", want, machine, why);
    assert_string_equal(map.service, service);
    assert_string_equal(map.application, application);
}

static void test_the_last_core_is_taken(void **state)
{
    (void)state;
    gives("pack:2 core:4 pu:1", NULL, "1", "7", "0-6");
    assert_int_equal(map.cores, 8);
    assert_int_equal(map.service_cores, 1);
    assert_string_equal(map.near, "");
    gives("pack:2 core:4 pu:1", NULL, "2", "6-7", "0-5");
}

static void test_no_core_is_split(void **state)
{
    (void)state;
    gives("pack:1 core:4 pu:2", NULL, "1", "6-7", "0-5");
    assert_int_equal(map.cores, 4);
    assert_int_equal(map.cpus, 8);
    /* as Linux numbers hardware threads: 0-3 are the first of each core */
    gives("pack:1 core:4 pu:2(indexes=0,4,1,5,2,6,3,7)", NULL, "1", "3,7", "0-2,4-6");
    gives("pack:1 core:4 pu:2(indexes=0,4,1,5,2,6,3,7)", NULL, "list=4", "0,4", "1-3,5-7");
}

static void test_more_than_64_cpus(void **state)
{
    (void)state;
    gives("pack:2 core:64 pu:2", NULL, "2", "252-255", "0-251");
    gives("pack:2 core:64 pu:1", NULL, "list=63-64", "63-64", "0-62,65-127");
}

static void test_cores_near_the_device_are_preferred(void **state)
{
    const struct job_near first = {.numa = 0, .what = "nvme0n1"};

    (void)state;
    assert_int_equal(on("pack:2 [numa] core:4 pu:1", NULL, "1", &first), 0);
    assert_string_equal(map.service, "3");
    assert_string_equal(map.near, "NUMA node 0, of nvme0n1");
    /* more than that node has: the others from the last one on */
    assert_int_equal(on("pack:2 [numa] core:2 pu:1", NULL, "3", &first), 0);
    assert_string_equal(map.service, "0-1,3");
    /* none there is ours */
    assert_int_equal(on("pack:2 [numa] core:4 pu:1", "4-7", "1", &first), 0);
    assert_string_equal(map.service, "7");
    assert_string_equal(map.near, "");
}

static void test_a_share_of_a_node(void **state)
{
    (void)state;
    gives("pack:1 core:8 pu:1", "2-4", "1", "4", "2-3");
    assert_int_equal(map.cores, 3);
    gives("pack:1 core:4 pu:2", "1-4", "1", "4", "1-3"); /* half of two cores is the job's: what it has of them is not split */
}

static void test_shares_and_ranges(void **state)
{
    (void)state;
    gives("core:40 pu:1", NULL, "share=5%", "38-39", "0-37");
    gives("core:8 pu:1", NULL, "share=5%", "7", "0-6");
    gives("core:4 pu:1", NULL, "1-3", "3", "0-2");
    gives("core:8 pu:1", NULL, "1-3", "6-7", "0-5");
    gives("core:64 pu:1", NULL, "1-3", "61-63", "0-60");
    gives("core:64 pu:1", NULL, "", "", "0-63");
}

static void test_what_leaves_nothing_is_refused(void **state)
{
    (void)state;
    assert_int_equal(on("core:2 pu:1", NULL, "2", &nowhere), -ENOSPC);
    assert_non_null(strstr(why, "the job has 2 cores"));
    assert_int_equal(on("core:2 pu:1", NULL, "9", &nowhere), -ENOSPC);
    assert_int_equal(on("core:1 pu:2", NULL, "1", &nowhere), -ENOSPC);
    assert_int_equal(on("core:1 pu:2", NULL, "share=5%", &nowhere), -ENOSPC);
    assert_int_equal(on("core:4 pu:1", NULL, "list=0-3", &nowhere), -ENOSPC);
    assert_int_equal(on("core:4 pu:1", NULL, "list=4", &nowhere), -EINVAL);
    assert_int_equal(on("core:4 pu:1", "0-2", "list=3", &nowhere), -EINVAL);
    assert_non_null(strstr(why, "does not have them"));
}

/* Every other CPU of many. */
static void every_other(char *out, size_t size, int from, int below)
{
    size_t n = 0;

    for (int i = from; i < below; i += 2)
        n += (size_t)snprintf(out + n, size - n, "%s%d", n ? "," : "", i);
    assert_true(n < size);
}

/* Their list is long, and a part of it would be other CPUs. */
static void test_lists_are_whole_or_refused(void **state)
{
    static char allowed[16384], application[16384];

    (void)state;
    every_other(allowed, sizeof allowed, 1, 1024);
    every_other(application, sizeof application, 1, 1022);
    assert_true(strlen(application) > 1900);
    gives("core:1024 pu:1", allowed, "1", "1023", application);
    every_other(allowed, sizeof allowed, 1, 4096);
    assert_int_equal(on("core:4096 pu:1", allowed, "1", &nowhere), -ENOBUFS);
    assert_non_null(strstr(why, "4095 bytes"));
    assert_string_equal(map.application, "");
}

/* What this process may not use is another job's. */
/* --core-spec: what Slurm has left out of the job, all of it, whatever is near. */
static void test_cores_outside_of_the_job(void **state)
{
    (void)state;
    assert_int_equal(on_of("pack:2 core:4 pu:2", NULL, "", &nowhere, "0-5,8-15"), 0);
    assert_string_equal(map.service, "6-7");
    assert_string_equal(map.application, "0-5,8-15");
    assert_string_equal(map.near, "--core-spec");
    assert_int_equal(on_of("pack:2 core:4 pu:2", NULL, "1", &nowhere, "0-11"), 0);
    assert_string_equal(map.service, "12-15");
    assert_int_equal(on_of("pack:2 core:4 pu:2", NULL, "3", &nowhere, "0-11"), -ENOSPC);
    assert_non_null(strstr(why, "3 service cores are declared, and --core-spec leaves out 2: CPUs 12-15"));
    assert_int_equal(on_of("pack:2 core:4 pu:2", NULL, "1", &nowhere, "0-15"), -ENOENT);
    assert_int_equal(on_of("pack:2 core:4 pu:2", "0-11", "1", &nowhere, "0-11"), -ENOENT); /* what is the site's own is nobody's */
    assert_int_equal(on_of("pack:2 core:4 pu:2", NULL, "1", &nowhere, "?"), -EINVAL);
}

static void test_cores_of_other_jobs_are_not_taken(void **state)
{
    (void)state;
    assert_int_equal(on_of("pack:2 core:4 pu:2", NULL, "1", &nowhere, "0-9"), -EPERM);
    assert_non_null(strstr(why, "3 cores of this node are not the job's (CPUs 10-15), and --core-spec leaves out 2"));
    assert_int_equal(on_of("pack:2 core:4 pu:2", NULL, "1", &nowhere, "0-11"), 0);
    left_out = 0;
    assert_int_equal(on_of("pack:2 core:4 pu:2", NULL, "", &nowhere, "0-13"), -EPERM);
    left_out = 2;
}

static void test_only_own_cpus_are_kept(void **state)
{
    hwloc_topology_t t = job_topology_here();
    cpu_set_t before, one;
    int first = 0;

    (void)state;
    assert_non_null(t);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    while (!CPU_ISSET(first, &before))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(job_topology_keep_own(t), 0);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(hwloc_bitmap_weight(hwloc_topology_get_allowed_cpuset(t)), 1);
    assert_int_equal(hwloc_bitmap_first(hwloc_topology_get_allowed_cpuset(t)), first);
    hwloc_topology_destroy(t);
}

static void test_this_machine_can_be_looked_at(void **state)
{
    hwloc_topology_t t = job_topology_here();
    struct job_near near;

    (void)state;
    assert_non_null(t);
    for (const char *const *at = (const char *const[]){"/", "/no/such/place", NULL}; *at; at++) {
        job_near_find(t, *at, &near);
        assert_true(near.numa == -1 || (hwloc_get_numanode_obj_by_os_index(t, (unsigned)near.numa) && near.what[0]));
    }
    hwloc_topology_destroy(t);
}

/* As an X server that has stopped on a node with a screen: hwloc's plugin of GPUs would ask it, and wait for ever. */
static void test_no_x_server_is_asked(void **state)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), rc = -1;
    struct pollfd asked = {.fd = fd, .events = POLLIN};
    hwloc_topology_t t;

    (void)state;
    for (unsigned screen = 0; rc < 0 && screen < 10; screen++) { /* those that it tries */
        int n = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "/tmp/.X11-unix/X%u", screen);

        rc = bind(fd, (struct sockaddr *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n));
    }
    assert_int_equal(rc, 0);
    assert_int_equal(listen(fd, 8), 0);
    alarm(60);
    t = job_topology_here();
    alarm(0);
    assert_non_null(t);
    assert_int_equal(poll(&asked, 1, 0), 0);
    hwloc_topology_destroy(t);
    close(fd);
}

/* A job that was submitted by another one: what that has told its own application is not this machine. */
static void test_what_another_job_was_left_is_not_this_machine(void **state)
{
    char dir[] = "/tmp/fpstore-XXXXXX", file[64];
    hwloc_topology_t small, t = job_topology_here();
    int cpus = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PU);

    (void)state;
    hwloc_topology_destroy(t);
    assert_int_equal(hwloc_topology_init(&small), 0);
    assert_int_equal(hwloc_topology_set_synthetic(small, cpus == 1 ? "pack:1 core:1 pu:2" : "pack:1 core:1 pu:1"), 0);
    assert_int_equal(hwloc_topology_load(small), 0);
    assert_non_null(mkdtemp(dir));
    snprintf(file, sizeof file, "%s/cores.xml", dir);
    assert_int_equal(hwloc_topology_export_xml(small, file, 0), 0);
    hwloc_topology_destroy(small);
    assert_int_equal(setenv("HWLOC_XMLFILE", file, 1), 0);
    assert_int_equal(setenv("HWLOC_THISSYSTEM", "1", 1), 0);
    t = job_topology_here();
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(dir), 0);
    assert_non_null(t);
    assert_int_equal(hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PU), cpus);
    hwloc_topology_destroy(t);
    assert_null(getenv("HWLOC_XMLFILE"));
    assert_null(getenv("HWLOC_THISSYSTEM"));
}

/* As mpirun does it: hwloc is told by a file what there is. */
static void test_who_reads_the_description_finds_no_service_core(void **state)
{
    char path[] = "/tmp/test_job_coremap.XXXXXX", list[64];
    hwloc_topology_t t;
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    gives("pack:2 core:4 pu:2", NULL, "3", "10-15", "0-9");
    assert_int_equal(hwloc_topology_init(&t), 0);
    assert_int_equal(hwloc_topology_set_synthetic(t, "pack:2 core:4 pu:2"), 0);
    assert_int_equal(hwloc_topology_load(t), 0);
    assert_int_equal(job_coremap_write(t, &map, path), 0);
    assert_int_equal(job_coremap_write(t, &map, "/no/such/place"), -ENOENT);
    hwloc_topology_destroy(t);
    assert_int_equal(hwloc_topology_init(&t), 0);
    assert_int_equal(hwloc_topology_set_xml(t, path), 0);
    assert_int_equal(hwloc_topology_load(t), 0);
    assert_int_equal(hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_CORE), 5);
    assert_int_equal(hwloc_bitmap_list_snprintf(list, sizeof list, hwloc_get_root_obj(t)->cpuset), 3);
    assert_string_equal(list, "0-9");
    hwloc_topology_destroy(t);
    unlink(path);
}

static char job_dir[64];

static void made(const char *name, const char *text)
{
    char path[400], command[900];

    snprintf(path, sizeof path, "%s/%s", job_dir, name);
    if (text)
        snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s')\" && echo '%s' > '%s'", path, text, path);
    else
        snprintf(command, sizeof command, "mkdir -p '%s'", path);
    assert_int_equal(system(command), 0);
}

static void linked(const char *from, const char *to)
{
    char path[400];

    snprintf(path, sizeof path, "%s/%s", job_dir, from);
    assert_int_equal(symlink(to, path), 0);
}

/* /tmp on a logical volume on a RAID of two partitions of NVMe devices, as sysfs has them. */
static void test_the_device_below_a_volume_and_a_raid_is_found(void **state)
{
    char name[48];

    (void)state;
    strcpy(job_dir, "/tmp/test_job_coremap.XXXXXX");
    assert_non_null(mkdtemp(job_dir));
    made("dev/block", NULL);
    made("pci0/nvme/nvme1/numa_node", "1");
    made("pci0/nvme/nvme1/nvme1n1/nvme1n1p2", NULL);
    linked("pci0/nvme/nvme1/nvme1n1/device", "../../nvme1");
    made("virtual/md127/slaves", NULL);
    made("virtual/dm-0/slaves", NULL);
    linked("virtual/md127/slaves/nvme1n1p2", "../../../pci0/nvme/nvme1/nvme1n1/nvme1n1p2");
    linked("virtual/md127/slaves/nvme2n1p2", "../../../pci0/nowhere");
    linked("virtual/dm-0/slaves/md127", "../../md127");
    linked("dev/block/253:0", "../../virtual/dm-0");
    linked("dev/block/259:3", "../../pci0/nvme/nvme1/nvme1n1/nvme1n1p2");
    assert_int_equal(job_near_device(job_dir, makedev(253, 0), name, sizeof name), 1);
    assert_string_equal(name, "nvme1n1p2");
    assert_int_equal(job_near_device(job_dir, makedev(259, 3), name, sizeof name), 1);
    assert_int_equal(job_near_device(job_dir, makedev(0, 44), name, sizeof name), -1); /* tmpfs, NFS */
    linked("virtual/md127/slaves/md127", "../../md127"); /* round and round: it ends */
    (void)job_near_device(job_dir, makedev(253, 0), name, sizeof name);
    (void)fp_remove_tree(job_dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_last_core_is_taken),
        cmocka_unit_test(test_no_core_is_split),
        cmocka_unit_test(test_more_than_64_cpus),
        cmocka_unit_test(test_cores_near_the_device_are_preferred),
        cmocka_unit_test(test_the_device_below_a_volume_and_a_raid_is_found),
        cmocka_unit_test(test_a_share_of_a_node),
        cmocka_unit_test(test_shares_and_ranges),
        cmocka_unit_test(test_what_leaves_nothing_is_refused),
        cmocka_unit_test(test_lists_are_whole_or_refused),
        cmocka_unit_test(test_cores_outside_of_the_job),
        cmocka_unit_test(test_cores_of_other_jobs_are_not_taken),
        cmocka_unit_test(test_only_own_cpus_are_kept),
        cmocka_unit_test(test_this_machine_can_be_looked_at),
        cmocka_unit_test(test_no_x_server_is_asked),
        cmocka_unit_test(test_what_another_job_was_left_is_not_this_machine),
        cmocka_unit_test(test_who_reads_the_description_finds_no_service_core),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
