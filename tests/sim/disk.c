/*
 * Disks. Files are real ones in a directory of memory per node; what a power loss may take is kept beside them: for each block that was written since its
 * file was last synced, what was there before. Programs of a node that lose power find for each such block the old content, the new one, or a mixture of sectors.
 * Names that were made or changed since their directory was synced may be lost too, the latest first.
 *
 * All functions of the C library that change a file, for programs and for SQLite (which is no part of the programs, but shared by them).
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sys/file.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/sim/disk.h"
#include "tests/sim/target.h"

#define BLOCK   4096u
#define SECTOR  512u
#define BUCKETS 256u

struct undo {
    struct undo *next;
    uint64_t block;
    bool doomed; /* its sync failed: no later one makes it durable */
    uint8_t old[BLOCK];
};

struct sim_file {
    struct sim_file *next;
    dev_t dev;
    ino_t ino;
    struct sim_node *node;
    uint64_t durable_size;
    uint32_t serial;
    bool database; /* SQLite's: never waits */
    int fd;        /* the simulator's own */
    struct undo *undo[BUCKETS];
    unsigned nundo;
};

struct nameop { /* not durable yet; newest first */
    struct nameop *next;
    struct sim_node *node;
    enum { MADE, RENAMED, REMOVED } what;
    char path[PATH_MAX], old[PATH_MAX], kept[PATH_MAX]; /* kept: a link to what the name was before; "" for none */
};

struct sim_fd sim_fds[SIM_FDS_MAX];

static struct sim_file *files;
static uint32_t nfiles;
static struct nameop *nameops;
static unsigned nkept;
static struct { uintptr_t from, to; } sqlite;

/* ------------------------------------------------------------------ what is whose */

static int find_sqlite(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    (void)arg;
    if (info->dlpi_name && strstr(info->dlpi_name, "libsqlite3")) {
        sqlite.from = info->dlpi_addr;
        for (int i = 0; i < info->dlpi_phnum; i++)
            if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz > sqlite.to)
                sqlite.to = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
    }
    return 0;
}

void sim_disk_init(void)
{
    dl_iterate_phdr(find_sqlite, NULL);
}

bool sim_in_sqlite(const void *address)
{
    return (uintptr_t)address >= sqlite.from && (uintptr_t)address < sqlite.to;
}

void sim_close_raw(int fd)
{
    syscall(SYS_close, fd);
}

int sim_dup_raw(int fd)
{
    int to = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);

    if (to >= SIM_FDS_MAX)
        sim_fail("more than %d descriptors", SIM_FDS_MAX);
    return to;
}

static struct sim_node *node_of_path(const char *path)
{
    for (unsigned i = 0; i < sim.nnodes; i++) {
        size_t n = strlen(sim.nodes[i].dir);

        if (strncmp(path, sim.nodes[i].dir, n) == 0 && path[n] == '/')
            return &sim.nodes[i];
    }
    return NULL;
}

/* "" when it is none of ours. */
static struct sim_node *full_path(char out[PATH_MAX], int dirfd, const char *path)
{
    char link[64], base[PATH_MAX] = "";
    ssize_t n = 0;

    if (path[0] != '/' && dirfd != AT_FDCWD) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
        n = readlink(link, base, sizeof base - 1);
        base[n > 0 ? n : 0] = '\0';
    }
    if (snprintf(out, PATH_MAX, "%s%s%s", base, n > 0 ? "/" : "", path) >= PATH_MAX)
        out[0] = '\0';
    return node_of_path(out);
}

/* Under a number of its own, to be there when all others are closed. */
static int open_again(int fd)
{
    char link[64];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return (int)syscall(SYS_openat, AT_FDCWD, link, O_RDWR | O_CLOEXEC);
}

static struct sim_file *file_of(int fd)
{
    return fd >= 0 && fd < SIM_FDS_MAX ? sim_fds[fd].file : NULL;
}

static bool is_database(const char *path)
{
    const char *s = strrchr(path, '/');

    return s && strncmp(s, "/store.db", 9) == 0;
}

static void opened(int fd, struct sim_node *n, const char *path)
{
    struct sim_file *f = files;
    struct stat st;

    if (!n || fstat(fd, &st) || !S_ISREG(st.st_mode))
        return;
    while (f && (f->ino != st.st_ino || f->dev != st.st_dev))
        f = f->next;
    if (!f) {
        f = calloc(1, sizeof *f);
        *f = (struct sim_file){.next = files, .dev = st.st_dev, .ino = st.st_ino, .node = n, .durable_size = (uint64_t)st.st_size, .database = is_database(path)};
        f->fd = open_again(fd);
        f->serial = ++nfiles;
        files = f;
    }
    if (fd >= SIM_FDS_MAX)
        sim_fail("more than %d descriptors", SIM_FDS_MAX);
    sim_fds[fd] = (struct sim_fd){.file = f, .proc = sim_self ? sim_self->proc : NULL};
}

/* ------------------------------------------------------------------ names */

static void keep_name(struct nameop *op, const char *path)
{
    snprintf(op->kept, sizeof op->kept, "%s/kept.%u", sim.dir, ++nkept);
    if (syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, op->kept, 0))
        op->kept[0] = '\0';
}

static struct nameop *name_op(struct sim_node *n, int what, const char *path)
{
    struct nameop *op = calloc(1, sizeof *op);

    op->node = n;
    op->what = what;
    snprintf(op->path, sizeof op->path, "%s", path);
    op->next = nameops;
    nameops = op;
    return op;
}

static void name_end(struct nameop **p)
{
    struct nameop *op = *p;

    *p = op->next;
    if (op->kept[0])
        syscall(SYS_unlink, op->kept);
    free(op);
}

static bool in_dir(const char *path, const char *dir)
{
    size_t n = strlen(dir);

    return strncmp(path, dir, n) == 0 && path[n] == '/' && !strchr(path + n + 1, '/');
}

/* A directory was synced (file NULL), or a file, which makes the name durable that it was made with. */
static void names_durable(const char *dir, const char *file)
{
    for (struct nameop **p = &nameops; *p;)
        if (file ? (*p)->what == MADE && strcmp((*p)->path, file) == 0 : in_dir((*p)->path, dir))
            name_end(p);
        else
            p = &(*p)->next;
}

static void name_undo(struct nameop *op)
{
    if (op->what == MADE)
        syscall(SYS_unlink, op->path);
    if (op->what == RENAMED)
        syscall(SYS_rename, op->path, op->old);
    if (op->kept[0])
        syscall(SYS_rename, op->kept, op->path);
    op->kept[0] = '\0';
}

static void names_power_loss(struct sim_node *n)
{
    unsigned count = 0, lost;

    for (struct nameop *op = nameops; op; op = op->next)
        count += op->node == n;
    lost = sim_chance(SIM_RNG_DISK, 500000) ? 0 : (unsigned)sim_below(SIM_RNG_DISK, count + 1);
    for (struct nameop **p = &nameops; *p;) {
        if ((*p)->node != n) {
            p = &(*p)->next;
            continue;
        }
        if (lost) {
            lost--;
            sim_trace("disk of node %d: the name %s is as before", n->id, strrchr((*p)->path, '/') + 1);
            name_undo(*p);
        }
        name_end(p);
    }
}

/* ------------------------------------------------------------------ contents */

static void before_write(struct sim_file *f, int fd, uint64_t off, uint64_t len)
{
    for (uint64_t b = off / BLOCK; len && b <= (off + len - 1) / BLOCK; b++) {
        struct undo **bucket = &f->undo[b % BUCKETS], *u = *bucket;
        long n;

        while (u && u->block != b)
            u = u->next;
        if (u)
            continue;
        u = malloc(sizeof *u);
        u->block = b;
        u->doomed = false;
        n = syscall(SYS_pread64, fd, u->old, BLOCK, b * BLOCK);
        memset(u->old + (n > 0 ? n : 0), 0, BLOCK - (size_t)(n > 0 ? n : 0));
        u->next = *bucket;
        *bucket = u;
        f->nundo++;
    }
}

static void undo_all(struct sim_file *f, void (*each)(struct sim_file *f, struct undo *u, void *arg), void *arg, bool keep_doomed)
{
    for (unsigned i = 0; i < BUCKETS && f->nundo; i++)
        for (struct undo **p = &f->undo[i]; *p;) {
            struct undo *u = *p;

            if (keep_doomed && u->doomed) {
                p = &u->next;
                continue;
            }
            if (each)
                each(f, u, arg);
            *p = u->next;
            free(u);
            f->nundo--;
        }
}

static void synced(struct sim_file *f, int fd)
{
    struct stat st;

    undo_all(f, NULL, NULL, true);
    if (fstat(fd, &st) == 0)
        f->durable_size = (uint64_t)st.st_size;
}

struct loss {
    int fd;
    unsigned keep_ppm;
    uint64_t end; /* of what is left */
    unsigned lost, torn;
};

static void lose_block(struct sim_file *f, struct undo *u, void *arg)
{
    struct loss *l = arg;
    uint8_t now[BLOCK];

    (void)f;
    if (!u->doomed && sim_chance(SIM_RNG_DISK, l->keep_ppm)) {
        l->end = l->end > (u->block + 1) * BLOCK ? l->end : (u->block + 1) * BLOCK;
        return;
    }
    if (!u->doomed && sim_chance(SIM_RNG_DISK, 100000)) { /* torn: some sectors are new */
        memset(now, 0, sizeof now);
        syscall(SYS_pread64, l->fd, now, BLOCK, u->block * BLOCK);
        for (unsigned s = 0; s < BLOCK; s += SECTOR)
            if (sim_chance(SIM_RNG_DISK, 500000))
                memcpy(u->old + s, now + s, SECTOR);
        l->end = l->end > (u->block + 1) * BLOCK ? l->end : (u->block + 1) * BLOCK;
        l->torn++;
    }
    syscall(SYS_pwrite64, l->fd, u->old, BLOCK, u->block * BLOCK);
    l->lost++;
}

void sim_disk_power_loss(struct sim_node *n)
{
    for (struct sim_file *f = files; f; f = f->next) {
        struct loss l = {.keep_ppm = sim_chance(SIM_RNG_DISK, 600000) ? 0 : (unsigned)sim_below(SIM_RNG_DISK, 1000001), .end = f->durable_size};
        struct stat st;

        if (f->node != n || !f->nundo)
            continue;
        l.fd = f->fd;
        if (fstat(l.fd, &st) == 0 && (uint64_t)st.st_size < l.end)
            l.end = (uint64_t)st.st_size;
        undo_all(f, lose_block, &l, false);
        if (fstat(l.fd, &st) == 0 && (uint64_t)st.st_size > l.end)
            (void)syscall(SYS_ftruncate, l.fd, l.end);
        f->durable_size = l.end;
        sim_trace("disk of node %d: file %u: %u blocks lost, %u of them torn", n->id, f->serial, l.lost, l.torn);
    }
    names_power_loss(n);
}

/* A bit of a block that is not a hole changes. */
bool sim_disk_rot(struct sim_node *n)
{
    struct sim_file *pick = NULL;
    unsigned count = 0;
    uint8_t byte = 0;
    int fd;

    for (struct sim_file *f = files; f; f = f->next)
        if (f->node == n && !f->database && sim_below(SIM_RNG_DISK, ++count) == 0)
            pick = f;
    if (!pick)
        return false;
    fd = pick->fd;
    for (unsigned tries = 0; tries < 200; tries++) {
        off_t from = (off_t)sim_below(SIM_RNG_DISK, 32u << 20), at = lseek(fd, from, SEEK_DATA);

        if (at < 0 || at > from + 65536)
            continue;
        if (syscall(SYS_pread64, fd, &byte, 1, at) != 1)
            continue;
        byte ^= (uint8_t)(1u << sim_below(SIM_RNG_DISK, 8));
        syscall(SYS_pwrite64, fd, &byte, 1, at);
        sim_trace("disk of node %d: a bit at %lld of file %u has changed", n->id, (long long)at, pick->serial);
        return true;
    }
    return false;
}

void sim_disk_lose_segments(struct sim_node *n)
{
    struct stat st;

    for (struct sim_file *f = files; f; f = f->next) /* but for what says whose they are */
        if (f->node == n && !f->database && fstat(f->fd, &st) == 0 && st.st_size > (1 << 20))
            syscall(SYS_fallocate, f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096L, st.st_size - 4096);
    sim_trace("disk of node %d: all records of its benefactor are lost", n->id);
}

static void renew(const char *path)
{
    char to[PATH_MAX];
    struct stat was, is;
    long n, off = 0;
    char buf[65536];
    int in = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC), out;

    if (in < 0)
        return;
    snprintf(to, sizeof to, "%s.renewed", path);
    out = (int)syscall(SYS_openat, AT_FDCWD, to, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    while ((n = syscall(SYS_pread64, in, buf, sizeof buf, off)) > 0)
        off += syscall(SYS_pwrite64, out, buf, n, off);
    if (fstat(in, &was) == 0 && fstat(out, &is) == 0)
        for (struct sim_file *f = files; f; f = f->next)
            if (f->ino == was.st_ino && f->dev == was.st_dev) {
                f->ino = is.st_ino;
                sim_close_raw(f->fd);
                f->fd = sim_dup_raw(out);
            }
    syscall(SYS_rename, to, path);
    sim_close_raw(in);
    sim_close_raw(out);
}

void sim_disk_renew_database(struct sim_node *n)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/mgr/store.db", n->dir);
    renew(path);
    snprintf(path, sizeof path, "%s/mgr/store.db-wal", n->dir);
    renew(path);
    snprintf(path, sizeof path, "%s/mgr/store.db-shm", n->dir);
    syscall(SYS_unlink, path);
}

/* ------------------------------------------------------------------ faults of a device */

static bool dying(void)
{
    return sim_self && sim_self->proc && sim_self->proc->dying;
}

/* 0, or the errno that this operation fails with. atomic: the caller may not wait. */
static int fault(struct sim_file *f, bool is_sync, bool atomic)
{
    struct sim_node *n = f->node;

    sim.disk_ops++;
    sim_note(f->serial << 8 | (is_sync ? 0x51u : 0x52u));
    sim_fault_disk();
    if (dying()) {
        if (!atomic)
            sim_proc_check_dying();
        return EIO;
    }
    if (!atomic)
        sim_maybe_yield();
    if (!atomic && n->slow_disk_ns)
        sim_sleep_ns(sim_below(SIM_RNG_DISK, n->slow_disk_ns));
    if (n->broken_disk && !f->database && sim_chance(SIM_RNG_DISK, 300000))
        return EIO;
    return 0;
}

static ssize_t failed(int err)
{
    errno = err;
    return -1;
}

/* ------------------------------------------------------------------ functions of the C library */

int open(const char *path, int flags, ...)
{
    char full[PATH_MAX];
    struct sim_node *n;
    mode_t mode = 0;
    va_list ap;

    va_start(ap, flags);
    if (flags & (O_CREAT | O_TMPFILE))
        mode = va_arg(ap, mode_t);
    va_end(ap);
    if (!sim_self || !sim_self->proc)
        return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    if (strcmp(path, "/proc/sys/kernel/random/boot_id") == 0) {
        snprintf(full, sizeof full, "%s/boot_id", sim_self->node->dir);
        int fd = (int)syscall(SYS_openat, AT_FDCWD, full, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

        snprintf(full, sizeof full, "%08x-0000-4000-8000-%012x\n", sim_self->node->id, sim_self->node->boots);
        syscall(SYS_write, fd, full, strlen(full));
        syscall(SYS_lseek, fd, 0, SEEK_SET);
        return fd;
    }
    n = full_path(full, AT_FDCWD, path);
    (void)n;
    return openat(AT_FDCWD, path, flags, mode);
}

int openat(int dirfd, const char *path, int flags, ...)
{
    char full[PATH_MAX];
    struct sim_node *n;
    bool is_new;
    mode_t mode = 0;
    va_list ap;
    int fd;

    va_start(ap, flags);
    if (flags & (O_CREAT | O_TMPFILE))
        mode = va_arg(ap, mode_t);
    va_end(ap);
    if (!sim_self || !sim_self->proc)
        return (int)syscall(SYS_openat, dirfd, path, flags, mode);
    if (dying())
        return (int)failed(EIO);
    n = full_path(full, dirfd, path);
    if (!n && strncmp(path, "/proc/self/fd/", 14) == 0 && readlink(path, full, sizeof full) > 0 && strncmp(full, sim.dir, strlen(sim.dir)) == 0)
        n = sim_self->node;
    if (!n && (errno = sim_target_call(true)) != 0)
        return -1;
    if (n && (flags & O_CREAT) && n->broken_disk && sim_chance(SIM_RNG_DISK, 100000))
        return (int)failed(EIO);
    is_new = n && (flags & O_CREAT) && syscall(SYS_faccessat, dirfd, path, F_OK) != 0;
    fd = (int)syscall(SYS_openat, dirfd, path, flags & ~O_DIRECT, mode);
    if (fd < 0)
        return fd;
    if (is_new)
        name_op(n, MADE, full);
    opened(fd, n, full);
    if (is_new && sim_fds[fd].file)
        sim_fds[fd].file->durable_size = 0;
    return fd;
}

static ssize_t write_at(int fd, const struct iovec *iov, int count, off_t off, const void *caller)
{
    struct sim_file *f = file_of(fd);
    bool atomic = f && f->database;
    uint64_t len = 0;
    int err;

    for (int i = 0; i < count; i++)
        len += iov[i].iov_len;
    (void)caller;
    if (!f && (err = sim_target_call(true)) != 0)
        return failed(err);
    if (!f || !sim_self || !sim_self->proc)
        return syscall(SYS_pwritev, fd, iov, count, off, 0);
    err = fault(f, false, atomic);
    if (!err && f->node->full_disk)
        err = ENOSPC;
    if (err)
        return failed(err);
    before_write(f, fd, (uint64_t)off, len);
    return syscall(SYS_pwritev, fd, iov, count, off, 0);
}

ssize_t pwrite(int fd, const void *buf, size_t len, off_t off)
{
    struct iovec iov = {(void *)(uintptr_t)buf, len};

    return write_at(fd, &iov, 1, off, __builtin_return_address(0));
}

ssize_t pwritev(int fd, const struct iovec *iov, int count, off_t off)
{
    return write_at(fd, iov, count, off, __builtin_return_address(0));
}

ssize_t sim_disk_append(int fd, const struct iovec *iov, int count)
{
    off_t at = lseek(fd, 0, SEEK_CUR);
    ssize_t n = write_at(fd, iov, count, at, NULL);

    if (n > 0)
        lseek(fd, n, SEEK_CUR);
    return n;
}

static ssize_t read_at(int fd, const struct iovec *iov, int count, off_t off)
{
    struct sim_file *f = file_of(fd);
    int err = f ? 0 : sim_target_call(true);

    if (err)
        return failed(err);
    if (f && sim_self && sim_self->proc) {
        err = f->database ? 0 : fault(f, false, false);
        if (err)
            return failed(err);
    }
    return syscall(SYS_preadv, fd, iov, count, off, 0);
}

ssize_t pread(int fd, void *buf, size_t len, off_t off)
{
    struct iovec iov = {buf, len};

    return read_at(fd, &iov, 1, off);
}

ssize_t preadv(int fd, const struct iovec *iov, int count, off_t off)
{
    return read_at(fd, iov, count, off);
}

static void doom(struct sim_file *f, struct undo *u, void *arg)
{
    (void)f;
    (void)arg;
    u->doomed = true;
}

static int sync_file(int fd, bool in_sqlite)
{
    struct sim_file *f = file_of(fd);
    char link[64], path[PATH_MAX];
    ssize_t n;
    int err;

    if (!sim_self || !sim_self->proc)
        return 0;
    if (!f && (err = sim_target_call(true)) != 0)
        return (int)failed(err);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    if (!f) {
        if (!dying())
            names_durable(path, NULL);
        return dying() ? (int)failed(EIO) : 0;
    }
    err = fault(f, true, in_sqlite);
    if (err) { /* who is being killed has no result; the device did not fail, and a later sync takes it along */
        for (unsigned i = 0; i < BUCKETS && !dying(); i++)
            for (struct undo *u = f->undo[i]; u; u = u->next)
                doom(f, u, NULL);
        return (int)failed(err);
    }
    synced(f, fd);
    names_durable(NULL, path);
    return 0;
}

int fsync(int fd)
{
    return sync_file(fd, sim_in_sqlite(__builtin_return_address(0)));
}

int fdatasync(int fd)
{
    return sync_file(fd, sim_in_sqlite(__builtin_return_address(0)));
}

int ftruncate(int fd, off_t size)
{
    struct sim_file *f = file_of(fd);
    struct stat st;

    if (f && dying())
        return (int)failed(EIO);
    if (f && f->nundo == 0 && fstat(fd, &st) == 0 && st.st_size > size && st.st_size - size < (64 << 20))
        before_write(f, fd, (uint64_t)size, (uint64_t)(st.st_size - size) < (1u << 20) ? (uint64_t)(st.st_size - size) : 0);
    return (int)syscall(SYS_ftruncate, fd, size);
}

/* Holes stay holes: most of what is punched is leased space that nobody has written to. */
static void before_punch(struct sim_file *f, int fd, uint64_t off, uint64_t end)
{
    long was = syscall(SYS_lseek, fd, 0, SEEK_CUR), data, hole;

    while (off < end && (data = syscall(SYS_lseek, fd, off, SEEK_DATA)) >= 0 && (uint64_t)data < end) {
        hole = syscall(SYS_lseek, fd, data, SEEK_HOLE);
        hole = hole < 0 || (uint64_t)hole > end ? (long)end : hole;
        before_write(f, fd, (uint64_t)data, (uint64_t)(hole - data));
        off = (uint64_t)hole;
    }
    syscall(SYS_lseek, fd, was, SEEK_SET);
}

int fallocate(int fd, int mode, off_t off, off_t len)
{
    struct sim_file *f = file_of(fd);
    int err;

    if (!f || !sim_self || !sim_self->proc)
        return (int)syscall(SYS_fallocate, fd, mode, off, len);
    err = fault(f, false, false);
    if (!err && !(mode & FALLOC_FL_PUNCH_HOLE) && f->node->full_disk)
        err = ENOSPC;
    if (err)
        return (int)failed(err);
    if (!(mode & FALLOC_FL_PUNCH_HOLE))
        return 0; /* memory is the simulator's own */
    before_punch(f, fd, (uint64_t)off, (uint64_t)off + (uint64_t)len);
    return (int)syscall(SYS_fallocate, fd, mode, off, len);
}

int renameat(int fromfd, const char *from, int tofd, const char *to)
{
    char a[PATH_MAX], b[PATH_MAX];
    struct sim_node *n = full_path(a, fromfd, from);
    struct nameop *op;
    int err;

    if (!n && sim_target_rename(fromfd, from, tofd, to, &err))
        return err ? (int)failed(err) : 0;
    full_path(b, tofd, to);
    if (!n || !sim_self || !sim_self->proc)
        return (int)syscall(SYS_renameat, fromfd, from, tofd, to);
    if (dying())
        return (int)failed(EIO);
    if (faccessat(fromfd, from, F_OK, 0))
        return (int)failed(ENOENT);
    op = name_op(n, RENAMED, b);
    snprintf(op->old, sizeof op->old, "%s", a);
    keep_name(op, b);
    for (struct nameop *o = nameops; o; o = o->next)
        if (o != op && o->what == MADE && strcmp(o->path, a) == 0) {
            /* made and renamed: if that is lost, there is neither name, or the old one */
            o->path[0] = '\0';
            snprintf(o->path, sizeof o->path, "%s", a);
        }
    return (int)syscall(SYS_renameat, fromfd, from, tofd, to);
}

static int remove_name(int dirfd, const char *path, int flags)
{
    char full[PATH_MAX];
    struct sim_node *n = full_path(full, dirfd, path);
    struct nameop *op;

    if (!n && (errno = sim_target_call(true)) != 0)
        return -1;
    if (!n || !sim_self || !sim_self->proc || (flags & AT_REMOVEDIR))
        return (int)syscall(SYS_unlinkat, dirfd, path, flags);
    if (dying())
        return (int)failed(EIO);
    if (faccessat(dirfd, path, F_OK, AT_SYMLINK_NOFOLLOW))
        return (int)failed(ENOENT);
    if (!is_database(full)) { /* SQLite removes its journals only when they are of no use */
        op = name_op(n, REMOVED, full);
        keep_name(op, full);
    }
    return (int)syscall(SYS_unlinkat, dirfd, path, flags);
}

int unlinkat(int dirfd, const char *path, int flags)
{
    return remove_name(dirfd, path, flags);
}

int unlink(const char *path)
{
    return remove_name(AT_FDCWD, path, 0);
}

int flock(int fd, int how)
{
    (void)fd;
    (void)how;
    return 0; /* one process at a time has a directory here, and a dead one's descriptors may be open still */
}

int fstatvfs(int fd, struct statvfs *st)
{
    struct sim_node *n = sim_self ? sim_self->node : NULL;

    (void)fd;
    memset(st, 0, sizeof *st);
    st->f_bsize = st->f_frsize = BLOCK;
    st->f_blocks = (1u << 30) / BLOCK;
    st->f_bavail = st->f_bfree = n && n->full_disk ? 0 : (1u << 30) / BLOCK;
    return 0;
}
