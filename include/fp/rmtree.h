/* Removing a directory with all that is in it. */
#ifndef FP_RMTREE_H
#define FP_RMTREE_H

/* A file or directory of any depth; symbolic links are not followed, nothing of another file system is touched. What can't be removed, or not even
 * looked at, as a dead mount, stays, with a WARN line for each of the first few, and everything else goes. That there is none is fine. 0, or negative errno of the first
 * that stays. Any thread; blocks on the disk. */
int fp_remove_tree(const char *path);

#endif
