/* delta_chain.cu - the delta rule in blocks: from block to block with the state in registers; and all of it. */
#include "device/cuda/kernels/delta_wgmma.cuh"

using namespace delta;

namespace {

enum { CHAIN_THREADS = 2 * 128 + 32, STAGES = 3 };
struct Stage {
    uint8_t w[TILE], q[TILE], k[TILE], p[PANEL];
    float gates[2 * BLOCK];
    uint8_t pad[1024 - 2 * BLOCK * 4];
};
struct ChainRoom {
    Stage stage[STAGES];
    uint8_t state[TILE];                    /* rows of S, fp16 */
    uint8_t fresh[2][PANEL], faded[PANEL];  /* V' and exp(G_last - G) V', turned: a row of S a row */
    Parts parts;
};

__device__ inline void meet(int which) { asm volatile("bar.sync %0, 256;" ::"r"(which) : "memory"); }

/* By one thread. */
__device__ void produce(const cuda_delta &d, const Maps &maps, const Room &room, ChainRoom &s, uint64_t *full, uint64_t *empty, uint32_t head)
{
    const uint32_t key_head = head / (d.v_heads / d.k_heads), blocks = blocks_of(s.parts);
    Walk walk;
    for (uint32_t b = 0; b < blocks; b++) {
        const Span span = walk.next(s.parts);
        Stage &t = s.stage[b % STAGES];
        uint64_t *f = &full[b % STAGES];
        const size_t at = (size_t)b * d.v_heads + head;
        barrier_wait(&empty[b % STAGES], (b / STAGES & 1) ^ 1);
        barrier_expect(f, 3 * TILE + PANEL + sizeof t.gates);
        bulk_copy(t.w, room.w + at * TILE, TILE, f);
        for (uint32_t h = 0; h < 2; h++) {
            box_copy(t.q + h * PANEL, &maps.qk, key_head * HEAD + h * 64, span.start, f);
            box_copy(t.k + h * PANEL, &maps.qk, (d.k_heads + key_head) * HEAD + h * 64, span.start, f);
        }
        bulk_copy(t.p, room.p + at * PANEL, PANEL, f);
        bulk_copy(t.gates, room.gates + at * 2 * BLOCK, sizeof t.gates, f);
    }
}

/* A warpgroup's half of the columns of 64 rows of the state. */
__device__ inline void move_state(float (&held)[32], float *state, bool load)
{
    const uint32_t lane = threadIdx.x & 31, row = (threadIdx.x >> 5 & 3) * 16 + (lane >> 2), column = threadIdx.x / 128 * 64 + 2 * (lane & 3);
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float2 *at = (float2 *)(state + (row + h * 8) * HEAD + column + n * 8);
            float *v = held + n * 4 + h * 2;
            if (load) {
                const float2 x = *at;
                v[0] = x.x, v[1] = x.y;
            } else {
                *at = make_float2(v[0], v[1]);
            }
        }
}

__device__ inline void take_u(uint4 (&u)[4], const Room &room, size_t at)
{
#pragma unroll
    for (int i = 0; i < 4; i++) u[i] = __ldg(room.u + at * 4 * 128 + i * 128 + (threadIdx.x & 127));
}
__device__ inline float2 halves(uint32_t v) { return __half22float2(*(const __half2 *)&v); }

/* V' = U - W S^T, into its two places. */
__device__ void make_fresh(ChainRoom &s, const Stage &t, uint32_t b, const uint4 (&u)[4])
{
    const uint32_t row = (threadIdx.x >> 5 & 3) * 16 + ((threadIdx.x & 31) >> 2);
    float x[32];
    multiply<2>(x, t.w, s.state, 0);
    finish(x);
#pragma unroll
    for (int i = 0; i < 16; i++) {
        const float2 v = halves(word_of(u[i >> 2], i & 3));
        x[2 * i] = v.x - x[2 * i], x[2 * i + 1] = v.y - x[2 * i + 1];
    }
    store_panel<true>(s.fresh[b & 1], x, 1, 1);
    store_panel<true>(s.faded, x, t.gates[BLOCK + row], t.gates[BLOCK + row + 8]);
    async_fence();
}

/* The warpgroup's columns of the state, then its rows as the next block's operand. */
__device__ void update_state(ChainRoom &s, const Stage &t, float (&held)[32])
{
    const uint32_t group = threadIdx.x / 128;
    const float keep = t.gates[BLOCK - 1];
#pragma unroll
    for (int i = 0; i < 32; i++) held[i] *= keep;
    multiply_turned(held, s.faded, t.k + group * PANEL, 1);
    finish(held);
    store_panel<false>(s.state + group * PANEL, held, 1, 1);
    async_fence();
}

__device__ void store_out(const cuda_delta &d, const Span &span, float *out, const float (&x)[32])
{
    const uint32_t lane = threadIdx.x & 31, row = (threadIdx.x >> 5 & 3) * 16 + (lane >> 2);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        if (row + h * 8 >= span.count) continue;
        float *to = out + (size_t)(span.start + row + h * 8) * d.v_heads * HEAD + 2 * (lane & 3);
#pragma unroll
        for (int n = 0; n < 8; n++) *(float2 *)(to + n * 8) = make_float2(x[n * 4 + h * 2], x[n * 4 + h * 2 + 1]);
    }
}

/* Two consumer warpgroups: tokens as keys, tokens as queries; both have half of the state's columns. */
struct Consumer {
    const cuda_delta &d;
    const Room &room;
    ChainRoom &s;
    uint64_t *full, *empty;
    uint32_t head, half, blocks;
    float held[32];

    /* U of a block is asked for two blocks ahead. */
    __device__ inline void ask(uint4 (&u)[4], uint32_t b) const
    {
        if (threadIdx.x < 128 && b < blocks) take_u(u, room, ((size_t)b * d.v_heads + head) * 2 + half);
    }

    __device__ inline void step(uint32_t b, const Span &span, uint4 (&u)[4])
    {
        const bool keys = threadIdx.x < 128;
        const uint32_t lane = threadIdx.x & 31, row = (threadIdx.x >> 5 & 3) * 16 + (lane >> 2);
        const Stage &t = s.stage[b % STAGES];
        float x[32];
        barrier_wait(&full[b % STAGES], b / STAGES & 1);
        if (keys) {
            make_fresh(s, t, b, u);
            ask(u, b + 2);
        } else {
            multiply<2>(x, t.q, s.state, 0);
            const float upper = t.gates[row], lower = t.gates[row + 8];
            finish(x);
#pragma unroll
            for (int i = 0; i < 32; i++) x[i] *= i & 2 ? lower : upper;
        }
        meet(1);
        update_state(s, t, held);
        if (keys && lane == 0) barrier_arrive(&empty[b % STAGES]);
        meet(2);
        if (!keys) {
            multiply<1>(x, t.p, s.fresh[b & 1], 1);
            finish(x);
            if (lane == 0) barrier_arrive(&empty[b % STAGES]);
            store_out(d, span, d.dn + head * HEAD + half * ROWS, x);
        }
    }

    __device__ inline void run()
    {
        const size_t at = d.s_at + ((size_t)head * HEAD + half * ROWS) * HEAD;
        uint4 u[2][4];
        Walk walk;
        ask(u[0], 0);
        ask(u[1], 1);
        move_state(held, d.lane->recurrent + at, true);
        store_panel<false>(s.state + threadIdx.x / 128 * PANEL, held, 1, 1);
        async_fence();
        meet(2);
        for (uint32_t b0 = 0; b0 < blocks; b0 += 2)
#pragma unroll
            for (uint32_t i = 0; i < 2; i++) {
                if (b0 + i >= blocks) break;
                const Span span = walk.next(s.parts);
                step(b0 + i, span, u[i]);
                if (span.mark) move_state(held, d.lane->mark[span.mark - 1] + at, false);
            }
        move_state(held, d.lane->recurrent + at, false);
    }
};

__global__ __launch_bounds__(CHAIN_THREADS, 1) void delta_chain(const __grid_constant__ cuda_delta d, const __grid_constant__ Maps maps,
                                                                const Room room)
{
    extern __shared__ uint8_t shared[];
    __shared__ uint64_t full[STAGES], empty[STAGES];
    ChainRoom &s = *(ChainRoom *)(shared + (-shared_address(shared) & 1023));
    if (threadIdx.x < STAGES) {
        barrier_init(&full[threadIdx.x], 1);
        barrier_init(&empty[threadIdx.x], 8);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    if (threadIdx.x < 32) s.parts.load(d);
    __syncthreads();
    const uint32_t head = blockIdx.x >> 1;
    if (threadIdx.x < 256) Consumer{d, room, s, full, empty, head, blockIdx.x & 1, blocks_of(s.parts), {}}.run();
    else if (threadIdx.x == 256) produce(d, maps, room, s, full, empty, head);
}

uint32_t blocks_at_most(uint32_t tokens) { return ceil_div(tokens, BLOCK) + CUDA_MAX_MARKS; }

size_t aligned(size_t bytes) { return (bytes + 1023) / 1024 * 1024; }

size_t room_of(Room *r, void *work, uint32_t tokens, uint32_t v_heads)
{
    const size_t blocks = blocks_at_most(tokens), heads = blocks * v_heads;
    uint8_t *at = (uint8_t *)work;
    r->w = at, at += heads * TILE;
    r->p = at, at += heads * PANEL;
    r->u = (uint4 *)at, at += heads * TILE;
    r->gates = (float *)at, at += aligned(heads * 2 * BLOCK * sizeof(float));
    return (size_t)(at - (uint8_t *)work);
}

}

size_t cuda_delta_wgmma_room(uint32_t tokens, uint32_t k_heads, uint32_t v_heads)
{
    (void)k_heads;
    Room r;
    return room_of(&r, NULL, tokens, v_heads);
}

cudaError_t cuda_delta_wgmma(const cuda_delta *d, void *work, cudaStream_t s)
{
    static size_t allowed = 0;
    cudaError_t e = allow_shared(delta_chain, sizeof(ChainRoom) + 1024, allowed);
    if (e != cudaSuccess) return e;
    const uint64_t key_width = 2ull * d->k_heads * HEAD, value_width = (uint64_t)d->v_heads * HEAD;
    Room room;
    Maps maps;
    room_of(&room, work, d->tokens, d->v_heads);
    if (!tensor_map(&maps.qk, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, d->half_qk, key_width, d->tokens, key_width * 2, 64, BLOCK, CU_TENSOR_MAP_SWIZZLE_128B) ||
        !tensor_map(&maps.v, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, d->half_v, value_width, d->tokens, value_width * 2, 64, BLOCK, CU_TENSOR_MAP_SWIZZLE_128B))
        return cudaErrorNotSupported;
    e = cuda_delta_parts(d, maps, room, blocks_at_most(d->tokens), s);
    if (e != cudaSuccess) return e;
    delta_chain<<<d->v_heads * (HEAD / ROWS), CHAIN_THREADS, sizeof(ChainRoom) + 1024, s>>>(*d, maps, room);
    return cudaGetLastError();
}
