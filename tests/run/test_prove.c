/* test_prove.c - rows that agree with ref are taken, one that does not is left out with its line and the answers stay
 * right, and a step that is left without a row ends the start with a sentence.
 *
 * test_prove DIR DEVICE proves a checkpoint's rows and prints each difference. */
#include "../check.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../device/rig.h"
#include "base/clock.h"
#include "base/log.h"
#include "device/beside.h"
#include "run/prove.h"

enum { CHUNK = 128, CONTEXT = 1024 };

static uint64_t prove(const lily_dev_ops *ops, const lily_model *m, const char *which, int want, lily_err *e)
{
    lily_dev *dev;
    uint64_t refused[LILY_MAX_ROWS / 64] = {0};
    const lily_prove_ask ask = {CHUNK, CONTEXT, 0};
    check_ok(ops->open(&dev, &(lily_dev_options){.which = which}, e), e);
    int rc = lily_prove(ops, dev, m, &ask, refused, e);
    ops->close(dev);
    if (rc != want) fail_msg("%s", e->text);
    return refused[0] | refused[1] << 63;
}

static void check_device(const char *device, const char *which)
{
    static const char *const models[] = {"tiny", "odd", "demo"};
    for (int i = 0; i < 3; i++) {
        rig_model m;
        lily_err e;
        rig_model_open(&m, rig_dir(models[i]));
        assert_int_equal(prove(lily_device_find(device), m.model, which, LILY_OK, &e), 0);
        rig_model_close(&m);
    }
}

static void rows_of_cpu_agree(void **state)
{
    (void)state;
    check_device("cpu", NULL);
    check_device("cpu", "portable");
}

/* Fewer tokens than a proof reads. */
static void short_contexts_and_chunks(void **state)
{
    (void)state;
    static const lily_prove_ask asks[] = {{1, 1, 0}, {1, 1024, 0}, {2, 2, 0}, {5, 8, 0}};
    rig_model m;
    rig_model_open(&m, rig_dir("odd"));
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        lily_dev *dev;
        lily_err e;
        uint64_t refused[LILY_MAX_ROWS / 64] = {0};
        check_ok(lily_dev_cpu.open(&dev, &(lily_dev_options){0}, &e), &e);
        check_ok(lily_prove(&lily_dev_cpu, dev, m.model, &asks[i], refused, &e), &e);
        assert_true(!refused[0] && !refused[1]);
        lily_dev_cpu.close(dev);
    }
    rig_model_close(&m);
}

static void rows_of_cuda_agree(void **state)
{
    (void)state;
    lily_err e;
    lily_dev *dev;
    const lily_dev_ops *ops = lily_device_find("cuda");
    if (!ops || ops->open(&dev, &(lily_dev_options){0}, &e) != LILY_OK) {
        print_message("skipped: %s\n", ops ? e.text : "there is no cuda device");
        skip();
    }
    ops->close(dev);
    check_device("cuda", NULL);
    check_device("cuda", "portable");
}

/* ---- a device with a broken row: the cpu, whose row `broken` leaves its output wrong, or fails ---- */

static const char *broken;
static bool fails;
static atomic_bool stop;

typedef struct hook {
    lily_exec *exec;
    const lily_plan *plan;
    lily_watch_fn *watch;       /* who else watches */
    void *arg;
} hook;

static hook hooks[64];
static size_t n_hooks;
static lily_dev *hooked_dev;

static hook *hook_of(lily_exec *x)
{
    for (size_t i = 0; i < n_hooks; i++)
        if (hooks[i].exec == x) return &hooks[i];
    fail_msg("an unknown run");
    return NULL;
}

static void spoil(void *arg, lily_exec *x, uint32_t stage)
{
    const hook *h = hook_of(x);
    const lily_stage *s = &h->plan->stages[stage];
    (void)arg;
    if (!fails && strcmp(lily_dev_cpu.rows[s->row].name, broken) == 0) {
        static float room[1 << 20];
        lily_err e;
        for (unsigned slot = 0; slot < N_SLOTS; slot++) {
            if (!(s->writes & lily_bit(slot)) || lily_dev_cpu.peek(hooked_dev, x, slot, room, sizeof room, &e) != LILY_OK) continue;
            /* The size is that of the run, which poke tells. */
            for (size_t n = 4; n <= sizeof room; n += 4) {
                const float was = room[0];
                room[0] = was + 3;
                if (lily_dev_cpu.poke(hooked_dev, x, slot, room, n, &e) == LILY_OK) break;
                room[0] = was;
            }
        }
    }
    if (h->watch) h->watch(h->arg, x, stage);
    if (fails && stage + 1 < h->plan->n_stages && strcmp(lily_dev_cpu.rows[h->plan->stages[stage + 1].row].name, broken) == 0)
        atomic_store(&stop, true);
}

static int spoiled_prepare(lily_dev *d, const lily_weights *w, const lily_plan *plan, lily_exec **x, lily_err *e)
{
    int rc = lily_dev_cpu.prepare(d, w, plan, x, e);
    if (rc != LILY_OK) return rc;
    n_hooks %= sizeof hooks / sizeof *hooks;
    hooks[n_hooks++] = (hook){*x, plan, NULL, NULL};
    hooked_dev = d;
    lily_dev_cpu.watch(*x, spoil, NULL);
    return LILY_OK;
}

static void spoiled_watch(lily_exec *x, lily_watch_fn *watch, void *arg)
{
    hook *h = hook_of(x);
    h->watch = watch;
    h->arg = arg;
}

static void spoiled_release(lily_dev *d, lily_exec *x)
{
    hook_of(x)->exec = NULL;
    lily_dev_cpu.release(d, x);
}

/* A run stops in front of the row, and fails. */
static int failing_submit(lily_dev *d, lily_exec *x, enum lily_segment first, enum lily_segment last, const lily_lane *lane,
                          uint32_t n_lanes, uint64_t *ticket, lily_err *e)
{
    lily_lane stoppable = *lane;
    atomic_store(&stop, false);
    stoppable.cancel = &stop;
    TRY(lily_dev_cpu.submit(d, x, first, last, &stoppable, n_lanes, ticket, e));
    return atomic_load(&stop) ? lily_fail(e, LILY_DEVICE, "the card does not take it") : LILY_OK;
}

static lily_dev_ops spoiled_cpu(const char *row, bool that_fails)
{
    lily_dev_ops ops = lily_dev_cpu;
    broken = row;
    fails = that_fails;
    n_hooks = 0;
    ops.prepare = spoiled_prepare;
    ops.release = spoiled_release;
    ops.watch = spoiled_watch;
    ops.submit = failing_submit;
    return ops;
}

static uint64_t bit_of(const char *row)
{
    for (size_t i = 0; i < lily_dev_cpu.n_rows; i++)
        if (strcmp(lily_dev_cpu.rows[i].name, row) == 0) return lily_bit((unsigned)i);
    fail_msg("no row %s", row);
    return 0;
}

/* Standard error while fn runs. */
static char *heard(const lily_dev_ops *ops, const lily_model *m, uint64_t *refused)
{
    static char text[4096];
    lily_err e;
    int pipes[2], old = dup(STDERR_FILENO);
    assert_int_equal(pipe(pipes), 0);
    dup2(pipes[1], STDERR_FILENO);
    *refused = prove(ops, m, NULL, LILY_OK, &e);
    dup2(old, STDERR_FILENO);
    close(old);
    close(pipes[1]);
    ssize_t n = read(pipes[0], text, sizeof text - 1);
    close(pipes[0]);
    text[n < 0 ? 0 : n] = 0;
    return text;
}

static uint32_t lines(const char *text)
{
    uint32_t n = 0;
    for (; *text; text++) n += *text == '\n';
    return n;
}

/* Logits after a prompt and a token, planned without the refused rows. */
static void run_planned(const lily_dev_ops *ops, const lily_model *m, uint64_t refused, float *logits)
{
    lily_err e;
    lily_dev *dev;
    lily_weights *w;
    lily_state *s;
    check_ok(ops->open(&dev, &(lily_dev_options){0}, &e), &e);
    check_ok(ops->load(dev, m, &w, &e), &e);
    check_ok(ops->state_new(dev, w, &s, &e), &e);
    check_ok(ops->state_grow(dev, s, CONTEXT, &e), &e);
    for (int decode = 0; decode < 2; decode++) {
        lily_plan_device d = lily_device_for_plan(ops, dev);
        d.refused[0] = refused;
        const lily_plan_ask ask = {decode ? LILY_DECODE : LILY_PREFILL, decode ? 1 : CHUNK, CONTEXT, 0, 0};
        lily_plan *plan;
        lily_exec *x;
        uint64_t ticket;
        lily_done done;
        int32_t tokens[20];
        for (int i = 0; i < 20; i++) tokens[i] = 3 + i;
        const lily_lane lane = {.state = s, .tokens = tokens, .n_tokens = decode ? 1 : 20};
        check_ok(lily_plan_make(&plan, &d, m->config, &ask, &e), &e);
        check_ok(ops->prepare(dev, w, plan, &x, &e), &e);
        check_ok(ops->submit(dev, x, LILY_FORWARD, LILY_PICK, &lane, 1, &ticket, &e), &e);
        check_ok(ops->wait(dev, ticket, &done, 1, &e), &e);
        check_ok(ops->peek(dev, x, SLOT_LOGITS, logits, m->config->vocab * sizeof *logits, &e), &e);
        ops->release(dev, x);
        lily_plan_free(plan);
    }
    ops->state_free(dev, s);
    ops->unload(dev, w);
    ops->close(dev);
}

static void check_left_out(const char *row, bool that_fails, const char *said)
{
    rig_model m;
    uint64_t refused;
    lily_dev_ops ops = spoiled_cpu(row, that_fails);
    rig_model_open(&m, rig_dir("odd"));
    const char *text = heard(&ops, m.model, &refused);
    if (lines(text) != 1 || !strstr(text, row) || !strstr(text, said)) fail_msg("%s", text);
    assert_true(refused == bit_of(row));
    const size_t vocab = m.model->config->vocab;
    float *with = malloc(vocab * sizeof *with), *want = malloc(vocab * sizeof *want);
    run_planned(&lily_dev_ref, m.model, 0, want);
    run_planned(&ops, m.model, refused, with);
    assert_true(lily_beside_off(with, want, vocab) < 0.05);
    if (!that_fails) {
        run_planned(&ops, m.model, 0, with);
        assert_true(lily_beside_off(with, want, vocab) > 0.05);     /* the row is in the plan, and it matters */
    }
    free(with);
    free(want);
    rig_model_close(&m);
}

static void wrong_rows_are_left_out(void **state)
{
    (void)state;
    check_left_out("experts_up", false, "differs from ref's by");
    check_left_out("experts_down", false, "differs from ref's by");
    check_left_out("attn_gate", false, "differs from ref's by");
}

static void failing_rows_are_left_out(void **state)
{
    (void)state;
    check_left_out("experts_up", true, "the card does not take it");
}

static void nothing_is_left(void **state)
{
    (void)state;
    rig_model m;
    lily_err e;
    lily_dev_ops ops = spoiled_cpu("router", false);
    rig_model_open(&m, rig_dir("odd"));
    prove(&ops, m.model, NULL, LILY_UNSUPPORTED, &e);
    assert_non_null(strstr(e.text, "ROUTER"));
    rig_model_close(&m);
}

static int prove_one(const char *dir, const char *device)
{
    rig_model m;
    lily_err e;
    const lily_dev_ops *ops;
    lily_dev *dev;
    uint64_t refused[LILY_MAX_ROWS / 64] = {0};
    const lily_prove_ask ask = {4096, 32768, 0};
    lily_log_set_level(LILY_LOG_DEBUG);
    rig_model_open(&m, dir);
    check_ok(lily_device_open(&ops, &dev, device, &(lily_dev_options){0}, &e), &e);
    const uint64_t start = lily_now_ns();
    int rc = lily_prove(ops, dev, m.model, &ask, refused, &e);
    printf("%s: %s, %.3f s\n", device, rc == LILY_OK ? "proved" : e.text, (double)(lily_now_ns() - start) / 1e9);
    ops->close(dev);
    rig_model_close(&m);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc == 3) return prove_one(argv[1], argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_cpu_agree),         cmocka_unit_test(rows_of_cuda_agree),
        cmocka_unit_test(wrong_rows_are_left_out),   cmocka_unit_test(failing_rows_are_left_out),
        cmocka_unit_test(nothing_is_left),           cmocka_unit_test(short_contexts_and_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
