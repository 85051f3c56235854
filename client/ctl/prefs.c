/* fpctl benefactor set: what a benefactor offers to draining, changed while it runs.
 *
 * The manager checks it and tells the benefactors; they say what they offer with their next keep-alive, which fpctl benefactors shows. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/cmd.h"
#include "fp/log.h"
#include "life.pb-c.h"

static int run(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    Fp__CtlBnfSet q = FP__CTL_BNF_SET__INIT;
    const Fp__CtlBnfSetReply *r;
    ProtobufCMessage *reply = NULL;
    char name[64];
    const char *eq = strchr(o->names[1], '=');
    int rc;

    (void)store;
    if (!eq || eq == o->names[1] || (size_t)(eq - o->names[1]) >= sizeof name) {
        FP_ERROR("'%s': write NAME=VALUE", o->names[1]);
        return -EINVAL;
    }
    snprintf(name, sizeof name, "%.*s", (int)(eq - o->names[1]), o->names[1]);
    q.who = (char *)(uintptr_t)o->names[0];
    q.name = name;
    q.value = (char *)(uintptr_t)(eq + 1);
    rc = ctl_link_call(l, FP__MSG_TYPE__MSG_CTL_BNF_SET, &q.base, &fp__ctl_bnf_set_reply__descriptor, &reply);
    if (rc < 0)
        return ctl_link_failed(l, rc, "benefactor set");
    r = (const Fp__CtlBnfSetReply *)reply;
    for (size_t i = 0; i < r->n_why; i++)
        FP_ERROR("%s", r->why[i]);
    if (r->n_why)
        rc = -EINVAL;
    else if (o->json)
        rc = ctl_json_print(json_pack("{s:I}", "told", (json_int_t)r->told));
    else
        printf("%u told\n", r->told);
    protobuf_c_message_free_unpacked(reply, NULL);
    return rc < 0 || o->json ? rc : ctl_flush();
}

const struct ctl_cmd ctl_cmd_benefactor_set = {
    .words = "benefactor set",
    .args = "WHO NAME=VALUE [PATH]",
    .options = "",
    .help = "Changes what benefactors do for draining, until they end: drain=on|off, hold=on|off (off: goes on where it was), max=RATE (to each target; 0: no limit), threads=N (of those that start from now).",
    .more = "WHO is a node, a number as fpctl benefactors lists them, or all.",
    .run = run,
};
