/* fuzz_chat_request.c - any bytes as the body of a chat request. */
#include <stdint.h>
#include <stdlib.h>

#include "api/openai_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const lily_sampling_defaults sampling = {.temperature = 1, .top_p = 1, .repetition = 1};
    lily_openai_defaults d = {.sampling = &sampling, .n_vocab = 1000};
    lily_openai_request q;
    lily_refusal r = {0};
    json_t *body;
    lily_buf out = {0};
    int rc = lily_body_object((const char *)data, size, &body, &r);
    if (rc == LILY_OK) {
        rc = lily_openai_request_read(&q, body, &d, &r);
        if (rc == LILY_OK && (!q.chat.messages || q.chat.n_stop > LILY_STOP_MAX || q.chat.sampling.temperature < 0)) abort();
        lily_openai_request_free(&q);
    }
    if (rc != LILY_OK) {
        json_t *told;
        lily_refusal_json(&r, "/v1/chat/completions", &out);
        if (lily_refusal_status(&r) != 400 || !(told = json_loads(out.data, 0, NULL))) abort();
        json_decref(told);
    }
    lily_buf_free(&out);
    return 0;
}
