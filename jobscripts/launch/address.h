/*
 * Addresses as names of nodes. One of IPv4 is a name like any other. One of IPv6 is kept in brackets, in the form that inet_ntop gives it, "[fd00::7]": so a
 * port can be put behind any name of a node, and two names of one address are the same text.
 */
#ifndef JOB_ADDRESS_H
#define JOB_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

#define JOB_ADDRESS_BYTES 48u /* the longest one of IPv6 in brackets, and NUL */

/* text: an address of IPv6 without brackets. 0; -EINVAL: it is none that nodes of a cluster reach each other by, and *why says what it is. Pure. */
int job_address_read(const char *text, char out[JOB_ADDRESS_BYTES], const char **why);
/* Is name an address of IPv6 as we write it? Pure. */
bool job_address_is_six(const char *name);
/* The same without its brackets, for programs that take an address so; another name of a node as it is. Returns name or out. Pure. */
const char *job_address_bare(const char *name, char out[JOB_ADDRESS_BYTES]);

/*
 * The address of this machine that is nearest to a node, as something to put a port behind: of names that the nodes know it by, none is certain. By IPv4 if
 * there is a way, else by IPv6. 0; -ENOENT: the name is not known; other: there is no way to it. Blocks on the name service.
 */
int job_address_towards(const char *node, char *out, size_t size);

#endif
