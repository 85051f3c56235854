/* peer: the aux-apps of all nodes count together how many bytes of checkpoints they have seen.
 *
 * Shows messages between nodes and the shared table (the paper, section III.A: aux-apps of different nodes can work together). Each sealed
 * file is told to all others; `fpctl auxapps` shows the same total on every node. The table keeps each node's own total, so that a mount that
 * comes later, or back, knows what was before.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/auxapp.h"

struct peer { struct fp_aux_host *host; uint64_t ours, theirs; };

static int sealed(void *state, struct fp_aux_call *call, const struct fp_aux_file *file)
{
    struct peer *p = state;
    uint64_t bytes = file->len_bytes;
    const char *node = fp_aux_node(p->host);
    int sent;

    (void)call;
    p->ours += bytes;
    if (*node)
        (void)fp_aux_table_put(p->host, node, (uint32_t)strnlen(node, FP_AUX_KEY_MAX_BYTES), &p->ours, sizeof(p->ours), false);
    sent = fp_aux_send(p->host, NULL, 0, &bytes, sizeof(bytes));
    if (sent < 0)
        return sent;
    fp_aux_count(p->host, "messages sent", sent);
    fp_aux_gauge(p->host, "bytes of all nodes", (int64_t)(p->ours + p->theirs));
    return 0;
}

static int message(void *state, struct fp_aux_call *call, const struct fp_aux_message *m)
{
    struct peer *p = state;
    uint64_t bytes;

    (void)call;
    if (m->len_bytes != sizeof(bytes))
        return -EBADMSG;
    memcpy(&bytes, m->data, sizeof(bytes));
    p->theirs += bytes;
    fp_aux_count(p->host, "messages received", 1);
    fp_aux_gauge(p->host, "bytes of all nodes", (int64_t)(p->ours + p->theirs));
    return 0;
}

static int start(struct fp_aux_host *host, void **state)
{
    struct peer *p = calloc(1, sizeof(*p));
    const char *node = fp_aux_node(host);
    uint32_t len = sizeof(p->ours);

    if (!p)
        return -ENOMEM;
    p->host = host;
    if (*node && fp_aux_table_get(host, node, (uint32_t)strnlen(node, FP_AUX_KEY_MAX_BYTES), &p->ours, &len) != 0)
        p->ours = 0;
    *state = p;
    return 0;
}

static void stop(void *state)
{
    free(state);
}

static const struct fp_aux_app app = {
    .abi = FP_AUX_ABI, .size_bytes = sizeof(app), .name = "peer", .version = "1", .summary = "nodes count the bytes they see together",
    .start = start, .stop = stop, .file_sealed = sealed, .message = message,
};
FP_AUX_APP(app)
