/* Elements as numbers: byte order, fill values, NaN. Pure. */
#ifndef CV_NUMBERS_H
#define CV_NUMBERS_H

#include "convert/model.h"

/* From the type's byte order to the machine's, or back; nothing to do if they are the same. */
void cv_numbers_turn(uint8_t *data, uint64_t elements, struct cv_type type);
/* The dataset's fill value, in the byte order of its type (as blocks are stored). */
void cv_numbers_fill(uint8_t *data, uint64_t elements, const struct cv_dataset *d);
/* One element of the fill value, in the machine's byte order: 16 bytes of room. */
void cv_numbers_fill_value(uint8_t *out, const struct cv_dataset *d);
/* Is one of count[] elements, at these distances, a NaN? *at_bytes: where it lies from data on. */
bool cv_numbers_nan(const uint8_t *data, const uint64_t *step, const uint64_t *count, unsigned rank, struct cv_type type, uint64_t *at_bytes);

#endif
