/*
 * dupratio OLDER NEWER: how much of one file the aux-app dedup would find in another, at several sizes, without a store.
 *
 * For users who want to know before they declare dedup, and for the figures in docs/AUXAPPS.md. It is built of the plugin's own cutting, digests and limit of
 * pieces, window by window as the mount hands them out, so it says what would be stored, not what a better method could find. Reads both files once for each
 * row; the older one as the first version of a file, the newer as the next. One thread; a copy of the plugin in a fake host would tell no more, and be slower.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "auxapps/dedup/index.h"
#include "auxapps/dedup/pieces.h"

#define WINDOW_BYTES (1u << 20)        /* the store's default chunk */

struct file { const uint8_t *data; uint64_t bytes; };

struct row { const char *name; enum cut_kind kind; uint32_t size_bytes; };

/* Bytes of the newer file. dropped: found, but in runs so short that the map would grow too much. */
struct sums { uint64_t found, dropped, zero, fresh; };

static const struct row rows[] = {
    { "fixed 4KiB", CUT_FIXED, 4 << 10 }, { "fixed 64KiB", CUT_FIXED, 64 << 10 }, { "fixed 1MiB", CUT_FIXED, 1 << 20 },
    { "cdc 4KiB", CUT_CONTENT, 4 << 10 }, { "cdc 16KiB", CUT_CONTENT, 16 << 10 }, { "cdc 32KiB", CUT_CONTENT, 32 << 10 },
    { "cdc 64KiB", CUT_CONTENT, 64 << 10 },
};

static void die(const char *what)
{
    fprintf(stderr, "dupratio: %s\n", what);
    exit(1);
}

static struct file map_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct file f = { 0 };
    struct stat st;

    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size == 0) {
        perror(path);
        exit(1);
    }
    f.bytes = (uint64_t)st.st_size;
    f.data = mmap(NULL, f.bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (f.data == MAP_FAILED)
        die("can't map a file");
    close(fd);
    return f;
}

static uint64_t bytes_of(const struct pieces *p, enum piece_kind kind)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < p->n; i++)
        n += p->piece[i].kind == kind ? p->piece[i].len_bytes : 0;
    return n;
}

static void look_up(struct pieces *p, const struct index *earlier)
{
    for (uint32_t i = 0; i < p->n; i++) {
        struct piece *x = &p->piece[i];
        struct fp_aux_place place;
        bool doubtful;

        if (x->kind != PIECE_NEW || x->len_bytes < FP_AUX_PIECE_MIN_BYTES)
            continue;
        if (index_find(earlier, x->digest, x->len_bytes, &place, &doubtful)) {
            x->kind = PIECE_STORED;
            x->place = place;
        }
    }
}

/* What is new of this window becomes what later versions are compared with. */
static void keep(const struct pieces *p, uint64_t window, struct index *to)
{
    for (uint32_t i = 0; i < p->n; i++) {
        const struct piece *x = &p->piece[i];
        struct fp_aux_place place = { .chunk = window + 1, .off = x->off, .len_bytes = x->len_bytes };

        if (x->kind == PIECE_NEW && !index_add(to, x->digest, place, false))
            die("no memory");
    }
}

static struct sums pass(const struct file *f, const struct cut_rule *rule, const struct index *earlier, struct index *to)
{
    struct digest *digest = digest_new(DIGEST_SHA1);
    struct pieces p = { 0 };
    struct sums s = { 0 };

    if (!digest)
        die("no SHA-1");
    for (uint64_t at = 0; at < f->bytes; at += WINDOW_BYTES) {
        uint32_t len = f->bytes - at < WINDOW_BYTES ? (uint32_t)(f->bytes - at) : WINDOW_BYTES;
        struct fp_aux_part part = { .data = f->data + at, .len_bytes = len };
        struct fp_aux_chunk k = { .size_bytes = sizeof(k), .len_bytes = len, .nparts = 1, .whole = true, .parts = &part, .file_off = at };
        uint64_t found;

        if (pieces_cut(&p, rule, &k) < 0 || pieces_digest(&p, digest, &k) < 0)
            die("no memory");
        look_up(&p, earlier);
        if (pieces_same(&p, &k, false) < 0)
            die("no memory");
        found = bytes_of(&p, PIECE_STORED) + bytes_of(&p, PIECE_SAME);
        pieces_limit(&p, FP_AUX_PIECES_MAX(len));
        if (pieces_digest(&p, digest, &k) < 0)
            die("no memory");
        s.found += bytes_of(&p, PIECE_STORED) + bytes_of(&p, PIECE_SAME);
        s.dropped += found - bytes_of(&p, PIECE_STORED) - bytes_of(&p, PIECE_SAME);
        s.zero += bytes_of(&p, PIECE_ZERO);
        s.fresh += bytes_of(&p, PIECE_NEW);
        if (to)
            keep(&p, at / WINDOW_BYTES, to);
    }
    digest_free(digest);
    pieces_fini(&p);
    return s;
}

int main(int argc, char **argv)
{
    struct file older, newer;

    if (argc != 3 || argv[1][0] == '-') {
        fprintf(stderr, "Usage: dupratio OLDER NEWER\n%% of NEWER's bytes that the aux-app dedup finds in OLDER or in the same MiB of NEWER.\n");
        return 2;
    }
    older = map_file(argv[1]);
    newer = map_file(argv[2]);
    printf("%-12s %10s %8s %8s %8s   %% of %.1f MB\n", "pieces", "duplicate", "zero", "new", "dropped", (double)newer.bytes / 1e6);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct cut_rule rule = { .kind = rows[i].kind, .fixed_bytes = rows[i].size_bytes };
        struct budget all = { .max_bytes = SIZE_MAX / 2 };
        struct index first, none;
        double per_cent = 100.0 / (double)newer.bytes;
        struct sums s;

        index_init(&first, DIGEST_SHA1, &all);
        index_init(&none, DIGEST_SHA1, &all);
        cdc_init(&rule.cdc, rows[i].size_bytes);
        (void)pass(&older, &rule, &none, &first);
        s = pass(&newer, &rule, &first, NULL);
        printf("%-12s %10.1f %8.1f %8.1f %8.1f\n", rows[i].name, (double)s.found * per_cent, (double)s.zero * per_cent,
               (double)s.fresh * per_cent, (double)s.dropped * per_cent);
        index_clear(&first);
    }
    return 0;
}
