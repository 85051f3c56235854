/*
 * Requests of the host under way, for the files that answer them: services.c, svc_file.c, earlier.c. Service threads.
 */
#ifndef CL_AUX_SERVICES_H
#define CL_AUX_SERVICES_H

#include "client/aux/internal.h"

struct aux_request {
    struct aux_task task;          /* first */
    struct aux_host *host;         /* referenced: who asks */
    uint32_t type, app;
    uint64_t id, file_serial;
    size_t len_bytes;
    uint8_t body[];
};

/* One answer; eof: the last. Blocks for a host that does not listen, but not for ever. */
void cl_aux_reply(struct aux_request *r, int status, const void *body, size_t len, bool eof);
/* The body as a message, without slot; NULL: it was none, and has been answered. */
void *cl_aux_request_unpack(struct aux_request *r, const ProtobufCMessageDescriptor *type);
/*
 * Answer with the notes of a packed NotesReply, in parts; what they name is held already. Returns how many, or negative errno: not answered.
 */
int cl_aux_reply_notes(struct aux_request *r, const uint8_t *packed, size_t len, bool eof);

void cl_aux_svc_earlier(struct cl_aux *a, struct aux_request *r);
void cl_aux_svc_read_chunk(struct cl_aux *a, struct aux_request *r);
void cl_aux_svc_file_read(struct cl_aux *a, struct aux_request *r);
void cl_aux_svc_file_write(struct cl_aux *a, struct aux_request *r);
void cl_aux_svc_file_find(struct cl_aux *a, struct aux_request *r);

#endif
