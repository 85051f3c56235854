/* Threads that wait for the disk, so that the loop never does. */
#ifndef BNF_DISK_H
#define BNF_DISK_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct bnf_disk;

/* Work for a disk thread. The memory is the submitter's until done returns. */
struct bnf_task {
    struct bnf_task *next;
    void (*run)(struct bnf_task *task);  /* on a disk thread; may block */
    void (*done)(struct bnf_task *task); /* on the loop's thread, afterwards */
};

/* -ENOMEM, -EAGAIN; uv errors. */
int bnf_disk_new(uv_loop_t *loop, unsigned threads, struct bnf_disk **out);

/* Thread of the loop. Never fails, never blocks: how much may be under way is bounded by the callers
 * (buffers, operations). */
void bnf_disk_submit(struct bnf_disk *d, struct bnf_task *task);

/* Tasks submitted and not done yet. Thread of the loop. */
size_t bnf_disk_pending(const struct bnf_disk *d);

/* How many calls of this, this one included, have found the task that runs longest at work; 0: none runs.
 * Called at regular times it tells how long that has been, without the time in which the whole process stood
 * still (stopped, or its machine was): for that the device can't be blamed. Thread of the loop. */
unsigned bnf_disk_look(struct bnf_disk *d);

/* Waits for the threads (tasks not begun are dropped), frees; closes its handle: the loop must run once more.
 */
void bnf_disk_free(struct bnf_disk *d);

#endif
