/*
 * Jobs: a window on its way to the store, from the message that brought it to the answer.
 *
 * Made by the main thread, in one thread's hands or one queue at a time, finished by the worker of its last stage. fp-mount bounds their number by the buffers
 * it has; a bound of our own guards against a mistake there. Nothing in a message is believed: page numbers and offsets are
 * checked here, once, so that no stage can be made to read or write elsewhere.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "auxapps/host/host.h"

static int check(const struct aux_host *h, const struct fp_auxw_chunk_out *m)
{
    uint64_t pages = h->pool_bytes / AUX_PAGE_BYTES;
    const uint32_t *page = (const uint32_t *)(const void *)(m + 1);

    if (m->h.len_bytes < sizeof(*m) || (m->h.len_bytes - sizeof(*m)) / sizeof(*page) < m->npages)
        return -EINVAL;
    if (m->len_bytes == 0 || m->len_bytes > FP_AUX_CHUNK_MAX_BYTES || m->npages != (m->len_bytes + AUX_PAGE_BYTES - 1) / AUX_PAGE_BYTES)
        return -EINVAL;
    if (m->out_cap_bytes < (uint64_t)m->len_bytes + AUX_PAGE_BYTES)
        return -EINVAL;
    if (!aux_in_region(h, m->out_a, m->out_cap_bytes) || !aux_in_region(h, m->out_b, m->out_cap_bytes))
        return -EINVAL;
    for (uint32_t i = 0; i < m->npages; i++) {
        if (page[i] >= pages)
            return -EINVAL;
    }
    return 0;
}

/* Pages that lie one behind the other are one part: a chunk whose pages all do can be looked at without a copy. */
static void set_parts(const struct aux_host *h, const struct fp_auxw_chunk_out *m, struct aux_job *j)
{
    const uint32_t *page = (const uint32_t *)(const void *)(m + 1);
    uint32_t left = m->len_bytes;

    for (uint32_t i = 0; i < m->npages; i++) {
        const uint8_t *data = h->pool + (uint64_t)page[i] * AUX_PAGE_BYTES;
        struct fp_aux_part *last = j->nparts > 0 ? &j->page_part[j->nparts - 1] : NULL;
        uint32_t n = left < AUX_PAGE_BYTES ? left : AUX_PAGE_BYTES;

        if (last && last->data + last->len_bytes == data)
            last->len_bytes += n;
        else
            j->page_part[j->nparts++] = (struct fp_aux_part){.data = data, .len_bytes = n};
        left -= n;
    }
    j->parts = j->page_part;
    j->npage_parts = j->nparts;
}

static void live_add(struct aux_host *h, struct aux_job *j)
{
    j->live_next = h->jobs.head;
    if (h->jobs.head)
        h->jobs.head->live_prev = j;
    h->jobs.head = j;
    h->jobs.n++;
}

static void live_remove(struct aux_host *h, struct aux_job *j)
{
    if (j->live_next)
        j->live_next->live_prev = j->live_prev;
    if (j->live_prev)
        j->live_prev->live_next = j->live_next;
    else
        h->jobs.head = j->live_next;
    h->jobs.n--;
}

struct aux_job *aux_job_new(struct aux_host *h, const struct fp_auxw_chunk_out *m, int *status)
{
    struct aux_job *j;

    *status = check(h, m);
    if (*status < 0)
        return NULL;
    j = malloc(sizeof(*j) + m->npages * sizeof(j->page_part[0]));
    *status = -ENOMEM;
    if (!j)
        return NULL;
    memset(j, 0, sizeof(*j));
    j->id = m->h.id;
    j->ino = m->ino;
    j->file_off = m->file_off;
    j->file_serial = m->file_serial;
    j->whole = m->whole != 0;
    j->no_stored = m->flags & FP_AUXW_OUT_NO_STORED;
    j->no_pieces = m->flags & FP_AUXW_OUT_NO_PIECES;
    j->skip = m->skip;
    memcpy(j->passed_bytes, m->passed_bytes, sizeof(j->passed_bytes));
    j->len_bytes = j->cur_bytes = j->new_bytes = m->len_bytes;
    j->out[AUX_IN_A] = h->region + m->out_a;
    j->out[AUX_IN_B] = h->region + m->out_b;
    j->in[AUX_IN_A] = h->region_ro + m->out_a;
    j->in[AUX_IN_B] = h->region_ro + m->out_b;
    j->out_cap_bytes = m->out_cap_bytes;
    set_parts(h, m, j);
    pthread_mutex_lock(&h->jobs.lock);
    *status = h->jobs.n >= AUX_JOBS_MAX ? -ENOBUFS : 0;
    if (*status == 0)
        live_add(h, j);
    pthread_mutex_unlock(&h->jobs.lock);
    if (*status == 0)
        return j;
    free(j);
    return NULL;
}

void aux_job_refuse(struct aux_host *h, uint64_t id, int status)
{
    struct fp_auxw_out_done m = {.h = {.type = FP_AUXW_CHUNK_OUT_DONE, .id = id}, .status = status, .app = FP_AUXW_NO_APP};
    struct iovec iov = {&m, sizeof(m)};

    aux_link_send(h, &iov, 1);
}

void aux_job_finish(struct aux_host *h, struct aux_job *j)
{
    struct fp_auxw_out_done m = {.h = {.type = FP_AUXW_CHUNK_OUT_DONE, .id = j->id}, .status = j->status, .app = j->status_app,
                                 .failed = j->failed};
    struct iovec iov[5] = {{&m, sizeof(m)}};
    int n = 1;

    pthread_mutex_lock(&h->jobs.lock);
    live_remove(h, j);
    pthread_mutex_unlock(&h->jobs.lock);
    if (j->status == 0) {
        m.ran = j->ran;
        m.npieces = j->pieces ? j->pieces->n : 0;
        m.new_bytes = j->new_bytes;
        m.nstages = j->nstages;
        m.coded_bytes = j->nstages > 0 ? j->cur_bytes : 0;
        m.where = j->nstages > 0 ? (uint32_t)j->where : 0;
        m.nkeys = j->nkeys;
        m.note_bytes = j->note_bytes;
        m.stored_app = j->stored_app;
        for (int i = 0; i < 4; i++) {
            m.ticket[i] = j->ticket[i].number;
            m.ticket_app[i] = j->ticket[i].app;
        }
        iov[n++] = (struct iovec){j->pieces ? j->pieces->v : NULL, m.npieces * sizeof(struct fp_auxw_piece)};
        iov[n++] = (struct iovec){j->stage, m.nstages * sizeof(j->stage[0])};
        iov[n++] = (struct iovec){j->keys, m.nkeys * sizeof(*j->keys)};
        iov[n++] = (struct iovec){j->note, m.note_bytes};
    }
    aux_link_send(h, iov, n);
    free(j->pieces);
    free(j->note);
    free(j->keys);
    free(j);
}

void aux_jobs_cancel(struct aux_host *h, uint64_t id, bool all)
{
    pthread_mutex_lock(&h->jobs.lock);
    for (struct aux_job *j = h->jobs.head; j; j = j->live_next) {
        if (all || j->id == id)
            atomic_store(&j->cancelled, true);
    }
    pthread_mutex_unlock(&h->jobs.lock);
}
