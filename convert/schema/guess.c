/*
 * A schema that may fit a sample (schema.h): `fp-convert schema guess FILE…`. Called by command.c. One thread; reads samples of the files.
 *
 * What a guess is, the text says beside it. Nothing is printed that cv_schema_parse does not take, and that does not fit the files: the text is made in memory, read, and tried with them first. Rejected: to ask
 * libraries what a file is. Formats that describe themselves need no schema, and are known by their first bytes.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convert/schema/guess.h"
#include "convert/schema/parts.h"
#include "convert/schema/samples.h"

#define SAMPLE_BYTES (256u << 10)
#define LIST_MAX     4096u /* blocks that are written one by one */

struct guess {
    const char *const *paths;
    struct cv_schema_file *files;
    size_t n;
    unsigned char *sample;
    struct cv_fail *why;
    FILE *out;
    /* ranks */
    char template[2 * CV_NAME_MAX];
    uint64_t first;
    /* each file's shape */
    struct cv_looks looks;
    uint64_t header, elements, fields, edge;
    unsigned rank;
};

int cv_guess_read(const char *path, uint64_t off, void *buf, size_t cap, size_t *len, struct cv_fail *why)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), rc = 0;

    if (fd < 0)
        return cv_fail(why, -errno, path, NULL, CV_NO_OFFSET, "can't be opened: %s", strerror(errno));
    for (*len = 0; *len < cap;) {
        ssize_t n = pread(fd, (char *)buf + *len, cap - *len, (off_t)(off + *len));

        if (n == 0)
            break;
        if (n < 0 && errno != EINTR) {
            rc = cv_fail(why, -errno, path, NULL, off + *len, "can't be read: %s", strerror(errno));
            break;
        }
        *len += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    return rc;
}

/* BP4 and BP5 are directories with an index of this name. */
static bool is_bp(const char *path)
{
    char index[PATH_MAX];

    return (size_t)snprintf(index, sizeof index, "%s/md.idx", path) < sizeof index && access(index, F_OK) == 0;
}

int cv_guess_stat(struct cv_schema_file *f, const char *path, struct cv_fail *why)
{
    struct stat st;

    if (stat(path, &st))
        return cv_fail(why, -errno, path, NULL, CV_NO_OFFSET, "%s", strerror(errno));
    if (S_ISDIR(st.st_mode) && is_bp(path))
        return cv_fail(why, -EOPNOTSUPP, path, NULL, CV_NO_OFFSET, "is a file of ADIOS2 (BP): it describes itself, and --from=adios needs no schema");
    if (!S_ISREG(st.st_mode))
        return cv_fail(why, -EINVAL, path, NULL, CV_NO_OFFSET, "is no regular file");
    *f = (struct cv_schema_file){.path = path, .size_bytes = (uint64_t)st.st_size};
    return 0;
}

/* ---------------------------------------------------------------- formats that describe themselves */

static const struct {
    const char *magic;
    size_t len;
    const char *from, *name;
} known[] = {
    {"\x89HDF\r\n\x1a\n", 8, "hdf5", "an HDF5 or netCDF-4 file"},
    {"PK\x03\x04", 4, "npz", "an archive of NumPy (.npz)"},
    {"FPDUMP1\n", 8, "group", "a process-group stream (fpdump)"},
    {"CDF\x01", 4, "hdf5", "a netCDF file"},
    {"CDF\x02", 4, "hdf5", "a netCDF file"},
    {"CDF\x05", 4, "hdf5", "a netCDF file"},
};

static int describes_itself(struct guess *g, const unsigned char *head, size_t len)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (len >= known[i].len && memcmp(head, known[i].magic, known[i].len) == 0)
            return cv_fail(g->why, -EOPNOTSUPP, g->paths[0], NULL, CV_NO_OFFSET, known[i].magic[0] == 'C' ? "is %s: it describes itself, and is what conversions make" :
                           "is %s: it describes itself, and --from=%s needs no schema", known[i].name, known[i].from);
    return 0;
}

/* ---------------------------------------------------------------- ranks from names */

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* Numbers 0 … n - 1, or 1 … n. */
static bool is_sequence(uint64_t *v, size_t n, uint64_t *first)
{
    qsort(v, n, sizeof *v, by_value);
    for (size_t i = 0; i < n; i++)
        if (v[i] != v[0] + i)
            return false;
    *first = v[0];
    return v[0] <= 1;
}

/* The name with {rank} for its run-th run of digits from the end, and * for the others. */
static bool template_of(const char *path, unsigned run, char *out, size_t cap)
{
    const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    unsigned runs = 0, at = 0;
    size_t len = 0;

    for (const char *p = name; *p; p += strspn(p, "0123456789")) {
        p += strcspn(p, "0123456789");
        runs += *p != '\0';
    }
    if (run >= runs)
        return false;
    for (const char *p = name; *p;) {
        size_t digits = strspn(p, "0123456789"), other = strcspn(p, "0123456789");

        if (digits)
            len += (size_t)snprintf(out + len, cap - len, "%s", ++at == runs - run ? "{rank}" : "*");
        else
            len += (size_t)snprintf(out + len, cap - len, "%.*s", (int)other, p);
        if (len >= cap)
            return false;
        p += digits ? digits : other;
    }
    return true;
}

static int guess_ranks(struct guess *g)
{
    uint64_t *v = calloc(g->n, sizeof *v);
    bool found = g->n == 1;

    if (!v)
        return cv_fail(g->why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "no memory is left");
    for (unsigned run = 0; !found && template_of(g->paths[0], run, g->template, sizeof g->template); run++) {
        bool all = true;

        for (size_t i = 0; i < g->n && all; i++)
            all = cv_rank_of_name(g->template, g->paths[i], &v[i]);
        found = all && is_sequence(v, g->n, &g->first);
        if (found && run == 0)
            g->template[0] = '\0'; /* the last number is taken without being asked */
    }
    free(v);
    if (found)
        return 0;
    return cv_fail(g->why, -EINVAL, g->paths[0], NULL, CV_NO_OFFSET, "the names of these %zu files do not count ranks from 0 or 1: give the files of one set, a file for each rank", g->n);
}

/* ---------------------------------------------------------------- shapes */

static bool same_sizes(const struct guess *g)
{
    for (size_t i = 1; i < g->n; i++)
        if (g->files[i].size_bytes != g->files[0].size_bytes)
            return false;
    return true;
}

/* Cubes first, with usual headers, of one field or a few; squares; else a line. */
static void guess_shape(struct guess *g)
{
    static const uint64_t headers[] = {0, 512, 1024, 4096, 256, 128, 64, 32, 16, 8, 4};
    uint64_t size = g->files[0].size_bytes, each = g->looks.type.size_bytes;

    g->fields = 1;
    for (size_t h = 0; h < sizeof headers / sizeof *headers && same_sizes(g); h++)
        for (uint64_t k = 1; k <= 8; k++) {
            uint64_t bytes = size - headers[h];

            if (headers[h] >= size || bytes % (each * k))
                continue;
            g->elements = bytes / each / k;
            g->edge = cv_cube_root(g->elements);
            g->rank = 3;
            if (g->edge < 4 && k == 1 && h == 0 && (g->edge = cv_square_root(g->elements)) >= 4)
                g->rank = 2;
            g->header = headers[h];
            g->fields = k;
            if (g->edge >= 4 && g->rank == 3)
                return;
            if (g->rank == 2 && g->edge >= 4)
                return;
        }
    g->header = size % each;
    g->elements = (size - g->header) / each;
    g->fields = 1;
    g->rank = 1;
    g->edge = g->elements;
}

static int look(struct guess *g)
{
    uint64_t size = g->files[0].size_bytes, middle = size / 2 / 4096 * 4096;
    size_t len;
    int rc;

    /* The middle: what stands at the beginning may be a header. */
    if (size <= SAMPLE_BYTES)
        middle = 0;
    rc = cv_guess_read(g->paths[0], middle, g->sample, SAMPLE_BYTES, &len, g->why);
    if (rc == 0)
        g->looks = cv_looks_like(g->sample, len);
    return rc;
}

/* ---------------------------------------------------------------- the text */

static void put_ranks(const struct guess *g, const uint64_t *grid, unsigned n)
{
    FILE *o = g->out;

    if (g->n == 1)
        return;
    fprintf(o, "ranks: {");
    if (grid) {
        fprintf(o, "grid: [");
        for (unsigned i = 0; i < n; i++)
            fprintf(o, "%s%llu", i ? ", " : "", (unsigned long long)grid[i]);
        fprintf(o, "]");
    } else {
        fprintf(o, "count: %zu", g->n);
    }
    fprintf(o, "%s}%s\n", g->first ? ", first: 1" : "", grid ? "   # a guess: the number of files; put in the grid of the program" : "   # the number of files");
    if (!g->template[0])
        return;
    fprintf(o, "rank: '");
    for (const char *p = g->template; *p; p++)
        fprintf(o, *p == '\'' ? "''" : "%c", *p);
    fprintf(o, "'\n");
}

static void put_type(const struct guess *g)
{
    fprintf(g->out, "    type: %s   # ", cv_type_name(g->looks.type));
    if (g->looks.all_zero)
        fprintf(g->out, "a guess: the bytes looked at are all zeros, which may be anything\n");
    else if (g->looks.percent > 0)
        fprintf(g->out, "a guess: %.0f %% of the elements looked at are plausible so\n", g->looks.percent);
    else
        fprintf(g->out, "no type is plausible: bytes\n");
}

static void put_fields(const struct guess *g, const char *dims)
{
    fprintf(g->out, "datasets:\n");
    for (uint64_t k = 0; k < g->fields; k++) {
        if (g->fields == 1)
            fprintf(g->out, "  - name: /data   # put in its name\n");
        else
            fprintf(g->out, "  - name: /data%llu   # put in its name\n", (unsigned long long)k + 1);
        put_type(g);
        fprintf(g->out, "    dims: %s\n", dims);
    }
}

static void put_even(const struct guess *g)
{
    static const char *const names[] = {"z", "y", "x"}, *const lists[] = {"[x]", "[y, x]", "[z, y, x]"};
    uint64_t grid[3];

    cv_even_grid(g->n, g->rank, grid);
    put_ranks(g, grid, g->rank);
    fprintf(g->out, "dims: {");
    for (unsigned i = 0; i < g->rank; i++)
        fprintf(g->out, "%s%s: %llu", i ? ", " : "", names[3 - g->rank + i], (unsigned long long)(g->edge * grid[i]));
    fprintf(g->out, "}   # a guess: %llu elements in a file%s\n", (unsigned long long)g->elements, g->fields > 1 ? ", for each of the fields" : "");
    put_fields(g, lists[g->rank - 1]);
}

/* Files of several sizes: a line, each rank's part behind the one before. Ranks are in the order of their numbers. */
static int put_uneven(const struct guess *g)
{
    uint64_t each = g->looks.type.size_bytes, total = 0, at = 0;
    uint64_t *count = calloc(g->n, sizeof *count);

    if (!count || g->n > LIST_MAX) {
        free(count);
        return cv_fail(g->why, -E2BIG, g->paths[0], NULL, CV_NO_OFFSET, "more than %u files of several sizes: no schema can be guessed", LIST_MAX);
    }
    for (size_t i = 0; i < g->n; i++) {
        uint64_t r = i;

        cv_rank_of_name(g->template[0] ? g->template : NULL, g->paths[i], &r);
        if (g->files[i].size_bytes < g->header || (g->files[i].size_bytes - g->header) % each) {
            free(count);
            return cv_fail(g->why, -EINVAL, g->paths[i], NULL, CV_NO_OFFSET, "its size is no whole number of elements of %s behind a header of %llu bytes, as that of %.200s is", cv_type_name(g->looks.type),
                           (unsigned long long)g->header, g->paths[0]);
        }
        count[r - g->first] = (g->files[i].size_bytes - g->header) / each;
        total += count[r - g->first];
    }
    put_ranks(g, NULL, 0);
    fprintf(g->out, "dims: {x: %llu}   # a guess: the files have several sizes, and are put one behind another\n", (unsigned long long)total);
    put_fields(g, "[x]");
    fprintf(g->out, "    block:\n");
    for (size_t r = 0; r < g->n; at += count[r++])
        fprintf(g->out, "      - {start: [%llu], count: [%llu]}\n", (unsigned long long)at, (unsigned long long)count[r]);
    free(count);
    return 0;
}

static int put_raw(struct guess *g)
{
    int rc = guess_ranks(g);

    if (rc == 0)
        rc = look(g);
    if (rc)
        return rc;
    guess_shape(g);
    fprintf(g->out, "# A guess from sizes, names and bytes of %zu file%s: compare each line with the program that wrote them.\nfpschema: 1\norder: C   # a guess: say fortran if the first dimension varies fastest\n", g->n,
            g->n == 1 ? "" : "s");
    fprintf(g->out, "byte_order: %s\n", g->looks.type.big_endian ? "big" : "little");
    if (g->header)
        fprintf(g->out, "header: %llu   # a guess: what is left of the size\n", (unsigned long long)g->header);
    if (!same_sizes(g))
        return put_uneven(g);
    put_even(g);
    return 0;
}

/* ---------------------------------------------------------------- the whole */

/* The text is one that this program takes, with these files. */
static int try_out(const struct guess *g, const char *text, size_t len, bool sizes_matter)
{
    struct cv_schema *s = NULL;
    struct cv_model *m = NULL;
    int rc = cv_schema_parse("the guess", text, len, &s, g->why);

    if (rc == 0)
        rc = cv_schema_model(s, g->files, g->n, sizes_matter, &m, g->why);
    cv_model_free(m);
    cv_schema_free(s);
    return rc;
}

static int write_guess(struct guess *g, const unsigned char *head, size_t len, bool *sizes_matter)
{
    int rc = describes_itself(g, head, len);

    *sizes_matter = true;
    if (rc)
        return rc;
    if (cv_guess_is_npy(head, len))
        return cv_guess_npy(g->paths, g->n, g->out, g->why);
    if (g->n == 1 && cv_guess_is_fortran(g->paths[0], g->files[0].size_bytes)) {
        *sizes_matter = false;
        return cv_guess_fortran(g->paths[0], g->files[0].size_bytes, g->out, g->why);
    }
    return put_raw(g);
}

int cv_schema_guess(const char *const *paths, size_t npaths, FILE *out, struct cv_fail *why)
{
    struct guess g = {.paths = paths, .n = npaths, .why = why};
    unsigned char head[64];
    char *text = NULL;
    size_t len = 0, text_len = 0;
    bool sizes_matter = true;
    int rc = 0;

    if (!npaths || npaths > CV_SCHEMA_RANKS_MAX)
        return cv_fail(why, -EINVAL, NULL, NULL, CV_NO_OFFSET, "from 1 to %u files can be looked at", CV_SCHEMA_RANKS_MAX);
    g.files = calloc(npaths, sizeof *g.files);
    g.sample = malloc(SAMPLE_BYTES);
    g.out = open_memstream(&text, &text_len);
    if (!g.files || !g.sample || !g.out)
        rc = cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "no memory is left");
    for (size_t i = 0; i < npaths && rc == 0; i++)
        rc = cv_guess_stat(&g.files[i], paths[i], why);
    if (rc == 0)
        rc = cv_guess_read(paths[0], 0, head, sizeof head, &len, why);
    if (rc == 0 && !len)
        rc = cv_fail(why, -ENODATA, paths[0], NULL, CV_NO_OFFSET, "is empty: there is nothing to guess from");
    if (rc == 0)
        rc = write_guess(&g, head, len, &sizes_matter);
    if (g.out && fclose(g.out) && rc == 0)
        rc = cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "no memory is left");
    if (rc == 0)
        rc = try_out(&g, text, text_len, sizes_matter);
    if (rc == 0 && (fwrite(text, 1, text_len, out) != text_len || fflush(out)))
        rc = cv_fail(why, -EIO, NULL, NULL, CV_NO_OFFSET, "the guess can't be written");
    free(text);
    free(g.files);
    free(g.sample);
    return rc;
}
