/* Are pieces what aux-apps say they are? The mount has the bytes, and looks. */
#ifndef CL_DATA_PROVE_H
#define CL_DATA_PROVE_H

#include <stdint.h>

#include "fp/auxwire.h"

struct cl_data;

struct cl_untrue { uint32_t app; const char *what; }; /* whose piece it is; what is not so, for people */

/*
 * pieces: checked by aux/, in order and without gaps; pages: of the window, in 64 KiB, as the aux-apps had them. 0: what can be seen is so. -EPROTO: it is not, and
 * *out says what. -EAGAIN: a stored chunk that is to be compared with can't be read: nobody's lie. Store threads; blocks on I/O only for pieces that are doubted.
 */
int cl_prove_pieces(struct cl_data *d, uint8_t *const *pages, const struct fp_auxw_piece *p, uint32_t n, struct cl_untrue *out);

#endif
