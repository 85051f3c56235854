/*
 * Pieces compared with the window's pages (see prove.h). Called by store threads when they take a result over.
 *
 * An aux-app says of a stretch of data that it is zero, that it stands earlier in the window, or that it is stored already, and the data is then not stored.
 * That is the one place where a bug in a plugin could make wrong data of right: what coders make is compared with a sum, and what is new
 * comes from the mount's own pages. So zeros and repetitions are always compared: all bytes are here, and this is a tenth of what finding them
 * cost (a MiB that is zero 0.2 ms, its SHA-1 1.7 ms, on a loaded machine), and less than writing them.
 *
 * To compare with what is stored means to read it. That is done for aux-apps with `verify`, which are all that did not come with fpstore; the others' digests
 * are strong, or compared by themselves (dedup hash=xxh3). Checking digests that plugins hand over was rejected: the mount would have to know
 * what each of them means, and who has a wrong digest of the old data has a right one of the new.
 */
#include "client/data/prove.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "client/aux/aux.h"
#include "client/data/internal.h"
#include "client/data/peek.h"
#include "client/data/wbuf.h"

#define ZEROS_BYTES 4096u
#define READ_MS     10000u /* for all of a window */

static const uint8_t zeros[ZEROS_BYTES];

/* How much of [off, off + len) lies in one page, at *at. */
static uint32_t in_page(uint8_t *const *pages, uint32_t off, uint32_t len, const uint8_t **at)
{
    uint32_t skip = off % CL_PAGE_BYTES, n = CL_PAGE_BYTES - skip;

    *at = pages[off / CL_PAGE_BYTES] + skip;
    return n < len ? n : len;
}

static bool is_zero(uint8_t *const *pages, uint32_t off, uint32_t len)
{
    while (len > 0) {
        const uint8_t *p;
        uint32_t n = in_page(pages, off, len < ZEROS_BYTES ? len : ZEROS_BYTES, &p);

        if (memcmp(p, zeros, n) != 0)
            return false;
        off += n;
        len -= n;
    }
    return true;
}

static bool is_equal(uint8_t *const *pages, uint32_t a, uint32_t b, uint32_t len)
{
    while (len > 0) {
        const uint8_t *p, *q;
        uint32_t n = in_page(pages, a, len, &p);

        n = in_page(pages, b, n, &q);
        if (memcmp(p, q, n) != 0)
            return false;
        a += n;
        b += n;
        len -= n;
    }
    return true;
}

static bool is_bytes(uint8_t *const *pages, uint32_t off, const uint8_t *bytes, uint32_t len)
{
    while (len > 0) {
        const uint8_t *p;
        uint32_t n = in_page(pages, off, len, &p);

        if (memcmp(p, bytes, n) != 0)
            return false;
        off += n;
        bytes += n;
        len -= n;
    }
    return true;
}

/* `same` counts in the new data, which is the NEW pieces one behind the other. */
static bool is_same(uint8_t *const *pages, const struct fp_auxw_piece *p, uint32_t n, const struct fp_auxw_piece *same)
{
    uint32_t done = 0;

    for (uint32_t i = 0; i < n && done < same->len_bytes; i++) {
        uint32_t at = same->at + done, k;

        if (p[i].kind != FP_AUXW_PIECE_NEW || at < p[i].at || at - p[i].at >= p[i].len_bytes)
            continue;
        k = p[i].len_bytes - (at - p[i].at);
        if (k > same->len_bytes - done)
            k = same->len_bytes - done;
        if (!is_equal(pages, same->off + done, p[i].off + (at - p[i].at), k))
            return false;
        done += k;
    }
    return done == same->len_bytes;
}

/* 1: it is so, 0: it is not, -EAGAIN. */
static int is_stored(struct cl_data *d, uint8_t *const *pages, const struct fp_auxw_piece *p, uint64_t until_ms)
{
    struct cl_chunk_ref ref;
    uint8_t *buf;
    int rc;

    if (fp_now_ms() >= until_ms || !cl_aux_held(d->m, p->chunk, &ref))
        return -EAGAIN;
    buf = cl_scratch_get(&d->scratch, p->len_bytes);
    if (!buf)
        return -EAGAIN;
    rc = cl_peek(d, &ref, p->at, buf, p->len_bytes, until_ms);
    if (rc == 0)
        rc = is_bytes(pages, p->off, buf, p->len_bytes);
    else
        rc = rc == -EINVAL ? 0 : -EAGAIN; /* there are no such bytes in it */
    cl_scratch_put(&d->scratch, buf, p->len_bytes);
    return rc;
}

int cl_prove_pieces(struct cl_data *d, uint8_t *const *pages, const struct fp_auxw_piece *p, uint32_t n, struct cl_untrue *out)
{
    uint64_t until_ms = fp_now_ms() + READ_MS;

    for (uint32_t i = 0; i < n; i++) {
        int so = 1;

        switch (p[i].kind) {
        case FP_AUXW_PIECE_ZERO:
            so = is_zero(pages, p[i].off, p[i].len_bytes);
            out->what = "it says that data is zero which is not";
            break;
        case FP_AUXW_PIECE_SAME:
            so = is_same(pages, p, n, &p[i]);
            out->what = "it says that data repeats other data of its window, and it does not";
            break;
        case FP_AUXW_PIECE_STORED:
            so = p[i].doubted ? is_stored(d, pages, &p[i], until_ms) : 1;
            out->what = "it says that data is stored already where other data is";
            break;
        default:
            break;
        }
        if (so < 0)
            return so;
        if (so == 0) {
            out->app = p[i].app;
            return -EPROTO;
        }
    }
    return 0;
}
