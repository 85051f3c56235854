/* Units: what is accepted is exact; what is not exact is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fp/units.h"

typedef int parser(const char *, uint64_t *, const char **);

static void accepts(parser *parse, const char *text, uint64_t want)
{
    uint64_t got = 4711;
    const char *why = NULL;
    int rc = parse(text, &got, &why);
    if (rc != 0 || got != want)
        fail_msg("'%s': rc %d (%s), %llu instead of %llu", text, rc, why ? why : "-", (unsigned long long)got,
                 (unsigned long long)want);
}

static void refuses(parser *parse, const char *text, int err)
{
    uint64_t got = 4711;
    const char *why = NULL;
    int rc = parse(text, &got, &why);
    if (rc != err || got != 4711 || !why)
        fail_msg("'%s': rc %d, value %llu, why %s", text, rc, (unsigned long long)got, why ? why : "NULL");
    assert_int_equal(parse(text, &got, NULL), err);
}

static void test_sizes_with_documented_suffixes_are_exact(void **state)
{
    (void)state;
    accepts(fp_parse_size, "0", 0);
    accepts(fp_parse_size, "4096", 4096);
    accepts(fp_parse_size, "1B", 1);
    accepts(fp_parse_size, "1kB", 1000);
    accepts(fp_parse_size, "1KiB", 1024);
    accepts(fp_parse_size, "32GiB", 34359738368u);
    accepts(fp_parse_size, "512 MiB", 536870912);
    accepts(fp_parse_size, "3.5TB", 3500000000000u);
    accepts(fp_parse_size, "3.50000TB", 3500000000000u);
    accepts(fp_parse_size, "0.001kB", 1);
    accepts(fp_parse_size, "0.5KiB", 512);
    accepts(fp_parse_size, "1.0", 1);
    accepts(fp_parse_size, "0.0", 0);
    accepts(fp_parse_size, "007", 7);
}

static void test_sizes_up_to_64_bits_are_exact_and_no_further(void **state)
{
    (void)state;
    accepts(fp_parse_size, "18446744073709551615", UINT64_MAX);
    accepts(fp_parse_size, "18.446744073709551615EB", UINT64_MAX);
    accepts(fp_parse_size, "15EiB", 15ull << 60);
    refuses(fp_parse_size, "18446744073709551616", -ERANGE);
    refuses(fp_parse_size, "16EiB", -ERANGE);
    refuses(fp_parse_size, "18.5EB", -ERANGE);
    refuses(fp_parse_size, "99999999999999999999999999999999999999999999", -ERANGE);
    refuses(fp_parse_size, "1000000000000000000000000000EiB", -ERANGE);
    refuses(fp_parse_size, "0.00000000000000000000000000000000000000001EB", -ERANGE);
}

static void test_sizes_that_are_no_whole_bytes_are_refused(void **state)
{
    (void)state;
    refuses(fp_parse_size, "0.5", -EINVAL);
    refuses(fp_parse_size, "1.5B", -EINVAL);
    refuses(fp_parse_size, "0.0001kB", -EINVAL);
    refuses(fp_parse_size, "0.1KiB", -EINVAL);
}

static void test_ambiguous_and_malformed_sizes_are_refused(void **state)
{
    static const char *const bad[] = {
        "",     " ",       "B",      "MiB",   "1K",        "1k",   "1M",     "1G",    "512m",
        "1KB",  "1mb",     "1mib",   "1Mib",  "1MiBs",     "-1",   "+1",     "-1MiB", "1e3",
        "0x10", "inf",     "nan",    "1,5GB", "1.",        ".5GB", "1..5GB", "1.5.5", "1 ",
        " 1",   "1  MiB",  "1\tMiB", "1MiB ", "1MiB1",     "1 2",  "1 .5",   "1\n",   "٣GB",
        "1МB",  "1 MiB x", "1MiB/s", "one",   "1GiB,2GiB", "--1",  "1-",     "½GB"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuses(fp_parse_size, bad[i], -EINVAL);
}

static void test_durations_need_a_unit_and_whole_milliseconds(void **state)
{
    static const char *const bad[] = {"2",     "",    "s",   "2sec", "1m",      "1H",   "1.5",
                                      "0.5ms", "-1s", "1s ", "1us",  "1h30min", "1:30", "1.0001s"};
    (void)state;
    accepts(fp_parse_duration, "500ms", 500);
    accepts(fp_parse_duration, "2s", 2000);
    accepts(fp_parse_duration, "0.25s", 250);
    accepts(fp_parse_duration, "1.5min", 90000);
    accepts(fp_parse_duration, "1h", 3600000);
    accepts(fp_parse_duration, "2d", 172800000);
    accepts(fp_parse_duration, "0", 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuses(fp_parse_duration, bad[i], -EINVAL);
    refuses(fp_parse_duration, "18446744073709551615s", -ERANGE);
}

static void test_rates_are_sizes_per_second(void **state)
{
    static const char *const bad[] = {"",        "/s",     "200MB",  "200MB/",   "200MB/min", "200 MB / s",
                                      "200Mbps", "-1MB/s", "1 /s/s", "200MB/s ", "200M/s"};
    char longest[200];
    (void)state;
    accepts(fp_parse_rate, "200MB/s", 200000000);
    accepts(fp_parse_rate, "1.5GiB/s", 1610612736);
    accepts(fp_parse_rate, "7/s", 7);
    accepts(fp_parse_rate, "0", 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refuses(fp_parse_rate, bad[i], -EINVAL);
    memset(longest, '1', sizeof longest);
    memcpy(longest + sizeof longest - 3, "/s", 3);
    refuses(fp_parse_rate, longest, -EINVAL);
}

static void test_integers_are_digits_only_within_64_bits(void **state)
{
    static const char *const bad[] = {"", "-", "+1", "1 ", " 1", "0x1", "1.0", "--1", "1e3"};
    const char *why;
    int64_t v;
    (void)state;
    assert_int_equal(fp_parse_int("-17", &v, &why), 0);
    assert_int_equal(v, -17);
    assert_int_equal(fp_parse_int("9223372036854775807", &v, &why), 0);
    assert_true(v == INT64_MAX);
    assert_int_equal(fp_parse_int("-9223372036854775808", &v, &why), 0);
    assert_true(v == INT64_MIN);
    assert_int_equal(fp_parse_int("9223372036854775808", &v, &why), -ERANGE);
    assert_int_equal(fp_parse_int("-9223372036854775809", &v, &why), -ERANGE);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(fp_parse_int(bad[i], &v, &why), -EINVAL);
}

static void test_sizes_for_people_have_about_three_digits(void **state)
{
    char buf[FP_UNITS_BUF];
    (void)state;
    assert_string_equal(fp_format_size(buf, 0), "0 B");
    assert_string_equal(fp_format_size(buf, 1023), "1023 B");
    assert_string_equal(fp_format_size(buf, 1024), "1 KiB");
    assert_string_equal(fp_format_size(buf, 1536), "1.5 KiB");
    assert_string_equal(fp_format_size(buf, FP_GIB(3) / 2), "1.5 GiB");
    assert_string_equal(fp_format_size(buf, FP_GIB(1) - 1), "1 GiB");
    assert_string_equal(fp_format_size(buf, FP_MIB(1) * 9999 / 1000), "10 MiB");
    assert_string_equal(fp_format_size(buf, FP_MIB(512)), "512 MiB");
    assert_string_equal(fp_format_size(buf, UINT64_MAX), "16 EiB");
}

static void test_durations_and_rates_for_people(void **state)
{
    char buf[FP_UNITS_BUF];
    (void)state;
    assert_string_equal(fp_format_duration(buf, 340), "340 ms");
    assert_string_equal(fp_format_duration(buf, 2400), "2.4 s");
    assert_string_equal(fp_format_duration(buf, 59949), "59.9 s");
    assert_string_equal(fp_format_duration(buf, 59960), "1 min 0 s");
    assert_string_equal(fp_format_duration(buf, 200000), "3 min 20 s");
    assert_string_equal(fp_format_duration(buf, 3600000), "1 h 0 min");
    assert_string_equal(fp_format_duration(buf, 90000000), "1 d 1 h");
    assert_string_equal(fp_format_rate(buf, 200000000), "200 MB/s");
    assert_string_equal(fp_format_rate(buf, 1234567890), "1.2 GB/s");
}

static void test_exact_formatting_reads_back_as_the_same_number(void **state)
{
    static const uint64_t values[] = {
        0,         1,       999,   1000,      1023,       1024,       4097,          1024000, 3500000000000u,
        536870912, 3600000, 90000, 200000000, 1ull << 60, UINT64_MAX, UINT64_MAX - 1};
    char buf[FP_UNITS_BUF];
    (void)state;
    assert_string_equal(fp_format_size_exact(buf, FP_MIB(512)), "512MiB");
    assert_string_equal(fp_format_size_exact(buf, 3500000000000u), "3500GB");
    assert_string_equal(fp_format_duration_exact(buf, 90000), "90s");
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        accepts(fp_parse_size, fp_format_size_exact(buf, values[i]), values[i]);
        accepts(fp_parse_duration, fp_format_duration_exact(buf, values[i]), values[i]);
        accepts(fp_parse_rate, fp_format_rate_exact(buf, values[i]), values[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_with_documented_suffixes_are_exact),
        cmocka_unit_test(test_sizes_up_to_64_bits_are_exact_and_no_further),
        cmocka_unit_test(test_sizes_that_are_no_whole_bytes_are_refused),
        cmocka_unit_test(test_ambiguous_and_malformed_sizes_are_refused),
        cmocka_unit_test(test_durations_need_a_unit_and_whole_milliseconds),
        cmocka_unit_test(test_rates_are_sizes_per_second),
        cmocka_unit_test(test_integers_are_digits_only_within_64_bits),
        cmocka_unit_test(test_sizes_for_people_have_about_three_digits),
        cmocka_unit_test(test_durations_and_rates_for_people),
        cmocka_unit_test(test_exact_formatting_reads_back_as_the_same_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
