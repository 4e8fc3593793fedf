/* jinja_parse.c - the parser of statements. */
#include "text/jinja_parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja_text.h"

static int parse_body(jinja_parser *p, jinja_node **out);

int jinja_syntax(jinja_parser *p, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    p->c->line = p->at->line;
    return jinja_error(p->c, LILY_FORMAT, "%s", text);
}

int jinja_unsupported(jinja_parser *p, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    p->c->line = p->at->line;
    return jinja_error(p->c, LILY_UNSUPPORTED, "%s is not supported", text);
}

int jinja_node_new(jinja_parser *p, jinja_node_kind kind, jinja_node **out)
{
    TRY(jinja_alloc(p->c, out, 1, sizeof **out));
    (*out)->kind = kind;
    (*out)->line = p->at->line;
    return LILY_OK;
}

/* Lists grow to powers of two; names, ops stay in step by their users. */
int jinja_node_add(jinja_parser *p, jinja_node *n, jinja_node *item)
{
    if ((n->n & (n->n - 1)) == 0) {
        jinja_node **list;
        TRY(jinja_alloc(p->c, &list, n->n ? 2 * n->n : 1, sizeof *list));
        if (n->n) memcpy(list, n->list, n->n * sizeof *list);
        n->list = list;
    }
    n->list[n->n++] = item;
    return LILY_OK;
}

int jinja_deeper(jinja_parser *p)
{
    return ++p->nesting > JINJA_MAX_NESTING ? jinja_unsupported(p, "nesting this deep") : LILY_OK;
}

bool jinja_is_op(const jinja_parser *p, int op)
{
    return p->at->kind == JINJA_TOK_OP && p->at->op == op;
}

bool jinja_is_name(const jinja_parser *p, const char *name)
{
    return p->at->kind == JINJA_TOK_NAME && strcmp(p->at->text, name) == 0;
}

bool jinja_take_op(jinja_parser *p, int op)
{
    bool is = jinja_is_op(p, op);
    p->at += is;
    return is;
}

bool jinja_take_name(jinja_parser *p, const char *name)
{
    bool is = jinja_is_name(p, name);
    p->at += is;
    return is;
}

int jinja_expect_op(jinja_parser *p, int op, const char *text)
{
    return jinja_take_op(p, op) ? LILY_OK : jinja_syntax(p, "'%s' is missing", text);
}

int jinja_expect_name(jinja_parser *p, const char **name)
{
    static const char *const words[] = {"and", "or", "not", "in", "is", "if", "else", "true", "false", "none",
                                        "True", "False", "None"};
    if (p->at->kind != JINJA_TOK_NAME) return jinja_syntax(p, "a name is missing");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (jinja_is_name(p, words[i])) return jinja_syntax(p, "'%s' is no name", words[i]);
    *name = (p->at++)->text;
    return LILY_OK;
}

static int make_callable(jinja_parser *p, const char *name)
{
    if (p->n_callable == p->cap_callable) {
        size_t cap = p->cap_callable ? 2 * p->cap_callable : 16;
        const char **names;
        TRY(jinja_alloc(p->c, &names, cap, sizeof *names));
        if (p->n_callable) memcpy(names, p->callable, p->n_callable * sizeof *names);
        p->callable = names;
        p->cap_callable = cap;
    }
    p->callable[p->n_callable++] = name;
    return LILY_OK;
}

static int end_of_block(jinja_parser *p)
{
    if (p->at->kind != JINJA_TOK_BLOCK_END) return jinja_syntax(p, "the statement does not end here");
    p->at++;
    return LILY_OK;
}

/* Whether the next statement is one of the two words; takes its "{%" and word. */
static bool take_end(jinja_parser *p, const char *word)
{
    if (p->at->kind != JINJA_TOK_BLOCK || p->at[1].kind != JINJA_TOK_NAME || strcmp(p->at[1].text, word) != 0) return false;
    p->at += 2;
    return true;
}

static int expect_end(jinja_parser *p, const char *word, int line)
{
    if (take_end(p, word)) return end_of_block(p);
    p->c->line = line;
    return jinja_error(p->c, LILY_FORMAT, "'%s' is missing", word);
}

/* Names with commas between them. */
static int parse_targets(jinja_parser *p, jinja_node *owner)
{
    bool bracket = jinja_take_op(p, '(');
    do {
        jinja_node *target;
        TRY(jinja_node_new(p, JINJA_NAME, &target));
        if (owner->n && (jinja_is_name(p, "in") || jinja_is_op(p, ')') || jinja_is_op(p, '='))) break;
        if (jinja_is_op(p, '(')) return jinja_unsupported(p, "a tuple inside the names");
        TRY(jinja_expect_name(p, &target->name));
        TRY(make_callable(p, target->name));
        TRY(jinja_node_add(p, owner, target));
        owner->op |= jinja_is_op(p, ',');
    } while (jinja_take_op(p, ','));
    return bracket ? jinja_expect_op(p, ')', ")") : LILY_OK;
}

static int parse_if(jinja_parser *p, jinja_node **out)
{
    jinja_node *part;
    int line = p->at->line;
    TRY(jinja_node_new(p, JINJA_IF, out));
    do {
        TRY(jinja_parse_tuple(p, true, &part));
        TRY(end_of_block(p));
        TRY(jinja_node_add(p, *out, part));
        TRY(parse_body(p, &part));
        TRY(jinja_node_add(p, *out, part));
    } while (take_end(p, "elif"));
    if (take_end(p, "else")) {
        TRY(end_of_block(p));
        TRY(parse_body(p, &(*out)->c));
    }
    return expect_end(p, "endif", line);
}

static int parse_for(jinja_parser *p, jinja_node **out)
{
    int line = p->at->line;
    TRY(jinja_node_new(p, JINJA_FOR, out));
    TRY(parse_targets(p, *out));
    if (!jinja_take_name(p, "in")) return jinja_syntax(p, "'in' is missing");
    TRY(jinja_parse_tuple(p, false, &(*out)->a));
    if (jinja_take_name(p, "if")) TRY(jinja_parse_expr(p, true, &(*out)->b));
    if (jinja_is_name(p, "recursive")) return jinja_unsupported(p, "'recursive'");
    TRY(end_of_block(p));
    TRY(parse_body(p, &(*out)->c));
    if (take_end(p, "else")) {
        TRY(end_of_block(p));
        TRY(parse_body(p, &(*out)->d));
    }
    return expect_end(p, "endfor", line);
}

static int parse_set(jinja_parser *p, jinja_node **out)
{
    int line = p->at->line;
    TRY(jinja_node_new(p, JINJA_SET, out));
    if (p->at->kind == JINJA_TOK_NAME && p->at[1].kind == JINJA_TOK_OP && p->at[1].op == '.') {
        jinja_node *target;
        TRY(jinja_node_new(p, JINJA_ATTR, &target));
        TRY(jinja_node_new(p, JINJA_NAME, &target->a));
        TRY(jinja_expect_name(p, &target->a->name));
        p->at++;
        TRY(jinja_expect_name(p, &target->name));
        if (target->name[0] == '_') return jinja_unsupported(p, "attribute '%s' of a namespace", target->name);
        TRY(jinja_node_add(p, *out, target));
        if (jinja_is_op(p, ',')) return jinja_unsupported(p, "setting several attributes");
    } else {
        TRY(parse_targets(p, *out));
    }
    if (jinja_take_op(p, '=')) {
        TRY(jinja_parse_tuple(p, true, &(*out)->a));
        return end_of_block(p);
    }
    if (jinja_is_op(p, '|')) return jinja_unsupported(p, "a filter on a block 'set'");
    if ((*out)->op) return jinja_syntax(p, "'=' is missing");
    TRY(end_of_block(p));
    TRY(parse_body(p, &(*out)->c));
    return expect_end(p, "endset", line);
}

static int parse_macro(jinja_parser *p, jinja_node **out)
{
    enum { MOST = 32 };
    int line = p->at->line;
    TRY(jinja_node_new(p, JINJA_DEFINE, out));
    jinja_node *m = *out;
    TRY(jinja_expect_name(p, &m->name));
    TRY(make_callable(p, m->name));
    TRY(jinja_alloc(p->c, &m->names, MOST, sizeof *m->names));
    TRY(jinja_expect_op(p, '(', "("));
    while (!jinja_is_op(p, ')')) {
        jinja_node *value = NULL;
        if (m->n) TRY(jinja_expect_op(p, ',', ","));
        if (m->n == MOST) return jinja_unsupported(p, "a macro with so many parameters");
        TRY(jinja_expect_name(p, &m->names[m->n]));
        TRY(make_callable(p, m->names[m->n]));
        if (jinja_take_op(p, '=')) TRY(jinja_parse_expr(p, true, &value));
        else if (m->n && m->list[m->n - 1]) return jinja_syntax(p, "a parameter without default behind one with");
        TRY(jinja_node_add(p, m, value));
    }
    p->at++;
    TRY(end_of_block(p));
    TRY(parse_body(p, &m->c));
    return expect_end(p, "endmacro", line);
}

/* {% generation %} marks the assistant's words for training; for rendering it is not there. */
static int parse_generation(jinja_parser *p, jinja_node **out)
{
    int line = p->at->line;
    TRY(end_of_block(p));
    TRY(parse_body(p, out));
    return expect_end(p, "endgeneration", line);
}

static int parse_statement(jinja_parser *p, jinja_node **out)
{
    static const struct {
        const char *word;
        int (*parse)(jinja_parser *, jinja_node **);
    } statements[] = {{"if", parse_if}, {"for", parse_for}, {"set", parse_set}, {"macro", parse_macro},
                      {"generation", parse_generation}};
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++)
        if (jinja_take_name(p, statements[i].word)) return statements[i].parse(p, out);
    if (p->at->kind != JINJA_TOK_NAME) return jinja_syntax(p, "a statement has no name");
    return jinja_unsupported(p, "statement '%s'", p->at->text);
}

/* Words that end or divide a block, for the statement that opened it to take. */
static bool ends_body(const jinja_token *t)
{
    static const char *const words[] = {"endif", "elif", "else", "endfor", "endset", "endmacro", "endgeneration"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (t->kind == JINJA_TOK_NAME && strcmp(t->text, words[i]) == 0) return true;
    return false;
}

static int parse_print(jinja_parser *p, jinja_node **out)
{
    TRY(jinja_node_new(p, JINJA_PRINT, out));
    p->at++;
    TRY(jinja_parse_tuple(p, true, &(*out)->a));
    if (p->at->kind != JINJA_TOK_PRINT_END) return jinja_syntax(p, "the expression does not end here");
    p->at++;
    return LILY_OK;
}

static int parse_body(jinja_parser *p, jinja_node **out)
{
    TRY(jinja_deeper(p));
    TRY(jinja_node_new(p, JINJA_BODY, out));
    while (p->at->kind != JINJA_TOK_END) {
        jinja_node *item;
        if (p->at->kind == JINJA_TOK_BLOCK && ends_body(p->at + 1)) break;
        if (p->at->kind == JINJA_TOK_TEXT) {
            TRY(jinja_node_new(p, JINJA_TEXT, &item));
            TRY(jinja_text(p->c, p->at->text, p->at->n, true, false, &item->value));
            p->at++;
        } else if (p->at->kind == JINJA_TOK_PRINT) {
            TRY(parse_print(p, &item));
        } else {
            p->at++;
            TRY(parse_statement(p, &item));
        }
        TRY(jinja_node_add(p, *out, item));
    }
    p->nesting--;
    return LILY_OK;
}

int jinja_parse(jinja_ctx *c, const char *source, size_t n, jinja_node **out)
{
    jinja_token *tokens;
    TRY(jinja_lex(c, source, n, &tokens));
    jinja_parser p = {.c = c, .at = tokens};
    TRY(parse_body(&p, out));
    if (p.at->kind == JINJA_TOK_END) return LILY_OK;
    p.at++;
    return jinja_syntax(&p, "'%s' without its beginning", p.at->text);
}
