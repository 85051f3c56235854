/* Addresses as people write them: "ADDR:PORT", "HOST:PORT", "[V6]:PORT", ":PORT".
 *
 * Pure functions; any thread; nothing here looks up names or blocks. */
#ifndef FP_ADDR_H
#define FP_ADDR_H

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>

#define FP_ADDR_BUF  64  /* longest formatted address and NUL */
#define FP_ADDR_HOST 256 /* longest host name and NUL */

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
socklen_t fp_addr_len(const union fp_sockaddr *addr);

#endif
