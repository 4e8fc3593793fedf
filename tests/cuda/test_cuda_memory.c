/* test_cuda_memory.c - what is planned before loading fits a card of 24 GB, whose memory is a number here: no GPU is
 * needed. */
#include "../check.h"

#include <string.h>

#include "../plan/configs.h"
#include "device/cuda/cuda.h"
#include "run/load.h"
#include "run/memory.h"

#define DEMO LILY_SOURCE_DIR "/models/demo"

enum { GB = 1000000000 };

/* Shapes alone: the estimate reads no weight. */
static lily_matrix shape(uint32_t experts, uint32_t rows, uint32_t cols, uint16_t bits)
{
    return (lily_matrix){.experts = experts, .rows = rows, .cols = cols, .step = rows, .bits = bits, .group = 64};
}

static void shape_layer(const lily_config *c, lily_layer *y)
{
    const uint32_t h = c->hidden;
    y->q = shape(1, 2 * lily_q_width(c), h, 4), y->k = y->v = shape(1, lily_kv_width(c), h, 4), y->o = shape(1, h, lily_q_width(c), 4);
    y->qkv = shape(1, lily_conv_width(c), h, 4), y->z = shape(1, lily_value_width(c), h, 4);
    y->b = y->a = shape(1, c->lin_v_heads, h, 4), y->out = shape(1, h, lily_value_width(c), 4);
    y->router = shape(1, c->experts, h, 8), y->shared_gate = shape(1, 1, h, 8);
    y->sh_gate = y->sh_up = shape(1, c->shared_inter, h, 4), y->sh_down = shape(1, h, c->shared_inter, 4);
    y->ex_gate = y->ex_up = shape(c->experts, c->expert_inter, h, 4), y->ex_down = shape(c->experts, h, c->expert_inter, 4);
}

typedef struct card {
    lily_config config;
    lily_layer layer[64];
    lily_model model;
    lily_dev dev;
    lily_loaded m;
} card;

static void open_card(card *k, uint64_t room, uint32_t context)
{
    lily_err e;
    *k = (card){.config = full_config()};
    for (uint32_t i = 0; i < k->config.layers; i++) shape_layer(&k->config, &k->layer[i]);
    k->model = (lily_model){.config = &k->config, .layer = k->layer, .embed = shape(1, k->config.vocab, k->config.hidden, 4),
                            .head = shape(1, k->config.vocab, k->config.hidden, 4)};
    k->dev = (lily_dev){.props = {.major = 8, .minor = 9, .sharedMemPerBlockOptin = 99 << 10}};
    k->m = (lily_loaded){.config = &k->config, .model = &k->model, .ops = &lily_dev_cuda, .dev = &k->dev, .context = context,
                         .device_total = room, .device_free = room};
    lily_dev_cuda.look(&k->dev, &k->model);
    assert_true(k->dev.packed);
    check_ok(lily_tokenizer_open(&k->m.tokenizer, DEMO, &e), &e);
}

static void close_card(card *k)
{
    lily_plan_free(k->m.decode);
    lily_plan_free(k->m.prefill);
    lily_tokenizer_free(k->m.tokenizer);
}

/* The driver keeps half a gigabyte of a 24 GB card for itself. */
static void a_24_gb_card_has_32k(void **state)
{
    (void)state;
    card k;
    lily_err e;
    open_card(&k, 23ull * GB + GB / 2, 32768);
    check_ok(lily_plan_memory(&k.m, &(lily_engine_options){0}, &e), &e);
    check_ok(lily_device_memory_fits(&k.m.memory, k.m.device_free, 0, k.m.context, &e), &e);
    print_message("chunk %u: weights %.2f GB, keys and values %.2f, states %.2f, scratch %.2f, kept %.2f\n", k.m.chunk,
                  (double)k.m.memory.weights / GB, (double)k.m.memory.kv / GB, (double)k.m.memory.state / GB,
                  (double)k.m.memory.scratch / GB, (double)k.m.memory.cache / GB);
    assert_true(k.m.memory.weights > 19ull * GB && k.m.memory.weights < 20ull * GB);
    assert_int_equal(k.m.memory.kv, 32768 * 20480);
    assert_true(k.m.memory.planned <= k.m.device_free);
    close_card(&k);
}

/* Less memory: first the chunk gets shorter, then the start is refused with figures. */
static void less_memory_shorter_chunks(void **state)
{
    (void)state;
    card k;
    lily_err e;
    uint32_t before = 4096, shorter = 0;
    for (uint64_t room = 24ull * GB; room > 20ull * GB; room -= GB / 10) {
        open_card(&k, room, 32768);
        check_ok(lily_plan_memory(&k.m, &(lily_engine_options){0}, &e), &e);
        assert_true(k.m.chunk <= before && k.m.chunk >= LILY_DEFAULT_CHUNK);
        shorter += k.m.chunk < before;
        before = k.m.chunk;
        if (k.m.chunk > LILY_DEFAULT_CHUNK) assert_true(k.m.memory.planned <= room);
        close_card(&k);
    }
    assert_int_equal(before, LILY_DEFAULT_CHUNK);
    assert_true(shorter >= 2);
    open_card(&k, 16ull * GB, 32768);
    check_ok(lily_plan_memory(&k.m, &(lily_engine_options){0}, &e), &e);
    check_fails(lily_device_memory_fits(&k.m.memory, k.m.device_free, 0, k.m.context, &e), LILY_NO_MEMORY, &e);
    assert_non_null(strstr(e.text, "of the device's memory"));
    close_card(&k);
}

/* At 128K all but weights, keys and values takes less than 2 GiB. */
static void long_context_is_lean(void **state)
{
    (void)state;
    card k;
    lily_err e;
    open_card(&k, 80ull * GB, 131072);
    check_ok(lily_plan_memory(&k.m, &(lily_engine_options){.cache_bytes = LILY_NO_CACHE}, &e), &e);
    assert_int_equal(k.m.chunk, 4096);
    assert_true(k.m.memory.planned - k.m.memory.weights - k.m.memory.kv < 2ull << 30);
    close_card(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_24_gb_card_has_32k),
        cmocka_unit_test(less_memory_shorter_chunks),
        cmocka_unit_test(long_context_is_lean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
