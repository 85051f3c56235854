/* MPI-IO: explicit offsets, or with -V a view of this task's blocks and individual file pointers; and the hints of all APIs over MPI-IO. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fpior.h"

extern char **environ;

static void check(const struct file *f, int rc, const char *what)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int len;

    if (rc == MPI_SUCCESS)
        return;
    MPI_Error_string(rc, text, &len);
    fatal(f, "%s: %s", what, text);
}

/* IOR_HINT__MPI__name=value, or the same behind "setenv ", with = or a space between. Others are left alone. */
static void take_hint(MPI_Info info, const char *line)
{
    static const char prefix[] = "IOR_HINT__MPI__";
    char name[MPI_MAX_INFO_KEY + 1], value[1024];

    while (isspace((unsigned char)*line))
        line++;
    if (strncmp(line, "setenv ", 7) == 0)
        line += 7;
    if (strncmp(line, prefix, sizeof prefix - 1) == 0 && sscanf(line + sizeof prefix - 1, "%254[^= \t\n]%*[= \t]%1023[^\n]", name, value) == 2)
        MPI_Info_set(info, name, value);
}

MPI_Info hints_info(const struct file *f)
{
    const char *path = f->job->p.hints_file;
    char line[2048];
    MPI_Info info;
    FILE *in;

    MPI_Info_create(&info);
    for (char **e = environ; *e; e++)
        take_hint(info, *e);
    if (!path)
        return info;
    in = fopen(path, "r");
    if (!in)
        fatal(f, "hints of %s: %s", path, strerror(errno));
    while (fgets(line, sizeof line, in))
        take_hint(info, line);
    fclose(in);
    return info;
}

void hints_show(const struct file *f, MPI_Info info)
{
    char name[MPI_MAX_INFO_KEY + 1], value[MPI_MAX_INFO_VAL + 1];
    int count = 0, there;

    if (!f->job->p.show_hints || f->job->rank != 0)
        return;
    MPI_Info_get_nkeys(info, &count);
    printf("\nhints of %s:\n", f->path);
    for (int i = 0; i < count; i++) {
        MPI_Info_get_nthkey(info, i, name);
        MPI_Info_get(info, name, MPI_MAX_INFO_VAL, value, &there);
        if (there)
            printf("\t%s = %s\n", name, value);
    }
}

static void set_view(struct file *f, MPI_Info info)
{
    const struct pattern *t = &f->job->pattern;
    MPI_Datatype block, strided;
    uint64_t stride = t->own_files ? t->block : t->block * t->tasks;

    if (t->block > INT32_MAX)
        fatal(f, "-V: blocks are below 2 GiB");
    check(f, MPI_Type_contiguous((int)t->block, MPI_BYTE, &block), "MPI_Type_contiguous");
    check(f, MPI_Type_create_resized(block, 0, (MPI_Aint)stride, &strided), "MPI_Type_create_resized");
    check(f, MPI_Type_commit(&strided), "MPI_Type_commit");
    check(f, MPI_File_set_view(f->mpi, t->own_files ? 0 : (MPI_Offset)((uint64_t)f->task * t->block), MPI_BYTE, strided, "native", info),
          "MPI_File_set_view");
    MPI_Type_free(&strided);
    MPI_Type_free(&block);
}

static void open_file(struct file *f)
{
    MPI_Info info = hints_info(f), used;

    check(f, MPI_File_open(f->comm, f->path, f->writing ? MPI_MODE_RDWR | MPI_MODE_CREATE : MPI_MODE_RDONLY, info, &f->mpi), "MPI_File_open");
    if (f->job->p.show_hints && MPI_File_get_info(f->mpi, &used) == MPI_SUCCESS) {
        hints_show(f, used);
        MPI_Info_free(&used);
    }
    if (f->writing && f->job->p.preallocate)
        check(f, MPI_File_preallocate(f->mpi, (MPI_Offset)pattern_file_bytes(&f->job->pattern)), "MPI_File_preallocate");
    if (f->job->p.file_view)
        set_view(f, info);
    MPI_Info_free(&info);
}

static int call(struct file *f, void *buf, int size, MPI_Offset off, MPI_Status *status)
{
    bool all = f->job->p.collective;

    if (f->job->p.file_view && f->writing)
        return (all ? MPI_File_write_all : MPI_File_write)(f->mpi, buf, size, MPI_BYTE, status);
    if (f->job->p.file_view)
        return (all ? MPI_File_read_all : MPI_File_read)(f->mpi, buf, size, MPI_BYTE, status);
    if (f->writing)
        return (all ? MPI_File_write_at_all : MPI_File_write_at)(f->mpi, off, buf, size, MPI_BYTE, status);
    return (all ? MPI_File_read_at_all : MPI_File_read_at)(f->mpi, off, buf, size, MPI_BYTE, status);
}

static void xfer(struct file *f, void *buf, uint64_t off)
{
    int size = (int)f->job->pattern.transfer, count = 0;
    MPI_Status status;

    check(f, call(f, buf, size, (MPI_Offset)off, &status), f->writing ? "MPI_File_write" : "MPI_File_read");
    MPI_Get_count(&status, MPI_BYTE, &count);
    if (count != size)
        fatal(f, "%s: %d bytes of %d at %llu", f->writing ? "MPI_File_write" : "MPI_File_read", count, size, (unsigned long long)off);
}

static void sync_file(struct file *f)
{
    check(f, MPI_File_sync(f->mpi), "MPI_File_sync");
}

static void close_file(struct file *f)
{
    check(f, MPI_File_close(&f->mpi), "MPI_File_close");
}

static const char *version(void)
{
    static char text[16];
    int major, minor;

    MPI_Get_version(&major, &minor);
    snprintf(text, sizeof text, "(%d.%d)", major, minor);
    return text;
}

const struct api io_mpiio = { "MPIIO", open_file, xfer, sync_file, close_file, version };
