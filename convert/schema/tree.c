/*
 * The text of a schema as a tree (tree.h). Called by keys.c. One thread; no I/O.
 *
 * libyaml's events are taken one by one, and each bound (depth, nodes, keys of a map) is checked where a node is made, so that a text of a few bytes never becomes a tree of gigabytes. Aliases are
 * refused, not followed: a schema has no use for them that a few more lines would not serve, and they are the way to such trees. Rejected: libyaml's own documents (yaml_document_t), which have
 * no bounds, and keys that stand twice in a map without a word.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "convert/schema/tree.h"

struct level {
    struct cv_node *node, *last; /* a map or a list, and its last child */
    char *key;                   /* of a map: read, and its value is not yet */
    unsigned key_line, key_column;
};

struct building {
    const char *name, *text;
    size_t len;
    struct cv_fail *why;
    struct level stack[CV_TREE_DEPTH];
    unsigned depth;
    size_t nodes;
    struct cv_node *root;
    bool ended; /* a document has been read */
};

int cv_tree_mistake(struct cv_fail *why, const char *name, unsigned line, unsigned column, const char *format, ...)
{
    char text[400];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return cv_fail(why, -EINVAL, name, NULL, CV_NO_OFFSET, "line %u, column %u: %s", line, column, text);
}

void cv_tree_free(struct cv_node *n)
{
    while (n) {
        struct cv_node *next = n->next;

        cv_tree_free(n->first);
        free(n->key);
        free(n->text);
        free(n);
        n = next;
    }
}

const struct cv_node *cv_node_find(const struct cv_node *map, const char *key)
{
    for (const struct cv_node *n = map->first; n; n = n->next)
        if (strcmp(n->key, key) == 0)
            return n;
    return NULL;
}

#define AT(m) (unsigned)(m).line + 1, (unsigned)(m).column + 1

static int out_of_memory(struct building *b)
{
    return cv_fail(b->why, -ENOMEM, b->name, NULL, CV_NO_OFFSET, "no memory is left for the schema");
}

/* What the scalar says, of its own; NUL in it is refused. */
static int scalar_text(struct building *b, const yaml_event_t *e, char **out)
{
    size_t len = e->data.scalar.length;

    if (memchr(e->data.scalar.value, 0, len))
        return cv_tree_mistake(b->why, b->name, AT(e->start_mark), "a NUL character is in the text");
    *out = malloc(len + 1);
    if (!*out)
        return out_of_memory(b);
    memcpy(*out, e->data.scalar.value, len);
    (*out)[len] = '\0';
    return 0;
}

static int key_is_new(struct building *b, const struct level *l)
{
    const struct cv_node *twin = cv_node_find(l->node, l->key);

    if (twin)
        return cv_tree_mistake(b->why, b->name, l->key_line, l->key_column, "the key \"%.60s\" is there already, in line %u", l->key, twin->key_line);
    if (l->node->count == CV_TREE_KEYS)
        return cv_tree_mistake(b->why, b->name, l->key_line, l->key_column, "more than %u keys in one map", CV_TREE_KEYS);
    return 0;
}

/* Puts a new node of this event to where it belongs. */
static int hang(struct building *b, const yaml_event_t *e, enum cv_node_kind kind, struct cv_node **out)
{
    struct level *l = b->depth ? &b->stack[b->depth - 1] : NULL;
    struct cv_node *n;

    if (b->nodes == CV_TREE_NODES)
        return cv_tree_mistake(b->why, b->name, AT(e->start_mark), "the schema has more than %u values", CV_TREE_NODES);
    n = calloc(1, sizeof *n);
    if (!n)
        return out_of_memory(b);
    b->nodes++;
    n->kind = kind;
    n->line = (unsigned)e->start_mark.line + 1;
    n->column = (unsigned)e->start_mark.column + 1;
    if (!l) {
        b->root = n;
    } else {
        n->key = l->key;
        n->key_line = l->key_line;
        n->key_column = l->key_column;
        l->key = NULL;
        *(l->last ? &l->last->next : &l->node->first) = n;
        l->last = n;
        l->node->count++;
    }
    *out = n;
    return 0;
}

static bool wants_key(const struct building *b)
{
    const struct level *l = b->depth ? &b->stack[b->depth - 1] : NULL;

    return l && l->node->kind == CV_NODE_MAP && !l->key;
}

static int on_scalar(struct building *b, const yaml_event_t *e)
{
    struct level *l = b->depth ? &b->stack[b->depth - 1] : NULL;
    struct cv_node *n;
    char *text;
    int rc;

    if (e->data.scalar.tag || e->data.scalar.anchor)
        return cv_tree_mistake(b->why, b->name, AT(e->start_mark), "%s: write the value without", e->data.scalar.tag ? "a tag (!…) is not understood" : "an anchor (&…) is not understood");
    rc = scalar_text(b, e, &text);
    if (rc)
        return rc;
    if (wants_key(b)) {
        l->key = text;
        l->key_line = (unsigned)e->start_mark.line + 1;
        l->key_column = (unsigned)e->start_mark.column + 1;
        return key_is_new(b, l);
    }
    rc = hang(b, e, CV_NODE_SCALAR, &n);
    if (rc) {
        free(text);
        return rc;
    }
    n->text = text;
    n->plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    return 0;
}

static int on_begin(struct building *b, const yaml_event_t *e)
{
    bool map = e->type == YAML_MAPPING_START_EVENT;
    const void *tag = map ? e->data.mapping_start.tag : e->data.sequence_start.tag, *anchor = map ? e->data.mapping_start.anchor : e->data.sequence_start.anchor;
    struct cv_node *n;
    int rc;

    if (tag || anchor)
        return cv_tree_mistake(b->why, b->name, AT(e->start_mark), "%s: write the value without", tag ? "a tag (!…) is not understood" : "an anchor (&…) is not understood");
    if (wants_key(b))
        return cv_tree_mistake(b->why, b->name, AT(e->start_mark), "a key is a word, not a %s", map ? "map" : "list");
    if (b->depth == CV_TREE_DEPTH)
        return cv_tree_mistake(b->why, b->name, AT(e->start_mark), "lists and maps are more than %u deep in each other", CV_TREE_DEPTH);
    if (!b->depth && !map)
        return cv_tree_mistake(b->why, b->name, AT(e->start_mark), "a schema is a map of keys (fpschema: 1, …), not a list");
    rc = hang(b, e, map ? CV_NODE_MAP : CV_NODE_LIST, &n);
    if (rc == 0)
        b->stack[b->depth++] = (struct level){.node = n};
    return rc;
}

static int take(struct building *b, const yaml_event_t *e)
{
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (b->ended)
            return cv_tree_mistake(b->why, b->name, AT(e->start_mark), "a second document begins: a schema is one");
        return 0;
    case YAML_DOCUMENT_END_EVENT:
        b->ended = true;
        return 0;
    case YAML_ALIAS_EVENT:
        return cv_tree_mistake(b->why, b->name, AT(e->start_mark), "an alias (*%.60s) is not understood: write the value out", (const char *)e->data.alias.anchor);
    case YAML_SCALAR_EVENT:
        if (!b->depth)
            return cv_tree_mistake(b->why, b->name, AT(e->start_mark), "a schema is a map of keys (fpschema: 1, …), not a single value");
        return on_scalar(b, e);
    case YAML_MAPPING_START_EVENT:
    case YAML_SEQUENCE_START_EVENT:
        return on_begin(b, e);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        b->depth--;
        return 0;
    default:
        return 0;
    }
}

/* What libyaml says; a byte that is no text has no mark, but a place. */
static int not_yaml(struct building *b, const yaml_parser_t *p)
{
    yaml_mark_t at = p->problem_mark;

    if (p->error == YAML_MEMORY_ERROR)
        return out_of_memory(b);
    if (p->error == YAML_READER_ERROR) {
        at.line = at.column = 0;
        for (size_t i = 0; i < p->problem_offset && i < b->len; i++) {
            at.column = b->text[i] == '\n' ? 0 : at.column + ((b->text[i] & 0xc0) != 0x80);
            at.line += b->text[i] == '\n';
        }
    }
    return cv_tree_mistake(b->why, b->name, AT(at), "this is no YAML: %s%s%s", p->problem ? p->problem : "not understood", p->context ? ", " : "", p->context ? p->context : "");
}

int cv_tree_parse(const char *name, const char *text, size_t len, struct cv_node **out, struct cv_fail *why)
{
    struct building b = {.name = name, .text = text, .len = len, .why = why};
    yaml_parser_t parser;
    bool more = true;
    int rc = 0;

    if (!yaml_parser_initialize(&parser))
        return out_of_memory(&b);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    while (rc == 0 && more) {
        yaml_event_t event;

        if (!yaml_parser_parse(&parser, &event)) {
            rc = not_yaml(&b, &parser);
            break;
        }
        more = event.type != YAML_STREAM_END_EVENT;
        rc = take(&b, &event);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    for (unsigned i = 0; i < b.depth; i++)
        free(b.stack[i].key);
    if (rc == 0 && !b.root)
        rc = cv_tree_mistake(why, name, 1, 1, "the schema is empty: it begins with fpschema: 1");
    if (rc) {
        cv_tree_free(b.root);
        return rc;
    }
    *out = b.root;
    return 0;
}
