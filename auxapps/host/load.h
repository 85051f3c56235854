/*
 * Plugins and declarations: loading a plugin, and checking what a user wrote about it. Part of the library auxhost, so that
 * fp-auxhost, fp-auxtest and `fp-job check` say the same about the same words. No sockets, no threads.
 */
#ifndef AUX_LOAD_H
#define AUX_LOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "fp/auxapp.h"

#define AUX_WHY_BYTES 768
#define AUX_PATH_BYTES 256
#define AUX_TEXT_RANGES 4

struct aux_plugin {
    void *dl;
    char path[AUX_PATH_BYTES];     /* absolute, symbolic links followed */
    bool from_dir;                 /* found by its name in the plugin directory */
    struct fp_aux_app app;         /* what the plugin exports, as far as it goes; 0 and NULL beyond */
    uint32_t noptions;
    uint32_t nranges;              /* where its code lies: tells whose a crash is */
    struct { uintptr_t from, to; } range[AUX_TEXT_RANGES];
};

/*
 * Load the plugin `word` names: a path if it has a slash, else DIR/word.so. On error `why` is a line for the user, without newline. -ENOENT, -ELIBBAD
 * (not a plugin, or its table is wrong), -ENOTSUP (another ABI), -ENAMETOOLONG, -ENOMEM. Runs the plugin's constructors.
 */
int aux_plugin_load(const char *word, const char *plugin_dir, struct aux_plugin **out, char why[AUX_WHY_BYTES]);
/* Unloads it: nothing of it may run any more. fp-auxhost never does. */
void aux_plugin_free(struct aux_plugin *p);
/* [a-z][a-z0-9_-]*, at most FP_AUX_NAME_MAX bytes. */
bool aux_name_ok(const char *name);

/* Is it a word of the host, which no plugin may have as an option (verify: but one that takes no chunks)? */
bool aux_word_is_own(const char *name);
/* The words of a declaration that are the host's own. */
struct aux_words {
    uint32_t cores_min, cores_max; /* cores=N or cores=A-B */
    bool required;
    uint32_t queue;                /* chunks that may wait for the stage */
    uint32_t deadline_ms, idle_ms;
    uint32_t ask_ms;               /* deadline of calls that an application waits for: `deadline`, if it is given */
    uint32_t failures_max, nodes;  /* fp-mount's: only checked here. nodes 0: all */
    bool verify;
};

/* Values of a plugin's own options. */
struct aux_options {
    const struct aux_plugin *plugin;
    uint32_t n;
    struct { _Atomic(char *) text; _Atomic int64_t number; } value[];
};

/* First word of a declaration: a name or a path. -EINVAL: there is none, or it is too long. */
int aux_declared_word(const char *declaration, char *word, uint32_t word_bytes);
/* Checks all of a declaration against the plugin. *out is owned by the caller. -EINVAL with `why`. */
int aux_options_parse(const struct aux_plugin *p, const char *declaration, struct aux_words *words, struct aux_options **out,
              char why[AUX_WHY_BYTES]);
void aux_options_free(struct aux_options *o);
bool aux_option_is(const struct aux_options *o, const char *name);
/* NULL: no such option, or it has no value. */
const char *aux_option_text(const struct aux_options *o, const char *name);
int64_t aux_option_number(const struct aux_options *o, const char *name);
/*
 * Give an option a new value. *old is its old one (or NULL), to be given back by aux_option_restore or freed. -EINVAL: no such option or value;
 * -EPERM: it can't be changed while running.
 */
int aux_option_set(struct aux_options *o, const char *name, const char *value, char **old, char why[AUX_WHY_BYTES]);
void aux_option_restore(struct aux_options *o, const char *name, char *old);
/* Change one of the host's words while running: cores, queue, deadline, idle, verify. -ENOENT: it is not one of the host's; -EPERM, -EINVAL. */
int aux_words_set(struct aux_words *w, const char *app, const char *name, const char *value, char why[AUX_WHY_BYTES]);

#endif
