/* table.h - the entries that every instruction set shares. */
#ifndef LILY_DEVICE_CPU_TABLE_H
#define LILY_DEVICE_CPU_TABLE_H

#include "device/cpu/kernels/matmul.h"

#include "device/cpu/kernels/attention.h"
#include "device/cpu/kernels/choose.h"
#include "device/cpu/kernels/delta.h"
#include "device/cpu/kernels/elementwise.h"

#define LILY_CPU_COMMON                                                                                      \
    .dequant_row = dequant_row, .rmsnorm = rmsnorm, .gated_rmsnorm = gated_rmsnorm, .l2norm = l2norm,        \
    .add = add, .axpy = axpy, .silu_mul = silu_mul, .sigmoid_mul = sigmoid_mul, .dot = dot,                  \
    .conv_silu = conv_silu, .delta_rule = delta_rule, .rope = rope, .to_bf16 = to_bf16,                      \
    .attn_scratch = attn_scratch, .attn_span = attn_span, .topk_softmax = topk_softmax, .argmax = argmax,    \
    .exp_sum = exp_sum

#endif
