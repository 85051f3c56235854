/*
 * from=adios: arrays in ADIOS2's BP4 and BP5 (source.h). Called by the engine on its one thread; blocks for the disk.
 *
 * The library is looked for when it is needed, and called by its C interface: most sites that convert have none, and those that write BP have their own build of it. FP_ADIOS2_LIB says which. Blocks are
 * those of the writers, so that chunks are pieces of what lies together, and what no writer has written is said and not made up; what the library reads it puts together and decompresses itself. A BP
 * dump is a directory: given one of the files in it, that is what is opened, and several of them are one input. Where the library does not say who wrote what, reading tells it: what it leaves as it was
 * in the buffer is in no block. Rejected: a reader of our own, whose formats ADIOS2 does not document for others.
 */
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "convert/source/source.h"
#include "fp/err.h"
#include "fp/log.h"

#define MINOR_MAX      40     /* of the library's names that are tried: libadios2_c.so.2.N */
#define VARIABLES_MAX  1048576u
#define ATTR_MAX_BYTES 65536u
#define WRITERS_UNKNOWN (UINT64_C(1) << 63) /* in a block's id, beside its step: it is the whole, whoever wrote what of it */
#define UNTOUCHED      0xa5u  /* what is in a buffer before it is read into */

/* From adios2_c_types.h, which has numbers for all of them. */
enum { TYPE_STRING = 0, TYPE_FLOAT, TYPE_DOUBLE, TYPE_FLOAT_COMPLEX, TYPE_DOUBLE_COMPLEX, TYPE_INT8, TYPE_INT16, TYPE_INT32, TYPE_INT64, TYPE_UINT8, TYPE_UINT16, TYPE_UINT32, TYPE_UINT64 };
enum { SHAPE_GLOBAL_VALUE = 0, SHAPE_GLOBAL_ARRAY, SHAPE_JOINED_ARRAY };
enum { MODE_SYNC = 5, MODE_READ_RANDOM = 6 };

union primitive {
    int64_t i;
    double d;
    long double ld;
    char *str;
};

struct block_info {
    int writer;
    size_t id, *start, *count;
    union primitive min, max, value;
};

struct var_info {
    int dims;
    size_t *shape;
    int is_value, is_reversed;
    size_t nblocks;
    struct block_info *blocks;
};

/* The library's functions, by their names without adios2_. Handles are opaque; 0 is no error. */
struct calls {
    void *(*init_serial)(void);
    int (*finalize)(void *adios);
    void *(*declare_io)(void *adios, const char *name);
    void *(*open)(void *io, const char *name, int mode);
    int (*close)(void *engine);
    int (*engine_get_type)(char *name, size_t *size, const void *engine);
    int (*steps)(size_t *steps, const void *engine);
    int (*inquire_all_variables)(void ***variables, size_t *n, void *io);
    int (*inquire_all_attributes)(void ***attributes, size_t *n, void *io);
    int (*variable_name)(char *name, size_t *size, const void *variable);
    int (*variable_type)(int *type, const void *variable);
    int (*variable_shapeid)(int *shape, const void *variable);
    int (*variable_ndims)(size_t *n, const void *variable);
    int (*variable_shape)(size_t *shape, const void *variable);
    int (*variable_steps)(size_t *steps, const void *variable);
    int (*set_selection)(void *variable, size_t n, const size_t *start, const size_t *count);
    int (*set_step_selection)(void *variable, size_t start, size_t count);
    int (*get)(void *engine, void *variable, void *data, int mode);
    struct var_info *(*inquire_blockinfo)(void *engine, void *variable, size_t step);
    void (*free_blockinfo)(struct var_info *info);
    int (*attribute_name)(char *name, size_t *size, const void *attribute);
    int (*attribute_type)(int *type, const void *attribute);
    int (*attribute_size)(size_t *n, const void *attribute);
    int (*attribute_data)(void *data, size_t *n, const void *attribute);
    int (*attribute_string_data)(const void *attribute, char *data, size_t *len);
};

#define CALL(name) {"adios2_" #name, offsetof(struct calls, name)}
static const struct {
    const char *symbol;
    size_t offset;
} symbols[] = {
    CALL(init_serial), CALL(finalize), CALL(declare_io), CALL(open), CALL(close), CALL(inquire_all_variables), CALL(inquire_all_attributes), CALL(variable_name), CALL(variable_type),
    CALL(variable_shapeid), CALL(variable_ndims), CALL(variable_shape), CALL(variable_steps), CALL(engine_get_type), CALL(steps), CALL(set_selection), CALL(set_step_selection), CALL(get),
    CALL(inquire_blockinfo), CALL(free_blockinfo), CALL(attribute_name), CALL(attribute_type), CALL(attribute_size), CALL(attribute_data), CALL(attribute_string_data),
};

struct variable {
    void *handle;
    uint32_t input;
    unsigned rank;            /* without steps */
};

struct adios {
    struct cv_source base;
    struct calls call;
    void *adios;
    char **paths;             /* of the inputs, which point to them */
    void **ios, **engines;    /* of each input */
    bool bp5;                 /* the input that is opened */
    size_t steps;             /* that it has */
    struct variable *variables;
    size_t nvariables;
};

static int no_memory(struct cv_fail *why)
{
    return cv_fail(why, -ENOMEM, NULL, NULL, CV_NO_OFFSET, "out of memory for the variables, or more than %u of them", CV_DATASETS_MAX);
}

/* ---------------------------------------------------------------- the library */

static void *load(void)
{
    const char *said = getenv("FP_ADIOS2_LIB");
    char name[40];
    void *lib;

    if (said && *said)
        return dlopen(said, RTLD_NOW | RTLD_LOCAL);
    lib = dlopen("libadios2_c.so", RTLD_NOW | RTLD_LOCAL);
    for (int minor = MINOR_MAX; !lib && minor >= 0; minor--) {
        snprintf(name, sizeof name, "libadios2_c.so.2.%d", minor);
        lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
    return lib;
}

/* It stays loaded: it has threads and thread-local data of its own. */
static int find_calls(struct calls *c, struct cv_fail *why)
{
    const char *said = getenv("FP_ADIOS2_LIB"), *error;
    void *lib = load();

    if (!lib) {
        error = dlerror();
        return cv_fail(why, -ENOTSUP, NULL, NULL, CV_NO_OFFSET, "ADIOS2 is not installed: its library libadios2_c.so can't be loaded (%.300s); say FP_ADIOS2_LIB=PATH if it is in no usual place",
                       said && *said && error ? error : "not found");
    }
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *f = dlsym(lib, symbols[i].symbol);

        if (!f)
            return cv_fail(why, -ENOTSUP, NULL, NULL, CV_NO_OFFSET, "this ADIOS2 is too old: it has no %s (2.10 has)", symbols[i].symbol);
        memcpy((char *)c + symbols[i].offset, &f, sizeof f);
    }
    return 0;
}

/* ---------------------------------------------------------------- inputs */

static bool all_digits(const char *s)
{
    return *s && s[strspn(s, "0123456789")] == '\0';
}

/* A file inside of a BP directory. */
static bool is_inside(const char *name)
{
    static const char *const prefixes[] = {"data.", "md.", "mmd.", NULL};

    for (const char *const *p = prefixes; *p; p++)
        if (strncmp(name, *p, strlen(*p)) == 0 && all_digits(name + strlen(*p)))
            return true;
    return strcmp(name, "md.idx") == 0 || strcmp(name, "profiling.json") == 0;
}

static bool directory_of(const char *path, char dir[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    struct stat st;

    if (stat(path, &st) < 0 || strlen(path) >= PATH_MAX || (!S_ISDIR(st.st_mode) && !is_inside(slash ? slash + 1 : path)))
        return false;
    if (S_ISDIR(st.st_mode))
        strcpy(dir, path);
    else
        snprintf(dir, PATH_MAX, "%.*s", slash && slash > path ? (int)(slash - path) : 1, slash ? path : ".");
    return true;
}

static int add_input(struct adios *a, const char *path, struct cv_fail *why)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t n = strlen(path);
    struct stat st;
    int rc = stat(path, &st) < 0 ? -errno : 0;

    if (rc)
        return cv_fail(why, rc, path, NULL, CV_NO_OFFSET, "cannot be opened: %s", fp_strerror(rc));
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return cv_fail(why, -EINVAL, path, NULL, CV_NO_OFFSET, "is neither a directory of BP4 or BP5 nor a file");
    if (S_ISREG(st.st_mode) && is_inside(name)) {
        n = slash ? (size_t)(slash - path) : 1;
        path = slash ? path : ".";
        n = n ? n : 1;
    }
    while (n > 1 && path[n - 1] == '/')
        n--;
    for (size_t i = 0; i < a->base.ninputs; i++)
        if (strlen(a->paths[i]) == n && strncmp(a->paths[i], path, n) == 0)
            return 0;
    a->paths[a->base.ninputs] = strndup(path, n);
    if (!a->paths[a->base.ninputs])
        return no_memory(why);
    a->base.inputs[a->base.ninputs] = (struct cv_input){.path = a->paths[a->base.ninputs], .fd = -1, .size_bytes = (uint64_t)st.st_size};
    a->base.ninputs++;
    return 0;
}

static int add_inputs(struct adios *a, const struct cv_source_options *o, struct cv_fail *why)
{
    int rc = 0;

    if (o->npaths == 0)
        return cv_fail(why, -EINVAL, NULL, NULL, CV_NO_OFFSET, "no input is given");
    a->paths = calloc(o->npaths, sizeof *a->paths);
    a->base.inputs = calloc(o->npaths, sizeof *a->base.inputs);
    a->ios = calloc(o->npaths, sizeof *a->ios);
    a->engines = calloc(o->npaths, sizeof *a->engines);
    if (!a->paths || !a->base.inputs || !a->ios || !a->engines)
        return no_memory(why);
    for (size_t i = 0; i < o->npaths && rc == 0; i++)
        rc = add_input(a, o->paths[i], why);
    return rc;
}

static int open_input(struct adios *a, size_t i, struct cv_fail *why)
{
    char name[64] = "";
    size_t n = 0;

    snprintf(name, sizeof name, "input%zu", i);
    a->ios[i] = a->call.declare_io(a->adios, name);
    a->engines[i] = a->ios[i] ? a->call.open(a->ios[i], a->paths[i], MODE_READ_RANDOM) : NULL;
    memset(name, 0, sizeof name);
    a->bp5 = a->engines[i] && a->call.engine_get_type(NULL, &n, a->engines[i]) == 0 && n < sizeof name && a->call.engine_get_type(name, &n, a->engines[i]) == 0 && strstr(name, "BP5");
    return a->engines[i] && a->call.steps(&a->steps, a->engines[i]) == 0 ? 0 : cv_fail(why, -EIO, a->paths[i], NULL, CV_NO_OFFSET, "ADIOS2 can't open it as BP4 or BP5; what it says itself stands before this line");
}

static int failed(const struct adios *a, uint32_t input, const char *dataset, const char *what, int error, struct cv_fail *why)
{
    static const char *const words[] = {"no error", "an invalid argument", "a system call failed", "a runtime error", "an exception"};

    return cv_fail(why, -EIO, a->paths[input], dataset, CV_NO_OFFSET, "ADIOS2 can't %s: %s (what it says itself stands before this line)", what,
                   error >= 0 && error < (int)(sizeof words / sizeof *words) ? words[error] : "an error");
}

/* ---------------------------------------------------------------- variables */

static bool type_of(int type, struct cv_type *t)
{
    static const struct {
        enum cv_kind kind;
        uint8_t size;
    } known[] = {[TYPE_FLOAT] = {CV_FLOAT, 4}, [TYPE_DOUBLE] = {CV_FLOAT, 8}, [TYPE_FLOAT_COMPLEX] = {CV_COMPLEX, 8}, [TYPE_DOUBLE_COMPLEX] = {CV_COMPLEX, 16}, [TYPE_INT8] = {CV_INT, 1},
                 [TYPE_INT16] = {CV_INT, 2}, [TYPE_INT32] = {CV_INT, 4}, [TYPE_INT64] = {CV_INT, 8}, [TYPE_UINT8] = {CV_UINT, 1}, [TYPE_UINT16] = {CV_UINT, 2}, [TYPE_UINT32] = {CV_UINT, 4},
                 [TYPE_UINT64] = {CV_UINT, 8}};

    if (type < 0 || type >= (int)(sizeof known / sizeof *known) || !known[type].size)
        return false;
    *t = (struct cv_type){.kind = known[type].kind, .size_bytes = known[type].size, .big_endian = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__};
    return true;
}

/* "/NAME" of a variable or an attribute, as a path. Empty: too long. */
static void name_of(int (*call)(char *, size_t *, const void *), const void *handle, char path[CV_NAME_MAX + 1])
{
    char name[4 * CV_NAME_MAX] = "";
    size_t n = 0;

    path[0] = '\0';
    if (call(NULL, &n, handle) != 0 || n >= sizeof name || call(name, &n, handle) != 0)
        return;
    if (snprintf(path, CV_NAME_MAX + 1, "%s%s", name[0] == '/' ? "" : "/", name) > (int)CV_NAME_MAX)
        path[0] = '\0';
}

/* start NULL: the whole. */
static int add_block(struct cv_dataset *d, uint32_t input, size_t step, const size_t *start, const size_t *count, struct cv_fail *why)
{
    struct cv_block *b;
    unsigned lead = d->rank && d->dims[0].steps ? 1 : 0, rank = d->rank - lead;

    for (unsigned i = 0; i < rank; i++)
        if (!count[i])
            return 0;
    b = cv_dataset_block(d);
    if (!b)
        return no_memory(why);
    b->input = input;
    b->id = start ? step : step | WRITERS_UNKNOWN;
    if (lead) {
        b->start[0] = step;
        b->count[0] = 1;
    }
    for (unsigned i = 0; i < rank; i++) {
        b->start[lead + i] = start ? start[i] : 0;
        b->count[lead + i] = count[i];
    }
    return 0;
}

/*
 * The writers' blocks of one step; where the library does not say them, the whole. Of BP5 it takes steps that the variable has; of BP4 steps of the file, of which it must have blocks. Blocks of arrays in
 * Fortran's order have their dimensions turned round or not, as the version of the library is: there, too, the whole, which it reads right.
 */
static int add_blocks(struct adios *a, const struct variable *v, struct cv_dataset *d, size_t step, bool by_writer, struct cv_fail *why)
{
    unsigned lead = d->rank - v->rank;
    size_t whole[CV_RANK_MAX];
    struct var_info *info = NULL;
    int rc = 0;

    for (unsigned i = 0; i < v->rank; i++)
        whole[i] = d->dims[lead + i].size;
    if (by_writer && v->rank)
        info = a->call.inquire_blockinfo(a->engines[v->input], v->handle, step);
    if (!info || !info->nblocks || !info->blocks || info->dims != (int)v->rank || info->is_value || info->is_reversed) {
        if (info)
            a->call.free_blockinfo(info);
        return add_block(d, v->input, step, NULL, whole, why);
    }
    for (unsigned i = 0; i < v->rank && rc == 0; i++)
        if (info->shape && info->shape[i] != whole[i])
            rc = cv_fail(why, -EINVAL, a->paths[v->input], d->name, CV_NO_OFFSET, "its shape changes with the steps: dimension %u has %zu elements first, and %zu in step %zu", i, whole[i],
                         info->shape[i], step);
    for (size_t k = 0; k < info->nblocks && rc == 0; k++)
        if (info->blocks[k].start && info->blocks[k].count)
            rc = add_block(d, v->input, step, info->blocks[k].start, info->blocks[k].count, why);
    a->call.free_blockinfo(info);
    return rc;
}

static int add_dataset(struct adios *a, struct variable *v, const char *path, struct cv_type t, const size_t *shape, size_t steps, bool by_writer, struct cv_fail *why)
{
    const struct cv_dataset *same = cv_model_find(a->base.model, path);
    struct cv_dataset *d;
    unsigned lead = steps > 1;
    int rc = 0;

    if (same)
        return cv_fail(why, -EEXIST, a->paths[v->input], path, CV_NO_OFFSET, "%.300s has it, too: each BP dump is converted by itself", a->paths[a->variables[same->id].input]);
    d = cv_model_add(a->base.model, path);
    if (!d)
        return no_memory(why);
    d->type = t;
    d->rank = lead + v->rank;
    d->id = a->nvariables;
    d->overlap = CV_OVERLAP_LAST; /* writers may have cells of their neighbours: whichever the library takes */
    if (lead) {
        d->dims[0] = (struct cv_dim){.name = strdup("time"), .size = steps, .steps = true};
        if (!d->dims[0].name)
            return no_memory(why);
    }
    for (unsigned i = 0; i < v->rank; i++)
        d->dims[lead + i].size = shape[i];
    a->variables[a->nvariables++] = *v;
    for (size_t k = 0; k < steps && rc == 0; k++)
        rc = add_blocks(a, v, d, k, by_writer, why);
    return rc;
}

static int take_variable(struct adios *a, uint32_t input, void *handle, struct cv_fail *why)
{
    struct variable v = {.handle = handle, .input = input};
    char path[CV_NAME_MAX + 1];
    size_t rank = 0, steps = 0, shape[CV_RANK_MAX] = {0};
    int type = -1, kind = -1, error;
    struct cv_type t;
    const char *wrong = NULL;

    name_of(a->call.variable_name, handle, path);
    if (!path[0])
        return cv_fail(why, -ENAMETOOLONG, a->paths[input], NULL, CV_NO_OFFSET, "the name of a variable has more than %u bytes", CV_NAME_MAX - 1);
    error = a->call.variable_type(&type, handle);
    error = error ? error : a->call.variable_shapeid(&kind, handle);
    error = error ? error : a->call.variable_ndims(&rank, handle);
    error = error ? error : a->call.variable_steps(&steps, handle);
    if (error)
        return failed(a, input, path, "say what it is", error, why);
    if (!type_of(type, &t))
        wrong = "it holds no integers, floats or complex numbers of a usual size";
    else if (kind != SHAPE_GLOBAL_VALUE && kind != SHAPE_GLOBAL_ARRAY && kind != SHAPE_JOINED_ARRAY)
        wrong = "it is a local array, whose blocks have no place in a whole";
    else if (rank + (steps > 1) > CV_RANK_MAX)
        wrong = "it has more than 8 dimensions, with its steps";
    if (wrong || !steps) {
        fp_log(FP_LOG_WARN, "%s: variable %s is passed over: %s", a->paths[input], path, wrong ? wrong : "no step has it");
        return 0;
    }
    if (steps > CV_BLOCKS_MAX)
        return cv_fail(why, -E2BIG, a->paths[input], path, CV_NO_OFFSET, "%zu steps are more than %u blocks", steps, CV_BLOCKS_MAX);
    error = rank ? a->call.variable_shape(shape, handle) : 0;
    if (error)
        return failed(a, input, path, "say its shape", error, why);
    if (steps > a->steps)
        return failed(a, input, path, "say its steps", 3, why);
    v.rank = (unsigned)rank;
    return add_dataset(a, &v, path, t, shape, steps, kind == SHAPE_GLOBAL_ARRAY && (a->bp5 || steps == a->steps), why);
}

static int take_variables(struct adios *a, uint32_t input, struct cv_fail *why)
{
    void **all = NULL;
    struct variable *grown;
    size_t n = 0;
    int error = a->call.inquire_all_variables(&all, &n, a->ios[input]), rc = 0;

    if (error)
        return failed(a, input, NULL, "list its variables", error, why);
    grown = n > VARIABLES_MAX ? NULL : realloc(a->variables, (a->nvariables + n + 1) * sizeof *grown);
    if (grown)
        a->variables = grown;
    else
        rc = no_memory(why);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = take_variable(a, input, all[i], why);
    free(all);
    return rc;
}

/* ---------------------------------------------------------------- attributes */

/* From any number: integers, or with a fraction. */
static int take_numbers(struct cv_attrs *to, const char *name, struct cv_type t, const void *data, size_t n)
{
    int64_t *ints = calloc(n + 1, sizeof *ints);
    double *floats = calloc(n + 1, sizeof *floats);
    int rc = ints && floats ? 0 : -ENOMEM;

    for (size_t i = 0; i < n && rc == 0; i++) {
        const uint8_t *at = (const uint8_t *)data + i * t.size_bytes;
        uint64_t u = 0;
        float f;

        if (t.kind == CV_FLOAT && t.size_bytes == 4) {
            memcpy(&f, at, 4);
            floats[i] = (double)f;
        } else if (t.kind == CV_FLOAT) {
            memcpy(&floats[i], at, 8);
        } else {
            memcpy((uint8_t *)&u + (t.big_endian ? 8 - t.size_bytes : 0), at, t.size_bytes);
            if (t.kind == CV_INT && t.size_bytes < 8 && (u >> (8 * t.size_bytes - 1)))
                u |= UINT64_MAX << (8 * t.size_bytes);
            ints[i] = (int64_t)u;
        }
    }
    rc = rc ? rc : t.kind == CV_FLOAT ? cv_attrs_floats(to, name, floats, n) : cv_attrs_ints(to, name, ints, n);
    free(ints);
    free(floats);
    return rc;
}

static int take_value(const struct adios *a, void *handle, struct cv_attrs *to, const char *name)
{
    struct cv_type t = {0};
    size_t n = 0, len = 0;
    void *data;
    int type = -1, rc = 0;

    if (a->call.attribute_type(&type, handle) || a->call.attribute_size(&n, handle) || n > ATTR_MAX_BYTES / 16)
        return 0;
    if (type == TYPE_STRING && (n != 1 || a->call.attribute_string_data(handle, NULL, &len) || len > ATTR_MAX_BYTES))
        return 0;
    if (type != TYPE_STRING && (!type_of(type, &t) || t.kind == CV_COMPLEX))
        return 0;
    data = calloc(1, type == TYPE_STRING ? len + 1 : n * 8 + 1);
    if (!data)
        return -ENOMEM;
    if (type == TYPE_STRING && a->call.attribute_string_data(handle, data, &len) == 0)
        rc = cv_attrs_text(to, name, data);
    else if (type != TYPE_STRING && a->call.attribute_data(data, &n, handle) == 0)
        rc = take_numbers(to, name, t, data, n);
    free(data);
    return rc;
}

/* "temperature/units" is of the variable temperature; others are of the whole, where a slash may not be in a name. */
static int take_attribute(struct adios *a, void *handle)
{
    char path[CV_NAME_MAX + 1], *slash;
    struct cv_dataset *d = NULL;

    name_of(a->call.attribute_name, handle, path);
    slash = strrchr(path, '/');
    if (slash && slash > path && slash[1]) {
        *slash = '\0';
        d = cv_model_find(a->base.model, path);
        *slash = '_';
    }
    if (d)
        return take_value(a, handle, &d->attrs, slash + 1);
    for (slash = path + 1; path[0] && (slash = strchr(slash, '/'));)
        *slash = '_';
    return path[0] && path[1] ? take_value(a, handle, &a->base.model->attrs, path + 1) : 0;
}

static int take_attributes(struct adios *a, uint32_t input, struct cv_fail *why)
{
    void **all = NULL;
    size_t n = 0;
    int error = a->call.inquire_all_attributes(&all, &n, a->ios[input]), rc = 0;

    if (error)
        return failed(a, input, NULL, "list its attributes", error, why);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = take_attribute(a, all[i]);
    free(all);
    return rc ? no_memory(why) : 0;
}

/* ---------------------------------------------------------------- the source */

static void close_it(struct cv_source *s)
{
    struct adios *a = (struct adios *)s;

    for (size_t i = 0; i < s->ninputs; i++) {
        if (a->engines && a->engines[i])
            (void)a->call.close(a->engines[i]);
        free(a->paths[i]);
    }
    if (a->adios)
        (void)a->call.finalize(a->adios);
    cv_model_free(s->model);
    free(a->variables);
    free(a->engines);
    free(a->ios);
    free(a->paths);
    free(s->inputs);
    free(a);
}

static int open_it(const struct cv_source_options *o, struct cv_source **out, struct cv_fail *why)
{
    struct adios *a = calloc(1, sizeof *a);
    int rc = a ? 0 : no_memory(why);

    if (rc)
        return rc;
    a->base.ops = &cv_source_adios;
    rc = add_inputs(a, o, why);
    rc = rc ? rc : find_calls(&a->call, why);
    if (rc == 0 && !(a->adios = a->call.init_serial()))
        rc = cv_fail(why, -EIO, NULL, NULL, CV_NO_OFFSET, "ADIOS2 can't be started; what it says itself stands before this line");
    if (rc == 0 && !(a->base.model = cv_model_new()))
        rc = no_memory(why);
    for (size_t i = 0; i < a->base.ninputs && rc == 0; i++) {
        rc = open_input(a, i, why);
        rc = rc ? rc : take_variables(a, (uint32_t)i, why);
        rc = rc ? rc : take_attributes(a, (uint32_t)i, why);
    }
    if (rc)
        close_it(&a->base);
    else
        *out = &a->base;
    return rc;
}

static int read_over(const struct adios *a, const struct variable *v, uint64_t step, const size_t *start, const size_t *size, void *buf, size_t bytes, uint8_t before)
{
    int error;

    memset(buf, before, bytes);
    error = a->call.set_step_selection(v->handle, step, 1);
    error = error || !v->rank ? error : a->call.set_selection(v->handle, v->rank, start, size);
    return error ? error : a->call.get(a->engines[v->input], v->handle, buf, MODE_SYNC);
}

static uint64_t count_untouched(const uint8_t *buf, uint64_t elements, size_t size_bytes)
{
    uint8_t untouched[16];
    uint64_t n = 0;

    memset(untouched, UNTOUCHED, sizeof untouched);
    for (uint64_t i = 0; i < elements; i++)
        n += memcmp(buf + i * size_bytes, untouched, size_bytes) == 0;
    return n;
}

static int read_box(struct cv_source *s, const struct cv_dataset *d, const struct cv_block *b, const uint64_t *lo, const uint64_t *count, void *buf, struct cv_fail *why)
{
    struct adios *a = (struct adios *)s;
    const struct variable *v = &a->variables[d->id];
    unsigned lead = d->rank - v->rank;
    size_t start[CV_RANK_MAX], size[CV_RANK_MAX], elements = 1;
    uint64_t untouched = 0;
    int error;

    for (unsigned i = 0; i < v->rank; i++) {
        start[i] = b->start[lead + i] + lo[lead + i];
        size[i] = count[lead + i];
    }
    for (unsigned i = 0; i < d->rank; i++)
        elements *= count[i];
    error = read_over(a, v, b->id & ~WRITERS_UNKNOWN, start, size, buf, elements * d->type.size_bytes, UNTOUCHED);
    if (error == 0 && b->id & WRITERS_UNKNOWN)
        untouched = count_untouched(buf, elements, d->type.size_bytes);
    if (untouched) { /* or it is their value: then it is so again, over something else */
        error = read_over(a, v, b->id & ~WRITERS_UNKNOWN, start, size, buf, elements * d->type.size_bytes, (uint8_t)~UNTOUCHED);
        untouched -= error ? 0 : count_untouched(buf, elements, d->type.size_bytes);
    }
    if (error)
        return failed(a, v->input, d->name, "read it", error, why);
    return untouched ? cv_fail(why, -EINVAL, a->paths[v->input], d->name, CV_NO_OFFSET, "some of its elements are in no block: no writer has written them") : 0;
}

const struct cv_source_ops cv_source_adios = {
    .name = "adios",
    .summary = "ADIOS2's BP4 and BP5, by its own library",
    .directory = directory_of,
    .open = open_it,
    .read_box = read_box,
    .close = close_it,
};
