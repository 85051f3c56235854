/* What the kernel's FUSE is to programs of a node: see fuse.c (requests) and vfs.c (system calls). */
#ifndef TESTS_SIM_FUSE_H
#define TESTS_SIM_FUSE_H

#define FUSE_USE_VERSION 317
#include <fcntl.h>
#include <fuse_lowlevel.h>

#include "tests/sim/sim.h"

enum sim_op {
    SIM_LOOKUP, SIM_FORGET, SIM_GETATTR, SIM_SETATTR, SIM_MKDIR, SIM_UNLINK, SIM_RMDIR, SIM_RENAME, SIM_LINK, SIM_OPEN, SIM_CREATE, SIM_READ,
    SIM_WRITE, SIM_FLUSH, SIM_RELEASE, SIM_FSYNC, SIM_OPENDIR, SIM_READDIR, SIM_RELEASEDIR, SIM_FSYNCDIR,
    SIM_SETLK, SIM_FLOCK, SIM_SETXATTR, SIM_GETXATTR, SIM_LISTXATTR, SIM_REMOVEXATTR,
    SIM_FALLOCATE, SIM_LSEEK, SIM_COPY, SIM_SYMLINK, SIM_READLINK, SIM_STATFS
};

/* One request and its answer. The caller's memory until done; but for those that nobody waits for, which are freed by who answers. */
struct fuse_req {
    struct fuse_req *next;
    struct sim_fuse *fuse;
    enum sim_op op;
    bool done, nobody_waits;
    bool interrupted; /* the program has got a signal */
    bool sleep;       /* of a lock: it waits for it */
    struct flock lock;
    int err; /* positive, as the kernel has it */
    fuse_ino_t ino, ino2;
    char name[64], name2[64];
    unsigned flags;
    int to_set;
    mode_t mode;
    struct stat attr;
    off_t off, off2;
    int how; /* mode of fallocate, whence of lseek */
    size_t size;
    const void *data; /* of a write */
    void *into;       /* of a read */
    ssize_t count;    /* read or written */
    struct fuse_ctx who; /* pid: of the thread that asks, from 1 on; 0: nobody's */
    struct fuse_file_info fi, fi2;
    struct fuse_entry_param entry;
    struct statvfs fs;
};

/* Sends it to the mount and waits. Its errno. */
int sim_fuse_call(struct sim_proc *mount, struct fuse_req *r);
/* Until then; then the program gets a signal, and waits on. */
int sim_fuse_call_until(struct sim_proc *mount, struct fuse_req *r, uint64_t until_ns);
void sim_fuse_send(struct sim_proc *mount, const struct fuse_req *r); /* nobody waits */

/* ------------------------------------------------------------------ system calls (vfs.c): 0, or what stands for the answer, or negative errno */

struct sim_open {
    struct sim_proc *mount;
    unsigned start; /* of the mount: a file does not outlive it */
    uint64_t ino;
    uint64_t id;      /* of the open file: it owns locks by flock(2) */
    uint64_t process; /* that has it: it owns those by fcntl(2) */
    int flags;
    struct fuse_file_info fi;
};

int vfs_open(struct sim_proc *m, const char *path, int flags, struct sim_open **out);
ssize_t vfs_pread(struct sim_open *f, void *buf, size_t len, off_t off);
ssize_t vfs_pwrite(struct sim_open *f, const void *buf, size_t len, off_t off);
ssize_t vfs_append(struct sim_open *f, const void *buf, size_t len); /* write(2) of a file that was opened with O_APPEND */
int vfs_ftruncate(struct sim_open *f, off_t size);
int vfs_fallocate(struct sim_open *f, int mode, off_t off, off_t len);
off_t vfs_lseek(struct sim_open *f, off_t off, int whence); /* SEEK_DATA, SEEK_HOLE */
ssize_t vfs_copy(struct sim_open *in, off_t off_in, struct sim_open *out, off_t off_out, size_t len); /* copy_file_range(2) */
/* A store of whole pages through a mapping, and what msync(2) makes of it. 0: they are not within the file, as far as this node knows. */
ssize_t vfs_store(struct sim_open *f, const void *buf, size_t len, off_t off);
int vfs_fsetattr(struct sim_open *f, int to_set, const struct stat *st); /* fchmod(2), fchown(2) */
int vfs_fsync(struct sim_open *f);
/* fcntl(2) with F_SETLK or F_SETLKW, and flock(2). wait_ns 0: it does not wait; else a signal comes after that. type: F_RDLCK, F_WRLCK, F_UNLCK. */
int vfs_lock(struct sim_open *f, int type, off_t off, off_t len, uint64_t wait_ns);
int vfs_flock(struct sim_open *f, int type, uint64_t wait_ns);
int vfs_fstat(struct sim_open *f, struct stat *st);
/* f…xattr(2). */
int vfs_setxattr(struct sim_open *f, const char *name, const char *value, size_t len);
int vfs_removexattr(struct sim_open *f, const char *name);
ssize_t vfs_getxattr(struct sim_open *f, const char *name, char *buf, size_t size);
ssize_t vfs_listxattr(struct sim_open *f, char *buf, size_t size);
int vfs_close(struct sim_open *f); /* what close(2) says; the file is freed in any case */
int vfs_stat(struct sim_proc *m, const char *path, struct stat *st);
int vfs_unlink(struct sim_proc *m, const char *path);
int vfs_mkdir(struct sim_proc *m, const char *path);
int vfs_rmdir(struct sim_proc *m, const char *path);
int vfs_rename(struct sim_proc *m, const char *from, const char *to, unsigned flags);
int vfs_symlink(struct sim_proc *m, const char *target, const char *path, uint64_t *ino);
int vfs_readlink(struct sim_proc *m, const char *path, char *buf, size_t size, uint64_t *ino); /* the length; buf is ended by NUL */
int vfs_statfs(struct sim_proc *m, struct statvfs *fs);
int vfs_link(struct sim_proc *m, const char *from, const char *to);
int vfs_fsyncdir(struct sim_proc *m, const char *path);
/* Names of a directory, each ended by NUL; the number of names. */
int vfs_readdir(struct sim_proc *m, const char *path, char *buf, size_t size);

#endif
