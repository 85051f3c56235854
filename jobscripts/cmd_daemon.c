/*
 * fp-job daemon JOB -- PROGRAM ...: what mpirun starts on other nodes in place of its own daemon, where it comes there by ssh or has to enter (cmd_run.c).
 *
 * ssh brings neither variables nor a mask along, so the daemon gets both here, of the node that it is on, and its ranks have them from it. Where the store is in a user
 * namespace, it goes there, whoever has started it. A node without a
 * store of this job has nothing to be kept off: one that is in mpirun's list and not in ours, or any when the store has ended, since the variable stays in the
 * shell of the script. Nor has another job, which was submitted by this one and has its variables.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fp/err.h"
#include "fp/log.h"
#include "jobscripts/cores/cpus.h"
#include "jobscripts/enter.h"
#include "jobscripts/launch/inherited.h"
#include "jobscripts/job.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/launch/alloc.h"

static bool read_line(const char *dir, const char *name, char *out, int size)
{
    int fd = job_dir_read(dir, name);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    bool got = f && fgets(out, size, f);

    if (f)
        fclose(f);
    if (got)
        out[strcspn(out, "\n")] = '\0';
    return got;
}

static _Noreturn void run(char *const argv[])
{
    execvp(argv[0], argv);
    FP_ERROR("%s: %s", argv[0], fp_strerror(-errno));
    _exit(1);
}

int job_cmd_daemon(const struct job_options *o)
{
    char dir[PATH_MAX], path[PATH_MAX], cpus[65536];

    if (!o->argv || !o->argv[0] || !o->script) {
        FP_ERROR("of which job, and which program? It is called by mpirun");
        return -EINVAL;
    }
    job_inherited_forget_cores();
    if (job_alloc_is_other(o->script))
        run(o->argv);
    job_dir_path(dir, o->script);
    if (read_line(dir, JOB_APPLICATION, cpus, sizeof cpus) && job_dir_file(path, dir, JOB_CORES_FILE) == 0) {
        if (job_cpus_confine(0, cpus))
            FP_WARN("ranks of mpirun can't be kept to CPUs %s here", cpus);
        (void)setenv("HWLOC_XMLFILE", path, 1);
        (void)setenv("HWLOC_THISSYSTEM", "1", 1);
    }
    if (job_dir_is_ours(dir) && job_enter(dir))
        return -EIO;
    run(o->argv);
}
