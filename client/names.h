/*
 * What this mount knows of directories, as long as nobody else can change them.
 *
 * A directory that this mount has made while it was the only one of its store is known completely: it was empty, and
 * all that changes it passes here. So a name that is not in it needs no question to the manager, and a file can be
 * made in it, or removed, before the manager has heard of it (early.h). That is the case of every checkpoint directory.
 *
 * Of each name one of three things is known:
 *   absent   it is certainly not there
 *   file     this mount has made it without waiting (cl_names_create); its attributes too, until something touches it
 *   unknown  anything else: a request that may put or remove it was sent, so the manager is asked, for ever
 * Forgetting is always right, because what goes to the manager goes in order: its answer is never older than what has
 * been told here. Everything is forgotten the moment another mount may exist (MSG_ALONE, a lost connection).
 *
 * A table per process, without I/O; all functions: any thread, never block for long.
 */
#ifndef CL_NAMES_H
#define CL_NAMES_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

#include "fp.pb-c.h"

enum cl_name_state { CL_NAME_UNKNOWN, CL_NAME_ABSENT, CL_NAME_FILE };

struct cl_name_new {
    uint64_t ino;
    uint32_t mode, uid, gid; /* umask applied; what the directory hands down is done here */
    int64_t now_ns;
};

/* What a request under way may change: from cl_names_sent to cl_names_answered. */
struct cl_names_mark {
    uint64_t dir[2];   /* 0: none */
    uint64_t stamp[2]; /* of a directory that nothing else was changing; 0: something was */
    bool all;
};

/* A directory was made, is empty, and nobody knows of it yet. */
void cl_names_made(const Fp__Attr *dir);
/* No directory is known: there is nothing to gain from asking here. */
bool cl_names_none(void);
bool cl_names_known(uint64_t dir);
/* CL_NAME_FILE: *a (initialised here) is what the manager would answer. A file whose attributes are not known is
 * CL_NAME_UNKNOWN. */
enum cl_name_state cl_names_find(uint64_t dir, const char *name, Fp__Attr *a);
/* Attributes of a file or of a directory, where they are known exactly. */
bool cl_names_attr(uint64_t ino, Fp__Attr *a);

/* May cl_names_create succeed? */
bool cl_names_can_create(uint64_t dir, const char *name);
/* The name is a new empty file from now on; *a as the manager will make it, all times *time_ns. False: not known to
 * be absent, or the directory's attributes are not known; then nothing has changed. */
bool cl_names_create(uint64_t dir, const char *name, const struct cl_name_new *n, Fp__Attr *a, int64_t *time_ns);
/* The name is absent from now on. False: it is not a file with this one name, as far as we know. */
bool cl_names_remove(uint64_t dir, const char *name, int64_t now_ns, uint64_t *ino, int64_t *time_ns);
/* After each of these two, once the request is on its way: what the manager is asked before that, it answers as if this
 * had not been. */
void cl_names_queued(uint64_t dir);

/* Before a request goes to the manager, whatever it is: what it may change is not known any more. *mark is for
 * cl_names_answered, which is called before anybody hears of the answer. */
void cl_names_sent(uint32_t type, const ProtobufCMessage *msg, struct cl_names_mark *mark);
/* certain: it has been executed or has failed, and is not still to be executed. after: attributes of the directory from
 * the answer, NULL: none; they are taken for exact if nothing else has changed it meanwhile. */
void cl_names_answered(const struct cl_names_mark *mark, bool certain, const Fp__Attr *after);

/* Attributes of a directory that the manager is asked for: stamp before asking (0: do not care), learn with the
 * answer. Without effect if something changed the directory meanwhile. */
uint64_t cl_names_stamp(uint64_t dir);
void cl_names_learn(uint64_t stamp, const Fp__Attr *a);

/*
 * The kernel may keep attributes of a directory for long, and an answer to it may overtake a change that was told before:
 * it has been made before the change, or wakes its program up later. So whoever tells the kernel to keep them asks first:
 * false: programs know of a later change already (ctime_ns: of the answer). And whoever has changed something early asks
 * whether there is anything to take back from the kernel, before the program goes on.
 */
bool cl_names_show(uint64_t dir, int64_t ctime_ns);
bool cl_names_hide(uint64_t dir);

void cl_names_forget(uint64_t dir);
void cl_names_clear(void);

#endif
