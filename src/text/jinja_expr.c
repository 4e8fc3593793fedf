/* jinja_expr.c - the parser of expressions: jinja2's own grammar, one function a level of precedence. */
#include <string.h>

#include "text/jinja_builtin.h"
#include "text/jinja_parse.h"

static int parse_or(jinja_parser *p, jinja_node **out);
static int parse_unary(jinja_parser *p, bool with_filter, jinja_node **out);

static int list_until(jinja_parser *p, int close, const char *text, jinja_node *list)
{
    while (!jinja_is_op(p, close)) {
        jinja_node *item;
        if (list->n) TRY(jinja_expect_op(p, ',', ","));
        if (jinja_is_op(p, close)) break;
        TRY(jinja_parse_expr(p, true, &item));
        TRY(jinja_node_add(p, list, item));
    }
    return jinja_expect_op(p, close, text);
}

static int parse_dict(jinja_parser *p, jinja_node **out)
{
    TRY(jinja_node_new(p, JINJA_MAKE_DICT, out));
    p->at++;
    while (!jinja_is_op(p, '}')) {
        jinja_node *key, *value;
        if ((*out)->n) TRY(jinja_expect_op(p, ',', ","));
        if (jinja_is_op(p, '}')) break;
        TRY(jinja_parse_expr(p, true, &key));
        TRY(jinja_expect_op(p, ':', ":"));
        TRY(jinja_parse_expr(p, true, &value));
        TRY(jinja_node_add(p, *out, key));
        TRY(jinja_node_add(p, *out, value));
    }
    return jinja_expect_op(p, '}', "}");
}

static int parse_name(jinja_parser *p, jinja_node **out)
{
    static const struct {
        const char *name;
        jinja_kind kind;
        bool b;
    } words[] = {{"true", JINJA_BOOL, true}, {"True", JINJA_BOOL, true}, {"false", JINJA_BOOL, false},
                 {"False", JINJA_BOOL, false}, {"none", JINJA_NONE, false}, {"None", JINJA_NONE, false}};
    static const char *const reserved[] = {"self", "super", "caller", "varargs", "kwargs"};
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
        if (jinja_is_name(p, reserved[i])) return jinja_unsupported(p, "the variable '%s'", reserved[i]);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!jinja_take_name(p, words[i].name)) continue;
        TRY(jinja_node_new(p, JINJA_CONST, out));
        (*out)->value = (jinja_value){words[i].kind, {.b = words[i].b}};
        return LILY_OK;
    }
    TRY(jinja_node_new(p, JINJA_NAME, out));
    (*out)->name = (p->at++)->text;
    return LILY_OK;
}

/* Strings that stand side by side are one. */
static int parse_string(jinja_parser *p, jinja_node **out)
{
    TRY(jinja_node_new(p, JINJA_CONST, out));
    (*out)->value = (p->at++)->value;
    while (p->at->kind == JINJA_TOK_STRING) {
        const jinja_str *both[] = {(*out)->value.u.s, (p->at++)->value.u.s};
        size_t n = both[0]->n + both[1]->n;
        char *text;
        TRY(jinja_alloc(p->c, &text, n + 1, 1));
        memcpy(text, both[0]->p, both[0]->n);
        memcpy(text + both[0]->n, both[1]->p, both[1]->n);
        jinja_str *joined;
        TRY(jinja_alloc(p->c, &joined, 1, sizeof *joined));
        *joined = (jinja_str){.p = text, .n = n, .control = true};
        (*out)->value.u.s = joined;
    }
    return LILY_OK;
}

static int parse_primary(jinja_parser *p, jinja_node **out)
{
    if (p->at->kind == JINJA_TOK_NAME) return parse_name(p, out);
    if (p->at->kind == JINJA_TOK_STRING) return parse_string(p, out);
    if (p->at->kind == JINJA_TOK_NUMBER) {
        TRY(jinja_node_new(p, JINJA_CONST, out));
        (*out)->value = (p->at++)->value;
        return LILY_OK;
    }
    if (jinja_is_op(p, '{')) return parse_dict(p, out);
    if (jinja_is_op(p, '[')) {
        TRY(jinja_node_new(p, JINJA_MAKE_LIST, out));
        p->at++;
        return list_until(p, ']', "]", *out);
    }
    if (!jinja_take_op(p, '(')) return jinja_syntax(p, "an expression is missing");
    if (jinja_is_op(p, ')')) TRY(jinja_node_new(p, JINJA_MAKE_TUPLE, out));
    else TRY(jinja_parse_tuple(p, true, out));
    return jinja_expect_op(p, ')', ")");
}

/* The arguments of a call, behind the "(": positional ones, then keywords. */
static int parse_args(jinja_parser *p, jinja_node *call)
{
    const char *keywords[64];
    p->at++;
    while (!jinja_is_op(p, ')')) {
        jinja_node *value;
        if (call->n) TRY(jinja_expect_op(p, ',', ","));
        if (jinja_is_op(p, ')')) break;
        if (jinja_is_op(p, '*') || jinja_is_op(p, JINJA_OP2('*', '*'))) return jinja_unsupported(p, "an argument with '*'");
        if (call->n == sizeof keywords / sizeof *keywords) return jinja_unsupported(p, "a call with so many arguments");
        keywords[call->n] = NULL;
        if (p->at->kind == JINJA_TOK_NAME && p->at[1].kind == JINJA_TOK_OP && p->at[1].op == '=') {
            keywords[call->n] = p->at->text;
            p->at += 2;
        } else if (call->n && keywords[call->n - 1]) {
            return jinja_syntax(p, "a positional argument behind a keyword");
        }
        TRY(jinja_parse_expr(p, true, &value));
        TRY(jinja_node_add(p, call, value));
    }
    p->at++;
    TRY(jinja_alloc(p->c, &call->names, call->n + 1, sizeof *call->names));
    if (call->n) memcpy(call->names, keywords, call->n * sizeof *keywords);
    return LILY_OK;
}

/* Puts the arguments of a filter, test or method where its parameters are. */
static int place_args(jinja_parser *p, const jinja_builtin *b, const char *what, jinja_node *call)
{
    jinja_node *placed[JINJA_MAX_ARGS] = {0};
    for (size_t i = 0; i < call->n; i++) {
        size_t slot = i;
        if (call->names[i])
            for (slot = 0; slot < JINJA_MAX_ARGS; slot++)
                if (b->params[slot] && strcmp(b->params[slot], call->names[i]) == 0) break;
        if (slot >= (size_t)b->most)
            return jinja_unsupported(p, "this argument of %s '%s'", what, b->name);
        if (placed[slot]) return jinja_syntax(p, "an argument of '%s' is given twice", b->name);
        placed[slot] = call->list[i];
    }
    for (int i = 0; i < b->least; i++)
        if (!placed[i]) return jinja_syntax(p, "%s '%s' needs %d arguments", what, b->name, b->least);
    TRY(jinja_alloc(p->c, &call->list, JINJA_MAX_ARGS, sizeof *call->list));
    memcpy(call->list, placed, sizeof placed);
    call->n = (size_t)b->most;
    return LILY_OK;
}

static int parse_call(jinja_parser *p, jinja_node **node)
{
    jinja_node *callee = *node, *call;
    if (callee->kind == JINJA_NAME) {
        bool known = jinja_builtin_find(JINJA_FUNCTIONS, callee->name) >= 0;
        for (size_t i = 0; i < p->n_callable && !known; i++) known = strcmp(p->callable[i], callee->name) == 0;
        if (!known) return jinja_unsupported(p, "function '%s'", callee->name);
        TRY(jinja_node_new(p, JINJA_CALL_NAME, &call));
        call->name = callee->name;
        *node = call;
        return parse_args(p, call);
    }
    if (callee->kind != JINJA_ATTR) return jinja_unsupported(p, "a call of this expression");
    int method = jinja_builtin_find(JINJA_METHODS, callee->name);
    if (method < 0) return jinja_unsupported(p, "method '%s'", callee->name);
    TRY(jinja_node_new(p, JINJA_CALL_METHOD, &call));
    call->op = method;
    call->a = callee->a;
    *node = call;
    TRY(parse_args(p, call));
    return place_args(p, &JINJA_METHODS[method], "method", call);
}

static int parse_bracket(jinja_parser *p, jinja_node **node)
{
    jinja_node *item, *bounds[3] = {0};
    TRY(jinja_node_new(p, JINJA_ITEM, &item));
    item->a = *node;
    p->at++;
    if (!jinja_is_op(p, ':')) TRY(jinja_parse_expr(p, true, &bounds[0]));
    for (int i = 1; i < 3 && jinja_take_op(p, ':'); i++) {
        item->kind = JINJA_SLICE;
        if (!jinja_is_op(p, ':') && !jinja_is_op(p, ']')) TRY(jinja_parse_expr(p, true, &bounds[i]));
    }
    item->b = bounds[0];
    if (item->kind == JINJA_SLICE) {
        TRY(jinja_alloc(p->c, &item->list, 3, sizeof *item->list));
        memcpy(item->list, bounds, sizeof bounds);
    }
    *node = item;
    return jinja_expect_op(p, ']', "]");
}

static int parse_dot(jinja_parser *p, jinja_node **node)
{
    jinja_node *attr;
    TRY(jinja_node_new(p, JINJA_ATTR, &attr));
    attr->a = *node;
    p->at++;
    if (p->at->kind == JINJA_TOK_NUMBER && p->at->value.kind == JINJA_INT) {
        attr->kind = JINJA_ITEM;
        TRY(jinja_node_new(p, JINJA_CONST, &attr->b));
        attr->b->value = (p->at++)->value;
    } else if (p->at->kind == JINJA_TOK_NAME) {
        attr->name = (p->at++)->text;
        if (strncmp(attr->name, "__", 2) == 0) return jinja_unsupported(p, "attribute '%s'", attr->name);
        if ((*node)->kind == JINJA_NAME && strcmp((*node)->name, "loop") == 0 && !jinja_loop_has(attr->name))
            return jinja_unsupported(p, "'loop.%s'", attr->name);
    } else {
        return jinja_syntax(p, "a name is missing behind '.'");
    }
    *node = attr;
    return LILY_OK;
}

static int parse_postfix(jinja_parser *p, jinja_node **node)
{
    for (;;) {
        if (jinja_is_op(p, '.')) TRY(parse_dot(p, node));
        else if (jinja_is_op(p, '[')) TRY(parse_bracket(p, node));
        else if (jinja_is_op(p, '(')) TRY(parse_call(p, node));
        else return LILY_OK;
    }
}

static int parse_filter(jinja_parser *p, jinja_node **node)
{
    jinja_node *filter;
    p->at++;
    TRY(jinja_node_new(p, JINJA_FILTERED, &filter));
    filter->a = *node;
    TRY(jinja_expect_name(p, &filter->name));
    filter->op = jinja_builtin_find(JINJA_FILTERS, filter->name);
    if (filter->op < 0) return jinja_unsupported(p, "filter '%s'", filter->name);
    if (jinja_is_op(p, '(')) TRY(parse_args(p, filter));
    *node = filter;
    return place_args(p, &JINJA_FILTERS[filter->op], "filter", filter);
}

/* "is NAME", "is NAME(x)", "is NAME x" */
static int parse_test(jinja_parser *p, jinja_node **node)
{
    jinja_node *test, *negated;
    p->at++;
    bool negate = jinja_take_name(p, "not");
    TRY(jinja_node_new(p, JINJA_TESTED, &test));
    test->a = *node;
    if (p->at->kind != JINJA_TOK_NAME) return jinja_syntax(p, "the name of a test is missing");
    test->name = (p->at++)->text;
    test->op = jinja_builtin_find(JINJA_TESTS, test->name);
    if (test->op < 0) return jinja_unsupported(p, "test '%s'", test->name);
    bool operand = p->at->kind == JINJA_TOK_STRING || p->at->kind == JINJA_TOK_NUMBER || jinja_is_op(p, '[') ||
                   jinja_is_op(p, '{') ||
                   (p->at->kind == JINJA_TOK_NAME && !jinja_is_name(p, "else") && !jinja_is_name(p, "or") &&
                    !jinja_is_name(p, "and"));
    if (jinja_is_op(p, '(')) {
        TRY(parse_args(p, test));
    } else if (operand && JINJA_TESTS[test->op].most > 0) {
        jinja_node *value;
        TRY(parse_primary(p, &value));
        TRY(parse_postfix(p, &value));
        TRY(jinja_node_add(p, test, value));
        TRY(jinja_alloc(p->c, &test->names, 1, sizeof *test->names));
    } else if (operand && !jinja_is_name(p, "if") && !jinja_is_name(p, "in") && !jinja_is_name(p, "not")) {
        return jinja_syntax(p, "test '%s' takes no argument", test->name);
    } else if (operand) {
        /* jinja2 would read the word as the argument, and fail. */
        return jinja_syntax(p, "parentheses are missing before '%s'", p->at->text);
    }
    TRY(place_args(p, &JINJA_TESTS[test->op], "test", test));
    *node = test;
    if (!negate) return LILY_OK;
    TRY(jinja_node_new(p, JINJA_NOT, &negated));
    negated->a = test;
    *node = negated;
    return LILY_OK;
}

static int parse_signed(jinja_parser *p, jinja_node **out)
{
    TRY(jinja_node_new(p, JINJA_NEGATE, out));
    (*out)->op = (p->at++)->op;
    TRY(jinja_deeper(p));
    TRY(parse_unary(p, false, &(*out)->a));
    p->nesting--;
    return LILY_OK;
}

static int parse_unary(jinja_parser *p, bool with_filter, jinja_node **out)
{
    if (jinja_is_op(p, '-') || jinja_is_op(p, '+')) TRY(parse_signed(p, out));
    else TRY(parse_primary(p, out));
    TRY(parse_postfix(p, out));
    while (with_filter) {
        if (jinja_is_op(p, '|')) TRY(parse_filter(p, out));
        else if (jinja_is_name(p, "is")) TRY(parse_test(p, out));
        else if (jinja_is_op(p, '(')) TRY(parse_call(p, out));
        else break;
    }
    if (jinja_is_op(p, JINJA_OP2('*', '*'))) return jinja_unsupported(p, "operator '**'");
    return LILY_OK;
}

static int binary(jinja_parser *p, jinja_node_kind kind, jinja_node **left, int (*next)(jinja_parser *, jinja_node **))
{
    jinja_node *node;
    TRY(jinja_node_new(p, kind, &node));
    node->op = (p->at++)->op;
    node->a = *left;
    *left = node;
    return next(p, &node->b);
}

static int parse_operand(jinja_parser *p, jinja_node **out)
{
    return parse_unary(p, true, out);
}

static int parse_product(jinja_parser *p, jinja_node **out)
{
    TRY(parse_operand(p, out));
    while (jinja_is_op(p, '*') || jinja_is_op(p, '/') || jinja_is_op(p, JINJA_OP2('/', '/')) || jinja_is_op(p, '%'))
        TRY(binary(p, JINJA_BINARY, out, parse_operand));
    return LILY_OK;
}

static int parse_concat(jinja_parser *p, jinja_node **out)
{
    jinja_node *list = NULL, *item;
    TRY(parse_product(p, out));
    while (jinja_is_op(p, '~')) {
        if (!list) {
            TRY(jinja_node_new(p, JINJA_CONCAT, &list));
            TRY(jinja_node_add(p, list, *out));
            *out = list;
        }
        p->at++;
        TRY(parse_product(p, &item));
        TRY(jinja_node_add(p, list, item));
    }
    return LILY_OK;
}

static int parse_sum(jinja_parser *p, jinja_node **out)
{
    TRY(parse_concat(p, out));
    while (jinja_is_op(p, '+') || jinja_is_op(p, '-')) TRY(binary(p, JINJA_BINARY, out, parse_concat));
    return LILY_OK;
}

/* The comparison that comes next, or 0. */
static int take_comparison(jinja_parser *p)
{
    static const int ops[] = {JINJA_OP2('=', '='), JINJA_OP2('!', '='), JINJA_OP2('<', '='), JINJA_OP2('>', '='), '<', '>'};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (jinja_take_op(p, ops[i])) return ops[i];
    if (jinja_take_name(p, "in")) return JINJA_OP_IN;
    if (!jinja_is_name(p, "not") || p->at[1].kind != JINJA_TOK_NAME || strcmp(p->at[1].text, "in") != 0) return 0;
    p->at += 2;
    return JINJA_OP_NOT_IN;
}

/* "a < b < c" is a chain, as in Python. */
static int parse_compare(jinja_parser *p, jinja_node **out)
{
    enum { MOST = 8 };
    jinja_node *chain = NULL, *item;
    TRY(parse_sum(p, out));
    for (int op; (op = take_comparison(p));) {
        if (!chain) {
            TRY(jinja_node_new(p, JINJA_COMPARE, &chain));
            TRY(jinja_alloc(p->c, &chain->ops, MOST, sizeof *chain->ops));
            TRY(jinja_node_add(p, chain, *out));
            *out = chain;
        }
        if (chain->n > MOST) return jinja_unsupported(p, "a chain of so many comparisons");
        chain->ops[chain->n - 1] = op;
        TRY(parse_sum(p, &item));
        TRY(jinja_node_add(p, chain, item));
    }
    return LILY_OK;
}

static int parse_not(jinja_parser *p, jinja_node **out)
{
    if (!jinja_is_name(p, "not")) return parse_compare(p, out);
    TRY(jinja_node_new(p, JINJA_NOT, out));
    p->at++;
    TRY(jinja_deeper(p));
    TRY(parse_not(p, &(*out)->a));
    p->nesting--;
    return LILY_OK;
}

static int parse_and(jinja_parser *p, jinja_node **out)
{
    TRY(parse_not(p, out));
    while (jinja_is_name(p, "and")) TRY(binary(p, JINJA_AND, out, parse_not));
    return LILY_OK;
}

static int parse_or(jinja_parser *p, jinja_node **out)
{
    TRY(parse_and(p, out));
    while (jinja_is_name(p, "or")) TRY(binary(p, JINJA_OR, out, parse_and));
    return LILY_OK;
}

int jinja_parse_expr(jinja_parser *p, bool cond, jinja_node **out)
{
    TRY(jinja_deeper(p));
    TRY(parse_or(p, out));
    while (cond && jinja_is_name(p, "if")) {
        jinja_node *choice;
        TRY(jinja_node_new(p, JINJA_COND, &choice));
        p->at++;
        choice->a = *out;
        TRY(parse_or(p, &choice->b));
        if (jinja_take_name(p, "else")) TRY(jinja_parse_expr(p, true, &choice->c));
        *out = choice;
    }
    p->nesting--;
    return LILY_OK;
}

int jinja_parse_tuple(jinja_parser *p, bool cond, jinja_node **out)
{
    jinja_node *tuple, *item;
    TRY(jinja_parse_expr(p, cond, out));
    if (!jinja_is_op(p, ',')) return LILY_OK;
    TRY(jinja_node_new(p, JINJA_MAKE_TUPLE, &tuple));
    TRY(jinja_node_add(p, tuple, *out));
    *out = tuple;
    while (jinja_take_op(p, ',')) {
        if (jinja_is_op(p, ')') || p->at->kind == JINJA_TOK_BLOCK_END || p->at->kind == JINJA_TOK_PRINT_END) break;
        TRY(jinja_parse_expr(p, cond, &item));
        TRY(jinja_node_add(p, tuple, item));
    }
    return LILY_OK;
}
