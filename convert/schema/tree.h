/*
 * The text of a schema as a tree, with the place of each node in it. YAML 1.1 as libyaml reads it, and so JSON; without anchors, aliases and tags, of one document, and within bounds. No I/O.
 */
#ifndef CV_SCHEMA_TREE_H
#define CV_SCHEMA_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include "convert/fail.h"

#define CV_TREE_DEPTH 16u          /* maps and lists in each other */
#define CV_TREE_NODES (1u << 19)
#define CV_TREE_KEYS  1024u        /* of one map */

enum cv_node_kind { CV_NODE_SCALAR = 1, CV_NODE_LIST, CV_NODE_MAP };

struct cv_node {
    enum cv_node_kind kind;
    bool plain;                        /* a scalar without quotes */
    unsigned line, column;             /* from 1 on */
    unsigned key_line, key_column;
    char *key;                         /* in a map; else NULL */
    char *text;                        /* of a scalar: UTF-8 without NUL; else NULL */
    struct cv_node *first, *next;      /* children, in the order of the text */
    size_t count;                      /* of them */
};

/* name: of the text, for *why. 0, or negative with why. The tree is the caller's, for cv_tree_free. The root is a map. */
int cv_tree_parse(const char *name, const char *text, size_t len, struct cv_node **out, struct cv_fail *why);
void cv_tree_free(struct cv_node *root); /* NULL is none */
/* Of a map; NULL: it has no such key. */
const struct cv_node *cv_node_find(const struct cv_node *map, const char *key);
/* -EINVAL, with "line L, column C: …" in why. */
int cv_tree_mistake(struct cv_fail *why, const char *name, unsigned line, unsigned column, const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif
