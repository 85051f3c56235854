/*
 * DIR/benefactor.json and DIR/lock (identity.h).
 *
 * Called by main. The identity is what makes a directory part of one store: it is written when the manager
 * has accepted the benefactor, by rename after fsync, before the first segment. A directory that has segments
 * but no identity is refused: somebody lost a file, and claiming the directory anew would set all its data
 * aside.
 *
 * The lock is a flock on DIR/lock: it goes with the process however that ends, so there is nothing to clean.
 */
#include "benefactor/identity.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "fp/err.h"
#include "fp/log.h"

#define FILE_NAME "benefactor.json"
#define FORMAT    1

static int make_dir(const char *path, bool *made)
{
    *made = mkdir(path, 0700) == 0;
    if (*made || errno == EEXIST)
        return 0;
    if (errno == ENOENT)
        FP_ERROR("--dir %s: its parent directory does not exist: make it first", path);
    else
        FP_ERROR("--dir %s can't be made: %s", path, strerror(errno));
    return -errno;
}

static int open_dirs(struct bnf_dir *d)
{
    d->fd = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->fd < 0) {
        FP_ERROR("--dir %s can't be opened: %s", d->path, strerror(errno));
        return -errno;
    }
    bool writable = faccessat(d->fd, ".", W_OK | X_OK, AT_EACCESS) == 0;

    d->made_segments = writable && mkdirat(d->fd, "segments", 0700) == 0;
    if (!writable || (!d->made_segments && errno != EEXIST)) {
        FP_ERROR("--dir %s can't be written: %s; give it to this user, or choose another directory", d->path,
                 strerror(errno));
        return -errno;
    }
    d->segments_fd = openat(d->fd, "segments", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->segments_fd < 0) {
        FP_ERROR("%s/segments can't be opened: %s", d->path, strerror(errno));
        return -errno;
    }
    return 0;
}

static int lock_dir(struct bnf_dir *d)
{
    d->lock_fd = openat(d->fd, "lock", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    d->made_lock = d->lock_fd >= 0;
    if (d->lock_fd < 0 && errno == EEXIST)
        d->lock_fd = openat(d->fd, "lock", O_RDWR | O_CLOEXEC);
    if (d->lock_fd < 0) {
        FP_ERROR("--dir %s can't be written: %s; give it to this user, or choose another directory", d->path,
                 strerror(errno));
        return -errno;
    }
    if (flock(d->lock_fd, LOCK_EX | LOCK_NB)) {
        int rc = -errno;

        FP_ERROR("--dir %s is in use by another fp-benefactor: stop that one, or choose another directory",
                 d->path);
        return rc;
    }
    return 0;
}

static bool has_segments(const struct bnf_dir *d)
{
    int fd = openat(d->segments_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *e;
    bool any = false;

    if (!dir)
        return false;
    while (!any && (e = readdir(dir)))
        any = strncmp(e->d_name, "seg-", 4) == 0 && strlen(e->d_name) == 20;
    closedir(dir);
    return any;
}

static int parse_identity(struct bnf_dir *d, int fd)
{
    json_error_t why;
    json_t *j = json_loadfd(fd, JSON_REJECT_DUPLICATES, &why);
    const char *store = json_string_value(json_object_get(j, "store"));
    const char *bnf = json_string_value(json_object_get(j, "benefactor"));
    json_int_t format = json_integer_value(json_object_get(j, "format"));
    int rc = 0;

    if (format > FORMAT) {
        FP_ERROR("%s/" FILE_NAME " is of a newer release: use that release", d->path);
        rc = FP_EVERSION_DISK;
    } else if (format != FORMAT || !store || !bnf || fp_uuid_parse(store, &d->store) ||
               fp_uuid_parse(bnf, &d->bnf)) {
        FP_ERROR("%s/" FILE_NAME " is damaged: restore it, or empty the directory if its data is not needed",
                 d->path);
        rc = -EINVAL;
    }
    json_decref(j);
    return rc;
}

static int read_identity(struct bnf_dir *d)
{
    int fd = openat(d->fd, FILE_NAME, O_RDONLY | O_CLOEXEC), rc;

    if (fd < 0 && errno == ENOENT) {
        if (has_segments(d)) {
            FP_ERROR("--dir %s has segments but no " FILE_NAME
                     ": restore that file, or empty the directory if its data "
                     "is not needed",
                     d->path);
            return -EINVAL;
        }
        fp_uuid_generate(&d->bnf);
        return 0;
    }
    if (fd < 0) {
        FP_ERROR("%s/" FILE_NAME " can't be read: %s", d->path, strerror(errno));
        return -errno;
    }
    rc = parse_identity(d, fd);
    close(fd);
    d->known = rc == 0;
    return rc;
}

int bnf_dir_open(const char *path, struct bnf_dir *d)
{
    int rc;

    *d = (struct bnf_dir){.path = path, .fd = -1, .lock_fd = -1, .segments_fd = -1};
    rc = make_dir(path, &d->made);
    if (rc == 0)
        rc = open_dirs(d);
    if (rc == 0)
        rc = lock_dir(d);
    if (rc == 0)
        rc = read_identity(d);
    if (rc) {
        bnf_dir_undo(d);
        bnf_dir_close(d);
    }
    return rc;
}

static int write_whole(int fd, const char *text)
{
    size_t len = strlen(text);

    if (write(fd, text, len) != (ssize_t)len)
        return errno ? -errno : -EIO;
    return fsync(fd) ? -errno : 0;
}

int bnf_dir_claim(struct bnf_dir *d, const uint8_t store_uuid[16])
{
    char text[256], store[FP_UUID_BUF], bnf[FP_UUID_BUF];
    int fd, rc;

    memcpy(d->store.b, store_uuid, 16);
    snprintf(text, sizeof(text), "{\"format\": %d, \"store\": \"%s\", \"benefactor\": \"%s\"}\n", FORMAT,
             fp_uuid_format(store, &d->store), fp_uuid_format(bnf, &d->bnf));
    fd = openat(d->fd, FILE_NAME ".new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    rc = fd >= 0 ? write_whole(fd, text) : -errno;
    if (fd >= 0)
        close(fd);
    if (rc == 0 && (renameat(d->fd, FILE_NAME ".new", d->fd, FILE_NAME) || fsync(d->fd)))
        rc = -errno;
    if (rc)
        FP_ERROR("%s/" FILE_NAME " can't be written: %s", d->path, fp_strerror(rc));
    d->known = rc == 0;
    return rc;
}

void bnf_dir_undo(const struct bnf_dir *d)
{
    if (d->known || d->fd < 0)
        return;
    if (d->made_segments)
        unlinkat(d->fd, "segments", AT_REMOVEDIR);
    unlinkat(d->fd, FILE_NAME ".new", 0);
    if (d->made_lock)
        unlinkat(d->fd, "lock", 0);
    if (d->made)
        rmdir(d->path);
}

void bnf_dir_close(struct bnf_dir *d)
{
    if (d->segments_fd >= 0)
        close(d->segments_fd);
    if (d->lock_fd >= 0)
        close(d->lock_fd);
    if (d->fd >= 0)
        close(d->fd);
    d->fd = d->lock_fd = d->segments_fd = -1;
}
