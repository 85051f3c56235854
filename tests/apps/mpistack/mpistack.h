/* What the files of this program share: see main.c. */
#pragma once

#include <mpi.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORD = 47001 };

extern int rank, ranks;
extern const char *path;
extern bool independent, collective_metadata, no_sync, atomic_mode, strided;

_Noreturn void die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void ok(int rc, const char *what);

/* Must be freed. */
uint8_t *memory(size_t n);

/* What belongs at this place of the file in this round. */
uint8_t byte_at(uint64_t off, int round);
void fill(uint8_t *buf, uint64_t off, uint64_t n, int round);
void compare(const uint8_t *got, uint64_t off, uint64_t n, int round, const char *what);

/* Which round of [first, first + count) all of these bytes are of; -1: of none, or of several. */
int round_of_bytes(const uint8_t *buf, uint64_t off, uint64_t n, int first, int count);

/* By all ranks. ROMIO is told to sieve data. */
MPI_File open_mpi(int mode);

void write_at(MPI_File f, uint64_t off, const uint8_t *buf, uint64_t n);

/* n bytes that are there; what is not read is not what was in buf before. */
void read_at(MPI_File f, uint64_t off, uint8_t *buf, uint64_t n);

/* Collective, or if "independent" not. */
void write_view(MPI_File f, MPI_Offset at, MPI_Datatype type, const uint8_t *buf, int n);

void nested(void);
void holes(void);
void sync_rounds(void);
void atomic(void);
void shared(void);
void chunked(void);
void seen(void);
void overlap(void);
void pointer(void);
void sieve(void);
