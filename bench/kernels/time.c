#include "time.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

#define PIECE ((size_t)1 << 20)

typedef struct reading {
    const uint8_t *data;
    size_t bytes;
    uint64_t sums[256];
} reading;

static void read_pieces(void *context, uint32_t begin, uint32_t end, unsigned thread)
{
    reading *r = context;
    uint64_t sum[8] = {0};
    size_t to = end * PIECE < r->bytes ? end * PIECE : r->bytes;
    for (size_t at = begin * PIECE; at + 64 <= to; at += 64) {
        uint64_t words[8];
        __builtin_prefetch(r->data + at + 4096, 0, 3);    /* up to twice as fast as without, in a virtual machine */
        memcpy(words, r->data + at, 64);
        for (int i = 0; i < 8; i++) sum[i] += words[i];
    }
    for (int i = 0; i < 8; i++) r->sums[thread & 255] += sum[i];
}

uint64_t bench_now(const lily_pool *pool)
{
    struct timespec t;
    if (lily_pool_threads(pool) > 1) return lily_now_ns();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

double read_rate(lily_pool *pool, const void *data, size_t bytes)
{
    static volatile uint64_t sink;
    reading r = {.data = data, .bytes = bytes};
    uint64_t start = bench_now(pool);
    lily_pool_for(pool, (uint32_t)((bytes + PIECE - 1) / PIECE), 4, read_pieces, &r);
    double seconds = 1e-9 * (double)(bench_now(pool) - start);
    for (int i = 0; i < 256; i++) sink += r.sums[i];
    return (double)bytes / seconds;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *values, unsigned n)
{
    qsort(values, n, sizeof *values, compare);
    return n % 2 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}
