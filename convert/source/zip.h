/* Archives of zip: what is in them, by their central directory. */
#ifndef CV_SOURCE_ZIP_H
#define CV_SOURCE_ZIP_H

#include "convert/source/source.h"

enum cv_zip_method { CV_ZIP_STORED = 0, CV_ZIP_DEFLATED = 8 };

struct cv_zip_entry {
    char *name;              /* as it is in the archive; of the one who was called */
    enum cv_zip_method method;
    uint32_t crc;
    uint64_t data_at;        /* first byte of the data in the archive */
    uint64_t packed_bytes, size_bytes;
};

/*
 * All entries of input i that are not folders, in the order of their data; *out is the caller's to free, names and all. Encrypted ones, methods that are not known, archives in more than one volume,
 * entries that lie over each other or not in the file, are refused with the byte. 0 or a negative errno.
 */
int cv_zip_list(struct cv_source *s, uint32_t input, struct cv_zip_entry **out, size_t *count, struct cv_fail *why);
void cv_zip_free(struct cv_zip_entry *entries, size_t count);

#endif
