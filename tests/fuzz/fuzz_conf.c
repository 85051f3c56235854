/*
 * fp.conf, the options of mount -o, and values of every type of option (common/conf.c, opt*.c, units.c).
 *
 * The first byte says what the rest is: a file, a mount string, or lines "name=value" as on the command line. A table with every type and
 * the lot of flags. Whatever is refused has one line that says why.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fp/opt.h"
#include "tests/fuzz/fuzz.h"

struct values {
    const char *text, *path, *key;
    uint64_t size, duration, rate;
    int64_t number;
    bool flag;
    int choice, log_level;
    struct fp_addr addr, manager;
    struct fp_strlist list, whole;
};

static const char *const choices[] = {"fast", "slow", "sync", NULL};

static const struct fp_opt opts[] = {
    FP_OPT_STRING(struct values, text, "text", NULL, "Text."),
    FP_OPT_PATH(struct values, path, "path", "/tmp", "Path."),
    FP_OPT_SIZE(struct values, size, "size", "64MiB", FP_MIB(1), FP_GIB(4), "Size."),
    FP_OPT_DURATION(struct values, duration, "duration", "5s", 1, FP_HOUR_MS(24), "Duration."),
    FP_OPT_RATE(struct values, rate, "rate", "1MiB/s", 0, 0, "Rate."),
    FP_OPT_INT(struct values, number, "number", "3", -100, 1000, "Number."),
    FP_OPT_BOOL(struct values, flag, "flag", "off", "Flag."),
    FP_OPT_ENUM(struct values, choice, "choice", "slow", choices, "Choice."),
    FP_OPT_ADDR(struct values, addr, "addr", NULL, 0, "Address."),
    FP_OPT_LIST(struct values, list, "list", NULL, 8, "List."),
    FP_OPT_LIST(struct values, whole, "whole", NULL, 8, "List of whole values.", .flags = FP_OPT_WHOLE),
    FP_OPT_LOG_LEVEL(struct values, log_level),
    FP_OPT_KEY(struct values, key),
    FP_OPT_MANAGER(struct values, manager, 0),
    FP_OPT_END,
};

static const struct fp_opt_table table = {.prog = "fp-fuzz", .section = "mount", .summary = "Fuzz.", .opts = opts, .mount_helper = true};

static void check_values(const struct values *v)
{
    FUZZ_CHECK(v->size >= FP_MIB(1) && v->size <= FP_GIB(4));
    FUZZ_CHECK(v->duration >= 1 && v->duration <= FP_HOUR_MS(24));
    FUZZ_CHECK(v->number >= -100 && v->number <= 1000);
    FUZZ_CHECK(v->choice >= 0 && v->choice < 3 && v->list.count <= 8 && v->whole.count <= 8);
    FUZZ_CHECK(v->path && v->path[0] == '/');
    for (size_t i = 0; i < v->list.count; i++)
        FUZZ_CHECK(strlen(v->list.items[i]) < 70000);
}

static void check_line(int rc, const char *line)
{
    FUZZ_CHECK(rc < 0 && line[0]);
    for (; *line; line++)
        FUZZ_CHECK((unsigned char)*line >= ' ' && *line != 0x7f);
}

static int take_file(struct fp_opts *o, const char *text, size_t len)
{
    static int fd = -1;
    static char path[64];

    if (fd < 0) {
        fd = memfd_create("fp.conf", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    FUZZ_CHECK(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, text, len, 0) == (ssize_t)len);
    return fp_opts_file(o, path);
}

static int take_lines(struct fp_opts *o, char *text)
{
    int rc = 0;

    for (char *line = strtok(text, "\n"); line && rc == 0; line = strtok(NULL, "\n")) {
        char *eq = strchr(line, '=');

        if (eq)
            *eq++ = '\0';
        rc = fp_opts_set(o, line, eq ? eq : "");
    }
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct values v;
    struct fp_opts *o;
    uint8_t how = len > 0 ? data[0] : 0;
    char *text = malloc(len + 1);
    int rc;

    len = len > 0 ? len - 1 : 0;
    if (len > 0)
        memcpy(text, data + 1, len);
    text[len] = '\0';
    memset(&v, 0, sizeof v);
    setenv("FP_CONFIG", "", 1); /* none but ours */
    o = fp_opts_new(&table, &v);
    rc = how % 3 == 0 ? take_file(o, text, len) : how % 3 == 1 ? fp_opt_parse_mount_string(o, text) : take_lines(o, text);
    if (rc == 0)
        rc = fp_opts_finish(o);
    if (rc == 0)
        check_values(&v);
    else
        check_line(rc, fp_opts_error(o));
    fp_opts_free(o);
    free(text);
    return 0;
}
