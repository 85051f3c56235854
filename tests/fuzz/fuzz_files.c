/*
 * Small files that programs read at their start and people edit: keys, benefactor.json, what fp-store keeps; headers of segments and records.
 *
 * Byte 0 says which. Bit 3: it is not the bytes of the input, but a good file with some of them changed. What is taken is written and read again, and must
 * then say the same.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "benefactor/identity.h"
#include "client/store/store.h"
#include "fp/key.h"
#include "fp/record.h"
#include "tests/fuzz/fuzz.h"

#define FILE_MAX 4096u

static struct {
    char dir[64];
    struct store_options store;
    uint8_t text[FILE_MAX + 1];
    size_t len;
} x;

static const char *const names[] = {"key", "benefactor.json", "fp-store.json", "fp-store.shape"};

#define STATE                                                                                                                              \
    "{\"boot_id\": \"x\", \"manager\": \"127.0.0.1:7777\", \"key\": \"/k\", \"processes\": [{\"role\": \"manager\", \"index\": 1, \"pid\": 7, "        \
    "\"start_ticks\": 8}, {\"role\": \"mount\", \"index\": 1, \"pid\": 9, \"start_ticks\": 9, \"mountpoint\": \"/m\", \"made_mountpoint\": true}]}"

static const char *const good[] = {
    "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n",
    "{\"format\": 1, \"store\": \"12345678-1234-4234-8234-123456789abc\", \"benefactor\": \"22345678-1234-4234-8234-123456789abc\"}",
    STATE,
    "{\"size_bytes\": 1073741824, \"backend\": 0}",
};

static const char *path_of(unsigned which)
{
    static char path[128];

    snprintf(path, sizeof path, "%s/%s", x.dir, names[which]);
    return path;
}

static void at_end(void)
{
    for (unsigned i = 0; i < 4; i++)
        unlink(path_of(i));
    (void)!chdir(x.dir);
    rmdir("segments");
    unlink("lock");
    rmdir(x.dir);
}

static void init(void)
{
    const char *tmp = getenv("TMPDIR");

    if (x.dir[0])
        return;
    if (access("/dev/shm", W_OK) == 0)
        tmp = "/dev/shm";
    snprintf(x.dir, sizeof x.dir, "%.40s/fpfuzz-XXXXXX", tmp ? tmp : "/tmp");
    FUZZ_CHECK(mkdtemp(x.dir));
    x.store.dir = x.dir;
    atexit(at_end);
}

static void write_file(unsigned which)
{
    int fd = open(path_of(which), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);

    FUZZ_CHECK(fd >= 0 && write(fd, x.text, x.len) == (ssize_t)x.len);
    close(fd);
}

static void read_key(void)
{
    char why[FP_KEY_WHY_MAX] = "";
    struct fp_key *key = NULL;
    int rc = fp_key_load(path_of(0), &key, why);

    FUZZ_CHECK((rc == 0) == (key != NULL) && (rc == 0 || why[0]));
    fp_key_free(key);
}

static void read_identity(void)
{
    struct bnf_dir d = {0};

    if (bnf_dir_open(x.dir, &d))
        return;
    FUZZ_CHECK(d.known);
    bnf_dir_close(&d);
}

static void read_state(void)
{
    static struct store_state s, again;

    if (store_state_load(&x.store, &s))
        return;
    FUZZ_CHECK(s.count <= STORE_PROCS_MAX && memchr(s.key, 0, sizeof s.key) && memchr(s.manager, 0, sizeof s.manager));
    for (unsigned i = 0; i < s.count; i++)
        FUZZ_CHECK(s.procs[i].role <= STORE_MOUNT && s.procs[i].index >= 1 && memchr(s.procs[i].mountpoint, 0, sizeof s.procs[i].mountpoint));
    for (unsigned i = 0; i < s.count; i++)
        s.procs[i].pid = 5; /* of another boot: 0, which is not written */
    FUZZ_CHECK(store_state_save(&x.store, &s) == 0 && store_state_load(&x.store, &again) == 0);
    FUZZ_CHECK(again.count == s.count && strcmp(again.manager, s.manager) == 0 && strcmp(again.key, s.key) == 0);
    for (unsigned i = 0; i < s.count; i++)
        FUZZ_CHECK(again.procs[i].role == s.procs[i].role && again.procs[i].start_ticks == s.procs[i].start_ticks);
}

static void read_shape(void)
{
    struct store_options o = {.dir = x.dir};

    if (store_shape_load(&o))
        return;
    FUZZ_CHECK(o.size_bytes > 0);
}

/* right: magic, version and sum are as they should be, so that the fields are looked at. */
static void decode_headers(bool right, bool segment)
{
    static struct fp_record_header r, r2;
    struct fp_segment_header s, s2;
    uint8_t out[FILE_MAX];

    memset(x.text + x.len, 0, FILE_MAX - x.len);
    if (right) {
        uint64_t sum;

        memcpy(x.text, segment ? "FPS1\1\0" : "FPR1\1\0", 6);
        sum = XXH3_64bits(x.text, FILE_MAX - 8);
        memcpy(x.text + FILE_MAX - 8, &sum, 8);
    }
    if (fp_record_header_decode(x.text, &r) == 0) {
        fp_record_header_encode(&r, out);
        FUZZ_CHECK(fp_record_header_decode(out, &r2) == 0 && r2.chunk == r.chunk && r2.sum == r.sum && r2.blocks == r.blocks);
        FUZZ_CHECK(fp_record_size_bytes(r.stored_len_bytes) >= FP_RECORD_HEADER_BYTES);
    }
    if (fp_segment_header_decode(x.text, &s) == 0) {
        fp_segment_header_encode(&s, out);
        FUZZ_CHECK(fp_segment_header_decode(out, &s2) == 0 && s2.id == s.id && s2.salt == s.salt);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct fuzz_in in = {data, data + len};
    uint8_t how = fuzz_u8(&in);
    unsigned which = how % 8 % 5;

    init();
    if (how & 8 && which < 4) {
        x.len = strlen(good[which]);
        memcpy(x.text, good[which], x.len);
        for (int i = 0; i < how >> 4 && fuzz_left(&in) > 0; i++)
            x.text[fuzz_u16(&in) % x.len] = fuzz_u8(&in);
    } else {
        x.len = fuzz_bytes(&in, x.text, FILE_MAX);
    }
    if (which < 4)
        write_file(which);
    switch (which) {
    case 0: read_key(); break;
    case 1: read_identity(); break;
    case 2: read_state(); break;
    case 3: read_shape(); break;
    default: decode_headers(how & 8, how & 16); break;
    }
    return 0;
}
