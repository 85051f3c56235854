/*
 * The text of a schema into struct cv_schema (schema.h). Called by sources that need a schema, by the sink of raw files and by command.c. One thread; reads the schema's file, nothing else.
 *
 * Each key is a line of a table, in the order in which one needs the other: byte order before types, ranks before blocks. Rejected: reading the tree in the order of the text, which makes it matter.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convert/schema/parts.h"

#define VERSION 1u

static int take_version(struct cv_reading *r, const struct cv_node *n, void *into)
{
    uint64_t version;
    int rc = cv_take_number(r, n, "fpschema", 1, UINT32_MAX, &version);

    (void)into;
    if (rc == 0 && version != VERSION)
        return cv_mistake(r, n, "schemas of version %llu are not known: this program reads version %u", (unsigned long long)version, VERSION);
    return rc;
}

static const char *const orders[] = {"C", "fortran", NULL};

static int take_order(struct cv_reading *r, const struct cv_node *n, void *into)
{
    unsigned word = 0;
    int rc = cv_take_word(r, n, "order", orders, &word);

    ((struct cv_schema *)into)->fortran = word == 1;
    return rc;
}

static int take_byte_order(struct cv_reading *r, const struct cv_node *n, void *into)
{
    static const char *const words[] = {"little", "big", "native", NULL};
    unsigned word = 0;
    int rc = cv_take_word(r, n, "byte_order", words, &word);

    ((struct cv_schema *)into)->big_endian = word == 1 || (word == 2 && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
    return rc;
}

static int take_header(struct cv_reading *r, const struct cv_node *n, void *into)
{
    return cv_take_size(r, n, "header", &((struct cv_schema *)into)->header_bytes);
}

static int take_layout(struct cv_reading *r, const struct cv_node *n, void *into)
{
    static const char *const words[] = {"files", "shared", "segments", "global", NULL};
    unsigned word = 0;
    int rc = cv_take_word(r, n, "layout", words, &word);

    ((struct cv_schema *)into)->layout = (enum cv_layout)word;
    return rc;
}

/* ---------------------------------------------------------------- ranks */

static int take_grid(struct cv_reading *r, const struct cv_node *n, void *into)
{
    struct cv_schema *s = into;

    return cv_take_grid(r, n, &s->grid, &s->ranks);
}

static int take_grid_order(struct cv_reading *r, const struct cv_node *n, void *into)
{
    unsigned word = 0;
    int rc = cv_take_word(r, n, "order", orders, &word);

    ((struct cv_schema *)into)->grid_fortran = word == 1;
    if (rc == 0 && !((struct cv_schema *)into)->grid.rank)
        return cv_mistake(r, n, "order of ranks goes with grid");
    return rc;
}

static int take_remainder(struct cv_reading *r, const struct cv_node *n, void *into)
{
    static const char *const words[] = {"first", "spread", NULL};
    struct cv_schema *s = into;
    unsigned word = 0;
    int rc = cv_take_word(r, n, "remainder", words, &word);

    s->grid.spread = word == 1;
    if (rc == 0 && !s->grid.rank)
        return cv_mistake(r, n, "remainder goes with grid");
    return rc;
}

static int take_rank_count(struct cv_reading *r, const struct cv_node *n, void *into)
{
    struct cv_schema *s = into;
    uint64_t count;
    int rc = cv_take_number(r, n, "the number of ranks", 1, CV_SCHEMA_RANKS_MAX, &count);

    if (rc == 0 && s->grid.rank && count != s->ranks)
        return cv_mistake(r, n, "%llu ranks, and the grid has %llu", (unsigned long long)count, (unsigned long long)s->ranks);
    if (rc == 0)
        s->ranks = count;
    return rc;
}

static int take_first(struct cv_reading *r, const struct cv_node *n, void *into)
{
    return cv_take_number(r, n, "first", 0, UINT32_MAX, &((struct cv_schema *)into)->first_rank);
}

static int take_ranks(struct cv_reading *r, const struct cv_node *n, void *into)
{
    static const struct cv_key keys[] = {{"grid", take_grid, false}, {"order", take_grid_order, false}, {"remainder", take_remainder, false}, {"count", take_rank_count, false}, {"first", take_first, false}, {0}};
    const struct cv_schema *s = into;
    int rc = n->kind == CV_NODE_MAP ? cv_take_keys(r, n, "ranks", keys, into) : take_rank_count(r, n, into);

    if (rc == 0 && s->layout == CV_LAYOUT_GLOBAL && s->ranks > 1)
        return cv_mistake(r, n, "ranks: with layout: global one file has whole arrays, and no ranks");
    return rc;
}

static int take_rank_name(struct cv_reading *r, const struct cv_node *n, void *into)
{
    struct cv_schema *s = into;
    const char *text = "", *wrong;
    int rc = cv_take_text(r, n, "rank", &text);

    if (rc)
        return rc;
    wrong = cv_rank_template_check(text);
    if (*wrong)
        return cv_mistake(r, n, "rank is a file's name with {rank} where the number stands, like \"rank_{rank}.raw\": %s", wrong);
    if (s->layout != CV_LAYOUT_FILES)
        return cv_mistake(r, n, "rank goes with layout: files");
    s->rank_name = strdup(text);
    return s->rank_name ? 0 : cv_no_memory(r);
}

/* ---------------------------------------------------------------- steps and dimensions */

static int take_steps(struct cv_reading *r, const struct cv_node *n, void *into)
{
    struct cv_schema *s = into;

    if (n->kind == CV_NODE_SCALAR && strcmp(n->text, "all") == 0) {
        s->steps = 0;
        return 0;
    }
    if (n->kind != CV_NODE_SCALAR || !n->text[0] || strspn(n->text, "0123456789") != strlen(n->text))
        return cv_mistake(r, n, "steps is a whole number, or all");
    return cv_take_number(r, n, "steps", 1, CV_BLOCKS_MAX, &s->steps);
}

static int take_step_header(struct cv_reading *r, const struct cv_node *n, void *into)
{
    return cv_take_size(r, n, "step_header", &((struct cv_schema *)into)->step_header_bytes);
}

static int take_dims(struct cv_reading *r, const struct cv_node *n, void *into)
{
    struct cv_schema *s = into;

    if (n->kind != CV_NODE_MAP)
        return cv_mistake(r, n, "dims is a map of names and sizes, like {z: 192, y: 192, x: 192}");
    s->dims = calloc(n->count ? n->count : 1, sizeof *s->dims);
    if (!s->dims)
        return cv_no_memory(r);
    for (const struct cv_node *c = n->first; c; c = c->next) {
        struct cv_dim *d = &s->dims[s->ndims];
        int rc = cv_check_name(r, c->key_line, c->key_column, "a dimension", c->key);

        if (rc == 0 && strspn(c->key, "0123456789") == strlen(c->key))
            rc = cv_tree_mistake(r->why, s->name, c->key_line, c->key_column, "the name of a dimension is not a number alone");
        if (rc == 0 && s->steps != 1 && strcmp(c->key, "time") == 0)
            rc = cv_tree_mistake(r->why, s->name, c->key_line, c->key_column, "time is the dimension of the steps: call this one otherwise");
        if (rc == 0)
            rc = cv_take_number(r, c, "the size of a dimension", 0, INT64_MAX, &d->size);
        if (rc)
            return rc;
        d->name = strdup(c->key);
        if (!d->name)
            return cv_no_memory(r);
        s->ndims++;
    }
    return 0;
}

/* ---------------------------------------------------------------- datasets */

/* By path, with what is in a group right behind it. */
static int by_path(const void *a, const void *b)
{
    const unsigned char *x = (const unsigned char *)(*(struct cv_schema_dataset *const *)a)->name, *y = (const unsigned char *)(*(struct cv_schema_dataset *const *)b)->name;

    for (; *x && *x == *y; x++)
        y++;
    return (*x == '/' ? 1 : *x) - (*y == '/' ? 1 : *y);
}

/* No path twice, and no dataset where another needs a group. */
static int check_paths(struct cv_reading *r)
{
    const struct cv_schema *s = r->s;
    struct cv_schema_dataset **sorted = calloc(s->ndatasets, sizeof *sorted);
    int rc = 0;

    if (!sorted)
        return cv_no_memory(r);
    for (size_t i = 0; i < s->ndatasets; i++)
        sorted[i] = &s->datasets[i];
    qsort(sorted, s->ndatasets, sizeof *sorted, by_path);
    for (size_t i = 1; rc == 0 && i < s->ndatasets; i++) {
        const struct cv_schema_dataset *a = sorted[i - 1], *b = sorted[i];
        const struct cv_schema_dataset *later = a->line > b->line || (a->line == b->line && a->column > b->column) ? a : b;
        size_t len = strlen(a->name);

        if (strncmp(a->name, b->name, len) != 0 || (b->name[len] && b->name[len] != '/'))
            continue;
        if (!b->name[len])
            rc = cv_tree_mistake(r->why, s->name, later->line, later->column, "a dataset %.200s is there already", a->name);
        else
            rc = cv_tree_mistake(r->why, s->name, later->line, later->column, "%.150s is a dataset, so %.150s can't be in it", a->name, b->name);
    }
    free(sorted);
    return rc;
}

static int take_datasets(struct cv_reading *r, const struct cv_node *n, void *into)
{
    struct cv_schema *s = into;

    if (n->kind != CV_NODE_LIST || !n->count)
        return cv_mistake(r, n, "datasets is a list (- name: …), with one at least");
    if (n->count > CV_DATASETS_MAX)
        return cv_mistake(r, n, "%zu datasets: %u are the most", n->count, CV_DATASETS_MAX);
    s->datasets = calloc(n->count, sizeof *s->datasets);
    if (!s->datasets)
        return cv_no_memory(r);
    for (const struct cv_node *c = n->first; c; c = c->next) {
        int rc = cv_take_dataset(r, c, &s->datasets[s->ndatasets++]);

        if (rc)
            return rc;
    }
    return check_paths(r);
}

static int take_attributes(struct cv_reading *r, const struct cv_node *n, void *into)
{
    return cv_take_attributes(r, n, &((struct cv_schema *)into)->attrs);
}

static int check_whole(struct cv_reading *r, const struct cv_node *root)
{
    const struct cv_schema *s = r->s;
    const struct cv_node *at = cv_node_find(root, "layout");

    if ((s->layout == CV_LAYOUT_SHARED || s->layout == CV_LAYOUT_SEGMENTS) && !s->ranks)
        return cv_mistake(r, at ? at : root, "this layout needs the number of ranks: ranks: {grid: […]}, or ranks: N");
    if (s->steps == 1 && s->step_header_bytes) {
        at = cv_node_find(root, "step_header");
        return cv_mistake(r, at ? at : root, "step_header goes with steps: there is one alone, which header: can serve");
    }
    return 0;
}

/* ---------------------------------------------------------------- from outside */

void cv_schema_free(struct cv_schema *s)
{
    struct cv_model *m;

    if (!s)
        return;
    for (size_t i = 0; i < s->ndims; i++)
        free(s->dims[i].name);
    for (size_t i = 0; i < s->ndatasets; i++)
        cv_schema_dataset_fini(&s->datasets[i]);
    m = cv_model_new();
    if (m) {
        m->attrs = s->attrs;
        cv_model_free(m);
    }
    free(s->dims);
    free(s->datasets);
    free(s->rank_name);
    free(s->name);
    free(s);
}

int cv_schema_parse(const char *name, const char *text, size_t len, struct cv_schema **out, struct cv_fail *why)
{
    static const struct cv_key keys[] = {{"fpschema", take_version, true},  {"order", take_order, false},   {"byte_order", take_byte_order, false}, {"header", take_header, false},
                                         {"layout", take_layout, false},    {"ranks", take_ranks, false},   {"rank", take_rank_name, false},       {"steps", take_steps, false},
                                         {"step_header", take_step_header, false}, {"dims", take_dims, false}, {"datasets", take_datasets, true},  {"attributes", take_attributes, false}, {0}};
    struct cv_schema *s = calloc(1, sizeof *s);
    struct cv_reading r = {s, why};
    struct cv_node *root = NULL;
    int rc;

    if (!s || !(s->name = strdup(name))) {
        free(s);
        return cv_fail(why, -ENOMEM, name, NULL, CV_NO_OFFSET, "no memory is left for the schema");
    }
    s->steps = 1;
    if (len > CV_SCHEMA_MAX_BYTES)
        rc = cv_fail(why, -EFBIG, name, NULL, CV_NO_OFFSET, "a schema has at most %u bytes, and this has %zu", CV_SCHEMA_MAX_BYTES, len);
    else
        rc = cv_tree_parse(name, text, len, &root, why);
    if (rc == 0)
        rc = cv_take_keys(&r, root, "a schema", keys, s);
    if (rc == 0)
        rc = check_whole(&r, root);
    cv_tree_free(root);
    if (rc) {
        cv_schema_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

/* All of it, if it is no more than CV_SCHEMA_MAX_BYTES. */
static int read_whole(int fd, char *text, size_t *len)
{
    *len = 0;
    for (;;) {
        ssize_t n = read(fd, text + *len, CV_SCHEMA_MAX_BYTES + 1 - *len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        *len += (size_t)n;
        if (n == 0 || *len > CV_SCHEMA_MAX_BYTES)
            return 0;
    }
}

int cv_schema_read(const char *path, struct cv_schema **out, struct cv_fail *why)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY), rc;
    char *text;
    size_t len;

    if (fd < 0)
        return cv_fail(why, -errno, path, NULL, CV_NO_OFFSET, "the schema can't be opened: %s", strerror(errno));
    text = malloc(CV_SCHEMA_MAX_BYTES + 1);
    if (!text)
        rc = cv_fail(why, -ENOMEM, path, NULL, CV_NO_OFFSET, "no memory is left for the schema");
    else if ((rc = read_whole(fd, text, &len)))
        cv_fail(why, rc, path, NULL, CV_NO_OFFSET, "the schema can't be read: %s", strerror(-rc));
    else
        rc = cv_schema_parse(path, text, len, out, why);
    free(text);
    close(fd);
    return rc;
}
