/* numbers.c - the dimensions in config.json, each within bounds and all of one mind. */
#include "model/config_file.h"

#include <math.h>
#include <string.h>

/* Bounds: see config.h. */
enum {
    MAX_WIDTH = 1 << 16,
    MAX_VOCAB = 1 << 22,
    MAX_HEADS = 1024,
    MAX_HEAD_DIM = 1024,
    MAX_EXPERTS = 4096,
    MAX_TOP_K = 64,
    MAX_POSITIONS = 1 << 24,
};

const json_t *lily_config_get(const json_t *obj, const char *key)
{
    const json_t *v = json_object_get(obj, key);
    return json_is_null(v) ? NULL : v;
}

/* ---- dimensions -------------------------------------------------------------------- */

static int read_dimensions(lily_config *c, const lily_config_file *f, lily_err *e)
{
    const struct {
        const char *key;
        uint32_t *to;
        int low, high;
    } list[] = {
        {"hidden_size", &c->hidden, 32, MAX_WIDTH},
        {"num_hidden_layers", &c->layers, 1, LILY_MAX_LAYERS},
        {"vocab_size", &c->vocab, 1, MAX_VOCAB},
        {"num_attention_heads", &c->q_heads, 1, MAX_HEADS},
        {"num_key_value_heads", &c->kv_heads, 1, MAX_HEADS},
        {"head_dim", &c->head_dim, 2, MAX_HEAD_DIM},
        {"linear_num_key_heads", &c->lin_k_heads, 1, MAX_HEADS},
        {"linear_num_value_heads", &c->lin_v_heads, 1, MAX_HEADS},
        {"linear_key_head_dim", &c->lin_k_dim, 1, MAX_HEAD_DIM},
        {"linear_value_head_dim", &c->lin_v_dim, 1, MAX_HEAD_DIM},
        {"linear_conv_kernel_dim", &c->conv_kernel, 2, 8},
        {"num_experts", &c->experts, 1, MAX_EXPERTS},
        {"num_experts_per_tok", &c->top_k, 1, MAX_TOP_K},
        {"moe_intermediate_size", &c->expert_inter, 32, MAX_WIDTH},
        {"shared_expert_intermediate_size", &c->shared_inter, 32, MAX_WIDTH},
        {"max_position_embeddings", &c->max_positions, 1, MAX_POSITIONS},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        int64_t v;
        TRY(lily_json_uint(f->text, list[i].key, list[i].low, list[i].high, -1, &v, f->name, e));
        *list[i].to = (uint32_t)v;
    }
    return LILY_OK;
}

static int check_multiple(uint32_t v, const char *name, uint32_t of, const char *of_name, const char *file,
                          lily_err *e)
{
    if (v % of == 0) return LILY_OK;
    return lily_fail(e, LILY_FORMAT, "%s: %s is %u, expected a multiple of %u (%s)", file, name, v, of,
                     of_name);
}

static int check_dimensions(const lily_config *c, const char *file, lily_err *e)
{
    TRY(check_multiple(c->q_heads, "num_attention_heads", c->kv_heads, "num_key_value_heads", file, e));
    TRY(check_multiple(c->lin_v_heads, "linear_num_value_heads", c->lin_k_heads, "linear_num_key_heads", file,
                       e));
    /* Every width that is a matrix's input holds whole groups. */
    const struct {
        const char *name;
        uint32_t width;
    } inputs[] = {
        {"hidden_size", c->hidden},
        {"moe_intermediate_size", c->expert_inter},
        {"shared_expert_intermediate_size", c->shared_inter},
        {"num_attention_heads * head_dim", lily_q_width(c)},
        {"linear_num_value_heads * linear_value_head_dim", lily_value_width(c)},
    };
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
        TRY(check_multiple(inputs[i].width, inputs[i].name, 32, "the smallest group", file, e));
    if (c->top_k > c->experts)
        return lily_fail(e, LILY_FORMAT, "%s: \"num_experts_per_tok\" is %u, but there are %u experts", file,
                         c->top_k, c->experts);
    return LILY_OK;
}

static int read_real(double *out, const json_t *obj, const char *key, double low, double high,
                     const char *file, lily_err *e)
{
    const json_t *v = lily_config_get(obj, key);
    if (!v) return lily_fail(e, LILY_FORMAT, "%s: \"%s\" is missing", file, key);
    *out = json_is_number(v) ? json_number_value(v) : NAN;
    if (!(*out >= low && *out <= high))
        return lily_fail(e, LILY_FORMAT, "%s: \"%s\" is not a number from %g to %g", file, key, low, high);
    return LILY_OK;
}

/* ---- choices of the architecture that Lily takes for granted ------------------------ */

static int want_string(const json_t *obj, const char *key, const char *want, const char *file, lily_err *e)
{
    const json_t *v = lily_config_get(obj, key);
    if (!v) return LILY_OK;
    const char *s = json_string_value(v);
    if (s && strcmp(s, want) == 0) return LILY_OK;
    return lily_fail(e, LILY_UNSUPPORTED, "%s: \"%s\" is \"%.64s\"; Lily does \"%s\"", file, key,
                     s ? s : "(not a string)", want);
}

static int want_bool(const json_t *obj, const char *key, bool want, const char *file, lily_err *e)
{
    const json_t *v = lily_config_get(obj, key);
    if (!v || (json_is_boolean(v) && json_is_true(v) == want)) return LILY_OK;
    return lily_fail(e, LILY_UNSUPPORTED, "%s: \"%s\" is not %s, which Lily does not do", file, key,
                     want ? "true" : "false");
}

static int check_family(const lily_config_file *f, lily_err *e)
{
    const json_t *type = lily_config_get(f->top, "model_type");
    const char *name = json_string_value(type);
    if (!name || (strcmp(name, "qwen3_5_moe") != 0 && strcmp(name, "qwen3_5_moe_text") != 0))
        return lily_fail(e, LILY_UNSUPPORTED, "%s: \"model_type\" is \"%.64s\"; Lily reads qwen3_5_moe",
                         f->name,
                         name   ? name
                         : type ? "(not a string)"
                                : "(missing)");
    TRY(want_string(f->text, "hidden_act", "silu", f->name, e));
    TRY(want_bool(f->text, "attention_bias", false, f->name, e));
    TRY(want_bool(f->text, "attn_output_gate", true, f->name, e));
    TRY(want_bool(f->text, "norm_topk_prob", true, f->name, e));
    const json_t *dense = lily_config_get(f->text, "mlp_only_layers");
    if (dense && json_array_size(dense) != 0)
        return lily_fail(e, LILY_UNSUPPORTED,
                         "%s: \"mlp_only_layers\" is not empty; Lily does layers of experts only", f->name);
    return LILY_OK;
}

/* tie_word_embeddings of the language model; the outer one counts when the inner one is absent. */
static int read_tied(lily_config *c, const lily_config_file *f, lily_err *e)
{
    const json_t *v = lily_config_get(f->text, "tie_word_embeddings");
    if (!v) v = lily_config_get(f->top, "tie_word_embeddings");
    if (v && !json_is_boolean(v))
        return lily_fail(e, LILY_FORMAT, "%s: \"tie_word_embeddings\" is neither true nor false", f->name);
    c->tied = v && json_is_true(v);
    return LILY_OK;
}

/* ---- positions --------------------------------------------------------------------- */

/* Newer files keep the numbers in "rope_parameters", older ones beside the dimensions. */
static int read_rope(lily_config *c, const lily_config_file *f, lily_err *e)
{
    const json_t *rope = lily_config_get(f->text, "rope_parameters");
    const json_t *scaling = lily_config_get(f->text, "rope_scaling");
    if ((rope && !json_is_object(rope)) || (scaling && !json_is_object(scaling)))
        return lily_fail(e, LILY_FORMAT, "%s: \"%s\" is not an object", f->name,
                         rope ? "rope_parameters" : "rope_scaling");
    for (int i = 0; i < 2; i++) {
        const json_t *obj = i ? scaling : rope;
        TRY(want_string(obj, "rope_type", "default", f->name, e));
        TRY(want_string(obj, "type", "default", f->name, e));
    }
    const json_t *theta = lily_config_get(rope, "rope_theta") ? rope : f->text;
    const json_t *part = lily_config_get(rope, "partial_rotary_factor") ? rope : f->text;
    double factor;
    TRY(read_real(&c->rope_theta, theta, "rope_theta", 1, 1e12, f->name, e));
    TRY(read_real(&factor, part, "partial_rotary_factor", 0, 1, f->name, e));
    double width = c->head_dim * factor;
    c->rotary = (uint32_t)lround(width);
    if (c->rotary == 0 || c->rotary % 2 || fabs(width - c->rotary) > 1e-6)
        return lily_fail(e, LILY_FORMAT,
                         "%s: head_dim %u * partial_rotary_factor %g is %g, expected an even number", f->name,
                         c->head_dim, factor, width);
    return LILY_OK;
}

/* ---- which layers attend ------------------------------------------------------------ */

static int read_layer_types(lily_config *c, const json_t *types, const char *file, lily_err *e)
{
    if (json_array_size(types) != c->layers)
        return lily_fail(e, LILY_FORMAT, "%s: \"layer_types\" has %zu entries, expected %u", file,
                         json_array_size(types), c->layers);
    for (uint32_t i = 0; i < c->layers; i++) {
        const char *s = json_string_value(json_array_get(types, i));
        bool full = s && strcmp(s, "full_attention") == 0;
        if (!full && !(s && strcmp(s, "linear_attention") == 0))
            return lily_fail(e, LILY_UNSUPPORTED, "%s: \"layer_types\"[%u] is \"%.64s\"", file, i,
                             s ? s : "(not a string)");
        c->full_attention[i] = full;
    }
    return LILY_OK;
}

static int read_layers(lily_config *c, const lily_config_file *f, lily_err *e)
{
    const json_t *types = lily_config_get(f->text, "layer_types");
    bool interval_given = lily_config_get(f->text, "full_attention_interval") != NULL;
    if (!types && !interval_given)
        return lily_fail(e, LILY_FORMAT, "%s: neither \"layer_types\" nor \"full_attention_interval\"",
                         f->name);
    if (types) TRY(read_layer_types(c, types, f->name, e));
    if (!interval_given) return LILY_OK;
    int64_t interval;
    TRY(lily_json_uint(f->text, "full_attention_interval", 1, LILY_MAX_LAYERS + 1, -1, &interval, f->name,
                       e));
    for (uint32_t i = 0; i < c->layers; i++) {
        bool full = (i + 1) % (uint32_t)interval == 0;
        if (types && c->full_attention[i] != full)
            return lily_fail(e, LILY_FORMAT,
                             "%s: layer %u is %s attention by \"layer_types\" and %s by "
                             "\"full_attention_interval\" %lld",
                             f->name, i, full ? "linear" : "full", full ? "full" : "linear",
                             (long long)interval);
        c->full_attention[i] = full;
    }
    return LILY_OK;
}

int lily_numbers_read(lily_config *c, const lily_config_file *f, lily_err *e)
{
    TRY(check_family(f, e));
    TRY(read_dimensions(c, f, e));
    TRY(check_dimensions(c, f->name, e));
    double eps;
    TRY(read_real(&eps, f->text, "rms_norm_eps", 1e-12, 0.1, f->name, e));
    c->eps = (float)eps;
    TRY(read_tied(c, f, e));
    TRY(read_rope(c, f, e));
    TRY(read_layers(c, f, e));
    TRY(lily_eos_add(c, f->text, f->name, e));
    return f->top == f->text ? LILY_OK : lily_eos_add(c, f->top, f->name, e);
}
