/* from=npz: archives as np.savez and np.savez_compressed write them, damaged ones, and bombs. */
#include <zlib.h>

#include "tests/unit/cv_source.h"

#define ARCHIVE_MAX 65536u

static struct archive {
    uint8_t bytes[ARCHIVE_MAX];
    size_t len;
    uint8_t directory[4096];
    size_t directory_len, count;
} a;

static uint8_t *put(uint8_t *p, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        *p++ = (uint8_t)(v >> 8 * i);
    return p;
}

/* What lies. */
struct lie {
    uint32_t crc;          /* added */
    uint64_t size;         /* added to the size that the directory says */
    unsigned method, flags; /* instead, if not 0 */
    bool zip64;            /* no lie: sizes and place in the extra field */
};

static void add_member(const char *name, const void *data, size_t bytes, bool deflated, struct lie lie)
{
    uint8_t packed[16384], *p, *d = a.directory + a.directory_len;
    size_t name_len = strlen(name), packed_bytes = bytes, at = a.len;
    uint32_t crc = (uint32_t)crc32(0, data, (unsigned)bytes) + lie.crc;
    unsigned method = lie.method ? lie.method : deflated ? 8 : 0;

    memcpy(packed, data, deflated ? 0 : bytes);
    if (deflated) {
        z_stream strm = {.next_in = (Bytef *)(uintptr_t)data, .avail_in = (unsigned)bytes, .next_out = packed, .avail_out = sizeof packed};

        assert_int_equal(deflateInit2(&strm, 6, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
        assert_int_equal(deflate(&strm, Z_FINISH), Z_STREAM_END);
        packed_bytes = strm.total_out;
        deflateEnd(&strm);
    }
    p = put(put(put(put(put(a.bytes + at, 0x04034b50, 4), 20, 2), lie.flags, 2), method, 2), 0, 4);
    p = put(put(put(put(put(p, crc, 4), lie.zip64 ? UINT32_MAX : packed_bytes, 4), lie.zip64 ? UINT32_MAX : bytes, 4), name_len, 2), lie.zip64 ? 20 : 0, 2);
    memcpy(p, name, name_len);
    p += name_len;
    if (lie.zip64)
        p = put(put(put(put(p, 1, 2), 16, 2), bytes, 8), packed_bytes, 8);
    memcpy(p, packed, packed_bytes);
    a.len = (size_t)(p - a.bytes) + packed_bytes;
    d = put(put(put(put(put(put(d, 0x02014b50, 4), 20, 2), 45, 2), lie.flags, 2), method, 2), 0, 4);
    d = put(put(put(d, crc, 4), lie.zip64 ? UINT32_MAX : packed_bytes, 4), lie.zip64 ? UINT32_MAX : bytes + lie.size, 4);
    d = put(put(put(put(put(d, name_len, 2), lie.zip64 ? 28 : 0, 2), 0, 2), 0, 2), 0, 2);
    d = put(put(d, 0, 4), lie.zip64 ? UINT32_MAX : at, 4);
    memcpy(d, name, name_len);
    d += name_len;
    if (lie.zip64)
        d = put(put(put(put(put(d, 1, 2), 24, 2), bytes + lie.size, 8), packed_bytes, 8), at, 8);
    a.directory_len = (size_t)(d - a.directory);
    a.count++;
}

static void end_archive(bool zip64)
{
    uint64_t at = a.len, end64 = at + a.directory_len;
    uint8_t *p = a.bytes + at;

    memcpy(p, a.directory, a.directory_len);
    p += a.directory_len;
    if (zip64) {
        p = put(put(put(put(p, 0x06064b50, 4), 44, 8), 45, 2), 45, 2);
        p = put(put(put(put(put(put(p, 0, 4), 0, 4), a.count, 8), a.count, 8), a.directory_len, 8), at, 8);
        p = put(put(put(put(p, 0x07064b50, 4), 0, 4), end64, 8), 1, 4);
    }
    p = put(put(put(p, 0x06054b50, 4), 0, 2), 0, 2);
    p = put(put(p, zip64 ? 0xffff : a.count, 2), zip64 ? 0xffff : a.count, 2);
    p = put(put(put(p, zip64 ? UINT32_MAX : a.directory_len, 4), zip64 ? UINT32_MAX : at, 4), 0, 2);
    a.len = (size_t)(p - a.bytes);
}

static void begin_archive(void)
{
    memset(&a, 0, sizeof a);
}

/* An array of n elements, element i is i * 3 + seed; its file. */
static size_t array(uint8_t *out, const char *shape, size_t n, uint32_t seed)
{
    char dict[128];
    int len = snprintf(dict, sizeof dict, "{'descr': '<u4', 'fortran_order': False, 'shape': (%s), }", shape);

    memcpy(out, "\x93NUMPY\x01\x00\x76\x00", 10);
    memset(out + 10, ' ', 118);
    memcpy(out + 10, dict, (size_t)len);
    out[127] = '\n';
    for (size_t i = 0; i < n; i++)
        put(out + 128 + 4 * i, i * 3 + seed, 4);
    return 128 + 4 * n;
}

static void expect(struct cv_source *s, const char *name, uint32_t i, uint32_t seed)
{
    const struct cv_dataset *d = cv_model_find(s->model, name);
    struct cv_fail why = {0};
    uint8_t got[4];

    assert_non_null(d);
    if (s->ops->read_bytes(s, d->blocks[0].input, d->blocks[0].offset_bytes + 4 * i, got, 4, &why) != 0)
        fail_msg("%s: %s", name, why.text);
    assert_int_equal(got[0] | got[1] << 8 | got[2] << 16, i * 3 + seed);
}

static void test_npz_members_of_both_kinds_are_read_at_any_place(void **state)
{
    uint8_t one[4096], two[4096];
    size_t len_one = array(one, "30, 10", 300, 1), len_two = array(two, "500,", 500, 1000);
    (void)state;

    for (int zip64 = 0; zip64 < 2; zip64++) {
        struct memory_file f;
        struct cv_source *s;
        struct cv_fail why;

        begin_archive();
        add_member("t/one.npy", one, len_one, false, (struct lie){.zip64 = zip64});
        add_member("two.npy", two, len_two, true, (struct lie){.zip64 = zip64});
        add_member("three.npy", one, len_one, true, (struct lie){.zip64 = zip64});
        end_archive(zip64);
        f = memory_file_new(a.bytes, a.len);
        if (source_try(&cv_source_npz, f.path, &s, &why) != 0)
            fail_msg("%s", why.text);
        assert_int_equal(s->model->ndatasets, 3);
        assert_int_equal(cv_model_find(s->model, "/t/one")->dims[0].size, 30);
        for (uint32_t i = 0; i < 300; i += 7) {
            expect(s, "/t/one", 299 - i, 1);
            expect(s, "/three", i, 1);
            expect(s, "/two", 499 - i, 1000);
        }
        s->ops->close(s);
        close(f.fd);
    }
}

/* Opens the archive and reads all of its first dataset in pieces: 0, or what went wrong first. */
static int tried(struct cv_fail *why)
{
    struct memory_file f = memory_file_new(a.bytes, a.len);
    struct cv_source *s;
    int rc = source_try(&cv_source_npz, f.path, &s, why);

    if (rc == 0) {
        const struct cv_dataset *d = &s->model->datasets[0];
        uint8_t got[4];

        for (uint32_t i = 0; rc == 0 && i < d->dims[0].size; i++)
            rc = s->ops->read_bytes(s, 0, d->blocks[0].offset_bytes + 4 * i, got, 4, why);
        s->ops->close(s);
    }
    close(f.fd);
    if (rc)
        assert_true(why->text[0]);
    return rc;
}

static int tried_with(struct lie lie, bool deflated, struct cv_fail *why)
{
    uint8_t one[4096];
    size_t len = array(one, "300,", 300, 1);

    begin_archive();
    add_member("one.npy", one, len, deflated, lie);
    end_archive(false);
    return tried(why);
}

static void test_npz_checksums_are_compared(void **state)
{
    struct cv_fail why;
    (void)state;

    assert_int_equal(tried_with((struct lie){0}, false, &why), 0);
    assert_int_equal(tried_with((struct lie){0}, true, &why), 0);
    assert_int_equal(tried_with((struct lie){.crc = 1}, false, &why), -EBADMSG);
    assert_string_equal(why.dataset, "one.npy");
    assert_int_equal(tried_with((struct lie){.crc = 1}, true, &why), -EBADMSG);
}

static void test_npz_a_damaged_member_is_found_by_the_first_read_out_of_order(void **state)
{
    uint8_t one[4096], got[4];
    size_t len = array(one, "300,", 300, 1);
    struct memory_file f;
    struct cv_source *s;
    struct cv_fail why;
    (void)state;

    begin_archive();
    add_member("one.npy", one, len, false, (struct lie){.crc = 5});
    end_archive(false);
    f = memory_file_new(a.bytes, a.len);
    assert_int_equal(source_try(&cv_source_npz, f.path, &s, &why), 0);
    assert_int_equal(s->ops->read_bytes(s, 0, s->model->datasets[0].blocks[0].offset_bytes + 40, got, 4, &why), -EBADMSG);
    s->ops->close(s);
    close(f.fd);
}

static void test_npz_ghosts_that_nobody_reads_hide_no_damage(void **state)
{
    static const char text[] = "fpschema: 1\nranks: 1\ndatasets: [{name: /one, type: uint32, dims: [299], ghost: {lo: [0], hi: [1]}}]\n";
    uint8_t one[4096], got[4 * 299];
    size_t len = array(one, "300,", 300, 1);
    struct memory_file f, schema = memory_file_new(text, sizeof text - 1);
    const char *path = f.path;
    struct cv_source_options o = {.paths = &path, .npaths = 1, .schema = schema.path};
    (void)state;

    for (unsigned crc = 0; crc < 2; crc++) {
        struct cv_source *s;
        struct cv_fail why = {0};

        begin_archive();
        add_member("one.npy", one, len, false, (struct lie){.crc = crc});
        end_archive(false);
        f = memory_file_new(a.bytes, a.len);
        if (cv_source_npz.open(&o, &s, &why) != 0)
            fail_msg("%s", why.text);
        assert_int_equal(s->ops->read_bytes(s, 0, s->model->datasets[0].blocks[0].offset_bytes, got, sizeof got, &why), crc ? -EBADMSG : 0);
        s->ops->close(s);
        close(f.fd);
    }
    close(schema.fd);
}

static void test_npz_bombs_and_lies_are_refused(void **state)
{
    struct cv_fail why;
    (void)state;

    assert_true(tried_with((struct lie){.size = 1}, true, &why) < 0);
    assert_true(tried_with((struct lie){.size = 1}, false, &why) < 0);
    assert_true(tried_with((struct lie){.size = 1u << 30}, true, &why) < 0);
    assert_non_null(strstr(why.text, "can't have"));
    assert_int_equal(tried_with((struct lie){.method = 12}, true, &why), -ENOTSUP);
    assert_int_equal(tried_with((struct lie){.flags = 1}, true, &why), -ENOTSUP);
    assert_non_null(strstr(why.text, "encrypted"));
}

static void test_npz_a_stream_that_grows_beyond_its_header_is_stopped(void **state)
{
    uint8_t one[4096];
    size_t len = array(one, "300,", 300, 1);
    struct cv_fail why;
    (void)state;

    array(one, "299,", 300, 1);
    begin_archive();
    add_member("one.npy", one, len, true, (struct lie){.size = (uint64_t)-4});
    end_archive(false);
    assert_int_equal(tried(&why), -EBADMSG);
    assert_non_null(strstr(why.text, "grow to more"));
}

static void test_npz_names_that_are_none_of_datasets_are_refused(void **state)
{
    static const char *const names[] = {"../x.npy", "a//b.npy", "x.txt", ".npy", "/x.npy", "a/./b.npy", "\xff.npy"};
    uint8_t one[512];
    size_t len = array(one, "1,", 1, 1);
    (void)state;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct cv_fail why;

        begin_archive();
        add_member(names[i], one, len, false, (struct lie){0});
        end_archive(false);
        if (tried(&why) == 0)
            fail_msg("taken: %s", names[i]);
    }
    begin_archive();
    add_member("x.npy", one, len, false, (struct lie){0});
    add_member("x.npy", one, len, false, (struct lie){0});
    end_archive(false);
    struct cv_fail why;
    assert_int_equal(tried(&why), -EEXIST);
}

static void test_npz_cut_or_changed_anywhere_is_no_harm(void **state)
{
    uint8_t one[512];
    (void)state;

    for (int zip64 = 0; zip64 < 2; zip64++) {
        begin_archive();
        add_member("a.npy", one, array(one, "2, 3", 6, 1), false, (struct lie){.zip64 = zip64});
        add_member("b.npy", one, array(one, "4,", 4, 1), true, (struct lie){.zip64 = zip64});
        end_archive(zip64);
        every_cut_is_said(&cv_source_npz, a.bytes, a.len);
        no_byte_does_harm(&cv_source_npz, a.bytes, a.len);
    }
}

static void test_npz_a_spool_that_cannot_be_made_is_said(void **state)
{
    uint8_t one[512], got[4];
    struct cv_source *s;
    struct cv_fail why = {0};
    struct memory_file f;
    const char *path = f.path;
    struct cv_source_options o = {.paths = &path, .npaths = 1, .spool = "/nonexistent/folder"};
    (void)state;

    begin_archive();
    add_member("a.npy", one, array(one, "2, 3", 6, 1), true, (struct lie){0});
    end_archive(false);
    f = memory_file_new(a.bytes, a.len);
    assert_int_equal(cv_source_npz.open(&o, &s, &why), 0);
    assert_int_equal(s->ops->read_bytes(s, 0, s->model->datasets[0].blocks[0].offset_bytes, got, 4, &why), -ENOENT);
    assert_string_equal(why.file, "/nonexistent/folder");
    s->ops->close(s);
    close(f.fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_npz_members_of_both_kinds_are_read_at_any_place),
        cmocka_unit_test(test_npz_checksums_are_compared),
        cmocka_unit_test(test_npz_a_damaged_member_is_found_by_the_first_read_out_of_order),
        cmocka_unit_test(test_npz_ghosts_that_nobody_reads_hide_no_damage),
        cmocka_unit_test(test_npz_bombs_and_lies_are_refused),
        cmocka_unit_test(test_npz_a_stream_that_grows_beyond_its_header_is_stopped),
        cmocka_unit_test(test_npz_names_that_are_none_of_datasets_are_refused),
        cmocka_unit_test(test_npz_cut_or_changed_anywhere_is_no_harm),
        cmocka_unit_test(test_npz_a_spool_that_cannot_be_made_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
