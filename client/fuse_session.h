/*
 * The FUSE session: mounting, what is negotiated with the kernel, and the loop of FUSE threads.
 */
#ifndef CL_FUSE_SESSION_H
#define CL_FUSE_SESSION_H

struct cl_mount;

/* Make the session and mount it. 0, or negative errno after one line. Main thread. */
int cl_fuse_mount(struct cl_mount *m);
/* Serve until the mount is gone or fuse_session_exit. 0 or negative errno. Main thread. */
int cl_fuse_loop(struct cl_mount *m);
/* Free the session; unmount first, if it is still mounted by us. No request may be outstanding. */
void cl_fuse_close(struct cl_mount *m, int still_mounted);

#endif
