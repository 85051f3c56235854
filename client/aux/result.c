/*
 * Answers of the host to chunks on their way out, checked before anybody acts on them.
 *
 * Called on the link thread. The host is trusted as far as its aux-apps are: they can make wrong data (a wrong digest, a coder with a bug), but what they say must
 * at least be a description of this window: pieces in order and without gaps, offsets in bounds, stages whose lengths fit together. What is not is
 * treated as the host's death, so that a plugin that scribbles over the host's memory costs a restart, not a file.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/aux/internal.h"
#include "client/data/pieces.h"
#include "fp/fault.h"

static bool name_fits(const char *name)
{
    return name[0] != '\0' && memchr(name, '\0', sizeof(((struct fp_auxw_stage *)0)->name));
}

static bool stages_fit(const struct fp_auxw_out_done *d, const struct fp_auxw_stage *s, uint32_t cap_bytes)
{
    uint32_t bytes = d->new_bytes;

    if (d->nstages == 0)
        return d->where == 0;
    if (d->nstages > FP_AUXW_STAGES_MAX || d->where < 1 || d->where > 2 || d->new_bytes == 0)
        return false;
    for (uint32_t i = 0; i < d->nstages; i++) {
        if (!name_fits(s[i].name) || s[i].in_bytes != bytes || s[i].out_bytes == 0)
            return false;
        bytes = s[i].out_bytes;
    }
    return bytes == d->coded_bytes && d->coded_bytes <= cap_bytes && d->coded_bytes <= d->new_bytes + FP_AUX_EXPAND_MAX_BYTES;
}

static uint64_t body_bytes(const struct fp_auxw_out_done *d)
{
    return d->npieces * (uint64_t)sizeof(struct fp_auxw_piece) + d->nstages * (uint64_t)sizeof(struct fp_auxw_stage) +
           d->nkeys * (uint64_t)sizeof(uint64_t) + d->note_bytes;
}

static bool counts_fit(const struct fp_auxw_out_done *d)
{
    return d->npieces <= FP_AUXW_PIECES_MAX && d->nstages <= FP_AUXW_STAGES_MAX && d->nkeys <= FP_AUXW_KEYS_MAX &&
           d->note_bytes <= FP_AUX_NOTE_MAX_BYTES && d->h.len_bytes == sizeof(*d) + body_bytes(d);
}

int cl_aux_refusal(int status)
{
    return status == -EINTR || status == -EAGAIN || status < -EHWPOISON ? -EIO : status;
}

int cl_aux_result_parse(struct cl_aux_job *job, const struct fp_auxw_head *msg, uint32_t cap_bytes, const uint8_t *out_a, const uint8_t *out_b,
            void **copy)
{
    const struct fp_auxw_out_done *d = (const struct fp_auxw_out_done *)msg;
    const uint8_t *at;

    if (msg->type != FP_AUXW_CHUNK_OUT_DONE || msg->len_bytes < sizeof(*d) || !counts_fit(d))
        return -EPROTO;
    if (d->status != 0) {
        job->status = cl_aux_refusal(d->status);
        return d->status < 0 && d->status >= -4095 ? 0 : -EPROTO;
    }
    at = FP_FAULT_POINT("cl.aux_answer") < 0 ? NULL : malloc(body_bytes(d) + 1);
    if (!at)
        return -ENOMEM;
    *copy = (void *)at;
    memcpy(*copy, d + 1, body_bytes(d));
    job->npieces = d->npieces;
    job->pieces = (const struct fp_auxw_piece *)(const void *)at;
    at += d->npieces * sizeof(struct fp_auxw_piece);
    job->nstages = d->nstages;
    job->stages = (const struct fp_auxw_stage *)(const void *)at;
    at += d->nstages * sizeof(struct fp_auxw_stage);
    job->nkeys = d->nkeys;
    job->keys = (const uint64_t *)(const void *)at;
    job->note = at + d->nkeys * sizeof(uint64_t);
    job->note_bytes = d->note_bytes;
    job->new_bytes = d->new_bytes;
    job->coded_bytes = d->nstages > 0 ? d->coded_bytes : 0;
    job->bytes = d->nstages > 0 ? (d->where == 1 ? out_a : out_b) : NULL;
    memcpy(job->tickets.ticket, d->ticket, sizeof(d->ticket));
    memcpy(job->tickets.app, d->ticket_app, sizeof(d->ticket_app));
    return cl_pieces_check(job->pieces, job->npieces, job->len_bytes, job->new_bytes) == 0 && stages_fit(d, job->stages, cap_bytes) ? 0 : -EPROTO;
}
