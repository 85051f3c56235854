/* The 16 bytes by which a target is known to manager, benefactors and fp-drain, wherever it is mounted.
 *
 * Of a target that is drained to it is what its marker says (FP_DW_MARKER). One that nothing can be written to has no marker, and can be staged in from
 * for all that: its identity begins with FP_TARGET_UNMARKED, and goes on with a sum of what is the same on all nodes: the kind of the file system, and the
 * inode of the directory. That tells it from what lies below a mount point where the file system is not mounted, mostly; else the path is trusted. Nothing is
 * written there under such an identity. */
#ifndef FP_TARGETID_H
#define FP_TARGETID_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define FP_TARGETID_BYTES 16u
#define FP_TARGET_UNMARKED "unmarked" /* without its NUL */

static inline bool fp_target_is_unmarked(const uint8_t id[FP_TARGETID_BYTES])
{
    return memcmp(id, FP_TARGET_UNMARKED, sizeof(FP_TARGET_UNMARKED) - 1) == 0;
}

#endif
