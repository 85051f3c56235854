/* The store's 256-bit key, and how it is kept: never in arguments, environment, logs or core files.
 *
 * A struct fp_key lies alone in an mlock()ed, MADV_DONTDUMP page that is wiped when freed. Hand the
 * pointer around, never copy the bytes. On error, why holds one line for the user (without program
 * name), which never contains any part of the key. Any thread; load and write block on the disk. */
#ifndef FP_KEY_H
#define FP_KEY_H

#include <stddef.h>
#include <stdint.h>

#define FP_KEY_BYTES    32
#define FP_KEY_WHY_MAX  512

struct fp_key;

/* Reads a key file: 64 hexadecimal digits and a newline; regular, owned by us or root, no permission for
 * group and others. Errors: -ENOENT, -EPERM (mode or owner), -EINVAL (content), or from open/read. */
int fp_key_load(const char *path, struct fp_key **out, char why[FP_KEY_WHY_MAX]);

/* A new random key, from getrandom(2). Errors: -ENOMEM, -ENOSYS. */
int fp_key_generate(struct fp_key **out);

/* Creates path (O_EXCL, mode 0600) with the key and syncs it. -EEXIST when the file is there. A file
 * written half is removed again. */
int fp_key_write(const struct fp_key *key, const char *path, char why[FP_KEY_WHY_MAX]);

/* Wipes and frees; NULL is fine. */
void fp_key_free(struct fp_key *key);

/* The FP_KEY_BYTES bytes, borrowed until fp_key_free. For OpenSSL only: never print, never copy. */
const uint8_t *fp_key_bytes(const struct fp_key *key);

#endif
