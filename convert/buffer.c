/*
 * Memory for data on its way (buffer.h).
 */
#include <stdlib.h>

#include "convert/buffer.h"

void *cv_buffer(size_t bytes)
{
    void *at;

    return posix_memalign(&at, CV_BUFFER_ALIGN_BYTES, bytes ? bytes : 1) == 0 ? at : NULL;
}
