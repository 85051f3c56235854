/*
 * Memory that data goes through between files. Any thread.
 */
#ifndef CV_BUFFER_H
#define CV_BUFFER_H

#include <stddef.h>

/* What is as large as that begins in files where the kernel's copy and the file system like it; what is smaller lies side by side. */
#define CV_LARGE_BYTES (256u << 10)
/* In files, where data begins that goes through such memory as a whole: bytes, a page. */
#define CV_BUFFER_ALIGN_BYTES 4096u

/*
 * Memory of this many bytes that begins with a page, or NULL: there is none. The caller's, for free().
 *
 * malloc puts large blocks 16 bytes behind a page's beginning, and the kernel's copy to and from its pages takes 1.6 times as long from there (measured on AMD EPYC 9004: Linux copies with rep movsb, which
 * is slow where both sides don't lie alike in their cache lines).
 */
void *cv_buffer(size_t bytes);

#endif
