/* jinja_exec.c - statements, loops, scopes and macros. */
#include <string.h>

#include "text/jinja_eval.h"

int jinja_scope_new(jinja_ctx *c, jinja_scope *parent, jinja_scope **out)
{
    TRY(jinja_alloc(c, out, 1, sizeof **out));
    (*out)->parent = parent;
    return LILY_OK;
}

int jinja_scope_set(jinja_ctx *c, jinja_scope *s, const char *name, jinja_value v)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->names[i], name) == 0) {
            s->values[i] = v;
            return LILY_OK;
        }
    if (s->n == s->cap) {
        size_t cap = s->cap ? 2 * s->cap : 4;
        const char **names;
        jinja_value *values;
        TRY(jinja_alloc(c, &names, cap, sizeof *names));
        TRY(jinja_alloc(c, &values, cap, sizeof *values));
        if (s->n) {
            memcpy(names, s->names, s->n * sizeof *names);
            memcpy(values, s->values, s->n * sizeof *values);
        }
        s->names = names;
        s->values = values;
        s->cap = cap;
    }
    s->names[s->n] = name;
    s->values[s->n++] = v;
    return LILY_OK;
}

static int exec_if(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_out *o)
{
    for (size_t i = 0; i < n->n; i += 2) {
        jinja_value condition;
        bool truth;
        TRY(jinja_eval(c, n->list[i], s, &condition));
        TRY(jinja_truth(c, &condition, &truth));
        if (truth) return jinja_exec(c, n->list[i + 1], s, o);
    }
    return n->c ? jinja_exec(c, n->c, s, o) : LILY_OK;
}

/* Gives the targets of a `set` or `for` their values; several take one item each. */
static int assign(jinja_ctx *c, const jinja_node *n, jinja_scope *s, const jinja_value *v)
{
    if (!n->op) return jinja_scope_set(c, s, n->list[0]->name, *v);
    jinja_list *l;
    TRY(jinja_iterate(c, v, &l));
    if (l->n != n->n) return jinja_error(c, LILY_ARGUMENT, "%zu values for %zu names", l->n, n->n);
    for (size_t i = 0; i < n->n; i++) TRY(jinja_scope_set(c, s, n->list[i]->name, l->items[i]));
    return LILY_OK;
}

/* The items that the loop's own "if" lets through. */
static int filter_items(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_list **items)
{
    jinja_list *kept;
    TRY(jinja_list_new(c, &kept));
    for (size_t i = 0; i < (*items)->n; i++) {
        jinja_scope *turn;
        jinja_value passes;
        bool truth;
        TRY(jinja_scope_new(c, s, &turn));
        TRY(assign(c, n, turn, &(*items)->items[i]));
        TRY(jinja_eval(c, n->b, turn, &passes));
        TRY(jinja_truth(c, &passes, &truth));
        if (truth) TRY(jinja_list_add(c, kept, (*items)->items[i]));
    }
    *items = kept;
    return LILY_OK;
}

/* Each turn has a scope of its own: what it sets is gone after it. */
static int exec_for(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_out *o)
{
    jinja_value walked;
    jinja_list *items;
    jinja_loop *loop;
    TRY(jinja_eval(c, n->a, s, &walked));
    c->line = n->line;
    TRY(jinja_iterate(c, &walked, &items));
    if (n->b) TRY(filter_items(c, n, s, &items));
    if (items->n == 0 && n->d) return jinja_exec(c, n->d, s, o);
    TRY(jinja_alloc(c, &loop, 1, sizeof *loop));
    loop->items = items;
    for (size_t count = items->n; loop->at < count; loop->at++) {
        jinja_scope *turn;
        TRY(jinja_step(c, 0));
        TRY(jinja_scope_new(c, s, &turn));
        TRY(jinja_scope_set(c, turn, "loop", (jinja_value){JINJA_LOOP, {.loop = loop}}));
        c->line = n->line;
        TRY(assign(c, n, turn, &items->items[loop->at]));
        TRY(jinja_exec(c, n->c, turn, o));
    }
    return LILY_OK;
}

/* What a body prints, as a value. */
static int capture(jinja_ctx *c, const jinja_node *body, jinja_scope *s, jinja_value *out)
{
    jinja_out o = {.limit = c->arena_limit};
    int rc = jinja_exec(c, body, s, &o);
    if (rc == LILY_OK) return jinja_out_value(c, &o, out);
    jinja_out_free(&o);
    return rc;
}

static int exec_set(jinja_ctx *c, const jinja_node *n, jinja_scope *s)
{
    jinja_value v, ns, key;
    jinja_scope *inner;
    if (n->a) {
        TRY(jinja_eval(c, n->a, s, &v));
    } else {
        TRY(jinja_scope_new(c, s, &inner));
        TRY(capture(c, n->c, inner, &v));
    }
    c->line = n->line;
    const jinja_node *target = n->list[0];
    if (target->kind == JINJA_NAME) return assign(c, n, s, &v);
    TRY(jinja_eval(c, target->a, s, &ns));
    if (ns.kind != JINJA_NAMESPACE)
        return jinja_error(c, LILY_ARGUMENT, "'%s' is a %s, not a namespace", target->a->name, jinja_type_name(&ns));
    TRY(jinja_text(c, target->name, strlen(target->name), true, false, &key));
    return jinja_dict_set(c, ns.u.dict, key, v);
}

static int bind_argument(jinja_ctx *c, const jinja_node *call, const jinja_node *def, size_t i, jinja_scope *s,
                         jinja_value *out, bool *given)
{
    for (size_t k = 0; k < call->n; k++) {
        bool mine = call->names[k] ? strcmp(call->names[k], def->names[i]) == 0 : k == i;
        if (!mine) continue;
        if (*given) return jinja_error(c, LILY_ARGUMENT, "macro '%s' got '%s' twice", def->name, def->names[i]);
        TRY(jinja_eval(c, call->list[k], s, out));
        *given = true;
    }
    return LILY_OK;
}

int jinja_call_macro(jinja_ctx *c, const jinja_node *call, const jinja_value *macro, jinja_scope *s, jinja_value *out)
{
    const jinja_node *def = macro->u.macro.def;
    jinja_scope *frame;
    TRY(jinja_scope_new(c, macro->u.macro.scope, &frame));
    size_t used = 0;
    for (size_t i = 0; i < def->n; i++) {
        jinja_value v = jinja_undefined(def->names[i]);
        bool given = false;
        TRY(bind_argument(c, call, def, i, s, &v, &given));
        used += given;
        if (!given && def->list[i]) TRY(jinja_eval(c, def->list[i], frame, &v));
        TRY(jinja_scope_set(c, frame, def->names[i], v));
    }
    if (used != call->n) return jinja_error(c, LILY_ARGUMENT, "macro '%s' takes no such argument", def->name);
    return capture(c, def->c, frame, out);
}

static int exec_print(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_out *o)
{
    jinja_value v;
    const jinja_str *text;
    TRY(jinja_eval(c, n->a, s, &v));
    c->line = n->line;
    TRY(jinja_str_of(c, &v, &text));
    TRY(jinja_step(c, text->n));
    jinja_out_str(o, text);
    return jinja_out_ok(c, o);
}

static int exec_node(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_out *o)
{
    switch (n->kind) {
    case JINJA_TEXT:
        TRY(jinja_step(c, n->value.u.s->n));
        jinja_out_str(o, n->value.u.s);
        return jinja_out_ok(c, o);
    case JINJA_PRINT: return exec_print(c, n, s, o);
    case JINJA_BODY:
        for (size_t i = 0; i < n->n; i++) TRY(jinja_exec(c, n->list[i], s, o));
        return LILY_OK;
    case JINJA_IF: return exec_if(c, n, s, o);
    case JINJA_FOR: return exec_for(c, n, s, o);
    case JINJA_SET: return exec_set(c, n, s);
    case JINJA_DEFINE:
        return jinja_scope_set(c, s, n->name, (jinja_value){JINJA_MACRO, {.macro = {n, s}}});
    default: return jinja_error(c, LILY_INTERNAL, "an expression where a statement should be");
    }
}

int jinja_exec(jinja_ctx *c, const jinja_node *n, jinja_scope *s, jinja_out *o)
{
    c->line = n->line;
    TRY(jinja_step(c, 0));
    TRY(jinja_enter(c));
    int rc = exec_node(c, n, s, o);
    c->depth--;
    return rc;
}
