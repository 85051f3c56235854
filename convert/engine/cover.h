/* Do the blocks of a dataset make up its array? Pure. */
#ifndef CV_COVER_H
#define CV_COVER_H

#include "convert/fail.h"
#include "convert/source/source.h"

/*
 * Blocks beyond the array; overlaps, where the dataset refuses them (which two, of which inputs); elements that no block has, where it refuses them (which is the first). Exact, with strides.
 * 0, -EINVAL, -ENOMEM. *whole: every element is there.
 */
int cv_cover_check(const struct cv_source *s, const struct cv_dataset *d, bool *whole, struct cv_fail *why);

#endif
