/* XDMF beside HDF5: grids by shape, steps as collections, names escaped; what it has no grid for is left out, and the text is well-formed. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "convert/sink/sink.h"

static char text[65536], path[64];

static void add(struct cv_model *m, const char *name, enum cv_kind kind, uint8_t size, unsigned rank, const uint64_t *dims, bool steps)
{
    struct cv_dataset *d = cv_model_add(m, name);

    d->type = (struct cv_type){.kind = kind, .size_bytes = size};
    d->rank = rank;
    for (unsigned i = 0; i < rank; i++)
        d->dims[i] = (struct cv_dim){.size = dims[i], .steps = steps && i == 0};
}

static void xdmf_of(struct cv_model *m, const char *h5_name)
{
    struct cv_fail why = {.text = ""};
    FILE *f;

    snprintf(path, sizeof path, "/tmp/cv-xdmf-%d.xmf", (int)getpid());
    unlink(path);
    if (cv_xdmf_write(path, h5_name, m, &why) != 0)
        fail_msg("%s", why.text);
    f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    unlink(path);
    cv_model_free(m);
}

static unsigned times(const char *what)
{
    unsigned n = 0;

    for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
        n++;
    return n;
}

/* Every element that begins ends, in order, and no & stands but for an entity. */
static void assert_well_formed(void)
{
    char open[32][32];
    unsigned depth = 0;

    for (const char *at = text; (at = strchr(at, '<')) != NULL;) {
        const char *end = strchr(at, '>');
        size_t n;

        assert_non_null(end);
        n = strcspn(at + 1, " />");
        if (at[1] == '/') {
            n = (size_t)(end - at - 2);
            assert_true(depth > 0);
            assert_int_equal(strlen(open[--depth]), n);
            assert_memory_equal(open[depth], at + 2, n);
        } else if (at[1] != '?' && at[1] != '!' && end[-1] != '/') {
            assert_true(depth < 32 && n < 32);
            snprintf(open[depth++], sizeof open[0], "%.*s", (int)n, at + 1);
        }
        at = end;
    }
    assert_int_equal(depth, 0);
    assert_int_equal(times("&"), times("&amp;") + times("&lt;") + times("&gt;") + times("&quot;"));
}

static void test_arrays_of_one_shape_share_a_grid_and_others_have_their_own(void **state)
{
    const uint64_t cube[] = {4, 5, 6}, plane[] = {4, 5};
    struct cv_model *m = cv_model_new();
    (void)state;

    add(m, "/a", CV_FLOAT, 8, 3, cube, false);
    add(m, "/p", CV_INT, 4, 2, plane, false);
    add(m, "/g/b", CV_FLOAT, 4, 3, cube, false);
    xdmf_of(m, "out.h5");
    assert_well_formed();
    assert_int_equal(times("GridType=\"Uniform\""), 2);
    assert_int_equal(times("<Attribute "), 3);
    assert_int_equal(times("TopologyType=\"3DCoRectMesh\" Dimensions=\"4 5 6\""), 1);
    assert_int_equal(times("TopologyType=\"2DCoRectMesh\" Dimensions=\"4 5\""), 1);
    assert_int_equal(times("out.h5:/g/b</DataItem>"), 1);
    assert_int_equal(times("NumberType=\"Float\" Precision=\"8\""), 1);
    assert_int_equal(times("NumberType=\"Int\" Precision=\"4\""), 1);
}

static void test_steps_are_pieces_in_a_collection_over_time(void **state)
{
    const uint64_t dims[] = {3, 4, 5};
    struct cv_model *m = cv_model_new();
    (void)state;

    add(m, "/t", CV_FLOAT, 8, 3, dims, true);
    add(m, "/u", CV_FLOAT, 8, 3, dims, true);
    xdmf_of(m, "out.h5");
    assert_well_formed();
    assert_int_equal(times("CollectionType=\"Temporal\""), 1);
    assert_int_equal(times("<Time Value="), 3);
    assert_int_equal(times("ItemType=\"HyperSlab\" Dimensions=\"4 5\""), 6);
    assert_int_equal(times(">2 0 0 1 1 1 1 4 5</DataItem>"), 2); /* start, stride, count of the last step */
    assert_int_equal(times("Dimensions=\"3 4 5\" NumberType"), 6);
}

/* Values say the dimensions of their grid, or VTK's reader, which is ParaView's, makes one value of all. */
static void test_a_line_is_a_grid_one_wide_and_so_are_its_values(void **state)
{
    const uint64_t line[] = {7}, lines[] = {2, 7};
    struct cv_model *m = cv_model_new();
    (void)state;

    add(m, "/a", CV_FLOAT, 8, 1, line, false);
    add(m, "/b", CV_FLOAT, 8, 2, lines, true);
    xdmf_of(m, "out.h5");
    assert_well_formed();
    assert_int_equal(times("TopologyType=\"2DCoRectMesh\" Dimensions=\"1 7\""), 3);
    assert_int_equal(times("<DataItem Dimensions=\"1 7\" NumberType=\"Float\""), 1);
    assert_int_equal(times("ItemType=\"HyperSlab\" Dimensions=\"1 7\""), 2);
    assert_int_equal(times(">1 0 1 1 1 7</DataItem>"), 1);
    assert_int_equal(times("Dimensions=\"2 7\" NumberType"), 2);
}

static void test_names_are_escaped(void **state)
{
    const uint64_t dims[] = {4, 5};
    struct cv_model *m = cv_model_new();
    (void)state;

    add(m, "/a<b>&\"c", CV_FLOAT, 8, 2, dims, false);
    xdmf_of(m, "x&y<z>.h5");
    assert_well_formed();
    assert_int_equal(times("Name=\"a&lt;b&gt;&amp;&quot;c\""), 1);
    assert_int_equal(times("x&amp;y&lt;z&gt;.h5:/a&lt;b&gt;&amp;&quot;c</DataItem>"), 1);
}

static void test_what_has_no_grid_is_left_out(void **state)
{
    const uint64_t dims[] = {2, 3, 4, 5}, nothing[] = {0, 5};
    struct cv_model *m = cv_model_new();
    (void)state;

    add(m, "/scalar", CV_FLOAT, 8, 0, NULL, false);
    add(m, "/four", CV_FLOAT, 8, 4, dims, false);
    add(m, "/complex", CV_COMPLEX, 16, 3, dims, false);
    add(m, "/nothing", CV_FLOAT, 8, 2, nothing, false);
    add(m, "/nosteps", CV_FLOAT, 8, 2, nothing, true);
    xdmf_of(m, "out.h5");
    assert_well_formed();
    assert_int_equal(times("<Grid"), 0);
}

static void test_a_name_that_is_taken_is_said(void **state)
{
    const uint64_t dims[] = {4, 5};
    struct cv_model *m = cv_model_new();
    struct cv_fail why = {.text = ""};
    (void)state;

    add(m, "/t", CV_FLOAT, 8, 2, dims, false);
    assert_int_equal(cv_xdmf_write("/dev/null", "out.h5", m, &why), -EEXIST);
    assert_string_equal(why.file, "/dev/null");
    cv_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arrays_of_one_shape_share_a_grid_and_others_have_their_own),
        cmocka_unit_test(test_steps_are_pieces_in_a_collection_over_time),
        cmocka_unit_test(test_a_line_is_a_grid_one_wide_and_so_are_its_values),
        cmocka_unit_test(test_names_are_escaped),
        cmocka_unit_test(test_what_has_no_grid_is_left_out),
        cmocka_unit_test(test_a_name_that_is_taken_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
