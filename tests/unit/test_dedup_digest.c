/* Digests of pieces: whatever the way to them, they are those of OpenSSL, wherever pieces and parts of the chunk begin and end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <openssl/evp.h>

#include "auxapps/dedup/digest.h"
#include "auxapps/dedup/pieces.h"

#define PARTS 4u
#define PIECES_MAX 64u
#define DATA_BYTES (PARTS * 8192u)

static uint64_t seed = 20101113;

static uint32_t next(uint32_t below)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(seed >> 33) % below;
}

struct world {
    uint8_t data[DATA_BYTES], *part[PARTS];
    struct fp_aux_part parts[PARTS];
    struct fp_aux_chunk chunk;
    struct piece piece[PIECES_MAX];
    struct pieces pieces;
};

/* Parts of any length that do not lie one behind the other, as a plugin's own tests may make them; pieces of any length from one byte on. */
static void make(struct world *w)
{
    uint32_t off = 0, n = 0, max = 1 + next(next(3) == 0 ? 200 : 5000);

    memset(&w->chunk, 0, sizeof(w->chunk));
    memset(w->piece, 0xee, sizeof(w->piece));
    for (uint32_t i = 0; i < DATA_BYTES; i++)
        w->data[i] = (uint8_t)next(256);
    for (uint32_t i = 0; i < PARTS; i++) {
        uint32_t len = 1 + next(8192);

        w->part[i] = malloc(len); /* its own, so that a sanitizer sees what is read beyond */
        assert_non_null(w->part[i]);
        memcpy(w->part[i], w->data + off, len);
        w->parts[i] = (struct fp_aux_part){ .data = w->part[i], .len_bytes = len };
        off += len;
    }
    w->chunk = (struct fp_aux_chunk){ .size_bytes = sizeof(w->chunk), .len_bytes = off, .nparts = PARTS, .parts = w->parts };
    for (uint32_t at = 0; at < off; n++) {
        uint32_t len = n == PIECES_MAX - 1 ? off - at : 1 + next(max);

        len = len < off - at ? len : off - at;
        w->piece[n] = (struct piece){ .off = at, .len_bytes = len, .kind = next(4) == 0 ? PIECE_ZERO : PIECE_NEW, .digested = next(8) == 0 };
        memset(w->piece[n].digest, 0xee, DIGEST_MAX_BYTES);
        at += len;
    }
    w->pieces = (struct pieces){ .piece = w->piece, .n = n };
}

static void check(const struct world *w, const struct piece *before, const EVP_MD *md)
{
    for (uint32_t i = 0; i < w->pieces.n; i++) {
        const struct piece *x = &w->piece[i];
        uint8_t want[EVP_MAX_MD_SIZE] = { 0 };
        unsigned n;

        if (before[i].digested || x->kind != PIECE_NEW) { /* left alone */
            assert_memory_equal(x, &before[i], sizeof(*x));
            continue;
        }
        assert_int_equal(EVP_Digest(w->data + x->off, x->len_bytes, want, &n, md, NULL), 1);
        assert_true(x->digested);
        memset(want + n, 0, sizeof(want) - n);
        assert_memory_equal(x->digest, want, DIGEST_MAX_BYTES);
    }
}

/* What Linux says of this processor. */
static bool has_instructions(const char *name)
{
    char line[8192], *word, *rest;
    bool found = false;
    FILE *f = fopen("/proc/cpuinfo", "r");

    assert_non_null(f);
    while (!found && fgets(line, sizeof(line), f))
        for (word = strncmp(line, "flags", 5) == 0 ? strtok_r(line, " \t\n", &rest) : NULL; word && !found; word = strtok_r(NULL, " \t\n", &rest))
            found = strcmp(word, name) == 0;
    fclose(f);
    return found;
}

/* Is this way to be tried here? One that is not used although the processor can do it fails the test; one that it can't is told to be left out. */
static bool is_to_be_tried(struct digest *d, enum sha1_lanes how, const char *name)
{
    bool two = has_instructions("sha_ni") && has_instructions("sse4_1"), sixteen = has_instructions("avx512f") && has_instructions("avx512bw");
    bool can = (two || (how != LANES_2 && how != LANES_16)) && (sixteen || (how != LANES_16 && how != LANES_16_ALONE));

    assert_int_equal(digest_use_lanes(d, how), can);
    print_message("%s: %s\n", name, can ? "run" : "not run, this processor has no such instructions");
    return can;
}

static void digests_are_right(enum digest_kind kind, enum sha1_lanes how, const char *name, const EVP_MD *md)
{
    struct digest *d = digest_new(kind);
    struct world *w = calloc(1, sizeof(*w));
    struct piece before[PIECES_MAX];
    bool is_tried;

    assert_true(d && w);
    is_tried = is_to_be_tried(d, how, name);
    for (unsigned round = 0; is_tried && round < 500; round++) {
        make(w);
        memcpy(before, w->piece, sizeof(before));
        assert_int_equal(pieces_digest(&w->pieces, d, &w->chunk), 0);
        check(w, before, md);
        for (uint32_t i = 0; i < PARTS; i++)
            free(w->part[i]);
    }
    digest_free(d);
    free(w);
}

static void test_sha1_of_sixteen_at_once_is_that_of_openssl(void **state)
{
    (void)state;
    digests_are_right(DIGEST_SHA1, LANES_16, "sixteen, and two for the last ones", EVP_sha1());
}

static void test_sha1_of_sixteen_to_the_last_is_the_same(void **state)
{
    (void)state;
    digests_are_right(DIGEST_SHA1, LANES_16_ALONE, "sixteen to the last", EVP_sha1());
}

static void test_sha1_of_two_at_once_is_the_same(void **state)
{
    (void)state;
    digests_are_right(DIGEST_SHA1, LANES_2, "two", EVP_sha1());
}

static void test_sha1_of_one_at_a_time_is_the_same(void **state)
{
    (void)state;
    digests_are_right(DIGEST_SHA1, LANES_NONE, "one", EVP_sha1());
}

/* AVX-512 is used where there is no SHA-NI, too. */
static void test_the_best_way_is_used(void **state)
{
    struct digest *d = digest_new(DIGEST_SHA1);
    enum sha1_lanes best = digest_lanes(d);

    (void)state;
    for (enum sha1_lanes how = best; how < LANES_16; how++)
        assert_false(digest_use_lanes(d, how + 1));
    assert_true(digest_use_lanes(d, best));
    digest_free(d);
}

static void test_sha256_is_that_of_openssl(void **state)
{
    (void)state;
    digests_are_right(DIGEST_SHA256, LANES_NONE, "SHA-256", EVP_sha256());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha1_of_sixteen_at_once_is_that_of_openssl),
        cmocka_unit_test(test_sha1_of_sixteen_to_the_last_is_the_same),
        cmocka_unit_test(test_sha1_of_two_at_once_is_the_same),
        cmocka_unit_test(test_the_best_way_is_used),
        cmocka_unit_test(test_sha1_of_one_at_a_time_is_the_same),
        cmocka_unit_test(test_sha256_is_that_of_openssl),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
