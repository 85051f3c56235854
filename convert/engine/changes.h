/* Were inputs changed while they were read? What comes out then would be of both. */
#ifndef CV_CHANGES_H
#define CV_CHANGES_H

#include "convert/source/source.h"

struct cv_changes {
    const struct cv_source_ops *ops;
    const char *const *paths;   /* borrowed */
    size_t npaths;
    uint64_t *sums;             /* of each path, as it was */
    size_t block_bytes;         /* what the file system of the first one likes; 0: not known */
};

/* Before anything is opened: who opens first may have one version of some files and another of others, all of which look the same later. 0, -ENOENT, … */
int cv_changes_begin(struct cv_changes *c, const struct cv_source_ops *ops, const char *const *paths, size_t npaths, struct cv_fail *why);
/* 0; -EAGAIN: one of them is another one now, or gone. */
int cv_changes_look(const struct cv_changes *c, struct cv_fail *why);
void cv_changes_fini(struct cv_changes *c);

#endif
