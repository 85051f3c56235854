/*
 * The core loop of fp-mount and its link to the manager.
 *
 * One thread runs a libuv loop. It holds the connection to the manager (reconnects for ever, with pauses of 50 ms to 1 s),
 * the session, the replay slots, and the connections to remote benefactors. Requests to the manager that were sent and not
 * answered when the connection broke are sent again after the next hello, with the same slot numbers; so a caller sees a
 * restart of the manager only as a delay. After opt.manager_timeout_ms without an answer a call ends with -ETIMEDOUT (-EIO to applications).
 */
#ifndef CL_CORE_H
#define CL_CORE_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct cl_mount;
struct fp_keyedsum;
struct cl_inode;
struct fp_rpc;

/* Start the thread, connect, say hello; returns when the session stands or the start timeout is over (negative errno, logged). */
int cl_core_start(struct cl_mount *m);
/* Say MSG_BYE (bounded), stop the loop, join. No call may be outstanding. */
void cl_core_stop(struct cl_mount *m);

/* Of a mount that failed to start: say MSG_BYE (bounded) and stop the loop. What others use stays: the process ends. */
void cl_core_say_bye(struct cl_mount *m);

/* Between these two the core loop asks the data path for statistics and tells it of a new session. Main thread. */
void cl_core_data_started(struct cl_mount *m);
void cl_core_data_stopping(struct cl_mount *m);

/* The rpc context of the core loop (store key; plain as --data-encryption says): for connections to benefactors. Core loop only. */
struct fp_rpc *cl_core_rpc(struct cl_mount *m);
/* For sums that tell nothing to who has not the store's key. Constant after cl_core_start. Any thread. */
const struct fp_keyedsum *cl_core_keyedsum(const struct cl_mount *m);
/* While no other mount of the store exists, the number of this period; else 0. Then the kernel may cache names for CL_ALONE_TIMEOUT_S
 * (ops.h), and names.h knows what is in some directories. Any thread. */
uint32_t cl_core_alone(struct cl_mount *m);
/* Run fn(arg) on the core loop, in order of posting. Any thread; never blocks; never fails after start. */
void cl_core_post(struct cl_mount *m, void (*fn)(void *arg), void *arg);
/* The session stands and is connected, as far as is known here. Any thread. */
bool cl_core_connected(struct cl_mount *m);
/* 32-bit number of the session that stands now; changes only if the manager forgot us. Any thread. */
uint32_t cl_core_session(struct cl_mount *m);

/*
 * reply: unpacked message of the type that belongs to the request, freed by the caller of cb after it returns; NULL if status < 0.
 * Runs on the core loop: must not block.
 */
typedef void (*cl_mgr_cb)(void *arg, int status, const ProtobufCMessage *reply);

/*
 * Send a request (FP__MSG_TYPE__MSG_…) to the manager. msg is packed before this returns (it is only borrowed). If the message has the
 * fields slot and slot_seq they are filled here. Any thread. cb is called exactly once, on the core loop.
 */
void cl_mgr_call(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg);
/* The same, waiting for the reply: from FUSE or store threads only. *reply (may be NULL) is freed with protobuf_c_message_free_unpacked. */
int cl_mgr_call_sync(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, ProtobufCMessage **reply);
/*
 * As cl_mgr_call, for a request that an application waits for: while it waits longer than usual, interrupted(arg) is asked on the core loop; true
 * ends the wait with -EINTR within a second, whatever the manager does. If the request had been sent, it may still take effect;
 * an open that is answered after that is released by itself.
 */
void cl_mgr_call_intr(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, bool (*interrupted)(void *arg), cl_mgr_cb cb, void *arg);
/*
 * As cl_mgr_call, for a change that must not be made twice nor named anew in another request: it is sent again, as the same request, until the manager has
 * answered or forgotten the session. When opt.manager_timeout_ms is over, cb is called with FP_EDEADLINE first, and once more at the end.
 */
void cl_mgr_call_lasting(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg);
/*
 * The same, for a change that must not be begun when nobody waits for it any more: one that could not be sent in opt.manager_timeout_ms, or that the manager refuses
 * after that, was not executed, and ends with an error.
 */
void cl_mgr_call_known(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg);
/*
 * As cl_mgr_call, for a request whose answer must be taken, however late, because it tells what the manager keeps for this session. Once it was sent it is sent
 * again, as the same request, until the manager has answered or forgotten the session; only then is cb called. One that could not be sent in
 * opt.manager_timeout_ms was not executed, and is given up as any other.
 */
void cl_mgr_call_answered(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg);
/* The same for an operation, from its FUSE thread, which holds no lock: sent by this thread if it can be. */
void cl_mgr_call_answered_soon(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg);
/* Core loop, in a callback: the answer came only after another mount had published the file, so that attributes which were asked for before may be old. */
bool cl_mgr_was_refused(struct cl_mount *m);
/* End all lasting ones with err, and wait until that is done. Any thread but the core loop. */
void cl_mgr_fail_lasting(struct cl_mount *m, int err);
/*
 * As cl_mgr_call, for a change that a program has been told of already (early.h): no request of this mount goes before it that
 * comes after this. interrupted: as for cl_mgr_call_intr; NULL: nobody is to be asked.
 */
void cl_mgr_call_early(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, bool (*interrupted)(void *arg),
                       cl_mgr_cb cb, void *arg);
void cl_mgr_call_early_lasting(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg, cl_mgr_cb cb, void *arg);
/* End all waits that have an `interrupted`, with err, and wait until that is done. Before the FUSE session goes. Any thread but the core loop. */
void cl_mgr_fail_interruptible(struct cl_mount *m, int err);
/* From here on wait no longer than this for a manager that is not connected: the mount is ending. Any thread. */
void cl_mgr_limit_wait(struct cl_mount *m, uint32_t limit_ms);
/* One MSG_OPEN or open MkNod of this inode is over (write: as it was held, cl_inode_hold; torn: its program did not end well): tells the manager, in batches of some milliseconds. Any thread; never blocks. */
void cl_mgr_release(struct cl_mount *m, struct cl_inode *inode, bool write, bool torn);
/* A program has begun to write this file; told with the same batches. */
void cl_mgr_wrote(struct cl_mount *m, uint64_t ino);
/* One-way message: dropped while there is no connection. */
void cl_mgr_send(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg);
/* The same of one without slot that is not to be lost: said again after each hello, until the manager has answered that it has taken it. It may hear it twice. Any thread; never blocks. */
void cl_mgr_say(struct cl_mount *m, uint32_t type, ProtobufCMessage *msg);

#endif
