/* The commands of fp-convert. Each is called with its own words (argv[0] is its name) and returns the exit code: 0, 1 failed and said, 2 a mistake in the call. */
#ifndef CV_COMMAND_H
#define CV_COMMAND_H

#include "convert/fail.h"

int cv_run_command(int argc, char **argv);
int cv_join_command(int argc, char **argv);
int cv_formats_command(int argc, char **argv);
int cv_watch_command(int argc, char **argv);

/* What a failed conversion says: a line on stderr, and a JSON object on status_fd (-1: none). Returns exit code 1. */
int cv_command_failed(int rc, const struct cv_fail *why, int status_fd);
/* A mistake in the call of `fp-convert COMMAND`: said on stderr, with where to look. Returns exit code 2. The second one: that of a list of files (filelist.h). */
int cv_command_mistake(const char *text, const char *command);
int cv_command_bad_list(const struct cv_fail *why, const char *command);
/* Set by SIGTERM, SIGINT and SIGHUP once cv_command_signals was called: work is to end, and to leave nothing. */
void cv_command_signals(void);
int cv_command_interrupted(void); /* the signal; 0: none */

#endif
