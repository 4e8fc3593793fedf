/* read_rate.c - how fast this machine reads the weights when nothing is computed: the limit of decoding. */
#include <string.h>

#include "base/clock.h"
#include "device/cpu/cpu.h"

enum {
    PIECE = 1 << 20,     /* bytes a thread takes at a time */
    BURST_PIECES = 1024, /* more than any last-level cache holds */
    STREAMS = 4,         /* read side by side, as rows of a product are */
    AHEAD = 4096,        /* bytes prefetched in each, measured best in bench/log.md */
};

typedef struct burst {
    const uint8_t *piece[BURST_PIECES];
    uint64_t sum[BURST_PIECES]; /* kept, so that no read can be left out */
} burst;

static uint64_t read_piece(const uint8_t *p)
{
    enum { STEP = 64, EACH = PIECE / STREAMS };
    uint64_t sum[STREAMS] = {0};
    for (size_t i = 0; i < EACH; i += STEP) {
        for (size_t s = 0; s < STREAMS; s++) {
            const uint8_t *at = p + s * EACH + i;
            __builtin_prefetch(at + AHEAD);
            for (size_t w = 0; w < STEP; w += 8) {
                uint64_t v;
                memcpy(&v, at + w, sizeof v);
                sum[s] += v;
            }
        }
    }
    return sum[0] + sum[1] + sum[2] + sum[3];
}

static void read_pieces(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    (void)thread;
    burst *b = context;
    for (uint32_t i = begin; i < end; i++) b->sum[i] = read_piece(b->piece[i]);
}

/* Pieces out of all layers' routed experts, three matrices each, evenly spread. */
static uint32_t choose_pieces(const lily_model *m, burst *b)
{
    uint32_t n = 0, each = BURST_PIECES / (3 * m->config->layers) + 1;
    for (uint32_t l = 0; l < m->config->layers; l++) {
        const lily_layer *y = &m->layer[l];
        const lily_matrix *stacks[] = {&y->ex_gate, &y->ex_up, &y->ex_down};
        for (int k = 0; k < 3; k++) {
            uint64_t bytes = lily_row_bytes(stacks[k]) * stacks[k]->rows * stacks[k]->experts;
            for (uint32_t i = 0; i < each && (i + 1ull) * PIECE <= bytes && n < BURST_PIECES; i++)
                b->piece[n++] = stacks[k]->codes + bytes / each / PIECE * PIECE * i;
        }
    }
    return n;
}

double cpu_read_rate(lily_dev *d, const lily_weights *w)
{
    burst b;
    uint32_t n = choose_pieces(w->model, &b);
    if (n < BURST_PIECES / 2) return 0; /* so small a model lives in caches: memory is not its limit */
    uint64_t start = lily_now_ns();
    lily_pool_for(d->pool, n, 1, read_pieces, &b);
    return (double)n * PIECE / lily_seconds_since(start);
}
