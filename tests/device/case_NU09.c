/* case_NU09 - one attention layer at positions 0, 1, 1000, 8000 and 100000 against a computation of its own
 * in double: only the first R elements of a head turn, in pairs (i, i + R/2), by position * theta^(-2i/R). */
#include "rig.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "device/ref/ref.h"

enum { WIDEST = 8192 };

/* y = W x from the packed codes. */
static void product(const lily_matrix *m, const double *x, double *y)
{
    for (uint32_t row = 0; row < m->rows; row++) {
        y[row] = 0;
        for (uint32_t col = 0; col < m->cols; col++) {
            size_t bit = (size_t)col * m->bits, group = (size_t)row * lily_row_groups(m) + col / m->group;
            unsigned code = m->codes[row * lily_row_bytes(m) + bit / 8] >> (bit % 8) & ((1u << m->bits) - 1);
            double w = lily_bf16_to_float(lily_load_u16(m->scales + 2 * group)) * (double)code +
                       lily_bf16_to_float(lily_load_u16(m->biases + 2 * group));
            y[row] += w * x[col];
        }
    }
}

static void norm(double *x, lily_vector w, uint32_t n, double eps)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += x[i] * x[i];
    for (uint32_t i = 0; i < n; i++) x[i] = x[i] / sqrt(sum / n + eps) * w[i];
}

static void turn(double *x, uint32_t position, const lily_config *c)
{
    uint32_t half = c->rotary / 2;
    for (uint32_t i = 0; i < half; i++) {
        double angle = position / pow(c->rope_theta, 2.0 * i / c->rotary), a = x[i], b = x[i + half];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + half] = a * sin(angle) + b * cos(angle);
    }
}

/* Query, gate, key and value of one token; q is [Hq][2][D]. */
typedef struct vectors {
    double q[WIDEST], k[WIDEST], v[WIDEST];
} vectors;

static void make_vectors(const lily_model *m, int32_t token, uint32_t position, vectors *out)
{
    const lily_config *c = m->config;
    const lily_layer *w = &m->layer[0];
    float row[WIDEST];
    double n[WIDEST];
    ref_matrix_row(&m->embed, (uint32_t)token, row);
    for (uint32_t i = 0; i < c->hidden; i++) n[i] = row[i];
    norm(n, w->norm_mix, c->hidden, c->eps);
    product(&w->q, n, out->q);
    product(&w->k, n, out->k);
    product(&w->v, n, out->v);
    for (uint32_t h = 0; h < c->q_heads; h++) {
        norm(out->q + (size_t)h * 2 * c->head_dim, w->norm_q, c->head_dim, c->eps);
        turn(out->q + (size_t)h * 2 * c->head_dim, position, c);
    }
    for (uint32_t h = 0; h < c->kv_heads; h++) {
        norm(out->k + (size_t)h * c->head_dim, w->norm_k, c->head_dim, c->eps);
        turn(out->k + (size_t)h * c->head_dim, position, c);
    }
}

static double dot(const double *a, const double *b, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* What the layer adds for the second of two tokens that follow `zeros` empty positions, whose keys and values
 * are 0: each has the score 0. */
static void attention(const lily_model *m, const vectors *first, const vectors *second, uint32_t zeros,
                      double *mix)
{
    const lily_config *c = m->config;
    const uint32_t dim = c->head_dim;
    double o[WIDEST];
    for (uint32_t h = 0; h < c->q_heads; h++) {
        const double *q = second->q + (size_t)h * 2 * dim, *gate = q + dim;
        size_t at = (size_t)(h / (c->q_heads / c->kv_heads)) * dim;
        double a = dot(q, first->k + at, dim) / sqrt(dim), b = dot(q, second->k + at, dim) / sqrt(dim);
        double most = fmax(zeros ? 0 : -INFINITY, fmax(a, b)), pa = exp(a - most), pb = exp(b - most);
        double sum = pa + pb + zeros * exp(-most);
        for (uint32_t i = 0; i < dim; i++)
            o[h * dim + i] = (pa * first->v[at + i] + pb * second->v[at + i]) / sum / (1 + exp(-gate[i]));
    }
    product(&m->layer[0].o, o, mix);
}

/* One layer, the model's first of attention, is a model of its own. */
static void cut_model(const lily_model *whole, lily_model *cut, lily_config *c)
{
    uint32_t layer = 0;
    *c = *whole->config;
    while (!c->full_attention[layer]) layer++;
    *cut = *whole;
    cut->layer = whole->layer + layer;
    cut->config = c;
    c->layers = 1;
    c->full_attention[0] = true;
}

static double relative_error(const float *got, const double *want, uint32_t n)
{
    double worst = 0, sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        sum += want[i] * want[i];
        worst = fmax(worst, fabs(got[i] - want[i]));
    }
    return worst / sqrt(sum / n);
}

static void check_position(const rig *r, lily_state *s, uint32_t first)
{
    const lily_config *c = r->c;
    const int32_t tokens[2] = {11, 47};
    vectors *v = calloc(2, sizeof *v);
    double mix[WIDEST];
    float got[2 * WIDEST];
    lily_err e = {0};
    for (unsigned i = 0; i < 2; i++) make_vectors(r->model, tokens[i], first + i, &v[i]);
    attention(r->model, &v[0], &v[1], first, mix);
    for (unsigned i = 0; i < 2; i++)
        memset(s->kv->rows[i], 0, (size_t)(first + 2) * lily_kv_width(c) * sizeof(float));
    s->position = first; /* as if so many tokens without keys had been */
    const lily_lane lane = {.state = s, .tokens = tokens, .n_tokens = 2};
    rig_run(r, r->prefill, LILY_FORWARD, &lane);
    check_ok(r->ops->peek(r->dev, r->prefill, SLOT_K, got, sizeof got, &e), &e);
    for (unsigned i = 0; i < 2; i++) {
        double error = relative_error(got + i * lily_kv_width(c), v[i].k, lily_kv_width(c));
        if (!(error < 1e-5)) fail_msg("key at %u: relative error %g", first + i, error);
    }
    check_ok(r->ops->peek(r->dev, r->prefill, SLOT_MIX, got, sizeof got, &e), &e);
    double error = relative_error(got + c->hidden, mix, c->hidden);
    if (!(error < 1e-4)) fail_msg("layer at %u: relative error %g", first + 1, error);
    free(v);
}

static void check_model(const char *name, const uint32_t *positions, size_t n)
{
    rig_model whole;
    lily_model cut;
    lily_config c;
    rig r;
    lily_err e = {0};
    rig_model_open(&whole, rig_dir(name));
    cut_model(whole.model, &cut, &c);
    assert_true(c.rotary * 4 == c.head_dim && 2 * lily_q_width(&c) <= WIDEST);
    rig_open(&r, &cut, "ref", 2, lily_bit(SLOT_K) | lily_bit(SLOT_MIX));
    lily_state *s = rig_state(&r);
    check_ok(r.ops->state_grow(r.dev, s, positions[n - 1] + 2, &e), &e);
    for (size_t i = 0; i < n; i++) check_position(&r, s, positions[i]);
    r.ops->state_free(r.dev, s);
    rig_close(&r);
    rig_model_close(&whole);
}

static void rotary_positions(void **state)
{
    (void)state;
    const uint32_t positions[] = {0, 1, 1000, 8000, 100000};
    check_model("tiny", positions, 5);
    check_model("odd", positions, 4); /* heads of 256: 100000 positions would be 400 MB */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rotary_positions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
