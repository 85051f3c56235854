/* Which store is meant.
 *
 * Called by main() before anything else. In this order: --manager and --key; the fpstore mount that PATH, or else the current
 * directory, lies in; the only store that is mounted on the machine, by the first of its mounts; FP_MANAGER and FP_KEY, or fp.conf. What the
 * command line does not say of the first is taken from what comes after it.
 *
 * A mount tells its store by xattrs of its root, user.fp.manager and user.fp.key_file: so people who look at a file need
 * not know where its manager runs, and several stores on one machine do not get mixed up. Whether two mounts are of one store their
 * user.fp.store says, its UUID: the manager may have several addresses. A mount that does not say it (it is dead, or another user's) may be of any. The environment comes last because
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
#include "fp/limited.h"
#include "fp/uuid.h"

#define MOUNTS_MAX 64
#define ANSWER_MS  2000u /* of mounts, of which one may hang */

#define TYPE " - fuse.fpstore "

struct mounts {
    unsigned count; /* of those kept */
    struct {
        char point[PATH_MAX];
        char root[PATH_MAX];
        struct fp_addr manager; /* as it was when it was mounted; empty: the table does not say it */
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
    if (!strstr(line, TYPE))
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

/* What is mounted: fp-mount names its manager. */
static void source_of(const char *line, struct fp_addr *manager)
{
    const char *source = strstr(line, TYPE) + strlen(TYPE), *why;
    char text[FP_ADDR_TEXT_BUF];

    snprintf(text, sizeof text, "%.*s", (int)strcspn(source, " \n"), source);
    if (fp_parse_addr(text, 1, manager, &why) < 0)
        *manager = (struct fp_addr){0};
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
        if (ctl_mountinfo_line(line, all->m[all->count].point, all->m[all->count].root)) {
            source_of(line, &all->m[all->count].manager);
            all->count++;
        }
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

static int are_of_one(const void *arg)
{
    const struct mounts *all = arg;
    char first[FP_UUID_BUF], other[FP_UUID_BUF];

    for (unsigned i = 0; i < all->count; i++) {
        ssize_t n = getxattr(all->m[i].point, "user.fp.store", i ? other : first, FP_UUID_BUF - 1);

        if (n != FP_UUID_BUF - 1 || (i && memcmp(first, other, (size_t)n) != 0))
            return -EXDEV;
    }
    return 0;
}

/* Index of the first mount, if all are of one store, else -1. */
static int only_store(const struct mounts *all)
{
    if (all->count <= 1 || all->count == MOUNTS_MAX) /* of that many there may be more */
        return all->count == 1 ? 0 : -1;
    return fp_limited(are_of_one, all, ANSWER_MS) == 0 ? 0 : -1;
}

/* A manager listens at one port; by names it may have several, and addresses. */
static bool are_of_two(const struct fp_addr *a, const struct fp_addr *b)
{
    bool numbers = a->host[strspn(a->host, "0123456789.")] == '\0' && b->host[strspn(b->host, "0123456789.")] == '\0';

    return a->text[0] && b->text[0] && (a->port != b->port || (numbers && strcmp(a->host, b->host) != 0));
}

/* PATH of one store and the manager of another: there may be something of that name in both. */
static int other_store(const struct ctl_options *o, const struct mounts *all, int i)
{
    FP_ERROR("%s lies in the store of %s (%s), and --manager=%s is another one: leave --manager and --key away, or give a PATH that is not in a mount", o->path, all->m[i].manager.text,
             all->m[i].point, o->manager.text);
    return -EXDEV;
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
        FP_ERROR("%u mounts are here, not all known to be of one store (%s, %s%s): give PATH, or --manager and --key", all->count, all->m[0].point, all->m[1].point, all->count > 2 ? ", ..." : "");
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
            bool is_other = o->manager_given && are_of_two(&o->manager, &all.m[i].manager);

            if (is_other && o->path)
                return other_store(o, &all, i);
            if (is_other) /* it is only where we are */
                return by_options(o, out);
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
    int only = only_store(&all);
    if (only >= 0)
        return from_mount(o, all.m[only].point, out);
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
    return (getcwd(path, sizeof path) && mount_of(&all, path) >= 0) || only_store(&all) >= 0;
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
