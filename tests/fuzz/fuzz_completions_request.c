/* fuzz_completions_request.c - any bytes as the body of /v1/completions. */
#include <stdint.h>
#include <stdlib.h>

#include "api/completions_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const lily_tokenizer *tokenizer(void)
{
    static lily_tokenizer *k;
    lily_err e;
    if (!k && lily_tokenizer_open(&k, LILY_MODEL_DIR, &e) != LILY_OK) abort();
    return k;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const lily_sampling_defaults sampling = {.temperature = 1, .top_p = 1, .repetition = 1};
    lily_openai_defaults d = {.sampling = &sampling, .n_vocab = 1000};
    lily_completions_limits limits = {.tokenizer = tokenizer(), .vocab = 1000, .context = 4096};
    lily_completions_request q;
    lily_refusal r = {0};
    json_t *body;
    int rc = lily_body_object((const char *)data, size, &body, &r);
    if (rc == LILY_OK) {
        rc = lily_completions_request_read(&q, body, &d, &limits, &r);
        if (rc == LILY_OK && (q.n_prompts == 0 || q.n_prompts * (size_t)q.q.n > LILY_COMPLETIONS_MOST)) abort();
        for (size_t i = 0; rc == LILY_OK && i < q.n_prompts; i++)
            if (q.prompts[i].ids.n == 0 || q.prompts[i].ids.n >= limits.context) abort();
        lily_completions_request_free(&q);
    }
    if (rc != LILY_OK && lily_refusal_status(&r) != 400) abort();
    return 0;
}
