/* Log lines: one line per event on stderr, `fp-manager: ERROR: text`.
 *
 * Levels: ERROR = someone has to act, or data or service is lost; WARN = degraded but going on;
 * INFO = the few events of a normal life (started, stopped, peer joined); DEBUG = the rest. Log once,
 * where the error is handled, with what the user can do about it. Keys are never logged: struct fp_key
 * is opaque (key.h).
 *
 * Any thread may log; a line is one write(2), so lines of threads never mix, and control characters in
 * the text (a file name may hold a newline) are written as \xNN. Logging may block for as long as
 * writing to stderr does. errno is preserved. */
#ifndef FP_LOG_H
#define FP_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum fp_log_level {
    FP_LOG_ERROR = 0,
    FP_LOG_WARN = 1,
    FP_LOG_INFO = 2,
    FP_LOG_DEBUG = 3,
};

/* NULL-terminated {"error","warn","info","debug"}: the choices of --log-level, index = level. */
extern const char *const fp_log_level_names[];

/* Call once, first thing in main. progname is borrowed for ever (a literal). Before it, lines say "fp". */
void fp_log_init(const char *progname, enum fp_log_level level);

/* May be called at any time. */
void fp_log_set_level(enum fp_log_level level);

bool fp_log_enabled(enum fp_log_level level);

/* Errors and warnings go to fd as well, from now on; -1: no more. For a program whose stderr has become a file
 * while somebody still watches the terminal. fd is borrowed. */
void fp_log_also(int fd);

/* The name given to fp_log_init. */
const char *fp_log_progname(void);

/* Use the macros. Text over about 2000 bytes is cut and ends in "...". */
void fp_log(enum fp_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define FP_LOG_AT(level, ...)                                                                                \
    do {                                                                                                     \
        if (fp_log_enabled(level))                                                                           \
            fp_log((level), __VA_ARGS__);                                                                    \
    } while (0)
#define FP_ERROR(...) FP_LOG_AT(FP_LOG_ERROR, __VA_ARGS__)
#define FP_WARN(...)  FP_LOG_AT(FP_LOG_WARN, __VA_ARGS__)
#define FP_INFO(...)  FP_LOG_AT(FP_LOG_INFO, __VA_ARGS__)
#define FP_DEBUG(...) FP_LOG_AT(FP_LOG_DEBUG, __VA_ARGS__)

/* Rate limit for lines that may repeat thousands of times (a benefactor is down and every write
 * notices). Zero-initialised by whoever owns it: static at the call, or a field per peer. */
struct fp_log_limit {
    _Atomic uint64_t next_ms;    /* before this, lines are swallowed; 0 = never logged */
    _Atomic uint64_t suppressed; /* swallowed since the last line */
};

/* True if a line may be written now; *suppressed is how many were swallowed before it. */
bool fp_log_limit_pass(struct fp_log_limit *limit, uint64_t now_ms, uint64_t interval_ms,
                       uint64_t *suppressed);

/* Logs with a limiter, by CLOCK_MONOTONIC; appends "(N similar lines suppressed)" when any were. */
void fp_log_limited(struct fp_log_limit *limit, uint64_t interval_ms, enum fp_log_level level,
                    const char *fmt, ...) __attribute__((format(printf, 4, 5)));

/* At most one line per interval_ms from this place of the program. */
#define FP_LOG_EVERY(interval_ms, level, ...)                                                                \
    do {                                                                                                     \
        static struct fp_log_limit fp_limit_here_;                                                           \
        fp_log_limited(&fp_limit_here_, (interval_ms), (level), __VA_ARGS__);                                \
    } while (0)

#endif
