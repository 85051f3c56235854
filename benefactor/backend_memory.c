/*
 * Segments in memory, for checkpoints that need not survive the node (the paper's in-memory buffers).
 *
 * Called on disk threads. Clients write them through the descriptor like files. What makes tmpfs slow is
 * allocating and clearing pages; here a thread of our own does that for the next stretch of the segment being
 * filled while the clients still copy into the last one, so that their write is a copy and nothing else. A
 * lease does not wait for it: where the thread was not fast enough, and it runs at low priority, the client's
 * write makes the page. The stretch ready ahead is bounded (ahead_bytes), counts on top of --size, and is
 * given back when the next segment begins.
 *
 * Where we may, which takes CAP_SYS_ADMIN, segments are files without a name in a tmpfs of our own, mounted
 * nowhere, with huge=within_size, because pages of 4 KiB are most of the cost; otherwise each is a memfd.
 *
 * Memory that was freed is not used again for other chunks, although its pages would be ready: mounts hold
 * the descriptors, and a late write of one whose lease has ended must not hit anybody's data (store.h).
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include "benefactor/backend.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

#define STEP_BYTES ((uint64_t)4 << 20) /* the thread looks for something better to do after each */
#define HUGE_BYTES ((uint64_t)2 << 20)

struct memory_backend {
    struct bnf_backend base;
    uint64_t ahead_bytes;
    int tmpfs_fd; /* root of our own tmpfs, or -1 */
    pthread_t thread;
    pthread_mutex_t lock; /* all below */
    pthread_cond_t wake;
    pthread_cond_t stepped;
    struct bnf_file *file; /* being filled, referenced */
    uint64_t leased_end_bytes;
    uint64_t ready_end_bytes;
    uint64_t left_segment, left_end_bytes; /* the segment filled before, and where its leases end */
    uint64_t step_segment, step_from_bytes, step_to_bytes; /* being made ready now; to 0: nothing */
    bool stop;
};

static struct memory_backend *memory_of(struct bnf_backend *b)
{
    return (struct memory_backend *)b;
}

static int allocate(struct bnf_file *f, uint64_t off_bytes, uint64_t len_bytes)
{
    while (fallocate(f->fd, FALLOC_FL_KEEP_SIZE, (off_t)off_bytes, (off_t)len_bytes))
        if (errno != EINTR)
            return -errno;
    return 0;
}

/*
 * Makes the pages be there. off_bytes is a multiple of HUGE_BYTES, so that the mapping can be of huge pages too.
 * Through a mapping, because fallocate holds the inode's lock, which the clients' writes into the stretch before
 * need as well: measured, they crawl at a tenth of their speed beside it.
 */
static int populate(struct bnf_file *f, uint64_t off_bytes, uint64_t len_bytes)
{
    void *p = mmap(NULL, len_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, f->fd, (off_t)off_bytes);
    int rc;

    if (p == MAP_FAILED)
        return allocate(f, off_bytes, len_bytes);
    rc = madvise(p, len_bytes, MADV_POPULATE_WRITE) ? -errno : 0;
    munmap(p, len_bytes);
    return rc == -EINVAL ? allocate(f, off_bytes, len_bytes) : rc == -EFAULT ? -ENOMEM : rc;
}

static int punch(struct bnf_file *f, uint64_t off_bytes, uint64_t len_bytes)
{
    while (fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)off_bytes, (off_t)len_bytes))
        if (errno != EINTR)
            return -errno;
    return 0;
}

/*
 * A hole must stay one: the thread that makes memory ready may be behind the writers, in or before a stretch that was written and
 * deleted already. It finishes its step first, and goes on behind the hole.
 */
static int memory_punch(struct bnf_backend *b, struct bnf_file *f, uint64_t off_bytes, uint64_t len_bytes)
{
    struct memory_backend *m = memory_of(b);
    uint64_t end = off_bytes + len_bytes;

    pthread_mutex_lock(&m->lock);
    while (m->step_segment == f->segment && off_bytes < m->step_to_bytes && end > m->step_from_bytes)
        pthread_cond_wait(&m->stepped, &m->lock);
    if (m->file == f && end > m->ready_end_bytes)
        m->ready_end_bytes = (end + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);
    pthread_mutex_unlock(&m->lock);
    return punch(f, off_bytes, len_bytes);
}

static uint64_t target_end(const struct memory_backend *m)
{
    uint64_t end = (m->leased_end_bytes + m->ahead_bytes + HUGE_BYTES - 1) & ~(HUGE_BYTES - 1);

    return end < m->file->limit_bytes ? end : m->file->limit_bytes;
}

/* What was made ready and not leased: never more, for in front of it is the clients' data. */
static void give_back(struct bnf_file *f, uint64_t from, uint64_t to)
{
    if (to > from)
        punch(f, from, to - from);
}

/* Lock held; let go meanwhile. */
static void make_step_ready(struct memory_backend *m)
{
    struct bnf_file *f = bnf_file_get(m->file);
    uint64_t ready = m->ready_end_bytes, from = ready & ~(HUGE_BYTES - 1), to = target_end(m);
    int rc;


    if (to - from > STEP_BYTES)
        to = from + STEP_BYTES;
    m->step_segment = f->segment;
    m->step_from_bytes = from;
    m->step_to_bytes = to;
    pthread_mutex_unlock(&m->lock);
    rc = populate(f, from, to - from);
    pthread_mutex_lock(&m->lock);
    m->step_to_bytes = 0;
    pthread_cond_broadcast(&m->stepped);
    if (m->file == f && (rc || to > m->ready_end_bytes))
        m->ready_end_bytes = rc ? f->limit_bytes : to; /* no memory: leave it to the writers, who will tell */
    else if (m->file != f && m->left_segment == f->segment)
        give_back(f, ready > m->left_end_bytes ? ready : m->left_end_bytes, to);
    bnf_file_put(f);
}

static void *ahead_thread(void *arg)
{
    struct memory_backend *m = arg;

    setpriority(PRIO_PROCESS, (id_t)gettid(), 10); /* of this thread alone: getpriority(2) */
    pthread_mutex_lock(&m->lock);
    while (!m->stop) {
        if (m->file && m->ready_end_bytes < target_end(m))
            make_step_ready(m);
        else
            pthread_cond_wait(&m->wake, &m->lock);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

/* -1 where we may not, or the kernel has no huge pages. */
static int mount_tmpfs(void)
{
    int fs = fsopen("tmpfs", FSOPEN_CLOEXEC), root = -1;

    if (fs < 0)
        return -1;
    /* size=0: bounded by our --size alone, as a memfd would be */
    if (fsconfig(fs, FSCONFIG_SET_STRING, "huge", "within_size", 0) == 0 &&
        fsconfig(fs, FSCONFIG_SET_STRING, "size", "0", 0) == 0 &&
        fsconfig(fs, FSCONFIG_SET_STRING, "mode", "0700", 0) == 0 &&
        fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
        root = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    close(fs);
    return root;
}

static int open_segment(const struct memory_backend *m, uint64_t id)
{
    char name[64];
    int fd;

    if (m->tmpfs_fd >= 0)
        return openat(m->tmpfs_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    snprintf(name, sizeof(name), "fpstore-seg-%" PRIx64, id);
    fd = memfd_create(name, MFD_CLOEXEC | MFD_NOEXEC_SEAL);
    if (fd < 0 && errno == EINVAL)
        fd = memfd_create(name, MFD_CLOEXEC);
    return fd;
}

static int memory_create(struct bnf_backend *b, const struct fp_segment_header *h, struct bnf_file **out)
{
    struct bnf_file *f;
    int fd = open_segment(memory_of(b), h->id), rc;

    if (fd < 0)
        return -errno;
    f = bnf_file_new(fd, false, h->id, h->salt, h->limit_bytes);
    if (!f)
        return -ENOMEM;
    f->limiter = b->limiter;
    rc = ftruncate(fd, (off_t)h->limit_bytes) ? -errno : bnf_file_write_header(f, h);
    if (rc)
        bnf_file_put(f);
    else
        *out = f;
    return rc;
}

/* Lock held. The stretch made ready behind the last lease of the old segment is given back. */
static void switch_to(struct memory_backend *m, struct bnf_file *f, uint64_t off_bytes)
{
    if (m->file) {
        give_back(m->file, m->leased_end_bytes, m->ready_end_bytes);
        m->left_segment = m->file->segment;
        m->left_end_bytes = m->leased_end_bytes;
    }
    bnf_file_put(m->file);
    m->file = bnf_file_get(f);
    m->leased_end_bytes = m->ready_end_bytes = off_bytes;
}

static int memory_alloc(struct bnf_backend *b, struct bnf_file *f, uint64_t off_bytes, uint64_t len_bytes)
{
    struct memory_backend *m = memory_of(b);

    pthread_mutex_lock(&m->lock);
    if (!m->file || f->segment > m->file->segment)
        switch_to(m, f, off_bytes);
    if (m->file == f) {
        if (off_bytes + len_bytes > m->leased_end_bytes)
            m->leased_end_bytes = off_bytes + len_bytes;
        pthread_cond_signal(&m->wake);
    } else if (f->segment == m->left_segment && off_bytes + len_bytes > m->left_end_bytes) {
        m->left_end_bytes = off_bytes + len_bytes;
    }
    pthread_mutex_unlock(&m->lock);
    return 0;
}

static int memory_unlink(struct bnf_backend *b, struct bnf_file *f)
{
    (void)b;
    return ftruncate(f->fd, 0) ? -errno : 0;
}

static int memory_sync(struct bnf_backend *b, struct bnf_file *f)
{
    (void)b;
    (void)f;
    return 0;
}

static int memory_device_free(struct bnf_backend *b, uint64_t *bytes)
{
    FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    uint64_t kib;

    (void)b;
    if (!f)
        return -errno;
    *bytes = UINT64_MAX;
    while (fgets(line, sizeof(line), f))
        if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
            *bytes = kib << 10;
    fclose(f);
    return *bytes == UINT64_MAX ? -ENODATA : 0;
}

static int memory_probe(struct bnf_backend *b)
{
    uint64_t bytes;
    int rc = memory_device_free(b, &bytes);

    return rc ? rc : bytes > STEP_BYTES ? 0 : -ENOMEM;
}

static void memory_free(struct bnf_backend *b)
{
    struct memory_backend *m = memory_of(b);

    pthread_mutex_lock(&m->lock);
    m->stop = true;
    pthread_cond_signal(&m->wake);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    bnf_file_put(m->file);
    if (m->tmpfs_fd >= 0)
        close(m->tmpfs_fd);
    pthread_cond_destroy(&m->wake);
    pthread_cond_destroy(&m->stepped);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static const struct bnf_backend_ops memory_ops = {
    .name = "memory",
    .volatile_data = true,
    .create = memory_create,
    .alloc = memory_alloc,
    .punch = memory_punch,
    .unlink = memory_unlink,
    .sync = memory_sync,
    .device_free = memory_device_free,
    .probe = memory_probe,
    .free = memory_free,
};

int bnf_backend_memory_new(uint64_t ahead_bytes, struct bnf_backend **out)
{
    struct memory_backend *m = calloc(1, sizeof(*m));

    if (!m)
        return -ENOMEM;
    m->base.ops = &memory_ops;
    m->ahead_bytes = ahead_bytes;
    m->tmpfs_fd = mount_tmpfs();
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->wake, NULL);
    pthread_cond_init(&m->stepped, NULL);
    if (pthread_create(&m->thread, NULL, ahead_thread, m)) {
        if (m->tmpfs_fd >= 0)
            close(m->tmpfs_fd);
        free(m);
        return -EAGAIN;
    }
    *out = &m->base;
    return 0;
}
