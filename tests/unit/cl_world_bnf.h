/* What the links (cl_world_link.c) ask of the model of a benefactor (cl_world_bnf.c). Any thread. */
#ifndef TESTS_CL_WORLD_BNF_H
#define TESTS_CL_WORLD_BNF_H

#include "tests/unit/cl_world.h"

unsigned world_bnf_list(struct world_bnf **out);
void world_bnf_link_gone(struct world_bnf *b, uint64_t link);
int world_bnf_lease(struct world_bnf *b, uint64_t link, bool local, const Fp__Lease *r, struct world_lease *out);
int world_bnf_lease_return(struct world_bnf *b, uint64_t link, const Fp__LeaseReturn *r);
int world_bnf_stored(struct world_bnf *b, uint64_t link, const Fp__Stored *s);
int world_bnf_write(struct world_bnf *b, uint64_t link, const Fp__ChunkWrite *w, const uint8_t *data, size_t len);
int world_bnf_sync(struct world_bnf *b, const Fp__BnfSync *q);
int world_bnf_read(struct world_bnf *b, const Fp__ChunkRead *q, uint8_t *rx, size_t cap, size_t *rx_len, ProtobufCMessage **reply);
int world_bnf_locate(struct world_bnf *b, uint64_t chunk, Fp__Record *out, uint64_t *salt, int *fd);
/* Descriptor of a segment, the caller's to close. */
int world_bnf_seg(struct world_bnf *b, uint32_t seg, uint64_t *id, uint64_t *salt);

#endif
