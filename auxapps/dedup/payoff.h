/*
 * Is looking for duplicates worth it? Decides from what was found; pure, no clock, no lock.
 *
 * On: every window is digested. Off, after too few duplicates: one window in PAYOFF_SAMPLE and, since windows at fixed places show nothing of data
 * that moves, two successive versions of a file whole: in PAYOFF_VERSIONS, then, as long as they show nothing, in twice and four times as many. Not its
 * first version: most files have no second one. What these find turns it on again.
 */
#ifndef DEDUP_PAYOFF_H
#define DEDUP_PAYOFF_H

#include <stdbool.h>
#include <stdint.h>

#define PAYOFF_SAMPLE 16u
#define PAYOFF_SAMPLE_STEP_BYTES (1u << 20) /* places are counted in these */
#define PAYOFF_VERSIONS 16u
#define PAYOFF_VERSIONS_MAX 64u

struct payoff {
	double least;                  /* share of duplicates that pays; 0: always on */
	bool on;
	uint64_t compared_bytes, same_bytes; /* since the last change; the past counts less and less */
	unsigned versions;             /* off: of so many, two are looked at whole */
	bool whole;                    /* it is their turn */
};

enum payoff_change { PAYOFF_AS_IT_WAS, PAYOFF_TURNED_OFF, PAYOFF_TURNED_ON };

void payoff_init(struct payoff *p, double least);
/* Must the window at file_off of a version of this number (modulo 256) be looked at? */
bool payoff_wants(struct payoff *p, uint64_t file_off, uint8_t generation);
/* Of so many bytes that could have had a duplicate, so many had. */
enum payoff_change payoff_note(struct payoff *p, uint64_t compared_bytes, uint64_t same_bytes);
double payoff_share(const struct payoff *p);

#endif
