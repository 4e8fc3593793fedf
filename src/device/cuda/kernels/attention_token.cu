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
    MOST_ROTARY = DIM / 2,
    Q_STRIDE = DIM + 8,
    SCORE_STRIDE = TILE + 8,
    JOIN_EACH = (SPLITS + 31) / 32,
};

enum { KEYS, VALUES };

/* DEPTH tiles of keys and of values; 3 are 109 KiB, 2 fit on cards with 99 KiB a block. */
template <int DEPTH> struct Token {
    uint16_t ring[2][DEPTH][TILE * DIM];
    uint16_t q[2 * SHARE][Q_STRIDE];            /* large, then small */
    uint16_t newest[2][DIM];                    /* this token's key and value */
    float score[2][SHARE][SCORE_STRIDE];        /* of the halves of the columns */
    float rotation[2][MOST_ROTARY];             /* of a column by itself, and by its partner */
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

/* x[i] is column 4 lane + i of a head for i < 4, then column 128 + 4 lane + i - 4. */
static __device__ void head_load(float (&x)[8], const float *from)
{
    const float4 a = __ldcg((const float4 *)from + (threadIdx.x & 31)), b = __ldcg((const float4 *)from + 32 + (threadIdx.x & 31));
    x[0] = a.x, x[1] = a.y, x[2] = a.z, x[3] = a.w, x[4] = b.x, x[5] = b.y, x[6] = b.z, x[7] = b.w;
}

/* What a column takes of itself and of its partner. */
static __device__ void put_rotation(float (&rotation)[2][MOST_ROTARY], double frequency, uint32_t rotary, uint32_t position)
{
    const uint32_t c = threadIdx.x;
    double sine = 0, cosine = 1;
    if (c < rotary) sincos((double)position * frequency, &sine, &cosine);
    if (c >= MOST_ROTARY) return;
    rotation[0][c] = (float)cosine;
    rotation[1][c] = (float)(c < rotary / 2 ? -sine : sine);
}

/* What a lane needs to norm and rotate its columns, there before them. */
struct Lane {
    float weight[2][8];         /* of queries and keys */
    float own[4], other[4];     /* rotation of its first four columns */
    uint32_t partner;           /* the lane with what they are rotated with */
};

static __device__ void norm_rotate(float (&x)[8], const float (&weight)[8], const Lane &l, float eps)
{
    float a = x[0] * x[0] + x[1] * x[1], b = x[2] * x[2] + x[3] * x[3];
    a += x[4] * x[4] + x[5] * x[5], b += x[6] * x[6] + x[7] * x[7];
    const float scale = rsqrtf(warp_sum(a + b) / DIM + eps);
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] *= scale * weight[i];
#pragma unroll
    for (int i = 0; i < 4; i++) x[i] = x[i] * l.own[i] + __shfl_sync(~0u, x[i], l.partner) * l.other[i];
}

__device__ inline uint2 pack4(float a, float b, float c, float d) { return make_uint2(pack_bf16(a, b), pack_bf16(c, d)); }

/* A head's columns as bf16. */
__device__ inline void put_head(uint16_t *to, const float (&x)[8])
{
    const uint32_t lane = threadIdx.x & 31;
    *(uint2 *)(to + 4 * lane) = pack4(x[0], x[1], x[2], x[3]);
    *(uint2 *)(to + DIM / 2 + 4 * lane) = pack4(x[4], x[5], x[6], x[7]);
}

/* Warp w has query head w, and in the block with the newest position warps 0 and 1 its key and value, which go into shared
 * memory and to `row` of the cache's keys and that of its values. */
template <int DEPTH>
static __device__ void prepare(Token<DEPTH> &t, const cuda_attention &a, const Lane &l, uint32_t head, uint16_t *row)
{
    const uint32_t warp = threadIdx.x >> 5;
    float x[8], y[8] = {};
    if (row && warp <= VALUES) head_load(y, (warp == KEYS ? a.kp : a.vp) + head * DIM);
    head_load(x, a.qg + (size_t)(head * SHARE + warp) * 2 * DIM);
    norm_rotate(x, l.weight[0], l, a.eps);
    put_head(t.q[warp], x);
#pragma unroll
    for (int i = 0; i < 8; i++) x[i] -= bf16_float(float_bf16(x[i]));
    put_head(t.q[SHARE + warp], x);
    if (!row || warp > VALUES) return;
    if (warp == KEYS) norm_rotate(y, l.weight[1], l, a.eps);
    put_head(t.newest[warp], y);
    if (blockIdx.z == 0) put_head(row + (size_t)warp * a.kv_heads * CUDA_PAGE * DIM, y);
    __syncwarp();
}

/* ---- a tile ---- */

__device__ inline uint4 ldmatrix(uint32_t p)
{
    uint4 r;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "r"(p) : "memory");
    return r;
}
__device__ inline uint4 ldmatrix_transposed(uint32_t p)
{
    uint4 r;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "r"(p) : "memory");
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

/* Where a lane reads, in shared memory: its pieces of a tile of keys are at ^ 64 i, those of values at ^ 32 m, since tiles
 * are aligned and pieces so arranged. */
struct Places {
    uint32_t keys, values, query;
    float *score;               /* of its two positions */
};

template <int DEPTH> static __device__ Places places_of(Token<DEPTH> &t)
{
    const uint32_t warp = threadIdx.x >> 5, lane = threadIdx.x & 31, half = warp >> 2, first = (warp & 3) * 8;
    Places p;
    p.keys = shared_address(piece_at(t.ring[KEYS][0], first + (lane & 7), half * 16 + (lane >> 3)));
    p.values = shared_address(piece_at(t.ring[VALUES][0], (lane & 7) + 8 * (lane >> 4), 4 * warp + (lane >> 3 & 1)));
    p.query = shared_address(&t.q[lane & 15][half * (DIM / 2) + 8 * (lane >> 4)]);
    p.score = &t.score[half][lane >> 2][first + 2 * (lane & 3)];
    return p;
}

/* Lane 4g + j finds head g's scores of the warp's positions 2j and 2j + 1, over half of the columns. */
static __device__ void put_scores(float *score, const uint4 (&q)[8], uint32_t keys)
{
    float c[2][4] = {};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint4 k = ldmatrix(keys ^ 64 * i);
        mma16816(c[0], q[2 * i].x, q[2 * i].y, q[2 * i].z, q[2 * i].w, k.x, k.y);
        mma16816(c[1], q[2 * i + 1].x, q[2 * i + 1].y, q[2 * i + 1].z, q[2 * i + 1].w, k.z, k.w);
    }
    *(float2 *)score = make_float2((c[0][0] + c[1][0]) + (c[0][2] + c[1][2]), (c[0][1] + c[1][1]) + (c[0][3] + c[1][3]));
}

/* n: how many of the tile's positions there are.  All warps do the same. */
static __device__ void take_weights(Running &r, uint32_t (&weight)[4], const float (&score)[2][SHARE][SCORE_STRIDE], uint32_t n)
{
    const uint32_t lane = threadIdx.x & 31, g = lane >> 2, j = lane & 3;
    float2 s[4];
    float top = r.most, sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 x = *(const float2 *)&score[0][g][8 * i + 2 * j], y = *(const float2 *)&score[1][g][8 * i + 2 * j];
        s[i] = make_float2(x.x + y.x, x.y + y.y);
    }
    if (n < TILE) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (8 * i + 2 * j >= n) s[i].x = -CUDART_INF_F;
            if (8 * i + 2 * j + 1 >= n) s[i].y = -CUDART_INF_F;
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) top = fmaxf(top, fmaxf(s[i].x, s[i].y));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    const float keep = power_of_two(r.most - top);
#pragma unroll
    for (int i = 0; i < 4; i++) {
        weight[i] = pack_bf16(power_of_two(s[i].x - top), power_of_two(s[i].y - top));
        sum += bf_lo(weight[i]) + bf_hi(weight[i]);     /* what is multiplied is what is summed */
    }
    const bool first = r.most == -CUDART_INF_F;
    r.sum = r.sum * keep + sum;
    r.most = top;
    if (first || __all_sync(~0u, keep == 1.f)) return;
    const float keep0 = __shfl_sync(~0u, keep, 8 * j), keep1 = __shfl_sync(~0u, keep, 8 * j + 4);
#pragma unroll
    for (int m = 0; m < 2; m++) r.out[m][0] *= keep0, r.out[m][1] *= keep1, r.out[m][2] *= keep0, r.out[m][3] *= keep1;
}

static __device__ void add_values(Running &r, const uint32_t (&weight)[4], uint32_t values)
{
#pragma unroll
    for (int step = 0; step < 2; step++)
#pragma unroll
        for (int m = 0; m < 2; m++) {
            const uint4 v = ldmatrix_transposed((values ^ 32 * m) + step * 16 * DIM * 2);
            mma16816(r.out[m], v.x, v.y, v.z, v.w, weight[2 * step], weight[2 * step + 1]);
        }
}

/* The token's own row, which no copy writes. */
template <int DEPTH> static __device__ void put_newest(Token<DEPTH> &t, uint32_t slot, uint32_t row)
{
    const uint32_t which = threadIdx.x >> 5, piece = threadIdx.x & 31;
    if (which <= VALUES) *(uint4 *)piece_at(t.ring[which][slot], row, piece) = *(const uint4 *)&t.newest[which][piece * 8];
}

/* The block's tiles from `first` on, whose keys are there. */
template <int DEPTH>
static __device__ void take_tiles(Running &r, Token<DEPTH> &t, Feed &f, const Places &places, uint32_t first, bool newest)
{
    constexpr uint32_t TILE_BYTES = TILE * DIM * sizeof(uint16_t);
    uint32_t slot = 0, before = DEPTH - 1, tile = first;        /* places of this tile, and of the one before it */
    uint4 q[8];
#pragma unroll
    for (int i = 0; i < 8; i++) q[i] = ldmatrix(places.query + 32 * i);
    r = {};
    r.most = -CUDART_INF_F;
#pragma unroll 1
    for (;;) {
        feed<VALUES>(f, (DEPTH + before) * TILE * DIM, tile + DEPTH - 1);
        put_scores(places.score, q, places.keys + slot * TILE_BYTES);
        async_wait<2 * (DEPTH - 1)>();
        __syncthreads();        /* scores and values are there, and all have done with the keys */
        feed<KEYS>(f, slot * TILE * DIM, tile + DEPTH);
        uint32_t weights[4];
        take_weights(r, weights, t.score, f.position + 1 - tile * TILE);
        add_values(r, weights, places.values + slot * TILE_BYTES);
        if (++tile == f.end) break;
        before = slot;
        slot = slot == DEPTH - 1 ? 0 : slot + 1;
        if (newest && tile == f.end - 1) put_newest(t, slot, f.position % TILE);
        async_wait<2 * (DEPTH - 1)>();
        __syncthreads();        /* the next keys are there, and all have done with the values */
    }
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

/* Few bytes, asked for before the many of the cache. */
struct Ahead {
    float4 weight[4];
    double frequency;
};

static __device__ Ahead ahead_of(const cuda_attention &a)
{
    const uint32_t lane = threadIdx.x & 31, half = a.rotary / 2, c = threadIdx.x;
    const float4 *q = (const float4 *)a.norm_q, *k = (const float4 *)a.norm_k;
    return {{q[lane], q[lane + 32], k[lane], k[lane + 32]}, c < a.rotary ? a.frequency[c < half ? c : c - half] : 0};
}

template <int DEPTH> static __device__ Lane lane_of(Token<DEPTH> &t, const cuda_attention &a, const Ahead &ahead, uint32_t position)
{
    const uint32_t lane = threadIdx.x & 31, half = a.rotary / 2;
    const float4 *all = ahead.weight;
    Lane l;
    put_rotation(t.rotation, ahead.frequency, a.rotary, position);
    /* Scores become exponents of two.  Without gqa-pack a block has one query head, and zeros for the others. */
    const float scale = a.unpacked && threadIdx.x >> 5 != blockIdx.z ? 0.f : 0.0625f * CUDART_L2E_F;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        l.weight[0][4 * i] = all[i].x * scale, l.weight[0][4 * i + 1] = all[i].y * scale;
        l.weight[0][4 * i + 2] = all[i].z * scale, l.weight[0][4 * i + 3] = all[i].w * scale;
        l.weight[1][4 * i] = all[2 + i].x, l.weight[1][4 * i + 1] = all[2 + i].y;
        l.weight[1][4 * i + 2] = all[2 + i].z, l.weight[1][4 * i + 3] = all[2 + i].w;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4; i++) l.own[i] = t.rotation[0][4 * lane + i], l.other[i] = t.rotation[1][4 * lane + i];
    l.partner = 4 * lane < half ? lane + half / 4 : 4 * lane < a.rotary ? lane - half / 4 : lane;
    return l;
}

/* Block (split, key head, query head without gqa-pack). */
template <int DEPTH> static __global__ __launch_bounds__(THREADS, 2) void attend_split(const __grid_constant__ cuda_attention a)
{
    extern __shared__ __align__(1024) uint8_t shared[];
    Token<DEPTH> &t = *(Token<DEPTH> *)shared;
    const uint32_t head = blockIdx.y, split = blockIdx.x;
    const uint32_t position = a.lane->position, tiles = tiles_of(position + 1), each = tiles_each(tiles, a.general);
    const uint32_t first = split * each, end = min(first + each, tiles);
    if (first >= tiles) {
        dependency_wait();
        dependency_launch();
        if (!a.unpacked) __nanosleep(1000);     /* keeps the place: see TOKEN_BLOCKS */
        return;
    }
    const Ahead ahead = ahead_of(a);
    Feed f = feed_of(a, head, first, end, position, t.ring[KEYS][0]);
#pragma unroll 1
    for (int i = 0; i < DEPTH; i++) {
        feed<KEYS>(f, i * TILE * DIM, first + i);
        if (i < DEPTH - 1) feed<VALUES>(f, (DEPTH + i) * TILE * DIM, first + i);
    }
    /* Where the newest key goes, in the block that has its tile. */
    uint16_t *row = NULL;
    if (end == tiles)
        row = f.pages[position / CUDA_PAGE] + (((size_t)a.layer * 2 * a.kv_heads + head) * CUDA_PAGE + position % CUDA_PAGE) * DIM;
    const Lane l = lane_of(t, a, ahead, position);
    const Places places = places_of(t);
    dependency_wait();
    dependency_launch();        /* after the wait: the join reads the gate before its own */
    prepare(t, a, l, head, row);
    if (row && first == end - 1) put_newest(t, 0, position % TILE);
    async_wait<2 * (DEPTH - 1)>();
    __syncthreads();
    Running r;
    take_tiles(r, t, f, places, first, row != NULL);
    put_result(r, a, head, split);
}

/* A warp has four columns of a query head, a lane some of the splits.  As many blocks as there are multiprocessors, so
 * that the next kernel's find room everywhere alike. */
static __global__ __launch_bounds__(THREADS) void attend_join(const __grid_constant__ cuda_attention a)
{
    const uint32_t unit = (threadIdx.x >> 5) * gridDim.x + blockIdx.x, lane = threadIdx.x & 31;
    const uint32_t tiles = tiles_of(a.lane->position + 1), each = tiles_each(tiles, a.general);
    const uint32_t h = min(unit / (DIM / 4), a.q_heads - 1), column = unit % (DIM / 4) * 4;
    const float *work = a.work + (size_t)h * SPLITS * DIM + column, *ends = a.work + ((size_t)a.q_heads * DIM + 2 * h) * SPLITS;
    /* Older than the splits.  The lane's column is that which it will have in the end. */
    const float gate = sigmoidf(__ldcg(a.qg + ((size_t)2 * h + 1) * DIM + column + (lane >> 3)));
    const bool works = unit < a.q_heads * (DIM / 4);
    dependency_wait();
    dependency_launch();
    float2 end[JOIN_EACH];
    float4 x[JOIN_EACH], out = {};
    float top = -CUDART_INF_F, sum = 0;
#pragma unroll
    for (int i = 0; i < JOIN_EACH; i++) {
        const uint32_t split = lane + 32 * i;
        const bool live = works && split * each < tiles;
        end[i] = live ? __ldcg((const float2 *)ends + split) : make_float2(-CUDART_INF_F, 0);
        x[i] = live ? __ldcg((const float4 *)(work + (size_t)split * DIM)) : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < JOIN_EACH; i++) top = fmaxf(top, end[i].x);
    top = warp_max(top);
#pragma unroll
    for (int i = 0; i < JOIN_EACH; i++) {
        const float keep = power_of_two(end[i].x - top);
        sum += keep * end[i].y;
        out.x += keep * x[i].x, out.y += keep * x[i].y, out.z += keep * x[i].z, out.w += keep * x[i].w;
    }
    /* Half of the columns go to the other half of the lanes, twice. */
    const bool upper = lane & 16, odd = lane & 8;
    const float c = (upper ? out.z : out.x) + __shfl_xor_sync(~0u, upper ? out.x : out.z, 16);
    const float d = (upper ? out.w : out.y) + __shfl_xor_sync(~0u, upper ? out.y : out.w, 16);
    float mine = (odd ? d : c) + __shfl_xor_sync(~0u, odd ? c : d, 8);
#pragma unroll
    for (int o = 4; o; o >>= 1) mine += __shfl_xor_sync(~0u, mine, o);
    sum = warp_sum(sum);
    if (works && (lane & 7) == 0)
        store_act(a.aog, h * DIM + column + (lane >> 3), __fdividef(mine, sum) * gate, a.half);
}

template <int DEPTH> static cudaError_t launch_split(const cuda_attention *a, bool early, cudaStream_t s)
{
    static size_t allowed = 0;
    const dim3 grid(a->general ? GENERAL_SPLITS : SPLITS, a->kv_heads, a->unpacked ? SHARE : 1);
    const size_t shared = token_shared(sizeof(Token<DEPTH>));
    cudaError_t e = allow_shared(attend_split<DEPTH>, shared, allowed);
    return e != cudaSuccess ? e : launch(attend_split<DEPTH>, grid, THREADS, shared, early, s, *a);
}

cudaError_t cuda_attend_token(const cuda_attention *a, bool early, cudaStream_t s)
{
    static size_t allowed = 0;
    cudaError_t e = sizeof(Token<3>) <= shared_at_most() ? launch_split<3>(a, early, s) : launch_split<2>(a, early, s);
    if (e == cudaSuccess) e = allow_shared(attend_join, token_shared(0), allowed);
    const unsigned blocks = ceil_div(a->q_heads * (DIM / 4), WARPS), least = TOKEN_BLOCKS;
    return e != cudaSuccess ? e : launch(attend_join, blocks > least ? blocks : least, THREADS, token_shared(0), early, s, *a);
}
