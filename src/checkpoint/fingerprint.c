#include "checkpoint/fingerprint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

__extension__ typedef unsigned __int128 u128;

enum { SAMPLE = 64 };

lily_fnv lily_fnv_start(void)
{
    return (lily_fnv){0x6c62272e07bb0142u, 0x62b821756295c58du};
}

lily_fnv lily_fnv_bytes(lily_fnv h, const void *data, size_t n)
{
    const u128 prime = (u128)1 << 88 | 0x13b;
    u128 x = (u128)h.hi << 64 | h.lo;
    for (size_t i = 0; i < n; i++) x = (x ^ ((const uint8_t *)data)[i]) * prime;
    return (lily_fnv){(uint64_t)(x >> 64), (uint64_t)x};
}

lily_fnv lily_fnv_u64(lily_fnv h, uint64_t v)
{
    return lily_fnv_bytes(h, &v, sizeof v);
}

lily_fnv lily_fnv_tensor(lily_fnv h, const lily_tensor *t)
{
    h = lily_fnv_bytes(h, t->name, strlen(t->name) + 1);
    h = lily_fnv_u64(h, t->dtype);
    h = lily_fnv_u64(h, t->rank);
    for (uint32_t i = 0; i < t->rank; i++) h = lily_fnv_u64(h, t->dim[i]);
    uint64_t n = t->bytes < SAMPLE ? t->bytes : SAMPLE;
    return lily_fnv_bytes(h, t->data + (t->bytes - n) / 2, (size_t)n);
}

lily_fnv lily_fnv_file(lily_fnv h, const char *dir, const char *name)
{
    lily_map m;
    char *path = lily_path_join(dir, name);
    if (path && lily_map_open(&m, path, NULL) == LILY_OK) {
        h = lily_fnv_bytes(h, m.data, (size_t)m.size);
        lily_map_close(&m);
    }
    lily_free(path);
    return h;
}

void lily_fnv_hex(lily_fnv h, char out[33])
{
    snprintf(out, 33, "%016" PRIx64 "%016" PRIx64, h.hi, h.lo);
}
