/* Which store is meant.
 *
 * Called by main() before anything else. In this order: --manager and --key; the fpstore mount that PATH, or else the current
 * directory, lies in; the only fpstore mount of the machine; FP_MANAGER and FP_KEY, or fp.conf. What the command line does not
 * say of the first is taken from what comes after it.
 *
 * A mount tells its store by two xattrs of its root, user.fp.manager and user.fp.key_file: so people who look at a file need
 * not know where its manager runs, and several stores on one machine do not get mixed up. The environment comes last because
 * a shell that has FP_MANAGER set for one store would otherwise lie about the files of another.
 *
 * The table of mounts is /proc/self/mountinfo; the longest mountpoint that is a prefix of the resolved path wins, as the
 * kernel would do. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "client/ctl/ctl.h"
#include "fp/err.h"

#define MOUNTS_MAX 64

struct mounts {
    unsigned count; /* of those kept */
    struct {
        char point[PATH_MAX];
        char root[PATH_MAX];
    } m[MOUNTS_MAX];
};

/* \040 and the like, as the kernel writes blanks. */
static void unescape(char *out, const char *in, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len && n + 1 < PATH_MAX;) {
        if (in[i] == '\\' && i + 3 < len + 0u && in[i + 1] >= '0' && in[i + 1] <= '3') {
            out[n++] = (char)(((in[i + 1] - '0') << 6) | ((in[i + 2] - '0') << 3) | (in[i + 3] - '0'));
            i += 4;
        } else {
            out[n++] = in[i++];
        }
    }
    out[n] = '\0';
}

/* "36 35 98:0 ROOT POINT options optional… - TYPE source superoptions" */
bool ctl_mountinfo_line(const char *line, char mountpoint[PATH_MAX], char root[PATH_MAX])
{
    static const char type[] = " - fuse.fpstore ";
    if (!strstr(line, type))
        return false;
    const char *p = line;
    for (int i = 0; i < 3; i++) {
        p = strchr(p, ' ');
        if (!p)
            return false;
        p++;
    }
    size_t root_len = strcspn(p, " ");
    if (p[root_len] != ' ')
        return false;
    const char *point = p + root_len + 1;
    unescape(root, p, root_len);
    unescape(mountpoint, point, strcspn(point, " \n"));
    return true;
}

static int read_mounts(struct mounts *all)
{
    char *line = NULL;
    size_t room = 0;
    FILE *f = fopen("/proc/self/mountinfo", "re");
    if (!f)
        return -errno;
    all->count = 0;
    while (all->count < MOUNTS_MAX && getline(&line, &room, f) > 0) {
        if (ctl_mountinfo_line(line, all->m[all->count].point, all->m[all->count].root))
            all->count++;
    }
    free(line);
    fclose(f);
    return 0;
}

/* The rest of path below dir, without a leading slash; NULL if it is not below. */
static const char *below(const char *path, const char *dir)
{
    size_t len = strlen(dir);
    if (len == 1)
        return path + 1;
    if (strncmp(path, dir, len) != 0 || (path[len] != '/' && path[len] != '\0'))
        return NULL;
    return path[len] ? path + len + 1 : path + len;
}

/* Index of the mount that path lies in, or -1. A later line covers an earlier one. */
static int mount_of(const struct mounts *all, const char *path)
{
    int best = -1;
    size_t best_len = 0;
    for (unsigned i = 0; i < all->count; i++) {
        size_t len = strlen(all->m[i].point);
        if (below(path, all->m[i].point) && len >= best_len) {
            best = (int)i;
            best_len = len;
        }
    }
    return best;
}

static int read_xattr(const char *mountpoint, const char *name, char *out, size_t room)
{
    ssize_t n = getxattr(mountpoint, name, out, room - 1);
    if (n > 0) {
        out[n] = '\0';
        return 0;
    }
    int err = n < 0 ? -errno : -ENODATA;
    if (err == -ENOTCONN)
        FP_ERROR("the mount %s is dead (its fp-mount is gone): fusermount3 -uz %s", mountpoint, mountpoint);
    else
        FP_ERROR("the mount %s does not say which store it is (%s): %s; give --manager and --key", mountpoint, name,
                 fp_strerror(err));
    return err;
}

/* The parts that the options leave open, from a mount. */
static int from_mount(const struct ctl_options *o, const char *mountpoint, struct ctl_store *out)
{
    int rc = 0;
    snprintf(out->mountpoint, sizeof out->mountpoint, "%s", mountpoint);
    if (!o->manager_given)
        rc = read_xattr(mountpoint, "user.fp.manager", out->manager, sizeof out->manager);
    if (rc == 0 && !o->key_given)
        rc = read_xattr(mountpoint, "user.fp.key_file", out->key, sizeof out->key);
    return rc;
}

/* A mount whose manager is away answers at last with EIO: who waits for the manager looks again. */
static int real_path(const char *path, char out[PATH_MAX])
{
    while (!realpath(path, out)) {
        int rc = -errno;

        if (rc != -EIO || !ctl_patience())
            return rc;
    }
    return 0;
}

/* Symbolic links resolved: PATH as given by the user, or the current directory. */
static int resolve(const struct ctl_options *o, char path[PATH_MAX])
{
    if (o->path) {
        return real_path(o->path, path);
    } else if (getcwd(path, PATH_MAX)) {
        return 0;
    }
    return -errno;
}

static int no_store(const struct mounts *all)
{
    if (all->count > 1)
        FP_ERROR("%u stores are mounted here: give PATH, or --manager and --key", all->count);
    else
        FP_ERROR("no store is mounted here, and none is given: use --manager ADDR:PORT and --key FILE, or see fp-store up");
    return -ENODEV;
}

/* Without a mount, PATH is taken as a path from the root of the store. */
static int by_options(const struct ctl_options *o, struct ctl_store *out)
{
    snprintf(out->inner, sizeof out->inner, "%s", o->path ? o->path + 1 : "");
    return 0;
}

/* The path inside of the store. */
static int inner_of(const struct mounts *all, int i, const char *path, char inner[PATH_MAX])
{
    const char *rest = below(path, all->m[i].point), *root = all->m[i].root + 1;
    int n = snprintf(inner, PATH_MAX, "%s%s%s", root, *root && *rest ? "/" : "", rest);
    return n < 0 || n >= PATH_MAX ? -ENAMETOOLONG : 0;
}

int ctl_find(const struct ctl_options *o, struct ctl_store *out)
{
    static struct mounts all;
    static char path[PATH_MAX];
    bool complete = o->manager_given && o->key_given;

    snprintf(out->manager, sizeof out->manager, "%s", o->manager.text);
    snprintf(out->key, sizeof out->key, "%s", o->key ? o->key : "");
    int rc = read_mounts(&all);
    if (rc < 0)
        FP_WARN("cannot read the table of mounts: %s", fp_strerror(rc));
    if (o->path || !complete) {
        rc = resolve(o, path);
        int i = rc == 0 ? mount_of(&all, path) : -1;
        if (i >= 0) {
            rc = inner_of(&all, i, path, out->inner);
            if (rc < 0)
                return rc;
            if (!complete)
                return from_mount(o, all.m[i].point, out);
            snprintf(out->mountpoint, sizeof out->mountpoint, "%s", all.m[i].point);
            return 0;
        }
        if (o->path && !o->manager_given) {
            if (rc < 0)
                FP_ERROR("%s: %s", o->path, fp_strerror(rc));
            else
                FP_ERROR("%s is not in a mount of fpstore", o->path);
            return rc < 0 ? rc : -ENOTTY;
        }
    }
    if (o->manager_given)
        return by_options(o, out);
    if (all.count == 1)
        return from_mount(o, all.m[0].point, out);
    return out->manager[0] ? by_options(o, out) : no_store(&all);
}

bool ctl_is_there(const struct ctl_options *o)
{
    static struct mounts all;
    static char path[PATH_MAX];

    if (o->manager.text[0])
        return true;
    if (read_mounts(&all) < 0)
        return false;
    return all.count == 1 || (getcwd(path, sizeof path) && mount_of(&all, path) >= 0);
}

int ctl_find_inner(const struct ctl_options *o, const struct ctl_store *store, size_t i, char inner[PATH_MAX])
{
    static struct mounts all;
    char path[PATH_MAX];

    if (!store->mountpoint[0]) {
        snprintf(inner, PATH_MAX, "%s", o->paths[i] + 1);
        return 0;
    }
    int rc = real_path(o->paths[i], path);
    if (rc < 0) {
        FP_ERROR("%s: %s", o->paths[i], fp_strerror(rc));
        return rc;
    }
    rc = all.count ? 0 : read_mounts(&all);
    int m = rc == 0 ? mount_of(&all, path) : -1;
    if (m < 0 || strcmp(all.m[m].point, store->mountpoint) != 0) {
        FP_ERROR("%s is not in %s: all paths of one call must be in one mount", o->paths[i], store->mountpoint);
        return rc < 0 ? rc : -EXDEV;
    }
    return inner_of(&all, m, path, inner);
}
