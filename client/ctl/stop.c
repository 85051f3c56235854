/* fpctl stop: asks the manager to end the store, and waits until it has.
 *
 * The manager tells mounts and benefactors to end cleanly, answers, and ends itself. We have seen the end when our connection
 * is closed and, for a manager of this machine, when its process is gone too: then its directory may be used again at once. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/ctl/cmd.h"
#include "fp/clock.h"
#include "fp/err.h"

/* pid is a running fp-manager here. A zombie does not count: its parent may never ask. */
static bool runs(uint64_t pid)
{
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%llu/stat", (unsigned long long)pid);
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    bool got = fgets(line, sizeof line, f) != NULL;
    fclose(f);
    const char *end = strrchr(line, ')');
    return got && strstr(line, "(fp-manager)") && end && end[1] && end[2] != 'Z' && end[2] != 'X';
}

static int wait_gone(struct ctl_link *l, uint64_t pid, uint64_t wait_ms)
{
    static const struct timespec pause = {0, 20000000};
    uint64_t until = fp_now_ms() + wait_ms;
    int rc = ctl_link_wait_closed(l, wait_ms);
    while (rc == 0 && ctl_link_is_local(l) && runs(pid)) {
        if (fp_now_ms() >= until)
            return FP_EDEADLINE;
        nanosleep(&pause, NULL);
    }
    return rc;
}

static int run(const struct ctl_options *o, const struct ctl_store *store, struct ctl_link *l)
{
    Fp__CtlStatusReply *r = NULL;
    int rc = ctl_ask_status(l, &r);
    if (rc < 0)
        return rc;
    uint64_t pid = r->pid;
    fp__ctl_status_reply__free_unpacked(r, NULL);
    rc = ctl_link_call(l, FP__MSG_TYPE__MSG_CTL_STOP, NULL, NULL, NULL);
    if (rc < 0 && rc != FP_EPEER_GONE && rc != -ECONNRESET)
        return ctl_link_failed(l, rc, "stop");
    ctl_watch(o->limit_ms + 2000);
    rc = wait_gone(l, pid, o->limit_ms);
    if (rc < 0) {
        FP_ERROR("the manager at %s is still there after %u ms; it was told to stop (--timeout)", store->manager,
                 (unsigned)o->limit_ms);
        return rc;
    }
    if (o->json)
        return ctl_json_print(json_pack("{s:s, s:b}", "manager", store->manager, "stopped", 1));
    printf("the manager at %s has ended\n", store->manager);
    return ctl_flush();
}

const struct ctl_cmd ctl_cmd_stop = {
    .words = "stop",
    .args = "[PATH]",
    .options = "",
    .help = "Ends mounts, benefactors and the manager, in this order, cleanly, on all nodes.",
    .flags = CTL_WAITS,
    .limit_ms = 30000,
    .run = run,
};
