/* What a program of ours has last said in its log. */
#ifndef FP_LOGTAIL_H
#define FP_LOGTAIL_H

#include <stdbool.h>
#include <stddef.h>

#define FP_LOG_ERROR_MARK ": ERROR: "
#define FP_LOG_WARN_MARK  ": WARN: "

/* What comes after mark in the last line of the file, from byte `from` on, that has it, and `with` behind it. "" counts for every line. False: none, and
 * text is "". */
bool fp_log_tail(const char *path, long from, const char *mark, const char *with, char *text, size_t room);

#endif
