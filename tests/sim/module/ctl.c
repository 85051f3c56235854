/*
 * What fpctl asks the manager, as a simulated process: applications say what (tests/sim/ctl.c), and it is asked over a connection of its own, by the real client/ctl/link.c. The commands
 * themselves, which read the command line and print, are not simulated.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/ctl.h"
#include "fp/clock.h"
#include "life.pb-c.h"
#include "tests/sim/sim.h"

#define TIMEOUT_MS 5000u
#define IDLE_MS    (UINT64_C(1000) * 86400 * 365)

static void why(struct sim_ctl *q, size_t n, char **lines)
{
    if (n)
        snprintf(q->why, sizeof q->why, "%s", lines[0]);
}

static int ask_drain(struct ctl_link *l, struct sim_ctl *q)
{
    Fp__CtlDrain m = FP__CTL_DRAIN__INIT;
    ProtobufCBinaryData path = {strlen(q->path), (uint8_t *)q->path};
    ProtobufCMessage *reply = NULL;
    const Fp__CtlDrainReply *r;
    int rc;

    m.op = q->op == SIM_CTL_DRAIN ? FP__DRAIN_OP__DRAIN_OP_START : q->op == SIM_CTL_SHOW ? FP__DRAIN_OP__DRAIN_OP_SHOW : FP__DRAIN_OP__DRAIN_OP_CANCEL;
    m.id = q->job;
    if (q->op == SIM_CTL_DRAIN) {
        m.n_paths = 1;
        m.paths = &path;
        m.dest = q->dest;
        m.verify = q->verify;
    }
    rc = ctl_link_call(l, FP__MSG_TYPE__MSG_CTL_DRAIN, &m.base, &fp__ctl_drain_reply__descriptor, &reply);
    if (rc)
        return rc;
    r = (const Fp__CtlDrainReply *)reply;
    why(q, r->n_why, r->why);
    q->state = -1;
    if (q->op == SIM_CTL_DRAIN)
        q->job = r->n_ids ? r->ids[0] : 0;
    if (q->op == SIM_CTL_SHOW && r->n_jobs == 1) {
        q->state = (int)r->jobs[0]->state;
        q->files_failed = r->jobs[0]->files_failed;
        why(q, 1, &r->jobs[0]->why);
    }
    protobuf_c_message_free_unpacked(reply, NULL);
    return 0;
}

static int ask_stage(struct ctl_link *l, struct sim_ctl *q)
{
    Fp__CtlStage m = FP__CTL_STAGE__INIT;
    ProtobufCBinaryData path = {strlen(q->path), (uint8_t *)q->path};
    ProtobufCMessage *reply = NULL;
    const Fp__CtlStageReply *r;
    int rc;

    m.op = q->op == SIM_CTL_EVICT ? FP__STAGE_OP__STAGE_OP_EVICT : FP__STAGE_OP__STAGE_OP_IN;
    m.n_paths = 1;
    m.paths = &path;
    rc = ctl_link_call(l, FP__MSG_TYPE__MSG_CTL_STAGE, &m.base, &fp__ctl_stage_reply__descriptor, &reply);
    if (rc)
        return rc;
    r = (const Fp__CtlStageReply *)reply;
    why(q, r->n_why, r->why);
    q->job = r->job;
    protobuf_c_message_free_unpacked(reply, NULL);
    return 0;
}

static int ask_policy(struct ctl_link *l, struct sim_ctl *q)
{
    Fp__Policy m = FP__POLICY__INIT;
    ProtobufCMessage *reply = NULL;
    int rc;

    m.text = q->dest;
    rc = ctl_link_call(l, FP__MSG_TYPE__MSG_POLICY, &m.base, &fp__policy_reply__descriptor, &reply);
    if (rc)
        return rc;
    why(q, 1, &((Fp__PolicyReply *)reply)->why);
    protobuf_c_message_free_unpacked(reply, NULL);
    return 0;
}

static int ask_versions(struct ctl_link *l, struct sim_ctl *q)
{
    Fp__CtlVersions m = FP__CTL_VERSIONS__INIT;
    ProtobufCMessage *reply = NULL;
    const Fp__CtlVersionsReply *r;
    int rc;

    m.path = (ProtobufCBinaryData){strlen(q->path), (uint8_t *)q->path};
    rc = ctl_link_call(l, FP__MSG_TYPE__MSG_CTL_VERSIONS, &m.base, &fp__ctl_versions_reply__descriptor, &reply);
    if (rc)
        return rc;
    r = (const Fp__CtlVersionsReply *)reply;
    q->state = (int)r->n_versions;
    why(q, r->n_versions > 1, &r->versions[r->n_versions - 1]->why);
    protobuf_c_message_free_unpacked(reply, NULL);
    return 0;
}

static int ask(struct ctl_link *l, struct sim_ctl *q)
{
    switch (q->op) {
    case SIM_CTL_EVICT:
    case SIM_CTL_STAGE_IN:
        return ask_stage(l, q);
    case SIM_CTL_POLICY:
        return ask_policy(l, q);
    case SIM_CTL_VERSIONS:
        return ask_versions(l, q);
    default:
        return ask_drain(l, q);
    }
}

int main(int argc, char **argv)
{
    struct ctl_store store = {.manager = "10.0.0.1:7420"};

    fp_log_init("fpctl", FP_LOG_INFO);
    snprintf(store.key, sizeof store.key, "%s", argv[argc - 1]);
    for (;;) {
        struct ctl_link *l = NULL;
        struct sim_ctl *q = sim_ctl_next();
        int rc = ctl_link_open(&store, TIMEOUT_MS, &l);

        if (rc == 0)
            rc = ask(l, q);
        ctl_link_close(l);
        ctl_watch(IDLE_MS);
        sim_ctl_answer(q, rc);
    }
}
