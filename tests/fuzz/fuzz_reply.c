/* fuzz_reply.c - hostile replies, whole and cut: no crash, whole characters, and the same calls either way.
 * Bytes 0xf8 to 0xfb of the input stand for the four added tokens. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/utf8.h"
#include "text/reply.h"

static const char *const TAGS[] = {"<think>", "</think>", "<tool_call>", "</tool_call>"};

typedef struct joined {
    lily_buf text;
    int last;
} joined;

static int sink(void *user, const lily_reply_event *ev, lily_err *e)
{
    (void)e;
    joined *j = user;
    if (ev->n && !lily_utf8_valid(ev->text, ev->n)) abort();
    if (j->last != (int)ev->kind || ev->kind == LILY_REPLY_CALL) lily_buf_printf(&j->text, "\xff%d:%zu ", (int)ev->kind, ev->call);
    lily_buf_add(&j->text, ev->text, ev->n);
    j->last = (int)ev->kind;
    return LILY_OK;
}

static void read_reply(const uint8_t *data, size_t size, size_t piece, int how, const json_t *tools, joined *out)
{
    lily_err e;
    lily_reply *r;
    lily_reply_options options = {.thinking = how & 1, .tools = tools, .sink = sink, .user = out};
    if (lily_reply_new(&r, &options, &e) != LILY_OK) abort();
    for (size_t at = 0; at < size;) {
        size_t n = 0;
        while (n < piece && at + n < size && (data[at + n] & 0xfc) != 0xf8) n++;
        if (n == 0) {
            const char *tag = TAGS[data[at++] & 3];
            if (lily_reply_feed(r, tag, strlen(tag), true, &e) != LILY_OK) abort();
        } else if (lily_reply_feed(r, (const char *)data + at, n, false, &e) != LILY_OK) {
            abort();
        }
        at += n;
    }
    if (lily_reply_finish(r, how & 2, &e) != LILY_OK) abort();
    lily_reply_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char declared[] = "[{\"function\":{\"name\":\"f\",\"parameters\":{\"properties\":{\"s\":{\"type\":\"string\"},"
                                   "\"i\":{\"type\":\"integer\"},\"o\":{\"type\":\"object\"},\"m\":{\"type\":[\"string\",\"null\"]}}}}}]";
    if (size == 0) return 0;
    json_t *tools = json_loads(declared, 0, NULL);
    joined whole = {.last = -1}, cut = {.last = -1};
    read_reply(data + 1, size - 1, SIZE_MAX, data[0], tools, &whole);
    read_reply(data + 1, size - 1, 1 + (data[0] >> 4), data[0], tools, &cut);
    if (whole.text.len != cut.text.len || (whole.text.len && memcmp(whole.text.data, cut.text.data, whole.text.len) != 0)) abort();
    lily_buf_free(&whole.text);
    lily_buf_free(&cut.text);
    json_decref(tools);
    return 0;
}
