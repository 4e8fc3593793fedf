/* delta_parts.cu - the delta rule in blocks: what does not need the state, of all blocks at once. */
#include "device/cuda/kernels/delta_wgmma.cuh"

using namespace delta;

namespace {

__device__ inline void bulk_store(void *to, const void *from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)), "r"(bytes) : "memory");
}

enum { PART_THREADS = 128, PITCH = BLOCK + 8, DIAGONAL = 16 * 20 + 8 };     /* no eight rows meet in a bank */
struct PartRoom {
    uint8_t k[TILE], q[TILE];           /* q's place is P's afterwards */
    union {
        struct {
            float diagonal[2][4][DIAGONAL];     /* A's blocks of 16 rows on the diagonal, rows of 20 */
            uint16_t lower[2][BLOCK * PITCH];   /* fp16: A below them; blocks of T take its place, and the diagonal */
        };
        uint8_t v[2][TILE];             /* V, then W */
    };
    uint8_t t[2][2][PANEL];             /* T beta exp(G), T beta */
    float sum[2][BLOCK], beta[2][BLOCK];        /* sum: of log2 g */
    Parts parts;
};

/* Sums of log2 g, and beta, of one value head, by a warp. */
__device__ void take_gates(const cuda_delta &d, const Room &room, const Span &span, size_t at, uint32_t head, float *sum, float *beta)
{
    const uint32_t lane = threadIdx.x & 31;
    float log_g[2], all;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t t = 2 * lane + i;
        const float *from = d.g + (size_t)(span.start + t) * 2 * d.v_heads + head;
        log_g[i] = t < span.count ? fmaxf(log2f(from[d.v_heads]), -1e4f) : 0.f;
        beta[t] = t < span.count ? from[0] : 0.f;
    }
    all = log_g[0] + log_g[1];
#pragma unroll
    for (int o = 1; o < 32; o <<= 1) {
        const float below = __shfl_up_sync(~0u, all, o);
        if (lane >= (uint32_t)o) all += below;
    }
    const float last = __shfl_sync(~0u, all, 31), first = all - log_g[1];
    sum[2 * lane] = first;
    sum[2 * lane + 1] = all;
    float *out = room.gates + at * 2 * BLOCK + 2 * lane;
    *(float2 *)out = make_float2(exp2f(first), exp2f(all));
    *(float2 *)(out + BLOCK) = make_float2(exp2f(last - first), exp2f(last - all));
}

/* A and P of one value head out of K K^T and Q K^T; a warp has 16 rows. */
__device__ void weigh(PartRoom &s, uint32_t r, const float (&kk)[32], const float (&qk)[32])
{
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2;
    const float sum[2] = {s.sum[r][warp * 16 + g], s.sum[r][warp * 16 + g + 8]}, beta[2] = {s.beta[r][warp * 16 + g], s.beta[r][warp * 16 + g + 8]};
    float p[32] = {};
#pragma unroll
    for (int n = 0; n < 8; n++) {
        if ((uint32_t)n / 2 > warp) continue;
        const uint32_t column = n * 8 + 2 * (lane & 3);
        const float2 from = *(const float2 *)(s.sum[r] + column);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint32_t row = warp * 16 + g + h * 8;
            float a[2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const int at = n * 4 + h * 2 + i;
                const float decay = column + i <= row ? exp2f(sum[h] - (i ? from.y : from.x)) : 0.f;
                a[i] = column + i < row ? beta[h] * kk[at] * decay : 0.f;
                p[at] = qk[at] * decay;
            }
            if ((uint32_t)n / 2 == warp)
                *(float2 *)(s.diagonal[r][warp] + (row & 15) * 20 + (column & 15)) = make_float2(a[0], a[1]);
            else
                *(uint32_t *)(s.lower[r] + row * PITCH + column) = pack_half(a[0], a[1]);
        }
    }
    store_panel<false>(s.q + r * PANEL, p, 1, 1);
}

/* Two neighbours of T, as operands. */
__device__ inline void put_pair(PartRoom &s, uint32_t r, uint32_t row, uint32_t column, float x, float y)
{
    const float2 beta = *(const float2 *)(s.beta[r] + column), sum = *(const float2 *)(s.sum[r] + column);
    const uint32_t at = piece_at(row, column >> 3) + (column & 7) * 2;
    *(uint32_t *)(s.t[r][1] + at) = pack_half(x * beta.x, y * beta.y);
    *(uint32_t *)(s.t[r][0] + at) = pack_half(x * beta.x * exp2f(sum.x), y * beta.y * exp2f(sum.y));
}

/* The inverses of the blocks on the diagonal: a thread has a column of one. */
__device__ void invert_diagonal(PartRoom &s, uint32_t r, uint32_t block, uint32_t c)
{
    const float *a = s.diagonal[r][block];
    float t[16];
#pragma unroll
    for (int i = 0; i < 16; i++) {
        float part[2] = {(uint32_t)i == c ? 1.f : 0.f, 0};
#pragma unroll
        for (int j = 0; j < i; j += 4) {
            const float4 row = *(const float4 *)(a + i * 20 + j);
            part[0] -= row.x * t[j];
            if (j + 1 < i) part[1] -= row.y * t[j + 1];
            if (j + 2 < i) part[0] -= row.z * t[j + 2];
            if (j + 3 < i) part[1] -= row.w * t[j + 3];
        }
        t[i] = part[0] + part[1];
    }
    const uint32_t column = block * 16 + c;
    const float beta = s.beta[r][column], both = beta * exp2f(s.sum[r][column]);
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const uint32_t row = block * 16 + i, at = piece_at(row, column >> 3) + (column & 7) * 2;
        s.lower[r][row * PITCH + column] = (uint16_t)pack_half(t[i], 0);
        *(uint16_t *)(s.t[r][0] + at) = (uint16_t)pack_half(t[i] * both, 0);
        *(uint16_t *)(s.t[r][1] + at) = (uint16_t)pack_half(t[i] * beta, 0);
    }
}

/* 16 x 16 of fp16 as operands of mma: a's rows and b's columns are rows in memory, or, turned, columns. */
template <bool TURNED> __device__ inline void load_a(uint32_t (&a)[4], const uint16_t *at)
{
    const uint32_t lane = threadIdx.x & 31;
    if (TURNED)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                     : "r"(shared_address(at + ((lane & 7) + (lane >> 4) * 8) * PITCH + (lane >> 3 & 1) * 8)) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
                     : "r"(shared_address(at + (lane & 15) * PITCH + (lane >> 4) * 8)) : "memory");
}
__device__ inline void load_b(uint32_t (&b)[4], const uint16_t *at)
{
    const uint32_t lane = threadIdx.x & 31;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
                 : "r"(shared_address(at + ((lane & 7) + (lane >> 4) * 8) * PITCH + (lane >> 3 & 1) * 8)) : "memory");
}
__device__ inline void multiply_half(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Rows row0 … row0 + 15 of -T_2 (A_21 T_1), where T_1 and T_2 are neighbours on the diagonal, SIZE x 16 rows each, T_1 at
 * `at`.  (A_21 T_1)^T is made, whose results lie as the next product's operand wants them. */
template <int SIZE> __device__ void invert_below(PartRoom &s, uint32_t r, uint32_t at, uint32_t row0, float (&y)[SIZE * 2][4])
{
    const uint16_t *m = s.lower[r];
    const uint32_t below = at + SIZE * 16;
    float x[SIZE][SIZE * 2][4] = {};        /* [columns of T_1][rows of A_21] */
#pragma unroll
    for (int k = 0; k < SIZE; k++)
#pragma unroll
        for (int i = 0; i < SIZE; i++) {
            uint32_t a[4];
            load_a<true>(a, m + (at + k * 16) * PITCH + at + i * 16);
#pragma unroll
            for (int j = 0; j < SIZE; j++) {
                uint32_t b[4];
                load_b(b, m + (below + j * 16) * PITCH + at + k * 16);
                multiply_half(x[i][2 * j], a, b[0], b[1]);
                multiply_half(x[i][2 * j + 1], a, b[2], b[3]);
            }
        }
#pragma unroll
    for (int i = 0; i < SIZE * 2; i++)
#pragma unroll
        for (int k = 0; k < 4; k++) y[i][k] = 0;
#pragma unroll
    for (int k = 0; k < SIZE; k++) {
        uint32_t a[4];
        load_a<false>(a, m + row0 * PITCH + below + k * 16);
#pragma unroll
        for (int i = 0; i < SIZE; i++)
#pragma unroll
            for (int h = 0; h < 2; h++)
                multiply_half(y[2 * i + h], a, pack_half(-x[i][2 * k][2 * h], -x[i][2 * k][2 * h + 1]),
                              pack_half(-x[i][2 * k + 1][2 * h], -x[i][2 * k + 1][2 * h + 1]));
    }
}

/* T = (I + A)^-1 by blocks: those on the diagonal column by column in float, then what is below two of 16, then of 32. */
__device__ void invert(PartRoom &s, uint32_t ratio)
{
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5, r = warp >> 1, which = warp & 1, g = lane >> 2, j = lane & 3;
    if (threadIdx.x >> 6 < ratio) invert_diagonal(s, threadIdx.x >> 6, threadIdx.x >> 4 & 3, threadIdx.x & 15);
    __syncthreads();
    if (r < ratio) {
        float y[2][4];
        const uint32_t at = which * 32, row0 = at + 16;
        invert_below<1>(s, r, at, row0, y);
        __syncwarp();
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const uint32_t row = row0 + g + h * 8, column = at + n * 8 + 2 * j;
                *(uint32_t *)(s.lower[r] + row * PITCH + column) = pack_half(y[n][2 * h], y[n][2 * h + 1]);
                put_pair(s, r, row, column, y[n][2 * h], y[n][2 * h + 1]);
            }
    }
    __syncthreads();
    if (r < ratio) {
        float y[4][4];
        const uint32_t row0 = 32 + which * 16;
        invert_below<2>(s, r, 0, row0, y);
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
            for (int h = 0; h < 2; h++) put_pair(s, r, row0 + g + h * 8, n * 8 + 2 * j, y[n][2 * h], y[n][2 * h + 1]);
    }
}

/* W and U of one value head; W takes V's place. */
__device__ void make_parts(PartRoom &s, const Room &room, uint64_t *full, uint32_t r, size_t at)
{
    float w[2][32], u[2][32];
#pragma unroll
    for (int h = 0; h < 2; h++) multiply_turned(w[h], s.t[r][0], s.k + h * PANEL, 0);
    barrier_wait(full, 1);
#pragma unroll
    for (int h = 0; h < 2; h++) multiply_turned(u[h], s.t[r][1], s.v[r] + h * PANEL, 0);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        finish(w[h]);
        finish(u[h]);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const float *x = u[h] + i * 8;
            room.u[(at * 2 + h) * 4 * PART_THREADS + i * PART_THREADS + threadIdx.x] =
                make_uint4(pack_half(x[0], x[1]), pack_half(x[2], x[3]), pack_half(x[4], x[5]), pack_half(x[6], x[7]));
        }
    }
    __syncthreads();                /* all have read V */
#pragma unroll
    for (int h = 0; h < 2; h++) store_panel<false>(s.v[r] + h * PANEL, w[h], 1, 1);
}

__device__ inline void ask_values(PartRoom &s, const Maps &maps, uint64_t *full, uint32_t head, uint32_t ratio, uint32_t start)
{
    barrier_expect(full, ratio * TILE);
    for (uint32_t r = 0; r < ratio; r++)
        for (uint32_t h = 0; h < 2; h++) box_copy(s.v[r] + h * PANEL, &maps.v, (head + r) * HEAD + h * 64, start, full);
}

__global__ __launch_bounds__(PART_THREADS) void delta_parts(const __grid_constant__ cuda_delta d, const __grid_constant__ Maps maps,
                                                            const Room room)
{
    extern __shared__ uint8_t shared[];
    __shared__ uint64_t full;
    PartRoom &s = *(PartRoom *)(shared + (-shared_address(shared) & 1023));
    const uint32_t key_head = blockIdx.x, b = blockIdx.y, ratio = d.v_heads / d.k_heads, head = key_head * ratio, warp = threadIdx.x >> 5;
    if (warp == 0) s.parts.load(d);
    if (threadIdx.x == 32) {
        barrier_init(&full, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    for (uint32_t i = threadIdx.x; i < sizeof s.t / 16; i += PART_THREADS) ((uint4 *)s.t)[i] = make_uint4(0, 0, 0, 0);
    for (uint32_t i = threadIdx.x; i < sizeof s.lower / 16; i += PART_THREADS) ((uint4 *)s.lower)[i] = make_uint4(0, 0, 0, 0);
    __syncthreads();
    if (b >= blocks_of(s.parts)) return;
    Walk walk;
    Span span = walk.next(s.parts);
    for (uint32_t i = 0; i < b; i++) span = walk.next(s.parts);
    if (threadIdx.x == 0) {
        barrier_expect(&full, 2 * TILE);
        for (uint32_t h = 0; h < 2; h++) {
            box_copy(s.k + h * PANEL, &maps.qk, (d.k_heads + key_head) * HEAD + h * 64, span.start, &full);
            box_copy(s.q + h * PANEL, &maps.qk, key_head * HEAD + h * 64, span.start, &full);
            for (uint32_t r = 0; r < ratio; r++) box_prefetch(&maps.v, (head + r) * HEAD + h * 64, span.start);
        }
    }
    const size_t at = (size_t)b * d.v_heads + head;
    if (warp < ratio) take_gates(d, room, span, at + warp, head + warp, s.sum[warp], s.beta[warp]);
    __syncthreads();
    barrier_wait(&full, 0);
    {
        float kk[32], qk[32];
        multiply<2>(kk, s.k, s.k, 0);
        multiply<2>(qk, s.q, s.k, 0);
        finish(kk);
        finish(qk);
        __syncthreads();            /* all have read Q */
        for (uint32_t r = 0; r < ratio; r++) weigh(s, r, kk, qk);
    }
    __syncthreads();
    invert(s, ratio);
    async_fence();
    __syncthreads();
    if (threadIdx.x == 0) ask_values(s, maps, &full, head, ratio, span.start);
    for (uint32_t r = 0; r < ratio; r++) make_parts(s, room, &full, r, at + r);
    async_fence();
    __syncthreads();
    if (threadIdx.x) return;
    for (uint32_t i = 0; i < ratio; i++) {
        bulk_store(room.w + (at + i) * TILE, s.v[i], TILE);
        bulk_store(room.p + (at + i) * PANEL, s.q + i * PANEL, PANEL);
    }
    asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;" ::: "memory");
}

}

cudaError_t cuda_delta_parts(const cuda_delta *d, const Maps &maps, const Room &room, uint32_t blocks, cudaStream_t s)
{
    static size_t allowed = 0;
    const cudaError_t e = allow_shared(delta_parts, sizeof(PartRoom) + 1024, allowed);
    if (e != cudaSuccess) return e;
    delta_parts<<<dim3(d->k_heads, blocks), PART_THREADS, sizeof(PartRoom) + 1024, s>>>(*d, maps, room);
    return cudaGetLastError();
}
