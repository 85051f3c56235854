/* The name a user probably meant.
 *
 * Called for unknown options, keys, sections, choices. Distance is Damerau-Levenshtein in its restricted
 * form (insert, delete, replace, swap neighbours): typing mistakes are one or two of these. A name is
 * suggested when at most a third of it had to change, or when what was typed is its beginning; a wild
 * guess would be worse than none. Names are short (under 48 bytes), so the quadratic table lies on the
 * stack. */
#include "fp/opt.h"

#include <string.h>

#define NAME_LIMIT 48

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    unsigned m = a < b ? a : b;
    return m < c ? m : c;
}

static unsigned distance(const char *a, size_t la, const char *b, size_t lb)
{
    unsigned d[NAME_LIMIT + 1][NAME_LIMIT + 1];
    for (unsigned i = 0; i <= la; i++)
        d[i][0] = i;
    for (unsigned j = 0; j <= lb; j++)
        d[0][j] = j;
    for (size_t i = 1; i <= la; i++) {
        for (size_t j = 1; j <= lb; j++) {
            unsigned change = a[i - 1] != b[j - 1];
            d[i][j] = min3(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change);
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && d[i - 2][j - 2] + 1 < d[i][j])
                d[i][j] = d[i - 2][j - 2] + 1;
        }
    }
    return d[la][lb];
}

const char *fp_nearest_name(const char *name, const char *const *candidates)
{
    const char *best = NULL;
    unsigned best_distance = NAME_LIMIT;
    size_t len = strlen(name);
    if (len < 2 || len > NAME_LIMIT)
        return NULL;
    for (const char *const *c = candidates; *c; c++) {
        size_t clen = strlen(*c);
        if (clen > NAME_LIMIT)
            continue;
        unsigned d = distance(name, len, *c, clen);
        unsigned allowed = (unsigned)(len > clen ? len : clen) / 3;
        if (allowed == 0)
            allowed = 1;
        if (clen > len && len >= 3 && strncmp(*c, name, len) == 0)
            d = 1;
        if (d <= allowed && d < best_distance) {
            best = *c;
            best_distance = d;
        }
    }
    return best;
}
