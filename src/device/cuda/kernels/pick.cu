/* pick.cu - scores, and the next token from the logits by the rule of host/pick.h: same order of operations, same
 * draws.  Many blocks look at the logits (adjust, weigh), one decides (choose); sums have a fixed order. */
#include "device/cuda/kernels/common.cuh"

enum { SLICES = 128, THREADS = 1024, BINS = 256 };

struct Slice {
    uint64_t best;              /* of the adjusted logits, as an order key */
    double sum;                 /* of exp(raw - most) */
    float most;                 /* of the raw logits */
    int32_t fault;              /* first id that is no number below infinity, or INT_MAX */
};

struct Work {
    float *adjusted, *weight;   /* [V] */
    Slice *slice;               /* [SLICES] */
};

static __host__ __device__ Work work_at(void *room, uint32_t vocab)
{
    Work w;
    w.slice = (Slice *)room;
    w.adjusted = (float *)(w.slice + SLICES);
    w.weight = w.adjusted + vocab;
    return w;
}

size_t cuda_pick_room(uint32_t vocab) { return SLICES * sizeof(Slice) + 2 * (size_t)vocab * sizeof(float); }

/* Larger logit first, lower id on ties. */
__device__ inline uint64_t order_key(float logit, uint32_t id)
{
    uint32_t u = __float_as_uint(logit == 0 ? 0.f : logit);     /* both zeros are one value */
    u = u & 0x80000000u ? ~u : u | 0x80000000u;
    return (uint64_t)u << 32 | (uint32_t)~id;
}
__device__ inline uint32_t id_of(uint64_t key) { return ~(uint32_t)key; }
__device__ inline float logit_of(uint64_t key)
{
    const uint32_t u = (uint32_t)(key >> 32);
    return __uint_as_float(u & 0x80000000u ? u & 0x7FFFFFFFu : ~u);
}

__device__ inline uint64_t warp_max64(uint64_t v)
{
#pragma unroll
    for (int o = 16; o; o >>= 1) {
        const uint64_t other = __shfl_xor_sync(~0u, v, o);
        if (other > v) v = other;
    }
    return v;
}
__device__ inline double warp_sum_double(double v)
{
#pragma unroll
    for (int o = 16; o; o >>= 1) v += __shfl_xor_sync(~0u, v, o);
    return v;
}
/* Every thread gets them; room: 32 values. */
__device__ inline uint64_t block_max64(uint64_t v, uint64_t *room)
{
    v = warp_max64(v);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) room[threadIdx.x >> 5] = v;
    __syncthreads();
    return warp_max64((threadIdx.x & 31) < blockDim.x / 32 ? room[threadIdx.x & 31] : 0);
}
/* Three at once. */
__device__ inline void block_max64_three(uint64_t (&v)[3], uint64_t (&room)[3][32])
{
#pragma unroll
    for (int i = 0; i < 3; i++) v[i] = warp_max64(v[i]);
    if ((threadIdx.x & 31) == 0)
#pragma unroll
        for (int i = 0; i < 3; i++) room[i][threadIdx.x >> 5] = v[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 3; i++) v[i] = warp_max64((threadIdx.x & 31) < blockDim.x / 32 ? room[i][threadIdx.x & 31] : 0);
}
__device__ inline double block_sum_double(double v, double *room)
{
    v = warp_sum_double(v);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) room[threadIdx.x >> 5] = v;
    __syncthreads();
    return warp_sum_double((threadIdx.x & 31) < blockDim.x / 32 ? room[threadIdx.x & 31] : 0);
}

__device__ inline float adjusted_logit(const cuda_lane *k, float l, uint32_t i)
{
    for (uint32_t b = 0; b < k->n_bias; b++)
        if (k->bias[b].token == (int32_t)i) l += k->bias[b].add;
    if (k->allow && !(k->allow[i / 32] >> (i % 32) & 1)) l = -CUDART_INF_F;
    if (k->repetition == 1 && k->presence == 0 && k->frequency == 0) return l;
    const uint32_t n = k->count[i];
    return n ? (l > 0 ? l / k->repetition : l * k->repetition) - k->presence - k->frequency * (float)n : l;
}

/* Logits that a thread keeps in registers. */
enum { HELD = 8 };
__device__ inline float held_at(const float (&x)[HELD], uint32_t k)
{
    float v = x[0];
#pragma unroll
    for (int i = 1; i < HELD; i++) v = k == i ? x[i] : v;
    return v;
}

static __global__ __launch_bounds__(256) void adjust(const float *logits, const cuda_lane *lane, void *room, uint32_t vocab)
{
    __shared__ uint64_t keys[3][32];
    __shared__ double sums[32];
    const Work w = work_at(room, vocab);
    dependency_launch();
    dependency_wait();
    const uint32_t n = (uint32_t)lane->n_vocab, each = (n + SLICES - 1) / SLICES;
    const uint32_t begin = blockIdx.x * each, end = min(begin + each, n);
    uint64_t top[3] = {}, &best = top[0], &raw = top[1], &fault = top[2];
    float mine[HELD];
#pragma unroll
    for (int k = 0; k < HELD; k++) mine[k] = begin + threadIdx.x + k * 256 < end ? __ldcg(logits + begin + threadIdx.x + k * 256) : 0;
    for (uint32_t i = begin + threadIdx.x, k = 0; i < end; i += 256, k++) {
        const float l = k < HELD ? held_at(mine, k) : __ldcg(logits + i), changed = adjusted_logit(lane, l, i);
        w.adjusted[i] = changed;
        if (!(l < CUDART_INF_F)) fault = max(fault, (uint64_t)(0x7fffffffu - i) + 1);
        best = max(best, order_key(changed, i));
        raw = max(raw, order_key(l, i));
    }
    block_max64_three(top, keys);
    const float most = begin < end ? logit_of(raw) : -CUDART_INF_F;
    double sum = 0;
    for (uint32_t i = begin + threadIdx.x, k = 0; i < end; i += 256, k++) {
        const float l = k < HELD ? held_at(mine, k) : __ldcg(logits + i);
        sum += l > most - 50 ? (double)expf(l - most) : 0.0;
    }
    sum = block_sum_double(sum, sums);
    if (threadIdx.x == 0) w.slice[blockIdx.x] = {best, sum, most, fault ? (int32_t)(0x7fffffff - (fault - 1)) : 0x7fffffff};
}

__device__ inline bool is_greedy(const cuda_lane *k) { return !(k->temperature > 0) || k->top_k == 1; }

__device__ inline uint64_t best_of_slices(const Work &w)
{
    uint64_t best = 0;
    for (uint32_t i = threadIdx.x & 31; i < SLICES; i += 32) best = max(best, w.slice[i].best);
    return warp_max64(best);
}

static __global__ __launch_bounds__(256) void weigh(const cuda_lane *lane, void *room, uint32_t vocab)
{
    dependency_launch();
    dependency_wait();
    if (is_greedy(lane)) return;
    const Work w = work_at(room, vocab);
    const double most = w.adjusted[min(id_of(best_of_slices(w)), vocab - 1)], temperature = lane->temperature;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < (uint32_t)lane->n_vocab; i += gridDim.x * blockDim.x)
        w.weight[i] = (float)exp((w.adjusted[i] - most) / temperature);
}

/* Shared memory of the block that decides. */
struct Deciding {
    union {
        uint32_t count[BINS];
        unsigned long long mass[BINS];      /* weights in units of 2^-40: their sum has no order */
    };
    uint64_t keys[32];
    double sums[32];
    uint64_t prefix;
    double left;
    bool found;
    double normaliser;          /* log of the sum of exp(logit) */
    uint32_t best;
    int32_t fault;
};

__device__ inline unsigned long long mass_of(float weight) { return (unsigned long long)((double)weight * 0x1p40); }

/* The key of the last candidate that is kept: the first `wanted` in order (BY_MASS false), or the fewest whose masses
 * reach `wanted`; among those at or above `floor`.  Eight bits of the key a pass; keys are all different. */
template <bool BY_MASS>
static __device__ uint64_t select_last(Deciding &s, const Work &w, uint32_t n, uint64_t floor, double wanted)
{
    if (threadIdx.x == 0) s.prefix = 0, s.left = wanted, s.found = false;
    for (int shift = 56; shift >= 0; shift -= 8) {
        for (uint32_t b = threadIdx.x; b < BINS; b += blockDim.x) {
            if (BY_MASS)
                s.mass[b] = 0;
            else
                s.count[b] = 0;
        }
        __syncthreads();
        const uint64_t prefix = s.prefix;
        for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
            const uint64_t key = order_key(w.adjusted[i], i);
            if (key < floor || (shift < 56 && (key >> (shift + 8)) != (prefix >> (shift + 8)))) continue;
            const uint32_t bin = (uint32_t)(key >> shift) & (BINS - 1);
            if (BY_MASS)
                atomicAdd(&s.mass[bin], mass_of(w.weight[i]));
            else
                atomicAdd(&s.count[bin], 1u);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            double left = s.left;
            int bin = BINS - 1, some = -1;
            for (; bin >= 0; bin--) {
                const double here = BY_MASS ? (double)s.mass[bin] : (double)s.count[bin];
                if (here > 0) some = bin;
                if (here > 0 && left <= here) break;
                left -= here;
            }
            if (bin < 0) bin = some, left = BY_MASS ? (double)s.mass[some] : (double)s.count[some];
            s.left = left;
            s.prefix = prefix | (uint64_t)bin << shift;
            s.found = !BY_MASS && left == (double)s.count[bin];      /* the whole bin is kept */
        }
        __syncthreads();
        if (s.found) break;
    }
    return s.prefix;
}

/* The first kept id, ascending, at which the running sum passes u times the sum of all kept. */
static __device__ uint32_t draw(Deciding &s, const Work &w, const cuda_lane *k, uint32_t best, uint64_t last)
{
    const uint32_t n = (uint32_t)k->n_vocab, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    const uint32_t each = ((n + 31) / 32 + 31) / 32 * 32, begin = warp * each, end = min(begin + each, n);
    auto kept = [&](uint32_t i) {
        const float weight = w.weight[i];
        return order_key(w.adjusted[i], i) >= last && weight > 0 && !(weight < k->min_p) ? (double)weight : 0.0;
    };
    double sum = 0;
    for (uint32_t i = begin + lane; i < end; i += 32) sum += kept(i);
    sum = warp_sum_double(sum);
    __syncthreads();
    if (lane == 0) s.sums[warp] = sum;
    if (threadIdx.x == 0) s.prefix = best;
    __syncthreads();
    double all = 0, before = 0;
    for (uint32_t i = 0; i < 32; i++) all += s.sums[i];
    for (uint32_t i = 0; i < warp; i++) before += s.sums[i];
    const double wanted = k->uniform * all;
    if (before <= wanted && wanted < before + sum) {        /* one warp at most */
        double reached = before;
        uint32_t chosen = best;
        bool found = false;
        for (uint32_t i0 = begin; i0 < end && !found; i0 += 32) {
            const double mine = i0 + lane < end ? kept(i0 + lane) : 0;
            double running = mine;
#pragma unroll
            for (int o = 1; o < 32; o <<= 1) {
                const double below = __shfl_up_sync(~0u, running, o);
                if (lane >= (uint32_t)o) running += below;
            }
            const uint32_t passed = __ballot_sync(~0u, mine > 0 && reached + running > wanted);
            const uint32_t some = __ballot_sync(~0u, mine > 0);
            if (some) chosen = i0 + 31 - __clz(some);
            if (passed) chosen = i0 + __ffs(passed) - 1, found = true;
            reached += __shfl_sync(~0u, running, 31);
        }
        if (lane == 0) s.prefix = chosen;
    }
    __syncthreads();
    return (uint32_t)s.prefix;
}

/* Of all slices, by one warp. */
static __device__ void join_slices(Deciding &s, const Work &w, uint32_t vocab)
{
    const uint32_t lane = threadIdx.x & 31;
    Slice mine[SLICES / 32];
    uint64_t best = 0;
    float most = -CUDART_INF_F;
    int32_t fault = 0x7fffffff;
    double sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < SLICES / 32; i++) mine[i] = w.slice[lane + 32 * i];
#pragma unroll
    for (uint32_t i = 0; i < SLICES / 32; i++)
        best = max(best, mine[i].best), most = fmaxf(most, mine[i].most), fault = min(fault, mine[i].fault);
    most = warp_max(most);
#pragma unroll
    for (uint32_t i = 0; i < SLICES / 32; i++)
        if (mine[i].sum > 0) sum += mine[i].sum * exp((double)mine[i].most - most);
    best = warp_max64(best);
    fault = __reduce_min_sync(~0u, fault);
    sum = warp_sum_double(sum);
    if (lane) return;
    s.best = min(id_of(best), vocab - 1);
    s.fault = fault;
    s.normaliser = most + log(sum);
}

/* moves: what cuda_commit does is done too, and the position moves on by so many; negative: it is not. */
static __global__ __launch_bounds__(THREADS) void choose(const float *logits, cuda_lane *lane, void *room, int32_t *token,
                                                         cuda_answer *answer, uint32_t vocab, int32_t moves)
{
    __shared__ Deciding s;
    const Work w = work_at(room, vocab);
    dependency_wait();
    const uint32_t n = (uint32_t)lane->n_vocab;
    answer += lane->turn % CUDA_ANSWERS;
    if (threadIdx.x < 32) join_slices(s, w, vocab);
    __syncthreads();
    const uint32_t best = s.best;
    const int32_t fault = s.fault;
    const double normaliser = s.normaliser;
    const bool nothing = !(w.adjusted[best] > -CUDART_INF_F);
    uint32_t chosen = best;
    if (!is_greedy(lane) && !nothing && fault == 0x7fffffff) {
        uint64_t last = 0;
        if (lane->top_k > 0 && (uint32_t)lane->top_k < n) last = select_last<false>(s, w, n, 0, lane->top_k);
        if (lane->top_p < 1) {
            double mass = 0;
            for (uint32_t i = threadIdx.x; i < n; i += blockDim.x)
                if (order_key(w.adjusted[i], i) >= last) mass += (double)mass_of(w.weight[i]);
            mass = block_sum_double(mass, s.sums);
            last = select_last<true>(s, w, n, last, (double)lane->top_p * mass);
        }
        chosen = draw(s, w, lane, best, last);
    }
    uint64_t below = ~0ull;
    const int n_top = min(max(lane->n_logprobs, 0), (int)CUDA_MAX_TOP);
    for (int t = 0; t < n_top; t++) {
        uint64_t top = 0;
        for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
            const uint64_t key = order_key(__ldcg(logits + i), i);
            if (key < below && key > top) top = key;
        }
        below = top = block_max64(top, s.keys);
        if (threadIdx.x == 0) {
            answer->top_token[t] = top ? (int32_t)id_of(top) : -1;
            answer->top_logprob[t] = top ? (float)(logits[id_of(top)] - normaliser) : -CUDART_INF_F;
        }
    }
    __syncthreads();            /* everyone has read the lane */
    if (threadIdx.x == 0) {
        *token = (int32_t)chosen;
        if (moves >= 0) lane->position += (uint32_t)moves, lane->turn++, lane->token = (int32_t)chosen;
        answer->fault = fault != 0x7fffffff ? CUDA_NOT_A_NUMBER : nothing ? CUDA_NOTHING_ALLOWED : CUDA_FINE;
        answer->fault_token = fault;
        answer->logprob = (float)(__ldcg(logits + chosen) - normaliser);
        answer->token = (int32_t)chosen;
    }
}

cudaError_t cuda_pick(const float *logits, cuda_lane *lane, void *work, int32_t *token, cuda_answer *answer, uint32_t vocab,
                      int32_t moves, bool early, cudaStream_t s)
{
    static size_t allowed[3];
    cudaError_t e = allow_shared(adjust, 0, allowed[0]);
    if (e == cudaSuccess) e = allow_shared(weigh, 0, allowed[1]);
    if (e == cudaSuccess) e = allow_shared(choose, 0, allowed[2]);
    if (e == cudaSuccess) e = launch(adjust, SLICES, 256, 0, early, s, logits, lane, work, vocab);
    if (e == cudaSuccess) e = launch(weigh, SLICES, 256, 0, early, s, lane, work, vocab);
    return e != cudaSuccess ? e : launch(choose, 1, THREADS, 0, early, s, logits, lane, work, token, answer, vocab, moves);
}

/* A block a position. */
static __global__ __launch_bounds__(THREADS) void score(const float *logits, const int32_t *wanted, uint32_t vocab,
                                                        uint32_t n, float *scores, int32_t *best)
{
    __shared__ uint64_t keys[32];
    __shared__ double sums[32];
    const float *l = logits + (size_t)blockIdx.x * vocab;
    uint64_t top = 0;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) top = max(top, order_key(l[i], i));
    top = block_max64(top, keys);
    const float most = l[id_of(top)];
    double sum = 0;
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) sum += (double)expf(l[i] - most);
    sum = block_sum_double(sum, sums);
    if (threadIdx.x == 0) {
        const uint32_t want = (uint32_t)wanted[blockIdx.x];
        scores[blockIdx.x] = want < n ? (float)((double)l[want] - most - log(sum)) : CUDART_NAN_F;
        best[blockIdx.x] = (int32_t)id_of(top);
        if (!(sum < 1e300)) scores[blockIdx.x] = CUDART_INF_F;      /* not all are numbers */
    }
}

cudaError_t cuda_score(const float *logits, const int32_t *wanted, uint32_t tokens, uint32_t vocab, uint32_t n_vocab,
                       float *scores, int32_t *best, cudaStream_t s)
{
    score<<<tokens, THREADS, 0, s>>>(logits, wanted, vocab, n_vocab, scores, best);
    return cudaGetLastError();
}
