/* A directory that all nodes have (see shared.h). mark and unmark are called by fp-job start, look by each agent before it has a second thread. */
#include "jobscripts/launch/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "fp/limited.h"

#define LOOK_MS 10000u /* an automounter may have to come first */

static int make(const void *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return -errno;
    return close(fd) < 0 ? -errno : 0;
}

static int take_away(const void *path)
{
    return unlink(path) < 0 ? -errno : 0;
}

static int is_there(const void *path)
{
    return access(path, F_OK) < 0 ? -errno : 0;
}

int job_shared_mark(const char *dir, const char *job, char path[PATH_MAX])
{
    uint64_t random;
    int rc;

    path[0] = '\0';
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        return -errno;
    if (snprintf(path, PATH_MAX, "%s/.fp-job-%s-%016" PRIx64, dir, job, random) >= PATH_MAX)
        rc = -ENAMETOOLONG;
    else
        rc = fp_limited(make, path, JOB_SHARED_MS);
    if (rc)
        path[0] = '\0';
    return rc == -ENOSPC || rc == -EDQUOT ? 0 : rc;
}

void job_shared_unmark(const char *path, uint64_t limit_ms)
{
    if (path[0])
        (void)fp_limited(take_away, path, limit_ms);
}

int job_shared_look(const char *path)
{
    return fp_limited(is_there, path, LOOK_MS);
}
