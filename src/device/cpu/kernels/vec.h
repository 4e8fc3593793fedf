/* vec.h - eight f32 lanes.
 *
 * GCC's and clang's vector types do most of it on any machine: an instruction set without 256-bit
 * registers gets pairs.  What the compilers do not find by themselves is written out for AVX2.
 * Included once by each of portable.c and avx2.c. */
#ifndef LILY_DEVICE_CPU_VEC_H
#define LILY_DEVICE_CPU_VEC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

/* The hardware's own prefetch stops at every page of 4 KiB; asking for what lies so far ahead makes a walk through
 * memory up to twice as fast.  Past the end it does nothing. */
#define PREFETCH_AHEAD 4096
#define PREFETCH(p)    __builtin_prefetch((p), 0, 3)

/* For functions whose constant arguments unroll their loops. */
#define UNROLLED static inline __attribute__((always_inline))

typedef float v8 __attribute__((vector_size(32)));
typedef int32_t v8i __attribute__((vector_size(32)));
typedef uint32_t v8u __attribute__((vector_size(32)));
typedef uint16_t v8h __attribute__((vector_size(16)));

static inline v8 v8_load(const void *p)
{
    v8 v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void v8_store(void *p, v8 v) { memcpy(p, &v, sizeof v); }

static inline v8 v8_set1(float x) { return (v8){x, x, x, x, x, x, x, x}; }

/* The first n < 8 values; the other lanes are 0. */
static inline v8 v8_load_part(const void *p, size_t n)
{
    v8 v = {0};
    memcpy(&v, p, n * sizeof(float));
    return v;
}

static inline void v8_store_part(void *p, v8 v, size_t n) { memcpy(p, &v, n * sizeof(float)); }

static inline v8 v8_from_bf16(v8h h) { return (v8)(__builtin_convertvector(h, v8u) << 16); }

static inline v8 v8_load_bf16(const void *p)
{
    v8h h;
    memcpy(&h, p, sizeof h);
    return v8_from_bf16(h);
}

static inline v8 v8_load_bf16_part(const void *p, size_t n)
{
    v8h h = {0};
    memcpy(&h, p, n * sizeof(uint16_t));
    return v8_from_bf16(h);
}

/* Whole numbers. */
static inline v8 v8_from_u16(v8h h)
{
#if defined(__AVX2__)
    return _mm256_cvtepi32_ps(_mm256_cvtepu16_epi32((__m128i)h));
#else
    return __builtin_convertvector(__builtin_convertvector(h, v8i), v8);
#endif
}

static inline v8 v8_load_u8(const uint8_t *p)
{
#if defined(__AVX2__)
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
#else
    return (v8){p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]};
#endif
}

static inline v8 v8_select(v8i mask, v8 yes, v8 no)
{
#if defined(__AVX2__)
    return _mm256_blendv_ps(no, yes, (v8)mask);
#else
    return (v8)((mask & (v8i)yes) | (~mask & (v8i)no));
#endif
}

/* To nearest, ties to even; a NaN stays one. */
static inline v8h v8_to_bf16(v8 f)
{
    v8u u = (v8u)f;
    v8u r = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    v8u nan = (v8u)(f != f);
    return __builtin_convertvector((r & ~nan) | ((u >> 16 | 0x40u) & nan), v8h);
}

/* a b + c; fused where the machine fuses. */
static inline v8 v8_fma(v8 a, v8 b, v8 c)
{
#if defined(__FMA__)
    return _mm256_fmadd_ps(a, b, c);
#else
    return a * b + c;
#endif
}

/* The larger; b where either is NaN. */
static inline v8 v8_max(v8 a, v8 b)
{
#if defined(__AVX2__)
    return _mm256_max_ps(a, b);
#else
    return v8_select(a > b, a, b);
#endif
}

static inline v8 v8_min(v8 a, v8 b)
{
#if defined(__AVX2__)
    return _mm256_min_ps(a, b);
#else
    return v8_select(a < b, a, b);
#endif
}

/* ((0+1)+(2+3)) + ((4+5)+(6+7)): the order that every sum over lanes has. */
static inline float v8_hsum(v8 v)
{
#if defined(__AVX2__)
    __m256 a = _mm256_hadd_ps(v, v);
    a = _mm256_hadd_ps(a, a);
    return _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1)));
#else
    return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
#endif
}

static inline float v8_hmax(v8 v)
{
    float m = v[0];
    for (int i = 1; i < 8; i++) m = v[i] > m ? v[i] : m;
    return m;
}

/* e^x within 2 ulp, subnormal results included; +inf above 88.73, 0 below -104, NaN for NaN.
 * x = n ln 2 + r, |r| <= ln 2 / 2; 2^n in two factors, because n reaches 128 and -150. */
static inline v8 v8_exp(v8 x)
{
    x = v8_min(v8_set1(89.0f), v8_max(v8_set1(-104.5f), x));
    const v8 magic = v8_set1(12582912.0f);    /* 1.5 * 2^23: adding it rounds to an integer */
    v8 n = v8_fma(x, v8_set1(1.44269504088896341f), magic) - magic;
    v8 r = v8_fma(n, v8_set1(-0.693359375f), x);
    r = v8_fma(n, v8_set1(2.12194440e-4f), r);
    v8 p = v8_set1(1.9875691500e-4f);         /* Cephes expf */
    p = v8_fma(p, r, v8_set1(1.3981999507e-3f));
    p = v8_fma(p, r, v8_set1(8.3334519073e-3f));
    p = v8_fma(p, r, v8_set1(4.1665795894e-2f));
    p = v8_fma(p, r, v8_set1(1.6666665459e-1f));
    p = v8_fma(p, r, v8_set1(5.0000001201e-1f));
    p = v8_fma(p, r * r, r + v8_set1(1.0f));
    v8i i = __builtin_convertvector(n, v8i);
    v8i half = i >> 1;
    v8 s0 = (v8)((half + 127) << 23), s1 = (v8)((i - half + 127) << 23);
    return p * s0 * s1;
}

static inline v8 v8_sigmoid(v8 x) { return v8_set1(1.0f) / (v8_set1(1.0f) + v8_exp(-x)); }
static inline v8 v8_silu(v8 x) { return x / (v8_set1(1.0f) + v8_exp(-x)); }

#endif
