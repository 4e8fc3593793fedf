#include "api/responses_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "api/json_out.h"
#include "base/random.h"

/* ---- pieces ---- */

static void new_id(char *out, size_t size, const char *prefix)
{
    snprintf(out, size, "%s_%016" PRIx64, prefix, lily_random_seed());
}

static void put_buf(lily_buf *out, const lily_buf *text) { lily_json_put_string(out, lily_buf_str(text), text->len); }

static bool is_custom(const lily_responses_writer *w) { return json_is_true(json_object_get(w->tool, "custom")); }

/* ---- items ---- */

/* What a custom tool gets: the one string among the arguments. */
static void put_custom_input(const lily_responses_writer *w, lily_buf *out)
{
    json_t *arguments = json_loadb(lily_buf_str(&w->text), w->text.len, JSON_ALLOW_NUL, NULL);
    const json_t *input = json_object_get(arguments, "input");
    if (json_is_string(input)) lily_json_put_value(out, input);
    else lily_buf_puts(out, "\"\"");
    json_decref(arguments);
}

static void put_text_part(const lily_responses_writer *w, lily_buf *out)
{
    lily_buf_printf(out, "{\"type\":\"output_text\",\"annotations\":[],\"logprobs\":[%s],\"text\":",
                    lily_buf_str(&w->logprobs));
    put_buf(out, &w->text);
    lily_buf_putc(out, '}');
}

static const char *thought_kind(const lily_responses_writer *w)
{
    return w->q->summary ? "summary_text" : "reasoning_text";
}

static void put_thought_part(const lily_responses_writer *w, lily_buf *out)
{
    lily_buf_printf(out, "{\"type\":\"%s\",\"text\":", thought_kind(w));
    put_buf(out, &w->text);
    lily_buf_putc(out, '}');
}

static void put_reasoning(const lily_responses_writer *w, bool begun, lily_buf *out)
{
    lily_buf_puts(out, "\"type\":\"reasoning\",\"summary\":[");
    if (begun && w->q->summary) put_thought_part(w, out);
    lily_buf_puts(out, "],\"content\":[");
    if (begun && !w->q->summary) put_thought_part(w, out);
    lily_buf_puts(out, "],\"encrypted_content\":");
    if (begun) {
        lily_buf sealed = {0};
        lily_buf_puts(&sealed, LILY_RESPONSES_SEAL);
        lily_buf_add(&sealed, lily_buf_str(&w->text), w->text.len);
        if (sealed.failed) out->failed = true;
        put_buf(out, &sealed);
        lily_buf_free(&sealed);
    } else {
        lily_buf_puts(out, "null");
    }
}

static void put_call(const lily_responses_writer *w, bool begun, lily_buf *out)
{
    const json_t *name = json_object_get(w->tool, "name"), *space = json_object_get(w->tool, "namespace");
    bool custom = is_custom(w);
    lily_buf_printf(out, "\"type\":\"%s\",\"call_id\":\"%s\",\"name\":", custom ? "custom_tool_call" : "function_call",
                    w->call_id);
    if (name) lily_json_put_value(out, name);
    else put_buf(out, &w->name);
    if (space) {
        lily_buf_puts(out, ",\"namespace\":");
        lily_json_put_value(out, space);
    }
    lily_buf_puts(out, custom ? ",\"input\":" : ",\"arguments\":");
    if (!begun) lily_buf_puts(out, "\"\"");
    else if (custom) put_custom_input(w, out);
    else put_buf(out, &w->text);
}

/* begun: with what it holds; else as it is when it opens. */
static void put_item(const lily_responses_writer *w, const char *status, bool begun, lily_buf *out)
{
    lily_buf_printf(out, "{\"id\":\"%s\",\"status\":\"%s\",", w->item_id, status);
    if (w->item == LILY_ITEM_REASONING) {
        put_reasoning(w, begun, out);
    } else if (w->item == LILY_ITEM_CALL) {
        put_call(w, begun, out);
    } else {
        lily_buf_puts(out, "\"type\":\"message\",\"role\":\"assistant\",\"content\":[");
        if (begun) put_text_part(w, out);
        lily_buf_putc(out, ']');
    }
    lily_buf_putc(out, '}');
}

/* ---- the response ---- */

static void put_member(const lily_responses_writer *w, const char *key, lily_buf *out)
{
    lily_buf_printf(out, ",\"%s\":", key);
    lily_json_put_value(out, json_object_get(w->q->body, key));
}

/* What the request said, or what holds where it said nothing. */
static void put_request(const lily_responses_writer *w, lily_buf *out)
{
    static const char *const same[] = {"instructions",     "max_output_tokens", "metadata",    "prompt_cache_key",
                                       "safety_identifier", "user",              "service_tier"};
    const lily_responses_request *q = w->q;
    const json_t *choice = json_object_get(q->body, "tool_choice"), *text = json_object_get(q->body, "text");
    const json_t *reasoning = json_object_get(q->body, "reasoning");
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) put_member(w, same[i], out);
    lily_buf_puts(out, ",\"background\":false,\"previous_response_id\":null,\"store\":false,"
                       "\"truncation\":\"disabled\",\"tools\":");
    lily_json_put_value(out, q->shown);
    lily_buf_puts(out, ",\"tool_choice\":");
    if (choice && !json_is_null(choice)) lily_json_put_value(out, choice);
    else lily_buf_puts(out, "\"auto\"");
    lily_buf_puts(out, ",\"text\":");
    if (json_object_get(text, "format")) lily_json_put_value(out, text);
    else lily_buf_puts(out, "{\"format\":{\"type\":\"text\"}}");
    lily_buf_puts(out, ",\"reasoning\":");
    if (reasoning && !json_is_null(reasoning)) lily_json_put_value(out, reasoning);
    else lily_buf_puts(out, "{\"effort\":null,\"summary\":null}");
    lily_buf_printf(out, ",\"parallel_tool_calls\":%s,\"temperature\":", q->chat.chat.single_call ? "false" : "true");
    lily_json_put_number(out, (double)q->chat.chat.sampling.temperature);
    lily_buf_puts(out, ",\"top_p\":");
    lily_json_put_number(out, (double)q->chat.chat.sampling.top_p);
    lily_buf_printf(out, ",\"top_logprobs\":%d", (int)q->chat.chat.sampling.n_logprobs);
}

static void put_usage(const lily_usage *u, lily_buf *out)
{
    if (!u) {
        lily_buf_puts(out, ",\"usage\":null");
        return;
    }
    lily_buf_printf(out,
                    ",\"usage\":{\"input_tokens\":%u,\"input_tokens_details\":{\"cached_tokens\":%u,"
                    "\"cache_write_tokens\":0},\"output_tokens\":%u,\"output_tokens_details\":"
                    "{\"reasoning_tokens\":%u},\"total_tokens\":%u},",
                    u->n_prompt, u->n_reused, u->n_reply, u->n_reasoning, u->n_prompt + u->n_reply);
    lily_openai_put_timings(out, u);
}

static void put_response(const lily_responses_writer *w, const char *status, const lily_usage *u,
                         const lily_refusal *failure, lily_buf *out)
{
    lily_buf_printf(out, "{\"id\":\"%s\",\"object\":\"response\",\"created_at\":%" PRId64 ",\"status\":\"%s\",\"model\":",
                    w->head.id, w->head.created, status);
    lily_json_put_text(out, w->head.model);
    lily_buf_puts(out, ",\"error\":");
    if (failure) {
        lily_buf_puts(out, "{\"code\":\"server_error\",\"message\":");
        lily_json_put_text(out, failure->err.text);
        lily_buf_putc(out, '}');
    } else {
        lily_buf_puts(out, "null");
    }
    bool cut = strcmp(status, "incomplete") == 0;
    lily_buf_printf(out, ",\"incomplete_details\":%s,\"output\":[",
                    cut ? "{\"reason\":\"max_output_tokens\"}" : "null");
    lily_buf_add(out, lily_buf_str(&w->items), w->items.len);
    lily_buf_putc(out, ']');
    put_request(w, out);
    put_usage(u, out);
    lily_buf_putc(out, '}');
}

/* ---- events ---- */

static void begin_event(lily_responses_writer *w, const char *name, lily_buf *out)
{
    lily_buf_printf(out, "event: response.%s\ndata: {\"type\":\"response.%s\",\"sequence_number\":%u", name, name,
                    w->sequence++);
}

static void end_event(lily_buf *out) { lily_buf_puts(out, "}\n\n"); }

static void response_event(lily_responses_writer *w, const char *name, const char *status, const lily_usage *u,
                           const lily_refusal *failure, lily_buf *out)
{
    begin_event(w, name, out);
    lily_buf_puts(out, ",\"response\":");
    put_response(w, status, u, failure, out);
    end_event(out);
}

static void item_event(lily_responses_writer *w, const char *name, const char *status, bool begun, lily_buf *out)
{
    begin_event(w, name, out);
    lily_buf_printf(out, ",\"output_index\":%zu,\"item\":", w->index);
    put_item(w, status, begun, out);
    end_event(out);
}

/* An event inside the open item, left open for further members. */
static void begin_inside(lily_responses_writer *w, const char *name, lily_buf *out)
{
    begin_event(w, name, out);
    lily_buf_printf(out, ",\"output_index\":%zu,\"item_id\":\"%s\"", w->index, w->item_id);
    if (w->item != LILY_ITEM_CALL)
        lily_buf_printf(out, ",\"%s_index\":0",
                        w->item == LILY_ITEM_REASONING && w->q->summary ? "summary" : "content");
}

/* The names of the events inside an item, by what it holds. */
typedef struct names {
    const char *part_added, *delta, *done, *part_done;
    const char *whole;          /* member of `done` */
} names;

static const names *names_of(const lily_responses_writer *w)
{
    static const names message = {"content_part.added", "output_text.delta", "output_text.done", "content_part.done",
                                  "text"};
    static const names thought = {"content_part.added", "reasoning_text.delta", "reasoning_text.done",
                                  "content_part.done", "text"};
    static const names summary = {"reasoning_summary_part.added", "reasoning_summary_text.delta",
                                  "reasoning_summary_text.done", "reasoning_summary_part.done", "text"};
    static const names function = {NULL, "function_call_arguments.delta", "function_call_arguments.done", NULL,
                                   "arguments"};
    static const names custom = {NULL, "custom_tool_call_input.delta", "custom_tool_call_input.done", NULL, "input"};
    if (w->item == LILY_ITEM_REASONING) return w->q->summary ? &summary : &thought;
    if (w->item == LILY_ITEM_MESSAGE) return &message;
    return is_custom(w) ? &custom : &function;
}

static void part_event(lily_responses_writer *w, const char *name, lily_buf *out)
{
    if (!name) return;
    begin_inside(w, name, out);
    lily_buf_puts(out, ",\"part\":");
    if (w->item == LILY_ITEM_MESSAGE) put_text_part(w, out);
    else put_thought_part(w, out);
    end_event(out);
}

static void put_logprobs(const lily_responses_writer *w, const char *entries, lily_buf *out)
{
    if (w->item == LILY_ITEM_MESSAGE) lily_buf_printf(out, ",\"logprobs\":[%s]", entries);
}

/* ---- opening and closing items ---- */

static void close_item(lily_responses_writer *w, const char *status, lily_buf *out)
{
    if (w->item == LILY_ITEM_NONE) return;
    const names *n = names_of(w);
    if (w->item == LILY_ITEM_CALL && is_custom(w)) {
        begin_inside(w, n->delta, out);
        lily_buf_puts(out, ",\"delta\":");
        put_custom_input(w, out);
        end_event(out);
    }
    begin_inside(w, n->done, out);
    lily_buf_printf(out, ",\"%s\":", n->whole);
    if (w->item == LILY_ITEM_CALL && is_custom(w)) put_custom_input(w, out);
    else put_buf(out, &w->text);
    put_logprobs(w, lily_buf_str(&w->logprobs), out);
    end_event(out);
    part_event(w, n->part_done, out);
    item_event(w, "output_item.done", status, true, out);
    if (w->items.len > 0) lily_buf_putc(&w->items, ',');
    put_item(w, status, true, &w->items);
    if (w->text.failed || w->logprobs.failed || w->name.failed) w->items.failed = true;    /* they are cleared next */
    w->answered |= w->item != LILY_ITEM_REASONING;
    w->item = LILY_ITEM_NONE;
    w->index++;
}

static void open_item(lily_responses_writer *w, enum lily_response_item item, const char *prefix, lily_buf *out)
{
    close_item(w, "completed", out);
    w->item = item;
    lily_buf_clear(&w->text);
    lily_buf_clear(&w->logprobs);
    new_id(w->item_id, sizeof w->item_id, prefix);
    item_event(w, "output_item.added", "in_progress", false, out);
    part_event(w, names_of(w)->part_added, out);
}

static void open_call(lily_responses_writer *w, const lily_answer_event *ev, lily_buf *out)
{
    close_item(w, "completed", out);
    lily_buf_clear(&w->name);
    lily_buf_add(&w->name, ev->text, ev->n);
    w->tool = json_object_get(w->q->names, lily_buf_str(&w->name));
    new_id(w->call_id, sizeof w->call_id, "call");
    open_item(w, LILY_ITEM_CALL, w->tool && is_custom(w) ? "ctc" : "fc", out);
}

/* A call that was cut must not be made: it is no item of the answer. */
static void drop_call(lily_responses_writer *w)
{
    w->item = LILY_ITEM_NONE;
    w->index++;
}

static void add_text(lily_responses_writer *w, const lily_answer_event *ev, lily_buf *out)
{
    lily_buf entries = {0};
    lily_buf_add(&w->text, ev->text, ev->n);
    if (w->item == LILY_ITEM_MESSAGE && ev->n_tokens > 0) {
        lily_openai_put_logprobs(&entries, &w->head, ev, true);
        if (w->logprobs.len > 0) lily_buf_putc(&w->logprobs, ',');
        lily_buf_add(&w->logprobs, lily_buf_str(&entries), entries.len);
        if (entries.failed) w->logprobs.failed = true;
    }
    if (w->item != LILY_ITEM_CALL || !is_custom(w)) {    /* a custom tool's text is known when it is whole */
        begin_inside(w, names_of(w)->delta, out);
        lily_buf_puts(out, ",\"delta\":");
        lily_json_put_string(out, ev->text, ev->n);
        put_logprobs(w, lily_buf_str(&entries), out);
        end_event(out);
    }
    lily_buf_free(&entries);
}

static void finish(lily_responses_writer *w, const lily_answer_event *ev, lily_buf *out)
{
    const char *status = ev->finish == LILY_FINISH_LENGTH ? "incomplete" : "completed";
    close_item(w, status, out);
    if (!w->answered && (ev->finish == LILY_FINISH_STOP || w->items.len == 0)) {
        open_item(w, LILY_ITEM_MESSAGE, "msg", out);    /* an answer without words is one all the same */
        close_item(w, status, out);
    }
    response_event(w, status, status, ev->usage, NULL, out);
}

/* ---- outside ---- */

void lily_responses_open(lily_responses_writer *w, lily_buf *out)
{
    if (w->opened) return;
    w->opened = true;
    response_event(w, "created", "in_progress", NULL, NULL, out);
    response_event(w, "in_progress", "in_progress", NULL, NULL, out);
}

void lily_responses_event(lily_responses_writer *w, const lily_answer_event *ev, lily_buf *out)
{
    if (ev->kind == LILY_ANSWER_START || ev->kind == LILY_ANSWER_PROGRESS) return;
    lily_responses_open(w, out);
    switch (ev->kind) {
    case LILY_ANSWER_REASONING:
        if (w->item != LILY_ITEM_REASONING) open_item(w, LILY_ITEM_REASONING, "rs", out);
        add_text(w, ev, out);
        break;
    case LILY_ANSWER_TEXT:
        if (w->item != LILY_ITEM_MESSAGE) open_item(w, LILY_ITEM_MESSAGE, "msg", out);
        add_text(w, ev, out);
        break;
    case LILY_ANSWER_CALL: open_call(w, ev, out); break;
    case LILY_ANSWER_ARGUMENTS: add_text(w, ev, out); break;
    case LILY_ANSWER_CALL_END: close_item(w, "completed", out); break;
    case LILY_ANSWER_CALL_CUT: drop_call(w); break;
    case LILY_ANSWER_FINISH: finish(w, ev, out); break;
    default: break;
    }
    /* What was lost is missing in a later event. */
    if (w->text.failed || w->logprobs.failed || w->name.failed || w->items.failed) out->failed = true;
}

void lily_responses_fail(lily_responses_writer *w, const lily_refusal *r, lily_buf *out)
{
    lily_responses_open(w, out);
    response_event(w, "failed", "failed", NULL, r, out);
}

void lily_responses_gather(lily_responses_writer *w, const lily_answer_event *ev)
{
    lily_buf_clear(&w->spare);
    lily_responses_event(w, ev, &w->spare);
}

int lily_responses_whole(lily_responses_writer *w, const lily_answer_event *ev, lily_buf *out, lily_err *e)
{
    TRY(lily_buf_ok(&w->items, "an answer", e));
    put_response(w, ev->finish == LILY_FINISH_LENGTH ? "incomplete" : "completed", ev->usage, NULL, out);
    return lily_buf_ok(out, "an answer", e);
}

void lily_responses_writer_init(lily_responses_writer *w, const lily_responses_request *q, const char *model,
                                const lily_tokenizer *tokenizer)
{
    *w = (lily_responses_writer){.q = q};
    lily_openai_head_init(&w->head, model, tokenizer);
    new_id(w->head.id, sizeof w->head.id, "resp");
}

void lily_responses_writer_free(lily_responses_writer *w)
{
    lily_buf_free(&w->name);
    lily_buf_free(&w->text);
    lily_buf_free(&w->logprobs);
    lily_buf_free(&w->items);
    lily_buf_free(&w->spare);
}
