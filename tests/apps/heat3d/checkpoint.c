/*
 * Checkpoints as sets of files that are there entirely or not at all.
 *
 *   DIR/chk_0040.h5           one file of all ranks, or with --file-per-process
 *   DIR/chk_0040/rank_3.h5    one file of each rank
 *
 * Both are written under their name with ".tmp" behind it, flushed, closed and synced, and then renamed; the
 * directory is synced last. So a name without ".tmp" is a complete checkpoint, and a job that is killed at
 * any point leaves the one before intact. What the names promise is still not believed on a restart:
 * attributes and data have check-sums, and a checkpoint that fails them is passed over for the one before it.
 *
 * Every decision on a restart (is this one intact?) is taken by all ranks together, so that they agree.
 */
#include "heat3d.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void die(const struct grid *g, const char *path, const char *what)
{
    fprintf(stderr, "heat3d: rank %d: %s: %s\n", g->rank, path, what);
    fflush(NULL);
    MPI_Abort(MPI_COMM_WORLD, 1);
    abort();
}

/* True in all ranks if it is true in all ranks. */
static bool all_ok(const struct grid *g, bool ok)
{
    int mine = ok, all;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_LAND, g->comm);
    return all;
}

static double slowest(const struct grid *g, double seconds)
{
    double max;
    MPI_Allreduce(&seconds, &max, 1, MPI_DOUBLE, MPI_MAX, g->comm);
    return max;
}

static uint64_t total_sum(const struct grid *g)
{
    uint64_t mine = grid_sum(g), all;
    MPI_Allreduce(&mine, &all, 1, MPI_UINT64_T, MPI_SUM, g->comm);
    return all;
}

static void chk_path(char *out, const struct options *o, int step, bool per_process, const char *suffix)
{
    snprintf(out, PATH_BYTES, "%s/chk_%04d%s%s", o->dir, step, per_process ? "" : ".h5", suffix);
}

static void rank_path(char *out, const char *folder, int rank)
{
    if (snprintf(out, PATH_BYTES, "%s/rank_%d.h5", folder, rank) >= PATH_BYTES)
        out[PATH_BYTES - 1] = '\0'; /* then it is not found */
}

static int sync_path(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int rc = fsync(fd);
    close(fd);
    return rc;
}

/* A file, or a folder of files; not being there is no error. */
static int remove_checkpoint(const char *path)
{
    if (unlink(path) == 0 || errno == ENOENT)
        return 0;
    DIR *d = opendir(path);
    if (d == NULL)
        return -1;
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    return rmdir(path);
}

static int64_t size_of(const char *path)
{
    struct stat st;
    return stat(path, &st) ? -1 : (int64_t)st.st_size;
}

/* What counts in reports: cells, not the headers and holes of the format. */
static int64_t data_bytes(const struct box *b)
{
    return (int64_t)(box_cells(b) * sizeof(double));
}

/* --- what is in the directory --- */

struct entry {
    int step;
    bool per_process;
};

/* Newest first; of one step, the shared file first. */
static int entry_cmp(const void *pa, const void *pb)
{
    const struct entry *a = pa, *b = pb;
    return a->step != b->step ? (a->step < b->step) - (a->step > b->step) : a->per_process - b->per_process;
}

static bool entry_parse(const char *name, struct entry *e, bool *temporary)
{
    int end = 0;
    if (sscanf(name, "chk_%d%n", &e->step, &end) != 1 || end < 8 || e->step < 0)
        return false;
    const char *rest = name + end;
    e->per_process = strncmp(rest, ".h5", 3) != 0;
    rest += e->per_process ? 0 : 3;
    *temporary = strcmp(rest, ".tmp") == 0;
    return *rest == '\0' || *temporary;
}

/* The checkpoints of a directory, newest first; *list is the caller's to free. -1: cannot be read. */
static int list_checkpoints(const char *dir, bool say, struct entry **list)
{
    DIR *d = opendir(dir);
    int count = 0;
    *list = NULL;
    if (d == NULL)
        return errno == ENOENT ? 0 : -1;
    for (struct dirent *de; (de = readdir(d)) != NULL;) {
        struct entry e;
        bool temporary;
        if (!entry_parse(de->d_name, &e, &temporary))
            continue;
        if (temporary) {
            if (say)
                printf("heat3d: %s is incomplete: passed over\n", de->d_name);
            continue;
        }
        struct entry *more = realloc(*list, (size_t)(count + 1) * sizeof(e));
        if (more == NULL)
            break;
        *list = more;
        more[count++] = e;
    }
    closedir(d);
    if (count)
        qsort(*list, (size_t)count, sizeof(struct entry), entry_cmp);
    return count;
}

/* Rank 0: --keep. */
static void remove_old(const struct options *o)
{
    struct entry *list;
    int count = list_checkpoints(o->dir, false, &list);
    for (int i = o->keep; i < count; i++) {
        char path[PATH_BYTES];
        chk_path(path, o, list[i].step, list[i].per_process, "");
        if (remove_checkpoint(path))
            fprintf(stderr, "heat3d: %s: cannot be removed: %s\n", path, strerror(errno));
    }
    free(list);
}

/* --- writing --- */

static void fill_meta(struct chk_meta *m, const struct grid *g, int step, bool per_process)
{
    uint64_t mine = grid_sum(g);
    m->step = step;
    m->time = grid_time(step);
    memcpy(m->n, g->n, sizeof(m->n));
    memcpy(m->dims, g->dims, sizeof(m->dims));
    m->rank = per_process ? g->rank : -1;
    m->sums_count = per_process ? 1 : g->ranks;
    m->sums[0] = mine;
    if (!per_process)
        MPI_Allgather(&mine, 1, MPI_UINT64_T, m->sums, 1, MPI_UINT64_T, g->comm);
}

/* Clears what a killed job left under the temporary name, and makes the folders. */
static void prepare(const struct options *o, const struct grid *g, const char *tmp)
{
    if (g->rank == 0) {
        if (mkdir(o->dir, 0777) && errno != EEXIST)
            die(g, o->dir, strerror(errno));
        if (remove_checkpoint(tmp) || (o->file_per_process && mkdir(tmp, 0777)))
            die(g, tmp, strerror(errno));
    }
    MPI_Barrier(g->comm);
}

/* Rank 0, after all ranks have synced: the checkpoint gets its name. */
static void publish(const struct options *o, const struct grid *g, const char *tmp, const char *path)
{
    if (o->file_per_process && (sync_path(tmp) || remove_checkpoint(path)))
        die(g, tmp, strerror(errno));
    if (rename(tmp, path))
        die(g, path, strerror(errno));
    if (sync_path(o->dir))
        die(g, o->dir, strerror(errno));
    if (o->keep)
        remove_old(o);
}

void checkpoint_write(const struct options *o, struct grid *g, int step, struct io_stats *st)
{
    static struct chk_meta m; /* 32 KiB: not on the stack */
    char path[PATH_BYTES], tmp[PATH_BYTES], own[PATH_BYTES];
    double sync_s = 0;
    chk_path(path, o, step, o->file_per_process, "");
    chk_path(tmp, o, step, o->file_per_process, ".tmp");
    rank_path(own, tmp, g->rank);
    fill_meta(&m, g, step, o->file_per_process);

    MPI_Barrier(g->comm);
    double t0 = MPI_Wtime();
    prepare(o, g, tmp);
    const char *file = o->file_per_process ? own : tmp;
    (o->file_per_process ? h5_write_own : h5_write_shared)(file, g, &m, o, &sync_s);

    double t1 = MPI_Wtime();
    struct box all = {.len = {g->n[0], g->n[1], g->n[2]}};
    int64_t bytes = data_bytes(&all);
    if ((o->file_per_process || g->node_leader) && sync_path(file))
        die(g, file, strerror(errno));
    if (size_of(file) < (o->file_per_process ? data_bytes(&g->box) : bytes))
        die(g, file, "is too short: writes were lost");
    MPI_Barrier(g->comm);
    if (g->rank == 0)
        publish(o, g, tmp, path);
    sync_s += MPI_Wtime() - t1;

    double took_s = slowest(g, MPI_Wtime() - t0);
    st->bytes += bytes;
    st->seconds += took_s;
    st->sync_seconds += slowest(g, sync_s);
    st->count++;
    if (o->progress && g->rank == 0) {
        printf("heat3d: step %d of %d: %s, %.1f MB in %.3f s\n", step, o->steps, path + strlen(o->dir) + 1,
               (double)bytes / 1e6, took_s);
        fflush(stdout);
    }
}

void checkpoint_verify(const struct options *o, struct grid *g, int step, struct io_stats *st)
{
    char path[PATH_BYTES], own[PATH_BYTES];
    uint64_t want = grid_sum(g);
    chk_path(path, o, step, o->file_per_process, "");
    rank_path(own, path, g->rank);

    /* Into `next`, which has nothing to lose: the next step fills it anew. Its halo at the boundary stays
     * zero. */
    struct grid copy = *g;
    copy.u = g->next;
    MPI_Barrier(g->comm);
    double t0 = MPI_Wtime();
    if (o->file_per_process ? h5_read_box(own, &g->box, &g->box, &copy) : h5_read_shared(path, &copy))
        die(g, path, "cannot be read back");
    st->seconds += slowest(g, MPI_Wtime() - t0);
    st->bytes += data_bytes(&(struct box){.len = {g->n[0], g->n[1], g->n[2]}});
    st->count++;
    if (grid_sum(&copy) != want)
        die(g, path, "reads back different");
}

/* --- restarting --- */

/* This rank's box out of the files of a checkpoint, whoever wrote them. *sum = what their writers say it adds
 * up to. */
static int read_boxes(const char *path, const struct chk_meta *m, struct grid *g, uint64_t *sum)
{
    static struct chk_meta part;
    *sum = 0;
    if (m->rank < 0) {
        struct box all = {.len = {g->n[0], g->n[1], g->n[2]}};
        for (int i = 0; i < m->sums_count; i++)
            *sum += m->sums[i];
        return h5_read_box(path, &all, &g->box, g);
    }
    int writers = m->dims[0] * m->dims[1] * m->dims[2];
    for (int w = 0; w < writers; w++) {
        char own[PATH_BYTES];
        struct box held = grid_box(m->n, m->dims, w), want;
        rank_path(own, path, w);
        if (h5_read_meta(own, &part) || part.step != m->step || part.rank != w ||
            memcmp(part.dims, m->dims, sizeof(part.dims)) != 0)
            return -1;
        *sum += part.sums[0];
        if (box_intersect(&held, &g->box, &want) && h5_read_box(own, &held, &want, g))
            return -1;
    }
    return 0;
}

static bool meta_sane(const struct chk_meta *m)
{
    for (int d = 0; d < 3; d++)
        if (m->dims[d] < 1 || m->dims[d] > RANKS_MAX || m->n[d] < m->dims[d])
            return false;
    int64_t writers = (int64_t)m->dims[0] * m->dims[1] * m->dims[2];
    return writers <= RANKS_MAX && m->step >= 0 && m->sums_count == (m->rank < 0 ? writers : 1);
}

/* Collective: NULL if g->u holds the checkpoint now, else why not. */
static const char *try_restart(const char *path, bool per_process, struct grid *g, int *step)
{
    static struct chk_meta m;
    char first[PATH_BYTES];
    uint64_t sum;
    rank_path(first, path, 0);
    if (!all_ok(g, h5_read_meta(per_process ? first : path, &m) == 0 && meta_sane(&m)))
        return "is damaged (attributes)";
    if (!all_ok(g, memcmp(m.n, g->n, sizeof(m.n)) == 0))
        return "has another grid";
    if (!all_ok(g, read_boxes(path, &m, g, &sum) == 0))
        return "is damaged (unreadable)";
    if (!all_ok(g, total_sum(g) == sum))
        return "is damaged (check-sum)";
    *step = (int)m.step;
    if (g->rank == 0)
        printf("heat3d: restarted from %s, step %d, written by %d ranks\n", path, *step,
               m.dims[0] * m.dims[1] * m.dims[2]);
    return NULL;
}

static int restart_named(const struct options *o, struct grid *g, int *step)
{
    struct stat sb;
    int folder = g->rank == 0 && stat(o->restart_path, &sb) == 0 && S_ISDIR(sb.st_mode);
    MPI_Bcast(&folder, 1, MPI_INT, 0, g->comm);
    const char *why = try_restart(o->restart_path, folder, g, step);
    if (why && g->rank == 0)
        fprintf(stderr, "heat3d: %s %s\n", o->restart_path, why);
    return why ? -1 : 0;
}

static int restart_newest(const struct options *o, struct grid *g, int *step)
{
    struct entry *list = NULL;
    int count = g->rank == 0 ? list_checkpoints(o->dir, true, &list) : 0;
    MPI_Bcast(&count, 1, MPI_INT, 0, g->comm);
    for (int i = 0; i < count; i++) {
        struct entry e = {0};
        char path[PATH_BYTES];
        if (g->rank == 0)
            e = list[i];
        MPI_Bcast(&e, sizeof(e), MPI_BYTE, 0, g->comm);
        chk_path(path, o, e.step, e.per_process, "");
        const char *why = try_restart(path, e.per_process, g, step);
        if (why == NULL)
            break;
        *step = 0;
        if (g->rank == 0)
            printf("heat3d: %s %s: passed over\n", path, why);
    }
    free(list);
    if (count < 0 && g->rank == 0)
        fprintf(stderr, "heat3d: %s: cannot be read\n", o->dir);
    return count < 0 ? -1 : 0;
}

int checkpoint_restart(const struct options *o, struct grid *g, int *step, struct io_stats *st)
{
    MPI_Barrier(g->comm);
    double t0 = MPI_Wtime();
    *step = 0;
    int rc = o->restart_path[0] ? restart_named(o, g, step) : restart_newest(o, g, step);
    if (rc == 0 && *step > 0) {
        st->seconds = slowest(g, MPI_Wtime() - t0);
        st->bytes = data_bytes(&(struct box){.len = {g->n[0], g->n[1], g->n[2]}});
        st->count = 1;
    }
    return rc;
}
