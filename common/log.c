/* Log lines on stderr.
 *
 * Who calls: everything. A line is built in a buffer on the stack and handed over with one write(2); the
 * kernel keeps writes up to PIPE_BUF whole on pipes, and O_APPEND files and journald sockets keep any
 * length whole. No stdio: its lock may be held by a thread that was killed or forked away.
 *
 * Timestamps are left to whoever collects stderr (journald, the test harness); what matters in a line is
 * program, level, text. Syslog was rejected: it needs a daemon, and compute nodes often run none.
 *
 * The level is a relaxed atomic: a change needs not be seen at once by other threads. The program name is
 * set before the first thread starts. */
#include "fp/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "fp/clock.h"

#define LINE_MAX_BYTES 2048

const char *const fp_log_level_names[] = {"error", "warn", "info", "debug", NULL};

static const char *const level_labels[] = {"ERROR", "WARN", "INFO", "DEBUG"};
static const char *prog = "fp";
static _Atomic int log_level = FP_LOG_INFO;
static _Atomic int also_fd = -1;

void fp_log_init(const char *progname, enum fp_log_level level)
{
    prog = progname;
    fp_log_set_level(level);
}

void fp_log_set_level(enum fp_log_level level)
{
    atomic_store_explicit(&log_level, (int)level, memory_order_relaxed);
}

void fp_log_also(int fd)
{
    atomic_store(&also_fd, fd);
}

bool fp_log_enabled(enum fp_log_level level)
{
    return (int)level <= atomic_load_explicit(&log_level, memory_order_relaxed);
}

const char *fp_log_progname(void)
{
    return prog;
}

/* Copies text into line as printable characters. UTF-8 passes; control characters become \xNN. Cuts with
 * "..." when full. Returns the new length. */
static size_t append_escaped(char *line, size_t used, const char *text)
{
    size_t room = LINE_MAX_BYTES - 5; /* "..." and newline and NUL */
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (used + 4 > room) {
            memcpy(line + used, "...", 3);
            return used + 3;
        }
        if (*p >= 0x20 && *p != 0x7f)
            line[used++] = (char)*p;
        else
            used += (size_t)snprintf(line + used, 5, "\\x%02x", *p);
    }
    return used;
}

static void write_all(int fd, const char *p, size_t len_bytes)
{
    while (len_bytes > 0) {
        ssize_t n = write(fd, p, len_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* nowhere left to complain */
        p += n;
        len_bytes -= (size_t)n;
    }
}

static void emit(enum fp_log_level level, uint64_t suppressed, const char *fmt, va_list ap)
{
    char text[LINE_MAX_BYTES];
    char line[LINE_MAX_BYTES];
    int saved = errno;
    errno = saved; /* for %m */
    vsnprintf(text, sizeof text, fmt, ap);
    int head = snprintf(line, 128, "%.64s: %s: ", prog, level_labels[level]);
    size_t used = append_escaped(line, (size_t)head, text);
    if (suppressed > 0 && used + 64 < sizeof line)
        used += (size_t)snprintf(line + used, 64, " (%llu similar lines suppressed)",
                                 (unsigned long long)suppressed);
    line[used++] = '\n';
    write_all(STDERR_FILENO, line, used);
    int also = atomic_load(&also_fd);
    if (also >= 0 && level <= FP_LOG_WARN)
        write_all(also, line, used);
    errno = saved;
}

void fp_log(enum fp_log_level level, const char *fmt, ...)
{
    if (!fp_log_enabled(level))
        return;
    va_list ap;
    va_start(ap, fmt);
    emit(level, 0, fmt, ap);
    va_end(ap);
}

bool fp_log_limit_pass(struct fp_log_limit *limit, uint64_t now_ms, uint64_t interval_ms,
                       uint64_t *suppressed)
{
    uint64_t next = atomic_load(&limit->next_ms);
    /* next is kept 1 above the true time, so that 0 can mean "never". */
    if (now_ms + 1 < next ||
        !atomic_compare_exchange_strong(&limit->next_ms, &next, now_ms + interval_ms + 1)) {
        atomic_fetch_add(&limit->suppressed, 1);
        return false;
    }
    *suppressed = atomic_exchange(&limit->suppressed, 0);
    return true;
}

void fp_log_limited(struct fp_log_limit *limit, uint64_t interval_ms, enum fp_log_level level,
                    const char *fmt, ...)
{
    int saved = errno;
    uint64_t suppressed = 0;
    if (!fp_log_enabled(level) || !fp_log_limit_pass(limit, fp_now_ms(), interval_ms, &suppressed))
        return;
    va_list ap;
    va_start(ap, fmt);
    errno = saved;
    emit(level, suppressed, fmt, ap);
    va_end(ap);
}
