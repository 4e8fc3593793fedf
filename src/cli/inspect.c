/* inspect.c - lily inspect: what would be loaded, what would run, how much memory, without reading weights. */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "cli/commands.h"
#include "device/dev.h"

static double gib(uint64_t bytes) { return (double)bytes / (1u << 30); }

static void print_config(const lily_config *c)
{
    uint32_t attention = 0;
    for (uint32_t i = 0; i < c->layers; i++) attention += c->full_attention[i];
    printf("layers            %u: %u Gated DeltaNet, %u attention\n", c->layers, c->layers - attention, attention);
    printf("hidden            %u\n", c->hidden);
    printf("attention         %u query heads on %u key heads of %u, %u rotated, theta %g\n", c->q_heads, c->kv_heads,
           c->head_dim, c->rotary, c->rope_theta);
    printf("DeltaNet          %u key heads of %u, %u value heads of %u, convolution over %u\n", c->lin_k_heads, c->lin_k_dim,
           c->lin_v_heads, c->lin_v_dim, c->conv_kernel);
    printf("experts           %u of width %u, %u a token, and a shared one of width %u\n", c->experts, c->expert_inter, c->top_k,
           c->shared_inter);
    printf("vocabulary        %u\n", c->vocab);
    printf("positions         %u\n", c->max_positions);
    printf("end of turn      ");
    for (uint32_t i = 0; i < c->n_eos; i++) printf(" %d", c->eos[i]);
    printf("\n");
}

static void print_tensor(const lily_tensor *t)
{
    printf("%-72s %-5s [", t->name, lily_dtype_name(t->dtype));
    for (uint32_t i = 0; i < t->rank; i++) printf("%s%" PRIu64, i ? ", " : "", t->dim[i]);
    printf("] %" PRIu64 " bytes, %s\n", t->bytes, t->file);
}

static void print_tensors(lily_ckpt *ckpt, const lily_model *model, bool whole)
{
    printf("tensors           %u used, %u skipped (vision, draft head); %" PRIu64 " bytes in use, %.2f GiB\n",
           model->n_used, model->n_skipped, model->weight_bytes, gib(model->weight_bytes));
    printf("read per token    %" PRIu64 " bytes of weights\n", model->token_bytes);
    printf("fingerprint       %s\n", lily_ckpt_fingerprint(ckpt));
    for (size_t i = 0; whole && i < lily_ckpt_count(ckpt); i++) print_tensor(lily_ckpt_at(ckpt, i));
}

static void print_memory(const lily_memory *m, uint32_t context)
{
    printf("memory            %.3f GiB planned for a context of %u tokens:\n", gib(m->planned), context);
    printf("  weights         %.3f GiB, mapped from the files or copied to the device\n", gib(m->weights));
    printf("  device copies   %.3f GiB\n", gib(m->device));
    printf("  keys and values %.3f GiB at the full context; they grow as it fills\n", gib(m->kv));
    printf("  states          %.3f GiB, snapshots for prefix reuse included\n", gib(m->state));
    printf("  replies         %.3f GiB\n", gib(m->replies));
    printf("  conversations   %.3f GiB at most, kept beside the one that runs\n", gib(m->cache));
    printf("  scratch         %.3f GiB\n", gib(m->scratch));
}

static int inspect_model(const lily_args *a, const lily_engine_options *o, lily_err *e)
{
    lily_ckpt *ckpt = NULL;
    lily_model_config *config = NULL;
    lily_model *model = NULL;
    lily_memory memory;
    uint32_t context = 0;
    int rc;
    TRY_TO(done, lily_config_open(&config, o->model_dir, e));
    TRY_TO(done, lily_ckpt_open(&ckpt, o->model_dir, e));
    TRY_TO(done, lily_model_open(&model, ckpt, config, e));
    TRY_TO(done, lily_engine_check(o, &memory, &context, e));
    print_config(lily_config_numbers(config));
    print_tensors(ckpt, model, lily_arg_given(a, OPT_WHOLE));
    print_memory(&memory, context);
done:
    lily_model_close(model);
    lily_config_close(config);
    lily_ckpt_close(ckpt);
    return rc;
}

static int print_plan(const lily_args *a, const lily_engine_options *o, const lily_config *c, const lily_dev_ops *ops,
                      const lily_dev *dev, lily_err *e)
{
    uint64_t tokens;
    TRY(lily_arg_uint(a, OPT_TOKENS, 1, 1 << 20, 1, &tokens, e));
    lily_plan_device device = lily_device_for_plan(ops, dev);
    lily_plan_ask ask = {.mode = tokens == 1 ? LILY_DECODE : LILY_PREFILL,
                         .max_tokens = (uint32_t)tokens,
                         .max_context = lily_context_of(o->context, c),
                         .ablated = o->ablated};
    lily_plan *plan = NULL;
    lily_buf text = {0};
    int rc = lily_plan_make(&plan, &device, c, &ask, e);
    if (rc == LILY_OK) rc = lily_plan_print(plan, &device, lily_arg_given(a, OPT_WHOLE), &text, e);
    if (rc == LILY_OK) fputs(lily_buf_str(&text), stdout);
    lily_buf_free(&text);
    lily_plan_free(plan);
    return rc;
}

static void print_switches(const lily_dev_ops *ops)
{
    printf("switches (--without NAME…):\n");
    for (unsigned i = 0; i < N_ABLATIONS; i++) {
        const char *keeps = lily_device_keeps(ops, i);
        if (keeps)
            printf("  %-18s not on device %s: %s\n", lily_ablation_name(i), ops->name, keeps);
        else
            printf("  %-18s %s; without it %s\n", lily_ablation_name(i), lily_ablation_with(i), lily_ablation_without(i));
    }
}

static int inspect_plan(const lily_args *a, const lily_engine_options *o, lily_err *e)
{
    lily_model_config *config = NULL;
    const lily_dev_ops *ops = NULL;
    lily_dev *dev = NULL;
    int rc;
    TRY_TO(done, lily_config_open(&config, o->model_dir, e));
    TRY_TO(done, lily_device_open(&ops, &dev, o->device, &(lily_dev_options){.threads = o->threads}, e));
    TRY_TO(done, lily_device_without(ops, o->ablated, e));
    TRY_TO(done, print_plan(a, o, lily_config_numbers(config), ops, dev, e));
    print_switches(ops);
done:
    if (dev) ops->close(dev);
    lily_config_close(config);
    return rc;
}

int lily_cmd_inspect(const lily_args *a, lily_err *e)
{
    lily_engine_options o;
    char *dir = NULL;
    int rc = lily_engine_options_from(a, &o, &dir, e);
    if (rc == LILY_OK) rc = a->word ? inspect_plan(a, &o, e) : inspect_model(a, &o, e);
    lily_free(dir);
    return rc;
}
