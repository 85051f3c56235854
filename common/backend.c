/*
 * What a user writes behind --backend (see fp/backend.h). Called by fp-benefactor, which does it, and by fp-store, which passes it on and
 * wants to know before it starts anything.
 *
 * The words of a device are those of fp/limiter.h, and so are most of the errors. `over` is not one of them: it says where the bytes really are.
 */
#include "fp/backend.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "fp/opt.h"
#include "fp/record.h"
#include "fp/units.h"

#define TEXT_MAX 256u

static const char *const kinds[] = {"dir", "memory", "emulated", NULL};

__attribute__((format(printf, 2, 3))) static int refuse(char why[FP_BACKEND_WHY_BUF], const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, FP_BACKEND_WHY_BUF, fmt, ap);
    va_end(ap);
    return -EINVAL;
}

static int take_over(const char *value, bool *given, enum fp_backend_kind *kind, char *why)
{
    if (*given)
        return refuse(why, "over=%.60s: is given twice", value);
    *given = true;
    if (strcmp(value, "dir") != 0 && strcmp(value, "memory") != 0)
        return refuse(why, "over=%.60s: an emulated device keeps its data in over=dir or over=memory", value);
    *kind = value[0] == 'm' ? FP_BACKEND_MEMORY : FP_BACKEND_DIR;
    return 0;
}

/* The words but `over` to device, with commas between. */
static int split_over(const char *words, char device[TEXT_MAX], enum fp_backend_kind *kind, char *why)
{
    char copy[TEXT_MAX], *next = copy, *word;
    bool given = false, first = true;
    int rc = 0;

    if (strlen(words) >= sizeof(copy))
        return refuse(why, "emulated:%.60s…: is too long", words);
    strcpy(copy, words);
    device[0] = '\0';
    while (rc == 0 && (word = strsep(&next, ","))) {
        if (strncmp(word, "over=", 5) == 0) {
            rc = take_over(word + 5, &given, kind, why);
            continue;
        }
        if (!first)
            strcat(device, ",");
        strcat(device, word);
        first = false;
    }
    if (rc == 0 && first)
        strcpy(device, "x25e");
    return rc;
}

static int check_speed(const struct fp_limiter_spec *s, char *why)
{
    if ((s->write_bps && s->write_bps < FP_BACKEND_BPS_MIN) || (s->read_bps && s->read_bps < FP_BACKEND_BPS_MIN))
        return refuse(why, "emulated: who waits for a device gives one up that is so slow: write and read are 20MB/s or more");
    if ((s->write_iops && s->write_iops < FP_BACKEND_IOPS_MIN) || (s->read_iops && s->read_iops < FP_BACKEND_IOPS_MIN))
        return refuse(why, "emulated: who waits for a device gives one up that is so slow: write-iops and read-iops are 100 or more");
    return 0;
}

static int take_emulated(const char *words, struct fp_backend_spec *spec, char *why)
{
    char device[TEXT_MAX], what[FP_LIMITER_WHY_BUF];
    int rc = split_over(words, device, &spec->kind, why);

    spec->emulated = true;
    if (rc == 0 && fp_limiter_spec(device, &spec->speed, what))
        rc = refuse(why, "emulated: %s", what);
    return rc ? rc : check_speed(&spec->speed, why);
}

static int take_buffers(const char *value, unsigned *out, char *why)
{
    int64_t n;

    if (*out)
        return refuse(why, "memory: buffers=%.60s: is given twice", value);
    if (fp_parse_int(value, &n, NULL) || n < FP_BACKEND_BUFFERS_MIN || n > FP_BACKEND_BUFFERS_MAX)
        return refuse(why, "memory: buffers=%.60s: give a number from %u to %u", value, FP_BACKEND_BUFFERS_MIN, FP_BACKEND_BUFFERS_MAX);
    *out = (unsigned)n;
    return 0;
}

static int take_buffer(const char *value, uint64_t *out, char *why)
{
    uint64_t bytes;
    const char *what;

    if (*out)
        return refuse(why, "memory: buffer=%.60s: is given twice", value);
    if (fp_parse_size(value, &bytes, &what))
        return refuse(why, "memory: buffer=%.60s: %s", value, what);
    if (bytes < FP_BACKEND_BUFFER_MIN_BYTES || bytes % FP_RECORD_ALIGN_BYTES)
        return refuse(why, "memory: buffer=%.60s: give 32MiB or more, in whole pages of 4 KiB", value);
    *out = bytes;
    return 0;
}

static int take_memory(const char *words, struct fp_backend_spec *spec, char *why)
{
    char copy[TEXT_MAX], *next = copy, *word;
    int rc = 0;

    spec->kind = FP_BACKEND_MEMORY;
    if (strlen(words) >= sizeof(copy))
        return refuse(why, "memory:%.60s…: is too long", words);
    strcpy(copy, words);
    while (rc == 0 && (word = strsep(&next, ","))) {
        if (strncmp(word, "buffers=", 8) == 0)
            rc = take_buffers(word + 8, &spec->buffers, why);
        else if (strncmp(word, "buffer=", 7) == 0)
            rc = take_buffer(word + 7, &spec->buffer_bytes, why);
        else
            rc = refuse(why, "memory: '%.60s': give buffers=3, or buffer=256MiB, or both", word);
    }
    return rc;
}

int fp_backend_divide(struct fp_backend_spec *spec, uint64_t size_bytes, char why[FP_BACKEND_WHY_BUF])
{
    char size[FP_UNITS_BUF], one[FP_UNITS_BUF];
    uint64_t bytes = spec->buffer_bytes, n = spec->buffers;

    if (!bytes && !n)
        return 0;
    if (!bytes)
        bytes = size_bytes / n - size_bytes / n % FP_RECORD_ALIGN_BYTES;
    if (!n)
        n = size_bytes / bytes;
    if (bytes < FP_BACKEND_BUFFER_MIN_BYTES)
        return refuse(why, "%u buffers of %s would be %s each: give 32MiB or more each", (unsigned)n, fp_format_size(size, size_bytes), fp_format_size(one, bytes));
    if (n < FP_BACKEND_BUFFERS_MIN || n > FP_BACKEND_BUFFERS_MAX || n * bytes > size_bytes)
        return refuse(why, "--size %s is not %s buffers of %s: give --size as what all of them have together", fp_format_size(size, size_bytes),
                      spec->buffers ? "so many" : "2 to 64", fp_format_size(one, bytes));
    spec->buffers = (unsigned)n;
    spec->buffer_bytes = bytes;
    return 0;
}

int fp_backend_parse(const char *text, struct fp_backend_spec *out, char why[FP_BACKEND_WHY_BUF])
{
    struct fp_backend_spec spec = {.kind = FP_BACKEND_DIR};
    size_t len = strcspn(text, ":");
    char kind[16] = "";
    const char *near;
    int rc = 0;

    if (len < sizeof(kind))
        memcpy(kind, text, len);
    if (strcmp(kind, "emulated") == 0) {
        rc = take_emulated(text[len] ? text + len + 1 : "x25e", &spec, why);
    } else if (strcmp(text, "memory") == 0) {
        spec.kind = FP_BACKEND_MEMORY;
    } else if (strcmp(kind, "memory") == 0) {
        rc = take_memory(text + len + 1, &spec, why);
    } else if (strcmp(text, "dir") != 0) {
        near = fp_nearest_name(kind, kinds);
        rc = refuse(why, "'%.60s': give dir, memory, or a device such as emulated:x25e%s%s%s", text, near ? "; did you mean " : "", near ? near : "", near ? "?" : "");
    }
    if (rc == 0)
        *out = spec;
    return rc;
}
