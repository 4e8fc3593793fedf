/* wgmma.cuh - Hopper's products of a warpgroup: 64 rows of weights in registers times N vectors in shared memory.
 *
 * The rows' operand is that of mma.m16n8k16, warp w of the group having rows 16w …; a result's pairs (2j, 2j + 1) are
 * neighbouring vectors.  Vectors lie in rows of 128 bytes (64 values), 16-byte piece p of row r at p ^ (r & 7), eight
 * rows being 1024 aligned bytes: what the hardware calls a swizzle of 128 bytes. */
#pragma once
#include <cstdint>

__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT> __device__ inline void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory"); }

/* Of vectors at a shared address; 16 columns further on is 2 more. */
__device__ inline uint32_t wgmma_vectors_low(uint32_t address) { return (address >> 4 & 0x3FFF) | 1u << 16; }
__device__ inline uint64_t wgmma_vectors(uint32_t low) { return (uint64_t)(64u | 1u << 30) << 32 | low; }

/* What generic stores wrote to shared memory becomes visible to products and bulk copies. */
__device__ inline void async_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
template <int N> __device__ inline void registers_give() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> __device__ inline void registers_take() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }

#define D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])

template <int R> __device__ inline void wgmma_16(float (&d)[R], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %13, 0;"
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {"
                     "%0,%1,%2,%3,%4,%5,%6,%7"
                 "}, {%8,%9,%10,%11}, %12, p, 1, 1, 0; }"
                 : D8(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

template <int R> __device__ inline void wgmma_32(float (&d)[R], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %21, 0;"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
                 "}, {%16,%17,%18,%19}, %20, p, 1, 1, 0; }"
                 : D8(0), D8(8)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

template <int R> __device__ inline void wgmma_64(float (&d)[R], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0;"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"
                     "%24,%25,%26,%27,%28,%29,%30,%31"
                 "}, {%32,%33,%34,%35}, %36, p, 1, 1, 0; }"
                 : D8(0), D8(8), D8(16), D8(24)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

template <int R> __device__ inline void wgmma_96(float (&d)[R], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %53, 0;"
                 "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"
                     "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,"
                     "%46,%47"
                 "}, {%48,%49,%50,%51}, %52, p, 1, 1, 0; }"
                 : D8(0), D8(8), D8(16), D8(24), D8(32), D8(40)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

template <int R> __device__ inline void wgmma_128(float (&d)[R], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %69, 0;"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"
                     "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,"
                     "%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
                 "}, {%64,%65,%66,%67}, %68, p, 1, 1, 0; }"
                 : D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

template <int R> __device__ inline void wgmma_192(float (&d)[R], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %101, 0;"
                 "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"
                     "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,"
                     "%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,"
                     "%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,"
                     "%90,%91,%92,%93,%94,%95"
                 "}, {%96,%97,%98,%99}, %100, p, 1, 1, 0; }"
                 : D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56), D8(64), D8(72), D8(80), D8(88)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

template <int R> __device__ inline void wgmma_256(float (&d)[R], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %133, 0;"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"
                     "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,"
                     "%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,"
                     "%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,"
                     "%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,"
                     "%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,"
                     "%126,%127"
                 "}, {%128,%129,%130,%131}, %132, p, 1, 1, 0; }"
                 : D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56), D8(64), D8(72), D8(80), D8(88), D8(96), D8(104), D8(112), D8(120)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

/* Both operands in shared memory, rows of 64 columns each. */
__device__ inline void wgmma_shared_64(float (&d)[32], uint64_t a, uint64_t b, int add)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0;"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"
                     "%24,%25,%26,%27,%28,%29,%30,%31"
                 "}, %32, %33, p, 1, 1, 0, 0; }"
                 : D8(0), D8(8), D8(16), D8(24)
                 : "l"(a), "l"(b), "r"(add));
}

/* The same of fp16; TURNED: b's rows are the sum's, 16 of them, and its 64 columns are results. */
template <int TURNED> __device__ inline void wgmma_half_64(float (&d)[32], uint64_t a, uint64_t b, int add)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0;"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"
                     "%24,%25,%26,%27,%28,%29,%30,%31"
                 "}, %32, %33, p, 1, 1, 0, %35; }"
                 : D8(0), D8(8), D8(16), D8(24)
                 : "l"(a), "l"(b), "r"(add), "n"(TURNED));
}

/* 16 rows of 256 columns in shared memory: panels of 64 columns, the descriptor's first stride apart. */
__device__ inline void wgmma_turned_256(float (&d)[128], const uint32_t (&a)[4], uint64_t b, int add)
{
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %133, 0;"
                 "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
                     "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,"
                     "%24,%25,%26,%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,"
                     "%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,"
                     "%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,"
                     "%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,"
                     "%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,"
                     "%126,%127"
                 "}, {%128,%129,%130,%131}, %132, p, 1, 1, 1; }"
                 : D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56), D8(64), D8(72), D8(80), D8(88), D8(96), D8(104), D8(112), D8(120)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

#undef D8

/* d = a b, or d += a b */
template <int N, int R> __device__ inline void wgmma(float (&d)[R], const uint32_t (&a)[4], uint64_t b, int add)
{
    static_assert(R >= N / 2, "results need registers");
    if constexpr (N == 16) wgmma_16(d, a, b, add);
    else if constexpr (N == 32) wgmma_32(d, a, b, add);
    else if constexpr (N == 64) wgmma_64(d, a, b, add);
    else if constexpr (N == 96) wgmma_96(d, a, b, add);
    else if constexpr (N == 128) wgmma_128(d, a, b, add);
    else if constexpr (N == 192) wgmma_192(d, a, b, add);
    else wgmma_256(d, a, b, add);
}
