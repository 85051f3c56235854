/*
 * The tree of agents (see tree.h). Called by the agents, by fp-job start, which is above the root, and by its tests.
 *
 * What is known of nodes travels upwards as runs of ranks with the same state and text: a job of 10,000 nodes that are all ready is a few bytes in each
 * message, whoever sends it. A state is told again after a connection was lost, and hearing it twice changes nothing, so nothing is acknowledged.
 */
#include "jobscripts/agent/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "job.pb-c.h"

uint32_t job_tree_parent(uint32_t rank, uint32_t fanout)
{
    return (rank - 1) / fanout;
}

uint32_t job_tree_climb(uint32_t above, uint32_t fanout)
{
    return above ? job_tree_parent(above, fanout) : 0;
}

uint32_t job_tree_depth(uint32_t rank, uint32_t fanout)
{
    uint32_t n = 0;

    for (; rank; rank = job_tree_parent(rank, fanout))
        n++;
    return n;
}

uint64_t job_ran_tick(struct job_ran *r, uint64_t now_ms)
{
    uint64_t step_ms = now_ms - r->last_ms;

    r->ms += !r->ms ? 1 : step_ms < JOB_STEP_MS ? step_ms : JOB_STEP_MS;
    r->last_ms = now_ms;
    return r->ms;
}

int job_states_init(struct job_states *s, uint32_t n)
{
    memset(s, 0, sizeof *s);
    s->nodes = calloc(n, sizeof *s->nodes);
    if (!s->nodes)
        return -ENOMEM;
    s->n = n;
    s->of[FP__JOB_NODE_STATE__JOB_NODE_NONE] = n;
    return 0;
}

void job_states_fini(struct job_states *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        free(s->nodes[i].text);
    free(s->nodes);
    memset(s, 0, sizeof *s);
}

static bool same_text(const struct job_node *n, const char *text)
{
    return strncmp(n->text ? n->text : "", text, JOB_TEXT_BYTES_MAX) == 0;
}

static bool set_one(struct job_states *s, struct job_node *n, int state, const char *text)
{
    char *copy = NULL;

    if (n->state == FP__JOB_NODE_STATE__JOB_NODE_ENDED || (n->state == state && same_text(n, text)))
        return false;
    if (text[0] && !(copy = strndup(text, JOB_TEXT_BYTES_MAX)))
        return false; /* told again with the next state */
    free(n->text);
    n->text = copy;
    s->of[n->state]--;
    s->of[state]++;
    n->state = (uint8_t)state;
    n->fresh = true;
    return true;
}

bool job_states_set(struct job_states *s, uint32_t first, uint32_t count, int state, const char *text)
{
    bool news = false;

    if (first >= s->n || state <= FP__JOB_NODE_STATE__JOB_NODE_NONE || state >= (int)JOB_STATES)
        return false;
    if (count > s->n - first)
        count = s->n - first;
    for (uint32_t i = first; i < first + count; i++)
        news |= set_one(s, &s->nodes[i], state, text ? text : "");
    return news;
}

void job_states_miss(struct job_states *s, uint32_t rank, uint64_t ran_ms)
{
    struct job_node *n = &s->nodes[rank];

    if (n->state == FP__JOB_NODE_STATE__JOB_NODE_ENDED)
        return;
    s->missed += !n->missed;
    n->missed = true;
    n->missed_ms = (uint32_t)ran_ms;
}

void job_states_back(struct job_states *s, uint32_t rank)
{
    s->missed -= s->nodes[rank].missed;
    s->nodes[rank].missed = false;
}

bool job_states_give_up(struct job_states *s, uint64_t ran_ms, const char *text)
{
    bool news = false;

    for (uint32_t i = 0; s->missed && i < s->n; i++)
        if (s->nodes[i].missed && (uint32_t)ran_ms - s->nodes[i].missed_ms >= JOB_AGAIN_MS) {
            job_states_back(s, i);
            news |= set_one(s, &s->nodes[i], FP__JOB_NODE_STATE__JOB_NODE_FAILED, text);
        }
    return news;
}

static bool wanted(const struct job_node *n, bool all)
{
    return all ? n->state != FP__JOB_NODE_STATE__JOB_NODE_NONE : n->fresh;
}

bool job_states_next(struct job_states *s, uint32_t *at, bool all, struct job_run *out)
{
    uint32_t i = *at;

    while (i < s->n && !wanted(&s->nodes[i], all))
        i++;
    *at = i;
    if (i >= s->n)
        return false;
    *out = (struct job_run){.first = i, .state = s->nodes[i].state, .text = s->nodes[i].text ? s->nodes[i].text : ""};
    for (; i < s->n && wanted(&s->nodes[i], all) && s->nodes[i].state == out->state && same_text(&s->nodes[i], out->text); i++)
        s->nodes[i].fresh = false;
    out->count = i - out->first;
    *at = i;
    return true;
}

uint32_t job_states_alike(const struct job_states *s, bool *told, uint32_t *ranks, const struct job_node **of)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->n; i++) {
        const struct job_node *node = &s->nodes[i];

        if (told[i] || (n && (node->state != (*of)->state || !same_text(node, (*of)->text ? (*of)->text : ""))))
            continue;
        if (!n)
            *of = node;
        told[i] = true;
        ranks[n++] = i;
    }
    return n;
}
