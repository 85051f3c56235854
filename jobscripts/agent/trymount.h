/* Whether the user may mount a FUSE file system on a directory by fusermount3: by doing it, for a moment. */
#ifndef JOB_TRYMOUNT_H
#define JOB_TRYMOUNT_H

#include <stdbool.h>
#include <stddef.h>

struct job_mount_tried {
    char why[200];       /* what the helper said; "": nothing */
    unsigned fuse_minor; /* FUSE 7.x, as the kernel says in its first request; 0: not known */
    bool passthrough;    /* which it has */
};

/* fusermount3 of PATH, in out ("": there is none), and whether it is root's and runs as root; for root himself it need not. */
bool job_mount_helper(char *out, size_t size);

/* Mounts an empty file system on dir and takes it away. 0, or negative errno. Blocks for some seconds at most; signals that would end us wait until it is gone. */
int job_try_mount(const char *dir, struct job_mount_tried *out);

#endif
