/* What the bytes of a sample look like: for guess.c. No I/O. */
#ifndef CV_SCHEMA_SAMPLES_H
#define CV_SCHEMA_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convert/model.h"

struct cv_looks {
    struct cv_type type;
    double percent;   /* of the elements that are as one expects of this type */
    bool all_zero;    /* nothing can be told */
};

/* The type that bytes (from a place that is a multiple of 8 from the array's start) most probably are. */
struct cv_looks cv_looks_like(const unsigned char *bytes, size_t len);
/* m with m * m * m == n, or 0; m with m * m == n, or 0. */
uint64_t cv_cube_root(uint64_t n);
uint64_t cv_square_root(uint64_t n);
/* ranks as a grid that is as near to a cube as it can be: n numbers, the largest first. */
void cv_even_grid(uint64_t ranks, unsigned n, uint64_t *grid);

#endif
