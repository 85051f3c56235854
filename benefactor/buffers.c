/*
 * What the buffers of the memory back end are used for (the paper's triple buffering: one filling, one draining, one free).
 *
 * Called by the manager's link for each keep-alive, on the loop's thread. A buffer is a segment: it is filled from front to back, its chunks are drained, and
 * it is free when the last of them has given way. Chunks give way one by one, and what they took is filled again at once, in a new segment: so there may be
 * remains of more segments than there are buffers. Free are as many as all that is free makes whole; nothing is called free that is not.
 */
#include "benefactor/service_impl.h"

static Fp__BufferUse use_of(const struct bnf_segment_use *u, bool draining)
{
    if (u->filling)
        return FP__BUFFER_USE__BUFFER_FILLING;
    return draining ? FP__BUFFER_USE__BUFFER_DRAINING : FP__BUFFER_USE__BUFFER_FULL;
}

static void add(struct bnf_service *v, size_t n, Fp__BufferUse use, uint64_t segment, uint64_t bytes)
{
    Fp__BufferState *b = &v->buffers_info[n];

    fp__buffer_state__init(b);
    b->use = use;
    b->bytes = bytes;
    b->segment_from = b->segment_to = segment;
    b->size_bytes = v->config.segment_bytes - FP_SEGMENT_HEADER_BYTES;
    v->buffers_list[n] = b;
}

size_t bnf_service_buffers(struct bnf_service *v, bool (*is_draining)(void *arg, uint64_t segment), void *arg, Fp__BufferState ***out)
{
    struct bnf_segment_use use[BUFFERS_SHOWN];
    struct bnf_space sp;
    size_t n, free_ones;

    *out = v->buffers_list;
    if (!v->config.buffers)
        return 0;
    n = bnf_store_uses(v->store, use, BUFFERS_SHOWN);
    for (size_t i = 0; i < n; i++)
        add(v, i, use_of(&use[i], is_draining(arg, use[i].segment)), use[i].segment, use[i].live_bytes);
    bnf_store_space(v->store, &sp);
    free_ones = (size_t)(sp.free_bytes / (v->config.segment_bytes - FP_SEGMENT_HEADER_BYTES));
    while (free_ones-- > 0 && n < BUFFERS_SHOWN)
        add(v, n++, FP__BUFFER_USE__BUFFER_FREE, 0, 0);
    return n;
}
