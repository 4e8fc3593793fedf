/* attention_token.cu - attention of one token: norm and rotation, append, split over the cache, join, gate.
 *
 * Heads of 256, eight query heads a key head: one pass over the cache serves all eight, as the eight columns of mma.
 * A warp has tiles of 16 positions.  Scores: the queries are rows, in a large and a small bf16 part; their sum over
 * the parts is as exact as the cache.  Weights times values: values are the matrix, so that scores need not be moved
 * between lanes.  Which columns a lane takes is chosen so that it reads 16 bytes at a time. */
#include "device/cuda/kernels/common.cuh"

enum { DIM = 256, SHARE = 8, WARPS = 8, SPLITS = 64, TILE = 16, Q_STRIDE = DIM + 8, JOIN_STRIDE = DIM + 1 };

struct Token {
    uint16_t q[2 * SHARE][Q_STRIDE];            /* large, then small */
    float most[WARPS][SHARE], sum[WARPS][SHARE];
    float rotation[2][DIM / 2];                 /* cosines, sines */
    float join[WARPS][SHARE * JOIN_STRIDE];
};

__device__ inline const uint16_t *rows_of(const cuda_attention &a, uint32_t which, uint32_t head, uint32_t position)
{
    return a.lane->pages[position / CUDA_PAGE] +
           (((size_t)(a.layer * 2 + which) * a.kv_heads + head) * CUDA_PAGE + position % CUDA_PAGE) * DIM;
}

struct Split {
    uint32_t tiles, each, active;       /* of 16 positions; a warp's; blocks that have any */
};

__device__ inline Split split_of(uint32_t n)
{
    Split s;
    s.tiles = (n + TILE - 1) / TILE;
    s.each = (s.tiles + SPLITS * WARPS - 1) / (SPLITS * WARPS);
    s.active = (s.tiles + s.each * WARPS - 1) / (s.each * WARPS);
    return s;
}

/* A head of 256 values, by one warp: x[i] is column lane + 32 i. */
static __device__ void norm_rotate(float (&x)[8], const float *from, const float *weight, const cuda_attention &a,
                                   const Token &t, float *room)
{
    const uint32_t lane = threadIdx.x & 31, half = a.rotary / 2;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = __ldcg(from + lane + 32 * i), sum += x[i] * x[i];
    const float scale = rsqrtf(warp_sum(sum) / DIM + a.eps);
#pragma unroll
    for (int i = 0; i < 8; i++) room[lane + 32 * i] = x[i] = x[i] * scale * weight[lane + 32 * i];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint32_t c = lane + 32 * i;
        if (c < half) x[i] = x[i] * t.rotation[0][c] - room[c + half] * t.rotation[1][c];
        else if (c < a.rotary) x[i] = x[i] * t.rotation[0][c - half] + room[c - half] * t.rotation[1][c - half];
    }
}

static __device__ void append(const cuda_attention &a, const Token &t, uint32_t head, uint32_t position, float *room)
{
    const uint32_t lane = threadIdx.x & 31;
    float x[8];
    norm_rotate(x, a.kp + head * DIM, a.norm_k, a, t, room);
    uint16_t *k = const_cast<uint16_t *>(rows_of(a, 0, head, position)), *v = const_cast<uint16_t *>(rows_of(a, 1, head, position));
#pragma unroll
    for (int i = 0; i < 8; i++) {
        k[lane + 32 * i] = float_bf16(x[i]);
        v[lane + 32 * i] = float_bf16(__ldcg(a.vp + head * DIM + lane + 32 * i));
    }
}

/* Running softmax of a warp: of head g its largest score and sum, of all heads the weighted values. */
struct Running {
    float most, sum, out[4][4][4];      /* [64 columns][step][mma's four] */
};

static __device__ void scores_of(float (&c)[2][4], const Token &t, const uint16_t *k)
{
    const uint32_t lane = threadIdx.x & 31, g = lane >> 2, j = lane & 3;
    uint4 key[2][8];
#pragma unroll
    for (int b = 0; b < 8; b++)
#pragma unroll
        for (int h = 0; h < 2; h++) key[h][b] = __ldcg((const uint4 *)(k + (size_t)(g + 8 * h) * DIM + 32 * b + 8 * j));
#pragma unroll
    for (int b = 0; b < 8; b++) {
        const uint4 large = *(const uint4 *)&t.q[g][32 * b + 8 * j], small = *(const uint4 *)&t.q[SHARE + g][32 * b + 8 * j];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            mma16816(c[h], large.x, small.x, large.y, small.y, key[h][b].x, key[h][b].y);
            mma16816(c[h], large.z, small.z, large.w, small.w, key[h][b].z, key[h][b].w);
        }
    }
}

static __device__ void add_values(Running &r, const uint16_t *v, uint32_t weights0, uint32_t weights1)
{
    const uint32_t lane = threadIdx.x & 31, g = lane >> 2, j = lane & 3;
#pragma unroll
    for (int b = 0; b < 4; b++) {
        const uint16_t *at = v + 64 * b + 8 * g;
        const uint4 v0 = __ldcg((const uint4 *)(at + (2 * j) * DIM)), v1 = __ldcg((const uint4 *)(at + (2 * j + 1) * DIM));
        const uint4 v2 = __ldcg((const uint4 *)(at + (2 * j + 8) * DIM)), v3 = __ldcg((const uint4 *)(at + (2 * j + 9) * DIM));
#pragma unroll
        for (int m = 0; m < 4; m++) {
            const uint32_t w0 = word_of(v0, m), w1 = word_of(v1, m), w2 = word_of(v2, m), w3 = word_of(v3, m);
            mma16816(r.out[b][m], __byte_perm(w0, w1, 0x5410), __byte_perm(w0, w1, 0x7632), __byte_perm(w2, w3, 0x5410),
                     __byte_perm(w2, w3, 0x7632), weights0, weights1);
        }
    }
}

static __device__ void add_tile(Running &r, const cuda_attention &a, const Token &t, uint32_t head, uint32_t p0, uint32_t n)
{
    const uint32_t lane = threadIdx.x & 31, j = lane & 3;
    float c[2][4] = {}, s[2][2];
    scores_of(c, t, rows_of(a, 0, head, p0));
    float top = r.most;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            s[h][i] = p0 + 8 * h + 2 * j + i < n ? (c[h][i] + c[h][i + 2]) * 0.0625f : -CUDART_INF_F;
            top = fmaxf(top, s[h][i]);
        }
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    const float keep = __expf(r.most - top);
    uint32_t weights[2];
    float sum = 0;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        weights[h] = pack_bf16(__expf(s[h][0] - top), __expf(s[h][1] - top));
        sum += bf_lo(weights[h]) + bf_hi(weights[h]);   /* what is multiplied is what is summed */
    }
    sum += __shfl_xor_sync(~0u, sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
    r.sum = r.sum * keep + sum;
    r.most = top;
    if (__any_sync(~0u, keep != 1.f)) {
        const float keep0 = __shfl_sync(~0u, keep, j * 8), keep1 = __shfl_sync(~0u, keep, j * 8 + 4);
#pragma unroll
        for (int b = 0; b < 4; b++)
#pragma unroll
            for (int m = 0; m < 4; m++) r.out[b][m][0] *= keep0, r.out[b][m][1] *= keep1, r.out[b][m][2] *= keep0, r.out[b][m][3] *= keep1;
    }
    add_values(r, rows_of(a, 1, head, p0), weights[0], weights[1]);
}

/* work: [q_heads][SPLITS][DIM], then [q_heads][SPLITS][2]: largest score, sum */
size_t cuda_attend_token_room(uint32_t q_heads) { return (size_t)q_heads * SPLITS * (DIM + 2) * sizeof(float); }

static __global__ __launch_bounds__(WARPS * 32, 2) void attend_split(const __grid_constant__ cuda_attention a)
{
    extern __shared__ __align__(16) uint8_t shared[];
    Token &t = *(Token *)shared;
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, j = lane & 3;
    const uint32_t head = blockIdx.y, split = blockIdx.x, position = a.lane->position, n = position + 1;
    const Split cut = split_of(n);
    if (split >= cut.active) return;
    const uint32_t first = (split * WARPS + warp) * cut.each, end = min(first + cut.each, cut.tiles);
    if (first < end) {
        /* A tile of keys, and one of values: lines of 128 bytes on their way before the queries are there. */
        const uint8_t *k = (const uint8_t *)rows_of(a, 0, head, first * TILE), *v = (const uint8_t *)rows_of(a, 1, head, first * TILE);
        for (uint32_t i = lane; i < TILE * DIM * 2 / 128; i += 32) {
            asm volatile("prefetch.global.L2 [%0];" ::"l"(k + i * 128));
            asm volatile("prefetch.global.L2 [%0];" ::"l"(v + i * 128));
        }
    }
    if (threadIdx.x < a.rotary / 2) {
        double sine, cosine;
        sincos((double)position * a.frequency[threadIdx.x], &sine, &cosine);
        t.rotation[0][threadIdx.x] = (float)cosine;
        t.rotation[1][threadIdx.x] = (float)sine;
    }
    __syncthreads();
    dependency_wait();
    dependency_launch();
    float x[8];
    norm_rotate(x, a.qg + (size_t)(head * SHARE + warp) * 2 * DIM, a.norm_q, a, t, t.join[warp]);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        t.q[warp][lane + 32 * i] = float_bf16(x[i]);
        t.q[SHARE + warp][lane + 32 * i] = float_bf16(x[i] - bf16_float(float_bf16(x[i])));
    }
    __syncwarp();
    if (split == cut.active - 1 && warp == 0) append(a, t, head, position, t.join[warp]);
    __syncthreads();

    Running r = {};
    r.most = -CUDART_INF_F;
    for (uint32_t tile = first; tile < end; tile++) add_tile(r, a, t, head, tile * TILE, n);
    if (j == 0) t.most[warp][g] = r.most, t.sum[warp][g] = r.sum;
#pragma unroll
    for (int b = 0; b < 4; b++)
#pragma unroll
        for (int m = 0; m < 4; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                t.join[warp][(2 * j + (i & 1)) * JOIN_STRIDE + 64 * b + 8 * g + 2 * m + (i >> 1)] = r.out[b][m][i];
    __syncthreads();
    float *ends = a.work + (size_t)a.q_heads * SPLITS * DIM;
    for (uint32_t h = 0; h < SHARE; h++) {
        const size_t at = (size_t)(head * SHARE + h) * SPLITS + split;
        float top = -CUDART_INF_F, sum = 0, out = 0;
#pragma unroll
        for (int w = 0; w < WARPS; w++) top = fmaxf(top, t.most[w][h]);
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            const float keep = __expf(t.most[w][h] - top);      /* 0 for a warp without positions */
            sum += keep * t.sum[w][h];
            out += keep * t.join[w][h * JOIN_STRIDE + threadIdx.x];
        }
        a.work[at * DIM + threadIdx.x] = out;
        if (threadIdx.x == 0) ends[2 * at] = top, ends[2 * at + 1] = sum;
    }
}

static __global__ __launch_bounds__(DIM) void attend_join(const __grid_constant__ cuda_attention a)
{
    __shared__ float keep[SPLITS], all;
    const uint32_t h = blockIdx.x, active = split_of(a.lane->position + 1).active;
    const float *ends = a.work + (size_t)a.q_heads * SPLITS * DIM + (size_t)h * SPLITS * 2;
    dependency_wait();
    dependency_launch();
    if (threadIdx.x < 32) {
        const uint32_t i0 = threadIdx.x, i1 = i0 + 32;
        const float m0 = i0 < active ? __ldcg(ends + 2 * i0) : -CUDART_INF_F, m1 = i1 < active ? __ldcg(ends + 2 * i1) : -CUDART_INF_F;
        const float top = warp_max(fmaxf(m0, m1));
        keep[i0] = __expf(m0 - top);
        keep[i1] = __expf(m1 - top);
        const float sum = (i0 < active ? keep[i0] * __ldcg(ends + 2 * i0 + 1) : 0) + (i1 < active ? keep[i1] * __ldcg(ends + 2 * i1 + 1) : 0);
        const float sums = warp_sum(sum);
        if (threadIdx.x == 0) all = sums;
    }
    const float gate = __ldcg(a.qg + (size_t)h * 2 * DIM + DIM + threadIdx.x);
    __syncthreads();
    float out = 0;
#pragma unroll 8
    for (uint32_t i = 0; i < active; i++) out += keep[i] * __ldcg(a.work + ((size_t)h * SPLITS + i) * DIM + threadIdx.x);
    store_act(a.aog, h * DIM + threadIdx.x, out / all * sigmoidf(gate), a.half);
}

cudaError_t cuda_attend_token(const cuda_attention *a, bool early, cudaStream_t s)
{
    static size_t allowed_split = 0, allowed_join = 0;
    cudaError_t e = allow_shared(attend_split, sizeof(Token), allowed_split);
    if (e == cudaSuccess) e = allow_shared(attend_join, 0, allowed_join);
    if (e == cudaSuccess) e = launch(attend_split, dim3(SPLITS, a->kv_heads), WARPS * 32, sizeof(Token), 1, early, s, *a);
    return e != cudaSuccess ? e : launch(attend_join, a->q_heads, DIM, 0, 1, early, s, *a);
}
