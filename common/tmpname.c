/*
 * Temporary names.
 *
 * Called by whoever compares names of one file over time: the manager (checkpoint sets), the mount (the version before). Any thread.
 *
 * Careful writers make a file under another name and rename it. The names below are those that editors, rsync-like tools, PyTorch (tmp-checkpoint-500),
 * Orbax (1000.orbax-checkpoint-tmp-1699) and mkstemp in the hands of applications (state.tmp.k3J9x) use. Hidden names were left out: PyTorch keeps a .metadata in
 * each checkpoint.
 */
#include <stdbool.h>
#include <string.h>

#include "fp/tmpname.h"

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static bool is_joint(char c)
{
    return c == '.' || c == '-' || c == '_';
}

static bool ends_with(const char *name, size_t len, const char *what)
{
    size_t n = strlen(what);

    return len > n && memcmp(name + len - n, what, n) == 0;
}

/* "x.tmp.k3J9x", "x-tmp-4711", "x.tmp4711": the length of x; len if it is none of these. */
static size_t before_random(const char *name, size_t len)
{
    size_t at = len;

    while (at > 0 && is_alnum(name[at - 1]))
        at--;
    if (at < len && at > 4 && is_joint(name[at - 1]) && memcmp(name + at - 4, "tmp", 3) == 0 && is_joint(name[at - 5]))
        return at - 5;
    if (at > 0 && len - at > 3 && memcmp(name + at, "tmp", 3) == 0 && name[at + 3] >= '0' && name[at + 3] <= '9' && is_joint(name[at - 1]))
        return at - 1;
    return len;
}

static size_t without_ending(const char *name, size_t len)
{
    static const char *const endings[] = {".tmp", "-tmp", "_tmp", ".part", ".partial", ".new", "~", NULL};
    size_t n = before_random(name, len);

    for (const char *const *e = endings; n == len && *e; e++)
        n -= ends_with(name, len, *e) ? strlen(*e) : 0;
    if (n < len && name[n] == '-' && ends_with(name, n, ".orbax-checkpoint"))
        n -= strlen(".orbax-checkpoint");
    return n;
}

size_t fp_tmpname_body(const char *name, size_t len, size_t *off)
{
    size_t from = len > 4 && name[0] == '.', left = len, n;

    *off = 0;
    if (len >= from + 5 && memcmp(name + from, "tmp", 3) == 0 && is_joint(name[from + 3]))
        *off = from + 4;
    while ((n = without_ending(name + *off, left - *off)) > 0 && n < left - *off)
        left = *off + n;
    return left - *off;
}
