/*
 * See steps.h. Called by earlier.c on service threads.
 *
 * The newest file alone, as a first version had it, is the wrong one as soon as ranks write files of their own: it is the file that another rank has
 * just closed. A pattern language for users to say which number is the step would be one thing more to get wrong.
 */
#include "client/aux/steps.h"

#include <ctype.h>
#include <string.h>

/* Endings that a file has while it is written. */
static size_t without_ending(const char *name)
{
	static const char *const endings[] = { ".tmp", ".part", ".partial", ".new", "~", NULL };
	size_t len = strlen(name);

	for (const char *const *e = endings; *e; e++) {
		size_t n = strlen(*e);

		if (len > n && memcmp(name + len - n, *e, n) == 0)
			return len - n;
	}
	return len;
}

static size_t digits(const char *s, size_t len)
{
	size_t n = 0;

	while (n < len && isdigit((unsigned char)s[n]))
		n++;
	return n;
}

/* As numbers, of any length. */
static int compare(const char *x, size_t xlen, const char *y, size_t ylen)
{
	while (xlen > 0 && *x == '0')
		x++, xlen--;
	while (ylen > 0 && *y == '0')
		y++, ylen--;
	if (xlen != ylen)
		return xlen < ylen ? -1 : 1;
	return memcmp(x, y, xlen);
}

int cl_aux_steps_differ(const char *x, const char *y, uint32_t *group, bool *less)
{
	size_t xlen = without_ending(x), ylen = without_ending(y);
	uint32_t numbers = 0;
	int count = 0;

	while (xlen > 0 && ylen > 0) {
		size_t n = digits(x, xlen), k = digits(y, ylen);
		int order;

		if (n > 0 && k > 0 && numbers < AUX_NUMBERS_MAX) {
			order = compare(y, k, x, n);
			if (order != 0) {
				count++;
				*group = numbers;
				*less = order < 0;
			}
			numbers++;
		} else if (*x == *y) {
			n = k = 1;
		} else {
			return -1;
		}
		x += n, xlen -= n;
		y += k, ylen -= k;
	}
	return xlen == 0 && ylen == 0 ? count : -1;
}

static void take(struct aux_step *at, uint32_t group, const char *name, uint64_t ino, int64_t mtime_ns)
{
	at->group = group;
	at->ino = ino;
	at->mtime_ns = mtime_ns;
	strcpy(at->name, name);
}

/* Its only number that differs is smaller than ours: keep the greatest of these. */
static void add_near(struct aux_steps *s, uint32_t group, const char *name, uint64_t ino, int64_t mtime_ns)
{
	uint32_t i, which;
	bool less = false;

	for (i = 0; i < s->nnear && s->near[i].group != group; i++)
		;
	if (i == s->nnear) {
		if (i == AUX_NUMBERS_MAX)
			return;
		s->nnear++;
	} else if (cl_aux_steps_differ(name, s->near[i].name, &which, &less) != 1 || !less) {
		return; /* the one we have is nearer */
	}
	take(&s->near[i], group, name, ino, mtime_ns);
}

void cl_aux_steps_add(struct aux_steps *s, const char *own, const char *name, uint64_t ino, int64_t mtime_ns, bool any)
{
	uint32_t group = 0;
	bool less = false;
	int differ = cl_aux_steps_differ(own, name, &group, &less);

	if (strlen(name) >= sizeof(s->newest.name) || (differ < 0 && !any))
		return;
	if (differ == 1 && less)
		add_near(s, group, name, ino, mtime_ns);
	if (s->newest.ino == 0 || mtime_ns > s->newest.mtime_ns)
		take(&s->newest, 0, name, ino, mtime_ns);
}

static const struct aux_step *oldest_not_in(const struct aux_steps *s, const uint64_t *ino, uint32_t n)
{
	const struct aux_step *best = NULL;

	for (uint32_t i = 0; i < s->nnear; i++) {
		bool there = false;

		for (uint32_t k = 0; k < n; k++)
			there |= ino[k] == s->near[i].ino;
		if (!there && (!best || s->near[i].mtime_ns < best->mtime_ns))
			best = &s->near[i];
	}
	return best;
}

uint32_t cl_aux_steps_order(const struct aux_steps *s, uint64_t *ino)
{
	const struct aux_step *p;
	uint32_t n = 0;

	while (n < AUX_STEPS_MAX - 1 && (p = oldest_not_in(s, ino, n)))
		ino[n++] = p->ino;
	for (uint32_t i = 0; i < n; i++)
		if (ino[i] == s->newest.ino)
			return n;
	if (s->newest.ino)
		ino[n++] = s->newest.ino;
	return n;
}

const struct aux_step *cl_aux_steps_before(const struct aux_steps *s)
{
	return oldest_not_in(s, NULL, 0);
}
