/*
 * The start of a benefactor over segments that a crash, a bad disk or somebody has changed (benefactor/recover.c, common/record.c).
 *
 * Two segment files in memory (memfile.h; only their names are in a folder), made as the input says: records, torn and repeated ones, bytes that were turned, headers
 * of another place, a file that is cut off. What was not touched must be found; a second recovery must find the same and nothing torn, for
 * the first has given back everything else.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "benefactor/recover.h"
#include "fp/record.h"
#include "tests/fuzz/memfile.h"

#define LIMIT    (256u << 10)
#define PAGE     FP_RECORD_ALIGN_BYTES
#define SEGMENTS 2

static struct {
    char path[64];
    int dir_fd;
    struct bnf_backend backend;
    int fd[SEGMENTS];
    struct bnf_file *file[8];
    uint8_t image[SEGMENTS][LIMIT];
    uint32_t used[SEGMENTS];          /* bytes of the image that were written */
    uint32_t cut[SEGMENTS];           /* length of the file */
    uint8_t uuid[2][16];
} x;

static const char *const names[SEGMENTS] = {"seg-0000000000000001", "seg-0000000000000002"};

static void at_end(void)
{
    for (unsigned i = 0; i < SEGMENTS; i++)
        unlinkat(x.dir_fd, names[i], 0);
    rmdir(x.path);
}

/* -------------------------------------------------------------- the back end */

int __wrap_bnf_backend_dir_open(struct bnf_backend *b, const char *name, bool *read_only, struct bnf_file **out);

int __wrap_bnf_backend_dir_open(struct bnf_backend *b, const char *name, bool *read_only, struct bnf_file **out)
{
    unsigned at = name[19] - '1';

    FUZZ_CHECK(b == &x.backend && at < SEGMENTS);
    *read_only = false;
    *out = bnf_file_new(memfile_dup(x.fd[at]), false, 0, 0, 0);
    FUZZ_CHECK(*out);
    return 0;
}

static int be_punch(struct bnf_backend *b, struct bnf_file *f, uint64_t off_bytes, uint64_t len_bytes)
{
    (void)b;
    FUZZ_CHECK(off_bytes >= FP_SEGMENT_HEADER_BYTES && off_bytes + len_bytes <= f->limit_bytes);
    memfile_punch(f->fd, off_bytes, len_bytes);
    return 0;
}

static void init(void)
{
    static const struct bnf_backend_ops ops = {.name = "fuzz", .punch = be_punch};
    const char *tmp = getenv("TMPDIR");

    if (x.path[0])
        return;
    snprintf(x.path, sizeof x.path, "%.40s/fpfuzz-XXXXXX", tmp ? tmp : "/tmp");
    FUZZ_CHECK(mkdtemp(x.path));
    x.dir_fd = open(x.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (unsigned i = 0; i < SEGMENTS; i++)
        close(openat(x.dir_fd, names[i], O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    x.backend.ops = &ops;
    memset(x.uuid, 7, sizeof x.uuid);
    atexit(at_end);
}

static uint64_t salt_of(unsigned seg)
{
    return 0x5a17000000000000 + seg;
}

static void put_record(struct fuzz_in *in, unsigned seg)
{
    static struct fp_record_header h;
    uint8_t harm = fuzz_u8(in);
    uint32_t off = x.used[seg], bytes;

    h = (struct fp_record_header){.chunk = 1 + fuzz_u8(in) % 12, .segment = seg + 1, .offset = off, .salt = salt_of(seg)};
    h.len_bytes = h.stored_len_bytes = 1 + (fuzz_u16(in) & (harm & 1 ? 0xffff : 0x3fff));
    bytes = fp_record_size_bytes(h.stored_len_bytes);
    if (off + bytes > LIMIT)
        return;
    memset(x.image[seg] + off + PAGE, (int)h.chunk, h.len_bytes);
    fp_record_header_sum(&h, x.image[seg] + off + PAGE);
    switch (harm < 128 ? 0 : harm % 8) { /* all of these have a right sum */
    case 1: h.offset += PAGE; break;
    case 2: h.segment = 3 - h.segment; break;
    case 3: h.salt++; break;
    case 4: h.stored_len_bytes = (uint32_t)fuzz_number(in); break;
    case 5: h.chunk = fuzz_number(in); break;
    case 6: h.sum ^= fuzz_u8(in); break;
    case 7: h.len_bytes = (uint32_t)fuzz_number(in); break;
    default: break;
    }
    fp_record_header_encode(&h, x.image[seg] + off);
    x.used[seg] += bytes;
}

static void change(struct fuzz_in *in, unsigned seg)
{
    uint8_t what = fuzz_u8(in), raw[32];
    uint32_t at = x.used[seg] > 0 ? fuzz_u32(in) % x.used[seg] : 0;

    if (what < 64) /* within the part of a page where the fields are */
        at = at / PAGE * PAGE + at % 128;
    if (what < 128) {
        x.image[seg][at] ^= (uint8_t)(1u << what % 8);
    } else if (what < 170) {
        uint32_t n = (uint32_t)fuzz_bytes(in, raw, what % 32);

        memcpy(x.image[seg] + at, raw, at + n <= LIMIT ? n : 0);
    } else if (what < 210) { /* a page was never written */
        memset(x.image[seg] + at / PAGE * PAGE, 0, PAGE);
    } else if (what < 230) { /* a page stands somewhere else as well */
        uint32_t to = fuzz_u32(in) % LIMIT / PAGE * PAGE;

        memmove(x.image[seg] + to, x.image[seg] + at / PAGE * PAGE, PAGE);
        if (x.used[seg] < to + PAGE)
            x.used[seg] = to + PAGE;
    } else if (what < 245) { /* room that was leased and not filled */
        uint32_t skip = PAGE * (1 + what % 8);

        x.used[seg] += x.used[seg] + skip <= LIMIT ? skip : 0;
    } else {
        x.cut[seg] = at;
    }
}

static void write_files(void)
{
    memfile_reset();
    for (unsigned i = 0; i < SEGMENTS; i++) {
        if (x.used[i] > x.cut[i])
            x.used[i] = x.cut[i];
        x.fd[i] = memfile_new();
        memfile_write(x.fd[i], x.image[i], x.used[i], 0);
        memfile_truncate(x.fd[i], x.cut[i]);
    }
}

static void on_found(void *arg, uint32_t slot, struct bnf_file *f)
{
    (void)arg;
    FUZZ_CHECK(slot < 8 && !x.file[slot]);
    x.file[slot] = f;
}

static struct bnf_store *recover(struct bnf_recover_result *res)
{
    struct bnf_store_config config = {.capacity_bytes = 64u << 20, .segment_bytes = 32u << 20};
    struct bnf_recover_config c = {.backend = &x.backend, .dir_fd = x.dir_fd, .store_uuid = x.uuid[0], .bnf_uuid = x.uuid[1], .threads = 1,
                                   .found = on_found};
    struct bnf_store *s;

    memset(res, 0, sizeof *res);
    FUZZ_CHECK(bnf_store_new(&config, &s) == 0);
    FUZZ_CHECK(bnf_recover(&c, s, res) == 0);
    bnf_store_check(s);
    for (unsigned i = 0; i < 8; i++) {
        bnf_file_put(x.file[i]);
        x.file[i] = NULL;
    }
    return s;
}

/* Every record that recovery entered has a header at its place that says so. */
static void check_found(const struct bnf_store *s)
{
    uint64_t ids[512];
    bool eof;
    size_t n = bnf_store_inventory(s, 0, ids, 512, &eof);

    for (size_t i = 0; i < n; i++) {
        static struct fp_record_header h;
        struct bnf_place at;

        FUZZ_CHECK(bnf_store_find(s, ids[i], &at) == 0);
        FUZZ_CHECK(at.segment >= 1 && at.segment <= SEGMENTS && at.off_bytes + at.stored_bytes <= x.cut[at.segment - 1]);
        FUZZ_CHECK(fp_record_header_decode(x.image[at.segment - 1] + at.off_bytes, &h) == 0);
        FUZZ_CHECK(h.chunk == ids[i] && h.offset == at.off_bytes && h.salt == salt_of((unsigned)at.segment - 1));
        FUZZ_CHECK(h.len_bytes == at.len_bytes && h.sum == at.sum);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, data + len};
    struct bnf_recover_result first, second;
    struct bnf_store *s;
    bool untouched = true;

    init();
    for (unsigned i = 0; i < SEGMENTS; i++) {
        struct fp_segment_header h = {.id = i + 1, .salt = salt_of(i), .limit_bytes = LIMIT};

        memset(x.image[i], 0, x.used[i] < LIMIT ? x.used[i] + 1 : LIMIT);
        memcpy(h.store_uuid, x.uuid[0], 16);
        memcpy(h.bnf_uuid, x.uuid[1], 16);
        fp_segment_header_encode(&h, x.image[i]);
        x.used[i] = PAGE;
        x.cut[i] = LIMIT;
    }
    for (int i = 0; i < 40 && fuzz_left(&in) > 0; i++) {
        uint8_t c = fuzz_u8(&in);

        if (c < 170) {
            put_record(&in, c % SEGMENTS);
        } else {
            change(&in, c % SEGMENTS);
            untouched = false;
        }
    }
    write_files();
    s = recover(&first);
    check_found(s);
    bnf_store_free(s);
    FUZZ_CHECK(!untouched || (first.segments == SEGMENTS && first.set_aside == 0));
    s = recover(&second);
    FUZZ_CHECK(second.records == first.records && second.bytes == first.bytes && second.set_aside == first.set_aside);
    FUZZ_CHECK(second.torn == 0 && second.duplicates == 0);
    bnf_store_free(s);
    for (unsigned i = 0; i < SEGMENTS; i++)
        close(x.fd[i]);
    FUZZ_CHECK(memfile_open() == 0);
    return 0;
}
