/* fuzz_messages_request.c - any bytes as the body of a request to /v1/messages, through to the chat request. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/anthropic_request.h"
#include "api/openai_request.h"
#include "text/messages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool one_of(const char *role)
{
    return strcmp(role, "user") == 0 || strcmp(role, "assistant") == 0 || strcmp(role, "tool") == 0 ||
           strcmp(role, "system") == 0;
}

/* What came out of blocks must be messages that every reader behind takes. */
static void check_messages(const json_t *messages)
{
    lily_err e;
    json_t *normal;
    if (json_array_size(messages) == 0) abort();
    for (size_t i = 0; i < json_array_size(messages); i++)
        if (!one_of(json_string_value(json_object_get(json_array_get(messages, i), "role")))) abort();
    if (lily_messages_normalize(messages, &normal, &e) != LILY_OK) abort();
    json_decref(normal);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const lily_sampling_defaults sampling = {.temperature = 1, .top_p = 1, .repetition = 1};
    lily_openai_defaults d = {.sampling = &sampling, .n_vocab = 1000};
    lily_openai_request q;
    lily_refusal r = {0};
    json_t *body, *chat = NULL;
    lily_buf out = {0};
    int rc = lily_body_object((const char *)data, size, &body, &r);
    if (rc == LILY_OK) {
        rc = lily_anthropic_chat_body(body, NULL, &chat, &r);
        json_decref(body);
    }
    if (rc == LILY_OK) {
        check_messages(json_object_get(chat, "messages"));
        rc = lily_openai_request_read(&q, chat, &d, &r);
        lily_openai_request_free(&q);
    }
    if (rc != LILY_OK) {
        json_t *told;
        lily_refusal_json(&r, "/v1/messages", &out);
        if (lily_refusal_status(&r) != 400 || !(told = json_loads(out.data, 0, NULL))) abort();
        json_decref(told);
    }
    lily_buf_free(&out);
    return 0;
}
