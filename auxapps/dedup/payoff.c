/*
 * Whether de-duplication is worth its time (see payoff.h). Called by dedup for each chunk, under its lock.
 *
 * The share that pays is what the user says; the bytes it takes to decide are here: 64 MiB before turning off, so that a header of a file that differs
 * does not decide for its rest, and 16 MiB of samples before turning on, with twice the share, so that it does not go to and fro.
 */
#include "payoff.h"

#define OFF_AFTER_BYTES ((uint64_t)64 << 20)
#define ON_AFTER_BYTES ((uint64_t)16 << 20)
#define FORGET_BYTES ((uint64_t)256 << 20)

void payoff_init(struct payoff *p, double least)
{
	*p = (struct payoff){ .least = least, .on = true, .versions = PAYOFF_VERSIONS };
}

bool payoff_wants(struct payoff *p, uint64_t file_off, uint8_t generation)
{
	unsigned turn = generation % p->versions;

	if (p->on)
		return true;
	if (turn == 1 || turn == 2)
		return p->whole = true;
	if (p->whole && turn != 0) { /* 0: a file that is a version behind others */
		p->whole = false;
		if (p->versions < PAYOFF_VERSIONS_MAX)
			p->versions *= 2;
	}
	return file_off / PAYOFF_SAMPLE_STEP_BYTES % PAYOFF_SAMPLE == 0;
}

double payoff_share(const struct payoff *p)
{
	return p->compared_bytes ? (double)p->same_bytes / (double)p->compared_bytes : 0;
}

static enum payoff_change change(struct payoff *p, bool on)
{
	p->on = on;
	p->whole = false;
	p->versions = PAYOFF_VERSIONS;
	p->compared_bytes = p->same_bytes = 0;
	return on ? PAYOFF_TURNED_ON : PAYOFF_TURNED_OFF;
}

enum payoff_change payoff_note(struct payoff *p, uint64_t compared_bytes, uint64_t same_bytes)
{
	p->compared_bytes += compared_bytes;
	p->same_bytes += same_bytes;
	if (p->on && p->compared_bytes >= OFF_AFTER_BYTES && payoff_share(p) < p->least)
		return change(p, false);
	if (!p->on && p->compared_bytes >= ON_AFTER_BYTES && payoff_share(p) >= 2 * p->least)
		return change(p, true);
	if (p->compared_bytes > FORGET_BYTES) {
		p->compared_bytes /= 2;
		p->same_bytes /= 2;
	}
	return PAYOFF_AS_IT_WAS;
}
