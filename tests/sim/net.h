/* Sockets, as the file of descriptors (fd.c) sees them. */
#ifndef TESTS_SIM_NET_H
#define TESTS_SIM_NET_H

#include "tests/sim/disk.h"

void sim_sock_close(struct sim_sock *s, bool silent);
void sim_sock_sends(struct sim_sock *s, const uint8_t *p, size_t len); /* counts and tells frames */
ssize_t sim_eventfd_read(struct sim_sock *s, uint64_t *out);
ssize_t sim_eventfd_write(struct sim_sock *s, uint64_t add);
const char *sim_message_name(uint16_t type);

#endif
