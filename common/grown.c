/*
 * Arrays that get longer by one item at a time.
 *
 * Called by all programs where they collect what they can't count before. Any thread.
 *
 * A macro that also assigns and counts would save callers two lines, and hide from them who has the array when memory runs out.
 */
#include "fp/grown.h"

#include <stdlib.h>

#define FIRST_ITEMS 16u

void *fp_grown(void *list, size_t count, size_t *cap, size_t item_bytes)
{
    size_t n = *cap ? *cap * 2 : FIRST_ITEMS;
    void *more;

    if (count < *cap)
        return list;
    more = reallocarray(list, n, item_bytes);
    if (more)
        *cap = n;
    return more;
}
