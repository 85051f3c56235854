/*
 * Where a job's store is mounted (see node.h): at mount= of #FP store if that can be on all nodes, else in the job's own directory, which is the same everywhere.
 *
 * Each node looks for itself, tells the root, and keeps others from the directory until the root has decided: two jobs of a user that begin at the same moment on a node, as those of an
 * array do, both find the directory free (mountlock.h). What others can do to the directory, by a file in it or by a lock, keeps no job from starting: it is mounted over, with a
 * warning. Files of the job's own user it does not hide from him.
 *
 * What mounts is fusermount3, tried by doing it for a moment; where it is missing, or refuses, fp-mount mounts in a user namespace, which needs no privilege: it is kept by two descriptors
 * of the agent, and programs go there (enter.h). Nobody must be able to write below the mount by mistake, neither from outside of the namespace nor while an fp-mount that has crashed is
 * started again: directories that we make for it have no rights at all (fp-mount gives itself some for the moment of mounting), and in a namespace it is on one that the user may write to
 * only if all commands of the job enter by themselves.
 *
 * Where the store is elsewhere and mount= is no directory, but the user may make something there, it becomes a symbolic link. Where there can be none, a job whose script names the
 * directory as text (script/naming.h) does not start: its data would go to another place, and nobody would miss it before it is gone.
 */
#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "fp/err.h"
#include "fp/log.h"
#include "jobscripts/enter.h"
#include "jobscripts/jobdir.h"
#include "jobscripts/agent/left.h"
#include "jobscripts/agent/node.h"
#include "jobscripts/agent/trymount.h"

/* ---------------------------------------------------------------- looking */

static bool is_of_a_job(const char *path)
{
    static const char start[] = "/tmp/fpstore-";

    return strncmp(path, start, sizeof start - 1) == 0 && path[sizeof start - 1];
}

/* Which another job has made, since its own store is elsewhere. */
static bool is_link_of_a_job(const char *path)
{
    char to[PATH_MAX];
    ssize_t n = readlink(path, to, sizeof to - 1);

    to[n > 0 ? n : 0] = '\0';
    return is_of_a_job(to);
}

/* No other node has it. Of file systems that are not known here some have, and some have not. */
static bool is_local(const char *path)
{
    static const unsigned long types[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC, TMPFS_MAGIC, RAMFS_MAGIC, OVERLAYFS_SUPER_MAGIC};
    char above[PATH_MAX];
    struct statfs fs;

    snprintf(above, sizeof above, "%s", path);
    *strrchr(above, '/') = '\0';
    for (size_t i = 0; statfs(above[0] ? above : "/", &fs) == 0 && i < sizeof types / sizeof types[0]; i++)
        if ((unsigned long)fs.f_type == types[i])
            return true;
    return false;
}

/* Made before this node was booted. */
static bool is_older(const struct stat *link)
{
    struct timespec up;

    return clock_gettime(CLOCK_BOOTTIME, &up) == 0 && link->st_mtime < time(NULL) - up.tv_sec;
}

/*
 * A link of a job whose node lost its power: its directory was in memory, and nobody else knows of the link. That the directory is not seen is not enough: each job may
 * have a /tmp of its own, and a link on a file system that nodes share may be of a job that lives on another one.
 */
static const char *take_over(const char *path)
{
    char to[PATH_MAX], mine[64];
    ssize_t n = readlink(path, to, sizeof to - 1);
    struct stat link, st;

    to[n > 0 ? n : 0] = '\0';
    snprintf(mine, sizeof mine, "/tmp/fpstore-%u-", (unsigned)geteuid());
    if (lstat(path, &link) < 0)
        return NULL; /* its job has just ended */
    if (lstat(to, &st) == 0)
        return "another job's store is mounted there";
    if (link.st_uid != geteuid() || strncmp(to, mine, strlen(mine)) != 0)
        return "there is a link of another user's job, which may be left from a crash";
    if (!is_local(path) || !is_older(&link))
        return "there is a link of another job of yours, whose directory is not on this node: remove the link if that job has ended";
    return unlink(path) < 0 ? "there is a link of a job that was lost with this node, which can't be removed" : NULL;
}

/* What is in the directory, of whom. */
static const char *full(struct node *n)
{
    char whose[32] = "another user";

    if (n->stray.uid == geteuid())
        snprintf(whose, sizeof whose, "this user");
    else if (n->stray.uid != (uid_t)-1)
        snprintf(whose, sizeof whose, "user %u", (unsigned)n->stray.uid);
    snprintf(n->stray_text, sizeof n->stray_text, "there are files in it, which nobody would see meanwhile, such as %s of %s: move them away", n->stray.name, whose);
    return n->stray_text;
}

/* NULL: no other job of the user has it, and none of anybody that keeps to this. Else why not. */
static const char *lock(struct node *n, const char *path)
{
    static const char being[] = "another job's store is just being mounted there, or is";

    if (job_mount_lock_own(&n->mount_lock, n->dir, path))
        return being;
    if (job_dir_taken(path))
        return "another job's store is mounted there";
    if (job_mount_lock_all(&n->mount_lock, path))
        return NULL;
    if (!n->plan.naming[0])
        return being;
    snprintf(n->hint, sizeof n->hint, "%.120s: another user seems to mount there, too; as %.64s names it, the store is mounted there all the same", path, n->plan.naming);
    return NULL;
}

/* Of what is there and is no place for a store. */
static const char *forbidden(struct node *n, const char *path)
{
    struct stat st;

    if (lstat(path, &st) < 0 || st.st_uid == geteuid() || st.st_uid == 0)
        return "this user may not mount there";
    snprintf(n->stray_text, sizeof n->stray_text, "it is there, and belongs to user %u: give another mount=, or have it removed", (unsigned)st.st_uid);
    return n->stray_text;
}

/* Of a job that was lost with its node: see close_own. */
static void remove_closed(const char *path)
{
    struct stat st;

    if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 0777) == 0 && is_local(path))
        (void)rmdir(path);
}

/* NULL: we may mount on it, and nobody else does meanwhile; made if need be. Else why not. */
static const char *take(struct node *n, const char *path)
{
    const char *no = lock(n, path);
    int rc;

    if (no)
        return no;
    if (is_link_of_a_job(path) && (no = take_over(path)))
        return no;
    remove_closed(path);
    if (mkdir(path, 0755) == 0) {
        n->made_mount = true;
        return NULL;
    }
    rc = errno == EEXIST ? job_dir_mountable(path, &n->stray) : -errno;
    if (rc == -ENOTEMPTY)
        return full(n);
    return rc == 0 ? NULL : rc == -ENOENT ? "it is not there, and this user can't make it" : rc == -ENOTDIR ? "it is no directory" : forbidden(n, path);
}

/* The same in the user namespace of the job, where nothing is to be kept from others and no right to write is needed. */
static const char *take_inside(struct node *n)
{
    struct stat st;

    job_mount_unlock(&n->mount_lock, n->dir);
    if (n->made_mount) {
        (void)chmod(n->wanted, 0); /* what has not entered is not to write to the disk below */
        return NULL;
    }
    if (job_dir_taken(n->wanted) || is_link_of_a_job(n->wanted))
        return "another job's store is mounted there";
    if (!n->plan.entered && access(n->wanted, W_OK) == 0)
        return "what has not entered could write to the directory below the store";
    return stat(n->wanted, &st) < 0 ? "it is not there, and this user can't make it" : !S_ISDIR(st.st_mode) ? "it is no directory" : job_dir_strays(n->wanted, &n->stray) ? full(n) : NULL;
}

/* A user namespace, kept for the job. */
static int go_inside(struct node *n, const char *refused, char *why, size_t size)
{
    char path[PATH_MAX], said[300] = "";
    int rc = job_enter_program(path, sizeof path) ? 0 : -ENOENT;

    if (rc)
        snprintf(said, sizeof said, "%.200s is missing: it belongs to fp-job", path);
    rc = rc ? rc : fp_namespace_make(&n->inside, n->dir, said, sizeof said);
    if (rc == 0) {
        rc = job_dir_file(path, n->dir, JOB_DIR_INSIDE);
        rc = rc ? rc : fp_namespace_link(&n->inside, path);
        if (rc)
            fp_namespace_close(&n->inside);
    }
    n->is_inside = rc == 0;
    if (rc)
        snprintf(why, size, "this user can mount nothing here: by fusermount3: %.150s; in a user namespace: %.250s", refused, said[0] ? said : fp_strerror(rc));
    else
        FP_INFO("%s: fusermount3 can't be used (%s): the store is mounted in a user namespace", n->plan.nodes[n->rank], refused);
    return rc;
}

/* In the job's own directory; not on it, since programs of the store that start meanwhile read their key there. */
static int try_own(const struct node *n, struct job_mount_tried *tried)
{
    char own[PATH_MAX];
    int rc = job_dir_file(own, n->dir, JOB_DIR_MOUNT);

    rc = rc ? rc : mkdir(own, 0755) < 0 && errno != EEXIST ? -errno : job_try_mount(own, tried);
    (void)rmdir(own);
    return rc;
}

/* By fusermount3 if it mounts something, first where the user wants it; else inside. *no: why it is not where the user wants it; NULL: it is. */
static int choose_way(struct node *n, const char **no, char *why, size_t size)
{
    struct job_mount_tried tried = {.why = ""};
    char helper[PATH_MAX];
    int rc;

    if (geteuid() == 0)
        return 0;
    if (!job_mount_helper(helper, sizeof helper))
        snprintf(tried.why, sizeof tried.why, "%s", helper[0] ? "it is not root's with its setuid bit" : "it is not installed");
    else if (!*no && job_try_mount(n->wanted, &tried) == 0)
        return 0;
    else if (try_own(n, &tried) == 0) {
        *no = *no ? *no : "fusermount3 does not mount there";
        return 0;
    }
    rc = go_inside(n, tried.why[0] ? tried.why : "it does not answer", why, size);
    *no = rc ? *no : take_inside(n);
    return rc;
}

int node_mount_look(struct node *n, char *why, size_t size)
{
    int rc = job_expand(n->wanted, n->declared.store.mount);
    const char *no;

    if (rc) {
        snprintf(why, size, "mount=%s: %s", n->declared.store.mount, rc == -ENOENT ? "a variable in it is not set" : fp_strerror(rc));
        return rc;
    }
    job_path_plain(n->wanted);
    no = take(n, n->wanted);
    rc = choose_way(n, &no, why, size);
    if (no) {
        FP_WARN("%s: %s", n->wanted, no);
        job_mount_unlock(&n->mount_lock, n->dir);
    }
    node_store_note(n);
    if (rc)
        return rc;
    n->refused = no;
    node_tree_say(n, n->is_inside ? FP__JOB_NODE_STATE__JOB_NODE_INSIDE : FP__JOB_NODE_STATE__JOB_NODE_LOOKED, no ? no : "");
    return 0;
}

/* ---------------------------------------------------------------- deciding */

bool node_mount_decide(struct node *n, char out[PATH_MAX])
{
    uint32_t inside = n->states.of[FP__JOB_NODE_STATE__JOB_NODE_INSIDE];
    bool all = true;

    if (n->states.of[FP__JOB_NODE_STATE__JOB_NODE_LOOKED] + inside != n->states.n)
        return false;
    n->some_inside = inside != 0;
    for (uint32_t i = 0; i < n->states.n && all; i++)
        if ((all = !n->states.nodes[i].text) == false)
            snprintf(n->elsewhere, sizeof n->elsewhere, "%.60s: %.200s", n->plan.nodes[i], n->states.nodes[i].text);
    if (all)
        snprintf(out, PATH_MAX, "%s", n->wanted);
    return all || job_dir_file(out, n->dir, JOB_DIR_MOUNT) == 0;
}

static void make_link(struct node *n)
{
    struct stat st;

    if (lstat(n->wanted, &st) < 0 && errno == ENOENT && symlink(n->mount, n->wanted) == 0)
        n->made_link = true;
}

/* Who names mount= as text is to find the store there: what else is there, or is made there, takes data that is never brought out. */
static int check_naming(const struct node *n, char *why, size_t size)
{
    if (!n->plan.naming[0] || n->made_link)
        return 0;
    snprintf(why, size, "%.60s names %.150s, and the store can't be mounted there (%.250s): what is written there would not be in the store: write $FP_MOUNT instead, which says where it is", n->plan.naming,
             n->wanted, n->refused ? n->refused : "on another node of the job");
    return -EADDRNOTAVAIL;
}

/* When all have looked, and it stays. One that nodes may share is left alone: one's fp-mount would close it while another's mounts. */
static void close_own(const struct node *n)
{
    if (n->made_mount && is_local(n->wanted) && chmod(n->wanted, 0) < 0)
        FP_WARN("%s can be written to when the store is not mounted: %s", n->wanted, fp_strerror(-errno));
}

int node_mount_take(struct node *n, char *why, size_t size)
{
    char own[PATH_MAX];
    int rc = job_dir_file(own, n->dir, JOB_DIR_MOUNT);

    if (strcmp(n->mount, n->wanted) == 0) {
        close_own(n);
        if (n->stray.name[0])
            snprintf(n->hint, sizeof n->hint, "%.120s: others have left files in it, such as %s of user %u, which nobody sees until the store has ended", n->mount, n->stray.name, (unsigned)n->stray.uid);
        return 0;
    }
    n->hint[0] = '\0';
    job_mount_unlock(&n->mount_lock, n->dir);
    if (n->made_mount)
        (void)rmdir(n->wanted);
    n->made_mount = false;
    if (rc || strcmp(n->mount, own) != 0) {
        if (!rc && is_of_a_job(n->mount))
            snprintf(why, size, "the store can't be mounted at mount= on all nodes, and not at %.150s on this one, as somebody else has taken the name of the job's directory on one of them", n->mount);
        else
            snprintf(why, size, "mount=%s is %.250s here, and %.250s on the first node: it must be the same on all", n->declared.store.mount, n->wanted, n->mount);
        return -EINVAL;
    }
    if (mkdir(n->mount, 0) < 0 && errno != EEXIST) {
        rc = -errno;
        snprintf(why, size, "%s: %s", n->mount, fp_strerror(rc));
        return rc;
    }
    make_link(n);
    node_store_note(n);
    return check_naming(n, why, size);
}

/* ---------------------------------------------------------------- the end */

void node_mount_clean(struct node *n)
{
    char own[PATH_MAX];

    if (n->made_link)
        job_left_unlink(n->wanted, n->dir);
    if (n->service[NODE_MOUNT].starts)
        job_left_unmount(n->mount); /* if fp-mount was killed */
    if (n->made_mount)
        (void)rmdir(n->wanted);
    if (job_dir_file(own, n->dir, JOB_DIR_MOUNT) == 0)
        (void)rmdir(own);
    job_mount_unlock(&n->mount_lock, n->dir);
    if (n->is_inside)
        fp_namespace_close(&n->inside);
}
