/*
 * Aux-apps as the data path sees them, in place of client/aux/ (by --wrap): threads of their own answer after random times and in any order. What they answer is
 * random but true: pieces are named zero, same or stored only where the bytes are, and coded chunks come back.
 */
#ifndef TESTS_CL_FAKE_AUX_H
#define TESTS_CL_FAKE_AUX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "client/aux/aux.h"
#include "client/data/overlay.h"
#include "fp/envelope.h"

struct fake_aux {
    atomic_bool on;              /* aux-apps are declared */
    atomic_int delay_us;         /* each takes up to this long */
    atomic_int each_us;          /* … one after the other, and each as long as this */
    atomic_bool hold;            /* none is answered until this is false again */
    atomic_bool pieces, codes;   /* what they do, at random */
    atomic_bool always;          /* … each time, and all that can be found is named */
    atomic_bool rest, rest_zeros; /* at random they have nothing to do, but with zeros */
    atomic_uint passed, asked_zeros, rest_asked; /* counted: windows of which they had nothing; of which zeros were asked about */
    atomic_bool mask_only;       /* … with the coder that makes it longer */
    atomic_uint piece_min;       /* shorter duplicates are not named */
    atomic_uint new_every;       /* > 0: a piece of this length is new, the next of this length a duplicate if it can be */
    atomic_int status;           /* chunks are refused with this */
    atomic_int decode_rc;        /* decoding fails with this */
    atomic_bool decode_wrong;    /* it gives wrong bytes */
    atomic_bool hides;           /* the coders hide the data */
    atomic_int lie;              /* so many windows from here on are said to be … */
    atomic_uint lie_kind;        /* … zero, the same twice, or what lie_chunk has, and are not */
    atomic_ullong lie_chunk;
    struct cl_chunk_ref lie_ref; /* where lie_chunk is; len_bytes 0: that is not known */
    atomic_uint lied;            /* calls of cl_aux_lied */
    struct fp_envelope envelope; /* of the chunk that the world has looked at last */
    atomic_uint doubt;           /* changes: what is pinned is to be asked about again */
    atomic_bool doubts;          /* … with each job that refers to something, when it is done */
    atomic_bool distrust;        /* … and is not vouched for any more */
    /* counted: */
    atomic_uint again;           /* jobs that must not refer to anything */
    atomic_uint jobs, coded, decoded, nothing, stored_pieces, same_pieces, zero_pieces, pins;
    atomic_uint told;            /* calls of cl_aux_stored */
    atomic_uint last_whole;      /* of the last job */
    atomic_ullong last_off, last_serial;
    atomic_uint decoding, decoding_max;
};
extern struct fake_aux fake_aux;

void fake_aux_start(uint64_t seed);
/* Checks that every result was given back, and nothing is held. */
void fake_aux_stop(void);

#endif
