/*
 * Sealed buffers on their way through the aux-apps (see packed.h). Submitted by whoever seals, answered on a thread of aux/, taken over by
 * store threads, which may copy and allocate.
 *
 * What is new is copied together into memory of its own, once: content-defined pieces begin anywhere, O_DIRECT wants aligned parts; the host can write to
 * the region's buffers as long as it lives, and what has been summed must not change; and the region is small and wanted by the next window. The copy
 * is a tenth of what any digest costs. A window that is all new and not coded has no copy: its pages are stored as without aux-apps.
 *
 * What the host says of the data is compared with the mount's own pages: that pieces are zero or equal (prove.h), here; what coders made of it, by the sum in
 * the envelope, at the first read (datasum.h).
 */
#include "client/data/packed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/core.h"
#include "client/data/datasum.h"
#include "client/data/internal.h"
#include "client/data/pieces.h"
#include "client/data/prove.h"
#include "fp/envelope.h"

static void on_done(struct cl_aux_job *job)
{
    struct cl_packed *k = (struct cl_packed *)job;

    k->answered = true;
    cl_moved(k->b->file->data);
    k->ready(k->b);
}

/* All written bytes from the first on, and no filled gap before or between them. */
static bool is_whole(const struct cl_wbuf *b)
{
    return b->nranges == 1 && b->range[0].chunk_off == 0 && b->range[0].len == b->chunk_len;
}

/* Of byte 0 of the sealed chunk, if that is a part of the file as it is; else of its window. */
uint64_t cl_packed_file_off(const struct cl_wbuf *b)
{
    return b->win * b->file->window_bytes + (is_whole(b) ? b->range[0].off : 0);
}

static uint32_t pieces_max(const struct cl_wbuf *b)
{
    return ((b->file->window_bytes + (1u << 20) - 1) >> 20) * CL_SLICES_PER_MIB;
}

int cl_packed_submit(struct cl_data *d, struct cl_wbuf *b, bool no_stored, void (*ready)(struct cl_wbuf *b))
{
    struct cl_packed *k = calloc(1, sizeof(*k));

    if (!k)
        return -ENOMEM;
    k->b = b;
    k->job.ino = b->file->inode->ino;
    k->job.file_serial = b->file->inode->aux_serial;
    k->job.no_stored = no_stored;
    k->job.whole = is_whole(b);
    k->job.file_off = cl_packed_file_off(b);
    k->job.len_bytes = b->chunk_len;
    k->job.npages = (b->chunk_len + CL_PAGE_BYTES - 1) / CL_PAGE_BYTES;
    k->job.pages = b->page + b->base;
    k->job.done = on_done;
    k->ready = ready;
    k->pieces_max = pieces_max(b);
    b->packed = k;
    cl_aux_submit(d->m, &k->job);
    return 0;
}

/* -------------------------------------------------------------- the bytes to be stored */

/* fn for each part of the new data, in order, from the buffer's pages. */
static void each_new(const struct cl_packed *k, void (*fn)(void *arg, const uint8_t *p, uint32_t len), void *arg)
{
    const struct fp_auxw_piece all = { .kind = FP_AUXW_PIECE_NEW, .len_bytes = k->b->chunk_len };
    const struct fp_auxw_piece *p = k->npieces ? k->pieces : &all;

    for (uint32_t i = 0; i < (k->npieces ? k->npieces : 1); i++) {
        uint32_t off = p[i].off, left = p[i].kind == FP_AUXW_PIECE_NEW ? p[i].len_bytes : 0;

        while (left > 0) {
            uint32_t in_page = off % CL_PAGE_BYTES, n = CL_PAGE_BYTES - in_page;

            if (n > left)
                n = left;
            fn(arg, k->b->page[k->b->base + off / CL_PAGE_BYTES] + in_page, n);
            off += n;
            left -= n;
        }
    }
}

static void copy_part(void *arg, const uint8_t *p, uint32_t len)
{
    uint8_t **at = arg;

    memcpy(*at, p, len);
    *at += len;
}

static void sum_part(void *arg, const uint8_t *p, uint32_t len)
{
    cl_datasum_add(arg, p, len);
}

static uint32_t padded_bytes(uint32_t bytes)
{
    return fp_record_size_bytes(bytes) - FP_RECORD_HEADER_BYTES;
}

static int flat_new(struct cl_packed *k, uint32_t bytes)
{
    k->flat = cl_scratch_get(&k->b->file->data->scratch, padded_bytes(bytes));
    if (!k->flat)
        return -ENOMEM;
    k->flat_bytes = bytes;
    memset(k->flat + bytes, 0, padded_bytes(bytes) - bytes);
    return 0;
}

static int fill_plain(struct cl_packed *k)
{
    uint8_t *at;
    int rc = flat_new(k, k->new_bytes);

    at = k->flat;
    if (rc == 0)
        each_new(k, copy_part, &at);
    return rc;
}

static int fill_coded(struct cl_data *d, struct cl_packed *k)
{
    const struct cl_aux_job *j = &k->job;
    struct fp_envelope e = { .data_bytes = j->new_bytes, .coded_bytes = j->coded_bytes, .nstages = j->nstages };
    uint32_t head = FP_ENVELOPE_BYTES(j->nstages);
    struct cl_datasum sum;
    int rc;

    if (j->nstages > FP_AUXW_STAGES_MAX)
        return -EPROTO;
    memcpy(e.stage, j->stages, j->nstages * sizeof(e.stage[0]));
    e.keyed = cl_aux_hides(d->m, j->stages, j->nstages);
    if (fp_envelope_check(&e) < 0 || !j->bytes)
        return -EPROTO;
    rc = flat_new(k, head + j->coded_bytes);
    if (rc < 0)
        return rc;
    memcpy(k->flat + head, j->bytes, j->coded_bytes);
    cl_datasum_begin(&sum, e.keyed);
    each_new(k, sum_part, &sum);
    rc = cl_datasum_end(&sum, cl_core_keyedsum(d->m), k->flat + head, e.coded_bytes, &e.data_sum);
    fp_envelope_encode(&e, k->flat);
    k->data_len_bytes = j->new_bytes;
    return rc;
}

/* -------------------------------------------------------------- taking over */

static int take_note(struct cl_packed *k)
{
    const struct cl_aux_job *j = &k->job;

    if (j->note_bytes > FP_AUX_NOTE_MAX_BYTES || j->nkeys > FP_AUX_NOTE_KEYS_MAX)
        return -EPROTO;
    k->tickets = j->tickets;
    if (j->note_bytes == 0)
        return 0;
    k->note = malloc(j->note_bytes);
    k->keys = malloc(j->nkeys * sizeof(*k->keys) + 1);
    if (!k->note || !k->keys)
        return -ENOMEM;
    memcpy(k->note, j->note, j->note_bytes);
    memcpy(k->keys, j->keys, j->nkeys * sizeof(*k->keys));
    k->note_bytes = j->note_bytes;
    k->nkeys = j->nkeys;
    return 0;
}

/*
 * *packed_anew: offsets in the new data are not those that the aux-app knows: what it noted about them is of no use. What is coded stays as it is: its
 * data is inside.
 */
static int take_pieces(struct cl_packed *k, bool *packed_anew)
{
    const struct cl_aux_job *j = &k->job;
    uint32_t n = j->npieces;

    *packed_anew = false;
    k->new_bytes = n ? j->new_bytes : j->len_bytes;
    if (n == 0)
        return 0;
    k->pieces = malloc(n * sizeof(*k->pieces));
    if (!k->pieces)
        return -ENOMEM;
    memcpy(k->pieces, j->pieces, n * sizeof(*k->pieces));
    n = cl_pieces_merge(k->pieces, n);
    if (n > k->pieces_max && j->nstages == 0) {
        n = cl_pieces_limit(k->pieces, n, k->pieces_max, &k->new_bytes);
        *packed_anew = true;
    }
    for (uint32_t i = 0; i < n; i++)
        k->refers |= k->pieces[i].kind == FP_AUXW_PIECE_STORED;
    k->npieces = n == 1 && k->pieces[0].kind == FP_AUXW_PIECE_NEW ? 0 : n;
    return 0;
}

static int take(struct cl_data *d, struct cl_packed *k)
{
    bool packed_anew;
    int rc = k->job.status < 0 ? k->job.status : take_pieces(k, &packed_anew);

    if (rc == 0 && k->new_bytes > 0 && !packed_anew)
        rc = take_note(k);
    if (rc < 0 || k->new_bytes == 0)
        return rc;
    if (k->job.nstages > 0)
        return fill_coded(d, k);
    return k->npieces ? fill_plain(k) : 0;
}

/* Once more, with the word that all of it is new. */
static void ask_again(struct cl_data *d, struct cl_packed *k)
{
    const struct cl_aux_job *j = &k->job;
    struct cl_aux_job again = { .ino = j->ino, .file_off = j->file_off, .file_serial = j->file_serial, .len_bytes = j->len_bytes,
                    .npages = j->npages, .whole = j->whole, .pages = j->pages, .done = on_done, .no_pieces = true };

    k->answered = false;
    cl_aux_job_fini(d->m, &k->job);
    k->job = again;
    cl_aux_submit(d->m, &k->job); /* k may be gone from here on */
}

/* 0: it can be believed. 1: not, and the aux-apps have been asked again. */
static int believe(struct cl_data *d, struct cl_packed *k)
{
    struct cl_untrue untrue;
    int rc = cl_prove_pieces(d, k->job.pages, k->job.pieces, k->job.npieces, &untrue);

    if (rc == -EPROTO)
        cl_aux_lied(d->m, untrue.app, untrue.what);
    if (rc == 0 || k->job.no_pieces) /* who was told that all is new can't have said pieces: nonsense */
        return rc == 0 ? 0 : -EPROTO;
    ask_again(d, k);
    return 1;
}

int cl_packed_take(struct cl_data *d, struct cl_packed *k)
{
    int rc = k->job.status < 0 ? 0 : believe(d, k);

    if (rc > 0)
        return rc;
    if (rc == 0)
        rc = take(d, k);
    if (rc == -EPROTO) {
        FP_LOG_EVERY(1000, FP_LOG_ERROR, "inode %llu: the aux-apps left a window of %u bytes in a way that can't be stored",
                 (unsigned long long)k->job.ino, k->job.len_bytes);
        rc = -EIO;
    }
    k->taken = true;
    k->pins = k->job.pins;
    k->job.pins = NULL;
    k->answered = false;
    cl_aux_job_fini(d->m, &k->job);
    return rc;
}

void cl_packed_stored(struct cl_data *d, struct cl_packed *k)
{
    cl_scratch_put(&d->scratch, k->flat, padded_bytes(k->flat_bytes));
    k->flat = NULL;
}

void cl_packed_free(struct cl_data *d, struct cl_packed *k)
{
    if (!k)
        return;
    if (k->answered)
        cl_aux_job_fini(d->m, &k->job);
    cl_aux_pins_put(d->m, k->pins);
    free(k->pieces);
    cl_packed_stored(d, k);
    free(k->note);
    free(k->keys);
    free(k);
}

uint32_t cl_packed_note_bytes(const struct cl_packed *k)
{
    return k ? k->note_bytes + k->nkeys * 8 : 0;
}
