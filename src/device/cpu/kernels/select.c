/* select.c - which kernel table runs on this machine. */
#include <string.h>

#include "device/cpu/kernels/kernels.h"

const lily_cpu_kernels *const *lily_cpu_tables(size_t *n)
{
    static const lily_cpu_kernels *const tables[] = {
#if defined(__x86_64__)
        &lily_cpu_avx2, &lily_cpu_avx2_f32,
#endif
        &lily_cpu_portable,
    };
    *n = sizeof tables / sizeof *tables;
    return tables;
}

const lily_cpu_kernels *lily_cpu_select(const char *name)
{
    size_t n;
    const lily_cpu_kernels *const *tables = lily_cpu_tables(&n);
    bool any = name == NULL || strcmp(name, "auto") == 0;
    for (size_t i = 0; i < n; i++)
        if ((any || strcmp(name, tables[i]->name) == 0) && tables[i]->runs_here()) return tables[i];
    return NULL;
}
