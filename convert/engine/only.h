/* A result of some inputs alone, which is a part (run --only). Pure. */
#ifndef CV_ONLY_H
#define CV_ONLY_H

#include "convert/source/source.h"

/* asked[i]: input i is one of these names, as it is written there. Freed by the caller. 0; -EINVAL: a name is no input's; -ENOMEM. */
int cv_only_choose(const struct cv_source *s, const char *const *only, size_t nonly, bool **asked, struct cv_fail *why);
/* The boxes that the result will have, in attributes of the dataset: who puts parts together needs them. wanted: of each block. 0 or -ENOMEM. */
int cv_only_say_boxes(struct cv_dataset *d, const bool *wanted);

#endif
