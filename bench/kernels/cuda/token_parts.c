/* token_parts.c - what the ends of a token take inside the model: runs of the forward pass alone, with the head, and with
 * the choice, by turns.  What fusing head and choice, or fewer launches behind the layers, could bring is less than their
 * difference.
 *
 *   token_parts MODEL [CONTEXT [ROUNDS]]
 *
 * One JSON line a part: microseconds of one run, the median over rounds of RUNS runs each, submitted ahead. */
#include "check.h"
#include "base/clock.h"
#include "checkpoint/checkpoint.h"
#include "device/dev.h"

enum { RUNS = 64, MOST_ROUNDS = 100, AHEAD = 2, CHUNK = 512 };

static const lily_dev_ops *const ops = &lily_dev_cuda;

typedef struct model {
    lily_ckpt *ckpt;
    lily_model_config *file;
    lily_model *model;
    lily_dev *dev;
    lily_weights *weights;
    lily_plan *plan[2];         /* decode, prefill */
    lily_exec *exec[2];
    lily_state *state;
} model;

static void open_model(model *m, const char *dir, uint32_t context)
{
    CHECK(lily_ckpt_open(&m->ckpt, dir, &failure));
    CHECK(lily_config_open(&m->file, dir, &failure));
    CHECK(lily_model_open(&m->model, m->ckpt, m->file, &failure));
    CHECK(ops->open(&m->dev, &(lily_dev_options){0}, &failure));
    ops->look(m->dev, m->model);
    CHECK(ops->load(m->dev, m->model, &m->weights, &failure));
    const lily_plan_device d = lily_device_for_plan(ops, m->dev);
    for (int i = 0; i < 2; i++) {
        const lily_plan_ask ask = {i ? LILY_PREFILL : LILY_DECODE, i ? CHUNK : 1, context + (MOST_ROUNDS + 4) * 3 * RUNS, 0, 0};
        CHECK(lily_plan_make(&m->plan[i], &d, m->model->config, &ask, &failure));
        CHECK(ops->prepare(m->dev, m->weights, m->plan[i], &m->exec[i], &failure));
    }
    CHECK(ops->state_new(m->dev, m->weights, &m->state, &failure));
    CHECK(ops->state_grow(m->dev, m->state, m->plan[0]->max_context, &failure));
}

static void read_prompt(const model *m, uint32_t n)
{
    int32_t tokens[CHUNK];
    for (uint32_t at = 0; at < n; at += CHUNK) {
        uint64_t ticket;
        lily_done done;
        const lily_lane lane = {.state = m->state, .tokens = tokens, .n_tokens = n - at < CHUNK ? n - at : CHUNK};
        for (uint32_t i = 0; i < lane.n_tokens; i++) tokens[i] = (int32_t)((at + i) * 7919u % m->model->config->vocab);
        CHECK(ops->submit(m->dev, m->exec[1], LILY_FORWARD, LILY_FORWARD, &lane, 1, &ticket, &failure));
        CHECK(ops->wait(m->dev, ticket, &done, 1, &failure));
    }
}

/* Microseconds of a run of these segments. */
static double run(const model *m, enum lily_segment last)
{
    const int32_t token = 1;
    const lily_pick greedy = {.top_p = 1, .repetition = 1, .n_vocab = (int32_t)m->model->config->vocab};
    lily_lane lane = {.state = m->state, .tokens = &token, .n_tokens = 1, .pick = last == LILY_PICK ? &greedy : NULL};
    uint64_t ticket[RUNS];
    lily_done done;
    const uint64_t start = lily_now_ns();
    for (int i = 0; i < RUNS; i++) {
        CHECK(ops->submit(m->dev, m->exec[0], LILY_FORWARD, last, &lane, 1, &ticket[i], &failure));
        if (last == LILY_PICK) lane.tokens = NULL;
        if (i >= AHEAD) CHECK(ops->wait(m->dev, ticket[i - AHEAD], &done, 1, &failure));
    }
    CHECK(ops->wait(m->dev, ticket[RUNS - 1], &done, 1, &failure));
    return lily_seconds_since(start) * 1e6 / RUNS;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"forward", "forward and head", "forward, head and choice"};
    static double us[3][MOST_ROUNDS];
    static model m;
    if (argc < 2) {
        fprintf(stderr, "usage: token_parts MODEL [CONTEXT [ROUNDS]]\n");
        return 2;
    }
    const int context = argc > 2 ? atoi(argv[2]) : 512, asked = argc > 3 ? atoi(argv[3]) : 9;
    const int rounds = asked < 1 ? 1 : asked > MOST_ROUNDS ? MOST_ROUNDS : asked;
    open_model(&m, argv[1], (uint32_t)context);
    read_prompt(&m, (uint32_t)context);
    for (int part = 0; part < 3; part++) (void)run(&m, (enum lily_segment)(LILY_FORWARD + part));
    for (int i = 0; i < rounds; i++)
        for (int k = 0; k < 3; k++) {
            const int part = i % 2 ? 2 - k : k;
            us[part][i] = run(&m, (enum lily_segment)(LILY_FORWARD + part));
        }
    for (int part = 0; part < 3; part++) {
        qsort(us[part], (size_t)rounds, sizeof us[part][0], by_value);
        printf("{\"bench\": \"token_parts\", \"part\": \"%s\", \"context\": %d, \"us\": %.2f}\n", names[part], context,
               us[part][rounds / 2]);
    }
    return 0;
}
