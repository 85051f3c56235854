/* Removing a directory with all that is in it. */
#ifndef FP_RMTREE_H
#define FP_RMTREE_H

/* A file or directory of any depth; symbolic links are not followed, nothing of another file system is touched. What can't be removed is a WARN line each.
 * That there is none is fine. Any thread; blocks on the disk. */
void fp_remove_tree(const char *path);

#endif
