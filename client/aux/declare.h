/*
 * Declarations of aux-apps: `--auxapp "dedup hash=sha1 cores=1-2 required queue=8"`. The first word names the plugin or is the path of its file; some
 * words are the host's own and are understood here, all others are options of the aux-app, which only the host can check.
 * Pure.
 */
#ifndef CL_AUX_DECLARE_H
#define CL_AUX_DECLARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "fp/auxwire.h"
#include "fp/opt.h"

#define CL_AUX_FAILURES        3u    /* within CL_AUX_FAILURES_MS: option `failures` */
#define CL_AUX_FAILURES_MS     60000u
#define CL_AUX_DEADLINE_MS     10000u /* chunks: option `deadline` */
#define CL_AUX_IO_DEADLINE_MS  FP_AUX_WAIT_MS /* calls that an application waits for, unless `deadline` is given */

struct cl_aux_decl {
    char text[1024];               /* as declared */
    char name[256];                /* as in the first word: a name, or a path with a slash; what people call it until the plugin says its name */
    uint32_t cores_min, cores_max; /* 0: not given */
    uint32_t queue;                /* 0: not given */
    uint32_t failures;
    uint32_t nodes;                /* 0: on all */
    uint64_t deadline_ms;          /* 0: not given */
    uint64_t idle_ms;              /* 0: not given */
    bool required;
    bool verify_given, verify;
};

/* NULL, or why not (static text, of one thread). */
const char *cl_aux_decl_parse(const char *text, struct cl_aux_decl *out);
/* The value of `deadline=`: false: it is none, and *out_ms is as it was. */
bool cl_aux_decl_deadline(const char *value, uint64_t *out_ms);
/* Does it declare this aux-app: by its name, or by the path of NAME.so? */
bool cl_aux_decl_is(const char *text, const char *name);
/* struct fp_opt.check: the same for one declaration. */
const char *cl_aux_decl_check(const char *text);
/* All of them, in order: names differ. Returns how many, or -EINVAL and why. */
int cl_aux_decl_all(const struct fp_strlist *texts, struct cl_aux_decl *out, const char **why);

#endif
