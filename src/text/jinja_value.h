/* jinja_value.h - the values that a template computes with, and one rendering's memory and bounds.
 *
 * Values follow Python, because jinja2 does: truth, ==, str() and repr() are Python's.  A string knows the
 * origin of each of its bytes: runs of control (template) and data (request). */
#ifndef LILY_TEXT_JINJA_VALUE_H
#define LILY_TEXT_JINJA_VALUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

/* One rendering (or the constants of one parse).  Nothing in the arena is freed before the end. */
typedef struct jinja_ctx {
    lily_arena arena;
    size_t arena_limit;    /* bytes */
    int64_t steps_left;    /* evaluated nodes, loop turns, and one per 256 bytes of string work */
    int depth;             /* nested evaluations, macro calls and values being walked */
    int line;              /* of the statement or expression at work */
    const char *name;      /* of the template, for errors */
    lily_err *err;
} jinja_ctx;

enum { JINJA_MAX_DEPTH = 2500 };

typedef struct jinja_run {
    size_t end;            /* bytes from the end of the previous run up to here … */
    bool control;          /* … are the template's own */
} jinja_run;

typedef struct jinja_str {
    const char *p;         /* valid UTF-8, not NUL-terminated */
    size_t n;
    const jinja_run *runs; /* NULL: one origin, `control` */
    size_t n_runs;
    bool control;
    bool markup;           /* passed through `safe`: "+" with an ordinary string escapes that one, as markupsafe does */
} jinja_str;

typedef enum jinja_kind {
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_NUMBER_TEXT,     /* a number out of JSON that fits neither int64 nor double: carried, not computed with */
    JINJA_STR,
    JINJA_LIST,            /* tuples and views of dicts too */
    JINJA_DICT,
    JINJA_NAMESPACE,
    JINJA_LOOP,
    JINJA_MACRO,
    JINJA_FUNCTION,        /* range, namespace, raise_exception */
    JINJA_METHOD,          /* "abc".split: what a call makes of it */
} jinja_kind;

typedef struct jinja_value jinja_value;

typedef struct jinja_list {
    jinja_value *items;
    size_t n, cap;
    bool tuple;            /* repr() and == differ */
    bool view;             /* of a dict (items …): to be walked, nothing else */
    bool generator;        /* a view by a filter: true even if empty, and without length */
} jinja_list;

typedef struct jinja_dict {    /* keys keep the order in which they came */
    jinja_value *keys, *values;
    size_t n, cap;
} jinja_dict;

typedef struct jinja_loop {
    const jinja_list *items;
    size_t at;             /* index0 */
} jinja_loop;

struct jinja_node;
struct jinja_scope;

struct jinja_value {
    jinja_kind kind;
    union {
        bool b;
        int64_t i;
        double f;
        const jinja_str *s;               /* STR, NUMBER_TEXT */
        jinja_list *list;
        jinja_dict *dict;                 /* DICT, NAMESPACE */
        jinja_loop *loop;
        struct {
            const struct jinja_node *def; /* MACRO */
            struct jinja_scope *scope;    /* where it was defined */
        } macro;
        int function;                     /* FUNCTION */
        struct {
            const jinja_value *self;
            int name;                     /* enum jinja_method, -1 for one that cannot be called */
        } method;
        const char *missing;              /* UNDEFINED: what is missing, for errors; may be NULL */
    } u;
};

/* Errors: LILY_ARGUMENT "NAME: line N: …"; LILY_NO_MEMORY; LILY_UNSUPPORTED past a bound. */
int jinja_error(jinja_ctx *c, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
int jinja_step(jinja_ctx *c, size_t bytes);           /* counts one step and the work on `bytes` */
int jinja_enter(jinja_ctx *c);                        /* one level deeper; pairs with c->depth-- on success */
int jinja_alloc(jinja_ctx *c, void *out, size_t n, size_t size);    /* *(void **)out = zeroed memory */

static inline jinja_value jinja_bool(bool b) { return (jinja_value){JINJA_BOOL, {.b = b}}; }
static inline jinja_value jinja_int(int64_t i) { return (jinja_value){JINJA_INT, {.i = i}}; }
static inline jinja_value jinja_none(void) { return (jinja_value){JINJA_NONE, {0}}; }
static inline jinja_value jinja_undefined(const char *what)
{
    return (jinja_value){JINJA_UNDEFINED, {.missing = what}};
}

/* Lists and dicts. */
int jinja_list_new(jinja_ctx *c, jinja_list **out);
int jinja_list_add(jinja_ctx *c, jinja_list *l, jinja_value v);
int jinja_dict_new(jinja_ctx *c, jinja_dict **out);
int jinja_dict_set(jinja_ctx *c, jinja_dict *d, jinja_value key, jinja_value v);
/* Adds without looking for the key. */
int jinja_dict_add(jinja_ctx *c, jinja_dict *d, jinja_value key, jinja_value v);
/* The value, or NULL. */
const jinja_value *jinja_dict_get(const jinja_dict *d, const char *key, size_t n);
int jinja_dict_find(jinja_ctx *c, const jinja_dict *d, const jinja_value *key, const jinja_value **out);

/* Data from outside: strings point into j, which must outlive the rendering. */
int jinja_from_json(jinja_ctx *c, const json_t *j, jinja_value *out);

const char *jinja_type_name(const jinja_value *v);    /* as Python calls it */
int jinja_truth(jinja_ctx *c, const jinja_value *v, bool *out);
int jinja_equal(jinja_ctx *c, const jinja_value *a, const jinja_value *b, bool *out);
/* Python's "a < b" as -1, 0, 1; numbers, strings, and lists of them. */
int jinja_compare(jinja_ctx *c, const jinja_value *a, const jinja_value *b, int *out);
int jinja_contains(jinja_ctx *c, const jinja_value *box, const jinja_value *v, bool *out);
/* len(v) */
int jinja_length(jinja_ctx *c, const jinja_value *v, size_t *out);
/* What a for loop walks: a list as it is, the keys of a dict, the characters of a string. */
int jinja_iterate(jinja_ctx *c, const jinja_value *v, jinja_list **out);

#endif
