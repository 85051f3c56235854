/*
 * A result of some inputs alone (only.h). Called by run.c before anything is written.
 *
 * Each node of a job converts its files of one set, and gives all of the set as inputs, so both lists are long: names are sorted once, and each input is looked up.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "convert/engine/only.h"

struct name {
    const char *text;
    bool found;
};

static int by_text(const void *a, const void *b)
{
    const struct name *x = a, *y = b;

    return strcmp(x->text, y->text);
}

/* Sorted, each once; how many. */
static size_t settle(struct name *names, const char *const *only, size_t nonly)
{
    size_t n = 0;

    for (size_t i = 0; i < nonly; i++)
        names[i] = (struct name){.text = only[i]};
    qsort(names, nonly, sizeof *names, by_text);
    for (size_t i = 0; i < nonly; i++)
        if (i == 0 || strcmp(names[i].text, names[n - 1].text) != 0)
            names[n++] = names[i];
    return n;
}

/* A part that is empty for a mistyped name would be found out when somebody reads the whole. */
static int look_for_strangers(const struct name *names, size_t n, struct cv_fail *why)
{
    for (size_t i = 0; i < n; i++)
        if (!names[i].found)
            return cv_fail(why, -EINVAL, names[i].text, NULL, CV_NO_OFFSET, "only its blocks are asked for, and it is none of the inputs, as they are written there");
    return 0;
}

int cv_only_choose(const struct cv_source *s, const char *const *only, size_t nonly, bool **asked, struct cv_fail *why)
{
    struct name *names = calloc(nonly + 1, sizeof *names);
    size_t n;
    int rc;

    *asked = calloc(s->ninputs + 1, sizeof **asked);
    if (!names || !*asked) {
        free(names);
        return cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory");
    }
    n = settle(names, only, nonly);
    for (size_t i = 0; i < s->ninputs; i++) {
        struct name key = {.text = s->inputs[i].path}, *found = bsearch(&key, names, n, sizeof *names, by_text);

        (*asked)[i] = found != NULL;
        if (found)
            found->found = true;
    }
    rc = look_for_strangers(names, n, why);
    free(names);
    return rc;
}

/* ---------------------------------------------------------------- boxes */

/* A box that lies right behind the one before, and is as wide, makes it longer. Each is start[] and count[]. */
static bool lengthen(int64_t *before, const int64_t *box, unsigned rank)
{
    unsigned by = rank;

    for (unsigned i = 0; i < rank; i++) {
        if (before[i] == box[i] && before[rank + i] == box[rank + i])
            continue;
        if (by < rank)
            return false; /* they differ in two dimensions */
        by = i;
    }
    if (by == rank || before[by] + before[rank + by] != box[by])
        return false;
    before[rank + by] += box[rank + by];
    return true;
}

/* Boxes as join has to map them: HDF5 keeps 25 KB for each, and ranks of one node mostly lie side by side, rows of them beside rows. boxes: n numbers, of which so many are left. */
static size_t unite(int64_t *boxes, size_t n, unsigned rank)
{
    size_t kept = 0, each = 2 * rank;

    for (size_t at = 0; rank && at < n; at += each) {
        memmove(boxes + kept, boxes + at, each * sizeof *boxes);
        kept += each;
        while (kept > each && lengthen(boxes + kept - 2 * each, boxes + kept - each, rank))
            kept -= each;
    }
    return kept;
}

int cv_only_say_boxes(struct cv_dataset *d, const bool *wanted)
{
    int64_t *boxes = calloc(2 * d->nblocks * CV_RANK_MAX + 1, sizeof *boxes), *strides = calloc(d->nblocks * CV_RANK_MAX + 1, sizeof *strides);
    size_t n = 0, m = 0;
    bool strided = false;
    int rc = boxes && strides ? 0 : -ENOMEM;

    for (size_t k = 0; rc == 0 && k < d->nblocks; k++) {
        if (!wanted[k])
            continue;
        for (unsigned i = 0; i < d->rank; i++)
            boxes[n++] = (int64_t)d->blocks[k].start[i];
        for (unsigned i = 0; i < d->rank; i++)
            boxes[n++] = (int64_t)d->blocks[k].count[i];
        for (unsigned i = 0; i < d->rank; i++) {
            strides[m++] = (int64_t)d->blocks[k].stride[i];
            strided |= d->blocks[k].stride[i] != 1;
        }
    }
    if (rc == 0 && !strided)
        n = unite(boxes, n, d->rank);
    rc = rc ? rc : cv_attrs_ints(&d->attrs, "fp_boxes", boxes, n);
    if (rc == 0 && (d->gaps == CV_GAPS_FILL || d->overlap == CV_OVERLAP_LAST)) /* join can't count elements then */
        rc = cv_attrs_ints(&d->attrs, "fp_loose", &(int64_t){1}, 1);
    rc = rc || !strided ? rc : cv_attrs_ints(&d->attrs, "fp_strides", strides, m);
    free(boxes);
    free(strides);
    return rc;
}
