/* "ADDR:PORT" to socket addresses and back.
 *
 * Called by rpc (listen, connect, log lines), by programs that check an option before they use it, and by those
 * that listen on whatever addresses a node has. Pure functions, but for fp_addr_any.
 *
 * Names are not resolved here: getaddrinfo blocks, so rpc does it off the loop. A lone IPv6 address without
 * brackets is refused instead of guessed at: "fe80::1:2" could be read in two ways. */
#include "fp/addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int parse_port(const char *p, uint16_t *port)
{
    unsigned value = 0;
    size_t len = strlen(p);
    if (len == 0 || len > 5)
        return -EINVAL;
    for (; *p; p++) {
        if (*p < '0' || *p > '9')
            return -EINVAL;
        value = value * 10 + (unsigned)(*p - '0');
    }
    if (value > UINT16_MAX)
        return -EINVAL;
    *port = (uint16_t)value;
    return 0;
}

int fp_addr_split(const char *text, char host[FP_ADDR_HOST], uint16_t *port)
{
    const char *colon = strrchr(text, ':');
    if (!colon || parse_port(colon + 1, port) < 0)
        return -EINVAL;
    const char *from = text;
    const char *to = colon;
    if (*from == '[') {
        if (to - from < 2 || to[-1] != ']')
            return -EINVAL;
        from++;
        to--;
    } else if (memchr(from, ':', (size_t)(to - from))) {
        return -EINVAL;
    }
    size_t len = (size_t)(to - from);
    if (len >= FP_ADDR_HOST)
        return -EINVAL;
    memcpy(host, from, len);
    host[len] = 0;
    return 0;
}

int fp_addr_numeric(const char *host, uint16_t port, union fp_sockaddr *out)
{
    memset(out, 0, sizeof *out);
    if (inet_pton(AF_INET, *host ? host : "0.0.0.0", &out->v4.sin_addr) == 1) {
        out->v4.sin_family = AF_INET;
        out->v4.sin_port = htons(port);
        return 0;
    }
    if (inet_pton(AF_INET6, host, &out->v6.sin6_addr) == 1) {
        out->v6.sin6_family = AF_INET6;
        out->v6.sin6_port = htons(port);
        return 0;
    }
    return -ENOENT;
}

const char *fp_addr_format(const struct sockaddr *sa, char buf[FP_ADDR_BUF])
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (sa->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)sa;
        inet_ntop(AF_INET, &v4->sin_addr, host, sizeof host);
        snprintf(buf, FP_ADDR_BUF, "%s:%u", host, ntohs(v4->sin_port));
    } else if (sa->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const void *)sa;
        bool mapped = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
        if (mapped)
            inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], host, sizeof host);
        else
            inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof host);
        snprintf(buf, FP_ADDR_BUF, mapped ? "%s:%u" : "[%s]:%u", host, ntohs(v6->sin6_port));
    } else {
        snprintf(buf, FP_ADDR_BUF, "?");
    }
    return buf;
}

uint16_t fp_addr_port(const union fp_sockaddr *addr)
{
    return ntohs(addr->sa.sa_family == AF_INET6 ? addr->v6.sin6_port : addr->v4.sin_port);
}

socklen_t fp_addr_len(const union fp_sockaddr *addr)
{
    return addr->sa.sa_family == AF_INET6 ? sizeof addr->v6 : sizeof addr->v4;
}

/* -------------------------------------------------------------- addresses of a name, and of this machine */

enum kind { KIND_V4, KIND_V6, KIND_LINK_LOCAL, KIND_OTHER };

static enum kind kind_of(const struct addrinfo *ai)
{
    const struct sockaddr_in6 *v6 = (const void *)ai->ai_addr;
    if (ai->ai_family == AF_INET)
        return KIND_V4;
    if (ai->ai_family != AF_INET6)
        return KIND_OTHER;
    return IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) ? KIND_LINK_LOCAL : KIND_V6;
}

static unsigned take_kind(const struct addrinfo *list, enum kind kind, union fp_sockaddr *out, unsigned max)
{
    unsigned n = 0;
    for (; list && n < max; list = list->ai_next) {
        if (kind_of(list) != kind || list->ai_addrlen > sizeof *out)
            continue;
        memset(&out[n], 0, sizeof *out);
        memcpy(&out[n++], list->ai_addr, list->ai_addrlen);
    }
    return n;
}

unsigned fp_addr_order(const struct addrinfo *list, union fp_sockaddr *out, unsigned max)
{
    unsigned n = take_kind(list, KIND_V4, out, max);
    n += take_kind(list, KIND_V6, out + n, max - n);
    return n ? n : take_kind(list, KIND_LINK_LOCAL, out, max);
}

bool fp_addr_is_link_local(const union fp_sockaddr *addr)
{
    return addr->sa.sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&addr->v6.sin6_addr);
}

int fp_addr_both(int fd)
{
    int off = 0;
    return setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) < 0 ? -errno : 0;
}

/* Tried, since a kernel without IPv6, one that has it switched off and a sandbox differ in what they refuse. */
const char *fp_addr_any(void)
{
    union fp_sockaddr any = {.v6 = {.sin6_family = AF_INET6}};
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool can = fd >= 0 && fp_addr_both(fd) == 0 && bind(fd, &any.sa, sizeof any.v6) == 0;
    if (fd >= 0)
        close(fd);
    return can ? "[::]" : "0.0.0.0";
}

void fp_addr_set_port(union fp_sockaddr *addr, uint16_t port)
{
    if (addr->sa.sa_family == AF_INET6)
        addr->v6.sin6_port = htons(port);
    else
        addr->v4.sin_port = htons(port);
}
