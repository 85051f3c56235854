/* Addresses as people write them: "ADDR:PORT", "HOST:PORT", "[V6]:PORT", ":PORT".
 *
 * Any thread; nothing here looks up names or blocks. Pure functions, where nothing else is said. */
#ifndef FP_ADDR_H
#define FP_ADDR_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define FP_ADDR_BUF  64  /* longest formatted address and NUL */
#define FP_ADDR_HOST 256 /* longest host name and NUL */

struct addrinfo;

union fp_sockaddr {
    struct sockaddr sa;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* Splits text into host ("" for ":PORT", without the brackets) and port. -EINVAL: not of this form, port not
 * 0..65535. */
int fp_addr_split(const char *text, char host[FP_ADDR_HOST], uint16_t *port);

/* host a number of IPv4 or IPv6: 0 and *out. "" is 0.0.0.0. Else -ENOENT: it is a name. */
int fp_addr_numeric(const char *host, uint16_t port, union fp_sockaddr *out);

/* "1.2.3.4:5", "[::1]:5"; "?" for other families. An IPv4 address mapped into IPv6 is shown as IPv4. Returns
 * buf. */
const char *fp_addr_format(const struct sockaddr *sa, char buf[FP_ADDR_BUF]);

uint16_t fp_addr_port(const union fp_sockaddr *addr);
void fp_addr_set_port(union fp_sockaddr *addr, uint16_t port);
socklen_t fp_addr_len(const union fp_sockaddr *addr);

/* Of what getaddrinfo says of a name, at most max, in the order in which they are to be tried: IPv4 first, so
 * that all nodes of a cluster that has both take the same; those of a link alone only where there is no other,
 * since other nodes can't use them. Returns how many. */
unsigned fp_addr_order(const struct addrinfo *list, union fp_sockaddr *out, unsigned max);

bool fp_addr_is_link_local(const union fp_sockaddr *addr); /* fe80::/10 */

/* Where to listen to be reached by any address of this machine, without the port: "[::]" if it can make sockets
 * of IPv6, which take connections of IPv4 too (fp_rpc_listen sees to that), else "0.0.0.0". Makes a socket, and
 * closes it. */
const char *fp_addr_any(void);

/* A socket of IPv6 that is not bound yet takes IPv4 too, whatever net.ipv6.bindv6only says. 0; -errno. */
int fp_addr_both(int fd);

#endif
