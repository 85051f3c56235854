/* Error codes: every code has a name and a text, and none collides with errno or libuv. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <uv.h>

#include "fp/err.h"

static const struct {
    int code;
    const char *name;
} own[] = {
#define ROW(name, code, eno, text) {name, #name},
    FP_ERR_LIST(ROW)
#undef ROW
};
#define NOWN (sizeof own / sizeof *own)

static void test_own_codes_are_unique_and_beyond_errno_and_libuv(void **state)
{
    (void)state;
    for (size_t i = 0; i < NOWN; i++) {
        assert_true(own[i].code < -5000);
        for (size_t j = 0; j < i; j++)
            assert_int_not_equal(own[i].code, own[j].code);
    }
}

static void test_every_own_code_has_name_text_and_plain_errno(void **state)
{
    (void)state;
    for (size_t i = 0; i < NOWN; i++) {
        int eno = fp_err_to_errno(own[i].code);
        assert_string_equal(fp_err_name(own[i].code), own[i].name);
        assert_string_not_equal(fp_strerror(own[i].code), "unknown error");
        assert_int_equal(fp_err_from_name(own[i].name), own[i].code);
        assert_in_range(eno, 1, 133);
        assert_int_not_equal(eno, ESTALE);
    }
}

static void test_errno_names_and_texts_work_with_either_sign(void **state)
{
    (void)state;
    assert_string_equal(fp_err_name(-ENOSPC), "ENOSPC");
    assert_string_equal(fp_err_name(ENOSPC), "ENOSPC");
    assert_string_equal(fp_strerror(-ENOSPC), "No space left on device");
    assert_int_equal(fp_err_from_name("ENOSPC"), -ENOSPC);
}

static void test_libuv_codes_without_errno_have_texts(void **state)
{
    (void)state;
    assert_string_equal(fp_strerror(UV_EOF), "end of file");
    assert_string_equal(fp_err_name(UV_EOF), "EOF");
    assert_string_equal(fp_err_name(UV_EAI_NONAME), "EAI_NONAME");
}

static void test_success_and_nonsense_are_never_null(void **state)
{
    static const int codes[] = {-1000000, 1000000, INT_MIN, INT_MAX, -4999, -4000, 4095};
    (void)state;
    assert_string_equal(fp_strerror(0), "success");
    assert_string_equal(fp_err_name(0), "0");
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        assert_string_equal(fp_strerror(codes[i]), "unknown error");
        assert_string_equal(fp_err_name(codes[i]), "E?");
        assert_int_equal(fp_err_to_errno(codes[i]), EIO);
    }
    assert_int_equal(fp_err_from_name(""), 0);
    assert_int_equal(fp_err_from_name("ENOSUCHTHING"), 0);
}

static void test_applications_get_only_errors_a_file_system_gives(void **state)
{
    (void)state;
    assert_int_equal(fp_err_to_errno(0), 0);
    assert_int_equal(fp_err_to_errno(-ENOSPC), ENOSPC);
    assert_int_equal(fp_err_to_errno(-EINTR), EINTR);
    assert_int_equal(fp_err_to_errno(-ECONNRESET), EIO);
    assert_int_equal(fp_err_to_errno(-ETIMEDOUT), EIO);
    assert_int_equal(fp_err_to_errno(-ESTALE), EIO);
    assert_int_equal(fp_err_to_errno(UV_EOF), EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_codes_are_unique_and_beyond_errno_and_libuv),
        cmocka_unit_test(test_every_own_code_has_name_text_and_plain_errno),
        cmocka_unit_test(test_errno_names_and_texts_work_with_either_sign),
        cmocka_unit_test(test_libuv_codes_without_errno_have_texts),
        cmocka_unit_test(test_success_and_nonsense_are_never_null),
        cmocka_unit_test(test_applications_get_only_errors_a_file_system_gives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
