/*
 * The aux-app dedup against a model of a store: successive versions of a file go through it, are rebuilt from what it said, and
 * compared byte by byte; what is stored is counted.
 */
#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "auxapps/dedup/note.h"
#include "auxapps/dedup/payoff.h"
#include "auxapps/dedup/thin.h"
#include "fp/auxapp.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define WINDOW_BYTES (1u << 20)
#define WINDOWS_MAX 32u
#define CHUNKS_MAX 1024u

struct stored { uint8_t *data; uint32_t bytes; uint8_t *note; uint32_t note_bytes; unsigned version; uint64_t keys[1024]; uint32_t nkeys; };

/* The host and, as its first member, the handle that the plugin sees; the call is the same object. */
struct model {
	struct fp_aux_handle handle;
	struct stored chunk[CHUNKS_MAX];   /* number 1 .. */
	uint32_t nchunks;
	unsigned version;
	const char *options[16][2];
	uint8_t *rebuilt;                  /* window being told */
	uint32_t told;                     /* bytes told of it */
	const uint8_t *window;
	uint8_t *fresh;
	uint32_t fresh_bytes, runs;
	int last_kind;
	uint8_t note[FP_AUX_NOTE_MAX_BYTES];
	uint32_t note_bytes, nkeys;
	uint64_t keys[1024];
	uint64_t stored_bytes, note_total, compared;
	bool no_earlier;               /* each version is a file that has none */
	int64_t on, index_bytes, index_most, cut_short, given_up, anew;
	const uint8_t *used_percent;   /* of the first eight chunks; NULL, and of others: 100 */
	uint64_t free_bytes;           /* in the store */
	uint32_t synthetic;            /* pieces of 4 KiB that each version's earlier one had, with digests that nothing has */
};

static struct model m;
extern const struct fp_aux_app *fp_aux_app(uint32_t abi);

/* -------------------------------------------------------------- services */

static const char *option_text(struct fp_aux_host *h, const char *name)
{
	const struct fp_aux_option *o = fp_aux_app(FP_AUX_ABI)->options;

	(void)h;
	for (unsigned i = 0; i < 16 && m.options[i][0]; i++)
		if (strcmp(m.options[i][0], name) == 0)
			return m.options[i][1];
	while (strcmp(o->name, name) != 0)
		o++;
	return o->fallback;
}

static int64_t option_number(struct fp_aux_host *h, const char *name)
{
	const char *text = option_text(h, name);
	char *end;
	long n = strtol(text, &end, 10);

	return strcmp(end, "KiB") == 0 ? n << 10 : strcmp(end, "MiB") == 0 ? n << 20 : n;
}

static void count(struct fp_aux_host *h, const char *counter, int64_t add)
{
	(void)h;
	assert_string_not_equal(counter, "errors");
	if (strcmp(counter, "versions cut short") == 0)
		m.cut_short += add;
	if (strcmp(counter, "versions given up") == 0)
		m.given_up += add;
	if (strcmp(counter, "stored anew bytes") == 0)
		m.anew += add;
}

static void gauge(struct fp_aux_host *h, const char *counter, int64_t value)
{
	(void)h;
	if (strcmp(counter, "on") == 0)
		m.on = value;
	else
		assert_string_equal(counter, "index bytes");
	if (strcmp(counter, "on") != 0) {
		m.index_bytes = value;
		m.index_most = value > m.index_most ? value : m.index_most;
	}
}

static void begin_piece(uint32_t off, uint32_t len, int kind)
{
	assert_int_equal(off, m.told);
	assert_true(len > 0);
	m.runs += m.told == 0 || kind != m.last_kind;
	m.last_kind = kind;
	m.told += len;
}

static int piece_new(struct fp_aux_call *c, uint32_t off, uint32_t len)
{
	(void)c;
	begin_piece(off, len, 0);
	memcpy(m.rebuilt + off, m.window + off, len);
	memcpy(m.fresh + m.fresh_bytes, m.window + off, len);
	m.fresh_bytes += len;
	return 0;
}

static int piece_zero(struct fp_aux_call *c, uint32_t off, uint32_t len)
{
	(void)c;
	begin_piece(off, len, 1);
	memset(m.rebuilt + off, 0, len);
	return 0;
}

static int piece_same(struct fp_aux_call *c, uint32_t off, uint32_t len, uint32_t earlier)
{
	(void)c;
	begin_piece(off, len, 2);
	assert_true(earlier + len <= off);
	memcpy(m.rebuilt + off, m.rebuilt + earlier, len);
	return 0;
}

static int piece_stored(struct fp_aux_call *c, uint32_t off, uint32_t len, struct fp_aux_place p)
{
	(void)c;
	begin_piece(off, len, 3);
	assert_in_range(p.chunk, 1, m.nchunks);
	assert_true(p.off + len <= m.chunk[p.chunk - 1].bytes);
	memcpy(m.rebuilt + off, m.chunk[p.chunk - 1].data + p.off, len);
	return 0;
}

static int note(struct fp_aux_call *c, const void *data, uint32_t len, const uint64_t *keys, uint32_t nkeys)
{
	(void)c;
	assert_in_range(len, 1, FP_AUX_NOTE_MAX_BYTES);
	memcpy(m.note, data, len);
	memcpy(m.keys, keys, nkeys * sizeof(*keys));
	m.note_bytes = len;
	m.nkeys = nkeys;
	return 0;
}

static int tell(uint32_t i, int (*each)(void *, const struct fp_aux_noted *), void *arg)
{
	const struct stored *s = &m.chunk[i];
	struct fp_aux_noted n = { .size_bytes = sizeof(n), .chunk = i + 1, .data_bytes = s->bytes, .note_bytes = s->note_bytes, .note = s->note, .free_bytes = m.free_bytes };

	if (m.used_percent && i < 8)
		n.unused_bytes = s->bytes / 100 * (100 - m.used_percent[i]);
	return s->note_bytes ? each(arg, &n) : 0;
}

/* The notes of a large file, as if it had been written before: chunks of 256 pieces whose digests are numbers. */
static int tell_synthetic(uint64_t serial, int (*each)(void *, const struct fp_aux_noted *), void *arg)
{
	static uint8_t buf[FP_AUX_NOTE_MAX_BYTES];
	uint8_t digest[DIGEST_MAX_BYTES] = { 0 };
	struct note_writer w;
	uint64_t x = serial << 32;

	for (uint32_t n = 0; n < m.synthetic; n += 256) {
		struct fp_aux_noted noted = { .size_bytes = sizeof(noted), .chunk = 1000000 + n, .data_bytes = 256 * 4096, .note = buf };

		note_begin(&w, buf, sizeof(buf), DIGEST_SHA1, 0, 4096);
		for (uint32_t i = 0; i < 256; i++) {
			uint64_t spread = ++x * 0x9e3779b97f4a7c15u;

			memcpy(digest, &spread, sizeof(spread));
			assert_true(note_add(&w, 4096, digest));
		}
		noted.note_bytes = w.len_bytes;
		if (each(arg, &noted) != 0)
			break;
	}
	return 0;
}

static int earlier(struct fp_aux_host *h, uint64_t serial, const char *pattern, int (*each)(void *, const struct fp_aux_noted *), void *arg)
{
	(void)h;
	assert_int_equal(serial, m.version);
	assert_null(pattern);
	if (m.synthetic)
		return tell_synthetic(serial, each, arg);
	if (m.version == 1 || m.no_earlier)
		return -ENOENT;
	for (uint32_t i = 0; i < m.nchunks; i++)
		if (tell(i, each, arg) != 0)
			break;
	return 0;
}

static int find(struct fp_aux_host *h, const uint64_t *keys, uint32_t nkeys, int (*each)(void *, const struct fp_aux_noted *), void *arg)
{
	(void)h;
	for (uint32_t i = 0; i < m.nchunks; i++)
		for (uint32_t k = 0; k < m.chunk[i].nkeys; k++)
			for (uint32_t j = 0; j < nkeys; j++)
				if (keys[j] == m.chunk[i].keys[k]) {
					(void)tell(i, each, arg);
					k = m.chunk[i].nkeys;
					j = nkeys;
				}
	return 0;
}

static int read_chunk(struct fp_aux_host *h, struct fp_aux_place p, void *buf)
{
	(void)h;
	memcpy(buf, m.chunk[p.chunk - 1].data + p.off, p.len_bytes);
	m.compared += p.len_bytes;
	return 0;
}

static const struct fp_aux_services services = {
	.size_bytes = sizeof(services), .abi = FP_AUX_ABI, .option_text = option_text, .option_number = option_number, .count = count,
	.gauge = gauge, .piece_new = piece_new, .piece_zero = piece_zero, .piece_same = piece_same, .piece_stored = piece_stored,
	.note = note, .earlier = earlier, .find = find, .read_chunk = read_chunk,
};

/* -------------------------------------------------------------- versions */

static void *state_of;

static void start(const char *const options[][2])
{
	struct fp_aux_host *host = (struct fp_aux_host *)(void *)&m;

	memset(&m, 0, sizeof(m));
	m.handle.services = &services;
	for (unsigned i = 0; options && options[i][0]; i++)
		memcpy(m.options[i], options[i], sizeof(m.options[i]));
	m.rebuilt = malloc(WINDOW_BYTES);
	m.fresh = malloc(WINDOW_BYTES);
	assert_int_equal(fp_aux_app(FP_AUX_ABI)->start(host, &state_of), 0);
}

static void stop(void)
{
	fp_aux_app(FP_AUX_ABI)->stop(state_of);
	for (uint32_t i = 0; i < m.nchunks; i++) {
		free(m.chunk[i].data);
		free(m.chunk[i].note);
	}
	free(m.rebuilt);
	free(m.fresh);
}

static void keep(void)
{
	struct stored *s = &m.chunk[m.nchunks++];

	assert_true(m.nchunks <= CHUNKS_MAX);
	s->data = malloc(m.fresh_bytes);
	memcpy(s->data, m.fresh, m.fresh_bytes);
	s->bytes = m.fresh_bytes;
	s->note = malloc(m.note_bytes + 1);
	memcpy(s->note, m.note, m.note_bytes);
	s->note_bytes = m.note_bytes;
	memcpy(s->keys, m.keys, sizeof(m.keys));
	s->nkeys = m.nkeys;
	m.stored_bytes += m.fresh_bytes;
	m.note_total += m.note_bytes;
}

/* One window through the plugin, in parts of 64 KiB that are not neighbours. */
static void write_window(const uint8_t *data, uint32_t bytes, uint64_t off)
{
	struct fp_aux_part part[16];
	struct fp_aux_chunk k = { .size_bytes = sizeof(k), .len_bytes = bytes, .whole = true, .parts = part, .file_off = off, .ino = m.version, .file_serial = m.version };
	int verdict;

	for (uint32_t at = 0; at < bytes; at += 65536) {
		uint32_t n = bytes - at < 65536 ? bytes - at : 65536;
		uint8_t *copy = malloc(n);

		memcpy(copy, data + at, n);
		part[k.nparts++] = (struct fp_aux_part){ copy, n };
	}
	m.window = data;
	m.told = m.fresh_bytes = m.runs = m.note_bytes = m.nkeys = 0;
	verdict = fp_aux_app(FP_AUX_ABI)->chunk_out(state_of, (struct fp_aux_call *)(void *)&m, &k);
	if (verdict == FP_AUX_PASS) {
		assert_int_equal(m.told, 0);
		memcpy(m.fresh, data, m.fresh_bytes = bytes);
	} else {
		assert_int_equal(verdict, FP_AUX_PIECES);
		assert_int_equal(m.told, bytes);
		assert_memory_equal(m.rebuilt, data, bytes);
	}
	if (m.fresh_bytes)
		keep();
	for (uint32_t i = 0; i < k.nparts; i++)
		free((void *)(uintptr_t)part[i].data);
}

/* Bytes that the version added to the store. */
static uint64_t write_version(const uint8_t *data, uint32_t bytes)
{
	uint64_t before = m.stored_bytes;
	struct fp_aux_file sealed = { .size_bytes = sizeof(sealed) };

	sealed.file_serial = ++m.version;
	for (uint32_t at = 0; at < bytes; at += WINDOW_BYTES)
		write_window(data + at, bytes - at < WINDOW_BYTES ? bytes - at : WINDOW_BYTES, at);
	(void)fp_aux_app(FP_AUX_ABI)->file_sealed(state_of, NULL, &sealed);
	return m.stored_bytes - before;
}

static uint64_t seed = 7;

static void fill(uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		p[i] = (uint8_t)(seed >> 33);
	}
}

static uint8_t *image(uint32_t bytes)
{
	uint8_t *p = malloc(bytes);

	assert_non_null(p);
	fill(p, bytes);
	return p;
}

/* -------------------------------------------------------------- tests */

#define IMAGE_BYTES (8u << 20)

static void test_the_same_again_stores_nothing(void **state)
{
	static const char *const fixed[][2] = { { "chunking", "fixed" }, { "size", "4KiB" }, { NULL, NULL } };
	static const char *const sha256[][2] = { { "hash", "sha256" }, { NULL, NULL } };
	static const char *const xxh3[][2] = { { "hash", "xxh3" }, { NULL, NULL } };
	const char *const (*kinds[])[2] = { NULL, fixed, sha256, xxh3 };
	uint8_t *data = image(IMAGE_BYTES + 777);

	(void)state;
	for (unsigned i = 0; i < 4; i++) {
		start(kinds[i]);
		assert_int_equal(write_version(data, IMAGE_BYTES + 777), IMAGE_BYTES + 777);
		assert_int_equal(m.compared, 0);
		assert_true(write_version(data, IMAGE_BYTES + 777) <= 777); /* a tail of under 4 KiB is stored */
		assert_int_equal(m.compared > 0, i == 3); /* XXH3 proves nothing: compared byte by byte */
		stop();
	}
	free(data);
}

static void test_a_changed_page_costs_little(void **state)
{
	static const char *const fixed[][2] = { { "chunking", "fixed" }, { "size", "4KiB" }, { NULL, NULL } };
	uint8_t *data = image(IMAGE_BYTES);

	(void)state;
	for (int f = 0; f < 2; f++) {
		uint64_t again;

		start(f ? fixed : NULL);
		write_version(data, IMAGE_BYTES);
		fill(data + 3 * WINDOW_BYTES + 8192, 4096);
		again = write_version(data, IMAGE_BYTES);
		assert_in_range(again, 4096, f ? 4096 : 3 * 131072);
		stop();
	}
	free(data);
}

static void test_moved_pages_are_found_by_content_only(void **state)
{
	static const char *const fixed[][2] = { { "chunking", "fixed" }, { "size", "64KiB" }, { NULL, NULL } };
	uint8_t *data = image(2 * IMAGE_BYTES), *moved = malloc(2 * IMAGE_BYTES);
	const uint32_t shift = 3 * 4096;
	uint64_t cdc, same_places;

	(void)state;
	memcpy(moved, data + IMAGE_BYTES, shift);
	memcpy(moved + shift, data, 2 * IMAGE_BYTES - shift);
	start(NULL);
	write_version(data, 2 * IMAGE_BYTES);
	cdc = write_version(moved, 2 * IMAGE_BYTES);
	stop();
	start(fixed);
	write_version(data, 2 * IMAGE_BYTES);
	same_places = write_version(moved, 2 * IMAGE_BYTES);
	stop();
	assert_true(cdc < 2 * IMAGE_BYTES / 8);
	assert_true(same_places > 2 * IMAGE_BYTES / 10 * 9);
	free(data);
	free(moved);
}

static void test_zeros_cost_nothing(void **state)
{
	uint8_t *data = calloc(1, IMAGE_BYTES);

	(void)state;
	start(NULL);
	assert_int_equal(write_version(data, IMAGE_BYTES), 0);
	fill(data + 5 * 4096, 4096);
	assert_int_equal(write_version(data, IMAGE_BYTES), 4096);
	stop();
	free(data);
}

static void test_scope_store_finds_other_files_by_few_keys(void **state)
{
	static const char *const store[][2] = { { "scope", "store" }, { "size", "8KiB" }, { NULL, NULL } };
	uint8_t *data = image(IMAGE_BYTES);

	(void)state;
	start(NULL);
	m.no_earlier = true;
	write_version(data, IMAGE_BYTES);
	assert_int_equal(write_version(data, IMAGE_BYTES), IMAGE_BYTES); /* scope=file */
	stop();
	start(store);
	m.no_earlier = true;
	write_version(data, IMAGE_BYTES);
	for (uint32_t i = 0; i < m.nchunks; i++)
		assert_in_range(m.chunk[i].nkeys, 1, 32);
	assert_int_equal(write_version(data, IMAGE_BYTES), 0);
	stop();
	free(data);
}

static void test_random_edits_are_rebuilt_exactly(void **state)
{
	static const char *const small[][2] = { { "size", "4KiB" }, { "scope", "store" }, { NULL, NULL } };
	static const char *const fixed[][2] = { { "chunking", "fixed" }, { "size", "8KiB" }, { "hash", "xxh3" }, { NULL, NULL } };
	uint8_t *data = image(IMAGE_BYTES);

	(void)state;
	for (int f = 0; f < 2; f++) {
		start(f ? fixed : small);
		for (unsigned v = 0; v < 20; v++) { /* write_window compares what is rebuilt */
			for (unsigned e = 0; e < 30; e++) {
				uint8_t r[12];
				uint32_t at, len, from;

				fill(r, sizeof(r));
				memcpy(&at, r, 4);
				memcpy(&len, r + 4, 4);
				memcpy(&from, r + 8, 4);
				at %= IMAGE_BYTES - 300000;
				from %= IMAGE_BYTES - 300000;
				len = 1 + len % (e % 3 ? 5000 : 300000);
				if (e % 3 == 0)
					memmove(data + at, data + from, len);
				else if (e % 3 == 1)
					fill(data + at, len);
				else
					memset(data + at, 0, len);
			}
			write_version(data, IMAGE_BYTES - v * 1000);
		}
		if (m.stored_bytes >= 20ull * IMAGE_BYTES / 2)
			fail_msg("%llu bytes stored", (unsigned long long)m.stored_bytes);
		assert_true(m.note_total < m.stored_bytes / 100);
		stop();
	}
	free(data);
}

/* What the same data costs once more, and whether it is found the third time, in new chunks beside the old ones. */
static uint64_t again_with(const char *thin, const char *scope, uint64_t free_bytes)
{
	static const uint8_t used[8] = { 100, 60, 51, 49, 30, 10, 80, 100 };
	const char *const options[][2] = { { "thin", thin }, { "scope", scope }, { NULL, NULL } };
	uint8_t *data = image(IMAGE_BYTES);
	uint64_t again;

	start(options);
	write_version(data, IMAGE_BYTES);
	m.used_percent = used;
	m.free_bytes = free_bytes;
	m.no_earlier = strcmp(scope, "store") == 0;
	again = write_version(data, IMAGE_BYTES);
	if (!m.no_earlier)
		assert_int_equal(m.anew, again);
	assert_int_equal(write_version(data, IMAGE_BYTES), 0);
	stop();
	free(data);
	return again;
}

static void test_what_thin_chunks_have_is_stored_anew(void **state)
{
	const uint64_t plenty = (uint64_t)1 << 40;

	(void)state;
	assert_int_equal(again_with("50%", "file", plenty), 3 * WINDOW_BYTES); /* 49, 30 and 10 % */
	assert_int_equal(again_with("25%", "file", plenty), WINDOW_BYTES);
	assert_int_equal(again_with("100%", "file", plenty), 6 * WINDOW_BYTES);
	assert_int_equal(again_with("0%", "file", plenty), 0);
	assert_int_equal(again_with("50%", "store", plenty), 3 * WINDOW_BYTES);
}

/* 4.8 of the 8 MiB are in use. */
static void test_when_space_is_short_more_is_stored_anew_but_no_more_than_a_third_of_it(void **state)
{
	(void)state;
	assert_int_equal(again_with("50%", "file", 9 * WINDOW_BYTES / 2), 4 * WINDOW_BYTES); /* 10, 30, 49 and 51 %: 1.4 MiB; not 60 % */
	assert_int_equal(again_with("50%", "file", 5 * WINDOW_BYTES / 4), 2 * WINDOW_BYTES); /* 10 and 30 %: 0.4 MiB */
	assert_int_equal(again_with("50%", "file", WINDOW_BYTES / 4), 0);
	assert_int_equal(again_with("50%", "file", 0), 0);
}

/* As one at the seam of two answers of the manager is. 2, 2, 1: without 2 counting once, there is no room for 1. */
static void test_a_chunk_that_is_told_twice_counts_once(void **state)
{
	struct thin t;

	(void)state;
	thin_init(&t, 0.5);
	thin_tell(&t, 2, 100, 70, 210);
	thin_tell(&t, 2, 100, 70, 210);
	thin_tell(&t, 1, 100, 60, 210);
	thin_decide(&t);
	assert_true(thin_is(&t, 1) && thin_is(&t, 2));
	assert_int_equal(t.used_bytes, 70);
	thin_clear(&t);
}

static void test_pieces_stay_within_the_limit(void **state)
{
	static const char *const fixed[][2] = { { "chunking", "fixed" }, { "size", "4KiB" }, { NULL, NULL } };
	uint8_t *data = image(WINDOW_BYTES);

	(void)state;
	start(fixed);
	write_version(data, WINDOW_BYTES);
	for (uint32_t at = 0; at < WINDOW_BYTES / 2; at += 8192)
		fill(data + at, 4096); /* every second page of the first half changes: 128 runs and a long one */
	assert_int_equal(write_version(data, WINDOW_BYTES), WINDOW_BYTES / 2 - 4096); /* the last page before the half belongs to the long run */
	assert_in_range(m.runs, 2, FP_AUX_PIECES_MAX(WINDOW_BYTES));
	stop();
	free(data);
}

static void test_it_turns_itself_off_and_on_again(void **state)
{
	uint8_t *data = image(IMAGE_BYTES);
	unsigned v = 0;

	(void)state;
	start(NULL);
	for (; v < 12 && m.on; v++) {
		fill(data, IMAGE_BYTES);
		write_version(data, IMAGE_BYTES);
	}
	assert_int_equal(m.on, 0);
	for (v = 0; v < 40 && !m.on; v++)
		write_version(data, IMAGE_BYTES);
	assert_int_equal(m.on, 1);
	stop();
	free(data);
}

#define MOVED_BYTES (WINDOW_BYTES + 17 * 4096u)

/* Of data that moves by whole pages, samples at fixed places show nothing: versions that are looked at whole do. */
static void test_it_turns_itself_on_again_for_what_moves(void **state)
{
	uint8_t *data = image(IMAGE_BYTES + 40 * MOVED_BYTES);
	unsigned v = 0;

	(void)state;
	start(NULL);
	for (; v < 12 && m.on; v++) {
		fill(data, IMAGE_BYTES);
		write_version(data, IMAGE_BYTES);
	}
	assert_int_equal(m.on, 0);
	fill(data, IMAGE_BYTES); /* the model tells of all that was ever stored */
	for (v = 0; v < 40 && !m.on; v++)
		write_version(data + (v + 1) * MOVED_BYTES, IMAGE_BYTES);
	assert_int_equal(m.on, 1);
	stop();
	free(data);
}

/* One window of each version after the other, when it is off: those looked at of a version. */
static unsigned looked_at(struct payoff *p, unsigned version, unsigned windows)
{
	unsigned n = 0;

	for (unsigned w = 0; w < windows; w++)
		n += payoff_wants(p, (uint64_t)w * PAYOFF_SAMPLE_STEP_BYTES, (uint8_t)version);
	return n;
}

static void test_off_it_looks_ever_more_rarely_and_at_pairs(void **state)
{
	unsigned pairs = 0, windows = 0;
	struct payoff p;

	(void)state;
	payoff_init(&p, 0.02);
	assert_int_equal(payoff_note(&p, 64 << 20, 0), PAYOFF_TURNED_OFF);
	for (unsigned v = 0; v < 256; v++) {
		unsigned n = looked_at(&p, v, 32);

		windows += n;
		if (n < 32)
			continue;
		assert_int_not_equal(v, 0); /* a file without an earlier version: nothing could be found */
		assert_int_equal(looked_at(&p, ++v, 32), 32); /* two that follow each other: else nothing is found of what moves */
		windows += 32;
		pairs++;
	}
	assert_in_range(pairs, 4, 6);
	assert_true(windows < 256 * 32 / 9);
	assert_int_equal(payoff_note(&p, 16 << 20, 16 << 20), PAYOFF_TURNED_ON);
	assert_int_equal(looked_at(&p, 5, 32), 32);
	assert_int_equal(payoff_note(&p, 1 << 30, 0), PAYOFF_TURNED_OFF);
	assert_int_equal(looked_at(&p, 17, 32), 32); /* often again */
}

static size_t resident_bytes(void)
{
	unsigned long all, resident = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	assert_non_null(f);
	assert_int_equal(fscanf(f, "%lu %lu", &all, &resident), 2);
	fclose(f);
	return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* As 64 ranks that rewrite 1 GiB each at 4 KiB: 46 bytes for each of 16 million pieces would be 770 MB. */
static void test_memory_bounds_all_files_together(void **state)
{
	static const char *const small[][2] = { { "memory", "16MiB" }, { "pays", "0%" }, { NULL, NULL } };
	size_t before, most = 0;
	uint8_t *data = image(WINDOW_BYTES);

	(void)state;
	start(small);
	write_version(data, WINDOW_BYTES);
	before = resident_bytes();
	m.synthetic = 262144;
	for (unsigned rank = 0; rank < 64; rank++) { /* opened, and written to by and by: all in use at once */
		m.version = 100 + rank;
		write_window(data, WINDOW_BYTES, 0);
		most = resident_bytes() > most ? resident_bytes() : most;
		data[rank * 4096]++;
	}
	assert_true(m.cut_short > 0);
	assert_in_range(m.index_most, 12 << 20, 16 << 20); /* it is made use of */
	if (!SANITIZED)
		assert_in_range(most - before, 12 << 20, (16 << 20) + 64 * (WINDOW_BYTES + 65536) + (4 << 20)); /* the model stores what is written */
	for (unsigned rank = 0; rank < 64; rank++) {
		struct fp_aux_file sealed = { .size_bytes = sizeof(sealed), .file_serial = 100 + rank };

		(void)fp_aux_app(FP_AUX_ABI)->file_sealed(state_of, NULL, &sealed);
	}
	assert_int_equal(m.index_bytes, 0);
	m.synthetic = 0; /* and what fits is found again */
	m.version = 200;
	write_version(data, WINDOW_BYTES);
	assert_int_equal(write_version(data, WINDOW_BYTES), 0);
	stop();
	free(data);
}

/* Those in which nothing was found for 16 MiB make room for one in which something is. */
static void test_useless_versions_make_room(void **state)
{
	static const char *const small[][2] = { { "memory", "2MiB" }, { "pays", "0%" }, { "size", "4KiB" }, { NULL, NULL } };
	uint8_t *data = image(WINDOW_BYTES), *other = image(WINDOW_BYTES);

	(void)state;
	start(small);
	write_version(data, WINDOW_BYTES);
	m.synthetic = 262144;
	m.version = 99;
	for (unsigned i = 0; i < 17; i++) {
		fill(other, WINDOW_BYTES);
		write_window(other, WINDOW_BYTES, i * (uint64_t)WINDOW_BYTES);
	}
	assert_int_equal(m.cut_short, 1);
	assert_int_equal(m.given_up, 0);
	m.synthetic = 0;
	assert_int_equal(write_version(data, WINDOW_BYTES), 0);
	assert_int_equal(m.given_up, 1);
	stop();
	free(data);
	free(other);
}

static void test_a_bad_option_is_refused(void **state)
{
	static const char *const bad[][2] = { { "size", "2KiB" }, { "size", "2MiB" }, { "size", "5000" }, { "pays", "2" }, { "pays", "200%" },
					     { "pays", "nan%" }, { "thin", "50" }, { "thin", "-1%" } };

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		void *s;

		memset(&m, 0, sizeof(m));
		m.handle.services = &services;
		memcpy(m.options[0], bad[i], sizeof(bad[i]));
		assert_int_equal(fp_aux_app(FP_AUX_ABI)->start((struct fp_aux_host *)(void *)&m, &s), -EINVAL);
	}
	assert_null(fp_aux_app(FP_AUX_ABI + 1));
}

static void test_damaged_notes_end_early(void **state)
{
	uint8_t buf[200], digest[DIGEST_MAX_BYTES] = { 9 };
	struct note_writer w;
	uint64_t pieces = 0;

	(void)state;
	note_begin(&w, buf, sizeof(buf), DIGEST_SHA1, 3, 0);
	while (note_add(&w, 5000, digest))
		pieces++;
	assert_int_equal(pieces, (200 - NOTE_HEADER_BYTES) / 23);
	for (unsigned i = 0; i < 20000; i++) {
		struct note_reader r;
		uint8_t bad[200], change[8];
		uint32_t off, len, end = 0;
		const uint8_t *d;

		memcpy(bad, buf, sizeof(bad));
		fill(change, sizeof(change));
		bad[change[0] % w.len_bytes] = change[1];
		bad[change[2] % w.len_bytes] = change[3];
		if (!note_open(&r, bad, change[4] % (w.len_bytes + 1), 20000))
			continue;
		while (note_next(&r, &off, &len, &d)) {
			assert_int_equal(off, end);
			assert_true(len > 0 && off + len <= 20000);
			assert_true(d >= bad && d + 16 <= bad + sizeof(bad));
			end = off + len;
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_same_again_stores_nothing),
		cmocka_unit_test(test_a_changed_page_costs_little),
		cmocka_unit_test(test_moved_pages_are_found_by_content_only),
		cmocka_unit_test(test_zeros_cost_nothing),
		cmocka_unit_test(test_scope_store_finds_other_files_by_few_keys),
		cmocka_unit_test(test_random_edits_are_rebuilt_exactly),
		cmocka_unit_test(test_what_thin_chunks_have_is_stored_anew),
		cmocka_unit_test(test_a_chunk_that_is_told_twice_counts_once),
		cmocka_unit_test(test_when_space_is_short_more_is_stored_anew_but_no_more_than_a_third_of_it),
		cmocka_unit_test(test_pieces_stay_within_the_limit),
		cmocka_unit_test(test_it_turns_itself_off_and_on_again),
		cmocka_unit_test(test_it_turns_itself_on_again_for_what_moves),
		cmocka_unit_test(test_off_it_looks_ever_more_rarely_and_at_pairs),
		cmocka_unit_test(test_memory_bounds_all_files_together),
		cmocka_unit_test(test_useless_versions_make_room),
		cmocka_unit_test(test_a_bad_option_is_refused),
		cmocka_unit_test(test_damaged_notes_end_early),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
