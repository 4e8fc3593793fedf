/* preset.h - the synthetic models and their tensors.  Everything in a checkpoint follows from preset and seed. */
#ifndef LILY_TOOLS_PRESET_H
#define LILY_TOOLS_PRESET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"

enum { GROUP = 64 };            /* columns that share a scale */

typedef struct preset {
    const char *name, *what;
    uint32_t hidden, layers, heads, kv_heads, head_dim, k_heads, v_heads, k_dim, v_dim;
    uint32_t experts, top_k, moe_inter, shared_inter, vocab, merges, max_pos;
    uint32_t mrope[3];
    uint32_t shards;            /* 0: as many as the size limit asks for */
    uint32_t text_ids;          /* the vocabulary is filled up with made-up words to this size; 0: not at all */
    bool f32_a_log, vision;
} preset;

extern const preset presets[];
extern const size_t n_presets;

const preset *preset_find(const char *name);    /* NULL: no such preset */

/* How the values of an entry are made. */
enum entry_kind {
    ENTRY_PLAIN,                /* bf16, normal with mean and std */
    ENTRY_A_LOG,                /* bf16 or f32: log of a decay rate, uniform */
    ENTRY_CODES,                /* random codes, scales and biases such that the weights have std */
    ENTRY_EMBED, ENTRY_HEAD,    /* quantised from normal rows */
};

/* A plain tensor, or a quantised matrix, which is three: NAME.weight, NAME.scales, NAME.biases. */
typedef struct entry {
    char *name;
    enum entry_kind kind;
    uint32_t rank, dim[5];      /* in elements; the last one is the columns of a matrix */
    uint32_t bits;              /* 0: plain */
    bool f32;
    double mean, std;
} entry;

/* One stored tensor of an entry. */
typedef struct part {
    const char *suffix, *dtype;
    uint32_t last;              /* its last dimension */
    uint64_t bytes;
} part;

uint64_t entry_rows(const entry *e);                    /* product of all dimensions but the last */
uint32_t entry_parts(const entry *e, part out[3]);      /* how many */
uint64_t entry_bytes(const entry *e);

/* All entries in file order, allocated from the arena; NULL when memory is out. */
entry *preset_entries(const preset *p, size_t *n, lily_arena *arena);

#endif
