/*
 * Bytes of a file that a program was told are written, and that were given up since: until the file's error is told, reads of them give EIO, and not what was
 * there before. Pure: the inode's lock is held by the caller.
 */
#ifndef CL_DATA_GONE_H
#define CL_DATA_GONE_H

#include <stdbool.h>
#include <stdint.h>

#define CL_GONE_MAX 8u

struct cl_gone {                   /* disjoint, by off */
    uint32_t n;
    struct {
        uint64_t off, end;
    } range[CL_GONE_MAX];
};

/* Where there is no room for one more, two of them become one, with what is between them. */
void cl_gone_add(struct cl_gone *g, uint64_t off, uint64_t end);
void cl_gone_cut(struct cl_gone *g, uint64_t size_bytes);              /* the file was cut to this size */
bool cl_gone_any(const struct cl_gone *g, uint64_t off, uint64_t end); /* is one in [off, end)? */
uint64_t cl_gone_end(const struct cl_gone *g);                         /* of the last one; 0: there is none */

#endif
