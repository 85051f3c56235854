/*
 * How exactly a back end of fp-benefactor is the device that it is told to be: devbench BACKEND DIR SECONDS THREADS.
 *
 * Prints a line of JSON: bytes/s of records of 1 MiB written and read one after the other, operations/s of 4 KiB at random places written and read.
 * It is the benefactor's own code from the option's text to the segment, without a store around it: a store adds headers to chunks, and reads
 * whole blocks of 64 KiB, so none of its programs could ask a device for 35,000 operations a second of 4 KiB.
 *
 * All threads work until the time is over; what is counted is what was done between the first operation's beginning and the last one's end.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "benefactor/backend.h"
#include "fp/backend.h"
#include "fp/clock.h"

#define SEGMENT_BYTES (256ull << 20)
#define RECORD_BYTES  ((1ull << 20) + 4096)
#define PAGE_BYTES    4096ull

struct job {
    struct bnf_file *file;
    bool write, random;
    uint64_t until_ns;
    atomic_ullong next, ops;
};

static int one(const struct job *j, uint8_t *buf, uint64_t bytes, uint64_t off)
{
    struct iovec iov = {.iov_base = buf, .iov_len = bytes};

    return j->write ? bnf_file_write(j->file, &iov, 1, off) : bnf_file_read(j->file, buf, bytes, off);
}

/* NULL, or what is not: an operation failed. */
static void *work(void *arg)
{
    struct job *j = arg;
    uint64_t bytes = j->random ? PAGE_BYTES : RECORD_BYTES, places = SEGMENT_BYTES / bytes - 1;
    uint8_t *buf = aligned_alloc(PAGE_BYTES, bytes);
    int rc = buf ? 0 : -ENOMEM;

    if (buf)
        memset(buf, 0x5a, bytes);
    while (rc == 0 && fp_now_ns() < j->until_ns) {
        uint64_t n = atomic_fetch_add(&j->next, 1), at = j->random ? n * 0x9e3779b97f4a7c15ull >> 20 : n;

        rc = one(j, buf, bytes, PAGE_BYTES + at % places * bytes);
        atomic_fetch_add(&j->ops, 1);
    }
    free(buf);
    return rc ? j : NULL;
}

/* Operations per second, or negative. */
static double run(struct bnf_file *f, bool write, bool random, double seconds, int threads)
{
    struct job j = {.file = f, .write = write, .random = random};
    pthread_t id[64];
    uint64_t began_ns = fp_now_ns();
    bool failed = false;

    j.until_ns = began_ns + (uint64_t)(seconds * 1e9);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&id[i], NULL, work, &j))
            abort();
    for (int i = 0; i < threads; i++) {
        void *bad;

        pthread_join(id[i], &bad);
        failed |= bad != NULL;
    }
    return failed ? -1 : (double)atomic_load(&j.ops) / ((double)(fp_now_ns() - began_ns) / 1e9);
}

static int open_backend(const char *text, const char *dir, struct fp_backend_spec *spec, struct bnf_backend **b, struct bnf_file **f)
{
    struct fp_segment_header h = {.id = 1, .salt = 2, .limit_bytes = SEGMENT_BYTES};
    char why[FP_BACKEND_WHY_BUF];
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), rc = fd < 0 ? -errno : 0;

    if (fp_backend_parse(text, spec, why)) {
        fprintf(stderr, "devbench: %s\n", why);
        exit(2);
    }
    if (rc == 0)
        rc = spec->kind == FP_BACKEND_MEMORY ? bnf_backend_memory_new(SEGMENT_BYTES, b) : bnf_backend_dir_new(fd, b);
    if (rc == 0)
        rc = bnf_backend_create(*b, &h, f);
    if (rc == 0)
        rc = bnf_backend_alloc(*b, *f, 0, SEGMENT_BYTES);
    return rc;
}

/* Untimed, so that no page is made while time is taken. */
static int fill(struct bnf_file *f)
{
    const struct job j = {.file = f, .write = true};
    uint8_t *buf = aligned_alloc(PAGE_BYTES, RECORD_BYTES);
    int rc = buf ? 0 : -ENOMEM;

    if (buf)
        memset(buf, 1, RECORD_BYTES);
    for (uint64_t off = PAGE_BYTES; rc == 0 && off + RECORD_BYTES <= SEGMENT_BYTES; off += RECORD_BYTES)
        rc = one(&j, buf, RECORD_BYTES, off);
    free(buf);
    return rc;
}

int main(int argc, char **argv)
{
    struct fp_backend_spec spec;
    struct bnf_backend *b = NULL;
    struct bnf_file *f = NULL;
    double seconds = argc == 5 ? atof(argv[3]) : 0, rate[4] = {0};
    int threads = argc == 5 ? atoi(argv[4]) : 0, rc;

    if (seconds <= 0 || threads < 1 || threads > 64) {
        fprintf(stderr, "usage: devbench BACKEND DIR SECONDS THREADS (1 to 64)\n");
        return 2;
    }
    rc = open_backend(argv[1], argv[2], &spec, &b, &f);
    if (rc == 0)
        rc = fill(f);
    if (rc == 0 && spec.emulated)
        rc = bnf_backend_emulate(b, &spec.speed);
    if (rc == 0)
        f->limiter = b->limiter;
    for (int i = 0; i < 4 && rc == 0; i++) {
        rate[i] = run(f, i % 2 == 0, i >= 2, seconds, threads);
        rc = rate[i] < 0 ? -EIO : 0;
    }
    if (f)
        (void)bnf_backend_unlink(b, f);
    bnf_file_put(f);
    bnf_backend_free(b);
    if (rc) {
        fprintf(stderr, "devbench: %s in %s: %s\n", argv[1], argv[2], strerror(-rc));
        return 1;
    }
    printf("{\"write\": %.1f, \"read\": %.1f, \"write-iops\": %.2f, \"read-iops\": %.2f}\n", rate[0] * RECORD_BYTES, rate[1] * RECORD_BYTES, rate[2], rate[3]);
    return 0;
}
