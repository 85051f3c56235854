/*
 * The workload's drains: programs drain, evict and stage in what others write at random, and live through the life of files of their own. What is read then is compared as ever (model.c): that an evicted
 * file reads back as it was is what that is about. Of the files of their own more is known, since they are written whole, synced, and by one program at a time:
 *
 *   a job that is done, or a level drained or verified, means that the target has these very bytes under the file's name
 *   whatever was drained, evicted and staged in: all mounts read these bytes
 *   a benefactor loses all that it has: what is drained reads as before, and can be staged in
 *   a job ends, or says why; when all is well, draining, evicting and reading back succeed
 *   in half of the runs a policy drains what is in b, and wants it to be in the target before the version before it goes: then that goes
 *
 * A file of which a call has failed is unlinked and made anew: what it holds is not known.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "life.pb-c.h"
#include "tests/sim/app.h"

#define LIVES    4
#define LEN_MAX  FILE_MAX
#define PIECE    (100u << 10)
#define JOBS     64
#define ASK_NS   (300 * SIM_MS)
#define TRIES    12 /* more than it has chunks that could be torn */
#define END_S    400 /* for a job, when all is well */

struct life {
    char path[8];
    struct app *busy;
    bool sure;    /* it is there, with these bytes, and that is durable */
    unsigned version;
    size_t len;
};

static struct life lives[LIVES] = {{.path = "a/L0"}, {.path = "a/L1"}, {.path = "b/L0"}, {.path = "b/L1"}};
static unsigned versions;
static uint64_t jobs[JOBS];
static unsigned njobs;
static bool damaged, policy, declared;

static uint64_t roll(uint64_t n)
{
    return sim_below(SIM_RNG_DRAIN, n);
}

static uint8_t byte_of(unsigned version, size_t k)
{
    uint64_t x = (version * UINT64_C(0x9E3779B97F4A7C15)) ^ (k * UINT64_C(0xC2B2AE3D27D4EB4F));

    return k / 4096 % 7 == version % 7 ? 0 : (uint8_t)(x >> 37); /* pages of zeros, too */
}

void lives_damaged(void)
{
    damaged = true;
}

/* ------------------------------------------------------------------ asking */

/* The job, 0: none was made; -1: the manager could not be asked. */
static int64_t begin(enum sim_ctl_op op, const char *path, bool verify)
{
    struct sim_ctl q = {.op = op, .verify = verify};

    snprintf(q.path, sizeof q.path, "%s", path);
    snprintf(q.dest, sizeof q.dest, SIM_TARGET, sim.dir);
    sim_ctl_ask(&q);
    sim_trace("fpctl %s %s: %d, job %llu %s", op == SIM_CTL_DRAIN ? "drain" : op == SIM_CTL_EVICT ? "evict" : "stage-in", path, q.rc, (unsigned long long)q.job, q.why);
    if (q.rc == 0 && q.job)
        jobs[njobs++ % JOBS] = q.job;
    return q.rc ? -1 : (int64_t)q.job;
}

/* A connection may end when a fault does. */
static int64_t begin_surely(enum sim_ctl_op op, const char *path, bool verify, bool must)
{
    int64_t job = begin(op, path, verify);

    for (unsigned i = 0; job < 0 && must && i < 20; i++) {
        sim_sleep_ns(SIM_S);
        job = begin(op, path, verify);
    }
    return job;
}

/* Its state, -1 if it is not known, -2 if it had not ended by then. *failed: how many of its files have. */
static int wait_job(uint64_t job, uint64_t until, uint64_t *failed, char why[200])
{
    for (;;) {
        struct sim_ctl q = {.op = SIM_CTL_SHOW, .job = job};

        sim_ctl_ask(&q);
        *failed = q.files_failed;
        snprintf(why, 200, "%s", q.why);
        if (q.rc == 0 && (q.state < 0 || q.state >= FP__DRAIN_STATE__DRAIN_DONE)) {
            sim_trace("job %llu: state %d, %llu files failed %s", (unsigned long long)job, q.state, (unsigned long long)q.files_failed, q.why);
            return q.state;
        }
        if (sim.now_ns >= until)
            return -2;
        sim_sleep_ns(ASK_NS);
    }
}

static void cancel(void)
{
    struct sim_ctl q = {.op = SIM_CTL_CANCEL, .job = njobs ? jobs[roll(njobs < JOBS ? njobs : JOBS)] : 0};

    if (!q.job)
        return;
    sim_ctl_ask(&q);
    sim_trace("cancel job %llu: %d %s", (unsigned long long)q.job, q.rc, q.why);
}

/* Once; again if it is not known what came of it. */
static void declare(void)
{
    struct sim_ctl q = {.op = SIM_CTL_POLICY};
    char to[128];

    if (declared || !policy)
        return;
    snprintf(to, sizeof to, SIM_TARGET, sim.dir);
    snprintf(q.dest, sizeof q.dest, "to=%s every=none results=b/* level=drained keep=1", to);
    sim_ctl_ask(&q);
    declared = q.rc == 0;
    sim_trace("policy %s: %d %s", q.dest, q.rc, q.why);
    if (declared && q.why[0])
        sim_fail("the policy is refused: %s", q.why);
}

/* ------------------------------------------------------------------ files of their own */

static void compare(const struct life *l, const char *who, const uint8_t *buf, size_t len)
{
    size_t k = 0;

    while (k < len && k < l->len && buf[k] == byte_of(l->version, k))
        k++;
    if (k < l->len || len != l->len)
        sim_fail("%s has other bytes of %s, version %u of %zu bytes: %zu bytes, different from %zu on", who, l->path, l->version, l->len, len, k);
}

/* What the target has by its name is what was drained. */
static void compare_target(struct app *a, const struct life *l, const char *says)
{
    char path[256], who[300];
    size_t len = 0;
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, SIM_TARGET "/%s", sim.dir, l->path);
    fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        sim_fail("%s: %s, but %s is not in the target", l->path, says, path);
    while ((n = syscall(SYS_read, fd, a->buf + len, READ_ROOM - len)) > 0)
        len += (size_t)n;
    syscall(SYS_close, fd);
    snprintf(who, sizeof who, "%s: the target", says);
    compare(l, who, a->buf, len);
    work_counts.targets++;
}

static void look_at_level(struct app *a, const struct life *l, struct sim_open *f)
{
    char level[32] = "";
    ssize_t n = vfs_getxattr(f, "user.fp.level", level, sizeof level - 1);

    sim_trace("level of %s: %s (%zd)", l->path, level, n);
    if (l->sure && (strcmp(level, "drained") == 0 || strcmp(level, "verified") == 0)) {
        compare_target(a, l, level);
        work_counts.levels++;
    }
}

static bool read_life(struct app *a, const struct life *l)
{
    struct sim_open *f;
    size_t len = 0;
    ssize_t n = vfs_open(a->mount, l->path, O_RDONLY, &f);

    if (n == -ENOENT && l->sure)
        sim_fail("%s: %s is not there", a->mount->name, l->path);
    if (n == -EIO && sim.healed)
        n = vfs_open(a->mount, l->path, O_RDONLY, &f); /* what no close could tell, once */
    if (n)
        return false;
    f->process = a->id;
    while ((n = vfs_pread(f, a->buf + len, READ_ROOM - len, (off_t)len)) > 0)
        len += (size_t)n;
    sim_trace("read %s: %zu bytes, %zd", l->path, len, n);
    if (n == 0 && l->sure)
        compare(l, a->mount->name, a->buf, len);
    if (n < 0 && sim.healed && !damaged && l->sure) /* a write that failed may have left what a power failure took */
        sim_fail("%s reads %s at %zu: %s", a->mount->name, l->path, len, strerror((int)-n));
    look_at_level(a, l, f);
    vfs_close(f);
    work_counts.reads++;
    work_counts.bytes_checked += len;
    return n == 0;
}

static int write_all(struct app *a, const struct life *l, struct sim_open *f, size_t from, size_t to)
{
    while (from < to) {
        size_t n = to - from < PIECE ? to - from : PIECE;
        ssize_t rc;

        for (size_t k = 0; k < n; k++)
            a->buf[k] = byte_of(l->version, from + k);
        rc = vfs_pwrite(f, a->buf, n, (off_t)from);
        if (rc <= 0)
            return rc ? (int)rc : -EIO;
        from += (size_t)rc;
    }
    return 0;
}

/* All of it anew: another file of that name, or the same one. */
static void write_life(struct app *a, struct life *l)
{
    bool anew = !l->sure || roll(3) == 0;
    unsigned start = a->mount->starts;
    struct sim_open *f;
    int rc = 0;

    l->sure = false;
    l->version = ++versions;
    l->len = roll(4) ? roll(LEN_MAX) : roll(6) * (64u << 10);
    if (anew)
        rc = vfs_unlink(a->mount, l->path);
    rc = rc && rc != -ENOENT ? rc : vfs_open(a->mount, l->path, O_RDWR | O_CREAT, &f);
    if (rc == 0) {
        int end;

        f->process = a->id;
        rc = vfs_ftruncate(f, roll(2) ? 0 : (off_t)l->len);
        rc = rc ? rc : vfs_ftruncate(f, (off_t)l->len);
        rc = rc ? rc : write_all(a, l, f, 0, l->len);
        rc = rc ? rc : vfs_fsync(f);
        end = vfs_close(f);
        rc = rc ? rc : end;
    }
    l->sure = rc == 0 && start == a->mount->starts;
    sim_trace("%s is version %u, %zu bytes: %d%s", l->path, l->version, l->len, rc, l->sure ? "" : ", not surely");
    app_error(a, "write of a file of its own", l->path, rc);
}

/* Ranges of it once more, with the bytes that they have: its windows are in pieces then, which can't be had from a target one by one. */
static void rewrite_parts(struct app *a, struct life *l)
{
    unsigned start = a->mount->starts;
    struct sim_open *f;
    int end, rc = !l->sure || !l->len ? -ENODATA : vfs_open(a->mount, l->path, O_RDWR, &f);

    if (rc)
        return;
    l->sure = false;
    f->process = a->id;
    for (unsigned i = 1 + roll(4); i > 0 && rc == 0; i--) {
        size_t from = roll((unsigned)l->len), len = 1 + roll(PIECE);

        rc = write_all(a, l, f, from, from + len < l->len ? from + len : l->len);
    }
    rc = rc ? rc : vfs_fsync(f);
    end = vfs_close(f);
    rc = rc ? rc : end;
    l->sure = rc == 0 && start == a->mount->starts;
    sim_trace("ranges of %s are written again: %d%s", l->path, rc, l->sure ? "" : ", not surely");
    app_error(a, "write of a file of its own", l->path, rc);
}

/* Drains it and looks at what came of it. */
static bool drain_life(struct app *a, struct life *l, bool must)
{
    uint64_t until = sim.now_ns + (must || sim.healed ? END_S * SIM_S : roll(30 * SIM_S)), failed = 0;
    char why[200] = "";
    int64_t job = begin_surely(SIM_CTL_DRAIN, l->path, roll(3) == 0, must);
    int state = job > 0 ? wait_job((uint64_t)job, until, &failed, why) : -3;

    if (state == FP__DRAIN_STATE__DRAIN_DONE && l->sure && !failed)
        compare_target(a, l, "its job is done");
    if (must && (state != FP__DRAIN_STATE__DRAIN_DONE || failed) && !damaged)
        sim_fail("%s can't be drained, and all is well: job %lld, state %d: %s", l->path, (long long)job, state, why);
    return state == FP__DRAIN_STATE__DRAIN_DONE && !failed;
}

static void evict_life(struct app *a, struct life *l, enum sim_ctl_op op, bool must)
{
    uint64_t until = sim.now_ns + (must ? END_S * SIM_S : roll(20 * SIM_S)), failed = 0;
    char why[200] = "";
    int64_t job = begin_surely(op, l->path, false, must);
    int state = job > 0 ? wait_job((uint64_t)job, until, &failed, why) : -3;

    (void)a;
    if (must && job && (state != FP__DRAIN_STATE__DRAIN_DONE || failed) && !damaged)
        sim_fail("%s can't be %s, and all is well: job %lld, state %d: %s", l->path, op == SIM_CTL_EVICT ? "evicted" : "staged in", (long long)job, state, why);
    work_counts.evicts += state == FP__DRAIN_STATE__DRAIN_DONE && op == SIM_CTL_EVICT;
}

static void live(struct app *a, struct life *l)
{
    switch (roll(6)) {
    case 0:
        evict_life(a, l, SIM_CTL_EVICT, false);
        read_life(a, l);
        break;
    case 1:
        evict_life(a, l, SIM_CTL_STAGE_IN, false);
        read_life(a, l);
        break;
    case 2:
        read_life(a, l);
        break;
    default:
        if (!l->sure || roll(2))
            write_life(a, l);
        if (drain_life(a, l, false) && roll(2))
            evict_life(a, l, SIM_CTL_EVICT, false);
        read_life(a, l);
    }
}

/* ------------------------------------------------------------------ what programs do */

void app_life(struct app *a)
{
    struct life *l = &lives[roll(LIVES)];
    const char *path = roll(8) ? name_path(app_name(NAME_FILE)) : roll(2) ? "a" : "b";

    if (!work_counts.lives++)
        policy = roll(2);
    declare();
    switch (roll(12)) {
    case 0:
    case 1:
    case 2:
        begin(SIM_CTL_DRAIN, path, roll(4) == 0);
        return;
    case 3:
    case 4:
        begin(SIM_CTL_EVICT, path, false);
        return;
    case 5:
        begin(SIM_CTL_STAGE_IN, path, false);
        return;
    case 6:
        cancel();
        return;
    default:
        if (l->busy)
            return;
        l->busy = a;
        live(a, l);
        l->busy = NULL;
    }
}

/* All is drained, and nobody writes. */
static void waits_end(const struct life *l)
{
    struct sim_ctl q = {.op = SIM_CTL_VERSIONS};
    uint64_t until = sim.now_ns + 60 * SIM_S;

    memcpy(q.path, l->path, sizeof l->path);
    do {
        sim_sleep_ns(SIM_S);
        q.state = 0;
        sim_ctl_ask(&q);
        if (q.rc == 0 && q.state == 1)
            return;
    } while (sim.now_ns < until);
    sim_fail("%s is drained, and a version of it waits: %d, %d versions: %s", l->path, q.rc, q.state, q.why);
}

void lives_verify(struct app *a)
{
    uint64_t until = sim.now_ns + END_S * SIM_S, failed;
    char why[200];

    for (unsigned i = 0; i < (njobs < JOBS ? njobs : JOBS); i++)
        if (wait_job(jobs[i], until, &failed, why) == -2)
            sim_fail("job %llu does not end, and all is well: %s", (unsigned long long)jobs[i], why);
    for (unsigned i = 0; i < LIVES; i++) {
        struct life *l = &lives[i];

        read_life(a, l);
        if (!l->sure)
            continue;
        for (unsigned tries = 1; tries <= TRIES; tries++) { /* one may find that a loss of power has torn a chunk that the target has, too: it says so, and the next one goes on */
            evict_life(a, l, SIM_CTL_STAGE_IN, true);
            if (drain_life(a, l, tries == TRIES))
                break;
        }
        if (!damaged)
            waits_end(l);
        evict_life(a, l, SIM_CTL_EVICT, true);
        if (roll(2))
            evict_life(a, l, SIM_CTL_STAGE_IN, true);
        read_life(a, l);
    }
    for (const char *const *dir = (const char *const[]){"a", "b", NULL}; *dir; dir++)
        if (roll(2)) { /* what mounts read at the end is in the target, where it was drained */
            int64_t job = begin(SIM_CTL_EVICT, *dir, false);

            if (job > 0 && wait_job((uint64_t)job, until, &failed, why) == -2)
                sim_fail("evicting %s does not end, and all is well: %s", *dir, why);
        }
}

/* When all else has been looked at: the disk of a node is empty. What is in the target by then all mounts can read, also what was never evicted. */
void lives_lose_a_disk(struct app *a, struct app *reader)
{
    struct sim_proc *b = NULL;
    unsigned n = 0;

    if (damaged || roll(2))
        return;
    for (unsigned i = 0; i < LIVES; i++) {
        if (roll(4)) {
            write_life(a, &lives[i]);
            if (roll(2))
                rewrite_parts(a, &lives[i]);
        }
        if (lives[i].sure)
            drain_life(a, &lives[i], true);
    }
    for (unsigned i = 0; i < sim.nprocs; i++)
        if (sim.procs[i].kind == SIM_BENEFACTOR && sim.procs[i].up && roll(++n) == 0)
            b = &sim.procs[i];
    if (!b)
        return;
    sim_proc_kill(b, "its disk is lost");
    sim_disk_lose_segments(b->node);
    for (unsigned i = 0; i < 300 && !(b->up && b->ready); i++)
        sim_sleep_ns(SIM_S);
    work_counts.disks++;
    if (roll(2))
        sim_sleep_ns(roll(10 * SIM_S));
    for (unsigned i = 0; i < LIVES; i++) {
        struct life *l = &lives[i];

        if (roll(2) && l->sure)
            evict_life(a, l, SIM_CTL_STAGE_IN, true);
        read_life(reader, l);
    }
}

void lives_remove(struct sim_proc *m)
{
    for (unsigned i = 0; i < LIVES; i++) {
        int rc = vfs_unlink(m, lives[i].path);

        if (rc && (rc != -ENOENT || lives[i].sure))
            sim_fail("%s can't be removed: %s", lives[i].path, strerror(-rc));
    }
}
