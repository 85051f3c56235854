/* Guesses of schemas from samples that say something of themselves, and how samples are read: for guess.c, guessform.c and command.c alone. */
#ifndef CV_SCHEMA_GUESS_H
#define CV_SCHEMA_GUESS_H

#include "convert/schema/schema.h"

/* At most cap bytes from off on; *len: as many as there are. */
int cv_guess_read(const char *path, uint64_t off, void *buf, size_t cap, size_t *len, struct cv_fail *why);
/* Path (borrowed) and size of a regular file. */
int cv_guess_stat(struct cv_schema_file *f, const char *path, struct cv_fail *why);

bool cv_guess_is_npy(const unsigned char *head, size_t len);
/* As from=raw would read it; the text says that from=npy needs none. */
int cv_guess_npy(const char *const *paths, size_t npaths, FILE *out, struct cv_fail *why);
/* Is the file made of Fortran's records from its beginning to its end? */
bool cv_guess_is_fortran(const char *path, uint64_t size_bytes);
int cv_guess_fortran(const char *path, uint64_t size_bytes, FILE *out, struct cv_fail *why);

#endif
