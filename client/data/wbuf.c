/*
 * Write buffers of windows (see wbuf.h). Called by FUSE threads and store threads with the inode's lock held, except copy_in.
 *
 * Packing moves bytes towards the front inside the same pages. That costs a memmove of at most one chunk for windows that were written
 * in pieces far apart (records of many ranks in one file), and saves writing and keeping the gaps: with four nodes writing every
 * fourth record it is the difference between storing the file once and four times.
 *
 * Large copies into pages go past the caches. A page comes back from the pool long after it was used last, so that to store into it through the cache reads
 * it from memory first, and what it displaces there is what the next copy wants: so writing is 1.2 to 1.5 times as fast as with memcpy where the
 * store keeps up with it (back end memory), and as fast where the device is the bound. What is small stays in the cache: more of its page is likely to come.
 */
#include "client/data/wbuf.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "client/data/pieces.h"
#include "client/data/pool.h"

struct cl_wbuf *cl_wbuf_new(struct cl_file *file, uint64_t win, uint32_t window_bytes)
{
    uint32_t npages = (window_bytes + CL_PAGE_BYTES - 1) / CL_PAGE_BYTES;
    struct cl_wbuf *b = calloc(1, sizeof(*b) + npages * sizeof(b->page[0]));

    if (!b)
        return NULL;
    b->file = file;
    b->win = win;
    b->npages = npages;
    return b;
}

void cl_wbuf_free(struct cl_wbuf *b)
{
    free(b);
}

uint32_t cl_wbuf_missing(const struct cl_wbuf *b, uint32_t off, uint32_t len)
{
    uint32_t n = 0;

    for (uint32_t i = off / CL_PAGE_BYTES; i <= (off + len - 1) / CL_PAGE_BYTES; i++)
        n += !b->page[i];
    return n;
}

uint32_t cl_wbuf_attach(struct cl_wbuf *b, uint32_t off, uint32_t len, uint8_t **pages)
{
    uint32_t n = 0;

    for (uint32_t i = off / CL_PAGE_BYTES; i <= (off + len - 1) / CL_PAGE_BYTES; i++)
        if (!b->page[i])
            b->page[i] = pages[n++];
    return n;
}

uint32_t cl_wbuf_attach_received(struct cl_wbuf *b, uint32_t off, uint32_t len, uint8_t **pages, uint8_t **received, bool *taken)
{
    uint32_t first = off / CL_PAGE_BYTES, n = 0;

    for (uint32_t i = first; i <= (off + len - 1) / CL_PAGE_BYTES; i++) {
        uint32_t k = i - first;

        taken[k] = !b->page[i];
        if (taken[k]) {
            b->page[i] = received[k];
            received[k] = pages[n++];
        }
    }
    return n;
}

#define LARGE_COPY_BYTES (16u << 10)

#if defined(__x86_64__)
static void copy(uint8_t *dst, const uint8_t *src, uint32_t len)
{
    uint32_t head = (uint32_t)(-(uintptr_t)dst % sizeof(__m128i)), n;

    if (len < LARGE_COPY_BYTES) {
        memcpy(dst, src, len);
        return;
    }
    memcpy(dst, src, head);
    dst += head;
    src += head;
    len -= head;
    n = len & ~63u;
    for (uint32_t i = 0; i < n; i += 64) {
        for (uint32_t k = i; k < i + 64; k += sizeof(__m128i))
            _mm_stream_si128((__m128i *)(void *)(dst + k), _mm_loadu_si128((const __m128i *)(const void *)(src + k)));
    }
    _mm_sfence(); /* such stores are not ordered by a lock that is let go */
    memcpy(dst + n, src + n, len - n);
}
#else
static void copy(uint8_t *dst, const uint8_t *src, uint32_t len)
{
    memcpy(dst, src, len);
}
#endif

void cl_wbuf_copy_in(struct cl_wbuf *b, uint32_t off, const void *data, uint32_t len)
{
    const uint8_t *src = data;

    while (len > 0) {
        uint32_t in_page = off % CL_PAGE_BYTES, n = CL_PAGE_BYTES - in_page;

        if (n > len)
            n = len;
        copy(b->page[off / CL_PAGE_BYTES] + in_page, src, n);
        src += n;
        off += n;
        len -= n;
    }
}

void cl_wbuf_copy_out(const struct cl_wbuf *b, uint32_t src_off, void *dst, uint32_t len)
{
    uint8_t *d = dst;

    while (len > 0) {
        uint32_t in_page = src_off % CL_PAGE_BYTES, n = CL_PAGE_BYTES - in_page;

        if (n > len)
            n = len;
        memcpy(d, b->page[b->base + src_off / CL_PAGE_BYTES] + in_page, n);
        d += n;
        src_off += n;
        len -= n;
    }
}

/* First range that ends at or after off: the first that [off, …) may join. */
static uint32_t first_touching(const struct cl_wbuf *b, uint32_t off)
{
    uint32_t i = 0;

    while (i < b->nranges && b->range[i].off + b->range[i].len < off)
        i++;
    return i;
}

bool cl_wbuf_would_overflow(const struct cl_wbuf *b, uint32_t off, uint32_t len)
{
    uint32_t i = first_touching(b, off);

    return b->nranges == CL_WBUF_RANGES_MAX && (i == b->nranges || b->range[i].off > off + len);
}

bool cl_wbuf_add_range(struct cl_wbuf *b, uint32_t off, uint32_t len)
{
    uint32_t i = first_touching(b, off), end = off + len, j = i;

    while (j < b->nranges && b->range[j].off <= end) { /* joins [i, j) */
        uint32_t r_end = b->range[j].off + b->range[j].len;

        if (b->range[j].off < off)
            off = b->range[j].off;
        if (r_end > end)
            end = r_end;
        j++;
    }
    if (j == i) {
        if (b->nranges == CL_WBUF_RANGES_MAX)
            return false;
        memmove(&b->range[i + 1], &b->range[i], (b->nranges - i) * sizeof(b->range[0]));
        b->nranges++;
    } else if (j > i + 1) {
        memmove(&b->range[i + 1], &b->range[j], (b->nranges - j) * sizeof(b->range[0]));
        b->nranges -= j - i - 1;
    }
    b->range[i].off = off;
    b->range[i].len = end - off;
    return true;
}

bool cl_wbuf_is_full(const struct cl_wbuf *b, uint32_t window_bytes)
{
    return b->nranges == 1 && b->range[0].off == 0 && b->range[0].len == window_bytes;
}

uint64_t cl_wbuf_bytes(const struct cl_wbuf *b)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < b->nranges; i++)
        sum += b->range[i].len;
    return sum;
}

uint32_t cl_wbuf_needs(const struct cl_wbuf *b, uint32_t off, uint32_t len, uint32_t window_bytes)
{
    uint64_t bytes = cl_wbuf_bytes(b) + b->copying + len;

    for (uint32_t i = 0; i < b->nranges; i++) { /* what is written again */
        uint32_t from = b->range[i].off > off ? b->range[i].off : off, end = b->range[i].off + b->range[i].len;

        if (end > off + len)
            end = off + len;
        bytes -= end > from ? end - from : 0;
    }
    return bytes < window_bytes ? (uint32_t)bytes : window_bytes;
}

/* Zero [from, to) of the window where pages are. */
static void zero_gap(struct cl_wbuf *b, uint32_t from, uint32_t to)
{
    while (from < to) {
        uint32_t in_page = from % CL_PAGE_BYTES, n = CL_PAGE_BYTES - in_page;

        if (n > to - from)
            n = to - from;
        assert(b->page[from / CL_PAGE_BYTES]);
        memset(b->page[from / CL_PAGE_BYTES] + in_page, 0, n);
        from += n;
    }
}

/* Layout as it is: the chunk begins at the first block with data; small gaps become zeros. */
static void lay_out_in_place(struct cl_wbuf *b)
{
    uint32_t start = b->range[0].off / CL_PAGE_BYTES * CL_PAGE_BYTES, at = start;

    b->base = start / CL_PAGE_BYTES;
    for (uint32_t i = 0; i < b->nranges; i++) {
        zero_gap(b, at, b->range[i].off);
        b->range[i].chunk_off = b->range[i].off - start;
        at = b->range[i].off + b->range[i].len;
    }
    b->chunk_len = at - start;
}

/* Move len bytes of the window from src to the lower place dst. */
static void move_down(struct cl_wbuf *b, uint32_t dst, uint32_t src, uint32_t len)
{
    while (len > 0) {
        uint32_t sp = src % CL_PAGE_BYTES, dp = dst % CL_PAGE_BYTES, n = len;

        if (n > CL_PAGE_BYTES - sp)
            n = CL_PAGE_BYTES - sp;
        if (n > CL_PAGE_BYTES - dp)
            n = CL_PAGE_BYTES - dp;
        memmove(b->page[dst / CL_PAGE_BYTES] + dp, b->page[src / CL_PAGE_BYTES] + sp, n);
        src += n;
        dst += n;
        len -= n;
    }
}

/*
 * Layout packed: ranges follow each other. Pages are first moved together so that the destination pages exist: page k of those present
 * becomes page base+k, which keeps every source at or behind its destination.
 */
static void lay_out_packed(struct cl_wbuf *b)
{
    uint32_t packed = 0, base = b->range[0].off / CL_PAGE_BYTES;
    uint32_t map[CL_WBUF_PAGES_MAX], n = 0;

    for (uint32_t i = base; i < b->npages; i++) /* a truncate may have left pages before the first range: they are spare */
        map[i] = b->page[i] ? base + n++ : 0;
    for (uint32_t i = base; i < b->npages; i++)
        if (b->page[i] && map[i] != i) {
            b->page[map[i]] = b->page[i];
            b->page[i] = NULL;
        }
    b->base = base;
    for (uint32_t i = 0; i < b->nranges; i++) {
        struct cl_range *r = &b->range[i];
        uint32_t left = r->len, off = r->off;

        r->chunk_off = packed;
        while (left > 0) { /* a range may cross pages, each of which moved by its own distance */
            uint32_t in_page = off % CL_PAGE_BYTES, k = CL_PAGE_BYTES - in_page;

            if (k > left)
                k = left;
            move_down(b, base * CL_PAGE_BYTES + packed, map[off / CL_PAGE_BYTES] * CL_PAGE_BYTES + in_page, k);
            packed += k;
            off += k;
            left -= k;
        }
    }
    b->chunk_len = packed;
}

/* Zeros behind the data up to the device block: what O_DIRECT writes beyond the chunk's length. */
static void pad(struct cl_wbuf *b)
{
    uint32_t in_page = b->chunk_len % CL_PAGE_BYTES, rest = (4096 - b->chunk_len % 4096) % 4096;

    if (rest > 0)
        memset(b->page[b->base + b->chunk_len / CL_PAGE_BYTES] + in_page, 0, rest);
}

static bool gaps_have_pages(const struct cl_wbuf *b)
{
    uint32_t last = (b->range[b->nranges - 1].off + b->range[b->nranges - 1].len - 1) / CL_PAGE_BYTES;

    for (uint32_t i = b->range[0].off / CL_PAGE_BYTES; i <= last; i++)
        if (!b->page[i])
            return false;
    return true;
}

uint32_t cl_wbuf_seal(struct cl_wbuf *b, uint8_t **spare)
{
    const struct cl_range *last = &b->range[b->nranges - 1];
    uint32_t start = b->range[0].off / CL_PAGE_BYTES * CL_PAGE_BYTES, nspare = 0, blocks;
    uint64_t waste = last->off + last->len - start - cl_wbuf_bytes(b);

    assert(b->state == CL_WBUF_OPEN && b->writers == 0 && b->nranges > 0);
    if (waste <= CL_WBUF_WASTE_MAX_BYTES && gaps_have_pages(b))
        lay_out_in_place(b);
    else
        lay_out_packed(b);
    pad(b);
    blocks = (b->chunk_len + CL_PAGE_BYTES - 1) / CL_PAGE_BYTES;
    for (uint32_t i = 0; i < b->npages; i++)
        if (b->page[i] && (i < b->base || i >= b->base + blocks)) {
            spare[nspare++] = b->page[i];
            b->page[i] = NULL;
        }
    b->state = CL_WBUF_SEALED;
    return nspare;
}

void cl_wbuf_truncate(struct cl_wbuf *b, uint32_t new_len)
{
    while (b->nranges > 0) {
        struct cl_range *r = &b->range[b->nranges - 1];

        if (r->off + r->len <= new_len)
            return;
        if (r->off < new_len) {
            r->len = new_len - r->off;
            return;
        }
        b->nranges--;
    }
}

static int overlay_stored(const struct cl_wbuf *b, struct cl_overlay *o)
{
    struct cl_bits it = { .b = b };
    struct cl_bit bit;
    int rc = 0;

    while (rc == 0 && cl_bits_next(&it, &bit)) {
        struct cl_piece p = { .off = bit.off, .len = bit.len, .src_off = bit.src_off, .chunk = { .id = bit.chunk } };

        if (bit.chunk && bit.chunk == b->chunk.id)
            p.chunk = b->chunk;
        rc = cl_overlay_add(o, &p);
    }
    return rc;
}

int cl_wbuf_overlay(struct cl_wbuf *b, struct cl_overlay *o)
{
    int rc = 0;

    if (b->state == CL_WBUF_STORED)
        return overlay_stored(b, o);
    for (uint32_t i = 0; rc == 0 && i < b->nranges; i++) {
        const struct cl_range *r = &b->range[i];
        struct cl_piece p = { .off = r->off, .len = r->len, .buf = b, .src_off = b->state == CL_WBUF_OPEN ? r->off : r->chunk_off };

        rc = cl_overlay_add(o, &p);
    }
    return rc;
}
