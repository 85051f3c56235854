/* What a coordinator says to the plugin that has started it, a line each, on standard output. One thread. */
#ifndef CW_TELL_H
#define CW_TELL_H

#include <stdint.h>

/* For the log of the mount, without a newline. level: enum fp_aux_level. */
__attribute__((format(printf, 2, 3))) void cw_tell_log(int level, const char *format, ...);
/* For `fpctl auxapps`: added to what was said before, and what it is now. */
void cw_tell_count(const char *name, int64_t n);
void cw_tell_gauge(const char *name, int64_t n);
/* So many lines of the plugin are marked in the store, the look at the start among them. */
void cw_tell_heard(uint64_t lines);

#endif
