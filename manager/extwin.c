/* Windows of which all is had from a target: one chunk of data that is external from the beginning takes the place of all that a window had.
 *
 * A chunk that is coded, or of which a file does not name all bytes side by side, is not to be found together in the file's copy. The window is, if all of it is written and the
 * drain told its sum. So what is evicted (evict.c), and what was lost here (rescue_win.c), and can't become external by itself, does so as a window:
 *
 *     before   |aaaa|bbbbbb|aaaaaaa|     a, b: coded, or longer than that, or shared
 *     after    |xxxxxxxxxxxxxxxxxxx|     x: external, chunk.sum is that of the window; a and b have one reference less for each slice
 *
 * Nothing else changes: neither size nor data_version of the file, and who folds the window meanwhile has another sum of its map (fold.c). Who calls makes sure that the copy is there,
 * and marked as needed.
 *
 * Called by the core's thread, in a group. */
#include "manager/ext.h"

#include <assert.h>
#include <errno.h>

#include "manager/foreign.h"
#include "manager/level.h"

uint32_t mgr_extwin_len(const struct mgr_inode *in, uint64_t win)
{
    uint64_t begin = win * in->chunk_size;

    return begin >= in->size ? 0 : in->size - begin < in->chunk_size ? (uint32_t)(in->size - begin) : (uint32_t)in->chunk_size;
}

int mgr_extwin_sum(struct mgr_core *c, uint64_t ino, uint64_t tfile, uint64_t win, struct mgr_extwin_sums *s, uint64_t *sum)
{
    int rc = s->of && s->ino == ino && s->tfile == tfile ? 0 : mgr_drained_sums(c, ino, tfile, &s->of, &s->bytes);

    s->ino = ino;
    s->tfile = tfile;
    *sum = 0;
    for (size_t i = 0; !rc && i < 8 && (win + 1) * 8 <= s->bytes; i++)
        *sum |= (uint64_t)s->of[win * 8 + i] << 8 * i;
    return rc;
}

/* What is being drained of its chunks is over, as if each had left its benefactor. */
static int chunks_leave(struct mgr_core *c, const struct mgr_inode *in, uint64_t win)
{
    uint64_t *list;
    size_t n;
    int rc = mgr_ids(c, MGR_ST_EVICT_CHUNKS, mgr_db_one(&c->db, EVICT_CHUNKS, DBI(in->ino), DBI(win)), &list, &n);

    for (size_t i = 0; i < n && rc >= 0; i++)
        rc = mgr_drain_chunk_left(c, list[i]);
    return rc < 0 ? rc : 0;
}

int mgr_extwin_put(struct mgr_core *c, struct mgr_inode *in, uint64_t win, uint64_t sum, uint64_t tfile)
{
    Fp__Slice *s = MGR_NEW(c, Fp__Slice, fp__slice__init);
    struct mgr_chunk ch = {.len = mgr_extwin_len(in, win), .sum = sum, .refs = 1};
    uint64_t mapped = in->mapped;
    int rc = mgr_stage_ids(c, 1, &ch.id);

    if (!s)
        return mgr_doom(c, -ENOMEM);
    s->win = win;
    s->chunk = ch.id;
    s->len = s->chunk_len = ch.len;
    rc = rc ? rc : chunks_leave(c, in, win);
    rc = rc ? rc : mgr_chunk_insert(c, &ch);
    rc = rc ? rc : mgr_slices_put(c, in, &s, 1);
    rc = rc ? rc : mgr_ext_put(c, ch.id, tfile, win * in->chunk_size);
    assert(rc || in->mapped == mapped); /* all of it was written: the inode stays as it is */
    mgr_level_chunks(c);
    return rc;
}
