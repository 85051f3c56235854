/* Process-group streams (docs/PROTOCOL.md): their records, found by the index or, where a stream was cut off before it, by going from header to header. */
#ifndef CV_SOURCE_GROUP_H
#define CV_SOURCE_GROUP_H

#include "convert/source/source.h"

#define CV_GROUP_META_MAX 65536u

enum cv_group_kind { CV_GROUP_BEGIN = 1, CV_GROUP_VARIABLE, CV_GROUP_ATTRIBUTE, CV_GROUP_END, CV_GROUP_INDEX };

struct cv_group_record {
    enum cv_group_kind kind;
    bool big_endian;             /* payloads of its stream */
    bool has_sum;
    uint32_t rank;
    uint64_t step;
    uint64_t at;                 /* of its header in the file */
    uint64_t payload_at, payload_bytes, sum;
    const uint8_t *meta;         /* until the visitor returns */
    size_t meta_bytes;
};

/* 0, or a negative errno that ends the walk. */
typedef int (*cv_group_visit)(void *arg, uint32_t input, const struct cv_group_record *r, struct cv_fail *why);

/* What is missing of an input. */
struct cv_group_torn {
    bool recovered;              /* without its index */
    uint64_t at;                 /* where it ends being whole */
    bool in_group;               /* the group of rank and step is not complete, and left out */
    uint32_t rank;
    uint64_t step;
};

/*
 * Calls visit for each variable and attribute of complete groups of an input, in the order they were written. Headers are checked by their sums, and payloads lie in the file. -EINVAL: no such stream;
 * -ENODATA: cut off before its first group was complete.
 */
int cv_group_walk(struct cv_source *s, uint32_t input, cv_group_visit visit, void *arg, struct cv_group_torn *torn, struct cv_fail *why);

#endif
