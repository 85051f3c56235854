/* fp-convert schema check SCHEMA [FILE…], schema guess FILE… */
#ifndef CV_SCHEMA_COMMAND_H
#define CV_SCHEMA_COMMAND_H

/* argv[0]: "check" or "guess", and what stands behind it; "schema" may stand before. 0: done; 1: failed, with the reason on standard error; 2: usage. Blocks. */
int cv_schema_command(int argc, char **argv);

#endif
