/*
 * Files that are open on this mount, as aux-apps see them: a serial number from the first open of a closed file until its last close is published,
 * or it is cut to 0, or opened for writing while it is open for reading alone.
 */
#ifndef CL_AUX_FILES_H
#define CL_AUX_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "fp.pb-c.h"

struct cl_aux;
struct cl_inode;

struct aux_file_name {
    uint64_t ino, parent;          /* parent 0: not known */
    char name[256];
};

int cl_aux_files_new(struct cl_aux *a);
void cl_aux_files_free(struct cl_aux *a);

/* Is this file open for writing here? May be called with the lock of holds.c. */
bool cl_aux_files_written(struct cl_aux *a, uint64_t serial);

/* The file was just made under this name, and is open. Any thread. */
void cl_aux_files_named(struct cl_aux *a, uint64_t ino, uint64_t parent, const char *name);
/* The file is about to be cut to 0: its serial from here on; 0: it is not open. Notes that nobody took are gone. Takes inode->lock. Any thread. */
uint64_t cl_aux_files_renew(struct cl_aux *a, struct cl_inode *inode);
/* The newest. Any thread. */
uint64_t cl_aux_files_last_serial(struct cl_aux *a);
/* False: no open file has this serial. */
bool cl_aux_files_find(struct cl_aux *a, uint64_t serial, struct aux_file_name *out);

/* Packed answers to MSG_NOTES about what the file was before it was cut to 0 (owned by the file), and how many. Taken: *n = 0. */
struct aux_packed { size_t len_bytes; uint8_t *bytes; };
void cl_aux_files_keep_notes(struct cl_aux *a, uint64_t serial, struct aux_packed *answers, uint32_t n);
struct aux_packed *cl_aux_files_take_notes(struct cl_aux *a, uint64_t serial, uint32_t *n);
void cl_aux_packed_free(struct aux_packed *answers, uint32_t n);

#endif
