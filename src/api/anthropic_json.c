#include "api/anthropic_json.h"

#include <inttypes.h>
#include <stdio.h>

#include "api/json_out.h"
#include "api/openai_json.h"
#include "base/random.h"

const char lily_anthropic_ping[] = "event: ping\ndata: {\"type\":\"ping\"}\n\n";

void lily_anthropic_head_init(lily_anthropic_head *h, const char *model)
{
    *h = (lily_anthropic_head){.model = model};
    snprintf(h->id, sizeof h->id, "msg_%016" PRIx64 "%08x", lily_random_seed(), (unsigned)lily_random_seed());
}

/* ---- parts ---- */

static void put_tool_head(lily_buf *out, const char *name, size_t n)
{
    lily_buf_printf(out, "{\"type\":\"tool_use\",\"id\":\"toolu_%016" PRIx64 "\",\"name\":", lily_random_seed());
    lily_json_put_string(out, name, n);
    lily_buf_puts(out, ",\"input\":");
}

/* Clients send a signature back with its thinking and some want one that is not empty.  Nothing is proved by it: it is
 * FNV-1a with 64 bits (RFC 9923) of the text. */
static const uint64_t empty_signature = 0xcbf29ce484222325;

static uint64_t sign(uint64_t h, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)text[i]) * 0x100000001b3;
    return h;
}

static void put_usage(lily_buf *out, const lily_usage *u)
{
    lily_buf_printf(out,
                    "\"usage\":{\"input_tokens\":%u,\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":%u,"
                    "\"output_tokens\":%u,\"output_tokens_details\":{\"thinking_tokens\":%u}}",
                    u->n_prompt - u->n_reused, u->n_reused, u->n_reply, u->n_reasoning);
}

/* "stop_reason":…,"stop_sequence":… */
static void put_stop(lily_buf *out, const lily_anthropic_head *h, const lily_answer_event *ev)
{
    bool by_string = ev->finish == LILY_FINISH_STOP && ev->stop >= 0;
    lily_buf_printf(out, "\"stop_reason\":\"%s\",\"stop_sequence\":",
                    ev->finish == LILY_FINISH_LENGTH  ? "max_tokens"
                    : ev->finish == LILY_FINISH_CALLS ? "tool_use"
                    : by_string                       ? "stop_sequence"
                                                      : "end_turn");
    if (by_string) lily_json_put_string(out, h->stop[ev->stop], h->stop_len[ev->stop]);
    else lily_buf_puts(out, "null");
}

/* The message up to its content. */
static void put_head(lily_buf *out, const lily_anthropic_head *h)
{
    lily_buf_printf(out, "{\"id\":\"%s\",\"type\":\"message\",\"role\":\"assistant\",\"model\":", h->id);
    lily_json_put_text(out, h->model);
    lily_buf_puts(out, ",\"content\":[");
}

/* ---- streamed ---- */

/* An event up to its further members. */
static void open_event(lily_buf *out, const char *type)
{
    lily_buf_printf(out, "event: %s\ndata: {\"type\":\"%s\"", type, type);
}

static void close_event(lily_buf *out) { lily_buf_puts(out, "}\n\n"); }

void lily_anthropic_stream_open(lily_anthropic_stream *s, lily_buf *out)
{
    if (s->opened || !s->started) return;
    s->opened = true;
    open_event(out, "message_start");
    lily_buf_puts(out, ",\"message\":");
    put_head(out, s->head);
    lily_buf_puts(out, "],\"stop_reason\":null,\"stop_sequence\":null,");
    put_usage(out, &s->usage);
    lily_buf_putc(out, '}');
    close_event(out);
}

static void open_delta(const lily_anthropic_stream *s, lily_buf *out, const char *type, const char *key)
{
    open_event(out, "content_block_delta");
    lily_buf_printf(out, ",\"index\":%zu,\"delta\":{\"type\":\"%s\",\"%s\":", s->index, type, key);
}

static void close_delta(lily_buf *out)
{
    lily_buf_putc(out, '}');
    close_event(out);
}

static void end_block(lily_anthropic_stream *s, lily_buf *out)
{
    if (s->block == LILY_BLOCK_NONE) return;
    if (s->block == LILY_BLOCK_THINKING) {
        open_delta(s, out, "signature_delta", "signature");
        lily_buf_printf(out, "\"%016" PRIx64 "\"", s->signature);
        close_delta(out);
    }
    open_event(out, "content_block_stop");
    lily_buf_printf(out, ",\"index\":%zu", s->index++);
    close_event(out);
    s->block = LILY_BLOCK_NONE;
}

/* `block`: the whole block, still empty, as JSON; for a call up to its input. */
static void begin_block(lily_anthropic_stream *s, enum lily_anthropic_block kind, const lily_answer_event *ev,
                        lily_buf *out)
{
    end_block(s, out);
    s->block = kind;
    s->signature = empty_signature;
    open_event(out, "content_block_start");
    lily_buf_printf(out, ",\"index\":%zu,\"content_block\":", s->index);
    if (kind == LILY_BLOCK_THINKING) {
        lily_buf_puts(out, "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}");
    } else if (kind == LILY_BLOCK_TEXT) {
        lily_buf_puts(out, "{\"type\":\"text\",\"text\":\"\"}");
    } else {
        put_tool_head(out, ev->text, ev->n);
        lily_buf_puts(out, "{}}");
    }
    close_event(out);
}

static void put_delta(const lily_anthropic_stream *s, const lily_answer_event *ev, const char *type, const char *key,
                      lily_buf *out)
{
    open_delta(s, out, type, key);
    lily_json_put_string(out, ev->text, ev->n);
    close_delta(out);
}

static void put_finish(lily_anthropic_stream *s, const lily_answer_event *ev, lily_buf *out)
{
    end_block(s, out);
    open_event(out, "message_delta");
    lily_buf_puts(out, ",\"delta\":{");
    put_stop(out, s->head, ev);
    lily_buf_puts(out, "},");
    put_usage(out, ev->usage);
    lily_buf_putc(out, ',');
    lily_openai_put_timings(out, ev->usage);
    close_event(out);
    open_event(out, "message_stop");
    close_event(out);
}

void lily_anthropic_stream_event(lily_anthropic_stream *s, const lily_answer_event *ev, lily_buf *out)
{
    if (ev->kind == LILY_ANSWER_START) {
        s->started = true;
        s->usage = *ev->usage;
    }
    if (ev->kind == LILY_ANSWER_START || ev->kind == LILY_ANSWER_PROGRESS) return;
    lily_anthropic_stream_open(s, out);
    switch (ev->kind) {
    case LILY_ANSWER_REASONING:
        if (s->block != LILY_BLOCK_THINKING) begin_block(s, LILY_BLOCK_THINKING, ev, out);
        s->signature = sign(s->signature, ev->text, ev->n);
        put_delta(s, ev, "thinking_delta", "thinking", out);
        break;
    case LILY_ANSWER_TEXT:
        if (s->block != LILY_BLOCK_TEXT) begin_block(s, LILY_BLOCK_TEXT, ev, out);
        put_delta(s, ev, "text_delta", "text", out);
        break;
    case LILY_ANSWER_CALL: begin_block(s, LILY_BLOCK_TOOL, ev, out); break;
    case LILY_ANSWER_ARGUMENTS: put_delta(s, ev, "input_json_delta", "partial_json", out); break;
    case LILY_ANSWER_CALL_END:
    case LILY_ANSWER_CALL_CUT: end_block(s, out); break;
    default: put_finish(s, ev, out); break;
    }
}

/* ---- not streamed ---- */

static void keep_block(lily_anthropic_answer *a)
{
    lily_buf *out = &a->blocks;
    if (a->text.failed || a->name.failed) out->failed = true;    /* the next block will clear them */
    if (a->block == LILY_BLOCK_NONE) return;
    if (out->len > 0) lily_buf_putc(out, ',');
    if (a->block == LILY_BLOCK_TOOL) {
        put_tool_head(out, lily_buf_str(&a->name), a->name.len);
        lily_buf_add(out, lily_buf_str(&a->text), a->text.len);
    } else {
        const char *type = a->block == LILY_BLOCK_TEXT ? "text" : "thinking";
        lily_buf_printf(out, "{\"type\":\"%s\",\"%s\":", type, type);
        lily_json_put_string(out, lily_buf_str(&a->text), a->text.len);
    }
    if (a->block == LILY_BLOCK_THINKING)
        lily_buf_printf(out, ",\"signature\":\"%016" PRIx64 "\"",
                        sign(empty_signature, lily_buf_str(&a->text), a->text.len));
    lily_buf_putc(out, '}');
    a->block = LILY_BLOCK_NONE;
}

static void need_block(lily_anthropic_answer *a, enum lily_anthropic_block kind)
{
    if (a->block == kind && kind != LILY_BLOCK_TOOL) return;
    keep_block(a);
    lily_buf_clear(&a->text);
    lily_buf_clear(&a->name);
    a->block = kind;
}

void lily_anthropic_answer_event(lily_anthropic_answer *a, const lily_answer_event *ev)
{
    switch (ev->kind) {
    case LILY_ANSWER_REASONING: need_block(a, LILY_BLOCK_THINKING); break;
    case LILY_ANSWER_TEXT: need_block(a, LILY_BLOCK_TEXT); break;
    case LILY_ANSWER_CALL:
        need_block(a, LILY_BLOCK_TOOL);
        lily_buf_add(&a->name, ev->text, ev->n);
        return;
    case LILY_ANSWER_CALL_CUT: a->block = LILY_BLOCK_NONE; return;    /* it must not be made */
    case LILY_ANSWER_CALL_END:
    case LILY_ANSWER_FINISH: keep_block(a); return;
    default: break;
    }
    if (ev->n > 0) lily_buf_add(&a->text, ev->text, ev->n);
}

int lily_anthropic_answer_json(const lily_anthropic_answer *a, const lily_answer_event *ev, lily_buf *out, lily_err *e)
{
    TRY(lily_buf_ok(&a->blocks, "an answer", e));
    put_head(out, a->head);
    if (a->blocks.len > 0) lily_buf_add(out, a->blocks.data, a->blocks.len);
    lily_buf_puts(out, "],");
    put_stop(out, a->head, ev);
    lily_buf_putc(out, ',');
    put_usage(out, ev->usage);
    lily_buf_putc(out, ',');
    lily_openai_put_timings(out, ev->usage);
    lily_buf_putc(out, '}');
    return lily_buf_ok(out, "an answer", e);
}

void lily_anthropic_answer_free(lily_anthropic_answer *a)
{
    lily_buf_free(&a->blocks);
    lily_buf_free(&a->text);
    lily_buf_free(&a->name);
}
