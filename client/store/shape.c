/* DIR/fp-store.shape: what up was told, and the environment variables FP_* that it had.
 *
 * Written when a store is up. It outlives the processes (fp-store.json does not), so an up after down --keep, or after a reboot, need be told nothing again: a store that
 * comes up elsewhere than where it was mounted would have programs write into the plain directory below. What is given today counts before it.
 *
 * The variables are options of the programs, which are started again with what they had (revive.c): a manager that had FP_VERSIONS=on, and comes back without, would
 * keep no version any more, and nobody would notice.
 *
 * The file is ours, but people edit things: what does not look right is refused as a whole. Stores of earlier versions have size and backend alone. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/store/store.h"
#include "fp/backend.h"
#include "fp/err.h"

extern char **environ;

static json_t *kept; /* options borrow their texts from it */

/* FP_FAULTS is of tests, and of this call. */
static bool is_ours(const char *variable)
{
    return strncmp(variable, "FP_", 3) == 0 && strncmp(variable, "FP_FAULTS=", 10) != 0 && strchr(variable, '=');
}

static json_t *environment(void)
{
    json_t *env = json_object();

    for (char **e = environ; *e; e++)
        if (is_ours(*e))
            json_object_setn_new(env, *e, strcspn(*e, "="), json_string(strchr(*e, '=') + 1)); /* what is not UTF-8 is no value of an option */
    return env;
}

static json_t *strings(const struct fp_strlist *list)
{
    json_t *out = json_array();

    for (size_t i = 0; i < list->count; i++)
        json_array_append_new(out, json_string(list->items[i]));
    return out;
}

int store_shape_save(const struct store_options *o)
{
    json_t *j = json_pack("{s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:b, s:s*, s:s*, s:o, s:o}", "size_bytes", (json_int_t)o->size_bytes, "backend", o->backend, "mount", o->mount, "mounts",
                          (json_int_t)o->mounts, "pool_bytes", (json_int_t)o->pool_bytes, "chunk_size_bytes", (json_int_t)o->chunk_size_bytes, "stripe", (json_int_t)o->stripe,
                          "data_encryption", o->data_encryption, "close", o->close_given ? fp_close_names[o->close] : NULL, "cores", o->cores, "auxapps", strings(&o->auxapps), "environment", environment());
    int rc = store_save_json(o, "fp-store.shape", j);

    json_decref(j);
    return rc;
}

/* -------------------------------------------------------------- taking it */

static int load(const struct store_options *o)
{
    char path[PATH_MAX];
    int rc = store_path(o, path, "fp-store.shape");

    if (rc < 0 || kept || access(path, F_OK) < 0)
        return rc;
    kept = json_load_file(path, 0, NULL);
    if (kept)
        return 0;
    FP_ERROR("%s cannot be read: remove it, and give --size, --backend, --mount and what else is not as by default", path);
    return -EINVAL;
}

static bool number(const char *name, bool given, int64_t min, int64_t max, int64_t *out)
{
    const json_t *j = json_object_get(kept, name);

    if (given || !j)
        return true;
    *out = json_integer_value(j);
    return json_is_integer(j) && *out >= min && *out <= max;
}

static bool bytes(const char *name, bool given, int64_t min, uint64_t *out)
{
    int64_t n = (int64_t)*out;
    bool ok = number(name, given, min, INT64_MAX, &n);

    *out = (uint64_t)n;
    return ok;
}

static bool text(const char *name, bool given, const char **out)
{
    const json_t *j = json_object_get(kept, name);

    if (given || !j)
        return true;
    *out = json_string_value(j);
    return *out && strlen(*out) < PATH_MAX;
}

/* Stores of earlier versions have a number. */
static bool backend(struct store_options *o)
{
    const json_t *j = json_object_get(kept, "backend");
    struct fp_backend_spec spec;
    char why[FP_BACKEND_WHY_BUF];
    const char *is = json_is_integer(j) ? (json_integer_value(j) == 0 ? "dir" : json_integer_value(j) == 1 ? "memory" : NULL) : json_string_value(j);

    if (!o->backend_given)
        o->backend = is;
    return is && fp_backend_parse(is, &spec, why) == 0;
}

static bool auxapps(struct store_options *o)
{
    static const char *items[STORE_AUXAPPS_MAX];
    const json_t *list = json_object_get(kept, "auxapps"), *j;
    size_t i;

    if (o->auxapps_given || !list)
        return true;
    if (!json_is_array(list) || json_array_size(list) > STORE_AUXAPPS_MAX)
        return false;
    o->auxapps = (struct fp_strlist){.items = items, .count = json_array_size(list)};
    json_array_foreach((json_t *)(uintptr_t)list, i, j)
    {
        items[i] = json_string_value(j);
        if (!items[i])
            return false;
    }
    return true;
}

static bool encryption(struct store_options *o)
{
    const json_t *j = json_object_get(kept, "data_encryption");

    if (!o->data_encryption_given && j)
        o->data_encryption = json_is_true(j);
    return !j || json_is_boolean(j);
}

static bool close_word(struct store_options *o)
{
    const json_t *j = json_object_get(kept, "close");
    const char *word = json_string_value(j);
    int i = 0;

    if (o->close_given || !j)
        return true;
    while (word && fp_close_names[i] && strcmp(fp_close_names[i], word) != 0)
        i++;
    o->close_given = word && fp_close_names[i];
    o->close = o->close_given ? i : o->close;
    return o->close_given;
}

static bool take(struct store_options *o)
{
    bool ok = json_object_get(kept, "size_bytes") && bytes("size_bytes", o->size_given, FP_MIB(64), &o->size_bytes) && backend(o);

    ok = ok && text("mount", o->mount_given, &o->mount) && (!o->mount || *o->mount == '/') && number("mounts", o->mounts_given, 1, STORE_MOUNTS_MAX, &o->mounts);
    ok = ok && bytes("pool_bytes", o->pool_given, 1, &o->pool_bytes) && bytes("chunk_size_bytes", o->chunk_size_given, 0, &o->chunk_size_bytes);
    ok = ok && number("stripe", o->stripe_given, 0, INT64_MAX, &o->stripe) && text("cores", o->cores_given, &o->cores);
    return ok && auxapps(o) && encryption(o) && close_word(o);
}

int store_shape_load(struct store_options *o)
{
    const char *name;
    json_t *value;
    int rc = load(o);

    if (rc < 0 || !kept)
        return rc;
    if (!take(o)) {
        FP_ERROR("%s/fp-store.shape does not look right: remove it, and give --size, --backend, --mount and what else is not as by default", o->dir);
        return -EINVAL;
    }
    json_object_foreach(json_object_get(kept, "environment"), name, value)
    {
        if (getenv(name) || !json_is_string(value))
            continue;
        FP_INFO("as it was up before: %s=%s", name, json_string_value(value));
        setenv(name, json_string_value(value), 1);
    }
    return 0;
}

const char *store_shape_variable(const struct store_options *o, const char *name)
{
    return load(o) < 0 ? NULL : json_string_value(json_object_get(json_object_get(kept, "environment"), name));
}

int store_shape_environment(const struct store_options *o)
{
    const char *name;
    json_t *value, *now, *env;
    int rc = load(o);

    env = json_object_get(kept, "environment");
    if (rc < 0 || !env)
        return rc;
    now = environment();
    json_object_foreach(now, name, value)
        unsetenv(name);
    json_decref(now);
    json_object_foreach(env, name, value)
        if (json_is_string(value))
            setenv(name, json_string_value(value), 1);
    return 0;
}
