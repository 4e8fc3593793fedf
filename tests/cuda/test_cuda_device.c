/* test_cuda_device.c - weights as they were, choices as host/pick.h makes them, states that branch and go back, the same
 * bits again. */
#include "gpu.h"

#include <string.h>

#include "base/mem.h"
#include "base/random.h"
#include "device/cuda/cuda.h"
#include "device/host/pick.h"

/* ---- weights ---- */

static void check_unpacked(lily_dev *d, const lily_matrix *m, const cuda_matrix *on_device, size_t *n_packed)
{
    if (on_device->layout == CUDA_RAW) return;
    const size_t codes = m->rows * lily_row_bytes(m), groups = 2ull * m->rows * lily_row_groups(m);
    uint8_t *there, *here = lily_calloc(1, codes + 2 * groups);
    assert_non_null(here);
    assert_int_equal(cudaMalloc((void **)&there, codes + 2 * groups), cudaSuccess);
    const uint32_t step = m->experts > 5 ? m->experts / 5 : 1;
    for (uint32_t e = 0; e < m->experts; e += step) {
        const lily_matrix one = lily_expert(m, e);
        assert_int_equal(cuda_unpack(on_device, e, there, there + codes, there + codes + groups, d->stream), cudaSuccess);
        assert_int_equal(cudaStreamSynchronize(d->stream), cudaSuccess);
        assert_int_equal(cudaMemcpy(here, there, codes + 2 * groups, cudaMemcpyDeviceToHost), cudaSuccess);
        assert_memory_equal(here, one.codes, codes);
        assert_memory_equal(here + codes, one.scales, groups);
        assert_memory_equal(here + codes + groups, one.biases, groups);
        ++*n_packed;
    }
    cudaFree(there);
    lily_free(here);
}

static void weights_unpack_to_the_same_bits(void **state)
{
    (void)state;
    gpu_or_skip();
    for (int m = 0; m < N_MODELS; m++) {
        opened o;
        session s;
        size_t n = 0;
        open_model(&o, gpu_models[m], 0, 0);
        open_session(&s, &o, &lily_dev_cuda, gpu_variant, 0, 0, 0);
        check_unpacked(s.dev, &o.model.embed, &s.weights->embed, &n);
        check_unpacked(s.dev, &o.model.head, &s.weights->head, &n);
        for (uint32_t i = 0; i < o.config.layers; i++) {
            const lily_layer *y = &o.model.layer[i];
            const cuda_layer *z = &s.weights->layer[i];
            const lily_matrix *from[] = {&y->router, &y->shared_gate, &y->sh_gate, &y->sh_up, &y->sh_down, &y->ex_gate, &y->ex_up, &y->ex_down};
            const cuda_matrix *to[] = {&z->router, &z->shared_gate, &z->sh_gate, &z->sh_up, &z->sh_down, &z->ex_gate, &z->ex_up, &z->ex_down};
            for (size_t k = 0; k < sizeof from / sizeof *from; k++) check_unpacked(s.dev, from[k], to[k], &n);
            const lily_matrix *attention[] = {&y->q, &y->k, &y->v, &y->o}, *delta[] = {&y->qkv, &y->z, &y->b, &y->a, &y->out};
            const cuda_matrix *there[] = {&z->q, &z->k, &z->v, &z->o}, *here[] = {&z->qkv, &z->z, &z->b, &z->a, &z->out};
            for (int k = 0; k < 4 && o.config.full_attention[i]; k++) check_unpacked(s.dev, attention[k], there[k], &n);
            for (int k = 0; k < 5 && !o.config.full_attention[i]; k++) check_unpacked(s.dev, delta[k], here[k], &n);
        }
        print_message("%s: %zu matrices packed, rows of one token: %s\n", strrchr(gpu_models[m], '/') + 1, n, s.dev->packed ? "yes" : "no");
        assert_true(m != 2 || (n > 100 && s.dev->packed));
        close_session(&s);
        close_model(&o);
    }
}

/* ---- choices ---- */

static lily_pick some_pick(uint32_t i, uint32_t vocab)
{
    lily_pick k = {.temperature = 1, .top_p = 1, .repetition = 1, .n_vocab = (int32_t)vocab, .seed = 7, .draw = i};
    if (i % 2) k.top_k = 1 + (int32_t)(i * 7 % 60);
    if (i % 3) k.top_p = 0.5f + 0.1f * (float)(i % 5);
    if (i % 5 == 0) k.min_p = 0.05f;
    if (i % 7 == 0) k.temperature = 0.3f + 0.2f * (float)(i % 4);
    if (i % 11 == 0) k.temperature = 0;
    if (i % 4 == 0) k.repetition = 1.2f, k.presence = 0.3f, k.frequency = 0.2f;
    if (i % 6 == 0) k.n_logprobs = 5;
    if (i % 13 == 0) k.n_vocab -= 17;
    return k;
}

/* Decodes with all kinds of picks; the host makes each choice again from the logits that the device had. */
static void choices_are_those_of_the_host(void **state)
{
    (void)state;
    gpu_or_skip();
    opened o;
    session s;
    lily_err e;
    open_model(&o, DEMO, 0, 0);
    open_session(&s, &o, &lily_dev_cuda, gpu_variant, 0, 0, 0);
    const uint32_t vocab = o.config.vocab;
    uint32_t *count = lily_calloc(vocab, sizeof *count), *allow = lily_calloc(vocab / 32 + 1, sizeof *allow);
    void *room = lily_calloc(1, lily_pick_room(vocab));
    int32_t token = 5;
    int same = 0;
    enum { N = 300 };
    for (uint32_t i = 0; i < N; i++) {
        lily_pick k = some_pick(i, vocab);
        const lily_bias bias[] = {{token, -100}, {(int32_t)(i % vocab), 2}};
        if (i % 9 == 0) k.bias = bias, k.n_bias = 2;
        for (uint32_t w = 0; w <= vocab / 32; w++) allow[w] = (uint32_t)(lily_uniform(3, i * 1000 + w) * 4294967296.0);
        if (i % 10 == 0) k.allow = allow;
        lily_done got, want = {0};
        const lily_lane lane = {.tokens = i ? NULL : &token, .n_tokens = 1, .pick = &k, .count = true};
        float *logits = gpu_run(&s, lane, true, &got);
        count[token]++;
        check_ok(lily_pick_token(logits, &k, count, room, &want, &e), &e);
        same += got.token == want.token;
        if (got.token != want.token)
            print_message("choice %u: %d, host %d (top_k %d, top_p %g, min_p %g, temperature %g)\n", i, got.token, want.token,
                          k.top_k, (double)k.top_p, (double)k.min_p, (double)k.temperature);
        if (got.token == want.token) assert_true(got.logprob - want.logprob < 1e-4f && want.logprob - got.logprob < 1e-4f);
        for (int t = 0; t < k.n_logprobs; t++) assert_int_equal(got.top[t].token, want.top[t].token);
        token = got.token;
        lily_free(logits);
    }
    print_message("%d of %d choices are the host's\n", same, N);
    assert_true(same >= N - 1);     /* a sum in another order may turn one draw in thousands */
    lily_free(room);
    lily_free(allow);
    lily_free(count);
    close_session(&s);
    close_model(&o);
}

static void nothing_allowed(void **state)
{
    (void)state;
    gpu_or_skip();
    opened o;
    session s;
    lily_err e;
    open_model(&o, TINY, 0, 0);
    open_session(&s, &o, &lily_dev_cuda, gpu_variant, 0, 0, 0);
    uint32_t *allow = lily_calloc(o.config.vocab / 32 + 1, sizeof *allow);
    const int32_t token = 1;
    const lily_pick k = {.top_p = 1, .repetition = 1, .n_vocab = (int32_t)o.config.vocab, .allow = allow};
    const lily_lane lane = {.state = s.state, .tokens = &token, .n_tokens = 1, .pick = &k};
    uint64_t ticket;
    lily_done done;
    check_ok(s.ops->submit(s.dev, s.exec[1], LILY_FORWARD, LILY_PICK, &lane, 1, &ticket, &e), &e);
    check_fails(s.ops->wait(s.dev, ticket, &done, 1, &e), LILY_ARGUMENT, &e);
    lily_free(allow);
    close_session(&s);
    close_model(&o);
}

/* ---- states ---- */

static float *replay(session *s, const int32_t *tokens, uint32_t n, const uint32_t *marks, uint32_t n_marks)
{
    lily_done done;
    return gpu_run(s, (lily_lane){.tokens = tokens, .n_tokens = n, .mark = marks, .n_marks = n_marks}, false, &done);
}

static void check_snapshots(const char *dir)
{
    opened o;
    session s;
    lily_err e;
    int32_t tokens[200], other[8];
    open_model(&o, dir, 0, 4);
    gpu_tokens(&o, tokens, 200);
    for (int i = 0; i < 8; i++) other[i] = tokens[100 + i];
    const size_t bytes = o.config.vocab * sizeof(float);
    open_session(&s, &o, &lily_dev_cuda, gpu_variant, 0, 0, 0);
    /* The same runs give the same bits; a mark may end a block of the scan, so it belongs to the run. */
    const uint32_t early[] = {1, 60}, late[] = {2, 90};
    lily_free(replay(&s, tokens, 60, early, 2));
    float *straight = replay(&s, tokens + 60, 90, late, 2);
    check_ok(s.ops->state_copy(s.dev, s.state, s.state, 0, &e), &e);
    lily_free(replay(&s, tokens, 60, NULL, 0));
    float *unmarked = replay(&s, tokens + 60, 90, NULL, 0);
    assert_true(difference(unmarked, straight, o.config.vocab) < 0.2);
    lily_free(unmarked);
    check_ok(s.ops->state_copy(s.dev, s.state, s.state, 0, &e), &e);
    lily_free(replay(&s, tokens, 60, early, 2));
    float *again = replay(&s, tokens + 60, 90, late, 2);
    assert_memory_equal(again, straight, bytes);
    lily_free(again);
    uint32_t at[8];
    assert_int_equal(s.ops->state_positions(s.state, at, 8), 4);
    assert_true(at[0] == 1 && at[1] == 60 && at[2] == 62 && at[3] == 150);

    /* A branch at 60 runs other tokens; the trunk is not disturbed, nor is the branch by the trunk. */
    lily_state *branch, *trunk = s.state;
    check_ok(s.ops->state_new(s.dev, s.weights, &branch, &e), &e);
    check_ok(s.ops->state_copy(s.dev, branch, trunk, 60, &e), &e);
    check_ok(s.ops->state_grow(s.dev, branch, CONTEXT, &e), &e);
    s.state = branch;
    float *branched = replay(&s, other, 8, NULL, 0);
    s.state = trunk;
    check_ok(s.ops->state_copy(s.dev, trunk, trunk, 60, &e), &e);
    again = replay(&s, tokens + 60, 90, late, 2);
    assert_memory_equal(again, straight, bytes);
    lily_free(again);
    s.state = branch;
    check_ok(s.ops->state_copy(s.dev, branch, branch, 60, &e), &e);
    again = replay(&s, other, 8, NULL, 0);
    assert_memory_equal(again, branched, bytes);
    s.state = trunk;
    check_fails(s.ops->state_copy(s.dev, branch, trunk, 59, &e), LILY_ARGUMENT, &e);
    s.ops->state_drop(s.dev, trunk, 60);
    check_fails(s.ops->state_copy(s.dev, branch, trunk, 60, &e), LILY_ARGUMENT, &e);
    s.ops->state_free(s.dev, branch);
    lily_free(again);
    lily_free(branched);
    lily_free(straight);
    close_session(&s);
    close_model(&o);
}

static void snapshots_and_branches(void **state)
{
    (void)state;
    gpu_or_skip();
    for (int m = 0; m < N_MODELS; m++) check_snapshots(gpu_models[m]);
}

/* A prompt and a reply from nothing; all logits of both go to `to`, one vocabulary after the other. */
static void prompt_and_reply(session *s, const int32_t *tokens, uint32_t n_prompt, uint32_t n_reply, float *to)
{
    lily_err e;
    lily_done done;
    const size_t vocab = s->weights->model->config->vocab;
    check_ok(s->ops->state_copy(s->dev, s->state, s->state, 0, &e), &e);
    for (uint32_t i = 0; i <= n_reply; i++) {
        const lily_lane lane = {.tokens = i ? tokens + n_prompt + i - 1 : tokens, .n_tokens = i ? 1 : n_prompt};
        float *logits = gpu_run(s, lane, i > 0, &done);
        memcpy(to + i * vocab, logits, vocab * sizeof *to);
        lily_free(logits);
    }
}

/* No sum depends on which block comes first. */
static void same_bits_again(void **state)
{
    (void)state;
    gpu_or_skip();
    enum { PROMPT = 200, REPLY = 20, TIMES = 5 };
    for (int m = 0; m < N_MODELS; m++)
        for (int single = 0; single < 2; single++) {
            opened o;
            session s;
            int32_t tokens[PROMPT + REPLY];
            open_model(&o, gpu_models[m], 0, 0);
            gpu_tokens(&o, tokens, PROMPT + REPLY);
            open_session(&s, &o, &lily_dev_cuda, gpu_variant, 0, single ? all_switches() : 0, 0);
            const size_t n = (size_t)(1 + REPLY) * o.config.vocab;
            float *first = lily_calloc(n, sizeof *first), *again = lily_calloc(n, sizeof *again);
            assert_true(first && again);
            prompt_and_reply(&s, tokens, PROMPT, REPLY, first);
            for (int i = 1; i < TIMES; i++) {
                prompt_and_reply(&s, tokens, PROMPT, REPLY, again);
                assert_memory_equal(again, first, n * sizeof *first);
            }
            lily_free(again);
            lily_free(first);
            close_session(&s);
            close_model(&o);
        }
}

static void cancelled_and_refused(void **state)
{
    (void)state;
    gpu_or_skip();
    opened o;
    session s;
    lily_err e;
    lily_done done;
    uint64_t ticket;
    int32_t tokens[200];
    open_model(&o, TINY, 0, 0);
    gpu_tokens(&o, tokens, 200);
    open_session(&s, &o, &lily_dev_cuda, gpu_variant, 0, 0, 0);
    const uint32_t mark = 40;
    run_tokens(&s, (lily_lane){.tokens = tokens, .n_tokens = 50, .mark = &mark, .n_marks = 1}, false, &done);
    atomic_bool stop = true;
    run_tokens(&s, (lily_lane){.tokens = tokens, .n_tokens = 5, .cancel = &stop}, false, &done);
    assert_true(done.cancelled);
    assert_int_equal(s.ops->state_position(s.state), 40);
    lily_lane lane = {.state = s.state, .tokens = tokens, .n_tokens = PREFILL_TOKENS + 1};
    check_fails(s.ops->submit(s.dev, s.exec[0], LILY_FORWARD, LILY_PICK, &lane, 1, &ticket, &e), LILY_ARGUMENT, &e);
    int32_t bad = (int32_t)o.config.vocab;
    lane = (lily_lane){.state = s.state, .tokens = &bad, .n_tokens = 1};
    check_fails(s.ops->submit(s.dev, s.exec[0], LILY_FORWARD, LILY_PICK, &lane, 1, &ticket, &e), LILY_ARGUMENT, &e);
    lane = (lily_lane){.state = s.state, .tokens = NULL, .n_tokens = 1};
    check_fails(s.ops->submit(s.dev, s.exec[1], LILY_FORWARD, LILY_PICK, &lane, 1, &ticket, &e), LILY_ARGUMENT, &e);
    assert_int_equal(s.ops->state_position(s.state), 40);
    for (int i = 0; i < 24; i++) run_tokens(&s, (lily_lane){.tokens = tokens, .n_tokens = 40}, false, &done);
    lane = (lily_lane){.state = s.state, .tokens = tokens, .n_tokens = 40};
    check_fails(s.ops->submit(s.dev, s.exec[0], LILY_FORWARD, LILY_PICK, &lane, 1, &ticket, &e), LILY_CONTEXT, &e);
    close_session(&s);
    close_model(&o);
}

/* The token stays on the device, and the next run is submitted before it was read: the same tokens as one by one. */
static void handed_over(void **state)
{
    (void)state;
    gpu_or_skip();
    opened o;
    session s;
    lily_err e;
    int32_t tokens[64], one_by_one[24];
    open_model(&o, DEMO, 0, 0);
    gpu_tokens(&o, tokens, 64);
    open_session(&s, &o, &lily_dev_cuda, gpu_variant, 0, 0, 0);
    for (int pass = 0; pass < 2; pass++) {
        lily_pick k = {.temperature = 0.8f, .top_p = 0.95f, .top_k = 40, .repetition = 1, .n_vocab = (int32_t)o.config.vocab, .seed = 5};
        lily_done done;
        check_ok(s.ops->state_copy(s.dev, s.state, s.state, 0, &e), &e);
        run_tokens(&s, (lily_lane){.tokens = tokens, .n_tokens = 64, .pick = &k}, false, &done);
        int32_t token = done.token;
        uint64_t ticket[24];
        for (uint32_t i = 0; i < 24; i++) {
            k.draw = i + 1;
            lily_lane lane = {.state = s.state, .tokens = pass ? NULL : &token, .n_tokens = 1, .pick = &k, .count = true};
            check_ok(s.ops->submit(s.dev, s.exec[1], LILY_FORWARD, LILY_PICK, &lane, 1, &ticket[i], &e), &e);
            if (pass == 0 || i > 0) {
                check_ok(s.ops->wait(s.dev, ticket[pass ? i - 1 : i], &done, 1, &e), &e);
                token = done.token;
                if (pass == 0) one_by_one[i] = token;
                else assert_int_equal(token, one_by_one[i - 1]);
            }
        }
    }
    close_session(&s);
    close_model(&o);
}

int main(int argc, char **argv)
{
    if (argc > 1) gpu_variant = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_unpack_to_the_same_bits), cmocka_unit_test(choices_are_those_of_the_host),
        cmocka_unit_test(nothing_allowed),                 cmocka_unit_test(snapshots_and_branches),
        cmocka_unit_test(same_bits_again),                 cmocka_unit_test(cancelled_and_refused),
        cmocka_unit_test(handed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
