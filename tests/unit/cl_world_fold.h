/* The part of the model of the manager that is about folding windows. Included by cl_world_mgr.c, once: it works on what is static there. */
#ifndef TESTS_CL_WORLD_FOLD_H
#define TESTS_CL_WORLD_FOLD_H

#define FOLDS_MAX 64

static uint64_t nfolds, nfolds_lost;
void (*world_before_fold)(void);

/* Of a window: what folding its own chunks would be, with the sum of its map. */
static void fold_of(const struct mfile *f, uint64_t win, Fp__Fold *o)
{
    uint64_t stored = 0, data = 0, end = UINT64_MAX;

    fp__fold__init(o);
    o->win = win;
    o->map_sum = 1;
    for (size_t i = 0; i < f->n; i++) {
        const struct mslice *s = &f->s[i];
        const struct mchunk *c = chunk_of(s->chunk);
        uint32_t here = 0;
        bool first = true;

        if (s->off / f->window != win)
            continue;
        for (size_t k = 0; k < f->n; k++) {
            bool same = f->s[k].chunk == s->chunk && f->s[k].off / f->window == win;

            here += same;
            first &= !same || k >= i;
        }
        o->map_sum = (o->map_sum + s->off * 31 + s->len * 17 + s->chunk * 7 + s->chunk_off + (here == c->refs)) * 0x9E3779B97F4A7C15u;
        if (here != c->refs || c->data_len)
            continue;
        stored += first ? c->stored_bytes : 0;
        data += s->len;
        o->slices++;
        o->ranges += s->off != end;
        end = s->off + s->len;
    }
    o->new_bytes = fp_record_size_bytes((uint32_t)data);
    o->gain_bytes = stored > o->new_bytes ? stored - o->new_bytes : 0;
}

static Fp__Fold *fold_at(const struct mfile *f, uint64_t win, Fp__Fold *o)
{
    fold_of(f, win, o);
    return o;
}

static bool is_own(const struct mfile *f, const struct mslice *s)
{
    uint32_t here = 0;

    for (size_t k = 0; k < f->n; k++)
        here += f->s[k].chunk == s->chunk && f->s[k].off / f->window == s->off / f->window;
    return here == chunk_of(s->chunk)->refs && !chunk_of(s->chunk)->data_len;
}

/* Of the windows that a commit is about. */
static size_t fold_hints(const struct mfile *f, const Fp__Commit *m, Fp__Fold *fold, Fp__Fold **list)
{
    size_t n = 0;

    for (size_t i = 0; i < m->n_slices && n < FOLDS_MAX; i++) {
        if (i > 0 && m->slices[i]->win == m->slices[i - 1]->win)
            continue;
        fold_of(f, m->slices[i]->win, &fold[n]);
        list[n] = &fold[n];
        n += fold[n].gain_bytes > 0;
    }
    return n;
}

/* Its window is not as it was when it was made. */
static bool fold_is_lost(const struct mfile *f, const Fp__Commit *r)
{
    Fp__Fold now;

    WORLD_CHECK(r->n_slices > 0 && r->size_bytes == 0 && r->mtime_ns == 0);
    fold_of(f, r->slices[0]->win, &now);
    nfolds++;
    nfolds_lost += now.map_sum != r->fold_map_sum;
    return now.map_sum != r->fold_map_sum;
}

static int drop_fold(const struct mfile *f, const Fp__Commit *r, ProtobufCMessage **out)
{
    Fp__CommitReply a = FP__COMMIT_REPLY__INIT;
    Fp__Attr attr;

    for (size_t i = 0; i < r->n_chunks; i++)
        world_bnf_delete(r->chunks[i]->bnf, r->chunks[i]->id);
    fill_attr(f, &attr);
    a.attr = &attr;
    a.version_before = f->version;
    a.fold_lost = true;
    *out = world_copy(&a.base);
    return 0;
}

uint64_t world_folds(uint64_t *lost)
{
    uint64_t n;

    pthread_mutex_lock(&lock);
    n = nfolds;
    *lost = nfolds_lost;
    pthread_mutex_unlock(&lock);
    return n;
}

#endif
