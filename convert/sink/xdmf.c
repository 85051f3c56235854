/*
 * NAME.xmf: what an HDF5 file holds, in the words of ParaView and VisIt (XDMF 3). Called by the engine when the HDF5 file is whole. Blocks for the disk.
 *
 * Datasets of one shape are values on one uniform grid, at its nodes; those of another shape are a grid of their own. With time steps a grid is a collection over time, of which each refers to a piece of the
 * dataset. A grid has no coordinates but the numbers of its elements: what a schema says of lengths is in attributes, which nobody has agreed upon. Arrays of more than three dimensions, and scalars,
 * are left out: XDMF has no grid for them.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "convert/sink/sink.h"
#include "fp/err.h"

struct shape {
    unsigned first, rank; /* dimensions of the grid: from `first` on, behind the steps */
    uint64_t dims[3];
    uint64_t steps;       /* 0: none */
};

static bool shape_of(const struct cv_dataset *d, struct shape *s)
{
    *s = (struct shape){.first = d->rank && d->dims[0].steps};
    s->rank = d->rank - s->first;
    s->steps = s->first ? d->dims[0].size : 0;
    if (s->rank < 1 || s->rank > 3 || d->type.kind == CV_COMPLEX || (s->first && s->steps == 0))
        return false;
    for (unsigned i = 0; i < s->rank; i++) {
        s->dims[i] = d->dims[s->first + i].size;
        if (s->dims[i] == 0)
            return false;
    }
    return true;
}

static bool same(const struct shape *a, const struct shape *b)
{
    return a->rank == b->rank && a->steps == b->steps && memcmp(a->dims, b->dims, sizeof a->dims) == 0;
}

static void escaped(FILE *f, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '<':
            fputs("&lt;", f);
            break;
        case '>':
            fputs("&gt;", f);
            break;
        case '&':
            fputs("&amp;", f);
            break;
        case '"':
            fputs("&quot;", f);
            break;
        default:
            fputc(*text, f);
        }
}

/* A uniform grid has two or three dimensions: one of one dimension gets another of 1, and so do its values, of which ParaView shows but the first else. */
static void numbers(FILE *f, const uint64_t *dims, unsigned rank)
{
    fputs(rank == 1 ? "1 " : "", f);
    for (unsigned i = 0; i < rank; i++)
        fprintf(f, "%s%" PRIu64, i ? " " : "", dims[i]);
}

static void topology(FILE *f, const struct shape *s, const char *indent)
{
    const char *zeros = s->rank == 3 ? "0 0 0" : "0 0", *ones = s->rank == 3 ? "1 1 1" : "1 1";
    unsigned rank = s->rank == 3 ? 3 : 2;

    fprintf(f, "%s<Topology TopologyType=\"%dDCoRectMesh\" Dimensions=\"", indent, rank);
    numbers(f, s->dims, s->rank);
    fprintf(f, "\"/>\n%s<Geometry GeometryType=\"%s\">\n", indent, rank == 3 ? "ORIGIN_DXDYDZ" : "ORIGIN_DXDY");
    fprintf(f, "%s  <DataItem Dimensions=\"%u\" Format=\"XML\">%s</DataItem>\n%s  <DataItem Dimensions=\"%u\" Format=\"XML\">%s</DataItem>\n%s</Geometry>\n", indent, rank, zeros, indent, rank, ones, indent);
}

static const char *number_type(struct cv_type t)
{
    return t.kind == CV_FLOAT ? "Float" : t.size_bytes == 1 ? (t.kind == CV_INT ? "Char" : "UChar") : t.kind == CV_INT ? "Int" : "UInt";
}

static void item(FILE *f, const struct cv_dataset *d, const char *h5_name, const char *indent)
{
    uint64_t dims[CV_RANK_MAX];

    for (unsigned i = 0; i < d->rank; i++)
        dims[i] = d->dims[i].size;
    fprintf(f, "%s<DataItem Dimensions=\"", indent);
    numbers(f, dims, d->rank);
    fprintf(f, "\" NumberType=\"%s\" Precision=\"%u\" Format=\"HDF\">", number_type(d->type), d->type.size_bytes);
    escaped(f, h5_name);
    fputc(':', f);
    escaped(f, d->name);
    fputs("</DataItem>\n", f);
}

/* One step of a dataset: a piece of it, 1 thick. */
static void piece(FILE *f, const struct cv_dataset *d, const struct shape *s, uint64_t step, const char *h5_name)
{
    uint64_t count[CV_RANK_MAX] = {1};

    memcpy(count + 1, s->dims, s->rank * sizeof *count);
    fputs("          <DataItem ItemType=\"HyperSlab\" Dimensions=\"", f);
    numbers(f, s->dims, s->rank);
    fprintf(f, "\">\n            <DataItem Dimensions=\"3 %u\" Format=\"XML\">%" PRIu64, d->rank, step);
    for (unsigned i = 0; i < s->rank; i++)
        fputs(" 0", f);
    for (unsigned i = 0; i < d->rank; i++)
        fputs(" 1", f);
    fputc(' ', f);
    numbers(f, count, d->rank);
    fputs("</DataItem>\n", f);
    item(f, d, h5_name, "            ");
    fputs("          </DataItem>\n", f);
}

/* All datasets of this shape, at one step. */
static void grid(FILE *f, const struct cv_model *m, const struct shape *s, uint64_t step, unsigned number, const char *h5_name)
{
    fprintf(f, "      <Grid Name=\"grid%u\" GridType=\"Uniform\">\n", number);
    if (s->steps)
        fprintf(f, "        <Time Value=\"%" PRIu64 "\"/>\n", step);
    topology(f, s, "        ");
    for (size_t i = 0; i < m->ndatasets; i++) {
        const struct cv_dataset *d = &m->datasets[i];
        struct shape other;

        if (!shape_of(d, &other) || !same(s, &other))
            continue;
        fputs("        <Attribute Name=\"", f);
        escaped(f, d->name + 1);
        fputs("\" AttributeType=\"Scalar\" Center=\"Node\">\n", f);
        if (s->steps)
            piece(f, d, s, step, h5_name);
        else
            item(f, d, h5_name, "          ");
        fputs("        </Attribute>\n", f);
    }
    fputs("      </Grid>\n", f);
}

/* The grid of a dataset, unless one before it has the same. */
static void grid_of(FILE *f, const struct cv_model *m, size_t k, unsigned *number, const char *h5_name)
{
    struct shape s, other;

    if (!shape_of(&m->datasets[k], &s))
        return;
    for (size_t i = 0; i < k; i++)
        if (shape_of(&m->datasets[i], &other) && same(&s, &other))
            return;
    ++*number;
    if (!s.steps) {
        grid(f, m, &s, 0, *number, h5_name);
        return;
    }
    fprintf(f, "    <Grid Name=\"steps%u\" GridType=\"Collection\" CollectionType=\"Temporal\">\n", *number);
    for (uint64_t step = 0; step < s.steps; step++)
        grid(f, m, &s, step, *number, h5_name);
    fputs("    </Grid>\n", f);
}

int cv_xdmf_write(const char *path, const char *h5_name, const struct cv_model *m, struct cv_fail *why)
{
    FILE *f = fopen(path, "wxe");
    unsigned number = 0;
    bool bad;
    int err;

    if (!f)
        return cv_fail(why, -errno, path, NULL, CV_NO_OFFSET, "the XDMF file can't be made: %s", fp_strerror(-errno));
    fputs("<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<!DOCTYPE Xdmf SYSTEM \"Xdmf.dtd\" []>\n<Xdmf Version=\"3.0\">\n  <Domain>\n", f);
    for (size_t k = 0; k < m->ndatasets; k++)
        grid_of(f, m, k, &number, h5_name);
    fputs("  </Domain>\n</Xdmf>\n", f);
    errno = 0;
    bad = fflush(f) != 0 || ferror(f);
    err = errno;
    if (fclose(f) != 0 && !bad) {
        bad = true;
        err = errno;
    }
    err = err ? err : EIO; /* an earlier write failed, and which way is forgotten */
    return bad ? cv_fail(why, -err, path, NULL, CV_NO_OFFSET, "the XDMF file can't be written: %s", fp_strerror(-err)) : 0;
}
