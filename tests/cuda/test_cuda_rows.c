/* test_cuda_rows.c - every slot that cuda writes against ref's, layer by layer and over whole models, in prompts of
 * many lengths and token after token, with fused rows and without. */
#include "gpu.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "device/beside.h"
#include "text/tokenizer.h"

static const uint32_t lengths[] = {1, 2, 63, 64, 65, 200};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths, MOST = 208 };

static uint64_t scratch_slots(void)
{
    uint64_t set = 0;
    for (unsigned s = 0; s < N_SLOTS; s++)
        if (lily_slot_kind(s) == SLOT_SCRATCH) set |= lily_bit(s);
    return set;
}

/* A run of cuda beside one of ref. */
typedef struct comparison {
    const session *gpu;
    uint32_t tokens;
    bool decode;
    const char *what;
} comparison;

static void judge(void *user, uint32_t stage, unsigned slot, double off)
{
    const comparison *c = user;
    const lily_row *row = &lily_dev_cuda.rows[c->gpu->plan[c->decode]->stages[stage].row];
    gpu_expect(off, (double)row->tolerance, "%s, %u tokens, row %s, slot %s", c->what, c->tokens, row->name, lily_slot_name(slot));
}

static void run_both(session *gpu, session *ref, const lily_config *c, const int32_t *tokens, uint32_t n, bool decode,
                     const char *what)
{
    lily_err e;
    const lily_lane lane = {.tokens = tokens, .n_tokens = n};
    comparison with = {gpu, n, decode, what};
    lily_beside b = {.ops = &lily_dev_cuda,
                     .dev = gpu->dev,
                     .ref = ref->dev,
                     .config = c,
                     .plan = gpu->plan[decode],
                     .ref_plan = ref->plan[decode],
                     .exec = gpu->exec[decode],
                     .ref_exec = ref->exec[decode],
                     .state = gpu->state,
                     .ref_state = ref->state,
                     .slots = lily_beside_slots() & ~lily_bit(SLOT_TOKEN),      /* none is chosen */
                     .judge = judge,
                     .user = &with};
    check_ok(lily_beside_run(&b, &lane, &e), &e);
}

/* ||a - b|| / ||b|| */
static double distance(const float *a, const float *b, size_t n)
{
    double off = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        off += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        all += (double)b[i] * b[i];
    }
    return sqrt(off / all);
}

static void compare_state(session *gpu, session *ref, const lily_config *c, uint32_t tokens, const char *what)
{
    lily_err e;
    const unsigned slot = c->full_attention[0] ? SLOT_KV : SLOT_S;
    const size_t room = slot == SLOT_KV ? 2 * (size_t)tokens * lily_kv_width(c) : (size_t)lily_value_width(c) * c->lin_k_dim;
    float *a = lily_calloc(room, 4), *b = lily_calloc(room, 4);
    for (int i = 0; i < (slot == SLOT_S ? 2 : 1); i++) {
        size_t n, m;
        const unsigned which = i ? SLOT_TAIL : slot;
        check_ok(gpu->ops->peek_state(gpu->dev, gpu->state, which, 0, a, room, &n, &e), &e);
        check_ok(ref->ops->peek_state(ref->dev, ref->state, which, 0, b, room, &m, &e), &e);
        assert_int_equal(n, m);
        gpu_expect(distance(a, b, n), 0.02, "%s, %u tokens, state %s", what, tokens, lily_slot_name(which));
    }
    lily_free(a);
    lily_free(b);
}

/* prompts: all slots that a prompt's rows pass on are kept, so that each row is judged alone; else replies only. */
static void check_layer(const char *dir, uint32_t layer, uint64_t without, uint64_t keep, bool prompts, const char *how)
{
    opened o;
    session gpu, ref;
    int32_t tokens[MOST];
    char what[256];
    open_model(&o, dir, layer, 1);
    gpu_tokens(&o, tokens, MOST);
    open_session(&gpu, &o, &lily_dev_cuda, gpu_variant, 0, without, keep);
    open_session(&ref, &o, &lily_dev_ref, NULL, 1, 0, 0);
    snprintf(what, sizeof what, "%s layer %u, %s", strrchr(dir, '/') + 1, layer, how);
    uint32_t position = 0;
    for (int i = 0; i < N_LENGTHS; i++) {
        if (prompts) run_both(&gpu, &ref, &o.config, tokens, lengths[i], false, what);
        if (prompts) position += lengths[i];
        for (int k = 0; k < 3; k++) run_both(&gpu, &ref, &o.config, tokens + lengths[i] + k, 1, true, what);
        position += 3;
        compare_state(&gpu, &ref, &o.config, position, what);
    }
    close_session(&gpu);
    close_session(&ref);
    close_model(&o);
}

static void layers_agree_with_ref(void **state)
{
    (void)state;
    gpu_or_skip();
    const uint64_t inside = lily_bit(SLOT_U) | lily_bit(SLOT_QK) | lily_bit(SLOT_G) | lily_bit(SLOT_DN) | lily_bit(SLOT_Q) |
                            lily_bit(SLOT_K) | lily_bit(SLOT_AO) | lily_bit(SLOT_EGU) | lily_bit(SLOT_SGU) |
                            lily_bit(SLOT_ED) | lily_bit(SLOT_SD) | lily_bit(SLOT_SG) | lily_bit(SLOT_MIX);
    const uint64_t inside_prompts = lily_bit(SLOT_EGU) | lily_bit(SLOT_SGU);
    const uint64_t experts = lily_bit(SLOT_RL) | lily_bit(SLOT_TOPI) | lily_bit(SLOT_TOPW) | lily_bit(SLOT_EH) | lily_bit(SLOT_SH);
    uint64_t controls = lily_bit(ABLATE_TILE_SELECT) | lily_bit(ABLATE_DEVICE_ROUTING);
    if (gpu_is_hopper()) controls |= lily_bit(ABLATE_FUSED_DEQUANT);
    for (int m = 0; m < N_MODELS; m++)
        for (uint32_t layer = 0; layer <= 3; layer += 3) {
            check_layer(gpu_models[m], layer, 0, scratch_slots() & ~inside & ~experts, false, "fused");
            check_layer(gpu_models[m], layer, 0, scratch_slots() & ~inside_prompts, true, "experts in three rows");
            check_layer(gpu_models[m], layer, all_switches(), scratch_slots(), true, "single");
            check_layer(gpu_models[m], layer, controls, scratch_slots() & ~inside_prompts, true, "controls");
        }
    gpu_settle();
}

/* Token after token, as exact as float but for keys and values; the graph is taken from the second on. */
static void check_reply(const opened *o, const char *name, uint64_t without, const int32_t *tokens)
{
    session gpu, ref;
    lily_done got, want;
    double most = 0, sum = 0;
    enum { N = 40 };
    open_session(&gpu, o, &lily_dev_cuda, gpu_variant, 0, without, 0);
    open_session(&ref, o, &lily_dev_ref, NULL, 1, 0, 0);
    for (int i = 0; i < N; i++) {
        const lily_lane one = {.tokens = tokens + i, .n_tokens = 1};
        float *a = gpu_run(&gpu, one, true, &got), *b = gpu_run(&ref, one, true, &want);
        const double off = distance(a, b, o->config.vocab);
        sum += off / N;
        if (off > most) most = off;
        lily_free(a);
        lily_free(b);
    }
    print_message("%s, reply%s: logits off by %.2g of their norm, %.2g at most\n", name, without ? ", single rows" : "", sum, most);
    gpu_expect(sum, 1e-2, "%s, reply", name);
    close_session(&gpu);
    close_session(&ref);
}

/* How a prompt of cuda's differs from ref's. */
typedef struct apart {
    double logits;              /* of the last token, of their norm */
    double mean, size;          /* of the scores' differences, and of their magnitudes */
    uint32_t same;              /* best tokens that are equal */
} apart;

static apart read_prompt(const opened *o, uint64_t without, const int32_t *tokens, uint32_t n, const char *name)
{
    session gpu, ref;
    lily_done got, want;
    open_session(&gpu, o, &lily_dev_cuda, gpu_variant, 0, without, 0);
    open_session(&ref, o, &lily_dev_ref, NULL, 1, 0, 0);
    const lily_lane lane = {.tokens = tokens, .n_tokens = n, .scored = tokens + 1};
    float *a = gpu_run(&gpu, lane, false, &got), *b = gpu_run(&ref, lane, false, &want);
    apart r = {.logits = distance(a, b, o->config.vocab)};
    for (uint32_t t = 0; t < n; t++) {
        const double d = (double)got.scores[t] - want.scores[t];
        r.mean += d / n;
        r.size += fabs(d) / n;
        r.same += got.best[t] == want.best[t];
    }
    print_message("%s: logits off by %.2g of their norm, scores by %.2g on average and %.2g in size, %u of %u best equal\n", name,
                  r.logits, r.mean, r.size, r.same, n);
    lily_free(a);
    lily_free(b);
    close_session(&gpu);
    close_session(&ref);
    return r;
}

/* Random tokens are unlikely ones: their scores are far down and differ by much, and the best of few are nearly tied. */
static void whole_models_agree_with_ref(void **state)
{
    (void)state;
    gpu_or_skip();
    for (int m = 0; m < N_MODELS; m++) {
        opened o;
        int32_t tokens[65];
        open_model(&o, gpu_models[m], 0, 0);
        gpu_tokens(&o, tokens, 65);
        const char *name = strrchr(gpu_models[m], '/') + 1;
        check_reply(&o, name, 0, tokens);
        check_reply(&o, name, all_switches(), tokens);
        const apart r = read_prompt(&o, 0, tokens, 64, name);
        gpu_expect(r.logits, 0.1, "%s, prompt, logits", name);
        gpu_expect(r.size, 0.2, "%s, prompt, scores", name);
        gpu_expect(64 - r.same, 10, "%s, prompt, best", name);
        close_model(&o);
    }
    gpu_settle();
}

/* The demo model reads what it was made for, the delta rule in blocks of tokens and token by token. */
static void scores_of_text(void **state)
{
    (void)state;
    gpu_or_skip();
    enum { N = 192 };
    opened o;
    lily_err e;
    lily_tokenizer *tokenizer;
    lily_buf text = {0};
    lily_ids ids = {0};
    open_model(&o, DEMO, 0, 0);
    check_ok(lily_tokenizer_open(&tokenizer, DEMO, &e), &e);
    check_ok(lily_file_read(&text, LILY_SOURCE_DIR "/tests/fixtures/eval.txt", 1 << 20, &e), &e);
    check_ok(lily_encode(tokenizer, text.data, text.len < 2000 ? text.len : 2000, false, &ids, &e), &e);
    assert_true(ids.n > N);
    const uint64_t without[] = {0, lily_bit(ABLATE_MATRIX_SCAN)};
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "text, token by token" : "text, in blocks";
        const apart r = read_prompt(&o, without[i], ids.id, N, name);
        gpu_expect(r.logits, 0.03, "%s, logits", name);
        gpu_expect(fabs(r.mean), 0.005, "%s, scores", name);
        gpu_expect(r.size, 0.01, "%s, size of scores", name);
        gpu_expect(N - r.same, 6, "%s, best", name);
    }
    lily_ids_free(&ids);
    lily_buf_free(&text);
    lily_tokenizer_free(tokenizer);
    close_model(&o);
    gpu_settle();
}

/* Several pages, several splits of the cache, and a last tile that is cut. */
static void long_context(void **state)
{
    (void)state;
    gpu_or_skip();
    opened o;
    session gpu, ref;
    int32_t tokens[1000];
    open_model(&o, DEMO, 3, 1);
    gpu_tokens(&o, tokens, 1000);
    open_session(&gpu, &o, &lily_dev_cuda, gpu_variant, 0, 0, lily_bit(SLOT_AOG));
    open_session(&ref, &o, &lily_dev_ref, NULL, 1, 0, 0);
    for (uint32_t t = 0; t < 1000; t += 250) {
        run_both(&gpu, &ref, &o.config, tokens + t, 250, false, "long prompt");
        for (int i = 0; i < 2; i++) run_both(&gpu, &ref, &o.config, tokens + t, 1, true, "long reply");
    }
    close_session(&gpu);
    close_session(&ref);
    close_model(&o);
    gpu_settle();
}

int main(int argc, char **argv)
{
    if (argc > 1) gpu_variant = argv[1];
    const struct CMUnitTest tests[] = {cmocka_unit_test(layers_agree_with_ref), cmocka_unit_test(whole_models_agree_with_ref),
                                       cmocka_unit_test(scores_of_text), cmocka_unit_test(long_context)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
