/* checkpoint.h - a directory of safetensors files as named tensors, mapped and never copied.
 *
 * The files are hostile input: every offset, size and shape is checked against the bytes that are really
 * there before a tensor is handed out, and nothing is allocated by a size that a file claims.
 * Format: https://huggingface.co/docs/safetensors (8-byte little-endian header length, JSON header, data).
 * MLX does not pad its headers, so tensor data may start at any byte: read it through base/bytes.h.
 *
 * Limits: 1,024 shards, 4 MiB of JSON in one header or index, 5 dimensions.  The files are mapped: one that
 * another program shortens while it is open kills the process (SIGBUS), as with any mapped file. */
#ifndef LILY_CHECKPOINT_CHECKPOINT_H
#define LILY_CHECKPOINT_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum lily_dtype { LILY_BF16, LILY_F16, LILY_F32, LILY_U32, LILY_OTHER_DTYPE };

enum { LILY_MAX_RANK = 5 };

typedef struct lily_tensor {
    const char *name;               /* as in the file; owned by the checkpoint */
    const char *file;               /* its shard's name, for sentences */
    enum lily_dtype dtype;
    uint32_t rank;
    uint64_t dim[LILY_MAX_RANK];    /* slowest first; unused ones are 1 */
    const uint8_t *data;            /* any alignment, readable for `bytes` */
    uint64_t bytes;
} lily_tensor;

typedef struct lily_ckpt lily_ckpt;

/* Opens DIR: with an index (model.safetensors.index.json) only the files that it names, else every
 * model*.safetensors.  A missing or short shard, an overlap, a tensor in two files and a name that the
 * index places elsewhere are LILY_FORMAT with one sentence "FILE: TENSOR: what was expected and found". */
int lily_ckpt_open(lily_ckpt **out, const char *dir, lily_err *e);
void lily_ckpt_close(lily_ckpt *c);

const char *lily_ckpt_dir(const lily_ckpt *c);
size_t lily_ckpt_count(const lily_ckpt *c);
const lily_tensor *lily_ckpt_at(const lily_ckpt *c, size_t i);      /* in the order of names */
const lily_tensor *lily_ckpt_find(const lily_ckpt *c, const char *name);    /* NULL when absent */
uint64_t lily_ckpt_bytes(const lily_ckpt *c);                       /* of all tensors */

/* 128-bit fingerprint, 32 hex digits: config.json's bytes and every tensor's name, type, shape, file size
 * and a sample of its data.  Two checkpoints with other weights have other fingerprints in practice. */
const char *lily_ckpt_fingerprint(lily_ckpt *c);

const char *lily_dtype_name(enum lily_dtype t);

#endif
