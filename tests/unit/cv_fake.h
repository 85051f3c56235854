/* What tests of the engine share: random arrays in blocks, with every element known, and a source in memory that gives them as files or boxes. */
#ifndef TESTS_CV_FAKE_H
#define TESTS_CV_FAKE_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "convert/source/source.h"

#define FAKE_INPUTS   3u
#define FAKE_MOST     40000u  /* elements of an array */

/* xorshift: the same of each seed everywhere. */
struct fake_random { uint64_t state; };
uint64_t fake_number(struct fake_random *r, uint64_t below); /* below > 0 */
bool fake_chance(struct fake_random *r, unsigned percent);

struct fake {
    struct cv_source s;              /* first: what the engine sees */
    struct cv_input inputs[FAKE_INPUTS];
    uint8_t *bytes[FAKE_INPUTS];     /* what is in them */
    size_t len[FAKE_INPUTS], room[FAKE_INPUTS];
    uint8_t *expect[4];              /* of each dataset: the whole array as it is to be, in the machine's byte order */
    uint8_t *there[4];               /* of each dataset and element: blocks that have it */
    unsigned calls, fail_at;         /* which call of open, read_bytes and read_box fails; 0: none */
};

struct fake_options {
    unsigned datasets;      /* at most 4 */
    unsigned rank;          /* of all; CV_RANK_MAX + 1: any */
    bool gaps, overlaps;    /* let some blocks be missing; put more blocks over others, of which the last counts */
    bool boxes;             /* read_box instead of read_bytes */
    bool plain;             /* neither strides nor ghosts */
};

/* Made from a seed; fake_free ends it. */
struct fake *fake_new(uint64_t seed, const struct fake_options *o);
void fake_free(struct fake *f);
uint64_t fake_elements(const struct cv_dataset *d);
/* Where the element of a block, by its own numbers, lies in its input. */
uint64_t fake_offset(const struct cv_dataset *d, const struct cv_block *b, const uint64_t *at);
/* The next index of an array of these dimensions, the last one fastest; false: that was the last. */
bool fake_next(uint64_t *at, const uint64_t *dims, unsigned rank);
/* Its place in the array, from 0 on. */
uint64_t fake_place(const struct cv_dataset *d, const uint64_t *at);

/* What cv_job.from is in tests: open gives what fake_given is, and close leaves it. */
extern struct fake *fake_given;
extern const struct cv_source_ops fake_source_bytes, fake_source_boxes;

#endif
