/* What lets users without privileges mount: the program fusermount3, and the line of /etc/fuse.conf that shows their mounts to others. Any thread; blocks on the disk. */
#ifndef FP_FUSEHELPER_H
#define FP_FUSEHELPER_H

#include <stdbool.h>
#include <stddef.h>

#define FP_FUSE_CONF "/etc/fuse.conf"

/* The path of fusermount3, as PATH finds it; cut to size. False: it finds none, and out is "". */
bool fp_fuse_helper(char *out, size_t size);

/* Is user_allow_other there? */
bool fp_fuse_user_allow_other(void);

#endif
