/*
 * Addresses as names of nodes (see address.h). Called by who reads lists of nodes and plans, by who gives names to ssh, and by fp-job start, which tells the
 * root where it is. One thread.
 *
 * Addresses of one link (fe80::) are no names: they need the name of an interface, which differs from node to node. Rejected: to take an address in lists
 * without brackets, since "fd00::7:4" may have four slots, or be another address.
 */
#include "jobscripts/launch/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fp/addr.h"

#define ADDRESSES 8u /* of a node, tried one after the other */

/* NULL: nodes may be called so. */
static const char *unusable(const struct in6_addr *a)
{
    if (IN6_IS_ADDR_LINKLOCAL(a))
        return "is an address of one link alone, which other nodes can't use";
    if (IN6_IS_ADDR_V4MAPPED(a) || (IN6_IS_ADDR_V4COMPAT(a) && !IN6_IS_ADDR_LOOPBACK(a)))
        return "is an address of IPv4: it is written without ::";
    return IN6_IS_ADDR_UNSPECIFIED(a) || IN6_IS_ADDR_MULTICAST(a) ? "is no address of a node" : NULL;
}

int job_address_read(const char *text, char out[JOB_ADDRESS_BYTES], const char **why)
{
    char host[INET6_ADDRSTRLEN] = "";
    size_t n = strcspn(text, "%"); /* what follows is an interface */
    struct in6_addr a;

    if (n < sizeof host)
        memcpy(host, text, n);
    if (inet_pton(AF_INET6, host, &a) != 1)
        *why = "is no address of IPv6";
    else if ((*why = unusable(&a)) == NULL && text[n])
        *why = "has an interface, which is another one on other nodes";
    if (*why)
        return -EINVAL;
    inet_ntop(AF_INET6, &a, host, sizeof host);
    snprintf(out, JOB_ADDRESS_BYTES, "[%s]", host);
    return 0;
}

bool job_address_is_six(const char *name)
{
    char bare[JOB_ADDRESS_BYTES], again[JOB_ADDRESS_BYTES];
    const char *why = NULL;

    return name[0] == '[' && job_address_read(job_address_bare(name, bare), again, &why) == 0 && strcmp(again, name) == 0;
}

const char *job_address_bare(const char *name, char out[JOB_ADDRESS_BYTES])
{
    size_t n = strlen(name);

    if (name[0] != '[' || n < 2 || name[n - 1] != ']' || n - 2 >= JOB_ADDRESS_BYTES)
        return name;
    memcpy(out, name + 1, n - 2);
    out[n - 2] = '\0';
    return out;
}

/* Nothing is sent. */
static int towards(const union fp_sockaddr *to, char *out, size_t size)
{
    union fp_sockaddr mine;
    socklen_t len = sizeof mine;
    char text[FP_ADDR_BUF];
    int fd = socket(to->sa.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc = fd < 0 ? -errno : 0;

    if (rc == 0 && (connect(fd, &to->sa, fp_addr_len(to)) < 0 || getsockname(fd, &mine.sa, &len) < 0))
        rc = errno == EADDRNOTAVAIL ? -ENETUNREACH : -errno; /* what this machine lacks, and not the node */
    if (fd >= 0)
        close(fd);
    if (rc == 0 && fp_addr_is_link_local(&mine))
        rc = -ENETUNREACH;
    if (rc == 0)
        snprintf(out, size, "%.*s", (int)(strrchr(fp_addr_format(&mine.sa, text), ':') - text), text);
    return rc;
}

int job_address_towards(const char *node, char *out, size_t size)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM}, *list = NULL;
    union fp_sockaddr to[ADDRESSES];
    char bare[JOB_ADDRESS_BYTES];
    int rc = -ENOENT;
    unsigned n;

    if (getaddrinfo(job_address_bare(node, bare), "9", &hints, &list) == 0) {
        n = fp_addr_order(list, to, ADDRESSES);
        for (unsigned i = 0; rc && i < n; i++)
            rc = fp_addr_is_link_local(&to[i]) ? -EADDRNOTAVAIL : towards(&to[i], out, size);
        freeaddrinfo(list);
    }
    return rc;
}
