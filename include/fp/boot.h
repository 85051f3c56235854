/* Which boot of its kernel this is. */
#ifndef FP_BOOT_H
#define FP_BOOT_H

#include <stdint.h>

/* A sum of the kernel's boot id, which is another one after each boot; 0: it can't be read. Opens a file; any thread. */
uint64_t fp_boot_number(void);

#endif
