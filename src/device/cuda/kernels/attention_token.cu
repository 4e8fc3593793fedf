/* attention_token.cu - attention of one token: norm and rotation, append, split over the cache, join, gate.
 *
 * Heads of 256, eight query heads a key head.  The cache is cut into SPLITS stretches a key head, one for each
 * multiprocessor of the largest cards; a block reads its stretch in tiles of 32 positions through a ring in shared
 * memory, which it begins to fill before the queries are there.  One pass serves all eight query heads: they are rows
 * of mma, in a large and a small bf16 part, so that scores are as exact as the cache.  Scores: a warp has eight
 * positions and half of the columns.  Weights times values: a warp has 32 columns and all positions, so its sums stay in
 * eight registers and no two warps need to be joined.  A tile's rows lie in shared memory in pieces of 16 bytes,
 * piece c of row r at c ^ (r & 7): what ldmatrix takes at once lies in different banks. */
#include "device/cuda/kernels/common.cuh"

enum {
    DIM = 256,
    SHARE = 8,                  /* query heads a key head */
    WARPS = 8,
    THREADS = 32 * WARPS,
    SPLITS = 66,                /* most stretches a key head: 132 blocks for two */
    GENERAL_SPLITS = 8,         /* without fixed-block */
    TILE = 32,
    PAGE_TILES = CUDA_PAGE / TILE,
    PIECES = 4,                 /* of 16 bytes, a thread's of a tile's keys or values */
    Q_STRIDE = DIM + 8,
    SCORE_STRIDE = TILE + 8,
    JOIN_COLUMNS = 32,
    JOIN_EACH = (SPLITS + WARPS - 1) / WARPS,
    ONE_A_MULTIPROCESSOR = 80 * 1024,   /* bytes of shared memory of which two blocks of one kernel leave no room for another */
};

enum { KEYS, VALUES };

/* DEPTH tiles of keys and of values; 3 are 109 KiB, 2 fit on cards with 99 KiB a block. */
template <int DEPTH> struct Token {
    uint16_t ring[2][DEPTH][TILE * DIM];
    uint16_t q[2 * SHARE][Q_STRIDE];            /* large, then small */
    uint16_t newest[2][DIM];                    /* this token's key and value */
    float score[2][SHARE][SCORE_STRIDE];        /* of the halves of the columns */
    float rotation[2][DIM];                     /* of a column by itself, and by its partner */
};

/* Tiles of each stretch of the cache: of its length alone. */
__device__ inline uint32_t tiles_each(uint32_t tiles, bool general)
{
    return general ? (tiles + GENERAL_SPLITS - 1) / GENERAL_SPLITS : (tiles + SPLITS - 1) / SPLITS;
}
__device__ inline uint32_t tiles_of(uint32_t positions) { return (positions + TILE - 1) / TILE; }

/* ---- the cache on its way ---- */

__device__ inline uint16_t *piece_at(uint16_t *tile, uint32_t row, uint32_t piece)
{
    return tile + row * DIM + ((piece ^ (row & 7)) << 3);
}

/* Keys and values of a tile are asked for in turn: keys 0, values 0, keys 1 … */
struct Feed {
    uint16_t *const *pages;
    const uint16_t *page, *next;        /* of the tile whose values come next, and of the one behind it */
    size_t at[2];                       /* a thread's first element of the head's keys and values in a page */
    uint32_t end, position;             /* tiles that are asked for; the newest row, which is nowhere yet */
    uint32_t row, row_step, step;       /* a thread's rows in a tile; elements from a piece to the next */
    uint16_t *to[PIECES];               /* where they go in the first tile of the ring of keys */
};

static __device__ Feed feed_of(const cuda_attention &a, uint32_t head, uint32_t first, uint32_t end, uint32_t position,
                               uint16_t *ring)
{
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    Feed f;
    f.pages = a.lane->pages;
    f.page = NULL;
    f.next = f.pages[first / PAGE_TILES];
    f.end = end;
    f.position = position;
    /* A warp's lanes have a row's 512 bytes, or, without kv-coalesce, 16 bytes of each of 32 rows. */
    f.row = a.scattered ? lane : warp;
    f.row_step = a.scattered ? 0 : WARPS;
    f.step = a.scattered ? 8 : WARPS * DIM;
    const uint32_t piece = a.scattered ? PIECES * warp : lane;
#pragma unroll
    for (int which = KEYS; which <= VALUES; which++)
        f.at[which] = (((size_t)(a.layer * 2 + which) * a.kv_heads + head) * CUDA_PAGE + f.row) * DIM + piece * 8;
#pragma unroll
    for (int i = 0; i < PIECES; i++) f.to[i] = piece_at(ring, f.row + i * f.row_step, a.scattered ? piece + i : piece);
    return f;
}

/* at: of the tile's place in the ring, in elements from the first of the keys. */
template <int WHICH> static __device__ void feed(Feed &f, uint32_t at, uint32_t tile)
{
    if (tile < f.end) {
        if (WHICH == KEYS) {
            f.page = f.next;
            if (tile + 1 < f.end) f.next = f.pages[(tile + 1) / PAGE_TILES];
        }
        const uint16_t *from = f.page + f.at[WHICH] + (tile % PAGE_TILES) * TILE * DIM;
        if (tile != f.position / TILE) {
#pragma unroll
            for (int i = 0; i < PIECES; i++) async_copy16(f.to[i] + at, from + i * f.step, true);
        } else {
#pragma unroll
            for (int i = 0; i < PIECES; i++) {
                const uint32_t p = tile * TILE + f.row + i * f.row_step;
                if (p != f.position) async_copy16(f.to[i] + at, from + i * f.step, p < f.position);
            }
        }
    }
    async_commit();
}

/* ---- queries, and the newest row ---- */

/* x[i] is column lane + 32 i of a head. */
static __device__ void head_load(float (&x)[8], const float *from)
{
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] = __ldcg(from + (threadIdx.x & 31) + 32 * i);
}

/* What a rotated column takes of itself and of its partner; columns that are not rotated are their own partners. */
__device__ inline uint32_t partner_of(uint32_t column, uint32_t rotary)
{
    return column < rotary / 2 ? column + rotary / 2 : column < rotary ? column - rotary / 2 : column;
}

static __device__ void put_rotation(float (&rotation)[2][DIM], const cuda_attention &a, uint32_t position)
{
    const uint32_t c = threadIdx.x, half = a.rotary / 2;
    double sine = 0, cosine = 1;
    if (c < a.rotary) sincos((double)position * a.frequency[c < half ? c : c - half], &sine, &cosine);
    rotation[0][c] = (float)cosine;
    rotation[1][c] = (float)(c < half ? -sine : sine);
}

/* By one warp; room: its own 256 floats. */
static __device__ void norm_rotate(float (&x)[8], const float (&weight)[8], const float (&rotation)[2][DIM],
                                   const cuda_attention &a, float *room)
{
    const uint32_t lane = threadIdx.x & 31;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) sum += x[i] * x[i];
    const float scale = rsqrtf(warp_sum(sum) / DIM + a.eps);
#pragma unroll
    for (int i = 0; i < 8; i++) room[lane + 32 * i] = x[i] = x[i] * scale * weight[i];
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint32_t c = lane + 32 * i;
        x[i] = x[i] * rotation[0][c] + room[partner_of(c, a.rotary)] * rotation[1][c];
    }
    __syncwarp();
}

/* The key or value that the token adds: for this block, and for those to come. */
static __device__ void append(uint16_t *here, uint16_t *cache, const float (&x)[8])
{
    const uint32_t lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint16_t v = float_bf16(x[i]);
        here[lane + 32 * i] = v;
        if (cache) cache[lane + 32 * i] = v;
    }
}

/* Scaled so that scores are exponents of two. */
static __device__ void put_query(uint16_t (&q)[2 * SHARE][Q_STRIDE], const float (&x)[8], float scale)
{
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        const uint16_t large = float_bf16(x[i] * scale);
        q[warp][lane + 32 * i] = large;
        q[SHARE + warp][lane + 32 * i] = float_bf16(x[i] * scale - bf16_float(large));
    }
}

/* Warp w has query head w, and in the block with the newest position warps 0 and 1 its key and value. */
template <int DEPTH>
static __device__ void prepare(Token<DEPTH> &t, const cuda_attention &a, uint32_t head, uint16_t *row, float (&weight)[2][8])
{
    const uint32_t warp = threadIdx.x >> 5;
    const bool mine = !a.unpacked || warp == blockIdx.z;
    float *room = (float *)t.ring[VALUES][DEPTH - 1] + warp * DIM;      /* not asked for yet */
    float x[8], y[8] = {};
    head_load(x, a.qg + (size_t)(head * SHARE + warp) * 2 * DIM);
    if (row && warp <= VALUES) head_load(y, (warp == KEYS ? a.kp : a.vp) + head * DIM);
    if (row && warp == VALUES) append(t.newest[VALUES], blockIdx.z == 0 ? row + (size_t)a.kv_heads * CUDA_PAGE * DIM : NULL, y);
#pragma unroll 1
    for (int pass = 0;; pass++) {
        norm_rotate(x, weight[0], t.rotation, a, room);
        if (pass) break;
        put_query(t.q, x, mine ? 0.0625f * CUDART_L2E_F : 0.f);
        if (!row || warp != KEYS) return;
#pragma unroll
        for (int i = 0; i < 8; i++) x[i] = y[i], weight[0][i] = weight[1][i];
    }
    append(t.newest[KEYS], blockIdx.z == 0 ? row : NULL, x);
}

/* ---- a tile ---- */

__device__ inline uint4 ldmatrix(const void *p)
{
    uint4 r;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "r"(shared_address(p)) : "memory");
    return r;
}
__device__ inline uint4 ldmatrix_transposed(const void *p)
{
    uint4 r;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "r"(shared_address(p)) : "memory");
    return r;
}
__device__ inline float power_of_two(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Running softmax: lane 4g + j has head g's largest score, and its own share of the sum of weights; of the warp's columns
 * 16 m + g (+ 8) the weighted values of heads 2j, 2j + 1 (, again). */
struct Running {
    float most, sum, out[2][4];
};

/* Lane 4g + j finds head g's scores of the warp's positions 2j and 2j + 1, over half of the columns. */
static __device__ void put_scores(float (&score)[2][SHARE][SCORE_STRIDE], const uint4 (&q)[8], uint16_t *keys)
{
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, half = warp >> 2, first = (warp & 3) * 8;
    float c[2][4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint4 k = ldmatrix(piece_at(keys, first + (lane & 7), half * 16 + 4 * i + (lane >> 3)));
        mma16816(c[0], q[2 * i].x, q[2 * i].y, q[2 * i].z, q[2 * i].w, k.x, k.y);
        mma16816(c[1], q[2 * i + 1].x, q[2 * i + 1].y, q[2 * i + 1].z, q[2 * i + 1].w, k.z, k.w);
    }
    *(float2 *)&score[half][lane >> 2][first + 2 * (lane & 3)] =
        make_float2((c[0][0] + c[1][0]) + (c[0][2] + c[1][2]), (c[0][1] + c[1][1]) + (c[0][3] + c[1][3]));
}

/* n: how many of the tile's positions there are.  All warps do the same. */
static __device__ void take_weights(Running &r, uint32_t (&weight)[4], const float (&score)[2][SHARE][SCORE_STRIDE], uint32_t n)
{
    const uint32_t lane = threadIdx.x & 31, g = lane >> 2, j = lane & 3;
    float2 s[4];
    float top = r.most, sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint32_t p = 8 * i + 2 * j;
        const float2 x = *(const float2 *)&score[0][g][p], y = *(const float2 *)&score[1][g][p];
        s[i].x = p < n ? x.x + y.x : -CUDART_INF_F;
        s[i].y = p + 1 < n ? x.y + y.y : -CUDART_INF_F;
        top = fmaxf(top, fmaxf(s[i].x, s[i].y));
    }
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    const float keep = power_of_two(r.most - top);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        weight[i] = pack_bf16(power_of_two(s[i].x - top), power_of_two(s[i].y - top));
        sum += bf_lo(weight[i]) + bf_hi(weight[i]);     /* what is multiplied is what is summed */
    }
    r.sum = r.sum * keep + sum;
    r.most = top;
    if (__all_sync(~0u, keep == 1.f)) return;
    const float keep0 = __shfl_sync(~0u, keep, 8 * j), keep1 = __shfl_sync(~0u, keep, 8 * j + 4);
#pragma unroll
    for (int m = 0; m < 2; m++) r.out[m][0] *= keep0, r.out[m][1] *= keep1, r.out[m][2] *= keep0, r.out[m][3] *= keep1;
}

static __device__ void add_values(Running &r, const uint32_t (&weight)[4], uint16_t *values)
{
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, row = (lane & 7) + 8 * (lane >> 4), side = lane >> 3 & 1;
#pragma unroll
    for (int step = 0; step < 2; step++)
#pragma unroll
        for (int m = 0; m < 2; m++) {
            const uint4 v = ldmatrix_transposed(piece_at(values, 16 * step + row, 4 * warp + 2 * m + side));
            mma16816(r.out[m], v.x, v.y, v.z, v.w, weight[2 * step], weight[2 * step + 1]);
        }
}

/* The token's own row, which no copy writes. */
template <int DEPTH> static __device__ void put_newest(Token<DEPTH> &t, uint32_t slot, uint32_t row)
{
    const uint32_t which = threadIdx.x >> 5, piece = threadIdx.x & 31;
    if (which <= VALUES) *(uint4 *)piece_at(t.ring[which][slot], row, piece) = *(const uint4 *)&t.newest[which][piece * 8];
}

/* work: [q_heads][SPLITS][DIM], then [q_heads][SPLITS][2]: largest score, sum */
size_t cuda_attend_token_room(uint32_t q_heads) { return (size_t)q_heads * SPLITS * (DIM + 2) * sizeof(float); }

static __device__ void put_result(const Running &r, const cuda_attention &a, uint32_t head, uint32_t split)
{
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, j = lane & 3;
    float sum = r.sum + __shfl_xor_sync(~0u, r.sum, 1);
    sum += __shfl_xor_sync(~0u, sum, 2);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const uint32_t of = 2 * j + i;
        if (a.unpacked && of != blockIdx.z) continue;
        float *to = a.work + ((size_t)(head * SHARE + of) * SPLITS + split) * DIM + 32 * warp + g;
#pragma unroll
        for (int m = 0; m < 2; m++) to[16 * m] = r.out[m][i], to[16 * m + 8] = r.out[m][2 + i];
    }
    if (warp != 0 || j != 0 || (a.unpacked && g != blockIdx.z)) return;
    float *ends = a.work + (size_t)a.q_heads * SPLITS * DIM + ((size_t)(head * SHARE + g) * SPLITS + split) * 2;
    *(float2 *)ends = make_float2(r.most, sum);
}

/* Block (split, key head, query head without gqa-pack). */
template <int DEPTH> static __global__ __launch_bounds__(THREADS, 2) void attend_split(const __grid_constant__ cuda_attention a)
{
    extern __shared__ __align__(16) uint8_t shared[];
    Token<DEPTH> &t = *(Token<DEPTH> *)shared;
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, head = blockIdx.y, split = blockIdx.x;
    const uint32_t position = a.lane->position, tiles = tiles_of(position + 1), each = tiles_each(tiles, a.general);
    const uint32_t first = split * each, end = min(first + each, tiles);
    if (first >= tiles) return;
    Feed f = feed_of(a, head, first, end, position, t.ring[KEYS][0]);
#pragma unroll
    for (int i = 0; i < DEPTH; i++) {
        feed<KEYS>(f, i * TILE * DIM, first + i);
        if (i < DEPTH - 1) feed<VALUES>(f, (DEPTH + i) * TILE * DIM, first + i);
    }
    float weight[2][8];
#pragma unroll
    for (int i = 0; i < 8; i++) weight[0][i] = a.norm_q[lane + 32 * i], weight[1][i] = a.norm_k[lane + 32 * i];
    /* Where the newest key goes, in the block that has its tile. */
    uint16_t *row = NULL;
    if (end == tiles)
        row = f.pages[position / CUDA_PAGE] + (((size_t)a.layer * 2 * a.kv_heads + head) * CUDA_PAGE + position % CUDA_PAGE) * DIM;
    put_rotation(t.rotation, a, position);
    __syncthreads();
    dependency_wait();
    dependency_launch();
    prepare(t, a, head, row, weight);
    __syncthreads();
    uint4 q[8];
#pragma unroll
    for (int i = 0; i < 8; i++) q[i] = ldmatrix(&t.q[lane & 15][(warp >> 2) * (DIM / 2) + 16 * i + 8 * (lane >> 4)]);

    Running r = {};
    r.most = -CUDART_INF_F;
    uint32_t slot = 0, before = DEPTH - 1;      /* of this tile, and of the one before it */
#pragma unroll 1
    for (uint32_t tile = first; tile < end; tile++) {
        if (row && tile == end - 1) put_newest(t, slot, position % TILE);
        async_wait<2 * (DEPTH - 1)>();
        __syncthreads();        /* its keys are there, and all have done with the values before */
        feed<VALUES>(f, (DEPTH + before) * TILE * DIM, tile + DEPTH - 1);
        put_scores(t.score, q, t.ring[KEYS][slot]);
        async_wait<2 * (DEPTH - 1)>();
        __syncthreads();        /* scores and values are there, and all have done with the keys */
        feed<KEYS>(f, slot * TILE * DIM, tile + DEPTH);
        uint32_t weights[4];
        take_weights(r, weights, t.score, position + 1 - tile * TILE);
        add_values(r, weights, t.ring[VALUES][slot]);
        before = slot;
        slot = slot == DEPTH - 1 ? 0 : slot + 1;
    }
    put_result(r, a, head, split);
}

/* Block (query head, 32 columns): warps take splits in turn. */
static __global__ __launch_bounds__(THREADS) void attend_join(const __grid_constant__ cuda_attention a)
{
    extern __shared__ float part[];     /* [WARPS][JOIN_COLUMNS + 1] */
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, h = blockIdx.x, column = blockIdx.y * JOIN_COLUMNS + lane;
    const uint32_t tiles = tiles_of(a.lane->position + 1), each = tiles_each(tiles, a.general);
    const float *work = a.work + (size_t)h * SPLITS * DIM + column, *ends = a.work + ((size_t)a.q_heads * DIM + 2 * h) * SPLITS;
    const float gate = __ldcg(a.qg + ((size_t)2 * h + 1) * DIM + column);       /* older than the splits */
    dependency_wait();
    dependency_launch();
    float2 end[3];
    float x[JOIN_EACH], keep[3], top = -CUDART_INF_F, sum = 0, out = 0;
#pragma unroll
    for (int i = 0; i < 3; i++)
        end[i] = (lane + 32 * i) * each < tiles ? __ldcg((const float2 *)ends + lane + 32 * i) : make_float2(-CUDART_INF_F, 0);
#pragma unroll
    for (int i = 0; i < JOIN_EACH; i++)
        x[i] = (warp + WARPS * i) * each < tiles ? __ldcg(work + (size_t)(warp + WARPS * i) * DIM) : 0;
#pragma unroll
    for (int i = 0; i < 3; i++) top = fmaxf(top, end[i].x);
    top = warp_max(top);
#pragma unroll
    for (int i = 0; i < 3; i++) keep[i] = power_of_two(end[i].x - top), sum += keep[i] * end[i].y;
#pragma unroll
    for (int i = 0; i < JOIN_EACH; i++) out += x[i] * __shfl_sync(~0u, keep[WARPS * i / 32], warp + WARPS * i % 32);
    part[warp * (JOIN_COLUMNS + 1) + lane] = out;
    sum = warp_sum(sum);
    __syncthreads();
    if (warp != 0) return;
    out = 0;
#pragma unroll
    for (int w = 0; w < WARPS; w++) out += part[w * (JOIN_COLUMNS + 1) + lane];
    store_act(a.aog, h * DIM + column, out / sum * sigmoidf(gate), a.half);
}

template <int DEPTH> static cudaError_t launch_split(const cuda_attention *a, bool early, cudaStream_t s)
{
    static size_t allowed = 0;
    const dim3 grid(a->general ? GENERAL_SPLITS : SPLITS, a->kv_heads, a->unpacked ? SHARE : 1);
    cudaError_t e = allow_shared(attend_split<DEPTH>, sizeof(Token<DEPTH>), allowed);
    return e != cudaSuccess ? e : launch(attend_split<DEPTH>, grid, THREADS, sizeof(Token<DEPTH>), 1, early, s, *a);
}

cudaError_t cuda_attend_token(const cuda_attention *a, bool early, cudaStream_t s)
{
    static size_t allowed = 0;
    cudaError_t e = sizeof(Token<3>) <= shared_at_most() ? launch_split<3>(a, early, s) : launch_split<2>(a, early, s);
    if (e == cudaSuccess) e = allow_shared(attend_join, ONE_A_MULTIPROCESSOR, allowed);
    return e != cudaSuccess ? e : launch(attend_join, dim3(a->q_heads, DIM / JOIN_COLUMNS), THREADS, ONE_A_MULTIPROCESSOR, 1, early, s, *a);
}
