/* Requests and replies over real sockets on the loopback (include/fp/rpc.h). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fp.pb-c.h"
#include "fp/clock.h"
#include "fp/err.h"
#include "wire_help.h"

static void test_rpc_call_gets_its_reply(void **state)
{
    struct wire w;
    struct wire_got got = {0};
    (void)state;
    wire_init(&w, NULL, NULL);
    wire_connect(&w, NULL);
    assert_int_equal(w.c_up, 1);
    assert_int_equal(wire_call(&w, T_ECHO, "hello", 1000, &got), 0);
    assert_int_equal(got.n, 0); /* never from inside the call */
    wire_until(&w, &got.n, 1, 1000);
    assert_int_equal(got.status, 0);
    assert_string_equal(got.msg, "hello");
    wire_fini(&w);
    assert_int_equal(w.c_closed, 1);
    assert_int_equal(w.s_closed, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rpc_call_gets_its_reply),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
