/* How far something is: a bar, per cent, rate and what is left, for people who watch. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "client/ctl/ctl.h"
#include "fp/table.h"
#include "fp/units.h"

#define CELLS  16u
#define LEFT_S (99u * 86400u) /* more is not said */

uint64_t ctl_left_s(uint64_t done, uint64_t all, uint64_t rate)
{
    return rate && all > done ? (all - done + rate - 1) / rate : 0;
}

char *ctl_progress_text(char buf[CTL_PROGRESS_BUF], uint64_t done, uint64_t all, uint64_t rate)
{
    char bar[CELLS + 1], speed[FP_UNITS_BUF], left[FP_UNITS_BUF];
    double part = all == 0 ? 1 : done >= all ? 1 : (double)done / (double)all;
    size_t n;

    memset(bar, '.', CELLS);
    memset(bar, '#', (size_t)(part * CELLS));
    bar[CELLS] = '\0';
    n = (size_t)snprintf(buf, CTL_PROGRESS_BUF, "[%s] %3u %%", bar, (unsigned)(part * 100)); /* never 100 before all is done */
    if (part >= 1 || !rate)
        return buf;
    n += (size_t)snprintf(buf + n, CTL_PROGRESS_BUF - n, "  %s", fp_format_rate(speed, rate));
    if (ctl_left_s(done, all, rate) < LEFT_S)
        snprintf(buf + n, CTL_PROGRESS_BUF - n, "  %s left", fp_format_duration(left, ctl_left_s(done, all, rate) * 1000));
    return buf;
}

char *ctl_again_text(char buf[CTL_AGAIN_BUF], uint32_t again_s)
{
    buf[0] = '\0';
    if (again_s)
        snprintf(buf, CTL_AGAIN_BUF, " (looked at again in %u s)", (unsigned)again_s);
    return buf;
}

void ctl_progress_line(const char *fmt, ...)
{
    struct winsize w;
    char line[1024];
    size_t max;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    max = ioctl(2, TIOCGWINSZ, &w) == 0 && w.ws_col > 1 ? w.ws_col - 1u : 79; /* one that goes on in the next row could not be taken back */
    if (strlen(line) > max) {
        while (max > 0 && ((unsigned char)line[max] & 0xc0) == 0x80) /* not in a character */
            max--;
        line[max] = '\0';
    }
    fprintf(stderr, "\r%s\033[K", line);
}

void ctl_progress_end(void)
{
    fputs("\r\033[K", stderr);
}
