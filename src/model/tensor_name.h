/* tensor_name.h - the spellings of one tensor's name.  MLX writes "language_model.model.layers.0…" and
 * "language_model.lm_head", a text-only conversion "model.layers.0…", the original files
 * "model.language_model.layers.0…". */
#ifndef LILY_MODEL_TENSOR_NAME_H
#define LILY_MODEL_TENSOR_NAME_H

enum lily_tensor_kind {
    LILY_TENSOR_TEXT,         /* of the language model */
    LILY_TENSOR_SKIPPED,      /* of the vision tower or the draft head */
    LILY_TENSOR_UNKNOWN,
};

/* *canonical is the part of `name` after the prefix: "layers.0.mlp.gate.weight", "embed_tokens.weight",
 * "norm.weight", "lm_head.weight".  It is set for LILY_TENSOR_TEXT only. */
enum lily_tensor_kind lily_tensor_name(const char *name, const char **canonical);

#endif
