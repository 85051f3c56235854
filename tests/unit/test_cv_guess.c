/* fp-convert schema: guesses from samples that are written here, and what check says. Each guess must be a schema that fits its files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convert/schema/command.h"
#include "convert/schema/parts.h"
#include "convert/schema/samples.h"
#include "fp/rmtree.h"

static char dir[] = "/tmp/test_cv_guess.XXXXXX", cwd[PATH_MAX];

static int in_own_directory(void **state)
{
    (void)state;
    return getcwd(cwd, sizeof cwd) && mkdtemp(dir) && chdir(dir) == 0 ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    return chdir(cwd) || fp_remove_tree(dir) ? -1 : 0;
}

static void written(const char *name, const void *bytes, size_t len)
{
    FILE *f = fopen(name, "w");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static void swapped(void *bytes, size_t len, size_t size)
{
    unsigned char *p = bytes;

    for (size_t i = 0; i < len; i += size)
        for (size_t k = 0; k < size / 2; k++) {
            unsigned char c = p[i + k];

            p[i + k] = p[i + size - 1 - k];
            p[i + size - 1 - k] = c;
        }
}

/* A smooth field, as programs have it: temperatures of some kelvins. */
static double field(size_t i)
{
    double wave = (double)(i % 200 < 100 ? i % 200 : 200 - i % 200) / 100.0;

    return 300.0 + 20.0 * wave * (3.0 - wave * wave) + 0.0013 * (double)(i % 7);
}

static void *doubles(size_t n)
{
    double *v = malloc(n * sizeof *v);

    for (size_t i = 0; i < n; i++)
        v[i] = field(i);
    return v;
}

static void *floats(size_t n)
{
    float *v = malloc(n * sizeof *v);

    for (size_t i = 0; i < n; i++)
        v[i] = (float)field(i);
    return v;
}

/* The text, and the schema that it is. */
static char *guessed(const char *const *paths, size_t n, struct cv_schema **s)
{
    struct cv_fail why = {0};
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    if (cv_schema_guess(paths, n, out, &why))
        fail_msg("%s: %s", why.file, why.text);
    fclose(out);
    if (cv_schema_parse("guess", text, len, s, &why))
        fail_msg("%s of\n%s", why.text, text);
    return text;
}

static void no_guess(const char *const *paths, size_t n, int rc, const char *words)
{
    struct cv_fail why = {0};
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);

    assert_int_equal(cv_schema_guess(paths, n, out, &why), rc);
    if (!strstr(why.text, words))
        fail_msg("\"%s\", and not \"%s\"", why.text, words);
    fclose(out);
    assert_int_equal(len, 0);
    free(text);
}

/* ---------------------------------------------------------------- types */

static void looks(const void *bytes, size_t len, const char *type, bool big)
{
    struct cv_looks l = cv_looks_like(bytes, len);

    if (strcmp(cv_type_name(l.type), type) != 0 || l.type.big_endian != big)
        fail_msg("%s %s-endian, and not %s", cv_type_name(l.type), l.type.big_endian ? "big" : "little", type);
}

static void test_types_are_told_from_bytes(void **state)
{
    void *d = doubles(4096), *f = floats(4096);
    double round[512];

    (void)state;
    looks(d, 4096 * 8, "float64", false);
    swapped(d, 4096 * 8, 8);
    looks(d, 4096 * 8, "float64", true);
    looks(f, 4096 * 4, "float32", false);
    swapped(f, 4096 * 4, 4);
    looks(f, 4096 * 4, "float32", true);
    for (size_t i = 0; i < 512; i++)
        round[i] = (double)(1 + i / 8);
    looks(round, sizeof round, "float64", false);
    free(d);
    free(f);
}

static void test_floats_of_all_magnitudes_are_told_from_bytes(void **state)
{
    double d[1024];
    float f[1024];
    uint32_t x = 1;

    (void)state;
    for (size_t i = 0; i < 1024; i++) {
        d[i] = 1.0 + (double)(x = x * 1664525u + 1013904223u) / 4294967296.0;
        for (unsigned k = (x = x * 1664525u + 1013904223u) >> 27; k; k--)
            d[i] *= x & 64 ? 2.7 : 0.31;
        f[i] = (float)d[i];
    }
    looks(d, sizeof d, "float64", false);
    looks(f, sizeof f, "float32", false);
    swapped(d, sizeof d, 8);
    looks(d, sizeof d, "float64", true);
}

static void test_integers_and_noise_are_told_from_bytes(void **state)
{
    int64_t l[512];
    int32_t i32[512];
    int16_t s[512], pairs[512];
    int32_t ids[512];
    unsigned char noise[4096];
    uint32_t x = 1;

    (void)state;
    for (int i = 0; i < 512; i++) {
        l[i] = i32[i] = i % 2 ? i : -i;
        s[i] = (int16_t)(i * 3 - 700);
        ids[i] = 70000 * i;
        pairs[i] = (int16_t)(i % 100);
    }
    looks(l, sizeof l, "int64", false);
    looks(i32, sizeof i32, "int32", false);
    looks(s, sizeof s, "int16", false);
    looks(ids, sizeof ids / 4, "int32", false);
    looks(pairs, sizeof pairs, "int16", false);
    swapped(pairs, sizeof pairs, 2);
    looks(pairs, sizeof pairs, "int16", true);
    swapped(i32, sizeof i32, 4);
    looks(i32, sizeof i32, "int32", true);
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (unsigned char)((x = x * 1664525u + 1013904223u) >> 24);
    looks(noise, sizeof noise, "uint8", false);
    memset(noise, 0, sizeof noise);
    assert_true(cv_looks_like(noise, sizeof noise).all_zero);
}

static void test_roots_and_grids(void **state)
{
    uint64_t grid[3];

    (void)state;
    assert_int_equal(cv_cube_root(27), 3);
    assert_int_equal(cv_cube_root(28), 0);
    assert_int_equal(cv_cube_root(1ull << 60), 1u << 20);
    assert_int_equal(cv_cube_root(INT64_MAX), 0);
    assert_int_equal(cv_square_root(9223372030926249001u), 3037000499u);
    assert_int_equal(cv_square_root(0), 0);
    cv_even_grid(8, 3, grid);
    assert_true(grid[0] == 2 && grid[1] == 2 && grid[2] == 2);
    cv_even_grid(12, 3, grid);
    assert_true(grid[0] == 3 && grid[1] == 2 && grid[2] == 2);
    cv_even_grid(7, 2, grid);
    assert_true(grid[0] == 7 && grid[1] == 1);
}

/* ---------------------------------------------------------------- raw files */

static void test_a_cube_with_a_header_is_found(void **state)
{
    const size_t n = 24 * 24 * 24;
    unsigned char *bytes = malloc(512 + n * 8), *d = doubles(n);
    struct cv_schema *s;
    char *text;

    (void)state;
    memset(bytes, 0, 512);
    memcpy(bytes + 512, d, n * 8);
    written("one.raw", bytes, 512 + n * 8);
    text = guessed((const char *const[]){"one.raw"}, 1, &s);
    assert_int_equal(s->header_bytes, 512);
    assert_true(s->datasets[0].rank == 3 && s->datasets[0].dims[0].size == 24 && s->ndatasets == 1);
    assert_string_equal(cv_type_name(s->datasets[0].type), "float64");
    assert_non_null(strstr(text, "a guess"));
    cv_schema_free(s);
    free(text);
    free(bytes);
    free(d);
}

static void test_files_of_ranks_become_a_grid(void **state)
{
    static const char *const paths[] = {"rank_00_step7.raw", "rank_01_step7.raw", "rank_02_step7.raw", "rank_03_step7.raw"};
    const size_t n = 2 * 10 * 10 * 10;
    void *f = floats(n);
    struct cv_schema *s;
    char *text;

    (void)state;
    swapped(f, n * 4, 4);
    for (size_t i = 0; i < 4; i++)
        written(paths[i], f, n * 4);
    text = guessed(paths, 4, &s);
    assert_true(s->big_endian && s->grid.rank == 3 && cv_schema_ranks(s) == 4 && s->first_rank == 0);
    assert_string_equal(s->rank_name, "rank_{rank}_step*.raw");
    assert_true(s->ndatasets == 2 && s->datasets[1].dims[0].size == 20);
    cv_schema_free(s);
    free(text);
    free(f);
}

static void test_files_of_several_sizes_become_a_line(void **state)
{
    static const char *const paths[] = {"part.2", "part.1", "part.3"};
    void *d = doubles(101);
    struct cv_schema *s;
    char *text;

    (void)state;
    written(paths[0], d, 100 * 8);
    written(paths[1], d, 101 * 8);
    written(paths[2], d, 99 * 8);
    text = guessed(paths, 3, &s);
    assert_true(s->first_rank == 1 && s->datasets[0].dims[0].size == 300 && s->datasets[0].nlist == 3);
    assert_true(s->datasets[0].list[0].count[0] == 101 && s->datasets[0].list[1].start[0] == 101);
    cv_schema_free(s);
    free(text);
    free(d);
}

static void test_what_nothing_can_be_told_of_is_refused(void **state)
{
    void *d = doubles(100);

    (void)state;
    written("empty", "", 0);
    written("x7", d, 800);
    written("x9", d, 800);
    no_guess((const char *const[]){"empty"}, 1, -ENODATA, "nothing to guess");
    no_guess((const char *const[]){"none"}, 1, -ENOENT, "No such file");
    no_guess((const char *const[]){"."}, 1, -EINVAL, "no regular file");
    no_guess((const char *const[]){"x7", "x9"}, 2, -EINVAL, "do not count ranks");
    no_guess(NULL, 0, -EINVAL, "files can be looked at");
    written("x.h5", "\x89HDF\r\n\x1a\n....", 12);
    written("x.npz", "PK\x03\x04....", 8);
    no_guess((const char *const[]){"x.h5"}, 1, -EOPNOTSUPP, "--from=hdf5 needs no schema");
    written("x.pg", "FPDUMP1\n....", 12);
    no_guess((const char *const[]){"x.pg"}, 1, -EOPNOTSUPP, "--from=group needs no schema");
    assert_int_equal(mkdir("x.bp", 0700), 0);
    no_guess((const char *const[]){"x.bp"}, 1, -EINVAL, "no regular file");
    written("x.bp/md.idx", "", 0);
    no_guess((const char *const[]){"x.bp"}, 1, -EOPNOTSUPP, "--from=adios needs no schema");
    no_guess((const char *const[]){"x.npz"}, 1, -EOPNOTSUPP, "--from=npz needs no schema");
    free(d);
}

static void test_zeros_may_be_anything(void **state)
{
    static const unsigned char zeros[1000];
    struct cv_schema *s;
    char *text;

    (void)state;
    written("zeros", zeros, sizeof zeros);
    text = guessed((const char *const[]){"zeros"}, 1, &s);
    assert_non_null(strstr(text, "all zeros, which may be anything"));
    assert_true(s->datasets[0].rank == 3 && s->datasets[0].dims[0].size == 5);
    cv_schema_free(s);
    free(text);
}

static void test_a_few_bytes_are_a_guess_too(void **state)
{
    struct cv_schema *s;
    char *text;

    (void)state;
    for (size_t n = 1; n < 40; n++) {
        written("few", "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG", n);
        text = guessed((const char *const[]){"few"}, 1, &s);
        cv_schema_free(s);
        free(text);
    }
}

/* ---------------------------------------------------------------- files with a form of their own */

static void npy_file(const char *name, const char *dict, size_t data)
{
    unsigned char bytes[1024] = "\x93NUMPY\x01";
    size_t len = strlen(dict);

    bytes[8] = 118;
    memset(bytes + 10, ' ', 118);
    memcpy(bytes + 10, dict, len);
    bytes[127] = '\n';
    written(name, bytes, 128 + data);
}

static void test_the_header_of_npy_is_read(void **state)
{
    struct cv_schema *s;
    char *text;

    (void)state;
    npy_file("a.npy", "{'descr': '>f4', 'fortran_order': True, 'shape': (3, 5), }", 60);
    text = guessed((const char *const[]){"a.npy"}, 1, &s);
    assert_non_null(strstr(text, "--from=npy needs no schema"));
    assert_true(s->fortran && s->big_endian && s->header_bytes == 128 && s->datasets[0].rank == 2 && s->datasets[0].dims[1].size == 5);
    cv_schema_free(s);
    free(text);
    npy_file("a.npy", "{'descr': '<i8', 'fortran_order': False, 'shape': (), }", 8);
    text = guessed((const char *const[]){"a.npy"}, 1, &s);
    assert_true(!s->fortran && s->datasets[0].rank == 0);
    cv_schema_free(s);
    free(text);
}

static void test_headers_of_npy_that_make_no_sense_are_refused(void **state)
{
    static const char *const one[] = {"a.npy"};

    (void)state;
    npy_file("a.npy", "{'descr': '<U8', 'fortran_order': False, 'shape': (2,), }", 64);
    no_guess(one, 1, -EINVAL, "descr");
    npy_file("a.npy", "{'descr': '<f8', 'fortran_order': False, 'shape': 2, }", 16);
    no_guess(one, 1, -EINVAL, "shape");
    npy_file("a.npy", "{'descr': '<f8', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1), }", 8);
    no_guess(one, 1, -EINVAL, "more than 7");
    npy_file("a.npy", "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", 8);
    no_guess(one, 1, -ENODATA, "too short");
    written("a.npy", "\x93NUMPY\x01\0\xff\xff{", 11);
    no_guess(one, 1, -EINVAL, "not understood");
    no_guess((const char *const[]){"a.npy", "a.npy"}, 2, -EINVAL, "needs no schema");
}

static size_t record(unsigned char *out, const void *data, uint32_t len, bool big)
{
    uint32_t mark = big ? __builtin_bswap32(len) : len;

    memcpy(out, &mark, 4);
    memcpy(out + 4, data, len);
    memcpy(out + 4 + len, &mark, 4);
    return len + 8;
}

static void test_records_of_fortran_are_found(void **state)
{
    static unsigned char bytes[65536];
    double *d = doubles(512);
    int32_t step = 7;
    struct cv_schema *s;
    char *text;

    (void)state;
    for (int big = 0; big < 2; big++) {
        size_t len = record(bytes, &step, 4, big);

        if (big)
            swapped(d, 512 * 8, 8);
        len += record(bytes + len, d, 512 * 8, big);
        written("dump.dat", bytes, len);
        text = guessed((const char *const[]){"dump.dat"}, 1, &s);
        assert_true(s->fortran && s->big_endian == (big == 1) && s->ndatasets == 2);
        assert_string_equal(cv_type_name(s->datasets[0].type), "int32");
        assert_true(s->datasets[0].rank == 0 && s->datasets[1].rank == 3 && s->datasets[1].dims[2].size == 8 && s->datasets[1].record == 2);
        assert_string_equal(cv_type_name(s->datasets[1].type), "float64");
        cv_schema_free(s);
        free(text);
    }
    free(d);
}

/* ---------------------------------------------------------------- the command */

/* Its exit code; what it says into out and err, files of this directory. */
static int ran(int argc, char **argv, char *said, size_t cap)
{
    int out = dup(1), err = dup(2), rc;
    FILE *f;
    size_t n;

    fflush(stdout);
    fflush(stderr);
    assert_non_null(freopen("said", "w", stdout));
    assert_true(dup2(fileno(stdout), 2) == 2);
    rc = cv_schema_command(argc, argv);
    fflush(stdout);
    dup2(out, 1);
    dup2(err, 2);
    close(out);
    close(err);
    f = fopen("said", "r");
    n = fread(said, 1, cap - 1, f);
    said[n] = '\0';
    fclose(f);
    return rc;
}

#define RUN(said, ...) ran((int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)), (char *[]){__VA_ARGS__}, said, sizeof said)

static void test_check_says_what_a_schema_means(void **state)
{
    static const char text[] = "fpschema: 1\nranks: {grid: [2]}\ndims: {x: 5}\ndatasets: [{name: a, type: f8, dims: [x]}]\n";
    char said[4096];

    (void)state;
    written("s.yaml", text, sizeof text - 1);
    written("f0", "123456789012345678901234", 24);
    written("f1", "1234567890123456", 16);
    assert_int_equal(RUN(said, "check", "s.yaml"), 0);
    assert_string_equal(said, "/a  float64 little-endian  [x=5]  blocks: grid (2 ranks)\n");
    assert_int_equal(RUN(said, "check", "s.yaml", "f0", "f1"), 0);
    assert_string_equal(said, "/a  float64 little-endian  [x=5]  2 blocks  40 bytes (40 B)\n");
    assert_int_equal(RUN(said, "check", "--from=fortran", "s.yaml", "f0", "f1"), 1); /* these are no records */
    written("r0", "\30\0\0\0" "123456789012345678901234" "\30\0\0\0", 32);
    written("r1", "\20\0\0\0" "1234567890123456" "\20\0\0\0", 24);
    assert_int_equal(RUN(said, "check", "--from=fortran", "s.yaml", "r0", "r1"), 0);
    assert_string_equal(said, "/a  float64 little-endian  [x=5]  2 blocks  40 bytes (40 B)\n");
    assert_int_equal(RUN(said, "check", "s.yaml", "f1", "f0", "none"), 1);
    assert_non_null(strstr(said, "fp-convert: none: No such file"));
    assert_int_equal(truncate("f1", 15), 0);
    assert_int_equal(RUN(said, "check", "s.yaml", "f0", "f1"), 1);
    assert_non_null(strstr(said, "fp-convert: f1: dataset /a: byte 15: too short"));
    written("s.yaml", "fpschema: 1\nbyteorder: big\n", 27);
    assert_int_equal(RUN(said, "check", "s.yaml"), 1);
    assert_non_null(strstr(said, "fp-convert: s.yaml: line 2, column 1: a schema has no key \"byteorder\": did you mean byte_order?"));
}

static void test_guess_prints_a_schema_that_check_takes(void **state)
{
    char said[4096];
    void *d = doubles(1000);

    (void)state;
    written("g.raw", d, 8000);
    assert_int_equal(RUN(said, "guess", "g.raw"), 0);
    written("g.yaml", said, strlen(said));
    assert_int_equal(RUN(said, "schema", "check", "g.yaml", "g.raw"), 0);
    assert_non_null(strstr(said, "[z=10, y=10, x=10]  1 block  8000 bytes"));
    assert_int_equal(RUN(said, "guess", "none"), 1);
    free(d);
}

static void test_files_may_be_in_a_list(void **state)
{
    static const uint8_t zeros[64];
    char said[4096];

    (void)state;
    written("l_0.raw", zeros, sizeof zeros);
    written("l_1.raw", zeros, sizeof zeros);
    written("l.yaml", "fpschema: 1\nranks: {grid: [2]}\ndatasets: [{name: t, type: f8, dims: [16]}]\n", 75);
    written("list", "l_0.raw\0l_1.raw", 16);
    written("rest", "l_1.raw", 8);
    assert_int_equal(RUN(said, "check", "--files0-from=list", "l.yaml"), 0);
    assert_non_null(strstr(said, "2 blocks  128 bytes"));
    assert_int_equal(RUN(said, "check", "l.yaml", "--files0-from", "rest", "l_0.raw"), 0);
    assert_non_null(strstr(said, "2 blocks  128 bytes"));
    assert_int_equal(RUN(said, "check", "--from=raw", "--files0-from=rest", "l.yaml"), 1);
    assert_int_equal(RUN(said, "guess", "--files0-from=list"), 0);
    assert_non_null(strstr(said, "fpschema: 1"));
    written("cut", "l_0.raw\0l_1", 11);
    assert_int_equal(RUN(said, "check", "--files0-from=cut", "l.yaml"), 2);
    assert_non_null(strstr(said, "byte 8: no NUL byte ends the last name"));
    assert_int_equal(RUN(said, "guess", "--files0-from=nowhere"), 2);
    assert_int_equal(RUN(said, "guess", "--files0-from=list", "--files0-from=list"), 2);
    assert_int_equal(RUN(said, "check", "l.yaml", "--files0-from"), 2);
    assert_int_equal(RUN(said, "guess", "--from=raw", "l_0.raw"), 2);
}

static void test_bytes_and_records_are_those_of_the_format(void **state)
{
    static const char bytes[] = "fpschema: 1\nheader: 4\ndatasets: [{name: t, type: f8, dims: [4]}]\n", record[] = "fpschema: 1\ndatasets: [{name: t, type: f8, dims: [4], record: 1}]\n";
    char said[4096];

    (void)state;
    written("b.yaml", bytes, sizeof bytes - 1);
    written("r.yaml", record, sizeof record - 1);
    assert_int_equal(RUN(said, "check", "--from=raw", "b.yaml"), 0);
    assert_int_equal(RUN(said, "check", "--from=fortran", "r.yaml"), 0);
    assert_int_equal(RUN(said, "check", "--from=fortran", "b.yaml"), 1);
    assert_non_null(strstr(said, "b.yaml: header counts bytes of raw files"));
    assert_int_equal(RUN(said, "check", "--from=npy", "b.yaml"), 1);
    assert_int_equal(RUN(said, "check", "--from=raw", "r.yaml"), 1);
    assert_non_null(strstr(said, "record goes with from=fortran"));
}

/* What a conversion would find out when the first dump is there. */
static void test_what_the_format_can_not_have_is_a_mistake(void **state)
{
    static const char text[] = "fpschema: 1\ndatasets: [{name: psi, type: complex64, dims: [4]}, {name: none, type: f8, dims: [3, 0]}]\n";
    static const char none[] = "fpschema: 1\ndatasets: [{name: none, type: f8, dims: [3, 0]}]\n";
    static const char names[] = "fpschema: 1\nsteps: all\ndatasets: [{name: a/b, type: f8, dims: [4]}, {name: a_b, type: f8, dims: [4], attributes: {_FillValue: 1.5}}]\n";
    char said[4096];

    (void)state;
    written("c.yaml", text, sizeof text - 1);
    assert_int_equal(RUN(said, "check", "c.yaml"), 0);
    assert_int_equal(RUN(said, "check", "--to=hdf5", "c.yaml"), 0);
    assert_int_equal(RUN(said, "check", "--to=netcdf", "c.yaml"), 1);
    assert_non_null(strstr(said, "c.yaml: dataset /psi: line 2, column 12: netCDF has no complex numbers"));
    written("n.yaml", names, sizeof names - 1);
    assert_int_equal(RUN(said, "check", "--to=netcdf", "n.yaml"), 0);
    assert_int_equal(RUN(said, "check", "n.yaml", "--to", "netcdf3"), 1);
    assert_non_null(strstr(said, "netcdf3 has no groups"));
    written("z.yaml", none, sizeof none - 1);
    assert_int_equal(RUN(said, "check", "--to=netcdf", "z.yaml"), 0);
    assert_int_equal(RUN(said, "check", "--to=netcdf3", "z.yaml"), 1);
    assert_non_null(strstr(said, "no arrays of size 0"));
    assert_int_equal(RUN(said, "check", "--to=bp4", "z.yaml"), 2);
    assert_int_equal(RUN(said, "guess", "--to=hdf5", "z.yaml"), 2);
}

static void test_usage_is_an_error_of_its_own(void **state)
{
    char said[4096];

    (void)state;
    assert_int_equal(ran(0, NULL, said, sizeof said), 2);
    assert_int_equal(RUN(said, "chek"), 2);
    assert_int_equal(RUN(said, "check"), 2);
    assert_int_equal(RUN(said, "check", "--from=group", "s.yaml"), 2);
    assert_non_null(strstr(said, "--from 'group': it says itself what is in it"));
    assert_int_equal(RUN(said, "check", "--from=nyp", "s.yaml"), 2);
    assert_non_null(strstr(said, "--from 'nyp': it is raw, fortran, npy, npz or hdf5"));
    assert_int_equal(RUN(said, "check", "--to=netcdf4", "s.yaml"), 2);
    assert_non_null(strstr(said, "--to 'netcdf4': it is hdf5, netcdf or netcdf3"));
    assert_int_equal(RUN(said, "check", "--all", "s.yaml"), 2);
    assert_non_null(strstr(said, "'--all' is no option here"));
    assert_int_equal(RUN(said, "check", "--to"), 2);
    assert_int_equal(RUN(said, "guess"), 2);
    assert_non_null(strstr(said, "usage: fp-convert schema check"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types_are_told_from_bytes),
        cmocka_unit_test(test_floats_of_all_magnitudes_are_told_from_bytes),
        cmocka_unit_test(test_integers_and_noise_are_told_from_bytes),
        cmocka_unit_test(test_roots_and_grids),
        cmocka_unit_test(test_a_cube_with_a_header_is_found),
        cmocka_unit_test(test_files_of_ranks_become_a_grid),
        cmocka_unit_test(test_files_of_several_sizes_become_a_line),
        cmocka_unit_test(test_what_nothing_can_be_told_of_is_refused),
        cmocka_unit_test(test_zeros_may_be_anything),
        cmocka_unit_test(test_a_few_bytes_are_a_guess_too),
        cmocka_unit_test(test_the_header_of_npy_is_read),
        cmocka_unit_test(test_headers_of_npy_that_make_no_sense_are_refused),
        cmocka_unit_test(test_records_of_fortran_are_found),
        cmocka_unit_test(test_check_says_what_a_schema_means),
        cmocka_unit_test(test_guess_prints_a_schema_that_check_takes),
        cmocka_unit_test(test_bytes_and_records_are_those_of_the_format),
        cmocka_unit_test(test_what_the_format_can_not_have_is_a_mistake),
        cmocka_unit_test(test_files_may_be_in_a_list),
        cmocka_unit_test(test_usage_is_an_error_of_its_own),
    };

    return cmocka_run_group_tests_name("cv_guess", tests, in_own_directory, remove_directory);
}
