/*
 * Finds the directory of a job (see dirname.h). Called by all commands of fp-job, by the agents, and by the SPANK plugin, which looks for the job of another user.
 *
 * Numbers of jobs are known before they begin, and anybody may write to /tmp: who makes the directory of another user's job there would keep that job from
 * having a store. So the job takes a name then that nobody knows before it is there, and whoever looks for it takes what is the user's own. Names that
 * nobody knows for all jobs were rejected: sites and users look for /tmp/fpstore-UID-JOB.
 */
#include "jobscripts/dirname.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

bool job_dirname_is_ours(const struct stat *st, uid_t uid)
{
    return S_ISDIR(st->st_mode) && st->st_uid == uid && !(st->st_mode & 077);
}

static bool is_at(const char *path, uid_t uid)
{
    struct stat st;

    return lstat(path, &st) == 0 && job_dirname_is_ours(&st, uid);
}

/* One of ours that begins so, with all of JOB_DIR_OTHER behind it: while it is removed it has more. */
static bool find_other(const char *first, uid_t uid, char out[PATH_MAX])
{
    const char *name = strrchr(first, '/') + 1;
    size_t n = strlen(name);
    DIR *d = opendir("/tmp");
    bool found = false;

    for (struct dirent *e; d && !found && (e = readdir(d));) {
        if (strncmp(e->d_name, name, n) != 0 || e->d_name[n] != '+' || strlen(e->d_name) != n + strlen(JOB_DIR_OTHER))
            continue;
        found = snprintf(out, PATH_MAX, "/tmp/%s", e->d_name) < PATH_MAX && is_at(out, uid);
    }
    if (d)
        closedir(d);
    return found;
}

void job_dirname_find(char out[PATH_MAX], uid_t uid, const char *job)
{
    char first[128];

    snprintf(first, sizeof first, "/tmp/fpstore-%u-%.64s", (unsigned)uid, job);
    if (is_at(first, uid) || !*job || !find_other(first, uid, out))
        snprintf(out, PATH_MAX, "%s", first);
}
