/* Aligned buffers for records that come and go over the network, bounded in bytes. One thread (the loop's).
 */
#ifndef BNF_BUFPOOL_H
#define BNF_BUFPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bnf_bufpool {
    size_t limit_bytes;
    size_t used_bytes;
    void **cached; /* buffers of the usual size, ready for use */
    size_t ncached, max_cached;
};

/* -ENOMEM. */
int bnf_bufpool_init(struct bnf_bufpool *p, size_t limit_bytes);
void bnf_bufpool_fini(struct bnf_bufpool *p); /* nothing may be out */

/* A buffer of len bytes aligned to 4096. force: also above the limit (a payload that is on the wire already
 * must go somewhere). NULL: above the limit, or out of memory. Content is undefined. */
void *bnf_bufpool_get(struct bnf_bufpool *p, size_t len_bytes, bool force);
void bnf_bufpool_put(struct bnf_bufpool *p, void *buf, size_t len_bytes); /* same len as in _get */

static inline bool bnf_bufpool_is_full(const struct bnf_bufpool *p)
{
    return p->used_bytes >= p->limit_bytes;
}

#endif
