/* The manager's directory: DIR/store.db and DIR/lock. Main thread, at start-up; blocks on the disk. */
#ifndef MGR_STOREDIR_H
#define MGR_STOREDIR_H

#include <stddef.h>

/* Makes dir if it is missing, checks that it can be ours, and takes its lock, which is held until the process
 * ends. Writes the path of the database. Failures are logged, one line each. */
int mgr_storedir_take(const char *dir, char *db_path, size_t size);

/* A start was refused: takes away what it made, and nothing else. The database is closed. */
void mgr_storedir_undo(const char *dir, const char *db_path);

#endif
