/*
 * Every type of message, and which harness sends it. A type that is not in this table makes make check-fuzz fail (fuzz_kinds_check).
 */
#ifndef TESTS_FUZZ_KINDS_H
#define TESTS_FUZZ_KINDS_H

#include "tests/fuzz/fuzz.h"

enum {
    TO_MANAGER = 1,    /* fuzz_manager */
    TO_BENEFACTOR = 2, /* fuzz_benefactor */
    TO_CLIENT = 4,     /* fuzz_client: what the manager says unasked */
    NOTICE = 8,        /* to the manager: one-way */
};

struct fuzz_kind {
    uint16_t type;
    unsigned to;
    const ProtobufCMessageDescriptor *msg, *reply; /* reply: NULL where none is looked at */
};

/* Those that go to this program, in the order of the table; kept. Returns how many there are. */
size_t fuzz_kinds_of(unsigned to, const struct fuzz_kind *const **out);
/* What fp-mount says to its host of aux-apps (fuzz_auxhost): the struct that the message begins with. */
struct fuzz_aux_kind {
    uint32_t type;
    size_t bytes;
};
extern const struct fuzz_aux_kind fuzz_aux_kinds[];
extern const size_t fuzz_aux_nkinds;
/* What it answers to this service; NULL: raw bytes. */
const ProtobufCMessageDescriptor *fuzz_aux_reply_of(uint32_t service);

/* What such a request is answered with. */
const ProtobufCMessageDescriptor *fuzz_reply_of(uint32_t type);
/* Ends the process if a type of fp.proto has no line in the table. */
void fuzz_kinds_check(void);

#endif
