/*
 * VERIFY: reads windows back from the target and compares their sums.
 *
 * A window that several benefactors have written is compared by each of them, with the sum that its own WRITE has made: there what others write counts as
 * zeros, and so it does here. Holes are in the sums of all of them.
 *
 * On a thread. By a descriptor of its own and past the caches of this node: with O_DIRECT where the file system has it, else after the pages of the file were
 * dropped (they are clean, since WRITE has synced them). Caches of servers are the file system's promise, which fsync asked for.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "drain/drain.h"
#include "fp/checksum.h"
#include "fp/err.h"
#include "fp/fault.h"

#define PAGE 4096u

static int open_at(struct dr_thread *th, int dir, const char *path, uint32_t path_bytes, int *fd, bool *direct)
{
    int rc = dr_open(th, dir, path, path_bytes, O_RDONLY | O_DIRECT, 0, fd);

    *direct = rc == 0;
    return rc == -EINVAL ? dr_open(th, dir, path, path_bytes, O_RDONLY, 0, fd) : rc;
}

static int open_file(struct dr_thread *th, const struct fp_dw_verify *m, int root, int *fd, bool *direct)
{
    const char *path = (const char *)(m + 1);
    struct stat st;
    int temps, rc;

    *fd = -1;
    if (m->tmp_bytes == 0) {
        rc = open_at(th, root, path, m->path_bytes, fd, direct);
    } else {
        rc = dr_temps(th, root, false, &temps);
        if (rc == 0) {
            rc = open_at(th, temps, path, m->tmp_bytes, fd, direct);
            close(temps);
        }
    }
    if (rc == 0) {
        dr_enter(th);
        rc = fstat(*fd, &st) ? -errno : 0;
        if (rc == 0 && (st.st_ino != m->tino || (uint64_t)st.st_size != m->size))
            rc = -ENOENT;
        if (rc == 0 && !*direct)
            (void)posix_fadvise(*fd, 0, 0, POSIX_FADV_DONTNEED);
        dr_leave(th, 0);
    }
    if (rc == -ENOENT)
        return dr_fail(th, FP_DW_SCOPE_FILE, rc, "its copy is gone, or was changed by somebody else");
    return rc ? dr_failed_call(th, rc, "open", "its copy") : 0;
}

static int read_window(struct dr_thread *th, int fd, uint64_t off, uint32_t len)
{
    uint32_t want = (len + PAGE - 1) / PAGE * PAGE, done = 0; /* O_DIRECT: the end of the file cuts it */
    int rc = 0;

    while (rc == 0 && done < len) {
        ssize_t n;

        dr_enter(th);
        rc = FP_FAULT_POINT("drain.target_pread");
        n = rc ? 0 : pread(fd, th->run + done, want - done, (off_t)(off + done));
        dr_leave(th, n > 0 ? (uint64_t)n : 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = -errno;
        if (n == 0)
            break;
        done += n > 0 ? (uint32_t)n : 0;
    }
    if (rc)
        return dr_failed_call(th, rc, "read", "its copy");
    return done < len ? dr_fail(th, FP_DW_SCOPE_FILE, FP_ECHECKSUM, "its copy ends at byte %llu", (unsigned long long)(off + done)) : 0;
}

/* What others have written is taken out of window i, which was read. *next: of its first range. */
static void without_others(struct dr_thread *th, const struct fp_dw_verify *m, const uint8_t *others, uint32_t i, uint32_t *next)
{
    for (; *next < m->nothers; ++*next) {
        struct fp_dw_range r;

        memcpy(&r, others + *next * sizeof(r), sizeof(r));
        if (r.at / m->window_bytes > i)
            break;
        if (r.at / m->window_bytes == i)
            memset(th->run + r.at % m->window_bytes, 0, r.len);
    }
}

static int verify_window(struct dr_thread *th, const struct fp_dw_verify *m, int fd, uint32_t i, uint64_t want, const uint8_t *others, uint32_t *next)
{
    uint64_t off = (m->first + i) * m->window_bytes, left = m->size - off;
    uint32_t len = left < m->window_bytes ? (uint32_t)left : m->window_bytes;
    uint64_t sums[FP_DW_WINDOW_MAX_BYTES / FP_BLOCK_SIZE_BYTES];
    int rc;

    if (len == 0)
        return 0;
    if (!dr_gate(th, len))
        return dr_fail(th, FP_DW_SCOPE_FILE, -ECANCELED, "cancelled");
    rc = read_window(th, fd, off, len);
    if (rc)
        return rc;
    without_others(th, m, others, i, next);
    fp_sum_blocks(th->run, len, sums);
    if (fp_sum_chunk(sums, fp_sum_nblocks(len), len) != want)
        return dr_fail(th, FP_DW_SCOPE_FILE, FP_ECHECKSUM, "its copy differs in bytes %llu to %llu", (unsigned long long)off, (unsigned long long)off + len);
    th->r.bytes += len;
    atomic_fetch_add(&th->w->status->read_bytes, len);
    return 0;
}

int dr_verify(struct dr_thread *th)
{
    const struct fp_dw_verify *m = (const struct fp_dw_verify *)th->task->msg;
    const uint8_t *sums = (const uint8_t *)(m + 1) + m->path_bytes + m->tmp_bytes;
    uint32_t next = 0;
    int root, fd, rc = dr_root(th, false, &root);
    bool direct = false;

    if (rc)
        return rc;
    rc = open_file(th, m, root, &fd, &direct);
    if (rc == 0 && dr_memory(&th->run, &th->run_bytes, m->window_bytes))
        rc = dr_fail(th, FP_DW_SCOPE_TARGET, -ENOMEM, "out of memory on this node");
    for (uint32_t i = 0; rc == 0 && i < m->count; i++) {
        uint64_t want;

        memcpy(&want, sums + 8ull * i, 8);
        if (want)
            rc = verify_window(th, m, fd, i, want, sums + 8ull * m->count, &next);
    }
    dr_enter(th);
    if (fd >= 0) {
        if (!direct)
            (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
    }
    close(root);
    dr_leave(th, 0);
    return rc;
}
