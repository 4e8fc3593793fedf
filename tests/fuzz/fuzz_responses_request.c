/* fuzz_responses_request.c - any bytes as the body of /v1/responses; what was taken is told in a response, too. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "api/responses_json.h"
#include "text/big_number.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_json(const char *text, size_t n)
{
    json_t *told;
    lily_err e;
    if (lily_json_parse_big(&told, text, n, "the answer", &e) != LILY_OK) abort();
    json_decref(told);
}

static void tell(const lily_responses_request *q)
{
    static const lily_answer_kind kinds[] = {LILY_ANSWER_REASONING, LILY_ANSWER_TEXT,     LILY_ANSWER_CALL,
                                             LILY_ANSWER_ARGUMENTS, LILY_ANSWER_CALL_END, LILY_ANSWER_FINISH};
    static const char *const texts[] = {"Hm.", "Yes.", "f", "{\"input\": \"x\"}", NULL, NULL};
    lily_responses_writer w;
    lily_buf out = {0};
    lily_usage usage = {.n_prompt = 1};
    lily_err e;
    lily_responses_writer_init(&w, q, "m", NULL);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        lily_answer_event ev = {.kind = kinds[i], .text = texts[i], .n = texts[i] ? strlen(texts[i]) : 0, .usage = &usage};
        lily_responses_gather(&w, &ev);
        if (ev.kind == LILY_ANSWER_FINISH && lily_responses_whole(&w, &ev, &out, &e) != LILY_OK) abort();
    }
    check_json(out.data, out.len);
    lily_buf_free(&out);
    lily_responses_writer_free(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const lily_sampling_defaults sampling = {.temperature = 1, .top_p = 1, .repetition = 1};
    lily_openai_defaults d = {.sampling = &sampling, .n_vocab = 1000};
    lily_responses_request q;
    lily_refusal r = {0};
    json_t *body;
    int rc = lily_body_object((const char *)data, size, &body, &r);
    if (rc == LILY_OK) {
        rc = lily_responses_request_read(&q, body, &d, &r);
        if (rc == LILY_OK && !q.chat.chat.messages) abort();
        if (rc == LILY_OK) tell(&q);
        lily_responses_request_free(&q);
    }
    if (rc != LILY_OK) {
        lily_buf out = {0};
        lily_refusal_json(&r, "/v1/responses", &out);
        if (lily_refusal_status(&r) != 400) abort();
        check_json(out.data, out.len);
        lily_buf_free(&out);
    }
    return 0;
}
