/*
 * Messages of any type by their descriptor (fuzz.h): what a hostile or mistaken program could send.
 *
 * Called by the harnesses, on their only thread. The wire format is written here and not by protobuf-c, which packs no more than what
 * its structs can hold: fields come twice, numbers are too long for their type, and lengths lie. Fields are filled by their names with
 * the few inodes, chunks, names and sessions that the pool knows: random numbers would be refused by the first check of the program.
 */
#include <string.h>

#include "tests/fuzz/fuzz.h"

#define DEPTH_MAX    3
#define REPEATED_MAX 5

struct to {
    uint8_t *buf;
    size_t len, cap;
};

static void put(struct to *t, const void *p, size_t n)
{
    if (n > t->cap - t->len)
        n = t->cap - t->len;
    if (n > 0)
        memcpy(t->buf + t->len, p, n);
    t->len += n;
}

static void put_varint(struct to *t, uint64_t v)
{
    uint8_t b[10];
    size_t n = 0;

    for (; v >= 128; v >>= 7)
        b[n++] = (uint8_t)(v | 128);
    b[n++] = (uint8_t)v;
    put(t, b, n);
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && strcmp(name + n - m, end) == 0;
}

static bool is_one_of(const char *name, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(name, *list) == 0)
            return true;
    return false;
}

/* What a field is about, by its name. */
enum number { N_ANY, N_INO, N_SLOT, N_SLOT_SEQ, N_CHUNK, N_LEASE, N_SEGMENT, N_SESSION, N_PROTOCOL, N_MODE, N_VALID, N_SMALL };
enum text { T_ANY, T_UUID, T_NODE, T_APP, T_NOTE };

static enum number number_of(const char *name)
{
    static const char *const chunks[] = {"chunk", "id", "ids", "bad_chunks", "gone", NULL};
    static const char *const small[] = {"win", "win_from", "win_count", "bnf", "bnf_id", "kind", "role", "stripe", "op", "ticket", "owner", NULL};
    static const struct {
        const char *name;
        enum number is;
    } one[] = {{"slot", N_SLOT},       {"slot_seq", N_SLOT_SEQ}, {"lease", N_LEASE},       {"segment", N_SEGMENT}, {"failed", N_SEGMENT},
               {"session", N_SESSION}, {"protocol", N_PROTOCOL}, {"mode", N_MODE},         {"valid", N_VALID}};

    if (ends_with(name, "ino") || ends_with(name, "parent"))
        return N_INO;
    for (size_t i = 0; i < sizeof one / sizeof *one; i++)
        if (strcmp(name, one[i].name) == 0)
            return one[i].is;
    return is_one_of(name, chunks) ? N_CHUNK : is_one_of(name, small) ? N_SMALL : N_ANY;
}

static enum text text_of(const char *name)
{
    static const char *const nodes[] = {"node", "addr", NULL}, *const notes[] = {"note", "value", "key", NULL};

    if (strcmp(name, "uuid") == 0 || ends_with(name, "_uuid"))
        return T_UUID;
    return is_one_of(name, nodes) ? T_NODE : strcmp(name, "app") == 0 ? T_APP : is_one_of(name, notes) ? T_NOTE : T_ANY;
}

/* Remembered: to compare names anew for each field takes longer than what the program does with the message. */
static const struct about {
    const char *name; /* of the descriptor: the pointer tells */
    enum number number;
    enum text text;
} *about(const char *name)
{
    static struct about known[2048];
    size_t at = ((uintptr_t)name * UINT64_C(0x9E3779B97F4A7C15)) >> 53;

    while (known[at].name && known[at].name != name)
        at = (at + 1) % 2048;
    if (!known[at].name)
        known[at] = (struct about){name, number_of(name), text_of(name)};
    return &known[at];
}

/* A number for the field of this name: mostly one that means something. */
static uint64_t number_for(struct fuzz_in *in, const char *name, struct fuzz_pool *pool)
{
    uint8_t how = fuzz_u8(in);

    if (how >= 232)
        return fuzz_number(in);
    switch (about(name)->number) {
    case N_INO:
        return 1 + how % pool->ino_max;
    case N_SLOT:
        return 1 + how % 3;
    case N_SLOT_SEQ:
        return how < 200 ? ++pool->seq : pool->seq;
    case N_CHUNK:
        return pool->session[how % 2] << 32 | (1 + how / 2 % pool->chunk_max);
    case N_LEASE:
        return pool->segment[0] ? pool->lease[how % 4] : fuzz_number(in);
    case N_SEGMENT:
        return pool->segment[0] ? pool->segment[how % 4] : fuzz_number(in);
    case N_SESSION:
        return pool->session[how % 4];
    case N_PROTOCOL:
        return how < 220;
    case N_MODE:
        return (uint64_t[]){0100644, 0100644, 040755, 0120777, 0010600, 0020600, 0140600, 06755}[how % 8];
    case N_VALID:
        return how;
    case N_SMALL:
        return how % 5;
    default:
        return fuzz_number(in);
    }
}

static void text_for(struct fuzz_in *in, const char *name, struct to *t)
{
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "dir", "file", ".", "..", "", "a/b", "x\0y"};
    static const char *const nodes[] = {"n1", "n2", "", "127.0.0.1:1"};
    static const char *const xattrs[] = {"user.a", "user.b", "trusted.x", "security.capability", "system.posix_acl_access", "user."};
    uint8_t how = fuzz_u8(in);
    enum text text = about(name)->text;
    uint8_t raw[64];
    const char *s;

    if (how >= 232) {
        size_t n = fuzz_bytes(in, raw, how == 255 ? sizeof raw : how % 24);
        static const uint8_t fill[300] = {[0 ... 299] = 'z'};

        put(t, raw, n);
        if (how == 254)
            put(t, fill, sizeof fill);
        return;
    }
    if (text == T_UUID) {
        memset(raw, how % 3, 16);
        put(t, raw, how < 220 ? 16 : how % 17);
        return;
    }
    if (text == T_NODE)
        s = nodes[how % 4];
    else if (text == T_APP)
        s = how % 2 ? "dedup" : "x";
    else if (text == T_NOTE)
        s = names[how % 6];
    else
        s = how < 180 ? names[how % 8] : how < 210 ? xattrs[how % 6] : names[how % 13];
    put(t, s, s == names[12] ? 3 : strlen(s));
}

static void put_message(struct fuzz_in *in, const ProtobufCMessageDescriptor *d, struct fuzz_pool *pool, struct to *t, int depth);

static unsigned wire_type(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
        return 5;
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 1;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return 2;
    default:
        return 0;
    }
}

static void put_field(struct fuzz_in *in, const ProtobufCFieldDescriptor *f, struct fuzz_pool *pool, struct to *t, int depth)
{
    unsigned wire = wire_type(f->type);
    uint8_t body[2048];
    struct to b = {.buf = body, .cap = sizeof body};

    put_varint(t, (uint64_t)f->id << 3 | wire);
    if (wire == 2) {
        if (f->type == PROTOBUF_C_TYPE_MESSAGE)
            put_message(in, f->descriptor, pool, &b, depth + 1);
        else
            text_for(in, f->name, &b);
        put_varint(t, b.len);
        put(t, body, b.len);
    } else {
        uint64_t v = number_for(in, f->name, pool);

        if (wire == 0)
            put_varint(t, f->type == PROTOBUF_C_TYPE_BOOL ? v & 1 : v);
        else
            put(t, &v, wire == 1 ? 8 : 4);
    }
}

static void put_message(struct fuzz_in *in, const ProtobufCMessageDescriptor *d, struct fuzz_pool *pool, struct to *t, int depth)
{
    uint32_t left_out = d->n_fields > 16 ? fuzz_u32(in) : d->n_fields > 8 ? fuzz_u16(in) : d->n_fields ? fuzz_u8(in) : 0;

    if (depth > DEPTH_MAX)
        return;
    for (unsigned i = 0; i < d->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &d->fields[i];
        uint32_t n = 1;

        if (left_out >> i % 32 & 1)
            continue;
        if (f->label == PROTOBUF_C_LABEL_REPEATED)
            n = fuzz_below(in, REPEATED_MAX);
        for (uint32_t k = 0; k < n; k++)
            put_field(in, f, pool, t, depth);
    }
}

size_t fuzz_message(struct fuzz_in *in, const ProtobufCMessageDescriptor *d, struct fuzz_pool *pool, uint8_t *out, size_t cap)
{
    struct to t = {.buf = out, .cap = cap};
    uint8_t harm = fuzz_u8(in);

    put_message(in, d, pool, &t, 0);
    if (harm >= 240 && t.len > 0) {
        if (harm < 248)
            t.buf[fuzz_u16(in) % t.len] ^= (uint8_t)(1u << harm % 8);
        else
            t.len = fuzz_u16(in) % t.len;
    }
    return t.len;
}
