/*
 * Ranks: where each lies in a grid, and which file is whose by its name (parts.h). Called by keys.c, datakeys.c, place.c and guess.c. One thread; no I/O.
 *
 * A grid is split as MPI programs do: n cells on p ranks give each n / p, and one more to the first n % p; or rank i begins at i * n / p. Names are matched by runs of digits: {rank} is a whole run, never a part of one, so that
 * rank_12 is not rank 2 of "rank_1"; * stands for anything but a slash.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/schema/parts.h"

int cv_take_grid(struct cv_reading *r, const struct cv_node *list, struct cv_grid *g, uint64_t *ranks)
{
    int rc;

    if (list->kind != CV_NODE_LIST || !list->count || list->count > CV_SCHEMA_DIMS_MAX)
        return cv_mistake(r, list, "grid is a list of 1 to %u numbers: the ranks in each dimension", CV_SCHEMA_DIMS_MAX);
    rc = cv_take_numbers(r, list, "grid", (unsigned)list->count, 1, CV_SCHEMA_RANKS_MAX, g->dims);
    if (rc)
        return rc;
    *ranks = 1;
    for (unsigned i = 0; i < list->count; i++) {
        *ranks *= g->dims[i];
        if (*ranks > CV_SCHEMA_RANKS_MAX)
            return cv_mistake(r, list, "the grid has more than %u ranks", CV_SCHEMA_RANKS_MAX);
    }
    g->rank = (unsigned)list->count;
    return 0;
}

static void split(uint64_t n, uint64_t parts, uint64_t i, bool spread, uint64_t *start, uint64_t *count)
{
    uint64_t each = n / parts, more = n % parts;

    if (spread) { /* i * n / parts, without an overflow */
        *start = i * each + i * more / parts;
        *count = (i + 1) * each + (i + 1) * more / parts - *start;
        return;
    }
    *start = i * each + (i < more ? i : more);
    *count = each + (i < more);
}

void cv_grid_block(const struct cv_grid *g, bool fortran, const uint64_t *dims, uint64_t r, uint64_t *start, uint64_t *count)
{
    for (unsigned k = 0; k < g->rank; k++) {
        unsigned i = fortran ? k : g->rank - 1 - k;

        split(dims[i], g->dims[i], r % g->dims[i], g->spread, &start[i], &count[i]);
        r /= g->dims[i];
    }
}

uint64_t cv_schema_ranks(const struct cv_schema *s)
{
    return s->layout == CV_LAYOUT_GLOBAL ? 1 : s->ranks;
}

/* ---------------------------------------------------------------- names */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

#define RANK_WORD "{rank}"

const char *cv_rank_template_check(const char *template)
{
    const char *at = strstr(template, RANK_WORD), *behind;

    if (!at)
        return "it has no {rank}";
    behind = at + strlen(RANK_WORD);
    if (strstr(behind, RANK_WORD))
        return "{rank} is in it twice";
    if ((at > template && is_digit(at[-1])) || is_digit(*behind))
        return "a digit stands beside {rank}, which is all digits at its place";
    if (*behind == '*' && behind[1] == '*')
        return "** is no more than *";
    return "";
}

/* Does text of n bytes match a pattern of m bytes, in which * is anything but a slash? Goes back to the last * alone, which is enough when there is no other sign. */
static bool matches(const char *pattern, size_t m, const char *text, size_t n)
{
    size_t p = 0, t = 0, star = SIZE_MAX, from = 0;

    while (t < n) {
        if (p < m && pattern[p] == '*') {
            star = p++;
            from = t;
        } else if (p < m && pattern[p] == text[t]) {
            p++, t++;
        } else if (star != SIZE_MAX && text[from] != '/') {
            p = star + 1;
            t = ++from;
        } else {
            return false;
        }
    }
    while (p < m && pattern[p] == '*')
        p++;
    return p == m;
}

/* The part of path that a template speaks of: as many names of directories as it has, and the file's. */
static const char *tail_of(const char *path, const char *template)
{
    size_t slashes = 0;
    const char *p = path + strlen(path);

    for (const char *t = template; t && *t; t++)
        slashes += *t == '/';
    for (; p > path; p--)
        if (p[-1] == '/' && slashes-- == 0)
            return p;
    return path;
}

static bool number_of(const char *digits, size_t n, uint64_t *out)
{
    uint64_t v = 0;

    for (size_t i = 0; i < n; i++)
        if (__builtin_mul_overflow(v, 10u, &v) || __builtin_add_overflow(v, (uint64_t)(digits[i] - '0'), &v))
            return false;
    *out = v;
    return true;
}

/* Behind it is a format's name, the digit of which is no rank. */
static const char *before_ending(const char *name, const char *end)
{
    static const char *const endings[] = {".h5", ".hdf5", ".he5", ".h4", ".nc4", ".bp3", ".bp4", ".bp5"};

    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        size_t n = strlen(endings[i]);

        if ((size_t)(end - name) > n && strcmp(end - n, endings[i]) == 0)
            return end - n;
    }
    return end;
}

bool cv_rank_of_name(const char *template, const char *path, uint64_t *number)
{
    const char *name = tail_of(path, template), *end = name + strlen(name);
    const char *at = template ? strstr(template, RANK_WORD) : NULL, *p = at ? end : before_ending(name, end);

    while (p > name) {
        const char *stop;

        while (p > name && !is_digit(p[-1]))
            p--;
        stop = p;
        while (p > name && is_digit(p[-1]))
            p--;
        if (p == stop)
            return false;
        if (!at || (matches(template, (size_t)(at - template), name, (size_t)(p - name)) && matches(at + strlen(RANK_WORD), strlen(at) - strlen(RANK_WORD), stop, (size_t)(end - stop))))
            return number_of(p, (size_t)(stop - p), number);
    }
    return false;
}

/* May a file of this name be made below a directory? No component of it is empty or leads out. */
static bool stays_below(const char *name)
{
    for (const char *at = name; *at; at++) {
        size_t n = strcspn(at, "/");

        if (n == 0 || (n == 1 && *at == '.') || (n == 2 && at[0] == '.' && at[1] == '.'))
            return false;
        at += n;
        if (!*at)
            return true;
    }
    return false;
}

int cv_schema_file_name(const struct cv_schema *s, uint64_t file, char *out, size_t size, struct cv_fail *why)
{
    const char *template = s->rank_name ? s->rank_name : "rank_{rank}.raw", *at = strstr(template, RANK_WORD);
    int n;

    if (s->layout != CV_LAYOUT_FILES)
        template = s->rank_name && !at ? s->rank_name : "data.raw";
    if (strchr(template, '*'))
        return cv_fail(why, -EINVAL, s->name, NULL, CV_NO_OFFSET, "rank: \"%.200s\" is no name that a file can be given: say one without *", template);
    if (s->layout != CV_LAYOUT_FILES || !at)
        n = snprintf(out, size, "%s", template);
    else
        n = snprintf(out, size, "%.*s%llu%s", (int)(at - template), template, (unsigned long long)(file + s->first_rank), at + strlen(RANK_WORD));
    if (n < 0 || (size_t)n >= size || !stays_below(out))
        return cv_fail(why, -EINVAL, s->name, NULL, CV_NO_OFFSET, "rank: \"%.200s\" is no name of a file below the directory of the result", template);
    return 0;
}

#define NO_FILE UINT32_MAX

/* A rank that no file has, for a message. */
static int missing_rank(const struct cv_schema *s, uint64_t nranks, const uint32_t *file_of, struct cv_fail *why)
{
    uint64_t lost = 0, first = 0;

    for (uint64_t r = nranks; r-- > 0;)
        if (file_of[r] == NO_FILE) {
            lost++;
            first = r;
        }
    if (!lost)
        return 0;
    return cv_fail(why, -ENOENT, s->name, NULL, CV_NO_OFFSET, "%llu of %llu ranks have no file: rank %llu%s", (unsigned long long)lost, (unsigned long long)nranks,
                   (unsigned long long)(first + s->first_rank), lost > 1 ? " is the first of them" : "");
}

int cv_rank_files(const struct cv_schema *s, const struct cv_schema_file *files, size_t nfiles, uint64_t nranks, uint32_t *file_of, struct cv_fail *why)
{
    for (uint64_t r = 0; r < nranks; r++)
        file_of[r] = NO_FILE;
    if (nranks == 1 && nfiles == 1 && !s->rank_name) {
        file_of[0] = 0;
        return 0;
    }
    for (size_t i = 0; i < nfiles; i++) {
        const char *path = files[i].path;
        uint64_t r;

        if (!cv_rank_of_name(s->rank_name, path, &r))
            return cv_fail(why, -EINVAL, path, NULL, CV_NO_OFFSET, s->rank_name ? "the name does not say the rank: rank: is \"%.200s\"" : "the name has no number, which would be the rank's",
                           s->rank_name);
        if (r < s->first_rank || r - s->first_rank >= nranks)
            return cv_fail(why, -EINVAL, path, NULL, CV_NO_OFFSET, "rank %llu: there are %llu ranks, from %llu on%s", (unsigned long long)r, (unsigned long long)nranks,
                           (unsigned long long)s->first_rank, r == nranks && !s->first_rank ? "; if names count from 1, say ranks: {first: 1}" : "; if the rank is not the last number of the name, say rank:");
        r -= s->first_rank;
        if (file_of[r] != NO_FILE)
            return cv_fail(why, -EEXIST, path, NULL, CV_NO_OFFSET, "a second file of rank %llu: %.200s is one, too", (unsigned long long)(r + s->first_rank), files[file_of[r]].path);
        file_of[r] = (uint32_t)i;
    }
    return missing_rank(s, nranks, file_of, why);
}
