/*
 * Inputs before and behind a conversion (changes.h). Called by run.c. Blocks for the disk.
 *
 * By stat, whose size and time of change tell a file that is written, and whose inode number one that was renamed over it. Of a set of a million files a sum of that is kept for each.
 * A directory that is one input is the sum of the files in it, for its own time stays when these are written. Rejected: fstat of what the source has open, which libraries do not show, and which
 * says nothing of files that are opened anew for each read.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "convert/engine/changes.h"
#include "convert/engine/result.h"
#include "fp/err.h"

/* Inputs that are in the same directory follow each other: it is read once for them. */
struct look {
    char dir[PATH_MAX];
    uint64_t sum;
};

static uint64_t sum_of(const struct stat *st, const char *name)
{
    const uint64_t words[] = {st->st_ino, (uint64_t)st->st_size, (uint64_t)st->st_mtim.tv_sec, (uint64_t)st->st_mtim.tv_nsec};

    return XXH64(words, sizeof words, XXH64(name, strlen(name), 0));
}

/* In any order. A result that is made in it is none of its files. */
static int sum_of_directory(const char *path, uint64_t *sum)
{
    DIR *dir = opendir(path);
    const struct dirent *e;
    int rc = dir ? 0 : -errno;

    *sum = 0;
    while (rc == 0 && (errno = 0, e = readdir(dir))) {
        struct stat st;

        if (strncmp(e->d_name, CV_TEMPORARY, strlen(CV_TEMPORARY)) == 0)
            continue;
        if (fstatat(dirfd(dir), e->d_name, &st, 0) < 0)
            rc = -errno;
        else if (S_ISREG(st.st_mode))
            *sum += sum_of(&st, e->d_name);
    }
    rc = rc ? rc : -errno;
    if (dir)
        closedir(dir);
    return rc;
}

static int sum_of_input(const struct cv_source_ops *ops, const char *path, struct look *look, uint64_t *sum)
{
    char dir[PATH_MAX];
    struct stat st;
    int rc = 0;

    if (!ops->directory || !ops->directory(path, dir)) {
        rc = stat(path, &st) < 0 ? -errno : 0;
        *sum = rc ? 0 : sum_of(&st, "");
        return rc;
    }
    if (strcmp(dir, look->dir) != 0) {
        strcpy(look->dir, dir);
        rc = sum_of_directory(dir, &look->sum);
    }
    *sum = look->sum;
    return rc;
}

int cv_changes_begin(struct cv_changes *c, const struct cv_source_ops *ops, const char *const *paths, size_t npaths, struct cv_fail *why)
{
    struct look look = {.dir = ""};
    struct stat st;
    int rc = 0;

    *c = (struct cv_changes){.ops = ops, .paths = paths, .npaths = npaths, .sums = calloc(npaths + 1, sizeof *c->sums)};
    if (!c->sums)
        return cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory for %zu input files", npaths);
    for (size_t i = 0; i < npaths && rc == 0; i++) {
        rc = sum_of_input(ops, paths[i], &look, &c->sums[i]);
        if (rc)
            cv_fail(why, rc, paths[i], NULL, CV_NO_OFFSET, "cannot be opened: %s", fp_strerror(rc));
    }
    c->block_bytes = rc == 0 && npaths && stat(paths[0], &st) == 0 && st.st_blksize > 0 ? (size_t)st.st_blksize : 0;
    return rc;
}

int cv_changes_look(const struct cv_changes *c, struct cv_fail *why)
{
    struct look look = {.dir = ""};

    for (size_t i = 0; i < c->npaths; i++) {
        uint64_t sum;

        if (sum_of_input(c->ops, c->paths[i], &look, &sum) < 0 || sum != c->sums[i])
            return cv_fail(why, -EAGAIN, c->paths[i], NULL, CV_NO_OFFSET, "it was changed while it was converted: convert it when it is written");
    }
    return 0;
}

void cv_changes_fini(struct cv_changes *c)
{
    free(c->sums);
    c->sums = NULL;
}
