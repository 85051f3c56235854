/*
 * What a host whose memory a plugin has scribbled over answers to a chunk (client/aux/result.c, client/data/pieces.c).
 *
 * The message is built from the input: counts that fit and that do not, pieces with and without gaps, stages, keys, a note; a byte of it may be
 * turned, and its end may be missing. It lies in memory of exactly its size. What is taken is walked as the data path does, and merged and
 * limited; the pieces must still describe the window.
 */
#include <stdlib.h>
#include <string.h>

#include "client/aux/internal.h"
#include "client/data/pieces.h"
#include "tests/fuzz/fuzz.h"

#define CAP (1u << 20)

static size_t build(struct fuzz_in *in, uint8_t *msg, uint32_t len_bytes)
{
    struct fp_auxw_out_done d = {.h.type = FP_AUXW_CHUNK_OUT_DONE};
    uint8_t *at = msg + sizeof d;
    uint32_t n = fuzz_u8(in) % 64, off = 0, fresh = 0;
    struct fp_auxw_piece p[64] = {0};

    for (uint32_t i = 0; i < n; i++) {
        uint32_t left = len_bytes - off;

        p[i].kind = (uint16_t)(fuzz_u8(in) % 5);
        p[i].off = fuzz_u8(in) < 250 ? off : (uint32_t)fuzz_number(in);
        p[i].len_bytes = i + 1 == n ? left : left ? 1 + fuzz_u16(in) % (left < 65536 ? left : 65536) : 0;
        p[i].at = p[i].kind == FP_AUXW_PIECE_NEW ? fresh : fresh ? fuzz_u16(in) % fresh : 0;
        if (fuzz_u8(in) > 250)
            p[i].at = (uint32_t)fuzz_number(in);
        p[i].chunk = p[i].kind == FP_AUXW_PIECE_STORED ? 1 + fuzz_u8(in) % 3 : 0;
        fresh += p[i].kind == FP_AUXW_PIECE_NEW ? p[i].len_bytes : 0;
        off += p[i].len_bytes;
    }
    d.npieces = n;
    d.new_bytes = n ? fresh : len_bytes;
    memcpy(at, p, n * sizeof *p);
    at += n * sizeof *p;
    d.nstages = fuzz_u8(in) % 10;
    d.coded_bytes = d.new_bytes;
    for (uint32_t i = 0; i < d.nstages; i++) {
        struct fp_auxw_stage s = {"compress", d.coded_bytes, d.coded_bytes - fuzz_u8(in) % 4};

        if (fuzz_u8(in) > 250)
            fuzz_bytes(in, (uint8_t *)&s, sizeof s);
        d.coded_bytes = s.out_bytes;
        memcpy(at, &s, sizeof s);
        at += sizeof s;
    }
    d.where = d.nstages ? 1 + fuzz_u8(in) % 2 : 0;
    d.nkeys = fuzz_u8(in) % 32;
    memset(at, 5, d.nkeys * 8);
    at += d.nkeys * 8;
    d.note_bytes = fuzz_u8(in);
    memset(at, 6, d.note_bytes);
    at += d.note_bytes;
    d.status = fuzz_u8(in) > 250 ? (int32_t)-fuzz_number(in) : 0;
    d.h.len_bytes = (uint32_t)(at - msg);
    memcpy(msg, &d, sizeof d);
    return (size_t)(at - msg);
}

static void use(struct cl_aux_job *job)
{
    struct fp_auxw_piece *p = malloc((job->npieces + 1) * sizeof *p);
    volatile uint8_t sink = 0;
    uint32_t n, fresh = job->new_bytes;

    for (uint32_t i = 0; i < job->note_bytes; i++)
        sink = (uint8_t)(sink ^ job->note[i]);
    for (uint32_t i = 0; i < job->nkeys; i++)
        sink = (uint8_t)(sink ^ job->keys[i]);
    for (uint32_t i = 0; i < job->nstages; i++)
        sink = (uint8_t)(sink ^ strlen(job->stages[i].name));
    memcpy(p, job->pieces, job->npieces * sizeof *p);
    n = job->npieces ? cl_pieces_merge(p, job->npieces) : 0;
    FUZZ_CHECK(n <= job->npieces);
    FUZZ_CHECK(cl_pieces_check(p, n, job->len_bytes, job->new_bytes) == 0);
    if (n > 0) {
        n = cl_pieces_limit(p, n, 1 + job->len_bytes % 5, &fresh);
        FUZZ_CHECK(n <= 5 && cl_pieces_check(p, n, job->len_bytes, fresh) == 0);
    }
    free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static uint8_t buf[FP_AUXW_MESSAGE_MAX_BYTES];
    struct fuzz_in in = {data, data + len};
    struct cl_aux_job job = {.len_bytes = 1 + fuzz_u32(&in) % CAP};
    uint8_t harm = fuzz_u8(&in), *msg;
    size_t n = build(&in, buf, job.len_bytes);
    struct fp_auxw_head *h;
    void *copy = NULL;
    int rc;

    if (harm > 200)
        for (int i = 0; i < harm % 4 + 1; i++)
            buf[fuzz_u16(&in) % (harm % 2 ? sizeof(struct fp_auxw_out_done) : n)] = fuzz_u8(&in);
    if (harm > 240)
        n = sizeof(*h) + fuzz_u16(&in) % (n - sizeof(*h));
    msg = malloc(n);
    memcpy(msg, buf, n);
    h = (struct fp_auxw_head *)(void *)msg;
    h->len_bytes = (uint32_t)n; /* link.c has made sure of that */
    rc = cl_aux_result_parse(&job, h, CAP + 65536, buf, buf, &copy);
    FUZZ_CHECK(rc < 0 || (rc == 0 && job.status <= 0));
    free(msg); /* the result must not point into it */
    if (rc == 0 && job.status == 0)
        use(&job);
    free(copy);
    return 0;
}
