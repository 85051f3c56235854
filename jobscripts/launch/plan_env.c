/*
 * A plan in the environment, for launchers that bring no standard input to all they start (see plan.h). Called by who launches, and by agents.
 *
 * mpirun --stdin all was tried with Open MPI 4.1: not every process gets all of it, and some never see its end. A process's environment can be read by its
 * user alone, unlike its arguments; ours is wiped as soon as it was read, so programs that an agent starts do not have it. In pieces, since Linux takes
 * no string of more than 128 KiB, and as base64, since a launcher may take some signs for separators.
 */
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jobscripts/launch/plan.h"

#define PIECE_BYTES 73728u /* of the plan: 96 KiB as base64; divisible by 3 */

void job_plan_variable(unsigned i, char name[32])
{
    snprintf(name, 32, "FP_JOB_PLAN_%u", i);
}

int job_plan_to_environment(const char *text)
{
    size_t left = strlen(text);
    char name[32], *piece;
    unsigned i = 0;
    int rc = 0;

    if (left > (size_t)JOB_PLAN_PIECES * PIECE_BYTES)
        return -E2BIG;
    piece = malloc(PIECE_BYTES / 3 * 4 + 1);
    for (; piece && rc == 0 && left; i++) {
        size_t n = left < PIECE_BYTES ? left : PIECE_BYTES;

        (void)EVP_EncodeBlock((unsigned char *)piece, (const unsigned char *)text, (int)n);
        job_plan_variable(i, name);
        rc = setenv(name, piece, 1) < 0 ? -errno : 0;
        text += n;
        left -= n;
    }
    if (piece)
        explicit_bzero(piece, PIECE_BYTES / 3 * 4 + 1);
    else
        rc = -ENOMEM;
    free(piece);
    return rc;
}

/* Decoded behind what is in out, which has room. False: it is no base64. */
static bool append(char *out, size_t *n, const char *piece)
{
    size_t len = strlen(piece), pad = len > 1 ? (size_t)((piece[len - 1] == '=') + (piece[len - 2] == '=')) : 0;
    int got = len && len % 4 == 0 ? EVP_DecodeBlock((unsigned char *)out + *n, (const unsigned char *)piece, (int)len) : -1;

    if (got < 0 || (size_t)got < pad)
        return false;
    *n += (size_t)got - pad;
    return true;
}

char *job_plan_from_environment(void)
{
    char *text, name[32], *piece;
    size_t n = 0, room = 4;
    bool good;

    for (unsigned i = 0; i < JOB_PLAN_PIECES; i++) {
        job_plan_variable(i, name);
        piece = getenv(name);
        room += piece ? strlen(piece) : 0; /* decoded, it is less */
    }
    text = malloc(room);
    good = text != NULL;
    for (unsigned i = 0; i < JOB_PLAN_PIECES; i++) {
        job_plan_variable(i, name);
        piece = getenv(name);
        if (!piece)
            break;
        good = good && append(text, &n, piece);
        explicit_bzero(piece, strlen(piece));
        (void)unsetenv(name);
    }
    if (!good || !n) {
        free(text);
        return NULL;
    }
    text[n] = '\0';
    return text;
}
