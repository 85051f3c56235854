/*
 * A job's own directory on a node (see jobdir.h). Called by the agent of the node and by fp-job start, stop and status.
 *
 * /tmp and not $TMPDIR: who asks for the status of a job in another shell has another environment, and finds it all the same. It is ours alone (0700), and
 * one that somebody else has made there is refused, since the key is put into it.
 */
#include "jobscripts/jobdir.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <mntent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fp/err.h"
#include "fp/limited.h"
#include "fp/log.h"
#include "fp/rmtree.h"
#include "fp/wholefile.h"
#include "jobscripts/dirname.h"

#define RECORD     "job.json"
#define MAKE_TRIES 10u
#define HOLD_TRIES 500u
#define STRAYS_MAX 4096u
#define VARIABLE_MAX 128u /* of the name of one */

void job_dir_path(char out[PATH_MAX], const char *job)
{
    job_dirname_find(out, geteuid(), job);
}

static bool is_ours(const struct stat *st)
{
    return job_dirname_is_ours(st, geteuid());
}

bool job_dir_is_ours(const char *dir)
{
    struct stat st;

    return lstat(dir, &st) == 0 && is_ours(&st);
}

/* One that is there, and gone when it is looked at, was removed as one that was left: nobody else's is in the way. */
int job_dir_make(const char *dir)
{
    struct stat st;

    for (unsigned i = 0; i < MAKE_TRIES; i++) {
        if (mkdir(dir, 0700) == 0)
            return 0;
        if (errno != EEXIST)
            return -errno;
        if (lstat(dir, &st) == 0)
            return is_ours(&st) ? 0 : -EPERM;
        if (errno != ENOENT)
            return -EPERM;
    }
    return -EAGAIN;
}

int job_dir_keep(const char *dir)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0)
        return errno == ENOENT ? -EAGAIN : -errno;
    if (flock(fd, LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return 0; /* fd stays open */
    close(fd);
    return -EAGAIN;
}

/* -EAGAIN: it was removed meanwhile, as one that was left. Where the file system has no locks it is never taken for that. */
static int hold_once(const char *dir)
{
    char path[PATH_MAX], host[256] = "";
    struct stat mine, there;
    int rc = job_dir_make(dir), fd;

    rc = rc ? rc : job_dir_file(path, dir, JOB_DIR_LOCK);
    if (rc)
        return rc;
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return errno == ENOENT ? -EAGAIN : -errno;
    if ((flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK) || fstat(fd, &mine) < 0 || stat(path, &there) < 0 || mine.st_ino != there.st_ino) {
        close(fd);
        return -EAGAIN;
    }
    (void)gethostname(host, sizeof host - 1);
    rc = pwrite(fd, host, strlen(host), 0) < 0 ? -errno : job_dir_keep(dir); /* some file systems have locks that other machines do not see */
    if (rc)
        close(fd);
    return rc; /* fd stays open */
}

/* Of one that could not be held, as where no space is left: an empty lock does not say of which node it is. Another process of the job may have it, and be about to
 * write that into it: it stays then, and who comes while it is ours tries again (hold_once). */
static void undo(const char *dir)
{
    char path[PATH_MAX];
    struct stat st;
    int fd = job_dir_file(path, dir, JOB_DIR_LOCK) ? -1 : open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 && st.st_size == 0)
        (void)unlink(path);
    (void)rmdir(dir);
    if (fd >= 0)
        close(fd);
}

int job_dir_hold(const char *dir)
{
    static const struct timespec pause = {0, 20000000};
    int rc = hold_once(dir);

    for (unsigned i = 0; rc == -EAGAIN && i < HOLD_TRIES; i++) {
        nanosleep(&pause, NULL);
        rc = hold_once(dir);
    }
    if (rc && rc != -EAGAIN && rc != -EPERM)
        undo(dir);
    return rc == -EAGAIN ? -EBUSY : rc;
}

/* Who has a lock that we have for this moment waits for it. */
bool job_dir_is_locked(const char *dir, const char *name)
{
    int fd = job_dir_read(dir, name);
    bool held = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;

    if (fd >= 0)
        close(fd);
    return held;
}

bool job_dir_is_held(const char *dir)
{
    return job_dir_is_locked(dir, JOB_DIR_LOCK);
}

void job_dir_whose(const char *dir, char *out, size_t size)
{
    struct stat st;

    if (lstat(dir, &st) < 0)
        snprintf(out, size, "%s", fp_strerror(-errno));
    else if (st.st_uid != geteuid())
        snprintf(out, size, "it belongs to user %u: only that user or an administrator can remove it", (unsigned)st.st_uid);
    else
        snprintf(out, size, "%s: remove it", S_ISDIR(st.st_mode) ? "others may read it" : "it is no directory");
}

int job_dir_begin(char dir[PATH_MAX], const char *job)
{
    char whose[JOB_DIR_WHOSE_BYTES], other[PATH_MAX];
    int rc;

    job_dir_path(dir, job);
    rc = job_dir_hold(dir);
    if (rc != -EPERM)
        return rc;
    job_dir_whose(dir, whose, sizeof whose);
    if (snprintf(other, sizeof other, "%s" JOB_DIR_OTHER, dir) >= PATH_MAX || !mkdtemp(other))
        return rc;
    FP_WARN("%s is not this job's (%s): %s is taken in its place", dir, whose, other);
    snprintf(dir, PATH_MAX, "%s", other);
    return job_dir_hold(dir);
}

int job_dir_file(char out[PATH_MAX], const char *dir, const char *name)
{
    return snprintf(out, PATH_MAX, "%s/%s", dir, name) < PATH_MAX ? 0 : -ENAMETOOLONG;
}

int job_dir_read(const char *dir, const char *name)
{
    int d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW), fd, rc = 0;
    struct stat st;

    if (d < 0)
        return errno == ENOENT ? -ENOENT : -EPERM;
    if (fstat(d, &st) < 0 || !is_ours(&st)) {
        close(d);
        return -EPERM;
    }
    fd = openat(d, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK); /* what is no file would be waited for */
    if (fd < 0)
        rc = errno == ELOOP ? -EPERM : -errno;
    else if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid()) {
        close(fd);
        rc = -EPERM;
    }
    close(d);
    return rc ? rc : fd;
}

int job_dir_write(const char *dir, const char *name, const char *text, mode_t mode)
{
    char path[PATH_MAX];
    int rc = job_dir_file(path, dir, name);

    return rc ? rc : fp_write_whole(path, text, mode, false);
}

static int remove_tree(const void *path)
{
    return fp_remove_tree(path);
}

/* A disk that hangs, or a million files on a slow one, must not hold the end of a job. */
int job_dir_clear(const char *path)
{
    int rc = fp_limited(remove_tree, path, JOB_REMOVE_MS);

    if (rc == -ETIMEDOUT)
        FP_WARN("%s could not be removed within %u s, as it has very many files, or its file system does not answer: the user's next job here, or fp-job clean, goes on with it", path, JOB_REMOVE_MS / 1000);
    return rc;
}

int job_dir_remove(const char *dir)
{
    char gone[PATH_MAX];

    if (snprintf(gone, sizeof gone, "%s" JOB_DIR_REMOVED "%d", dir, (int)getpid()) >= PATH_MAX)
        return job_dir_clear(dir);
    if (rename(dir, gone) == 0)
        return job_dir_clear(gone);
    return errno == ENOENT ? 0 : job_dir_clear(dir);
}

bool job_dir_is_removed(const char *name)
{
    const char *end = strstr(name, JOB_DIR_REMOVED);
    size_t digits = end ? strspn(end + strlen(JOB_DIR_REMOVED), "0123456789") : 0;

    return digits && end[strlen(JOB_DIR_REMOVED) + digits] == '\0';
}

bool job_dir_taken(const char *path)
{
    FILE *f = setmntent("/proc/self/mounts", "r");
    bool is = false;

    for (struct mntent *e; f && (e = getmntent(f));)
        if (strcmp(e->mnt_dir, path) == 0)
            is = strcmp(e->mnt_type, "fuse.fpstore") == 0;
    if (f)
        endmntent(f);
    return is;
}

static void keep_name(struct job_stray *s, const char *name, uid_t uid)
{
    size_t n = 0;

    for (; name[n] && n + 1 < sizeof s->name; n++)
        s->name[n] = name[n] > ' ' && name[n] < 127 ? name[n] : '?';
    s->name[n] = '\0';
    s->uid = uid;
}

/* Nobody is asked for what is mounted there: it may hang. Of very many the first are enough, as they are only hidden. */
static void look_into(const char *path, struct job_stray *out)
{
    DIR *d = opendir(path);
    unsigned n = 0;

    memset(out, 0, sizeof *out);
    for (struct dirent *e; d && n++ < STRAYS_MAX && (e = readdir(d));) {
        struct statx st = {0};
        int rc;

        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        rc = statx(dirfd(d), e->d_name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, STATX_UID, &st);
        if (!out->name[0] || (rc == 0 && st.stx_uid == geteuid()))
            keep_name(out, e->d_name, rc ? (uid_t)-1 : st.stx_uid);
        if (out->uid == geteuid())
            break;
    }
    if (d)
        closedir(d);
}

int job_dir_strays(const char *path, struct job_stray *out)
{
    struct job_stray found;
    struct stat st;

    look_into(path, &found);
    if (out)
        *out = found;
    if (!found.name[0] || (found.uid != geteuid() && stat(path, &st) == 0 && (st.st_mode & (S_IWOTH | S_ISVTX)) == S_IWOTH))
        return 0;
    return -ENOTEMPTY;
}

int job_dir_mountable(const char *path, struct job_stray *out)
{
    struct stat st;

    if (stat(path, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return -ENOTDIR;
    if (access(path, W_OK) < 0 || (st.st_uid != geteuid() && geteuid() != 0 && (st.st_mode & S_ISVTX)))
        return -EACCES;
    return job_dir_strays(path, out);
}

int job_record_save(const char *dir, const struct job_record *r)
{
    json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:I, s:I, s:I}", "job", r->job, "root", r->root, "step", r->step, "manager", r->manager, "mount", r->mount,
                          "application", r->application, "script", r->script, "inside", (int)r->inside, "nodes", (json_int_t)r->nodes, "launcher", (json_int_t)r->launcher, "launcher_ticks",
                          (json_int_t)r->launcher_ticks);
    char *text = j ? json_dumps(j, JSON_INDENT(1)) : NULL;
    int rc = text ? job_dir_write(dir, RECORD, text, 0600) : -ENOMEM;

    free(text);
    json_decref(j);
    return rc;
}

static bool copy(char *out, size_t size, const char *text)
{
    return (size_t)snprintf(out, size, "%s", text) < size;
}

int job_record_load(const char *dir, struct job_record *out)
{
    const char *job, *root, *step, *manager, *mount, *application, *script;
    json_int_t nodes, launcher, ticks;
    int fd = job_dir_read(dir, RECORD);
    json_t *j;
    int inside;
    bool ok;

    memset(out, 0, sizeof *out);
    if (fd < 0)
        return fd;
    j = json_loadfd(fd, 0, NULL);
    close(fd);
    ok = j && json_unpack(j, "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:I, s:I, s:I}", "job", &job, "root", &root, "step", &step, "manager", &manager, "mount", &mount, "application",
                          &application, "script", &script, "inside", &inside, "nodes", &nodes, "launcher", &launcher, "launcher_ticks", &ticks) == 0;
    ok = ok && copy(out->job, sizeof out->job, job) && copy(out->root, sizeof out->root, root) && copy(out->step, sizeof out->step, step) &&
         copy(out->manager, sizeof out->manager, manager) && copy(out->mount, sizeof out->mount, mount) && copy(out->application, sizeof out->application, application) &&
         copy(out->script, sizeof out->script, script);
    if (ok) {
        out->nodes = (uint32_t)nodes;
        out->inside = inside;
        out->launcher = (pid_t)launcher;
        out->launcher_ticks = (uint64_t)ticks;
    }
    json_decref(j);
    return ok ? 0 : -EBADMSG;
}

void job_path_plain(char *path)
{
    char *to = path;

    for (const char *c = path; *c; c++)
        if (*c != '/' || (c[1] != '/' && (c[1] || to == path)))
            *to++ = *c;
    *to = '\0';
}

/* The name within what job_variable is long. */
static const char *variable_name(const char *text, size_t whole, size_t *len)
{
    bool brace = text[1] == '{';

    *len = whole - 1 - 2 * brace;
    return text + 1 + brace;
}

size_t job_variable(const char *text)
{
    bool brace = text[0] == '$' && text[1] == '{';
    const char *name = text + (brace ? 2 : 1);
    size_t len = 0;

    while (text[0] == '$' && (name[len] == '_' || isalpha((unsigned char)name[len]) || (len && isdigit((unsigned char)name[len]))))
        len++;
    return !len || len >= VARIABLE_MAX || (brace && name[len] != '}') ? 0 : len + 1 + 2 * brace;
}

int job_expand(char out[PATH_MAX], const char *text)
{
    size_t n = 0;

    while (*text && n < PATH_MAX - 1) {
        size_t whole = job_variable(text), len;
        const char *name, *value;
        char word[VARIABLE_MAX];

        if (!whole) {
            out[n++] = *text++;
            continue;
        }
        name = variable_name(text, whole, &len);
        snprintf(word, sizeof word, "%.*s", (int)len, name);
        value = getenv(word);
        if (!value || !*value) {
            snprintf(out, PATH_MAX, "%s", word);
            return -ENOENT;
        }
        n += (size_t)snprintf(out + n, PATH_MAX - n, "%s", value);
        text += whole;
    }
    if (n >= PATH_MAX - 1)
        return -ENAMETOOLONG;
    out[n] = '\0';
    return 0;
}
