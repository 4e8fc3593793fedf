/* test_full.c - test_full DEVICE DIR: the full-size synthetic checkpoint (mkckpt full DIR) after three
 * tokens. */
#include "rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const char *device, *dir;
static double most;

static void three_tokens(void **state)
{
    (void)state;
    enum { EVERY = 8 };
    rig_model m;
    rig_numbers f;
    rig r;
    int32_t ids[3], best;
    size_t n;
    rig_model_open(&m, dir);
    rig_numbers_open(&f, "full");
    rig_open(&r, m.model, device, 3, 0);
    const json_t *p = json_array_get(json_object_get(f.doc, "prefill"), 0);
    rig_ints(json_object_get(p, "ids"), ids, 3);
    rig_ints(json_object_get(p, "argmax"), &best, 1);
    const float *want = rig_array(&f, "prefill.3.every8", &n);
    assert_int_equal(n, r.c->vocab / EVERY);
    lily_state *s = rig_state(&r);
    lily_done done = rig_feed(&r, s, ids, 3, 3);
    assert_int_equal(done.token, best);
    assert_non_null(done.logits);
    double worst = 0;
    for (size_t i = 0; i < n; i++) worst = fmax(worst, rig_difference(&done.logits[i * EVERY], &want[i], 1));
    printf("%s: largest difference %g\n", device, worst);
    assert_true(worst <= most);
    r.ops->state_free(r.dev, s);
    rig_close(&r);
    rig_numbers_close(&f);
    rig_model_close(&m);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(three_tokens)};
    if (argc != 4) {
        fprintf(stderr, "usage: test_full DEVICE DIR MOST\n");
        return 2;
    }
    device = argv[1];
    dir = argv[2];
    most = atof(argv[3]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
