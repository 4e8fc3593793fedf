/* card.c - which GPU, and whether it and its driver will do. */
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda.h"

int cuda_check_driver(int driver, lily_err *e)
{
    if (driver == 0) return lily_fail(e, LILY_UNSUPPORTED, "there is no NVIDIA driver (libcuda.so.1)");
    if (driver >= CUDA_LEAST_DRIVER) return LILY_OK;
    return lily_fail(e, LILY_UNSUPPORTED, "the NVIDIA driver knows CUDA %d.%d, at least %d.%d (driver 580) is needed",
                     driver / 1000, driver % 1000 / 10, CUDA_LEAST_DRIVER / 1000, CUDA_LEAST_DRIVER % 1000 / 10);
}

int cuda_check_card(const char *name, int major, int minor, lily_err *e)
{
    if (major >= CUDA_LEAST_MAJOR) return LILY_OK;
    return lily_fail(e, LILY_UNSUPPORTED, "%s has compute capability %d.%d, at least %d.0 is needed", name, major, minor,
                     CUDA_LEAST_MAJOR);
}

int cuda_check_switches(const lily_dev *d, uint64_t ablated, lily_err *e)
{
    if (d->hopper || !(ablated & lily_bit(ABLATE_FUSED_DEQUANT))) return LILY_OK;
    return lily_fail(e, LILY_UNSUPPORTED,
                     "cuda cannot turn fused-dequant off on this card: only Hopper has products of unpacked weights");
}

int cuda_choose(const char *which, int n, int *index, bool *portable, lily_err *e)
{
    static const char name[] = "portable";
    const char *at = which ? which : "";
    char *end = (char *)(uintptr_t)at;
    *index = 0;
    *portable = false;
    if (*at == 0) return LILY_OK;
    if (*at >= '0' && *at <= '9') {
        const long number = strtol(at, &end, 10);
        if (number >= n) return lily_fail(e, LILY_ARGUMENT, "there is no GPU %ld, the first of %d is 0", number, n);
        *index = (int)number;
        if (*end == 0) return LILY_OK;
        at = *end == ',' ? end + 1 : end;
    }
    *portable = strcmp(at, name) == 0;
    if (*portable && (at == which || at[-1] == ',')) return LILY_OK;
    return lily_fail(e, LILY_ARGUMENT, "device cuda has no variant '%s': a GPU's number, '%s', or both with a comma between",
                     which, name);
}

/* The driver is looked for only now: the program runs without one. */
int cuda_find_driver(int *driver, lily_err *e)
{
    if (cudaDriverGetVersion(driver) != cudaSuccess) *driver = 0;
    (void)cudaGetLastError();
    return cuda_check_driver(*driver, e);
}

int cuda_find_card(lily_dev *d, const char *which, lily_err *e)
{
    int n = 0;
    bool portable;
    if (cudaGetDeviceCount(&n) != cudaSuccess) n = 0;
    (void)cudaGetLastError();
    if (n == 0) return lily_fail(e, LILY_UNSUPPORTED, "there is no NVIDIA GPU");
    TRY(cuda_choose(which, n, &d->index, &portable, e));
    CU(cudaGetDeviceProperties(&d->props, d->index));
    CU(cudaSetDevice(d->index));
    TRY(cuda_check_card(d->props.name, d->props.major, d->props.minor, e));
    d->hopper = d->props.major == 9 && !portable;
    if (cuda_has_kernels()) return LILY_OK;
    return lily_fail(e, LILY_UNSUPPORTED, "this build has no kernels for %s, compute capability %d.%d (LILY_CUDA_ARCHS)",
                     d->props.name, d->props.major, d->props.minor);
}
