/* fuzz_template.c - a hostile template on a small conversation, or the shipped one on a hostile conversation. */
#include <jansson.h>
#include <stdint.h>
#include <stdlib.h>

#include "text/big_number.h"
#include "text/messages.h"
#include "text/template.h"

static const char CONVERSATION[] =
    "[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"u\"}]},"
    "{\"role\":\"assistant\",\"content\":\"<think>a</think>b\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":"
    "{\"x\":[1,2.5,null,true]}}}]},{\"role\":\"tool\",\"content\":\"r\"}]";

static void render(const lily_template *t, const json_t *messages, lily_err *e)
{
    lily_rendered r = {.limit = 1 << 20};
    if (lily_template_render(t, messages, messages, NULL, true, &r, e) == LILY_OK) {
        size_t at = 0;
        for (size_t i = 0; i < r.n_spans; at = r.spans[i++].end)
            if (r.spans[i].end <= at) abort();
        if (at != r.text.len) abort();
        lily_rendered_in_think(&r);
    }
    lily_rendered_free(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static lily_template *shipped;
    lily_err e;
    json_t *messages, *normal;
    lily_template *t;
    if (!shipped && lily_template_load(&shipped, LILY_MODEL_DIR, &e) != LILY_OK) abort();
    if (size == 0) return 0;
    if (data[0] & 1) {
        if (lily_json_parse_big(&messages, CONVERSATION, sizeof CONVERSATION - 1, "fuzz", &e) != LILY_OK) abort();
        if (lily_template_parse(&t, (const char *)data + 1, size - 1, "fuzz", &e) == LILY_OK) {
            render(t, messages, &e);
            lily_template_free(t);
        }
    } else {
        if (lily_json_parse_big(&messages, (const char *)data + 1, size - 1, "fuzz", &e) != LILY_OK) return 0;
        render(shipped, messages, &e);
        if (lily_messages_normalize(messages, &normal, &e) == LILY_OK) {
            render(shipped, normal, &e);
            json_decref(normal);
        }
    }
    json_decref(messages);
    return 0;
}
