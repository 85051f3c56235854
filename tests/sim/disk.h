/* Disks of simulated nodes: see disk.c. */
#ifndef TESTS_SIM_DISK_H
#define TESTS_SIM_DISK_H

#include <sys/uio.h>

#include "tests/sim/sim.h"

/* Descriptors: what is behind a number. Sockets are net.c's. */
struct sim_file; /* one inode */

struct sim_fd {
    struct sim_sock *sock;
    struct sim_file *file;
    struct sim_proc *proc;
};

#define SIM_FDS_MAX 8192

extern struct sim_fd sim_fds[SIM_FDS_MAX];

void sim_close_raw(int fd);
int sim_dup_raw(int fd);
/* SQLite knows files by their inodes, and so what a dead manager had locked: a new one gets new inodes. */
void sim_disk_renew_database(struct sim_node *n);
ssize_t sim_disk_append(int fd, const struct iovec *iov, int count); /* write(2) */

#endif
