/* Does aux-app convert of any mount know of what was closed before we began to ask? One thread. */
#ifndef CTL_BACKLOG_H
#define CTL_BACKLOG_H

#include <stdbool.h>
#include <stddef.h>

#include "client/ctl/ctl.h"

struct ctl_backlog_mount;

struct ctl_backlog { /* zeroed before */
    struct ctl_backlog_mount *mount;
    size_t n;
};

/* *over: all mounts that are there have said, since the first call, that all is marked. 0, or negative: the manager can't be asked now, or -ENOMEM. */
int ctl_backlog_look(struct ctl_backlog *b, struct ctl_link *l, bool *over);
void ctl_backlog_free(struct ctl_backlog *b);

#endif
