/* config.json and generation_config.json: what is read, and the sentence for each field that is wrong. */
#include "../check.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/random.h"
#include "model/config_file.h"
#include "scratch.h"

#define TINY LILY_BINARY_DIR "/tests/ck/tiny"

static json_t *parse(const char *text)
{
    json_t *v;
    lily_err e;
    check_ok(lily_json_parse(&v, text, strlen(text), "test", &e), &e);
    return v;
}

static json_t *tiny_config(void)
{
    json_t *v;
    lily_err e;
    check_ok(lily_json_read(&v, TINY "/config.json", 1 << 20, &e), &e);
    return v;
}

/* Sets top.path to the JSON text, "" removes it; path is "key" or "object/key". */
static void set(json_t *top, const char *path, const char *text)
{
    const char *slash = strchr(path, '/');
    while (slash) {
        char key[64] = {0};
        memcpy(key, path, (size_t)(slash - path));
        top = json_object_get(top, key);
        assert_non_null(top);
        path = slash + 1;
        slash = strchr(path, '/');
    }
    if (*text)
        json_object_set_new(top, path, parse(text));
    else
        json_object_del(top, path);
}

static void reads_tiny(void **state)
{
    (void)state;
    lily_model_config *m;
    lily_err e;
    check_ok(lily_config_open(&m, TINY, &e), &e);
    const lily_config *c = lily_config_numbers(m);
    assert_int_equal(c->hidden, 128);
    assert_int_equal(c->layers, 8);
    assert_int_equal(c->vocab, 1024);
    assert_true(c->eps == 1e-6f);
    assert_int_equal(c->q_heads, 8);
    assert_int_equal(c->kv_heads, 1);
    assert_int_equal(c->head_dim, 64);
    assert_int_equal(c->rotary, 16);
    assert_true(c->rope_theta == 1e7);
    assert_int_equal(lily_conv_width(c), 2 * 2 * 32 + 4 * 32);
    assert_int_equal(c->conv_kernel, 4);
    assert_int_equal(c->experts, 16);
    assert_int_equal(c->top_k, 4);
    assert_int_equal(c->max_positions, 4096);
    assert_false(c->tied);
    for (uint32_t i = 0; i < 8; i++) assert_int_equal(c->full_attention[i], i % 4 == 3);
    /* 956 tokens with text; <|endoftext|> and <|im_end|> follow them */
    assert_int_equal(c->n_eos, 2);
    assert_int_equal(c->eos[0], 956);
    assert_int_equal(c->eos[1], 958);
    const lily_sampling_defaults *s = lily_config_sampling(m);
    assert_true(s->temperature == 1.0f && s->top_p == 0.95f && s->min_p == 0 && s->repetition == 1.0f);
    assert_int_equal(s->top_k, 20);
    lily_config_close(m);
}

static void finds_quantisation_under_every_prefix(void **state)
{
    (void)state;
    lily_model_config *m;
    lily_err e;
    check_ok(lily_config_open(&m, TINY, &e), &e);
    const char *const router[] = {"layers.0.mlp.gate", "model.layers.0.mlp.gate",
                                  "language_model.model.layers.0.mlp.gate",
                                  "model.language_model.layers.0.mlp.gate"};
    for (size_t i = 0; i < sizeof router / sizeof *router; i++) {
        lily_quant q = lily_config_quant(m, router[i]);
        assert_int_equal(q.bits, 8);
        assert_int_equal(q.group, 64);
    }
    assert_int_equal(lily_config_quant(m, "language_model.lm_head").bits, 4);
    assert_int_equal(lily_config_quant(m, "lm_head").bits, 4);
    assert_int_equal(lily_config_quant(m, "model.layers.0.mlp.switch_mlp.up_proj").bits, 4);
    lily_config_close(m);
}

/* One change to tiny's config.json each. */
typedef struct change {
    const char *path, *value;
    int code;
    const char *says;
} change;

#define TEXT    "text_config/"
#define REFUSED LILY_UNSUPPORTED

static const change changes[] = {
    {"model_type", "\"llama\"", REFUSED, "\"model_type\" is \"llama\"; Lily reads qwen3_5_moe"},
    {"model_type", "", REFUSED, "(missing)"},
    {"model_type", "7", REFUSED, "(not a string)"},
    {"text_config", "3", LILY_FORMAT, "\"text_config\" is not an object"},
    {TEXT "hidden_size", "", LILY_FORMAT, "\"hidden_size\" is missing"},
    {TEXT "hidden_size", "null", LILY_FORMAT, "\"hidden_size\" is not an integer"},
    {TEXT "hidden_size", "128.0", LILY_FORMAT, "\"hidden_size\" is not an integer"},
    {TEXT "hidden_size", "\"128\"", LILY_FORMAT, "\"hidden_size\" is not an integer"},
    {TEXT "hidden_size", "-128", LILY_FORMAT, "\"hidden_size\" is -128, expected 32 to 65536"},
    {TEXT "hidden_size", "0", LILY_FORMAT, "\"hidden_size\" is 0, expected 32 to 65536"},
    {TEXT "hidden_size", "9223372036854775807", LILY_FORMAT, "expected 32 to 65536"},
    {TEXT "hidden_size", "100", LILY_FORMAT, "hidden_size is 100, expected a multiple of 32"},
    {TEXT "num_hidden_layers", "257", LILY_FORMAT, "\"num_hidden_layers\" is 257, expected 1 to 256"},
    {TEXT "num_hidden_layers", "7", LILY_FORMAT, "\"layer_types\" has 8 entries, expected 7"},
    {TEXT "vocab_size", "4194305", LILY_FORMAT, "expected 1 to 4194304"},
    {TEXT "vocab_size", "958", LILY_FORMAT, "\"eos_token_id\" holds a value that is no id below 958"},
    {TEXT "num_key_value_heads", "3", LILY_FORMAT,
     "num_attention_heads is 8, expected a multiple of 3 (num_key_value"},
    {TEXT "linear_num_value_heads", "5", LILY_FORMAT,
     "linear_num_value_heads is 5, expected a multiple of 2"},
    {TEXT "linear_value_head_dim", "9", LILY_FORMAT, "linear_num_value_heads * linear_value_head_dim is 36"},
    {TEXT "linear_conv_kernel_dim", "1", LILY_FORMAT, "expected 2 to 8"},
    {TEXT "linear_conv_kernel_dim", "9", LILY_FORMAT, "expected 2 to 8"},
    {TEXT "num_experts_per_tok", "17", LILY_FORMAT,
     "\"num_experts_per_tok\" is 17, but there are 16 experts"},
    {TEXT "num_experts", "0", LILY_FORMAT, "expected 1 to 4096"},
    {TEXT "rms_norm_eps", "", LILY_FORMAT, "\"rms_norm_eps\" is missing"},
    {TEXT "rms_norm_eps", "0", LILY_FORMAT, "\"rms_norm_eps\" is not a number from 1e-12 to 0.1"},
    {TEXT "rms_norm_eps", "\"x\"", LILY_FORMAT, "\"rms_norm_eps\" is not a number"},
    {TEXT "hidden_act", "\"gelu\"", REFUSED, "\"hidden_act\" is \"gelu\"; Lily does \"silu\""},
    {TEXT "attention_bias", "true", REFUSED, "\"attention_bias\" is not false"},
    {TEXT "attn_output_gate", "false", REFUSED, "\"attn_output_gate\" is not true"},
    {TEXT "norm_topk_prob", "false", REFUSED, "\"norm_topk_prob\" is not true"},
    {TEXT "norm_topk_prob", "true", LILY_OK, ""},
    {TEXT "mlp_only_layers", "[1]", REFUSED, "\"mlp_only_layers\" is not empty"},
    {TEXT "tie_word_embeddings", "1", LILY_FORMAT, "\"tie_word_embeddings\" is neither true nor false"},
    {TEXT "rope_parameters", "[]", LILY_FORMAT, "\"rope_parameters\" is not an object"},
    {TEXT "rope_parameters/rope_type", "\"yarn\"", REFUSED,
     "\"rope_type\" is \"yarn\"; Lily does \"default\""},
    {TEXT "rope_scaling", "{\"type\":\"linear\",\"factor\":2}", REFUSED, "\"type\" is \"linear\""},
    {TEXT "rope_scaling", "null", LILY_OK, ""},
    {TEXT "rope_parameters/rope_theta", "", LILY_FORMAT, "\"rope_theta\" is missing"},
    {TEXT "rope_parameters/rope_theta", "-1", LILY_FORMAT, "\"rope_theta\" is not a number from 1 to 1e+12"},
    {TEXT "rope_parameters/partial_rotary_factor", "0.26", LILY_FORMAT, "is 16.64, expected an even number"},
    {TEXT "rope_parameters/partial_rotary_factor", "1.5", LILY_FORMAT, "is not a number from 0 to 1"},
    {TEXT "layer_types", "", LILY_OK, ""},
    {TEXT "full_attention_interval", "", LILY_OK, ""},
    {TEXT "full_attention_interval", "2", LILY_FORMAT,
     "layer 1 is linear attention by \"layer_types\" and full by \"full_attention_interval\" 2"},
    {"eos_token_id", "-1", LILY_FORMAT, "\"eos_token_id\" holds a value that is no id below 1024"},
    {"eos_token_id", "[1,[2]]", LILY_FORMAT, "\"eos_token_id\" holds"},
    {"eos_token_id", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]", REFUSED, "more than 16 ids"},
    {"eos_token_id", "null", LILY_OK, ""},
    {"quantization", "[]", LILY_FORMAT, "\"quantization\" is not an object"},
    {"quantization/bits", "3", REFUSED, "3 bits; Lily reads 4 and 8"},
    {"quantization/bits", "", LILY_FORMAT, "\"bits\" is missing"},
    {"quantization/group_size", "16", REFUSED, "groups of 16; Lily reads 32, 64 and 128"},
    {"quantization/mode", "\"mxfp4\"", REFUSED, "quantisation mode \"mxfp4\"; Lily reads affine"},
    {"quantization/quant_method", "\"gptq\"", REFUSED, "quantisation method \"gptq\""},
    {"quantization/language_model.model.layers.2.mlp.gate", "{\"bits\":6}", REFUSED,
     "language_model.model.layers.2.mlp.gate: 6 bits"},
    {"quantization/vision_tower.patch", "{\"bits\":6}", LILY_OK, ""},
    {"quantization/model.layers.2.mlp.gate", "{\"bits\":4}", LILY_FORMAT,
     "two entries for layers.2.mlp.gate"},
};

static void judges_every_field(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        json_t *top = tiny_config();
        lily_model_config *m;
        lily_err e;
        set(top, changes[i].path, changes[i].value);
        int rc = lily_config_parse(&m, top, NULL, &e);
        if (rc != changes[i].code || (rc != LILY_OK && (!strstr(e.text, changes[i].says) ||
                                                        strncmp(e.text, "config.json: ", 13) != 0)))
            fail_msg("%s = %s: wanted %s \"%s\", got %s \"%s\"", changes[i].path, changes[i].value,
                     lily_err_name(changes[i].code), changes[i].says, lily_err_name(rc), rc ? e.text : "");
        assert_true((rc == LILY_OK) == (m != NULL));
        lily_config_close(m);
        json_decref(top);
    }
}

/* The text part alone, with the older place of the rotary numbers. */
static void reads_a_flat_file(void **state)
{
    (void)state;
    json_t *nested = tiny_config(), *top = json_incref(json_object_get(nested, "text_config"));
    json_object_del(top, "rope_parameters");
    json_object_set_new(top, "rope_theta", json_integer(5000));
    json_object_set_new(top, "tie_word_embeddings", json_true());
    lily_model_config *m;
    lily_err e;
    check_ok(lily_config_parse(&m, top, NULL, &e), &e);
    assert_true(lily_config_numbers(m)->rope_theta == 5000);
    assert_int_equal(lily_config_numbers(m)->rotary, 16);
    assert_true(lily_config_numbers(m)->tied);
    assert_int_equal(lily_config_numbers(m)->n_eos, 1);
    assert_int_equal(lily_config_quant(m, "lm_head").bits, 0);
    lily_config_close(m);
    json_decref(top);
    json_decref(nested);
}

static const struct {
    const char *text;
    int code;
    const char *says;
} generations[] = {
    {"{}", LILY_OK, ""},
    {"{\"temperature\":null,\"top_k\":null,\"eos_token_id\":null}", LILY_OK, ""},
    {"{\"temperature\":-0.1}", LILY_FORMAT, "\"temperature\" is not a number from 0 to 100"},
    {"{\"temperature\":\"hot\"}", LILY_FORMAT, "\"temperature\" is not a number"},
    {"{\"top_p\":1.01}", LILY_FORMAT, "\"top_p\" is not a number from 0 to 1"},
    {"{\"top_k\":2.5}", LILY_FORMAT, "\"top_k\" is not an integer"},
    {"{\"top_k\":-1}", LILY_FORMAT, "\"top_k\" is -1"},
    {"{\"repetition_penalty\":0}", LILY_FORMAT, "\"repetition_penalty\""},
    {"{\"eos_token_id\":1024}", LILY_FORMAT, "\"eos_token_id\""},
};

static void reads_generation_config(void **state)
{
    (void)state;
    json_t *top = tiny_config();
    lily_model_config *m;
    lily_err e;
    for (size_t i = 0; i < sizeof generations / sizeof *generations; i++) {
        json_t *g = parse(generations[i].text);
        check_fails(lily_config_parse(&m, top, g, &e), generations[i].code, &e);
        if (generations[i].code != LILY_OK) {
            assert_non_null(strstr(e.text, generations[i].says));
            assert_int_equal(strncmp(e.text, "generation_config.json: ", 24), 0);
        }
        lily_config_close(m);
        json_decref(g);
    }
    json_t *g = parse(
        "{\"do_sample\":false,\"temperature\":0.7,\"top_p\":0.5,\"top_k\":7,\"min_p\":0.1,"
        "\"presence_penalty\":1.5,\"frequency_penalty\":-1,\"repetition_penalty\":1.1,\"eos_token_id\":5}");
    check_ok(lily_config_parse(&m, top, g, &e), &e);
    const lily_sampling_defaults *s = lily_config_sampling(m);
    assert_true(s->temperature == 0); /* greedy */
    assert_true(s->top_p == 0.5f && s->min_p == 0.1f && s->presence == 1.5f && s->frequency == -1 &&
                s->repetition == 1.1f);
    assert_int_equal(s->top_k, 7);
    assert_int_equal(lily_config_numbers(m)->n_eos, 3);
    assert_int_equal(lily_config_numbers(m)->eos[2], 5);
    lily_config_close(m);
    json_decref(g);
    json_decref(top);
}

static void refuses_files_that_are_no_object(void **state)
{
    const scratch *s = *state;
    lily_model_config *m;
    lily_err e;
    check_fails(lily_config_open(&m, s->path, &e), LILY_IO, &e);
    assert_non_null(strstr(e.text, "/config.json: "));    /* the whole path: the folder may be wrong */
    scratch_text(s, "config.json", "[1]");
    check_fails(lily_config_open(&m, s->path, &e), LILY_FORMAT, &e);
    assert_string_equal(e.text, "config.json: not a JSON object");
    scratch_text(s, "config.json", "{\"model_type\":");
    check_fails(lily_config_open(&m, s->path, &e), LILY_FORMAT, &e);
    assert_non_null(strstr(e.text, "config.json: not valid JSON"));
}

static void survives_failed_allocations(void **state)
{
    (void)state;
    lily_model_config *m;
    lily_err e;
    int64_t n = 0;
    for (;; n++) {
        lily_mem_fail_after(n);
        int rc = lily_config_open(&m, TINY, &e);
        lily_mem_fail_after(-1);
        if (rc == LILY_OK) break;
        assert_int_equal(rc, LILY_NO_MEMORY);
        assert_null(m);
    }
    assert_in_range(n, 10, 1000);
    lily_config_close(m);
}

/* Every random change is either refused with a sentence or gives numbers within the bounds. */
static void survives_random_changes(void **state)
{
    (void)state;
    lily_buf text = {0};
    lily_err e;
    check_ok(lily_file_read(&text, TINY "/config.json", 1 << 20, &e), &e);
    int accepted = 0;
    for (uint64_t round = 0; round < 2000; round++) {
        uint32_t r[4];
        lily_philox(11, round, r);
        char old = text.data[r[0] % text.len];
        text.data[r[0] % text.len] = (char)(32 + r[1] % 95);
        json_t *top;
        lily_model_config *m;
        if (lily_json_parse(&top, text.data, text.len, "config.json", &e) == LILY_OK) {
            if (lily_config_parse(&m, top, NULL, &e) == LILY_OK) {
                const lily_config *c = lily_config_numbers(m);
                assert_in_range(c->hidden, 32, 65536);
                assert_in_range(c->rotary, 2, c->head_dim);
                assert_in_range(c->top_k, 1, c->experts);
                accepted++;
                lily_config_close(m);
            } else {
                assert_int_equal(strncmp(e.text, "config.json: ", 13), 0);
            }
            json_decref(top);
        }
        text.data[r[0] % text.len] = old;
    }
    assert_in_range(accepted, 1, 1999);
    lily_buf_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_tiny),
        cmocka_unit_test(finds_quantisation_under_every_prefix),
        cmocka_unit_test(judges_every_field),
        cmocka_unit_test(reads_a_flat_file),
        cmocka_unit_test(reads_generation_config),
        cmocka_unit_test_setup_teardown(refuses_files_that_are_no_object, scratch_open, scratch_close),
        cmocka_unit_test(survives_failed_allocations),
        cmocka_unit_test(survives_random_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
