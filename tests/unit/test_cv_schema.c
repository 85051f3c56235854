/* Schemas: what a text may say, and what is said of a mistake in it, with line and column. Models of sets: test_cv_place.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "convert/schema/parts.h"

static struct cv_schema *parsed(const char *text)
{
    struct cv_fail why = {0};
    struct cv_schema *s = NULL;

    if (cv_schema_parse("s.yaml", text, strlen(text), &s, &why))
        fail_msg("%s\nof\n%s", why.text, text);
    return s;
}

static void taken(const char *text)
{
    cv_schema_free(parsed(text));
}

/* The reason begins with a place, and has these words. */
static void refused_bytes(const char *text, size_t len, const char *place, const char *words)
{
    struct cv_fail why = {0};
    struct cv_schema *s = NULL;

    if (cv_schema_parse("s.yaml", text, len, &s, &why) != -EINVAL)
        fail_msg("not -EINVAL (%s) for\n%s", why.text, text);
    assert_null(s);
    assert_string_equal(why.file, "s.yaml");
    if (strncmp(why.text, place, strlen(place)) != 0 || !strstr(why.text, words))
        fail_msg("\"%s\", and not \"%s … %s\", of\n%s", why.text, place, words, text);
}

static void refused(const char *text, unsigned line, unsigned column, const char *words)
{
    char place[64];

    snprintf(place, sizeof place, "line %u, column %u: ", line, column);
    refused_bytes(text, strlen(text), place, words);
}

#define HEAD "fpschema: 1\n"
#define ONE  "datasets: [{name: a, type: f8, dims: [2]}]\n"
/* Keys of one dataset, from line 4 on, indented by two. */
#define SET(dims, more) "fpschema: 1\ndatasets:\n- name: a\n  type: float64\n  dims: " dims "\n" more

/* ---------------------------------------------------------------- what is taken */

static const char full[] = "fpschema: 1\n"
                           "order: fortran\n"
                           "byte_order: big\n"
                           "header: 4KiB\n"
                           "layout: files\n"
                           "ranks: {grid: [2, 3], order: fortran, first: 1}\n"
                           "rank: \"rank_{rank}.raw\"\n"
                           "steps: all\n"
                           "step_header: 16\n"
                           "dims: {x: 5, y: 7}\n"
                           "datasets:\n"
                           "- name: /fields/temperature\n"
                           "  type: float32\n"
                           "  dims: [x, y]\n"
                           "  block: grid\n"
                           "  ghost: {lo: 1, hi: [0, 2]}\n"
                           "  skip: 8\n"
                           "  gaps: fill\n"
                           "  fill: -1.5\n"
                           "  overlap: last\n"
                           "  nan: refuse\n"
                           "  units: K\n"
                           "  attributes: {long_name: \"temperature\", levels: [1, 2], range: [0.5, 2], n: 7, f: 1e-3, quoted: '7'}\n"
                           "attributes: {title: heat}\n";

static void check_full(const struct cv_schema *s)
{
    const struct cv_schema_dataset *d = &s->datasets[0];

    assert_true(s->fortran && s->big_endian && s->grid_fortran);
    assert_int_equal(s->header_bytes, 4096);
    assert_int_equal(s->step_header_bytes, 16);
    assert_int_equal(s->steps, 0);
    assert_int_equal(s->first_rank, 1);
    assert_int_equal(cv_schema_ranks(s), 6);
    assert_string_equal(s->rank_name, "rank_{rank}.raw");
    assert_string_equal(d->name, "/fields/temperature");
    assert_string_equal(cv_type_name(d->type), "float32");
    assert_true(d->type.big_endian && d->rank == 2 && d->blocks == CV_BLOCKS_GRID);
    assert_string_equal(d->dims[1].name, "y");
    assert_int_equal(d->dims[1].size, 7);
    assert_true(d->ghost_lo[0] == 1 && d->ghost_lo[1] == 1 && d->ghost_hi[0] == 0 && d->ghost_hi[1] == 2);
    assert_int_equal(d->skip_bytes, 8);
    assert_true(d->gaps == CV_GAPS_FILL && d->has_fill && d->fill == -1.5 && d->overlap == CV_OVERLAP_LAST && d->nan == CV_NAN_REFUSE);
}

static void test_every_key_is_taken(void **state)
{
    struct cv_schema *s = parsed(full);

    (void)state;
    check_full(s);
    cv_schema_free(s);
}

static void test_attributes_are_numbers_or_text(void **state)
{
    struct cv_schema *s = parsed(full);
    const struct cv_attrs *a = &s->datasets[0].attrs;

    (void)state;
    assert_int_equal(a->count, 7);
    assert_string_equal(cv_attrs_find(a, "units")->text, "K");
    assert_int_equal(cv_attrs_find(a, "levels")->ints[1], 2);
    assert_true(cv_attrs_find(a, "range")->floats[1] == 2.0);
    assert_int_equal(cv_attrs_find(a, "n")->ints[0], 7);
    assert_true(cv_attrs_find(a, "f")->floats[0] == 1e-3);
    assert_string_equal(cv_attrs_find(a, "quoted")->text, "7");
    assert_string_equal(cv_attrs_find(&s->attrs, "title")->text, "heat");
    cv_schema_free(s);
}

static void test_json_is_taken_too(void **state)
{
    struct cv_schema *s = parsed("{\"fpschema\": 1, \"dims\": {\"x\": 4},\n \"datasets\": [{\"name\": \"a\", \"type\": \"<i4\", \"dims\": [\"x\", 3], \"attributes\": {\"n\": 7}}]}");

    (void)state;
    assert_string_equal(s->datasets[0].name, "/a");
    assert_int_equal(s->datasets[0].dims[1].size, 3);
    assert_int_equal(cv_attrs_find(&s->datasets[0].attrs, "n")->ints[0], 7);
    cv_schema_free(s);
}

static void test_keys_may_stand_in_any_order(void **state)
{
    struct cv_schema *s = parsed("datasets: [{dims: [x], type: f4, name: a}]\nbyte_order: big\ndims: {x: 3}\nfpschema: 1\n");

    (void)state;
    assert_true(s->datasets[0].type.big_endian && s->datasets[0].dims[0].size == 3);
    cv_schema_free(s);
}

static void test_a_type_may_say_its_own_byte_order(void **state)
{
    struct cv_schema *s = parsed(HEAD "byte_order: big\ndatasets: [{name: a, type: '<f8', dims: []}, {name: b, type: f8, dims: []}, {name: c, type: complex64, dims: []}]");

    (void)state;
    assert_false(s->datasets[0].type.big_endian);
    assert_true(s->datasets[1].type.big_endian);
    assert_int_equal(s->datasets[2].type.kind, CV_COMPLEX);
    cv_schema_free(s);
}

static void test_zero_dimensions_and_dimensions_of_zero_are_taken(void **state)
{
    (void)state;
    taken(SET("[]", ""));
    taken(SET("[0, 3]", ""));
    taken(SET("[1, 1, 1, 1, 1, 1, 1]", ""));
    taken(SET("[0]", "  block: {start: [0], count: [0]}\n"));
}

static void test_fill_values(void **state)
{
    struct cv_schema *s = parsed(SET("[2]", "  gaps: fill\n  fill: .nan\n"));

    (void)state;
    assert_true(isnan(s->datasets[0].fill));
    cv_schema_free(s);
    s = parsed("fpschema: 1\ndatasets: [{name: a, type: int8, dims: [], gaps: fill, fill: -128}]\n");
    assert_true(s->datasets[0].fill == -128);
    cv_schema_free(s);
    refused("fpschema: 1\ndatasets: [{name: a, type: int8, dims: [], gaps: fill, fill: 128}]\n", 2, 62, "no value of int8");
    refused("fpschema: 1\ndatasets: [{name: a, type: uint8, dims: [], gaps: fill, fill: -1}]\n", 2, 63, "no value of uint8");
    refused("fpschema: 1\ndatasets: [{name: a, type: int32, dims: [], gaps: fill, fill: 1.5}]\n", 2, 63, "no value of int32");
    refused("fpschema: 1\ndatasets: [{name: a, type: int64, dims: [], gaps: fill, fill: 9007199254740994}]\n", 2, 63, "2^53");
    refused(SET("[2]", "  fill: 0\n"), 6, 9, "goes with gaps: fill");
    refused(SET("[2]", "  gaps: fill\n  fill: much\n"), 7, 9, "is a number");
    refused(SET("[2]", "  gaps: fill\n  fill: 0x10\n"), 7, 9, "is a number");
}

/* netCDF's readers take it for the fill value, and nothing else. */
static void test_an_attribute_of_the_fill_value_is_a_value_of_its_type(void **state)
{
    (void)state;
    taken(SET("[2]", "  attributes: {_FillValue: -999}\n"));
    taken(SET("[2]", "  attributes: {_FillValue: .nan}\n"));
    taken(SET("[2]", "  gaps: fill\n  fill: -1\n  attributes: {_FillValue: -1.0}\n"));
    taken("fpschema: 1\ndatasets: [{name: a, type: int64, dims: [], attributes: {_FillValue: -9223372036854775806}}]\n");
    taken(HEAD "attributes: {_FillValue: none}\n" ONE); /* of the whole, where it means nothing */
    refused(SET("[2]", "  attributes:\n    _FillValue: missing\n"), 7, 17, "one value of the dataset's type, float64");
    refused(SET("[2]", "  attributes: {_FillValue: '-1'}\n"), 6, 28, "give what it is to say another name");
    refused(SET("[2]", "  attributes: {_FillValue: [0, 1]}\n"), 6, 28, "one value");
    refused("fpschema: 1\ndatasets: [{name: a, type: int8, dims: [], attributes: {_FillValue: 128}}]\n", 2, 69, "int8");
    refused("fpschema: 1\ndatasets: [{name: a, type: int8, dims: [], attributes: {_FillValue: 0.5}}]\n", 2, 69, "int8");
    refused("fpschema: 1\ndatasets: [{name: a, type: uint32, dims: [], attributes: {_FillValue: -1}}]\n", 2, 71, "uint32");
    refused("fpschema: 1\ndatasets: [{name: a, type: float, dims: [], attributes: {_FillValue: 1e300}}]\n", 2, 70, "float32");
    refused(SET("[2]", "  gaps: fill\n  fill: -1\n  attributes: {_FillValue: -2}\n"), 8, 28, "can't have two values");
}

/* ---------------------------------------------------------------- mistakes in YAML */

static void test_what_is_no_yaml_is_said_with_its_place(void **state)
{
    (void)state;
    refused("", 1, 1, "empty");
    refused("# nothing\n", 1, 1, "empty");
    refused(HEAD "a: [1, 2\n", 3, 1, "no YAML");
    refused(HEAD "  b: c\n", 2, 4, "no YAML");
    refused_bytes("fpschema: 1\nx: \"\xff\"\n", 20, "line 2, column 5: ", "no YAML");
    refused_bytes("fpschema: 1\nx: \0\n", 17, "line 2, column 4: ", "no YAML");
    refused(HEAD "order: \"\\0\"\n", 2, 8, "NUL");
}

static void test_anchors_aliases_and_tags_are_refused(void **state)
{
    (void)state;
    refused(HEAD "a: &x [1]\nb: *x\n", 2, 4, "anchor");
    refused(HEAD "a: &x 1\n", 2, 4, "anchor");
    refused(HEAD "b: *x\n", 2, 4, "alias (*x)");
    refused(HEAD "b: !!int 3\n", 2, 4, "tag");
    refused(HEAD "b: !!map {}\n", 2, 4, "tag");
}

static void test_more_than_one_document_is_refused(void **state)
{
    (void)state;
    taken("---\n" HEAD ONE "...\n");
    refused(HEAD ONE "---\nfpschema: 1\n", 3, 1, "second document");
}

static void test_keys_that_stand_twice_are_refused(void **state)
{
    (void)state;
    refused(HEAD "order: C\norder: C\n", 3, 1, "\"order\" is there already, in line 2");
    refused(HEAD "dims: {x: 1, y: 2, x: 3}\n", 2, 20, "\"x\" is there already");
    refused(HEAD "? [a]\n: 1\n", 2, 3, "a key is a word");
}

static void test_a_text_has_bounds(void **state)
{
    char *big = calloc(1, CV_SCHEMA_MAX_BYTES + 2), deep[256] = HEAD "a: ";
    struct cv_fail why = {0};
    struct cv_schema *s = NULL;
    size_t len;

    (void)state;
    memset(deep + strlen(deep), '[', 100);
    refused(deep, 2, 4 + CV_TREE_DEPTH - 1, "16 deep");
    memset(big, '#', CV_SCHEMA_MAX_BYTES + 1);
    assert_int_equal(cv_schema_parse("s.yaml", big, CV_SCHEMA_MAX_BYTES + 1, &s, &why), -EFBIG);
    assert_non_null(strstr(why.text, "4194304"));
    len = (size_t)sprintf(big, HEAD "a: [");
    for (unsigned i = 0; i < CV_TREE_NODES; i++)
        len += (size_t)sprintf(big + len, "0,");
    big[len++] = ']';
    refused_bytes(big, len, "line 2, column ", "more than 524288 values");
    len = (size_t)sprintf(big, HEAD "dims: {");
    for (unsigned i = 0; i <= CV_TREE_KEYS; i++)
        len += (size_t)sprintf(big + len, "d%u: 1,", i);
    refused_bytes(big, len, "line 2, column ", "more than 1024 keys");
    free(big);
}

/* ---------------------------------------------------------------- mistakes in keys */

static void test_unknown_keys_and_words_come_with_the_nearest(void **state)
{
    (void)state;
    refused(HEAD "byteorder: big\n" ONE, 2, 1, "did you mean byte_order?");
    refused(HEAD "zzz: 1\n", 2, 1, "one of fpschema, order, ");
    refused(HEAD "byte_order: litle\n", 2, 13, "did you mean little?");
    refused(HEAD "order: c\n", 2, 8, "one of C, fortran");
    refused(HEAD "layout: file\n", 2, 9, "did you mean files?");
    refused(SET("[2]", "  gost: 1\n"), 6, 3, "did you mean ghost?");
    refused(SET("[2]", "  ghost: {low: 1}\n"), 6, 11, "has no key \"low\"");
    refused(SET("[2]", "  gaps: fil\n"), 6, 9, "did you mean fill?");
    refused(SET("[2]", "  overlap: lst\n"), 6, 12, "did you mean last?");
    refused(SET("[2]", "  nan: refused\n"), 6, 8, "did you mean refuse?");
    refused(SET("[2]", "  block: hole\n"), 6, 10, "did you mean whole?");
    refused(SET("[2]", "  block: {start: [0], cont: [2]}\n"), 6, 23, "did you mean count?");
    refused(HEAD "datasets: [{name: a, type: flaot64, dims: []}]\n", 2, 28, "did you mean float64?");
    refused(HEAD "datasets: [{name: a, type: byte, dims: []}]\n", 2, 28, "byte is int8 in NumPy and in netCDF, and uint8 elsewhere");
    refused(HEAD "dims: {height: 2}\ndatasets: [{name: a, type: f8, dims: [heigth]}]\n", 3, 39, "did you mean height?");
    refused(HEAD "ranks: {gird: [2]}\n", 2, 9, "did you mean grid?");
    refused(HEAD "\"bad\\nkey\": 1\n", 2, 1, "\"bad?key\"");
}

static void test_missing_keys_are_named(void **state)
{
    (void)state;
    refused("order: C\n" ONE, 1, 1, "needs the key fpschema");
    refused(HEAD, 1, 1, "needs the key datasets");
    refused(HEAD "datasets:\n- name: a\n  dims: []\n", 3, 3, "needs the key type");
    refused(HEAD "datasets:\n- type: f8\n  dims: []\n", 3, 3, "needs the key name");
    refused(HEAD "datasets:\n- type: f8\n  name: a\n", 3, 3, "needs the key dims");
    refused(SET("[2]", "  block: {start: [0]}\n"), 6, 10, "needs the key count");
}

static void test_values_of_wrong_kind_are_refused(void **state)
{
    (void)state;
    refused("fpschema: 2\n" ONE, 1, 11, "version 2");
    refused("fpschema: one\n" ONE, 1, 11, "whole number");
    refused("- a\n", 1, 1, "map of keys");
    refused("word\n", 1, 1, "map of keys");
    refused(HEAD "header: 512 bytes\n", 2, 9, "number of bytes");
    refused(HEAD "header: 4K\n", 2, 9, "number of bytes");
    refused(HEAD "header: -1\n", 2, 9, "number of bytes");
    refused(HEAD "header: 9223372036854775808\n", 2, 9, "more than a file can have");
    refused(HEAD "header: 99999999999999999999\n", 2, 9, "number of bytes");
    refused(HEAD "header: [1]\n", 2, 9, "one value, not a list");
    refused(HEAD "header:\n" ONE, 2, 8, "no value");
    refused(HEAD "steps: 0\n", 2, 8, "from 1 to");
    refused(HEAD "steps: some\n", 2, 8, "whole number, or all");
    refused(HEAD "dims: [1]\n", 2, 7, "map of names");
    refused(HEAD "dims: {x: -1}\n", 2, 11, "whole number");
    refused(HEAD "dims: {x: 0x10}\n", 2, 11, "whole number");
    refused(HEAD "dims: {x: 9223372036854775808}\n", 2, 11, "from 0 to");
    refused(HEAD "dims: {5: 1}\n", 2, 8, "not a number alone");
    refused(HEAD "dims: {a/b: 1}\n", 2, 8, "slash");
    refused(HEAD "datasets: {}\n", 2, 11, "is a list");
    refused(HEAD "datasets: []\n", 2, 11, "one at least");
    refused(HEAD "datasets: [a]\n", 2, 12, "a dataset is a map");
    refused(HEAD "attributes: [1]\n" ONE, 2, 13, "map of names");
    refused(HEAD "attributes: {a: {b: 1}}\n" ONE, 2, 17, "not a map");
    refused(HEAD "attributes: {a: [x]}\n" ONE, 2, 18, "numbers alone");
    refused(HEAD "attributes: {a: []}\n" ONE, 2, 17, "from 1 to");
    refused(HEAD "attributes: {'': 1}\n" ONE, 2, 14, "empty");
    refused(SET("[2]", "  units: K\n  attributes: {units: C}\n"), 7, 16, "already");
}

static void test_names_that_no_format_can_have_are_refused(void **state)
{
    static const struct {
        const char *name, *words;
    } bad[] = {{"''", "no value"},       {"/", "empty"},        {"//a", "empty"},         {"a//b", "empty"},   {"/a/", "empty"},
               {"a/../b", "\"..\""},     {"..", "\"..\""},      {"./a", "\".\""},         {"\"a\\tb\"", "control"}, {"\"\\x7f\"", "control"}};
    char text[800];

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, HEAD "datasets:\n- name: %s\n  type: f8\n  dims: []\n", bad[i].name);
        refused(text, 3, 9, bad[i].words);
    }
    snprintf(text, sizeof text, HEAD "datasets:\n- name: /%0254d\n  type: f8\n  dims: []\n", 0);
    taken(text);
    snprintf(text, sizeof text, HEAD "datasets:\n- name: /%0255d\n  type: f8\n  dims: []\n", 0);
    refused(text, 3, 9, "255 bytes");
    taken(HEAD "datasets:\n- {name: \"größe/x y\", type: f8, dims: []}\n");
}

static void test_paths_that_are_in_each_others_way_are_refused(void **state)
{
    (void)state;
    refused(HEAD "datasets:\n- {name: a, type: f8, dims: []}\n- {name: /a, type: f8, dims: []}\n", 4, 3, "/a is there already");
    refused(HEAD "datasets:\n- {name: a/b, type: f8, dims: []}\n- {name: a-b, type: f8, dims: []}\n- {name: a, type: f8, dims: []}\n", 5, 3, "/a is a dataset, so /a/b");
    taken(HEAD "datasets:\n- {name: a/b, type: f8, dims: []}\n- {name: ab, type: f8, dims: []}\n- {name: a/c, type: f8, dims: []}\n");
}

/* ---------------------------------------------------------------- dimensions, ranks and blocks that do not fit */

static void test_dimensions_have_limits(void **state)
{
    (void)state;
    refused(SET("[1, 1, 1, 1, 1, 1, 1, 1]", ""), 5, 9, "8 dimensions: 7 are the most");
    refused(SET("[z]", ""), 5, 10, "neither a number nor a dimension");
    refused(SET("3", ""), 5, 9, "is a list");
    refused(SET("[[3]]", ""), 5, 10, "one value");
    taken(SET("[1152921504606846975]", ""));
    refused(SET("[1152921504606846976]", ""), 5, 9, "more than 2^63 bytes");
    refused(SET("[4294967296, 4294967296, 0]", ""), 5, 9, "more than 2^63 bytes");
    refused(SET("[1152921504606846975]", "  ghost: 1\n"), 3, 3, "with its ghost cells");
    refused(HEAD "steps: 2\ndims: {time: 3}\n" ONE, 3, 8, "time is the dimension of the steps");
}

static void test_ghosts_have_a_number_for_each_dimension(void **state)
{
    (void)state;
    taken(SET("[2, 3]", "  ghost: 2\n"));
    refused(SET("[2, 3]", "  ghost: [1, 1, 1]\n"), 6, 10, "3 numbers, and 2 are needed");
    refused(SET("[2, 3]", "  ghost: {lo: [1]}\n"), 6, 15, "1 numbers, and 2 are needed");
    refused(SET("[2, 3]", "  ghost: -1\n"), 6, 10, "whole number");
    refused(SET("[2, 3]", "  ghost: 1048577\n"), 6, 10, "from 0 to 1048576");
}

static void test_ranks_and_grids_must_agree(void **state)
{
    (void)state;
    taken(HEAD "ranks: {grid: [2], count: 2}\n" ONE);
    taken(HEAD "ranks: {grid: [2, 2]}\ndatasets: [{name: a, type: f8, dims: [2], block: {grid: [4]}}]\n");
    taken(HEAD "ranks: {grid: [2, 2]}\ndatasets: [{name: a, type: f8, dims: [2], block: whole}, {name: t, type: f8, dims: []}]\n");
    refused(HEAD "ranks: {grid: [2], count: 3}\n" ONE, 2, 27, "3 ranks, and the grid has 2");
    refused(HEAD "ranks: {grid: [2, 2]}\n" ONE, 3, 12, "2 dimensions, and the dataset 1");
    refused(HEAD "ranks: {grid: [2, 2]}\ndatasets: [{name: a, type: f8, dims: [2], block: {grid: [3]}}]\n", 3, 57, "this grid has 3 ranks, and there are 4");
    refused(HEAD "ranks: {grid: [0]}\n" ONE, 2, 16, "from 1 to");
    refused(HEAD "ranks: {grid: [1048576, 2]}\n" ONE, 2, 15, "more than 1048576 ranks");
    refused(HEAD "ranks: {grid: []}\n" ONE, 2, 15, "list of 1 to 7");
    refused(HEAD "ranks: {grid: 4}\n" ONE, 2, 15, "list of 1 to 7");
    refused(HEAD "ranks: {order: C}\n" ONE, 2, 16, "goes with grid");
    taken(HEAD "ranks: {remainder: spread, grid: [2]}\n" ONE);
    refused(HEAD "ranks: {remainder: spread}\n" ONE, 2, 20, "goes with grid");
    refused(HEAD "ranks: {grid: [2], remainder: sprad}\n" ONE, 2, 31, "spread");
    refused(HEAD "ranks: 0\n" ONE, 2, 8, "from 1 to");
    refused(HEAD "ranks: 2\n" ONE, 3, 12, "nothing says which block");
    refused(HEAD "datasets: [{name: a, type: f8, dims: [2], block: grid}]\n", 2, 50, "needs ranks");
}

static void test_blocks_must_lie_in_the_array(void **state)
{
    (void)state;
    taken(SET("[9]", "  block: {start: [0], count: [5], stride: [2]}\n"));
    refused(SET("[8]", "  block: {start: [0], count: [5], stride: [2]}\n"), 6, 10, "beyond the array: in dimension 1 of 8 elements");
    refused(SET("[4, 4]", "  block: {start: [0, 2], count: [4, 3]}\n"), 6, 10, "in dimension 2");
    refused(SET("[4]", "  block: {start: [9223372036854775807], count: [9223372036854775807], stride: [9223372036854775807]}\n"), 6, 10, "beyond");
    refused(SET("[4]", "  block: {start: [0], count: [4], stride: [0]}\n"), 6, 44, "from 1 to");
    refused(SET("[4]", "  block: {start: [0, 0], count: [4]}\n"), 6, 18, "2 numbers, and 1 are needed");
    refused(SET("[4]", "  block: []\n"), 6, 10, "list of blocks is empty");
    refused("fpschema: 1\nranks: 3\n" "datasets: [{name: a, type: f8, dims: [4], block: [{start: [0], count: [2]}, {start: [2], count: [2]}]}]", 3, 50, "2 blocks for 3 ranks");
    refused("fpschema: 1\nranks: 3\n" "datasets: [{name: a, type: f8, dims: [4], block: {start: [0], count: [2]}}]", 3, 50, "1 block for 3 ranks");
}

static void test_keys_that_contradict_each_other_are_refused(void **state)
{
    (void)state;
    refused(SET("[2]", "  skip: 4\n  offset: 8\n"), 7, 11, "can't both");
    refused(HEAD "layout: global\nranks: 2\n" ONE, 3, 8, "no ranks");
    refused(HEAD "layout: global\n" "datasets: [{name: a, type: f8, dims: [2], block: whole}]\n", 3, 50, "no blocks");
    refused(HEAD "layout: shared\n" ONE, 2, 9, "needs the number of ranks");
    refused(HEAD "layout: segments\nranks: 1\ndatasets: [{name: a, type: f8, dims: [2], offset: 8}]\n", 4, 51, "use skip");
    refused(HEAD "layout: segments\nranks: 1\ndatasets: [{name: a, type: f8, dims: [2], record: 8}]\n", 4, 51, "segments");
    refused(HEAD "layout: global\nrank: 'a{rank}'\n" ONE, 3, 7, "layout: files");
    refused(HEAD "step_header: 4\n" ONE, 2, 14, "goes with steps");
    refused(HEAD "rank: rank.raw\n" ONE, 2, 7, "no {rank}");
    refused(HEAD "rank: '{rank}_{rank}'\n" ONE, 2, 7, "twice");
    refused(HEAD "rank: 'v2{rank}'\n" ONE, 2, 7, "digit");
}

/* ---------------------------------------------------------------- files */

static void test_a_schema_is_read_from_its_file(void **state)
{
    char path[] = "/tmp/test_cv_schema.XXXXXX";
    struct cv_fail why = {0};
    struct cv_schema *s = NULL;
    int fd = mkstemp(path);

    (void)state;
    assert_int_equal(write(fd, full, strlen(full)), (ssize_t)strlen(full));
    assert_int_equal(cv_schema_read(path, &s, &why), 0);
    check_full(s);
    cv_schema_free(s);
    assert_int_equal(ftruncate(fd, CV_SCHEMA_MAX_BYTES + 1), 0);
    assert_int_equal(cv_schema_read(path, &s, &why), -EFBIG);
    assert_string_equal(why.file, path);
    close(fd);
    unlink(path);
    why = (struct cv_fail){0};
    assert_int_equal(cv_schema_read(path, &s, &why), -ENOENT);
    assert_non_null(strstr(why.text, "can't be opened"));
    why = (struct cv_fail){0};
    assert_int_equal(cv_schema_read("/", &s, &why), -EISDIR);
    assert_non_null(strstr(why.text, "can't be read"));
}

/* Run in the tree's folder, as all unit tests are. */
static void test_the_examples_of_the_guide_are_taken(void **state)
{
    FILE *f = fopen("docs/CONVERT.md", "r");
    char line[4096], text[16384] = "";
    bool inside = false;
    unsigned examples = 0;

    (void)state;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, "```", 3) != 0) {
            assert_true(strlen(text) + strlen(line) < sizeof text);
            strcat(text, inside ? line : "");
            continue;
        }
        if (inside && strstr(text, "fpschema")) {
            taken(text);
            examples++;
        }
        inside = strcmp(line, "```yaml\n") == 0 || strcmp(line, "```json\n") == 0;
        text[0] = '\0';
    }
    fclose(f);
    assert_true(examples >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_key_is_taken),
        cmocka_unit_test(test_attributes_are_numbers_or_text),
        cmocka_unit_test(test_json_is_taken_too),
        cmocka_unit_test(test_keys_may_stand_in_any_order),
        cmocka_unit_test(test_a_type_may_say_its_own_byte_order),
        cmocka_unit_test(test_zero_dimensions_and_dimensions_of_zero_are_taken),
        cmocka_unit_test(test_fill_values),
        cmocka_unit_test(test_an_attribute_of_the_fill_value_is_a_value_of_its_type),
        cmocka_unit_test(test_what_is_no_yaml_is_said_with_its_place),
        cmocka_unit_test(test_anchors_aliases_and_tags_are_refused),
        cmocka_unit_test(test_more_than_one_document_is_refused),
        cmocka_unit_test(test_keys_that_stand_twice_are_refused),
        cmocka_unit_test(test_a_text_has_bounds),
        cmocka_unit_test(test_unknown_keys_and_words_come_with_the_nearest),
        cmocka_unit_test(test_missing_keys_are_named),
        cmocka_unit_test(test_values_of_wrong_kind_are_refused),
        cmocka_unit_test(test_names_that_no_format_can_have_are_refused),
        cmocka_unit_test(test_paths_that_are_in_each_others_way_are_refused),
        cmocka_unit_test(test_dimensions_have_limits),
        cmocka_unit_test(test_ghosts_have_a_number_for_each_dimension),
        cmocka_unit_test(test_ranks_and_grids_must_agree),
        cmocka_unit_test(test_blocks_must_lie_in_the_array),
        cmocka_unit_test(test_keys_that_contradict_each_other_are_refused),
        cmocka_unit_test(test_a_schema_is_read_from_its_file),
        cmocka_unit_test(test_the_examples_of_the_guide_are_taken),
    };

    return cmocka_run_group_tests_name("cv_schema", tests, NULL, NULL);
}
