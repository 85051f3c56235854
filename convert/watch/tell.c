/* What a coordinator says (tell.h). Called by watch.c. It waits for the plugin, which reads all the time. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "convert/watch/tell.h"

void cw_tell_log(int level, const char *format, ...)
{
    va_list args;

    printf("log %d ", level);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

void cw_tell_count(const char *name, int64_t n)
{
    printf("count %s %" PRId64 "\n", name, n);
    fflush(stdout);
}

void cw_tell_gauge(const char *name, int64_t n)
{
    printf("gauge %s %" PRId64 "\n", name, n);
    fflush(stdout);
}

void cw_tell_heard(uint64_t lines)
{
    printf("heard %" PRIu64 "\n", lines);
    fflush(stdout);
}
