/* case_NU07 - prompts of 1 to 5 tokens, around the width of the convolution: zeros lie before the first
 * token, whatever the state held before. */
#include "rig.h"

#include <stdio.h>
#include <string.h>

static void short_prompts(void **state)
{
    (void)state;
    static const char *const models[] = {"tiny", "odd"};
    for (size_t i = 0; i < 2; i++) {
        rig_model m;
        rig_numbers f;
        rig r;
        int32_t ids[65];
        size_t n;
        rig_model_open(&m, rig_dir(models[i]));
        rig_numbers_open(&f, models[i]);
        rig_open(&r, m.model, "ref", 64, 0);
        json_t *p, *list = json_object_get(f.doc, "prefill");
        size_t k;
        json_array_foreach (list, k, p)
            if (json_integer_value(json_object_get(p, "n")) == 65)
                rig_ints(json_object_get(p, "ids"), ids, 65);
        const float *want = rig_array(&f, "prefill.65.all", &n);
        lily_err e = {0};
        lily_state *s = rig_state(&r);
        for (uint32_t length = 1; length <= 5; length++)
            for (uint32_t chunk = 0; chunk <= length; chunk++) {
                rig_feed(&r, s, ids + 20, 9, 4); /* a history that must be gone */
                check_ok(r.ops->state_copy(r.dev, s, s, 0, &e), &e);
                lily_done done = rig_feed(&r, s, ids, length, chunk);
                double d = rig_difference(done.logits, want + (size_t)(length - 1) * r.c->vocab, r.c->vocab);
                if (!(d <= 1e-4))
                    fail_msg("%s, %u tokens in runs of %u: differs by %g", models[i], length, chunk, d);
                check_ok(r.ops->state_copy(r.dev, s, s, 0, &e), &e);
            }
        r.ops->state_free(r.dev, s);
        rig_close(&r);
        rig_numbers_close(&f);
        rig_model_close(&m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(short_prompts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
