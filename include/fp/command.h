/* Other programs (scontrol, sinfo, fpctl), run with a limit: Slurm's clients hang for minutes when there is no controller. */
#ifndef FP_COMMAND_H
#define FP_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Runs argv[0] (found by PATH) and keeps what it writes to standard output, NUL-terminated, cut at size. Its input and errors are /dev/null's. Returns its exit
 * code; -ENOENT: there is no such program; -ETIMEDOUT: it was killed after limit_ms; -EINTR: a signal ended it; or another negative errno. Blocks.
 */
int fp_command(char *const argv[], uint64_t limit_ms, char *out, size_t size);

/*
 * The same, of all that it writes, as long as that is at most max_bytes: *out is the caller's to free, in any case, and NULL where nothing could be kept. -E2BIG: it was more, and none of it is
 * to be used; -ENOMEM.
 */
int fp_command_long(char *const argv[], uint64_t limit_ms, size_t max_bytes, char **out);

/* The same, but its output and errors are our standard error, for the user to see. */
int fp_command_shown(char *const argv[], uint64_t limit_ms);
/* The same; it is killed, too, when over says so, which is asked often: -EINTR. */
int fp_command_shown_until(char *const argv[], uint64_t limit_ms, bool (*over)(void));

/* text as one word of a shell, in single quotes. 0; -ENAMETOOLONG. */
int fp_shell_word(const char *text, char *out, size_t size);

#endif
