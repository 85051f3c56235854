/* Tables for people: aligned columns, human units, colours on a terminal. JSON goes through jansson.
 *
 * Build row by row, cell by cell, then print. An allocation that fails is remembered and reported by
 * fp_table_print, so callers check once. One thread. */
#ifndef FP_TABLE_H
#define FP_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum fp_style {
    FP_STYLE_NONE,
    FP_STYLE_GOOD, /* green */
    FP_STYLE_WARN, /* yellow */
    FP_STYLE_BAD,  /* red */
    FP_STYLE_DIM,
    FP_STYLE_BOLD,
};

struct fp_table_col {
    const char *title;
    bool right; /* numbers */
};

struct fp_table;

/* cols is borrowed until fp_table_free. NULL when out of memory; all functions accept NULL. */
struct fp_table *fp_table_new(const struct fp_table_col *cols, unsigned ncols);
void fp_table_free(struct fp_table *t);

/* Appends the next cell; after ncols cells a new row begins. Control characters are shown as '?'. */
void fp_table_cell(struct fp_table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void fp_table_cell_styled(struct fp_table *t, enum fp_style style, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void fp_table_cell_size(struct fp_table *t, uint64_t bytes);                   /* 1.5 GiB */
void fp_table_cell_count(struct fp_table *t, uint64_t n);                      /* 1,234,567 */
void fp_table_cell_duration(struct fp_table *t, uint64_t ms);                  /* 340 ms */
void fp_table_cell_percent(struct fp_table *t, uint64_t part, uint64_t whole); /* 37 %, "-" of 0 */

/* Titles and rows, two spaces between columns, no trailing spaces. 0, -ENOMEM, or -EIO. */
int fp_table_print(const struct fp_table *t, FILE *f);

/* Colours: f is a terminal, TERM is not "dumb", NO_COLOR is not set. */
bool fp_colour_wanted(FILE *f);

/* Escape sequences to start and end a style on f; "" where no colour is wanted. */
const char *fp_style_on(FILE *f, enum fp_style style);
const char *fp_style_off(FILE *f, enum fp_style style);

#endif
