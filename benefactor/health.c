/*
 * The device's state, from the results of operations (health.h). Used by service.c on the loop's thread; no
 * I/O here.
 *
 *     OK --EIO and others--> FAILING --probe works--> OK
 *      |--EROFS-----------> READONLY --probe works--> OK
 *      `--ENOSPC, EDQUOT--> FULL ------probe works, and there is room--> OK
 *
 * A worse state replaces a better one (FULL < READONLY < FAILING). Reading goes on in all of them: what is
 * stored is not touched by a device that takes no more. FULL here is the file system below being full; a
 * store whose own size is used up is told by its free bytes.
 */
#include "benefactor/health.h"

#include <errno.h>
#include <stdio.h>

#include "fp/err.h"

#define PROBE_EVERY_MS   2000
#define ROOM_AGAIN_BYTES ((uint64_t)32 << 20) /* FULL ends when there is room for a few large chunks */

void bnf_health_init(struct bnf_health *h)
{
    *h = (struct bnf_health){.state = BNF_STATE_OK};
}

bool bnf_health_failed(struct bnf_health *h, const char *what, int rc, uint64_t now_ms)
{
    enum bnf_state state = BNF_STATE_FAILING;

    if (rc == -ENOMEM)
        return false; /* ours, not the device's */
    if (rc == -EROFS)
        state = BNF_STATE_READONLY;
    else if (rc == -ENOSPC || rc == -EDQUOT)
        state = BNF_STATE_FULL;
    h->next_probe_ms = now_ms + PROBE_EVERY_MS;
    if (state <= h->state)
        return false;
    h->state = state;
    if (state == BNF_STATE_FULL)
        snprintf(h->text, sizeof(h->text), "the file system under --dir is full (%s: %s)", what,
                 fp_strerror(rc));
    else if (state == BNF_STATE_READONLY)
        snprintf(h->text, sizeof(h->text), "the file system under --dir is read-only (%s)", what);
    else if (rc == -ETIMEDOUT)
        snprintf(h->text, sizeof(h->text), "the device under --dir does not answer (%s)", what);
    else
        snprintf(h->text, sizeof(h->text), "the device under --dir fails (%s: %s)", what, fp_strerror(rc));
    return true;
}

bool bnf_health_probe_due(struct bnf_health *h, uint64_t now_ms)
{
    if (h->state == BNF_STATE_OK || now_ms < h->next_probe_ms)
        return false;
    h->next_probe_ms = now_ms + PROBE_EVERY_MS;
    return true;
}

bool bnf_health_probed(struct bnf_health *h, int rc, uint64_t device_free_bytes, uint64_t now_ms)
{
    if (h->state == BNF_STATE_OK)
        return false;
    if (rc)
        return bnf_health_failed(h, "probe", rc, now_ms);
    if (h->state == BNF_STATE_FULL && device_free_bytes < ROOM_AGAIN_BYTES)
        return false;
    bnf_health_init(h);
    return true;
}
