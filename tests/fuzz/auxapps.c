/*
 * Aux-apps that do what an input says (auxapps.h): `coder` and `foreign` replace chunks, `table` speaks as Figure 2 of the paper does.
 *
 * Called by the host under test, on threads that take turns. Buffers that they give to services are just as long as they say.
 */
#include "tests/fuzz/auxapps.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "auxapps/host/host.h"

struct fuzz_in *fuzz_apps_in;
uint64_t fuzz_apps_ticket;

static int each_note(void *arg, const struct fp_aux_noted *n)
{
    volatile uint8_t sink = 0;

    (void)arg;
    for (uint32_t i = 0; i < n->note_bytes; i++)
        sink = (uint8_t)(sink ^ n->note[i]);
    return n->chunk % 7 == 6;
}

uint64_t fuzz_apps_chunk(struct fuzz_in *in)
{
    return UINT64_C(1) << 32 | fuzz_u8(in) % 4;
}

/* One request to the mount, into buffers of just the size that it is told. */
static int ask_mount(struct fp_aux_host *h, struct fuzz_in *in)
{
    uint8_t what = fuzz_u8(in), key[16] = {what};
    uint32_t n = 1 + fuzz_u8(in) * (what & 128 ? 9u : 1u);
    uint8_t *buf = calloc(1, n);
    uint64_t keys[3] = {1, 2, what};
    struct fp_aux_place place = {fuzz_apps_chunk(in), what, n};
    struct fp_aux_file file = {.size_bytes = sizeof file};
    ssize_t rc;

    switch (what % 12) {
    case 0: rc = fp_aux_earlier(h, what & 16 ? 1 : 0, "a*", each_note, NULL); break;
    case 1: rc = fp_aux_find(h, keys, 1 + what / 12 % 3, each_note, NULL); break;
    case 2: rc = fp_aux_read_chunk(h, place, buf); break;
    case 3: rc = fp_aux_table_get(h, key, 1 + what / 12 % 16, buf, &n); break;
    case 4: rc = fp_aux_table_put(h, key, 1 + what / 12 % 16, buf, n, what & 16); break;
    case 5: rc = fp_aux_table_remove(h, key, 1 + what / 12 % 16); break;
    case 6: rc = fp_aux_file_read(h, 5, what, buf, n); break;
    case 7: rc = fp_aux_file_write(h, "dir/file", buf, n, 0644); break;
    case 8: rc = fp_aux_file_find(h, what & 16 ? "" : "dir/file", &file); break;
    case 9: rc = fp_aux_xattr_get(h, 5, "user.a", buf, n); break;
    case 10: rc = fp_aux_xattr_set(h, 5, "user.a", buf, n); break;
    default: rc = fp_aux_send(h, what & 16 ? "" : "n2", what, buf, n); break;
    }
    free(buf);
    return rc < 0 ? (int)rc : 0;
}

static int some_services(void *state, struct fuzz_in *in)
{
    struct fp_aux_host *h = state;
    uint8_t how = fuzz_left(in) > 0 ? fuzz_u8(in) : 0;
    struct fp_aux_skip skip = {.size_bytes = sizeof skip, .flags = how & 1, .bytes = how, .of = how % 4, .come = how % 5, .step_bytes = how};

    for (int i = 0; i < how % 4; i++)
        ask_mount(h, in);
    if (how >= 240)
        fp_aux_skip(h, &skip);
    if (how >= 224)
        fp_aux_log(h, FP_AUX_WARN, "said");
    if (how & 64)
        fp_aux_count(h, how & 1 ? "a" : "b", how);
    if (how & 32)
        fp_aux_gauge(h, "c", fp_aux_option_number(h, "size") + (int64_t)strlen(fp_aux_node(h)));
    return how >= 208 && how < 216 ? -how % 40 : 0;
}

static int on_start(struct fp_aux_host *host, void **state)
{
    *state = host;
    return fuzz_left(fuzz_apps_in) > 0 && fuzz_u8(fuzz_apps_in) == 255 ? -ENOKEY : 0;
}

static void on_stop(void *state)
{
    FUZZ_CHECK(state);
}

static int on_configure(void *state, const char *name)
{
    fp_aux_option_text(state, name);
    return fuzz_left(fuzz_apps_in) > 0 && fuzz_u8(fuzz_apps_in) >= 240 ? -EINVAL : 0;
}

/* Replaced bytes are those that came, turned. */
static void turn(const uint8_t *in, uint8_t *out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = in[i] ^ 0x5a;
}

static int replace(struct fp_aux_call *call, const struct fp_aux_chunk *k, uint8_t how)
{
    uint32_t cap, at = 0, n = how & 4 ? k->len_bytes + how : k->len_bytes;
    uint8_t *out = fp_aux_out_buffer(call, &cap);

    if (!out)
        return FP_AUX_PASS;
    for (uint32_t i = 0; i < k->nparts; at += k->parts[i++].len_bytes)
        turn(k->parts[i].data, out + at, k->parts[i].len_bytes);
    FUZZ_CHECK(at == k->len_bytes && cap >= at);
    fp_aux_replace(call, n);
    return FP_AUX_REPLACED;
}

static int pieces(struct fp_aux_call *call, const struct fp_aux_chunk *k, struct fuzz_in *in)
{
    uint32_t off = 0;

    for (int i = 0; i < 6 && off < k->len_bytes; i++) {
        uint8_t c = fuzz_u8(in);
        uint32_t n = i == 5 || c >= 240 ? k->len_bytes - off : (uint32_t)fuzz_u16(in) % (k->len_bytes - off + 1);

        switch (c % 4) {
        case 0: fp_aux_piece_new(call, off, n); break;
        case 1: fp_aux_piece_zero(call, off, n); break;
        case 2: fp_aux_piece_same(call, off, n, c & 4 ? 0 : off / 2); break;
        default: fp_aux_piece_stored(call, off, n, (struct fp_aux_place){fuzz_apps_chunk(in), c, n}); break;
        }
        off += n;
    }
    return FP_AUX_PIECES;
}

static int on_chunk_out(void *state, struct fp_aux_call *call, const struct fp_aux_chunk *k)
{
    uint8_t how = fuzz_left(fuzz_apps_in) > 0 ? fuzz_u8(fuzz_apps_in) : 0;
    static const uint64_t keys[4] = {1, 2, 3, 4};
    volatile uint8_t sink = 0;
    const uint8_t *flat = how & 8 ? fp_aux_flat(call, k) : NULL;

    if (flat)
        sink = (uint8_t)(flat[0] ^ flat[k->len_bytes - 1]);
    (void)sink;
    if (how & 16)
        some_services(state, fuzz_apps_in);
    if (how & 32)
        fp_aux_note(call, "note", 4, keys, how % 5);
    if (how & 64)
        fuzz_apps_ticket = fp_aux_ticket(call);
    if (how >= 200 && !fp_aux_cancelled(call) && fp_aux_left_ms(call) > 0)
        fp_aux_hold(call, fuzz_apps_chunk(fuzz_apps_in));
    if (how >= 240)
        return how >= 248 ? 7 : -ENOSPC;
    return how % 3 == 0 ? FP_AUX_PASS : how % 3 == 1 ? replace(call, k, how) : pieces(call, k, fuzz_apps_in);
}

static int on_chunk_in(void *state, struct fp_aux_call *call, const uint8_t *in, uint32_t in_bytes, uint8_t *out, uint32_t out_bytes)
{
    (void)state, (void)call;
    if (in_bytes < out_bytes)
        return -EILSEQ;
    turn(in, out, out_bytes);
    return 0;
}

static void on_chunk_stored(void *state, uint64_t ticket, struct fp_aux_place place)
{
    (void)ticket, (void)place;
    some_services(state, fuzz_apps_in);
}

static int on_file(void *state, struct fp_aux_call *call, const struct fp_aux_file *f)
{
    (void)call;
    FUZZ_CHECK(strlen(f->path) < FP_AUXW_MESSAGE_MAX_BYTES);
    return some_services(state, fuzz_apps_in);
}

static int on_set(void *state, struct fp_aux_call *call, const struct fp_aux_set *s)
{
    size_t all = strlen(s->name);

    (void)call;
    for (uint32_t i = 0; i < s->nfiles; i++)
        all += s->paths[i] ? strlen(s->paths[i]) : 0;
    FUZZ_CHECK(all < FP_AUXW_MESSAGE_MAX_BYTES);
    return some_services(state, fuzz_apps_in);
}

static int on_idle(void *state, struct fp_aux_call *call)
{
    (void)call;
    return some_services(state, fuzz_apps_in);
}

static int on_message(void *state, struct fp_aux_call *call, const struct fp_aux_message *m)
{
    volatile uint8_t sink = 0;

    (void)call;
    for (uint32_t i = 0; i < m->len_bytes; i++)
        sink = (uint8_t)(sink ^ m->data[i]);
    FUZZ_CHECK(strlen(m->node) < 256);
    return some_services(state, fuzz_apps_in);
}

static int on_io(void *state, struct fp_aux_call *call, const struct fp_aux_io *io)
{
    volatile uint8_t sink = 0;

    (void)call;
    FUZZ_CHECK((!io->name || strlen(io->name) < FP_AUXW_MESSAGE_MAX_BYTES) && (!io->new_name || strlen(io->new_name) < FP_AUXW_MESSAGE_MAX_BYTES));
    if (io->data)
        sink = io->data[0];
    (void)sink;
    return some_services(state, fuzz_apps_in);
}

/* Figure 2: pieces of 4 KiB. */
static int on_write(void *state, struct fp_aux_call *call, void *output_buffer, uint32_t size_bytes)
{
    uint8_t how = fuzz_left(fuzz_apps_in) > 0 ? fuzz_u8(fuzz_apps_in) : 0, *at = output_buffer;
    uint32_t n;

    for (uint32_t done = 0; done < size_bytes; done += n) {
        void *chunk = fp_aux_get_chunk(call, (void **)&at, 4096, &n);
        uint8_t hash[20] = {(uint8_t)(done >> 12), how};
        int result = 0;

        if (!chunk || n == 0)
            break;
        if (how & 1 && fp_aux_hashtable_get(call, hash, sizeof hash) > 0)
            continue;
        fp_aux_data_write(call, chunk);
        if (how & 2)
            fp_aux_hashtable_update(call, &result, chunk, hash, sizeof hash);
    }
    return how >= 250 ? -EIO : how & 16 ? some_services(state, fuzz_apps_in) : 0;
}

static const char *const words[] = {"one", "two", NULL};
static const struct fp_aux_option options[] = {{.name = "word", .fallback = "one", .help = "w", .choices = words, .can_change = true},
                                               {.name = "size", .fallback = "64KiB", .help = "s", .max = 1 << 20, .is_size = true, .can_change = true},
                                               {.name = "memory", .fallback = "1MiB", .help = "m", .max = INT64_MAX, .is_size = true},
                                               {.name = "text", .help = "t", .can_change = true},
                                               {0}};

static void fill(struct fp_aux_app *a, bool coder)
{
    *a = (struct fp_aux_app){.abi = FP_AUX_ABI, .size_bytes = sizeof *a, .name = coder ? "coder" : "table", .version = "1", .summary = "s",
                             .options = options, .start = on_start, .stop = on_stop, .configure = on_configure, .file_sealed = on_file,
                             .set_complete = on_set, .message = on_message, .flags = coder ? FP_AUX_CODES | FP_AUX_PARALLEL : 0};
    if (coder) {
        a->chunk_out = on_chunk_out;
        a->chunk_in = on_chunk_in;
        a->chunk_stored = on_chunk_stored;
    } else {
        a->write = on_write;
        a->idle = on_idle;
    }
    for (int i = 0; i < FP_AUX_OP_COUNT; i++)
        a->io[i] = (struct fp_aux_io_op){i % 3 == 2 ? NULL : on_io, i % 2 ? FP_AUX_WAIT : 0};
}

int __wrap_aux_plugin_load(const char *word, const char *plugin_dir, struct aux_plugin **out, char why[AUX_WHY_BYTES]);
void __wrap_aux_plugin_free(struct aux_plugin *p);

int __wrap_aux_plugin_load(const char *word, const char *plugin_dir, struct aux_plugin **out, char why[AUX_WHY_BYTES])
{
    struct aux_plugin *p;

    (void)plugin_dir;
    if (strcmp(word, "coder") != 0 && strcmp(word, "table") != 0 && strcmp(word, "foreign") != 0) {
        snprintf(why, AUX_WHY_BYTES, "there is none");
        return -ENOENT;
    }
    p = calloc(1, sizeof *p);
    FUZZ_CHECK(p);
    fill(&p->app, word[0] != 't');
    p->from_dir = word[0] != 'f';
    if (word[0] == 'f')
        p->app.name = "foreign";
    for (p->noptions = 0; options[p->noptions].name; p->noptions++)
        continue;
    *out = p;
    return 0;
}

void __wrap_aux_plugin_free(struct aux_plugin *p)
{
    free(p);
}
