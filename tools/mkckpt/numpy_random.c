#include "numpy_random.h"

#include <math.h>

/* ---- SeedSequence ------------------------------------------------------------------ */

enum { POOL = 4 };

static uint32_t hash_mix(uint32_t value, uint32_t *constant, uint32_t multiplier)
{
    value ^= *constant;
    *constant *= multiplier;
    value *= *constant;
    return value ^ value >> 16;
}

static uint32_t mix(uint32_t x, uint32_t y)
{
    uint32_t v = 0xca01f9ddu * x - 0x4973f715u * y;
    return v ^ v >> 16;
}

void np_seed(np_random *r, const uint32_t *keys, size_t n)
{
    uint32_t pool[POOL], out[6], constant = 0x43b0d7e5u;
    for (size_t i = 0; i < POOL; i++) pool[i] = hash_mix(i < n ? keys[i] : 0, &constant, 0x931e8875u);
    for (size_t from = 0; from < POOL; from++)
        for (size_t to = 0; to < POOL; to++)
            if (from != to) pool[to] = mix(pool[to], hash_mix(pool[from], &constant, 0x931e8875u));
    constant = 0x8b51f9ddu;
    for (size_t i = 0; i < 6; i++) out[i] = hash_mix(pool[i % POOL], &constant, 0x58f38dedu);
    *r = (np_random){
        .a = (uint64_t)out[1] << 32 | out[0],
        .b = (uint64_t)out[3] << 32 | out[2],
        .c = (uint64_t)out[5] << 32 | out[4],
        .counter = 1,
    };
    for (int i = 0; i < 12; i++) np_u64(r);
}

/* ---- SFC64 ------------------------------------------------------------------------- */

uint64_t np_u64(np_random *r)
{
    uint64_t v = r->a + r->b + r->counter++;
    r->a = r->b ^ r->b >> 11;
    r->b = r->c + (r->c << 3);
    r->c = (r->c << 24 | r->c >> 40) + v;
    return v;
}

uint32_t np_u32(np_random *r)
{
    if (r->has_spare) {
        r->has_spare = 0;
        return r->spare;
    }
    uint64_t v = np_u64(r);
    r->spare = (uint32_t)(v >> 32);
    r->has_spare = 1;
    return (uint32_t)v;
}

double np_double(np_random *r)
{
    return (double)(np_u64(r) >> 11) * 0x1p-53;
}

double np_uniform(np_random *r, double low, double high)
{
    return low + (high - low) * np_double(r);
}

static float next_float(np_random *r)
{
    return (float)(np_u32(r) >> 8) * 0x1p-24f;
}

/* ---- normal variates --------------------------------------------------------------- */

#define TAIL 3.6541528853610087963519472518 /* where the lowest layer's rectangle ends */

void np_ziggurat_init(np_ziggurat *z)
{
    const double scale = 0x1p23, f_tail = exp(-0.5 * TAIL * TAIL);
    const double area = TAIL * f_tail + sqrt(acos(-1.0) / 2) * erfc(TAIL / sqrt(2.0)); /* of every layer */
    double x = TAIL, f = f_tail;
    z->k[0] = (uint32_t)lround(TAIL * f_tail / area * scale);
    z->w[0] = (float)(area / f_tail / scale);
    z->f[0] = 1;
    for (int i = 255; i > 0; i--) {
        z->w[i] = (float)(x / scale);
        z->f[i] = (float)f;
        double above = i > 1 ? sqrt(-2 * log(area / x + f)) : 0;
        z->k[i] = (uint32_t)lround(above / x * scale);
        x = above;
        f = exp(-0.5 * x * x);
    }
}

static float tail(np_random *r, uint32_t sign)
{
    const float inverse = (float)(1 / TAIL);
    for (;;) {
        float x = -inverse * log1pf(-next_float(r));
        float y = -log1pf(-next_float(r));
        if (y + y > x * x) return sign ? -((float)TAIL + x) : (float)TAIL + x;
    }
}

float np_normal(np_random *r, const np_ziggurat *z)
{
    for (;;) {
        uint32_t bits = np_u32(r), i = bits & 0xff, distance = bits >> 9 & 0x7fffff;
        float x = (float)distance * z->w[i];
        if (bits >> 8 & 1) x = -x;
        if (distance < z->k[i]) return x;
        if (i == 0) return tail(r, distance >> 8 & 1);
        if ((z->f[i - 1] - z->f[i]) * next_float(r) + z->f[i] < exp(-0.5 * (double)x * (double)x)) return x;
    }
}
