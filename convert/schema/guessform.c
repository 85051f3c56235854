/*
 * Guesses from samples with a form of their own (guess.h): the header of .npy, and records of Fortran. Called by guess.c. One thread; reads the samples.
 *
 * A .npy file needs no schema. One is printed nevertheless, which reads the same file as raw bytes: to be edited when a set of such files is to become one array. Fortran's records are known by their
 * marks: the length before each is that behind it, and the last one ends where the file does, which no other data do by accident.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "convert/schema/guess.h"
#include "convert/schema/samples.h"

#define NPY_HEADER_MAX 65536u
#define RECORDS_MAX    256u
#define RECORD_SAMPLE  65536u

/* ---------------------------------------------------------------- .npy */

bool cv_guess_is_npy(const unsigned char *head, size_t len)
{
    return len >= 10 && memcmp(head, "\x93NUMPY", 6) == 0;
}

struct npy {
    struct cv_type type;
    bool fortran;
    unsigned rank;
    uint64_t dims[CV_RANK_MAX], header_bytes;
};

static int npy_wrong(const char *path, struct cv_fail *why, const char *what)
{
    return cv_fail(why, -EINVAL, path, NULL, 0, "the header of .npy is not understood: %s", what);
}

/* Behind 'key': of the dictionary. */
static const char *value_of(const char *dict, const char *key)
{
    char quoted[40];
    const char *p;

    snprintf(quoted, sizeof quoted, "'%s':", key);
    p = strstr(dict, quoted);
    if (!p)
        return NULL;
    p += strlen(quoted);
    return p + strspn(p, " ");
}

static int npy_shape(const char *path, const char *p, struct npy *h, struct cv_fail *why)
{
    if (!p || *p != '(')
        return npy_wrong(path, why, "shape");
    for (p++; *p && *p != ')';) {
        char *end;

        p += strspn(p, " ,");
        if (*p == ')')
            break;
        if (h->rank == 7 || *p < '0' || *p > '9')
            return npy_wrong(path, why, "shape (more than 7 dimensions?)");
        errno = 0;
        h->dims[h->rank++] = strtoull(p, &end, 10);
        if (errno)
            return npy_wrong(path, why, "shape");
        p = end;
    }
    return 0;
}

static int npy_read(const char *path, struct npy *h, struct cv_fail *why)
{
    char *text = calloc(1, NPY_HEADER_MAX + 1), descr[16] = "";
    unsigned char *u = (unsigned char *)text;
    const char *p;
    size_t len, at, n;
    int rc;

    if (!text)
        return cv_fail(why, -ENOMEM, path, NULL, CV_NO_OFFSET, "no memory is left");
    rc = cv_guess_read(path, 0, text, NPY_HEADER_MAX, &len, why);
    at = len > 6 && u[6] >= 2 ? 12 : 10;
    n = rc || len < 12 ? 0 : (size_t)(u[8] | u[9] << 8) + (at == 12 ? (size_t)u[10] << 16 | (size_t)u[11] << 24 : 0);
    if (rc == 0 && (!cv_guess_is_npy(u, len) || n > len || at > len - n))
        rc = npy_wrong(path, why, "it is longer than the file");
    if (rc == 0) {
        h->header_bytes = at + n;
        text[at + n] = '\0';
        p = value_of(text + at, "descr");
        if (!p || *p != '\'' || sscanf(p + 1, "%15[^']", descr) != 1 || cv_type_parse(descr, &h->type))
            rc = npy_wrong(path, why, "descr is no type of numbers that are known");
    }
    if (rc == 0) {
        p = value_of(text + at, "fortran_order");
        h->fortran = p && strncmp(p, "True", 4) == 0;
        rc = npy_shape(path, value_of(text + at, "shape"), h, why);
    }
    free(text);
    return rc;
}

int cv_guess_npy(const char *const *paths, size_t npaths, FILE *out, struct cv_fail *why)
{
    struct npy h = {0};
    int rc;

    if (npaths != 1)
        return cv_fail(why, -EINVAL, paths[0], NULL, CV_NO_OFFSET, ".npy describes itself, and --from=npy needs no schema: give one file to see what it says");
    rc = npy_read(paths[0], &h, why);
    if (rc)
        return rc;
    fprintf(out, "# What the header of a .npy file says: --from=npy needs no schema. With this one, the same bytes are read by --from=raw.\nfpschema: 1\norder: %s\nbyte_order: %s\nheader: %llu\nlayout: global\n"
            "datasets:\n  - name: /data   # put in its name\n    type: %s\n    dims: [", h.fortran ? "fortran" : "C", h.type.big_endian ? "big" : "little", (unsigned long long)h.header_bytes, cv_type_name(h.type));
    for (unsigned i = 0; i < h.rank; i++)
        fprintf(out, "%s%llu", i ? ", " : "", (unsigned long long)h.dims[i]);
    fprintf(out, "]\n");
    return 0;
}

/* ---------------------------------------------------------------- records of Fortran */

static uint32_t word(const unsigned char *p, bool big)
{
    return big ? (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3] : (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

/* The record at *at: its length, and *at behind it. False: there is none. */
static bool next_record(const char *path, uint64_t size, bool big, uint64_t *at, uint32_t *record_bytes)
{
    unsigned char mark[4];
    size_t len;
    uint64_t end;

    if (size - *at < 8 || cv_guess_read(path, *at, mark, 4, &len, NULL) || len != 4)
        return false;
    *record_bytes = word(mark, big);
    end = *at + 4 + *record_bytes;
    if (end > size - 4 || cv_guess_read(path, end, mark, 4, &len, NULL) || len != 4 || word(mark, big) != *record_bytes)
        return false;
    *at = end + 4;
    return true;
}

/* Records to the end of the file; 0: it has none, or more than RECORDS_MAX, or all are empty, as they are in a file of zeros. */
static unsigned count_records(const char *path, uint64_t size, bool big)
{
    uint64_t at = 0, bytes = 0;
    unsigned n = 0;
    uint32_t record_bytes;

    for (; at < size && n < RECORDS_MAX && next_record(path, size, big, &at, &record_bytes); n++)
        bytes += record_bytes;
    return at == size && bytes ? n : 0;
}

bool cv_guess_is_fortran(const char *path, uint64_t size_bytes)
{
    return count_records(path, size_bytes, false) || count_records(path, size_bytes, true);
}

static void put_record(FILE *out, unsigned n, uint32_t bytes, const struct cv_looks *looks)
{
    uint64_t elements = bytes / looks->type.size_bytes, edge = cv_cube_root(elements);

    fprintf(out, "  - name: /record%u   # of %lu bytes: put in its name\n    type: %s   # a guess\n    record: %u\n    dims: [", n, (unsigned long)bytes, cv_type_name(looks->type), n);
    if (elements == 1)
        fprintf(out, "]\n");
    else if (edge >= 4)
        fprintf(out, "%llu, %llu, %llu]   # a guess\n", (unsigned long long)edge, (unsigned long long)edge, (unsigned long long)edge);
    else
        fprintf(out, "%llu]   # a guess\n", (unsigned long long)elements);
}

int cv_guess_fortran(const char *path, uint64_t size_bytes, FILE *out, struct cv_fail *why)
{
    bool big = !count_records(path, size_bytes, false);
    unsigned char *sample = malloc(RECORD_SAMPLE);
    uint64_t at = 0, begin = 0;
    uint32_t bytes;
    size_t len;
    int rc = 0;

    if (!sample)
        return cv_fail(why, -ENOMEM, path, NULL, CV_NO_OFFSET, "no memory is left");
    fprintf(out, "# A guess from the records of Fortran in this file, for --from=fortran: compare each with the program that wrote them.\nfpschema: 1\norder: fortran\nbyte_order: %s\nlayout: global\ndatasets:\n",
            big ? "big" : "little");
    for (unsigned n = 1; rc == 0 && at < size_bytes && next_record(path, size_bytes, big, &at, &bytes); n++, begin = at) {
        struct cv_looks looks;

        rc = cv_guess_read(path, begin + 4, sample, bytes < RECORD_SAMPLE ? bytes : RECORD_SAMPLE, &len, why);
        looks = cv_looks_like(sample, rc ? 0 : len);
        if (looks.type.big_endian != big || bytes % looks.type.size_bytes)
            looks.type = bytes % 4 ? (struct cv_type){CV_UINT, 1, big} : bytes % 8 || bytes == 4 ? (struct cv_type){CV_INT, 4, big} : (struct cv_type){CV_FLOAT, 8, big};
        put_record(out, n, bytes, &looks);
    }
    free(sample);
    return rc;
}
