/*
 * The target of drains: a directory of memory that stands for the parallel file system, with the C library's functions that fp-drain calls there. It is a machine of its own: no node's power
 * loss takes from it what it has answered. But it is slow at times, gives errors, is full, or does not answer for many seconds; and a rename that a
 * process had begun when it was killed may come to its end later, as one that hangs in the kernel does.
 *
 * Device and inode numbers are told in messages, so they are the same in each run: inodes in the order in which they are seen.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/sim/sim.h"
#include "tests/sim/target.h"

#define INODES_MAX   4096
#define EPISODES_MAX 6

struct late { /* a rename on its way */
    int from_dir, to_dir;
    char from[256], to[256];
    bool done;
    int err;
};

static ino_t inodes[INODES_MAX];
static unsigned ninodes;
static unsigned error_ppm;
static int error;
static uint64_t slow_ns, hangs_until;

static bool ours(void)
{
    return sim_self && sim_self->proc && sim_self->proc->kind == SIM_DRAIN;
}

int sim_target_call(bool may_fail)
{
    if (!ours())
        return 0;
    sim_proc_check_dying();
    sim_sleep_ns(1000 + sim_below(SIM_RNG_DRAIN, sim_chance(SIM_RNG_DRAIN, 20000) ? 20 * SIM_MS : 100000));
    if (!sim.healed && slow_ns)
        sim_sleep_ns(sim_below(SIM_RNG_DRAIN, slow_ns));
    while (!sim.healed && sim.now_ns < hangs_until)
        sim_sleep_ns(100 * SIM_MS);
    return may_fail && !sim.healed && sim_chance(SIM_RNG_DRAIN, error_ppm) ? error : 0;
}

/* ------------------------------------------------------------------ what goes wrong */

static void ends(void *arg)
{
    (void)arg;
    sim_trace("the target is well again");
    error_ppm = 0;
    slow_ns = 0;
}

static void begins(void *arg)
{
    static const int errors[] = {EIO, ENOSPC, ESTALE, EDQUOT, EROFS, ENODEV, EACCES};
    uint64_t lasts = SIM_MS * (100 + sim_below(SIM_RNG_DRAIN, 8000));

    (void)arg;
    switch (sim_below(SIM_RNG_DRAIN, 3)) {
    case 0:
        hangs_until = sim.now_ns + 2 * lasts;
        break;
    case 1:
        slow_ns = SIM_MS * (1 + sim_below(SIM_RNG_DRAIN, 1000));
        break;
    default:
        error = errors[sim_below(SIM_RNG_DRAIN, sizeof errors / sizeof *errors)];
        error_ppm = sim_chance(SIM_RNG_DRAIN, 500000) ? 1000000 : 200000;
    }
    sim_trace("FAULT target: hangs until %.3f s, slow %.3f s, error %d at %u ppm", (double)hangs_until / 1e9, (double)slow_ns / 1e9, error, error_ppm);
    sim_at(sim.now_ns + lasts, ends, NULL);
}

void sim_target_plan(unsigned level)
{
    unsigned n = level && sim_chance(SIM_RNG_DRAIN, 600000) ? (unsigned)sim_below(SIM_RNG_DRAIN, EPISODES_MAX) : 0;

    while (n--)
        sim_at(sim.now_ns + sim_below(SIM_RNG_DRAIN, 20 * SIM_S), begins, NULL);
}

/* ------------------------------------------------------------------ names */

static void rename_now(void *arg)
{
    struct late *l = arg;

    l->err = syscall(SYS_renameat, l->from_dir, l->from, l->to_dir, l->to) ? errno : 0;
    syscall(SYS_close, l->from_dir);
    syscall(SYS_close, l->to_dir);
    sim_trace("target: rename to %s: %d", l->to, l->err);
    l->done = true;
    sim_wake_all(l);
}

bool sim_target_rename(int fromfd, const char *from, int tofd, const char *to, int *err)
{
    struct late *l;
    uint64_t when = sim.now_ns + 1000 + sim_below(SIM_RNG_DRAIN, 100000);

    if (!ours())
        return false;
    *err = sim_target_call(true);
    if (*err)
        return true;
    if (!sim.healed && sim_chance(SIM_RNG_DRAIN, 100000))
        when += sim_below(SIM_RNG_DRAIN, 8 * SIM_S);
    l = calloc(1, sizeof *l);
    l->from_dir = (int)syscall(SYS_fcntl, fromfd, F_DUPFD_CLOEXEC, 3);
    l->to_dir = (int)syscall(SYS_fcntl, tofd, F_DUPFD_CLOEXEC, 3);
    snprintf(l->from, sizeof l->from, "%s", from);
    snprintf(l->to, sizeof l->to, "%s", to);
    sim_at(when, rename_now, l);
    while (!l->done)
        sim_block(l, SIM_NEVER);
    *err = l->err; /* it may be the caller's last: the memory stays */
    return true;
}

/* ------------------------------------------------------------------ functions of the C library */

static void same_numbers(struct stat *st)
{
    unsigned i = ninodes;

    while (i && inodes[i - 1] != st->st_ino)
        i--;
    if (!i) {
        if (ninodes == INODES_MAX)
            sim_fail("more than %d files in the target", INODES_MAX);
        inodes[ninodes++] = st->st_ino;
        i = ninodes;
    }
    st->st_ino = 100 + i;
    st->st_dev = 77;
}

static int failed(int err)
{
    errno = err;
    return -1;
}

int fstatat(int dirfd, const char *restrict path, struct stat *restrict st, int flags)
{
    int err = sim_target_call(false);

    if (err)
        return failed(err);
    if (syscall(SYS_newfstatat, dirfd, path, st, flags))
        return -1;
    if (ours())
        same_numbers(st);
    return 0;
}

int fstat(int fd, struct stat *st)
{
    if (syscall(SYS_newfstatat, fd, "", st, AT_EMPTY_PATH))
        return -1;
    if (ours())
        same_numbers(st);
    return 0;
}

int mkdirat(int dirfd, const char *path, mode_t mode)
{
    int err = sim_target_call(true);

    return err ? failed(err) : (int)syscall(SYS_mkdirat, dirfd, path, mode);
}

int fsetxattr(int fd, const char *name, const void *value, size_t len, int flags)
{
    int err = sim_target_call(true);

    return err ? failed(err) : (int)syscall(SYS_fsetxattr, fd, name, value, len, flags);
}
