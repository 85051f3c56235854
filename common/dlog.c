/*
 * Logs of drained files: records and the index as bytes, and back (layout in fp/dlog.h).
 *
 * Called by fp-drain, which writes and merges them, and by fpctl merge; on any thread, no I/O. What is read comes from a file system that others write to: nothing is
 * believed before its sum is right, and no number before it is within bounds.
 *
 * Rejected: an index in text, which for a file of many nodes is millions of lines; and no index but a trailer for each stream, which could not tell that a stream
 * is missing.
 */
#include "fp/dlog.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "fp/checksum.h"
#include "fp/err.h"
#include "fp/le.h"

#define RECORD_MAGIC "FPDLOGR1"
#define INDEX_MAGIC  "FPDLOGI1"
#define EXTENT_BYTES 24u
#define PLACE_BYTES  32u
#define RECORD_SUM   32u
#define INDEX_SUM    48u

uint64_t fp_dlog_sum(const void *data, uint32_t len)
{
    uint64_t sums[FP_DLOG_DATA_MAX_BYTES / FP_BLOCK_SIZE_BYTES];

    fp_sum_blocks(data, len, sums);
    return fp_sum_chunk(sums, fp_sum_nblocks(len), len);
}

/* Of all but the 8 bytes at `at`. */
static uint64_t sum_without(const uint8_t *in, size_t len, size_t at)
{
    return XXH3_64bits_withSeed(in + at + 8, len - at - 8, XXH3_64bits(in, at));
}

/* ---------------------------------------------------------------- records */

uint64_t fp_dlog_record_encode(uint8_t *out, uint64_t log, const struct fp_dlog_extent *e, uint32_t n)
{
    uint32_t header = fp_dlog_header_bytes(n);
    uint64_t data = 0, sum;

    memset(out, 0, header);
    for (uint32_t i = 0; i < n; i++) {
        uint8_t *p = out + FP_DLOG_HEAD_BYTES + (size_t)i * EXTENT_BYTES;

        fp_put64(p, e[i].off);
        fp_put64(p + 8, e[i].sum);
        fp_put32(p + 16, e[i].len);
        data += e[i].len;
    }
    memcpy(out, RECORD_MAGIC, 8);
    fp_put64(out + 8, log);
    fp_put32(out + 16, n);
    fp_put32(out + 20, header);
    fp_put64(out + 24, data);
    sum = sum_without(out, header, RECORD_SUM);
    fp_put64(out + RECORD_SUM, sum);
    return sum;
}

int fp_dlog_record_head(const uint8_t head[FP_DLOG_HEAD_BYTES], uint64_t log, uint32_t *header_bytes, uint64_t *data_bytes)
{
    uint32_t n = fp_get32(head + 16);

    if (memcmp(head, RECORD_MAGIC, 8) != 0 || fp_get64(head + 8) != log)
        return -ENODATA;
    *header_bytes = fp_get32(head + 20);
    *data_bytes = fp_get64(head + 24);
    if (n == 0 || n > FP_DLOG_EXTENTS_MAX || *header_bytes != fp_dlog_header_bytes(n) || *data_bytes == 0 || *data_bytes > FP_DLOG_DATA_MAX_BYTES)
        return FP_ECORRUPT;
    return 0;
}

int fp_dlog_record_decode(const uint8_t *in, uint32_t len, uint64_t log, struct fp_dlog_extent *e, uint32_t *n, uint64_t *sum)
{
    uint64_t data, end = 0, all = 0;
    uint32_t header;
    int rc = len < FP_DLOG_HEAD_BYTES ? FP_ECORRUPT : fp_dlog_record_head(in, log, &header, &data);

    if (rc == 0 && (header != len || fp_get64(in + RECORD_SUM) != sum_without(in, len, RECORD_SUM)))
        rc = FP_ECORRUPT;
    if (rc)
        return rc;
    *n = fp_get32(in + 16);
    *sum = fp_get64(in + RECORD_SUM);
    for (uint32_t i = 0; i < *n; i++) {
        const uint8_t *p = in + FP_DLOG_HEAD_BYTES + (size_t)i * EXTENT_BYTES;

        e[i] = (struct fp_dlog_extent){ .off = fp_get64(p), .sum = fp_get64(p + 8), .len = fp_get32(p + 16) };
        if (e[i].len == 0 || e[i].len > FP_DLOG_DATA_MAX_BYTES || e[i].off < end || e[i].off > (uint64_t)INT64_MAX - e[i].len)
            return FP_ECORRUPT;
        end = e[i].off + e[i].len;
        all += e[i].len;
    }
    return all == data ? 0 : FP_ECORRUPT;
}

int fp_dlog_record_is(const uint8_t *in, const struct fp_dlog_index *x, const struct fp_dlog_place *p, struct fp_dlog_extent *e, uint32_t *n)
{
    uint64_t sum;
    int rc = fp_dlog_record_decode(in, p->header_bytes, x->log, e, n, &sum);

    return rc || sum != p->sum || fp_get64(in + 24) != p->data_bytes || e[*n - 1].off + e[*n - 1].len > x->size ? FP_ECORRUPT : 0;
}

uint32_t fp_dlog_data_differs(const uint8_t *data, const struct fp_dlog_extent *e, uint32_t n)
{
    uint32_t i = 0;

    for (; i < n && fp_dlog_sum(data, e[i].len) == e[i].sum; i++)
        data += e[i].len;
    return i;
}

static int by_offset(const void *a, const void *b)
{
    const struct fp_dlog_extent *x = a, *y = b;

    return x->off < y->off ? -1 : x->off > y->off;
}

bool fp_dlog_extents_apart(struct fp_dlog_extent *e, size_t n, uint64_t *at)
{
    if (n)
        qsort(e, n, sizeof *e, by_offset);
    for (size_t i = 1; i < n; i++)
        if (e[i - 1].off + e[i - 1].len > e[i].off) {
            *at = e[i].off;
            return false;
        }
    return true;
}

/* ---------------------------------------------------------------- the index */

uint64_t fp_dlog_index_sum(const uint8_t *head)
{
    return fp_get64(head + INDEX_SUM);
}

static size_t index_len(uint32_t nstreams, uint32_t nrecords)
{
    return FP_DLOG_HEAD_BYTES + (size_t)nstreams * FP_DLOG_NAME_BUF + (size_t)nrecords * PLACE_BYTES;
}

int fp_dlog_index_encode(const struct fp_dlog_index *x, uint8_t **out, size_t *len)
{
    uint8_t *p, *to;

    *len = index_len(x->nstreams, x->nrecords);
    p = *out = calloc(1, *len);
    if (!p)
        return -ENOMEM;
    memcpy(p, INDEX_MAGIC, 8);
    fp_put64(p + 8, x->log);
    fp_put64(p + 16, x->size);
    fp_put64(p + 24, x->data_bytes);
    fp_put32(p + 32, x->nstreams);
    fp_put32(p + 36, x->nrecords);
    fp_put64(p + 40, *len);
    to = p + FP_DLOG_HEAD_BYTES;
    for (uint32_t i = 0; i < x->nstreams; i++, to += FP_DLOG_NAME_BUF)
        memcpy(to, x->stream[i], strnlen(x->stream[i], FP_DLOG_NAME_BUF - 1));
    for (uint32_t i = 0; i < x->nrecords; i++, to += PLACE_BYTES) {
        fp_put32(to, x->record[i].stream);
        fp_put32(to + 4, x->record[i].header_bytes);
        fp_put64(to + 8, x->record[i].at);
        fp_put64(to + 16, x->record[i].data_bytes);
        fp_put64(to + 24, x->record[i].sum);
    }
    fp_put64(p + INDEX_SUM, sum_without(p, *len, INDEX_SUM));
    return 0;
}

static bool name_is_good(const uint8_t name[FP_DLOG_NAME_BUF])
{
    size_t n = strnlen((const char *)name, FP_DLOG_NAME_BUF);

    return n && n < FP_DLOG_NAME_BUF && name[0] != '.' && !memchr(name, '/', n) && strcmp((const char *)name, FP_DLOG_INDEX) != 0;
}

static bool place_is_good(const struct fp_dlog_place *r, uint32_t nstreams)
{
    return r->stream < nstreams && r->header_bytes >= FP_DLOG_ALIGN && r->header_bytes <= fp_dlog_header_bytes(FP_DLOG_EXTENTS_MAX) &&
           r->header_bytes % FP_DLOG_ALIGN == 0 && r->at % FP_DLOG_ALIGN == 0 && r->at <= (uint64_t)INT64_MAX - r->header_bytes - FP_DLOG_DATA_MAX_BYTES &&
           r->data_bytes && r->data_bytes <= FP_DLOG_DATA_MAX_BYTES;
}

static int take_index(const uint8_t *in, struct fp_dlog_index *x)
{
    const uint8_t *p = in + FP_DLOG_HEAD_BYTES;
    uint64_t all = 0;

    for (uint32_t i = 0; i < x->nstreams; i++, p += FP_DLOG_NAME_BUF) {
        if (!name_is_good(p))
            return FP_ECORRUPT;
        memcpy(x->stream[i], p, FP_DLOG_NAME_BUF);
    }
    for (uint32_t i = 0; i < x->nrecords; i++, p += PLACE_BYTES) {
        struct fp_dlog_place *r = &x->record[i];

        *r = (struct fp_dlog_place){ .stream = fp_get32(p), .header_bytes = fp_get32(p + 4), .at = fp_get64(p + 8), .data_bytes = fp_get64(p + 16),
                                     .sum = fp_get64(p + 24) };
        if (!place_is_good(r, x->nstreams))
            return FP_ECORRUPT;
        all += r->data_bytes;
    }
    return all == x->data_bytes && all <= x->size ? 0 : FP_ECORRUPT;
}

int fp_dlog_index_decode(const uint8_t *in, size_t len, struct fp_dlog_index *x)
{
    int rc;

    *x = (struct fp_dlog_index){ 0 };
    if (len < 8 || memcmp(in, INDEX_MAGIC, 8) != 0)
        return -ENODATA;
    if (len < FP_DLOG_HEAD_BYTES)
        return FP_ECORRUPT;
    x->log = fp_get64(in + 8);
    x->size = fp_get64(in + 16);
    x->data_bytes = fp_get64(in + 24);
    x->nstreams = fp_get32(in + 32);
    x->nrecords = fp_get32(in + 36);
    if (x->nstreams > FP_DLOG_STREAMS_MAX || x->nrecords > FP_DLOG_RECORDS_MAX || x->size > INT64_MAX || fp_get64(in + 40) != len ||
        index_len(x->nstreams, x->nrecords) != len || fp_get64(in + INDEX_SUM) != sum_without(in, len, INDEX_SUM))
        return FP_ECORRUPT;
    x->stream = calloc(x->nstreams + 1, sizeof *x->stream);
    x->record = calloc(x->nrecords + 1, sizeof *x->record);
    rc = x->stream && x->record ? take_index(in, x) : -ENOMEM;
    if (rc)
        fp_dlog_index_fini(x);
    return rc;
}

void fp_dlog_index_fini(struct fp_dlog_index *x)
{
    free(x->stream);
    free(x->record);
    *x = (struct fp_dlog_index){ 0 };
}
