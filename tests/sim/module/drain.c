/* main() of a simulated fp-drain: what drain/main.c does but for what the kernel gives a new process. Part of its shared object in place of that. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "drain/drain.h"
#include "fp/log.h"
#include "tests/sim/sim.h"

int main(int argc, char **argv)
{
    struct dr_worker *w;
    void *page;
    int socket, rc;

    (void)argc;
    (void)argv;
    fp_log_init("fp-drain", FP_LOG_INFO);
    socket = sim_child_socket(&page);
    w = dr_new(socket, page);
    rc = w ? dr_link_run(w) : -ENOMEM;
    if (rc < 0)
        FP_ERROR("%s", rc == -EPROTO ? "a message of fp-benefactor was not understood" : strerror(-rc));
    _exit(rc < 0 ? 1 : 0);
}
