/* Pauses of a coordinator that looks at many files, so that the mount can be unmounted meanwhile. One thread. */
#ifndef CW_BREATH_H
#define CW_BREATH_H

#include <stdbool.h>
#include <stdint.h>

#define CW_BUSY_MS   3u     /* so long it asks the mount one thing after the other */
#define CW_PAUSE_MS  27u    /* then nothing */
#define CW_PAUSES_MS 8000u  /* in one turn of its loop: what has become complete meanwhile waits for it */

struct cw_breath {
    uint64_t since_ms;          /* it has asked without a pause */
    uint64_t paused_ms, end_ms; /* all pauses together; so many that there are no more in this turn */
    bool hurry;                 /* no pauses: something waits for it, or keeps the mount busy anyway */
};

/* Before each call on the mount: the pause, if it is time for one. It ends, and there is none any more, when there is something to hear on standard input. NULL: never. */
void cw_breath_take(struct cw_breath *b);
/* There was one just now; and whether there are to be others. */
void cw_breath_begin(struct cw_breath *b, bool hurry);
/* A clock that stands still in pauses: what calls have taken. */
uint64_t cw_breath_ms(const struct cw_breath *b);

#endif
