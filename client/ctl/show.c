/* What several commands print: benefactors as a table and as JSON, the lines of a head, odd bytes.
 *
 * For people: tables of table.h, human units, colours where stdout is a terminal. For programs: one JSON object with every
 * number in the unit that its name ends in. Both come from the same reply, so they never disagree.
 *
 * File names are bytes; JSON wants UTF-8. Bytes that are none are written as \xNN, which is not reversible for names that
 * contain a backslash, but never fails; programs that need the exact name have the inode number beside it. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/ctl.h"
#include "fp/err.h"
#include "fp/table.h"
#include "fp/uuid.h"

json_t *ctl_json_bytes(const void *bytes, size_t len)
{
    char text[4 * PATH_MAX];
    size_t n = 0;
    json_t *j = json_stringn(bytes, len);
    if (j)
        return j;
    for (size_t i = 0; i < len && n + 5 < sizeof text; i++) {
        unsigned char c = ((const unsigned char *)bytes)[i];
        if (c >= 0x20 && c < 0x7f)
            text[n++] = (char)c;
        else
            n += (size_t)snprintf(text + n, 5, "\\x%02x", c);
    }
    return json_stringn(text, n);
}

int ctl_flush(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    FP_ERROR("cannot write the answer: %s", fp_strerror(-errno));
    return -EIO;
}

int ctl_json_print(json_t *j)
{
    if (!j) {
        FP_ERROR("out of memory");
        return -ENOMEM;
    }
    json_dumpf(j, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    putchar('\n');
    json_decref(j);
    return ctl_flush();
}

const char *ctl_level_text(int level)
{
    static const char *const names[] = {"none", "pool", "local", "redundant", "drained", "verified"};
    return level >= 0 && level < (int)(sizeof names / sizeof *names) ? names[level] : "?";
}

const char *ctl_bnf_state(int state)
{
    static const char *const names[] = {"down", "ok", "full", "read-only", "failing"};
    return state >= 0 && state < 5 ? names[state] : "unknown";
}

int ctl_bnf_style(int state)
{
    if (state == FP__BNF_STATE__BNF_OK)
        return FP_STYLE_GOOD;
    return state == FP__BNF_STATE__BNF_FULL ? FP_STYLE_WARN : FP_STYLE_BAD;
}

static const char *buffer_use(Fp__BufferUse use)
{
    static const char *const names[] = {"free", "filling", "draining", "full"};
    return (unsigned)use < sizeof names / sizeof *names ? names[use] : "?";
}

static json_t *json_buffers(const Fp__BnfInfo *b)
{
    json_t *list = json_array();
    for (size_t i = 0; i < b->n_buffers; i++)
        json_array_append_new(list, json_pack("{s:s, s:I, s:I}", "use", buffer_use(b->buffers[i]->use), "bytes", (json_int_t)b->buffers[i]->bytes,
                                              "size_bytes", (json_int_t)b->buffers[i]->size_bytes));
    return list;
}

static json_t *json_prefs(const Fp__BnfPrefs *p)
{
    return p ? json_pack("{s:b, s:b, s:I, s:i}", "drain", p->drain, "hold", p->hold, "max", (json_int_t)p->max_rate, "threads", (int)p->threads) : json_null();
}

json_t *ctl_json_bnf(const Fp__BnfInfo *b)
{
    char uuid[FP_UUID_BUF] = "";
    if (b->uuid.len == FP_UUID_BYTES) {
        struct fp_uuid u;
        memcpy(u.b, b->uuid.data, FP_UUID_BYTES);
        fp_uuid_format(uuid, &u);
    }
    return json_pack("{s:i, s:s, s:o, s:s, s:s, s:o, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "id", (int)b->id, "state",
                     ctl_bnf_state((int)b->state), "node", ctl_json_bytes(b->node, strlen(b->node)), "address",
                     b->addr, "uuid", uuid, "local_path", ctl_json_bytes(b->local_path, strlen(b->local_path)),
                     "backend", b->backend, "capacity_bytes", (json_int_t)b->capacity_bytes, "used_bytes",
                     (json_int_t)b->used_bytes, "free_bytes", (json_int_t)b->free_bytes, "chunks",
                     (json_int_t)b->chunks, "error", ctl_json_bytes(b->error, strlen(b->error)),
                     "buffers", json_buffers(b), "draining", json_prefs(b->prefs));
}

/* "1 filling (100 MiB), 1 draining (256 MiB), 1 free", in the order in which they are used. */
static void print_buffers(const Fp__BnfInfo *b)
{
    static const Fp__BufferUse order[] = {FP__BUFFER_USE__BUFFER_FILLING, FP__BUFFER_USE__BUFFER_FULL, FP__BUFFER_USE__BUFFER_DRAINING, FP__BUFFER_USE__BUFFER_FREE};
    char text[200] = "", size[FP_UNITS_BUF];
    size_t len = 0;
    uint64_t each = b->buffers[0]->size_bytes, count = each ? b->capacity_bytes / each : 0;
    for (size_t k = 0; k < sizeof order / sizeof *order; k++) {
        unsigned n = 0;
        uint64_t bytes = 0;
        for (size_t i = 0; i < b->n_buffers; i++) {
            n += b->buffers[i]->use == order[k];
            bytes += b->buffers[i]->use == order[k] ? b->buffers[i]->bytes : 0;
        }
        if (n && len < sizeof text)
            len += (size_t)snprintf(text + len, sizeof text - len, order[k] == FP__BUFFER_USE__BUFFER_FREE ? "%s%u %s" : "%s%u %s (%s)", len ? ", " : "", n,
                                    buffer_use(order[k]), fp_format_size(size, bytes));
    }
    ctl_print_line("buffers", "of benefactor %u, %llu of %s each: %s", b->id, (unsigned long long)count, fp_format_size(size, each), text);
}

const char *ctl_manager_addr(const Fp__CtlStatusReply *r, const struct ctl_store *store)
{
    bool all = strncmp(r->addr, "0.0.0.0:", 8) == 0 || strncmp(r->addr, "[::]:", 5) == 0;
    return all ? store->manager : r->addr;
}

uint64_t ctl_used_bytes(const Fp__CtlStatusReply *r)
{
    return r->total_bytes > r->free_bytes ? r->total_bytes - r->free_bytes : 0;
}

/* What it does for draining, in words. */
static const char *draining(const Fp__BnfPrefs *p, char line[80])
{
    char rate[FP_UNITS_BUF];

    if (!p || !p->drain)
        return p ? "off" : "";
    snprintf(line, 80, "%s%s%s", p->hold ? "held" : "on", p->max_rate ? ", " : "", p->max_rate ? fp_format_rate(rate, p->max_rate) : "");
    return line;
}

int ctl_print_benefactors(size_t n, Fp__BnfInfo **b)
{
    char line[80];

    static const struct fp_table_col cols[] = {{"id", true},   {"node", false},   {"state", false},
                                               {"used", true}, {"of", true},      {"", true},
                                               {"free", true}, {"chunks", true},  {"backend", false},
                                               {"address", false}, {"draining", false}, {"error", false}};
    struct fp_table *t = fp_table_new(cols, sizeof cols / sizeof *cols);
    for (size_t i = 0; i < n; i++) {
        fp_table_cell(t, "%u", b[i]->id);
        fp_table_cell(t, "%s", b[i]->node);
        fp_table_cell_styled(t, ctl_bnf_style((int)b[i]->state), "%s", ctl_bnf_state((int)b[i]->state));
        fp_table_cell_size(t, b[i]->used_bytes);
        fp_table_cell_size(t, b[i]->capacity_bytes);
        fp_table_cell_percent(t, b[i]->used_bytes, b[i]->capacity_bytes);
        fp_table_cell_size(t, b[i]->free_bytes);
        fp_table_cell_count(t, b[i]->chunks);
        fp_table_cell(t, "%s", b[i]->backend);
        fp_table_cell(t, "%s", b[i]->addr);
        fp_table_cell(t, "%s", draining(b[i]->prefs, line));
        fp_table_cell(t, "%s", b[i]->error);
    }
    int rc = fp_table_print(t, stdout);
    fp_table_free(t);
    for (size_t i = 0; i < n; i++)
        if (b[i]->n_buffers)
            print_buffers(b[i]);
    return rc;
}

static void print_line(const char *name, enum fp_style style, const char *fmt, va_list ap)
{
    char text[PATH_MAX + 512];
    vsnprintf(text, sizeof text, fmt, ap);
    for (char *p = text; *p; p++) {
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?'; /* as in tables: a name must not command the terminal */
    }
    printf("%s%-10s%s%s\n", fp_style_on(stdout, style), name, fp_style_off(stdout, style), text);
}

void ctl_print_line(const char *name, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    print_line(name, FP_STYLE_BOLD, fmt, ap);
    va_end(ap);
}

void ctl_print_alarm(const char *name, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    print_line(name, FP_STYLE_BAD, fmt, ap);
    va_end(ap);
}

void ctl_print_title(const char *title)
{
    printf("\n%s%s%s\n", fp_style_on(stdout, FP_STYLE_BOLD), title, fp_style_off(stdout, FP_STYLE_BOLD));
}
