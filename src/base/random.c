#include "base/random.h"

#include <stdio.h>

#include "base/clock.h"

void lily_philox(uint64_t seed, uint64_t draw, uint32_t out[4])
{
    uint32_t c[4] = {(uint32_t)draw, (uint32_t)(draw >> 32), 0, 0};
    uint32_t k[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    for (int round = 0; round < 10; round++) {
        uint64_t a = 0xD2511F53u * (uint64_t)c[0], b = 0xCD9E8D57u * (uint64_t)c[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c[3] ^ k[1],
                            (uint32_t)a};
        for (int i = 0; i < 4; i++) c[i] = next[i];
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++) out[i] = c[i];
}

double lily_uniform(uint64_t seed, uint64_t draw)
{
    uint32_t r[4];
    lily_philox(seed, draw, r);
    uint64_t bits = ((uint64_t)r[0] << 32 | r[1]) >> 11;
    return (double)bits * 0x1p-53;
}

uint64_t lily_random_seed(void)
{
    uint64_t seed = 0;
    FILE *f = fopen("/dev/urandom", "rb");
    if (!f || fread(&seed, sizeof seed, 1, f) != 1) seed = lily_now_ns() * 0x9E3779B97F4A7C15u;
    if (f) fclose(f);
    return seed;
}
