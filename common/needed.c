/*
 * Marks and entries by which stores say what they need in a target.
 *
 * What they mean, and who writes them when, is said in drain/needed.c, the only one that writes them. They are read by fp-drain, on threads that may hang in the target, and
 * where fpctl merge replaces a file without a store: then the target is not known, so each directory above the file is looked at.
 *
 * Rejected: to look for the marker (FP_DW_MARKER) of a target first; one that has lost it still has entries.
 */
#include "fp/needed.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "fp/drainwire.h"

#define STORE_LEN 8u
#define ABOVE_MAX 4096u

bool fp_needed_is_of(const char *mark, const char *store)
{
    return store && strncmp(mark, store, STORE_LEN) == 0;
}

bool fp_needed_is_entry(const char *name)
{
    size_t len = strlen(name), middle = strlen(FP_NEEDED_MIDDLE);

    return len > STORE_LEN + middle && len <= FP_DW_TMP_MAX && !strchr(name, '/') && memcmp(name + STORE_LEN, FP_NEEDED_MIDDLE, middle) == 0;
}

static int read_mark(int fd, const char *name, char mark[256])
{
    ssize_t n = fgetxattr(fd, name, mark, 255);

    mark[n > 0 ? n : 0] = '\0';
    return n < 0 && errno != ENODATA ? -errno : 0;
}

int fp_needed_read(int dir, const char *name, struct fp_needed *m)
{
    struct stat st;
    int fd = -1, needed, rc = fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) ? -errno : 0;

    memset(m, 0, sizeof(*m));
    if (rc == 0 && S_ISREG(st.st_mode)) {
        m->is = true;
        m->ino = st.st_ino;
        fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        rc = fd < 0 ? -errno : 0;
    }
    if (fd >= 0) {
        (void)read_mark(fd, FP_DW_MARK_XATTR, m->drained);
        needed = read_mark(fd, FP_DW_NEED_XATTR, m->needed);
        close(fd);
        rc = needed == -ENOTSUP ? 0 : needed;
    } else if (rc == -EACCES && st.st_uid == geteuid()) {
        rc = 0;
    }
    return rc == -ENOENT ? 0 : rc;
}

/* Does another store rely on files without a mark, which this may be one of? */
static int may_be_of_all(int temps, const struct fp_needed *m, const char *store)
{
    int fd = openat(temps, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = fd < 0 ? -errno : 0;
    DIR *d = rc ? NULL : fdopendir(fd);

    rc = rc ? rc : d ? 0 : -errno;
    if (rc && fd >= 0)
        close(fd);
    for (struct dirent *e; d && rc == 0 && (errno = 0, e = readdir(d));) {
        size_t len = strlen(e->d_name), all = strlen(FP_NEEDED_ALL);

        if (!fp_needed_is_entry(e->d_name) || strcmp(e->d_name + len - all, FP_NEEDED_ALL) != 0 || fp_needed_is_of(e->d_name, store))
            continue;
        rc = !m->drained[0] || memcmp(m->drained, e->d_name, STORE_LEN) == 0;
    }
    if (rc == 0 && d && errno)
        rc = -errno;
    if (d)
        closedir(d);
    return rc;
}

int fp_needed_by_others(int temps, const struct fp_needed *m, const char *store, bool drained)
{
    bool other = fp_needed_is_entry(m->needed) && !fp_needed_is_of(m->needed, store);
    int rc = !other ? 0 : faccessat(temps, m->needed, F_OK, AT_SYMLINK_NOFOLLOW) == 0 ? 1 : errno == ENOENT ? 0 : -errno;

    return rc == 0 && !drained ? may_be_of_all(temps, m, store) : rc;
}

/* *dir becomes the one above. 1; 0: there is none. */
static int climb(int *dir)
{
    int up = openat(*dir, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = up < 0 ? -errno : 0;
    struct stat here, there;

    if (rc == 0 && (fstat(*dir, &here) || fstat(up, &there)))
        rc = -errno;
    if (rc == 0)
        rc = here.st_ino != there.st_ino || here.st_dev != there.st_dev;
    if (rc <= 0) {
        if (up >= 0)
            close(up);
        return rc == -EACCES ? 0 : rc; /* whose root we can't look into has no target that we could write to */
    }
    close(*dir);
    *dir = up;
    return 1;
}

int fp_needed_by_any(int dir, const char *name)
{
    struct fp_needed m;
    int at, more = 1, rc = fp_needed_read(dir, name, &m);

    if (rc || !m.is)
        return rc;
    at = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rc = at < 0 ? -errno : 0;
    for (unsigned i = 0; rc == 0 && more > 0 && i < ABOVE_MAX; i++) {
        int temps = openat(at, FP_DW_TEMP_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        rc = temps >= 0 ? fp_needed_by_others(temps, &m, NULL, false) : errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -errno;
        if (temps >= 0)
            close(temps);
        more = rc ? 0 : climb(&at);
        rc = more < 0 ? more : rc;
    }
    if (at >= 0)
        close(at);
    return rc;
}
