/* bytes.h - little-endian numbers at any address, and bfloat16. */
#ifndef LILY_BASE_BYTES_H
#define LILY_BASE_BYTES_H

#include <stdint.h>
#include <string.h>

static inline uint16_t lily_load_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t lily_load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t lily_load_u64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline float lily_bits_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t lily_float_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float lily_bf16_to_float(uint16_t h) { return lily_bits_float((uint32_t)h << 16); }

/* Rounds to nearest, ties to even; a NaN stays a quiet NaN. */
static inline uint16_t lily_float_to_bf16(float f)
{
    uint32_t u = lily_float_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(u >> 16 | 0x40);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Lily reads little-endian files in place and needs a little-endian machine"
#endif

#endif
