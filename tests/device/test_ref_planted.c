/* test_ref_planted.c - does ref find a read that was not declared?  Each declared read is taken away once:
 * the slot then dies earlier, its bytes are poisoned, and the answer must show it. */
#include "rig.h"

#include <stdlib.h>
#include <string.h>

/* What dies after each stage, by the planner's rule, when `step` does not declare that it reads `slot`. */
static bool plant(const lily_plan *p, lily_stage *stages, unsigned step, unsigned slot)
{
    bool earlier = false, live = false;
    memcpy(stages, p->stages, p->n_stages * sizeof *stages);
    for (uint32_t i = p->n_stages; i-- > 0;) {
        lily_stage *s = &stages[i];
        if (s->steps & lily_bit(step)) s->reads &= ~lily_bit(slot);
        bool dies = ((s->reads | s->writes) & lily_bit(slot)) && !live;
        if (dies && !(p->stages[i].dies & lily_bit(slot))) earlier = true;
        s->dies = (s->dies & ~lily_bit(slot)) | (dies ? lily_bit(slot) : 0);
        if (s->writes & lily_bit(slot)) live = false;
        if (s->reads & lily_bit(slot)) live = true;
    }
    return earlier;
}

/* Do the logits of a plan differ from `want`, or does it fail? */
static bool is_noticed(const rig *r, const lily_plan *plan, lily_state *s, const lily_lane *lane,
                       const float *want)
{
    lily_err e = {0};
    lily_exec *x;
    uint64_t ticket;
    lily_done done;
    check_ok(r->ops->state_copy(r->dev, s, s, 0, &e), &e);
    check_ok(r->ops->prepare(r->dev, r->weights, plan, &x, &e), &e);
    int rc = r->ops->submit(r->dev, x, LILY_FORWARD, LILY_PICK, lane, 1, &ticket, &e);
    bool noticed = rc != LILY_OK;
    if (!noticed) {
        check_ok(r->ops->wait(r->dev, ticket, &done, 1, &e), &e);
        noticed = memcmp(done.logits, want, r->c->vocab * sizeof *want) != 0;
    } else {
        assert_int_equal(rc, LILY_DEVICE);
    }
    r->ops->release(r->dev, x);
    return noticed;
}

static void every_read_that_is_not_declared(void **state)
{
    (void)state;
    rig_model m;
    rig r;
    rig_model_open(&m, rig_dir("tiny"));
    rig_open(&r, m.model, "ref", 3, 0);
    lily_state *s = rig_state(&r);
    lily_pick pick = rig_greedy_pick;
    pick.n_vocab = (int32_t)r.c->vocab;
    const int32_t tokens[3] = {5, 60, 7};
    uint32_t planted = 0;
    for (unsigned mode = 0; mode < 2; mode++) {
        const lily_plan *p = mode ? r.decode_plan : r.prefill_plan;
        const lily_lane lane = {.state = s, .tokens = tokens, .n_tokens = mode ? 1 : 3, .pick = &pick};
        lily_err e = {0};
        float *want = calloc(r.c->vocab, sizeof *want);
        check_ok(r.ops->state_copy(r.dev, s, s, 0, &e), &e);
        lily_done done = rig_run(&r, mode ? r.decode : r.prefill, LILY_PICK, &lane);
        memcpy(want, done.logits, r.c->vocab * sizeof *want);
        assert_false(is_noticed(&r, p, s, &lane, want)); /* with all of them declared */
        lily_stage *stages = calloc(p->n_stages, sizeof *stages);
        lily_plan spoilt = *p;
        spoilt.stages = stages;
        for (unsigned step = 0; step < N_STEPS; step++)
            for (unsigned slot = 0; slot < N_SLOTS; slot++) {
                if (lily_slot_kind(slot) != SLOT_SCRATCH || !plant(p, stages, step, slot)) continue;
                if (!is_noticed(&r, &spoilt, s, &lane, want))
                    fail_msg("%s reads %s undeclared, and nobody noticed", lily_step_name(step),
                             lily_slot_name(slot));
                planted++;
            }
        free(stages);
        free(want);
    }
    assert_true(planted > 60);
    r.ops->state_free(r.dev, s);
    rig_close(&r);
    rig_model_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_read_that_is_not_declared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
