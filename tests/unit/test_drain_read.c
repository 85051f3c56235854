/* fp-drain: what is read from a target is the file that was meant, or nothing; pages of directories; and neither is held up by what is held back. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

#include "fp/checksum.h"
#include "fp/err.h"
#include "fp/fault.h"
#include "fp/memfd.h"
#include "tests/unit/drain_world.h"

#define MEMORY (4u << 20)
#define SIZE   300007u
#define TMP    "a5a5a5a5-7-1"

static struct dw d;
static uint8_t *memory, data[SIZE];
static struct stat st;

static void share_memory(void)
{
    struct fp_dw_head h = { .type = FP_DW_MEMORY };
    int fd = fp_memfd_new("test", MEMORY);

    assert_true(fd >= 0);
    memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(memory != MAP_FAILED);
    dw_send(&d, &h, sizeof(h), NULL, 0, fd);
    close(fd);
}

static int setup(void **state)
{
    (void)state;
    dw_setup(&d);
    share_memory();
    bnf_fill(77, data, SIZE);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    dw_stop(&d);
    munmap(memory, MEMORY);
    fp_fault_set(NULL);
    return 0;
}

/* -------------------------------------------------------------- reading */

/* A file of somebody in the target: SIZE bytes. st: what it is. */
static void make_file(const char *below)
{
    int fd = open(dw_path(&d, below), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, SIZE), SIZE);
    assert_int_equal(fstat(fd, &st), 0);
    close(fd);
}

static uint64_t sum_of(const uint8_t *p, uint32_t len)
{
    uint64_t sums[FP_BLOCKS_MAX];

    fp_sum_blocks(p, len, sums);
    return fp_sum_chunk(sums, fp_sum_nblocks(len), len);
}

static void tell_read(const char *below, uint64_t off, uint32_t len, uint64_t sum, uint64_t to)
{
    struct fp_dw_read m = { .h = { .type = FP_DW_READ, .id = ++d.next_id, .gen = d.gen }, .tino = st.st_ino, .size = (uint64_t)st.st_size,
                            .mtime_ns = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec, .off = off, .sum = sum, .to = to, .len = len,
                            .path_bytes = (uint32_t)strlen(below) };

    dw_send(&d, &m, sizeof(m), below, strlen(below), -1);
}

static int read_file(const char *below, uint64_t off, uint32_t len, uint64_t sum)
{
    tell_read(below, off, len, sum, 8192);
    dw_wait(&d);
    assert_int_equal(d.done.h.id, d.next_id);
    return d.done.status;
}

static void is_read(const char *below, uint64_t off, uint32_t len)
{
    memset(memory, 0x5a, MEMORY);
    assert_int_equal(read_file(below, off, len, sum_of(data + off, len)), 0);
    assert_memory_equal(memory + 8192, data + off, len);
    assert_int_equal(memory[8191], 0x5a); /* and nothing before it, or behind the next 4 KiB */
    assert_int_equal(memory[8192 + (len + 4095) / 4096 * 4096], 0x5a);
    assert_int_equal(d.done.nsums, fp_sum_nblocks(len));
    assert_true(fp_sum_verify(data + off, len, d.sums) < 0);
    assert_int_equal(d.done.bytes, len);
    assert_int_equal(d.done.note, 0);
}

static void test_bytes_are_read(void **state)
{
    (void)state;
    mkdir(dw_path(&d, "dir"), 0755);
    make_file("dir/f");
    is_read("dir/f", 0, 65536);
    is_read("dir/f", 65536, 131072);
    is_read("dir/f", 131072, SIZE - 131072); /* to its end */
    is_read("dir/f", 1234, 70001);           /* at any place */
    is_read("dir/f", SIZE - 1, 1);
    make_file("dir/g"); /* another one in between */
    is_read("dir/g", 0, SIZE);
    assert_int_equal(read_file("dir/g", 4096, 4096, 0), 0); /* no sum is known */
    assert_memory_equal(memory + 8192, data + 4096, 4096);
}

static void test_zeros_are_told(void **state)
{
    (void)state;
    memset(data + 100000, 0, 100000);
    make_file("f");
    assert_int_equal(read_file("f", 100000, 100000, 0), 0);
    assert_int_equal(d.done.note, 1);
    assert_int_equal(read_file("f", 99999, 2, 0), 0);
    assert_int_equal(d.done.note, data[99999] == 0);
    assert_int_equal(read_file("f", 100001, 100000, 0), 0);
    assert_int_equal(d.done.note, 0);
}

static void test_wrong_bytes_are_not_passed_on(void **state)
{
    struct timespec t[2];
    int fd;

    (void)state;
    make_file("f");
    is_read("f", 65536, 65536);
    t[0] = st.st_atim;
    t[1] = st.st_mtim;
    fd = open(dw_path(&d, "f"), O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "x", 1, 70000), 1);
    assert_int_equal(futimens(fd, t), 0); /* by somebody who hides it */
    close(fd);
    data[70000] = 'x'; /* what is there now */
    assert_int_equal(read_file("f", 65536, 65536, sum_of(data + 65536, 65536)), 0);
    bnf_fill(77, data, SIZE);
    assert_int_not_equal(data[70000], 'x');
    assert_int_equal(read_file("f", 65536, 65536, sum_of(data + 65536, 65536)), FP_ECHECKSUM);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_FILE);
    assert_non_null(strstr(d.why, "f: bytes 65536 to 131072"));
    assert_int_equal(d.done.nsums, 0);
}

static void test_another_file_is_not_read(void **state)
{
    (void)state;
    make_file("f");
    is_read("f", 0, 65536);
    make_file("g");
    is_read("g", 0, 65536);
    assert_int_equal(rename(dw_path(&d, "g"), dw_path(&d, "f")), 0);
    is_read("f", 65536, 65536); /* it is g's inode that is meant */
    st.st_ino++;
    assert_int_equal(read_file("f", 0, 65536, 1), -ESTALE);
    st.st_ino--;
    st.st_mtim.tv_nsec ^= 1;
    assert_int_equal(read_file("f", 0, 65536, 1), -ESTALE);
    st.st_mtim.tv_nsec ^= 1;
    is_read("f", 0, 65536);
    assert_int_equal(truncate(dw_path(&d, "f"), 70000), 0);
    assert_int_equal(read_file("f", 65536, 65536, 1), -ESTALE);
    assert_int_equal(unlink(dw_path(&d, "f")), 0);
    assert_int_equal(read_file("f", 0, 65536, 1), -ENOENT);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_FILE);
    assert_int_equal(read_file("f/x", 0, 65536, 1), -ENOENT);
    assert_int_equal(symlink("g", dw_path(&d, "f")), 0);
    make_file("g");
    assert_int_equal(read_file("f", 0, 65536, 1), -ELOOP);
    assert_int_equal(unlink(dw_path(&d, "f")), 0);
    assert_int_equal(mkfifo(dw_path(&d, "f"), 0600), 0); /* nobody writes to it */
    assert_int_equal(read_file("f", 0, 65536, 1), -ESTALE);
}

static void test_a_place_that_cannot_be_read_is_not_the_target(void **state)
{
    (void)state;
    make_file("f");
    fp_fault_set("drain.target_pread=EIO:count=1");
    assert_int_equal(read_file("f", 0, 65536, 1), -EIO);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_FILE);
    assert_int_equal(fp_fault_fired("drain.target_pread"), 1);
    fp_fault_set(NULL);
    is_read("f", 0, 65536);
    assert_int_equal(unlink(dw_path(&d, FP_DW_MARKER)), 0); /* which is looked for when the directory is another one: it is not */
    is_read("f", 65536, 65536);
}

static void test_a_target_that_is_not_there(void **state)
{
    char away[600];

    (void)state;
    make_file("f");
    snprintf(away, sizeof(away), "%s-away", d.root);
    assert_int_equal(rename(d.root, away), 0);
    assert_int_equal(read_file("f", 0, 65536, 1), -ENOENT);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_TARGET);
    assert_int_equal(mkdir(d.root, 0755), 0); /* the mount point, with a file of that name */
    make_file("f");
    assert_int_not_equal(read_file("f", 0, 65536, 1), 0);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_TARGET);
    assert_int_equal(unlink(dw_path(&d, "f")), 0);
    assert_int_equal(rmdir(d.root), 0);
    assert_int_equal(rename(away, d.root), 0);
}

static void test_neither_is_held_up_by_what_is_held_back(void **state)
{
    struct fp_dw_pace hold = { .h = { .type = FP_DW_PACE }, .mode = FP_DW_HOLD };
    struct fp_dw_file stat_it = { .h = { .type = FP_DW_STAT } };
    struct fp_dw_slice s = dw_chunk(&d, 1, 1000, 0);

    (void)state;
    make_file("f");
    assert_int_equal(dw_prepare(&d, "x", TMP, 1000), 0);
    dw_send(&d, &hold, sizeof(hold), NULL, 0, -1);
    for (int i = 0; i < 4; i++) /* more than there are threads */
        dw_tell_write(&d, TMP, d.done.tino, 1000, 0, &s, 1);
    while (!atomic_load(&d.status.op[0].kind) || !atomic_load(&d.status.op[1].kind))
        usleep(1000);
    is_read("f", 0, 65536);
    assert_int_equal(dw_file(&d, FP_DW_STAT, &stat_it, "f", ""), 0);
    assert_int_equal(d.done.tino, st.st_ino);
}

static void test_memory_that_is_not_there_is_not_written_to(void **state)
{
    (void)state;
    make_file("f");
    tell_read("f", 0, 65536, 1, MEMORY - 4096);
    dw_wait(&d);
    assert_int_equal(d.done.status, -EPROTO);
    tell_read("f", 0, 65536, 1, (uint64_t)1 << 62);
    dw_wait(&d);
    assert_int_equal(d.done.status, -EPROTO);
}

/* -------------------------------------------------------------- listing */

struct entry {
    struct fp_dw_entry e;
    char name[256], link[256], xattrs[64];
};

static struct entry entries[FP_DW_LIST_MAX];
static size_t nentries;

static void take_entries(const uint8_t *p, size_t len)
{
    for (nentries = 0; len; nentries++) {
        struct entry *x = &entries[nentries];

        assert_true(len >= sizeof(x->e));
        memcpy(&x->e, p, sizeof(x->e));
        assert_true(len >= sizeof(x->e) + x->e.name_bytes + x->e.link_bytes + x->e.xattr_bytes);
        snprintf(x->name, sizeof(x->name), "%.*s", (int)x->e.name_bytes, (const char *)p + sizeof(x->e));
        snprintf(x->link, sizeof(x->link), "%.*s", (int)x->e.link_bytes, (const char *)p + sizeof(x->e) + x->e.name_bytes);
        p += sizeof(x->e) + x->e.name_bytes + x->e.link_bytes;
        len -= sizeof(x->e) + x->e.name_bytes + x->e.link_bytes + x->e.xattr_bytes;
        assert_true(x->e.xattr_bytes <= sizeof(x->xattrs));
        memcpy(x->xattrs, p, x->e.xattr_bytes);
        p += x->e.xattr_bytes;
    }
}

static int list(const char *path, const char *after, uint32_t max)
{
    static uint8_t buf[FP_DW_MESSAGE_MAX_BYTES];
    struct fp_dw_list m = { .h = { .type = FP_DW_LIST, .id = ++d.next_id, .gen = d.gen }, .max = max, .path_bytes = (uint32_t)strlen(path),
                            .after_bytes = (uint32_t)strlen(after) };
    const struct fp_dw_head *h = (const struct fp_dw_head *)(void *)buf;
    char text[4096];

    nentries = 0;
    snprintf(text, sizeof(text), "%s%s", path, after);
    dw_send(&d, &m, sizeof(m), text, strlen(text), -1);
    for (;;) {
        ssize_t n;

        assert_true(dw_answers(&d, 30000));
        n = recv(d.socket, buf, sizeof(buf), 0);
        assert_true(n >= (ssize_t)sizeof(*h) && (size_t)n == h->len_bytes && h->id == d.next_id);
        if (h->type == FP_DW_DONE)
            break;
        assert_int_equal(h->type, FP_DW_ENTRIES);
        take_entries(buf + sizeof(*h), (size_t)n - sizeof(*h));
    }
    memcpy(&d.done, buf, sizeof(d.done));
    return d.done.status;
}

static void test_a_directory_comes_in_pages(void **state)
{
    char name[32], last[32] = "";
    size_t seen = 0;

    (void)state;
    assert_int_equal(mkdir(dw_path(&d, "many"), 0755), 0);
    for (int i = 0; i < 250; i++) {
        snprintf(name, sizeof(name), "many/%03d", i * 7 % 250);
        dw_make(&d, name, "x");
    }
    do {
        assert_int_equal(list("many", last, 40), 0);
        for (size_t i = seen == 0; i < nentries; i++, seen++) { /* the first one is itself */
            snprintf(name, sizeof(name), "%03zu", seen);
            assert_string_equal(entries[i].name, name);
            strcpy(last, name);
        }
        assert_int_equal(nentries, seen == 40 ? 41 : seen < 250 ? 40 : 10);
    } while (d.done.note);
    assert_int_equal(seen, 250);
    assert_int_equal(list("many", "02", 2), 0); /* a name that is not there, and begins others */
    assert_string_equal(entries[0].name, "020");
    assert_int_equal(list("many", "249", 2), 0);
    assert_int_equal(nentries, 0);
    assert_int_equal(d.done.note, 0);
}

static void test_attributes_of_users_come_with_what_a_path_is(void **state)
{
    const struct {
        uint32_t name_bytes, value_bytes;
        char text[13];
    } is = { 9, 4, "user.noteread" };
    static char big[49 << 10];

    (void)state;
    assert_int_equal(mkdir(dw_path(&d, "d"), 0750), 0);
    dw_make(&d, "d/f", "x");
    if (setxattr(dw_path(&d, "d/f"), "user.note", "read", 4, 0) && errno == ENOTSUP)
        skip();
    assert_int_equal(setxattr(dw_path(&d, "d/f"), "user.fp.drain", "ours", 4, 0), 0);
    assert_int_equal(list("d/f", "", 10), 0);
    assert_int_equal(nentries, 1);
    assert_int_equal(entries[0].e.xattr_bytes, offsetof(__typeof__(is), text) + sizeof(is.text));
    assert_memory_equal(entries[0].xattrs, &is, entries[0].e.xattr_bytes);
    assert_int_equal(entries[0].e.xattrs_left, 0);
    assert_int_equal(list("d", "", 10), 0); /* of what is in a directory not: that is listed itself */
    assert_int_equal(nentries, 2);
    assert_int_equal(entries[0].e.xattr_bytes + entries[1].e.xattr_bytes, 0);
    if (setxattr(dw_path(&d, "d/f"), "user.big", big, sizeof(big), 0)) /* most file systems take no such */
        return;
    assert_int_equal(list("d/f", "", 10), 0);
    assert_int_equal(entries[0].e.xattrs_left, 1);
}

static void test_what_the_entries_are(void **state)
{
    (void)state;
    make_file("b");
    assert_int_equal(chmod(dw_path(&d, "b"), 0640), 0);
    assert_int_equal(mkdir(dw_path(&d, "a"), 0750), 0);
    assert_int_equal(symlink("../somewhere", dw_path(&d, "c")), 0);
    assert_int_equal(mkfifo(dw_path(&d, "\303\244"), 0600), 0); /* greater than all letters */
    mkdir(dw_path(&d, FP_DW_TEMP_DIR), 0700);
    assert_int_equal(list("", "", 100), 0);
    assert_int_equal(nentries, 5); /* nothing of ours */
    assert_string_equal(entries[0].name, "");
    assert_true(S_ISDIR(entries[0].e.mode));
    memmove(entries, entries + 1, 4 * sizeof(entries[0]));
    assert_string_equal(entries[0].name, "a");
    assert_true(S_ISDIR(entries[0].e.mode) && (entries[0].e.mode & 0777) == 0750);
    assert_string_equal(entries[1].name, "b");
    assert_int_equal(entries[1].e.mode, S_IFREG | 0640);
    assert_int_equal(entries[1].e.size, SIZE);
    assert_int_equal(entries[1].e.tino, st.st_ino);
    assert_int_equal(entries[1].e.mtime_ns, (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec);
    assert_int_equal(entries[1].e.uid, geteuid());
    assert_true(S_ISLNK(entries[2].e.mode));
    assert_string_equal(entries[2].link, "../somewhere");
    assert_true(S_ISFIFO(entries[3].e.mode));

    assert_int_equal(list("b", "", 100), 0); /* no directory: what it is */
    assert_int_equal(nentries, 1);
    assert_string_equal(entries[0].name, "");
    assert_int_equal(entries[0].e.size, SIZE);
    assert_int_equal(list("c", "", 100), 0);
    assert_string_equal(entries[0].link, "../somewhere");
    assert_int_equal(list("nothing", "", 100), -ENOENT);
    assert_int_equal(d.done.scope, FP_DW_SCOPE_FILE);
    assert_int_equal(list("c/x", "", 100), -ELOOP);
}

/* -------------------------------------------------------------- messages */

static void refused(const void *msg, size_t len, const char *text)
{
    dw_send(&d, msg, len, text, strlen(text), -1);
    pthread_join(d.thread, NULL);
    close(d.socket);
    d.socket = -1;
    assert_int_equal(d.end, -EPROTO);
    dw_stop(&d);
    munmap(memory, MEMORY);
    dw_start(&d);
    share_memory();
}

static void test_messages_that_are_wrong_end_it(void **state)
{
    static const char *const paths[] = { "/abs", "../up", "a/../b", "", FP_DW_TEMP_DIR "/x", FP_DW_MARKER };
    struct fp_dw_read good = { .h = { .type = FP_DW_READ }, .size = 100, .len = 100, .path_bytes = 1 }, m;
    struct fp_dw_list l = { .h = { .type = FP_DW_LIST }, .max = 10 };
    struct fp_dw_head h = { .type = FP_DW_MEMORY };

    (void)state;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        m = good;
        m.path_bytes = l.path_bytes = (uint32_t)strlen(paths[i]);
        refused(&m, sizeof(m), paths[i]);
        if (*paths[i])
            refused(&l, sizeof(l), paths[i]);
    }
    for (int i = 0; i < 6; i++) {
        m = good;
        switch (i) {
        case 0: m.len = 101; break;
        case 1: m.off = 1; break;
        case 2: m.to = 4095; break;
        case 3: m.len = 0; break;
        case 4: m.size = m.off = UINT64_MAX; break;
        case 5: m.size = UINT32_MAX; m.len = FP_STORED_MAX_BYTES + 1; break;
        }
        refused(&m, sizeof(m), "f");
    }
    l.path_bytes = 0;
    l.max = FP_DW_LIST_MAX + 1;
    refused(&l, sizeof(l), "");
    l.max = 10;
    l.after_bytes = UINT32_MAX;
    refused(&l, sizeof(l), "");
    refused(&h, sizeof(h), ""); /* a second memory, or none */
}

static void test_reading_without_memory_ends_it(void **state)
{
    struct fp_dw_read m = { .h = { .type = FP_DW_READ }, .size = 100, .len = 100, .path_bytes = 1 };

    (void)state;
    dw_stop(&d);
    dw_start(&d);
    dw_send(&d, &m, sizeof(m), "f", 1, -1);
    pthread_join(d.thread, NULL);
    close(d.socket);
    d.socket = -1;
    assert_int_equal(d.end, -EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
        T(test_bytes_are_read),
        T(test_zeros_are_told),
        T(test_wrong_bytes_are_not_passed_on),
        T(test_another_file_is_not_read),
        T(test_a_place_that_cannot_be_read_is_not_the_target),
        T(test_a_target_that_is_not_there),
        T(test_neither_is_held_up_by_what_is_held_back),
        T(test_memory_that_is_not_there_is_not_written_to),
        T(test_a_directory_comes_in_pages),
        T(test_attributes_of_users_come_with_what_a_path_is),
        T(test_what_the_entries_are),
        T(test_messages_that_are_wrong_end_it),
        T(test_reading_without_memory_ends_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
