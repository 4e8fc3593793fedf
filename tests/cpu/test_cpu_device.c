/* test_cpu_device.c - the cpu device against ref, row by row within each row's declared difference, and against
 * itself: the same bits however tokens are cut into runs, on however many threads. */
#include "kernels_check.h"
#include "device/cpu/cpu.h"
#include "session.h"

#define TINY LILY_BINARY_DIR "/tests/ck/tiny"
#define ODD  LILY_BINARY_DIR "/tests/ck/odd"
#define DEMO LILY_SOURCE_DIR "/models/demo"

static const char *const models[] = {TINY, ODD, DEMO};
enum { N_MODELS = 3, MAX_TOKENS = 200 };

static void some_tokens(const opened *o, int32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) tokens[i] = (int32_t)(lily_uniform(11, i) * o->config.vocab);
}

/* ---- row by row ---- */

static uint64_t scratch_slots(void)
{
    uint64_t set = 0;
    for (unsigned s = 0; s < N_SLOTS; s++)
        if (lily_slot_kind(s) == SLOT_SCRATCH) set |= lily_bit(s);
    return set;
}

static bool is_whole_numbers(unsigned slot)
{
    return slot == SLOT_TOPI || slot == SLOT_COUNTS || slot == SLOT_OFFSETS || slot == SLOT_ORDER || slot == SLOT_PLACE;
}

/* A run of cpu beside a finished one of ref. */
typedef struct comparison {
    session *ref;
    const lily_config *config;
    const lily_plan *plan;      /* cpu's */
    const lily_row *rows;
    uint64_t keep;
    uint32_t tokens;
    bool decode;
} comparison;

static uint64_t written_after(const lily_plan *p, uint32_t stage)
{
    uint64_t set = 0;
    for (uint32_t i = stage + 1; i < p->n_stages; i++) set |= p->stages[i].writes;
    return set;
}

/* What a stage wrote is compared with ref's and then replaced by it, so that the next stage's difference is its own. */
static void compare_stage(void *context, lily_exec *x, uint32_t index)
{
    comparison *c = context;
    lily_err e;
    const lily_stage *stage = &c->plan->stages[index];
    const double allowed = c->rows[stage->row].tolerance;
    for (unsigned s = 0; s < N_SLOTS; s++) {
        if (!(stage->writes & c->keep & ~written_after(c->plan, index) & lily_bit(s))) continue;
        size_t n = (size_t)lily_slot_elements(s, c->config, c->tokens);
        void *mine = x->scratch.memory + c->plan->slot_at[s], *want = lily_calloc(n, 4);
        check_ok(c->ref->ops->peek(c->ref->dev, c->ref->exec[c->decode], s, want, n * 4, &e), &e);
        if (is_whole_numbers(s)) {
            assert_memory_equal(mine, want, n * 4);
        } else {
            double off = difference(mine, want, n);
            if (!(off <= allowed))
                fail_msg("row %s, slot %s: %.2g of its rms, declared %.2g", c->rows[stage->row].name, lily_slot_name(s), off,
                         allowed);
        }
        memcpy(mine, want, n * 4);
        lily_free(want);
    }
}

static void compare_run(session *cpu, session *ref, const lily_config *config, lily_lane lane, bool decode)
{
    lily_done done;
    comparison c = {ref, config, cpu->plan[decode], cpu->ops->rows, cpu->keep, lane.n_tokens, decode};
    run_tokens(ref, lane, decode, &done);
    cpu->exec[decode]->watch = compare_stage;
    cpu->exec[decode]->watch_arg = &c;
    run_tokens(cpu, lane, decode, &done);
}

static void check_layer(const opened *o, const char *which, uint64_t without, uint64_t keep)
{
    session cpu, ref;
    int32_t tokens[MAX_TOKENS];
    some_tokens(o, tokens, MAX_TOKENS);
    open_session(&cpu, o, &lily_dev_cpu, which, 2, without, keep);
    open_session(&ref, o, &lily_dev_ref, NULL, 1, 0, keep);
    compare_run(&cpu, &ref, &o->config, (lily_lane){.tokens = tokens, .n_tokens = 37}, false);
    compare_run(&cpu, &ref, &o->config, (lily_lane){.tokens = tokens + 37, .n_tokens = 1}, true);
    close_session(&cpu);
    close_session(&ref);
}

/* Watching these slots splits no row. */
static void check_whole_rows(const opened *o, uint64_t keep)
{
    session plain, watched;
    open_session(&plain, o, &lily_dev_cpu, NULL, 1, 0, 0);
    open_session(&watched, o, &lily_dev_cpu, NULL, 1, 0, keep);
    for (int i = 0; i < 2; i++) assert_int_equal(watched.plan[i]->n_stages, plain.plan[i]->n_stages);
    close_session(&watched);
    close_session(&plain);
}

/* One layer of each kind is a model.  A slot inside a fused row is not written by it, and watching it would take the
 * row away. */
static void rows_agree_with_ref(void **state)
{
    (void)state;
    const uint64_t inside = lily_bit(SLOT_U) | lily_bit(SLOT_QK) | lily_bit(SLOT_G) | lily_bit(SLOT_DN) | lily_bit(SLOT_K) |
                            lily_bit(SLOT_AO) | lily_bit(SLOT_EGU) | lily_bit(SLOT_SGU) | lily_bit(SLOT_ED) |
                            lily_bit(SLOT_SD) | lily_bit(SLOT_SG);
    FOR_TABLES(k) for (int m = 0; m < N_MODELS; m++) for (uint32_t layer = 0; layer < 4; layer += 3)
    {
        opened o;
        open_model(&o, models[m], layer, 1);
        uint64_t other = 0;
        for (unsigned s = 0; s < N_SLOTS; s++)    /* of the other kind of layer: no step writes them */
            if (o.config.full_attention[0] ? s >= SLOT_QKV && s <= SLOT_DNG : s >= SLOT_QG && s <= SLOT_AOG)
                other |= lily_bit(s);
        uint64_t keep = scratch_slots() & ~other;
        check_layer(&o, k->name, all_switches(), keep);
        check_layer(&o, k->name, 0, keep & ~inside);
        check_whole_rows(&o, keep & ~inside);
        close_model(&o);
    }
}

/* ---- the whole model ---- */

static void check_scores(const opened *o, const lily_cpu_kernels *k, const int32_t *tokens, const lily_done *want)
{
    session cpu;
    lily_done got;
    open_session(&cpu, o, &lily_dev_cpu, k->name, 0, 0, 0);
    run_tokens(&cpu, (lily_lane){.tokens = tokens, .n_tokens = 64, .scored = tokens + 1}, false, &got);
    double off = difference(got.logits, want->logits, o->config.vocab), mean = 0;
    int same = 0;
    for (int t = 0; t < 64; t++) {
        mean += fabs((double)got.scores[t] - want->scores[t]) / 64;
        same += got.best[t] == want->best[t];
    }
    print_message("%s: last logits differ by %.2g of their rms, scores by %.2g on average, %d of 64 best equal\n",
                  k->name, off, mean, same);
    assert_true(off < 0.02 && mean < 0.01 && same >= 62);
    close_session(&cpu);
}

static void logits_and_scores_agree_with_ref(void **state)
{
    (void)state;
    for (int m = 0; m < N_MODELS; m++) {
        opened o;
        session ref;
        lily_done want;
        int32_t tokens[65];
        open_model(&o, models[m], 0, 0);
        some_tokens(&o, tokens, 65);
        open_session(&ref, &o, &lily_dev_ref, NULL, 1, 0, 0);
        run_tokens(&ref, (lily_lane){.tokens = tokens, .n_tokens = 64, .scored = tokens + 1}, false, &want);
        FOR_TABLES(k) check_scores(&o, k, tokens, &want);
        close_session(&ref);
        close_model(&o);
    }
}

/* ---- the same bits ---- */

typedef struct outcome {
    float *logits, *s;
    size_t n_logits, n_s;
} outcome;

static outcome outcome_of(session *s, const opened *o, const float *logits)
{
    lily_err e;
    outcome r = {.n_logits = o->config.vocab, .n_s = (size_t)lily_value_width(&o->config) * o->config.lin_k_dim};
    size_t n;
    r.logits = lily_calloc(r.n_logits, sizeof *r.logits);
    r.s = lily_calloc(r.n_s, sizeof *r.s);
    memcpy(r.logits, logits, r.n_logits * sizeof *logits);
    check_ok(s->ops->peek_state(s->dev, s->state, SLOT_S, 2, r.s, r.n_s, &n, &e), &e);
    assert_int_equal(n, r.n_s);
    return r;
}

static void check_outcome(const outcome *a, const outcome *b)
{
    assert_memory_equal(a->logits, b->logits, a->n_logits * sizeof(float));
    assert_memory_equal(a->s, b->s, a->n_s * sizeof(float));
}

static void free_outcome(outcome *r)
{
    lily_free(r->logits);
    lily_free(r->s);
}

/* n tokens in runs of `chunk`; runs of one token take the decode plan. */
static outcome in_chunks(const opened *o, const char *which, uint32_t threads, uint64_t without, const int32_t *tokens,
                         uint32_t n, uint32_t chunk)
{
    session s;
    lily_done done;
    const float *logits = NULL;
    open_session(&s, o, &lily_dev_cpu, which, threads, without, 0);
    for (uint32_t t = 0; t < n; t += chunk) {
        lily_lane lane = {.tokens = tokens + t, .n_tokens = n - t < chunk ? n - t : chunk};
        logits = run_tokens(&s, lane, lane.n_tokens == 1, &done);
    }
    outcome r = outcome_of(&s, o, logits);
    close_session(&s);
    return r;
}

static void check_cuts(const opened *o, const char *which, uint64_t without)
{
    int32_t tokens[MAX_TOKENS];
    some_tokens(o, tokens, MAX_TOKENS);
    outcome whole = in_chunks(o, which, 2, without, tokens, MAX_TOKENS, MAX_TOKENS);
    static const uint32_t chunks[] = {1, 7, 64, 199};
    for (int i = 0; i < 4; i++) {
        outcome cut = in_chunks(o, which, i % 2 ? 1 : 2, without, tokens, MAX_TOKENS, chunks[i]);
        check_outcome(&cut, &whole);
        free_outcome(&cut);
    }
    free_outcome(&whole);
}

static void same_bits_in_any_cut(void **state)
{
    (void)state;
    FOR_TABLES(k) for (int m = 0; m < N_MODELS; m++)
    {
        opened o;
        open_model(&o, models[m], 0, 4);
        check_cuts(&o, k->name, 0);
        check_cuts(&o, k->name, all_switches());
        close_model(&o);
    }
}

/* ---- state ---- */

/* Marks inside a run, a branch from one of them, and going back: all as if the tokens had been run anew. */
static void snapshots_and_branches(void **state)
{
    (void)state;
    opened o;
    session s;
    lily_done done;
    lily_err e;
    int32_t tokens[MAX_TOKENS], other[8];
    open_model(&o, ODD, 0, 4);
    some_tokens(&o, tokens, MAX_TOKENS);
    for (int i = 0; i < 8; i++) other[i] = tokens[100 + i];
    outcome straight = in_chunks(&o, NULL, 2, 0, tokens, 150, 150);
    open_session(&s, &o, &lily_dev_cpu, NULL, 2, 0, 0);
    const uint32_t marks[] = {1, 60, 150};
    lily_lane lane = {.tokens = tokens, .n_tokens = 150, .mark = marks, .n_marks = 3};
    outcome marked = outcome_of(&s, &o, run_tokens(&s, lane, false, &done));
    check_outcome(&marked, &straight);
    uint32_t at[4];
    assert_int_equal(s.ops->state_positions(s.state, at, 4), 3);
    assert_true(at[0] == 1 && at[1] == 60 && at[2] == 150);

    /* A branch at 60 runs other tokens; the trunk is not disturbed, nor is the branch by the trunk. */
    lily_state *branch;
    check_ok(s.ops->state_new(s.dev, s.weights, &branch, &e), &e);
    check_ok(s.ops->state_copy(s.dev, branch, s.state, 60, &e), &e);
    check_ok(s.ops->state_grow(s.dev, branch, CONTEXT, &e), &e);
    lane = (lily_lane){.state = branch, .tokens = other, .n_tokens = 8};
    run_tokens(&s, lane, false, &done);
    check_ok(s.ops->state_copy(s.dev, s.state, s.state, 60, &e), &e);
    assert_int_equal(s.ops->state_position(s.state), 60);
    lane = (lily_lane){.tokens = tokens + 60, .n_tokens = 90};
    outcome again = outcome_of(&s, &o, run_tokens(&s, lane, false, &done));
    check_outcome(&again, &straight);

    lily_state *trunk = s.state;
    int32_t both[68];
    memcpy(both, tokens, 60 * sizeof *both);
    memcpy(both + 60, other, sizeof other);
    outcome fresh = in_chunks(&o, NULL, 2, 0, both, 68, 68);
    s.state = branch;
    check_ok(s.ops->state_copy(s.dev, branch, branch, 60, &e), &e);
    lane = (lily_lane){.tokens = other, .n_tokens = 8};
    outcome branched = outcome_of(&s, &o, run_tokens(&s, lane, false, &done));
    check_outcome(&branched, &fresh);
    s.state = trunk;
    check_fails(s.ops->state_copy(s.dev, branch, trunk, 59, &e), LILY_ARGUMENT, &e);
    s.ops->state_drop(s.dev, trunk, 60);
    check_fails(s.ops->state_copy(s.dev, branch, trunk, 60, &e), LILY_ARGUMENT, &e);
    s.ops->state_free(s.dev, branch);
    close_session(&s);
    free_outcome(&straight);
    free_outcome(&marked);
    free_outcome(&again);
    free_outcome(&branched);
    free_outcome(&fresh);
    close_model(&o);
}

static void cancelled_and_refused(void **state)
{
    (void)state;
    opened o;
    session s;
    lily_err e;
    lily_done done;
    uint64_t ticket;
    int32_t tokens[MAX_TOKENS];
    open_model(&o, TINY, 0, 0);
    some_tokens(&o, tokens, MAX_TOKENS);
    open_session(&s, &o, &lily_dev_cpu, NULL, 2, 0, 0);
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
    assert_int_equal(s.ops->state_position(s.state), 40);
    for (int i = 0; i < 24; i++)
        run_tokens(&s, (lily_lane){.tokens = tokens, .n_tokens = 40}, false, &done);
    lane = (lily_lane){.state = s.state, .tokens = tokens, .n_tokens = 40};
    check_fails(s.ops->submit(s.dev, s.exec[0], LILY_FORWARD, LILY_PICK, &lane, 1, &ticket, &e), LILY_CONTEXT, &e);
    close_session(&s);
    close_model(&o);
}

/* Long enough for several pages and parts, split over threads in decode and in blocks of tokens in prefill. */
static void long_context(void **state)
{
    (void)state;
    opened o;
    open_model(&o, ODD, 3, 1);
    int32_t tokens[1024];
    for (uint32_t i = 0; i < 1024; i++) tokens[i] = (int32_t)(lily_uniform(5, i) * o.config.vocab);
    session a, b;
    lily_done done;
    open_session(&a, &o, &lily_dev_cpu, NULL, 2, 0, 0);
    open_session(&b, &o, &lily_dev_cpu, NULL, 3, 0, 0);
    for (uint32_t t = 0; t < 1024; t += 256)
        run_tokens(&a, (lily_lane){.tokens = tokens + t, .n_tokens = t + 256 < 1024 ? 256 : 254}, false, &done);
    for (uint32_t t = 0; t < 1022; t += 14) run_tokens(&b, (lily_lane){.tokens = tokens + t, .n_tokens = 14}, false, &done);
    const float *x = run_tokens(&a, (lily_lane){.tokens = tokens + 1022, .n_tokens = 2}, false, &done);
    run_tokens(&b, (lily_lane){.tokens = tokens + 1022, .n_tokens = 1}, true, &done);
    const float *y = run_tokens(&b, (lily_lane){.tokens = tokens + 1023, .n_tokens = 1}, true, &done);
    assert_memory_equal(x, y, o.config.vocab * sizeof *x);
    close_session(&a);
    close_session(&b);
    close_model(&o);
}

static void variants(void **state)
{
    (void)state;
    lily_err e;
    lily_dev *d;
    check_fails(lily_dev_cpu.open(&d, &(lily_dev_options){.which = "sse9", .threads = 1}, &e), LILY_UNSUPPORTED, &e);
    check_ok(lily_dev_cpu.open(&d, &(lily_dev_options){.which = "portable", .threads = 1}, &e), &e);
    char text[80];
    uint64_t total, available;
    lily_dev_cpu.describe(d, text, sizeof text, &total, &available);
    assert_string_equal(text, "cpu: 1 thread, portable");
    lily_dev_cpu.close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_agree_with_ref),     cmocka_unit_test(logits_and_scores_agree_with_ref),
        cmocka_unit_test(same_bits_in_any_cut),    cmocka_unit_test(snapshots_and_branches),
        cmocka_unit_test(cancelled_and_refused),   cmocka_unit_test(long_context),
        cmocka_unit_test(variants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
