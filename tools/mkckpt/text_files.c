#include "text_files.h"

#include <stdio.h>

static const char end_of_turn[] = "<|im_end|>", end_of_text[] = "<|endoftext|>";

static void eos_pair(jw *w, const vocabulary *v)
{
    jw_open(w, "eos_token_id", '[');
    jw_int(w, NULL, vocabulary_special(v, end_of_turn));
    jw_int(w, NULL, vocabulary_special(v, end_of_text));
    jw_close(w, ']');
}

/* ---- config.json ------------------------------------------------------------------- */

static void quantization(jw *w, const char *key, const preset *p)
{
    static const char *const at_8_bits[] = {"gate", "shared_expert_gate"};
    jw_open(w, key, '{');
    jw_int(w, "group_size", GROUP);
    jw_int(w, "bits", 4);
    jw_string(w, "mode", "affine");
    for (uint32_t l = 0; l < p->layers; l++)
        for (int i = 0; i < 2; i++) {
            char module[80];
            snprintf(module, sizeof module, "language_model.model.layers.%u.mlp.%s", l, at_8_bits[i]);
            jw_open(w, module, '{');
            jw_int(w, "group_size", GROUP);
            jw_int(w, "bits", 8);
            jw_close(w, '}');
        }
    jw_close(w, '}');
}

static void rope(jw *w, const preset *p)
{
    jw_open(w, "rope_parameters", '{');
    jw_bool(w, "mrope_interleaved", true);
    jw_open(w, "mrope_section", '[');
    for (int i = 0; i < 3; i++) jw_int(w, NULL, p->mrope[i]);
    jw_close(w, ']');
    jw_raw(w, "partial_rotary_factor", "0.25");
    jw_int(w, "rope_theta", 10000000);
    jw_string(w, "rope_type", "default");
    jw_close(w, '}');
}

static void text_config(jw *w, const preset *p, const vocabulary *v)
{
    jw_open(w, "text_config", '{');
    jw_bool(w, "attention_bias", false);
    jw_raw(w, "attention_dropout", "0.0");
    jw_bool(w, "attn_output_gate", true);
    jw_int(w, "bos_token_id", vocabulary_special(v, end_of_text));
    jw_string(w, "dtype", "bfloat16");
    jw_int(w, "eos_token_id", vocabulary_special(v, end_of_text));
    jw_int(w, "full_attention_interval", 4);
    jw_int(w, "head_dim", p->head_dim);
    jw_string(w, "hidden_act", "silu");
    jw_int(w, "hidden_size", p->hidden);
    jw_raw(w, "initializer_range", "0.02");
    jw_open(w, "layer_types", '[');
    for (uint32_t i = 0; i < p->layers; i++)
        jw_string(w, NULL, (i + 1) % 4 ? "linear_attention" : "full_attention");
    jw_close(w, ']');
    jw_int(w, "linear_conv_kernel_dim", 4);
    jw_int(w, "linear_key_head_dim", p->k_dim);
    jw_int(w, "linear_num_key_heads", p->k_heads);
    jw_int(w, "linear_num_value_heads", p->v_heads);
    jw_int(w, "linear_value_head_dim", p->v_dim);
    jw_string(w, "mamba_ssm_dtype", "float32");
    jw_int(w, "max_position_embeddings", p->max_pos);
    jw_open(w, "mlp_only_layers", '[');
    jw_close(w, ']');
    jw_string(w, "model_type", "qwen3_5_moe_text");
    jw_int(w, "moe_intermediate_size", p->moe_inter);
    jw_int(w, "mtp_num_hidden_layers", 1);
    jw_bool(w, "mtp_use_dedicated_embeddings", false);
    jw_int(w, "num_attention_heads", p->heads);
    jw_int(w, "num_experts", p->experts);
    jw_int(w, "num_experts_per_tok", p->top_k);
    jw_int(w, "num_hidden_layers", p->layers);
    jw_int(w, "num_key_value_heads", p->kv_heads);
    jw_bool(w, "output_router_logits", false);
    jw_raw(w, "pad_token_id", "null");
    jw_raw(w, "partial_rotary_factor", "0.25");
    jw_raw(w, "rms_norm_eps", "1e-06");
    rope(w, p);
    jw_raw(w, "router_aux_loss_coef", "0.001");
    jw_int(w, "shared_expert_intermediate_size", p->shared_inter);
    jw_bool(w, "tie_word_embeddings", false);
    jw_bool(w, "use_cache", true);
    jw_int(w, "vocab_size", p->vocab);
    jw_close(w, '}');
}

void config_json(jw *w, const preset *p, const vocabulary *v)
{
    jw_open(w, NULL, '{');
    jw_open(w, "architectures", '[');
    jw_string(w, NULL, "Qwen3_5MoeForConditionalGeneration");
    jw_close(w, ']');
    jw_string(w, "model_type", "qwen3_5_moe");
    eos_pair(w, v);
    jw_int(w, "image_token_id", vocabulary_special(v, "<|image_pad|>"));
    jw_int(w, "video_token_id", vocabulary_special(v, "<|video_pad|>"));
    jw_int(w, "vision_start_token_id", vocabulary_special(v, "<|vision_start|>"));
    jw_int(w, "vision_end_token_id", vocabulary_special(v, "<|vision_end|>"));
    jw_bool(w, "tie_word_embeddings", false);
    quantization(w, "quantization", p);
    quantization(w, "quantization_config", p);
    text_config(w, p, v);
    jw_close(w, '}');
}

void generation_config_json(jw *w, const vocabulary *v)
{
    jw_open(w, NULL, '{');
    jw_int(w, "bos_token_id", vocabulary_special(v, end_of_text));
    jw_bool(w, "do_sample", true);
    eos_pair(w, v);
    jw_int(w, "pad_token_id", vocabulary_special(v, end_of_text));
    jw_raw(w, "temperature", "1.0");
    jw_int(w, "top_k", 20);
    jw_raw(w, "top_p", "0.95");
    jw_close(w, '}');
}

/* ---- tokenizer.json ---------------------------------------------------------------- */

static void byte_level(jw *w, const char *key)
{
    jw_open(w, key, '{');
    jw_string(w, "type", "ByteLevel");
    jw_bool(w, "add_prefix_space", false);
    jw_bool(w, "trim_offsets", false);
    jw_bool(w, "use_regex", false);
    jw_close(w, '}');
}

static void added_tokens(jw *w, const vocabulary *v)
{
    jw_open(w, "added_tokens", '[');
    for (uint32_t i = 0; i < N_SPECIALS; i++) {
        jw_open(w, NULL, '{');
        jw_int(w, "id", v->n + i);
        jw_string(w, "content", specials[i]);
        jw_bool(w, "single_word", false);
        jw_bool(w, "lstrip", false);
        jw_bool(w, "rstrip", false);
        jw_bool(w, "normalized", false);
        jw_bool(w, "special", special_is_control(i));
        jw_close(w, '}');
    }
    jw_close(w, ']');
}

static void splitting(jw *w)
{
    jw_open(w, "normalizer", '{');
    jw_string(w, "type", "NFC");
    jw_close(w, '}');
    jw_open(w, "pre_tokenizer", '{');
    jw_string(w, "type", "Sequence");
    jw_open(w, "pretokenizers", '[');
    jw_open(w, NULL, '{');
    jw_string(w, "type", "Split");
    jw_open(w, "pattern", '{');
    jw_string(w, "Regex", split_regex);
    jw_close(w, '}');
    jw_string(w, "behavior", "Isolated");
    jw_bool(w, "invert", false);
    jw_close(w, '}');
    byte_level(w, NULL);
    jw_close(w, ']');
    jw_close(w, '}');
}

static void bpe_model(jw *w, const vocabulary *v)
{
    jw_open(w, "model", '{');
    jw_string(w, "type", "BPE");
    jw_raw(w, "dropout", "null");
    jw_raw(w, "unk_token", "null");
    jw_string(w, "continuing_subword_prefix", "");
    jw_string(w, "end_of_word_suffix", "");
    jw_bool(w, "fuse_unk", false);
    jw_bool(w, "byte_fallback", false);
    jw_bool(w, "ignore_merges", false);
    jw_open(w, "vocab", '{');
    for (uint32_t i = 0; i < v->n; i++) jw_int(w, v->token[i], i);
    jw_close(w, '}');
    jw_open(w, "merges", '[');
    for (uint32_t i = 0; i < v->n_merges; i++) {
        jw_open(w, NULL, '[');
        jw_string(w, NULL, v->token[v->merge[i].a]);
        jw_string(w, NULL, v->token[v->merge[i].b]);
        jw_close(w, ']');
    }
    jw_close(w, ']');
    jw_close(w, '}');
}

void tokenizer_json(jw *w, const vocabulary *v)
{
    jw_open(w, NULL, '{');
    jw_string(w, "version", "1.0");
    jw_raw(w, "truncation", "null");
    jw_raw(w, "padding", "null");
    added_tokens(w, v);
    splitting(w);
    byte_level(w, "post_processor");
    byte_level(w, "decoder");
    bpe_model(w, v);
    jw_close(w, '}');
}

void tokenizer_config_json(jw *w, const preset *p, const vocabulary *v)
{
    jw_open(w, NULL, '{');
    jw_bool(w, "add_prefix_space", false);
    jw_open(w, "added_tokens_decoder", '{');
    for (uint32_t i = 0; i < N_SPECIALS; i++) {
        char id[16];
        snprintf(id, sizeof id, "%u", v->n + i);
        jw_open(w, id, '{');
        jw_string(w, "content", specials[i]);
        jw_bool(w, "lstrip", false);
        jw_bool(w, "normalized", false);
        jw_bool(w, "rstrip", false);
        jw_bool(w, "single_word", false);
        jw_bool(w, "special", special_is_control(i));
        jw_close(w, '}');
    }
    jw_close(w, '}');
    jw_raw(w, "bos_token", "null");
    jw_bool(w, "clean_up_tokenization_spaces", false);
    jw_string(w, "eos_token", end_of_turn);
    jw_string(w, "errors", "replace");
    jw_int(w, "model_max_length", p->max_pos);
    jw_string(w, "pad_token", end_of_text);
    jw_bool(w, "split_special_tokens", false);
    jw_string(w, "tokenizer_class", "TokenizersBackend");
    jw_raw(w, "unk_token", "null");
    jw_close(w, '}');
}
