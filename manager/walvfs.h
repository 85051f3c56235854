/* A VFS for SQLite that writes each commit into the WAL by one system call. See walvfs.c. */
#ifndef MGR_WALVFS_H
#define MGR_WALVFS_H

/* For sqlite3_open_v2: name of the VFS, registered by the first call; NULL (SQLite's own) when that fails. Not
 * thread-safe: the thread of the loop, before other connections are opened. */
const char *mgr_walvfs_name(void);

#endif
