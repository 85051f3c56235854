/*
 * Schemas: what a raw dump holds. YAML (or JSON, which is YAML too) into a struct, and from there, with the names and sizes of the files of one set, into a model.
 * docs/CONVERT.md describes the language. No I/O but reading the schema's file.
 *
 *     fpschema: 1
 *     order: C                        # or fortran: dims are given, and stored, with the first varying fastest
 *     byte_order: little
 *     header: 512                     # bytes at the beginning of each file
 *     layout: files                   # a file for each rank; shared: one file, in which the ranks' blocks of each dataset follow one another; segments: one file, in which
 *                                     # each rank's datasets follow one another, as if the files of ranks were joined; global: the whole arrays in one file
 *     ranks: {grid: [2, 2, 1], order: C}   # or a number, or {count: N}; first: 1, where names count from 1
 *     rank: "rank_{rank}.raw"         # where the rank stands in a file's name; without it, the last number in the name
 *     steps: 1                        # time steps in a file, one after another; all: as many as its size says
 *     step_header: 0                  # bytes before each
 *     dims: {z: 192, y: 192, x: 192}
 *     datasets:
 *       - name: /temperature
 *         type: float64
 *         dims: [z, y, x]             # names, or numbers
 *         block: grid                 # of ranks.grid (the default with a grid, and remainders go to the first ranks); whole: each file has all of it;
 *                                     # {start: [..], count: [..], stride: [..]}, or a list of these, one for each rank; {grid: [..]}: another grid of the same ranks
 *         ghost: 1                    # cells around each block: a number, [1, 1, 0], or {lo: [..], hi: [..]}
 *         skip: 0                     # bytes before it, behind the dataset before;  offset: from the beginning of the file, instead
 *         record: 3                   # from=fortran: the record that has it (from 1 on; by default the next one)
 *         gaps: refuse                # or fill, with fill: VALUE
 *         overlap: refuse             # or last
 *         nan: keep                   # or refuse
 *         units: K
 *         attributes: {long_name: temperature}
 *     attributes: {title: heat3d}
 */
#ifndef CV_SCHEMA_H
#define CV_SCHEMA_H

#include <stdio.h>

#include "convert/fail.h"
#include "convert/model.h"

#define CV_SCHEMA_MAX_BYTES (4u << 20)

struct cv_schema; /* opaque */

/* 0, or negative with why (file: the schema's, text: "line L, column C: …", with the nearest valid word). Every mistake that can be seen in the text alone is one. */
int cv_schema_read(const char *path, struct cv_schema **out, struct cv_fail *why);
int cv_schema_parse(const char *name, const char *text, size_t len, struct cv_schema **out, struct cv_fail *why);
void cv_schema_free(struct cv_schema *s);

/* One file of the set, as from=raw and from=fortran have it. */
struct cv_schema_file {
    const char *path;
    uint64_t size_bytes;
    uint64_t records; /* of Fortran, where sizes do not matter: for steps: all. 0: not known */
};

/*
 * The model of these files: datasets, and a block for each rank and step, offsets counted in the files as they are (raw), sizes compared: too short, too long, a rank that is missing or twice,
 * dimension products that do not fit, blocks beyond the array. For records of Fortran sizes_matter is false, and offset_bytes of each block is the schema's record number (from 0).
 * A dataset of which each file has all (block: whole) has one block: the first rank's, or with overlap: last the last one's. Blocks without elements are left out. The order of blocks is that of steps,
 * and of ranks in a step. At most CV_BLOCKS_MAX blocks in all.
 */
int cv_schema_model(const struct cv_schema *s, const struct cv_schema_file *files, size_t nfiles, bool sizes_matter, struct cv_model **out, struct cv_fail *why);
/* Whether what it counts in bytes, or in records, is what the format has: raw files have bytes (records: false), all others arrays or records. 0 or -EINVAL. Part of cv_schema_model. */
int cv_schema_units(const struct cv_schema *s, bool records, struct cv_fail *why);
/* 0: the schema does not say how many. */
uint64_t cv_schema_ranks(const struct cv_schema *s);
/*
 * Writing: the files that such a dump consists of, without any being there. How many (0: the schema does not say), what that of a rank is called (one file of all: rank 0) as seen from their directory, and
 * their model with `steps` time steps (where the schema says steps: all): sizes[] is how long each file gets; block: whole has a block in each file. -EINVAL: a name that is none (it has *, or leads out of
 * the directory).
 */
uint64_t cv_schema_files(const struct cv_schema *s);
int cv_schema_file_name(const struct cv_schema *s, uint64_t file, char *out, size_t size, struct cv_fail *why);
int cv_schema_lay_out(const struct cv_schema *s, uint64_t steps, uint64_t *sizes, struct cv_model **out, struct cv_fail *why);
/* A schema that may fit a sample, as text to edit, with comments that say what is a guess (.npy, .npz, HDF5, process groups: from what they say; raw: from size, name and bytes). */
int cv_schema_guess(const char *const *paths, size_t npaths, FILE *out, struct cv_fail *why);

#endif
