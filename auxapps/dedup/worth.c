/*
 * Between dedup's workers, which ask for each chunk, and the host, which is told what need not come (see worth.h). What is decided is payoff.c's, without locks.
 *
 * What was told may be forgotten: with a changed option, with the host, or because it was refused (`required`). So chunks that come all the same
 * are a reason to say it again, one in UNWANTED of them.
 */
#include "worth.h"

#include <stdio.h>

#define UNWANTED 64u

void worth_init(struct worth *w, struct fp_aux_host *host, double least)
{
    w->host = host;
    pthread_mutex_init(&w->lock, NULL);
    pthread_mutex_init(&w->telling, NULL);
    payoff_init(&w->payoff, least);
}

void worth_fini(struct worth *w)
{
    if (!w->host)
        return;
    pthread_mutex_destroy(&w->telling);
    pthread_mutex_destroy(&w->lock);
}

/* lock held. What has been written in all, as far as one knows. */
static uint64_t written_bytes(const struct worth *w)
{
    return w->come_bytes + w->passed_bytes;
}

/* lock held. */
static struct fp_aux_skip skip_now(const struct worth *w)
{
    struct fp_aux_skip skip = { .size_bytes = sizeof(skip), .flags = FP_AUX_SKIP_BUT_ZEROS };
    const struct payoff *p = &w->payoff;

    if (p->state == PAYOFF_PAUSING && p->until_bytes > written_bytes(w)) {
        skip.bytes = p->until_bytes - written_bytes(w);
    } else if (p->state == PAYOFF_LOOKING && !p->wide) {
        skip.bytes = p->looked_bytes > 0 ? UINT64_MAX : PAYOFF_BLIND_BYTES;
        skip.step_bytes = PAYOFF_RUN_BYTES;
        skip.of = PAYOFF_RUN_OF;
        skip.come = 1;
    }
    return skip;
}

/* The host is told which chunks need not come, as it is now. Where that can't be (`required`), all of them come. */
static void tell_skip(struct worth *w)
{
    struct fp_aux_skip skip;

    pthread_mutex_lock(&w->telling);
    pthread_mutex_lock(&w->lock);
    skip = skip_now(w);
    pthread_mutex_unlock(&w->lock);
    if ((skip.bytes > 0 || w->told) && fp_aux_skip(w->host, &skip) == 0)
        w->told = skip.bytes > 0;
    pthread_mutex_unlock(&w->telling);
}

static void changed(struct worth *w, enum payoff_change change, double share)
{
    double least;
    char line[200];

    if (change == PAYOFF_AS_IT_WAS)
        return;
    tell_skip(w);
    if (change != PAYOFF_TURNED_ON && change != PAYOFF_TURNED_OFF)
        return;
    pthread_mutex_lock(&w->lock);
    least = w->payoff.least;
    pthread_mutex_unlock(&w->lock);
    fp_aux_gauge(w->host, "on", change == PAYOFF_TURNED_ON);
    snprintf(line, sizeof(line), change == PAYOFF_TURNED_ON ? "on again: %.1f %% of the samples were duplicates"
         : "off: only %.1f %% were duplicates (pays=%g%%); samples go on, and turn it on again", share * 100, least * 100);
    fp_aux_log(w->host, FP_AUX_INFO, line);
}

bool worth_wants(struct worth *w, const struct fp_aux_chunk *k)
{
    enum payoff_change change;
    bool wanted, again;

    pthread_mutex_lock(&w->lock);
    w->come_bytes += k->len_bytes;
    if (fp_aux_passed_bytes(k) > w->passed_bytes) /* workers overtake each other */
        w->passed_bytes = fp_aux_passed_bytes(k);
    change = payoff_goes_on(&w->payoff, written_bytes(w));
    wanted = payoff_wants(&w->payoff, k->file_off);
    again = !wanted && ++w->unwanted % UNWANTED == 0;
    pthread_mutex_unlock(&w->lock);
    changed(w, change, 0);
    if (again)
        tell_skip(w);
    return wanted;
}

void worth_note(struct worth *w, uint64_t looked_bytes, uint64_t same_bytes, bool alone, bool could)
{
    const struct payoff *p = &w->payoff;
    enum payoff_change change;
    double share = 0;

    pthread_mutex_lock(&w->lock);
    if (p->compared_bytes + looked_bytes > 0)
        share = (double)(p->same_bytes + same_bytes) / (double)(p->compared_bytes + looked_bytes);
    change = payoff_note(&w->payoff, looked_bytes, same_bytes, alone, could, written_bytes(w));
    pthread_mutex_unlock(&w->lock);
    changed(w, change, share);
}
