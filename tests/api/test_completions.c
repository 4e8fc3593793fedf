/* /v1/completions: prompts in all their forms, and memory that runs out. */
#include "../check.h"

#include <string.h>

#include "api/completions_json.h"
#include "lost_memory.h"

static const lily_sampling_defaults sampling = {.temperature = 0.6f, .top_p = 0.95f, .repetition = 1, .top_k = 20};
static lily_tokenizer *tokenizer;

static int load(void **state)
{
    (void)state;
    lily_err e = {0};
    check_ok(lily_tokenizer_open(&tokenizer, LILY_SOURCE_DIR "/models/demo", &e), &e);
    return 0;
}

static int unload(void **state)
{
    (void)state;
    lily_tokenizer_free(tokenizer);
    return 0;
}

static int read_text(lily_completions_request *q, const char *text, lily_refusal *r)
{
    json_t *body;
    lily_openai_defaults d = {.sampling = &sampling, .n_vocab = 1000};
    lily_completions_limits limits = {.tokenizer = tokenizer, .vocab = 1000, .context = 16};
    *r = (lily_refusal){0};
    *q = (lily_completions_request){0};
    int rc = lily_body_object(text, strlen(text), &body, r);
    return rc == LILY_OK ? lily_completions_request_read(q, body, &d, &limits, r) : rc;
}

static void test_prompts(void **state)
{
    (void)state;
    lily_completions_request q;
    lily_refusal r;
    check_ok(read_text(&q, "{\"prompt\":[\"a\",[1,2,3],\"<|im_end|>\"],\"n\":2,\"logprobs\":3}", &r), &r.err);
    assert_int_equal(q.n_prompts, 3);
    assert_string_equal(q.prompts[0].text, "a");
    assert_null(q.prompts[1].text);
    assert_int_equal(q.prompts[1].ids.n, 3);
    assert_int_equal(q.prompts[1].ids.id[2], 3);
    assert_int_equal(q.prompts[2].ids.n, 1);
    assert_int_equal(q.prompts[2].ids.id[0], lily_token_find(tokenizer, "<|im_end|>", 10));
    assert_int_equal(q.q.n, 2);
    assert_int_equal(q.q.chat.max_tokens, 16);
    assert_true(q.q.chat.sampling.logprobs && q.q.chat.sampling.n_logprobs == 3);
    assert_ptr_equal(q.q.chat.prompt_ids, &q.prompts[0].ids);
    lily_completions_request_free(&q);
    check_ok(read_text(&q, "{\"prompt\":[7],\"max_tokens\":5}", &r), &r.err);
    assert_int_equal(q.n_prompts, 1);
    assert_int_equal(q.q.chat.max_tokens, 5);
    assert_false(q.q.chat.sampling.logprobs);
    lily_completions_request_free(&q);
}

static void test_shared_beginnings(void **state)
{
    (void)state;
    char text[2048], list[512] = "1";
    lily_completions_request q;
    lily_refusal r;
    lily_openai_defaults d = {.sampling = &sampling, .n_vocab = 1000};
    lily_completions_limits limits = {.tokenizer = tokenizer, .vocab = 1000, .context = 100};
    for (int i = 1; i < 40; i++) strcat(list, ",1");
    snprintf(text, sizeof text, "{\"prompt\":[[%s,2],[%s,3,4],[%s]]}", list, list, list);
    json_t *body = json_loads(text, 0, NULL);
    r = (lily_refusal){0};
    check_ok(lily_completions_request_read(&q, body, &d, &limits, &r), &r.err);
    assert_int_equal(q.shared, 40);
    assert_int_equal(q.q.chat.prompt_mark, 40);
    lily_completions_request_free(&q);
    check_ok(read_text(&q, "{\"prompt\":[[1,2],[1,3]]}", &r), &r.err);
    assert_int_equal(q.shared, 0);
    lily_completions_request_free(&q);
}

static void test_room(void **state)
{
    (void)state;
    lily_completions_request q;
    lily_refusal r;
    check_ok(read_text(&q, "{\"prompt\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]}", &r), &r.err);
    lily_completions_request_free(&q);
    check_fails(read_text(&q, "{\"prompt\":[[1],[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]]}", &r), LILY_CONTEXT, &r.err);
    assert_int_equal(r.n_prompt, 16);
    assert_int_equal(r.n_ctx, 16);
    assert_non_null(strstr(r.err.text, "prompt[1]"));
    lily_completions_request_free(&q);
    check_fails(read_text(&q, "{\"prompt\":[1000]}", &r), LILY_ARGUMENT, &r.err);
    lily_completions_request_free(&q);
}

/* ---- memory ---- */

static const char request[] = "{\"prompt\":[\"a\",[1,2]],\"n\":2,\"echo\":true,\"stop\":[\"x\"],\"stream_options\":{\"include_usage\":true}}";

static int answer(const lily_completions_request *q, bool streamed, lily_buf *out, lily_err *e)
{
    lily_completions_writer w;
    lily_usage usage = {.n_prompt = 2, .n_reply = 5};
    int rc = LILY_OK;
    lily_completions_writer_init(&w, q, "m", tokenizer);
    for (size_t i = 0; i < 4; i++) {
        lily_answer_event text = {.kind = LILY_ANSWER_TEXT, .text = "Yes.", .n = 4, .usage = &usage};
        lily_answer_event end = {.kind = LILY_ANSWER_FINISH, .finish = LILY_FINISH_LENGTH, .usage = &usage};
        if (streamed) {
            lily_completions_event(&w, &text, out);
            lily_completions_event(&w, &end, out);
        } else {
            lily_completions_gather(&w, &text);
            lily_completions_gather(&w, &end);
        }
    }
    if (!streamed) rc = lily_completions_whole(&w, out, e);
    assert_int_equal(w.sum.n_prompt, 4);
    assert_int_equal(w.sum.n_reply, 20);
    lily_completions_writer_free(&w);
    return rc == LILY_OK ? lily_buf_ok(out, "a stream", e) : rc;
}

static int whole_request(bool streamed, lily_buf *out, lily_err *e)
{
    lily_completions_request q;
    lily_refusal r;
    int rc = read_text(&q, request, &r);
    if (rc == LILY_OK) rc = answer(&q, streamed, out, e);
    else *e = r.err;
    lily_completions_request_free(&q);
    return rc;
}

static void test_memory_runs_out(void **state)
{
    (void)state;
    check_lost_memory(whole_request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts),
        cmocka_unit_test(test_shared_beginnings),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_memory_runs_out),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
