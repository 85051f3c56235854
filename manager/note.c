/* Notes: what an aux-app wrote about the new data of a chunk (digests, say), kept with the chunk and gone with
 * it, and the keys by which it is found: MSG_NOTES for the chunks of a file, MSG_NOTE_FIND for the whole store.
 *
 * A note is a row of its own, not a column of chunk: maps are read through the chunk table, which stays small,
 * and a store without aux-apps pays two bits per chunk. The keys stand in the note's row once more (8 bytes
 * each), so that its deletion finds them without an index by chunk, which would double their cost.
 *
 * Answers are bounded in chunks, in bytes, and in rows looked at (of the file, and by use.c to tell how much of each
 * chunk files refer to). A chunk that is known to be damaged, or on a
 * benefactor that is away (bnf.c), is never named: nobody shall refer to it anew. With `hold`, what is named is held by the session (hold.c). An answer that is
 * kept for a replay has the numbers of chunks only; since they are held, it can be filled in again.
 *
 * Called by the core's thread, in a group. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fp/auxapp.h"
#include "manager/core_int.h"

#define NOTES_MAX       4096u
#define NOTES_BYTES_MAX ((4u << 20) - 4096u) /* of a message; the rest of the frame's limit is for its head */
#define NOTE_HEAD_BYTES 64u                  /* what a note costs in a message beside its bytes */
#define NOTES_ROWS_MAX  16384u               /* slices looked at for one answer */
#define USE_ROWS_MAX    65536u               /* slices of any file looked at for it */
#define FIND_KEYS_MAX   1024u
#define FIND_PER_KEY    8u /* the newest */

/* ---------------------------------------------------------------- kept with the chunk */

bool mgr_note_fits(const Fp__Chunk *m)
{
    return m->note.len <= FP_AUX_NOTE_MAX_BYTES && m->n_note_keys <= FP_AUX_NOTE_KEYS_MAX;
}

static int by_key(const void *a, const void *b)
{
    const struct mgr_note_key *x = a, *y = b;

    return x->key < y->key ? -1 : x->key > y->key;
}

int mgr_notes_put_keys(struct mgr_core *c, struct mgr_note_key *list, size_t n)
{
    int rc = 0;

    if (n)
        qsort(list, n, sizeof *list, by_key);
    for (size_t i = 0; i < n && !rc; i++)
        rc = mgr_db_exec(&c->db, NOTE_KEY_PUT, DBI(list[i].key), DBI(list[i].chunk));
    return rc;
}

int mgr_note_put(struct mgr_core *c, const Fp__Chunk *m)
{
    uint8_t keys[FP_AUX_NOTE_KEYS_MAX * 8];

    for (size_t i = 0; i < m->n_note_keys; i++)
        for (size_t k = 0; k < 8; k++)
            keys[i * 8 + k] = (uint8_t)(m->note_keys[i] >> 8 * k);
    return mgr_db_exec(&c->db, NOTE_PUT, DBI(m->id), DBB(m->note.data, m->note.len), DBB(keys, m->n_note_keys * 8));
}

int mgr_note_drop(struct mgr_core *c, uint64_t chunk)
{
    uint8_t keys[FP_AUX_NOTE_KEYS_MAX * 8];
    const void *p;
    size_t len;
    int rc = mgr_db_one(&c->db, NOTE_KEYS, DBI(chunk));

    if (rc <= 0)
        return rc;
    p = mgr_col_blob(&c->db, MGR_ST_NOTE_KEYS, 0, &len);
    len = len < sizeof keys ? len : sizeof keys;
    memcpy(keys, p, len);
    mgr_db_reset(&c->db, MGR_ST_NOTE_KEYS);
    rc = mgr_db_exec(&c->db, NOTE_DELETE, DBI(chunk));
    for (size_t i = 0; i + 8 <= len && !rc; i += 8) {
        uint64_t key = 0;

        for (size_t k = 0; k < 8; k++)
            key |= (uint64_t)keys[i + k] << 8 * k;
        rc = mgr_db_exec(&c->db, NOTE_KEY_DELETE, DBI(key), DBI(chunk));
        c->keys_dropped++;
    }
    return rc;
}

/* ---------------------------------------------------------------- an answer */

struct answer {
    Fp__NotesReply *r;
    struct mgr_map seen; /* chunks */
    size_t bytes;
    uint32_t rows; /* of use.c */
    bool full;
};

static int begin(struct mgr_core *c, struct answer *a)
{
    *a = (struct answer){.r = MGR_NEW(c, Fp__NotesReply, fp__notes_reply__init)};
    if (!a->r || !(a->r->notes = mgr_arena_alloc(&c->arena, NOTES_MAX * sizeof *a->r->notes)))
        return mgr_doom(c, -ENOMEM);
    return 0;
}

/* Fills note, lengths and use in from the tables. 1, 0: there is no note, or a failure. */
static int fill(struct mgr_core *c, Fp__ChunkNote *n, uint32_t *rows)
{
    const enum mgr_stmt st = MGR_ST_NOTE_GET;
    const void *p;
    int rc = mgr_db_one(&c->db, NOTE_GET, DBI(n->chunk));

    if (rc <= 0)
        return rc;
    p = mgr_col_blob(&c->db, st, 0, &n->note.len);
    n->note.data = mgr_arena_copy(&c->arena, p, n->note.len);
    n->len = (uint32_t)mgr_col(&c->db, st, 1);
    n->coded_len = (uint32_t)mgr_col(&c->db, st, 2);
    n->data_len = n->coded_len ? n->coded_len : n->len;
    n->sum = (uint64_t)mgr_col(&c->db, st, 3);
    n->bnf = (uint32_t)mgr_col(&c->db, st, 4);
    mgr_db_reset(&c->db, st);
    if (!n->note.data)
        return mgr_doom(c, -ENOMEM);
    rc = mgr_chunk_unused(c, n->chunk, n->data_len, rows, &n->unused_len);
    return rc < 0 ? rc : 1;
}

/* For who wants to know whether what it stores anew has room. Garbage goes by itself, and a benefactor that says it is full
 * has given its space to mounts, which need not have used it. Each mount that holds chunks is told its part: they ask at
 * the same moment, when they write a step together. */
static uint64_t all_free_bytes(const struct mgr_core *c)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < c->bnf_count; i++) {
        const struct mgr_bnf *b = c->bnfs[i];
        Fp__BnfState state = mgr_bnf_state(b);

        if ((state == FP__BNF_STATE__BNF_OK || state == FP__BNF_STATE__BNF_FULL) && b->capacity > b->stored)
            sum += b->capacity - b->stored;
    }
    return sum;
}

/* Adds a chunk if it has a note and is not there yet; sets full instead when there is no room. */
static int add(struct mgr_core *c, struct answer *a, uint64_t chunk)
{
    Fp__ChunkNote *n = NULL;
    const struct mgr_bnf *b;
    int rc;

    if (mgr_map_get(&a->seen, chunk))
        return 0;
    if (mgr_map_reserve(&a->seen) || !(n = MGR_NEW(c, Fp__ChunkNote, fp__chunk_note__init)))
        return mgr_doom(c, -ENOMEM);
    mgr_map_add(&a->seen, chunk);
    if ((rc = mgr_damage_has(c, chunk, NULL)) != 0)
        return rc < 0 ? rc : 0;
    n->chunk = chunk;
    rc = fill(c, n, &a->rows);
    if (rc <= 0)
        return rc;
    b = mgr_bnf_find(c, n->bnf);
    if (!b || !mgr_bnf_vouched(b))
        return 0;
    a->full = a->rows > USE_ROWS_MAX || a->r->n_notes == NOTES_MAX || a->bytes + n->note.len + NOTE_HEAD_BYTES > NOTES_BYTES_MAX;
    if (a->full)
        return 0;
    a->bytes += n->note.len + NOTE_HEAD_BYTES;
    a->r->notes[a->r->n_notes++] = n;
    return 0;
}

/* Holds what the answer names, and makes what is kept of it. An answer without holds changes nothing, and is
 * not kept: sent again, the request may be executed again. */
static int finish(struct mgr_core *c, struct mgr_req *rq, struct answer *a, bool hold, bool slot)
{
    Fp__NotesReply *r = a->r, *kept;
    int rc = 0;

    mgr_map_fini(&a->seen);
    r->free_bytes = all_free_bytes(c) / mgr_holders(c);
    rq->reply = &r->base;
    rq->forget = !hold;
    for (size_t i = 0; hold && i < r->n_notes && !rc; i++)
        rc = mgr_chunk_hold(c, rq->sess->id, r->notes[i]->chunk);
    if (rc || !hold || !slot)
        return rc;
    kept = mgr_arena_copy(&c->arena, r, sizeof *r);
    if (!kept || !(kept->notes = mgr_arena_alloc(&c->arena, (r->n_notes + 1) * sizeof *kept->notes)))
        return mgr_doom(c, -ENOMEM);
    for (size_t i = 0; i < r->n_notes; i++) {
        kept->notes[i] = MGR_NEW(c, Fp__ChunkNote, fp__chunk_note__init);
        if (!kept->notes[i])
            return mgr_doom(c, -ENOMEM);
        kept->notes[i]->chunk = r->notes[i]->chunk;
    }
    rq->kept = &kept->base;
    return 0;
}

int mgr_notes_replay(struct mgr_core *c, Fp__NotesReply *r)
{
    uint32_t rows = 0;
    size_t n = 0;

    for (size_t i = 0; i < r->n_notes; i++) {
        int rc = fill(c, r->notes[i], &rows);

        if (rc < 0)
            return rc;
        if (rc) /* always, unless it was released meanwhile */
            r->notes[n++] = r->notes[i];
    }
    r->n_notes = n;
    r->free_bytes = all_free_bytes(c) / mgr_holders(c);
    return 0;
}

/* ---------------------------------------------------------------- of a file */

/* An answer ends at a window. Of a window that is too much for one answer by itself, what does not fit is left out. */
static int walk(struct mgr_core *c, uint64_t ino, uint64_t from, struct answer *a)
{
    const enum mgr_stmt st = MGR_ST_SLICE_FROM;
    uint64_t first = 0, win = 0;
    uint32_t rows = 0;
    size_t mark = 0;
    int err = 0, rc = mgr_db_one(&c->db, SLICE_FROM, DBI(ino), DBI(from), DBI(0), DBI(INT64_MAX), DBI(-1));

    for (; rc > 0; rc = mgr_db_step(&c->db, st)) {
        uint64_t at = (uint64_t)mgr_col(&c->db, st, 0);

        first = rows ? first : at;
        mark = at != win ? a->r->n_notes : mark;
        win = at;
        if (rows++ < NOTES_ROWS_MAX)
            err = add(c, a, (uint64_t)mgr_col(&c->db, st, 3));
        if (err || a->full || rows > NOTES_ROWS_MAX)
            break;
    }
    mgr_db_reset(&c->db, st);
    a->r->eof = rc == 0;
    a->r->win_end = rows ? win + 1 : from;
    if (rc > 0 && win != first) {
        a->r->n_notes = mark;
        a->r->win_end = win;
    }
    return rc < 0 ? rc : err;
}

MGR_HANDLER(notes)
{
    const Fp__Notes *m = msg;
    struct mgr_inode in;
    struct answer a;
    int rc = mgr_inode_get(c, m->ino, &in);

    if (!rc && (!mgr_is(&in, S_IFREG) || m->win_from > INT64_MAX))
        rc = -EINVAL;
    rc = rc ? rc : mgr_inode_usable(c, &in);
    rc = rc ? rc : begin(c, &a);
    if (rc)
        return rc;
    rc = walk(c, m->ino, m->win_from, &a);
    if (rc)
        mgr_map_fini(&a.seen);
    return rc ? rc : finish(c, rq, &a, m->hold, m->slot != 0);
}

/* ---------------------------------------------------------------- of the store */

static int find(struct mgr_core *c, uint64_t key, struct answer *a)
{
    const enum mgr_stmt st = MGR_ST_NOTE_KEY_FIND;
    uint32_t n = 0;
    int err = 0, rc = mgr_db_one(&c->db, NOTE_KEY_FIND, DBI(key), DBI(FIND_PER_KEY + 1));

    for (; rc > 0; rc = mgr_db_step(&c->db, st)) {
        if (n++ < FIND_PER_KEY)
            err = add(c, a, (uint64_t)mgr_col(&c->db, st, 0));
        if (err || a->full || n > FIND_PER_KEY)
            break;
    }
    mgr_db_reset(&c->db, st);
    a->r->eof &= rc == 0;
    return rc < 0 ? rc : err;
}

MGR_HANDLER(note_find)
{
    const Fp__NoteFind *m = msg;
    struct answer a;
    int rc = m->n_keys > FIND_KEYS_MAX ? -E2BIG : begin(c, &a);

    if (rc)
        return rc;
    a.r->eof = true;
    for (size_t i = 0; i < m->n_keys && !rc && !a.full; i++)
        rc = find(c, m->keys[i], &a);
    if (rc)
        mgr_map_fini(&a.seen);
    return rc ? rc : finish(c, rq, &a, m->hold, m->slot != 0);
}
