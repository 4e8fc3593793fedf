#include "configs.h"

static void set_attention(lily_config *c)
{
    for (uint32_t i = 0; i < c->layers; i++) c->full_attention[i] = i % 4 == 3;
}

lily_config small_config(uint32_t layers)
{
    lily_config c = {.hidden = 64,
                     .layers = layers,
                     .vocab = 100,
                     .eps = 1e-6f,
                     .q_heads = 4,
                     .kv_heads = 1,
                     .head_dim = 32,
                     .rotary = 8,
                     .rope_theta = 1e7,
                     .lin_k_heads = 2,
                     .lin_v_heads = 4,
                     .lin_k_dim = 16,
                     .lin_v_dim = 16,
                     .conv_kernel = 4,
                     .experts = 8,
                     .top_k = 3,
                     .expert_inter = 64,
                     .shared_inter = 64,
                     .max_positions = 1000};
    set_attention(&c);
    return c;
}

lily_config full_config(void)
{
    lily_config c = {.hidden = 2048,
                     .layers = 40,
                     .vocab = 248320,
                     .eps = 1e-6f,
                     .q_heads = 16,
                     .kv_heads = 2,
                     .head_dim = 256,
                     .rotary = 64,
                     .rope_theta = 1e7,
                     .lin_k_heads = 16,
                     .lin_v_heads = 32,
                     .lin_k_dim = 128,
                     .lin_v_dim = 128,
                     .conv_kernel = 4,
                     .experts = 256,
                     .top_k = 8,
                     .expert_inter = 512,
                     .shared_inter = 512,
                     .max_positions = 262144};
    set_attention(&c);
    return c;
}
