/*
 * Connections without a network, for harnesses of programs that talk by fp/rpc.h: what such a program calls of it is replaced by the
 * linker (--wrap, WIRE_WRAP of module.mk), and so are libuv's timers and the clock. The harness is the other end of every connection.
 *
 * As with the real ones no callback comes from inside of the function that got it: wire_turn brings what is due. That each request
 * is answered once, and each payload let go of once, is checked here.
 */
#ifndef TESTS_FUZZ_WIRE_H
#define TESTS_FUZZ_WIRE_H

#include <uv.h>

#include "fp/rpc.h"
#include "tests/fuzz/fuzz.h"

#define WIRE_CONNS_MAX 5
#define WIRE_CALLS_MAX 16

struct wire_conn;

/* An answer of the program; msg packed. May be NULL. */
extern void (*wire_on_reply)(struct wire_conn *c, const struct fp_rpc_reply *r);

/* Nothing is there. Before each input; everything of the one before must be closed. */
void wire_reset(void);
/* A stranger connects to where the program listens last. NULL: there are too many connections; all that is done with it then does nothing. */
struct wire_conn *wire_accept(void);
/* The connection that the program asked for last, not closed yet; NULL. */
struct wire_conn *wire_connecting(void);
/* It stands, or not. */
void wire_up(struct wire_conn *c);
bool wire_is_up(const struct wire_conn *c);
/* A request (or a one-way frame) of the peer. payload may be NULL. cut: the connection breaks within the payload. */
void wire_request(struct wire_conn *c, uint16_t type, bool oneway, const uint8_t *msg, size_t len, const uint8_t *payload, size_t payload_len, bool cut);
/* The id of the request that was sent last. */
uint64_t wire_last_id(const struct wire_conn *c);
/* The oldest question of the program: its type, 0: there is none. */
uint16_t wire_asked(const struct wire_conn *c);
void wire_answer(struct wire_conn *c, int status, const uint8_t *msg, size_t len);
/* The peer goes. */
void wire_close(struct wire_conn *c, int err);
/* What is due: closing, payloads that were sent. */
void wire_turn(void);
/* Requests that have no answer yet, of all connections that stand. */
unsigned wire_unanswered(void);
/* Connections that are not closed, or still referenced. */
unsigned wire_left(void);

/* The nth of the timers that run fires; false: there is none. */
bool wire_timer_fire(unsigned nth);
void wire_timer_fire_of(uv_timer_t *timer);
void wire_pass_ms(uint64_t ms);

#endif
