/*
 * Memory that tells (see auxtest.h): the page after the last byte can't be touched, and what lies before the first is looked at.
 *
 * An overrun by one byte is a crash at the instruction that did it. A sanitizer would see more, but needs the plugin built with it.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "auxapps/auxtest/auxtest.h"

#define FILL 0xc5

void buffer_new(struct buffer *b, size_t len_bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (len_bytes + page - 1) / page * page + page;

    b->map_bytes = page + body + page;
    b->len_bytes = len_bytes;
    b->map = mmap(NULL, b->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->map == MAP_FAILED || mprotect(b->map + page, body, PROT_READ | PROT_WRITE) != 0)
        abort();
    memset(b->map + page, FILL, body);
    b->data = b->map + page + body - len_bytes;
}

void buffer_read_only(struct buffer *b, bool on)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    if (mprotect(b->map + page, b->map_bytes - 2 * page, on ? PROT_READ : PROT_READ | PROT_WRITE) != 0)
        abort();
}

bool buffer_is_clean(const struct buffer *b)
{
    const uint8_t *p = b->map + sysconf(_SC_PAGESIZE);

    while (p < b->data)
        if (*p++ != FILL)
            return false;
    return true;
}

void buffer_free(struct buffer *b)
{
    if (b->map)
        munmap(b->map, b->map_bytes);
    *b = (struct buffer){ 0 };
}
