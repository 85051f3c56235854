/*
 * mpistack CASE FILE [io]: what parallel applications do beyond fpior: file types in many dimensions, one call of many pieces, reading what
 * others have just written without opening again, compressed datasets. An MPI program; nothing of fpstore is linked into it.
 *
 *     nested    a 3-D array of bytes, split among the ranks in two dimensions, by one call with a subarray as file view
 *     holes     records of all ranks in turn, by one call; then every second of them again: what lies between must stay
 *     sync      rounds of: write, MPI_File_sync, barrier, MPI_File_sync, read what a rank of the other half wrote; the file stays open
 *     atomic    MPI_File_set_atomicity: all write the same bytes at once, and one of them is seen whole; what one has written, all see, without a sync
 *     shared    MPI_File_write_shared and _ordered, MPI_File_read_shared: each record once, whole, and in the order of ranks where that is asked for
 *     chunked   an HDF5 dataset with chunks that ranks share: shuffled, compressed, summed; collective calls
 *
 * "independent" behind the file takes calls that are not collective (nested, holes). "collmeta": HDF5's metadata collectively.
 * Every rank verifies every byte of the file after it was closed and opened again. Exit code 0: all was right.
 */
#include <hdf5.h>
#include <mpi.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks;
static const char *path;
static bool independent, collective_metadata;

static _Noreturn void die(const char *fmt, ...)
{
	va_list args;

	fprintf(stderr, "mpistack: rank %d: %s: ", rank, path);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fprintf(stderr, "\n");
	MPI_Abort(MPI_COMM_WORLD, 1);
	abort();
}

static void ok(int rc, const char *what)
{
	char text[MPI_MAX_ERROR_STRING];
	int len;

	if (rc == MPI_SUCCESS)
		return;
	MPI_Error_string(rc, text, &len);
	die("%s: %s", what, text);
}

static int64_t h5(int64_t id, const char *what)
{
	if (id < 0)
		die("%s failed", what);
	return id;
}

/* What belongs at this place of the file in this round. */
static uint8_t byte_at(uint64_t off, int round)
{
	uint64_t x = (off / 7 + 1) * 0x9e3779b97f4a7c15ull + (uint64_t)round * 0xbf58476d1ce4e5b9ull;

	return (uint8_t)((x >> 56) + off);
}

static uint8_t *memory(size_t n)
{
	uint8_t *p = malloc(n);

	if (!p)
		die("no memory");
	return p;
}

static void compare(const uint8_t *got, uint64_t off, uint64_t n, int round, const char *what)
{
	for (uint64_t i = 0; i < n; i++)
		if (got[i] != byte_at(off + i, round))
			die("%s: WRONG DATA at %llu: expected 0x%02x, got 0x%02x", what, (unsigned long long)(off + i), byte_at(off + i, round), got[i]);
}

static MPI_File open_mpi(int mode)
{
	MPI_Info info;
	MPI_File f;

	MPI_Info_create(&info);
	/* Data sieving also where ROMIO would not take it by itself: it reads, changes and writes back what lies between. */
	MPI_Info_set(info, "romio_ds_write", "enable");
	MPI_Info_set(info, "romio_ds_read", "enable");
	ok(MPI_File_open(MPI_COMM_WORLD, path, mode, info, &f), "MPI_File_open");
	MPI_Info_free(&info);
	return f;
}

static void write_view(MPI_File f, MPI_Offset at, MPI_Datatype type, const uint8_t *buf, int n)
{
	ok(MPI_File_set_view(f, at, MPI_BYTE, type, "native", MPI_INFO_NULL), "MPI_File_set_view");
	ok((independent ? MPI_File_write : MPI_File_write_all)(f, buf, n, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_write");
}

/* The whole file, in pieces; round_of says which round each piece of `unit` bytes is of. */
static void verify(uint64_t size, uint64_t unit, int (*round_of)(uint64_t piece))
{
	MPI_File f = open_mpi(MPI_MODE_RDONLY);
	uint8_t *buf = memory(unit);
	MPI_Offset there;

	ok(MPI_File_get_size(f, &there), "MPI_File_get_size");
	if ((uint64_t)there != size)
		die("%lld bytes, should be %llu", (long long)there, (unsigned long long)size);
	for (uint64_t off = 0; off < size; off += unit) {
		uint64_t n = size - off < unit ? size - off : unit;

		memset(buf, 0x5a, n);
		ok(MPI_File_read_at(f, (MPI_Offset)off, buf, (int)n, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_read_at");
		compare(buf, off, n, round_of(off / unit), "after opening again");
	}
	free(buf);
	ok(MPI_File_close(&f), "MPI_File_close");
}

static int first_round(uint64_t piece)
{
	(void)piece;
	return 0;
}

static void nested(void)
{
	int all[3] = { 30, 41, 4701 }, part[3], start[3], grid[2] = { 0, 0 }, me[2];
	MPI_File f = open_mpi(MPI_MODE_RDWR | MPI_MODE_CREATE);
	MPI_Datatype type;
	uint8_t *buf, *p;

	MPI_Dims_create(ranks, 2, grid);
	me[0] = rank / grid[1];
	me[1] = rank % grid[1];
	part[0] = all[0];
	start[0] = 0;
	for (int d = 0; d < 2; d++) {
		start[d + 1] = all[d + 1] * me[d] / grid[d];
		part[d + 1] = all[d + 1] * (me[d] + 1) / grid[d] - start[d + 1];
	}
	ok(MPI_Type_create_subarray(3, all, part, start, MPI_ORDER_C, MPI_BYTE, &type), "MPI_Type_create_subarray");
	ok(MPI_Type_commit(&type), "MPI_Type_commit");
	p = buf = memory((size_t)part[0] * (size_t)part[1] * (size_t)part[2]);
	for (int z = 0; z < part[0]; z++)
		for (int y = 0; y < part[1]; y++)
			for (int x = 0; x < part[2]; x++)
				*p++ = byte_at(((uint64_t)z * (uint64_t)all[1] + (uint64_t)(start[1] + y)) * (uint64_t)all[2] + (uint64_t)(start[2] + x), 0);
	write_view(f, 0, type, buf, (int)(p - buf));
	MPI_Type_free(&type);
	free(buf);
	ok(MPI_File_close(&f), "MPI_File_close");
	verify((uint64_t)all[0] * (uint64_t)all[1] * (uint64_t)all[2], (uint64_t)all[1] * (uint64_t)all[2], first_round);
}

enum { RECORD = 47001, RECORDS = 24 };

/* Every second record of each rank is of the second round. */
static int of_holes(uint64_t piece)
{
	return piece / (uint64_t)ranks % 2 == 0;
}

/* Each rank's records first, first + step, ... of its own, by one call. */
static void put_records(MPI_File f, int step, int round)
{
	int count = RECORDS / step;
	uint64_t stride = (uint64_t)RECORD * (uint64_t)ranks;
	MPI_Datatype type;
	uint8_t *buf = memory((size_t)count * RECORD);

	for (int i = 0; i < count; i++)
		for (uint64_t k = 0; k < RECORD; k++)
			buf[(uint64_t)i * RECORD + k] = byte_at((uint64_t)(i * step) * stride + (uint64_t)rank * RECORD + k, round);
	ok(MPI_Type_create_hvector(count, RECORD, (MPI_Aint)stride * step, MPI_BYTE, &type), "MPI_Type_create_hvector");
	ok(MPI_Type_commit(&type), "MPI_Type_commit");
	write_view(f, (MPI_Offset)rank * RECORD, type, buf, count * RECORD);
	MPI_Type_free(&type);
	free(buf);
}

static void holes(void)
{
	MPI_File f = open_mpi(MPI_MODE_RDWR | MPI_MODE_CREATE);

	put_records(f, 1, 0);
	ok(MPI_File_close(&f), "MPI_File_close");
	verify((uint64_t)RECORD * RECORDS * (uint64_t)ranks, RECORD, first_round);
	f = open_mpi(MPI_MODE_RDWR);
	put_records(f, 2, 1);
	ok(MPI_File_close(&f), "MPI_File_close");
	verify((uint64_t)RECORD * RECORDS * (uint64_t)ranks, RECORD, of_holes);
}

static void sync_rounds(void)
{
	enum { ROUNDS = 30 };
	MPI_File f = open_mpi(MPI_MODE_RDWR | MPI_MODE_CREATE);
	uint8_t *buf = memory(RECORD);
	int other = (rank + (ranks + 1) / 2) % ranks;

	for (int round = 0; round < ROUNDS; round++) {
		for (uint64_t k = 0; k < RECORD; k++)
			buf[k] = byte_at((uint64_t)rank * RECORD + k, round);
		ok(MPI_File_write_at(f, (MPI_Offset)rank * RECORD, buf, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_write_at");
		ok(MPI_File_sync(f), "MPI_File_sync");
		MPI_Barrier(MPI_COMM_WORLD);
		ok(MPI_File_sync(f), "MPI_File_sync");
		memset(buf, 0x5a, RECORD);
		ok(MPI_File_read_at(f, (MPI_Offset)other * RECORD, buf, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_read_at");
		compare(buf, (uint64_t)other * RECORD, RECORD, round, "with the file open");
		MPI_Barrier(MPI_COMM_WORLD); /* nobody writes what others still read */
	}
	free(buf);
	ok(MPI_File_close(&f), "MPI_File_close");
}

/* Which round all of these bytes are of; -1: of none, or of several. */
static int round_of_bytes(const uint8_t *buf, uint64_t off, uint64_t n, int first, int count)
{
	for (int round = first; round < first + count; round++) {
		uint64_t i = 0;

		while (i < n && buf[i] == byte_at(off + i, round))
			i++;
		if (i == n)
			return round;
	}
	return -1;
}

static void atomic(void)
{
	enum { ROUNDS = 20 };
	MPI_File f = open_mpi(MPI_MODE_RDWR | MPI_MODE_CREATE);
	uint8_t *buf = memory(RECORD);
	int low, high;

	ok(MPI_File_set_atomicity(f, 1), "MPI_File_set_atomicity");
	for (int i = 0; i < ROUNDS; i++) {
		int mine = i * ranks + rank, seen;

		for (uint64_t k = 0; k < RECORD; k++)
			buf[k] = byte_at(k, mine);
		ok(MPI_File_write_at(f, 0, buf, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_write_at");
		MPI_Barrier(MPI_COMM_WORLD);
		memset(buf, 0x5a, RECORD);
		ok(MPI_File_read_at(f, 0, buf, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_read_at");
		seen = round_of_bytes(buf, 0, RECORD, i * ranks, ranks);
		if (seen < 0)
			die("atomic: WRONG DATA in round %d: not what one rank has written", i);
		MPI_Allreduce(&seen, &low, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
		MPI_Allreduce(&seen, &high, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
		if (low != high)
			die("atomic: WRONG DATA in round %d: ranks see different writers", i);
		if (rank == i % ranks) { /* and at once: readers are not to see a part of it */
			for (uint64_t k = 0; k < RECORD; k++)
				buf[k] = byte_at(k, seen + 1000);
			ok(MPI_File_write_at(f, 0, buf, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_write_at");
		} else {
			ok(MPI_File_read_at(f, 0, buf, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_read_at");
			if (round_of_bytes(buf, 0, RECORD, seen, 1) < 0 && round_of_bytes(buf, 0, RECORD, seen + 1000, 1) < 0)
				die("atomic: WRONG DATA in round %d: a part of a write", i);
		}
		MPI_Barrier(MPI_COMM_WORLD);
	}
	free(buf);
	ok(MPI_File_close(&f), "MPI_File_close");
}

enum { SHARED_ROUNDS = 12 };

/* Of the rank's n-th record: these say who wrote it, the rest is as byte_at says for that. */
static void fill_shared(uint8_t *buf, int writer, int n)
{
	buf[0] = (uint8_t)writer;
	buf[1] = (uint8_t)n;
	for (uint64_t k = 2; k < RECORD; k++)
		buf[k] = byte_at(k, n * ranks + writer);
}

static void check_shared(const uint8_t *buf, uint64_t at, int (*seen)[SHARED_ROUNDS])
{
	int writer = buf[0], n = buf[1];

	if (writer >= ranks || n >= SHARED_ROUNDS)
		die("record %llu: WRONG DATA: of rank %d, number %d", (unsigned long long)at, writer, n);
	for (uint64_t k = 2; k < RECORD; k++)
		if (buf[k] != byte_at(k, n * ranks + writer))
			die("record %llu: WRONG DATA at %llu", (unsigned long long)at, (unsigned long long)k);
	seen[writer][n]++;
}

/* Each rank reads some, whichever they are; together all of them. */
static void read_shared(uint8_t *buf, int (*seen)[SHARED_ROUNDS])
{
	MPI_File f = open_mpi(MPI_MODE_RDONLY);

	for (int i = 0; i < SHARED_ROUNDS; i++) {
		memset(buf, 0x5a, RECORD);
		ok(MPI_File_read_shared(f, buf, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_read_shared");
		check_shared(buf, (uint64_t)i, seen);
	}
	MPI_Allreduce(MPI_IN_PLACE, seen, ranks * SHARED_ROUNDS, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < ranks * SHARED_ROUNDS; i++)
		if (seen[0][i] != 1)
			die("read_shared: record %d of rank %d was read %d times", i % SHARED_ROUNDS, i / SHARED_ROUNDS, seen[0][i]);
	ok(MPI_File_close(&f), "MPI_File_close");
}

static void shared(void)
{
	uint8_t *buf = memory(RECORD);
	int(*seen)[SHARED_ROUNDS] = calloc((size_t)ranks, sizeof *seen);

	if (!seen)
		die("no memory");
	for (int ordered = 0; ordered < 2; ordered++) {
		MPI_File f = open_mpi(MPI_MODE_RDWR | MPI_MODE_CREATE);

		for (int i = 0; i < SHARED_ROUNDS; i++) {
			fill_shared(buf, rank, i);
			ok((ordered ? MPI_File_write_ordered : MPI_File_write_shared)(f, buf, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_write_shared");
		}
		ok(MPI_File_close(&f), "MPI_File_close");
		f = open_mpi(MPI_MODE_RDONLY);
		memset(seen, 0, (size_t)ranks * sizeof *seen);
		for (int i = 0; i < SHARED_ROUNDS * ranks; i++) {
			memset(buf, 0x5a, RECORD);
			ok(MPI_File_read_at(f, (MPI_Offset)i * RECORD, buf, RECORD, MPI_BYTE, MPI_STATUS_IGNORE), "MPI_File_read_at");
			check_shared(buf, (uint64_t)i, seen);
			if (ordered && (buf[0] != i % ranks || buf[1] != i / ranks))
				die("record %d: WRONG DATA: of rank %d, number %d", i, buf[0], buf[1]);
		}
		for (int i = 0; i < ranks * SHARED_ROUNDS; i++)
			if (seen[0][i] != 1)
				die("record %d of rank %d is there %d times", i % SHARED_ROUNDS, i / SHARED_ROUNDS, seen[0][i]);
		ok(MPI_File_close(&f), "MPI_File_close");
		memset(seen, 0, (size_t)ranks * sizeof *seen);
		read_shared(buf, seen);
	}
	free(seen);
	free(buf);
}

enum { ROWS = 403, COLUMNS = 997 };

static hid_t open_h5(bool create)
{
	hid_t f, fapl = h5(H5Pcreate(H5P_FILE_ACCESS), "H5Pcreate");

	h5(H5Pset_fapl_mpio(fapl, MPI_COMM_WORLD, MPI_INFO_NULL), "H5Pset_fapl_mpio");
	if (collective_metadata) {
		h5(H5Pset_all_coll_metadata_ops(fapl, 1), "H5Pset_all_coll_metadata_ops");
		h5(H5Pset_coll_metadata_write(fapl, 1), "H5Pset_coll_metadata_write");
	}
	f = create ? H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, fapl) : H5Fopen(path, H5F_ACC_RDONLY, fapl);
	h5(f, "H5Fcreate or H5Fopen");
	H5Pclose(fapl);
	return f;
}

static hid_t make_dataset(hid_t f, const char *name)
{
	hsize_t all[2] = { ROWS, COLUMNS }, chunk[2] = { 64, 300 };
	hid_t space = h5(H5Screate_simple(2, all, NULL), "H5Screate_simple"), set;
	hid_t dcpl = h5(H5Pcreate(H5P_DATASET_CREATE), "H5Pcreate");

	h5(H5Pset_chunk(dcpl, 2, chunk), "H5Pset_chunk");
	h5(H5Pset_shuffle(dcpl), "H5Pset_shuffle");
	h5(H5Pset_deflate(dcpl, 4), "H5Pset_deflate");
	h5(H5Pset_fletcher32(dcpl), "H5Pset_fletcher32");
	set = h5(H5Dcreate2(f, name, H5T_NATIVE_INT, space, H5P_DEFAULT, dcpl, H5P_DEFAULT), "H5Dcreate2");
	H5Pclose(dcpl);
	H5Sclose(space);
	return set;
}

/* Rows [first, first + count) of the dataset, all ranks in one collective call. */
static void rows(hid_t set, int first, int count, int *buf, bool writing)
{
	hsize_t start[2] = { (hsize_t)first, 0 }, size[2] = { (hsize_t)count, COLUMNS };
	hid_t space = h5(H5Dget_space(set), "H5Dget_space"), mem = h5(H5Screate_simple(2, size, NULL), "H5Screate_simple");
	hid_t dxpl = h5(H5Pcreate(H5P_DATASET_XFER), "H5Pcreate");

	h5(H5Pset_dxpl_mpio(dxpl, H5FD_MPIO_COLLECTIVE), "H5Pset_dxpl_mpio");
	h5(H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, size, NULL), "H5Sselect_hyperslab");
	if (writing)
		h5(H5Dwrite(set, H5T_NATIVE_INT, mem, space, dxpl, buf), "H5Dwrite");
	else
		h5(H5Dread(set, H5T_NATIVE_INT, mem, space, dxpl, buf), "H5Dread");
	H5Pclose(dxpl);
	H5Sclose(mem);
	H5Sclose(space);
}

/* HDF5 fills chunks when the dataset is made, and reads them again to write a part of one: by ranks of different nodes, between which that is news. */
static void publish_h5(hid_t f)
{
	h5(H5Fflush(f, H5F_SCOPE_GLOBAL), "H5Fflush");
	MPI_Barrier(MPI_COMM_WORLD);
	h5(H5Fflush(f, H5F_SCOPE_GLOBAL), "H5Fflush");
}

static int cell(int row, int column, int set)
{
	return (row * COLUMNS + column) * 3 + set * 1000003;
}

static void chunked(void)
{
	enum { SETS = 3 };
	int first = ROWS * rank / ranks, count = ROWS * (rank + 1) / ranks - first;
	int *buf = (int *)(void *)memory(sizeof(int) * ROWS * COLUMNS);
	char name[16];
	hid_t f = open_h5(true), set;

	for (int s = 0; s < SETS; s++) {
		snprintf(name, sizeof name, "step%d", s);
		set = make_dataset(f, name);
		publish_h5(f);
		for (int i = 0; i < count * COLUMNS; i++)
			buf[i] = cell(first + i / COLUMNS, i % COLUMNS, s);
		rows(set, first, count, buf, true);
		h5(H5Dclose(set), "H5Dclose");
	}
	h5(H5Fclose(f), "H5Fclose");
	f = open_h5(false);
	for (int s = 0; s < SETS; s++) {
		snprintf(name, sizeof name, "step%d", s);
		set = h5(H5Dopen2(f, name, H5P_DEFAULT), "H5Dopen2");
		memset(buf, 0x5a, sizeof(int) * ROWS * COLUMNS);
		rows(set, 0, ROWS, buf, false);
		for (int i = 0; i < ROWS * COLUMNS; i++)
			if (buf[i] != cell(i / COLUMNS, i % COLUMNS, s))
				die("%s: WRONG DATA in row %d, column %d: expected %d, got %d", name, i / COLUMNS, i % COLUMNS,
				    cell(i / COLUMNS, i % COLUMNS, s), buf[i]);
		h5(H5Dclose(set), "H5Dclose");
	}
	free(buf);
	h5(H5Fclose(f), "H5Fclose");
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = { { "nested", nested }, { "holes", holes }, { "sync", sync_rounds }, { "atomic", atomic }, { "shared", shared },
	    { "chunked", chunked } };

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	path = argc > 2 ? argv[2] : "-";
	for (int i = 3; i < argc; i++) {
		independent |= strcmp(argv[i], "independent") == 0;
		collective_metadata |= strcmp(argv[i], "collmeta") == 0;
	}
	for (size_t i = 0; argc > 2 && i < sizeof cases / sizeof cases[0]; i++)
		if (strcmp(argv[1], cases[i].name) == 0) {
			cases[i].run();
			MPI_Barrier(MPI_COMM_WORLD);
			if (rank == 0)
				printf("mpistack: %s: all right\n", argv[1]);
			MPI_Finalize();
			return 0;
		}
	if (rank == 0)
		fprintf(stderr, "usage: mpistack nested|holes|sync|atomic|shared|chunked FILE [independent] [collmeta]\n");
	MPI_Finalize();
	return 2;
}
