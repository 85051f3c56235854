/*
 * Files that services have open, beside those of applications.
 */
#ifndef CL_AUX_SVC_FILE_H
#define CL_AUX_SVC_FILE_H

#include <stdint.h>

struct cl_aux;

int cl_aux_own_files_new(struct cl_aux *a);
/* Closes them. After the service threads. */
void cl_aux_own_files_drop(struct cl_aux *a);
void cl_aux_own_files_free(struct cl_aux *a);
/* Link thread, now and then: close what has not been used for a while, on a service thread. */
void cl_aux_own_files_tick(struct cl_aux *a, uint64_t now_ms);

#endif
