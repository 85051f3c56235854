/*
 * Names (names.h). Called by watch.c. Pure.
 *
 * A result lies beside what it was made of, never in it: a file that appears in a directory that is a checkpoint set would open that set again. Its name keeps the step's digits, so that people and
 * the store see which step it is.
 */
#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "convert/watch/names.h"

bool cw_name_matches(const char *pattern, const char *path)
{
    return fnmatch(pattern, path, FNM_PATHNAME | FNM_PERIOD) == 0;
}

const char *cw_name_base(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* What the names of the files share, without separators at its end; digits that are cut in the midst of a number are left out. */
static size_t shared(const struct cw_group *g, const char *first)
{
    size_t len = strlen(first), full;

    for (size_t i = 1; i < g->nfiles; i++) {
        const char *name = cw_name_base(g->files[i].path);
        size_t same = 0;

        while (same < len && name[same] == first[same])
            same++;
        len = same;
    }
    full = len;
    while (len && isdigit((unsigned char)first[len - 1]) && isdigit((unsigned char)first[full]))
        len--; /* rank_10, rank_11: not rank_1 */
    while (len && strchr("._-", first[len - 1]))
        len--;
    return len ? len : strlen(first);
}

/* Of one file: without its last ending, if that is a word of few letters and not a number. */
static size_t without_ending(const char *name)
{
    const char *dot = strrchr(name, '.');

    if (!dot || dot == name || strlen(dot) > 8 || !isalpha((unsigned char)dot[1]))
        return strlen(name);
    return (size_t)(dot - name);
}

bool cw_name_result(const struct cw_group *g, const char *set_dir, const char *into, const char *ending, char out[PATH_MAX])
{
    const char *from = set_dir[0] ? set_dir : g->files[0].path, *base = cw_name_base(from);
    size_t dir = (size_t)(base - from), len = set_dir[0] ? strlen(base) : g->nfiles == 1 ? without_ending(base) : shared(g, base);
    int n = into && into[0] ? snprintf(out, PATH_MAX, "%s/%.*s%s", into, (int)len, base, ending) : snprintf(out, PATH_MAX, "%.*s%.*s%s", (int)dir, from, (int)len, base, ending);

    return n < PATH_MAX && strlen(cw_name_base(out)) + CW_NODE_MAX / 4 < NAME_MAX;
}

bool cw_name_xdmf(const char *result, const char *ending, char out[PATH_MAX])
{
    return snprintf(out, PATH_MAX, "%.*s.xmf", (int)(strlen(result) - strlen(ending)), result) < PATH_MAX; /* all results have the ending */
}

bool cw_name_part(const char *result, const char *node, char out[PATH_MAX])
{
    char name[CW_NODE_MAX + 1];

    snprintf(name, sizeof name, "%s", node);
    for (char *at = name; *at; at++)
        if (*at == '/')
            *at = '_';
    return snprintf(out, PATH_MAX, "%s.%s%s", result, name, CW_PART_END) < PATH_MAX;
}
