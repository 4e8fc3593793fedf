/* Binding the tensors of a checkpoint to the model: names, layouts, quantisation, and what is refused. */
#include "../check.h"

#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "fake.h"
#include "model/weights.h"

#define TINY LILY_BINARY_DIR "/tests/ck/tiny"
#define ODD  LILY_BINARY_DIR "/tests/ck/odd"
#define DEMO LILY_SOURCE_DIR "/models/demo"

#define PRE "language_model.model."
#define L0  PRE "layers.0."
#define L3  PRE "layers.3."

typedef struct opened {
    lily_ckpt *ckpt;
    lily_model_config *config;
    lily_model *model;
} opened;

static int open_model(opened *o, const char *dir, lily_err *e)
{
    *o = (opened){0};
    TRY(lily_ckpt_open(&o->ckpt, dir, e));
    TRY(lily_config_open(&o->config, dir, e));
    return lily_model_open(&o->model, o->ckpt, o->config, e);
}

static void close_model(opened *o)
{
    lily_model_close(o->model);
    lily_config_close(o->config);
    lily_ckpt_close(o->ckpt);
}

/* ---- what is found ----------------------------------------------------------------- */

static void binds_tiny(void **state)
{
    (void)state;
    opened o;
    lily_err e;
    check_ok(open_model(&o, TINY, &e), &e);
    const lily_model *m = o.model;
    assert_int_equal(m->n_used, 357);
    assert_int_equal(m->n_skipped, 2); /* the stand-ins for the vision tower */
    const lily_layer *l = &m->layer[0];
    assert_int_equal(l->qkv.rows, 256);
    assert_int_equal(l->qkv.cols, 128);
    assert_int_equal(l->qkv.bits, 4);
    assert_int_equal(l->qkv.group, 64);
    assert_ptr_equal(l->qkv.codes, lily_ckpt_find(o.ckpt, L0 "linear_attn.in_proj_qkv.weight")->data);
    assert_int_equal(l->router.bits, 8);
    assert_int_equal(l->shared_gate.rows, 1);
    assert_int_equal(l->ex_down.experts, 16);
    assert_int_equal(l->ex_down.rows, 128);
    assert_int_equal(l->ex_down.cols, 64);
    assert_null(l->q.codes);
    assert_null(m->layer[3].qkv.codes);
    assert_int_equal(m->layer[3].q.rows, 2 * 8 * 64);
    assert_int_equal(m->head.rows, 1024);
    /* vectors are copied as floats: the norms as stored, the decay as exp(A_log) */
    const uint8_t *norm = lily_ckpt_find(o.ckpt, L0 "input_layernorm.weight")->data;
    assert_true(l->norm_mix[5] == lily_bf16_to_float(lily_load_u16(norm + 10)));
    const uint8_t *a_log = lily_ckpt_find(o.ckpt, L0 "linear_attn.A_log")->data;
    assert_true(l->decay[1] == (float)exp((double)lily_bf16_to_float(lily_load_u16(a_log + 2))));
    const uint8_t *conv = lily_ckpt_find(o.ckpt, L0 "linear_attn.conv1d.weight")->data;
    assert_true(l->conv[4 * 7 + 3] == lily_bf16_to_float(lily_load_u16(conv + 2 * (4 * 7 + 3))));
    /* one expert of a stack */
    const lily_tensor *scales = lily_ckpt_find(o.ckpt, L0 "mlp.switch_mlp.up_proj.scales");
    lily_matrix third = lily_expert(&l->ex_up, 3);
    assert_int_equal(third.experts, 1);
    assert_ptr_equal(third.scales, scales->data + 3 * scales->bytes / 16);
    assert_int_equal(lily_matrix_bytes(&third), 64 * (128 / 2 + 2 * 4));
    close_model(&o);
}

/* Bytes used and read for a token, counted again from the tensors' names. */
static void counts_bytes(void **state)
{
    (void)state;
    const char *const dirs[] = {TINY, ODD, DEMO};
    for (size_t d = 0; d < 3; d++) {
        opened o;
        lily_err e;
        check_ok(open_model(&o, dirs[d], &e), &e);
        const lily_config *c = lily_config_numbers(o.config);
        uint64_t all = 0, token = 0;
        for (size_t i = 0; i < lily_ckpt_count(o.ckpt); i++) {
            const lily_tensor *t = lily_ckpt_at(o.ckpt, i);
            if (strncmp(t->name, "vision_tower.", 13) == 0) continue;
            all += t->bytes;
            if (strstr(t->name, "embed_tokens."))
                token += t->bytes / c->vocab;
            else if (strstr(t->name, "switch_mlp."))
                token += t->bytes / c->experts * c->top_k;
            else
                token += t->bytes;
        }
        assert_int_equal(o.model->weight_bytes, all);
        assert_int_equal(o.model->token_bytes, token);
        close_model(&o);
    }
}

/* ---- other layouts ----------------------------------------------------------------- */

static void check_opens(const fake *f, const scratch *s, opened *o)
{
    lily_err e;
    fake_write(f, s);
    check_ok(open_model(o, s->path, &e), &e);
}

static void reads_every_prefix(void **state)
{
    const scratch *s = *state;
    const char *const prefixes[][2] = {{"model.", "lm_head."}, {"model.language_model.", "lm_head."}};
    for (int i = 0; i < 2; i++) {
        fake f;
        opened o;
        fake_read(&f, TINY);
        fake_rename(&f, PRE, prefixes[i][0]);
        fake_rename(&f, "language_model.lm_head.", prefixes[i][1]);
        fake_rename(&f, "vision_tower.", i ? "model.visual." : "mtp.");
        check_opens(&f, s, &o);
        assert_int_equal(o.model->n_used, 357);
        assert_int_equal(o.model->n_skipped, 2);
        close_model(&o);
        fake_free(&f);
    }
}

/* The shape of the convolution alone decides whether 1 is added to the norms. */
static void reads_an_unconverted_layout(void **state)
{
    const scratch *s = *state;
    fake f;
    opened before, after;
    fake_read(&f, TINY);
    check_opens(&f, s, &before);
    for (size_t i = 0; i < f.n; i++)
        if (strstr(f.tensors[i].name, "conv1d")) {
            f.tensors[i].dim[1] = 1;
            f.tensors[i].dim[2] = 4;
        }
    fake_add(&f, "mtp.norm.weight", "BF16", 1, (uint64_t[]){4}, 8);
    void *second; /* the first one's files stay mapped */
    assert_int_equal(scratch_open(&second), 0);
    check_opens(&f, second, &after);
    const lily_layer *a = before.model->layer, *b = after.model->layer;
    assert_true(b[0].norm_mix[3] == a[0].norm_mix[3] + 1);
    assert_true(b[0].norm_post[3] == a[0].norm_post[3] + 1);
    assert_true(b[3].norm_q[3] == a[3].norm_q[3] + 1);
    assert_true(b[3].norm_k[3] == a[3].norm_k[3] + 1);
    assert_true(after.model->norm_final[3] == before.model->norm_final[3] + 1);
    assert_true(b[0].norm_gated[3] == a[0].norm_gated[3]); /* never zero-centred */
    assert_memory_equal(b[0].conv, a[0].conv, 4 * 256 * sizeof(float));
    close_model(&before);
    close_model(&after);
    assert_int_equal(scratch_close(&second), 0);
    fake_free(&f);
}

static void reads_tied_embeddings(void **state)
{
    const scratch *s = *state;
    fake f;
    opened o;
    fake_read(&f, TINY);
    json_object_set_new(json_object_get(f.config, "text_config"), "tie_word_embeddings", json_true());
    check_opens(&f, s, &o);
    assert_ptr_equal(o.model->head.codes, o.model->embed.codes);
    assert_int_equal(o.model->n_skipped, 5); /* the head that is there all the same */
    opened untied;
    lily_err e;
    check_ok(open_model(&untied, TINY, &e), &e); /* a token still reads one row and all rows */
    assert_int_equal(o.model->token_bytes, untied.model->token_bytes);
    close_model(&untied);
    close_model(&o);
    fake_free(&f);
}

/* Makes a matrix plain: BF16 or F32 of its own shape, zero. */
static void make_plain(fake *f, const char *module, const char *dtype, uint32_t rank, const uint64_t *dim)
{
    char name[160];
    size_t bytes = strcmp(dtype, "F32") == 0 ? 4 : 2;
    for (uint32_t i = 0; i < rank; i++) bytes *= (size_t)dim[i];
    const char *const suffix[] = {"weight", "scales", "biases"};
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s.%s", module, suffix[i]);
        fake_remove(f, name);
    }
    snprintf(name, sizeof name, "%s.weight", module);
    fake_add(f, name, dtype, rank, dim, bytes);
}

static void reads_plain_matrices(void **state)
{
    const scratch *s = *state;
    fake f;
    opened o;
    fake_read(&f, TINY);
    make_plain(&f, L0 "mlp.gate", "F32", 2, (uint64_t[]){16, 128});
    make_plain(&f, L0 "mlp.switch_mlp.up_proj", "BF16", 3, (uint64_t[]){16, 64, 128});
    check_opens(&f, s, &o);
    const lily_layer *l = o.model->layer;
    assert_int_equal(l->router.bits, 32);
    assert_int_equal(l->router.group, 0);
    assert_null(l->router.scales);
    assert_int_equal(l->ex_up.bits, 16);
    lily_matrix second = lily_expert(&l->ex_up, 1);
    assert_ptr_equal(second.codes, l->ex_up.codes + 64 * 128 * 2);
    assert_int_equal(lily_matrix_bytes(&second), 64 * 128 * 2);
    close_model(&o);
    fake_free(&f);
}

/* The makers' own stack of gate and up: the same rows, a step apart. */
static void reads_fused_experts(void **state)
{
    const scratch *s = *state;
    const char *const names[] = {"gate_proj", "up_proj", "down_proj"}, *const parts[] = {"weight", "scales",
                                                                                         "biases"};
    fake f;
    opened o, other;
    lily_err e;
    fake_read(&f, TINY);
    for (int i = 0; i < 9; i++) {
        char name[160];
        snprintf(name, sizeof name, L0 "mlp.switch_mlp.%s.%s", names[i / 3], parts[i % 3]);
        fake_remove(&f, name);
    }
    fake_add(&f, L0 "mlp.experts.gate_up_proj", "BF16", 3, (uint64_t[]){16, 128, 128}, 16 * 128 * 128 * 2);
    fake_add(&f, L0 "mlp.experts.down_proj", "BF16", 3, (uint64_t[]){16, 128, 64}, 16 * 128 * 64 * 2);
    check_opens(&f, s, &o);
    const lily_layer *l = o.model->layer;
    const uint8_t *data = lily_ckpt_find(o.ckpt, L0 "mlp.experts.gate_up_proj")->data;
    lily_matrix gate = lily_expert(&l->ex_gate, 5), up = lily_expert(&l->ex_up, 5),
                down = lily_expert(&l->ex_down, 5);
    assert_int_equal(gate.rows, 64);
    assert_int_equal(up.rows, 64);
    assert_int_equal(down.rows, 128);
    assert_ptr_equal(gate.codes, data + 5 * 128 * 256);
    assert_ptr_equal(up.codes, data + (5 * 128 + 64) * 256);
    assert_ptr_equal(down.codes, l->ex_down.codes + 5 * 128 * 128);
    check_ok(open_model(&other, TINY, &e), &e);
    uint64_t plain = 3 * 64 * 128 * 2, packed = 2 * 64 * (64 + 8) + 128 * (32 + 4); /* of one expert */
    assert_int_equal(o.model->token_bytes, other.model->token_bytes + 4 * (plain - packed));
    close_model(&other);
    close_model(&o);
    fake_free(&f);
}

/* Groups of 32 and 128 by an entry of their own; the tensors' last dimensions follow. */
static void reads_other_groups(void **state)
{
    const scratch *s = *state;
    const int groups[] = {32, 128};
    for (int i = 0; i < 2; i++) {
        fake f;
        opened o;
        fake_read(&f, TINY);
        json_object_set_new(json_object_get(f.config, "quantization"), L3 "self_attn.k_proj",
                            json_pack("{s:i, s:i}", "bits", 4, "group_size", groups[i]));
        const char *const names[] = {L3 "self_attn.k_proj.scales", L3 "self_attn.k_proj.biases"};
        for (int k = 0; k < 2; k++) {
            fake_remove(&f, names[k]);
            uint64_t n = (uint64_t)(128 / groups[i]);
            fake_add(&f, names[k], "BF16", 2, (uint64_t[]){64, n}, (size_t)(64 * n * 2));
        }
        check_opens(&f, s, &o);
        assert_int_equal(o.model->layer[3].k.group, groups[i]);
        assert_int_equal(lily_row_groups(&o.model->layer[3].k), 128 / groups[i]);
        close_model(&o);
        fake_free(&f);
    }
}

/* ---- what is refused --------------------------------------------------------------- */

static void reshape(fake *f, const char *name, uint32_t rank, const uint64_t *dim)
{
    fake_tensor *t = fake_find(f, name);
    t->rank = rank;
    memcpy(t->dim, dim, rank * sizeof *dim);
}

static void d_unknown(fake *f)
{
    fake_add(f, "audio.weight", "BF16", 1, (uint64_t[]){4}, 8);
}
static void d_ninth_layer(fake *f)
{
    fake_add(f, PRE "layers.8.input_layernorm.weight", "BF16", 1, (uint64_t[]){4}, 8);
}
static void d_bias(fake *f)
{
    fake_add(f, L3 "self_attn.q_proj.bias", "BF16", 1, (uint64_t[]){1024}, 2048);
}
static void d_twice(fake *f)
{
    fake_add(f, "model.norm.weight", "BF16", 1, (uint64_t[]){128}, 256);
}
static void d_no_norm(fake *f)
{
    fake_remove(f, L3 "input_layernorm.weight");
}
static void d_no_scales(fake *f)
{
    fake_remove(f, L3 "self_attn.v_proj.scales");
}
static void d_no_head(fake *f)
{
    fake_remove(f, "language_model.lm_head.weight");
}
static void d_norm_shape(fake *f)
{
    reshape(f, L3 "input_layernorm.weight", 2, (uint64_t[]){2, 64});
}
static void d_norm_type(fake *f)
{
    strcpy(fake_find(f, L3 "input_layernorm.weight")->dtype, "F16");
}
static void d_weight_type(fake *f)
{
    strcpy(fake_find(f, L3 "self_attn.v_proj.weight")->dtype, "I32");
}
static void d_scale_type(fake *f)
{
    strcpy(fake_find(f, L3 "self_attn.v_proj.scales")->dtype, "F16");
}
static void d_rows(fake *f)
{
    reshape(f, L3 "self_attn.v_proj.weight", 2, (uint64_t[]){32, 32});
}
static void d_stack(fake *f)
{
    reshape(f, L0 "mlp.switch_mlp.up_proj.weight", 2, (uint64_t[]){16 * 64, 16});
}
static void d_biases(fake *f)
{
    reshape(f, L3 "self_attn.v_proj.biases", 2, (uint64_t[]){128, 1});
}
static void d_conv(fake *f)
{
    reshape(f, PRE "layers.1.linear_attn.conv1d.weight", 3, (uint64_t[]){256, 1, 4});
}
static void d_scalar(fake *f)
{
    fake_remove(f, L3 "self_attn.v_proj.weight");
    fake_add(f, L3 "self_attn.v_proj.weight", "U32", 0, (uint64_t[]){0}, 4);
}
static void d_bits(fake *f)
{
    json_object_del(json_object_get(f->config, "quantization"), L0 "mlp.gate");
}
static void d_group(fake *f)
{
    json_object_set_new(json_object_get(f->config, "quantization"), "group_size", json_integer(32));
}
static void d_wide_group(fake *f)
{
    json_object_set_new(json_object_get(f->config, "quantization"), L0 "mlp.shared_expert.down_proj",
                        json_pack("{s:i, s:i}", "bits", 4, "group_size", 128));
}
static void d_no_quantisation(fake *f)
{
    json_object_del(f->config, "quantization");
    json_object_del(f->config, "quantization_config");
}
static void d_fused(fake *f)
{
    fake_add(f, L0 "mlp.experts.gate_up_proj", "BF16", 3, (uint64_t[]){16, 64, 128}, 16 * 64 * 128 * 2);
}

static const struct {
    void (*change)(fake *);
    int code;
    const char *says;
} damages[] = {
    {d_unknown, LILY_UNSUPPORTED, "model.safetensors: audio.weight: a tensor that Lily does not know"},
    {d_ninth_layer, LILY_UNSUPPORTED,
     "layers.8.input_layernorm.weight: not a tensor of this model (8 layers)"},
    {d_bias, LILY_UNSUPPORTED, "self_attn.q_proj.bias: not a tensor of this model"},
    {d_twice, LILY_FORMAT, "norm.weight: the same tensor as "},
    {d_no_norm, LILY_FORMAT, "tensor layers.3.input_layernorm.weight is missing"},
    {d_no_scales, LILY_FORMAT, "tensor layers.3.self_attn.v_proj.scales is missing"},
    {d_no_head, LILY_FORMAT, "tensor lm_head.weight is missing"},
    {d_norm_shape, LILY_FORMAT, L3 "input_layernorm.weight: shape [2, 64], expected [128]"},
    {d_norm_type, LILY_UNSUPPORTED, L3 "input_layernorm.weight: type F16, expected BF16 or F32"},
    {d_weight_type, LILY_UNSUPPORTED, "type another type, expected U32, BF16 or F32"},
    {d_scale_type, LILY_UNSUPPORTED, "v_proj.scales: type F16, expected BF16"},
    {d_rows, LILY_FORMAT, "v_proj.weight: 8 bits by its shape, 4 by config.json"},
    {d_stack, LILY_FORMAT, "up_proj.weight: shape [1024, 16], expected [16, 64, 16]"},
    {d_biases, LILY_FORMAT, "v_proj.biases: shape [128, 1], expected [64, 2]"},
    {d_conv, LILY_FORMAT, "layers.1.linear_attn.conv1d.weight: shape [256, 1, 4], expected [256, 4, 1]"},
    {d_scalar, LILY_FORMAT, "v_proj.weight: shape [], expected [64, 16]"},
    {d_bits, LILY_FORMAT, L0 "mlp.gate.weight: 8 bits by its shape, 4 by config.json"},
    {d_group, LILY_FORMAT, "groups of 64 by its shape, 32 by config.json"},
    {d_wide_group, LILY_FORMAT, "64 columns are no whole number of groups of 128"},
    {d_no_quantisation, LILY_FORMAT, "is quantised, but config.json does not say how"},
    {d_fused, LILY_FORMAT, "experts.gate_up_proj: shape [16, 64, 128], expected [16, 128, 128]"},
};

static void refuses_what_does_not_fit(void **state)
{
    const scratch *s = *state;
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        fake f;
        opened o;
        lily_err e;
        fake_read(&f, TINY);
        damages[i].change(&f);
        fake_write(&f, s);
        check_fails(open_model(&o, s->path, &e), damages[i].code, &e);
        if (!strstr(e.text, damages[i].says)) fail_msg("wanted \"%s\", got \"%s\"", damages[i].says, e.text);
        assert_null(o.model);
        close_model(&o);
        fake_free(&f);
    }
}

static void survives_failed_allocations(void **state)
{
    (void)state;
    opened o;
    lily_err e;
    check_ok(open_model(&o, TINY, &e), &e);
    int64_t n = 0;
    for (;; n++) {
        lily_model *m;
        lily_mem_fail_after(n);
        int rc = lily_model_open(&m, o.ckpt, o.config, &e);
        lily_mem_fail_after(-1);
        lily_model_close(m);
        if (rc == LILY_OK) break;
        assert_int_equal(rc, LILY_NO_MEMORY);
    }
    assert_in_range(n, 3, 1000);
    close_model(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(binds_tiny),
        cmocka_unit_test(counts_bytes),
        cmocka_unit_test_setup_teardown(reads_every_prefix, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(reads_an_unconverted_layout, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(reads_tied_embeddings, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(reads_plain_matrices, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(reads_fused_experts, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(reads_other_groups, scratch_open, scratch_close),
        cmocka_unit_test_setup_teardown(refuses_what_does_not_fit, scratch_open, scratch_close),
        cmocka_unit_test(survives_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
