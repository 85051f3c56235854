/*
 * What a pattern names (see found.h). Called by steps.c, for the store and for directories of input.
 *
 * glob(3) is called in a process of its own (fp_limited), which writes what it has found into memory that both have. To look whether the file system answers and to call
 * it here then was rejected: it may stop answering in between.
 */
#include "jobscripts/found.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fp/err.h"
#include "fp/limited.h"
#include "fp/log.h"
#include "fp/wholefile.h"

struct search {
    const char *pattern;
    int flags, fd;
};

static int glob_error(int rc)
{
    return rc == 0 ? 0 : rc == GLOB_NOMATCH ? -ENOENT : rc == GLOB_NOSPACE ? -ENOMEM : -EIO;
}

/* A directory that can't be read may have what is looked for. */
static int unreadable(const char *path, int error)
{
    if (error != ENOENT)
        FP_ERROR("%s: %s", path, fp_strerror(-error));
    return error != ENOENT;
}

/* Paths, each with its NUL. */
static int look(const void *arg)
{
    const struct search *s = arg;
    glob_t g;
    int rc = glob_error(glob(s->pattern, s->flags, unreadable, &g));

    for (size_t i = 0; rc == 0 && i < g.gl_pathc; i++)
        rc = fp_write_all(s->fd, g.gl_pathv[i], strlen(g.gl_pathv[i]) + 1);
    return rc;
}

static int add(struct job_found *f, const char *path)
{
    char **more = reallocarray(f->paths, f->n + 1, sizeof *more);

    if (!more)
        return -ENOMEM;
    f->paths = more;
    more[f->n] = strdup(path);
    return more[f->n] ? (f->n++, 0) : -ENOMEM;
}

static int take(struct job_found *f, int fd)
{
    off_t size = lseek(fd, 0, SEEK_END);
    char *all = size > 0 ? mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    int rc = 0;

    if (all == MAP_FAILED)
        return -errno;
    for (const char *p = all; p < all + size && rc == 0; p += strlen(p) + 1)
        rc = add(f, p);
    (void)munmap(all, (size_t)size);
    return rc;
}

int job_found_add(struct job_found *f, const char *pattern, int flags, uint64_t limit_ms)
{
    struct search s = {pattern, flags, memfd_create("found", MFD_CLOEXEC)};
    int rc;

    if (s.fd < 0)
        return -errno;
    rc = fp_limited(look, &s, limit_ms);
    rc = rc ? rc : take(f, s.fd);
    close(s.fd);
    return rc;
}

void job_found_fini(struct job_found *f)
{
    for (size_t i = 0; i < f->n; i++)
        free(f->paths[i]);
    free(f->paths);
    *f = (struct job_found){0};
}
