/*
 * A checkpoint of real mounts: what the manager is sent for it is counted, message by message.
 *
 * Each of the ranks of each node writes a file of its own, or its windows of one file of all, and closes it, as an MPI job does. There are no faults. The counts
 * are what the model of tests/sim/scale, which has thousands of nodes and no mounts, is compared with (tests/sim/scale/check.sh).
 *
 * Called by sim_store's main thread; the ranks are tasks of the simulator.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fp.pb-c.h"
#include "tests/sim/fuse.h"
#include "tests/sim/net.h"
#include "tests/sim/work.h"

#define KINDS        256
#define WINDOW_BYTES (64u << 10) /* --chunk-size of the simulated manager */

struct rank {
    struct sim_proc *mount;
    unsigned number;
    bool done;
};

static struct checkpoint what;
static struct rank *ranks;
static unsigned nranks;
static struct {
    uint64_t to_manager[KINDS], from_manager[KINDS];
    uint64_t chunks, slices, released;
} counted;

bool checkpoint_parse(const char *text, struct checkpoint *out)
{
    char tail[16] = "";

    *out = (struct checkpoint){0};
    if (sscanf(text, "%u:%u:%u:%15s", &out->nodes, &out->ranks, &out->windows, tail) < 3 || (tail[0] && strcmp(tail, "shared")))
        return false;
    out->shared = tail[0];
    return out->nodes >= 1 && out->nodes < SIM_NODES_MAX && out->ranks >= 1 && out->windows >= 1;
}

/* ------------------------------------------------------------------ counting */

static void look_into(const struct fp_frame *f, const uint8_t *msg)
{
    if (f->type == FP__MSG_TYPE__MSG_COMMIT) {
        Fp__Commit *m = fp__commit__unpack(NULL, f->msg_len_bytes, msg);

        counted.chunks += m->n_chunks;
        counted.slices += m->n_slices;
        fp__commit__free_unpacked(m, NULL);
    } else if (f->type == FP__MSG_TYPE__MSG_RELEASE) {
        Fp__Release *m = fp__release__unpack(NULL, f->msg_len_bytes, msg);

        counted.released += m->n_ino + m->n_write_ino;
        fp__release__free_unpacked(m, NULL);
    }
}

static void on_frame(const struct sim_proc *from, const struct sim_proc *to, const struct fp_frame *f, const uint8_t *msg)
{
    if (f->type >= KINDS || (f->flags & FP_FRAME_REPLY) || !from || !to)
        return;
    if (from->kind == SIM_MOUNT && to->kind == SIM_MANAGER) {
        counted.to_manager[f->type]++;
        look_into(f, msg);
    } else if (from->kind == SIM_MANAGER && to->kind == SIM_MOUNT) {
        counted.from_manager[f->type]++;
    }
}

static void say(const char *what_, uint64_t n)
{
    char line[100];
    int len = snprintf(line, sizeof line, "count %s %llu\n", what_, (unsigned long long)n);

    if (n)
        syscall(SYS_write, STDOUT_FILENO, line, len);
}

static void print_counts(void)
{
    char name[80];

    for (unsigned i = 0; i < KINDS; i++) {
        snprintf(name, sizeof name, "mount>manager %s", sim_message_name((uint16_t)i));
        say(name, counted.to_manager[i]);
    }
    for (unsigned i = 0; i < KINDS; i++) {
        snprintf(name, sizeof name, "manager>mount %s", sim_message_name((uint16_t)i));
        say(name, counted.from_manager[i]);
    }
    say("in commits: chunks", counted.chunks);
    say("in commits: slices", counted.slices);
    say("in releases: inodes", counted.released);
}

/* ------------------------------------------------------------------ the job */

static void must(const struct rank *r, const char *call, int64_t rc)
{
    if (rc < 0)
        sim_fail("rank %u: %s: %s", r->number, call, strerror((int)-rc));
}

static void write_all(const struct rank *r, struct sim_open *f)
{
    uint8_t *buf = malloc(WINDOW_BYTES);

    memset(buf, (int)r->number + 1, WINDOW_BYTES);
    for (unsigned w = 0; w < what.windows; w++) {
        uint64_t at = what.shared ? (uint64_t)w * nranks + r->number : w;

        must(r, "write", vfs_pwrite(f, buf, WINDOW_BYTES, (off_t)(at * WINDOW_BYTES)));
    }
    free(buf);
}

static void *rank_main(void *arg)
{
    struct rank *r = arg;
    struct sim_open *f = NULL;
    char path[64];

    if (what.shared)
        snprintf(path, sizeof path, "ck/all");
    else
        snprintf(path, sizeof path, "ck/rank.%06u", r->number);
    must(r, "open", vfs_open(r->mount, path, O_WRONLY | (what.shared && r->number ? 0 : O_CREAT), &f));
    if (what.shared && !r->number) /* the others begin when it is there */
        for (unsigned i = 1; i < nranks; i++)
            sim_task_new(NULL, NULL, "rank", rank_main, &ranks[i]);
    write_all(r, f);
    must(r, "close", vfs_close(f));
    r->done = true;
    return NULL;
}

static void wait_ready(const struct sim_proc *p)
{
    for (unsigned i = 0; !p->ready; i++) {
        if (i > 1000)
            sim_fail("%s does not start", p->name);
        sim_sleep_ns(100 * SIM_MS);
    }
}

static void wait_ranks(void)
{
    uint64_t until = sim.now_ns + 900 * SIM_S;

    for (unsigned i = 0; i < nranks; i++)
        while (!ranks[i].done) {
            if (sim.now_ns > until)
                sim_fail("rank %u hangs", i);
            sim_sleep_ns(10 * SIM_MS);
        }
}

static void *director_main(void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < sim.nprocs; i++)
        wait_ready(&sim.procs[i]);
    sim_sleep_ns(5 * SIM_S); /* nobody thinks any more that it is alone */
    must(&ranks[0], "mkdir", vfs_mkdir(ranks[0].mount, "ck"));
    sim_sleep_ns(SIM_S);
    sim_on_frame = on_frame;
    for (unsigned i = 0; i < (what.shared ? 1 : nranks); i++)
        sim_task_new(NULL, NULL, "rank", rank_main, &ranks[i]);
    wait_ranks();
    sim_sleep_ns(SIM_S); /* what comes after the last close */
    sim_on_frame = NULL;
    print_counts();
    sim_end();
}

void checkpoint_start(const struct checkpoint *w)
{
    what = *w;
    nranks = w->nodes * w->ranks;
    ranks = calloc(nranks, sizeof *ranks);
    for (unsigned i = 0, node = 0; i < sim.nprocs; i++) {
        if (sim.procs[i].kind != SIM_MOUNT)
            continue;
        for (unsigned k = 0; k < w->ranks; k++)
            ranks[node + k * w->nodes] = (struct rank){.mount = &sim.procs[i], .number = node + k * w->nodes};
        node++;
    }
    sim_task_new(NULL, NULL, "director", director_main, NULL);
}
