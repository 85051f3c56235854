/* histogram: smallest, mean and largest number of each file of floats, as JSON beside it.
 *
 * Shows file_sealed: called when a written file has been closed, on a service core, while the application computes. A plot or a look
 * for divergence then needs a small file instead of the checkpoint.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fp/auxapp.h"

#define READ_BYTES (1u << 20)          /* a multiple of 8 */

struct sums { double min, max, sum; uint64_t count, not_finite; };

static void add(struct sums *s, double x)
{
    if (!isfinite(x)) {
        s->not_finite++;
        return;
    }
    s->min = s->count == 0 || x < s->min ? x : s->min;
    s->max = s->count == 0 || x > s->max ? x : s->max;
    s->sum += x;
    s->count++;
}

static void add_all(struct sums *s, const uint8_t *buf, size_t bytes, bool is_double)
{
    size_t width = is_double ? 8 : 4;

    for (size_t i = 0; i + width <= bytes; i += width) {
        double d;
        float f;

        memcpy(is_double ? (void *)&d : (void *)&f, buf + i, width);
        add(s, is_double ? d : (double)f);
    }
}

static int sealed(void *state, struct fp_aux_call *call, const struct fp_aux_file *file)
{
    struct fp_aux_host *host = state;
    bool is_double = strcmp(fp_aux_option_text(host, "type"), "double") == 0;
    size_t len = strlen(file->path);
    uint8_t *buf = malloc(READ_BYTES);
    struct sums s = { 0 };
    char path[4200], json[300];
    ssize_t n = 0;
    int bytes;

    if (!buf)
        return -ENOMEM;
    for (uint64_t off = 0; off < file->len_bytes && !fp_aux_cancelled(call); off += (uint64_t)n) {
        n = fp_aux_file_read(host, file->ino, off, buf, READ_BYTES);
        if (n <= 0)
            break;
        add_all(&s, buf, (size_t)n, is_double);
    }
    free(buf);
    if (n < 0 || fp_aux_cancelled(call))
        return n < 0 ? (int)n : -ECANCELED;
    if (len == 0 || len > 4095 || (len > 5 && strcmp(file->path + len - 5, ".json") == 0))
        return 0; /* unlinked meanwhile, or one of ours written by somebody else */
    snprintf(path, sizeof(path), "%s.json", file->path);
    bytes = snprintf(json, sizeof(json), "{\"count\": %llu, \"min\": %.17g, \"mean\": %.17g, \"max\": %.17g, \"not_finite\": %llu}\n",
             (unsigned long long)s.count, s.min, s.count ? s.sum / (double)s.count : 0, s.max, (unsigned long long)s.not_finite);
    return fp_aux_file_write(host, path, json, (uint32_t)bytes, 0644);
}

static int start(struct fp_aux_host *host, void **state)
{
    *state = host;
    return 0;
}

static const char *const types[] = { "double", "float", NULL };
static const struct fp_aux_option options[] = {
    { .name = "type", .fallback = "double", .choices = types, .help = "Of the numbers in the file, in the byte order of the node." },
    { .name = NULL },
};

static const struct fp_aux_app app = {
    .abi = FP_AUX_ABI, .size_bytes = sizeof(app), .name = "histogram", .version = "1",
    .summary = "min, mean and max of each file of floats, as JSON beside it", .options = options, .start = start, .file_sealed = sealed,
};
FP_AUX_APP(app)
