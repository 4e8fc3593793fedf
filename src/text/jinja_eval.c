/* jinja_eval.c - expressions. */
#include "text/jinja_eval.h"

#include <string.h>

#include "text/jinja_builtin.h"
#include "text/jinja_lex.h"

static int find_name(jinja_ctx *c, const char *name, const jinja_scope *s, jinja_value *out)
{
    for (; s; s = s->parent) {
        TRY(jinja_step(c, 8 * s->n));
        for (size_t i = 0; i < s->n; i++)
            if (strcmp(s->names[i], name) == 0) {
                *out = s->values[i];
                return LILY_OK;
            }
    }
    int function = jinja_builtin_find(JINJA_FUNCTIONS, name);
    *out = function >= 0 ? (jinja_value){JINJA_FUNCTION, {.function = function}} : jinja_undefined(name);
    return LILY_OK;
}

static int eval_list(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_value *out)
{
    jinja_list *l;
    TRY(jinja_list_new(c, &l));
    l->tuple = n->kind == JINJA_MAKE_TUPLE;
    for (size_t i = 0; i < n->n; i++) {
        jinja_value v;
        TRY(jinja_eval(c, n->list[i], s, &v));
        TRY(jinja_list_add(c, l, v));
    }
    *out = (jinja_value){JINJA_LIST, {.list = l}};
    return LILY_OK;
}

static int eval_dict(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_value *out)
{
    jinja_dict *d;
    TRY(jinja_dict_new(c, &d));
    for (size_t i = 0; i < n->n; i += 2) {
        jinja_value key, v;
        TRY(jinja_eval(c, n->list[i], s, &key));
        TRY(jinja_eval(c, n->list[i + 1], s, &v));
        TRY(jinja_dict_set(c, d, key, v));
    }
    *out = (jinja_value){JINJA_DICT, {.dict = d}};
    return LILY_OK;
}

/* A filter, test, method or function on `self`. */
static int run_builtin(jinja_ctx *c, const jinja_builtin *b, const jinja_node *n, const jinja_value *self, jinja_scope *s,
                       jinja_value *out)
{
    jinja_value values[JINJA_MAX_ARGS];
    const jinja_value *args[JINJA_MAX_ARGS] = {0};
    for (size_t i = 0; i < n->n; i++) {
        if (!n->list[i]) continue;
        TRY(jinja_eval(c, n->list[i], s, &values[i]));
        args[i] = &values[i];
    }
    c->line = n->line;
    return b->run(c, self, args, out);
}

static int call_method(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_value *out)
{
    const jinja_builtin *b = &JINJA_METHODS[n->op];
    jinja_value self, attribute;
    TRY(jinja_eval(c, n->a, s, &self));
    c->line = n->line;
    TRY(jinja_attribute(c, &self, b->name, &attribute));
    if (attribute.kind != JINJA_METHOD)
        return jinja_error(c, LILY_ARGUMENT, "a %s has no method '%s'", jinja_type_name(&self), b->name);
    if (self.kind == JINJA_LIST) return jinja_error(c, LILY_UNSUPPORTED, "list.%s is not supported", b->name);
    return run_builtin(c, b, n, &self, s, out);
}

static int make_namespace(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_value *out)
{
    jinja_dict *d;
    TRY(jinja_dict_new(c, &d));
    for (size_t i = 0; i < n->n; i++) {
        jinja_value key, v;
        if (!n->names[i]) return jinja_error(c, LILY_UNSUPPORTED, "namespace() with a positional argument is not supported");
        if (n->names[i][0] == '_') return jinja_error(c, LILY_ARGUMENT, "a namespace has no '%s'", n->names[i]);
        TRY(jinja_text(c, n->names[i], strlen(n->names[i]), true, false, &key));
        TRY(jinja_eval(c, n->list[i], s, &v));
        TRY(jinja_dict_set(c, d, key, v));
    }
    *out = (jinja_value){JINJA_NAMESPACE, {.dict = d}};
    return LILY_OK;
}

static int call_name(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_value *out)
{
    jinja_value callee;
    TRY(find_name(c, n->name, s, &callee));
    if (callee.kind == JINJA_MACRO) return jinja_call_macro(c, n, &callee, s, out);
    if (callee.kind != JINJA_FUNCTION)
        return jinja_error(c, LILY_ARGUMENT, "'%s' is a %s and cannot be called", n->name, jinja_type_name(&callee));
    const jinja_builtin *b = &JINJA_FUNCTIONS[callee.u.function];
    if (!b->run) return make_namespace(c, n, s, out);
    bool fits = n->n >= (size_t)b->least && n->n <= (size_t)b->most;
    for (size_t i = 0; i < n->n && fits; i++)
        fits = !n->names[i] || (b->params[i] && strcmp(b->params[i], n->names[i]) == 0);
    if (!fits) return jinja_error(c, LILY_ARGUMENT, "'%s' is called with other arguments than it has", b->name);
    return run_builtin(c, b, n, NULL, s, out);
}

static int eval_slice(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_value *out)
{
    jinja_value v, bounds[3];
    TRY(jinja_eval(c, n->a, s, &v));
    for (int i = 0; i < 3; i++) {
        bounds[i] = jinja_none();
        if (n->list[i]) TRY(jinja_eval(c, n->list[i], s, &bounds[i]));
        if (bounds[i].kind == JINJA_BOOL) bounds[i] = jinja_int(bounds[i].u.b);
    }
    return jinja_slice(c, &v, bounds, out);
}

static int eval_negate(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_value *out)
{
    jinja_value v, zero = jinja_int(0);
    TRY(jinja_eval(c, n->a, s, &v));
    if (v.kind == JINJA_FLOAT) {
        *out = v;
        if (n->op == '-') out->u.f = -v.u.f;
        return LILY_OK;
    }
    if (v.kind == JINJA_STR || v.kind == JINJA_LIST)
        return jinja_error(c, LILY_ARGUMENT, "a %s has no sign", jinja_type_name(&v));
    return jinja_binary(c, n->op, &zero, &v, out);
}

static int eval_concat(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_value *out)
{
    const jinja_str **parts;
    TRY(jinja_alloc(c, &parts, n->n, sizeof *parts));
    for (size_t i = 0; i < n->n; i++) {
        jinja_value v;
        TRY(jinja_eval(c, n->list[i], s, &v));
        TRY(jinja_str_of(c, &v, &parts[i]));
    }
    return jinja_concat(c, parts, n->n, out);
}

static int compare(jinja_ctx *c, int op, const jinja_value *a, const jinja_value *b, bool *out)
{
    int order;
    if (op == JINJA_OP2('=', '=') || op == JINJA_OP2('!', '=')) {
        TRY(jinja_equal(c, a, b, out));
        *out ^= op == JINJA_OP2('!', '=');
        return LILY_OK;
    }
    if (op == JINJA_OP_IN || op == JINJA_OP_NOT_IN) {
        TRY(jinja_contains(c, b, a, out));
        *out ^= op == JINJA_OP_NOT_IN;
        return LILY_OK;
    }
    TRY(jinja_compare(c, a, b, &order));
    if (op == '<') *out = order < 0;
    else if (op == '>') *out = order > 0;
    else *out = op == JINJA_OP2('<', '=') ? order <= 0 : order >= 0;
    return LILY_OK;
}

static int eval_compare(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_value *out)
{
    jinja_value left, right;
    bool holds = true;
    TRY(jinja_eval(c, n->list[0], s, &left));
    for (size_t i = 1; i < n->n && holds; i++, left = right) {
        TRY(jinja_eval(c, n->list[i], s, &right));
        c->line = n->line;
        TRY(compare(c, n->ops[i - 1], &left, &right, &holds));
    }
    *out = jinja_bool(holds);
    return LILY_OK;
}

/* and, or: the value of the side that decides, as in Python. */
static int eval_logic(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_value *out)
{
    bool truth;
    TRY(jinja_eval(c, n->a, s, out));
    TRY(jinja_truth(c, out, &truth));
    return truth == (n->kind == JINJA_AND) ? jinja_eval(c, n->b, s, out) : LILY_OK;
}

static int eval_cond(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_value *out)
{
    jinja_value condition;
    bool truth;
    TRY(jinja_eval(c, n->b, s, &condition));
    TRY(jinja_truth(c, &condition, &truth));
    if (truth || n->c) return jinja_eval(c, truth ? n->a : n->c, s, out);
    *out = jinja_undefined("an inline if without else");
    return LILY_OK;
}

static int eval_binary(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_value *out)
{
    jinja_value a, b;
    TRY(jinja_eval(c, n->a, s, &a));
    TRY(jinja_eval(c, n->b, s, &b));
    c->line = n->line;
    return n->kind == JINJA_ITEM ? jinja_item(c, &a, &b, out) : jinja_binary(c, n->op, &a, &b, out);
}

/* Nodes with one operand that is evaluated first. */
static int eval_unary(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_value *out)
{
    jinja_value v;
    bool truth;
    TRY(jinja_eval(c, n->a, s, &v));
    c->line = n->line;
    if (n->kind == JINJA_ATTR) return jinja_attribute(c, &v, n->name, out);
    if (n->kind == JINJA_FILTERED) return run_builtin(c, &JINJA_FILTERS[n->op], n, &v, s, out);
    if (n->kind == JINJA_TESTED) return run_builtin(c, &JINJA_TESTS[n->op], n, &v, s, out);
    TRY(jinja_truth(c, &v, &truth));
    *out = jinja_bool(!truth);
    return LILY_OK;
}

static int eval_node(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_value *out)
{
    switch (n->kind) {
    case JINJA_CONST: *out = n->value; return LILY_OK;
    case JINJA_NAME: return find_name(c, n->name, s, out);
    case JINJA_MAKE_LIST:
    case JINJA_MAKE_TUPLE: return eval_list(c, n, s, out);
    case JINJA_MAKE_DICT: return eval_dict(c, n, s, out);
    case JINJA_ITEM:
    case JINJA_BINARY: return eval_binary(c, n, s, out);
    case JINJA_SLICE: return eval_slice(c, n, s, out);
    case JINJA_CALL_NAME: return call_name(c, n, s, out);
    case JINJA_CALL_METHOD: return call_method(c, n, s, out);
    case JINJA_ATTR:
    case JINJA_FILTERED:
    case JINJA_TESTED:
    case JINJA_NOT: return eval_unary(c, n, s, out);
    case JINJA_NEGATE: return eval_negate(c, n, s, out);
    case JINJA_AND:
    case JINJA_OR: return eval_logic(c, n, s, out);
    case JINJA_CONCAT: return eval_concat(c, n, s, out);
    case JINJA_COMPARE: return eval_compare(c, n, s, out);
    case JINJA_COND: return eval_cond(c, n, s, out);
    default: return jinja_error(c, LILY_INTERNAL, "a statement where an expression should be");
    }
}

int jinja_eval(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_value *out)
{
    c->line = n->line;
    TRY(jinja_step(c, 0));
    TRY(jinja_enter(c));
    int rc = eval_node(c, n, s, out);
    c->depth--;
    return rc;
}
