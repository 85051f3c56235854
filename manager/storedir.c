/* Each thing that can be wrong with --dir gets its own line: what is wrong, what to do. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fp/log.h"
#include "manager/storedir.h"

static bool made_dir, made_lock, made_db; /* by this start */

static int make(const char *dir)
{
    struct stat st;

    if (mkdir(dir, 0700) == 0) {
        made_dir = true;
        return 0;
    }
    if (errno == EEXIST) {
        if (stat(dir, &st) == 0 && S_ISDIR(st.st_mode))
            return 0;
        FP_ERROR("%s is not a directory: choose another --dir", dir);
        return -ENOTDIR;
    }
    if (errno == ENOENT) {
        FP_ERROR("cannot make %s: the directory above it does not exist: make it, or choose another --dir",
                 dir);
        return -ENOENT;
    }
    FP_ERROR("cannot make %s: %s: choose another --dir", dir, strerror(errno));
    return -errno;
}

static int take_lock(const char *dir)
{
    char path[4200], pid[32] = "";
    int fd, n;

    snprintf(path, sizeof path, "%s/lock", dir);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    made_lock = fd >= 0;
    if (fd < 0 && errno == EEXIST)
        fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        FP_ERROR("cannot write to %s: %s: %s", dir, strerror(errno),
                 errno == ENOSPC ? "make room" : "give this user the right to, or choose another --dir");
        return -errno;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        n = (int)read(fd, pid, sizeof pid - 1);
        pid[n > 0 ? n : 0] = 0;
        pid[strcspn(pid, "\n")] = 0;
        FP_ERROR("another fp-manager (pid %s) runs on %s: stop it first", pid, dir);
        close(fd);
        return -EBUSY;
    }
    n = snprintf(pid, sizeof pid, "%d\n", (int)getpid());
    if (ftruncate(fd, 0) != 0 || write(fd, pid, (size_t)n) != n)
        FP_WARN("cannot write to %s: %s", path, strerror(errno));
    return 0; /* fd stays open: the lock goes with the process */
}

int mgr_storedir_take(const char *dir, char *db_path, size_t size)
{
    char path[4200];
    int rc = make(dir);

    if (rc)
        return rc;
    if ((size_t)snprintf(db_path, size, "%s/store.db", dir) >= size || strlen(dir) > 4000) {
        FP_ERROR("the path of --dir is too long: choose a shorter one");
        return -ENAMETOOLONG;
    }
    snprintf(path, sizeof path, "%s/segments", dir);
    if (access(path, F_OK) == 0 && access(db_path, F_OK) != 0) {
        FP_ERROR("%s is the directory of a benefactor: choose another --dir", dir);
        return -EEXIST;
    }
    rc = take_lock(dir);
    made_db = rc == 0 && access(db_path, F_OK) != 0;
    return rc;
}

void mgr_storedir_undo(const char *dir, const char *db_path)
{
    static const char *const suffixes[] = {"", "-wal", "-shm", "-journal"};
    char path[4200];

    for (size_t i = 0; made_db && i < sizeof suffixes / sizeof *suffixes; i++) {
        snprintf(path, sizeof path, "%s%s", db_path, suffixes[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/lock", dir);
    if (made_lock)
        unlink(path);
    if (made_dir)
        rmdir(dir);
}
