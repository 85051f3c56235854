/* Where to listen on a machine, with IPv6 and without, and in which order the addresses of a name are tried (include/fp/addr.h). */
#include <errno.h>
#include <netdb.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "fp/addr.h"
#include "wire_help.h"

static struct wire w;
static int no_six;   /* of socket(), for IPv6: 0, or an errno */
static bool both_off; /* as net.ipv6.bindv6only=1 makes new sockets */

int __real_socket(int family, int type, int protocol);
int __wrap_socket(int family, int type, int protocol);

int __wrap_socket(int family, int type, int protocol)
{
    int one = 1, fd;

    if (family == AF_INET6 && no_six) {
        errno = no_six;
        return -1;
    }
    fd = __real_socket(family, type, protocol);
    if (fd >= 0 && family == AF_INET6 && both_off)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    return fd;
}

static bool has_six(const char *host)
{
    union fp_sockaddr to;
    int fd = __real_socket(AF_INET6, SOCK_STREAM, 0);
    bool has = fd >= 0 && fp_addr_numeric(host, 0, &to) == 0 && bind(fd, &to.sa, fp_addr_len(&to)) == 0;

    if (fd >= 0)
        close(fd);
    return has;
}

/* Something listens there, and takes a connection to this host. */
static void reaches(struct fp_rpc_listener *l, const char *host)
{
    snprintf(w.addr, sizeof w.addr, "%s:%u", host, fp_rpc_listener_port(l));
    wire_connect(&w, NULL);
    assert_int_equal(w.c_up, 1);
    assert_string_equal(fp_rpc_conn_peer(w.cconn), w.addr);
    assert_string_equal(fp_rpc_conn_peer(w.sconn), fp_rpc_conn_local(w.cconn)); /* one of IPv4 looks so at both ends */
}

static void listens(const char *want, const char *host)
{
    struct fp_rpc_listener *l;
    char any[FP_ADDR_BUF];

    assert_string_equal(fp_addr_any(), want);
    wire_init(&w, NULL, NULL);
    snprintf(any, sizeof any, "%s:0", want);
    assert_int_equal(fp_rpc_listen(w.srv, any, &w.sh, &w, &l), 0);
    assert_int_equal(strncmp(fp_rpc_listener_addr(l), want, strlen(want)), 0);
    reaches(l, host);
    wire_fini(&w);
}

static void test_any_address_is_of_both_families(void **state)
{
    (void)state;
    if (!has_six("::"))
        skip();
    listens("[::]", "127.0.0.1");
    if (has_six("::1"))
        listens("[::]", "[::1]");
}

static void test_any_address_is_of_both_families_where_the_kernel_separates_them(void **state)
{
    (void)state;
    if (!has_six("::"))
        skip();
    both_off = true;
    listens("[::]", "127.0.0.1");
    both_off = false;
}

/* As with ipv6.disable=1. */
static void test_without_ipv6_any_address_is_of_ipv4(void **state)
{
    (void)state;
    no_six = EAFNOSUPPORT;
    listens("0.0.0.0", "127.0.0.1");
    no_six = EACCES;
    assert_string_equal(fp_addr_any(), "0.0.0.0");
    no_six = 0;
}

/* ---------------------------------------------------------------- the order */

#define NAMES 12u

/* hosts, between spaces, as getaddrinfo would give them; in the order in which they are tried. */
static void ordered(const char *hosts, unsigned max, const char *want)
{
    static union fp_sockaddr addrs[NAMES], out[NAMES];
    static struct addrinfo list[NAMES];
    char text[256], got[256] = "", one[FP_ADDR_BUF], *save = NULL;
    unsigned n = 0, k;

    snprintf(text, sizeof text, "%s", hosts);
    for (char *h = strtok_r(text, " ", &save); h; h = strtok_r(NULL, " ", &save), n++) {
        assert_int_equal(fp_addr_numeric(h, 7, &addrs[n]), 0);
        list[n] = (struct addrinfo){.ai_family = addrs[n].sa.sa_family, .ai_addr = &addrs[n].sa, .ai_addrlen = fp_addr_len(&addrs[n])};
        if (n)
            list[n - 1].ai_next = &list[n];
    }
    k = fp_addr_order(n ? list : NULL, out, max);
    for (unsigned i = 0; i < k; i++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", i ? " " : "", fp_addr_format(&out[i].sa, one));
    assert_string_equal(got, want);
}

static void test_ipv4_is_tried_first(void **state)
{
    (void)state;
    ordered("2001:db8::1 fd00::1 10.0.0.1 10.0.0.2", 8, "10.0.0.1:7 10.0.0.2:7 [2001:db8::1]:7 [fd00::1]:7");
    ordered("2001:db8::1 fd00::1 10.0.0.1", 2, "10.0.0.1:7 [2001:db8::1]:7");
    ordered("10.0.0.1 10.0.0.2", 1, "10.0.0.1:7");
    ordered("", 8, "");
}

static void test_addresses_of_a_link_are_for_where_there_is_no_other(void **state)
{
    (void)state;
    ordered("fe80::1 fd00::1 febf::2", 8, "[fd00::1]:7");
    ordered("fe80::1 10.0.0.1", 8, "10.0.0.1:7");
    ordered("fe80::1 fe80::2", 8, "[fe80::1]:7 [fe80::2]:7");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_address_is_of_both_families),
        cmocka_unit_test(test_any_address_is_of_both_families_where_the_kernel_separates_them),
        cmocka_unit_test(test_without_ipv6_any_address_is_of_ipv4),
        cmocka_unit_test(test_ipv4_is_tried_first),
        cmocka_unit_test(test_addresses_of_a_link_are_for_where_there_is_no_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
