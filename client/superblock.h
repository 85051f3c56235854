/* The file system that this process serves, in the kernel: is it gone, so that no program has anything of it open? */
#ifndef CL_SUPERBLOCK_H
#define CL_SUPERBLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* It has just been mounted there (a real path). Main thread; asks nothing of the file system itself, which nobody serves yet. */
void cl_superblock_mounted(const char *mountpoint);
/* It is gone, or will be within wait_ms. False also if that can't be known. Main thread. */
bool cl_superblock_gone(uint32_t wait_ms);

#endif
