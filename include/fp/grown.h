/* Arrays that get longer by one item at a time. Any thread; the array is its owner's. */
#ifndef FP_GROWN_H
#define FP_GROWN_H

#include <stddef.h>

/*
 * Room for one more behind count items of item_bytes (not 0) each; *cap is how many there is room for, at least count. list is of malloc, or NULL with *cap 0. Returned
 * is list, if it has room, or what has taken its place, twice as long and with *cap set: the caller's to free; new items are not set. NULL: out of memory, or more
 * bytes than a size_t counts; list and *cap are as they were, and list is still the caller's.
 */
void *fp_grown(void *list, size_t count, size_t *cap, size_t item_bytes);

#endif
