/*
 * Would a marker be made below a mount point on which nothing is mounted?
 *
 * The marker tells a target from the empty directory below its mount point, but for the first use, when there is none yet (marker.c). /etc/fstab is then
 * the one place that knows what should be mounted: if the directory lies at or below a mount point that it names, that must be a mount of now.
 * What other means mount (systemd units, autofs, a site's scripts) is not known here, and is taken as it is.
 *
 * On a thread, once for each target. Only local files are read; the target is not touched, so this can't hang. Rejected: to compare st_dev with that
 * of the parent directory, which would refuse plain directories, and would ask the target.
 */
#include <mntent.h>
#include <stdio.h>
#include <string.h>

#include "drain/drain.h"

/* path is dir, or lies below it. Both are absolute; "/" is no mount point that could be missing. */
static bool is_below(const char *path, const char *dir)
{
    size_t len = strlen(dir);

    while (len > 1 && dir[len - 1] == '/')
        len--;
    return len > 1 && *dir == '/' && strncmp(path, dir, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

/* The longest directory of this table that path is at or below. False: none. */
static bool deepest(const char *table, const char *path, char where[PATH_MAX])
{
    char text[PATH_MAX + 1024];
    struct mntent m;
    FILE *f = setmntent(table, "re");

    where[0] = '\0';
    while (f && getmntent_r(f, &m, text, sizeof(text)))
        if (is_below(path, m.mnt_dir) && strlen(m.mnt_dir) > strlen(where) && strlen(m.mnt_dir) < PATH_MAX)
            strcpy(where, m.mnt_dir);
    if (f)
        endmntent(f);
    return where[0] != '\0';
}

bool dr_lacks_mount(const char *fstab, const char *mounts, const char *path, char where[PATH_MAX])
{
    char have[PATH_MAX];

    if (!deepest(fstab, path, where))
        return false;
    return !deepest(mounts, path, have) || !is_below(have, where);
}
