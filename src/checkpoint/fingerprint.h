/* fingerprint.h - what a checkpoint's fingerprint is made of.  Private to src/checkpoint.
 * FNV-1a with 128 bits (Fowler, Noll, Vo; RFC 9923): meant to tell checkpoints apart, not to resist forgery. */
#ifndef LILY_CHECKPOINT_FINGERPRINT_H
#define LILY_CHECKPOINT_FINGERPRINT_H

#include "checkpoint/checkpoint.h"

typedef struct lily_fnv {
    uint64_t hi, lo;
} lily_fnv;

lily_fnv lily_fnv_start(void);
lily_fnv lily_fnv_bytes(lily_fnv h, const void *data, size_t n);
lily_fnv lily_fnv_u64(lily_fnv h, uint64_t v);
/* Name, type, shape, and 64 bytes from the middle of its data: one page, so that the 1,757 tensors of the
 * full model are sampled in milliseconds. */
lily_fnv lily_fnv_tensor(lily_fnv h, const lily_tensor *t);
/* All bytes of dir/name; nothing when it cannot be read. */
lily_fnv lily_fnv_file(lily_fnv h, const char *dir, const char *name);
/* 32 hex digits and a NUL. */
void lily_fnv_hex(lily_fnv h, char out[33]);

#endif
