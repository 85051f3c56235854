/* Tables for people.
 *
 * fpctl, fp-store and the benchmarks build one and print it; programs that read use --json. One thread.
 *
 * Cells are kept as text and measured when all are there. Width counts UTF-8 characters, not bytes: names
 * of files and nodes may hold any. (Characters of double width come out a column off; wcwidth() would
 * need the caller's locale to be set.) Control characters never reach the terminal: a file name could
 * otherwise move the cursor or change its title. */
#include "fp/table.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fp/grown.h"
#include "fp/units.h"

struct cell {
    char *text;
    enum fp_style style;
};

struct fp_table {
    const struct fp_table_col *cols;
    unsigned ncols;
    struct cell *cells;
    size_t ncells, room;
    bool failed; /* out of memory at some point */
};

bool fp_colour_wanted(FILE *f)
{
    const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
    if (no_color && *no_color)
        return false;
    return isatty(fileno(f)) && term && strcmp(term, "dumb") != 0;
}

static const char *style_code(enum fp_style style)
{
    static const char *const codes[] = {"", "\033[32m", "\033[33m", "\033[31m", "\033[2m", "\033[1m"};
    return codes[style];
}

const char *fp_style_on(FILE *f, enum fp_style style)
{
    return style != FP_STYLE_NONE && fp_colour_wanted(f) ? style_code(style) : "";
}

const char *fp_style_off(FILE *f, enum fp_style style)
{
    return style != FP_STYLE_NONE && fp_colour_wanted(f) ? "\033[0m" : "";
}

struct fp_table *fp_table_new(const struct fp_table_col *cols, unsigned ncols)
{
    struct fp_table *t = calloc(1, sizeof *t);
    if (t) {
        t->cols = cols;
        t->ncols = ncols;
    }
    return t;
}

void fp_table_free(struct fp_table *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->ncells; i++)
        free(t->cells[i].text);
    free(t->cells);
    free(t);
}

__attribute__((format(printf, 3, 0))) static void add_cell(struct fp_table *t, enum fp_style style,
                                                           const char *fmt, va_list ap)
{
    char *text = NULL;
    struct cell *cells;
    if (!t || t->failed)
        return;
    if (vasprintf(&text, fmt, ap) < 0) {
        t->failed = true;
        return;
    }
    cells = fp_grown(t->cells, t->ncells, &t->room, sizeof *cells);
    if (!cells) {
        free(text);
        t->failed = true;
        return;
    }
    t->cells = cells;
    for (unsigned char *p = (unsigned char *)text; *p; p++) {
        if (*p < 0x20 || *p == 0x7f)
            *p = '?';
    }
    t->cells[t->ncells++] = (struct cell){text, style};
}

void fp_table_cell(struct fp_table *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    add_cell(t, FP_STYLE_NONE, fmt, ap);
    va_end(ap);
}

void fp_table_cell_styled(struct fp_table *t, enum fp_style style, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    add_cell(t, style, fmt, ap);
    va_end(ap);
}

void fp_table_cell_size(struct fp_table *t, uint64_t bytes)
{
    char buf[FP_UNITS_BUF];
    fp_table_cell(t, "%s", fp_format_size(buf, bytes));
}

void fp_table_cell_duration(struct fp_table *t, uint64_t ms)
{
    char buf[FP_UNITS_BUF];
    fp_table_cell(t, "%s", fp_format_duration(buf, ms));
}

void fp_table_cell_count(struct fp_table *t, uint64_t n)
{
    char digits[24], out[32];
    int len = snprintf(digits, sizeof digits, "%" PRIu64, n), w = 0;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            out[w++] = ',';
        out[w++] = digits[i];
    }
    out[w] = '\0';
    fp_table_cell(t, "%s", out);
}

void fp_table_cell_percent(struct fp_table *t, uint64_t part, uint64_t whole)
{
    if (whole == 0)
        fp_table_cell(t, "-");
    else
        fp_table_cell(t, "%.0f %%", 100.0 * (double)part / (double)whole);
}

static size_t width_of(const char *text)
{
    size_t n = 0;
    for (const char *p = text; *p; p++)
        n += ((unsigned char)*p & 0xc0) != 0x80; /* not a continuation byte */
    return n;
}

static size_t column_width(const struct fp_table *t, unsigned col)
{
    size_t max = width_of(t->cols[col].title);
    for (size_t i = col; i < t->ncells; i += t->ncols) {
        size_t w = width_of(t->cells[i].text);
        max = w > max ? w : max;
    }
    return max;
}

/* *owed: blanks that come before the next text of the row, if there is any. */
static void print_cell(const struct fp_table *t, FILE *f, unsigned col, size_t width, const char *text,
                       enum fp_style style, int *owed)
{
    int pad = (int)(width - width_of(text));
    bool right = t->cols[col].right;
    if (*text) {
        fprintf(f, "%*s%s%s%s", *owed + (right ? pad : 0), "", fp_style_on(f, style), text,
                fp_style_off(f, style));
        *owed = right ? 2 : pad + 2;
    } else {
        *owed += (int)width + 2;
    }
    if (col + 1 == t->ncols) {
        fputc('\n', f);
        *owed = 0;
    }
}

int fp_table_print(const struct fp_table *t, FILE *f)
{
    if (!t || t->failed)
        return -ENOMEM;
    int owed = 0;
    size_t *widths = calloc(t->ncols, sizeof *widths);
    if (!widths)
        return -ENOMEM;
    for (unsigned c = 0; c < t->ncols; c++)
        widths[c] = column_width(t, c);
    for (unsigned c = 0; c < t->ncols; c++)
        print_cell(t, f, c, widths[c], t->cols[c].title, FP_STYLE_BOLD, &owed);
    for (size_t i = 0; i < t->ncells; i++) {
        unsigned c = (unsigned)(i % t->ncols);
        print_cell(t, f, c, widths[c], t->cells[i].text, t->cells[i].style, &owed);
    }
    if (t->ncells % t->ncols != 0)
        fputc('\n', f); /* the last row is short */
    free(widths);
    return ferror(f) ? -EIO : 0;
}
