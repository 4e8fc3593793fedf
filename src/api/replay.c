#include "api/replay.h"

#include <string.h>

#include "api/json_out.h"
#include "base/mem.h"
#include "text/big_number.h"
#include "text/messages.h"

/* ---- is it what the client was given? ---- */

static bool is_space(char c) { return c && strchr(" \t\r\n\v\f", c); }

static void trim(const char **s, size_t *n)
{
    while (*n && is_space(**s)) ++*s, --*n;
    while (*n && is_space((*s)[*n - 1])) --*n;
}

static bool same_text(const json_t *given, const char *kept, size_t n_kept)
{
    const char *s = json_is_string(given) ? json_string_value(given) : "";
    size_t n = json_is_string(given) ? json_string_length(given) : 0;
    trim(&s, &n);
    trim(&kept, &n_kept);
    return n == n_kept && memcmp(s, kept, n) == 0;
}

/* As json_equal, but 1 and 1.0 are one number: clients parse arguments and write them anew. */
static bool same_value(const json_t *a, const json_t *b)
{
    const char *key;
    json_t *item;
    size_t i;
    if (json_is_number(a) && json_is_number(b) && json_typeof(a) != json_typeof(b))
        return json_number_value(a) >= json_number_value(b) && json_number_value(a) <= json_number_value(b);
    if (json_is_object(a) && json_is_object(b)) {
        if (json_object_size(a) != json_object_size(b)) return false;
        json_object_foreach ((json_t *)a, key, item) {
            const json_t *other = json_object_get(b, key);
            if (!other || !same_value(item, other)) return false;
        }
        return true;
    }
    if (json_is_array(a) && json_is_array(b)) {
        if (json_array_size(a) != json_array_size(b)) return false;
        json_array_foreach (a, i, item)
            if (!same_value(item, json_array_get(b, i))) return false;
        return true;
    }
    return json_equal(a, b);
}

static bool same_calls(const json_t *given, const char *kept, size_t n_kept)
{
    lily_err ignored;
    json_t *calls, *item;
    size_t i;
    if (n_kept == 0) return json_array_size(given) == 0;
    if (lily_json_parse_big(&calls, kept, n_kept, "calls", &ignored) != LILY_OK) return false;
    bool same = json_array_size(given) == json_array_size(calls);
    json_array_foreach (calls, i, item) {
        const json_t *function = json_object_get(json_array_get(given, i), "function");
        same = same && json_equal(json_object_get(function, "name"), json_object_get(item, "name")) &&
               same_value(json_object_get(function, "arguments"), json_object_get(item, "arguments"));
    }
    json_decref(calls);
    return same;
}

/* ---- a turn and its replacement ---- */

typedef struct turn_look {
    const lily_tokenizer *k;
    int32_t think, think_end;
    const json_t *message;      /* normalised */
    const int32_t *id;          /* the rendered turn, behind "assistant\n" and before the end of turn */
    size_t n;
    lily_ids *out;              /* gets the ids that take its place */
    int rc;
    lily_err *e;
} turn_look;

/* Where the thought that opens id[0 … n) ends: at its end tag, or n. */
static size_t thought_end(const turn_look *t, const int32_t *id, size_t n)
{
    size_t at = 0;
    while (at < n && id[at] != t->think_end) at++;
    return at;
}

static bool is_blank(const lily_tokenizer *k, const int32_t *id, size_t n)
{
    for (size_t i = 0, len; i < n; i++) {
        const char *bytes = lily_token_bytes(k, id[i], &len);
        for (size_t j = 0; bytes && j < len; j++)
            if (!is_space(bytes[j])) return false;
    }
    return true;
}

/* How far a and b say the same: the last place where both have whole tokens.  An added token is equal to itself
 * only. */
static void common(const lily_tokenizer *k, const int32_t *a, size_t na, const int32_t *b, size_t nb, size_t *end_a,
                   size_t *end_b)
{
    size_t i = 0, j = 0, in_a = 0, in_b = 0, la, lb;
    for (*end_a = *end_b = 0; i < na && j < nb;) {
        const char *ta = lily_token_bytes(k, a[i], &la), *tb = lily_token_bytes(k, b[j], &lb);
        bool added = lily_token_is_added(k, a[i]) || lily_token_is_added(k, b[j]);
        if (!ta || !tb || (added && (a[i] != b[j] || in_a || in_b))) return;
        size_t n = la - in_a < lb - in_b ? la - in_a : lb - in_b;
        if (memcmp(ta + in_a, tb + in_b, n) != 0) return;
        in_a += n;
        in_b += n;
        if (in_a == la) i++, in_a = 0;
        if (in_b == lb) j++, in_b = 0;
        if (in_a || in_b) continue;
        *end_a = i;
        *end_b = j;
    }
}

static void append(turn_look *t, const int32_t *id, size_t n)
{
    if (t->rc == LILY_OK) t->rc = lily_ids_reserve(t->out, n, t->e);
    if (t->rc != LILY_OK) return;
    if (n) memcpy(t->out->id + t->out->n, id, n * sizeof *id);
    t->out->n += n;
}

/* The sampled ids as far as they say what was rendered, the rendered ones from there on. */
static void splice(turn_look *t, const int32_t *sampled, size_t n)
{
    size_t from_sampled, to_rendered;
    common(t->k, sampled, n, t->id, t->n, &from_sampled, &to_rendered);
    append(t, sampled, from_sampled);
    append(t, t->id + to_rendered, t->n - to_rendered);
}

/* Behind the thought: what a template writes of an older turn. */
static void splice_tail(turn_look *t, const lily_replied *r)
{
    size_t at = thought_end(t, r->turn, r->n_turn);
    if (at < r->n_turn) at++;
    while (at < r->n_turn && is_blank(t->k, r->turn + at, 1)) at++;
    splice(t, r->turn + at, r->n_turn - at);
}

/* Notes are made of no others; but some come from the disk. */
static bool has_text(const lily_tokenizer *k, const lily_replied *r)
{
    size_t n;
    for (size_t i = 0; i < r->n_turn; i++)
        if (!lily_token_bytes(k, r->turn[i], &n) || lily_token_is_special(k, r->turn[i])) return false;
    return true;
}

static bool take(void *user, const lily_replied *r)
{
    turn_look *t = user;
    const json_t *m = t->message;
    bool thought = r->n_turn && r->turn[0] == t->think, shown = t->n && t->id[0] == t->think;
    if (!has_text(t->k, r) || !same_text(json_object_get(m, "content"), r->content, r->n_content) ||
        !same_calls(json_object_get(m, "tool_calls"), r->calls, r->n_calls) || (shown && !thought))
        return false;
    if (thought && !shown) {
        splice_tail(t, r);
        return true;
    }
    if (shown) {
        const char *s = r->reasoning;
        size_t n = r->n_reasoning;
        trim(&s, &n);
        if (!same_text(json_object_get(m, "reasoning_content"), s, n)) return false;
        if (is_blank(t->k, t->id + 1, thought_end(t, t->id, t->n) - 1) != (n == 0)) return false;
    }
    if (r->ended) append(t, r->turn, r->n_turn);
    else splice(t, r->turn, r->n_turn);
    return true;
}

/* ---- a prompt ---- */

static const json_t *next_assistant(const json_t *messages, size_t *at)
{
    while (*at < json_array_size(messages)) {
        const json_t *m = json_array_get(messages, (*at)++);
        const char *role = json_string_value(json_object_get(m, "role"));
        if (role && strcmp(role, "assistant") == 0) return m;
    }
    return NULL;
}

static size_t turn_end(const lily_chat_prompt *p, size_t from, int32_t end)
{
    while (from < p->ids.n && p->ids.id[from] != end) from++;
    return from;
}

/* Copies ids[*done … to) to t->out, with the key of all that is there. */
static void copy_until(turn_look *t, const lily_chat_prompt *p, size_t *done, size_t to, lily_replies_key *key)
{
    append(t, p->ids.id + *done, to - *done);
    if (t->rc == LILY_OK) *key = lily_replies_key_add(*key, p->ids.id + *done, to - *done);
    *done = to;
}

/* Marks and turns go through the prompt side by side: each turn begins at a mark, and no mark is inside one.  The last
 * turn is the one that the reply will be. */
static int replace_turns(turn_look *t, lily_chat_prompt *p, lily_replies *s, const json_t *messages, int32_t end)
{
    lily_replies_key key = lily_replies_key_start();
    size_t done = 0, at_message = 0;
    uint32_t turn = 0, fork = p->fork;
    for (uint32_t i = 0; i < p->n_marks && t->rc == LILY_OK; i++) {
        uint32_t mark = p->marks[i];
        copy_until(t, p, &done, mark, &key);
        p->marks[i] = (uint32_t)t->out->n;
        if (mark == fork) p->fork = p->marks[i];
        if (turn == p->n_turns || mark != p->turns[turn]) continue;
        p->turns[turn++] = (uint32_t)t->out->n;
        if (turn == p->n_turns) continue;
        size_t to = turn_end(p, mark, end), before = t->out->n;
        t->message = next_assistant(messages, &at_message);
        t->id = p->ids.id + mark;
        t->n = to - mark;
        if (!lily_replies_find(s, key, take, t)) append(t, t->id, t->n);
        if (t->rc == LILY_OK) key = lily_replies_key_add(key, t->out->id + before, t->out->n - before);
        done = to;
    }
    copy_until(t, p, &done, p->ids.n, &key);
    return t->rc;
}

static uint32_t count_assistants(const json_t *messages)
{
    uint32_t n = 0;
    for (size_t at = 0; next_assistant(messages, &at);) n++;
    return n;
}

int lily_replay_prompt(lily_chat_prompt *p, lily_replies *s, const lily_tokenizer *k, const json_t *messages,
                       lily_err *e)
{
    json_t *normal;
    lily_ids out = {0};
    turn_look t = {.k = k, .out = &out, .e = e};
    int32_t end = lily_token_find(k, "<|im_end|>", strlen("<|im_end|>"));
    if (p->n_turns < 2 || end < 0) return LILY_OK;
    t.think = lily_token_find(k, "<think>", strlen("<think>"));
    t.think_end = lily_token_find(k, "</think>", strlen("</think>"));
    TRY(lily_messages_normalize(messages, &normal, e));
    /* Another number of turns than of messages: the template is not of this form. */
    uint32_t complete = p->n_turns - (p->begun.len == 0);
    int rc = count_assistants(normal) == complete ? replace_turns(&t, p, s, normal, end) : LILY_OK;
    json_decref(normal);
    if (rc == LILY_OK && out.n) {
        lily_ids_free(&p->ids);
        p->ids = out;
    } else {
        lily_ids_free(&out);
    }
    return rc;
}

/* ---- noting ---- */

void lily_replay_note_begin(lily_replay_note *n, const lily_chat_prompt *p, const lily_tokenizer *k)
{
    lily_err ignored;
    *n = (lily_replay_note){.tokenizer = k, .lost = p->n_turns == 0};
    if (n->lost) return;
    uint32_t from = p->turns[p->n_turns - 1];
    n->before = lily_replies_key_add(lily_replies_key_start(), p->ids.id, from);
    for (size_t i = from; i < p->ids.n && !n->lost; i++) n->lost = lily_ids_add(&n->turn, p->ids.id[i], &ignored);
}

void lily_replay_note_free(lily_replay_note *n)
{
    lily_ids_free(&n->turn);
    lily_buf_free(&n->content);
    lily_buf_free(&n->reasoning);
    lily_buf_free(&n->calls);
}

void lily_replay_note_token(lily_replay_note *n, int32_t id)
{
    lily_err ignored;
    if (n->lost) return;
    n->lost = id < 0 || lily_token_is_special(n->tokenizer, id) || lily_ids_add(&n->turn, id, &ignored) != LILY_OK;
}

static void keep(lily_replay_note *n, lily_replies *s)
{
    lily_err ignored;
    if (n->calls.len) lily_buf_putc(&n->calls, ']');
    if (n->lost || n->content.failed || n->reasoning.failed || n->calls.failed) return;
    lily_replied r = {.turn = n->turn.id,
                      .n_turn = n->turn.n,
                      .ended = n->ended,
                      .content = lily_buf_str(&n->content),
                      .n_content = n->content.len,
                      .reasoning = lily_buf_str(&n->reasoning),
                      .n_reasoning = n->reasoning.len,
                      .calls = lily_buf_str(&n->calls),
                      .n_calls = n->calls.len};
    (void)lily_replies_add(s, n->before, &r, &ignored);
}

void lily_replay_note_event(lily_replay_note *n, const lily_answer_event *ev, lily_replies *s)
{
    switch (ev->kind) {
    case LILY_ANSWER_REASONING: lily_buf_add(&n->reasoning, ev->text, ev->n); break;
    case LILY_ANSWER_TEXT: lily_buf_add(&n->content, ev->text, ev->n); break;
    case LILY_ANSWER_CALL:
        lily_buf_puts(&n->calls, n->calls.len ? ",{\"name\":" : "[{\"name\":");
        lily_json_put_string(&n->calls, ev->text, ev->n);
        lily_buf_puts(&n->calls, ",\"arguments\":");
        break;
    case LILY_ANSWER_ARGUMENTS: lily_buf_add(&n->calls, ev->text, ev->n); break;
    case LILY_ANSWER_CALL_END: lily_buf_putc(&n->calls, '}'); break;
    case LILY_ANSWER_CALL_CUT: n->lost = true; break;
    case LILY_ANSWER_FINISH:
        if (ev->finish != LILY_FINISH_ERROR && ev->finish != LILY_FINISH_CANCELLED) keep(n, s);
        break;
    default: break;
    }
}
