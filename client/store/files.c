/* What lies in DIR, and nothing else is ever removed:
 *
 *     DIR/fp-store.json   state (state.c)      DIR/lock         held while an fp-store works here
 *     DIR/fp-store.shape  what up was told (shape.c)
 *     DIR/key             the store's key      DIR/log/         a log per program
 *     DIR/manager/        database             DIR/benefactor-N/  segments
 *
 * DIR may have been given by hand, so removal goes by these names, not by rm -rf of DIR. The default DIR lies in a directory
 * that everybody may write to: it is taken only if it is a real directory that is ours and that others cannot enter. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "client/store/store.h"
#include "fp/backend.h"
#include "fp/err.h"
#include "fp/key.h"
#include "fp/logtail.h"
#include "fp/rmtree.h"

#define SPARE_BYTES FP_MIB(64) /* for database and logs */

int store_path(const struct store_options *o, char buf[PATH_MAX], const char *fmt, ...)
{
    va_list ap;
    int n = snprintf(buf, PATH_MAX, "%s/", o->dir);
    if (n < 0 || n >= PATH_MAX - 64) {
        FP_ERROR("the path %s is too long: give a shorter --dir", o->dir);
        return -ENAMETOOLONG;
    }
    va_start(ap, fmt);
    vsnprintf(buf + n, (size_t)(PATH_MAX - n), fmt, ap);
    va_end(ap);
    return 0;
}

int store_mkdir(const char *path, bool *made)
{
    if (made)
        *made = false;
    if (mkdir(path, 0700) == 0) {
        if (made)
            *made = true;
        return 0;
    }
    struct stat st;
    int err = -errno;
    if (err == -EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return 0;
    if (err == -EEXIST)
        err = -ENOTDIR;
    FP_ERROR("cannot create the directory %s: %s", path, fp_strerror(err));
    return err;
}

static int lock_dir(const struct store_options *o)
{
    char path[PATH_MAX];
    int rc = store_path(o, path, "lock");
    if (rc < 0)
        return rc;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0) {
        rc = -errno;
        if (rc == -EWOULDBLOCK)
            FP_ERROR("another fp-store is at work in %s: wait for it to end", o->dir);
        else
            FP_ERROR("cannot lock %s: %s", path, fp_strerror(rc));
        if (fd >= 0)
            close(fd);
        return rc;
    }
    return 0; /* fd stays open: the lock ends with the program */
}

int store_dir_open(const struct store_options *o, bool create, bool *made)
{
    struct stat st;
    if (create) {
        int rc = store_mkdir(o->dir, made);
        if (rc < 0)
            return rc;
    }
    if (lstat(o->dir, &st) < 0)
        return -errno;
    if (o->dir_default && (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022))) {
        FP_ERROR("%s belongs to somebody else: give another directory by --dir", o->dir);
        return -EPERM;
    }
    if (access(o->dir, W_OK | X_OK) < 0) {
        int rc = -errno;
        FP_ERROR("the directory %s cannot be written to: %s", o->dir, fp_strerror(rc));
        return rc;
    }
    return lock_dir(o);
}

unsigned store_count_benefactors(const struct store_options *o)
{
    char path[PATH_MAX];
    unsigned n = 0;
    while (n < STORE_BENEFACTORS_MAX && store_path(o, path, "benefactor-%u", n + 1) == 0 && access(path, F_OK) == 0)
        n++;
    return n;
}

static uint64_t memory_available(void)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
            break;
    }
    if (f)
        fclose(f);
    return (uint64_t)kib << 10;
}

int store_check_space(const struct store_options *o, unsigned have)
{
    char need_text[FP_UNITS_BUF], free_text[FP_UNITS_BUF];
    struct fp_backend_spec spec = {.kind = FP_BACKEND_DIR};
    char why[FP_BACKEND_WHY_BUF];
    bool memory = fp_backend_parse(o->backend, &spec, why) == 0 && spec.kind == FP_BACKEND_MEMORY;
    uint64_t count = (uint64_t)o->benefactors - (memory || have > o->benefactors ? 0 : have);
    uint64_t need = count * o->size_bytes + SPARE_BYTES, avail;
    if (!memory && have >= o->benefactors)
        return 0;
    if (memory) {
        need += (uint64_t)o->mounts * o->pool_bytes;
        avail = memory_available();
    } else {
        struct statvfs v;
        if (statvfs(o->dir, &v) < 0) {
            int rc = -errno;
            FP_ERROR("%s: %s", o->dir, fp_strerror(rc));
            return rc;
        }
        avail = (uint64_t)v.f_bavail * v.f_frsize;
    }
    if (need <= avail)
        return 0;
    fp_format_size(need_text, need);
    fp_format_size(free_text, avail);
    if (memory)
        FP_ERROR("%s of memory are needed and %s are available: use a smaller --size, or fewer --benefactors", need_text,
                 free_text);
    else
        FP_ERROR("%s are needed in %s and %s are free: use a smaller --size, fewer --benefactors, or another --dir",
                 need_text, o->dir, free_text);
    return -ENOSPC;
}

int store_make_key(const struct store_options *o, char path[PATH_MAX])
{
    char why[FP_KEY_WHY_MAX] = "";
    struct fp_key *key = NULL;
    int rc = store_path(o, path, "key");
    if (rc < 0 || access(path, F_OK) == 0)
        return rc;
    rc = fp_key_generate(&key);
    if (rc == 0)
        rc = fp_key_write(key, path, why);
    if (rc < 0)
        FP_ERROR("cannot make the key: %s", *why ? why : fp_strerror(rc));
    fp_key_free(key);
    return rc;
}

/* ---------------------------------------------------------------- removing */

static void remove_tree(const struct store_options *o, const char *name)
{
    char path[PATH_MAX];
    if (store_path(o, path, "%s", name) == 0)
        fp_remove_tree(path);
}

void store_remove_all(const struct store_options *o, bool dir_too)
{
    static const char *const names[] = {"manager", "log", "key", "fp-store.json", "fp-store.json.new",
                                        "fp-store.shape", "fp-store.shape.new"};
    char name[32];
    unsigned n = store_count_benefactors(o);
    for (unsigned i = 1; i <= n; i++) {
        snprintf(name, sizeof name, "benefactor-%u", i);
        remove_tree(o, name);
    }
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        remove_tree(o, names[i]);
    remove_tree(o, "lock");
    if (dir_too)
        rmdir(o->dir);
}

/* ---------------------------------------------------------------- logs */

void store_log_path(const struct store_options *o, const struct store_proc *p, char buf[PATH_MAX])
{
    const char *program = store_role_program(p->role);
    if (p->role == STORE_MANAGER)
        store_path(o, buf, "log/%s.log", program);
    else
        store_path(o, buf, "log/%s-%u.log", program, p->index);
}

static bool last_line(const struct store_options *o, const struct store_proc *p, const char *mark, const char *with, char *text,
                      size_t room)
{
    char path[PATH_MAX];
    store_log_path(o, p, path);
    return fp_log_tail(path, (long)p->log_from, mark, with, text, room);
}

bool store_log_loss(const struct store_options *o, const struct store_proc *p, char *text, size_t room)
{
    return last_line(o, p, FP_LOG_ERROR_MARK, " had confirmed are lost", text, room) || last_line(o, p, FP_LOG_ERROR_MARK, "", text, room);
}

bool store_log_last(const struct store_options *o, const struct store_proc *p, enum fp_log_level level, char *text,
                    size_t room)
{
    return last_line(o, p, level == FP_LOG_ERROR ? FP_LOG_ERROR_MARK : FP_LOG_WARN_MARK, "", text, room);
}

void store_log_cause(const struct store_options *o, const struct store_proc *p, char *cause, size_t room)
{
    if (!store_log_last(o, p, FP_LOG_ERROR, cause, room))
        last_line(o, p, "", "", cause, room);
}

void store_log_mark(const struct store_options *o, struct store_proc *p)
{
    char path[PATH_MAX];
    struct stat st;
    store_log_path(o, p, path);
    p->log_from = stat(path, &st) == 0 ? st.st_size : 0;
}
