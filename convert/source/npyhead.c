/*
 * Headers of .npy (npy.h), versions 1.0 to 3.0. Called by npy.c and npz.c; no I/O.
 *
 *     offset  bytes
 *          0      6  93 'N' 'U' 'M' 'P' 'Y'
 *          6      2  version: major, minor
 *          8    2/4  length of the header (2 bytes in version 1, 4 since 2), little-endian
 *       10/12         {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), } as Python writes a dictionary, blanks, a newline
 *
 * The dictionary is taken apart by hand, with these three keys and no other value than a string, True or False, and a tuple of numbers: nothing is evaluated. Types that are no numbers (structures,
 * objects, strings, times) are refused by their names.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "convert/source/npy.h"

#define MAGIC       "\x93NUMPY"
#define MAGIC_BYTES 6u
#define WORD_MAX    31u

struct text {
    const char *begin, *at, *end;
};

/* What went wrong, at its place. */
struct place {
    const char *file, *dataset;
    uint64_t at; /* of the dictionary's first byte */
    struct cv_fail *why;
};

static uint64_t place_of(const struct place *p, const struct text *t)
{
    return p->at == CV_NO_OFFSET ? CV_NO_OFFSET : p->at + (uint64_t)(t->at - t->begin);
}

static int wrong(const struct place *p, const struct text *t, const char *what)
{
    return cv_fail(p->why, -EINVAL, p->file, p->dataset, place_of(p, t), "the header of NumPy is damaged: %s", what);
}

static void blanks(struct text *t)
{
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\t'))
        t->at++;
}

static bool take(struct text *t, char c)
{
    blanks(t);
    if (t->at == t->end || *t->at != c)
        return false;
    t->at++;
    return true;
}

static bool take_word(struct text *t, const char *word)
{
    size_t n = strlen(word);

    blanks(t);
    if ((size_t)(t->end - t->at) < n || memcmp(t->at, word, n) != 0)
        return false;
    t->at += n;
    return true;
}

/* 'text' or "text", without escapes: what is in it, or false. */
static bool take_string(struct text *t, char out[WORD_MAX + 1])
{
    const char *close;
    char quote;

    blanks(t);
    if (t->at == t->end || (*t->at != '\'' && *t->at != '"'))
        return false;
    quote = *t->at;
    close = memchr(t->at + 1, quote, (size_t)(t->end - t->at - 1));
    if (!close || (size_t)(close - t->at - 1) > WORD_MAX || memchr(t->at, '\\', (size_t)(close - t->at)))
        return false;
    snprintf(out, WORD_MAX + 1, "%.*s", (int)(close - t->at - 1), t->at + 1);
    t->at = close + 1;
    return true;
}

static const char *kind_of(const char *descr)
{
    switch (descr[strspn(descr, "<>|=")]) {
    case 'O':
        return "Python objects, which only Python reads";
    case 'S':
    case 'a':
    case 'U':
        return "strings";
    case 'M':
    case 'm':
        return "dates or times: store them as int64 with units in the schema";
    case 'V':
        return "a structure or bare bytes: store its fields as arrays of their own";
    case 'f':
    case 'c':
        return "a floating-point number of a size that the outputs do not have: store it as float32 or float64";
    }
    return "a type that is not known";
}

static int take_type(const struct place *p, struct text *t, struct cv_npy_head *out)
{
    char descr[WORD_MAX + 1];
    const struct text start = *t;

    if (take(t, '['))
        return cv_fail(p->why, -ENOTSUP, p->file, p->dataset, place_of(p, &start), "a structured dtype of NumPy: store its fields as arrays of their own");
    if (!take_string(t, descr))
        return wrong(p, t, "'descr' is no string");
    if (strcmp(descr, "|b1") == 0 || strcmp(descr, "b1") == 0) {
        out->boolean = true;
        out->type = (struct cv_type){.kind = CV_UINT, .size_bytes = 1};
        return 0;
    }
    if (!strchr("<>|", descr[0]) || !descr[0] || !descr[1] || !strchr("iufc", descr[1]) || cv_type_parse(descr, &out->type) != 0)
        return cv_fail(p->why, -ENOTSUP, p->file, p->dataset, place_of(p, &start), "dtype '%s' is %s", descr, kind_of(descr));
    if (descr[0] == '|' && out->type.size_bytes != 1)
        return wrong(p, t, "'descr' says no byte order");
    if (out->type.size_bytes == 1)
        out->type.big_endian = false;
    return 0;
}

static bool take_number(struct text *t, uint64_t *v)
{
    blanks(t);
    if (t->at == t->end || !isdigit((unsigned char)*t->at))
        return false;
    for (*v = 0; t->at < t->end && isdigit((unsigned char)*t->at); t->at++)
        if (__builtin_mul_overflow(*v, 10u, v) || __builtin_add_overflow(*v, (uint64_t)(*t->at - '0'), v))
            return false;
    if (t->at < t->end && *t->at == 'L') /* of Python 2 */
        t->at++;
    return true;
}

static int take_shape(const struct place *p, struct text *t, struct cv_npy_head *out)
{
    bool comma = true;

    if (!take(t, '('))
        return wrong(p, t, "'shape' is no tuple");
    while (!take(t, ')')) {
        if (!comma)
            return wrong(p, t, "numbers of 'shape' without a comma between them");
        if (out->rank == CV_RANK_MAX - 1)
            return cv_fail(p->why, -ENOTSUP, p->file, p->dataset, place_of(p, t), "more than %u dimensions", CV_RANK_MAX - 1);
        if (!take_number(t, &out->dims[out->rank++]))
            return wrong(p, t, "'shape' has something else than numbers");
        comma = take(t, ',');
    }
    return out->rank == 1 && !comma ? wrong(p, t, "'shape' is no tuple") : 0;
}

static int take_dict(const struct place *p, struct text *t, struct cv_npy_head *out)
{
    unsigned seen = 0;
    bool comma = true;

    if (!take(t, '{'))
        return wrong(p, t, "it does not begin with {");
    while (!take(t, '}')) {
        char key[WORD_MAX + 1];
        unsigned bit;
        int rc = 0;

        if (!comma || !take_string(t, key) || !take(t, ':'))
            return wrong(p, t, "a key, a colon and a value are missing");
        bit = strcmp(key, "descr") == 0 ? 1 : strcmp(key, "fortran_order") == 0 ? 2 : strcmp(key, "shape") == 0 ? 4 : 0;
        if (!bit || (seen & bit))
            return wrong(p, t, bit ? "a key is there twice" : "there is a key that is none of 'descr', 'fortran_order' and 'shape'");
        seen |= bit;
        if (bit == 1)
            rc = take_type(p, t, out);
        else if (bit == 4)
            rc = take_shape(p, t, out);
        else if (take_word(t, "True"))
            out->fortran_order = true;
        else if (!take_word(t, "False"))
            rc = wrong(p, t, "'fortran_order' is neither True nor False");
        if (rc)
            return rc;
        comma = take(t, ',');
    }
    if (seen != 7)
        return wrong(p, t, "one of 'descr', 'fortran_order' and 'shape' is missing");
    for (; t->at < t->end; t->at++)
        if (!strchr(" \t\r\n", *t->at) || !*t->at)
            return wrong(p, t, "something stands behind the dictionary");
    return 0;
}

/* Dimensions as the bytes lie, and how many of these. */
static int finish(const struct place *p, struct text *t, struct cv_npy_head *out)
{
    uint64_t bytes = out->type.size_bytes, most = out->type.size_bytes;

    for (unsigned i = 0; out->fortran_order && i < out->rank / 2; i++) {
        uint64_t d = out->dims[i];

        out->dims[i] = out->dims[out->rank - 1 - i];
        out->dims[out->rank - 1 - i] = d;
    }
    for (unsigned i = 0; i < out->rank; i++) {
        if (out->dims[i] && __builtin_mul_overflow(most, out->dims[i], &most))
            return wrong(p, t, "the product of 'shape' has more than 64 bits");
        bytes *= out->dims[i];
    }
    if (most > INT64_MAX / 2)
        return wrong(p, t, "the product of 'shape' is more than any file has");
    out->data_bytes = bytes;
    return 0;
}

int cv_npy_head_parse(const uint8_t *bytes, size_t len, const char *file, const char *dataset, uint64_t at, struct cv_npy_head *out, struct cv_fail *why)
{
    struct place p = {.file = file, .dataset = dataset, .at = at, .why = why};
    size_t before, dict;
    struct text t;
    int rc;

    memset(out, 0, sizeof *out);
    if (len && memcmp(bytes, MAGIC, len < MAGIC_BYTES ? len : MAGIC_BYTES) != 0)
        return cv_fail(why, -EINVAL, file, dataset, at, "is no array of NumPy: it does not begin with \\x93NUMPY");
    if (len < 10)
        return cv_fail(why, -ENODATA, file, dataset, at == CV_NO_OFFSET ? at : at + len, "ends in the header of NumPy, after %zu bytes", len);
    if (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0)
        return cv_fail(why, -ENOTSUP, file, dataset, at == CV_NO_OFFSET ? at : at + 6, "version %u.%u of .npy; 1.0, 2.0 and 3.0 are known", bytes[6], bytes[7]);
    before = bytes[6] == 1 ? 10 : 12;
    if (len < before)
        return cv_fail(why, -ENODATA, file, dataset, at == CV_NO_OFFSET ? at : at + len, "ends in the header of NumPy, after %zu bytes", len);
    dict = (size_t)bytes[8] | (size_t)bytes[9] << 8;
    if (before == 12)
        dict |= (size_t)bytes[10] << 16 | (size_t)bytes[11] << 24;
    if (dict > CV_NPY_HEAD_MAX - before)
        return cv_fail(why, -ENOTSUP, file, dataset, at == CV_NO_OFFSET ? at : at + 8, "a header of %zu bytes: a structured dtype, or it is damaged", dict);
    if (dict > len - before)
        return cv_fail(why, -ENODATA, file, dataset, at == CV_NO_OFFSET ? at : at + len, "ends in the header of NumPy, which has %zu bytes", before + dict);
    p.at = at == CV_NO_OFFSET ? at : at + before;
    t.begin = t.at = (const char *)bytes + before;
    t.end = t.begin + dict;
    out->head_bytes = before + dict;
    rc = take_dict(&p, &t, out);
    return rc ? rc : finish(&p, &t, out);
}
